//! Ranks as the reference gave them for the table of its manual.

use std::borrow::Cow;

use apus_types::collate::Collation;

use super::{
    query::{Mode, parse},
    search::{Search, rank_of},
};

const ROWS: [(&str, &str); 6] = [
    ("MySQL Tutorial", "DBMS stands for DataBase ..."),
    ("How To Use MySQL Well", "After you went through a ..."),
    ("Optimizing MySQL", "In this tutorial, we show ..."),
    ("1001 MySQL Tricks", "1. Never run mysqld as root. 2. ..."),
    ("MySQL vs. YourSQL", "In the following database comparison ..."),
    ("MySQL Security", "When configured properly, MySQL ..."),
];

/// As numbers of rows with ranks, those that are not found left out.
fn asked(query: &str, mode: Mode) -> Vec<(u8, f32)> {
    let mut search = Search::new(query, mode, Collation::Utf8mb4GeneralCi).unwrap();
    for (at, (title, body)) in ROWS.iter().enumerate() {
        search.add(&[at as u8 + 1], &[Some(Cow::Borrowed(title.as_bytes())), Some(Cow::Borrowed(body.as_bytes()))]);
    }
    let found = search.finish();
    (1..=6).filter_map(|row| Some((row, rank_of(&found, &[row])?))).collect()
}

#[test]
fn rare_words_weigh_more_and_words_of_all_rows_hardly() {
    let everywhere = 1.885_928_3e-9;
    let tutorial = 0.227_644_7;
    let expected =
        [(1, tutorial), (2, everywhere), (3, tutorial), (4, everywhere), (5, everywhere), (6, 2.0 * everywhere)];
    assert_eq!(asked("mysql Tutorial", Mode::Natural), expected);
    assert_eq!(asked("the as vs", Mode::Natural), []);
    assert_eq!(asked("mysql mysql", Mode::Natural)[5], (6, 0.181_238_11));
}

#[test]
fn operators_add_and_take_rows_and_ranks() {
    let rows = |query| asked(query, Mode::Boolean).into_iter().map(|(row, _)| row).collect::<Vec<_>>();
    assert_eq!(rows("+mysql -yoursql"), [1, 2, 3, 4, 6]);
    assert_eq!(rows("+mysql +tutorial"), [1, 3]);
    assert_eq!(rows("+(tutorial security) +(mysql)"), [1, 3, 6]);
    assert_eq!(rows("mysql -(+tutorial +database)"), [2, 3, 4, 5, 6]);
    assert_eq!(rows("-mysql"), []);
    assert_eq!(rows("+the +mysql"), []);
    assert_eq!(rows("tut*"), [1, 3]);
    let ranks = asked("+mysql +(>tutorial <database)", Mode::Boolean);
    assert_eq!(ranks, [(1, 0.455_289_4), (3, 1.227_644_7), (5, -0.772_355_3)]);
    assert_eq!(asked("mysql* +mysql", Mode::Boolean)[5], (6, 0.225_512_67));
}

#[test]
fn phrases_are_words_in_a_row_of_one_column() {
    let rows = |query| asked(query, Mode::Boolean).into_iter().map(|(row, _)| row).collect::<Vec<_>>();
    assert_eq!(rows("\"never run mysqld as root\""), [4]);
    assert_eq!(rows("\"mysqld root\""), []);
    assert_eq!(rows("\"tutorial dbms\""), []);
    // Of this one only one word can be found.
    assert_eq!(rows("\"In this tutorial\""), [1, 3]);
    assert_eq!((rows("\"never root\" @4"), rows("\"never root\" @5")), (vec![], vec![4]));
    assert_eq!(rows("+\"the of\" +mysql"), []);
    assert_eq!(rows("+\"\" +mysql"), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn an_expanded_query_looks_for_the_words_of_what_it_found() {
    let found = asked("database", Mode::Expansion);
    assert_eq!((found[0], found[4]), ((1, 1.666_328_1), (5, 2.044_202_8)));
    assert_eq!(found.len(), 6);
}

#[test]
fn errors_say_what_was_not_expected() {
    let error = |query: &str| parse(query, Mode::Boolean).unwrap_err().message.clone();
    assert_eq!(error("++mysql"), "syntax error, unexpected '+'");
    assert_eq!(error("mysql +"), "syntax error, unexpected $end");
    assert_eq!(error("@mysql"), "syntax error, unexpected '@', expecting $end");
    assert_eq!(error("(mysql"), "syntax error, unexpected $end");
    assert_eq!(error("*"), "syntax error, unexpected $end, expecting FTS_TERM or FTS_NUMB or '*'");
    assert_eq!(error("\"a b\" @x"), "syntax error, unexpected FTS_TERM, expecting FTS_NUMB");
    assert!(error(&"(".repeat(40)).contains("31 parentheses"));
    let words = |count: usize| (0..count).map(|n| format!("word{n} ")).collect::<String>();
    let search = |count| Search::new(&words(count), Mode::Natural, Collation::Utf8mb4GeneralCi);
    assert!(search(1000).is_ok() && search(1001).is_err_and(|e| e.message.contains("1000 words")));
}
