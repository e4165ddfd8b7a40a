//! Functions that change documents.

use super::{document_of, made, plain_path_of, value};
use crate::{
    errors::{self, Result},
    expr::{Context, Expr, Func},
    value::{
        datum::Datum,
        json::{
            Json,
            change::{self, Put},
            path::Path,
        },
    },
};

pub fn call<'a>(f: Func, args: &'a [Expr], cx: &Context<'a>) -> Result<Datum<'a>> {
    match f {
        Func::JsonMergePatch => merge_patch(f, args, cx),
        Func::JsonMergePreserve | Func::JsonMerge => {
            if f == Func::JsonMerge {
                cx.env.note_once(errors::json_merge_is_old());
            }
            let mut merged: Option<Json> = None;
            for i in 0..args.len() {
                let Some(document) = document_of(f, args, i, cx)? else { return Ok(Datum::Null) };
                merged = Some(match merged {
                    Some(before) => change::merge(before, document),
                    None => document,
                });
            }
            merged.map_or(Ok(Datum::Null), |document| made(&document))
        }
        _ => at_paths(f, args, cx),
    }
}

/// A document and paths, each with a value but those of JSON_REMOVE.
fn at_paths<'a>(f: Func, args: &'a [Expr], cx: &Context<'a>) -> Result<Datum<'a>> {
    let document = document_of(f, args, 0, cx)?;
    let step = if f == Func::JsonRemove { 1 } else { 2 };
    let mut paths = Vec::with_capacity(args.len() / step);
    for i in (1..args.len()).step_by(step) {
        let Some(path) = plain_path_of(args, i, cx)? else { return Ok(Datum::Null) };
        if f == Func::JsonRemove && path.legs.is_empty() {
            return Err(errors::json_root_path());
        }
        paths.push((path, i + 1));
    }
    let Some(mut document) = document else { return Ok(Datum::Null) };
    for (path, behind) in paths {
        let new = if step == 2 { value(&args[behind], cx)? } else { Json::Null };
        at_path(f, &mut document, &path, new)?;
    }
    made(&document)
}

fn at_path(f: Func, document: &mut Json, path: &Path, new: Json) -> Result<()> {
    match f {
        Func::JsonSet => change::put(document, path, new, Put::Set),
        Func::JsonInsert => change::put(document, path, new, Put::Insert),
        Func::JsonReplace => change::put(document, path, new, Put::Replace),
        Func::JsonRemove => change::remove(document, path),
        Func::JsonArrayAppend => change::append(document, path, new),
        _ => {
            if !change::insert_before(document, path, new) {
                return Err(errors::json_no_cell());
            }
        }
    }
    Ok(())
}

/// What is no object begins anew, NULL lasts until then.
fn merge_patch<'a>(f: Func, args: &'a [Expr], cx: &Context<'a>) -> Result<Datum<'a>> {
    let mut merged = document_of(f, args, 0, cx)?;
    for i in 1..args.len() {
        merged = match (merged, document_of(f, args, i, cx)?) {
            (_, None) | (None, Some(Json::Object(_))) => None,
            (Some(before), Some(changes)) => Some(change::patch(before, changes)),
            (None, anew) => anew,
        };
    }
    merged.map_or(Ok(Datum::Null), |document| made(&document))
}
