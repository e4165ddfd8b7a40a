//! The files that blocks have written: one directory, one process, one thread.
//!
//! A file is written beside its place and renamed, so that a reader finds the old content or the new one. A synced write ends with an
//! fsync of the file before the rename and of the directory after it. Writes are done in the order in which they were asked for, by a
//! thread of its own, so that a slow disk delays no worker. At most [`WRITES_MAX`] wait; one more is refused.
//!
//! **Encryption.** What blocks write is sealed here, and what they are to read is opened ([`Vault`]). When a node starts, and when it has been given other keys, this thread writes
//! every file anew that is there ([`Files::renew`]), between what blocks ask for: behind that nothing here needs a key but the newest.

use std::{
    borrow::Cow,
    collections::{BTreeMap, VecDeque},
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

use apus_kernel::{DataFile, Directory, limits::FILE_BYTES_MAX};
use apus_redo::{Closed, OVERHEAD_BYTES, Vault, key_name};
use apus_signal::BlockRef;

use crate::shared::{FileDone, Shared, lock};

/// Writes that may wait.
const WRITES_MAX: usize = 64;
const LOCK_FILE: &str = "lock";
/// A text that is another one each time the machine is started.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const NEW: &str = ".new";
/// A process that was killed has its files until the last of its threads is gone, which takes long if it had much memory.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
const LOCK_RETRY: Duration = Duration::from_millis(10);

/// Makes a directory, and what is missing above it, whose names outlive a loss of power: who syncs a file in it makes only that one's name durable.
///
/// # Errors
/// The operating system's.
pub fn make_dir(path: &Path) -> io::Result<()> {
    let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
    let missing = path.ancestors().take_while(is_missing).count();
    fs::create_dir_all(path)?;
    // One that is there may have been made just before the power went.
    for above in path.ancestors().skip(1).take(missing.max(1)) {
        let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        match File::open(above).and_then(|dir| dir.sync_all()) {
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied && missing == 0 => {} // who made it can see to that
            done => done?,
        }
    }
    Ok(())
}

/// A directory that this process alone uses, until it ends.
pub struct DataDir {
    path: PathBuf,
    vault: Vault,
    _lock: File,
}

impl DataDir {
    /// Makes the directory, takes it, and reads what its files hold but for data files, which blocks read in pieces.
    ///
    /// # Errors
    /// It cannot be made or read, another process has it, or what is in it needs a key that is not in `vault`.
    pub fn open(path: &Path, vault: Vault) -> io::Result<(DataDir, BTreeMap<String, Vec<u8>>)> {
        let named = |e: io::Error| io::Error::new(e.kind(), format!("data directory {}: {e}", path.display()));
        make_dir(path).map_err(named)?;
        let lock = File::options().create(true).append(true).open(path.join(LOCK_FILE)).map_err(named)?;
        let asked = Instant::now();
        let mut taken = lock.try_lock();
        while taken.is_err() && asked.elapsed() < LOCK_PATIENCE {
            std::thread::sleep(LOCK_RETRY);
            taken = lock.try_lock();
        }
        if let Err(e) = taken {
            let text =
                format!("data directory {} is used by another process ({e}); end that one first", path.display());
            return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
        }
        let dir = DataDir { path: path.to_owned(), vault, _lock: lock };
        let files = dir.read().map_err(named)?;
        let opened = dir.vault.open_all(files).map_err(|(name, why)| io::Error::other(refusal(path, &name, &why)))?;
        Ok((dir, opened))
    }

    /// What blocks have written as a whole, as it is on the disk.
    fn read(&self) -> io::Result<BTreeMap<String, Vec<u8>>> {
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_ours = name == LOCK_FILE || name.ends_with(NEW) || DataFile::parse(&name).is_some();
            if is_ours || !entry.file_type()?.is_file() {
                continue;
            }
            let mut bytes = Vec::new();
            let limit = (FILE_BYTES_MAX + OVERHEAD_BYTES) as u64 + 1; // one that is too long is no file of ours: whoever reads it says so
            File::open(entry.path()).and_then(|f| f.take(limit).read_to_end(&mut bytes))?;
            files.insert(name, bytes);
        }
        Ok(files)
    }

    /// Every file as it is to be from now on. How many there are.
    fn renew(&self) -> io::Result<usize> {
        let files = self.read()?;
        for (name, content) in &files {
            match self.vault.renew_file(name, content) {
                Ok(bytes) => self.replace(name, &bytes, true)?,
                Err(Closed::Damaged(_)) => {} // whoever reads it says so
                Err(why) => return Err(io::Error::other(format!("{name} {why}"))),
            }
        }
        Ok(files.len())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
    fn carry_out(&self, write: &mut Write) -> io::Result<()> {
        let bytes = self.vault.seal_file(&write.file, std::mem::take(&mut write.bytes));
        self.replace(&write.file, &bytes, write.synced)
    }
    /// Replaces a file as a whole; with nothing: removes it.
    fn replace(&self, name: &str, bytes: &[u8], synced: bool) -> io::Result<()> {
        let (place, new) = (self.path.join(name), self.path.join(format!("{name}{NEW}")));
        if bytes.is_empty() {
            fs::remove_file(&place).or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) })?;
        } else {
            let mut file = File::create(&new)?;
            file.write_all(bytes)?;
            if synced {
                file.sync_all()?;
            }
            fs::rename(&new, &place)?;
        }
        if synced {
            File::open(&self.path)?.sync_all()?;
        }
        Ok(())
    }
}

/// Before there are blocks.
impl Directory for DataDir {
    fn names(&mut self) -> Result<Vec<String>, String> {
        let named = |e: io::Error| format!("data directory {}: {e}", self.path.display());
        let entries = fs::read_dir(&self.path).map_err(named)?;
        entries.map(|entry| Ok(entry.map_err(named)?.file_name().to_string_lossy().into_owned())).collect()
    }
    fn read(&mut self, file: &str, at: u64, count: u32) -> Result<Vec<u8>, String> {
        let read = || {
            let mut bytes = Vec::new();
            let mut from = match File::open(self.path.join(file)) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(bytes),
                from => from?,
            };
            from.seek(SeekFrom::Start(at))?;
            from.take(count.into()).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        read().map_err(|e: io::Error| format!("cannot read {file}: {e}"))
    }
    fn write(&mut self, file: &str, at: u64, bytes: &[u8]) -> Result<(), String> {
        let write = || {
            let mut to = File::options().create(true).truncate(false).write(true).open(self.path.join(file))?;
            to.seek(SeekFrom::Start(at))?;
            to.write_all(bytes)
        };
        write().map_err(|e: io::Error| format!("cannot write {file}: {e}"))
    }
    fn allocate(&mut self, file: &str, bytes: u64) -> Result<(), String> {
        let allocate = || {
            let file = File::options().create(true).truncate(false).write(true).open(self.path.join(file))?;
            Ok(rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes)?)
        };
        allocate().map_err(|e: io::Error| format!("cannot make {file}: {e}"))
    }
    fn sync(&mut self, file: &str) -> Result<(), String> {
        let sync = || File::open(self.path.join(file))?.sync_all().and_then(|()| File::open(&self.path)?.sync_all());
        sync().map_err(|e: io::Error| format!("cannot sync {file}: {e}"))
    }
    fn put(&mut self, file: &str, content: &[u8]) -> Result<(), String> {
        self.replace(file, content, true).map_err(|e| format!("cannot write {file}: {e}"))
    }
    fn remove(&mut self, file: &str) -> Result<(), String> {
        self.replace(file, &[], false).map_err(|e| format!("cannot remove {file}: {e}"))
    }
}

/// Why a node does not start from this directory, and what to do.
fn refusal(path: &Path, name: &str, why: &Closed) -> String {
    let (path, start) = (path.display(), format!("the file `{name}` in {} {why}", path.display()));
    match why {
        Closed::NoKey(master) => format!(
            "{start}, which was not given: start the node with the --disk-key file (or --disk-key-command) that has key {}. Nothing in {path} was changed. If the key is lost, so \
             is what this directory holds: with an empty one the node is filled from its replica",
            key_name(*master)
        ),
        _ => format!("{start}: start the node with that release. Nothing in {path} was changed"),
    }
}

/// Names the time since this machine was started: what was written earlier may be lost where it was not synced.
///
/// # Errors
/// The system does not tell it.
pub fn boot_id() -> io::Result<String> {
    let named = |e: io::Error| io::Error::new(e.kind(), format!("{BOOT_ID}: {e}"));
    fs::read_to_string(BOOT_ID).map_err(named).map(|text| text.trim().to_owned())
}

/// What a block asked for.
pub struct Write {
    pub file: Cow<'static, str>,
    pub bytes: Vec<u8>,
    pub synced: bool,
    pub token: u64,
    pub asker: BlockRef,
    /// Of the block.
    pub worker: u8,
}

pub struct Files {
    dir: DataDir,
    waiting: Mutex<VecDeque<Job>>,
    changed: Condvar,
}

enum Job {
    Write(Write),
    /// All files are written anew; called with what came of it.
    Renew(Box<dyn FnOnce(io::Result<usize>) + Send>),
}

impl Files {
    pub fn new(dir: DataDir) -> Files {
        Files { dir, waiting: Mutex::new(VecDeque::new()), changed: Condvar::new() }
    }
    pub fn wake(&self) {
        self.changed.notify_all();
    }

    /// # Errors
    /// Why it will not be written.
    pub fn put(shared: &Shared, write: Write) -> Result<(), &'static str> {
        let files = shared.files.get().ok_or("this process has no data directory")?;
        let mut waiting = lock(&files.waiting);
        if waiting.len() >= WRITES_MAX {
            return Err("too many writes wait for the disk");
        }
        waiting.push_back(Job::Write(write));
        files.changed.notify_all();
        Ok(())
    }

    /// Has all files written anew, under the newest key or in the clear, as it is to be; `then` is called when that is done or has failed.
    pub fn renew(&self, then: impl FnOnce(io::Result<usize>) + Send + 'static) {
        lock(&self.waiting).push_back(Job::Renew(Box::new(then)));
        self.changed.notify_all();
    }

    /// The thread: writes until the node stops.
    pub fn run(shared: &Arc<Shared>) {
        let Some(files) = shared.files.get() else { return };
        loop {
            let mut waiting = lock(&files.waiting);
            let job = loop {
                if let Some(job) = waiting.pop_front() {
                    break job;
                }
                if shared.is_stopping() {
                    return;
                }
                let (guard, _) = files
                    .changed
                    .wait_timeout(waiting, std::time::Duration::from_millis(500))
                    .unwrap_or_else(PoisonError::into_inner);
                waiting = guard;
            };
            drop(waiting);
            let mut write = match job {
                Job::Write(write) => write,
                Job::Renew(then) => {
                    then(files.dir.renew());
                    continue;
                }
            };
            let outcome = files.dir.carry_out(&mut write).map_err(|e| format!("cannot write {}: {e}", write.file));
            let done = FileDone { asker: write.asker, token: write.token, outcome };
            shared.doors[usize::from(write.worker)].push_file(done);
        }
    }
}

#[cfg(test)]
mod tests {
    use apus_signal::BlockId;
    use apus_types::NodeId;

    use super::*;

    fn write(bytes: &[u8], synced: bool) -> Write {
        let asker = BlockRef::new(NodeId(NodeId::MGMT_BASE + 1), BlockId::Mgmt, 0);
        Write { file: "a-file".into(), bytes: bytes.to_vec(), synced, token: 1, asker, worker: 0 }
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_and_read_again() {
        let path = std::env::temp_dir().join(format!("apus-files-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        let (dir, found) = DataDir::open(&path, Vault::default()).expect("a new directory");
        assert!(found.is_empty());
        assert!(
            DataDir::open(&path, Vault::default()).is_err_and(|e| e.to_string().contains("another process")),
            "it is taken"
        );
        for (bytes, synced) in [(&b"first"[..], true), (b"second, longer", false)] {
            dir.carry_out(&mut write(bytes, synced)).expect("there is room");
        }
        fs::write(path.join("a-file.new"), b"half of a th").expect("there is room"); // as a crash leaves it
        fs::write(path.join("redo-0-1.log"), b"of a block").expect("there is room");
        drop(dir);
        let (again, found) = DataDir::open(&path, Vault::default()).expect("it is free again");
        assert_eq!(found, BTreeMap::from([("a-file".to_owned(), b"second, longer".to_vec())]));
        (0..2).for_each(|_| again.carry_out(&mut write(b"", false)).expect("it may be gone already"));
        drop(again);
        assert!(DataDir::open(&path, Vault::default()).expect("it is free again").1.is_empty());
        fs::remove_dir_all(&path).expect("it is ours");
    }
}
