//! Where the rows of a SELECT go: straight out, through a sort, into groups, past duplicates, cut by LIMIT.

use crate::engine::{
    cells,
    errors::{self, Result},
    expr::{Context, Datum, Env, Expr, Kind, json},
    keys::{Pairs, StringSet},
    plan::{
        Select,
        select::{Group, OrderKey},
    },
    turns,
};

use super::{
    aggregate::Accumulator,
    target::Target,
    window::{self, Stage},
};

/// Memory that one statement may use to sort, group and remove duplicates, in bytes.
const SORT_BYTES_MAX: usize = 256 << 20;
/// Memory that a session keeps from one SELECT to the next.
#[derive(Default, Debug)]
pub struct SinkBuffers {
    /// Rows (or numbers of groups) by their sort keys.
    held: Pairs,
    /// Outputs seen, for DISTINCT.
    seen: StringSet,
    /// Keys of groups, numbered as their states.
    groups: StringSet,
}

impl SinkBuffers {
    fn clear(&mut self) {
        self.held.clear();
        self.seen.clear();
        self.groups.clear();
    }
    fn byte_len(&self) -> usize {
        self.held.byte_len() + self.seen.byte_len() + self.groups.byte_len()
    }
}

#[derive(Default)]
struct GroupState {
    first: Vec<u8>,
    /// Keys that tell it from others: with ROLLUP also fewer than all.
    keys: usize,
    accumulators: Vec<Accumulator>,
}

impl GroupState {
    fn new(group: &Group, row: &[u8], keys: usize) -> GroupState {
        let accumulators = group.aggregates.iter().map(|_| Accumulator::default()).collect();
        GroupState { first: row.to_vec(), keys, accumulators }
    }
}

pub struct Sink<'p> {
    plan: &'p Select,
    params: &'p [Datum<'p>],
    given: &'p [Datum<'p>],
    env: &'p Env,
    skip: u64,
    left: u64,
    buffers: SinkBuffers,
    states: Vec<GroupState>,
    /// Outputs of finished groups that are held back for sorting.
    values: Vec<Vec<Datum<'static>>>,
    /// Memory beside the buffers.
    bytes: usize,
    /// Rows that came as far as the LIMIT, also those that OFFSET skips; with SQL_CALC_FOUND_ROWS all of them.
    pub found: u64,
}

impl<'p> Sink<'p> {
    pub fn env(&self) -> &'p Env {
        self.env
    }

    pub fn new(plan: &'p Select, params: &'p [Datum<'p>], env: &'p Env, buffers: SinkBuffers) -> Result<Sink<'p>> {
        Sink::with_given(plan, params, &[], env, buffers)
    }

    /// As [`Sink::new`], of a query block that has values of [`Expr::Given`].
    pub fn with_given(
        plan: &'p Select,
        params: &'p [Datum<'p>],
        given: &'p [Datum<'p>],
        env: &'p Env,
        buffers: SinkBuffers,
    ) -> Result<Sink<'p>> {
        let mut sink = Sink {
            plan,
            params,
            given,
            env,
            skip: 0,
            left: u64::MAX,
            buffers,
            states: Vec::new(),
            values: Vec::new(),
            bytes: 0,
            found: 0,
        };
        sink.buffers.clear();
        sink.left = count(plan.limit.as_ref(), &sink.context(&[]))?.unwrap_or(u64::MAX);
        sink.skip = count(plan.offset.as_ref(), &sink.context(&[]))?.unwrap_or(0);
        Ok(sink)
    }

    pub fn context<'c>(&'c self, row: &'c [u8]) -> Context<'c> {
        Context {
            layout: &self.plan.layout,
            row,
            new_row: None,
            params: self.params,
            aggregates: &[],
            given: self.given,
            env: self.env,
        }
    }

    /// No more than `most` rows are wanted.
    pub fn stop_after(&mut self, most: u64) {
        self.left = self.left.min(most);
    }

    /// Rows worth asking for: nothing behind the LIMIT when rows are not held back.
    pub fn wanted(&self) -> u64 {
        if self.plan.counts_all {
            return u64::MAX;
        }
        if self.plan.group.is_some() || !self.plan.in_order || self.plan.distinct {
            return if self.left == 0 { 0 } else { u64::MAX };
        }
        self.left.saturating_add(self.skip)
    }

    /// The memory for the next SELECT.
    pub fn into_buffers(mut self) -> SinkBuffers {
        self.buffers.clear();
        self.buffers
    }

    fn check_memory(&self) -> Result<()> {
        if self.bytes + self.buffers.byte_len() > SORT_BYTES_MAX { Err(errors::out_of_sort_memory()) } else { Ok(()) }
    }

    /// Takes a row that passed the condition; false when no more are needed.
    pub fn row(&mut self, row: &[u8], out: &mut impl Target) -> Result<bool> {
        let plan = self.plan;
        if let Some(group) = &plan.group {
            self.accumulate(group, row)?;
            return Ok(true);
        }
        let cx = Context {
            layout: &plan.layout,
            row,
            new_row: None,
            params: self.params,
            aggregates: &[],
            given: self.given,
            env: self.env,
        };
        if plan.distinct && self.is_duplicate(&cx)? {
            return Ok(true);
        }
        if !plan.in_order {
            self.buffers.held.push(|key| push_order_keys(&plan.order, &cx, key), row)?;
            self.check_memory()?;
            return Ok(true);
        }
        self.emit(&cx, out)
    }

    fn is_duplicate(&mut self, cx: &Context<'_>) -> Result<bool> {
        let outputs = &self.plan.outputs;
        let (_, new) = self.buffers.seen.insert_with(|key| {
            for output in outputs {
                let collation = crate::engine::expr::build::collation_of(&output.expr, &[]);
                cells::push_sort_key(key, output.kind, collation, &output.expr.eval(cx)?, false);
            }
            Ok::<(), crate::wire::SqlError>(())
        })?;
        self.check_memory()?;
        Ok(!new)
    }

    fn emit(&mut self, cx: &Context<'_>, out: &mut impl Target) -> Result<bool> {
        if !self.is_shown() {
            return Ok(self.wants_more());
        }
        out.row_of(&self.plan.outputs, cx)?;
        Ok(self.wants_more())
    }

    /// Counts a row; whether it is between OFFSET and LIMIT.
    fn is_shown(&mut self) -> bool {
        if self.left == 0 {
            self.found += u64::from(self.plan.counts_all);
            return false;
        }
        self.found += 1;
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        self.left -= 1;
        true
    }
    fn wants_more(&self) -> bool {
        self.left > 0 || self.plan.counts_all
    }

    fn emit_values(&mut self, values: &[Datum<'_>], out: &mut impl Target) -> Result<bool> {
        if self.is_shown() {
            out.row_of_values(&self.plan.outputs, values)?;
        }
        Ok(self.wants_more())
    }

    fn accumulate(&mut self, group: &Group, row: &[u8]) -> Result<()> {
        let plan = self.plan;
        let cx = Context {
            layout: &plan.layout,
            row,
            new_row: None,
            params: self.params,
            aggregates: &[],
            given: self.given,
            env: self.env,
        };
        if group.each_row {
            self.bytes += row.len() + size_of::<GroupState>();
            self.states.push(GroupState::new(group, row, 0));
            return self.check_memory();
        }
        if group.rollup {
            return self.accumulate_rollup(group, &cx);
        }
        let (number, new) = self.buffers.groups.insert_with(|key| push_sort_keys(&group.keys, &cx, key))?;
        self.add_to_group(group, &cx, number, new, group.keys.len())
    }

    /// A row counts in its group, and in each group of fewer keys. Groups of fewer keys come behind those that they are made of.
    fn accumulate_rollup(&mut self, group: &Group, cx: &Context<'_>) -> Result<()> {
        const PRESENT: u8 = 0;
        const ALL: u8 = 1;
        let (mut keys, mut ends) = (Vec::new(), vec![0]);
        for key in &group.keys {
            keys.push(PRESENT);
            push_sort_keys(std::slice::from_ref(key), cx, &mut keys)?;
            ends.push(keys.len());
        }
        for (count, end) in ends.into_iter().enumerate().rev() {
            let (number, new) = self.buffers.groups.insert_with(|key| {
                key.extend_from_slice(&keys[..end]);
                if count < group.keys.len() {
                    key.push(ALL);
                }
                Ok::<(), crate::wire::SqlError>(())
            })?;
            self.add_to_group(group, cx, number, new, count)?;
        }
        Ok(())
    }

    fn add_to_group(&mut self, group: &Group, cx: &Context<'_>, number: usize, new: bool, keys: usize) -> Result<()> {
        if new {
            self.bytes += cx.row.len() + size_of::<GroupState>() + group.aggregates.len() * size_of::<Accumulator>();
            self.states.push(GroupState::new(group, cx.row, keys));
        }
        let Some(state) = self.states.get_mut(number) else { return Ok(()) };
        for (aggregate, accumulator) in group.aggregates.iter().zip(&mut state.accumulators) {
            self.bytes += accumulator.add(aggregate, cx)?;
        }
        self.check_memory()
    }

    /// What a group has beside its aggregates: its keys, as far as it has them, and which those are.
    fn push_group_values(&self, group: &Group, state: &GroupState, values: &mut Vec<Datum<'static>>) -> Result<()> {
        if group.rollup {
            let cx = self.of_group(&state.first, &[]);
            for (at, key) in group.keys.iter().enumerate() {
                values.push(if at < state.keys { key.expr.eval(&cx)?.into_owned() } else { Datum::Null });
            }
        }
        for named in &group.groupings {
            let bits = named.iter().fold(0, |bits, key| bits << 1 | i64::from(*key >= state.keys));
            values.push(Datum::Int(bits));
        }
        Ok(())
    }

    /// Takes aggregates that were computed beside the data: one group.
    pub async fn aggregated(&mut self, values: &[Datum<'static>], out: &mut impl Target) -> Result<()> {
        let plan = self.plan;
        let Some(group) = &plan.group else { return Ok(()) };
        if self.passes_having(group, &[], values)? {
            self.finish_group(&[], values, out)?;
        }
        self.flush_held(out).await
    }

    /// A context over the first row of a group.
    fn of_group<'c>(&self, first: &'c [u8], aggregates: &'c [Datum<'c>]) -> Context<'c>
    where
        'p: 'c,
    {
        let Sink { plan, params, given, env, .. } = *self;
        Context { layout: &plan.layout, row: first, new_row: None, params, aggregates, given, env }
    }

    fn passes_having(&self, group: &Group, first: &[u8], aggregates: &[Datum<'_>]) -> Result<bool> {
        group.having.as_ref().map_or(Ok(true), |having| having.passes(&self.of_group(first, aggregates)))
    }

    /// A group, or a row, all of whose values are there.
    fn finish_group(&mut self, first: &[u8], aggregates: &[Datum<'_>], out: &mut impl Target) -> Result<bool> {
        let plan = self.plan;
        let cx = self.of_group(first, aggregates);
        if plan.distinct && self.is_duplicate(&cx)? {
            return Ok(true);
        }
        if plan.in_order {
            return self.emit(&cx, out);
        }
        let number = u32::try_from(self.values.len()).map_err(|_| errors::out_of_sort_memory())?;
        self.buffers.held.push(|key| push_order_keys(&plan.order, &cx, key), &number.to_le_bytes())?;
        let values = plan.outputs.iter().map(|o| Ok(o.expr.eval(&cx)?.into_owned())).collect::<Result<Vec<_>>>()?;
        self.bytes += size_of::<Datum<'_>>() * values.len() + values.iter().map(Datum::heap_bytes).sum::<usize>();
        self.values.push(values);
        self.check_memory()?;
        Ok(true)
    }

    /// All rows were taken.
    pub async fn finish(&mut self, out: &mut impl Target) -> Result<()> {
        let plan = self.plan;
        if let Some(group) = &plan.group {
            let mut windowed = Vec::new();
            let mut states = std::mem::take(&mut self.states);
            for number in self.group_order(group, &mut states).await? {
                self.env.breathe(1).await?;
                let mut state = std::mem::take(&mut states[number]);
                let pairs = group.aggregates.iter().zip(std::mem::take(&mut state.accumulators));
                let mut values =
                    pairs.map(|(a, accumulator)| accumulator.value(a, self.env)).collect::<Result<Vec<_>>>()?;
                self.push_group_values(group, &state, &mut values)?;
                if !self.passes_having(group, &state.first, &values)? {
                    continue;
                }
                if let Some(windows) = &group.windows {
                    values.resize_with(values.len() + windows.calls.len(), || Datum::Null);
                    self.bytes += size_of::<window::Row>() + size_of::<Datum<'_>>() * values.len();
                    self.check_memory()?;
                    windowed.push(window::Row { row: state.first, values });
                    continue;
                }
                if !self.finish_group(&state.first, &values, out)? {
                    break;
                }
                out.flush_if_full().await?;
            }
            self.finish_windows(group, windowed, out).await?;
        }
        self.flush_held(out).await
    }

    /// The groups in order of their keys.
    async fn group_order(&mut self, group: &Group, states: &mut Vec<GroupState>) -> Result<Vec<usize>> {
        if states.is_empty() && (group.keys.is_empty() || group.rollup) && !group.each_row {
            self.buffers.groups.insert(&[]);
            states.push(GroupState::new(group, &[], 0));
        }
        let mut numbers: Vec<usize> = (0..states.len()).collect();
        let keys = &self.buffers.groups;
        if !group.each_row {
            turns::sort(&mut numbers, |a, b| keys.get(*a).cmp(&keys.get(*b)), self.env).await?;
        }
        Ok(numbers)
    }

    /// Computes the window functions of all rows, which go on then.
    async fn finish_windows(&mut self, group: &Group, mut rows: Vec<window::Row>, out: &mut impl Target) -> Result<()> {
        let Some(windows) = &group.windows else { return Ok(()) };
        let stage = Stage { cx: self.of_group(&[], &[]), before: group.values_before_windows() };
        let (order, bytes) = window::fill(&stage, windows, &mut rows).await?;
        self.bytes += bytes;
        self.check_memory()?;
        for number in order {
            self.env.breathe(1).await?;
            let row = std::mem::take(&mut rows[number as usize]);
            if !self.finish_group(&row.row, &row.values, out)? {
                break;
            }
            out.flush_if_full().await?;
        }
        Ok(())
    }

    async fn flush_held(&mut self, out: &mut impl Target) -> Result<()> {
        let mut held = std::mem::take(&mut self.buffers.held);
        let values = std::mem::take(&mut self.values);
        held.sort_in_turns(self.env).await?;
        let plan = self.plan;
        for i in 0..held.len() {
            self.env.breathe(1).await?;
            let payload = held.payload(i);
            let more = if plan.group.is_some() {
                let number = payload.first_chunk::<4>().map_or(0, |n| u32::from_le_bytes(*n));
                self.emit_values(values.get(number as usize).map_or(&[], Vec::as_slice), out)?
            } else {
                let cx = Context {
                    layout: &plan.layout,
                    row: payload,
                    new_row: None,
                    params: self.params,
                    aggregates: &[],
                    given: self.given,
                    env: self.env,
                };
                self.emit(&cx, out)?
            };
            if !more {
                break;
            }
            out.flush_if_full().await?;
        }
        self.buffers.held = held;
        Ok(())
    }
}

/// Appends the key by which ORDER BY sorts rows; of documents less counts there than makes them equal.
pub fn push_order_keys(order: &[OrderKey], cx: &Context<'_>, key: &mut Vec<u8>) -> Result<()> {
    for k in order {
        match k.kind {
            Kind::Json => json::push_order_key(key, &k.expr.eval(cx)?, k.descending, cx.env),
            _ => cells::push_sort_key(key, k.kind, k.collation, &k.expr.eval(cx)?, k.descending),
        }
    }
    Ok(())
}

/// Appends the key by which rows are told apart, and put into order where all of it counts.
pub fn push_sort_keys(order: &[OrderKey], cx: &Context<'_>, key: &mut Vec<u8>) -> Result<()> {
    for k in order {
        cells::push_sort_key(key, k.kind, k.collation, &k.expr.eval(cx)?, k.descending);
    }
    Ok(())
}

/// Value of a LIMIT or OFFSET.
pub fn count(e: Option<&Expr>, cx: &Context<'_>) -> Result<Option<u64>> {
    let Some(e) = e else { return Ok(None) };
    let value = e.eval(cx)?;
    let n = value.number().map(|n| n.to_i128()).and_then(|n| u64::try_from(n).ok());
    n.map(Some).ok_or_else(|| errors::wrong_arguments("LIMIT"))
}
