//! Schema: reading the dictionary, changing it.

use apus_signal::mgmt::{MgmtReq, NodeStatusConf};
use apus_signal::{
    BlockId, BlockRef, Kind,
    dict::{Change, DictReadReq, Dictionary, SchemaConf, SchemaReq},
};
use apus_types::{ErrorCode, NodeId};
use prost::Message;

use crate::{Client, ClientError, Losses, LostNode, client::refusal, core::table::Verdict, retry::Retry};

impl Client {
    /// The dictionary, or `None` when `known_version` is the current one.
    ///
    /// # Errors
    /// The last temporary error after `read_timeout_ms`.
    pub async fn dictionary(&self, known_version: u64) -> Result<Option<Dictionary>, ClientError> {
        let retry = Retry::for_reads(self);
        let body = self
            .anyone(retry, BlockId::Dict, Kind::DictReadReq, Kind::DictReadConf, |request, out| {
                DictReadReq { request, known_version, looks_only: false }.encode_raw(out);
            })
            .await?;
        let dictionary = Dictionary::decode(body.as_slice()).map_err(|_| ErrorCode::ProtocolViolation)?;
        self.note_schema_version(dictionary.version);
        Ok((!dictionary.unchanged).then_some(dictionary))
    }

    /// Changes the schema: executed once, however often it must be sent, because it carries a random token.
    ///
    /// # Errors
    /// What DICT refuses (the detail names the object); the last temporary error after `schema_timeout_ms`, or `StatementEndsNodes`, when it is not
    /// known whether the change happens.
    pub async fn schema_change(&self, change: Change) -> Result<SchemaConf, ClientError> {
        let (token, timeout_ms) = {
            let mut core = self.inner.core.borrow_mut();
            (core.draw(), core.config.schema_timeout_ms)
        };
        let mut retry = Retry::new(self, timeout_ms);
        retry.patient();
        let mut req = SchemaReq { request: 0, token, change: Some(change) };
        let body = self
            .anyone(retry, BlockId::Dict, Kind::SchemaReq, Kind::SchemaConf, |request, out| {
                req.request = request;
                req.encode_raw(out);
            })
            .await?;
        let conf = SchemaConf::decode(body.as_slice()).map_err(|_| ErrorCode::ProtocolViolation)?;
        self.note_schema_version(conf.version);
        Ok(conf)
    }

    /// What one data node says about itself.
    ///
    /// # Errors
    /// `LinkLost` when it is not linked or does not answer.
    pub async fn node_status(&self, node: NodeId) -> Result<NodeStatusConf, ClientError> {
        let deadline = {
            let core = self.inner.core.borrow();
            core.now + core.config.attempt_timeout_ms * 1_000_000
        };
        let (to, mut body) = (BlockRef::new(node, BlockId::Cntr, 0), Vec::new());
        let write = |out: &mut Vec<u8>, request| MgmtReq { request }.encode_raw(out);
        match self.ask(to, Kind::NodeStatusReq, Kind::NodeStatusConf, deadline, &mut body, write).await {
            Some(Verdict::Answer(Kind::NodeStatusConf)) => {
                NodeStatusConf::decode(body.as_slice()).map_err(|_| ErrorCode::ProtocolViolation.into())
            }
            Some(Verdict::Answer(_)) => Err(refusal(&body)),
            _ => Err(ErrorCode::LinkLost.into()),
        }
    }

    fn note_schema_version(&self, version: u64) {
        let mut core = self.inner.core.borrow_mut();
        core.schema_version = core.schema_version.max(version);
    }

    /// Asks a linked data node, another one if that fails, until the time is over, or two nodes were lost by it.
    async fn anyone(
        &self,
        mut retry: Retry<'_>,
        block: BlockId,
        kind: Kind,
        expects: Kind,
        mut write: impl FnMut(u64, &mut Vec<u8>),
    ) -> Result<Vec<u8>, ClientError> {
        let (mut body, mut losses) = (Vec::new(), Losses::new(self));
        loop {
            let node = {
                let core = self.inner.core.borrow();
                let count = core.linked_nodes().count().max(1) as u64;
                let turn = core.config.preferred_node_seed.wrapping_add(u64::from(retry.attempt())) % count;
                core.linked_nodes().nth(turn as usize)
            };
            let Some(node) = node else {
                retry.nowhere().await?;
                continue;
            };
            let deadline = retry.attempt_deadline();
            let to = BlockRef::new(node, block, 0);
            match self.ask(to, kind, expects, deadline, &mut body, |out, id| write(id, out)).await {
                Some(Verdict::Answer(kind)) if kind == expects => return Ok(body),
                Some(Verdict::Answer(_)) => {
                    let error = refusal(&body);
                    if error.code != ErrorCode::NodeFailed {
                        retry.refused(error).await?;
                        continue;
                    }
                    // The president was lost with it.
                    losses.note(LostNode::SOME, self.now());
                    losses.admit(self, retry.deadline(), || what(kind)).await?;
                    retry.failed(None).await?;
                }
                lost => {
                    if lost == Some(Verdict::LinkLost) {
                        losses.note_link(&self.inner.core.borrow(), node);
                        losses.admit(self, retry.deadline(), || what(kind)).await?;
                    }
                    retry.failed(lost).await?;
                }
            }
        }
    }
}

/// For an error.
fn what(kind: Kind) -> String {
    let is_change = kind == Kind::SchemaReq;
    if is_change { "change of the schema, which may have been made" } else { "question for the schema" }.to_owned()
}
