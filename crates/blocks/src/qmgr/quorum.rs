//! Who hears too few to go on.
//!
//! A switch that stalls, or a machine that does not get to its network interrupts, makes everybody silent to everybody. If each held
//! all others for failed, as one that is cut off may, none could go on. So silence that the survival rule would not let us live through
//! is waited out, however long. It costs nothing but time: whoever cannot go on without the silent ones can make no view without them,
//! and the lease is over. After [`HOPE_NS`] it is told to operators: the node is *frozen* (`freeze`).
//!
//! A member has *lost its quorum* when it would have to stop without those that it has not heard for half the limit. It gives up what it
//! was promised, so has no lease, and says so in its heartbeats. Where the others hear each other, it is the one that is cut off, or
//! deaf: when it has been for longer than the limit, who hears it say so for half of that, and can spare it, holds it for failed. In a
//! stall that ends, the heartbeats that were held up come all at once and one that takes it back comes soon after. Only what it says while we
//! have our own quorum counts: where whole groups lose each other, all of a group say so to each other, and one of them hears the end first. And whom we
//! have not heard for half as long ourselves may be away as well, whatever limit we have for it: it only takes us longer to notice, or we hear it again a
//! moment sooner. What is said until
//! we hear enough others again does not count either, and nobody is held for failed for as long again, up to 2 s: when a network is mended, connections come
//! back one after the other.
//!
//! Why that is safe for the lease: what such a member was promised before it said so is void, by its own doing; nobody promises
//! anything to one that says so; and a promise counts again only if it echoes a heartbeat that was sent after the loss.

use std::collections::BTreeSet;

use apus_kernel::{Context, jam};
use apus_types::NodeId;

use super::{
    MS, Membership,
    survival::{Verdict, verdict},
};

/// A silence that leaves too few is shown as a freeze after this. Who was removed meanwhile learns it as soon as it reaches a member or
/// a management node.
pub const HOPE_NS: u64 = 10_000 * MS;

impl Membership {
    /// Those that would be left could not go on.
    pub(super) fn cannot_spare(&self, lost: &BTreeSet<NodeId>) -> bool {
        if lost.is_empty() {
            return false;
        }
        let mut rest = self.survivors();
        rest.insert(self.me);
        rest.retain(|n| !lost.contains(n));
        self.view.as_ref().is_some_and(|base| matches!(verdict(base, &rest), Verdict::Lose(_)))
    }

    /// What a tick finds, after those that are silent are held for failed.
    pub(super) fn check_quorum(&mut self, ctx: &mut Context<'_>) {
        let (now, lacked_quorum) = (ctx.now(), self.heartbeats.lacks_quorum());
        let (fading, shortest) = self.heartbeats.fading(now, self.longest_silence());
        let lacks_quorum = self.cannot_spare(&fading);
        self.heartbeats.set_quorum_lost(if lacks_quorum { shortest } else { 0 }, now);
        if lacks_quorum && !lacked_quorum {
            ctx.probe("qmgr: hears too few to go on");
            // A frozen node has said what it waits for.
            if !self.freeze.is_frozen() {
                let silent: Vec<String> = fading.iter().map(NodeId::to_string).collect();
                ctx.log(format_args!("hears too few to go on, waits for {}", silent.join(" ")));
            }
        }
        if !lacks_quorum && lacked_quorum && self.failed.is_empty() {
            self.thaw(ctx);
        }
        if lacks_quorum || lacked_quorum {
            jam!(ctx);
            self.renew_lease(ctx); // before the others learn it
            self.send_heartbeats(ctx);
        }
        self.judge_quorum_lost(ctx);
    }

    /// Who has lost its quorum for good is held for failed, if the rest can spare it, and those that are silent too.
    pub(super) fn judge_quorum_lost(&mut self, ctx: &mut Context<'_>) {
        let (now, longest) = (ctx.now(), self.longest_silence());
        let cut_off = self.heartbeats.without_quorum(now, longest);
        if cut_off.is_empty() || self.heartbeats.lacks_quorum() {
            return;
        }
        let (mut lost, _) = self.heartbeats.fading(now, longest);
        lost.extend(&cut_off);
        lost.extend(self.heartbeats.silent_for(now, self.heartbeats.shortest_loss(&cut_off) / 2));
        if self.cannot_spare(&lost) {
            self.heartbeats.hear_anew(&cut_off, now);
        } else {
            self.hold_all_for_failed(&cut_off, "it hears too few to go on", ctx);
        }
    }
}
