//! What an OR says of all its alternatives: `(a.x = b.y AND a.z = 1) OR (a.x = b.y AND a.z = 2)` has `a.x = b.y` and `a.z = 1 OR a.z = 2`.
//!
//! A condition that every alternative has is taken out in front, where it can lead to keys. What the alternatives say of one table is
//! added as a condition of that table alone, so that fewer of its rows are read; the OR stays and decides.

use super::block::all_of;
use crate::expr::Expr;

/// Most alternatives that are looked at; a longer OR is a list of values.
const ALTERNATIVES_MAX: usize = 64;

/// Rewrites conditions that must all hold. `table_of` tells the table of a slot, `None` what is no column of a table.
pub fn narrow(conditions: &mut Vec<Expr>, table_of: &dyn Fn(u16) -> Option<u16>) {
    let mut all = Vec::with_capacity(conditions.len());
    for condition in std::mem::take(conditions) {
        let Expr::Or(_) = &condition else {
            all.push(condition);
            continue;
        };
        let mut alternatives = Vec::new();
        alternatives_of(condition, &mut alternatives);
        if alternatives.len() <= ALTERNATIVES_MAX {
            all.extend(common(&mut alternatives));
            all.extend(of_tables(&alternatives, table_of));
        }
        if alternatives.iter().all(|parts| !parts.is_empty()) {
            all.push(Expr::Or(alternatives.into_iter().filter_map(all_of).collect()));
        }
    }
    *conditions = all;
}

fn alternatives_of(e: Expr, out: &mut Vec<Vec<Expr>>) {
    match e {
        Expr::Or(list) => list.into_iter().for_each(|e| alternatives_of(e, out)),
        other => out.push(other.conjuncts()),
    }
}

/// Takes out what all alternatives have. Where one has nothing else, the rest says nothing more.
fn common(alternatives: &mut [Vec<Expr>]) -> Vec<Expr> {
    let Some((first, others)) = alternatives.split_first() else { return Vec::new() };
    let is_common = |e: &&Expr| is_plain(e) && others.iter().all(|parts| parts.contains(e));
    let found: Vec<Expr> = first.iter().filter(is_common).cloned().collect();
    for parts in alternatives {
        parts.retain(|e| !found.contains(e));
    }
    found
}

/// For each table of which every alternative says something: the OR of that.
fn of_tables(alternatives: &[Vec<Expr>], table_of: &dyn Fn(u16) -> Option<u16>) -> Vec<Expr> {
    let table = |e: &Expr| {
        let mut slots = Vec::new();
        e.columns(&mut slots);
        let first = table_of(*slots.first()?)?;
        (is_plain(e) && slots.iter().all(|&slot| table_of(slot) == Some(first))).then_some(first)
    };
    let Some((first, others)) = alternatives.split_first() else { return Vec::new() };
    let mut tables: Vec<u16> = first.iter().filter_map(table).collect();
    tables.sort_unstable();
    tables.dedup();
    // An OR over a single table is what it is.
    let is_of_one = |t: u16| alternatives.iter().flatten().all(|e| table(e) == Some(t));
    let says = |parts: &[Expr], t: u16| parts.iter().filter(|e| table(e) == Some(t)).cloned().collect::<Vec<_>>();
    tables.retain(|&t| others.iter().all(|parts| !says(parts, t).is_empty()) && !is_of_one(t));
    tables
        .into_iter()
        .map(|t| Expr::Or(alternatives.iter().filter_map(|parts| all_of(says(parts, t))).collect()))
        .collect()
}

/// Without functions, variables and subqueries: asked twice it says the same and does nothing else.
fn is_plain(e: &Expr) -> bool {
    !e.any(|e| {
        !matches!(
            e,
            Expr::Const(_)
                | Expr::Param(_)
                | Expr::Variable(..)
                | Expr::Column(_)
                | Expr::Arith(..)
                | Expr::Compare(..)
                | Expr::And(_)
                | Expr::Or(_)
                | Expr::Not(_)
                | Expr::IsNull { .. }
                | Expr::In { .. }
                | Expr::Between { .. }
                | Expr::Like { .. }
        )
    })
}

#[cfg(test)]
mod tests {
    use apus_types::{ColumnType, collate::Collation};

    use super::*;
    use crate::{
        expr::{ColumnRef, CompareOp},
        value::datum::Datum,
    };

    fn column(slot: u16) -> Box<Expr> {
        Box::new(Expr::Column(ColumnRef { slot, ty: ColumnType::Int { bits: 32, unsigned: false } }))
    }
    fn equal(a: Box<Expr>, b: Box<Expr>) -> Expr {
        Expr::Compare(CompareOp::Eq, a, b, Collation::default())
    }
    fn is(slot: u16, value: i64) -> Expr {
        equal(column(slot), Box::new(Expr::Const(Datum::Int(value))))
    }

    /// Slots below 10 are of one table, the rest of another.
    fn narrowed(condition: Expr) -> Vec<Expr> {
        let mut all = vec![condition];
        narrow(&mut all, &|slot| Some(slot / 10));
        all
    }

    #[test]
    fn what_all_alternatives_have_is_taken_out() {
        let join = || equal(column(1), column(11));
        let either = |a, b| Expr::Or(vec![Expr::And(vec![join(), a]), Expr::And(vec![b, join()])]);
        let own = || Expr::Or(vec![is(2, 5), is(2, 6)]);
        assert_eq!(narrowed(either(is(2, 5), is(2, 6))), [join(), own()]);
        // One table is named in one alternative only.
        assert_eq!(narrowed(either(is(2, 5), is(12, 6))), [join(), Expr::Or(vec![is(2, 5), is(12, 6)])]);
        // One alternative is the common part: nothing is left to ask.
        assert_eq!(narrowed(Expr::Or(vec![join(), Expr::And(vec![join(), is(2, 1)])])), [join()]);
    }

    #[test]
    fn tables_get_their_part() {
        let (one, other) = (Expr::And(vec![is(1, 1), is(11, 2)]), Expr::And(vec![is(1, 2), is(11, 1)]));
        let whole = Expr::Or(vec![one, other]);
        let parts = [Expr::Or(vec![is(1, 1), is(1, 2)]), Expr::Or(vec![is(11, 2), is(11, 1)]), whole.clone()];
        assert_eq!(narrowed(whole), parts);
        let alone = Expr::Or(vec![is(1, 1), is(2, 2)]);
        assert_eq!(narrowed(alone.clone()), [alone]);
    }
}
