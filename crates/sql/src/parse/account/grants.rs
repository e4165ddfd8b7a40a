//! GRANT and REVOKE: privileges, and on what.

use super::{Clause, if_words, names, names_roles, roles, users};
use crate::{
    accounts::{Privileges, RoutineKind},
    errors::{self, Result},
    parse::token::{Name, Token, Tokens},
    wire::SqlError,
};

#[derive(Clone, PartialEq, Debug)]
pub enum Level {
    Global,
    /// A pattern; `None`: the session's database.
    Database(Option<String>),
    Table(Name),
    Routine(RoutineKind, Name),
}

/// What is granted or revoked.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct What {
    /// Without what the level cannot have; ALL is what the level can have.
    pub privileges: Privileges,
    /// Privileges on columns of a table, as they are named.
    pub columns: Vec<(String, Privileges)>,
}

/// What stands before ON, and the level behind it.
fn privileges_on(t: &mut Tokens) -> Result<(What, Level)> {
    let (mut named, mut all) = (Privileges::NONE, false);
    let mut columns = Vec::new();
    loop {
        let mut words = Vec::new();
        while let Some(Token::Word(word)) = t.peek() {
            if ["on", "to", "from"].iter().any(|end| word.eq_ignore_ascii_case(end)) {
                break;
            }
            words.push(word.to_ascii_uppercase());
            t.skip();
        }
        if t.peek_symbol('(') {
            let privilege = Privileges::named(&words.join(" ")).filter(|p| Privileges::ON_COLUMN.contains(*p));
            let privilege = privilege.ok_or_else(|| t.error())?;
            columns.extend(t.identifiers()?.into_iter().map(|column| (column, privilege)));
            if t.symbol(',') {
                continue;
            }
            break;
        }
        match words.join(" ").as_str() {
            "ALL" | "ALL PRIVILEGES" => all = true,
            "USAGE" => {}
            "GRANT OPTION" => named = named.union(Privileges::GRANT_OPTION),
            "PROXY" => return Err(errors::not_supported("GRANT PROXY")),
            "" => return Err(t.error()),
            name => match Privileges::named(name) {
                Some(privilege) => named = named.union(privilege),
                None if name.contains('_') && !name.contains(' ') => {
                    return Err(errors::not_supported(&format!("the privilege {name}")));
                }
                None => return Err(t.error()),
            },
        }
        if !t.symbol(',') {
            break;
        }
    }
    t.expect("on")?;
    let level = level(t)?;
    if !columns.is_empty() && !matches!(level, Level::Table(_)) {
        return Err(illegal_grant());
    }
    Ok((What { privileges: at_level(&level, named, all)?, columns }, level))
}

fn illegal_grant() -> SqlError {
    let text = "Illegal GRANT/REVOKE command; please consult the manual to see which privileges can be used";
    SqlError::new(1144, b"42000", text)
}

pub(super) fn level(t: &mut Tokens) -> Result<Level> {
    let kind = RoutineKind::ALL.into_iter().find(|kind| t.peek_word(kind.name()));
    if let Some(kind) = kind.filter(|_| !t.second_is('.')) {
        t.skip();
        return Ok(Level::Routine(kind, t.name()?));
    }
    if t.peek_word("table") && !t.second_is('.') {
        t.skip();
    }
    if t.symbol('*') {
        if !t.symbol('.') {
            return Ok(Level::Database(None));
        }
        t.expect_symbol('*')?;
        return Ok(Level::Global);
    }
    let first = t.identifier()?;
    if !t.symbol('.') {
        return Ok(Level::Table((None, first)));
    }
    if t.symbol('*') { Ok(Level::Database(Some(first))) } else { Ok(Level::Table((Some(first), t.identifier()?))) }
}

/// # Errors
/// 1144, 1221: privileges that this level cannot have.
fn at_level(level: &Level, named: Privileges, all: bool) -> Result<Privileges> {
    let most = match level {
        Level::Global => Privileges::GLOBAL,
        Level::Database(_) => Privileges::ON_DATABASE,
        Level::Table(_) => Privileges::ON_TABLE,
        Level::Routine(..) => Privileges::ON_ROUTINE,
    };
    let granted = if all { named.union(most) } else { named };
    let wrong = granted.without(most).without(Privileges::GRANT_OPTION);
    if wrong == Privileges::NONE {
        return Ok(granted);
    }
    if wrong.is_dynamic() {
        let name = wrong.first_name();
        let text = format!("Illegal privilege level specified for {name}");
        return Err(SqlError::new(3619, b"HY000", text));
    }
    match level {
        Level::Table(_) | Level::Routine(..) => Err(illegal_grant()),
        _ => Err(errors::wrong_usage("DB GRANT", "GLOBAL PRIVILEGES")),
    }
}

/// Behind GRANT.
pub(super) fn grant(t: &mut Tokens) -> Result<Clause> {
    if names_roles(t) {
        let roles = roles(t)?;
        t.expect("to")?;
        let users = names(t)?;
        let with_admin = t.word("with");
        if with_admin {
            t.expect("admin")?;
            t.expect("option")?;
        }
        return Ok(Clause::GrantRoles { roles, users, with_admin });
    }
    let (mut what, level) = privileges_on(t)?;
    t.expect("to")?;
    let users = users(t, false)?.into_iter().map(|(name, _)| name).collect();
    if t.word("with") {
        t.expect("grant")?;
        t.expect("option")?;
        what.privileges = what.privileges.union(Privileges::GRANT_OPTION);
    }
    if t.peek_word("as") {
        return Err(errors::not_supported("GRANT ... AS"));
    }
    Ok(Clause::Grant { what, level, users })
}

/// Behind REVOKE.
pub(super) fn revoke(t: &mut Tokens) -> Result<Clause> {
    let if_exists = if_words(t, &["exists"])?;
    let start = t.position();
    if t.word("all") {
        t.word("privileges");
        if t.symbol(',') && t.word("grant") && t.word("option") && t.word("from") {
            let users = names(t)?;
            ignore_unknown(t)?;
            return Ok(Clause::RevokeAll(users));
        }
    }
    t.rewind(start);
    if names_roles(t) {
        let roles = roles(t)?;
        t.expect("from")?;
        let users = names(t)?;
        let ignores_unknown = ignore_unknown(t)?;
        return Ok(Clause::RevokeRoles { roles, users, if_exists, ignores_unknown });
    }
    let (what, level) = privileges_on(t)?;
    t.expect("from")?;
    let users = names(t)?;
    let ignores_unknown = ignore_unknown(t)?;
    Ok(Clause::Revoke { what, level, users, if_exists, ignores_unknown })
}

fn ignore_unknown(t: &mut Tokens) -> Result<bool> {
    if !t.word("ignore") {
        return Ok(false);
    }
    t.expect("unknown")?;
    t.expect("user")?;
    Ok(true)
}
