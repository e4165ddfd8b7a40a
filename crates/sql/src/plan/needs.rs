//! The privileges that a statement needs, noted while it is planned.
//!
//! A table in FROM needs SELECT, and each column of it that is read: a privilege on the table is one on all its columns. What is changed needs the privilege of the change, also for each column.
//! Within a view the view's definer needs them, unless it is one of SQL SECURITY INVOKER; who is around then. Of a view that is merged only those columns are read that the statement names
//! ([`super::scope::Merged`] keeps what each of them reads). Columns that USING and NATURAL compare need nothing, as in MySQL.

use std::{cell::Cell, rc::Rc};

use apus_types::TableSchema;
use sqlparser::{ast, tokenizer::Location};

use super::{
    Planner,
    hint::Told,
    scope::{Scope, Source, Visible},
    updatable_view::Through,
};
use crate::{
    accounts::Privileges,
    catalog::{Table, view::View},
    errors,
    expr::Expr,
    program::function::Stored,
    wire::SqlError,
};

/// A need of one column that is not noted yet.
pub type Read = Need;

/// What is noted while a statement is planned.
#[derive(Default, Debug)]
pub struct Noted {
    pub list: Vec<Need>,
    /// Tables and views where the statement names them.
    pub references: Vec<Reference>,
    /// What the columns of a view under construction read, in order; needed once the column is.
    kept: Option<Vec<Vec<Read>>>,
}

impl Noted {
    fn add(&mut self, need: Need) {
        let same = |n: &&mut Need| {
            let within = match (&n.within, &need.within) {
                (Some(a), Some(b)) => Rc::ptr_eq(a, b),
                (a, b) => a.is_none() && b.is_none(),
            };
            within && n.view.is_some() == need.view.is_some() && n.database == need.database && n.table == need.table
        };
        let Some(known) = self.list.iter_mut().find(same) else { return self.list.push(need) };
        known.privileges = known.privileges.union(need.privileges);
        for column in need.columns {
            let is_same = |c: &&mut ColumnNeed| c.is_of_all == column.is_of_all && c.name == column.name;
            match known.columns.iter_mut().find(is_same) {
                Some(known) => known.privileges = known.privileges.union(column.privileges),
                None => known.columns.push(column),
            }
        }
    }
    fn read(&mut self, read: Read) {
        match self.kept.as_mut().and_then(|columns| columns.last_mut()) {
            Some(column) => column.push(read),
            None => self.add(read),
        }
    }
}

impl Planner<'_> {
    /// Whoever stands here needs these privileges on a table or view.
    pub(crate) fn need(&self, database: &str, table: &str, privileges: Privileges) {
        let need = self.need_here(database, table, privileges, Vec::new());
        self.needs.borrow_mut().add(need);
    }

    /// Of temporary tables nothing is needed, and a statement may name each once.
    ///
    /// # Errors
    /// 1137.
    pub(crate) fn check_own_tables(&self) -> Result<(), SqlError> {
        let mut needs = self.needs.borrow_mut();
        let is_own = |database: &str, table: &str| self.catalog.own(database, table).is_some();
        needs.list.retain(|need| need.view.is_some() || need.within.is_some() || !is_own(&need.database, &need.table));
        let all = &needs.references;
        for (at, one) in all.iter().enumerate().filter(|(_, one)| is_own(&one.database, &one.table)) {
            if all[..at].iter().any(|before| before.database == one.database && before.table == one.table) {
                return Err(errors::cannot_reopen(&one.alias));
            }
        }
        Ok(())
    }

    /// A table or view is named, by this alias. What stands `at` one place may be bound several times.
    pub(crate) fn refer(&self, database: &str, table: &str, alias: &str, at: Option<Location>) {
        let mut needs = self.needs.borrow_mut();
        let is_known = at.is_some() && needs.references.iter().any(|reference| reference.at == at);
        if self.views.is_outermost() && !is_known {
            let [database, table, alias] = [database, table, alias].map(str::to_owned);
            needs.references.push(Reference { database, table, alias, at, writes: false });
        }
    }
    /// What is named by this alias is changed.
    pub(crate) fn refer_to_changed(&self, alias: &str) {
        let mut needs = self.needs.borrow_mut();
        needs.references.iter_mut().filter(|r| r.alias == alias).for_each(|reference| reference.writes = true);
    }

    fn need_here(&self, database: &str, table: &str, privileges: Privileges, columns: Vec<ColumnNeed>) -> Need {
        let (within, view) = (self.views.definer(), self.views.innermost());
        let (database, table) = (database.to_owned(), table.to_owned());
        Need { within, view, database, table, privileges, instead: Privileges::NONE, columns }
    }

    /// From here on, what names read is kept for the columns of a view. None of them has a query in it.
    pub(crate) fn begin_columns(&self) {
        self.needs.borrow_mut().kept = Some(Vec::new());
    }
    /// The next column of the select list begins.
    pub(crate) fn begin_column(&self) {
        if let Some(columns) = &mut self.needs.borrow_mut().kept {
            columns.push(Vec::new());
        }
    }
    pub(crate) fn end_columns(&self) -> Vec<Vec<Read>> {
        self.needs.borrow_mut().kept.take().unwrap_or_default()
    }

    /// A name is read that means a column of this scope.
    pub(crate) fn read_name(&self, scope: &Scope, qualifier: &[&str], name: &str) {
        if let Some(source) = scope.source(qualifier, name) {
            self.read(source, name, false);
        }
    }

    /// As [`Planner::read_name`], where the name may mean a column of a block around.
    pub(crate) fn read_outer(&self, qualifier: &[&str], name: &ast::Ident) {
        if let Some(scope) = self.frames.outer_scope(qualifier, &name.value) {
            self.read_name(&scope, qualifier, &name.value);
            if self.views.is_outermost() {
                self.frames.note_outside(name, qualifier);
            }
        }
    }

    /// A name that is no column: where the account may not read all columns of a table it is refused as one of that.
    pub(crate) fn read_unknown(&self, scope: &Scope, name: &str) {
        if let Some(table) = scope.tables.iter().find(|t| t.beneath.is_none()) {
            self.read(Source::Table(table), name, false);
        }
    }

    /// A column is read; `is_of_all`: by `*`.
    pub(crate) fn read(&self, source: Source<'_>, name: &str, is_of_all: bool) {
        let (database, table, beneath) = match source {
            Source::Table(table) => (&*table.database, &*table.table.schema.name, &[][..]),
            Source::View(merged) => (merged.database(), merged.name(), merged.reads_of(name)),
        };
        // Of a derived table nobody needs anything.
        if database.is_empty() {
            return;
        }
        let column = ColumnNeed { name: name.to_owned(), privileges: Privileges::SELECT, is_of_all };
        let read = self.need_here(database, table, Privileges::NONE, vec![column]);
        let mut needs = self.needs.borrow_mut();
        needs.read(read);
        beneath.iter().for_each(|read| needs.read(read.clone()));
    }

    /// Columns of the one table of a statement that expressions read.
    pub(crate) fn need_read<'e>(
        &self,
        through: Option<&Through>,
        table: &Table,
        expressions: impl Iterator<Item = &'e Expr>,
    ) {
        // Names of a view's columns were noted where they stand.
        if through.is_some() {
            return;
        }
        let mut used = Vec::new();
        expressions.for_each(|e| e.columns(&mut used));
        self.need_columns(&table.schema, &used, Privileges::SELECT, false);
    }

    /// VALUES(column) reads it, too.
    pub(crate) fn read_values(&self, schema: &TableSchema, column: u16) {
        self.need_columns(schema, &[column], Privileges::SELECT, false);
    }

    /// Privileges on columns of a table that stands in no view.
    fn need_columns(&self, schema: &TableSchema, columns: &[u16], privileges: Privileges, is_of_all: bool) {
        let named = columns.iter().filter_map(|column| schema.columns.get(usize::from(*column)));
        let columns = named.map(|c| ColumnNeed { name: c.name.clone(), privileges, is_of_all }).collect();
        let need = self.need_here(&schema.database, &schema.name, Privileges::NONE, columns);
        self.needs.borrow_mut().add(need);
    }

    /// A table beneath a view is changed by the view's definer, or by who runs the statement.
    fn need_beneath(&self, view: &Rc<View>, table: &Table, privileges: Privileges, columns: Changed<'_>) {
        let list = |names: &mut dyn Iterator<Item = String>| -> Vec<ColumnNeed> {
            names.map(|name| ColumnNeed { name, privileges, is_of_all: columns.is_all }).collect()
        };
        let of_view = list(&mut columns.names.iter().cloned());
        let (database, name) = (view.database(), view.name());
        self.needs.borrow_mut().add(self.need_here(database, name, privileges, of_view));
        let schema = &table.schema;
        let within = (!view.definition.invoker).then(|| view.clone());
        let named = columns.columns.iter().filter_map(|c| schema.columns.get(usize::from(*c)));
        let columns = list(&mut named.map(|c| c.name.clone()));
        let view = Some(view.clone());
        self.needs.borrow_mut().add(Need {
            within,
            view,
            ..self.need_here(&schema.database, &schema.name, privileges, columns)
        });
    }

    /// The one table of a statement is changed, perhaps through a view.
    pub(crate) fn need_change(
        &self,
        view: Option<&Rc<View>>,
        table: &Table,
        privileges: Privileges,
        columns: Changed<'_>,
    ) {
        match view {
            Some(view) => self.need_beneath(view, table, privileges, columns),
            None => {
                self.need(&table.schema.database, &table.schema.name, privileges);
                // What REPLACE takes away are rows.
                let privileges = privileges.without(Privileges::DELETE);
                self.need_columns(&table.schema, columns.columns, privileges, columns.is_all);
            }
        }
    }

    /// A table of the FROM of an UPDATE is changed: for the table itself either privilege is enough.
    pub(crate) fn need_update(&self, table: &Visible, columns: Changed<'_>) {
        self.refer_to_changed(&table.shown);
        if table.beneath.is_some() {
            return self.need_of(table, Privileges::UPDATE, columns);
        }
        let schema = &table.table.schema;
        self.need_columns(schema, columns.columns, Privileges::UPDATE, columns.is_all);
        let mut needs = self.needs.borrow_mut();
        let is_it = |n: &&mut Need| n.view.is_none() && n.database == schema.database && n.table == schema.name;
        needs.list.iter_mut().filter(is_it).for_each(|need| need.instead = Privileges::UPDATE);
    }

    /// A table in FROM is changed.
    pub(crate) fn need_of(&self, table: &Visible, privileges: Privileges, columns: Changed<'_>) {
        self.refer_to_changed(&table.shown);
        let view = table.beneath.as_ref().and_then(|merged| merged.view.as_ref());
        self.need_change(view, &table.table, privileges, columns);
    }
}

/// Columns that are changed: of the table, and how a view calls them.
#[derive(Clone, Copy, Default)]
pub struct Changed<'c> {
    pub columns: &'c [u16],
    pub names: &'c [String],
    /// The statement names none of them.
    pub is_all: bool,
}

/// The last part of each name that is assigned to.
pub fn targets(assignments: &[ast::Assignment]) -> Vec<String> {
    let last = |name: &ast::ObjectName| name.0.last().and_then(|p| p.as_ident()).map(|i| i.value.clone());
    let target = |a: &ast::Assignment| match &a.target {
        ast::AssignmentTarget::ColumnName(name) => last(name).unwrap_or_default(),
        ast::AssignmentTarget::Tuple(_) => String::new(),
    };
    assignments.iter().map(target).collect()
}

/// A privilege that a plan needs.
#[derive(Clone, Debug)]
pub struct Need {
    /// The view whose definer needs it; `None`: the account of the session.
    pub within: Option<Rc<View>>,
    /// The view in whose text it stands.
    pub view: Option<Rc<View>>,
    pub database: String,
    pub table: String,
    /// Needed on the table, or on some column of it.
    pub privileges: Privileges,
    /// Any of these on some column is as good.
    pub instead: Privileges,
    pub columns: Vec<ColumnNeed>,
}

/// A privilege that a plan needs on one column.
#[derive(Clone, PartialEq, Debug)]
pub struct ColumnNeed {
    pub name: String,
    pub privileges: Privileges,
    /// No column is named but all are meant: who lacks one is refused the table.
    pub is_of_all: bool,
}

/// What a plan was made of, and what may be done by it.
#[derive(Default, Debug)]
pub struct Names {
    /// The views that the statement names, as their tables of columns.
    pub views: Vec<Rc<Table>>,
    /// Calls of stored functions.
    pub functions: Vec<Stored>,
    pub needs: Needs,
    pub references: Vec<Reference>,
    /// It reads what is counted of its session.
    pub reads_status: bool,
    /// What EXPLAIN tells of names that mean columns of a block around.
    pub outside: Vec<String>,
    /// The plan is good for parameters of the kinds that it was made for.
    pub is_typed: bool,
    /// What its hints have to tell.
    pub hints: Option<Box<Told>>,
    /// How it reads ([`plan::traits`](crate::plan::traits)).
    pub traits: u8,
}

/// Where a statement names a table or view, not within one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reference {
    pub database: String,
    pub table: String,
    pub alias: String,
    at: Option<Location>,
    /// Its rows are changed.
    pub writes: bool,
}

#[derive(Default, Debug)]
pub struct Needs {
    pub list: Vec<Need>,
    /// It locks rows to change them: tables whose rows it reads.
    pub locks: bool,
    /// The generation of the accounts and the account for which all of it was granted.
    pub(crate) granted: Cell<(u64, u64)>,
}

impl Needs {
    pub fn new(list: Vec<Need>, locks: bool) -> Needs {
        Needs { list, locks, granted: Cell::default() }
    }
}

/// 1227: none of the privileges that `names` lists.
pub fn privilege_missing(names: &str) -> SqlError {
    let text = format!("Access denied; you need (at least one of) the {names} privilege(s) for this operation");
    SqlError::new(1227, b"42000", text)
}
