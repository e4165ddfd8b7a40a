//! `x IN (SELECT y ...)` as a condition: a join with the distinct rows of the subquery, which may then lead to the rows of `x` by key.
//!
//! Only where the subquery sees nothing of the block, nothing else asks for what it says, and rows that are equal to `x` are equal to each other, so that each row of the block
//! finds one at most. A NULL on either side is not true in both forms.

use std::rc::Rc;

use apus_types::{Column, TableSchema, schema::DefaultValue};

use super::{
    derived,
    from::{Item, Level, Origin},
    query::{Asked, Body, Derived, Member, Subquery},
    scope::{COMPUTED, Scope, Visible},
};
use crate::engine::{
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
        level.items.push(Item { origin, firsts: vec![first], left: None, is_straight: false, uses: None });
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
