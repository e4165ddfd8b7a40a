//! Snapshots: reading everything as of one moment.
//!
//! A snapshot is registered at one data node, which keeps the cluster from freeing what its readers need, and can be read at through any
//! client and any replica. It is given back when it is dropped, and with the client's link. If its node dies, if it is held for longer than ten
//! minutes or if data memory runs short, reads at it end with `SnapshotTooOld`.

use std::cell::Cell;

use apus_signal::{
    BlockId, BlockRef, Kind,
    epoch::{SnapshotConf, SnapshotReq},
    view::NodeState,
};
use apus_types::{Epoch, NodeId};

use crate::{Client, ClientError, client::refusal, core::table::Verdict, retry::Retry};

/// A moment to read at: name its [`Snapshot::epoch`] in [`crate::ReadBatch::snapshot`] and [`crate::ScanRequest::snapshot`].
pub struct Snapshot {
    client: Client,
    epoch: Epoch,
    node: NodeId,
    incarnation: u64,
    request: u64,
}

impl Snapshot {
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        let mut core = self.client.inner.core.borrow_mut();
        if self.request != 0 && core.incarnation(self.node) == Some(self.incarnation) {
            let end = SnapshotReq { request: self.request };
            core.send(BlockRef::new(self.node, BlockId::Dih, 0), Kind::SnapshotEndOrd, |out| end.encode(out));
        }
    }
}

impl Client {
    /// A snapshot of now: it has everything that was acknowledged to anybody before this call.
    ///
    /// # Errors
    /// `TooManySnapshots`; the last temporary error after `read_timeout_ms`.
    pub async fn snapshot(&self) -> Result<Snapshot, ClientError> {
        let mut retry = Retry::for_reads(self);
        let mut body = Vec::new();
        loop {
            let Some((node, incarnation)) = self.snapshot_node(retry.attempt()) else {
                retry.nowhere().await?;
                continue;
            };
            // Given back by its drop if the answer does not come, or comes too late.
            let mut snapshot = Snapshot { client: self.clone(), epoch: Epoch(0), node, incarnation, request: 0 };
            let to = BlockRef::new(node, BlockId::Dih, 0);
            self.room(node.0 as u8).await;
            let request = Cell::new(0);
            let call = self.call(to, Kind::SnapshotReq, Kind::SnapshotConf, retry.attempt_deadline(), |out, id| {
                request.set(id);
                SnapshotReq { request: id }.encode(out);
            });
            snapshot.request = request.get();
            let verdict = match call {
                Some(call) => Some(call.end(&mut body).await),
                None => None,
            };
            match verdict {
                Some(Verdict::Answer(Kind::SnapshotConf)) => match SnapshotConf::decode(&body) {
                    Ok(conf) if conf.epoch != Epoch(0) => {
                        snapshot.epoch = conf.epoch;
                        return Ok(snapshot);
                    }
                    _ => {
                        self.violation(node);
                        retry.failed(None).await?;
                    }
                },
                Some(Verdict::Answer(_)) => {
                    snapshot.request = 0;
                    retry.refused(refusal(&body)).await?;
                }
                lost => retry.failed(lost).await?,
            }
        }
    }

    /// A full member that is linked: the preferred one first.
    fn snapshot_node(&self, attempt: u32) -> Option<(NodeId, u64)> {
        let core = self.inner.core.borrow();
        let full = |n: &NodeId| core.view.state(*n) == NodeState::Up;
        let count = core.linked_nodes().filter(full).count().max(1) as u64;
        let turn = core.config.preferred_node_seed.wrapping_add(u64::from(attempt)) % count;
        let node = core.linked_nodes().filter(full).nth(turn as usize)?;
        Some((node, core.incarnation(node)?))
    }
}
