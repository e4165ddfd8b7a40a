//! The characters of a foreign character set: by their bytes, and the other way round.
//!
//! Characters of one byte, of two, and of more each have a list of code points by
//! number, with 0 for none: all are of the first plane, but those of GB 18030, whose other planes are counted. What is written stands in pages of 256 code points.

use apus_types::collate::{self, Charset};

use super::Form;

const READ: &str = include_str!("read.txt");
/// Sequences of four bytes of GB 18030 before those of the first plane end, and before the other planes begin.
const FIRST_PLANE: u32 = 39_420;
const OTHER_PLANES: u32 = 189_000;

pub struct Table {
    one: [u16; 256],
    two: Vec<u16>,
    long: Vec<u16>,
    /// By code points, the bytes as a number; 0: none.
    pages: Vec<Option<Box<[u32; 256]>>>,
    form: Form,
    /// Every character of ASCII is written as itself.
    pub keeps_ascii: bool,
}

/// The number of a sequence of four bytes.
fn linear(code: u32) -> u32 {
    let [a, b, c, d] = code.to_be_bytes().map(u32::from);
    ((a.wrapping_sub(0x81) * 10 + b.wrapping_sub(0x30)) * 126 + c.wrapping_sub(0x81)) * 10 + d.wrapping_sub(0x30)
}

/// Of its number.
fn four(n: u32) -> u32 {
    (n / 12_600 + 0x81) << 24 | (n / 1260 % 10 + 0x30) << 16 | (n / 10 % 126 + 0x81) << 8 | (n % 10 + 0x30)
}

/// `FIRST-LAST` or `FIRST`, in hexadecimal.
fn range(word: &str) -> std::ops::RangeInclusive<u32> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    hexadecimal(first)..=hexadecimal(last)
}

fn hexadecimal(word: &str) -> u32 {
    u32::from_str_radix(word, 16).expect("read.txt has hexadecimal numbers")
}

/// A code without its zeros in front.
fn bytes_of(code: u32) -> ([u8; 4], usize) {
    (code.to_be_bytes(), usize::min(code.leading_zeros() as usize / 8, 3))
}

impl Table {
    pub fn new(charset: Charset, form: Form) -> Table {
        let (two, long) = match form {
            Form::Byte | Form::Wide(_) => (0, 0),
            Form::Two(..) => (0x8000, 0),
            Form::Euc => (0x8000, 0x4000),
            Form::Four => (0x8000, FIRST_PLANE as usize),
        };
        let (two, long) = (vec![0; two], vec![0; long]);
        let mut table = Table { one: [0; 256], two, long, pages: vec![None; 256], form, keeps_ascii: false };
        // Of several characters with one code the first is read.
        for (point, code) in collate::characters(charset).into_iter().filter(|(point, _)| *point < 0x1_0000).rev() {
            table.put(code, point);
            table.put_written(point, code);
        }
        for line in READ.lines().filter_map(|line| line.strip_prefix(charset.name())?.strip_prefix(' ')) {
            match line.split_once(' ') {
                Some((codes, "-")) => range(codes).for_each(|code| table.put(code, 0)),
                Some((codes, point)) => {
                    range(codes).zip(hexadecimal(point)..).for_each(|(code, point)| table.put(code, point));
                }
                None => {}
            }
        }
        if charset == Charset::Sjis {
            // Clients are told a wide one.
            table.put_written(u32::from(b'\\'), 0x815f);
        }
        table.keeps_ascii = (0..0x80).all(|point| table.written(point) == point);
        table
    }

    fn slot(&mut self, code: u32) -> Option<&mut u16> {
        let [_, b, c, d] = code.to_be_bytes();
        match code {
            0..0x100 => self.one.get_mut(usize::from(d)),
            0x8000..0x1_0000 => self.two.get_mut(code as usize - 0x8000),
            0x1_0000..0x100_0000 if b == 0x8f && c & d & 0x80 != 0 => self.long.get_mut(place_of_three(c, d)),
            0x100_0000.. if self.form == Form::Four => self.long.get_mut(linear(code) as usize),
            _ => None,
        }
    }

    fn put(&mut self, code: u32, point: u32) {
        if let (Some(slot), Ok(point)) = (self.slot(code), u16::try_from(point)) {
            *slot = point;
        }
    }

    fn put_written(&mut self, point: u32, code: u32) {
        let page = self.pages.get_mut((point >> 8) as usize).expect("characters of the first plane");
        page.get_or_insert_with(|| Box::new([0; 256]))[(point & 0xff) as usize] = code;
    }

    fn written(&self, point: u32) -> u32 {
        let page = self.pages.get((point >> 8) as usize);
        page.and_then(Option::as_ref).map_or(0, |page| page[(point & 0xff) as usize])
    }

    /// The character with these bytes.
    pub fn read(&self, bytes: &[u8]) -> Option<char> {
        let point = match *bytes {
            [0] => return Some('\0'),
            [a] => self.one[usize::from(a)],
            [a, b] => *self.two.get(usize::from(a).checked_sub(0x80)? << 8 | usize::from(b))?,
            [0x8f, a, b] => *self.long.get(place_of_three(a, b))?,
            [a, b, c, d] => match linear(u32::from_be_bytes([a, b, c, d])) {
                n @ OTHER_PLANES.. => return char::from_u32(n - OTHER_PLANES + 0x1_0000),
                n => *self.long.get(n as usize)?,
            },
            _ => return None,
        };
        char::from_u32(point.into()).filter(|_| point != 0)
    }

    /// Appends the bytes of a character, or `?`.
    pub fn write(&self, character: char, out: &mut Vec<u8>) {
        let point = u32::from(character);
        let code = match (point, self.form) {
            (0, _) => return out.push(0),
            (0x1_0000.., Form::Four) => four(point - 0x1_0000 + OTHER_PLANES),
            _ => self.written(point),
        };
        let (bytes, from) = bytes_of(if code == 0 { u32::from(b'?') } else { code });
        out.extend_from_slice(&bytes[from..]);
    }
}

fn place_of_three(a: u8, b: u8) -> usize {
    usize::from(a & 0x7f) << 7 | usize::from(b & 0x7f)
}
