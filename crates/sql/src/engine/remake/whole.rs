//! What ALTER TABLE says of the table as a whole: its primary key, options, names of indexes, and the way that it is to be done.

use apus_types::{Column, ColumnType, TableSchema, collate::Collation};

use crate::engine::{
    alter::{self, AlterClause},
    characters::Characters,
    errors::{self, Result},
    labels,
    table_options::{self, OwnOption},
    token::Tokens,
};
use crate::wire::SqlError;

/// Options that have no effect here: a name, perhaps `=`, and a value.
const OTHERS: [&str; 18] = [
    "autoextend_size", "avg_row_length", "checksum", "compression", "connection", "delay_key_write", "encryption",
    "insert_method", "key_block_size", "max_rows", "min_rows", "pack_keys", "row_format", "secondary_engine",
    "stats_auto_recalc", "stats_persistent", "stats_sample_pages", "tablespace",
];

/// ALGORITHM as the statement has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Algorithm {
    #[default]
    Default,
    Instant,
    InPlace,
    Copy,
}

#[derive(Debug, Default)]
pub struct Whole {
    pub primary: Option<Vec<String>>,
    pub drop_primary: bool,
    pub rename_indexes: Vec<(String, String)>,
    pub auto_increment: Option<u64>,
    comment: Option<String>,
    engine: Option<String>,
    own: Vec<OwnOption>,
    characters: Option<Characters>,
    /// CONVERT TO CHARACTER SET.
    convert: Option<Characters>,
    algorithm: Algorithm,
    /// LOCK=NONE.
    no_lock: bool,
}

impl Whole {
    /// Takes what stands next, if it is about the table as a whole and no key.
    pub fn take(&mut self, t: &mut Tokens) -> Result<bool> {
        if t.peek_word("convert") && t.second_word("to") {
            t.skip();
            t.skip();
            let mut characters = Characters::default();
            while characters.take(t)? {}
            self.convert = Some(characters);
            return Ok(true);
        }
        if t.peek_word("default") && !t.second_word("values") {
            t.skip();
        }
        let mut characters = self.characters.unwrap_or_default();
        if characters.take(t)? {
            self.characters = Some(characters);
        } else if t.word("comment") {
            t.symbol('=');
            self.comment = Some(t.string()?);
        } else if t.word("engine") {
            t.symbol('=');
            let engine = t.identifier()?;
            if engine.starts_with('#') {
                return Err(errors::unknown_engine(&engine));
            }
            self.engine = Some(engine);
        } else if t.word("auto_increment") {
            t.symbol('=');
            self.auto_increment = t.number()?.parse().ok();
        } else if let Some(own) = table_options::own_option(t)? {
            self.own.push(own);
        } else if t.word("algorithm") {
            t.symbol('=');
            self.algorithm = algorithm(&t.identifier()?)?;
        } else if t.word("lock") {
            t.symbol('=');
            self.no_lock = lock(&t.identifier()?)?;
        } else if t.word("enable") || t.word("disable") {
            t.expect("keys")?;
        } else if OTHERS.iter().any(|name| t.peek_word(name)) {
            t.skip();
            t.symbol('=');
            t.skip();
        } else {
            return Ok(t.word("force"));
        }
        Ok(true)
    }

    /// # Errors
    /// 1068: there is one already.
    pub fn add_primary(&mut self, key: Option<Vec<String>>) -> Result<()> {
        let Some(key) = key else { return Ok(()) };
        match self.primary.replace(key) {
            None => Ok(()),
            Some(_) => Err(multiple_primary()),
        }
    }

    /// The dictionary can change none of this in a table that has rows.
    pub fn must_copy(&self) -> bool {
        self.primary.is_some()
            || self.drop_primary
            || !self.rename_indexes.is_empty()
            || self.comment.is_some()
            || !self.own.is_empty()
            || self.characters.is_some()
            || self.convert.is_some()
    }
    pub fn is_copy_asked(&self) -> bool {
        self.algorithm == Algorithm::Copy
    }

    /// A table without columns that has the options from now on.
    pub fn options(&self, table: &TableSchema) -> Result<TableSchema> {
        let mut options = TableSchema::new(&table.database, &table.name, Vec::new(), Vec::new());
        options.comment = self.comment.clone().unwrap_or_else(|| table.comment.clone());
        options.engine = self.engine.clone().unwrap_or_else(|| table.engine.clone());
        options.collation = match self.convert.or(self.characters) {
            Some(characters) => characters.collation(table.collation)?,
            None => table.collation,
        };
        table_options::settle(&mut options, &self.own)?;
        Ok(options)
    }

    /// A column that the statement does not define, in the character set that all get.
    pub fn converted(&self, column: &mut Column, to: Collation) {
        if self.convert.is_none() {
            return;
        }
        let before = column.ty.collation().map_or(1, |c| usize::from(c.charset().bytes_of_character()));
        let is_wider = usize::from(to.charset().bytes_of_character()) > before;
        match &mut column.ty {
            ColumnType::Char { collation, .. }
            | ColumnType::VarChar { collation, .. }
            | ColumnType::Label { collation, .. } => *collation = to,
            ColumnType::Text { collation, length } => {
                *collation = to;
                // As many characters as there can be now.
                if is_wider {
                    *length = table_options::next_text(*length);
                }
            }
            _ => {}
        }
    }

    /// # Errors
    /// 1845 and 1846: the statement asks for a way that MySQL has not for what it does.
    pub fn check_way(&self, table: &TableSchema, clause: &AlterClause, copies: bool) -> Result<()> {
        let must = self.is_copied_by_mysql(table, clause);
        let is_type = is_retyped(table, clause);
        let name = match self.algorithm {
            Algorithm::Instant => "INSTANT",
            _ => "INPLACE",
        };
        match self.algorithm {
            Algorithm::InPlace | Algorithm::Instant if must && is_type => {
                let reason = match self.algorithm {
                    Algorithm::Instant => "Need to rebuild the table to change column type",
                    _ => "Cannot change column type INPLACE",
                };
                Err(not_this_way(&format!("ALGORITHM={name}"), reason, "ALGORITHM=COPY"))
            }
            Algorithm::InPlace if must && self.drop_primary => {
                let reason = "Dropping a primary key is not allowed without also adding a new primary key";
                Err(not_this_way("ALGORITHM=INPLACE", reason, "ALGORITHM=COPY"))
            }
            Algorithm::InPlace if must => {
                let text = "ALGORITHM=INPLACE is not supported for this operation. Try ALGORITHM=COPY.";
                Err(SqlError::new(1845, b"0A000", text))
            }
            Algorithm::Instant if must || copies && !self.is_light() => {
                let text = "ALGORITHM=INSTANT is not supported for this operation. Try ALGORITHM=COPY/INPLACE.";
                Err(SqlError::new(1845, b"0A000", text))
            }
            _ if self.no_lock && (must || self.is_copy_asked()) => {
                Err(not_this_way("LOCK=NONE", "COPY algorithm requires a lock", "LOCK=SHARED"))
            }
            _ => Ok(()),
        }
    }

    /// MySQL changes no row for it.
    fn is_light(&self) -> bool {
        self.primary.is_none() && !self.drop_primary && self.convert.is_none() && self.must_copy()
    }

    /// Whether MySQL copies the rows, too, and counts them.
    pub fn is_copied_by_mysql(&self, table: &TableSchema, clause: &AlterClause) -> bool {
        let is_converted = |column: &Column| {
            let to = self.convert.map(|c| c.collation(table.collation).unwrap_or_default());
            to.is_some_and(|to| column.ty.collation().is_some_and(|old| old.charset() != to.charset() || old != to))
        };
        self.is_copy_asked()
            || self.drop_primary && self.primary.is_none()
            || is_retyped(table, clause)
            || clause.redefined().any(|(name, new)| old(table, name).is_some_and(|old| counts_now(old, new)))
            || table.columns.iter().any(is_converted)
    }
}

fn old<'t>(table: &'t TableSchema, name: &str) -> Option<&'t Column> {
    table.columns.iter().find(|column| column.name.eq_ignore_ascii_case(name))
}

fn counts_now(old: &Column, new: &Column) -> bool {
    new.auto_increment && !old.auto_increment
}

/// A column gets a type whose values are stored in another way.
fn is_retyped(table: &TableSchema, clause: &AlterClause) -> bool {
    clause.redefined().any(|(name, new)| {
        old(table, name).is_some_and(|old| {
            let is_other_label = matches!(old.ty, ColumnType::Label { .. }) && !labels::extends(old.ty, new.ty);
            alter::changes_storage(old, new)
                || is_other_label
                || old.ty.collation() != new.ty.collation()
                || old.generated.as_ref().map(|g| &g.text) != new.generated.as_ref().map(|g| &g.text)
        })
    })
}

fn algorithm(word: &str) -> Result<Algorithm> {
    Ok(match word.to_ascii_lowercase().as_str() {
        "default" => Algorithm::Default,
        "instant" => Algorithm::Instant,
        "inplace" => Algorithm::InPlace,
        "copy" => Algorithm::Copy,
        _ => return Err(SqlError::new(1800, b"HY000", format!("Unknown ALGORITHM '{word}'"))),
    })
}

/// Whether it is NONE.
fn lock(word: &str) -> Result<bool> {
    match word.to_ascii_lowercase().as_str() {
        "none" => Ok(true),
        "default" | "shared" | "exclusive" => Ok(false),
        _ => Err(SqlError::new(1801, b"HY000", format!("Unknown LOCK type '{word}'"))),
    }
}

fn not_this_way(what: &str, reason: &str, instead: &str) -> SqlError {
    SqlError::new(1846, b"0A000", format!("{what} is not supported. Reason: {reason}. Try {instead}."))
}

pub fn multiple_primary() -> SqlError {
    SqlError::new(1068, b"42000", "Multiple primary key defined")
}
