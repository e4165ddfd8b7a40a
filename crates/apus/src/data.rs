//! `apus data`: one data node.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    sync::Arc,
    time::Duration,
};

use apus_blocks::{
    OnDisk,
    dih::LINGER_NS,
    ldm::{
        CHECKPOINT_BYTES, SCRUB_NS, Slices,
        reshape::{self, Logs},
    },
    qmgr::{Kept, SYNCED_VIEW_FILE, VIEW_FILE},
};
use apus_kernel::{Directory, limits::FILE_BYTES_MAX};
use apus_redo::{SEGMENT_BYTES, Vault};
use apus_runtime::{Bound, DataDir, DataNodeConfig, EXIT_STOPPED, Stop};
use apus_storage::{MemoryManager, REGIONS, Region};
use apus_types::NodeId;
use apus_vault::DiskKeys;

use crate::{
    ChildArgs,
    disk_key::{self, DiskKeyArgs},
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
    /// Data worker threads, besides the one for membership; equal on all data nodes of the cluster, and changed for all of them at once: when the cluster
    /// has ended, start its management and data nodes with another number
    #[arg(long, default_value_t = 1)]
    workers: u8,
    /// Memory of this node, in MiB, shared out to regions: see `apus status --memory`
    #[arg(long, default_value_t = 4096, value_name = "MIB")]
    memory: u64,
    /// What is reserved for a region of the memory, and its maximum, in MiB, instead of its share of --memory: data, index, transaction,
    /// job-buffers, send-buffers, log, schema, outcomes
    #[arg(long = "region", value_name = "NAME=RESERVED:MAXIMUM", value_parser = region)]
    regions: Vec<(Region, u64, u64)>,
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
    #[command(flatten)]
    disk_key: DiskKeyArgs,
    /// Write files in the clear from now on, though there is a --disk-key: it is for those that were encrypted before
    #[arg(long)]
    disk_decrypt: bool,
    /// Where crash reports go
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    #[command(flatten)]
    keys: KeyArgs,
    #[command(flatten)]
    child: ChildArgs,
}

/// A region with other limits than its share gives it, in MiB.
fn region(text: &str) -> Result<(Region, u64, u64), String> {
    let wrong = || format!("{text:?} is not NAME=RESERVED:MAXIMUM, as index=64:512 (MiB)");
    let (name, limits) = text.split_once('=').ok_or_else(wrong)?;
    let (reserved, maximum) = limits.split_once(':').ok_or_else(wrong)?;
    let names = REGIONS.map(Region::name).join(", ");
    let region = REGIONS.into_iter().find(|r| r.name() == name);
    let region = region.ok_or_else(|| format!("no region {name:?}; the regions are {names}"))?;
    let (reserved, maximum) = (reserved.parse().map_err(|_| wrong())?, maximum.parse().map_err(|_| wrong())?);
    if maximum == 0 || maximum < reserved || maximum > MEMORY_MAX_MIB {
        return Err(format!("the maximum of {name} is at least 1 MiB and at least what is reserved for it"));
    }
    Ok((region, reserved, maximum))
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

    /// Shared out to regions.
    fn memory(&self) -> Result<Arc<MemoryManager>, String> {
        let total = self.memory << 20;
        let mut limits = MemoryManager::usual_limits(total);
        for &(region, reserved, maximum) in &self.regions {
            let limits = &mut limits[region as usize];
            (limits.reserved, limits.maximum) = (reserved << 20, maximum << 20);
        }
        let reserved = limits.iter().map(|l| l.reserved).sum::<u64>() >> 20;
        if reserved > self.memory / 2 {
            return Err(format!(
                "{reserved} MiB are reserved for regions (--region and the usual shares), which is more than half of --memory ({} MiB)",
                self.memory
            ));
        }
        Ok(MemoryManager::releasing(total, limits, apus_runtime::release_memory))
    }
}

/// Least and most memory of a data node in MiB.
const MEMORY_MIN_MIB: u64 = 64;
const MEMORY_MAX_MIB: u64 = 1 << 30;

pub fn run(args: DataArgs) -> Result<ExitCode, String> {
    args.child.begin()?;
    let node = NodeId(args.node);
    if !node.is_data() || args.workers == 0 {
        return Err(format!("a data node has an id of 1 to {} and at least one worker", NodeId::DATA_MAX));
    }
    if !(MEMORY_MIN_MIB..=MEMORY_MAX_MIB).contains(&args.memory) {
        return Err(format!("--memory is {MEMORY_MIN_MIB} to {MEMORY_MAX_MIB} MiB"));
    }
    let memory = args.memory()?;
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
    if args.data_dir.is_none() && args.disk_key.is_given() || args.disk_decrypt && !args.disk_key.is_given() {
        return Err("--disk-key and --disk-key-command are for the files in --data-dir, and --disk-decrypt is for those that need one of them".to_owned());
    }
    let disk_keys = args.disk_key.load()?.map(|keys| DiskKeys::new(&keys, !args.disk_decrypt));
    let vault = disk_keys.as_ref().map_or_else(Vault::default, DiskKeys::vault);
    if let Some(dir) = &args.data_dir {
        args.disk_key.check_outside(dir)?;
        let (mut files, mut found) = DataDir::open(dir, vault.clone()).map_err(|e| e.to_string())?;
        let boot = apus_runtime::boot_id().map_err(|e| e.to_string())?;
        let content = |name: &str| found.get(name).map(Vec::as_slice);
        let read = Kept::read(content(VIEW_FILE), content(SYNCED_VIEW_FILE), node, boot);
        let read = read.map_err(|e| format!("{}: {e}", dir.display()))?;
        for file in read.damaged() {
            let text =
                "is damaged and counts for nothing; what it said is learned from the other file or the other nodes";
            apus_runtime::log_line(format!("the file `{file}` in {} {text}", dir.display()));
        }
        let logs = if args.diskless {
            Logs::default()
        } else {
            open_logs(&mut files, &vault, &mut found, &read, node, args.workers, dir)?
        };
        kept = Some(read);
        bound = bound.with_files(files);
        let checkpoint_bytes = args.checkpoint_log << 20;
        let scrub_ns = (args.scrub_hours * SCRUB_NS as f64 / 24.0) as u64;
        let on_disk = OnDisk { files: found, logs, vault, segment_bytes: SEGMENT_BYTES, checkpoint_bytes, scrub_ns };
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
        memory,
        transaction_bytes,
        slices: Slices::default(),
        disk,
        linger_ns: LINGER_NS,
    };
    let running = bound.start(move |who| apus_blocks::build(who, &blocks)).map_err(|e| e.to_string())?;
    args.child.ready(address)?;
    let read_again = disk_keys.map(|keys| disk_key::follow(keys, args.disk_key, &running));
    ended(running.wait_signals_and(read_again).map_err(|e| e.to_string())?)
}

/// The logs in its directory, written anew if they were of another number of workers.
fn open_logs(
    files: &mut DataDir,
    vault: &Vault,
    found: &mut BTreeMap<String, Vec<u8>>,
    kept: &Kept,
    node: NodeId,
    workers: u8,
    dir: &Path,
) -> Result<Logs, String> {
    let known = kept.newest.as_ref().map_or(0, |view| view.instances as u8);
    let mut say = |text: String| apus_runtime::log_line(format!("{}: {text}", dir.display()));
    let logs =
        reshape::open(files, vault, node, workers, known, &mut say).map_err(|e| format!("{}: {e}", dir.display()))?;
    for instance in 0..workers {
        let name = logs.layout.control_file(instance);
        let content = files.read(&name, 0, FILE_BYTES_MAX as u32);
        match content.map_err(|e| format!("{}: {e}", dir.display()))? {
            content if content.is_empty() => found.remove(&name),
            // What is damaged stays as it is: whoever reads it says so.
            content => {
                let opened = vault.open_file(&name, &content).unwrap_or(content);
                found.insert(name, opened)
            }
        };
    }
    Ok(logs)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_named_with_their_limits() {
        assert_eq!(region("index=64:512"), Ok((Region::Index, 64, 512)));
        assert_eq!(region("send-buffers=0:1"), Ok((Region::SendBuffers, 0, 1)));
        for wrong in
            ["index", "index=64", "index=2:1", "index=0:0", "query=1:2", "log=a:b", "log=-1:2", "log=1:99999999999"]
        {
            assert!(region(wrong).is_err(), "{wrong}");
        }
    }
}
