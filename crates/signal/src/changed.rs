//! What has changed in a table between two snapshots, and who is still at work in it: client -> LDM, as scans of indexes that no table has.
//!
//! A [`crate::scan`] at a snapshot by the index [`CHANGED`], from a [`ChangedPlace`] on that names an older snapshot, returns one [`ChangedRow`] for each row that shows another version at the one than at the
//! other. Both are held by who asks. A row that was deleted and made again may be another row with the same key: of one key there may be a row that is gone and one that has come, in any order.
//!
//! A scan with pending rows by the index [`OPEN`] returns one row, without anything in it, for each LDM whose transactions may have locked or changed rows of the table in the partitions asked for, and nothing where
//! none has. It goes by a version of the table, so where that is one below which nobody may write ([`apus_types::foreign_key::Held::since`]), nothing comes behind the answer that whoever asks does not know of.

use apus_types::{Epoch, IndexNo, PartitionId};

use crate::codec::{DecodeError, Put, Reader};

/// In the place of an index: rows that differ between two snapshots.
pub const CHANGED: IndexNo = IndexNo(u16::MAX - 1);
/// In the place of an index: whether transactions have rows of the table.
pub const OPEN: IndexNo = IndexNo(u16::MAX - 2);

const OLD: u8 = 1;
const NEW: u8 = 2;

/// A row at two moments: `flags u8, old long, new long`; never empty at both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChangedRow<'a> {
    /// At the older snapshot; `None`: the row was not there.
    pub old: Option<&'a [u8]>,
    pub new: Option<&'a [u8]>,
}

impl<'a> ChangedRow<'a> {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8((u8::from(self.old.is_some()) * OLD) | (u8::from(self.new.is_some()) * NEW));
        out.put_long_bytes(self.old.unwrap_or_default());
        out.put_long_bytes(self.new.unwrap_or_default());
    }
    pub fn decode(row: &'a [u8]) -> Result<ChangedRow<'a>, DecodeError> {
        let mut r = Reader::new(row);
        let (flags, old, new) = (r.u8()?, r.long_bytes()?, r.long_bytes()?);
        r.end()?;
        let (has_old, has_new) = (flags & OLD != 0, flags & NEW != 0);
        let is_right = (has_old || has_new) && flags & !(OLD | NEW) == 0;
        let is_empty = (has_old || old.is_empty()) && (has_new || new.is_empty());
        if !is_right || !is_empty {
            return Err(DecodeError);
        }
        Ok(ChangedRow { old: has_old.then_some(old), new: has_new.then_some(new) })
    }
}

/// Where a list of changed rows begins or goes on: `since u64, partition u16, row u32`, in big-endian bytes, so that it grows. Rows have the same numbers on all replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ChangedPlace {
    /// The older snapshot.
    pub since: Epoch,
    pub partition: PartitionId,
    /// The slot to look at next.
    pub row: u32,
}

impl ChangedPlace {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_bytes(&self.since.0.to_be_bytes());
        out.put_bytes(&self.partition.0.to_be_bytes());
        out.put_bytes(&self.row.to_be_bytes());
    }
    pub fn decode(bytes: &[u8]) -> Result<ChangedPlace, DecodeError> {
        let b: &[u8; 14] = bytes.try_into().map_err(|_| DecodeError)?;
        let since = Epoch(u64::from_be_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]));
        let partition = PartitionId(u16::from_be_bytes([b[8], b[9]]));
        Ok(ChangedPlace { since, partition, row: u32::from_be_bytes([b[10], b[11], b[12], b[13]]) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        for row in [
            ChangedRow { old: Some(b"old"), new: Some(b"") },
            ChangedRow { old: None, new: Some(b"new") },
            ChangedRow { old: Some(b"old"), new: None },
        ] {
            let mut out = Vec::new();
            row.encode(&mut out);
            assert_eq!(ChangedRow::decode(&out).unwrap(), row);
            assert!((0..out.len()).all(|n| ChangedRow::decode(&out[..n]).is_err()));
        }
        let mut nothing = Vec::new();
        ChangedRow { old: None, new: None }.encode(&mut nothing);
        assert!(ChangedRow::decode(&nothing).is_err());
        let (mut first, mut second) = (Vec::new(), Vec::new());
        ChangedPlace { since: Epoch(9), partition: PartitionId(2), row: 70_000 }.encode(&mut first);
        let place = ChangedPlace { since: Epoch(9), partition: PartitionId(3), row: 1 };
        place.encode(&mut second);
        assert!(first < second);
        assert_eq!(ChangedPlace::decode(&second).unwrap(), place);
        assert!(ChangedPlace::decode(&second[1..]).is_err());
    }
}
