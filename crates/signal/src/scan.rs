//! Ordered scans: client -> LDM, merged over the named partitions of that LDM instance, in index order.
//!
//! A scan has no state in the data node: `ScanConf` returns at most `rows_max` rows or about `bytes_max` bytes and, when more
//! may follow, the entry key of the last row looked at; the client asks again from there. So nothing pins memory, and any
//! replica or a promoted primary can continue after a failure. As with key reads, a transaction id shows that transaction's
//! own changes and must go to primaries; a backup that meets a row not yet complete refuses the scan with `WrongView` and the
//! client repeats it at the primaries. A scan at a snapshot epoch shows the rows of that epoch, as with key reads.
//!
//! A scan *with pending rows* also shows, at the primaries, rows that only open transactions have written so far, in any version that may
//! stay: nobody's view of the data, but no row can come into being behind it that was written before it began. Indexes are filled by it.
//!
//! A scan with a *filter* ([`apus_types::filter`]) returns, or aggregates, only rows that pass it.
//!
//! A scan with a *grouping* (`apus_eval::grouping`, opaque here) returns partial groups in place of rows: of each its first row, and in the place of the entry key what its aggregates have so far. A page that has as many as an
//! answer has rows ends there.
//!
//! With aggregates the answer is a single row of partial results instead (see [`Aggregate`]).

use std::ops::Bound;

use apus_types::{Epoch, IndexNo, PartitionId, TableId, TransId, limits};

use crate::{
    codec::{DecodeError, Put, Reader, patch_u32},
    key_read::Projection,
};

pub const REVERSE: u8 = 1;
/// Return each row's entry key, for merging streams of several LDMs.
pub const WITH_KEYS: u8 = 2;
const LOW_PRESENT: u8 = 4;
const LOW_EXCLUDED: u8 = 8;
const HIGH_PRESENT: u8 = 16;
const HIGH_EXCLUDED: u8 = 32;
/// Also rows that exist only in transactions that are open.
const WITH_PENDING: u8 = 64;
/// The answer ends with its [`crate::epoch::Moment`].
const WITH_MOMENT: u8 = 128;

/// Most rows and bytes of one answer; a request for more is cut to this.
pub const SCAN_ROWS_MAX: u32 = 4096;
pub const SCAN_BYTES_MAX: u32 = 1 << 20;
/// Most aggregates of one scan.
pub const AGGREGATES_MAX: usize = 32;

/// A partial aggregate computed beside the data. The answer to a scan with aggregates has one "row": for each aggregate
/// `count u64` (rows with a value) and, except for counts, `present u8, value i128`. Only integer columns are summed or
/// compared; the client asks for rows where other types are aggregated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Aggregate {
    pub function: AggregateFunction,
    /// Ignored for `CountRows`.
    pub column: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum AggregateFunction {
    CountRows = 0,
    CountValues = 1,
    Sum = 2,
    Min = 3,
    Max = 4,
    /// About how many rows the partitions have, whoever may see them, at once and without looking at them: for statistics. Alone, or among its like.
    EstimatedRows = 5,
}

impl AggregateFunction {
    pub fn from_u8(n: u8) -> Option<AggregateFunction> {
        Some(match n {
            0 => AggregateFunction::CountRows,
            1 => AggregateFunction::CountValues,
            2 => AggregateFunction::Sum,
            3 => AggregateFunction::Min,
            4 => AggregateFunction::Max,
            5 => AggregateFunction::EstimatedRows,
            _ => return None,
        })
    }

    /// Whether its result is a count and nothing else.
    pub fn is_count(self) -> bool {
        matches!(self, AggregateFunction::CountRows | AggregateFunction::CountValues | AggregateFunction::EstimatedRows)
    }
}

/// A scan request, for both ends.
#[derive(Clone, Copy, Debug)]
pub struct ScanReq<'a> {
    pub request: u64,
    pub trans: TransId,
    /// 0: the latest committed rows.
    pub snapshot: Epoch,
    pub table: TableId,
    pub schema_version: u32,
    pub index: IndexNo,
    pub reverse: bool,
    pub with_keys: bool,
    pub with_pending: bool,
    pub with_moment: bool,
    pub rows_max: u32,
    pub bytes_max: u32,
    pub low: Bound<&'a [u8]>,
    pub high: Bound<&'a [u8]>,
    pub projection: Projection<'a>,
    /// Pairs of little-endian bytes.
    partitions: &'a [u8],
    /// Triples `function u8, column u16`.
    aggregates: &'a [u8],
    /// Empty: rows as they are.
    pub grouping: &'a [u8],
    /// Empty: all rows.
    pub filter: &'a [u8],
}

/// What a client fills in.
#[derive(Clone, Copy, Debug)]
pub struct ScanSpec<'a> {
    pub request: u64,
    pub trans: TransId,
    /// 0: the latest committed rows.
    pub snapshot: Epoch,
    pub table: TableId,
    pub schema_version: u32,
    pub index: IndexNo,
    pub reverse: bool,
    pub with_keys: bool,
    pub with_pending: bool,
    pub with_moment: bool,
    pub rows_max: u32,
    pub bytes_max: u32,
    pub low: Bound<&'a [u8]>,
    pub high: Bound<&'a [u8]>,
    /// `None`: whole rows.
    pub columns: Option<&'a [u16]>,
    pub partitions: &'a [PartitionId],
    pub aggregates: &'a [Aggregate],
    /// Empty: rows as they are.
    pub grouping: &'a [u8],
    /// Empty: all rows.
    pub filter: &'a [u8],
}

impl ScanSpec<'_> {
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut flags = (u8::from(self.reverse) * REVERSE)
            | (u8::from(self.with_keys) * WITH_KEYS)
            | (u8::from(self.with_pending) * WITH_PENDING)
            | (u8::from(self.with_moment) * WITH_MOMENT);
        let mut bound = |b: &Bound<&[u8]>, present, excluded| match b {
            Bound::Unbounded => {}
            Bound::Included(_) => flags |= present,
            Bound::Excluded(_) => flags |= present | excluded,
        };
        bound(&self.low, LOW_PRESENT, LOW_EXCLUDED);
        bound(&self.high, HIGH_PRESENT, HIGH_EXCLUDED);
        out.put_u64(self.request);
        out.put_trans(self.trans);
        out.put_u64(self.snapshot.0);
        out.put_u32(self.table.0);
        out.put_u32(self.schema_version);
        out.put_u16(self.index.0);
        out.put_u8(flags);
        out.put_u32(self.rows_max);
        out.put_u32(self.bytes_max);
        for b in [&self.low, &self.high] {
            if let Bound::Included(key) | Bound::Excluded(key) = b {
                out.put_short_bytes(key);
            }
        }
        Projection::encode(self.columns, out);
        out.put_u16(self.partitions.len() as u16);
        for p in self.partitions {
            out.put_u16(p.0);
        }
        out.put_u8(self.aggregates.len() as u8);
        for a in self.aggregates {
            out.put_u8(a.function as u8);
            out.put_u16(a.column);
        }
        out.put_short_bytes(self.grouping);
        out.put_bytes(self.filter);
    }
}

impl<'a> ScanReq<'a> {
    pub fn decode(body: &'a [u8]) -> Result<ScanReq<'a>, DecodeError> {
        let mut r = Reader::new(body);
        let request = r.u64()?;
        let trans = r.trans()?;
        let snapshot = r.epoch()?;
        let table = TableId(r.u32()?);
        let schema_version = r.u32()?;
        let index = IndexNo(r.u16()?);
        let flags = r.u8()?;
        let rows_max = r.u32()?.clamp(1, SCAN_ROWS_MAX);
        let bytes_max = r.u32()?.clamp(1, SCAN_BYTES_MAX);
        let mut bound = |present, excluded| -> Result<Bound<&'a [u8]>, DecodeError> {
            if flags & present == 0 {
                return Ok(Bound::Unbounded);
            }
            let key = r.short_bytes()?;
            Ok(if flags & excluded != 0 { Bound::Excluded(key) } else { Bound::Included(key) })
        };
        let low = bound(LOW_PRESENT, LOW_EXCLUDED)?;
        let high = bound(HIGH_PRESENT, HIGH_EXCLUDED)?;
        let projection = Projection::decode(&mut r)?;
        let partition_count = r.u16()?;
        if partition_count > limits::PARTITIONS_MAX {
            return Err(DecodeError);
        }
        let partitions = r.bytes(2 * usize::from(partition_count))?;
        let aggregate_count = usize::from(r.u8()?);
        if aggregate_count > AGGREGATES_MAX {
            return Err(DecodeError);
        }
        let aggregates = r.bytes(3 * aggregate_count)?;
        if aggregates.as_chunks::<3>().0.iter().any(|a| AggregateFunction::from_u8(a[0]).is_none()) {
            return Err(DecodeError);
        }
        let grouping = r.short_bytes()?;
        let filter = r.rest();
        Ok(ScanReq {
            request,
            trans,
            snapshot,
            table,
            schema_version,
            index,
            reverse: flags & REVERSE != 0,
            with_keys: flags & WITH_KEYS != 0,
            with_pending: flags & WITH_PENDING != 0,
            with_moment: flags & WITH_MOMENT != 0,
            rows_max,
            bytes_max,
            low,
            high,
            projection,
            partitions,
            aggregates,
            grouping,
            filter,
        })
    }
    pub fn partitions(&self) -> impl Iterator<Item = PartitionId> + 'a {
        self.partitions.as_chunks::<2>().0.iter().map(|&b| PartitionId(u16::from_le_bytes(b)))
    }
    pub fn aggregates(&self) -> impl Iterator<Item = Aggregate> + 'a {
        self.aggregates.as_chunks::<3>().0.iter().filter_map(|&[function, low, high]| {
            Some(Aggregate { function: AggregateFunction::from_u8(function)?, column: u16::from_le_bytes([low, high]) })
        })
    }
}

/// Answer: `request u64, more u8, count u32, resume short bytes, count x (row length u32, key length u16, row, key)`.
#[derive(Clone, Copy, Debug)]
pub struct ScanConf<'a> {
    pub request: u64,
    /// Ask again from `resume`, excluded.
    pub more: bool,
    pub count: u32,
    pub resume: &'a [u8],
    rows: &'a [u8],
}

impl<'a> ScanConf<'a> {
    /// Rows are collected apart (`rows`, by [`ScanConf::push_row`]) because the head is known only at the end.
    pub fn encode(out: &mut Vec<u8>, request: u64, more: bool, count: u32, resume: &[u8], rows: &[u8]) {
        out.put_u64(request);
        out.put_u8(u8::from(more));
        out.put_u32(count);
        out.put_short_bytes(resume);
        out.put_bytes(rows);
    }
    pub fn push_row(rows: &mut Vec<u8>, key: &[u8], write: impl FnOnce(&mut Vec<u8>)) {
        let at = rows.len();
        rows.put_u32(0);
        rows.put_u16(key.len() as u16);
        write(rows);
        let length = (rows.len() - at - 6) as u32;
        patch_u32(rows, at, length);
        rows.put_bytes(key);
    }
    pub fn decode(body: &'a [u8]) -> Result<ScanConf<'a>, DecodeError> {
        let mut r = Reader::new(body);
        Ok(ScanConf {
            request: r.u64()?,
            more: r.u8()? != 0,
            count: r.u32()?,
            resume: r.short_bytes()?,
            rows: r.rest(),
        })
    }
    /// Rows and entry keys (empty unless asked for).
    pub fn rows(&self) -> impl Iterator<Item = Result<(&'a [u8], &'a [u8]), DecodeError>> {
        let mut r = Reader::new(self.rows);
        (0..self.count).map(move |_| {
            let row_length = r.u32()? as usize;
            let key_length = usize::from(r.u16()?);
            Ok((r.bytes(row_length)?, r.bytes(key_length)?))
        })
    }
}
