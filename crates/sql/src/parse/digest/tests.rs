//! Tests of `parse::digest`.

use std::borrow::Cow;

use super::*;

fn digest(sql: &str) -> (String, Vec<Datum<'_>>) {
    let mut d = Digest::default();
    d.scan(sql.as_bytes(), Form::Digest, Syntax::default()).unwrap();
    let mut values = Vec::new();
    d.values(sql.as_bytes(), &mut values).unwrap();
    (String::from_utf8(d.text).unwrap(), values)
}

#[test]
fn literals_become_placeholders() {
    let (text, values) =
        digest("SELECT  c FROM t1 WHERE id=-42 AND x IN ('a''b', \"q\\n\", 1.50, 1e3, 0xff, x'0A') -- end");
    assert_eq!(text, "SELECT c FROM t1 WHERE id=-?1 AND x IN (?2, ?3, ?4, ?5, ?1048582, ?1048583)");
    assert_eq!(values[0], Datum::Int(42));
    assert_eq!(values[1], Datum::Text(Cow::Borrowed(b"a'b")));
    assert_eq!(values[2], Datum::Text(Cow::Borrowed(b"q\n")));
    assert_eq!(values[3], Datum::Decimal { unscaled: 150, scale: 2 });
    assert_eq!(values[4], Datum::Double(1000.0));
    assert_eq!(values[5], Datum::Bytes(Cow::Borrowed(b"\xff")));
    assert_eq!(values[6], Datum::Bytes(Cow::Borrowed(b"\n")));
    let (text, values) = digest("SELECT 1, b'101', 0b1000001000000001");
    assert_eq!(text, "SELECT ?1, ?1048578, ?1048579");
    assert_eq!(values[1..], [Datum::Bytes(Cow::Borrowed(b"\x05")), Datum::Bytes(Cow::Borrowed(b"\x82\x01"))]);
    assert_eq!(digest("select 18446744073709551615 ,9223372036854775808.0").1[0], Datum::UInt(u64::MAX));
}

#[test]
fn rows_of_one_shape_are_one() {
    let rows = |sql: &str| {
        let mut d = Digest::default();
        d.scan(sql.as_bytes(), Form::Digest, Syntax::default()).unwrap();
        (String::from_utf8(d.text.clone()).unwrap(), d.rows, d.literals.len())
    };
    let one = |text: &str, rows, literals| (text.to_owned(), rows, literals);
    assert_eq!(rows("INSERT INTO t VALUES (1,'a'),(2,'b') , (3, 'c')").1, 1, "spaces differ");
    assert_eq!(rows("INSERT INTO t VALUES(1,'a'),(2,'b') ,(3,'c')"), one("INSERT INTO t VALUES(?1,?2)", 3, 6));
    assert_eq!(
        rows("insert t (a, b) value (1, f(2, (3))),\n(4, f(5, (6))) on duplicate key update a = values(a)"),
        one("insert t (a, b) value (?1, f(?2, (?3))) on duplicate key update a = values(a)", 2, 6)
    );
    for other in [
        "INSERT INTO t VALUES (1,2),(3,-4)",
        "INSERT INTO t VALUES (1,2),(3,NULL)",
        "INSERT INTO t VALUES (1),(2) ON DUPLICATE KEY UPDATE a=5",
        "INSERT INTO t VALUES (1),(2),(3,4)",
        "SELECT 1, VALUES (2),(3)",
        "INSERT INTO t SELECT 5 VALUES (1),(2)",
    ] {
        let (text, count, literals) = rows(other);
        assert!(count == 1 && text.contains(&format!("?{literals}")), "{text}");
    }
    assert_eq!(rows("INSERT INTO t VALUES (1) (2)"), one("INSERT INTO t VALUES (?1) (?2)", 1, 2));
    assert_eq!(rows("INSERT INTO t VALUES (1),,(2)"), one("INSERT INTO t VALUES (?1),,(?2)", 1, 2));
    assert_eq!(rows("INSERT INTO t VALUES (),()"), one("INSERT INTO t VALUES ()", 2, 0));
    assert_eq!(rows("INSERT INTO t VALUES (1),(2); SELECT 3").1, 2);
    let mut d = Digest::default();
    d.scan(b"INSERT INTO t VALUES (1),(2)", Form::Plain, Syntax::default()).unwrap();
    assert_eq!((d.text.as_slice(), d.rows), (&b"INSERT INTO t VALUES (1),(2)"[..], 1));
}

#[test]
fn comments_and_executable_comments() {
    assert_eq!(digest("/* x */ SELECT /*!40101 a, */ /*!99999 b, */ c # tail\n FROM t").0, "SELECT a, c FROM t");
    assert_eq!(digest("select `a 1``b`, t.c1, 2x").0, "select `a 1``b`, t.c1, 2x");
}

#[test]
fn statements_are_split() {
    let sql = b"; select 'a;b' ; select 2";
    let mut d = Digest::default();
    let end = d.scan(sql, Form::Plain, Syntax::default()).unwrap();
    assert_eq!(d.text, b"select 'a;b'");
    let rest = &sql[end..];
    d.scan(rest, Form::Plain, Syntax::default()).unwrap();
    assert_eq!(d.text, b"select 2");
    d.scan(b"select ?, 5, ?", Form::Plain, Syntax::default()).unwrap();
    assert_eq!((d.text.as_slice(), d.parameters), (&b"select ?1, 5, ?2"[..], 2));
    assert!(d.scan(b"select 'abc", Form::Plain, Syntax::default()).is_err());
    assert!(d.scan(b"select `abc", Form::Digest, Syntax::default()).is_err());
}

#[test]
fn arbitrary_bytes_do_not_panic() {
    let mut d = Digest::default();
    let sql = b"select 'a\\'' /*! /* */ */ x'0' 0x 0xg 1.e 1e+ .5 `q`` ? @@x @'y' \xff\xfe -- \n;;#";
    for start in 0..sql.len() {
        for end in start..sql.len() {
            let _ = d.scan(&sql[start..end], Form::Digest, Syntax::default());
            let _ = d.scan(&sql[start..end], Form::Plain, Syntax::default());
        }
    }
}

#[test]
fn other_syntax_is_written_as_the_default() {
    let all = Syntax { ansi_quotes: true, pipes_concat: true, no_backslash: true, real_as_float: true, high_not: true };
    let scan = |sql: &str, form| {
        let mut d = Digest::default();
        d.scan(sql.as_bytes(), form, all).unwrap();
        let mut values = Vec::new();
        d.values(sql.as_bytes(), &mut values).unwrap();
        let values: Vec<String> = values.iter().map(Datum::as_string).collect();
        (String::from_utf8(d.text.clone()).unwrap(), values)
    };
    let sql = r#"SELECT "a""b`c"||'x\n''y' , CAST(1 AS REAL), t.real || "d" FROM "t""#;
    let (text, values) = scan(sql, Form::Digest);
    assert_eq!(text, r#"SELECT `a"b``c`||/?1 , CAST(?2 AS float), t.real ||/ `d` FROM `t`"#);
    assert_eq!(values, [r"x\n'y", "1"]);
    let (text, _) = scan(sql, Form::Plain);
    assert_eq!(text, r#"SELECT `a"b``c`||/'x\\n''y' , CAST(1 AS float), t.real ||/ `d` FROM `t`"#);
    let mut d = Digest::default();
    assert!(d.scan(b"SELECT \"a", Form::Plain, all).is_err());
    assert!(d.scan(b"SELECT 1 ||/ 2", Form::Plain, Syntax::default()).is_err());
    assert!(d.scan(b"SELECT 1 ||/* x */ 2", Form::Plain, Syntax::default()).is_ok());
    let sql = "SELECT NOT a BETWEEN 1 AND 2, a NOT IN (1), (not b), a IS NOT NULL, NOT EXISTS (SELECT 1), t.not";
    let (text, _) = scan(sql, Form::Plain);
    let want = "SELECT !/ a BETWEEN 1 AND 2, a NOT IN (1), (!/ b), a IS NOT NULL, NOT EXISTS (SELECT 1), t.not";
    assert_eq!(text, want);
    assert!(d.scan(b"SELECT ! / 2", Form::Plain, Syntax::default()).is_err());
}
