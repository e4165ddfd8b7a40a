//! The text of a normal form as PERFORMANCE_SCHEMA has it: keywords in capitals, names in backticks, values as `?`, one blank between tokens.
//!
//! Lists of values are `(...)`. Which words are keywords is a list of those that statements are mostly made of ([`KEYWORDS`]): other words are names.

/// So much of a normal form is read.
pub const NORMAL_BYTES_MAX: usize = 8192;

/// In order.
const KEYWORDS: [&str; 152] = [
    "ADD",
    "ALL",
    "ALTER",
    "ANALYZE",
    "AND",
    "ANY",
    "AS",
    "ASC",
    "AUTO_INCREMENT",
    "AVG",
    "BEGIN",
    "BETWEEN",
    "BIGINT",
    "BINARY",
    "BIT",
    "BLOB",
    "BOOL",
    "BOTH",
    "BY",
    "CALL",
    "CASCADE",
    "CASE",
    "CAST",
    "CHANGE",
    "CHAR",
    "CHARACTER",
    "CHECK",
    "COLLATE",
    "COLUMN",
    "COMMENT",
    "COMMIT",
    "CONSTRAINT",
    "CONVERT",
    "COUNT",
    "CREATE",
    "CROSS",
    "CURRENT_DATE",
    "CURRENT_TIMESTAMP",
    "DATABASE",
    "DATE",
    "DATETIME",
    "DECIMAL",
    "DEFAULT",
    "DELETE",
    "DESC",
    "DESCRIBE",
    "DISTINCT",
    "DIV",
    "DOUBLE",
    "DROP",
    "DUPLICATE",
    "ELSE",
    "END",
    "ENGINE",
    "ENUM",
    "EXCEPT",
    "EXECUTE",
    "EXISTS",
    "EXPLAIN",
    "FALSE",
    "FLOAT",
    "FOR",
    "FORCE",
    "FOREIGN",
    "FROM",
    "FULL",
    "GLOBAL",
    "GRANT",
    "GROUP",
    "GROUP_CONCAT",
    "HAVING",
    "IF",
    "IGNORE",
    "IN",
    "INDEX",
    "INNER",
    "INSERT",
    "INT",
    "INTERSECT",
    "INTERVAL",
    "INTO",
    "IS",
    "JOIN",
    "JSON",
    "KEY",
    "KILL",
    "LEFT",
    "LIKE",
    "LIMIT",
    "LOAD",
    "LOCK",
    "MATCH",
    "MAX",
    "MIN",
    "MOD",
    "MODIFY",
    "NAMES",
    "NATURAL",
    "NOT",
    "NOW",
    "NULL",
    "OFFSET",
    "ON",
    "OR",
    "ORDER",
    "OUTER",
    "OVER",
    "PARTITION",
    "PREPARE",
    "PRIMARY",
    "PROCEDURE",
    "REFERENCES",
    "REGEXP",
    "RENAME",
    "REPLACE",
    "RIGHT",
    "ROLLBACK",
    "ROW",
    "SAVEPOINT",
    "SELECT",
    "SESSION",
    "SET",
    "SHARE",
    "SHOW",
    "SMALLINT",
    "START",
    "STATUS",
    "STRAIGHT_JOIN",
    "SUM",
    "TABLE",
    "TABLES",
    "TEXT",
    "THEN",
    "TIME",
    "TIMESTAMP",
    "TINYINT",
    "TO",
    "TRANSACTION",
    "TRUE",
    "TRUNCATE",
    "UNION",
    "UNIQUE",
    "UNLOCK",
    "UPDATE",
    "USE",
    "USING",
    "VALUES",
    "VARCHAR",
    "VARIABLES",
    "VIEW",
    "WHEN",
    "WHERE",
];

/// A statement that may tell a password, whose own text is kept nowhere.
pub fn is_secret(sql: &[u8]) -> bool {
    ["identified", "password"]
        .iter()
        .any(|word| sql.windows(word.len()).any(|w| w.eq_ignore_ascii_case(word.as_bytes())))
}

/// Not more of a text than so many bytes.
pub fn cut(mut text: String, most: usize) -> String {
    text.truncate(text.floor_char_boundary(most));
    text
}

fn is_word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$' | b'@') || b >= 0x80
}

/// One token, and where the next one begins.
fn token(text: &str, at: usize) -> (String, usize) {
    let bytes = text.as_bytes();
    let end_of = |from: usize, is: &dyn Fn(u8) -> bool| {
        from + bytes[from..].iter().position(|b| !is(*b)).unwrap_or(bytes.len() - from)
    };
    match bytes[at] {
        b'?' => ("?".to_owned(), end_of(at + 1, &|b| b.is_ascii_digit())),
        quote @ (b'\'' | b'"' | b'`') => {
            let mut end = at + 1;
            while end < bytes.len() && bytes[end] != quote {
                end += if bytes[end] == b'\\' && quote != b'`' { 2 } else { 1 };
            }
            let end = text.ceil_char_boundary((end + 1).min(bytes.len()));
            (if quote == b'`' { text[at..end].to_owned() } else { "?".to_owned() }, end)
        }
        b'0'..=b'9' => {
            let end = end_of(at, &|b| is_word(b) || b == b'.');
            let is_name = bytes[at..end].iter().any(u8::is_ascii_alphabetic) && !text[at..end].contains('.');
            let is_number = text[at..end].parse::<f64>().is_ok() || text[at..end].starts_with("0x");
            (if is_name && !is_number { format!("`{}`", &text[at..end]) } else { "?".to_owned() }, end)
        }
        b if is_word(b) => {
            let end = end_of(at, &is_word);
            let word = text[at..end].to_ascii_uppercase();
            let is_keyword = KEYWORDS.binary_search(&word.as_str()).is_ok() || EXTRA.contains(&word.as_str());
            let shown = match () {
                () if word.starts_with('@') => text[at..end].to_owned(),
                () if is_keyword => word,
                () => format!("`{}`", &text[at..end]),
            };
            (shown, end)
        }
        b'<' | b'>' | b'!' | b':' | b'|' | b'&' => {
            let end = end_of(at, &|b| matches!(b, b'<' | b'>' | b'=' | b'!' | b':' | b'|' | b'&'));
            (text[at..end].to_owned(), end)
        }
        _ => {
            let end = text.ceil_char_boundary(at + 1);
            (text[at..end].to_owned(), end)
        }
    }
}

/// Keywords behind the others.
const EXTRA: [&str; 4] = ["WHILE", "WITH", "XOR", "YEAR"];

/// Of a statement's normal form, with or without its literals.
pub fn of(normal: &str) -> String {
    let mut out: Vec<String> = Vec::new();
    let (bytes, mut at) = (normal.as_bytes(), 0);
    while at < bytes.len() {
        if bytes[at].is_ascii_whitespace() {
            at += 1;
            continue;
        }
        if normal[at..].starts_with("/*") {
            at = normal[at..].find("*/").map_or(bytes.len(), |end| at + end + 2);
            continue;
        }
        let (token, end) = token(normal, at);
        at = end;
        // A sign of a value is part of it.
        if token == "?" && matches!(out.last().map(String::as_str), Some("-" | "+")) {
            let before = out.len().checked_sub(2).map(|at| out[at].as_str());
            if matches!(
                before,
                Some("(" | "," | "=" | "<" | ">" | "<=" | ">=" | "<>" | "IN" | "AND" | "OR" | "BETWEEN")
            ) {
                out.pop();
            }
        }
        out.push(token);
        fold(&mut out);
    }
    out.join(" ")
}

/// `( ? , ? )` becomes `(...)`, and several of these one.
fn fold(out: &mut Vec<String>) {
    if out.last().is_none_or(|t| t != ")") {
        return;
    }
    let Some(open) = out.iter().rposition(|t| t == "(") else { return };
    let inside = &out[open + 1..out.len() - 1];
    let is_value = |t: &String| matches!(t.as_str(), "?" | "NULL" | "DEFAULT" | "TRUE" | "FALSE");
    let is_list =
        inside.len() > 1 && inside.iter().enumerate().all(|(at, t)| if at % 2 == 0 { is_value(t) } else { t == "," });
    let is_rows = inside.len() == 1 && is_value(&inside[0]);
    let is_of_list = open > 0 && matches!(out[open - 1].as_str(), "IN" | "VALUES" | ",");
    if !is_of_list || !(is_list || is_rows && out[open - 1] != ",") {
        return;
    }
    out.truncate(open);
    if out.len() >= 2 && out[out.len() - 1] == "," && out[out.len() - 2].starts_with("(...)") {
        out.pop();
        out.pop();
        out.push("(...) /* , ... */".to_owned());
    } else {
        out.push("(...)".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_sorted() {
        assert!(KEYWORDS.is_sorted());
    }

    #[test]
    fn statements_look_as_in_mysql() {
        for (normal, want) in [
            ("select c from sbtest1 where id=?1", "SELECT `c` FROM `sbtest1` WHERE `id` = ?"),
            ("SELECT 'a\\'b', 1.5, 0x1f FROM t AS x", "SELECT ?, ?, ? FROM `t` AS `x`"),
            ("INSERT INTO t VALUES (?1, ?2), (?1, ?2)", "INSERT INTO `t` VALUES (...) /* , ... */"),
            ("INSERT INTO t (a, b) VALUES (?1, NULL)", "INSERT INTO `t` ( `a` , `b` ) VALUES (...)"),
            ("SELECT * FROM t WHERE a IN (?1, ?2) AND b >= -?3", "SELECT * FROM `t` WHERE `a` IN (...) AND `b` >= ?"),
            ("SELECT COUNT(*) FROM `a b`.t", "SELECT COUNT ( * ) FROM `a b` . `t`"),
            ("SET autocommit=0", "SET `autocommit` = ?"),
            ("SELECT /*+ NO_BNL(t) */ @@version, ä, 2x", "SELECT @@version , `ä` , `2x`"),
            ("'", "?"),
        ] {
            let want = want.replace("?, ?, ?", "? , ? , ?");
            assert_eq!(of(normal), want, "{normal}");
        }
    }
}
