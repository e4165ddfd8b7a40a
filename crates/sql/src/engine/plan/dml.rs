//! INSERT, REPLACE, UPDATE, DELETE.

use std::rc::Rc;

use apus_types::schema::ColumnType;
use sqlparser::ast::{self, AssignmentTarget, OnInsert, SetExpr, TableObject};

use super::{
    Planner, Select, Unplanned, access,
    select::{OrderKey, order_key},
};
use crate::engine::{
    catalog::Table,
    errors,
    expr::{ArithOp, Builder, CastType, Datum, Expr, Func, build::as_number},
    information_schema,
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnDuplicate {
    Refuse,
    Ignore,
    Replace,
    Update,
}

#[derive(Debug)]
pub enum Source {
    /// Per row, per named column; `None` is DEFAULT.
    Values(Vec<Vec<Option<Expr>>>),
    Select(Box<Select>),
}

#[derive(Debug)]
pub struct Insert {
    pub table: Rc<Table>,
    /// For each column of the table, its place in a row of the source.
    pub places: Vec<Option<usize>>,
    pub source: Source,
    /// For each column its default, or why there is none.
    pub defaults: Vec<errors::Result<Expr>>,
    pub on_duplicate: OnDuplicate,
    /// ON DUPLICATE KEY UPDATE.
    pub assignments: Vec<(u16, Expr)>,
}

/// What an assignment asks of the row, as far as a data node can do it.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    Set(u16, Expr),
    /// `column = column + constant`; the flag says minus.
    Add(u16, Expr, bool),
}

#[derive(Debug)]
pub struct Update {
    pub table: Rc<Table>,
    pub access: access::Access,
    pub assignments: Vec<(u16, Expr)>,
    /// The whole statement as an update program by primary key.
    pub program: Option<Vec<Step>>,
    pub order: Vec<OrderKey>,
    /// The path delivers the order, perhaps backwards.
    pub in_order: bool,
    pub reverse: bool,
    pub limit: Option<Expr>,
    pub ignore: bool,
}

#[derive(Debug)]
pub struct Delete {
    pub table: Rc<Table>,
    pub access: access::Access,
    pub order: Vec<OrderKey>,
    /// The path delivers the order, perhaps backwards.
    pub in_order: bool,
    pub reverse: bool,
    pub limit: Option<Expr>,
    pub ignore: bool,
}

impl Planner<'_> {
    pub(super) fn insert(&self, insert: &ast::Insert) -> Result<Insert, Unplanned> {
        if insert.returning.is_some() || insert.partitioned.is_some() || insert.overwrite {
            return Err(errors::not_supported("this form of INSERT").into());
        }
        let TableObject::TableName(name) = &insert.table else {
            return Err(errors::not_supported("INSERT INTO this").into());
        };
        let table = self.resolve(name)?;
        check_writable(&table)?;
        let schema = &table.schema;
        let database = self.env.database.clone().unwrap_or_default();
        let mut named = Vec::new();
        let mut set_values = Vec::new();
        if !insert.assignments.is_empty() {
            let mut builder = Builder::new(None, "", &database);
            builder.assigns = self.assigns();
            builder.from_digest = self.from_digest;
            builder.target = Some(schema);
            for a in &insert.assignments {
                named.push(column_of(&table, &a.target, "field list")?);
                set_values.push(value_or_default(&mut builder, &a.value)?);
            }
        } else if insert.columns.is_empty() {
            named = table.visible_columns().collect();
        } else {
            for column in &insert.columns {
                let text = column.0.last().and_then(|p| p.as_ident()).map(|i| i.value.clone()).unwrap_or_default();
                let found = schema.column_no(&text).filter(|_| !text.starts_with('#'));
                named.push(found.ok_or_else(|| errors::unknown_column(&text, "field list"))?);
            }
        }
        let mut places = vec![None; schema.columns.len()];
        for (at, &column) in named.iter().enumerate() {
            if places[usize::from(column)].replace(at).is_some() {
                return Err(errors::column_twice(&schema.columns[usize::from(column)].name).into());
            }
        }
        let mut source = self.source(insert, &table, named.len(), set_values)?;
        if let Source::Values(rows) = &mut source {
            for (value, &column) in rows.iter_mut().flat_map(|row| row.iter_mut().zip(&named)) {
                *value = value.take().map(|e| given(schema.columns[usize::from(column)].ty, e));
            }
        }
        let mut on_duplicate = if insert.replace_into {
            OnDuplicate::Replace
        } else if insert.ignore {
            OnDuplicate::Ignore
        } else {
            OnDuplicate::Refuse
        };
        let mut assignments = Vec::new();
        match &insert.on {
            None => {}
            Some(OnInsert::DuplicateKeyUpdate(list)) => {
                on_duplicate = OnDuplicate::Update;
                let mut builder = Builder::new(Some(schema), &schema.name, &database);
                builder.assigns = self.assigns();
                builder.from_digest = self.from_digest;
                builder.allow_values = true;
                builder.new_alias = insert.insert_alias.as_ref().map(|a| a.row_alias.to_string());
                for a in list {
                    assignments
                        .push((column_of(&table, &a.target, "field list")?, self.assigned(&mut builder, &table, a)?));
                }
            }
            Some(_) => return Err(errors::syntax("ON CONFLICT").into()),
        }
        let defaults = schema.columns.iter().map(default_expr).collect();
        Ok(Insert { table, places, source, defaults, on_duplicate, assignments })
    }

    fn source(
        &self,
        insert: &ast::Insert,
        table: &Table,
        width: usize,
        set_values: Vec<Option<Expr>>,
    ) -> Result<Source, Unplanned> {
        if !insert.assignments.is_empty() {
            return Ok(Source::Values(vec![set_values]));
        }
        let Some(query) = &insert.source else { return Ok(Source::Values(vec![Vec::new()])) };
        let SetExpr::Values(values) = &*query.body else {
            let select = self.select(query)?;
            if select.outputs.len() != width {
                return Err(errors::column_count(1).into());
            }
            return Ok(Source::Select(Box::new(select)));
        };
        let mut rows = Vec::with_capacity(values.rows.len());
        for (i, row) in values.rows.iter().enumerate() {
            let mut builder = Builder::new(None, "", self.env.database.as_deref().unwrap_or(""));
            builder.assigns = self.assigns();
            builder.from_digest = self.from_digest;
            builder.target = Some(&table.schema);
            let row = row.iter().map(|e| value_or_default(&mut builder, e)).collect::<Result<Vec<_>, _>>()?;
            // VALUES () gives every column its default.
            if row.len() != width && !row.is_empty() {
                return Err(errors::column_count(i + 1).into());
            }
            rows.push(row);
        }
        Ok(Source::Values(rows))
    }

    fn assigned(&self, builder: &mut Builder<'_>, table: &Table, a: &ast::Assignment) -> Result<Expr, Unplanned> {
        if let ast::Expr::Identifier(i) = &a.value
            && i.quote_style.is_none()
            && i.value.eq_ignore_ascii_case("default")
        {
            let column = column_of(table, &a.target, "field list")?;
            return Ok(default_expr(&table.schema.columns[usize::from(column)])?);
        }
        let column = column_of(table, &a.target, "field list")?;
        Ok(given(table.schema.columns[usize::from(column)].ty, builder.build(&a.value)?))
    }

    pub(super) fn update(&self, update: &ast::Update) -> Result<Update, Unplanned> {
        if update.from.is_some() || update.returning.is_some() {
            return Err(errors::not_supported("UPDATE ... FROM").into());
        }
        let (table, shown) = self.single_table(std::slice::from_ref(&update.table))?;
        check_writable(&table)?;
        let database = self.env.database.clone().unwrap_or_default();
        let mut builder = Builder::new(Some(&table.schema), &shown, &database);
        builder.assigns = self.assigns();
        builder.from_digest = self.from_digest;
        builder.param_kinds = self.param_kinds.clone();
        let mut assignments = Vec::new();
        for a in &update.assignments {
            assignments.push((column_of(&table, &a.target, "field list")?, self.assigned(&mut builder, &table, a)?));
        }
        builder.clause = "where clause";
        let filter = update.selection.as_ref().map(|e| builder.condition(e)).transpose()?;
        let order = self.order(&mut builder, &update.order_by)?;
        let limit = update.limit.as_ref().map(|e| Builder::new(None, "", "").build(e)).transpose()?;
        let (access, in_order, reverse) = ordered_access(&table, filter, &order, limit.is_some());
        let by_key = matches!(&access.path, access::Path::Points { index: None, .. })
            && access.rest.is_none()
            && limit.is_none();
        let program = by_key.then(|| program(&table, &assignments)).flatten();
        Ok(Update { table, access, assignments, program, order, in_order, reverse, limit, ignore: update.or.is_some() })
    }

    pub(super) fn delete(&self, delete: &ast::Delete) -> Result<Delete, Unplanned> {
        if !delete.tables.is_empty() || delete.using.is_some() || delete.returning.is_some() {
            return Err(errors::not_supported("DELETE from several tables").into());
        }
        let (ast::FromTable::WithFromKeyword(from) | ast::FromTable::WithoutKeyword(from)) = &delete.from;
        let (table, shown) = self.single_table(from)?;
        check_writable(&table)?;
        let database = self.env.database.clone().unwrap_or_default();
        let mut builder = Builder::new(Some(&table.schema), &shown, &database);
        builder.assigns = self.assigns();
        builder.from_digest = self.from_digest;
        builder.param_kinds = self.param_kinds.clone();
        builder.clause = "where clause";
        let filter = delete.selection.as_ref().map(|e| builder.condition(e)).transpose()?;
        let order = self.order(&mut builder, &delete.order_by)?;
        let limit = delete.limit.as_ref().map(|e| Builder::new(None, "", "").build(e)).transpose()?;
        let (access, in_order, reverse) = ordered_access(&table, filter, &order, limit.is_some());
        // The parser has no place for it.
        let mut modifiers = self.text.split_ascii_whitespace().skip(1).take_while(|w| !w.eq_ignore_ascii_case("from"));
        let ignore = modifiers.any(|w| w.eq_ignore_ascii_case("ignore"));
        Ok(Delete { table, access, order, in_order, reverse, limit, ignore })
    }

    pub(super) fn order(
        &self,
        builder: &mut Builder<'_>,
        list: &[ast::OrderByExpr],
    ) -> Result<Vec<OrderKey>, Unplanned> {
        builder.clause = "order clause";
        let mut order = Vec::new();
        for e in list {
            let expr = builder.build(&e.expr)?;
            if !expr.is_constant() {
                let descending = matches!(e.options.sort, Some(ast::OrderBySort::Desc));
                order.push(order_key(expr, descending, &self.param_kinds));
            }
        }
        Ok(order)
    }
}

pub fn check_writable(table: &Table) -> Result<(), Unplanned> {
    if information_schema::is_virtual(&table.schema) { Err(errors::virtual_table_write().into()) } else { Ok(()) }
}

/// The path to the rows, whether it delivers them in order and whether backwards.
fn ordered_access(
    table: &Table,
    filter: Option<Expr>,
    order: &[OrderKey],
    limited: bool,
) -> (access::Access, bool, bool) {
    let columns: Option<Vec<u16>> = order
        .iter()
        .map(|k| match &k.expr {
            Expr::Column(c) if k.descending == order[0].descending => Some(c.slot),
            _ => None,
        })
        .collect();
    let access = access::choose(table, filter, columns.as_deref().filter(|_| limited).unwrap_or(&[]));
    let in_order = columns.is_some_and(|c| access.path.ordered_by(&c));
    let reverse = in_order && order.first().is_some_and(|k| k.descending);
    (access, in_order, reverse)
}

fn column_of(table: &Table, target: &AssignmentTarget, clause: &str) -> Result<u16, Unplanned> {
    let AssignmentTarget::ColumnName(name) = target else { return Err(errors::syntax(&target.to_string()).into()) };
    let text = name.0.last().and_then(|p| p.as_ident()).map(|i| i.value.clone()).unwrap_or_default();
    let found = table.schema.column_no(&text).filter(|_| !text.starts_with('#'));
    found.ok_or_else(|| errors::unknown_column(&text, clause).into())
}

/// What a column is given: a hexadecimal or bit literal is a number where it goes into a column of numbers, a moment that was chosen
/// among several goes into a column by its text, as in MySQL.
fn given(ty: ColumnType, e: Expr) -> Expr {
    use ColumnType as C;
    let is_choice = matches!(
        &e,
        Expr::Case { .. }
            | Expr::Call(Func::If | Func::IfNull | Func::Coalesce | Func::NullIf | Func::Greatest | Func::Least, ..)
    );
    match ty {
        _ if is_choice && e.kind(&[]).is_temporal() => Expr::Cast(Box::new(e), CastType::Text(None)),
        C::Int { .. } | C::Year | C::Decimal { .. } | C::Float | C::Double => as_number(e),
        _ => e,
    }
}

fn value_or_default(builder: &mut Builder<'_>, e: &ast::Expr) -> Result<Option<Expr>, Unplanned> {
    match e {
        ast::Expr::Identifier(i) if i.quote_style.is_none() && i.value.eq_ignore_ascii_case("default") => Ok(None),
        e => Ok(Some(builder.build(e)?)),
    }
}

/// A column's default as an expression.
pub fn default_expr(column: &apus_types::Column) -> crate::engine::errors::Result<Expr> {
    use apus_types::schema::DefaultValue;
    Ok(match &column.default {
        DefaultValue::Literal(text) => Expr::Const(Datum::text(text.clone())),
        DefaultValue::CurrentTimestamp => {
            let digits = Expr::Const(Datum::Int(6));
            Expr::Call(crate::engine::expr::Func::Now, vec![digits], Default::default())
        }
        DefaultValue::Null => Expr::Const(Datum::Null),
        DefaultValue::None if column.nullable => Expr::Const(Datum::Null),
        DefaultValue::None => return Err(errors::no_default(&column.name)),
    })
}

/// The assignments as steps that a data node executes on the row it holds; `None` when they need more.
fn program(table: &Table, assignments: &[(u16, Expr)]) -> Option<Vec<Step>> {
    let schema = &table.schema;
    if schema.columns.iter().any(|c| c.on_update_now) {
        return None; // whether the row changes decides whether the time is set
    }
    let mut steps = Vec::new();
    for (column, e) in assignments {
        if schema.primary_key.contains(column) {
            return None;
        }
        let own = |e: &Expr| matches!(e, Expr::Column(c) if c.slot == *column);
        let integer = matches!(schema.columns[usize::from(*column)].ty, ColumnType::Int { bits, unsigned } if bits < 64 || !unsigned);
        steps.push(match e {
            e if e.is_constant() => Step::Set(*column, e.clone()),
            Expr::Arith(ArithOp::Add, a, b) if integer && own(a) && b.is_constant() => {
                Step::Add(*column, (**b).clone(), false)
            }
            Expr::Arith(ArithOp::Add, a, b) if integer && own(b) && a.is_constant() => {
                Step::Add(*column, (**a).clone(), false)
            }
            Expr::Arith(ArithOp::Sub, a, b) if integer && own(a) && b.is_constant() => {
                Step::Add(*column, (**b).clone(), true)
            }
            _ => return None,
        });
    }
    Some(steps)
}
