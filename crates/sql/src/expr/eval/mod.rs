//! Evaluation.

pub mod arithmetic;
pub mod comparison;
pub mod conversion;

use std::cmp::Ordering;

use apus_types::collate::{Collation, like};

use self::{
    arithmetic::{arith, negate, to_bits},
    comparison::{compare, compare_sides, compared_year, eval_in},
    conversion::{bit_operand, cast, cast_text, cast_year, literal, moment_of, new_year, note_cast, note_range},
};
use super::{CastType, ColumnRef, Context, Expr, json, moments};
use crate::{
    errors::{self, Result},
    program::function,
    value::datum::{Datum, Number},
};

impl Expr {
    #[inline]
    pub fn eval<'a>(&'a self, cx: &Context<'a>) -> Result<Datum<'a>> {
        match self {
            Expr::Column(c) => Ok(column(c, cx)),
            Expr::Const(d) => Ok(d.borrowed()),
            _ => self.eval_node(cx),
        }
    }

    fn eval_node<'a>(&'a self, cx: &Context<'a>) -> Result<Datum<'a>> {
        Ok(match self {
            Expr::Const(d) => d.borrowed(),
            Expr::Param(i) | Expr::Variable(i, _) => cx.params.get(*i).map_or(Datum::Null, Datum::borrowed),
            Expr::Column(c) | Expr::Outer(c) => column(c, cx),
            Expr::Given(i, ..) => cx.given.get(usize::from(*i)).map_or(Datum::Null, Datum::borrowed),
            Expr::NewColumn(c) => match cx.new_row {
                Some((layout, row)) => Datum::of_column(c.ty, layout.value(row, c.slot), cx.env.zone()),
                None => Datum::Null,
            },
            Expr::Aggregate(i, ..) => cx.aggregates.get(*i).map_or(Datum::Null, Datum::borrowed),
            Expr::UserVariable(name, _, true) => cx.env.variable_now(name),
            Expr::UserVariable(name, ..) => cx.env.user_variables.get(name).map_or(Datum::Null, Datum::borrowed),
            Expr::Stored(stored, arguments) => function::eval(stored, arguments, cx)?,
            Expr::SystemVariable { name, global } => cx.env.system_variable(name, *global)?,
            Expr::Negate(e) => {
                let value = e.eval(cx)?;
                json::note_cut(cx, e, &value);
                negate(cx, e, &value)?
            }
            Expr::Not(e) => truth_value(truth(cx, &e.eval(cx)?).map(|t| !t)),
            Expr::BitNot(e) => bit_operand(cx, e.eval(cx)?).number().map_or(Datum::Null, |n| Datum::UInt(!to_bits(n))),
            Expr::Arith(op, a, b) if op.is_bitwise() => {
                let a = bit_operand(cx, a.eval(cx)?);
                if a.is_null() {
                    return Ok(Datum::Null);
                }
                arith(*op, &a, &bit_operand(cx, b.eval(cx)?))?
            }
            Expr::Arith(op, a, b) => {
                let (x, y) = (a.eval(cx)?, b.eval(cx)?);
                note_operand(cx, a, &x);
                note_operand(cx, b, &y);
                let (a, b) = (x, y);
                let result = arith(*op, &a, &b)?;
                if result.is_null() && !a.is_null() && !b.is_null() && cx.env.variables.division_errors {
                    cx.env.note(errors::division_by_zero());
                }
                result
            }
            Expr::Compare(op, a, b, collation) => {
                truth_value(compare_sides(cx, (a, &a.eval(cx)?), (b, &b.eval(cx)?), *collation).map(|o| op.holds(o)))
            }
            Expr::NullSafeEq(a, b, collation) => {
                let (x, y) = (a.eval(cx)?, b.eval(cx)?);
                Datum::from_bool(match compare_sides(cx, (a, &x), (b, &y), *collation) {
                    Some(o) => o.is_eq(),
                    None => x.is_null() && y.is_null(),
                })
            }
            Expr::And(list) => {
                let mut unknown = false;
                for e in list {
                    match truth(cx, &e.eval(cx)?) {
                        Some(false) => return Ok(Datum::Int(0)),
                        None => unknown = true,
                        Some(true) => {}
                    }
                }
                if unknown { Datum::Null } else { Datum::Int(1) }
            }
            Expr::Or(list) => {
                let mut unknown = false;
                for e in list {
                    match truth(cx, &e.eval(cx)?) {
                        Some(true) => return Ok(Datum::Int(1)),
                        None => unknown = true,
                        Some(false) => {}
                    }
                }
                if unknown { Datum::Null } else { Datum::Int(0) }
            }
            Expr::Xor(a, b) => match truth(cx, &a.eval(cx)?) {
                Some(first) => truth_value(truth(cx, &b.eval(cx)?).map(|second| first != second)),
                None => Datum::Null,
            },
            Expr::IsNull { expr, negated } => Datum::from_bool(expr.eval(cx)?.is_null() != *negated),
            Expr::IsTruth { expr, want, negated } => {
                Datum::from_bool((truth(cx, &expr.eval(cx)?) == Some(*want)) != *negated)
            }
            Expr::In { expr, list, negated, collation } => eval_in(cx, expr, list, *negated, *collation)?,
            Expr::Between { expr, low, high, negated, collation } => {
                let (value, mut from, mut to) = (expr.eval(cx)?, low.eval(cx)?, high.eval(cx)?);
                if comparison::is_one_moment_beside_times((expr, &value), (low, &from), (high, &to)) {
                    (from, to) = (cast(from, CastType::Time(6))?, cast(to, CastType::Time(6))?);
                }
                // Texts among which is a number are compared as numbers.
                let are_numbers = value.is_text() && (from.is_number() || to.is_number());
                let against = |e: &Expr, bound: &Datum<'_>| match bound.is_text() && are_numbers {
                    true => number(cx, &value).zip(number(cx, bound)).map(|(a, b)| a.compare(b)),
                    false => compare_sides(cx, (expr, &value), (e, bound), *collation),
                };
                let above = against(low, &from).map(Ordering::is_ge);
                let below = against(high, &to).map(Ordering::is_le);
                let inside = match (above, below) {
                    (Some(false), _) | (_, Some(false)) => Some(false),
                    (Some(true), Some(true)) => Some(true),
                    _ => None,
                };
                truth_value(inside.map(|i| i != *negated))
            }
            Expr::Like { expr, pattern, escape, negated, collation } => {
                let (value, pattern) = (expr.eval(cx)?, pattern.eval(cx)?);
                if value.is_null() || pattern.is_null() {
                    return Ok(Datum::Null);
                }
                let is_bytes = matches!(value, Datum::Bytes(_));
                let collation = if is_bytes { Collation::Binary } else { *collation };
                let found = like(&value.as_text(), &pattern.as_text(), *escape, Some(collation));
                Datum::from_bool(found != *negated)
            }
            Expr::Case { operand, whens, otherwise, collation } => {
                let operand = operand.as_ref().map(|e| e.eval(cx)).transpose()?;
                for (when, then) in whens {
                    let when = when.eval(cx)?;
                    let hit = match &operand {
                        Some(value) => compare(cx, value, &when, *collation).is_some_and(Ordering::is_eq),
                        None => truth(cx, &when) == Some(true),
                    };
                    if hit {
                        return then.eval(cx);
                    }
                }
                match otherwise {
                    Some(e) => e.eval(cx)?,
                    None => Datum::Null,
                }
            }
            Expr::Cast(e, to) => {
                let value = e.eval(cx)?;
                match to {
                    CastType::Json => json::cast_as_json(e, value)?,
                    CastType::Array(ty) => json::array::typed(*ty, value),
                    CastType::Element(ty) => json::array::typed_element(*ty, value),
                    CastType::AsYear if matches!(value, Datum::Json(_)) => {
                        cast_year(cx, &json::cast(cx, e, &json::of_datum(&value), CastType::Signed)?)
                    }
                    to if matches!(value, Datum::Json(_)) && !matches!(to, CastType::Text(_) | CastType::Bytes(_)) => {
                        match to {
                            CastType::Exact { .. }
                            | CastType::Moment { .. }
                            | CastType::Literal(_)
                            | CastType::Year { .. } => value,
                            to => json::cast(cx, e, &json::of_datum(&value), *to)?,
                        }
                    }
                    CastType::Moment { kind, alone, of_column } => moment_of(cx, value, *kind, (*alone, *of_column))?,
                    CastType::Literal(kind) => literal(cx, value, *kind)?,
                    CastType::Text(_) if !is_utf8(&value) => {
                        cx.env.note(errors::not_utf8(&value.as_text()));
                        Datum::Null
                    }
                    CastType::Text(Some(length)) => cast_text(cx, value, *length),
                    CastType::AsYear => cast_year(cx, &value),
                    CastType::NewYear => new_year(&value),
                    CastType::Year { alone: true } => {
                        note_cast(cx, &value, *to);
                        compared_year(cx, value)
                    }
                    CastType::Year { alone: false } => value,
                    CastType::Date | CastType::DateTime(_) | CastType::Time(_) => moments::cast(cx, value, *to),
                    to => {
                        note_cast(cx, &value, *to);
                        note_range(cx, &value, *to);
                        cast(value, *to)?
                    }
                }
            }
            Expr::Call(f, args, collation) => f.call(args, *collation, cx)?,
        })
    }

    /// Whether a row passes this as a condition.
    #[inline]
    pub fn passes(&self, cx: &Context<'_>) -> Result<bool> {
        Ok(truth(cx, &self.eval(cx)?) == Some(true))
    }
}

fn column<'a>(c: &ColumnRef, cx: &Context<'a>) -> Datum<'a> {
    let value = Datum::of_column(c.ty, cx.layout.value(cx.row, c.slot), cx.env.zone());
    match c.ty {
        apus_types::ColumnType::Char { length, .. } if cx.env.variables.pads_chars => padded(value, length),
        _ => value,
    }
}

/// By `PAD_CHAR_TO_FULL_LENGTH`: with its spaces behind it.
#[cold]
fn padded(value: Datum<'_>, length: u16) -> Datum<'_> {
    let Datum::Text(text) = value else { return value };
    let chars = text.iter().filter(|&&b| b & 0xc0 != 0x80).count();
    let mut text = text.into_owned();
    text.resize(text.len() + usize::from(length).saturating_sub(chars), b' ');
    Datum::Text(text.into())
}

/// Warns of a text that is not a number in whole where a number is wanted; an empty one is 0 without a word, as in MySQL.
#[inline]
fn note_cut(cx: &Context<'_>, value: &Datum<'_>) {
    if let Datum::Text(text) | Datum::Bytes(text) = value
        && !crate::value::datum::text_to_f64(text).1
        && !text.trim_ascii().is_empty()
    {
        cx.env.note(errors::truncated_number("DOUBLE", text));
    }
}

/// [`note_cut`], also of a document that is no number.
#[inline]
fn note_operand(cx: &Context<'_>, e: &Expr, value: &Datum<'_>) {
    note_cut(cx, value);
    json::note_cut(cx, e, value);
}

#[inline]
pub(crate) fn number(cx: &Context<'_>, value: &Datum<'_>) -> Option<Number> {
    note_cut(cx, value);
    value.number()
}

/// [`Datum::truth`], which warns of a text that is no number.
#[inline]
pub fn truth(cx: &Context<'_>, value: &Datum<'_>) -> Option<bool> {
    note_cut(cx, value);
    if let Datum::Json(_) = value {
        cx.env.note_once(errors::json_as_truth());
    }
    value.truth()
}

fn is_utf8(value: &Datum<'_>) -> bool {
    match value {
        Datum::Bytes(b) => std::str::from_utf8(b).is_ok(),
        Datum::Bit(..) => std::str::from_utf8(&value.as_text()).is_ok(),
        _ => true,
    }
}

pub fn truth_value(t: Option<bool>) -> Datum<'static> {
    t.map_or(Datum::Null, Datum::from_bool)
}

/// Byte offset behind the first `count` characters.
pub fn char_offset(text: &[u8], count: usize) -> usize {
    let mut seen = 0;
    for (at, &b) in text.iter().enumerate() {
        if b & 0xc0 != 0x80 {
            if seen == count {
                return at;
            }
            seen += 1;
        }
    }
    text.len()
}
pub fn char_count(text: &[u8]) -> usize {
    text.iter().filter(|&&b| b & 0xc0 != 0x80).count()
}
