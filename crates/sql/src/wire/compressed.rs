//! Compressed packets: what travels in place of packets where both sides have agreed on zlib or zstd.
//!
//! A header says how many bytes follow, a number that counts compressed packets as packets are counted, and how many bytes they become; 0: they are not compressed. What they become
//! is a piece of the stream of packets, cut anywhere.
//!
//! Nothing is allocated by the length that a header claims: room grows with the bytes that there are, up to that length, and what becomes more or less than that is refused.
//! Compressors are a thread's, not a connection's, so that connections that rest hold none.

use std::cell::RefCell;

use flate2::{Compress, Compression as Level, Decompress, FlushCompress, FlushDecompress, Status};
use zstd_safe::{CCtx, DCtx, DParameter, InBuffer, OutBuffer, ResetDirective, compress_bound};

use super::error::SqlError;

/// Bytes before each compressed packet.
pub const HEADER_BYTES: usize = 7;
/// What is shorter goes as it is, as from MySQL.
const COMPRESSED_MIN: usize = 50;
/// Bytes that are compressed at once: a compressor that is asked for the best works on them for a tenth of a second, and with little memory.
pub const PIECE_BYTES_MAX: usize = 256 << 10;
/// Bytes that become one compressed packet at most.
const PACKET_BYTES_MAX: usize = 0xff_ffff;
/// Room for what a packet becomes grows from this on.
const ROOM_BYTES: usize = 64 << 10;
/// Of zlib, as MySQL has it.
const ZLIB_LEVEL: u8 = 6;
/// Frames that want to look back further than a packet is long (16 MiB) are refused.
const ZSTD_WINDOW_LOG_MAX: u32 = 24;

/// How the packets of a connection are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    #[default]
    None,
    Zlib,
    /// With a level from 1 to 22.
    Zstd(u8),
}

impl Compression {
    /// Bytes that become one compressed packet at most. mysql-connector-python, which knows zlib only, reads no packet of more than two compressed ones.
    pub fn packet_bytes_max(self) -> usize {
        if self == Compression::Zlib { PACKET_BYTES_MAX } else { PIECE_BYTES_MAX }
    }
    /// As `Compression_algorithm` names it.
    pub fn name(self) -> &'static str {
        match self {
            Compression::None => "",
            Compression::Zlib => "zlib",
            Compression::Zstd(_) => "zstd",
        }
    }
    pub fn level(self) -> u8 {
        match self {
            Compression::None => 0,
            Compression::Zlib => ZLIB_LEVEL,
            Compression::Zstd(level) => level,
        }
    }
}

/// Algorithms that a server takes: the values of `protocol_compression_algorithms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Algorithms {
    pub zlib: bool,
    pub zstd: bool,
    pub uncompressed: bool,
}

impl Default for Algorithms {
    fn default() -> Algorithms {
        Algorithms { zlib: true, zstd: true, uncompressed: true }
    }
}

impl Algorithms {
    /// From names between commas; `None`: one of them is none, or there are more than three.
    pub fn parse(text: &str) -> Option<Algorithms> {
        let mut found = Algorithms { zlib: false, zstd: false, uncompressed: false };
        if text.split(',').count() > 3 {
            return None;
        }
        for name in text.split(',') {
            match name.to_ascii_lowercase().as_str() {
                "zlib" => found.zlib = true,
                "zstd" => found.zstd = true,
                "uncompressed" => found.uncompressed = true,
                _ => return None,
            }
        }
        Some(found)
    }

    /// What a client gets that can do these and asks for a level of zstd.
    ///
    /// # Errors
    /// 3922, 3923: nothing of what it can do is taken here.
    pub fn choose(self, zlib: bool, zstd: bool, level: u8) -> Result<Compression, SqlError> {
        if zlib && self.zlib {
            return Ok(Compression::Zlib);
        }
        if zstd && self.zstd {
            return match level {
                1..=22 => Ok(Compression::Zstd(level)),
                _ => Err(SqlError::new(3923, b"HY000", "Invalid zstd compression level for algorithm 'zstd'.")),
            };
        }
        match self.uncompressed {
            true => Ok(Compression::None),
            false => Err(SqlError::new(3922, b"HY000", "Invalid compression algorithm 'uncompressed'.")),
        }
    }
}

/// What is before a compressed packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Bytes that follow.
    pub packed: usize,
    pub sequence: u8,
    /// Bytes that they become; 0: they are not compressed.
    pub plain: usize,
}

impl Header {
    /// `None`: not all of it is there.
    pub fn decode(bytes: &[u8]) -> Option<Header> {
        let [a, b, c, sequence, x, y, z, ..] = bytes else { return None };
        let number = |a: &u8, b: &u8, c: &u8| u32::from_le_bytes([*a, *b, *c, 0]) as usize;
        Some(Header { packed: number(a, b, c), sequence: *sequence, plain: number(x, y, z) })
    }

    fn encode(self) -> [u8; HEADER_BYTES] {
        let [a, b, c, _] = (self.packed as u32).to_le_bytes();
        let [x, y, z, _] = (self.plain as u32).to_le_bytes();
        [a, b, c, self.sequence, x, y, z]
    }
}

/// 1157: bytes that are no compressed packet.
pub fn refused() -> SqlError {
    SqlError::new(1157, b"08S01", "Couldn't uncompress communication packet")
}

/// What compresses and uncompresses for all connections of a thread.
struct Machines {
    pack_zlib: Compress,
    unpack_zlib: Decompress,
    pack_zstd: CCtx<'static>,
    unpack_zstd: DCtx<'static>,
}

thread_local! {
    static MACHINES: RefCell<Option<Box<Machines>>> = const { RefCell::new(None) };
}

fn with_machines<T>(work: impl FnOnce(&mut Machines) -> T) -> T {
    MACHINES.with_borrow_mut(|machines| {
        work(machines.get_or_insert_with(|| {
            Box::new(Machines {
                pack_zlib: Compress::new(Level::new(u32::from(ZLIB_LEVEL)), true),
                unpack_zlib: Decompress::new(true),
                pack_zstd: CCtx::create(),
                unpack_zstd: DCtx::create(),
            })
        }))
    })
}

/// Appends one compressed packet of at most [`PIECE_BYTES_MAX`] bytes.
pub fn pack(how: Compression, piece: &[u8], sequence: u8, out: &mut Vec<u8>) {
    assert!(piece.len() <= PIECE_BYTES_MAX, "a piece longer than one compressed packet");
    let at = out.len();
    out.extend_from_slice(&[0; HEADER_BYTES]);
    let is_smaller = piece.len() >= COMPRESSED_MIN
        && with_machines(|machines| machines.pack(how, piece, out))
        && out.len() - at - HEADER_BYTES < piece.len();
    finish(&mut out[at..], is_smaller, piece.len(), sequence);
    if !is_smaller {
        out.truncate(at + HEADER_BYTES);
        out.extend_from_slice(piece);
    }
}

/// Writes the header of a packet that is there, or will be there as it is.
fn finish(packet: &mut [u8], is_smaller: bool, length: usize, sequence: u8) {
    let (packed, plain) = if is_smaller { (packet.len() - HEADER_BYTES, length) } else { (length, 0) };
    packet[..HEADER_BYTES].copy_from_slice(&Header { packed, sequence, plain }.encode());
}

/// A zlib packet of more than [`PIECE_BYTES_MAX`] bytes that is made in steps, so that others of the thread have their turn between them.
pub struct LongPacket {
    machine: Compress,
    packed: Vec<u8>,
}

impl Default for LongPacket {
    fn default() -> LongPacket {
        let machine = Compress::new(Level::new(u32::from(ZLIB_LEVEL)), true);
        LongPacket { machine, packed: vec![0; HEADER_BYTES] }
    }
}

impl LongPacket {
    /// Goes on with the same bytes, at most [`PACKET_BYTES_MAX`]. `None`: there is more to do.
    pub fn step(&mut self, bytes: &[u8], sequence: u8) -> Option<Vec<u8>> {
        assert!(bytes.len() <= PACKET_BYTES_MAX, "more bytes than one compressed packet takes");
        let taken = self.machine.total_in() as usize;
        let rest = bytes.get(taken..).unwrap_or_default();
        let piece = rest.get(..PIECE_BYTES_MAX).unwrap_or(rest);
        let flush = if piece.len() == rest.len() { FlushCompress::Finish } else { FlushCompress::None };
        self.packed.reserve(PIECE_BYTES_MAX);
        let done = self.machine.compress_vec(piece, &mut self.packed, flush);
        let is_smaller = self.packed.len() - HEADER_BYTES < bytes.len();
        match done {
            Ok(Status::Ok | Status::BufError) if is_smaller => return None,
            Ok(Status::StreamEnd) if is_smaller => {}
            _ => {
                self.packed.truncate(HEADER_BYTES);
                self.packed.extend_from_slice(bytes);
            }
        }
        let is_smaller = is_smaller && matches!(done, Ok(Status::StreamEnd));
        finish(&mut self.packed, is_smaller, bytes.len(), sequence);
        Some(std::mem::take(&mut self.packed))
    }
}

/// Appends what a compressed packet becomes.
///
/// # Errors
/// 1157: it is damaged, or not as long as its header says.
pub fn unpack(how: Compression, packed: &[u8], plain: usize, out: &mut Vec<u8>) -> Result<(), SqlError> {
    let before = out.len();
    if plain == 0 {
        out.extend_from_slice(packed);
        return Ok(());
    }
    let is_whole = with_machines(|machines| machines.unpack(how, packed, before + plain, out));
    match is_whole && out.len() == before + plain {
        true => Ok(()),
        false => {
            out.truncate(before);
            Err(refused())
        }
    }
}

impl Machines {
    /// Whether it was compressed within as many bytes as it has.
    fn pack(&mut self, how: Compression, piece: &[u8], out: &mut Vec<u8>) -> bool {
        match how {
            Compression::None => false,
            Compression::Zlib => {
                out.reserve(piece.len());
                self.pack_zlib.reset();
                matches!(self.pack_zlib.compress_vec(piece, out, FlushCompress::Finish), Ok(Status::StreamEnd))
            }
            Compression::Zstd(level) => {
                let mut packed = Vec::with_capacity(compress_bound(piece.len()));
                let done = self.pack_zstd.compress(&mut packed, piece, i32::from(level));
                out.extend_from_slice(&packed);
                done.is_ok()
            }
        }
    }

    /// Whether it ended well; what comes out is `end` long at most.
    fn unpack(&mut self, how: Compression, packed: &[u8], end: usize, out: &mut Vec<u8>) -> bool {
        match how {
            Compression::None => false,
            Compression::Zlib => self.unpack_zlib(packed, end, out),
            Compression::Zstd(_) => self.unpack_zstd(packed, end, out),
        }
    }

    fn unpack_zlib(&mut self, packed: &[u8], end: usize, out: &mut Vec<u8>) -> bool {
        self.unpack_zlib.reset(true);
        loop {
            let taken = self.unpack_zlib.total_in() as usize;
            let (rest, before) = (packed.get(taken..).unwrap_or_default(), out.len());
            let mut piece = Vec::with_capacity(room(before, end));
            let done = self.unpack_zlib.decompress_vec(rest, &mut piece, FlushDecompress::None);
            out.extend_from_slice(&piece);
            match done {
                Ok(Status::StreamEnd) => return true,
                Ok(_) if out.len() > before && out.len() <= end => {}
                _ => return false,
            }
        }
    }

    fn unpack_zstd(&mut self, packed: &[u8], end: usize, out: &mut Vec<u8>) -> bool {
        let mut input = InBuffer::around(packed);
        if self.unpack_zstd.reset(ResetDirective::SessionAndParameters).is_err()
            || self.unpack_zstd.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG_MAX)).is_err()
        {
            return false;
        }
        loop {
            let before = out.len();
            let mut piece = Vec::with_capacity(room(before, end));
            let left = self.unpack_zstd.decompress_stream(&mut OutBuffer::around(&mut piece), &mut input);
            out.extend_from_slice(&piece);
            match left {
                Ok(0) => return input.pos() == packed.len(),
                Ok(_) if out.len() > before && out.len() <= end => {}
                _ => return false,
            }
        }
    }
}

/// As many bytes as there are already, one more than may come at most.
fn room(len: usize, end: usize) -> usize {
    (end.saturating_sub(len) + 1).min(len.max(ROOM_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOW: [Compression; 4] =
        [Compression::Zlib, Compression::Zstd(1), Compression::Zstd(3), Compression::Zstd(22)];

    fn noise(length: usize) -> Vec<u8> {
        let mut x = 1u32;
        let mut next = || {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (x >> 24) as u8
        };
        (0..length).map(|_| next()).collect()
    }

    #[test]
    fn what_is_packed_comes_out_again() {
        for how in HOW {
            for (text, shrinks) in [
                (vec![], false),
                (vec![7; COMPRESSED_MIN - 1], false),
                (vec![7; COMPRESSED_MIN], true),
                (b"the same again, ".repeat(16_000), true),
                (noise(1000), false),
                (noise(PIECE_BYTES_MAX), false),
            ] {
                let (mut packed, mut plain) = (Vec::new(), b"before".to_vec());
                pack(how, &text, 9, &mut packed);
                let header = Header::decode(&packed).unwrap();
                assert_eq!((header.sequence, header.packed), (9, packed.len() - HEADER_BYTES));
                assert_eq!(header.plain, if shrinks { text.len() } else { 0 }, "{how:?} {}", text.len());
                unpack(how, &packed[HEADER_BYTES..], header.plain, &mut plain).unwrap();
                assert_eq!(plain, [b"before", &text[..]].concat());
            }
        }
    }

    #[test]
    fn a_long_packet_is_made_in_steps() {
        let length = PACKET_BYTES_MAX;
        for (bytes, shrinks) in
            [(b"a long row, ".repeat(length / 12), true), (noise(length), false), (vec![0; length], true)]
        {
            let (mut long, mut steps) = (LongPacket::default(), 0);
            let packed = loop {
                steps += 1;
                if let Some(packed) = long.step(&bytes, 3) {
                    break packed;
                }
            };
            let header = Header::decode(&packed).unwrap();
            assert_eq!((header.packed, header.plain > 0), (packed.len() - HEADER_BYTES, shrinks));
            assert!(steps >= 60, "{steps} steps");
            let mut plain = Vec::new();
            unpack(Compression::Zlib, &packed[HEADER_BYTES..], header.plain, &mut plain).unwrap();
            assert!(plain == bytes);
        }
    }

    /// A mebibyte of zeros as zstd makes it of a longer text than a piece.
    fn long_zstd(length: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(compress_bound(length));
        zstd_safe::compress(&mut out, &vec![0u8; length], 1).unwrap();
        out
    }

    #[test]
    fn a_packet_becomes_what_its_header_says_or_is_refused() {
        for how in HOW {
            let text = b"some text that is there often. ".repeat(5000);
            let mut packed = Vec::new();
            pack(how, &text, 0, &mut packed);
            let packed = &packed[HEADER_BYTES..];
            for wrong in [1, text.len() - 1, text.len() + 1, 0xff_ffff] {
                let mut out = Vec::new();
                assert_eq!(unpack(how, packed, wrong, &mut out).unwrap_err().errno, 1157, "{how:?} {wrong}");
                assert!(out.is_empty() && out.capacity() <= 4 * text.len(), "{} for a claim", out.capacity());
            }
            for length in 0..packed.len().min(200) {
                assert!(unpack(how, &packed[..length], text.len(), &mut Vec::new()).is_err(), "{how:?} {length}");
            }
            for at in 0..packed.len().min(400) {
                let mut damaged = packed.to_vec();
                damaged[at] ^= 1 << (at % 8);
                let _ = unpack(how, &damaged, text.len(), &mut Vec::new());
            }
        }
        let (mut out, length) = (Vec::new(), 0xff_ffff);
        unpack(Compression::Zstd(3), &long_zstd(length), length, &mut out).unwrap();
        assert_eq!(out.len(), length);
        assert!(unpack(Compression::Zstd(3), &long_zstd(64 << 20), length, &mut Vec::new()).is_err());
    }

    #[test]
    fn random_bytes_are_refused_not_panicked_on() {
        let bytes = noise(1 << 16);
        for how in HOW {
            for at in 0..2000 {
                let packed = &bytes[at * 7..at * 7 + at % 300];
                let _ = unpack(how, packed, 1 + at % 5000, &mut Vec::new());
            }
        }
    }

    #[test]
    fn what_client_and_server_agree_on() {
        let all = Algorithms::default();
        assert_eq!(Algorithms::parse("zlib,zstd,uncompressed"), Some(all));
        assert_eq!(Algorithms::parse("ZSTD"), Some(Algorithms { zlib: false, zstd: true, uncompressed: false }));
        for wrong in ["", "zlib,", "zlib, zstd", "lz4", "zlib,zlib,zlib,zlib"] {
            assert_eq!(Algorithms::parse(wrong), None, "{wrong}");
        }
        assert_eq!(all.choose(true, true, 0), Ok(Compression::Zlib));
        assert_eq!(all.choose(false, true, 22), Ok(Compression::Zstd(22)));
        assert_eq!(all.choose(false, true, 23).unwrap_err().errno, 3923);
        assert_eq!(all.choose(false, false, 0), Ok(Compression::None));
        let zlib = Algorithms::parse("zlib").unwrap();
        assert_eq!(zlib.choose(false, true, 3).unwrap_err().errno, 3922);
    }
}
