//! Who came before whom: the graph over committed transactions, and barriers for real time.
//!
//! With SNAPSHOT READS a transaction that read has two nodes, one for its reads and one for its appends.

use apus_types::collections::FixedMap;

use super::{Claim, History, Level, OPEN, Op, Order, Status, rules::Versions};

/// Appends that nobody saw are related to at most this many readers and of each key at most this many.
const UNSEEN_MAX: usize = 16;

pub(super) const WW: u8 = 1;
pub(super) const WR: u8 = 2;
pub(super) const RW: u8 = 4;
/// The order of a process, or of real time.
pub(super) const ORDER: u8 = 8;
/// From the reads of a transaction to its appends.
pub(super) const THEN: u8 = 16;

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

/// Nodes below `txns` are transactions, or their appends; perhaps as many follow for their reads; the others are barriers.
pub(super) struct Graph {
    pub txns: u32,
    split: bool,
    starts: Vec<u32>,
    edges: Vec<Edge>,
}

/// The graph while it is made.
struct Maker<'a> {
    history: &'a History,
    versions: &'a Versions,
    /// With SNAPSHOT READS: which transactions read anything but what they had appended to.
    readers: Option<Vec<bool>>,
    nodes: u32,
    all: Vec<(u32, Edge)>,
}

impl Graph {
    pub fn new(history: &History, versions: &Versions, claim: Claim) -> Graph {
        let txns = history.txns.len() as u32;
        let split = claim.level == Level::SnapshotReads;
        let readers = split.then(|| (0..txns).map(|txn| reads_before_appends(history, txn)).collect());
        let nodes = if split { 2 * txns } else { txns };
        let mut maker = Maker { history, versions, readers, nodes, all: Vec::new() };
        maker.write_edges();
        maker.read_edges();
        maker.then_edges();
        match claim.order {
            Order::None => {}
            Order::Process if split => maker.split_process_edges(),
            Order::Process => maker.process_edges(),
            // Appends are ordered in time by the reads between them only.
            Order::RealTime if split => {
                maker.real_time_edges(|maker, txn| Some(maker.appends(txn)), Maker::reads);
                maker.real_time_edges(Maker::reads, |maker, txn| Some(maker.appends(txn)));
            }
            Order::RealTime => maker.real_time_edges(|_, txn| Some(txn), |_, txn| Some(txn)),
        }
        let Maker { nodes, all, .. } = maker;
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
        Graph { txns, split, starts, edges }
    }
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }
    pub fn of(&self, node: u32) -> &[Edge] {
        &self.edges[self.starts[node as usize] as usize..self.starts[node as usize + 1] as usize]
    }
    /// Whose node it is; `None`: a barrier's.
    pub fn txn_of(&self, node: u32) -> Option<u32> {
        match node / self.txns {
            0 => Some(node),
            1 if self.split => Some(node - self.txns),
            _ => None,
        }
    }
}

/// Whether an operation is a read of a list that its transaction had not appended to yet.
fn is_first_read(ops: &[Op], at: usize) -> bool {
    let Op::Read { key, .. } = ops[at] else { return false };
    !ops[..at].iter().any(|o| matches!(o, Op::Append { key: k, .. } if *k == key))
}

fn reads_before_appends(history: &History, txn: u32) -> bool {
    let ops = history.ops_of(txn);
    history.txns[txn as usize].status == Status::Ok && (0..ops.len()).any(|at| is_first_read(ops, at))
}

fn order(to: u32) -> Edge {
    Edge { to, kind: ORDER, key: 0, at: 0 }
}

impl Maker<'_> {
    /// The node of a transaction's appends, and of all that it did if it has no other.
    fn appends(&self, txn: u32) -> u32 {
        txn
    }
    /// The node of its reads, if it has one of its own.
    fn reads(&self, txn: u32) -> Option<u32> {
        let readers = self.readers.as_ref()?;
        readers[txn as usize].then_some(self.history.txns.len() as u32 + txn)
    }
    fn is_committed(&self, txn: u32) -> bool {
        self.versions.committed[txn as usize]
    }
    fn txns(&self) -> std::ops::Range<u32> {
        0..self.history.txns.len() as u32
    }

    fn write_edges(&mut self) {
        let (history, versions, all) = (self.history, self.versions, &mut self.all);
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

    fn read_edges(&mut self) {
        let (history, versions) = (self.history, self.versions);
        let mut to_unseen: FixedMap<u32, usize> = FixedMap::default();
        for txn in (0..history.txns.len() as u32).filter(|t| history.txns[*t as usize].status == Status::Ok) {
            let ops = history.ops_of(txn);
            for (i, op) in ops.iter().enumerate() {
                let Op::Read { key, length } = *op else { continue };
                let reader = self.reads(txn).filter(|_| is_first_read(ops, i)).unwrap_or(txn);
                let all = &mut self.all;
                if let Some((at, writer)) = versions.last_committed(key, length as usize)
                    && writer != txn
                {
                    all.push((writer, Edge { to: reader, kind: WR, key, at: at as u32 }));
                }
                match versions.next_committed(key, length as usize) {
                    Some((_, writer)) if writer == txn => {} // what comes after its own write, the order of writes tells
                    Some((at, writer)) => all.push((reader, Edge { to: writer, kind: RW, key, at: at as u32 })),
                    None => {
                        let first = versions.unseen.partition_point(|u| u.0 < key);
                        let group = versions.unseen[first..].iter().take_while(|u| u.0 == key).take(UNSEEN_MAX);
                        let related = to_unseen.entry(key).or_default();
                        if *related < UNSEEN_MAX {
                            *related += 1;
                            for (_, writer) in group.filter(|u| u.1 != txn) {
                                all.push((reader, Edge { to: *writer, kind: RW, key, at: UNSEEN }));
                            }
                        }
                    }
                }
            }
        }
    }

    fn then_edges(&mut self) {
        for txn in self.txns() {
            if let Some(reads) = self.reads(txn) {
                self.all.push((reads, Edge { to: self.appends(txn), kind: THEN, key: 0, at: 0 }));
            }
        }
    }

    fn process_edges(&mut self) {
        let mut last: FixedMap<u64, u32> = FixedMap::default();
        for txn in self.txns().filter(|txn| self.is_committed(*txn)).collect::<Vec<_>>() {
            let t = &self.history.txns[txn as usize];
            if let Some(before) = last.get(&t.process) {
                self.all.push((*before, order(txn)));
            }
            if t.end != OPEN {
                last.insert(t.process, txn);
            }
        }
    }

    /// As with real time: of two transactions of which one read at least.
    fn split_process_edges(&mut self) {
        // Of each process: its last reads, and its appends since then.
        let mut last: FixedMap<u64, (Option<u32>, Vec<u32>)> = FixedMap::default();
        for txn in self.txns().filter(|txn| self.is_committed(*txn)).collect::<Vec<_>>() {
            let (reads, appends) = (self.reads(txn), self.appends(txn));
            let t = &self.history.txns[txn as usize];
            let (last_reads, since) = last.entry(t.process).or_default();
            match (reads, &last_reads) {
                (Some(reads), _) => self.all.extend(since.iter().map(|before| (*before, order(reads)))),
                (None, Some(before)) => self.all.push((*before, order(appends))),
                (None, None) => {}
            }
            if t.end != OPEN {
                if reads.is_some() {
                    *last_reads = reads;
                    since.clear();
                }
                since.push(appends);
            }
        }
    }

    /// Whoever ended leads to the next barrier, each barrier to the next one, and the last barrier to whoever begins. `ending` and `beginning` say
    /// by which node, if by any.
    fn real_time_edges(
        &mut self,
        ending: impl Fn(&Self, u32) -> Option<u32>,
        beginning: impl Fn(&Self, u32) -> Option<u32>,
    ) {
        let mut ends: Vec<(u64, u32)> = Vec::new();
        for txn in self.txns().filter(|txn| self.is_committed(*txn)) {
            let end = self.history.txns[txn as usize].end;
            if end != OPEN {
                ends.extend(ending(self, txn).map(|node| (end, node)));
            }
        }
        ends.sort_unstable();
        let mut ended = ends.into_iter().peekable();
        let mut barrier: Option<u32> = None;
        // Transactions are in the order of their begins.
        for txn in self.txns() {
            let Some(node) = beginning(self, txn).filter(|_| self.is_committed(txn)) else { continue };
            let begin = self.history.txns[txn as usize].begin;
            let mut fresh = None;
            while let Some((_, before)) = ended.next_if(|(end, _)| *end < begin) {
                let to = *fresh.get_or_insert_with(|| {
                    self.nodes += 1;
                    self.nodes - 1
                });
                self.all.push((before, order(to)));
            }
            if let Some(fresh) = fresh {
                if let Some(old) = barrier {
                    self.all.push((old, order(fresh)));
                }
                barrier = Some(fresh);
            }
            if let Some(barrier) = barrier {
                self.all.push((barrier, order(node)));
            }
        }
    }
}
