//! Character sets of MySQL that only clients speak: no column has them, and behind the protocol all is UTF-8.
//!
//! Their tables come from `encoding_rs`, which has those of the web, and `differences.txt` says where MySQL's are others. `tests/reference/charsets.py` asked the
//! reference for every sequence of bytes and every code point and wrote that file; `digests.txt`, which it wrote as well, is what the unit test compares with.
//! A table is made when a character set is spoken for the first time ([`table`]), once for all threads.
//!
//! In some of them the second byte of a character may be a backslash or a letter, so a statement is read character by character, and its literals as MySQL's lexer
//! reads them ([`statement`]).

mod statement;
mod table;

use std::sync::{LazyLock, OnceLock};

use encoding_rs::{
    BIG5, EUC_JP, EUC_KR, Encoding, GB18030, GBK, IBM866, ISO_8859_2, ISO_8859_7, ISO_8859_8, ISO_8859_13, KOI8_R,
    KOI8_U, MACINTOSH, SHIFT_JIS, WINDOWS_874, WINDOWS_1250, WINDOWS_1251, WINDOWS_1254, WINDOWS_1256, WINDOWS_1257,
};

use self::table::Table;
pub use statement::{Quoting, Reader};

const COLLATIONS: &str = include_str!("collations.txt");

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
}

type Trails = &'static [(u8, u8)];

const EAST: Trails = &[(0x40, 0x7e), (0x80, 0xfe)];
const HIGH: Trails = &[(0xa1, 0xfe)];
const JAPAN: Form = Form::Two(&[(0x81, 0x9f), (0xe0, 0xfc)], &[(0x40, 0x7e), (0x80, 0xfc)]);

/// MySQL's name, whose table is near, and how long characters are.
const KNOWN: [(&str, &Encoding, Form); 23] = [
    ("big5", BIG5, Form::Two(&[(0xa1, 0xf9)], &[(0x40, 0x7e), (0xa1, 0xfe)])),
    ("cp1250", WINDOWS_1250, Form::Byte),
    ("cp1251", WINDOWS_1251, Form::Byte),
    ("cp1256", WINDOWS_1256, Form::Byte),
    ("cp1257", WINDOWS_1257, Form::Byte),
    ("cp866", IBM866, Form::Byte),
    ("cp932", SHIFT_JIS, JAPAN),
    ("eucjpms", EUC_JP, Form::Euc),
    ("euckr", EUC_KR, Form::Two(&[(0x81, 0xfe)], &[(0x41, 0x5a), (0x61, 0x7a), (0x81, 0xfe)])),
    ("gb18030", GB18030, Form::Four),
    ("gb2312", GBK, Form::Two(&[(0xa1, 0xf7)], HIGH)),
    ("gbk", GBK, Form::Two(&[(0x81, 0xfe)], EAST)),
    ("greek", ISO_8859_7, Form::Byte),
    ("hebrew", ISO_8859_8, Form::Byte),
    ("koi8r", KOI8_R, Form::Byte),
    ("koi8u", KOI8_U, Form::Byte),
    ("latin2", ISO_8859_2, Form::Byte),
    ("latin5", WINDOWS_1254, Form::Byte),
    ("latin7", ISO_8859_13, Form::Byte),
    ("macroman", MACINTOSH, Form::Byte),
    ("sjis", SHIFT_JIS, JAPAN),
    ("tis620", WINDOWS_874, Form::Byte),
    ("ujis", EUC_JP, Form::Euc),
];

static TABLES: [OnceLock<Table>; KNOWN.len()] = [const { OnceLock::new() }; KNOWN.len()];

/// One of these character sets: its place among [`KNOWN`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Foreign(u8);

/// The collation of a connection in one of them: its place among [`ORDERS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ForeignCollation(u8);

struct Order {
    charset: Foreign,
    name: &'static str,
    id: u16,
}

/// Those of a character set stand together, its default first.
static ORDERS: LazyLock<Vec<Order>> = LazyLock::new(|| {
    let orders = COLLATIONS.lines().map(|line| {
        let mut words = line.split(' ');
        let charset = words.next().and_then(Foreign::from_name);
        let name = words.next();
        let id = words.next().and_then(|id| id.parse().ok());
        charset.zip(name).zip(id).map(|((charset, name), id)| Order { charset, name, id })
    });
    orders.collect::<Option<_>>().expect("collations.txt has a character set, a collation and its number a line")
});

fn is_in(ranges: &[(u8, u8)], byte: Option<&u8>) -> bool {
    byte.is_some_and(|byte| ranges.iter().any(|(first, last)| (first..=last).contains(&byte)))
}

impl Foreign {
    pub fn from_name(name: &str) -> Option<Foreign> {
        let at = KNOWN.iter().position(|(known, ..)| known.eq_ignore_ascii_case(name))?;
        u8::try_from(at).ok().map(Foreign)
    }

    pub fn name(self) -> &'static str {
        KNOWN[usize::from(self.0)].0
    }

    fn form(self) -> Form {
        KNOWN[usize::from(self.0)].2
    }

    fn table(self) -> &'static Table {
        let place = usize::from(self.0);
        TABLES[place].get_or_init(|| {
            let (name, encoding, form) = KNOWN[place];
            Table::new(name, encoding, form)
        })
    }

    /// Most bytes of a character.
    pub fn bytes_of_character(self) -> u8 {
        match self.form() {
            Form::Byte => 1,
            Form::Two(..) => 2,
            Form::Euc => 3,
            Form::Four => 4,
        }
    }

    pub fn default_collation(self) -> ForeignCollation {
        let first = ORDERS.iter().position(|order| order.charset == self);
        ForeignCollation(first.and_then(|at| u8::try_from(at).ok()).expect("collations.txt has all character sets"))
    }

    /// How many bytes a character has whose first are these: what has to be there to tell.
    pub fn expects(self, bytes: &[u8]) -> usize {
        match (self.form(), bytes.first()) {
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
        let is_one = match (self.form(), bytes) {
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
        (self.table().read(&bytes[..long]), long)
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

    /// Whether a text of ASCII is written as it is.
    pub fn keeps(self, text: &[u8]) -> bool {
        text.is_ascii() && (self.table().keeps_ascii || !text.contains(&b'\\'))
    }

    /// The bytes that a client wrote for a text.
    pub fn written(self, text: &[u8]) -> Vec<u8> {
        // Where a backslash is not told as one, it was still written as one.
        let parts = text.split(|byte| *byte == b'\\').map(|part| self.write(part));
        parts.collect::<Vec<_>>().join(&b'\\')
    }

    /// What a client is told; `?` for each character that is not there.
    pub fn write(self, text: &[u8]) -> Vec<u8> {
        let table = self.table();
        let mut out = Vec::with_capacity(text.len());
        for character in String::from_utf8_lossy(text).chars() {
            table.write(character, &mut out);
        }
        out
    }
}

impl ForeignCollation {
    fn find(is: impl Fn(&Order) -> bool) -> Option<ForeignCollation> {
        ORDERS.iter().position(is).and_then(|at| u8::try_from(at).ok()).map(ForeignCollation)
    }

    pub fn from_name(name: &str) -> Option<ForeignCollation> {
        Self::find(|order| order.name.eq_ignore_ascii_case(name))
    }

    /// By MySQL's number.
    pub fn from_id(id: u16) -> Option<ForeignCollation> {
        Self::find(|order| order.id == id)
    }

    fn order(self) -> &'static Order {
        &ORDERS[usize::from(self.0)]
    }

    pub fn name(self) -> &'static str {
        self.order().name
    }

    pub fn id(self) -> u16 {
        self.order().id
    }

    pub fn charset(self) -> Foreign {
        self.order().charset
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use sha2::{Digest, Sha256};

    use super::*;

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
        let is_wide = charset.form() != Form::Byte;
        all.extend((0x8000..=0xffff_u16).filter(|_| is_wide).map(|n| n.to_be_bytes().to_vec()));
        if charset.form() == Form::Euc {
            all.extend((0x8000..=0xffff_u16).map(|n| [&[0x8f], &n.to_be_bytes()[..]].concat()));
        }
        if charset.form() == Form::Four {
            let rest = |n: u32| [(n / 1260) as u8 + 0x30, (n / 10 % 126) as u8 + 0x81, (n % 10) as u8 + 0x30];
            all.extend((0x81..=0xfe).flat_map(|a| (0..12600).map(move |n| [&[a], &rest(n)[..]].concat())));
        }
        all
    }

    #[test]
    fn every_character_is_the_references() {
        for line in include_str!("digests.txt").lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let charset = Foreign::from_name(words[0]).unwrap();
            let read = sequences(charset).into_iter().filter(|bytes| charset.length(bytes) == bytes.len());
            let read = read.filter_map(|bytes| Some((number(&bytes), u32::from(charset.first(&bytes).0?))));
            assert_eq!(digest(read), words[1..3].join(" "), "what {} reads", words[0]);
            // The other planes of the rest have nothing.
            let last = if charset.form() == Form::Four { char::MAX } else { '\u{20000}' };
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
    fn all_have_a_collation_and_a_digest() {
        assert_eq!(include_str!("digests.txt").lines().count(), KNOWN.len());
        for (at, (name, ..)) in KNOWN.iter().enumerate() {
            let charset = Foreign::from_name(&name.to_uppercase()).unwrap();
            assert_eq!((usize::from(charset.0), charset.default_collation().charset()), (at, charset));
        }
        assert_eq!(Foreign::from_name("gbk").unwrap().default_collation().name(), "gbk_chinese_ci");
        assert_eq!(ForeignCollation::from_id(52).unwrap().name(), "cp1251_general_cs");
        assert_eq!((Foreign::from_name("ucs2"), ForeignCollation::from_id(45)), (None, None));
    }

    #[test]
    fn what_is_no_character_is_refused() {
        let of = |name, bytes: &[u8]| Foreign::from_name(name).unwrap().read(bytes);
        assert_eq!(of("gbk", b"a\xd6\xd0\xff").unwrap_err(), 3);
        assert_eq!(of("gbk", b"\xd6").unwrap_err(), 0);
        assert_eq!(of("cp1251", b"\x98").unwrap_err(), 0);
        assert_eq!(of("tis620", b"\xa1\xfc").unwrap_err(), 1);
        assert_eq!(of("gb18030", b"\x81\x30\x81").unwrap_err(), 0);
        assert_eq!(of("gb18030", b"\x94\x39\xda\x33").unwrap(), "\u{1f4a9}");
        assert_eq!(of("ujis", b"\x8e\xb1\x8f\xb0\xa1").unwrap(), "\u{ff71}\u{4e02}");
        assert_eq!(Foreign::from_name("gbk").unwrap().read_lossy(b"a\xff\xd6\xd0\xd6"), "a?\u{4e2d}?");
    }

    #[test]
    fn what_is_not_there_is_a_question_mark() {
        let of = |name, text: &str| Foreign::from_name(name).unwrap().write(text.as_bytes());
        assert_eq!(of("cp1251", "\u{436}\u{4e2d}\u{1f600}\u{e9}"), b"\xe6???");
        assert_eq!(of("sjis", "\\\u{8868}"), b"\x81_\x95\\");
        assert!(!Foreign::from_name("sjis").unwrap().keeps(b"a\\"));
        assert!(Foreign::from_name("cp932").unwrap().keeps(b"a\\"));
    }
}
