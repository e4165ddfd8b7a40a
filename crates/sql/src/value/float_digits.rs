//! FLOAT and DOUBLE with digits `(M,D)`, and without sign. The stored value is that of the type alone; digits and sign are in the text that the column was declared
//! with ([`apus_types::Column::declared`]), and are looked at when a value is assigned or told. MySQL calls both deprecated.

use apus_types::{Column, ColumnType};

use crate::{errors::Result, wire::SqlError};

const WIDTH_MAX: u32 = 255;
const SCALE_MAX: u32 = 30;

fn is_real(ty: ColumnType) -> bool {
    matches!(ty, ColumnType::Float | ColumnType::Double)
}

/// M and D of a FLOAT or DOUBLE that has both, and where MySQL has such; others were taken by earlier releases, and meant nothing.
pub fn digits(column: &Column) -> Option<(u32, u32)> {
    declared_digits(column).filter(|(width, scale)| *scale <= SCALE_MAX && scale <= width && *width <= WIDTH_MAX)
}

fn declared_digits(column: &Column) -> Option<(u32, u32)> {
    if !is_real(column.ty) {
        return None;
    }
    let (_, behind) = column.declared.split_once('(')?;
    let (width, scale) = behind.split_once(')')?.0.split_once(',')?;
    Some((width.parse().ok()?, scale.parse().ok()?))
}

pub fn is_unsigned(column: &Column) -> bool {
    is_real(column.ty) && column.declared.contains(" unsigned")
}

/// The type as SHOW prints it.
pub fn type_name(column: &Column) -> Option<String> {
    let name = match column.ty {
        ColumnType::Float => "float",
        ColumnType::Double => "double",
        _ => return None,
    };
    let digits = digits(column).map_or_else(String::new, |(width, scale)| format!("({width},{scale})"));
    Some(format!("{name}{digits}{}", if is_unsigned(column) { " unsigned" } else { "" }))
}

/// The value that the column stores for a number, and whether it is in the column's range; `Field_real::truncate` of MySQL.
pub fn fitted(column: &Column, x: f64) -> (f64, bool) {
    let (mut fitted, mut most) = (x, if column.ty == ColumnType::Float { f64::from(f32::MAX) } else { f64::MAX });
    if let Some((width, scale)) = digits(column) {
        let one = 10f64.powi(scale as i32);
        most = most.min(10f64.powi((width - scale) as i32) - 1.0 / one);
        if x.is_finite() {
            fitted = x.floor() + ((x - x.floor()) * one).round_ties_even() / one;
        }
    }
    let least = if is_unsigned(column) { 0.0 } else { -most };
    match fitted.is_nan() {
        true => (0.0, false),
        false => (fitted.clamp(least, most), (least..=most).contains(&fitted)),
    }
}

/// Rows of the old column may have what the new one would not store. Other digits are another way to tell the values that are there, as in MySQL.
pub fn is_narrower(old: &Column, new: &Column) -> bool {
    is_unsigned(new) && !is_unsigned(old)
}

/// # Errors
/// 1425, 1427, 1439: digits that there are not.
pub fn check(column: &Column) -> Result<()> {
    let Some((width, scale)) = declared_digits(column) else { return Ok(()) };
    let name = &column.name;
    let (number, text) = if scale > SCALE_MAX {
        (1425, format!("Too big scale {scale} specified for column '{name}'. Maximum is {SCALE_MAX}."))
    } else if width < scale {
        (1427, format!("For float(M,D), double(M,D) or decimal(M,D), M must be >= D (column '{name}')."))
    } else if width > WIDTH_MAX {
        (1439, format!("Display width out of range for column '{name}' (max = {WIDTH_MAX})"))
    } else {
        return Ok(());
    };
    Err(SqlError::new(number, b"42000", text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(ty: ColumnType, declared: &str) -> Column {
        Column { declared: declared.to_owned(), ..Column::new("c", ty) }
    }

    #[test]
    fn values_are_fitted_to_the_digits() {
        let money = column(ColumnType::Double, "double(8,2) unsigned");
        assert_eq!(type_name(&money).as_deref(), Some("double(8,2) unsigned"));
        for (given, stored, fits) in [
            (1.005, 1.0, true),
            (1.015, 1.01, true),
            (2.5, 2.5, true),
            (999_999.994, 999_999.99, true),
            (1e6, 999_999.99, false),
            (-0.5, 0.0, false),
        ] {
            assert_eq!(fitted(&money, given), (stored, fits), "{given}");
        }
        let plain = column(ColumnType::Float, "float");
        assert_eq!((fitted(&plain, -1.005), fitted(&plain, 1e39)), ((-1.005, true), (f64::from(f32::MAX), false)));
        assert_eq!((digits(&plain), type_name(&plain).as_deref()), (None, Some("float")));
        assert_eq!(
            digits(&column(ColumnType::Decimal { precision: 5, scale: 2, unsigned: false }, "decimal(5,2)")),
            None
        );
        let of_before = column(ColumnType::Double, "double(2,3)");
        assert_eq!((fitted(&of_before, 1.23456), check(&of_before).unwrap_err().errno), ((1.23456, true), 1427));
        assert!(is_narrower(&plain, &money) && !is_narrower(&money, &plain));
    }
}
