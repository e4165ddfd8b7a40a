//! Where the rows of a SELECT go: straight out, through a sort, into groups, past duplicates, cut by LIMIT.

use crate::engine::{
    cells,
    errors::{self, Result},
    expr::{Context, Datum, Env, Expr, Kind, exact::Exact, json},
    keys::{Pairs, StringSet, Strings},
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
/// A statement that has so many rows is worth compiling for.
const ROWS_BEFORE_COMPILING: u64 = 256;
/// Memory that a session keeps from one SELECT to the next.
#[derive(Default, Debug)]
pub struct SinkBuffers {
    /// Rows (or numbers of groups) by their sort keys.
    held: Pairs,
    /// Outputs seen, for DISTINCT.
    seen: StringSet,
    /// Keys of groups, numbered as these are.
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

/// The groups so far, numbered as they came, without an allocation for each.
#[derive(Default)]
struct Groups {
    /// The first row of each.
    firsts: Strings,
    /// Those of a group one after the other.
    accumulators: Vec<Accumulator>,
    /// With ROLLUP: how many keys tell each from others.
    keys: Vec<u16>,
}

impl Groups {
    /// One more group; returns the memory it took.
    fn push(&mut self, group: &Group, row: &[u8], keys: usize) -> usize {
        self.firsts.push(row);
        self.accumulators.resize_with(self.firsts.len() * group.aggregates.len(), Accumulator::default);
        if group.rollup {
            self.keys.push(keys as u16);
        }
        row.len() + size_of::<std::ops::Range<usize>>() + group.aggregates.len() * size_of::<Accumulator>()
    }
    fn len(&self) -> usize {
        self.firsts.len()
    }
    fn first(&self, number: usize) -> &[u8] {
        self.firsts.get(number).unwrap_or(&[])
    }
    fn accumulators(&mut self, group: &Group, number: usize) -> &mut [Accumulator] {
        let count = group.aggregates.len();
        self.accumulators.get_mut(number * count..(number + 1) * count).unwrap_or(&mut [])
    }
}

/// A group by number, with its values if they are known.
type Ordered = (usize, Option<Vec<Datum<'static>>>);

/// The first bytes of a key, which order most keys.
fn prefix(key: Option<&[u8]>) -> u128 {
    let mut bytes = [0; 16];
    let key = key.unwrap_or(&[]);
    let length = key.len().min(bytes.len());
    bytes[..length].copy_from_slice(&key[..length]);
    u128::from_be_bytes(bytes)
}

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
            groups: Groups::default(),
            rows: 0,
            exact: Vec::new(),
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
            self.bytes += self.groups.push(group, row, 0);
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
            self.bytes += self.groups.push(group, cx.row, keys);
        }
        self.rows += 1;
        if self.rows == ROWS_BEFORE_COMPILING {
            let of = |same: &Vec<usize>| Exact::of(group.aggregates[same[0]].argument.as_ref()?, cx);
            self.exact = group.same_argument.iter().map(of).collect();
        }
        let accumulators = self.groups.accumulators(group, number);
        let mut exact = self.exact.iter();
        for same in &group.same_argument {
            let aggregates = &group.aggregates;
            let value = match (same.as_slice(), &aggregates[same[0]].argument, exact.next()) {
                (_, Some(argument), Some(Some(exact))) => exact.eval(cx).map_or_else(|| argument.eval(cx), Ok)?,
                ([_, _, ..], Some(argument), _) => argument.eval(cx)?,
                _ => {
                    self.bytes += accumulators[same[0]].add(&aggregates[same[0]], cx)?;
                    continue;
                }
            };
            for &at in same {
                self.bytes += accumulators[at].add_value(&aggregates[at], &value, cx)?;
            }
        }
        self.check_memory()
    }

    /// What a group has beside its aggregates: its keys, as far as it has them, and which those are.
    fn push_group_values(
        &self,
        group: &Group,
        first: &[u8],
        keys: usize,
        values: &mut Vec<Datum<'static>>,
    ) -> Result<()> {
        if group.rollup {
            let cx = self.of_group(first, &[]);
            for (at, key) in group.keys.iter().enumerate() {
                values.push(if at < keys { key.expr.eval(&cx)?.into_owned() } else { Datum::Null });
            }
        }
        for named in &group.groupings {
            let bits = named.iter().fold(0, |bits, key| bits << 1 | i64::from(*key >= keys));
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
            let mut groups = std::mem::take(&mut self.groups);
            if groups.len() == 0 && (group.keys.is_empty() || group.rollup) && !group.each_row {
                self.buffers.groups.insert(&[]);
                groups.push(group, &[], 0);
            }
            for (number, known) in self.group_order(group, &mut groups).await? {
                self.env.breathe(1).await?;
                let values = match known {
                    Some(values) => Some(values),
                    None => self.group_values(group, &mut groups, number)?,
                };
                let (Some(mut values), first) = (values, groups.first(number)) else { continue };
                if let Some(windows) = &group.windows {
                    values.resize_with(values.len() + windows.calls.len(), || Datum::Null);
                    self.bytes += size_of::<window::Row>() + size_of::<Datum<'_>>() * values.len();
                    self.check_memory()?;
                    windowed.push(window::Row { row: first.to_vec(), values });
                    continue;
                }
                if !self.finish_group(first, &values, out)? {
                    break;
                }
                out.flush_if_full().await?;
            }
            self.finish_windows(group, windowed, out).await?;
        }
        self.flush_held(out).await
    }

    /// What a group has; `None`: it does not satisfy HAVING.
    fn group_values(&self, group: &Group, groups: &mut Groups, number: usize) -> Result<Option<Vec<Datum<'static>>>> {
        let pairs = group.aggregates.iter().zip(groups.accumulators(group, number));
        let mut values = pairs.map(|(a, all)| std::mem::take(all).value(a, self.env)).collect::<Result<Vec<_>>>()?;
        let (first, keys) = (groups.first(number), groups.keys.get(number).map_or(group.keys.len(), |&k| k.into()));
        self.push_group_values(group, first, keys, &mut values)?;
        Ok(self.passes_having(group, first, &values)?.then_some(values))
    }

    /// The groups in order of their keys; with what they have if those that HAVING leaves out were found.
    async fn group_order(&mut self, group: &Group, groups: &mut Groups) -> Result<Vec<Ordered>> {
        let mut order: Vec<Ordered> = Vec::new();
        for number in 0..groups.len() {
            self.bytes += size_of::<Ordered>();
            match group.having {
                None => order.push((number, None)),
                Some(_) => {
                    self.env.breathe(1).await?;
                    if let Some(values) = self.group_values(group, groups, number)? {
                        self.bytes += size_of::<Datum<'_>>() * values.len();
                        order.push((number, Some(values)));
                    }
                }
            }
        }
        self.check_memory()?;
        if group.each_row {
            return Ok(order);
        }
        let keys = &self.buffers.groups;
        let mut numbered: Vec<(u128, u32)> =
            order.iter().zip(0..).map(|((number, _), at)| (prefix(keys.get(*number)), at)).collect();
        let whole = |at: u32| keys.get(order[at as usize].0);
        turns::sort(&mut numbered, |a, b| a.0.cmp(&b.0).then_with(|| whole(a.1).cmp(&whole(b.1))), self.env).await?;
        let take = |(_, at): (u128, u32)| std::mem::take(&mut order[at as usize]);
        Ok(numbered.into_iter().map(take).collect())
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
