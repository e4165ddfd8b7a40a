//! CNTR: what an operator may ask a data node about itself (`NodeStatusReq`).
//!
//! Owns a copy of the view, and the last figures each LDM instance told it; changes nothing. Limits: one entry per instance.

use std::{collections::BTreeMap, fmt::Write};

use apus_kernel::{Block, Context};
use apus_signal::{
    BlockId, BlockRef, DecodeError, Envelope, Kind,
    dict::Dictionary,
    mgmt::{LdmStatus, MgmtReq, NodeStatusConf, RegisterRep},
    qmgr::{decode, encode},
    view::View,
};
use apus_types::{Chain, NodeId};

use crate::NodeConfig;

/// The node's own account of itself; see the module.
pub struct NodeControl {
    me: NodeId,
    instances: u8,
    started_at: Option<u64>,
    view: Option<View>,
    dictionary_version: u64,
    ldms: BTreeMap<u8, LdmStatus>,
    /// Why QMGR may not go on and what it waits for.
    frozen: String,
}

/// Partitions that `node` is primary of, and backup of.
pub fn replica_counts(view: &View, node: NodeId) -> (u32, u32) {
    let mut counts = (0, 0);
    for &chain in &view.chains {
        match Chain(chain).position(node) {
            Some(0) => counts.0 += 1,
            Some(_) => counts.1 += 1,
            None => {}
        }
    }
    counts
}

impl NodeControl {
    pub fn new(config: &NodeConfig) -> NodeControl {
        NodeControl {
            me: config.node,
            instances: config.workers,
            started_at: None,
            view: None,
            dictionary_version: 0,
            ldms: BTreeMap::new(),
            frozen: String::new(),
        }
    }

    fn status(&self, request: u64, ctx: &Context<'_>) -> NodeStatusConf {
        let view = self.view.as_ref();
        let (primaries, backups) = view.map_or((0, 0), |v| replica_counts(v, self.me));
        NodeStatusConf {
            request,
            node: self.me.0.into(),
            state: view.map_or(0, |v| v.state(self.me) as u32),
            president: view.is_some_and(|v| v.president == u32::from(self.me.0)),
            generation: view.map_or(0, |v| v.generation),
            epoch: ctx.epoch().0,
            uptime_ms: self.started_at.map_or(0, |t| ctx.now().saturating_sub(t) / 1_000_000),
            primaries,
            backups,
            instances: self.instances.into(),
            dictionary_version: self.dictionary_version,
            ldms: self.ldms.values().copied().collect(),
            frozen: self.frozen.clone(),
        }
    }
}

impl Block for NodeControl {
    fn block_ref(&self) -> BlockRef {
        BlockRef::new(self.me, BlockId::Cntr, 0)
    }
    fn receive(&mut self, envelope: &Envelope, body: &[u8], ctx: &mut Context<'_>) -> Result<(), DecodeError> {
        let from = envelope.from;
        match envelope.kind {
            Kind::NodeStatusReq => {
                let status = self.status(decode::<MgmtReq>(body)?.request, ctx);
                ctx.send(from, Kind::NodeStatusConf, |b| encode(&status, b));
            }
            Kind::NodeStatusConf if from.node == self.me && from.block == BlockId::Ldm => {
                self.ldms.insert(from.instance, decode(body)?);
            }
            Kind::RegisterRep if from.node == self.me => self.frozen = decode::<RegisterRep>(body)?.frozen,
            Kind::ViewOrd => self.view = Some(View::from_bytes(body)?),
            Kind::SchemaRep if from.node == self.me => self.dictionary_version = decode::<Dictionary>(body)?.version,
            _ => return Err(DecodeError),
        }
        Ok(())
    }
    fn tick(&mut self, ctx: &mut Context<'_>) {
        self.started_at.get_or_insert(ctx.now());
    }
    fn dump(&self, out: &mut String) {
        let _ = writeln!(out, "cntr view {} ldms {:?}", self.view.as_ref().map_or(0, |v| v.generation), self.ldms);
    }
}
