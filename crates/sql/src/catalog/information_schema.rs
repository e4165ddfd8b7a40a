//! INFORMATION_SCHEMA: its tables as the catalog has them. Their rows are made when they are read ([`crate::admin::information_schema`]).
//!
//! A virtual table has a schema like any other, so that the planner and the sink treat it alike; only the executor takes its rows from elsewhere. Everything is text or a whole
//! number. Tables of what Apus does not have are there and empty. Reads only: changes are refused with error 1044.

use std::{collections::BTreeMap, rc::Rc, sync::OnceLock};

use apus_types::{Column, ColumnType, TableId, TableSchema, Value, collate::Collation, time::pack_datetime};

use super::{Table, empty_tables};
use crate::{
    expr::assign,
    program::event,
    value::{datum::Datum, enum_set, temporal::parse_datetime, zone::Zone},
    variables::sql_mode,
};

pub const DATABASE: &str = "information_schema";

/// Whether rows are made when they are read: here, of a grant table or of PERFORMANCE_SCHEMA.
pub fn is_virtual(schema: &TableSchema) -> bool {
    let others = [super::grant_tables::DATABASE, super::performance_schema::DATABASE, super::sys::DATABASE];
    schema.database == DATABASE || schema.id == TableId::default() && others.contains(&schema.database.as_str())
}

/// Name and columns; a column that ends in `#` is a BIGINT UNSIGNED, in `-` a BIGINT, in `%` an INT UNSIGNED, in `+` a long text, in `!` a JSON document, all others are texts.
const TABLES: &[(&str, &str)] = &[
    ("CHARACTER_SETS", "CHARACTER_SET_NAME DEFAULT_COLLATE_NAME DESCRIPTION MAXLEN%"),
    ("CHECK_CONSTRAINTS", "CONSTRAINT_CATALOG CONSTRAINT_SCHEMA CONSTRAINT_NAME CHECK_CLAUSE+"),
    ("COLLATION_CHARACTER_SET_APPLICABILITY", "COLLATION_NAME CHARACTER_SET_NAME"),
    ("COLLATIONS", "COLLATION_NAME CHARACTER_SET_NAME ID# IS_DEFAULT IS_COMPILED SORTLEN% PAD_ATTRIBUTE"),
    (
        "COLUMNS",
        "TABLE_CATALOG TABLE_SCHEMA TABLE_NAME COLUMN_NAME ORDINAL_POSITION% COLUMN_DEFAULT+ IS_NULLABLE DATA_TYPE+ \
         CHARACTER_MAXIMUM_LENGTH- CHARACTER_OCTET_LENGTH- NUMERIC_PRECISION# NUMERIC_SCALE# DATETIME_PRECISION% \
         CHARACTER_SET_NAME COLLATION_NAME COLUMN_TYPE+ COLUMN_KEY EXTRA PRIVILEGES COLUMN_COMMENT \
         GENERATION_EXPRESSION+ SRS_ID%",
    ),
    ("COLUMN_STATISTICS", "SCHEMA_NAME TABLE_NAME COLUMN_NAME HISTOGRAM!"),
    ("COLUMN_PRIVILEGES", "GRANTEE TABLE_CATALOG TABLE_SCHEMA TABLE_NAME COLUMN_NAME PRIVILEGE_TYPE IS_GRANTABLE"),
    ("ENGINES", "ENGINE SUPPORT COMMENT TRANSACTIONS XA SAVEPOINTS"),
    (
        "EVENTS",
        "EVENT_CATALOG EVENT_SCHEMA EVENT_NAME DEFINER TIME_ZONE EVENT_BODY EVENT_DEFINITION+ EVENT_TYPE EXECUTE_AT@ \
         INTERVAL_VALUE INTERVAL_FIELD= SQL_MODE= STARTS@ ENDS@ STATUS ON_COMPLETION CREATED^ LAST_ALTERED^ LAST_EXECUTED@ \
         EVENT_COMMENT ORIGINATOR% CHARACTER_SET_CLIENT COLLATION_CONNECTION DATABASE_COLLATION",
    ),
    (
        "FILES",
        "FILE_ID# FILE_NAME FILE_TYPE TABLESPACE_NAME TABLE_CATALOG TABLE_SCHEMA TABLE_NAME LOGFILE_GROUP_NAME \
         LOGFILE_GROUP_NUMBER# ENGINE FREE_EXTENTS# TOTAL_EXTENTS# EXTENT_SIZE# INITIAL_SIZE# MAXIMUM_SIZE# \
         AUTOEXTEND_SIZE# STATUS EXTRA",
    ),
    ("INNODB_FT_DEFAULT_STOPWORD", "value"),
    (
        "KEY_COLUMN_USAGE",
        "CONSTRAINT_CATALOG CONSTRAINT_SCHEMA CONSTRAINT_NAME TABLE_CATALOG TABLE_SCHEMA TABLE_NAME COLUMN_NAME \
         ORDINAL_POSITION% POSITION_IN_UNIQUE_CONSTRAINT% REFERENCED_TABLE_SCHEMA REFERENCED_TABLE_NAME \
         REFERENCED_COLUMN_NAME",
    ),
    ("KEYWORDS", "WORD RESERVED#"),
    (
        "PARAMETERS",
        "SPECIFIC_CATALOG SPECIFIC_SCHEMA SPECIFIC_NAME ORDINAL_POSITION# PARAMETER_MODE PARAMETER_NAME DATA_TYPE+ \
         CHARACTER_MAXIMUM_LENGTH- CHARACTER_OCTET_LENGTH- NUMERIC_PRECISION% NUMERIC_SCALE- DATETIME_PRECISION% \
         CHARACTER_SET_NAME COLLATION_NAME DTD_IDENTIFIER+ ROUTINE_TYPE=",
    ),
    (
        "PARTITIONS",
        "TABLE_CATALOG TABLE_SCHEMA TABLE_NAME PARTITION_NAME SUBPARTITION_NAME PARTITION_ORDINAL_POSITION# \
         PARTITION_METHOD PARTITION_EXPRESSION PARTITION_DESCRIPTION TABLE_ROWS# PARTITION_COMMENT",
    ),
    ("PROCESSLIST", "ID# USER HOST DB COMMAND TIME- STATE INFO+"),
    (
        "PLUGINS",
        "PLUGIN_NAME PLUGIN_VERSION PLUGIN_STATUS PLUGIN_TYPE PLUGIN_TYPE_VERSION PLUGIN_LIBRARY PLUGIN_LIBRARY_VERSION \
         PLUGIN_AUTHOR PLUGIN_DESCRIPTION+ PLUGIN_LICENSE LOAD_OPTION",
    ),
    (
        "REFERENTIAL_CONSTRAINTS",
        "CONSTRAINT_CATALOG CONSTRAINT_SCHEMA CONSTRAINT_NAME UNIQUE_CONSTRAINT_CATALOG UNIQUE_CONSTRAINT_SCHEMA \
         UNIQUE_CONSTRAINT_NAME MATCH_OPTION UPDATE_RULE DELETE_RULE TABLE_NAME REFERENCED_TABLE_NAME",
    ),
    (
        "ROUTINES",
        "SPECIFIC_NAME ROUTINE_CATALOG ROUTINE_SCHEMA ROUTINE_NAME ROUTINE_TYPE= DATA_TYPE+ CHARACTER_MAXIMUM_LENGTH- \
         CHARACTER_OCTET_LENGTH- NUMERIC_PRECISION% NUMERIC_SCALE% DATETIME_PRECISION% CHARACTER_SET_NAME COLLATION_NAME \
         DTD_IDENTIFIER+ ROUTINE_BODY ROUTINE_DEFINITION+ EXTERNAL_NAME EXTERNAL_LANGUAGE PARAMETER_STYLE \
         IS_DETERMINISTIC SQL_DATA_ACCESS= SQL_PATH SECURITY_TYPE= CREATED^ LAST_ALTERED^ SQL_MODE= ROUTINE_COMMENT+ DEFINER \
         CHARACTER_SET_CLIENT COLLATION_CONNECTION DATABASE_COLLATION",
    ),
    (
        "SCHEMATA",
        "CATALOG_NAME SCHEMA_NAME DEFAULT_CHARACTER_SET_NAME DEFAULT_COLLATION_NAME SQL_PATH DEFAULT_ENCRYPTION",
    ),
    ("SCHEMA_PRIVILEGES", "GRANTEE TABLE_CATALOG TABLE_SCHEMA PRIVILEGE_TYPE IS_GRANTABLE"),
    (
        "STATISTICS",
        "TABLE_CATALOG TABLE_SCHEMA TABLE_NAME NON_UNIQUE$ INDEX_SCHEMA INDEX_NAME SEQ_IN_INDEX% COLUMN_NAME COLLATION \
         CARDINALITY- SUB_PART- PACKED NULLABLE INDEX_TYPE COMMENT INDEX_COMMENT IS_VISIBLE EXPRESSION+",
    ),
    (
        "TABLES",
        "TABLE_CATALOG TABLE_SCHEMA TABLE_NAME TABLE_TYPE ENGINE VERSION- ROW_FORMAT TABLE_ROWS# AVG_ROW_LENGTH# \
         DATA_LENGTH# MAX_DATA_LENGTH# INDEX_LENGTH# DATA_FREE# AUTO_INCREMENT# CREATE_TIME UPDATE_TIME CHECK_TIME \
         TABLE_COLLATION CHECKSUM- CREATE_OPTIONS TABLE_COMMENT",
    ),
    (
        "TABLE_CONSTRAINTS",
        "CONSTRAINT_CATALOG CONSTRAINT_SCHEMA CONSTRAINT_NAME TABLE_SCHEMA TABLE_NAME CONSTRAINT_TYPE ENFORCED",
    ),
    ("TABLE_PRIVILEGES", "GRANTEE TABLE_CATALOG TABLE_SCHEMA TABLE_NAME PRIVILEGE_TYPE IS_GRANTABLE"),
    (
        "TRIGGERS",
        "TRIGGER_CATALOG TRIGGER_SCHEMA TRIGGER_NAME EVENT_MANIPULATION= EVENT_OBJECT_CATALOG EVENT_OBJECT_SCHEMA \
         EVENT_OBJECT_TABLE ACTION_ORDER# ACTION_CONDITION ACTION_STATEMENT+ ACTION_ORIENTATION ACTION_TIMING= \
         ACTION_REFERENCE_OLD_TABLE ACTION_REFERENCE_NEW_TABLE ACTION_REFERENCE_OLD_ROW ACTION_REFERENCE_NEW_ROW CREATED^^ \
         SQL_MODE= DEFINER CHARACTER_SET_CLIENT COLLATION_CONNECTION DATABASE_COLLATION",
    ),
    ("USER_PRIVILEGES", "GRANTEE TABLE_CATALOG PRIVILEGE_TYPE IS_GRANTABLE"),
    (
        "VIEWS",
        "TABLE_CATALOG TABLE_SCHEMA TABLE_NAME VIEW_DEFINITION+ CHECK_OPTION IS_UPDATABLE DEFINER SECURITY_TYPE \
         CHARACTER_SET_CLIENT COLLATION_CONNECTION",
    ),
];

pub(crate) const USER_ATTRIBUTES: &str = "USER_ATTRIBUTES";

/// Longest text of a cell, in characters.
const TEXT_CHARS: u16 = 2048;

fn schemas() -> &'static BTreeMap<&'static str, TableSchema> {
    static SCHEMAS: OnceLock<BTreeMap<&'static str, TableSchema>> = OnceLock::new();
    SCHEMAS.get_or_init(|| {
        let of_users = virtual_schema(DATABASE, USER_ATTRIBUTES, crate::catalog::grant_tables::attribute_columns());
        let listed = TABLES.iter().map(|(name, columns)| (*name, schema(name, columns)));
        let empty = empty_tables::of(DATABASE).iter().map(|(name, schema)| (*name, schema.clone()));
        listed.chain([(USER_ATTRIBUTES, of_users)]).chain(empty).collect()
    })
}

/// A column by its word: its name and, unless it is a VARCHAR, a sign for its type.
fn column(i: usize, word: &str) -> Column {
    let collation = collation_of(word);
    let ty = match word.as_bytes().last() {
        Some(b'#') => ColumnType::Int { bits: 64, unsigned: true },
        Some(b'-') => ColumnType::Int { bits: 64, unsigned: false },
        Some(b'%') => ColumnType::Int { bits: 32, unsigned: true },
        Some(b'$') => ColumnType::Int { bits: 32, unsigned: false },
        Some(b'+') => ColumnType::Text { length: u32::MAX, collation },
        Some(b'!') => ColumnType::Json,
        Some(b'@') => ColumnType::DateTime { decimals: 0 },
        Some(b'^') if word.ends_with("^^") => ColumnType::Timestamp { decimals: 2 },
        Some(b'^') => ColumnType::Timestamp { decimals: 0 },
        Some(b'=') => label_type(word.trim_end_matches('=')),
        _ => ColumnType::VarChar { length: TEXT_CHARS, collation },
    };
    Column { nullable: i > 0, ..Column::new(word.trim_end_matches(['#', '-', '%', '$', '+', '!', '@', '^', '=']), ty) }
}

/// Names that MySQL's file systems tell apart by their letters are compared by these.
fn collation_of(word: &str) -> Collation {
    const ENDS: [&str; 7] =
        ["SCHEMA_NAME", "_CATALOG", "_SCHEMA", "TABLE_NAME", "_OBJECT_TABLE", "DEFINER", "TIME_ZONE"];
    if ENDS.iter().any(|end| word.ends_with(end)) { Collation::Utf8mb3Bin } else { Collation::Utf8mb3GeneralCi }
}

/// Of a column that is an ENUM, or the SET of modes.
fn label_type(name: &str) -> ColumnType {
    let labels: &[&str] = match name {
        "INTERVAL_FIELD" => &event::schedule::FIELDS,
        "ROUTINE_TYPE" => &["FUNCTION", "PROCEDURE"],
        "SQL_DATA_ACCESS" => &["CONTAINS SQL", "NO SQL", "READS SQL DATA", "MODIFIES SQL DATA"],
        "SECURITY_TYPE" => &["DEFAULT", "INVOKER", "DEFINER"],
        "EVENT_MANIPULATION" => &["INSERT", "UPDATE", "DELETE"],
        _ => &["BEFORE", "AFTER"],
    };
    let is_mode = name == "SQL_MODE";
    let list = if is_mode { sql_mode::labels() } else { labels.iter().map(|label| (*label).to_owned()).collect() };
    let text = ColumnType::VarChar { length: TEXT_CHARS, collation: Collation::Utf8mb3Bin };
    enum_set::define(name, is_mode, Collation::Utf8mb3Bin, list).unwrap_or(text)
}

fn schema(name: &str, columns: &str) -> TableSchema {
    virtual_schema(DATABASE, name, columns.split_whitespace().enumerate().map(|(i, word)| column(i, word)).collect())
}

/// What a column of these tables holds for a value: moments and labels may be given as texts.
pub fn cell<'v>(ty: ColumnType, value: &'v Datum<'_>) -> Value<'v> {
    match (ty, value) {
        (ColumnType::DateTime { .. }, Datum::Text(text)) => {
            parse_datetime(text, Zone::UTC).map_or(Value::Null, |c| Value::DateTime(pack_datetime(c)))
        }
        (ColumnType::Label { is_set, collation, labels, .. }, Datum::Text(_)) => {
            Value::UInt(enum_set::number(labels, is_set, collation, value).0)
        }
        _ => assign::stored(ty, value),
    }
}

/// Of a table whose rows are made when they are read.
pub(crate) fn virtual_schema(database: &str, name: &str, columns: Vec<Column>) -> TableSchema {
    let mut schema = TableSchema::new(database, name, columns, vec![0]);
    schema.hidden_key = true;
    schema
}

/// A virtual table by its name in any letters.
pub fn table(name: &str) -> Option<Rc<Table>> {
    let schema = schemas().get(name.to_ascii_uppercase().as_str())?.clone();
    Some(Rc::new(Table::new(schema, Vec::new())))
}

pub fn names() -> impl Iterator<Item = &'static str> {
    schemas().keys().copied()
}

/// Whether the table is one of those that never have a row: Apus has nothing of the kind.
pub fn is_always_empty(schema: &TableSchema) -> bool {
    const WITH_ROWS: [&str; 26] = [
        "COLUMN_STATISTICS",
        USER_ATTRIBUTES,
        "EVENTS",
        "PARAMETERS",
        "ROUTINES",
        "TRIGGERS",
        "INNODB_FT_DEFAULT_STOPWORD",
        "PLUGINS",
        "REFERENTIAL_CONSTRAINTS",
        "CHECK_CONSTRAINTS",
        "PROCESSLIST",
        "USER_PRIVILEGES",
        "SCHEMA_PRIVILEGES",
        "TABLE_PRIVILEGES",
        "COLUMN_PRIVILEGES",
        "VIEWS",
        "SCHEMATA",
        "TABLES",
        "COLUMNS",
        "STATISTICS",
        "KEY_COLUMN_USAGE",
        "TABLE_CONSTRAINTS",
        "ENGINES",
        "CHARACTER_SETS",
        "COLLATION_CHARACTER_SET_APPLICABILITY",
        "COLLATIONS",
    ];
    schema.database == DATABASE && !WITH_ROWS.contains(&schema.name.as_str())
}
