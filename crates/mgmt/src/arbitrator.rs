//! The arbitrator's memory and its rules; see the crate documentation.

use std::collections::BTreeSet;

use apus_signal::{
    mgmt::Fences,
    qmgr::{ArbitReq, Incarnation},
    view::View,
};
use apus_types::planted::{Bug, planted};

use crate::kept::Promise;

/// Lineage and generation of a view.
type Point = (u64, u64);

/// One entry per node id at most in each of its tables.
#[derive(Debug)]
pub struct Arbitrator {
    /// Of our own process: views that name another one are not ours to judge.
    incarnation: u64,
    /// The newest view from which somebody was let go on, and whom of its members it was to go on without. Who asks from an older view was
    /// left behind; nobody of a newer one is fenced yet. A process may live, frozen, when its node has started anew: it stays fenced.
    yes_at: Point,
    fenced: BTreeSet<Incarnation>,
    /// Each yes from that view was for a view without those.
    without_fenced: bool,
    /// Members of the newest view reported, less those that have started anew since.
    running: BTreeSet<Incarnation>,
    running_at: Point,
    /// Asker and side of a start without all nodes, less those that have started anew since.
    partial_start: Option<(Incarnation, BTreeSet<Incarnation>)>,
    /// The newest founding that is known of, by views or by the file.
    founded: u64,
    /// The newest founding that an operator has given up, with all rows.
    given_up: u64,
    /// All foundings are given up, until a view is seen.
    founds_again: bool,
    /// The cluster was founded before this process began: only all nodes together found it again.
    was_founded: bool,
}

/// Why the answer is no.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    pub reason: &'static str,
    /// A later view without the asker is known to be committed.
    pub gone_on: bool,
}

impl From<&'static str> for Refusal {
    fn from(reason: &'static str) -> Refusal {
        Refusal { reason, gone_on: false }
    }
}

impl Arbitrator {
    pub fn new(incarnation: u64) -> Arbitrator {
        Arbitrator {
            incarnation,
            yes_at: (0, 0),
            fenced: BTreeSet::new(),
            without_fenced: false,
            running: BTreeSet::new(),
            running_at: (0, 0),
            partial_start: None,
            founded: 0,
            given_up: 0,
            founds_again: false,
            was_founded: false,
        }
    }

    /// The one that kept this.
    pub fn from_promise(kept: &Promise) -> Arbitrator {
        Arbitrator {
            yes_at: (kept.lineage, kept.generation),
            fenced: kept.fenced.iter().copied().collect(),
            without_fenced: kept.without_fenced,
            founded: kept.founded,
            given_up: kept.given_up,
            was_founded: kept.founded != 0,
            ..Arbitrator::new(kept.identity)
        }
    }

    /// By which views name it.
    pub fn identity(&self) -> u64 {
        self.incarnation
    }

    /// The newest founding that is known of; 0: none.
    pub fn founded(&self) -> u64 {
        self.founded
    }

    /// The newest founding that an operator has given up; `u64::MAX`: whichever there is.
    pub fn given_up(&self) -> u64 {
        if self.founds_again { u64::MAX } else { self.given_up }
    }

    /// An operator gives up whatever was founded, until a member reports a view.
    pub fn found_again(&mut self) {
        self.founds_again = true;
    }

    /// An operator ends the cluster, with its rows.
    pub fn give_up(&mut self) {
        self.given_up = self.founded;
    }

    /// Of the newest view reported.
    pub fn newest_lineage(&self) -> u64 {
        self.running_at.0
    }

    /// What must be kept of it.
    pub fn promise(&self, cluster: u64, node: u32) -> Promise {
        Promise {
            cluster,
            node,
            identity: self.incarnation,
            lineage: self.yes_at.0,
            generation: self.yes_at.1,
            fenced: self.fenced.iter().copied().collect(),
            founded: self.founded,
            given_up: self.given_up,
            members: Vec::new(),
            without_fenced: self.without_fenced,
        }
    }

    /// What a start from the disks may rest on (`qmgr/fenced.rs`); `None`: nothing. `node`: our own; `living`: a process is known to run.
    pub fn fences(&self, node: u32, living: impl Fn(&Incarnation) -> bool) -> Option<Fences> {
        let fences = Fences {
            arbitrator: node,
            identity: self.incarnation,
            lineage: self.yes_at.0,
            generation: self.yes_at.1,
            fenced: self.fenced.iter().copied().collect(),
            living: self.fenced.iter().filter(|i| living(i)).map(|i| i.node).collect(),
        };
        (self.without_fenced && !self.fenced.is_empty()).then_some(fences)
    }

    /// A data node told that it runs.
    pub fn registered(&mut self, node: u32, incarnation: u64) {
        let other = |i: &Incarnation| i.node != node || i.incarnation == incarnation;
        self.running.retain(other);
        if self.running.is_empty() {
            self.running_at = (0, 0);
        }
        if let Some((_, side)) = &mut self.partial_start {
            side.retain(other);
        }
        if self.partial_start.as_ref().is_some_and(|p| p.1.is_empty()) {
            self.partial_start = None;
        }
    }

    /// A member reported its view. True: it is newer than all before.
    pub fn saw_view(&mut self, view: &View) -> bool {
        let is_newer = view.point() > self.running_at;
        self.founded = self.founded.max(view.lineage);
        self.founds_again &= !is_newer;
        if view.point() >= self.running_at {
            self.running_at = view.point();
            self.running = view.living().map(|n| Incarnation { node: n.id, incarnation: n.incarnation }).collect();
        }
        is_newer
    }

    /// Whether some member of that view or a later one may still live.
    pub fn is_running(&self, point: (u64, u64)) -> bool {
        !self.running.is_empty() && self.running_at >= point
    }

    /// The cluster goes on without this process, for certain: a later view than the one it has, without it, was committed.
    pub fn has_gone_on_without(&self, process: Incarnation, point: (u64, u64)) -> bool {
        point.1 > 0 && self.running_at > point && !self.running.contains(&process)
    }

    /// Another side asked first.
    fn is_fenced(&self, process: Incarnation, point: Point) -> bool {
        point == self.yes_at && self.fenced.contains(&process)
    }

    /// May the asker's side go on?
    ///
    /// # Errors
    /// Why not.
    pub fn ask(&mut self, req: &ArbitReq) -> Result<(), Refusal> {
        let asker = req.asker.ok_or("the question names no asker")?;
        if !req.side.contains(&asker) || req.side.iter().any(|s| req.others.contains(s)) {
            return Err("the question does not make sense".into());
        }
        if req.generation == 0 {
            return self.ask_partial_start(req, asker).map_err(Refusal::from);
        }
        if req.arbitrator_incarnation != self.incarnation {
            return Err("the arbitrator that the view names is gone, and this one does not know whom it fenced".into());
        }
        if planted(Bug::ArbitratorForgets) {
            return Ok(());
        }
        let point = (req.lineage, req.generation);
        if self.has_gone_on_without(asker, point) {
            return Err(Refusal { reason: "the cluster has gone on without the asker", gone_on: true });
        }
        if point < self.yes_at {
            return Err("others were let go on from a later view".into());
        }
        if req.side.iter().any(|i| self.is_fenced(*i, point)) {
            return Err("the other side asked first".into());
        }
        if point > self.yes_at {
            self.yes_at = point;
            self.fenced.clear();
            self.without_fenced = true;
        }
        self.fenced.extend(&req.others);
        self.without_fenced &= req.without_others;
        Ok(())
    }

    fn ask_partial_start(&mut self, req: &ArbitReq, asker: Incarnation) -> Result<(), &'static str> {
        if !self.running.is_empty() {
            return Err("a cluster is running already");
        }
        if self.was_founded && self.founded > self.given_up() {
            return Err("the cluster was founded before: a node that is absent may hold its rows");
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

    const OWN: u64 = 500;

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
            arbitrator_incarnation: OWN,
            promise_ns: 0,
            lineage: 1,
            without_others: true,
        }
    }
    fn seen(nodes: &[u32]) -> Arbitrator {
        let mut a = Arbitrator::new(OWN);
        for n in nodes {
            a.registered(*n, inc(*n).incarnation);
        }
        a
    }
    fn view(generation: u64, nodes: &[u32]) -> View {
        let up = NodeState::Up as i32;
        let node = |id: &u32| ViewNode { id: *id, state: up, incarnation: u64::from(*id) * 10, ..ViewNode::default() };
        View { generation, lineage: 1, nodes: nodes.iter().map(node).collect(), ..View::default() }
    }

    #[test]
    fn the_first_side_wins_and_goes_on_winning() {
        let mut a = seen(&[1, 2, 3, 4]);
        assert_eq!(a.ask(&req(5, 3, &[3, 4], &[1, 2])), Ok(()));
        assert_eq!(a.ask(&req(5, 3, &[3, 4], &[1, 2])), Ok(()), "the same asker again");
        assert!(a.ask(&req(5, 1, &[1, 2], &[3, 4])).is_err());
        assert!(a.ask(&req(5, 2, &[2], &[1])).is_err(), "whoever asks");
        assert!(a.is_fenced(inc(2), (1, 5)) && !a.is_fenced(inc(3), (1, 5)));
        assert_eq!(a.ask(&req(5, 4, &[3, 4], &[1, 2])), Ok(()), "its next president");
        assert_eq!(a.ask(&req(6, 4, &[4], &[3])), Ok(()));
        assert!(a.ask(&req(6, 3, &[3], &[4])).is_err());
        a.registered(3, 99);
        let mut again = req(8, 4, &[4], &[]);
        again.others = vec![Incarnation { node: 3, incarnation: 99 }];
        let mut other = req(8, 3, &[], &[4]);
        other.asker = Some(Incarnation { node: 3, incarnation: 99 });
        other.side = vec![Incarnation { node: 3, incarnation: 99 }];
        assert_eq!(a.ask(&other), Ok(()), "a new incarnation is not fenced");
        assert!(a.ask(&again).is_err());
    }

    /// A frozen process may outlive the start of another one of its node.
    #[test]
    fn a_fence_stays_when_the_node_starts_anew() {
        let mut a = seen(&[1, 2]);
        assert_eq!(a.ask(&req(5, 1, &[1], &[2])), Ok(()));
        a.saw_view(&view(6, &[1]));
        a.registered(2, 99);
        a.registered(1, 98);
        let no = a.ask(&req(5, 2, &[2], &[1])).unwrap_err();
        assert!(!no.gone_on, "nobody of the later view is known to live");
    }

    /// Every order of questions by the presidents that two halves may have, twice over: yes goes to members of one half only.
    #[test]
    fn yes_goes_to_one_half_whoever_asks_in_whatever_order() {
        let halves: [[&[u32]; 2]; 3] = [[&[1], &[2]], [&[1, 2], &[3, 4]], [&[1, 3], &[2, 4]]];
        for [left, right] in halves {
            let askers: Vec<u32> = [left, right, left, right].concat();
            for rotation in 0..askers.len() {
                for stride in 1..askers.len() {
                    let mut a = seen(&[1, 2, 3, 4]);
                    let mut yes = BTreeSet::new();
                    for i in 0..askers.len() {
                        let asker = askers[(rotation + i * stride) % askers.len()];
                        let (side, others) = if left.contains(&asker) { (left, right) } else { (right, left) };
                        if a.ask(&req(4, asker, side, others)).is_ok() {
                            yes.insert(side);
                        }
                    }
                    assert_eq!(yes.len(), 1, "{left:?} {right:?} from {rotation} by {stride}");
                }
            }
        }
    }

    #[test]
    fn a_side_with_a_fenced_member_is_no_side() {
        let mut a = seen(&[1, 2, 3, 4]);
        assert_eq!(a.ask(&req(5, 1, &[1, 2], &[3, 4])), Ok(()));
        assert!(a.ask(&req(5, 2, &[2, 3], &[1, 4])).is_err(), "node 3 is fenced");
    }

    /// Node 3 was told yes and stopped; the others, more than half of generation 5, went on without asking.
    #[test]
    fn who_went_on_by_majority_is_not_fenced_any_more() {
        let mut a = seen(&[1, 2, 3, 4, 5, 6]);
        assert_eq!(a.ask(&req(5, 3, &[1, 3, 6], &[2, 4, 5])), Ok(()));
        assert!(a.is_fenced(inc(4), (1, 5)));
        a.saw_view(&view(6, &[1, 4, 5, 6]));
        assert!(!a.is_fenced(inc(4), (1, 6)) && a.has_gone_on_without(inc(3), (1, 5)));
        assert_eq!(a.ask(&req(6, 4, &[4, 5], &[1, 6])), Ok(()));
    }

    #[test]
    fn a_process_that_the_view_does_not_name_says_no() {
        let mut a = Arbitrator::new(OWN + 1);
        a.registered(1, 10);
        assert!(a.ask(&req(7, 1, &[1], &[2])).is_err());
        let mut named = req(7, 1, &[1], &[2]);
        named.arbitrator_incarnation = OWN + 1;
        assert_eq!(a.ask(&named), Ok(()));
    }

    #[test]
    fn who_was_left_behind_is_not_let_go_on() {
        let mut a = seen(&[1, 2, 3, 4]);
        a.saw_view(&view(9, &[1, 3, 4]));
        assert!(a.has_gone_on_without(inc(2), (1, 8)) && !a.has_gone_on_without(inc(2), (0, 0)));
        assert!(!a.has_gone_on_without(inc(4), (1, 8)));
        assert!(a.ask(&req(8, 2, &[2, 4], &[1, 3])).is_err_and(|no| no.gone_on), "generation 9 is without node 2");
        assert_eq!(a.ask(&req(8, 4, &[2, 4], &[1, 3])), Ok(()), "node 4 only missed the commit");
    }

    /// A start from the disks may rest on the newest yes, if whoever got it goes on without the others for certain.
    #[test]
    fn fences_are_told_where_each_yes_was_for_a_view_without_the_fenced() {
        let living = |i: &Incarnation| i.node == 2;
        let mut a = seen(&[1, 2, 3, 4]);
        assert_eq!(a.fences(9, living), None, "nobody is fenced");
        assert_eq!(a.ask(&req(5, 3, &[3, 4], &[1, 2])), Ok(()));
        let fences = a.fences(9, living).expect("two are");
        assert_eq!((fences.arbitrator, fences.identity, fences.lineage, fences.generation), (9, OWN, 1, 5));
        assert_eq!((fences.fenced, fences.living), (vec![inc(1), inc(2)], vec![2]));
        let again = Arbitrator::from_promise(&a.promise(7, 9)).fences(9, living);
        assert_eq!(again, a.fences(9, living), "so says the file");
        // Of the view that they are to have the others are members: they may be in the one after it, without those that asked.
        let with_others = ArbitReq { without_others: false, ..req(5, 3, &[3, 4], &[1, 2]) };
        assert_eq!(a.ask(&with_others), Ok(()));
        assert_eq!(a.fences(9, living), None);
        assert_eq!(a.ask(&req(5, 3, &[3, 4], &[1, 2])), Ok(()));
        assert_eq!(a.fences(9, living), None, "it stays so for this view");
        assert_eq!(a.ask(&req(6, 3, &[3], &[4])), Ok(()));
        assert_eq!(a.fences(9, living).expect("from a later view").fenced, [inc(4)]);
    }

    #[test]
    fn one_partial_start_at_most() {
        let mut a = seen(&[1, 2]);
        assert_eq!(a.ask(&req(0, 2, &[2], &[1])), Ok(()));
        assert!(a.ask(&req(0, 1, &[1], &[2])).is_err());
        a.saw_view(&view(1, &[2]));
        a.registered(1, 11);
        assert!(a.ask(&req(0, 1, &[1], &[2])).is_err());
        a.registered(2, 22);
        let restarted = ArbitReq { asker: Some(Incarnation { node: 1, incarnation: 11 }), ..req(0, 1, &[], &[2]) };
        let restarted = ArbitReq { side: vec![Incarnation { node: 1, incarnation: 11 }], ..restarted };
        assert_eq!(a.ask(&restarted), Ok(()), "those who had started are gone");
    }
}
