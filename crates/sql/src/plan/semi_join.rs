//! `x IN (SELECT y ...)` as a condition: a join with the distinct rows of the subquery, which may then lead to the rows of `x` by key.
//!
//! Only where the subquery sees nothing of the block, nothing else asks for what it says, and rows that are equal to `x` are equal to each other, so that each row of the block
//! finds one at most. A NULL on either side is not true in both forms.
//!
//! `EXISTS`, `NOT EXISTS`, and IN and NOT IN where the other form is not possible, become joins that ask whether there is a row ([`exists`]): of one table, without groups and LIMIT. Where a
//! key leads from the row of the block to those of the subquery, it stays one: it reads the first of them, and no table as a whole. `x NOT IN (...)` is NULL where a NULL is compared, so both sides must be
//! columns that have none.

use std::rc::Rc;

use apus_types::{Column, TableSchema, schema::DefaultValue};

use super::{
    Select,
    access::Access,
    derived,
    from::{Item, Level, Origin},
    join_order,
    query::{Asked, Body, Derived, Leaf, Member, Step, StepKind, Subquery},
    scope::{COMPUTED, Scope, Visible},
};
use crate::{
    catalog::Table,
    expr::{ColumnRef, CompareOp, Expr, Kind},
};

/// Turns those conditions of a block that can be joins into joins. `asked_for`: slots that are wanted otherwise.
pub fn join(level: &mut Level, scope: &mut Scope, computed: &mut [Option<Subquery>], asked_for: &[u16]) {
    for (at, place) in computed.iter_mut().enumerate() {
        let slot = COMPUTED + at as u16;
        let is_it = |e: &Expr| matches!(e, Expr::Column(c) if c.slot == slot);
        let Some(condition) = level.conditions.iter().position(is_it) else { continue };
        let names = level.conditions.iter().filter(|e| e.any(is_it)).count();
        if names != 1 || asked_for.contains(&slot) || !place.as_ref().is_some_and(can_be_joined) {
            continue;
        }
        let Some(first) = next_slot(scope) else { continue };
        let Some(Subquery { mut query, asked: Asked::In(members), .. }) = place.take() else { continue };
        level.conditions.remove(condition);
        let types: Vec<_> = query.outputs.iter().map(|o| derived::type_of_output(o, &[])).collect();
        query.distinct = true;
        query.order.clear();
        (query.in_order, query.reverse) = (true, false);
        for (at, Member { left, collation, .. }) in members.into_iter().enumerate() {
            let right = Expr::Column(ColumnRef { slot: first + at as u16, ty: types[at] });
            level.conditions.push(Expr::Compare(CompareOp::Eq, Box::new(left), Box::new(right), collation));
        }
        let column = |ty| Column { default: DefaultValue::Null, ..Column::new("", ty) };
        let schema = TableSchema::new("", "", types.into_iter().map(column).collect(), Vec::new());
        let table = Rc::new(Table::new(schema, Vec::new()));
        let (shown, database) = (format!("subquery{at}"), String::new());
        scope.tables.push(Visible { shown, database, table: table.clone(), first, is_nullable: false, beneath: None });
        let derived = Derived {
            table,
            body: Body::Select(Box::new(query)),
            is_correlated: false,
            is_subquery: true,
            is_lateral: false,
            text: None,
        };
        let origin = Origin::Derived(Rc::new(derived));
        level.items.push(Item {
            origin,
            firsts: vec![first],
            left: None,
            exists: None,
            is_straight: false,
            uses: None,
        });
    }
}

/// Turns conditions that ask for rows of one table into joins that go on with a row once, or not at all.
pub fn exists(level: &mut Level, scope: &mut Scope, computed: &mut [Option<Subquery>], asked_for: &[u16]) {
    for (at, place) in computed.iter_mut().enumerate() {
        let slot = COMPUTED + at as u16;
        let is_it = |e: &Expr| matches!(e, Expr::Column(c) if c.slot == slot);
        let says = |e: &Expr| match e {
            e if is_it(e) => Some(true),
            Expr::Not(e) if is_it(e) => Some(false),
            _ => None,
        };
        let Some(condition) = level.conditions.iter().position(|e| says(e).is_some()) else { continue };
        let names = level.conditions.iter().filter(|e| e.any(is_it)).count();
        let in_joins = level.items.iter().flat_map(|item| item.left.iter().flatten()).any(|e| e.any(is_it));
        if names != 1 || in_joins || asked_for.contains(&slot) || level.items.len() >= join_order::ITEMS_MAX {
            continue;
        }
        let wants = says(&level.conditions[condition]);
        let (Some(first), Some(subquery)) = (next_slot(scope), place.as_ref()) else { continue };
        let Some(asked) = One::of(&subquery.query) else { continue };
        let Some(on) = matching(subquery, &asked, first, wants == Some(true), scope) else { continue };
        level.conditions.remove(condition);
        let (shown, table) = (asked.shown.to_owned(), asked.table.clone());
        let database = table.schema.database.clone();
        scope.tables.push(Visible { shown, database, table: table.clone(), first, is_nullable: true, beneath: None });
        let origin = Origin::Table(table);
        level.items.push(Item {
            origin,
            firsts: vec![first],
            left: Some(on),
            exists: wants,
            is_straight: false,
            uses: None,
        });
        *place = None;
    }
}

/// The one table that a block reads.
struct One<'q> {
    table: &'q Rc<Table>,
    shown: &'q str,
    access: &'q Access,
    /// Those that are read; conditions and outputs name them by their places. `None`: all of the table.
    columns: Option<&'q [u16]>,
}

impl<'q> One<'q> {
    fn of(query: &'q Select) -> Option<One<'q>> {
        if let (None, Some(table), Some(access)) = (&query.join, &query.table, &query.access) {
            return Some(One { table, shown: &query.shown, access, columns: query.columns.as_deref() });
        }
        let [Step { kind: StepKind::Join(step), filter: None, .. }] = query.join.as_ref()?.steps.as_slice() else {
            return None;
        };
        let (Leaf::Table { table, columns }, Some(access)) = (&step.leaf, &step.scan) else { return None };
        Some(One { table, shown: &step.shown, access, columns: Some(columns) })
    }
}

/// What a row of the block and one of the subquery's table must satisfy, whose first column has the slot `first`; `None`: it stays a subquery.
fn matching(subquery: &Subquery, asked: &One<'_>, first: u16, wants: bool, scope: &Scope) -> Option<Vec<Expr>> {
    let query = &subquery.query;
    let (table, access) = (asked.table, asked.access);
    let is_plain = query.group.is_none()
        && query.limit.is_none()
        && query.offset.is_none()
        && query.lock.is_none()
        && query.locked.is_none()
        && !query.stays_subquery
        && !crate::catalog::information_schema::is_virtual(&table.schema)
        && !access.path.is_led_by(|e| matches!(e, Expr::Given(..)));
    let members = match &subquery.asked {
        Asked::Exists => &[],
        Asked::In(members) => members.as_slice(),
        _ => return None,
    };
    if !is_plain || members.is_empty() && query.given.is_empty() {
        return None;
    }
    // Columns of the table have places among those that are read; what was given is the block's.
    let outer = |number: u16| match query.given.get(usize::from(number))?.outer()? {
        Expr::Column(c) if c.slot < COMPUTED => Some(Expr::Column(*c)),
        given @ Expr::Given(..) => Some(given.clone()),
        _ => None,
    };
    let over_both = |e: &Expr| -> Option<Expr> {
        let (mut e, mut is_known) = (e.clone(), true);
        e.walk_mut(&mut |e| match e {
            Expr::Column(c) => {
                let column = asked.columns.map_or(Some(c.slot), |all| all.get(usize::from(c.slot)).copied());
                is_known &= column.is_some();
                c.slot = first + column.unwrap_or(0);
            }
            Expr::Given(number, ..) => match outer(*number) {
                Some(outer) => *e = outer,
                None => is_known = false,
            },
            _ => {}
        });
        (is_known && !e.any(is_volatile)).then_some(e)
    };
    let mut on = Vec::new();
    for e in access.full.clone().map(Expr::conjuncts).unwrap_or_default() {
        on.push(over_both(&e)?);
    }
    let is_never_null = |e: &Expr| {
        let Expr::Column(c) = e else { return false };
        let of = scope.of_slot(c.slot).map(|t| (t.is_nullable, &t.table.schema, t.first));
        of.is_some_and(|(is_nullable, schema, first)| {
            !is_nullable && schema.columns.get(usize::from(c.slot - first)).is_some_and(|column| !column.nullable)
        })
    };
    for (Member { left, collation, .. }, output) in members.iter().zip(&query.outputs) {
        let right = over_both(&output.expr)?;
        let is_stored = |e: &Expr| {
            let column = if let Expr::Column(c) = e { c.slot.checked_sub(first) } else { None };
            column.and_then(|c| table.schema.columns.get(usize::from(c))).is_some_and(|column| !column.nullable)
        };
        let is_plain = !left.any(|e| is_volatile(e) || matches!(e, Expr::Column(c) if c.slot >= COMPUTED));
        let may_be_null = !is_never_null(left) || !is_stored(&right);
        if !is_plain || !wants && may_be_null {
            return None;
        }
        on.push(Expr::Compare(CompareOp::Eq, Box::new(left.clone()), Box::new(right), *collation));
    }
    (!on.is_empty()).then_some(on)
}

/// How often it is evaluated, or when, is seen.
fn is_volatile(e: &Expr) -> bool {
    match e {
        Expr::Call(f, ..) => f.varies(),
        Expr::UserVariable(..) | Expr::Stored(..) | Expr::Aggregate(..) | Expr::Variable(..) | Expr::NewColumn(_) => {
            true
        }
        _ => false,
    }
}

fn next_slot(scope: &Scope) -> Option<u16> {
    let end = |t: &Visible| usize::from(t.first) + t.table.schema.columns.len();
    let next = scope.tables.iter().map(end).max().unwrap_or(0);
    // Room for the columns of the subquery, too.
    u16::try_from(next).ok().filter(|next| *next < COMPUTED - 4096)
}

fn can_be_joined(subquery: &Subquery) -> bool {
    let query = &subquery.query;
    let Asked::In(members) = &subquery.asked else { return false };
    let is_exact = |m: &Member, ty: apus_types::ColumnType| match m.kind {
        Some(Kind::Decimal(_) | Kind::DateTime(_) | Kind::Time(_)) => true,
        Some(Kind::Text) => ty.collation() == Some(m.collation),
        _ => false,
    };
    let types = query.outputs.iter().map(|o| derived::type_of_output(o, &[]));
    !derived::is_correlated(query)
        && !query.stays_subquery
        && query.limit.is_none()
        && query.offset.is_none()
        && query.lock.is_none()
        && query.locked.is_none()
        && members.iter().zip(types).all(|(m, ty)| is_exact(m, ty))
}
