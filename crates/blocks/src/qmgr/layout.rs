//! Making views: the first one, and each from the one before.

use std::collections::BTreeMap;

use apus_signal::{
    mgmt::{ClusterConfig, Setting},
    qmgr::Incarnation,
    view::{NodeState, View, ViewNode},
};
use apus_types::{Chain, NodeId, PartitionId};

use super::LINEAGE_STEP;

/// A node that can become a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    pub incarnation: u64,
    pub address: String,
    /// It has everything up to this epoch, as the view's lineage had it.
    pub restored: u64,
}

/// The first view: every candidate is a full member, in the order of ids. `None` when the configuration does not allow it.
pub fn first(
    config: &ClusterConfig,
    candidates: &BTreeMap<NodeId, Candidate>,
    arbitrator: Incarnation,
    lineage: u64,
) -> Option<View> {
    let mut nodes = Vec::new();
    for (&id, candidate) in candidates {
        nodes.push(ViewNode {
            id: id.0.into(),
            state: NodeState::Up as i32,
            incarnation: candidate.incarnation,
            group: config.nodes.iter().find(|n| n.id == u32::from(id.0))?.group,
            join_order: nodes.len() as u64 + 1,
            address: candidate.address.clone(),
            restored: 0,
            left: false,
        });
    }
    let view = View {
        generation: 1,
        president: nodes.first()?.id,
        chains: chains(config, &nodes)?,
        nodes,
        instances: config.instances,
        bucket_map: Vec::new(),
        silence_ms: config.silence_ms,
        eject_slow_ms: config.eject_slow_ms,
        cluster: config.cluster,
        arbitrator: arbitrator.node,
        arbitrator_incarnation: arbitrator.incarnation,
        lineage,
        tie_breaker: 0,
        settles: 0,
        durability: config.durability,
        gcp_interval_ms: 0,
        speeds: None,
    };
    view.check().then_some(view)
}

/// Partition p belongs to group p mod groups. Its primary is the member of the group that is primary of the fewest partitions
/// so far, then on the fewest of the same LDM instance, so that neither nodes nor threads are loaded unevenly.
fn chains(config: &ClusterConfig, nodes: &[ViewNode]) -> Option<Vec<u32>> {
    let mut groups: BTreeMap<u32, Vec<NodeId>> = config.nodes.iter().map(|n| (n.group, Vec::new())).collect();
    for node in nodes {
        groups.get_mut(&node.group)?.push(node.node());
    }
    let groups: Vec<Vec<NodeId>> = groups.into_values().collect();
    if groups.is_empty()
        || groups.iter().any(|g| g.is_empty() || g.len() > Chain::REPLICAS_MAX)
        || config.instances == 0
    {
        return None;
    }
    let mut primaries: BTreeMap<NodeId, u32> = BTreeMap::new();
    let mut on_instance: BTreeMap<(NodeId, u32), u32> = BTreeMap::new();
    let mut chains = Vec::new();
    for partition in 0..config.partitions {
        let group = &groups[partition as usize % groups.len()];
        let instance = partition % config.instances;
        let load = |n: &NodeId| {
            (primaries.get(n).copied().unwrap_or(0), on_instance.get(&(*n, instance)).copied().unwrap_or(0))
        };
        let first = (0..group.len()).min_by_key(|&i| load(&group[i]))?;
        let order: Vec<NodeId> = (0..group.len()).map(|i| group[(first + i) % group.len()]).collect();
        *primaries.entry(order[0]).or_default() += 1;
        *on_instance.entry((order[0], instance)).or_default() += 1;
        chains.push(Chain::new(&order).0);
    }
    Some(chains)
}

fn successor(base: &View, president: NodeId) -> View {
    View { generation: base.generation + 1, president: president.0.into(), ..base.clone() }
}

/// Without the nodes for which `gone` holds: the next living one of each chain is its primary in the same step.
pub fn without(base: &View, president: NodeId, gone: impl Fn(NodeId) -> bool) -> View {
    let mut view = successor(base, president);
    for node in view.nodes.iter_mut().filter(|n| gone(n.node())) {
        node.set_state(NodeState::Down);
    }
    for chain in &mut view.chains {
        *chain = Chain(*chain).retain(|n| !gone(n)).0;
    }
    if view.tie_breaker != 0 && gone(NodeId(view.tie_breaker as u16)) {
        view.tie_breaker = view.president;
    }
    view
}

/// Sides meet: without those, and all that was open is settled.
pub fn settled(base: &View, president: NodeId, gone: impl Fn(NodeId) -> bool) -> View {
    View { settles: base.generation + 1, ..without(base, president, gone) }
}

/// Without those, as the first view of another lineage.
pub fn resumed(base: &View, president: NodeId, lineage: u64, gone: impl Fn(NodeId) -> bool) -> View {
    View { lineage, generation: base.generation + LINEAGE_STEP, ..without(base, president, gone) }
}

/// With more nodes, recovering, at the end of every chain of their groups. A node that the configuration does not know, or
/// whose group is full, is left out.
pub fn with(base: &View, president: NodeId, config: &ClusterConfig, joining: &BTreeMap<NodeId, Candidate>) -> View {
    let mut view = successor(base, president);
    let groups = config.nodes.iter().map(|n| n.group).collect::<std::collections::BTreeSet<_>>();
    for (&id, candidate) in joining {
        let Some(configured) = config.nodes.iter().find(|n| n.id == u32::from(id.0)) else { continue };
        let join_order = view.nodes.iter().map(|n| n.join_order).max().unwrap_or(0) + 1;
        let node = ViewNode {
            id: id.0.into(),
            state: NodeState::Recovering as i32,
            incarnation: candidate.incarnation,
            group: configured.group,
            join_order,
            address: candidate.address.clone(),
            restored: candidate.restored,
            left: false,
        };
        view.nodes.retain(|n| n.id != node.id);
        view.nodes.push(node);
        view.nodes.sort_by_key(|n| n.id);
        let Some(group_no) = groups.iter().position(|&g| g == configured.group) else { continue };
        for (partition, chain) in view.chains.iter_mut().enumerate() {
            let mut nodes: Vec<NodeId> = Chain(*chain).nodes().collect();
            if partition % groups.len() == group_no && nodes.len() < Chain::REPLICAS_MAX && !nodes.contains(&id) {
                nodes.push(id);
                *chain = Chain::new(&nodes).0;
            }
        }
    }
    view
}

/// With a recovered node as a full member. Its place in the chains stays: who was primary goes on being it.
pub fn promoted(base: &View, president: NodeId, recovered: impl Fn(&ViewNode) -> bool) -> View {
    let mut view = successor(base, president);
    for node in &mut view.nodes {
        if node.state() == NodeState::Recovering && recovered(node) {
            node.set_state(NodeState::Up);
        }
    }
    view
}

/// With other settings.
pub fn with_settings(base: &View, president: NodeId, setting: &Setting) -> View {
    View {
        silence_ms: setting.silence_ms.unwrap_or(base.silence_ms),
        eject_slow_ms: setting.eject_slow_ms.unwrap_or(base.eject_slow_ms),
        durability: setting.durability.unwrap_or(base.durability),
        gcp_interval_ms: setting.gcp_interval_ms.unwrap_or(base.gcp_interval_ms),
        speeds: setting.checkpoint_speeds.map(|wish| wish.or(&base.speeds.unwrap_or_default())).or(base.speeds),
        ..successor(base, president)
    }
}

/// With another arbitrator.
pub fn arbitrated(base: &View, president: NodeId, arbitrator: Incarnation) -> View {
    let mut view = successor(base, president);
    (view.arbitrator, view.arbitrator_incarnation) = (arbitrator.node, arbitrator.incarnation);
    view.tie_breaker = 0;
    view
}

/// Without an arbitrator: of two halves the president's goes on.
pub fn unarbitrated(base: &View, president: NodeId) -> View {
    let mut view = successor(base, president);
    (view.arbitrator, view.arbitrator_incarnation) = (0, 0);
    view.tie_breaker = view.president;
    view
}

/// Primaries counted more: an even load of the nodes comes before an even load of their threads.
const NODE_WEIGHT: i64 = 1000;

/// With the primaries of each group spread evenly over its full members and their instances, by as few moves as that takes; `None` if they
/// are. Each move puts a member of the chain in front of the others, who keep their order. Groups with a recovering node are left alone.
pub fn spread(base: &View, president: NodeId) -> Option<View> {
    let mut view = successor(base, president);
    let chains: Vec<Chain> = base.chains.iter().map(|&c| Chain(c)).collect();
    let is_settled = |chain: &Chain| chain.len() > 1 && chain.nodes().all(|n| base.state(n) == NodeState::Up);
    let mut primaries: BTreeMap<NodeId, i64> = BTreeMap::new();
    let mut on_instance: BTreeMap<(NodeId, u8), i64> = BTreeMap::new();
    for (partition, chain) in (0..).map(PartitionId).zip(&chains) {
        if let Some(primary) = chain.primary() {
            *primaries.entry(primary).or_default() += 1;
            *on_instance.entry((primary, base.instance(partition))).or_default() += 1;
        }
    }
    // Each step lowers the sum of the squares of all counts, so it ends.
    loop {
        let mut best: Option<(i64, usize, NodeId)> = None;
        for (at, &word) in view.chains.iter().enumerate().filter(|(at, _)| is_settled(&chains[*at])) {
            let (chain, instance) = (Chain(word), base.instance(PartitionId(at as u16)));
            let Some(from) = chain.primary() else { continue };
            for to in chain.nodes().skip(1) {
                let count = |n: NodeId| primaries.get(&n).copied().unwrap_or(0);
                let there = |n: NodeId| on_instance.get(&(n, instance)).copied().unwrap_or(0);
                let gain = NODE_WEIGHT * (count(from) - count(to) - 1) + there(from) - there(to) - 1;
                if gain > 0 && best.is_none_or(|b| gain > b.0) {
                    best = Some((gain, at, to));
                }
            }
        }
        let Some((_, at, to)) = best else { break };
        let (chain, instance) = (Chain(view.chains[at]), base.instance(PartitionId(at as u16)));
        if let Some(from) = chain.primary() {
            *primaries.entry(from).or_default() -= 1;
            *on_instance.entry((from, instance)).or_default() -= 1;
        }
        *primaries.entry(to).or_default() += 1;
        *on_instance.entry((to, instance)).or_default() += 1;
        view.chains[at] = with_primary(chain, to).0;
    }
    (view.chains != base.chains).then_some(view)
}

/// The chain with one of its nodes in front.
fn with_primary(chain: Chain, primary: NodeId) -> Chain {
    let others = chain.nodes().filter(|&n| n != primary);
    Chain::new(&std::iter::once(primary).chain(others).collect::<Vec<_>>())
}

#[cfg(test)]
pub(crate) mod tests {
    use apus_signal::mgmt::ConfigNode;

    use super::*;

    const NOBODY: Incarnation = Incarnation { node: 0, incarnation: 0 };

    pub(crate) fn config(groups: u32, replicas: u32, instances: u32, partitions: u32) -> ClusterConfig {
        let node = |i: u32| ConfigNode { id: i + 1, group: i / replicas, ..ConfigNode::default() };
        ClusterConfig {
            cluster: 77,
            nodes: (0..groups * replicas).map(node).collect(),
            replicas,
            instances,
            partitions,
            heartbeat_ms: 10,
            heartbeat_timeout_ms: 500,
            silence_ms: 0,
            eject_slow_ms: 0,
            durability: 0,
            start_partial_timeout_ms: 10_000,
            mgmts: vec![u32::from(NodeId::MGMT_BASE) + 1],
            founded: 0,
            given_up: 0,
            fences: None,
        }
    }
    fn candidates(ids: impl Iterator<Item = u16>) -> BTreeMap<NodeId, Candidate> {
        ids.map(|id| {
            (NodeId(id), Candidate { incarnation: u64::from(id) * 10, address: format!("n{id}"), restored: 0 })
        })
        .collect()
    }

    #[test]
    fn primaries_are_spread_over_nodes_and_instances() {
        for (groups, replicas, instances, partitions) in
            [(1, 2, 4, 8), (2, 2, 2, 16), (1, 3, 2, 12), (1, 1, 2, 4), (2, 4, 1, 16)]
        {
            let config = config(groups, replicas, instances, partitions);
            let view = first(&config, &candidates(1..=(groups * replicas) as u16), NOBODY, 1).unwrap();
            let mut count: BTreeMap<NodeId, u32> = BTreeMap::new();
            for &chain in &view.chains {
                assert_eq!(Chain(chain).len(), replicas as usize);
                *count.entry(Chain(chain).primary().unwrap()).or_default() += 1;
            }
            let (least, most) = (count.values().min().unwrap(), count.values().max().unwrap());
            assert!(count.len() as u32 == groups * replicas && most - least <= 1, "{count:?}");
        }
        let view = first(&config(1, 2, 4, 8), &candidates(1..=2), NOBODY, 1).unwrap();
        for node in [1u16, 2] {
            let instances: std::collections::BTreeSet<usize> =
                (0..8).filter(|&p| Chain(view.chains[p]).primary() == Some(NodeId(node))).map(|p| p % 4).collect();
            assert_eq!(instances.len(), 4, "node {node} is primary on every instance");
        }
    }

    #[test]
    fn a_group_without_a_candidate_makes_no_view() {
        assert!(first(&config(2, 2, 1, 4), &candidates(1..=2), NOBODY, 1).is_none());
        assert!(first(&config(2, 2, 1, 4), &candidates([1, 4].into_iter()), NOBODY, 1).is_some());
        assert!(first(&config(1, 2, 1, 4), &candidates([9].into_iter()), NOBODY, 1).is_none(), "not configured");
    }

    #[test]
    fn out_and_in_again() {
        let config = config(2, 2, 1, 4);
        let view = first(&config, &candidates(1..=4), NOBODY, 1).unwrap();
        let less = without(&view, NodeId(2), |n| n == NodeId(1));
        assert_eq!((less.generation, less.president), (2, 2));
        assert!(!less.is_alive(NodeId(1)) && less.chains.iter().all(|&c| !Chain(c).contains(NodeId(1))));
        assert_eq!(Chain(less.chains[0]).primary(), Some(NodeId(2)));
        let more = with(&less, NodeId(2), &config, &candidates(1..=1));
        assert_eq!(more.state(NodeId(1)), NodeState::Recovering);
        assert_eq!(more.node(NodeId(1)).unwrap().join_order, 5);
        assert_eq!(Chain(more.chains[0]), Chain::new(&[NodeId(2), NodeId(1)]));
        assert!(!Chain(more.chains[1]).contains(NodeId(1)), "the other group's");
        let full = promoted(&more, NodeId(2), |_| true);
        assert_eq!(full.state(NodeId(1)), NodeState::Up);
        assert_eq!(full.chains, more.chains);
    }
    #[test]
    fn after_a_rejoin_the_primaries_are_spread_again() {
        for (groups, replicas, instances, partitions) in
            [(1, 2, 4, 8), (2, 2, 2, 16), (1, 3, 2, 12), (2, 4, 1, 16), (1, 2, 1, 1), (1, 2, 3, 7)]
        {
            let config = config(groups, replicas, instances, partitions);
            let view = first(&config, &candidates(1..=(groups * replicas) as u16), NOBODY, 1).unwrap();
            assert_eq!(spread(&view, NodeId(2)), None, "a first view is even");
            let less = without(&view, NodeId(2), |n| n == NodeId(1));
            let more = with(&less, NodeId(2), &config, &candidates(1..=1));
            let recovering = spread(&more, NodeId(2));
            assert!(recovering.is_none_or(|v| v.chains.iter().all(|&c| Chain(c).primary() != Some(NodeId(1)))));
            let full = promoted(&more, NodeId(2), |_| true);
            let even = spread(&full, NodeId(2)).unwrap_or_else(|| full.clone());
            for group in 0..groups {
                let mut nodes = BTreeMap::new();
                let mut threads = BTreeMap::new();
                for member in full.nodes.iter().filter(|n| n.group == group) {
                    nodes.insert(member.node(), 0);
                    threads.extend((0..instances).map(|i| ((member.node(), i), 0)));
                }
                for (p, &chain) in (0u32..).zip(&even.chains).filter(|(p, _)| p % groups == group) {
                    let primary = Chain(chain).primary().unwrap();
                    *nodes.get_mut(&primary).unwrap() += 1;
                    *threads.get_mut(&(primary, p % instances)).unwrap() += 1;
                    let mut same: Vec<_> = Chain(chain).nodes().chain(Chain(full.chains[p as usize]).nodes()).collect();
                    same.sort();
                    same.dedup();
                    assert_eq!(same.len(), Chain(chain).len(), "the same nodes in another order");
                }
                let range = |counts: Vec<i32>| counts.iter().max().unwrap() - counts.iter().min().unwrap();
                assert!(range(nodes.values().copied().collect()) <= 1, "{nodes:?}");
                for i in (0..instances).filter(|_| replicas == 2) {
                    let on_it = threads.iter().filter(|((_, instance), _)| *instance == i).map(|(_, n)| *n);
                    assert!(range(on_it.collect()) <= 1, "{threads:?}");
                }
            }
            assert_eq!(spread(&even, NodeId(2)), None, "once is enough");
        }
    }
}
