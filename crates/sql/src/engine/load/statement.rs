//! LOAD DATA as it is written.
//!
//! The query parser does not know the statement. What of it are names, a column list and expressions is put into an INSERT and an UPDATE that the planner
//! knows ([`Load::insert`], [`Load::update`]), so names, views, defaults and privileges mean what they mean there.

use std::fmt::Write;

use apus_types::collate::Charset;

use crate::engine::{
    characters::spoken_named,
    ddl::Name,
    digest::Syntax,
    errors::{self, Result},
    token::{Token, Tokens},
    view_text::quoted,
};
use crate::wire::characters::Spoken;

/// Whether a character may have several bytes.
pub fn has_long_characters(charset: Spoken) -> bool {
    match charset {
        Spoken::Own(charset) => matches!(charset, Charset::Utf8mb4 | Charset::Utf8mb3),
        Spoken::Foreign(charset) => charset.bytes_of_character() > 1,
    }
}

/// How many bytes the character has that begins here, by its first; 0: none begins like this.
pub fn length(charset: Spoken, bytes: &[u8]) -> usize {
    match (charset, bytes.first()) {
        (Spoken::Foreign(charset), _) => charset.expects(bytes),
        (_, Some(0x80..)) if !has_long_characters(charset) => 1,
        (_, Some(0xc2..=0xdf)) => 2,
        (_, Some(0xe0..=0xef)) => 3,
        (Spoken::Own(Charset::Utf8mb4), Some(0xf0..=0xf7)) => 4,
        (_, Some(0x80..)) => 0,
        _ => 1,
    }
}

/// Whether these bytes, as many as [`length`] says, are a character.
pub fn is_character(charset: Spoken, bytes: &[u8]) -> bool {
    match charset {
        Spoken::Own(_) => std::str::from_utf8(bytes).is_ok(),
        Spoken::Foreign(charset) => charset.length(bytes) == bytes.len(),
    }
}

/// How a file is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// What its bytes are.
    pub charset: Spoken,
    pub terminated: Vec<u8>,
    pub enclosed: Option<u8>,
    pub escaped: Option<u8>,
    pub starting: Vec<u8>,
    /// Empty: rows follow each other as fields do.
    pub line: Vec<u8>,
}

impl Default for Format {
    fn default() -> Format {
        let (terminated, line) = (b"\t".to_vec(), b"\n".to_vec());
        Format {
            charset: Spoken::DEFAULT,
            terminated,
            enclosed: None,
            escaped: Some(b'\\'),
            starting: Vec::new(),
            line,
        }
    }
}

/// Where a field goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Column(String),
    /// In lower case.
    Variable(String),
}

/// LOAD DATA.
#[derive(Debug)]
pub struct Load {
    pub is_local: bool,
    pub file: String,
    pub replaces: bool,
    pub table: Name,
    pub format: Format,
    /// A separator is no ASCII.
    pub has_long_separator: bool,
    /// Lines to skip.
    pub skips: u64,
    /// Empty: all columns.
    pub targets: Vec<Target>,
    /// The columns of SET.
    pub assigned: Vec<String>,
    /// What stands behind SET.
    pub assignments: String,
}

impl Load {
    /// Of a statement whose first word is LOAD, written by `syntax`, which says whether a backslash escapes in the file, too.
    ///
    /// # Errors
    /// 1064, 1083, 1115, 1235.
    pub fn parse(text: &str, syntax: Syntax) -> Result<Load> {
        let mut t = Tokens::new(text);
        t.expect("load")?;
        if t.peek_word("xml") {
            return Err(errors::not_supported("LOAD XML"));
        }
        t.expect("data")?;
        let _ = t.word("low_priority") || t.word("concurrent");
        let is_local = t.word("local");
        if t.peek_word("url") || t.peek_word("s3") {
            return Err(errors::not_supported("LOAD DATA FROM URL and S3"));
        }
        t.expect("infile")?;
        let file = t.peek_string().then(|| t.string()).ok_or_else(|| t.error())??;
        let replaces = t.word("replace");
        if !replaces {
            t.word("ignore");
        }
        t.expect("into")?;
        t.expect("table")?;
        let table = t.name()?;
        if t.peek_word("partition") {
            return Err(errors::not_supported("LOAD DATA ... PARTITION"));
        }
        let mut format = Format::default();
        if syntax.no_backslash {
            format.escaped = None;
        }
        if t.word("character") {
            t.expect("set")?;
            format.charset = spoken_named(&t.identifier()?)?;
        } else if t.word("charset") {
            format.charset = spoken_named(&t.identifier()?)?;
        }
        let mut has_long_separator = false;
        format.parse(&mut t, &mut has_long_separator)?;
        let mut skips = 0;
        if t.word("ignore") {
            skips = t.number()?.parse().map_err(|_| t.error())?;
            if !t.word("lines") {
                t.expect("rows")?;
            }
        }
        let targets = targets(&mut t)?;
        let (mut assigned, mut assignments) = (Vec::new(), String::new());
        if t.word("set") {
            let begin = t.offset().ok_or_else(|| t.error())?;
            assigned = assigned_columns(&mut t)?;
            assignments = text.get(begin..).unwrap_or("").to_owned();
        } else if t.peek_word("algorithm") || t.peek_word("parallel") || t.peek_word("memory") {
            return Err(errors::not_supported("LOAD DATA ... ALGORITHM = BULK"));
        }
        t.end()?;
        Ok(Load { is_local, file, replaces, table, format, has_long_separator, skips, targets, assigned, assignments })
    }

    /// The columns that get values, in the order in which [`Load::insert`] names them; none: all of the table.
    pub fn columns(&self) -> Vec<&str> {
        let mut columns: Vec<&str> = Vec::new();
        let listed = self.targets.iter().filter_map(|t| if let Target::Column(name) = t { Some(name) } else { None });
        let assigned = self.assigned.iter().filter(|_| !self.targets.is_empty());
        for name in listed.chain(assigned) {
            if !columns.iter().any(|known| known.eq_ignore_ascii_case(name)) {
                columns.push(name);
            }
        }
        columns
    }

    fn table(&self) -> String {
        match &self.table {
            (Some(database), table) => format!("{}.{}", quoted(database), quoted(table)),
            (None, table) => quoted(table),
        }
    }

    /// An INSERT or REPLACE of a row into the same columns.
    pub fn insert(&self) -> String {
        let verb = if self.replaces { "REPLACE" } else { "INSERT IGNORE" };
        let columns = self.columns();
        if columns.is_empty() {
            return format!("{verb} INTO {} VALUES ()", self.table());
        }
        let names: Vec<String> = columns.iter().map(|name| quoted(name)).collect();
        let values = vec!["DEFAULT"; columns.len()];
        format!("{verb} INTO {} ({}) VALUES ({})", self.table(), names.join(", "), values.join(", "))
    }

    /// An UPDATE with the assignments of SET, where there is one.
    pub fn update(&self) -> Option<String> {
        if self.assigned.is_empty() {
            return None;
        }
        let mut text = String::new();
        let _ = write!(text, "UPDATE {} SET {}", self.table(), self.assignments);
        Some(text)
    }
}

impl Format {
    /// FIELDS and LINES.
    fn parse(&mut self, t: &mut Tokens, has_long: &mut bool) -> Result<()> {
        if t.word("fields") || t.word("columns") {
            let mut is_first = true;
            loop {
                if t.word("terminated") {
                    self.terminated = separator(t, has_long)?;
                } else if t.peek_word("enclosed") || t.peek_word("optionally") {
                    if t.word("optionally") && !t.peek_word("enclosed") {
                        return Err(t.error());
                    }
                    t.skip();
                    self.enclosed = one_byte(separator(t, has_long)?)?;
                } else if t.word("escaped") {
                    self.escaped = one_byte(separator(t, has_long)?)?;
                } else if is_first {
                    return Err(t.error());
                } else {
                    break;
                }
                is_first = false;
            }
        }
        if t.word("lines") {
            let mut is_first = true;
            loop {
                if t.word("terminated") {
                    self.line = separator(t, has_long)?;
                } else if t.word("starting") {
                    self.starting = separator(t, has_long)?;
                } else if is_first {
                    return Err(t.error());
                } else {
                    break;
                }
                is_first = false;
            }
        }
        if self.line == self.terminated {
            self.line.clear();
        }
        Ok(())
    }
}

/// BY and a text, also one in hexadecimal digits or bits.
fn separator(t: &mut Tokens, has_long: &mut bool) -> Result<Vec<u8>> {
    t.expect("by")?;
    let bytes = match t.peek().cloned() {
        Some(Token::Text(text)) => text.into_bytes(),
        Some(Token::Word(word)) => {
            let lower = word.to_ascii_lowercase();
            let (base, digits) = match (lower.as_str(), t.rest().get(1)) {
                ("x", Some(Token::Text(digits))) => (16, digits.clone()),
                ("b", Some(Token::Text(digits))) => (2, digits.clone()),
                (word, _) => match (word.strip_prefix("0x"), word.strip_prefix("0b")) {
                    (Some(digits), _) => (16, digits.to_owned()),
                    (_, Some(digits)) => (2, digits.to_owned()),
                    _ => return Err(t.error()),
                },
            };
            if lower.len() == 1 {
                t.skip();
            }
            bytes_of(base, &digits).ok_or_else(|| t.error())?
        }
        _ => return Err(t.error()),
    };
    t.skip();
    *has_long |= !bytes.is_ascii();
    Ok(bytes)
}

fn bytes_of(base: u32, digits: &str) -> Option<Vec<u8>> {
    let per_byte = if base == 16 { 2 } else { 8 };
    let padded = format!("{}{digits}", "0".repeat(digits.len().next_multiple_of(per_byte) - digits.len()));
    (0..padded.len())
        .step_by(per_byte)
        .map(|at| u8::from_str_radix(padded.get(at..at + per_byte)?, base).ok())
        .collect()
}

fn one_byte(text: Vec<u8>) -> Result<Option<u8>> {
    if text.len() > 1 { Err(errors::wrong_separator()) } else { Ok(text.first().copied()) }
}

/// The list of columns and variables.
fn targets(t: &mut Tokens) -> Result<Vec<Target>> {
    let mut list = Vec::new();
    if !t.symbol('(') || t.symbol(')') {
        return Ok(list);
    }
    loop {
        list.push(match t.peek() {
            Some(Token::Word(word)) if word.starts_with("@@") => return Err(t.error()),
            Some(Token::Word(word)) if word.starts_with('@') => {
                let name = word[1..].to_owned();
                t.skip();
                Target::Variable(if name.is_empty() { t.identifier()? } else { name }.to_lowercase())
            }
            _ => Target::Column(column(t)?),
        });
        if !t.symbol(',') {
            break;
        }
    }
    t.expect_symbol(')')?;
    Ok(list)
}

/// A column, with or without its table; its own name.
fn column(t: &mut Tokens) -> Result<String> {
    let mut name = t.identifier()?;
    while t.symbol('.') {
        name = t.identifier()?;
    }
    Ok(name)
}

/// The columns that assignments are made to; their expressions are passed over.
fn assigned_columns(t: &mut Tokens) -> Result<Vec<String>> {
    let mut columns = Vec::new();
    loop {
        columns.push(column(t)?);
        t.symbol(':');
        t.expect_symbol('=')?;
        let mut depth = 0;
        while let Some(token) = t.peek() {
            match token {
                Token::Symbol('(') => depth += 1,
                Token::Symbol(')') => depth -= 1,
                Token::Symbol(',') if depth == 0 => break,
                _ => {}
            }
            t.skip();
        }
        if !t.symbol(',') {
            return Ok(columns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clauses() {
        let load = Load::parse(
            "LOAD DATA CONCURRENT LOCAL INFILE 'f.csv' REPLACE INTO TABLE d.t CHARACTER SET latin1 FIELDS TERMINATED BY ',' \
             OPTIONALLY ENCLOSED BY '\"' ESCAPED BY '' LINES STARTING BY x'3e' TERMINATED BY 0x0d0a IGNORE 3 ROWS \
             (a, @B, t.c) SET d = CONCAT(@b, ',', 1), t.a := 5",
            Syntax::default(),
        )
        .unwrap();
        assert!(load.is_local && load.replaces && !load.has_long_separator);
        let format = Format {
            charset: Spoken::Own(Charset::Latin1),
            terminated: b",".to_vec(),
            enclosed: Some(b'"'),
            escaped: None,
            starting: b">".to_vec(),
            line: b"\r\n".to_vec(),
        };
        assert_eq!((load.format.clone(), load.skips), (format, 3));
        assert_eq!(load.columns(), ["a", "c", "d"]);
        assert_eq!(load.insert(), "REPLACE INTO `d`.`t` (`a`, `c`, `d`) VALUES (DEFAULT, DEFAULT, DEFAULT)");
        assert_eq!(load.update().unwrap(), "UPDATE `d`.`t` SET d = CONCAT(@b, ',', 1), t.a := 5");
        let text = "load data local infile 'f' ignore into table t";
        let raw = Load::parse(text, Syntax { no_backslash: true, ..Syntax::default() }).unwrap();
        assert_eq!(raw.format, Format { escaped: None, ..Format::default() });
        let plain = Load::parse(text, Syntax::default()).unwrap();
        assert_eq!((plain.format.clone(), plain.columns().len(), plain.update()), (Format::default(), 0, None));
        assert_eq!(plain.insert(), "INSERT IGNORE INTO `t` VALUES ()");
    }

    #[test]
    fn refusals() {
        for (text, errno) in [
            ("LOAD XML LOCAL INFILE 'f' INTO TABLE t", 1235),
            ("LOAD DATA LOCAL INFILE 'f' INTO TABLE t PARTITION (p0)", 1235),
            ("LOAD DATA LOCAL INFILE 'f' INTO TABLE t CHARACTER SET ucs2", 1235),
            ("LOAD DATA LOCAL INFILE 'f' INTO TABLE t CHARACTER SET nosuch", 1115),
            ("LOAD DATA LOCAL INFILE 'f' INTO TABLE t FIELDS ENCLOSED BY 'ab'", 1083),
            ("LOAD DATA LOCAL INFILE 'f' INTO TABLE t FIELDS", 1064),
            ("LOAD DATA LOCAL INFILE 'f' INTO TABLE t FIELDS OPTIONALLY TERMINATED BY 'a'", 1064),
            ("LOAD DATA LOCAL INFILE 'f' INTO TABLE t FIELDS TERMINATED BY 0xg", 1064),
            ("LOAD DATA LOCAL INFILE 'f' INTO TABLE t IGNORE x LINES", 1064),
            ("LOAD DATA LOCAL INFILE 'f' INTO TABLE t (a,", 1064),
            ("LOAD DATA LOCAL INFILE 'f' INTO TABLE t (@@a)", 1064),
            ("LOAD DATA LOCAL INFILE 'f' INTO TABLE t SET a", 1064),
            ("LOAD DATA LOCAL INFILE f INTO TABLE t", 1064),
        ] {
            assert_eq!(Load::parse(text, Syntax::default()).unwrap_err().errno, errno, "{text}");
        }
    }
}
