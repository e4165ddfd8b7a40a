//! CREATE, ALTER, DROP and RENAME USER, SET PASSWORD, GRANT and REVOKE, parsed from tokens.
//!
//! What is not done is refused by its name here, so that no clause is taken without effect. What CREATE and ALTER USER say behind the accounts is in [`super::account_options`].

pub mod grants;
#[cfg(test)]
mod tests;

use self::grants::{Level, What, grant, revoke};
use super::{
    account_options::Options,
    token::{Token, Tokens},
};
use crate::{
    accounts::{AccountName, Active, HOST_CHARS_MAX, USER_CHARS_MAX},
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
        let bytes = super::digest::literal::from_hex(digits.as_bytes());
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
