//! Hash maps for the core crates. [`FixedMap`] has a fixed hash: the same in every process and every run. [`SeededMap`] is for keys that
//! a stranger chooses, such as transaction ids: its hash depends on a seed that the owner draws from its `Context`, so that nobody outside
//! can find keys that collide, and a simulated run still repeats. The iteration order of either means nothing, and no code may let it be
//! seen.
#![expect(clippy::disallowed_types, reason = "the one place that gives the standard map a fixed hash")]

use std::{
    collections::HashMap,
    hash::{BuildHasher, BuildHasherDefault, Hasher},
};

/// A hash map keyed by ids.
pub type FixedMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// A hash map keyed by what a stranger chooses; make it with [`seeded_map`].
pub type SeededMap<K, V> = HashMap<K, V, Seed>;

/// An empty map whose hash depends on `seed`.
pub fn seeded_map<K, V>(seed: u64) -> SeededMap<K, V> {
    HashMap::with_hasher(Seed(seed))
}

/// The seed of a [`SeededMap`].
#[derive(Clone, Copy, Default, Debug)]
pub struct Seed(u64);

impl BuildHasher for Seed {
    type Hasher = IdHasher;
    #[inline]
    fn build_hasher(&self) -> IdHasher {
        // The state is never what it is in a map without a seed, and every word is multiplied with it mixed in.
        IdHasher(self.0)
    }
}

/// Multiply and fold per word; good for ids and counters.
#[derive(Clone, Copy, Default, Debug)]
pub struct IdHasher(u64);

const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

impl IdHasher {
    #[inline]
    fn add(&mut self, word: u64) {
        let wide = u128::from(self.0 ^ word ^ FACTOR).wrapping_mul(u128::from(0xd6e8_feb8_6659_fd93_u64));
        self.0 = (wide as u64) ^ ((wide >> 64) as u64);
    }
}

impl Hasher for IdHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0u8; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.add(u64::from_le_bytes(word));
        }
    }
    #[inline]
    fn write_u8(&mut self, n: u8) {
        self.add(u64::from(n));
    }
    #[inline]
    fn write_u16(&mut self, n: u16) {
        self.add(u64::from(n));
    }
    #[inline]
    fn write_u32(&mut self, n: u32) {
        self.add(u64::from(n));
    }
    #[inline]
    fn write_u64(&mut self, n: u64) {
        self.add(n);
    }
    #[inline]
    fn write_usize(&mut self, n: usize) {
        self.add(n as u64);
    }
}
