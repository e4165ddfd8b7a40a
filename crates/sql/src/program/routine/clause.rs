//! CREATE, ALTER and DROP of procedures and functions as they are written.

use apus_types::collate::Collation;

use super::{Access, Kind, compile::Compiler, failures};
use crate::{
    errors::{self, Result},
    parse::{
        account::account,
        digest::Syntax,
        token::{Name, Token, Tokens, behind_blanks},
    },
    program::{event, trigger},
};

/// What ALTER may change; `None`: as it is.
#[derive(Default, Debug)]
pub struct Characteristics {
    pub comment: Option<String>,
    pub access: Option<Access>,
    pub deterministic: Option<bool>,
    pub invoker: Option<bool>,
}

impl Characteristics {
    fn parse(t: &mut Tokens, alters: bool) -> Result<Characteristics> {
        let mut found = Characteristics::default();
        loop {
            let start = t.position();
            if t.word("comment") {
                found.comment = Some(t.string()?).filter(|comment| !alters || !comment.is_empty());
            } else if t.word("language") {
                t.expect("sql")?;
            } else if t.peek_word("sql") && t.second_word("security") {
                t.skip();
                t.skip();
                let invoker = t.word("invoker");
                if !invoker {
                    t.expect("definer")?;
                }
                found.invoker = Some(invoker);
            } else if let Some(access) = access(t) {
                found.access = Some(access);
            } else if !alters && t.word("deterministic") {
                found.deterministic = Some(true);
            } else if !alters && t.word("not") {
                t.expect("deterministic")?;
                found.deterministic = Some(false);
            } else {
                t.rewind(start);
                return Ok(found);
            }
        }
    }
}

fn access(t: &mut Tokens) -> Option<Access> {
    let start = t.position();
    let found = Access::ALL.into_iter().find(|access| {
        t.rewind(start);
        access.name().split(' ').all(|word| t.word(word))
    });
    if found.is_none() {
        t.rewind(start);
    }
    found
}

/// CREATE PROCEDURE or CREATE FUNCTION.
#[derive(Debug)]
pub struct Clause {
    pub kind: Kind,
    pub name: Name,
    pub if_not_exists: bool,
    /// `None`: who makes it.
    pub definer: Option<(String, String)>,
    pub characteristics: Characteristics,
    /// What stands in the parentheses.
    pub parameters: String,
    /// The type that a function returns, as it is written.
    pub returns: String,
    pub body: String,
}

/// A statement that has others in it.
#[derive(Debug)]
pub enum Made {
    Routine(Clause),
    Trigger(trigger::clause::Clause),
    Event(event::clause::Create),
    /// ALTER EVENT, whose body may be another one.
    EventChange(event::clause::Alter),
}

/// What such a statement makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Routine(Kind),
    Trigger,
    Event,
}

/// Behind CREATE or ALTER; reads as far as the word that says what.
fn what(t: &mut Tokens, definer: &mut Option<(String, String)>) -> Result<Option<What>> {
    if t.word("definer") {
        let Ok(named) = t.expect_symbol('=').and_then(|()| account(t)) else { return Ok(None) };
        *definer = named;
    }
    if t.word("aggregate") {
        return Err(errors::not_supported("CREATE AGGREGATE FUNCTION: functions in machine code"));
    }
    let kinds = [
        ("procedure", What::Routine(Kind::Procedure)),
        ("function", What::Routine(Kind::Function)),
        ("trigger", What::Trigger),
        ("event", What::Event),
    ];
    Ok(kinds.into_iter().find(|(word, _)| t.word(word)).map(|(_, what)| what))
}

/// Whether a text may begin with a statement that has others in it. Most do not, which its first word tells.
pub fn may_begin(sql: &[u8]) -> bool {
    let rest = &sql[behind_blanks(sql)..];
    let begins = |word: &[u8]| rest.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word));
    begins(b"create") || begins(b"alter")
}

impl Made {
    pub fn is_of_event(&self) -> bool {
        matches!(self, Made::Event(_) | Made::EventChange(_))
    }

    /// The statement at the beginning of a text, and the length of what was read of it; `None`: another one.
    ///
    /// # Errors
    /// 1064, and what else is wrong with a body; 1235 for what there is not.
    pub fn parse(sql: &str, syntax: Syntax, default: Collation) -> Result<Option<(Made, usize)>> {
        let mut t = Tokens::new(sql);
        let mut definer = None;
        if t.word("alter") {
            return match what(&mut t, &mut definer) {
                Ok(Some(What::Event)) => {
                    let alter = event::clause::Alter::parse(&mut t, definer, (syntax, default))?;
                    Ok(Some((Made::EventChange(alter), end_of(&t, sql)?)))
                }
                _ => Ok(None),
            };
        }
        if !t.word("create") {
            return Ok(None);
        }
        let with_body = ["procedure", "function", "trigger", "event"];
        let is_one = |w: &String| with_body.iter().any(|known| w.eq_ignore_ascii_case(known));
        if t.peek_word("or") && matches!(t.ahead(2), Some(Token::Word(w)) if is_one(w)) {
            t.skip();
            t.skip();
            return Err(t.error());
        }
        let made = match what(&mut t, &mut definer)? {
            None => return Ok(None),
            Some(What::Event) => Made::Event(event::clause::Create::parse(&mut t, definer, (syntax, default))?),
            Some(What::Routine(kind)) => Made::Routine(Clause::parse(&mut t, kind, definer, (syntax, default))?),
            Some(What::Trigger) => Made::Trigger(trigger::clause::Clause::parse(&mut t, definer, (syntax, default))?),
        };
        Ok(Some((made, end_of(&t, sql)?)))
    }
}

/// Behind the statement, whose last token was read.
fn end_of(t: &Tokens, sql: &str) -> Result<usize> {
    match t.peek() {
        None => Ok(sql.len()),
        Some(Token::Symbol(';')) => Ok(t.offset().map_or(sql.len(), |at| at + 1)),
        Some(_) => Err(t.error()),
    }
}

/// `IF NOT EXISTS`.
pub fn if_not_exists(t: &mut Tokens) -> Result<bool> {
    let found = t.word("if");
    if found {
        t.expect("not")?;
        t.expect("exists")?;
    }
    Ok(found)
}

impl Clause {
    /// Behind PROCEDURE or FUNCTION, as far as its body.
    fn parse(
        t: &mut Tokens,
        kind: Kind,
        definer: Option<(String, String)>,
        (syntax, default): (Syntax, Collation),
    ) -> Result<Clause> {
        let if_not_exists = if_not_exists(t)?;
        let name = t.name()?;
        if name.1.is_empty() || name.1.ends_with(' ') {
            return Err(failures::bad_name(&name.1));
        }
        let is_soname = |t: &Tokens| matches!(t.ahead(2), Some(Token::Word(w)) if w.eq_ignore_ascii_case("soname"));
        if kind == Kind::Function && t.peek_word("returns") && is_soname(t) {
            return Err(errors::not_supported("CREATE FUNCTION ... SONAME: functions in machine code"));
        }
        let begin = t.offset();
        let mut compiler = Compiler::new(t, syntax, default);
        compiler.parameters(kind)?;
        let written = compiler.t.slice(begin, Some(compiler.t.behind()));
        let parameters = written.strip_prefix('(').and_then(|p| p.strip_suffix(')')).unwrap_or("").to_owned();
        let mut returns = String::new();
        if kind == Kind::Function {
            let begin = compiler.returns()?;
            returns = compiler.t.slice(begin, Some(compiler.t.behind()));
        }
        let characteristics = Characteristics::parse(compiler.t, false)?;
        let begin = compiler.t.offset();
        let program = compiler.body()?;
        if kind == Kind::Function && !program.may_return() {
            return Err(failures::no_return(&name.1));
        }
        let body = t.slice(begin, Some(t.behind()));
        Ok(Clause { kind, name, if_not_exists, definer, characteristics, parameters, returns, body })
    }
}

/// ALTER or DROP of a procedure or function.
#[derive(Debug)]
pub struct Change {
    pub kind: Kind,
    pub name: Name,
    pub to: To,
}

#[derive(Debug)]
pub enum To {
    Altered(Characteristics),
    Dropped { if_exists: bool },
}

impl Change {
    /// `None`: of something else.
    pub fn parse(t: &mut Tokens) -> Result<Option<Change>> {
        let drops = t.peek_word("drop");
        let kind = Kind::ALL.into_iter().find(|kind| t.second_word(kind.name()));
        let Some(kind) = kind.filter(|_| drops || t.peek_word("alter")) else { return Ok(None) };
        t.skip();
        t.skip();
        if drops {
            let if_exists = t.word("if");
            if if_exists {
                t.expect("exists")?;
            }
            let name = t.name()?;
            t.end()?;
            return Ok(Some(Change { kind, name, to: To::Dropped { if_exists } }));
        }
        let name = t.name()?;
        let characteristics = Characteristics::parse(t, true)?;
        t.end()?;
        Ok(Some(Change { kind, name, to: To::Altered(characteristics) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(sql: &str) -> Result<Option<(Made, usize)>> {
        Made::parse(sql, Syntax::default(), Collation::default())
    }
    fn routine(sql: &str) -> (Clause, usize) {
        match parsed(sql) {
            Ok(Some((Made::Routine(clause), end))) => (clause, end),
            other => panic!("{sql}: {other:?}"),
        }
    }

    #[test]
    fn a_procedure_ends_where_its_body_does() {
        let body = "BEGIN /* one; */ SELECT ';' AS `;`; IF 1 THEN BEGIN END; END IF; -- two;\n END";
        for behind in ["", ";", "; SELECT 1"] {
            let head = "-- first\n CREATE /*!50017 DEFINER=`a`@`%`*/ PROCEDURE d.p(IN a INT /* b */, out b varchar(3)) NO SQL COMMENT 'x' ";
            let (clause, end) = routine(&format!("{head}{body}{behind}"));
            assert_eq!(clause.body, body, "{behind}");
            assert_eq!(clause.parameters, "IN a INT /* b */, out b varchar(3)");
            assert_eq!(clause.definer, Some(("a".to_owned(), "%".to_owned())));
            assert_eq!(end, head.len() + body.len() + behind.len().min(1));
        }
        assert!(parsed("CREATE TABLE procedure_ (a INT)").unwrap().is_none());
        assert!(parsed("SELECT 1; CREATE PROCEDURE p() SELECT 1").unwrap().is_none());
    }

    #[test]
    fn what_is_wrong_with_a_body_is_told_when_it_is_made() {
        for (body, errno) in [
            ("BEGIN SELECT 1 END", 1064),
            ("BEGIN IF 1 THEN END IF; END", 1064),
            ("BEGIN LEAVE nowhere; END", 1308),
            ("l: BEGIN END m", 1310),
            ("RETURN 1", 1313),
            ("BEGIN FETCH c INTO a; END", 1324),
            ("SELECT 1 INTO nosuch", 1327),
            ("BEGIN DECLARE a, A INT; END", 1331),
            ("BEGIN DECLARE c CURSOR FOR SELECT 1; DECLARE a INT; END", 1337),
            ("BEGIN DECLARE EXIT HANDLER FOR SQLSTATE '00000' SELECT 1; END", 1407),
            ("USE d", 1314),
            ("SET nosuch = 1", 1193),
        ] {
            let found = parsed(&format!("CREATE PROCEDURE p() {body}")).map(|_| ()).unwrap_err();
            assert_eq!(found.errno, errno, "{body}: {found:?}");
        }
        let nested = format!("CREATE PROCEDURE p() {}{}", "BEGIN ".repeat(100), "END; ".repeat(100));
        assert_eq!(parsed(&nested).map(|_| ()).unwrap_err().errno, 1436);
    }

    #[test]
    fn what_is_too_long_is_refused_in_good_time() {
        let refused =
            |body: String| parsed(&format!("CREATE PROCEDURE p() BEGIN {body}END")).map(|_| ()).unwrap_err().errno;
        assert_eq!(refused((0..5000).map(|n| format!("DECLARE a{n} INT DEFAULT {n}; ")).collect()), 1235);
        assert_eq!(refused("CASE 1 WHEN 1 THEN DO 1; END CASE; ".repeat(5000)), 1235);
        assert_eq!(refused("SET @a = 1; ".repeat(30_000)), 1235);
        assert!(parsed(&format!("CREATE PROCEDURE p() BEGIN {}END", "SET @a = 1; ".repeat(20_000))).is_ok());
    }

    #[test]
    fn arbitrary_beginnings_do_not_panic() {
        let sql = "CREATE PROCEDURE p(a INT) l: BEGIN DECLARE c CURSOR FOR SELECT 1; DECLARE EXIT HANDLER FOR 1062, NOT FOUND BEGIN END; \
                   CASE a WHEN 1 THEN FETCH c INTO a; ELSE SET @x = `a`, a = (SELECT 2); END CASE; CALL q(@o, a); SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'é'; \
                   GET STACKED DIAGNOSTICS CONDITION 1 a = MYSQL_ERRNO; REPEAT ITERATE l; UNTIL 1 END REPEAT; END";
        for end in (0..sql.len()).filter(|end| sql.is_char_boundary(*end)) {
            let _ = parsed(&sql[..end]);
            let _ = parsed(&format!("CREATE PROCEDURE {}", &sql[end..]));
        }
        let trigger = "CREATE DEFINER=a@b TRIGGER d.t BEFORE UPDATE ON u FOR EACH ROW FOLLOWS v BEGIN SET NEW.a = OLD.`b`, @x = NEW . c; \
                       IF new.é THEN CALL p(OLD.a, NEW.b); END IF; END";
        let function = "CREATE FUNCTION f(a INT, b VARCHAR(3) CHARSET latin1) RETURNS DECIMAL(5,2) READS SQL DATA COMMENT 'x' RETURN (SELECT a + 1)";
        for sql in [trigger, function] {
            assert!(parsed(sql).unwrap().is_some());
            for end in (0..sql.len()).filter(|end| sql.is_char_boundary(*end)) {
                let _ = parsed(&sql[..end]);
                let _ = parsed(&format!("CREATE TRIGGER {}", &sql[end..]));
                let _ = parsed(&format!("CREATE FUNCTION {}", &sql[end..]));
            }
        }
    }
}
