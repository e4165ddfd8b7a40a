//! A value of a document as one of SQL: JSON_VALUE(), and the columns of JSON_TABLE.

use apus_types::{Column, ColumnType, schema::DefaultValue};

use super::{datum, document_in, path_of};
use crate::{
    errors::{self, Result},
    expr::{
        CastType, Context, Expr, Func,
        assign::{self, Assign},
    },
    value::{
        datum::Datum,
        decimal,
        json::{Json, print},
        zone::Zone,
    },
};

/// A value as a column keeps it, if it fits as strict mode would have it; the JSON null is NULL.
pub fn into_column(column: &Column, value: &Json) -> Result<Datum<'static>> {
    let value = match (value, column.ty) {
        (Json::Null, _) => return Ok(Datum::Null),
        (value, ty) if ty.is_text() || ty.fixed_bytes().is_none() && ty != ColumnType::Json => {
            let mut text = Vec::new();
            print::push_unquoted(&mut text, value);
            Datum::Text(text.into())
        }
        (value, _) => datum(value),
    };
    let assign = Assign { row: 1, table: "", strict: true, zone: Zone::UTC, env: None, warns: false };
    assign::assign(column, value, assign).map(Datum::into_owned)
}

/// The type that holds what a cast gives, and how it is called in errors.
fn returned(to: CastType) -> Option<(ColumnType, &'static str)> {
    let collation = apus_types::collate::Collation::default();
    Some(match to {
        CastType::Signed => (ColumnType::Int { bits: 64, unsigned: false }, "SIGNED"),
        CastType::Unsigned => (ColumnType::Int { bits: 64, unsigned: true }, "UNSIGNED"),
        CastType::Decimal { precision, scale } => {
            let precision = precision.min(decimal::DIGITS_MAX as u8);
            (ColumnType::Decimal { precision, scale, unsigned: false }, "DECIMAL")
        }
        CastType::Double => (ColumnType::Double, "DOUBLE"),
        CastType::Float => (ColumnType::Float, "FLOAT"),
        CastType::AsYear => (ColumnType::Year, "YEAR"),
        CastType::Date => (ColumnType::Date, "DATE"),
        CastType::DateTime(decimals) => (ColumnType::DateTime { decimals }, "DATETIME"),
        CastType::Time(decimals) => (ColumnType::Time { decimals }, "TIME"),
        CastType::Json => (ColumnType::Json, "JSON"),
        CastType::Text(length) => {
            let length = length.map_or(u16::MAX, |n| u16::try_from(n).unwrap_or(u16::MAX));
            (ColumnType::VarChar { length, collation }, "STRING")
        }
        CastType::Bytes(length) => {
            let length = length.map_or(u16::MAX, |n| u16::try_from(n).unwrap_or(u16::MAX));
            (ColumnType::VarBinary { length }, "BINARY")
        }
        _ => return None,
    })
}

/// JSON_VALUE(document, path, type, on empty, on error).
pub fn json_value<'a>(f: Func, args: &'a [Expr], cx: &Context<'a>) -> Result<Datum<'a>> {
    let Expr::Cast(_, to) = &args[2] else { return Err(errors::internal("JSON_VALUE of no type")) };
    let Some((ty, kind)) = returned(*to) else { return Err(errors::not_supported("this type of JSON_VALUE")) };
    let column = Column { default: DefaultValue::Null, ..Column::new("", ty) };
    // An empty text of bytes stands for an error; every other value is given in place of the one that is not there.
    let instead = |action: &'a Expr, e: crate::wire::SqlError| match action.eval(cx)? {
        Datum::Null => Ok(Datum::Null),
        Datum::Bytes(b) if b.is_empty() => Err(e),
        given => {
            let assign = Assign { row: 1, table: "", strict: true, zone: Zone::UTC, env: Some(cx.env), warns: false };
            let given = if ty == ColumnType::Json { super::cast_as_json(action, given)? } else { given };
            let range = |_| errors::json_value_range(&format!("{kind} DEFAULT"));
            assign::assign(&column, given, assign).map_err(range).map(Datum::into_owned)
        }
    };
    let Some(path) = path_of(args, 1, cx)? else { return Ok(Datum::Null) };
    let document = match document_in(f, &args[0].eval(cx)?, 0) {
        Ok(None) => return Ok(Datum::Null),
        Ok(Some(document)) => document,
        Err(e) if e.errno == 3141 => {
            let noted = e.clone();
            return instead(&args[4], e).inspect(|_| cx.env.note(noted));
        }
        Err(e) => return Err(e),
    };
    let found = path.find(&document);
    let value = match found[..] {
        [] => return instead(&args[3], errors::json_value_missing()),
        [one] => one,
        _ => return instead(&args[4], errors::json_value_several()),
    };
    let is_whole = !value.is_container() || matches!(ty, ColumnType::Json | ColumnType::VarChar { .. });
    match into_column(&column, value) {
        Ok(value) if is_whole => Ok(value),
        _ => instead(&args[4], errors::json_value_range(kind)),
    }
}
