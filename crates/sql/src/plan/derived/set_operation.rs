//! UNION, INTERSECT, EXCEPT and VALUES: blocks over the rows of others.

use std::rc::Rc;

use apus_types::ColumnType;
use sqlparser::ast::{self, SetExpr, SetOperator, SetQuantifier, Statement};

use super::{Bound, body_is_correlated, type_of_output};
use crate::{
    errors,
    expr::{Expr, Kind, coercion},
    plan::{
        Planner,
        block::Block,
        from::Level,
        outputs::Columns,
        query::{Body, Derived, SetOperation},
        select::{Output, lock_of},
        union_type::United,
    },
    value::number_format::Face,
};

/// An output of a set operation or derived table.
pub(super) struct Made {
    pub(super) name: String,
    pub(super) ty: ColumnType,
    pub(super) kind: Kind,
    /// How it looks; zeros in front are those of one SELECT.
    pub(super) face: Option<Face>,
    /// The column that it would be in a table.
    pub(super) united: United,
    /// Of the parts.
    exprs: Vec<Expr>,
}

impl Planner<'_> {
    /// One side of a set operation, in a block of its own.
    pub(super) fn part(&self, part: &SetExpr, inward: &Rc<[Expr]>) -> Bound<Body> {
        match part {
            SetExpr::SetOperation { left, op, set_quantifier, right } => {
                let operation = match op {
                    SetOperator::Union => SetOperation::Union,
                    SetOperator::Intersect => SetOperation::Intersect,
                    SetOperator::Except => SetOperation::Except,
                    SetOperator::Minus => return Err(errors::syntax("MINUS").into()),
                };
                let all = quantifier(*set_quantifier)?;
                let (left, right) = (Box::new(self.part(left, inward)?), Box::new(self.part(right, inward)?));
                if self.widths(&left) != self.widths(&right) {
                    return Err(errors::set_operation_columns().into());
                }
                Ok(Body::Set { operation, all, left, right })
            }
            SetExpr::Query(query) => {
                self.inward.set(inward);
                Ok(Body::Select(Box::new(self.select(query)?)))
            }
            SetExpr::Values(values) => self.values(values),
            other => {
                let query = ast::Query {
                    with: None,
                    body: Box::new(other.clone()),
                    order_by: None,
                    limit_clause: None,
                    fetch: None,
                    locks: Vec::new(),
                    for_clause: None,
                    settings: None,
                    format_clause: None,
                    pipe_operators: Vec::new(),
                };
                self.inward.set(inward);
                Ok(Body::Select(Box::new(self.select(&query)?)))
            }
        }
    }

    /// `VALUES ROW(...), ROW(...)`: a UNION ALL of SELECTs without a table, nested no deeper than needed.
    fn values(&self, values: &ast::Values) -> Bound<Body> {
        if !values.explicit_row {
            return Err(errors::syntax("(").into());
        }
        let rows: Vec<&[ast::Expr]> = values.rows.iter().map(|row| row.content.as_slice()).collect();
        let width = rows.first().map_or(0, |row| row.len());
        if width == 0 {
            return Err(errors::empty_values_row().into());
        }
        if let Some(at) = rows.iter().position(|row| row.len() != width) {
            return Err(errors::column_count(at + 1).into());
        }
        let is_default = |e: &ast::Expr| matches!(e, ast::Expr::Identifier(i) if i.quote_style.is_none() && i.value.eq_ignore_ascii_case("default"));
        if rows.iter().copied().flatten().any(is_default) {
            return Err(errors::values_default().into());
        }
        let mut bodies = Vec::with_capacity(rows.len());
        for row in rows {
            bodies.push(Body::Select(Box::new(self.select(&row_of_values(row)?)?)));
        }
        while bodies.len() > 1 {
            let mut rest = std::mem::take(&mut bodies).into_iter();
            while let Some(left) = rest.next() {
                bodies.push(match rest.next() {
                    None => left,
                    Some(right) => Body::Set {
                        operation: SetOperation::Union,
                        all: true,
                        left: Box::new(left),
                        right: Box::new(right),
                    },
                });
            }
        }
        bodies.pop().ok_or_else(|| errors::empty_values_row().into())
    }

    /// `SELECT ... UNION SELECT ... ORDER BY ... LIMIT ...`: a block over the rows of the operation.
    pub(crate) fn set_block(&self, query: &ast::Query) -> Bound<Block> {
        if lock_of(&query.locks)?.is_some() {
            return Err(errors::not_supported("FOR UPDATE of set operations").into());
        }
        // Each part asks what it can, but none behind the LIMIT of all.
        let inward = self.inward.take();
        let inward = if query.limit_clause.is_none() { inward } else { Rc::default() };
        let body = self.part(&query.body, &inward)?;
        let table = self.table_of("", &[], &body, None)?;
        let derived = Rc::new(Derived {
            table,
            is_correlated: body_is_correlated(&body),
            body,
            is_subquery: false,
            is_lateral: false,
            text: None,
        });
        let (scope, level) = Level::alone(derived);
        self.frames.show(&scope);
        let columns = Columns { planner: self, scope: &scope, text: "", is_shapeless: false };
        let outputs: Vec<Output> = scope.star().into_iter().map(|c| columns.output(c.expr, c.name)).collect();
        let mut builder = self.builder(&scope);
        let order = self.order_of(query, &mut builder, &outputs)?;
        drop(builder);
        let (limit, offset) = self.limit(query.limit_clause.as_ref())?;
        Ok(Block {
            scope,
            level,
            outputs,
            group: None,
            order,
            distinct: false,
            counts_all: false,
            limit,
            offset,
            lock: None,
            stays_subquery: false,
        })
    }

    pub(super) fn widths(&self, body: &Body) -> usize {
        match body {
            Body::Select(select) => select.outputs.len(),
            Body::Set { left, .. } => self.widths(left),
            Body::Recursive { first, .. } => self.widths(first),
            Body::LastRows | Body::JsonTable { .. } => 0,
        }
    }

    pub(super) fn made(&self, body: &Body) -> Bound<Vec<Made>> {
        Ok(match body {
            Body::Select(select) => select
                .outputs
                .iter()
                .map(|o| Made {
                    name: o.def.name.clone(),
                    ty: type_of_output(o, &self.param_kinds),
                    kind: o.kind,
                    face: o.shape.face.and_then(|face| face.digits_only(o.shape.ty)),
                    united: United::of(&o.expr, o.kind, o.shape),
                    exprs: vec![o.expr.clone()],
                })
                .collect(),
            Body::Set { operation, left, right, .. } => {
                let pairs = self.made(left)?.into_iter().zip(self.made(right)?);
                pairs.map(|(a, b)| self.unified(*operation, a, b)).collect::<Bound<_>>()?
            }
            Body::Recursive { first, .. } => self.made(first)?,
            Body::LastRows | Body::JsonTable { .. } => Vec::new(),
        })
    }

    fn unified(&self, operation: SetOperation, mut a: Made, b: Made) -> Bound<Made> {
        a.exprs.extend(b.exprs);
        let kind = a.kind.unify(b.kind);
        let collation = match kind {
            Kind::Text => {
                let list: Vec<&Expr> = a.exprs.iter().collect();
                coercion::compared(&list, &self.param_kinds, "UNION")
                    .map_err(|e| if e.errno == 1267 { errors::collation_mix(1271, "", "UNION") } else { e })?
            }
            _ => Default::default(),
        };
        let is_label = matches!(a.ty, ColumnType::Label { .. });
        let is_same = !is_label && a.ty == b.ty && a.ty.collation().is_none_or(|c| c == collation);
        let ty = if is_same { a.ty } else { coercion::type_of(kind, collation) };
        let face = a.face.filter(|face| is_same && b.face == Some(*face));
        let united = a.united.with(b.united, operation, kind, collation);
        Ok(Made { name: a.name, ty, kind, face, united, exprs: a.exprs })
    }
}

fn quantifier(q: SetQuantifier) -> Bound<bool> {
    match q {
        SetQuantifier::All => Ok(true),
        SetQuantifier::None | SetQuantifier::Distinct => Ok(false),
        _ => Err(errors::syntax("BY NAME").into()),
    }
}

/// One row of VALUES as a query.
pub(crate) fn row_of_values(row: &[ast::Expr]) -> Bound<ast::Query> {
    let Statement::Query(mut query) = crate::plan::syntax::parse("SELECT 1")? else {
        return Err(errors::syntax("VALUES").into());
    };
    if let SetExpr::Select(select) = &mut *query.body {
        let named = |(at, e): (usize, &ast::Expr)| ast::SelectItem::ExprWithAlias {
            expr: e.clone(),
            alias: ast::Ident::new(format!("column_{at}")),
        };
        select.projection = row.iter().enumerate().map(named).collect();
    }
    Ok(*query)
}

/// The parts of a chain of UNIONs of one kind; `None` for another body.
pub(super) fn union_parts<'e>(e: &'e SetExpr, out: &mut Vec<&'e SetExpr>) -> Option<bool> {
    let SetExpr::SetOperation { left, op: SetOperator::Union, set_quantifier, right } = e else { return None };
    let all = quantifier(*set_quantifier).ok()?;
    match union_parts(left, out) {
        Some(same) if same == all => {}
        _ => {
            out.clear();
            out.push(left);
        }
    }
    out.push(right);
    Some(all)
}
