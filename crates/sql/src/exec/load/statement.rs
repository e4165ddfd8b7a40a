//! LOAD DATA as it is written.
//!
//! The query parser does not know the statement. What of it are names, a column list and expressions is put into an INSERT and an UPDATE that the planner
//! knows ([`Load::insert`], [`Load::update`]), so names, views, defaults and privileges mean what they mean there.

use apus_types::collate::Charset;
use std::fmt::Write;

use crate::{
    errors::{self, Result},
    files::format::Format,
    parse::{
        charset::spoken_named,
        digest::Syntax,
        token::{Name, Token, Tokens},
        view_text::quoted,
    },
};

/// Where a field goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Column(String),
    /// In lower case.
    Variable(String),
}

/// What becomes of a row whose key is taken, and with it whether what cannot be stored as it is ends the statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Duplicates {
    Refuse,
    Ignore,
    Replace,
}

/// LOAD DATA.
#[derive(Debug)]
pub struct Load {
    pub is_local: bool,
    pub file: String,
    pub duplicates: Duplicates,
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
    /// Of a statement whose first word is LOAD, written by `syntax`, which says whether a backslash escapes in the file, too. The file is in `charset` unless the statement says otherwise.
    ///
    /// # Errors
    /// 1064, 1083, 1115, 1235.
    pub fn parse(text: &str, syntax: Syntax, charset: Charset) -> Result<Load> {
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
        let duplicates = match (t.word("replace"), t.word("ignore")) {
            (true, false) => Duplicates::Replace,
            (true, true) => return Err(t.error()),
            // A client that has begun to send cannot be stopped.
            (false, true) => Duplicates::Ignore,
            (false, false) if is_local => Duplicates::Ignore,
            (false, false) => Duplicates::Refuse,
        };
        t.expect("into")?;
        t.expect("table")?;
        let table = t.name()?;
        if t.peek_word("partition") {
            return Err(errors::not_supported("LOAD DATA ... PARTITION"));
        }
        let mut format = Format { charset, ..Format::default() };
        if syntax.no_backslash {
            format.escaped = None;
        }
        if t.word("character") {
            t.expect("set")?;
            format.charset = spoken_named(&t.identifier()?)?;
        } else if t.word("charset") {
            format.charset = spoken_named(&t.identifier()?)?;
        }
        if format.charset.is_wide() {
            // Of the database: none was named.
            return Err(errors::not_supported(&format!("files in the character set {}", format.charset.name())));
        }
        let mut has_long_separator = false;
        format.parse(&mut t, &mut has_long_separator)?;
        if format.line == format.terminated {
            format.line.clear();
        }
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
        Ok(Load {
            is_local,
            file,
            duplicates,
            table,
            format,
            has_long_separator,
            skips,
            targets,
            assigned,
            assignments,
        })
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
        let verb = match self.duplicates {
            Duplicates::Refuse => "INSERT",
            Duplicates::Ignore => "INSERT IGNORE",
            Duplicates::Replace => "REPLACE",
        };
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
    use apus_types::collate::Charset;

    #[test]
    fn clauses() {
        let load = Load::parse(
            "LOAD DATA CONCURRENT LOCAL INFILE 'f.csv' REPLACE INTO TABLE d.t CHARACTER SET latin1 FIELDS TERMINATED BY ',' \
             OPTIONALLY ENCLOSED BY '\"' ESCAPED BY '' LINES STARTING BY x'3e' TERMINATED BY 0x0d0a IGNORE 3 ROWS \
             (a, @B, t.c) SET d = CONCAT(@b, ',', 1), t.a := 5",
            Syntax::default(),
            Charset::Utf8mb4,
        )
        .unwrap();
        assert!(load.is_local && load.duplicates == Duplicates::Replace && !load.has_long_separator);
        let format = Format {
            charset: Charset::Latin1,
            terminated: b",".to_vec(),
            enclosed: Some(b'"'),
            is_optional: true,
            escaped: None,
            starting: b">".to_vec(),
            line: b"\r\n".to_vec(),
        };
        assert_eq!((load.format.clone(), load.skips), (format, 3));
        assert_eq!(load.columns(), ["a", "c", "d"]);
        assert_eq!(load.insert(), "REPLACE INTO `d`.`t` (`a`, `c`, `d`) VALUES (DEFAULT, DEFAULT, DEFAULT)");
        assert_eq!(load.update().unwrap(), "UPDATE `d`.`t` SET d = CONCAT(@b, ',', 1), t.a := 5");
        let text = "load data local infile 'f' ignore into table t";
        let raw = Load::parse(text, Syntax { no_backslash: true, ..Syntax::default() }, Charset::Utf8mb4).unwrap();
        assert_eq!(raw.format, Format { escaped: None, ..Format::default() });
        let plain = Load::parse(text, Syntax::default(), Charset::Utf8mb4).unwrap();
        assert_eq!((plain.format.clone(), plain.columns().len(), plain.update()), (Format::default(), 0, None));
        assert_eq!(plain.insert(), "INSERT IGNORE INTO `t` VALUES ()");
        let of_server = Load::parse("LOAD DATA INFILE 'f' INTO TABLE t", Syntax::default(), Charset::Utf8mb4).unwrap();
        assert_eq!((of_server.is_local, of_server.insert().as_str()), (false, "INSERT INTO `t` VALUES ()"));
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
            assert_eq!(Load::parse(text, Syntax::default(), Charset::Utf8mb4).unwrap_err().errno, errno, "{text}");
        }
    }
}
