//! INSERT, REPLACE, UPDATE, DELETE.

pub mod insert;

use std::rc::Rc;

use apus_types::schema::ColumnType;
use sqlparser::ast::{self, AssignmentTarget};

use self::insert::is_of_bytes;
use super::{
    Planner, Unplanned, access,
    bind::{Builder, operator::as_number, text::encoded},
    block::all_of,
    hint::Uses,
    needs::{Changed, Names, targets},
    rules,
    select::{OrderKey, order_key},
    updatable_view::{RowCheck, Through},
};
use crate::{
    accounts::Privileges,
    catalog::{Table, view::View},
    errors,
    expr::{ArithOp, CastType, Expr, Func, Kind},
    value::{bits, datum::Datum, enum_set},
};

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
    pub names: Names,
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
    /// What rows must satisfy that go through a view.
    pub check: Option<RowCheck>,
}

#[derive(Debug)]
pub struct Delete {
    pub table: Rc<Table>,
    pub names: Names,
    pub access: access::Access,
    pub order: Vec<OrderKey>,
    /// The path delivers the order, perhaps backwards.
    pub in_order: bool,
    pub reverse: bool,
    pub limit: Option<Expr>,
    pub ignore: bool,
}

impl Planner<'_> {
    pub(crate) fn update(&self, update: &ast::Update, through: Option<Through>) -> Result<Update, Unplanned> {
        if update.from.is_some() || update.returning.is_some() {
            return Err(errors::not_supported("UPDATE ... FROM").into());
        }
        let (table, shown) = self.changed_table(std::slice::from_ref(&update.table), through.as_ref())?;
        let mut builder = self.builder_of(through.as_ref(), &table, &shown);
        let mut assignments = Vec::new();
        let mut columns = Vec::new();
        for a in &update.assignments {
            let column = target_of(through.as_ref(), &table, a)?;
            columns.push(column);
            let e = self.assigned(&mut builder, &table, column, a)?;
            assignments.extend(e.map(|e| (column, e)));
        }
        builder.clause = "where clause";
        let filter = update.selection.as_ref().map(|e| builder.condition(e)).transpose()?;
        let filter = within(through.as_ref(), filter);
        let check = through.as_ref().map(Through::check).transpose()?.flatten();
        let order = self.order(&mut builder, &update.order_by)?;
        let read = assignments.iter().map(|(_, e)| e).chain(&filter).chain(order.iter().map(|k| &k.expr));
        let view = through.as_ref().and_then(|through| through.merged.view.as_ref());
        let changed = Changed { columns: &columns, names: &targets(&update.assignments), is_all: false };
        self.need_change(view, &table, Privileges::UPDATE, changed);
        self.refer_to_target(view, &table, Some(&shown));
        self.need_read(through.as_ref(), &table, read);
        let limit = update.limit.as_ref().map(|e| self.builder_over(None, "").build(e)).transpose()?;
        let uses = self.uses_of_changed((&table, &shown), std::slice::from_ref(&update.table))?;
        let (access, in_order, reverse) = self.ordered_access(&table, filter, &order, limit.is_some(), uses.as_deref());
        let by_key = matches!(&access.path, access::Path::Points { index: None, .. })
            && access.rest.is_none()
            && check.is_none()
            && limit.is_none()
            && !table.rules()?.is_some_and(|rules| rules.reads(assignments.iter().map(|(c, _)| *c)));
        let program = by_key.then(|| program(&table, &assignments)).flatten();
        let (names, ignore) = (Names::default(), update.or.is_some());
        Ok(Update { table, names, access, assignments, program, order, in_order, reverse, limit, ignore, check })
    }

    pub(crate) fn delete(&self, delete: &ast::Delete, through: Option<Through>) -> Result<Delete, Unplanned> {
        if !delete.tables.is_empty() || delete.using.is_some() || delete.returning.is_some() {
            return Err(errors::not_supported("DELETE from several tables").into());
        }
        let (ast::FromTable::WithFromKeyword(from) | ast::FromTable::WithoutKeyword(from)) = &delete.from;
        let (table, shown) = self.changed_table(from, through.as_ref())?;
        let mut builder = self.builder_of(through.as_ref(), &table, &shown);
        builder.clause = "where clause";
        let filter = delete.selection.as_ref().map(|e| builder.condition(e)).transpose()?;
        let filter = within(through.as_ref(), filter);
        let order = self.order(&mut builder, &delete.order_by)?;
        let view = through.as_ref().and_then(|through| through.merged.view.as_ref());
        self.need_change(view, &table, Privileges::DELETE, Changed::default());
        self.refer_to_target(view, &table, Some(&shown));
        let read = filter.iter().chain(order.iter().map(|k| &k.expr));
        self.need_read(through.as_ref(), &table, read);
        let limit = delete.limit.as_ref().map(|e| self.builder_over(None, "").build(e)).transpose()?;
        if let [ast::TableWithJoins { relation: ast::TableFactor::Table { index_hints, .. }, .. }] = from.as_slice()
            && let Some(hint) = index_hints.first()
        {
            return Err(errors::syntax(&hint.to_string()).into());
        }
        let uses = self.uses_of_changed((&table, &shown), &[])?;
        let (access, in_order, reverse) = self.ordered_access(&table, filter, &order, limit.is_some(), uses.as_deref());
        // The parser has no place for it.
        let mut modifiers = self.text.split_ascii_whitespace().skip(1).take_while(|w| !w.eq_ignore_ascii_case("from"));
        let ignore = modifiers.any(|w| w.eq_ignore_ascii_case("ignore"));
        Ok(Delete { table, names: Names::default(), access, order, in_order, reverse, limit, ignore })
    }

    /// The path to the rows, whether it delivers them in order and whether backwards.
    fn ordered_access(
        &self,
        table: &Table,
        filter: Option<Expr>,
        order: &[OrderKey],
        limited: bool,
        uses: Option<&Uses>,
    ) -> (access::Access, bool, bool) {
        let columns = self.ordering(table, order);
        let is_wanted = limited || uses.is_some_and(|uses| uses.order.is_forced);
        let access = self.choose(table, filter, columns.as_deref().filter(|_| is_wanted).unwrap_or(&[]), uses);
        let may_order = uses.is_none_or(|uses| uses.order.allows(access.path.index()));
        let in_order = may_order && columns.is_some_and(|c| access.path.ordered_by(&c));
        let reverse = in_order && order.first().is_some_and(|k| k.descending);
        (access, in_order, reverse)
    }

    /// What hints say of the one table whose rows are changed.
    fn uses_of_changed(
        &self,
        (table, shown): (&Rc<Table>, &str),
        from: &[ast::TableWithJoins],
    ) -> Result<Option<Rc<Uses>>, Unplanned> {
        let listed = match from {
            [ast::TableWithJoins { relation: ast::TableFactor::Table { index_hints, .. }, .. }] => {
                index_hints.as_slice()
            }
            _ => &[],
        };
        if let Some(hints) = self.hints_here() {
            hints.check(&[(shown, Some(table))], hints.begin_check());
        }
        Ok(self.uses(Some(table), shown, listed)?)
    }

    fn refer_to_target(&self, view: Option<&Rc<View>>, table: &Table, shown: Option<&str>) {
        let schema = &table.schema;
        let (database, name) = view.map_or((&*schema.database, &*schema.name), |view| (view.database(), view.name()));
        let shown = shown.unwrap_or(name);
        self.refer(database, name, shown, None);
        self.refer_to_changed(shown);
    }

    /// The table whose rows are changed, and its name in the statement.
    fn changed_table(
        &self,
        from: &[ast::TableWithJoins],
        through: Option<&Through>,
    ) -> Result<(Rc<Table>, String), Unplanned> {
        let found = match through {
            Some(through) => (through.table.clone(), through.merged.shown.clone()),
            None => self.single_table(from)?,
        };
        check_writable(&found.0)?;
        Ok(found)
    }

    pub(crate) fn order(
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

/// The column that an assignment means.
fn target_of(through: Option<&Through>, table: &Table, a: &ast::Assignment) -> Result<u16, Unplanned> {
    match through {
        Some(through) => through.column_of(&a.target),
        None => column_of(table, &a.target, "field list"),
    }
}

/// A condition on the rows of a view.
fn within(through: Option<&Through>, filter: Option<Expr>) -> Option<Expr> {
    let of_view = through.map_or_else(Vec::new, |t| t.within.clone());
    all_of(of_view.into_iter().chain(filter.into_iter().flat_map(Expr::conjuncts)).collect())
}

pub fn check_writable(table: &Table) -> Result<(), Unplanned> {
    if crate::catalog::information_schema::is_virtual(&table.schema) {
        return Err(errors::virtual_table_write(&table.schema.database).into());
    }
    Ok(())
}

fn column_of(table: &Table, target: &AssignmentTarget, clause: &str) -> Result<u16, Unplanned> {
    let AssignmentTarget::ColumnName(name) = target else { return Err(errors::syntax(&target.to_string()).into()) };
    let text = name.0.last().and_then(|p| p.as_ident()).map(|i| i.value.clone()).unwrap_or_default();
    let found = table.schema.column_no(&text).filter(|_| !text.starts_with('#'));
    found.ok_or_else(|| errors::unknown_column(&text, clause).into())
}

/// What a column is given: a hexadecimal or bit literal is a number where it goes into a column of numbers, a moment that was chosen
/// among several goes into a column by its text, and a text into a column of bytes by the bytes of its character set, as in MySQL.
pub(crate) fn given(ty: ColumnType, e: Expr, kinds: &[Kind]) -> Expr {
    use ColumnType as C;
    let is_choice = matches!(
        &e,
        Expr::Case { .. }
            | Expr::Call(Func::If | Func::IfNull | Func::Coalesce | Func::NullIf | Func::Greatest | Func::Least, ..)
    );
    match ty {
        _ if is_choice && e.kind(&[]).is_temporal() => Expr::Cast(Box::new(e), CastType::Text(None)),
        C::Int { .. } | C::Year | C::Decimal { .. } | C::Float | C::Double => as_number(e),
        ty if is_of_bytes(ty) => encoded(e, kinds),
        _ => e,
    }
}

/// A column's default as an expression without names; see [`rules::default_of`].
pub fn default_expr(column: &apus_types::Column) -> crate::errors::Result<Expr> {
    use apus_types::schema::DefaultValue;
    Ok(match &column.default {
        DefaultValue::Literal(text) => Expr::Const(match column.ty {
            ColumnType::Bit { length } => bits::of_default(text, length),
            _ => Datum::text(text.clone()),
        }),
        DefaultValue::CurrentTimestamp => {
            let digits = Expr::Const(Datum::Int(6));
            Expr::Call(crate::expr::Func::Now, vec![digits], Default::default())
        }
        DefaultValue::Null => Expr::Const(Datum::Null),
        DefaultValue::Expression(_) => return Err(rules::failures::default_is_expression()),
        DefaultValue::None if column.generated.is_some() => return Err(errors::no_default(&column.name)),
        DefaultValue::None if column.nullable => Expr::Const(Datum::Null),
        DefaultValue::None if enum_set::has_first(column.ty) => Expr::Const(Datum::UInt(1)),
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
