//! The first row of each key, in the order in which they came, where memory has no room to remember the keys.

use super::{Merge, Sorter};
use crate::{errors::Result, expr::Env};

/// In front of a row: its number.
const NUMBER: usize = 8;

/// Rows of which it is said later whether they are the first of their key.
#[derive(Debug)]
pub struct Later {
    rows: Sorter,
    bytes_max: usize,
    number: u64,
}

impl Later {
    /// With so much memory.
    pub fn new(bytes_max: usize) -> Later {
        Later { rows: Sorter::new(bytes_max), bytes_max, number: 0 }
    }

    /// Adds a row; whoever adds many lets it [`settle`](Later::settle).
    pub fn push(&mut self, key: &[u8], row: &[u8]) {
        self.number += 1;
        self.rows.push_parts(key, &[&self.number.to_be_bytes(), row]);
    }
    pub fn is_full(&self) -> bool {
        self.rows.is_full()
    }

    /// Writes a run when memory is full.
    ///
    /// # Errors
    /// As [`Sorter::settle`].
    pub async fn settle(&mut self, env: &Env) -> Result<()> {
        self.rows.settle(env).await
    }

    /// The first rows: payloads of what is returned.
    ///
    /// # Errors
    /// As [`Sorter::settle`].
    pub async fn firsts(self, env: &Env) -> Result<Merge> {
        let mut rows = self.rows.merge(env).await?;
        let mut firsts = Sorter::new(self.bytes_max);
        let (mut last, mut is_first) = (Vec::new(), true);
        while rows.advance(env).await? {
            if std::mem::take(&mut is_first) || rows.key() != last {
                last.clear();
                last.extend_from_slice(rows.key());
                let (number, row) = rows.payload().split_at(NUMBER);
                firsts.push(number, row);
                firsts.settle(env).await?;
            }
        }
        firsts.merge(env).await
    }
}
