//! How deep a syntax tree will be, told from the text before there is one.
//!
//! `a = 1 OR a = 2 OR ...` parses to a tree as deep as it is long, and what walks or drops such a tree recurses: a statement of a
//! few hundred kilobytes would overflow the stack of a thread that serves others. The parser bounds what it recurses over itself,
//! parentheses and prefixes; this bounds the rest.

use crate::errors::{self, Result};

/// Deepest tree, counted too high rather than too low: about 2000 terms of an OR.
pub const NESTING_MAX: usize = 4000;

/// Words that join or follow an operand.
const OPERATORS: [&str; 22] = [
    "and",
    "or",
    "xor",
    "not",
    "is",
    "in",
    "like",
    "ilike",
    "between",
    "regexp",
    "rlike",
    "similar",
    "div",
    "mod",
    "collate",
    "escape",
    "at",
    "union",
    "except",
    "intersect",
    "minus",
    "over",
];

#[derive(Default, Clone, Copy)]
struct Level {
    /// Of what stands between two commas so far.
    depth: usize,
    /// Of the operand under way.
    operand: usize,
    /// Of all of the list.
    most: usize,
}

impl Level {
    fn operator(&mut self) {
        self.depth = self.depth.max(self.operand) + 1;
        self.operand = 0;
    }
    fn comma(&mut self) {
        self.most = self.most.max(self.depth).max(self.operand);
        (self.depth, self.operand) = (0, 0);
    }
    fn end(mut self) -> usize {
        self.comma();
        self.most
    }
}

/// # Errors
/// 1235 for a text whose tree may be deeper than [`NESTING_MAX`].
pub fn check(text: &str) -> Result<()> {
    let bytes = text.as_bytes();
    let mut open: Vec<Level> = vec![Level::default()];
    let mut at = 0;
    while let Some(&b) = bytes.get(at) {
        let begin = at;
        at += 1;
        let deepest = match b {
            b'\'' | b'"' | b'`' => {
                at = crate::parse::token::behind_quoted(bytes, begin);
                continue;
            }
            b'(' => {
                open.push(Level::default());
                continue;
            }
            b')' => {
                let closed = open.pop().unwrap_or_default().end() + 1;
                if open.is_empty() {
                    open.push(Level::default());
                }
                let level = open.len() - 1;
                open[level].operand = open[level].operand.max(closed);
                closed
            }
            b',' => {
                let level = open.len() - 1;
                open[level].comma();
                continue;
            }
            b if crate::parse::token::is_word(b) => {
                while bytes.get(at).is_some_and(|b| crate::parse::token::is_word(*b)) {
                    at += 1;
                }
                if at - begin > 9 || !OPERATORS.iter().any(|w| w.eq_ignore_ascii_case(&text[begin..at])) {
                    continue;
                }
                let level = open.len() - 1;
                open[level].operator();
                open[level].depth
            }
            b if b.is_ascii_punctuation() && !matches!(b, b'.' | b';' | b'?') => {
                let level = open.len() - 1;
                open[level].operator();
                open[level].depth
            }
            _ => continue,
        };
        if deepest > NESTING_MAX {
            return Err(errors::not_supported("expressions nested this deeply"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_count_and_lists_do_not() {
        let chain = |n: usize, word: &str| format!("SELECT {}", vec!["a"; n].join(word));
        assert!(check(&chain(3000, " OR ")).is_ok());
        for word in [" OR ", "+", " UNION SELECT ", " IS NULL IS ", " COLLATE "] {
            assert!(check(&chain(5000, word)).is_err(), "{word}");
        }
        assert!(check(&chain(100_000, ", -")).is_ok());
        assert!(
            check(&format!("INSERT INTO t VALUES {}", vec!["(-1, 'a and b', f(2, -3))"; 50_000].join(","))).is_ok()
        );
        assert!(check(&format!("SELECT '{}'", "a+".repeat(9000))).is_ok());
        // The chain around is added to the one inside.
        assert!(check(&format!("SELECT ({}){}", vec!["a"; 3000].join("+"), "+a".repeat(3000))).is_err());
        assert!(check("))))((((").is_ok());
    }
}
