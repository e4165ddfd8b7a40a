//! To which process of each other data node our links lead, as our workers report it.
//!
//! Every worker has a link of its own to each other node and reports its begin and its end; the reports of two workers overtake each other. Where a process dies soon after it
//! began, one worker may report a link to it when another has long reported one to its successor. So the links to several processes of a node are counted side by side. The
//! *current* process is the one of which a link was reported last, as long as one stands (simulator seed 176000969: the successor's first link was forgotten, and it waited for
//! ever to be let in).
//!
//! Limits: of each node as many processes as we have workers, for a worker has one link to it.

use std::collections::{BTreeMap, BTreeSet};

use apus_signal::qmgr::LinkRep;
use apus_types::NodeId;

#[derive(Clone, Default, Debug)]
pub(super) struct LinkState {
    pub incarnation: u64,
    /// Those of our workers that have a link.
    pub workers: BTreeSet<u8>,
    /// A message about joining has come from the process: it has all links too, and takes us for the process that we are.
    pub stands_there: bool,
    /// Of those workers, the ones whose links wait for a connection, and since when.
    pub suspended: BTreeMap<u8, u64>,
}

#[derive(Default)]
pub(super) struct Links {
    current: BTreeMap<NodeId, LinkState>,
    /// To other processes of the node, whose ends have not been reported yet.
    others: BTreeMap<NodeId, Vec<LinkState>>,
}

impl Links {
    pub(super) fn get(&self, node: NodeId) -> Option<&LinkState> {
        self.current.get(&node)
    }
    pub(super) fn get_mut(&mut self, node: NodeId) -> Option<&mut LinkState> {
        self.current.get_mut(&node)
    }
    /// To the current process of each node.
    pub(super) fn iter(&self) -> impl Iterator<Item = (NodeId, &LinkState)> {
        self.current.iter().map(|(node, link)| (*node, link))
    }
    /// Of the current process; 0: no link was ever reported, or it was cut off.
    pub(super) fn incarnation(&self, node: NodeId) -> u64 {
        self.get(node).map_or(0, |l| l.incarnation)
    }

    pub(super) fn up(&mut self, rep: &LinkRep) {
        let link = self.current.entry(rep.node).or_default();
        if link.incarnation != rep.incarnation {
            let others = self.others.entry(rep.node).or_default();
            let known = others.iter().position(|l| l.incarnation == rep.incarnation).map(|at| others.remove(at));
            let next = known.unwrap_or_else(|| LinkState { incarnation: rep.incarnation, ..LinkState::default() });
            let before = std::mem::replace(link, next);
            others.extend((!before.workers.is_empty()).then_some(before));
        }
        link.workers.insert(rep.worker);
        link.suspended.remove(&rep.worker);
    }

    /// False: it was no link to the current process.
    pub(super) fn down(&mut self, rep: &LinkRep) -> bool {
        let Some(link) = self.current.get_mut(&rep.node) else { return false };
        let others = self.others.entry(rep.node).or_default();
        let is_current = link.incarnation == rep.incarnation;
        let other = others.iter_mut().find(|l| l.incarnation == rep.incarnation);
        if let Some(ended) = if is_current { Some(&mut *link) } else { other } {
            ended.workers.remove(&rep.worker);
            ended.suspended.remove(&rep.worker);
            ended.stands_there = false;
        }
        others.retain(|l| !l.workers.is_empty());
        if link.workers.is_empty()
            && let Some(next) = others.pop()
        {
            *link = next;
        }
        is_current
    }

    /// Forgets the process; true: it was the current one.
    pub(super) fn forget(&mut self, node: NodeId, incarnation: u64) -> bool {
        let others = self.others.entry(node).or_default();
        others.retain(|l| l.incarnation != incarnation);
        let is_current = self.current.get(&node).is_some_and(|l| l.incarnation == incarnation);
        if is_current {
            self.current.remove(&node);
            self.current.extend(others.pop().map(|next| (node, next)));
        }
        is_current
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(2);

    fn report(links: &mut Links, worker: u8, incarnation: u64, is_up: bool) {
        let rep = LinkRep { node: NODE, incarnation, worker };
        if is_up {
            links.up(&rep);
        } else {
            links.down(&rep);
        }
    }

    /// Each of two workers has a link to process 5 and then one to process 6: however their reports mix, both links to process 6 are known.
    #[test]
    fn reports_of_workers_overtake_each_other() {
        for mix in 0u32..64 {
            if mix.count_ones() != 3 {
                continue;
            }
            let mut links = Links::default();
            let mut next = [0usize; 2];
            for at in 0..6 {
                let worker = mix >> at & 1;
                let (incarnation, is_up) = [(5, true), (5, false), (6, true)][next[worker as usize]];
                next[worker as usize] += 1;
                report(&mut links, worker as u8, incarnation, is_up);
            }
            let link = links.get(NODE).expect("links");
            assert_eq!((link.incarnation, link.workers.len()), (6, 2), "{mix:b}: {link:?}");
            assert!(links.others[&NODE].is_empty(), "{mix:b}");
        }
    }

    #[test]
    fn who_is_cut_off_is_forgotten_and_its_successor_is_not() {
        let mut links = Links::default();
        report(&mut links, 0, 6, true);
        report(&mut links, 1, 5, true);
        assert_eq!(links.incarnation(NODE), 5);
        assert!(links.forget(NODE, 5) && !links.forget(NODE, 5));
        assert_eq!(links.incarnation(NODE), 6);
        report(&mut links, 1, 5, false);
        report(&mut links, 1, 6, true);
        assert_eq!(links.get(NODE).map(|l| l.workers.len()), Some(2));
        assert!(links.forget(NODE, 6) && links.get(NODE).is_none());
    }
}
