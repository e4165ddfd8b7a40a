//! Packet framing: three bytes of length, one of sequence, at most 16 MiB - 1 of payload per physical packet.
//!
//! [`PacketReader`] owns a connection's input buffer and yields *logical* packets as ranges of it; the parts of a long
//! one are joined in place. The buffer grows only with bytes that have arrived, never with a claimed length, and goes
//! back to its resting size when it runs empty. [`PacketBuffer`] owns the output: a payload is appended behind a
//! placeholder header, which is patched when the packet ends; a payload of 16 MiB or more is split then.

#[cfg(test)]
mod tests;

use std::ops::Range;

use super::{
    constants::{PACKET_HEADER_BYTES, PACKET_PAYLOAD_MAX},
    error::SqlError,
};

/// Bytes of input buffer a connection holds while idle: ten thousand idle connections must stay cheap.
const INPUT_REST_BYTES: usize = 4 << 10;
/// Input buffers above this size are given back once they run empty.
const INPUT_KEEP_BYTES: usize = 64 << 10;
/// Bytes of output buffer a connection starts with.
const OUTPUT_REST_BYTES: usize = 4 << 10;
/// Output buffers above this size are given back when their connection goes idle.
const OUTPUT_KEEP_BYTES: usize = 64 << 10;
/// Output buffers above this size, grown by a huge row, are given back even in the middle of a result.
const OUTPUT_STREAM_BYTES: usize = 2 << 20;

/// Why the input stream cannot go on. The connection ends after the error was reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameError {
    /// A logical packet longer than the limit.
    TooLarge,
    /// The parts of one logical packet are not numbered consecutively.
    OutOfOrder,
}

impl From<FrameError> for SqlError {
    fn from(error: FrameError) -> SqlError {
        match error {
            FrameError::TooLarge => SqlError::packet_too_large(),
            FrameError::OutOfOrder => SqlError::new(1156, b"08S01", "Got packets out of order"),
        }
    }
}

/// One logical packet inside a [`PacketReader`]'s buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// Where the payload is; give it to [`PacketReader::payload`].
    pub payload: Range<usize>,
    /// Sequence number of the last part; the answer starts one above.
    pub sequence: u8,
}

/// A connection's input buffer and the packets in it.
#[derive(Debug)]
pub struct PacketReader {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    max_allowed_packet: usize,
    last: Packet,
}

impl PacketReader {
    /// The payload of one logical packet is shorter than `max_allowed_packet`, as MySQL has it.
    pub fn new(max_allowed_packet: usize) -> PacketReader {
        let last = Packet { payload: 0..0, sequence: 0 };
        PacketReader { buffer: vec![0; INPUT_REST_BYTES], start: 0, end: 0, max_allowed_packet, last }
    }

    /// Changes the limit, which is smaller before a client has authenticated.
    pub fn set_max_allowed_packet(&mut self, bytes: usize) {
        self.max_allowed_packet = bytes;
    }

    /// Free space to read into, never empty. Call only when [`next_packet`](Self::next_packet) gave none.
    pub fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
            if self.buffer.len() > INPUT_KEEP_BYTES {
                self.buffer = vec![0; INPUT_REST_BYTES];
            }
        } else if self.end == self.buffer.len() {
            if self.start > 0 {
                self.buffer.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
            }
            // Doubling keeps at most as much free as has arrived; the limit refuses packets before it grows further.
            if self.end * 2 > self.buffer.len() {
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
        }
        &mut self.buffer[self.end..]
    }

    /// The caller put `count` bytes at the front of [`space`](Self::space).
    pub fn filled(&mut self, count: usize) {
        assert!(count <= self.buffer.len() - self.end, "more bytes read than there was space");
        self.end += count;
    }

    /// Bytes that arrived and are not yet consumed.
    pub fn buffered(&self) -> usize {
        self.end - self.start
    }

    /// What has come behind the packet taken last, which nobody else gets: the client speaks another language from there on.
    pub fn take_rest(&mut self) -> Vec<u8> {
        let rest = self.buffer[self.start..self.end].to_vec();
        (self.start, self.end) = (0, 0);
        rest
    }

    /// What [`take_rest`](Self::take_rest) would take.
    pub fn rest(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Somebody else has read on behind the packet taken last: this has come since, in place of what was here.
    pub fn replace_rest(&mut self, bytes: &[u8]) {
        (self.start, self.end) = (0, 0);
        if self.buffer.len() < bytes.len() {
            self.buffer.resize(bytes.len().next_power_of_two(), 0);
        }
        self.buffer[..bytes.len()].copy_from_slice(bytes);
        self.end = bytes.len();
    }

    /// Consumes the next complete logical packet, or says that more bytes are needed.
    #[inline]
    pub fn next_packet(&mut self) -> Result<Option<Packet>, FrameError> {
        let Some((length, sequence)) = self.header_at(self.start) else { return Ok(None) };
        if length >= self.max_allowed_packet {
            return Err(FrameError::TooLarge);
        }
        if length == PACKET_PAYLOAD_MAX {
            return self.next_split_packet();
        }
        let from = self.start + PACKET_HEADER_BYTES;
        if length > self.end - from {
            return Ok(None);
        }
        self.start = from + length;
        self.last = Packet { payload: from..from + length, sequence };
        Ok(Some(self.last.clone()))
    }

    /// The packet taken last.
    pub fn last_packet(&self) -> Packet {
        self.last.clone()
    }

    /// Payload of a packet just taken; valid until [`space`](Self::space) is called.
    pub fn payload(&self, packet: &Packet) -> &[u8] {
        &self.buffer[packet.payload.clone()]
    }

    fn header_at(&self, at: usize) -> Option<(usize, u8)> {
        match self.buffer.get(at..self.end)? {
            [a, b, c, sequence, ..] => Some((u32::from_le_bytes([*a, *b, *c, 0]) as usize, *sequence)),
            _ => None,
        }
    }

    #[cold]
    fn next_split_packet(&mut self) -> Result<Option<Packet>, FrameError> {
        let mut at = self.start;
        let mut total = 0;
        let mut previous: Option<u8> = None;
        loop {
            let Some((length, sequence)) = self.header_at(at) else { return Ok(None) };
            if previous.is_some_and(|p| p.wrapping_add(1) != sequence) {
                return Err(FrameError::OutOfOrder);
            }
            total += length;
            if total >= self.max_allowed_packet {
                return Err(FrameError::TooLarge);
            }
            if length > self.end - at - PACKET_HEADER_BYTES {
                return Ok(None);
            }
            at += PACKET_HEADER_BYTES + length;
            previous = Some(sequence);
            if length < PACKET_PAYLOAD_MAX {
                break;
            }
        }
        // Close the gaps the headers leave, part by part.
        let from = self.start + PACKET_HEADER_BYTES;
        let mut source = from;
        let mut target = from;
        while target - from < total {
            let length = PACKET_PAYLOAD_MAX.min(total - (target - from));
            self.buffer.copy_within(source..source + length, target);
            source += length + PACKET_HEADER_BYTES;
            target += length;
        }
        self.start = at;
        self.last = Packet { payload: from..from + total, sequence: previous.unwrap_or(0) };
        Ok(Some(self.last.clone()))
    }
}

/// A connection's output buffer: packets waiting for the next flush.
#[derive(Debug)]
pub struct PacketBuffer {
    bytes: Vec<u8>,
    /// Where the open packet's header is; equal to `bytes.len()` between packets.
    packet_start: usize,
    sequence: u8,
}

impl Default for PacketBuffer {
    fn default() -> Self {
        PacketBuffer { bytes: Vec::with_capacity(OUTPUT_REST_BYTES), packet_start: 0, sequence: 0 }
    }
}

impl PacketBuffer {
    pub fn new() -> PacketBuffer {
        PacketBuffer::default()
    }

    /// The sequence number the next packet carries.
    pub fn set_sequence(&mut self, sequence: u8) {
        self.sequence = sequence;
    }

    /// Opens a packet; its payload is what is appended until [`end`](Self::end).
    #[inline]
    pub fn begin(&mut self) -> &mut Vec<u8> {
        debug_assert_eq!(self.packet_start, self.bytes.len(), "a packet is already open");
        self.packet_start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; PACKET_HEADER_BYTES]);
        &mut self.bytes
    }

    /// The open packet's bytes; append only.
    #[inline]
    pub fn payload(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Closes the open packet: patches its header, splits it when it is too long for one.
    #[inline]
    pub fn end(&mut self) {
        let length = self.bytes.len() - self.packet_start - PACKET_HEADER_BYTES;
        if length >= PACKET_PAYLOAD_MAX {
            return self.end_split(length);
        }
        self.patch_header(self.packet_start, length);
        self.packet_start = self.bytes.len();
    }

    /// Puts closed packets, none of which was split, behind those there are, with the sequence numbers that follow.
    pub fn append(&mut self, packets: &[u8]) {
        debug_assert_eq!(self.packet_start, self.bytes.len(), "a packet is already open");
        self.bytes.extend_from_slice(packets);
        while let Some(header) = self.bytes[self.packet_start..].first_chunk::<PACKET_HEADER_BYTES>() {
            let length = u32::from_le_bytes([header[0], header[1], header[2], 0]) as usize;
            self.patch_header(self.packet_start, length);
            self.packet_start += PACKET_HEADER_BYTES + length;
        }
    }

    /// The packets behind the first `pending` bytes.
    pub fn since(&self, pending: usize) -> &[u8] {
        &self.bytes[pending..]
    }

    /// Drops the open packet, if any: an error came up in the middle of a row.
    pub fn abandon(&mut self) {
        self.bytes.truncate(self.packet_start);
    }

    /// The sequence number the next packet will carry.
    pub fn sequence(&self) -> u8 {
        self.sequence
    }

    /// Drops all packets behind the first `pending` bytes; the next one carries `sequence`.
    pub fn take_back(&mut self, pending: usize, sequence: u8) {
        assert!(pending <= self.packet_start, "packets that were never written cannot be taken back");
        self.bytes.truncate(pending);
        self.packet_start = pending;
        self.sequence = sequence;
    }

    /// Whether a packet was begun and not ended.
    pub fn is_open(&self) -> bool {
        self.packet_start < self.bytes.len()
    }

    /// Complete packets waiting to be written.
    pub fn complete(&self) -> &[u8] {
        &self.bytes[..self.packet_start]
    }

    /// Number of complete bytes waiting.
    #[inline]
    pub fn pending(&self) -> usize {
        self.packet_start
    }

    /// The complete packets were written: forget them. No packet may be open.
    pub fn clear(&mut self) {
        assert!(!self.is_open(), "flush in the middle of a packet");
        self.bytes.clear();
        self.packet_start = 0;
        self.shrink(OUTPUT_STREAM_BYTES);
    }

    /// The connection goes idle: gives back what a large answer left behind.
    #[inline]
    pub fn rest(&mut self) {
        if self.bytes.is_empty() {
            self.shrink(OUTPUT_KEEP_BYTES);
        }
    }

    fn shrink(&mut self, keep: usize) {
        if self.bytes.capacity() > keep {
            self.bytes = Vec::with_capacity(OUTPUT_REST_BYTES);
        }
    }

    #[inline]
    fn patch_header(&mut self, at: usize, length: usize) {
        let [a, b, c, _] = (length as u32).to_le_bytes();
        self.bytes[at..at + PACKET_HEADER_BYTES].copy_from_slice(&[a, b, c, self.sequence]);
        self.sequence = self.sequence.wrapping_add(1);
    }

    #[cold]
    fn end_split(&mut self, length: usize) {
        // A payload that is an exact multiple of the maximum ends with an empty part.
        let extra = length / PACKET_PAYLOAD_MAX;
        let payload = self.packet_start + PACKET_HEADER_BYTES;
        self.bytes.resize(self.bytes.len() + extra * PACKET_HEADER_BYTES, 0);
        for part in (1..=extra).rev() {
            let from = payload + part * PACKET_PAYLOAD_MAX;
            let to = from + part * PACKET_HEADER_BYTES;
            let bytes = PACKET_PAYLOAD_MAX.min(length - part * PACKET_PAYLOAD_MAX);
            self.bytes.copy_within(from..from + bytes, to);
        }
        for part in 0..=extra {
            let bytes = PACKET_PAYLOAD_MAX.min(length - part * PACKET_PAYLOAD_MAX);
            self.patch_header(self.packet_start + part * (PACKET_PAYLOAD_MAX + PACKET_HEADER_BYTES), bytes);
        }
        self.packet_start = self.bytes.len();
    }
}

/// Appends the payload of the packet at the front of complete ones, its parts joined; how many bytes of them it has taken.
pub fn split_packet(mut packets: &[u8], payload: &mut Vec<u8>) -> usize {
    let before = packets.len();
    while let Some(([a, b, c, _], rest)) = packets.split_first_chunk() {
        let length = u32::from_le_bytes([*a, *b, *c, 0]) as usize;
        let (part, rest) = rest.split_at(length);
        payload.extend_from_slice(part);
        packets = rest;
        if length < PACKET_PAYLOAD_MAX {
            break;
        }
    }
    before - packets.len()
}

/// Appends a length-encoded integer.
#[inline]
pub fn push_lenenc(out: &mut Vec<u8>, v: u64) {
    if v < 251 {
        return out.push(v as u8);
    }
    let bytes = v.to_le_bytes();
    if v < 1 << 16 {
        out.push(0xfc);
        out.extend_from_slice(&bytes[..2]);
    } else if v < 1 << 24 {
        out.push(0xfd);
        out.extend_from_slice(&bytes[..3]);
    } else {
        out.push(0xfe);
        out.extend_from_slice(&bytes);
    }
}

/// Appends a length-encoded string.
#[inline]
pub fn push_lenenc_bytes(out: &mut Vec<u8>, v: &[u8]) {
    push_lenenc(out, v.len() as u64);
    out.extend_from_slice(v);
}
