//! The coordinator's record of a transaction, and the pool of them.

use apus_signal::{
    BlockRef, DecodeError, Kind, Reader,
    ldm::{IndexChange, LdmBatchConf},
    tc::RequestRef,
};
use apus_types::{
    Chain, Epoch, ErrorCode, IndexNo, NodeId, TransId,
    collections::{SeededMap, seeded_map},
};

use crate::flight::InFlight;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    Active,
    /// A batch is with its LDM to be committed on the way.
    OnePass,
    /// Commit was asked; some prepare is not confirmed yet.
    Preparing,
    Committing,
    /// A statement is being undone.
    RollingBack,
    Aborting,
}

/// One replica chain on one LDM instance that the transaction has used.
#[derive(Clone, Copy, Debug)]
pub struct Participant {
    pub chain: Chain,
    pub instance: u8,
    pub writes: bool,
    /// Something was sent there, so it may hold locks and versions; otherwise there is nothing to end.
    pub sent: bool,
    /// Batches whose `LdmPreparedConf` is outstanding; below zero while a confirmation has overtaken its `LdmBatchConf`.
    pub unprepared: i32,
    /// The answer to the commit, abort or rollback under way is in.
    pub ended: bool,
    /// Aborts and rollbacks sent so far.
    pub round: u32,
}

/// What the client waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    Nothing,
    Batch,
    Commit,
    Rollback,
}

/// Sent when the switchover is over, by a new view or without one.
pub const HELD: u64 = u64::MAX;

/// A part of the client's batch, or the index work that follows from it, at one participant.
#[derive(Default, Debug)]
pub struct Sub {
    pub batch: u32,
    pub participant: usize,
    pub done: bool,
    pub index_work: bool,
    /// Refused because of the view, or held for a switchover ([`HELD`]); sent again when there is a newer one, or at this time.
    pub retry_at: Option<u64>,
    pub flags: u8,
    /// The operations as sent.
    pub ops: Vec<u8>,
    pub count: u16,
    /// Where each operation stands in the client's batch (index work: the operation and index that caused it).
    pub origin: Vec<(u16, IndexNo)>,
    pub results: Vec<u8>,
}

/// The client's request under way.
#[derive(Debug)]
pub struct Request {
    pub id: u64,
    pub asked: Asked,
    pub flags: u8,
    pub savepoint: u32,
    pub lock_wait_ms: u32,
    pub count: u16,
    /// The first `sub_count` are in use; the rest keep their buffers for later.
    pub subs: Vec<Sub>,
    pub sub_count: usize,
    pub outstanding: usize,
    pub failure: Option<Failure>,
    /// Entries of unique indexes that the parts ask for, until all parts are answered.
    pub changes: Vec<u8>,
    pub change_count: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failure {
    pub code: ErrorCode,
    pub op: u16,
    pub index: IndexNo,
}

#[derive(Debug)]
pub struct Trans {
    pub id: TransId,
    /// `None`: gone, or the transaction was taken over.
    pub client: Option<BlockRef>,
    /// Its neighbours in the list of its client's link.
    younger: u32,
    older: u32,
    pub state: State,
    pub participants: Vec<Participant>,
    pub next_batch: u32,
    /// Must be rolled back at the next opportunity, with this code.
    pub doomed: Option<ErrorCode>,
    pub request: Request,
    /// Whom its waiting batch waits for, as last reported.
    pub waits_for: Vec<(TransId, BlockRef)>,
    /// Whose deadlock probes were passed on along these waits, and when.
    probed: Vec<(TransId, u64)>,
    /// When it began, ns.
    pub since: u64,
    /// The request that it had executed last when somebody was first held up by it, and when that was, ns.
    pub held_up: Option<(u64, u64)>,
    pub epoch: Epoch,
    /// Why it is being rolled back, and details for the client.
    pub abort_code: ErrorCode,
    pub detail: Vec<u8>,
    /// Its client wants the commit on the disks of all replicas before it is told.
    pub durable: bool,
    /// It has had an operation that may change something.
    pub wrote: bool,
    /// Coordinated by a node that died before.
    pub taken_over: bool,
    /// Generation of the view in which it was looked at last: what that view means for it is done.
    pub view: u64,
    /// Counted among the commits under way, by `epoch`.
    pub in_flight: bool,
    /// Its part of [`Transactions::held`].
    counted: usize,
    used: bool,
}

impl Trans {
    /// Nothing that cannot be taken back is under way.
    /// It is rolled back though its client asked for nothing: the client is told when it next asks.
    pub fn ends_unasked(&self) -> bool {
        self.state == State::Aborting && self.request.asked == Asked::Nothing
    }
    pub fn may_abort(&self) -> bool {
        matches!(self.state, State::Active | State::Preparing | State::RollingBack)
    }
    pub fn participant(&mut self, chain: Chain, instance: u8) -> usize {
        match self.participants.iter().position(|p| p.chain == chain && p.instance == instance) {
            Some(i) => i,
            None => {
                self.participants.push(Participant {
                    chain,
                    instance,
                    writes: false,
                    sent: false,
                    unprepared: 0,
                    ended: false,
                    round: 0,
                });
                self.participants.len() - 1
            }
        }
    }
    fn bytes(&self) -> usize {
        let of_sub = |s: &Sub| s.ops.capacity() + s.results.capacity() + 8 * s.origin.capacity();
        let buffers: usize = self.request.subs.iter().map(of_sub).sum();
        RECORD_BYTES + buffers + self.request.changes.capacity() + self.detail.capacity()
    }
    fn drop_buffers(&mut self) {
        (self.request.subs, self.request.sub_count, self.request.changes) = (Vec::new(), 0, Vec::new());
        self.detail = Vec::new();
    }
    /// A probe goes on from here once, however many ways lead here: whoever waits sends new ones later. Beyond [`PROBES_MAX`] it has to wait for
    /// that, too.
    pub fn passes_probe(&mut self, origin: TransId, now: u64) -> bool {
        self.probed.retain(|(_, at)| now.saturating_sub(*at) < PROBE_NS);
        let passes = self.probed.len() < PROBES_MAX && self.probed.iter().all(|(known, _)| *known != origin);
        if passes {
            self.probed.push((origin, now));
        }
        passes
    }
    pub fn all_ended(&self) -> bool {
        self.participants.iter().all(|p| p.ended)
    }
    pub fn subs(&self) -> &[Sub] {
        &self.request.subs[..self.request.sub_count]
    }
    /// The part of the request under way for this participant, made if there is none: its place.
    pub fn sub_for(&mut self, chain: Chain, instance: u8) -> usize {
        let participant = self.participant(chain, instance);
        self.subs().iter().position(|s| s.participant == participant).unwrap_or_else(|| {
            self.new_sub(participant);
            self.request.sub_count - 1
        })
    }
    pub fn sub_mut(&mut self, batch: u32) -> Option<&mut Sub> {
        let count = self.request.sub_count;
        self.request.subs[..count].iter_mut().find(|s| s.batch == batch && !s.done)
    }
    /// Takes over the changes of unique indexes that a part has caused. The part counts its own operations, we count the batch's.
    pub fn collect_changes(&mut self, conf: &LdmBatchConf<'_>) -> Result<(), DecodeError> {
        let Request { subs, sub_count, changes, change_count, .. } = &mut self.request;
        let sub = subs[..*sub_count].iter().find(|s| s.batch == conf.batch).ok_or(DecodeError)?;
        let mut reader = Reader::new(conf.changes);
        for _ in 0..conf.change_count {
            let change = IndexChange::decode(&mut reader)?;
            let (op, _) = *sub.origin.get(usize::from(change.op)).ok_or(DecodeError)?;
            IndexChange { op, ..change }.encode(changes);
        }
        *change_count += usize::from(conf.change_count);
        Ok(())
    }
    /// A fresh part of the request under way.
    pub fn new_sub(&mut self, participant: usize) -> &mut Sub {
        assert!(
            participant < self.participants.len(),
            "a part of {} goes to participant {participant}, whom nobody knows",
            self.id
        );
        let request = &mut self.request;
        assert!(
            request.asked == Asked::Batch,
            "{} gets a part of a batch and was asked for {:?}",
            self.id,
            request.asked
        );
        if request.sub_count == request.subs.len() {
            request.subs.push(Sub::default());
        }
        request.outstanding += 1;
        request.sub_count += 1;
        let sub = &mut request.subs[request.sub_count - 1];
        sub.batch = self.next_batch;
        self.next_batch += 1;
        sub.participant = participant;
        sub.done = false;
        sub.index_work = false;
        sub.retry_at = None;
        sub.flags = 0;
        sub.ops.clear();
        sub.count = 0;
        sub.origin.clear();
        sub.results.clear();
        sub
    }
    pub fn begin_request(&mut self, id: u64, asked: Asked) {
        let request = &mut self.request;
        request.id = id;
        request.asked = asked;
        request.sub_count = 0;
        request.outstanding = 0;
        request.failure = None;
        request.changes.clear();
        request.change_count = 0;
    }
    /// The refusal that tells the client of the whole transaction's end.
    pub fn abort_refusal(&self) -> (Kind, RequestRef<'_>) {
        let failure = self.request.failure;
        let refusal = RequestRef {
            request: self.request.id,
            code: self.abort_code,
            aborted: true,
            op: failure.map_or(0, |f| f.op),
            index: failure.map_or(0, |f| f.index.0),
            detail: &self.detail,
        };
        (Kind::TcBatchRef, refusal)
    }
}

/// A probe of the same origin goes on again after so long, in nanoseconds: less than the pause between two reports of a wait.
const PROBE_NS: u64 = 20_000_000;
/// Most origins whose probes one waiting transaction passes on within that time.
const PROBES_MAX: usize = 256;

/// Bytes of a record besides its buffers: itself, its participants, its place in the map.
pub const RECORD_BYTES: usize = size_of::<Trans>() + 256;
/// A record keeps buffers of so many bytes for its next user.
const KEPT_BYTES: usize = RECORD_BYTES + (64 << 10);
/// All unused records together keep so many: what a rush of large batches leaves behind must not stand in the way of the next ones.
const SPARE_BYTES_MAX: usize = 4 << 20;

#[derive(Debug, Default)]
pub struct Transactions {
    /// Bytes of all records, as counted last.
    held: usize,
    /// The buffers of unused records among them.
    spare: usize,
    /// Ordered commits that some chain has not confirmed yet.
    pub in_flight: InFlight,
    slots: Vec<Trans>,
    free: Vec<u32>,
    by_id: SeededMap<TransId, u32>,
    /// The youngest transaction of each client's link, by the number of the link.
    of_links: Vec<u32>,
}

/// In the lists of links: nobody.
const NONE: u32 = u32::MAX;

/// The number of a client's link.
pub fn link_number(client: NodeId) -> usize {
    usize::from(client.0.wrapping_sub(NodeId::CLIENT_BASE))
}

impl Transactions {
    /// Clients choose the ids: a secret seed keeps them from choosing those that collide.
    pub fn seed(&mut self, seed: u64) {
        let old = std::mem::replace(&mut self.by_id, seeded_map(seed));
        self.by_id.extend(old);
    }
    pub fn len(&self) -> usize {
        self.by_id.len()
    }
    /// Places of records, used or not: all are below it.
    pub fn places(&self) -> u32 {
        self.slots.len() as u32
    }
    pub fn find(&self, id: TransId) -> Option<u32> {
        self.by_id.get(&id).copied()
    }
    pub fn get(&self, at: u32) -> &Trans {
        &self.slots[at as usize]
    }
    /// This transaction is still in this slot.
    pub fn is_open(&self, at: u32, id: TransId) -> bool {
        self.slots.get(at as usize).is_some_and(|t| t.used && t.id == id)
    }
    pub fn is_used(&self, at: u32) -> bool {
        self.slots.get(at as usize).is_some_and(|t| t.used)
    }
    pub fn get_mut(&mut self, at: u32) -> &mut Trans {
        &mut self.slots[at as usize]
    }
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Trans)> {
        self.slots.iter().enumerate().filter(|(_, t)| t.used).map(|(i, t)| (i as u32, t))
    }
    /// The youngest one of this client's link.
    pub fn of_client(&self, client: NodeId) -> Option<u32> {
        self.of_links.get(link_number(client)).copied().filter(|at| *at != NONE)
    }
    fn enlist(&mut self, at: u32, client: BlockRef) {
        let number = link_number(client.node);
        if self.of_links.len() <= number {
            self.of_links.resize(number + 1, NONE);
        }
        let older = std::mem::replace(&mut self.of_links[number], at);
        let trans = &mut self.slots[at as usize];
        assert!(trans.client.is_none(), "{} has two clients, {:?} and {client:?}", trans.id, trans.client);
        (trans.client, trans.older, trans.younger) = (Some(client), older, NONE);
        if let Some(older) = self.slots.get_mut(older as usize) {
            older.younger = at;
        }
    }
    /// Nobody waits for its answers any more.
    pub fn forget_client(&mut self, at: u32) {
        let trans = &mut self.slots[at as usize];
        let (younger, older) = (trans.younger, trans.older);
        let Some(client) = trans.client.take() else { return };
        if let Some(older) = self.slots.get_mut(older as usize) {
            assert!(older.younger == at, "the list of link {client:?} is broken");
            older.younger = younger;
        }
        match self.slots.get_mut(younger as usize) {
            Some(younger) => {
                assert!(younger.older == at, "the list of link {client:?} is broken");
                younger.older = older;
            }
            None => {
                let first = std::mem::replace(&mut self.of_links[link_number(client.node)], older);
                assert!(first == at, "record {at} is not the first of link {client:?}, {first} is");
            }
        }
    }

    pub fn create(&mut self, id: TransId, client: Option<BlockRef>, view: u64, now: u64) -> u32 {
        let at = match self.free.pop() {
            Some(at) => {
                let kept = self.slots[at as usize].counted - RECORD_BYTES;
                assert!(self.spare >= kept, "{} bytes are spare, {kept} of them in record {at}", self.spare);
                self.spare -= kept;
                at
            }
            None => {
                self.slots.push(Trans {
                    id,
                    client: None,
                    younger: NONE,
                    older: NONE,
                    state: State::Active,
                    participants: Vec::with_capacity(4),
                    next_batch: 1,
                    doomed: None,
                    durable: false,
                    wrote: false,
                    request: Request {
                        id: 0,
                        asked: Asked::Nothing,
                        flags: 0,
                        savepoint: 0,
                        lock_wait_ms: 0,
                        count: 0,
                        subs: Vec::new(),
                        sub_count: 0,
                        outstanding: 0,
                        failure: None,
                        changes: Vec::new(),
                        change_count: 0,
                    },
                    waits_for: Vec::new(),
                    probed: Vec::new(),
                    since: 0,
                    held_up: None,
                    epoch: Epoch(0),
                    abort_code: ErrorCode::TransactionAborted,
                    detail: Vec::new(),
                    taken_over: false,
                    view: 0,
                    in_flight: false,
                    counted: 0,
                    used: false,
                });
                (self.slots.len() - 1) as u32
            }
        };
        let trans = &mut self.slots[at as usize];
        assert!(!trans.used, "transaction slot given out twice");
        trans.id = id;
        trans.since = now;
        trans.held_up = None;
        trans.state = State::Active;
        trans.participants.clear();
        trans.next_batch = 1;
        trans.doomed = None;
        (trans.durable, trans.wrote) = (false, false);
        trans.waits_for.clear();
        trans.probed.clear();
        trans.detail.clear();
        trans.taken_over = false;
        trans.view = view;
        trans.used = true;
        trans.begin_request(0, Asked::Nothing);
        if let Some(client) = client {
            self.enlist(at, client);
        }
        let known = self.by_id.insert(id, at);
        assert!(known.is_none(), "transaction {id} gets a second record, {at} beside {known:?}");
        at
    }

    /// The commit of this transaction is ordered, with its epoch; until it is removed the epoch is not drained.
    pub fn enter_flight(&mut self, at: u32) {
        let trans = &mut self.slots[at as usize];
        assert!(!trans.in_flight, "transaction {} committed twice", trans.id);
        assert!(trans.epoch > Epoch(0), "transaction {} is committed in no epoch", trans.id);
        assert!(trans.request.outstanding == 0, "transaction {} is committed amid a batch", trans.id);
        trans.in_flight = true;
        self.in_flight.enter(trans.epoch);
    }

    /// Bytes of all records.
    pub fn held(&self) -> usize {
        self.held
    }
    /// The buffers of this one have changed.
    #[inline]
    pub fn recount(&mut self, at: u32) {
        let trans = &mut self.slots[at as usize];
        let now = trans.bytes();
        let before = std::mem::replace(&mut trans.counted, now);
        assert!(self.held >= before, "{} bytes are held, {before} of them by {}", self.held, trans.id);
        self.held = self.held + now - before;
    }
    /// Unused records give up their buffers.
    #[cold]
    pub fn drop_spare(&mut self) {
        if self.spare == 0 {
            return;
        }
        for place in 0..self.free.len() {
            let at = self.free[place];
            self.slots[at as usize].drop_buffers();
            self.recount(at);
        }
        self.spare = 0;
    }
    /// # Errors
    /// Bytes that are not counted, or counted twice; a record that is neither used nor free, or in the list of another link than its client's.
    pub fn verify(&self) -> Result<(), String> {
        let counted: usize = self.slots.iter().map(|t| t.counted).sum();
        let (all, free, known) = (self.slots.len(), self.free.len(), self.by_id.len());
        let spare: usize = self.free.iter().map(|at| self.slots[*at as usize].counted - RECORD_BYTES).sum();
        if spare != self.spare || spare > SPARE_BYTES_MAX {
            return Err(format!("unused records keep {spare} bytes, {} are counted", self.spare));
        }
        if counted != self.held || all != free + known {
            let held = self.held;
            return Err(format!("{all} records, {free} free, {known} known; {held} bytes, {counted} counted"));
        }
        let mut listed = 0;
        for (number, &first) in self.of_links.iter().enumerate() {
            let mut at = first;
            while let Some(trans) = self.slots.get(at as usize) {
                if !trans.used || trans.client.is_none_or(|c| link_number(c.node) != number) {
                    return Err(format!(
                        "transaction {} of {:?} is in the list of link {number}",
                        trans.id, trans.client
                    ));
                }
                listed += 1;
                at = trans.older;
            }
        }
        let of_clients = self.iter().filter(|(_, t)| t.client.is_some()).count();
        if listed != of_clients {
            return Err(format!("{of_clients} transactions have a client, {listed} are listed"));
        }
        Ok(())
    }

    pub fn remove(&mut self, at: u32) {
        self.forget_client(at);
        let trans = &mut self.slots[at as usize];
        assert!(trans.used, "record {at} of {} is given back twice", trans.id);
        let commits = trans.state == State::Committing;
        assert!(
            trans.in_flight == commits,
            "{} is {:?}, counted for its epoch: {}",
            trans.id,
            trans.state,
            trans.in_flight
        );
        if std::mem::take(&mut trans.in_flight) {
            self.in_flight.leave(trans.epoch);
        }
        trans.used = false;
        let known = self.by_id.remove(&trans.id);
        assert!(known == Some(at), "{} has record {at} and is known by {known:?}", trans.id);
        let bytes = trans.bytes();
        if bytes > KEPT_BYTES || self.spare + bytes - RECORD_BYTES > SPARE_BYTES_MAX {
            trans.drop_buffers();
        }
        self.recount(at);
        self.spare += self.slots[at as usize].counted - RECORD_BYTES;
        self.free.push(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_rush_leaves_behind_is_bounded() {
        let mut all = Transactions::default();
        let begin = |all: &mut Transactions, n: u64| all.create(TransId { client: 1, seq: n }, None, 1, 0);
        let open: Vec<u32> = (1..=1000).map(|n| begin(&mut all, n)).collect();
        for &at in &open {
            let trans = all.get_mut(at);
            trans.request.changes = Vec::with_capacity(50 << 10);
            trans.detail = Vec::with_capacity(1 << 10);
            all.recount(at);
        }
        assert!(all.held() > 1000 * (50 << 10));
        open.iter().for_each(|at| all.remove(*at));
        all.verify().expect("all is counted");
        assert!(all.held() <= 1000 * RECORD_BYTES + SPARE_BYTES_MAX, "{} bytes stay", all.held());
        assert!(all.held() > 1000 * RECORD_BYTES, "a record keeps what its next user needs");
        all.drop_spare();
        all.verify().expect("all is counted");
        assert_eq!(all.held(), 1000 * RECORD_BYTES);
        let again: Vec<u32> = (2001..=3000).map(|n| begin(&mut all, n)).collect();
        all.verify().expect("all is counted");
        again.iter().for_each(|at| all.remove(*at));
        all.verify().expect("all is counted");
    }
}
