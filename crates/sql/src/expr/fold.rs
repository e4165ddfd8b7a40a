//! Conditions whose constants are computed once, for a step that asks them of many rows.
//!
//! What literals say is known only when a statement runs, since one plan serves all of them. So `o_orderdate < DATE '1993-10-01' + INTERVAL 3 MONTH` would add the months for each row, and a text beside a date would be
//! read for each. A constant that warns or fails is left as it is: that belongs to the rows, and is said as often as MySQL says it.

use std::borrow::Cow;

use apus_types::{ColumnType, time::pack_datetime};

use super::{ArithOp, CastType, Context, Expr, func::Func, moments};
use crate::value::{datum::Datum, temporal};

/// Fewer rows are not worth it.
const ROWS_MIN: usize = 32;

/// The condition for so many rows of one execution.
pub fn for_rows<'e>(condition: Option<&'e Expr>, rows: usize, cx: &Context<'_>) -> Option<Cow<'e, Expr>> {
    let condition = condition?;
    let has_work = |e: &Expr| is_computed(e) || is_beside_moment(e);
    if rows < ROWS_MIN || !condition.any(has_work) {
        return Some(Cow::Borrowed(condition));
    }
    let mut folded = condition.clone();
    folded.walk_mut(&mut |e| {
        if is_computed(e) && e.is_constant() && !e.any(|part| !is_plain(part)) {
            let value = cx.env.unless_it_warns(|| e.eval(cx).map(Datum::into_owned));
            if let Some(Ok(value)) = value {
                *e = Expr::Const(value);
            }
        } else if let Expr::Compare(_, a, b, _) = e {
            let (constant, other) = if is_moment(a) { (b, a) } else { (a, b) };
            if is_moment(other) {
                read(constant, cx);
            }
        } else if let Expr::Between { expr, low, high, .. } = e
            && is_moment(expr)
        {
            read(low, cx);
            read(high, cx);
        }
    });
    Some(Cow::Owned(folded))
}

/// An operation on values, worth doing once if they are constants.
fn is_computed(e: &Expr) -> bool {
    match e {
        Expr::Call(f, ..) => matches!(f, Func::DateAdd | Func::DateSub),
        Expr::Cast(_, to) => {
            matches!(to, CastType::Date | CastType::DateTime(_) | CastType::Literal(_) | CastType::Moment { .. })
        }
        Expr::Arith(op, ..) => matches!(op, ArithOp::Add | ArithOp::Sub | ArithOp::SignedSub | ArithOp::Mul),
        _ => false,
    }
}

/// It says the same whenever it is asked.
fn is_plain(e: &Expr) -> bool {
    matches!(e, Expr::Const(_) | Expr::Param(_)) || is_computed(e)
}

fn is_moment(e: &Expr) -> bool {
    let ty = e.column_type();
    matches!(ty, Some(ColumnType::Date | ColumnType::DateTime { .. } | ColumnType::Timestamp { .. }))
}

/// A moment beside something that may be a text.
fn is_beside_moment(e: &Expr) -> bool {
    let is_literal = |e: &Expr| matches!(e, Expr::Const(Datum::Text(_)) | Expr::Param(_));
    match e {
        Expr::Compare(_, a, b, _) => is_moment(a) && is_literal(b) || is_moment(b) && is_literal(a),
        Expr::Between { expr, low, high, .. } => is_moment(expr) && (is_literal(low) || is_literal(high)),
        _ => false,
    }
}

/// A text beside a moment becomes the moment that it is.
fn read(e: &mut Expr, cx: &Context<'_>) {
    let text = match e {
        Expr::Const(Datum::Text(text)) => text.to_vec(),
        Expr::Param(i) => match cx.params.get(*i) {
            Some(Datum::Text(text)) => text.to_vec(),
            _ => return,
        },
        _ => return,
    };
    if let Some((civil, false)) = temporal::read_datetime(&text, cx.env.zone(), cx.env.variables.dates_of_columns())
        && !moments::is_forbidden(cx, civil)
    {
        *e = Expr::Const(Datum::DateTime(pack_datetime(civil), 6));
    }
}
