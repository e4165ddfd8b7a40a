//! What an open transaction holds: client -> LDM, as a scan of an index that no table has.
//!
//! A [`crate::scan`] of `apus.claims` by the index [`HELD`], in the name of a transaction, returns no rows of that table but one [`HeldRow`] for each row of the partitions asked for that the
//! transaction has locked at their primary. The client makes claims of them (`apus_types::claims`). All else is as with a scan: the answer names where to go on, and nothing is kept.
//! The transaction is not to do anything meanwhile; what is listed of one that goes on is of no moment.

use apus_types::{IndexNo, NodeId, TableId};

use crate::codec::{DecodeError, Put, Reader};

/// In the place of an index.
pub const HELD: IndexNo = IndexNo(u16::MAX);

const EXCLUSIVE: u8 = 1;
const WRITTEN: u8 = 2;

/// A row that is locked: `table u32, base u32, hash u64, flags u8, key short, image long, giver short`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeldRow<'a> {
    pub table: TableId,
    /// It is an entry of a unique index of this table; 0: it is none.
    pub base: TableId,
    /// The row's distribution hash.
    pub hash: u64,
    pub exclusive: bool,
    /// The transaction has changed it.
    pub written: bool,
    /// Its encoded primary key.
    pub key: &'a [u8],
    /// What it has become; empty: it is deleted, not changed, or an entry.
    pub image: &'a [u8],
    /// Of an entry that has changed from one row to another: the primary key of the one that has given it up; otherwise empty.
    pub giver: &'a [u8],
}

impl<'a> HeldRow<'a> {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.table.0);
        out.put_u32(self.base.0);
        out.put_u64(self.hash);
        out.put_u8((u8::from(self.exclusive) * EXCLUSIVE) | (u8::from(self.written) * WRITTEN));
        out.put_short_bytes(self.key);
        out.put_long_bytes(self.image);
        out.put_short_bytes(self.giver);
    }
    pub fn decode(row: &'a [u8]) -> Result<HeldRow<'a>, DecodeError> {
        let mut r = Reader::new(row);
        let (table, base, hash, flags) = (TableId(r.u32()?), TableId(r.u32()?), r.u64()?, r.u8()?);
        let (key, image, giver) = (r.short_bytes()?, r.long_bytes()?, r.short_bytes()?);
        r.end()?;
        let (exclusive, written) = (flags & EXCLUSIVE != 0, flags & WRITTEN != 0);
        Ok(HeldRow { table, base, hash, exclusive, written, key, image, giver })
    }
}

/// Where a list goes on: `place u64, node u16, part u32, entry u32`, in big-endian bytes, so that it grows. At another node than the one that has said it, it begins again: what partitions have come
/// there from a node that is lost hold nothing of a transaction that lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HeldPlace {
    /// How many were looked at before.
    pub place: u64,
    pub node: NodeId,
    /// Number of the part of the transaction.
    pub part: u32,
    /// The entry to look at next.
    pub entry: u32,
}

impl HeldPlace {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_bytes(&self.place.to_be_bytes());
        out.put_bytes(&self.node.0.to_be_bytes());
        out.put_bytes(&self.part.to_be_bytes());
        out.put_bytes(&self.entry.to_be_bytes());
    }
    pub fn decode(bytes: &[u8]) -> Result<HeldPlace, DecodeError> {
        let bytes: &[u8; 18] = bytes.try_into().map_err(|_| DecodeError)?;
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let place = (u64::from(word(0)) << 32) | u64::from(word(4));
        Ok(HeldPlace { place, node: NodeId(u16::from_be_bytes([bytes[8], bytes[9]])), part: word(10), entry: word(14) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        let row = HeldRow {
            table: TableId(3),
            base: TableId(2),
            hash: 9,
            exclusive: true,
            written: true,
            key: b"k",
            image: b"new",
            giver: b"",
        };
        let mut out = Vec::new();
        row.encode(&mut out);
        assert_eq!(HeldRow::decode(&out).unwrap(), row);
        assert!((0..out.len()).all(|n| HeldRow::decode(&out[..n]).is_err()));
        let (mut first, mut second) = (Vec::new(), Vec::new());
        HeldPlace { place: 255, node: NodeId(300), part: 1, entry: 700_000 }.encode(&mut first);
        let place = HeldPlace { place: 256, node: NodeId(2), part: 0, entry: 2 };
        place.encode(&mut second);
        assert!(first < second);
        assert_eq!(HeldPlace::decode(&second).unwrap(), place);
        assert!(HeldPlace::decode(&second[1..]).is_err());
    }
}
