//! PERFORMANCE_SCHEMA: those of its tables that are there, as the catalog has them. Rows of some are made when they are read ([`crate::admin::performance_schema`]), the others have none.

use std::{collections::BTreeSet, rc::Rc};

use apus_types::{Column, ColumnType, collate::Collation};

use super::{Table, empty_tables, information_schema::virtual_schema};
use crate::value::enum_set;

pub const DATABASE: &str = "performance_schema";
pub(crate) const DIGESTS: &str = "events_statements_summary_by_digest";
pub(crate) const GLOBAL_STATUS: &str = "global_status";
pub(crate) const CONNECT_ATTRS: &str = "session_connect_attrs";
pub(crate) const ACCOUNT_CONNECT_ATTRS: &str = "session_account_connect_attrs";
pub(crate) const SESSION_STATUS: &str = "session_status";
const NAMES: [&str; 7] = [
    DIGESTS,
    GLOBAL_STATUS,
    "global_variables",
    "persisted_variables",
    "processlist",
    SESSION_STATUS,
    "session_variables",
];

/// Numbers of [`DIGESTS`] behind its texts, and before the times at which statements were seen.
const OF_DIGESTS: &str = "COUNT_STAR SUM_TIMER_WAIT MIN_TIMER_WAIT AVG_TIMER_WAIT MAX_TIMER_WAIT SUM_LOCK_TIME SUM_ERRORS SUM_WARNINGS \
                          SUM_ROWS_AFFECTED SUM_ROWS_SENT SUM_ROWS_EXAMINED SUM_CREATED_TMP_DISK_TABLES SUM_CREATED_TMP_TABLES \
                          SUM_SELECT_FULL_JOIN SUM_SELECT_FULL_RANGE_JOIN SUM_SELECT_RANGE SUM_SELECT_RANGE_CHECK SUM_SELECT_SCAN \
                          SUM_SORT_MERGE_PASSES SUM_SORT_RANGE SUM_SORT_ROWS SUM_SORT_SCAN SUM_NO_INDEX_USED SUM_NO_GOOD_INDEX_USED \
                          SUM_CPU_TIME MAX_CONTROLLED_MEMORY MAX_TOTAL_MEMORY COUNT_SECONDARY";

fn text(name: &str, length: u16) -> Column {
    Column::new(name, ColumnType::VarChar { length, collation: Collation::default() })
}

fn columns(table: &str) -> Vec<Column> {
    let big = |name: &str, unsigned| Column::new(name, ColumnType::Int { bits: 64, unsigned });
    let long = |name: &str| Column::new(name, ColumnType::Text { length: u32::MAX, collation: Collation::default() });
    let moment = |name: &str| Column::new(name, ColumnType::Timestamp { decimals: 6 });
    let not_null = |column: Column| Column { nullable: false, ..column };
    if table == DIGESTS {
        let numbers = OF_DIGESTS.split_whitespace().map(|name| not_null(big(name, true)));
        let quantiles = ["QUANTILE_95", "QUANTILE_99", "QUANTILE_999"].map(|name| not_null(big(name, true)));
        return [text("SCHEMA_NAME", 64), text("DIGEST", 64), long("DIGEST_TEXT")]
            .into_iter()
            .chain(numbers)
            .chain(["FIRST_SEEN", "LAST_SEEN"].map(|name| not_null(moment(name))))
            .chain(quantiles)
            .chain([long("QUERY_SAMPLE_TEXT"), not_null(moment("QUERY_SAMPLE_SEEN"))])
            .chain([not_null(big("QUERY_SAMPLE_TIMER_WAIT", true))])
            .collect();
    }
    let mut columns = if table == "processlist" {
        let engines = ["PRIMARY", "SECONDARY"].map(str::to_owned).to_vec();
        let engine = enum_set::define("EXECUTION_ENGINE", false, Collation::default(), engines);
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
    let schema = match NAMES.iter().find(|known| **known == name) {
        Some(name) => virtual_schema(DATABASE, name, columns(name)),
        None => empty_tables::of(DATABASE).get(name)?.clone(),
    };
    Some(Rc::new(Table::new(schema, Vec::new())))
}

/// In their order.
pub fn names() -> impl Iterator<Item = &'static str> {
    NAMES.into_iter().chain(empty_tables::of(DATABASE).keys().copied()).collect::<BTreeSet<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_table() {
        for name in names() {
            assert_eq!(table(name).expect(name).schema.name, name);
        }
        for name in NAMES {
            assert_eq!(table(name).expect(name).schema.columns[0].nullable, name == DIGESTS, "{name}");
        }
        assert!(table("THREADS").is_none() && table("variables_info").is_none());
    }
}
