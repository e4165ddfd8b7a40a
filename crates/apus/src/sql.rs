//! `apus sql`: a SQL node.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode, sync::Arc};

use apus_auth::{Secret, SecretKind};
use apus_client::{Client, ClientConfig};
use apus_sql::{
    catalog::auto_increment::AutoIncrement,
    files::Places,
    monitor::slow,
    server::{Accounts, Server, ServerConfig},
    session::{engine::SqlEngine, peers::Peers, table_locks::TableLocks, user_lock::UserLocks},
    spill::{BYTES_MAX_DEFAULT, Space},
    variables::Globals,
    wire::{SqlError, auth::AuthPlugin},
};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};

use crate::{
    ChildArgs,
    arbitrator::{self, ArbitratorArgs},
    tls::TlsArgs,
};

/// In the directory of the node's own files.
const SPILL: &str = "spill";

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
    /// File with the cluster's client secret; without it only on loopback
    #[arg(long, value_name = "FILE")]
    client_secret: Option<PathBuf>,
    /// File whose first line is root's password; without it root has none, and the node listens on loopback only
    #[arg(long, value_name = "FILE")]
    root_password_file: Option<PathBuf>,
    /// Clients may load files that they have (LOAD DATA LOCAL), until SET GLOBAL local_infile says otherwise
    #[arg(long)]
    local_infile: bool,
    /// Directory whose files statements may write and read (SELECT ... INTO OUTFILE, LOAD DATA INFILE, LOAD_FILE), for accounts with the privilege FILE; empty: all that this process may; NULL: none
    #[arg(long, value_name = "DIR", default_value = "NULL")]
    secure_file_priv: String,
    /// File of the slow query log, until SET GLOBAL slow_query_log_file names another one beside it
    #[arg(long, value_name = "FILE", default_value = slow::FILE_DEFAULT)]
    slow_query_log_file: PathBuf,
    /// Directory for rows of statements that memory has no room for [default: `spill` in --data-dir, without it the system's directory for temporary files]
    #[arg(long, value_name = "DIR")]
    spill_dir: Option<PathBuf>,
    /// Most bytes that all statements together keep there; 0: none, a statement ends when its memory is full
    #[arg(long, default_value_t = BYTES_MAX_DEFAULT, value_name = "BYTES")]
    spill_limit: u64,
    /// Seconds to wait for the cluster at the start
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    start_seconds: u64,
    #[command(flatten)]
    tls: TlsArgs,
    #[command(flatten)]
    arbitrator: ArbitratorArgs,
    #[command(flatten)]
    child: ChildArgs,
}

pub fn run(args: SqlArgs) -> Result<ExitCode, String> {
    args.child.begin()?;
    let secret =
        args.client_secret.as_deref().map_or(Ok(Secret::NONE), |path| crate::secret::load(SecretKind::Client, path))?;
    let accounts = accounts(&args, &secret)?;
    arbitrator::start(&args.arbitrator, &args.mgmt)?;
    let client_id = crate::random_id()?;
    let tls = args.tls.load()?;
    let globals = Globals::with_tls(tls.is_some(), tls.as_ref().is_some_and(|tls| tls.required))
        .with_local_infile(args.local_infile)
        .with_files_in(Places::parse(&args.secure_file_priv)?)
        .with_slow_log_file(&args.slow_query_log_file)
        .with_spill(spill(&args)?);
    let (auto_increment, globals) = (Arc::new(AutoIncrement::default()), Arc::new(globals));
    let (user_locks, table_locks) = (Arc::new(UserLocks::default()), Arc::new(TableLocks::default()));
    let peers = Arc::new(Peers::default());
    let (mgmt, connect_timeout_ms) = (args.mgmt.clone(), args.start_seconds * 1000);
    let config = ServerConfig { tls, ..ServerConfig::new(args.listen, args.threads.max(1)) };
    let known = accounts.clone();
    let server = Server::start(config, accounts, move |worker| {
        let accounts = known.clone();
        let (mgmt, auto_increment, globals) = (mgmt.clone(), auto_increment.clone(), globals.clone());
        let (user_locks, table_locks) = (user_locks.clone(), table_locks.clone());
        let (secret, peers) = (secret.clone(), peers.clone());
        async move {
            let mut config = ClientConfig::new(mgmt, client_id.wrapping_add(worker as u64).max(1));
            config.preferred_node_seed = client_id.wrapping_add(worker as u64);
            config.connect_timeout_ms = connect_timeout_ms;
            config.name = crate::build_id();
            config.secret = secret;
            let client = Client::connect(config).await.map_err(|e| SqlError::new(1105, b"HY000", e.to_string()))?;
            Ok(SqlEngine::new(client, auto_increment, globals, user_locks, table_locks).with_accounts(accounts, peers))
        }
    })
    .map_err(|e| format!("cannot serve SQL on {}: {e}", args.listen))?;
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(|e| e.to_string())?;
    args.child.ready(server.address())?;
    let _ = signals.forever().next();
    server.stop();
    Ok(ExitCode::SUCCESS)
}

/// Where statements keep rows that memory has no room for.
fn spill(args: &SqlArgs) -> Result<Space, String> {
    let own = args.spill_dir.clone().or_else(|| args.arbitrator.data_dir().map(|dir| dir.join(SPILL)));
    let directory = own.unwrap_or_else(std::env::temp_dir);
    let space = Space::new(directory.clone(), args.spill_limit);
    if space.is_open() {
        space.prepare().map_err(|e| format!("cannot keep rows in {}: {e}", directory.display()))?;
    }
    Ok(space)
}

/// Who may log in. Beyond loopback everybody has to prove who he is, and so have we to the cluster.
fn accounts(args: &SqlArgs, secret: &Secret) -> Result<Accounts, String> {
    if !args.listen.ip().to_canonical().is_loopback() && (secret.is_none() || args.root_password_file.is_none()) {
        return Err(format!(
            "does not listen on {} without --client-secret FILE and --root-password-file FILE: whoever reaches it could read and change \
             all data",
            args.listen
        ));
    }
    let Some(path) = &args.root_password_file else { return Ok(Accounts::root_without_password()) };
    let mut accounts = Accounts::new();
    accounts.add("root", &crate::secret::load_password(path)?, AuthPlugin::CachingSha2Password);
    Ok(accounts)
}
