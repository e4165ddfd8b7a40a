//! Bounds-checked reading and plain writing of little-endian fields.

use apus_types::{Chain, Epoch, ErrorCode, TransId};

use crate::envelope::BlockRef;

/// The bytes do not follow the layout: too short, a length that points outside, an unknown tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DecodeError;

impl std::fmt::Display for DecodeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("message does not decode")
    }
}
impl std::error::Error for DecodeError {}
impl From<DecodeError> for ErrorCode {
    fn from(_: DecodeError) -> ErrorCode {
        ErrorCode::ProtocolViolation
    }
}

/// A cursor over bytes from outside.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
    #[inline]
    pub fn bytes(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (head, tail) = self.rest.split_at_checked(length).ok_or(DecodeError)?;
        self.rest = tail;
        Ok(head)
    }
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, tail) = self.rest.split_first_chunk::<N>().ok_or(DecodeError)?;
        self.rest = tail;
        Ok(*head)
    }
    #[inline]
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array::<1>().map(|[b]| b)
    }
    #[inline]
    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_le_bytes)
    }
    #[inline]
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_le_bytes)
    }
    #[inline]
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_le_bytes)
    }
    #[inline]
    pub fn trans(&mut self) -> Result<TransId, DecodeError> {
        Ok(TransId { client: self.u64()?, seq: self.u64()? })
    }
    #[inline]
    pub fn chain(&mut self) -> Result<Chain, DecodeError> {
        self.u32().map(Chain)
    }
    #[inline]
    pub fn epoch(&mut self) -> Result<Epoch, DecodeError> {
        self.u64().map(Epoch)
    }
    #[inline]
    pub fn block(&mut self) -> Result<BlockRef, DecodeError> {
        BlockRef::from_u32(self.u32()?).ok_or(DecodeError)
    }
    /// A byte string with a u16 length in front.
    #[inline]
    pub fn short_bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = self.u16()?;
        self.bytes(usize::from(length))
    }
    /// A byte string with a u32 length in front.
    #[inline]
    pub fn long_bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = self.u32()?;
        self.bytes(length as usize)
    }
    pub fn error_code(&mut self) -> Result<ErrorCode, DecodeError> {
        // A newer peer may know codes that we do not: treat them as internal rather than refuse the message.
        self.u16().map(|n| ErrorCode::from_u16(n).unwrap_or(ErrorCode::Internal))
    }
    /// Nothing may follow.
    pub fn end(self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError) }
    }
}

/// Writing counterparts of [`Reader`].
pub trait Put {
    fn put_u8(&mut self, n: u8);
    fn put_u16(&mut self, n: u16);
    fn put_u32(&mut self, n: u32);
    fn put_u64(&mut self, n: u64);
    fn put_bytes(&mut self, bytes: &[u8]);
    fn put_trans(&mut self, t: TransId) {
        self.put_u64(t.client);
        self.put_u64(t.seq);
    }
    fn put_chain(&mut self, c: Chain) {
        self.put_u32(c.0);
    }
    fn put_block(&mut self, b: BlockRef) {
        self.put_u32(b.to_u32());
    }
    /// # Panics
    /// When `bytes` is longer than 65,535: callers check keys against `KEY_BYTES_MAX` first.
    fn put_short_bytes(&mut self, bytes: &[u8]) {
        self.put_u16(short_length(bytes));
        self.put_bytes(bytes);
    }
    fn put_long_bytes(&mut self, bytes: &[u8]) {
        self.put_u32(long_length(bytes));
        self.put_bytes(bytes);
    }
}

impl Put for Vec<u8> {
    #[inline]
    fn put_u8(&mut self, n: u8) {
        self.push(n);
    }
    #[inline]
    fn put_u16(&mut self, n: u16) {
        self.extend_from_slice(&n.to_le_bytes());
    }
    #[inline]
    fn put_u32(&mut self, n: u32) {
        self.extend_from_slice(&n.to_le_bytes());
    }
    #[inline]
    fn put_u64(&mut self, n: u64) {
        self.extend_from_slice(&n.to_le_bytes());
    }
    #[inline]
    fn put_bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// The length that stands before a byte string, where a head is written at once.
///
/// # Panics
/// As [`Put::put_short_bytes`].
#[inline]
pub fn short_length(bytes: &[u8]) -> u16 {
    u16::try_from(bytes.len()).expect("short byte string over 64 KiB")
}
#[inline]
pub fn long_length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("byte string over 4 GiB")
}

/// Fields of a head that was read at once ([`Reader::array`]).
#[inline]
pub fn u16_at(head: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([head[at], head[at + 1]])
}
#[inline]
pub fn u32_at(head: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
}

/// Overwrites a u16 or u32 written earlier as a placeholder.
pub fn patch_u16(out: &mut [u8], at: usize, n: u16) {
    out[at..at + 2].copy_from_slice(&n.to_le_bytes());
}
pub fn patch_u32(out: &mut [u8], at: usize, n: u32) {
    out[at..at + 4].copy_from_slice(&n.to_le_bytes());
}
