//! The scrubber: reads again what this instance has on disk, while all of it is still in memory.
//!
//! Bits rot, and a disk may have written something else than it said. Whoever learns that at a start has to be filled from a replica, and if the replicas' files have
//! rotted, too, the rows are gone. So a *pass* reads, once a day ([`SCRUB_NS`]), each listed checkpoint and the log up to what was synced when its turn came, and compares
//! numbers, checksums and ends with what was written. The control file is written anew at its end.
//!
//! ```text
//! at rest --due--> checkpoint, checkpoint, ..., log --all as it was written--> at rest
//!                      '--damaged, and still listed--> a checkpoint of everything is forced --it counts: nothing of before is needed--> due again, soon
//!                      '--damaged, and not listed any more: it went while it was read--> the next one; the log from its new beginning
//! ```
//!
//! **Repair** needs no replica: a checkpoint of everything makes all files of before useless ([`super::checkpoint`]), the log as far as no open transaction needs it. The pass
//! after it tells. Where no epochs become restorable, because some member has no disk, there are no checkpoints and nothing is repaired.
//!
//! **Pace**: a piece of 256 KiB at a time, at most 20 a second, so 5 MB/s. What the system has in memory of a file is forgotten first ([`DiskOp::Uncache`]), or the disk would not
//! be asked. One request is under way.
//!
//! **What dies with whom**: a pass is nothing but how far it is. It dies with the process, or when the log is closed, and the next one begins with the first file.

use apus_kernel::{Context, DataFile, DiskOp};
use apus_redo::{Checkpoint, Place, Reader, Step};

use super::redo::{Asked, Redo};

/// From the end of a pass to the next.
pub const SCRUB_NS: u64 = 24 * 3_600 * 1_000_000_000;
/// From one piece to the next.
const PAUSE_NS: u64 = 50_000_000;
/// From a repair to the pass that looks at what is there then.
const AGAIN_NS: u64 = 10_000_000_000;

/// What is read now.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Part {
    Checkpoint(Checkpoint),
    /// As it begins there, up to the block with this number.
    Log {
        start: Place,
        through: u64,
    },
}

/// One look at everything.
struct Pass {
    number: u64,
    /// Checkpoints to be read, and whether the log is.
    rest: Vec<Checkpoint>,
    log: bool,
    part: Part,
    reader: Reader,
    /// What the system had in memory of this file is forgotten.
    uncached: Option<DataFile>,
    /// A request is not answered.
    waits: bool,
    next_at: u64,
    bytes: u64,
    began_at: u64,
}

#[derive(Default)]
pub(super) struct Scrub {
    /// From one pass to the next; 0: there is none.
    every: u64,
    /// `None`: not since the log is open.
    due: Option<u64>,
    passes: u64,
    pass: Option<Box<Pass>>,
    /// What was found so far.
    damaged: u64,
}

impl Scrub {
    pub fn set_every(&mut self, ns: u64) {
        self.every = ns;
    }
    pub fn summary(&self) -> String {
        let pass = self.pass.as_ref().map(|pass| (pass.number, pass.part, pass.bytes));
        format!("scrubber (pass, of, bytes) {pass:?}, {} passes, {} damaged", self.passes, self.damaged)
    }
}

impl Part {
    fn file(self, instance: u8, segment: u32) -> DataFile {
        match self {
            Part::Checkpoint(_) => DataFile::checkpoint(instance, segment),
            Part::Log { .. } => DataFile::redo(instance, segment),
        }
    }
}

impl Redo {
    pub fn tick_scrub(&mut self, ctx: &mut Context<'_>) {
        if self.scrub.every == 0 || !self.is_open() {
            (self.scrub.pass, self.scrub.due) = (None, None);
            return;
        }
        let now = ctx.now();
        let due = *self.scrub.due.get_or_insert(now + self.scrub.every);
        match &self.scrub.pass {
            Some(pass) if pass.waits || now < pass.next_at => {}
            Some(_) => self.scrub_on(ctx),
            None if now >= due && !self.checkpoints.is_forced() => self.begin_pass(ctx),
            None => {}
        }
    }

    fn begin_pass(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.now();
        self.scrub.passes += 1;
        let (part, reader) = self.log_part();
        self.scrub.pass = Some(Box::new(Pass {
            number: self.scrub.passes,
            rest: self.control.checkpoints.iter().rev().copied().collect(),
            log: true,
            part,
            reader,
            uncached: None,
            waits: false,
            next_at: now,
            bytes: 0,
            began_at: now,
        }));
        self.next_part(ctx);
    }

    fn log_part(&self) -> (Part, Reader) {
        let part = Part::Log { start: self.control.start, through: self.synced_to() };
        (part, Reader::new(&self.control, 0))
    }

    /// On with the next file that is listed, then the log, then to the end.
    fn next_part(&mut self, ctx: &mut Context<'_>) {
        let Some(mut pass) = self.scrub.pass.take() else { return };
        let is_listed = |c: &Checkpoint| self.control.checkpoints.contains(c);
        while pass.rest.last().is_some_and(|c| !is_listed(c)) {
            pass.rest.pop();
        }
        if let Some(checkpoint) = pass.rest.pop() {
            let reader = Reader::new(&self.control.of_checkpoint(checkpoint.file), 0);
            (pass.part, pass.reader) = (Part::Checkpoint(checkpoint), reader);
        } else if std::mem::take(&mut pass.log) {
            (pass.part, pass.reader) = self.log_part();
        } else {
            return self.end_pass(&pass, ctx);
        }
        self.scrub.pass = Some(pass);
    }

    fn end_pass(&mut self, pass: &Pass, ctx: &mut Context<'_>) {
        ctx.probe("ldm: what is on disk was read again");
        let (mib, seconds) = (pass.bytes >> 20, (ctx.now() - pass.began_at) / 1_000_000_000);
        ctx.log(format_args!("scrub: {mib} MiB on disk are as they were written, read in {seconds} s"));
        self.put_control(ctx);
        self.scrub.due = Some(ctx.now() + self.scrub.every);
    }

    /// Looks at what was read, and asks for the next piece.
    fn scrub_on(&mut self, ctx: &mut Context<'_>) {
        let (has_room, instance) = (self.has_room(ctx), self.instance());
        let Some(pass) = &mut self.scrub.pass else { return };
        let through = match pass.part {
            Part::Log { through, .. } => through,
            Part::Checkpoint(_) => u64::MAX,
        };
        let why = loop {
            if pass.reader.sequence() >= through {
                return self.next_part(ctx);
            }
            match (pass.reader.step(), pass.part) {
                (Step::Entry(_), _) => pass.reader.pass_over(),
                (Step::Read { .. }, _) if !has_room => return,
                (Step::Read { segment, at, count }, part) => {
                    let file = part.file(instance, segment);
                    let is_new = pass.uncached.replace(file) != Some(file);
                    let (op, piece) = match is_new {
                        true => (DiskOp::Uncache, None),
                        false => (DiskOp::Read { at, count }, Some((segment, at, count))),
                    };
                    pass.waits = true;
                    let asked = Asked::Scrub(pass.number, piece);
                    return self.ask_file(file, op, asked, ctx);
                }
                (Step::Ended, Part::Checkpoint(checkpoint)) => match checkpoint.check(&pass.reader.end()) {
                    Ok(()) => return self.next_part(ctx),
                    Err(why) => break why,
                },
                (Step::Ended, Part::Log { .. }) => {
                    break format!("it ends with block {} of {through}", pass.reader.sequence());
                }
                (Step::Damaged(damage), _) => break damage.to_string(),
            }
        };
        self.judge(&why, ctx);
    }

    /// The disk has answered.
    pub fn on_scrubbed(&mut self, number: u64, piece: Option<(u32, u64, u32)>, bytes: &[u8], ctx: &mut Context<'_>) {
        let Some(pass) = self.scrub.pass.as_mut().filter(|pass| pass.number == number) else { return };
        pass.waits = false;
        let Some((segment, at, count)) = piece else { return };
        assert!(bytes.len() <= count as usize, "{} bytes were read of {count}", bytes.len());
        pass.next_at = ctx.now() + PAUSE_NS;
        pass.bytes += bytes.len() as u64;
        pass.reader.feed(segment, at, count, bytes);
    }

    pub fn on_unreadable(&mut self, number: u64, why: &str, ctx: &mut Context<'_>) {
        if self.scrub.pass.as_ref().is_some_and(|pass| pass.number == number) {
            self.judge(why, ctx);
        }
    }

    /// What was read is not what was written: if it is still there to be read at a start, it is made useless.
    fn judge(&mut self, why: &str, ctx: &mut Context<'_>) {
        let Some(pass) = &mut self.scrub.pass else { return };
        let counts = match pass.part {
            Part::Checkpoint(checkpoint) => self.control.checkpoints.contains(&checkpoint),
            Part::Log { start, .. } => self.control.start == start,
        };
        if !counts {
            pass.log |= matches!(pass.part, Part::Log { .. });
            return self.next_part(ctx);
        }
        self.scrub.damaged += 1;
        self.scrub.pass = None;
        ctx.probe("ldm: what is on disk is damaged");
        ctx.log(format_args!(
            "scrub: {why}. All of it is in memory, so a checkpoint of everything is written, and what is damaged goes"
        ));
        self.write_all_anew(ctx);
    }

    /// A checkpoint of everything counts, which was forced.
    pub fn scrub_again(&mut self, file: u32, ctx: &mut Context<'_>) {
        ctx.probe("ldm: damage on disk is repaired");
        ctx.log(format_args!("scrub: checkpoint {file} has everything, what was damaged is not needed any more"));
        self.scrub.due = Some(ctx.now() + AGAIN_NS.min(self.scrub.every));
    }
}
