//! What tools read of PERFORMANCE_SCHEMA: variables and the list of processes. Its other tables are not there (error 1146), and it is in no list of databases.
//!
//! They are virtual like those of INFORMATION_SCHEMA. A real database of this name stands in front of them.

use std::rc::Rc;

use apus_types::{Column, ColumnType, collate::Collation};

use super::{
    catalog::Table,
    expr::{Datum, Env},
    information_schema::{Row, virtual_schema},
    labels,
    processlist::{self, Process},
};

pub const DATABASE: &str = "performance_schema";
const NAMES: [&str; 3] = ["global_variables", "processlist", "session_variables"];

fn text(name: &str, length: u16) -> Column {
    Column::new(name, ColumnType::VarChar { length, collation: Collation::default() })
}

fn columns(table: &str) -> Vec<Column> {
    let big = |name: &str, unsigned| Column::new(name, ColumnType::Int { bits: 64, unsigned });
    let mut columns = if table == "processlist" {
        let engines = ["PRIMARY", "SECONDARY"].map(str::to_owned).to_vec();
        let engine = labels::define("EXECUTION_ENGINE", false, Collation::default(), engines);
        vec![
            big("ID", true),
            text("USER", 32),
            text("HOST", 261),
            text("DB", 64),
            text("COMMAND", 16),
            big("TIME", false),
            text("STATE", 64),
            Column::new("INFO", ColumnType::Text { length: u32::MAX, collation: Collation::default() }),
            // Labels so short are refused only if definitions have brought 64 MiB of others.
            Column::new("EXECUTION_ENGINE", engine.unwrap_or(ColumnType::Int { bits: 64, unsigned: true })),
        ]
    } else {
        vec![text("VARIABLE_NAME", 64), text("VARIABLE_VALUE", 1024)]
    };
    columns[0].nullable = false;
    columns
}

pub fn table(name: &str) -> Option<Rc<Table>> {
    let name = names().find(|known| *known == name)?;
    Some(Rc::new(Table::new(virtual_schema(DATABASE, name, columns(name)), Vec::new())))
}

pub fn names() -> impl Iterator<Item = &'static str> {
    NAMES.into_iter()
}

/// All rows of one of them, one value per column of its schema.
pub fn rows(name: &str, env: &Env) -> Vec<Row> {
    let variables = |global| {
        let list = env.list_variables(global).into_iter();
        list.map(|(name, value)| vec![Datum::text(name), Datum::text(value)]).collect()
    };
    match name {
        "global_variables" => variables(true),
        "session_variables" => variables(false),
        "processlist" => processlist::list(env).map(process_row).collect(),
        _ => Vec::new(),
    }
}

fn process_row(process: Process) -> Row {
    let mut row = process.row();
    row.push(Datum::UInt(1));
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_table() {
        for name in names() {
            let found = table(name).expect(name);
            assert_eq!((found.schema.name.as_str(), found.schema.columns[0].nullable), (name, false));
        }
        assert!(table("THREADS").is_none() && table("PROCESSLIST").is_none());
    }
}
