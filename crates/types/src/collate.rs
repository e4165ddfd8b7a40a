//! Collations: sort keys whose byte order is the order of the texts, exactly as in MySQL.
//!
//! MySQL compares lists of weights. Here each weight has a code of a few bytes (`collate/weights.rs`), and a sort key is the codes of a text, one after the other: byte order is
//! MySQL's order, and an ASCII character has one byte. `utf8mb4_0900_as_ci` and `as_cs` compare further levels where the first is equal: they follow behind a byte 1, without the usual
//! weights at the end of a level, which are the lowest, so that the key of a plain text has none. Binary collations compare bytes.
//!
//! PAD SPACE collations compare as if the shorter text went on with spaces, also against what is below a space (`a\t` < `a`). So a key ends with a byte END, and what stands behind `n`
//! spaces says first on which side of all those spaces the text goes on: BELOW, n, or ABOVE, n backwards (one space, the usual case, is a byte of its own). BELOW < END < ABOVE <
//! SPACE stand where a space has its place among the codes.
//!
//! Texts are kept as UTF-8 whatever character set a column has. The character sets other than utf8mb4 say which characters there are, and by their tables (`collate/sets.rs`) which code
//! each has: `_bin` collations compare those.

mod like;
mod names;
mod sets;
mod thai;
mod weights;

use std::cmp::Ordering;

pub use like::{like, like_in_steps};
pub use names::{Charset, Collation};
pub use sets::characters;
use weights::{ABOVE, BELOW, END, SPACE, Table};

impl Charset {
    /// `text` with `?` for each character that it has not.
    pub fn replace_outside(self, mut text: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(text.len());
        while let Some(at) = self.first_outside(text) {
            out.extend_from_slice(&text[..at]);
            out.push(b'?');
            text = &text[at + weights::decode(&text[at..]).1..];
        }
        out.extend_from_slice(text);
        out
    }
    /// Where the first character of `text` stands that it has not; `text` is UTF-8.
    pub fn first_outside(self, text: &[u8]) -> Option<usize> {
        if text.is_ascii() {
            return None;
        }
        match self {
            Charset::Binary | Charset::Utf8mb4 | Charset::Utf16 | Charset::Utf16le | Charset::Utf32 => None,
            Charset::Ascii => text.iter().position(|b| *b >= 0x80),
            Charset::Utf8mb3 | Charset::Ucs2 => text.iter().position(|b| *b >= 0xf0),
            _ => {
                let (table, mut at) = (&sets::table(self.binary_collation()), 0);
                while at < text.len() {
                    let (point, long) = weights::decode(&text[at..]);
                    if !point.is_ok_and(|point| table.has(point)) {
                        return Some(at);
                    }
                    at += long;
                }
                None
            }
        }
    }
}

/// The first `count` characters of a text.
pub fn first_characters(text: &[u8], count: usize) -> &[u8] {
    if text.len() <= count {
        return text;
    }
    let end = text.iter().enumerate().filter(|(_, b)| **b & 0xc0 != 0x80).nth(count);
    &text[..end.map_or(text.len(), |(at, _)| at)]
}

/// How texts of a collation become keys.
enum Way {
    Bytes,
    PaddedBytes,
    /// Tables, of which each is a level.
    Tables(&'static [Table]),
    Thai,
}

impl Collation {
    #[inline]
    fn way(self) -> Way {
        use Collation::*;
        match self {
            Binary | Utf8mb40900Bin => Way::Bytes,
            AsciiBin | Utf8mb3Bin | Utf8mb4Bin | Ucs2Bin | Utf16Bin | Utf16leBin | Utf32Bin => Way::PaddedBytes,
            Utf8mb3GeneralCi | Utf8mb4GeneralCi | Ucs2GeneralCi | Utf16GeneralCi | Utf16leGeneralCi
            | Utf32GeneralCi => Way::Tables(&weights::GENERAL),
            Utf8mb3UnicodeCi | Utf8mb4UnicodeCi | Ucs2UnicodeCi | Utf16UnicodeCi | Utf32UnicodeCi => {
                Way::Tables(&weights::UNICODE_400)
            }
            Utf8mb3Unicode520Ci | Utf8mb4Unicode520Ci | Ucs2Unicode520Ci | Utf16Unicode520Ci | Utf32Unicode520Ci
            | Gb18030Unicode520Ci => Way::Tables(&weights::UNICODE_520),
            Utf8mb40900AiCi => Way::Tables(&weights::UNICODE_900[..1]),
            Utf8mb40900AsCi => Way::Tables(&weights::UNICODE_900[..2]),
            Utf8mb40900AsCs => Way::Tables(&weights::UNICODE_900),
            Tis620ThaiCi => Way::Thai,
            other => Way::Tables(std::slice::from_ref(sets::table(other))),
        }
    }

    /// Calls `emit` with the pieces of the sort key of `text`.
    pub fn sort_key(self, text: &[u8], mut emit: impl FnMut(&[u8])) {
        let tables = match self.way() {
            Way::Bytes => return emit(text),
            Way::PaddedBytes if is_plain(text) => {
                return plain_key(text, |b| b + weights::BYTES_UP, Some(weights::BYTE_SPACES), &mut emit);
            }
            Way::PaddedBytes => {
                let codes = text.iter().map(|&b| weights::byte_code(b));
                return pad(codes, weights::BYTE_SPACES, &mut Pieces::new(&mut emit));
            }
            Way::Thai => return pad(thai::codes(text), weights::BYTE_SPACES, &mut Pieces::new(&mut emit)),
            Way::Tables(tables) => tables,
        };
        let is_plain = |text: &[u8]| (tables[0].space_is_first || !text.contains(&b' ')) && is_plain(text);
        if tables.len() == 1 && is_plain(text) {
            let (ascii, spaces) = (&tables[0].ascii, self.pads().then_some(tables[0].spaces));
            return plain_key(text, |b| ascii[usize::from(b & 0x7f)], spaces, &mut emit);
        }
        let mut out = Pieces::new(&mut emit);
        if self.pads() {
            return pad(tables[0].iter(text), tables[0].spaces, &mut out);
        }
        tables[0].iter(text).for_each(|code| out.code(code));
        // Levels that end with nothing but the usual weights end before them, and the key with the last that has others.
        let (mut separators, mut usual) = (0, 0);
        for table in &tables[1..] {
            separators += 1;
            for code in table.iter(text) {
                if code == weights::USUAL {
                    usual += 1;
                    continue;
                }
                (0..std::mem::take(&mut separators)).for_each(|_| out.byte(1));
                (0..std::mem::take(&mut usual)).for_each(|_| out.code(weights::USUAL));
                out.code(code);
            }
            usual = 0;
        }
    }

    /// The sort key of the first `length` characters, such that no text has a smaller one than a text before it, and equal texts have the same: of the first level
    /// alone, and counted in weights, since characters of other numbers of weights may be equal.
    pub fn sort_key_of_beginning(self, text: &[u8], length: usize, mut emit: impl FnMut(&[u8])) {
        let tables = match self.way() {
            Way::Tables(tables) => tables,
            Way::Thai => {
                return pad(thai::codes(text).take(length), weights::BYTE_SPACES, &mut Pieces::new(&mut emit));
            }
            Way::Bytes | Way::PaddedBytes => return self.sort_key(first_characters(text, length), emit),
        };
        let codes = tables[0].iter(text).take(length);
        let mut out = Pieces::new(&mut emit);
        match self.pads() {
            true => pad(codes, tables[0].spaces, &mut out),
            false => codes.for_each(|code| out.code(code)),
        }
    }

    /// Compares two texts without making their keys.
    pub fn compare(self, a: &[u8], b: &[u8]) -> Ordering {
        let same = a.iter().zip(b).take_while(|(x, y)| x == y).count();
        if same == a.len() && same == b.len() {
            return Ordering::Equal;
        }
        // What both begin with has the same weights. A character is not cut.
        let inside = |at: usize| [a, b].iter().any(|text| text.get(at).is_some_and(|b| b & 0xc0 == 0x80));
        let way = self.way();
        let same = match way {
            // Marks of the beginning stand at the end.
            Way::Thai => 0,
            _ => (0..=same).rev().find(|&at| !inside(at)).unwrap_or(0),
        };
        let (a, b) = (&a[same..], &b[same..]);
        match way {
            Way::Bytes => a.cmp(b),
            Way::PaddedBytes => {
                let code = |b: &u8| weights::byte_code(*b);
                compare_padded(a.iter().map(code), b.iter().map(code), weights::BYTE_SPACES)
            }
            Way::Thai => compare_padded(thai::codes(a), thai::codes(b), weights::BYTE_SPACES),
            Way::Tables([table]) if self.pads() => compare_padded(table.iter(a), table.iter(b), table.spaces),
            Way::Tables(tables) => {
                let order = |table: &'static Table| table.iter(a).cmp(table.iter(b));
                tables.iter().map(order).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
            }
        }
    }

    /// Equal where spaces at the end count, as FIND_IN_SET compares, and LIKE each character with another.
    pub fn equal_unpadded(self, a: &[u8], b: &[u8]) -> bool {
        match self.way() {
            _ if a == b => true,
            Way::Bytes | Way::PaddedBytes => false,
            Way::Thai => thai::codes(a).eq(thai::codes(b)),
            Way::Tables(tables) => tables.iter().all(|table| table.iter(a).eq(table.iter(b))),
        }
    }

    /// What the weights of `text` begin with are those of `part`, level by level, as LOCATE compares.
    pub fn starts_with(self, text: &[u8], part: &[u8]) -> bool {
        match self.way() {
            Way::Bytes | Way::PaddedBytes => text.starts_with(part),
            Way::Thai => {
                let mut weights = thai::codes(text);
                thai::codes(part).all(|code| weights.next() == Some(code))
            }
            Way::Tables(tables) => tables.iter().all(|table| {
                let mut weights = table.iter(text);
                table.iter(part).all(|code| weights.next() == Some(code))
            }),
        }
    }
}

/// Printing ASCII characters in which spaces stand alone, each before another character: every character is a byte of the key. Whole passes
/// without a way out, so that they are made of vector instructions.
fn is_plain(text: &[u8]) -> bool {
    let others = text.iter().fold(0, |others, b| others | u8::from(b.wrapping_sub(0x20) >= 0x5f));
    let pairs = text.iter().zip(text.get(1..).unwrap_or(&[]));
    let runs = pairs.fold(0, |runs, (a, b)| runs | u8::from(*a == b' ') & u8::from(*b == b' '));
    others | runs == 0 && !text.ends_with(b" ")
}

/// The key of such a text; `spaces`: of a collation that pads.
#[inline]
fn plain_key(text: &[u8], code: impl Fn(u8) -> u8, spaces: Option<u8>, emit: &mut impl FnMut(&[u8])) {
    let mut bytes = [0u8; 128];
    let mut chunks = text.chunks(bytes.len() - 1).peekable();
    loop {
        let chunk = chunks.next().unwrap_or(&[]);
        bytes.iter_mut().zip(chunk).for_each(|(out, b)| *out = code(*b));
        if chunks.peek().is_some() {
            emit(&bytes[..chunk.len()]);
            continue;
        }
        bytes[chunk.len()] = spaces.unwrap_or(0) + END;
        return emit(&bytes[..chunk.len() + usize::from(spaces.is_some())]);
    }
}

/// The key of a text in a collation that pads: see the module's head.
fn pad<F: FnMut(&[u8])>(codes: impl Iterator<Item = u32>, spaces: u8, out: &mut Pieces<'_, F>) {
    let space = u32::from(spaces + SPACE) << 24;
    let mut count = 0usize;
    for code in codes {
        if code == space {
            count += 1;
            continue;
        }
        match std::mem::take(&mut count) {
            0 => {}
            1 if code > space => out.byte(spaces + SPACE),
            n => run_of_spaces(n, code > space, spaces, out),
        }
        out.code(code);
    }
    out.byte(spaces + END);
}

fn run_of_spaces<F: FnMut(&[u8])>(count: usize, above: bool, spaces: u8, out: &mut Pieces<'_, F>) {
    out.byte(spaces + if above { ABOVE } else { BELOW });
    let turned = |byte: u8| if above { 0xff - byte } else { byte + 1 };
    (0..count / 254).for_each(|_| out.byte(turned(254)));
    out.byte(turned((count % 254) as u8));
}

fn compare_padded(mut a: impl Iterator<Item = u32>, mut b: impl Iterator<Item = u32>, spaces: u8) -> Ordering {
    let space = u32::from(spaces + SPACE) << 24;
    loop {
        let order = match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (x, y) => x.unwrap_or(space).cmp(&y.unwrap_or(space)),
        };
        if order.is_ne() {
            return order;
        }
    }
}

/// Gathers bytes to pieces.
struct Pieces<'a, F: FnMut(&[u8])> {
    emit: &'a mut F,
    bytes: [u8; 128],
    count: usize,
}

impl<'a, F: FnMut(&[u8])> Pieces<'a, F> {
    fn new(emit: &'a mut F) -> Pieces<'a, F> {
        Pieces { emit, bytes: [0; 128], count: 0 }
    }
    #[inline]
    fn byte(&mut self, byte: u8) {
        if self.count == self.bytes.len() {
            (self.emit)(&self.bytes);
            self.count = 0;
        }
        self.bytes[self.count] = byte;
        self.count += 1;
    }
    #[inline]
    fn code(&mut self, code: u32) {
        let [first, rest @ .., _] = code.to_be_bytes();
        self.byte(first);
        if rest != [0, 0] {
            rest.into_iter().filter(|b| *b != 0).for_each(|b| self.byte(b));
        }
    }
}

impl<F: FnMut(&[u8])> Drop for Pieces<'_, F> {
    fn drop(&mut self) {
        (self.emit)(&self.bytes[..self.count]);
    }
}

#[cfg(test)]
mod tests {
    use super::{Collation, Ordering};

    fn key(collation: Collation, text: &[u8]) -> Vec<u8> {
        let mut key = Vec::new();
        collation.sort_key(text, |piece| key.extend_from_slice(piece));
        key
    }

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect()
    }

    /// What the reference says of some thousand pairs (`tests/reference/collations.py --sample`), of keys and of comparisons.
    #[test]
    fn pairs_are_as_the_reference_has_them() {
        let mut wrong = Vec::new();
        for line in include_str!("collate/sample.txt").lines() {
            let [collation, a, b, answer] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            let collation = Collation::ALL[collation.parse::<usize>().unwrap()];
            let (a, b) = (bytes(a.trim_matches('-')), bytes(b.trim_matches('-')));
            let wanted = match answer {
                "<" => Ordering::Less,
                ">" => Ordering::Greater,
                _ => Ordering::Equal,
            };
            if collation.compare(&a, &b) != wanted || key(collation, &a).cmp(&key(collation, &b)) != wanted {
                wrong.push(format!("{} {line} {:x?} {:x?}", collation.name(), key(collation, &a), key(collation, &b)));
            }
        }
        assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong[..wrong.len().min(20)].join("\n"));
    }

    #[test]
    fn case_accents_and_trailing_spaces() {
        let ci = Collation::Utf8mb4GeneralCi;
        assert_eq!(ci.compare(b"Straum  ", b"sTRAUM"), Ordering::Equal);
        assert_eq!(ci.compare("Éa".as_bytes(), b"eA"), Ordering::Equal);
        assert_eq!(ci.compare(b"a\t", b"a"), Ordering::Less);
        assert_eq!(Collation::Utf8mb4Bin.compare(b"a", b"A"), Ordering::Greater);
        assert_eq!(Collation::Utf8mb40900AiCi.compare(b"a ", b"a"), Ordering::Greater);
        assert_eq!(Collation::Binary.compare(b"a ", b"a"), Ordering::Greater);
    }

    #[test]
    fn keys_of_plain_text_are_as_long_as_it() {
        for collation in Collation::ALL {
            let end = usize::from(collation.pads());
            assert_eq!(
                key(collation, b"Plain text, 12").len(),
                14 + end + usize::from(collation == Collation::Utf8mb40900AsCs) * 3
            );
        }
    }

    /// Whatever the bytes are, keys and comparisons agree, and no key has a zero where texts are not bytes.
    #[test]
    fn runs_of_spaces_and_wrong_bytes_are_ordered() {
        let mut texts: Vec<Vec<u8>> =
            vec![b"a\xffb".to_vec(), b"a\xc3".to_vec(), b"\xed\xa0\x80".to_vec(), vec![0xf4, 0xbf, 0xbf, 0xbf]];
        for n in [1, 126, 127, 128, 253, 254, 255, 300] {
            texts.extend([b"x y".repeat(n), b"x".repeat(n), [&b"x".repeat(n)[..], b"\xc3\xa9"].concat()]);
        }
        for n in [0, 1, 2, 3, 253, 254, 255, 256, 508, 509] {
            for tail in [&b""[..], b"\t", b"\0", b"b", b"!", " é".as_bytes()] {
                texts.push([b"a", &vec![b' '; n][..], tail].concat());
            }
        }
        for collation in Collation::ALL {
            for a in &texts {
                assert!(collation.name().ends_with("n") || collation.is_binary() || !key(collation, a).contains(&0));
                for b in &texts {
                    let by_key = key(collation, a).cmp(&key(collation, b));
                    assert_eq!(by_key, collation.compare(a, b), "{} {a:?} {b:?}", collation.name());
                }
            }
        }
    }

    #[test]
    fn character_sets_say_what_is_outside() {
        use super::Charset;
        assert_eq!(Charset::Latin1.first_outside("aé€ж".as_bytes()), Some(6));
        assert_eq!(Charset::Latin1.first_outside("\u{81}ÿ".as_bytes()), None);
        assert_eq!(Charset::Latin1.first_outside("\u{80}".as_bytes()), Some(0));
        assert_eq!(Charset::Utf8mb3.first_outside("ж😀".as_bytes()), Some(2));
        assert_eq!(Charset::Ascii.first_outside("é".as_bytes()), Some(0));
        assert_eq!(Charset::Cp1251.first_outside("жё中".as_bytes()), Some(4));
        assert_eq!(Charset::Gbk.first_outside("中é한".as_bytes()), Some(5));
        assert_eq!(Charset::Gb2312.first_outside("中國".as_bytes()), Some(3));
        assert_eq!(Charset::Gb18030.first_outside("中國é😀".as_bytes()), None);
        assert_eq!(Charset::Ucs2.first_outside("中😀".as_bytes()), Some(3));
        assert_eq!(Charset::Utf16.first_outside("中😀".as_bytes()), None);
    }

    #[test]
    fn names() {
        assert_eq!(Collation::from_name("utf8_General_ci"), Some(Collation::Utf8mb3GeneralCi));
        assert_eq!(Collation::from_name("UTF8MB4_0900_AI_CI"), Some(Collation::Utf8mb40900AiCi));
        assert_eq!(Collation::from_name("utf8mb4_klingon_ci"), None);
        assert!(Collation::ALL.into_iter().all(|c| Collation::from_id(c.id()) == Some(c)));
    }
}
