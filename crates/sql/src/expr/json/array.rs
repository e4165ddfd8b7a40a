//! A document as values of one type: `CAST(document AS UNSIGNED ARRAY)`, what indexes of several entries for each row are made of.
//!
//! An array has the values of its elements, a scalar is one value. What an element may be is what MySQL takes for a value of the type: numbers are rounded, `true` is 1, a text is a number if it
//! is one in whole. Texts are compared byte by byte.

use apus_types::{Column, ColumnType, key, schema::DefaultValue};

use super::{of_datum, parsed};
use crate::{
    errors::{self, Result},
    expr::assign::{self, Assign},
    value::{
        datum::{Datum, Number},
        json::{Json, compare, print},
        zone::Zone,
    },
    wire::SqlError,
};

/// Why a document has no such values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Misfit {
    /// An element is of another kind, or null.
    Invalid,
    OutOfRange,
    /// A number that no integer holds.
    Beyond,
    TooLong,
    /// A text is no moment.
    Cut,
    /// An array or an object among the elements.
    Container,
    Object,
}

impl Misfit {
    /// The error of a row for an index.
    pub fn of_index(self, index: &str, row: usize) -> SqlError {
        let error = |errno, state, text: String| SqlError::new(errno, state, text);
        match self {
            Misfit::Invalid => {
                error(3903, b"22018", format!("Invalid JSON value for CAST for functional index '{index}'."))
            }
            Misfit::OutOfRange => {
                error(3752, b"22003", format!("Value is out of range for functional index '{index}' at row {row}"))
            }
            Misfit::Beyond => {
                error(3904, b"22003", format!("Out of range JSON value for CAST for functional index '{index}'."))
            }
            Misfit::TooLong => error(3907, b"22001", format!("Data too long for functional index '{index}'.")),
            Misfit::Cut => cut(index, row),
            Misfit::Container => {
                let text = format!("Cannot store an array or an object in a scalar key part of the index '{index}'.");
                error(3908, b"HY000", text)
            }
            Misfit::Object => errors::not_yet_in_mysql("CAST-ing JSON OBJECT type to array"),
        }
    }
}

/// Digits of a number are lost.
pub fn cut(index: &str, row: usize) -> SqlError {
    SqlError::new(3751, b"01000", format!("Data truncated for functional index '{index}' at row {row}"))
}

/// The document that a value is.
///
/// # Errors
/// 3141: a text is none.
pub fn document(value: &Datum<'_>) -> Result<Json> {
    match value {
        Datum::Text(text) | Datum::Label(_, text) => parsed(text, 1, "cast_as_array"),
        other => Ok(of_datum(other)),
    }
}

/// One value, and whether it lost digits.
pub fn element(ty: ColumnType, value: &Json) -> std::result::Result<(Datum<'static>, bool), Misfit> {
    match value {
        Json::Array(_) | Json::Object(_) => return Err(Misfit::Container),
        Json::Null => return Err(Misfit::Invalid),
        _ => {}
    }
    match ty {
        ColumnType::Int { unsigned, .. } => {
            let n = match value {
                Json::String(text) => text.parse::<i128>().map_err(|_| Misfit::Invalid)?,
                Json::Bool(is) => i128::from(*is),
                other => compare::number(other).ok_or(Misfit::Invalid)?.to_i128(),
            };
            let fits = |n: &i128| if unsigned { u64::try_from(*n).is_ok() } else { i64::try_from(*n).is_ok() };
            let is_beyond = matches!(value, Json::Double(_) | Json::Decimal { .. });
            let misfit = if is_beyond { Misfit::Beyond } else { Misfit::OutOfRange };
            let n = Some(n).filter(fits).ok_or(misfit)?;
            Ok((if unsigned { Datum::UInt(n as u64) } else { Datum::Int(n as i64) }, false))
        }
        ColumnType::Decimal { .. } => {
            let number = match value {
                Json::String(text) => {
                    let (unscaled, scale) = crate::value::decimal::parse_exact(text).ok_or(Misfit::Invalid)?;
                    Number::Decimal(unscaled, scale)
                }
                Json::Bool(is) => Number::Int(i64::from(*is)),
                other => compare::number(other).ok_or(Misfit::Invalid)?,
            };
            let kept = assigned(ty, number.datum()).map_err(|_| Misfit::OutOfRange)?;
            let is_cut = kept.number().is_none_or(|kept| kept.compare(number).is_ne());
            Ok((kept, is_cut))
        }
        ColumnType::VarChar { length, .. } => {
            let mut text = Vec::new();
            print::push_unquoted(&mut text, value);
            let count = std::str::from_utf8(&text).map_or(usize::MAX, |text| text.chars().count());
            if count > usize::from(length) { Err(Misfit::TooLong) } else { Ok((Datum::Text(text.into()), false)) }
        }
        ColumnType::VarBinary { length } => {
            let mut bytes = Vec::new();
            match value {
                Json::Opaque(_, own) => bytes.extend_from_slice(own),
                other => print::push_unquoted(&mut bytes, other),
            }
            if bytes.len() > usize::from(length) {
                return Err(Misfit::TooLong);
            }
            Ok((Datum::Bytes(bytes.into()), false))
        }
        ty => {
            let moment = match value {
                Json::String(text) => Datum::text(text.as_str()),
                Json::Date(d) => Datum::Date(*d),
                Json::DateTime(d, _) => Datum::DateTime(*d, 6),
                Json::Time(t) => Datum::Time(*t, 6),
                other => compare::number(other).ok_or(Misfit::Invalid)?.datum(),
            };
            assigned(ty, moment).map(|moment| (moment, false)).map_err(|_| Misfit::Cut)
        }
    }
}

fn assigned(ty: ColumnType, value: Datum<'static>) -> Result<Datum<'static>> {
    let column = Column { default: DefaultValue::Null, ..Column::new("", ty) };
    assign::assign(&column, value, Assign { row: 1, table: "", strict: true, zone: Zone::UTC, env: None, warns: false })
}

/// The values of a document, and whether one lost digits.
pub fn elements(ty: ColumnType, document: &Json) -> std::result::Result<(Vec<Datum<'static>>, bool), Misfit> {
    let list = match document {
        Json::Array(list) => list.as_slice(),
        Json::Object(_) => return Err(Misfit::Object),
        scalar => std::slice::from_ref(scalar),
    };
    let (mut values, mut is_cut) = (Vec::with_capacity(list.len()), false);
    for value in list {
        let (value, cut) = element(ty, value)?;
        is_cut |= cut;
        values.push(value);
    }
    Ok((values, is_cut))
}

/// Appends the part of a key that a value is.
///
/// # Errors
/// The value is no such one.
pub fn push_key(ty: ColumnType, value: &Datum<'_>, out: &mut Vec<u8>) -> Result<()> {
    let coded = if ty.is_text() { ColumnType::VarBinary { length: u16::MAX } } else { ty };
    key::encode_part(coded, false, &assign::stored(ty, value), out).map_err(|e| errors::from_code(e, ""))
}

/// A document with its elements as values of the type; one that has none stays.
pub fn typed(ty: ColumnType, value: Datum<'_>) -> Datum<'_> {
    let Ok(read) = document(&value) else { return value };
    match elements(ty, &read) {
        Ok((values, _)) if !value.is_null() => super::datum(&Json::Array(values.iter().map(of_datum).collect())),
        _ => value,
    }
}

/// A value as one of the type; what cannot be one stays.
pub fn typed_element(ty: ColumnType, value: Datum<'_>) -> Datum<'_> {
    match element(ty, &of_datum(&value)) {
        Ok((element, false)) => super::datum(&of_datum(&element)),
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Json {
        document(&Datum::text(text)).unwrap()
    }

    fn shown(ty: ColumnType, text: &str) -> std::result::Result<String, Misfit> {
        let value = Datum::text(text);
        elements(ty, &read(text)).map(|_| typed(ty, value).as_string())
    }

    #[test]
    fn elements_become_values_of_the_type() {
        let unsigned = ColumnType::Int { bits: 64, unsigned: true };
        for (text, want) in [
            ("[1, \"2\", 2.5, true, 1e0]", Ok("[1, 2, 2, 1, 1]")),
            ("5", Ok("[5]")),
            ("[]", Ok("[]")),
            ("[-1]", Err(Misfit::OutOfRange)),
            ("[18446744073709551616]", Err(Misfit::Beyond)),
            ("[\"1.5\"]", Err(Misfit::Invalid)),
            ("[null]", Err(Misfit::Invalid)),
            ("null", Err(Misfit::Invalid)),
            ("[[1]]", Err(Misfit::Container)),
            ("{}", Err(Misfit::Object)),
        ] {
            assert_eq!(shown(unsigned, text), want.map(str::to_owned), "{text}");
        }
        let text = ColumnType::VarChar { length: 3, collation: apus_types::collate::Collation::default() };
        assert_eq!(shown(text, "[\"a\", 12, false]"), Err(Misfit::TooLong));
        assert_eq!(shown(text, "[\"äöü\", 12]"), Ok("[\"äöü\", \"12\"]".to_owned()));
        assert_eq!(shown(ColumnType::Date, "[\"2020-13-01\"]"), Err(Misfit::Cut));
        let price = ColumnType::Decimal { precision: 5, scale: 2, unsigned: false };
        assert_eq!(elements(price, &read("[1.555]")).map(|(_, is_cut)| is_cut), Ok(true));
        assert_eq!(elements(price, &read("[1000]")).map(|_| ()), Err(Misfit::OutOfRange));
    }

    #[test]
    fn what_has_no_such_values_stays() {
        let unsigned = ColumnType::Int { bits: 64, unsigned: true };
        assert_eq!(typed(unsigned, Datum::text("[\"a\"]")).as_string(), "[\"a\"]");
        assert_eq!(typed(unsigned, Datum::text("[")).as_string(), "[");
        assert!(typed(unsigned, Datum::Null).is_null());
        assert_eq!(typed_element(unsigned, Datum::Int(-1)), Datum::Int(-1));
    }
}
