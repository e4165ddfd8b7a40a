//! Which of two values is greater: their types have an order, and values of types that are alike are compared as what they are.

use std::cmp::Ordering;

use super::value::Json;
use crate::value::datum::Number;

/// The place of a value's type in the order; numbers share one.
fn rank(value: &Json) -> u8 {
    match value {
        Json::Null => 0,
        Json::Int(_) | Json::UInt(_) | Json::Decimal { .. } | Json::Double(_) => 1,
        Json::String(_) => 2,
        Json::Object(_) => 3,
        Json::Array(_) => 4,
        Json::Bool(_) => 5,
        Json::Date(_) => 6,
        Json::Time(_) => 7,
        Json::DateTime(..) => 8,
        Json::Opaque(16, _) => 10,
        Json::Opaque(15 | 249..=254, _) => 11,
        Json::Opaque(..) => 9,
    }
}

/// As a number, where it is one.
pub fn number(value: &Json) -> Option<Number> {
    Some(match value {
        Json::Int(n) => Number::Int(*n),
        Json::UInt(n) => Number::UInt(*n),
        Json::Decimal { unscaled, scale } => Number::Decimal(*unscaled, *scale),
        Json::Double(x) => Number::Double(*x),
        _ => return None,
    })
}

fn compare_numbers(a: Number, b: Number) -> Ordering {
    match (a, b) {
        // An integer beside a double keeps all its digits.
        (Number::Double(x), Number::Int(_) | Number::UInt(_)) => compare_double(x, b.to_i128()),
        (Number::Int(_) | Number::UInt(_), Number::Double(y)) => compare_double(y, a.to_i128()).reverse(),
        _ => a.compare(b),
    }
}

fn compare_double(x: f64, n: i128) -> Ordering {
    // Every integer in question is far below 2^127, where `as` would stop.
    let whole = x.trunc() as i128;
    whole.cmp(&n).then_with(|| x.fract().partial_cmp(&0.0).unwrap_or(Ordering::Equal))
}

/// MySQL's order of JSON values.
pub fn compare(a: &Json, b: &Json) -> Ordering {
    match (a, b) {
        (Json::String(x), Json::String(y)) => x.as_bytes().cmp(y.as_bytes()),
        (Json::Bool(x), Json::Bool(y)) => x.cmp(y),
        (Json::Date(x), Json::Date(y)) => x.cmp(y),
        (Json::Time(x), Json::Time(y)) => x.cmp(y),
        (Json::DateTime(x, _), Json::DateTime(y, _)) => x.cmp(y),
        (Json::Opaque(_, x), Json::Opaque(_, y)) if rank(a) == rank(b) => x.cmp(y),
        (Json::Array(x), Json::Array(y)) => {
            let different = x.iter().zip(y).map(|(a, b)| compare(a, b)).find(|o| o.is_ne());
            different.unwrap_or_else(|| x.len().cmp(&y.len()))
        }
        (Json::Object(x), Json::Object(y)) => x.len().cmp(&y.len()).then_with(|| {
            let member = |((k, a), (l, b)): ((&str, &Json), (&str, &Json))| k.cmp(l).then_with(|| compare(a, b));
            x.iter().zip(y.iter()).map(member).find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
        }),
        _ => match number(a).zip(number(b)) {
            Some((x, y)) => compare_numbers(x, y),
            None => rank(a).cmp(&rank(b)),
        },
    }
}

/// Appends a key by which bytes are equal as values are, and are ordered as the values of ORDER BY: containers by their size first.
pub fn push_key(out: &mut Vec<u8>, value: &Json) {
    push_ordered(out, value);
    let mut parts = |list: &mut dyn Iterator<Item = (Option<&str>, &Json)>| {
        for (key, part) in list {
            if let Some(key) = key {
                push_text(out, key.as_bytes());
            }
            push_key(out, part);
        }
    };
    match value {
        Json::Array(list) => parts(&mut list.iter().map(|v| (None, v))),
        Json::Object(members) => parts(&mut members.iter().map(|(k, v)| (Some(k), v))),
        _ => {}
    }
}

/// Appends a key by which bytes are ordered as ORDER BY orders values: of containers nothing but the size counts.
pub fn push_ordered(out: &mut Vec<u8>, value: &Json) {
    out.push(rank(value));
    match value {
        Json::Null => {}
        Json::Bool(b) => out.push(u8::from(*b)),
        Json::String(text) => push_text(out, text.as_bytes()),
        Json::Opaque(_, bytes) => push_text(out, bytes),
        Json::Array(list) => out.extend_from_slice(&(list.len() as u32).to_be_bytes()),
        Json::Object(members) => out.extend_from_slice(&(members.len() as u32).to_be_bytes()),
        Json::Date(d) => out.extend_from_slice(&d.to_be_bytes()),
        Json::DateTime(d, _) => out.extend_from_slice(&d.to_be_bytes()),
        Json::Time(t) => out.extend_from_slice(&(*t as u64 ^ 1 << 63).to_be_bytes()),
        Json::Int(_) | Json::UInt(_) | Json::Decimal { .. } | Json::Double(_) => {
            let n = number(value).unwrap_or(Number::Int(0));
            let x = n.to_f64();
            let bits = if x == 0.0 { 0 } else { x.to_bits() };
            let mask = if bits >> 63 == 1 { u64::MAX } else { 1 << 63 };
            out.extend_from_slice(&(bits ^ mask).to_be_bytes());
            // What of an integer a double leaves out.
            let rest = match n {
                Number::Int(_) | Number::UInt(_) => n.to_i128() - x as i128,
                _ => 0,
            };
            out.extend_from_slice(&((rest as i16) as u16 ^ 1 << 15).to_be_bytes());
        }
    }
}

fn push_text(out: &mut Vec<u8>, text: &[u8]) {
    for &byte in text {
        out.push(byte);
        if byte == 0 {
            out.push(0xff);
        }
    }
    out.extend_from_slice(&[0, 0]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::json::parse::parse;

    fn json(text: &str) -> Json {
        parse(text.as_bytes()).unwrap()
    }

    fn key(value: &Json) -> Vec<u8> {
        let mut out = Vec::new();
        push_key(&mut out, value);
        out
    }

    /// In MySQL's order.
    const RISING: &[&str] = &[
        "null",
        "-1e300",
        "-5",
        "-4.5",
        "0",
        "0.5",
        "1",
        "9007199254740992",
        "9007199254740993",
        "18446744073709551615",
        "1e20",
        "\"\"",
        "\"A\"",
        "\"a\"",
        "\"a\\u0000\"",
        "\"ab\"",
        "{}",
        "{\"a\":1}",
        "{\"a\":2}",
        "{\"aa\":1}",
        "{\"b\":1}",
        "{\"a\":1,\"b\":2}",
        "[]",
        "[1]",
        "[2]",
        "[1,2]",
        "false",
        "true",
    ];

    #[test]
    fn keys_are_ordered_as_values() {
        for (i, a) in RISING.iter().enumerate() {
            for (j, b) in RISING.iter().enumerate() {
                assert_eq!(key(&json(a)).cmp(&key(&json(b))), i.cmp(&j), "{a} and {b}");
                // Beside each other arrays are compared by their elements first.
                if (*a, *b) != ("[2]", "[1,2]") && (*a, *b) != ("[1,2]", "[2]") {
                    assert_eq!(compare(&json(a), &json(b)), i.cmp(&j), "{a} and {b}");
                }
            }
        }
    }

    #[test]
    fn equal_numbers_have_one_key() {
        for (a, b) in [(json("1"), json("1.0")), (json("-0.0"), json("0"))] {
            assert_eq!(key(&a), key(&b));
            assert!(compare(&a, &b).is_eq());
        }
        let decimal = Json::Decimal { unscaled: 150, scale: 2 };
        assert_eq!(key(&decimal), key(&json("1.5")));
        assert!(compare(&decimal, &json("1.5")).is_eq());
        assert!(compare(&json("9007199254740992.0"), &json("9007199254740993")).is_lt());
    }
}
