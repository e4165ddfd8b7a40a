//! Rows by a multi-valued index: first the entries of all keys, of which each row counts once, then the rows, some at a time; all of one moment.
//!
//! Limit: [`ENTRIES_BYTES_MAX`] of primary keys; of more of them the whole table is read instead.

use std::{pin::pin, rc::Rc};

use apus_client::{KeyList, Rows, Snapshot};
use apus_types::{Epoch, TableSchema, Value, schema};

use super::{
    BATCH_ROWS, Seen,
    source::{open_ranges, read_keys},
};
use crate::{
    catalog::Table,
    errors,
    exec::Cluster,
    session::{Done, buffers::Scratch},
    spill::byte_strings::StringSet,
};

/// Memory of the primary keys that the entries of a statement name.
const ENTRIES_BYTES_MAX: usize = 64 << 20;

/// Rows that entries have named.
pub struct ListedRows {
    keys: KeyList,
    hashes: Vec<u64>,
    next: usize,
    seen: Seen,
    /// What they are read at.
    _held: Option<Rc<Snapshot>>,
}

impl ListedRows {
    /// Reads the entries of the bound ranges; `None`: there are more than may be kept.
    pub async fn open(
        cluster: Cluster<'_>,
        s: &mut Scratch,
        table: &Table,
        index: usize,
        mut seen: Seen,
    ) -> Done<Option<ListedRows>> {
        let hidden = table.hidden.get(index).and_then(|h| h.as_ref());
        let hidden = hidden.ok_or_else(|| errors::internal("a multi-valued index without its table"))?;
        // Of a SERIALIZABLE transaction: what it looked for may come to any row.
        cluster.reads.whole(&table.schema);
        let mut held = None;
        if seen.snapshot == Epoch(0) {
            let snapshot = cluster.client.shared_snapshot().await?;
            seen.snapshot = snapshot.epoch();
            held = Some(snapshot);
        }
        seen.one_moment = false;
        let mut rows = ListedRows { keys: KeyList::new(), hashes: Vec::new(), next: 0, seen, _held: held };
        let mut request = seen.scan(hidden);
        request.batch_rows = BATCH_ROWS;
        let (mut known, mut bytes) = (StringSet::default(), 0);
        let mut scans = open_ranges(cluster, &s.bound.ranges, &request).await?;
        let has_several = scans.len() > 1;
        let mut entries = Rows::new();
        while let Some(scan) = scans.last_mut() {
            if !scan.next_batch(&mut entries).await? {
                scans.pop();
                continue;
            }
            for entry in entries.iter().flatten() {
                let (hash, primary) = named(hidden, entry)?;
                if has_several && !known.insert(primary).1 {
                    continue;
                }
                bytes += primary.len() + 2 * size_of::<u64>();
                rows.keys.push_hashed(hash, primary)?;
                rows.hashes.push(hash);
            }
            if bytes > ENTRIES_BYTES_MAX {
                return Ok(None);
            }
        }
        Ok(Some(rows))
    }

    /// The next rows; those that are not there are none. False at the end.
    pub async fn next(
        &mut self,
        cluster: Cluster<'_>,
        s: &mut Scratch,
        table: &Table,
        columns: Option<&[u16]>,
    ) -> Done<bool> {
        let end = self.keys.len().min(self.next + BATCH_ROWS as usize);
        if self.next == end {
            return Ok(false);
        }
        s.keys.clear();
        for at in self.next..end {
            s.keys.push_hashed(self.hashes[at], self.keys.key(at).unwrap_or(&[]))?;
        }
        self.next = end;
        pin!(read_keys(cluster, s, table, columns, self.seen, false)).await?;
        Ok(true)
    }
}

/// The row that an entry names: its place, and its primary key.
fn named<'e>(hidden: &'e TableSchema, entry: &'e [u8]) -> Done<(u64, &'e [u8])> {
    let primary = hidden.layout().raw(entry, schema::HIDDEN_PK_COLUMN);
    match hidden.layout().value(entry, schema::HIDDEN_HASH_COLUMN) {
        Value::UInt(hash) => Ok((hash, primary)),
        _ => Err(errors::internal("an entry of an index without hash").into()),
    }
}
