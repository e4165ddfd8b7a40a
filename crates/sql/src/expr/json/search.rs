//! Functions that look for something in a document.

use super::{datum, document_of, path_of, plain_path_of, value};
use crate::{
    errors::{self, Result},
    expr::{Context, Expr, Func},
    value::{
        datum::Datum,
        json::{
            Json, Object,
            path::Path,
            schema::{self, Failure, Refused},
            search,
        },
    },
};

pub fn call<'a>(f: Func, args: &'a [Expr], cx: &Context<'a>) -> Result<Datum<'a>> {
    match f {
        Func::JsonContains => contains(f, args, cx),
        Func::JsonContainsPath => contains_path(f, args, cx),
        Func::JsonSearch => strings(f, args, cx),
        Func::JsonOverlaps => {
            let documents = document_of(f, args, 0, cx)?.zip(document_of(f, args, 1, cx)?);
            Ok(documents.map_or(Datum::Null, |(a, b)| Datum::from_bool(search::overlaps(&a, &b))))
        }
        _ => {
            let wanted = args[0].eval(cx)?;
            let Some(document) = document_of(f, args, 1, cx)? else { return Ok(Datum::Null) };
            if wanted.is_null() {
                return Ok(Datum::Null);
            }
            Ok(Datum::from_bool(search::is_member(&value(&args[0], cx)?, &document)))
        }
    }
}

fn contains<'a>(f: Func, args: &'a [Expr], cx: &Context<'a>) -> Result<Datum<'a>> {
    let Some((document, candidate)) = document_of(f, args, 0, cx)?.zip(document_of(f, args, 1, cx)?) else {
        return Ok(Datum::Null);
    };
    let part = match args.len() {
        3 => plain_path_of(args, 2, cx)?.and_then(|path| path.find(&document).first().copied()),
        _ => Some(&document),
    };
    Ok(part.map_or(Datum::Null, |part| Datum::from_bool(search::contains(part, &candidate))))
}

/// The argument that says `one` or `all`: whether it is `one`; `None`: it is NULL.
fn is_one(f: Func, args: &[Expr], cx: &Context<'_>) -> Result<Option<bool>> {
    let word = args[1].eval(cx)?;
    match word.as_string().to_ascii_lowercase().as_str() {
        _ if word.is_null() => Ok(None),
        "one" => Ok(Some(true)),
        "all" => Ok(Some(false)),
        _ => Err(errors::json_one_or_all(f.name())),
    }
}

fn contains_path<'a>(f: Func, args: &'a [Expr], cx: &Context<'a>) -> Result<Datum<'a>> {
    let document = document_of(f, args, 0, cx)?;
    let one = is_one(f, args, cx)?;
    let Some((document, one)) = document.zip(one) else { return Ok(Datum::Null) };
    for i in 2..args.len() {
        let Some(path) = path_of(args, i, cx)? else { return Ok(Datum::Null) };
        if path.find(&document).is_empty() != one {
            return Ok(Datum::from_bool(one));
        }
    }
    Ok(Datum::from_bool(!one))
}

/// JSON_SEARCH(document, one or all, pattern, escape, path, ...).
fn strings<'a>(f: Func, args: &'a [Expr], cx: &Context<'a>) -> Result<Datum<'a>> {
    let document = document_of(f, args, 0, cx)?;
    let one = is_one(f, args, cx)?;
    let pattern = args[2].eval(cx)?;
    let escape = match args.get(3).map(|e| e.eval(cx)).transpose()? {
        None | Some(Datum::Null) => b'\\',
        Some(given) => match &*given.as_text() {
            [] => b'\\',
            [one] => *one,
            _ => return Err(errors::wrong_arguments("ESCAPE")),
        },
    };
    let mut paths = Vec::new();
    for i in 4..args.len() {
        let Some(path) = path_of(args, i, cx)? else { return Ok(Datum::Null) };
        paths.push(path);
    }
    if args.len() <= 4 {
        paths.push(Path::default());
    }
    let (Some(document), Some(one), false) = (document, one, pattern.is_null()) else { return Ok(Datum::Null) };
    let pattern = pattern.as_text();
    let most = if one { 1 } else { usize::MAX };
    let mut found = search::strings(&document, &paths, most, |text| {
        apus_types::collate::like(text.as_bytes(), &pattern, Some(escape), None)
    });
    Ok(match found.len() {
        0 => Datum::Null,
        1 => datum(&Json::String(found.remove(0))),
        _ => datum(&Json::Array(found.into_iter().map(Json::String).collect())),
    })
}

/// JSON_SCHEMA_VALID and JSON_SCHEMA_VALIDATION_REPORT.
pub fn by_schema<'a>(f: Func, args: &'a [Expr], cx: &Context<'a>) -> Result<Datum<'a>> {
    let schema = match document_of(f, args, 0, cx)? {
        None => return Ok(Datum::Null),
        Some(Json::Object(schema)) => schema,
        Some(_) => return Err(errors::json_no_object(1, f.name())),
    };
    let Some(document) = document_of(f, args, 1, cx)? else { return Ok(Datum::Null) };
    let failure = schema::check(&schema, &document).map_err(|refused| match refused {
        Refused::Reference => errors::not_yet_in_mysql("references in JSON Schema"),
        Refused::Nesting => errors::not_supported("a JSON Schema nested this deeply"),
    })?;
    if f == Func::JsonSchemaValid {
        return Ok(Datum::from_bool(failure.is_none()));
    }
    let mut report = Object::new();
    report.insert("valid".into(), Json::Bool(failure.is_none()));
    if let Some(Failure { keyword, schema, document }) = failure {
        let reason = format!(
            "The JSON document location '{document}' failed requirement '{keyword}' at JSON Schema location '{schema}'"
        );
        report.insert("reason".into(), Json::String(reason));
        report.insert("schema-location".into(), Json::String(schema));
        report.insert("document-location".into(), Json::String(document));
        report.insert("schema-failed-keyword".into(), Json::text(keyword));
    }
    Ok(datum(&Json::Object(report)))
}
