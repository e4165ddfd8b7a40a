//! SELECT: rows by key or range, with or without locks.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
};

use apus_client::{PartialAggregate, ReadBatch, ScanRequest};
use apus_signal::{
    scan::{Aggregate, AggregateFunction},
    tc::{ALLOW_MISSING, NO_WAIT, OpStatus, SKIP_LOCKED},
};
use apus_types::{IndexNo, RowLayout, TransId, Value, key, schema};

use super::{Cluster, execute, next_savepoint, reader, sink::Sink};
use crate::{
    engine::{
        catalog::Table,
        errors,
        expr::{Context, Datum},
        plan::{
            Select,
            access::{Access, EncodedRange, Path, bounds_of},
            select::Lock,
        },
        session::{Done, Scratch, Session},
    },
    server::Output,
};

/// Rows per batch of a scan.
const BATCH_ROWS: u32 = 1024;
/// Rows locked per batch.
const LOCK_BATCH: usize = 512;
/// Ranges of a union aggregated at once.
const RANGES_AT_ONCE: usize = 64;

pub async fn select(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    plan: &Select,
    params: &[Datum<'_>],
    out: &mut Output<'_>,
) -> Done<u64> {
    let Some(table) = &plan.table else { return Ok(without_table(session, plan, params, out)?) };
    if let Some(lock) = plan.lock {
        let access = plan.access.as_ref().ok_or_else(|| errors::internal("a table without a path"))?;
        let keys = find_keys(cluster, session, s, table, access, params, plan.in_order && plan.reverse).await?;
        let locked = lock_rows(cluster, session, s, table, &keys, Some(lock)).await?;
        let mut sink = Sink::new(plan, params, &session.env)?;
        out.begin_rows(&plan.defs);
        for (_, row) in &locked {
            let keep = match &access.full {
                Some(f) => f.passes(&sink.context(row))?,
                None => true,
            };
            if keep && !sink.row(row, out)? {
                break;
            }
        }
        sink.finish(out)?;
        return Ok(sink.sent);
    }
    let trans = reader(session, &table.schema);
    let access = plan.access.as_ref().ok_or_else(|| errors::internal("a table without a path"))?;
    let mut sink = Sink::new(plan, params, &session.env)?;
    access.path.bind(&table.schema, &sink.context(&[]), &mut s.bound)?;
    let exact = s.bound.exact && !matches!(access.path, Path::Points { index: Some(_), .. });
    let filter = if exact { &access.rest } else { &access.full };
    if let (Some(list), true, true) =
        (&plan.pushdown, exact && !s.bound.empty, matches!(access.path, Path::Range { .. } | Path::Union { .. }))
    {
        let mut request = ScanRequest::all(table.schema.id, table.schema.version);
        request.trans = trans;
        if let Path::Range { index, .. } | Path::Union { index, .. } = &access.path {
            request.index = *index;
        }
        let mut partials = Vec::with_capacity(list.len());
        if s.bound.ranges.is_empty() {
            (request.low, request.high) = s.bound.bounds();
            cluster.client.aggregate(&request, list, &mut partials).await?;
        } else {
            aggregate_ranges(cluster, &request, &s.bound.ranges, list, &mut partials).await?;
        }
        let values = list.iter().zip(&partials).map(|(a, p)| match a.function {
            AggregateFunction::CountRows | AggregateFunction::CountValues => Datum::Int(p.count as i64),
            AggregateFunction::Sum => p.value.map_or(Datum::Null, |unscaled| Datum::Decimal { unscaled, scale: 0 }),
            AggregateFunction::Min | AggregateFunction::Max => match p.value {
                None => Datum::Null,
                Some(n) => i64::try_from(n).map_or(Datum::UInt(n as u64), Datum::Int),
            },
        });
        let values: Vec<Datum<'static>> = values.collect();
        out.begin_rows(&plan.defs);
        sink.aggregated(values, out)?;
        return Ok(sink.sent);
    }
    out.begin_rows(&plan.defs);
    if !s.bound.empty && sink.wanted() > 0 {
        let mut wanted = if filter.is_none() { sink.wanted() } else { u64::MAX };
        wanted = wanted.max(1);
        let ordered = plan.in_order && !plan.order.is_empty();
        let mut source =
            Source::open(cluster, s, table, access, plan.columns.as_deref(), trans, ordered, plan.reverse, wanted)
                .await?;
        'all: while source.next(s).await? {
            for row in s.rows.iter().flatten() {
                let keep = match filter {
                    Some(f) => f.passes(&sink.context(row))?,
                    None => true,
                };
                if keep && !sink.row(row, out)? {
                    break 'all;
                }
            }
            out.flush_if_full().await?;
        }
    }
    sink.finish(out)?;
    Ok(sink.sent)
}

/// Aggregates over disjoint ranges, all asked for at once.
async fn aggregate_ranges(
    cluster: Cluster<'_>,
    request: &ScanRequest<'_>,
    ranges: &[EncodedRange],
    list: &[Aggregate],
    out: &mut Vec<PartialAggregate>,
) -> Done<()> {
    out.resize(list.len(), PartialAggregate::default());
    for some in ranges.chunks(RANGES_AT_ONCE) {
        let asked = some.iter().map(|(low, high)| {
            let (low, high) = bounds_of(low.as_deref(), high.as_deref());
            let request = ScanRequest { low, high, ..*request };
            Box::pin(async move {
                let mut partials = Vec::with_capacity(list.len());
                cluster.client.aggregate(&request, list, &mut partials).await.map(|()| partials)
            })
        });
        for partials in join_all(asked.collect()).await {
            for ((sum, part), aggregate) in out.iter_mut().zip(partials?).zip(list) {
                sum.count += part.count;
                sum.value = match (sum.value, part.value, aggregate.function) {
                    (Some(a), Some(b), AggregateFunction::Sum) => Some(a + b),
                    (Some(a), Some(b), AggregateFunction::Min) => Some(a.min(b)),
                    (Some(a), Some(b), _) => Some(a.max(b)),
                    (a, b, _) => a.or(b),
                };
            }
        }
    }
    Ok(())
}

/// Runs futures together and returns their results in order.
async fn join_all<F: Future + Unpin>(mut futures: Vec<F>) -> Vec<F::Output> {
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

fn without_table(session: &Session, plan: &Select, params: &[Datum<'_>], out: &mut Output<'_>) -> errors::Result<u64> {
    let mut sink = Sink::new(plan, params, &session.env)?;
    out.begin_rows(&plan.defs);
    let keep = match plan.access.as_ref().and_then(|a| a.full.as_ref()) {
        Some(f) => f.passes(&sink.context(&[]))?,
        None => true,
    };
    if keep && sink.wanted() > 0 {
        sink.row(&[], out)?;
    }
    sink.finish(out)?;
    Ok(sink.sent)
}

/// Batches of rows along a bound path (`s.bound`), delivered in `s.rows`.
enum Source {
    Points {
        done: bool,
    },
    Scan(Box<apus_client::ScanCursor>),
    /// Of a union, the next range last.
    Scans(Vec<apus_client::ScanCursor>),
}

impl Source {
    async fn open(
        cluster: Cluster<'_>,
        s: &mut Scratch,
        table: &Table,
        access: &Access,
        columns: Option<&[u16]>,
        trans: TransId,
        ordered: bool,
        reverse: bool,
        limit: u64,
    ) -> Done<Source> {
        let schema = &table.schema;
        match &access.path {
            Path::Points { index, .. } if !s.bound.fallback => {
                point_keys(cluster, s, table, *index, trans).await?;
                let request =
                    ReadBatch { trans, table: schema.id, schema_version: schema.version, columns, keys: &s.keys };
                if s.keys.is_empty() {
                    s.rows.clear();
                } else {
                    cluster.client.read(&request, &mut s.rows).await?;
                }
                Ok(Source::Points { done: false })
            }
            path => {
                let mut request = ScanRequest::all(schema.id, schema.version);
                request.trans = trans;
                request.index = match path {
                    Path::Range { index, .. } | Path::Union { index, .. } => *index,
                    Path::Points { .. } => IndexNo(0),
                };
                (request.low, request.high) = s.bound.bounds();
                request.columns = columns;
                request.ordered = ordered;
                request.reverse = reverse;
                request.limit = limit;
                request.batch_rows = limit.min(u64::from(BATCH_ROWS)) as u32;
                if s.bound.ranges.is_empty() {
                    return Ok(Source::Scan(Box::new(cluster.client.scan(&request))));
                }
                let cursor = |(low, high): &EncodedRange| {
                    let (low, high) = bounds_of(low.as_deref(), high.as_deref());
                    cluster.client.scan(&ScanRequest { low, high, ..request })
                };
                Ok(Source::Scans(s.bound.ranges.iter().rev().map(cursor).collect()))
            }
        }
    }

    /// The next batch; false at the end.
    async fn next(&mut self, s: &mut Scratch) -> Done<bool> {
        match self {
            Source::Points { done } => Ok(!std::mem::replace(done, true)),
            Source::Scan(cursor) => Ok(cursor.next_batch(&mut s.rows).await?),
            Source::Scans(cursors) => {
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

/// Fills `s.keys` with the primary keys of the bound points; through a unique index by its hidden table.
async fn point_keys(
    cluster: Cluster<'_>,
    s: &mut Scratch,
    table: &Table,
    index: Option<usize>,
    trans: TransId,
) -> Done<()> {
    s.keys.clear();
    let Some(position) = index else {
        for point in &s.bound.points {
            s.keys.push(&table.schema, point)?;
        }
        return Ok(());
    };
    let hidden = table
        .hidden
        .get(position)
        .and_then(|h| h.as_ref())
        .ok_or_else(|| errors::internal("a unique index without its table"))?;
    for point in &s.bound.points {
        s.keys.push(hidden, point)?;
    }
    let request = ReadBatch { trans, table: hidden.id, schema_version: hidden.version, columns: None, keys: &s.keys };
    cluster.client.read(&request, &mut s.rows).await?;
    s.keys.clear();
    for row in s.rows.iter().flatten() {
        let hash = hidden.layout().value(row, schema::HIDDEN_HASH_COLUMN);
        let primary = hidden.layout().raw(row, schema::HIDDEN_PK_COLUMN);
        match hash {
            Value::UInt(hash) => s.keys.push_hashed(hash, primary)?,
            _ => return Err(errors::internal("a unique index row without hash").into()),
        }
    }
    Ok(())
}

/// Primary keys of the rows that satisfy a condition at the moment, for locking.
pub async fn find_keys(
    cluster: Cluster<'_>,
    session: &Session,
    s: &mut Scratch,
    table: &Table,
    access: &Access,
    params: &[Datum<'_>],
    reverse: bool,
) -> Done<Vec<Vec<u8>>> {
    let schema = &table.schema;
    let layout: &RowLayout = schema.layout();
    let env = &session.env;
    fn context<'c>(
        layout: &'c RowLayout,
        row: &'c [u8],
        params: &'c [Datum<'c>],
        env: &'c crate::engine::expr::Env,
    ) -> Context<'c> {
        Context { layout, row, new_row: None, params, aggregates: &[], env }
    }
    access.path.bind(schema, &context(layout, &[], params, env), &mut s.bound)?;
    if s.bound.empty {
        return Ok(Vec::new());
    }
    if matches!(access.path, Path::Points { index: None, .. }) && !s.bound.fallback {
        return Ok(std::mem::take(&mut s.bound.points));
    }
    let trans = reader(session, schema);
    let mut keys = Vec::new();
    let mut source = Source::open(cluster, s, table, access, None, trans, true, reverse, u64::MAX).await?;
    while source.next(s).await? {
        for row in s.rows.iter().flatten() {
            let keep = match &access.full {
                Some(f) => f.passes(&context(layout, row, params, env))?,
                None => true,
            };
            if keep {
                let mut key = Vec::new();
                key::encode_from_row(schema, &schema.primary_key, row, &mut key)?;
                keys.push(key);
            }
        }
    }
    Ok(keys)
}

/// Locks rows by primary key and returns those that are there, with their keys.
pub async fn lock_rows(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    table: &Table,
    keys: &[Vec<u8>],
    lock: Option<Lock>,
) -> Done<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut locked = Vec::with_capacity(keys.len());
    let exclusive = lock.is_none_or(|l| l.exclusive);
    let wait = match lock {
        Some(Lock { no_wait: true, .. }) => NO_WAIT,
        Some(Lock { skip_locked: true, .. }) => SKIP_LOCKED,
        _ => 0,
    };
    for chunk in keys.chunks(LOCK_BATCH) {
        s.ops.clear();
        for key in chunk {
            s.ops.push_read(&table.schema, exclusive, ALLOW_MISSING | wait, key, None)?;
        }
        let savepoint = next_savepoint(session);
        execute(cluster, session, &s.ops, &mut s.results, savepoint, false).await?;
        for (key, (status, row)) in chunk.iter().zip(s.results.iter()) {
            if status == OpStatus::Done {
                table.schema.layout().check(row)?;
                locked.push((key.clone(), row.to_vec()));
            }
        }
    }
    Ok(locked)
}

/// Materialises a SELECT for INSERT ... SELECT: one value per output.
pub async fn collect(
    cluster: Cluster<'_>,
    session: &Session,
    s: &mut Scratch,
    plan: &Select,
    params: &[Datum<'_>],
) -> Done<Vec<Vec<Datum<'static>>>> {
    if plan.group.is_some() || plan.distinct || !plan.order.is_empty() || plan.limit.is_some() || plan.lock.is_some() {
        return Err(errors::not_supported("INSERT ... SELECT with grouping, DISTINCT, ORDER BY, LIMIT or locks").into());
    }
    let mut collected = Vec::new();
    let mut take = |row: &[u8], filter: Option<&crate::engine::expr::Expr>| -> Done<()> {
        let cx = Context { layout: &plan.layout, row, new_row: None, params, aggregates: &[], env: &session.env };
        let keep = match filter {
            Some(f) => f.passes(&cx)?,
            None => true,
        };
        if keep {
            let values =
                plan.outputs.iter().map(|o| Ok(o.expr.eval(&cx)?.into_owned())).collect::<errors::Result<Vec<_>>>()?;
            collected.push(values);
        }
        Ok(())
    };
    let full = plan.access.as_ref().and_then(|a| a.full.as_ref());
    let (Some(table), Some(access)) = (&plan.table, &plan.access) else {
        take(&[], full)?;
        return Ok(collected);
    };
    let empty = Context { layout: &plan.layout, row: &[], new_row: None, params, aggregates: &[], env: &session.env };
    access.path.bind(&table.schema, &empty, &mut s.bound)?;
    if !s.bound.empty {
        let trans = reader(session, &table.schema);
        let mut source =
            Source::open(cluster, s, table, access, plan.columns.as_deref(), trans, false, false, u64::MAX).await?;
        while source.next(s).await? {
            for row in s.rows.iter().flatten() {
                take(row, full)?;
            }
        }
    }
    Ok(collected)
}
