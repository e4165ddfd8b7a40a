//! The bytes of the character sets that are not UTF-8, which is what everybody behind the protocol speaks.
//!
//! [`apus_types::collate::characters`] has the code of each character, `read.txt` what is read otherwise than it is written. `tests/reference/charsets.py` asked the
//! reference for every sequence of bytes and every code point and wrote both; `digests.txt`, which it wrote as well, is what the unit test compares with.
//! A table is made when a character set is used for the first time ([`table`]), once for all threads. Those of MySQL's Unicode are computed ([`wide`]).
//!
//! In some of them the second byte of a character may be a backslash or a letter, so a statement is read character by character, and its literals as MySQL's lexer
//! reads them ([`statement`]).

mod statement;
mod table;
mod wide;

use std::{borrow::Cow, sync::OnceLock};

use apus_types::collate::Charset;

use self::table::Table;
pub use statement::{Quoting, Reader};

/// Which bytes are a character, as MySQL's lexer sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    /// Every byte.
    Byte,
    /// Two bytes, from these first ones on, with the second ones of [`Trails`].
    Two(&'static [(u8, u8)], Trails),
    /// EUC of Japan: also one of half width behind 8E, and two bytes behind 8F.
    Euc,
    /// GB 18030: also four bytes, of which the second and the last are digits.
    Four,
    /// Of MySQL's Unicode.
    Wide(wide::Units),
}

type Trails = &'static [(u8, u8)];

const EAST: Trails = &[(0x40, 0x7e), (0x80, 0xfe)];
const HIGH: Trails = &[(0xa1, 0xfe)];
const JAPAN: Form = Form::Two(&[(0x81, 0x9f), (0xe0, 0xfc)], &[(0x40, 0x7e), (0x80, 0xfc)]);

fn form(charset: Charset) -> Option<Form> {
    Some(match charset {
        Charset::Utf8mb4 | Charset::Utf8mb3 | Charset::Ascii | Charset::Binary => return None,
        Charset::Big5 => Form::Two(&[(0xa1, 0xf9)], &[(0x40, 0x7e), (0xa1, 0xfe)]),
        Charset::Cp932 | Charset::Sjis => JAPAN,
        Charset::Eucjpms | Charset::Ujis => Form::Euc,
        Charset::Euckr => Form::Two(&[(0x81, 0xfe)], &[(0x41, 0x5a), (0x61, 0x7a), (0x81, 0xfe)]),
        Charset::Gb18030 => Form::Four,
        Charset::Gb2312 => Form::Two(&[(0xa1, 0xf7)], HIGH),
        Charset::Gbk => Form::Two(&[(0x81, 0xfe)], EAST),
        Charset::Ucs2 => Form::Wide(wide::Units::Two),
        Charset::Utf16 => Form::Wide(wide::Units::Pairs),
        Charset::Utf16le => Form::Wide(wide::Units::SwappedPairs),
        Charset::Utf32 => Form::Wide(wide::Units::Four),
        _ => Form::Byte,
    })
}

/// One of these character sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Foreign {
    charset: Charset,
    form: Form,
}

fn is_in(ranges: &[(u8, u8)], byte: Option<&u8>) -> bool {
    byte.is_some_and(|byte| ranges.iter().any(|(first, last)| (first..=last).contains(&byte)))
}

impl Foreign {
    /// `None`: its texts are UTF-8.
    #[inline]
    pub fn of(charset: Charset) -> Option<Foreign> {
        form(charset).map(|form| Foreign { charset, form })
    }

    fn table(self) -> &'static Table {
        static TABLES: [OnceLock<Table>; Charset::ALL.len()] = [const { OnceLock::new() }; Charset::ALL.len()];
        TABLES[self.charset as usize].get_or_init(|| Table::new(self.charset, self.form))
    }

    /// How many bytes a character has whose first are these: what has to be there to tell.
    pub fn expects(self, bytes: &[u8]) -> usize {
        match (self.form, bytes.first()) {
            (Form::Wide(units), _) => units.expects(bytes),
            (Form::Two(leads, _), lead) if is_in(leads, lead) => 2,
            (Form::Euc, Some(0x8f)) => 3,
            (Form::Euc, Some(0x8e | 0xa1..=0xfe)) => 2,
            (Form::Four, Some(0x81..=0xfe)) if matches!(bytes.get(1), Some(b'0'..=b'9')) => 4,
            (Form::Four, Some(0x81..=0xfe)) => 2,
            _ => 1,
        }
    }

    /// How many bytes the character has that begins here; 1 where they are none.
    pub fn length(self, bytes: &[u8]) -> usize {
        let long = self.expects(bytes);
        let is_one = match (self.form, bytes) {
            (Form::Wide(units), _) => return units.length(bytes),
            (Form::Two(_, trails), _) => is_in(trails, bytes.get(1)),
            (Form::Euc, [0x8e, second, ..]) => (0xa0..=0xdf).contains(second),
            (Form::Euc, _) => bytes.get(1..long).is_some_and(|rest| rest.iter().all(|b| is_in(HIGH, Some(b)))),
            (Form::Four, _) if long == 4 => {
                is_in(&[(0x81, 0xfe)], bytes.get(2)) && is_in(&[(b'0', b'9')], bytes.get(3))
            }
            (Form::Four, _) => is_in(EAST, bytes.get(1)),
            (Form::Byte, _) => false,
        };
        if is_one { long } else { 1 }
    }

    /// The character that begins here, and its bytes; `None`: it is none, or has no code point.
    fn first(self, bytes: &[u8]) -> (Option<char>, usize) {
        let long = self.length(bytes);
        match self.form {
            Form::Wide(units) => (units.read(&bytes[..long]), long),
            _ => (self.table().read(&bytes[..long]), long),
        }
    }

    /// A text in UTF-8.
    ///
    /// # Errors
    /// Where bytes begin that are no character.
    pub fn read(self, said: &[u8]) -> Result<String, usize> {
        let (mut text, mut at) = (String::with_capacity(said.len() * 3 / 2), 0);
        while at < said.len() {
            match self.first(&said[at..]) {
                // MySQL's big5 and tis620 have it for several that have no code point; bytes would not come back.
                (Some('\u{fffd}'), 1 | 2) => return Err(at),
                (character, long) => {
                    text.push(character.ok_or(at)?);
                    at += long;
                }
            }
        }
        Ok(text)
    }

    /// A text in UTF-8, with `?` for what is no character: to be looked at.
    pub fn read_lossy(self, said: &[u8]) -> String {
        let (mut text, mut at) = (String::new(), 0);
        while at < said.len() {
            let (character, long) = self.first(&said[at..]);
            text.push(character.unwrap_or('?'));
            at += long;
        }
        text
    }

    /// Bytes with zeros in front that make whole characters of them, as MySQL has literals.
    pub fn filled(self, bytes: &[u8]) -> Cow<'_, [u8]> {
        let least = if let Form::Wide(units) = self.form { units.least() } else { 1 };
        match bytes.len() % least {
            0 => Cow::Borrowed(bytes),
            over => Cow::Owned([&[0; 4][..least - over], bytes].concat()),
        }
    }

    /// Whether a text of ASCII is written as it is.
    pub fn keeps(self, text: &[u8]) -> bool {
        text.is_ascii() && !self.charset.is_wide() && (self.table().keeps_ascii || !text.contains(&b'\\'))
    }

    /// The bytes that a client wrote for a text.
    pub fn written(self, text: &[u8]) -> Vec<u8> {
        if self.charset != Charset::Sjis {
            return self.write(text);
        }
        // A backslash is not told as one, but was still written as one.
        let parts = text.split(|byte| *byte == b'\\').map(|part| self.write(part));
        parts.collect::<Vec<_>>().join(&b'\\')
    }

    /// What a client is told; `?` for each character that is not there.
    pub fn write(self, text: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(text.len());
        if let Form::Wide(units) = self.form {
            String::from_utf8_lossy(text).chars().for_each(|character| units.write(character, &mut out));
            return out;
        }
        let table = self.table();
        for character in String::from_utf8_lossy(text).chars() {
            table.write(character, &mut out);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use sha2::{Digest, Sha256};

    use super::*;

    fn named(name: &str) -> Foreign {
        Charset::from_name(name).and_then(Foreign::of).unwrap()
    }

    fn digest(pairs: impl Iterator<Item = (u32, u32)>) -> String {
        let (mut count, mut sha) = (0, Sha256::new());
        for (one, other) in pairs {
            count += 1;
            sha.update(one.to_be_bytes());
            sha.update(other.to_be_bytes());
        }
        let mut out = format!("{count} ");
        sha.finalize()[..8].iter().for_each(|byte| write!(out, "{byte:02x}").unwrap());
        out
    }

    fn number(bytes: &[u8]) -> u32 {
        bytes.iter().fold(0, |code, byte| code << 8 | u32::from(*byte))
    }

    /// All sequences of bytes that may be a character, in their order as numbers.
    fn sequences(charset: Foreign) -> Vec<Vec<u8>> {
        let mut all: Vec<Vec<u8>> = (0..=255).map(|a| vec![a]).collect();
        let is_wide = charset.form != Form::Byte;
        all.extend((0x8000..=0xffff_u16).filter(|_| is_wide).map(|n| n.to_be_bytes().to_vec()));
        if charset.form == Form::Euc {
            all.extend((0x8000..=0xffff_u16).map(|n| [&[0x8f], &n.to_be_bytes()[..]].concat()));
        }
        if charset.form == Form::Four {
            let rest = |n: u32| [(n / 1260) as u8 + 0x30, (n / 10 % 126) as u8 + 0x81, (n % 10) as u8 + 0x30];
            all.extend((0x81..=0xfe).flat_map(|a| (0..12600).map(move |n| [&[a], &rest(n)[..]].concat())));
        }
        all
    }

    #[test]
    fn every_character_is_the_references() {
        for line in include_str!("digests.txt").lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let charset = named(words[0]);
            let read = sequences(charset).into_iter().filter(|bytes| charset.length(bytes) == bytes.len());
            let read = read.filter_map(|bytes| Some((number(&bytes), u32::from(charset.first(&bytes).0?))));
            assert_eq!(digest(read), words[1..3].join(" "), "what {} reads", words[0]);
            // The other planes of the rest have nothing.
            let last = if charset.form == Form::Four { char::MAX } else { '\u{20000}' };
            let (table, mut bytes) = (charset.table(), Vec::new());
            let written = ('\0'..=last).filter_map(|c| {
                bytes.clear();
                table.write(c, &mut bytes);
                (bytes != b"?" || c == '?').then(|| (u32::from(c), number(&bytes)))
            });
            assert_eq!(digest(written), words[3..5].join(" "), "what {} writes", words[0]);
        }
    }

    #[test]
    fn all_with_a_table_have_a_digest() {
        let with_table = |charset: &Charset| form(*charset).is_some_and(|form| !matches!(form, Form::Wide(_)));
        assert_eq!(include_str!("digests.txt").lines().count(), Charset::ALL.iter().filter(|c| with_table(c)).count());
    }

    #[test]
    fn what_is_no_character_is_refused() {
        let of = |name, bytes: &[u8]| named(name).read(bytes);
        assert_eq!(of("gbk", b"a\xd6\xd0\xff").unwrap_err(), 3);
        assert_eq!(of("gbk", b"\xd6").unwrap_err(), 0);
        assert_eq!(of("cp1251", b"\x98").unwrap_err(), 0);
        assert_eq!(of("tis620", b"\xa1\xfc").unwrap_err(), 1);
        assert_eq!(of("gb18030", b"\x81\x30\x81").unwrap_err(), 0);
        assert_eq!(of("gb18030", b"\x94\x39\xda\x33").unwrap(), "\u{1f4a9}");
        assert_eq!(of("ujis", b"\x8e\xb1\x8f\xb0\xa1").unwrap(), "\u{ff71}\u{4e02}");
        assert_eq!(named("gbk").read_lossy(b"a\xff\xd6\xd0\xd6"), "a?\u{4e2d}?");
    }

    #[test]
    fn what_is_not_there_is_a_question_mark() {
        let of = |name, text: &str| named(name).write(text.as_bytes());
        assert_eq!(of("cp1251", "\u{436}\u{4e2d}\u{1f600}\u{e9}"), b"\xe6???");
        assert_eq!(of("sjis", "\\\u{8868}"), b"\x81_\x95\\");
        assert!(!named("sjis").keeps(b"a\\"));
        assert!(named("cp932").keeps(b"a\\"));
    }
}
