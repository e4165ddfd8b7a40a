//! Writing results: OK, ERR, EOF, column definitions, rows in the text and the binary protocol.
//!
//! A [`ResultWriter`] borrows a connection's output buffer and its [`ResultState`], and appends; nothing is allocated
//! per row. The order of calls for a result set is `begin_rows`, then per row `row_start`, one cell call per column,
//! `row_end`, and last `end_rows`. Any number of results may follow one another; before each but the last the caller
//! sets [`ResultWriter::set_more_results`]. `error` may be called anywhere: an unfinished row is dropped.
//!
//! A wrong order of calls or a cell that does not fit its column's declared type is our own bug and asserts.

mod cells;
pub mod column;

use apus_types::collate::Charset;

use self::column::{ColumnDef, ColumnType, Heading, told_as};
use super::{
    characters,
    constants::{CHARSET_BINARY, capability, column_flag, status},
    fill,
    packet::{PacketBuffer, push_lenenc, push_lenenc_bytes},
};

#[derive(Debug, Clone, Copy)]
struct Cell {
    column_type: ColumnType,
    decimals: u8,
    /// Its texts are written in another character set, or filled with zeros.
    is_rewritten: bool,
    /// A number is filled with zeros to so many characters.
    fill: u8,
}

/// What a connection remembers between the calls of a [`ResultWriter`]; reused for all its results.
#[derive(Debug)]
pub struct ResultState {
    cells: Vec<Cell>,
    /// Index of the next cell of the open row.
    next: usize,
    /// Where the open row's cells start in the output buffer; in the binary protocol, its NULL bitmap.
    cells_at: usize,
    binary: bool,
    /// Texts of the open result are filled with zeros.
    fills: bool,
    deprecate_eof: bool,
    status: u16,
    more_results: bool,
    rows_open: bool,
    tracks: bool,
    /// Changes of the session that the next OK tells.
    changes: Vec<u8>,
    /// Rows are held for a cursor, whose definitions end when it is open.
    is_held: bool,
    /// Of the result set that has ended last in this command.
    ended: Option<HeldResult>,
    finished: u64,
    /// In which the client is told texts.
    results: Charset,
}

/// What is known of a result set by its end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeldResult {
    /// Packets from the count of columns to the last definition of one.
    pub definitions: usize,
    /// Where its last packet begins in the output buffer.
    pub end: usize,
    pub warnings: u16,
}

impl ResultState {
    /// `capabilities` as negotiated with the client.
    pub fn new(capabilities: u32) -> ResultState {
        ResultState {
            cells: Vec::new(),
            next: 0,
            cells_at: 0,
            binary: false,
            fills: false,
            deprecate_eof: capabilities & capability::DEPRECATE_EOF != 0,
            status: status::AUTOCOMMIT,
            more_results: false,
            rows_open: false,
            tracks: capabilities & capability::SESSION_TRACK != 0,
            changes: Vec::new(),
            is_held: false,
            ended: None,
            finished: 0,
            results: Charset::Utf8mb4,
        }
    }

    /// Texts are told in this character set from here on.
    pub fn speak(&mut self, results: Charset) {
        self.results = results;
    }

    /// A new command starts: rows in the binary protocol for EXECUTE, in the text protocol for QUERY.
    pub fn start_command(&mut self, binary: bool, status: u16) {
        self.binary = binary;
        self.status = status;
        self.more_results = false;
        self.rows_open = false;
        self.is_held = false;
        self.changes.clear();
        self.ended = None;
        self.finished = 0;
    }

    /// Whether the command was answered completely: at least one result, none left open, none promised.
    pub fn is_answered(&self) -> bool {
        self.finished > 0 && !self.rows_open && !self.more_results
    }
}

/// Appends results to a connection's output buffer.
#[derive(Debug)]
pub struct ResultWriter<'a> {
    out: &'a mut PacketBuffer,
    state: &'a mut ResultState,
}

impl<'a> ResultWriter<'a> {
    pub fn new(out: &'a mut PacketBuffer, state: &'a mut ResultState) -> ResultWriter<'a> {
        ResultWriter { out, state }
    }

    /// Status flags (autocommit, in transaction, ...) that the following OK and EOF packets carry.
    /// [`super::constants::status::MORE_RESULTS_EXISTS`] is added by [`set_more_results`](Self::set_more_results).
    pub fn set_status(&mut self, status: u16) {
        self.state.status = status & !status::MORE_RESULTS_EXISTS;
    }

    /// As [`ResultState::speak`].
    pub fn speak(&mut self, results: Charset) {
        self.state.speak(results);
    }

    /// Whether another result follows the one being written.
    pub fn set_more_results(&mut self, more: bool) {
        self.state.more_results = more;
    }

    pub fn has_more_results(&self) -> bool {
        self.state.more_results
    }

    /// Whether rows are encoded in the binary protocol (EXECUTE) rather than the text protocol (QUERY).
    pub fn is_binary(&self) -> bool {
        self.state.binary
    }

    /// Complete bytes waiting for a flush.
    #[inline]
    pub fn pending(&self) -> usize {
        self.out.pending()
    }

    pub(crate) fn buffer(&mut self) -> &mut PacketBuffer {
        self.out
    }

    /// Forgets an unfinished result set and what was written behind `pending` bytes.
    pub(crate) fn take_back(&mut self, pending: usize, sequence: u8, finished: u64) {
        self.out.take_back(pending, sequence);
        self.state.rows_open = false;
        self.state.finished = finished;
    }
    /// As [`ResultState::is_answered`].
    pub(crate) fn is_answered(&self) -> bool {
        self.state.is_answered()
    }
    /// Results that are complete since the command started.
    pub(crate) fn finished(&self) -> u64 {
        self.state.finished
    }

    /// A writer of the same command into another buffer, whose rows are held for a cursor.
    pub(crate) fn holding<'b>(&'b mut self, buffer: &'b mut PacketBuffer) -> ResultWriter<'b> {
        self.state.is_held = true;
        ResultWriter { out: buffer, state: &mut *self.state }
    }

    /// The result set that was held; `None`: there was no such.
    pub(crate) fn held_result(&mut self) -> Option<HeldResult> {
        self.state.is_held = false;
        self.state.ended
    }

    /// Ends the definitions of an open cursor, or some rows of it: the last, or not.
    pub(crate) fn end_of_cursor(&mut self, warnings: u16, is_last: bool) {
        self.state.status |= if is_last { status::LAST_ROW_SENT } else { status::CURSOR_EXISTS };
        self.end_of_data(warnings);
    }

    /// A packet whose payload is appended by `write`, which says something of it.
    pub(crate) fn packet<T>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let said = write(self.out.begin());
        self.out.end();
        said
    }

    /// Starts a result set: column count and definitions.
    pub fn begin_rows(&mut self, columns: &[ColumnDef]) {
        self.tell_columns(columns);
        self.open_rows(columns);
    }

    /// [`begin_rows`](Self::begin_rows) of a plan, by the bytes that it was told with before.
    pub fn begin_rows_of(&mut self, heading: &Heading) {
        match heading.told.get() {
            _ if !characters::is_utf8(self.state.results) => self.tell_columns(heading),
            Some(packets) => self.out.append(packets),
            None => {
                let start = self.out.pending();
                self.tell_columns(heading);
                let packets = self.out.since(start);
                if packets.len() <= Heading::BYTES_MAX {
                    heading.told.get_or_init(|| packets.into());
                }
            }
        }
        self.open_rows(heading);
    }

    fn tell_columns(&mut self, columns: &[ColumnDef]) {
        push_lenenc(self.out.begin(), columns.len() as u64);
        self.out.end();
        columns.iter().for_each(|column| self.column_definition(column, false));
    }

    fn open_rows(&mut self, columns: &[ColumnDef]) {
        assert!(!self.state.rows_open && !columns.is_empty(), "a result set starts once and has columns");
        self.state.cells.clear();
        let is_other = !matches!(self.state.results, Charset::Utf8mb4 | Charset::Binary);
        let cell = |column: &ColumnDef| {
            let is_foreign = is_other && (column.charset != CHARSET_BINARY || column.column_type == ColumnType::Json);
            let fill = if column.flags & column_flag::ZEROFILL == 0 { 0 } else { column.length.min(255) as u8 };
            let is_rewritten = is_foreign || fill > 0;
            Cell { column_type: column.column_type, decimals: column.decimals, is_rewritten, fill }
        };
        self.state.cells.extend(columns.iter().map(cell));
        self.state.fills = !self.state.binary && self.state.cells.iter().any(|cell| cell.fill > 0);
        if !self.state.deprecate_eof && !self.state.is_held {
            self.eof(0);
        }
        self.state.rows_open = true;
    }

    /// Starts a row.
    #[inline]
    pub fn row_start(&mut self) {
        assert!(self.state.rows_open, "a row outside of a result set");
        let payload = self.out.begin();
        if self.state.binary {
            payload.push(0);
        }
        self.state.cells_at = payload.len();
        if self.state.binary {
            payload.resize(payload.len() + (self.state.cells.len() + 9) / 8, 0);
        }
        self.state.next = 0;
    }

    /// Ends a row; every column has had its cell.
    #[inline]
    pub fn row_end(&mut self) {
        assert_eq!(self.state.next, self.state.cells.len(), "cells of a row against its columns");
        if self.state.fills {
            fill::row(self.out.payload(), self.state.cells_at, self.state.cells.iter().map(|cell| cell.fill));
        }
        self.out.end();
    }

    /// Ends the result set. `status` as in [`set_status`](Self::set_status).
    pub fn end_rows(&mut self, warnings: u16, status: u16) {
        assert!(self.state.rows_open, "end of rows without a result set");
        self.set_status(status);
        self.state.rows_open = false;
        self.state.ended =
            Some(HeldResult { definitions: 1 + self.state.cells.len(), end: self.out.pending(), warnings });
        self.end_of_data(warnings);
    }

    /// What ends rows and definitions: EOF, or OK under EOF's header for clients that no longer want EOF.
    pub(crate) fn end_of_data(&mut self, warnings: u16) {
        self.state.finished += 1;
        if !self.state.deprecate_eof {
            return self.eof(warnings);
        }
        let flags = self.status_flags();
        let payload = self.out.begin();
        payload.extend_from_slice(&[0xfe, 0, 0]);
        payload.extend_from_slice(&flags.to_le_bytes());
        payload.extend_from_slice(&warnings.to_le_bytes());
        self.end_ok("");
    }

    /// A result without rows.
    pub fn ok(&mut self, affected: u64, last_insert_id: u64, warnings: u16, info: &str) {
        assert!(!self.state.rows_open, "OK inside a result set");
        self.state.finished += 1;
        let flags = self.status_flags();
        let payload = self.out.begin();
        payload.push(0);
        push_lenenc(payload, affected);
        push_lenenc(payload, last_insert_id);
        payload.extend_from_slice(&flags.to_le_bytes());
        payload.extend_from_slice(&warnings.to_le_bytes());
        self.end_ok(info);
    }

    /// Ends an OK packet with its text and what has changed in the session.
    fn end_ok(&mut self, info: &str) {
        let changes = &mut self.state.changes;
        let payload = self.out.payload();
        if !info.is_empty() || !changes.is_empty() {
            // Length-encoded, as servers send it and client libraries read it, whatever the documentation says.
            push_lenenc_bytes(payload, info.as_bytes());
        }
        if !changes.is_empty() {
            push_lenenc_bytes(payload, changes);
            changes.clear();
        }
        self.out.end();
    }

    /// The next OK tells of a change of the session, if the client wants to know.
    pub fn session_change(&mut self, kind: u8, what: &[u8]) {
        if self.state.tracks {
            self.state.changes.push(kind);
            push_lenenc_bytes(&mut self.state.changes, what);
        }
    }

    /// The last result of the command: an error. Drops an unfinished row.
    pub fn error(&mut self, errno: u16, sqlstate: &[u8; 5], message: &str) {
        self.out.abandon();
        self.state.rows_open = false;
        self.state.more_results = false;
        self.state.finished += 1;
        write_error(self.out, errno, Some(sqlstate), &characters::write(self.state.results, message.as_bytes()));
    }

    /// A column definition as in result sets, and, with its default value, in answers to FIELD_LIST.
    pub(crate) fn column_definition(&mut self, column: &ColumnDef, with_default: bool) {
        let results = if characters::is_utf8(self.state.results) { Charset::Utf8mb4 } else { self.state.results };
        let (charset, length) = told_as(column, results);
        let payload = self.out.begin();
        push_lenenc_bytes(payload, b"def");
        for text in [&column.schema, &column.table, &column.org_table, &column.name, &column.org_name] {
            push_lenenc_bytes(payload, &characters::write(results, text.as_bytes()));
        }
        payload.push(0x0c);
        payload.extend_from_slice(&charset.to_le_bytes());
        payload.extend_from_slice(&length.to_le_bytes());
        payload.push(column.column_type as u8);
        payload.extend_from_slice(&column.flags.to_le_bytes());
        payload.extend_from_slice(&[column.decimals, 0, 0]);
        if with_default {
            payload.push(0xfb);
        }
        self.out.end();
    }

    /// The answer to PREPARE: statement id, then definitions of parameters and columns.
    pub(crate) fn prepared(&mut self, id: u32, params: &[ColumnDef], columns: &[ColumnDef], warnings: u16) {
        let payload = self.out.begin();
        payload.push(0);
        payload.extend_from_slice(&id.to_le_bytes());
        // The caller refused statements whose counts do not fit (error 1390).
        payload.extend_from_slice(&(columns.len() as u16).to_le_bytes());
        payload.extend_from_slice(&(params.len() as u16).to_le_bytes());
        payload.push(0);
        payload.extend_from_slice(&warnings.to_le_bytes());
        self.out.end();
        for definitions in [params, columns] {
            for column in definitions {
                self.column_definition(column, false);
            }
            if !definitions.is_empty() && !self.state.deprecate_eof {
                self.eof(0);
            }
        }
        self.state.finished += 1;
    }

    /// The answer to FIELD_LIST: definitions and their end.
    pub(crate) fn field_list(&mut self, columns: &[ColumnDef]) {
        for column in columns {
            self.column_definition(column, true);
        }
        self.end_of_data(0);
    }

    fn eof(&mut self, warnings: u16) {
        let flags = self.status_flags() & !status::SESSION_STATE_CHANGED;
        let payload = self.out.begin();
        payload.push(0xfe);
        payload.extend_from_slice(&warnings.to_le_bytes());
        payload.extend_from_slice(&flags.to_le_bytes());
        self.out.end();
    }

    /// Asks the client for a file; what it sends comes before the answer goes on.
    pub(crate) fn file_request(&mut self, name: &[u8]) {
        let payload = self.out.begin();
        payload.push(0xfb);
        payload.extend_from_slice(name);
        self.out.end();
    }

    /// A packet that is only text: the answer to STATISTICS.
    pub(crate) fn text(&mut self, text: &str) {
        self.out.begin().extend_from_slice(text.as_bytes());
        self.out.end();
        self.state.finished += 1;
    }

    fn status_flags(&self) -> u16 {
        let more = if self.state.more_results { status::MORE_RESULTS_EXISTS } else { 0 };
        let changed = if self.state.changes.is_empty() { 0 } else { status::SESSION_STATE_CHANGED };
        self.state.status | more | changed
    }

    #[inline]
    fn next_cell(&mut self) -> Cell {
        let cell = self.state.cells.get(self.state.next).copied();
        self.state.next += 1;
        let Some(cell) = cell else { panic!("more cells than columns in a row") };
        cell
    }
}

/// Appends an ERR packet. Before the handshake no SQLSTATE is sent, since the client may not understand it.
pub fn write_error(out: &mut PacketBuffer, errno: u16, sqlstate: Option<&[u8; 5]>, message: &[u8]) {
    let payload = out.begin();
    payload.push(0xff);
    payload.extend_from_slice(&errno.to_le_bytes());
    if let Some(state) = sqlstate {
        payload.push(b'#');
        payload.extend_from_slice(state);
    }
    payload.extend_from_slice(message);
    out.end();
}
