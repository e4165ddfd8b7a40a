//! Registers: single values that are read, written, and compared and set. Judged per key: is there an order of all operations, each at a moment
//! between its begin and its end, in which every read gives what was written last?
//!
//! The search is that of Wing and Gong as Lowe ran it: events in the order of time, and at each the set of all states that the register can
//! be in, a state being its value and which of the open operations have happened. An operation is made to happen only when one that ends has
//! not yet happened, so states stay few. A read that fits happens at once, because it costs nothing.
//!
//! What has no known outcome may happen at any time later or never. It stays open for ever, so it is cut where it cannot matter: it is left
//! out if nobody ever saw its value, and forgotten after the last operation that did. In between it happens only right before one that
//! sees its value, of equal ones any will do, and of two states that differ only in how many of them have happened the one with fewer
//! is enough: whatever can follow the other can follow it. Writes that did happen and that nobody saw are done with by the next write. So hundreds of deletes of which nobody knows cost as much as one. Reads without
//! an answer are left out; a compare-and-set that did not fit is a read of what it found.
//!
//! Limits: [`OPEN_MAX`] operations open at once, [`STATES_MAX`] states; past them the verdict is `Undecided`, never a guess.

use std::collections::{BTreeMap, BTreeSet};

/// Most operations that may be open at one time, those of unknown outcome included.
pub const OPEN_MAX: usize = Bits::BITS as usize;
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

/// A set of slots.
type Bits = u128;
/// The register's value and, by slot, which open operations have happened.
type State = (Option<u64>, Bits);

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
    let mut sights: BTreeMap<Option<u64>, Vec<(u64, u64)>> = BTreeMap::new();
    for op in &ops {
        if let Some(value) = seen(op.action) {
            sights.entry(value).or_default().push((op.begin, op.end.unwrap_or(u64::MAX)));
        }
    }
    let mut events: Vec<(u64, bool, usize)> = Vec::new();
    for (i, op) in ops.iter().enumerate() {
        // An unknown write is thought of from the first begin to the last end of operations that may have seen its value from it.
        let own = || written(op.action).and_then(|value| sights.get(&value)).into_iter().flatten();
        let own = || own().filter(|(_, end)| *end >= op.begin);
        let (begin, end) = op.end.map_or_else(
            || (own().map(|s| s.0).min().unwrap_or(0).max(op.begin), own().map(|s| s.1).max().unwrap_or(0)),
            |end| (op.begin, end),
        );
        events.push((begin, true, i));
        events.push((end.max(begin), false, i));
    }
    // At one moment begins come first: what touches may overlap.
    events.sort_by_key(|&(at, is_begin, i)| (at, !is_begin, ops[i].end.is_none(), i));
    let is_unseen =
        |op: &Operation| op.end.is_some() && matches!(op.action, Action::Write(value) if !sights.contains_key(&value));
    let nobodys = ops.iter().find(|op| is_unseen(op)).and_then(|op| written(op.action)).flatten();
    let mut open = Open { ops: &ops, slots: vec![None; OPEN_MAX], unknown: 0, unseen: 0, nobodys };
    let mut states: BTreeSet<State> = BTreeSet::from([(initial, 0)]);
    for &(at, is_begin, i) in &events {
        if is_begin {
            let Some(free) = open.slots.iter().position(Option::is_none) else {
                return Err(Stuck::Limit(format!("more than {OPEN_MAX} operations are open at {at}")));
            };
            open.slots[free] = Some(i);
            open.unknown |= Bits::from(ops[i].end.is_none()) << free;
            open.unseen |= Bits::from(is_unseen(&ops[i])) << free;
            continue;
        }
        let Some(slot) = open.slots.iter().position(|s| *s == Some(i)) else { continue };
        let bit: Bits = 1 << slot;
        // One of unknown outcome that is forgotten has been seen by whoever had to, or need not have happened.
        if ops[i].end.is_some() {
            let after = open.happened(&states, bit)?;
            if after.is_empty() {
                return Err(Stuck::Violation(explain(&open, &states, i)));
            }
            states = after;
        }
        states = states.into_iter().map(|(value, bits)| (value, bits & !bit)).collect();
        open.slots[slot] = None;
        open.unknown &= !bit;
        open.unseen &= !bit;
    }
    Ok(())
}

/// The open operations by slot.
struct Open<'o> {
    ops: &'o [Operation],
    slots: Vec<Option<usize>>,
    /// The slots of operations with an unknown outcome.
    unknown: Bits,
    /// The slots of writes that happened and whose value nobody saw.
    unseen: Bits,
    /// A value that nobody saw, in the place of all others of the kind.
    nobodys: Option<u64>,
}

impl Open<'_> {
    fn iter(&self) -> impl Iterator<Item = (Bits, &Operation)> {
        self.slots.iter().enumerate().filter_map(|(slot, op)| op.map(|op| (1 << slot, &self.ops[op])))
    }
    /// Those that have not happened in this state.
    fn pending(&self, state: State) -> impl Iterator<Item = (Bits, &Operation)> {
        self.iter().filter(move |(bit, _)| state.1 & bit == 0)
    }
    /// Values that somebody may still have to see, so that an unknown operation that writes one may be needed now. It is when what sees it is
    /// open: else it may as well happen later.
    fn wanted(&self, state: State) -> Vec<Option<u64>> {
        let is_unknown = |bit: Bits| self.unknown & bit != 0;
        let known = self.pending(state).filter(|(bit, _)| !is_unknown(*bit));
        let mut wanted: Vec<Option<u64>> = known.filter_map(|(_, op)| seen(op.action)).collect();
        // And what has to be seen so that an unknown one can write a wanted one.
        let unknown: Vec<Action> =
            self.pending(state).filter(|(bit, _)| is_unknown(*bit)).map(|(_, op)| op.action).collect();
        let mut at = 0;
        while let Some(value) = wanted.get(at).copied() {
            at += 1;
            for action in unknown.iter().filter(|action| written(**action) == Some(value)) {
                if let Some(saw) = seen(*action).filter(|saw| !wanted.contains(saw)) {
                    wanted.push(saw);
                }
            }
        }
        wanted
    }
    /// The state in which open reads that fit have happened.
    fn with_reads(&self, mut state: State) -> State {
        for (bit, op) in self.iter() {
            if matches!(op.action, Action::Read(saw) if saw == state.0) {
                state.1 |= bit;
            }
        }
        state
    }
    /// States that can follow at once, by one operation.
    fn next(&self, state: State, todo: &mut Vec<State>) {
        let wanted = if self.unknown == 0 { Vec::new() } else { self.wanted(state) };
        let mut tried: Vec<Action> = Vec::new();
        for (bit, op) in self.pending(state) {
            let Some(value) = apply(op.action, state.0) else { continue };
            if self.unknown & bit != 0 {
                // Of equal ones with unknown outcome any may be the one that happened: the first is taken.
                if written(op.action).is_none_or(|value| !wanted.contains(&value)) || tried.contains(&op.action) {
                    continue;
                }
                tried.push(op.action);
            }
            let value = if self.unseen & bit == 0 { value } else { self.nobodys };
            // What nobody saw can as well have happened right before any write, and then it is done with.
            let before = if matches!(op.action, Action::Write(_)) { self.unseen } else { 0 };
            todo.push((value, state.1 | bit | before));
        }
    }
    /// All states in which the operation of `target` has happened, others made to happen before it where needed.
    fn happened(&self, states: &BTreeSet<State>, target: Bits) -> Result<BTreeSet<State>, Stuck> {
        let mut done = BTreeSet::new();
        let mut known: BTreeSet<State> = BTreeSet::new();
        let mut todo: Vec<State> = states.iter().copied().collect();
        while let Some(state) = todo.pop() {
            let state = self.with_reads(state);
            if !known.insert(state) {
                continue;
            }
            if known.len() > STATES_MAX {
                return Err(Stuck::Limit(format!("more than {STATES_MAX} states")));
            }
            if state.1 & target != 0 {
                done.insert(state);
            } else {
                self.next(state, &mut todo);
            }
        }
        Ok(self.least(done))
    }
    /// Leaves out states from which nothing follows that does not follow from another one, in which fewer of the unknown operations have
    /// happened and all else is equal: those may happen later or never.
    fn least(&self, states: BTreeSet<State>) -> BTreeSet<State> {
        if self.unknown == 0 {
            return states;
        }
        let mut alike: BTreeMap<State, Vec<Bits>> = BTreeMap::new();
        for (value, bits) in states {
            alike.entry((value, bits & !self.unknown)).or_default().push(bits & self.unknown);
        }
        let mut least = BTreeSet::new();
        for ((value, known), mut unknown) in alike {
            unknown.sort_by_key(|bits| bits.count_ones());
            let mut kept: Vec<Bits> = Vec::new();
            for bits in unknown {
                if !kept.iter().any(|fewer| fewer & !bits == 0) {
                    kept.push(bits);
                    least.insert((value, known | bits));
                }
            }
        }
        least
    }
}

fn explain(open: &Open<'_>, states: &BTreeSet<State>, stuck: usize) -> String {
    let show = |op: &Operation| {
        let end = op.end.map_or("?".to_owned(), |end| end.to_string());
        format!("{:?} by process {} from {} to {end}", op.action, op.process, op.begin)
    };
    let values: BTreeSet<Option<u64>> = states.iter().map(|s| s.0).collect();
    let values: Vec<_> = values.into_iter().take(8).collect();
    let mut text =
        format!("{} cannot have happened: the value was one of {values:?}; open beside it:", show(&open.ops[stuck]));
    for op in open.slots.iter().flatten().filter(|i| **i != stuck) {
        text.push_str(&format!(" {};", show(&open.ops[*op])));
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
        good(&ops);
        ops.push(read(3000, 3001, 100));
        bad(&ops);
    }

    #[test]
    fn a_hundred_unknown_deletes_are_a_hundred_deletes() {
        let mut ops: Vec<Operation> = (0..100).map(|i| write(1 + i, 0, 0)).collect();
        for i in 0..100 {
            // The value is deleted between two reads by one of those of which nobody knows.
            let at = 1000 + 10 * i;
            ops.extend([write(at, at + 2, 5000 + i), read(at + 3, at + 4, 5000 + i), read(at + 5, at + 6, 0)]);
        }
        good(&ops);
        ops.extend([write(3000, 3001, 9), read(3002, 3003, 0)]);
        bad(&ops);
        // Begun too late.
        ops.push(write(3004, 0, 0));
        bad(&ops);
        ops.push(write(2999, 0, 0));
        good(&ops);
    }

    #[test]
    fn too_many_at_once_are_not_decided() {
        let ops: Vec<Operation> = (0..=OPEN_MAX as u64).map(|i| write(1, 500, 7 + i)).collect();
        assert!(matches!(check(&ops, None), Verdict::Undecided(_)));
        good(&ops[1..]);
        // Nobody saw the one, so somebody must have written the other.
        bad(&[write(1, 3, 7), read(4, 5, 7), write(5, 9, 5), write(6, 9, 6), read(10, 11, 7)]);
        good(&[write(1, 9, 5), write(1, 9, 6), write(2, 7, 7), read(4, 8, 7), read(10, 11, 7)]);
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
