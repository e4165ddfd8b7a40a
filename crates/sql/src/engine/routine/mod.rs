//! Stored procedures.
//!
//! A procedure is a table of the dictionary without rows, as a view is ([decision 0035]): its engine is [`ENGINE`], its comment is the definition ([`Definition`]), it goes with its
//! database, and every SQL node learns of it with the version of the dictionary. It is called `#procedure#N#name` there, with the name in lower case: ALTER PROCEDURE makes N + 1 and
//! drops N, and the highest counts.
//!
//! Its body is compiled when it is made ([`compile`]), which finds what MySQL finds then, and again by each SQL thread that calls it. [`code`] is what it becomes, [`run`] carries
//! it out: statements by the plans and the executor that a client's statements have, in the session that calls, each one a statement of its own.
//!
//! | limit | value | error |
//! |---|---:|---|
//! | text of a procedure | 256 KiB | 1235 |
//! | its variables, with one for each CASE of a value and each DO | 4096 | 1235 |
//! | calls within calls | 64 | 1436 |
//! | statements within statements | 64 | 1436 |
//! | rows of a cursor, of `SELECT ... INTO` | those of INSERT ... SELECT | 1206 |
//!
//! [decision 0035]: ../../../../../docs/decisions/0035-procedures-in-the-dictionary.md

pub mod clause;
pub mod code;
mod compile;
mod compile_conditions;
mod conditions;
mod define;
pub mod failures;
mod run;
pub mod show;

use std::{cell::OnceCell, collections::BTreeMap, rc::Rc};

use apus_types::{Column, ColumnType, TableSchema, collate::Collation};

use super::{
    ddl::HIDDEN_KEY,
    digest::Syntax,
    errors::{self, Result},
    expr::Datum,
    sql_mode::SqlMode,
    token::Tokens,
    view::{escaped, unescaped},
};
use crate::wire::SqlError;
use code::Program;

/// Engine of a table that is a procedure. No CREATE TABLE may name it.
pub const ENGINE: &str = "#procedure";
/// Longest definition in bytes.
pub const DEFINITION_BYTES_MAX: usize = 256 << 10;

/// What CREATE PROCEDURE said.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Definition {
    pub name: String,
    /// Its user and host.
    pub definer: (String, String),
    /// SQL SECURITY INVOKER.
    pub invoker: bool,
    pub deterministic: bool,
    pub access: Access,
    pub comment: String,
    pub sql_mode: String,
    pub charset: String,
    pub collation: String,
    /// Of its database when it was made: that of its variables.
    pub database_collation: String,
    /// Microseconds since 1970.
    pub created: i64,
    pub modified: i64,
    /// What stood in the parentheses.
    pub parameters: String,
    pub body: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Access {
    #[default]
    ContainsSql,
    NoSql,
    ReadsSqlData,
    ModifiesSqlData,
}

impl Access {
    const ALL: [Access; 4] = [Access::ContainsSql, Access::NoSql, Access::ReadsSqlData, Access::ModifiesSqlData];
    pub fn name(self) -> &'static str {
        match self {
            Access::ContainsSql => "CONTAINS SQL",
            Access::NoSql => "NO SQL",
            Access::ReadsSqlData => "READS SQL DATA",
            Access::ModifiesSqlData => "MODIFIES SQL DATA",
        }
    }
}

/// Lines of a definition in front of its body.
const FIELDS: usize = 15;
const FORM: &str = "apus procedure 1";

impl Definition {
    pub fn encode(&self) -> String {
        let yes = |on: bool| if on { "yes" } else { "no" }.to_owned();
        let fields: [String; FIELDS] = [
            FORM.to_owned(),
            escaped(&self.name),
            escaped(&self.definer.0),
            escaped(&self.definer.1),
            yes(self.invoker),
            yes(self.deterministic),
            self.access.name().to_owned(),
            escaped(&self.comment),
            escaped(&self.sql_mode),
            escaped(&self.charset),
            escaped(&self.collation),
            escaped(&self.database_collation),
            self.created.to_string(),
            self.modified.to_string(),
            escaped(&self.parameters),
        ];
        format!("{}\n{}", fields.join("\n"), self.body)
    }

    pub fn decode(text: &str) -> Option<Definition> {
        let parts: Vec<&str> = text.splitn(FIELDS + 1, '\n').collect();
        let [
            FORM,
            name,
            user,
            host,
            invoker,
            deterministic,
            access,
            comment,
            sql_mode,
            charset,
            collation,
            of_database,
            created,
            modified,
            parameters,
            body,
        ] = parts[..]
        else {
            return None;
        };
        Some(Definition {
            name: unescaped(name),
            definer: (unescaped(user), unescaped(host)),
            invoker: invoker == "yes",
            deterministic: deterministic == "yes",
            access: Access::ALL.into_iter().find(|known| known.name() == access)?,
            comment: unescaped(comment),
            sql_mode: unescaped(sql_mode),
            charset: unescaped(charset),
            collation: unescaped(collation),
            database_collation: unescaped(of_database),
            created: created.parse().ok()?,
            modified: modified.parse().ok()?,
            parameters: unescaped(parameters),
            body: body.to_owned(),
        })
    }

    /// # Errors
    /// What CREATE PROCEDURE says.
    pub fn compile(&self) -> Result<Program> {
        // A line break, for the last of the parameters may have a comment behind it.
        let mut t = Tokens::new(&format!("({}\n) {}", self.parameters, self.body));
        let syntax = SqlMode::parse(&Datum::text(self.sql_mode.as_str())).map_or(Syntax::default(), SqlMode::syntax);
        let default = Collation::from_name(&self.database_collation).unwrap_or_default();
        let mut compiler = compile::Compiler::new(&mut t, syntax, default);
        compiler.parameters()?;
        compiler.body()
    }
}

#[derive(Debug)]
pub struct Routine {
    pub database: String,
    pub definition: Definition,
    /// Its name in the dictionary.
    kept_as: String,
    program: OnceCell<std::result::Result<Rc<Program>, SqlError>>,
}

impl Routine {
    /// # Errors
    /// Its text is not understood, which it was when it was made.
    pub fn program(&self) -> Result<Rc<Program>> {
        self.program.get_or_init(|| self.definition.compile().map(Rc::new)).clone()
    }
    /// `database.name`.
    pub fn full_name(&self) -> String {
        format!("{}.{}", self.database, self.definition.name)
    }
}

/// The table of a definition. It has a key that nobody sees.
fn table(database: &str, kept_as: &str, definition: &Definition) -> TableSchema {
    let key = Column { nullable: false, ..Column::new(HIDDEN_KEY, ColumnType::Int { bits: 64, unsigned: true }) };
    let mut schema = TableSchema::new(database, kept_as, vec![key], vec![0]);
    schema.hidden_key = true;
    schema.engine = ENGINE.to_owned();
    schema.comment = definition.encode();
    schema
}

pub fn is_routine(schema: &TableSchema) -> bool {
    schema.engine == ENGINE
}

/// How it is called in the dictionary.
fn kept_as(name: &str, number: u64) -> String {
    format!("#procedure#{number}#{}", name.to_lowercase())
}

/// Which of a procedure's definitions it is, and the name.
fn number(kept_as: &str) -> Option<(u64, &str)> {
    let (number, name) = kept_as.strip_prefix("#procedure#")?.split_once('#')?;
    Some((number.parse().ok()?, name))
}

/// By database and lower case name.
pub type Routines = BTreeMap<(String, String), Rc<Routine>>;

/// The procedures of a dictionary. Those that are as they were in `before` are the same.
///
/// # Errors
/// A definition does not decode.
pub fn routines(tables: Vec<TableSchema>, before: &Routines) -> Result<Routines> {
    let mut newest: BTreeMap<(String, String), (u64, TableSchema)> = BTreeMap::new();
    for schema in tables {
        let Some((number, name)) = number(&schema.name) else { continue };
        let key = (schema.database.clone(), name.to_owned());
        if newest.get(&key).is_none_or(|(other, _)| *other < number) {
            newest.insert(key, (number, schema));
        }
    }
    let mut routines = Routines::new();
    for (key, (_, schema)) in newest {
        let definition = Definition::decode(&schema.comment)
            .ok_or_else(|| errors::internal("the definition of a procedure does not decode"))?;
        let is_same = |known: &&Rc<Routine>| known.definition == definition && known.kept_as == schema.name;
        let routine = before.get(&key).filter(is_same).cloned().unwrap_or_else(|| {
            Rc::new(Routine { database: schema.database, definition, kept_as: schema.name, program: OnceCell::new() })
        });
        routines.insert(key, routine);
    }
    Ok(routines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition() -> Definition {
        Definition {
            name: "P\\\n".to_owned(),
            definer: ("a".to_owned(), "%".to_owned()),
            comment: "two\nlines".to_owned(),
            access: Access::NoSql,
            created: 5,
            parameters: "IN a INT, -- the first\nOUT b INT".to_owned(),
            body: "BEGIN\n SET b = a;\nEND".to_owned(),
            ..Definition::default()
        }
    }

    #[test]
    fn definitions_come_back() {
        let definition = definition();
        assert_eq!(Definition::decode(&definition.encode()), Some(definition));
        assert_eq!(Definition::decode("a comment"), None);
    }

    #[test]
    fn the_newest_counts_and_what_has_not_changed_is_the_same() {
        let old = definition();
        let new = Definition { comment: "new".to_owned(), ..old.clone() };
        let tables = vec![table("d", &kept_as("p", 10), &new), table("d", &kept_as("p", 9), &old)];
        let found = routines(tables.clone(), &Routines::new()).unwrap();
        assert_eq!(found.len(), 1);
        let p = &found[&("d".to_owned(), "p".to_owned())];
        assert_eq!((p.definition.comment.as_str(), p.kept_as.as_str()), ("new", "#procedure#10#p"));
        let again = routines(tables, &found).unwrap();
        assert!(Rc::ptr_eq(p, &again[&("d".to_owned(), "p".to_owned())]));
    }
}
