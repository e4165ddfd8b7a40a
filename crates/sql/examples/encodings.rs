//! What encoding_rs makes of all sequences of bytes, for `tests/reference/charsets.py`: a label, the sequence, and its code point.

use std::io::{self, BufWriter, Write};

use encoding_rs::{DecoderResult, Encoding};

const LABELS: [&str; 20] = [
    "big5",
    "euc-jp",
    "euc-kr",
    "gb18030",
    "ibm866",
    "iso-8859-13",
    "iso-8859-2",
    "iso-8859-7",
    "iso-8859-8",
    "koi8-r",
    "koi8-u",
    "macintosh",
    "shift_jis",
    "windows-1250",
    "windows-1251",
    "windows-1254",
    "windows-1256",
    "windows-1257",
    "windows-874",
    "gbk",
];

fn main() -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    for label in LABELS {
        let encoding = Encoding::for_label(label.as_bytes()).ok_or(io::ErrorKind::NotFound)?;
        let mut tell = |bytes: &[u8]| {
            let mut text = [0; 16];
            let mut decoder = encoding.new_decoder_without_bom_handling();
            let (result, _, long) = decoder.decode_to_utf8_without_replacement(bytes, &mut text, true);
            let mut points = std::str::from_utf8(&text[..long]).unwrap_or_default().chars();
            if let (DecoderResult::InputEmpty, Some(point), None) = (result, points.next(), points.next()) {
                let code = bytes.iter().fold(0_u32, |code, byte| code << 8 | u32::from(*byte));
                writeln!(out, "{label} {code:X} {:X}", u32::from(point))?;
            }
            Ok::<(), io::Error>(())
        };
        (0..=255).try_for_each(|a| tell(&[a]))?;
        if encoding.is_single_byte() {
            continue;
        }
        for (a, b) in (0x80..=255).flat_map(|a| (0..=255).map(move |b| (a, b))) {
            tell(&[a, b])?;
            if label == "euc-jp" {
                tell(&[0x8f, a, b])?;
            }
        }
        for n in (0..=255_u8).filter(|_| label == "gb18030").flat_map(|a| (0..12600_u16).map(move |n| (a, n))) {
            let digit = |n: u16| 0x30 + (n % 10) as u8;
            tell(&[n.0, digit(n.1 / 1260), 0x81 + (n.1 / 10 % 126) as u8, digit(n.1)])?;
        }
    }
    out.flush()
}
