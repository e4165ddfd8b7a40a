//! Local checkpoints: the state of this instance's fragments on disk, so that the log before it can go. `docs/internals/durability.md` section 7 has the proofs.
//!
//! ```text
//! none --log has grown by so much--> Walk: pages to the file, in slices --all walked: end = the worker's epoch--> written --> synced
//!      <--listed in the control file; older files and segments go-- restorable >= end ------------------------------------'
//! ```
//!
//! **What is written.** The newest committed version of each row of each page of slots that was changed since the walk of the last checkpoint that counts began, and of one
//! other page in [`TURNS`]: so what is older than [`TURNS`] checkpoints is in none any more that counts, and restart reads that many files. Of a page all that is there; a slot
//! that is not in it was empty.
//!
//! **What counts.** The walk sees commits that are not restorable yet. Only when its last epoch is, no later start of the cluster goes back behind anything in the file; then it is
//! listed, and before that it is synced.
//!
//! **Where the log begins then.** At the oldest change of any transaction that was not forgotten here when the walk began. Of the others everything is in the pages:
//! what is decided is read as committed even if its rows are not stamped yet.
//!
//! **Pace.** A page at a time, as many bytes as the time since the last step allows at the present speed (`checkpoint_speed`). At most [`REQUESTS`] writes are under way, so a sync of the log waits for some milliseconds at most, and the file is synced in pieces.
//!
//! **A disk that is full or fails here**: the file is given up, and tried again later with a new one; the log goes on.

use apus_kernel::{Context, DataFile, DiskOp, jam, limits::TICK_NS};
use apus_redo::{Checkpoint, Entry, Place, Writer};
use apus_signal::{
    Kind,
    copy::{COPY_BYTES, CopiedRow},
    gcp::GcpHurry,
    view::{NodeState, ViewNode},
};
use apus_storage::{Fragment, PAGE_ROWS};
use apus_types::{
    Epoch, PartitionId, TableId,
    planted::{Bug, planted},
};

use super::{
    LocalDataManager,
    checkpoint_end::LastOne,
    checkpoint_speed::{Bounds, Load, Speed},
    ends::is_short,
    redo::{Asked, Redo},
};

/// A page that does not change is written once in so many checkpoints.
const TURNS: u64 = 8;
/// The log may grow by so many bytes before the next checkpoint begins.
pub const CHECKPOINT_BYTES: u64 = 2 * apus_redo::SEGMENT_BYTES;
/// Between two steps, at least and at most: a speed may rise meanwhile.
const PAUSE_NS: u64 = 1_000_000;
const PAUSE_MAX_NS: u64 = 100_000_000;
/// Bytes per second, where the workers' share of a speed is less.
const RATE_MIN: u64 = 64 << 10;
/// Pages of one step, and what reading a row may cost at worst.
const PAGES: u32 = 16;
const ROW_READ_NS_MAX: u64 = 2_000;
const _: () = assert!(is_short(PAGES as usize * PAGE_ROWS, ROW_READ_NS_MAX));
/// Pages that have not changed are passed over, so many in a step.
const PASSED: u32 = 4096;
/// Bytes that wait to be written, writes under way, and bytes written between two syncs.
const BUFFERED: usize = 512 << 10;
const REQUESTS: usize = 3;
const UNSYNCED: u64 = 16 << 20;
/// After one that was given up.
const RETRY_NS: u64 = 1_000_000_000;
/// Between two of everything because of files that are of another kind.
const OTHER_KIND_NS: u64 = 10_000_000_000;
/// Whoever makes epochs restorable is told again that one waits.
const HURRY_TICKS: u64 = 100_000_000 / TICK_NS;
/// Commits that a checkpoint remembers, as a restart does.
pub(super) const COMMITS_MAX: usize = 100_000;
/// Ids in one entry.
const COMMITS_IN_ENTRY: usize = 4096;
/// The body of the `LdmContinueOrd` that asks for the next step.
pub(super) const CONTINUE_CHECKPOINT: u8 = 4;

/// What an answer of the disk is about, of the file with this number.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Written(u32),
    Synced(u32),
}

/// Why nothing that is on the disk is to be needed any more.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Forced {
    /// Something is damaged.
    Damaged,
    /// Something is in the clear, and files are to be encrypted, or the other way round.
    OtherKind,
}

/// Of one instance.
pub(super) struct Checkpoints {
    /// The log may grow by so many bytes.
    every: u64,
    /// Changes of rows are of this round; each walk begins one.
    pub round: u32,
    /// Of the walk of the newest checkpoint that counts; `None`: the next one writes all.
    pub counted: Option<u32>,
    walk: Option<Box<Walk>>,
    /// `Writer::written` when the last one began, and bytes of log that this process has found.
    begun_at: u64,
    pub found: u64,
    retry_at: u64,
    /// One of everything begins, however little the log has grown.
    forced: Option<Forced>,
    /// As told by the rounds of epochs; whether epochs become restorable at all.
    restorable: Epoch,
    possible: bool,
    /// The next step is on its way.
    stepping: bool,
    /// When the newest one of this process was listed, and its bytes.
    listed: Option<(u64, u64)>,
    speed: Speed,
    /// The cluster ends, and this is its last one.
    pub last_one: Option<LastOne>,
}

/// One that is being written.
struct Walk {
    file: u32,
    round: u32,
    turn: u64,
    writer: Writer,
    /// Where the log begins with it.
    start: Place,
    /// `Writer::written` of the log at its begin.
    begun_at: u64,
    /// Where the walk is; `None`: at its end.
    cursor: Option<Cursor>,
    /// The worker's epoch at the end: nothing later is in the file.
    end: Epoch,
    writes: usize,
    bytes: u64,
    unsynced: u64,
    syncing: bool,
    /// All is on disk.
    is_synced: bool,
    ticks: u64,
    /// Bytes that may be written now, and when that was.
    allowed: i64,
    stepped_at: u64,
}

#[derive(Clone, Copy)]
struct Cursor {
    table: TableId,
    partition: PartitionId,
    page: u32,
    /// Of the fragment, as the file says.
    pages: u32,
}

impl Checkpoints {
    pub fn new() -> Checkpoints {
        Checkpoints {
            every: CHECKPOINT_BYTES,
            round: 1,
            counted: None,
            walk: None,
            begun_at: 0,
            found: 0,
            retry_at: 0,
            forced: None,
            restorable: Epoch(0),
            possible: false,
            stepping: false,
            listed: None,
            speed: Speed::default(),
            last_one: None,
        }
    }
    /// After so many bytes of log.
    pub fn set_every(&mut self, bytes: u64) {
        self.every = bytes;
    }
    /// The file that is being written.
    pub fn file(&self) -> Option<u32> {
        self.walk.as_ref().map(|walk| walk.file)
    }
    /// Bytes that wait to be written.
    pub fn buffered(&self) -> usize {
        self.walk.as_ref().map_or(0, |walk| walk.writer.buffered())
    }
    /// The file that is being written is complete, and on the disk.
    pub fn is_synced(&self) -> bool {
        self.walk.as_ref().is_some_and(|walk| walk.is_synced)
    }
    /// One that is written now may count, and there is more log than so much that it would save.
    pub fn is_worthwhile(&self, written: u64, least: u64) -> bool {
        self.possible && self.grown(written) >= least
    }
    pub fn is_forced(&self) -> bool {
        self.forced.is_some()
    }
    pub fn force(&mut self, why: Forced) {
        (self.forced, self.counted) = (Some(why), None);
    }
    /// A new process has nothing under way.
    pub fn reset(&mut self) {
        (self.counted, self.begun_at, self.found) = (None, 0, 0);
    }
    /// Bytes of log since the last one began.
    fn grown(&self, written: u64) -> u64 {
        let (found, begun_at) = (self.found, self.begun_at);
        assert!(found + written >= begun_at, "{found} and {written} bytes of log, of which {begun_at} are before");
        self.found + written - self.begun_at
    }
    pub fn summary(&self) -> String {
        let walk = self.walk.as_ref().map(|w| (w.file, w.bytes, w.cursor.is_some(), w.is_synced, w.end));
        let speed = self.speed.get();
        format!(
            "checkpoint (file, bytes, walking, synced, end) {walk:?}, listed (at, bytes) {:?}, {speed} bytes/s",
            self.listed
        )
    }
}

impl Walk {
    /// What may be written in this step, at so many bytes per second.
    fn allow(&mut self, now: u64, rate: u64) {
        let more = u128::from(rate) * u128::from(now.saturating_sub(self.stepped_at)) / 1_000_000_000;
        self.allowed = (self.allowed + more as i64).min(BUFFERED as i64);
        self.stepped_at = now;
    }
    fn is_written(&self) -> bool {
        self.cursor.is_none() && self.writer.buffered() == 0 && self.writes == 0
    }
}

impl Redo {
    /// Gives the disk what is to be written of a checkpoint, and has it synced.
    fn write_checkpoint(&mut self, walk: &mut Walk, ctx: &mut Context<'_>) {
        let file = DataFile::checkpoint(self.instance(), walk.file);
        while walk.writes < REQUESTS && self.has_room(ctx) {
            if walk.cursor.is_some() && walk.writer.buffered() < BUFFERED / 2 {
                break;
            }
            let Some(block) = walk.writer.take(ctx.epoch(), ctx.disk_buffer()) else { break };
            walk.writes += 1;
            walk.unsynced += block.bytes.len() as u64;
            walk.bytes = block.at + block.bytes.len() as u64;
            let op = DiskOp::Write { at: block.at, bytes: block.bytes };
            self.ask_file(file, op, Asked::Checkpoint(Step::Written(walk.file)), ctx);
        }
        if walk.is_written() && planted(Bug::ControlBeforeSync) {
            walk.is_synced = true;
        }
        let is_due = walk.unsynced >= UNSYNCED || (walk.is_written() && !walk.is_synced);
        if is_due && !walk.syncing && self.has_room(ctx) {
            (walk.syncing, walk.unsynced) = (true, 0);
            self.ask_file(file, DiskOp::Sync, Asked::Checkpoint(Step::Synced(walk.file)), ctx);
        }
    }

    /// It is complete and synced, and no start of the cluster goes back behind it: it counts as soon as the control file says so.
    fn list_checkpoint(&mut self, walk: &Walk, ctx: &mut Context<'_>) {
        assert!(walk.is_written(), "checkpoint {} counts with {} writes under way", walk.file, walk.writes);
        let place = walk.writer.place();
        let checkpoint = Checkpoint {
            file: walk.file,
            turn: walk.turn,
            epoch: walk.end,
            bytes: walk.bytes,
            sequence: place.sequence,
            checksum: place.previous,
        };
        let bytes = self.begin_log_at(checkpoint, walk.start, TURNS as usize);
        self.put_control(ctx);
        let done = &mut self.checkpoints;
        (done.counted, done.begun_at) = (Some(walk.round), walk.begun_at);
        done.found = 0;
        done.listed = Some((ctx.now(), walk.bytes));
        ctx.probe("ldm: a checkpoint counts");
        if done.last_one.is_some() {
            ctx.probe("ldm: a checkpoint counts at the orderly end");
        }
        if bytes > 0 {
            ctx.probe("ldm: the log is cut");
        }
        match done.forced.take() {
            Some(Forced::Damaged) => self.scrub_again(walk.file, ctx),
            Some(Forced::OtherKind) => self.tell_kind(walk.file, ctx),
            None => {}
        }
    }

    /// Once more, if a transaction still had a change in an older segment.
    fn tell_kind(&mut self, file: u32, ctx: &mut Context<'_>) {
        if !self.is_of_one_kind() {
            self.checkpoints.retry_at = ctx.now() + OTHER_KIND_NS;
            return self.checkpoints.force(Forced::OtherKind);
        }
        ctx.probe("ldm: all files are encrypted, or none");
        let how = if self.encrypts() { "encrypted" } else { "in the clear" };
        ctx.log(format_args!("checkpoint {file} has everything: all that counts of this log is {how} now"));
    }

    /// The file cannot be written.
    fn give_up_checkpoint(&mut self, why: &str, ctx: &mut Context<'_>) {
        if let Some(walk) = self.checkpoints.walk.take() {
            ctx.probe("ldm: a checkpoint is given up");
            ctx.log(format_args!("checkpoint {} is given up: {why}", walk.file));
            self.checkpoints.retry_at = ctx.now() + RETRY_NS;
            self.remove_useless(ctx);
        }
    }

    /// What is on the disk is not what was written. It is all in memory: the next checkpoint has everything, and needs nothing of before.
    pub fn write_all_anew(&mut self, ctx: &mut Context<'_>) {
        self.checkpoints.force(Forced::Damaged);
        self.give_up_checkpoint("a file that it needs is damaged", ctx);
    }

    /// A fragment is not here any more.
    pub fn fragment_gone(&mut self, ctx: &mut Context<'_>) {
        self.checkpoints.counted = None;
        self.give_up_checkpoint("a partition is elsewhere now", ctx);
    }

    pub fn on_checkpoint_failed(&mut self, step: Step, why: &str, ctx: &mut Context<'_>) {
        let (Step::Written(file) | Step::Synced(file)) = step;
        if self.checkpoints.file() == Some(file) {
            self.give_up_checkpoint(why, ctx);
        }
    }

    /// A round of epochs.
    pub fn note_restorable(&mut self, epoch: Epoch, possible: bool) {
        let checkpoints = &mut self.checkpoints;
        checkpoints.restorable = checkpoints.restorable.max(epoch);
        checkpoints.possible = possible;
    }
}

impl LocalDataManager {
    pub(super) fn tick_checkpoint(&mut self, ctx: &mut Context<'_>) {
        let is_up = self.is_up();
        self.steer_checkpoint(ctx);
        let Some(redo) = self.redo.as_mut().filter(|redo| redo.is_open()) else { return };
        let written = redo.written();
        let checkpoints = &redo.checkpoints;
        let is_due =
            checkpoints.possible && (checkpoints.is_forced() || checkpoints.grown(written) >= checkpoints.every);
        if checkpoints.last_one.is_some() {
            self.try_list_checkpoint(ctx);
            self.tick_last_one(ctx);
        } else if checkpoints.walk.is_some() {
            self.try_list_checkpoint(ctx);
        } else if is_up && is_due && ctx.now() >= checkpoints.retry_at {
            self.begin_checkpoint(ctx);
        }
    }

    fn steer_checkpoint(&mut self, ctx: &mut Context<'_>) {
        let starts = |n: &&ViewNode| n.node() != self.me.node && n.state() == NodeState::Recovering;
        let Some(redo) = self.redo.as_mut().filter(|redo| redo.checkpoints.speed.is_due(ctx.now())) else { return };
        let (now, written, is_log_late) = (ctx.now(), redo.written(), redo.is_late(ctx.now()));
        let checkpoints = &mut redo.checkpoints;
        let growth = checkpoints.grown(written) / checkpoints.every.max(1);
        let other_starts = self.view.nodes.iter().any(|n| starts(&n));
        let own_start = checkpoints.listed.is_none() || checkpoints.last_one.is_some();
        let bounds = Bounds::new(self.view.checkpoint_speeds(), self.view.instances, other_starts, own_start, growth);
        let busy_percent = checkpoints.speed.busy_percent(now, ctx.idle_ns());
        match checkpoints.last_one {
            Some(_) => checkpoints.speed.release(bounds),
            None => checkpoints.speed.steer(Load { busy_percent, is_log_late }, bounds),
        }
    }

    pub(super) fn begin_checkpoint(&mut self, ctx: &mut Context<'_>) {
        let open = self.transactions.logged_from();
        let commits = self.outcomes.newest(COMMITS_MAX);
        let Some(redo) = &mut self.redo else { return };
        let Some((file, mut writer, place)) = redo.new_checkpoint(ctx) else { return };
        let start = if planted(Bug::WrongTailCut) { place } else { place.min(open) };
        for ids in commits.chunks(COMMITS_IN_ENTRY) {
            let bytes: Vec<u8> = ids.iter().flat_map(|trans| Entry::commit_id(*trans)).collect();
            writer.append(&Entry::Commits { ids: &bytes });
        }
        let turn = redo.newest_turn() + 1;
        let begun_at = redo.written();
        let checkpoints = &mut redo.checkpoints;
        checkpoints.round += 1;
        let round = checkpoints.round;
        let (counted, under_way) = (checkpoints.counted, checkpoints.file());
        assert!(under_way.is_none(), "checkpoint {file} begins amid {under_way:?}");
        assert!(counted.is_none_or(|counted| counted < round), "round {round} follows {counted:?}");
        let cursor = self.tables.next_fragment(TableId(0), PartitionId(0)).map(|(table, partition)| Cursor {
            table,
            partition,
            page: 0,
            pages: 0,
        });
        checkpoints.walk = Some(Box::new(Walk {
            file,
            round,
            turn,
            writer,
            start,
            begun_at,
            cursor,
            end: Epoch(0),
            writes: 0,
            bytes: 0,
            unsynced: 0,
            syncing: false,
            is_synced: false,
            ticks: 0,
            allowed: 0,
            stepped_at: ctx.now(),
        }));
        self.tables.begin_round(round);
        ctx.probe("ldm: a checkpoint begins");
        self.checkpoint_later(PAUSE_NS, ctx);
    }

    fn checkpoint_later(&mut self, delay_ns: u64, ctx: &mut Context<'_>) {
        let Some(redo) = &mut self.redo else { return };
        if !std::mem::replace(&mut redo.checkpoints.stepping, true) {
            let delay_ns = delay_ns + self.slices.pause_ns;
            ctx.send_delayed(delay_ns, Kind::LdmContinueOrd, |out| out.push(CONTINUE_CHECKPOINT));
        }
    }

    /// Walks on as far as the pace allows.
    pub(super) fn on_continue_checkpoint(&mut self, ctx: &mut Context<'_>) {
        jam!(ctx);
        let Some(redo) = &mut self.redo else { return };
        redo.checkpoints.stepping = false;
        let rate = redo.checkpoints.speed.get().max(RATE_MIN);
        let Some(mut walk) = redo.checkpoints.walk.take() else { return };
        walk.allow(ctx.now(), rate);
        let most = (self.slices.rows / 16).clamp(1, PAGES);
        let mut rows = std::mem::take(&mut self.scratch.rows);
        let (mut pages, mut passed) = (0, 0);
        while pages < most && passed < PASSED && walk.allowed > 0 && walk.writer.buffered() < BUFFERED {
            match self.walk_page(&mut walk, &mut rows) {
                Some(true) => pages += 1,
                Some(false) => passed += 1,
                None => break,
            }
        }
        self.scratch.rows = rows;
        if walk.cursor.is_none() && walk.end == Epoch(0) {
            walk.end = ctx.epoch();
        }
        let deficit = ((-walk.allowed).max(0) as u64 * 1_000_000_000 / rate).min(PAUSE_MAX_NS);
        let is_written = walk.is_written();
        if let Some(redo) = &mut self.redo {
            redo.write_checkpoint(&mut walk, ctx);
            redo.checkpoints.walk = Some(walk);
        }
        if !is_written {
            self.checkpoint_later(PAUSE_NS.max(deficit), ctx);
        }
    }

    /// One page; `Some(false)`: it was not written. `None`: all fragments are done.
    fn walk_page(&self, walk: &mut Walk, rows: &mut Vec<u8>) -> Option<bool> {
        let Cursor { table, partition, page, pages } = walk.cursor?;
        let Some(fragment) = self.tables.get(table).and_then(|t| t.fragment(partition)) else {
            walk.cursor = self.fragment_after(table, partition);
            return Some(false);
        };
        let pages = if page == 0 { fragment.pages() } else { pages };
        if page == 0 {
            walk.writer.append(&Entry::Fragment { partition, table, pages });
        }
        if page >= pages {
            walk.cursor = self.fragment_after(table, partition);
            return Some(false);
        }
        walk.cursor = Some(Cursor { table, partition, page: page + 1, pages });
        let counted = self.redo.as_ref().and_then(|redo| redo.checkpoints.counted);
        let is_new = counted.is_none_or(|round| fragment.changed_in(page).is_none_or(|of| of >= round));
        let number = u64::from(page) + u64::from(partition.0) + u64::from(table.0);
        if !is_new && number % TURNS != walk.turn % TURNS {
            return Some(false);
        }
        let before = walk.writer.buffered();
        walk.writer.append(&Entry::Page { partition, table, page });
        self.write_rows(fragment, (table, partition), page, rows, walk);
        walk.allowed -= (walk.writer.buffered() - before) as i64;
        Some(true)
    }
    fn fragment_after(&self, table: TableId, partition: PartitionId) -> Option<Cursor> {
        let next = self.tables.next_fragment(table, PartitionId(partition.0 + 1));
        next.map(|(table, partition)| Cursor { table, partition, page: 0, pages: 0 })
    }

    /// The rows of a page as they are committed.
    fn write_rows(
        &self,
        fragment: &Fragment,
        (table, partition): (TableId, PartitionId),
        page: u32,
        rows: &mut Vec<u8>,
        walk: &mut Walk,
    ) {
        rows.clear();
        let mut count = 0;
        for row in fragment.rows_of(page) {
            let Some(image) = fragment.committed(row, &self.transactions) else { continue };
            let epoch = fragment.last_change(row, &self.transactions);
            CopiedRow { epoch, row: row.0, key: &fragment.key(row), image }.encode(rows);
            count += 1;
            if rows.len() >= COPY_BYTES {
                walk.writer.append(&Entry::Copied { partition, table, count, rows });
                rows.clear();
                count = 0;
            }
        }
        if count > 0 {
            walk.writer.append(&Entry::Copied { partition, table, count, rows });
        }
    }

    pub(super) fn on_checkpoint_step(&mut self, step: Step, ctx: &mut Context<'_>) {
        let Some(redo) = &mut self.redo else { return };
        let (Step::Written(file) | Step::Synced(file)) = step;
        let Some(mut walk) = redo.checkpoints.walk.take_if(|walk| walk.file == file) else { return };
        match step {
            Step::Written(_) => {
                assert!(walk.writes > 0, "checkpoint {file} has more writes than were asked for");
                walk.writes -= 1;
            }
            Step::Synced(_) => {
                assert!(walk.syncing, "checkpoint {file} is synced and was not to be");
                walk.syncing = false;
                // What was written after it had been asked for is not in it.
                walk.is_synced = walk.is_written() && walk.unsynced == 0;
            }
        }
        redo.write_checkpoint(&mut walk, ctx);
        redo.checkpoints.walk = Some(walk);
        self.try_list_checkpoint(ctx);
    }

    /// Lists it when all that is in it is restorable.
    pub(super) fn try_list_checkpoint(&mut self, ctx: &mut Context<'_>) {
        let Some(redo) = &mut self.redo else { return };
        let (restorable, dih) = (redo.checkpoints.restorable, redo.dih());
        let Some(walk) = redo.checkpoints.walk.as_mut().filter(|walk| walk.is_synced) else { return };
        let end = walk.end;
        if restorable < end && !planted(Bug::CheckpointTooEarly) {
            if walk.ticks.is_multiple_of(HURRY_TICKS) {
                ctx.send(dih, Kind::GcpHurryOrd, |b| GcpHurry { epoch: end }.encode(b));
            }
            walk.ticks += 1;
            return;
        }
        if let Some(walk) = redo.checkpoints.walk.take() {
            redo.list_checkpoint(&walk, ctx);
        }
    }
}
