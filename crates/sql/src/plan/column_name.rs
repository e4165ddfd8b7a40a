//! Names of columns that have no alias: the text of their expressions, as the client wrote it.

use crate::parse::{
    digest::Syntax,
    token::{behind_quoted, is_word},
};

/// Words behind which a select list has not begun yet.
const MODIFIERS: [&str; 10] = [
    "select",
    "all",
    "distinct",
    "distinctrow",
    "high_priority",
    "straight_join",
    "sql_small_result",
    "sql_big_result",
    "sql_no_cache",
    "sql_calc_found_rows",
];
/// Words that end it.
const ENDS: [&str; 10] = ["from", "where", "group", "having", "order", "limit", "for", "lock", "into", "union"];

/// The texts between the commas of a select list, in a statement whose white space is single blanks. Empty when the statement
/// is no SELECT.
pub fn select_items(text: &str) -> Vec<&str> {
    let bytes = text.as_bytes();
    let (mut items, mut start, mut depth) = (Vec::new(), None, 0usize);
    let mut at = 0;
    while let Some(&b) = bytes.get(at) {
        let begin = at;
        match b {
            b' ' => at += 1,
            b'\'' | b'"' | b'`' => at = behind_quoted(bytes, at),
            b'(' => {
                at += 1;
                depth += 1;
            }
            b')' if depth == 0 => break,
            b')' => {
                at += 1;
                depth -= 1;
            }
            b',' if depth == 0 => {
                items.push(text[start.unwrap_or(begin)..begin].trim_end());
                at += 1;
                start = None;
                continue;
            }
            b if is_word(b) => {
                while bytes.get(at).is_some_and(|b| is_word(*b)) {
                    at += 1;
                }
                let is = |word: &&str| word.eq_ignore_ascii_case(&text[begin..at]);
                if items.is_empty() && start.is_none() && MODIFIERS.iter().any(is) {
                    continue;
                }
                let qualified = begin > 0 && bytes[begin - 1] == b'.';
                if depth == 0 && start.is_some() && !qualified && ENDS.iter().any(is) {
                    at = begin;
                    break;
                }
            }
            _ => at += 1,
        }
        if b != b' ' && start.is_none() {
            start = Some(begin);
        }
    }
    let is_select = text.get(..6).is_some_and(|t| t.eq_ignore_ascii_case("select"));
    match start {
        Some(start) if is_select => {
            items.push(text[start..at].trim_end());
            items
        }
        _ => Vec::new(),
    }
}

/// Longest name of a column without an alias, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// The text of an expression as its client has written it, and not as the scanner has for the parser. Names keep their backticks.
pub fn as_written(name: String, syntax: Syntax) -> String {
    let name = if syntax.pipes_concat { name.replace("||/", "||") } else { name };
    let name = if syntax.high_not { name.replace("!/", "NOT") } else { name };
    if syntax.no_backslash { name.replace("\\\\", "\\") } else { name }
}

/// A name that is no longer than MySQL has it.
pub fn shortened(mut name: String) -> String {
    if name.len() > NAME_BYTES_MAX {
        name.truncate(name.floor_char_boundary(NAME_BYTES_MAX));
    }
    name
}

/// A text whose placeholders the scanner has numbered, as the client wrote it.
pub fn without_numbers(item: &str) -> String {
    let bytes = item.as_bytes();
    let (mut out, mut at) = (String::with_capacity(item.len()), 0);
    while let Some(&b) = bytes.get(at) {
        let begin = at;
        at = match b {
            b'\'' | b'"' | b'`' => behind_quoted(bytes, at),
            _ => at + item[at..].chars().next().map_or(1, char::len_utf8),
        };
        out.push_str(&item[begin..at]);
        if b == b'?' {
            at += bytes[at..].iter().take_while(|b| b.is_ascii_digit()).count();
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::select_items;

    #[test]
    fn long_names_end_with_a_whole_character() {
        assert_eq!(super::shortened("a".repeat(255)).len(), 255);
        assert_eq!(super::shortened("a".repeat(300)).len(), 255);
        assert_eq!(super::shortened("ö".repeat(300)).len(), 254);
    }

    #[test]
    fn placeholders_lose_their_numbers() {
        assert_eq!(super::without_numbers("f(?1, '?2', ä) + ?12"), "f(?, '?2', ä) + ?");
    }

    #[test]
    fn lists_are_split_where_the_parser_splits_them() {
        for (text, want) in [
            ("SELECT a+1, max( b )", &["a+1", "max( b )"][..]),
            ("select distinct f(a,b) , 'x, y' from t", &["f(a,b)", "'x, y'"]),
            (
                "SELECT SQL_NO_CACHE extract(year from d), 'it''s', `a,b` FROM t",
                &["extract(year from d)", "'it''s'", "`a,b`"],
            ),
            ("SELECT 7 MOD 2 LIMIT 1", &["7 MOD 2"]),
            ("SELECT t.from, 'a\\', b' WHERE 1", &["t.from", "'a\\', b'"]),
            ("SELECT (1) FOR UPDATE", &["(1)"]),
            ("insert into t select 1", &[]),
            ("", &[]),
        ] {
            assert_eq!(select_items(text), want, "{text}");
        }
    }
}
