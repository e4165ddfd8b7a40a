//! Data files: what blocks ask by [`apus_kernel::Context::disk`], done by a few threads of a node.
//!
//! Requests of a file wait in its queue, and one of them is under way at a time, so they are done and answered in the order of asking; those of other
//! files are done beside it. A thread answers (into the asking worker's door) before the file's next request begins. Buffers go back with the answer.
//!
//! A sync is an fdatasync of the file and, once after it was opened, an fsync of the directory, which makes its name durable. Files stay open,
//! at most [`OPEN_MAX`] that nobody waits for; one with writes that were not synced is not closed, because the system tells of a write that
//! it could not do only to who had the file open.
//!
//! Limits: those of the kernel per worker. A thread is never in the way of a worker: the lock is held for a look into the queues.

use std::{
    collections::{BTreeMap, VecDeque},
    fs::{self, File},
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::{Condvar, Mutex, PoisonError},
};

use apus_kernel::{DataFile, DiskDone, DiskFailure, DiskOp};
use apus_signal::BlockRef;

use crate::shared::lock;

/// Files that are kept open while nothing is asked of them.
const OPEN_MAX: usize = 256;
/// Fewest and most threads of a node; between them, one per data worker.
const THREADS: (u8, u8) = (2, 8);

/// What a block asked for.
pub struct Job {
    pub file: DataFile,
    pub op: DiskOp,
    pub token: u64,
    pub asker: BlockRef,
    /// Of the block.
    pub worker: u8,
}

/// A file that is open.
struct Handle {
    file: File,
    /// The directory was synced since it was opened.
    is_named: bool,
    /// Written since the last sync.
    is_dirty: bool,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// A thread has the first job, and the handle.
    is_busy: bool,
    handle: Option<Handle>,
}

#[derive(Default)]
struct State {
    files: BTreeMap<DataFile, Queue>,
    /// Files with jobs of which no thread has one, each once.
    ready: VecDeque<DataFile>,
    is_stopping: bool,
}

pub struct Disk {
    dir: PathBuf,
    state: Mutex<State>,
    changed: Condvar,
}

impl Disk {
    pub fn new(dir: &Path) -> Disk {
        Disk { dir: dir.to_owned(), state: Mutex::default(), changed: Condvar::new() }
    }
    /// Threads that are to [`Disk::run`] for so many data workers.
    pub fn threads(workers: u8) -> u8 {
        workers.clamp(THREADS.0, THREADS.1)
    }
    pub fn put(&self, job: Job) {
        let state = &mut *lock(&self.state);
        let file = job.file;
        let queue = state.files.entry(file).or_default();
        queue.jobs.push_back(job);
        if !queue.is_busy && queue.jobs.len() == 1 {
            state.ready.push_back(file);
            self.changed.notify_one();
        }
    }
    /// The threads end when nothing is asked any more.
    pub fn stop(&self) {
        lock(&self.state).is_stopping = true;
        self.changed.notify_all();
    }

    /// One of the threads; `answer` gets each answer and the worker for which it is.
    pub fn run(&self, answer: impl Fn(u8, DiskDone)) {
        while let Some((job, mut handle)) = self.next() {
            let Job { file, op, token, asker, worker } = job;
            let outcome = self.perform(file, &op, &mut handle).map_err(|e| failure(file, &op, &e));
            answer(worker, DiskDone { asker, token, op, outcome });
            self.give_back(file, handle);
        }
    }

    fn next(&self) -> Option<(Job, Option<Handle>)> {
        let mut state = lock(&self.state);
        loop {
            if let Some(file) = state.ready.pop_front() {
                let queue = state.files.get_mut(&file)?;
                let job = queue.jobs.pop_front()?;
                queue.is_busy = true;
                return Some((job, queue.handle.take()));
            }
            if state.is_stopping {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
    fn give_back(&self, file: DataFile, handle: Option<Handle>) {
        let state = &mut *lock(&self.state);
        let Some(queue) = state.files.get_mut(&file) else { return };
        (queue.is_busy, queue.handle) = (false, handle);
        if !queue.jobs.is_empty() {
            state.ready.push_back(file);
            self.changed.notify_one();
        } else if queue.handle.is_none() {
            state.files.remove(&file);
        } else if state.files.len() > OPEN_MAX {
            let is_idle = |q: &Queue| !q.is_busy && q.jobs.is_empty() && q.handle.as_ref().is_none_or(|h| !h.is_dirty);
            if let Some(idle) = state.files.iter().find(|(_, q)| is_idle(q)).map(|(file, _)| *file) {
                state.files.remove(&idle);
            }
        }
    }

    fn perform(&self, file: DataFile, op: &DiskOp, handle: &mut Option<Handle>) -> io::Result<Vec<u8>> {
        let path = || self.dir.join(file.to_string());
        if let DiskOp::Remove = op {
            *handle = None;
            return match fs::remove_file(path()) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
                _ => Ok(Vec::new()),
            };
        }
        if handle.is_none() {
            let is_written = matches!(op, DiskOp::Write { .. });
            match File::options().read(true).write(true).create(is_written).truncate(false).open(path()) {
                Ok(file) => *handle = Some(Handle { file, is_named: false, is_dirty: false }),
                Err(e) if e.kind() == io::ErrorKind::NotFound && !is_written => return Ok(Vec::new()),
                Err(e) => return Err(e),
            }
        }
        let Some(open) = handle else { return Ok(Vec::new()) };
        match op {
            DiskOp::Write { at, bytes } => {
                open.is_dirty = true;
                open.file.write_all_at(bytes, *at).map(|()| Vec::new())
            }
            DiskOp::Read { at, count } => read(&open.file, *at, *count),
            DiskOp::Sync | DiskOp::Remove => {
                open.is_dirty = false;
                open.file.sync_data()?;
                if !open.is_named {
                    File::open(&self.dir)?.sync_all()?;
                    open.is_named = true;
                }
                Ok(Vec::new())
            }
        }
    }
}

fn read(file: &File, at: u64, count: u32) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; count as usize];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], at + filled as u64) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

fn failure(file: DataFile, op: &DiskOp, e: &io::Error) -> DiskFailure {
    let what = match op {
        DiskOp::Write { .. } => "write",
        DiskOp::Read { .. } => "read",
        DiskOp::Sync => "sync",
        DiskOp::Remove => "remove",
    };
    let full = matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    DiskFailure { full, reason: format!("cannot {what} {file}: {e}") }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use apus_signal::BlockId;
    use apus_types::NodeId;

    use super::*;

    fn temporary(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("apus-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("there is room");
        path
    }

    /// Gives all to threads; the answers in their order, by file of the token.
    fn all_of(disk: &Disk, jobs: Vec<(DataFile, DiskOp)>) -> Vec<DiskDone> {
        let answers = Mutex::new(Vec::new());
        let asker = BlockRef::new(NodeId(1), BlockId::Ldm, 0);
        thread::scope(|scope| {
            (0..4).for_each(|_| {
                scope.spawn(|| disk.run(|_, done| lock(&answers).push(done)));
            });
            for (token, (file, op)) in (0..).zip(jobs) {
                disk.put(Job { file, op, token, asker, worker: 0 });
            }
            disk.stop();
        });
        lock(&disk.state).is_stopping = false;
        answers.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(at: u64, bytes: &[u8]) -> DiskOp {
        DiskOp::Write { at, bytes: bytes.to_vec() }
    }

    #[test]
    fn requests_of_a_file_are_done_and_answered_in_order() {
        let path = temporary("disk-order");
        let disk = Disk::new(&path);
        let (files, rounds) = (5, 40);
        let file = |i: usize| DataFile::redo(0, i as u32);
        let mut jobs = Vec::new();
        for round in 0..rounds {
            for i in 0..files {
                jobs.push((file(i), write(0, &[round as u8; 5000])));
                jobs.push((file(i), DiskOp::Read { at: 4990, count: 100 }));
                jobs.push((file(i), DiskOp::Sync));
            }
        }
        let answers = all_of(&disk, jobs);
        assert_eq!(answers.len(), files * rounds * 3);
        for i in 0..files {
            let of_file: Vec<&DiskDone> = answers.iter().filter(|a| a.token as usize / 3 % files == i).collect();
            assert!(of_file.is_sorted_by_key(|a| a.token), "file {i}");
            let reads = of_file.iter().filter(|a| matches!(a.op, DiskOp::Read { .. }));
            let read: Vec<Vec<u8>> = reads.map(|a| a.outcome.clone().expect("it can be read")).collect();
            assert_eq!(read, (0..rounds).map(|round| vec![round as u8; 10]).collect::<Vec<_>>(), "file {i}");
        }
        assert!(answers.iter().all(|a| !matches!(&a.op, DiskOp::Write { bytes, .. } if bytes.len() != 5000)));
        fs::remove_dir_all(&path).expect("it is ours");
    }

    #[test]
    fn a_file_that_is_not_there_and_one_that_cannot_be() {
        let path = temporary("disk-missing");
        let disk = Disk::new(&path);
        let file = DataFile::redo(3, 1);
        let nothing = [DiskOp::Read { at: 0, count: 9 }, DiskOp::Sync, DiskOp::Remove];
        let answers = all_of(&disk, nothing.into_iter().map(|op| (file, op)).collect());
        assert!(answers.iter().all(|a| a.outcome == Ok(Vec::new())), "{answers:?}");
        assert!(!path.join(file.to_string()).exists(), "only a write makes it");
        let steps =
            [write(3, b"ab"), DiskOp::Read { at: 0, count: 9 }, DiskOp::Remove, DiskOp::Read { at: 0, count: 9 }];
        let answers = all_of(&disk, steps.into_iter().map(|op| (file, op)).collect());
        assert_eq!(answers[1].outcome, Ok(b"\0\0\0ab".to_vec()));
        assert_eq!(answers[3].outcome, Ok(Vec::new()));
        fs::create_dir(path.join(file.to_string())).expect("there is room");
        let answers = all_of(&disk, vec![(file, write(0, b"a"))]);
        let failure = answers[0].outcome.clone().expect_err("a directory is no file");
        assert!(!failure.full && failure.reason.starts_with("cannot write redo-3-1.log: "), "{failure:?}");
        fs::remove_dir_all(&path).expect("it is ours");
    }

    #[test]
    fn files_that_nobody_asks_for_are_closed() {
        let path = temporary("disk-open");
        let disk = Disk::new(&path);
        let each = |number| [(DataFile::redo(0, number), write(0, b"a")), (DataFile::redo(0, number), DiskOp::Sync)];
        let answers = all_of(&disk, (0..OPEN_MAX as u32 + 20).flat_map(each).collect());
        assert!(answers.iter().all(|a| a.outcome.is_ok()));
        assert!((OPEN_MAX..OPEN_MAX + 4).contains(&lock(&disk.state).files.len()));
        fs::remove_dir_all(&path).expect("it is ours");
    }

    #[test]
    fn a_full_disk_is_told_as_one() {
        let e = io::Error::from(io::ErrorKind::StorageFull);
        assert!(failure(DataFile::redo(0, 1), &DiskOp::Sync, &e).full);
    }
}
