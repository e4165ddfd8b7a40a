//! The character sets that have tables: their characters with MySQL's codes, and the weights of their collations.
//!
//! `tests/reference/charsets.py` wrote the files; its head says their form. Codes and weights are told as numbers there, of which [`Codes`] makes the codes of sort keys. A table is made
//! when it is asked for the first time, and kept.

use std::sync::OnceLock;

use super::{
    Charset, Collation,
    weights::{BYTE_SPACES, Codes, OUTSIDE, Runs, SPACE, Table, byte_code},
};

static BYTES: &[u8] = include_bytes!("bytes.bin");
static CODES: &[u8] = include_bytes!("codes.bin");
static GBK: &[u8] = include_bytes!("gbk.bin");
static GB18030: &[u8] = include_bytes!("gb18030.bin");

/// What a character set of one byte has in [`BYTES`], and each of its collations.
const POINTS_LONG: usize = 512;
const WEIGHTS_LONG: usize = 256;

fn is_of_bytes(charset: Charset) -> bool {
    charset.bytes_of_character() == 1 && charset != Charset::Binary
}

fn is_wide(charset: Charset) -> bool {
    !is_of_bytes(charset) && charset != Charset::Binary && !charset.is_utf8() && !charset.is_wide()
}

/// The weights of a collation of one level, by its table.
pub(super) fn table(collation: Collation) -> &'static Table {
    static TABLES: [OnceLock<Table>; Collation::ALL.len()] = [const { OnceLock::new() }; Collation::ALL.len()];
    TABLES[collation as usize].get_or_init(|| match collation {
        Collation::GbkChineseCi => Table::read(&mut &*GBK, |_| (Codes::Ranks, BYTE_SPACES)),
        Collation::Gb18030ChineseCi => Table::read(&mut &*GB18030, |_| (Codes::Sounds, BYTE_SPACES)),
        _ if is_of_bytes(collation.charset()) => of_bytes(collation),
        _ => of_codes(collation),
    })
}

/// The characters of a character set that has a table, each with its code.
pub fn characters(charset: Charset) -> Vec<(u32, u32)> {
    if is_of_bytes(charset) {
        let mut all: Vec<_> = (0..).zip(points(charset)).map(|(byte, point)| (point, byte)).collect();
        all.retain(|(point, byte)| *point > 0 || *byte == 0);
        all.sort_unstable();
        return all;
    }
    let mut all = Vec::new();
    Runs::of(part(charset)).numbers(|point, number| all.push((point, written(number))));
    all
}

/// The code with this number.
fn written(number: u32) -> u32 {
    match number.checked_sub(0x1_0000) {
        Some(n) if number < 0x80_0000 => {
            (n / 12_600 + 0x81) << 24 | (n / 1260 % 10 + 0x30) << 16 | (n / 10 % 126 + 0x81) << 8 | (n % 10 + 0x30)
        }
        _ => number,
    }
}

fn points(charset: Charset) -> impl Iterator<Item = u32> {
    let place = Charset::ALL.into_iter().filter(|c| is_of_bytes(*c)).position(|c| c == charset);
    let part = BYTES.chunks(POINTS_LONG).nth(place.unwrap_or(usize::MAX)).unwrap_or(&[]);
    part.chunks(2).map(|pair| u32::from(u16::from_le_bytes([pair[0], pair[1]])))
}

/// The weights of the 256 bytes, and the second ones.
fn weights(collation: Collation) -> (&'static [u8], &'static [u8]) {
    let has = |c: &Collation| is_of_bytes(c.charset()) && !c.is_binary() && *c != Collation::Tis620ThaiCi;
    let long = |c: Collation| if c == Collation::Latin1German2Ci { 2 * WEIGHTS_LONG } else { WEIGHTS_LONG };
    let before = Collation::ALL.into_iter().filter(has).take_while(|c| *c != collation).map(long).sum::<usize>();
    let sets = Charset::ALL.into_iter().filter(|c| is_of_bytes(*c)).count();
    BYTES[sets * POINTS_LONG + before..][..long(collation)].split_at(WEIGHTS_LONG)
}

fn of_bytes(collation: Collation) -> Table {
    let points: Vec<u32> = points(collation.charset()).collect();
    let mut entries = vec![OUTSIDE; 0x1_0000];
    let there = (0..=255_u8).zip(&points).filter(|(byte, point)| **point > 0 || *byte == 0);
    if collation.is_binary() {
        there.for_each(|(byte, point)| entries[*point as usize] = byte_code(byte));
        return Table::of(Codes::Bytes, BYTE_SPACES, &entries);
    }
    let (first, second) = weights(collation);
    let (codes, spaces) = match collation {
        // Disks have keys of these from before the others were there.
        Collation::AsciiGeneralCi
        | Collation::Latin1SwedishCi
        | Collation::Latin1GeneralCi
        | Collation::Latin1GeneralCs => (std::array::from_fn(|weight| byte_code(weight as u8)), BYTE_SPACES),
        _ => codes_of(first),
    };
    let code = |weight: u8| codes[usize::from(weight)];
    there.clone().for_each(|(byte, point)| entries[*point as usize] = code(first[usize::from(byte)]));
    let mut table = Table::of(Codes::Bytes, spaces, &entries);
    for (byte, point) in there {
        if let Some(weight) = second.get(usize::from(byte)).filter(|weight| **weight > 0) {
            table.set_several(*point, [code(first[usize::from(byte)]), code(*weight)]);
        }
    }
    table
}

/// The codes of weights of one byte in their order, and where those of spaces stand: one byte each, but for a few that only other characters than ASCII have, if there are more than bytes. FF is left for what is outside.
fn codes_of(weights: &[u8]) -> ([u32; 256], u8) {
    let used: Vec<u8> = (0..=255).filter(|weight| weights.contains(weight)).collect();
    let is_of_ascii = |weight: &u8| weights[..0x80].contains(weight);
    let mut over = (used.len() + usize::from(SPACE)).saturating_sub(254);
    let (mut codes, mut spaces, mut next, mut at) = ([0; 256], 0, 1_u8, 0);
    while let Some(&weight) = used.get(at) {
        let together = used.get(at..=at + over).filter(|group| over > 0 && !group.iter().any(is_of_ascii));
        if let Some(group) = together {
            for (n, &weight) in (1..).zip(group) {
                codes[usize::from(weight)] = u32::from(next) << 24 | n << 16;
            }
            (at, over) = (at + group.len(), 0);
        } else {
            if weight == weights[usize::from(b' ')] {
                spaces = next;
                next += SPACE;
            }
            codes[usize::from(weight)] = u32::from(next) << 24;
            at += 1;
        }
        next = next.saturating_add(1);
    }
    assert!(over == 0, "there are more codes than bytes");
    (codes, spaces)
}

/// What [`CODES`] has of a character set of several bytes.
fn part(charset: Charset) -> &'static [u8] {
    let mut rest = Runs::of(CODES);
    for one in Charset::ALL.into_iter().filter(|c| is_wide(*c)) {
        let part = rest.part();
        if one == charset {
            return part;
        }
    }
    &[]
}

/// By the codes of characters, but those that weigh as others.
fn of_codes(collation: Collation) -> Table {
    let mut rest = part(collation.charset());
    let mut table = Table::read(&mut rest, |_| (Codes::Written, BYTE_SPACES));
    if !collation.is_binary() {
        let (mut others, mut point) = (Runs::of(rest), 0);
        for _ in 0..others.number() {
            point += others.number();
            let weight = others.number();
            table.set(point, weight);
        }
    }
    table
}

/// The code of a weight in a sort key, of weights that are codes of a character set.
pub(super) fn written_code(number: u32) -> u32 {
    let lead = |lead: u32| (byte_code(lead as u8), if lead < 0xfb { 16 } else { 8 });
    match number {
        0..0x100 => byte_code(number as u8),
        0x100..0x1_0000 => {
            let (first, shift) = lead(number >> 8);
            first | (number & 0xff) << shift
        }
        // Four bytes, of which the second is a digit: before two with the same first one, whose second is 40 or more.
        0x1_0000..0x80_0000 => {
            let (place, n) = ((number - 0x1_0000) % 12_600, (number - 0x1_0000) / 12_600);
            byte_code((0x81 + n) as u8) | (1 + place / 255) << 16 | (1 + place % 255) << 8
        }
        _ => byte_code((number >> 16) as u8) | (number & 0xffff) << 8,
    }
}

/// Of weights that are numbers in an order, of which those of ASCII are themselves.
pub(super) fn rank_code(number: u32) -> u32 {
    match number.checked_sub(0x80) {
        None => byte_code(number as u8),
        Some(n) => (BEHIND_ASCII + n / 255) << 24 | (1 + n % 255) << 16,
    }
}

/// Of the weights of `gb18030_chinese_ci`: bytes, codes of two bytes, code points, and behind them what is in the order of sounds.
pub(super) fn sound_code(number: u32) -> u32 {
    match number {
        0..0x100 => byte_code(number as u8),
        0x100..0x1_0000 => (BEHIND_ASCII + (number >> 8) - 0xa1) << 24 | (number & 0xff) << 16,
        _ => {
            let n = number - 0x1_0000;
            let (first, second) = (n / (255 * 255), n / 255 % 255);
            (BEHIND_ASCII + 0x5e + first) << 24 | (1 + second) << 16 | (1 + n % 255) << 8
        }
    }
}

/// The first byte behind the codes of ASCII.
const BEHIND_ASCII: u32 = 0x84;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_what_names_say() {
        let of_bytes = Charset::ALL.into_iter().filter(|c| is_of_bytes(*c)).count();
        let own = Collation::ALL.into_iter().filter(|c| is_of_bytes(c.charset()) && !c.is_binary());
        // The weights of Thai are computed, those of one are two.
        assert_eq!(BYTES.len(), of_bytes * POINTS_LONG + own.count() * WEIGHTS_LONG);
        let mut rest = Runs::of(CODES);
        let parts: Vec<&[u8]> = Charset::ALL.into_iter().filter(|c| is_wide(*c)).map(|_| rest.part()).collect();
        assert!(parts.iter().all(|part| part.len() > 1000) && rest.part().is_empty());
    }

    #[test]
    fn characters_have_their_codes() {
        let code = |charset, point| characters(charset).into_iter().find(|(p, _)| *p == point).map(|(_, code)| code);
        assert_eq!(code(Charset::Cp1251, 0x436), Some(0xe6));
        assert_eq!(code(Charset::Gbk, 0x4e2d), Some(0xd6d0));
        assert_eq!(code(Charset::Ujis, 0x4e02), Some(0x8f_b0a1));
        assert_eq!(code(Charset::Gb18030, 0x1_f4a9), Some(0x9439_da33));
        assert_eq!((code(Charset::Sjis, 0x5c), code(Charset::Ascii, 0x80)), (Some(0x5c), None));
    }

    /// No code of a sort key is the beginning of another, and codes have no zero byte.
    #[test]
    fn codes_can_be_told_apart() {
        let numbers = [
            characters(Charset::Gb18030).into_iter().map(|(_, code)| number_of(code)).collect::<Vec<_>>(),
            characters(Charset::Ujis).into_iter().map(|(_, code)| code).collect(),
            characters(Charset::Sjis).into_iter().map(|(_, code)| code).collect(),
        ];
        for numbers in numbers {
            let mut codes: Vec<u32> = numbers.into_iter().map(written_code).collect();
            codes.sort_unstable();
            for pair in codes.windows(2) {
                let [a, b] = [pair[0], pair[1]].map(|code| code.to_be_bytes());
                let long = a.iter().position(|byte| *byte == 0).unwrap_or(4);
                assert!(a[..long] != b[..long] && a[long..].iter().all(|byte| *byte == 0), "{a:x?} {b:x?}");
            }
        }
    }

    fn number_of(code: u32) -> u32 {
        let [a, b, c, d] = code.to_be_bytes().map(u32::from);
        match a {
            0 => code,
            _ => 0x1_0000 + ((a - 0x81) * 10 + b - 0x30) * 1260 + (c - 0x81) * 10 + d - 0x30,
        }
    }
}
