//! The order of versions, and all that can be judged without a graph.

use super::{Claim, Class, History, Level, OPEN, Op, Order, Status, report::Report};

/// Nobody appended it.
pub(super) const NOBODY: u32 = u32::MAX;

/// One element of a key's longest list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Version {
    pub txn: u32,
    /// The last append of its transaction to this key.
    pub last: bool,
    pub aborted: bool,
}

/// Who appended what, key by key in the order of the lists; and which transactions are committed.
pub(super) struct Versions {
    /// Of key `k`: `all[starts[k]..starts[k + 1]]`.
    starts: Vec<usize>,
    all: Vec<Version>,
    pub committed: Vec<bool>,
    /// Committed appends that no read shows, by key.
    pub unseen: Vec<(u32, u32)>,
    /// For each version, and for the end of each list: the earliest end of an acknowledged transaction that appended it or
    /// something after it, and that transaction.
    earliest: Vec<(u64, u32)>,
}

impl Versions {
    pub fn new(history: &History) -> Versions {
        let mut committed: Vec<bool> = history.txns.iter().map(|t| t.status == Status::Ok).collect();
        let mut starts = Vec::with_capacity(history.keys.len() + 1);
        let mut all = Vec::new();
        let mut seen = vec![false; history.ops.len()];
        for (key, k) in history.keys.iter().enumerate() {
            starts.push(all.len());
            for value in &k.longest {
                let Some(writer) = history.writers.get(&(key as u32, *value)) else {
                    all.push(Version { txn: NOBODY, last: true, aborted: false });
                    continue;
                };
                seen[writer.op as usize] = true;
                let aborted = history.txns[writer.txn as usize].status == Status::Fail;
                if !aborted {
                    committed[writer.txn as usize] = true;
                }
                all.push(Version {
                    txn: writer.txn,
                    last: is_last(history, key as u32, writer.txn, writer.op),
                    aborted,
                });
            }
        }
        starts.push(all.len());
        let mut unseen = Vec::new();
        for (txn, _) in history.txns.iter().enumerate().filter(|(t, _)| committed[*t]) {
            let first = history.txns[txn].first_op as usize;
            for (i, op) in history.ops_of(txn as u32).iter().enumerate() {
                if let Op::Append { key, .. } = *op
                    && !seen[first + i]
                {
                    unseen.push((key, txn as u32));
                }
            }
        }
        unseen.sort_unstable();
        unseen.dedup();
        let earliest = earliest_ends(history, &starts, &all, &unseen);
        Versions { starts, all, committed, unseen, earliest }
    }
    /// Who of those that appended something from position `at` on was acknowledged first, and when.
    pub fn earliest_from(&self, key: u32, at: usize) -> (u64, u32) {
        self.earliest[self.starts[key as usize] + key as usize + at]
    }
    pub fn of(&self, key: u32) -> &[Version] {
        &self.all[self.starts[key as usize]..self.starts[key as usize + 1]]
    }
    /// The first committed version at or after a position, and where it is.
    pub fn next_committed(&self, key: u32, from: usize) -> Option<(usize, u32)> {
        let rest = self.of(key).get(from..)?;
        rest.iter().position(|v| !v.aborted && v.txn != NOBODY).map(|i| (from + i, rest[i].txn))
    }
    /// The last committed version before a position, and where it is.
    pub fn last_committed(&self, key: u32, before: usize) -> Option<(usize, u32)> {
        let head = self.of(key).get(..before)?;
        head.iter().rposition(|v| !v.aborted && v.txn != NOBODY).map(|i| (i, head[i].txn))
    }
}

fn earliest_ends(history: &History, starts: &[usize], all: &[Version], unseen: &[(u32, u32)]) -> Vec<(u64, u32)> {
    let end_of = |txn: u32| match history.txns.get(txn as usize) {
        Some(t) if t.status == Status::Ok => (t.end, txn),
        _ => (OPEN, NOBODY),
    };
    let mut earliest = Vec::with_capacity(all.len() + starts.len());
    let mut unseen = unseen.iter().peekable();
    for (key, range) in starts.windows(2).enumerate() {
        let mut next = (OPEN, NOBODY);
        while let Some((_, txn)) = unseen.next_if(|u| u.0 as usize == key) {
            next = next.min(end_of(*txn));
        }
        let first = earliest.len();
        earliest.push(next);
        for version in all[range[0]..range[1]].iter().rev() {
            next = next.min(end_of(version.txn));
            earliest.push(next);
        }
        earliest[first..].reverse();
    }
    earliest
}

fn is_last(history: &History, key: u32, txn: u32, op: u32) -> bool {
    let first = history.txns[txn as usize].first_op;
    let later = &history.ops_of(txn)[(op - first) as usize + 1..];
    !later.iter().any(|o| matches!(o, Op::Append { key: k, .. } if *k == key))
}

pub(super) fn check(history: &History, versions: &Versions, claim: Claim, report: &mut Report) {
    for odd in &history.odd {
        let name = history.keys[odd.key as usize].name;
        let longest = &history.keys[odd.key as usize].longest;
        let at = longest.iter().zip(&odd.list).position(|(a, b)| a != b).unwrap_or(0);
        let what = format!(
            "T{} read {name} as {}, others as {}: they differ from position {at} on",
            odd.txn,
            super::report::list(&odd.list, at + 1),
            super::report::list(longest, at + 1)
        );
        report.add(history, Class::IncompatibleOrder, Order::None, &[odd.txn], &what);
    }
    report.count_more(Class::IncompatibleOrder, history.odd_count - history.odd.len() as u64);
    check_lists(history, versions, report);
    let mut updates = Vec::new();
    for txn in 0..history.txns.len() as u32 {
        if history.txns[txn as usize].status == Status::Ok {
            check_reads(history, versions, txn, claim, report);
            check_internal(history, txn, claim, report);
        }
        if claim.level >= Level::Snapshot && versions.committed[txn as usize] {
            note_updates(history, txn, &mut updates);
        }
    }
    if claim.order == Order::RealTime {
        check_monotonic(history, report);
    }
    updates.sort_unstable();
    for pair in updates.chunk_by(|a, b| a.0 == b.0 && a.1 == b.1).filter(|group| group.len() > 1) {
        let (key, length, _) = pair[0];
        let txns: Vec<u32> = pair.iter().map(|u| u.2).take(4).collect();
        let name = history.keys[key as usize].name;
        let what = format!("{} transactions read {name} with {length} elements and appended to it", pair.len());
        report.add(history, Class::LostUpdate, Order::None, &txns, &what);
    }
}

/// Values twice or from nobody.
fn check_lists(history: &History, versions: &Versions, report: &mut Report) {
    let mut sorted: Vec<(u64, usize)> = Vec::new();
    for (key, k) in history.keys.iter().enumerate() {
        for (at, version) in versions.of(key as u32).iter().enumerate().filter(|(_, v)| v.txn == NOBODY) {
            let what = format!("{} in {} at position {at} was appended by nobody", k.longest[at], k.name);
            report.add(history, Class::Garbage, Order::None, &[], &what);
            debug_assert!(version.txn == NOBODY);
        }
        sorted.clear();
        sorted.extend(k.longest.iter().copied().zip(0..));
        sorted.sort_unstable();
        for twice in sorted.windows(2).filter(|w| w[0].0 == w[1].0) {
            let (value, first, second) = (twice[0].0, twice[0].1, twice[1].1);
            let what = format!("{value} stands in {} at positions {first} and {second}", k.name);
            let txns: Vec<u32> = history.writers.get(&(key as u32, value)).map(|w| w.txn).into_iter().collect();
            report.add(history, Class::Duplicate, Order::None, &txns, &what);
        }
    }
}

/// What one transaction read: nothing aborted, nothing half done, nothing too old.
fn check_reads(history: &History, versions: &Versions, txn: u32, claim: Claim, report: &mut Report) {
    for op in history.ops_of(txn) {
        let Op::Read { key, length } = *op else { continue };
        let k = &history.keys[key as usize];
        let (name, all) = (k.name, versions.of(key));
        let head = &all[..length as usize];
        if let Some(at) = head.iter().position(|v| v.aborted && v.txn != txn) {
            let what =
                format!("T{txn} read {} in {name}, which T{} appended and rolled back", k.longest[at], head[at].txn);
            report.add(history, Class::G1a, Order::None, &[txn, head[at].txn], &what);
        }
        if let Some(last) = head.last().filter(|v| !v.last && v.txn != txn && v.txn != NOBODY) {
            let value = k.longest[head.len() - 1];
            let what = format!("T{txn} read {name} up to {value}, after which T{} appended more to it", last.txn);
            report.add(history, Class::G1b, Order::None, &[txn, last.txn], &what);
        }
        if claim.order == Order::RealTime {
            let (end, writer) = versions.earliest_from(key, length as usize);
            if end < history.txns[txn as usize].begin {
                let what = format!(
                    "T{txn} read {name} with {length} elements without the append of T{writer}, which had been acknowledged before"
                );
                report.add(history, Class::StaleRead, Order::RealTime, &[txn, writer], &what);
            }
        }
    }
}

/// Nobody reads less of a key than what a transaction had read that ended before.
fn check_monotonic(history: &History, report: &mut Report) {
    // Most elements of each key that were read by those that have ended, and by whom.
    let mut most: Vec<(u32, u32)> = vec![(0, NOBODY); history.keys.len()];
    let ok = |txn: &u32| history.txns[*txn as usize].status == Status::Ok;
    let mut ends: Vec<u32> = (0..history.txns.len() as u32).filter(ok).collect();
    ends.sort_unstable_by_key(|txn| history.txns[*txn as usize].end);
    let mut ended = ends.into_iter().peekable();
    // Transactions are in the order of their begins.
    for txn in (0..history.txns.len() as u32).filter(ok) {
        let begin = history.txns[txn as usize].begin;
        while let Some(before) = ended.next_if(|t| history.txns[*t as usize].end < begin) {
            for op in history.ops_of(before) {
                if let Op::Read { key, length } = *op {
                    let seen = &mut most[key as usize];
                    *seen = (*seen).max((length, before));
                }
            }
        }
        for op in history.ops_of(txn) {
            let Op::Read { key, length } = *op else { continue };
            let (seen, before) = most[key as usize];
            if seen > length {
                let name = history.keys[key as usize].name;
                let what =
                    format!("T{txn} read {name} with {length} elements, of which T{before} had read {seen} before");
                report.add(history, Class::StaleRead, Order::RealTime, &[txn, before], &what);
            }
        }
    }
}

/// A transaction sees its own appends, and from SNAPSHOT READS on what it read before and nothing else; but where the appends are of a
/// later moment than the reads, the first of them may bring those of others.
fn check_internal(history: &History, txn: u32, claim: Claim, report: &mut Report) {
    let ops = history.ops_of(txn);
    for (i, op) in ops.iter().enumerate() {
        let Op::Read { key, length } = *op else { continue };
        let k = &history.keys[key as usize];
        let list = &k.longest[..length as usize];
        let before = &ops[..i];
        let read = before.iter().rposition(|o| matches!(o, Op::Read { key: k, .. } if *k == key));
        let since = read.map_or(0, |r| r + 1);
        let own = |o: &Op| match *o {
            Op::Append { key: k, value } if k == key => Some(value),
            _ => None,
        };
        let mut own_all = before.iter().filter_map(own);
        let own_since: Vec<u64> = before[since..].iter().filter_map(own).collect();
        let base = read.and_then(|r| if let Op::Read { length, .. } = ops[r] { Some(length as usize) } else { None });
        let crossed = claim.level == Level::SnapshotReads
            && read.is_some_and(|r| !before[..r].iter().any(|o| own(o).is_some()))
            && !own_since.is_empty();
        let unusable = before.iter().any(|o| matches!(o, Op::Unusable { key: k } if *k == key));
        let what = if let Some(missing) = own_all.find(|v| !list.contains(v)) {
            format!("T{txn} read {} without {missing}, which it had appended itself", k.name)
        } else if claim.level >= Level::SnapshotReads && !unusable && !list.ends_with(&own_since) {
            format!("T{txn} read {} with something after its own appends", k.name)
        } else if claim.level >= Level::SnapshotReads
            && let Some(base) = base.filter(|base| {
                let least = base + own_since.len();
                if crossed { list.len() < least } else { list.len() != least }
            })
        {
            format!("T{txn} read {} with {base} elements and later with {}, not by its own appends", k.name, list.len())
        } else {
            continue;
        };
        report.add(history, Class::Internal, Order::None, &[txn], &what);
    }
}

/// Keys that a transaction read, before it appended to them: (key, elements read, transaction).
fn note_updates(history: &History, txn: u32, updates: &mut Vec<(u32, u32, u32)>) {
    let ops = history.ops_of(txn);
    for (i, op) in ops.iter().enumerate() {
        let Op::Read { key, length } = *op else { continue };
        let appends = |o: &Op| matches!(o, Op::Append { key: k, .. } if *k == key);
        let touched = |o: &Op| matches!(o, Op::Append { key: k, .. } | Op::Read { key: k, .. } if *k == key);
        if !ops[..i].iter().any(touched) && ops[i + 1..].iter().any(appends) {
            updates.push((key, length, txn));
        }
    }
}
