//! CREATE, ALTER, DROP and RENAME USER, SET PASSWORD, GRANT and REVOKE, parsed from tokens.
//!
//! What is not done is refused by its name here, so that no clause is taken without effect. What CREATE and ALTER USER say behind the accounts is in [`super::account_options`].

use super::{
    account_options::Options,
    token::{Name, Token, Tokens},
};
use crate::{
    accounts::{AccountName, Active, HOST_CHARS_MAX, Privileges, RoutineKind, USER_CHARS_MAX},
    errors::{self, Result},
    wire::{SqlError, auth::AuthPlugin},
};

/// An account that a statement names; `None`: the session's own.
pub type Named = Option<AccountName>;

/// A password as a statement says it.
#[derive(Clone, PartialEq, Debug)]
pub struct Spoken {
    pub password: String,
    /// REPLACE: the one that the account has until then.
    pub replaces: Option<String>,
    /// RANDOM: it is made up when the statement is carried out.
    pub is_random: bool,
    /// RETAIN CURRENT PASSWORD: the one that the account has until then stays its second one.
    pub retains: bool,
}

/// What IDENTIFIED says.
#[derive(Clone, PartialEq, Debug)]
pub enum Identified {
    /// BY 'password', for this plugin.
    By(Option<AuthPlugin>, Spoken),
    /// WITH plugin AS 'kept form'; without AS nobody needs a password. True: RETAIN CURRENT PASSWORD.
    As(AuthPlugin, String, bool),
    /// DISCARD OLD PASSWORD: the second one is gone.
    Discard,
}

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

#[derive(Clone, PartialEq, Debug)]
pub enum Clause {
    CreateUser {
        users: Vec<(Named, Option<Identified>)>,
        if_not_exists: bool,
        options: Options,
    },
    AlterUser {
        users: Vec<(Named, Option<Identified>)>,
        if_exists: bool,
        options: Options,
    },
    DropUser {
        users: Vec<Named>,
        if_exists: bool,
    },
    RenameUser(Vec<(Named, Named)>),
    SetPassword {
        user: Named,
        password: Spoken,
    },
    Grant {
        what: What,
        level: Level,
        users: Vec<Named>,
    },
    Revoke {
        what: What,
        level: Level,
        users: Vec<Named>,
        /// IF EXISTS: what is not granted is a warning.
        if_exists: bool,
        /// IGNORE UNKNOWN USER.
        ignores_unknown: bool,
    },
    /// REVOKE ALL PRIVILEGES, GRANT OPTION.
    RevokeAll(Vec<Named>),
    CreateRole {
        roles: Vec<AccountName>,
        if_not_exists: bool,
    },
    DropRole {
        roles: Vec<AccountName>,
        if_exists: bool,
    },
    GrantRoles {
        roles: Vec<AccountName>,
        users: Vec<Named>,
        with_admin: bool,
    },
    RevokeRoles {
        roles: Vec<AccountName>,
        users: Vec<Named>,
        if_exists: bool,
        ignores_unknown: bool,
    },
    SetRole(Active),
    DefaultRole {
        active: Active,
        users: Vec<Named>,
    },
}

/// Parses an account statement; `None` when it is none.
pub fn parse(t: &mut Tokens) -> Result<Option<Clause>> {
    let start = t.position();
    let of_user = |t: &mut Tokens, verb: &str| t.word(verb) && t.word("user");
    let clause = if of_user(t, "create") {
        let if_not_exists = if_words(t, &["not", "exists"])?;
        let users = users(t, true)?;
        let is_of_alter = |i: &Option<Identified>| match i {
            Some(Identified::By(_, spoken)) => spoken.replaces.is_some() || spoken.retains,
            Some(Identified::As(_, _, retains)) => *retains,
            Some(Identified::Discard) => true,
            None => false,
        };
        if users.iter().any(|(_, identified)| is_of_alter(identified)) {
            return Err(t.error());
        }
        Clause::CreateUser { users, if_not_exists, options: Options::parse(t)? }
    } else if of_user(rewound(t, start), "alter") {
        let if_exists = if_words(t, &["exists"])?;
        let users = users(t, true)?;
        Clause::AlterUser { users, if_exists, options: Options::parse(t)? }
    } else if of_user(rewound(t, start), "drop") {
        let if_exists = if_words(t, &["exists"])?;
        Clause::DropUser { users: names(t)?, if_exists }
    } else if of_user(rewound(t, start), "rename") {
        let mut list = Vec::new();
        loop {
            let from = named(t)?;
            t.expect("to")?;
            list.push((from, named(t)?));
            if !t.symbol(',') {
                break;
            }
        }
        Clause::RenameUser(list)
    } else if rewound(t, start).word("set") && t.word("password") {
        set_password(t)?
    } else if rewound(t, start).word("grant") {
        grant(t)?
    } else if t.word("revoke") {
        revoke(t)?
    } else if let Some(clause) = of_roles(rewound(t, start))? {
        clause
    } else {
        t.rewind(start);
        return Ok(None);
    };
    t.end()?;
    Ok(Some(clause))
}

/// CREATE and DROP ROLE, SET ROLE, SET DEFAULT ROLE.
fn of_roles(t: &mut Tokens) -> Result<Option<Clause>> {
    let starts = |t: &Tokens, verb: &str, word: &str| t.peek_word(verb) && t.second_word(word);
    if starts(t, "create", "role") || starts(t, "drop", "role") {
        let creates = t.word("create");
        t.skip();
        if !creates {
            t.skip();
            let if_exists = if_words(t, &["exists"])?;
            return Ok(Some(Clause::DropRole { roles: roles(t)?, if_exists }));
        }
        let if_not_exists = if_words(t, &["not", "exists"])?;
        return Ok(Some(Clause::CreateRole { roles: roles(t)?, if_not_exists }));
    }
    // A variable may have this name.
    if starts(t, "set", "role") && t.ahead(2).is_some_and(|token| !matches!(token, Token::Symbol('=' | ':'))) {
        t.skip();
        t.skip();
        return Ok(Some(Clause::SetRole(active(t, true)?)));
    }
    if starts(t, "set", "default") {
        t.skip();
        t.skip();
        t.expect("role")?;
        let active = active(t, false)?;
        t.expect("to")?;
        return Ok(Some(Clause::DefaultRole { active, users: names(t)? }));
    }
    Ok(None)
}

/// NONE, ALL, DEFAULT or a list.
pub(crate) fn active(t: &mut Tokens, of_session: bool) -> Result<Active> {
    Ok(match () {
        () if t.word("none") => Active::None,
        () if of_session && t.word("default") => Active::Default,
        () if t.word("all") => {
            if of_session && t.word("except") {
                Active::AllBut(roles(t)?)
            } else {
                Active::All
            }
        }
        () => Active::These(roles(t)?),
    })
}

pub fn roles(t: &mut Tokens) -> Result<Vec<AccountName>> {
    let mut list = Vec::new();
    loop {
        list.push(named(t)?.ok_or_else(|| t.error())?);
        if !t.symbol(',') {
            return Ok(list);
        }
    }
}

fn rewound(t: &mut Tokens, at: usize) -> &mut Tokens {
    t.rewind(at);
    t
}

fn if_words(t: &mut Tokens, words: &[&str]) -> Result<bool> {
    if !t.word("if") {
        return Ok(false);
    }
    words.iter().try_for_each(|word| t.expect(word))?;
    Ok(true)
}

/// The account that comes next.
pub fn named(t: &mut Tokens) -> Result<Named> {
    if t.peek_word("user") && t.second_is('(') {
        t.skip();
        t.skip();
        t.expect_symbol(')')?;
        return Ok(None);
    }
    let Some((user, host)) = account(t)? else { return Ok(None) };
    let too_long = |text: &str, what: &str, most: usize| {
        let text = format!("String '{text}' is too long for {what} (should be no longer than {most})");
        SqlError::new(1470, b"HY000", text)
    };
    if user.is_empty() {
        return Err(errors::not_supported("accounts without a user name"));
    }
    if user.chars().count() > USER_CHARS_MAX {
        return Err(too_long(&user, "user name", USER_CHARS_MAX));
    }
    if host.chars().count() > HOST_CHARS_MAX {
        return Err(too_long(&host, "host name", HOST_CHARS_MAX));
    }
    if user.contains('\0') || host.contains('\0') {
        return Err(t.error());
    }
    let host = if host.is_empty() { "%" } else { &host };
    Ok(Some(AccountName::new(&user, host)))
}

fn names(t: &mut Tokens) -> Result<Vec<Named>> {
    let mut list = vec![named(t)?];
    while t.symbol(',') {
        list.push(named(t)?);
    }
    Ok(list)
}

fn users(t: &mut Tokens, may_identify: bool) -> Result<Vec<(Named, Option<Identified>)>> {
    let mut list = Vec::new();
    loop {
        let name = named(t)?;
        let identified = if may_identify && t.word("identified") {
            Some(identified(t)?)
        } else if may_identify && t.word("discard") {
            t.expect("old")?;
            t.expect("password")?;
            Some(Identified::Discard)
        } else {
            None
        };
        if t.peek_word("add") || t.peek_word("and") {
            return Err(errors::not_supported("several factors"));
        }
        list.push((name, identified));
        if !t.symbol(',') {
            return Ok(list);
        }
    }
}

/// Behind IDENTIFIED.
fn identified(t: &mut Tokens) -> Result<Identified> {
    let plugin = if t.word("with") {
        let name = t.identifier()?;
        let plugin = AuthPlugin::from_name(name.to_ascii_lowercase().as_bytes());
        Some(plugin.ok_or_else(|| SqlError::new(1524, b"HY000", format!("Plugin '{name}' is not loaded")))?)
    } else {
        None
    };
    let found = match plugin {
        Some(plugin) if t.word("as") => {
            let text = text(t)?;
            Identified::As(plugin, text, retains(t)?)
        }
        Some(plugin) if !t.peek_word("by") => Identified::As(plugin, String::new(), false),
        plugin => {
            t.expect("by")?;
            let is_random = t.word("random");
            if is_random {
                t.expect("password")?;
            }
            Identified::By(plugin, spoken(t, is_random)?)
        }
    };
    Ok(found)
}

/// A kept form may be given in hexadecimal digits.
pub(crate) fn text(t: &mut Tokens) -> Result<String> {
    if let Some(Token::Word(word)) = t.peek()
        && let Some(digits) = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X"))
        && digits.bytes().all(|b| b.is_ascii_hexdigit())
    {
        let bytes = super::digest::from_hex(digits.as_bytes());
        t.skip();
        return String::from_utf8(bytes).map_err(|_| wrong_hash());
    }
    match t.peek() {
        Some(Token::Text(_)) => t.string(),
        _ => Err(t.error()),
    }
}

/// A password, REPLACE and RETAIN CURRENT PASSWORD.
fn spoken(t: &mut Tokens, is_random: bool) -> Result<Spoken> {
    let password = if is_random { String::new() } else { text(t)? };
    let replaces = if t.word("replace") { Some(text(t)?) } else { None };
    Ok(Spoken { password, replaces, is_random, retains: retains(t)? })
}

fn retains(t: &mut Tokens) -> Result<bool> {
    let retains = t.word("retain");
    if retains {
        t.expect("current")?;
        t.expect("password")?;
    }
    Ok(retains)
}

pub fn wrong_hash() -> SqlError {
    SqlError::new(1827, b"HY000", "The password hash doesn't have the expected format.")
}

/// Behind SET PASSWORD.
fn set_password(t: &mut Tokens) -> Result<Clause> {
    let user = if t.word("for") { named(t)? } else { None };
    let is_random = t.word("to");
    if is_random {
        t.expect("random")?;
    } else {
        t.expect_symbol('=')?;
    }
    Ok(Clause::SetPassword { user, password: spoken(t, is_random)? })
}

/// Behind GRANT and REVOKE: privileges stand before ON, roles before TO and FROM.
fn names_roles(t: &Tokens) -> bool {
    let is = |token: &Token, word: &str| matches!(token, Token::Word(w) if w.eq_ignore_ascii_case(word));
    let end = t.rest().iter().find(|token| ["on", "to", "from"].iter().any(|word| is(token, word)));
    end.is_none_or(|token| !is(token, "on"))
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

fn level(t: &mut Tokens) -> Result<Level> {
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
fn grant(t: &mut Tokens) -> Result<Clause> {
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
fn revoke(t: &mut Tokens) -> Result<Clause> {
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

/// `user@host`; `None`: CURRENT_USER.
pub fn account(t: &mut Tokens) -> Result<Option<(String, String)>> {
    if t.word("current_user") {
        if t.symbol('(') {
            t.expect_symbol(')')?;
        }
        return Ok(None);
    }
    let is_bare = matches!(t.peek(), Some(Token::Word(_)));
    let user = t.identifier()?;
    if is_bare && let Some((user, host)) = user.split_once('@') {
        let host = if host.is_empty() { t.identifier()? } else { host.to_owned() };
        return Ok(Some((user.to_owned(), host.to_lowercase())));
    }
    let host = match t.peek() {
        Some(Token::Word(w)) if w == "@" => {
            t.skip();
            t.identifier()?
        }
        Some(Token::Word(w)) if w.starts_with('@') => t.identifier()?.split_off(1),
        _ => "%".to_owned(),
    };
    Ok(Some((user, host.to_lowercase())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::Requires;

    fn parsed(text: &str) -> Result<Option<Clause>> {
        parse(&mut Tokens::new(text))
    }
    fn clause(text: &str) -> Clause {
        parsed(text).unwrap().unwrap_or_else(|| panic!("{text}"))
    }
    fn name(user: &str, host: &str) -> Named {
        Some(AccountName::new(user, host))
    }

    #[test]
    fn users_are_named() {
        for (text, user, host) in [
            ("DROP USER u", "u", "%"),
            ("DROP USER u@localhost", "u", "localhost"),
            ("DROP USER 'u'@'10.0.%'", "u", "10.0.%"),
            ("DROP USER `a b`@`H`", "a b", "h"),
            ("DROP USER u@'%'", "u", "%"),
            ("DROP USER 'u'@localhost", "u", "localhost"),
        ] {
            assert_eq!(clause(text), Clause::DropUser { users: vec![name(user, host)], if_exists: false }, "{text}");
        }
        assert_eq!(
            clause("DROP USER IF EXISTS a, b@c"),
            Clause::DropUser { users: vec![name("a", "%"), name("b", "c")], if_exists: true }
        );
        let long = "x".repeat(33);
        assert_eq!(parsed(&format!("DROP USER {long}")).unwrap_err().errno, 1470);
        assert_eq!(parsed("DROP USER ''@localhost").unwrap_err().errno, 1235);
    }

    #[test]
    fn definitions_are_read() {
        let Clause::CreateUser { users, if_not_exists, options } = clause(
            "CREATE USER IF NOT EXISTS u IDENTIFIED BY 'p', v IDENTIFIED WITH mysql_native_password BY 'q', \
             w IDENTIFIED WITH 'caching_sha2_password' AS 'h' REQUIRE SSL WITH MAX_QUERIES_PER_HOUR 0 \
             MAX_USER_CONNECTIONS 3 PASSWORD EXPIRE DEFAULT ACCOUNT LOCK PASSWORD HISTORY DEFAULT PASSWORD REUSE \
             INTERVAL DEFAULT PASSWORD REQUIRE CURRENT DEFAULT",
        ) else {
            panic!()
        };
        assert!(if_not_exists);
        let spoken =
            |password: &str| Spoken { password: password.into(), replaces: None, is_random: false, retains: false };
        assert_eq!(users[0], (name("u", "%"), Some(Identified::By(None, spoken("p")))));
        assert_eq!(users[1].1, Some(Identified::By(Some(AuthPlugin::NativePassword), spoken("q"))));
        assert_eq!(users[2].1, Some(Identified::As(AuthPlugin::CachingSha2Password, "h".into(), false)));
        let expected = Options {
            requires: Some(Requires::Encryption),
            max_user_connections: Some(3),
            locked: Some(true),
            ..Options::default()
        };
        assert_eq!(Options { policy: Default::default(), ..options }, expected);
        let Clause::AlterUser { users, .. } = clause("ALTER USER USER() IDENTIFIED BY 'x'") else { panic!() };
        assert_eq!(users[0].0, None);
        assert_eq!(
            clause("SET PASSWORD FOR u@h = 'x'"),
            Clause::SetPassword { user: name("u", "h"), password: spoken("x") }
        );
        let replaced = Spoken { password: "x".into(), replaces: Some("y".into()), is_random: false, retains: true };
        assert_eq!(
            clause("SET PASSWORD = 'x' REPLACE 'y' RETAIN CURRENT PASSWORD"),
            Clause::SetPassword { user: None, password: replaced }
        );
        let random = Spoken { password: String::new(), replaces: Some("y".into()), is_random: true, retains: false };
        let set = Clause::SetPassword { user: name("u", "%"), password: random.clone() };
        assert_eq!(clause("SET PASSWORD FOR u TO RANDOM REPLACE 'y'"), set);
        let Clause::AlterUser { users, .. } = clause("ALTER USER u IDENTIFIED BY RANDOM PASSWORD REPLACE 'y'") else {
            panic!()
        };
        assert_eq!(users[0].1, Some(Identified::By(None, random)));
        assert_eq!(clause("set password='x'"), Clause::SetPassword { user: None, password: spoken("x") });
    }

    #[test]
    fn what_is_not_done_is_refused_by_name() {
        for text in ["ALTER USER u IDENTIFIED BY 'x' AND IDENTIFIED BY 'y'", "GRANT BACKUP_ADMIN ON *.* TO u"] {
            assert_eq!(parsed(text).map_err(|e| e.errno), Err(1235), "{text}");
        }
        for text in [
            "GRANT SELECT ON d.* u",
            "CREATE USER u WITH",
            "CREATE USER u IDENTIFIED BY RANDOM",
            "CREATE USER u IDENTIFIED BY 'x' REPLACE 'y'",
            "GRANT NONESUCH ON *.* TO u",
        ] {
            assert_eq!(parsed(text).map_err(|e| e.errno), Err(1064), "{text}");
        }
        for text in ["CREATE TABLE user (a INT)", "ALTER TABLE t ADD a INT", "SET a = 1", "RENAME TABLE a TO b"] {
            assert_eq!(parsed(text), Ok(None), "{text}");
        }
    }

    #[test]
    fn roles_are_told_from_privileges() {
        let role = |user: &str| AccountName::new(user, "%");
        assert_eq!(
            clause("CREATE ROLE IF NOT EXISTS a, 'b'@'%'"),
            Clause::CreateRole { roles: vec![role("a"), role("b")], if_not_exists: true }
        );
        assert_eq!(clause("DROP ROLE a"), Clause::DropRole { roles: vec![role("a")], if_exists: false });
        assert_eq!(
            clause("GRANT a, 'b'@'%' TO u WITH ADMIN OPTION"),
            Clause::GrantRoles { roles: vec![role("a"), role("b")], users: vec![name("u", "%")], with_admin: true }
        );
        assert!(matches!(clause("REVOKE a FROM u"), Clause::RevokeRoles { .. }));
        assert_eq!(clause("SET ROLE ALL EXCEPT a"), Clause::SetRole(Active::AllBut(vec![role("a")])));
        assert_eq!(clause("SET ROLE a, b"), Clause::SetRole(Active::These(vec![role("a"), role("b")])));
        assert_eq!(
            clause("SET DEFAULT ROLE NONE TO u"),
            Clause::DefaultRole { active: Active::None, users: vec![name("u", "%")] }
        );
        let Clause::AlterUser { options, .. } = clause("ALTER USER u DEFAULT ROLE ALL") else { panic!() };
        assert_eq!(options.default_roles, Some(Active::All));
    }

    #[test]
    fn grants_have_levels() {
        let grant = |text: &str| match clause(text) {
            Clause::Grant { what, level, .. } => (what.privileges, level),
            other => panic!("{other:?}"),
        };
        assert_eq!(grant("GRANT ALL ON *.* TO u"), (Privileges::GLOBAL, Level::Global));
        assert_eq!(
            grant("GRANT SELECT, INSERT ON `d\\_%`.* TO u WITH GRANT OPTION"),
            (
                Privileges::SELECT.union(Privileges::INSERT).union(Privileges::GRANT_OPTION),
                Level::Database(Some("d\\_%".into()))
            )
        );
        assert_eq!(grant("GRANT ALL PRIVILEGES ON * TO u"), (Privileges::ON_DATABASE, Level::Database(None)));
        assert_eq!(grant("GRANT CREATE VIEW ON t TO u").1, Level::Table((None, "t".into())));
        assert_eq!(grant("GRANT USAGE ON d.t TO u").0, Privileges::NONE);
        for (text, errno) in [
            ("GRANT PROCESS ON d.* TO u", 1221),
            ("GRANT LOCK TABLES ON d.t TO u", 1144),
            ("GRANT CONNECTION_ADMIN ON d.* TO u", 3619),
        ] {
            assert_eq!(parsed(text).unwrap_err().errno, errno, "{text}");
        }
        assert_eq!(
            clause("REVOKE ALL PRIVILEGES, GRANT OPTION FROM u, v"),
            Clause::RevokeAll(vec![name("u", "%"), name("v", "%")])
        );
        let Clause::Revoke { what, if_exists, ignores_unknown, .. } =
            clause("REVOKE IF EXISTS ALL ON d.* FROM u IGNORE UNKNOWN USER")
        else {
            panic!()
        };
        assert_eq!((what.privileges, if_exists, ignores_unknown), (Privileges::ON_DATABASE, true, true));
    }

    #[test]
    fn grants_name_columns() {
        let Clause::Grant { what, .. } = clause("GRANT SELECT (a, `b c`), DELETE, UPDATE(A) ON t TO u") else {
            panic!()
        };
        assert_eq!(what.privileges, Privileges::DELETE);
        let columns = [("a", Privileges::SELECT), ("b c", Privileges::SELECT), ("A", Privileges::UPDATE)];
        assert_eq!(what.columns, columns.map(|(name, p)| (name.to_owned(), p)));
        for text in ["GRANT DELETE (a) ON t TO u", "GRANT ALL (a) ON t TO u", "GRANT SELECT () ON t TO u"] {
            assert_eq!(parsed(text).map_err(|e| e.errno), Err(1064), "{text}");
        }
        assert_eq!(parsed("GRANT SELECT (a) ON d.* TO u").map_err(|e| e.errno), Err(1144));
    }
}
