//! The column that a set operation makes of the columns of its parts: MySQL's type, its length, and whether it may be NULL.
//!
//! What the rows are kept as between the parts is coarser (`derived`). This is for who declares a column: CREATE TABLE ... SELECT, a view, information_schema. The rules were read off MySQL 9.7.4
//! by asking it for each pair of types (tests/reference/cases/union_types.test). An integer that is computed is a BIGINT. Texts are as long as the longest value of any part, numbers and dates as they are written.

use apus_types::{ColumnType, collate::Collation};

use super::{
    query::SetOperation,
    shape::{Shape, chars_of_type, digits_of, digits_of_type},
};
use crate::{
    expr::{Expr, Kind},
    value::{datum::Datum, decimal, number_format::Face},
};

/// Characters of a text or bytes of a string beyond which a column that is made of several is a TEXT or BLOB.
const LONG: u32 = 512;
const TEXT_BYTES: u32 = 65_535;
const MEDIUM_BYTES: u32 = 16_777_215;
const LONGEST: u32 = apus_types::limits::ROW_BYTES_MAX as u32;
/// Characters that a FLOAT, and a DOUBLE, take at most.
const FLOAT_CHARS: u32 = 12;
const DOUBLE_CHARS: u32 = 22;

/// The column of one part, or of several.
#[derive(Clone, Copy, Debug)]
pub struct United {
    ty: ColumnType,
    nullable: bool,
    /// Digits of a number before its point.
    whole: u32,
    is_constant: bool,
    is_null: bool,
}

impl United {
    /// Of a part that is one SELECT.
    pub fn of(e: &Expr, kind: Kind, shape: Shape) -> United {
        let is_column = matches!(e, Expr::Column(_) | Expr::Stored(..));
        let whole = match e {
            Expr::Const(Datum::Int(n)) => digits_of(n.unsigned_abs().into()),
            Expr::Const(Datum::UInt(n)) => digits_of((*n).into()),
            _ => match shape.ty {
                ColumnType::Bit { length } => length.into(),
                ty => digits_of_type(ty).map_or(0, |(whole, _)| whole),
            },
        };
        let ty = match (shape.ty, kind) {
            (ColumnType::Int { .. }, _) if !is_column => ColumnType::Int { bits: 64, unsigned: kind == Kind::UInt },
            (ty, _) => ty,
        };
        United {
            ty,
            nullable: shape.nullable,
            whole,
            is_constant: matches!(e, Expr::Const(_)),
            is_null: kind == Kind::Null,
        }
    }

    pub fn shape(self, face: Option<Face>) -> Shape {
        Shape { ty: self.ty, nullable: self.nullable, face }
    }

    /// Of two parts whose values are of this kind together.
    #[must_use]
    pub fn with(self, other: United, operation: SetOperation, kind: Kind, collation: Collation) -> United {
        let is_long = |part: United| matches!(part.ty, ColumnType::Text { .. } | ColumnType::Blob { .. });
        let ty = match (self.is_null, other.is_null) {
            (_, true) if !is_long(self) => self.ty,
            (true, _) if !is_long(other) => other.ty,
            _ => self.type_with(other, kind, collation),
        };
        United {
            ty,
            nullable: match operation {
                SetOperation::Union => self.nullable || other.nullable,
                SetOperation::Intersect => self.nullable && other.nullable,
                SetOperation::Except => self.nullable,
            },
            whole: self.whole.max(other.whole),
            is_constant: self.is_constant && other.is_constant,
            is_null: self.is_null && other.is_null,
        }
    }

    fn type_with(self, other: United, kind: Kind, collation: Collation) -> ColumnType {
        use ColumnType::{Bit, Blob, Char, Date, DateTime, Int, Json, Label, Text, Time, Timestamp, VarChar, Year};
        let is_long = |ty: ColumnType| matches!(ty, Text { .. } | Blob { .. });
        if self.ty == other.ty && !is_long(self.ty) && !matches!(self.ty, Label { .. }) {
            return match self.ty {
                Char { length, .. } => Char { length, collation },
                VarChar { length, .. } => VarChar { length, collation },
                ty => ty,
            };
        }
        match (self.ty, other.ty, kind) {
            (Json, _, _) | (_, Json, _) | (_, _, Kind::Text | Kind::Label | Kind::Bytes | Kind::Json) => {
                self.string_with(other, kind == Kind::Bytes, collation)
            }
            (Int { .. } | Year | Bit { .. }, Int { .. } | Year | Bit { .. }, _) => self.integer_with(other),
            (ColumnType::Float, _, _) | (_, ColumnType::Float, _) => self.float_with(other),
            (_, _, Kind::Decimal(_) | Kind::Int | Kind::UInt | Kind::Bit(_)) => self.decimal_with(other),
            (Time { decimals: a }, Time { decimals: b }, _) => Time { decimals: a.max(b) },
            (Timestamp { decimals: a }, Timestamp { decimals: b }, _) => Timestamp { decimals: a.max(b) },
            (Date | DateTime { .. } | Timestamp { .. } | Time { .. }, b, Kind::DateTime(_) | Kind::Date) => {
                DateTime { decimals: fraction(self.ty).max(fraction(b)) }
            }
            _ => ColumnType::Double,
        }
    }

    fn integer_with(self, other: United) -> ColumnType {
        let (a, b) = (integer(self.ty), integer(other.ty));
        let is_bit = [self.ty, other.ty].iter().any(|ty| matches!(ty, ColumnType::Bit { .. }));
        let (signed, unsigned) = if a.1 { (b, a) } else { (a, b) };
        match (a.1, b.1) {
            (true, true) if is_bit => ColumnType::Int { bits: 64, unsigned: true },
            _ if is_bit => self.decimal_with(other),
            (x, y) if x == y => ColumnType::Int { bits: a.0.max(b.0), unsigned: x },
            _ if unsigned.0 == 64 => self.decimal_with(other),
            _ if signed.0 > unsigned.0 || [self.ty, other.ty].contains(&ColumnType::Year) => {
                ColumnType::Int { bits: signed.0.max(unsigned.0), unsigned: false }
            }
            _ => ColumnType::Int {
                bits: if unsigned.0 >= 24 { wider(unsigned.0) } else { unsigned.0 + 8 },
                unsigned: false,
            },
        }
    }

    fn float_with(self, other: United) -> ColumnType {
        let number = if self.ty == ColumnType::Float { other } else { self };
        match number.ty {
            ColumnType::Int { bits, .. } if bits < 32 || number.is_constant => ColumnType::Float,
            ColumnType::Year => ColumnType::Float,
            _ => ColumnType::Double,
        }
    }

    fn decimal_with(self, other: United) -> ColumnType {
        let scale = |ty| digits_of_type(ty).map_or(0, |(_, scale)| scale);
        let scale = scale(self.ty).max(scale(other.ty));
        let precision = (self.whole.max(other.whole) + scale).clamp(1, decimal::DIGITS_MAX as u32);
        ColumnType::Decimal { precision: precision as u8, scale: scale as u8, unsigned: false }
    }

    fn string_with(self, other: United, is_bytes: bool, collation: Collation) -> ColumnType {
        let width = |part: United| if is_bytes { part.bytes() } else { part.chars() };
        let length = width(self).max(width(other));
        let is_long = [self.ty, other.ty]
            .iter()
            .any(|ty| matches!(ty, ColumnType::Text { .. } | ColumnType::Blob { .. } | ColumnType::Json));
        if is_long || length > LONG {
            let bytes = if is_bytes { length } else { length.saturating_mul(4) };
            let is_json = [self.ty, other.ty].contains(&ColumnType::Json);
            let bytes = if is_json { u32::MAX } else { bytes };
            let length = [TEXT_BYTES, MEDIUM_BYTES, LONGEST].into_iter().find(|&most| bytes <= most).unwrap_or(LONGEST);
            return if is_bytes { ColumnType::Blob { length } } else { ColumnType::Text { length, collation } };
        }
        let varies = |ty: ColumnType| matches!(ty, ColumnType::VarChar { .. } | ColumnType::VarBinary { .. });
        let is_fixed = |ty: ColumnType| matches!(ty, ColumnType::Char { .. } | ColumnType::Binary { .. });
        let stays = |ty| !varies(ty);
        let fixed = (is_fixed(self.ty) || is_fixed(other.ty)) && stays(self.ty) && stays(other.ty);
        let length = length as u16;
        match (is_bytes, fixed) {
            (true, true) => ColumnType::Binary { length },
            (true, false) => ColumnType::VarBinary { length },
            (false, true) => ColumnType::Char { length, collation },
            (false, false) => ColumnType::VarChar { length, collation },
        }
    }

    /// Most characters of a value as a text.
    fn chars(self) -> u32 {
        match self.ty {
            ColumnType::Int { unsigned, .. } if self.is_constant => self.whole + u32::from(!unsigned),
            ColumnType::Float => FLOAT_CHARS,
            ColumnType::Double => DOUBLE_CHARS,
            ColumnType::Binary { length } | ColumnType::VarBinary { length } => length.into(),
            ColumnType::Text { length, .. } | ColumnType::Blob { length } => length,
            ColumnType::Bit { length } => length.into(),
            ty => chars_of_type(ty).unwrap_or(LONGEST),
        }
    }

    fn bytes(self) -> u32 {
        match self.ty {
            ColumnType::Char { .. } | ColumnType::VarChar { .. } | ColumnType::Label { .. } => self.chars() * 4,
            ColumnType::Text { length, .. } => length.saturating_mul(4),
            _ => self.chars(),
        }
    }
}

/// Bits of a whole number, and that it has no sign.
fn integer(ty: ColumnType) -> (u8, bool) {
    match ty {
        ColumnType::Int { bits, unsigned } => (bits, unsigned),
        ColumnType::Year => (16, true),
        _ => (64, true),
    }
}

fn wider(bits: u8) -> u8 {
    if bits == 24 { 32 } else { 64 }
}

fn fraction(ty: ColumnType) -> u8 {
    match ty {
        ColumnType::DateTime { decimals } | ColumnType::Timestamp { decimals } | ColumnType::Time { decimals } => {
            decimals
        }
        _ => 0,
    }
}
