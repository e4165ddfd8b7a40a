//! Functions that tell what is in a document.

use super::{datum, document_in, document_of, path_of, plain_path_of, stored_part};
use crate::{
    errors::Result,
    expr::{Context, Expr, Func},
    value::{
        datum::Datum,
        json::{Json, binary, parse},
    },
};

pub fn call<'a>(f: Func, args: &'a [Expr], cx: &Context<'a>) -> Result<Datum<'a>> {
    match f {
        Func::JsonExtract => extract(f, args, cx),
        Func::JsonValid => Ok(match args[0].eval(cx)? {
            Datum::Null => Datum::Null,
            Datum::Json(_) => Datum::Int(1),
            Datum::Text(text) | Datum::Label(_, text) => match parse::parse(&text) {
                Err(parse::ParseError::Depth) => return Err(crate::errors::json_depth()),
                parsed => Datum::from_bool(parsed.is_ok()),
            },
            _ => Datum::Int(0),
        }),
        _ => {
            let Some(document) = document_of(f, args, 0, cx)? else { return Ok(Datum::Null) };
            of_document(f, &document, args, cx)
        }
    }
}

fn of_document(f: Func, document: &Json, args: &[Expr], cx: &Context<'_>) -> Result<Datum<'static>> {
    let part = match (f, args.len()) {
        (Func::JsonLength, 2) => match path_of(args, 1, cx)? {
            None => None,
            Some(path) if path.is_wild() => {
                let found = path.find(document);
                return Ok(if found.is_empty() { Datum::Null } else { Datum::Int(found.len() as i64) });
            }
            Some(path) => path.find(document).first().copied(),
        },
        (Func::JsonKeys, 2) => plain_path_of(args, 1, cx)?.and_then(|path| path.find(document).first().copied()),
        _ => Some(document),
    };
    let Some(part) = part else { return Ok(Datum::Null) };
    Ok(match (f, part) {
        (Func::JsonType, part) => Datum::text(part.type_name()),
        (Func::JsonLength, part) => Datum::Int(part.length() as i64),
        (Func::JsonStorageSize, part) => Datum::Int(binary::encode(part).len() as i64),
        (Func::JsonStorageFree, _) => Datum::Int(0),
        (Func::JsonDepth, part) => Datum::Int(part.depth() as i64),
        (_, Json::Object(members)) => datum(&Json::Array(members.iter().map(|(key, _)| Json::text(key)).collect())),
        _ => Datum::Null,
    })
}

/// JSON_EXTRACT(document, path, ...): the value of one path that is not wild, else an array of all that is found.
fn extract<'a>(f: Func, args: &'a [Expr], cx: &Context<'a>) -> Result<Datum<'a>> {
    let value = args[0].eval(cx)?;
    let mut paths = Vec::with_capacity(args.len() - 1);
    for i in 1..args.len() {
        paths.push(path_of(args, i, cx)?);
    }
    // In its stored form a document is searched without reading it.
    if let (Datum::Json(bytes), [Some(path)]) = (&value, &paths[..])
        && !path.is_wild()
    {
        return Ok(stored_part(bytes, path).map_or(Datum::Null, |part| Datum::Json(part.to_bytes().into())));
    }
    let Some(document) = document_in(f, &value, 0)? else { return Ok(Datum::Null) };
    let mut found = Vec::new();
    for path in &paths {
        let Some(path) = path else { return Ok(Datum::Null) };
        found.extend(path.find(&document));
    }
    let one = matches!(&paths[..], [Some(path)] if !path.is_wild());
    Ok(match found[..] {
        [] => Datum::Null,
        [only] if one => datum(only),
        _ => datum(&Json::Array(found.into_iter().cloned().collect())),
    })
}
