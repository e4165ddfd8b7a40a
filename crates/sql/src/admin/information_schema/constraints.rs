//! STATISTICS, KEY_COLUMN_USAGE and the tables of constraints.

use apus_types::{IndexDef, IndexNo, IndexState, TableSchema, rules::CheckDef};

use super::{number, option, text, yes};
use crate::{
    admin::show::expressions,
    catalog::{Catalog, Table, foreign_key},
    plan::rules::functional,
    value::datum::{Datum, Row},
};

/// Name, uniqueness, columns and definition of every key of a table, the primary one first.
fn keys(s: &TableSchema) -> Vec<(&str, bool, &[u16], Option<&IndexDef>)> {
    let primary = (!s.hidden_key).then_some(("PRIMARY", true, s.primary_key.as_slice(), None));
    let others = s.indexes.iter().map(|i| (i.name.as_str(), i.unique, i.columns.as_slice(), Some(i)));
    primary.into_iter().chain(others).collect()
}

pub(in crate::admin) fn statistics_rows(t: &Table) -> Vec<Row> {
    let s = &t.schema;
    let mut rows = Vec::new();
    for (name, unique, columns, index) in keys(s) {
        let ready = index.is_none_or(|i| i.state == IndexState::Ready);
        let invisible = index.is_some_and(|index| !s.is_visible(index));
        for (i, &c) in columns.iter().enumerate() {
            let prefix = index.and_then(|index| index.prefix(i)).map_or(Datum::Null, |n| number(n as i64));
            let comments = [if ready { "" } else { "building" }, ""];
            let direction = if s.descends(index.map_or(IndexNo(0), |index| index.no), i) { "D" } else { "A" };
            let kind = ("BTREE", Some(direction));
            rows.push(statistics_row(s, (name, unique, kind), (i, c), prefix, comments, invisible));
        }
    }
    for index in &s.full_texts {
        for (i, &c) in index.columns.iter().enumerate() {
            let comments = ["", &index.comment];
            rows.push(statistics_row(
                s,
                (&index.name, false, ("FULLTEXT", None)),
                (i, c),
                Datum::Null,
                comments,
                index.invisible,
            ));
        }
    }
    rows
}

/// Of one column of an index: its name, uniqueness, kind and direction; the column's place and number; the two comments.
fn statistics_row(
    s: &TableSchema,
    (name, unique, (kind, direction)): (&str, bool, (&str, Option<&str>)),
    (at, c): (usize, u16),
    prefix: Datum<'static>,
    comments: [&str; 2],
    invisible: bool,
) -> Row {
    let c = &s.columns[usize::from(c)];
    vec![
        text("def"),
        text(s.database.clone()),
        text(s.name.clone()),
        number(i64::from(!unique)),
        text(s.database.clone()),
        text(name.to_owned()),
        number(at + 1),
        if functional::is_part(c) { Datum::Null } else { text(c.name.clone()) },
        direction.map_or(Datum::Null, text),
        Datum::Null,
        prefix,
        Datum::Null,
        text(if c.nullable { "YES" } else { "" }),
        text(kind.to_owned()),
        text(comments[0].to_owned()),
        text(comments[1].to_owned()),
        yes(!invisible),
        if functional::is_part(c) { text(expressions::generation(c)) } else { Datum::Null },
    ]
}

pub(super) fn key_rows(t: &Table) -> Vec<Row> {
    let s = &t.schema;
    let mut rows = Vec::new();
    for (name, _, columns, _) in keys(s).into_iter().filter(|(_, unique, ..)| *unique) {
        for (i, &c) in columns.iter().enumerate() {
            if functional::is_part(&s.columns[usize::from(c)]) {
                continue;
            }
            let mut row = vec![
                text("def"),
                text(s.database.clone()),
                text(name),
                text("def"),
                text(s.database.clone()),
                text(s.name.clone()),
                text(s.columns[usize::from(c)].name.clone()),
                number(i + 1),
            ];
            row.extend(std::iter::repeat_n(Datum::Null, 4));
            rows.push(row);
        }
    }
    for key in foreign_key::by_name(s) {
        for (i, (&c, other)) in key.columns.iter().zip(&key.parent_columns).enumerate() {
            rows.push(vec![
                text("def"),
                text(s.database.clone()),
                text(key.name.clone()),
                text("def"),
                text(s.database.clone()),
                text(s.name.clone()),
                text(s.columns[usize::from(c)].name.clone()),
                number(i + 1),
                number(i + 1),
                text(key.parent_database.clone()),
                text(key.parent_table.clone()),
                text(other.clone()),
            ]);
        }
    }
    rows
}

pub(super) fn referential_rows(t: &Table, catalog: &Catalog) -> Vec<Row> {
    let s = &t.schema;
    let one = |key: &apus_types::foreign_key::ForeignKey| {
        vec![
            text("def"),
            text(s.database.clone()),
            text(key.name.clone()),
            text("def"),
            text(key.parent_database.clone()),
            option(foreign_key::parent_key_name(key, catalog)),
            text(key.matching.name()),
            text(key.on_update.name()),
            text(key.on_delete.name()),
            text(s.name.clone()),
            text(key.parent_table.clone()),
        ]
    };
    foreign_key::by_name(s).into_iter().map(one).collect()
}

pub(super) fn constraint_rows(t: &Table) -> Vec<Row> {
    let s = &t.schema;
    let one = |name: &str, kind: &str, enforced: bool| {
        let (database, table) = (text(s.database.clone()), text(s.name.clone()));
        vec![text("def"), database.clone(), text(name), database, table, text(kind), yes(enforced)]
    };
    let of_key = |name: &str| one(name, if name == "PRIMARY" { "PRIMARY KEY" } else { "UNIQUE" }, true);
    let unique = keys(s).into_iter().filter(|(_, unique, ..)| *unique).map(|(name, ..)| of_key(name));
    let foreign = foreign_key::by_name(s).into_iter().map(|key| one(&key.name, "FOREIGN KEY", true));
    let checks = s.checks.iter().map(|check| one(&check.name, "CHECK", expressions::is_enforced(check)));
    unique.chain(foreign).chain(checks).collect()
}

pub(super) fn check_rows(t: &Table) -> Vec<Row> {
    let s = &t.schema;
    let row = |check: &CheckDef| {
        let clause = text(crate::parse::view_text::escaped(&check.text));
        vec![text("def"), text(s.database.clone()), text(check.name.clone()), clause]
    };
    s.checks.iter().map(row).collect()
}
