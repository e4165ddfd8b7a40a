//! `apus sql`: a SQL node.

use std::{net::SocketAddr, process::ExitCode, sync::Arc};

use apus_client::{Client, ClientConfig};
use apus_sql::{
    engine::{AutoIncrement, SqlEngine},
    server::{Accounts, Server, ServerConfig},
    wire::SqlError,
};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};

use crate::ChildArgs;

#[derive(clap::Args)]
pub struct SqlArgs {
    /// Addresses of the management nodes
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', required = true)]
    mgmt: Vec<String>,
    /// Address to listen on; port 0 chooses one
    #[arg(long, default_value = "127.0.0.1:4000", value_name = "HOST:PORT")]
    listen: SocketAddr,
    /// Threads, each with connections of its own to all data nodes
    #[arg(long, default_value_t = 1)]
    threads: usize,
    #[command(flatten)]
    child: ChildArgs,
}

/// How long a SQL node waits for the cluster at its start, in milliseconds.
const CONNECT_TIMEOUT_MS: u64 = 60_000;

pub fn run(args: SqlArgs) -> Result<ExitCode, String> {
    args.child.begin()?;
    let client_id = crate::random_id()?;
    let auto_increment = Arc::new(AutoIncrement::default());
    let mgmt = args.mgmt.clone();
    let config = ServerConfig::new(args.listen, args.threads.max(1));
    let server = Server::start(config, Accounts::root_without_password(), move |worker| {
        let (mgmt, auto_increment) = (mgmt.clone(), auto_increment.clone());
        async move {
            let mut config = ClientConfig::new(mgmt, client_id.wrapping_add(worker as u64).max(1));
            config.preferred_node_seed = client_id.wrapping_add(worker as u64);
            config.connect_timeout_ms = CONNECT_TIMEOUT_MS;
            config.name = crate::build_id();
            let client = Client::connect(config).await.map_err(|e| SqlError::new(1105, b"HY000", e.to_string()))?;
            Ok(SqlEngine::new(client, auto_increment))
        }
    })
    .map_err(|e| format!("cannot serve SQL on {}: {e}", args.listen))?;
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(|e| e.to_string())?;
    args.child.ready(server.address())?;
    let _ = signals.forever().next();
    server.stop();
    Ok(ExitCode::SUCCESS)
}
