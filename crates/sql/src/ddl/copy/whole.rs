//! What ALTER TABLE says of the table as a whole: its primary key, options, names of indexes, and the way that it is to be done.

use apus_types::{Column, ColumnType, TableSchema, collate::Collation};

use crate::{
    catalog::key_parts::PrimaryKey,
    ddl::{
        alter::{self, alter_clause::AlterClause},
        table_options::{self, OwnOption},
    },
    errors::{self, Result},
    parse::{charset::Characters, token::Tokens},
    plan::rules::read,
    value::enum_set,
    wire::SqlError,
};

/// Options that have no effect here: a name, perhaps `=`, and a value.
const OTHERS: [&str; 18] = [
    "autoextend_size",
    "avg_row_length",
    "checksum",
    "compression",
    "connection",
    "delay_key_write",
    "encryption",
    "insert_method",
    "key_block_size",
    "max_rows",
    "min_rows",
    "pack_keys",
    "row_format",
    "secondary_engine",
    "stats_auto_recalc",
    "stats_persistent",
    "stats_sample_pages",
    "tablespace",
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
    pub primary: Option<PrimaryKey>,
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
    pub fn add_primary(&mut self, key: Option<PrimaryKey>) -> Result<()> {
        let Some(key) = key else { return Ok(()) };
        match self.primary.replace(key) {
            None => Ok(()),
            Some(_) => Err(errors::multiple_primary()),
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
    pub fn may_copy(&self) -> bool {
        self.algorithm == Algorithm::Default && !self.no_lock
    }
    pub fn is_copy_asked(&self) -> bool {
        self.algorithm == Algorithm::Copy
    }

    /// Of columns that name none.
    pub fn collation(&self, table: Collation) -> Result<Collation> {
        self.convert.or(self.characters).map_or(Ok(table), |characters| characters.collation(table))
    }

    /// A table without columns that has the options from now on.
    pub fn options(&self, table: &TableSchema) -> Result<TableSchema> {
        let mut options = TableSchema::new(&table.database, &table.name, Vec::new(), Vec::new());
        options.comment = self.comment.clone().unwrap_or_else(|| table.comment.clone());
        options.engine = self.engine.clone().unwrap_or_else(|| table.engine.clone());
        options.collation = self.collation(table.collation)?;
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
    pub fn check_way(&self, table: &TableSchema, clause: &AlterClause) -> Result<()> {
        let must = self.is_copied_by_mysql(table, clause);
        let name = match self.algorithm {
            Algorithm::Default | Algorithm::Copy if self.no_lock && (must || self.is_copy_asked()) => {
                return Err(not_this_way("LOCK=NONE", "COPY algorithm requires a lock", "LOCK=SHARED"));
            }
            Algorithm::Default | Algorithm::Copy => return Ok(()),
            Algorithm::Instant => "ALGORITHM=INSTANT",
            Algorithm::InPlace if !must => return Ok(()),
            Algorithm::InPlace => "ALGORITHM=INPLACE",
        };
        let is_instant = self.algorithm == Algorithm::Instant;
        let lighter = if is_instant && !must { "ALGORITHM=COPY/INPLACE" } else { "ALGORITHM=COPY" };
        let is_read = || clause.redefined().any(|(column, _)| is_read(table, column));
        if (is_retyped(table, clause) || self.is_converted(table)) && !is_read() {
            let reason = match is_instant {
                true => "Need to rebuild the table to change column type",
                false => "Cannot change column type INPLACE",
            };
            return Err(not_this_way(name, reason, "ALGORITHM=COPY"));
        }
        if self.drop_primary && self.primary.is_none() {
            let reason = "Dropping a primary key is not allowed without also adding a new primary key";
            let instead = if is_instant { "ALGORITHM=COPY/INPLACE" } else { "ALGORITHM=COPY" };
            return Err(not_this_way(name, reason, instead));
        }
        let text = format!("{name} is not supported for this operation. Try {lighter}.");
        Err(SqlError::new(1845, b"0A000", text))
    }

    /// A column gets another character set or collation.
    fn is_converted(&self, table: &TableSchema) -> bool {
        let to = self.convert.map(|c| c.collation(table.collation).unwrap_or_default());
        let is_other = |column: &Column| column.ty.collation().is_some_and(|old| to.is_some_and(|to| old != to));
        table.columns.iter().any(is_other)
    }

    /// Whether MySQL copies the rows, too, and counts them.
    pub fn is_copied_by_mysql(&self, table: &TableSchema, clause: &AlterClause) -> bool {
        let is_key = |name: &str| {
            table.primary_key.iter().any(|&c| table.columns[usize::from(c)].name.eq_ignore_ascii_case(name))
        };
        self.is_copy_asked()
            || clause.computes()
            || self.primary.is_none() && clause.dropped_columns().any(is_key)
            || self.drop_primary && self.primary.is_none()
            || is_retyped(table, clause)
            || clause.redefined().any(|(name, new)| old(table, name).is_some_and(|old| counts_now(old, new)))
            || self.is_converted(table)
    }
}

fn old<'t>(table: &'t TableSchema, name: &str) -> Option<&'t Column> {
    table.columns.iter().find(|column| column.name.eq_ignore_ascii_case(name))
}

/// A generated column or a constraint reads it.
fn is_read(table: &TableSchema, column: &str) -> bool {
    let texts = table.columns.iter().filter_map(|c| c.generated.as_ref().map(|g| &g.text));
    let is_in =
        |text: &String| read::names(text).is_ok_and(|names| names.iter().any(|n| n.eq_ignore_ascii_case(column)));
    texts.chain(table.checks.iter().map(|check| &check.text)).any(is_in)
}

fn counts_now(old: &Column, new: &Column) -> bool {
    new.auto_increment && !old.auto_increment
}

/// A column gets a type whose values are stored in another way.
fn is_retyped(table: &TableSchema, clause: &AlterClause) -> bool {
    clause.redefined().any(|(name, new)| {
        old(table, name).is_some_and(|old| {
            let has_form = |ty| matches!(ty, ColumnType::Label { .. } | ColumnType::Bit { .. });
            let is_other_form = (has_form(old.ty) || has_form(new.ty)) && !enum_set::extends(old.ty, new.ty);
            alter::columns::changes_storage(old, new)
                || has_short_length(old) != has_short_length(new)
                || is_other_form
                || old.ty.collation() != new.ty.collation()
                || old.generated.as_ref().map(|g| &g.text) != new.generated.as_ref().map(|g| &g.text)
        })
    })
}

/// InnoDB keeps the length of a value in one byte.
fn has_short_length(column: &Column) -> bool {
    let bytes = match column.ty {
        ColumnType::VarChar { length, collation } => {
            usize::from(length) * usize::from(collation.charset().bytes_of_character())
        }
        ColumnType::VarBinary { length } => usize::from(length),
        _ => return false,
    };
    bytes <= 255
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
