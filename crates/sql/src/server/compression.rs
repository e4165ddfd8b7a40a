//! A stream of compressed packets as a stream of packets, for connections whose client has asked for it. It is between the packets and TLS, or the socket.
//!
//! One compressed packet is read whole and becomes what it was; one is made of what is written at once, if it can be. Others of the thread have their turn whenever
//! [`PIECE_BYTES_MAX`] are compressed. Buffers are given back when they run empty.

use std::{
    io,
    mem::MaybeUninit,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::wire::compressed::{Compression, HEADER_BYTES, Header, LongPacket, PIECE_BYTES_MAX, pack, unpack};

/// Bytes read at once.
const READ_BYTES: usize = 16 << 10;
/// Buffers above this size are given back when they are empty.
const KEPT_BYTES: usize = 4 << 10;

/// Bytes of which the first are taken.
#[derive(Debug, Default)]
struct Queue {
    bytes: Vec<u8>,
    taken: usize,
}

impl Queue {
    fn rest(&self) -> &[u8] {
        self.bytes.get(self.taken..).unwrap_or_default()
    }
    fn take(&mut self, count: usize) {
        self.taken += count;
        if self.rest().is_empty() {
            self.taken = 0;
            self.bytes.clear();
            if self.bytes.capacity() > KEPT_BYTES {
                self.bytes = Vec::new();
            }
        }
    }
    /// Room at the end is for what comes, not for what was.
    fn push(&mut self, more: &[u8]) {
        if self.taken > self.bytes.len() / 2 {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        self.bytes.extend_from_slice(more);
    }
}

pub(super) struct Compressed<S> {
    stream: S,
    how: Compression,
    /// Of the next compressed packet that is written.
    sequence: u8,
    packed: Queue,
    plain: Queue,
    written: Queue,
    /// Of the bytes whose write is still pending.
    long: Option<Box<LongPacket>>,
    /// It was busy, and others have not had their turn.
    is_tired: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Compressed<S> {
    /// `head` has been read already.
    pub fn new(stream: S, how: Compression, head: Vec<u8>) -> Compressed<S> {
        let packed = Queue { bytes: head, taken: 0 };
        let (plain, written) = Default::default();
        Compressed { stream, how, sequence: 0, packed, plain, written, long: None, is_tired: false }
    }

    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// Whether there was a whole packet.
    fn unpack_next(&mut self) -> io::Result<bool> {
        let rest = self.packed.rest();
        let Some(header) = Header::decode(rest) else { return Ok(false) };
        let Some(packed) = rest.get(HEADER_BYTES..HEADER_BYTES + header.packed) else { return Ok(false) };
        self.sequence = header.sequence.wrapping_add(1);
        let refused = |e| io::Error::new(io::ErrorKind::InvalidData, e);
        unpack(self.how, packed, header.plain, &mut self.plain.bytes).map_err(refused)?;
        self.packed.take(HEADER_BYTES + header.packed);
        Ok(true)
    }

    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.written.rest().is_empty() {
            let count = ready!(Pin::new(&mut self.stream).poll_write(cx, self.written.rest()))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written.take(count);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Compressed<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, space: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if !this.plain.rest().is_empty() {
                let count = this.plain.rest().len().min(space.remaining());
                space.put_slice(&this.plain.rest()[..count]);
                this.plain.take(count);
                return Poll::Ready(Ok(()));
            }
            if this.unpack_next()? {
                continue;
            }
            let mut bytes = [const { MaybeUninit::uninit() }; READ_BYTES];
            let mut read = ReadBuf::uninit(&mut bytes);
            ready!(Pin::new(&mut this.stream).poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            this.packed.push(read.filled());
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Compressed<S> {
    /// Whoever finds it pending comes again with the same bytes, as [`super::output::write_bounded`] does.
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_drain(cx))?;
        if std::mem::take(&mut this.is_tired) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let count = bytes.len().min(this.how.packet_bytes_max());
        if count > PIECE_BYTES_MAX {
            let long = this.long.get_or_insert_default();
            let Some(packed) = long.step(&bytes[..count], this.sequence) else {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            };
            this.long = None;
            this.written.bytes = packed;
            this.sequence = this.sequence.wrapping_add(1);
        } else if count > 0 {
            pack(this.how, &bytes[..count], this.sequence, &mut this.written.bytes);
            this.sequence = this.sequence.wrapping_add(1);
            this.is_tired = count < bytes.len();
        }
        match this.poll_drain(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(count)),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_drain(cx))?;
        Pin::new(&mut this.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_drain(cx))?;
        Pin::new(&mut this.stream).poll_shutdown(cx)
    }
}
