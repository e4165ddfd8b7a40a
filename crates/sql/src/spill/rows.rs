//! Rows that are kept to be read in the order in which they came, once or often: in memory, or in a file when they are too many.

use std::rc::Rc;

use super::{
    CHUNK_BYTES,
    byte_strings::Strings,
    file::File,
    stream::{Reader, Stream, Writer},
};
use crate::{errors::Result, expr::Env};

/// Rows that were kept. Clones are the same rows.
#[derive(Clone, Debug)]
pub enum Kept {
    Memory(Rc<Strings>),
    File(Rc<Stream>),
}

impl Default for Kept {
    fn default() -> Kept {
        Kept::Memory(Rc::default())
    }
}

impl Kept {
    /// Memory used, in bytes.
    pub fn byte_len(&self) -> usize {
        match self {
            Kept::Memory(rows) => rows.byte_len(),
            Kept::File(_) => 0,
        }
    }
    pub fn is_empty(&self) -> bool {
        match self {
            Kept::Memory(rows) => rows.is_empty(),
            Kept::File(rows) => rows.records() == 0,
        }
    }
    /// All of them in memory; whoever asks for that has few.
    ///
    /// # Errors
    /// As [`File::read`].
    pub async fn into_memory(self, env: &Env) -> Result<Kept> {
        if let Kept::Memory(_) = self {
            return Ok(self);
        }
        let (mut rows, mut reader) = (Strings::default(), self.reader());
        while reader.advance(env).await? {
            rows.push(reader.row());
        }
        Ok(Kept::Memory(Rc::new(rows)))
    }
    pub fn reader(&self) -> RowReader {
        match self {
            Kept::Memory(rows) => RowReader::Memory(rows.clone(), 0),
            Kept::File(rows) => RowReader::File(Reader::new(rows.clone())),
        }
    }
}

/// Goes through rows, once.
#[derive(Debug)]
pub enum RowReader {
    /// And how many were taken.
    Memory(Rc<Strings>, usize),
    File(Reader),
}

impl RowReader {
    /// Goes to the next row; false behind the last.
    ///
    /// # Errors
    /// As [`File::read`]; KILL, the deadline.
    pub async fn advance(&mut self, env: &Env) -> Result<bool> {
        env.breathe(1).await?;
        match self {
            RowReader::Memory(rows, taken) => {
                *taken += 1;
                Ok(*taken <= rows.len())
            }
            RowReader::File(reader) => reader.advance(env).await,
        }
    }
    /// The row that [`RowReader::advance`] came to.
    pub fn row(&self) -> &[u8] {
        match self {
            RowReader::Memory(rows, taken) => rows.get(taken.wrapping_sub(1)).unwrap_or(&[]),
            RowReader::File(reader) => reader.payload(),
        }
    }
}

/// Rows that are being kept.
#[derive(Default, Debug)]
pub struct Gathered {
    /// In memory so far; all of them unless there is a file.
    pub rows: Strings,
    file: Option<(File, Writer)>,
}

impl Gathered {
    pub fn from_rows(rows: Strings) -> Gathered {
        Gathered { rows, file: None }
    }

    /// Goes on behind rows that were kept.
    ///
    /// # Errors
    /// As [`File::append`].
    pub async fn from_kept(kept: Kept, env: &Env) -> Result<Gathered> {
        let rows = match kept {
            Kept::Memory(rows) => return Ok(Gathered::from_rows(Rc::unwrap_or_clone(rows))),
            Kept::File(rows) => rows,
        };
        match Rc::try_unwrap(rows) {
            Ok(rows) => Ok(Gathered { rows: Strings::default(), file: Some(rows.reopen()) }),
            Err(shared) => {
                let mut gathered = Gathered::default();
                gathered.add_all(&Kept::File(shared), 0, env).await?;
                Ok(gathered)
            }
        }
    }

    /// Adds rows that were kept.
    ///
    /// # Errors
    /// As [`File::append`].
    pub async fn add_all(&mut self, kept: &Kept, bytes_max: usize, env: &Env) -> Result<()> {
        let mut reader = kept.reader();
        while reader.advance(env).await? {
            self.rows.push(reader.row());
            self.settle(bytes_max, env).await?;
        }
        Ok(())
    }

    /// Writes rows to the file when they take more memory than this.
    ///
    /// # Errors
    /// As [`File::append`].
    pub async fn settle(&mut self, bytes_max: usize, env: &Env) -> Result<()> {
        let most = if self.file.is_some() { CHUNK_BYTES } else { bytes_max };
        if self.rows.byte_len() > most { self.write(env).await } else { Ok(()) }
    }

    /// Whether [`Gathered::settle`] would write.
    pub fn is_full(&self, bytes_max: usize) -> bool {
        self.rows.byte_len() > if self.file.is_some() { CHUNK_BYTES } else { bytes_max }
    }

    async fn write(&mut self, env: &Env) -> Result<()> {
        let (file, mut writer) = match self.file.take() {
            Some(open) => open,
            None => (File::create(env).await?, Writer::default()),
        };
        for row in self.rows.iter() {
            writer.push(&[], row);
            if writer.is_full() {
                writer.flush(&file, env).await?;
            }
        }
        self.rows.clear();
        self.file = Some((file, writer));
        Ok(())
    }

    /// All of them.
    ///
    /// # Errors
    /// As [`File::append`].
    pub async fn end(mut self, env: &Env) -> Result<Kept> {
        if self.file.is_some() {
            self.write(env).await?;
        }
        Ok(match self.file {
            None => Kept::Memory(Rc::new(self.rows)),
            Some((file, writer)) => Kept::File(Rc::new(writer.end(&file, env).await?)),
        })
    }
}
