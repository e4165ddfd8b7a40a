//! The control file of a log: what its segments are, from when on it is complete, and which epochs in it are void.
//!
//! Replaced as a whole and synced, before anything rests on what it says: a segment is listed before a mark in it counts, an epoch is void before
//! the first commit behind a restart.

use apus_signal::{
    DecodeError, Reader,
    codec::Put,
    file::{seal, unseal},
};
use apus_types::{Epoch, NodeId};

use crate::{LogId, VERSION};

const MAGIC: [u8; 8] = *b"APUSRDC1";

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
    /// Epochs of suffixes that were given up: from the first on, and below the second.
    pub void: Vec<(Epoch, Epoch)>,
}

impl Control {
    pub fn empty(id: LogId, segment_bytes: u64) -> Control {
        Control { id, segment_bytes, segments: Vec::new(), next: 1, complete: None, void: Vec::new() }
    }
    pub fn file_name(instance: u8) -> String {
        format!("redo-{instance}.ctl")
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
        seal(MAGIC, &body)
    }

    /// # Errors
    /// For people ("the control file ..."): it is damaged, or of a later release.
    pub fn decode(content: &[u8]) -> Result<Control, String> {
        let body = unseal(MAGIC, content)?;
        let mut r = Reader::new(body);
        let version = r.u16().map_err(|_| "is cut off")?;
        if version != VERSION {
            return Err(format!("has version {version}, this release reads {VERSION}"));
        }
        Self::decode_fields(&mut r).map_err(|_| "does not hold what it should".to_owned())
    }

    fn decode_fields(r: &mut Reader<'_>) -> Result<Control, DecodeError> {
        let id = LogId { cluster: r.u64()?, node: NodeId(r.u16()?), instance: r.u8()? };
        let segment_bytes = r.u64()?;
        let next = r.u32()?;
        let complete = (r.u8()? != 0, r.epoch()?);
        let count = self::count(r, 4)?;
        let segments = (0..count).map(|_| r.u32()).collect::<Result<Vec<_>, _>>()?;
        let count = self::count(r, 16)?;
        let void = (0..count).map(|_| Ok((r.epoch()?, r.epoch()?))).collect::<Result<Vec<_>, DecodeError>>()?;
        r.end()?;
        Ok(Control { id, segment_bytes, segments, next, complete: complete.0.then_some(complete.1), void })
    }
}

/// Of a list whose elements have so many bytes: not more than there are.
fn count(r: &mut Reader<'_>, bytes: usize) -> Result<usize, DecodeError> {
    let count = r.u32()? as usize;
    if count.saturating_mul(bytes) <= r.rest().len() { Ok(count) } else { Err(DecodeError) }
}
