//! UPDATE and DELETE of several tables, or with subqueries: a query block whose outputs are the keys of the rows to change and their new values.

use std::rc::Rc;

use sqlparser::ast::{self, AssignmentTarget};

use super::{
    Planner, Unplanned,
    bind::Builder,
    block::Block,
    dml::{check_writable, given},
    from::{Level, Origin},
    needs::{Changed, targets},
    outputs::Columns,
    query::{Asked, Body, Given, Leaf, StepKind},
    rules,
    scope::{COMPUTED, Merged, Scope, Visible},
    select::{Lock, Output, Select},
    updatable_view::RowCheck,
};
use crate::{
    accounts::Privileges,
    catalog::Table,
    errors,
    expr::{ColumnRef, Expr, Func},
};

type Bound<T> = Result<T, Unplanned>;

/// A table whose rows are locked, and what becomes of them.
#[derive(Debug)]
pub struct Target {
    pub table: Rc<Table>,
    /// What changed rows must satisfy.
    pub check: Option<RowCheck>,
    /// Where the outputs have the columns of its primary key.
    pub key: usize,
    pub exclusive: bool,
    pub fate: Fate,
}

#[derive(Debug)]
pub enum Fate {
    /// Read only.
    Stays,
    Goes,
    /// Columns, and where the outputs have their values.
    Changes(Vec<(u16, usize)>),
}

/// The rows that a statement locks, as a query of their keys.
#[derive(Debug)]
pub struct Locked {
    pub query: Select,
    pub targets: Vec<Target>,
    pub no_wait: bool,
    pub is_update: bool,
}

/// Outputs of a block under construction.
struct Outputs<'o, 'a> {
    columns: Columns<'o, 'a>,
    list: Vec<Output>,
}

impl Outputs<'_, '_> {
    fn push(&mut self, e: Expr) {
        let output = self.columns.output(e, String::new());
        self.list.push(output);
    }
    /// The primary key of a table; where it begins.
    fn key(&mut self, table: &Visible) -> usize {
        let at = self.list.len();
        for &column in &table.table.schema.primary_key {
            let ty = table.table.schema.columns[usize::from(column)].ty;
            self.push(Expr::Column(ColumnRef { slot: table.first + column, ty }));
        }
        at
    }
}

/// Whether a statement must be planned here rather than as one of a single table.
pub fn is_joined(from: &[ast::TableWithJoins], text: &str) -> bool {
    let is_single = matches!(from, [one] if one.joins.is_empty());
    let has = |word: &str| {
        text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|found| found.eq_ignore_ascii_case(word))
    };
    !is_single || has("select") || has("against") && has("match")
}

impl Planner<'_> {
    pub(crate) fn joined_update(&self, update: &ast::Update) -> Bound<Locked> {
        if update.or.is_some() {
            return Err(errors::not_supported("UPDATE IGNORE of several tables").into());
        }
        let from = std::slice::from_ref(&update.table);
        let is_single = update.table.joins.is_empty();
        if !is_single && (!update.order_by.is_empty() || update.limit.is_some()) {
            return Err(errors::wrong_usage("UPDATE", "ORDER BY").into());
        }
        let tail = Tail { selection: update.selection.as_ref(), order: &update.order_by, limit: update.limit.as_ref() };
        self.in_block(|| {
            let (scope, level) = self.bind_from(from, false)?;
            let mut builder = self.builder(&scope);
            let mut outputs = self.outputs_of(&scope);
            let mut assigned: Vec<(u16, u16, Expr)> = Vec::new();
            let mut changed: Vec<(u16, u16, Vec<String>)> = Vec::new();
            for a in &update.assignments {
                builder.clause = "field list";
                let (table, column) = target_column(&scope, &a.target)?;
                changed.push((table.first, column, targets(std::slice::from_ref(a))));
                let e = if is_default(&a.value) {
                    let mut e = rules::default_of(&table.table, column)?;
                    e.walk_mut(&mut |e| {
                        if let Expr::Column(c) = e {
                            c.slot += table.first;
                        }
                    });
                    e
                } else {
                    rules::refuse_value(&table.table.schema, column)?;
                    let ty = table.table.schema.columns[usize::from(column)].ty;
                    given(ty, builder.build(&a.value)?, &self.param_kinds)
                };
                if table.table.schema.columns[usize::from(column)].generated.is_some() {
                    continue; // DEFAULT, which it has anyway
                }
                let is_changed = |slot: u16| assigned.iter().any(|(first, c, _)| first + c == slot);
                let mut used = Vec::new();
                e.columns(&mut used);
                if used.iter().flat_map(|&slot| self.frames.inputs_of(slot)).any(is_changed) {
                    return Err(errors::not_supported("an assignment that reads a column assigned before it").into());
                }
                assigned.push((table.first, column, e));
            }
            one_of_each_view(&scope, &assigned)?;
            let mut targets = Vec::new();
            for table in &scope.tables {
                let own = assigned.iter().filter(|(first, ..)| *first == table.first);
                let own: Vec<_> = own.map(|(_, column, e)| (*column, e.clone())).collect();
                if own.is_empty() {
                    self.reads(table, &level, &mut outputs, &mut targets);
                    continue;
                }
                self.check_target(table, &level, "UPDATE")?;
                let own_names = changed.iter().filter(|(first, ..)| *first == table.first);
                let (columns, names): (Vec<u16>, Vec<Vec<String>>) =
                    own_names.map(|(_, column, name)| (*column, name.clone())).unzip();
                self.need_update(table, Changed { columns: &columns, names: &names.concat(), is_all: false });
                let key = outputs.key(table);
                let mut changes = Vec::new();
                for (column, e) in own {
                    changes.push((column, outputs.list.len()));
                    outputs.push(e);
                }
                let fate = Fate::Changes(changes);
                let slots: Vec<u16> = assigned.iter().map(|(first, column, _)| first + column).collect();
                let check = match &table.beneath {
                    Some(merged) => merged.check(&merged.checks, table, &slots)?,
                    None => None,
                };
                targets.push(Target { table: table.table.clone(), check, key, exclusive: true, fate });
            }
            // It is run until all its rows are locked.
            let assigns = |e: &Expr| matches!(e, Expr::Call(Func::Assign, ..));
            if outputs.list.iter().any(|o| o.expr.any(assigns)) {
                return Err(errors::not_supported("assignments to variables in UPDATE of several tables").into());
            }
            let query = self.finish(scope.clone(), level, builder, outputs.list, &tail)?;
            self.check_subqueries(&query, &scope, &targets, "UPDATE")?;
            Ok(Locked { query, targets, no_wait: false, is_update: true })
        })
    }

    pub(crate) fn joined_delete(&self, delete: &ast::Delete) -> Bound<Locked> {
        let (ast::FromTable::WithFromKeyword(from) | ast::FromTable::WithoutKeyword(from)) = &delete.from;
        // DELETE a, b FROM ...; DELETE FROM a, b USING ...
        let (names, from): (Vec<ast::ObjectName>, &[ast::TableWithJoins]) = match &delete.using {
            Some(using) => {
                let name = |t: &ast::TableWithJoins| match &t.relation {
                    ast::TableFactor::Table { name, .. } if t.joins.is_empty() => Ok(name.clone()),
                    _ => Err(errors::syntax("USING")),
                };
                (from.iter().map(name).collect::<Result<_, _>>()?, using)
            }
            None => (delete.tables.clone(), from),
        };
        let is_single = names.is_empty();
        if !is_single && (!delete.order_by.is_empty() || delete.limit.is_some()) {
            return Err(errors::wrong_usage("DELETE", "ORDER BY").into());
        }
        let mut modifiers = self.text.split_ascii_whitespace().skip(1).take_while(|w| !w.eq_ignore_ascii_case("from"));
        if modifiers.any(|w| w.eq_ignore_ascii_case("ignore")) {
            return Err(errors::not_supported("DELETE IGNORE of several tables").into());
        }
        let tail = Tail { selection: delete.selection.as_ref(), order: &delete.order_by, limit: delete.limit.as_ref() };
        self.in_block(|| {
            let (scope, level) = self.bind_from(from, false)?;
            let builder = self.builder(&scope);
            let mut outputs = self.outputs_of(&scope);
            let mut gone = Vec::new();
            for name in &names {
                gone.push(self.deleted(&scope, name)?.first);
            }
            if is_single {
                gone.extend(match scope.views.first() {
                    Some(merged) => Some(self.one_table(&scope, merged)?.first),
                    None => scope.tables.first().map(|t| t.first),
                });
            }
            let mut targets = Vec::new();
            for table in &scope.tables {
                if !gone.contains(&table.first) {
                    self.reads(table, &level, &mut outputs, &mut targets);
                    continue;
                }
                self.check_target(table, &level, "DELETE")?;
                self.need_of(table, Privileges::DELETE, Changed::default());
                let key = outputs.key(table);
                let fate = Fate::Goes;
                targets.push(Target { table: table.table.clone(), check: None, key, exclusive: true, fate });
            }
            let query = self.finish(scope.clone(), level, builder, outputs.list, &tail)?;
            self.check_subqueries(&query, &scope, &targets, "DELETE")?;
            Ok(Locked { query, targets, no_wait: false, is_update: false })
        })
    }

    /// The rows that a SELECT ... FOR UPDATE of several tables locks.
    pub(crate) fn locked_rows(&self, select: &ast::Select, clause: &ast::Query, lock: Lock) -> Bound<Locked> {
        if lock.skip_locked {
            return Err(errors::not_supported("SKIP LOCKED of joins").into());
        }
        let of = clause.locks.first().and_then(|l| l.of.as_ref());
        let tail = Tail { selection: select.selection.as_ref(), order: &[], limit: None };
        self.in_block(|| {
            let (scope, level) = self.bind_from(&select.from, false)?;
            let builder = self.builder(&scope);
            let mut outputs = self.outputs_of(&scope);
            let only = of.map(|name| locked_by(&scope, name)).transpose()?;
            let mut targets = Vec::new();
            for table in &scope.tables {
                if is_stored(table, &level) && only.as_ref().is_none_or(|firsts| firsts.contains(&table.first)) {
                    let key = outputs.key(table);
                    let (table, exclusive) = (table.table.clone(), lock.exclusive);
                    targets.push(Target { table, check: None, key, exclusive, fate: Fate::Stays });
                }
            }
            if targets.is_empty() {
                return Err(errors::not_supported("FOR UPDATE of derived tables alone").into());
            }
            let query = self.finish(scope.clone(), level, builder, outputs.list, &tail)?;
            Ok(Locked { query, targets, no_wait: lock.no_wait, is_update: false })
        })
    }

    /// The table that DELETE names.
    fn deleted<'s>(&self, scope: &'s Scope, name: &ast::ObjectName) -> Bound<&'s Visible> {
        match merged_of(scope, name) {
            Some(merged) => self.one_table(scope, merged),
            None => named(scope, name),
        }
    }

    /// # Errors
    /// 1093, 1443: a subquery reads a table that is changed.
    fn check_subqueries(&self, query: &Select, scope: &Scope, targets: &[Target], of: &str) -> Bound<()> {
        let mut read = Vec::new();
        in_subqueries(query, &mut read);
        for target in targets.iter().filter(|t| !matches!(t.fate, Fate::Stays)) {
            if !read.iter().any(|t| t.schema.id == target.table.schema.id) {
                continue;
            }
            let mut own = scope.tables.iter().filter(|t| Rc::ptr_eq(&t.table, &target.table));
            return Err(match own.find_map(|t| t.beneath.as_ref()) {
                // Named twice: by the subquery, too.
                Some(merged) if merged.view.as_ref().is_some_and(|view| self.views.count(view) < 2) => {
                    errors::changed_in_subquery(&merged.shown, of)
                }
                Some(merged) => errors::update_table_used(&merged.shown),
                None => errors::update_table_used(&target.table.schema.name),
            }
            .into());
        }
        Ok(())
    }

    fn in_block<T>(&self, bind: impl FnOnce() -> Bound<T>) -> Bound<T> {
        self.frames.open(None);
        let bound = bind();
        self.frames.close();
        bound
    }

    fn outputs_of<'o>(&'o self, scope: &'o Rc<Scope>) -> Outputs<'o, 'o> {
        let columns = Columns { planner: self, scope, text: "", is_shapeless: true };
        Outputs { columns, list: Vec::new() }
    }

    /// A table that is only read: above READ COMMITTED its rows are locked, too.
    fn reads(&self, table: &Visible, level: &Level, outputs: &mut Outputs<'_, '_>, targets: &mut Vec<Target>) {
        if is_stored(table, level) {
            let key = outputs.key(table);
            let (check, fate) = (None, Fate::Stays);
            targets.push(Target { table: table.table.clone(), check, key, exclusive: false, fate });
        }
    }

    fn check_target(&self, table: &Visible, level: &Level, of: &str) -> Bound<()> {
        check_writable(&table.table)?;
        if is_stored(table, level) { Ok(()) } else { Err(errors::not_updatable(&table.shown, of).into()) }
    }

    fn finish(
        &self,
        scope: Rc<Scope>,
        mut level: Level,
        mut builder: Builder<'_>,
        outputs: Vec<Output>,
        tail: &Tail<'_>,
    ) -> Bound<Select> {
        builder.clause = "where clause";
        let filter = tail.selection.map(|e| builder.condition(e)).transpose()?;
        level.conditions.extend(filter.map(Expr::conjuncts).unwrap_or_default());
        let order = self.order(&mut builder, tail.order)?;
        drop(builder);
        let limit = tail.limit.map(|e| self.builder_over(None, "").build(e)).transpose()?;
        let (offset, lock, group) = (None, None, None);
        let (distinct, counts_all) = (false, false);
        Block { scope, level, outputs, group, order, distinct, counts_all, limit, offset, lock, stays_subquery: false }
            .plan(self)
    }
}

/// What follows the tables.
struct Tail<'t> {
    selection: Option<&'t ast::Expr>,
    order: &'t [ast::OrderByExpr],
    limit: Option<&'t ast::Expr>,
}

fn is_default(e: &ast::Expr) -> bool {
    matches!(e, ast::Expr::Identifier(i) if i.quote_style.is_none() && i.value.eq_ignore_ascii_case("default"))
}

fn is_stored(table: &Visible, level: &Level) -> bool {
    !crate::catalog::information_schema::is_virtual(&table.table.schema)
        && level.items.iter().any(|item| match &item.origin {
            Origin::Table(_) => item.firsts.contains(&table.first),
            Origin::Derived(_) => false,
            Origin::Nested(inner) => is_stored(table, inner),
        })
}

fn named<'s>(scope: &'s Scope, name: &ast::ObjectName) -> Bound<&'s Visible> {
    let parts: Vec<&str> = name.0.iter().filter_map(|p| p.as_ident()).map(|i| i.value.as_str()).collect();
    let found = match parts.as_slice() {
        [table] => scope.table(None, table),
        [database, table] => scope.table(Some(database), table),
        _ => None,
    };
    found.ok_or_else(|| errors::unknown_multi_table(parts.last().unwrap_or(&"")).into())
}

/// The column that an assignment means; to change it is not to read it.
fn target_column<'s>(scope: &'s Scope, target: &AssignmentTarget) -> Bound<(&'s Visible, u16)> {
    let AssignmentTarget::ColumnName(name) = target else { return Err(errors::syntax(&target.to_string()).into()) };
    let unknown = || errors::unknown_column(&name.to_string(), "field list");
    let parts: Vec<&str> = name.0.iter().filter_map(|p| p.as_ident()).map(|i| i.value.as_str()).collect();
    let found = match parts.as_slice() {
        [column] => scope.column(column, "field list")?,
        [table, column] => scope.qualified(None, table, column),
        [database, table, column] => scope.qualified(Some(database), table, column),
        _ => None,
    };
    match found.ok_or_else(unknown)? {
        Expr::Column(c) if c.slot < COMPUTED => {
            let table = scope.of_slot(c.slot).ok_or_else(|| errors::internal("a column without a table"))?;
            Ok((table, c.slot - table.first))
        }
        _ if scope.views.is_empty() => Err(unknown().into()),
        _ => Err(errors::column_not_updatable(&last_of(name)).into()),
    }
}

fn last_of(name: &ast::ObjectName) -> String {
    name.0.last().and_then(|p| p.as_ident()).map(|i| i.value.clone()).unwrap_or_default()
}

fn merged_of<'s>(scope: &'s Scope, name: &ast::ObjectName) -> Option<&'s Rc<Merged>> {
    let parts: Vec<&str> = name.0.iter().filter_map(|p| p.as_ident()).map(|i| i.value.as_str()).collect();
    match parts.as_slice() {
        [table] => scope.merged(None, table),
        [database, table] => scope.merged(Some(database), table),
        _ => None,
    }
}

/// First slots of the tables that FOR UPDATE OF means.
fn locked_by(scope: &Scope, name: &ast::ObjectName) -> Bound<Vec<u16>> {
    let Some(merged) = merged_of(scope, name) else { return Ok(vec![named(scope, name)?.first]) };
    let beneath = scope.tables.iter().filter(|t| t.beneath.as_ref().is_some_and(|b| Rc::ptr_eq(b, merged)));
    Ok(beneath.map(|t| t.first).collect())
}

/// # Errors
/// 1393: several tables of one view are changed.
fn one_of_each_view(scope: &Scope, assigned: &[(u16, u16, Expr)]) -> Bound<()> {
    for merged in &scope.views {
        let mut firsts = assigned.iter().map(|(first, ..)| *first).filter(|first| {
            let table = scope.tables.iter().find(|t| t.first == *first);
            table.and_then(|t| t.beneath.as_ref()).is_some_and(|b| Rc::ptr_eq(b, merged))
        });
        if let Some(one) = firsts.next()
            && firsts.any(|other| other != one)
        {
            return Err(errors::several_tables_of_view(merged.database(), merged.name()).into());
        }
    }
    Ok(())
}

/// Tables that subqueries of a block name, not those of derived tables, whose rows are kept.
fn in_subqueries<'q>(query: &'q Select, out: &mut Vec<&'q Rc<Table>>) {
    for given in &query.given {
        // MATCH finds its rows before any is changed.
        if let Given::Value(subquery) = given
            && !matches!(subquery.asked, Asked::Found)
        {
            named_by(&subquery.query, out);
        }
    }
    for step in query.join.iter().flat_map(|j| &j.steps) {
        match &step.kind {
            StepKind::Nothing => {}
            StepKind::Compute(subquery) => named_by(&subquery.query, out),
            StepKind::Join(join) => {
                if let Leaf::Derived(derived) = &join.leaf
                    && let (true, Body::Select(select)) = (derived.is_subquery, &derived.body)
                {
                    named_by(select, out);
                }
            }
        }
    }
}

/// Tables that a subquery names, also in its own subqueries.
fn named_by<'q>(query: &'q Select, out: &mut Vec<&'q Rc<Table>>) {
    out.extend(&query.table);
    for step in query.join.iter().flat_map(|j| &j.steps) {
        if let StepKind::Join(join) = &step.kind
            && let Leaf::Table { table, .. } = &join.leaf
        {
            out.push(table);
        }
    }
    in_subqueries(query, out);
}
