//! Writes, reads and syncs of data files by io_uring: one thread and one ring of a node, for any number of files and workers.
//!
//! What waits for a file goes into the ring as a *chain* of linked requests, which the kernel does one after the other: writes, and at the end a
//! sync or a read. So a write and the sync behind it cost one system call together, and those of other files are done beside them. A chain that
//! breaks (an error, a short write) is finished by this thread, request by request, in its order.
//!
//! **Proof of the buffers.** A request's buffer and file belong to the chain that is in `chains` until the last completion of the chain was taken; the
//! thread leaves [`DiskRing::run`] only when no chain is left, and a panic in it ends the process.
//!
//! Limits: [`IN_FLIGHT_MAX`] requests in the ring, [`CHAIN_MAX`] of one file.

#![allow(unsafe_code)]

use std::{
    io,
    os::fd::{AsRawFd, RawFd},
};

use apus_kernel::{DataFile, DiskDone, DiskOp};
use io_uring::{IoUring, Probe, opcode, squeue, types::Fd};

use crate::disk::{Disk, Handle, Job, failure, read};

const IN_FLIGHT_MAX: usize = 256;
const CHAIN_MAX: usize = 16;
/// Of the request that waits for [`crate::poll::Waker`].
const WAKE: u64 = u64::MAX;

/// Requests of one file that are in the ring.
struct Chain {
    file: DataFile,
    handle: Option<Handle>,
    links: Vec<Link>,
    /// So many are answered.
    answered: usize,
}

struct Link {
    job: Option<Job>,
    /// What is read.
    into: Vec<u8>,
    /// As the kernel said.
    result: Option<i32>,
}

pub struct DiskRing {
    ring: IoUring,
    /// By their place in the requests' names.
    chains: Vec<Option<Chain>>,
    in_flight: usize,
    jobs: Vec<Job>,
    is_waiting_for_wake: bool,
    done: u64,
}

impl DiskRing {
    /// # Errors
    /// The kernel has no ring for us, or one that cannot do all of it.
    pub fn new() -> io::Result<DiskRing> {
        let ring = IoUring::new(IN_FLIGHT_MAX as u32 * 2)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [opcode::Write::CODE, opcode::Read::CODE, opcode::Fsync::CODE, opcode::PollAdd::CODE];
        if !needed.iter().all(|code| probe.is_supported(*code)) {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "io_uring of this kernel cannot write, read and sync",
            ));
        }
        Ok(DiskRing { ring, chains: Vec::new(), in_flight: 0, jobs: Vec::new(), is_waiting_for_wake: false, done: 0 })
    }

    /// Requests that went by it.
    pub fn done(&self) -> u64 {
        self.done
    }
    /// The thread: until everything is answered and the disk is stopped.
    ///
    /// # Errors
    /// The kernel does not take requests any more.
    pub fn run(&mut self, disk: &Disk, answer: impl Fn(u8, DiskDone)) -> io::Result<()> {
        let done = self.run_until_done(disk, answer);
        if done.is_err() {
            // The kernel may still read from their buffers. The node ends.
            std::mem::take(&mut self.chains).leak();
        }
        done
    }
    fn run_until_done(&mut self, disk: &Disk, answer: impl Fn(u8, DiskDone)) -> io::Result<()> {
        let Some(waker) = disk.waker() else { return Ok(()) };
        loop {
            self.take_chains(disk)?;
            if self.in_flight == 0 && disk.is_done() {
                return Ok(());
            }
            if !self.is_waiting_for_wake {
                self.is_waiting_for_wake = true;
                let wait = opcode::PollAdd::new(Fd(waker.fd().as_raw_fd()), libc::POLLIN as u32).build();
                self.push(wait.user_data(WAKE))?;
            }
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
                Err(e) => return Err(e),
            }
            loop {
                let next = self.ring.completion().next();
                let Some(done) = next else { break };
                if done.user_data() == WAKE {
                    self.is_waiting_for_wake = false;
                    waker.drain();
                } else {
                    self.completed(done.user_data(), done.result(), disk, &answer);
                }
            }
        }
    }

    fn push(&mut self, request: squeue::Entry) -> io::Result<()> {
        // SAFETY: what the request points to is in `chains` until its completion was taken; see the module.
        let pushed = unsafe { self.ring.submission().push(&request) };
        pushed.map_err(io::Error::other)
    }

    fn take_chains(&mut self, disk: &Disk) -> io::Result<()> {
        while self.in_flight + CHAIN_MAX <= IN_FLIGHT_MAX {
            let Some((file, handle)) = disk.next_chain(&mut self.jobs, CHAIN_MAX) else { break };
            // A chain ends where what is submitted at once ends.
            let queue = self.ring.submission();
            let is_full = queue.capacity() - queue.len() <= CHAIN_MAX;
            drop(queue);
            if is_full {
                self.ring.submit()?;
            }
            let fd = handle.file().as_raw_fd();
            let place = self.chains.iter().position(Option::is_none).unwrap_or(self.chains.len());
            if place == self.chains.len() {
                self.chains.push(None);
            }
            let jobs = self.jobs.drain(..);
            let links = jobs.map(|job| Link { job: Some(job), into: Vec::new(), result: None }).collect();
            let mut chain = Chain { file, handle: Some(handle), links, answered: 0 };
            let last = chain.links.len() - 1;
            self.in_flight += chain.links.len();
            for at in 0..=last {
                let request = chain.links[at].request(fd).user_data((place << 8 | at) as u64);
                let flags = if at < last { squeue::Flags::IO_LINK } else { squeue::Flags::empty() };
                self.push(request.flags(flags))?;
            }
            self.chains[place] = Some(chain);
        }
        Ok(())
    }

    fn completed(&mut self, name: u64, result: i32, disk: &Disk, answer: &impl Fn(u8, DiskDone)) {
        let (place, at) = ((name >> 8) as usize, (name & 0xff) as usize);
        let Some(chain) = self.chains.get_mut(place).and_then(Option::as_mut) else { return };
        self.in_flight -= 1;
        self.done += 1;
        chain.links[at].result = Some(result);
        // What was given up with a broken chain may be told of before what broke it.
        let is_whole = chain.links.iter().all(|link| link.result.is_some());
        while let Some(link) = chain.links.get_mut(chain.answered)
            && let Some(result) = link.result
        {
            // What is to be done again is done when the kernel does nothing more with the file.
            let Some(job) = link.job.take_if(|job| is_whole || !is_undone(&job.op, result)) else { break };
            let outcome = link.outcome(&job, result, &mut chain.handle, disk);
            let Job { op, token, asker, worker, .. } = job;
            answer(worker, DiskDone { asker, token, op, outcome });
            chain.answered += 1;
        }
        if is_whole && let Some(Chain { file, handle, answered, .. }) = self.chains[place].take() {
            disk.give_back(file, handle, answered);
        }
    }
}

impl Link {
    /// The buffers that it points to stay where they are while the chain moves.
    fn request(&mut self, fd: RawFd) -> squeue::Entry {
        match self.job.as_ref().map(|job| &job.op) {
            Some(DiskOp::Write { at, bytes }) => {
                opcode::Write::new(Fd(fd), bytes.as_ptr(), bytes.len() as u32).offset(*at).build()
            }
            Some(DiskOp::Read { at, count }) => {
                self.into.resize(*count as usize, 0);
                opcode::Read::new(Fd(fd), self.into.as_mut_ptr(), *count).offset(*at).build()
            }
            // The disk gives us nothing else.
            _ => opcode::Fsync::new(Fd(fd)).flags(io_uring::types::FsyncFlags::DATASYNC).build(),
        }
    }
    fn outcome(
        &mut self,
        job: &Job,
        result: i32,
        handle: &mut Option<Handle>,
        disk: &Disk,
    ) -> Result<Vec<u8>, apus_kernel::DiskFailure> {
        let outcome = match (&job.op, handle.as_ref()) {
            // Most often the file's end.
            (DiskOp::Read { at, count }, Some(handle)) if result >= 0 => {
                self.into.truncate(result as usize);
                let rest = read(handle.file(), at + result as u64, count - result as u32);
                rest.map(|rest| {
                    self.into.extend_from_slice(&rest);
                    std::mem::take(&mut self.into)
                })
            }
            _ if is_undone(&job.op, result) => disk.perform(job.file, &job.op, handle),
            _ if result < 0 => Err(io::Error::from_raw_os_error(-result)),
            _ => Ok(Vec::new()),
        };
        outcome.map_err(|e| failure(job.file, &job.op, &e))
    }
}

/// It was given up, or done in part.
fn is_undone(op: &DiskOp, result: i32) -> bool {
    let whole = match op {
        DiskOp::Write { bytes, .. } => bytes.len() as i32,
        DiskOp::Read { count, .. } => *count as i32,
        _ => 0,
    };
    matches!(-result, libc::ECANCELED | libc::EINTR | libc::EAGAIN) || (0..whole).contains(&result)
}
