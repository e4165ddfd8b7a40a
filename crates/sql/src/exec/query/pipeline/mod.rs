//! Rows through the steps of a join, a batch at a time.
//!
//! A batch that a step makes goes on at once through all steps behind it, so what is under way at a time is one batch for each step: [`BATCH_ROWS`] rows, or
//! [`BATCH_BYTES`]. Filters leave little of a batch. A step that asks data nodes gathers rows first, few to begin with, more each time ([`State::gather`]), so that it asks less often; what has gathered in the
//! end goes on when the steps before are done. There a step also learns that all its rows are few, and looks them up although a hash table was expected to be cheaper.

mod leaves;

use std::{future::Future, ops::Range};

use apus_client::Rows;
use apus_types::RowLayout;

use super::{Boxed, Run, hash::Built, partitioned_join::Spilled, subquery::Memo};
use crate::{
    errors,
    expr::{
        Context, Expr, fold,
        probe::{self, Of},
    },
    plan::{
        access::binding::BoundPath,
        query::{Join, JoinKind, JoinStep, Leaf, Step, StepKind},
    },
    session::Done,
    spill::byte_strings::{Strings, touch},
    value::datum::Datum,
};

/// Rows of a batch.
pub const BATCH_ROWS: usize = 1024;
/// Rows that a step gathers before it asks for the first time, and by how many times more they are each time: rows behind a LIMIT come soon.
const GATHERED_FIRST: usize = 32;
const GATHERED_GROWS: usize = 4;
/// Pairs of rows between two looks at whether others of the thread wait.
const PAIRS_IN_A_ROW: u64 = 1024;
/// Candidates that are touched together.
const TOUCHED_ROWS: usize = 64;
/// Most rows, and their bytes, that are waited for so that only those of the next leaf are kept that they name.
const NARROWING_ROWS: usize = 1 << 20;
const NARROWING_BYTES: usize = 64 << 20;
/// Part of the memory that is left for them.
const NARROWING_SHARE: usize = 4;
/// Bytes from which a batch goes on although it has fewer rows.
const BATCH_BYTES: usize = 1 << 20;

/// Where joined rows go.
pub trait Consumer {
    /// False when no more are needed.
    fn take(&mut self, rows: &Strings) -> impl Future<Output = Done<bool>>;
}

/// What a step knows from one batch to the next.
#[derive(Default)]
pub struct State {
    /// Rows of the leaf, by key or all.
    pub built: Option<Built>,
    /// Of which memory has no room for all.
    pub spilled: Option<Spilled>,
    /// Ranges that were looked up, or a key that had no form: from then on the leaf is read as a whole.
    pub ranges: usize,
    pub is_whole: bool,
    pub bound: BoundPath,
    /// What data nodes ask of rows that are looked up by ranges.
    pub asked: BoundPath,
    pub memo: Memo,
    /// Rows that have come and wait for more, and how many are enough.
    waiting: Strings,
    enough: usize,
    /// No more will come.
    is_last: bool,
}

impl State {
    /// Puts rows to those that wait; all of them, once they are enough.
    fn gather(&mut self, rows: Strings, waits: Waits) -> Option<Strings> {
        if self.waiting.is_empty() {
            self.waiting = rows;
        } else {
            rows.iter().for_each(|row| self.waiting.push(row));
        }
        let (enough, bytes) = match waits {
            Waits::More => (self.enough.clamp(GATHERED_FIRST, BATCH_ROWS), BATCH_BYTES),
            Waits::Batch => (BATCH_ROWS, BATCH_BYTES),
            Waits::All(bytes) => (NARROWING_ROWS, bytes),
        };
        if self.waiting.len() < enough && self.waiting.byte_len() < bytes {
            return None;
        }
        self.enough = enough * GATHERED_GROWS;
        Some(std::mem::take(&mut self.waiting))
    }
}

/// What a step waits for before it goes on.
#[derive(Clone, Copy)]
enum Waits {
    /// More rows each time.
    More,
    Batch,
    /// All rows there are, if these are few and have no more than so many bytes.
    All(usize),
}

pub struct Pipeline<'q, 'r, C> {
    pub run: &'q Run<'r>,
    pub join: &'q Join,
    pub given: &'q [Datum<'q>],
    empty: RowLayout,
    pub(super) states: Vec<State>,
    consumer: C,
    /// Pairs of rows that were compared.
    pairs: u64,
}

impl<'q, 'r, C: Consumer> Pipeline<'q, 'r, C> {
    pub fn new(run: &'q Run<'r>, join: &'q Join, given: &'q [Datum<'q>], consumer: C) -> Self {
        let states = join.steps.iter().map(|_| State::default()).collect();
        Pipeline { run, join, given, empty: RowLayout::new([]), states, consumer, pairs: 0 }
    }

    pub fn into_consumer(self) -> C {
        self.consumer
    }

    /// Runs it.
    pub async fn start(&mut self) -> Done<()> {
        for step in &self.join.steps {
            self.run.env.count(probe::of(step, Of::Given), 1, 0);
            self.run.env.count(probe::of(step, Of::Matched), 1, 0);
        }
        let mut one = Strings::default();
        one.push(&[]);
        let mut goes_on = self.feed(0, one).await?;
        // What waits behind an earlier step has come when that one is done.
        for at in 0..self.states.len() {
            self.states[at].is_last = true;
            let waiting = std::mem::take(&mut self.states[at].waiting);
            if goes_on && !waiting.is_empty() {
                goes_on = self.go(at, waiting).await?;
            }
            let state = &mut self.states[at];
            self.run.release(state.built.take().map_or(0, |b| b.bytes()) + std::mem::take(&mut state.memo).bytes());
            if goes_on && state.spilled.is_some() {
                goes_on = self.finish_spilled(at).await?;
            }
        }
        Ok(())
    }

    pub fn context<'c>(&'c self, layout: &'c RowLayout, row: &'c [u8]) -> Context<'c> {
        context(self.run, self.given, layout, row)
    }

    /// The layout of rows before step `at`.
    pub(super) fn before(&self, at: usize) -> &RowLayout {
        at.checked_sub(1).and_then(|i| self.join.steps.get(i)).map_or(&self.empty, |s| &s.layout)
    }

    /// Gives rows to step `at`; false when no more are needed.
    pub(super) fn feed(&mut self, at: usize, rows: Strings) -> Boxed<'_, bool> {
        Box::pin(async move {
            let join = self.join;
            if rows.is_empty() {
                return Ok(true);
            }
            if let Some(step) = at.checked_sub(1).and_then(|before| join.steps.get(before)) {
                self.run.env.count(probe::of(step, Of::Given), 0, rows.len() as u64);
            }
            self.run.breathe(rows.len()).await?;
            let rows = match self.gathers(at) {
                Some(waits) => match self.states[at].gather(rows, waits) {
                    Some(rows) => rows,
                    None => return Ok(true),
                },
                None => rows,
            };
            self.go(at, rows).await
        })
    }

    /// What step `at` waits for, if it asks for something with each batch or learns from all rows what it needs.
    fn gathers(&self, at: usize) -> Option<Waits> {
        let (step, state) = (self.join.steps.get(at)?, self.states.get(at)?);
        if state.is_last || self.is_first(at) {
            return None;
        }
        match &step.kind {
            StepKind::Nothing => None,
            StepKind::Compute(_) => Some(Waits::More),
            StepKind::Join(_) if state.built.is_some() || state.spilled.is_some() => None,
            StepKind::Join(leaf) if leaf.narrows => {
                Some(Waits::All(NARROWING_BYTES.min(self.run.left() / NARROWING_SHARE)))
            }
            StepKind::Join(leaf) if leaf.few.is_some() => Some(Waits::Batch),
            StepKind::Join(leaf) => {
                let is_lateral = matches!(&leaf.leaf, Leaf::Derived(derived) if derived.is_lateral);
                (is_lateral || (leaf.lookup.is_some() && !state.is_whole)).then_some(Waits::More)
            }
        }
    }

    /// Nothing has been read before step `at`.
    fn is_first(&self, at: usize) -> bool {
        self.join.steps[..at].iter().all(|s| matches!(s.kind, StepKind::Nothing))
    }

    /// Rows go through step `at`; false when no more are needed.
    fn go(&mut self, at: usize, rows: Strings) -> Boxed<'_, bool> {
        Box::pin(async move {
            let join = self.join;
            let Some(step) = join.steps.get(at) else { return self.consumer.take(&rows).await };
            match &step.kind {
                StepKind::Nothing => {
                    let mut out = Strings::default();
                    for row in rows.iter() {
                        if passes(step.filter.as_ref(), &self.context(&step.layout, row))? {
                            out.push(row);
                        }
                    }
                    self.feed(at + 1, out).await
                }
                StepKind::Compute(subquery) => {
                    let mut memo = std::mem::take(&mut self.states[at].memo);
                    let out = memo.column(self, subquery, step, self.before(at), &rows).await?;
                    self.states[at].memo = memo;
                    self.feed(at + 1, out).await
                }
                StepKind::Join(leaf) => self.join(at, step, leaf, &rows).await,
            }
        })
    }

    /// Joins each row with its candidates and gives on what matches: what they must still be asked stands beside the leaf. `candidates` pushes the leaf's rows for a row.
    async fn emit<'e>(
        &mut self,
        at: usize,
        step: &'q Step,
        (leaf, matches): (&'q JoinStep, Option<&Expr>),
        rows: &Strings,
        mut candidates: impl FnMut(usize, &mut Vec<&'e [u8]>),
    ) -> Done<bool> {
        let mut out = Strings::default();
        let mut ahead = Candidates::default();
        let mut met = Met::default();
        let matches = fold::for_rows(matches, rows.len(), &self.context(&step.layout, &[]));
        let filter = fold::for_rows(step.filter.as_ref(), rows.len(), &self.context(&step.layout, &[]));
        self.run.env.count(probe::of(leaf, Of::Matched), rows.len() as u64, 0);
        for (i, row) in rows.iter().enumerate() {
            let found = ahead.of_row(i, rows.len(), &mut candidates);
            let mut matched = false;
            let nothing = [None];
            let (some, none) = (ahead.rows[found].iter().map(|r| Some(*r)), nothing.iter().copied());
            for inner in some.chain(none) {
                if inner.is_none() && (matched || !leaf.kind.keeps()) {
                    continue;
                }
                if matched && !leaf.kind.wants_all() {
                    break;
                }
                self.pairs += 1;
                if self.pairs.is_multiple_of(PAIRS_IN_A_ROW) {
                    self.run.breathe(PAIRS_IN_A_ROW as usize).await?;
                }
                let before = self.before(at);
                step.layout.join((before, row), (&leaf.row, inner, &leaf.taken), out.writer());
                out.end();
                let joined = out.get(out.len() - 1).unwrap_or(&[]);
                let cx = self.context(&step.layout, joined);
                let is_match = inner.is_none() || passes(matches.as_deref(), &cx)?;
                matched |= is_match;
                met.joined += u64::from(is_match);
                met.found += u64::from(is_match && inner.is_some());
                let is_wanted = is_match && !(inner.is_some() && leaf.kind == JoinKind::Anti);
                if !is_wanted || !passes(filter.as_deref(), &cx)? {
                    out.pop();
                }
                let is_full = out.len() >= BATCH_ROWS || out.byte_len() > BATCH_BYTES;
                if is_full {
                    self.count_met(step, leaf, std::mem::take(&mut met));
                }
                if is_full && !self.feed(at + 1, std::mem::take(&mut out)).await? {
                    return Ok(false);
                }
            }
        }
        self.count_met(step, leaf, met);
        self.feed(at + 1, out).await
    }

    fn count_met(&self, step: &Step, leaf: &JoinStep, met: Met) {
        self.run.env.count(probe::of(step, Of::Matched), 0, met.joined);
        self.run.env.count(probe::of(leaf, Of::Matched), 0, met.found);
    }

    /// What the rows of a batch have found in a leaf.
    fn count_found<'f>(&self, leaf: &JoinStep, batch: usize, of_row: impl Fn(usize, &mut Vec<&'f [u8]>)) {
        if self.run.env.is_counting() {
            let mut found = Vec::new();
            (0..batch).for_each(|row| of_row(row, &mut found));
            self.run.env.count(probe::of(leaf, Of::Read), batch as u64, found.len() as u64);
        }
    }
}

/// The rows of a leaf that the next rows of a batch are joined with.
#[derive(Default)]
struct Candidates<'e> {
    rows: Vec<&'e [u8]>,
    /// Where those of each row of the batch end, from the first one on.
    ends: Vec<usize>,
    first: usize,
}

impl<'e> Candidates<'e> {
    /// Where the candidates of a row stand, one of so many; rows are asked for in order. Those of several are touched together, since they lie anywhere in memory.
    fn of_row(&mut self, row: usize, count: usize, of: &mut impl FnMut(usize, &mut Vec<&'e [u8]>)) -> Range<usize> {
        if row >= self.first + self.ends.len() {
            self.rows.clear();
            self.ends.clear();
            self.first = row;
            let mut next = row;
            while next < count && self.rows.len() < TOUCHED_ROWS {
                of(next, &mut self.rows);
                self.ends.push(self.rows.len());
                next += 1;
            }
            touch(self.rows.iter().copied());
        }
        let at = row - self.first;
        at.checked_sub(1).map_or(0, |before| self.ends[before])..self.ends[at]
    }
}

/// Pairs that matched.
#[derive(Default)]
struct Met {
    /// Also those of a row without a match with NULLs.
    joined: u64,
    found: u64,
}

pub fn context<'c>(run: &'c Run<'_>, given: &'c [Datum<'c>], layout: &'c RowLayout, row: &'c [u8]) -> Context<'c> {
    Context { layout, row, new_row: None, params: run.params, aggregates: &[], given, env: run.env }
}

pub fn passes(filter: Option<&Expr>, cx: &Context<'_>) -> errors::Result<bool> {
    filter.map_or(Ok(true), |f| f.passes(cx))
}

pub fn is_virtual(leaf: &JoinStep) -> bool {
    matches!(&leaf.leaf, Leaf::Table { table, .. } if crate::catalog::information_schema::is_virtual(&table.schema))
}

/// Rows that a lookup found, and which of them each row of the batch has asked for.
pub struct Found {
    pub rows: Vec<Rows>,
    /// By row of the batch: (where in `rows`, which row there); `u32::MAX`: all of them.
    pub pairs: Vec<(u32, u32, u32)>,
    /// Where the pairs of each row of the batch begin.
    pub starts: Vec<u32>,
}

impl Found {
    pub fn of_row<'f>(&'f self, row: usize, out: &mut Vec<&'f [u8]>) {
        let end = self.starts.get(row + 1).map_or(self.pairs.len(), |&e| e as usize);
        let start = self.starts.get(row).map_or(end, |&s| s as usize);
        for &(_, list, at) in &self.pairs[start..end] {
            let Some(rows) = self.rows.get(list as usize) else { continue };
            match at {
                u32::MAX => out.extend(rows.iter().flatten()),
                at => out.extend(rows.row(at as usize)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many rows come before they are enough, one after the other, `times` times.
    fn gathered(waits: Waits, times: usize) -> Vec<usize> {
        let mut state = State::default();
        let mut one = || {
            for count in 1.. {
                let mut row = Strings::default();
                row.push(b"row");
                if let Some(rows) = state.gather(row, waits) {
                    assert_eq!((rows.len(), rows.get(count - 1)), (count, Some(&b"row"[..])));
                    return count;
                }
            }
            0
        };
        (0..times).map(|_| one()).collect()
    }

    #[test]
    fn few_rows_go_on_at_first_and_a_whole_batch_in_the_end() {
        assert_eq!(gathered(Waits::More, 5), [32, 128, 512, 1024, 1024]);
        assert_eq!(gathered(Waits::Batch, 2), [1024, 1024]);
        assert_eq!(gathered(Waits::All(usize::MAX), 1), [NARROWING_ROWS]);
        assert_eq!(gathered(Waits::All(1), 2), [1, 1]);
    }
}
