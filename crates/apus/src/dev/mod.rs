//! `apus dev`: a whole cluster on this machine, as real child processes.
//!
//! It starts one or two management nodes, the data nodes and the SQL nodes, each with ports of its own, waits until SQL answers, prints how
//! to connect, and then watches its children. A data node that dies stays down until `apus dev restart ID` asks for it through the
//! control socket (see [`crate::discover`]); so does a management node, until `apus dev restart mgmt-ID`, and a SQL node, until `apus dev restart
//! sql-ID`: the cluster goes on without it. A data node that the cluster
//! went on without (it hung, it was cut off) comes back by itself, in the same process. SQL nodes get what they need to arbitrate while no
//! management node does. Two secrets are made in its directory, which only
//! its owner can look into; every child gets what its role needs of them. Ctrl-C and SIGTERM end all children and remove
//! everything that was made, except a directory named by `--keep`, where logs and crash reports stay, or by `--dir`, where all data stays:
//! started again with the same `--dir`, the cluster goes on with it. The children ask the kernel to end them if this process is killed.

mod children;
mod control;
mod restart;
mod shape;

use std::{
    fs::DirBuilder,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use apus_auth::SecretKind;
use apus_signal::hello::Role;
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};

use self::{
    children::{Child, Patience, Spawner},
    shape::{Shape, Wanted},
};
use crate::{discover, disk_key::DiskKeyArgs, tls};

#[derive(clap::Args)]
pub struct DevArgs {
    #[command(subcommand)]
    action: Option<DevAction>,
    /// Keep the cluster's data in this directory, and go on with what is there. Without it all data ends with this command
    #[arg(long, value_name = "DIR", conflicts_with = "keep")]
    dir: Option<PathBuf>,
    /// Data nodes, a multiple of --replicas [default: 2]
    #[arg(long)]
    data_nodes: Option<u16>,
    /// Replicas of each row, 1 to 4 [default: 2]
    #[arg(long)]
    replicas: Option<u16>,
    /// Management nodes; with two of them either may die [default: 1]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=i64::from(apus_mgmt::MGMTS_MAX)))]
    mgmt_nodes: Option<u16>,
    /// SQL nodes
    #[arg(long, default_value_t = 1)]
    sql_nodes: u16,
    /// Port of the first SQL node; 0, or a port that is taken, chooses a free one
    #[arg(long, default_value_t = 4000)]
    port: u16,
    /// Keep crash reports and logs in this directory
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Write a JSON description of the cluster here when SQL answers
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
    /// Worker threads per data node; with --dir another number may be given at each start. Default: as in --dir, or else the cores of this machine shared
    /// among the data nodes
    #[arg(long)]
    workers: Option<u8>,
    /// Threads per SQL node
    #[arg(long)]
    sql_threads: Option<usize>,
    /// Directory whose files statements may write and read; empty: all, NULL: none (as `apus sql`)
    #[arg(long, value_name = "DIR", default_value = "NULL")]
    secure_file_priv: String,
    /// Shortest silence in milliseconds for which a data node is held for failed, 80 to 1000; later: `apus cluster set silence_ms=MS`
    #[arg(long, default_value_t = 80, value_name = "MS", value_parser = clap::value_parser!(u32).range(80..=1000))]
    silence_ms: u32,
    /// Memory of each data node in MiB
    #[arg(long, default_value_t = 4096, value_name = "MIB")]
    memory: u64,
    /// What is reserved for a region of each data node's memory, and its maximum, in MiB (default: as `apus data`)
    #[arg(long = "region", value_name = "NAME=RESERVED:MAXIMUM")]
    regions: Vec<String>,
    /// Most memory that one transaction may take at one worker of a data node, in MiB (default: as `apus data`)
    #[arg(long, value_name = "MIB")]
    transaction_memory: Option<u64>,
    /// A worker of a data node writes a checkpoint when its log has grown by so many MiB (default: as `apus data`)
    #[arg(long, value_name = "MIB")]
    checkpoint_log: Option<u64>,
    /// Directory for rows of statements that memory has no room for (default: as `apus sql`)
    #[arg(long, value_name = "DIR")]
    spill_dir: Option<PathBuf>,
    /// Most bytes that all statements of a SQL node together keep there (default: as `apus sql`)
    #[arg(long, value_name = "BYTES")]
    spill_limit: Option<u64>,
    /// Data nodes read all their files again so many hours after they were last (default: as `apus data`)
    #[arg(long, value_name = "HOURS")]
    scrub_hours: Option<f64>,
    /// As `apus data`, for all data nodes; not in --dir, where it would lie beside what it opens
    #[command(flatten)]
    disk_key: DiskKeyArgs,
    /// As `apus data`
    #[arg(long)]
    disk_decrypt: bool,
}

#[derive(clap::Subcommand)]
enum DevAction {
    /// Restart a node of the running `apus dev` (of several, the one in $APUS_DEV_DIR, or the last started). A data node that runs leaves
    /// the cluster first; the command returns when the new process holds all its rows
    Restart {
        /// Id of the data node, or `mgmt-ID` of a management node or `sql-ID` of a SQL node that is dead
        id: String,
        /// Return when the process is started
        #[arg(long)]
        no_wait: bool,
    },
}

/// What proves who is who in this cluster; made anew each time.
const SECRET_FILES: [(SecretKind, &str); 2] =
    [(SecretKind::Node, discover::NODE_SECRET_FILE), (SecretKind::Client, discover::CLIENT_SECRET_FILE)];

/// Removes them, and the certificates.
fn forget_secrets(dir: &Path) {
    let names = SECRET_FILES.iter().map(|(_, file)| *file).chain([tls::CERT_FILE, tls::KEY_FILE, tls::CA_FILE]);
    names.for_each(|name| drop(std::fs::remove_file(dir.join(name))));
}

/// Here each node has a directory for what it keeps.
const FILES: &str = "files";

/// How long the whole start may take.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// The same where there may be logs to be read.
const RESTART_TIMEOUT: Duration = Duration::from_secs(3600);

pub fn run(args: DevArgs) -> Result<ExitCode, String> {
    if let Some(DevAction::Restart { id, no_wait }) = args.action {
        restart::run(&id, !no_wait)?;
        return Ok(ExitCode::SUCCESS);
    }
    let wanted = Wanted {
        data_nodes: args.data_nodes,
        replicas: args.replicas,
        mgmt_nodes: args.mgmt_nodes,
        workers: args.workers,
    };
    let found = args.dir.as_ref().map_or(Ok(None), |dir| Shape::read(dir, wanted))?;
    let shape = found.map_or_else(|| new_shape(wanted), Ok)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).map_err(|e| format!("cannot handle signals: {e}"))?;
    }
    args.dir.iter().try_for_each(|dir| args.disk_key.check_outside(dir))?;
    let dir = Directory::create(args.keep.clone(), args.dir.clone())?;
    if args.dir.is_some() && (found.is_none() || args.workers.is_some()) {
        shape.write(&dir.path)?;
    }
    let spawner = Spawner::new(dir.path.clone())?;
    let mut cluster = Cluster::start(&args, shape, &dir.path, spawner, &stop)?;
    let result = cluster.serve(&args, &stop);
    cluster.end();
    result.map(|()| ExitCode::SUCCESS)
}

fn new_shape(wanted: Wanted) -> Result<Shape, String> {
    let (data_nodes, replicas) = (wanted.data_nodes.unwrap_or(2), wanted.replicas.unwrap_or(2));
    if replicas == 0 || data_nodes == 0 || !data_nodes.is_multiple_of(replicas) {
        return Err(format!("{data_nodes} data nodes cannot form groups of {replicas} replicas"));
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = wanted.workers.unwrap_or_else(|| (cores / usize::from(data_nodes)).clamp(1, 64) as u8);
    let mgmt_nodes = wanted.mgmt_nodes.unwrap_or(1);
    Ok(Shape { cluster: crate::random_id()?, data_nodes, replicas, mgmt_nodes, workers })
}

/// What becomes of the directory when this command ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keeps {
    Nothing,
    /// Logs and crash reports.
    Logs,
    /// The cluster.
    All,
}

/// The directory of this run and its entry in the registry; both go when it is dropped, unless the user asked to keep it.
struct Directory {
    path: PathBuf,
    entry: PathBuf,
    keeps: Keeps,
}

impl Directory {
    fn create(keep: Option<PathBuf>, data: Option<PathBuf>) -> Result<Directory, String> {
        let keeps = match (&keep, &data) {
            (_, Some(_)) => Keeps::All,
            (Some(_), _) => Keeps::Logs,
            _ => Keeps::Nothing,
        };
        let (id, kept, keep) = (std::process::id(), keeps != Keeps::Nothing, data.or(keep));
        let registry = discover::registry();
        let failed = |what: &Path, e: std::io::Error| format!("cannot create {}: {e}", what.display());
        let path = match keep {
            Some(path) => path,
            // Process ids come back, and a cluster that was killed leaves its directory.
            None => std::env::temp_dir().join(format!("apus-dev-run-{id}-{:08x}", crate::random_id()? as u32)),
        };
        // Nobody else looks into it, nor has made it before us.
        let made = DirBuilder::new().recursive(kept).mode(0o700).create(&path);
        made.and_then(|()| if keeps == Keeps::All { crate::sync_names(&path) } else { Ok(()) })
            .map_err(|e| failed(&path, e))?;
        std::fs::create_dir_all(&registry).map_err(|e| failed(&registry, e))?;
        let path = path.canonicalize().map_err(|e| failed(&path, e))?;
        let entry = registry.join(id.to_string());
        let directory = Directory { path, entry, keeps };
        if keeps != Keeps::All {
            // Of an earlier cluster in a directory that was kept.
            let _ = std::fs::remove_dir_all(directory.path.join(FILES));
            forget_secrets(&directory.path);
        }
        for (kind, file) in SECRET_FILES {
            let secret = directory.path.join(file);
            if !secret.exists() {
                crate::secret::make(kind, &secret)?;
            }
        }
        if !directory.path.join(tls::CERT_FILE).exists() {
            tls::make_files(&directory.path)?;
        }
        crate::write_whole(&directory.entry, &directory.path.display().to_string())?;
        Ok(directory)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.entry);
        if self.keeps != Keeps::Nothing {
            let _ = std::fs::remove_file(self.path.join(discover::CONTROL_SOCKET));
            let _ = std::fs::remove_file(self.path.join(discover::STATE_FILE));
            if self.keeps == Keeps::Logs {
                forget_secrets(&self.path);
            }
        } else {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

struct MgmtNode {
    id: u16,
    child: Child,
    down: bool,
}

struct SqlNode {
    child: Child,
    down: bool,
}

struct DataNode {
    id: u16,
    group: u16,
    child: Child,
    down: bool,
}

/// The running processes; shared with the control socket's thread.
struct Nodes {
    spawner: Spawner,
    mgmt: Vec<MgmtNode>,
    data: Vec<DataNode>,
    /// Node 1 first.
    sql: Vec<SqlNode>,
    /// Of every management node, and of every SQL node.
    mgmt_args: Vec<String>,
    sql_args: Vec<String>,
    workers: u8,
    memory: u64,
    regions: Vec<String>,
    transaction_memory: Option<u64>,
    checkpoint_log: Option<u64>,
    scrub_hours: Option<f64>,
    disk_key: DiskKeyArgs,
    disk_decrypt: bool,
    /// Data is kept.
    durable: bool,
}

struct Cluster {
    nodes: Arc<Mutex<Nodes>>,
    dir: PathBuf,
}

fn lock(nodes: &Mutex<Nodes>) -> std::sync::MutexGuard<'_, Nodes> {
    nodes.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Nodes {
    fn mgmt_addresses(&self) -> String {
        self.mgmt.iter().map(|m| m.child.address.to_string()).collect::<Vec<_>>().join(",")
    }

    /// The argument that names one of the secrets' files.
    fn secret(&self, kind: &str) -> String {
        format!("--{kind}-secret={}", self.spawner.dir().join(format!("{kind}.secret")).display())
    }

    /// The argument that names the directory of a node's own files.
    fn data_dir(&self, name: &str) -> String {
        format!("--data-dir={}", self.spawner.dir().join(FILES).join(name).display())
    }

    fn start_mgmt(&mut self, id: u16, listen: SocketAddr) -> Result<Child, String> {
        let name = if id == 1 { "mgmt".to_owned() } else { format!("mgmt-{id}") };
        let own = ["mgmt".to_owned(), format!("--node={id}"), format!("--listen={listen}")];
        let files = [self.data_dir(&name), self.secret("node"), self.secret("client")];
        let args: Vec<String> = own.into_iter().chain(files).chain(self.mgmt_args.iter().cloned()).collect();
        let mut child = self.spawner.spawn(&name, &args)?;
        child.address = listen;
        Ok(child)
    }

    fn start_sql(&mut self, id: u16, listen: SocketAddr) -> Result<Child, String> {
        let own = [
            "sql".to_owned(),
            format!("--mgmt={}", self.mgmt_addresses()),
            format!("--listen={listen}"),
            // It arbitrates where no management node does.
            format!("--node={id}"),
            self.data_dir(&format!("sql-{id}")),
            format!("--slow-query-log-file={}", self.spawner.dir().join(format!("slow-{id}.log")).display()),
        ];
        let files = [
            self.secret("client"),
            self.secret("node"),
            format!("--tls-cert={}", self.spawner.dir().join(tls::CERT_FILE).display()),
            format!("--tls-key={}", self.spawner.dir().join(tls::KEY_FILE).display()),
        ];
        let args: Vec<String> = own.into_iter().chain(files).chain(self.sql_args.iter().cloned()).collect();
        self.spawner.spawn(&format!("sql-{id}"), &args)
    }

    /// So that nothing that was acknowledged is lost.
    fn end_durably(&self) -> Result<(), String> {
        let secret = crate::secret::load(SecretKind::Node, &self.spawner.dir().join(discover::NODE_SECRET_FILE))?;
        let access = discover::Access { mgmt: self.mgmt_addresses(), role: Role::Operator, secret };
        crate::cluster::end_durably(&access)
    }

    fn start_data(&mut self, id: u16) -> Result<Child, String> {
        let mut args = vec![
            "data".to_owned(),
            format!("--node={id}"),
            format!("--mgmt={}", self.mgmt_addresses()),
            format!("--workers={}", self.workers),
            format!("--memory={}", self.memory),
            format!("--dir={}", self.spawner.dir().display()),
            self.data_dir(&format!("data-{id}")),
            self.secret("node"),
            self.secret("client"),
        ];
        args.extend((!self.durable).then(|| "--diskless".to_owned()));
        args.extend(self.regions.iter().map(|region| format!("--region={region}")));
        args.extend(self.transaction_memory.map(|mib| format!("--transaction-memory={mib}")));
        args.extend(self.checkpoint_log.map(|mib| format!("--checkpoint-log={mib}")));
        args.extend(self.scrub_hours.map(|hours| format!("--scrub-hours={hours}")));
        args.extend(self.disk_key.arguments());
        args.extend(self.disk_decrypt.then(|| "--disk-decrypt".to_owned()));
        self.spawner.spawn(&format!("data-{id}"), &args)
    }

    /// Tells a data node to end, if it runs.
    fn ask_to_end(&mut self, id: u16) -> bool {
        let Some(node) = self.data.iter_mut().find(|n| n.id == id) else { return false };
        let runs = node.child.exited().is_none();
        if runs {
            node.child.ask_to_end();
        }
        runs
    }

    fn log_if_running(&mut self, id: u16) -> Option<PathBuf> {
        let node = self.data.iter_mut().find(|n| n.id == id)?;
        node.child.exited().is_none().then(|| node.child.log.clone())
    }

    /// Starts a dead node again: `ID` of a data node, `mgmt-ID` or `sql-ID`. Its new process id.
    fn restart(&mut self, name: &str) -> Result<u32, String> {
        let number = |text: &str| text.parse().map_err(|_| format!("{name:?} is no node id"));
        match name.split_once('-') {
            Some(("mgmt", id)) => self.restart_mgmt(number(id)?),
            Some(("sql", id)) => self.restart_sql(number(id)?),
            _ => self.restart_data(number(name)?),
        }
    }

    /// At its old address, which its clients have.
    fn restart_sql(&mut self, id: u16) -> Result<u32, String> {
        let missing = format!("there is no SQL node {id}");
        let place = usize::from(id).checked_sub(1).filter(|p| *p < self.sql.len()).ok_or(missing)?;
        let before = &mut self.sql[place].child;
        if before.exited().is_none() {
            return Err(format!("SQL node {id} runs, process {}", before.pid()));
        }
        let address = before.address;
        let mut child = self.start_sql(id, address)?;
        child.address = address;
        let pid = child.pid();
        self.sql[place] = SqlNode { child, down: false };
        self.write_state(None)?;
        Ok(pid)
    }

    /// At its old address, which everybody has.
    fn restart_mgmt(&mut self, id: u16) -> Result<u32, String> {
        let place = self.mgmt.iter().position(|n| n.id == id).ok_or(format!("there is no management node {id}"))?;
        if self.mgmt[place].child.exited().is_none() {
            return Err(format!("management node {id} runs, process {}", self.mgmt[place].child.pid()));
        }
        let child = self.start_mgmt(id, self.mgmt[place].child.address)?;
        let pid = child.pid();
        self.mgmt[place] = MgmtNode { id, child, down: false };
        self.write_state(None)?;
        Ok(pid)
    }

    fn restart_data(&mut self, id: u16) -> Result<u32, String> {
        let place = self.data.iter().position(|n| n.id == id).ok_or(format!("there is no data node {id}"))?;
        if self.data[place].child.exited().is_none() {
            return Err(format!("data node {id} runs, process {}", self.data[place].child.pid()));
        }
        let child = self.start_data(id)?;
        let pid = child.pid();
        self.data[place].child = child;
        self.data[place].down = false;
        self.write_state(None)?;
        Ok(pid)
    }

    fn describe(&self) -> String {
        let host_port = |a: &SocketAddr| json!({"host": a.ip().to_string(), "port": a.port()});
        let sql: Vec<_> = self
            .sql
            .iter()
            .enumerate()
            .map(|(i, SqlNode { child: c, .. })| {
                json!({"id": i + 1, "host": c.address.ip().to_string(), "port": c.address.port(), "pid": c.pid()})
            })
            .collect();
        let data: Vec<_> =
            self.data.iter().map(|n| json!({"id": n.id, "pid": n.child.pid(), "group": n.group})).collect();
        let mgmt = |m: &MgmtNode| {
            let mut value = host_port(&m.child.address);
            value["id"] = json!(m.id);
            value["pid"] = json!(m.child.pid());
            value
        };
        let mgmts: Vec<_> = self.mgmt.iter().map(mgmt).collect();
        json!({"mgmt": mgmts.first(), "mgmts": mgmts, "sql": sql, "data": data, "dir": self.spawner.dir().display().to_string()}).to_string()
    }

    /// Writes the state file and, where one was asked for, the ready file.
    fn write_state(&self, ready_file: Option<&Path>) -> Result<(), String> {
        let text = self.describe();
        crate::write_whole(&self.spawner.dir().join(discover::STATE_FILE), &text)?;
        ready_file.map_or(Ok(()), |path| crate::write_whole(path, &text))
    }
}

impl Cluster {
    fn start(args: &DevArgs, shape: Shape, dir: &Path, spawner: Spawner, stop: &AtomicBool) -> Result<Cluster, String> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let Shape { data_nodes, replicas, mgmt_nodes, workers, cluster } = shape;
        let sql_threads = args.sql_threads.unwrap_or_else(|| (cores / 2).max(1));
        let mgmt_args = vec![
            format!("--mgmt-nodes={mgmt_nodes}"),
            format!("--cluster={cluster:x}"),
            format!("--groups={}", data_nodes / replicas),
            format!("--replicas={replicas}"),
            format!("--workers={workers}"),
            format!("--silence-ms={}", args.silence_ms),
            format!("--dir={}", dir.display()),
        ];
        let patience = if args.dir.is_some() { RESTART_TIMEOUT } else { START_TIMEOUT };
        let deadline = Instant::now() + patience;
        let mut sql_args = vec![
            format!("--threads={sql_threads}"),
            format!("--start-seconds={}", patience.as_secs()),
            format!("--secure-file-priv={}", args.secure_file_priv),
        ];
        sql_args.extend(args.spill_dir.as_ref().map(|dir| format!("--spill-dir={}", dir.display())));
        sql_args.extend(args.spill_limit.map(|bytes| format!("--spill-limit={bytes}")));
        let mut nodes = Nodes {
            spawner,
            mgmt: Vec::new(),
            data: Vec::new(),
            sql: Vec::new(),
            mgmt_args,
            sql_args,
            workers,
            memory: args.memory,
            regions: args.regions.clone(),
            transaction_memory: args.transaction_memory,
            checkpoint_log: args.checkpoint_log,
            scrub_hours: args.scrub_hours,
            disk_key: args.disk_key.clone(),
            disk_decrypt: args.disk_decrypt,
            durable: args.dir.is_some(),
        };
        for id in 1..=mgmt_nodes {
            let mut child = nodes.start_mgmt(id, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
            child.wait_ready(deadline, stop, &mut || {})?;
            nodes.mgmt.push(MgmtNode { id, child, down: false });
        }
        for id in 1..=data_nodes {
            let child = nodes.start_data(id)?;
            nodes.data.push(DataNode { id, group: (id - 1) / replicas, child, down: false });
        }
        nodes.write_state(None)?; // a start that waits can be looked at, and resumed
        for i in 0..args.sql_nodes {
            let port = if args.port == 0 { 0 } else { free_port(args.port.saturating_add(i)) };
            let child = nodes.start_sql(i + 1, SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
            nodes.sql.push(SqlNode { child, down: false });
        }
        for node in &mut nodes.data {
            node.child.wait_ready(deadline, stop, &mut || {})?;
        }
        let mut patience = Patience::new(nodes.data.iter().map(|node| &node.child));
        for SqlNode { child, .. } in &mut nodes.sql {
            child.wait_ready(deadline, stop, &mut || patience.tell())?;
        }
        nodes.write_state(args.ready_file.as_deref())?;
        Ok(Cluster { nodes: Arc::new(Mutex::new(nodes)), dir: dir.to_owned() })
    }

    /// Says how to connect and watches the children until asked to stop.
    fn serve(&mut self, args: &DevArgs, stop: &AtomicBool) -> Result<(), String> {
        control::listen(&self.dir, self.nodes.clone(), args.ready_file.clone())?;
        self.announce();
        while !stop.load(Relaxed) {
            let mut nodes = lock(&self.nodes);
            for node in nodes.data.iter_mut().filter(|n| !n.down) {
                if let Some(how) = node.child.exited() {
                    node.down = true;
                    println!("data node {} ended ({how}); start it again with: apus dev restart {}", node.id, node.id);
                }
            }
            for node in nodes.mgmt.iter_mut().filter(|n| !n.down) {
                if let Some(how) = node.child.exited() {
                    node.down = true;
                    let id = node.id;
                    println!("management node {id} ended ({how}); start it again with: apus dev restart mgmt-{id}");
                }
            }
            for (id, node) in (1..).zip(&mut nodes.sql).filter(|(_, n)| !n.down) {
                if let Some(how) = node.child.exited() {
                    node.down = true;
                    println!(
                        "SQL node {id} ended ({how}); its log: {}; start it again with: apus dev restart sql-{id}",
                        node.child.log.display()
                    );
                }
            }
            drop(nodes);
            std::thread::sleep(Duration::from_millis(50)); // polls children; nothing waits for this
        }
        println!("\nstopping");
        Ok(())
    }

    fn announce(&self) {
        let nodes = lock(&self.nodes);
        println!(
            "Apus runs: {} data nodes, {} SQL nodes, in {}",
            nodes.data.len(),
            nodes.sql.len(),
            self.dir.display()
        );
        for SqlNode { child, .. } in &nodes.sql {
            println!("  SQL      mysql -h127.0.0.1 -P{} -uroot", child.address.port());
        }
        println!("  Native   {} (management)", nodes.mgmt_addresses());
        println!("  Status   apus status");
        for node in &nodes.data {
            println!(
                "  Try      kill -9 {:<8} (data node {}), then: apus dev restart {}",
                node.child.pid(),
                node.id,
                node.id
            );
        }
        match nodes.durable {
            true => println!(
                "All data is kept in {}: start it again with the same --dir. Ctrl-C ends it.",
                self.dir.display()
            ),
            false => {
                println!("All data is in memory only (no --dir): it is gone when this cluster stops. Ctrl-C ends it.")
            }
        }
    }

    fn end(&mut self) {
        let mut nodes = lock(&self.nodes);
        let nodes = &mut *nodes;
        if nodes.durable
            && let Err(e) = nodes.end_durably()
        {
            println!("the data nodes are ended without having made everything durable: {e}");
        }
        let sql = nodes.sql.iter_mut().map(|n| &mut n.child);
        let children = sql.chain(nodes.data.iter_mut().map(|n| &mut n.child));
        let mut all: Vec<&mut Child> = children.chain(nodes.mgmt.iter_mut().map(|n| &mut n.child)).collect();
        children::end_all(&mut all);
    }
}

/// `port` if it is free, otherwise 0.
fn free_port(port: u16) -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_or(0, |_| port)
}
