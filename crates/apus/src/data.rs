//! `apus data`: one data node.

use std::{
    ffi::OsString,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Command, ExitCode},
    time::Duration,
};

use apus_blocks::{
    OnDisk,
    dih::LINGER_NS,
    ldm::{CHECKPOINT_BYTES, SCRUB_NS, Slices},
    qmgr::{Kept, SYNCED_VIEW_FILE, VIEW_FILE},
};
use apus_redo::SEGMENT_BYTES;
use apus_runtime::{Bound, DataDir, DataNodeConfig, EXIT_STOPPED, Stop};
use apus_storage::MemoryManager;
use apus_types::NodeId;

use crate::{
    ChildArgs,
    secret::{KeyArgs, check_listen},
};

#[derive(clap::Args)]
pub struct DataArgs {
    /// Id of this node, 1 to 255, as in the cluster's configuration
    #[arg(long)]
    node: u16,
    /// Addresses of the management nodes
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', required = true)]
    mgmt: Vec<String>,
    /// Address to listen on; port 0 chooses one
    #[arg(long, default_value = "127.0.0.1:0", value_name = "HOST:PORT")]
    listen: String,
    /// Data worker threads, besides the one for membership; must be equal on all data nodes of the cluster
    #[arg(long, default_value_t = 1)]
    workers: u8,
    /// Memory for data, indexes and transactions, in MiB
    #[arg(long, default_value_t = 4096, value_name = "MIB")]
    memory: u64,
    /// Most memory that one transaction may take at one worker, in MiB: its changed rows and some 24 bytes for each row that it
    /// changed or locked. A larger one is refused with error 403 (1114 in SQL). Default: a quarter of --memory, shared by the workers
    #[arg(long, value_name = "MIB")]
    transaction_memory: Option<u64>,
    /// Join the running cluster, never found one: as a node starts itself again that the cluster went on without
    #[arg(long)]
    rejoin: bool,
    /// Directory for what this node keeps: the log of all changes and the dictionary, so that the cluster's data outlives its processes and machines, and
    /// the file of its views, with which the next process of this node speaks for one that died. All data nodes need one
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// A worker writes what has changed to a checkpoint when its log has grown by so many MiB since the last one: what a start reads of the log, about
    #[arg(long, default_value_t = CHECKPOINT_BYTES >> 20, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    checkpoint_log: u64,
    /// Read all files in --data-dir again so many hours after they were last, slowly, and write anew what is damaged; 0: never
    #[arg(long, default_value_t = 24.0, value_name = "HOURS", value_parser = hours)]
    scrub_hours: f64,
    /// Keep only the file of views in --data-dir: all data ends with the last process of the cluster
    #[arg(long, requires = "data_dir")]
    diskless: bool,
    /// Where crash reports go
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    #[command(flatten)]
    keys: KeyArgs,
    #[command(flatten)]
    child: ChildArgs,
}

/// A time between looks at the files: none, or from a second to a year.
fn hours(text: &str) -> Result<f64, String> {
    let hours: f64 = text.parse().map_err(|_| "a number of hours is wanted")?;
    let is_good = hours == 0.0 || (1.0 / 3600.0..=8766.0).contains(&hours);
    if is_good { Ok(hours) } else { Err("0, or from 0.0003 to 8766 hours".to_owned()) }
}

/// One part in so many of the memory is what one transaction may take unless told otherwise.
const TRANSACTION_SHARE: u64 = 4;

impl DataArgs {
    /// Bytes that one transaction may take at one worker.
    fn transaction_bytes(&self) -> u64 {
        let usual = (self.memory << 20) / TRANSACTION_SHARE / u64::from(self.workers.max(1));
        self.transaction_memory.map_or(usual, |mib| mib << 20)
    }
}

/// Least memory of a data node in MiB.
const MEMORY_MIN_MIB: u64 = 64;

pub fn run(args: DataArgs) -> Result<ExitCode, String> {
    args.child.begin()?;
    let node = NodeId(args.node);
    if !node.is_data() || args.workers == 0 {
        return Err(format!("a data node has an id of 1 to {} and at least one worker", NodeId::DATA_MAX));
    }
    if args.memory < MEMORY_MIN_MIB {
        return Err(format!("--memory is at least {MEMORY_MIN_MIB} MiB"));
    }
    let keys = args.keys.load()?;
    if args.transaction_memory.is_some_and(|mib| mib == 0 || mib > args.memory) {
        return Err(format!("--transaction-memory is at least 1 MiB and at most --memory ({} MiB)", args.memory));
    }
    let transaction_bytes = args.transaction_bytes();
    let config = DataNodeConfig {
        node,
        listen: args.listen,
        mgmt: args.mgmt,
        workers: args.workers,
        dir: args.dir,
        build: crate::build_id(),
        keys: keys.clone(),
    };
    let mut bound = Bound::new(config).map_err(|e| e.to_string())?;
    let (mut kept, mut disk) = (None, None);
    if let Some(dir) = &args.data_dir {
        let (files, found) = DataDir::open(dir).map_err(|e| e.to_string())?;
        let boot = apus_runtime::boot_id().map_err(|e| e.to_string())?;
        let content = |name: &str| found.get(name).map(Vec::as_slice);
        let read = Kept::read(content(VIEW_FILE), content(SYNCED_VIEW_FILE), node, boot);
        let read = read.map_err(|e| format!("{}: {e}", dir.display()))?;
        for file in read.damaged() {
            let text =
                "is damaged and counts for nothing; what it said is learned from the other file or the other nodes";
            apus_runtime::log_line(format!("the file `{file}` in {} {text}", dir.display()));
        }
        kept = Some(read);
        bound = bound.with_files(files);
        let checkpoint_bytes = args.checkpoint_log << 20;
        let scrub_ns = (args.scrub_hours * SCRUB_NS as f64 / 24.0) as u64;
        let on_disk = OnDisk { files: found, segment_bytes: SEGMENT_BYTES, checkpoint_bytes, scrub_ns };
        disk = (!args.diskless).then_some(on_disk);
        if let Some(Err(damage)) = disk.as_ref().map(OnDisk::dictionary_version) {
            apus_runtime::log_line(format!("{}: {damage}; this node cannot start from its disk", dir.display()));
        }
    }
    let address = bound.address().map_err(|e| e.to_string())?;
    check_listen(address, &keys)?;
    let blocks = apus_blocks::NodeConfig {
        node,
        workers: args.workers,
        control: true,
        rejoins: args.rejoin,
        kept,
        incarnation: bound.incarnation(),
        address: address.to_string(),
        // The executor links to them by their addresses and tells QMGR who is there.
        mgmts: Vec::new(),
        memory: MemoryManager::releasing(args.memory << 20, apus_runtime::release_memory),
        transaction_bytes,
        slices: Slices::default(),
        disk,
        linger_ns: LINGER_NS,
    };
    let running = bound.start(move |who| apus_blocks::build(who, &blocks)).map_err(|e| e.to_string())?;
    args.child.ready(address)?;
    ended(running.wait_signals().map_err(|e| e.to_string())?)
}

/// Pause before a node that was removed starts again: the others are to have agreed on it.
const REJOIN_PAUSE: Duration = Duration::from_millis(100);

/// Puts a new process in the place of this one: same id, same arguments, nothing left of the old node. Returns only what failed.
fn rejoin() -> String {
    std::thread::sleep(REJOIN_PAUSE);
    let arguments: Vec<OsString> = std::env::args_os().skip(1).filter(|a| a != "--rejoin").collect();
    // The program that runs, even if its file has been replaced.
    let failed = Command::new("/proc/self/exe").args(arguments).arg("--rejoin").exec();
    format!("cannot start again: {failed}")
}

/// The exit code that says why a node ended.
pub fn ended(stop: Stop) -> Result<ExitCode, String> {
    // stderr may be a pipe that nobody reads, so this too goes by the log.
    match stop {
        Stop::Asked => Ok(ExitCode::SUCCESS),
        Stop::Block(reason) => {
            apus_runtime::log_line(format!("apus: stopped: {reason}"));
            apus_runtime::flush_log();
            Ok(ExitCode::from(EXIT_STOPPED as u8))
        }
        Stop::Rejoin(reason) => {
            apus_runtime::log_line(format!("apus: stopped: {reason}; starts again to join the cluster"));
            apus_runtime::flush_log();
            Err(rejoin())
        }
        Stop::Failed(reason) => Err(reason),
    }
}
