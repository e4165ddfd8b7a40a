//! Versions of the dictionary and of its tables, so that none is given twice.
//!
//! Whoever has planned a statement names the version of each table by which he did; a data node that has another one refuses. So a version must mean one definition for ever.
//! A loss of power may take definitions that somebody has seen: they were committed, and on no disk yet, or on disks of those without whom the cluster goes on. What is defined
//! next must not get their versions.
//!
//! So versions are counted in *eras*. The first change of the dictionary in a lineage (`View::lineage`) begins one, above all that any member has heard of; later changes count up by one. The upper
//! half of the dictionary's version is the number of its era. A table gets the first version of the era with its first change there, or one more than it had; one that is made gets the first. What was
//! lost was of an earlier era.
//!
//! An era that nobody remembers would come again. So no change of it is committed before all members have it on their disks that the era was begun (`dict::keep` of the data nodes).
//!
//! Limits: 4,096 eras, as many as there are lineages; 2^20 changes of one table in an era.

/// Bits of a table's version that count within an era.
const TABLE_BITS: u32 = 20;
/// As many as fit above them.
const ERAS_MAX: u32 = 1 << (u32::BITS - TABLE_BITS);
/// Bits of the dictionary's version that count within an era.
const DICTIONARY_BITS: u32 = 32;

/// The era of a version of the dictionary.
pub fn era(version: u64) -> u32 {
    (version >> DICTIONARY_BITS) as u32
}

/// The first version of the dictionary in an era.
pub fn first_version(era: u32) -> u64 {
    assert!(era < ERAS_MAX, "the cluster has begun anew {era} times");
    u64::from(era) << DICTIONARY_BITS
}

/// The version of a table that a change to this version of the dictionary gives, which had `before`; 0: it is made.
pub fn table_version(dictionary: u64, before: u32) -> u32 {
    (era(dictionary) << TABLE_BITS).max(before + 1)
}

/// Both versions of a table are of one era, so the lower one is an earlier definition of the same table.
pub fn of_one_era(a: u32, b: u32) -> bool {
    a >> TABLE_BITS == b >> TABLE_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_an_era_are_above_all_of_those_before() {
        assert_eq!((era(37), table_version(37, 0), table_version(37, 5)), (0, 1, 6));
        let first = first_version(1);
        assert_eq!((era(first), era(first - 1)), (1, 0));
        let lost = table_version(37, (1 << TABLE_BITS) - 2);
        let made = table_version(first, 0);
        assert!(made > lost && !of_one_era(made, lost), "{made} {lost}");
        assert_eq!(table_version(first + 9, 5), made, "its first change in the era");
        assert_eq!(table_version(first + 10, made), made + 1);
        assert!(of_one_era(made, made + 1));
    }
}
