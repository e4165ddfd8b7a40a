//! The one hash of keys. Placement (bucket, partition) and the fragments' hash indexes use different bits of it, so it is
//! computed once per operation.

use crate::{ids::PartitionId, limits::BUCKETS};

const SECRETS: rapidhash::v3::RapidSecrets = rapidhash::v3::RapidSecrets::seed(0x0041_7075_7331);

/// Hash of an encoded key (see [`crate::key`]); equal on every node and in every release that speaks the same protocol.
#[inline]
pub fn hash_key(key: &[u8]) -> u64 {
    rapidhash::v3::rapidhash_v3_seeded(key, &SECRETS)
}

/// Bucket of a distribution-key hash: the high bits, scaled, so that hash indexes can use the low ones.
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

    #[test]
    fn the_hash_is_part_of_the_protocol() {
        assert_eq!(hash_key(b"apus"), 16_819_938_639_438_671_073);
    }
}
