//! Literals, placeholders, and the types that CAST names.

use apus_types::collate::Collation;
use sqlparser::ast::{self, DataType, ExactNumberInfo};

use crate::{
    errors::{self, Result},
    expr::{CastType, Expr, func},
    parse::digest::{self, literal},
    value::datum::Datum,
};

pub(super) fn shorten(text: &str) -> String {
    text.chars().take(60).collect()
}

pub(super) fn placeholder(text: &str) -> Result<Expr> {
    let number = text.strip_prefix('?').and_then(|n| n.parse::<usize>().ok()).and_then(|n| n.checked_sub(1));
    match number {
        Some(n) if n >= digest::BINARY_LITERAL => Ok(binary_literal(Expr::Param(n - digest::BINARY_LITERAL))),
        Some(n) => Ok(Expr::Param(n)),
        None => Err(errors::syntax(text)),
    }
}

fn binary_literal(bytes: Expr) -> Expr {
    Expr::Call(func::Func::BinaryLiteral, vec![bytes], Collation::Binary)
}

pub(super) fn value(v: &ast::Value) -> Result<Expr> {
    use ast::Value as V;
    Ok(match v {
        V::Number(n, _) => Expr::Const(literal::number(n.as_bytes())?),
        V::SingleQuotedString(s) | V::DoubleQuotedString(s) | V::NationalStringLiteral(s) => {
            Expr::Const(Datum::text(s.clone()))
        }
        V::HexStringLiteral(s) => binary_literal(Expr::Const(Datum::Bytes(literal::from_hex(s.as_bytes()).into()))),
        V::SingleQuotedByteStringLiteral(s) if s.bytes().all(|b| matches!(b, b'0' | b'1')) => {
            binary_literal(Expr::Const(Datum::Bytes(literal::from_bits(s.as_bytes()).into())))
        }
        V::Boolean(b) => Expr::Const(Datum::from_bool(*b)),
        V::Null => Expr::Const(Datum::Null),
        V::Placeholder(p) => placeholder(p)?,
        other => return Err(errors::not_supported(&shorten(&other.to_string()))),
    })
}

pub fn cast_type(ty: &DataType) -> Result<CastType> {
    let small = |n: &Option<u64>| n.map_or(0, |n| n.min(6) as u8);
    let length = |n: &Option<ast::CharacterLength>| match n {
        Some(ast::CharacterLength::IntegerLength { length, .. }) => u32::try_from(*length).ok(),
        _ => None,
    };
    Ok(match ty {
        DataType::Signed | DataType::SignedInteger | DataType::BigInt(_) | DataType::Int(_) | DataType::Integer(_) => {
            CastType::Signed
        }
        DataType::Unsigned | DataType::UnsignedInteger => CastType::Unsigned,
        DataType::Decimal(i) | DataType::Numeric(i) | DataType::Dec(i) => match *i {
            ExactNumberInfo::None => CastType::Decimal { precision: 10, scale: 0 },
            ExactNumberInfo::Precision(p) => CastType::Decimal { precision: p.min(38) as u8, scale: 0 },
            ExactNumberInfo::PrecisionAndScale(p, s) => {
                CastType::Decimal { precision: p.min(38) as u8, scale: s.clamp(0, 30) as u8 }
            }
        },
        DataType::Float(ExactNumberInfo::None) => CastType::Float,
        DataType::Float(ExactNumberInfo::Precision(p)) if *p <= 24 => CastType::Float,
        DataType::Double(_) | DataType::Float(_) | DataType::Real | DataType::DoublePrecision => CastType::Double,
        DataType::Char(n) | DataType::Character(n) | DataType::Varchar(n) | DataType::Nvarchar(n) => {
            CastType::Text(length(n))
        }
        DataType::Text => CastType::Text(None),
        DataType::Binary(n) => CastType::Bytes(n.and_then(|n| u32::try_from(n).ok())),
        DataType::Date => CastType::Date,
        DataType::Datetime(n) | DataType::Timestamp(n, _) => CastType::DateTime(small(n)),
        DataType::Time(n, _) => CastType::Time(small(n)),
        DataType::JSON => CastType::Json,
        DataType::Array(_) => return Err(errors::array_outside_of_key()),
        other if other.to_string().eq_ignore_ascii_case("year") => CastType::AsYear,
        other => return Err(errors::not_supported(&format!("CAST AS {other}"))),
    })
}
