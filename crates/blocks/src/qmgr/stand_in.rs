//! Whose disks count for those of a node group that had just been filled when the cluster ended.
//!
//! A node that was filled is a full member from one view on, its promotion, and its log is whole from the first global checkpoint after that on. If it is
//! left alone in between and dies, the newest view has no full member of its group with a whole log, and whoever was full beside it is in no newer view.
//!
//! **Why others can stand in.** A global checkpoint ends when every full member has it in its log. So where the log of a full member says that
//! its process has saved nothing, no epoch has become restorable in a view that has this process as full. What was restorable before is on the
//! disk of each member that was full in the view of the promotion, as far as its log is whole: it has saved those epochs, or became full
//! later than they, and saved a later one. Of class `disk` nothing is lost; of class `replicated` what is younger, as with every loss of a whole group.
//!
//! **What proves it.** The promotion, in the file of views of the node that was filled ([`apus_signal::restart::Promotion`]), names its process, and so does
//! its log, from the first view of that process until its first mark. Both have to be the process that the newest view has as full: an old file beside
//! a log that was begun again, or the other way round, says nothing. Promotions of an earlier lineage do not count, for a side that was given up may have
//! saved what the other one does not have.

use std::collections::BTreeSet;

use apus_signal::{
    qmgr::Holding,
    restart::Promotion,
    view::{NodeState, View, ViewNode},
};
use apus_types::NodeId;

use super::freeze::full;

/// `newest` with the full members that count for a start from the disks; `holding`: of the nodes that are here; `abandoned`: an operator does without these.
pub(super) fn members<'a>(
    newest: &View,
    holding: impl Fn(NodeId) -> Option<&'a Holding>,
    abandoned: &BTreeSet<NodeId>,
) -> View {
    let mut view = newest.clone();
    let mut unsaved: BTreeSet<u32> = BTreeSet::new();
    while let Some((node, promotion)) = just_filled(&view, &holding, abandoned) {
        unsaved.insert(node.id);
        let stands_in =
            |n: &ViewNode| n.group == node.group && promotion.beside.contains(&n.id) && !unsaved.contains(&n.id);
        let candidates: Vec<u32> = view.nodes.iter().filter(|n| stands_in(n)).map(|n| n.id).collect();
        let is_whole = |id: &u32| holding(NodeId(*id as u16)).is_some_and(Holding::is_whole);
        // One is enough; as long as there is none, all are waited for.
        let whole: Vec<u32> = candidates.iter().copied().filter(is_whole).collect();
        let chosen = if whole.is_empty() { candidates } else { whole };
        for n in &mut view.nodes {
            if n.id == node.id {
                n.set_state(NodeState::Recovering);
            } else if chosen.contains(&n.id) {
                n.set_state(NodeState::Up);
            }
        }
    }
    view
}

/// A full member that has saved nothing, of a group of which no full member has a whole log.
fn just_filled<'a>(
    view: &View,
    holding: &impl Fn(NodeId) -> Option<&'a Holding>,
    abandoned: &BTreeSet<NodeId>,
) -> Option<(ViewNode, &'a Promotion)> {
    let counted = || full(view).filter(|n| !abandoned.contains(&n.node()));
    let lacks_data =
        |group: u32| counted().filter(|n| n.group == group).all(|n| holding(n.node()).is_some_and(|h| !h.is_whole()));
    counted().filter(|n| lacks_data(n.group)).find_map(|n| {
        let promotion = holding(n.node())?.promotion.as_ref()?;
        let is_of = (promotion.lineage, promotion.incarnation) == (view.lineage, n.incarnation);
        is_of.then(|| (n.clone(), promotion))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use NodeState::{Down, Recovering, Up};

    use super::*;

    fn view(nodes: &[(u32, u32, NodeState)]) -> View {
        let node = |&(id, group, state): &(u32, u32, NodeState)| ViewNode {
            id,
            group,
            state: state as i32,
            incarnation: u64::from(id) * 10,
            ..ViewNode::default()
        };
        View { lineage: 3, generation: 7, nodes: nodes.iter().map(node).collect(), ..View::default() }
    }
    fn whole() -> Holding {
        Holding { complete: true, ..Holding::default() }
    }
    fn filled(node: u32, beside: &[u32]) -> Holding {
        let promotion = Promotion { lineage: 3, incarnation: u64::from(node) * 10, beside: beside.to_vec() };
        Holding { promotion: Some(promotion), ..Holding::default() }
    }
    fn counted(newest: &View, here: &[(u16, Holding)]) -> Vec<u32> {
        let here: BTreeMap<NodeId, Holding> = here.iter().map(|(id, h)| (NodeId(*id), h.clone())).collect();
        let members = members(newest, |n| here.get(&n), &BTreeSet::new());
        full(&members).map(|n| n.id).collect()
    }

    #[test]
    fn who_was_full_beside_a_node_that_was_just_filled_stands_in_for_it() {
        let alone = view(&[(1, 0, Up), (2, 0, Down), (3, 0, Down), (4, 1, Up)]);
        assert_eq!(counted(&alone, &[(1, filled(1, &[2, 4]))]), [2, 4], "node 2 is waited for");
        assert_eq!(counted(&alone, &[(1, filled(1, &[2, 4])), (2, whole())]), [2, 4]);
        assert_eq!(counted(&alone, &[(1, filled(1, &[2, 3, 4])), (3, whole())]), [3, 4], "one is enough");
        assert_eq!(counted(&alone, &[(1, whole()), (2, whole())]), [1, 4], "its own is newer");
        assert_eq!(counted(&alone, &[(2, whole())]), [1, 4], "whether it has saved something only itself can tell");
        let two = view(&[(1, 0, Up), (2, 0, Up), (3, 0, Down), (4, 1, Up)]);
        let each = [(1, filled(1, &[3, 4])), (2, filled(2, &[1, 3, 4])), (3, whole())];
        assert_eq!(counted(&two, &each), [2, 3, 4]);
        assert_eq!(counted(&two, &each[..1]), [1, 2, 4], "node 2 may have it all");
        let one_after_the_other = [(1, filled(1, &[2])), (2, filled(2, &[3]))];
        assert_eq!(counted(&alone, &one_after_the_other), [3, 4], "they were filled from it");
        assert_eq!(counted(&two, &[(1, filled(1, &[2])), (2, filled(2, &[1]))]), [4], "nobody else ever had it");
    }

    #[test]
    fn a_promotion_of_another_process_or_lineage_says_nothing() {
        let alone = view(&[(1, 0, Up), (2, 0, Down)]);
        let later = |change: fn(&mut Promotion)| {
            let mut holding = filled(1, &[2]);
            holding.promotion.as_mut().map(change);
            counted(&alone, &[(1, holding), (2, whole())])
        };
        assert_eq!(later(|_| ()), [2]);
        assert_eq!(later(|p| p.incarnation += 1), [1]);
        assert_eq!(later(|p| p.lineage -= 1), [1]);
        assert_eq!(counted(&alone, &[(1, Holding::default()), (2, whole())]), [1], "it cannot tell");
        let filling = view(&[(1, 0, Recovering), (2, 0, Up)]);
        assert_eq!(counted(&filling, &[(1, filled(1, &[2])), (2, whole())]), [2]);
    }
}
