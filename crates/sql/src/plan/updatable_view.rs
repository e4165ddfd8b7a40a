//! INSERT, UPDATE and DELETE through views that merge: names of the view become columns of its table.

use std::rc::Rc;

use sqlparser::ast::{self, AssignmentTarget, TableFactor};

use super::{
    Planner, Unplanned,
    bind::Builder,
    block::all_of,
    dml::insert::OnDuplicate,
    from::{Item, Level, Origin},
    rules,
    scope::{COMPUTED, Merged, Scope, Visible},
};
use crate::{
    catalog::{Table, view::View},
    errors,
    expr::Expr,
};

type Bound<T> = Result<T, Unplanned>;

/// What a row must satisfy that is written through a view.
#[derive(Debug)]
pub struct RowCheck {
    /// Over a row of the table.
    pub condition: Expr,
    pub database: String,
    pub view: String,
}

/// The one table beneath a view.
pub struct Through {
    pub scope: Rc<Scope>,
    pub merged: Rc<Merged>,
    pub table: Rc<Table>,
    /// Which of its rows the view has.
    pub within: Vec<Expr>,
}

impl Through {
    pub fn check(&self) -> Bound<Option<RowCheck>> {
        self.merged.check(&self.merged.checks, &self.scope.tables[0], &[])
    }

    /// The table's column that an assignment means.
    pub fn column_of(&self, target: &AssignmentTarget) -> Bound<u16> {
        let AssignmentTarget::ColumnName(name) = target else { return Err(errors::syntax(&target.to_string()).into()) };
        let name = name.0.last().and_then(|p| p.as_ident()).map(|i| i.value.clone()).unwrap_or_default();
        self.merged.slot_of(&name)
    }
}

impl Merged {
    /// The slot of a column that can be changed.
    ///
    /// # Errors
    /// 1054, 1348: it is computed.
    pub fn slot_of(&self, name: &str) -> Bound<u16> {
        let found = self.columns.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        match found.map(|(_, e)| e) {
            Some(Expr::Column(c)) if c.slot < COMPUTED => Ok(c.slot),
            Some(_) => Err(errors::column_not_updatable(name).into()),
            None => Err(errors::unknown_column(name, "field list").into()),
        }
    }

    /// Those of the conditions that say something of a table, as a check of its rows. Of several tables: where the columns in `assigned` are in a condition, it must
    /// be of this table alone.
    pub fn check(&self, conditions: &[Expr], table: &Visible, assigned: &[u16]) -> Bound<Option<RowCheck>> {
        let count = table.table.schema.columns.len() as u16;
        let own: Vec<u16> = (table.first..table.first + count).collect();
        let mut kept = Vec::new();
        for condition in conditions {
            let mut used = Vec::new();
            condition.columns(&mut used);
            let is_own = used.iter().all(|slot| own.contains(slot)) && !condition.any(|e| matches!(e, Expr::Given(..)));
            if is_own {
                let mut condition = condition.clone();
                condition.project(&own);
                kept.push(condition);
            } else if assigned.is_empty() || used.iter().any(|slot| assigned.contains(slot) || *slot >= COMPUTED) {
                return Err(errors::not_supported("WITH CHECK OPTION of several tables or with subqueries").into());
            }
        }
        let (database, view) = (self.database().to_owned(), self.name().to_owned());
        Ok(all_of(kept).map(|condition| RowCheck { condition, database, view }))
    }
}

/// Where an INSERT goes.
pub struct Into {
    pub table: Rc<Table>,
    /// The table's columns that it names.
    pub named: Vec<u16>,
    pub check: Option<RowCheck>,
    /// Rows that it replaces must be of the view.
    pub within: Option<RowCheck>,
    /// Of the table's columns.
    pub defaults: Vec<errors::Result<Expr>>,
    /// For ON DUPLICATE KEY UPDATE, where there is one table.
    pub through: Option<Through>,
}

impl Planner<'_> {
    /// A view in a block of its own, whose tables are what the block has.
    fn opened(&self, view: &Rc<View>, shown: String) -> Bound<(Rc<Scope>, Level, bool)> {
        self.frames.open(None);
        let bound = self.bind_view(view, shown);
        let is_plain = self.frames.is_plain();
        self.frames.close();
        let (scope, level) = bound?;
        Ok((scope, level, is_plain))
    }

    /// The table beneath the only view that a statement names; `None`: it must be planned as one of several tables.
    pub(crate) fn through(&self, from: &[ast::TableWithJoins]) -> Bound<Option<Through>> {
        let [one] = from else { return Ok(None) };
        let TableFactor::Table { name, alias, args: None, .. } = &one.relation else { return Ok(None) };
        let Some(view) = self.view(name)?.filter(|_| one.joins.is_empty()) else { return Ok(None) };
        let shown = alias.as_ref().map_or_else(|| view.name().to_owned(), |a| a.name.value.clone());
        let known = self.views.used.borrow().len();
        let (scope, level, is_plain) = self.opened(&view, shown)?;
        if let ([merged], [Item { origin: Origin::Table(table), left: None, .. }], true) =
            (scope.views.as_slice(), level.items.as_slice(), is_plain)
            && !crate::catalog::information_schema::is_virtual(&table.schema)
        {
            let (merged, table) = (merged.clone(), table.clone());
            return Ok(Some(Through { scope, merged, table, within: level.conditions }));
        }
        self.views.used.borrow_mut().truncate(known);
        Ok(None)
    }

    /// Whether the one table of a statement is a view.
    pub(crate) fn names_view(&self, from: &[ast::TableWithJoins]) -> Bound<bool> {
        match from {
            [ast::TableWithJoins { relation: TableFactor::Table { name, .. }, .. }] => Ok(self.view(name)?.is_some()),
            _ => Ok(false),
        }
    }

    /// The table of an INSERT into a view. `named`: names of columns, where there are any.
    ///
    /// # Errors
    /// 1393, 1394, 1423, 1471: what MySQL refuses.
    pub(crate) fn insert_through(&self, view: &Rc<View>, named: Option<&[String]>, on: OnDuplicate) -> Bound<Into> {
        let refused = || errors::not_insertable(view.name());
        let (scope, level, _) = self.opened(view, view.name().to_owned())?;
        let [merged] = scope.views.as_slice() else { return Err(refused().into()) };
        let all: Vec<String>;
        let named = match named {
            Some(named) => named,
            None if scope.tables.len() > 1 => {
                return Err(errors::join_view_without_fields(view.database(), view.name()).into());
            }
            None => {
                all = view.columns().map(str::to_owned).collect();
                &all
            }
        };
        let named = named.iter().map(|name| merged.slot_of(name)).collect::<Bound<Vec<u16>>>()?;
        let slots: Vec<u16> = merged.columns.iter().filter_map(|(name, _)| merged.slot_of(name).ok()).collect();
        let is_twice = slots.iter().enumerate().any(|(i, slot)| slots[..i].contains(slot));
        if slots.len() < merged.columns.len() || is_twice {
            return Err(refused().into());
        }
        let target = match named.first() {
            Some(slot) => scope.of_slot(*slot),
            None => scope.tables.first(),
        };
        let target = target.ok_or_else(refused)?;
        let count = target.table.schema.columns.len() as u16;
        let own = target.first..target.first + count;
        if named.iter().any(|slot| !own.contains(slot)) {
            return Err(errors::several_tables_of_view(view.database(), view.name()).into());
        }
        let is_stored = level.items.iter().any(|item| {
            item.left.is_none() && item.firsts.contains(&target.first) && matches!(item.origin, Origin::Table(_))
        });
        if !is_stored || crate::catalog::information_schema::is_virtual(&target.table.schema) {
            return Err(refused().into());
        }
        let named: Vec<u16> = named.iter().map(|slot| slot - target.first).collect();
        let unnamed = |c: u16| !named.contains(&c);
        let default =
            |c: u16| rules::initial(&target.table, c).map_err(|e| if unnamed(c) { view_default(view) } else { e });
        let defaults = (0..count).map(default).collect();
        let check = merged.check(&merged.checks, target, &[])?;
        let within = match on {
            OnDuplicate::Replace => merged.check(&level.conditions, target, &[])?,
            _ => None,
        };
        let table = target.table.clone();
        let through = (scope.tables.len() == 1).then(|| Through {
            scope: scope.clone(),
            merged: merged.clone(),
            table: table.clone(),
            within: Vec::new(),
        });
        Ok(Into { table, named, check, within, defaults, through })
    }

    /// The tables beneath a view that is changed.
    pub(crate) fn one_table<'s>(&self, scope: &'s Scope, merged: &Rc<Merged>) -> Bound<&'s Visible> {
        let mut beneath = scope.tables.iter().filter(|t| t.beneath.as_ref().is_some_and(|b| Rc::ptr_eq(b, merged)));
        match (beneath.next(), beneath.next()) {
            (Some(one), None) => Ok(one),
            _ => Err(errors::delete_from_join_view(merged.database(), merged.name()).into()),
        }
    }

    /// A builder of expressions over the table beneath a view, or over `table` itself.
    pub(crate) fn builder_of<'b>(&'b self, through: Option<&Through>, table: &'b Table, shown: &str) -> Builder<'b> {
        match through {
            Some(through) => self.builder(&through.scope),
            None => {
                let mut builder = self.builder_over(Some(&table.schema), shown);
                builder.param_kinds = self.param_kinds.clone();
                builder
            }
        }
    }
}

fn view_default(view: &View) -> crate::wire::SqlError {
    errors::view_without_default(view.database(), view.name())
}
