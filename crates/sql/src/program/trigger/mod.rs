//! Triggers.
//!
//! A trigger is a part of the definition of its table, beside the CHECK constraints ([decision 0036]): the data nodes keep its text, refuse rows of whoever does not know it
//! ([`apus_types::rules`]), and every SQL node runs it for the rows that it writes. Its body is a program as that of a procedure is ([`super::routine`]); `NEW.a` and `OLD.a` are variables
//! of it, filled from the row before it runs, and taken back from it where it may change them ([`fire`]).
//!
//! Rows of a table with triggers are written one by one where a trigger may see, or be seen by, what is done with the others: BEFORE triggers of the row, the row, what its foreign keys ask
//! for, AFTER triggers of it, then the next. If all triggers of a statement compute only values ([`Triggers::is_alone`]), its rows go in batches as ever.
//!
//! What is done for a row belongs to its statement: it is undone with it, and statements of a body neither begin nor end a transaction.
//!
//! | limit | value | error |
//! |---|---:|---|
//! | text of a trigger | 256 KiB | 1235 |
//! | triggers of a table | 64 | 1235 |
//! | triggers within triggers | 64 with calls | 1436 |
//!
//! [decision 0036]: ../../../../../docs/decisions/0036-triggers-and-functions.md

pub mod clause;
pub(crate) mod define;
pub mod failures;
pub mod fire;

use std::{cell::OnceCell, rc::Rc};

use apus_types::{TableSchema, collate::Collation, rules::TriggerDef};

use super::routine::{
    code::{Program, RowVariable, Step},
    compile::Compiler,
};
use crate::{
    accounts::Privileges,
    catalog::view::{escaped, unescaped},
    errors::{self, Result},
    parse::{digest::Syntax, token::Tokens},
    plan::needs::{ColumnNeed, Need, Needs},
    value::datum::Datum,
    variables::sql_mode::SqlMode,
    wire::SqlError,
};

/// Longest definition in bytes.
const DEFINITION_BYTES_MAX: usize = super::routine::DEFINITION_BYTES_MAX;
/// Triggers of one table.
const TRIGGERS_MAX: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Event {
    Insert,
    Update,
    Delete,
}

impl Event {
    const ALL: [Event; 3] = [Event::Insert, Event::Update, Event::Delete];
    pub fn name(self) -> &'static str {
        match self {
            Event::Insert => "INSERT",
            Event::Update => "UPDATE",
            Event::Delete => "DELETE",
        }
    }
}

/// What CREATE TRIGGER said.
#[derive(Clone, PartialEq, Debug)]
pub struct Definition {
    pub name: String,
    pub event: Event,
    pub is_before: bool,
    /// Its user and host.
    pub definer: (String, String),
    pub sql_mode: String,
    pub charset: String,
    pub collation: String,
    /// Of the database when it was made: that of its variables.
    pub database_collation: String,
    /// Microseconds since 1970.
    pub created: i64,
    pub body: String,
}

/// Lines of a definition in front of its body.
const FIELDS: usize = 10;
const FORM: &str = "apus trigger 1";

impl Definition {
    pub fn timing(&self) -> &'static str {
        if self.is_before { "BEFORE" } else { "AFTER" }
    }

    pub fn to_def(&self) -> TriggerDef {
        let fields: [String; FIELDS] = [
            FORM.to_owned(),
            self.timing().to_owned(),
            self.event.name().to_owned(),
            escaped(&self.definer.0),
            escaped(&self.definer.1),
            escaped(&self.sql_mode),
            escaped(&self.charset),
            escaped(&self.collation),
            escaped(&self.database_collation),
            self.created.to_string(),
        ];
        TriggerDef { name: self.name.clone(), text: format!("{}\n{}", fields.join("\n"), self.body) }
    }

    pub fn from_def(def: &TriggerDef) -> Option<Definition> {
        let parts: Vec<&str> = def.text.splitn(FIELDS + 1, '\n').collect();
        let [FORM, timing, event, user, host, sql_mode, charset, collation, of_database, created, body] = parts[..]
        else {
            return None;
        };
        Some(Definition {
            name: def.name.clone(),
            event: Event::ALL.into_iter().find(|known| known.name() == event)?,
            is_before: timing == "BEFORE",
            definer: (unescaped(user), unescaped(host)),
            sql_mode: unescaped(sql_mode),
            charset: unescaped(charset),
            collation: unescaped(collation),
            database_collation: unescaped(of_database),
            created: created.parse().ok()?,
            body: body.to_owned(),
        })
    }

    /// # Errors
    /// What CREATE TRIGGER says, and 1054 for a column that the table has no more.
    pub fn compile(&self, table: &TableSchema) -> Result<Program> {
        let mut t = Tokens::new(&self.body);
        let syntax = SqlMode::parse(&Datum::text(self.sql_mode.as_str())).map_or(Syntax::default(), SqlMode::syntax);
        let default = Collation::from_name(&self.database_collation).unwrap_or_default();
        let mut compiler = Compiler::new(&mut t, syntax, default);
        compiler.of_rows(self.event, self.is_before, Some(&table.columns))?;
        compiler.body()
    }
}

/// A trigger of a version of its table.
#[derive(Debug)]
pub struct Trigger {
    pub definition: Definition,
    /// `database.name`.
    pub full_name: String,
    program: OnceCell<std::result::Result<Rc<Program>, SqlError>>,
    needs: OnceCell<Needs>,
}

impl Trigger {
    /// # Errors
    /// As [`Definition::compile`].
    pub fn program(&self, table: &TableSchema) -> Result<Rc<Program>> {
        self.program.get_or_init(|| self.definition.compile(table).map(Rc::new)).clone()
    }

    /// What the definer must be granted when the trigger runs.
    ///
    /// # Errors
    /// As [`Definition::compile`].
    pub fn needs(&self, table: &TableSchema) -> Result<&Needs> {
        let program = self.program(table)?;
        Ok(self.needs.get_or_init(|| Needs::new(vec![need(&program, table)], false)))
    }

    /// Nobody can tell whether it has run before or after the row was stored, or other rows were: it computes values.
    fn is_alone(&self, table: &TableSchema) -> bool {
        let is_value = |step: &Step| {
            !matches!(
                step,
                Step::Planned(_)
                    | Step::Other(_)
                    | Step::Into(..)
                    | Step::Call { .. }
                    | Step::Open(_)
                    | Step::SetSystem(..)
                    | Step::AssignUser(..)
            )
        };
        // A subquery reads, and what has parentheses may be a function that does.
        let is_plain = |text: &str| text.match_indices("select").count() + text.match_indices("SELECT").count() < 2;
        self.program(table).is_ok_and(|program| {
            program.steps.iter().all(is_value) && program.texts().all(|text| is_plain(&text.sql) && !text.may_call())
        })
    }
}

/// The triggers of a version of a table, as soon as they were asked for.
#[derive(Default, Debug)]
pub struct Kept(OnceCell<Option<Box<Triggers>>>);

impl PartialEq for Kept {
    /// What follows from the definition is no part of it.
    fn eq(&self, _: &Kept) -> bool {
        true
    }
}

impl Kept {
    pub fn of(&self, schema: &TableSchema) -> Option<&Triggers> {
        if schema.triggers.is_empty() {
            return None;
        }
        self.0.get_or_init(|| Triggers::new(schema).map(Box::new)).as_deref()
    }
}

/// In the order in which they run.
#[derive(Debug)]
pub struct Triggers {
    list: Vec<Rc<Trigger>>,
    /// Of these events all compute values only.
    alone: [bool; 3],
}

impl Triggers {
    fn new(schema: &TableSchema) -> Option<Triggers> {
        let one = |def: &TriggerDef| {
            let definition = Definition::from_def(def)?;
            let full_name = format!("{}.{}", schema.database, definition.name);
            Some(Rc::new(Trigger { definition, full_name, program: OnceCell::new(), needs: OnceCell::new() }))
        };
        let list: Vec<Rc<Trigger>> = schema.triggers.iter().map(one).collect::<Option<_>>()?;
        let is_alone = |event| list.iter().filter(|t| t.definition.event == event).all(|t| t.is_alone(schema));
        let alone = Event::ALL.map(is_alone);
        Some(Triggers { list, alone })
    }

    pub fn iter(&self) -> impl Iterator<Item = &Rc<Trigger>> {
        self.list.iter()
    }
    pub fn of(&self, event: Event, is_before: bool) -> impl Iterator<Item = &Rc<Trigger>> {
        self.iter().filter(move |t| t.definition.event == event && t.definition.is_before == is_before)
    }
    pub fn has(&self, event: Event) -> bool {
        self.iter().any(|t| t.definition.event == event)
    }
    /// Rows of a statement of this event may be written together.
    pub fn is_alone(&self, event: Event) -> bool {
        self.alone[event as usize]
    }
}

/// The definitions of a table's triggers.
///
/// # Errors
/// One of them does not decode.
pub fn definitions(schema: &TableSchema) -> Result<Vec<Definition>> {
    let decoded: Option<Vec<Definition>> = schema.triggers.iter().map(Definition::from_def).collect();
    decoded.ok_or_else(|| errors::internal("the definition of a trigger does not decode"))
}

/// What the definer must be granted on the table, and on columns that it reads or sets, when the trigger runs.
fn need(program: &Program, schema: &TableSchema) -> Need {
    let column = |row: &RowVariable| {
        let read = if row.is_read { Privileges::SELECT } else { Privileges::NONE };
        let privileges = if row.is_set { read.union(Privileges::UPDATE) } else { read };
        ColumnNeed { name: schema.columns[usize::from(row.column)].name.clone(), privileges, is_of_all: false }
    };
    let columns = program.rows.iter().map(column).collect();
    let (database, table) = (schema.database.clone(), schema.name.clone());
    Need {
        within: None,
        view: None,
        database,
        table,
        privileges: Privileges::TRIGGER,
        instead: Privileges::NONE,
        columns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_come_back() {
        let definition = Definition {
            name: "T\n".to_owned(),
            event: Event::Update,
            is_before: true,
            definer: ("a\\".to_owned(), "%".to_owned()),
            sql_mode: "ANSI_QUOTES".to_owned(),
            charset: "utf8mb4".to_owned(),
            collation: "utf8mb4_bin".to_owned(),
            database_collation: "utf8mb4_0900_ai_ci".to_owned(),
            created: 7,
            body: "BEGIN\n SET NEW.a = 1;\nEND".to_owned(),
        };
        assert_eq!(Definition::from_def(&definition.to_def()), Some(definition));
        assert_eq!(Definition::from_def(&TriggerDef { name: "t".to_owned(), text: "SET @a = 1".to_owned() }), None);
    }
}
