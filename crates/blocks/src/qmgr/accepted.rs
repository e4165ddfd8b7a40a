//! What a start from the disks makes of views that were accepted, and of which no disk knows whether they were committed.
//!
//! **Promotions.** A node that is promoted is a full member, and may go on without all those that were full before it: they die, it is half of what is left, or more. Its global
//! checkpoints are on its own disk then, and no disk of the others need have a view with it, for a view gets to the disks with a global checkpoint only. So whoever accepts a promotion
//! syncs that before he says so ([`super::keep`]), and whoever finds it on a disk waits for the promoted node, too. If that one has no later view either, nothing became restorable since, and it is not counted on: what its
//! disk has may be of before it was filled.
//!
//! **Why the full members of the newest view are enough then.** Let V be the newest view that the disks know, and all its full members here. The view after V was accepted by one of them. If it promotes
//! somebody, that one's disk says so, and he is waited for; else its full members are among those of V. By induction so are those of all later views, until one promotes
//! somebody and is known. An epoch that became restorable in any of them is in the log of each of its full members, with a mark that names the view: so a disk that is here would know a view later than V.

use std::collections::BTreeMap;

use apus_signal::{
    qmgr::Holding,
    view::{NodeState, View},
};
use apus_types::NodeId;

use super::freeze::full;

/// Some full member of `next` is none of `base`.
pub(super) fn promotes(base: &View, next: &View) -> bool {
    full(next).any(|n| base.state(n.node()) != NodeState::Up)
}

/// `newest` with those who are missing that later views of its lineage have as full members, as far as those who are here have accepted them.
pub(super) fn with_promoted(newest: &View, holdings: &BTreeMap<NodeId, Holding>) -> View {
    let mut view = newest.clone();
    let is_later = |v: &&View| v.lineage == newest.lineage && v.generation > newest.generation && v.check();
    let accepted = holdings.values().flat_map(|h| &h.accepted).filter(is_later);
    for promoted in accepted.flat_map(full).filter(|n| !holdings.contains_key(&n.node())) {
        match view.nodes.iter_mut().find(|n| n.id == promoted.id) {
            Some(known) if known.state() != NodeState::Up => *known = promoted.clone(),
            Some(_) => {}
            None => view.nodes.push(promoted.clone()),
        }
    }
    view
}

#[cfg(test)]
mod tests {
    use NodeState::{Down, Recovering, Up};
    use apus_signal::view::ViewNode;

    use super::*;

    fn view(generation: u64, nodes: &[(u32, NodeState)]) -> View {
        let node = |&(id, state): &(u32, NodeState)| ViewNode { id, state: state as i32, ..ViewNode::default() };
        let nodes = nodes.iter().map(node).collect();
        View { lineage: 3, generation, instances: 1, nodes, ..View::default() }
    }
    fn counted(newest: &View, accepted: &[View]) -> Vec<u32> {
        let holding = Holding { accepted: accepted.to_vec(), ..Holding::default() };
        full(&with_promoted(newest, &BTreeMap::from([(NodeId(1), holding)]))).map(|n| n.id).collect()
    }

    #[test]
    fn whoever_may_have_been_promoted_is_waited_for() {
        let newest = view(7, &[(1, Up), (2, Recovering), (3, Down)]);
        assert_eq!(counted(&newest, &[]), [1]);
        let promoted = view(8, &[(1, Up), (2, Up), (3, Down)]);
        assert_eq!(counted(&newest, std::slice::from_ref(&promoted)), [1, 2]);
        assert_eq!(counted(&newest, &[view(8, &[(2, Up), (4, Up)])]), [1, 2, 4], "the others are counted still");
        let here = BTreeMap::from([1, 2].map(|n| {
            let accepted = vec![promoted.clone()];
            (NodeId(n), Holding { accepted, ..Holding::default() })
        }));
        assert_eq!(full(&with_promoted(&newest, &here)).count(), 1, "it has come, and has not gone on");
        assert_eq!(counted(&newest, &[View { generation: 7, ..promoted.clone() }]), [1], "it is no later one");
        assert_eq!(counted(&newest, &[View { lineage: 4, ..promoted.clone() }]), [1], "of another lineage");
        assert!(promotes(&newest, &promoted) && !promotes(&promoted, &newest));
    }
}
