//! A terminal: one connection, one transaction after the other without think time, each tried again until it is through.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use super::{
    input::{Deck, Input, KINDS, Kind},
    schema::{DATABASE, DISTRICTS},
    transaction::{End, Teller},
};
use crate::bench::{
    mysql::{CONNECTION_LOST, Connection, Failure},
    numbers::{Latencies, Random},
    rows::is_temporary,
    target::Server,
};

/// A statement that is not answered for so long is given up, with its connection.
const DEADLINE: Duration = Duration::from_secs(60);
const RECONNECT_PAUSE: Duration = Duration::from_millis(50);

/// What a terminal saw.
pub struct Tally {
    /// By kind: commits, of those of the measured time, rollbacks that were meant.
    pub latencies: [Latencies; KINDS.len()],
    pub committed: [u64; KINDS.len()],
    pub rolled_back: u64,
    /// By kind and MySQL's number: attempts that failed.
    pub aborts: BTreeMap<(&'static str, u16), u64>,
    /// Failures that no client expects, the first of them in words.
    pub unexpected: u64,
    pub first: Option<String>,
    /// The longest time between two commits.
    pub gap: Duration,
}

impl Tally {
    pub fn new() -> Tally {
        Tally {
            latencies: std::array::from_fn(|_| Latencies::new()),
            committed: [0; KINDS.len()],
            rolled_back: 0,
            aborts: BTreeMap::new(),
            unexpected: 0,
            first: None,
            gap: Duration::ZERO,
        }
    }

    pub fn merge(&mut self, other: &Tally) {
        for at in 0..KINDS.len() {
            self.latencies[at].merge(&other.latencies[at]);
            self.committed[at] += other.committed[at];
        }
        self.rolled_back += other.rolled_back;
        for (key, count) in &other.aborts {
            *self.aborts.entry(*key).or_default() += count;
        }
        self.unexpected += other.unexpected;
        self.first = self.first.take().or_else(|| other.first.clone());
        self.gap = self.gap.max(other.gap);
    }

    fn failed(&mut self, kind: Kind, failure: &Failure) {
        *self.aborts.entry((kind.name(), failure.errno())).or_default() += 1;
        if !is_expected(failure.errno()) {
            self.unexpected += 1;
            self.first.get_or_insert_with(|| format!("{}: {failure}", kind.name()));
        }
    }
}

/// Deadlock, lock wait timeout; a commit whose outcome the cluster cannot tell after a failure; a connection that broke.
fn is_expected(errno: u16) -> bool {
    is_temporary(errno) || errno == super::OUTCOME_UNKNOWN || errno == CONNECTION_LOST
}

pub struct Terminal<'t> {
    pub server: &'t Server,
    pub number: u64,
    pub warehouses: u64,
    pub seed: u64,
    /// Before this nothing is counted.
    pub measured_from: Instant,
    pub stop: &'t AtomicBool,
}

impl Terminal<'_> {
    /// Works until it is told to stop.
    pub fn run(&self) -> Tally {
        let w = self.number % self.warehouses + 1;
        let home = self.number / self.warehouses % DISTRICTS + 1;
        let mut random = Random::new(self.seed ^ (self.number + 1).wrapping_mul(0x9e37_79b9));
        let (mut deck, mut tally, mut connection) = (Deck::default(), Tally::new(), None);
        let mut last = Instant::now();
        while !self.stop.load(Ordering::Relaxed) {
            let input = deck.draw(w, self.warehouses, home, &mut random);
            let begin = Instant::now();
            let Some(end) = self.complete(&mut connection, w, &input, &mut tally) else { continue };
            let now = Instant::now();
            if begin < self.measured_from {
                last = now;
                continue;
            }
            tally.gap = tally.gap.max(now - last);
            last = now;
            tally.latencies[input.kind() as usize].record(now - begin);
            match end {
                End::Committed => tally.committed[input.kind() as usize] += 1,
                End::RolledBack => tally.rolled_back += 1,
            }
        }
        tally
    }

    /// Tries until the transaction is through; `None`: it was given up.
    fn complete(&self, connection: &mut Option<Connection>, w: u64, input: &Input, tally: &mut Tally) -> Option<End> {
        while !self.stop.load(Ordering::Relaxed) {
            let Some(open) = connection.as_mut() else {
                *connection = self.connect(input.kind(), tally);
                continue;
            };
            let failure = match (Teller { connection: open, w }).run(input) {
                Ok(end) => return Some(end),
                Err(failure) => failure,
            };
            tally.failed(input.kind(), &failure);
            if matches!(failure, Failure::Lost(_)) || open.execute("ROLLBACK").is_err() {
                *connection = None;
                return None; // whether it committed is not known
            }
            if !is_temporary(failure.errno()) {
                return None;
            }
        }
        None
    }

    fn connect(&self, kind: Kind, tally: &mut Tally) -> Option<Connection> {
        let open = || {
            let mut connection = self.server.connect(self.number as usize, Some(DATABASE), DEADLINE)?;
            connection.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")?;
            Ok(connection)
        };
        match open() {
            Ok(connection) => Some(connection),
            Err(failure) => {
                tally.failed(kind, &failure);
                thread::sleep(RECONNECT_PAUSE); // as a pool of connections does
                None
            }
        }
    }
}
