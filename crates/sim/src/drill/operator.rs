//! What an operator does with a cluster that is whole: he restarts its nodes one after the other, or ends it and starts it again.

use apus_types::NodeId;

use super::{Drill, MS, Workload, faults::Deed};

/// He looks this often.
const LOOK_NS: u64 = 20 * MS;
/// A node that was asked to end has ended after this (QMGR ends it after 6 s), and the next one's turn comes after this.
const STEP_NS: u64 = 30_000 * MS;
/// A cluster with disks that is to end has ended after this.
const END_NS: u64 = 15_000 * MS;

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
        Ok(())
    }
}
