//! Another number of workers: what `apus data` does before it has blocks, on a simulated disk, and processes that die amid it.

use std::collections::BTreeMap;

use apus_blocks::{
    ldm::reshape::{self, Logs},
    qmgr,
};
use apus_kernel::{Directory, Random};
use apus_types::NodeId;

use crate::{
    Cluster,
    disk::{Answer, Disk, Op},
    files::content,
};

/// When the processes of a node die that write their logs anew: after so many requests, with the machine or not.
pub(crate) type Deaths = BTreeMap<NodeId, (u64, bool)>;

/// Most requests until a process dies; what a small log takes, an average one, and a large one.
const REQUESTS: [u64; 3] = [16, 80, 400];

/// What a seed has the operator do after a loss of power: so many workers from now on; and who dies amid it.
pub fn drawn(random: &mut Random, nodes: &[NodeId]) -> (u8, Vec<(NodeId, u64, bool)>) {
    let workers = 1 + random.below(3) as u8;
    let mut deaths = Vec::new();
    for node in nodes {
        if random.one_in(3) {
            let most = REQUESTS[random.below(REQUESTS.len() as u64) as usize];
            deaths.push((*node, random.below(most), random.one_in(2)));
        }
    }
    (workers, deaths)
}

struct HostDirectory<'a> {
    disk: &'a mut Disk,
    /// Requests until the process dies.
    left: u64,
}

impl HostDirectory<'_> {
    fn done(&mut self, op: Op) -> Result<Answer, String> {
        if self.left == 0 {
            return Err("the process dies".to_owned());
        }
        self.left -= 1;
        match self.disk.now(op) {
            answer @ (Answer::Failed | Answer::Full | Answer::TooBig) => Err(format!("{answer:?}")),
            answer => Ok(answer),
        }
    }
}

impl Directory for HostDirectory<'_> {
    fn names(&mut self) -> Result<Vec<String>, String> {
        match self.done(Op::List)? {
            Answer::Names(names) => Ok(names),
            answer => Err(format!("{answer:?}")),
        }
    }
    fn read(&mut self, file: &str, at: u64, count: u32) -> Result<Vec<u8>, String> {
        match self.done(Op::Read { file: file.to_owned(), at, count: count as usize })? {
            Answer::Bytes(bytes) => Ok(bytes),
            _ => Ok(Vec::new()),
        }
    }
    fn write(&mut self, file: &str, at: u64, bytes: &[u8]) -> Result<(), String> {
        self.done(Op::Write { file: file.to_owned(), at, bytes: bytes.to_vec() }).map(drop)
    }
    fn allocate(&mut self, file: &str, bytes: u64) -> Result<(), String> {
        self.done(Op::Allocate { file: file.to_owned(), bytes }).map(drop)
    }
    fn sync(&mut self, file: &str) -> Result<(), String> {
        self.done(Op::Sync { file: file.to_owned() })?;
        self.done(Op::SyncNames).map(drop)
    }
    fn put(&mut self, file: &str, content: &[u8]) -> Result<(), String> {
        let new = format!("{file}.new");
        self.done(Op::Delete { file: new.clone() })?;
        self.done(Op::Write { file: new.clone(), at: 0, bytes: content.to_vec() })?;
        self.done(Op::Sync { file: new.clone() })?;
        self.done(Op::Rename { from: new, to: file.to_owned() })?;
        self.done(Op::SyncNames).map(drop)
    }
    fn remove(&mut self, file: &str) -> Result<(), String> {
        self.done(Op::Delete { file: file.to_owned() }).map(drop)
    }
}

impl Cluster {
    /// Processes of data nodes that start from now on have so many workers.
    pub fn set_workers(&mut self, workers: u8) {
        self.config.nodes.iter_mut().filter(|(node, _)| node.is_data()).for_each(|(_, n)| *n = workers);
    }
    /// The next process of the node that begins with files dies after so many requests to its disk, if it makes so many before it has blocks.
    pub fn doom_start(&mut self, node: NodeId, requests: u64, with_machine: bool) {
        self.deaths.insert(node, (requests, with_machine));
    }
    /// The logs that a process begins with; `None`: it has died before.
    pub(crate) fn open_logs(&mut self, node: NodeId, workers: u8, incarnation: u64) -> Option<Logs> {
        let Some(host) = self.disks.get_mut(&node).filter(|_| self.config.has_disk && node.is_data()) else {
            return Some(Logs::default());
        };
        let vault = self.config.vaults.of(node, incarnation);
        let files = host.disk.contents(|name| name == qmgr::VIEW_FILE || name == qmgr::SYNCED_VIEW_FILE);
        let files = vault.open_all(files).expect("a node has all keys that it had");
        let kept = qmgr::Kept::read(
            content(&files, qmgr::VIEW_FILE),
            content(&files, qmgr::SYNCED_VIEW_FILE),
            node,
            host.boot.to_string(),
        );
        let known = kept.ok().and_then(|kept| kept.newest).map_or(0, |view| view.instances as u8);
        let death = self.deaths.remove(&node);
        let mut dir = HostDirectory { disk: &mut host.disk, left: death.map_or(u64::MAX, |(requests, _)| requests) };
        let mut said = Vec::new();
        let logs = reshape::open(&mut dir, &vault, node, workers, known, &mut |text| said.push(text));
        for text in said {
            self.note(node, &text);
        }
        match logs {
            Ok(logs) => Some(logs),
            Err(why) => {
                self.note(node, &format!("ends before it has begun: {why}"));
                self.crash_disk(node, death.is_some_and(|(_, with_machine)| with_machine));
                None
            }
        }
    }
}
