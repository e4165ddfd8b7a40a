//! Files of the machine that the SQL node runs on: SELECT ... INTO OUTFILE and DUMPFILE, LOAD DATA INFILE without LOCAL, LOAD_FILE().
//!
//! ```text
//! text -> clause -> plan of the query -> rows -> encode -> pieces of 256 KiB -> a thread that may wait for disks
//! ```
//!
//! Which files there are for statements is said once, when the SQL node starts (`--secure-file-priv`, [`Places`]): none unless it says so, as MySQL is built. Where it names a directory, a path
//! counts as what it leads to: links and `..` are followed first, so nothing leads out of it. Relative names begin at the working directory of the SQL node, since it has no data directory. Who
//! names a file needs the global privilege FILE, too.
//!
//! Everything that may wait for a disk runs in a thread of the runtime's own ([`aside`]), so other connections of the SQL thread go on; KILL ends the wait, not the work. LOAD_FILE alone reads where
//! it is evaluated, at most `max_allowed_packet` bytes, since expressions do not wait.
//!
//! A file that a statement has begun stays when it fails, with the rows that came before, as in MySQL; a disk that is full is error 3, and what fitted stays. Where the statement is run again
//! because a data node died in the middle, it begins its own file again ([`Begun`]).

pub mod clause;
pub mod encode;
pub mod format;
mod read;
pub mod write;

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

pub use read::{Reader, load_file};

use crate::{
    errors::{self, Result},
    server::Interrupt,
};

/// Bytes that are written or read at once.
pub const PIECE_BYTES: usize = 256 << 10;
/// Who may read a new file.
const MODE: u32 = 0o640;

/// Where the files of statements may be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Places {
    #[default]
    Nowhere,
    Anywhere,
    /// In this directory, or below it.
    Below(PathBuf),
}

impl Places {
    /// As `secure_file_priv` names them: `NULL`, nothing, or a directory.
    ///
    /// # Errors
    /// There is no such directory.
    pub fn parse(text: &str) -> std::result::Result<Places, String> {
        if text.eq_ignore_ascii_case("null") {
            return Ok(Places::Nowhere);
        }
        if text.is_empty() {
            return Ok(Places::Anywhere);
        }
        let failed = |e: io::Error| format!("--secure-file-priv {text}: {e}");
        let path = fs::canonicalize(text).map_err(failed)?;
        if !path.is_dir() {
            return Err(format!("--secure-file-priv {text}: not a directory"));
        }
        Ok(Places::Below(path))
    }

    /// The value of `secure_file_priv`.
    pub fn shown(&self) -> String {
        match self {
            Places::Nowhere => "NULL".to_owned(),
            Places::Anywhere => String::new(),
            Places::Below(path) if path == Path::new("/") => "/".to_owned(),
            Places::Below(path) => format!("{}/", path.display()),
        }
    }

    /// The file of a name, its links followed as far as it is there.
    ///
    /// # Errors
    /// 1290: statements have nothing to do with it.
    fn find(&self, name: &str) -> Result<PathBuf> {
        let given = Path::new(name);
        let parent = || match given.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            Some(parent) => fs::canonicalize(parent),
            None => fs::canonicalize("."),
        };
        let found = match fs::canonicalize(given) {
            Err(_) if !name.is_empty() => parent().map(|parent| match given.file_name() {
                Some(last) => parent.join(last),
                None => parent,
            }),
            found => found,
        };
        match (self, found) {
            (Places::Nowhere, _) | (Places::Below(_), Err(_)) => Err(errors::no_files()),
            (Places::Below(directory), Ok(path)) if !path.starts_with(directory) => Err(errors::no_files()),
            (Places::Anywhere, Err(_)) => Ok(given.to_owned()),
            (_, Ok(path)) => Ok(path),
        }
    }

    /// Makes a file that is not there yet.
    ///
    /// # Errors
    /// 1290; 1086: it is there; 1: it cannot be made.
    pub fn create(&self, name: &str) -> Result<File> {
        let path = self.find(name)?;
        if path.exists() {
            return Err(errors::file_exists(name));
        }
        let options = OpenOptions::new().write(true).create_new(true).mode(MODE).open(path);
        options.map_err(|e| errors::file_not_created(name, &e))
    }

    /// Opens a file to be read from its beginning.
    ///
    /// # Errors
    /// 1290; 13, 29: it is not there, or not for us to read; 1085: it is no file of bytes.
    pub fn open(&self, name: &str) -> Result<File> {
        let path = self.find(name)?;
        let found = fs::metadata(&path).map_err(|e| errors::file_not_found(13, name, &e))?;
        if !found.is_file() {
            return Err(errors::file_not_readable(name));
        }
        File::open(&path).map_err(|e| errors::file_not_found(29, name, &e))
    }
}

/// The file that the statement under way has made.
#[derive(Debug)]
pub struct Begun {
    pub name: String,
    pub file: File,
}

/// Does work that may wait for disks, while others of the thread have their turn.
///
/// # Errors
/// 1317: the statement is to end. What it has begun ends by itself.
pub async fn aside<T: Send + 'static>(
    interrupt: &Arc<Interrupt>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work);
    let interrupt = interrupt.clone();
    let mut stop = std::pin::pin!(async move { interrupt.asked().await });
    let mut done = std::pin::pin!(done);
    std::future::poll_fn(|cx| {
        if let std::task::Poll::Ready(done) = done.as_mut().poll(cx) {
            return std::task::Poll::Ready(done.map_err(|_| errors::internal("work on a file that ended")));
        }
        stop.as_mut().poll(cx).map(|()| Err(errors::interrupted()))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leads_out_of_the_directory() {
        let root = std::env::temp_dir().join(format!("apus-files-{}", std::process::id()));
        let inside = root.join("inside");
        fs::create_dir_all(&inside).unwrap();
        fs::write(root.join("secret"), "s").unwrap();
        fs::write(inside.join("open"), "o").unwrap();
        std::os::unix::fs::symlink(root.join("secret"), inside.join("leak")).unwrap();
        std::os::unix::fs::symlink(&root, inside.join("up")).unwrap();
        std::os::unix::fs::symlink(inside.join("nothing"), inside.join("dangling")).unwrap();
        let places = Places::parse(inside.to_str().unwrap()).unwrap();
        let name = |n: &str| inside.join(n).to_str().unwrap().to_owned();
        for (n, errno) in [
            ("leak", 1290),
            ("up/secret", 1290),
            ("up/new", 1290),
            ("../secret", 1290),
            ("../inside/../secret", 1290),
            ("nodir/new", 1290),
            ("open", 1086),
            ("../inside/open", 1086),
            ("dangling", 1),
        ] {
            assert_eq!(places.create(&name(n)).unwrap_err().errno, errno, "{n}");
        }
        for (n, errno) in [("leak", 1290), ("up/secret", 1290), ("new", 13), ("dangling", 13), (".", 1085)] {
            assert_eq!(places.open(&name(n)).unwrap_err().errno, errno, "{n}");
        }
        assert_eq!(places.create("new").unwrap_err().errno, 1290);
        assert_eq!(places.create("").unwrap_err().errno, 1290);
        assert!(places.create(&name("../inside/new")).is_ok() && places.open(&name("new")).is_ok());
        assert_eq!(Places::Nowhere.open(&name("open")).unwrap_err().errno, 1290);
        assert!(Places::Anywhere.open(&name("leak")).is_ok());
        assert_eq!(places.shown(), format!("{}/", fs::canonicalize(&inside).unwrap().display()));
        fs::remove_dir_all(&root).unwrap();
    }
}
