//! Hashes, base 64 and UUIDs as bytes.

use std::borrow::Cow;

use md5::Digest;

use super::text::{RESULT_BYTES_MAX, hex_lower};
use crate::{
    errors::{self, Result},
    expr::{Context, Expr, Func},
    parse::digest::literal,
    value::datum::Datum,
};

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// Characters of a line of base 64.
const LINE: usize = 76;

pub(crate) fn call<'a>(f: Func, args: &'a [Expr], cx: &Context<'a>) -> Result<Datum<'a>> {
    let value = args[0].eval(cx)?;
    if value.is_null() {
        return Ok(Datum::Null);
    }
    let bytes = value.as_text();
    let swap = match args.get(1) {
        Some(e) => e.eval(cx)?.truth() == Some(true),
        None => false,
    };
    match f {
        Func::Md5 => Ok(Datum::text(hex_lower(&md5::Md5::digest(&bytes)))),
        Func::ToBase64 if bytes.len() > RESULT_BYTES_MAX / 2 => Ok(Datum::Null),
        Func::ToBase64 => Ok(Datum::Text(Cow::Owned(to_base64(&bytes)))),
        Func::FromBase64 => Ok(from_base64(&bytes).map_or(Datum::Null, |b| Datum::Bytes(Cow::Owned(b)))),
        Func::IsUuid => Ok(Datum::from_bool(uuid(&bytes).is_some())),
        Func::UuidToBin => {
            let id = uuid(&bytes).ok_or_else(|| errors::wrong_value("string", &value, "uuid_to_bin"))?;
            let mut out = id;
            if swap {
                // The fields of the time, the slowest first.
                out[..8].copy_from_slice(&[id[6], id[7], id[4], id[5], id[0], id[1], id[2], id[3]]);
            }
            Ok(Datum::Bytes(Cow::Owned(out.to_vec())))
        }
        Func::BinToUuid => {
            let id = <[u8; 16]>::try_from(&bytes[..]);
            let id = id.map_err(|_| errors::wrong_value("string", &value, "bin_to_uuid"))?;
            let low: [u8; 8] = if swap {
                [id[4], id[5], id[6], id[7], id[2], id[3], id[0], id[1]]
            } else {
                [id[0], id[1], id[2], id[3], id[4], id[5], id[6], id[7]]
            };
            let parts = [&low[..4], &low[4..6], &low[6..8], &id[8..10], &id[10..]];
            Ok(Datum::text(parts.map(hex_lower).join("-")))
        }
        _ => Err(errors::internal("not an encoding")),
    }
}

fn to_base64(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() / 3 * 4 + bytes.len() / 57 + 8);
    for (i, three) in bytes.chunks(3).enumerate() {
        if i > 0 && (i * 4).is_multiple_of(LINE) {
            out.push(b'\n');
        }
        let bits = three.iter().fold(0u32, |n, &b| n << 8 | u32::from(b)) << (8 * (3 - three.len()));
        for place in 0..4 {
            let six = bits >> (18 - 6 * place) & 63;
            out.push(if place <= three.len() { ALPHABET[six as usize] } else { b'=' });
        }
    }
    out
}

/// `None` for what is no base 64; white space does not count.
pub fn from_base64(text: &[u8]) -> Option<Vec<u8>> {
    let text: Vec<u8> = text.iter().copied().filter(|b| !b.is_ascii_whitespace()).collect();
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let padding = text.iter().rev().take(2).take_while(|b| **b == b'=').count();
    let digits = &text[..text.len() - padding];
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    for four in digits.chunks(4) {
        let mut bits = 0u32;
        for b in four {
            bits = bits << 6 | ALPHABET.iter().position(|a| a == b)? as u32;
        }
        bits <<= 6 * (4 - four.len());
        out.extend_from_slice(&bits.to_be_bytes()[1..four.len()]);
    }
    Some(out)
}

/// The 16 bytes of a UUID in one of its three spellings.
fn uuid(text: &[u8]) -> Option<[u8; 16]> {
    let inner = match text {
        [b'{', inner @ .., b'}'] if inner.len() == 36 => inner,
        other => other,
    };
    let digits: Vec<u8> = match inner.len() {
        32 => inner.to_vec(),
        36 if [8, 13, 18, 23].iter().all(|&at| inner[at] == b'-') => {
            inner.iter().enumerate().filter(|(at, _)| ![8, 13, 18, 23].contains(at)).map(|(_, b)| *b).collect()
        }
        _ => return None,
    };
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    literal::from_hex(&digits).try_into().ok()
}
