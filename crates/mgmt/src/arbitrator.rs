//! The arbitrator's memory and its rules; see the crate documentation.

use std::collections::{BTreeMap, BTreeSet};

use apus_signal::{
    qmgr::{ArbitReq, Incarnation},
    view::View,
};

/// After its start the arbitrator is silent for so long towards those it did not see start: longer than QMGR waits for it.
pub const QUARANTINE_NS: u64 = 3_000_000_000;

/// One entry per node id at most in each of its tables.
#[derive(Default, Debug)]
pub struct Arbitrator {
    started_at: Option<u64>,
    /// Incarnations that registered with us before they were members.
    seen_start: BTreeMap<u32, u64>,
    fenced: BTreeMap<u32, u64>,
    /// Members of the newest view reported, less those that have started anew since.
    running: BTreeSet<Incarnation>,
    running_generation: u64,
    /// Asker and side of a start without all nodes, less those that have started anew since.
    partial_start: Option<(Incarnation, BTreeSet<Incarnation>)>,
}

impl Arbitrator {
    pub fn started(&mut self, now: u64) {
        self.started_at.get_or_insert(now);
    }

    /// A data node told that it runs, in this generation (0: it is starting).
    pub fn registered(&mut self, node: u32, incarnation: u64, generation: u64, now: u64) {
        self.started(now);
        let other = |i: &Incarnation| i.node != node || i.incarnation == incarnation;
        self.running.retain(other);
        if self.running.is_empty() {
            self.running_generation = 0;
        }
        if let Some((_, side)) = &mut self.partial_start {
            side.retain(other);
        }
        if self.partial_start.as_ref().is_some_and(|p| p.1.is_empty()) {
            self.partial_start = None;
        }
        if self.fenced.get(&node).is_some_and(|f| *f != incarnation) {
            self.fenced.remove(&node);
        }
        if generation == 0 {
            self.seen_start.insert(node, incarnation);
        }
    }

    /// A member reported its view.
    pub fn saw_view(&mut self, view: &View) {
        if view.generation >= self.running_generation {
            self.running_generation = view.generation;
            self.running = view.living().map(|n| Incarnation { node: n.id, incarnation: n.incarnation }).collect();
        }
    }

    /// Whether some member of that generation or a later one may still live.
    pub fn is_running(&self, generation: u64) -> bool {
        !self.running.is_empty() && self.running_generation >= generation
    }

    /// `None`: no answer.
    pub fn ask(&mut self, req: &ArbitReq, now: u64) -> Option<Result<(), &'static str>> {
        let asker = req.asker?;
        if !req.side.contains(&asker) || req.others.contains(&asker) {
            return Some(Err("the question does not make sense"));
        }
        if req.generation == 0 {
            return Some(self.ask_partial_start(req, asker));
        }
        let seen = self.seen_start.get(&asker.node) == Some(&asker.incarnation);
        if !seen && now.saturating_sub(self.started_at?) < QUARANTINE_NS {
            return None;
        }
        if self.fenced.get(&asker.node) == Some(&asker.incarnation) {
            return Some(Err("the other side asked first"));
        }
        for other in &req.others {
            self.fenced.insert(other.node, other.incarnation);
        }
        Some(Ok(()))
    }

    fn ask_partial_start(&mut self, req: &ArbitReq, asker: Incarnation) -> Result<(), &'static str> {
        if !self.running.is_empty() {
            return Err("a cluster is running already");
        }
        match &self.partial_start {
            Some((winner, _)) if *winner != asker => Err("other nodes were allowed to start"),
            _ => {
                self.partial_start = Some((asker, req.side.iter().copied().collect()));
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use apus_signal::view::{NodeState, ViewNode};

    use super::*;

    fn inc(node: u32) -> Incarnation {
        Incarnation { node, incarnation: u64::from(node) * 10 }
    }
    fn req(generation: u64, asker: u32, side: &[u32], others: &[u32]) -> ArbitReq {
        ArbitReq {
            cluster: 1,
            generation,
            asker: Some(inc(asker)),
            side: side.iter().map(|n| inc(*n)).collect(),
            others: others.iter().map(|n| inc(*n)).collect(),
            question: 1,
        }
    }
    fn seen(nodes: &[u32]) -> Arbitrator {
        let mut a = Arbitrator::default();
        for n in nodes {
            a.registered(*n, inc(*n).incarnation, 0, 0);
        }
        a
    }

    #[test]
    fn the_first_side_wins_and_goes_on_winning() {
        let mut a = seen(&[1, 2, 3, 4]);
        assert_eq!(a.ask(&req(5, 3, &[3, 4], &[1, 2]), 1), Some(Ok(())));
        assert_eq!(a.ask(&req(5, 3, &[3, 4], &[1, 2]), 2), Some(Ok(())), "the same asker again");
        assert!(matches!(a.ask(&req(5, 1, &[1, 2], &[3, 4]), 3), Some(Err(_))));
        assert!(matches!(a.ask(&req(9, 2, &[2], &[1]), 4), Some(Err(_))), "in whatever generation");
        assert_eq!(a.ask(&req(5, 4, &[3, 4], &[1, 2]), 5), Some(Ok(())), "its next president");
        assert_eq!(a.ask(&req(6, 4, &[4], &[3]), 6), Some(Ok(())));
        assert!(matches!(a.ask(&req(6, 3, &[3], &[4]), 7), Some(Err(_))));
        a.registered(3, 99, 0, 8);
        let mut again = req(8, 4, &[4], &[]);
        again.others = vec![Incarnation { node: 3, incarnation: 99 }];
        let mut other = req(8, 3, &[], &[4]);
        other.asker = Some(Incarnation { node: 3, incarnation: 99 });
        other.side = vec![Incarnation { node: 3, incarnation: 99 }];
        assert_eq!(a.ask(&other, 9), Some(Ok(())), "a new incarnation is not fenced");
        assert!(matches!(a.ask(&again, 10), Some(Err(_))));
    }

    #[test]
    fn a_new_arbitrator_is_silent_to_strangers() {
        let mut a = Arbitrator::default();
        a.registered(1, 10, 7, 0);
        assert_eq!(a.ask(&req(7, 1, &[1], &[2]), QUARANTINE_NS - 1), None);
        assert_eq!(a.ask(&req(7, 1, &[1], &[2]), QUARANTINE_NS), Some(Ok(())));
    }

    #[test]
    fn one_partial_start_at_most() {
        let mut a = seen(&[1, 2]);
        assert_eq!(a.ask(&req(0, 2, &[2], &[1]), 1), Some(Ok(())));
        assert!(matches!(a.ask(&req(0, 1, &[1], &[2]), 1), Some(Err(_))));
        let node = |id: u32| ViewNode {
            id,
            state: NodeState::Up as i32,
            incarnation: u64::from(id) * 10,
            ..ViewNode::default()
        };
        a.saw_view(&View { generation: 1, nodes: vec![node(2)], ..View::default() });
        a.registered(1, 11, 0, 2);
        assert!(matches!(a.ask(&req(0, 1, &[1], &[2]), 3), Some(Err(_))));
        a.registered(2, 22, 0, 4);
        let restarted = ArbitReq { asker: Some(Incarnation { node: 1, incarnation: 11 }), ..req(0, 1, &[], &[2]) };
        let restarted = ArbitReq { side: vec![Incarnation { node: 1, incarnation: 11 }], ..restarted };
        assert_eq!(a.ask(&restarted, 5), Some(Ok(())), "those who had started are gone");
    }
}
