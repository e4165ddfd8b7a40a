//! Queries that make tables for others: derived tables, common table expressions, set operations.

use std::{cell::Cell, rc::Rc};

use apus_types::{Column, ColumnType, TableSchema, schema::DefaultValue};
use sqlparser::ast::{self, SetExpr, SetOperator, SetQuantifier, Statement};

use super::{
    Planner, Unplanned,
    block::Block,
    derived_condition_pushdown::Text,
    from::{Item, Level, Origin},
    outputs::{Columns, is_text_of_json},
    query::{Body, Derived, Given, SetOperation},
    scope::{Scope, Visible},
    select::{Output, Select, lock_of},
    union_type::United,
};
use crate::{
    catalog::Table,
    errors,
    expr::{
        ColumnRef, Expr, Kind,
        coercion::{self, collation_of},
    },
    value::number_format::Face,
};

type Bound<T> = Result<T, Unplanned>;

/// A common table expression that is in view.
#[derive(Clone, Debug)]
pub struct Common {
    name: String,
    what: What,
    /// Of the block that defines it.
    depth: usize,
    /// Its query and the names of its columns, where it does not name itself.
    text: Option<Rc<CommonText>>,
}

/// What a common table expression is made from.
#[derive(Debug)]
pub struct CommonText {
    pub name: String,
    pub query: ast::Query,
    pub columns: Vec<String>,
    /// So many are defined before it, and seen by it.
    pub known: usize,
}

#[derive(Clone, Debug)]
enum What {
    Known(Rc<Derived>),
    /// Its definition is under way, and has no part to begin with.
    NoUnion,
    /// Its definition is under way: what its first part makes, and how often it was named.
    UnderWay(Option<Rc<Table>>, Rc<Cell<u32>>),
}

/// The type in which an output is kept.
pub fn type_of_output(output: &Output, params: &[Kind]) -> ColumnType {
    match &output.expr {
        Expr::Column(ColumnRef { ty: ColumnType::Timestamp { decimals }, .. })
        | Expr::Given(_, ColumnType::Timestamp { decimals }, _) => ColumnType::DateTime { decimals: *decimals },
        Expr::Column(c) => c.ty,
        Expr::Given(_, ty, _) => *ty,
        e if is_text_of_json(e) => {
            ColumnType::Text { length: apus_types::limits::ROW_BYTES_MAX as u32, collation: collation_of(e, params) }
        }
        e => coercion::type_of(output.kind, collation_of(e, params)),
    }
}

/// The type in which an output of a derived table is kept: that of the column it would make, where every value fits.
fn type_kept(output: &Output, otherwise: ColumnType) -> ColumnType {
    match (&output.expr, output.shape.ty) {
        (Expr::Column(_) | Expr::Given(..), _) | (_, ColumnType::Label { .. } | ColumnType::Timestamp { .. }) => {
            otherwise
        }
        (_, ty) if Kind::of(ty) == output.kind => ty,
        _ => otherwise,
    }
}

/// As what values of two expressions are looked up, so that equal ones are found; `None`: their comparison has no such form.
pub fn equal_kind(a: &Expr, b: &Expr, params: &[Kind]) -> Option<Kind> {
    let is_unknown =
        |e: &Expr| matches!(e, Expr::Param(i) if *i >= params.len()) || matches!(e, Expr::UserVariable(..));
    if a.any(is_unknown) || b.any(is_unknown) {
        return None;
    }
    let is_column = |e: &Expr| matches!(e, Expr::Column(_) | Expr::Given(..) | Expr::Outer(_));
    let scale = |kind| match kind {
        Kind::Int | Kind::UInt | Kind::Bit(_) => Some(0),
        Kind::Decimal(s) => Some(s),
        _ => None,
    };
    let (x, y) = (a.kind(params).of_result(), b.kind(params).of_result());
    match (x, y) {
        (Kind::Double, Kind::Double) => Some(Kind::Double),
        (Kind::Double, k) | (k, Kind::Double) if scale(k).is_some() => Some(Kind::Double),
        (Kind::Text, Kind::Text) if is_column(a) && is_column(b) => Some(Kind::Text),
        (Kind::Text | Kind::Bytes, Kind::Text | Kind::Bytes) if is_column(a) && is_column(b) => Some(Kind::Bytes),
        (Kind::Date | Kind::DateTime(_), Kind::Date | Kind::DateTime(_)) => Some(Kind::DateTime(6)),
        (Kind::Time(_), Kind::Time(_)) => Some(Kind::Time(6)),
        (x, y) => Some(Kind::Decimal(scale(x)?.max(scale(y)?))),
    }
}

/// An output of a set operation or derived table.
struct Made {
    name: String,
    ty: ColumnType,
    kind: Kind,
    /// How it looks; zeros in front are those of one SELECT.
    face: Option<Face>,
    /// The column that it would be in a table.
    united: United,
    /// Of the parts.
    exprs: Vec<Expr>,
}

impl Planner<'_> {
    /// A subquery in an expression.
    pub(crate) fn subquery(&self, query: &ast::Query, exists: bool) -> Bound<Select> {
        self.shapeless.set(exists);
        self.select(query)
    }

    /// A table in parentheses.
    pub(crate) fn derived(&self, query: &ast::Query, name: &str, columns: &[String]) -> Bound<Rc<Derived>> {
        self.begin_derived();
        let mut derived = self.table_in_parentheses(query, name, columns)?;
        let (query, name, columns) = (Box::new(query.clone()), name.to_owned(), columns.to_vec());
        derived.text = Some(Rc::new(Text::Query { query, name, columns }));
        Ok(Rc::new(derived))
    }

    fn table_in_parentheses(&self, query: &ast::Query, name: &str, columns: &[String]) -> Bound<Derived> {
        let select = self.select(query)?;
        let is_correlated = is_correlated(&select);
        let body = Body::Select(Box::new(select));
        let exactly = match &body {
            Body::Select(select) if !select.group.as_ref().is_some_and(|g| g.rollup) => Some(&**select),
            _ => None,
        };
        let table = self.table_of(name, columns, &body, exactly)?;
        Ok(Derived { table, body, is_correlated, is_subquery: false, is_lateral: false, text: None })
    }

    /// As [`Planner::derived`], of one that sees the tables of `before`.
    pub(crate) fn lateral(
        &self,
        query: &ast::Query,
        name: &str,
        columns: &[String],
        before: Scope,
    ) -> Bound<Rc<Derived>> {
        self.frames.show(&Rc::new(before));
        let outside = self.frames.begin_lateral();
        let derived = self.table_in_parentheses(query, name, columns);
        self.frames.end_lateral(outside);
        self.frames.show(&Rc::default());
        let mut derived = derived?;
        derived.is_lateral = true;
        derived.is_lateral = derived.inputs().iter().any(|e| e.any(|e| matches!(e, Expr::Column(_))));
        Ok(Rc::new(derived))
    }

    /// The common table expression of this name; `None`: it names itself, or sees a block around.
    pub(crate) fn common_text(&self, name: &ast::ObjectName) -> Option<Rc<CommonText>> {
        let [part] = name.0.as_slice() else { return None };
        let name = part.as_ident().map_or("", |i| i.value.as_str());
        let common = self.common.borrow();
        let found = common.iter().rev().find(|c| c.name.eq_ignore_ascii_case(name))?;
        let is_alone = matches!(&found.what, What::Known(derived) if !derived.is_correlated);
        found.text.clone().filter(|_| is_alone)
    }

    /// The common table expression of this name.
    pub(crate) fn common_table(&self, name: &ast::ObjectName) -> Bound<Option<Rc<Derived>>> {
        let [part] = name.0.as_slice() else { return Ok(None) };
        let name = part.as_ident().map_or("", |i| i.value.as_str());
        let common = self.common.borrow();
        let Some(found) = common.iter().rev().find(|c| c.name.eq_ignore_ascii_case(name)) else { return Ok(None) };
        match &found.what {
            What::Known(derived) if derived.is_correlated && self.frames.depth() != found.depth => {
                Err(errors::not_supported("a common table expression that refers to a query around it, used deeper")
                    .into())
            }
            What::Known(derived) => Ok(Some(derived.clone())),
            What::NoUnion => Err(errors::recursive_union(name).into()),
            What::UnderWay(None, _) => Err(errors::recursive_first(name).into()),
            What::UnderWay(Some(table), used) => {
                used.set(used.get() + 1);
                if used.get() > 1 || self.frames.depth() != found.depth + 1 {
                    return Err(errors::recursive_once(name).into());
                }
                Ok(Some(Rc::new(Derived {
                    table: table.clone(),
                    body: Body::LastRows,
                    is_correlated: true,
                    is_subquery: false,
                    is_lateral: false,
                    text: None,
                })))
            }
        }
    }

    /// Defines the common table expressions of WITH.
    pub(crate) fn with(&self, with: &ast::With) -> Bound<()> {
        let depth = self.frames.depth();
        for (i, cte) in with.cte_tables.iter().enumerate() {
            let name = &cte.alias.name.value;
            if with.cte_tables[..i].iter().any(|c| c.alias.name.value.eq_ignore_ascii_case(name)) {
                return Err(errors::not_unique_table(name).into());
            }
            let columns: Vec<String> = cte.alias.columns.iter().map(|c| c.name.value.clone()).collect();
            let recursive = with.recursive.then(|| self.recursive(&cte.query, name, &columns)).transpose()?.flatten();
            let (derived, text) = match recursive {
                Some(recursive) => (recursive, None),
                None => {
                    let derived = self.not_recursive(with.recursive, &cte.query, name, &columns)?;
                    let (name, query, known) = (name.clone(), (*cte.query).clone(), self.common.borrow().len());
                    (derived, Some(Rc::new(CommonText { name, query, columns, known })))
                }
            };
            self.common.borrow_mut().push(Common { name: name.clone(), what: What::Known(derived), depth, text });
        }
        Ok(())
    }

    fn not_recursive(&self, may_be: bool, query: &ast::Query, name: &str, columns: &[String]) -> Bound<Rc<Derived>> {
        let known = self.common.borrow().len();
        if may_be && !matches!(&*query.body, SetExpr::SetOperation { .. }) {
            let (name, depth) = (name.to_owned(), self.frames.depth());
            self.common.borrow_mut().push(Common { name, what: What::NoUnion, depth, text: None });
        }
        let made = self.derived(query, name, columns);
        self.common.borrow_mut().truncate(known);
        made
    }

    /// `None`: the definition does not name itself.
    fn recursive(&self, query: &ast::Query, name: &str, columns: &[String]) -> Bound<Option<Rc<Derived>>> {
        let mut parts = Vec::new();
        let Some(all) = union_parts(&query.body, &mut parts) else { return Ok(None) };
        let depth = self.frames.depth();
        let used = Rc::new(Cell::new(0));
        let known = self.common.borrow().len();
        let enter = |table| {
            self.common.borrow_mut().truncate(known);
            let what = What::UnderWay(table, used.clone());
            self.common.borrow_mut().push(Common { name: name.to_owned(), what, depth, text: None });
        };
        enter(None);
        let mut first = self.part(parts[0], &Rc::default())?;
        let mut table = self.table_of(name, columns, &first, None)?;
        let mut step: Option<Body> = None;
        for part in &parts[1..] {
            enter(Some(table.clone()));
            used.set(0);
            let body = self.part(part, &Rc::default())?;
            if self.widths(&body) != table.schema.columns.len() {
                return Err(errors::set_operation_columns().into());
            }
            let join = |left, right| Body::Set {
                operation: SetOperation::Union,
                all: true,
                left: Box::new(left),
                right: Box::new(right),
            };
            match (used.get(), step.take()) {
                (0, None) => {
                    first = join(first, body);
                    table = self.table_of(name, columns, &first, None)?;
                }
                (0, Some(_)) => return Err(errors::recursive_first(name).into()),
                (_, before) => {
                    if let Body::Select(s) = &body
                        && (s.group.is_some() || s.distinct || !s.order.is_empty() || s.limit.is_some())
                    {
                        return Err(errors::recursive_aggregate(name).into());
                    }
                    step = Some(match before {
                        Some(before) => join(before, body),
                        None => body,
                    });
                }
            }
        }
        self.common.borrow_mut().truncate(known);
        let Some(step) = step else { return Ok(None) };
        if query.order_by.is_some() || query.limit_clause.is_some() || query.with.is_some() {
            return Err(errors::not_supported("ORDER BY, LIMIT or WITH in a recursive definition").into());
        }
        let is_correlated = [&first, &step].into_iter().any(body_is_correlated);
        let body = Body::Recursive { first: Box::new(first), step: Box::new(step), all };
        Ok(Some(Rc::new(Derived { table, body, is_correlated, is_subquery: false, is_lateral: false, text: None })))
    }

    /// One side of a set operation, in a block of its own.
    fn part(&self, part: &SetExpr, inward: &Rc<[Expr]>) -> Bound<Body> {
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
            table: table.clone(),
            is_correlated: body_is_correlated(&body),
            body,
            is_subquery: false,
            is_lateral: false,
            text: None,
        });
        let visible = Visible {
            shown: String::new(),
            database: String::new(),
            table,
            first: 0,
            is_nullable: false,
            beneath: None,
        };
        let scope = Rc::new(Scope::of(visible));
        self.frames.show(&scope);
        let item = Item {
            origin: Origin::Derived(derived),
            firsts: vec![0],
            left: None,
            exists: None,
            is_straight: false,
            uses: None,
        };
        let level = Level { items: vec![item], ..Level::default() };
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

    fn widths(&self, body: &Body) -> usize {
        match body {
            Body::Select(select) => select.outputs.len(),
            Body::Set { left, .. } => self.widths(left),
            Body::Recursive { first, .. } => self.widths(first),
            Body::LastRows | Body::JsonTable { .. } => 0,
        }
    }

    fn made(&self, body: &Body) -> Bound<Vec<Made>> {
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

    /// What a body makes, as a table; `exactly`: it is this SELECT, and no other adds rows to it.
    fn table_of(&self, name: &str, columns: &[String], body: &Body, exactly: Option<&Select>) -> Bound<Rc<Table>> {
        let mut made = self.made(body)?;
        if let Some(select) = exactly {
            for (m, o) in made.iter_mut().zip(&select.outputs) {
                (m.ty, m.face) = (type_kept(o, m.ty), o.shape.face);
            }
        }
        if !columns.is_empty() {
            if columns.len() != made.len() {
                return Err(errors::alias_columns().into());
            }
            made.iter_mut().zip(columns).for_each(|(m, name)| m.name.clone_from(name));
        }
        for (i, m) in made.iter().enumerate() {
            if !name.is_empty() && made[..i].iter().any(|other| other.name.eq_ignore_ascii_case(&m.name)) {
                return Err(errors::duplicate_column(&m.name).into());
            }
        }
        let column = |m: Made| {
            let declared = m.face.map_or_else(String::new, |face| face.declared(m.ty));
            Column { default: DefaultValue::Null, declared, ..Column::new(m.name, m.ty) }
        };
        let is_united = matches!(body, Body::Set { .. });
        let shapes = made.iter().filter(|_| is_united).map(|m| m.united.shape(m.face)).collect();
        let schema = TableSchema::new("", name, made.into_iter().map(column).collect(), key_of(body));
        let mut table = Table::new(schema, Vec::new());
        table.shapes = shapes;
        Ok(Rc::new(table))
    }
}

/// Columns that tell the rows of a body apart; none where that is not known.
fn key_of(body: &Body) -> Vec<u16> {
    match body {
        Body::Select(s) if s.distinct => (0..s.outputs.len() as u16).collect(),
        Body::Select(s) if s.group.as_ref().is_some_and(|g| g.rollup) => Vec::new(),
        Body::Select(s) => {
            let place = |e: &Expr| s.outputs.iter().position(|o| o.expr == *e).map(|at| at as u16);
            let keys = s.group.iter().flat_map(|g| &g.keys).map(|k| place(&k.expr));
            keys.collect::<Option<Vec<_>>>().unwrap_or_default()
        }
        _ => Vec::new(),
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
    let Statement::Query(mut query) = super::parse("SELECT 1")? else { return Err(errors::syntax("VALUES").into()) };
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
fn union_parts<'e>(e: &'e SetExpr, out: &mut Vec<&'e SetExpr>) -> Option<bool> {
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

pub fn is_correlated(select: &Select) -> bool {
    select.given.iter().any(|g| matches!(g, Given::Outer(_)))
}

fn body_is_correlated(body: &Body) -> bool {
    match body {
        Body::Select(select) | Body::JsonTable { document: select, .. } => is_correlated(select),
        Body::Set { left, right, .. } => body_is_correlated(left) || body_is_correlated(right),
        Body::Recursive { first, step, .. } => body_is_correlated(first) || body_is_correlated(step),
        Body::LastRows => true,
    }
}
