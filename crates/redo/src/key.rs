//! Keys of files: what a log, a checkpoint or a small file is encrypted with, and who keeps them.
//!
//! ```text
//! master key   of the operator, known by its id; outside of all data directories
//!   wraps a file key   random, for one use of one file; lies beside what it opens, wrapped ([`Wrapped`])
//!     seals blocks       nonce = the block's number in its log, context = its header and its place
//!     seals small files  once ([`crate::Vault::seal_file`])
//! ```
//!
//! The cipher is AES-256-GCM; this crate knows only what goes into it. [`KeyKeeper`] is the door to whoever has master keys, a cipher and entropy.
//!
//! **No nonce twice.** A key is made for a file when it is begun. A process that goes on in a segment of the one before takes a new key from there on ([`Keys::set`]): the number of
//! a block that was lost is given again, to other content. Within a process numbers only grow. What `harden` writes anew are the bytes that it has read.

use std::{collections::BTreeMap, fmt, sync::Arc};

use apus_signal::{DecodeError, Reader, codec::Put};

/// Of AES-256-GCM.
pub const KEY_BYTES: usize = 32;
pub const TAG_BYTES: usize = 16;
/// What tells this wrapping from all others, the key, a tag.
pub const WRAPPED_BYTES: usize = SALT_BYTES + KEY_BYTES + TAG_BYTES;
pub const SALT_BYTES: usize = 32;

/// A key of a file as it lies on the disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wrapped {
    /// Id of the master key that opens it.
    pub master: u64,
    pub bytes: [u8; WRAPPED_BYTES],
}

impl Wrapped {
    pub const ENCODED_BYTES: usize = 8 + WRAPPED_BYTES;

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.master);
        out.put_bytes(&self.bytes);
    }
    /// # Errors
    /// It is cut off.
    pub fn decode(r: &mut Reader<'_>) -> Result<Wrapped, DecodeError> {
        let master = r.u64()?;
        let bytes = r.bytes(WRAPPED_BYTES)?.try_into().map_err(|_| DecodeError)?;
        Ok(Wrapped { master, bytes })
    }
}

/// Why a key cannot be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoKey {
    /// It is wrapped under this master key, which is not here.
    Unknown(u64),
    /// The master key is here, and these are not the bytes that it wrapped.
    Wrong,
}

/// One key, ready to be used.
pub trait FileCipher: Send + Sync {
    /// Tells keys apart and nothing else of them.
    fn name(&self) -> u64;
    /// Encrypts in place; `context` is bound to it. Never twice with one nonce, unless all is the same.
    fn seal(&self, nonce: u64, context: &[u8], bytes: &mut [u8]) -> [u8; TAG_BYTES];
    /// `None`: it was not sealed like that.
    fn open(&self, nonce: u64, context: &[u8], bytes: &[u8], tag: &[u8; TAG_BYTES]) -> Option<Vec<u8>>;
    /// Under the newest master key.
    fn wrap(&self) -> Wrapped;
}

/// See [`FileCipher`].
#[derive(Clone)]
pub struct FileKey(pub Arc<dyn FileCipher>);

impl fmt::Debug for FileKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileKey({:x})", self.0.name())
    }
}
impl PartialEq for FileKey {
    fn eq(&self, other: &FileKey) -> bool {
        self.0.name() == other.0.name()
    }
}
impl Eq for FileKey {}

/// Who has master keys.
pub trait KeyKeeper: Send + Sync + fmt::Debug {
    /// Id of the master key that wraps from now on; `None`: there is none, and there are no keys of files.
    fn newest(&self) -> Option<u64>;
    /// Files that are begun from now on are encrypted.
    fn encrypts(&self) -> bool;
    /// A new key; `None`: files are written in the clear.
    fn new_key(&self) -> Option<FileKey>;
    /// # Errors
    /// The master key is not here, or did not wrap it.
    fn unwrap(&self, wrapped: &Wrapped) -> Result<FileKey, NoKey>;
}

/// Keys of a log's files by place: of a segment several processes may have written, each from its place on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Keys(BTreeMap<(u32, u64), Option<FileKey>>);

impl Keys {
    /// Of the block at this place of the file with this number; `None`: it is in the clear.
    pub fn of(&self, number: u32, at: u64) -> Option<&FileKey> {
        let (_, key) = self.0.range((number, 0)..=(number, at)).next_back()?;
        key.as_ref()
    }
    /// What is in the file from there on has this key, or is in the clear.
    pub fn set(&mut self, number: u32, from: u64, key: Option<FileKey>) {
        self.0.retain(|(file, at), _| *file != number || *at < from);
        if key.is_some() || self.of(number, from).is_some() {
            self.0.insert((number, from), key);
        }
    }
    /// All that is before this place of the file is encrypted, or all of it is in the clear.
    pub fn are_all(&self, number: u32, to: u64, encrypted: bool) -> bool {
        let mut parts = self.0.range((number, 0)..(number, to));
        let begins_clear = self.of(number, 0).is_none() && to > 0;
        begins_clear != encrypted && parts.all(|(_, key)| key.is_some() == encrypted)
    }
    pub fn forget(&mut self, number: u32) {
        self.0.retain(|(file, _), _| *file != number);
    }
    /// Those of one file.
    pub fn only(&self, number: u32) -> Keys {
        Keys(self.all().filter(|((file, _), _)| *file == number).map(|(place, key)| (place, key.cloned())).collect())
    }
    /// Number of the file, from where on, key; in order.
    pub fn all(&self) -> impl Iterator<Item = ((u32, u64), Option<&FileKey>)> {
        self.0.iter().map(|(place, key)| (*place, key.as_ref()))
    }
}
