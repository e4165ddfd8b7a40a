//! A member's part in a schema transaction, and a joining node's copy of the dictionary.

use apus_kernel::{Context, jam};
use apus_signal::{
    BlockId, BlockRef, DecodeError, Kind,
    dict::{self, DictReadReq, SchemaState, SchemaStep, TableAction, TableOrd},
    qmgr::{JoinAnswer, StopOrd, encode},
    restart::Restore,
    schema::TableMessage,
};
use apus_types::{ErrorCode, NodeId, TableSchema, eras};
use prost::Message;

use super::{COPY_RETRY_NS, Catalog, Dictionary};

struct Prepared {
    step: SchemaStep,
    coordinator: BlockRef,
    /// Number of our `TableOrd`s for it.
    order: u64,
    /// Answers that LDM and TC instances owe.
    waiting: usize,
    /// Number of the write of the file that has the era of the step.
    kept: u64,
    error: u32,
}

/// The copy of the president's dictionary, or of one on disk.
struct Copying {
    answer: JoinAnswer,
    /// For a restart from the disks.
    restore: Option<Restore>,
    last_ask: Option<u64>,
    order: u64,
    waiting: usize,
}

#[derive(Default)]
pub(super) struct Participant {
    prepared: Option<Prepared>,
    /// Committed last.
    last: Option<SchemaStep>,
    copying: Option<Copying>,
    orders: u64,
}

impl Participant {
    pub(super) fn summary(&self) -> String {
        let prepared = self.prepared.as_ref().map(|p| (p.step.version, p.waiting));
        format!("prepared {prepared:?} copying {}", self.copying.is_some())
    }
    /// What is prepared waits for the file, of which so much was written before, or could not be.
    pub(super) fn waits_for_file(&self, (written, has_failed): (u64, bool)) -> bool {
        !has_failed && self.prepared.as_ref().is_some_and(|p| p.kept > written)
    }
    pub(super) fn restore(&mut self, restore: Restore, answer: JoinAnswer) {
        self.copying = Some(Copying { answer, restore: Some(restore), last_ask: None, order: 0, waiting: 0 });
    }
    /// The orders of a copy are on their way.
    pub(super) fn copy_begins(&mut self, order: u64, waiting: usize) {
        if let Some(copying) = &mut self.copying {
            (copying.order, copying.waiting) = (order, waiting);
        }
    }
}

/// The table a step leaves behind: the last one that is not hidden.
pub(super) fn step_table(step: &SchemaStep) -> Option<&TableMessage> {
    step.upsert_tables.iter().rev().find(|t| t.base_table == 0)
}

impl Dictionary {
    /// Orders every LDM and TC instance; returns the number of the orders and how many answers will come.
    pub(super) fn order_tables(&mut self, orders: &[TableOrd], ctx: &mut Context<'_>) -> (u64, usize) {
        self.participant.orders += 1;
        let number = self.participant.orders;
        for order in orders {
            let order = TableOrd { request: number, ..order.clone() };
            for instance in 0..self.instances {
                for block in [BlockId::Ldm, BlockId::Tc] {
                    ctx.send(BlockRef::new(self.me, block, instance), Kind::TableOrd, |b| encode(&order, b));
                }
            }
        }
        (number, 2 * usize::from(self.instances) * orders.len())
    }
    pub(super) fn define(table: TableMessage) -> TableOrd {
        TableOrd { action: TableAction::Define as i32, table_id: table.id, table: Some(table), ..TableOrd::default() }
    }
    pub(super) fn drop_order(id: u32) -> TableOrd {
        TableOrd { action: TableAction::Drop as i32, table_id: id, ..TableOrd::default() }
    }
    /// A table as it is between prepare and commit: with the indexes that it loses, whose entries go on being kept until the step is certain. Otherwise what is
    /// written meanwhile would be missing there if the step is undone (simulator seed 11000605).
    fn as_prepared(&self, table: &TableMessage) -> TableMessage {
        let mut prepared = table.clone();
        let old = self.catalog.tables.get(&table.id).map(TableMessage::from);
        // In another form columns have other numbers, and LDM refuses rows by the old ones.
        for index in old.iter().filter(|old| old.form == table.form).flat_map(|old| &old.indexes) {
            if table.indexes.iter().all(|i| i.no != index.no) {
                prepared.indexes.push(index.clone());
            }
        }
        prepared
    }
    /// Orders that bring LDM and TC back from a step that is not going to be.
    fn undo_orders(&self, step: &SchemaStep) -> Vec<TableOrd> {
        let old = |t: &TableMessage| match self.catalog.tables.get(&t.id) {
            Some(table) => Self::define(TableMessage::from(table)),
            None => Self::drop_order(t.id),
        };
        step.upsert_tables.iter().rev().map(old).collect()
    }
    fn fall_out(&self, version: u64, ctx: &mut Context<'_>) {
        let reason = format!("the dictionary is at version {} and cannot follow to {version}", self.catalog.version);
        let qmgr = BlockRef::new(self.me, BlockId::Qmgr, BlockRef::CONTROL);
        let incarnation = ctx.incarnation();
        ctx.send(qmgr, Kind::StopOrd, |b| encode(&StopOrd { reason, incarnation, lineage: u64::MAX }, b));
    }
    fn step_answer(step: &SchemaStep, error: u32) -> SchemaStep {
        SchemaStep { version: step.version, token: step.token, error, ..SchemaStep::default() }
    }

    pub(super) fn on_prep_req(
        &mut self,
        from: BlockRef,
        step: SchemaStep,
        ctx: &mut Context<'_>,
    ) -> Result<(), DecodeError> {
        step.upsert_tables.iter().try_for_each(|t| TableSchema::try_from(t).map(|_| ()))?;
        let answer = Self::step_answer(&step, 0);
        if step.version <= self.catalog.version {
            ctx.send(from, Kind::SchemaPrepConf, |b| encode(&answer, b));
            return Ok(());
        }
        if step.follows != self.catalog.version {
            self.fall_out(step.version, ctx);
            return Ok(());
        }
        let is_same = |p: &Prepared| p.coordinator == from && p.step == step;
        if self.participant.prepared.as_ref().is_some_and(is_same) {
            jam!(ctx); // asked again
            self.check_prepared(ctx);
            return Ok(());
        }
        if let Some(old) = self.participant.prepared.take() {
            jam!(ctx);
            let is_new = |t: &&TableMessage| !self.catalog.tables.contains_key(&t.id);
            let again =
                step.upsert_tables.iter().filter(is_new).find(|t| old.step.upsert_tables.iter().any(|o| o.id == t.id));
            assert!(again.is_none(), "table {again:?} is undone and prepared again: transactions may have rows of it");
            let undo = self.undo_orders(&old.step);
            self.order_tables(&undo, ctx);
        }
        let begins_era = self.catalog.note_era(&step);
        if self.catalog.skip_ids(&step) || begins_era {
            self.put_file(ctx);
        }
        let is_first = eras::era(step.version) > eras::era(step.follows);
        let kept = if is_first { self.keeper.last_write() } else { 0 };
        let orders: Vec<TableOrd> = step.upsert_tables.iter().map(|t| Self::define(self.as_prepared(t))).collect();
        let error = if self.has_memory_for(&step, ctx) { 0 } else { ErrorCode::OutOfMemory as u32 };
        let (order, waiting) = self.order_tables(if error == 0 { &orders } else { &[] }, ctx);
        self.participant.prepared = Some(Prepared { step, coordinator: from, order, waiting, kept, error });
        self.check_prepared(ctx);
        Ok(())
    }

    /// Whether there is memory for what a step adds; one that takes something away needs none.
    fn has_memory_for(&mut self, step: &SchemaStep, ctx: &mut Context<'_>) -> bool {
        let known = |id: &u32| self.catalog.tables.get(id).map_or(0, |table| TableMessage::from(table).encoded_len());
        let replaced = step.upsert_tables.iter().map(|table| &table.id).chain(&step.drop_tables);
        let less: usize = replaced.map(known).sum();
        let more: usize = step.upsert_tables.iter().map(Message::encoded_len).sum();
        let before = self.catalog.encoded_bytes();
        let has_memory = more <= less || self.account(before + more - less);
        if !has_memory {
            ctx.probe("dict: no memory for a change of the schema");
        }
        has_memory
    }

    /// All LDMs and TCs have the tables, and the disk has the era, or cannot be written.
    fn is_prepared(&self, prepared: &Prepared) -> bool {
        prepared.waiting == 0 && self.keeper.is_past(prepared.kept)
    }

    pub(super) fn check_prepared(&mut self, ctx: &mut Context<'_>) {
        let Some(prepared) = self.participant.prepared.as_ref().filter(|p| self.is_prepared(p)) else { return };
        let (step, version) = (&prepared.step, self.catalog.version);
        assert!(step.follows == version, "{} is prepared on {version}", step.version);
        let disk = if self.keeper.has_failed() { ErrorCode::DiskFailed as u32 } else { 0 };
        let answer = Self::step_answer(&prepared.step, prepared.error.max(disk));
        let kind = if answer.error == 0 { Kind::SchemaPrepConf } else { Kind::SchemaPrepRef };
        ctx.send(prepared.coordinator, kind, |b| encode(&answer, b));
    }

    pub(super) fn on_table_answer(&mut self, kind: Kind, answer: &TableOrd, ctx: &mut Context<'_>) {
        let error = if kind == Kind::TableConf { 0 } else { answer.error.max(1) };
        if let Some(prepared) =
            self.participant.prepared.as_mut().filter(|p| p.order == answer.request && p.waiting > 0)
        {
            prepared.waiting -= 1;
            prepared.error = prepared.error.max(error);
            self.check_prepared(ctx);
        } else if let Some(copying) =
            self.participant.copying.as_mut().filter(|c| c.order == answer.request && c.waiting > 0)
        {
            copying.waiting -= 1;
            if error != 0 {
                let reason =
                    format!("cannot make table {} of the cluster's dictionary: error {error}", answer.table_id);
                let qmgr = BlockRef::new(self.me, BlockId::Qmgr, BlockRef::CONTROL);
                let incarnation = ctx.incarnation();
                ctx.send(qmgr, Kind::StopOrd, |b| encode(&StopOrd { reason, incarnation, lineage: u64::MAX }, b));
            }
            self.check_copied(ctx);
        }
    }

    pub(super) fn on_commit_ord(
        &mut self,
        from: BlockRef,
        step: &SchemaStep,
        ctx: &mut Context<'_>,
    ) -> Result<(), DecodeError> {
        if step.version > self.catalog.version {
            if step.follows != self.catalog.version {
                self.fall_out(step.version, ctx);
                return Ok(());
            }
            let prepared = self.participant.prepared.take();
            let is_prepared = prepared.is_some_and(|p| p.step.token == step.token);
            let as_prepared = |t: &&TableMessage| is_prepared && self.as_prepared(t) == **t;
            let defined = step.upsert_tables.iter().filter(|t| !as_prepared(t));
            let orders: Vec<TableOrd> = defined.cloned().map(Self::define).collect();
            self.order_tables(&orders, ctx);
            self.catalog.apply(step)?;
            let drops: Vec<TableOrd> = step.drop_tables.iter().map(|&id| Self::drop_order(id)).collect();
            self.order_tables(&drops, ctx);
            self.catalog.note_executed(step.token, step_table(step).map_or(0, |t| t.id));
            self.participant.last = Some(step.clone());
            self.account(self.catalog.encoded_bytes());
            self.put_file(ctx);
            self.announce(ctx);
        }
        self.answer_when_kept(from, Self::step_answer(step, 0), ctx);
        Ok(())
    }

    pub(super) fn on_abort_ord(&mut self, step: &SchemaStep, ctx: &mut Context<'_>) {
        self.catalog.skip_ids(step);
        let matches = |p: &Prepared| p.step.token == step.token && p.step.version == step.version;
        if self.participant.prepared.as_ref().is_some_and(matches)
            && let Some(prepared) = self.participant.prepared.take()
        {
            let undo = self.undo_orders(&prepared.step);
            self.order_tables(&undo, ctx);
            self.account(self.catalog.encoded_bytes());
        }
    }

    /// The president changed: what we know, to the new one.
    pub(super) fn report_state(&self, ctx: &mut Context<'_>) {
        let Some(president) = self.president() else { return };
        let (version, prepared) = (self.catalog.version, self.participant.prepared.as_ref());
        assert!(prepared.is_none_or(|p| p.step.follows == version), "{} on {version}", self.participant.summary());
        // One that is not prepared to the end counts as one with an error: nobody can have committed it.
        let open = |p: &Prepared| if self.is_prepared(p) { p.error } else { ErrorCode::SchemaBusy as u32 };
        let state = SchemaState {
            version,
            last: self.participant.last.clone(),
            prepared: prepared.map(|p| SchemaStep { error: open(p), ..p.step.clone() }),
            generation: self.generation(),
            next_table_id: self.catalog.next_table_id,
            era: Some(self.catalog.begun),
        };
        ctx.send(Self::dict_of(president), Kind::SchemaStateRep, |b| encode(&state, b));
    }

    // ---- joining node

    /// From our QMGR: copy the dictionary of this president.
    pub(super) fn on_copy_order(&mut self, answer: JoinAnswer, ctx: &mut Context<'_>) {
        self.participant.copying = Some(Copying { answer, restore: None, last_ask: None, order: 0, waiting: 0 });
        self.ask_for_copy(ctx);
    }

    pub(super) fn ask_for_copy(&mut self, ctx: &mut Context<'_>) {
        let Some(copying) = self.participant.copying.as_mut().filter(|c| c.order == 0) else { return };
        if copying.last_ask.is_some_and(|t| ctx.now().saturating_sub(t) < COPY_RETRY_NS) {
            return;
        }
        copying.last_ask = Some(ctx.now());
        let Ok(president) = u16::try_from(copying.answer.president) else { return };
        let req = DictReadReq { looks_only: copying.restore.is_some(), ..DictReadReq::default() };
        ctx.send(Self::dict_of(NodeId(president)), Kind::DictCopyReq, |b| encode(&req, b));
    }

    /// A member by an earlier copy: another one would only hold up schema changes.
    pub(super) fn stop_asking_for_copy(&mut self) {
        self.participant.copying.take_if(|c| c.order == 0);
    }

    pub(super) fn on_copy_conf(
        &mut self,
        from: NodeId,
        message: &dict::Dictionary,
        ctx: &mut Context<'_>,
    ) -> Result<(), DecodeError> {
        let wanted = |c: &&Copying| c.order == 0 && c.answer.president == u32::from(from.0);
        if self.view.is_some() || self.participant.copying.as_ref().filter(wanted).is_none() {
            return Ok(());
        }
        let catalog = Catalog::from_message(message)?;
        self.take_over_catalog(catalog, ctx);
        Ok(())
    }

    pub(super) fn check_copied(&mut self, ctx: &mut Context<'_>) {
        let Some(copying) = self.participant.copying.take_if(|c| c.order != 0 && c.waiting == 0) else { return };
        if let Some(restore) = &copying.restore {
            return self.tell_restored(restore, ctx);
        }
        let qmgr = BlockRef::new(self.me, BlockId::Qmgr, BlockRef::CONTROL);
        ctx.send(qmgr, Kind::JoinConf, |b| encode(&copying.answer, b));
    }

    pub(super) fn error_of(code: u32) -> ErrorCode {
        u16::try_from(code).ok().and_then(ErrorCode::from_u16).unwrap_or(ErrorCode::Internal)
    }
}
