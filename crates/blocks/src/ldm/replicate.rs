//! The replica chain: prepare forward, commit backward, complete, abort.

use apus_kernel::Context;
use apus_signal::{
    BlockRef, DecodeError, Kind,
    ldm::{CANCEL_WAIT, LdmEnd, LdmPrepareReq, LdmPrepared, ONE_PASS, PreparedRow},
};
use apus_storage::{Acquire, LockMode};
use apus_types::{
    Chain, Epoch, ErrorCode, TransId,
    hash::hash_key,
    planted::{Bug, planted},
};

use super::{
    LocalDataManager,
    ahead::{AHEAD, Ahead},
    trans::{Entry, NONE},
};

impl LocalDataManager {
    pub(super) fn end_signal(&self, trans: TransId, chain: Chain, tc: BlockRef, epoch: Epoch) -> LdmEnd {
        LdmEnd { generation: self.view.generation, trans, chain, tc, epoch, savepoint: 0, round: 0 }
    }

    /// A backup takes over the rows of a batch and passes them on.
    pub(super) fn on_prepare_req(
        &mut self,
        req: &LdmPrepareReq<'_>,
        body: &[u8],
        ctx: &mut Context<'_>,
    ) -> Result<(), DecodeError> {
        if !self.coordinator_valid(req.tc, req.generation) && !planted(Bug::GateLeftOpen) {
            ctx.probe("ldm: prepare of a removed coordinator dropped");
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
        let mut coming = req.rows();
        for (number, row) in req.rows().enumerate() {
            if number % AHEAD == 0 && req.count > 1 {
                self.fetch_rows(coming.by_ref().take(AHEAD).flatten());
            }
            let row = row?;
            let is_full = ctx.fault("ldm.refuse_prepare");
            let prepared = if is_full { Err(ErrorCode::OutOfMemory) } else { self.prepare_row(at, req, &row) };
            if let Err(code) = prepared {
                ctx.probe("ldm: backup refuses a row");
                if one_pass {
                    self.refuse_one_pass(at, req.batch, req.chain, code, ctx);
                    return Ok(());
                }
                let refusal = LdmPrepared { trans: req.trans, batch: req.batch, chain: req.chain, code: Some(code) };
                ctx.send(req.tc, Kind::LdmPreparedRef, |out| refusal.encode(out));
                return Ok(());
            }
        }
        self.counters.prepared_rows += u64::from(req.count);
        if let Some(next) = self.next_in(req.chain) {
            ctx.send(self.peer(next), Kind::LdmPrepareReq, |out| out.extend_from_slice(body));
        } else if one_pass {
            self.commit_part(at, req.chain, req.epoch, ctx);
            self.send_commit_back(req.trans, req.chain, req.tc, req.epoch, ctx);
        } else {
            let conf = LdmPrepared { trans: req.trans, batch: req.batch, chain: req.chain, code: None };
            ctx.send(req.tc, Kind::LdmPreparedConf, |out| conf.encode(out));
        }
        Ok(())
    }

    /// Back along the chain to the primary, and from there to TC: a node on the way must not commit the batch in a view that makes it
    /// the last, and of the refusal and such a commit the primary knows which came first.
    fn refuse_one_pass(&mut self, at: u32, batch: u32, chain: Chain, code: ErrorCode, ctx: &mut Context<'_>) {
        let trans = self.transactions.get(at);
        let (id, tc) = (trans.id, trans.tc);
        if let Some(part) = self.transactions.part_mut(at, chain) {
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

    /// Fetches ahead what the next rows will touch.
    fn fetch_rows<'r>(&self, rows: impl Iterator<Item = PreparedRow<'r>>) {
        let mut ahead = Ahead::default();
        for row in rows {
            let table = self.tables.get(row.table);
            ahead.push(table.and_then(|table| table.fragment(row.partition)), hash_key(row.key));
        }
        ahead.fetch();
    }

    fn send_commit_back(&mut self, trans: TransId, chain: Chain, tc: BlockRef, epoch: Epoch, ctx: &mut Context<'_>) {
        if let Some(previous) = self.previous_in(chain) {
            let end = self.end_signal(trans, chain, tc, epoch);
            ctx.send(self.peer(previous), Kind::LdmCommitOrd, |out| end.encode(out));
        }
    }

    fn prepare_row(&mut self, at: u32, req: &LdmPrepareReq<'_>, row: &PreparedRow<'_>) -> Result<(), ErrorCode> {
        let memory = self.memory.clone();
        let table = self.tables.checked(row.table, row.schema_version)?;
        if let Some(image) = row.image {
            table.schema.layout().check(image)?;
        }
        let fragment = match table.fragment(row.partition) {
            Some(_) => table.fragment_mut(row.partition).ok_or(ErrorCode::Internal)?,
            None => table.make_fragment(row.partition, &memory)?,
        };
        let hash = hash_key(row.key);
        let slot = match fragment.find(row.key, hash) {
            Some(slot) => slot,
            None if row.image.is_none() => return Ok(()), // a recovering node has not got the row yet: nothing to delete
            None => fragment.insert_slot(row.key, hash)?,
        };
        let untouched = fragment.lock_word_of(slot) == 0;
        let fresh = match self.locks.acquire(fragment.lock_word(slot), at, LockMode::Exclusive, NONE, false) {
            Acquire::Granted => true,
            Acquire::AlreadyHeld => false,
            Acquire::Waiting | Acquire::WouldWait => {
                panic!("rule 2 broken: row of table {} is locked by another transaction at a backup", row.table)
            }
        };
        if let Err(code) = fragment.push_pending(slot, row.image) {
            if fresh {
                self.release_row((row.table, row.partition, slot), at, true);
            }
            return Err(code);
        }
        let again = !untouched && self.transactions.may_share(at, req.chain, &self.view);
        let entry = Entry {
            next: NONE,
            table: row.table,
            partition: row.partition,
            row: slot,
            chain: req.chain,
            savepoint: req.savepoint,
            write: true,
            lock: fresh,
            again,
        };
        self.transactions.push_entry(at, entry);
        Ok(())
    }

    pub(super) fn on_commit_ord(&mut self, end: &LdmEnd, ctx: &mut Context<'_>) {
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
            }
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

    /// Commits this node's rows of a part. The primary gives locks and entries back; a backup keeps the entries until complete.
    pub(super) fn commit_part(&mut self, at: u32, chain: Chain, epoch: Epoch, ctx: &mut Context<'_>) {
        self.counters.commits += 1;
        self.outcomes.record(self.transactions.get(at).id, ctx.now());
        self.transactions.pass_on_shared(at, chain);
        if self.previous_in(chain).is_none() {
            let mut entries = std::mem::take(&mut self.scratch.entries);
            entries.clear();
            self.transactions.take_entries(at, &mut entries, |e| e.chain == chain);
            for entry in &entries {
                self.commit_row(entry, epoch);
            }
            for entry in &entries {
                self.release_row((entry.table, entry.partition, entry.row), at, entry.lock);
            }
            self.scratch.entries = entries;
        } else {
            let mut i = self.transactions.get(at).head;
            while i != NONE {
                let entry = *self.transactions.entry(i);
                if entry.chain == chain {
                    if planted(Bug::BackupDropsCommit) && entry.next == NONE {
                        self.undo_row(&entry);
                    }
                    self.commit_row(&entry, epoch);
                    if let Some(fragment) = self.tables.fragment_mut(entry.table, entry.partition) {
                        fragment.add_incomplete(entry.row);
                    }
                }
                i = entry.next;
            }
            let mut i = self.transactions.get(at).head;
            while i != NONE {
                let entry = self.transactions.entry_mut(i);
                let (mine, next) = (entry.chain == chain, entry.next);
                let lock = mine && std::mem::take(&mut entry.lock);
                let row = (entry.table, entry.partition, entry.row);
                if lock {
                    self.release_row(row, at, true);
                }
                i = next;
            }
        }
        if let Some(part) = self.transactions.part_mut(at, chain) {
            part.committed = true;
            part.epoch = epoch;
        }
    }

    /// Only for [`Bug::BackupDropsCommit`].
    fn undo_row(&mut self, entry: &Entry) {
        if let Some(fragment) = self.tables.fragment_mut(entry.table, entry.partition) {
            while fragment.has_pending(entry.row) {
                fragment.pop_pending(entry.row);
            }
        }
    }

    fn commit_row(&mut self, entry: &Entry, epoch: Epoch) {
        if entry.write
            && let Some(fragment) = self.tables.fragment_mut(entry.table, entry.partition)
            && fragment.has_pending(entry.row)
        {
            self.epochs.check_commit(epoch);
            if fragment.commit(entry.row, epoch, self.epochs.horizon) {
                self.epochs.note_kept(entry.table, entry.partition);
            }
        }
    }

    pub(super) fn on_complete_ord(&mut self, end: &LdmEnd) {
        let Some(at) = self.transactions.find(end.trans) else { return };
        let Some(part) = self.transactions.part_mut(at, end.chain) else { return };
        assert!(part.committed, "complete of {} on {:?} before its commit", end.trans, end.chain);
        self.forget_part(at, end.chain);
    }

    /// Ends a committed part: its rows are complete, the record goes when it was the last.
    pub(super) fn forget_part(&mut self, at: u32, chain: Chain) {
        let mut entries = std::mem::take(&mut self.scratch.entries);
        entries.clear();
        self.transactions.take_entries(at, &mut entries, |e| e.chain == chain);
        for entry in &entries {
            if let Some(fragment) = self.tables.fragment_mut(entry.table, entry.partition) {
                fragment.sub_incomplete(entry.row);
                fragment.reclaim(entry.row);
            }
        }
        self.scratch.entries = entries;
        self.transactions.drop_part(at, chain);
        self.remove_if_empty(at);
    }

    pub(super) fn remove_if_empty(&mut self, at: u32) {
        let trans = self.transactions.get(at);
        if trans.parts.is_empty() && trans.head == NONE && trans.waiting == 0 {
            self.transactions.remove(at);
        }
    }

    pub(super) fn on_abort_ord(&mut self, end: &LdmEnd, ctx: &mut Context<'_>) {
        if end.savepoint == CANCEL_WAIT {
            if let Some(at) = self.transactions.find(end.trans) {
                self.cancel_waits_of(at, Some(end.chain), Some(ErrorCode::Deadlock), ctx);
            }
            return;
        }
        if let Some(at) = self.transactions.find(end.trans) {
            self.cancel_waits_of(at, Some(end.chain), None, ctx);
            let part = self.transactions.part_mut(at, end.chain);
            let committed = part.is_some_and(|part| {
                // Nothing of it may go on from here in a new view.
                part.one_pass &= end.savepoint != 0;
                part.committed
            });
            assert!(!committed, "abort of {} on {:?} after its commit", end.trans, end.chain);
            self.rollback_part(at, end.chain, end.savepoint);
        }
        let end = LdmEnd { generation: self.view.generation, ..*end };
        match self.next_in(end.chain).filter(|_| !planted(Bug::AbortEndsAtPrimary)) {
            Some(next) => ctx.send(self.peer(next), Kind::LdmAbortOrd, |out| end.encode(out)),
            None => self.on_abort_conf(&end, ctx),
        }
    }

    /// The abort has reached the end of the chain and comes back: the primary gives up its locks last, so that no later change of a
    /// row can reach a backup that still holds the undone one.
    pub(super) fn on_abort_conf(&mut self, end: &LdmEnd, ctx: &mut Context<'_>) {
        let end = LdmEnd { generation: self.view.generation, ..*end };
        let previous = self.previous_in(end.chain);
        // Locks go from the end of the chain to its beginning: whoever becomes primary holds them as long as a node behind it may.
        if end.savepoint == 0
            && let Some(at) = self.transactions.find(end.trans)
        {
            self.counters.aborts += u64::from(previous.is_none());
            self.release_part(at, end.chain);
        }
        if let Some(previous) = previous {
            ctx.send(self.peer(previous), Kind::LdmAbortConf, |out| end.encode(out));
            return;
        }
        ctx.send(end.tc, Kind::LdmAbortConf, |out| end.encode(out));
    }

    /// Removes the batches of a transaction from the queues they wait in; TC is told if there is a code.
    fn cancel_waits_of(&mut self, at: u32, chain: Option<Chain>, code: Option<ErrorCode>, ctx: &mut Context<'_>) {
        if self.transactions.get(at).waiting == 0 {
            return;
        }
        for i in 0..self.waiting.len() {
            let hit = self.waiting[i]
                .as_ref()
                .is_some_and(|w| w.trans_at == at && chain.is_none_or(|chain| w.chain() == chain));
            if hit {
                self.cancel_wait(i as u32, code, ctx);
            }
        }
    }

    /// Gives up what is left of an undone part: its locks.
    fn release_part(&mut self, at: u32, chain: Chain) {
        self.transactions.pass_on_shared(at, chain);
        let mut entries = std::mem::take(&mut self.scratch.entries);
        entries.clear();
        self.transactions.take_entries(at, &mut entries, |e| e.chain == chain);
        for entry in &entries {
            self.release_row((entry.table, entry.partition, entry.row), at, entry.lock);
        }
        self.scratch.entries = entries;
        self.transactions.drop_part(at, chain);
        self.remove_if_empty(at);
    }

    /// Undoes the changes from a savepoint on; the locks stay, as in InnoDB.
    fn rollback_part(&mut self, at: u32, chain: Chain, savepoint: u32) {
        let mut i = self.transactions.get(at).head;
        let mut forget = planted(Bug::SavepointForgetsRow) && savepoint != 0;
        while i != NONE {
            let entry = self.transactions.entry_mut(i);
            let next = entry.next;
            let undo = entry.chain == chain && entry.savepoint >= savepoint && entry.write;
            if undo && !std::mem::take(&mut forget) {
                entry.write = false;
                let (table, partition, row) = (entry.table, entry.partition, entry.row);
                if let Some(fragment) = self.tables.fragment_mut(table, partition) {
                    fragment.pop_pending(row);
                }
            }
            i = next;
        }
    }
}
