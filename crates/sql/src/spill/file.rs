//! Files for a statement's rows, and the room that all of them have. See the module's essay.

use std::{
    fs::{self, OpenOptions},
    future::{Future, poll_fn},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::Poll,
};

use apus_redo::key::{FileCipher as _, TAG_BYTES};
use apus_vault::{Cipher, DiskKeys};

use super::BYTES_MAX_DEFAULT;
use crate::{
    errors::{self, Result},
    expr::Env,
};

/// What the names of files begin with, as long as they have one.
const NAME: &str = "apus-spill-";
/// In front of the bytes of a chunk, which are encrypted: the tag, which is over them, their place and their length.
pub const HEADER_BYTES: usize = TAG_BYTES;

/// Where the statements of a SQL node keep rows, and how many.
#[derive(Debug)]
pub struct Space {
    directory: PathBuf,
    bytes_max: u64,
    used: AtomicU64,
    /// Of the next file's name.
    number: AtomicU64,
}

impl Default for Space {
    fn default() -> Space {
        Space::new(std::env::temp_dir(), BYTES_MAX_DEFAULT)
    }
}

impl Space {
    /// In a directory that is made when the first file is. `bytes_max` 0: nothing is spilled.
    pub fn new(directory: PathBuf, bytes_max: u64) -> Space {
        Space { directory, bytes_max, used: AtomicU64::new(0), number: AtomicU64::new(0) }
    }

    /// Makes the directory, and removes what processes have left that were killed while they opened a file. No name lasts, so none is missed.
    ///
    /// # Errors
    /// Of the file system.
    pub fn prepare(&self) -> io::Result<()> {
        fs::create_dir_all(&self.directory)?;
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(NAME) {
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(())
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }
    /// Whether there is room for anything at all.
    pub fn is_open(&self) -> bool {
        self.bytes_max > 0
    }
    /// Bytes in files at the moment.
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// Files so far.
    pub fn files_made(&self) -> u64 {
        self.number.load(Relaxed)
    }

    /// Bytes in files at the moment, and files so far.
    pub fn figures(&self) -> (u64, u64) {
        (self.used(), self.files_made())
    }

    fn take(&self, bytes: u64) -> Result<()> {
        let used = self.used.fetch_add(bytes, Relaxed) + bytes;
        if used > self.bytes_max {
            self.used.fetch_sub(bytes, Relaxed);
            return Err(errors::out_of_spill_space(&self.directory, self.bytes_max));
        }
        Ok(())
    }

    fn open(&self) -> io::Result<fs::File> {
        let number = self.number.fetch_add(1, Relaxed);
        let path = self.directory.join(format!("{NAME}{}-{number}", std::process::id()));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        let file = match options.open(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(&self.directory)?;
                options.open(&path)?
            }
            // Of a process that had this number before.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                let _ = fs::remove_file(&path);
                options.open(&path)?
            }
            opened => opened?,
        };
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(file),
        }
    }
}

/// A piece of a file.
#[derive(Clone, Copy, Debug)]
pub struct Chunk {
    at: u64,
    length: u32,
}

/// A file without a name. Clones are the same file, which ends with the last of them.
#[derive(Clone, Debug)]
pub struct File(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Taken when it is closed.
    open: Option<Open>,
    space: Arc<Space>,
    end: AtomicU64,
}

/// An open file, and the bytes that it takes until it is closed.
#[derive(Debug)]
struct Open {
    file: fs::File,
    key: Cipher,
    space: Arc<Space>,
    bytes: u64,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.space.used.fetch_sub(self.bytes, Relaxed);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let Some(mut open) = self.open.take() else { return };
        open.bytes = *self.end.get_mut();
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) if open.bytes > 0 => drop(runtime.spawn_blocking(move || drop(open))),
            _ => drop(open),
        }
    }
}

impl File {
    /// # Errors
    /// 1004, 1021 from the file system; KILL, the deadline.
    pub async fn create(env: &Env) -> Result<File> {
        let space = env.spill_space();
        let by = space.clone();
        let opened = on_helper(env, move || by.open()).await?;
        let file = opened.map_err(|e| errors::cannot_make_spill_file(space.directory(), &e))?;
        let open = Some(Open { file, key: DiskKeys::unkept(), space: space.clone(), bytes: 0 });
        Ok(File(Arc::new(Inner { open, space, end: AtomicU64::new(0) })))
    }

    /// Appends a chunk: the first [`HEADER_BYTES`] of it are overwritten. Returns it with the buffer.
    ///
    /// # Errors
    /// 1114 when the node's limit is reached, 1021 when the disk is full, 1026 for anything else that it meets; KILL, the deadline.
    pub async fn append(&self, mut bytes: Vec<u8>, env: &Env) -> Result<(Chunk, Vec<u8>)> {
        let Inner { space, end, .. } = &*self.0;
        space.take(bytes.len() as u64)?;
        let chunk = Chunk {
            at: end.fetch_add(bytes.len() as u64, Relaxed),
            length: u32::try_from(bytes.len()).map_err(|_| errors::internal("a chunk of gigabytes"))?,
        };
        let own = self.clone();
        let write = move || (own.open().and_then(|open| chunk.write(open, &mut bytes)), bytes);
        let (written, bytes) = on_helper(env, write).await?;
        written.map_err(|e| errors::cannot_write_spill_file(space.directory(), &e))?;
        Ok((chunk, bytes))
    }

    /// Reads a chunk into a buffer, with room for a header in front.
    ///
    /// # Errors
    /// 1024 when it cannot be read, or is not what was written; KILL, the deadline.
    pub async fn read(&self, chunk: Chunk, mut bytes: Vec<u8>, env: &Env) -> Result<Vec<u8>> {
        bytes.resize(chunk.length as usize, 0);
        let own = self.clone();
        let read = move || own.open().and_then(|open| chunk.read(open, bytes));
        let directory = self.0.space.directory();
        on_helper(env, read).await?.map_err(|e| errors::cannot_read_spill_file(directory, &e.to_string()))
    }

    fn open(&self) -> io::Result<&Open> {
        self.0.open.as_ref().ok_or_else(|| io::Error::other("a closed file"))
    }
}

impl Chunk {
    /// What its tag is over, besides its bytes.
    fn context(self) -> [u8; 12] {
        let mut context = [0; 12];
        context[..8].copy_from_slice(&self.at.to_le_bytes());
        context[8..].copy_from_slice(&self.length.to_le_bytes());
        context
    }
    /// A place is written once, so it is the nonce.
    fn write(self, Open { file, key, .. }: &Open, bytes: &mut [u8]) -> io::Result<()> {
        let (header, content) = bytes.split_at_mut(HEADER_BYTES);
        header.copy_from_slice(&key.seal(self.at, &self.context(), content));
        file.write_all_at(bytes, self.at)
    }
    fn read(self, Open { file, key, .. }: &Open, mut bytes: Vec<u8>) -> io::Result<Vec<u8>> {
        file.read_exact_at(&mut bytes, self.at)?;
        let sealed = bytes.split_first_chunk_mut();
        let is_whole = sealed.is_some_and(|(tag, content)| key.open_in_place(self.at, &self.context(), content, tag));
        if is_whole { Ok(bytes) } else { Err(io::Error::other("what is there is not what was written")) }
    }
}

/// Runs `work` on a helper thread. When the statement is stopped nobody waits for it any more.
///
/// # Errors
/// KILL, the deadline.
async fn on_helper<T: Send + 'static>(env: &Env, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    env.may_go_on()?;
    let mut done = tokio::task::spawn_blocking(work);
    let mut stopped = pin!(env.stopped());
    poll_fn(|cx| match Pin::new(&mut done).poll(cx) {
        Poll::Ready(Ok(value)) => Poll::Ready(Ok(value)),
        Poll::Ready(Err(_)) => Poll::Ready(Err(errors::internal("the work of a helper thread was lost"))),
        Poll::Pending => stopped.as_mut().poll(cx).map(|()| Err(env.why_stopped())),
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(space: Space) -> Env {
        let mut env = Env::new("root".into(), "localhost".into(), 7, 1, Default::default());
        env.variables =
            crate::variables::Variables::new(Arc::new(crate::variables::Globals::default().with_spill(space)), false);
        env
    }

    fn run<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work)
    }

    #[test]
    fn chunks_are_read_as_they_were_written_or_not_at_all() {
        run(async {
            let env = env(Space::default());
            let file = File::create(&env).await.unwrap();
            let chunk = |text: &[u8]| [&[0; HEADER_BYTES], text].concat();
            let (first, _) = file.append(chunk(b"one"), &env).await.unwrap();
            let (second, buffer) = file.append(chunk(b"two!"), &env).await.unwrap();
            assert_eq!(env.spill_space().used(), 2 * HEADER_BYTES as u64 + 7);
            assert_eq!(&file.read(first, buffer, &env).await.unwrap()[HEADER_BYTES..], b"one");
            let disk = &file.open().unwrap().file;
            let mut raw = vec![0; 2 * HEADER_BYTES + 7];
            disk.read_exact_at(&mut raw, 0).unwrap();
            assert!(!raw.windows(3).any(|bytes| bytes == b"one" || bytes == b"two"), "the disk has no text");
            let other = File::create(&env).await.unwrap();
            other.append(chunk(b"one"), &env).await.unwrap();
            let mut same = vec![0; HEADER_BYTES + 3];
            other.open().unwrap().file.read_exact_at(&mut same, 0).unwrap();
            assert_ne!(same[..], raw[..HEADER_BYTES + 3], "each file has a key of its own");
            disk.write_all_at(b"?", second.at + HEADER_BYTES as u64 + 3).unwrap();
            assert_eq!(file.read(second, Vec::new(), &env).await.unwrap_err().errno, 1024, "a changed byte");
            let elsewhere = Chunk { at: first.at, length: first.length - 1 };
            assert_eq!(file.read(elsewhere, Vec::new(), &env).await.unwrap_err().errno, 1024, "another length");
            file.open().unwrap().file.set_len(5).unwrap();
            assert_eq!(file.read(first, Vec::new(), &env).await.unwrap_err().errno, 1024, "cut off");
        });
    }

    #[test]
    fn no_file_has_a_name_and_room_comes_back() {
        let directory = std::env::temp_dir().join(format!("apus-test-spill-{}", std::process::id()));
        let env = env(Space::new(directory.clone(), 1000));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("apus-spill-1-1"), b"").unwrap();
        let space = env.spill_space();
        space.prepare().unwrap();
        run(async {
            let file = File::create(&env).await.unwrap();
            file.append(vec![0; 900], &env).await.unwrap();
            assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
            assert_eq!(file.append(vec![0; 101], &env).await.unwrap_err().errno, 1114);
            file.append(vec![0; 100], &env).await.unwrap();
            assert_eq!(space.used(), 1000);
        });
        assert_eq!(space.used(), 0, "the runtime has ended");
        fs::remove_dir(&directory).unwrap();
    }
}
