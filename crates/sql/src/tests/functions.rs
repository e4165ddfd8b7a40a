//! Expressions and what a client of MySQL 8 reads for them.

use apus_types::{RowLayout, collate::Collation};

use crate::{
    expr::{Context, Env, Kind},
    parse::digest::{Digest, Form, Syntax},
    plan::{Plan, text::plan_text},
    value::{datum::Datum, decimal},
};

fn environment() -> Env {
    let mut env = Env::new("root".into(), "localhost".into(), 7, 1, Default::default());
    env.database = Some("d".into());
    for (name, value) in [
        ("n", Datum::Int(5)),
        ("d", Datum::Decimal { unscaled: 150, scale: 2 }),
        ("t", Datum::text("abc")),
        ("b", Datum::Bytes(b"A".as_slice().into())),
    ] {
        env.user_variables.insert(name.into(), value);
    }
    env.variables.set_connection(Collation::Utf8mb4GeneralCi);
    env
}

/// The text of `SELECT text`, or the number of the error.
fn show(text: &str) -> String {
    let env = environment();
    let mut digest = Digest::default();
    let statement = match digest.scan(format!("SELECT {text}").as_bytes(), Form::Plain, Syntax::default()) {
        Ok(_) => String::from_utf8(digest.text).unwrap(),
        Err(e) => return e.errno.to_string(),
    };
    let plan = match plan_text(&Default::default(), &env, &statement, Vec::new()) {
        Ok(Plan::Select(plan)) => plan,
        Ok(_) => panic!("{text}"),
        Err(e) => return e.errno.to_string(),
    };
    let layout = RowLayout::new([]);
    let cx = Context::of_row(&layout, &[], &env);
    let [output] = plan.outputs.as_slice() else { panic!("{text}") };
    match (output.expr.eval(&cx), output.kind) {
        (Ok(Datum::Null), _) => "NULL".into(),
        (Ok(d), Kind::Decimal(scale)) => {
            let Some((n, s)) = d.number().and_then(|n| n.to_decimal()) else { return d.as_string() };
            let mut text = Vec::new();
            match decimal::rescale(n, s, scale) {
                Some(n) => decimal::push(&mut text, n, scale),
                None => decimal::push(&mut text, n, s),
            }
            String::from_utf8(text).unwrap()
        }
        (Ok(d), Kind::Bytes) => String::from_utf8_lossy(&d.as_text()).into_owned(),
        (Ok(d), _) => d.as_string(),
        (Err(e), _) => e.errno.to_string(),
    }
}

fn check(cases: &[(&str, &str)]) {
    let wrong: Vec<String> = cases
        .iter()
        .map(|(text, want)| (text, want, show(text)))
        .filter(|(_, want, got)| got != *want)
        .map(|(text, want, got)| format!("{text}: {got} instead of {want}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn quotients_are_what_they_show() {
    check(&[
        ("2/3*3", "2.0001"),
        ("1/3", "0.3333"),
        ("1/3 = 0.3333", "1"),
        ("1/3 LIKE '0.3333'", "1"),
        ("1/3 BETWEEN 0.33333 AND 0.333334", "0"),
        ("CAST(1/3 AS DECIMAL(12,9))", "0.333300000"),
        ("ROUND(1/3, 6)", "0.3333"),
        ("TRUNCATE(2/3, 6)", "0.6667"),
        ("ROUND(1.5, 3)", "1.5"),
        ("CONCAT(1/3)", "0.3333"),
        ("CONCAT(ABS(-1/3), -(1/3))", "0.3333-0.3333"),
        ("LENGTH(1/3)", "6"),
        ("1.23456/7*7", "1.234559998"),
        ("1/7/7*49", "1.00030021"),
        ("0.000001/3*3000000", "0.9999000000"),
        ("GREATEST(1/3, 0.1)*3", "0.9999"),
        ("FLOOR(2/3*3)", "2"),
        ("5.5 % 1 / 3", "0.16667"),
        ("12345678901234567890.123456789/7", "1763668414462081127.1604938270000"),
        ("1/12345678901234567890", "0.0000"),
        ("(1/3)*(1/3)*(1/3)*(1/3)*(1/3)", "0.00411316913576131893"),
        ("1/0", "NULL"),
    ]);
}

#[test]
fn hexadecimal_and_bit_literals_are_texts_and_numbers() {
    check(&[
        ("x'41'", "A"),
        ("b'1000001'", "A"),
        ("0b1000001", "A"),
        ("CONCAT(b'1000001', x'42')", "AB"),
        ("x'41' + 0", "65"),
        ("b'101' | 2", "7"),
        ("-x'41'", "-65"),
        ("x'41' = 65", "1"),
        ("x'41' = 'A'", "1"),
        ("65 IN (x'41')", "1"),
        ("x'41' BETWEEN 60 AND 70", "1"),
        ("CAST(b'101' AS SIGNED)", "5"),
        ("HEX(b'101')", "05"),
        ("LENGTH(b'')", "0"),
        ("NOT x'00'", "1"),
        ("b'1' AND 1", "1"),
        ("ABS(x'41')", "65"),
        ("'A' + 0", "0"),
        ("b'2'", "1064"),
    ]);
}

#[test]
fn user_variables_keep_their_types() {
    let kinds = |text: &str| {
        let Ok(Plan::Select(plan)) = plan_text(&Default::default(), &environment(), text, Vec::new()) else { panic!() };
        plan.outputs.iter().map(|o| o.kind).collect::<Vec<_>>()
    };
    assert_eq!(
        kinds("SELECT @n, @d, @t, @b, @none, @n + 1, @d * 2"),
        [Kind::Int, Kind::Decimal(2), Kind::Text, Kind::Bytes, Kind::Null, Kind::Int, Kind::Decimal(2)]
    );
    check(&[("@n + 1", "6"), ("@d", "1.50"), ("@none", "NULL"), ("CONCAT(@t, @n)", "abc5")]);
}

#[test]
fn searches_follow_the_collation() {
    check(&[
        ("INSTR('fooBÄR', 'bär')", "4"),
        ("INSTR('Äa', 'a')", "1"),
        ("LOCATE('Ö', 'xö')", "2"),
        ("POSITION('É' IN 'cafe')", "4"),
        ("LOCATE('', 'abc', 4)", "4"),
        ("LOCATE('', 'abc', 5)", "0"),
        ("LOCATE('b', 'abcb', 3)", "4"),
        ("INSTR(BINARY 'ABC', 'b')", "0"),
        ("INSTR('e x', 'é')", "1"),
        ("REPLACE('aAa', 'A', 'x')", "axa"),
        ("FIND_IN_SET('B', 'a,b,c')", "2"),
        ("FIND_IN_SET('a ', 'a,b')", "0"),
        ("FIND_IN_SET('ä', 'a,b')", "1"),
        ("FIELD('a', 'Ä')", "1"),
        ("STRCMP('a ', 'A')", "0"),
    ]);
}

#[test]
fn rows_are_compared_part_by_part() {
    check(&[
        ("(1, NULL) = (1, 1)", "NULL"),
        ("(1, NULL) = (2, 1)", "0"),
        ("(1, NULL) <=> (1, NULL)", "1"),
        ("(1, NULL) <> (2, NULL)", "1"),
        ("(1, 2) IN ((1, 2), (3, 4))", "1"),
        ("(1, NULL) IN ((1, 2))", "NULL"),
        ("(1, 2) NOT IN ((3, 4), (5, NULL))", "1"),
        ("(1, 2) < (1, 3)", "1"),
        ("(2, 1) >= (1, 9)", "1"),
        ("(2, 1) >= (2, 2)", "0"),
        ("ROW(1, 2) = (1, 2)", "1"),
        ("(1, 2) = (1, 2, 3)", "1241"),
        ("(1, 2) = 1", "1241"),
        ("(1, 2)", "1241"),
        ("(1, (2, 3)) < (1, (2, 4))", "1"),
        ("(1, 2, 3) <= (1, 2, 3)", "1"),
        ("(1, 2, 3) < (1, 2, 3)", "0"),
        ("(1, NULL) < (2, 1)", "1"),
        ("(1, NULL) < (1, 1)", "NULL"),
        ("(1, (2, 3)) = (1, 2, 3)", "1241"),
    ]);
    // Rows in rows cost no more than their parts.
    let nested = (0..40).fold("0".to_owned(), |row, n| format!("({row}, {n})"));
    check(&[(&format!("{nested} <= {nested}"), "1")]);
}

#[test]
fn operators_that_bind_like_signs() {
    check(&[("!0", "1"), ("!0 + 1", "2"), ("NOT 0 + 1", "0"), ("!NULL", "NULL"), ("BINARY 'a' = 'A'", "0")]);
}

/// Expressions and their texts, as MySQL 8 gives them; most were read from a server.
#[test]
fn functions() {
    let rows: Vec<(&str, String)> = include_str!("functions.tsv")
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .map(|(text, want)| (text, want.replace("\\n", "\n")))
        .collect();
    assert!(rows.len() > 300);
    check(&rows.iter().map(|(text, want)| (*text, want.as_str())).collect::<Vec<_>>());
}

/// Whatever the arguments are, a function answers or refuses; it does not panic.
#[test]
fn no_argument_makes_a_function_panic() {
    const VALUES: [&str; 36] = [
        "NULL",
        "0",
        "1",
        "-1",
        "2",
        "7",
        "16",
        "64",
        "9223372036854775807",
        "-9223372036854775808",
        "18446744073709551615",
        "99999999999999999999999999999999999999",
        "-1.5",
        "0.000000000000000000000000000001",
        "1e308",
        "-1e308",
        "1/3",
        "''",
        "'a'",
        "'äöü ß'",
        "'a,b,c'",
        "'(a'",
        "x'ff00fe'",
        "x''",
        "'2024-02-29 23:59:59.999999'",
        "'0000-00-00'",
        "'9999-12-31'",
        "'-838:59:59'",
        "'%Y-%m-%d %H:%i:%s.%f %j %U %v %x %X'",
        "'1 1:1:1.1'",
        "DATE '9999-12-31'",
        "DATE '0000-01-01'",
        "TIMESTAMP '2024-01-01 00:00:00.5'",
        "TIME '838:59:59'",
        "'$1 \\\\ $'",
        "'+14:00'",
    ];
    const OPERATORS: [&str; 18] =
        ["+", "-", "*", "/", "%", "DIV", "=", "<", "<=>", "&", "|", "^", "<<", ">>", "LIKE", "REGEXP", "XOR", "AND"];
    const UNITS: [&str; 12] = [
        "MICROSECOND",
        "SECOND",
        "DAY",
        "WEEK",
        "MONTH",
        "QUARTER",
        "YEAR",
        "YEAR_MONTH",
        "DAY_MICROSECOND",
        "HOUR_MINUTE",
        "DAY_HOUR",
        "SECOND_MICROSECOND",
    ];
    let mut seed = 1u64;
    let mut pick = |n: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % n
    };
    let mut panicked = Vec::new();
    let mut answer = |text: String| {
        if std::panic::catch_unwind(|| show(&text)).is_err() {
            panicked.push(text);
        }
    };
    let names: Vec<_> = crate::expr::func::NAMES.iter().filter(|(name, ..)| !name.starts_with(' ')).collect();
    for i in 0..20_000 {
        let (name, least, most) = names[i % names.len()];
        let count = least + pick((most - least).min(3) + 1);
        let args: Vec<&str> = (0..count).map(|_| VALUES[pick(VALUES.len())]).collect();
        answer(format!("{name}({})", args.join(", ")));
        let (a, b) = (VALUES[pick(VALUES.len())], VALUES[pick(VALUES.len())]);
        answer(format!("{a} {} {b}", OPERATORS[pick(OPERATORS.len())]));
        let unit = UNITS[pick(UNITS.len())];
        answer(format!("{a} + INTERVAL {b} {unit}"));
        answer(format!("EXTRACT({unit} FROM {a})"));
        if i % 4 == 0 {
            for to in
                ["SIGNED", "UNSIGNED", "DECIMAL(38, 30)", "DECIMAL(5, 2)", "DATE", "DATETIME(3)", "TIME(3)", "CHAR(2)"]
            {
                answer(format!("CAST({a} {} {b} AS {to})", OPERATORS[pick(6)]));
            }
        }
    }
    assert!(panicked.is_empty(), "{}", panicked.join("\n"));
}

/// Chains as long as they may be are planned, evaluated and dropped on the stack of a test, which is smaller than a server's.
#[test]
fn long_chains_are_answered() {
    let terms = |n: usize| (0..n).map(|i| format!("{i} = 1999")).collect::<Vec<_>>().join(" OR ");
    assert_eq!(show(&terms(1990)), "0");
    assert_eq!(show(&format!("NOT ({})", terms(1990))), "1");
    assert_eq!(show(&terms(100_000)), "1235");
    assert_eq!(show(&vec!["1"; 1000].join(" AND ")), "1");
    assert_eq!(show(&vec!["1"; 3000].join("+")), "1235");
    assert_eq!(show(&vec!["1"; 300_000].join("+")), "1235");
    assert_eq!(show(&vec!["1"; 3000].join(" IS NULL IS ")), "1235");
}
