//! `tis620_thai_ci`: the order of Thai dictionaries, as MySQL has it.
//!
//! A vowel that is written before its consonant counts behind it. Tones and the like say at last what else is equal: MySQL moves them to the end of the text, with how far from its
//! beginning they stood, and the text is compared byte by byte. It does so in place and forgets how many it has moved, so of several marks only the last may be left and others are
//! written over; that is its order, and here it is done in the same way.

use super::weights::{byte_code, decode, outside_codes};

const CONSONANTS: std::ops::RangeInclusive<u32> = 0xa1..=0xce;
const LEADING_VOWELS: std::ops::RangeInclusive<u32> = 0xe0..=0xe4;
/// What is beyond the bytes: characters outside of tis620, and bytes that are no character.
const BEYOND: u32 = 0x100;

/// The rank of a mark that goes to the end.
fn mark(byte: u32) -> Option<u8> {
    match byte {
        0xec => Some(1),
        0xe7..=0xeb => Some(byte as u8 - 0xe7 + 2),
        _ => None,
    }
}

/// The byte of a character in tis620.
fn byte_of(point: u32) -> Option<u32> {
    match point {
        0..0xa0 => Some(point),
        0xe01..=0xe3a | 0xe3f..=0xe5b => Some(point - 0xe00 + 0xa0),
        0xfffd => Some(0xff),
        _ => None,
    }
}

/// The codes of a text, as [`super::weights::Table::iter`] has them of others.
pub(super) fn codes(mut text: &[u8]) -> impl Iterator<Item = u32> {
    let mut all = Vec::with_capacity(text.len());
    while !text.is_empty() {
        let (point, long) = decode(text);
        all.push(match point {
            Ok(point) => byte_of(point).unwrap_or(point + BEYOND),
            Err(byte) => 0x11_0000 + BEYOND + u32::from(byte),
        });
        text = &text[long..];
    }
    sort(&mut all);
    all.into_iter()
        .flat_map(|one| match u8::try_from(one) {
            Ok(byte) => [byte_code(byte), 0],
            Err(_) => outside_codes(one - BEYOND),
        })
        .filter(|code| *code != 0)
}

fn sort(text: &mut [u32]) {
    let (mut at, mut left, mut place) = (0, text.len(), 248_u8);
    while left > 0 {
        let one = text[at];
        match one {
            0x80..=0xff => {
                if CONSONANTS.contains(&one) {
                    place = place.wrapping_sub(8);
                }
                if LEADING_VOWELS.contains(&one) && left > 1 && CONSONANTS.contains(&text[at + 1]) {
                    text.swap(at, at + 1);
                    (at, left) = (at + 2, left - 2);
                    continue;
                }
                if let Some(rank) = mark(one) {
                    text.copy_within(at + 1..at + left, at);
                    text[text.len() - 1] = place.wrapping_add(rank).into();
                    left -= 1;
                    continue;
                }
            }
            _ => {
                place = place.wrapping_sub(8);
                text[at] = if let 0x41..=0x5a = one { one + 0x20 } else { one };
            }
        }
        (at, left) = (at + 1, left - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Charset, sets};
    use super::*;

    #[test]
    fn bytes_are_those_of_the_table() {
        let known: Vec<(u32, u32)> = sets::characters(Charset::Tis620);
        let found: Vec<_> = (0..0x1_0000).filter_map(|point| byte_of(point).map(|byte| (point, byte))).collect();
        assert_eq!(known, found);
    }

    /// What WEIGHT_STRING() says.
    #[test]
    fn marks_are_moved_as_mysql_moves_them() {
        let key = |bytes: &[u32]| {
            let mut all = bytes.to_vec();
            sort(&mut all);
            all
        };
        assert_eq!(key(&[0xa1, 0xe8, 0xa2, 0xe8]), [0xa1, 0xa2, 0xe8, 0xeb]);
        assert_eq!(key(&[0xe0, 0xa1, 0xe8, 0xa2, 0xe8, 0x20]), [0xa1, 0xe0, 0xa2, 0x20, 0x20, 0xf3]);
        assert_eq!(key(&[0xe8]), [0xfb]);
    }
}
