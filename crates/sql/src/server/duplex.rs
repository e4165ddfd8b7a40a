//! The client's end of a connection while a command is executed: answers go there, and a file may come from there.
//!
//! A client that was asked for a file sends all of it, whatever becomes of the statement, before it reads the answer. So an error in the middle waits until
//! the file has been read and thrown away. The connection ends where that cannot be: the client sends nothing for [`READ_TIMEOUT`], is gone, numbers
//! its packets wrongly, or is to be killed.

use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::{Pin, pin};
use std::task::Poll;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::sleep;

use super::{limits::READ_TIMEOUT, registry::Interrupt};
use crate::wire::{
    SqlError,
    file::{FilePackets, Piece},
};

/// Both directions of a connection.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Stream for S {}

/// What ended a wait for bytes.
enum Read {
    Bytes(usize),
    Stopped,
    Late,
    Gone,
}

async fn read(stream: &mut dyn Stream, interrupt: &Interrupt, stoppable: bool, space: &mut [u8]) -> Read {
    let mut stop = pin!(async { if stoppable { interrupt.asked().await } else { interrupt.ended().await } });
    let mut late = pin!(sleep(READ_TIMEOUT));
    poll_fn(|cx| {
        if stop.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Read::Stopped);
        }
        let mut buffer = ReadBuf::new(space);
        match Pin::new(&mut *stream).poll_read(cx, &mut buffer) {
            Poll::Ready(Ok(())) if !buffer.filled().is_empty() => Poll::Ready(Read::Bytes(buffer.filled().len())),
            Poll::Ready(_) => Poll::Ready(Read::Gone),
            Poll::Pending => late.as_mut().poll(cx).map(|()| Read::Late),
        }
    })
    .await
}

pub(super) struct Duplex<'a> {
    stream: &'a mut dyn Stream,
    interrupt: &'a Interrupt,
    /// What has come behind the command.
    ahead: &'a [u8],
    /// From the first file of the command on.
    file: Option<FilePackets>,
    is_in_file: bool,
    is_lost: bool,
}

/// What a command leaves behind of its connection.
pub(super) struct Left {
    /// What has come behind the files that the command has read; `None`: it has read none.
    pub input: Option<Vec<u8>>,
    /// Nothing that comes can be trusted.
    pub is_lost: bool,
}

impl<'a> Duplex<'a> {
    pub fn new(stream: &'a mut dyn Stream, interrupt: &'a Interrupt, ahead: &'a [u8]) -> Duplex<'a> {
        Duplex { stream, interrupt, ahead, file: None, is_in_file: false, is_lost: false }
    }

    pub fn stream(&mut self) -> &mut dyn Stream {
        &mut *self.stream
    }

    /// The client was asked for a file; the first packet of it has this number.
    pub fn begin_file(&mut self, sequence: u8) {
        match &mut self.file {
            Some(file) => file.begin(sequence),
            None => self.file = Some(FilePackets::new(self.ahead, sequence)),
        }
        self.is_in_file = true;
    }

    /// The number of the next packet in either direction.
    pub fn sequence(&self) -> u8 {
        self.file.as_ref().map_or(0, FilePackets::sequence)
    }

    /// What comes next of the file, to be read by [`Duplex::bytes`]; `None`: it has ended. Stops waiting when the statement is to end, if `stoppable`,
    /// otherwise only when the connection is.
    pub async fn next_of_file(&mut self, stoppable: bool) -> Result<Option<Range<usize>>, SqlError> {
        let Some(file) = self.file.as_mut().filter(|_| self.is_in_file && !self.is_lost) else { return Ok(None) };
        loop {
            match file.next_piece() {
                Ok(Piece::Bytes(piece)) => return Ok(Some(piece)),
                Ok(Piece::End) => {
                    self.is_in_file = false;
                    return Ok(None);
                }
                Ok(Piece::Missing) => {}
                Err(error) => {
                    self.is_lost = true;
                    return Err(error.into());
                }
            }
            let failed = match read(&mut *self.stream, self.interrupt, stoppable, file.space()).await {
                Read::Bytes(count) => {
                    file.filled(count);
                    continue;
                }
                Read::Stopped => {
                    self.is_lost = self.interrupt.is_ending();
                    return Err(SqlError::new(1317, b"70100", "Query execution was interrupted"));
                }
                Read::Late => SqlError::new(1159, b"08S01", "Got timeout reading communication packets"),
                Read::Gone => SqlError::new(1158, b"08S01", "Got an error reading communication packets"),
            };
            self.is_lost = true;
            return Err(failed);
        }
    }

    /// Bytes of the file.
    pub fn bytes(&self, piece: Range<usize>) -> &[u8] {
        self.file.as_ref().map_or(&[], |file| file.bytes(piece))
    }

    pub fn left(self) -> Left {
        Left { input: self.file.map(|file| file.rest().to_vec()), is_lost: self.is_lost || self.is_in_file }
    }
}
