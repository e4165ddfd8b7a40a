//! A start from the disks without full members that the arbitrator has fenced.
//!
//! Half of a cluster goes on by the arbitrator's yes, and all of it loses power before the view without the other half is on a disk. The newest view that the disks know
//! has both halves. Those that got the yes may have gone on, and the others may not have: so says the arbitrator's file, which was synced before the yes was told. The half that
//! got it starts without the other one.
//!
//! **The rule.** Let V be the newest view that the disks know, and F some of its full members. The start is made without those of F that are missing, if
//!
//! 1. V names the arbitrator whose file it is, the newest yes in that file is from this very V, and fences the process that V has of each in F;
//! 2. each yes from V was for a view without those that it fences (`Promise::without_fenced`);
//! 3. those that are not fenced can go on by the survival rule: they are half of V at least, with a full member of each group. All of them are here;
//! 4. no view that one of those here is known to have accepted has one of F as a full member, and no synced file of views here is damaged;
//! 5. the management nodes know of no later founding, and not that the process of one of F lives.
//!
//! **Why nothing of class `disk` is lost.** Let K be the full members of V that are not fenced. Who may commit a view after V? Members of F alone have no whole group, for K has one of each (3), and are half at most: they would need
//! the yes that the file rules out for ever (1). So whoever does has a member of K among its acceptors. When the yes was given, all of K had accepted a view W without F (2, and the
//! question counts all that confirmed as the asker's side). W is chosen by then: of any later proposal the acceptors include one of K, who tells of W, and it is finished, with one exception. Where all
//! full members of V meet in person, frozen, they may drop W (`freeze`). But what a frozen member accepts is synced before it is told (`keep`), so a disk of K knows that view: by 4 it is one without F. Either way the view after V has no full member outside of K that no disk knows of (`accepted`), and
//! so has each view after that. An epoch that became restorable in one of them is on a disk of K, and its view with it: that would be the newest, and not V. What became restorable in V or before is in the log of each of K. Of class `replicated`
//! a suffix is lost, as with every loss of power.
//!
//! **Why the naive rule is not enough.** A yes says that half may go on, and not with what. It may have been asked for a view that has all members and another arbitrator: from that one F may be let go on. Or
//! the half that got it died before it used it, and F went on in a view of all that met. Both are lost with the power.
//!
//! **Why no two sides go on.** F is told no for ever from V. Processes of F that live, frozen, go on by themselves when all others give way to them (`outlive`): each of K is asked, and has either begun this
//! start or accepted that view, which 4 sees at the next one, and each participant at its own ([`super::restart`]). Where one is known to live the start waits for that, for it has commits that no
//! disk has (5); links get [`PATIENCE_NS`] to show it.

use std::collections::{BTreeMap, BTreeSet};

use apus_signal::{
    mgmt::Fences,
    qmgr::{Holding, Incarnation},
    view::{NodeState, View, ViewNode},
};
use apus_types::{
    NodeId,
    planted::{Bug, planted},
};

use super::{
    MS, arbiter,
    freeze::full,
    restart::names,
    survival::{Verdict, holds_all, verdict},
};

/// A process that lives has a link to a management node, or to the founder, so soon after this one knows the configuration.
pub(super) const PATIENCE_NS: u64 = 2_000 * MS;

/// Full members of `newest` that are missing, and without whom those that are here may start. `fences`: of all management nodes; `founded`: the newest founding that
/// they know of; `is_linked`: there is a link to this very process.
///
/// # Errors
/// For people: why some that are missing are waited for, if there is more to say than that they are; else empty.
pub(super) fn excused<'a>(
    newest: &View,
    here: &BTreeMap<NodeId, Holding>,
    mut fences: impl Iterator<Item = &'a Fences>,
    founded: u64,
    is_linked: impl Fn(&ViewNode) -> bool,
) -> Result<BTreeSet<NodeId>, String> {
    let missing: BTreeSet<NodeId> = full(newest).map(ViewNode::node).filter(|n| !here.contains_key(n)).collect();
    if missing.is_empty() {
        return Ok(missing);
    }
    let rest: BTreeSet<NodeId> = full(newest).map(ViewNode::node).filter(|n| !missing.contains(n)).collect();
    if planted(Bug::FenceOfAnybody) && holds_all(newest, &rest) {
        return Ok(missing);
    }
    let named = (newest.arbitrator, newest.arbitrator_incarnation);
    let Some(fences) = fences.find(|f| (f.arbitrator, f.identity) == named) else { return Err(String::new()) };
    let arbitrator = arbiter::title(NodeId(fences.arbitrator as u16));
    if (fences.lineage, fences.generation) != newest.point() || founded > newest.lineage {
        let generation = fences.generation;
        return Err(format!("{arbitrator} has fenced somebody from view {generation}, which says nothing of these"));
    }
    let is_fenced = |n: &ViewNode| fences.fenced.contains(&Incarnation { node: n.id, incarnation: n.incarnation });
    let lost = || full(newest).filter(|n| missing.contains(&n.node()));
    let others: Vec<NodeId> = lost().filter(|n| !is_fenced(n)).map(ViewNode::node).collect();
    if !others.is_empty() {
        return Err(format!("{arbitrator} has not fenced {}", names(&others)));
    }
    let let_go_on: BTreeSet<NodeId> = full(newest).filter(|n| !is_fenced(n)).map(ViewNode::node).collect();
    if matches!(verdict(newest, &let_go_on), Verdict::Lose(_)) {
        return Err(format!("{arbitrator} has fenced more than those that are here could go on without"));
    }
    let fenced: BTreeSet<NodeId> = full(newest).filter(|n| is_fenced(n)).map(ViewNode::node).collect();
    let has_fenced = |v: &View| fenced.iter().any(|n| v.state(*n) == NodeState::Up);
    if here.values().any(|h| h.views_are_damaged) {
        return Err(format!("{arbitrator} has fenced them, and a file `{}` here is damaged", super::keep::SYNCED_FILE));
    }
    if here.values().flat_map(|h| &h.accepted).any(|v| v.point() > newest.point() && has_fenced(v)) {
        return Err(format!("{arbitrator} has fenced them, and a later view with them was accepted"));
    }
    let is_living = |n: &&ViewNode| fences.living.contains(&n.id) || is_linked(n);
    let living: Vec<NodeId> = lost().filter(is_living).map(ViewNode::node).collect();
    if !living.is_empty() {
        return Err(format!(
            "{arbitrator} has fenced {}, whose process lives, frozen, and goes on with its rows when it has a link to all that are here",
            names(&living)
        ));
    }
    Ok(missing)
}

/// For people: the start is made without those.
pub(super) fn account(newest: &View, excused: &BTreeSet<NodeId>) -> String {
    let (nodes, generation) = (names(&excused.iter().copied().collect::<Vec<_>>()), newest.generation);
    let arbitrator = arbiter::title(NodeId(newest.arbitrator as u16));
    format!(
        "begins from the disks without {nodes}, fenced by {arbitrator}, whose file says that only the others were let go on from view {generation}, the newest on their disks"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARBITRATOR: u32 = NodeId::MGMT_BASE as u32 + 1;

    /// So many groups of two; of each group the first is let go on.
    fn view(groups: u32) -> View {
        let node = |id: u32| ViewNode {
            id,
            group: (id - 1) / 2,
            state: NodeState::Up as i32,
            incarnation: u64::from(id) * 10,
            ..ViewNode::default()
        };
        View {
            lineage: 3,
            generation: 7,
            arbitrator: ARBITRATOR,
            arbitrator_incarnation: 99,
            nodes: (1..=2 * groups).map(node).collect(),
            ..View::default()
        }
    }
    fn fences(fenced: &[u32]) -> Fences {
        let fenced = fenced.iter().map(|&node| Incarnation { node, incarnation: u64::from(node) * 10 }).collect();
        Fences { arbitrator: ARBITRATOR, identity: 99, lineage: 3, generation: 7, fenced, living: Vec::new() }
    }
    fn here(nodes: &[u16]) -> BTreeMap<NodeId, Holding> {
        nodes.iter().map(|n| (NodeId(*n), Holding::default())).collect()
    }
    fn missing(groups: u32, nodes: &[u16], fences: &Fences) -> Result<Vec<u16>, String> {
        let excused = excused(&view(groups), &here(nodes), std::iter::once(fences), 3, |_| false)?;
        Ok(excused.into_iter().map(|n| n.0).collect())
    }
    fn refused(groups: u32, nodes: &[u16], fences: &Fences, because: &str) {
        let why = missing(groups, nodes, fences).expect_err("they are waited for");
        assert!(why.contains(because), "{why}");
    }

    #[test]
    fn those_that_the_arbitrator_has_fenced_are_not_waited_for() {
        assert_eq!(missing(1, &[1], &fences(&[2])), Ok(vec![2]));
        assert_eq!(missing(2, &[1, 3], &fences(&[2, 4])), Ok(vec![2, 4]));
        assert_eq!(missing(2, &[1, 2, 3], &fences(&[2, 4])), Ok(vec![4]), "who is here may take part");
        assert_eq!(missing(2, &[1, 2, 3, 4], &fences(&[2, 4])), Ok(vec![]), "nobody is missing");
        assert_eq!(excused(&view(1), &here(&[1, 2]), std::iter::empty(), 0, |_| false), Ok(BTreeSet::new()));
    }

    #[test]
    fn all_others_are() {
        refused(2, &[1], &fences(&[2, 4]), "has not fenced data node 3");
        refused(1, &[2], &fences(&[2]), "has not fenced data node 1");
        refused(1, &[1], &fences(&[]), "has not fenced data node 2");
        let another_process = Incarnation { node: 2, incarnation: 21 };
        refused(1, &[1], &Fences { fenced: vec![another_process], ..fences(&[]) }, "has not fenced");
        assert_eq!(
            excused(&view(1), &here(&[1]), std::iter::empty(), 3, |_| false),
            Err(String::new()),
            "without a file"
        );
        assert_eq!(missing(1, &[1], &Fences { identity: 98, ..fences(&[2]) }), Err(String::new()), "of another one");
        assert_eq!(missing(1, &[1], &Fences { arbitrator: ARBITRATOR + 1, ..fences(&[2]) }), Err(String::new()));
    }

    #[test]
    fn a_yes_from_another_view_says_nothing() {
        for (lineage, generation) in [(3, 6), (3, 8), (2, 7), (4, 7)] {
            refused(1, &[1], &Fences { lineage, generation, ..fences(&[2]) }, "says nothing of these");
        }
        let later = excused(&view(1), &here(&[1]), std::iter::once(&fences(&[2])), 4, |_| false);
        assert!(later.is_err_and(|why| why.contains("says nothing")), "the cluster has begun anew since");
    }

    #[test]
    fn whoever_lets_a_minority_go_on_is_not_believed() {
        refused(2, &[1], &fences(&[2, 3, 4]), "more than those that are here could go on without");
        refused(2, &[1, 3], &Fences { fenced: fences(&[1, 2, 4]).fenced, ..fences(&[]) }, "more than");
        refused(2, &[1, 2], &fences(&[3, 4]), "more than");
    }

    #[test]
    fn a_process_that_lives_is_waited_for() {
        refused(1, &[1], &Fences { living: vec![2], ..fences(&[2]) }, "data node 2, whose process lives, frozen");
        let linked = excused(&view(1), &here(&[1]), std::iter::once(&fences(&[2])), 3, |n| n.incarnation == 20);
        assert!(linked.is_err_and(|why| why.contains("whose process lives")));
    }

    #[test]
    fn nobody_who_may_be_in_a_later_view_is_left_out() {
        let accepted = |nodes: &[u32], lineage: u64| {
            let mut later = View { lineage, generation: 8, ..view(1) };
            later.nodes.retain(|n| nodes.contains(&n.id));
            let holding = Holding { accepted: vec![later], ..Holding::default() };
            excused(&view(1), &BTreeMap::from([(NodeId(1), holding)]), std::iter::once(&fences(&[2])), 3, |_| false)
        };
        assert_eq!(accepted(&[1], 3), Ok(BTreeSet::from([NodeId(2)])), "the view that the yes was for");
        assert!(accepted(&[1, 2], 3).is_err_and(|why| why.contains("a later view with them was accepted")));
        assert!(accepted(&[2], 3).is_err(), "it gave way to those that are missing");
        assert!(accepted(&[2], 4).is_err(), "they have outlived it");
        let holding = Holding { views_are_damaged: true, ..Holding::default() };
        let damaged =
            excused(&view(1), &BTreeMap::from([(NodeId(1), holding)]), std::iter::once(&fences(&[2])), 3, |_| false);
        assert!(damaged.is_err_and(|why| why.contains("is damaged")), "it may have accepted anything");
    }
}
