//! Who was removed when, as a native client hears it.
//!
//! A client of its own is told every view by the data nodes it is linked to. It is asked for the newest one each [`LOOK`]; a node that was a
//! member in the view before and is none in this one, or is another start of the process, was removed.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    time::Duration,
};

use apus_signal::view::View;
use serde_json::{Value, json};

use super::stream::{Load, now_ns};
use crate::{
    bench::cluster::{connect, on_this_thread},
    discover::Access,
};

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(1);

/// Nodes that left the cluster together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Removal {
    pub at_ns: u64,
    pub nodes: Vec<u32>,
}

impl Removal {
    pub fn to_json(&self, since_ns: u64) -> Value {
        json!({ "nodes": self.nodes, "after_ms": super::record::ms(self.at_ns.saturating_sub(since_ns)) })
    }
}

/// All removals since the probe began.
#[derive(Default)]
pub struct Removals(Mutex<Vec<Removal>>);

impl Removals {
    pub fn list(&self) -> MutexGuard<'_, Vec<Removal>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The members of `before` that `after` does not have any more.
fn removed(before: &View, after: &View) -> Vec<u32> {
    let stays = |id: u32, incarnation: u64| after.living().any(|n| n.id == id && n.incarnation == incarnation);
    before.living().filter(|n| !stays(n.id, n.incarnation)).map(|n| n.id).collect()
}

/// Looks at the cluster's views until the load stops.
///
/// # Errors
/// No data node serves at the beginning.
pub fn watch(load: &Arc<Load>, mgmt: &Access) -> Result<(), String> {
    on_this_thread(async {
        let client = connect(mgmt, 0).await?;
        let mut known = client.view();
        while !load.stop.load(Ordering::Relaxed) {
            tokio::time::sleep(LOOK).await;
            let view = client.view();
            if view.generation == known.generation && view.cluster == known.cluster {
                continue;
            }
            let nodes = removed(&known, &view);
            if !nodes.is_empty() {
                load.removals.list().push(Removal { at_ns: now_ns(), nodes });
            }
            known = view;
        }
        Ok(())
    })?
}

#[cfg(test)]
mod tests {
    use apus_signal::view::{NodeState, ViewNode};

    use super::*;

    fn view(nodes: &[(u32, NodeState, u64)]) -> View {
        let node = |&(id, state, incarnation): &(u32, NodeState, u64)| {
            let mut node = ViewNode { id, incarnation, ..ViewNode::default() };
            node.set_state(state);
            node
        };
        View { nodes: nodes.iter().map(node).collect(), ..View::default() }
    }

    #[test]
    fn who_left_is_told_and_who_joined_is_not() {
        use NodeState::{Down, Recovering, Up};
        let before = view(&[(1, Up, 1), (2, Up, 1), (3, Recovering, 1), (4, Down, 1)]);
        assert!(removed(&before, &before).is_empty());
        assert!(removed(&before, &view(&[(1, Up, 1), (2, Up, 1), (3, Up, 1), (4, Recovering, 2)])).is_empty());
        assert_eq!(removed(&before, &view(&[(1, Up, 1), (2, Down, 1), (3, Down, 1), (4, Down, 1)])), [2, 3]);
        // Gone and back again between two looks.
        assert_eq!(removed(&before, &view(&[(1, Up, 1), (2, Recovering, 2), (3, Up, 1)])), [2]);
        assert_eq!(removed(&before, &view(&[])), [1, 2, 3]);
    }
}
