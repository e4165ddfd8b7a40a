//! Functions over text that came later: parts, sets, digits in other bases, numbers written for people.

use std::borrow::Cow;

use super::text::{RESULT_BYTES_MAX, find};
use crate::{
    errors::{self, Result},
    expr::{
        Context, Expr, Func,
        eval::{self, arithmetic},
        result_cells,
    },
    full_text,
    value::{
        datum::{Datum, Number},
        decimal,
        locale::{self, Locale},
    },
};

pub(crate) fn call<'a>(f: Func, args: &'a [Expr], cx: &Context<'a>) -> Result<Datum<'a>> {
    let values = args.iter().map(|e| e.eval(cx)).collect::<Result<Vec<_>>>()?;
    let required = match f {
        Func::MakeSet => 1,
        Func::Format => 2,
        Func::FullTextRank => 0,
        _ => values.len(),
    };
    if values.iter().take(required).any(Datum::is_null) {
        return Ok(Datum::Null);
    }
    let binary = values.iter().any(|v| matches!(v, Datum::Bytes(_)));
    let make = |bytes: Vec<u8>| {
        if bytes.len() > RESULT_BYTES_MAX {
            return Ok(Datum::Null);
        }
        Ok(if binary { Datum::Bytes(Cow::Owned(bytes)) } else { Datum::Text(Cow::Owned(bytes)) })
    };
    let text = |i: usize| values.get(i).map_or(Cow::Borrowed(&b""[..]), |v| v.as_text());
    let number = |i: usize| values.get(i).and_then(Datum::number);
    let int = |i: usize| number(i).map_or(0, |n| n.to_i128().clamp(-(1 << 60), 1 << 60) as i64);
    let bits = |i: usize| number(i).map_or(0, arithmetic::to_bits);
    match f {
        Func::BitLength => Ok(Datum::Int(text(0).len() as i64 * 8)),
        // All bytes of one character.
        Func::Ord if values.len() > 1 => Ok(Datum::Int(text(0).iter().fold(0, |n, byte| n << 8 | i64::from(*byte)))),
        Func::Ord => Ok(Datum::Int(first_character(&text(0), binary))),
        Func::AsText => Ok(Datum::text(String::from_utf8_lossy(&text(0)).into_owned())),
        Func::Insert => make(insert(&text(0), int(1), int(2), &text(3), binary)),
        Func::SubstringIndex => make(substring_index(&text(0), &text(1), int(2)).to_vec()),
        Func::MakeSet => {
            let chosen = (0..values.len() - 1).filter(|i| *i < 64 && bits(0) >> i & 1 == 1).map(|i| i + 1);
            let parts: Vec<_> = chosen.filter(|&i| !values[i].is_null()).map(text).collect();
            make(parts.join(&b','))
        }
        Func::ExportSet => {
            let separator = if values.len() > 3 { text(3) } else { Cow::Borrowed(&b","[..]) };
            let count = if values.len() > 4 { int(4) } else { 64 };
            let count = if (0..=64).contains(&count) { count } else { 64 };
            let parts: Vec<_> = (0..count).map(|i| text(if bits(0) >> i & 1 == 1 { 1 } else { 2 })).collect();
            make(parts.join(&separator[..]))
        }
        Func::Conv => Ok(convert(&text(0), int(1), int(2))),
        Func::Bin => Ok(convert(&text(0), 10, 2)),
        Func::Oct => Ok(convert(&text(0), 10, 8)),
        Func::Format => match eval::number(cx, &values[0]) {
            Some(n) => {
                Ok(Datum::text(format(n, int(1), values.get(2).map_or_else(locale::english, |l| locale_of(cx, l)))))
            }
            None => Ok(Datum::Null),
        },
        Func::Soundex => make(soundex(&text(0))),
        Func::RowKey => {
            let mut key = Vec::new();
            for (value, e) in values.iter().zip(args) {
                let collation = crate::expr::coercion::collation_of(e, &[]);
                result_cells::push_sort_key(&mut key, crate::expr::Kind::of_datum(value), collation, value, false);
            }
            Ok(Datum::Bytes(Cow::Owned(key)))
        }
        Func::FullTextRank => {
            let rank = full_text::rank_of(&text(0), &text(1)).unwrap_or(0.0);
            Ok(Datum::Double(f64::from(rank)))
        }
        _ => Err(errors::internal("not a function over text")),
    }
}

/// The bytes of the first character as one number.
fn first_character(text: &[u8], binary: bool) -> i64 {
    let length = if binary { 1 } else { eval::char_offset(text, 1) };
    text.iter().take(length).fold(0, |n, &b| n << 8 | i64::from(b))
}

fn insert(text: &[u8], position: i64, length: i64, new: &[u8], binary: bool) -> Vec<u8> {
    let count = if binary { text.len() } else { eval::char_count(text) } as i64;
    if position < 1 || position > count {
        return text.to_vec();
    }
    let start = position - 1;
    let end = if length < 0 || length > count - start { count } else { start + length };
    let at = |n: i64| if binary { n as usize } else { eval::char_offset(text, n as usize) };
    [&text[..at(start)], new, &text[at(end)..]].concat()
}

fn substring_index<'t>(text: &'t [u8], delimiter: &[u8], count: i64) -> &'t [u8] {
    if delimiter.is_empty() || count == 0 {
        return &[];
    }
    // Occurrences do not overlap and are counted from the left, also for a negative count.
    let mut places = Vec::new();
    let mut at = 0;
    while let Some(found) = find(&text[at..], delimiter) {
        places.push(at + found);
        at += found + delimiter.len();
        if count > 0 && places.len() as u64 == count.unsigned_abs() {
            return &text[..places[places.len() - 1]];
        }
    }
    let from_right = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    match places.len().checked_sub(from_right) {
        Some(place) if count < 0 => &text[places[place] + delimiter.len()..],
        _ => text,
    }
}

/// CONV: a negative base takes or gives a signed number.
fn convert(text: &[u8], from: i64, to: i64) -> Datum<'static> {
    if text.is_empty() || !(2..=36).contains(&from.abs()) || !(2..=36).contains(&to.abs()) {
        return Datum::Null;
    }
    let (from_base, to_base) = (from.unsigned_abs(), to.unsigned_abs());
    let text = text.trim_ascii_start();
    let (negative, digits) = match text.first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let digit = |b: &u8| (*b as char).to_digit(36).map(u64::from).filter(|d| *d < from_base);
    let mut digits = digits.iter().map_while(digit);
    let value = digits.try_fold(0u64, |n, d| n.checked_mul(from_base)?.checked_add(d));
    let bits = match (value, from < 0) {
        (None, false) => u64::MAX,
        (Some(n), false) if negative => n.wrapping_neg(),
        (Some(n), false) => n,
        (n, true) => {
            let limit = i64::MAX as u64 + u64::from(negative);
            let n = n.unwrap_or(u64::MAX).min(limit);
            if negative { n.wrapping_neg() } else { n }
        }
    };
    let minus = to < 0 && (bits as i64) < 0;
    let mut rest = if minus { bits.wrapping_neg() } else { bits };
    let mut out = Vec::new();
    while rest > 0 || out.is_empty() {
        let d = (rest % to_base) as u32;
        out.push(char::from_digit(d, 36).map_or(b'0', |c| c.to_ascii_uppercase() as u8));
        rest /= to_base;
    }
    if minus {
        out.push(b'-');
    }
    out.reverse();
    Datum::Text(Cow::Owned(out))
}

/// The locale that FORMAT names; English with a warning if there is none.
fn locale_of(cx: &Context<'_>, name: &Datum<'_>) -> &'static Locale {
    let text = if name.is_null() { "NULL".into() } else { name.as_string() };
    locale::named(&text).unwrap_or_else(|| {
        cx.env.note(errors::unknown_locale(&text));
        locale::english()
    })
}

/// FORMAT: so many digits behind the point, groups of digits before it.
fn format(n: Number, digits: i64, locale: &Locale) -> String {
    let digits = digits.clamp(0, i64::from(decimal::SCALE_MAX)) as u8;
    let exact = n.to_decimal().and_then(|(n, scale)| decimal::rescale(n, scale, digits));
    let plain = match exact {
        Some(unscaled) => {
            let mut text = Vec::new();
            decimal::push(&mut text, unscaled, digits);
            String::from_utf8_lossy(&text).into_owned()
        }
        None => format!("{:.*}", usize::from(digits), n.to_f64()),
    };
    let (sign, plain) = plain.strip_prefix('-').map_or(("", plain.as_str()), |rest| ("-", rest));
    let (whole, fraction) = plain.split_once('.').unwrap_or((plain, ""));
    let (last, before) = locale.groups;
    let mut out = String::from(sign);
    for (i, c) in whole.chars().enumerate() {
        let begins_group =
            (whole.len() - i).checked_sub(last).is_some_and(|rest| before > 0 && rest.is_multiple_of(before));
        if i > 0 && begins_group {
            out.push_str(locale.separator);
        }
        out.push(c);
    }
    if !fraction.is_empty() {
        out.push_str(locale.point);
        out.push_str(fraction);
    }
    out
}

/// MySQL's SOUNDEX: vowels do not separate, equal codes beside each other count once, at least four characters.
fn soundex(text: &[u8]) -> Vec<u8> {
    const CODES: &[u8; 26] = b"01230120022455012623010202";
    let code = |b: u8| CODES[usize::from(b.to_ascii_uppercase() - b'A')];
    let mut letters = text.iter().copied().filter(u8::is_ascii_alphabetic);
    let Some(first) = letters.next() else { return Vec::new() };
    let mut out = vec![first.to_ascii_uppercase()];
    let mut last = code(first);
    for letter in letters {
        let code = code(letter);
        if code != b'0' && code != last {
            out.push(code);
            last = code;
        }
    }
    while out.len() < 4 {
        out.push(b'0');
    }
    out
}
