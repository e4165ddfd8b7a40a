//! Buffers that are kept from one statement to the next.

use apus_client::{KeyList, OpBatch, Results, Rows};

use super::{Session, warnings::Warned};
use crate::{
    parse::digest::Digest,
    plan::access::binding::BoundPath,
    spill::byte_strings::{Pairs, StringSet, Strings},
    value::datum::Datum,
    wire::SqlError,
};

/// Buffers of a statement's execution; they keep their memory.
#[derive(Default)]
pub struct Scratch {
    pub digest: Digest,
    pub values: Vec<Datum<'static>>,
    pub ops: OpBatch,
    pub results: Results,
    pub rows: Rows,
    pub keys: KeyList,
    pub bound: BoundPath,
    pub program: Vec<u8>,
    pub row: Vec<u8>,
    pub key: Vec<u8>,
    pub sink: SinkBuffers,
    /// Primary keys of rows to lock, by their sort keys.
    pub candidates: Pairs,
    /// Locked rows by their primary keys.
    pub locked: Pairs,
    /// Primary keys of rows that a LIMIT has counted.
    pub done: StringSet,
    /// New rows of INSERT and UPDATE.
    pub images: Strings,
    /// Values of the row that is made.
    pub cells: Vec<Datum<'static>>,
    /// For each row of an INSERT its value of AUTO_INCREMENT, if it was generated; else 0.
    pub generated: Vec<u64>,
    /// For each row of an INSERT its number in the statement.
    pub row_numbers: Vec<usize>,
    /// What strict mode would have refused of the row that is made.
    pub refused: Vec<SqlError>,
    /// What is to be warned of the rows of an INSERT.
    pub warned: Warned,
    /// Keys of the rows of a batch.
    pub batch_keys: StringSet,
    pub info: String,
}

impl Session {
    pub fn take_scratch(&mut self) -> Box<Scratch> {
        let mut scratch = self.scratch.take().unwrap_or_default();
        scratch.ops.hold_constraints();
        scratch
    }
}

/// Memory that a session keeps from one SELECT to the next.
#[derive(Default, Debug)]
pub struct SinkBuffers {
    /// Rows (or numbers of groups) by their sort keys.
    pub(crate) held: Pairs,
    /// Outputs seen, for DISTINCT.
    pub(crate) seen: StringSet,
    /// Keys of groups, numbered as these are.
    pub(crate) groups: StringSet,
}

impl SinkBuffers {
    pub(crate) fn clear(&mut self) {
        self.held.clear();
        self.seen.clear();
        self.groups.clear();
    }
    pub(crate) fn byte_len(&self) -> usize {
        self.held.byte_len() + self.seen.byte_len() + self.groups.byte_len()
    }
}
