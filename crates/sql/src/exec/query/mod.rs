//! Query blocks that are more than one table: joins, subqueries, derived tables.
//!
//! Rows are pushed through the steps of a [`Join`](crate::plan::query::Join) in batches ([`pipeline`]); the last step feeds the block's sink,
//! the same as that of a single table. A step reads what it needs for a whole batch at once: keys in one request ([`lookup`]), or all rows of its leaf into a hash table
//! ([`hash`]). Subqueries run once for each distinct set of values that they take from outside ([`subquery`]); derived tables and set operations are
//! kept in memory ([`derived`]).
//!
//! **What it sees.** A statement that is bounded by keys is tried at once; if its answers are not of one moment, or more than [`TRIED_BYTES_MAX`], it is run again at a snapshot, as every
//! other is from the start. Nothing is sent before that is settled.
//!
//! **Memory.** What a statement keeps between steps and can be in a file (hash tables, derived tables) is in memory as long as all of it is at most `apus_query_memory`; then it goes to
//! files ([`gather`], [`partitioned_join`]). What cannot (answers of subqueries, rows of a batch of ranges) may be as much again, and is refused beyond (3170). KILL and max_execution_time are looked at for each batch.

mod derived;
mod gather;
mod hash;
mod json_table;
mod lookup;
mod partitioned_join;
mod pipeline;
mod runtime_filter;
mod subquery;

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    future::Future,
    pin::Pin,
};

use apus_client::{ANY_MOMENT, Moment, Snapshot};
use apus_types::{Epoch, TableId, TableSchema, TransId};

use self::pipeline::{Consumer, Pipeline};
use super::{
    Cluster,
    insert::INSERT_BYTES_MAX,
    read::{self, Seen},
    sink::Sink,
    target::Target,
};
use crate::{
    errors,
    expr::{
        Context,
        env::Env,
        probe::{self, Counts, Of},
    },
    plan::{
        Select,
        query::{Body, Given, Leaf, StepKind},
    },
    server::Output,
    session::{Done, Session, buffers::Scratch, temporary::TemporaryTables},
    spill::{Kept, TOGETHER_BYTES_MIN, byte_strings::Strings},
    value::datum::Datum,
};

/// Part of the memory that is left for what is sorted for files, and part of all memory where too little is left.
const SHARE: usize = 4;
const LEAST_SHARE: usize = 16;
/// Joined rows of a statement that is tried without a snapshot, in bytes.
const TRIED_BYTES_MAX: usize = 256 << 10;

/// One statement under way.
pub struct Run<'r> {
    pub cluster: Cluster<'r>,
    pub env: &'r Env,
    pub params: &'r [Datum<'r>],
    /// The open transaction, and the tables that it wrote.
    own: (TransId, &'r [TableId]),
    /// Nobody else changes these: they are read as they are, also where they are younger than the snapshot.
    temporary: &'r TemporaryTables,
    snapshot: Epoch,
    /// There is one read only, which sees one moment by itself.
    is_alone: bool,
    /// Answers say of which moment they are.
    tells: bool,
    moment: Cell<Moment>,
    bytes: Cell<usize>,
    /// Rows of derived tables that are the same all through the statement, by their plans.
    derived: RefCell<BTreeMap<usize, Kept>>,
    /// Of recursions under way: their table, and the rows of the last round.
    last_rows: RefCell<Vec<(usize, Kept)>>,
}

impl<'r> Run<'r> {
    fn seen(&self, schema: &TableSchema) -> Seen {
        let (id, wrote) = self.own;
        // The entries of a unique index are written with its table.
        let table = schema.base_table.unwrap_or(schema.id);
        let trans = if wrote.contains(&table) { id } else { TransId::NONE };
        let is_own = self.snapshot != Epoch(0) && self.temporary.has(table);
        let snapshot = if is_own { Epoch(0) } else { self.snapshot };
        Seen { trans, snapshot, one_moment: self.is_alone }
    }
    /// So many rows were worked on: now and then others of the thread have their turn.
    ///
    /// # Errors
    /// KILL, the deadline.
    async fn breathe(&self, rows: usize) -> errors::Result<()> {
        self.env.may_go_on()?;
        self.env.breathe(rows).await
    }
    fn and_moment(&self, moment: Option<Moment>) {
        self.moment.set(moment.map_or(Moment::NONE, |m| self.moment.get().and(m)));
    }
    /// More memory is kept, of what cannot be in a file.
    ///
    /// # Errors
    /// 3170.
    fn keep(&self, bytes: usize) -> errors::Result<()> {
        self.bytes.set(self.bytes.get() + bytes);
        self.has_room_for(0)
    }
    /// Whether so much more could be kept.
    ///
    /// # Errors
    /// 3170.
    fn has_room_for(&self, bytes: usize) -> errors::Result<()> {
        if bytes > self.room() { Err(errors::out_of_query_memory(self.bytes_max())) } else { Ok(()) }
    }
    fn release(&self, bytes: usize) {
        self.bytes.set(self.bytes.get().saturating_sub(bytes));
    }
    /// Memory before rows that can be in a file are written to one.
    fn left(&self) -> usize {
        self.env.variables.query_memory.saturating_sub(self.bytes.get())
    }
    /// Memory for what is sorted or joined for files: a part of what is left, and where nothing is, little.
    fn share(&self) -> usize {
        (self.left() / SHARE).max(self.env.variables.query_memory / LEAST_SHARE)
    }
    /// Memory for what cannot be in a file.
    fn room(&self) -> usize {
        self.bytes_max().saturating_sub(self.bytes.get())
    }
    /// What cannot be in a file may be as much again as what can.
    fn bytes_max(&self) -> usize {
        let most = self.env.variables.query_memory;
        most.saturating_add(most.max(TOGETHER_BYTES_MIN))
    }
}

/// Whether all that a block reads is one table, once.
fn is_alone(select: &Select) -> bool {
    let values = select.given.iter().all(|g| match g {
        Given::Outer(_) => true,
        Given::Value(subquery) => is_alone(&subquery.query),
    });
    let steps = select.join.iter().flat_map(|join| &join.steps).all(|step| match &step.kind {
        StepKind::Nothing => true,
        StepKind::Compute(_) => false,
        StepKind::Join(join) => match &join.leaf {
            Leaf::Table { .. } => join.lookup.is_none() && join.few.is_none(),
            Leaf::Derived(derived) => {
                !derived.is_lateral && matches!(&derived.body, Body::Select(select) if is_alone(select))
            }
            Leaf::Nested(_) => false,
        },
    });
    values
        && steps
        && select.reads.iter().filter(|t| !crate::catalog::information_schema::is_virtual(&t.schema)).count() <= 1
}

/// SELECT of a block with joins or subqueries, to the client.
pub async fn select(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    plan: &Select,
    params: &[Datum<'_>],
    out: &mut Output<'_>,
) -> Done<u64> {
    let snapshot = session.reading_at(cluster.client).await?;
    let run = of_session(cluster, session, params, snapshot);
    out.begin_rows_of(&plan.defs);
    into(&run, plan, std::mem::take(&mut s.sink), out).await
}

/// Runs a block that nothing is around, at one moment.
pub async fn into<T: Target>(
    run: &Run<'_>,
    plan: &Select,
    buffers: crate::session::buffers::SinkBuffers,
    out: &mut T,
) -> Done<u64> {
    let mut run = Run {
        is_alone: is_alone(plan),
        derived: RefCell::default(),
        last_rows: RefCell::default(),
        moment: Cell::new(ANY_MOMENT),
        bytes: Cell::new(0),
        ..*run
    };
    if run.snapshot != Epoch(0) || run.is_alone {
        return block(&run, plan, None, out, u64::MAX).await;
    }
    if plan.join.as_ref().is_some_and(|join| join.is_by_key) {
        run.tells = true;
        let tried = tried(&run, plan).await?;
        if let Some(rows) = tried.filter(|_| run.moment.get().is_one()) {
            let mut sink = Sink::with_given(plan, run.params, &[], run.env, buffers)?;
            for row in rows.iter() {
                if sink.wanted() == 0 || !sink.row(row, out)? {
                    break;
                }
            }
            sink.finish(out).await?;
            return Ok(sink.found);
        }
        run.tells = false;
        run.env.forget_assigned();
    }
    let held = run.cluster.client.shared_snapshot().await?;
    run.snapshot = held.epoch();
    block(&run, plan, None, out, u64::MAX).await
}

/// The values of a SELECT for INSERT ... SELECT: of what is there now, in a SERIALIZABLE transaction of its snapshot.
pub async fn collect(
    cluster: Cluster<'_>,
    session: &Session,
    plan: &Select,
    params: &[Datum<'_>],
) -> Done<Vec<Vec<Datum<'static>>>> {
    if plan.lock.is_some() || plan.locked.is_some() {
        return Err(errors::not_supported("INSERT ... SELECT with locks").into());
    }
    let snapshot = session.snapshot.as_ref().filter(|_| session.reads.are_kept());
    collect_at(cluster, session, plan, params, snapshot.map_or(Epoch(0), Snapshot::epoch)).await
}

/// As [`collect`], at a snapshot.
pub async fn collect_at(
    cluster: Cluster<'_>,
    session: &Session,
    plan: &Select,
    params: &[Datum<'_>],
    snapshot: Epoch,
) -> Done<Vec<Vec<Datum<'static>>>> {
    let run = of_session(cluster, session, params, snapshot);
    let mut values = Values::default();
    into(&run, plan, Default::default(), &mut values).await?;
    Ok(values.rows)
}

/// Values of rows.
#[derive(Default)]
pub struct Values {
    pub rows: Vec<Vec<Datum<'static>>>,
    bytes: usize,
}

impl Values {
    fn push(&mut self, row: Vec<Datum<'static>>) -> errors::Result<()> {
        self.bytes += row.iter().map(|v| size_of_val(v) + v.heap_bytes()).sum::<usize>();
        self.rows.push(row);
        if self.bytes > INSERT_BYTES_MAX { Err(errors::too_many_locks()) } else { Ok(()) }
    }
}

impl Target for Values {
    fn row_of(&mut self, outputs: &[crate::plan::select::Output], cx: &Context<'_>) -> errors::Result<()> {
        let row = outputs.iter().map(|o| Ok(o.expr.eval(cx)?.into_owned())).collect::<errors::Result<Vec<_>>>()?;
        self.push(row)
    }
    fn row_of_values(&mut self, _: &[crate::plan::select::Output], values: &[Datum<'_>]) -> errors::Result<()> {
        self.push(values.iter().map(|v| v.borrowed().into_owned()).collect())
    }
    async fn flush_if_full(&mut self) -> errors::Result<()> {
        Ok(())
    }
}

/// Runs a SELECT for EXPLAIN ANALYZE: counted, at one moment, its rows given to nobody.
pub async fn counted(cluster: Cluster<'_>, session: &mut Session, plan: &Select) -> Done<Counts> {
    let mut snapshot = session.reading_at(cluster.client).await?;
    let held = cluster.client.shared_snapshot().await?;
    if snapshot == Epoch(0) {
        snapshot = held.epoch(); // a block that is tried without one may be run twice
    }
    session.env.begin_counting();
    let run = of_session(cluster, session, &[], snapshot);
    let done = into(&run, plan, Default::default(), &mut Nowhere).await;
    let counts = session.env.take_counts().ok_or_else(|| errors::internal("nobody counted"))?;
    done.map(|_| counts)
}

/// Takes rows, and forgets them.
struct Nowhere;

impl Target for Nowhere {
    fn row_of(&mut self, outputs: &[crate::plan::select::Output], cx: &Context<'_>) -> errors::Result<()> {
        outputs.iter().try_for_each(|o| o.expr.eval(cx).map(|_| ()))
    }
    fn row_of_values(&mut self, _: &[crate::plan::select::Output], _: &[Datum<'_>]) -> errors::Result<()> {
        Ok(())
    }
    async fn flush_if_full(&mut self) -> errors::Result<()> {
        Ok(())
    }
}

/// What a statement of a session sees at the moment.
pub fn of_session<'r>(cluster: Cluster<'r>, session: &'r Session, params: &'r [Datum<'r>], snapshot: Epoch) -> Run<'r> {
    let own = match &session.transaction {
        Some(t) if t.is_started() => (t.id(), session.wrote.as_slice()),
        _ => (TransId::NONE, &[][..]),
    };
    Run {
        cluster,
        env: &session.env,
        params,
        own,
        temporary: &session.temporary,
        snapshot,
        is_alone: false,
        tells: false,
        moment: Cell::new(ANY_MOMENT),
        bytes: Cell::new(0),
        derived: RefCell::default(),
        last_rows: RefCell::default(),
    }
}

/// The joined rows; `None` when they are more than is tried.
async fn tried(run: &Run<'_>, plan: &Select) -> Done<Option<Strings>> {
    let Some(join) = &plan.join else { return Ok(None) };
    let mut pipeline = Pipeline::new(run, join, &[], Tried { rows: Strings::default(), is_over: false });
    pipeline.start().await?;
    let tried = pipeline.into_consumer();
    Ok((!tried.is_over).then_some(tried.rows))
}

struct Tried {
    rows: Strings,
    is_over: bool,
}

impl Consumer for Tried {
    async fn take(&mut self, rows: &Strings) -> Done<bool> {
        rows.iter().for_each(|row| self.rows.push(row));
        self.is_over = self.rows.byte_len() > TRIED_BYTES_MAX;
        Ok(!self.is_over)
    }
}

struct ToSink<'t, 'p, T> {
    sink: Sink<'p>,
    out: &'t mut T,
}

impl<T: Target> Consumer for ToSink<'_, '_, T> {
    async fn take(&mut self, rows: &Strings) -> Done<bool> {
        if !self.sink.rows(rows.iter(), self.out)? {
            return Ok(false);
        }
        self.sink.settle().await?;
        self.out.flush_if_full().await?;
        Ok(true)
    }
}

/// Runs a block for one row of the block around it. `most`: no more rows of it are wanted.
async fn block<T: Target>(
    run: &Run<'_>,
    plan: &Select,
    outside: Option<&Context<'_>>,
    out: &mut T,
    most: u64,
) -> Done<u64> {
    run.env.count(probe::of(plan, Of::Given), 1, 0);
    let found = block_of(run, plan, outside, out, most).await?;
    run.env.count(probe::of(plan, Of::Given), 0, found);
    Ok(found)
}

async fn block_of<T: Target>(
    run: &Run<'_>,
    plan: &Select,
    outside: Option<&Context<'_>>,
    out: &mut T,
    most: u64,
) -> Done<u64> {
    let given = givens(run, plan, outside).await?;
    let mut sink = Sink::with_given(plan, run.params, &given, run.env, Default::default())?;
    sink.stop_after(most);
    if let Some(join) = &plan.join {
        if sink.wanted() == 0 {
            sink.finish(out).await?;
            return Ok(sink.found);
        }
        let mut pipeline = Pipeline::new(run, join, &given, ToSink { sink, out });
        pipeline.start().await?;
        let ToSink { mut sink, out } = pipeline.into_consumer();
        sink.finish(out).await?;
        return Ok(sink.found);
    }
    if plan.lock.is_some() {
        return Err(errors::not_supported("FOR UPDATE inside of a query").into());
    }
    let Some(table) = &plan.table else {
        read::without_table(plan, &mut sink, out)?;
        sink.finish(out).await?;
        return Ok(sink.found);
    };
    let access = plan.access.as_ref().ok_or_else(|| errors::internal("a table without a path"))?;
    if crate::catalog::information_schema::is_virtual(&table.schema) {
        read::virtual_rows(run.cluster, plan, table, access, &mut sink, out).await?;
    } else {
        let mut s = Scratch::default();
        let seen = run.seen(&table.schema);
        read::table_rows(run.cluster, run.env, &mut s, seen, plan, table, access, &mut sink, out).await?;
    }
    sink.finish(out).await?;
    Ok(sink.found)
}

/// What a block is given.
async fn givens(run: &Run<'_>, plan: &Select, outside: Option<&Context<'_>>) -> Done<Vec<Datum<'static>>> {
    let mut given: Vec<Datum<'static>> = Vec::with_capacity(plan.given.len());
    let layout = apus_types::RowLayout::new([]);
    for g in &plan.given {
        let value = match g {
            Given::Outer(e) => match outside {
                Some(cx) => e.eval(cx)?.into_owned(),
                None => Datum::Null,
            },
            Given::Value(asked) => {
                let cx = Context {
                    layout: &layout,
                    row: &[],
                    new_row: None,
                    params: run.params,
                    aggregates: &[],
                    given: &given,
                    env: run.env,
                };
                subquery::value(run, asked, &cx).await?
            }
        };
        given.push(value);
    }
    Ok(given)
}

type Boxed<'f, T> = Pin<Box<dyn Future<Output = Done<T>> + 'f>>;
