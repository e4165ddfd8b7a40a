//! Committed key reads, and a transaction's reads of its own changes; see `apus_signal::key_read`.

use apus_kernel::Context;
use apus_signal::{
    BlockRef, DecodeError, Kind,
    key_read::{ReadConf, ReadReq, ReadStatus},
};
use apus_storage::LockMode;
use apus_types::{
    Epoch, ErrorCode, PartitionId, RowLayout,
    planted::{Bug, planted},
};

use super::{
    LocalDataManager,
    ahead::{AHEAD, Ahead},
    tables::Table,
    trans::{NONE, Standing},
};

impl LocalDataManager {
    pub(super) fn on_read_req(
        &mut self,
        from: BlockRef,
        body: &[u8],
        ctx: &mut Context<'_>,
    ) -> Result<(), DecodeError> {
        let req = ReadReq::decode(body)?;
        let mut answer = std::mem::take(&mut self.scratch.rows);
        answer.clear();
        let result = self.read_keys(&req, ctx.epoch(), &mut answer);
        match result {
            Ok(()) => ctx.send(from, Kind::ReadConf, |out| out.extend_from_slice(&answer)),
            Err(code) => self.refuse_request(from, req.request, code, ctx),
        }
        self.scratch.rows = answer;
        if result == Err(ErrorCode::ProtocolViolation) { Err(DecodeError) } else { Ok(()) }
    }

    fn read_keys(&mut self, req: &ReadReq<'_>, now: Epoch, answer: &mut Vec<u8>) -> Result<(), ErrorCode> {
        if !self.is_up() {
            return Err(ErrorCode::NodeStarting);
        }
        self.counters.reads += u64::from(req.count);
        let reader = if req.trans.is_none() { NONE } else { self.transactions.find(req.trans).unwrap_or(NONE) };
        let table = self.tables.checked(req.table, req.schema_version)?;
        if req.snapshot.0 != 0 {
            self.epochs.check_read(req.snapshot, now, table.created)?;
        }
        let projection = table.projection(req.projection)?;
        let table = &*table;
        ReadConf::begin(answer, req.request, req.count);
        let mut ahead = Ahead::default();
        let mut coming = [(PartitionId(0), &[][..]); AHEAD];
        let mut keys = req.keys();
        for number in 0..usize::from(req.count) {
            if number % AHEAD == 0 {
                ahead.clear();
                for (place, key) in coming.iter_mut().zip(keys.by_ref()) {
                    *place = key?;
                    ahead.push(table.fragment(place.0), self.secret.of(place.1));
                }
                ahead.fetch();
            }
            let (partition, key) = coming[number % AHEAD];
            let primary = self.view.chain(partition).primary() == Some(self.me.node);
            if !primary && !req.trans.is_none() {
                return Err(ErrorCode::WrongView);
            }
            let (fragment, hash, guess) = ahead.get(number % AHEAD);
            let fragment = fragment.ok_or(ErrorCode::WrongView)?;
            let at_latest = req.snapshot == Epoch(0);
            if let Some((since, image)) = guess.and_then(|row| fragment.settled_at(row, key))
                && (at_latest || since <= req.snapshot)
            {
                push_image(answer, table, image, projection.as_deref());
                continue;
            }
            let Some(row) = fragment.find_near(guess, key, hash) else {
                ReadConf::push_missing(answer, ReadStatus::NotFound);
                continue;
            };
            let standing = fragment.writer(row).map_or(Standing::Open, |writer| self.transactions.standing(writer));
            let is_incomplete =
                fragment.incomplete(row) > 0 || matches!(standing, Standing::Between | Standing::Decided);
            if at_latest && !primary && is_incomplete && !planted(Bug::IncompleteRead) {
                self.counters.sent_to_primary += 1;
                ReadConf::push_missing(answer, ReadStatus::AtPrimary);
                continue;
            }
            if at_latest && standing == Standing::Between {
                return Err(ErrorCode::WrongView); // for as long as the order is on its way that commits the row's other chain
            }
            let own = reader != NONE
                && fragment.has_pending(row)
                && self.locks.held_mode(fragment.lock_word_of(row), reader) == Some(LockMode::Exclusive);
            let image = match (own || planted(Bug::PendingRead), req.snapshot) {
                (true, _) => fragment.newest(row),
                (_, Epoch(0)) => fragment.committed(row, &self.transactions),
                (_, snapshot) => fragment.committed_at(row, snapshot, &self.transactions),
            };
            push_image(answer, table, image, projection.as_deref());
        }
        if req.with_moment {
            self.epochs.moment(req.table, table.created, &self.transactions).encode(answer);
        }
        Ok(())
    }

    /// Whether this node may answer for the partition at all.
    pub(super) fn serves(&self, partition: PartitionId) -> bool {
        self.view.chain(partition).contains(self.me.node)
    }
}

#[inline]
fn push_image(answer: &mut Vec<u8>, table: &Table, image: Option<&[u8]>, projection: Option<&(Vec<u16>, RowLayout)>) {
    match image {
        None => ReadConf::push_missing(answer, ReadStatus::NotFound),
        Some(image) => ReadConf::push_row(answer, |out| match projection {
            None => out.extend_from_slice(image),
            Some(p) => table.schema.layout().project(image, &p.0, &p.1, out),
        }),
    }
}
