//! The files of a node that does not run: what is done with them before there are blocks, one request after the other.

/// A data directory, with nobody else in it. Errors are for people and name the file.
pub trait Directory {
    /// # Errors
    /// The system's.
    fn names(&mut self) -> Result<Vec<String>, String>;
    /// Past the end there are fewer bytes or none; a file that is not there has none.
    ///
    /// # Errors
    /// The system's.
    fn read(&mut self, file: &str, at: u64, count: u32) -> Result<Vec<u8>, String>;
    /// # Errors
    /// The system's.
    fn write(&mut self, file: &str, at: u64, bytes: &[u8]) -> Result<(), String>;
    /// Reserves room for so many bytes.
    ///
    /// # Errors
    /// The system's.
    fn allocate(&mut self, file: &str, bytes: u64) -> Result<(), String>;
    /// Content, length and name are on the disk.
    ///
    /// # Errors
    /// The system's.
    fn sync(&mut self, file: &str) -> Result<(), String>;
    /// Replaces a file as a whole, synced.
    ///
    /// # Errors
    /// The system's.
    fn put(&mut self, file: &str, content: &[u8]) -> Result<(), String>;
    /// # Errors
    /// The system's, but not that there is none.
    fn remove(&mut self, file: &str) -> Result<(), String>;
}
