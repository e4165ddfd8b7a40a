//! Keys of simulated nodes' files, with the real cipher, and a look at how they are used.
//!
//! Each process of a node has what an operator would give it: master keys, and whether new files are encrypted. Where so it was drawn, each start brings a new master key, the older
//! ones behind it, and some processes write in the clear: a directory has files of all kinds then. Keys of files come from the seed.
//!
//! **No nonce twice.** Every block that any process seals is remembered by its key and nonce. Two that differ end the run: whoever has both on old and new images of a disk has the difference of
//! what they say.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fmt,
    rc::Rc,
    sync::{Arc, Mutex, PoisonError},
};

use apus_kernel::Random;
use apus_redo::{
    Vault,
    key::{FileCipher, FileKey, KEY_BYTES, KeyKeeper, NoKey, TAG_BYTES, Wrapped},
};
use apus_types::{NodeId, hash::hash_key};
use apus_vault::{DiskKeys, MasterKey};

/// Which files of data nodes are encrypted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Encryption {
    #[default]
    Never,
    Always,
    /// Each process draws whether new ones are, and has a new master key.
    Mixed,
}

/// Keys of all nodes' processes.
#[derive(Clone, Default, Debug)]
pub struct Vaults(Rc<RefCell<State>>);

#[derive(Default, Debug)]
struct State {
    seed: u64,
    encryption: Encryption,
    /// Of the newest process of each node: its incarnation, and how many there were before.
    nodes: BTreeMap<NodeId, (u64, u64, Vault)>,
    seals: Arc<Seals>,
}

impl Vaults {
    pub fn new(seed: u64, encryption: Encryption) -> Vaults {
        Vaults(Rc::new(RefCell::new(State { seed, encryption, ..State::default() })))
    }
    /// Of this process.
    pub fn of(&self, node: NodeId, incarnation: u64) -> Vault {
        let state = &mut *self.0.borrow_mut();
        if !node.is_data() || state.encryption == Encryption::Never {
            return Vault::default();
        }
        let before = state.nodes.get(&node).map(|(known, number, _)| (*known, *number));
        match before {
            Some((known, _)) if known == incarnation => {}
            _ => {
                let number = before.map_or(0, |(_, number)| number + 1);
                let vault = state.make(node, number);
                state.nodes.insert(node, (incarnation, number, vault));
            }
        }
        state.nodes.get(&node).map_or_else(Vault::default, |(_, _, vault)| vault.clone())
    }
    /// Opens whatever processes of the node have written.
    pub fn reader(&self, node: NodeId) -> Vault {
        self.0.borrow().nodes.get(&node).map_or_else(Vault::default, |(_, _, vault)| vault.clone())
    }
}

impl State {
    fn make(&self, node: NodeId, number: u64) -> Vault {
        let is_mixed = self.encryption == Encryption::Mixed;
        let of_node = self.seed ^ u64::from(node.0) << 48 ^ 0x6d61_7374;
        let newest = if is_mixed { number } else { 0 };
        let keys: Vec<MasterKey> = (0..=newest).rev().map(|n| key(&mut Random::new(of_node ^ n << 32))).collect();
        let mut random = Random::new(of_node ^ number << 32 ^ 0x6669_6c65);
        let encrypts = !is_mixed || random.one_in(2);
        let random = Mutex::new(random);
        let entropy = move |bytes: &mut [u8]| {
            let mut random = random.lock().unwrap_or_else(PoisonError::into_inner);
            bytes.iter_mut().for_each(|byte| *byte = random.next_u64() as u8);
        };
        let keys = DiskKeys::with_entropy(&keys, encrypts, Box::new(entropy));
        Vault::new(Arc::new(Watched { keys, seals: self.seals.clone() }))
    }
}

fn key(random: &mut Random) -> MasterKey {
    let mut key = [0; KEY_BYTES];
    key.iter_mut().for_each(|byte| *byte = random.next_u64() as u8);
    key
}

/// What was sealed, by key and nonce: a hash of it and of what it was bound to.
#[derive(Default, Debug)]
struct Seals(Mutex<BTreeMap<(u64, u64), u64>>);

impl Seals {
    fn note(&self, key: u64, nonce: u64, context: &[u8], bytes: &[u8]) {
        let hash = hash_key(context).rotate_left(1) ^ hash_key(bytes);
        let before = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert((key, nonce), hash);
        assert!(before.is_none_or(|before| before == hash), "nonce {nonce} of key {key:x} seals two blocks");
    }
}

struct Watched {
    keys: DiskKeys,
    seals: Arc<Seals>,
}

impl Watched {
    fn watch(&self, key: FileKey) -> FileKey {
        FileKey(Arc::new(WatchedKey { key, seals: self.seals.clone() }))
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.keys.fmt(f)
    }
}

impl KeyKeeper for Watched {
    fn newest(&self) -> Option<u64> {
        self.keys.newest()
    }
    fn encrypts(&self) -> bool {
        self.keys.encrypts()
    }
    fn new_key(&self) -> Option<FileKey> {
        self.keys.new_key().map(|key| self.watch(key))
    }
    fn unwrap(&self, wrapped: &Wrapped) -> Result<FileKey, NoKey> {
        self.keys.unwrap(wrapped).map(|key| self.watch(key))
    }
}

struct WatchedKey {
    key: FileKey,
    seals: Arc<Seals>,
}

impl FileCipher for WatchedKey {
    fn name(&self) -> u64 {
        self.key.0.name()
    }
    fn seal(&self, nonce: u64, context: &[u8], bytes: &mut [u8]) -> [u8; TAG_BYTES] {
        self.seals.note(self.name(), nonce, context, bytes);
        self.key.0.seal(nonce, context, bytes)
    }
    fn open(&self, nonce: u64, context: &[u8], bytes: &[u8], tag: &[u8; TAG_BYTES]) -> Option<Vec<u8>> {
        self.key.0.open(nonce, context, bytes, tag)
    }
    fn wrap(&self) -> Wrapped {
        self.key.0.wrap()
    }
}
