//! From stored values and computed ones to the cells of a result.

use apus_types::{
    Column, ColumnType as Stored, TableSchema, Value,
    schema::DefaultValue,
    time::{unpack_date, unpack_datetime},
};

use super::Kind;
use crate::{
    catalog::full_text,
    expr,
    value::{bits, datum::Datum, decimal, enum_set, json::compare, number_format::Face, zone::Zone},
    wire::{ColumnDef, ColumnType, ResultWriter, column_flag, result::column::DECIMALS_NOT_FIXED},
};

/// The type that a client is told, its length and its digits behind the point.
fn told(ty: Stored) -> (ColumnType, u32, u8) {
    match ty {
        Stored::Int { bits: 8, .. } => (ColumnType::Tiny, 4, 0),
        Stored::Int { bits: 16, .. } => (ColumnType::Short, 6, 0),
        Stored::Int { bits: 24, .. } => (ColumnType::Int24, 9, 0),
        Stored::Int { bits: 32, .. } => (ColumnType::Long, 11, 0),
        Stored::Int { .. } => (ColumnType::LongLong, 20, 0),
        Stored::Decimal { precision, scale, .. } => (ColumnType::NewDecimal, u32::from(precision) + 2, scale),
        Stored::Float => (ColumnType::Float, 12, DECIMALS_NOT_FIXED),
        Stored::Double => (ColumnType::Double, 22, DECIMALS_NOT_FIXED),
        Stored::Char { length, .. } => (ColumnType::String, u32::from(length) * 4, 0),
        Stored::VarChar { length, .. } => (ColumnType::VarString, u32::from(length) * 4, 0),
        Stored::Binary { length } => (ColumnType::String, u32::from(length), 0),
        Stored::VarBinary { length } => (ColumnType::VarString, u32::from(length), 0),
        Stored::Text { length, .. } | Stored::Blob { length } => (ColumnType::Blob, length, 0),
        Stored::Date => (ColumnType::Date, 10, 0),
        Stored::DateTime { decimals } => (ColumnType::DateTime, 19 + fraction(decimals), decimals),
        Stored::Timestamp { decimals } => (ColumnType::Timestamp, 19 + fraction(decimals), decimals),
        Stored::Time { decimals } => (ColumnType::Time, 10 + fraction(decimals), decimals),
        Stored::Year => (ColumnType::Year, 4, 0),
        Stored::Json => (ColumnType::Json, u32::MAX, 0),
        Stored::Bit { length } => (ColumnType::Bit, u32::from(length), 0),
        Stored::Label { is_set, labels, .. } => (ColumnType::String, enum_set::longest(labels, is_set) * 4, 0),
    }
}

fn is_unsigned(ty: Stored) -> bool {
    matches!(
        ty,
        Stored::Int { unsigned: true, .. } | Stored::Decimal { unsigned: true, .. } | Stored::Year | Stored::Bit { .. }
    )
}

/// What a client is told about a stored column.
pub fn column_def(schema: &TableSchema, column: u16) -> ColumnDef {
    let c = &schema.columns[usize::from(column)];
    let (column_type, length, decimals) = told(c.ty);
    let mut def = ColumnDef::expression(c.name.clone(), column_type, length);
    def.schema = schema.database.clone();
    def.table = schema.name.clone();
    def.org_table = schema.name.clone();
    def.org_name = c.name.clone();
    def.decimals = decimals;
    def.charset = if c.ty.is_text() { 45 } else { 63 };
    let mut flags = 0;
    let mut set = |on: bool, flag: u16| flags |= if on { flag } else { 0 };
    set(!c.nullable, column_flag::NOT_NULL);
    set(schema.primary_key.contains(&column), column_flag::PRI_KEY);
    set(schema.indexes.iter().any(|i| i.unique && i.columns == [column]), column_flag::UNIQUE_KEY);
    set(full_text::begins_any_index(schema, column), column_flag::MULTIPLE_KEY);
    set(matches!(column_type, ColumnType::Blob | ColumnType::Json), column_flag::BLOB);
    set(is_unsigned(c.ty), column_flag::UNSIGNED);
    set(!c.ty.is_text(), column_flag::BINARY);
    set(matches!(c.ty, Stored::Label { is_set: false, .. }), column_flag::ENUM);
    set(matches!(c.ty, Stored::Label { is_set: true, .. }), column_flag::SET);
    set(c.auto_increment, column_flag::AUTO_INCREMENT);
    set(matches!(c.ty, Stored::Timestamp { .. }), column_flag::TIMESTAMP);
    let has_own = c.auto_increment || enum_set::has_first(c.ty);
    set(c.default == DefaultValue::None && !c.nullable && !has_own, column_flag::NO_DEFAULT_VALUE);
    def.flags = flags;
    if let Some(face) = Face::of(c) {
        look(&mut def, c.ty, face);
    }
    def
}

/// Tells how the numbers look.
pub fn look(def: &mut ColumnDef, ty: Stored, face: Face) {
    def.length = u32::from(face.width);
    if matches!(ty, Stored::Float | Stored::Double) {
        def.decimals = face.decimals;
    }
    def.flags |= if face.is_unsigned { column_flag::UNSIGNED } else { 0 };
    def.flags |= if face.is_filled { column_flag::ZEROFILL } else { 0 };
}

fn fraction(decimals: u8) -> u32 {
    if decimals == 0 { 0 } else { u32::from(decimals) + 1 }
}

/// A computed column whose values are those of a stored one: MAX(column).
pub fn like_column(name: String, kind: Kind, ty: Stored) -> ColumnDef {
    let mut def = expression_def(name, kind);
    (def.column_type, def.length, def.decimals) = told(ty);
    def.flags &= !column_flag::UNSIGNED;
    def.flags |= if is_unsigned(ty) { column_flag::UNSIGNED } else { 0 };
    def.flags |= if matches!(def.column_type, ColumnType::Blob | ColumnType::Json) { column_flag::BLOB } else { 0 };
    def
}

/// A variable of a procedure.
pub fn variable_def(name: String, ty: Stored, face: Option<Face>) -> ColumnDef {
    let mut def = like_column(name, Kind::of(ty), ty);
    if let Some(face) = face {
        look(&mut def, ty, face);
    }
    def.flags |= match ty {
        Stored::Label { is_set: false, .. } => column_flag::ENUM,
        Stored::Label { is_set: true, .. } => column_flag::SET,
        _ => 0,
    };
    def
}

/// A computed column.
pub fn expression_def(name: String, kind: Kind) -> ColumnDef {
    let (column_type, length, decimals) = match kind {
        Kind::Null => (ColumnType::Null, 0, 0),
        Kind::Int | Kind::UInt => (ColumnType::LongLong, 21, 0),
        Kind::Decimal(s) => (ColumnType::NewDecimal, 40, s),
        Kind::Double => (ColumnType::Double, 23, DECIMALS_NOT_FIXED),
        Kind::Text | Kind::Label => (ColumnType::VarString, 65_535, 0),
        Kind::Bytes => (ColumnType::VarString, 65_535, 0),
        Kind::Json => (ColumnType::Json, u32::MAX, 0),
        Kind::Bit(length) => (ColumnType::Bit, u32::from(length), 0),
        Kind::Date => (ColumnType::Date, 10, 0),
        Kind::DateTime(n) => (ColumnType::DateTime, 19 + fraction(n), n),
        Kind::Time(n) => (ColumnType::Time, 10 + fraction(n), n),
    };
    let mut def = ColumnDef::expression(name, column_type, length);
    def.decimals = decimals;
    if kind == Kind::Bytes {
        def.charset = 63;
        def.flags = column_flag::BINARY;
    }
    if kind == Kind::Json {
        def.charset = 63;
        def.flags = column_flag::BINARY;
    }
    if matches!(kind, Kind::Bit(_)) {
        def.charset = 63;
        def.flags |= column_flag::UNSIGNED;
    }
    if kind == Kind::UInt {
        def.flags |= column_flag::UNSIGNED;
    }
    def
}

/// Writes a stored value straight from the row.
#[inline]
pub fn write_value(out: &mut ResultWriter<'_>, ty: Stored, value: Value<'_>, zone: Zone) {
    match value {
        Value::Null => out.null(),
        Value::Int(n) => out.int(n),
        Value::UInt(0) if ty == Stored::Year && !out.is_binary() => out.bytes(b"0000"),
        Value::UInt(n) => match ty {
            Stored::Label { is_set, labels: list, .. } => out.bytes(&enum_set::text(list, is_set, n)),
            Stored::Bit { length } => out.bytes(bits::shown(&n.to_be_bytes(), length)),
            _ => out.uint(n),
        },
        Value::Float(x) => out.float(x),
        Value::Double(x) => out.double(x),
        Value::Bytes(b) if ty == Stored::Json => out.bytes(&Datum::Json(b.into()).as_text()),
        Value::Bytes(b) => out.bytes(b),
        other => {
            let decimals = crate::value::datum::decimals_of(ty);
            let datum = Datum::from_value(other, false, zone, decimals);
            write_datum(out, Kind::of(ty), &datum);
        }
    }
}

/// Writes a computed value as a cell of its declared kind.
pub fn write_datum(out: &mut ResultWriter<'_>, kind: Kind, value: &Datum<'_>) {
    if value.is_null() || kind == Kind::Null {
        return out.null();
    }
    let number = || value.number();
    match kind {
        Kind::Null => out.null(),
        Kind::Int => match value {
            Datum::Int(n) => out.int(*n),
            Datum::UInt(n) => out.uint(*n),
            _ => out.int(number().map_or(0, |n| n.to_i128().clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64)),
        },
        Kind::UInt => match value {
            Datum::UInt(n) => out.uint(*n),
            _ => {
                let n = number().map_or(0, |n| n.to_i128());
                out.uint(u64::try_from(n).unwrap_or(n as i64 as u64));
            }
        },
        Kind::Decimal(scale) => {
            let exact = number().and_then(|n| match n {
                crate::value::datum::Number::Double(x) => decimal::from_f64(x, scale),
                n => n.to_decimal().and_then(|(n, s)| decimal::rescale(n, s, scale)),
            });
            let mut text = Vec::with_capacity(48);
            match exact {
                Some(n) => decimal::push(&mut text, n, scale),
                None => value.push_text(&mut text), // too long for all the digits behind the point
            }
            out.bytes(&text);
        }
        Kind::Double => out.double(number().map_or(0.0, |n| n.to_f64())),
        Kind::Text | Kind::Bytes | Kind::Label | Kind::Json => out.bytes(&value.as_text()),
        Kind::Bit(length) => {
            let n = number().map_or(0, |n| n.to_i128());
            out.bytes(bits::shown(&(n as u64).to_be_bytes(), length));
        }
        Kind::Date => match value.civil(Zone::UTC) {
            Some(c) => out.date(c.year, c.month, c.day),
            None => out.null(),
        },
        Kind::DateTime(decimals) => match value {
            Datum::DateTime(p, _) => {
                let c = unpack_datetime(*p);
                out.datetime(c.year, c.month, c.day, c.hour, c.minute, c.second, c.micros, decimals);
            }
            other => match other.civil(Zone::UTC) {
                Some(c) => out.datetime(c.year, c.month, c.day, c.hour, c.minute, c.second, c.micros, decimals),
                None => out.null(),
            },
        },
        Kind::Time(decimals) => match value.time(Zone::UTC) {
            Some(t) => {
                let total = t.unsigned_abs();
                let seconds = total / 1_000_000;
                let (hours, minutes) = ((seconds / 3600) as u32, (seconds / 60 % 60) as u8);
                out.time(t < 0, hours, minutes, (seconds % 60) as u8, (total % 1_000_000) as u32, decimals);
            }
            None => out.null(),
        },
    }
}

/// Appends a key by which bytes order and equal as the values do; for sorting, grouping and DISTINCT.
pub fn push_sort_key(
    out: &mut Vec<u8>,
    kind: Kind,
    collation: apus_types::collate::Collation,
    value: &Datum<'_>,
    descending: bool,
) {
    let start = out.len();
    if value.is_null() {
        out.push(0);
    } else {
        out.push(1);
        match kind {
            Kind::Null => {}
            Kind::Int | Kind::UInt | Kind::Decimal(_) | Kind::Label | Kind::Bit(_) => {
                let scale = if let Kind::Decimal(s) = kind { s } else { 0 };
                let as_it_is = match *value {
                    Datum::Int(n) if scale == 0 => Some(i128::from(n)),
                    Datum::UInt(n) if scale == 0 => Some(i128::from(n)),
                    Datum::Decimal { unscaled, scale: digits } if digits == scale => Some(unscaled),
                    _ => None,
                };
                let exact = as_it_is.or_else(|| {
                    value.number().and_then(|n| match n {
                        crate::value::datum::Number::Double(x) => decimal::from_f64(x, scale),
                        n => n.to_decimal().and_then(|(n, s)| decimal::rescale(n, s, scale)),
                    })
                });
                // Beyond the representation: below or above all others.
                let exact = exact.unwrap_or_else(|| {
                    if value.number().is_some_and(|n| n.to_f64() < 0.0) { i128::MIN } else { i128::MAX }
                });
                out.extend_from_slice(&(exact as u128 ^ 1 << 127).to_be_bytes());
            }
            Kind::Double => {
                let x = value.number().map_or(0.0, |n| n.to_f64());
                let bits = if x == 0.0 { 0 } else { x.to_bits() };
                let mask = if bits >> 63 == 1 { u64::MAX } else { 1 << 63 };
                out.extend_from_slice(&(bits ^ mask).to_be_bytes());
            }
            Kind::Date | Kind::DateTime(_) => {
                let packed = value.civil(Zone::UTC).map_or(0, apus_types::time::pack_datetime);
                out.extend_from_slice(&packed.to_be_bytes());
            }
            Kind::Time(_) => {
                out.extend_from_slice(&(value.time(Zone::UTC).unwrap_or(0) as u64 ^ 1 << 63).to_be_bytes());
            }
            Kind::Json => compare::push_key(out, &expr::json::of_datum(value)),
            Kind::Text | Kind::Bytes => {
                let mut put = |piece: &[u8]| apus_types::key::put_escaped(piece, out);
                match value {
                    Datum::Text(t) | Datum::Label(_, t) if kind == Kind::Text => collation.sort_key(t, &mut put),
                    other => put(&other.as_text()),
                }
                out.extend_from_slice(&[0, 0]);
            }
        }
    }
    if descending {
        out[start..].iter_mut().for_each(|b| *b = !*b);
    }
}

/// Text of a stored value of a column, for messages and SHOW.
pub fn display(column: &Column, value: Value<'_>) -> String {
    match value {
        Value::Date(d) => {
            let (y, m, d) = unpack_date(d);
            format!("{y:04}-{m:02}-{d:02}")
        }
        other => {
            let datum = Datum::of_column(column.ty, other, Zone::UTC);
            Face::of(column).map_or_else(|| datum.as_string(), |face| face.text(&datum))
        }
    }
}
