//! A disk that is late, hangs or has failed: what its node does about it.
//!
//! Workers tell how their disks do (`ldm/disk_health.rs`). As long as any has something to complain of, the heartbeats of the node say so, and `apus status` shows it. A
//! node whose disk hangs or is broken ends if the others can go on without it, and the rule for that (`stuck`) does not count on whoever says the same of
//! itself: disks on one array, or of machines on one host, hang all at once, and each of the nodes would leave it to the others to go on. A disk is late for a second before it
//! hangs, and so is known to be; one that breaks is known for [`TOLD_NS`] before its node ends. A node that stays keeps its rows, refuses changes while its disk takes
//! nothing, and is judged again every [`AGAIN_NS`].
//!
//! A node that has nothing to write does not notice that its disk hangs. So when a member says that something is wrong with it, the others have a small file
//! written and synced, and again after [`PROBE_NS`]: who is not answered in that time says that its disk is late. Between the first member's being late and its end is twice that.

use std::collections::BTreeMap;

use apus_kernel::{Context, jam};
use apus_signal::file::{DiskRep, DiskState};

use super::{MS, Membership, Phase};

/// Others have heard by then that they cannot count on this node.
pub(crate) const TOLD_NS: u64 = 60 * MS;
const AGAIN_NS: u64 = 1_000 * MS;
/// How long the disk may take for the probe, and how long after its answer the next one is written.
const PROBE_NS: u64 = 450 * MS;
/// The probe's file, and its content.
const PROBE_FILE: &str = "disk-probe";
const PROBE_TEXT: &[u8] = b"written to see whether the disk answers; it may be deleted\n";
/// Numbers of writes of it.
const PROBE_TOKEN: u64 = 1 << 62;

#[derive(Default)]
pub(super) struct Disks {
    /// Of each worker whose disk does not do what it should.
    troubled: BTreeMap<u8, DiskRep>,
    /// When it is judged whether the node ends.
    judged_at: u64,
    /// Why it did not, as it was said.
    stays: &'static str,
    /// The probe is being written since.
    probed_at: Option<u64>,
    /// The next one at the earliest.
    probe_at: u64,
}

impl Disks {
    pub(super) fn is_any_troubled(&self, now: u64) -> bool {
        !self.troubled.is_empty() || self.probed_at.is_some_and(|at| now >= at + PROBE_NS)
    }
    /// A file has been written, or could not be; true: it was the probe.
    pub(super) fn has_probed(&mut self, token: u64, now: u64) -> bool {
        let is_probe = token == PROBE_TOKEN;
        if is_probe {
            (self.probed_at, self.probe_at) = (None, now + PROBE_NS);
        }
        is_probe
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
            self.judge_disks(ctx);
        }
    }

    pub(super) fn tick_disks(&mut self, ctx: &mut Context<'_>) {
        self.probe_disk(ctx);
        self.judge_disks(ctx);
    }
    fn probe_disk(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.now();
        let is_due = self.restart.has_disk && self.disks.probed_at.is_none() && now >= self.disks.probe_at;
        if is_due && self.phase == Phase::Member && self.survivors().iter().any(|n| self.heartbeats.is_stuck(*n)) {
            ctx.probe("qmgr: the disk is probed");
            ctx.write_file(PROBE_FILE, PROBE_TEXT.to_vec(), true, PROBE_TOKEN);
            self.disks.probed_at = Some(now);
        }
    }
    /// Ends the node if its disk takes nothing and the others hold what it holds.
    fn judge_disks(&mut self, ctx: &mut Context<'_>) {
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
