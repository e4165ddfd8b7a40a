//! What an operator does. A cluster that is whole: he restarts its nodes one after the other, or ends it and starts it again. One that is not, and waits for
//! nodes that are gone: he has the rest go on without them.

use apus_types::NodeId;

use super::{Drill, MS, PATIENCE_NS, Workload, faults::Deed};
use crate::console::{Console, Waiting};

/// He looks this often.
const LOOK_NS: u64 = 20 * MS;
/// A node that was asked to end has ended after this (QMGR ends it after 6 s), and the next one's turn comes after this.
const STEP_NS: u64 = 30_000 * MS;
/// A cluster with disks that is to end has ended after this.
const END_NS: u64 = 15_000 * MS;
/// A side that waits for him has said the same for so long when he has it go on.
const SAME_NS: u64 = 1_000 * MS;

/// A rolling restart, as `apus dev restart` does it.
pub(super) struct Rolling {
    /// The last one is the next.
    rest: Vec<NodeId>,
    /// Who was asked to end.
    away: Option<NodeId>,
    /// When the last step was made.
    since: u64,
}

impl<W: Workload> Drill<'_, W> {
    pub(super) fn begin_roll(&mut self, first: NodeId) {
        let mut rest = self.settings.data_nodes();
        let place = rest.iter().position(|n| *n == first).unwrap_or(0);
        rest.rotate_left(place);
        rest.reverse();
        self.rolling = Some(Rolling { rest, away: None, since: self.cluster.now() });
        self.roll();
    }
    /// The next step, if it is time for it.
    pub(super) fn roll(&mut self) {
        let is_whole = self.is_whole();
        let Some(rolling) = &mut self.rolling else { return };
        match rolling.away {
            None if !is_whole => {}
            None => {
                let Some(node) = rolling.rest.pop() else {
                    self.rolling = None;
                    return;
                };
                (rolling.away, rolling.since) = (Some(node), self.cluster.now());
                self.excused.insert(node);
                self.stir();
                self.cluster.leave(node);
            }
            Some(node) if !self.cluster.is_running(node) => {
                (rolling.away, rolling.since) = (None, self.cluster.now());
                self.stir();
                self.crash(node, false);
                self.start(node);
            }
            Some(_) => {}
        }
        self.plan(LOOK_NS, Deed::Roll);
    }
    /// Waits for the end of a rolling restart.
    pub(super) fn end_roll(&mut self, what: &str) -> Result<(), String> {
        while let Some(Rolling { away, since, rest }) = &self.rolling {
            if self.cluster.now() > since + STEP_NS {
                return Err(format!("a rolling restart waits for {away:?} and then {rest:?} after {what}"));
            }
            self.pass(LOOK_NS)?;
        }
        Ok(())
    }
    /// `apus cluster stop`: all is undone, then every data node ends, with everything on its disk.
    pub(super) fn stop_cluster(&mut self, what: &str) -> Result<(), String> {
        self.end_faults();
        self.down.clear();
        self.wait_whole(what)?;
        self.stir();
        self.is_dark = true;
        let nodes = self.settings.data_nodes();
        self.excused.extend(&nodes);
        let mgmt = self.settings.mgmt_nodes()[0];
        nodes.iter().for_each(|node| self.cluster.order_end(mgmt, *node));
        let end = self.cluster.now() + END_NS;
        while nodes.iter().any(|node| self.cluster.is_running(*node)) {
            if self.cluster.now() > end {
                return Err(format!("the cluster does not end after {what}"));
            }
            self.pass(MS)?;
        }
        self.end_managers();
        Ok(())
    }
    /// With another number of workers the management nodes start anew, too.
    fn end_managers(&mut self) {
        let before = self.count.get();
        self.change_workers();
        if before != self.count.get() {
            self.settings.arbitrators().into_iter().for_each(|node| self.crash(node, false));
        }
    }
    /// `apus cluster resume --force`, if those that are left do not go on without those that are down.
    pub(super) fn force(&mut self, what: &str) -> Result<(), String> {
        self.excused.extend(self.down.clone());
        let arbitrators = self.settings.arbitrators();
        let away: Vec<NodeId> = self.down.iter().copied().filter(|node| node.may_arbitrate()).collect();
        away.into_iter().for_each(|node| self.start(node));
        let (console, desk) = Console::new(arbitrators.into_iter().filter(|node| node.is_mgmt()).collect());
        let actor = self.cluster.attach(Box::new(console));
        let end = self.cluster.now() + PATIENCE_NS;
        let mut seen: Option<(Waiting, u64)> = None;
        while !self.goes_on_without() {
            if self.cluster.now() > end {
                let (waiting, answer) = (desk.borrow().waiting(), desk.borrow().answer.clone());
                return Err(format!("nobody goes on after {what}: {waiting:?}, the last order: {answer:?}"));
            }
            self.supervise();
            self.pass(LOOK_NS)?;
            let waiting = desk.borrow().waiting().filter(|waiting| self.is_all_that_is_left(waiting));
            seen = match (waiting, seen) {
                (Some(now), Some((before, since))) if now == before => Some((now, since)),
                (now, _) => now.map(|waiting| (waiting, self.cluster.now())),
            };
            if let Some((waiting, since)) = &mut seen
                && *since + SAME_NS <= self.cluster.now()
            {
                *since = self.cluster.now();
                desk.borrow_mut().resume(waiting, self.cluster.now() / 1_000);
            }
        }
        self.cluster.detach(actor);
        Ok(())
    }
    /// The newest view that a client knows has nobody who is down, and everybody else.
    fn goes_on_without(&self) -> bool {
        let views = self.clients.iter().map(|alive| alive.client.view());
        let Some(view) = views.max_by_key(|view| (view.lineage, view.generation)) else { return false };
        let is_right = |node: NodeId| {
            let incarnation = self.cluster.incarnation(node);
            view.is_alive(node) != self.down.contains(&node)
                && (self.down.contains(&node) || view.node(node).is_some_and(|n| n.incarnation == incarnation))
        };
        self.settings.data_nodes().into_iter().all(is_right)
    }
    fn is_all_that_is_left(&self, waiting: &Waiting) -> bool {
        let nodes = self.settings.data_nodes().into_iter();
        let left: Vec<u32> = nodes.filter(|node| !self.down.contains(node)).map(|node| node.0.into()).collect();
        waiting.side.lacks_groups.is_empty() && left.iter().all(|node| waiting.side.members.contains(node))
    }
}
