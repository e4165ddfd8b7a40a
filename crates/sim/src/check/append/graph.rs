//! Who came before whom: the graph over committed transactions, and barriers for real time.

use apus_types::collections::FixedMap;

use super::{History, OPEN, Op, Order, Status, rules::Versions};

/// Appends that nobody saw are related to at most this many readers and of each key at most this many.
const UNSEEN_MAX: usize = 16;

pub(super) const WW: u8 = 1;
pub(super) const WR: u8 = 2;
pub(super) const RW: u8 = 4;
/// The order of a process, or of real time.
pub(super) const ORDER: u8 = 8;

/// Position of a version that nobody saw.
pub(super) const UNSEEN: u32 = u32::MAX;

/// `from` came before the node it leads to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub to: u32,
    pub kind: u8,
    /// Of data: the key, and the position of the later version (`WW`, `RW`) or of the one that was read (`WR`).
    pub key: u32,
    pub at: u32,
}

/// Nodes below `txns` are transactions, the others barriers.
pub(super) struct Graph {
    pub txns: u32,
    starts: Vec<u32>,
    edges: Vec<Edge>,
}

impl Graph {
    pub fn new(history: &History, versions: &Versions, order: Order) -> Graph {
        let txns = history.txns.len() as u32;
        let mut all: Vec<(u32, Edge)> = Vec::new();
        write_edges(history, versions, &mut all);
        read_edges(history, versions, &mut all);
        let nodes = match order {
            Order::None => txns,
            Order::Process => {
                process_edges(history, versions, &mut all);
                txns
            }
            Order::RealTime => real_time_edges(history, versions, &mut all),
        };
        let mut starts = vec![0u32; nodes as usize + 2];
        for (from, _) in &all {
            starts[*from as usize + 2] += 1;
        }
        for i in 1..starts.len() {
            starts[i] += starts[i - 1];
        }
        let mut edges = vec![Edge { to: 0, kind: 0, key: 0, at: 0 }; all.len()];
        for (from, edge) in all {
            let next = &mut starts[from as usize + 1];
            edges[*next as usize] = edge;
            *next += 1;
        }
        starts.pop();
        Graph { txns, starts, edges }
    }
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }
    pub fn of(&self, node: u32) -> &[Edge] {
        &self.edges[self.starts[node as usize] as usize..self.starts[node as usize + 1] as usize]
    }
}

fn write_edges(history: &History, versions: &Versions, all: &mut Vec<(u32, Edge)>) {
    for key in 0..history.keys.len() as u32 {
        let mut before: Option<u32> = None;
        let mut at = 0;
        while let Some((found, txn)) = versions.next_committed(key, at) {
            if let Some(from) = before.filter(|from| *from != txn) {
                all.push((from, Edge { to: txn, kind: WW, key, at: found as u32 }));
            }
            before = Some(txn);
            at = found + 1;
        }
    }
    for group in versions.unseen.chunk_by(|a, b| a.0 == b.0) {
        let key = group[0].0;
        if let Some((_, from)) = versions.last_committed(key, versions.of(key).len()) {
            for (_, to) in group.iter().filter(|u| u.1 != from).take(UNSEEN_MAX) {
                all.push((from, Edge { to: *to, kind: WW, key, at: UNSEEN }));
            }
        }
    }
}

fn read_edges(history: &History, versions: &Versions, all: &mut Vec<(u32, Edge)>) {
    let mut to_unseen: FixedMap<u32, usize> = FixedMap::default();
    for txn in (0..history.txns.len() as u32).filter(|t| history.txns[*t as usize].status == Status::Ok) {
        for op in history.ops_of(txn) {
            let Op::Read { key, length } = *op else { continue };
            if let Some((at, writer)) = versions.last_committed(key, length as usize)
                && writer != txn
            {
                all.push((writer, Edge { to: txn, kind: WR, key, at: at as u32 }));
            }
            match versions.next_committed(key, length as usize) {
                Some((_, writer)) if writer == txn => {} // what comes after its own write, the order of writes tells
                Some((at, writer)) => all.push((txn, Edge { to: writer, kind: RW, key, at: at as u32 })),
                None => {
                    let first = versions.unseen.partition_point(|u| u.0 < key);
                    let group = versions.unseen[first..].iter().take_while(|u| u.0 == key).take(UNSEEN_MAX);
                    let related = to_unseen.entry(key).or_default();
                    if *related < UNSEEN_MAX {
                        *related += 1;
                        for (_, writer) in group.filter(|u| u.1 != txn) {
                            all.push((txn, Edge { to: *writer, kind: RW, key, at: UNSEEN }));
                        }
                    }
                }
            }
        }
    }
}

fn process_edges(history: &History, versions: &Versions, all: &mut Vec<(u32, Edge)>) {
    let mut last: FixedMap<u64, u32> = FixedMap::default();
    for (txn, t) in history.txns.iter().enumerate().filter(|(txn, _)| versions.committed[*txn]) {
        if let Some(before) = last.get(&t.process) {
            all.push((*before, Edge { to: txn as u32, kind: ORDER, key: 0, at: 0 }));
        }
        if t.end != OPEN {
            last.insert(t.process, txn as u32);
        }
    }
}

/// Whoever ended leads to the next barrier, each barrier to the next one, and the last barrier to whoever begins. Returns the nodes.
fn real_time_edges(history: &History, versions: &Versions, all: &mut Vec<(u32, Edge)>) -> u32 {
    let order = |to: u32| Edge { to, kind: ORDER, key: 0, at: 0 };
    let mut ends: Vec<(u64, u32)> = Vec::new();
    for (txn, t) in history.txns.iter().enumerate() {
        if versions.committed[txn] && t.end != OPEN {
            ends.push((t.end, txn as u32));
        }
    }
    ends.sort_unstable();
    let mut ended = ends.into_iter().peekable();
    let mut nodes = history.txns.len() as u32;
    let mut barrier: Option<u32> = None;
    // Transactions are in the order of their begins.
    for (txn, t) in history.txns.iter().enumerate().filter(|(txn, _)| versions.committed[*txn]) {
        let mut fresh = None;
        while let Some((_, before)) = ended.next_if(|(end, _)| *end < t.begin) {
            let to = *fresh.get_or_insert_with(|| {
                nodes += 1;
                nodes - 1
            });
            all.push((before, order(to)));
        }
        if let Some(fresh) = fresh {
            if let Some(old) = barrier {
                all.push((old, order(fresh)));
            }
            barrier = Some(fresh);
        }
        if let Some(barrier) = barrier {
            all.push((barrier, order(txn as u32)));
        }
    }
    nodes
}
