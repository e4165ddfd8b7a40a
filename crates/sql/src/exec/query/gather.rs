//! The rows of a leaf that is joined by hash, or each with each: in memory as long as there is room, then in files.
//!
//! Rows that are joined by equal values are parted by a hash of these ([`parted`](super::partitioned_join)); those of a NULL are left out, they equal nothing. Others are kept in the order in which they came.

use std::rc::Rc;

use super::{
    Run,
    hash::push_key,
    pipeline::{Consumer, context, passes},
};
use crate::{
    errors,
    plan::query::JoinStep,
    session::Done,
    spill::{Gathered, Kept, Partitions, Stream, byte_strings::Strings},
    value::datum::Datum,
};

/// Rows between two looks at memory.
const ROWS_IN_A_ROW: usize = 256;

/// The rows of a leaf.
pub enum Side {
    Memory(Rc<Strings>),
    /// Those that satisfy the leaf's own condition, in the order in which they came.
    Whole(Kept, u64),
    /// The same by a hash of the values that they are joined by.
    Parted(Vec<Rc<Stream>>, u64),
}

pub struct Gather<'g, 'r> {
    run: &'g Run<'r>,
    given: &'g [Datum<'g>],
    leaf: &'g JoinStep,
    rows: Strings,
    over: Option<Over>,
    key: Vec<u8>,
    /// Rows in files.
    count: u64,
}

enum Over {
    Whole(Gathered),
    Parted(Partitions),
}

impl<'g, 'r> Gather<'g, 'r> {
    pub fn new(run: &'g Run<'r>, given: &'g [Datum<'g>], leaf: &'g JoinStep) -> Self {
        Gather { run, given, leaf, rows: Strings::default(), over: None, key: Vec::new(), count: 0 }
    }

    /// Adds a row; whoever adds many lets it [`settle`](Gather::settle).
    pub fn push(&mut self, row: &[u8]) -> errors::Result<()> {
        if self.over.is_some() {
            return self.put(row);
        }
        self.rows.push(row);
        Ok(())
    }

    fn put(&mut self, row: &[u8]) -> errors::Result<()> {
        let cx = context(self.run, self.given, &self.leaf.row, row);
        if !passes(self.leaf.own.as_ref(), &cx)? {
            return Ok(());
        }
        self.count += 1;
        match &mut self.over {
            None => {}
            Some(Over::Whole(rows)) => rows.rows.push(row),
            Some(Over::Parted(parts)) => {
                let has_key = push_key(&self.leaf.keys, |k| &k.inner, &cx, &mut self.key)?;
                if has_key {
                    parts.push(&self.key, &[row]);
                }
            }
        }
        Ok(())
    }

    /// Sees to it that memory stays within its limit.
    pub async fn settle(&mut self) -> errors::Result<()> {
        let env = self.run.env;
        match &mut self.over {
            None if self.rows.byte_len() <= self.run.left() => Ok(()),
            None => Box::pin(self.spill()).await,
            Some(Over::Parted(parts)) => parts.settle(env).await,
            Some(Over::Whole(rows)) => rows.settle(0, env).await,
        }
    }

    /// From now on rows go to files, first those that are there.
    pub async fn spill(&mut self) -> errors::Result<()> {
        let env = self.run.env;
        if !env.spill_space().is_open() {
            return self.run.has_room_for(self.rows.byte_len());
        }
        self.over = Some(match self.leaf.keys.is_empty() {
            true => Over::Whole(Gathered::default()),
            false => Over::Parted(Partitions::new(0, env).await?),
        });
        let rows = std::mem::take(&mut self.rows);
        self.put_all(rows.iter()).await
    }

    /// Puts rows into files.
    pub async fn put_all<'s>(&mut self, rows: impl Iterator<Item = &'s [u8]>) -> errors::Result<()> {
        for (at, row) in rows.enumerate() {
            self.put(row)?;
            if at % ROWS_IN_A_ROW == ROWS_IN_A_ROW - 1 {
                self.run.breathe(ROWS_IN_A_ROW).await?;
                Box::pin(self.settle()).await?;
            }
        }
        Ok(())
    }

    pub async fn end(self) -> errors::Result<Side> {
        let env = self.run.env;
        Ok(match self.over {
            None => Side::Memory(Rc::new(self.rows)),
            Some(Over::Whole(rows)) => Side::Whole(rows.end(env).await?, self.count),
            Some(Over::Parted(parts)) => Side::Parted(parts.end(env).await?, self.count),
        })
    }
}

impl Consumer for Gather<'_, '_> {
    async fn take(&mut self, rows: &Strings) -> Done<bool> {
        rows.iter().try_for_each(|row| self.push(row))?;
        self.settle().await?;
        Ok(true)
    }
}
