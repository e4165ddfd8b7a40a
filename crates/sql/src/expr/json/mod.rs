//! JSON among SQL's values: conversions in both directions, and how the functions take their arguments.
//!
//! A [`Datum::Json`] has a document in its stored form. Beside one, every other value is compared as the JSON value that it would become; where a number or a moment is wanted, a
//! document is one or is warned of (3156).

pub mod array;
mod change;
mod make;
mod read;
mod scalar;
mod search;

use std::borrow::Cow;

use apus_types::{
    ColumnType,
    time::{Civil, pack_date, pack_datetime, unpack_date, unpack_datetime},
};

use super::{CastType, Context, Env, Expr, Func, assign::Assign, eval::conversion};
use crate::{
    errors::{self, Result},
    value::{
        datum::{Datum, Number, text_to_f64},
        decimal,
        json::{
            Json,
            binary::{self, Stored},
            compare,
            parse::{self, ParseError},
            path::Path,
            value::DEPTH_MAX,
        },
        temporal,
        zone::Zone,
    },
    wire::SqlError,
};

pub use scalar::into_column;

/// The functions.
pub fn call<'a>(f: Func, args: &'a [Expr], cx: &Context<'a>) -> Result<Datum<'a>> {
    use Func::*;
    match f {
        JsonArray | JsonObject | JsonQuote | JsonUnquote | JsonTruth | JsonRemark | JsonPretty => {
            make::call(f, args, cx)
        }
        JsonExtract | JsonType | JsonValid | JsonLength | JsonDepth | JsonKeys | JsonStorageSize | JsonStorageFree => {
            read::call(f, args, cx)
        }
        JsonSchemaValid | JsonSchemaReport => search::by_schema(f, args, cx),
        JsonContains | JsonContainsPath | JsonSearch | JsonOverlaps | MemberOf => search::call(f, args, cx),
        JsonValue => scalar::json_value(f, args, cx),
        _ => change::call(f, args, cx),
    }
}

/// As JSON; bytes that a native client wrote and that are none are a null.
pub fn of_datum(value: &Datum<'_>) -> Json {
    match value {
        Datum::Json(bytes) => binary::decode(bytes).unwrap_or(Json::Null),
        Datum::Null => Json::Null,
        Datum::Int(n) => Json::Int(*n),
        Datum::UInt(n) => Json::UInt(*n),
        Datum::Decimal { unscaled, scale } => Json::Decimal { unscaled: *unscaled, scale: *scale },
        Datum::Fine { unscaled, scale, shown } => {
            let unscaled = decimal::rescale(*unscaled, *scale, *shown).unwrap_or(0);
            Json::Decimal { unscaled, scale: *shown }
        }
        Datum::Double(x) => Json::Double(*x),
        Datum::Text(t) | Datum::Label(_, t) => Json::text(String::from_utf8_lossy(t)),
        Datum::Bytes(b) => Json::Opaque(15, b.to_vec()),
        Datum::Bit(..) => Json::Opaque(16, value.as_text().into_owned()),
        Datum::Date(d) => Json::Date(*d),
        Datum::DateTime(d, _) => Json::DateTime(*d, false),
        Datum::Time(t, _) => Json::Time(*t),
    }
}

/// As a value of SQL.
pub fn datum(value: &Json) -> Datum<'static> {
    Datum::Json(Cow::Owned(binary::encode(value)))
}

/// What a function has made.
pub fn made(value: &Json) -> Result<Datum<'static>> {
    if value.depth() > DEPTH_MAX { Err(errors::json_depth()) } else { Ok(datum(value)) }
}

/// The number that a value is, and whether it is one in whole.
pub fn double(value: &Json) -> (f64, bool) {
    match value {
        Json::Bool(b) => (f64::from(*b), true),
        Json::String(text) => text_to_f64(text.as_bytes()),
        other => match compare::number(other) {
            Some(n) => (n.to_f64(), true),
            None => (0.0, false),
        },
    }
}

/// In a condition everything but the number 0 is true.
pub fn truth(value: &Json) -> bool {
    !compare::number(value).is_some_and(Number::is_zero)
}

/// The moment that a value is.
pub fn civil(value: &Json) -> Option<Civil> {
    match value {
        Json::Date(d) => {
            let (year, month, day) = unpack_date(*d);
            Some(Civil { year, month, day, ..Civil::default() })
        }
        Json::DateTime(d, _) => Some(unpack_datetime(*d)),
        Json::String(text) => temporal::written_datetime(text.as_bytes(), temporal::Dates::REAL).map(|(c, ..)| c),
        _ => None,
    }
}

/// The time that a value is, in microseconds.
pub fn time(value: &Json) -> Option<i64> {
    match value {
        Json::Time(t) => Some(*t),
        Json::String(text) => temporal::parse_time(text.as_bytes(), Zone::UTC),
        _ => None,
    }
}

/// How an expression is called in the errors of its value.
fn name_of(e: &Expr) -> &'static str {
    match e {
        Expr::Call(f, ..) => f.name(),
        Expr::Cast(_, CastType::Json) => "cast_as_json",
        _ => "",
    }
}

/// Warns of a document that is no number.
pub fn note_cut(cx: &Context<'_>, e: &Expr, value: &Datum<'_>) {
    if let Datum::Json(_) = value
        && !double(&of_datum(value)).1
    {
        cx.env.note(errors::json_cast("DOUBLE", name_of(e), 1));
    }
}

/// What is fixed of `BETWEEN`, `LEAST` and their like: they do not know the order of JSON values.
pub const BETWEEN: &str = "comparison of JSON in the BETWEEN operator";
pub const EXTREME: &str = "comparison of JSON in the LEAST and GREATEST operators";

/// Appends the key by which ORDER BY sorts.
pub fn push_order_key(out: &mut Vec<u8>, value: &Datum<'_>, descending: bool, env: &Env) {
    let start = out.len();
    out.push(u8::from(!value.is_null()));
    if !value.is_null() {
        let value = of_datum(value);
        if value.is_container() {
            env.note_once(errors::not_yet_in_mysql("sorting of non-scalar JSON values"));
        }
        compare::push_ordered(out, &value);
    }
    if descending {
        out[start..].iter_mut().for_each(|b| *b = !*b);
    }
}

/// CAST of a document to anything but JSON, a text or bytes.
pub fn cast(cx: &Context<'_>, e: &Expr, value: &Json, to: CastType) -> Result<Datum<'static>> {
    let warn = |kind| cx.env.note(errors::json_cast(kind, name_of(e), 1));
    match to {
        CastType::Signed | CastType::Unsigned => {
            let (n, whole) = integer(value);
            if !whole {
                warn("INTEGER");
            }
            let low = i128::from(i64::MIN);
            let high = if to == CastType::Signed { i128::from(i64::MAX) } else { i128::from(u64::MAX) };
            if n < low || n > high {
                cx.env.note(errors::json_range("INTEGER", name_of(e), 1));
            }
            // An integer without sign keeps its bits.
            let n = if matches!(value, Json::UInt(_)) { n as u64 as i64 } else { n.clamp(low, high) as i64 };
            Ok(if to == CastType::Signed { Datum::Int(n) } else { Datum::UInt(n as u64) })
        }
        CastType::Decimal { .. } => {
            if !double(value).1 {
                warn("DECIMAL");
            }
            conversion::cast(plain_number(value), to)
        }
        CastType::Date | CastType::DateTime(_) => match civil(value) {
            Some(c) if to == CastType::Date => Ok(Datum::Date(pack_date(c.year, c.month, c.day))),
            Some(c) => conversion::cast(Datum::DateTime(pack_datetime(c), 6), to),
            None => {
                warn(if to == CastType::Date { "DATE" } else { "DATETIME" });
                Ok(Datum::Null)
            }
        },
        CastType::Time(n) => match time(value) {
            Some(t) => Ok(Datum::Time(temporal::round_micros(t, n), n)),
            None => {
                warn("TIME");
                Ok(Datum::Null)
            }
        },
        to => {
            if !double(value).1 {
                warn("DOUBLE");
            }
            conversion::cast(plain_number(value), to)
        }
    }
}

/// The number or the text that a scalar is; 0 of what is neither.
fn plain_number(value: &Json) -> Datum<'static> {
    match value {
        Json::Bool(b) => Datum::from_bool(*b),
        Json::String(text) => Datum::text(text.clone()),
        other => compare::number(other).map_or(Datum::Int(0), Number::datum),
    }
}

/// The integer nearest to a value, and whether it is one in whole.
fn integer(value: &Json) -> (i128, bool) {
    match value {
        Json::Bool(b) => (i128::from(*b), true),
        Json::Double(x) => (x.round() as i128, true),
        Json::String(text) => match decimal::parse_prefix(text.trim().as_bytes()) {
            Some((n, scale, rest)) => (decimal::truncate(n, scale, 0).unwrap_or(0), rest.is_empty() && scale == 0),
            None => (0, false),
        },
        other => match compare::number(other) {
            Some(n) => (n.to_i128(), true),
            None => (0, false),
        },
    }
}

/// A document that is assigned to a column of another type, as a value that this may become.
pub fn assigned(document: Datum<'_>, ty: ColumnType, a: Assign<'_>) -> Result<Datum<'static>> {
    let value = of_datum(&document);
    let refused = |kind| Err(errors::json_cast(kind, "", a.row));
    match ty {
        ColumnType::Int { .. } | ColumnType::Year => match integer(&value) {
            (_, false) if a.strict => refused("INTEGER"),
            (n, _) => Ok(Datum::Decimal { unscaled: n, scale: 0 }),
        },
        ColumnType::Decimal { .. } if a.strict && !double(&value).1 => refused("DECIMAL"),
        ColumnType::Float | ColumnType::Double if a.strict && !double(&value).1 => refused("DOUBLE"),
        ColumnType::Decimal { .. } | ColumnType::Float | ColumnType::Double => Ok(plain_number(&value)),
        ColumnType::Date | ColumnType::DateTime { .. } | ColumnType::Timestamp { .. } => match civil(&value) {
            Some(c) => Ok(Datum::DateTime(pack_datetime(c), 6)),
            None if ty == ColumnType::Date => refused("DATE"),
            None => refused("DATETIME/TIMESTAMP"),
        },
        ColumnType::Time { .. } => match time(&value) {
            Some(t) => Ok(Datum::Time(t, 6)),
            None => refused("TIME"),
        },
        _ => Ok(Datum::text(document.as_string())),
    }
}

/// A value that is no document, assigned to a column of documents: a text of one.
pub fn document(column: &str, value: &Datum<'_>, a: Assign<'_>) -> Result<Datum<'static>> {
    match value {
        Datum::Text(text) | Datum::Label(_, text) => match parse::parse(text) {
            Ok(value) => Ok(datum(&value)),
            Err(ParseError::Depth) => Err(errors::json_depth()),
            Err(ParseError::Syntax(what, at)) => Err(errors::json_of_column(what, at, a.table, column)),
        },
        Datum::Bytes(_) => Err(errors::json_of_binary()),
        _ => Err(errors::json_of_column("not a JSON text, may need CAST", 0, a.table, column)),
    }
}

/// A text as a document, for the argument with this number (from 1) of a function.
pub fn parsed(text: &[u8], argument: usize, function: &str) -> Result<Json> {
    parse::parse(text).map_err(|e| match e {
        ParseError::Depth => errors::json_depth(),
        ParseError::Syntax(what, at) => errors::json_argument(argument, function, what, at),
    })
}

/// CAST AS JSON.
pub fn cast_as_json<'a>(e: &Expr, value: Datum<'a>) -> Result<Datum<'a>> {
    match value {
        Datum::Null | Datum::Json(_) => Ok(value),
        Datum::Text(text) | Datum::Label(_, text) => Ok(datum(&parsed(&text, 1, "cast_as_json")?)),
        other => Ok(datum(&typed(e, &other))),
    }
}

/// A value with what its column knows of it.
fn typed(e: &Expr, value: &Datum<'_>) -> Json {
    let Expr::Column(column) = e else { return of_datum(value) };
    match (column.ty, of_datum(value)) {
        (ColumnType::Timestamp { .. }, Json::DateTime(d, _)) => Json::DateTime(d, true),
        (ColumnType::Blob { .. }, Json::Opaque(_, bytes)) => Json::Opaque(252, bytes),
        (ColumnType::Binary { .. }, Json::Opaque(_, bytes)) => Json::Opaque(254, bytes),
        (_, value) => value,
    }
}

/// An argument that becomes a part of a document.
fn value(e: &Expr, cx: &Context<'_>) -> Result<Json> {
    Ok(typed(e, &e.eval(cx)?))
}

/// The argument with this number (from 0), which is a document; `None`: it is NULL.
fn document_of(f: Func, args: &[Expr], i: usize, cx: &Context<'_>) -> Result<Option<Json>> {
    document_in(f, &args[i].eval(cx)?, i)
}

fn document_in(f: Func, value: &Datum<'_>, i: usize) -> Result<Option<Json>> {
    match value {
        Datum::Null => Ok(None),
        Datum::Json(_) => Ok(Some(of_datum(value))),
        Datum::Text(text) | Datum::Label(_, text) => parsed(text, i + 1, f.name()).map(Some),
        Datum::Bytes(_) => Err(errors::json_of_binary()),
        _ => Err(errors::json_data_type(i + 1, f.name())),
    }
}

/// The argument with this number (from 0), which is a path; `None`: it is NULL.
fn path_of(args: &[Expr], i: usize, cx: &Context<'_>) -> Result<Option<Path>> {
    let value = args[i].eval(cx)?;
    if value.is_null() {
        return Ok(None);
    }
    Path::parse(&value.as_string()).map(Some).map_err(errors::json_path)
}

/// [`path_of`], which leads to one value.
fn plain_path_of(args: &[Expr], i: usize, cx: &Context<'_>) -> Result<Option<Path>> {
    match path_of(args, i, cx)? {
        Some(path) if path.is_wild() => Err(errors::json_wild_path()),
        path => Ok(path),
    }
}

/// What a path that is not wild leads to in a stored document.
fn stored_part<'b>(document: &'b [u8], path: &Path) -> Option<Stored<'b>> {
    path.find_stored(Stored::of(document)?)
}

fn wrong_type(f: Func, i: usize) -> SqlError {
    errors::json_argument_type(i + 1, f.name())
}
