//! Options behind the columns of CREATE TABLE.
//!
//! Most have no effect here and are read over. What MySQL does not have stands in the table's comment, so that a dump of it can be read by MySQL and back:
//! a part of the comment that begins with `apus:`, from others separated by semicolons, `COMMENT='Orders; apus: durability=disk'`. An option is
//! `name=value`, several are separated by commas. Written as an option of its own (`DURABILITY=disk`) it is put into the comment, so SHOW CREATE TABLE, mysqldump and
//! INFORMATION_SCHEMA have one form of it.

use apus_types::{TableSchema, schema::Durability};

use super::create_select::begins_select;
use crate::{
    errors::{self, Result},
    parse::token::Tokens,
    wire::SqlError,
};

/// What begins the options in a comment.
const MARK: &str = "apus:";

/// Apus's own options of a table, as far as they are read.
#[derive(Default)]
struct Own {
    durability: Option<Durability>,
    /// Given as options of their own: they are to be put into the comment.
    outside: Vec<&'static str>,
}

fn refused(text: String) -> SqlError {
    SqlError::new(3719, b"HY000", text)
}

impl Own {
    fn set(&mut self, name: &str, value: &str) -> Result<&'static str> {
        let (durability, text) = match (name.to_ascii_lowercase().as_str(), value.to_ascii_lowercase().as_str()) {
            ("durability", "replicated") => (Durability::Replicated, "durability=replicated"),
            ("durability", "disk") => (Durability::Disk, "durability=disk"),
            ("durable", "yes") => (Durability::Replicated, "durable=yes"),
            ("durable", "no") => (Durability::None, "durable=no"),
            ("durable", _) => return Err(refused(format!("The table option durable is 'yes' or 'no', not '{value}'"))),
            ("durability", _) => {
                return Err(refused(format!("The table option durability is 'replicated' or 'disk', not '{value}'")));
            }
            _ => return Err(refused(format!("'{name}' is no table option of Apus; there are: durability, durable"))),
        };
        match self.durability.replace(durability) {
            Some(other) if other != durability => {
                Err(refused(format!("The table options contradict each other: '{text}'")))
            }
            _ => Ok(text),
        }
    }

    fn read_comment(&mut self, comment: &str) -> Result<()> {
        for part in comment.split(';') {
            let part = part.trim();
            let Some(mark) = part.get(..MARK.len()).filter(|start| start.eq_ignore_ascii_case(MARK)) else { continue };
            for option in part[mark.len()..].split(',') {
                let (name, value) = option.split_once('=').ok_or_else(|| {
                    refused(format!("'{}' in the table's comment is no option of the form name=value", option.trim()))
                })?;
                self.set(name.trim(), value.trim())?;
            }
        }
        Ok(())
    }

    fn apply(self, table: &mut TableSchema) {
        for text in self.outside {
            let is_there = table.comment.contains(text);
            if !is_there {
                let separator = if table.comment.is_empty() { "" } else { "; " };
                table.comment += &format!("{separator}{MARK} {text}");
            }
        }
        table.durability = self.durability.unwrap_or_default();
    }
}

/// An option of Apus as it is written, name and value.
pub type OwnOption = (String, String);

/// Takes an option of Apus, if one is next.
pub fn own_option(t: &mut Tokens) -> Result<Option<OwnOption>> {
    if !t.peek_word("durability") && !t.peek_word("durable") {
        return Ok(None);
    }
    let name = t.identifier()?;
    t.symbol('=');
    let value = if t.peek_string() { t.string()? } else { t.identifier()? };
    Ok(Some((name, value)))
}

/// Reads the options in the comment of a table, and adds those that stand by themselves.
pub fn settle(table: &mut TableSchema, options: &[OwnOption]) -> Result<()> {
    let mut own = Own::default();
    for (name, value) in options {
        let text = own.set(name, value)?;
        own.outside.push(text);
    }
    own.read_comment(&table.comment)?;
    own.apply(table);
    Ok(())
}

/// The length of the text type behind the one of this length.
pub fn next_text(length: u32) -> u32 {
    const LONGEST: u32 = apus_types::limits::ROW_BYTES_MAX as u32;
    match length {
        ..=255 => 65_535,
        256..=65_535 => LONGEST - 1,
        _ => LONGEST,
    }
}

/// Returns the first value of AUTO_INCREMENT where it is given.
pub fn table_options(t: &mut Tokens, table: &mut TableSchema) -> Result<Option<u64>> {
    let (mut auto_increment, mut own) = (None, Vec::new());
    while !t.at_end() && !begins_select(t) {
        t.symbol(',');
        t.word("default");
        if t.word("engine") {
            t.symbol('=');
            table.engine = t.identifier()?;
            if table.engine.starts_with('#') {
                return Err(errors::unknown_engine(&table.engine));
            }
        } else if t.word("comment") {
            t.symbol('=');
            table.comment = t.string()?;
        } else if let Some(option) = own_option(t)? {
            own.push(option);
        } else if t.word("auto_increment") {
            t.symbol('=');
            auto_increment = t.number()?.parse().ok();
        } else if t.word("partition") {
            return Err(errors::not_supported("PARTITION BY"));
        } else {
            // Options without effect here: name, perhaps "=", one value.
            let word = t.identifier()?;
            if word.eq_ignore_ascii_case("character") {
                t.expect("set")?;
            }
            t.symbol('=');
            t.skip();
        }
    }
    settle(table, &own)?;
    Ok(auto_increment)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(options: &str) -> Result<(Durability, String)> {
        let mut table = TableSchema::new("d", "t", Vec::new(), Vec::new());
        table_options(&mut Tokens::new(options), &mut table)?;
        Ok((table.durability, table.comment))
    }

    #[test]
    fn options_are_found_in_comments_and_put_there() {
        let disk = |comment: &str| (Durability::Disk, comment.to_owned());
        let replicated = |comment: &str| (Durability::Replicated, comment.to_owned());
        for (options, expected) in [
            ("", replicated("")),
            ("COMMENT='about apus: a bird'", replicated("about apus: a bird")),
            ("COMMENT='apus: durability=disk' ENGINE=InnoDB", disk("apus: durability=disk")),
            (
                "ENGINE=InnoDB COMMENT 'Orders; APUS: durability = Disk ; old'",
                disk("Orders; APUS: durability = Disk ; old"),
            ),
            ("DURABILITY=DISK", disk("apus: durability=disk")),
            ("durability 'disk' comment='Orders'", disk("Orders; apus: durability=disk")),
            ("durability=disk comment='apus: durability=disk'", disk("apus: durability=disk")),
            ("durability=replicated", replicated("apus: durability=replicated")),
            ("DURABLE=NO", (Durability::None, "apus: durable=no".to_owned())),
            ("comment='apus: durable=no'", (Durability::None, "apus: durable=no".to_owned())),
            ("comment='apus: durable=yes'", replicated("apus: durable=yes")),
        ] {
            assert_eq!(made(options).ok(), Some(expected), "{options}");
        }
        for wrong in [
            "COMMENT='apus: durability=often'",
            "COMMENT='apus: colour=blue'",
            "COMMENT='apus: disk'",
            "COMMENT='apus:'",
            "COMMENT='Orders; apus: durability=disk, colour=blue'",
            "DURABILITY=maybe",
            "COMMENT='apus: durable=perhaps'",
            "COMMENT='apus: durable=no, durability=disk'",
            "DURABILITY=disk COMMENT='apus: durability=replicated'",
        ] {
            assert_eq!(made(wrong).map_err(|e| e.errno), Err(3719), "{wrong}");
        }
    }
}
