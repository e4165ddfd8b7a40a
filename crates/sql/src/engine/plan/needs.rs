//! The privileges that a statement needs, noted while it is planned.
//!
//! A table in FROM needs SELECT. What is changed needs the privilege of the change, and SELECT where a column of it is read. Within a view the view's definer needs them, unless it is one of SQL
//! SECURITY INVOKER; who is around then.

use std::rc::Rc;

use super::{Planner, scope::Visible, through::Through};
use crate::{
    accounts::Privileges,
    engine::{authorize::Need, catalog::Table, view::View},
};

impl Planner<'_> {
    /// Whoever stands here needs these privileges on a table or view.
    pub(super) fn need(&self, database: &str, table: &str, privileges: Privileges) {
        let (within, view) = (self.views.definer(), self.views.innermost());
        let (database, table) = (database.to_owned(), table.to_owned());
        self.note(Need { within, view, column: None, database, table, privileges });
    }

    /// A column of the one table of a statement is read.
    pub(super) fn need_column(&self, through: Option<&Through>, table: &Table, column: Option<u16>) {
        let Some(column) = column else { return };
        if through.is_some() {
            return self.need_change(through, table, Privileges::SELECT);
        }
        let schema = &table.schema;
        let column = schema.columns.get(usize::from(column)).map(|c| c.name.clone());
        let (database, table) = (schema.database.clone(), schema.name.clone());
        self.note(Need { within: None, view: None, column, database, table, privileges: Privileges::SELECT });
    }

    fn note(&self, need: Need) {
        let mut needs = self.needs.borrow_mut();
        let same = |n: &&mut Need| {
            let within = match (&n.within, &need.within) {
                (Some(a), Some(b)) => Rc::ptr_eq(a, b),
                (a, b) => a.is_none() && b.is_none(),
            };
            within
                && n.view.is_some() == need.view.is_some()
                && n.column == need.column
                && n.database == need.database
                && n.table == need.table
        };
        match needs.iter_mut().find(same) {
            Some(known) => known.privileges = known.privileges.union(need.privileges),
            None => needs.push(need),
        }
    }

    /// A table beneath a view is changed by the view's definer, or by who runs the statement.
    fn need_beneath(&self, view: &Rc<View>, table: &Table, privileges: Privileges) {
        self.need(view.database(), view.name(), privileges);
        let schema = &table.schema;
        let within = (!view.definition.invoker).then(|| view.clone());
        let (database, table) = (schema.database.clone(), schema.name.clone());
        self.note(Need { within, view: Some(view.clone()), column: None, database, table, privileges });
    }

    /// The one table of a statement is changed, perhaps through a view.
    pub(super) fn need_change(&self, through: Option<&Through>, table: &Table, privileges: Privileges) {
        match through {
            Some(through) => self.need_beneath(&through.merged.view, table, privileges),
            None => self.need(&table.schema.database, &table.schema.name, privileges),
        }
    }

    /// Rows are put into a table, perhaps through a view.
    pub(super) fn need_insert(&self, view: Option<&Rc<View>>, table: &Table, privileges: Privileges) {
        match view {
            Some(view) => self.need_beneath(view, table, privileges),
            None => self.need(&table.schema.database, &table.schema.name, privileges),
        }
    }

    /// A table in FROM is changed.
    pub(super) fn need_of(&self, table: &Visible, privileges: Privileges) {
        match &table.beneath {
            Some(merged) => self.need_beneath(&merged.view, &table.table, privileges),
            None => self.need(&table.table.schema.database, &table.table.schema.name, privileges),
        }
    }
}
