//! Stored procedures and functions.
//!
//! A routine is a table of the dictionary without rows, as a view is ([decision 0035]): its engine is [`ENGINE`], its comment is the definition ([`Definition`]), it goes with its
//! database, and every SQL node learns of it with the version of the dictionary. It is called `#procedure#N#name` or `#function#N#name` there, with the name in lower case: ALTER makes N + 1
//! and drops N, and the highest counts.
//!
//! Its body is compiled when it is made ([`compile`]), which finds what MySQL finds then, and again by each SQL thread that calls it. [`code`] is what it becomes, [`run`] carries
//! it out: statements by the plans and the executor that a client's statements have, in the session that calls, each one a statement of its own. A function is called by
//! an expression of a statement, which waits for its value as [`super::function`] says.
//!
//! | limit | value | error |
//! |---|---:|---|
//! | text of a routine | 256 KiB | 1235 |
//! | its variables, with one for each CASE of a value and each DO | 4096 | 1235 |
//! | calls within calls | 64 | 1436 |
//! | statements within statements | 64 | 1436 |
//! | rows of a cursor, of `SELECT ... INTO` | those of INSERT ... SELECT | 1206 |
//!
//! [decision 0035]: ../../../../../docs/decisions/0035-procedures-in-the-dictionary.md

pub mod clause;
pub mod code;
pub mod compile;
mod conditions;
pub mod define;
pub mod failures;
mod refused;
pub mod run;

use std::{cell::OnceCell, collections::BTreeMap, rc::Rc};

use apus_types::{TableSchema, collate::Collation};
use sha2::{Digest as _, Sha256};

use self::code::Program;
pub use crate::accounts::RoutineKind as Kind;
use crate::{
    catalog::{
        kept_table,
        view::{escaped, unescaped},
    },
    errors::{self, Result},
    parse::{digest::Syntax, token::Tokens},
    value::datum::Datum,
    variables::sql_mode::SqlMode,
    wire::SqlError,
};

/// Engine of a table that is a routine. No CREATE TABLE may name it.
pub const ENGINE: &str = "#procedure";
/// Calls within calls, those of triggers among them.
pub const CALLS_MAX: usize = 64;
/// Longest definition in bytes.
pub const DEFINITION_BYTES_MAX: usize = 256 << 10;

/// What CREATE PROCEDURE or CREATE FUNCTION said.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Definition {
    pub kind: Kind,
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
    /// The type that a function returns, as it was written.
    pub returns: String,
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

/// Lines of a definition in front of its body; of a function there is one more.
const FIELDS: usize = 15;
const FORMS: [(&str, Kind); 2] = [("apus procedure 1", Kind::Procedure), ("apus function 1", Kind::Function)];

impl Definition {
    pub fn encode(&self) -> String {
        let yes = |on: bool| if on { "yes" } else { "no" }.to_owned();
        let fields: [String; FIELDS] = [
            FORMS.iter().find(|(_, kind)| *kind == self.kind).map_or("", |(form, _)| form).to_owned(),
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
        let returns = if self.kind == Kind::Function { format!("{}\n", escaped(&self.returns)) } else { String::new() };
        format!("{}\n{returns}{}", fields.join("\n"), self.body)
    }

    pub fn decode(text: &str) -> Option<Definition> {
        let parts: Vec<&str> = text.splitn(FIELDS + 1, '\n').collect();
        let [
            form,
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
            rest,
        ] = parts[..]
        else {
            return None;
        };
        let (_, kind) = FORMS.into_iter().find(|(known, _)| *known == form)?;
        let (returns, body) = match kind {
            Kind::Procedure => ("", rest),
            Kind::Function => rest.split_once('\n')?,
        };
        Some(Definition {
            kind,
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
            returns: unescaped(returns),
            body: body.to_owned(),
        })
    }

    /// # Errors
    /// What CREATE says.
    pub fn compile(&self) -> Result<Program> {
        // A line break, for the last of the parameters may have a comment behind it.
        let returns = if self.kind == Kind::Function { format!("RETURNS {}\n ", self.returns) } else { String::new() };
        let mut t = Tokens::new(&format!("({}\n) {returns}{}", self.parameters, self.body));
        let syntax = SqlMode::parse(&Datum::text(self.sql_mode.as_str())).map_or(Syntax::default(), SqlMode::syntax);
        let default = Collation::from_name(&self.database_collation).unwrap_or_default();
        let mut compiler = compile::Compiler::new(&mut t, syntax, default);
        compiler.parameters(self.kind)?;
        if self.kind == Kind::Function {
            compiler.returns()?;
        }
        compiler.body()
    }
}

#[derive(Debug)]
pub struct Routine {
    pub database: String,
    pub definition: Definition,
    /// Its name in the dictionary.
    kept_as: String,
    /// Those of definitions before, which a SQL node that died has left; they would count again if they outlived this one.
    older: Vec<String>,
    program: OnceCell<std::result::Result<Rc<Program>, SqlError>>,
}

impl Routine {
    /// One that is in no dictionary.
    pub fn of_no_dictionary(database: &str, definition: Definition) -> Rc<Routine> {
        let kept_as = kept_as(definition.kind, &definition.name, 0);
        let (database, older) = (database.to_owned(), Vec::new());
        Rc::new(Routine { database, definition, kept_as, older, program: OnceCell::new() })
    }
    /// All its names in the dictionary, the last definition behind the others.
    fn all_kept_as(&self) -> impl Iterator<Item = &String> {
        self.older.iter().chain([&self.kept_as])
    }
    /// # Errors
    /// Its text is not understood, which it was when it was made.
    pub fn program(&self) -> Result<Rc<Program>> {
        self.program.get_or_init(|| self.definition.compile().map(Rc::new)).clone()
    }
    /// `database.name`.
    pub fn full_name(&self) -> String {
        format!("{}.{}", self.database, self.definition.name)
    }
    /// By which it is found.
    pub fn key(&self) -> Key {
        key(self.definition.kind, &self.database, &self.definition.name)
    }
}

fn table(database: &str, kept_as: &str, definition: &Definition) -> TableSchema {
    kept_table(database, kept_as, ENGINE, definition.encode())
}

pub fn is_routine(schema: &TableSchema) -> bool {
    schema.engine == ENGINE
}

/// How it is called in the dictionary.
fn kept_as(kind: Kind, name: &str, number: u64) -> String {
    format!("#{}#{number}#{}", kind.name().to_lowercase(), kept_name(name))
}

/// A name in lower case. Of a long one, behind which the dictionary would have no room for more, the first half and a hash of all.
pub fn kept_name(name: &str) -> String {
    const CHARS_MAX: usize = 32;
    let lower = name.to_lowercase();
    if lower.chars().count() <= CHARS_MAX {
        return lower;
    }
    let hash: String = Sha256::digest(&lower).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    lower.chars().take(CHARS_MAX / 2).chain(hash.chars()).collect()
}

/// Which of a routine's definitions it is.
fn number(kept_as: &str) -> Option<u64> {
    kept_as.strip_prefix('#')?.split('#').nth(1)?.parse().ok()
}

/// Kind, database and lower case name.
pub type Key = (Kind, String, String);
pub type Routines = BTreeMap<Key, Rc<Routine>>;

pub fn key(kind: Kind, database: &str, name: &str) -> Key {
    (kind, database.to_owned(), name.to_lowercase())
}

/// The routines of a dictionary. Those that are as they were in `before` are the same.
///
/// # Errors
/// A definition does not decode.
pub fn routines(tables: Vec<TableSchema>, before: &Routines) -> Result<Routines> {
    let mut all: BTreeMap<Key, BTreeMap<u64, (Definition, TableSchema)>> = BTreeMap::new();
    for schema in tables {
        let Some(number) = number(&schema.name) else { continue };
        let definition = Definition::decode(&schema.comment)
            .ok_or_else(|| errors::internal("the definition of a routine does not decode"))?;
        let key = key(definition.kind, &schema.database, &definition.name);
        all.entry(key).or_default().insert(number, (definition, schema));
    }
    let mut routines = Routines::new();
    for (key, mut definitions) in all {
        let Some((_, (definition, schema))) = definitions.pop_last() else { continue };
        let older: Vec<String> = definitions.into_values().map(|(_, schema)| schema.name).collect();
        let is_same = |known: &&Rc<Routine>| {
            known.definition == definition && known.kept_as == schema.name && known.older == older
        };
        let routine = before.get(&key).filter(is_same).cloned().unwrap_or_else(|| {
            let (database, kept_as) = (schema.database, schema.name);
            Rc::new(Routine { database, definition, kept_as, older, program: OnceCell::new() })
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
        assert_eq!(Definition::decode(&definition.encode()), Some(definition.clone()));
        let function = Definition { kind: Kind::Function, returns: "INT\nUNSIGNED".to_owned(), ..definition };
        assert_eq!(Definition::decode(&function.encode()), Some(function));
        assert_eq!(Definition::decode("a comment"), None);
    }

    #[test]
    fn long_names_have_room_in_the_dictionary() {
        let (long, other) = ("N".repeat(64), format!("{}x", "N".repeat(63)));
        assert_ne!(kept_name(&long), kept_name(&other));
        assert!(kept_as(Kind::Procedure, &long, u64::MAX).chars().count() <= 64);
        assert_eq!(number(&kept_as(Kind::Function, &long, 12)), Some(12));
        assert_eq!(kept_name("Short"), "short");
    }

    #[test]
    fn the_newest_counts_and_what_has_not_changed_is_the_same() {
        let old = Definition { name: "P".to_owned(), ..definition() };
        let new = Definition { comment: "new".to_owned(), ..old.clone() };
        let kept_as = |number| kept_as(Kind::Procedure, "p", number);
        let tables = vec![table("d", &kept_as(10), &new), table("d", &kept_as(9), &old)];
        let found = routines(tables.clone(), &Routines::new()).unwrap();
        assert_eq!(found.len(), 1);
        let p = &found[&key(Kind::Procedure, "d", "P")];
        assert_eq!((p.definition.comment.as_str(), p.kept_as.as_str()), ("new", "#procedure#10#p"));
        assert_eq!(p.all_kept_as().collect::<Vec<_>>(), ["#procedure#9#p", "#procedure#10#p"]);
        let again = routines(tables, &found).unwrap();
        assert!(Rc::ptr_eq(p, &again[&key(Kind::Procedure, "d", "p")]));
    }
}
