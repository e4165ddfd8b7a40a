//! The data node's blocks: one module each, exporting little more than a constructor.
//!
//! TC and LDM run on every data worker, QMGR on the control worker, where no statement delays it, the others on worker 0. No
//! block reads another block's memory: all they share is signals.

mod buffers;
pub mod cntr;
pub mod copy;
mod deferred;
pub mod dict;
pub mod dih;
mod flight;
pub mod ldm;
pub mod qmgr;
pub mod tc;

#[cfg(test)]
mod harness;
#[cfg(test)]
mod testing;

use std::{collections::BTreeMap, sync::Arc};

use apus_kernel::{Block, WorkerConfig};
use apus_redo::Vault;
use apus_storage::MemoryManager;
use apus_types::NodeId;

/// What a data node is told at its start; everything else comes from the management node.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    pub node: NodeId,
    /// Data workers: LDM and TC instances.
    pub workers: u8,
    /// QMGR has a worker, and links, of its own. Tests of single blocks do without.
    pub control: bool,
    /// It was a member of a cluster and only joins that one: it never founds a new, empty one.
    pub rejoins: bool,
    /// What this node keeps on its machine; `None`: nothing outlives the process.
    pub kept: Option<qmgr::Kept>,
    /// Drawn anew at every start of the process, never 0.
    pub incarnation: u64,
    /// `host:port` where this node accepts links.
    pub address: String,
    /// Management nodes that QMGR asks the executor for links to, with `host:port`. Any other management node that a link
    /// stands to counts as well.
    pub mgmts: Vec<(NodeId, String)>,
    /// The node's memory, shared by its workers.
    pub memory: Arc<MemoryManager>,
    /// Most bytes that one transaction may take at one worker: its entries and changed rows.
    pub transaction_bytes: u64,
    /// How large transactions end, and how those of the dead are taken over.
    pub slices: ldm::Slices,
    /// What is on the disk for logs and the dictionary; `None`: the node is diskless, and its data ends with the cluster.
    pub disk: Option<OnDisk>,
    /// For how long versions are kept after the last reader at an epoch: [`dih::LINGER_NS`]; the simulator draws shorter times.
    pub linger_ns: u64,
}

/// What a process finds in its data directory, other than the logs themselves.
#[derive(Clone, Default, Debug)]
pub struct OnDisk {
    /// Files that blocks have written as a whole, by name; opened, if they were encrypted.
    pub files: BTreeMap<String, Vec<u8>>,
    /// How the logs are named, and whether they can be read.
    pub logs: ldm::reshape::Logs,
    /// Has keys for logs and checkpoints.
    pub vault: Vault,
    /// Of the segments of new logs; `apus_redo::SEGMENT_BYTES`, or what the simulator draws.
    pub segment_bytes: u64,
    /// A log that has grown by so much begins a checkpoint; `ldm::CHECKPOINT_BYTES`, or what the simulator draws.
    pub checkpoint_bytes: u64,
    /// What is on the disk is read again and compared with its checksums so long after it was last: [`ldm::SCRUB_NS`], or what the simulator draws; 0: never.
    pub scrub_ns: u64,
}

impl OnDisk {
    /// Of the dictionary; 0: there is none.
    ///
    /// # Errors
    /// For people: it is damaged.
    pub fn dictionary_version(&self) -> Result<u64, String> {
        if !self.files.contains_key(dict::DICTIONARY_FILE) {
            return Ok(0);
        }
        let named = |why| format!("the file `{}` in the data directory {why}", dict::DICTIONARY_FILE);
        dict::read_file(&self.files).map(|catalog| catalog.version).map_err(named)
    }
}

/// The blocks of one worker of a data node.
pub fn build(who: &WorkerConfig, config: &NodeConfig) -> Vec<Box<dyn Block>> {
    let mut blocks: Vec<Box<dyn Block>> = Vec::new();
    if who.worker < who.instances {
        let memory = config.memory.clone();
        let tc = tc::TransactionCoordinator::new(config.node, who.worker, memory.clone(), config.slices);
        blocks.push(Box::new(tc));
        let mut ldm =
            ldm::LocalDataManager::new(config.node, who.worker, memory, config.transaction_bytes, config.slices);
        if let Some(disk) = &config.disk {
            ldm = ldm.with_disk(disk);
        }
        blocks.push(Box::new(ldm));
    }
    if who.worker == who.control_place() {
        blocks.push(Box::new(qmgr::Membership::new(config)));
    }
    if who.worker == 0 {
        blocks.push(Box::new(dih::Distribution::new(config)));
        blocks.push(Box::new(dict::Dictionary::new(config)));
        blocks.push(Box::new(copy::NodeRecovery::new(config)));
        blocks.push(Box::new(cntr::NodeControl::new(config)));
    }
    blocks
}
