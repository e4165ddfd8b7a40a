//! The keys that files are encrypted with: AES-256-GCM by aws-lc, master keys and the text in which an operator keeps them.
//!
//! The form of what is encrypted is `apus-redo`'s; this crate is the only one that knows the cipher. It stands beside the core, in whose tree it is not.
//!
//! ```text
//! text = lines, the newest key first:  apus-disk-key 0123... (64 hexadecimal digits)     others that begin with # are for people
//! id   = the first 8 bytes of SHA-256 of "apus disk key" and the key
//! ```
//!
//! The newest key wraps; all of them unwrap. They can be replaced while files are open ([`DiskKeys::renew`]): files' keys do not change with them, only what they are wrapped in.
//!
//! **Wrapping.** A file's key is sealed under a key that is made of the master key and 32 random bytes by HMAC-SHA-256, for this once; so however many keys all nodes of a cluster wrap under one
//! master key, no nonce repeats.
//!
//! **Limits**: [`KEYS_MAX`].

mod cipher;
mod text;

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use apus_redo::{
    Vault,
    key::{FileKey, KEY_BYTES, KeyKeeper, NoKey, SALT_BYTES, WRAPPED_BYTES, Wrapped},
};

use self::cipher::ONCE;
pub use self::{
    cipher::Cipher,
    text::{KEYS_MAX, add_key, parse},
};

/// A master key.
pub type MasterKey = [u8; KEY_BYTES];

/// Gives bytes that nobody can foretell.
pub type Entropy = Box<dyn Fn(&mut [u8]) + Send + Sync>;

/// The master keys of a node.
#[derive(Clone)]
pub struct DiskKeys(Arc<Inner>);

pub(crate) struct Inner {
    /// Newest first.
    masters: RwLock<Vec<Master>>,
    /// New files are encrypted; otherwise the keys are there to read old ones.
    encrypts: bool,
    entropy: Entropy,
}

struct Master {
    id: u64,
    key: MasterKey,
}

/// What people know a master key by; it tells nothing of the key.
pub fn key_id(key: &MasterKey) -> u64 {
    cipher::digest(&[b"apus disk key", key])
}

impl DiskKeys {
    /// `keys`: newest first, at least one. `encrypts`: new files are encrypted.
    pub fn new(keys: &[MasterKey], encrypts: bool) -> DiskKeys {
        DiskKeys::with_entropy(keys, encrypts, Box::new(cipher::system_entropy))
    }
    /// For a simulator, whose runs are to be the same each time.
    pub fn with_entropy(keys: &[MasterKey], encrypts: bool, entropy: Entropy) -> DiskKeys {
        assert!(!keys.is_empty(), "there is a master key");
        let masters = RwLock::new(keys.iter().map(Master::new).collect());
        DiskKeys(Arc::new(Inner { masters, encrypts, entropy }))
    }
    pub fn vault(&self) -> Vault {
        Vault::new(Arc::new(self.clone()))
    }
    /// Id of the key that wraps.
    pub fn newest_id(&self) -> u64 {
        self.0.with_masters(|masters| masters[0].id)
    }
    pub fn encrypts(&self) -> bool {
        self.0.encrypts
    }
    /// From now on the first of these wraps. What was there before stays behind them: there may be files of it still.
    pub fn renew(&self, keys: &[MasterKey]) {
        let masters = &mut *self.0.masters.write().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<Master> = keys.iter().map(Master::new).collect();
        let older = masters.drain(..).filter(|old| !all.iter().any(|new| new.id == old.id)).collect::<Vec<_>>();
        all.extend(older);
        *masters = all;
    }
    /// A key of a file that lasts as long as it is open: it is never wrapped.
    pub fn unkept() -> Cipher {
        let mut key = [0; KEY_BYTES];
        cipher::system_entropy(&mut key);
        Cipher::new(key, None)
    }
}

impl Inner {
    fn with_masters<T>(&self, use_them: impl FnOnce(&[Master]) -> T) -> T {
        use_them(&self.masters.read().unwrap_or_else(PoisonError::into_inner))
    }
    /// Under the newest master key.
    pub(crate) fn wrap(&self, key: &[u8; KEY_BYTES]) -> Wrapped {
        let (mut salt, mut secret) = ([0; SALT_BYTES], *key);
        (self.entropy)(&mut salt);
        let (master, tag) = self.with_masters(|masters| {
            let Master { id, key } = &masters[0];
            (*id, cipher::derived(key, &salt).seal(&ONCE, &context(*id), &mut secret))
        });
        let mut bytes = [0; WRAPPED_BYTES];
        bytes[..SALT_BYTES].copy_from_slice(&salt);
        bytes[SALT_BYTES..SALT_BYTES + KEY_BYTES].copy_from_slice(&secret);
        bytes[SALT_BYTES + KEY_BYTES..].copy_from_slice(&tag);
        Wrapped { master, bytes }
    }
}

/// What a wrapped key is bound to.
fn context(master: u64) -> [u8; 24] {
    let mut context = *b"apus file key 1 ........";
    context[16..].copy_from_slice(&master.to_le_bytes());
    context
}

impl Master {
    fn new(key: &MasterKey) -> Master {
        Master { id: key_id(key), key: *key }
    }
}

impl fmt::Debug for DiskKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids = self.0.with_masters(|masters| masters.iter().map(|master| master.id).collect::<Vec<_>>());
        write!(f, "DiskKeys({ids:x?}, encrypts {})", self.0.encrypts)
    }
}

impl KeyKeeper for DiskKeys {
    fn newest(&self) -> Option<u64> {
        Some(self.newest_id())
    }
    fn encrypts(&self) -> bool {
        self.0.encrypts
    }
    fn new_key(&self) -> Option<FileKey> {
        if !self.0.encrypts {
            return None;
        }
        let mut key = [0; KEY_BYTES];
        (self.0.entropy)(&mut key);
        Some(FileKey(Arc::new(Cipher::new(key, Some(self.0.clone())))))
    }
    fn unwrap(&self, wrapped: &Wrapped) -> Result<FileKey, NoKey> {
        let Wrapped { master, bytes } = wrapped;
        let (salt, rest) = bytes.split_first_chunk::<SALT_BYTES>().ok_or(NoKey::Wrong)?;
        let (secret, tag) = rest.split_last_chunk().ok_or(NoKey::Wrong)?;
        let opened = self.0.with_masters(|masters| {
            let found = masters.iter().find(|known| known.id == *master).ok_or(NoKey::Unknown(*master))?;
            cipher::derived(&found.key, salt).open(&ONCE, &context(*master), secret, tag).ok_or(NoKey::Wrong)
        })?;
        let key = <[u8; KEY_BYTES]>::try_from(opened).map_err(|_| NoKey::Wrong)?;
        Ok(FileKey(Arc::new(Cipher::new(key, Some(self.0.clone())))))
    }
}
