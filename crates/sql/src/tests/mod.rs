//! Planner and expressions, from text.

mod access_paths;
#[cfg(test)]
pub(crate) mod explain;
#[cfg(test)]
pub(crate) mod functions;
#[cfg(test)]
pub(crate) mod hints;
mod temporary;

use std::rc::Rc;

use apus_signal::{dict::Dictionary, schema::TableMessage};
use apus_types::{Column, RowLayout, TableId};

use crate::{
    catalog::{
        Catalog,
        view::{self, Definition},
    },
    ddl::statement::{self, Ddl},
    expr::{Context, env::Env},
    parse::{
        digest::{Digest, Form, Syntax},
        token::Tokens,
    },
    plan::{
        Plan,
        access::Path,
        bind::Builder,
        cache::{Cached, PlanCache, key_of},
        query::{Leaf, StepKind},
        text::plan_text,
    },
    value::datum::Datum,
};

pub(crate) fn env() -> Env {
    let mut env = Env::new("root".into(), "localhost".into(), 7, 1, Default::default());
    env.database = Some("d".into());
    env
}

fn table(sql: &str, id: u32) -> TableMessage {
    let mut digest = Digest::default();
    digest.scan(sql.as_bytes(), Form::Plain, Syntax::default()).unwrap();
    let mut tokens = Tokens::new(std::str::from_utf8(&digest.text).unwrap());
    let Some(Ddl::CreateTable { table, .. }) = statement::parse(&mut tokens, sql, Default::default()).unwrap() else {
        panic!("{sql}")
    };
    let mut table = *table;
    table.database = "d".into();
    table.id = TableId(id);
    TableMessage::from(&table)
}

pub(crate) fn catalog() -> Catalog {
    let sbtest = "CREATE TABLE sbtest1(id INTEGER NOT NULL AUTO_INCREMENT, k INTEGER DEFAULT '0' NOT NULL, \
        c CHAR(120) DEFAULT '' NOT NULL, pad CHAR(60) DEFAULT '' NOT NULL, PRIMARY KEY (id), KEY k_1 (k)) /*! ENGINE = innodb */";
    let pair = "create table pair (a int, b varchar(20), c bigint unsigned, d date, n decimal(10,2), primary key (a, b), unique u (c)) default charset=utf8mb4";
    let dictionary = Dictionary {
        version: 1,
        databases: vec![apus_signal::dict::DatabaseMessage { name: "d".into(), collation: 45 }],
        tables: vec![table(sbtest, 1), table(pair, 2)],
        ..Dictionary::default()
    };
    Catalog::from_dictionary(&dictionary, &Catalog::default()).unwrap()
}

/// A dictionary with a view over `pair`.
fn catalog_with_view(text: &str, columns: &[&str], before: &Catalog) -> Catalog {
    let pair = "create table pair (a int, b varchar(20), c bigint unsigned, primary key (a, b), unique u (c))";
    let column = |name: &&str| Column::new(*name, apus_types::ColumnType::Int { bits: 32, unsigned: false });
    let definition = Definition { merges: true, updatable: true, text: text.to_owned(), ..Definition::default() };
    let mut view = view::table("d", "v", &definition, columns.iter().map(column).collect());
    view.id = TableId(3);
    let dictionary = Dictionary {
        version: before.version + 1,
        databases: vec![apus_signal::dict::DatabaseMessage { name: "d".into(), collation: 45 }],
        tables: vec![table(pair, 1), table("create table t (id int primary key)", 2), TableMessage::from(&view)],
        ..Dictionary::default()
    };
    Catalog::from_dictionary(&dictionary, before).unwrap()
}

#[test]
fn a_view_that_merges_is_the_plan_of_its_table() {
    const TEXT: &str = "select `d`.`pair`.`a` AS `x`,`d`.`pair`.`b` AS `y`,(`d`.`pair`.`c` + 1) AS `z` from `d`.`pair` where (`d`.`pair`.`c` > 5)";
    let catalog = catalog_with_view(TEXT, &["x", "y", "z"], &Catalog::default());
    let planned = |sql: &str| plan_text(&catalog, &env(), sql, Vec::new()).unwrap();
    let by_key = |path: &Path| matches!(path, Path::Points { index: None, .. });
    let Plan::Select(select) = planned("SELECT z FROM v WHERE x = 1 AND y = 'q'") else { panic!("no SELECT") };
    let access = select.access.as_ref().unwrap();
    assert!(select.join.is_none() && by_key(&access.path) && access.rest.is_some(), "{access:?}");
    let Plan::Update(update) = planned("UPDATE v SET y = 'r' WHERE x = 1 AND y = 'q'") else { panic!("no UPDATE") };
    assert!(by_key(&update.access.path) && update.access.rest.is_some(), "{:?}", update.access);
    assert_eq!(update.assignments[0].0, 1, "the column of the table");
    let Plan::Select(select) = planned("SELECT v.z, t.id FROM t JOIN v ON v.x = t.id AND v.y = 'q' WHERE t.id = 3")
    else {
        panic!("no SELECT")
    };
    assert!(select.join.as_ref().is_some_and(|join| join.is_by_key), "{:?}", select.join);
    // A computed column would not be NULL where the outer join has no row.
    let leaf = |sql: &str| match planned(sql) {
        Plan::Select(select) => select
            .join
            .unwrap()
            .steps
            .iter()
            .any(|step| matches!(&step.kind, StepKind::Join(join) if matches!(join.leaf, Leaf::Derived(_)))),
        _ => panic!("{sql}"),
    };
    assert!(leaf("SELECT v.z FROM t LEFT JOIN v ON v.x = t.id"));
    assert!(!leaf("SELECT v.z FROM v LEFT JOIN t ON v.x = t.id"));
    // A subquery takes a computed column as the value of its expression.
    let Plan::Select(select) = planned("SELECT x, (SELECT t.id FROM t WHERE t.id = z) FROM v WHERE x = 1 AND y = 'q'")
    else {
        panic!("no SELECT")
    };
    assert!(select.join.is_some(), "a subquery for each row");
    // Nothing of the statement around is in view inside.
    assert!(leaf("WITH pair AS (SELECT 1 AS a) SELECT v.x FROM pair, v WHERE v.x = 1 AND v.y = 'q'"));
    for (sql, number) in [
        ("SELECT c FROM v", 1054),
        ("SELECT pair.a FROM v", 1054),
        ("UPDATE v SET z = 1", 1348),
        ("INSERT INTO v (x, y) VALUES (1, 'a')", 1471),
        ("SELECT * FROM v, v", 1066),
    ] {
        assert_eq!(plan_text(&catalog, &env(), sql, Vec::new()).map_err(|e| e.errno).err(), Some(number), "{sql}");
    }
}

#[test]
fn a_replaced_view_drops_its_plans() {
    let text = |n: u32| format!("select `d`.`pair`.`a` AS `x`,{n} AS `y` from `d`.`pair`");
    let first = catalog_with_view(&text(1), &["x", "y"], &Catalog::default());
    let sql = "SELECT y FROM v";
    let plan = plan_text(&first, &env(), sql, Vec::new()).unwrap();
    let mut plans = PlanCache::default();
    plans.put(sql.as_bytes(), Some("d"), &first, Default::default(), Cached::Plan(Rc::new(plan)));
    let same = catalog_with_view(&text(1), &["x", "y"], &first);
    assert!(plans.find((sql.as_bytes(), key_of(sql.as_bytes())), Some("d"), &same, Default::default()).is_some());
    let other = catalog_with_view(&text(2), &["x", "y"], &same);
    assert!(plans.find((sql.as_bytes(), key_of(sql.as_bytes())), Some("d"), &other, Default::default()).is_none());
    let gone = catalog_with_view("select `d`.`pair`.`nope` AS `x` from `d`.`pair`", &["x"], &other);
    assert_eq!(plan_text(&gone, &env(), "SELECT x FROM v", Vec::new()).map_err(|e| e.errno).err(), Some(1356));
}

#[test]
fn a_definition_drops_the_plans_of_its_table_only() {
    let dictionary = |version, other: &str| Dictionary {
        version,
        databases: vec![apus_signal::dict::DatabaseMessage { name: "d".into(), collation: 45 }],
        tables: vec![table("CREATE TABLE a (id INT PRIMARY KEY)", 1), table(other, 2)],
        ..Dictionary::default()
    };
    let mut plans = PlanCache::default();
    let first =
        Catalog::from_dictionary(&dictionary(1, "CREATE TABLE b (id INT PRIMARY KEY)"), &Catalog::default()).unwrap();
    let texts =
        ["select * from a where id = 1", "select a.id from a, b", "insert into a values (1)", "select (select 1)"];
    for text in texts {
        let plan = plan_text(&first, &env(), text, Vec::new()).unwrap();
        plans.put(text.as_bytes(), Some("d"), &first, Default::default(), Cached::Plan(Rc::new(plan)));
    }
    let changed = dictionary(2, "CREATE TABLE b (id INT PRIMARY KEY, v INT)");
    let second = Catalog::from_dictionary(&changed, &first).unwrap();
    let kept = texts.map(|text| {
        plans.find((text.as_bytes(), key_of(text.as_bytes())), Some("d"), &second, Default::default()).is_some()
    });
    assert_eq!(kept, [true, false, true, true]);
    // One that was missed while its table was another stays missed.
    let third = Catalog::from_dictionary(&Dictionary { version: 3, ..changed }, &second).unwrap();
    assert!(
        plans.find((texts[0].as_bytes(), key_of(texts[0].as_bytes())), Some("d"), &third, Default::default()).is_some()
    );
    assert!(
        plans.find((texts[1].as_bytes(), key_of(texts[1].as_bytes())), Some("d"), &third, Default::default()).is_none()
    );
}

fn evaluate(text: &str) -> String {
    let env = env();
    let statement = match crate::plan::syntax::parse(&format!("SELECT {text}")) {
        Ok(s) => s,
        Err(e) => return format!("{e}"),
    };
    let sqlparser::ast::Statement::Query(query) = statement else { panic!("{text}") };
    let sqlparser::ast::SetExpr::Select(select) = *query.body else { panic!("{text}") };
    let [sqlparser::ast::SelectItem::UnnamedExpr(e)] = select.projection.as_slice() else { panic!("{text}") };
    let expr = match Builder::new(None, "", "d").build(e) {
        Ok(e) => e,
        Err(e) => return e.errno.to_string(),
    };
    let layout = RowLayout::new([]);
    let cx = Context::of_row(&layout, &[], &env);
    match expr.eval(&cx) {
        Ok(Datum::Null) => "NULL".into(),
        Ok(d) => d.as_string(),
        Err(e) => e.errno.to_string(),
    }
}

#[test]
fn expressions() {
    for (text, want) in [
        ("1 + 2 * 3", "7"),
        ("7 / 2", "3.5000"),
        ("7 DIV 2", "3"),
        ("7 % 0", "NULL"),
        ("9223372036854775807 + 1", "1690"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("0.1 + 0.2", "0.3"),
        ("1.5 * 1.5", "2.25"),
        ("'3 apples' + 4", "7"),
        ("'a' = 'A'", "1"),
        ("NULL = NULL", "NULL"),
        ("NULL <=> NULL", "1"),
        ("NULL AND 0", "0"),
        ("NULL OR 1", "1"),
        ("1 IN (2, NULL)", "NULL"),
        ("1 NOT IN (2, 3)", "1"),
        ("2 BETWEEN 1 AND 3", "1"),
        ("'hello' LIKE 'h%o'", "1"),
        ("'h_llo' LIKE 'h\\_llo'", "1"),
        ("CASE WHEN 1 > 2 THEN 'a' ELSE 'b' END", "b"),
        ("IF(0, 1, 2)", "2"),
        ("COALESCE(NULL, NULL, 3)", "3"),
        ("NULLIF(1, 1)", "NULL"),
        ("CAST('12abc' AS SIGNED)", "12"),
        ("CAST(1.005 AS DECIMAL(5,2))", "1.01"),
        ("CONCAT('a', 1, 'b')", "a1b"),
        ("CONCAT_WS(',', 'a', NULL, 'b')", "a,b"),
        ("LENGTH('é')", "2"),
        ("CHAR_LENGTH('é')", "1"),
        ("SUBSTRING('hello', 2, 3)", "ell"),
        ("SUBSTRING('hello', -3)", "llo"),
        ("LEFT('hello', 2)", "he"),
        ("RIGHT('hello', 2)", "lo"),
        ("UPPER('abc')", "ABC"),
        ("TRIM('  x ')", "x"),
        ("LPAD('5', 3, '0')", "005"),
        ("REPLACE('aXbX', 'X', 'yy')", "ayybyy"),
        ("INSTR('foobar', 'BAR')", "4"),
        ("HEX(255)", "FF"),
        ("HEX('ab')", "6162"),
        ("ROUND(2.5)", "3"),
        ("ROUND(123.456, 1)", "123.5"),
        ("TRUNCATE(-1.999, 1)", "-1.9"),
        ("FLOOR(-1.5)", "-2"),
        ("CEIL(1.2)", "2"),
        ("GREATEST(1, 5, 3)", "5"),
        ("MOD(-7, 3)", "-1"),
        ("SIGN(-3)", "-1"),
        ("CRC32('MySQL')", "3259397556"),
        ("DATE_ADD('2024-01-31', INTERVAL 1 MONTH)", "2024-02-29"),
        ("DATE('2024-02-29') + INTERVAL 1 DAY", "2024-03-01"),
        ("DATEDIFF('2024-03-01', '2024-02-01')", "29"),
        ("DATE_FORMAT('2024-02-03 04:05:06', '%Y/%m/%d %H-%i-%s')", "2024/02/03 04-05-06"),
        ("YEAR('2024-02-03')", "2024"),
        ("UNIX_TIMESTAMP('2024-01-01 00:00:00')", "1704067200"),
        ("FROM_UNIXTIME(1704067200)", "2024-01-01 00:00:00"),
        ("CAST('2024-01-02' AS DATE) = '2024-01-02 00:00:00'", "1"),
        ("DATABASE()", "d"),
        ("CONNECTION_ID()", "7"),
        ("@@autocommit", "1"),
        ("@@session.transaction_isolation", "READ-COMMITTED"),
        ("@@nonsense", "1193"),
        ("@missing", "NULL"),
        ("ABS()", "1582"),
        ("SHA1('abc')", "a9993e364706816aba3e25717850c26c9cd0d89d"),
        ("1 << 4 | 1", "17"),
        ("~0", "18446744073709551615"),
        ("NOT 0", "1"),
        ("1 XOR 1", "0"),
        ("STRCMP('a', 'b')", "-1"),
        ("COUNT(*)", "1111"),
    ] {
        assert_eq!(evaluate(text), want, "{text}");
    }
}

#[test]
fn words_that_the_parser_does_not_know_are_replaced_outside_of_quotes_only() {
    use crate::plan::syntax::parse;
    let parsed = |text: &str| parse(text).unwrap().to_string();
    assert_eq!(
        parsed("SELECT 7 MOD 2, MOD(7, 2), ' MOD 2', `a mod b` FROM t"),
        "SELECT 7 % 2, MOD(7, 2), ' MOD 2', `a mod b` FROM t"
    );
    assert_eq!(
        parsed("SELECT a FROM t WHERE a = ' LOCK IN SHARE MODE'"),
        "SELECT a FROM t WHERE a = ' LOCK IN SHARE MODE'"
    );
    assert_eq!(parsed("SELECT a FROM t lock in SHARE mode"), "SELECT a FROM t FOR SHARE");
}
