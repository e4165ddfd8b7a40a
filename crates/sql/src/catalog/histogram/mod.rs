//! Histograms: what values a column has and how often, as `ANALYZE TABLE ... UPDATE HISTOGRAM` has counted them.
//!
//! A histogram is a table of the dictionary without rows, as an event is: its engine is [`ENGINE`], its comment is the definition ([`Definition`]), it goes with its database. It is called
//! `#histogram#N#HASH`, by a hash of its table and column; each change makes N + 1 and drops N, and of those with one table and column the highest counts. It is dropped and renamed with its table, and
//! dropped when its column is dropped, renamed or defined anew. A SQL node that dies between the two leaves a histogram of a table that is not there, which says nothing.
//!
//! [`build`] makes one of values and counts, [`check`] of a document, [`crate::ddl::histogram`] carries statements out, [`selectivity`] says how many rows a condition leaves.
//!
//! All rows are counted, so `sampling-rate` is 1. AUTO UPDATE: renewed by each ANALYZE TABLE, and when many rows have come or gone ([`crate::ddl::histogram::renew`]).
//!
//! | limit | value | |
//! |---|---:|---|
//! | buckets | 1024 | 1690 |
//! | characters of a text that are looked at | 42 | others are taken for equal |
//! | a definition in bytes | 1 MiB | a row that says so |

pub mod build;
pub(crate) mod check;
pub mod selectivity;

use std::{collections::BTreeMap, rc::Rc};

use apus_types::{ColumnType, TableSchema};
use sha2::{Digest, Sha256};

use self::selectivity::Ends;
use super::{
    kept_table,
    view::{escaped, unescaped},
};
use crate::{
    errors::{self, Result},
    value::json::{Json, Object, binary},
};

/// Engine of a table that is a histogram. No CREATE TABLE may name it.
pub const ENGINE: &str = "#histogram";
/// Most buckets, and how many where a statement does not say it.
pub const BUCKETS_MAX: u64 = 1024;
pub const BUCKETS: u64 = 100;
/// Characters (bytes, of binary columns) of a text that are looked at.
pub const TEXT_CHARS: usize = 42;
pub(crate) const DEFINITION_BYTES_MAX: usize = 1 << 20;

/// Values that lie side by side; where the histogram is a singleton one, both ends are its one value.
#[derive(Clone, PartialEq, Debug)]
pub struct Bucket {
    pub low: Json,
    pub high: Json,
    /// Part of all rows whose value is in this bucket or in one before.
    pub cumulative: f64,
    /// Different values.
    pub distinct: u64,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Histogram {
    pub is_singleton: bool,
    pub buckets: Vec<Bucket>,
    /// As the document calls it.
    pub data_type: &'static str,
    pub collation: u16,
    /// Part of all rows that are NULL.
    pub nulls: f64,
    pub sampling_rate: f64,
    pub is_automatic: bool,
    /// In the form of a DATETIME.
    pub updated: u64,
    /// How many buckets the statement wanted.
    pub wanted: u64,
    /// Of the table when it was counted. 0: nobody has written it down.
    pub rows: u64,
}

/// What the histograms of a column of this type say of themselves: data type and collation; `None`: it can have none.
pub fn described(ty: ColumnType) -> Option<(&'static str, u16)> {
    // `latin1_swedish_ci` and `binary`, as MySQL has them for values that are no texts.
    const NUMERIC: u16 = 8;
    const BINARY: u16 = 63;
    let of_text = ty.collation().map_or(BINARY, |collation| collation.id());
    Some(match ty {
        ColumnType::Int { bits: 64, unsigned: true } => ("uint", NUMERIC),
        ColumnType::Int { .. } | ColumnType::Year => ("int", NUMERIC),
        ColumnType::Bit { .. } => ("int", BINARY),
        ColumnType::Decimal { .. } => ("decimal", NUMERIC),
        ColumnType::Float | ColumnType::Double => ("double", NUMERIC),
        ColumnType::Date => ("date", NUMERIC),
        ColumnType::Time { .. } => ("time", NUMERIC),
        ColumnType::DateTime { .. } | ColumnType::Timestamp { .. } => ("datetime", NUMERIC),
        ColumnType::Label { is_set: true, .. } => ("set", of_text),
        ColumnType::Label { .. } => ("enum", of_text),
        ColumnType::Json => return None,
        _ => ("string", of_text),
    })
}

impl Histogram {
    /// As COLUMN_STATISTICS shows it.
    pub fn document(&self) -> Json {
        let bucket = |b: &Bucket| {
            let mut list = vec![b.low.clone()];
            if !self.is_singleton {
                list.push(b.high.clone());
            }
            list.push(Json::Double(b.cumulative));
            if !self.is_singleton {
                list.push(Json::UInt(b.distinct));
            }
            Json::Array(list)
        };
        let members = vec![
            ("buckets", Json::Array(self.buckets.iter().map(bucket).collect())),
            ("data-type", Json::text(self.data_type)),
            ("auto-update", Json::Bool(self.is_automatic)),
            ("null-values", Json::Double(self.nulls)),
            ("collation-id", Json::UInt(u64::from(self.collation))),
            ("last-updated", Json::DateTime(self.updated, false)),
            ("sampling-rate", Json::Double(self.sampling_rate)),
            ("histogram-type", Json::text(if self.is_singleton { "singleton" } else { "equi-height" })),
            ("number-of-buckets-specified", Json::UInt(self.wanted)),
        ];
        Json::Object(Object::from_members(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()))
    }
}

/// What the dictionary keeps.
#[derive(Clone, PartialEq, Debug)]
pub struct Definition {
    pub table: String,
    /// As the table calls it.
    pub column: String,
    pub histogram: Histogram,
}

const FIELDS: usize = 4;
const FORM: &str = "apus histogram 1";
/// What the kept form has beside the document.
pub(crate) const ROWS: &str = "rows";

impl Definition {
    pub(crate) fn encode(&self) -> String {
        let mut document = self.histogram.document();
        if let Json::Object(members) = &mut document {
            members.insert(ROWS.to_owned(), Json::UInt(self.histogram.rows));
        }
        let stored = binary::encode(&document);
        let hex: String = stored.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{FORM}\n{}\n{}\n{hex}", escaped(&self.table), escaped(&self.column))
    }

    fn decode(text: &str) -> Option<Definition> {
        let parts: Vec<&str> = text.splitn(FIELDS, '\n').collect();
        let [FORM, table, column, hex] = parts[..] else { return None };
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let stored = hex.as_bytes().chunks(2).map(byte).collect::<Option<Vec<u8>>>()?;
        let histogram = check::kept(&binary::decode(&stored)?)?;
        Some(Definition { table: unescaped(table), column: unescaped(column), histogram })
    }
}

/// A histogram of the dictionary.
#[derive(Debug)]
pub struct Kept {
    pub database: String,
    pub definition: Definition,
    /// Its name in the dictionary, and those of histograms before, which a SQL node that died has left.
    pub(crate) kept_as: String,
    pub(crate) older: Vec<String>,
    /// Its buckets' ends in a form that is compared fast; made when a plan first asks.
    ends: std::cell::OnceCell<Ends>,
}

impl PartialEq for Kept {
    fn eq(&self, other: &Kept) -> bool {
        (&self.database, &self.kept_as, &self.older, &self.definition)
            == (&other.database, &other.kept_as, &other.older, &other.definition)
    }
}

/// Database, table and lower case column.
pub type Key = (String, String, String);
pub type Histograms = BTreeMap<Key, Rc<Kept>>;

pub fn key(database: &str, table: &str, column: &str) -> Key {
    (database.to_owned(), table.to_owned(), column.to_lowercase())
}

/// Those of one table.
pub fn of_table<'h>(all: &'h Histograms, schema: &TableSchema) -> impl Iterator<Item = &'h Rc<Kept>> + use<'h> {
    let (database, table) = (schema.database.clone(), schema.name.clone());
    let first = key(&database, &table, "");
    all.range(first..).take_while(move |((d, t, _), _)| *d == database && *t == table).map(|(_, kept)| kept)
}

pub fn is_histogram(schema: &TableSchema) -> bool {
    schema.engine == ENGINE
}

/// How it is called in the dictionary.
pub(crate) fn kept_as(table: &str, column: &str, change: u64) -> String {
    let digest = Sha256::digest(format!("{table}\n{}", column.to_lowercase()));
    let hash: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("{ENGINE}#{change}#{hash}")
}

pub(crate) fn change_of(kept_as: &str) -> Option<u64> {
    kept_as.strip_prefix(ENGINE)?.strip_prefix('#')?.split_once('#')?.0.parse().ok()
}

pub(crate) fn table(database: &str, kept_as: &str, definition: &Definition) -> TableSchema {
    kept_table(database, kept_as, ENGINE, definition.encode())
}

/// The histograms of a dictionary. Those that are as they were in `before` are the same.
///
/// # Errors
/// A definition does not decode.
pub fn histograms(tables: Vec<TableSchema>, before: &Histograms) -> Result<Histograms> {
    let mut all: BTreeMap<Key, BTreeMap<u64, Kept>> = BTreeMap::new();
    for schema in tables {
        let Some(change) = change_of(&schema.name) else { continue };
        let definition = Definition::decode(&schema.comment)
            .ok_or_else(|| errors::internal("the definition of a histogram does not decode"))?;
        let key = key(&schema.database, &definition.table, &definition.column);
        let kept = Kept {
            database: schema.database,
            definition,
            kept_as: schema.name,
            older: Vec::new(),
            ends: std::cell::OnceCell::new(),
        };
        all.entry(key).or_default().insert(change, kept);
    }
    let mut found = Histograms::new();
    for (key, mut changes) in all {
        let Some((_, mut kept)) = changes.pop_last() else { continue };
        kept.older = changes.into_values().map(|old| old.kept_as).collect();
        let same = before.get(&key).filter(|known| ***known == kept).cloned();
        found.insert(key, same.unwrap_or_else(|| Rc::new(kept)));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(low: Json) -> Definition {
        let bucket = Bucket { low: low.clone(), high: low, cumulative: 0.75, distinct: 1 };
        let histogram = Histogram {
            is_singleton: true,
            buckets: vec![bucket],
            data_type: "decimal",
            collation: 8,
            nulls: 0.25,
            sampling_rate: 1.0,
            is_automatic: true,
            updated: 5,
            wanted: 7,
            rows: 11,
        };
        Definition { table: "T\n\\".to_owned(), column: "Column".to_owned(), histogram }
    }

    #[test]
    fn definitions_come_back() {
        let decimal = definition(Json::Decimal { unscaled: 150, scale: 2 });
        assert_eq!(Definition::decode(&decimal.encode()), Some(decimal.clone()));
        let text = definition(Json::Opaque(254, vec![0, 255]));
        assert_eq!(Definition::decode(&text.encode()), Some(text));
        assert_eq!(Definition::decode("a comment"), None);
        assert!(!definition(Json::Int(1)).encode().is_empty());
    }

    #[test]
    fn the_last_change_counts() {
        let (old, new) = (definition(Json::Int(1)), definition(Json::Int(2)));
        let other = Definition { table: "T2".to_owned(), ..old.clone() };
        let name = |d: &Definition, change| kept_as(&d.table, &d.column, change);
        let tables = vec![
            table("d", &name(&old, 9), &old),
            table("d", &name(&new, 10), &new),
            table("d", &name(&other, 0), &other),
        ];
        let found = histograms(tables.clone(), &Histograms::new()).unwrap();
        let kept = &found[&key("d", &new.table, "COLUMN")];
        assert_eq!((&kept.definition, kept.older.as_slice()), (&new, &[name(&old, 9)][..]));
        assert_eq!(found.len(), 2);
        let of_other = TableSchema::new("d", "T2", Vec::new(), Vec::new());
        assert_eq!(of_table(&found, &of_other).map(|kept| &kept.definition).collect::<Vec<_>>(), [&other]);
        let again = histograms(tables, &found).unwrap();
        assert!(found.values().zip(again.values()).all(|(a, b)| Rc::ptr_eq(a, b)));
    }
}
