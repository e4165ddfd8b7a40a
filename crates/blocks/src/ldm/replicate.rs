//! The replica chain: prepare forward, commit backward, abort out and back. What becomes of the rows is in `ends`.

use apus_kernel::{Context, jam};
use apus_redo::Entry as LogEntry;
use apus_signal::{
    BlockRef, DecodeError, Kind,
    ldm::{CANCEL_WAIT, LdmEnd, LdmPrepareReq, LdmPrepared, ONE_PASS, PreparedRow},
};
use apus_storage::{Acquire, Change, Fragment, LockMode, Locks, RowId};
use apus_types::{
    Chain, Epoch, ErrorCode, IndexNo, TransId,
    planted::{Bug, planted},
};

use super::{
    LocalDataManager,
    ahead::{AHEAD, fetch_entries},
    ends::RowEnds,
    execute::OP_NS_MAX,
    redo::Redo,
    trans::{Entry, NONE, Part, Transactions, Undo},
};

impl LocalDataManager {
    pub(super) fn end_signal(&self, trans: TransId, chain: Chain, tc: BlockRef, epoch: Epoch) -> LdmEnd {
        LdmEnd { generation: self.view.generation, trans, chain, tc, epoch, savepoint: 0, round: 0 }
    }

    /// A backup takes over the rows of a batch and passes them on.
    pub(super) fn on_prepare_req(&mut self, req: &LdmPrepareReq<'_>, ctx: &mut Context<'_>) -> Result<(), DecodeError> {
        jam!(ctx);
        if !self.coordinator_valid(req.tc, req.generation) && !planted(Bug::GateLeftOpen) {
            ctx.probe("ldm: prepare of a removed coordinator dropped");
            return Ok(());
        }
        assert!(
            req.generation <= self.view.generation,
            "rows of view {} come in {}",
            req.generation,
            self.view.generation
        );
        ctx.spend(usize::from(req.count), OP_NS_MAX);
        let known = self.transactions.find(req.trans);
        if known.is_some_and(|at| self.is_of_another(at, req.tc) || self.is_orphan(at)) {
            self.refuse_used_id(req, ctx);
            return Ok(());
        }
        let at = self.transactions.find_or_create(req.trans, req.tc, req.generation);
        let part = self.transactions.ensure_part(at, req.chain);
        if part.committed {
            // Sent again because a node between us died; the commit goes back from here.
            let epoch = part.epoch;
            ctx.probe("ldm: one-pass batch came again after its commit");
            self.send_commit_back(req.trans, req.chain, req.tc, epoch, ctx);
            return Ok(());
        }
        if part.one_pass {
            ctx.probe("ldm: one-pass batch came again before its commit");
            return Ok(()); // what came first is on its way along the living chain
        }
        let one_pass = req.flags & ONE_PASS != 0;
        if let Some(code) = part.refused.filter(|_| one_pass) {
            ctx.probe("ldm: refused one-pass batch came again");
            self.refuse_one_pass(at, req.batch, req.chain, code, ctx);
            return Ok(());
        }
        part.one_pass = one_pass;
        part.epoch = req.epoch;
        assert!(!part.aborted && part.undo.is_none(), "a prepare of {} comes while it is undone: {part:?}", req.trans);
        assert!(req.chain.contains(self.me.node), "a prepare of {} for {:?} has come here", req.trans, req.chain);
        let number_of_part = part.number;
        let disk_refusal = self.redo.as_ref().and_then(Redo::refusal);
        let mut rows = req.rows();
        let mut left = usize::from(req.count);
        while left > 0 {
            let mut coming: [Option<PreparedRow<'_>>; AHEAD] = [const { None }; AHEAD];
            for (place, row) in coming.iter_mut().zip(rows.by_ref()) {
                *place = Some(row?);
            }
            let hashes = if req.count > 1 { self.fetch_rows(&coming) } else { [None; AHEAD] };
            for (row, hash) in coming.iter().flatten().zip(hashes) {
                left -= 1;
                let refusal = if ctx.fault("ldm.refuse_prepare") { Some(ErrorCode::OutOfMemory) } else { disk_refusal };
                let prepared = match refusal {
                    Some(code) => Err(code),
                    None => self.prepare_row((at, number_of_part), req, row, hash, ctx),
                };
                if let Err(code) = prepared {
                    ctx.probe("ldm: backup refuses a row");
                    if one_pass {
                        self.refuse_one_pass(at, req.batch, req.chain, code, ctx);
                        return Ok(());
                    }
                    let code = Some(code);
                    let refusal = LdmPrepared { trans: req.trans, batch: req.batch, chain: req.chain, code };
                    ctx.send(req.tc, Kind::LdmPreparedRef, |out| refusal.encode(out));
                    return Ok(());
                }
            }
        }
        self.counters.prepared_rows += u64::from(req.count);
        self.log_emptied(ctx);
        self.log_prepare(at, req.chain, req.savepoint, req.count, req.rows);
        if let Some(next) = self.next_in(req.chain) {
            // In this node's view: a successor that has an older one would send its commit back to a node that we know to be gone.
            let req = LdmPrepareReq { generation: self.view.generation, ..*req };
            ctx.send(self.peer(next), Kind::LdmPrepareReq, |out| req.encode(out));
        } else if one_pass {
            self.commit_part(at, req.chain, req.epoch, ctx);
            self.send_commit_back(req.trans, req.chain, req.tc, req.epoch, ctx);
        } else {
            let conf = LdmPrepared { trans: req.trans, batch: req.batch, chain: req.chain, code: None };
            ctx.send(req.tc, Kind::LdmPreparedConf, |out| conf.encode(out));
        }
        Ok(())
    }

    /// Another coordinator's transaction has the id: as if a row were refused, but nothing of ours is touched.
    fn refuse_used_id(&self, req: &LdmPrepareReq<'_>, ctx: &mut Context<'_>) {
        ctx.probe("ldm: the id of another transaction is refused");
        let code = Some(ErrorCode::TransactionIdUsed);
        let refusal = LdmPrepared { trans: req.trans, batch: req.batch, chain: req.chain, code };
        let is_back = req.flags & ONE_PASS != 0;
        let to = self.previous_in(req.chain).filter(|_| is_back).map_or(req.tc, |previous| self.peer(previous));
        ctx.send(to, Kind::LdmPreparedRef, |out| refusal.encode(out));
    }

    /// What a batch has changed, as the chain carries it.
    pub(super) fn log_prepare(&mut self, at: u32, chain: Chain, savepoint: u32, count: u16, rows: &[u8]) {
        let trans = self.transactions.get(at).id;
        let Some(redo) = self.redo.as_mut().filter(|_| count > 0) else { return };
        let (count, rows) = self.tables.logged(rows, count, &mut self.scratch.image);
        if count > 0 {
            let place = redo.place();
            redo.append(&LogEntry::Prepare { trans, chain, savepoint, count, rows });
            let trans = self.transactions.get_mut(at);
            trans.logged_from = trans.logged_from.min(place);
            self.transactions.ensure_part(at, chain).logged = true;
        }
    }

    /// Back along the chain to the primary, and from there to TC: a node on the way must not commit the batch in a view that makes it
    /// the last, and of the refusal and such a commit the primary knows which came first.
    fn refuse_one_pass(&mut self, at: u32, batch: u32, chain: Chain, code: ErrorCode, ctx: &mut Context<'_>) {
        jam!(ctx);
        let trans = self.transactions.get(at);
        let (id, tc) = (trans.id, trans.tc);
        if let Some(part) = self.transactions.part_mut(at, chain) {
            assert!(!part.committed, "{id} is refused on {chain:?}, where it is committed");
            (part.one_pass, part.refused) = (false, Some(code));
        }
        let to = self.previous_in(chain).map_or(tc, |previous| self.peer(previous));
        let refusal = LdmPrepared { trans: id, batch, chain, code: Some(code) };
        ctx.send(to, Kind::LdmPreparedRef, |out| refusal.encode(out));
    }

    /// A replica behind this one has refused a one-pass batch.
    pub(super) fn on_prepare_refused(&mut self, refusal: &LdmPrepared, ctx: &mut Context<'_>) {
        let Some(at) = self.transactions.find(refusal.trans) else { return };
        let is_open = self.transactions.part_mut(at, refusal.chain).is_some_and(|part| !part.committed);
        if let Some(code) = refusal.code.filter(|_| is_open) {
            self.refuse_one_pass(at, refusal.batch, refusal.chain, code, ctx);
        }
    }

    /// Fetches ahead what the next rows will touch: slots, then versions, or the places in the hash index of rows to be made, whose hashes are known then.
    fn fetch_rows(&self, rows: &[Option<PreparedRow<'_>>; AHEAD]) -> [Option<u64>; AHEAD] {
        let mut hashes = [None; AHEAD];
        let mut fragments: [Option<&Fragment>; AHEAD] = [None; AHEAD];
        for (place, row) in fragments.iter_mut().zip(rows.iter().flatten()) {
            *place = self.tables.get(row.table).and_then(|table| table.fragment(row.partition));
            if let Some(fragment) = place {
                fragment.prefetch_row(RowId(row.row));
            }
        }
        for ((place, row), hash) in fragments.iter_mut().zip(rows.iter().flatten()).zip(&mut hashes) {
            let Some(fragment) = place else { continue };
            if fragment.prefetch_used(RowId(row.row)) {
                *place = None;
                continue;
            }
            let of_key = self.secret.of(row.key);
            fragment.prefetch(of_key);
            *hash = Some(of_key);
        }
        let made = fragments.into_iter().zip(rows.iter().flatten());
        fetch_entries(IndexNo(0), made.filter_map(|(fragment, row)| Some((fragment?, row.key))));
        hashes
    }

    fn send_commit_back(&mut self, trans: TransId, chain: Chain, tc: BlockRef, epoch: Epoch, ctx: &mut Context<'_>) {
        if let Some(previous) = self.previous_in(chain) {
            let end = self.end_signal(trans, chain, tc, epoch);
            ctx.send(self.peer(previous), Kind::LdmCommitOrd, |out| end.encode(out));
        }
    }

    fn prepare_row(
        &mut self,
        (at, part): (u32, u32),
        req: &LdmPrepareReq<'_>,
        row: &PreparedRow<'_>,
        hash: Option<u64>,
        ctx: &mut Context<'_>,
    ) -> Result<(), ErrorCode> {
        let Some(table) = self.tables.get_mut(row.table) else {
            // Before its primary has heard that it is dropped.
            return if self.tables.is_dropped(row.table) { Ok(()) } else { Err(ErrorCode::TableNotFound) };
        };
        // By whichever definition its primary took it: the row says itself with which columns it was written.
        if let Some(image) = row.image {
            table.schema.layout().check(image)?;
        }
        if table.fragment(row.partition).is_none() {
            table.make_fragment(row.partition, &self.memory, self.secret)?;
        }
        let fragment = table.fragment_mut(row.partition).ok_or(ErrorCode::Internal)?;
        let slot = RowId(row.row);
        let place = (row.table, row.partition, slot);
        let mut idle = fragment.idle_at(slot, row.key);
        if idle.is_none() {
            if !fragment.holds(slot, row.key) {
                if row.image.is_none() {
                    return Ok(()); // a recovering node has not got the row yet: nothing to delete
                }
                let (transactions, granted) = (&self.transactions, &mut self.granted);
                let mut ends = RowEnds { locks: &mut self.locks, transactions, epochs: &mut self.epochs, granted };
                let given_up = self.base.is_some().then_some(&mut self.emptied);
                let hash = hash.unwrap_or_else(|| self.secret.of(row.key));
                ends.insert_at(fragment, place, (row.key, hash), given_up, ctx)?;
            }
            idle = fragment.idle(slot);
        }
        let (mut fresh, mut untouched) = (true, true);
        if idle.is_none() {
            untouched = fragment.lock_word_of(slot) == 0;
            if Locks::is_contended(fragment.lock_word_of(slot), at) {
                let (transactions, granted) = (&self.transactions, &mut self.granted);
                let mut ends = RowEnds { locks: &mut self.locks, transactions, epochs: &mut self.epochs, granted };
                ends.settle(fragment, place, at, true);
            }
            fresh = match self.locks.acquire(fragment.lock_word(slot), at, LockMode::Exclusive, NONE, false) {
                Acquire::Granted => true,
                Acquire::AlreadyHeld => false,
                Acquire::Waiting | Acquire::WouldWait => {
                    panic!("rule 2 broken: row of table {} is locked by another transaction at a backup", row.table)
                }
            };
        }
        let writer = Transactions::writer(at, part);
        let reserved = self.transactions.reserve(at, u64::MAX);
        let change = Change { image: row.image, writer, fresh, keeps_key: false };
        let pushed = reserved.and_then(|()| match &idle {
            Some(idle) => fragment.push_idle(idle, &change),
            None => fragment.push(slot, &change),
        });
        if let Err(code) = pushed {
            if fresh {
                self.release_row(place, at, true);
            }
            return Err(code);
        }
        let again = !untouched && self.transactions.may_share(at, req.chain, &self.view);
        let entry = Entry {
            next: NONE,
            table: row.table,
            partition: row.partition,
            row: slot,
            savepoint: req.savepoint,
            write: true,
            lock: fresh,
            reach: 0,
        };
        self.transactions.push_entry(at, req.chain, entry, row.image.map_or(0, <[u8]>::len), again);
        Ok(())
    }

    pub(super) fn on_commit_ord(&mut self, end: &LdmEnd, ctx: &mut Context<'_>) {
        jam!(ctx);
        assert!(end.chain.contains(self.me.node), "the commit of {} on {:?} has come here", end.trans, end.chain);
        assert!(end.epoch > Epoch(0) && end.epoch <= ctx.epoch(), "{} is committed in {}", end.trans, end.epoch);
        let mut one_pass = false;
        if let Some(at) = self.transactions.find(end.trans)
            && let Some(part) = self.transactions.part_mut(at, end.chain)
        {
            one_pass = part.one_pass;
            let committed = part.committed;
            let at_primary = self.previous_in(end.chain).is_none();
            if one_pass && at_primary && !committed && end.chain.primary() == Some(self.me.node) {
                return self.finish_one_pass(at, end.chain, ctx);
            }
            if !committed {
                self.commit_part(at, end.chain, end.epoch, ctx);
            } else if at_primary {
                self.note_whole(at, end.chain, ctx);
            }
        }
        if ctx.fault("ldm.lose_commit") {
            return;
        }
        match self.previous_in(end.chain) {
            Some(previous) => {
                let end = LdmEnd { generation: self.view.generation, ..*end };
                ctx.send(self.peer(previous), Kind::LdmCommitOrd, |out| end.encode(out));
            }
            None if one_pass && end.tc.node == self.me.node && end.chain.primary() == Some(self.me.node) => {}
            None => ctx.send(end.tc, Kind::LdmCommittedConf, |out| end.encode(out)),
        }
    }

    pub(super) fn on_abort_ord(&mut self, end: &LdmEnd, ctx: &mut Context<'_>) {
        jam!(ctx);
        assert!(end.chain.contains(self.me.node), "the abort of {} on {:?} has come here", end.trans, end.chain);
        let found = self.transactions.find(end.trans).filter(|at| !self.is_of_another(*at, end.tc));
        if end.savepoint == CANCEL_WAIT {
            if let Some(at) = found {
                self.cancel_waits_of(at, Some(end.chain), Some(ErrorCode::Deadlock), ctx);
            }
            return;
        }
        if let Some(at) = found {
            let trans = self.transactions.get(at);
            let is_gone = |part: &Part| part.committed && (part.complete || part.one_pass);
            if trans.tc == end.tc && !self.is_orphan(at) && trans.part(end.chain).is_some_and(is_gone) {
                // Its coordinator has seen its end: this is of a later one with its id, which was refused here and went no further.
                ctx.send(end.tc, Kind::LdmAbortConf, |out| end.encode(out));
                return;
            }
            self.cancel_waits_of(at, Some(end.chain), None, ctx);
            if let Some(part) = self.transactions.part_mut(at, end.chain) {
                assert!(!part.committed, "abort of {} on {:?} after its commit", end.trans, end.chain);
                // Nothing of it may go on from here in a new view.
                part.one_pass &= end.savepoint != 0;
                part.undo = Some(Undo { end: *end, next: part.head });
                if let Some(redo) = self.redo.as_mut().filter(|_| part.logged && !planted(Bug::AbortNotLogged)) {
                    redo.append(&LogEntry::Abort { trans: end.trans, chain: end.chain, savepoint: end.savepoint });
                }
                return self.work_off(at, end.chain, ctx);
            }
        }
        self.undone(end, ctx);
    }

    /// This node has undone what the order names: it goes on to the next one, and from the last one back.
    pub(super) fn undone(&mut self, end: &LdmEnd, ctx: &mut Context<'_>) {
        let end = LdmEnd { generation: self.view.generation, ..*end };
        match self.next_in(end.chain).filter(|_| !planted(Bug::AbortEndsAtPrimary)) {
            Some(next) => ctx.send(self.peer(next), Kind::LdmAbortOrd, |out| end.encode(out)),
            None => self.on_abort_conf(&end, ctx),
        }
    }

    /// The abort has reached the end of the chain and comes back: the primary gives up its locks last, so that no later change of a
    /// row can reach a backup that still holds the undone one.
    pub(super) fn on_abort_conf(&mut self, end: &LdmEnd, ctx: &mut Context<'_>) {
        jam!(ctx);
        // Locks go from the end of the chain to its beginning: whoever becomes primary holds them as long as a node behind it may.
        match end.savepoint {
            0 => self.abort_part(end, ctx),
            _ => self.pass_abort_back(end, ctx),
        }
    }

    /// To the node before this one, or from the primary to TC.
    pub(super) fn pass_abort_back(&mut self, end: &LdmEnd, ctx: &mut Context<'_>) {
        let end = LdmEnd { generation: self.view.generation, ..*end };
        let to = match self.previous_in(end.chain) {
            Some(previous) => self.peer(previous),
            None => {
                self.counters.aborts += u64::from(end.savepoint == 0);
                end.tc
            }
        };
        ctx.send(to, Kind::LdmAbortConf, |out| end.encode(out));
    }

    /// Removes the batches of a transaction from the queues they wait in; TC is told if there is a code.
    fn cancel_waits_of(&mut self, at: u32, chain: Option<Chain>, code: Option<ErrorCode>, ctx: &mut Context<'_>) {
        for i in (0..self.transactions.get(at).waits.len()).rev() {
            let slot = self.transactions.get(at).waits[i];
            let work = self.waiting[slot as usize].as_ref();
            if work.is_some_and(|w| chain.is_none_or(|chain| w.chain() == chain)) {
                self.cancel_wait(slot, code, ctx); // takes it out of the list, whose last one comes to its place
            }
        }
    }
}
