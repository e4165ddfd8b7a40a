//! What becomes of a sink that is over its memory.
//!
//! | in memory | what goes to a file | how it comes back |
//! |---|---|---|
//! | rows, or outputs of groups, to sort | sorted runs; with a LIMIT only the first rows stay, and in memory if these fit | merged |
//! | outputs seen, for DISTINCT | rows whose outputs are none of these, by their outputs | the first of each, sorted again by when it came |
//! | groups | rows whose group is none of these, by its key | a group at a time: its rows come together, in the order in which they came |
//! | rows that wait for window functions | all of them | [`window::over`](crate::exec::window::spilled) |
//! | values seen by an aggregate of distinct ones | rows with values that are none of these, by group, aggregate and value | the first of each, sorted again where the order matters |
//!
//! So what was in memory when there was no more room stays there and does its work: the groups and values that are frequent are mostly among the first. What is not is sorted ([`Sorter`]), not parted by
//! a hash: groups come out in the order of their keys anyway, rows of DISTINCT in the order in which they came, and no key has so many rows that they do not fit. Each kind has a quarter of the memory for
//! what it collects, beside what stays. The answer is the one that memory would have given, to the last digit of a sum of doubles and the last tie.

mod groups;

use std::{ops::ControlFlow, rc::Rc};

use super::{Sink, bytes_of, push_outputs};
use crate::{
    errors::{self, Result},
    exec::target::Target,
    expr::{Context, Env},
    spill::{Gathered, Later, Reader, Runs, Sorter, Stream, TOGETHER_BYTES_MIN, byte_strings::Pairs, values},
};

/// Part of the memory for what one kind collects until it is written.
const SHARE: usize = 4;

/// What of a sink is in files, or will be.
#[derive(Default)]
pub struct Over {
    /// Rows, or outputs of groups, by the keys of ORDER BY.
    order: Runs,
    /// How many keys the group has, and a row.
    groups: Option<Sorter>,
    /// When it came, the value, and a row.
    values: Option<Sorter>,
    /// A row with the values of its group.
    distinct: Option<Later>,
    /// Rows that wait for window functions.
    rows: Option<Gathered>,
    /// Memory of groups when they took no more in.
    group_bytes: usize,
    /// Of what came so far.
    number: u64,
    /// For the key and the payload of the row under way.
    scratch: (Vec<u8>, Vec<u8>),
}

impl Over {
    /// DISTINCT takes nothing in any more.
    pub fn holds_back(&self) -> bool {
        self.distinct.is_some()
    }
    fn is_full(&self) -> bool {
        [&self.groups, &self.values].into_iter().flatten().any(Sorter::is_full)
            || self.distinct.as_ref().is_some_and(Later::is_full)
            || self.rows.as_ref().is_some_and(|rows| rows.is_full(0))
    }
    async fn settle(&mut self, env: &Env) -> Result<()> {
        for sorter in [&mut self.groups, &mut self.values].into_iter().flatten() {
            sorter.settle(env).await?;
        }
        if let Some(rows) = &mut self.rows {
            rows.settle(0, env).await?;
        }
        match &mut self.distinct {
            Some(distinct) => distinct.settle(env).await,
            None => Ok(()),
        }
    }
    fn next_number(&mut self) -> [u8; 8] {
        self.number += 1;
        self.number.to_be_bytes()
    }
}

/// What is to be done where memory is short.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Order,
    Distinct,
    Groups,
    /// Nothing helps.
    More,
}

impl Sink<'_> {
    pub fn is_full(&self) -> bool {
        if self.byte_len() <= self.bytes_max && self.over.is_none() {
            return false;
        }
        self.need().is_some() || self.over.as_ref().is_some_and(|over| over.is_full())
    }

    fn share(&self) -> usize {
        self.bytes_max / SHARE
    }
    /// What a group may have.
    fn together(&self) -> usize {
        self.bytes_max.max(TOGETHER_BYTES_MIN)
    }
    fn held_bytes(&self) -> usize {
        self.buffers.held.byte_len() + self.value_bytes
    }

    fn need(&self) -> Option<Need> {
        let over = self.over.as_deref();
        if self.byte_len() <= self.bytes_max {
            return None;
        }
        let groups = self.group_bytes + self.buffers.groups.byte_len();
        let is_taken = |taken: fn(&Over) -> bool| over.is_some_and(taken);
        if self.held_bytes() > self.share() {
            Some(Need::Order)
        } else if self.buffers.seen.byte_len() > self.share() && !is_taken(Over::holds_back) {
            Some(Need::Distinct)
        } else if groups > self.share() && !self.is_finishing && !is_taken(|over| over.groups.is_some()) {
            Some(Need::Groups)
        } else if over.is_some_and(|over| over.groups.is_some() && groups > over.group_bytes + self.together()) {
            Some(Need::More)
        } else {
            None
        }
    }

    /// Writes what is to be written.
    pub(super) async fn spill(&mut self) -> Result<()> {
        if !self.env.spill_space().is_open() {
            return Err(errors::out_of_sort_memory());
        }
        let (share, group_bytes) = (self.share(), self.group_bytes + self.buffers.groups.byte_len());
        while let Some(need) = self.need() {
            let over = self.over.get_or_insert_default();
            match need {
                Need::Order => {
                    if let ControlFlow::Continue(()) = self.keep_first().await? {
                        self.spill_held().await?;
                    }
                }
                Need::Distinct => over.distinct = Some(Later::new(share)),
                Need::Groups if self.plan.group.as_ref().is_some_and(|group| group.each_row) => {
                    over.rows = Some(Gathered::from_rows(std::mem::take(&mut self.groups).firsts));
                    self.group_bytes = 0;
                }
                Need::Groups => {
                    over.groups = Some(Sorter::new(share));
                    over.group_bytes = group_bytes;
                }
                Need::More => return Err(errors::out_of_memory_for("values of a group", self.together())),
            }
        }
        let env = self.env;
        self.over.get_or_insert_default().settle(env).await
    }

    /// Rows as far as the LIMIT.
    fn most(&self) -> usize {
        let most = usize::try_from(self.left.saturating_add(self.skip)).unwrap_or(usize::MAX);
        if self.plan.counts_all { usize::MAX } else { most }
    }

    /// Forgets the rows behind the LIMIT where that makes room, and then breaks.
    async fn keep_first(&mut self) -> Result<ControlFlow<()>> {
        let rows = self.buffers.held.len();
        let most = self.most().min(rows);
        let would_be = (self.held_bytes() / rows.max(1)).saturating_mul(most);
        if would_be > self.share() || self.over.as_ref().is_some_and(|over| !over.order.is_empty()) {
            return Ok(ControlFlow::Continue(()));
        }
        self.buffers.held.sort_in_turns(self.env).await?;
        if self.plan.group.is_none() {
            self.buffers.held.keep_first(most);
        } else {
            let (held, mut values) = (std::mem::take(&mut self.buffers.held), std::mem::take(&mut self.values));
            self.value_bytes = 0;
            for at in 0..most {
                let values = values.get_mut(number_of(held.payload(at))).map(std::mem::take).unwrap_or_default();
                self.buffers.held.push_plain(held.key(at), &(at as u32).to_le_bytes());
                self.value_bytes += bytes_of(&values);
                self.values.push(values);
            }
        }
        Ok(if self.held_bytes() <= self.share() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    /// What is held to be sorted becomes a run.
    async fn spill_held(&mut self) -> Result<()> {
        let most = self.most();
        let over = self.over.get_or_insert_default();
        let all = std::mem::take(&mut self.values);
        let held = &mut self.buffers.held;
        if self.plan.group.is_some() {
            let outputs = |payload: &[u8], out: &mut Vec<u8>| {
                values::push_group(&[], all.get(number_of(payload)).map_or(&[], Vec::as_slice), out);
            };
            over.order.add_mapped(held, most, outputs, self.env).await?;
        } else {
            let rows = |payload: &[u8], out: &mut Vec<u8>| out.extend_from_slice(payload);
            over.order.add_mapped(held, most, rows, self.env).await?;
        }
        self.value_bytes = 0;
        Ok(())
    }

    /// A row of which DISTINCT says later whether it is new, unless that is known.
    pub(super) fn hold_back(&mut self, cx: &Context<'_>) -> Result<()> {
        let Some(Over { distinct: Some(distinct), scratch: (key, row), .. }) = self.over.as_deref_mut() else {
            return Ok(());
        };
        key.clear();
        push_outputs(&self.plan.outputs, cx, key)?;
        if !self.buffers.seen.contains(key) {
            row.clear();
            values::push_group(cx.row, cx.aggregates, row);
            distinct.push(key, row);
        }
        Ok(())
    }

    /// Rows that have the values of their window functions.
    pub(super) async fn finish_rows(&mut self, rows: Stream, out: &mut impl Target) -> Result<()> {
        let mut rows = Reader::new(Rc::new(rows));
        while rows.advance(self.env).await? {
            self.env.breathe(1).await?;
            let (row, values) = values::group(rows.payload())?;
            if !self.finish_group(row, &values, out)? {
                break;
            }
            self.settle().await?;
            out.flush_if_full().await?;
        }
        Ok(())
    }

    /// All has come as far as DISTINCT and ORDER BY.
    pub(super) async fn finish_over(&mut self, out: &mut impl Target) -> Result<()> {
        // Groups are gone, and what was seen of them.
        self.group_bytes = 0;
        self.buffers.groups.clear();
        if let Some(held_back) = self.over.get_or_insert_default().distinct.take() {
            self.buffers.seen.clear();
            self.finish_distinct(held_back, out).await?;
        }
        if self.over.as_ref().is_none_or(|over| over.order.is_empty()) {
            return self.flush_held(out).await;
        }
        if self.plan.group.is_some() {
            self.spill_held().await?;
        }
        let (order, held) = (std::mem::take(&mut self.over.get_or_insert_default().order), self.take_held());
        let mut rows = order.merge(held, self.env).await?;
        while rows.advance(self.env).await? {
            let goes_on = if self.plan.group.is_some() {
                self.emit_values(&values::group(rows.payload())?.1, out)?
            } else {
                self.emit(&self.of_group(rows.payload(), &[]), out)?
            };
            if !goes_on {
                break;
            }
            out.flush_if_full().await?;
        }
        Ok(())
    }

    fn take_held(&mut self) -> Pairs {
        std::mem::take(&mut self.buffers.held)
    }

    /// Of the rows that were held back the first of each goes on, in the order in which they came.
    async fn finish_distinct(&mut self, held_back: Later, out: &mut impl Target) -> Result<()> {
        let mut rows = held_back.firsts(self.env).await?;
        while rows.advance(self.env).await? {
            let (row, values) = values::group(rows.payload())?;
            let cx = self.of_group(row, &values);
            let goes_on = match &self.plan.group {
                Some(_) => self.pass_group(&cx, out)?,
                None => self.pass_row(&cx, out)?,
            };
            if !goes_on {
                break;
            }
            self.settle().await?;
            out.flush_if_full().await?;
        }
        Ok(())
    }
}

/// The number of a group's outputs, as it is held in memory.
fn number_of(payload: &[u8]) -> usize {
    payload.first_chunk::<4>().map_or(usize::MAX, |n| u32::from_le_bytes(*n) as usize)
}
