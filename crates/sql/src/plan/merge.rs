//! Derived tables and common table expressions whose tables stand in the block around, as those of a view do.
//!
//! `SELECT ... FROM (SELECT ...) d WHERE d.id = 1` is the key plan that it is of the table: programs that make reports, and builders of queries, wrap what they
//! are given. What merges is what MySQL merges: one SELECT with tables, without WITH, DISTINCT, groups, windows, HAVING and LIMIT. What a row would have computed once stays a derived
//! table here: a select list with a subquery, a variable, a parameter, or a function that is not the same for every row; so does one that has hints, or that NO_MERGE names. Only a SELECT merges, and not where it locks rows: those of a
//! derived table are not locked.

use std::{cell::Cell, rc::Rc};

use sqlparser::ast::{self, GroupByExpr, SelectItem, SetExpr};

use super::{
    Planner, Unplanned,
    bind::AggregateKind,
    from::{From, Level},
    outputs::Columns,
    scope::{COMPUTED, Merged, Scope},
    select::{OrderKey, Output, Select},
    view::is_computed,
};
use crate::{
    catalog::view::{Check, View},
    errors,
    expr::Expr,
    parse::view_text,
};

type Bound<T> = Result<T, Unplanned>;

/// A merged table with more tables than this stays one of its own: those of a block are counted ([`super::scope::TABLES_MAX`]).
const MERGED_TABLES_MAX: usize = 20;
const TOO_MANY_TABLES: u16 = 1116;

/// Whether derived tables merge, in what is bound now.
#[derive(Default)]
pub struct Merges(Cell<bool>);

impl Merges {
    /// Sets it, and gives what it was.
    pub fn set(&self, merges: bool) -> bool {
        self.0.replace(merges)
    }
}

/// What is to be merged.
pub(crate) struct Merging<'q> {
    pub query: &'q ast::Query,
    pub select: &'q ast::Select,
    /// Its alias or name.
    pub shown: String,
    /// Names of its columns; none: as the select list calls them.
    pub names: Vec<String>,
    pub view: Option<&'q Rc<View>>,
    /// Its columns must be columns ([`super::from::Around`]).
    pub is_plain: bool,
}

impl Planner<'_> {
    /// Plans a query whose derived tables merge; if the block had too many tables then, they do not.
    pub(crate) fn merging(&self, query: &ast::Query) -> Bound<Select> {
        self.merges.set(true);
        let planned = self.select(query);
        self.merges.set(false);
        match planned {
            Err(Unplanned::Error(e)) if e.errno == TOO_MANY_TABLES => self.select(query),
            planned => planned,
        }
    }
}

impl From<'_, '_> {
    /// The tables of a derived table; `None`: it is one of its own.
    pub fn derived_merged(
        &self,
        query: &ast::Query,
        names: &[String],
        shown: &str,
        is_plain: bool,
    ) -> Bound<Option<(Scope, Level)>> {
        let select = may_merge(query).filter(|select| !is_plain || has_columns_only(select));
        let is_hinted = |select: &ast::Select| {
            let hints = self.planner.hints_here();
            hints.is_some_and(|hints| hints.keeps_table(shown) || hints.has_any(select.select_token.0.span.start))
        };
        let select = select.filter(|select| self.planner.merges.0.get() && !is_hinted(select));
        let Some(select) = select else { return Ok(None) };
        let (shown, names) = (shown.to_owned(), names.to_vec());
        self.merged(Merging { query, select, shown, names, view: None, is_plain })
    }

    /// The same of the common table expression of this name.
    pub fn common_merged(
        &self,
        name: &ast::ObjectName,
        shown: Option<&str>,
        is_plain: bool,
    ) -> Bound<Option<(Scope, Level)>> {
        let Some(text) = self.planner.common_text(name) else { return Ok(None) };
        // It sees those that were defined before it.
        let behind = self.planner.common.borrow_mut().split_off(text.known);
        let merged = self.derived_merged(&text.query, &text.columns, shown.unwrap_or(&text.name), is_plain);
        self.planner.common.borrow_mut().extend(behind);
        merged
    }

    /// Binds a query in the block that names it; `None`: it has to be a table of its own, and nothing is bound.
    pub fn merged(&self, what: Merging<'_>) -> Bound<Option<(Scope, Level)>> {
        let (next, extent) = (self.next.get(), self.planner.frames.extent());
        // Of a view's text there are no hints.
        let hints = self.planner.hints_here();
        let around = hints.map(|hints| hints.enter(what.select.select_token.0.span.start));
        let merged = self.bound(what);
        hints.zip(around).into_iter().for_each(|(hints, around)| hints.leave(around));
        if matches!(merged, Ok(None)) {
            self.next.set(next);
            self.planner.frames.shrink_to(extent);
        }
        self.planner.frames.show(&Rc::default());
        merged
    }

    fn bound(&self, what: Merging<'_>) -> Bound<Option<(Scope, Level)>> {
        let (query, select, view) = (what.query, what.select, what.view);
        let first = self.next.get();
        let (scope, mut level) = self.list(&select.from, what.is_plain)?;
        if view.is_none() && scope.tables.len() > MERGED_TABLES_MAX {
            return Ok(None);
        }
        let scope = Rc::new(scope);
        self.planner.frames.show(&scope);
        let mut builder = self.planner.builder(&scope);
        builder.clause = "where clause";
        let own = select.selection.as_ref().map(|e| builder.condition(e)).transpose()?;
        let own = own.map(Expr::conjuncts).unwrap_or_default();
        builder.clause = "field list";
        if view.is_some() {
            self.planner.begin_columns();
        }
        let outputs = Columns { planner: self.planner, scope: &scope, text: "", is_shapeless: false }
            .outputs(&mut builder, select);
        let reads = self.planner.end_columns();
        let outputs = outputs?;
        builder.aliases = outputs.iter().map(|o| (o.def.name.clone(), o.expr.clone())).collect();
        let order = self.planner.order_of(query, &mut builder, &outputs)?;
        drop(builder);
        if (what.is_plain && !are_columns(&outputs)) || (view.is_none() && self.is_made_once(&outputs, &order, &own)?) {
            return Ok(None);
        }
        let checks = checks(view, &scope, &level, &own);
        level.conditions.extend(own);
        if !order.is_empty() {
            level.order = order;
        }
        let names = names(what.names, &outputs, view.is_none())?;
        let columns = names.into_iter().zip(outputs.into_iter().map(|o| o.expr)).collect();
        let merged = Rc::new(Merged { shown: what.shown, view: view.cloned(), columns, reads, first, checks });
        Ok(Some(((*scope).clone().beneath(merged), level)))
    }

    /// Something in it is to be computed once for each of its rows.
    ///
    /// # Errors
    /// A normal form whose literals are in the select list is planned with them.
    fn is_made_once(&self, outputs: &[Output], order: &[OrderKey], conditions: &[Expr]) -> Bound<bool> {
        let mut shown = outputs.iter().map(|o| &o.expr).chain(order.iter().map(|key| &key.expr));
        if shown.clone().any(|e| e.has_param() || e.has_user_variable()) {
            return if self.planner.from_digest { Err(Unplanned::Structural) } else { Ok(true) };
        }
        let varies = |e: &Expr| match e {
            Expr::Call(func, ..) => func.varies(),
            Expr::Stored(..) | Expr::Variable(..) => true,
            _ => false,
        };
        Ok(shown.any(|e| e.any(varies) || is_computed(e)) || conditions.iter().any(|e| e.any(varies)))
    }
}

/// What a row written through a view must satisfy.
fn checks(view: Option<&Rc<View>>, scope: &Scope, level: &Level, own: &[Expr]) -> Vec<Expr> {
    let beneath = scope.views.iter().flat_map(|v| v.checks.iter().cloned());
    match view.map_or(Check::None, |view| view.definition.check) {
        Check::None => beneath.collect(),
        Check::Local => beneath.chain(own.iter().cloned()).collect(),
        Check::Cascaded => level.conditions.iter().chain(own).cloned().collect(),
    }
}

/// # Errors
/// 1353, 1060.
fn names(given: Vec<String>, outputs: &[Output], are_unique: bool) -> errors::Result<Vec<String>> {
    let names = if given.is_empty() { outputs.iter().map(|o| o.def.name.clone()).collect() } else { given };
    if names.len() != outputs.len() {
        return Err(errors::alias_columns());
    }
    let is_second = |(at, name): &(usize, &String)| names[..*at].iter().any(|n| n.eq_ignore_ascii_case(name));
    match names.iter().enumerate().find(is_second) {
        Some((_, name)) if are_unique => Err(errors::duplicate_column(name)),
        _ => Ok(names),
    }
}

/// The SELECT of a query that is one SELECT of rows of tables as they are.
fn may_merge(query: &ast::Query) -> Option<&ast::Select> {
    let SetExpr::Select(select) = &*query.body else { return None };
    let is_ungrouped =
        matches!(&select.group_by, GroupByExpr::Expressions(keys, with) if keys.is_empty() && with.is_empty());
    let is_one = query.with.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none()
        && query.locks.is_empty()
        && query.pipe_operators.is_empty()
        && select.distinct.is_none()
        && select.having.is_none()
        && select.qualify.is_none()
        && select.into.is_none()
        && select.named_window.is_empty()
        && select.select_modifiers.is_none();
    let has_tables = !select.from.is_empty() && !view_text::is_dual(&select.from);
    let is_of_rows = || !select.projection.iter().any(|item| asks_for_more(&item.to_string()));
    (is_one && is_ungrouped && has_tables && is_of_rows()).then_some(select)
}

/// A text with an aggregate, a window or a query in it, or one that looks so.
fn asks_for_more(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let mut words = text.split_inclusive(|c: char| !c.is_alphanumeric() && c != '_');
    words.any(|word| match word.strip_suffix('(') {
        Some(called) => called == "over" || AggregateKind::of_name(called).is_some(),
        None => matches!(word.trim_end_matches(|c: char| !c.is_alphanumeric() && c != '_'), "select" | "over"),
    })
}

/// A select list of columns, and conditions without subqueries.
pub(crate) fn has_columns_only(select: &ast::Select) -> bool {
    let is_column = |e: &ast::Expr| matches!(e, ast::Expr::Identifier(_) | ast::Expr::CompoundIdentifier(_));
    let is_plain = |item: &SelectItem| match item {
        SelectItem::ExprWithAlias { expr, .. } | SelectItem::UnnamedExpr(expr) => is_column(expr),
        SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..) => true,
        SelectItem::ExprWithAliases { .. } => false,
    };
    select.projection.iter().all(is_plain) && !select.selection.as_ref().is_some_and(|e| asks_for_more(&e.to_string()))
}

/// Columns of tables, each once.
fn are_columns(outputs: &[Output]) -> bool {
    let slot = |o: &Output| if let Expr::Column(c) = &o.expr { Some(c.slot) } else { None };
    let mut seen = Vec::with_capacity(outputs.len());
    outputs.iter().all(|output| {
        let slot = slot(output).filter(|slot| *slot < COMPUTED && !seen.contains(slot));
        seen.extend(slot);
        slot.is_some()
    })
}
