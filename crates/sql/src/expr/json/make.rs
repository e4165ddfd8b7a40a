//! Functions that make documents and texts of them.

use super::{document_of, made, of_datum, value, wrong_type};
use crate::{
    errors::{self, Result},
    expr::{Context, Expr, Func, eval},
    value::{
        datum::Datum,
        json::{Json, Object, print},
    },
};

pub fn call<'a>(f: Func, args: &'a [Expr], cx: &Context<'a>) -> Result<Datum<'a>> {
    match f {
        Func::JsonArray => {
            let list = args.iter().map(|e| value(e, cx)).collect::<Result<Vec<_>>>()?;
            made(&Json::Array(list))
        }
        Func::JsonObject => object(args, cx),
        Func::JsonQuote => match args[0].eval(cx)? {
            Datum::Null => Ok(Datum::Null),
            Datum::Text(text) | Datum::Label(_, text) => {
                let mut out = Vec::with_capacity(text.len() + 2);
                print::push_quoted(&mut out, &String::from_utf8_lossy(&text));
                Ok(Datum::Text(out.into()))
            }
            Datum::Bytes(_) => Err(errors::json_of_binary()),
            _ => Err(wrong_type(f, 0)),
        },
        Func::JsonUnquote => unquote(f, args[0].eval(cx)?),
        Func::JsonTruth => Ok(match eval::truth(cx, &args[0].eval(cx)?) {
            None => Datum::Null,
            Some(is_true) => super::datum(&Json::Bool(is_true)),
        }),
        Func::JsonPretty => {
            let Some(document) = document_of(f, args, 0, cx)? else { return Ok(Datum::Null) };
            let mut out = Vec::new();
            print::push_pretty(&mut out, &document, 0);
            Ok(Datum::Text(out.into()))
        }
        _ => {
            cx.env.note_once(errors::not_yet_in_mysql(&args[1].eval(cx)?.as_string()));
            args[0].eval(cx)
        }
    }
}

/// JSON_OBJECT(key, value, ...).
fn object(args: &[Expr], cx: &Context<'_>) -> Result<Datum<'static>> {
    let mut members = Vec::with_capacity(args.len() / 2);
    for pair in args.chunks_exact(2) {
        members.push((key(&pair[0].eval(cx)?)?, value(&pair[1], cx)?));
    }
    made(&Json::Object(Object::from_members(members)))
}

/// The name of a member.
pub fn key(name: &Datum<'_>) -> Result<String> {
    match name {
        Datum::Null => Err(errors::json_null_key()),
        Datum::Bytes(_) => Err(errors::json_of_binary()),
        name => Ok(name.as_string()),
    }
}

/// JSON_UNQUOTE: of a text in quotes what it says, of a document its text, of a string without quotes.
fn unquote(f: Func, value: Datum<'_>) -> Result<Datum<'_>> {
    match value {
        Datum::Null => Ok(Datum::Null),
        Datum::Json(_) => {
            let mut out = Vec::new();
            print::push_unquoted(&mut out, &of_datum(&value));
            Ok(Datum::Text(out.into()))
        }
        Datum::Text(text) | Datum::Label(_, text) => {
            if text.len() < 2 || !text.starts_with(b"\"") || !text.ends_with(b"\"") {
                return Ok(Datum::Text(text));
            }
            match super::parsed(&text, 1, f.name())? {
                Json::String(text) => Ok(Datum::text(text)),
                _ => Ok(Datum::Text(text)),
            }
        }
        Datum::Bytes(_) => Err(errors::json_of_binary()),
        _ => Err(wrong_type(f, 0)),
    }
}
