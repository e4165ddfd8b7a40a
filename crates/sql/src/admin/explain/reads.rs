//! How a step reads a table, and what the columns are called that it reads.

use super::{
    names::{Name, Names},
    steps::{step::Step, texts},
};
use crate::{
    catalog::Table,
    plan::{
        access::Path,
        query::{Body, Derived},
        rules::functional,
    },
    value::json::Json,
};

/// Names of the columns of a derived table; those of a subquery behind IN have no name but that of what it selects.
pub fn names_of_derived(derived: &Derived) -> impl Iterator<Item = &str> {
    let outputs = if let Body::Select(select) = &derived.body { select.outputs.as_slice() } else { &[] };
    derived.table.schema.columns.iter().enumerate().map(|(at, column)| match outputs.get(at) {
        Some(output) if column.name.is_empty() => output.def.name.as_str(),
        _ => column.name.as_str(),
    })
}

/// What the columns of a derived table's row are called.
pub fn columns_of_derived(derived: &Derived, shown: &str) -> Vec<Name> {
    let shown = if derived.is_subquery { format!("`{shown}`") } else { shown.to_owned() };
    let name = |name: &str| {
        let text = format!("{shown}.{name}");
        Name { listed: text.clone(), reference: text.clone(), text }
    };
    names_of_derived(derived).map(name).collect()
}

/// What the columns of a table's row are called.
pub fn columns_of(table: &Table, shown: &str, columns: Option<&[u16]>) -> Vec<Name> {
    let schema = &table.schema;
    let name = |c: u16| {
        let column = &schema.columns[usize::from(c)];
        if let Some(expression) = functional::expression(column) {
            return Name::of_value(expression.to_owned(), false);
        }
        let text = format!("{shown}.{}", column.name);
        let reference = format!("{}.{text}", schema.database);
        // As MySQL has them, with the database where the table has no other name.
        let listed = if shown == schema.name { reference.clone() } else { text.clone() };
        Name { text, listed, reference }
    };
    match columns {
        Some(columns) => columns.iter().map(|&c| name(c)).collect(),
        None => (0..schema.columns.len() as u16).map(name).collect(),
    }
}

/// A step with the table that it is about.
pub fn named(step: Step, table: &Table, shown: &str) -> Step {
    let step = step
        .says("table_name", Json::text(table.schema.name.as_str()))
        .says("schema_name", Json::text(table.schema.database.as_str()));
    if shown == table.schema.name { step } else { step.says("alias", Json::text(shown)) }
}

/// Reads a table in this way; `fetched`: these of its columns.
fn read(operation: String, access_type: &str, table: &Table, shown: &str, fetched: Option<&[u16]>) -> Step {
    let is_fetched = |c: &u16| fetched.is_none_or(|list| list.contains(c));
    let used = table.visible_columns().filter(is_fetched).map(|c| table.schema.columns[usize::from(c)].name.clone());
    named(Step::new(operation, access_type, Vec::new()), table, shown).says("used_columns", texts(used))
}

/// Reads all of a table.
pub fn scan(table: &Table, shown: &str, fetched: Option<&[u16]>) -> Step {
    read(format!("Table scan on {shown}"), "table", table, shown, fetched)
}

/// How a path reads a table.
pub fn reading(
    table: &Table,
    shown: &str,
    path: &Path,
    reverse: bool,
    names: &Names<'_>,
    fetched: Option<&[u16]>,
) -> Step {
    let (no, columns, is_one) = match path {
        Path::Points { index, columns, values, rows } => {
            let no = index.and_then(|at| table.schema.indexes.get(at)).map_or(0, |i| i.no.0);
            (no, columns.as_slice(), !rows && values.iter().all(|list| list.len() == 1))
        }
        Path::Range { index, columns, equal, low, high, .. } => {
            let bounded = low.is_some() || high.is_some();
            let used = equal.len() + usize::from(bounded);
            (index.0, columns.get(..used).unwrap_or(columns), !bounded)
        }
        Path::Union { index, columns, .. } => (index.0, columns.get(..1).unwrap_or(columns), false),
        Path::Listed(listed) => {
            let index = &table.schema.indexes[listed.index];
            (index.no.0, index.columns.get(..listed.parts()).unwrap_or(&index.columns), listed.is_one())
        }
    };
    let by = names.bounds(&table.schema, path);
    if by.is_none() && no == 0 && !reverse {
        return scan(table, shown, fetched);
    }
    let key = table.key_name(no);
    let key = key.rsplit_once('.').map_or(key.as_str(), |(_, key)| key);
    let end = if reverse { " (reverse)" } else { "" };
    let (operation, kind) = match (&by, is_one, path) {
        (None, ..) => (format!("Index scan on {shown} using {key}{end}"), "index_scan"),
        (Some(by), true, Path::Points { .. }) => {
            (format!("Single-row index lookup on {shown} using {key} ({by})"), "index_lookup")
        }
        (Some(by), true, _) => (format!("Index lookup on {shown} using {key} ({by}){end}"), "index_lookup"),
        (Some(by), false, _) => {
            let ranges = Names::ranges(by, path);
            (format!("Index range scan on {shown} using {key} over {ranges}{end}"), "index_range_scan")
        }
    };
    // An index leads to rows, which are fetched.
    let mut step = read(operation, "index", table, shown, fetched)
        .says("index_access_type", Json::text(kind))
        .says("index_name", Json::text(key))
        .says("covering", Json::Bool(false));
    if reverse {
        step = step.is("reverse");
    }
    let Some(by) = by else { return step };
    let columns = columns.iter().map(|&c| functional::shown(&table.schema.columns[usize::from(c)]).to_owned());
    let step = step.says("key_columns", texts(columns));
    if is_one {
        step.says("lookup_condition", Json::String(by)).says("lookup_references", texts(names.references(path)))
    } else {
        step.says("ranges", texts([Names::ranges(&by, path)]))
    }
}
