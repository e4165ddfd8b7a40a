//! The tables of an LDM instance: definitions, fragments, projection layouts.

use std::sync::Arc;

use apus_kernel::Context;
use apus_signal::{
    BlockRef, DecodeError, Kind, Reader,
    dict::{TableAction, TableOrd},
    key_read::Projection,
    ldm::PreparedRow,
    tc::{Op, OpKind},
};
use apus_storage::{Fragment, MemoryManager, PAGE_ROWS, RowId};
use apus_types::{
    Epoch, ErrorCode, IndexDef, IndexNo, IndexState, PartitionId, RowLayout, TableId, TableSchema, claims, eras,
    hash::SecretHash,
    planted::{Bug, planted},
    rules,
    schema::Durability,
};
use prost::Message;

use super::{
    LocalDataManager, WAITING_MAX,
    ends::{ROW_NS_MAX, is_short},
};

/// Highest table id served: ids are not reused, so this bounds tables ever made, not tables alive.
pub const TABLE_ID_MAX: u32 = 1 << 20;
/// Projections remembered per table; more are computed anew (an allocation, no failure).
const PROJECTIONS_MAX: usize = 32;

/// Columns of a projection and the layout of the rows it gives.
pub type SharedProjection = Arc<(Vec<u16>, RowLayout)>;

pub struct Table {
    pub schema: Arc<TableSchema>,
    /// Nothing can be read as of an earlier epoch.
    pub created: Epoch,
    /// Version that operations may still carry while a schema transaction runs.
    pub old_version: u32,
    /// Whole rows may be written by an older definition. Not where columns have changed and an index has gone with them: if that is undone, its entries would be missing.
    takes_old_rows: bool,
    /// Rows that were made by a definition before this version may lack what is asked of them ([`rules::tightens`]).
    tightened: u32,
    /// By partition number.
    fragments: Vec<Option<Box<Fragment>>>,
    /// That changes of rows are of now ([`Fragment::begin_round`]).
    round: u32,
    projections: Vec<(Vec<u8>, SharedProjection)>,
}

impl Table {
    pub fn new(schema: Arc<TableSchema>, created: Epoch) -> Table {
        Table {
            created,
            old_version: schema.version,
            takes_old_rows: true,
            tightened: if schema.has_rules() { schema.version } else { 0 },
            schema,
            fragments: Vec::new(),
            round: 0,
            projections: Vec::new(),
        }
    }
    /// Takes over a new definition; fragments get it too.
    pub fn redefine(&mut self, schema: Arc<TableSchema>) {
        assert!(schema.id == self.schema.id, "table {} is defined as table {}", self.schema.id, schema.id);
        // Columns have other numbers in another form: whoever asks by the old ones is to learn them first.
        let is_same_form = schema.form == self.schema.form || planted(Bug::OldColumnsTaken);
        if schema.version < self.schema.version {
            self.old_version = schema.version; // undone: nobody was told of it
        } else if schema.version != self.schema.version {
            // And who does not know what rows are held to from now on.
            let is_held_alike = schema.held.since <= self.schema.version;
            self.old_version = if is_same_form && is_held_alike { self.schema.version } else { schema.version };
        }
        if rules::tightens(&schema, &self.schema) {
            (self.old_version, self.tightened) = (schema.version, schema.version);
        }
        let loses_index = self.schema.indexes.iter().any(|index| schema.index(index.no).is_none());
        self.takes_old_rows = is_same_form || !loses_index;
        for fragment in self.fragments.iter_mut().flatten() {
            fragment.set_schema(schema.clone());
        }
        self.schema = schema;
        self.projections.clear();
    }
    /// Its rows survive the cluster's processes.
    pub fn is_logged(&self) -> bool {
        self.schema.durability != Durability::None
    }
    #[inline]
    pub fn accepts(&self, version: u32) -> bool {
        version == self.schema.version || version == self.old_version
    }
    /// An operation by an older definition that names no column.
    #[cold]
    fn accepts_whole(&self, op: &Op<'_>) -> bool {
        // TC knows no definitions, and those of hidden tables never change. Elsewhere a version of another era may be of a definition that is lost.
        let is_known = self.schema.base_table.is_some() || eras::of_one_era(op.schema_version, self.schema.version);
        let is_whole = matches!(op.kind, OpKind::Insert | OpKind::Write | OpKind::Delete);
        let is_held = op.schema_version >= self.schema.held.since;
        let is_right = op.kind == OpKind::Delete || op.schema_version >= self.tightened;
        self.takes_old_rows && is_known && is_whole && is_held && is_right && op.schema_version < self.schema.version
    }
    #[inline]
    pub fn fragment(&self, partition: PartitionId) -> Option<&Fragment> {
        self.fragments.get(usize::from(partition.0))?.as_deref()
    }
    #[inline]
    pub fn fragment_mut(&mut self, partition: PartitionId) -> Option<&mut Fragment> {
        self.fragments.get_mut(usize::from(partition.0))?.as_deref_mut()
    }
    /// The definition and a fragment.
    #[inline]
    pub fn parts_mut(&mut self, partition: PartitionId) -> Option<(&TableSchema, &mut Fragment)> {
        let fragment = self.fragments.get_mut(usize::from(partition.0))?.as_deref_mut()?;
        Some((&self.schema, fragment))
    }
    pub fn fragments(&self) -> impl Iterator<Item = (PartitionId, &Fragment)> {
        self.fragments.iter().enumerate().filter_map(|(i, f)| Some((PartitionId(i as u16), f.as_deref()?)))
    }
    pub fn fragments_mut(&mut self) -> impl Iterator<Item = (PartitionId, &mut Fragment)> {
        let slots = self.fragments.iter_mut().enumerate();
        slots.filter_map(|(i, f)| Some((PartitionId(i as u16), f.as_deref_mut()?)))
    }
    pub fn make_fragment(
        &mut self,
        partition: PartitionId,
        memory: &Arc<MemoryManager>,
        secret: SecretHash,
    ) -> Result<&mut Fragment, ErrorCode> {
        let at = usize::from(partition.0);
        if self.fragments.len() <= at {
            self.fragments.resize_with(at + 1, || None);
        }
        let slot = &mut self.fragments[at];
        if slot.is_none() {
            let mut fragment = Box::new(Fragment::new(self.schema.clone(), partition, memory)?);
            fragment.hash_by(secret);
            for index in self.schema.ordered_indexes() {
                fragment.add_index(index.no);
            }
            fragment.begin_round(self.round);
            *slot = Some(fragment);
        }
        slot.as_deref_mut().ok_or(ErrorCode::Internal)
    }
    /// Takes out the fragments for which `keep` does not hold.
    pub fn take_fragments(&mut self, keep: impl Fn(PartitionId) -> bool) -> impl Iterator<Item = Fragment> {
        let slots = self.fragments.iter_mut().enumerate();
        slots.filter_map(move |(i, slot)| if keep(PartitionId(i as u16)) { None } else { slot.take().map(|f| *f) })
    }

    /// The columns and layout of a projection; `None` for the whole row.
    ///
    /// # Errors
    /// [`ErrorCode::ProtocolViolation`] when a column does not exist.
    pub fn projection(&mut self, projection: Projection<'_>) -> Result<Option<SharedProjection>, ErrorCode> {
        let Some(wire) = projection.columns else { return Ok(None) };
        if let Some((_, found)) = self.projections.iter().find(|(key, _)| key == wire) {
            return Ok(Some(found.clone()));
        }
        let columns: Vec<u16> = projection.iter().collect();
        let layout = self.schema.layout().project_layout(&columns).ok_or(ErrorCode::ProtocolViolation)?;
        let made = Arc::new((columns, layout));
        if self.projections.len() < PROJECTIONS_MAX {
            self.projections.push((wire.to_vec(), made.clone()));
        }
        Ok(Some(made))
    }
}

#[derive(Default)]
pub struct Tables {
    by_id: Vec<Option<Box<Table>>>,
    /// Of tables that are made.
    round: u32,
    /// Tables whose rows are in no log have been there.
    some_unlogged: bool,
    /// That of the claims of prepared branches, once there is one.
    claims: Option<TableId>,
}

impl Tables {
    #[inline]
    pub fn get(&self, id: TableId) -> Option<&Table> {
        self.by_id.get(id.0 as usize)?.as_deref()
    }
    #[inline]
    pub fn get_mut(&mut self, id: TableId) -> Option<&mut Table> {
        self.by_id.get_mut(id.0 as usize)?.as_deref_mut()
    }
    /// The table, if it exists in a version that `version` may use.
    #[inline]
    pub fn checked(&mut self, id: TableId, version: u32) -> Result<&mut Table, ErrorCode> {
        let table = self.get_mut(id).ok_or(ErrorCode::TableNotFound)?;
        if table.accepts(version) { Ok(table) } else { Err(ErrorCode::SchemaVersionChanged) }
    }
    /// As [`Tables::checked`], and whole rows of older forms may be written as ever, and rows be deleted.
    #[inline]
    pub fn checked_for(&mut self, op: &Op<'_>) -> Result<&mut Table, ErrorCode> {
        let table = self.get_mut(op.table).ok_or(ErrorCode::TableNotFound)?;
        if table.accepts(op.schema_version) || table.accepts_whole(op) {
            Ok(table)
        } else {
            Err(ErrorCode::SchemaVersionChanged)
        }
    }
    /// The claims on rows of a partition, if there are any.
    #[inline]
    pub fn claims(&self, partition: PartitionId) -> Option<(&TableSchema, &Fragment)> {
        let table = self.get(self.claims?)?;
        let fragment = table.fragment(partition).filter(|fragment| !fragment.is_empty())?;
        Some((&table.schema, fragment))
    }
    /// There is no such table any more, or never was, for a later one has been made: ids are given out once, in order.
    pub fn is_dropped(&self, id: TableId) -> bool {
        (id.0 as usize) < self.by_id.len() && self.get(id).is_none()
    }
    /// Of a partition's fragments together.
    pub fn slots(&self, partition: PartitionId) -> u64 {
        let pages =
            self.iter().filter_map(|table| table.fragment(partition)).map(|fragment| u64::from(fragment.pages()));
        pages.sum::<u64>() * PAGE_ROWS as u64
    }
    pub fn insert(&mut self, mut table: Table) -> Result<&mut Table, ErrorCode> {
        table.round = self.round;
        let id = table.schema.id;
        self.some_unlogged |= !table.is_logged();
        if claims::is_claims(&table.schema) {
            self.claims = Some(id);
        }
        if id.0 > TABLE_ID_MAX {
            return Err(ErrorCode::TooManyTables);
        }
        if self.by_id.len() <= id.0 as usize {
            self.by_id.resize_with(id.0 as usize + 1, || None);
        }
        assert!(self.by_id[id.0 as usize].is_none(), "table {id} would be in the place of its rows");
        Ok(self.by_id[id.0 as usize].insert(Box::new(table)))
    }
    /// A definition with unique indexes that become ready: what was entered into their hidden tables for older rows came after those rows,
    /// so a snapshot from before must not look for them there.
    fn publish_indexes(&mut self, new: &TableSchema, now: Epoch) {
        let is_ready = |i: &&IndexDef| i.state == IndexState::Ready;
        for index in new.indexes.iter().filter(is_ready) {
            let known = self.get(new.id).and_then(|t| t.schema.index(index.no));
            if let Some(hidden) = index.hidden_table.filter(|_| known.is_some_and(|i| !is_ready(&i)))
                && let Some(table) = self.get_mut(hidden)
            {
                table.created = now;
            }
        }
    }
    /// Of a batch's changes those that the log gets, and how many: all of them but where a table is not durable.
    pub fn logged<'r>(&self, rows: &'r [u8], count: u16, kept: &'r mut Vec<u8>) -> (u16, &'r [u8]) {
        let is_logged = |row: &PreparedRow<'_>| self.get(row.table).is_none_or(Table::is_logged);
        if !self.some_unlogged {
            return (count, rows);
        }
        kept.clear();
        let (mut reader, mut kept_count) = (Reader::new(rows), 0);
        for _ in 0..count {
            let before = reader.rest();
            let Ok(row) = PreparedRow::decode(&mut reader) else { break };
            if is_logged(&row) {
                kept.extend_from_slice(&before[..before.len() - reader.rest().len()]);
                kept_count += 1;
            }
        }
        (kept_count, kept)
    }
    pub fn remove(&mut self, id: TableId) -> Option<Box<Table>> {
        self.by_id.get_mut(id.0 as usize)?.take()
    }
    pub fn iter(&self) -> impl Iterator<Item = &Table> {
        self.by_id.iter().filter_map(|t| t.as_deref())
    }
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Table> {
        self.by_id.iter_mut().filter_map(|t| t.as_deref_mut())
    }
    /// Changes of rows are of this round from now on, in every fragment there is or will be.
    pub fn begin_round(&mut self, round: u32) {
        self.round = round;
        for table in self.by_id.iter_mut().flatten() {
            table.round = round;
            table.fragments.iter_mut().flatten().for_each(|fragment| fragment.begin_round(round));
        }
    }
    /// The first fragment at or behind this place whose rows are kept on disk.
    pub fn next_fragment(&self, table: TableId, partition: PartitionId) -> Option<(TableId, PartitionId)> {
        let mut from = usize::from(partition.0);
        let first = table.0 as usize;
        for id in first.min(self.by_id.len())..self.by_id.len() {
            if let Some(table) = self.by_id[id].as_ref().filter(|table| table.is_logged())
                && let Some(at) = (from..table.fragments.len()).find(|&at| table.fragments[at].is_some())
            {
                return Some((TableId(id as u32), PartitionId(at as u16)));
            }
            from = if id == first { 0 } else { from };
        }
        None
    }
    /// The first table with an id at or above `from`.
    pub fn next_id(&self, from: TableId) -> Option<TableId> {
        (from.0 as usize..self.by_id.len()).find(|&i| self.by_id[i].is_some()).map(|i| TableId(i as u32))
    }

    /// Fragment and everything else needed for an operation on an existing row.
    #[inline]
    pub fn fragment_mut(&mut self, table: TableId, partition: PartitionId) -> Option<&mut Fragment> {
        self.get_mut(table)?.fragment_mut(partition)
    }
}

/// Filling new ordered indexes of one table from the rows there are, in slices between other work.
#[derive(Debug)]
pub struct IndexBuild {
    pub table: TableId,
    pub index: IndexNo,
    /// Fragments left to do, and how far the first of them is.
    pub partitions: Vec<PartitionId>,
    pub row: RowId,
    pub request: u64,
    pub reply_to: BlockRef,
}

/// Rows indexed in one slice.
const BUILD_ROWS: usize = 200;
const _: () = assert!(is_short(BUILD_ROWS, ROW_NS_MAX));
/// Pages of a fragment, or pieces of its indexes, freed in one slice, and what each may cost at worst.
const FREED_PIECES: usize = 64;
const PIECE_NS_MAX: u64 = 200_000;
const _: () = assert!(is_short(FREED_PIECES, PIECE_NS_MAX));
/// Of a table that goes each wait is looked at.
const _: () = assert!(is_short(WAITING_MAX, 500));

impl LocalDataManager {
    pub(super) fn on_table_ord(
        &mut self,
        from: BlockRef,
        body: &[u8],
        ctx: &mut Context<'_>,
    ) -> Result<(), DecodeError> {
        let order = <TableOrd as Message>::decode(body).map_err(|_| DecodeError)?;
        let result = match order.action() {
            TableAction::Drop => {
                self.drop_table(TableId(order.table_id), ctx);
                Ok(false)
            }
            TableAction::Define => {
                let message = order.table.as_ref().ok_or(DecodeError)?;
                let schema = Arc::new(TableSchema::try_from(message)?);
                self.define_table(schema, order.request, from, ctx)
            }
        };
        match result {
            Ok(true) => {} // confirmed when its indexes are built
            Ok(false) => {
                let conf = TableOrd { request: order.request, table: None, ..order };
                ctx.send(from, Kind::TableConf, |out| out.extend_from_slice(&conf.encode_to_vec()));
            }
            Err(code) => self.refuse_table(order.request, from, code, ctx),
        }
        Ok(())
    }

    fn refuse_table(&self, request: u64, to: BlockRef, code: ErrorCode, ctx: &mut Context<'_>) {
        let refusal = TableOrd { request, error: u32::from(code as u16), ..TableOrd::default() };
        ctx.send(to, Kind::TableRef, |out| out.extend_from_slice(&refusal.encode_to_vec()));
    }

    /// `Ok(true)`: indexes are being built, the confirmation comes later.
    fn define_table(
        &mut self,
        schema: Arc<TableSchema>,
        request: u64,
        from: BlockRef,
        ctx: &mut Context<'_>,
    ) -> Result<bool, ErrorCode> {
        let id = schema.id;
        self.tables.publish_indexes(&schema, ctx.epoch());
        let mut new_indexes = Vec::new();
        let table = match self.tables.get(id) {
            None => self.tables.insert(Table::new(schema, ctx.epoch()))?,
            Some(_) => {
                let table = self.tables.get_mut(id).ok_or(ErrorCode::Internal)?;
                let old = table.schema.clone();
                // A node that has put back what it had may learn of several changes at once.
                let was = |index: &IndexDef| old.index(index.no).is_some_and(|before| old.keeps_index(before, &schema));
                let stays = |index: &IndexDef| schema.keeps_index(index, &old) || was(index);
                new_indexes.extend(schema.ordered_indexes().filter(|i| !stays(i)).map(|i| i.no));
                let is_kept = |no: IndexNo| schema.index(no).is_some_and(|i| !new_indexes.contains(&i.no));
                let gone: Vec<IndexNo> = old.indexes.iter().map(|i| i.no).filter(|no| !is_kept(*no)).collect();
                table.redefine(schema);
                for fragment in table.fragments.iter_mut().flatten() {
                    gone.iter().for_each(|&no| fragment.drop_index(no));
                    new_indexes.iter().for_each(|&no| fragment.add_index(no));
                }
                table
            }
        };
        for p in (0..self.view.partition_count()).map(PartitionId) {
            if self.view.instance(p) == self.me.instance && self.view.chain(p).contains(self.me.node) {
                table.make_fragment(p, &self.memory, self.secret)?;
            }
        }
        let partitions: Vec<PartitionId> = table.fragments().filter(|(_, f)| !f.is_empty()).map(|(p, _)| p).collect();
        if partitions.is_empty() || new_indexes.is_empty() || planted(Bug::OrderedIndexUnfilled) {
            return Ok(false);
        }
        for &index in &new_indexes {
            // The last one confirms: builds run in order.
            let request = if Some(&index) == new_indexes.last() { request } else { 0 };
            let partitions = partitions.clone();
            let build = IndexBuild { table: id, index, partitions, row: RowId::default(), request, reply_to: from };
            self.index_builds.push(build);
        }
        self.continue_soon(ctx);
        Ok(true)
    }

    /// What transactions have in a dropped table's rows is given up with it, its memory in slices. Who waits for a row is refused, and who waits for an entry of an index that
    /// is dropped goes on without it.
    fn drop_table(&mut self, id: TableId, ctx: &mut Context<'_>) {
        self.index_builds.retain(|b| b.table != id);
        if let Some(mut table) = self.tables.remove(id) {
            self.given_up.extend(table.take_fragments(|_| false));
            assert!(table.fragments().next().is_none(), "rows of table {id} go with it, not in slices");
            self.continue_soon(ctx);
        }
        // Without the table there is no queue in which a wait would have to be found.
        for i in 0..self.waiting.len() {
            match &self.waiting[i] {
                Some(work) if work.lock_row.0 == id && work.is_index_work() => {
                    if let Some(work) = self.take_wait(i as u32, ctx) {
                        self.run(work, false, ctx);
                    }
                }
                Some(work) if work.lock_row.0 == id => {
                    self.cancel_wait(i as u32, Some(ErrorCode::TableNotFound), ctx);
                }
                _ => {}
            }
        }
    }

    /// Frees a slice of what fragments had that are not here any more; `true` if there was any.
    pub(super) fn free_given_up(&mut self, ctx: &mut Context<'_>) -> bool {
        let Some(fragment) = self.given_up.last_mut() else { return false };
        let bytes = (fragment.data_bytes() + fragment.index_bytes()) as usize;
        ctx.spend(FREED_PIECES.min(1 + bytes / apus_storage::PAGE_BYTES), PIECE_NS_MAX);
        if fragment.give_up(FREED_PIECES) {
            self.given_up.pop();
        }
        true
    }

    /// One slice of the first index build; `true` when more is to do.
    pub(super) fn continue_index_build(&mut self, ctx: &mut Context<'_>) -> bool {
        let Some(build) = self.index_builds.first_mut() else { return false };
        let (table, index, row) = (build.table, build.index, build.row);
        let Some(&partition) = build.partitions.first() else {
            let build = self.index_builds.remove(0);
            if build.request != 0 {
                let conf = TableOrd { request: build.request, table_id: build.table.0, ..TableOrd::default() };
                ctx.send(build.reply_to, Kind::TableConf, |out| out.extend_from_slice(&conf.encode_to_vec()));
            }
            return !self.index_builds.is_empty();
        };
        let step = match self.tables.fragment_mut(table, partition) {
            Some(fragment) => {
                ctx.spend(BUILD_ROWS.min(fragment.row_count() as usize), ROW_NS_MAX);
                fragment.build_index(index, row, BUILD_ROWS)
            }
            None => Ok(None),
        };
        match step {
            Ok(Some(next)) => build.row = next,
            Ok(None) => {
                build.partitions.remove(0);
                build.row = RowId::default();
            }
            Err(code) => {
                let (request, to) = (build.request, build.reply_to);
                let last = self.index_builds.iter().rfind(|b| b.table == table).map_or(request, |b| b.request);
                self.index_builds.retain(|b| b.table != table);
                self.refuse_table(last, to, code, ctx);
            }
        }
        true
    }
}
