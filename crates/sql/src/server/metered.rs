//! A stream whose bytes are counted, encrypted and compressed as they are: `Bytes_received` and `Bytes_sent`.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What went through one connection. Its own thread alone writes it.
#[derive(Debug, Default)]
pub struct Meter {
    received: AtomicU64,
    sent: AtomicU64,
    /// The client has said that it leaves.
    has_quit: AtomicBool,
}

fn add(to: &AtomicU64, bytes: usize) {
    to.store(to.load(Relaxed).wrapping_add(bytes as u64), Relaxed);
}

impl Meter {
    pub fn traffic(&self) -> Traffic {
        Traffic { received: self.received.load(Relaxed), sent: self.sent.load(Relaxed) }
    }
    pub(super) fn quits(&self) {
        self.has_quit.store(true, Relaxed);
    }
    pub(super) fn has_quit(&self) -> bool {
        self.has_quit.load(Relaxed)
    }
}

/// In bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Traffic {
    pub received: u64,
    pub sent: u64,
}

impl Traffic {
    #[must_use]
    pub fn and(self, other: Traffic) -> Traffic {
        Traffic { received: self.received.wrapping_add(other.received), sent: self.sent.wrapping_add(other.sent) }
    }
}

pub(super) struct Metered<S> {
    stream: S,
    meter: Arc<Meter>,
}

impl<S> Metered<S> {
    pub fn new(stream: S, meter: Arc<Meter>) -> Metered<S> {
        Metered { stream, meter }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        add(&self.meter.received, buffer.filled().len() - before);
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if let Poll::Ready(Ok(count)) = polled {
            add(&self.meter.sent, count);
        }
        polled
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        if let Poll::Ready(Ok(count)) = polled {
            add(&self.meter.sent, count);
        }
        polled
    }
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[test]
    fn bytes_of_both_directions_are_counted() {
        let (near, mut far) = tokio::io::duplex(64);
        let meter = Arc::<Meter>::default();
        let mut metered = Metered::new(near, meter.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            metered.write_all(b"12345").await.unwrap();
            far.write_all(b"123").await.unwrap();
            metered.read_exact(&mut [0; 3]).await.unwrap();
        });
        assert_eq!(meter.traffic(), Traffic { received: 3, sent: 5 });
        assert_eq!(meter.traffic().and(meter.traffic()), Traffic { received: 6, sent: 10 });
        assert!(!meter.has_quit());
    }
}
