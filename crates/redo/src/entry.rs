//! What a log says.

use apus_signal::{DecodeError, Reader, codec::Put};
use apus_types::{Chain, Epoch, PartitionId, TableId, TransId};

/// One entry; borrowed from whoever writes it, or from the reader's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry<'a> {
    /// The changes of a batch as the chain carries them: `count` of `apus_signal::ldm::PreparedRow`.
    Prepare { trans: TransId, chain: Chain, savepoint: u32, count: u16, rows: &'a [u8] },
    /// The transaction's part on `chain` is committed in `epoch`.
    Commit { trans: TransId, chain: Chain, epoch: Epoch },
    /// Undone: the changes with this savepoint or a higher one (0: all) on `chain`.
    Abort { trans: TransId, chain: Chain, savepoint: u32 },
    /// Committed rows that came as a copy (node recovery): `count` of `apus_signal::copy::CopiedRow`.
    Copied { partition: PartitionId, table: TableId, count: u16, rows: &'a [u8] },
    /// Everything of epochs up to `epoch` is before this entry, as of the view with this point.
    Saved { epoch: Epoch, lineage: u64, generation: u64 },
    /// A cluster began again with what was committed up to `restored`: epochs above that and below `begins` before this entry are void, and so is what
    /// had not ended.
    Restart { restored: Epoch, begins: Epoch },
    /// In checkpoints only: the fragment has so many pages; what older checkpoints have of further ones is gone.
    Fragment { partition: PartitionId, table: TableId, pages: u32 },
    /// In checkpoints only: the rows of a page of slots follow as [`Entry::Copied`], and the page has no others.
    Page { partition: PartitionId, table: TableId, page: u32 },
    /// In checkpoints only: transactions that were committed here, 16 bytes each ([`Entry::commits`]).
    Commits { ids: &'a [u8] },
}

const PREPARE: u8 = 1;
const COMMIT: u8 = 2;
const ABORT: u8 = 3;
const COPIED: u8 = 4;
const SAVED: u8 = 5;
const RESTART: u8 = 6;
const FRAGMENT: u8 = 7;
const PAGE: u8 = 8;
const COMMITS: u8 = 9;
/// Bytes of a transaction's id.
const ID_BYTES: usize = 16;

impl<'a> Entry<'a> {
    /// Bytes that [`Entry::encode`] appends.
    pub(crate) fn encoded_len(&self) -> usize {
        4 + 1
            + match self {
                Entry::Prepare { rows, .. } => 16 + 4 + 4 + 2 + rows.len(),
                Entry::Commit { .. } => 16 + 4 + 8,
                Entry::Abort { .. } => 16 + 4 + 4,
                Entry::Copied { rows, .. } => 2 + 4 + 2 + rows.len(),
                Entry::Saved { .. } => 24,
                Entry::Restart { .. } => 16,
                Entry::Fragment { .. } | Entry::Page { .. } => 2 + 4 + 4,
                Entry::Commits { ids } => ids.len(),
            }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let begin = out.len();
        out.put_u32(self.encoded_len() as u32 - 4);
        match *self {
            Entry::Prepare { trans, chain, savepoint, count, rows } => {
                out.put_u8(PREPARE);
                out.put_trans(trans);
                out.put_chain(chain);
                out.put_u32(savepoint);
                out.put_u16(count);
                out.put_bytes(rows);
            }
            Entry::Commit { trans, chain, epoch } => {
                out.put_u8(COMMIT);
                out.put_trans(trans);
                out.put_chain(chain);
                out.put_u64(epoch.0);
            }
            Entry::Abort { trans, chain, savepoint } => {
                out.put_u8(ABORT);
                out.put_trans(trans);
                out.put_chain(chain);
                out.put_u32(savepoint);
            }
            Entry::Copied { partition, table, count, rows } => {
                out.put_u8(COPIED);
                out.put_u16(partition.0);
                out.put_u32(table.0);
                out.put_u16(count);
                out.put_bytes(rows);
            }
            Entry::Saved { epoch, lineage, generation } => {
                out.put_u8(SAVED);
                out.put_u64(epoch.0);
                out.put_u64(lineage);
                out.put_u64(generation);
            }
            Entry::Restart { restored, begins } => {
                out.put_u8(RESTART);
                out.put_u64(restored.0);
                out.put_u64(begins.0);
            }
            Entry::Fragment { partition, table, pages: number } | Entry::Page { partition, table, page: number } => {
                out.put_u8(if matches!(self, Entry::Page { .. }) { PAGE } else { FRAGMENT });
                out.put_u16(partition.0);
                out.put_u32(table.0);
                out.put_u32(number);
            }
            Entry::Commits { ids } => {
                out.put_u8(COMMITS);
                out.put_bytes(ids);
            }
        }
        debug_assert_eq!(out.len() - begin, self.encoded_len());
    }

    /// What follows the length.
    pub(crate) fn decode(body: &'a [u8]) -> Result<Entry<'a>, DecodeError> {
        let mut r = Reader::new(body);
        let entry = match r.u8()? {
            PREPARE => {
                let (trans, chain, savepoint, count) = (r.trans()?, r.chain()?, r.u32()?, r.u16()?);
                return Ok(Entry::Prepare { trans, chain, savepoint, count, rows: r.rest() });
            }
            COPIED => {
                let (partition, table, count) = (PartitionId(r.u16()?), TableId(r.u32()?), r.u16()?);
                return Ok(Entry::Copied { partition, table, count, rows: r.rest() });
            }
            COMMITS if r.rest().len().is_multiple_of(ID_BYTES) => return Ok(Entry::Commits { ids: r.rest() }),
            kind @ (FRAGMENT | PAGE) => {
                let (partition, table, number) = (PartitionId(r.u16()?), TableId(r.u32()?), r.u32()?);
                match kind {
                    PAGE => Entry::Page { partition, table, page: number },
                    _ => Entry::Fragment { partition, table, pages: number },
                }
            }
            COMMIT => Entry::Commit { trans: r.trans()?, chain: r.chain()?, epoch: r.epoch()? },
            ABORT => Entry::Abort { trans: r.trans()?, chain: r.chain()?, savepoint: r.u32()? },
            SAVED => Entry::Saved { epoch: r.epoch()?, lineage: r.u64()?, generation: r.u64()? },
            RESTART => Entry::Restart { restored: r.epoch()?, begins: r.epoch()? },
            _ => return Err(DecodeError),
        };
        r.end()?;
        Ok(entry)
    }

    /// As [`Entry::Commits`] names a transaction.
    pub fn commit_id(trans: TransId) -> [u8; ID_BYTES] {
        let mut id = Vec::with_capacity(ID_BYTES);
        id.put_trans(trans);
        let mut out = [0; ID_BYTES];
        out.copy_from_slice(&id);
        out
    }
    /// The transactions that [`Entry::Commits`] names.
    pub fn commits(ids: &[u8]) -> impl Iterator<Item = TransId> + '_ {
        ids.chunks_exact(ID_BYTES).filter_map(|id| Reader::new(id).trans().ok())
    }
}
