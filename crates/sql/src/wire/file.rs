//! The packets in which a client sends a file.
//!
//! The bytes of the file are handed on as they come, whatever the lengths of the packets, so that the buffer keeps its size even where one packet is
//! 16 MiB long. An empty packet is the end, unless it only ends a packet that was cut because of its length.

use std::ops::Range;

use super::{
    constants::{PACKET_HEADER_BYTES, PACKET_PAYLOAD_MAX},
    packet::FrameError,
};

/// Bytes that are read at once.
const BUFFER_BYTES: usize = 64 << 10;

/// What comes next of a file.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    /// See [`FilePackets::bytes`].
    Bytes(Range<usize>),
    End,
    /// More has to be read.
    Missing,
}

#[derive(Debug)]
pub struct FilePackets {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes of the packet under way that have not come.
    left: usize,
    /// The packet under way, or the one before, goes on in the next.
    goes_on: bool,
    /// Of the next packet.
    sequence: u8,
}

impl FilePackets {
    /// `ahead` has been read already; `sequence` is the number of the first packet.
    pub fn new(ahead: &[u8], sequence: u8) -> FilePackets {
        let mut buffer = vec![0; BUFFER_BYTES.max(ahead.len())];
        buffer[..ahead.len()].copy_from_slice(ahead);
        FilePackets { buffer, start: 0, end: ahead.len(), left: 0, goes_on: false, sequence }
    }

    /// A further file begins.
    pub fn begin(&mut self, sequence: u8) {
        (self.left, self.goes_on, self.sequence) = (0, false, sequence);
    }

    /// The number of the packet behind those that have come.
    pub fn sequence(&self) -> u8 {
        self.sequence
    }

    /// Free space to read into, never empty. Call only behind [`Piece::Missing`].
    pub fn space(&mut self) -> &mut [u8] {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        &mut self.buffer[self.end..]
    }

    /// The caller put `count` bytes at the front of [`space`](Self::space).
    pub fn filled(&mut self, count: usize) {
        assert!(count <= self.buffer.len() - self.end, "more bytes read than there was space");
        self.end += count;
    }

    /// # Errors
    /// Packets are not numbered one after the other.
    pub fn next_piece(&mut self) -> Result<Piece, FrameError> {
        while self.left == 0 {
            let Some(&[a, b, c, sequence]) = self.buffer[self.start..self.end].first_chunk::<PACKET_HEADER_BYTES>()
            else {
                return Ok(Piece::Missing);
            };
            if sequence != self.sequence {
                return Err(FrameError::OutOfOrder);
            }
            self.start += PACKET_HEADER_BYTES;
            self.sequence = sequence.wrapping_add(1);
            self.left = u32::from_le_bytes([a, b, c, 0]) as usize;
            let ends = self.left == 0 && !self.goes_on;
            self.goes_on = self.left == PACKET_PAYLOAD_MAX;
            if ends {
                return Ok(Piece::End);
            }
        }
        let from = self.start;
        let count = self.left.min(self.end - from);
        if count == 0 {
            return Ok(Piece::Missing);
        }
        self.start += count;
        self.left -= count;
        Ok(Piece::Bytes(from..from + count))
    }

    /// The bytes of a piece; valid until [`space`](Self::space) is called.
    pub fn bytes(&self, piece: Range<usize>) -> &[u8] {
        &self.buffer[piece]
    }

    /// What has come behind the file.
    pub fn rest(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::packet::PacketBuffer;

    fn read(packets: &mut FilePackets, mut bytes: &[u8], chunk: usize) -> Result<Vec<u8>, FrameError> {
        let mut file = Vec::new();
        loop {
            match packets.next_piece()? {
                Piece::Bytes(piece) => file.extend_from_slice(packets.bytes(piece)),
                Piece::End => return Ok(file),
                Piece::Missing => {
                    let space = packets.space();
                    let count = space.len().min(chunk).min(bytes.len());
                    assert!(count > 0, "the file has no end");
                    space[..count].copy_from_slice(&bytes[..count]);
                    packets.filled(count);
                    bytes = &bytes[count..];
                }
            }
        }
    }

    #[test]
    fn a_file_comes_in_packets_of_any_length() {
        for lengths in [vec![], vec![1], vec![5, 70_000, 3], vec![PACKET_PAYLOAD_MAX], vec![PACKET_PAYLOAD_MAX + 1, 2]]
        {
            let file: Vec<u8> = (0..lengths.iter().sum::<usize>()).map(|i| (i % 251) as u8).collect();
            let (mut out, mut at) = (PacketBuffer::new(), 0);
            out.set_sequence(2);
            for &length in &lengths {
                out.begin().extend_from_slice(&file[at..at + length]);
                out.end();
                at += length;
            }
            out.begin();
            out.end();
            let behind = out.sequence();
            for chunk in [1000, 1 << 20] {
                let mut packets = FilePackets::new(&out.complete()[..3], 2);
                assert_eq!(read(&mut packets, &out.complete()[3..], chunk).unwrap(), file, "{lengths:?}");
                assert_eq!((packets.sequence(), packets.rest()), (behind, &[][..]));
                assert!(packets.buffer.len() <= BUFFER_BYTES);
            }
        }
    }

    #[test]
    fn what_comes_behind_is_kept_and_order_is_held() {
        let bytes = [1, 0, 0, 2, b'a', 0, 0, 0, 3, 9, 9];
        let mut packets = FilePackets::new(&[], 2);
        assert_eq!(read(&mut packets, &bytes, 100).unwrap(), b"a");
        assert_eq!(packets.rest(), [9, 9]);
        assert_eq!(read(&mut FilePackets::new(&[], 3), &bytes, 100), Err(FrameError::OutOfOrder));
    }
}
