//! Lists of keys: what a row has in an index with several entries of a row.
//!
//! Such an index has one column of the table that is a list of encoded keys. Whoever writes the row computes it (an SQL node, as it computes generated columns), so data nodes know
//! nothing of what the keys are made of. The entries are rows of a hidden table, as those of unique indexes are; those that a change of the row makes and takes away are the difference of
//! two lists. The key of an entry is the key of the list, followed by the row's primary key unless the key is one that no two rows may share. A list with [`SHARED`] may share all of
//! its keys whatever the index says: a part of them is NULL.
//!
//! Form: one byte of flags; each key a length of two bytes, little end first, and its bytes. Keys ascend, so none is there twice. NULL and no bytes at all are a list without keys.

use crate::{
    ErrorCode,
    limits::{KEY_BYTES_MAX, SIGNAL_BYTES_MAX},
};

/// Most keys of a list.
pub const KEYS_MAX: usize = 1604;
/// Bytes that the entries of one list may take, each with the primary key and [`ENTRY_BYTES`]: what a change of the row sends.
pub const ENTRIES_BYTES_MAX: usize = 128 << 10;
/// What an entry takes beside its key and the primary key.
pub const ENTRY_BYTES: usize = 32;
/// Most lists of a table.
pub const LISTS_MAX: usize = 16;
/// Writes of one batch to a table with one list; with more lists as many fewer.
pub const OPS_MAX: usize = 16;
/// Other rows may have the same keys.
pub const SHARED: u8 = 1;

// All that a batch changes is told by one answer.
const _: () =
    assert!(OPS_MAX * 2 * KEYS_MAX <= u16::MAX as usize && OPS_MAX * 2 * ENTRIES_BYTES_MAX <= SIGNAL_BYTES_MAX / 4);
const _: () = assert!(LISTS_MAX <= OPS_MAX);

/// A list as it is stored.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeyList<'l> {
    pub is_shared: bool,
    keys: &'l [u8],
}

impl<'l> KeyList<'l> {
    /// Reads a list whose rows have primary keys of this length.
    ///
    /// # Errors
    /// [`ErrorCode::ValueOutOfRange`] if it is none; [`ErrorCode::RequestTooLarge`], [`ErrorCode::KeyTooLong`] over the limits.
    pub fn read(bytes: &'l [u8], primary_key: usize) -> Result<KeyList<'l>, ErrorCode> {
        let Some((&flags, keys)) = bytes.split_first() else { return Ok(KeyList::default()) };
        if flags & !SHARED != 0 {
            return Err(ErrorCode::ValueOutOfRange);
        }
        let list = KeyList { is_shared: flags & SHARED != 0, keys };
        let (mut rest, mut before, mut count, mut entries) = (keys, None, 0, 0);
        while !rest.is_empty() {
            let (key, behind) = split(rest).ok_or(ErrorCode::ValueOutOfRange)?;
            if before.is_some_and(|before| before >= key) {
                return Err(ErrorCode::ValueOutOfRange);
            }
            if key.len() + primary_key > KEY_BYTES_MAX {
                return Err(ErrorCode::KeyTooLong);
            }
            (before, rest, count) = (Some(key), behind, count + 1);
            entries += key.len() + primary_key + ENTRY_BYTES;
        }
        if count > KEYS_MAX || entries > ENTRIES_BYTES_MAX { Err(ErrorCode::RequestTooLarge) } else { Ok(list) }
    }

    /// The keys in their order.
    pub fn keys(self) -> impl Iterator<Item = &'l [u8]> {
        let mut rest = self.keys;
        std::iter::from_fn(move || {
            let (key, behind) = split(rest)?;
            rest = behind;
            Some(key)
        })
    }

    /// What a change of the list makes of its keys, deleted ones (`false`) and new ones.
    ///
    /// # Errors
    /// Of `put`.
    pub fn changes<E>(self, new: KeyList<'_>, mut put: impl FnMut(bool, &[u8]) -> Result<(), E>) -> Result<(), E> {
        let is_alike = self.is_shared == new.is_shared;
        let (mut old, mut new) = (self.keys().peekable(), new.keys().peekable());
        loop {
            let order = match (old.peek(), new.peek()) {
                (None, None) => return Ok(()),
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (Some(a), Some(b)) if is_alike => a.cmp(b),
                // Other entries, although the keys may be the same.
                (Some(_), Some(_)) => std::cmp::Ordering::Less,
            };
            let gone = if order.is_le() { old.next() } else { None };
            let come = if order.is_ge() { new.next() } else { None };
            match (gone, come) {
                (Some(key), None) => put(false, key)?,
                (None, Some(key)) => put(true, key)?,
                _ => {}
            }
        }
    }
}

fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))
}

/// Writes a list of keys, in any order, behind what is in `out`.
///
/// # Errors
/// [`ErrorCode::KeyTooLong`].
pub fn write(keys: &mut Vec<Vec<u8>>, is_shared: bool, out: &mut Vec<u8>) -> Result<(), ErrorCode> {
    keys.sort_unstable();
    keys.dedup();
    out.push(if is_shared { SHARED } else { 0 });
    for key in keys {
        let length = u16::try_from(key.len()).ok().filter(|_| key.len() <= KEY_BYTES_MAX);
        out.extend_from_slice(&length.ok_or(ErrorCode::KeyTooLong)?.to_le_bytes());
        out.extend_from_slice(key);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(keys: &[&str], is_shared: bool) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut keys.iter().map(|key| key.as_bytes().to_vec()).collect(), is_shared, &mut out).unwrap();
        out
    }

    fn changes(old: &[u8], new: &[u8]) -> Vec<String> {
        let mut found = Vec::new();
        let (old, new) = (KeyList::read(old, 4).unwrap(), KeyList::read(new, 4).unwrap());
        let put = |insert, key: &[u8]| {
            found.push(format!("{}{}", if insert { '+' } else { '-' }, std::str::from_utf8(key).unwrap()));
            Ok::<(), ()>(())
        };
        old.changes(new, put).unwrap();
        found
    }

    #[test]
    fn keys_are_in_order_and_each_once() {
        let bytes = list(&["b", "", "a", "b"], false);
        let read = KeyList::read(&bytes, 4).unwrap();
        assert_eq!((read.is_shared, read.keys().collect::<Vec<_>>()), (false, vec![&b""[..], b"a", b"b"]));
    }

    #[test]
    fn a_change_is_the_difference() {
        let (one, two) = (list(&["a", "b", "d"], false), list(&["b", "c", "e"], false));
        assert_eq!(changes(&one, &two), ["-a", "+c", "-d", "+e"]);
        assert_eq!(changes(&one, &one), [""; 0]);
        assert_eq!(changes(&[], &two), ["+b", "+c", "+e"]);
        assert_eq!(changes(&one, &[]), ["-a", "-b", "-d"]);
        let shared = list(&["b"], true);
        assert_eq!(changes(&list(&["b"], false), &shared), ["-b", "+b"]);
        assert_eq!(changes(&shared, &list(&["b", "c"], true)), ["+c"]);
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let read = |bytes: &[u8]| KeyList::read(bytes, 4).map(|_| ());
        for bytes in [&[2][..], &[0, 1], &[0, 1, 0], &[0, 1, 0, 7, 1, 0, 7], &[0, 1, 0, 7, 1, 0, 6]] {
            assert_eq!(read(bytes), Err(ErrorCode::ValueOutOfRange), "{bytes:?}");
        }
        assert_eq!(read(&[]), Ok(()));
        let many: Vec<String> = (0..=KEYS_MAX).map(|n| format!("{n:06}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(read(&list(&many, false)), Err(ErrorCode::RequestTooLarge));
        assert_eq!(read(&list(&many[1..], false)), Ok(()));
        let long = "x".repeat(KEY_BYTES_MAX - 4);
        assert_eq!(read(&list(&[&long], false)), Ok(()));
        assert_eq!(KeyList::read(&list(&[&long], false), 5).map(|_| ()), Err(ErrorCode::KeyTooLong));
        let far: Vec<String> = (0..16).map(|n| format!("{n:02}{long}")[..KEY_BYTES_MAX - 4].to_owned()).collect();
        let far: Vec<&str> = far.iter().map(String::as_str).collect();
        assert_eq!(read(&list(&far, false)), Err(ErrorCode::RequestTooLarge));
    }
}
