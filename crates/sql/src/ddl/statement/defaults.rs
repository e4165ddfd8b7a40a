//! DEFAULT: values of columns that are not given, as they are written and as they are kept.

use apus_types::{Column, ColumnType, Value, schema::DefaultValue};

use crate::{
    ddl::default_dates,
    errors::{self, Result},
    expr::assign::{self, Assign},
    parse::token::Tokens,
    value::{bits, datum::Datum, enum_set, number_format::Face, zone::Zone},
};

/// A literal default becomes what the column makes of it, as MySQL shows it: `1.50` where DECIMAL(10,2) is given 1.5. One that the column cannot hold would refuse every
/// row that leaves it out. Which dates it may be is for the session to say ([`crate::ddl::default_dates`]).
///
/// # Errors
/// 1067: no value of the column; 1101: a type that has no literal defaults.
pub fn settle_default(c: &mut Column) -> Result<()> {
    let invalid = || errors::invalid_default(&c.name);
    let is_long = matches!(c.ty, ColumnType::Json | ColumnType::Text { .. } | ColumnType::Blob { .. });
    let text = match &c.default {
        DefaultValue::Literal(text) if is_long && (c.ty == ColumnType::Json || !text.is_empty()) => {
            let text = format!("BLOB, TEXT, GEOMETRY or JSON column '{}' can't have a default value", c.name);
            return Err(crate::wire::SqlError::new(1101, b"42000", text));
        }
        DefaultValue::Literal(text) => text,
        DefaultValue::Null if !c.nullable => return Err(invalid()),
        _ => return Ok(()),
    };
    let assign = Assign { row: 1, table: "", strict: true, zone: Zone::UTC, env: None, warns: false };
    let kept = match c.ty {
        ColumnType::Bit { length } => {
            let value = bits::of_default(text, length);
            assign::assign(c, value, assign).map_err(|_| invalid())?;
            text.clone()
        }
        ColumnType::Date | ColumnType::DateTime { .. } | ColumnType::Timestamp { .. } if text == "0" => {
            assign::implicit_default(c.ty).as_string()
        }
        // Refused, or made one of zeros, by who knows the session.
        ColumnType::Timestamp { .. } if default_dates::is_none(text) => text.clone(),
        _ => {
            let value = assign::assign(c, Datum::text(text.clone()), assign);
            match (value.map_err(|_| invalid())?, c.ty) {
                (Datum::UInt(n), ColumnType::Label { is_set, labels: list, .. }) => {
                    Datum::Text(enum_set::text(list, is_set, n)).as_string()
                }
                (Datum::Int(micros), ColumnType::Timestamp { .. }) => {
                    Datum::of_column(c.ty, Value::Timestamp(micros), Zone::UTC).as_string()
                }
                (year, ColumnType::Year) => format!("{:0>4}", year.as_string()),
                (value, _) => match Face::of(c) {
                    Some(face) => face.text(&value),
                    None => value.as_string(),
                },
            }
        }
    };
    c.default = DefaultValue::Literal(kept);
    Ok(())
}

pub(super) fn now(t: &mut Tokens) -> Result<()> {
    if !(t.word("current_timestamp") || t.word("now") || t.word("localtimestamp") || t.word("localtime")) {
        return Err(t.error());
    }
    if t.symbol('(') {
        if !t.peek_symbol(')') {
            t.number()?;
        }
        t.expect_symbol(')')?;
    }
    Ok(())
}

/// A default as it is written; what it is depends on the column.
#[derive(Clone, PartialEq, Debug)]
pub enum Given {
    Value(DefaultValue),
    Number(String),
    Text(String),
    /// A hexadecimal or bit literal.
    Bytes(Vec<u8>),
}

impl Given {
    /// # Errors
    /// 1067: no value of the column.
    pub fn of(&self, c: &Column) -> Result<DefaultValue> {
        let ColumnType::Bit { length } = c.ty else {
            let is_number = !c.ty.is_text() && c.ty.fixed_bytes().is_some();
            return Ok(match self {
                Given::Value(value) => value.clone(),
                Given::Number(text) | Given::Text(text) => DefaultValue::Literal(text.clone()),
                Given::Bytes(bytes) if is_number => {
                    let n = bits::of_bytes(bytes).ok_or_else(|| errors::invalid_default(&c.name))?;
                    DefaultValue::Literal(n.to_string())
                }
                Given::Bytes(bytes) => {
                    let text = String::from_utf8(bytes.clone()).map_err(|_| errors::invalid_default(&c.name))?;
                    DefaultValue::Literal(text)
                }
            });
        };
        let value = match self {
            Given::Value(value) => return Ok(value.clone()),
            Given::Number(text) => match text.parse() {
                Ok(n) => Datum::UInt(n),
                Err(_) => Datum::Double(text.parse().map_err(|_| errors::invalid_default(&c.name))?),
            },
            Given::Text(text) => Datum::text(text.clone()),
            Given::Bytes(bytes) => Datum::Bytes(bytes.into()),
        };
        let n = bits::assigned(&value, length).ok_or_else(|| errors::invalid_default(&c.name))?;
        Ok(DefaultValue::Literal(bits::literal(n)))
    }
}

pub fn default_value(t: &mut Tokens) -> Result<Given> {
    if t.word("null") {
        return Ok(Given::Value(DefaultValue::Null));
    }
    if t.word("true") {
        return Ok(Given::Number("1".into()));
    }
    if t.word("false") {
        return Ok(Given::Number("0".into()));
    }
    if let Some(bytes) = bits::written(t)? {
        return Ok(Given::Bytes(bytes));
    }
    if t.peek_string() {
        return Ok(Given::Text(t.string()?));
    }
    let sign = if t.symbol('-') { "-" } else { "" };
    if t.peek_number() {
        return Ok(Given::Number(format!("{sign}{}", t.number()?)));
    }
    if t.peek_symbol('(') {
        return Ok(Given::Value(DefaultValue::Expression(crate::parse::token::expression(t)?)));
    }
    now(t)?;
    Ok(Given::Value(DefaultValue::CurrentTimestamp))
}
