//! Who may stop a node: nobody who does not name its process, and nobody in another's name.

use apus_signal::{
    BlockId, BlockRef, DecodeError, Envelope, Kind,
    qmgr::{FailRep, Incarnation, StopOrd, encode},
};
use apus_types::{Epoch, NodeId};

use super::tests::{members, started};
use crate::harness::{Cluster, MGMT};

/// A signal to node 1's QMGR over the link of `source`, in the name of `speaker`.
pub(super) fn say(
    c: &mut Cluster,
    source: NodeId,
    speaker: NodeId,
    kind: Kind,
    write: impl FnOnce(&mut Vec<u8>),
) -> Result<usize, DecodeError> {
    let to = BlockRef::new(NodeId(1), BlockId::Qmgr, BlockRef::CONTROL);
    let from = BlockRef::new(speaker, if speaker.may_arbitrate() { BlockId::Mgmt } else { BlockId::Qmgr }, 0);
    let mut bytes = Vec::new();
    Envelope { kind, to, from, epoch: Epoch(0), trace: 0, generation: 0 }.encode(&mut bytes, write);
    c.node(1).worker.deliver_frames(source, &bytes)
}

fn incarnation(c: &Cluster) -> u64 {
    c.view(1).and_then(|v| v.node(NodeId(1)).map(|n| n.incarnation)).expect("node 1 is a member")
}

#[test]
fn an_order_to_stop_that_names_another_process_stops_nobody() {
    for source in [MGMT, NodeId(2)] {
        let mut c = started(1, 2);
        let own = incarnation(&c);
        let stop = |incarnation| StopOrd { reason: "because".to_owned(), incarnation, ..StopOrd::default() };
        for other in [0, 1, own - 1, own + 1, u64::MAX] {
            say(&mut c, source, source, Kind::StopOrd, |b| encode(&stop(other), b)).expect("a member's order");
            c.run_ms(50);
            assert_eq!(c.stopped(1), None, "incarnation {other} is not that of node 1");
        }
        assert_eq!(members(&c, 2), [1, 2]);
        say(&mut c, source, source, Kind::StopOrd, |b| encode(&stop(own), b)).expect("a member's order");
        c.run_ms(50);
        assert!(c.stopped(1).is_some_and(|reason| reason.contains("because")));
    }
}

#[test]
fn nobody_speaks_in_anothers_name_nor_beyond_his_role() {
    let mut c = started(1, 2);
    let own = Incarnation { node: 1, incarnation: incarnation(&c) };
    let stop = StopOrd { reason: "because".to_owned(), incarnation: own.incarnation, ..StopOrd::default() };
    let fail = FailRep { failed: Some(own), ..FailRep::default() };
    let client = NodeId(NodeId::CLIENT_BASE);
    // Over a management node's link as a data node, over a data node's as a management node, as ourselves.
    for (source, speaker) in [(MGMT, NodeId(2)), (NodeId(2), MGMT), (NodeId(2), NodeId(1)), (MGMT, NodeId(1))] {
        let said = say(&mut c, source, speaker, Kind::StopOrd, |b| encode(&stop, b));
        assert_eq!(said, Err(DecodeError), "{source} as {speaker}");
    }
    // A management node changes no view and is no part of a transaction; nobody reports our own links to us.
    for (source, kind) in [(MGMT, Kind::FailRep), (MGMT, Kind::ViewCommitOrd), (MGMT, Kind::LdmCommitOrd)]
        .into_iter()
        .chain([MGMT, NodeId(2)].map(|source| (source, Kind::LinkDownRep)))
    {
        let said = say(&mut c, source, source, kind, |b| encode(&fail, b));
        assert_eq!(said, Err(DecodeError), "{kind:?} of {source}");
    }
    // What a client says beyond its requests is refused and goes nowhere, in whosever name.
    for (kind, speaker) in [(Kind::StopOrd, MGMT), (Kind::FailRep, NodeId(2)), (Kind::StopOrd, client)] {
        let refused = c.node(1).worker.counters().refused;
        say(&mut c, client, speaker, kind, |b| encode(&stop, b)).expect("a client's link lives");
        assert_eq!(c.node(1).worker.counters().refused, refused + 1);
    }
    c.run_ms(100);
    assert_eq!((c.stopped(1), members(&c, 2)), (None, vec![1, 2]));
}
