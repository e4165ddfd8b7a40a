//! What a block is, and the worker that runs blocks.
//!
//! A [`Block`] owns its data and acts only on signals and ticks. A [`Worker`] is everything of one thread without the thread: its
//! blocks, the job buffer of signals to execute, timers, buffers to links and to the other workers of the node, counters, and
//! the rings that a crash report shows. The executors (`runtime` with sockets and threads, `sim` with a seeded schedule)
//! move bytes between workers and the world; nothing here touches a socket, a file, a thread or a clock.
//!
//! Signals are frames of `apus_signal` everywhere. A frame that arrives is executed where it lies in the receive buffer; a
//! frame that is sent is written once, straight into the job buffer, ring or link buffer it leaves by. In steady state no
//! signal allocates.
//!
//! **Order.** Signals from one sender block to one receiver block arrive in the order in which they were sent, as long as the
//! link between their nodes lives; between data nodes it outlives its connections (`session`). **Loss.** A signal is lost only with a link or
//! a process; both are reported to QMGR.
//! **Limits**: see [`limits`].

mod block;
mod context;
mod core;
mod counters;
mod directory;
mod disk;
mod fault;
pub mod limits;
mod linking;
mod links;
mod random;
mod report;
mod session;
#[cfg(test)]
mod tests_round;
#[cfg(test)]
mod tests_session;
mod timers;
mod trace;
mod watchdog;
mod worker;

pub use block::Block;
pub use context::Context;
pub use core::{Lease, Request, WorkerConfig};
pub use counters::Counters;
pub use directory::Directory;
pub use disk::{DataFile, DataFileKind, DiskDone, DiskFailure, DiskOp};
pub use fault::FaultRule;
pub use linking::Offer;
pub use random::Random;
pub use report::CrashCause;
pub use trace::{JamPoint, JamRing, SignalRing, SignalTrace};
pub use worker::Worker;

/// Leaves a mark in the jam ring: `jam!(ctx)`. A few instructions; put one at each branch that a crash report should show.
#[macro_export]
macro_rules! jam {
    ($ctx:expr) => {{
        static POINT: $crate::JamPoint = $crate::JamPoint { file: file!(), line: line!() };
        $ctx.jam(&POINT);
    }};
}

/// What must hold, always checked: `ensure!(ctx, condition, "what must hold {}", ..)`. A failure stops the node with a crash
/// report, and its replicas take over.
#[macro_export]
macro_rules! ensure {
    ($ctx:expr, $condition:expr, $($message:tt)+) => {
        if !$condition {
            $crate::jam!($ctx);
            panic!("{:?}: {}", $ctx.me(), format_args!($($message)+));
        }
    };
}
