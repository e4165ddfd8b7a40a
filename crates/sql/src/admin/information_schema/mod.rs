//! INFORMATION_SCHEMA: tables whose rows are made from the catalog when they are read.
//!
//! A virtual table has a schema like any other, so that the planner and the sink treat it alike; only the executor takes its
//! rows from [`rows`] instead of the cluster. Everything is text or a whole number; sizes and row counts, which no one
//! keeps, are NULL. Tables of what Apus does not have (events, ...) are there and empty.
//!
//! Reads only: changes are refused with error 1044.

pub(super) mod constraints;
mod privileges;

use std::rc::Rc;

use apus_types::{
    Column, ColumnType, TableSchema,
    collate::{Charset, Collation},
};

use self::{
    constraints::{check_rows, constraint_rows, key_rows, referential_rows, statistics_rows},
    privileges::{column_privileges, schema_privileges, shown_accounts, table_privileges, user_privileges},
};
use super::{
    grant_tables, performance_schema, processlist,
    show::{self, expressions, routines, triggers},
    table_sizes::{Size, Sizes},
};
use crate::{
    accounts::identity::Identity,
    catalog::{
        Catalog, Table,
        histogram::{Definition, Kept},
        information_schema::{DATABASE, USER_ATTRIBUTES, names},
        view::View,
    },
    errors::Result,
    expr::{Env, json},
    full_text::words::STOPWORDS,
    session::{authorize::shown_privileges, engine::SqlEngine},
    value::{
        datum::{Datum, Row},
        enum_set, float_digits,
    },
};

fn text(s: impl Into<String>) -> Datum<'static> {
    Datum::text(s.into())
}
fn number(n: impl TryInto<i64>) -> Datum<'static> {
    n.try_into().map_or(Datum::Null, Datum::Int)
}
fn option(s: Option<String>) -> Datum<'static> {
    s.map_or(Datum::Null, text)
}
fn yes(on: bool) -> Datum<'static> {
    text(if on { "YES" } else { "NO" })
}

/// All rows of a virtual table, one value per column of its schema; those of columns that are not `wanted` may be NULL.
///
/// # Errors
/// The cluster does not answer what only it knows.
pub async fn rows_of(
    engine: &SqlEngine,
    schema: &TableSchema,
    wanted: Option<&[u16]>,
    catalog: &Catalog,
    env: &Env,
) -> Result<Vec<Row>> {
    if let Some(with_attributes) = processlist::is_of_processes(&schema.database, &schema.name) {
        Box::pin(engine.see_processes(env, with_attributes)).await;
    }
    // Temporary tables are in no list.
    let catalog = catalog.permanent();
    if schema.database != DATABASE {
        return Ok(rows(schema, catalog, env, &Sizes::new()));
    }
    if schema.name == "EVENTS" {
        let runs = engine.event_runs(catalog.events().map(|event| event.definition.number)).await?;
        return Ok(super::show::events::rows(catalog, env, &runs));
    }
    let is_size = |c: u16| SIZES.contains(&usize::from(c));
    let mut sizes = Sizes::new();
    if schema.name == "TABLES" && wanted.is_none_or(|wanted| wanted.iter().any(|c| is_size(*c))) {
        let me = env.me.as_ref();
        let sees = |t: &&Table| me.is_none_or(|me| me.rights.sees_table(&t.schema.database, &t.schema.name));
        sizes = engine.sizes_of(catalog, catalog.tables().map(|t| &**t).filter(sees)).await;
    }
    Ok(rows(schema, catalog, env, &sizes))
}

/// Columns of TABLES that tell how large a table is: TABLE_ROWS to AUTO_INCREMENT.
const SIZES: std::ops::Range<usize> = 7..14;

fn rows(schema: &TableSchema, catalog: &Catalog, env: &Env, sizes: &Sizes) -> Vec<Row> {
    let me = env.me.as_ref();
    match schema.database.as_str() {
        crate::catalog::grant_tables::DATABASE if schema.name == crate::catalog::grant_tables::SLOW_LOG => {
            return grant_tables::slow_log_rows(&env.variables.of_node().slow);
        }
        crate::catalog::grant_tables::DATABASE => return grant_tables::rows(&schema.name, me),
        crate::catalog::sys::DATABASE => return super::sys::rows(schema, catalog, env),
        crate::catalog::performance_schema::DATABASE => return performance_schema::rows(schema, catalog, env),
        _ => {}
    }
    let sees = |t: &Table| me.is_none_or(|me| me.rights.sees_table(&t.schema.database, &t.schema.name));
    let databases = || catalog.databases.iter().filter(|(n, _)| me.is_none_or(|me| me.rights.sees_database(n)));
    let tables = || catalog.tables().filter(|t| sees(t));
    let views = || catalog.views().filter(|v| sees(&v.table));
    match schema.name.as_str() {
        "SCHEMATA" => {
            let own = (DATABASE.to_owned(), Collation::default());
            let mut all: Vec<_> = databases().chain([(&own.0, &own.1)]).collect();
            all.sort_unstable_by_key(|(name, _)| *name);
            all.into_iter().map(|(n, c)| schema_row(n, *c)).collect()
        }
        "TABLES" => {
            let own = names().map(virtual_table_row);
            let views = views().map(|v| view_table_row(v));
            tables().map(|t| table_row(t, sizes.get(&t.schema.id))).chain(views).chain(own).collect()
        }
        "COLUMNS" => {
            let own: Vec<Rc<Table>> = names().filter_map(crate::catalog::information_schema::table).collect();
            tables().chain(views().map(|v| &v.table)).chain(&own).flat_map(|t| column_rows(t, me)).collect()
        }
        "COLUMN_STATISTICS" => {
            let of = |kept: &Rc<Kept>| catalog.find(&kept.database, &kept.definition.table).filter(|t| sees(t));
            catalog.histograms.values().filter(|kept| of(kept).is_some()).map(|kept| histogram_row(kept)).collect()
        }
        "ROUTINES" => routines::routine_rows(catalog, env),
        "PARAMETERS" => routines::parameter_rows(catalog, env),
        "TRIGGERS" => triggers::rows(catalog, env),
        "VIEWS" => views().map(|v| view_row(v)).collect(),
        "STATISTICS" => tables().flat_map(|t| statistics_rows(t)).collect(),
        "KEY_COLUMN_USAGE" => tables().flat_map(|t| key_rows(t)).collect(),
        "REFERENTIAL_CONSTRAINTS" => tables().flat_map(|t| referential_rows(t, catalog)).collect(),
        "CHECK_CONSTRAINTS" => tables().flat_map(|t| check_rows(t)).collect(),
        "TABLE_CONSTRAINTS" => tables().flat_map(|t| constraint_rows(t)).collect(),
        "ENGINES" => vec![show::ENGINE.map(text).to_vec()],
        "PLUGINS" => PLUGINS.iter().map(plugin_row).collect(),
        "CHARACTER_SETS" => Charset::ALL
            .iter()
            .map(|c| {
                let length = number(i64::from(c.bytes_of_character()));
                vec![text(c.name()), text(c.default_collation().name()), text(c.description()), length]
            })
            .collect(),
        "PROCESSLIST" => processlist::list(env).map(processlist::row).collect(),
        USER_ATTRIBUTES => me.map_or_else(Vec::new, |me| shown_accounts(me).map(grant_tables::attribute_row).collect()),
        "USER_PRIVILEGES" => me.map_or_else(Vec::new, user_privileges),
        "SCHEMA_PRIVILEGES" => me.map_or_else(Vec::new, schema_privileges),
        "TABLE_PRIVILEGES" => me.map_or_else(Vec::new, table_privileges),
        "COLUMN_PRIVILEGES" => me.map_or_else(Vec::new, column_privileges),
        "COLLATION_CHARACTER_SET_APPLICABILITY" => {
            Collation::ALL.iter().map(|c| vec![text(c.name()), text(c.charset().name())]).collect()
        }
        "INNODB_FT_DEFAULT_STOPWORD" => STOPWORDS.iter().map(|word| vec![text(*word)]).collect(),
        "COLLATIONS" => Collation::ALL.iter().map(collation_row).collect(),
        _ => Vec::new(),
    }
}

fn schema_row(name: &str, collation: Collation) -> Row {
    vec![text("def"), text(name), text(collation.charset().name()), text(collation.name()), Datum::Null, text("NO")]
}

fn histogram_row(kept: &Kept) -> Row {
    let Definition { table, column, histogram } = &kept.definition;
    vec![text(kept.database.clone()), text(table.clone()), text(column.clone()), json::datum(&histogram.document())]
}

/// How accounts are proved, and where rows are: name and description.
const PLUGINS: [(&str, &str, &str); 3] = [
    ("caching_sha2_password", "AUTHENTICATION", "Caching sha2 authentication"),
    ("mysql_native_password", "AUTHENTICATION", "Native MySQL authentication"),
    ("InnoDB", "STORAGE ENGINE", "Apus"),
];

fn plugin_row((name, kind, description): &(&str, &str, &str)) -> Row {
    let version = text(env!("CARGO_PKG_VERSION"));
    let author = [text("Apus"), text(*description), text("Apache-2.0"), text("FORCE")];
    let own = [text(*name), version.clone(), text("ACTIVE"), text(*kind), version, Datum::Null, Datum::Null];
    own.into_iter().chain(author).collect()
}

fn collation_row(c: &Collation) -> Row {
    let pads = if c.pads() { "PAD SPACE" } else { "NO PAD" };
    let default = if c.is_default_of_charset() { "Yes" } else { "" };
    let (charset, length) = (text(c.charset().name()), number(c.sort_length()));
    vec![text(c.name()), charset, number(c.id()), text(default), text("Yes"), length, text(pads)]
}

fn table_row(t: &Table, size: Option<&Size>) -> Row {
    let s = &t.schema;
    let mut row = vec![
        text("def"),
        text(s.database.clone()),
        text(s.name.clone()),
        text("BASE TABLE"),
        text(if s.engine.is_empty() { "InnoDB" } else { &s.engine }),
        number(10),
        text("Dynamic"),
    ];
    let told = size.map(|size| [size.rows, size.average, size.data, 0, size.indexes, 0].map(Datum::UInt));
    row.extend(told.unwrap_or([const { Datum::Null }; 6]));
    row.push(size.and_then(|size| size.next).map_or(Datum::Null, Datum::UInt));
    row.extend(std::iter::repeat_n(Datum::Null, 3));
    row.extend([text(s.collation.name()), Datum::Null, text(""), text(s.comment.clone())]);
    row
}

fn view_table_row(v: &View) -> Row {
    let mut row = vec![text("def"), text(v.database()), text(v.name()), text("VIEW")];
    row.extend(std::iter::repeat_n(Datum::Null, 16));
    row.push(text("VIEW"));
    row
}

fn view_row(v: &View) -> Row {
    let d = &v.definition;
    vec![
        text("def"),
        text(v.database()),
        text(v.name()),
        text(d.text.clone()),
        text(d.check.name()),
        yes(d.updatable),
        text(format!("{}@{}", d.definer.0, d.definer.1)),
        text(if d.invoker { "INVOKER" } else { "DEFINER" }),
        text(d.charset.clone()),
        text(d.collation.clone()),
    ]
}

fn virtual_table_row(name: &'static str) -> Row {
    let mut row = vec![text("def"), text(DATABASE), text(name), text("SYSTEM VIEW"), Datum::Null, number(10)];
    row.extend(std::iter::repeat_n(Datum::Null, 13));
    row.extend([text(""), text("")]);
    row
}

fn column_rows(t: &Table, me: Option<&Identity>) -> Vec<Row> {
    let s = &t.schema;
    let one = |(position, number_of): (usize, u16)| {
        let c = &s.columns[usize::from(number_of)];
        let privileges = shown_privileges(me, s, &c.name)?;
        let mut row = vec![
            text("def"),
            text(s.database.clone()),
            text(s.name.clone()),
            text(c.name.clone()),
            number(position + 1),
            option(show::definitions::default_text(c)),
            yes(c.nullable),
        ];
        row.extend(type_cells(c));
        row.extend([
            text(show::definitions::key_kind(s, number_of)),
            text(show::definitions::extra(c)),
            text(privileges),
            text(c.comment.clone()),
            text(expressions::generation(c)),
            Datum::Null,
        ]);
        Some(row)
    };
    t.visible_columns().enumerate().filter_map(one).collect()
}

/// What is told of a type, from DATA_TYPE to its full text.
pub fn type_cells(c: &Column) -> [Datum<'static>; 9] {
    let (characters, bytes) = lengths(c.ty);
    let (precision, scale) = match float_digits::digits(c) {
        Some((width, scale)) => (number(width), number(scale)),
        None => numeric(c.ty),
    };
    let decimals = match c.ty {
        ColumnType::DateTime { decimals } | ColumnType::Timestamp { decimals } | ColumnType::Time { decimals } => {
            number(decimals)
        }
        _ => Datum::Null,
    };
    let full = show::definitions::type_of(c);
    let name_end = full.find(|b: char| !b.is_ascii_alphabetic()).unwrap_or(full.len());
    let collation = c.ty.collation();
    [
        text(full.get(..name_end).unwrap_or("")),
        characters,
        bytes,
        precision,
        scale,
        decimals,
        option(collation.map(|k| k.charset().name().to_owned())),
        option(collation.map(|k| k.name().to_owned())),
        text(full),
    ]
}

/// Longest value in characters and in bytes.
fn lengths(ty: ColumnType) -> (Datum<'static>, Datum<'static>) {
    match ty {
        ColumnType::Char { length, collation } | ColumnType::VarChar { length, collation } => {
            (number(length), number(i64::from(length) * i64::from(collation.charset().bytes_of_character())))
        }
        ColumnType::Binary { length } | ColumnType::VarBinary { length } => (number(length), number(length)),
        ColumnType::Text { length, .. } | ColumnType::Blob { length } => (number(length), number(length)),
        ColumnType::Label { is_set, labels: list, .. } => {
            let length = enum_set::longest(list, is_set);
            (number(length), number(i64::from(length) * 4))
        }
        _ => (Datum::Null, Datum::Null),
    }
}

fn numeric(ty: ColumnType) -> (Datum<'static>, Datum<'static>) {
    match ty {
        ColumnType::Int { bits, unsigned } => {
            let digits = match bits {
                8 => 3,
                16 => 5,
                24 => 7,
                32 => 10,
                _ => 19 + i64::from(unsigned),
            };
            (number(digits), number(0))
        }
        ColumnType::Decimal { precision, scale, .. } => (number(precision), number(scale)),
        ColumnType::Bit { length } => (number(length), Datum::Null),
        ColumnType::Float => (number(12), Datum::Null),
        ColumnType::Double => (number(22), Datum::Null),
        _ => (Datum::Null, Datum::Null),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        catalog::information_schema::{is_always_empty, is_virtual, names, table},
        server::{Process, Processes},
    };

    fn env() -> Env {
        Env::new("root".into(), "localhost".into(), 7, 1, Default::default())
    }

    #[test]
    fn tables_without_rows_are_known() {
        let catalog = Catalog::default();
        let schema = |name: &str| table(name).unwrap().schema.clone();
        for name in names() {
            let schema = schema(name);
            assert!(!is_always_empty(&schema) || rows(&schema, &catalog, &env(), &Sizes::new()).is_empty(), "{name}");
        }
        assert!(is_always_empty(&schema("FILES")) && !is_always_empty(&schema("TABLES")));
    }

    #[test]
    fn rows_have_a_value_for_every_column() {
        let mut catalog = Catalog::default();
        std::rc::Rc::make_mut(&mut catalog.databases).insert("d".into(), Collation::default());
        let env = env();
        let all = Rc::new([Process { id: 7, ..Process::default() }]);
        env.processes.replace(Some(Processes { all, has_attributes: false }));
        for name in names() {
            let table = table(&name.to_ascii_lowercase()).unwrap();
            assert!(is_virtual(&table.schema));
            for row in rows(&table.schema, &catalog, &env, &Sizes::new()) {
                assert_eq!(row.len(), table.schema.columns.len(), "{name}");
            }
        }
        let count = |name: &str| rows(&table(name).unwrap().schema, &catalog, &env, &Sizes::new()).len();
        assert_eq!((count("SCHEMATA"), count("PROCESSLIST")), (2, 1));
        assert!(table("nonesuch").is_none());
    }
}
