//! What a stuck worker is doing, written down by its own thread: nobody else may look at a worker while it runs.
//!
//! The control worker, about to end the process, sends the thread a signal ([`ask`]). The handler finds the thread's own worker, writes its
//! last code points, signals and a backtrace, and the control worker puts them into the crash report. The handler allocates; if the
//! thread was stopped inside the allocator it never answers, and the report goes without after [`PATIENCE`]. The process is gone a
//! moment later in either case. Unless [`ask`] has been called the handler does nothing.

#![allow(unsafe_code)]

use std::{
    backtrace::Backtrace,
    cell::Cell,
    ptr,
    sync::{
        Mutex, Once,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use apus_kernel::Worker;
use signal_hook::{consts::SIGUSR2, low_level};

/// So long the thread may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);

thread_local! {
    static OWN: Cell<*const Worker> = const { Cell::new(ptr::null()) };
}
static HANDLER: Once = Once::new();
static WANTED: AtomicBool = AtomicBool::new(false);
static WRITTEN: AtomicBool = AtomicBool::new(false);
static TRAIL: Mutex<String> = Mutex::new(String::new());

/// A thread of this process that runs a worker.
#[derive(Clone, Copy)]
pub struct Thread(libc::pthread_t);

/// This thread runs that worker until [`end`], and the worker stays where it is.
pub fn begin(worker: &Worker) -> Thread {
    HANDLER.call_once(|| {
        // SAFETY: the handler does nothing unless the process is about to end (`WANTED`), and then what may go wrong in it, a
        // lock of the allocator that its own thread holds, costs no more than the answer.
        let installed = unsafe { low_level::register(SIGUSR2, write_down) };
        installed.expect("SIGUSR2 may be handled");
    });
    OWN.set(ptr::from_ref(worker));
    // SAFETY: has no preconditions.
    Thread(unsafe { libc::pthread_self() })
}

pub fn end() {
    OWN.set(ptr::null());
}

/// What the thread is doing; `None`: it did not answer. Call it only to end the process.
pub fn ask(thread: Thread) -> Option<String> {
    WANTED.store(true, Ordering::SeqCst);
    // SAFETY: threads of workers run until the process stops the node, and this one is stuck.
    if unsafe { libc::pthread_kill(thread.0, SIGUSR2) } != 0 {
        return None;
    }
    let deadline = Instant::now() + PATIENCE;
    while !WRITTEN.load(Ordering::SeqCst) {
        if Instant::now() > deadline {
            return None;
        }
        std::thread::yield_now();
    }
    TRAIL.try_lock().ok().map(|mut trail| std::mem::take(&mut *trail))
}

fn write_down() {
    let worker = OWN.get();
    if worker.is_null() || !WANTED.swap(false, Ordering::SeqCst) {
        return;
    }
    let mut out = format!("backtrace:\n{}\n", Backtrace::force_capture());
    // SAFETY: the worker is this thread's and does not move or end before `end`. It is in the midst of a turn, so only its rings are read:
    // arrays of plain values, in which at worst the newest entry is half written. Nothing of it runs on: the process ends.
    unsafe { &*worker }.write_trail(&mut out);
    if let Ok(mut trail) = TRAIL.try_lock() {
        *trail = out;
    }
    WRITTEN.store(true, Ordering::SeqCst);
}
