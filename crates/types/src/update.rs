//! Update programs: what an UPDATE by key does to a row, executed by the data node that holds it, in one round trip.
//!
//! A program is a list of instructions, each `column u16, action u8, pad u8, length u32, argument`. Backups get the row that
//! results, not the program, as in NDB. Anything richer than these actions is computed by the SQL node on a locked row.

use crate::{ErrorCode, row, row::RowLayout, schema::ColumnType, schema::TableSchema, value::Value};

const SET: u8 = 1;
const SET_NULL: u8 = 2;
const ADD: u8 = 3;
const HEADER_BYTES: usize = 8;

/// Appends "column = stored bytes" (see [`crate::row`]).
pub fn push_set(out: &mut Vec<u8>, column: u16, raw: &[u8]) {
    push(out, column, SET, raw);
}
pub fn push_set_null(out: &mut Vec<u8>, column: u16) {
    push(out, column, SET_NULL, &[]);
}
/// Appends "column = column + delta" for an integer column; NULL stays NULL, a result outside the column's range refuses
/// the operation with [`ErrorCode::ValueOutOfRange`].
pub fn push_add(out: &mut Vec<u8>, column: u16, delta: i64) {
    push(out, column, ADD, &delta.to_le_bytes());
}

fn push(out: &mut Vec<u8>, column: u16, action: u8, argument: &[u8]) {
    out.extend_from_slice(&column.to_le_bytes());
    out.extend_from_slice(&[action, 0]);
    out.extend_from_slice(&(argument.len() as u32).to_le_bytes());
    out.extend_from_slice(argument);
}

/// Puts `old` as it is after the program into `out`, in the newest form. Returns whether any column changed.
///
/// # Errors
/// [`ErrorCode::ProtocolViolation`] for a program that does not decode, otherwise what the instruction says.
pub fn apply(schema: &TableSchema, old: &[u8], program: &[u8], out: &mut Vec<u8>) -> Result<bool, ErrorCode> {
    out.clear();
    let layout = schema.layout();
    layout.renew(old, out);
    let mut rest = program;
    while !rest.is_empty() {
        let (header, tail) = rest.split_first_chunk::<HEADER_BYTES>().ok_or(ErrorCode::ProtocolViolation)?;
        let column = u16::from_le_bytes([header[0], header[1]]);
        let length = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
        let (argument, tail) = tail.split_at_checked(length).ok_or(ErrorCode::ProtocolViolation)?;
        rest = tail;
        if schema.primary_key.contains(&column) {
            return Err(ErrorCode::NotSupported); // a changed key is a delete and an insert; the client sends those
        }
        if header[2] != SET {
            apply_other(schema, header[2], column, argument, out)?;
        } else if !layout.set(out, column, argument) {
            return Err(ErrorCode::ProtocolViolation);
        }
    }
    if out.len() > crate::limits::ROW_BYTES_MAX {
        return Err(ErrorCode::RowTooBig);
    }
    Ok(!layout.is_same(out, old))
}

#[inline(never)]
fn apply_other(
    schema: &TableSchema,
    action: u8,
    column: u16,
    argument: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), ErrorCode> {
    let layout = schema.layout();
    let definition = schema.columns.get(usize::from(column)).ok_or(ErrorCode::ProtocolViolation)?;
    match action {
        SET_NULL if !definition.nullable => return Err(ErrorCode::NullNotAllowed),
        SET_NULL => {
            let zeros = [0u8; 16];
            layout.set(out, column, &zeros[..definition.ty.fixed_bytes().unwrap_or(0)]);
            layout.set_null(out, column, true);
        }
        ADD => add(layout, column, definition.ty, argument, out)?,
        _ => return Err(ErrorCode::ProtocolViolation),
    }
    Ok(())
}

fn add(layout: &RowLayout, column: u16, ty: ColumnType, argument: &[u8], out: &mut Vec<u8>) -> Result<(), ErrorCode> {
    let ColumnType::Int { bits, unsigned } = ty else { return Err(ErrorCode::ProtocolViolation) };
    let delta: [u8; 8] = argument.try_into().map_err(|_| ErrorCode::ProtocolViolation)?;
    let current = match layout.value(out, column) {
        Value::Int(n) => i128::from(n),
        Value::UInt(n) => i128::from(n),
        _ => return Ok(()),
    };
    let sum = current + i128::from(i64::from_le_bytes(delta));
    if !row::int_fits(bits, unsigned, sum) {
        return Err(ErrorCode::ValueOutOfRange);
    }
    let bytes = (sum as u64).to_le_bytes();
    layout.set(out, column, &bytes[..usize::from(bits / 8)]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Column;

    fn column(name: &str, ty: ColumnType) -> Column {
        Column::new(name, ty)
    }

    #[test]
    fn set_add_and_null() {
        let tiny = ColumnType::Int { bits: 8, unsigned: false };
        let var = ColumnType::VarBinary { length: 9 };
        let mut columns = vec![column("id", tiny), column("a", var), column("n", tiny), column("b", var)];
        columns[0].nullable = false;
        let schema = TableSchema::new("d", "t", columns, vec![0]);
        schema.validate().unwrap();
        let mut row = Vec::new();
        let values = [Value::Int(1), Value::Bytes(b"xx"), Value::Int(120), Value::Bytes(b"tail")];
        schema.layout().encode(&values, &mut row).unwrap();

        let (mut program, mut out) = (Vec::new(), Vec::new());
        push_add(&mut program, 2, 7);
        push_set(&mut program, 1, b"longer");
        assert!(apply(&schema, &row, &program, &mut out).unwrap());
        schema.layout().check(&out).unwrap();
        assert_eq!(schema.layout().value(&out, 1), Value::Bytes(b"longer"));
        assert_eq!(schema.layout().value(&out, 2), Value::Int(127));
        assert_eq!(schema.layout().value(&out, 3), Value::Bytes(b"tail"));

        program.clear();
        push_add(&mut program, 2, 8);
        assert_eq!(apply(&schema, &row, &program, &mut out), Err(ErrorCode::ValueOutOfRange));
        program.clear();
        push_set_null(&mut program, 1);
        assert!(apply(&schema, &row, &program, &mut out).unwrap());
        assert_eq!(schema.layout().value(&out, 1), Value::Null);
        assert_eq!(apply(&schema, &row, &[1, 2, 3], &mut out), Err(ErrorCode::ProtocolViolation));
    }
}
