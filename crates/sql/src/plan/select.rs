//! SELECT: one block, from its syntax tree to names and types.

use std::rc::Rc;

use apus_types::{RowLayout, collate::Collation};
use sqlparser::{
    ast::{self, GroupByExpr, LimitClause, OrderByKind, SetExpr},
    tokenizer::Location,
};

use super::{
    Planner, Unplanned, access,
    bind::{Aggregate, Builder, Precedence, WindowPlace, ranked},
    block::Block,
    derived_condition_pushdown,
    hint::JoinRules,
    needs::Names,
    outputs::Columns,
    pushed_group::PushedGroup,
    query::{Given, Join},
    rollup,
    shape::Shape,
    window::Windows,
};
use crate::{
    admin::set::expression,
    catalog::Table,
    errors,
    expr::{ArithOp, Expr, Kind, coercion::collation_of},
    parse::view_text,
    wire::{ColumnDef, Heading},
};

#[derive(Debug)]
pub struct Output {
    pub expr: Expr,
    pub kind: Kind,
    pub def: ColumnDef,
    /// The column that it makes in a table or a view.
    pub shape: Shape,
}

#[derive(Clone, PartialEq, Debug)]
pub struct OrderKey {
    pub expr: Expr,
    pub kind: Kind,
    pub collation: Collation,
    pub descending: bool,
}

#[derive(Clone, Debug)]
pub struct Group {
    pub keys: Vec<OrderKey>,
    pub aggregates: Vec<Aggregate>,
    /// All of them by number; those of one argument, which is evaluated once for a row, together.
    pub same_argument: Vec<Vec<usize>>,
    pub having: Option<Expr>,
    /// Each row is a group by itself: there are window functions, and no GROUP BY.
    pub each_row: bool,
    /// There are also the groups of the first keys alone, down to that of all rows.
    pub rollup: bool,
    /// For each call of GROUPING() the keys that it names.
    pub groupings: Vec<Vec<usize>>,
    pub windows: Option<Box<Windows>>,
}

/// The aggregates by number, those of the same argument together where nobody can tell how often that is evaluated.
fn same_argument(aggregates: &[Aggregate]) -> Vec<Vec<usize>> {
    let is_plain = |e: &Expr| match e {
        Expr::Column(c) => matches!(Kind::of(c.ty), Kind::Int | Kind::UInt | Kind::Decimal(_) | Kind::Double),
        Expr::Arith(op, ..) => matches!(op, ArithOp::Add | ArithOp::Sub | ArithOp::SignedSub | ArithOp::Mul),
        Expr::Const(d) => d.is_number(),
        _ => false,
    };
    let mut all: Vec<Vec<usize>> = Vec::new();
    for (at, aggregate) in aggregates.iter().enumerate() {
        let shared = aggregate.argument.as_ref().filter(|e| !e.any(|e| !is_plain(e)));
        let same = |list: &&mut Vec<usize>| shared.is_some() && aggregates[list[0]].argument.as_ref() == shared;
        match all.iter_mut().find(same) {
            Some(list) => list.push(at),
            None => all.push(vec![at]),
        }
    }
    all
}

impl Group {
    /// How many values a group has before those of window functions.
    pub fn values_before_windows(&self) -> usize {
        self.aggregates.len() + self.groupings.len() + if self.rollup { self.keys.len() } else { 0 }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Lock {
    pub exclusive: bool,
    pub no_wait: bool,
    pub skip_locked: bool,
}

#[derive(Debug)]
pub struct Select {
    /// All tables that it reads, also in subqueries.
    pub reads: Vec<Rc<Table>>,
    pub names: Names,
    /// What it is given before it is run, of a block that is more than one table.
    pub given: Vec<Given>,
    /// Its joins and subqueries, in place of `table` and `access`.
    pub join: Option<Box<Join>>,
    pub table: Option<Rc<Table>>,
    /// Name of `table` in the statement.
    pub shown: String,
    pub access: Option<access::Access>,
    /// Columns fetched; `None`: whole rows.
    pub columns: Option<Vec<u16>>,
    pub layout: RowLayout,
    pub outputs: Vec<Output>,
    pub defs: Heading,
    pub group: Option<Group>,
    /// Sorted here, unless the path delivers in order.
    pub order: Vec<OrderKey>,
    pub in_order: bool,
    pub reverse: bool,
    pub distinct: bool,
    /// SQL_CALC_FOUND_ROWS: rows behind the LIMIT are counted, too.
    pub counts_all: bool,
    pub limit: Option<Expr>,
    pub offset: Option<Expr>,
    /// Parameters or variables decide the types of its columns, or those of a block in it.
    pub is_typed_by_values: bool,
    pub lock: Option<Lock>,
    /// What a locking read of several tables locks.
    pub locked: Option<Box<super::change::Locked>>,
    /// How data nodes put its rows together, where they can.
    pub pushdown: Option<PushedGroup>,
    /// A hint wants it to stay a subquery.
    pub stays_subquery: bool,
}

impl Select {
    /// One value, for which no row is read.
    pub fn is_plain_value(&self) -> bool {
        let reads = self.table.is_some() || self.join.is_some() || self.access.is_some() || !self.given.is_empty();
        !reads && self.group.is_none() && self.limit.is_none() && self.outputs.len() == 1
    }
}

/// Where the first SELECT of a body stands.
fn select_at(body: &SetExpr) -> Option<Location> {
    match body {
        SetExpr::Select(select) => Some(select.select_token.0.span.start),
        SetExpr::SetOperation { left, .. } => select_at(left),
        SetExpr::Query(query) => select_at(&query.body),
        _ => None,
    }
}

impl Planner<'_> {
    /// Binds and plans a query, in a block of its own.
    pub(crate) fn select(&self, query: &ast::Query) -> Result<Select, Unplanned> {
        self.frames.open(select_at(&query.body).filter(|_| self.views.is_outermost()));
        let known = self.common.borrow().len();
        let planned = self.select_in_block(query);
        self.common.borrow_mut().truncate(known);
        self.frames.close();
        planned
    }

    fn select_in_block(&self, query: &ast::Query) -> Result<Select, Unplanned> {
        let is_derived = self.is_derived();
        if query.fetch.is_some() || query.for_clause.is_some() || !query.pipe_operators.is_empty() {
            return Err(errors::syntax("FETCH").into());
        }
        if let Some(with) = &query.with {
            let inward = self.inward.take();
            self.with(with)?;
            self.inward.set(&inward);
        }
        match &*query.body {
            SetExpr::Select(select) => {
                let mut block = self.block(query, select)?;
                if !self.is_outermost()
                    && let Some(lock) = block.lock.take()
                {
                    self.lock_inside(is_derived, select, query, lock)?;
                }
                let locked = match block.lock.filter(|_| !block.is_single(self)) {
                    Some(lock) => Some(Box::new(self.locked_rows(select, query, lock)?)),
                    None => None,
                };
                let mut plan = block.plan(self)?;
                plan.locked = locked;
                if self.is_outermost() {
                    self.take_inner_locks(&mut plan)?;
                }
                Ok(plan)
            }
            SetExpr::Query(inner)
                if query.order_by.is_none() && query.limit_clause.is_none() && query.locks.is_empty() =>
            {
                self.select_in_block(inner)
            }
            SetExpr::SetOperation { .. } | SetExpr::Query(_) | SetExpr::Values(_) => self.set_block(query)?.plan(self),
            _ => Err(errors::not_supported("this form of query").into()),
        }
    }

    /// Binds one SELECT, by its hints.
    fn block(&self, query: &ast::Query, select: &ast::Select) -> Result<Block, Unplanned> {
        let Some(hints) = self.hints_here() else { return self.bound(query, select) };
        let before = hints.enter(select.select_token.0.span.start);
        let bound = self.bound(query, select).map(|mut block| {
            block.stays_subquery = hints.stays_subquery();
            block
        });
        hints.leave(before);
        bound
    }

    fn bound(&self, query: &ast::Query, select: &ast::Select) -> Result<Block, Unplanned> {
        if select.into.is_some() {
            return Err(errors::not_supported("SELECT ... INTO").into());
        }
        if select.qualify.is_some() {
            return Err(errors::syntax("QUALIFY").into());
        }
        let is_shapeless = self.shapeless.take();
        let inward = self.inward.take();
        let from: &[_] = if view_text::is_dual(&select.from) { &[] } else { &select.from };
        let (scope, mut level) = self.bind_from(from, query.locks.is_empty())?;
        let single = match scope.tables.as_slice() {
            [one]
                if one.beneath.is_none()
                    && matches!(
                        level.items.as_slice(),
                        [super::from::Item { origin: super::from::Origin::Table(_), .. }]
                    ) =>
            {
                Some(one.table.clone())
            }
            _ => None,
        };
        let mut builder = self.builder(&scope);
        builder.table = single.as_ref().map(|t| &t.schema);
        builder.clause = "where clause";
        // What no row can meet need not be understood: dump tools ask FILES with subqueries.
        let is_empty = single.as_ref().is_some_and(|t| crate::catalog::information_schema::is_always_empty(&t.schema));
        let selection = select.selection.as_ref().filter(|_| !is_empty);
        let filter = selection.map(|e| builder.condition(e)).transpose()?;
        level.conditions.extend(filter.map(Expr::conjuncts).unwrap_or_default());
        builder.clause = "field list";
        builder.allow_aggregates = true;
        builder.window_place = WindowPlace::Here;
        builder.named_windows.clone_from(&select.named_window);
        let texts = if self.is_outermost() { self.text } else { "" };
        let mut outputs =
            Columns { planner: self, scope: &scope, text: texts, is_shapeless }.outputs(&mut builder, select)?;
        let has_digits = |e: &Expr| e.has_param() || e.has_user_variable();
        if self.from_digest
            && !is_shapeless
            && (outputs.iter().any(|o| has_digits(&o.expr))
                || builder.aggregates.iter().any(|a| a.argument.as_ref().is_some_and(has_digits)))
        {
            return Err(Unplanned::Structural);
        }
        if outputs.is_empty() {
            return Err(errors::syntax("FROM").into());
        }
        let by_values = outputs.iter().any(|o| o.expr.has_param() || o.expr.has_user_variable());
        self.typed.set(self.typed.get() || by_values && !is_shapeless);
        builder.aliases = outputs.iter().map(|o| (o.def.name.clone(), o.expr.clone())).collect();

        builder.check_named_windows()?;
        builder.clause = "group statement";
        builder.allow_aggregates = false;
        builder.window_place = WindowPlace::Nowhere;
        let mut keys = Vec::new();
        let (list, rollup) = group_by(&select.group_by)?;
        for e in list {
            let expr = self.position(e, &outputs, "group statement")?.map_or_else(|| builder.build(e), Ok)?;
            keys.push(order_key(expr, false, &self.param_kinds));
        }
        builder.allow_aggregates = true;
        builder.precedence = Precedence::Grouped;
        builder.grouped = keys.iter().map(|k: &OrderKey| k.expr.clone()).collect();
        builder.clause = "having clause";
        let having = select.having.as_ref().map(|e| builder.build(e)).transpose()?;
        builder.window_place = WindowPlace::Here;
        let order = self.order_of(query, &mut builder, &outputs)?;
        let windows = std::mem::take(&mut builder.windows);
        let groupings = rollup::grouped(&builder.groupings, &keys)?;
        if self.from_digest && windows.expressions().iter().any(|e| e.has_param() || e.has_user_variable()) {
            return Err(Unplanned::Structural);
        }
        // Another session's variable may be of another type.
        let arguments = builder.aggregates.iter().filter_map(|a| a.argument.as_ref());
        let typed = keys.iter().chain(&order).map(|k: &OrderKey| &k.expr).chain(arguments).chain(&having);
        if self.from_digest && typed.into_iter().any(|e| e.has_user_variable() || e.kind_needs_params()) {
            return Err(Unplanned::Structural);
        }
        let distinct = match &select.distinct {
            None | Some(ast::Distinct::All) => false,
            Some(ast::Distinct::Distinct) => true,
            Some(ast::Distinct::On(_)) => return Err(errors::syntax("ON").into()),
        };
        let aggregates = std::mem::take(&mut builder.aggregates);
        drop(builder);
        let each_row = keys.is_empty() && aggregates.is_empty();
        let is_ordered_within =
            each_row && query.order_by.is_none() && matches!(select.distinct, None | Some(ast::Distinct::All));
        let is_free = is_ordered_within && level.order.is_empty();
        let order = if is_ordered_within { std::mem::take(&mut level.order) } else { order };
        let order = if is_free { self.best_first(query, &level.conditions) } else { order };
        let having = if each_row {
            // HAVING without groups is one more condition.
            level.conditions.extend(having.map(Expr::conjuncts).unwrap_or_default());
            None
        } else {
            having
        };
        if rollup || keys.is_empty() && !each_row {
            // There may be a group without the column.
            outputs.iter_mut().for_each(|o| o.shape.nullable |= o.expr.any(|e| matches!(e, Expr::Column(_))));
        }
        let windows = (!windows.calls.is_empty()).then(|| Box::new(windows));
        let is_held = !each_row || windows.is_some();
        let group = is_held.then(|| {
            let same_argument = same_argument(&aggregates);
            Group { keys, aggregates, same_argument, having, each_row, rollup, groupings, windows }
        });
        if select.select_modifiers.as_ref().is_some_and(|m| m.straight_join) {
            level.rules = Some(JoinRules::fixed());
        }
        let counts_all = select.select_modifiers.as_ref().is_some_and(|m| m.sql_calc_found_rows);
        let (limit, offset) = self.limit(query.limit_clause.as_ref())?;
        if limit.is_none() && !inward.is_empty() {
            level.conditions.extend(derived_condition_pushdown::taken_in(&inward, &outputs, group.as_ref()));
        }
        self.push_inward(&scope, &mut level)?;
        let lock = lock_of(&query.locks)?;
        let mut block = Block {
            scope,
            level,
            outputs,
            group,
            order,
            distinct,
            counts_all,
            limit,
            offset,
            lock,
            stays_subquery: false,
        };
        block.check_grouping(self)?;
        block.place_group_values(self)?;
        self.behind_groups(block)
    }

    /// The order of a query that has none, and a MATCH among its conditions: the rows that fit best come first, as an index gives them.
    fn best_first(&self, query: &ast::Query, conditions: &[Expr]) -> Vec<OrderKey> {
        let counts = (self.is_outermost() || query.limit_clause.is_some()) && query.locks.is_empty();
        let found = conditions.iter().find_map(|e| Some((e, ranked(e)?)));
        let Some((rank, key)) = found.filter(|_| counts) else { return Vec::new() };
        let key = key.into_iter().map(|e| order_key(e.clone(), false, &self.param_kinds));
        [order_key(rank.clone(), true, &self.param_kinds)].into_iter().chain(key).collect()
    }

    /// What a query is ordered by.
    pub(crate) fn order_of(
        &self,
        query: &ast::Query,
        builder: &mut Builder<'_>,
        outputs: &[Output],
    ) -> Result<Vec<OrderKey>, Unplanned> {
        builder.clause = "order clause";
        let mut order = Vec::new();
        let Some(by) = &query.order_by else { return Ok(order) };
        let OrderByKind::Expressions(list) = &by.kind else { return Err(errors::syntax("ALL").into()) };
        for e in list {
            let is_name = matches!(&e.expr, ast::Expr::Identifier(_));
            builder.precedence = if is_name { Precedence::Alias } else { Precedence::Column };
            let expr = self.position(&e.expr, outputs, "order clause")?.map_or_else(|| builder.build(&e.expr), Ok)?;
            let descending = matches!(e.options.sort, Some(ast::OrderBySort::Desc));
            order.push(order_key(expr, descending, &self.param_kinds));
        }
        order.retain(|k| !k.expr.is_constant());
        Ok(order)
    }

    /// `ORDER BY 2`: the second output.
    fn position(&self, e: &ast::Expr, outputs: &[Output], clause: &str) -> Result<Option<Expr>, Unplanned> {
        let ast::Expr::Value(v) = e else { return Ok(None) };
        match &v.value {
            // A number with a point is a constant.
            ast::Value::Number(n, _) if !n.bytes().all(|b| b.is_ascii_digit()) => Ok(None),
            ast::Value::Number(n, _) => {
                let found = n.parse::<usize>().ok().and_then(|n| outputs.get(n.checked_sub(1)?));
                found.map(|o| Some(o.expr.clone())).ok_or_else(|| errors::unknown_column(n, clause).into())
            }
            ast::Value::Placeholder(_) if self.from_digest => Err(Unplanned::Structural),
            _ => Ok(None),
        }
    }

    pub(crate) fn limit(&self, clause: Option<&LimitClause>) -> Result<(Option<Expr>, Option<Expr>), Unplanned> {
        let mut builder = self.builder_over(None, "");
        let mut build = |e: &ast::Expr| match e {
            ast::Expr::Value(_) => builder.build(e),
            ast::Expr::Identifier(name) if self.env.names.is_some() => {
                // NULL is none, and less than none is all.
                let name = view_text::quoted(&name.value);
                let rows = format!("CASE WHEN {name} IS NULL THEN 0 WHEN {name} < 0 THEN {} ELSE {name} END", u64::MAX);
                builder.build(&expression(&rows)?)
            }
            other => Err(errors::syntax(&other.to_string())),
        };
        Ok(match clause {
            None => (None, None),
            Some(LimitClause::LimitOffset { limit, offset, limit_by }) if limit_by.is_empty() => {
                let limit = limit.as_ref().map(&mut build).transpose()?;
                (limit, offset.as_ref().map(|o| build(&o.value)).transpose()?)
            }
            Some(LimitClause::OffsetCommaLimit { offset, limit }) => (Some(build(limit)?), Some(build(offset)?)),
            Some(_) => return Err(errors::syntax("LIMIT BY").into()),
        })
    }
}

/// What is grouped by, and whether WITH ROLLUP.
fn group_by(by: &GroupByExpr) -> Result<(Vec<&ast::Expr>, bool), Unplanned> {
    let GroupByExpr::Expressions(list, modifiers) = by else { return Err(errors::syntax("ALL").into()) };
    match (list.as_slice(), modifiers.as_slice()) {
        ([ast::Expr::Rollup(keys)], []) if keys.iter().all(|k| k.len() == 1) => {
            Ok((keys.iter().flatten().collect(), true))
        }
        (list, []) => Ok((list.iter().collect(), false)),
        (list, [ast::GroupByWithModifier::Rollup]) => Ok((list.iter().collect(), true)),
        _ => Err(errors::syntax("WITH").into()),
    }
}

pub fn order_key(expr: Expr, descending: bool, params: &[Kind]) -> OrderKey {
    OrderKey { kind: expr.kind(params), collation: collation_of(&expr, params), expr, descending }
}

pub fn lock_of(locks: &[ast::LockClause]) -> Result<Option<Lock>, Unplanned> {
    match locks {
        [] => Ok(None),
        [one] => Ok(Some(Lock {
            exclusive: matches!(one.lock_type, ast::LockType::Update),
            no_wait: matches!(one.nonblock, Some(ast::NonBlock::Nowait)),
            skip_locked: matches!(one.nonblock, Some(ast::NonBlock::SkipLocked)),
        })),
        _ => Err(errors::not_supported("several locking clauses").into()),
    }
}
