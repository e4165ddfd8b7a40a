//! Files that blocks write in pieces: logs, checkpoints. What a block asks by [`crate::Context::disk`], and what the worker counts of it.
//!
//! A request goes to the executor with its buffer. What became of it comes back with the request itself ([`DiskDone`]), so that the buffer of a
//! write serves the next one: in steady state nothing is allocated.
//!
//! **Order.** Requests of one file are done and answered in the order of asking, those of different files in any. One that fails holds up none
//! of those behind it.
//!
//! **What is durable.** [`DiskOp::Sync`] makes durable what was written to the file and answered, its length and its name. A sync that fails may have
//! lost what was written since the last one, and the next one says "done" all the same: the system forgets what it could not write. So a
//! file of which a sync has failed is to be given up. A removal is not synced: after a loss of power the file may be there again.
//!
//! **What dies with whom.** A process that dies leaves of each file's requests under way the first ones done and the others not.
//! **Limits**: [`crate::limits`]; whoever asks counts with [`crate::Context::disk_under_way`].

use std::fmt;

use apus_signal::BlockRef;

use crate::limits::{DISK_BUFFER_BYTES_KEPT, DISK_BUFFERS_KEPT, DISK_BYTES_MAX, DISK_PIECE_MAX, DISK_REQUESTS_MAX};

#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum DataFileKind {
    /// A segment of an instance's log.
    Redo,
    /// A part of a checkpoint of an instance's fragments.
    Checkpoint,
}

/// A file of this node's data directory that is written in pieces: "redo-3-17.log", "lcp-3-17.data".
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DataFile {
    pub kind: DataFileKind,
    pub instance: u8,
    pub number: u32,
}

impl fmt::Display for DataFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (instance, number) = (self.instance, self.number);
        match self.kind {
            DataFileKind::Redo => write!(f, "redo-{instance}-{number}.log"),
            DataFileKind::Checkpoint => write!(f, "lcp-{instance}-{number}.data"),
        }
    }
}

impl DataFile {
    pub fn redo(instance: u8, number: u32) -> DataFile {
        DataFile { kind: DataFileKind::Redo, instance, number }
    }
    pub fn checkpoint(instance: u8, number: u32) -> DataFile {
        DataFile { kind: DataFileKind::Checkpoint, instance, number }
    }
    /// The file with this name, if that is one of a data file.
    pub fn parse(name: &str) -> Option<DataFile> {
        let (kind, rest) = match name.strip_prefix("redo-").and_then(|rest| rest.strip_suffix(".log")) {
            Some(rest) => (DataFileKind::Redo, rest),
            None => (DataFileKind::Checkpoint, name.strip_prefix("lcp-")?.strip_suffix(".data")?),
        };
        let (instance, number) = rest.split_once('-')?;
        let file = DataFile { kind, instance: instance.parse().ok()?, number: number.parse().ok()? };
        // "redo-03-+7.log" is none.
        (file.to_string() == name).then_some(file)
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DiskOp {
    /// Makes the file if it is not there; what lies between its end and `at` is zeros.
    Write { at: u64, bytes: Vec<u8> },
    /// Makes the file if it is not there, and reserves so many bytes on the disk for it: writes inside find room. Its length and content do not change
    /// but for zeros.
    Allocate { bytes: u64 },
    /// Past the file's end there are fewer bytes or none; a file that is not there has none.
    Read { at: u64, count: u32 },
    /// What was written, the length and the name are durable. Of a file that is not there: done.
    Sync,
    /// Done, too, if there is none.
    Remove,
    /// What the system keeps in memory of what is on the disk is forgotten, as far as it likes, so that reads show what the disk has.
    Uncache,
}

impl DiskOp {
    fn bytes(&self) -> usize {
        match self {
            DiskOp::Write { bytes, .. } => bytes.len(),
            DiskOp::Read { count, .. } => *count as usize,
            DiskOp::Allocate { .. } | DiskOp::Sync | DiskOp::Remove | DiskOp::Uncache => 0,
        }
    }
}

/// Why a request was not done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskFailure {
    /// There is no room.
    pub full: bool,
    pub reason: String,
}

/// What became of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskDone {
    pub asker: BlockRef,
    pub token: u64,
    /// As it was asked.
    pub op: DiskOp,
    /// What was read.
    pub outcome: Result<Vec<u8>, DiskFailure>,
}

/// A worker's side of it.
#[derive(Default)]
pub(crate) struct Disk {
    /// The executor has a directory for this node.
    pub is_there: bool,
    requests: usize,
    bytes: usize,
    buffers: Vec<Vec<u8>>,
    buffer_bytes: usize,
}

impl Disk {
    pub fn under_way(&self) -> (usize, usize) {
        (self.requests, self.bytes)
    }
    pub fn begin(&mut self, file: DataFile, op: &DiskOp) {
        let bytes = op.bytes();
        self.requests += 1;
        self.bytes += bytes;
        assert!(
            bytes <= DISK_PIECE_MAX && self.requests <= DISK_REQUESTS_MAX && self.bytes <= DISK_BYTES_MAX,
            "{file}: {bytes} bytes in one request, {} in {} requests under way",
            self.bytes,
            self.requests
        );
    }
    pub fn end(&mut self, op: DiskOp) {
        self.bytes -= op.bytes();
        self.requests -= 1;
        if let DiskOp::Write { bytes, .. } = op {
            self.keep(bytes);
        }
    }
    fn keep(&mut self, mut buffer: Vec<u8>) {
        let bytes = self.buffer_bytes + buffer.capacity();
        if self.buffers.len() < DISK_BUFFERS_KEPT && bytes <= DISK_BUFFER_BYTES_KEPT {
            buffer.clear();
            self.buffer_bytes = bytes;
            self.buffers.push(buffer);
        }
    }
    pub fn buffer(&mut self) -> Vec<u8> {
        let buffer = self.buffers.pop().unwrap_or_default();
        self.buffer_bytes -= buffer.capacity();
        buffer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for file in [DataFile::redo(0, 1), DataFile { kind: DataFileKind::Checkpoint, instance: 255, number: u32::MAX }]
        {
            assert_eq!(DataFile::parse(&file.to_string()), Some(file));
        }
        let others =
            ["redo-3.ctl", "redo-03-1.log", "redo-3-+1.log", "redo-256-1.log", "lcp-1-1.log", "redo-1-1.log.new"];
        others.iter().for_each(|name| assert_eq!(DataFile::parse(name), None, "{name}"));
    }

    #[test]
    fn buffers_come_back_and_what_is_under_way_is_counted() {
        let mut disk = Disk::default();
        let op = DiskOp::Write { at: 0, bytes: vec![7; 5000] };
        disk.begin(DataFile::redo(0, 1), &op);
        let read = DiskOp::Read { at: 0, count: 3 };
        disk.begin(DataFile::redo(0, 2), &read);
        assert_eq!(disk.under_way(), (2, 5003));
        disk.end(op);
        disk.end(read);
        assert_eq!(disk.under_way(), (0, 0));
        let buffer = disk.buffer();
        assert!(buffer.is_empty() && buffer.capacity() >= 5000);
        assert_eq!(disk.buffer().capacity(), 0, "each is given once");
    }

    #[test]
    #[should_panic(expected = "under way")]
    fn who_asks_for_too_much_is_wrong() {
        let mut disk = Disk::default();
        (0..=DISK_REQUESTS_MAX).for_each(|_| disk.begin(DataFile::redo(0, 1), &DiskOp::Sync));
    }

    #[test]
    fn a_link_brings_no_answers_of_the_disk() {
        use apus_signal::Kind;
        let nodes = [apus_types::NodeId(2), apus_types::NodeId(apus_types::NodeId::MGMT_BASE + 1)];
        for kind in [Kind::DiskConf, Kind::DiskRef] {
            assert!(nodes.iter().all(|node| !crate::links::may_say(*node, kind)), "{kind:?}");
        }
    }
}
