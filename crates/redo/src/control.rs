//! The control file of a log: what its segments are, where in them it begins, which checkpoints are before it, from when on all of that is complete, which epochs in it are void, and
//! the keys of those files that are encrypted.
//!
//! Replaced as a whole and synced, before anything rests on what it says: a segment is listed before a mark in it counts, an epoch is void before
//! the first commit behind a restart.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use apus_signal::{
    DecodeError, Reader,
    codec::Put,
    file::{seal, unseal},
};
use apus_types::{Epoch, NodeId};

use crate::{
    End, LogId, LogKind, Place, Vault,
    key::{Keys, NoKey, Wrapped},
};

const MAGIC: [u8; 8] = *b"APUSRDC1";
/// Of this file. Version 1 knew no checkpoints; it is read as one that has none. Version 2 knew no base, version 3 not who is being filled, version 4 no keys.
const VERSION: u16 = 5;
/// Most checkpoints of a list.
pub const CHECKPOINTS_MAX: usize = 64;
/// A checkpoint is one segment, which is never full.
const CHECKPOINT_BYTES_MAX: u64 = 1 << 40;

/// How many logs a data directory has, and how their control files are named: "redo-1.ctl" as it was founded, "redo-1-of-2-7.ctl" the second of two since the
/// number of workers has been changed. A layout counts as soon as all of its control files are there, and ends those with lower numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Layout {
    /// Number of the change; 0: as it was founded.
    pub change: u32,
    pub workers: u8,
}

impl Layout {
    pub fn control_file(self, instance: u8) -> String {
        let Layout { change, workers } = self;
        match change {
            0 => format!("redo-{instance}.ctl"),
            _ => format!("redo-{instance}-of-{workers}-{change}.ctl"),
        }
    }
    /// Of the control file with this name, and the instance; how many workers there were at first the name does not tell (0).
    pub fn parse(name: &str) -> Option<(Layout, u8)> {
        let mut words = name.strip_prefix("redo-")?.strip_suffix(".ctl")?.split('-');
        let instance = words.next()?.parse().ok()?;
        let layout = match (words.next(), words.next(), words.next(), words.next()) {
            (None, ..) => Layout::default(),
            (Some("of"), Some(workers), Some(change), None) => {
                Layout { change: change.parse().ok()?, workers: workers.parse().ok()? }
            }
            _ => return None,
        };
        // "redo-03.ctl" is none.
        (layout.control_file(instance) == name).then_some((layout, instance))
    }
    /// Which of these files count; `known`: workers of the newest view that the directory knows, or 0.
    pub fn current<'a>(names: impl Iterator<Item = &'a str>, known: u8) -> Option<Layout> {
        let mut layouts: BTreeMap<Layout, BTreeSet<u8>> = BTreeMap::new();
        for (layout, instance) in names.filter_map(Layout::parse) {
            layouts.entry(layout).or_default().insert(instance);
        }
        let is_whole = |(layout, logs): &(Layout, BTreeSet<u8>)| (0..layout.workers).all(|i| logs.contains(&i));
        match layouts.into_iter().rev().find(is_whole)? {
            // One that is missing was never there, and no mark counts without it: the view may know of more.
            (Layout { change: 0, .. }, logs) => {
                let workers = logs.last()?.saturating_add(1).max(known);
                Some(Layout { change: 0, workers })
            }
            (layout, _) => Some(layout),
        }
    }
}

/// A file of a checkpoint that is complete and synced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Checkpoint {
    pub file: u32,
    /// Number in turn of the valid ones: which pages it has that had not changed.
    pub turn: u64,
    /// No row in it is of a later epoch.
    pub epoch: Epoch,
    pub bytes: u64,
    /// Number and checksum of its last block.
    pub sequence: u64,
    pub checksum: u64,
}

impl Checkpoint {
    /// The file has been read, and its blocks end here.
    ///
    /// # Errors
    /// For people: it is not what was written.
    pub fn check(&self, end: &End) -> Result<(), String> {
        let Checkpoint { file, bytes, sequence, checksum, .. } = *self;
        match (end.at, end.sequence, end.previous) == (bytes, sequence, checksum) {
            true => Ok(()),
            false => Err(format!("checkpoint {file} is damaged: it ends at byte {} of {bytes}", end.at)),
        }
    }
}

/// A file that is not listed any more and may still be there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Useless {
    Segment(u32),
    Checkpoint(u32),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Control {
    pub id: LogId,
    /// Bytes of each segment.
    pub segment_bytes: u64,
    /// Numbers of the segments, in the order of the log.
    pub segments: Vec<u32>,
    /// For the next segment: numbers are never used again.
    pub next: u32,
    /// The log, with nothing before it, gives every state from this epoch on; `None`: not yet, the node is being filled.
    pub complete: Option<Epoch>,
    /// The node is being filled with what it has not: it has put back everything up to this epoch, as this lineage had it.
    pub base: Option<(Epoch, u64)>,
    /// Incarnation of the process that is being filled, or was, and has saved nothing in this log since; 0: none, or nobody knows.
    pub filling: u64,
    /// Epochs of suffixes that were given up: from the first on, and below the second, as far as they are before the restart mark that says so.
    pub void: Vec<(Epoch, Epoch)>,
    /// Where in the first segment reading begins, if that is the segment it names.
    pub start: Place,
    /// Oldest first: of a page counts what the newest one has.
    pub checkpoints: Vec<Checkpoint>,
    pub useless: Vec<Useless>,
    /// Of segments and checkpoints that are encrypted.
    pub keys: Keys,
}

/// Why there is no control file to be had.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unread {
    /// A file that it lists has a key that is wrapped under this master key, which is not here.
    NoKey(u64),
    /// For people ("the control file ..."): it is damaged, or of a later release.
    Other(String),
}

impl From<DecodeError> for Unread {
    fn from(_: DecodeError) -> Unread {
        Unread::Other("does not hold what it should".to_owned())
    }
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unread::NoKey(master) => {
                write!(f, "lists encrypted files, and needs disk key {}", crate::key_name(*master))
            }
            Unread::Other(what) => f.write_str(what),
        }
    }
}

impl Control {
    pub fn empty(id: LogId, segment_bytes: u64) -> Control {
        Control {
            id,
            segment_bytes,
            segments: Vec::new(),
            next: 1,
            complete: None,
            base: None,
            filling: 0,
            void: Vec::new(),
            start: Place::default(),
            checkpoints: Vec::new(),
            useless: Vec::new(),
            keys: Keys::default(),
        }
    }
    /// To write or read this file of a checkpoint as a log.
    pub fn of_checkpoint(&self, file: u32) -> Control {
        let id = LogId { kind: LogKind::Checkpoint, ..self.id };
        Control { segments: vec![file], keys: self.keys.only(file), ..Control::empty(id, CHECKPOINT_BYTES_MAX) }
    }
    /// The name of a log's control file.
    pub fn is_file_name(name: &str) -> bool {
        Layout::parse(name).is_some()
    }
    fn lists(&self, file: u32) -> bool {
        self.segments.contains(&file) || self.checkpoints.iter().any(|checkpoint| checkpoint.file == file)
    }
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        body.put_u16(VERSION);
        body.put_u64(self.id.cluster);
        body.put_u16(self.id.node.0);
        body.put_u8(self.id.instance);
        body.put_u64(self.segment_bytes);
        body.put_u32(self.next);
        body.put_u8(u8::from(self.complete.is_some()));
        body.put_u64(self.complete.unwrap_or_default().0);
        body.put_u32(self.segments.len() as u32);
        self.segments.iter().for_each(|n| body.put_u32(*n));
        body.put_u32(self.void.len() as u32);
        for (from, to) in &self.void {
            body.put_u64(from.0);
            body.put_u64(to.0);
        }
        let Place { segment, at, sequence, previous } = self.start;
        body.put_u32(segment);
        [at, sequence, previous].into_iter().for_each(|word| body.put_u64(word));
        body.put_u32(self.checkpoints.len() as u32);
        for Checkpoint { file, turn, epoch, bytes, sequence, checksum } in &self.checkpoints {
            body.put_u32(*file);
            [*turn, epoch.0, *bytes, *sequence, *checksum].into_iter().for_each(|word| body.put_u64(word));
        }
        body.put_u32(self.useless.len() as u32);
        for useless in &self.useless {
            let (kind, number) = match *useless {
                Useless::Segment(number) => (LogKind::Redo, number),
                Useless::Checkpoint(number) => (LogKind::Checkpoint, number),
            };
            body.put_u8(kind as u8);
            body.put_u32(number);
        }
        let (epoch, lineage) = self.base.unwrap_or_default();
        [epoch.0, lineage, self.filling].into_iter().for_each(|word| body.put_u64(word));
        let keys: Vec<_> = self.keys.all().filter(|((file, _), _)| self.lists(*file)).collect();
        body.put_u32(keys.len() as u32);
        for ((file, from), key) in keys {
            body.put_u32(file);
            body.put_u64(from);
            body.put_u8(u8::from(key.is_some()));
            if let Some(key) = key {
                key.0.wrap().encode(&mut body);
            }
        }
        seal(MAGIC, &body)
    }

    /// `vault`: has the keys of what it lists.
    ///
    /// # Errors
    /// See [`Unread`].
    pub fn decode(content: &[u8], vault: &Vault) -> Result<Control, Unread> {
        let other = |what: &str| Unread::Other(what.to_owned());
        let body = unseal(MAGIC, content).map_err(other)?;
        let mut r = Reader::new(body);
        let version = r.u16().map_err(|_| other("is cut off"))?;
        if !(1..=VERSION).contains(&version) {
            return Err(Unread::Other(format!("has version {version}, this release reads {VERSION}")));
        }
        Self::decode_fields(&mut r, version, vault)
    }

    fn decode_fields(r: &mut Reader<'_>, version: u16, vault: &Vault) -> Result<Control, Unread> {
        let id = LogId { cluster: r.u64()?, node: NodeId(r.u16()?), instance: r.u8()?, kind: LogKind::Redo };
        let segment_bytes = r.u64()?;
        let next = r.u32()?;
        let complete = (r.u8()? != 0, r.epoch()?);
        let count = self::count(r, 4)?;
        let segments = (0..count).map(|_| r.u32()).collect::<Result<Vec<_>, _>>()?;
        let count = self::count(r, 16)?;
        let void = (0..count).map(|_| Ok((r.epoch()?, r.epoch()?))).collect::<Result<Vec<_>, DecodeError>>()?;
        let complete = complete.0.then_some(complete.1);
        let mut control = Control { segments, next, complete, void, ..Control::empty(id, segment_bytes) };
        if version > 1 {
            control.decode_checkpoints(r)?;
        }
        if version > 2 {
            control.base = Some((r.epoch()?, r.u64()?)).filter(|(epoch, _)| epoch.0 > 0);
        }
        if version > 3 {
            control.filling = r.u64()?;
        }
        if version > 4 {
            control.decode_keys(r, vault)?;
        }
        r.end()?;
        Ok(control)
    }

    fn decode_keys(&mut self, r: &mut Reader<'_>, vault: &Vault) -> Result<(), Unread> {
        for _ in 0..self::count(r, 13)? {
            let (file, from) = (r.u32()?, r.u64()?);
            let key = match r.u8()? {
                0 => None,
                1 => Some(vault.unwrap(&Wrapped::decode(r)?).map_err(|why| match why {
                    NoKey::Unknown(master) => Unread::NoKey(master),
                    NoKey::Wrong => Unread::Other("has a key that its disk key did not wrap".to_owned()),
                })?),
                _ => return Err(DecodeError.into()),
            };
            self.keys.set(file, from, key);
        }
        Ok(())
    }

    fn decode_checkpoints(&mut self, r: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.start = Place { segment: r.u32()?, at: r.u64()?, sequence: r.u64()?, previous: r.u64()? };
        if self.start.sequence == u64::MAX {
            return Err(DecodeError); // none could follow it
        }
        let count = self::count(r, 44)?.min(CHECKPOINTS_MAX + 1);
        for _ in 0..count {
            let (file, turn, epoch) = (r.u32()?, r.u64()?, r.epoch()?);
            let (bytes, sequence, checksum) = (r.u64()?, r.u64()?, r.u64()?);
            self.checkpoints.push(Checkpoint { file, turn, epoch, bytes, sequence, checksum });
        }
        for _ in 0..self::count(r, 5)? {
            self.useless.push(match (r.u8()?, r.u32()?) {
                (0, number) => Useless::Segment(number),
                (1, number) => Useless::Checkpoint(number),
                _ => return Err(DecodeError),
            });
        }
        Ok(())
    }
}

/// Of a list whose elements have so many bytes: not more than there are.
fn count(r: &mut Reader<'_>, bytes: usize) -> Result<usize, DecodeError> {
    let count = r.u32()? as usize;
    if count.saturating_mul(bytes) <= r.rest().len() { Ok(count) } else { Err(DecodeError) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_counts_when_all_of_its_logs_are_there() {
        let current = |names: &[&str], known| Layout::current(names.iter().copied(), known);
        let layout = |change, workers| Some(Layout { change, workers });
        assert_eq!(current(&["redo-0-1.log", "view", "redo-0-of-2.ctl", "redo-00.ctl"], 2), None);
        assert_eq!(current(&["redo-0.ctl", "redo-1.ctl"], 0), layout(0, 2));
        assert_eq!(current(&["redo-0.ctl"], 2), layout(0, 2), "the other one was never written");
        assert_eq!(current(&["redo-0.ctl", "redo-1.ctl"], 1), layout(0, 2));
        let first = ["redo-0.ctl", "redo-1.ctl", "redo-0-of-3-1.ctl", "redo-2-of-3-1.ctl"];
        assert_eq!(current(&first, 2), layout(0, 2), "one of three is not there");
        let second = [&first[..], &["redo-1-of-3-1.ctl", "redo-0-of-2-2.ctl"]].concat();
        assert_eq!(current(&second, 2), layout(1, 3));
        assert_eq!(current(&[&second[2..], &["redo-1-of-2-2.ctl"]].concat(), 3), layout(2, 2));
        for layout in [Layout { change: 0, workers: 0 }, Layout { change: 7, workers: 255 }] {
            assert_eq!(Layout::parse(&layout.control_file(9)), Some((layout, 9)));
        }
    }
}
