//! How the numbers of a column look as texts: the digits of FLOAT(M,D) and DOUBLE(M,D), and ZEROFILL, which puts zeros in front of a number up to the width of its column.
//!
//! The stored value is the number. The text that the column was declared with ([`apus_types::Column::declared`]) says how it looks; with ZEROFILL it is written by [`filled`], in
//! one form: `int(5) unsigned zerofill`. A client is told so in the definition of the column ([`crate::expr::result_cells::column_def`]), by which the result writer fills rows. Where an
//! expression makes a text of the column, the builder puts a cast around it ([`crate::plan::bind`]). So a column without a face costs nothing.

use apus_types::{Column, ColumnType};

use super::{
    datum::{Datum, Number},
    float_digits,
};
use crate::{
    errors::Result,
    wire::{SqlError, number::push_f32, result::column::DECIMALS_NOT_FIXED},
};

const FILLED: &str = " unsigned zerofill";
const WIDTH_MAX: u32 = 255;

/// How a column's numbers look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Face {
    /// Characters.
    pub width: u8,
    /// Digits behind the point of a FLOAT or DOUBLE; [`DECIMALS_NOT_FIXED`]: as many as it takes.
    pub decimals: u8,
    pub is_filled: bool,
    pub is_unsigned: bool,
    /// A FLOAT.
    is_single: bool,
}

/// How a YEAR looks; a client that is told its type knows.
pub const YEAR: Face =
    Face { width: 4, decimals: DECIMALS_NOT_FIXED, is_filled: true, is_unsigned: true, is_single: false };

impl Face {
    /// `None`: as all numbers of the type look.
    pub fn of(column: &Column) -> Option<Face> {
        let is_filled = is_filled(column);
        let digits = float_digits::digits(column);
        let is_unsigned = float_digits::is_unsigned(column);
        if !is_filled && !is_unsigned && digits.is_none() {
            return None;
        }
        let width = match (digits, column.ty) {
            (Some((width, _)), _) => width,
            (None, ColumnType::Float | ColumnType::Double) => usual_width(column.ty),
            (None, ColumnType::Decimal { precision, scale, .. }) => u32::from(precision) + u32::from(scale > 0),
            (None, _) => declared_width(column)?,
        };
        Some(Face {
            width: u8::try_from(width).ok()?,
            decimals: digits.map_or(DECIMALS_NOT_FIXED, |(_, scale)| scale as u8),
            is_filled,
            is_unsigned: is_filled || is_unsigned,
            is_single: column.ty == ColumnType::Float,
        })
    }

    /// Of the least or greatest of a column's values: the digits of a FLOAT or DOUBLE stay.
    pub fn without_zeros(self, ty: ColumnType) -> Option<Face> {
        let is_real = matches!(ty, ColumnType::Float | ColumnType::Double);
        let is_special = self.is_unsigned || self.decimals != DECIMALS_NOT_FIXED;
        (is_real && is_special).then_some(Face { is_filled: false, ..self })
    }

    /// Of what is made of several: the digits stay.
    pub fn digits_only(self, ty: ColumnType) -> Option<Face> {
        Face { is_unsigned: false, ..self }.without_zeros(ty)
    }

    /// Of a value that is computed: as wide as its type.
    pub fn computed(self, ty: ColumnType) -> Option<Face> {
        Face { width: usual_width(ty) as u8, ..self }.digits_only(ty)
    }

    /// The text that a column of this type and face is declared with.
    pub fn declared(self, ty: ColumnType) -> String {
        let digits = match ty {
            ColumnType::Float | ColumnType::Double if self.decimals == DECIMALS_NOT_FIXED => String::new(),
            ColumnType::Float | ColumnType::Double => format!("({},{})", self.width, self.decimals),
            ColumnType::Decimal { precision, scale, .. } => format!("({precision},{scale})"),
            _ => format!("({})", self.width),
        };
        format!("{}{digits}{}", type_name(ty), self.sign())
    }

    fn sign(self) -> &'static str {
        match (self.is_filled, self.is_unsigned) {
            (true, _) => FILLED,
            (false, true) => " unsigned",
            (false, false) => "",
        }
    }

    pub fn text(self, value: &Datum<'_>) -> String {
        let text = match value.number() {
            Some(Number::Double(x)) if self.decimals != DECIMALS_NOT_FIXED => {
                format!("{x:.*}", usize::from(self.decimals))
            }
            Some(Number::Double(x)) if self.is_single => {
                let mut out = Vec::new();
                push_f32(&mut out, x as f32);
                String::from_utf8_lossy(&out).into_owned()
            }
            _ => value.as_string(),
        };
        if self.is_filled { format!("{text:0>0$}", usize::from(self.width)) } else { text }
    }
}

pub fn is_filled(column: &Column) -> bool {
    column.declared.ends_with(FILLED)
}

/// The type as SHOW prints it, of a column with ZEROFILL.
pub fn shown(column: &Column) -> Option<String> {
    is_filled(column).then(|| column.declared.clone())
}

fn type_name(ty: ColumnType) -> &'static str {
    match ty {
        ColumnType::Float => "float",
        ColumnType::Double => "double",
        ColumnType::Decimal { .. } => "decimal",
        ColumnType::Int { bits: 8, .. } => "tinyint",
        ColumnType::Int { bits: 16, .. } => "smallint",
        ColumnType::Int { bits: 24, .. } => "mediumint",
        ColumnType::Int { bits: 32, .. } => "int",
        _ => "bigint",
    }
}

/// The width of a number by its type; of an integer, without a sign.
fn usual_width(ty: ColumnType) -> u32 {
    match ty {
        ColumnType::Int { bits: 8, .. } => 3,
        ColumnType::Int { bits: 16, .. } => 5,
        ColumnType::Int { bits: 24, .. } => 8,
        ColumnType::Int { bits: 32, .. } => 10,
        ColumnType::Float => 12,
        ColumnType::Double => 22,
        _ => 20,
    }
}

fn declared_width(column: &Column) -> Option<u32> {
    let (_, behind) = column.declared.split_once('(')?;
    behind.split_once(')')?.0.parse().ok()
}

/// The text of a type with ZEROFILL; `sizes`: what stands in its parentheses. YEAR has no use for it.
pub fn filled(ty: ColumnType, sizes: &[u32]) -> String {
    let digits = match (ty, sizes) {
        (ColumnType::Year, _) => return String::new(),
        (ColumnType::Float | ColumnType::Double, [width, scale]) => format!("({width},{scale})"),
        (ColumnType::Float | ColumnType::Double, _) => String::new(),
        (ColumnType::Decimal { precision, scale, .. }, _) => format!("({precision},{scale})"),
        (_, [width, ..]) if *width > 0 => format!("({width})"),
        (ty, _) => format!("({})", usual_width(ty)),
    };
    format!("{}{digits}{FILLED}", type_name(ty))
}

/// # Errors
/// 1425, 1427, 1439: digits that there are not.
pub fn check(column: &Column) -> Result<()> {
    if matches!(column.ty, ColumnType::Int { .. }) && declared_width(column).is_some_and(|width| width > WIDTH_MAX) {
        let text = format!("Display width out of range for column '{}' (max = {WIDTH_MAX})", column.name);
        return Err(SqlError::new(1439, b"42000", text));
    }
    float_digits::check(column)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INT: ColumnType = ColumnType::Int { bits: 32, unsigned: true };

    fn face(ty: ColumnType, declared: &str) -> Option<Face> {
        Face::of(&Column { declared: declared.to_owned(), ..Column::new("c", ty) })
    }

    #[test]
    fn numbers_are_filled_to_the_width() {
        let money = ColumnType::Decimal { precision: 6, scale: 2, unsigned: true };
        for (ty, sizes, declared, value, text) in [
            (INT, &[5][..], "int(5) unsigned zerofill", Datum::UInt(42), "00042"),
            (INT, &[0], "int(10) unsigned zerofill", Datum::UInt(42), "0000000042"),
            (INT, &[2], "int(2) unsigned zerofill", Datum::UInt(142), "142"),
            (money, &[6, 2], "decimal(6,2) unsigned zerofill", Datum::Decimal { unscaled: 750, scale: 2 }, "0007.50"),
            (ColumnType::Float, &[], "float unsigned zerofill", Datum::Double(f64::from(0.1f32)), "0000000000.1"),
            (ColumnType::Double, &[7, 2], "double(7,2) unsigned zerofill", Datum::Double(1.5), "0001.50"),
        ] {
            assert_eq!(filled(ty, sizes), declared);
            let face = face(ty, declared).expect("a face");
            assert_eq!((face.text(&value), face.declared(ty)), (text.to_owned(), declared.to_owned()));
        }
        assert_eq!(filled(ColumnType::Year, &[4]), "");
    }

    #[test]
    fn others_have_no_face() {
        assert_eq!((face(INT, "int(5) unsigned"), face(INT, ""), face(ColumnType::Float, "float")), (None, None, None));
        let digits = face(ColumnType::Float, "float(8,2)").expect("digits");
        assert_eq!(
            (digits.text(&Datum::Double(2.5)), digits.declared(ColumnType::Float).as_str()),
            ("2.50".into(), "float(8,2)")
        );
    }

    #[test]
    fn widths_have_a_limit() {
        let check = |declared: &str| check(&Column { declared: declared.to_owned(), ..Column::new("c", INT) });
        assert!(check("int(255) unsigned zerofill").is_ok());
        assert_eq!(check("int(256)").unwrap_err().errno, 1439);
    }
}
