//! Committed and own-transaction key reads, past the coordinator.
//!
//! One key is one request to the replica its route names. Several keys are grouped by (node, instance), each group one request (or
//! more, by the limits of a message); the answers are put into the caller's order. Keys that a backup cannot answer yet go to
//! the primary, keys of a lost node to another replica, until the deadline.

use std::{collections::VecDeque, pin::pin};

use apus_signal::{
    BlockId, BlockRef, DecodeError, Kind,
    epoch::Moment,
    key_read::{ReadConf, ReadReq, ReadStatus},
};
use apus_types::{ErrorCode, NodeId, PartitionId, limits};

use crate::{
    Client, ClientError, Losses, ReadBatch, Rows,
    client::refusal,
    core::{
        Core,
        route::NOWHERE,
        table::{RequestId, Verdict},
    },
    moment::ANY_MOMENT,
    retry::Retry,
};

/// Requests of one read that are in flight at a time; more keys wait, so that one read does not fill the memory with answers.
const READ_WINDOW: usize = 32;
/// Keys from which all nodes are asked, each for some, rather than one for all.
const KEYS_FOR_ALL: usize = 128;
/// Bytes of the keys of one request.
const KEY_BYTES_MAX: usize = 1 << 20;
/// Bytes before the first row of a `ReadConf`, and before each row.
const CONF_HEAD: usize = 10;
const ROW_HEAD: usize = 5;

#[derive(Clone, Copy)]
struct Target {
    /// `node << 8 | instance`; 0 where nobody can be asked now.
    to: u16,
    partition: PartitionId,
    index: u32,
}

struct Sent {
    id: RequestId,
    to: u16,
    start: usize,
    end: usize,
}

/// Buffers of a read of several keys, kept by the client from one to the next.
#[derive(Default)]
pub(crate) struct ReadScratch {
    targets: Vec<Target>,
    again: Vec<u32>,
    at_primary: Vec<bool>,
    sent: VecDeque<Sent>,
    body: Vec<u8>,
}

impl Client {
    /// Reads keys; `out` gets one entry per key in the order asked. Committed reads are repeated at other replicas when a node
    /// fails; reads of an own transaction end with `NodeFailed` then, because the transaction is lost too.
    ///
    /// # Errors
    /// What the data nodes refuse for good (schema, limits); the last temporary error after `read_timeout_ms`.
    pub async fn read(&self, request: &ReadBatch<'_>, out: &mut Rows) -> Result<(), ClientError> {
        match request.keys.len() {
            0 => {
                out.clear();
                Ok(())
            }
            1 => pin!(self.read_one(request, out)).await,
            count => pin!(self.flight(request, None).run(count, out)).await,
        }
    }

    /// As [`Client::read`]; also tells of which moment the rows are. Where it is not one, they are to be read again at a snapshot.
    ///
    /// # Errors
    /// As there.
    pub async fn read_telling(&self, request: &ReadBatch<'_>, out: &mut Rows) -> Result<Moment, ClientError> {
        let mut flight = self.flight(request, Some(ANY_MOMENT));
        flight.run(request.keys.len(), out).await?;
        Ok(flight.moment.unwrap_or(ANY_MOMENT))
    }

    fn flight<'c, 'r>(&'c self, request: &'r ReadBatch<'r>, moment: Option<Moment>) -> Flight<'c, 'r> {
        let scratch = self.inner.scratch.borrow_mut().pop().unwrap_or_default();
        let (keys_max, losses) = (limits::BATCH_OPS_MAX, Losses::default());
        Flight { client: self, scratch, request, keys_max, losses, moment }
    }

    async fn read_one(&self, request: &ReadBatch<'_>, out: &mut Rows) -> Result<(), ClientError> {
        let (hash, key) = request.keys.entry(0);
        let mut retry = Retry::for_reads(self);
        let (mut at_primary, mut losses) = (!request.trans.is_none(), Losses::default());
        loop {
            let (partition, to) = {
                let core = self.inner.core.borrow();
                let partition = core.view.partition_of(hash);
                let whom = if at_primary { Whom::Primary } else { Whom::Near };
                (partition, target(&core, partition, whom, retry.attempt()))
            };
            if to == 0 {
                retry.nowhere().await?;
                continue;
            }
            self.room((to >> 8) as u8).await;
            let deadline = retry.attempt_deadline();
            let call = self.call(ldm(to), Kind::ReadReq, Kind::ReadConf, deadline, |body, id| {
                let (table, version) = (request.table, request.schema_version);
                let seen = (request.trans, request.snapshot);
                let count_at = ReadReq::begin(body, id, seen, table, version, request.columns, false);
                ReadReq::push_key(body, count_at, partition, key);
            });
            let verdict = match call {
                Some(call) => Some(call.end(out.buffer()).await),
                None => None,
            };
            match verdict {
                Some(Verdict::Answer(Kind::ReadConf)) => match single_row(out) {
                    Ok(ReadStatus::AtPrimary) if at_primary => retry.refused(ErrorCode::WrongView.into()).await?,
                    Ok(ReadStatus::AtPrimary) => at_primary = true,
                    Ok(_) => return Ok(()),
                    Err(_) => {
                        self.violation(ldm(to).node);
                        retry.failed(None).await?;
                    }
                },
                Some(Verdict::Answer(_)) => retry.refused(refusal(out.bytes())).await?,
                lost => {
                    if lost == Some(Verdict::LinkLost) {
                        losses.note_link(&self.inner.core.borrow(), ldm(to).node);
                    }
                    own_is_lost(request, &losses)?;
                    if lost == Some(Verdict::LinkLost) {
                        losses.admit(self, retry.deadline(), || what(request)).await?;
                    }
                    retry.failed(lost).await?;
                }
            }
        }
    }
}

/// For an error.
fn what(request: &ReadBatch<'_>) -> String {
    format!("read of {} keys of table {}", request.keys.len(), request.table.0)
}

/// Which replica is asked first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Whom {
    /// No other one.
    Primary,
    /// The same node for all partitions: one message.
    Near,
    /// Another node than [`Whom::Near`].
    Beside,
    /// The primary of each partition, or a replica where it is not linked: all nodes work.
    All,
}

/// Where to ask for a key of `partition`: `node << 8 | instance`, or 0.
#[inline]
pub(crate) fn target(core: &Core, partition: PartitionId, whom: Whom, attempt: u32) -> u16 {
    let route = core.route(partition);
    let node = match (whom, attempt) {
        (Whom::Primary, _) => route.primary,
        (Whom::Near, 0) => route.read,
        (Whom::Beside, 0) => route.beside,
        (Whom::All, 0) if route.primary == NOWHERE => route.read,
        (Whom::All, 0) => route.primary,
        (_, attempt) => core.other_replica(partition, attempt),
    };
    if node == NOWHERE { 0 } else { u16::from(node) << 8 | u16::from(route.instance) }
}

#[inline]
pub(crate) fn ldm(to: u16) -> BlockRef {
    BlockRef::new(NodeId(to >> 8), BlockId::Ldm, to as u8)
}

fn own_is_lost(request: &ReadBatch<'_>, losses: &Losses) -> Result<(), ClientError> {
    if request.trans.is_none() { Ok(()) } else { Err(losses.error()) }
}

/// The answer to one key, in place.
#[inline]
fn single_row(out: &mut Rows) -> Result<ReadStatus, DecodeError> {
    let conf = ReadConf::decode(out.bytes())?;
    let mut rows = conf.rows();
    let (status, row) = rows.next().ok_or(DecodeError)??;
    let (length, more) = (row.len(), rows.next().is_some());
    drop(rows);
    match status {
        _ if more => return Err(DecodeError),
        ReadStatus::Found => out.push_span(CONF_HEAD + ROW_HEAD, length, 0),
        ReadStatus::NotFound => out.push_missing(),
        ReadStatus::AtPrimary => {}
    }
    Ok(status)
}

/// A read of several keys under way.
struct Flight<'c, 'r> {
    client: &'c Client,
    scratch: ReadScratch,
    request: &'r ReadBatch<'r>,
    /// Keys per request; halved when an answer would have been too large.
    keys_max: usize,
    losses: Losses,
    /// Of all answers so far, if it is asked for.
    moment: Option<Moment>,
}

impl Drop for Flight<'_, '_> {
    fn drop(&mut self) {
        let mut core = self.client.inner.core.borrow_mut();
        for sent in self.scratch.sent.drain(..) {
            core.table.forget(sent.id);
        }
        core.freed();
        drop(core);
        let mut pool = self.client.inner.scratch.borrow_mut();
        if pool.len() < READ_WINDOW {
            pool.push(std::mem::take(&mut self.scratch));
        }
    }
}

impl Flight<'_, '_> {
    async fn run(&mut self, count: usize, out: &mut Rows) -> Result<(), ClientError> {
        let count32 = u32::try_from(count).map_err(|_| ErrorCode::RequestTooLarge)?;
        let mut retry = Retry::for_reads(self.client);
        out.reset(count);
        self.scratch.at_primary.clear();
        self.scratch.at_primary.resize(count, !self.request.trans.is_none());
        self.scratch.again.clear();
        self.scratch.again.extend(0..count32);
        loop {
            self.plan(retry.attempt());
            let failure = self.round(&retry, out).await?;
            if self.scratch.again.is_empty() {
                return Ok(());
            }
            match failure {
                None => {}
                Some(Failure::Refused(error)) => retry.refused(error).await?,
                Some(Failure::Lost(verdict)) => {
                    own_is_lost(self.request, &self.losses)?;
                    self.losses.admit(self.client, retry.deadline(), || what(self.request)).await?;
                    retry.failed(verdict).await?;
                }
                Some(Failure::Nowhere) => retry.nowhere().await?,
            }
        }
    }

    /// Gives every key still wanted its target; groups come to lie together.
    fn plan(&mut self, attempt: u32) {
        let core = self.client.inner.core.borrow();
        let ReadScratch { targets, again, at_primary, .. } = &mut self.scratch;
        let whom = match again.len() >= KEYS_FOR_ALL && self.moment.is_none() {
            true => Whom::All,
            false => Whom::Near,
        };
        targets.clear();
        for index in again.drain(..) {
            let partition = core.view.partition_of(self.request.keys.entry(index as usize).0);
            let whom = if at_primary[index as usize] { Whom::Primary } else { whom };
            let to = target(&core, partition, whom, attempt);
            targets.push(Target { to, partition, index });
        }
        targets.sort_unstable_by_key(|t| (t.to, t.index));
    }

    /// Sends every group and takes the answers in the order sent. Returns a failure that concerned some keys (now in `again`).
    async fn round(&mut self, retry: &Retry<'_>, out: &mut Rows) -> Result<Option<Failure>, ClientError> {
        let mut failure = None;
        let mut next = 0;
        loop {
            while next < self.scratch.targets.len() && self.scratch.sent.len() < READ_WINDOW {
                let to = self.scratch.targets[next].to;
                if to == 0 {
                    let end = self.group_end(next);
                    self.give_back(next, end);
                    failure.get_or_insert(Failure::Nowhere);
                    next = end;
                    continue;
                }
                let node = (to >> 8) as u8;
                if !self.client.inner.core.borrow().has_room(node) {
                    if !self.scratch.sent.is_empty() {
                        break; // first take what we hold
                    }
                    self.client.room(node).await;
                }
                let end = self.group_end(next);
                if !self.send(next, end, retry.attempt_deadline()) {
                    self.give_back(next, end);
                    failure.get_or_insert(Failure::Lost(None));
                }
                next = end;
            }
            let Some(sent) = self.scratch.sent.front() else { return Ok(failure) };
            let id = sent.id;
            let verdict = std::future::poll_fn(|cx| {
                self.client.inner.core.borrow_mut().table.poll(id, &mut self.scratch.body, cx)
            })
            .await;
            self.client.inner.core.borrow_mut().freed();
            if let Some(sent) = self.scratch.sent.pop_front()
                && let Some(new) = self.take(&sent, verdict, out)?
            {
                failure = Some(new);
            }
        }
    }

    fn group_end(&self, start: usize) -> usize {
        let targets = &self.scratch.targets;
        let (to, mut end, mut bytes) = (targets[start].to, start, 0);
        while let Some(t) = targets.get(end)
            && t.to == to
            && end - start < self.keys_max
            && bytes <= KEY_BYTES_MAX
        {
            bytes += self.request.keys.entry(t.index as usize).1.len();
            end += 1;
        }
        end
    }

    fn give_back(&mut self, start: usize, end: usize) {
        let ReadScratch { targets, again, .. } = &mut self.scratch;
        again.extend(targets[start..end].iter().map(|t| t.index));
    }

    fn send(&mut self, start: usize, end: usize, deadline: u64) -> bool {
        let group = &self.scratch.targets[start..end];
        let to = group[0].to;
        let (request, with_moment) = (self.request, self.moment.is_some());
        let id = self.client.inner.core.borrow_mut().request(
            ldm(to),
            Kind::ReadReq,
            Kind::ReadConf,
            deadline,
            |body, id| {
                let (table, version) = (request.table, request.schema_version);
                let seen = (request.trans, request.snapshot);
                let count_at = ReadReq::begin(body, id, seen, table, version, request.columns, with_moment);
                for t in group {
                    ReadReq::push_key(body, count_at, t.partition, request.keys.entry(t.index as usize).1);
                }
            },
        );
        if let Some(id) = id {
            self.scratch.sent.push_back(Sent { id, to, start, end });
        }
        id.is_some()
    }

    /// Takes one answer; keys without an answer go to `again`.
    fn take(&mut self, sent: &Sent, verdict: Verdict, out: &mut Rows) -> Result<Option<Failure>, ClientError> {
        match verdict {
            Verdict::Answer(Kind::ReadConf) => match self.rows(sent, out) {
                Ok(failure) => Ok(failure),
                Err(error) if error.code == ErrorCode::ProtocolViolation => {
                    self.client.violation(ldm(sent.to).node);
                    self.scratch.again.extend(self.scratch.targets[sent.start..sent.end].iter().map(|t| t.index));
                    Ok(Some(Failure::Lost(None)))
                }
                Err(error) => Err(error),
            },
            Verdict::Answer(_) => {
                let error = refusal(&self.scratch.body);
                let count = sent.end - sent.start;
                self.give_back(sent.start, sent.end);
                if error.code == ErrorCode::RequestTooLarge && count > 1 {
                    self.keys_max = self.keys_max.min(count / 2).max(1);
                    return Ok(None);
                }
                if error.code.is_temporary() { Ok(Some(Failure::Refused(error))) } else { Err(error) }
            }
            lost => {
                if lost == Verdict::LinkLost {
                    self.losses.note_link(&self.client.inner.core.borrow(), ldm(sent.to).node);
                }
                self.give_back(sent.start, sent.end);
                Ok(Some(Failure::Lost(Some(lost))))
            }
        }
    }

    fn rows(&mut self, sent: &Sent, out: &mut Rows) -> Result<Option<Failure>, ClientError> {
        let ReadScratch { targets, again, at_primary, body, .. } = &mut self.scratch;
        let group = &targets[sent.start..sent.end];
        let conf = ReadConf::decode(body)?;
        if usize::from(conf.count) != group.len() || conf.rows().any(|row| row.is_err()) {
            return Err(DecodeError.into());
        }
        if let Some(moment) = &mut self.moment {
            *moment = moment.and(Moment::at_end_of(body)?);
        }
        let mut failure = None;
        for (t, row) in group.iter().zip(conf.rows()) {
            match row? {
                (ReadStatus::Found, row) => out.set(t.index as usize, row)?,
                (ReadStatus::NotFound, _) => {}
                (ReadStatus::AtPrimary, _) => {
                    if std::mem::replace(&mut at_primary[t.index as usize], true) {
                        failure = Some(Failure::Refused(ErrorCode::WrongView.into()));
                    }
                    again.push(t.index);
                }
            }
        }
        Ok(failure)
    }
}

enum Failure {
    Refused(ClientError),
    Lost(Option<Verdict>),
    Nowhere,
}
