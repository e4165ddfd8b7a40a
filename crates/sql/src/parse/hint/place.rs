//! Where hints stand in a statement, and how its query blocks are numbered.
//!
//! Blocks are numbered as they are written, from 1: UPDATE and DELETE are a block themselves, INSERT is one with the SELECT that it takes its rows from, and the SELECT behind
//! WITH comes before those in it. Hints of an inner block are looked at before those of the block around it, as MySQL does: that decides which names of blocks are known, and which of two hints is the
//! one too many.

use sqlparser::tokenizer::Location;

use crate::parse::token::{behind_quoted, is_word};

/// What a hint begins with.
pub const BEGIN: &str = "/*+";

/// A SELECT in a text.
struct Block {
    at: usize,
    depth: usize,
    number: usize,
}

/// The hints of one place.
#[derive(Debug)]
pub struct Placed {
    pub number: usize,
    /// Behind [`BEGIN`], with what ends it.
    pub text: String,
}

enum Part {
    Word,
    Open,
    Close,
    Hint,
}

/// The words and parentheses of a text outside of quotes, and its hints: where each begins and ends.
fn parts(text: &str) -> impl Iterator<Item = (Part, usize, usize)> + '_ {
    let bytes = text.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        while let Some(&b) = bytes.get(at) {
            let begin = at;
            at += 1;
            match b {
                b'\'' | b'"' | b'`' => at = behind_quoted(bytes, begin),
                b'(' => return Some((Part::Open, begin, at)),
                b')' => return Some((Part::Close, begin, at)),
                b'/' if bytes[begin..].starts_with(BEGIN.as_bytes()) => {
                    let length = bytes[begin..].windows(2).skip(3).position(|end| end == b"*/");
                    at = length.map_or(bytes.len(), |length| begin + 3 + length + 2);
                    return Some((Part::Hint, begin, at));
                }
                b if is_word(b) => {
                    while bytes.get(at).is_some_and(|b| is_word(*b)) {
                        at += 1;
                    }
                    if begin == 0 || bytes[begin - 1] != b'.' {
                        return Some((Part::Word, begin, at));
                    }
                }
                _ => {}
            }
        }
        None
    })
}

fn first_word(text: &str) -> &str {
    let end = text.bytes().position(|b| !b.is_ascii_alphabetic()).unwrap_or(text.len());
    &text[..end]
}

fn is_any(word: &str, of: &[&str]) -> bool {
    of.iter().any(|known| known.eq_ignore_ascii_case(word))
}

/// Whether the statement itself is block 1, before any SELECT of it.
pub fn is_block(text: &str) -> bool {
    is_any(first_word(text), &["update", "delete", "insert", "replace"])
}

/// The SELECTs of a text, in its order.
fn blocks(text: &str) -> Vec<Block> {
    let first = first_word(text);
    let (is_changed, is_made) = (is_any(first, &["update", "delete"]), is_any(first, &["insert", "replace"]));
    let (mut list, mut depth, mut has_values) = (Vec::<Block>::new(), 0usize, false);
    for (part, begin, end) in parts(text) {
        match part {
            Part::Open => depth += 1,
            Part::Close => depth = depth.saturating_sub(1),
            Part::Hint => {}
            Part::Word => {
                let word = &text[begin..end];
                has_values |= depth == 0 && list.is_empty() && is_any(word, &["values", "value", "set"]);
                if is_any(word, &["select", "table"]) {
                    list.push(Block { at: begin, depth, number: 0 });
                }
            }
        }
    }
    let main = list.iter().position(|block| block.depth == 0).filter(|_| is_any(first, &["with"])).unwrap_or(0);
    let before = usize::from(is_changed || is_made && has_values);
    let mut next = 1 + before;
    for at in std::iter::once(main).chain((0..list.len()).filter(|at| *at != main)) {
        if let Some(block) = list.get_mut(at) {
            block.number = next;
            next += 1;
        }
    }
    list
}

/// The text without its hints, and these in the order in which they are looked at.
pub fn cut(text: &str) -> (String, Vec<Placed>) {
    let blocks = blocks(text);
    let (mut out, mut from) = (String::with_capacity(text.len()), 0);
    // Those of blocks that have not ended, the statement's own first.
    let mut open: Vec<(usize, Placed)> = Vec::new();
    let (mut done, mut depth) = (Vec::new(), 0usize);
    let mut last_word = "";
    let own = usize::from(is_block(text));
    for (part, begin, end) in parts(text) {
        match part {
            Part::Open => depth += 1,
            Part::Close => {
                depth = depth.saturating_sub(1);
                close(&mut open, own, depth + 1, &mut done);
            }
            Part::Word => {
                last_word = &text[begin..end];
                if last_word.eq_ignore_ascii_case("select") {
                    close(&mut open, own, depth, &mut done);
                }
            }
            Part::Hint => {
                out.push_str(&text[from..begin]);
                from = end;
                match (text.as_bytes().get(end), out.ends_with(' ')) {
                    (Some(b' '), true) => from += 1,
                    (Some(b' ') | None, _) | (_, true) => {}
                    _ => out.push(' '),
                }
                let block = blocks.iter().rev().find(|b| b.at < begin).filter(|_| is_any(last_word, &["select"]));
                let number = block.map_or(1, |block| block.number);
                open.push((depth, Placed { number, text: text[begin + BEGIN.len()..].to_owned() }));
                if block.is_some() && own == 1 && open.len() == 1 {
                    // The statement has none of its own.
                    open.insert(0, (0, Placed { number: 1, text: String::new() }));
                }
            }
        }
    }
    out.push_str(&text[from..]);
    close(&mut open, 0, 0, &mut done);
    done.retain(|placed| !placed.text.is_empty());
    (out, done)
}

/// Blocks of this depth and deeper have ended; the first `kept` stay.
fn close(open: &mut Vec<(usize, Placed)>, kept: usize, depth: usize, done: &mut Vec<Placed>) {
    while open.len() > kept && open.last().is_some_and(|(own, _)| *own >= depth) {
        done.extend(open.pop().map(|(_, placed)| placed));
    }
}

/// Where the SELECTs of a text stand for the parser, with their numbers.
pub fn located(text: &str) -> Vec<(Location, usize)> {
    let mut list = Vec::new();
    let (mut line, mut column, mut at) = (1, 1, 0);
    for block in blocks(text) {
        for c in text[at..block.at].chars() {
            if c == '\n' {
                (line, column) = (line + 1, 1);
            } else {
                column += 1;
            }
        }
        at = block.at;
        list.push((Location { line, column }, block.number));
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(text: &str) -> (String, Vec<(usize, String)>) {
        let (plain, placed) = cut(text);
        let name = |text: &str| text.split("*/").next().unwrap_or_default().trim().to_owned();
        (plain, placed.iter().map(|p| (p.number, name(&p.text))).collect())
    }

    #[test]
    fn hints_belong_to_the_block_that_they_stand_in() {
        for (text, plain, want) in [
            ("SELECT /*+ A */ 1", "SELECT 1", &[(1, "A")][..]),
            ("SELECT/*+A*/1 FROM t", "SELECT 1 FROM t", &[(1, "A")]),
            (
                "SELECT /*+ A */ (SELECT /*+ B */ 1) FROM (SELECT 2) x WHERE a IN (SELECT /*+ C */ 3)",
                "SELECT (SELECT 1) FROM (SELECT 2) x WHERE a IN (SELECT 3)",
                &[(2, "B"), (4, "C"), (1, "A")],
            ),
            ("SELECT /*+ A */ 1 UNION SELECT /*+ B */ 2", "SELECT 1 UNION SELECT 2", &[(1, "A"), (2, "B")]),
            ("UPDATE /*+ A */ t SET a = (SELECT /*+ B */ 1)", "UPDATE t SET a = (SELECT 1)", &[(2, "B"), (1, "A")]),
            ("INSERT /*+ A */ INTO t SELECT /*+ B */ 1", "INSERT INTO t SELECT 1", &[(1, "B"), (1, "A")]),
            ("INSERT INTO t VALUES ((SELECT /*+ B */ 1))", "INSERT INTO t VALUES ((SELECT 1))", &[(2, "B")]),
            (
                "WITH c AS (SELECT /*+ B */ 1) SELECT /*+ A */ '/*+ x */' FROM c",
                "WITH c AS (SELECT 1) SELECT '/*+ x */' FROM c",
                &[(2, "B"), (1, "A")],
            ),
        ] {
            let want = want.iter().map(|(n, s)| (*n, (*s).to_owned())).collect();
            assert_eq!(places(text), (plain.to_owned(), want), "{text}");
        }
    }

    #[test]
    fn selects_are_found_where_the_parser_finds_them() {
        let found = located("DELETE FROM t WHERE a IN (SELECT 'ä', (\nSELECT 2))");
        let found: Vec<_> = found.iter().map(|(l, n)| (l.line, l.column, *n)).collect();
        assert_eq!(found, [(1, 27, 2), (2, 1, 3)]);
    }
}
