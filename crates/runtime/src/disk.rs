//! Data files: what blocks ask by [`apus_kernel::Context::disk`], done by a ring of the kernel's and a few threads of a node.
//!
//! Requests of a file wait in its queue, and one thread has the file at a time, so they are done and answered in the order of asking; those of other
//! files are done beside it. They are answered (into the asking worker's door) before the file's next requests begin. Buffers go back with the answer.
//!
//! Writes, reads and syncs of open files go by the ring (`disk_ring`), many files at a time. What may block in other ways (to open, allocate, remove a
//! file, to sync its name) is a thread's, and so is everything where the kernel gives no ring.
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

use crate::{disk_ring::DiskRing, poll::Waker, shared::lock};

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
pub struct Handle {
    file: File,
    /// The directory was synced since it was opened.
    is_named: bool,
    /// Written since the last sync.
    is_dirty: bool,
}

impl Handle {
    pub fn file(&self) -> &File {
        &self.file
    }
    /// What is going to be done with it.
    fn note(&mut self, op: &DiskOp) {
        match op {
            DiskOp::Write { .. } | DiskOp::Allocate { .. } => self.is_dirty = true,
            DiskOp::Sync => self.is_dirty = false,
            _ => {}
        }
    }
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// A thread has the first job, and the handle.
    is_busy: bool,
    handle: Option<Handle>,
}

impl Queue {
    /// Its first job is one for the ring.
    fn is_for_ring(&self) -> bool {
        let Some(handle) = &self.handle else { return false };
        self.jobs.front().is_some_and(|job| match job.op {
            DiskOp::Write { .. } | DiskOp::Read { .. } => true,
            DiskOp::Sync => handle.is_named,
            _ => false,
        })
    }
}

#[derive(Default)]
struct State {
    files: BTreeMap<DataFile, Queue>,
    /// Files with jobs of which nobody has one, each once: for a thread, for the ring.
    ready: VecDeque<DataFile>,
    for_ring: VecDeque<DataFile>,
    unanswered: usize,
    is_stopping: bool,
    /// The ring's thread waits, or is about to.
    ring_waits: bool,
}

pub struct Disk {
    dir: PathBuf,
    state: Mutex<State>,
    changed: Condvar,
    /// Of the ring's thread, if there is one.
    waker: Option<Waker>,
}

impl Disk {
    /// Done by threads alone.
    pub fn new(dir: &Path) -> Disk {
        Disk { dir: dir.to_owned(), state: Mutex::default(), changed: Condvar::new(), waker: None }
    }
    /// With a ring, for a thread that is to [`DiskRing::run`] it; without one where the kernel refuses it, and why.
    pub fn with_ring(dir: &Path) -> (Disk, io::Result<DiskRing>) {
        let mut disk = Disk::new(dir);
        let ring = DiskRing::new().and_then(|ring| Waker::new().map(|waker| (ring, waker)));
        let ring = ring.map(|(ring, waker)| {
            disk.waker = Some(waker);
            ring
        });
        (disk, ring)
    }
    /// Threads that are to [`Disk::run`] for so many data workers.
    pub fn threads(&self, workers: u8) -> u8 {
        if self.waker.is_some() { THREADS.0 } else { workers.clamp(THREADS.0, THREADS.1) }
    }
    pub fn put(&self, job: Job) {
        let state = &mut *lock(&self.state);
        let file = job.file;
        let queue = state.files.entry(file).or_default();
        queue.jobs.push_back(job);
        state.unanswered += 1;
        if !queue.is_busy && queue.jobs.len() == 1 {
            self.make_ready(file, state);
        }
    }
    /// The threads end when everything is answered.
    pub fn stop(&self) {
        let state = &mut *lock(&self.state);
        state.is_stopping = true;
        self.wake_all(state);
    }
    fn wake_all(&self, state: &mut State) {
        self.changed.notify_all();
        self.wake_ring(state);
    }
    fn wake_ring(&self, state: &mut State) {
        if std::mem::take(&mut state.ring_waits) {
            self.waker.as_ref().inspect(|waker| waker.wake());
        }
    }
    fn make_ready(&self, file: DataFile, state: &mut State) {
        if self.waker.is_some() && state.files.get(&file).is_some_and(Queue::is_for_ring) {
            state.for_ring.push_back(file);
            self.wake_ring(state);
        } else {
            state.ready.push_back(file);
            self.changed.notify_one();
        }
    }

    /// One of the threads; `answer` gets each answer and the worker for which it is.
    pub fn run(&self, answer: impl Fn(u8, DiskDone)) {
        while let Some((job, mut handle)) = self.next() {
            let Job { file, op, token, asker, worker } = job;
            let outcome = self.perform(file, &op, &mut handle).map_err(|e| failure(file, &op, &e));
            answer(worker, DiskDone { asker, token, op, outcome });
            self.give_back(file, handle, 1);
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
            if state.is_stopping && state.unanswered == 0 {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
    /// The next jobs for the ring of one file, at most so many, and the file; the ring gives it back. `None`: there is nothing for it now, and it is
    /// woken when there is.
    pub fn next_chain(&self, jobs: &mut Vec<Job>, most: usize) -> Option<(DataFile, Handle)> {
        let state = &mut *lock(&self.state);
        let Some(file) = state.for_ring.pop_front() else {
            state.ring_waits = true;
            return None;
        };
        let queue = state.files.get_mut(&file)?;
        while jobs.len() < most && queue.is_for_ring() {
            jobs.extend(queue.jobs.pop_front());
            // What is behind a read that is short would be given up with it.
            if jobs.last().is_some_and(|job| !matches!(job.op, DiskOp::Write { .. })) {
                break;
            }
        }
        queue.is_busy = true;
        let mut handle = queue.handle.take()?;
        jobs.iter().for_each(|job| handle.note(&job.op));
        Some((file, handle))
    }
    pub fn is_done(&self) -> bool {
        let state = lock(&self.state);
        state.is_stopping && state.unanswered == 0
    }
    pub fn waker(&self) -> Option<&Waker> {
        self.waker.as_ref()
    }
    /// So many of the file's jobs are answered.
    pub fn give_back(&self, file: DataFile, handle: Option<Handle>, answered: usize) {
        let state = &mut *lock(&self.state);
        let Some(queue) = state.files.get_mut(&file) else { return };
        (queue.is_busy, queue.handle) = (false, handle);
        state.unanswered -= answered;
        if !queue.jobs.is_empty() {
            self.make_ready(file, state);
        } else if queue.handle.is_none() {
            state.files.remove(&file);
        } else if state.files.len() > OPEN_MAX {
            let is_idle = |q: &Queue| !q.is_busy && q.jobs.is_empty() && q.handle.as_ref().is_none_or(|h| !h.is_dirty);
            if let Some(idle) = state.files.iter().find(|(_, q)| is_idle(q)).map(|(file, _)| *file) {
                state.files.remove(&idle);
            }
        }
        if state.is_stopping && state.unanswered == 0 {
            self.wake_all(state);
        }
    }

    pub fn perform(&self, file: DataFile, op: &DiskOp, handle: &mut Option<Handle>) -> io::Result<Vec<u8>> {
        let path = || self.dir.join(file.to_string());
        if let DiskOp::Remove = op {
            *handle = None;
            return match fs::remove_file(path()) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
                _ => Ok(Vec::new()),
            };
        }
        if handle.is_none() {
            let is_written = matches!(op, DiskOp::Write { .. } | DiskOp::Allocate { .. });
            match File::options().read(true).write(true).create(is_written).truncate(false).open(path()) {
                Ok(file) => *handle = Some(Handle { file, is_named: false, is_dirty: false }),
                Err(e) if e.kind() == io::ErrorKind::NotFound && !is_written => return Ok(Vec::new()),
                Err(e) => return Err(e),
            }
        }
        let Some(open) = handle else { return Ok(Vec::new()) };
        open.note(op);
        match op {
            DiskOp::Write { at, bytes } => open.file.write_all_at(bytes, *at).map(|()| Vec::new()),
            DiskOp::Allocate { bytes } => {
                rustix::fs::fallocate(&open.file, rustix::fs::FallocateFlags::empty(), 0, *bytes)?;
                Ok(Vec::new())
            }
            DiskOp::Read { at, count } => read(&open.file, *at, *count),
            DiskOp::Uncache => {
                rustix::fs::fadvise(&open.file, 0, None, rustix::fs::Advice::DontNeed)?;
                Ok(Vec::new())
            }
            DiskOp::Sync | DiskOp::Remove => {
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

pub fn read(file: &File, at: u64, count: u32) -> io::Result<Vec<u8>> {
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

pub fn failure(file: DataFile, op: &DiskOp, e: &io::Error) -> DiskFailure {
    let what = match op {
        DiskOp::Write { .. } => "write",
        DiskOp::Allocate { .. } => "make room for",
        DiskOp::Read { .. } => "read",
        DiskOp::Sync => "sync",
        DiskOp::Remove => "remove",
        DiskOp::Uncache => "read anew",
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

    /// By threads alone and, where the kernel gives one, by a ring.
    fn each_executor(name: &str, test: impl Fn(&Path, &Disk, Option<DiskRing>)) {
        let path = temporary(name);
        test(&path, &Disk::new(&path), None);
        fs::remove_dir_all(&path).expect("it is ours");
        let path = temporary(name);
        let (disk, ring) = Disk::with_ring(&path);
        match ring {
            Ok(ring) => test(&path, &disk, Some(ring)),
            Err(e) => println!("no ring: {e}"),
        }
        fs::remove_dir_all(&path).expect("it is ours");
    }

    /// Gives all to threads and the ring; the answers in their order.
    fn all_of(disk: &Disk, ring: &mut Option<DiskRing>, jobs: Vec<(DataFile, DiskOp)>) -> Vec<DiskDone> {
        let answers = Mutex::new(Vec::new());
        let asker = BlockRef::new(NodeId(1), BlockId::Ldm, 0);
        for (token, (file, op)) in (0..).zip(jobs) {
            disk.put(Job { file, op, token, asker, worker: 0 });
        }
        thread::scope(|scope| {
            if let Some(ring) = ring {
                scope.spawn(|| ring.run(disk, |_, done| lock(&answers).push(done)).expect("the ring works"));
            }
            (0..4).for_each(|_| {
                scope.spawn(|| disk.run(|_, done| lock(&answers).push(done)));
            });
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
        each_executor("disk-order", |_, disk, mut ring| {
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
            let answers = all_of(disk, &mut ring, jobs);
            assert_eq!(answers.len(), files * rounds * 3);
            // All but the first of each file, and the first sync.
            assert!(ring.is_none_or(|ring| ring.done() as usize >= files * (rounds * 3 - 2)), "the ring is used");
            for i in 0..files {
                let of_file: Vec<&DiskDone> = answers.iter().filter(|a| a.token as usize / 3 % files == i).collect();
                assert!(of_file.is_sorted_by_key(|a| a.token), "file {i}");
                let reads = of_file.iter().filter(|a| matches!(a.op, DiskOp::Read { .. }));
                let read: Vec<Vec<u8>> = reads.map(|a| a.outcome.clone().expect("it can be read")).collect();
                assert_eq!(read, (0..rounds).map(|round| vec![round as u8; 10]).collect::<Vec<_>>(), "file {i}");
            }
            assert!(answers.iter().all(|a| !matches!(&a.op, DiskOp::Write { bytes, .. } if bytes.len() != 5000)));
        });
    }

    #[test]
    fn a_file_that_is_not_there_and_one_that_cannot_be() {
        each_executor("disk-missing", |path, disk, mut ring| {
            let file = DataFile::redo(3, 1);
            let nothing = [DiskOp::Read { at: 0, count: 9 }, DiskOp::Sync, DiskOp::Remove];
            let answers = all_of(disk, &mut ring, nothing.into_iter().map(|op| (file, op)).collect());
            assert!(answers.iter().all(|a| a.outcome == Ok(Vec::new())), "{answers:?}");
            assert!(!path.join(file.to_string()).exists(), "only a write makes it");
            let steps =
                [write(3, b"ab"), DiskOp::Read { at: 0, count: 9 }, DiskOp::Remove, DiskOp::Read { at: 0, count: 9 }];
            let answers = all_of(disk, &mut ring, steps.into_iter().map(|op| (file, op)).collect());
            assert_eq!(answers[1].outcome, Ok(b"\0\0\0ab".to_vec()));
            assert_eq!(answers[3].outcome, Ok(Vec::new()));
            fs::create_dir(path.join(file.to_string())).expect("there is room");
            let answers = all_of(disk, &mut ring, vec![(file, write(0, b"a"))]);
            let failure = answers[0].outcome.clone().expect_err("a directory is no file");
            assert!(!failure.full && failure.reason.starts_with("cannot write redo-3-1.log: "), "{failure:?}");
        });
    }

    #[test]
    fn what_is_behind_a_request_that_fails_is_done_all_the_same() {
        each_executor("disk-fails", |path, disk, mut ring| {
            let file = DataFile::redo(0, 1);
            all_of(disk, &mut ring, vec![(file, write(0, b"0")), (file, DiskOp::Sync)]);
            let beyond = 1 << 62; // of what any file can have
            let mut ops =
                vec![write(1, b"1"), write(beyond, b"2"), write(2, b"2"), write(beyond, b"3"), write(3, b"3")];
            ops.extend([DiskOp::Sync, DiskOp::Read { at: 0, count: 9 }]);
            let answers = all_of(disk, &mut ring, ops.into_iter().map(|op| (file, op)).collect());
            assert!(answers.is_sorted_by_key(|a| a.token));
            let are_done: Vec<bool> = answers.iter().map(|a| a.outcome.is_ok()).collect();
            assert_eq!(are_done, [true, false, true, false, true, true, true]);
            assert_eq!(answers[6].outcome, Ok(b"0123".to_vec()));

            let full = DataFile::redo(0, 2);
            std::os::unix::fs::symlink("/dev/full", path.join(full.to_string())).expect("there is room");
            let answers = all_of(disk, &mut ring, (0..20).map(|at| (full, write(at, b"a"))).collect());
            let are_full = answers.iter().filter(|a| a.outcome.as_ref().is_err_and(|failure| failure.full));
            assert_eq!(are_full.count(), 20);
        });
    }

    #[test]
    fn files_that_nobody_asks_for_are_closed() {
        each_executor("disk-open", |_, disk, mut ring| {
            let each =
                |number| [(DataFile::redo(0, number), write(0, b"a")), (DataFile::redo(0, number), DiskOp::Sync)];
            let answers = all_of(disk, &mut ring, (0..OPEN_MAX as u32 + 20).flat_map(each).collect());
            assert!(answers.iter().all(|a| a.outcome.is_ok()));
            assert!((OPEN_MAX..OPEN_MAX + 4).contains(&lock(&disk.state).files.len()));
        });
    }

    #[test]
    fn room_is_reserved_before_it_is_written() {
        each_executor("disk-room", |path, disk, mut ring| {
            let file = DataFile::redo(0, 1);
            let steps = [DiskOp::Allocate { bytes: 1 << 20 }, write(4096, b"ab"), DiskOp::Sync];
            let answers = all_of(disk, &mut ring, steps.into_iter().map(|op| (file, op)).collect());
            assert!(answers.iter().all(|a| a.outcome.is_ok()), "{answers:?}");
            let metadata = fs::metadata(path.join("redo-0-1.log")).expect("it is there");
            let blocks = std::os::unix::fs::MetadataExt::blocks(&metadata);
            assert!(blocks * 512 >= 1 << 20, "{blocks} blocks are reserved");
            let answers = all_of(disk, &mut ring, vec![(DataFile::redo(0, 2), DiskOp::Allocate { bytes: 1 << 60 })]);
            assert!(answers[0].outcome.is_err(), "no disk is so large");
        });
    }

    #[test]
    fn a_full_disk_is_told_as_one() {
        let e = io::Error::from(io::ErrorKind::StorageFull);
        assert!(failure(DataFile::redo(0, 1), &DiskOp::Sync, &e).full);
    }
}
