//! Sides meet again of which none holds a full member of every node group.
//!
//! A split between node groups freezes all sides: each lacks a group. None can have the others give way, for their rows are the only ones. So
//! members of several sides stay, in a view of all of them. But signals between sides were lost, and nobody knows which: a batch, an answer, a
//! commit order. So that view *settles* (`View::settles`): whoever executes it ends all that is open as if every transaction coordinator had died.
//! LDM takes no signal of an earlier coordinator any more (rule 6 of `ldm`) and reports what it holds to the takers; TC forgets what it coordinates and
//! closes its clients' links, who ask what became of it. DICT has its president ask for everybody's state. Nothing else is open between groups.
//!
//! **Who stays.** Of each group only members that have never lost each other, because signals of a chain are not settled by that: all of the asking side,
//! and of a group that it lacks those with whom the most senior one has kept its links, by the word of each of them. All others give way, and so do
//! recovering nodes.
//!
//! **Why it is safe** ([decision 0003](../../../../docs/decisions/0003-freeze-and-ties.md)). The view is agreed upon like a reunion in which others give way
//! (`freeze`). If *all* full members of the base take part in person, each frozen, says that it has committed no successor, and promises the ballot, no
//! accepted proposal needs to be finished, and no side has gone on. If some are missing for long (they died), those that are there must pass the survival
//! rule by themselves, and none of them may have accepted anything: then nobody has committed anything, for two sets that pass share a member. What one
//! has accepted is finished first; whoever is in that is frozen under it, and meets under it. Those that are missing are removed as dead. A dead coordinator's transactions are what take-over is for: committed anywhere is
//! committed everywhere, for TC orders a commit when all have prepared, and parts are forgotten after all parts have committed. Commits that the old
//! coordinators have ordered and that are still on their way to an LDM of the view are refused there, whether it has reported or not.

use std::collections::BTreeSet;

use apus_kernel::Context;
use apus_signal::view::{NodeState, View, ViewNode};
use apus_types::NodeId;

use super::{MS, Membership, layout};

/// Sides that could go on without those that are missing wait so long for them: longer than connections take to come back.
const DEAD_NS: u64 = 6_000 * MS;

impl Membership {
    /// No side could have the others give way, and nobody is missing, or somebody has been for long.
    pub(super) fn may_meet(&self, back: &BTreeSet<NodeId>, since: u64, now: u64) -> bool {
        now.saturating_sub(since) >= DEAD_NS || self.lost_full().all(|n| back.contains(&n.node()))
    }

    /// The view in which the sides meet. `None`: of some group nobody is left who has its rows.
    pub(super) fn meeting(&self, back: &BTreeSet<NodeId>) -> Option<View> {
        let base = self.view.as_ref()?;
        let full = || base.nodes.iter().filter(|n| n.state() == NodeState::Up);
        let own = self.own_side();
        let is_there = |n: NodeId| back.contains(&n) && !self.is_witnessed(n);
        let mut stays: BTreeSet<NodeId> = full().map(|n| n.node()).filter(|n| own.contains(n)).collect();
        let held: BTreeSet<u32> = full().filter(|n| own.contains(&n.node())).map(|n| n.group).collect();
        let lacking: BTreeSet<u32> = full().map(|n| n.group).filter(|g| !held.contains(g)).collect();
        for group in lacking {
            let mut of_group: Vec<&ViewNode> = full().filter(|n| n.group == group && is_there(n.node())).collect();
            of_group.sort_by_key(|n| n.join_order);
            let mut kept: Vec<NodeId> = Vec::new();
            for node in of_group.iter().map(|n| n.node()) {
                if kept.iter().all(|other| !self.freeze.have_parted(node, *other)) {
                    kept.push(node);
                }
            }
            stays.extend(kept);
        }
        if !self.holds_every_group(&stays) {
            return None;
        }
        // Whoever is senior acts from then on, be it that another one has brought them together.
        let president = full().filter(|n| stays.contains(&n.node())).min_by_key(|n| n.join_order)?.node();
        Some(layout::settled(base, president, |n| !stays.contains(&n)))
    }

    /// This node is to stay in a view in which sides meet: it needs a link to everybody there.
    pub(super) fn is_linked_to_all(&self, view: &View) -> bool {
        view.living().all(|n| n.node() == self.me || self.is_linked(n.node()))
    }

    /// What a member of that generation says of others, it says of those that have met since: its word may have waited here, or on a link.
    pub(super) fn is_before_meeting(&self, generation: u64) -> bool {
        self.view.as_ref().is_some_and(|v| generation < v.settles)
    }

    /// Who is a member in a view in which sides meet is not held for failed any more.
    pub(super) fn reconcile(&mut self, before: Option<&View>, view: &View, ctx: &mut Context<'_>) {
        if before.is_some_and(|old| view.settles_after(old)) {
            ctx.probe("qmgr: sides meet, and what was open is settled");
            self.failed.retain(|n| !view.is_alive(*n));
            self.hearsay.retain(|n| !view.is_alive(*n));
        }
    }
}
