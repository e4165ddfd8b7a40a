//! Rows that an execution has made and its client fetches later: server-side cursors (COM_STMT_EXECUTE with `CURSOR_TYPE_READ_ONLY`, COM_STMT_FETCH).
//!
//! The statement is executed to its end when the cursor is opened, as MySQL does it, and its rows are held as the packets they will be sent as. So a cursor sees one moment of the
//! database, holds no lock and no snapshot, and stays open when its transaction ends. It closes with its last row, with the next execution, COM_STMT_RESET or COM_STMT_CLOSE of its
//! statement, and with the session.
//!
//! Rows leave memory as they are fetched, a piece of about [`super::limits::OUTPUT_FLUSH_BYTES`] at a time. One cursor holds at most [`CURSOR_BYTES_MAX`], all of a server
//! [`CURSORS_BYTES_MAX`]; a statement with more fails with error 3170 before its client sees any of it.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use super::{
    Engine, Output,
    limits::{CURSOR_BYTES_MAX, CURSORS_BYTES_MAX},
};
use crate::wire::{
    ParamValue, SqlError,
    packet::{PacketBuffer, split_packet},
};

/// What all cursors of a server hold, in bytes.
#[derive(Debug, Default)]
pub(super) struct Held(AtomicUsize);

impl Held {
    fn add(&self, bytes: usize) -> bool {
        let is_room = |held: usize| held.checked_add(bytes).filter(|sum| *sum <= CURSORS_BYTES_MAX);
        self.0.fetch_update(Relaxed, Relaxed, is_room).is_ok()
    }
}

fn too_many(bytes: usize, of: &str) -> SqlError {
    let text = format!("Memory capacity of {bytes} bytes for '{of}' exceeded. Fetch fewer rows, or without a cursor");
    SqlError::new(3170, b"HY000", text)
}

/// The packets of a result that nobody has seen yet.
#[derive(Debug)]
pub(super) struct Rows {
    pieces: VecDeque<Vec<u8>>,
    /// So much of the first piece is taken.
    taken: usize,
    bytes: usize,
    all: Arc<Held>,
}

impl Rows {
    fn new(all: Arc<Held>) -> Rows {
        Rows { pieces: VecDeque::new(), taken: 0, bytes: 0, all }
    }

    /// Takes over complete packets.
    ///
    /// # Errors
    /// 3170: that would be too much.
    pub fn hold(&mut self, packets: &[u8]) -> Result<(), SqlError> {
        if self.bytes + packets.len() > CURSOR_BYTES_MAX {
            return Err(too_many(CURSOR_BYTES_MAX, "rows of a cursor"));
        }
        if !self.all.add(packets.len()) {
            return Err(too_many(CURSORS_BYTES_MAX, "rows of all cursors"));
        }
        self.bytes += packets.len();
        self.pieces.push_back(packets.to_vec());
        Ok(())
    }

    /// Forgets all but the first pieces.
    pub fn take_back(&mut self, pieces: usize) {
        while self.pieces.len() > pieces {
            self.forget(VecDeque::pop_back);
        }
    }

    fn forget(&mut self, which: fn(&mut VecDeque<Vec<u8>>) -> Option<Vec<u8>>) {
        let bytes = which(&mut self.pieces).map_or(0, |piece| piece.len());
        self.bytes -= bytes;
        self.all.0.fetch_sub(bytes, Relaxed);
    }

    /// Sends the next packet; false: there is none.
    fn send(&mut self, out: &mut Output<'_>) -> bool {
        while self.pieces.front().is_some_and(|piece| self.taken == piece.len()) {
            self.forget(VecDeque::pop_front);
            self.taken = 0;
        }
        let Some(piece) = self.pieces.front() else { return false };
        let count = out.packet(|payload| split_packet(&piece[self.taken..], payload));
        self.taken += count;
        true
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        self.take_back(0);
    }
}

/// An open cursor.
#[derive(Debug)]
pub(super) struct OpenCursor(Rows);

impl OpenCursor {
    /// Executes a statement, holds its rows and answers with their columns. `None`: it has no rows, and is answered.
    ///
    /// # Errors
    /// Those of the statement; 3170: its rows are too many.
    pub async fn open<E: Engine>(
        engine: &E,
        session: &mut E::Session,
        (id, params): (u32, &[ParamValue<'_>]),
        all: Arc<Held>,
        out: &mut Output<'_>,
    ) -> Result<Option<OpenCursor>, SqlError> {
        let (mut buffer, mut rows) = (PacketBuffer::new(), Rows::new(all));
        engine.execute(session, id, params, &mut out.holding(&mut buffer, &mut rows)).await?;
        if !out.is_answered() {
            return Err(SqlError::new(1105, b"HY000", "Internal error: a cursor without all of its rows"));
        }
        let Some(result) = out.held_result() else {
            rows.hold(buffer.complete())?;
            while rows.send(out) {}
            return Ok(None);
        };
        rows.hold(&buffer.complete()[..result.end])?;
        for _ in 0..result.definitions {
            rows.send(out);
        }
        out.end_of_cursor(result.warnings, false);
        Ok(Some(OpenCursor(rows)))
    }

    /// Sends up to `count` rows; false: they were the last, and fewer than asked for.
    ///
    /// # Errors
    /// 1160: the client is gone.
    pub async fn fetch(&mut self, count: u32, out: &mut Output<'_>) -> Result<bool, SqlError> {
        for _ in 0..count {
            if !self.0.send(out) {
                out.end_of_cursor(0, true);
                return Ok(false);
            }
            out.flush_if_full().await?;
        }
        out.end_of_cursor(0, false);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_counted_and_bounded() {
        let all = Arc::new(Held::default());
        let piece = vec![0; CURSOR_BYTES_MAX / 4];
        let mut cursors: Vec<Rows> = Vec::new();
        for _ in 0..CURSORS_BYTES_MAX / CURSOR_BYTES_MAX {
            let mut rows = Rows::new(all.clone());
            (0..4).for_each(|_| rows.hold(&piece).unwrap());
            assert_eq!(rows.hold(&[0]).unwrap_err().errno, 3170, "of one cursor");
            cursors.push(rows);
        }
        let mut more = Rows::new(all.clone());
        assert_eq!(more.hold(&[0]).unwrap_err().errno, 3170, "of all");
        cursors[0].take_back(3);
        more.hold(&piece).unwrap();
        drop((more, cursors));
        assert_eq!(all.0.load(Relaxed), 0);
    }
}
