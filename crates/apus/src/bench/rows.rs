//! Rows gathered into multi-row INSERTs.

use super::{
    mysql::{Connection, Failure},
    progress::Progress,
};

/// Times that a refused INSERT is sent again: a node failure or a lack of room for a moment.
const TRIES: usize = 40;
const PAUSE: std::time::Duration = std::time::Duration::from_millis(100);
/// Statement text from which it is sent although it has fewer rows.
const TEXT_BYTES: usize = 256 << 10;

pub struct Inserter<'c> {
    connection: &'c mut Connection,
    progress: &'c Progress,
    table: &'static str,
    text: String,
    rows: usize,
    most: usize,
}

impl<'c> Inserter<'c> {
    pub fn new(
        connection: &'c mut Connection,
        progress: &'c Progress,
        table: &'static str,
        most: usize,
    ) -> Inserter<'c> {
        Inserter { connection, progress, table, text: String::new(), rows: 0, most }
    }

    /// One row: its values as they stand in SQL, with commas between them.
    ///
    /// # Errors
    /// The server refuses.
    pub fn row(&mut self, values: std::fmt::Arguments<'_>) -> Result<(), Failure> {
        use std::fmt::Write;
        if self.rows == 0 {
            self.text.clear();
            self.text.push_str("INSERT INTO ");
            self.text.push_str(self.table);
            self.text.push_str(" VALUES ");
        } else {
            self.text.push(',');
        }
        let _ = write!(self.text, "({values})"); // a String takes everything
        self.rows += 1;
        if self.rows >= self.most || self.text.len() > TEXT_BYTES { self.flush() } else { Ok(()) }
    }

    /// Sends what is gathered.
    ///
    /// # Errors
    /// The server refuses.
    pub fn flush(&mut self) -> Result<(), Failure> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut tries = 0;
        while let Err(failure) = self.connection.execute(&self.text) {
            tries += 1;
            // An INSERT that was refused left nothing; of a lost one that is not known.
            if matches!(failure, Failure::Lost(_)) || !is_temporary(failure.errno()) || tries > TRIES {
                return Err(failure);
            }
            std::thread::sleep(PAUSE);
        }
        self.progress.add(self.rows as u64);
        self.rows = 0;
        Ok(())
    }
}

/// Deadlock, lock wait timeout: the same again may succeed.
pub fn is_temporary(errno: u16) -> bool {
    matches!(errno, 1205 | 1213)
}
