//! A node group has lost the memory of all its members, and lives on their disks only: the whole cluster goes back to the disks.
//!
//! Members that live freeze, for without that group nobody may go on. The next processes of the dead ones say in their `JoinReq` what they hold. When
//! that is so of every full member of the group, and one of them at least has all of it on its disk, nothing newer than what the disks have can ever come back: each frozen member ends and
//! starts anew, and a system restart (`restart`) brings all groups to the newest epoch that all disks have. As in NDB, commits after it are lost unless they
//! were of class `disk`.
//!
//! **Why that is safe.** A member gives its rows up only when no view can ever need them: a view without the group is never proposed
//! (`survival`), the processes that were its full members are dead for certain (the next ones have taken their directories), and the founder of the
//! system restart waits for every full member of the newest view, and takes those of a group whose logs are whole. One that died as soon as it was full has no whole log yet, and nothing has become restorable
//! since that it would need to have (simulator seed 183000295: everybody waited for it for ever); if it was alone by then, those that were full beside it count (`stand_in`). If others went on in a later view
//! without us, they have our rows. One member of the group that is missing, or has lost its disk, keeps everybody frozen, and `account` names it; so does a group of which no log is whole.

use std::collections::BTreeSet;

use apus_kernel::Context;
use apus_signal::{
    qmgr::{Holding, JoinReq},
    view::ViewNode,
};
use apus_types::NodeId;

use super::{Membership, freeze::full, stand_in};

/// A process that has begun with what the dead one before it had on disk.
pub(super) struct OnDisk {
    pub process: u64,
    /// When last.
    pub heard: u64,
    pub holding: Holding,
}

impl Membership {
    /// From a frozen member's point of view: the process of `from` that the view names is dead, and its disk is there.
    pub(super) fn note_on_disk(&mut self, from: NodeId, req: &JoinReq, ctx: &mut Context<'_>) {
        let Some(view) = self.view.as_ref().filter(|_| self.restart.has_disk && self.freeze.is_frozen()) else {
            return;
        };
        let is_next = view.node(from).is_some_and(|n| n.incarnation != req.incarnation);
        let is_ours = |cluster: u64| req.cluster == 0 || req.cluster == cluster;
        if let Some(holding) = req.holding.as_ref().filter(|_| is_next && is_ours(view.cluster)) {
            let disk = OnDisk { process: req.incarnation, heard: ctx.now(), holding: holding.clone() };
            self.freeze.on_disk.insert(from, disk);
        }
    }

    /// A group of which only the disks are left, and one of them at least has everything.
    fn group_on_disk(&self) -> Option<u32> {
        let view = self.view.as_ref()?;
        let holding = |node: NodeId| {
            let of_process = |disk: &&OnDisk| disk.process == self.links.incarnation(node);
            self.freeze.on_disk.get(&node).filter(of_process).map(|disk| &disk.holding)
        };
        let is_dead = |n: &ViewNode| self.failed.contains(&n.node()) && holding(n.node()).is_some();
        let groups: BTreeSet<u32> = full(view).map(|n| n.group).collect();
        let is_lost = |group: &u32| full(view).filter(|n| n.group == *group).all(is_dead);
        let is_there = |group: &u32| {
            let members = stand_in::members(view, holding, &BTreeSet::new());
            full(&members).any(|n| n.group == *group && holding(n.node()).is_some_and(Holding::is_whole))
        };
        groups.into_iter().find(|group| is_lost(group) && is_there(group))
    }

    pub(super) fn tick_lost_group(&mut self, ctx: &mut Context<'_>) {
        if let Some(group) = self.group_on_disk() {
            ctx.probe("qmgr: a lost group takes all back to the disks");
            let reason = format!(
                "node group {group} has lost the memory of all its members: the whole cluster starts again from the disks"
            );
            self.stop_to_rejoin(ctx, &reason);
        }
    }
}
