//! Which node is asked: computed once per change of the map or of the links, looked up per operation.

use apus_signal::view::{NodeState, View};
use apus_types::{NodeId, PartitionId};

/// No node.
pub(crate) const NOWHERE: u8 = 0;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Route {
    /// The primary if it is linked, else [`NOWHERE`].
    pub primary: u8,
    /// Where committed reads go first.
    pub read: u8,
    /// The same for a client that comes after this one: for who has many reads under way.
    pub beside: u8,
    pub instance: u8,
}

/// Routes of all partitions under `view`, given which nodes are linked.
///
/// Committed reads go to the preferred node where it holds a full replica, else to the primary, else to any full replica.
/// The preferred node is one of the full members, picked by `seed`, linked or not: clients with consecutive seeds spread evenly.
pub(crate) fn routes(view: &View, seed: u64, linked: impl Fn(NodeId) -> bool, out: &mut Vec<Route>) {
    let full = |node: NodeId| view.state(node) == NodeState::Up;
    let mut members: Vec<NodeId> = view.nodes.iter().map(|n| n.node()).filter(|&n| full(n)).collect();
    members.sort_unstable();
    let preferred = |seed: u64| members.get((seed % members.len().max(1) as u64) as usize).copied();
    out.clear();
    for number in 0..view.partition_count() {
        let partition = PartitionId(number);
        let chain = view.chain(partition);
        let usable = || chain.nodes().filter(|&n| full(n) && linked(n));
        let primary = chain.primary().filter(|&n| linked(n) && full(n));
        let near = |seed| preferred(seed).filter(|&n| usable().any(|u| u == n)).or(primary).or_else(|| usable().next());
        let (read, beside) = (near(seed), near(seed.wrapping_add(1)));
        let byte = |node: Option<NodeId>| node.and_then(|n| u8::try_from(n.0).ok()).unwrap_or(NOWHERE);
        let instance = view.instance(partition);
        out.push(Route { primary: byte(primary), read: byte(read), beside: byte(beside), instance });
    }
}

/// The replica to ask at a later attempt: the full, linked replicas in turn, primary first. `attempt` counts from 1.
pub(crate) fn other_replica(view: &View, partition: PartitionId, attempt: u32, linked: impl Fn(NodeId) -> bool) -> u8 {
    let chain = view.chain(partition);
    let usable = || chain.nodes().filter(|&n| view.state(n) == NodeState::Up && linked(n));
    let count = usable().count().max(1);
    let turn = attempt.saturating_sub(1) as usize % count;
    usable().nth(turn).and_then(|n| u8::try_from(n.0).ok()).unwrap_or(NOWHERE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use apus_signal::view::ViewNode;
    use apus_types::Chain;

    fn view() -> View {
        let node = |id, state: NodeState| ViewNode { id, state: state as i32, ..ViewNode::default() };
        let chain = |ids: &[u16]| Chain::new(&ids.iter().map(|&i| NodeId(i)).collect::<Vec<_>>()).0;
        View {
            nodes: vec![node(1, NodeState::Up), node(2, NodeState::Up), node(3, NodeState::Recovering)],
            chains: vec![chain(&[1, 2, 3]), chain(&[2, 1, 3])],
            instances: 2,
            ..View::default()
        }
    }

    #[test]
    fn reads_prefer_one_node_and_never_a_recovering_one() {
        let view = view();
        let mut out = Vec::new();
        routes(&view, 0, |_| true, &mut out);
        assert_eq!(out[0], Route { primary: 1, read: 1, beside: 2, instance: 0 });
        assert_eq!(out[1], Route { primary: 2, read: 1, beside: 2, instance: 1 });
        routes(&view, 1, |_| true, &mut out);
        assert_eq!((out[0].read, out[1].read, out[0].beside), (2, 2, 1));
        routes(&view, 0, |n| n == NodeId(2), &mut out);
        assert_eq!((out[0].primary, out[0].read, out[1].read), (NOWHERE, 2, 2));
        routes(&view, 2, |n| n == NodeId(3), &mut out);
        assert_eq!(out[0], Route { primary: NOWHERE, read: NOWHERE, beside: NOWHERE, instance: 0 });
        let turns: Vec<u8> = (1..4).map(|a| other_replica(&view, PartitionId(1), a, |_| true)).collect();
        assert_eq!(turns, [2, 1, 2]);
        assert_eq!(other_replica(&view, PartitionId(9), 1, |_| true), NOWHERE);
    }
}
