//! REGEXP and the functions of regular expressions.
//!
//! The engine is the `regex` crate: its time is linear in the text whatever the pattern, so that no client can stop a thread
//! that serves others. What ICU (MySQL's engine) has beyond that is refused with error 1235: look-around, backreferences in a
//! pattern, possessive quantifiers. A compiled pattern may take [`PROGRAM_BYTES_MAX`] (error 3887); the last one is kept.
//! `$` matches at the very end only, not before a last line feed.

use std::{borrow::Cow, rc::Rc};

use apus_types::collate::Collation;
use regex::{Captures, Regex, RegexBuilder};

use super::text::RESULT_BYTES_MAX;
use crate::{
    errors::{self, Result},
    expr::{Context, Expr, Func, eval},
    value::datum::Datum,
};

/// Memory of a compiled pattern, in bytes.
pub const PROGRAM_BYTES_MAX: usize = 1 << 20;

/// The pattern used last.
#[derive(Debug)]
pub struct Compiled {
    pattern: Vec<u8>,
    flags: Flags,
    regex: Rc<Regex>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Flags {
    ignore_case: bool,
    lines: bool,
    dot_all: bool,
}

pub(crate) fn call<'a>(f: Func, args: &'a [Expr], collation: Collation, cx: &Context<'a>) -> Result<Datum<'a>> {
    let values = args.iter().map(|e| e.eval(cx)).collect::<Result<Vec<_>>>()?;
    if values.iter().any(Datum::is_null) {
        return Ok(Datum::Null);
    }
    let binary = values.iter().take(2).any(|v| matches!(v, Datum::Bytes(_)));
    let kinds = match f {
        Func::RegexpLike => 2,
        Func::RegexpSubstr => 4,
        _ => 5,
    };
    let mut flags = Flags { ignore_case: collation.ignores_case() && !binary, lines: false, dot_all: false };
    for b in values.get(kinds).map_or(Cow::Borrowed(&b""[..]), |v| v.as_text()).iter() {
        match b {
            b'c' => flags.ignore_case = false,
            b'i' => flags.ignore_case = true,
            b'm' => flags.lines = true,
            b'n' => flags.dot_all = true,
            b'u' => {}
            _ => return Err(errors::wrong_arguments(name_of(f))),
        }
    }
    let regex = compiled(&values[1].as_text(), flags, cx)?;
    let bytes = values[0].as_text();
    let text = String::from_utf8_lossy(&bytes);
    if f == Func::RegexpLike {
        return Ok(Datum::from_bool(regex.is_match(&text)));
    }
    let first = if f == Func::RegexpReplace { 3 } else { 2 };
    let int = |i: usize, default: i64| match values.get(i).and_then(Datum::number) {
        Some(n) => n.to_i128().clamp(-1, 1 << 40) as i64,
        None => default,
    };
    let position = int(first, 1);
    if position < 1 || position > eval::char_count(text.as_bytes()) as i64 + 1 {
        return Err(errors::regexp(3686, "Index out of bounds in regular expression search."));
    }
    let start = eval::char_offset(text.as_bytes(), (position - 1) as usize);
    let occurrence = int(first + 1, if f == Func::RegexpReplace { 0 } else { 1 });
    if f == Func::RegexpReplace {
        let all = occurrence <= 0;
        let skip = if all { 0 } else { (occurrence - 1) as usize };
        let found = matches(&regex, &text, start).skip(skip).take(if all { usize::MAX } else { 1 });
        return replaced(&text, &values[2].as_string(), found);
    }
    let found = matches(&regex, &text, start).nth((occurrence.max(1) - 1) as usize);
    let Some(found) = found.and_then(|c| c.get(0)) else {
        return Ok(if f == Func::RegexpInstr { Datum::Int(0) } else { Datum::Null });
    };
    if f == Func::RegexpSubstr {
        return Ok(Datum::text(found.as_str()));
    }
    let at = match int(4, 0) {
        0 => found.start(),
        1 => found.end(),
        _ => return Err(errors::wrong_arguments("regexp_instr: return_option must be 1 or 0.")),
    };
    Ok(Datum::Int(eval::char_count(&text.as_bytes()[..at]) as i64 + 1))
}

fn name_of(f: Func) -> &'static str {
    match f {
        Func::RegexpLike => "regexp_like",
        Func::RegexpReplace => "regexp_replace",
        Func::RegexpSubstr => "regexp_substr",
        _ => "regexp_instr",
    }
}

fn compiled(pattern: &[u8], flags: Flags, cx: &Context<'_>) -> Result<Rc<Regex>> {
    if let Some(last) = &*cx.env.regex.borrow()
        && last.pattern == pattern
        && last.flags == flags
    {
        return Ok(last.regex.clone());
    }
    if pattern.is_empty() {
        return Err(errors::regexp(3685, "Illegal argument to a regular expression."));
    }
    let built = RegexBuilder::new(&String::from_utf8_lossy(pattern))
        .case_insensitive(flags.ignore_case)
        .multi_line(flags.lines)
        .dot_matches_new_line(flags.dot_all)
        .size_limit(PROGRAM_BYTES_MAX)
        .build();
    let regex = Rc::new(built.map_err(|e| match e {
        regex::Error::CompiledTooBig(_) => {
            errors::regexp(3887, "The regular expression pattern exceeds limits on size or complexity.")
        }
        e if e.to_string().contains("not supported") => {
            errors::not_supported("look-around and backreferences in regular expressions")
        }
        _ => errors::regexp(3688, "Syntax error in regular expression on line 1."),
    })?);
    *cx.env.regex.borrow_mut() = Some(Compiled { pattern: pattern.to_vec(), flags, regex: regex.clone() });
    Ok(regex)
}

/// Matches from a byte offset on, the text before it still being what `^` and `\b` see.
fn matches<'r, 't>(regex: &'r Regex, text: &'t str, start: usize) -> impl Iterator<Item = Captures<'t>> + use<'r, 't> {
    let mut at = Some(start);
    std::iter::from_fn(move || {
        let found = regex.captures_at(text, at?)?;
        let whole = found.get(0)?;
        let step = || text[whole.end()..].chars().next().map(|c| whole.end() + c.len_utf8());
        at = if whole.is_empty() { step() } else { Some(whole.end()) };
        Some(found)
    })
}

fn replaced<'t>(text: &str, with: &str, found: impl Iterator<Item = Captures<'t>>) -> Result<Datum<'static>> {
    let mut out = String::with_capacity(text.len());
    let mut behind = 0;
    for captures in found {
        let Some(whole) = captures.get(0) else { continue };
        out.push_str(&text[behind..whole.start()]);
        expand(&captures, with, &mut out)?;
        behind = whole.end();
        if out.len() > RESULT_BYTES_MAX {
            return Ok(Datum::Null);
        }
    }
    out.push_str(&text[behind..]);
    Ok(Datum::text(out))
}

/// A replacement: `$1` is a group, a backslash takes away the meaning of what follows.
fn expand(captures: &Captures<'_>, with: &str, out: &mut String) -> Result<()> {
    let mut chars = with.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.extend(chars.next()),
            '$' => {
                let out_of_bounds = || errors::regexp(3686, "Index out of bounds in regular expression search.");
                let digit = |c: Option<&char>| c.and_then(|c| c.to_digit(10)).map(|d| d as usize);
                let mut group = digit(chars.peek()).ok_or_else(out_of_bounds)?;
                chars.next();
                // Further digits belong to the number as long as there is such a group.
                while let Some(longer) = digit(chars.peek()).map(|d| group * 10 + d).filter(|n| *n < captures.len()) {
                    group = longer;
                    chars.next();
                }
                if group >= captures.len() {
                    return Err(out_of_bounds());
                }
                out.push_str(captures.get(group).map_or("", |m| m.as_str()));
            }
            c => out.push(c),
        }
    }
    Ok(())
}
