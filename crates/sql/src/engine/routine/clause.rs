//! CREATE, ALTER and DROP PROCEDURE as they are written.

use apus_types::collate::Collation;

use super::{Access, compile::Compiler, failures};
use crate::engine::{
    ddl::Name,
    digest::Syntax,
    errors::{self, Result},
    token::{Token, Tokens, behind_blanks},
    view_exec::account,
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

/// CREATE PROCEDURE.
#[derive(Debug)]
pub struct Clause {
    pub name: Name,
    pub if_not_exists: bool,
    /// `None`: who makes it.
    pub definer: Option<(String, String)>,
    pub characteristics: Characteristics,
    /// What stands in the parentheses.
    pub parameters: String,
    pub body: String,
}

/// What a statement makes that has statements in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Procedure,
    /// There is none of it: its name.
    Unknown(&'static str),
}

/// Behind CREATE; reads as far as the word that says what.
fn kind(t: &mut Tokens, definer: &mut Option<(String, String)>) -> Option<Kind> {
    if t.word("definer") {
        t.expect_symbol('=').ok()?;
        *definer = account(t).ok()?;
    }
    t.word("aggregate");
    let kinds = [
        ("procedure", Kind::Procedure),
        ("function", Kind::Unknown("stored functions")),
        ("trigger", Kind::Unknown("triggers")),
        ("event", Kind::Unknown("events")),
    ];
    kinds.into_iter().find(|(word, _)| t.word(word)).map(|(_, kind)| kind)
}

/// Whether a text may begin with a statement that has others in it. Most do not, which its first word tells.
pub fn may_begin(sql: &[u8]) -> bool {
    let rest = &sql[behind_blanks(sql)..];
    rest.get(..6).is_some_and(|word| word.eq_ignore_ascii_case(b"create"))
}

impl Clause {
    /// The statement at the beginning of a text, and the length of what was read of it; `None`: another one.
    ///
    /// # Errors
    /// 1064, and what else is wrong with a procedure; 1235 for what there is not.
    pub fn parse(sql: &str, syntax: Syntax, default: Collation) -> Result<Option<(Clause, usize)>> {
        let mut t = Tokens::new(sql);
        let mut definer = None;
        if !t.word("create") {
            return Ok(None);
        }
        if t.peek_word("or") && matches!(t.ahead(2), Some(Token::Word(w)) if w.eq_ignore_ascii_case("procedure")) {
            t.skip();
            t.skip();
            return Err(t.error());
        }
        match kind(&mut t, &mut definer) {
            None => return Ok(None),
            Some(Kind::Unknown(what)) => return Err(errors::not_supported(what)),
            Some(Kind::Procedure) => {}
        }
        let if_not_exists = t.word("if");
        if if_not_exists {
            t.expect("not")?;
            t.expect("exists")?;
        }
        let name = t.name()?;
        if name.1.is_empty() || name.1.ends_with(' ') {
            return Err(failures::bad_name(&name.1));
        }
        let begin = t.offset();
        let mut compiler = Compiler::new(&mut t, syntax, default);
        compiler.parameters()?;
        let written = compiler.t.slice(begin, Some(compiler.t.behind()));
        let parameters = written.strip_prefix('(').and_then(|p| p.strip_suffix(')')).unwrap_or("").to_owned();
        let characteristics = Characteristics::parse(compiler.t, false)?;
        let begin = compiler.t.offset();
        compiler.body()?;
        let end = t.behind();
        let body = t.slice(begin, Some(end));
        let end = match t.peek() {
            None => sql.len(),
            Some(Token::Symbol(';')) => t.offset().map_or(sql.len(), |at| at + 1),
            Some(_) => return Err(t.error()),
        };
        let clause = Clause { name, if_not_exists, definer, characteristics, parameters, body };
        Ok(Some((clause, end)))
    }
}

/// ALTER or DROP of a procedure.
#[derive(Debug)]
pub enum Change {
    Alter(Name, Characteristics),
    Drop { name: Name, if_exists: bool },
}

impl Change {
    /// `None`: of something else.
    pub fn parse(t: &mut Tokens) -> Result<Option<Change>> {
        let drops = t.peek_word("drop");
        if !drops && !t.peek_word("alter") || !t.second_word("procedure") {
            return Ok(None);
        }
        t.skip();
        t.skip();
        if drops {
            let if_exists = t.word("if");
            if if_exists {
                t.expect("exists")?;
            }
            let name = t.name()?;
            t.end()?;
            return Ok(Some(Change::Drop { name, if_exists }));
        }
        let name = t.name()?;
        let characteristics = Characteristics::parse(t, true)?;
        t.end()?;
        Ok(Some(Change::Alter(name, characteristics)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(sql: &str) -> Result<Option<(Clause, usize)>> {
        Clause::parse(sql, Syntax::default(), Collation::default())
    }

    #[test]
    fn a_procedure_ends_where_its_body_does() {
        let body = "BEGIN /* one; */ SELECT ';' AS `;`; IF 1 THEN BEGIN END; END IF; -- two;\n END";
        for behind in ["", ";", "; SELECT 1"] {
            let head = "-- first\n CREATE /*!50017 DEFINER=`a`@`%`*/ PROCEDURE d.p(IN a INT /* b */, out b varchar(3)) NO SQL COMMENT 'x' ";
            let (clause, end) = parsed(&format!("{head}{body}{behind}")).unwrap().unwrap();
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
        assert_eq!(
            parsed("CREATE TRIGGER t AFTER INSERT ON u FOR EACH ROW SET @a = 1").map(|_| ()).unwrap_err().errno,
            1235
        );
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
    }
}
