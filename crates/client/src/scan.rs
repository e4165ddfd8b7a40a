//! Scans and aggregation, past the coordinator.
//!
//! A cursor holds one *stream* per (node, instance) that serves some of the partitions. A stream asks for a batch, hands out its rows,
//! asks again from the resume key. Ordered scans merge the streams by entry key. Streams have no state in the data nodes, so
//! a stream whose node is lost is asked for again elsewhere from where it was; if its partitions have moved to different nodes
//! it splits.
//!
//! A scan begins with one message to a node that has all partitions, where there is one: most are over with the answer. One that is not, and is to be read to its end
//! in no order, is *wide* from there on: each partition is a stream of its own, at its primary, so all nodes work and none merges the entries of partitions, unless that keeps the rows of
//! many groups together. A data node works on one page of a scan at a time, and is asked for the next one before the last is looked at.

use std::{future::poll_fn, ops::Bound, rc::Rc, task::Poll};

use apus_signal::{
    DecodeError, Kind, Reader,
    epoch::{MOMENT_BYTES, Moment},
    scan::{AggregateFunction, SCAN_BYTES_MAX, SCAN_ROWS_MAX, ScanConf, ScanSpec},
};
use apus_types::{Epoch, ErrorCode, IndexNo, PartitionId, TableId, TransId};

use crate::{
    Client, ClientError, Losses, PartialAggregate, Rows, ScanRequest, Snapshot,
    client::{Call, refusal},
    core::table::Verdict,
    moment::ANY_MOMENT,
    read::{Whom, ldm, target},
    request::Aggregates,
    retry::Retry,
};

/// Bytes of a `ScanConf` before the resume key, and before each row.
const CONF_HEAD: usize = 15;
const ROW_HEAD: usize = 6;

/// A bound whose key keeps its memory.
struct Limit {
    kind: Bound<()>,
    key: Vec<u8>,
}

impl Default for Limit {
    fn default() -> Limit {
        Limit { kind: Bound::Unbounded, key: Vec::new() }
    }
}

impl Limit {
    fn set(&mut self, bound: Bound<&[u8]>) {
        self.key.clear();
        self.kind = bound.map(|key| self.key.extend_from_slice(key));
    }
    fn as_bound(&self) -> Bound<&[u8]> {
        self.kind.map(|()| self.key.as_slice())
    }
}

/// Buffers of a scan, kept by the client from one to the next.
#[derive(Default)]
pub(crate) struct ScanScratch {
    low: Limit,
    high: Limit,
    columns: Vec<u16>,
    aggregates: Vec<apus_signal::scan::Aggregate>,
    grouping: Vec<u8>,
    filter: Vec<u8>,
    streams: Vec<Stream>,
    /// Streams that ended, and their memory.
    spare: Vec<Stream>,
    split: Vec<Stream>,
    groups: Vec<(u16, PartitionId)>,
    wanted: Vec<usize>,
    spans: Vec<(usize, usize, usize)>,
}

/// Times that a scan of one moment begins again because its snapshot was lost.
const RESTARTS_MAX: u8 = 3;
/// Groups of a page that are many.
const MANY_GROUPS: usize = 512;
/// Scratch spaces that a client keeps.
const SCRATCHES_MAX: usize = 32;

/// Rows of some partitions, in order, from one LDM instance.
#[derive(Default)]
struct Stream {
    to: u16,
    partitions: Vec<PartitionId>,
    /// Whether [`Stream::resume`] says where to go on; not at the beginning.
    resumes: bool,
    resume: Vec<u8>,
    /// More may follow what is buffered.
    more: bool,
    /// Its node was lost, and nobody has answered for it since.
    lost: bool,
    /// It has been asked for rows, which nobody has taken yet.
    call: Option<Call>,
    rows: Rows,
    next: usize,
}

impl Stream {
    fn is_drained(&self) -> bool {
        self.next >= self.rows.len()
    }
    fn is_over(&self) -> bool {
        !self.more && self.is_drained()
    }
}

/// A scan under way; see [`Client::scan`].
pub struct ScanCursor {
    client: Client,
    trans: TransId,
    snapshot: Epoch,
    table: TableId,
    schema_version: u32,
    index: IndexNo,
    reverse: bool,
    ordered: bool,
    with_keys: bool,
    with_pending: bool,
    has_columns: bool,
    partitions: Option<Vec<PartitionId>>,
    left: u64,
    batch_rows: u32,
    /// A backup met rows that are not complete yet: only primaries are asked from there on.
    at_primary: bool,
    started: bool,
    losses: Losses,
    /// The first answers decide whether a snapshot is needed.
    probes: bool,
    /// It asks the other node first: of what is read at a snapshot every second scan does.
    is_beside: bool,
    /// It is to be read to its end, in no order, and asks for more before that is needed.
    is_wide: bool,
    /// So many groups came at first that partitions stay together.
    is_merged: bool,
    groups_follow: bool,
    /// Of the answers so far.
    moment: Moment,
    /// Messages were sent after the first answers.
    went_on: bool,
    /// No row was handed out.
    is_unseen: bool,
    /// Times that it begins again, at most, because its snapshot was lost.
    restarts: u8,
    /// Keeps what is read at.
    held: Option<Rc<Snapshot>>,
    scratch: ScanScratch,
}

impl Drop for ScanCursor {
    fn drop(&mut self) {
        let mut scratch = std::mem::take(&mut self.scratch);
        while let Some(stream) = scratch.streams.pop() {
            scratch.retire(stream);
        }
        let mut pool = self.client.inner.scans.borrow_mut();
        if pool.len() < SCRATCHES_MAX {
            pool.push(scratch);
        }
    }
}

impl ScanScratch {
    /// Keeps the memory of a stream that is over.
    fn retire(&mut self, mut stream: Stream) {
        stream.rows.clear();
        stream.partitions.clear();
        stream.call = None;
        self.spare.push(stream);
    }
    /// Sorts out the streams that are over.
    fn retire_ended(&mut self) {
        let mut at = 0;
        while at < self.streams.len() {
            if self.streams[at].is_over() {
                let stream = self.streams.remove(at);
                self.retire(stream);
            } else {
                at += 1;
            }
        }
    }
    /// A stream at its beginning.
    fn fresh(&mut self) -> Stream {
        let spare = self.spare.pop().unwrap_or_default();
        Stream { to: 0, resumes: false, more: true, lost: false, call: None, next: 0, ..spare }
    }
}

impl Client {
    /// A scan; nothing is sent before the first [`ScanCursor::next_batch`].
    pub fn scan(&self, request: &ScanRequest<'_>) -> ScanCursor {
        let mut scratch = self.inner.scans.borrow_mut().pop().unwrap_or_default();
        scratch.low.set(request.low);
        scratch.high.set(request.high);
        scratch.columns.clear();
        scratch.columns.extend_from_slice(request.columns.unwrap_or(&[]));
        scratch.aggregates.clear();
        scratch.grouping.clear();
        scratch.grouping.extend_from_slice(request.grouping);
        scratch.filter.clear();
        scratch.filter.extend_from_slice(request.filter);
        let is_beside = request.snapshot != Epoch(0) && self.inner.core.borrow_mut().takes_turn();
        ScanCursor {
            client: self.clone(),
            trans: request.trans,
            snapshot: request.snapshot,
            table: request.table,
            schema_version: request.schema_version,
            index: request.index,
            reverse: request.reverse,
            ordered: request.ordered,
            with_keys: request.with_keys,
            with_pending: request.with_pending,
            has_columns: request.columns.is_some(),
            partitions: request.partitions.map(<[PartitionId]>::to_vec),
            left: request.limit,
            batch_rows: request.batch_rows.clamp(1, SCAN_ROWS_MAX),
            at_primary: !request.trans.is_none() || request.with_pending,
            started: false,
            losses: Losses::default(),
            probes: request.one_moment && request.snapshot == Epoch(0),
            is_beside,
            is_wide: false,
            is_merged: false,
            groups_follow: request.groups_follow,
            moment: ANY_MOMENT,
            went_on: false,
            is_unseen: true,
            restarts: RESTARTS_MAX,
            held: None,
            scratch,
        }
    }

    /// Runs a scan to its end or limit and collects all rows: for results known to be small.
    ///
    /// # Errors
    /// As [`ScanCursor::next_batch`].
    pub async fn scan_all(&self, request: &ScanRequest<'_>, out: &mut Rows) -> Result<(), ClientError> {
        out.clear();
        let mut cursor = self.scan(request);
        let mut batch = Rows::new();
        if !cursor.next_batch(out).await? {
            return Ok(());
        }
        while cursor.next_batch(&mut batch).await? {
            for i in 0..batch.len() {
                out.push(batch.row(i).unwrap_or(&[]), batch.key(i))?;
            }
        }
        Ok(())
    }

    /// Aggregates beside the data; `out` gets one result per aggregate, merged over all partitions. `limit`, `ordered` and
    /// `columns` of the request mean nothing here. Returns as [`ScanCursor::moment`].
    ///
    /// # Errors
    /// `RequestTooLarge` for too many aggregates, `ValueOutOfRange` for a sum over 128 bits; as [`ScanCursor::next_batch`].
    pub async fn aggregate(
        &self,
        request: &ScanRequest<'_>,
        aggregates: Aggregates<'_>,
        out: &mut Vec<PartialAggregate>,
    ) -> Result<Option<Moment>, ClientError> {
        if aggregates.is_empty() || aggregates.len() > apus_signal::scan::AGGREGATES_MAX {
            return Err(ErrorCode::RequestTooLarge.into());
        }
        out.clear();
        out.resize(aggregates.len(), PartialAggregate::default());
        let mut cursor = self.scan(request);
        (cursor.ordered, cursor.with_keys, cursor.left) = (false, false, u64::MAX);
        cursor.scratch.aggregates.extend_from_slice(aggregates);
        let mut batch = self.inner.batches.borrow_mut().pop().unwrap_or_default();
        loop {
            match cursor.next_batch(&mut batch).await {
                Ok(true) => {
                    for row in batch.iter().flatten() {
                        merge_aggregates(aggregates, row, out)?;
                    }
                }
                Ok(false) => break,
                Err(e) if cursor.may_begin_again(&e) => {
                    out.fill(PartialAggregate::default());
                    cursor.read_at_snapshot().await?;
                }
                Err(e) => return Err(e),
            }
        }
        let moment = cursor.moment();
        let mut pool = self.inner.batches.borrow_mut();
        if pool.len() < SCRATCHES_MAX {
            batch.clear();
            pool.push(batch);
        }
        Ok(moment)
    }
}

fn merge_aggregates(list: Aggregates<'_>, row: &[u8], out: &mut [PartialAggregate]) -> Result<(), ClientError> {
    let mut r = Reader::new(row);
    for (aggregate, total) in list.iter().zip(out) {
        total.count = total.count.saturating_add(r.u64()?);
        if aggregate.function.is_count() {
            continue;
        }
        let present = r.u8()? != 0;
        let value = i128::from_le_bytes(*r.bytes(16)?.first_chunk::<16>().ok_or(DecodeError)?);
        total.value = match (aggregate.function, total.value) {
            (_, old) if !present => old,
            (_, None) => Some(value),
            (AggregateFunction::Min, Some(old)) => Some(old.min(value)),
            (AggregateFunction::Max, Some(old)) => Some(old.max(value)),
            (_, Some(old)) => Some(old.checked_add(value).ok_or(ErrorCode::ValueOutOfRange)?),
        };
    }
    Ok(r.end()?)
}

impl ScanCursor {
    /// The next rows, at least one; `false` and no rows at the end.
    ///
    /// # Errors
    /// What the data nodes refuse for good; the last temporary error after `read_timeout_ms`; `NodeFailed` for a scan of an own
    /// transaction whose node is lost. The cursor is of no use after an error.
    pub async fn next_batch(&mut self, out: &mut Rows) -> Result<bool, ClientError> {
        out.clear();
        loop {
            if self.left == 0 {
                return Ok(false);
            }
            match self.fetch().await {
                // What was read at is gone, and nobody has seen anything of it.
                Err(e) if self.is_unseen && self.may_begin_again(&e) => {
                    self.read_at_snapshot().await?;
                    continue;
                }
                done => done?,
            }
            if std::mem::take(&mut self.probes) && !self.has_all_at_once() {
                self.read_at_snapshot().await?;
                continue;
            }
            self.is_unseen = false;
            if self.scratch.streams.is_empty() {
                return Ok(false);
            }
            if self.merging() {
                self.merge(out)?;
            } else {
                self.hand_out(out);
            }
            if self.is_wide {
                self.ask_ahead().await;
            } else {
                self.is_merged = self.groups_follow && out.len() >= MANY_GROUPS;
            }
            out.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
            if !out.is_empty() {
                self.left = if self.left == u64::MAX { self.left } else { self.left - out.len() as u64 };
                return Ok(true);
            }
        }
    }

    /// Of which moment the rows are that were handed out; `None`: of several, or some are still to come.
    pub fn moment(&self) -> Option<Moment> {
        let is_whole = self.snapshot == Epoch(0) && !self.went_on && !self.scratch.streams.iter().any(|s| s.more);
        is_whole.then_some(self.moment)
    }
    /// The first answers are all that is needed, and of one moment.
    fn has_all_at_once(&self) -> bool {
        let left = self.left;
        self.moment.is_one() && self.scratch.streams.iter().all(|s| !s.more || s.rows.len() as u64 >= left)
    }
    fn may_begin_again(&mut self, error: &ClientError) -> bool {
        let may = error.code == ErrorCode::SnapshotTooOld && self.held.is_some() && self.restarts > 0;
        self.restarts -= u8::from(may);
        may
    }
    /// Begins again, at a snapshot of now.
    async fn read_at_snapshot(&mut self) -> Result<(), ClientError> {
        let snapshot = self.client.shared_snapshot().await?;
        self.snapshot = snapshot.epoch();
        self.held = Some(snapshot);
        while let Some(stream) = self.scratch.streams.pop() {
            self.scratch.retire(stream);
        }
        (self.started, self.is_wide, self.at_primary) = (false, false, !self.trans.is_none());
        Ok(())
    }

    fn merging(&self) -> bool {
        self.ordered && self.scratch.streams.len() > 1
    }

    /// One stream's buffer as it is.
    fn hand_out(&mut self, out: &mut Rows) {
        if let Some(stream) = self.scratch.streams.iter_mut().find(|s| !s.is_drained()) {
            if stream.next == 0 {
                std::mem::swap(out, &mut stream.rows);
            } else {
                // The rest of a stream that was merged before the others ended.
                for i in stream.next..stream.rows.len() {
                    let _ = out.push(stream.rows.row(i).unwrap_or(&[]), stream.rows.key(i));
                }
            }
            stream.rows.clear();
            stream.next = 0;
        }
    }

    /// Rows in order of their entry keys until a stream must be asked again.
    fn merge(&mut self, out: &mut Rows) -> Result<(), ClientError> {
        while out.len() < self.batch_rows as usize && (out.len() as u64) < self.left {
            let mut best: Option<(usize, &[u8])> = None;
            for (number, stream) in self.scratch.streams.iter().enumerate() {
                if stream.is_drained() {
                    if stream.more {
                        return Ok(());
                    }
                    continue;
                }
                let key = stream.rows.key(stream.next);
                if best.is_none_or(|(_, b)| if self.reverse { key > b } else { key < b }) {
                    best = Some((number, key));
                }
            }
            let Some((number, key)) = best else { return Ok(()) };
            let stream = &self.scratch.streams[number];
            let key = if self.with_keys { key } else { &[] };
            out.push(stream.rows.row(stream.next).unwrap_or(&[]), key)?;
            self.scratch.streams[number].next += 1;
        }
        Ok(())
    }

    /// Brings rows (or the end) to every stream that has none, all at once.
    async fn fetch(&mut self) -> Result<(), ClientError> {
        let client = self.client.clone();
        let mut retry = Retry::for_reads(&client);
        // Without a map nobody knows what all partitions are.
        while !self.started && client.view().partition_count() == 0 {
            retry.nowhere().await?;
        }
        self.start();
        loop {
            self.scratch.retire_ended();
            let needs_all = self.ordered;
            let any_rows = self.scratch.streams.iter().any(|s| !s.is_drained());
            if self.scratch.streams.iter().all(|s| !s.is_drained()) || (any_rows && !needs_all) {
                return Ok(());
            }
            self.place(&retry);
            match self.round(&client, &retry).await {
                Ok(()) if self.scratch.streams.iter().all(|s| !s.lost) => self.losses = Losses::default(),
                Ok(()) => {}
                Err(Failure::Refused(error)) => {
                    self.at_primary |= error.code == ErrorCode::WrongView;
                    retry.refused(error).await?;
                }
                Err(Failure::Lost(verdict)) => {
                    if !self.trans.is_none() {
                        return Err(self.losses.error());
                    }
                    let table = self.table;
                    let what = || format!("scan of table {}", table.0);
                    self.losses.admit(&client, retry.deadline(), what).await?;
                    retry.failed(verdict).await?;
                }
                Err(Failure::Nowhere) => retry.nowhere().await?,
            }
        }
    }

    fn start(&mut self) {
        if std::mem::replace(&mut self.started, true) {
            return;
        }
        let count = self.client.inner.core.borrow().view.partition_count();
        let mut stream = self.scratch.fresh();
        match &self.partitions {
            Some(some) => stream.partitions.extend_from_slice(some),
            None => stream.partitions.extend((0..count).map(PartitionId)),
        }
        if stream.partitions.is_empty() {
            self.scratch.retire(stream);
        } else {
            self.scratch.streams.push(stream);
        }
    }

    /// Splits streams that must be asked again by who serves their partitions now; into single partitions, where the scan becomes wide.
    fn place(&mut self, retry: &Retry<'_>) {
        // Who wants rows in order, or only some, is better off with few streams.
        self.is_wide |= !self.ordered && self.left == u64::MAX && self.scratch.streams.iter().any(|s| s.resumes);
        let core = self.client.inner.core.borrow();
        let is_wide = self.is_wide && !self.is_merged;
        let whom = match (self.at_primary, is_wide, self.is_beside) {
            (true, ..) => Whom::Primary,
            (_, true, _) => Whom::All,
            (.., true) => Whom::Beside,
            (.., false) => Whom::Near,
        };
        let to = |p: PartitionId| target(&core, p, whom, retry.attempt());
        let mut groups = std::mem::take(&mut self.scratch.groups);
        let mut split = std::mem::take(&mut self.scratch.split);
        for at in 0..self.scratch.streams.len() {
            let stream = &mut self.scratch.streams[at];
            if !stream.is_drained() || stream.call.is_some() {
                continue;
            }
            stream.to = stream.partitions.first().map_or(0, |&p| to(p));
            groups.clear();
            groups.extend(stream.partitions.iter().map(|&p| (to(p), p)));
            let is_one = !is_wide || groups.len() == 1;
            if is_one && groups.iter().all(|(to, _)| *to == stream.to) {
                continue;
            }
            stream.more = false;
            groups.sort_unstable();
            for group in groups.chunk_by(|a, b| !is_wide && a.0 == b.0) {
                let mut part = self.scratch.fresh();
                let stream = &self.scratch.streams[at];
                part.to = group[0].0;
                part.partitions.extend(group.iter().map(|g| g.1));
                part.resumes = stream.resumes;
                part.lost = stream.lost;
                part.resume.clear();
                part.resume.extend_from_slice(&stream.resume);
                split.push(part);
            }
        }
        drop(core);
        self.scratch.retire_ended();
        self.scratch.streams.append(&mut split);
        self.scratch.groups = groups;
        self.scratch.split = split;
    }

    async fn round(&mut self, client: &Client, retry: &Retry<'_>) -> Result<(), Failure> {
        // An answer to a stream that goes on is of a later moment, and may meet the end of what was asked first.
        self.went_on |= self.scratch.streams.iter().any(|s| s.resumes);
        if self.is_wide {
            return self.wide_round(client, retry).await;
        }
        let mut wanted = std::mem::take(&mut self.scratch.wanted);
        wanted.clear();
        wanted.extend((0..self.scratch.streams.len()).filter(|&i| self.scratch.streams[i].is_drained()));
        let mut failure = None;
        let (mut next, mut taken) = (0, 0);
        while taken < wanted.len() {
            while let Some(&number) = wanted.get(next) {
                let to = self.scratch.streams[number].to;
                if !client.inner.core.borrow().has_room((to >> 8) as u8) {
                    if taken < next {
                        break; // first take what we hold
                    }
                    client.room((to >> 8) as u8).await;
                }
                next += 1;
                if let Err(new) = self.send(number, retry.attempt_deadline()) {
                    failure = Some(new);
                }
            }
            for &number in &wanted[taken..next] {
                if let Err(new) = self.take(client, number).await {
                    failure = Some(new);
                }
            }
            taken = next;
        }
        self.scratch.wanted = wanted;
        failure.map_or(Ok(()), Err)
    }

    /// Takes the answer of the first stream, which goes behind the others then. Nodes work on what was asked of the others meanwhile, and rows come in an order that is always the same.
    async fn wide_round(&mut self, client: &Client, retry: &Retry<'_>) -> Result<(), Failure> {
        let Some(first) = self.scratch.streams.first() else { return Ok(()) };
        if first.call.is_none() {
            client.room((first.to >> 8) as u8).await;
            self.send(0, retry.attempt_deadline())?;
        }
        self.ask_free(retry);
        self.take(client, 0).await?;
        self.scratch.streams.rotate_left(1);
        Ok(())
    }

    /// Asks for what comes next while what has come is worked on. Requests leave when nobody runs.
    async fn ask_ahead(&mut self) {
        let client = self.client.clone();
        let retry = Retry::for_reads(&client);
        self.scratch.retire_ended();
        self.place(&retry);
        if self.ask_free(&retry) {
            let mut has_waited = false;
            poll_fn(|cx| {
                cx.waker().wake_by_ref();
                if std::mem::replace(&mut has_waited, true) { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
    }

    /// Sends the next request of each instance that works on none of this scan: one at a time, so that others wait for one page at most. Whether any was sent.
    fn ask_free(&mut self, retry: &Retry<'_>) -> bool {
        let mut is_any = false;
        for number in 0..self.scratch.streams.len() {
            let stream = &self.scratch.streams[number];
            let to = stream.to;
            let is_busy = self.scratch.streams.iter().any(|s| s.to == to && s.call.is_some());
            if !is_busy && stream.is_drained() && self.client.inner.core.borrow().has_room((to >> 8) as u8) {
                // One that cannot be sent is tried again when its turn comes.
                is_any |= self.send(number, retry.attempt_deadline()).is_ok();
            }
        }
        is_any
    }

    /// Asks for the next rows of a stream.
    fn send(&mut self, number: usize, deadline: u64) -> Result<(), Failure> {
        let with_keys = self.with_keys || (self.ordered && self.scratch.streams.len() > 1);
        let stream = &self.scratch.streams[number];
        if stream.to == 0 {
            return Err(Failure::Nowhere);
        }
        let (mut low, mut high) = (self.scratch.low.as_bound(), self.scratch.high.as_bound());
        if stream.resumes {
            *(if self.reverse { &mut high } else { &mut low }) = Bound::Excluded(&stream.resume);
        }
        let rows_max = u64::from(self.batch_rows).min(self.left) as u32;
        let call = self.client.call(ldm(stream.to), Kind::ScanReq, Kind::ScanConf, deadline, |body, request| {
            ScanSpec {
                request,
                trans: self.trans,
                snapshot: self.snapshot,
                table: self.table,
                schema_version: self.schema_version,
                index: self.index,
                reverse: self.reverse,
                with_keys,
                with_pending: self.with_pending,
                with_moment: self.snapshot == Epoch(0),
                rows_max,
                bytes_max: SCAN_BYTES_MAX,
                low,
                high,
                columns: self.has_columns.then_some(self.scratch.columns.as_slice()),
                partitions: &stream.partitions,
                aggregates: &self.scratch.aggregates,
                grouping: &self.scratch.grouping,
                filter: &self.scratch.filter,
            }
            .encode(body);
        });
        self.scratch.streams[number].call = Some(call.ok_or(Failure::Lost(None))?);
        Ok(())
    }

    /// Waits for the answer to a stream that was asked. Where there is none, the stream is as it was before.
    async fn take(&mut self, client: &Client, number: usize) -> Result<(), Failure> {
        let stream = &mut self.scratch.streams[number];
        let Some(call) = stream.call.take() else { return Ok(()) };
        let verdict = call.end(stream.rows.buffer()).await;
        stream.next = 0;
        let taken = self.understand(client, number, verdict);
        if taken.is_err() {
            self.scratch.streams[number].rows.clear();
        }
        taken
    }

    fn understand(&mut self, client: &Client, number: usize, verdict: Verdict) -> Result<(), Failure> {
        let ScanScratch { streams, spans, .. } = &mut self.scratch;
        let stream = &mut streams[number];
        match verdict {
            Verdict::Answer(Kind::ScanConf) => match take_rows(stream, self.reverse, spans) {
                Ok(moment) => {
                    self.moment = self.moment.and(moment);
                    stream.lost = false;
                    Ok(())
                }
                Err(_) => {
                    client.violation(ldm(stream.to).node);
                    Err(Failure::Lost(None))
                }
            },
            Verdict::Answer(_) => Err(Failure::Refused(refusal(stream.rows.bytes()))),
            lost => {
                if lost == Verdict::LinkLost {
                    stream.lost = true;
                    self.losses.note_link(&client.inner.core.borrow(), ldm(stream.to).node);
                }
                Err(Failure::Lost(Some(lost)))
            }
        }
    }
}

/// The answer in the stream's buffer: checked whole, then its rows are listed.
///
/// Returns the answer's moment: no epoch where it does not say one.
fn take_rows(
    stream: &mut Stream,
    reverse: bool,
    spans: &mut Vec<(usize, usize, usize)>,
) -> Result<Moment, DecodeError> {
    let conf = ScanConf::decode(stream.rows.bytes())?;
    let (more, resume) = (conf.more, conf.resume);
    let mut at = CONF_HEAD + resume.len();
    spans.clear();
    if conf.count > SCAN_ROWS_MAX {
        return Err(DecodeError);
    }
    for row in conf.rows() {
        let (row, key) = row?;
        spans.push((at + ROW_HEAD, row.len(), key.len()));
        at += ROW_HEAD + row.len() + key.len();
    }
    let says_moment = stream.rows.bytes().len() == at + MOMENT_BYTES;
    let moment = if says_moment { Moment::at_end_of(stream.rows.bytes())? } else { Moment::NONE };
    if more {
        // A scan that does not advance would never end.
        let old = stream.resume.as_slice();
        if stream.resumes && if reverse { resume >= old } else { resume <= old } {
            return Err(DecodeError);
        }
        stream.resume.clear();
        stream.resume.extend_from_slice(resume);
        stream.resumes = true;
    }
    stream.more = more;
    for &(start, length, key_length) in spans.iter() {
        stream.rows.push_span(start, length, key_length);
    }
    Ok(moment)
}

enum Failure {
    Refused(ClientError),
    Lost(Option<Verdict>),
    Nowhere,
}
