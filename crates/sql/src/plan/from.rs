//! FROM: from its syntax tree to tables in a scope and the joins between them.
//!
//! A chain of joins is a list of items, each joined to those before it. Inner joins add their conditions to those of WHERE; a LEFT JOIN keeps its own.
//! `a RIGHT JOIN b` is `b LEFT JOIN a`. Where the right side of an outer join is a join itself it is a list of its own.

use std::{cell::Cell, rc::Rc};

use sqlparser::{
    ast::{self, JoinConstraint, JoinOperator, TableFactor},
    tokenizer::Location,
};

use super::{
    Planner, Unplanned,
    bind::{Builder, text::compared_as},
    hint::{Hints, JoinRules, Uses},
    query::Derived,
    scope::{COMPUTED, Scope, Starred, Visible},
    select::OrderKey,
};
use crate::{
    accounts::Privileges,
    catalog::{Table, view::View},
    errors,
    expr::{CompareOp, Expr, coercion},
    wire::SqlError,
};

type Bound<T> = Result<T, Unplanned>;

/// What stands in a FROM clause.
#[derive(Debug)]
pub enum Origin {
    Table(Rc<Table>),
    Derived(Rc<Derived>),
    Nested(Level),
}

#[derive(Debug)]
pub struct Item {
    pub origin: Origin,
    /// First slots of its tables.
    pub firsts: Vec<u16>,
    /// Joined by LEFT JOIN with these conditions, or asked whether there is such a row.
    pub left: Option<Vec<Expr>>,
    /// It stood behind EXISTS (true) or NOT EXISTS: its rows are not wanted.
    pub exists: Option<bool>,
    /// STRAIGHT_JOIN: not before what is written before it.
    pub is_straight: bool,
    /// What hints say of it.
    pub uses: Option<Rc<Uses>>,
}

/// Items joined in a row, and conditions on all of them.
#[derive(Default, Debug)]
pub struct Level {
    pub items: Vec<Item>,
    pub conditions: Vec<Expr>,
    /// What a merged view that stands alone is ordered by.
    pub order: Vec<OrderKey>,
    /// In which order hints want its items joined.
    pub rules: Option<Rc<JoinRules>>,
}

impl Level {
    /// A derived table alone, which has no name.
    pub fn alone(derived: Rc<Derived>) -> (Rc<Scope>, Level) {
        let visible = Visible {
            shown: String::new(),
            database: String::new(),
            table: derived.table.clone(),
            first: 0,
            is_nullable: false,
            beneath: None,
        };
        let item = Item {
            origin: Origin::Derived(derived),
            firsts: vec![0],
            left: None,
            exists: None,
            is_straight: false,
            uses: None,
        };
        (Rc::new(Scope::of(visible)), Level { items: vec![item], ..Level::default() })
    }
}

#[derive(Clone, Copy)]
enum Side {
    Inner,
    Left,
    Right,
}

pub(crate) struct From<'p, 'a> {
    pub planner: &'p Planner<'a>,
    pub next: Cell<u16>,
}

/// What surrounds a table in FROM.
#[derive(Clone, Copy, Default)]
pub(crate) struct Around<'b> {
    /// What a LATERAL table sees.
    pub before: &'b [&'b Scope],
    /// Its columns must be columns: an outer join may fill them with NULL, or they are joined by name.
    pub is_plain: bool,
}

fn place_of(name: &ast::ObjectName) -> Option<Location> {
    name.0.last().and_then(|part| part.as_ident()).map(|ident| ident.span.start)
}

impl Planner<'_> {
    /// Binds a FROM clause; names mean its columns from now on. `merges`: derived tables may be parts of the block.
    pub(crate) fn bind_from(&self, list: &[ast::TableWithJoins], merges: bool) -> Bound<(Rc<Scope>, Level)> {
        let from = From { planner: self, next: Cell::new(0) };
        let hints = self.hints_here();
        let unchecked = hints.map(Hints::begin_check);
        let before = self.merges.set(false);
        self.merges.set(before && merges);
        let bound = from.list(list, false);
        self.merges.set(before);
        let (scope, mut level) = bound?;
        let scope = Rc::new(scope);
        self.frames.show(&scope);
        if let Some((hints, at)) = hints.zip(unchecked) {
            hints.check(&scope.hinted(), at);
            level.rules = hints.join_rules();
        }
        Ok((scope, level))
    }
}

impl Planner<'_> {
    /// The statement's hints, outside of views.
    pub(crate) fn hints_here(&self) -> Option<&Hints> {
        self.hints.as_ref().filter(|_| self.views.is_outermost())
    }

    /// What hints say of a table, or of what is none.
    pub(crate) fn uses(
        &self,
        table: Option<&Table>,
        shown: &str,
        listed: &[ast::TableIndexHints],
    ) -> Result<Option<Rc<Uses>>, SqlError> {
        let known = match table.filter(|_| !listed.is_empty()) {
            Some(table) => Uses::of(table, shown, listed)?,
            None => Uses::default(),
        };
        Ok(match self.hints_here() {
            Some(hints) => hints.uses(table, shown, known).kept(),
            None => known.kept(),
        })
    }

    /// Binds a view alone, as FROM would.
    pub(crate) fn bind_view(&self, view: &Rc<View>, shown: String) -> Bound<(Rc<Scope>, Level)> {
        let from = From { planner: self, next: Cell::new(0) };
        let (scope, level) = from.view(view, shown, false)?;
        Ok((Rc::new(scope), level))
    }
}

fn inner(mut left: Level, right: Level, on: Vec<Expr>, is_straight: bool) -> Level {
    let first = left.items.len();
    left.items.extend(right.items);
    left.items[first].is_straight |= is_straight;
    left.conditions.extend(right.conditions);
    left.conditions.extend(on);
    left.order.clear();
    left
}

/// `left LEFT JOIN right ON on`.
fn outer(mut left: Level, mut right: Level, mut on: Vec<Expr>) -> Level {
    left.order.clear();
    let firsts = right.items.iter().flat_map(|item| item.firsts.clone()).collect();
    if right.items.len() == 1 && right.items[0].left.is_none() {
        on.append(&mut right.conditions);
        if let Some(one) = right.items.pop() {
            left.items.push(Item { left: Some(on), ..one });
        }
    } else {
        left.items.push(Item {
            origin: Origin::Nested(right),
            firsts,
            left: Some(on),
            exists: None,
            is_straight: false,
            uses: None,
        });
    }
    left
}

fn operator(op: &JoinOperator) -> Bound<(Side, &JoinConstraint, bool)> {
    use JoinOperator as J;
    Ok(match op {
        J::Join(on) | J::Inner(on) | J::CrossJoin(on) => (Side::Inner, on, false),
        J::StraightJoin(on) => (Side::Inner, on, true),
        J::Left(on) | J::LeftOuter(on) => (Side::Left, on, false),
        J::Right(on) | J::RightOuter(on) => (Side::Right, on, false),
        J::FullOuter(_) => return Err(errors::syntax("FULL").into()),
        _ => return Err(errors::not_supported("this form of JOIN").into()),
    })
}

impl From<'_, '_> {
    /// A list of tables and joins.
    pub fn list(&self, list: &[ast::TableWithJoins], is_plain: bool) -> Bound<(Scope, Level)> {
        let mut all: Option<(Scope, Level)> = None;
        for one in list {
            let before = all.as_ref().map(|(scope, _)| scope);
            let right = self.chain(one, Around { before: before.as_slice(), is_plain })?;
            all = Some(match all {
                None => right,
                Some(left) => {
                    let scope = left.0.join(right.0, &[])?;
                    (scope, inner(left.1, right.1, Vec::new(), false))
                }
            });
        }
        Ok(all.unwrap_or_default())
    }

    fn chain(&self, chain: &ast::TableWithJoins, around: Around<'_>) -> Bound<(Scope, Level)> {
        let joins = chain.joins.iter().map(|join| operator(&join.join_operator)).collect::<Bound<Vec<_>>>()?;
        let is_named = |on: &JoinConstraint| matches!(on, JoinConstraint::Using(_) | JoinConstraint::Natural);
        let is_plain = around.is_plain || joins.iter().any(|(_, on, _)| is_named(on));
        let is_right = |joins: &[(Side, &JoinConstraint, bool)]| joins.iter().any(|j| matches!(j.0, Side::Right));
        let mut left =
            self.factor(&chain.relation, Around { is_plain: is_plain || is_right(&joins), before: around.before })?;
        for (at, (join, (side, constraint, is_straight))) in chain.joins.iter().zip(&joins).enumerate() {
            let mut seen = around.before.to_vec();
            if !matches!(side, Side::Right) {
                seen.push(&left.0);
            }
            let may_be_null = matches!(side, Side::Left) || is_right(&joins[at + 1..]);
            let right = self.factor(&join.relation, Around { before: &seen, is_plain: is_plain || may_be_null })?;
            left = self.joined(left, right, (*side, constraint, *is_straight))?;
        }
        Ok(left)
    }

    fn joined(
        &self,
        (left_scope, left): (Scope, Level),
        (right_scope, right): (Scope, Level),
        (side, constraint, is_straight): (Side, &JoinConstraint, bool),
    ) -> Bound<(Scope, Level)> {
        // Of a RIGHT JOIN the columns are shown as of the LEFT JOIN that it is.
        let is_swapped = matches!(side, Side::Right);
        let (mut first, mut second) = if is_swapped { (right_scope, left_scope) } else { (left_scope, right_scope) };
        let names: Option<Vec<String>> = match constraint {
            JoinConstraint::Using(names) => Some(names.iter().map(last_name).collect()),
            JoinConstraint::Natural => Some(common(&first, &second)?),
            _ => None,
        };
        let twins = names.map_or(Ok(Vec::new()), |names| twins(&first, &second, &names))?;
        let mut on = Vec::new();
        for (a, b) in &twins {
            on.push(self.equal(&first, *a, &second, *b)?);
        }
        if !matches!(side, Side::Inner) {
            second.tables.iter_mut().for_each(|t| t.is_nullable = true);
        }
        first = first.join(second, &twins)?;
        if let JoinConstraint::On(condition) = constraint {
            on.extend(self.condition(&first, condition)?);
        }
        let level = match side {
            Side::Inner => inner(left, right, on, is_straight),
            Side::Left => outer(left, right, on),
            Side::Right => outer(right, left, on),
        };
        Ok((first, level))
    }

    fn condition(&self, scope: &Scope, condition: &ast::Expr) -> Bound<Vec<Expr>> {
        let scope = Rc::new(scope.clone());
        self.planner.frames.show(&scope);
        let mut builder = self.planner.builder(&scope);
        builder.clause = "on clause";
        let built = builder.build(condition)?.conjuncts();
        // What is written behind does not see these tables.
        self.planner.frames.show(&Rc::default());
        Ok(built)
    }

    fn equal(&self, left: &Scope, a: u16, right: &Scope, b: u16) -> Bound<Expr> {
        let column = |scope: &Scope, slot| {
            let ty = scope.type_of(slot).ok_or_else(|| errors::internal("a column without a table"))?;
            Ok::<_, Unplanned>(Expr::Column(crate::expr::ColumnRef { slot, ty }))
        };
        let (a, b) = (column(left, a)?, column(right, b)?);
        let collation = coercion::compared(&[&a, &b], &self.planner.param_kinds, "=")?;
        let [a, b] = [a, b].map(|e| compared_as(collation, e, &self.planner.param_kinds));
        Ok(Expr::Compare(CompareOp::Eq, Box::new(a), Box::new(b), collation))
    }

    fn factor(&self, factor: &TableFactor, around: Around<'_>) -> Bound<(Scope, Level)> {
        match factor {
            TableFactor::Table { name, alias, args: None, partitions, sample: None, index_hints, .. }
                if partitions.is_empty() =>
            {
                if alias.as_ref().is_some_and(|a| !a.columns.is_empty()) {
                    return Err(errors::syntax("(").into());
                }
                let alias = alias.as_ref().map(|a| a.name.value.clone());
                if let Some(merged) = self.common_merged(name, alias.as_deref(), around.is_plain)? {
                    return Ok(merged);
                }
                if let Some(derived) = self.planner.common_table(name)? {
                    let shown = alias.unwrap_or_else(|| derived.table.schema.name.clone());
                    let table = derived.table.clone();
                    return self.leaf(Origin::Derived(derived), table, shown, index_hints);
                }
                if let Some(view) = self.planner.view(name)? {
                    let shown = alias.unwrap_or_else(|| view.name().to_owned());
                    if let Some(name) = index_hints.iter().find_map(|hint| hint.index_names.first()) {
                        return Err(errors::no_key_of_table(&name.value, &shown).into());
                    }
                    self.planner.need(view.database(), view.name(), Privileges::SELECT);
                    self.planner.refer(view.database(), view.name(), &shown, place_of(name));
                    return self.view(&view, shown, around.is_plain);
                }
                let table = self.planner.resolve(name)?;
                self.planner.need(&table.schema.database, &table.schema.name, Privileges::SELECT);
                let shown = alias.unwrap_or_else(|| table.schema.name.clone());
                self.planner.refer(&table.schema.database, &table.schema.name, &shown, place_of(name));
                self.leaf(Origin::Table(table.clone()), table, shown, index_hints)
            }
            TableFactor::Derived { lateral, subquery, alias, sample: None } => {
                let alias = alias.as_ref().ok_or_else(errors::derived_without_alias)?;
                let columns: Vec<String> = alias.columns.iter().map(|c| c.name.value.clone()).collect();
                let name = &alias.name.value;
                if !lateral && let Some(merged) = self.derived_merged(subquery, &columns, name, around.is_plain)? {
                    return Ok(merged);
                }
                let derived = match lateral {
                    true => self.planner.lateral(subquery, name, &columns, Scope::of_all(around.before))?,
                    false => self.planner.derived(subquery, name, &columns)?,
                };
                let table = derived.table.clone();
                self.leaf(Origin::Derived(derived), table, alias.name.value.clone(), &[])
            }
            TableFactor::JsonTable { json_expr, json_path, columns, alias } => {
                let alias = alias.as_ref().ok_or_else(errors::json_table_without_alias)?;
                let (name, before) = (&alias.name.value, Scope::of_all(around.before));
                let derived = self.planner.json_table((json_expr, &json_path.value), columns, name, before)?;
                let table = derived.table.clone();
                self.leaf(Origin::Derived(derived), table, name.clone(), &[])
            }
            TableFactor::NestedJoin { table_with_joins, alias: None } => self.chain(table_with_joins, around),
            _ => Err(errors::not_supported("this form of FROM").into()),
        }
    }

    pub fn leaf(
        &self,
        origin: Origin,
        table: Rc<Table>,
        shown: String,
        hints: &[ast::TableIndexHints],
    ) -> Bound<(Scope, Level)> {
        let stored = matches!(origin, Origin::Table(_)).then_some(&*table);
        let uses = self.planner.uses(stored, &shown, hints)?;
        let first = self.next.get();
        let end = usize::from(first) + table.schema.columns.len();
        let next = u16::try_from(end).ok().filter(|end| *end < COMPUTED);
        self.next.set(next.ok_or_else(|| errors::not_supported("joins of this many columns"))?);
        let item = Item { origin, firsts: vec![first], left: None, exists: None, is_straight: false, uses };
        let database = table.schema.database.clone();
        let visible = Visible { shown, database, table, first, is_nullable: false, beneath: None };
        let scope = Scope::of(visible);
        Ok((scope, Level { items: vec![item], ..Level::default() }))
    }
}

fn last_name(name: &ast::ObjectName) -> String {
    name.0.last().and_then(|p| p.as_ident()).map(|i| i.value.clone()).unwrap_or_default()
}

/// Names that both sides have.
fn common(left: &Scope, right: &Scope) -> Bound<Vec<String>> {
    let (mut names, others) = (Vec::new(), right.star());
    for Starred { name, .. } in left.star() {
        let is_listed = || others.iter().any(|other| other.name.eq_ignore_ascii_case(&name));
        if right.column(&name, "from clause")?.is_some() && is_listed() {
            names.push(name);
        }
    }
    Ok(names)
}

/// The pairs of columns that USING makes one, in the order of the left side.
fn twins(left: &Scope, right: &Scope, names: &[String]) -> Bound<Vec<(u16, u16)>> {
    let slot = |scope: &Scope, name: &str| match scope.column(name, "from clause")? {
        Some(Expr::Column(c)) => Ok::<u16, Unplanned>(c.slot),
        _ => Err(errors::unknown_column(name, "from clause").into()),
    };
    let mut pairs = Vec::new();
    for name in names {
        pairs.push((slot(left, name)?, slot(right, name)?));
    }
    let order = left.star();
    pairs.sort_by_key(|(a, _)| order.iter().position(|s| s.slot() == Some(*a)));
    Ok(pairs)
}

impl<'a> Planner<'a> {
    /// For expressions over one table, or over none.
    pub(crate) fn builder_over<'b>(&'b self, table: Option<&'b apus_types::TableSchema>, shown: &str) -> Builder<'b> {
        let mut builder = Builder::new(table, shown, self.env.database.as_deref().unwrap_or(""));
        builder.assigns = self.assigns();
        builder.from_digest = self.from_digest;
        builder.no_backslash = self.env.variables.syntax.no_backslash;
        builder.signed_difference = self.env.variables.signed_difference;
        builder.names = self.env.names.as_ref();
        builder.functions = Some(self);
        builder
    }

    /// For expressions over the tables of a scope.
    pub(crate) fn builder<'b>(&'b self, scope: &Rc<Scope>) -> Builder<'b> {
        let mut builder = self.builder_over(None, "");
        builder.param_kinds = self.param_kinds.clone();
        builder.env = Some(self.env);
        builder.scope = Some(scope.clone());
        builder.planner = Some(self);
        builder
    }
}
