//! The files of simulated nodes: what blocks have written ([`apus_kernel::Context::write_file`]) goes to a [`Disk`] per node.
//!
//! As the runtime does it: beside its place, synced where that is asked for, renamed, the names synced. A process that dies leaves what the
//! system has taken, and a write that was under way half done. If its machine dies with it, what was not synced may be lost, and the machine
//! has another boot. What the disk holds when a process starts is in [`Kept`], for whoever makes its blocks.
//!
//! Small files are sealed and opened with the keys of [`crate::vaults`], as the runtime does it.
//!
//! Data files ([`apus_kernel::Context::disk`]) are on the same disk: their requests go to it as they come, many at a time. Of a process that dies
//! the first requests of each file are done and the others not. The first sync of a file in a process syncs the names, too.

use std::{
    borrow::Cow,
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, VecDeque},
    rc::Rc,
};

use apus_blocks::ldm::reshape::Logs;
use apus_kernel::{DataFile, DiskDone, DiskFailure, DiskOp};
use apus_redo::{Control, Layout};
use apus_signal::BlockRef;
use apus_types::NodeId;

use crate::{
    Cluster,
    disk::{Answer, Disk, Faults, Op},
    events::Event,
    fault::Ailment,
};

/// By node: what the process that was started last found.
pub type Kept = Rc<RefCell<BTreeMap<NodeId, Found>>>;

/// What a process finds on its machine.
#[derive(Clone, Default, Debug)]
pub struct Found {
    /// How often the machine has died.
    pub boot: u64,
    /// But for data files.
    pub files: BTreeMap<String, Vec<u8>>,
    pub logs: Logs,
}

pub(crate) fn content<'a>(files: &'a BTreeMap<String, Vec<u8>>, name: &str) -> Option<&'a [u8]> {
    files.get(name).map(Vec::as_slice)
}

pub(crate) struct Write {
    pub file: Cow<'static, str>,
    pub bytes: Vec<u8>,
    pub synced: bool,
    pub token: u64,
    pub asker: BlockRef,
    pub worker: u8,
    pub incarnation: u64,
}

/// What a worker asks of a data file.
pub(crate) struct DataRequest {
    pub file: DataFile,
    pub op: DiskOp,
    pub token: u64,
    pub asker: BlockRef,
    pub worker: u8,
    pub incarnation: u64,
}

pub(crate) struct HostDisk {
    pub disk: Disk,
    /// Of data files, by the number of the request that answers it.
    data: BTreeMap<u64, DataRequest>,
    /// Syncs of files that the sync of names answers which was given to the disk behind it: by number, why it was not done.
    syncs: BTreeMap<u64, Option<Answer>>,
    /// Data files whose names this process has synced.
    named: BTreeSet<DataFile>,
    writes: VecDeque<Write>,
    /// What remains to be done for the first of them.
    steps: VecDeque<Op>,
    pub boot: u64,
}

fn new_name(file: &str) -> String {
    format!("{file}.new")
}

fn steps(write: &Write) -> VecDeque<Op> {
    let (new, file) = (new_name(&write.file), write.file.clone().into_owned());
    let mut steps = VecDeque::from([Op::Delete { file: new.clone() }]);
    if write.bytes.is_empty() {
        return VecDeque::from([Op::Delete { file }]);
    }
    steps.push_back(Op::Write { file: new.clone(), at: 0, bytes: write.bytes.clone() });
    if write.synced {
        steps.push_back(Op::Sync { file: new.clone() });
    }
    steps.push_back(Op::Rename { from: new, to: file });
    if write.synced {
        steps.push_back(Op::SyncNames);
    }
    steps
}

/// Of a disk that fails, one write or sync in so many fails, and one rename or deletion.
const WRITE_FAILS_ONE_IN: u64 = 2;
const NAME_FAILS_ONE_IN: u64 = 3;
/// Of the reads of a disk that rots.
const ROTS_ONE_IN: u64 = 4;
/// A request to a slow disk takes up to so long, ns.
const SLOW_NS: u64 = 400_000_000;

impl Cluster {
    fn disk_of(&mut self, node: NodeId) -> &mut HostDisk {
        let seed = self.seed() ^ u64::from(node.0) << 32;
        let config = self.config.disk;
        self.disks.entry(node).or_insert_with(|| HostDisk {
            disk: Disk::new(seed, config),
            data: BTreeMap::new(),
            syncs: BTreeMap::new(),
            named: BTreeSet::new(),
            writes: VecDeque::new(),
            steps: VecDeque::new(),
            boot: 0,
        })
    }
    /// From now on this is wrong with the node's disk.
    pub fn ail_disk(&mut self, node: NodeId, ailment: Ailment) {
        let disk = &mut self.disk_of(node).disk;
        match ailment {
            Ailment::Slow => disk.set_latency((0, SLOW_NS), (0, SLOW_NS)),
            Ailment::Fails => disk.set_faults(Faults {
                write_error: WRITE_FAILS_ONE_IN,
                sync_error: WRITE_FAILS_ONE_IN,
                name_error: NAME_FAILS_ONE_IN,
                ..Faults::default()
            }),
            Ailment::Full => disk.set_capacity(0),
            Ailment::Hangs => disk.hang(true),
            Ailment::Rots => disk.set_faults(Faults { bit_rot: ROTS_ONE_IN, ..Faults::default() }),
        }
    }
    /// Nothing is wrong with it any more.
    pub fn mend_disk(&mut self, node: NodeId) {
        let config = self.config.disk;
        let disk = &mut self.disk_of(node).disk;
        disk.set_latency(config.latency_ns, config.sync_ns);
        disk.set_faults(config.faults);
        disk.set_capacity(config.capacity);
        disk.hang(false);
        self.plan_disk(node);
    }

    pub(crate) fn write_file(&mut self, node: NodeId, write: Write) {
        let host = self.disk_of(node);
        host.writes.push_back(write);
        if host.writes.len() == 1 {
            self.next_step(node);
        }
    }

    fn next_step(&mut self, node: NodeId) {
        let now = self.now;
        let Some(host) = self.disks.get_mut(&node) else { return };
        if host.steps.is_empty() {
            let Some(write) = host.writes.front() else { return };
            host.steps = steps(write);
        }
        if let Some(op) = host.steps.pop_front() {
            host.disk.submit(now, op);
        }
        self.plan_disk(node);
    }
    fn plan_disk(&mut self, node: NodeId) {
        if let Some(at) = self.disks.get(&node).and_then(|host| host.disk.next_due()) {
            self.queue.plan(at.max(self.now), Event::Disk { node });
        }
    }

    pub(crate) fn data_request(&mut self, node: NodeId, request: DataRequest) {
        let now = self.now;
        let host = self.disk_of(node);
        let file = request.file.to_string();
        // As long as it is being removed its name is that of another file.
        let is_gone = |r: &DataRequest| r.file == request.file && r.op == DiskOp::Remove;
        let is_named = host.named.contains(&request.file) && !host.data.values().any(is_gone);
        let op = match &request.op {
            DiskOp::Write { at, bytes } => Op::Write { file, at: *at, bytes: bytes.clone() },
            DiskOp::Allocate { bytes } => Op::Allocate { file, bytes: *bytes },
            DiskOp::Read { at, count } => Op::Read { file, at: *at, count: *count as usize },
            DiskOp::Sync => Op::Sync { file },
            DiskOp::Remove => Op::Delete { file },
            DiskOp::Uncache => Op::Read { file, at: 0, count: 0 },
        };
        let mut number = host.disk.submit(now, op);
        if request.op == DiskOp::Sync && !is_named {
            host.syncs.insert(number, None);
            number = host.disk.submit(now, Op::SyncNames);
        }
        host.data.insert(number, request);
        self.plan_disk(node);
    }
    fn data_done(&mut self, node: NodeId, number: u64, request: DataRequest, mut answer: Answer) {
        let Some(host) = self.disks.get_mut(&node) else { return };
        if let Some(failure) = host.syncs.remove(&(number - 1)).flatten() {
            answer = failure;
        }
        let DataRequest { file, op, token, asker, worker, incarnation } = request;
        match op {
            DiskOp::Sync if answer == Answer::Done => drop(host.named.insert(file)),
            DiskOp::Remove => drop(host.named.remove(&file)),
            _ => {}
        }
        let outcome = match answer {
            Answer::Done | Answer::NotFound | Answer::Names(_) => Ok(Vec::new()),
            Answer::Bytes(bytes) => Ok(bytes),
            Answer::Full => Err(DiskFailure { full: true, reason: format!("{file}: no room") }),
            Answer::Failed | Answer::TooBig => Err(DiskFailure { full: false, reason: format!("{file}: {answer:?}") }),
        };
        let done = DiskDone { asker, token, op, outcome };
        self.queue.plan(self.now, Event::DiskDone { node, worker, incarnation, done });
    }

    pub(crate) fn on_disk(&mut self, node: NodeId) {
        let now = self.now;
        let Some(host) = self.disks.get_mut(&node) else { return };
        let answers = host.disk.advance(now);
        let mut step = None;
        for (number, answer) in answers {
            let Some(host) = self.disks.get_mut(&node) else { return };
            if let Some(request) = host.data.remove(&number) {
                self.data_done(node, number, request, answer);
            } else if let Some(failure) = host.syncs.get_mut(&number) {
                *failure = (answer != Answer::Done).then_some(answer);
            } else {
                step = Some(answer);
            }
        }
        match step {
            Some(answer) => self.step_done(node, &answer),
            None => self.plan_disk(node),
        }
    }
    /// A step of the first of the files that are written as a whole.
    fn step_done(&mut self, node: NodeId, answer: &Answer) {
        let Some(host) = self.disks.get_mut(&node) else { return };
        let has_failed = matches!(answer, Answer::Failed | Answer::Full | Answer::TooBig);
        let outcome = if has_failed { Err(format!("{answer:?}")) } else { Ok(()) };
        if has_failed || host.steps.is_empty() {
            host.steps.clear();
            if let Some(Write { worker, incarnation, asker, token, .. }) = host.writes.pop_front() {
                self.queue.plan(self.now, Event::FileDone { node, worker, incarnation, asker, token, outcome });
            }
        }
        self.next_step(node);
        self.plan_disk(node);
    }

    /// The process is gone, and its machine with it or not; the disk stays.
    pub(crate) fn crash_disk(&mut self, node: NodeId, with_machine: bool) {
        if let Some(host) = self.disks.get_mut(&node) {
            if with_machine {
                host.disk.crash();
                host.boot += 1;
            } else {
                // What is written as a whole is done as far as it was under way.
                let data = &host.data;
                host.disk.abandon(|number| data.contains_key(&number));
            }
            host.data.clear();
            host.syncs.clear();
            host.named.clear();
            host.writes.clear();
            host.steps.clear();
        }
    }

    /// The node could start alone from what its disk has: all its logs are whole, as they are from the first global checkpoint after it has become a full member.
    pub fn is_restorable(&self, node: NodeId) -> bool {
        let is_control = |name: &str| Layout::parse(name).is_some();
        let controls = self.disks.get(&node).map(|host| host.disk.contents(is_control)).unwrap_or_default();
        let Some(layout) = Layout::current(controls.keys().map(String::as_str), 0) else { return false };
        let vault = self.config.vaults.reader(node);
        let is_whole = |name: String| {
            let opened = content(&controls, &name).and_then(|content| vault.open_file(&name, content).ok());
            opened.is_some_and(|content| Control::decode(&content, &vault).is_ok_and(|c| c.complete.is_some()))
        };
        (0..layout.workers).all(|i| is_whole(layout.control_file(i)))
    }

    /// What a process finds that starts now.
    pub(crate) fn note_kept(&mut self, node: NodeId, logs: Logs) {
        let is_whole = |name: &str| DataFile::parse(name).is_none() && !name.ends_with(".new");
        let vault = self.config.vaults.reader(node);
        let opened = |files| vault.open_all(files).expect("a node has all keys that it had");
        let (boot, files) = match self.disks.get(&node) {
            Some(host) => (host.boot, opened(host.disk.contents(is_whole))),
            None => (0, BTreeMap::new()),
        };
        let found = Found { boot, files, logs };
        self.config.kept.borrow_mut().insert(node, found);
    }
}
