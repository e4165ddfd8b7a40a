//! The column that an expression makes in a table or a view: its type as MySQL declares it, and whether it may be NULL.
//!
//! What a client is told of an output, and in what blocks keep it between each other, is coarser ([`super::outputs`], [`crate::exec::target`]). Here lengths of texts
//! and digits of decimals are followed through the expression where that is certain; what is not known is as wide as the kind allows, since
//! a column that is too narrow refuses rows.

use apus_types::{ColumnType, collate::Collation};

use super::{
    bind::{Aggregate, AggregateKind, is_any_value},
    scope::Scope,
    window::{Call, Function, WINDOW},
};
use crate::{
    expr::{
        ArithOp, CastType, Expr, Func, Kind,
        coercion::{self, collation_of},
    },
    value::{datum::Datum, decimal, enum_set, number_format::Face},
};

/// Most characters of a VARCHAR.
const VARCHAR_MAX: u32 = 16_383;
/// An integer of fewer digits than this is an INT.
const INT_DIGITS: u32 = 9;
/// Bytes of what has no other limit.
const LONGEST: u32 = apus_types::limits::ROW_BYTES_MAX as u32;
/// Digits that SUM adds to those of what it sums.
const SUM_DIGITS: u32 = 22;

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Shape {
    pub ty: ColumnType,
    pub nullable: bool,
    /// How the column's numbers look.
    pub face: Option<Face>,
}

/// What is known of the columns and aggregates that an expression names.
pub struct Shapes<'s> {
    pub scope: &'s Scope,
    pub aggregates: &'s [Aggregate],
    pub calls: &'s [Call],
    pub params: &'s [Kind],
}

impl Shapes<'_> {
    pub fn of(&self, e: &Expr) -> Shape {
        Shape { ty: self.type_of(e), nullable: self.may_be_null(e), face: self.face_of(e) }
    }

    fn face_of(&self, e: &Expr) -> Option<Face> {
        match e {
            Expr::Column(c) => Face::of(self.scope.of_slot(c.slot)?.column(c.slot)),
            Expr::Aggregate(..) if self.call(e).is_none() => {
                let a = self.aggregate(e)?;
                let is_one = matches!(a.function, AggregateKind::Min | AggregateKind::Max);
                self.face_of(a.argument.as_ref().filter(|_| is_one)?)
            }
            Expr::Case { otherwise: Some(of), .. } if is_any_value(e) => self.face_of(of)?.computed(self.type_of(of)),
            _ => None,
        }
    }

    fn aggregate(&self, e: &Expr) -> Option<&Aggregate> {
        let Expr::Aggregate(at, ..) = e else { return None };
        match self.call(e).map(|c| &c.function) {
            Some(Function::Aggregate(a)) => Some(a),
            Some(_) => None,
            None => self.aggregates.get(*at),
        }
    }

    /// The window function that an expression names.
    fn call(&self, e: &Expr) -> Option<&Call> {
        match e {
            Expr::Aggregate(at, ..) if *at < 2 * WINDOW => self.calls.get(at.checked_sub(WINDOW)?),
            _ => None,
        }
    }

    /// What a window function shows of another row, where it shows nothing else.
    fn shown(&self, e: &Expr) -> Option<&Expr> {
        let call = self.call(e)?;
        call.argument.as_ref().filter(|_| !matches!(call.function, Function::Shifted { otherwise: Some(_), .. }))
    }

    fn may_be_null(&self, e: &Expr) -> bool {
        let any = |list: &[Expr]| list.iter().any(|e| self.may_be_null(e));
        match e {
            Expr::Const(value) => value.is_null(),
            Expr::Column(c) => self.scope.of_slot(c.slot).is_none_or(|t| t.is_nullable || t.column(c.slot).nullable),
            Expr::Aggregate(..) => {
                let counts = |a: &Aggregate| {
                    use AggregateKind::*;
                    matches!(a.function, Count | CountRows | BitAnd | BitOr | BitXor)
                };
                let is_place = |f: &Function| {
                    use Function::*;
                    matches!(f, RowNumber | Rank | DenseRank | PercentRank | CumeDist | Ntile(_))
                };
                !self.aggregate(e).is_some_and(counts) && !self.call(e).is_some_and(|c| is_place(&c.function))
            }
            Expr::IsNull { .. } | Expr::IsTruth { .. } | Expr::NullSafeEq(..) => false,
            Expr::Arith(ArithOp::Div | ArithOp::IntDiv | ArithOp::Mod, ..) => true,
            Expr::Case { whens, otherwise, .. } => {
                is_any_value(e)
                    || otherwise.as_ref().is_none_or(|e| self.may_be_null(e))
                    || whens.iter().any(|(_, then)| self.may_be_null(then))
            }
            Expr::Cast(e, to) => {
                matches!(to, CastType::Date | CastType::DateTime(_) | CastType::Time(_) | CastType::AsYear)
                    || self.may_be_null(e)
            }
            Expr::Call(f, list, _) => match f {
                Func::If => any(&list[1..]),
                Func::IfNull | Func::Coalesce => list.iter().all(|e| self.may_be_null(e)),
                Func::IsNull | Func::Pi | Func::Now | Func::CurDate | Func::CurTime => false,
                Func::UtcTimestamp | Func::UtcDate | Func::UtcTime | Func::Sysdate | Func::Rand => false,
                Func::ReleaseAllLocks => false,
                Func::GetLock | Func::ReleaseLock | Func::IsFreeLock => true,
                f if is_small_integer(*f) && !is_part_of_date(*f) => any(list),
                Func::Abs | Func::Round | Func::Truncate | Func::Floor | Func::Ceil => any(list),
                Func::Greatest | Func::Least | Func::BinaryLiteral | Func::BinaryNumber | Func::Collate => any(list),
                Func::Introduced => any(list),
                _ => true,
            },
            Expr::Param(_) | Expr::Variable(..) | Expr::Given(..) | Expr::Outer(_) | Expr::NewColumn(_) => true,
            Expr::UserVariable(..) | Expr::SystemVariable { .. } | Expr::Stored(..) => true,
            e => e.children().iter().any(|e| self.may_be_null(e)),
        }
    }

    fn type_of(&self, e: &Expr) -> ColumnType {
        let collation = collation_of(e, self.params);
        match self.declared(e) {
            Some(ty) => ty,
            None => match e.kind(self.params) {
                Kind::Int if self.digits(e).is_some_and(|(whole, _)| whole < INT_DIGITS) => INT,
                Kind::Decimal(scale) => decimal_of(self.digits(e).map(|(whole, _)| whole), scale),
                Kind::Text | Kind::Label => self.text(e, collation),
                Kind::Null => ColumnType::VarBinary { length: 0 },
                Kind::Bytes => match bytes(e) {
                    Some(length) => ColumnType::VarBinary { length },
                    None => coercion::type_of(Kind::Bytes, collation),
                },
                kind => coercion::type_of(kind, collation),
            },
        }
    }

    /// The type that is that of a column, or goes with the operation.
    fn declared(&self, e: &Expr) -> Option<ColumnType> {
        match e {
            Expr::Column(c) => Some(c.ty),
            Expr::Stored(stored, _) => Some(stored.ty),
            Expr::Not(_) | Expr::And(_) | Expr::Or(_) | Expr::Xor(..) | Expr::Compare(..) => Some(INT),
            Expr::NullSafeEq(..) | Expr::IsNull { .. } | Expr::IsTruth { .. } => Some(INT),
            Expr::In { .. } | Expr::Between { .. } | Expr::Like { .. } => Some(INT),
            Expr::Cast(_, CastType::Float) => Some(ColumnType::Float),
            Expr::Cast(_, CastType::AsYear) | Expr::Call(Func::Year, ..) => Some(ColumnType::Year),
            Expr::Cast(_, CastType::Decimal { precision, scale }) => {
                Some(ColumnType::Decimal { precision: *precision, scale: *scale, unsigned: false })
            }
            Expr::Cast(_, CastType::Signed) => None,
            Expr::Call(f, ..) if is_small_integer(*f) => Some(INT),
            Expr::Call(Func::LoadFile, ..) => Some(ColumnType::Blob { length: LONGEST }),
            Expr::Aggregate(..) => {
                let a = self.aggregate(e)?;
                match a.function {
                    AggregateKind::Min | AggregateKind::Max => Some(self.type_of(a.argument.as_ref()?)),
                    AggregateKind::GroupConcat if a.kind == Kind::Bytes => Some(ColumnType::Blob { length: 65_535 }),
                    AggregateKind::GroupConcat => Some(ColumnType::Text { length: 65_535, collation: a.collation }),
                    _ => None,
                }
            }
            Expr::Case { otherwise: Some(e), .. } if is_any_value(e) => self.declared(e),
            _ => None,
        }
    }

    /// Digits before the point, and behind it.
    fn digits(&self, e: &Expr) -> Option<(u32, u32)> {
        let most = |list: &mut dyn Iterator<Item = &Expr>| {
            list.filter(|e| !matches!(e, Expr::Const(Datum::Null)))
                .map(|e| self.digits(e))
                .try_fold((0, 0), |(whole, scale), d| d.map(|(w, s)| (whole.max(w), scale.max(s))))
        };
        match e {
            Expr::Const(Datum::Int(n)) => Some((digits_of(n.unsigned_abs().into()), 0)),
            Expr::Const(Datum::UInt(n)) => Some((digits_of((*n).into()), 0)),
            Expr::Const(Datum::Decimal { unscaled, scale }) => {
                let scale = u32::from(*scale);
                Some((digits_of(unscaled.unsigned_abs()).max(scale + 1) - scale, scale))
            }
            Expr::Column(c) => digits_of_type(c.ty),
            Expr::Negate(e) => self.digits(e),
            Expr::Arith(op, a, b) => {
                let ((a, x), (b, y)) = (self.digits(a)?, self.digits(b)?);
                match op {
                    ArithOp::Add | ArithOp::Sub | ArithOp::SignedSub => Some((a.max(b) + 1, x.max(y))),
                    ArithOp::Mul => Some((a + b, x + y)),
                    ArithOp::Div => Some((a + y, x + u32::from(decimal::DIVISION_DIGITS))),
                    ArithOp::IntDiv if x == 0 && y == 0 => Some((a, 0)),
                    ArithOp::Mod => Some((a.max(b), x.max(y))),
                    _ => None,
                }
            }
            Expr::Aggregate(..) if self.shown(e).is_some() => self.digits(self.shown(e)?),
            Expr::Aggregate(..) => {
                let a = self.aggregate(e)?;
                let (whole, scale) = self.digits(a.argument.as_ref()?)?;
                match a.function {
                    AggregateKind::Sum => Some((whole + SUM_DIGITS, scale)),
                    AggregateKind::Avg => Some((whole, scale + u32::from(decimal::DIVISION_DIGITS))),
                    AggregateKind::Min | AggregateKind::Max => Some((whole, scale)),
                    _ => None,
                }
            }
            Expr::Case { whens, otherwise, .. } => most(&mut whens.iter().map(|(_, e)| e).chain(otherwise.as_deref())),
            Expr::Cast(_, CastType::Decimal { precision, scale }) => {
                Some((u32::from(precision - scale), u32::from(*scale)))
            }
            Expr::Cast(e, CastType::Chosen { .. } | CastType::Exact { .. }) => self.digits(e),
            Expr::Call(Func::If, list, _) => most(&mut list[1..].iter()),
            Expr::Call(Func::IfNull | Func::Coalesce | Func::Greatest | Func::Least, list, _) => most(&mut list.iter()),
            Expr::Call(Func::NullIf | Func::Abs, list, _) => self.digits(list.first()?),
            Expr::Call(Func::Round | Func::Truncate, list, _) => {
                let (whole, scale) = self.digits(list.first()?)?;
                Some((whole + 1, scale))
            }
            _ => None,
        }
    }

    fn text(&self, e: &Expr, collation: Collation) -> ColumnType {
        match self.chars(e) {
            Some(length @ 0..=VARCHAR_MAX) => ColumnType::VarChar { length: length as u16, collation },
            None if !is_long(e) => coercion::type_of(Kind::Text, collation),
            _ => ColumnType::Text { length: LONGEST, collation },
        }
    }

    /// Most characters of a value as a text.
    fn chars(&self, e: &Expr) -> Option<u32> {
        let most =
            |list: &mut dyn Iterator<Item = &Expr>| list.map(|e| self.chars(e)).try_fold(0, |n, e| Some(e?.max(n)));
        match e {
            Expr::Const(Datum::Null) => Some(0),
            Expr::Const(value) => u32::try_from(value.as_string().chars().count()).ok(),
            Expr::Column(c) => chars_of_type(c.ty),
            Expr::Aggregate(..) if self.shown(e).is_some() => self.chars(self.shown(e)?),
            Expr::Aggregate(..) => {
                let a = self.aggregate(e)?;
                let is_one = matches!(a.function, AggregateKind::Min | AggregateKind::Max);
                if is_one { self.chars(a.argument.as_ref()?) } else { None }
            }
            Expr::Case { whens, otherwise, .. } => most(&mut whens.iter().map(|(_, e)| e).chain(otherwise.as_deref())),
            Expr::Cast(_, CastType::Text(Some(length))) => Some(*length),
            Expr::Cast(e, CastType::Text(None) | CastType::Chosen { .. }) => self.chars(e),
            Expr::Cast(e, CastType::Faced(face)) => self.chars(e).map(|n| n.max(face.width.into())),
            Expr::Call(f, list, _) => match f {
                Func::Concat => list.iter().map(|e| self.chars(e)).try_fold(0u32, |n, e| n.checked_add(e?)),
                Func::Lower
                | Func::Upper
                | Func::Trim
                | Func::LTrim
                | Func::RTrim
                | Func::Reverse
                | Func::Collate
                | Func::ConvertUsing
                | Func::Introduced => self.chars(list.first()?),
                Func::Left | Func::Right => cut(self.chars(list.first()?), list.get(1)),
                Func::Substring => cut(self.chars(list.first()?), list.get(2)),
                Func::SubstringIndex | Func::NullIf => self.chars(list.first()?),
                Func::If => most(&mut list[1..].iter()),
                Func::IfNull | Func::Coalesce | Func::Greatest | Func::Least => most(&mut list.iter()),
                Func::Md5 => Some(32),
                Func::Sha1 => Some(40),
                _ => None,
            },
            _ => None,
        }
    }
}

const INT: ColumnType = ColumnType::Int { bits: 32, unsigned: false };

/// A text that is cut to a number of characters.
fn cut(length: Option<u32>, to: Option<&Expr>) -> Option<u32> {
    match to {
        Some(Expr::Const(Datum::Int(n))) => Some(length.unwrap_or(u32::MAX).min(u32::try_from(*n).unwrap_or(0))),
        _ => length,
    }
}

pub(crate) fn digits_of(n: u128) -> u32 {
    n.checked_ilog10().unwrap_or(0) + 1
}

fn decimal_of(whole: Option<u32>, scale: u8) -> ColumnType {
    let most = decimal::DIGITS_MAX as u32;
    let precision = whole.map_or(most, |whole| (whole + u32::from(scale)).clamp(1, most)) as u8;
    ColumnType::Decimal { precision, scale, unsigned: false }
}

pub(crate) fn digits_of_type(ty: ColumnType) -> Option<(u32, u32)> {
    match ty {
        ColumnType::Int { bits, unsigned } => Some(match bits {
            8 => (3, 0),
            16 => (5, 0),
            24 => (8, 0),
            32 => (10, 0),
            _ => (19 + u32::from(unsigned), 0),
        }),
        ColumnType::Decimal { precision, scale, .. } => Some((u32::from(precision - scale), u32::from(scale))),
        ColumnType::Year => Some((4, 0)),
        ColumnType::Bit { length } => Some(((u64::MAX >> (64 - length)).ilog10() + 1, 0)),
        _ => None,
    }
}

/// Most characters of a column's values as texts; `None`: not known, or a long text.
pub(crate) fn chars_of_type(ty: ColumnType) -> Option<u32> {
    let fraction = |decimals: u8| if decimals == 0 { 0 } else { u32::from(decimals) + 1 };
    match ty {
        ColumnType::Int { unsigned, .. } => digits_of_type(ty).map(|(whole, _)| whole + u32::from(!unsigned)),
        ColumnType::Decimal { precision, scale, unsigned } => {
            Some(u32::from(precision) + u32::from(scale > 0) + u32::from(!unsigned))
        }
        ColumnType::Char { length, .. } | ColumnType::VarChar { length, .. } => Some(length.into()),
        ColumnType::Date => Some(10),
        ColumnType::DateTime { decimals } | ColumnType::Timestamp { decimals } => Some(19 + fraction(decimals)),
        ColumnType::Time { decimals } => Some(10 + fraction(decimals)),
        ColumnType::Year => Some(4),
        ColumnType::Bit { length } => Some(u32::from(length).div_ceil(8)),
        ColumnType::Label { is_set, labels, .. } => Some(enum_set::longest(labels, is_set)),
        _ => None,
    }
}

/// Bytes of a constant.
fn bytes(e: &Expr) -> Option<u16> {
    match e {
        Expr::Const(Datum::Bytes(b)) => u16::try_from(b.len()).ok(),
        Expr::Call(Func::BinaryLiteral, list, _) => bytes(list.first()?),
        _ => None,
    }
}

/// A text that may be as long as a TEXT or BLOB column.
fn is_long(e: &Expr) -> bool {
    use Func::*;
    match e {
        Expr::Column(c) => matches!(c.ty, ColumnType::Text { .. } | ColumnType::Blob { .. } | ColumnType::Json),
        Expr::Call(Sha1 | Sha2 | Md5 | Soundex | Format | Conv | Bin | Oct, ..) => false,
        Expr::Call(JsonType | JsonValue, ..) => false,
        Expr::Call(DateFormat | DayName | MonthName | InetNtoa | Inet6Ntoa | Uuid, ..) => false,
        e => e.children().into_iter().any(is_long),
    }
}

/// Functions whose values are small integers.
fn is_small_integer(f: Func) -> bool {
    use Func::*;
    is_part_of_date(f)
        || matches!(f, Length | CharLength | BitLength | Ascii | Locate | Instr | Strcmp | FindInSet | Field | IsNull)
        || matches!(f, GetLock | ReleaseLock | IsFreeLock)
}

fn is_part_of_date(f: Func) -> bool {
    use Func::*;
    matches!(
        f,
        Month | Day | Hour | Minute | Second | Quarter | DayOfWeek | Weekday | DayOfYear | Week | WeekMode | TimeToSec
    )
}
