//! Records one after the other: written to the end of a file chunk by chunk, read in the same order.
//!
//! A record is a key and a payload, each with its length in front; no record lies in two chunks.

use std::{ops::Range, rc::Rc};

use super::{
    CHUNK_BYTES,
    file::{Chunk, File, HEADER_BYTES},
};
use crate::{
    errors::{self, Result},
    expr::Env,
};

/// In front of a record: the lengths of its key and of its payload.
const LENGTHS: usize = 8;

/// Records that were written.
#[derive(Debug)]
pub struct Stream {
    file: File,
    chunks: Vec<Chunk>,
    records: u64,
}

impl Stream {
    pub fn records(&self) -> u64 {
        self.records
    }
    /// To add more.
    pub fn reopen(self) -> (File, Writer) {
        let Stream { file, chunks, records } = self;
        (file, Writer { chunks, records, ..Writer::default() })
    }
}

/// Records that are being written.
#[derive(Debug)]
pub struct Writer {
    /// Those that are not in the file yet, behind room for the header.
    buffer: Vec<u8>,
    chunks: Vec<Chunk>,
    records: u64,
}

impl Default for Writer {
    fn default() -> Writer {
        Writer { buffer: vec![0; HEADER_BYTES], chunks: Vec::new(), records: 0 }
    }
}

impl Writer {
    /// Adds a record; whoever adds many looks at [`Writer::is_full`].
    pub fn push(&mut self, key: &[u8], payload: &[u8]) {
        self.push_parts(key, &[payload]);
    }

    /// As [`Writer::push`] of a payload in parts.
    pub fn push_parts(&mut self, key: &[u8], parts: &[&[u8]]) {
        let length = parts.iter().map(|part| part.len()).sum::<usize>();
        self.buffer.extend_from_slice(&word(key.len()));
        self.buffer.extend_from_slice(&word(length));
        self.buffer.extend_from_slice(key);
        parts.iter().for_each(|part| self.buffer.extend_from_slice(part));
        self.records += 1;
    }

    /// There is a chunk to write.
    pub fn is_full(&self) -> bool {
        self.buffer.len() >= CHUNK_BYTES
    }

    /// Writes what is in memory.
    ///
    /// # Errors
    /// As [`File::append`].
    pub async fn flush(&mut self, file: &File, env: &Env) -> Result<()> {
        if self.buffer.len() > HEADER_BYTES {
            let (chunk, mut buffer) = file.append(std::mem::take(&mut self.buffer), env).await?;
            self.chunks.push(chunk);
            buffer.truncate(HEADER_BYTES);
            buffer.shrink_to(2 * CHUNK_BYTES);
            self.buffer = buffer;
        }
        Ok(())
    }

    /// Ends it.
    ///
    /// # Errors
    /// As [`File::append`].
    pub async fn end(mut self, file: &File, env: &Env) -> Result<Stream> {
        self.flush(file, env).await?;
        Ok(Stream { file: file.clone(), chunks: self.chunks, records: self.records })
    }
}

fn word(length: usize) -> [u8; 4] {
    u32::try_from(length).expect("memory limits keep a record below 4 GiB").to_le_bytes()
}

/// Goes through the records of a stream, once.
#[derive(Debug)]
pub struct Reader {
    stream: Rc<Stream>,
    next_chunk: usize,
    buffer: Vec<u8>,
    /// Where the next record begins in the buffer.
    next: usize,
    key: Range<usize>,
    payload: Range<usize>,
    is_back: bool,
}

impl Reader {
    pub fn new(stream: Rc<Stream>) -> Reader {
        Reader { stream, next_chunk: 0, buffer: Vec::new(), next: 0, key: 0..0, payload: 0..0, is_back: false }
    }

    /// The next [`Reader::advance`] comes to the same record again.
    pub fn step_back(&mut self) {
        self.is_back = true;
    }

    /// Goes to the next record; false behind the last.
    ///
    /// # Errors
    /// As [`File::read`].
    pub async fn advance(&mut self, env: &Env) -> Result<bool> {
        if std::mem::take(&mut self.is_back) {
            return Ok(true);
        }
        if self.next >= self.buffer.len() {
            let Some(&chunk) = self.stream.chunks.get(self.next_chunk) else { return Ok(false) };
            self.buffer = self.stream.file.read(chunk, std::mem::take(&mut self.buffer), env).await?;
            (self.next_chunk, self.next) = (self.next_chunk + 1, HEADER_BYTES);
        }
        let length = |at: usize| {
            let bytes = self.buffer.get(at..).and_then(|rest| rest.first_chunk::<4>());
            bytes.map_or(usize::MAX, |bytes| u32::from_le_bytes(*bytes) as usize)
        };
        let start = self.next + LENGTHS;
        let middle = start.saturating_add(length(self.next));
        let end = middle.saturating_add(length(self.next + 4));
        if end > self.buffer.len() {
            return Err(errors::internal("a record that is cut off"));
        }
        (self.key, self.payload, self.next) = (start..middle, middle..end, end);
        Ok(true)
    }

    /// The record that [`Reader::advance`] came to.
    pub fn key(&self) -> &[u8] {
        &self.buffer[self.key.clone()]
    }
    pub fn payload(&self) -> &[u8] {
        &self.buffer[self.payload.clone()]
    }
}
