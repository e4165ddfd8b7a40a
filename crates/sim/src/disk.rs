//! A simulated disk: files by name under a virtual clock and a seed, with what real disks do wrong.
//!
//! Requests are answered by completions: [`Disk::submit`] gives a request a number, [`Disk::advance`] performs what is due by a virtual
//! time and returns its answers. Requests of one file are performed in order, those of different files in any.
//!
//! **What is durable.** A write is in the cache when it is answered; a crash keeps of each unsynced sector either the old or the new
//! content, as the seed says (so writes are lost, reordered and torn at sector boundaries). [`Op::Sync`] of a file makes its content
//! and length durable; [`Op::SyncNames`] makes creations, renames and deletions durable. Until then a crash may undo them, each for
//! itself. What was answered by a sync is there after a crash, unless a *fault* says otherwise:
//!
//! - *bit rot*: a bit of a synced sector is another one when it is next read;
//! - *misdirected write*: a synced write lands a sector's breadth away, the place that was meant keeps its old content;
//! - *EIO*: a request fails and changes nothing, with one exception: a failed sync has written some sectors and lost the others, which count as
//!   written from then on (Linux marks the pages clean). They are read until the machine dies, and no later sync writes them;
//! - *ENOSPC*: a write that would grow the files beyond the capacity fails and changes nothing.
//!
//! Limits: everything is in memory; a request is at most [`REQUEST_BYTES_MAX`].

use std::collections::{BTreeMap, BTreeSet};

use apus_kernel::Random;

/// What is written or lost as a whole.
pub const SECTOR: usize = 512;
/// Longest read or write.
pub const REQUEST_BYTES_MAX: usize = 16 << 20;

/// What a request asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    /// Makes the file if it is not there.
    Write {
        file: String,
        at: u64,
        bytes: Vec<u8>,
    },
    /// Makes the file if it is not there, and counts so many bytes as its own, though it is shorter.
    Allocate {
        file: String,
        bytes: u64,
    },
    /// Answers with fewer bytes at the end of the file.
    Read {
        file: String,
        at: u64,
        count: usize,
    },
    Sync {
        file: String,
    },
    SyncNames,
    /// Replaces what has the new name.
    Rename {
        from: String,
        to: String,
    },
    Delete {
        file: String,
    },
    /// Names of all files, in order.
    List,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    Done,
    Bytes(Vec<u8>),
    Names(Vec<String>),
    NotFound,
    /// EIO.
    Failed,
    /// ENOSPC.
    Full,
    /// Longer than [`REQUEST_BYTES_MAX`].
    TooBig,
}

/// How often what goes wrong: one request in so many, 0 for never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub read_error: u64,
    pub write_error: u64,
    pub sync_error: u64,
    /// Renames and deletions.
    pub name_error: u64,
    pub misdirected: u64,
    /// Per read: one bit of the sectors that are read changes for good.
    pub bit_rot: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct DiskConfig {
    /// Shortest and longest time of a read or write, and of a sync, ns.
    pub latency_ns: (u64, u64),
    pub sync_ns: (u64, u64),
    /// Of all files together.
    pub capacity: u64,
    pub faults: Faults,
}

impl Default for DiskConfig {
    fn default() -> DiskConfig {
        DiskConfig {
            latency_ns: (10_000, 200_000),
            sync_ns: (50_000, 5_000_000),
            capacity: 1 << 30,
            faults: Faults::default(),
        }
    }
}

/// Content by inode: names come and go, what they name has its own life.
#[derive(Clone, Default)]
struct Inode {
    bytes: Vec<u8>,
    /// As of the last sync.
    durable: Vec<u8>,
    /// Sectors of `bytes` that the next sync writes: written since the last one, which has taken or lost all before.
    dirty: BTreeSet<usize>,
    /// Bytes that it has on the disk at least.
    allocated: u64,
}

impl Inode {
    fn bytes_used(&self) -> u64 {
        self.allocated.max(self.bytes.len() as u64)
    }
    /// A sector gets to the disk; the durable length goes as far as it does.
    fn harden(&mut self, sector: usize) {
        let begin = sector * SECTOR;
        let end = (begin + SECTOR).min(self.bytes.len());
        if begin < end {
            self.durable.resize(self.durable.len().max(end), 0);
            self.durable[begin..end].copy_from_slice(&self.bytes[begin..end]);
        }
    }
}

struct Planned {
    number: u64,
    op: Op,
}

pub struct Disk {
    config: DiskConfig,
    random: Random,
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    inodes: BTreeMap<u64, Inode>,
    next_inode: u64,
    next_request: u64,
    queue: BTreeMap<(u64, u64), Planned>,
    /// When the last request of a file is due: later ones do not overtake.
    last: BTreeMap<String, u64>,
    /// Nothing is done until it does not hang any more.
    hangs: bool,
}

impl Disk {
    pub fn new(seed: u64, config: DiskConfig) -> Disk {
        Disk {
            config,
            random: Random::new(seed),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            inodes: BTreeMap::new(),
            next_inode: 1,
            next_request: 1,
            queue: BTreeMap::new(),
            last: BTreeMap::new(),
            hangs: false,
        }
    }
    /// What a process that starts now finds, of the files whose names are wanted.
    pub fn contents(&self, is_wanted: impl Fn(&str) -> bool) -> BTreeMap<String, Vec<u8>> {
        let content = |inode: &u64| self.inodes.get(inode).map(|i| i.bytes.clone()).unwrap_or_default();
        let wanted = self.names.iter().filter(|(name, _)| is_wanted(name));
        wanted.map(|(name, inode)| (name.clone(), content(inode))).collect()
    }
    /// From now on this goes wrong.
    pub fn set_faults(&mut self, faults: Faults) {
        self.config.faults = faults;
    }
    /// From now on requests and syncs take so long, ns.
    pub fn set_latency(&mut self, latency_ns: (u64, u64), sync_ns: (u64, u64)) {
        (self.config.latency_ns, self.config.sync_ns) = (latency_ns, sync_ns);
    }
    /// From now on no request is answered, or all that were due are.
    pub fn hang(&mut self, hangs: bool) {
        self.hangs = hangs;
    }
    pub fn set_capacity(&mut self, capacity: u64) {
        self.config.capacity = capacity;
    }
    /// Number by which the request is answered.
    pub fn submit(&mut self, now: u64, op: Op) -> u64 {
        let (least, most) = match &op {
            Op::Sync { .. } | Op::SyncNames => self.config.sync_ns,
            _ => self.config.latency_ns,
        };
        let mut at = now + least + self.random.below(most.saturating_sub(least) + 1);
        // What concerns names is ordered with all there is.
        let files: Vec<String> = match &op {
            Op::Write { file, .. } | Op::Allocate { file, .. } | Op::Read { file, .. } | Op::Sync { file } => {
                vec![file.clone()]
            }
            Op::SyncNames | Op::List | Op::Rename { .. } | Op::Delete { .. } => self
                .queue
                .values()
                .filter_map(|p| p.op.file().map(str::to_owned))
                .chain(self.names.keys().cloned())
                .collect(),
        };
        let names = String::new();
        at = files.iter().chain([&names]).filter_map(|file| self.last.get(file)).fold(at, |at, last| at.max(last + 1));
        let is_wide = op.file().is_none();
        files.into_iter().chain(is_wide.then_some(names)).for_each(|file| {
            self.last.insert(file, at);
        });
        let number = self.next_request;
        self.next_request += 1;
        self.queue.insert((at, number), Planned { number, op });
        number
    }
    /// Performs a request at once, of who has no others under way.
    pub fn now(&mut self, op: Op) -> Answer {
        self.perform(op)
    }
    /// When the next request is due; `None`: nothing is asked for, or it hangs.
    pub fn next_due(&self) -> Option<u64> {
        self.queue.first_key_value().map(|((at, _), _)| *at).filter(|_| !self.hangs)
    }
    /// Performs what is due, in order; numbers and answers.
    pub fn advance(&mut self, now: u64) -> Vec<(u64, Answer)> {
        let mut answers = Vec::new();
        while self.next_due().is_some_and(|at| at <= now) {
            let Some((_, planned)) = self.queue.pop_first() else { break };
            answers.push((planned.number, self.perform(planned.op)));
        }
        answers
    }
    /// The process dies whose requests have these numbers: of each file the first of them have been performed and the others not. All others
    /// have been performed.
    pub fn abandon(&mut self, is_cut_off: impl Fn(u64) -> bool) {
        let mut cut_off: BTreeSet<String> = BTreeSet::new();
        while let Some((_, planned)) = self.queue.pop_first() {
            let file = planned.op.file().filter(|_| is_cut_off(planned.number)).map(str::to_owned);
            if let Some(file) = file
                && (cut_off.contains(&file) || self.random.one_in(4))
            {
                cut_off.insert(file);
                continue;
            }
            self.perform(planned.op);
        }
        self.last.clear();
    }
    /// The machine dies: requests that were not answered may have been performed or not, the cache is lost.
    pub fn crash(&mut self) {
        let faults = std::mem::take(&mut self.config.faults);
        while let Some((_, planned)) = self.queue.pop_first() {
            // A sync that nobody heard of has done nothing: the worst case.
            let is_sync = matches!(planned.op, Op::Sync { .. } | Op::SyncNames);
            if !is_sync && self.random.one_in(2) {
                self.perform(planned.op);
            }
        }
        self.config.faults = faults;
        self.last.clear();
        self.lose_names();
        for inode in self.inodes.values_mut() {
            // Each unsynced sector made it to the disk or not; the length goes as far as some sector did.
            for sector in std::mem::take(&mut inode.dirty) {
                if sector * SECTOR < inode.bytes.len() && self.random.one_in(2) {
                    inode.harden(sector);
                }
            }
            inode.bytes.clone_from(&inode.durable);
        }
        self.forget_unnamed();
    }

    /// Each change of a name since the last [`Op::SyncNames`] is kept or undone.
    fn lose_names(&mut self) {
        let all: BTreeSet<String> = self.names.keys().chain(self.durable_names.keys()).cloned().collect();
        // A rename is one change of two names: whether an inode keeps its new place is decided once.
        let mut moved: BTreeMap<u64, bool> = BTreeMap::new();
        let mut after = BTreeMap::new();
        for name in all {
            let (old, new) = (self.durable_names.get(&name).copied(), self.names.get(&name).copied());
            let key = new.or(old).unwrap_or(0);
            let random = &mut self.random;
            let is_kept = old == new || *moved.entry(key).or_insert_with(|| random.one_in(2));
            if let Some(inode) = if is_kept { new } else { old } {
                after.insert(name, inode);
            }
        }
        // What was moved away from a name and not kept at the new one is where it was.
        for (name, inode) in &self.durable_names {
            if !after.values().any(|kept| kept == inode) && self.names.values().any(|now| now == inode) {
                after.entry(name.clone()).or_insert(*inode);
            }
        }
        self.names.clone_from(&after);
        self.durable_names = after;
    }
    fn forget_unnamed(&mut self) {
        let (names, durable) = (&self.names, &self.durable_names);
        self.inodes.retain(|inode, _| names.values().chain(durable.values()).any(|named| named == inode));
    }
    fn bytes_used(&self) -> u64 {
        self.names.values().filter_map(|inode| self.inodes.get(inode)).map(|inode| inode.bytes_used()).sum()
    }

    fn perform(&mut self, op: Op) -> Answer {
        match op {
            Op::Write { file, at, bytes } => self.write(&file, at, &bytes),
            Op::Allocate { file, bytes } => self.allocate(&file, bytes),
            Op::Read { file, at, count } => self.read(&file, at, count),
            Op::Sync { file } => self.sync(&file),
            Op::SyncNames => {
                if self.random.one_in(self.config.faults.sync_error) {
                    return Answer::Failed;
                }
                self.durable_names.clone_from(&self.names);
                self.forget_unnamed();
                Answer::Done
            }
            Op::Rename { .. } | Op::Delete { .. } if self.random.one_in(self.config.faults.name_error) => {
                Answer::Failed
            }
            Op::Rename { from, to } => match self.names.remove(&from) {
                Some(inode) => {
                    self.names.insert(to, inode);
                    Answer::Done
                }
                None => Answer::NotFound,
            },
            Op::Delete { file } => match self.names.remove(&file) {
                Some(_) => Answer::Done,
                None => Answer::NotFound,
            },
            Op::List => Answer::Names(self.names.keys().cloned().collect()),
        }
    }
    fn allocate(&mut self, file: &str, bytes: u64) -> Answer {
        if self.random.one_in(self.config.faults.write_error) {
            return Answer::Failed;
        }
        let inode = self.names.get(file).and_then(|inode| self.inodes.get(inode));
        let more = bytes.saturating_sub(inode.map_or(0, Inode::bytes_used));
        if more > 0 && self.bytes_used() + more > self.config.capacity {
            return Answer::Full;
        }
        let inode = self.inode_of(file);
        inode.allocated = inode.allocated.max(bytes);
        Answer::Done
    }
    /// Made if it is not there.
    fn inode_of(&mut self, file: &str) -> &mut Inode {
        let number = *self.names.entry(file.to_owned()).or_insert_with(|| {
            self.next_inode += 1;
            self.next_inode
        });
        self.inodes.entry(number).or_default()
    }
    fn write(&mut self, file: &str, at: u64, bytes: &[u8]) -> Answer {
        if bytes.len() > REQUEST_BYTES_MAX {
            return Answer::TooBig;
        }
        if self.random.one_in(self.config.faults.write_error) {
            return Answer::Failed;
        }
        let present = self.names.get(file).and_then(|inode| self.inodes.get(inode)).map_or(0, Inode::bytes_used);
        let Some(end) = at.checked_add(bytes.len() as u64) else { return Answer::Full };
        if self.bytes_used() + end.saturating_sub(present) > self.config.capacity {
            return Answer::Full;
        }
        let is_misdirected = self.random.one_in(self.config.faults.misdirected);
        let inode = self.inode_of(file);
        let meant = at as usize;
        // One sector further on, or back where there is none: inside of what the file has anyway.
        let is_lost = inode.bytes.len() >= meant + bytes.len() + SECTOR && is_misdirected;
        let begin = if is_lost { meant + SECTOR } else { meant };
        let end = begin + bytes.len();
        if inode.bytes.len() < end {
            inode.dirty.extend(inode.bytes.len() / SECTOR..=end / SECTOR);
            inode.bytes.resize(end, 0);
        }
        inode.bytes[begin..end].copy_from_slice(bytes);
        if !bytes.is_empty() {
            inode.dirty.extend(begin / SECTOR..=(end - 1) / SECTOR);
        }
        Answer::Done
    }
    fn read(&mut self, file: &str, at: u64, count: usize) -> Answer {
        if count > REQUEST_BYTES_MAX {
            return Answer::TooBig;
        }
        if self.random.one_in(self.config.faults.read_error) {
            return Answer::Failed;
        }
        let Some(inode) = self.names.get(file).and_then(|inode| self.inodes.get_mut(inode)) else {
            return Answer::NotFound;
        };
        let begin = (at as usize).min(inode.bytes.len());
        let end = begin.saturating_add(count).min(inode.bytes.len());
        if end > begin && self.random.one_in(self.config.faults.bit_rot) {
            let byte = begin + self.random.below((end - begin) as u64) as usize;
            let bit = 1 << self.random.below(8);
            if !inode.dirty.contains(&(byte / SECTOR)) && byte < inode.durable.len() {
                inode.bytes[byte] ^= bit;
                inode.durable[byte] ^= bit;
            }
        }
        Answer::Bytes(inode.bytes[begin..end].to_vec())
    }
    fn sync(&mut self, file: &str) -> Answer {
        let Some(inode) = self.names.get(file).and_then(|inode| self.inodes.get_mut(inode)) else {
            return Answer::NotFound;
        };
        let is_failing = self.random.one_in(self.config.faults.sync_error);
        let dirty = std::mem::take(&mut inode.dirty);
        if !is_failing {
            inode.durable.resize(inode.bytes.len(), 0);
        }
        for sector in dirty {
            if !is_failing || self.random.one_in(2) {
                inode.harden(sector);
            }
        }
        if is_failing { Answer::Failed } else { Answer::Done }
    }
}

impl Op {
    /// The one file that a request is about; `None`: names.
    fn file(&self) -> Option<&str> {
        match self {
            Op::Write { file, .. } | Op::Allocate { file, .. } | Op::Read { file, .. } | Op::Sync { file } => {
                Some(file)
            }
            Op::SyncNames | Op::Rename { .. } | Op::Delete { .. } | Op::List => None,
        }
    }
}
