//! CREATE, ALTER and DROP EVENT as they are written.

use apus_types::collate::Collation;

use super::{Status, schedule::Unit};
use crate::{
    errors::{Result, not_supported},
    parse::{
        account::account,
        digest::Syntax,
        token::{Name, Token, Tokens},
    },
    program::routine::{clause::if_not_exists, compile::Compiler, failures::bad_name},
};

/// Behind ON SCHEDULE; the values are texts of expressions.
#[derive(Clone, PartialEq, Debug)]
pub enum When {
    At(String),
    Every { count: String, unit: Unit, starts: Option<String>, ends: Option<String> },
}

/// What both statements may say; `None`: nothing of it.
#[derive(Default, Debug)]
pub struct Parts {
    pub when: Option<When>,
    /// ON COMPLETION PRESERVE.
    pub is_kept: Option<bool>,
    pub rename: Option<Name>,
    pub status: Option<Status>,
    pub comment: Option<String>,
    pub body: Option<String>,
}

#[derive(Debug)]
pub struct Create {
    pub name: Name,
    pub if_not_exists: bool,
    /// `None`: who makes it.
    pub definer: Option<(String, String)>,
    pub parts: Parts,
}

#[derive(Debug)]
pub struct Alter {
    pub name: Name,
    /// `None`: who changes it.
    pub definer: Option<(String, String)>,
    pub parts: Parts,
}

/// A change of an event that there is.
#[derive(Debug)]
pub enum Change {
    Altered(Box<Alter>),
    Dropped { name: Name, if_exists: bool },
}

/// Where an expression of a schedule ends, besides units of time.
const BEHIND: [&str; 8] = ["starts", "ends", "on", "rename", "enable", "disable", "comment", "do"];

/// The text up to one of these words outside of parentheses, or a unit of time.
fn expression(t: &mut Tokens, to_unit: bool) -> Result<String> {
    let begin = t.offset();
    let (mut depth, mut is_empty) = (0u32, true);
    while let Some(token) = t.peek() {
        match token {
            Token::Symbol('(') => depth += 1,
            Token::Symbol(')') if depth == 0 => break,
            Token::Symbol(')') => depth -= 1,
            Token::Symbol(';') => break,
            Token::Word(word) if depth == 0 => {
                let ends = match to_unit {
                    true => !t.second_is('(') && (Unit::named(word).is_some() || is_fine(word)),
                    false => BEHIND.iter().any(|known| word.eq_ignore_ascii_case(known)),
                };
                if ends {
                    break;
                }
            }
            _ => {}
        }
        is_empty = false;
        t.skip();
    }
    if is_empty || depth > 0 { Err(t.error()) } else { Ok(t.slice(begin, Some(t.behind()))) }
}

/// A unit of fractions of a second, which no schedule has.
fn is_fine(unit: &str) -> bool {
    let unit = unit.to_ascii_lowercase();
    unit == "microsecond" || unit.strip_suffix("_microsecond").is_some_and(|first| Unit::named(first).is_some())
}

fn when(t: &mut Tokens) -> Result<When> {
    if t.word("at") {
        return Ok(When::At(expression(t, false)?));
    }
    t.expect("every")?;
    let count = expression(t, true)?;
    let start = t.position();
    let word = t.identifier()?;
    let Some(unit) = Unit::named(&word) else {
        if is_fine(&word) {
            return Err(not_supported("MICROSECOND"));
        }
        t.rewind(start);
        return Err(t.error());
    };
    let starts = if t.word("starts") { Some(expression(t, false)?) } else { None };
    let ends = if t.word("ends") { Some(expression(t, false)?) } else { None };
    Ok(When::Every { count, unit, starts, ends })
}

/// `ON COMPLETION [NOT] PRESERVE`, behind ON.
fn completion(t: &mut Tokens) -> Result<bool> {
    t.expect("completion")?;
    let is_kept = !t.word("not");
    t.expect("preserve")?;
    Ok(is_kept)
}

fn status(t: &mut Tokens) -> Result<Option<Status>> {
    if t.word("enable") {
        return Ok(Some(Status::Enabled));
    }
    if !t.word("disable") {
        return Ok(None);
    }
    if !t.word("on") {
        return Ok(Some(Status::Disabled));
    }
    if t.word("replica") || t.word("slave") { Ok(Some(Status::DisabledOnReplica)) } else { Err(t.error()) }
}

/// What stands between the schedule and the body of both.
fn rest(t: &mut Tokens, parts: &mut Parts, syntax: (Syntax, Collation)) -> Result<()> {
    parts.status = status(t)?;
    if t.word("comment") {
        if !t.peek_string() {
            return Err(t.error());
        }
        parts.comment = Some(t.string()?);
    }
    if t.word("do") {
        parts.body = Some(body(t, syntax)?);
    }
    Ok(())
}

fn body(t: &mut Tokens, (syntax, default): (Syntax, Collation)) -> Result<String> {
    let begin = t.offset();
    Compiler::new(t, syntax, default).body()?;
    Ok(t.slice(begin, Some(t.behind())))
}

fn name(t: &mut Tokens) -> Result<Name> {
    let name = t.name()?;
    if name.1.is_empty() || name.1.ends_with(' ') { Err(bad_name(&name.1)) } else { Ok(name) }
}

impl Create {
    /// Behind EVENT, as far as its body.
    pub fn parse(t: &mut Tokens, definer: Option<(String, String)>, syntax: (Syntax, Collation)) -> Result<Create> {
        let if_not_exists = if_not_exists(t)?;
        let name = name(t)?;
        let mut parts = Parts::default();
        t.expect("on")?;
        t.expect("schedule")?;
        parts.when = Some(when(t)?);
        if t.word("on") {
            parts.is_kept = Some(completion(t)?);
        }
        rest(t, &mut parts, syntax)?;
        if parts.body.is_none() {
            return Err(t.error());
        }
        Ok(Create { name, if_not_exists, definer, parts })
    }
}

impl Alter {
    /// Behind EVENT.
    pub fn parse(t: &mut Tokens, definer: Option<(String, String)>, syntax: (Syntax, Collation)) -> Result<Alter> {
        let name = name(t)?;
        let mut parts = Parts::default();
        let begin = t.position();
        if t.peek_word("on") && t.second_word("schedule") {
            t.skip();
            t.skip();
            parts.when = Some(when(t)?);
        }
        if t.word("on") {
            parts.is_kept = Some(completion(t)?);
        }
        if t.word("rename") {
            t.expect("to")?;
            parts.rename = Some(self::name(t)?);
        }
        rest(t, &mut parts, syntax)?;
        if t.position() == begin {
            return Err(t.error());
        }
        Ok(Alter { name, definer, parts })
    }
}

impl Change {
    /// `None`: another statement. With a body ALTER is one that has others in it.
    pub fn parse(t: &mut Tokens) -> Result<Option<Change>> {
        let start = t.position();
        if t.word("drop") && t.word("event") {
            let if_exists = t.word("if");
            if if_exists {
                t.expect("exists")?;
            }
            let name = name(t)?;
            t.end()?;
            return Ok(Some(Change::Dropped { name, if_exists }));
        }
        t.rewind(start);
        if t.word("alter")
            && let Some(definer) = behind_definer(t)
            && t.word("event")
        {
            let alter = Alter::parse(t, definer, Default::default())?;
            t.end()?;
            return Ok(Some(Change::Altered(Box::new(alter))));
        }
        t.rewind(start);
        Ok(None)
    }
}

/// Reads DEFINER if it comes next; `None`: it is none.
fn behind_definer(t: &mut Tokens) -> Option<Option<(String, String)>> {
    if !t.word("definer") {
        return Some(None);
    }
    t.expect_symbol('=').and_then(|()| account(t)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::routine::clause::Made;

    fn parsed(sql: &str) -> Result<Option<(Made, usize)>> {
        Made::parse(sql, Syntax::default(), Collation::default())
    }
    fn created(sql: &str) -> Create {
        match parsed(sql) {
            Ok(Some((Made::Event(create), _))) => create,
            other => panic!("{sql}: {other:?}"),
        }
    }

    #[test]
    fn all_parts_of_an_event() {
        let head = "CREATE DEFINER=`a`@`%` EVENT IF NOT EXISTS d.e ON SCHEDULE ";
        let rest = "ON COMPLETION NOT PRESERVE DISABLE ON SLAVE COMMENT 'x' DO BEGIN SELECT 1; /* 2 */ END";
        let create =
            created(&format!("{head}EVERY (1 + 1) DAY_HOUR STARTS NOW() + INTERVAL (1) DAY ENDS '2030-01-01' {rest}"));
        let unit = Unit::named("DAY_HOUR").unwrap();
        let (starts, ends) = (Some("NOW() + INTERVAL (1) DAY".to_owned()), Some("'2030-01-01'".to_owned()));
        assert_eq!(create.parts.when, Some(When::Every { count: "(1 + 1)".to_owned(), unit, starts, ends }));
        assert_eq!((create.if_not_exists, create.parts.is_kept), (true, Some(false)));
        assert_eq!(create.parts.status, Some(Status::DisabledOnReplica));
        assert_eq!(create.parts.body.as_deref(), Some("BEGIN SELECT 1; /* 2 */ END"));
        let once = created("create event e on schedule at current_timestamp + interval 1 day do set @a = 1");
        assert_eq!(once.parts.when, Some(When::At("current_timestamp + interval 1 day".to_owned())));
        let by_function = created("create event e on schedule every hour(now()) hour do set @a = 1");
        let Some(When::Every { count, .. }) = by_function.parts.when else { panic!("no interval") };
        assert_eq!(count, "hour(now())");
    }

    #[test]
    fn what_is_no_event_is_refused() {
        for (sql, errno) in [
            ("CREATE EVENT e ON SCHEDULE EVERY DAY DO SELECT 1", 1064),
            ("CREATE EVENT e ON SCHEDULE EVERY 1 DO SELECT 1", 1064),
            ("CREATE EVENT e ON SCHEDULE AT DO SELECT 1", 1064),
            ("CREATE EVENT e ON SCHEDULE AT NOW()", 1064),
            ("CREATE EVENT e ON SCHEDULE AT NOW() DO", 1064),
            ("CREATE EVENT e DO SELECT 1", 1064),
            ("CREATE EVENT e ON SCHEDULE EVERY 1 SECOND_MICROSECOND DO SELECT 1", 1235),
            ("ALTER EVENT e", 1064),
            ("ALTER EVENT e COMMENT 'x' ENABLE", 1064),
            ("CREATE EVENT e ON SCHEDULE AT NOW() DO CREATE EVENT f ON SCHEDULE AT NOW() DO SELECT 1", 1576),
            ("CREATE PROCEDURE p() ALTER EVENT f DO SELECT 1", 1576),
        ] {
            assert_eq!(parsed(sql).map(|_| ()).unwrap_err().errno, errno, "{sql}");
        }
        assert!(parsed("ALTER TABLE event ADD a INT").unwrap().is_none());
        assert!(parsed("CREATE PROCEDURE p() BEGIN ALTER EVENT f DISABLE; DROP EVENT f; END").unwrap().is_some());
    }

    #[test]
    fn arbitrary_beginnings_do_not_panic() {
        let sql = "CREATE DEFINER=a@b EVENT d.e ON SCHEDULE EVERY '1:30' MINUTE_SECOND STARTS (NOW()) ENDS é ON COMPLETION PRESERVE ENABLE COMMENT 'x' DO BEGIN SELECT 'é'; END";
        for end in (0..sql.len()).filter(|end| sql.is_char_boundary(*end)) {
            let _ = parsed(&sql[..end]);
            let _ = parsed(&format!("ALTER EVENT {}", &sql[end..]));
        }
    }
}
