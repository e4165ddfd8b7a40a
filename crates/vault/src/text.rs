//! Master keys as text.

use std::fmt::Write as _;

use apus_redo::key::KEY_BYTES;

use crate::{MasterKey, cipher::system_entropy, key_id};

/// Keys of one text. A rotation adds one, and older ones can go when all nodes say so.
pub const KEYS_MAX: usize = 16;
/// First word of a line.
const MARK: &str = "apus-disk-key";

/// Reads keys, the newest first.
///
/// # Errors
/// What is wrong with the text, without any part of it.
pub fn parse(text: &str) -> Result<Vec<MasterKey>, String> {
    let mut keys: Vec<MasterKey> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            None => continue,
            Some(word) if word.starts_with('#') => continue,
            Some(MARK) => {}
            Some(_) => return Err(format!("line {number} is no disk key; `apus secret disk-key` makes one")),
        }
        let key = words.next().and_then(digits).filter(|_| words.next().is_none());
        let key =
            key.ok_or_else(|| format!("line {number} is damaged: {} hexadecimal digits are a key", 2 * KEY_BYTES))?;
        if key == [0; KEY_BYTES] || keys.contains(&key) {
            return Err(format!("line {number} is damaged: its key is zeros, or there twice"));
        }
        keys.push(key);
    }
    match keys.len() {
        0 => Err("it holds no disk key; `apus secret disk-key` makes one".to_owned()),
        1..=KEYS_MAX => Ok(keys),
        many => Err(format!("it holds {many} disk keys, at most {KEYS_MAX} are read: remove the last ones")),
    }
}

fn digits(text: &str) -> Option<MasterKey> {
    let mut key = [0; KEY_BYTES];
    let digit = |c: u8| char::from(c).to_digit(16);
    if text.len() != 2 * KEY_BYTES {
        return None;
    }
    for (byte, pair) in key.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
    }
    Some(key)
}

/// A new key before those of this text, which may be empty; and the id of the new one.
pub fn add_key(text: &str) -> (String, u64) {
    let mut key = [0; KEY_BYTES];
    system_entropy(&mut key);
    let mut line = format!("# id {}\n{MARK} ", apus_redo::key_name(key_id(&key)));
    key.iter().for_each(|byte| _ = write!(line, "{byte:02x}"));
    (format!("{line}\n{text}"), key_id(&key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_is_read_and_anything_else_is_refused() {
        let (first, old) = add_key("");
        let (both, new) = add_key(&first);
        let keys = parse(&both).expect("as it was made");
        assert_eq!(keys.iter().map(key_id).collect::<Vec<_>>(), [new, old]);
        assert_eq!(parse(&first).expect("as it was made"), keys[1..]);
        let line = first.lines().last().expect("a line");
        for cut in 0..line.len() {
            assert!(parse(&line[..cut]).is_err(), "cut off at {cut}");
        }
        for wrong in
            [format!("{line} 00"), format!("{line}\n{line}"), "# only words".to_owned(), line.replace("apus", "opus")]
        {
            let why = parse(&wrong).expect_err("no keys");
            assert!(!why.contains(&line[line.len() - 16..]), "tells nothing of a key: {why}");
        }
        assert!(parse(&format!("apus-disk-key {}", "0".repeat(64))).is_err(), "zeros");
        let many = (0..=KEYS_MAX).fold(String::new(), |text, _| add_key(&text).0);
        assert!(parse(&many).expect_err("too many").contains("remove"));
    }
}
