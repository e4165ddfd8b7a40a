//! The dictionary: schema reads and schema transactions.
//!
//! Every data node holds the whole dictionary (databases, tables with their indexes). A client reads it from any node
//! (`DictReadReq`) and changes it by `SchemaReq` to any node, which passes it to the president's DICT. That one runs one schema
//! transaction at a time: `SchemaPrepReq` to DICT of every member (check, remember), which tell their LDM and TC instances
//! (`TableOrd`, `TableConf`); when all have answered, `SchemaCommitOrd`. A refusal or a failed index build aborts it everywhere. If
//! the president dies, the new one finishes it: committed anywhere, commit; else abort. Every committed change raises the
//! dictionary version by one and is announced to clients (`SchemaRep`).

use prost::Message;

use crate::{
    foreign_key::ForeignKeysChange,
    schema::{CheckMessage, ColumnMessage, FullTextMessage, SourceMessage, TableMessage, TriggerMessage},
};

#[derive(Clone, PartialEq, Message)]
pub struct DatabaseMessage {
    #[prost(string, tag = "1")]
    pub name: String,
    /// MySQL collation id.
    #[prost(uint32, tag = "2")]
    pub collation: u32,
}

/// `DictReadReq`: the whole dictionary if `known_version` is not the current one.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct DictReadReq {
    #[prost(uint64, tag = "1")]
    pub request: u64,
    #[prost(uint64, tag = "2")]
    pub known_version: u64,
    /// `DictCopyReq`: whoever asks does not join with this copy, so that schema changes go on.
    #[prost(bool, tag = "3")]
    pub looks_only: bool,
}

/// `DictReadConf`, `DictCopyConf`, `SchemaRep` (`SchemaRep` without the lists).
#[derive(Clone, PartialEq, Message)]
pub struct Dictionary {
    #[prost(uint64, tag = "1")]
    pub request: u64,
    #[prost(uint64, tag = "2")]
    pub version: u64,
    #[prost(bool, tag = "3")]
    pub unchanged: bool,
    #[prost(message, repeated, tag = "4")]
    pub databases: Vec<DatabaseMessage>,
    /// Hidden unique-index tables included.
    #[prost(message, repeated, tag = "5")]
    pub tables: Vec<TableMessage>,
    #[prost(uint32, tag = "6")]
    pub next_table_id: u32,
    /// Not for clients: changes that were executed lately, the oldest first.
    #[prost(message, repeated, tag = "7")]
    pub executed: Vec<Executed>,
    /// For clients that of the view: rows that were read in another one may be others now. For members and in the file that of the newest change.
    #[prost(uint64, tag = "8")]
    pub lineage: u64,
    /// Not for clients: as [`SchemaState::era`].
    #[prost(message, optional, tag = "9")]
    pub era: Option<Era>,
}

/// An era of versions that was begun ([`apus_types::eras`]).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Message)]
pub struct Era {
    #[prost(uint32, tag = "1")]
    pub number: u32,
    #[prost(uint64, tag = "2")]
    pub lineage: u64,
}

/// A schema change that was executed, for who asks for it again.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Executed {
    #[prost(fixed64, tag = "1")]
    pub token: u64,
    /// Of the dictionary behind it.
    #[prost(uint64, tag = "2")]
    pub version: u64,
    /// The table that it left; 0: none.
    #[prost(uint32, tag = "3")]
    pub table: u32,
}

/// One schema change.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Change {
    #[prost(message, tag = "10")]
    CreateDatabase(DatabaseMessage),
    /// With all its tables.
    #[prost(string, tag = "11")]
    DropDatabase(String),
    /// `id`, `version` and hidden tables of unique indexes are assigned by DICT.
    #[prost(message, tag = "12")]
    CreateTable(TableMessage),
    #[prost(message, tag = "13")]
    DropTable(TableName),
    /// Becomes an empty table of a new id.
    #[prost(message, tag = "14")]
    TruncateTable(TableName),
    #[prost(message, tag = "15")]
    CreateIndex(IndexChange),
    #[prost(message, tag = "16")]
    DropIndex(IndexChange),
    #[prost(message, tag = "17")]
    RenameTable(RenameTable),
    /// A unique index was filled by the client that created it: reads may use it now.
    #[prost(message, tag = "18")]
    PublishIndex(IndexChange),
    #[prost(message, tag = "19")]
    ChangeColumns(ColumnsChange),
    #[prost(message, tag = "20")]
    ChangeForeignKeys(ForeignKeysChange),
    /// It becomes as this says; its tables stay as they are.
    #[prost(message, tag = "21")]
    AlterDatabase(DatabaseMessage),
}

/// Other columns for a table; see [`apus_types::form`].
#[derive(Clone, PartialEq, Message)]
pub struct ColumnsChange {
    #[prost(message, optional, tag = "1")]
    pub table: Option<TableName>,
    /// The definition that they replace has this id and version; any other is refused with `SchemaVersionChanged`.
    #[prost(uint32, tag = "2")]
    pub id: u32,
    #[prost(uint32, tag = "3")]
    pub version: u32,
    #[prost(message, repeated, tag = "4")]
    pub columns: Vec<ColumnMessage>,
    /// Of each: what rows have there that were written before.
    #[prost(message, repeated, tag = "5")]
    pub sources: Vec<SourceMessage>,
    /// These are dropped first.
    #[prost(string, repeated, tag = "6")]
    pub drop_indexes: Vec<String>,
    /// The constraints from now on; absent: as they were.
    #[prost(message, optional, tag = "20")]
    pub checks: Option<ChecksChange>,
    /// Indexes that plans may use again, and those that they do without.
    #[prost(string, repeated, tag = "21")]
    pub visible_indexes: Vec<String>,
    #[prost(string, repeated, tag = "22")]
    pub invisible_indexes: Vec<String>,
    /// It says something of all rows, which were looked at by the dictionary of this lineage: refused with `SchemaVersionChanged` by another, as [`IndexChange::lineage`] is.
    #[prost(uint64, optional, tag = "23")]
    pub lineage: Option<u64>,
    /// The FULLTEXT indexes from now on, with the numbers of the new columns; absent: those that there were.
    #[prost(message, optional, tag = "24")]
    pub full_texts: Option<FullTextsChange>,
    /// The triggers from now on; absent: those that there were.
    #[prost(message, optional, tag = "25")]
    pub triggers: Option<TriggersChange>,
}

/// All triggers of a table.
#[derive(Clone, PartialEq, Message)]
pub struct TriggersChange {
    #[prost(message, repeated, tag = "1")]
    pub triggers: Vec<TriggerMessage>,
}

/// All FULLTEXT indexes of a table.
#[derive(Clone, PartialEq, Message)]
pub struct FullTextsChange {
    #[prost(message, repeated, tag = "1")]
    pub full_texts: Vec<FullTextMessage>,
}

/// All CHECK constraints of a table.
#[derive(Clone, PartialEq, Message)]
pub struct ChecksChange {
    #[prost(message, repeated, tag = "1")]
    pub checks: Vec<CheckMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TableName {
    #[prost(string, tag = "1")]
    pub database: String,
    #[prost(string, tag = "2")]
    pub table: String,
    /// To drop, truncate or rename it: it has this version, or the change is refused with `SchemaVersionChanged`; 0: whichever.
    #[prost(uint32, tag = "3")]
    pub version: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct RenameTable {
    #[prost(message, optional, tag = "1")]
    pub from: Option<TableName>,
    #[prost(message, optional, tag = "2")]
    pub to: Option<TableName>,
}

#[derive(Clone, PartialEq, Message)]
pub struct IndexChange {
    #[prost(message, optional, tag = "1")]
    pub table: Option<TableName>,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(uint32, repeated, tag = "3")]
    pub columns: Vec<u32>,
    #[prost(bool, tag = "4")]
    pub unique: bool,
    /// To publish it: the lineage of the dictionary by which all of the index was filled. The cluster may have started from the disks since, with an older epoch of the rows; then it
    /// is refused with `SchemaVersionChanged`, and to be filled again.
    #[prost(uint64, tag = "5")]
    pub lineage: u64,
    /// To create it: the form of the table whose columns are meant; refused with `SchemaVersionChanged` if they have other numbers since.
    #[prost(uint32, tag = "6")]
    pub form: u32,
    /// To create it: how many characters or bytes of each column, 0 for all; empty for all of all.
    #[prost(uint32, repeated, tag = "7")]
    pub prefixes: Vec<u32>,
    /// To publish it: a foreign key is meant, whose rows have been looked at.
    #[prost(bool, tag = "8")]
    pub is_foreign_key: bool,
    /// To drop it: the table has this version, or it is refused with `SchemaVersionChanged`; 0: whichever.
    #[prost(uint32, tag = "9")]
    pub version: u32,
    /// To create it: plans do without it.
    #[prost(bool, tag = "20")]
    pub invisible: bool,
    /// To create it: places of parts that are defined DESC.
    #[prost(uint32, repeated, tag = "21")]
    pub descending: Vec<u32>,
}

/// `SchemaReq`.
#[derive(Clone, PartialEq, Message)]
pub struct SchemaReq {
    #[prost(uint64, tag = "1")]
    pub request: u64,
    /// Random, so that a request sent again after a failure is executed once.
    #[prost(fixed64, tag = "2")]
    pub token: u64,
    #[prost(oneof = "Change", tags = "10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21")]
    pub change: Option<Change>,
}

/// `SchemaConf`; a `SchemaRef` is a [`crate::tc::RequestRef`] with the object's name as detail.
#[derive(Clone, PartialEq, Message)]
pub struct SchemaConf {
    #[prost(uint64, tag = "1")]
    pub request: u64,
    /// Dictionary version that has the change.
    #[prost(uint64, tag = "2")]
    pub version: u64,
    /// The table as it is now, where the change left one.
    #[prost(message, optional, tag = "3")]
    pub table: Option<TableMessage>,
}

/// `SchemaPrepReq`/`Conf`, `SchemaCommitOrd`/`Conf`, `SchemaAbortOrd` between DICT blocks.
#[derive(Clone, PartialEq, Message)]
pub struct SchemaStep {
    #[prost(uint64, tag = "1")]
    pub generation: u64,
    /// The dictionary version that the transaction leads to.
    #[prost(uint64, tag = "2")]
    pub version: u64,
    #[prost(fixed64, tag = "3")]
    pub token: u64,
    /// Tables as they will be, new and changed.
    #[prost(message, repeated, tag = "4")]
    pub upsert_tables: Vec<TableMessage>,
    #[prost(uint32, repeated, tag = "5")]
    pub drop_tables: Vec<u32>,
    #[prost(message, repeated, tag = "6")]
    pub upsert_databases: Vec<DatabaseMessage>,
    #[prost(string, repeated, tag = "7")]
    pub drop_databases: Vec<String>,
    #[prost(uint32, tag = "8")]
    pub next_table_id: u32,
    /// In a `Ref`: an error code.
    #[prost(uint32, tag = "9")]
    pub error: u32,
    /// The dictionary version that it leads from.
    #[prost(uint64, tag = "10")]
    pub follows: u64,
    /// In which it was begun.
    #[prost(uint64, tag = "11")]
    pub lineage: u64,
}

/// `SchemaStateRep`: sent whenever the president changed or a view settled what was open, so that the new one can finish what the old one began.
#[derive(Clone, PartialEq, Message)]
pub struct SchemaState {
    /// Committed dictionary version of the sender.
    #[prost(uint64, tag = "1")]
    pub version: u64,
    /// Committed last.
    #[prost(message, optional, tag = "2")]
    pub last: Option<SchemaStep>,
    #[prost(message, optional, tag = "3")]
    pub prepared: Option<SchemaStep>,
    /// Of the view in which it is said: a take-over that a later view began does not count it.
    #[prost(uint64, tag = "4")]
    pub generation: u64,
    /// Ids below have been given to tables, of steps that were undone, too.
    #[prost(uint32, tag = "5")]
    pub next_table_id: u32,
    /// The newest one of which a step was prepared, undone or not.
    #[prost(message, optional, tag = "6")]
    pub era: Option<Era>,
}

/// What a `TableOrd` asks of an LDM or TC instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug, prost::Enumeration)]
#[repr(i32)]
pub enum TableAction {
    /// Make or replace the definition; an LDM makes missing fragments and trees and fills new ordered indexes from the rows it
    /// has (in slices), then confirms.
    Define = 1,
    Drop = 2,
}

/// `TableOrd` / `TableConf` / `TableRef` inside a node.
#[derive(Clone, PartialEq, Message)]
pub struct TableOrd {
    #[prost(uint64, tag = "1")]
    pub request: u64,
    #[prost(enumeration = "TableAction", tag = "2")]
    pub action: i32,
    #[prost(message, optional, tag = "3")]
    pub table: Option<TableMessage>,
    #[prost(uint32, tag = "4")]
    pub table_id: u32,
    /// In a `TableRef`.
    #[prost(uint32, tag = "5")]
    pub error: u32,
}
