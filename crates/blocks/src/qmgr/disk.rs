//! A disk that is late, hangs or has failed: what its node does about it.
//!
//! Workers tell how their disks do (`ldm/disk_health.rs`). As long as any has something to complain of, the heartbeats of the node say so, and `apus status` shows it. A
//! node whose disk hangs or is broken ends if the others can go on without it, and the rule for that (`stuck`) does not count on whoever says the same of
//! itself: disks on one array, or of machines on one host, hang all at once, and each of the nodes would leave it to the others to go on. A disk is late for a second before it
//! hangs, and so is known to be; one that breaks is known for [`TOLD_NS`] before its node ends. A node that stays keeps its rows, refuses changes while its disk takes
//! nothing, and is judged again every [`AGAIN_NS`].

use std::collections::BTreeMap;

use apus_kernel::{Context, jam};
use apus_signal::file::{DiskRep, DiskState};

use super::{MS, Membership, Phase};

/// Others have heard by then that they cannot count on this node.
pub(crate) const TOLD_NS: u64 = 60 * MS;
const AGAIN_NS: u64 = 1_000 * MS;

#[derive(Default)]
pub(super) struct Disks {
    /// Of each worker whose disk does not do what it should.
    troubled: BTreeMap<u8, DiskRep>,
    /// When it is judged whether the node ends.
    judged_at: u64,
    /// Why it did not, as it was said.
    stays: &'static str,
}

impl Disks {
    pub(super) fn is_any_troubled(&self) -> bool {
        !self.troubled.is_empty()
    }
    /// For operators; empty: all disks answer.
    pub(super) fn summary(&self) -> String {
        self.troubled
            .values()
            .map(|rep| format!("log of worker {}: {}", rep.instance, rep.reason))
            .collect::<Vec<_>>()
            .join(", ")
    }
    /// Why nothing is written.
    fn lost(&self) -> Option<&DiskRep> {
        self.troubled.values().find(|rep| matches!(rep.state, DiskState::Hangs | DiskState::Broken))
    }
}

impl Membership {
    pub(super) fn on_disk_rep(&mut self, rep: DiskRep, ctx: &mut Context<'_>) {
        jam!(ctx);
        let was_lost = self.disks.lost().is_some();
        let is_broken = rep.state == DiskState::Broken;
        if rep.state == DiskState::Answers {
            self.disks.troubled.remove(&rep.instance);
            self.disks.stays = "";
        } else {
            self.disks.troubled.insert(rep.instance, rep);
        }
        self.send_heartbeats(ctx);
        self.register(ctx);
        if !was_lost {
            self.disks.judged_at = ctx.now() + if is_broken { TOLD_NS } else { 0 };
            self.tick_disks(ctx);
        }
    }

    /// Ends the node if its disk takes nothing and the others hold what it holds.
    pub(super) fn tick_disks(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.now();
        let Some(lost) = self.disks.lost().filter(|_| now >= self.disks.judged_at) else { return };
        let reason = lost.reason.clone();
        match self.phase {
            // What it puts back needs a log that goes on; it is tried again from the beginning.
            Phase::Starting => self.stop_to_rejoin(ctx, &format!("its disk has failed amid the start ({reason})")),
            Phase::Member => match self.spared_by_others(now) {
                Ok(()) => {
                    self.phase = Phase::Stopped;
                    self.renew_lease(ctx);
                    ctx.stop_node(&format!("its disk has failed ({reason}), and the others go on without it"));
                }
                Err(why) => {
                    if std::mem::replace(&mut self.disks.stays, why) != why {
                        ctx.log(format_args!("stays, and refuses changes: its disk has failed ({reason}), and {why}"));
                    }
                    self.disks.judged_at = now + AGAIN_NS;
                }
            },
            Phase::Stopped => {}
        }
    }
}
