//! Who may go on after a failure.
//!
//! Evaluated by the president of a side on the nodes of that side, against the committed view. Two sides that evaluate the
//! same view cannot both win: a whole group here is a lost group there, two majorities do not exist, and the arbitrator says
//! yes to one half only, or the tie-breaker that the view names is in one half only. Recovering nodes do not count: what they hold is not complete.

use std::collections::{BTreeMap, BTreeSet};

use apus_signal::view::{NodeState, View};
use apus_types::{
    NodeId,
    planted::{Bug, planted},
};

/// See [`verdict`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Win,
    /// The reason is for people.
    Lose(&'static str),
    /// Exactly half is left: the arbitrator decides.
    Ask,
}

/// May the nodes of `side` replace `base` without the rest?
pub fn verdict(base: &View, side: &BTreeSet<NodeId>) -> Verdict {
    let mut groups: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
    for node in base.nodes.iter().filter(|n| n.state() == NodeState::Up) {
        let (before, left) = groups.entry(node.group).or_default();
        *before += 1;
        *left += usize::from(side.contains(&node.node()));
    }
    let before: usize = groups.values().map(|g| g.0).sum();
    let left: usize = groups.values().map(|g| g.1).sum();
    if groups.values().any(|g| g.1 == 0) || before == 0 {
        return Verdict::Lose("a node group has no full member left on this side");
    }
    if left == before || groups.values().any(|g| g.0 == g.1) || 2 * left > before {
        return Verdict::Win;
    }
    if (2 * left == before && planted(Bug::ArbitrationIgnored)) || planted(Bug::MinorityGoesOn) {
        return Verdict::Win;
    }
    if 2 * left == before && base.arbitrator == 0 && base.tie_breaker != 0 {
        let is_here = side.iter().any(|n| u32::from(n.0) == base.tie_breaker);
        return if is_here {
            Verdict::Win
        } else {
            Verdict::Lose("the half with the tie-breaker goes on, not this one")
        };
    }
    if 2 * left == before { Verdict::Ask } else { Verdict::Lose("this side is a minority of the cluster") }
}

/// Of every group a full member of `base` is among these.
pub fn holds_all(base: &View, side: &BTreeSet<NodeId>) -> bool {
    let full = || base.nodes.iter().filter(|n| n.state() == NodeState::Up);
    full().all(|n| full().any(|other| other.group == n.group && side.contains(&other.node())))
}

/// `side` may go on because it has the tie-breaker, and nobody is there to ask the other half for its leases.
pub fn is_tie(base: &View, side: &BTreeSet<NodeId>) -> bool {
    let full = || base.nodes.iter().filter(|n| n.state() == NodeState::Up);
    base.arbitrator == 0 && 2 * full().filter(|n| side.contains(&n.node())).count() == full().count()
}

#[cfg(test)]
mod tests {
    use apus_signal::view::ViewNode;

    use super::*;

    fn view(nodes: &[(u16, u32, NodeState)]) -> View {
        View {
            nodes: nodes
                .iter()
                .map(|&(id, group, state)| ViewNode {
                    id: id.into(),
                    group,
                    state: state as i32,
                    ..ViewNode::default()
                })
                .collect(),
            ..View::default()
        }
    }
    fn side(ids: &[u16]) -> BTreeSet<NodeId> {
        ids.iter().map(|&id| NodeId(id)).collect()
    }

    #[test]
    fn the_rules_in_their_order() {
        use NodeState::{Down, Recovering, Up};
        let pair = view(&[(1, 0, Up), (2, 0, Up)]);
        assert_eq!(verdict(&pair, &side(&[1, 2])), Verdict::Win);
        assert_eq!(verdict(&pair, &side(&[2])), Verdict::Ask);
        let filling = view(&[(1, 0, Up), (2, 0, Recovering)]);
        assert_eq!(verdict(&filling, &side(&[1])), Verdict::Win);
        assert!(matches!(verdict(&filling, &side(&[2])), Verdict::Lose(_)));
        let four = view(&[(1, 0, Up), (2, 0, Up), (3, 1, Up), (4, 1, Up)]);
        assert!(matches!(verdict(&four, &side(&[1, 2])), Verdict::Lose(_)), "group 1 is lost");
        assert_eq!(verdict(&four, &side(&[1, 3])), Verdict::Ask);
        assert_eq!(verdict(&four, &side(&[1, 3, 4])), Verdict::Win);
        let worn = view(&[(1, 0, Up), (2, 0, Down), (3, 1, Up), (4, 1, Up)]);
        assert_eq!(verdict(&worn, &side(&[1, 4])), Verdict::Win, "the dead do not count");
        let wide = view(&[(1, 0, Up), (2, 0, Up), (3, 0, Up), (4, 0, Up)]);
        assert!(matches!(verdict(&wide, &side(&[4])), Verdict::Lose(_)));
        assert_eq!(verdict(&wide, &side(&[3, 4])), Verdict::Ask);
        assert!(matches!(verdict(&view(&[]), &side(&[1])), Verdict::Lose(_)));
    }

    /// Every split in two of every cluster of 1 to 4 groups of 1 to 4 replicas: one side at most goes on, the arbitrator is asked by both
    /// or by none that has a member of each group, and where both halves ask it says yes to one (see the mgmt crate).
    #[test]
    fn of_any_two_sides_one_goes_on_at_most() {
        let mut splits = 0;
        for groups in 1u32..=4 {
            for replicas in 1u32..=4 {
                let nodes: Vec<_> =
                    (0..groups * replicas).map(|i| (i as u16 + 1, i / replicas, NodeState::Up)).collect();
                let view = view(&nodes);
                for mask in 0u32..1 << nodes.len() {
                    let (a, b): (Vec<u16>, Vec<u16>) =
                        nodes.iter().map(|n| n.0).partition(|&id| mask >> (id - 1) & 1 == 1);
                    let is_half = a.len() == b.len();
                    let (a, b) = (verdict(&view, &side(&a)), verdict(&view, &side(&b)));
                    if a == Verdict::Win {
                        assert!(matches!(b, Verdict::Lose(_)), "{groups} x {replicas} {mask:b}: {b:?}");
                    }
                    if a == Verdict::Ask {
                        assert!(is_half && b == Verdict::Ask, "{groups} x {replicas} {mask:b}: {b:?}");
                    }
                    splits += 1;
                }
            }
        }
        assert!(splits > 1 << 16);
    }

    /// As above without an arbitrator, for every tie-breaker: of two halves exactly one goes on, if it has a member of each group, and nobody asks.
    #[test]
    fn the_tie_breakers_half_goes_on() {
        for groups in 1u32..=3 {
            for replicas in 1u32..=4 {
                let nodes: Vec<_> =
                    (0..groups * replicas).map(|i| (i as u16 + 1, i / replicas, NodeState::Up)).collect();
                for tie_breaker in 1..=groups * replicas {
                    let view = View { tie_breaker, ..view(&nodes) };
                    for mask in 0u32..1 << nodes.len() {
                        let (a, b): (Vec<u16>, Vec<u16>) =
                            nodes.iter().map(|n| n.0).partition(|&id| mask >> (id - 1) & 1 == 1);
                        let is_half = a.len() == b.len();
                        let has_it = a.contains(&(tie_breaker as u16));
                        let covers =
                            |side: &[u16]| (0..groups).all(|g| side.iter().any(|n| u32::from(n - 1) / replicas == g));
                        let both = covers(&a) && covers(&b);
                        let (a, b) = (verdict(&view, &side(&a)), verdict(&view, &side(&b)));
                        assert!(a != Verdict::Ask && (a != Verdict::Win || matches!(b, Verdict::Lose(_))), "{mask:b}");
                        if is_half && both {
                            assert_eq!(a == Verdict::Win, has_it, "{groups} x {replicas} {mask:b} {tie_breaker}");
                        }
                    }
                }
            }
        }
    }

    /// As above with a node that is being filled and one that is down: neither counts for any side.
    #[test]
    fn who_is_not_full_counts_for_no_side() {
        for replicas in 2u16..=4 {
            for filling in 1..=2 * replicas {
                let state = |id: u16| if id == filling { NodeState::Recovering } else { NodeState::Up };
                let mut nodes: Vec<_> =
                    (1..=2 * replicas).map(|id| (id, u32::from((id - 1) / replicas), state(id))).collect();
                nodes.push((2 * replicas + 1, 0, NodeState::Down));
                let view = view(&nodes);
                for mask in 0u32..1 << nodes.len() {
                    let (a, b): (Vec<u16>, Vec<u16>) =
                        nodes.iter().map(|n| n.0).partition(|&id| mask >> (id - 1) & 1 == 1);
                    let with = verdict(&view, &side(&a));
                    let without: Vec<u16> = a.iter().copied().filter(|id| *id != filling).collect();
                    assert_eq!(with, verdict(&view, &side(&without)));
                    assert!(with != Verdict::Win || matches!(verdict(&view, &side(&b)), Verdict::Lose(_)));
                }
            }
        }
    }
}
