//! Views in FROM, and what is noted for the text of a new one.
//!
//! A view that *merges* (no groups, DISTINCT, LIMIT, set operation or window, a FROM, no subquery in its select list) is bound in the block that names it: its tables are more
//! items of the block, its conditions are conditions of the block, and its columns are names of expressions over its tables. So `SELECT ... FROM v WHERE id = 1` is the key plan that it is of the
//! table. Where an outer join may fill a column with NULL, and in joins by name, only a view merges that has nothing but columns and no subquery in its conditions. Every other view is a derived table.
//!
//! The text of a view sees its own blocks only: no common table expression, and no column, of the statement around it.

use apus_types::collate::{Charset, Collation};

use super::{
    Planner, Unplanned,
    derived_condition_pushdown::Text,
    from::{From, Level, Origin},
    merge::{Merging, has_columns_only},
    query::Derived,
    scope::{COMPUTED, Scope, Starred},
};
use crate::{
    catalog::view::View,
    errors,
    expr::{Expr, coercion},
    wire::SqlError,
};
use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use sqlparser::{
    ast::{self, SetExpr},
    tokenizer::Location,
};

type Bound<T> = Result<T, Unplanned>;

/// Database, table and column that a name means; the database is empty where the table has an alias or is a derived one.
pub type Meant = (String, String, String);

/// What names and stars of a statement mean, by where they stand in its text.
#[derive(Default, Debug)]
pub struct Notes {
    pub names: BTreeMap<Location, Meant>,
    pub stars: BTreeMap<Location, Vec<Meant>>,
}

/// What planning keeps of views.
#[derive(Default, Debug)]
pub struct Views {
    /// Those that the statement names, also in other views.
    pub used: RefCell<Vec<Rc<View>>>,
    /// Those whose text is under construction.
    open: RefCell<Vec<Rc<View>>>,
    /// Kept for CREATE VIEW.
    pub notes: Option<RefCell<Notes>>,
}

impl Views {
    /// Whose names are meant where a name has no database.
    pub fn database(&self) -> Option<String> {
        let open = self.open.borrow();
        open.last().map(|view| view.definition.database.clone()).filter(|d| !d.is_empty())
    }
    /// How often a view was named.
    pub fn count(&self, view: &Rc<View>) -> usize {
        self.used.borrow().iter().filter(|used| Rc::ptr_eq(used, view)).count()
    }
    /// The view whose definer reads here; `None`: who runs the statement.
    pub fn definer(&self) -> Option<Rc<View>> {
        self.open.borrow().iter().rev().find(|view| !view.definition.invoker).cloned()
    }
    /// The view whose text is under construction.
    pub fn innermost(&self) -> Option<Rc<View>> {
        self.open.borrow().last().cloned()
    }
    pub fn is_outermost(&self) -> bool {
        self.open.borrow().is_empty()
    }
}

impl Planner<'_> {
    /// The view of this name.
    pub(crate) fn view(&self, name: &ast::ObjectName) -> Bound<Option<Rc<View>>> {
        let (database, table) = self.split_name(name)?;
        Ok(self.seen().view(&database, &table).cloned())
    }

    pub(crate) fn note_name(&self, ident: &ast::Ident, owner: impl FnOnce() -> Option<(String, String)>) {
        if let Some(notes) = self.views.notes.as_ref().filter(|_| self.views.is_outermost())
            && let Some((database, table)) = owner()
        {
            notes.borrow_mut().names.insert(ident.span.start, (database, table, ident.value.clone()));
        }
    }

    pub(crate) fn note_star(&self, at: Location, scope: &Scope, columns: &[Starred]) {
        if let (Some(notes), true) = (&self.views.notes, self.views.is_outermost()) {
            let meant = |c: &Starred| {
                let (database, table) = scope.owner_of_starred(c).unwrap_or_default();
                (database, table, c.name.clone())
            };
            notes.borrow_mut().stars.insert(at, columns.iter().map(meant).collect());
        }
    }

    /// A view that does not merge.
    pub(crate) fn view_as_table(&self, view: &Rc<View>) -> Bound<Rc<Derived>> {
        let columns: Vec<String> = view.columns().map(str::to_owned).collect();
        let made = self.inside(view, self.frames.depth(), |query| self.derived(query, view.name(), &columns))?;
        let mut derived = Rc::try_unwrap(made).map_err(|_| errors::internal("a view that is shared"))?;
        derived.text = Some(Rc::new(Text::View(view.clone())));
        Ok(Rc::new(derived))
    }

    /// Binds something of a view's text.
    fn inside<T>(&self, view: &Rc<View>, block: usize, bind: impl FnOnce(&ast::Query) -> Bound<T>) -> Bound<T> {
        if self.views.open.borrow().iter().any(|open| Rc::ptr_eq(open, view)) {
            return Err(errors::recursive_view(view.database(), view.name()).into());
        }
        let query = view.query()?;
        self.views.used.borrow_mut().push(view.clone());
        self.views.open.borrow_mut().push(view.clone());
        let common = std::mem::take(&mut *self.common.borrow_mut());
        let floor = self.frames.begin_view(block);
        // Its literals are those of the connection that made it.
        let outside = coercion::connected();
        let d = &view.definition;
        coercion::connect_as((
            Charset::from_name(&d.charset).unwrap_or(outside.0),
            Collation::from_name(&d.collation).unwrap_or(outside.1),
        ));
        let bound = bind(&query);
        coercion::connect_as(outside);
        self.frames.end_view(floor);
        *self.common.borrow_mut() = common;
        self.views.open.borrow_mut().pop();
        bound.map_err(|e| match e {
            Unplanned::Error(e) if is_of_names(&e) => errors::invalid_view(view.database(), view.name()).into(),
            other => other,
        })
    }
}

/// Something that a text names is not there.
fn is_of_names(e: &SqlError) -> bool {
    matches!(e.errno, 1049 | 1052 | 1054 | 1060 | 1146 | 1222 | 1305 | 1347 | 1353 | 1356)
}

impl From<'_, '_> {
    /// A view, as one leaf or as its tables.
    pub fn view(&self, view: &Rc<View>, shown: String, is_plain: bool) -> Bound<(Scope, Level)> {
        let is_kept = self.planner.hints_here().is_some_and(|hints| hints.keeps_table(&shown));
        if view.definition.is_merged() && !is_kept {
            let query = view.query()?;
            if let SetExpr::Select(select) = &*query.body
                && (!is_plain || has_columns_only(select))
            {
                let block = self.planner.frames.depth().saturating_sub(1);
                let (shown, names) = (shown.clone(), view.columns().map(str::to_owned).collect());
                let what = Merging { query: &query, select, shown, names, view: Some(view), is_plain };
                if let Some(merged) = self.planner.inside(view, block, |_| self.merged(what))? {
                    return Ok(merged);
                }
            }
        }
        let derived = self.planner.view_as_table(view)?;
        let table = derived.table.clone();
        let (scope, level) = self.leaf(Origin::Derived(derived), table, shown, &[])?;
        Ok((scope.in_database(view.database()), level))
    }
}

/// A subquery stands in it, which is run for each row.
pub fn is_computed(e: &Expr) -> bool {
    e.any(|e| matches!(e, Expr::Column(c) if c.slot >= COMPUTED))
}
