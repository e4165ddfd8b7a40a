//! Parameters of a prepared execution, decoded as views of the packet.

use super::{cursor::Cursor, error::DecodeError, result::column::ColumnType};

/// One parameter value as a client sent it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ParamValue<'a> {
    Null,
    Int(i64),
    UInt(u64),
    Float(f32),
    Double(f64),
    /// DECIMAL as text.
    Decimal(&'a [u8]),
    /// Character data (VARCHAR, CHAR, ENUM, SET, JSON) in the connection's character set. Many drivers send all
    /// values that are not numbers this way.
    Text(&'a [u8]),
    /// BLOB types and BIT, and data sent ahead by SEND_LONG_DATA.
    Blob(&'a [u8]),
    Date {
        year: u16,
        month: u8,
        day: u8,
    },
    DateTime {
        year: u16,
        month: u8,
        day: u8,
        hour: u8,
        minute: u8,
        second: u8,
        micros: u32,
    },
    Time {
        negative: bool,
        /// Whole hours, days included.
        hours: u32,
        minutes: u8,
        seconds: u8,
        micros: u32,
    },
}

/// The type a client declared for one parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParamType {
    pub column_type: ColumnType,
    pub unsigned: bool,
}

/// Values of one packet.
const PARAMETERS_MAX: usize = 65_535;
/// Hours in the longest TIME the protocol may carry here: MySQL's 838:59:59, in days rounded up.
const TIME_DAYS_MAX: u32 = 35;

/// Decodes the parameters of one EXECUTE. `body` is what follows the iteration count, `types` the types bound by this
/// or an earlier EXECUTE (replaced when the packet binds new ones), `long_data` the values sent ahead, by parameter.
pub fn decode_params<'a>(
    body: &'a [u8],
    count: usize,
    types: &mut Vec<ParamType>,
    long_data: &'a [Option<Vec<u8>>],
    out: &mut Vec<ParamValue<'a>>,
) -> Result<(), DecodeError> {
    out.clear();
    if count == 0 {
        return Ok(());
    }
    let mut cursor = Cursor::new(body);
    let nulls = cursor.bytes(count.div_ceil(8))?;
    if cursor.u8()? == 1 {
        types.clear();
        for _ in 0..count {
            let number = cursor.u8()?;
            let flags = cursor.u8()?;
            let column_type = ColumnType::from_number(number).ok_or(DecodeError::new("parameter type"))?;
            types.push(ParamType { column_type, unsigned: flags & 0x80 != 0 });
        }
    }
    if types.len() != count {
        return Err(DecodeError::new("parameters without bound types"));
    }
    decode_values(&mut cursor, nulls, types, long_data, out)
}

#[inline]
fn decode_values<'a>(
    cursor: &mut Cursor<'a>,
    nulls: &[u8],
    types: &[ParamType],
    long_data: &'a [Option<Vec<u8>>],
    out: &mut Vec<ParamValue<'a>>,
) -> Result<(), DecodeError> {
    for (index, param) in types.iter().enumerate() {
        let value = if let Some(Some(data)) = long_data.get(index) {
            long_value(*param, data)
        } else if is_null(nulls, index) {
            ParamValue::Null
        } else {
            decode_value(cursor, *param)?
        };
        out.push(value);
    }
    Ok(())
}

/// A query attribute: a value with a name that a client sends along.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Attribute<'a> {
    pub name: &'a [u8],
    pub value: ParamValue<'a>,
}

/// The types and names of a packet, in their order.
fn named_types<'a>(cursor: &mut Cursor<'a>, count: usize) -> Result<Vec<(ParamType, &'a [u8])>, DecodeError> {
    let mut named = Vec::new();
    for _ in 0..count {
        let number = cursor.u8()?;
        let unsigned = cursor.u8()? & 0x80 != 0;
        let column_type = ColumnType::from_number(number).ok_or(DecodeError::new("parameter type"))?;
        named.push((ParamType { column_type, unsigned }, cursor.lenenc_bytes()?));
    }
    Ok(named)
}

fn is_null(nulls: &[u8], index: usize) -> bool {
    nulls.get(index / 8).is_some_and(|byte| byte & (1 << (index % 8)) != 0)
}

fn parameter_count(cursor: &mut Cursor<'_>) -> Result<usize, DecodeError> {
    let count = cursor.lenenc()?;
    usize::try_from(count).ok().filter(|n| *n <= PARAMETERS_MAX).ok_or(DecodeError::new("number of parameters"))
}

/// Takes the attributes off the front of a COM_QUERY; what is left is the statement.
pub fn split_attributes<'a>(body: &'a [u8], out: &mut Vec<Attribute<'a>>) -> Result<&'a [u8], DecodeError> {
    out.clear();
    if let Some(sql) = body.strip_prefix(&[0, 1]) {
        return Ok(sql);
    }
    let mut cursor = Cursor::new(body);
    let count = parameter_count(&mut cursor)?;
    if cursor.lenenc()? != 1 {
        return Err(DecodeError::new("number of sets of parameters"));
    }
    if count > 0 {
        let nulls = cursor.bytes(count.div_ceil(8))?;
        if cursor.u8()? != 1 {
            return Err(DecodeError::new("attributes without types"));
        }
        for (index, (param, name)) in named_types(&mut cursor, count)?.into_iter().enumerate() {
            let value = if is_null(nulls, index) { ParamValue::Null } else { decode_value(&mut cursor, param)? };
            out.push(Attribute { name, value });
        }
    }
    Ok(cursor.rest())
}

/// As [`decode_params`], of an EXECUTE that tells how many values it has: those behind the `count` of the statement are attributes.
pub fn decode_counted_params<'a>(
    body: &'a [u8],
    count: usize,
    types: &mut Vec<ParamType>,
    long_data: &'a [Option<Vec<u8>>],
    (out, attributes): (&mut Vec<ParamValue<'a>>, &mut Vec<Attribute<'a>>),
) -> Result<(), DecodeError> {
    out.clear();
    attributes.clear();
    let mut cursor = Cursor::new(body);
    let told = parameter_count(&mut cursor)?;
    if told < count {
        return Err(DecodeError::new("fewer values than parameters"));
    }
    if told == 0 {
        return Ok(());
    }
    let nulls = cursor.bytes(told.div_ceil(8))?;
    let mut more = Vec::new();
    if cursor.u8()? == 1 {
        more = named_types(&mut cursor, told)?;
        types.clear();
        types.extend(more.drain(..count).map(|(param, _)| param));
    }
    if types.len() != count || more.len() != told - count {
        return Err(DecodeError::new("parameters without bound types"));
    }
    decode_values(&mut cursor, nulls, types, long_data, out)?;
    for (index, (param, name)) in more.into_iter().enumerate() {
        let value = if is_null(nulls, count + index) { ParamValue::Null } else { decode_value(&mut cursor, param)? };
        attributes.push(Attribute { name, value });
    }
    Ok(())
}

/// Data sent ahead takes the kind of its declared type; the packet itself holds nothing for it.
fn long_value(param: ParamType, data: &[u8]) -> ParamValue<'_> {
    use ColumnType::*;
    match param.column_type {
        VarChar | VarString | String | Enum | Set | Json => ParamValue::Text(data),
        Decimal | NewDecimal => ParamValue::Decimal(data),
        _ => ParamValue::Blob(data),
    }
}

fn decode_value<'a>(cursor: &mut Cursor<'a>, param: ParamType) -> Result<ParamValue<'a>, DecodeError> {
    use ColumnType::*;
    let unsigned = param.unsigned;
    Ok(match param.column_type {
        LongLong if unsigned => ParamValue::UInt(cursor.u64()?),
        LongLong => ParamValue::Int(cursor.u64()? as i64),
        Long | Int24 if unsigned => ParamValue::UInt(u64::from(cursor.u32()?)),
        Long | Int24 => ParamValue::Int(i64::from(cursor.u32()? as i32)),
        Short | Year if unsigned => ParamValue::UInt(u64::from(cursor.u16()?)),
        Short | Year => ParamValue::Int(i64::from(cursor.u16()? as i16)),
        Tiny if unsigned => ParamValue::UInt(u64::from(cursor.u8()?)),
        Tiny => ParamValue::Int(i64::from(cursor.u8()? as i8)),
        Float => ParamValue::Float(f32::from_bits(cursor.u32()?)),
        Double => ParamValue::Double(f64::from_bits(cursor.u64()?)),
        Null => ParamValue::Null,
        Decimal | NewDecimal => ParamValue::Decimal(cursor.lenenc_bytes()?),
        VarChar | VarString | String | Enum | Set | Json => ParamValue::Text(cursor.lenenc_bytes()?),
        TinyBlob | MediumBlob | LongBlob | Blob | Bit | Geometry => ParamValue::Blob(cursor.lenenc_bytes()?),
        Date | DateTime | Timestamp => decode_datetime(cursor, param.column_type)?,
        Time => decode_time(cursor)?,
    })
}

fn decode_datetime<'a>(cursor: &mut Cursor<'a>, column_type: ColumnType) -> Result<ParamValue<'a>, DecodeError> {
    let length = cursor.u8()?;
    if !matches!(length, 0 | 4 | 7 | 11) {
        return Err(DecodeError::new("length of a date"));
    }
    let (year, month, day) = if length >= 4 { (cursor.u16()?, cursor.u8()?, cursor.u8()?) } else { (0, 0, 0) };
    let (hour, minute, second) = if length >= 7 { (cursor.u8()?, cursor.u8()?, cursor.u8()?) } else { (0, 0, 0) };
    let micros = if length == 11 { cursor.u32()? } else { 0 };
    if year > 9999 || month > 12 || day > 31 || hour > 23 || minute > 59 || second > 59 || micros > 999_999 {
        return Err(DecodeError::new("field of a date out of range"));
    }
    if column_type == ColumnType::Date {
        return Ok(ParamValue::Date { year, month, day });
    }
    Ok(ParamValue::DateTime { year, month, day, hour, minute, second, micros })
}

fn decode_time<'a>(cursor: &mut Cursor<'a>) -> Result<ParamValue<'a>, DecodeError> {
    let length = cursor.u8()?;
    if length == 0 {
        return Ok(ParamValue::Time { negative: false, hours: 0, minutes: 0, seconds: 0, micros: 0 });
    }
    if !matches!(length, 8 | 12) {
        return Err(DecodeError::new("length of a time"));
    }
    let negative = cursor.u8()? != 0;
    let days = cursor.u32()?;
    let (hour, minutes, seconds) = (cursor.u8()?, cursor.u8()?, cursor.u8()?);
    let micros = if length == 12 { cursor.u32()? } else { 0 };
    if days >= TIME_DAYS_MAX || hour > 23 || minutes > 59 || seconds > 59 || micros > 999_999 {
        return Err(DecodeError::new("field of a time out of range"));
    }
    Ok(ParamValue::Time { negative, hours: days * 24 + u32::from(hour), minutes, seconds, micros })
}
