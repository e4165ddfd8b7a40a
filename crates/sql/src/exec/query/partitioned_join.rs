//! Joins with a leaf of which memory has no room for all rows.
//!
//! **By equal values** (a grace hash join). The rows of the leaf are parted by a hash of the values ([`gather`](super::gather)); so are the rows so far, each with its number, as they come. When all have come the
//! parts are joined one after the other: the leaf's rows of one into a hash table, the others past it. A part that is too large is parted again by other bits of the hash; when there are no more
//! bits, its rows have few different values, and it is joined piece by piece: as many rows of the leaf as fit, each time with all of the other side. What a part gives is in the order of the numbers; all of it is merged by them before it goes on. So rows come in the order of
//! a join in memory, and that costs writing the joined rows once.
//!
//! **Otherwise** the leaf's rows are read from their file for each row so far.

use std::rc::Rc;

use super::{
    gather::Side,
    hash::{Built, push_key},
    pipeline::{BATCH_ROWS, Consumer, Pipeline, State, passes},
};
use crate::{
    errors,
    expr::{
        Expr, fold,
        probe::{self, Of},
    },
    plan::query::{JoinKind, JoinStep, Step, StepKind},
    session::Done,
    spill::{
        DEPTH_MAX, Kept, Partitions, Reader, Runs, Stream, TOGETHER_BYTES_MIN, Writer,
        byte_strings::{Pairs, Strings},
    },
};

/// In front of a row so far in a file: its number.
const NUMBER: usize = 8;

/// What is left to do with a leaf in files.
pub enum Spilled {
    Whole(Kept),
    Parted {
        leaf: Vec<Rc<Stream>>,
        /// Rows so far; the key is empty where a value is NULL.
        waiting: Partitions,
        /// How many.
        count: u64,
    },
}

impl Spilled {
    /// The rows of a leaf in files, and how many they are; `None`: they are in memory.
    pub async fn of(side: Side, env: &crate::expr::Env) -> errors::Result<Option<(Spilled, u64)>> {
        Ok(match side {
            Side::Memory(_) => None,
            Side::Whole(rows, count) => Some((Spilled::Whole(rows), count)),
            Side::Parted(leaf, count) => {
                let waiting = Partitions::new(0, env).await?;
                Some((Spilled::Parted { leaf, waiting, count: 0 }, count))
            }
        })
    }
}

/// Rows of both sides that are joined together.
struct Part {
    leaf: Rc<Stream>,
    rows: Rc<Stream>,
    depth: u32,
}

/// Conditions of a step, made for many rows.
struct Asked<'a> {
    matches: Option<std::borrow::Cow<'a, Expr>>,
    filter: Option<std::borrow::Cow<'a, Expr>>,
}

impl<'q, C: Consumer> Pipeline<'q, '_, C> {
    /// A batch of rows so far.
    pub(super) async fn join_spilled(
        &mut self,
        at: usize,
        step: &'q Step,
        leaf: &'q JoinStep,
        rows: &Strings,
        state: &mut State,
    ) -> Done<bool> {
        self.run.env.count(probe::of(leaf, Of::Matched), rows.len() as u64, 0);
        let (waiting, count) = match &mut state.spilled {
            Some(Spilled::Whole(kept)) => {
                let kept = kept.clone();
                return self.join_each(at, step, leaf, rows, &kept).await;
            }
            Some(Spilled::Parted { waiting, count, .. }) => (waiting, count),
            None => return Err(errors::internal("a leaf that is nowhere").into()),
        };
        let mut key = Vec::new();
        for row in rows.iter() {
            if !push_key(&leaf.keys, |k| &k.outer, &self.context(self.before(at), row), &mut key)? {
                if !leaf.kind.keeps() {
                    continue;
                }
                key.clear();
            }
            waiting.push(&key, &[&count.to_be_bytes(), row]);
            *count += 1;
        }
        waiting.settle(self.run.env).await?;
        Ok(true)
    }

    /// All rows so far have come to step `at`: those that wait there go on. False when no more are needed.
    pub(super) async fn finish_spilled(&mut self, at: usize) -> Done<bool> {
        let join = self.join;
        let (Some(step), Some(Spilled::Parted { leaf: rows_of_leaf, waiting, .. })) =
            (join.steps.get(at), self.states[at].spilled.take())
        else {
            return Ok(true);
        };
        let StepKind::Join(leaf) = &step.kind else { return Ok(true) };
        let env = self.run.env;
        let waiting = waiting.end(env).await?;
        let mut parts: Vec<Part> =
            rows_of_leaf.into_iter().zip(waiting).map(|(leaf, rows)| Part { leaf, rows, depth: 0 }).collect();
        let mut joined = Runs::default();
        while let Some(part) = parts.pop() {
            if part.rows.records() > 0 && (leaf.kind.keeps() || part.leaf.records() > 0) {
                self.join_part(at, step, leaf, part, &mut joined, &mut parts).await?;
            }
        }
        let mut joined = joined.merge(Pairs::default(), env).await?;
        let mut batch = Strings::default();
        while joined.advance(env).await? {
            batch.push(joined.payload());
            if batch.len() >= BATCH_ROWS && !self.feed(at + 1, std::mem::take(&mut batch)).await? {
                return Ok(false);
            }
        }
        self.feed(at + 1, batch).await
    }

    /// Joins a part, or parts it again.
    async fn join_part(
        &self,
        at: usize,
        step: &Step,
        leaf: &JoinStep,
        part: Part,
        joined: &mut Runs,
        parts: &mut Vec<Part>,
    ) -> Done<()> {
        let most = self.run.left().max(self.run.share()).max(TOGETHER_BYTES_MIN);
        let mut reader = Reader::new(part.leaf.clone());
        let mut matched = Vec::new();
        for piece in 0..u32::MAX {
            let (built, has_more) = Built::of_stream(self.run, &mut reader, most).await?;
            if piece == 0 && has_more && part.depth + 1 < DEPTH_MAX {
                drop(built);
                let (leaf, rows) =
                    (self.again(&part.leaf, part.depth).await?, self.again(&part.rows, part.depth).await?);
                parts.extend(leaf.into_iter().zip(rows).map(|(leaf, rows)| Part { leaf, rows, depth: part.depth + 1 }));
                return Ok(());
            }
            // Of the rows that a row finds in memory the last one comes first.
            let place = u32::MAX - piece;
            self.join_piece(at, step, leaf, (&built, place, !has_more), &part.rows, &mut matched, joined).await?;
            if !has_more {
                break;
            }
        }
        Ok(())
    }

    /// Parts a stream by bits of the hash that were not looked at.
    async fn again(&self, rows: &Rc<Stream>, depth: u32) -> errors::Result<Vec<Rc<Stream>>> {
        let env = self.run.env;
        let mut parts = Partitions::new(depth + 1, env).await?;
        let mut reader = Reader::new(rows.clone());
        while reader.advance(env).await? {
            env.breathe(1).await?;
            parts.push(reader.key(), &[reader.payload()]);
            parts.settle(env).await?;
        }
        parts.end(env).await
    }

    /// Joins rows with those of the leaf that are in memory: one more run. `matched` says of each row whether an earlier piece had a match.
    async fn join_piece(
        &self,
        at: usize,
        step: &Step,
        leaf: &JoinStep,
        (built, place, is_last): (&Built, u32, bool),
        rows: &Rc<Stream>,
        matched: &mut Vec<bool>,
        joined: &mut Runs,
    ) -> Done<()> {
        let env = self.run.env;
        let file = joined.file(env).await?;
        let (mut run, mut out, mut found) = (Writer::default(), Vec::new(), Vec::new());
        let asked = self.asked(step, leaf);
        let mut met = (0, 0);
        let mut reader = Reader::new(rows.clone());
        let mut number = 0;
        while reader.advance(env).await? {
            let (count, row) = reader.payload().split_at(NUMBER);
            if number == matched.len() {
                matched.push(false);
            }
            found.clear();
            built.of_key(reader.key(), &mut found);
            let mut keys = [0; NUMBER + 4];
            keys[..NUMBER].copy_from_slice(count);
            for inner in found.iter().map(|row| Some(*row)).chain([None]) {
                if inner.is_none() && (!is_last || matched[number] || !leaf.kind.keeps()) {
                    continue;
                }
                if matched[number] && !leaf.kind.wants_all() {
                    break;
                }
                keys[NUMBER..].copy_from_slice(&(if inner.is_some() { place } else { 0 }).to_be_bytes());
                let (is_match, passes) = self.pair(at, step, leaf, &asked, row, inner, &mut out)?;
                matched[number] |= is_match;
                met = (met.0 + u64::from(is_match), met.1 + u64::from(is_match && inner.is_some()));
                if passes && !(leaf.kind == JoinKind::Anti && inner.is_some()) {
                    run.push(&keys, &out);
                }
                if run.is_full() {
                    run.flush(&file, env).await?;
                }
                env.breathe(1).await?;
            }
            number += 1;
        }
        self.count_pairs(step, leaf, met);
        joined.push(run.end(&file, env).await?);
        Ok(())
    }

    /// Joins each row with each of a leaf in a file.
    async fn join_each(
        &mut self,
        at: usize,
        step: &'q Step,
        leaf: &'q JoinStep,
        rows: &Strings,
        kept: &Kept,
    ) -> Done<bool> {
        let env = self.run.env;
        let asked = self.asked(step, leaf);
        let (mut batch, mut out) = (Strings::default(), Vec::new());
        let mut met = (0, 0);
        for row in rows.iter() {
            let mut reader = kept.reader();
            let mut matched = false;
            loop {
                let has_inner = reader.advance(env).await?;
                if !has_inner && (matched || !leaf.kind.keeps()) || matched && !leaf.kind.wants_all() {
                    break;
                }
                let inner = has_inner.then(|| reader.row());
                let (is_match, passes) = self.pair(at, step, leaf, &asked, row, inner, &mut out)?;
                matched |= is_match;
                met = (met.0 + u64::from(is_match), met.1 + u64::from(is_match && has_inner));
                if passes && !(leaf.kind == JoinKind::Anti && has_inner) {
                    batch.push(&out);
                }
                if batch.len() >= BATCH_ROWS {
                    self.count_pairs(step, leaf, std::mem::take(&mut met));
                    if !self.feed(at + 1, std::mem::take(&mut batch)).await? {
                        return Ok(false);
                    }
                }
                if !has_inner {
                    break;
                }
            }
        }
        self.count_pairs(step, leaf, met);
        self.feed(at + 1, batch).await
    }

    fn asked<'a>(&self, step: &'a Step, leaf: &'a JoinStep) -> Asked<'a> {
        let many = |e| fold::for_rows(e, usize::MAX, &self.context(&step.layout, &[]));
        Asked { matches: many(leaf.unasked.as_ref()), filter: many(step.filter.as_ref()) }
    }

    /// Joins two rows; whether they match, and whether what they make goes on.
    fn pair(
        &self,
        at: usize,
        step: &Step,
        leaf: &JoinStep,
        asked: &Asked<'_>,
        row: &[u8],
        inner: Option<&[u8]>,
        out: &mut Vec<u8>,
    ) -> errors::Result<(bool, bool)> {
        out.clear();
        step.layout.join((self.before(at), row), (&leaf.row, inner, &leaf.taken), out);
        let cx = self.context(&step.layout, out);
        let is_match = inner.is_none() || passes(asked.matches.as_deref(), &cx)?;
        Ok((is_match, is_match && passes(asked.filter.as_deref(), &cx)?))
    }

    fn count_pairs(&self, step: &Step, leaf: &JoinStep, (joined, found): (u64, u64)) {
        self.run.env.count(probe::of(step, Of::Matched), 0, joined);
        self.run.env.count(probe::of(leaf, Of::Matched), 0, found);
    }
}
