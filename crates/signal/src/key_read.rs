//! Committed key reads: client -> LDM of any replica, past the coordinator (DESIGN section 8).
//!
//! `ReadReq` names one table, one projection and up to `BATCH_OPS_MAX` keys, all of partitions served by the addressed LDM
//! instance; `ReadConf` answers each in order. A backup that holds a row committed but not yet complete answers
//! [`ReadStatus::AtPrimary`] for that key and the client sends it on to the primary: as many hops as if the backup forwarded
//! it, and no state in the backup. If the node dies the client sends the whole request to another replica.
//!
//! With a transaction id the primary also shows what that transaction has written and not committed; only the primary may be
//! asked then, because backups learn of writes later.
//!
//! With a snapshot epoch the rows are those of that epoch (see [`crate::epoch`]), at any replica that holds it: there is no
//! `AtPrimary` then. With both, the transaction's own changes show in front of the snapshot.

use apus_types::{Epoch, PartitionId, TableId, TransId, limits};

use crate::codec::{DecodeError, Put, Reader, patch_u16};

/// `projection` count that stands for the whole row.
pub const WHOLE_ROW: u16 = u16::MAX;

/// Column list of a projection, still in wire form: pairs of little-endian bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Projection<'a> {
    /// `None`: the whole row.
    pub columns: Option<&'a [u8]>,
}

impl<'a> Projection<'a> {
    pub const ALL: Projection<'static> = Projection { columns: None };

    pub fn decode(r: &mut Reader<'a>) -> Result<Projection<'a>, DecodeError> {
        let count = r.u16()?;
        if count == WHOLE_ROW {
            return Ok(Projection { columns: None });
        }
        if usize::from(count) > limits::COLUMNS_MAX {
            return Err(DecodeError);
        }
        Ok(Projection { columns: Some(r.bytes(2 * usize::from(count))?) })
    }
    pub fn encode(columns: Option<&[u16]>, out: &mut Vec<u8>) {
        let Some(columns) = columns else { return out.put_u16(WHOLE_ROW) };
        out.put_u16(columns.len() as u16);
        for &column in columns {
            out.put_u16(column);
        }
    }
    pub fn iter(&self) -> impl Iterator<Item = u16> + 'a {
        self.columns.unwrap_or(&[]).as_chunks::<2>().0.iter().map(|&b| u16::from_le_bytes(b))
    }
}

#[derive(Clone, Copy, Debug)]
pub struct ReadReq<'a> {
    /// The client's number for this request, returned in the answer.
    pub request: u64,
    pub trans: TransId,
    /// 0: the latest committed rows.
    pub snapshot: Epoch,
    pub table: TableId,
    pub schema_version: u32,
    pub projection: Projection<'a>,
    /// The answer ends with its [`crate::epoch::Moment`].
    pub with_moment: bool,
    pub count: u16,
    keys: &'a [u8],
}

impl<'a> ReadReq<'a> {
    /// Appends all but the keys; push them with [`ReadReq::push_key`] and close with [`patch_u16`] at the returned position.
    pub fn begin(
        out: &mut Vec<u8>,
        request: u64,
        (trans, snapshot): (TransId, Epoch),
        table: TableId,
        schema_version: u32,
        columns: Option<&[u16]>,
        with_moment: bool,
    ) -> usize {
        out.put_u64(request);
        out.put_trans(trans);
        out.put_u64(snapshot.0);
        out.put_u32(table.0);
        out.put_u32(schema_version);
        Projection::encode(columns, out);
        out.put_u8(u8::from(with_moment));
        out.put_u16(0);
        out.len() - 2
    }
    pub fn push_key(out: &mut Vec<u8>, count_at: usize, partition: PartitionId, key: &[u8]) {
        out.put_u16(partition.0);
        out.put_short_bytes(key);
        let count = u16::from_le_bytes([out[count_at], out[count_at + 1]]) + 1;
        patch_u16(out, count_at, count);
    }
    pub fn decode(body: &'a [u8]) -> Result<ReadReq<'a>, DecodeError> {
        let mut r = Reader::new(body);
        let request = r.u64()?;
        let trans = r.trans()?;
        let snapshot = r.epoch()?;
        let table = TableId(r.u32()?);
        let schema_version = r.u32()?;
        let projection = Projection::decode(&mut r)?;
        let with_moment = r.u8()? != 0;
        let count = r.u16()?;
        if usize::from(count) > limits::BATCH_OPS_MAX {
            return Err(DecodeError);
        }
        Ok(ReadReq { request, trans, snapshot, table, schema_version, projection, with_moment, count, keys: r.rest() })
    }
    /// The keys in order; stops with an error at the first that does not decode.
    pub fn keys(&self) -> impl Iterator<Item = Result<(PartitionId, &'a [u8]), DecodeError>> {
        let mut r = Reader::new(self.keys);
        (0..self.count).map(move |_| {
            let partition = PartitionId(r.u16()?);
            let key = r.short_bytes()?;
            if key.len() > limits::KEY_BYTES_MAX { Err(DecodeError) } else { Ok((partition, key)) }
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ReadStatus {
    Found = 0,
    NotFound = 1,
    /// Ask the primary.
    AtPrimary = 2,
}

/// Answer: `request u64, count u16, count x (status u8, length u32, row)`.
#[derive(Clone, Copy, Debug)]
pub struct ReadConf<'a> {
    pub request: u64,
    pub count: u16,
    rows: &'a [u8],
}

impl<'a> ReadConf<'a> {
    pub fn begin(out: &mut Vec<u8>, request: u64, count: u16) {
        out.put_u64(request);
        out.put_u16(count);
    }
    pub fn push_missing(out: &mut Vec<u8>, status: ReadStatus) {
        out.put_bytes(&[status as u8, 0, 0, 0, 0]);
    }
    /// Appends a found row; `write` appends its bytes.
    #[inline]
    pub fn push_row(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
        let at = out.len() + 1;
        out.put_bytes(&[ReadStatus::Found as u8, 0, 0, 0, 0]);
        write(out);
        let length = (out.len() - at - 4) as u32;
        crate::codec::patch_u32(out, at, length);
    }
    pub fn decode(body: &'a [u8]) -> Result<ReadConf<'a>, DecodeError> {
        let mut r = Reader::new(body);
        Ok(ReadConf { request: r.u64()?, count: r.u16()?, rows: r.rest() })
    }
    pub fn rows(&self) -> impl Iterator<Item = Result<(ReadStatus, &'a [u8]), DecodeError>> {
        let mut r = Reader::new(self.rows);
        (0..self.count).map(move |_| {
            let status = match r.u8()? {
                0 => ReadStatus::Found,
                1 => ReadStatus::NotFound,
                2 => ReadStatus::AtPrimary,
                _ => return Err(DecodeError),
            };
            Ok((status, r.long_bytes()?))
        })
    }
}
