//! Views: what the dictionary keeps of one.
//!
//! A view is a table of the dictionary whose engine is [`ENGINE`], so that its name excludes tables of this name, it is dropped with its database, and every SQL node learns of it with the
//! version of the dictionary. It has the columns of the view, behind a hidden key, and never a row. Its comment is the definition ([`Definition`]).
//!
//! A definition is replaced in one step: the new one is a table of its own, called `#view#ID#N` after the id of the view that it replaces; the highest N counts
//! (`ddl::create_view`). The one before is dropped behind. Should that fail, it is there and means nothing. Renaming a view leaves its id, so its definition stays with it.

use std::{cell::OnceCell, collections::BTreeMap, rc::Rc};

use apus_types::{Column, ColumnType, TableId, TableSchema};
use sqlparser::ast::{self, Statement};

use super::{HIDDEN_KEY, Table};
use crate::{
    errors::{self, Result},
    plan,
};

/// Engine of a table that is a view. No CREATE TABLE may name it.
pub const ENGINE: &str = "#view";
/// Longest definition in bytes.
pub const DEFINITION_BYTES_MAX: usize = 256 << 10;

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Algorithm {
    #[default]
    Undefined,
    Merge,
    Temptable,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Check {
    #[default]
    None,
    Local,
    Cascaded,
}

impl Algorithm {
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Undefined => "UNDEFINED",
            Algorithm::Merge => "MERGE",
            Algorithm::Temptable => "TEMPTABLE",
        }
    }
    pub fn of(word: &str) -> Option<Algorithm> {
        [Algorithm::Undefined, Algorithm::Merge, Algorithm::Temptable]
            .into_iter()
            .find(|a| a.name().eq_ignore_ascii_case(word))
    }
}

impl Check {
    pub fn name(self) -> &'static str {
        match self {
            Check::None => "NONE",
            Check::Local => "LOCAL",
            Check::Cascaded => "CASCADED",
        }
    }
    fn of(word: &str) -> Option<Check> {
        [Check::None, Check::Local, Check::Cascaded].into_iter().find(|c| c.name() == word)
    }
}

/// What CREATE VIEW said.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Definition {
    pub algorithm: Algorithm,
    /// `user@host`, both without quotes.
    pub definer: (String, String),
    /// SQL SECURITY INVOKER.
    pub invoker: bool,
    pub check: Check,
    /// Its SELECT is one whose tables may stand in the block that names the view.
    pub merges: bool,
    /// Rows can be changed through it.
    pub updatable: bool,
    /// Names of columns were given.
    pub named: bool,
    /// The database of the session that made it: for names without one.
    pub database: String,
    pub charset: String,
    pub collation: String,
    /// The SELECT, in the form of [`crate::parse::view_text`].
    pub text: String,
}

/// Fields of a definition's header, one a line in front of its text.
const FIELDS: usize = 12;
const FORM: &str = "apus view 1";

impl Definition {
    /// Its tables stand in the block that names it.
    pub fn is_merged(&self) -> bool {
        self.merges && self.algorithm != Algorithm::Temptable
    }

    pub fn encode(&self) -> String {
        let yes = |on: bool| if on { "yes" } else { "no" }.to_owned();
        let fields: [String; FIELDS] = [
            FORM.to_owned(),
            self.algorithm.name().to_owned(),
            escaped(&self.definer.0),
            escaped(&self.definer.1),
            yes(self.invoker),
            self.check.name().to_owned(),
            yes(self.merges),
            yes(self.updatable),
            yes(self.named),
            escaped(&self.database),
            escaped(&self.charset),
            escaped(&self.collation),
        ];
        format!("{}\n{}", fields.join("\n"), self.text)
    }

    pub fn decode(text: &str) -> Option<Definition> {
        let parts: Vec<&str> = text.splitn(FIELDS + 1, '\n').collect();
        let [FORM, algorithm, user, host, invoker, check, merges, updatable, named, database, charset, collation, text] =
            parts[..]
        else {
            return None;
        };
        Some(Definition {
            algorithm: Algorithm::of(algorithm)?,
            definer: (unescaped(user), unescaped(host)),
            invoker: invoker == "yes",
            check: Check::of(check)?,
            merges: merges == "yes",
            updatable: updatable == "yes",
            named: named == "yes",
            database: unescaped(database),
            charset: unescaped(charset),
            collation: unescaped(collation),
            text: text.to_owned(),
        })
    }
}

/// As one line: a name may hold anything, a line break too.
pub fn escaped(name: &str) -> String {
    name.replace('\\', "\\\\").replace('\n', "\\n")
}

pub fn unescaped(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        out.push(match c {
            '\\' => match chars.next() {
                Some('n') => '\n',
                Some(c) => c,
                None => '\\',
            },
            c => c,
        });
    }
    out
}

#[derive(Debug)]
pub struct View {
    /// Its columns, under its own name.
    pub table: Rc<Table>,
    pub definition: Definition,
    /// The dictionary's name of the table that holds the definition.
    pub kept_as: String,
    query: OnceCell<Option<Rc<ast::Query>>>,
}

impl View {
    pub fn database(&self) -> &str {
        &self.table.schema.database
    }
    pub fn name(&self) -> &str {
        &self.table.schema.name
    }
    /// Names of its columns.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.table.visible_columns().map(|c| self.table.schema.columns[usize::from(c)].name.as_str())
    }
    /// Its SELECT.
    pub fn query(&self) -> Result<Rc<ast::Query>> {
        let parsed = self.query.get_or_init(|| match plan::syntax::parse(&self.definition.text) {
            Ok(Statement::Query(query)) => Some(query.into()),
            _ => None,
        });
        parsed.clone().ok_or_else(|| errors::invalid_view(self.database(), self.name()))
    }
}

/// The table of a definition. It has a key that nobody sees.
pub fn table(database: &str, name: &str, definition: &Definition, columns: Vec<Column>) -> TableSchema {
    let key = Column { nullable: false, ..Column::new(HIDDEN_KEY, ColumnType::Int { bits: 64, unsigned: true }) };
    let mut schema = TableSchema::new(database, name, std::iter::once(key).chain(columns).collect(), vec![0]);
    schema.hidden_key = true;
    schema.engine = ENGINE.to_owned();
    schema.comment = definition.encode();
    schema
}

pub fn is_view(schema: &TableSchema) -> bool {
    schema.engine == ENGINE
}

/// What a table called so replaces: the id of a view, and which of its definitions it is.
pub fn replaces(name: &str) -> Option<(TableId, u64)> {
    let (id, number) = name.strip_prefix("#view#")?.split_once('#')?;
    Some((TableId(id.parse().ok()?), number.parse().ok()?))
}

pub fn replacement(id: TableId, number: u64) -> String {
    format!("#view#{}#{number}", id.0)
}

/// The views of a dictionary by database and name. Those that are as they were in `before` are the same.
pub fn views(
    tables: Vec<TableSchema>,
    before: &BTreeMap<(String, String), Rc<View>>,
) -> Result<BTreeMap<(String, String), Rc<View>>> {
    let mut newest: BTreeMap<TableId, (u64, TableSchema)> = BTreeMap::new();
    let mut named = Vec::new();
    for schema in tables {
        match replaces(&schema.name) {
            Some((id, number)) if newest.get(&id).is_none_or(|(other, _)| *other < number) => {
                newest.insert(id, (number, schema));
            }
            Some(_) => {}
            None => named.push(schema),
        }
    }
    let mut views = BTreeMap::new();
    for schema in named {
        let key = (schema.database.clone(), schema.name.clone());
        let mut schema = newest.remove(&schema.id).map_or(schema, |(_, schema)| schema);
        let kept_as = std::mem::replace(&mut schema.name, key.1.clone());
        let table = Table::new(schema, Vec::new());
        if let Some(known) = before.get(&key).filter(|known| *known.table == table) {
            views.insert(key, known.clone());
            continue;
        }
        let definition = Definition::decode(&table.schema.comment)
            .ok_or_else(|| errors::internal("the definition of a view does not decode"))?;
        views.insert(key, Rc::new(View { table: Rc::new(table), definition, kept_as, query: OnceCell::new() }));
    }
    Ok(views)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_come_back() {
        let definition = Definition {
            algorithm: Algorithm::Merge,
            definer: ("a\\n\nb".to_owned(), "%".to_owned()),
            invoker: true,
            check: Check::Local,
            merges: true,
            updatable: true,
            named: false,
            database: "d".to_owned(),
            charset: "utf8mb4".to_owned(),
            collation: "utf8mb4_bin".to_owned(),
            text: "select 'a\nb' AS `x`".to_owned(),
        };
        assert_eq!(Definition::decode(&definition.encode()), Some(definition));
        assert_eq!(Definition::decode("a comment"), None);
    }

    #[test]
    fn the_newest_definition_counts() {
        let made = |id, name: &str, text: &str| {
            let definition = Definition { text: text.to_owned(), ..Definition::default() };
            let mut table = table("d", name, &definition, Vec::new());
            table.id = TableId(id);
            table
        };
        let tables = vec![
            made(7, "v", "first"),
            made(9, &replacement(TableId(7), 2), "second"),
            made(11, &replacement(TableId(7), 10), "third"),
            made(12, &replacement(TableId(5), 1), "of a view that was dropped"),
            made(13, "w", "other"),
        ];
        let views = views(tables.clone(), &BTreeMap::new()).unwrap();
        let texts: Vec<_> = views.values().map(|v| (v.name(), v.definition.text.as_str())).collect();
        assert_eq!(texts, [("v", "third"), ("w", "other")]);
        let again = super::views(tables, &views).unwrap();
        assert!(again.iter().all(|(key, view)| Rc::ptr_eq(view, &views[key])), "what has not changed is the same");
    }
}
