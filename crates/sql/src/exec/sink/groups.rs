//! Groups of a sink in memory: rows go into the accumulators of their group, and groups come out in the order of their keys.

use apus_client::Rows;
use apus_eval::{grouping::SLOTS_MAX, groups::State};

use super::{Accumulator, Sink, push_sort_keys};
use crate::{
    errors::{self, Result},
    expr::{Context, Expr, exact::Exact},
    plan::{bind::AggregateKind, pushed_group::Partials, select::Group},
    spill::{byte_strings::Strings, memory_sort},
    value::datum::Datum,
    wire::SqlError,
};

/// A statement that has so many rows is worth compiling for.
const ROWS_BEFORE_COMPILING: u64 = 256;

/// The groups so far, numbered as they came, without an allocation for each.
#[derive(Default)]
pub struct Groups {
    /// The first row of each.
    pub firsts: Strings,
    /// Those of a group one after the other.
    accumulators: Vec<Accumulator>,
    /// With ROLLUP: how many keys tell each from others.
    keys: Vec<u16>,
}

impl Groups {
    /// One more group; returns the memory it took.
    pub fn push(&mut self, group: &Group, row: &[u8], keys: usize) -> usize {
        self.firsts.push(row);
        self.accumulators.resize_with(self.firsts.len() * group.aggregates.len(), Accumulator::default);
        if group.rollup {
            self.keys.push(keys as u16);
        }
        row.len() + size_of::<std::ops::Range<usize>>() + group.aggregates.len() * size_of::<Accumulator>()
    }
    pub fn len(&self) -> usize {
        self.firsts.len()
    }
    pub fn first(&self, number: usize) -> &[u8] {
        self.firsts.get(number).unwrap_or(&[])
    }
    pub fn accumulators(&mut self, group: &Group, number: usize) -> &mut [Accumulator] {
        let count = group.aggregates.len();
        self.accumulators.get_mut(number * count..(number + 1) * count).unwrap_or(&mut [])
    }
}

/// A group by number, with its values if they are known.
pub type Ordered = (usize, Option<Vec<Datum<'static>>>);

/// The first bytes of a key, which order most keys.
fn prefix(key: Option<&[u8]>) -> u128 {
    let mut bytes = [0; 16];
    let key = key.unwrap_or(&[]);
    let length = key.len().min(bytes.len());
    bytes[..length].copy_from_slice(&key[..length]);
    u128::from_be_bytes(bytes)
}

fn no_states() -> SqlError {
    errors::internal("a data node has answered with groups that are none")
}

impl<'p> Sink<'p> {
    pub(super) fn accumulate(&mut self, group: &Group, row: &[u8]) -> Result<()> {
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
            self.group_bytes += self.groups.push(group, row, 0);
            return Ok(());
        }
        if group.rollup {
            return self.accumulate_rollup(group, &cx);
        }
        let (number, new) = self.buffers.groups.insert_with(|key| push_sort_keys(&group.keys, &cx, key))?;
        self.add_to_group(group, &cx, number, new, group.keys.len())
    }

    /// As [`Sink::accumulate`], of many rows, whose groups are looked for together.
    pub(super) fn accumulate_all<'r>(
        &mut self,
        group: &Group,
        rows: impl Iterator<Item = &'r [u8]> + Clone,
    ) -> Result<()> {
        let keys = self.keys_of(group, rows.clone())?;
        self.buffers.groups.look_ahead(&keys);
        for (row, key) in rows.zip(keys.iter()) {
            let (number, new) = self.buffers.groups.insert(key);
            self.add_to_group(group, &self.of_group(row, &[]), number, new, group.keys.len())?;
        }
        Ok(())
    }

    /// The groups are so many that it pays to look for those of many rows together, and their keys may be made before anything else is computed of these.
    pub(super) fn looks_ahead(&self, group: &Group) -> bool {
        let are_columns = || group.keys.iter().all(|key| matches!(key.expr, Expr::Column(_)));
        self.buffers.groups.is_large() && !group.each_row && !group.rollup && are_columns()
    }

    fn keys_of<'r>(&self, group: &Group, rows: impl Iterator<Item = &'r [u8]>) -> Result<Strings> {
        let mut keys = Strings::default();
        for row in rows {
            push_sort_keys(&group.keys, &self.of_group(row, &[]), keys.writer())?;
            keys.end();
        }
        Ok(keys)
    }

    /// Takes groups that a data node made of some rows: of each the first row, and the states of its slots.
    ///
    /// # Errors
    /// Those of evaluation; an internal one for what are no states.
    pub fn partials(&mut self, groups: &Rows, partials: &Partials) -> Result<()> {
        let Some(group) = &self.plan.group else { return Ok(()) };
        let firsts = groups.iter().map(|first| first.unwrap_or(&[]));
        let keys = self.keys_of(group, firsts.clone())?;
        self.buffers.groups.look_ahead(&keys);
        for ((at, first), key) in firsts.enumerate().zip(keys.iter()) {
            self.partial(group, (first, key), groups.key(at), partials)?;
        }
        Ok(())
    }

    fn partial(
        &mut self,
        group: &Group,
        (first, key): (&[u8], &[u8]),
        states: &[u8],
        partials: &Partials,
    ) -> Result<()> {
        let cx = self.of_group(first, &[]);
        let (number, new) = self.buffers.groups.insert(key);
        if new {
            self.group_bytes += self.groups.push(group, first, group.keys.len());
        }
        let mut rest = states;
        let mut known = [State::default(); SLOTS_MAX];
        for (state, slot) in known.iter_mut().zip(&partials.slots) {
            *state = State::take(*slot, &mut rest).ok_or_else(no_states)?;
        }
        let accumulators = self.groups.accumulators(group, number);
        for ((aggregate, so_far), of) in group.aggregates.iter().zip(accumulators).zip(&partials.of) {
            self.group_bytes += match of {
                None => so_far.add(aggregate, &cx)?,
                Some((slot, face)) => {
                    let State { count, value } = known[*slot];
                    let value = match (count, aggregate.function) {
                        (0, _) | (_, AggregateKind::Count | AggregateKind::CountRows) => None,
                        (_, AggregateKind::Sum | AggregateKind::Avg) => Some(face.sum(value).ok_or_else(no_states)?),
                        _ => Some(face.datum(value, &cx).ok_or_else(no_states)?),
                    };
                    so_far.add_partial(aggregate, count, value, &cx)?
                }
            };
        }
        Ok(())
    }

    /// As if nothing had come.
    pub fn forget_groups(&mut self) {
        self.buffers.groups.clear();
        self.groups = Groups::default();
        self.group_bytes = 0;
    }

    /// A row counts in its group, and in each group of fewer keys: the key of each, in that order, as the front of one, and how many keys it has. Groups of fewer keys come behind those that they are
    /// made of.
    pub(super) fn rollup_keys(group: &Group, cx: &Context<'_>) -> Result<Vec<(Vec<u8>, usize)>> {
        const PRESENT: u8 = 0;
        const ALL: u8 = 1;
        let (mut keys, mut ends) = (Vec::new(), vec![0]);
        for key in &group.keys {
            keys.push(PRESENT);
            push_sort_keys(std::slice::from_ref(key), cx, &mut keys)?;
            ends.push(keys.len());
        }
        let of_group = |(count, end): (usize, usize)| {
            let mut key = keys[..end].to_vec();
            if count < group.keys.len() {
                key.push(ALL);
            }
            (key, count)
        };
        Ok(ends.into_iter().enumerate().rev().map(of_group).collect())
    }

    fn accumulate_rollup(&mut self, group: &Group, cx: &Context<'_>) -> Result<()> {
        for (key, count) in Self::rollup_keys(group, cx)? {
            let (number, new) = self.buffers.groups.insert(&key);
            self.add_to_group(group, cx, number, new, count)?;
        }
        Ok(())
    }

    pub(super) fn add_to_group(
        &mut self,
        group: &Group,
        cx: &Context<'_>,
        number: usize,
        new: bool,
        keys: usize,
    ) -> Result<()> {
        if new {
            self.group_bytes += self.groups.push(group, cx.row, keys);
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
                    self.group_bytes += accumulators[same[0]].add(&aggregates[same[0]], cx)?;
                    continue;
                }
            };
            for &at in same {
                self.group_bytes += accumulators[at].add_value(&aggregates[at], &value, cx)?;
            }
        }
        Ok(())
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

    /// What a group has; `None`: it does not satisfy HAVING.
    pub(super) fn group_values(
        &self,
        group: &Group,
        groups: &mut Groups,
        number: usize,
    ) -> Result<Option<Vec<Datum<'static>>>> {
        let pairs = group.aggregates.iter().zip(groups.accumulators(group, number));
        let mut values = pairs.map(|(a, all)| std::mem::take(all).value(a, self.env)).collect::<Result<Vec<_>>>()?;
        let (first, keys) = (groups.first(number), groups.keys.get(number).map_or(group.keys.len(), |&k| k.into()));
        self.push_group_values(group, first, keys, &mut values)?;
        Ok(self.passes_having(group, first, &values)?.then_some(values))
    }

    /// The groups in order of their keys; with what they have if those that HAVING leaves out were found.
    pub(super) async fn group_order(&mut self, group: &Group, groups: &mut Groups) -> Result<Vec<Ordered>> {
        let mut order: Vec<Ordered> = Vec::new();
        for number in 0..groups.len() {
            self.group_bytes += size_of::<Ordered>();
            match group.having {
                None => order.push((number, None)),
                Some(_) => {
                    self.env.breathe(1).await?;
                    if let Some(values) = self.group_values(group, groups, number)? {
                        self.group_bytes += size_of::<Datum<'_>>() * values.len();
                        order.push((number, Some(values)));
                    }
                }
            }
        }
        if group.each_row {
            return Ok(order);
        }
        let keys = &self.buffers.groups;
        let mut numbered: Vec<(u128, u32)> =
            order.iter().zip(0..).map(|((number, _), at)| (prefix(keys.get(*number)), at)).collect();
        let whole = |at: u32| keys.get(order[at as usize].0);
        memory_sort::sort(&mut numbered, |a, b| a.0.cmp(&b.0).then_with(|| whole(a.1).cmp(&whole(b.1))), self.env)
            .await?;
        let take = |(_, at): (u128, u32)| std::mem::take(&mut order[at as usize]);
        Ok(numbered.into_iter().map(take).collect())
    }
}
