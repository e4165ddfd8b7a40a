//! DIH: the map of the cluster for clients, the epochs, and the snapshots that clients read at.
//!
//! Owns the list of clients that asked for the map; each new view is pushed to them (`MapRep`). At the president it drives the rounds that
//! complete epochs ([`rounds`]) and those that make them durable ([`saves`]); on every node it takes part in them and keeps the node's snapshots ([`snapshots`]). The messages are in
//! `apus_signal::epoch`.
//!
//! When the president dies the epoch stands still until the next view; no commit waits for it.
//! Limits: [`WATCHERS_MAX`] clients are remembered; one more replaces the one that asked longest ago and then sees a new map
//! only when it asks again (a refused request tells it to). A client whose link is gone is forgotten at the next push.
//! [`snapshots::SNAPSHOTS_MAX`] snapshots per node, each for [`snapshots::SNAPSHOT_AGE_NS`] at most.

mod rounds;
mod saves;
mod snapshots;
#[cfg(test)]
mod tests;

use std::{collections::VecDeque, fmt::Write};

use apus_kernel::{Block, Context};
use apus_signal::{
    BlockId, BlockRef, DecodeError, Envelope, Kind,
    dict::Dictionary,
    epoch::{Drained, EpochFloor, EpochOrd, SnapshotReq},
    gcp::{GcpHurry, GcpSave, Keep},
    qmgr::{decode, encode},
    tc::RequestRef,
    view::{ClusterMap, MapReq, NodeState, View},
};
use apus_types::{ErrorCode, NodeId};

use self::{rounds::Rounds, saves::Saves, snapshots::Snapshots};
use crate::NodeConfig;

/// Time between two rounds of epochs in nanoseconds, while nobody waits for one.
pub const EPOCH_NS: u64 = 10_000_000;
/// Time between two rounds while somebody does, on average: twice the time that a round takes, this at most. A few rounds after a time without hurry follow each other at once.
/// Of rounds that commits of class `disk` wait for there are at most two for each save, and those have the pace of the disks.
pub const HURRY_NS: u64 = 500_000;
/// So much of it may be drawn in advance: a snapshot takes two rounds.
pub const HURRY_AHEAD_NS: u64 = 8 * HURRY_NS;
/// What is not answered is sent again after this time.
pub const RESEND_NS: u64 = 50_000_000;
/// For how long versions are kept after the last reader at an epoch, in nanoseconds.
pub const LINGER_NS: u64 = 1_000_000_000;
/// Most clients that new maps are pushed to.
pub const WATCHERS_MAX: usize = 8192;

/// The distribution's keeper; see the module.
pub struct Distribution {
    me: NodeId,
    linger_ns: u64,
    /// Of this node, for its log.
    has_disk: bool,
    view: Option<View>,
    dictionary_version: u64,
    watchers: VecDeque<BlockRef>,
    rounds: Rounds,
    saves: Saves,
    snapshots: Snapshots,
}

impl Distribution {
    pub fn new(config: &NodeConfig) -> Distribution {
        Distribution {
            me: config.node,
            linger_ns: config.linger_ns,
            has_disk: config.disk.is_some(),
            view: None,
            dictionary_version: 0,
            watchers: VecDeque::new(),
            rounds: Rounds::default(),
            saves: Saves::default(),
            snapshots: Snapshots::default(),
        }
    }

    fn generation(&self) -> u64 {
        self.view.as_ref().map_or(0, |v| v.generation)
    }
    fn president(&self) -> Option<NodeId> {
        self.view.as_ref().and_then(|v| u16::try_from(v.president).ok()).filter(|&n| n != 0).map(NodeId)
    }
    fn is_up(&self) -> bool {
        self.view.as_ref().is_some_and(|v| v.state(self.me) == NodeState::Up)
    }

    fn map(&self, request: u64) -> ClusterMap {
        ClusterMap { request, view: self.view.clone(), schema_version: self.dictionary_version }
    }

    fn on_map_req(&mut self, from: BlockRef, req: MapReq, ctx: &mut Context<'_>) {
        if !self.is_up() {
            let refusal = RequestRef::new(req.request, ErrorCode::NodeStarting);
            ctx.send(from, Kind::RequestRef, |b| refusal.encode(b));
            return;
        }
        self.watchers.retain(|w| *w != from);
        if self.watchers.len() >= WATCHERS_MAX {
            self.watchers.pop_front();
        }
        self.watchers.push_back(from);
        ctx.send(from, Kind::MapConf, |b| encode(&self.map(req.request), b));
    }

    fn on_view(&mut self, view: View, ctx: &mut Context<'_>) {
        let (before, next) = (self.generation(), view.generation);
        assert!(next > before, "view {next} comes after {before}");
        self.view = Some(view);
        self.begin_saves();
        self.begin_rounds(ctx);
        self.begin_member(ctx);
        let map = self.map(0);
        // Links of clients may belong to other workers, so only those of our own can be known dead.
        let instances = u16::from(ctx.instances()).max(1);
        self.watchers.retain(|w| !(w.node.0 - NodeId::CLIENT_BASE).is_multiple_of(instances) || ctx.link_up(w.node));
        for &watcher in &self.watchers {
            ctx.send(watcher, Kind::MapRep, |b| encode(&map, b));
        }
    }
}

impl Block for Distribution {
    fn block_ref(&self) -> BlockRef {
        BlockRef::new(self.me, BlockId::Dih, 0)
    }
    fn receive(&mut self, envelope: &Envelope, body: &[u8], ctx: &mut Context<'_>) -> Result<(), DecodeError> {
        match envelope.kind {
            Kind::MapReq if envelope.from.node.is_client() => self.on_map_req(envelope.from, decode(body)?, ctx),
            Kind::ViewOrd => self.on_view(View::from_bytes(body)?, ctx),
            Kind::EpochOrd => self.on_epoch_ord(envelope.from.node, EpochOrd::decode(body)?, ctx),
            Kind::DrainConf if envelope.from.node == self.me => self.on_drain_conf(Drained::decode(body)?, ctx),
            Kind::EpochDrainedRep => self.on_drained_rep(envelope.from.node, Drained::decode(body)?, ctx),
            Kind::EpochFloorReq => self.on_floor_req(envelope.from, EpochFloor::decode(body)?, ctx),
            Kind::EpochFloorConf => self.on_floor_conf(EpochFloor::decode(body)?, ctx),
            Kind::EpochContinueOrd => self.on_epoch_continue(ctx),
            Kind::GcpSaveReq => self.on_save_req(envelope.from.node, GcpSave::decode(body)?, ctx),
            Kind::GcpSaveConf => self.on_save_answer(envelope.from, GcpSave::decode(body)?, true, ctx),
            Kind::GcpSaveRef => self.on_save_answer(envelope.from, GcpSave::decode(body)?, false, ctx),
            Kind::GcpHurryOrd => self.on_hurry(envelope.from, GcpHurry::decode(body)?, ctx),
            Kind::KeepConf => self.on_kept(envelope.from.block, Keep::decode(body)?, ctx),
            Kind::SnapshotReq if envelope.from.node.is_client() => {
                self.on_snapshot_req(envelope.from, SnapshotReq::decode(body)?, ctx);
            }
            Kind::SnapshotEndOrd if envelope.from.node.is_client() => {
                self.snapshots.give_back(envelope.from.node, SnapshotReq::decode(body)?.request);
            }
            Kind::ClientGoneRep => self.snapshots.client_gone(NodeId(apus_signal::Reader::new(body).u16()?)),
            Kind::SchemaRep if envelope.from.node == self.me => {
                self.dictionary_version = decode::<Dictionary>(body)?.version;
            }
            _ => return Err(DecodeError),
        }
        Ok(())
    }
    fn tick(&mut self, ctx: &mut Context<'_>) {
        self.tick_rounds(ctx);
        self.tick_saves(ctx);
        self.tick_snapshots(ctx);
    }
    fn dump(&self, out: &mut String) {
        let _ = writeln!(
            out,
            "dih view {} dictionary {} watchers {} epochs {:?} {} snapshots {}",
            self.generation(),
            self.dictionary_version,
            self.watchers.len(),
            self.rounds,
            self.saves.summary(),
            self.snapshots.summary(),
        );
    }
    fn verify(&self) -> Result<(), String> {
        self.snapshots.verify()
    }
}
