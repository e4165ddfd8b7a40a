//! The files of simulated nodes: what blocks have written ([`apus_kernel::Context::write_file`]) goes to a [`Disk`] per node.
//!
//! As the runtime does it: beside its place, synced where that is asked for, renamed, the names synced. A process that dies leaves what the
//! system has taken, and a write that was under way half done. If its machine dies with it, what was not synced may be lost, and the machine
//! has another boot. What the disk holds when a process starts is in [`Kept`], for whoever makes its blocks.

use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    rc::Rc,
};

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
    pub files: BTreeMap<String, Vec<u8>>,
}

pub(crate) struct Write {
    pub file: &'static str,
    pub bytes: Vec<u8>,
    pub synced: bool,
    pub token: u64,
    pub asker: BlockRef,
    pub worker: u8,
    pub incarnation: u64,
}

pub(crate) struct HostDisk {
    disk: Disk,
    writes: VecDeque<Write>,
    /// What remains to be done for the first of them.
    steps: VecDeque<Op>,
    boot: u64,
}

fn new_name(file: &str) -> String {
    format!("{file}.new")
}

fn steps(write: &Write) -> VecDeque<Op> {
    let (new, file) = (new_name(write.file), write.file.to_owned());
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
/// A request to a slow disk takes up to so long, ns.
const SLOW_NS: u64 = 400_000_000;

impl Cluster {
    fn disk_of(&mut self, node: NodeId) -> &mut HostDisk {
        let seed = self.seed() ^ u64::from(node.0) << 32;
        let config = self.config.disk;
        self.disks.entry(node).or_insert_with(|| HostDisk {
            disk: Disk::new(seed, config),
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
        }
    }
    /// Nothing is wrong with it any more.
    pub fn mend_disk(&mut self, node: NodeId) {
        let config = self.config.disk;
        let disk = &mut self.disk_of(node).disk;
        disk.set_latency(config.latency_ns, config.sync_ns);
        disk.set_faults(config.faults);
        disk.set_capacity(config.capacity);
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
        if let Some(at) = host.disk.next_due() {
            self.queue.plan(at, Event::Disk { node });
        }
    }

    pub(crate) fn on_disk(&mut self, node: NodeId) {
        let now = self.now;
        let Some(host) = self.disks.get_mut(&node) else { return };
        let answers = host.disk.advance(now);
        if answers.is_empty() {
            return;
        }
        let failed = answers.iter().find(|(_, a)| matches!(a, Answer::Failed | Answer::Full | Answer::TooBig));
        let outcome = failed.map_or(Ok(()), |(_, answer)| Err(format!("{answer:?}")));
        if outcome.is_err() || host.steps.is_empty() {
            host.steps.clear();
            if let Some(Write { worker, incarnation, asker, token, .. }) = host.writes.pop_front() {
                self.queue.plan(now, Event::FileDone { node, worker, incarnation, asker, token, outcome });
            }
        }
        self.next_step(node);
    }

    /// The process is gone, and its machine with it or not; the disk stays.
    pub(crate) fn crash_disk(&mut self, node: NodeId, with_machine: bool) {
        if let Some(host) = self.disks.get_mut(&node) {
            if with_machine {
                host.disk.crash();
                host.boot += 1;
            } else {
                host.disk.advance(u64::MAX); // what was under way is done
            }
            host.writes.clear();
            host.steps.clear();
        }
    }

    /// What a process finds that starts now.
    pub(crate) fn note_kept(&mut self, node: NodeId) {
        let found = |host: &HostDisk| Found { boot: host.boot, files: host.disk.contents() };
        let mut found = self.disks.get(&node).map(found).unwrap_or_default();
        found.files.retain(|name, _| !name.ends_with(".new"));
        self.config.kept.borrow_mut().insert(node, found);
    }
}
