//! Where the rows of a SELECT go: straight out, through a sort, into groups ([`groups`]), past duplicates, cut by LIMIT.
//!
//! All is in memory until it is more than `apus_query_memory`; [`spilled`] says what becomes of it then. A sink looks at that between batches of rows ([`Sink::settle`]), so a batch is what it may be
//! above its limit.

mod groups;
mod spilled;
#[cfg(test)]
mod tests;

use self::{groups::Groups, spilled::Over};
use super::{
    aggregate::Accumulator,
    target::Target,
    window::{
        self, Stage,
        spilled::{All, Windowed},
    },
};
use crate::{
    errors::{self, Result},
    expr::{Context, Env, Expr, Kind, exact::Exact, json, result_cells},
    plan::{
        Select,
        select::{Group, OrderKey, Output},
    },
    session::buffers::SinkBuffers,
    spill::TOGETHER_BYTES_MIN,
    value::datum::Datum,
};

pub struct Sink<'p> {
    plan: &'p Select,
    params: &'p [Datum<'p>],
    given: &'p [Datum<'p>],
    env: &'p Env,
    skip: u64,
    left: u64,
    buffers: SinkBuffers,
    groups: Groups,
    /// Rows that went into groups.
    rows: u64,
    /// Compiled arguments, as [`Group::same_argument`] lists them.
    exact: Vec<Option<Exact>>,
    /// Outputs of finished groups that are held back for sorting.
    values: Vec<Vec<Datum<'static>>>,
    /// Memory beside the buffers, of groups and of `values`.
    group_bytes: usize,
    value_bytes: usize,
    /// More goes to files.
    bytes_max: usize,
    /// Groups are complete.
    is_finishing: bool,
    over: Option<Box<Over>>,
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
            groups: Groups::default(),
            rows: 0,
            exact: Vec::new(),
            values: Vec::new(),
            group_bytes: 0,
            value_bytes: 0,
            bytes_max: env.variables.query_memory,
            is_finishing: false,
            over: None,
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

    fn byte_len(&self) -> usize {
        self.group_bytes + self.value_bytes + self.buffers.byte_len()
    }

    /// Takes a row that passed the condition; false when no more are needed. Behind each batch of rows the caller lets the sink [`settle`](Sink::settle).
    pub fn row(&mut self, row: &[u8], out: &mut impl Target) -> Result<bool> {
        let plan = self.plan;
        if let Some(group) = &plan.group {
            match self.over {
                None => self.accumulate(group, row)?,
                Some(_) => self.accumulate_over(group, row)?,
            }
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
        self.pass_row(&cx, out)
    }

    /// As [`Sink::row`], of many.
    pub fn rows<'r>(&mut self, rows: impl Iterator<Item = &'r [u8]> + Clone, out: &mut impl Target) -> Result<bool> {
        if let (Some(group), None) = (&self.plan.group, &self.over)
            && self.looks_ahead(group)
        {
            self.accumulate_all(group, rows)?;
            return Ok(true);
        }
        for row in rows {
            if !self.row(row, out)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A row that is no duplicate.
    fn pass_row(&mut self, cx: &Context<'_>, out: &mut impl Target) -> Result<bool> {
        if !self.plan.in_order {
            self.buffers.held.push(|key| push_order_keys(&self.plan.order, cx, key), cx.row)?;
            return Ok(true);
        }
        self.emit(cx, out)
    }

    /// Sees to it that what is in memory stays within its limit.
    ///
    /// # Errors
    /// Those of files; KILL, the deadline.
    pub async fn settle(&mut self) -> Result<()> {
        if self.is_full() { Box::pin(self.spill()).await } else { Ok(()) }
    }

    fn is_duplicate(&mut self, cx: &Context<'_>) -> Result<bool> {
        if self.over.as_ref().is_some_and(|over| over.holds_back()) {
            self.hold_back(cx)?;
            return Ok(true);
        }
        let outputs = &self.plan.outputs;
        let (_, new) = self.buffers.seen.insert_with(|key| push_outputs(outputs, cx, key))?;
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
        self.pass_group(&cx, out)
    }

    /// A group that is no duplicate.
    fn pass_group(&mut self, cx: &Context<'_>, out: &mut impl Target) -> Result<bool> {
        let plan = self.plan;
        if plan.in_order {
            return self.emit(cx, out);
        }
        let number = u32::try_from(self.values.len()).map_err(|_| errors::out_of_sort_memory())?;
        self.buffers.held.push(|key| push_order_keys(&plan.order, cx, key), &number.to_le_bytes())?;
        let values = plan.outputs.iter().map(|o| Ok(o.expr.eval(cx)?.into_owned())).collect::<Result<Vec<_>>>()?;
        self.value_bytes += bytes_of(&values);
        self.values.push(values);
        Ok(true)
    }

    /// All rows were taken.
    pub async fn finish(&mut self, out: &mut impl Target) -> Result<()> {
        let plan = self.plan;
        if let Some(group) = &plan.group {
            let mut windowed = Windowed::default();
            let groups = std::mem::take(&mut self.groups);
            match self.over {
                None => self.finish_groups(group, groups, &mut windowed, out).await?,
                Some(_) => Box::pin(self.finish_groups_over(group, groups, &mut windowed, out)).await?,
            }
            self.finish_windows(group, windowed, out).await?;
        }
        match self.over {
            None => self.flush_held(out).await,
            Some(_) => Box::pin(self.finish_over(out)).await,
        }
    }

    async fn finish_groups(
        &mut self,
        group: &Group,
        mut groups: Groups,
        windowed: &mut Windowed,
        out: &mut impl Target,
    ) -> Result<()> {
        if groups.len() == 0 && (group.keys.is_empty() || group.rollup) && !group.each_row {
            self.buffers.groups.insert(&[]);
            groups.push(group, &[], 0);
        }
        self.is_finishing = true;
        for (number, known) in self.group_order(group, &mut groups).await? {
            self.env.breathe(1).await?;
            let values = match known {
                Some(values) => Some(values),
                None => self.group_values(group, &mut groups, number)?,
            };
            let Some(values) = values else { continue };
            if !self.pass_on(group, groups.first(number), values, windowed, out).await? {
                break;
            }
        }
        Ok(())
    }

    /// A group that is complete: to the windows, or on. False when no more are needed.
    async fn pass_on(
        &mut self,
        group: &Group,
        first: &[u8],
        mut values: Vec<Datum<'static>>,
        windowed: &mut Windowed,
        out: &mut impl Target,
    ) -> Result<bool> {
        if let Some(windows) = &group.windows {
            values.resize_with(values.len() + windows.calls.len(), || Datum::Null);
            windowed.push(first, values);
            if windowed.is_full(self.bytes_max.saturating_sub(self.byte_len()).max(self.bytes_max / 2)) {
                if !self.env.spill_space().is_open() {
                    return Err(errors::out_of_sort_memory());
                }
                Box::pin(windowed.write(self.env)).await?;
            }
            return Ok(true);
        }
        let goes_on = self.finish_group(first, &values, out)?;
        self.settle().await?;
        out.flush_if_full().await?;
        Ok(goes_on)
    }

    /// Computes the window functions of all rows, which go on then.
    async fn finish_windows(&mut self, group: &Group, windowed: Windowed, out: &mut impl Target) -> Result<()> {
        let Some(windows) = &group.windows else { return Ok(()) };
        let stage = Stage { cx: self.of_group(&[], &[]), before: group.values_before_windows() };
        let in_memory = windowed.byte_len();
        let mut rows = match windowed.end(self.env).await? {
            All::Memory(rows) => rows,
            All::File(rows) => {
                let rows = Box::pin(super::window::spilled::fill(&stage, windows, rows, self.bytes_max)).await?;
                return Box::pin(self.finish_rows(rows, out)).await;
            }
        };
        let (order, bytes) = window::fill(&stage, windows, &mut rows).await?;
        if in_memory + bytes > 2 * self.bytes_max.max(TOGETHER_BYTES_MIN) {
            return Err(errors::out_of_sort_memory());
        }
        for number in order {
            self.env.breathe(1).await?;
            let row = std::mem::take(&mut rows[number as usize]);
            if !self.finish_group(&row.row, &row.values, out)? {
                break;
            }
            self.settle().await?;
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

/// Appends the key by which DISTINCT tells rows apart.
fn push_outputs(outputs: &[Output], cx: &Context<'_>, key: &mut Vec<u8>) -> Result<()> {
    for output in outputs {
        let collation = crate::expr::coercion::collation_of(&output.expr, &[]);
        result_cells::push_sort_key(key, output.kind, collation, &output.expr.eval(cx)?, false);
    }
    Ok(())
}

/// Memory of values.
fn bytes_of(values: &[Datum<'_>]) -> usize {
    size_of_val(values) + values.iter().map(Datum::heap_bytes).sum::<usize>()
}

/// Appends the key by which ORDER BY sorts rows; of documents less counts there than makes them equal.
pub fn push_order_keys(order: &[OrderKey], cx: &Context<'_>, key: &mut Vec<u8>) -> Result<()> {
    for k in order {
        match k.kind {
            Kind::Json => json::push_order_key(key, &k.expr.eval(cx)?, k.descending, cx.env),
            _ => result_cells::push_sort_key(key, k.kind, k.collation, &k.expr.eval(cx)?, k.descending),
        }
    }
    Ok(())
}

/// Appends the key by which rows are told apart, and put into order where all of it counts.
pub fn push_sort_keys(order: &[OrderKey], cx: &Context<'_>, key: &mut Vec<u8>) -> Result<()> {
    for k in order {
        result_cells::push_sort_key(key, k.kind, k.collation, &k.expr.eval(cx)?, k.descending);
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
