//! temporary
use std::rc::Rc;

use apus_signal::{
    dict::{Change, Dictionary, SchemaConf},
    tc::Outcome,
    view::View,
};
use apus_types::{ErrorCode, PartitionId, TransId};

use crate::{
    ClientConfig, ClientError, CommitToken, Committed, ExecOptions, OpBatch, PartialAggregate, ReadBatch, Results, Rows,
    ScanRequest, request::Aggregates,
};

/// A client of the cluster; a cheap clone of a handle, for one thread.
#[derive(Clone)]
pub struct Client {
    view: Rc<View>,
}

impl Client {
    /// Finds the data nodes by the seeds of `config` and links to all of them. Inside a tokio `LocalSet` (or `LocalRuntime`) only.
    ///
    /// # Errors
    /// `NoNodeAvailable` when no data node served within `connect_timeout_ms`.
    pub async fn connect(config: ClientConfig) -> Result<Client, ClientError> {
        config.check()?;
        Err(ErrorCode::NotSupported.into())
    }
    /// The newest map.
    pub fn view(&self) -> Rc<View> {
        self.view.clone()
    }
    /// Newest dictionary version announced by the cluster. Compare for inequality: a cluster that was set up anew starts again.
    pub fn schema_version(&self) -> u64 {
        0
    }
    /// Partition of a distribution hash ([`apus_types::key::distribution_hash`]).
    pub fn partition_of(&self, distribution_hash: u64) -> PartitionId {
        self.view.partition_of(distribution_hash)
    }
    /// The dictionary, or `None` when `known_version` is the current one.
    pub async fn dictionary(&self, _known_version: u64) -> Result<Option<Dictionary>, ClientError> {
        Err(ErrorCode::NotSupported.into())
    }
    /// Changes the schema. Executed once, however often a node fails meanwhile.
    pub async fn schema_change(&self, _change: Change) -> Result<SchemaConf, ClientError> {
        Err(ErrorCode::NotSupported.into())
    }
    /// Reads keys; `out` gets one entry per key in the order asked.
    pub async fn read(&self, _request: &ReadBatch<'_>, _out: &mut Rows) -> Result<(), ClientError> {
        Err(ErrorCode::NotSupported.into())
    }
    /// Starts a scan; nothing is sent before the first [`ScanCursor::next_batch`].
    pub fn scan(&self, _request: &ScanRequest<'_>) -> ScanCursor {
        ScanCursor { client: self.clone() }
    }
    /// Runs a scan to its end (or limit) and collects all rows. For bounded results only.
    pub async fn scan_all(&self, _request: &ScanRequest<'_>, _out: &mut Rows) -> Result<(), ClientError> {
        Err(ErrorCode::NotSupported.into())
    }
    /// Aggregates beside the data; one result per aggregate, merged over all partitions.
    pub async fn aggregate(
        &self,
        _request: &ScanRequest<'_>,
        _aggregates: Aggregates<'_>,
        _out: &mut Vec<PartialAggregate>,
    ) -> Result<(), ClientError> {
        Err(ErrorCode::NotSupported.into())
    }
    /// A new transaction; nothing is sent before its first batch.
    pub fn begin(&self) -> Transaction {
        Transaction { client: self.clone() }
    }
    /// Executes a batch as a transaction of its own, again as a new one where a node failed before it was committed.
    pub async fn run_autocommit(
        &self,
        _ops: &OpBatch,
        _lock_wait_ms: u32,
        _out: &mut Results,
    ) -> Result<Committed, ClientError> {
        Err(ErrorCode::NotSupported.into())
    }
    /// What became of a transaction; waits while it is still open or being taken over.
    pub async fn outcome(&self, _token: &CommitToken) -> Result<Outcome, ClientError> {
        Err(ErrorCode::NotSupported.into())
    }
}

/// A scan under way.
pub struct ScanCursor {
    client: Client,
}

impl ScanCursor {
    /// The next rows; `false` (and no rows) at the end.
    pub async fn next_batch(&mut self, _out: &mut Rows) -> Result<bool, ClientError> {
        let _ = &self.client;
        Err(ErrorCode::NotSupported.into())
    }
}

/// A transaction. Dropping it while it is open rolls it back.
pub struct Transaction {
    client: Client,
}

impl Transaction {
    /// Its id. Changes only if the cluster refuses to start it and the client tries again, within the first `execute`.
    pub fn id(&self) -> TransId {
        TransId::NONE
    }
    /// `None` until it was started.
    pub fn token(&self) -> Option<CommitToken> {
        None
    }
    pub fn has_writes(&self) -> bool {
        false
    }
    /// The coordinator knows it: reads that shall see its own changes must name it.
    pub fn is_started(&self) -> bool {
        false
    }
    /// Rolled back by the cluster or ended: only `rollback` is of any use.
    pub fn is_over(&self) -> bool {
        let _ = &self.client;
        false
    }
    /// Executes operations. On an error that is not `aborted` the effects of this batch (savepoint) are undone and the
    /// transaction lives.
    pub async fn execute(&mut self, _ops: &OpBatch, _options: ExecOptions, _out: &mut Results) -> Result<(), ClientError> {
        Err(ErrorCode::NotSupported.into())
    }
    pub async fn commit(&mut self) -> Result<Committed, ClientError> {
        Err(ErrorCode::NotSupported.into())
    }
    pub async fn rollback(&mut self) -> Result<(), ClientError> {
        Err(ErrorCode::NotSupported.into())
    }
    /// Undoes the batches with this savepoint number or a higher one; locks stay.
    pub async fn rollback_to(&mut self, _savepoint: u32) -> Result<(), ClientError> {
        Err(ErrorCode::NotSupported.into())
    }
}
