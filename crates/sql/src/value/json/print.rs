//! To text, as MySQL writes it: a space behind each comma and colon, members in their order.

use std::io::Write;

use apus_types::time::{Civil, unpack_date, unpack_datetime};

use super::value::Json;
use crate::{
    value::{decimal, temporal},
    wire::number,
};

/// Appends the text of a value.
pub fn push(out: &mut Vec<u8>, value: &Json) {
    match value {
        Json::String(text) => push_quoted(out, text),
        Json::Array(list) => {
            out.push(b'[');
            for (i, element) in list.iter().enumerate() {
                out.extend_from_slice(if i > 0 { b", " } else { b"" });
                push(out, element);
            }
            out.push(b']');
        }
        Json::Object(members) => {
            out.push(b'{');
            for (i, (key, member)) in members.iter().enumerate() {
                out.extend_from_slice(if i > 0 { b", " } else { b"" });
                push_quoted(out, key);
                out.extend_from_slice(b": ");
                push(out, member);
            }
            out.push(b'}');
        }
        Json::Opaque(..) => {
            let mut text = Vec::new();
            push_unquoted(&mut text, value);
            push_quoted(out, &String::from_utf8_lossy(&text));
        }
        Json::Date(_) | Json::DateTime(..) | Json::Time(_) => {
            out.push(b'"');
            push_unquoted(out, value);
            out.push(b'"');
        }
        scalar => push_unquoted(out, scalar),
    }
}

/// The text of a value; of a scalar that is shown in quotes without them, as JSON_UNQUOTE() gives it.
pub fn push_unquoted(out: &mut Vec<u8>, value: &Json) {
    match value {
        Json::Null => out.extend_from_slice(b"null"),
        Json::Bool(true) => out.extend_from_slice(b"true"),
        Json::Bool(false) => out.extend_from_slice(b"false"),
        Json::Int(n) => {
            if *n < 0 {
                out.push(b'-');
            }
            number::push_u64(out, n.unsigned_abs());
        }
        Json::UInt(n) => number::push_u64(out, *n),
        Json::Decimal { unscaled, scale } => decimal::push(out, *unscaled, *scale),
        Json::Double(x) => {
            let start = out.len();
            number::push_f64(out, *x);
            if out[start..].iter().all(|b| b.is_ascii_digit() || *b == b'-') {
                out.extend_from_slice(b".0");
            }
        }
        Json::String(text) => out.extend_from_slice(text.as_bytes()),
        Json::Date(d) => {
            let (year, month, day) = unpack_date(*d);
            temporal::push_date(out, &Civil { year, month, day, ..Civil::default() });
        }
        Json::DateTime(d, _) => temporal::push_datetime(out, &unpack_datetime(*d), 6),
        Json::Time(t) => temporal::push_time(out, *t, 6),
        Json::Opaque(ty, bytes) => {
            let _ = write!(out, "base64:type{ty}:");
            push_base64(out, bytes);
        }
        Json::Array(_) | Json::Object(_) => push(out, value),
    }
}

/// A text in quotes, with what JSON wants escaped.
pub fn push_quoted(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    for &byte in text.as_bytes() {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            8 => out.extend_from_slice(b"\\b"),
            12 => out.extend_from_slice(b"\\f"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0..0x20 => _ = write!(out, "\\u{byte:04x}"),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

/// As JSON_PRETTY() shows it: two spaces for each level.
pub fn push_pretty(out: &mut Vec<u8>, value: &Json, level: usize) {
    let line = |out: &mut Vec<u8>, level: usize| {
        out.push(b'\n');
        out.resize(out.len() + 2 * level, b' ');
    };
    match value {
        Json::Array(list) if !list.is_empty() => {
            out.push(b'[');
            for (i, element) in list.iter().enumerate() {
                out.extend_from_slice(if i > 0 { b"," } else { b"" });
                line(out, level + 1);
                push_pretty(out, element, level + 1);
            }
            line(out, level);
            out.push(b']');
        }
        Json::Object(members) if !members.is_empty() => {
            out.push(b'{');
            for (i, (key, member)) in members.iter().enumerate() {
                out.extend_from_slice(if i > 0 { b"," } else { b"" });
                line(out, level + 1);
                push_quoted(out, key);
                out.extend_from_slice(b": ");
                push_pretty(out, member, level + 1);
            }
            line(out, level);
            out.push(b'}');
        }
        other => push(out, other),
    }
}

fn push_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    /// Characters of a line.
    const LINE: usize = 76;
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (at, chunk) in bytes.chunks(3).enumerate() {
        if at > 0 && (at * 4).is_multiple_of(LINE) {
            out.push(b'\n');
        }
        let bits = chunk.iter().fold(0u32, |n, &b| n << 8 | u32::from(b)) << (8 * (3 - chunk.len()));
        for i in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * i) & 63) as usize];
            out.push(if i <= chunk.len() { digit } else { b'=' });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::json::parse::parse;

    fn printed(text: &str) -> String {
        let mut out = Vec::new();
        push(&mut out, &parse(text.as_bytes()).unwrap());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn texts_as_the_reference_prints_them() {
        assert_eq!(
            printed(r#"{"b":1,"aa":[1,2.0,1e2,1.5e-7,1e20],"a":{}}"#),
            r#"{"a": {}, "b": 1, "aa": [1, 2.0, 100.0, 0.00000015, 1e20]}"#
        );
        assert_eq!(printed(r#""\u00e9\u0001\n\"""#), r#""é\u0001\n\"""#);
        let mut out = Vec::new();
        push(&mut out, &Json::Opaque(15, b"abcd".to_vec()));
        assert_eq!(out, b"\"base64:type15:YWJjZA==\"");
    }

    #[test]
    fn pretty() {
        let mut out = Vec::new();
        push_pretty(&mut out, &parse(br#"{"a":[1,{}],"b":[]}"#).unwrap(), 0);
        assert_eq!(String::from_utf8(out).unwrap(), "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": []\n}");
    }
}
