//! `apus mgmt`: the management node.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use apus_mgmt::{
    MGMTS_MAX, Management, Memory, MgmtConfig, cluster_config, default_partitions,
    kept::{self, Promise},
};
use apus_redo::Vault;
use apus_runtime::{Bound, DataDir};
use apus_signal::mgmt::SILENCE_MS;
use apus_types::NodeId;

use crate::{
    ChildArgs,
    secret::{KeyArgs, check_listen},
};

#[derive(clap::Args)]
pub struct MgmtArgs {
    /// Address to listen on; port 0 chooses one
    #[arg(long, default_value = "127.0.0.1:0", value_name = "HOST:PORT")]
    listen: String,
    /// Number of this management node
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=i64::from(MGMTS_MAX)))]
    node: u16,
    /// Management nodes of the cluster
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=i64::from(MGMTS_MAX)))]
    mgmt_nodes: u16,
    /// Id of the cluster, the same at all its management nodes; default: that of the members that run, or else a random one
    #[arg(long, value_name = "HEX", value_parser = parse_cluster)]
    cluster: Option<u64>,
    /// Node groups
    #[arg(long, default_value_t = 1)]
    groups: u32,
    /// Replicas of each row, 1 to 4
    #[arg(long, default_value_t = 2)]
    replicas: u32,
    /// Worker threads of every data node; may be another number when the cluster has ended and all of it is started again
    #[arg(long, default_value_t = 1)]
    workers: u32,
    /// Partitions of every table, for good; default: two per worker of every node when the cluster is founded
    #[arg(long)]
    partitions: Option<u32>,
    /// Shortest silence in milliseconds for which a data node is held for failed, 80 to 1000, of a cluster that starts; later: `apus cluster set`
    #[arg(long, default_value_t = *SILENCE_MS.start(), value_name = "MS", value_parser = clap::value_parser!(u32).range(i64::from(*SILENCE_MS.start())..=i64::from(*SILENCE_MS.end())))]
    silence_ms: u32,
    /// Where crash reports go
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Directory for the arbitrator's file: who it is and what it promised. Without it a restarted management node is another arbitrator
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Give up what the cluster held, for this one start: the data nodes, all of which have lost it, found the cluster again, empty
    #[arg(long)]
    found_again: bool,
    #[command(flatten)]
    keys: KeyArgs,
    #[command(flatten)]
    child: ChildArgs,
}

pub fn run(args: &MgmtArgs) -> Result<ExitCode, String> {
    args.child.begin()?;
    let partitions = args.partitions.unwrap_or_else(|| default_partitions(args.groups, args.replicas, args.workers));
    if args.node > args.mgmt_nodes || (args.mgmt_nodes > 1 && args.cluster.is_none()) {
        return Err(
            "several management nodes need --mgmt-nodes N, their numbers up to it, and one --cluster".to_owned()
        );
    }
    let node = NodeId(NodeId::MGMT_BASE + args.node);
    let (files, memory) = open_files(args.data_dir.as_deref(), node)?;
    let kept = if let Memory::File(Some(promise)) = &memory { Some(promise.cluster) } else { None };
    if let (Some(kept), Some(asked), Some(dir)) = (kept, args.cluster, &args.data_dir)
        && kept != asked
    {
        let dir = dir.display();
        return Err(format!(
            "the data directory {dir} belongs to cluster {kept:016x}, not {asked:016x}: name the right one"
        ));
    }
    let known = args.cluster.or(kept);
    let id = known.map_or_else(crate::random_id, Ok)?;
    let mut cluster = cluster_config(id, args.groups, args.replicas, args.workers, partitions)?;
    cluster.silence_ms = args.silence_ms;
    cluster.mgmts = (1..=args.mgmt_nodes).map(|n| u32::from(NodeId::MGMT_BASE + n)).collect();
    let may_adopt = known.is_none();
    let (keys, listen, dir, build) = (args.keys.load()?, args.listen.clone(), args.dir.clone(), crate::build_id());
    let config = apus_runtime::MgmtConfig { node, listen, dir, build, keys: keys.clone() };
    let mut bound = Bound::new(config).map_err(|e| e.to_string())?;
    if let Some(files) = files {
        bound = bound.with_files(files);
    }
    let address = bound.address().map_err(|e| e.to_string())?;
    check_listen(address, &keys)?;
    let block = MgmtConfig {
        node,
        cluster,
        incarnation: bound.incarnation(),
        may_adopt,
        found_again: args.found_again,
        memory,
        mgmts: Vec::new(),
    };
    let running = bound.start(move |_| vec![Box::new(Management::new(block.clone()))]).map_err(|e| e.to_string())?;
    args.child.ready(address)?;
    crate::data::ended(running.wait_signals().map_err(|e| e.to_string())?)
}

/// Takes the data directory and reads what the arbitrator kept there.
fn open_files(dir: Option<&Path>, node: NodeId) -> Result<(Option<DataDir>, Memory), String> {
    let Some(dir) = dir else { return Ok((None, Memory::Process)) };
    let (files, found) = DataDir::open(dir, Vault::default()).map_err(|e| e.to_string())?;
    let read = |bytes: &Vec<u8>| Promise::from_bytes(bytes, node).map_err(|e| format!("{}: {e}", dir.display()));
    let kept = found.get(kept::FILE).map(read).transpose()?;
    Ok((Some(files), Memory::File(kept)))
}

/// An id as `apus status` prints it.
fn parse_cluster(text: &str) -> Result<u64, String> {
    match u64::from_str_radix(text, 16) {
        Ok(id) if id != 0 => Ok(id),
        _ => Err("the id of a cluster is a hexadecimal number that is not 0".to_owned()),
    }
}
