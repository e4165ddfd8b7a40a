//! The rows of a query on their way into a file.
//!
//! A row is made as for a client, by the text protocol, and taken apart again: what a value looks like is said in one place. Lines are collected until there are [`PIECE_BYTES`] of them, which a
//! thread writes that may wait; meanwhile the query waits, so a slow disk slows it down and nothing grows.

use std::{
    fs::File,
    io::{Seek as _, Write as _},
    sync::Arc,
};

use super::{
    Begun, PIECE_BYTES, Places, aside,
    clause::{Clause, Rows},
    encode::{Column, Encoder, dumped},
};
use crate::{
    errors::{self, Result, WARNINGS_MAX},
    exec::target::Target,
    expr::Context,
    plan::{Select, select::Output as Heading},
    server::{Collected, Interrupt, Output},
    session::Session,
    value::datum::Datum,
    wire::SqlError,
};

/// Rows of a DUMPFILE; MySQL takes two.
const DUMPED_ROWS_MAX: u64 = 2;
/// In front of each packet.
const HEADER_BYTES: usize = 4;

/// What values become.
enum Into {
    Lines(Encoder),
    /// DUMPFILE.
    Bytes(Vec<Column>),
}

/// A file that rows are written to.
pub struct Written {
    name: String,
    /// `None`: while it is written by another thread, and when that has failed.
    file: Option<File>,
    interrupt: Arc<Interrupt>,
    into: Into,
    row: Collected,
    lines: Vec<u8>,
    pub rows: u64,
    refused: Vec<SqlError>,
}

impl Written {
    /// Makes the file. One that an earlier attempt of the same statement has made begins again.
    ///
    /// # Errors
    /// As [`Places::create`].
    pub async fn create(session: &Session, clause: &Clause, plan: &Select) -> Result<Written> {
        let interrupt = session.info.interrupt.clone();
        let begun = session.env.begun_file.take().filter(|begun| begun.name == clause.name);
        let (name, places) = (clause.name.clone(), session.env.variables.places().clone());
        let file = aside(&interrupt, move || make(begun, &name, &places)).await??;
        let columns = plan.outputs.iter().map(Column::of).collect();
        let into = match &clause.rows {
            Some(rows) => Into::Lines(encoder(session, rows, columns)),
            None => Into::Bytes(columns),
        };
        let mut row = Collected::new(false);
        row.output().begin_rows_of(&plan.defs);
        row.forget();
        let kept = file.try_clone().map_err(|e| errors::file_not_created(&clause.name, &e))?;
        session.env.begun_file.replace(Some(Begun { name: clause.name.clone(), file: kept }));
        Ok(Written {
            name: clause.name.clone(),
            file: Some(file),
            interrupt,
            into,
            row,
            lines: Vec::new(),
            rows: 0,
            refused: Vec::new(),
        })
    }

    /// Writes what is left, and says what was wrong with values.
    ///
    /// # Errors
    /// 3: it could not be written.
    pub async fn finish(mut self, session: &Session) -> Result<u64> {
        let done = self.write().await;
        self.refused.into_iter().for_each(|e| session.env.note(e));
        done.map(|()| self.rows)
    }

    async fn write(&mut self) -> Result<()> {
        if self.lines.is_empty() {
            return Ok(());
        }
        let Some(mut file) = self.file.take() else { return Ok(()) };
        let lines = std::mem::take(&mut self.lines);
        let work = move || {
            let done = file.write_all(&lines);
            (file, lines, done)
        };
        let (file, mut lines, done) = aside(&self.interrupt, work).await?;
        done.map_err(|e| errors::file_not_written(&self.name, &e))?;
        lines.clear();
        (self.file, self.lines) = (Some(file), lines);
        Ok(())
    }

    /// Takes the row that was made last.
    fn take_row(&mut self) -> Result<()> {
        self.rows += 1;
        let whole;
        let payload = match payload(self.row.bytes()) {
            Payload::One(payload) => payload,
            Payload::Several(joined) => {
                whole = joined;
                &whole
            }
        };
        let cells = Cells { rest: payload };
        match &self.into {
            Into::Lines(encoder) => encoder.row(cells, self.rows, &mut self.lines, &mut self.refused),
            Into::Bytes(_) if self.rows > DUMPED_ROWS_MAX => return Err(errors::several_rows()),
            Into::Bytes(columns) => {
                columns
                    .iter()
                    .zip(cells)
                    .for_each(|(column, cell)| self.lines.extend_from_slice(&dumped(column, cell)));
            }
        }
        self.refused.truncate(WARNINGS_MAX);
        self.row.forget();
        Ok(())
    }
}

impl Target for Written {
    fn row_of(&mut self, outputs: &[Heading], cx: &Context<'_>) -> Result<()> {
        // After an error nothing more is made: the row stays open.
        self.row.output().row_of(outputs, cx)?;
        self.take_row()
    }
    fn row_of_values(&mut self, outputs: &[Heading], values: &[Datum<'_>]) -> Result<()> {
        Output::row_of_values(&mut self.row.output(), outputs, values)?;
        self.take_row()
    }
    async fn flush_if_full(&mut self) -> Result<()> {
        if self.lines.len() < PIECE_BYTES { Ok(()) } else { self.write().await }
    }
}

fn make(begun: Option<Begun>, name: &str, places: &Places) -> Result<File> {
    let Some(Begun { mut file, .. }) = begun else { return places.create(name) };
    let emptied = file.set_len(0).and_then(|()| file.rewind());
    emptied.map_err(|e| errors::file_not_written(name, &e))?;
    Ok(file)
}

fn encoder(session: &Session, rows: &Rows, columns: Vec<Column>) -> Encoder {
    if rows.has_long_separator {
        session.env.note(errors::long_separator());
    }
    let encoder = Encoder::new(rows.format.clone(), rows.charset, columns);
    if encoder.is_ambiguous {
        session.env.note(errors::ambiguous_separator());
    }
    encoder
}

enum Payload<'p> {
    One(&'p [u8]),
    Several(Vec<u8>),
}

/// What the packets of a row hold.
fn payload(packets: &[u8]) -> Payload<'_> {
    let length = |head: &[u8]| usize::from(head[0]) | usize::from(head[1]) << 8 | usize::from(head[2]) << 16;
    if packets.len() < HEADER_BYTES || packets.len() == HEADER_BYTES + length(packets) {
        return Payload::One(packets.get(HEADER_BYTES..).unwrap_or(&[]));
    }
    let (mut joined, mut rest) = (Vec::with_capacity(packets.len()), packets);
    while rest.len() >= HEADER_BYTES {
        let end = (HEADER_BYTES + length(rest)).min(rest.len());
        joined.extend_from_slice(&rest[HEADER_BYTES..end]);
        rest = &rest[end..];
    }
    Payload::Several(joined)
}

/// The cells of a row of the text protocol.
struct Cells<'r> {
    rest: &'r [u8],
}

impl<'r> Iterator for Cells<'r> {
    type Item = Option<&'r [u8]>;

    fn next(&mut self) -> Option<Option<&'r [u8]>> {
        const NULL: u8 = 0xfb;
        let (&first, rest) = self.rest.split_first()?;
        if first == NULL {
            self.rest = rest;
            return Some(None);
        }
        let width = match first {
            0xfc => 2,
            0xfd => 3,
            0xfe => 8,
            _ => 0,
        };
        let (digits, rest) = rest.split_at_checked(width)?;
        let number = digits.iter().rev().fold(0, |sum, b| sum << 8 | usize::from(*b));
        let (cell, rest) = rest.split_at_checked(if width == 0 { usize::from(first) } else { number })?;
        self.rest = rest;
        Some(Some(cell))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_of_all_lengths_come_back() {
        let long = vec![b'x'; 70_000];
        let mut row = vec![1, b'a', 0xfb, 0, 0xfc, 2, 0, b'b', b'c', 0xfd];
        row.extend_from_slice(&70_000u32.to_le_bytes()[..3]);
        row.extend_from_slice(&long);
        let cells: Vec<_> = Cells { rest: &row }.collect();
        assert_eq!(cells, [Some(&b"a"[..]), None, Some(b""), Some(b"bc"), Some(&long)]);
        let packets = [&[2, 0, 0, 0, 1, 2][..], &[1, 0, 0, 1, 3]].concat();
        assert!(matches!(payload(&packets), Payload::Several(joined) if joined == [1, 2, 3]));
    }
}
