//! Internet addresses.

use std::{
    borrow::Cow,
    net::{Ipv4Addr, Ipv6Addr},
};

use crate::{
    errors::{self, Result},
    expr::{Context, Expr, Func},
    value::datum::Datum,
};

pub(crate) fn call<'a>(f: Func, args: &'a [Expr], cx: &Context<'a>) -> Result<Datum<'a>> {
    let value = args[0].eval(cx)?;
    if value.is_null() {
        return Ok(Datum::Null);
    }
    let bytes = value.as_text();
    let text = std::str::from_utf8(&bytes).unwrap_or("");
    let sixteen = || match &value {
        Datum::Bytes(b) => <[u8; 16]>::try_from(&b[..]).ok(),
        _ => None,
    };
    let answer = match f {
        Func::InetAton => number_of(&bytes).map_or(Datum::Null, Datum::UInt),
        Func::InetNtoa => match value.number().map(|n| u32::try_from(n.to_i128())) {
            Some(Ok(n)) => Datum::text(Ipv4Addr::from(n).to_string()),
            _ => Datum::Null,
        },
        Func::Inet6Aton => match (text.parse::<Ipv4Addr>(), text.parse::<Ipv6Addr>()) {
            (Ok(v4), _) => Datum::Bytes(Cow::Owned(v4.octets().to_vec())),
            (_, Ok(v6)) => Datum::Bytes(Cow::Owned(v6.octets().to_vec())),
            _ => Datum::Null,
        },
        Func::Inet6Ntoa => match (&value, <[u8; 4]>::try_from(&bytes[..]), sixteen()) {
            (Datum::Bytes(_), Ok(four), _) => Datum::text(Ipv4Addr::from(four).to_string()),
            (_, _, Some(sixteen)) => Datum::text(show_v6(sixteen)),
            _ => Datum::Null,
        },
        Func::IsIpv4 => Datum::from_bool(text.parse::<Ipv4Addr>().is_ok()),
        Func::IsIpv6 => Datum::from_bool(text.parse::<Ipv6Addr>().is_ok()),
        Func::IsIpv4Compat => Datum::from_bool(
            sixteen().is_some_and(|b| b[..12] == [0; 12] && u32::from_be_bytes([b[12], b[13], b[14], b[15]]) > 1),
        ),
        Func::IsIpv4Mapped => {
            Datum::from_bool(sixteen().is_some_and(|b| b[..10] == [0; 10] && b[10..12] == [255, 255]))
        }
        _ => return Err(errors::internal("not a function over addresses")),
    };
    if answer.is_null() {
        let (kind, name) = match f {
            Func::InetAton => ("string", "inet_aton"),
            Func::InetNtoa => ("integer", "inet_ntoa"),
            Func::Inet6Aton => ("string", "inet6_aton"),
            _ => ("string", "inet6_ntoa"),
        };
        cx.env.note(errors::wrong_value(kind, &value, name));
    }
    Ok(answer)
}

/// `1.2.3.4` as a number; fewer parts as MySQL takes them, the last standing for the lowest byte.
fn number_of(text: &[u8]) -> Option<u64> {
    let (mut high, mut part, mut dots) = (0u64, 0u64, 0);
    for b in text {
        match b {
            b'0'..=b'9' => part = Some(part * 10 + u64::from(b - b'0')).filter(|n| *n < 256)?,
            b'.' => {
                dots += 1;
                high = high << 8 | part;
                part = 0;
            }
            _ => return None,
        }
    }
    if text.last().is_none_or(|b| *b == b'.') {
        return None;
    }
    if dots > 3 {
        return None;
    }
    let missing = if matches!(dots, 1 | 2) { 3 - dots } else { 0 };
    Some(high << (8 * (missing + 1)) | part)
}

/// Addresses that stand for one of version 4 end in its spelling.
fn show_v6(bytes: [u8; 16]) -> String {
    let address = Ipv6Addr::from(bytes);
    match address.segments() {
        [0, 0, 0, 0, 0, 0, high, _] if high != 0 => {
            format!("::{}", Ipv4Addr::new(bytes[12], bytes[13], bytes[14], bytes[15]))
        }
        _ => address.to_string(),
    }
}
