//! `apus mgmt`: the management node.

use std::{path::PathBuf, process::ExitCode};

use apus_mgmt::{Management, MgmtConfig, cluster_config, default_partitions};
use apus_runtime::Bound;
use apus_types::NodeId;

use crate::ChildArgs;

#[derive(clap::Args)]
pub struct MgmtArgs {
    /// Address to listen on; port 0 chooses one
    #[arg(long, default_value = "127.0.0.1:0", value_name = "HOST:PORT")]
    listen: String,
    /// Node groups
    #[arg(long, default_value_t = 1)]
    groups: u32,
    /// Replicas of each row, 1 to 4
    #[arg(long, default_value_t = 2)]
    replicas: u32,
    /// Worker threads of every data node
    #[arg(long, default_value_t = 1)]
    workers: u32,
    /// Partitions of every table; default: two per worker of every node
    #[arg(long)]
    partitions: Option<u32>,
    /// Where crash reports go
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    #[command(flatten)]
    child: ChildArgs,
}

pub fn run(args: &MgmtArgs) -> Result<ExitCode, String> {
    args.child.begin()?;
    let partitions = args.partitions.unwrap_or_else(|| default_partitions(args.groups, args.replicas, args.workers));
    let cluster = cluster_config(crate::random_id()?, args.groups, args.replicas, args.workers, partitions)?;
    let node = NodeId(NodeId::MGMT_BASE + 1);
    let config =
        apus_runtime::MgmtConfig { node, listen: args.listen.clone(), dir: args.dir.clone(), build: crate::build_id() };
    let bound = Bound::new(config).map_err(|e| e.to_string())?;
    let address = bound.address().map_err(|e| e.to_string())?;
    let running = bound
        .start(move |_| vec![Box::new(Management::new(MgmtConfig { node, cluster: cluster.clone() }))])
        .map_err(|e| e.to_string())?;
    args.child.ready(address)?;
    crate::data::ended(running.wait_signals().map_err(|e| e.to_string())?)
}
