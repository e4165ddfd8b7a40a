//! When to try again, where, and when to stop.
//!
//! Nodes that are frozen (`ErrorCode::Frozen`) may stay so until an operator acts. So nobody waits out his patience for them: a request
//! is tried again for [`FROZEN_NS`] at most, and at once refused where all members have said for so long that they are frozen. The same holds for changes that
//! a disk does not take.

use apus_types::{Chain, ErrorCode};

use crate::{Client, ClientError, core::table::Verdict};

const MS: u64 = 1_000_000;
/// Longest pause between two attempts, in nanoseconds.
const PAUSE_MAX_NS: u64 = 50 * MS;
/// What is asked of frozen nodes is tried again for so long, in nanoseconds; a side that is let go on is so within less.
pub(crate) const FROZEN_NS: u64 = 1_000 * MS;

/// The attempts of one operation.
pub(crate) struct Retry<'c> {
    client: &'c Client,
    deadline: u64,
    attempt_ns: u64,
    attempt: u32,
    last: ClientError,
    /// When a node refused first that waits for an operator.
    refused_since: Option<u64>,
    /// One attempt may take all the time, and one that was lost may have been executed.
    is_patient: bool,
    in_doubt: bool,
}

impl<'c> Retry<'c> {
    pub fn for_reads(client: &'c Client) -> Retry<'c> {
        let timeout_ms = client.inner.core.borrow().config.read_timeout_ms;
        Retry::new(client, timeout_ms)
    }
    pub fn new(client: &'c Client, timeout_ms: u64) -> Retry<'c> {
        let core = client.inner.core.borrow();
        let deadline = core.now + timeout_ms * MS;
        let attempt_ns = core.config.attempt_timeout_ms * MS;
        let last = ClientError::new(ErrorCode::NoNodeAvailable);
        Retry {
            client,
            deadline,
            attempt_ns,
            attempt: 0,
            last,
            refused_since: None,
            is_patient: false,
            in_doubt: false,
        }
    }
    /// One attempt may take all the time: there is nobody better to ask.
    pub fn patient(&mut self) {
        self.attempt_ns = self.deadline;
        self.is_patient = true;
    }
    /// Attempts that failed so far.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }
    /// Until when the present attempt may wait.
    pub fn attempt_deadline(&self) -> u64 {
        self.deadline.min(self.client.now() + self.attempt_ns)
    }
    pub fn deadline(&self) -> u64 {
        self.deadline
    }
    pub fn is_over(&self) -> bool {
        self.client.now() >= self.deadline
    }

    /// The attempt failed for `error`: waits a moment if another one may help.
    ///
    /// # Errors
    /// `error` itself where it is final or the time is over.
    pub async fn refused(&mut self, error: ClientError) -> Result<(), ClientError> {
        if !error.code.is_temporary() {
            return Err(error);
        }
        if error.code == ErrorCode::SnapshotElsewhere && self.attempt >= 2 * Chain::REPLICAS_MAX as u32 {
            return Err(ErrorCode::SnapshotTooOld.into()); // all replicas were asked
        }
        if error.code.waits_for_operator() && !self.in_doubt {
            let mut core = self.client.inner.core.borrow_mut();
            let since = *self.refused_since.get_or_insert(core.now);
            if core.now >= since + FROZEN_NS || (error.code == ErrorCode::Frozen && core.is_frozen()) {
                return Err(error);
            }
            core.refresh_map(); // the others are to say it too
        }
        if error.code == ErrorCode::WrongView {
            self.client.inner.core.borrow_mut().refresh_map();
        }
        self.last = error;
        self.pause().await
    }

    /// The attempt ended without an answer: another replica may be asked at once.
    pub async fn failed(&mut self, verdict: Option<Verdict>) -> Result<(), ClientError> {
        self.in_doubt |= self.is_patient;
        self.last = match verdict {
            Some(Verdict::TimedOut) => ClientError::with_detail(ErrorCode::NoNodeAvailable, "no answer in time"),
            _ => ClientError::new(ErrorCode::LinkLost),
        };
        if self.attempt > 2 {
            return self.pause().await;
        }
        self.attempt += 1;
        if self.is_over() { Err(self.last.clone()) } else { Ok(()) }
    }

    /// Nobody to ask: waits for a change. Those that are linked and may not be asked, because they are not primary, may be
    /// frozen, which their answer to a question for the map tells.
    pub async fn nowhere(&mut self) -> Result<(), ClientError> {
        {
            let mut core = self.client.inner.core.borrow_mut();
            if core.is_frozen() && !self.in_doubt {
                return Err(ErrorCode::Frozen.into());
            }
            core.refresh_map();
            self.last = ClientError::with_detail(ErrorCode::NoNodeAvailable, core.last_refusal.clone());
        }
        self.pause().await
    }

    /// Counts the attempt and waits, the longer the more failed.
    ///
    /// # Errors
    /// The last error when the time is over.
    pub async fn pause(&mut self) -> Result<(), ClientError> {
        if self.is_over() {
            return Err(self.last.clone());
        }
        let pause = (MS << self.attempt.min(6)).min(PAUSE_MAX_NS);
        self.attempt += 1;
        self.client.change(pause).await;
        Ok(())
    }
}
