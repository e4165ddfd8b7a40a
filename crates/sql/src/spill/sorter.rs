//! Sorting more than fits into memory: sorted runs in a file, merged.
//!
//! What comes is held until it is over the memory that it may take; then it is sorted ([`Pairs`]) and written as a run. At the end [`FAN_IN`] runs at a time are merged, the last ones while they are
//! read, and what is still in memory with them. A run has come before the next, and of equal keys the one of the earlier run goes first: so the order is that of a stable sort of all.

use std::rc::Rc;

use super::{
    FAN_IN,
    byte_strings::Pairs,
    file::File,
    stream::{Reader, Stream, Writer},
};
use crate::{errors::Result, expr::Env};

/// Sorted runs of pairs, in the order in which they came.
#[derive(Default, Debug)]
pub struct Runs {
    /// To which runs are added.
    file: Option<File>,
    runs: Vec<Rc<Stream>>,
}

impl Runs {
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Sorts pairs and writes the first `most` of them as the next run, with the payloads that `map` makes of theirs; they are forgotten then.
    ///
    /// # Errors
    /// As [`File::append`].
    pub async fn add_mapped(
        &mut self,
        pairs: &mut Pairs,
        most: usize,
        mut map: impl FnMut(&[u8], &mut Vec<u8>),
        env: &Env,
    ) -> Result<()> {
        if pairs.is_empty() {
            return Ok(());
        }
        pairs.sort_in_turns(env).await?;
        let file = self.file(env).await?;
        let (mut run, mut payload) = (Writer::default(), Vec::new());
        for at in 0..pairs.len().min(most) {
            payload.clear();
            map(pairs.payload(at), &mut payload);
            run.push(pairs.key(at), &payload);
            if run.is_full() {
                run.flush(&file, env).await?;
            }
            env.breathe(1).await?;
        }
        pairs.clear();
        self.push(run.end(&file, env).await?);
        Ok(())
    }

    /// As [`Runs::add_mapped`] of all payloads as they are.
    ///
    /// # Errors
    /// As [`File::append`].
    pub async fn add(&mut self, pairs: &mut Pairs, env: &Env) -> Result<()> {
        self.add_mapped(pairs, usize::MAX, |payload, out| out.extend_from_slice(payload), env).await
    }

    /// Adds a run that is sorted.
    pub fn push(&mut self, run: Stream) {
        self.runs.push(Rc::new(run));
    }

    /// The file to write runs to.
    ///
    /// # Errors
    /// As [`File::create`].
    pub async fn file(&mut self, env: &Env) -> Result<File> {
        if let Some(file) = &self.file {
            return Ok(file.clone());
        }
        let file = File::create(env).await?;
        Ok(self.file.insert(file).clone())
    }

    /// All pairs by key; `last` is a run, not sorted yet, that stays in memory.
    ///
    /// # Errors
    /// As [`File::append`].
    pub async fn merge(mut self, mut last: Pairs, env: &Env) -> Result<Merge> {
        last.sort_in_turns(env).await?;
        while self.runs.len() > FAN_IN {
            let file = File::create(env).await?;
            let mut longer = Vec::with_capacity(self.runs.len().div_ceil(FAN_IN));
            for some in self.runs.chunks(FAN_IN) {
                longer.push(match some {
                    [one] => one.clone(),
                    some => Rc::new(one_of(some, &file, env).await?),
                });
            }
            self.runs = longer;
        }
        let mut sources: Vec<Source> = self.runs.drain(..).map(|run| Source::Stream(Reader::new(run))).collect();
        sources.push(Source::Memory(last, 0));
        Merge::new(sources, env).await
    }
}

/// Merges runs into one.
async fn one_of(runs: &[Rc<Stream>], file: &File, env: &Env) -> Result<Stream> {
    let sources = runs.iter().map(|run| Source::Stream(Reader::new(run.clone()))).collect();
    let mut merge = Merge::new(sources, env).await?;
    let mut merged = Writer::default();
    while merge.advance(env).await? {
        merged.push(merge.key(), merge.payload());
        if merged.is_full() {
            merged.flush(file, env).await?;
        }
    }
    merged.end(file, env).await
}

/// Pairs to sort, in memory as long as they fit.
#[derive(Debug)]
pub struct Sorter {
    pairs: Pairs,
    runs: Runs,
    bytes_max: usize,
}

impl Sorter {
    /// With so much memory.
    pub fn new(bytes_max: usize) -> Sorter {
        Sorter { pairs: Pairs::default(), runs: Runs::default(), bytes_max }
    }

    /// Adds a pair; whoever adds many lets it [`settle`](Sorter::settle).
    pub fn push(&mut self, key: &[u8], payload: &[u8]) {
        self.pairs.push_plain(key, payload);
    }
    /// As [`Sorter::push`] of a payload in parts.
    pub fn push_parts(&mut self, key: &[u8], parts: &[&[u8]]) {
        self.pairs.push_parts(key, parts);
    }

    pub fn is_full(&self) -> bool {
        self.pairs.byte_len() > self.bytes_max
    }

    /// Writes a run when memory is full.
    ///
    /// # Errors
    /// As [`File::append`].
    pub async fn settle(&mut self, env: &Env) -> Result<()> {
        if self.is_full() { self.runs.add(&mut self.pairs, env).await } else { Ok(()) }
    }

    /// All pairs by key.
    ///
    /// # Errors
    /// As [`File::append`].
    pub async fn merge(self, env: &Env) -> Result<Merge> {
        self.runs.merge(self.pairs, env).await
    }
}

#[derive(Debug)]
enum Source {
    Stream(Reader),
    /// And how many of its pairs were taken.
    Memory(Pairs, usize),
}

impl Source {
    async fn advance(&mut self, env: &Env) -> Result<bool> {
        match self {
            Source::Stream(reader) => reader.advance(env).await,
            Source::Memory(pairs, taken) => {
                *taken += 1;
                Ok(*taken <= pairs.len())
            }
        }
    }
    fn key(&self) -> &[u8] {
        match self {
            Source::Stream(reader) => reader.key(),
            Source::Memory(pairs, taken) => pairs.key(taken - 1),
        }
    }
    fn payload(&self) -> &[u8] {
        match self {
            Source::Stream(reader) => reader.payload(),
            Source::Memory(pairs, taken) => pairs.payload(taken - 1),
        }
    }
}

/// Pairs of several sorted sources, by key; of equal keys those of the earlier source first.
#[derive(Debug)]
pub struct Merge {
    sources: Vec<Source>,
    /// Those that have a pair, as a heap: the least is in front.
    heap: Vec<usize>,
    has_begun: bool,
}

impl Merge {
    async fn new(sources: Vec<Source>, env: &Env) -> Result<Merge> {
        let mut merge = Merge { heap: Vec::with_capacity(sources.len()), sources, has_begun: false };
        for (at, source) in merge.sources.iter_mut().enumerate() {
            if source.advance(env).await? {
                merge.heap.push(at);
            }
        }
        for at in (0..merge.heap.len() / 2).rev() {
            merge.sink(at);
        }
        Ok(merge)
    }

    /// Goes to the next pair; false behind the last.
    ///
    /// # Errors
    /// As [`File::read`].
    pub async fn advance(&mut self, env: &Env) -> Result<bool> {
        if !std::mem::replace(&mut self.has_begun, true) {
            return Ok(!self.heap.is_empty());
        }
        let Some(&first) = self.heap.first() else { return Ok(false) };
        env.breathe(1).await?;
        if !self.sources[first].advance(env).await? {
            self.heap.swap_remove(0);
        }
        self.sink(0);
        Ok(!self.heap.is_empty())
    }

    /// The pair that [`Merge::advance`] came to; nothing behind the last.
    pub fn key(&self) -> &[u8] {
        self.heap.first().map_or(&[], |&first| self.sources[first].key())
    }
    pub fn payload(&self) -> &[u8] {
        self.heap.first().map_or(&[], |&first| self.sources[first].payload())
    }

    /// Brings entry `at` of the heap to its place among those below it.
    fn sink(&mut self, mut at: usize) {
        let Merge { sources, heap, .. } = self;
        let is_before = |a: usize, b: usize| sources[a].key().cmp(sources[b].key()).then(a.cmp(&b)).is_lt();
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            let mut least = at;
            for below in [left, right] {
                if below < heap.len() && is_before(heap[below], heap[least]) {
                    least = below;
                }
            }
            if least == at {
                return;
            }
            heap.swap(at, least);
            at = least;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorts_as_in_memory_with_any_memory() {
        let env = Env::new("root".into(), "localhost".into(), 7, 1, Default::default());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        for (count, bytes_max) in [(0, 0), (1, 0), (5000, 1 << 20), (5000, 40_000), (5000, 1000), (300, 0)] {
            let key = |n: u32| (n.wrapping_mul(2_654_435_761) % 701).to_be_bytes();
            let mut wanted: Vec<u32> = (0..count).collect();
            wanted.sort_by_key(|n| key(*n));
            let found: Vec<u32> = runtime.block_on(async {
                let mut sorter = Sorter::new(bytes_max);
                for n in 0..count {
                    sorter.push(&key(n), &n.to_le_bytes());
                    sorter.settle(&env).await.unwrap();
                }
                let mut merge = sorter.merge(&env).await.unwrap();
                let mut found = Vec::new();
                while merge.advance(&env).await.unwrap() {
                    let n = u32::from_le_bytes(merge.payload().try_into().unwrap());
                    assert_eq!(merge.key(), key(n));
                    found.push(n);
                }
                assert!(!merge.advance(&env).await.unwrap());
                found
            });
            assert_eq!(found, wanted, "{count} pairs in {bytes_max} bytes");
        }
        drop(runtime);
        assert_eq!(env.spill_space().used(), 0);
    }
}
