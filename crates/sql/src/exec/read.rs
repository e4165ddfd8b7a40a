//! SELECT: rows by key or range, with or without locks.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    rc::Rc,
    task::Poll,
};

use apus_client::{ANY_MOMENT, Moment, ReadBatch, Rows, ScanRequest, Snapshot};
use apus_types::{Epoch, ErrorCode, IndexNo, RowLayout, TableSchema, TransId, Value, schema};

use super::{
    Cluster, change_joined,
    lock::{self, Hunt, Wanted},
    query, reader,
    sink::Sink,
    target::Target,
};
use crate::{
    admin::information_schema,
    catalog::Table,
    errors,
    expr::{
        Context, Env,
        probe::{self, Of},
    },
    plan::{
        Select,
        access::{Access, EncodedRange, Path, bounds_of},
        pushed_group::Partials,
    },
    server::Output,
    session::{Done, Fail, Scratch, Session},
    value::datum::Datum,
};

/// Rows per batch of a scan.
const BATCH_ROWS: u32 = 1024;
/// Ranges of a union asked for at once.
pub const RANGES_AT_ONCE: usize = 64;

/// What a read sees.
#[derive(Clone, Copy)]
pub struct Seen {
    /// Whose own changes.
    pub trans: TransId,
    /// The rows of a snapshot; 0: the latest committed ones.
    pub snapshot: Epoch,
    /// Of these all at one moment.
    pub one_moment: bool,
}

impl Seen {
    pub fn scan<'a>(self, schema: &TableSchema) -> ScanRequest<'a> {
        let Seen { trans, snapshot, one_moment } = self;
        ScanRequest { trans, snapshot, one_moment, ..ScanRequest::all(schema.id, schema.version) }
    }
    fn is_unsettled(self) -> bool {
        self.one_moment && self.snapshot == Epoch(0)
    }
}

pub async fn select(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    plan: &Select,
    params: &[Datum<'_>],
    out: &mut Output<'_>,
) -> Done<u64> {
    if let Some(locked) = &plan.locked {
        out.begin_rows_of(&plan.defs);
        return Box::pin(change_joined::select(cluster, session, s, plan, locked, params, out)).await;
    }
    if plan.join.is_some() {
        return Box::pin(query::select(cluster, session, s, plan, params, out)).await;
    }
    let Some(table) = &plan.table else {
        let mut sink = Sink::new(plan, params, &session.env, Default::default())?;
        out.begin_rows_of(&plan.defs);
        without_table(plan, &mut sink, out)?;
        sink.finish(out).await?;
        return Ok(sink.found);
    };
    let access = plan.access.as_ref().ok_or_else(|| errors::internal("a table without a path"))?;
    if plan.lock.is_some() {
        out.begin_rows_of(&plan.defs);
        return pin!(select_locked(cluster, session, s, plan, table, access, params, out)).await;
    }
    if crate::catalog::information_schema::is_virtual(&table.schema) {
        let mut sink = Sink::new(plan, params, &session.env, Default::default())?;
        out.begin_rows_of(&plan.defs);
        virtual_rows(cluster, plan, table, access, &mut sink, out).await?;
        sink.finish(out).await?;
        return Ok(sink.found);
    }
    let snapshot = session.reading_at(cluster.client).await?;
    if snapshot == Epoch(0)
        && session.own.has_rows()
        && let Some(found) = select_own(session, s, plan, table, access, params, out).await?
    {
        return Ok(found);
    }
    let trans = reader(session, &table.schema).await?;
    let seen = Seen { trans, snapshot, one_moment: true };
    let mut sink = Sink::new(plan, params, &session.env, std::mem::take(&mut s.sink))?;
    out.begin_rows_of(&plan.defs);
    pin!(table_rows(cluster, &session.env, s, seen, plan, table, access, &mut sink, out)).await?;
    sink.finish(out).await?;
    let found = sink.found;
    s.sink = sink.into_buffers();
    Ok(found)
}

/// SELECT of rows that the transaction has locked, by primary key; `None` where it asks for others.
async fn select_own(
    session: &Session,
    s: &mut Scratch,
    plan: &Select,
    table: &Table,
    access: &Access,
    params: &[Datum<'_>],
    out: &mut Output<'_>,
) -> Done<Option<u64>> {
    if !matches!(access.path, Path::Points { index: None, .. }) {
        return Ok(None);
    }
    let schema = &table.schema;
    let nothing = Context {
        layout: &plan.layout,
        row: &[],
        new_row: None,
        params,
        aggregates: &[],
        given: &[],
        env: &session.env,
    };
    access.path.bind(schema, &nothing, &mut s.bound)?;
    let own = |point| session.own.find(schema, point);
    if s.bound.fallback || s.bound.points.is_empty() || !s.bound.points.iter().all(|point| own(point).is_some()) {
        return Ok(None);
    }
    let filter = if s.bound.exact { &access.rest } else { &access.full };
    let mut sink = Sink::new(plan, params, &session.env, std::mem::take(&mut s.sink))?;
    out.begin_rows_of(&plan.defs);
    for row in s.bound.points.iter().filter_map(own) {
        let row = match &plan.columns {
            Some(columns) => {
                s.row.clear();
                schema.layout().project(row, columns, &plan.layout, &mut s.row);
                s.row.as_slice()
            }
            None => row,
        };
        let keep = match filter {
            Some(f) => f.passes(&sink.context(row))?,
            None => true,
        };
        if keep && (sink.wanted() == 0 || !sink.row(row, out)?) {
            break;
        }
        sink.settle().await?;
        out.flush_if_full().await?;
    }
    sink.finish(out).await?;
    let found = sink.found;
    s.sink = sink.into_buffers();
    Ok(Some(found))
}

/// Gives the rows of a block's table to its sink, or what data nodes made of them.
#[allow(clippy::too_many_arguments)]
pub async fn table_rows<T: Target>(
    cluster: Cluster<'_>,
    env: &Env,
    s: &mut Scratch,
    seen: Seen,
    plan: &Select,
    table: &Table,
    access: &Access,
    sink: &mut Sink<'_>,
    out: &mut T,
) -> Done<()> {
    env.count(probe::of(access, Of::Read), 1, 0);
    env.count(probe::of(access, Of::Matched), 1, 0);
    access.path.bind(&table.schema, &sink.context(&[]), &mut s.bound)?;
    access.pushed.bind(&table.schema, &sink.context(&[]), &mut s.bound)?;
    let filter = access.unanswered(&s.bound);
    if s.bound.empty || sink.wanted() == 0 {
        return Ok(());
    }
    let columns = plan.columns.as_deref();
    if let (Some(pushed), None, true) = (&plan.pushdown, filter, !matches!(access.path, Path::Points { .. })) {
        let (mut grouping, group) = (std::mem::take(&mut s.bound.grouping), plan.group.as_ref());
        let partials = pushed.bind(group, columns.unwrap_or(&[]), &sink.context(&[]), &mut grouping);
        s.bound.grouping = grouping;
        if let (Some(partials), Some(_)) = (partials, group) {
            if pin!(partial_groups(cluster, env, s, seen, plan, table, access, &partials, sink)).await? {
                return Ok(());
            }
            sink.forget_groups();
            s.bound.grouping.clear();
        }
    }
    let mut wanted = if filter.is_none() { sink.wanted() } else { u64::MAX };
    wanted = wanted.max(1);
    let ordered = plan.in_order && !plan.order.is_empty();
    let mut source =
        pin!(Source::open(cluster, s, table, access, columns, seen, ordered, plan.reverse, wanted)).await?;
    let mut is_found = false;
    loop {
        if !pin!(source.next(s)).await? {
            if is_found || !source.make_sure(cluster, s, table, access, plan.columns.as_deref(), seen).await? {
                break;
            }
            continue;
        }
        env.may_go_on()?;
        let (mut read, mut kept, mut is_over) = (0, 0, false);
        for row in s.rows.iter().flatten() {
            read += 1;
            let keep = match filter {
                Some(f) => f.passes(&sink.context(row))?,
                None => true,
            };
            is_found |= keep;
            kept += u64::from(keep);
            if keep && !sink.row(row, out)? {
                is_over = true;
                break;
            }
        }
        env.count(probe::of(access, Of::Read), 0, read);
        env.count(probe::of(access, Of::Matched), 0, kept);
        if is_over {
            break;
        }
        sink.settle().await?;
        out.flush_if_full().await?;
    }
    Ok(())
}

/// Gives the sink the groups that data nodes make of a path's rows; false where these cannot be had so: a value does not fit, or there is no memory for all of them.
#[allow(clippy::too_many_arguments)]
async fn partial_groups(
    cluster: Cluster<'_>,
    env: &Env,
    s: &mut Scratch,
    seen: Seen,
    plan: &Select,
    table: &Table,
    access: &Access,
    partials: &Partials,
    sink: &mut Sink<'_>,
) -> Done<bool> {
    let columns = plan.columns.as_deref();
    let mut source = match pin!(Source::open(cluster, s, table, access, columns, seen, false, false, u64::MAX)).await {
        Err(Fail::Client(e)) if e.code == ErrorCode::ValueOutOfRange => return Ok(false),
        opened => opened?,
    };
    loop {
        let has_more = match source.next(s).await {
            Err(Fail::Client(e)) if e.code == ErrorCode::ValueOutOfRange => return Ok(false),
            more => more?,
        };
        if !has_more {
            return Ok(true);
        }
        env.may_go_on()?;
        for at in 0..s.rows.len() {
            sink.partial(s.rows.row(at).unwrap_or(&[]), s.rows.key(at), partials)?;
        }
        env.count(probe::of(access, Of::Read), 0, s.rows.len() as u64);
        env.count(probe::of(access, Of::Matched), 0, s.rows.len() as u64);
        env.breathe(s.rows.len()).await?;
        if sink.is_full() {
            return Ok(false);
        }
    }
}

/// A row of INFORMATION_SCHEMA in the layout of these columns.
pub fn virtual_row(
    schema: &TableSchema,
    values: &[Datum<'_>],
    columns: Option<&[u16]>,
    layout: &RowLayout,
    row: &mut Vec<u8>,
) -> errors::Result<()> {
    let pairs: Vec<_> = values.iter().zip(&schema.columns).collect();
    let fetched = |c: &u16| {
        pairs.get(usize::from(*c)).map_or(Value::Null, |(v, c)| crate::catalog::information_schema::cell(c.ty, v))
    };
    let stored: Vec<Value<'_>> = match columns {
        Some(columns) => columns.iter().map(fetched).collect(),
        None => (0..schema.columns.len() as u16).map(|c| fetched(&c)).collect(),
    };
    layout.encode(&stored, row).map_err(|e| errors::from_code(e, ""))
}

/// Gives the rows of a table of INFORMATION_SCHEMA to a sink.
pub async fn virtual_rows<T: Target>(
    cluster: Cluster<'_>,
    plan: &Select,
    table: &Table,
    access: &Access,
    sink: &mut Sink<'_>,
    out: &mut T,
) -> errors::Result<()> {
    let schema = &table.schema;
    let mut row = Vec::new();
    for values in
        information_schema::rows_of(cluster.engine, schema, plan.columns.as_deref(), cluster.catalog, sink.env())
            .await?
    {
        row.clear();
        virtual_row(schema, &values, plan.columns.as_deref(), &plan.layout, &mut row)?;
        let keep = match &access.full {
            Some(f) => f.passes(&sink.context(&row))?,
            None => true,
        };
        if keep && (sink.wanted() == 0 || !sink.row(&row, out)?) {
            break;
        }
        sink.settle().await?;
        out.flush_if_full().await?;
    }
    Ok(())
}

/// The one row of a block without a table.
pub fn without_table<T: Target>(plan: &Select, sink: &mut Sink<'_>, out: &mut T) -> errors::Result<()> {
    let keep = match plan.access.as_ref().and_then(|a| a.full.as_ref()) {
        Some(f) => f.passes(&sink.context(&[]))?,
        None => true,
    };
    if keep && sink.wanted() > 0 {
        sink.row(&[], out)?;
    }
    Ok(())
}

/// SELECT ... FOR UPDATE or FOR SHARE.
#[allow(clippy::too_many_arguments)]
pub async fn select_locked<T: Target>(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    plan: &Select,
    table: &Table,
    access: &Access,
    params: &[Datum<'_>],
    out: &mut T,
) -> Done<u64> {
    let rows = match (lock::limit(session, &plan.layout, plan.limit.as_ref(), params)?, &plan.group) {
        (Some(n), None) if !plan.distinct && !plan.counts_all => {
            Some(n.saturating_add(lock::limit(session, &plan.layout, plan.offset.as_ref(), params)?.unwrap_or(0)))
        }
        _ => None,
    };
    let order = if plan.group.is_some() { &[] } else { plan.order.as_slice() };
    let (in_order, reverse) = (plan.in_order, plan.reverse);
    let wanted = Wanted { table, access, order, in_order, reverse, lock: plan.lock, params, strict: false };
    let mut hunt = Hunt::new(s, wanted, rows);
    while pin!(hunt.next(cluster, session, s)).await? {}
    let mut sink = Sink::new(plan, params, &session.env, std::mem::take(&mut s.sink))?;
    for i in 0..s.locked.len() {
        if sink.wanted() == 0 || !sink.row(s.locked.payload(i), out)? {
            break;
        }
        sink.settle().await?;
        out.flush_if_full().await?;
    }
    s.locked.clear();
    sink.finish(out).await?;
    let found = sink.found;
    s.sink = sink.into_buffers();
    Ok(found)
}

/// Runs futures together and returns their results in order.
pub async fn join_all<F: Future + Unpin>(mut futures: Vec<F>) -> Vec<F::Output> {
    let mut results: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    poll_fn(|cx| {
        let mut all = true;
        for (future, result) in futures.iter_mut().zip(&mut results).filter(|(_, r)| r.is_none()) {
            match Pin::new(future).poll(cx) {
                Poll::Ready(value) => *result = Some(value),
                Poll::Pending => all = false,
            }
        }
        if all { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    results.into_iter().flatten().collect()
}

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
    async fn next_batch(&mut self, rows: &mut Rows) -> Done<bool> {
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
                    Path::Points { .. } => IndexNo(0),
                };
                note_ranges(cluster, s, schema, request.index);
                (request.low, request.high) = s.bound.bounds();
                request.filter = &s.bound.filter;
                request.grouping = &s.bound.grouping;
                request.columns = columns;
                request.ordered = ordered;
                request.reverse = reverse;
                request.limit = limit;
                request.batch_rows = limit.min(u64::from(BATCH_ROWS)) as u32;
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
    pub async fn next(&mut self, s: &mut Scratch) -> Done<bool> {
        match self {
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
}

impl Source {
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
async fn open_ranges(cluster: Cluster<'_>, ranges: &[EncodedRange], request: &ScanRequest<'_>) -> Done<Vec<RangeScan>> {
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
async fn read_keys(
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
