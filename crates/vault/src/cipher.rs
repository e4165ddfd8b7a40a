//! AES-256-GCM, SHA-256 and entropy, as aws-lc has them.

use std::sync::Arc;

use apus_redo::key::{FileCipher, KEY_BYTES, SALT_BYTES, TAG_BYTES, Wrapped};
use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey},
    digest::{Context, SHA256},
    hmac, rand,
};

use crate::Inner;

pub const NONCE_BYTES: usize = 12;
/// Of a key that seals one text.
pub const ONCE: [u8; NONCE_BYTES] = [0; NONCE_BYTES];

/// Fills with what the operating system has.
///
/// # Panics
/// It has none: nothing can be encrypted, and nothing may be written in the clear instead.
pub fn system_entropy(bytes: &mut [u8]) {
    assert!(rand::fill(bytes).is_ok(), "the operating system gives no random numbers");
}

/// The first 8 bytes of SHA-256 of all parts.
pub fn digest(parts: &[&[u8]]) -> u64 {
    let mut context = Context::new(&SHA256);
    parts.iter().for_each(|part| context.update(part));
    let digest = context.finish();
    u64::from_be_bytes(digest.as_ref().first_chunk().copied().unwrap_or_default())
}

/// A key for one wrapping.
pub fn derived(master: &[u8; KEY_BYTES], salt: &[u8; SALT_BYTES]) -> Aes {
    let mut text = b"apus wrap".to_vec();
    text.extend_from_slice(salt);
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, master), &text);
    Aes::new(tag.as_ref().first_chunk().expect("SHA-256 has 32 bytes"))
}

pub struct Aes(LessSafeKey);

impl Aes {
    pub fn new(key: &[u8; KEY_BYTES]) -> Aes {
        Aes(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).expect("a key of 256 bits")))
    }
    pub fn seal(&self, nonce: &[u8; NONCE_BYTES], context: &[u8], bytes: &mut [u8]) -> [u8; TAG_BYTES] {
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let tag = self.0.seal_in_place_separate_tag(nonce, Aad::from(context), bytes);
        tag.ok()
            .and_then(|tag| tag.as_ref().try_into().ok())
            .expect("a block is shorter than AES-GCM's limit of 64 GiB")
    }
    pub fn open(
        &self,
        nonce: &[u8; NONCE_BYTES],
        context: &[u8],
        bytes: &[u8],
        tag: &[u8; TAG_BYTES],
    ) -> Option<Vec<u8>> {
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let mut out = vec![0; bytes.len()];
        self.0.open_separate_gather(nonce, Aad::from(context), bytes, tag, &mut out).ok()?;
        Some(out)
    }
}

/// A key of a file.
pub struct Cipher {
    key: [u8; KEY_BYTES],
    cipher: Aes,
    name: u64,
    /// Who wraps it; `None`: it ends with the process.
    keeper: Option<Arc<Inner>>,
}

impl std::fmt::Debug for Cipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cipher({:x})", self.name)
    }
}

fn wide(nonce: u64) -> [u8; NONCE_BYTES] {
    let mut wide = [0; NONCE_BYTES];
    wide[..8].copy_from_slice(&nonce.to_le_bytes());
    wide
}

impl Cipher {
    /// As [`FileCipher::open`], in the place of what is encrypted; if it was not sealed like that, what is there then means nothing.
    #[must_use]
    pub fn open_in_place(&self, nonce: u64, context: &[u8], bytes: &mut [u8], tag: &[u8; TAG_BYTES]) -> bool {
        let nonce = Nonce::assume_unique_for_key(wide(nonce));
        self.cipher.0.open_in_place_separate_tag(nonce, Aad::from(context), tag, bytes).is_ok()
    }
    pub(crate) fn new(key: [u8; KEY_BYTES], keeper: Option<Arc<Inner>>) -> Cipher {
        Cipher { cipher: Aes::new(&key), name: digest(&[b"apus file key", &key]), key, keeper }
    }
}

impl FileCipher for Cipher {
    fn name(&self) -> u64 {
        self.name
    }
    fn seal(&self, nonce: u64, context: &[u8], bytes: &mut [u8]) -> [u8; TAG_BYTES] {
        self.cipher.seal(&wide(nonce), context, bytes)
    }
    fn open(&self, nonce: u64, context: &[u8], bytes: &[u8], tag: &[u8; TAG_BYTES]) -> Option<Vec<u8>> {
        self.cipher.open(&wide(nonce), context, bytes, tag)
    }
    fn wrap(&self) -> Wrapped {
        self.keeper.as_ref().expect("a key that is wrapped has a keeper").wrap(&self.key)
    }
}
