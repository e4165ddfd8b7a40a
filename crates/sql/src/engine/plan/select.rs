//! SELECT.

use std::rc::Rc;

use apus_types::{RowLayout, TableSchema, collate::Collation};
use sqlparser::ast::{self, GroupByExpr, LimitClause, OrderByKind, SelectItem, SetExpr};

use super::{Planner, Unplanned, access, heading};
use crate::{
    engine::{
        catalog::Table,
        cells, errors,
        expr::{
            Builder, Expr, Kind,
            build::{Aggregate, AggregateKind, Precedence, collation_of},
        },
        information_schema,
    },
    wire::ColumnDef,
};

#[derive(Debug)]
pub struct Output {
    pub expr: Expr,
    pub kind: Kind,
    pub def: ColumnDef,
}

#[derive(Clone, PartialEq, Debug)]
pub struct OrderKey {
    pub expr: Expr,
    pub kind: Kind,
    pub collation: Collation,
    pub descending: bool,
}

#[derive(Debug)]
pub struct Group {
    pub keys: Vec<OrderKey>,
    pub aggregates: Vec<Aggregate>,
    pub having: Option<Expr>,
}

#[derive(Clone, Copy, Debug)]
pub struct Lock {
    pub exclusive: bool,
    pub no_wait: bool,
    pub skip_locked: bool,
}

#[derive(Debug)]
pub struct Select {
    pub table: Option<Rc<Table>>,
    pub access: Option<access::Access>,
    /// Columns fetched; `None`: whole rows.
    pub columns: Option<Vec<u16>>,
    pub layout: RowLayout,
    pub outputs: Vec<Output>,
    pub defs: Vec<ColumnDef>,
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
    pub lock: Option<Lock>,
    /// Aggregates that the data nodes can compute, one per entry of `group.aggregates`.
    pub pushdown: Option<Vec<apus_signal::scan::Aggregate>>,
}

impl Planner<'_> {
    pub(super) fn select(&self, query: &ast::Query) -> Result<Select, Unplanned> {
        if query.with.is_some() {
            return Err(errors::not_supported("common table expressions").into());
        }
        if query.fetch.is_some() || query.for_clause.is_some() || !query.pipe_operators.is_empty() {
            return Err(errors::syntax("FETCH").into());
        }
        let select = match &*query.body {
            SetExpr::Select(select) => select,
            SetExpr::Query(inner) if query.order_by.is_none() && query.limit_clause.is_none() => {
                return self.select(inner);
            }
            SetExpr::SetOperation { .. } => return Err(errors::not_supported("UNION").into()),
            _ => return Err(errors::not_supported("this form of query").into()),
        };
        if select.into.is_some() {
            return Err(errors::not_supported("SELECT ... INTO").into());
        }
        if !select.named_window.is_empty() || select.qualify.is_some() {
            return Err(errors::not_supported("window functions").into());
        }
        let dual = matches!(select.from.as_slice(), [one] if one.joins.is_empty() && one.relation.to_string().eq_ignore_ascii_case("dual"));
        let (table, shown) = if select.from.is_empty() || dual {
            (None, String::new())
        } else {
            let (table, shown) = self.single_table(&select.from)?;
            (Some(table), shown)
        };
        let database = self.env.database.clone().unwrap_or_default();
        let schema = table.as_ref().map(|t| &t.schema);
        let mut builder = Builder::new(schema, &shown, &database);
        builder.param_kinds = self.param_kinds.clone();
        builder.env = Some(self.env);

        builder.clause = "where clause";
        // What no row can meet need not be understood: dump tools ask FILES with subqueries.
        let selection = select.selection.as_ref().filter(|_| !schema.is_some_and(information_schema::is_always_empty));
        let filter = selection.map(|e| builder.build(e)).transpose()?;
        builder.clause = "field list";
        builder.allow_aggregates = true;
        let mut outputs = self.outputs(&mut builder, select, table.as_deref(), &shown)?;
        if self.from_digest && outputs.iter().any(|o| o.expr.has_param() || o.expr.has_user_variable()) {
            return Err(Unplanned::Structural);
        }
        if outputs.is_empty() {
            return Err(errors::syntax("FROM").into());
        }
        builder.aliases = outputs.iter().map(|o| (o.def.name.clone(), o.expr.clone())).collect();

        builder.clause = "group statement";
        builder.allow_aggregates = false;
        let mut keys = Vec::new();
        match &select.group_by {
            GroupByExpr::Expressions(list, modifiers) if modifiers.is_empty() => {
                for e in list {
                    let expr = self.position(e, &outputs, "group statement")?.map_or_else(|| builder.build(e), Ok)?;
                    keys.push(order_key(expr, false, &self.param_kinds));
                }
            }
            _ => return Err(errors::not_supported("GROUP BY with modifiers").into()),
        }
        builder.allow_aggregates = true;
        builder.precedence = Precedence::Grouped;
        builder.grouped = keys.iter().map(|k: &OrderKey| k.expr.clone()).collect();
        builder.clause = "having clause";
        let having = select.having.as_ref().map(|e| builder.build(e)).transpose()?;
        builder.clause = "order clause";
        let mut order = Vec::new();
        if let Some(by) = &query.order_by {
            let OrderByKind::Expressions(list) = &by.kind else { return Err(errors::syntax("ALL").into()) };
            for e in list {
                let is_name = matches!(&e.expr, ast::Expr::Identifier(_));
                builder.precedence = if is_name { Precedence::Alias } else { Precedence::Column };
                let expr =
                    self.position(&e.expr, &outputs, "order clause")?.map_or_else(|| builder.build(&e.expr), Ok)?;
                let descending = matches!(e.options.sort, Some(ast::OrderBySort::Desc));
                order.push(order_key(expr, descending, &self.param_kinds));
            }
        }
        order.retain(|k| !k.expr.is_constant());
        // Another session's variable may be of another type.
        let arguments = builder.aggregates.iter().filter_map(|a| a.argument.as_ref());
        let typed = keys.iter().chain(&order).map(|k: &OrderKey| &k.expr).chain(arguments).chain(&having);
        if self.from_digest && typed.into_iter().any(Expr::has_user_variable) {
            return Err(Unplanned::Structural);
        }
        let distinct = match &select.distinct {
            None | Some(ast::Distinct::All) => false,
            Some(ast::Distinct::Distinct) => true,
            Some(ast::Distinct::On(_)) => return Err(errors::syntax("ON").into()),
        };
        let (limit, offset) = self.limit(query.limit_clause.as_ref())?;
        let lock = lock_of(&query.locks)?.filter(|_| !schema.is_some_and(information_schema::is_virtual));
        let aggregates = std::mem::take(&mut builder.aggregates);
        let mut group =
            (!keys.is_empty() || !aggregates.is_empty()).then_some(Group { keys, aggregates, having: having.clone() });
        let filter = match (&group, having) {
            // HAVING without groups is one more condition.
            (None, Some(h)) => Some(filter.map_or(h.clone(), |f| Expr::And(vec![f, h]))),
            _ => filter,
        };
        if let Some(group) = &group {
            self.check_grouping(group, &outputs, schema)?;
        }

        let simple: Option<Vec<u16>> = order
            .iter()
            .map(|k| match &k.expr {
                Expr::Column(c) if k.descending == order[0].descending => Some(c.slot),
                _ => None,
            })
            .collect();
        let wanted = simple.as_deref().filter(|_| group.is_none() && limit.is_some()).unwrap_or(&[]);
        let mut access = table.as_ref().map(|t| access::choose(t, filter.clone(), wanted));
        let path_order = matches!(&access, Some(a) if simple.as_ref().is_some_and(|s| a.path.ordered_by(s)));
        let virtual_table = schema.is_some_and(information_schema::is_virtual);
        let in_order = order.is_empty() || (group.is_none() && path_order && !virtual_table);
        let reverse = in_order && order.first().is_some_and(|k| k.descending);
        if table.is_none() {
            // Without a table the condition is checked on the one row there is.
            access = None;
        }
        let pushdown = match (&group, &access) {
            (Some(g), Some(a)) if !virtual_table && g.keys.is_empty() && a.rest.is_none() => pushed(&g.aggregates),
            _ => None,
        };
        let columns = match &table {
            Some(t) if lock.is_none() => Some(self.prune(t, &mut access, &mut outputs, &mut group, &mut order)),
            _ => None,
        };
        let layout = match (&table, &columns) {
            (Some(t), Some(c)) => t.schema.layout().project_layout(c).ok_or_else(|| errors::internal("projection"))?,
            (Some(t), None) => t.schema.layout().clone(),
            (None, _) => RowLayout::new([]),
        };
        let defs = outputs.iter().map(|o| o.def.clone()).collect();
        if let (None, Some(f)) = (&table, filter) {
            let group_filter = access::Access {
                path: access::Path::Points { index: None, columns: Vec::new(), values: Vec::new(), rows: false },
                full: Some(f.clone()),
                rest: Some(f),
            };
            access = Some(group_filter);
        }
        Ok(Select {
            table,
            access,
            columns,
            layout,
            outputs,
            defs,
            group,
            order,
            in_order,
            reverse,
            distinct,
            counts_all: select.select_modifiers.as_ref().is_some_and(|m| m.sql_calc_found_rows),
            limit,
            offset,
            lock,
            pushdown,
        })
    }

    fn outputs(
        &self,
        builder: &mut Builder<'_>,
        select: &ast::Select,
        table: Option<&Table>,
        shown: &str,
    ) -> Result<Vec<Output>, Unplanned> {
        let mut outputs = Vec::new();
        // Where the texts do not fit the list, names are spelled from the syntax tree.
        let texts = heading::select_items(self.text);
        let texts = if texts.len() == select.projection.len() { texts } else { Vec::new() };
        for (i, item) in select.projection.iter().enumerate() {
            match item {
                SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..) => {
                    let table = table.ok_or_else(|| crate::wire::SqlError::new(1096, b"HY000", "No tables used"))?;
                    if let SelectItem::QualifiedWildcard(ast::SelectItemQualifiedWildcardKind::ObjectName(name), _) =
                        item
                    {
                        let last = name.0.last().and_then(|p| p.as_ident()).map(|i| i.value.as_str());
                        if last != Some(shown) {
                            return Err(errors::drop_unknown_table(&name.to_string()).into());
                        }
                    }
                    for c in table.visible_columns() {
                        outputs.push(column_output(&table.schema, shown, c, None));
                    }
                }
                SelectItem::UnnamedExpr(e) => {
                    let expr = builder.build(e)?;
                    // The heading shows the literals, also those inside of an aggregate.
                    if self.from_digest && (expr.has_param() || display_name(e).contains('?')) {
                        return Err(Unplanned::Structural);
                    }
                    outputs.push(match (&expr, table) {
                        (Expr::Column(c), Some(t)) => {
                            let name = match e {
                                ast::Expr::Identifier(i) => Some(i.value.clone()),
                                ast::Expr::CompoundIdentifier(parts) => parts.last().map(|i| i.value.clone()),
                                _ => None,
                            };
                            column_output(&t.schema, shown, c.slot, name)
                        }
                        _ => {
                            let name = match (e, texts.get(i)) {
                                (e, _) if is_text_literal(e) => display_name(e),
                                (_, None) => display_name(e),
                                (_, Some(text)) if expr.has_param() => heading::without_numbers(text),
                                (_, Some(text)) => (*text).to_owned(),
                            };
                            expression_output(expr, name, &self.param_kinds)
                        }
                    });
                }
                SelectItem::ExprWithAlias { expr, alias } => {
                    let expr = builder.build(expr)?;
                    outputs.push(match (&expr, table) {
                        (Expr::Column(c), Some(t)) => {
                            column_output(&t.schema, shown, c.slot, Some(alias.value.clone()))
                        }
                        _ => expression_output(expr, alias.value.clone(), &self.param_kinds),
                    });
                }
                other => return Err(errors::syntax(&other.to_string()).into()),
            }
        }
        Ok(outputs)
    }

    /// `ORDER BY 2`: the second output.
    fn position(&self, e: &ast::Expr, outputs: &[Output], clause: &str) -> Result<Option<Expr>, Unplanned> {
        let ast::Expr::Value(v) = e else { return Ok(None) };
        match &v.value {
            ast::Value::Number(n, _) => {
                let found = n.parse::<usize>().ok().and_then(|n| outputs.get(n.checked_sub(1)?));
                found.map(|o| Some(o.expr.clone())).ok_or_else(|| errors::unknown_column(n, clause).into())
            }
            ast::Value::Placeholder(_) if self.from_digest => Err(Unplanned::Structural),
            _ => Ok(None),
        }
    }

    pub(super) fn limit(&self, clause: Option<&LimitClause>) -> Result<(Option<Expr>, Option<Expr>), Unplanned> {
        let mut builder = Builder::new(None, "", "");
        let mut build = |e: &ast::Expr| builder.build(e);
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

    fn check_grouping(&self, group: &Group, outputs: &[Output], schema: Option<&TableSchema>) -> Result<(), Unplanned> {
        let Some(schema) = schema.filter(|_| self.env.variables.only_full_group_by) else { return Ok(()) };
        let mut grouped = Vec::new();
        group.keys.iter().for_each(|k| {
            if let Expr::Column(c) = &k.expr {
                grouped.push(c.slot);
            }
        });
        if schema.primary_key.iter().all(|c| grouped.contains(c)) && !grouped.is_empty() {
            return Ok(());
        }
        for (i, output) in outputs.iter().enumerate() {
            if group.keys.iter().any(|k| k.expr == output.expr) {
                continue;
            }
            let mut used = Vec::new();
            output.expr.columns(&mut used);
            if let Some(stray) = used.iter().find(|c| !grouped.contains(c)) {
                let c = &schema.columns[usize::from(*stray)];
                let name = format!("{}.{}.{}", schema.database, schema.name, c.name);
                return Err(errors::not_in_group_by(i + 1, &name).into());
            }
        }
        Ok(())
    }

    /// The columns that are needed; rewrites all expressions to their places among them.
    fn prune(
        &self,
        table: &Table,
        access: &mut Option<access::Access>,
        outputs: &mut [Output],
        group: &mut Option<Group>,
        order: &mut [OrderKey],
    ) -> Vec<u16> {
        let mut parts: Vec<&mut Expr> =
            outputs.iter_mut().map(|o| &mut o.expr).chain(order.iter_mut().map(|k| &mut k.expr)).collect();
        if let Some(a) = access {
            parts.extend(a.full.iter_mut());
            parts.extend(a.rest.iter_mut());
        }
        if let Some(g) = group {
            parts.extend(g.keys.iter_mut().map(|k| &mut k.expr));
            parts.extend(
                g.aggregates
                    .iter_mut()
                    .flat_map(|a| a.argument.iter_mut().chain(a.order.iter_mut().map(|k| &mut k.expr))),
            );
            parts.extend(g.having.iter_mut());
        }
        let mut columns = Vec::new();
        parts.iter().for_each(|e| e.columns(&mut columns));
        columns.sort_unstable();
        columns.dedup();
        if columns.is_empty() {
            columns.push(table.schema.primary_key[0]);
        }
        parts.into_iter().for_each(|e| e.project(&columns));
        columns
    }
}

pub fn order_key(expr: Expr, descending: bool, params: &[Kind]) -> OrderKey {
    OrderKey { kind: expr.kind(params), collation: collation_of(&expr, params), expr, descending }
}

fn column_output(schema: &TableSchema, shown: &str, column: u16, alias: Option<String>) -> Output {
    let c = &schema.columns[usize::from(column)];
    let mut def = cells::column_def(schema, column);
    def.table = shown.to_owned();
    if let Some(alias) = alias {
        def.name = alias;
    }
    Output { expr: Expr::Column(crate::engine::expr::ColumnRef { slot: column, ty: c.ty }), kind: Kind::of(c.ty), def }
}

fn expression_output(expr: Expr, name: String, params: &[Kind]) -> Output {
    let kind = expr.kind(params);
    Output { def: cells::expression_def(name, kind), kind, expr }
}

fn is_text_literal(e: &ast::Expr) -> bool {
    use ast::Value as V;
    matches!(e, ast::Expr::Value(v) if matches!(v.value, V::SingleQuotedString(_) | V::DoubleQuotedString(_)))
}

/// The name of an unaliased expression: its text.
fn display_name(e: &ast::Expr) -> String {
    match e {
        ast::Expr::Value(v) => match &v.value {
            ast::Value::SingleQuotedString(s) | ast::Value::DoubleQuotedString(s) => s.clone(),
            other => other.to_string(),
        },
        other => other.to_string(),
    }
}

fn lock_of(locks: &[ast::LockClause]) -> Result<Option<Lock>, Unplanned> {
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

/// COUNT, SUM, MIN and MAX of integer columns, which data nodes compute.
fn pushed(aggregates: &[Aggregate]) -> Option<Vec<apus_signal::scan::Aggregate>> {
    use apus_signal::scan::AggregateFunction as F;
    if aggregates.is_empty() || aggregates.len() > apus_signal::scan::AGGREGATES_MAX {
        return None;
    }
    let one = |a: &Aggregate| {
        let column = match &a.argument {
            None => 0,
            Some(Expr::Column(c)) if matches!(c.ty, apus_types::ColumnType::Int { .. }) => c.slot,
            _ => return None,
        };
        let function = match a.function {
            AggregateKind::CountRows => F::CountRows,
            AggregateKind::Count if !a.distinct => F::CountValues,
            AggregateKind::Sum if !a.distinct => F::Sum,
            AggregateKind::Min => F::Min,
            AggregateKind::Max => F::Max,
            _ => return None,
        };
        Some(apus_signal::scan::Aggregate { function, column })
    };
    aggregates.iter().map(one).collect()
}
