//! Registers: single values that are read, written, and compared and set. Judged per key: is there an order of all operations, each at a moment
//! between its begin and its end, in which every read gives what was written last?
//!
//! The search is that of Wing and Gong as Lowe ran it: events in the order of time, and at each the set of all states that the register can
//! be in, a state being its value and which of the open operations have happened. An operation is made to happen only when one that ends has
//! not yet happened, so states stay few. A read that fits happens at once, because it costs nothing.
//!
//! What has no known outcome may happen at any time later or never. It stays open for ever, so it is cut where it cannot matter: it is left
//! out if nobody ever saw its value, and forgotten after the last operation that did. Reads without an answer are left out; a compare-and-set
//! that did not fit is a read of what it found.
//!
//! Limits: [`OPEN_MAX`] operations open at once, [`STATES_MAX`] states; past them the verdict is `Undecided`, never a guess.

use std::collections::{BTreeMap, BTreeSet};

/// Most operations that may be open at one time, those of unknown outcome included.
pub const OPEN_MAX: usize = 64;
/// Most states of a register after one event.
pub const STATES_MAX: usize = 1 << 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// What was seen; `None`: no row.
    Read(Option<u64>),
    Write(Option<u64>),
    /// From what was seen to what was written.
    Cas(Option<u64>, Option<u64>),
}

/// One operation. What failed for certain is not among them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation {
    pub key: u64,
    pub process: u64,
    pub begin: u64,
    /// `None`: nobody knows whether it happened.
    pub end: Option<u64>,
    pub action: Action,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    Linearizable,
    /// Why not: the operation for which no order was left, and what surrounds it.
    Violation(String),
    Undecided(String),
}

/// Judges a history key by key; every key begins with `initial`.
pub fn check(operations: &[Operation], initial: Option<u64>) -> Verdict {
    let mut keys: BTreeMap<u64, Vec<Operation>> = BTreeMap::new();
    for op in operations {
        keys.entry(op.key).or_default().push(*op);
    }
    let mut undecided = None;
    for (key, own) in keys {
        match check_key(own, initial) {
            Ok(()) => {}
            Err(Stuck::Limit(what)) => undecided = Some(format!("key {key}: {what}")),
            Err(Stuck::Violation(what)) => return Verdict::Violation(format!("key {key}: {what}")),
        }
    }
    undecided.map_or(Verdict::Linearizable, Verdict::Undecided)
}

enum Stuck {
    Violation(String),
    Limit(String),
}

/// The register's value and, by slot, which open operations have happened.
type State = (Option<u64>, u64);

fn seen(action: Action) -> Option<Option<u64>> {
    match action {
        Action::Read(value) | Action::Cas(value, _) => Some(value),
        Action::Write(_) => None,
    }
}
fn written(action: Action) -> Option<Option<u64>> {
    match action {
        Action::Write(value) | Action::Cas(_, value) => Some(value),
        Action::Read(_) => None,
    }
}
/// The value after the operation, if it can happen at `value`.
fn apply(action: Action, value: Option<u64>) -> Option<Option<u64>> {
    match action {
        Action::Read(saw) => (saw == value).then_some(value),
        Action::Write(new) => Some(new),
        Action::Cas(saw, new) => (saw == value).then_some(new),
    }
}

/// Leaves out what has an unknown outcome and cannot matter.
fn relevant(mut ops: Vec<Operation>) -> Vec<Operation> {
    ops.retain(|op| op.end.is_some() || written(op.action).is_some());
    loop {
        let wanted: BTreeSet<Option<u64>> = ops.iter().filter_map(|op| seen(op.action)).collect();
        let before = ops.len();
        ops.retain(|op| op.end.is_some() || written(op.action).is_some_and(|value| wanted.contains(&value)));
        if ops.len() == before {
            return ops;
        }
    }
}

fn check_key(ops: Vec<Operation>, initial: Option<u64>) -> Result<(), Stuck> {
    let ops = relevant(ops);
    // An unknown write is forgotten after the last known end of an operation that saw its value; one that saw it and is unknown itself
    // keeps it.
    let mut last_sight: BTreeMap<Option<u64>, u64> = BTreeMap::new();
    for op in &ops {
        if let Some(value) = seen(op.action) {
            let at = last_sight.entry(value).or_default();
            *at = (*at).max(op.end.unwrap_or(u64::MAX));
        }
    }
    let mut events: Vec<(u64, bool, usize)> = Vec::new();
    for (i, op) in ops.iter().enumerate() {
        events.push((op.begin, true, i));
        let forget = || written(op.action).and_then(|value| last_sight.get(&value)).copied().unwrap_or(0);
        events.push((op.end.unwrap_or_else(|| forget().max(op.begin)), false, i));
    }
    // At one moment begins come first: what touches may overlap.
    events.sort_by_key(|&(at, is_begin, i)| (at, !is_begin, ops[i].end.is_none(), i));
    let mut slots: Vec<Option<usize>> = vec![None; OPEN_MAX];
    let mut states: BTreeSet<State> = BTreeSet::from([(initial, 0)]);
    for &(at, is_begin, i) in &events {
        if is_begin {
            let Some(free) = slots.iter().position(Option::is_none) else {
                return Err(Stuck::Limit(format!("more than {OPEN_MAX} operations are open at {at}")));
            };
            slots[free] = Some(i);
            continue;
        }
        let Some(slot) = slots.iter().position(|s| *s == Some(i)) else { continue };
        let bit = 1u64 << slot;
        let after = if ops[i].end.is_some() {
            happened(&ops, &slots, &states, bit)?
        } else {
            // Both ways, taken once more before it is forgotten.
            let mut both = states.clone();
            both.extend(happened(&ops, &slots, &states, bit)?);
            both
        };
        if after.is_empty() {
            return Err(Stuck::Violation(explain(&ops, &slots, &states, i)));
        }
        states = after.into_iter().map(|(value, bits)| (value, bits & !bit)).collect();
        slots[slot] = None;
    }
    Ok(())
}

/// All states in which the operation of `bit` has happened, others made to happen before it where needed.
fn happened(
    ops: &[Operation],
    slots: &[Option<usize>],
    states: &BTreeSet<State>,
    bit: u64,
) -> Result<BTreeSet<State>, Stuck> {
    let mut done = BTreeSet::new();
    let mut known: BTreeSet<State> = BTreeSet::new();
    let mut todo: Vec<State> = states.iter().copied().collect();
    while let Some(state) = todo.pop() {
        let state = with_reads(ops, slots, state);
        if !known.insert(state) {
            continue;
        }
        if known.len() > STATES_MAX {
            return Err(Stuck::Limit(format!("more than {STATES_MAX} states")));
        }
        if state.1 & bit != 0 {
            done.insert(state);
            continue;
        }
        for (slot, op) in slots.iter().enumerate().filter_map(|(s, op)| op.map(|op| (s, &ops[op]))) {
            if state.1 >> slot & 1 == 0
                && let Some(value) = apply(op.action, state.0)
            {
                todo.push((value, state.1 | 1 << slot));
            }
        }
    }
    Ok(done)
}

/// Open reads that fit happen at once.
fn with_reads(ops: &[Operation], slots: &[Option<usize>], mut state: State) -> State {
    for (slot, op) in slots.iter().enumerate().filter_map(|(s, op)| op.map(|op| (s, &ops[op]))) {
        if matches!(op.action, Action::Read(saw) if saw == state.0) {
            state.1 |= 1 << slot;
        }
    }
    state
}

fn explain(ops: &[Operation], slots: &[Option<usize>], states: &BTreeSet<State>, stuck: usize) -> String {
    let show = |op: &Operation| {
        let end = op.end.map_or("?".to_owned(), |end| end.to_string());
        format!("{:?} by process {} from {} to {end}", op.action, op.process, op.begin)
    };
    let values: BTreeSet<Option<u64>> = states.iter().map(|s| s.0).collect();
    let values: Vec<_> = values.into_iter().take(8).collect();
    let mut text =
        format!("{} cannot have happened: the value was one of {values:?}; open beside it:", show(&ops[stuck]));
    for op in slots.iter().flatten().filter(|i| **i != stuck) {
        text.push_str(&format!(" {};", show(&ops[*op])));
    }
    text
}

#[cfg(test)]
mod tests {
    use apus_kernel::Random;

    use super::*;

    fn op(begin: u64, end: u64, action: Action) -> Operation {
        Operation { key: 1, process: begin, begin, end: (end > 0).then_some(end), action }
    }
    fn read(begin: u64, end: u64, value: u64) -> Operation {
        op(begin, end, Action::Read((value > 0).then_some(value)))
    }
    fn write(begin: u64, end: u64, value: u64) -> Operation {
        op(begin, end, Action::Write((value > 0).then_some(value)))
    }
    fn cas(begin: u64, end: u64, from: u64, to: u64) -> Operation {
        op(begin, end, Action::Cas((from > 0).then_some(from), Some(to)))
    }
    fn good(ops: &[Operation]) {
        assert_eq!(check(ops, None), Verdict::Linearizable, "{ops:?}");
    }
    fn bad(ops: &[Operation]) {
        assert!(matches!(check(ops, None), Verdict::Violation(_)), "{ops:?}");
    }

    #[test]
    fn reads_follow_writes() {
        good(&[write(1, 2, 7), read(3, 4, 7)]);
        bad(&[write(1, 2, 7), read(3, 4, 0)]);
        bad(&[write(1, 2, 7), read(3, 4, 8)]);
        good(&[write(1, 5, 7), read(2, 4, 0)]);
        good(&[write(1, 5, 7), read(2, 4, 7)]);
        bad(&[write(3, 5, 7), read(1, 2, 7)]);
        good(&[write(1, 2, 7), write(3, 4, 0), read(5, 6, 0)]);
    }

    #[test]
    fn nobody_goes_back() {
        // Both overlap the write; the second began after the first had ended.
        bad(&[write(1, 9, 7), read(2, 3, 7), read(4, 5, 0)]);
        good(&[write(1, 9, 7), read(2, 3, 0), read(4, 5, 7)]);
        bad(&[write(1, 9, 7), write(2, 9, 8), read(3, 4, 7), read(5, 6, 8), read(7, 8, 7)]);
    }

    #[test]
    fn compare_and_set_finds_what_it_expects() {
        good(&[write(1, 2, 7), cas(3, 4, 7, 8), read(5, 6, 8)]);
        bad(&[write(1, 2, 7), cas(3, 4, 7, 8), cas(5, 6, 7, 9)]);
        bad(&[write(1, 2, 7), cas(3, 6, 7, 8), cas(4, 5, 7, 9)]);
        good(&[write(1, 2, 7), cas(3, 6, 7, 8), cas(4, 5, 8, 9), read(7, 8, 9)]);
    }

    #[test]
    fn what_nobody_knows_may_happen_late_or_never() {
        good(&[write(1, 2, 7), write(3, 0, 8), read(4, 5, 7), read(6, 7, 8), read(8, 9, 8)]);
        good(&[write(1, 2, 7), write(3, 0, 8), read(4, 5, 7)]);
        // But only once, and not before it began.
        bad(&[write(1, 2, 7), write(3, 0, 8), read(4, 5, 8), read(6, 7, 7)]);
        bad(&[write(1, 2, 7), read(4, 5, 8), write(6, 0, 8)]);
        good(&[write(1, 2, 7), cas(3, 0, 7, 8), read(4, 5, 7), read(6, 7, 8)]);
        bad(&[write(1, 2, 7), cas(3, 0, 6, 8), read(6, 7, 8)]);
        // One that was needed only to make another of the same kind possible.
        good(&[write(1, 0, 7), cas(2, 0, 7, 8), read(9, 10, 8)]);
    }

    #[test]
    fn keys_are_judged_apart() {
        let other = |o: Operation| Operation { key: 2, ..o };
        good(&[write(1, 2, 7), other(read(3, 4, 0)), read(5, 6, 7)]);
        bad(&[write(1, 2, 7), other(read(3, 4, 7))]);
    }

    #[test]
    fn hundreds_of_unknown_writes_do_not_matter_when_nobody_saw_them() {
        let mut ops = vec![write(1, 2, 7)];
        ops.extend((0..500).map(|i| write(3 + i, 0, 100 + i)));
        ops.push(read(900, 901, 7));
        good(&ops);
        // Seen, each in its turn.
        ops.extend((0..500).map(|i| read(1000 + 2 * i, 1001 + 2 * i, 100 + i)));
        assert!(matches!(check(&ops, None), Verdict::Undecided(_)));
    }

    /// Effects one after another at known moments, begins and ends around them.
    fn generated(seed: u64) -> Vec<Operation> {
        let mut random = Random::new(seed);
        let mut value = None;
        let mut free_at = [0u64; 6];
        let mut ops = Vec::new();
        for n in 1..3000 {
            let at = n * 100;
            let Some(process) = (0..6).find(|p| free_at[*p] < at) else { continue };
            let begin = free_at[process] + 1 + random.below(at - free_at[process]);
            let end = at + 1 + random.below(500);
            free_at[process] = end;
            let unknown = random.one_in(30);
            let action = match random.below(3) {
                0 => Action::Read(value),
                1 => Action::Write(Some(n)),
                _ => Action::Cas(value, Some(n)),
            };
            if !(unknown && random.one_in(2)) {
                value = written(action).unwrap_or(value);
            }
            ops.push(Operation { key: 0, process: process as u64, begin, end: (!unknown).then_some(end), action });
        }
        ops
    }

    #[test]
    fn what_a_register_does_is_linearizable_and_damage_is_not() {
        for seed in 0..20 {
            let mut ops = generated(seed);
            assert_eq!(check(&ops, None), Verdict::Linearizable, "seed {seed}");
            let mut random = Random::new(seed);
            let reads: Vec<usize> = (300..ops.len())
                .filter(|i| ops[*i].end.is_some() && matches!(ops[*i].action, Action::Read(_)))
                .collect();
            let damaged = reads[random.below(reads.len() as u64) as usize];
            let known = |o: &&Operation| o.end.is_some();
            let old = ops[damaged - 200..damaged - 100].iter().filter(known).find_map(|o| written(o.action));
            ops[damaged].action = Action::Read(old.flatten());
            assert!(matches!(check(&ops, None), Verdict::Violation(_)), "seed {seed}");
        }
    }
}
