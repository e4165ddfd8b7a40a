//! The arbitrator that a SQL node runs beside its server: a node of the cluster that does nothing else.

use std::{
    path::{Path, PathBuf},
    thread,
};

use apus_auth::SecretKind;
use apus_mgmt::{
    Management, MgmtConfig,
    kept::{self, Promise},
};
use apus_redo::Vault;
use apus_runtime::{ArbitratorConfig, Bound, DataDir, Stop};
use apus_types::NodeId;

/// Most SQL nodes that may arbitrate.
const SQL_ARBITRATORS_MAX: u16 = 127;

#[derive(clap::Args)]
pub struct ArbitratorArgs {
    /// Number of this SQL node among those that may arbitrate; no two have the same
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=i64::from(SQL_ARBITRATORS_MAX)))]
    node: u16,
    /// File with the cluster's node secret: with it and --data-dir this node arbitrates where no management node does
    #[arg(long, value_name = "FILE")]
    node_secret: Option<PathBuf>,
    /// Directory for the arbitrator's file (who it is and what it promised), and for rows that memory has no room for
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

impl ArbitratorArgs {
    /// The directory for the node's own files.
    pub fn data_dir(&self) -> Option<&Path> {
        self.data_dir.as_deref()
    }
}

/// Starts the arbitrator, which ends with the process. Without what it needs a line of the log says so.
///
/// # Errors
/// What it was given cannot be used.
pub fn start(args: &ArbitratorArgs, mgmt: &[String]) -> Result<(), String> {
    let (Some(secret), Some(dir)) = (&args.node_secret, &args.data_dir) else {
        apus_runtime::log_line("this SQL node does not arbitrate: that takes --node-secret and --data-dir".to_owned());
        return Ok(());
    };
    let node = NodeId(NodeId::ARBITRATOR_BASE + args.node);
    let node_secret = crate::secret::load(SecretKind::Node, secret)?;
    let (files, found) = DataDir::open(dir, Vault::default()).map_err(|e| e.to_string())?;
    let promise = match found.get(kept::FILE).map(|bytes| Promise::from_bytes(bytes, node)).transpose() {
        Ok(promise) => promise,
        // It serves statements as before: its promises have nothing to do with them.
        Err(reason) => {
            apus_runtime::log_line(format!("this SQL node does not arbitrate: {}: {reason}", dir.display()));
            return Ok(());
        }
    };
    let config =
        ArbitratorConfig { node, mgmt: mgmt.to_vec(), dir: dir.clone(), build: crate::build_id(), node_secret };
    let bound = Bound::arbitrator(config).map_err(|e| e.to_string())?.with_files(files);
    let block = MgmtConfig::arbitrator(node, bound.incarnation(), promise);
    let running = bound.start(move |_| vec![Box::new(Management::new(block.clone()))]).map_err(|e| e.to_string())?;
    let watch = move || {
        if let Stop::Failed(reason) | Stop::Block(reason) | Stop::Rejoin(reason) = running.wait() {
            apus_runtime::log_line(format!("this SQL node arbitrates no more: {reason}"));
        }
    };
    thread::Builder::new().name("arbitrator".to_owned()).spawn(watch).map_err(|e| e.to_string())?;
    Ok(())
}
