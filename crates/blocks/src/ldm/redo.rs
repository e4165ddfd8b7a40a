//! Redo: this instance's log, written and read back. The entries' meaning is in `restore`, their form in the `apus-redo` crate, the rounds that make
//! them count in `apus_signal::gcp`.
//!
//! ```text
//! Looking (at the end of the log that is there) --> Hardening (`harden`) --RedoFoundRep--> Found --RestoreReq--> Reading --RestoreConf--> Open
//!          nothing is there ------------------------------------------- first view --------------------------------^
//!          the node joins a cluster that lives, with what it has put back: the log goes on ---------------------------^
//!          ... or with nothing: a new log, the old segments go -------------------------------------------------------^
//! ```
//!
//! **Writing.** Entries are appended to the writer's buffer as things happen, and written when there are [`FLUSH_BYTES`] of them or a global checkpoint
//! wants them on disk. Nothing waits for a write but the checkpoint: no statement, no lock, no message to another replica.
//!
//! **Segments** are allocated on the disk before they are used, one ahead, so a full disk shows when the next one is made and not when a commit is
//! written. They are listed in the control file, synced, before a mark in them counts.
//!
//! **A disk that does not keep up, is full, or fails.** What is buffered is bounded ([`BUFFER_MAX`], and memory region [`Region::Log`]): beyond it, and while there is no room for more segments, what changes
//! rows is refused with a temporary error (`LogFull`), here and at the chain's other replicas; reads go on, and so do the ends of what was begun, whose
//! entries are small. A write or sync that fails is not repeated, for what a failed sync has lost nobody knows: the log takes nothing more, changes are
//! refused (`DiskFailed`) if the node is still there 0.1 s later, and no further epoch becomes restorable with this node. A disk that answers nothing for
//! 2 s is the same as long as it does not (`disk_health`).
//!
//! **Limits**: [`BUFFER_MAX`], [`SEGMENTS_MAX`], and those of `Context::disk`.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use apus_kernel::{
    Context, DataFile, DiskOp, jam,
    limits::{DISK_BYTES_MAX, DISK_PIECE_MAX, DISK_REQUESTS_MAX},
};
use apus_redo::{
    Checkpoint, Control, End, Entry, LogId, LogKind, Place, Reader as LogReader, Step, Useless, Vault, Writer,
};
use apus_signal::{
    BlockId, BlockRef, Kind,
    copy::CopyRowsConf,
    file::{DiskConf, DiskRef, FileDone},
    gcp::GcpSave,
    qmgr::encode,
    restart::{RedoFound, Restore},
    view::{NodeState, View, ViewNode},
};
use apus_storage::{MemoryManager, Region};
use apus_types::{
    Epoch, ErrorCode, NodeId,
    planted::{Bug, planted},
};

use super::{
    LocalDataManager,
    checkpoint::{self, Checkpoints, Forced},
    checkpoint_speed::{LATE_BYTES, LATE_NS},
    disk_health::DiskHealth,
    harden::{self, Hardening},
    restore::Replay,
    scrub::Scrub,
};
use crate::{
    OnDisk,
    buffers::{STEP, step},
};

/// So many bytes are written without being asked for.
const FLUSH_BYTES: usize = 256 << 10;
/// Bytes that are appended and not yet given to the disk, above which changes are refused.
pub const BUFFER_MAX: usize = 32 << 20;
/// While no further segment can be made, one part in so many of the last one is kept for the ends of what was begun.
const ROOM_PART: u64 = 8;
/// Newest segments that are synced by the process that goes on with them. More were not written between two marks.
const RESYNCED: usize = 8;
/// Most segments of a log: 1 TiB.
pub const SEGMENTS_MAX: usize = 1 << 14;
/// A segment that could not be made is asked for again after this time.
const RETRY_NS: u64 = 200_000_000;
/// The end of a log is looked for in so many segments first: one may have been made ahead.
const LAST_SEGMENTS: usize = 2;

/// What a request to the disk was for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asked {
    Write,
    /// For the save with this number of [`Redo::saves`].
    Sync(u64),
    Allocate(u32),
    Read {
        segment: u32,
        at: u64,
        count: u32,
    },
    Remove,
    /// A write or sync of what may not be on the disk.
    Harden,
    /// For the checkpoint that is being written.
    Checkpoint(checkpoint::Step),
    /// For the pass of the scrubber with this number; `None`: nothing is read.
    Scrub(u64, Option<(u32, u64, u32)>),
}

pub(super) enum State {
    /// Reads the log's last segments, from the one with this index on, for its newest mark.
    Looking(LogReader, usize),
    /// Sees to it that what was found is on the disk.
    Hardening(Hardening),
    /// Has told what the log holds.
    Found,
    /// Applies the checkpoints, and the log from its beginning.
    Reading(LogReader, Box<Replay>, Restore),
    /// Makes the ordered indexes of what was read.
    Indexing(LogReader, Box<Replay>, Restore),
    /// Has applied it, and the mark about it is on its way to the disk, or there.
    Restored(Restore),
    Open,
}

/// The log of an LDM of a node with a disk.
pub(super) struct Redo {
    me: BlockRef,
    pub state: State,
    pub control: Control,
    control_file: String,
    /// Has keys for the files that are begun, if they are to be encrypted.
    vault: Vault,
    pub checkpoints: Checkpoints,
    pub scrub: Scrub,
    /// Number of the control file's newest content, and of the one that is on disk.
    control_token: u64,
    control_written: u64,
    control_retry_at: Option<u64>,
    writer: Option<Writer>,
    /// By token, with when it was asked.
    asked: BTreeMap<u64, (Asked, u64)>,
    tokens: u64,
    health: DiskHealth,
    making: bool,
    /// There was no room for a segment, and when to try again.
    no_room: bool,
    retry_at: u64,
    /// Everything is to be written, not only what fills a block.
    flush: bool,
    /// Segments that were written to and not synced since.
    unsynced: Vec<u32>,
    save: Option<Save>,
    saves: u64,
    /// Copied rows that are confirmed when the disk has taken more; as many as their senders have under way.
    unconfirmed: Vec<(BlockRef, CopyRowsConf)>,
    /// Entries since the newest mark.
    dirty: bool,
    has_begun: bool,
    found: RedoFound,
    /// What was read is of no use, for people, and the content of the control file that says so.
    disowned: Option<(u64, String)>,
    /// Bytes of memory that it has, and whether it was refused more.
    memory_bytes: usize,
    no_memory: bool,
}

/// A global checkpoint that waits for this log.
struct Save {
    save: GcpSave,
    number: u64,
    /// The control file has to have this number on disk.
    control: u64,
    /// What is being synced.
    segments: Vec<u32>,
    /// The newest block that has to be on disk, and the syncs that are not answered; `None`: not all is written.
    syncs: Option<(u64, usize)>,
}

impl Redo {
    pub fn new(node: NodeId, instance: u8, disk: &OnDisk) -> Redo {
        let mut found = RedoFound { instance: instance.into(), ..RedoFound::default() };
        let mut of_log = Control::empty(LogId { cluster: 0, node, instance, kind: LogKind::Redo }, disk.segment_bytes);
        of_log.next = of_log.next.max(disk.logs.next);
        let control_file = disk.logs.layout.control_file(instance);
        let control = disk.files.get(&control_file).map(Vec::as_slice);
        let mut state = State::Found;
        match control.map(|content| Control::decode(content, &disk.vault)) {
            _ if !disk.logs.damage.is_empty() => (found.exists, found.damage) = (true, disk.logs.damage.clone()),
            None => {}
            Some(Ok(control)) if (control.id.node, control.id.instance) == (node, instance) => {
                found.exists = true;
                (found.complete, found.complete_from) =
                    (control.complete.is_some(), control.complete.map_or(0, |e| e.0));
                found.filling = control.filling;
                (found.base, found.base_lineage) = control.base.map_or((0, 0), |(epoch, lineage)| (epoch.0, lineage));
                found.highest = control.void.iter().map(|(_, to)| to.0).max().unwrap_or(0).max(found.complete_from);
                let first = control.segments.len().saturating_sub(LAST_SEGMENTS);
                state = State::Looking(LogReader::new(&control, first), first);
                of_log = control;
            }
            Some(Ok(control)) => {
                found.exists = true;
                found.damage = format!("the control file is of data node {}", control.id.node);
            }
            Some(Err(damage)) => (found.exists, found.damage) = (true, format!("the control file {damage}")),
        }
        Redo {
            me: BlockRef::new(node, BlockId::Ldm, instance),
            state,
            checkpoints: Checkpoints::new(),
            scrub: Scrub::default(),
            control: of_log,
            control_file,
            vault: disk.vault.clone(),
            control_token: 0,
            control_written: 0,
            control_retry_at: None,
            writer: None,
            asked: BTreeMap::new(),
            tokens: 0,
            health: DiskHealth::default(),
            making: false,
            no_room: false,
            retry_at: 0,
            flush: false,
            unsynced: Vec::new(),
            save: None,
            saves: 0,
            unconfirmed: Vec::new(),
            dirty: false,
            has_begun: false,
            found,
            disowned: None,
            memory_bytes: 0,
            no_memory: false,
        }
    }

    // ---- writing

    /// Accounts what waits for the disk and what is on its way there. What the manager refuses is there all the same; changes are refused until it
    /// has gone down.
    #[inline]
    pub fn follow_memory(&mut self, memory: &MemoryManager, ctx: &mut Context<'_>) {
        let held =
            self.writer.as_ref().map_or(0, Writer::buffered) + self.checkpoints.buffered() + ctx.disk_under_way().1;
        if held.max(self.memory_bytes) < STEP {
            self.no_memory = false;
            return;
        }
        let is_refused = !step(memory, Region::Log, &mut self.memory_bytes, held);
        if is_refused && !std::mem::replace(&mut self.no_memory, is_refused) {
            ctx.probe("ldm: no memory for the log");
        }
        self.no_memory = is_refused;
    }

    /// Why changes are refused, if they are.
    #[inline]
    pub fn refusal(&self) -> Option<ErrorCode> {
        let writer = self.writer.as_ref()?;
        let is_short =
            self.no_room && writer.room() < writer.buffered() as u64 + self.control.segment_bytes / ROOM_PART;
        if self.health.refuses() {
            return Some(ErrorCode::DiskFailed);
        }
        (is_short || self.no_memory || writer.buffered() > BUFFER_MAX).then_some(ErrorCode::LogFull)
    }
    /// Rows came as a copy: tells whoever sent them, who sends no more than so many unconfirmed, when the log's buffer has room for others.
    pub fn confirm_copied(&mut self, to: BlockRef, conf: CopyRowsConf, ctx: &mut Context<'_>) {
        self.unconfirmed.push((to, conf));
        self.confirm(ctx);
    }
    fn confirm(&mut self, ctx: &mut Context<'_>) {
        if self.refusal().is_none() {
            for (to, conf) in self.unconfirmed.drain(..) {
                ctx.send(to, Kind::CopyRowsConf, |b| conf.encode(b));
            }
        }
    }
    /// Whether the log has got something since its newest mark.
    pub fn is_dirty(&self) -> bool {
        self.dirty
    }
    #[inline]
    pub fn append(&mut self, entry: &Entry<'_>) {
        if let Some(writer) = &mut self.writer {
            writer.append(entry);
            self.dirty = true;
        }
    }
    pub fn summary(&self) -> String {
        let state = match &self.state {
            State::Looking(..) => "looking",
            State::Hardening(_) => "hardening",
            State::Found => "found",
            State::Reading(..) => "reading",
            State::Indexing(..) => "indexing",
            State::Restored(_) => "restored",
            State::Open => "open",
        };
        let (buffered, sequence) = self.writer.as_ref().map_or((0, 0), |w| (w.buffered(), w.sequence()));
        format!(
            "log {state}: {buffered} bytes buffered, block {sequence}, segments {:?}, {} requests, control {} of {}, {}; {}; {}",
            self.control.segments.last(),
            self.asked.len(),
            self.control_written,
            self.control_token,
            self.health.summary(),
            self.checkpoints.summary(),
            self.scrub.summary()
        )
    }

    pub(super) fn ask(&mut self, segment: u32, op: DiskOp, asked: Asked, ctx: &mut Context<'_>) {
        self.ask_file(DataFile::redo(self.me.instance, segment), op, asked, ctx);
    }
    pub fn ask_file(&mut self, file: DataFile, op: DiskOp, asked: Asked, ctx: &mut Context<'_>) {
        self.tokens += 1;
        let before = self.asked.insert(self.tokens, (asked, ctx.now()));
        assert!(before.is_none(), "request {} is asked twice, before it was {before:?}", self.tokens);
        ctx.disk(file, op, self.tokens);
    }
    /// The control file on disk is what it is to be.
    pub fn is_control_written(&self) -> bool {
        self.control_written == self.control_token
    }
    /// The disk does not keep up with the log.
    pub fn is_late(&self, now: u64) -> bool {
        let is_of_log = |asked: &Asked| matches!(asked, Asked::Write | Asked::Sync(_));
        let waits_long = |at: u64| now.saturating_sub(at) >= LATE_NS;
        self.asked.values().any(|(asked, at)| is_of_log(asked) && waits_long(*at))
            || self.writer.as_ref().is_some_and(|writer| writer.buffered() >= LATE_BYTES)
    }
    /// All requests are answered.
    pub fn asks_nothing(&self) -> bool {
        self.asked.is_empty()
    }
    /// One more request will do.
    pub fn has_room(&self, ctx: &Context<'_>) -> bool {
        let (requests, bytes) = ctx.disk_under_way();
        requests + 8 <= DISK_REQUESTS_MAX && bytes + DISK_PIECE_MAX <= DISK_BYTES_MAX
    }
    pub fn put_control(&mut self, ctx: &mut Context<'_>) {
        self.control_token += 1;
        ctx.write_file(self.control_file.clone(), self.control.encode(), true, self.control_token);
    }

    /// Gives the disk what is to be written, as far as it takes it; then has it synced, if a checkpoint waits for that.
    #[inline]
    pub fn pump(&mut self, ctx: &mut Context<'_>) {
        let Some(writer) = &self.writer else { return };
        let needs_segment = !self.making && writer.room() < self.control.segment_bytes;
        if writer.buffered() >= FLUSH_BYTES || self.flush || needs_segment {
            self.write(ctx);
        }
    }

    #[cold]
    fn write(&mut self, ctx: &mut Context<'_>) {
        if self.health.is_lost() {
            return;
        }
        self.make_segment(ctx);
        while let Some(writer) = &self.writer {
            let is_wanted = writer.buffered() >= FLUSH_BYTES || (self.flush && writer.buffered() > 0);
            if !is_wanted || !self.has_room(ctx) {
                break;
            }
            let Some(writer) = &mut self.writer else { break };
            let Some(block) = writer.take(ctx.epoch(), ctx.disk_buffer()) else { break };
            if !self.unsynced.contains(&block.segment) {
                self.unsynced.push(block.segment);
            }
            self.ask(block.segment, DiskOp::Write { at: block.at, bytes: block.bytes }, Asked::Write, ctx);
        }
        self.sync(ctx);
    }

    /// One segment is there ahead of the one that is written.
    fn make_segment(&mut self, ctx: &mut Context<'_>) {
        let Some(writer) = &self.writer else { return };
        let is_full = self.control.segments.len() >= SEGMENTS_MAX;
        if !self.making && !is_full && writer.room() < self.control.segment_bytes && ctx.now() >= self.retry_at {
            self.making = true;
            let segment = self.control.next;
            self.control.next += 1;
            // A process before this one may have begun it and died before it was listed.
            self.ask(segment, DiskOp::Remove, Asked::Remove, ctx);
            self.ask(segment, DiskOp::Allocate { bytes: self.control.segment_bytes }, Asked::Allocate(segment), ctx);
        }
    }

    fn on_made(&mut self, segment: u32, ctx: &mut Context<'_>) {
        assert!(self.making, "segment {segment} is made and was not asked for");
        let last = self.control.segments.last();
        assert!(last.is_none_or(|last| *last < segment), "segment {segment} comes behind {last:?}");
        self.making = false;
        if std::mem::take(&mut self.no_room) {
            ctx.log(format_args!("the disk has room for the log again"));
        }
        let key = self.vault.new_key();
        self.control.segments.push(segment);
        self.control.keys.set(segment, 0, key.clone());
        self.put_control(ctx);
        if let Some(writer) = &mut self.writer {
            writer.add_segment(segment, key);
        }
        self.write(ctx);
    }

    /// A global checkpoint: everything so far is to be on disk, with a mark behind it.
    pub fn save(&mut self, save: GcpSave, ctx: &mut Context<'_>) {
        if self.health.is_lost() || self.writer.is_none() {
            ctx.send(self.dih(), Kind::GcpSaveRef, |b| save.encode(b));
            return;
        }
        let GcpSave { lineage, generation, epoch, .. } = save;
        if self.control.complete.is_none() {
            (self.control.complete, self.control.base, self.control.filling) = (Some(epoch), None, 0);
            self.put_control(ctx);
        }
        self.append(&Entry::Saved { epoch, lineage, generation });
        (self.dirty, self.flush) = (false, true);
        self.saves += 1;
        self.save =
            Some(Save { save, number: self.saves, control: self.control_token, segments: Vec::new(), syncs: None });
        self.write(ctx);
    }

    fn sync(&mut self, ctx: &mut Context<'_>) {
        let Some(writer) = self.writer.as_ref().filter(|w| w.buffered() == 0) else { return };
        let sequence = writer.sequence();
        self.flush = false;
        let Some(save) = self.save.as_mut().filter(|s| s.syncs.is_none()) else { return };
        let mut segments = std::mem::take(&mut self.unsynced);
        if planted(Bug::MarkNotSynced) {
            segments.clear();
        }
        assert!(save.number == self.saves, "save {} is synced, the last one is {}", save.number, self.saves);
        save.syncs = Some((sequence, segments.len()));
        save.control = self.control_token; // the segment of the mark may be new
        let number = save.number;
        save.segments.clone_from(&segments);
        for segment in segments {
            self.ask(segment, DiskOp::Sync, Asked::Sync(number), ctx);
        }
        self.check_saved(ctx);
    }

    fn check_saved(&mut self, ctx: &mut Context<'_>) {
        let written = self.control_written;
        let is_done = |s: &mut Save| s.syncs.is_some_and(|(_, missing)| missing == 0) && s.control <= written;
        let Some(Save { save, syncs: Some((sequence, _)), .. }) = self.save.take_if(is_done) else { return };
        if let Some(writer) = &mut self.writer {
            writer.synced(sequence);
        }
        ctx.send(self.dih(), Kind::GcpSaveConf, |b| save.encode(b));
    }
    pub fn dih(&self) -> BlockRef {
        BlockRef::new(self.me.node, BlockId::Dih, 0)
    }

    fn fail(&mut self, reason: &str, ctx: &mut Context<'_>) {
        self.health.failed(reason, self.me, ctx);
        self.refuse_save(ctx);
    }
    /// What was to be synced for it may not be, though the disk may answer again.
    fn refuse_save(&mut self, ctx: &mut Context<'_>) {
        let Some(Save { save, segments, .. }) = self.save.take() else { return };
        let unsynced = |segment: &u32| !self.unsynced.contains(segment);
        let again: Vec<u32> = segments.into_iter().filter(unsynced).collect();
        self.unsynced.extend(again);
        ctx.send(self.dih(), Kind::GcpSaveRef, |b| save.encode(b));
    }
    /// The disk has answered something.
    fn answered(&mut self, ctx: &mut Context<'_>) {
        if self.health.answered(self.me, ctx) {
            self.write(ctx);
        }
    }

    pub fn tick(&mut self, ctx: &mut Context<'_>) {
        if self.health.tick(!self.asked.is_empty(), self.me, ctx) {
            self.refuse_save(ctx);
        }
        if self.control_retry_at.take_if(|at| ctx.now() >= *at).is_some() {
            self.put_control(ctx);
            if let Some(save) = &mut self.save {
                save.control = save.control.max(self.control_token);
            }
        }
        self.confirm(ctx);
        self.pump(ctx);
        self.tick_scrub(ctx);
        self.tick_hardening(ctx);
    }

    // ---- what the log is to be

    /// What was put back from the disk is where this process goes on: it is all that a full member has to have, or it is what the view says that
    /// the node has, whose lack comes as a copy. The epoch up to which it has everything.
    pub fn kept(&self, node: &ViewNode, lineage: u64) -> Option<Epoch> {
        let State::Restored(order) = &self.state else { return None };
        let stands = match (order.lineage, node.state()) {
            (0, NodeState::Up) => true,
            (of, NodeState::Recovering) => of == lineage && order.restored > 0 && order.restored == node.restored,
            _ => false,
        };
        stands.then_some(Epoch(order.restored))
    }
    /// The node is a member: it goes on with what it has put back, or begins a new log. A full member has all that the cluster has.
    fn open(&mut self, cluster: u64, node: &ViewNode, is_kept: bool, ctx: &mut Context<'_>) {
        let is_full = node.state() == NodeState::Up;
        self.control.filling = if is_full { 0 } else { node.incarnation };
        if !is_kept {
            self.give_up_all();
            self.control.id.cluster = cluster;
            self.control.void.clear();
            self.control.complete = is_full.then_some(Epoch(0));
            self.writer = Some(Writer::new(&self.control));
        }
        if !is_kept || !is_full {
            self.put_control(ctx);
        }
        self.state = State::Open;
        self.write(ctx);
    }

    /// What this node had put back is not what its primary says: its files are of no use, and it begins again without them as soon as that is on disk.
    pub fn disown(&mut self, why: String, ctx: &mut Context<'_>) {
        if self.disowned.is_none() {
            ctx.log(format_args!("{why}: what is in its files is given up"));
            (self.control.complete, self.control.base) = (None, None);
            self.put_control(ctx);
            self.disowned = Some((self.control_token, why));
        }
    }
    pub fn is_disowned(&self) -> bool {
        self.disowned.is_some()
    }

    /// What the control file on disk does not list can go, but for the file that is being written.
    pub fn remove_useless(&mut self, ctx: &mut Context<'_>) {
        let kept = self.checkpoints.file().map(Useless::Checkpoint);
        while self.control_written == self.control_token
            && self.has_room(ctx)
            && let Some(at) = self.control.useless.iter().rposition(|useless| Some(*useless) != kept)
        {
            let (number, file) = match self.control.useless.swap_remove(at) {
                Useless::Segment(number) => (number, DataFile::redo(self.me.instance, number)),
                Useless::Checkpoint(number) => (number, DataFile::checkpoint(self.me.instance, number)),
            };
            self.control.keys.forget(number);
            self.ask_file(file, DiskOp::Remove, Asked::Remove, ctx);
        }
    }
    /// Nothing that is on the disk counts.
    fn give_up_all(&mut self) {
        let control = &mut self.control;
        control.useless.extend(control.segments.drain(..).map(Useless::Segment));
        control.useless.extend(control.checkpoints.drain(..).map(|c| Useless::Checkpoint(c.file)));
        (control.start, control.base) = (Place::default(), None);
        self.checkpoints.reset();
    }

    /// Bytes of the log's segments, which may not be full, from where reading begins.
    pub fn log_bytes(&self) -> u64 {
        let end = End { segments: self.control.segments.last().copied().into_iter().collect(), ..End::default() };
        self.bytes_before(&end) + self.control.segment_bytes
    }
    /// Bytes of the log from where it begins.
    fn bytes_before(&self, end: &End) -> u64 {
        let segments = &self.control.segments;
        let whole = segments.len() - end.segments.len().min(segments.len());
        let begin = if segments.first() == Some(&self.control.start.segment) { self.control.start.at } else { 0 };
        (whole as u64 * self.control.segment_bytes + end.at).saturating_sub(begin)
    }

    // ---- what checkpoints need

    pub fn encrypts(&self) -> bool {
        self.vault.encrypts()
    }
    pub fn instance(&self) -> u8 {
        self.me.instance
    }
    /// Where the next entry is, at the earliest.
    #[inline]
    pub fn place(&self) -> Place {
        self.writer.as_ref().map_or(Place::default(), Writer::place)
    }
    /// Every block of the log up to this one is on the disk.
    pub fn synced_to(&self) -> u64 {
        self.writer.as_ref().map_or(0, Writer::synced_to)
    }
    /// Bytes that this process has written.
    pub fn written(&self) -> u64 {
        self.writer.as_ref().map_or(0, Writer::written)
    }
    /// The log goes on, and all that is here is on it.
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open) && !self.health.is_lost() && self.control.complete.is_some()
    }
    pub fn newest_turn(&self) -> u64 {
        self.control.checkpoints.last().map_or(0, |checkpoint| checkpoint.turn)
    }
    /// A file for a checkpoint, and where the log is now.
    pub fn new_checkpoint(&mut self, ctx: &mut Context<'_>) -> Option<(u32, Writer, Place)> {
        if !self.has_room(ctx) {
            return None;
        }
        let file = self.control.next;
        self.control.next += 1;
        self.control.useless.push(Useless::Checkpoint(file));
        // A process before this one may have begun it and died before it was listed.
        self.ask_file(DataFile::checkpoint(self.me.instance, file), DiskOp::Remove, Asked::Remove, ctx);
        let key = self.vault.new_key();
        self.control.keys.set(file, 0, key.clone());
        let mut writer = Writer::new(&self.control.of_checkpoint(file));
        writer.add_segment(file, key);
        Some((file, writer, self.place()))
    }
    /// The checkpoint counts, and the log begins at `start`; checkpoints before the newest `most` have no page any more that counts. How many segments go.
    pub fn begin_log_at(&mut self, checkpoint: Checkpoint, start: Place, most: usize) -> usize {
        let newest = self.newest_turn();
        assert!(newest < checkpoint.turn, "checkpoint {checkpoint:?} counts behind one of turn {newest}");
        let control = &mut self.control;
        control.useless.retain(|useless| *useless != Useless::Checkpoint(checkpoint.file));
        control.complete = control.complete.max(Some(checkpoint.epoch));
        if self.checkpoints.counted.is_none() {
            control.useless.extend(control.checkpoints.drain(..).map(|old| Useless::Checkpoint(old.file)));
        }
        control.checkpoints.push(checkpoint);
        let old = control.checkpoints.len().saturating_sub(most);
        control.useless.extend(control.checkpoints.drain(..old).map(|old| Useless::Checkpoint(old.file)));
        let gone = control.segments.iter().position(|n| *n == start.segment).unwrap_or(0);
        control.useless.extend(control.segments.drain(..gone).map(Useless::Segment));
        control.start = start;
        // Restart marks are before whatever this process has written, and reading begins behind them.
        control.void.clear();
        gone
    }

    pub(super) fn report(&mut self, ctx: &mut Context<'_>) {
        self.state = State::Found;
        let qmgr = BlockRef::new(self.me.node, BlockId::Qmgr, BlockRef::CONTROL);
        ctx.send(qmgr, Kind::RedoFoundRep, |b| encode(&self.found, b));
    }

    /// Reads on for the newest mark.
    fn look(&mut self, ctx: &mut Context<'_>) {
        loop {
            let State::Looking(reader, first) = &mut self.state else { return };
            match reader.step() {
                Step::Read { segment, at, count } => {
                    return self.ask(segment, DiskOp::Read { at, count }, Asked::Read { segment, at, count }, ctx);
                }
                Step::Entry(Entry::Saved { epoch, lineage, generation }) => {
                    let found = &mut self.found;
                    (found.saved, found.saved_lineage, found.saved_generation) = (epoch.0, lineage, generation);
                }
                Step::Entry(Entry::Restart { restored, begins }) => {
                    // What was restored had been saved; what is found of it may be in an earlier segment.
                    self.found.saved = restored.0;
                    self.found.highest = self.found.highest.max(begins.0);
                }
                Step::Entry(_) => {}
                Step::Damaged(damage) => {
                    ctx.probe("ldm: a log is damaged");
                    self.found.damage = damage.to_string();
                    return self.report(ctx);
                }
                Step::Ended => {
                    self.found.highest = self.found.highest.max(reader.highest().0).max(self.found.saved);
                    if (self.found.saved == 0 || reader.is_unproven_before()) && *first > 0 {
                        *first -= 1;
                        *reader = LogReader::new(&self.control, *first);
                        continue;
                    }
                    self.state = State::Hardening(Hardening::new(reader.unproven(harden::PIECE_BYTES)));
                    return self.harden(ctx);
                }
            }
        }
    }

    /// All that is restored is in memory: what is above is void from now on.
    pub fn restored(&mut self, end: &End, order: Restore, ctx: &mut Context<'_>) {
        let (restored, begins) = (Epoch(order.restored), Epoch(order.begins));
        let end = &self.renew_keys(end, ctx);
        let mut writer = Writer::resume(&self.control, end);
        // What was read may be in the system's memory alone, if the process that wrote it was killed: the first mark syncs it, too.
        let segments = &self.control.segments;
        let to = (segments.len() + 1 - end.segments.len().min(segments.len())).min(segments.len());
        self.unsynced = segments[to.saturating_sub(RESYNCED)..to].to_vec();
        writer.append(&Entry::Restart { restored, begins });
        self.writer = Some(writer);
        self.checkpoints.found = self.bytes_before(end);
        if order.lineage != 0 {
            // Until it is a full member again: the log is complete no more, and what it gives is this.
            (self.control.complete, self.control.base) = (None, Some((restored, order.lineage)));
        }
        self.void(restored, begins, ctx);
        (self.flush, self.state) = (true, State::Restored(order));
        self.write(ctx);
    }
    /// The process before may have written behind the end of its log what is lost, or half there: the numbers of those blocks are given again, under keys that have never had them.
    /// Where the log goes on: behind a segment in which something is not as files are to be from now on, encrypted or in the clear, and a checkpoint of everything has all such files go.
    fn renew_keys(&mut self, end: &End, ctx: &mut Context<'_>) -> End {
        let (keys, encrypts) = (&mut self.control.keys, self.vault.encrypts());
        let is_as_wanted = |segment: &u32| end.at == 0 || keys.are_all(*segment, end.at, encrypts);
        let at = if end.segments.first().is_none_or(is_as_wanted) { end.at } else { self.control.segment_bytes };
        if !planted(Bug::KeyGoesOn) {
            for (index, segment) in end.segments.iter().enumerate() {
                keys.set(*segment, if index == 0 { at } else { 0 }, self.vault.new_key());
            }
        }
        if !self.is_of_one_kind() {
            ctx.probe("ldm: files are to be encrypted, or not any more");
            self.checkpoints.force(Forced::OtherKind);
        }
        End { at, ..end.clone() }
    }
    /// All that counts is encrypted, if files are to be, or all of it is in the clear.
    pub fn is_of_one_kind(&self) -> bool {
        let Control { segments, checkpoints, keys, segment_bytes, .. } = &self.control;
        let segments = segments.iter().map(|segment| (*segment, *segment_bytes));
        let checkpoints = checkpoints.iter().map(|checkpoint| (checkpoint.file, checkpoint.bytes));
        segments.chain(checkpoints).all(|(file, bytes)| keys.are_all(file, bytes, self.vault.encrypts()))
    }
    pub fn void(&mut self, restored: Epoch, begins: Epoch, ctx: &mut Context<'_>) {
        let from = Epoch(restored.0 + 1);
        self.control.void.retain(|(known, _)| *known < from);
        self.control.void.push((from, begins));
        self.put_control(ctx);
    }
    fn check_restored(&mut self, ctx: &mut Context<'_>) {
        if let State::Restored(order) = &self.state
            && self.control_written == self.control_token
        {
            let conf = Restore { instance: self.me.instance.into(), ..order.clone() };
            ctx.send(BlockRef::new(self.me.node, BlockId::Qmgr, BlockRef::CONTROL), Kind::RestoreConf, |b| {
                encode(&conf, b)
            });
        }
    }
}

impl LocalDataManager {
    /// At the first tick of the process.
    pub(super) fn begin_redo(&mut self, ctx: &mut Context<'_>) {
        let Some(redo) = self.redo.as_mut().filter(|redo| !redo.has_begun) else { return };
        redo.has_begun = true;
        match redo.state {
            State::Looking(..) => redo.look(ctx),
            _ => redo.report(ctx),
        }
    }

    /// A view has come, the first one of this process.
    pub(super) fn open_redo(&mut self, view: &View, ctx: &mut Context<'_>) {
        let (Some(redo), Some(node)) = (&mut self.redo, view.node(self.me.node)) else { return };
        let is_full = node.state() == NodeState::Up;
        let kept = redo.kept(node, view.lineage);
        self.base = kept.filter(|_| !is_full);
        if kept.is_none() {
            // Parts of what a start from the disks would have restored, which went on without this node.
            for table in self.tables.iter_mut() {
                self.given_up.extend(table.take_fragments(|_| false));
            }
        }
        redo.open(view.cluster, node, kept.is_some(), ctx);
    }

    pub(super) fn on_save_req(&mut self, save: GcpSave, ctx: &mut Context<'_>) {
        let is_current = self.view.point() == (save.lineage, save.generation);
        match self.redo.as_mut().filter(|_| is_current) {
            Some(redo) => redo.save(save, ctx),
            None => jam!(ctx), // of a view that is not here yet, or not any more: it comes again, or never
        }
    }

    pub(super) fn on_disk_conf(&mut self, conf: &DiskConf<'_>, ctx: &mut Context<'_>) {
        let Some(redo) = &mut self.redo else { return };
        let Some((asked, _)) = redo.asked.remove(&conf.token) else { return };
        redo.answered(ctx);
        match asked {
            Asked::Write => redo.write(ctx),
            Asked::Sync(number) => {
                if let Some(Save { syncs: Some((_, missing)), .. }) = redo.save.as_mut().filter(|s| s.number == number)
                {
                    assert!(*missing > 0, "save {number} has more syncs than were asked for");
                    *missing -= 1;
                }
                redo.check_saved(ctx);
            }
            Asked::Allocate(segment) => redo.on_made(segment, ctx),
            Asked::Remove => redo.remove_useless(ctx),
            Asked::Harden => redo.on_hardened(ctx),
            Asked::Checkpoint(step) => self.on_checkpoint_step(step, ctx),
            Asked::Scrub(pass, piece) => redo.on_scrubbed(pass, piece, conf.bytes, ctx),
            Asked::Read { segment, at, count } => match &mut redo.state {
                State::Looking(reader, _) => {
                    reader.feed(segment, at, count, conf.bytes);
                    redo.look(ctx);
                }
                State::Hardening(_) => redo.on_unproven((segment, at), conf.bytes, ctx),
                State::Reading(reader, ..) => {
                    reader.feed(segment, at, count, conf.bytes);
                    self.read_files(ctx);
                }
                _ => jam!(ctx),
            },
        }
    }

    pub(super) fn on_disk_ref(&mut self, refusal: &DiskRef, ctx: &mut Context<'_>) {
        let Some(redo) = &mut self.redo else { return };
        let Some((asked, _)) = redo.asked.remove(&refusal.token) else { return };
        redo.answered(ctx);
        match asked {
            Asked::Write | Asked::Sync(_) => redo.fail(&refusal.reason, ctx),
            Asked::Allocate(_) => {
                (redo.making, redo.retry_at) = (false, ctx.now() + RETRY_NS);
                if !std::mem::replace(&mut redo.no_room, true) {
                    ctx.probe("ldm: no room for the log");
                    ctx.log(format_args!(
                        "no further segment of the log can be made, changes will be refused: {}",
                        refusal.reason
                    ));
                }
            }
            Asked::Harden => redo.on_not_hardened(&refusal.reason, ctx),
            Asked::Read { .. } => {
                let damage = format!("it cannot be read: {}", refusal.reason);
                match std::mem::replace(&mut redo.state, State::Found) {
                    State::Reading(.., order) => self.refuse_restore(damage, order, ctx),
                    State::Looking(..) | State::Hardening(_) => {
                        redo.found.damage = damage;
                        redo.report(ctx);
                    }
                    other => redo.state = other,
                }
            }
            Asked::Remove => {}
            Asked::Checkpoint(step) => redo.on_checkpoint_failed(step, &refusal.reason, ctx),
            Asked::Scrub(pass, _) => redo.on_unreadable(pass, &refusal.reason, ctx),
        }
    }

    /// The control file is written, or could not be.
    pub(super) fn on_control(&mut self, done: &FileDone, is_written: bool, ctx: &mut Context<'_>) {
        let Some(redo) = &mut self.redo else { return };
        let (done_of, asked_of) = (done.token, redo.control_token);
        assert!(done_of <= asked_of, "control {done_of} is answered, {asked_of} is the last that was asked for");
        if is_written {
            redo.control_written = redo.control_written.max(done.token);
            redo.check_saved(ctx);
            redo.check_restored(ctx);
            redo.remove_useless(ctx);
            if let Some((_, why)) = redo.disowned.take_if(|(token, _)| *token <= done.token) {
                ctx.stop_to_rejoin(&why);
            }
        } else if done.token == redo.control_token {
            // What it said before still stands; nothing counts that rests on the new content.
            ctx.probe("ldm: the control file of a log cannot be written");
            redo.control_retry_at = Some(ctx.now() + RETRY_NS);
        }
    }
}
