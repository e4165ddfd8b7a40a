//! Where the rows of a table come from: keys, ranges of an index, some at a time.

use std::{pin::pin, rc::Rc};

use apus_client::{ANY_MOMENT, Moment, ReadBatch, Rows, ScanRequest, Snapshot};
use apus_eval::grouping::key_columns;
use apus_types::{Epoch, IndexNo, TableSchema, Value, schema};

use super::{ALL_BATCH_ROWS, BATCH_ROWS, RANGES_AT_ONCE, Seen, join_all, listed::ListedRows};
use crate::{
    catalog::Table,
    errors,
    exec::Cluster,
    plan::access::{Access, EncodedRange, Path, binding::bounds_of},
    session::{Done, buffers::Scratch},
};

/// Batches of rows along a bound path (`s.bound`), delivered in `s.rows`.
#[allow(clippy::large_enum_variant)] // lives on the stack of one statement; a box would be an allocation for each scan
pub enum Source {
    Points {
        done: bool,
        /// The entry of a unique index was read before its row, which may not have been the entry's any more.
        in_doubt: bool,
    },
    Scan(apus_client::ScanCursor),
    /// Of a union, the next range last; and what they are read at.
    Scans(Vec<RangeScan>, Option<Rc<Snapshot>>),
    /// By the entries of a multi-valued index.
    Listed(ListedRows),
}

/// One range of a union; the first batches of all are asked for together.
pub struct RangeScan {
    cursor: apus_client::ScanCursor,
    first: Option<(Rows, bool)>,
}

impl RangeScan {
    async fn start(mut cursor: apus_client::ScanCursor) -> Done<RangeScan> {
        let mut rows = Rows::default();
        let some = cursor.next_batch(&mut rows).await?;
        Ok(RangeScan { cursor, first: Some((rows, some)) })
    }
    pub async fn next_batch(&mut self, rows: &mut Rows) -> Done<bool> {
        match self.first.take() {
            Some((first, some)) => {
                *rows = first;
                Ok(some)
            }
            None => Ok(self.cursor.next_batch(rows).await?),
        }
    }
}

impl Source {
    #[allow(clippy::too_many_arguments)]
    pub async fn open(
        cluster: Cluster<'_>,
        s: &mut Scratch,
        table: &Table,
        access: &Access,
        columns: Option<&[u16]>,
        seen: Seen,
        ordered: bool,
        reverse: bool,
        limit: u64,
    ) -> Done<Source> {
        let schema = &table.schema;
        if let (Path::Listed(listed), false) = (&access.path, s.bound.fallback) {
            match Box::pin(ListedRows::open(cluster, s, table, listed.index, seen)).await? {
                Some(rows) => return Ok(Source::Listed(rows)),
                None => s.bound.ranges.clear(),
            }
        }
        match &access.path {
            Path::Points { index, .. } if !s.bound.fallback => {
                if s.bound.points.len() > 1 && seen.is_unsettled() {
                    read_points_at_once(cluster, s, table, *index, columns, seen).await?;
                    return Ok(Source::Points { done: false, in_doubt: false });
                }
                pin!(point_keys(cluster, s, table, *index, seen, false)).await?;
                pin!(read_keys(cluster, s, table, columns, seen, false)).await?;
                let in_doubt = index.is_some() && !s.keys.is_empty() && seen.snapshot == Epoch(0);
                Ok(Source::Points { done: false, in_doubt })
            }
            path => {
                let mut request = seen.scan(schema);
                request.index = match path {
                    Path::Range { index, .. } | Path::Union { index, .. } => *index,
                    Path::Points { .. } | Path::Listed(_) => IndexNo(0),
                };
                note_ranges(cluster, s, schema, request.index);
                (request.low, request.high) = s.bound.bounds();
                request.filter = &s.bound.filter;
                request.grouping = &s.bound.grouping;
                let first = schema.index_columns(request.index).and_then(|columns| columns.first());
                request.groups_follow = key_columns(&s.bound.grouping).any(|column| Some(&column) == first);
                request.columns = columns;
                request.ordered = ordered;
                request.reverse = reverse;
                request.limit = limit;
                request.batch_rows =
                    if limit == u64::MAX { ALL_BATCH_ROWS } else { limit.min(u64::from(BATCH_ROWS)) as u32 };
                if s.bound.ranges.is_empty() {
                    return Ok(Source::Scan(cluster.client.scan(&request)));
                }
                request.one_moment = false;
                let scans = open_ranges(cluster, &s.bound.ranges, &request).await?;
                let moments = scans.iter().map(|scan| scan.first.as_ref().and_then(|_| scan.cursor.moment()));
                let all = moments.reduce(|a, b| Some(a?.and(b?))).flatten();
                if !seen.is_unsettled() || all.is_some_and(Moment::is_one) {
                    return Ok(Source::Scans(scans, None));
                }
                let held = cluster.client.shared_snapshot().await?;
                request.snapshot = held.epoch();
                Ok(Source::Scans(open_ranges(cluster, &s.bound.ranges, &request).await?, Some(held)))
            }
        }
    }

    /// The next batch; false at the end.
    pub async fn next(
        &mut self,
        cluster: Cluster<'_>,
        s: &mut Scratch,
        table: &Table,
        columns: Option<&[u16]>,
    ) -> Done<bool> {
        match self {
            Source::Listed(rows) => rows.next(cluster, s, table, columns).await,
            Source::Points { done, .. } => Ok(!std::mem::replace(done, true)),
            Source::Scan(cursor) => Ok(cursor.next_batch(&mut s.rows).await?),
            Source::Scans(cursors, _) => {
                while let Some(cursor) = cursors.last_mut() {
                    if cursor.next_batch(&mut s.rows).await? {
                        return Ok(true);
                    }
                    cursors.pop();
                }
                Ok(false)
            }
        }
    }

    /// Nothing was found by a unique index, although it had an entry: true where it was read again, entry and row of one moment.
    pub async fn make_sure(
        &mut self,
        cluster: Cluster<'_>,
        s: &mut Scratch,
        table: &Table,
        access: &Access,
        columns: Option<&[u16]>,
        seen: Seen,
    ) -> Done<bool> {
        let (Source::Points { in_doubt: true, .. }, Path::Points { index, .. }) = (&*self, &access.path) else {
            return Ok(false);
        };
        read_points_at_once(cluster, s, table, *index, columns, seen).await?;
        *self = Source::Points { done: false, in_doubt: false };
        Ok(true)
    }
}

/// The bound ranges are read.
fn note_ranges(cluster: Cluster<'_>, s: &Scratch, schema: &TableSchema, index: IndexNo) {
    if !cluster.reads.are_kept() {
        return;
    }
    if s.bound.ranges.is_empty() {
        cluster.reads.range(schema, index, &s.bound.range());
    }
    s.bound.ranges.iter().for_each(|range| cluster.reads.range(schema, index, range));
}

/// The first batches of the first ranges are asked for.
pub async fn open_ranges(
    cluster: Cluster<'_>,
    ranges: &[EncodedRange],
    request: &ScanRequest<'_>,
) -> Done<Vec<RangeScan>> {
    let cursor = |(low, high): &EncodedRange| {
        let (low, high) = bounds_of(low.as_deref(), high.as_deref());
        cluster.client.scan(&ScanRequest { low, high, ..*request })
    };
    let (soon, later) = ranges.split_at(ranges.len().min(RANGES_AT_ONCE));
    let wait = |cursor| RangeScan { cursor, first: None };
    let mut scans: Vec<RangeScan> = later.iter().rev().map(cursor).map(wait).collect();
    let started = soon.iter().rev().map(cursor).map(|c| Box::pin(RangeScan::start(c)));
    for scan in join_all(started.collect()).await {
        scans.push(scan?);
    }
    Ok(scans)
}

/// Reads the rows of the bound points, and the entries of the unique index that lead to them, at one moment: as they come, or else at a snapshot.
async fn read_points_at_once(
    cluster: Cluster<'_>,
    s: &mut Scratch,
    table: &Table,
    index: Option<usize>,
    columns: Option<&[u16]>,
    seen: Seen,
) -> Done<()> {
    let entries = point_keys(cluster, s, table, index, seen, true).await?;
    let rows = read_keys(cluster, s, table, columns, seen, true).await?;
    if !entries.and(rows).is_one() {
        let held = cluster.client.shared_snapshot().await?;
        let seen = Seen { snapshot: held.epoch(), ..seen };
        point_keys(cluster, s, table, index, seen, false).await?;
        read_keys(cluster, s, table, columns, seen, false).await?;
    }
    Ok(())
}

/// Reads the rows of `s.keys`.
pub async fn read_keys(
    cluster: Cluster<'_>,
    s: &mut Scratch,
    table: &Table,
    columns: Option<&[u16]>,
    Seen { trans, snapshot, .. }: Seen,
    tells: bool,
) -> Done<Moment> {
    if s.keys.is_empty() {
        s.rows.clear();
        return Ok(ANY_MOMENT);
    }
    let schema = &table.schema;
    let (table, schema_version) = (schema.id, schema.version);
    let request = ReadBatch { trans, snapshot, table, schema_version, columns, keys: &s.keys };
    if tells {
        return Ok(cluster.client.read_telling(&request, &mut s.rows).await?);
    }
    pin!(cluster.client.read(&request, &mut s.rows)).await?;
    cluster.reads.keys(schema, &s.keys, &s.rows);
    Ok(ANY_MOMENT)
}

/// Fills `s.keys` with the primary keys of the bound points; through a unique index by its hidden table.
async fn point_keys(
    cluster: Cluster<'_>,
    s: &mut Scratch,
    table: &Table,
    index: Option<usize>,
    Seen { trans, snapshot, .. }: Seen,
    tells: bool,
) -> Done<Moment> {
    s.keys.clear();
    let Some(position) = index else {
        for point in s.bound.points.iter() {
            s.keys.push(&table.schema, point)?;
        }
        return Ok(ANY_MOMENT);
    };
    let hidden = table
        .hidden
        .get(position)
        .and_then(|h| h.as_ref())
        .ok_or_else(|| errors::internal("a unique index without its table"))?;
    for point in s.bound.points.iter() {
        s.keys.push(hidden, point)?;
    }
    let (table, schema_version) = (hidden.id, hidden.version);
    let request = ReadBatch { trans, snapshot, table, schema_version, columns: None, keys: &s.keys };
    let moment = match tells {
        true => cluster.client.read_telling(&request, &mut s.rows).await?,
        false => {
            pin!(cluster.client.read(&request, &mut s.rows)).await?;
            cluster.reads.keys(hidden, &s.keys, &s.rows);
            ANY_MOMENT
        }
    };
    s.keys.clear();
    for row in s.rows.iter().flatten() {
        let hash = hidden.layout().value(row, schema::HIDDEN_HASH_COLUMN);
        let primary = hidden.layout().raw(row, schema::HIDDEN_PK_COLUMN);
        match hash {
            Value::UInt(hash) => s.keys.push_hashed(hash, primary)?,
            _ => return Err(errors::internal("a unique index row without hash").into()),
        }
    }
    Ok(moment)
}
