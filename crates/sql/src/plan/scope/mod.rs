//! What column names mean in a query block.
//!
//! Every column of every table in FROM has a number, its *slot*: tables one after the other as they are written. Values that are computed for each joined row
//! (subqueries) have slots from [`COMPUTED`] on. A name that is no column of the block may be one of a block around it: then it is a
//! value given to the block ([`Frames`](frames::Frames)).

pub mod frames;

use std::rc::Rc;

use apus_types::{Column, ColumnType};
use sqlparser::tokenizer::Location;

use super::needs::Read;
use crate::{
    catalog::{Table, view::View},
    errors::{self, Result},
    expr::{ColumnRef, Expr},
};

/// Slots from here on are computed for each row.
pub const COMPUTED: u16 = 60_000;
/// Most tables of one block, as in MySQL.
pub const TABLES_MAX: usize = 61;

/// A table of a FROM clause.
#[derive(Clone, Debug)]
pub struct Visible {
    /// Its alias or name.
    pub shown: String,
    /// Empty for a derived table.
    pub database: String,
    pub table: Rc<Table>,
    /// Slot of its first column.
    pub first: u16,
    /// An outer join may fill it with NULL.
    pub is_nullable: bool,
    /// It stands in a view or derived table that was merged, and no name of the statement means it: how that one is called.
    pub beneath: Option<Rc<Merged>>,
}

/// A view or derived table whose tables were put into the block that names it: its columns are expressions over theirs.
#[derive(Debug)]
pub struct Merged {
    /// Its alias or name.
    pub shown: String,
    /// `None`: a derived table, or a common table expression.
    pub view: Option<Rc<View>>,
    pub columns: Vec<(String, Expr)>,
    /// What each of them reads.
    pub reads: Vec<Vec<Read>>,
    /// Slot of the first column of its first table.
    pub first: u16,
    /// What a row written through it must satisfy (WITH CHECK OPTION).
    pub checks: Vec<Expr>,
}

/// One of the columns that `*` means.
#[derive(Clone, Debug)]
pub struct Starred {
    pub name: String,
    pub expr: Expr,
    /// The view that it is a column of.
    pub merged: Option<Rc<Merged>>,
}

impl Starred {
    /// Of a column of a table, also where it stands in a view.
    pub fn slot(&self) -> Option<u16> {
        if let Expr::Column(c) = &self.expr { Some(c.slot) } else { None }
    }
}

/// What a column is one of.
#[derive(Clone, Copy, Debug)]
pub enum Source<'s> {
    Table(&'s Visible),
    View(&'s Rc<Merged>),
}

/// Database and name; the database is empty behind an alias.
fn label(database: &str, name: &str, shown: &str) -> (String, String) {
    (if shown == name { database.to_owned() } else { String::new() }, shown.to_owned())
}

impl Merged {
    /// Of the view; a derived table is in none.
    pub fn database(&self) -> &str {
        self.view.as_ref().map_or("", |view| view.database())
    }
    /// Of the view, or of the derived table.
    pub fn name(&self) -> &str {
        self.view.as_ref().map_or(&self.shown, |view| view.name())
    }
    fn label(&self) -> (String, String) {
        label(self.database(), self.name(), &self.shown)
    }
    fn find(&self, name: &str) -> Option<Expr> {
        self.columns.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, e)| e.clone())
    }
    pub fn reads_of(&self, name: &str) -> &[Read] {
        let at = self.columns.iter().position(|(n, _)| n.eq_ignore_ascii_case(name));
        at.and_then(|at| self.reads.get(at)).map_or(&[], Vec::as_slice)
    }
    fn is_named(&self, database: Option<&str>, table: &str) -> bool {
        self.shown == table && database.is_none_or(|d| d == self.database())
    }
    fn starred(self: &Rc<Self>) -> impl Iterator<Item = Starred> + '_ {
        self.columns.iter().map(|(name, expr)| Starred {
            name: name.clone(),
            expr: expr.clone(),
            merged: Some(self.clone()),
        })
    }
}

impl Visible {
    pub fn column(&self, slot: u16) -> &Column {
        &self.table.schema.columns[usize::from(slot - self.first)]
    }
    fn label(&self) -> (String, String) {
        label(&self.database, &self.table.schema.name, &self.shown)
    }
    fn end(&self) -> u16 {
        self.first + self.table.schema.columns.len() as u16
    }
    fn find(&self, name: &str) -> Option<Expr> {
        let at = self.table.schema.column_no(name).filter(|_| !name.starts_with('#'))?;
        Some(Expr::Column(ColumnRef { slot: self.first + at, ty: self.table.schema.columns[usize::from(at)].ty }))
    }
    fn is_named(&self, database: Option<&str>, table: &str) -> bool {
        let is_same = |a: &str, b: &str| a == b || self.is_virtual() && a.eq_ignore_ascii_case(b);
        self.beneath.is_none() && is_same(&self.shown, table) && database.is_none_or(|d| is_same(d, &self.database))
    }
    /// Its names are in any letters.
    #[cold]
    fn is_virtual(&self) -> bool {
        crate::catalog::information_schema::is_virtual(&self.table.schema)
    }
    fn starred(&self) -> impl Iterator<Item = Starred> + '_ {
        self.table.listed_columns().map(|c| {
            let column = &self.table.schema.columns[usize::from(c)];
            let expr = Expr::Column(ColumnRef { slot: self.first + c, ty: column.ty });
            Starred { name: column.name.clone(), expr, merged: None }
        })
    }
}

/// The tables of a FROM clause, or of a part of it.
#[derive(Clone, Default, Debug)]
pub struct Scope {
    /// Those in merged views, too.
    pub tables: Vec<Visible>,
    pub views: Vec<Rc<Merged>>,
    /// Columns that USING or NATURAL shows only once, under their twin.
    pub hidden: Vec<u16>,
    /// What `*` is, where that is not all visible columns in order.
    star: Option<Vec<Starred>>,
}

impl Scope {
    pub fn of(table: Visible) -> Scope {
        Scope { tables: vec![table], ..Scope::default() }
    }

    /// The tables of several.
    pub fn of_all(parts: &[&Scope]) -> Scope {
        let tables = parts.iter().flat_map(|s| s.tables.iter().cloned()).collect();
        let hidden = parts.iter().flat_map(|s| s.hidden.iter().copied()).collect();
        let views = parts.iter().flat_map(|s| s.views.iter().cloned()).collect();
        Scope { tables, views, hidden, star: None }
    }

    /// As of a view that is merged: its tables are there, and have no names any more.
    pub fn beneath(mut self, merged: Rc<Merged>) -> Scope {
        self.tables.iter_mut().for_each(|t| t.beneath = Some(merged.clone()));
        Scope { tables: self.tables, views: vec![merged], hidden: Vec::new(), star: None }
    }

    pub fn of_slot(&self, slot: u16) -> Option<&Visible> {
        self.tables.iter().find(|t| (t.first..t.end()).contains(&slot))
    }

    pub fn type_of(&self, slot: u16) -> Option<ColumnType> {
        self.of_slot(slot).map(|t| t.column(slot).ty)
    }

    /// A column without the name of a table.
    ///
    /// # Errors
    /// 1052 where several have it.
    pub fn column(&self, name: &str, clause: &str) -> Result<Option<Expr>> {
        let mut found = None;
        let named = self.tables.iter().filter(|t| t.beneath.is_none());
        for column in named.filter_map(|t| t.find(name)).chain(self.views.iter().filter_map(|v| v.find(name))) {
            if matches!(&column, Expr::Column(c) if self.hidden.contains(&c.slot)) {
                continue;
            }
            if found.replace(column).is_some() {
                return Err(errors::ambiguous_column(name, clause));
            }
        }
        Ok(found)
    }

    pub fn qualified(&self, database: Option<&str>, table: &str, name: &str) -> Option<Expr> {
        match self.table(database, table) {
            Some(found) => found.find(name),
            None => self.merged(database, table)?.find(name),
        }
    }

    /// Names and tables that hints may name.
    pub fn hinted(&self) -> Vec<(&str, Option<&Rc<Table>>)> {
        let named = self.tables.iter().filter(|t| t.beneath.is_none());
        let tables = named.map(|t| (t.shown.as_str(), Some(&t.table)));
        tables.chain(self.views.iter().map(|v| (v.shown.as_str(), None))).collect()
    }

    /// What has the column that a name means.
    pub fn source(&self, qualifier: &[&str], name: &str) -> Option<Source<'_>> {
        let database = qualifier.len().checked_sub(2).map(|at| qualifier[at]);
        let is_meant = |e: Expr| !matches!(e, Expr::Column(c) if self.hidden.contains(&c.slot));
        let (table, view) = match qualifier.last() {
            Some(table) => (self.table(database, table), self.merged(database, table)),
            None => {
                let mut named = self.tables.iter().filter(|t| t.beneath.is_none());
                let table = named.find(|t| t.find(name).is_some_and(is_meant));
                (table, self.views.iter().find(|v| v.find(name).is_some_and(is_meant)))
            }
        };
        let of_table = table.filter(|t| t.find(name).is_some()).map(Source::Table);
        of_table.or_else(|| view.filter(|v| v.find(name).is_some()).map(Source::View))
    }

    /// As [`Scope::source`], of a column of `*`.
    pub fn source_of_starred<'s>(&'s self, column: &'s Starred) -> Option<Source<'s>> {
        match &column.merged {
            Some(merged) => Some(Source::View(merged)),
            None => self.of_slot(column.slot()?).map(Source::Table),
        }
    }

    pub fn table(&self, database: Option<&str>, table: &str) -> Option<&Visible> {
        self.tables.iter().find(|t| t.is_named(database, table))
    }

    pub fn merged(&self, database: Option<&str>, table: &str) -> Option<&Rc<Merged>> {
        self.views.iter().find(|v| v.is_named(database, table))
    }

    /// What `table.*` shows.
    pub fn star_of(&self, database: Option<&str>, table: &str) -> Option<Vec<Starred>> {
        match self.table(database, table) {
            Some(found) => Some(found.starred().collect()),
            None => self.merged(database, table).map(|v| v.starred().collect()),
        }
    }

    /// What `*` shows.
    pub fn star(&self) -> Vec<Starred> {
        if let Some(star) = &self.star {
            return star.clone();
        }
        let tables = self.tables.iter().filter(|t| t.beneath.is_none());
        let tables = tables.map(|t| (t.first, t.starred().collect::<Vec<_>>()));
        let views = self.views.iter().map(|v| (v.first, v.starred().collect()));
        let mut all: Vec<(u16, Vec<Starred>)> = tables.chain(views).collect();
        all.sort_by_key(|(first, _)| *first);
        all.into_iter().flat_map(|(_, starred)| starred).collect()
    }

    /// Database and name of what a column name means a column of; the database is empty where a derived table or an alias is meant.
    pub fn owner(&self, name: &str) -> Option<(String, String)> {
        let is_shown = |e: Expr| !matches!(e, Expr::Column(c) if self.hidden.contains(&c.slot));
        let named = self.tables.iter().filter(|t| t.beneath.is_none());
        let mut tables = named.filter(|t| t.find(name).is_some_and(is_shown)).map(Visible::label);
        let mut views = self.views.iter().filter(|v| v.find(name).is_some_and(is_shown)).map(|v| v.label());
        tables.next().or_else(|| views.next())
    }

    /// As [`Scope::owner`], of a column of `*`.
    pub fn owner_of_starred(&self, column: &Starred) -> Option<(String, String)> {
        match &column.merged {
            Some(merged) => Some(merged.label()),
            None => self.of_slot(column.slot()?).map(Visible::label),
        }
    }

    /// As of a derived table that has a name in a database: a view.
    pub fn in_database(mut self, database: &str) -> Scope {
        self.tables.iter_mut().for_each(|t| database.clone_into(&mut t.database));
        self
    }

    /// As [`Scope::owner`], of what a qualified name means.
    pub fn owner_of(&self, database: Option<&str>, table: &str) -> Option<(String, String)> {
        match self.table(database, table) {
            Some(found) => Some(found.label()),
            None => self.merged(database, table).map(|v| v.label()),
        }
    }

    /// Of both sides of a join; `twins` are pairs of columns (shown, hidden) that are one.
    ///
    /// # Errors
    /// 1066, 1116.
    pub fn join(mut self, other: Scope, twins: &[(u16, u16)]) -> Result<Scope> {
        if let Some(twice) = other.names().find(|name| self.names().any(|own| own == *name)) {
            return Err(errors::not_unique_table(twice.1));
        }
        if self.tables.len() + other.tables.len() > TABLES_MAX {
            return Err(errors::too_many_tables(TABLES_MAX));
        }
        if !twins.is_empty() || self.star.is_some() || other.star.is_some() {
            let all: Vec<Starred> = self.star().into_iter().chain(other.star()).collect();
            let is_twin = |s: &&Starred| twins.iter().any(|(a, b)| s.slot() == Some(*a) || s.slot() == Some(*b));
            // USING names an invisible column, too.
            let named = |slot: u16| {
                let column = self.of_slot(slot)?.column(slot);
                let expr = Expr::Column(ColumnRef { slot, ty: column.ty });
                Some(Starred { name: column.name.clone(), expr, merged: None })
            };
            let listed = |slot: u16| all.iter().find(|s| s.slot() == Some(slot)).cloned();
            let shown = twins.iter().filter_map(|(shown, _)| listed(*shown).or_else(|| named(*shown)));
            self.star = Some(shown.chain(all.iter().filter(|s| !is_twin(s)).cloned()).collect());
        }
        self.hidden.extend(other.hidden);
        self.hidden.extend(twins.iter().map(|(_, hidden)| *hidden));
        self.tables.extend(other.tables);
        self.tables.sort_by_key(|t| t.first);
        self.views.extend(other.views);
        Ok(self)
    }

    /// Databases and names that mean something here.
    fn names(&self) -> impl Iterator<Item = (&str, &str)> {
        let named = self.tables.iter().filter(|t| t.beneath.is_none());
        let views = self.views.iter().map(|v| (v.database(), v.shown.as_str()));
        named.map(|t| (t.database.as_str(), t.shown.as_str())).chain(views)
    }
}

/// A name that means a column of a block around: in full, in which block it stands, and whose it is.
type Outside = (String, Option<Location>, Option<Location>);
