//! SELECT: rows by key or range, with or without locks.

mod listed;
pub mod source;

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::Poll,
};

use apus_client::ScanRequest;
use apus_types::{Epoch, ErrorCode, RowLayout, TableSchema, TransId, Value};

use self::source::Source;
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
        access::{Access, Path},
        pushed_group::Partials,
    },
    server::Output,
    session::{Done, Fail, Session, buffers::Scratch},
    value::datum::Datum,
};

/// Rows per batch of a scan.
const BATCH_ROWS: u32 = 1024;
/// The same of a scan whose rows are all wanted.
const ALL_BATCH_ROWS: u32 = 2048;
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
    // Nobody else changes a temporary table, which may be younger than the snapshot.
    let snapshot = match table.is_temporary() {
        true => Epoch(0),
        false => session.reading_at(cluster.client).await?,
    };
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
    access.path.bind(table, &nothing, &mut s.bound)?;
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
    access.path.bind(table, &sink.context(&[]), &mut s.bound)?;
    access.pushed.bind(&table.schema, &sink.context(&[]), &mut s.bound)?;
    let filter = access.unanswered(&s.bound);
    if s.bound.empty || sink.wanted() == 0 {
        return Ok(());
    }
    let columns = plan.columns.as_deref();
    if let (Some(pushed), None, true) =
        (&plan.pushdown, filter, !matches!(access.path, Path::Points { .. } | Path::Listed(_)))
    {
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
        if !pin!(source.next(cluster, s, table, columns)).await? {
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
        let has_more = match source.next(cluster, s, table, columns).await {
            Err(Fail::Client(e)) if e.code == ErrorCode::ValueOutOfRange => return Ok(false),
            more => more?,
        };
        if !has_more {
            return Ok(true);
        }
        env.may_go_on()?;
        sink.partials(&s.rows, partials)?;
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
