//! DIH: the map of the cluster for clients, and the epoch.
//!
//! Owns the list of clients that asked for the map; each new view is pushed to them (`MapRep`). At the president it raises
//! the epoch every [`EPOCH_NS`] and tells the members (`EpochRep`; the envelope carries it, and so does every other signal).
//!
//! When the president dies the epoch stands still until the next view; no commit waits for it.
//! Limits: [`WATCHERS_MAX`] clients are remembered; one more replaces the one that asked longest ago and then sees a new map
//! only when it asks again (a refused request tells it to). A client whose link is gone is forgotten at the next push.

use std::{collections::VecDeque, fmt::Write};

use apus_kernel::{Block, Context};
use apus_signal::{
    BlockId, BlockRef, DecodeError, Envelope, Kind,
    dict::Dictionary,
    qmgr::{decode, encode},
    tc::RequestRef,
    view::{ClusterMap, MapReq, NodeState, View},
};
use apus_types::{Epoch, ErrorCode, NodeId};

use crate::NodeConfig;

/// Time between two epochs in nanoseconds.
pub const EPOCH_NS: u64 = 10_000_000;
/// Most clients that new maps are pushed to.
pub const WATCHERS_MAX: usize = 8192;

/// The distribution's keeper; see the module.
pub struct Distribution {
    me: NodeId,
    view: Option<View>,
    dictionary_version: u64,
    watchers: VecDeque<BlockRef>,
    last_epoch: u64,
}

impl Distribution {
    pub fn new(config: &NodeConfig) -> Distribution {
        Distribution { me: config.node, view: None, dictionary_version: 0, watchers: VecDeque::new(), last_epoch: 0 }
    }

    fn map(&self, request: u64) -> ClusterMap {
        ClusterMap { request, view: self.view.clone(), schema_version: self.dictionary_version }
    }

    fn on_map_req(&mut self, from: BlockRef, req: MapReq, ctx: &mut Context<'_>) {
        if self.view.as_ref().is_none_or(|v| v.state(self.me) != NodeState::Up) {
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
        self.view = Some(view);
        let map = self.map(0);
        // Links of clients may belong to other workers, so only those of our own can be known dead.
        let instances = u16::from(ctx.instances()).max(1);
        self.watchers.retain(|w| !(w.node.0 - NodeId::CLIENT_BASE).is_multiple_of(instances) || ctx.link_up(w.node));
        for &watcher in &self.watchers {
            ctx.send(watcher, Kind::MapRep, |b| encode(&map, b));
        }
    }

    fn advance_epoch(&mut self, ctx: &mut Context<'_>) {
        let Some(view) = self.view.as_ref().filter(|v| v.president == u32::from(self.me.0)) else { return };
        if ctx.now().saturating_sub(self.last_epoch) < EPOCH_NS {
            return;
        }
        self.last_epoch = ctx.now();
        ctx.raise_epoch(Epoch(ctx.epoch().0 + 1));
        for node in view.living().map(|n| n.node()).filter(|n| *n != self.me) {
            ctx.send(BlockRef::new(node, BlockId::Dih, 0), Kind::EpochRep, |_| ());
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
            Kind::EpochRep => {}
            Kind::SchemaRep if envelope.from.node == self.me => {
                self.dictionary_version = decode::<Dictionary>(body)?.version;
            }
            _ => return Err(DecodeError),
        }
        Ok(())
    }
    fn tick(&mut self, ctx: &mut Context<'_>) {
        self.advance_epoch(ctx);
    }
    fn dump(&self, out: &mut String) {
        let generation = self.view.as_ref().map_or(0, |v| v.generation);
        let _ = writeln!(
            out,
            "dih view {generation} dictionary {} watchers {}",
            self.dictionary_version,
            self.watchers.len()
        );
    }
}
