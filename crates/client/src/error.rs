//! What a caller of the client learns when something did not work.

use apus_signal::tc::RequestRef;
use apus_types::{ErrorClass, ErrorCode};

use crate::losses::LostNode;

/// A refusal by the cluster or a failure that the client could not hide.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientError {
    pub code: ErrorCode,
    /// The transaction this belonged to was rolled back completely (everywhere, or will be before anyone can see it).
    pub aborted: bool,
    /// Which operation of the batch failed, counted over the whole [`crate::OpBatch`].
    pub op: u32,
    /// Which index a duplicate was found in (0: the primary key).
    pub index: u16,
    /// The node that was lost, where that is the reason: for [`crate::Losses`].
    pub lost: Option<LostNode>,
    /// More for a person, often empty: the deadlock's cycle, the missing table.
    pub detail: String,
}

impl ClientError {
    pub fn new(code: ErrorCode) -> ClientError {
        ClientError { code, aborted: false, op: 0, index: 0, lost: None, detail: String::new() }
    }
    pub fn with_detail(code: ErrorCode, detail: impl Into<String>) -> ClientError {
        ClientError { detail: detail.into(), ..ClientError::new(code) }
    }
    pub(crate) fn aborted(code: ErrorCode) -> ClientError {
        ClientError { aborted: true, ..ClientError::new(code) }
    }
    pub(crate) fn from_ref(refusal: &RequestRef<'_>) -> ClientError {
        ClientError {
            code: refusal.code,
            aborted: refusal.aborted,
            op: u32::from(refusal.op),
            index: refusal.index,
            lost: (refusal.code == ErrorCode::NodeFailed).then_some(LostNode::SOME),
            detail: String::from_utf8_lossy(refusal.detail).into_owned(),
        }
    }
    pub fn class(&self) -> ErrorClass {
        self.code.class()
    }
    /// The whole transaction may simply be run again: nothing of it will ever be committed, and the reason was not the
    /// transaction itself.
    pub fn retry_transaction(&self) -> bool {
        self.code.is_temporary() || matches!(self.code, ErrorCode::NodeFailed | ErrorCode::TransactionNotFound)
    }
}

impl From<ErrorCode> for ClientError {
    fn from(code: ErrorCode) -> ClientError {
        ClientError::new(code)
    }
}

impl From<apus_signal::DecodeError> for ClientError {
    fn from(_: apus_signal::DecodeError) -> ClientError {
        ClientError::new(ErrorCode::ProtocolViolation)
    }
}

impl std::fmt::Display for ClientError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.code)?;
        if !self.detail.is_empty() {
            write!(f, " ({})", self.detail)?;
        }
        Ok(())
    }
}

impl std::error::Error for ClientError {}
