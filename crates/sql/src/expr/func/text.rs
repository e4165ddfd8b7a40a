//! Functions over text.

use std::borrow::Cow;

use apus_types::collate::{Charset, Collation};
use sha1::Digest;

use crate::{
    errors::{self, Result},
    expr::{
        Context, Expr, Func,
        eval::{self, arithmetic},
    },
    value::datum::{Datum, Number},
    wire::characters,
};

/// Longest text that a function makes, in bytes; MySQL's `max_allowed_packet`. Beyond it the answer is NULL.
pub(crate) const RESULT_BYTES_MAX: usize = 64 << 20;

pub(crate) fn call<'a>(f: Func, args: &'a [Expr], collation: Collation, cx: &Context<'a>) -> Result<Datum<'a>> {
    let mut values = Vec::with_capacity(args.len());
    for e in args {
        values.push(e.eval(cx)?);
    }
    let skips_null = matches!(f, Func::ConcatWs | Func::Elt | Func::Field | Func::Char | Func::Quote);
    if !skips_null && values.iter().any(Datum::is_null) {
        return Ok(Datum::Null);
    }
    let binary = match f {
        Func::Instr | Func::Locate => collation == Collation::Binary,
        _ => values.iter().any(|v| matches!(v, Datum::Bytes(_))),
    };
    let make = |bytes: Vec<u8>| {
        let bytes = Cow::Owned(bytes);
        Ok(if binary { Datum::Bytes(bytes) } else { Datum::Text(bytes) })
    };
    let first = values.first().map_or(Cow::Borrowed(&b""[..]), |v| v.as_text());
    let text = |i: usize| values.get(i).map_or(Cow::Borrowed(&b""[..]), |v| v.as_text());
    let int =
        |i: usize| values.get(i).and_then(Datum::number).map_or(0, |n| n.to_i128().clamp(-(1 << 60), 1 << 60) as i64);
    match f {
        Func::Concat => make(values.iter().flat_map(|v| v.as_text().into_owned()).collect()),
        Func::ConcatWs => {
            if values[0].is_null() {
                return Ok(Datum::Null);
            }
            let parts: Vec<_> = values[1..].iter().filter(|v| !v.is_null()).map(|v| v.as_text()).collect();
            make(parts.join(&first[..]))
        }
        Func::Length => Ok(Datum::Int(first.len() as i64)),
        Func::CharLength => Ok(Datum::Int(if binary { first.len() } else { eval::char_count(&first) } as i64)),
        Func::Substring => make(substring(&first, int(1), values.get(2).map(|_| int(2)), binary).to_vec()),
        Func::Left => make(substring(&first, 1, Some(int(1)), binary).to_vec()),
        Func::Right => {
            let count = if binary { first.len() } else { eval::char_count(&first) } as i64;
            let keep = int(1).clamp(0, count);
            make(if keep == 0 { Vec::new() } else { substring(&first, -keep, None, binary).to_vec() })
        }
        Func::Upper if binary => make(first.into_owned()),
        Func::Lower if binary => make(first.into_owned()),
        Func::Upper => make(String::from_utf8_lossy(&first).to_uppercase().into_bytes()),
        Func::Lower => make(String::from_utf8_lossy(&first).to_lowercase().into_bytes()),
        Func::Trim | Func::LTrim | Func::RTrim => {
            let what = if values.len() > 1 { text(1) } else { Cow::Borrowed(&b" "[..]) };
            let mut rest = &first[..];
            if !what.is_empty() {
                while f != Func::RTrim && rest.starts_with(&what) {
                    rest = &rest[what.len()..];
                }
                while f != Func::LTrim && rest.ends_with(&what) {
                    rest = &rest[..rest.len() - what.len()];
                }
            }
            make(rest.to_vec())
        }
        Func::Replace => {
            let (from, to) = (text(1), text(2));
            if from.is_empty() {
                return make(first.into_owned());
            }
            let mut out = Vec::with_capacity(first.len());
            let mut rest = &first[..];
            while let Some(at) = find(rest, &from) {
                out.extend_from_slice(&rest[..at]);
                out.extend_from_slice(&to);
                rest = &rest[at + from.len()..];
                if out.len() > RESULT_BYTES_MAX {
                    return Ok(Datum::Null);
                }
            }
            out.extend_from_slice(rest);
            make(out)
        }
        Func::LPad | Func::RPad => {
            let (want, pad) = (int(1), text(2));
            let count = if binary { first.len() } else { eval::char_count(&first) } as i64;
            if want < 0 || want > RESULT_BYTES_MAX as i64 / 4 || (want > count && pad.is_empty()) {
                return Ok(Datum::Null);
            }
            if want <= count {
                return make(substring(&first, 1, Some(want), binary).to_vec());
            }
            let missing = (want - count) as usize;
            let unit = if binary { pad.len() } else { eval::char_count(&pad) };
            let padding = pad.repeat(missing / unit.max(1) + 1);
            let end = if binary { missing } else { eval::char_offset(&padding, missing) };
            let padding = &padding[..end];
            make(if f == Func::LPad { [padding, &first].concat() } else { [&first, padding].concat() })
        }
        Func::Instr => Ok(Datum::Int(locate(&first, &text(1), 1, collation, binary))),
        Func::Locate => {
            let from = if values.len() > 2 { int(2) } else { 1 };
            Ok(Datum::Int(locate(&text(1), &first, from, collation, binary)))
        }
        Func::Hex => Ok(Datum::text(match values[0].number().filter(|_| values[0].is_number()) {
            Some(Number::Double(x)) => format!("{:X}", x.round_ties_even() as i64),
            Some(n) => format!("{:X}", arithmetic::to_bits(n)),
            _ => first.iter().map(|b| format!("{b:02X}")).collect::<String>(),
        })),
        Func::Unhex => Ok(if first.iter().all(u8::is_ascii_hexdigit) {
            Datum::Bytes(Cow::Owned(crate::parse::digest::literal::from_hex(&first)))
        } else {
            Datum::Null
        }),
        Func::Reverse if binary => make(first.iter().rev().copied().collect()),
        Func::Reverse => make(String::from_utf8_lossy(&first).chars().rev().collect::<String>().into_bytes()),
        Func::Repeat => {
            let count = usize::try_from(int(1)).unwrap_or(0);
            if first.len().saturating_mul(count) > RESULT_BYTES_MAX {
                Ok(Datum::Null)
            } else {
                make(first.repeat(count))
            }
        }
        Func::Space => {
            let count = usize::try_from(int(0)).unwrap_or(0);
            if count > RESULT_BYTES_MAX { Ok(Datum::Null) } else { make(vec![b' '; count]) }
        }
        Func::Ascii => Ok(Datum::Int(first.first().map_or(0, |&b| i64::from(b)))),
        Func::Char => {
            let mut out = Vec::new();
            for n in values.iter().filter_map(Datum::number) {
                let bytes = (n.to_i128() as u32).to_be_bytes();
                let skip = bytes.iter().take(3).take_while(|&&b| b == 0).count();
                out.extend_from_slice(&bytes[skip..]);
            }
            Ok(Datum::Bytes(Cow::Owned(out)))
        }
        Func::Sha1 => Ok(Datum::text(hex_lower(&sha1::Sha1::digest(&first)))),
        Func::Sha2 => Ok(match int(1) {
            0 | 256 => Datum::text(hex_lower(&sha2::Sha256::digest(&first))),
            224 => Datum::text(hex_lower(&sha2::Sha224::digest(&first))),
            384 => Datum::text(hex_lower(&sha2::Sha384::digest(&first))),
            512 => Datum::text(hex_lower(&sha2::Sha512::digest(&first))),
            _ => Datum::Null,
        }),
        Func::Strcmp => Ok(Datum::Int(collation.compare(&first, &text(1)) as i64)),
        Func::FindInSet => {
            let set = text(1);
            let found =
                (!set.is_empty()).then(|| set.split(|&b| b == b',').position(|p| same(p, &first, collation, binary)));
            Ok(Datum::Int(found.flatten().map_or(0, |i| i as i64 + 1)))
        }
        Func::Elt => Ok(usize::try_from(int(0))
            .ok()
            .filter(|&i| i > 0)
            .and_then(|i| values.into_iter().nth(i))
            .unwrap_or(Datum::Null)),
        Func::Field => {
            let found = values[1..].iter().position(|v| v.compare(&values[0], collation).is_some_and(|o| o.is_eq()));
            Ok(Datum::Int(found.map_or(0, |i| i as i64 + 1)))
        }
        Func::Quote => {
            if values[0].is_null() {
                return Ok(Datum::text("NULL"));
            }
            let mut out = vec![b'\''];
            for &b in first.iter() {
                match b {
                    b'\'' | b'\\' => out.extend_from_slice(&[b'\\', b]),
                    0 => out.extend_from_slice(b"\\0"),
                    26 => out.extend_from_slice(b"\\Z"),
                    b => out.push(b),
                }
            }
            out.push(b'\'');
            make(out)
        }
        _ => Err(errors::internal("not a function over text")),
    }
}

pub(crate) fn hex_lower(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

pub(crate) fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    if part.is_empty() {
        return Some(0);
    }
    text.windows(part.len()).position(|w| w == part)
}

fn substring(text: &[u8], start: i64, length: Option<i64>, binary: bool) -> &[u8] {
    let count = if binary { text.len() } else { eval::char_count(text) } as i64;
    let from = match start {
        0 => return &[],
        1.. => start - 1,
        _ if -start > count => return &[],
        _ => count + start,
    };
    let to = length.map_or(count, |l| from.saturating_add(l.max(0)));
    if from >= count || to <= from {
        return &[];
    }
    let at = |n: i64| if binary { n.min(count) as usize } else { eval::char_offset(text, n as usize) };
    &text[at(from)..at(to)]
}

/// The bytes that MySQL has of a text in the character set of a collation, which is told by its number.
pub(crate) fn written_in(text: &[u8], collation: &Datum<'_>) -> Vec<u8> {
    let id = collation.number().and_then(|id| u16::try_from(id.to_i128()).ok());
    match id.and_then(Collation::from_id) {
        Some(collation) => characters::kept(collation.charset(), text).into_owned(),
        None => text.to_vec(),
    }
}

/// CONVERT(... USING ...): bytes are a text of the character set, and NULL if they are none; of a text, what is not in it is `?`.
pub(crate) fn convert_using<'a>(value: Datum<'a>, charset: Charset, cx: &Context<'_>) -> Result<Datum<'a>> {
    Ok(match value {
        Datum::Null => Datum::Null,
        Datum::Bytes(bytes) => match characters::text_of(charset, &bytes) {
            Some(text) => Datum::Text(Cow::Owned(text.into_owned())),
            None => {
                cx.env.note(errors::invalid_bytes(charset.name(), &bytes));
                Datum::Null
            }
        },
        text => {
            let bytes = text.as_text();
            match charset.first_outside(&bytes) {
                Some(_) => Datum::Text(Cow::Owned(charset.replace_outside(&bytes))),
                None => Datum::Text(Cow::Owned(bytes.into_owned())),
            }
        }
    })
}

/// Character position of `part`, from 1; 0 when it is not there.
fn locate(text: &[u8], part: &[u8], from: i64, collation: Collation, binary: bool) -> i64 {
    if from < 1 {
        return 0;
    }
    let skip = if binary { (from - 1) as usize } else { eval::char_offset(text, (from - 1) as usize) };
    let long_enough = if binary { text.len() } else { eval::char_count(text) } as i64 >= from - 1;
    let Some(rest) = text.get(skip..).filter(|_| long_enough) else { return 0 };
    let at = if collation.is_binary() || binary {
        find(rest, part)
    } else {
        let mut starts = (0..=rest.len()).filter(|&at| rest.get(at).is_none_or(|b| b & 0xc0 != 0x80));
        starts.find(|&at| collation.starts_with(&rest[at..], part))
    };
    at.map_or(0, |at| from + if binary { at } else { eval::char_count(&rest[..at]) } as i64)
}

/// Equal in a collation, spaces at the end included.
fn same(a: &[u8], b: &[u8], collation: Collation, binary: bool) -> bool {
    if binary { a == b } else { collation.equal_unpadded(a, b) }
}
