//! Rows meet the rows of a leaf: it is read for a batch, or as a stream where it is the first.

use super::{BATCH_ROWS, Consumer, Pipeline, State, is_virtual, passes};
use crate::{
    errors,
    exec::{
        query::{
            derived,
            hash::{Built, Leafed},
            lookup,
            runtime_filter::Named,
        },
        read::source::Source,
    },
    expr::{
        fold,
        probe::{self, Of},
    },
    plan::query::{JoinStep, Leaf, Step},
    session::{Done, buffers::Scratch},
    spill::byte_strings::Strings,
};

impl<'q, 'r, C: Consumer> Pipeline<'q, 'r, C> {
    pub(super) async fn join(&mut self, at: usize, step: &'q Step, leaf: &'q JoinStep, rows: &Strings) -> Done<bool> {
        let mut state = std::mem::take(&mut self.states[at]);
        let done = self.join_with(at, step, leaf, rows, &mut state).await;
        self.states[at] = state;
        done
    }

    async fn join_with(
        &mut self,
        at: usize,
        step: &'q Step,
        leaf: &'q JoinStep,
        rows: &Strings,
        state: &mut State,
    ) -> Done<bool> {
        let is_first = self.is_first(at) && matches!(leaf.leaf, Leaf::Table { .. }) && !is_virtual(leaf);
        let is_all = state.is_last && state.built.is_none() && state.spilled.is_none();
        let path = match &leaf.scan {
            Some(scan) if is_first && self.run.tells => Some(&scan.path),
            _ if is_first => return self.stream(at, step, leaf, state).await,
            _ if state.is_whole => None,
            // All rows there are, and nothing has been read for them.
            _ if is_all && rows.len() <= BATCH_ROWS => leaf.lookup.as_ref().or(leaf.few.as_ref()),
            _ => leaf.lookup.as_ref(),
        };
        if let (Some(path), Leaf::Table { table, columns }) = (path, &leaf.leaf) {
            let before = self.before(at).clone();
            let pushed = leaf.scan.as_ref().map(|scan| &scan.pushed);
            let target = lookup::Target { table, columns, path, pushed, can_be_whole: !leaf.keys.is_empty() };
            if let Some(found) = lookup::find(self, target, &before, rows, state).await? {
                self.count_found(leaf, rows.len(), |row, out| found.of_row(row, out));
                let matches = leaf.matches.as_ref();
                return self.emit(at, step, (leaf, matches), rows, |row, out| found.of_row(row, out)).await;
            }
            state.is_whole = true;
        }
        if let Leaf::Derived(derived) = &leaf.leaf
            && derived.is_lateral
        {
            let found = derived::for_rows(self, derived, self.before(at), rows).await?;
            self.count_found(leaf, rows.len(), |row, out| found.of_row(row, out));
            let matches = leaf.matches.as_ref();
            let done = self.emit(at, step, (leaf, matches), rows, |row, out| found.of_row(row, out)).await;
            self.run.release(found.bytes);
            return done;
        }
        if state.spilled.is_some() {
            return self.join_spilled(at, step, leaf, rows, state).await;
        }
        let built = match state.built.take() {
            Some(built) => built,
            None => match self.build(at, leaf, rows, is_all).await? {
                Leafed::Memory(built) => {
                    self.run.env.count(probe::of(leaf, Of::Read), 1, built.len() as u64);
                    built
                }
                Leafed::Spilled(spilled, count) => {
                    self.run.env.count(probe::of(leaf, Of::Read), 1, count);
                    state.spilled = Some(spilled);
                    return self.join_spilled(at, step, leaf, rows, state).await;
                }
            },
        };
        let matches = built.probe(self, leaf, self.before(at), rows).await?;
        let unasked = leaf.unasked.as_ref();
        let done = self.emit(at, step, (leaf, unasked), rows, |row, out| matches.of_row(&built, row, out)).await;
        state.built = Some(built);
        done
    }

    /// Reads a leaf; `is_all`: for these rows and no others.
    async fn build(&self, at: usize, leaf: &'q JoinStep, rows: &Strings, is_all: bool) -> Done<Leafed> {
        match is_all && leaf.narrows {
            true => {
                let named = Named::of(self, leaf, self.before(at), rows).await?;
                Built::of(self, leaf, Some(&named)).await
            }
            false => Built::of(self, leaf, None).await,
        }
    }

    /// The first leaf: its rows go on as they come.
    async fn stream(&mut self, at: usize, step: &'q Step, leaf: &'q JoinStep, state: &mut State) -> Done<bool> {
        let run = self.run;
        let (Leaf::Table { table, columns }, Some(access)) = (&leaf.leaf, &leaf.scan) else {
            return Err(errors::internal("a leaf that is no table").into());
        };
        let mut s = Scratch { bound: std::mem::take(&mut state.bound), ..Scratch::default() };
        access.path.bind(table, &self.context(&leaf.row, &[]), &mut s.bound)?;
        access.pushed.bind(&table.schema, &self.context(&leaf.row, &[]), &mut s.bound)?;
        if s.bound.empty {
            return Ok(true);
        }
        let filter = fold::for_rows(access.unanswered(&s.bound), usize::MAX, &self.context(&leaf.row, &[]));
        let behind = fold::for_rows(step.filter.as_ref(), usize::MAX, &self.context(&step.layout, &[]));
        let seen = run.seen(&table.schema);
        let columns = Some(columns.as_slice());
        let mut source =
            Source::open(run.cluster, &mut s, table, access, columns, seen, false, false, u64::MAX).await?;
        let mut is_found = false;
        run.env.count(probe::of(access, Of::Read), 1, 0);
        run.env.count(probe::of(access, Of::Matched), 1, 0);
        loop {
            if !source.next(run.cluster, &mut s, table, columns).await? {
                if is_found || !source.make_sure(run.cluster, &mut s, table, access, columns, seen).await? {
                    break;
                }
                continue;
            }
            let mut out = Strings::default();
            let (mut read, mut kept) = (0, 0);
            for row in s.rows.iter().flatten() {
                read += 1;
                let local = passes(filter.as_deref(), &self.context(&leaf.row, row))?;
                is_found |= local;
                if !local {
                    continue;
                }
                kept += 1;
                step.layout.join((&self.empty, &[]), (&leaf.row, Some(row), &leaf.taken), out.writer());
                out.end();
                let added = out.len() - 1;
                let keep = passes(behind.as_deref(), &self.context(&step.layout, out.get(added).unwrap_or(&[])))?;
                if !keep {
                    out.pop();
                }
            }
            run.env.count(probe::of(access, Of::Read), 0, read);
            run.env.count(probe::of(access, Of::Matched), 0, kept);
            if !self.feed(at + 1, out).await? {
                return Ok(false);
            }
        }
        state.bound = s.bound;
        Ok(true)
    }
}
