//! The dictionary on disk, and a restart from there.
//!
//! Where the node has a disk for its logs, each version of the dictionary is in a synced file before the coordinator is told that this member has
//! committed it; so a change that was acknowledged is on every disk. Rows of a table are in a log only after its definition is known here, and a global
//! checkpoint asks for the file first (`KeepReq`), so of whatever a log restores, the newest dictionary of all nodes knows the table.
//!
//! The ids of the tables that a change makes are in the file before the change is committed: a log may hold rows of them when the change is undone, and they would come back
//! in another table of that id.
//!
//! A change that begins an era of versions ([`apus_types::eras`]) is prepared when that is in the file: whoever is told of a version of it can count on it that the era does not come again.
//!
//! A change that was under way when the power went is there or not, as the newest file says; its rows, if any, come with it. The file holds the tokens of what
//! was executed, too: a client that asks again hears that, and nothing is executed twice.
//!
//! A file that cannot be written: the change waits, and is tried again every [`RETRY_NS`]; further changes are refused (`DiskFailed`).

use std::collections::BTreeMap;

use apus_kernel::{Context, jam};
use apus_signal::{
    BlockId, BlockRef, Kind,
    dict::{self, DictReadReq, Era, SchemaStep, TableOrd},
    file::{FileDone, seal, unseal},
    gcp::Keep,
    qmgr::{JoinAnswer, decode, encode},
    restart::Restore,
    schema::TableMessage,
};
use apus_types::TableSchema;
use prost::Message;

use super::{Catalog, Dictionary};

/// The file's name.
pub const FILE: &str = "dictionary";
/// What it begins with.
pub const MAGIC: [u8; 8] = *b"APUSDIC3";
/// Of releases whose rows do not say with which columns they were written, and of those whose keys of texts have the order of other weights.
const OLD_MAGICS: [[u8; 8]; 2] = [*b"APUSDIC1", *b"APUSDIC2"];
/// What could not be written is tried again after this time.
const RETRY_NS: u64 = 1_000_000_000;

/// The dictionary that a process finds.
///
/// # Errors
/// For people: there is none, or it is damaged.
pub fn read_file(files: &BTreeMap<String, Vec<u8>>) -> Result<Catalog, &'static str> {
    let content = files.get(FILE).ok_or("is missing")?;
    if OLD_MAGICS.iter().any(|old| content.starts_with(old)) {
        return Err(
            "is of an earlier release, whose rows and keys this one does not read: reload them from a dump into an empty directory",
        );
    }
    let message: dict::Dictionary = decode(unseal(MAGIC, content)?).map_err(|_| "is damaged")?;
    Catalog::from_message(&message).map_err(|_| "holds a table that this release does not understand")
}

/// Who waits for the file.
enum Waiter {
    /// A coordinator for the answer to its commit.
    Commit(BlockRef, SchemaStep),
    Keep(BlockRef, Keep),
}

#[derive(Default)]
pub(super) struct Keeper {
    /// `None`: the node is diskless.
    found: Option<Catalog>,
    token: u64,
    written: u64,
    /// With the number of the write that each waits for.
    waiting: Vec<(u64, Waiter)>,
    failed_at: Option<u64>,
}

impl Keeper {
    pub(super) fn new(disk: Option<&crate::OnDisk>) -> Keeper {
        let found = disk.map(|disk| read_file(&disk.files).unwrap_or_default());
        Keeper { found, ..Keeper::default() }
    }
    pub(super) fn has_failed(&self) -> bool {
        self.failed_at.is_some()
    }
    /// The number of the newest write.
    pub(super) fn last_write(&self) -> u64 {
        self.token
    }
    /// This write, or a later one, is done, or has failed.
    pub(super) fn is_past(&self, write: u64) -> bool {
        write <= self.written || self.has_failed()
    }
    pub(super) fn summary(&self) -> String {
        format!("file {} of {} written, {} wait", self.written, self.token, self.waiting.len())
    }
}

impl Dictionary {
    /// The dictionary has changed.
    pub(super) fn put_file(&mut self, ctx: &mut Context<'_>) {
        if self.keeper.found.is_none() {
            return;
        }
        self.keeper.token += 1;
        let content = seal(MAGIC, &self.catalog.to_copy().encode_to_vec());
        ctx.write_file(FILE, content, true, self.keeper.token);
    }

    /// Answers a commit as soon as it is on disk.
    pub(super) fn answer_when_kept(&mut self, to: BlockRef, answer: SchemaStep, ctx: &mut Context<'_>) {
        self.keeper.waiting.push((self.keeper.token, Waiter::Commit(to, answer)));
        self.serve_waiters(ctx);
    }

    pub(super) fn on_keep_req(&mut self, from: BlockRef, keep: Keep, ctx: &mut Context<'_>) {
        self.keeper.waiting.retain(|(_, w)| !matches!(w, Waiter::Keep(..)));
        self.keeper.waiting.push((self.keeper.token, Waiter::Keep(from, keep)));
        self.serve_waiters(ctx);
    }

    fn serve_waiters(&mut self, ctx: &mut Context<'_>) {
        let written = self.keeper.written;
        for (_, waiter) in self.keeper.waiting.extract_if(.., |(token, _)| *token <= written) {
            match waiter {
                Waiter::Commit(to, answer) => ctx.send(to, Kind::SchemaCommitConf, |b| encode(&answer, b)),
                Waiter::Keep(to, keep) => ctx.send(to, Kind::KeepConf, |b| keep.encode(b)),
            }
        }
    }

    pub(super) fn on_file(&mut self, done: &FileDone, is_written: bool, ctx: &mut Context<'_>) {
        let before = (self.keeper.written, self.keeper.has_failed());
        if is_written {
            self.keeper.written = self.keeper.written.max(done.token);
            self.keeper.failed_at = None;
            self.serve_waiters(ctx);
        } else if done.token == self.keeper.token {
            ctx.probe("dict: the dictionary cannot be written");
            if self.keeper.failed_at.is_none() {
                ctx.log(format_args!("{}; schema changes wait until it can be written", done.reason));
            }
            self.keeper.failed_at = Some(ctx.now());
        }
        if self.participant.waits_for_file(before) {
            self.check_prepared(ctx);
        }
    }

    pub(super) fn tick_file(&mut self, ctx: &mut Context<'_>) {
        let is_due = |at: u64| ctx.now().saturating_sub(at) >= RETRY_NS;
        if self.keeper.failed_at.is_some_and(is_due) {
            self.keeper.failed_at = Some(ctx.now());
            self.put_file(ctx);
        }
    }

    // ---- restart

    /// From this node's QMGR: LDM and TC are to know the tables, so that logs can be read.
    pub(super) fn on_restore_req(&mut self, restore: Restore, ctx: &mut Context<'_>) {
        if self.view.is_some() {
            return jam!(ctx);
        }
        let own = self.keeper.found.clone().unwrap_or_default();
        if own.version >= restore.dictionary {
            self.participant.restore(restore, JoinAnswer::default());
            self.take_over_catalog(own, ctx);
        } else {
            let answer = JoinAnswer { president: restore.dictionary_from, ..JoinAnswer::default() };
            self.participant.restore(restore, answer);
            self.ask_for_copy(ctx);
        }
    }

    /// Another starting node has an older dictionary than this one found.
    pub(super) fn on_copy_req_before(&self, from: BlockRef, _req: DictReadReq, ctx: &mut Context<'_>) {
        if let Some(found) = self.keeper.found.as_ref().filter(|c| self.view.is_none() && c.version > 0) {
            ctx.send(from, Kind::DictCopyConf, |b| encode(&found.to_copy(), b));
        }
    }

    /// Makes a dictionary this node's own: tables to LDM and TC, hidden ones first, as in a step; what an earlier copy had more goes.
    pub(super) fn take_over_catalog(&mut self, catalog: Catalog, ctx: &mut Context<'_>) {
        let mut tables: Vec<&TableSchema> = catalog.tables.values().collect();
        tables.sort_by_key(|t| t.base_table.is_none());
        let mut orders: Vec<TableOrd> = tables.into_iter().map(|t| Self::define(TableMessage::from(t))).collect();
        let gone = self.catalog.tables.keys().filter(|id| !catalog.tables.contains_key(id));
        orders.extend(gone.map(|id| Self::drop_order(*id)));
        // This node's log may have rows of tables that others have not heard of.
        let found = self.keeper.found.as_ref();
        let (ids, begun) = found.map_or((0, Era::default()), |found| (found.next_table_id, found.begun));
        let (next_table_id, begun) = (catalog.next_table_id.max(ids), catalog.begun.max(begun));
        self.catalog = Catalog { next_table_id, begun, ..catalog };
        self.account(self.catalog.encoded_bytes());
        self.put_file(ctx);
        let (order, waiting) = self.order_tables(&orders, ctx);
        self.participant.copy_begins(order, waiting);
        self.announce(ctx);
        self.check_copied(ctx);
    }

    pub(super) fn tell_restored(&self, restore: &Restore, ctx: &mut Context<'_>) {
        let qmgr = BlockRef::new(self.me, BlockId::Qmgr, BlockRef::CONTROL);
        ctx.send(qmgr, Kind::RestoreConf, |b| encode(restore, b));
    }
}
