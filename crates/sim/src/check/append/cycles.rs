//! Cycles of forbidden shapes: strongly connected components first, then a short cycle in each.
//!
//! A shape is a kind of walk: over some kinds of edges, perhaps never over two anti-dependencies in a row. For the latter the search
//! runs over pairs of a node and whether the last edge was an anti-dependency, so that one linear search decides SNAPSHOT too.

use std::collections::VecDeque;

use super::{
    Claim, Class, History, Level, Order,
    graph::{Edge, Graph, ORDER, RW, THEN, WR, WW},
    report::Report,
};

/// Cycles shown per shape; of the others only the components are counted.
const CYCLES_MAX: usize = 8;
/// Edges that the searches for short cycles of one component may look at.
const SEARCH_MAX: usize = 8_000_000;
/// States of a component from which a short cycle is searched.
const STARTS_MAX: usize = 64;
const UNVISITED: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Shape {
    kinds: u8,
    /// No two anti-dependencies in a row.
    spaced: bool,
}

impl Shape {
    /// The state after an edge, if the walk may go over it.
    #[inline]
    fn step(self, state: u32, edge: &Edge) -> Option<u32> {
        if edge.kind & self.kinds == 0 {
            return None;
        }
        let is_rw = u32::from(edge.kind == RW && self.spaced);
        (is_rw & state & 1 == 0).then_some(edge.to << 1 | is_rw)
    }
}

pub(super) fn check(history: &History, graph: &Graph, claim: Claim, report: &mut Report) {
    let order = if claim.order == Order::None { 0 } else { ORDER };
    let mut shapes = vec![Shape { kinds: WW | THEN, spaced: false }, Shape { kinds: WW | WR | THEN, spaced: false }];
    if claim.level >= Level::Snapshot {
        shapes.push(Shape { kinds: WW | WR | RW, spaced: true });
    }
    if matches!(claim.level, Level::SnapshotReads | Level::Serializable) {
        shapes.push(Shape { kinds: WW | WR | RW | THEN, spaced: false });
    }
    let Some(widest) = shapes.last().copied() else { return };
    let widest = Shape { kinds: widest.kinds | order, ..widest };
    // Mostly there is nothing, and one search says so.
    let everything = components(graph, widest, None);
    if everything.is_empty() {
        return;
    }
    let mut suspects = vec![false; graph.len()];
    for &state in everything.iter().flatten() {
        suspects[(state >> 1) as usize] = true;
    }
    // First what the data alone shows.
    let rounds: &[u8] = if order == 0 { &[0] } else { &[0, ORDER] };
    for with_order in rounds {
        for shape in &shapes {
            let shape = Shape { kinds: shape.kinds | with_order, ..*shape };
            for component in components(graph, shape, Some(&suspects)).iter().take(CYCLES_MAX) {
                let cycle = short_cycle(graph, shape, component);
                present(history, graph, &cycle, claim.order, report);
            }
        }
    }
}

/// Components of more than one state, by Tarjan's algorithm with a stack of its own; within `only` if given.
fn components(graph: &Graph, shape: Shape, only: Option<&[bool]>) -> Vec<Vec<u32>> {
    let states = graph.len() * 2;
    let mut index = vec![UNVISITED; states];
    let mut low = vec![0u32; states];
    let mut on_stack = vec![false; states];
    let mut stack: Vec<u32> = Vec::new();
    let mut calls: Vec<(u32, u32)> = Vec::new();
    let mut next = 0;
    let mut found = Vec::new();
    let allowed = |node: u32| only.is_none_or(|only| only[node as usize]);
    // Only states of the even half are roots: the odd ones are reached, or lie on no cycle.
    for root in (0..graph.len() as u32).filter(|n| allowed(*n)).map(|n| n << 1) {
        if index[root as usize] != UNVISITED {
            continue;
        }
        calls.push((root, 0));
        while let Some(&mut (state, ref mut at)) = calls.last_mut() {
            if *at == 0 {
                (index[state as usize], low[state as usize]) = (next, next);
                next += 1;
                stack.push(state);
                on_stack[state as usize] = true;
            }
            let edges = graph.of(state >> 1);
            let mut deeper = None;
            while let Some(edge) = edges.get(*at as usize) {
                *at += 1;
                let Some(to) = shape.step(state, edge).filter(|to| allowed(to >> 1)) else { continue };
                if index[to as usize] == UNVISITED {
                    deeper = Some(to);
                    break;
                } else if on_stack[to as usize] {
                    low[state as usize] = low[state as usize].min(index[to as usize]);
                }
            }
            if let Some(to) = deeper {
                calls.push((to, 0));
                continue;
            }
            calls.pop();
            if let Some((parent, _)) = calls.last() {
                low[*parent as usize] = low[*parent as usize].min(low[state as usize]);
            }
            if low[state as usize] == index[state as usize] {
                let start = stack.iter().rposition(|s| *s == state).unwrap_or(0);
                for member in &stack[start..] {
                    on_stack[*member as usize] = false;
                }
                if stack.len() - start > 1 {
                    found.push(stack[start..].to_vec());
                }
                stack.truncate(start);
            }
        }
    }
    found
}

/// The steps of a short cycle: nodes with the edges that leave them.
fn short_cycle(graph: &Graph, shape: Shape, component: &[u32]) -> Vec<(u32, Edge)> {
    let mut member: Vec<u32> = component.to_vec();
    member.sort_unstable();
    let place = |state: u32| member.binary_search(&state).ok();
    let mut best: Vec<(u32, Edge)> = Vec::new();
    let mut budget = SEARCH_MAX;
    // States after an anti-dependency first: in a spaced walk their cycles are the shortest with few of them.
    let mut starts: Vec<u32> = member.iter().copied().filter(|s| graph.txn_of(s >> 1).is_some()).collect();
    starts.sort_by_key(|s| (s & 1 == 0, *s));
    for start in starts.into_iter().take(STARTS_MAX) {
        let mut came: Vec<Option<(u32, Edge)>> = vec![None; member.len()];
        let mut queue = VecDeque::from([start]);
        'search: while let Some(state) = queue.pop_front() {
            for edge in graph.of(state >> 1) {
                budget = budget.saturating_sub(1);
                let Some(to) = shape.step(state, edge) else { continue };
                let Some(at) = place(to) else { continue };
                if came[at].is_none() {
                    came[at] = Some((state, *edge));
                    if to == start {
                        break 'search;
                    }
                    queue.push_back(to);
                }
            }
        }
        let mut cycle = Vec::new();
        let mut state = start;
        while let Some((before, edge)) = place(state).and_then(|at| came[at]) {
            cycle.push((before >> 1, edge));
            state = before;
            if state == start {
                break;
            }
        }
        cycle.reverse();
        let weight = |cycle: &[(u32, Edge)]| {
            let count = |kind| cycle.iter().filter(|(_, e)| e.kind == kind).count();
            (count(RW), count(ORDER) > 0, cycle.len())
        };
        if !cycle.is_empty() && (best.is_empty() || weight(&cycle) < weight(&best)) {
            best = cycle;
        }
        if budget == 0 {
            break;
        }
    }
    best
}

/// Names the cycle and gives it to the report, without its barriers.
fn present(history: &History, graph: &Graph, cycle: &[(u32, Edge)], order: Order, report: &mut Report) {
    if cycle.is_empty() {
        return;
    }
    let edges: Vec<u8> = cycle.iter().filter(|(node, _)| graph.txn_of(*node).is_some()).map(|(_, e)| e.kind).collect();
    let count = |kind: u8| edges.iter().filter(|e| **e == kind).count();
    let neighbours = edges.iter().zip(edges.iter().cycle().skip(1)).any(|(a, b)| *a == RW && *b == RW);
    let class = match (count(RW), count(WR)) {
        (0, 0) => Class::G0,
        (0, _) => Class::G1c,
        (1, _) => Class::GSingle,
        _ if !neighbours => Class::GNonadjacent,
        _ => Class::G2Item,
    };
    let order = if count(ORDER) > 0 { order } else { Order::None };
    // From the first transaction of the cycle on.
    let named =
        cycle.iter().enumerate().filter_map(|(i, (node, _))| Some((graph.txn_of(*node)?, *node < graph.txns, i)));
    let first = named.min().map_or(0, |(_, _, i)| i);
    let mut steps: Vec<(u32, Edge)> = Vec::new();
    for i in 0..cycle.len() {
        let (node, edge) = cycle[(first + i) % cycle.len()];
        if let Some(txn) = graph.txn_of(node) {
            steps.push((txn, edge));
        }
    }
    for i in 0..steps.len() {
        steps[i].1.to = steps[(i + 1) % steps.len()].0;
    }
    report.add_cycle(history, class, order, &steps);
}
