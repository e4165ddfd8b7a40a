//! What an instance knows of its disk, by the answers to its requests.
//!
//! ```text
//! Answers --1 s without an answer--> Late --2 s--> Hangs --an answer--> Answers
//!    any of them --a write or a sync has failed--> Broken
//! ```
//!
//! QMGR is told each state ([`DiskRep`]): it says so in its heartbeats, and decides whether the node ends (`qmgr/disk.rs`). A disk that hangs has lost
//! nothing yet, and the log goes on where it was when it answers. What a failed write or sync has lost nobody knows: nothing is written any more.

use apus_kernel::{Context, limits::TICK_NS};
use apus_signal::{
    BlockId, BlockRef, Kind,
    file::{DiskRep, DiskState},
};

/// A disk that answers nothing for so many ticks is late: 1 s.
const LATE_TICKS: u64 = HANGS_TICKS / 2;
/// ... and hangs after 2 s.
const HANGS_TICKS: u64 = 2_000_000_000 / TICK_NS;
/// Within this time the node has decided whether it ends; if not, changes are refused.
const DECIDED_TICKS: u32 = (100_000_000 / TICK_NS) as u32;
const _: () = assert!((DECIDED_TICKS as u64) * TICK_NS > crate::qmgr::DISK_TOLD_NS, "it ends, or refuses changes");

#[derive(Default)]
pub(super) struct DiskHealth {
    /// Ticks for which requests were under way and none was answered: time in which the process ran.
    silent_ticks: u64,
    state: DiskState,
    /// Why; for people.
    reason: String,
    /// Ticks for which nothing could be written.
    lost_ticks: u32,
}

impl DiskHealth {
    /// Whether the log takes nothing to the disk.
    pub fn is_lost(&self) -> bool {
        matches!(self.state, DiskState::Hangs | DiskState::Broken)
    }
    /// ... for so long that changes are refused: the node did not end, and the others go on with it.
    pub fn refuses(&self) -> bool {
        self.lost_ticks > DECIDED_TICKS
    }
    pub fn summary(&self) -> &str {
        &self.reason
    }

    /// True: it hangs from now on.
    pub fn tick(&mut self, is_asked: bool, me: BlockRef, ctx: &mut Context<'_>) -> bool {
        self.lost_ticks += u32::from(self.is_lost());
        self.silent_ticks = if is_asked { self.silent_ticks + 1 } else { 0 };
        match self.state {
            DiskState::Answers if self.silent_ticks >= LATE_TICKS => {
                self.set(DiskState::Late, "the disk has answered nothing for 1 s", me, ctx);
                false
            }
            DiskState::Late if self.silent_ticks >= HANGS_TICKS => {
                ctx.probe("ldm: the disk of a log hangs");
                self.set(DiskState::Hangs, "the disk has answered nothing for 2 s", me, ctx);
                true
            }
            _ => false,
        }
    }
    /// True: it does not hang any more.
    pub fn answered(&mut self, me: BlockRef, ctx: &mut Context<'_>) -> bool {
        self.silent_ticks = 0;
        if !matches!(self.state, DiskState::Late | DiskState::Hangs) {
            return false;
        }
        let has_hung = self.is_lost();
        self.lost_ticks = 0;
        self.set(DiskState::Answers, "", me, ctx);
        has_hung
    }
    pub fn failed(&mut self, reason: &str, me: BlockRef, ctx: &mut Context<'_>) {
        if self.state != DiskState::Broken {
            ctx.probe("ldm: the log cannot be written");
            self.set(DiskState::Broken, reason, me, ctx);
        }
    }

    fn set(&mut self, state: DiskState, reason: &str, me: BlockRef, ctx: &mut Context<'_>) {
        match state {
            DiskState::Answers => ctx.log(format_args!("the disk answers again")),
            DiskState::Late => ctx.log(format_args!("{reason}")),
            DiskState::Hangs | DiskState::Broken => ctx.log(format_args!("the log cannot be written: {reason}")),
        }
        (self.state, self.reason) = (state, reason.to_owned());
        let rep = DiskRep { instance: me.instance, state, reason: self.reason.clone() };
        let qmgr = BlockRef::new(me.node, BlockId::Qmgr, BlockRef::CONTROL);
        ctx.send(qmgr, Kind::DiskRep, |b| rep.encode(b));
    }
}
