//! Small files that are encrypted as a whole, and what a process finds of them.
//!
//! ```text
//! file   = as `apus_signal::file` seals it, magic "APUSENC1": a hash over all that follows
//! body   = version u16 | master u64, wrapped key | tag | what the file holds, encrypted
//! ```
//!
//! Each content has a key of its own, so there is one nonce; the file's name is bound to it. The hash is there so that bytes that have rotted are told from a master key that is
//! not here: the first is damage, and the node may be filled from a replica; the second is a mistake of an operator, and nothing may be given up for it.
//!
//! Blocks know nothing of this: whoever moves their files seals what they write and opens what they are to read. A control file holds keys besides; these are wrapped anew under the
//! newest master key whenever it is written.

use std::{collections::BTreeMap, fmt, sync::Arc};

use apus_signal::{
    Reader,
    codec::Put,
    file::{seal, unseal},
};

use crate::{
    Control,
    control::Unread,
    key::{FileKey, KeyKeeper, NoKey, TAG_BYTES, Wrapped},
};

const MAGIC: [u8; 8] = *b"APUSENC1";
const VERSION: u16 = 1;
/// An encrypted file is longer than what it holds by so much.
pub const OVERHEAD_BYTES: usize = 16 + 2 + Wrapped::ENCODED_BYTES + TAG_BYTES;

/// Why a file cannot be opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Closed {
    /// This master key is not here. Nothing is wrong with the file.
    NoKey(u64),
    /// It is of a later release.
    Version(u16),
    /// It is not what was written. For people: "the file ..." goes before.
    Damaged(String),
}

/// A handle to whoever keeps the keys of a node's files. By default nobody does: files are written and read in the clear.
#[derive(Clone, Debug)]
pub struct Vault(Arc<dyn KeyKeeper>);

impl Default for Vault {
    fn default() -> Vault {
        Vault(Arc::new(Nobody))
    }
}

#[derive(Debug)]
struct Nobody;

impl KeyKeeper for Nobody {
    fn newest(&self) -> Option<u64> {
        None
    }
    fn encrypts(&self) -> bool {
        false
    }
    fn new_key(&self) -> Option<FileKey> {
        None
    }
    fn unwrap(&self, wrapped: &Wrapped) -> Result<FileKey, NoKey> {
        Err(NoKey::Unknown(wrapped.master))
    }
}

/// A master key's id as people see it.
pub fn key_name(master: u64) -> String {
    format!("{master:016x}")
}

impl Vault {
    pub fn new(keeper: Arc<dyn KeyKeeper>) -> Vault {
        Vault(keeper)
    }
    /// Files that are begun from now on are encrypted.
    pub fn encrypts(&self) -> bool {
        self.0.encrypts()
    }
    /// For a file that is begun now; `None`: it is written in the clear.
    pub fn new_key(&self) -> Option<FileKey> {
        self.0.new_key()
    }
    /// # Errors
    /// See [`NoKey`].
    pub fn unwrap(&self, wrapped: &Wrapped) -> Result<FileKey, NoKey> {
        self.0.unwrap(wrapped)
    }

    /// What goes to the disk for this content of a small file. No bytes stay none.
    pub fn seal_file(&self, name: &str, content: Vec<u8>) -> Vec<u8> {
        if content.is_empty() || self.0.newest().is_none() {
            return content;
        }
        let mut content = self.rewrap(name, content);
        let Some(FileKey(key)) = self.new_key() else { return content };
        let mut body = Vec::with_capacity(content.len() + OVERHEAD_BYTES);
        body.put_u16(VERSION);
        key.wrap().encode(&mut body);
        let tag = key.seal(0, &context(name), &mut content);
        body.put_bytes(&tag);
        body.put_bytes(&content);
        seal(MAGIC, &body)
    }
    /// The keys in a control file are wrapped under the newest master key, whichever it was when the file's content was made.
    fn rewrap(&self, name: &str, content: Vec<u8>) -> Vec<u8> {
        match Control::is_file_name(name).then(|| Control::decode(&content, self)) {
            Some(Ok(control)) if control.keys != Default::default() => control.encode(),
            _ => content,
        }
    }

    /// What was given to [`Vault::seal_file`]; also what was written in the clear.
    ///
    /// # Errors
    /// See [`Closed`].
    pub fn open_file(&self, name: &str, content: &[u8]) -> Result<Vec<u8>, Closed> {
        if !content.starts_with(&MAGIC) {
            return Ok(content.to_vec());
        }
        let damaged = |what: &str| Closed::Damaged(what.to_owned());
        let mut r = Reader::new(unseal(MAGIC, content).map_err(damaged)?);
        let cut = |_| damaged("is cut off");
        let version = r.u16().map_err(cut)?;
        if version != VERSION {
            return Err(Closed::Version(version));
        }
        let wrapped = Wrapped::decode(&mut r).map_err(cut)?;
        let tag: &[u8; TAG_BYTES] =
            r.bytes(TAG_BYTES).ok().and_then(<[u8]>::first_chunk).ok_or(damaged("is cut off"))?;
        let FileKey(key) = self.unwrap(&wrapped).map_err(|why| match why {
            NoKey::Unknown(master) => Closed::NoKey(master),
            NoKey::Wrong => damaged("has a key that its disk key did not wrap"),
        })?;
        key.open(0, &context(name), r.rest(), tag).ok_or(damaged("is damaged (its tag is wrong)"))
    }

    /// The same content, as it is to be on the disk from now on.
    ///
    /// # Errors
    /// See [`Closed`].
    pub fn renew_file(&self, name: &str, content: &[u8]) -> Result<Vec<u8>, Closed> {
        Ok(self.seal_file(name, self.open_file(name, content)?))
    }

    /// What blocks are to find of a node's small files. One that is damaged stays as it is: they see that it is none of theirs.
    ///
    /// # Errors
    /// A file needs a key that is not here, or is of a later release: name, and why.
    pub fn open_all(&self, files: BTreeMap<String, Vec<u8>>) -> Result<BTreeMap<String, Vec<u8>>, (String, Closed)> {
        let mut opened = BTreeMap::new();
        for (name, content) in files {
            let content = match self.open_file(&name, &content) {
                Ok(content) => content,
                Err(Closed::Damaged(_)) => content,
                Err(closed) => return Err((name, closed)),
            };
            if Control::is_file_name(&name)
                && let Err(Unread::NoKey(master)) = Control::decode(&content, self)
            {
                return Err((name, Closed::NoKey(master)));
            }
            opened.insert(name, content);
        }
        Ok(opened)
    }
}

/// Master key of an encrypted small file; `None`: it is in the clear, or damaged.
pub fn sealed_under(content: &[u8]) -> Option<u64> {
    let mut r = Reader::new(unseal(MAGIC, content).ok()?);
    r.u16().ok().filter(|version| *version == VERSION)?;
    Wrapped::decode(&mut r).ok().map(|wrapped| wrapped.master)
}

fn context(name: &str) -> Vec<u8> {
    let mut context = MAGIC.to_vec();
    context.put_u16(VERSION);
    context.put_bytes(name.as_bytes());
    context
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Closed::NoKey(master) => write!(f, "is encrypted, and needs disk key {}", key_name(*master)),
            Closed::Version(version) => write!(f, "has version {version}, this release reads {VERSION}"),
            Closed::Damaged(what) => f.write_str(what),
        }
    }
}
