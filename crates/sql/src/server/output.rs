//! Where an engine writes its results.

use std::future::poll_fn;
use std::io;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::task::Poll;

use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::{
    cursors::Rows,
    duplex::Duplex,
    limits::{OUTPUT_FLUSH_BYTES, WRITE_TIMEOUT},
};
use crate::wire::{
    SqlError, capability,
    packet::PacketBuffer,
    result::{ResultState, ResultWriter},
};

/// A [`ResultWriter`] (by deref) that can also be flushed to the client while a long result is produced.
pub struct Output<'a> {
    writer: ResultWriter<'a>,
    client: Option<Duplex<'a>>,
    /// Of a cursor, which takes what a client would be sent.
    rows: Option<&'a mut Rows>,
    flushes: u64,
    /// Nothing is sent before the statement has ended.
    is_on_hold: bool,
    /// Nobody reads it.
    is_unread: bool,
}

/// Most bytes of rows of a statement that calls stored functions.
const HELD_BYTES_MAX: usize = 64 << 20;

fn too_much_held() -> SqlError {
    let text = "Apus does not support results of more than 64 MiB of a statement that calls stored functions";
    SqlError::new(1235, b"42000", text)
}

/// A point in an answer to which it can be taken back; see [`Output::mark`].
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    flushes: u64,
    pending: usize,
    sequence: u8,
    finished: u64,
}

impl<'a> Output<'a> {
    pub(super) fn new(buffer: &'a mut PacketBuffer, state: &'a mut ResultState, client: Duplex<'a>) -> Output<'a> {
        Output {
            writer: ResultWriter::new(buffer, state),
            client: Some(client),
            rows: None,
            flushes: 0,
            is_on_hold: false,
            is_unread: false,
        }
    }

    /// An output that only collects, for tests of engines.
    pub fn in_memory(buffer: &'a mut PacketBuffer, state: &'a mut ResultState) -> Output<'a> {
        Output {
            writer: ResultWriter::new(buffer, state),
            client: None,
            rows: None,
            flushes: 0,
            is_on_hold: false,
            is_unread: false,
        }
    }

    /// An output of the same command whose rows a cursor holds.
    pub(super) fn holding<'b>(&'b mut self, buffer: &'b mut PacketBuffer, rows: &'b mut Rows) -> Output<'b> {
        let writer = self.writer.holding(buffer);
        Output { writer, client: None, rows: Some(rows), flushes: 0, is_on_hold: false, is_unread: false }
    }

    /// Rows may be taken back until this is off: at most [`HELD_BYTES_MAX`] of them.
    pub fn hold(&mut self, on: bool) {
        self.is_on_hold = on;
    }

    /// Whether a cursor takes the rows.
    pub fn is_held(&self) -> bool {
        self.rows.is_some()
    }

    /// What was written so far.
    pub fn mark(&mut self) -> Mark {
        let (pending, finished) = (self.writer.pending(), self.writer.finished());
        Mark { flushes: self.flushes, pending, sequence: self.writer.buffer().sequence(), finished }
    }

    /// Forgets what was written since `mark`; false: some of it is with the client already, and nothing changes.
    pub fn take_back(&mut self, mark: Mark) -> bool {
        if self.flushes != mark.flushes && !self.take_back_held(mark) {
            return false;
        }
        self.writer.take_back(mark.pending, mark.sequence, mark.finished);
        true
    }

    /// Whether all that was written since `mark` is an answer without rows.
    pub fn is_ok_since(&mut self, mark: Mark) -> bool {
        const HEADER: usize = 4;
        self.flushes == mark.flushes && self.writer.buffer().complete().get(mark.pending + HEADER) == Some(&0)
    }

    /// What a cursor has taken since it was empty, nobody has seen.
    fn take_back_held(&mut self, mark: Mark) -> bool {
        let Some(rows) = self.rows.as_mut().filter(|_| mark.pending == 0) else { return false };
        rows.take_back(usize::try_from(mark.flushes).unwrap_or(usize::MAX));
        self.flushes = mark.flushes;
        true
    }

    /// Writes out what is complete once it exceeds [`OUTPUT_FLUSH_BYTES`]. Call it between rows of results that may be
    /// long; it waits while the client is slow to read. The error says the client is gone: give up the statement.
    #[inline]
    pub async fn flush_if_full(&mut self) -> Result<(), SqlError> {
        if self.writer.pending() < OUTPUT_FLUSH_BYTES {
            return Ok(());
        }
        if self.is_on_hold {
            return if self.writer.pending() < HELD_BYTES_MAX { Ok(()) } else { Err(too_much_held()) };
        }
        self.flush().await
    }

    #[cold]
    async fn flush(&mut self) -> Result<(), SqlError> {
        if let Some(rows) = self.rows.as_mut() {
            self.flushes += 1;
            rows.hold(self.writer.buffer().complete())?;
            self.writer.buffer().clear();
            return Ok(());
        }
        if self.is_unread {
            self.flushes += 1;
            self.writer.buffer().clear();
        }
        let Some(client) = self.client.as_mut() else { return Ok(()) };
        let buffer = self.writer.buffer();
        self.flushes += 1;
        let written = write_bounded(client.stream(), buffer.complete()).await;
        buffer.clear();
        written.map_err(|_| SqlError::new(1160, b"08S01", "Got an error writing communication packets"))
    }

    /// Asks the client for a file by the name that its user gave it. What it sends is read by [`Output::next_of_file`] to its end, or given up by
    /// [`Output::give_up_file`]; nothing may be written before.
    ///
    /// # Errors
    /// 1160: the client is gone.
    pub async fn ask_for_file(&mut self, name: &[u8]) -> Result<(), SqlError> {
        self.writer.file_request(name);
        self.flush().await?;
        let sequence = self.writer.buffer().sequence();
        if let Some(client) = self.client.as_mut() {
            client.begin_file(sequence);
        }
        Ok(())
    }

    /// The next bytes of the file; `None`: that was all.
    ///
    /// # Errors
    /// 1317: the statement is to end. 1156, 1158, 1159: the client sends nothing, or nonsense; its connection ends with the statement.
    pub async fn next_of_file(&mut self) -> Result<Option<&[u8]>, SqlError> {
        let Some(client) = self.client.as_mut() else { return Ok(None) };
        let next = client.next_of_file(true).await?;
        if next.is_none() {
            self.writer.buffer().set_sequence(client.sequence());
        }
        Ok(next.map(|piece| client.bytes(piece)))
    }

    /// Has the client send the rest of the file and forgets it, so that it reads the answer.
    pub async fn give_up_file(&mut self) {
        let Some(client) = self.client.as_mut() else { return };
        while let Ok(Some(_)) = client.next_of_file(false).await {}
        self.writer.buffer().set_sequence(client.sequence());
    }

    /// The command is over: what has become of its client.
    pub(super) fn into_client(self) -> Option<Duplex<'a>> {
        self.client
    }
}

impl<'a> Deref for Output<'a> {
    type Target = ResultWriter<'a>;

    fn deref(&self) -> &Self::Target {
        &self.writer
    }
}

impl DerefMut for Output<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.writer
    }
}

/// Writes all of `bytes` and what encryption holds of them, waiting at most [`WRITE_TIMEOUT`] for a peer that does not read. The usual case, a socket
/// with room for everything, costs no timer.
pub(super) async fn write_bounded<W: AsyncWrite + Unpin + ?Sized>(sink: &mut W, bytes: &[u8]) -> io::Result<()> {
    let first = poll_fn(|cx| Poll::Ready(Pin::new(&mut *sink).poll_write(cx, bytes))).await;
    let written = match first {
        Poll::Ready(result) => result?,
        Poll::Pending => 0,
    };
    let rest = bytes.get(written..).unwrap_or_default();
    if rest.is_empty()
        && let Poll::Ready(flushed) = poll_fn(|cx| Poll::Ready(Pin::new(&mut *sink).poll_flush(cx))).await
    {
        return flushed;
    }
    let all = async {
        sink.write_all(rest).await?;
        sink.flush().await
    };
    tokio::time::timeout(WRITE_TIMEOUT, all).await?
}

/// A result buffer of its own, for tests of engines: collects what a client of these capabilities would be sent.
#[derive(Debug)]
pub struct Collected {
    buffer: PacketBuffer,
    state: ResultState,
}

impl Collected {
    pub fn new(binary: bool) -> Collected {
        let mut state = ResultState::new(capability::SERVER);
        state.start_command(binary, super::status::AUTOCOMMIT);
        Collected { buffer: PacketBuffer::new(), state }
    }

    /// Ready for the next answer; keeps its memory.
    pub fn restart(&mut self, binary: bool) {
        self.buffer.clear();
        self.state.start_command(binary, super::status::AUTOCOMMIT);
    }

    pub fn output(&mut self) -> Output<'_> {
        Output::in_memory(&mut self.buffer, &mut self.state)
    }

    /// One of which as much is forgotten as a client would have been sent.
    pub fn unread(&mut self) -> Output<'_> {
        Output { is_unread: true, ..self.output() }
    }

    /// The packets written so far have been taken; a result that is open stays so.
    pub fn forget(&mut self) {
        self.buffer.clear();
    }

    /// The packets written so far.
    pub fn bytes(&self) -> &[u8] {
        self.buffer.complete()
    }

    /// Whether a whole answer was written.
    pub fn is_answered(&self) -> bool {
        self.state.is_answered()
    }
}
