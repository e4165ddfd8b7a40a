//! Histories of transactions that append to lists and read them, judged as Elle does it (Kingsbury and Alvaro, VLDB 2020).
//!
//! A list that was read names every append before it in order, so reads alone give the order of all versions of a key: the longest read,
//! of which every other must be a prefix. With it every pair of transactions that touched neighbouring versions is in a known order, and a
//! history is good if these orders, together with real time if it is claimed, have no cycle of the forbidden shapes. Nothing is guessed:
//! whatever is reported did happen.
//!
//! | class | what it is | forbidden from |
//! |---|---|---|
//! | garbage, duplicate, incompatible order | a list holds what nobody appended, a value twice, or contradicts another | always |
//! | G0 | cycle of writes (ww) | READ COMMITTED |
//! | G1a, G1b, G1c | read of an aborted append, of a half-done transaction, cycle of writes and reads (ww, wr) | READ COMMITTED |
//! | internal | a transaction does not see what it did or read itself | own appends always, reads from SNAPSHOT READS |
//! | lost update | two read the same version of a key and both appended to it | SNAPSHOT |
//! | G-single, G-nonadjacent | cycle with one anti-dependency (rw), or with several that are never neighbours | SNAPSHOT |
//! | G2-item | any other cycle with anti-dependencies | SERIALIZABLE |
//! | stale read | a read that misses what was acknowledged, or read by a transaction that ended, before it began | any level with real time |
//!
//! SNAPSHOT READS is what REPEATABLE READ means where plain reads see one moment and writes work on what is there now (InnoDB; Apus,
//! docs/internals/epochs.md). Each transaction stands for two, its reads and after them its appends, and those must be serializable: no cycle of any
//! class. So nothing is seen in part, no two readers disagree about the order of two writers, and a transaction that only reads or only
//! appends is serializable with all others. A lost update and write skew are allowed: between its two halves others come. What a
//! transaction reads of a list that it appended to before belongs to its appends, which hold a lock. With real time, reads have all that was
//! acknowledged before and nothing that began after them; between appends alone only data gives an order, as their epochs do.
//!
//! A cycle that needs the order of a process or of real time is called so (`G-single-realtime`). Levels without real time also look for
//! nothing of it.
//!
//! Versions: of a transaction with unknown outcome whatever was seen is committed. An acknowledged append that no read shows comes after
//! all that were read. Of a key whose reads contradict each other only the order of the longest is used, and the contradiction reported.
//!
//! # Cost
//!
//! Reads are kept as lengths of the longest list of their key, so memory is linear in the operations however long lists grow. Cycles are
//! found by strongly connected components (Tarjan, without recursion); real time costs two edges and a node per transaction, because one
//! barrier after another takes those that have ended and gives to those that begin. A million transactions take seconds.

mod cycles;
mod graph;
mod report;
mod rules;
#[cfg(test)]
mod tests;

use std::fmt;

use apus_types::collections::FixedMap;

use super::history::{Event, EventKind, Mop};

pub use report::{Anomaly, Report};

/// Contradicting lists kept as evidence; more are counted.
const ODD_LISTS_MAX: usize = 16;
const OPEN: u64 = u64::MAX;

/// An isolation level as claimed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    ReadCommitted,
    /// All reads at one moment, all appends at a later one.
    SnapshotReads,
    Snapshot,
    Serializable,
}

/// Which order besides that of the data is claimed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Order {
    None,
    /// Of the transactions of each process.
    Process,
    /// Of any two transactions of which one ended before the other began.
    RealTime,
}

/// What a database claims.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    pub level: Level,
    pub order: Order,
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = match self.order {
            Order::None => "",
            Order::Process => "session-",
            Order::RealTime => "strict-",
        };
        let level = match self.level {
            Level::ReadCommitted => "read-committed",
            Level::SnapshotReads => "snapshot-reads",
            Level::Snapshot => "snapshot",
            Level::Serializable => "serializable",
        };
        write!(f, "{order}{level}")
    }
}

impl Claim {
    pub const NAMES: &[&str] = &[
        "read-committed",
        "snapshot-reads",
        "snapshot",
        "serializable",
        "session-read-committed",
        "session-snapshot-reads",
        "session-snapshot",
        "session-serializable",
        "strict-read-committed",
        "strict-snapshot-reads",
        "strict-snapshot",
        "strict-serializable",
    ];

    /// `strict-` claims real time, `session-` the order of each process.
    pub fn parse(name: &str) -> Option<Claim> {
        let (order, level) = match name.split_once('-') {
            Some(("strict", level)) => (Order::RealTime, level),
            Some(("session", level)) => (Order::Process, level),
            _ => (Order::None, name),
        };
        let level = match level {
            "read-committed" => Level::ReadCommitted,
            "snapshot-reads" => Level::SnapshotReads,
            "snapshot" => Level::Snapshot,
            "serializable" => Level::Serializable,
            _ => return None,
        };
        Some(Claim { level, order })
    }
}

/// What is wrong with a history.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Class {
    Garbage,
    Duplicate,
    IncompatibleOrder,
    Internal,
    G0,
    G1a,
    G1b,
    G1c,
    LostUpdate,
    GSingle,
    GNonadjacent,
    G2Item,
    StaleRead,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::Garbage => "garbage read",
            Class::Duplicate => "duplicate elements",
            Class::IncompatibleOrder => "incompatible order",
            Class::Internal => "internal",
            Class::G0 => "G0",
            Class::G1a => "G1a (aborted read)",
            Class::G1b => "G1b (intermediate read)",
            Class::G1c => "G1c",
            Class::LostUpdate => "lost update",
            Class::GSingle => "G-single",
            Class::GNonadjacent => "G-nonadjacent",
            Class::G2Item => "G2-item",
            Class::StaleRead => "stale read",
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Status {
    Ok,
    Fail,
    Unknown,
}

#[derive(Clone, Copy, Debug)]
struct Txn {
    process: u64,
    /// Numbers of its events.
    begin: u64,
    end: u64,
    status: Status,
    first_op: u32,
    op_count: u32,
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Append {
        key: u32,
        value: u64,
    },
    /// So many elements of the key's longest list.
    Read {
        key: u32,
        length: u32,
    },
    /// Not answered, or what was read contradicts the longest list.
    Unusable {
        key: u32,
    },
}

#[derive(Debug, Default)]
struct Key {
    name: u64,
    longest: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Writer {
    txn: u32,
    /// Number of the operation in the history.
    op: u32,
}

/// A read that contradicts others of its key.
#[derive(Debug)]
struct Odd {
    txn: u32,
    key: u32,
    list: Vec<u64>,
}

/// A history, taken in event by event.
#[derive(Debug, Default)]
pub struct History {
    txns: Vec<Txn>,
    ops: Vec<Op>,
    keys: Vec<Key>,
    key_numbers: FixedMap<u64, u32>,
    writers: FixedMap<(u32, u64), Writer>,
    open: FixedMap<u64, u32>,
    odd: Vec<Odd>,
    odd_count: u64,
    events: u64,
}

impl History {
    pub fn new() -> History {
        History::default()
    }
    /// Transactions begun.
    pub fn len(&self) -> usize {
        self.txns.len()
    }
    pub fn is_empty(&self) -> bool {
        self.txns.is_empty()
    }

    /// Takes the next event.
    ///
    /// # Errors
    /// A history that is none: an end without a begin, two transactions open in one process, an end that is of another
    /// transaction than the begin, a value appended twice.
    pub fn add(&mut self, event: &Event) -> Result<(), String> {
        let number = self.events;
        self.events += 1;
        let process = event.process;
        if event.kind == EventKind::Invoke {
            return self.begin(number, process, &event.mops);
        }
        let Some(txn) = self.open.remove(&process) else {
            return Err(format!("event {}: process {process} ends a transaction that it did not begin", event.index));
        };
        let at = txn as usize;
        self.txns[at].status = match event.kind {
            EventKind::Ok => Status::Ok,
            EventKind::Fail => Status::Fail,
            _ => Status::Unknown,
        };
        if self.txns[at].status != Status::Unknown {
            self.txns[at].end = number;
        }
        if self.txns[at].status == Status::Ok {
            self.answers(txn, &event.mops).map_err(|what| format!("event {}: {what}", event.index))?;
        }
        Ok(())
    }

    fn begin(&mut self, number: u64, process: u64, mops: &[Mop]) -> Result<(), String> {
        let too_large = |_| "the history is too large".to_owned();
        let txn = u32::try_from(self.txns.len()).map_err(too_large)?;
        let first_op = u32::try_from(self.ops.len() + mops.len()).map_err(too_large)? - mops.len() as u32;
        if self.open.insert(process, txn).is_some() {
            return Err(format!("event {number}: process {process} has a transaction open"));
        }
        let op_count = mops.len() as u32;
        self.txns.push(Txn { process, begin: number, end: OPEN, status: Status::Unknown, first_op, op_count });
        for mop in mops {
            let (Mop::Append { key: name, .. } | Mop::Read { key: name, .. }) = *mop;
            let key = self.key(name);
            let Mop::Append { value, .. } = *mop else {
                self.ops.push(Op::Unusable { key });
                continue;
            };
            let op = self.ops.len() as u32;
            self.ops.push(Op::Append { key, value });
            if self.writers.insert((key, value), Writer { txn, op }).is_some() {
                return Err(format!("event {number}: {value} is appended to {name} for the second time"));
            }
        }
        Ok(())
    }

    fn key(&mut self, name: u64) -> u32 {
        let keys = &mut self.keys;
        *self.key_numbers.entry(name).or_insert_with(|| {
            keys.push(Key { name, longest: Vec::new() });
            (keys.len() - 1) as u32
        })
    }

    fn answers(&mut self, txn: u32, mops: &[Mop]) -> Result<(), String> {
        let Txn { first_op, op_count, .. } = self.txns[txn as usize];
        if mops.len() != op_count as usize {
            return Err("a transaction ends with more or fewer operations than it began with".to_owned());
        }
        for (op, mop) in (first_op as usize..).zip(mops) {
            match (self.ops[op], mop) {
                (Op::Append { key, value }, Mop::Append { key: name, value: again })
                    if self.keys[key as usize].name == *name && value == *again => {}
                (Op::Unusable { key }, Mop::Read { key: name, list }) if self.keys[key as usize].name == *name => {
                    if let Some(list) = list {
                        self.ops[op] = self.read(txn, key, list);
                    }
                }
                _ => return Err("a transaction ends with other operations than it began with".to_owned()),
            }
        }
        Ok(())
    }

    fn read(&mut self, txn: u32, key: u32, list: &[u64]) -> Op {
        let longest = &mut self.keys[key as usize].longest;
        let common = longest.len().min(list.len());
        if longest[..common] != list[..common] {
            self.odd_count += 1;
            if self.odd.len() < ODD_LISTS_MAX {
                self.odd.push(Odd { txn, key, list: list.to_vec() });
            }
            return Op::Unusable { key };
        }
        longest.extend_from_slice(&list[common..]);
        Op::Read { key, length: list.len() as u32 }
    }

    fn ops_of(&self, txn: u32) -> &[Op] {
        let t = &self.txns[txn as usize];
        &self.ops[t.first_op as usize..(t.first_op + t.op_count) as usize]
    }

    /// Judges what was taken in; what is still open has an unknown outcome.
    pub fn check(&self, claim: Claim) -> Report {
        let mut report = Report::new(self);
        let versions = rules::Versions::new(self);
        rules::check(self, &versions, claim, &mut report);
        let graph = graph::Graph::new(self, &versions, claim);
        cycles::check(self, &graph, claim, &mut report);
        report
    }
}
