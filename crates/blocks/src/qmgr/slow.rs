//! A node that is slow and not dead: it answers heartbeats, and everything else late, and all that has a replica there waits for it.
//!
//! Every [`PROBE_NS`] the control worker sends a ping through the queues of its data workers. The time until the last of them has answered is what a
//! signal waits there: for the processor, behind a statement, for a machine that is short of memory. Its moving average (over about 1.6 s)
//! goes to the others with the heartbeats. A node finds itself *slow* when the average has been at least [`SLOW_NS`] and
//! [`SLOW_FACTOR`] times the median of the other members for [`SLOW_FOR_NS`]; so a cluster that is busy everywhere has no slow node. It says so in its
//! log and to the management nodes (`apus status`).
//!
//! With the setting `eject_slow_ms` a node that is slow by at least that much leaves the cluster in order (`leave`), which a last full copy refuses.
//! By default nobody is ejected: half the processors at double the delay may still be more than none.

use apus_kernel::Context;
use apus_signal::view::View;
use apus_types::NodeId;

use super::{MS, Membership, Phase};

const PROBE_NS: u64 = 100 * MS;
/// Parts of the average that a probe does not replace.
const SMOOTH: u64 = 16;
/// Less than that is not called slow.
pub const SLOW_NS: u64 = 20 * MS;
/// How many times slower than the others.
pub const SLOW_FACTOR: u64 = 4;
/// For so long without a break.
pub const SLOW_FOR_NS: u64 = 5_000 * MS;
/// An order to leave that was refused is tried again after this.
const AGAIN_NS: u64 = 60_000 * MS;

#[derive(Default)]
pub(super) struct Slow {
    /// Token of the ping under way, workers that have not answered it, when it was sent.
    probe: (u64, u8, u64),
    average: u64,
    /// Since when it is slower than it should be.
    since: Option<u64>,
    /// It has said so; with the median of the others.
    said: Option<u64>,
    left_at: u64,
}

impl Slow {
    /// Of a signal in the queues of the data workers, in nanoseconds.
    pub(super) fn delay(&self) -> u64 {
        self.average
    }
    /// For operators; empty: it is not slow.
    pub(super) fn summary(&self) -> String {
        let ms = |ns: u64| ns as f64 / MS as f64;
        let text = |others: u64| {
            format!("signals wait {:.0} ms for its workers, {:.1} ms at the others", ms(self.average), ms(others))
        };
        self.said.map_or_else(String::new, text)
    }
    fn note(&mut self, delay: u64) {
        self.average = (self.average * (SMOOTH - 1) + delay) / SMOOTH;
    }
}

/// 0: never.
pub(super) fn eject_ms(view: &View) -> u32 {
    view.eject_slow_ms
}

impl Membership {
    pub(super) fn tick_slow(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.now();
        let (_, missing, sent) = self.slow.probe;
        if self.phase != Phase::Member || now < sent + PROBE_NS {
            return;
        }
        if missing > 0 {
            // Not back yet: it counts as what it is so far, and is not sent again.
            let waits = now - sent;
            self.slow.average = self.slow.average.max(waits / SMOOTH);
        } else {
            self.pings += 1;
            self.slow.probe = (self.pings, ctx.ping_workers(self.pings), now);
        }
        self.judge_slow(ctx);
    }

    pub(super) fn on_probe_conf(&mut self, token: u64, now: u64) {
        let (asked, missing, sent) = &mut self.slow.probe;
        if *asked == token && *missing > 0 {
            *missing -= 1;
            if *missing == 0 {
                let delay = now - *sent;
                self.slow.note(delay);
            }
        }
    }

    fn judge_slow(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.now();
        let others = if self.slow.average >= SLOW_NS { self.median_delay_of_others() } else { None };
        let is_slow = others.is_some_and(|o| self.slow.average >= o.saturating_mul(SLOW_FACTOR));
        if !is_slow {
            self.slow.since = None;
            if self.slow.said.take().is_some() {
                ctx.log(format_args!("is not slow any more"));
                self.register(ctx);
            }
            return;
        }
        let since = *self.slow.since.get_or_insert(now);
        if now.saturating_sub(since) < SLOW_FOR_NS {
            return;
        }
        if self.slow.said.is_none() {
            self.slow.said = others;
            ctx.probe("qmgr: a node is slow");
            let summary = self.slow.summary();
            ctx.log(format_args!("is slow: {summary}"));
            self.register(ctx);
        }
        let eject = self.view.as_ref().map_or(0, eject_ms);
        let may_leave = self.slow.left_at == 0 || now >= self.slow.left_at + AGAIN_NS;
        if eject > 0 && self.slow.average >= u64::from(eject) * MS && may_leave && !self.leave.is_wanted() {
            self.slow.left_at = now;
            ctx.probe("qmgr: a slow node leaves");
            ctx.log(format_args!("leaves, as eject_slow_ms={eject} wants it: {}", self.slow.summary()));
            self.wish_to_leave(false, ctx);
        }
    }

    /// The slowest member, if signals wait there much longer than here: what is late at this node may be late because of it.
    pub(super) fn slower_member(&self) -> Option<NodeId> {
        let delays = self.survivors().into_iter().filter_map(|n| Some((self.heartbeats.delay_of(n)?, n)));
        let least = SLOW_NS.max(self.slow.average.saturating_mul(SLOW_FACTOR));
        delays.max().filter(|(delay, _)| *delay >= least).map(|(_, node)| node)
    }

    fn median_delay_of_others(&self) -> Option<u64> {
        let mut delays: Vec<u64> = self.survivors().iter().filter_map(|n| self.heartbeats.delay_of(*n)).collect();
        delays.sort_unstable();
        delays.get(delays.len() / 2).copied()
    }
}
