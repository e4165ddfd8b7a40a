//! Hashes of keys. [`hash_key`] places a key in the cluster (bucket, partition): all nodes and clients compute the same. [`SecretHash`] places it
//! in the hash indexes of one process, with a seed that nobody else knows: whoever chooses keys could choose millions of one bucket by the other one.

use crate::{ids::PartitionId, limits::BUCKETS};

const SECRETS: rapidhash::v3::RapidSecrets = rapidhash::v3::RapidSecrets::seed(0x0041_7075_7331);

/// Hash of an encoded key (see [`crate::key`]); equal on every node and in every release that speaks the same protocol.
#[inline]
pub fn hash_key(key: &[u8]) -> u64 {
    rapidhash::v3::rapidhash_v3_seeded(key, &SECRETS)
}

/// The hash of keys in one process's hash indexes, equal nowhere else.
#[derive(Clone, Copy, Debug)]
pub struct SecretHash(rapidhash::v3::RapidSecrets);

impl SecretHash {
    /// `seed` is to be random, and not to be told.
    pub fn new(seed: u64) -> SecretHash {
        SecretHash(rapidhash::v3::RapidSecrets::seed(seed))
    }
    /// Hash of an encoded key.
    #[inline]
    pub fn of(&self, key: &[u8]) -> u64 {
        rapidhash::v3::rapidhash_v3_seeded(key, &self.0)
    }
}

/// Bucket of a distribution-key hash: the high bits, scaled.
#[inline]
pub fn bucket(hash: u64) -> u32 {
    ((u128::from(hash) * u128::from(BUCKETS)) >> 64) as u32
}

/// Partition of a distribution-key hash where buckets are dealt evenly: the map used until buckets are moved.
#[inline]
pub fn default_partition(hash: u64, partitions: u16) -> PartitionId {
    PartitionId((bucket(hash) % u32::from(partitions.max(1))) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_get_equal_shares() {
        let mut count = [0u32; 8];
        for i in 0..80_000u32 {
            count[default_partition(hash_key(&i.to_be_bytes()), 8).0 as usize] += 1;
        }
        assert!(count.iter().all(|&n| (9_000..11_000).contains(&n)), "{count:?}");
    }

    /// Keys that whoever knows [`hash_key`] has chosen for one bucket of a hash index of 1024 are spread by a seed.
    #[test]
    fn keys_that_collide_are_spread_by_a_secret() {
        let chosen: Vec<[u8; 8]> =
            (0u64..1 << 18).map(u64::to_be_bytes).filter(|key| hash_key(key).is_multiple_of(1024)).collect();
        assert!(chosen.len() > 200);
        let worst = |seed| {
            let mut count = [0u32; 1024];
            chosen.iter().for_each(|key| count[SecretHash::new(seed).of(key) as usize % 1024] += 1);
            count.into_iter().max().unwrap_or(0)
        };
        assert!(worst(1) < 8 && worst(2) < 8, "{} and {} of {} in one bucket", worst(1), worst(2), chosen.len());
    }

    #[test]
    fn the_hash_is_part_of_the_protocol() {
        assert_eq!(hash_key(b"apus"), 16_819_938_639_438_671_073);
    }
}
