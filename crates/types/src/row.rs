//! The row format.
//!
//! ```text
//! | form u8 | null bits, 1 per column | fixed columns, little-endian | end offset u32 of each variable column | variable bytes |
//! ```
//!
//! **Forms.** Columns come and go without a look at the rows that are there ([`crate::form`]): a row says which list of columns it was written with, and a layout
//! knows the forms that rows of its table may still have. What a row of an older form lacks is given by the layout; what nobody knows any more is not looked at. Everything that is
//! encoded is of the newest form.
//!
//! A NULL column keeps its fixed bytes (zero) or an empty variable part, so every column has a constant position and is read
//! without looking at the others. Integers have their declared width; decimals are the unscaled value as `i128`; temporal
//! values are packed as in [`crate::time`]. Rows that come from a client pass [`RowLayout::check`] once; after that the
//! accessors never fail, they only may return nothing for bytes that lie.

use crate::{
    ErrorCode,
    form::{OlderForm, Source},
    limits::ROW_BYTES_MAX,
    planted::{Bug, planted},
    schema::ColumnType,
    value::Value,
};

/// Where the null bits begin, behind the form.
const NULLS_AT: usize = 1;

#[derive(Clone, Copy, PartialEq, Debug)]
struct Place {
    ty: ColumnType,
    /// Byte offset of a fixed column, or the ordinal among the variable ones.
    at: u32,
    /// Width of a fixed column, 0 for a variable one.
    width: u8,
}

/// Where each column stands; computed once per schema version or projection.
#[derive(Clone, PartialEq, Debug)]
pub struct RowLayout {
    form: u8,
    places: Vec<Place>,
    /// Bytes before the end offsets.
    head_bytes: usize,
    /// And with them: where variable bytes begin.
    base: usize,
    variable_count: usize,
    older: Vec<Older>,
}

/// Rows that were written before the newest change of the columns.
#[derive(Clone, PartialEq, Debug)]
struct Older {
    layout: RowLayout,
    /// Of each column of today.
    sources: Vec<Source>,
}

impl RowLayout {
    /// Of rows in the form `form`, where rows of these older ones are met, too.
    pub fn with_forms(types: impl IntoIterator<Item = ColumnType>, form: u8, older: &[OlderForm]) -> RowLayout {
        let of = |older: &OlderForm| Older {
            layout: RowLayout { form: older.number, ..RowLayout::new(older.types.iter().copied()) },
            sources: older.sources.clone(),
        };
        RowLayout { form, older: older.iter().map(of).collect(), ..RowLayout::new(types) }
    }
    pub fn new(types: impl IntoIterator<Item = ColumnType>) -> RowLayout {
        let mut places: Vec<Place> = types.into_iter().map(|ty| Place { ty, at: 0, width: 0 }).collect();
        let mut offset = NULLS_AT + places.len().div_ceil(8);
        let mut variable_count = 0;
        for place in &mut places {
            if let Some(width) = place.ty.fixed_bytes() {
                place.at = offset as u32;
                place.width = width as u8;
                offset += width;
            } else {
                place.at = variable_count as u32;
                variable_count += 1;
            }
        }
        let base = offset + 4 * variable_count;
        RowLayout { form: 0, places, head_bytes: offset, base, variable_count, older: Vec::new() }
    }

    pub fn column_count(&self) -> usize {
        self.places.len()
    }
    pub fn column_type(&self, column: u16) -> Option<ColumnType> {
        self.places.get(usize::from(column)).map(|p| p.ty)
    }
    /// Size of a row whose variable columns are empty.
    #[inline]
    pub fn min_bytes(&self) -> usize {
        self.base
    }

    /// Where a column of fixed width begins in rows of the newest form, and its width.
    pub fn fixed_place(&self, column: u16) -> Option<(usize, usize)> {
        let place = self.places.get(usize::from(column))?;
        (place.width != 0).then_some((place.at as usize, usize::from(place.width)))
    }

    /// Of the first column of variable width, in rows of the newest form: where its end offset is, and where its bytes begin. `None` for any other column.
    pub fn first_variable_place(&self, column: u16) -> Option<(usize, usize)> {
        let place = self.places.get(usize::from(column))?;
        (place.width == 0 && place.at == 0).then_some((self.head_bytes, self.min_bytes()))
    }

    /// Validates a row from outside: length, offsets in order, and nothing beyond the last.
    pub fn check(&self, row: &[u8]) -> Result<(), ErrorCode> {
        if row.len() > ROW_BYTES_MAX {
            return Err(ErrorCode::RowTooBig);
        }
        if !self.is_newest(row) {
            return self.older(row).map_or(Err(ErrorCode::ProtocolViolation), |older| older.layout.check(row));
        }
        let base = self.min_bytes();
        let Some(ends) = row.get(self.head_bytes..base) else { return Err(ErrorCode::ProtocolViolation) };
        let mut previous = 0;
        for end in ends.as_chunks().0 {
            let end = u32::from_le_bytes(*end);
            if end < previous {
                return Err(ErrorCode::ProtocolViolation);
            }
            previous = end;
        }
        if base + previous as usize == row.len() { Ok(()) } else { Err(ErrorCode::ProtocolViolation) }
    }

    /// Written with the columns of today.
    #[inline]
    pub fn is_newest(&self, row: &[u8]) -> bool {
        row.first() == Some(&self.form)
    }
    /// The form is one that this layout can read.
    pub fn knows(&self, row: &[u8]) -> bool {
        self.is_newest(row) || self.older(row).is_some()
    }
    #[cold]
    fn older(&self, row: &[u8]) -> Option<&Older> {
        let form = *row.first()?;
        self.older.iter().find(|older| older.layout.form == form)
    }
    #[cold]
    fn older_is_null(&self, row: &[u8], column: u16) -> bool {
        let Some(older) = self.older(row) else { return true };
        match older.sources.get(usize::from(column)) {
            Some(Source::Kept(at)) => older.layout.is_null(row, *at),
            Some(Source::Given(_)) => planted(Bug::AddedColumnIsNull),
            Some(Source::Null) | None => true,
        }
    }
    #[cold]
    fn older_raw<'r>(&'r self, row: &'r [u8], column: u16) -> &'r [u8] {
        let Some(older) = self.older(row) else { return &[] };
        match older.sources.get(usize::from(column)) {
            Some(Source::Kept(at)) => older.layout.raw(row, *at),
            Some(Source::Given(bytes)) => bytes,
            Some(Source::Null) | None => {
                let width = self.places.get(usize::from(column)).map_or(0, |place| place.width);
                &[0; 16][..usize::from(width)]
            }
        }
    }
    /// The row as it would be written today, behind what is in `out`.
    #[inline(always)]
    pub fn renew(&self, row: &[u8], out: &mut Vec<u8>) {
        match self.is_newest(row) {
            true => out.extend_from_slice(row),
            false => self.renew_older(row, out),
        }
    }
    #[cold]
    fn renew_older(&self, row: &[u8], out: &mut Vec<u8>) {
        let columns: Vec<u16> = (0..self.places.len() as u16).collect();
        self.project(row, &columns, self, out);
    }

    /// Both have the same in every column, whatever their forms.
    #[inline]
    pub fn is_same(&self, a: &[u8], b: &[u8]) -> bool {
        if self.is_newest(a) && self.is_newest(b) {
            return a == b;
        }
        let (mut new_a, mut new_b) = (Vec::new(), Vec::new());
        self.renew(a, &mut new_a);
        self.renew(b, &mut new_b);
        new_a == new_b
    }

    #[inline]
    fn end_offset(&self, row: &[u8], variable: usize) -> usize {
        let at = self.head_bytes + 4 * variable;
        row.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize)
    }

    #[inline]
    pub fn is_null(&self, row: &[u8], column: u16) -> bool {
        if !self.is_newest(row) {
            return self.older_is_null(row, column);
        }
        row.get(NULLS_AT + usize::from(column) / 8).is_none_or(|byte| byte >> (column % 8) & 1 != 0)
    }

    /// Stored bytes of a column: fixed width, or the variable part. Meaningless when NULL.
    #[inline]
    pub fn raw<'r>(&'r self, row: &'r [u8], column: u16) -> &'r [u8] {
        match self.is_newest(row) {
            true => self.newest_raw(row, column),
            false => self.older_raw(row, column),
        }
    }

    #[inline]
    fn newest_raw<'r>(&'r self, row: &'r [u8], column: u16) -> &'r [u8] {
        let Some(place) = self.places.get(usize::from(column)) else { return &[] };
        if place.width != 0 {
            let at = place.at as usize;
            row.get(at..at + usize::from(place.width)).unwrap_or(&[])
        } else {
            let i = place.at as usize;
            let start = if i == 0 { 0 } else { self.end_offset(row, i - 1) };
            let end = self.end_offset(row, i);
            let base = self.min_bytes();
            row.get(base + start..base + end).unwrap_or(&[])
        }
    }

    #[inline]
    pub fn value<'r>(&'r self, row: &'r [u8], column: u16) -> Value<'r> {
        match (self.places.get(usize::from(column)), self.present(row, column)) {
            (Some(place), Some(raw)) => decode_value(place.ty, raw),
            _ => Value::Null,
        }
    }

    /// Stored bytes of a column, `None` for NULL.
    #[inline]
    pub fn present<'r>(&'r self, row: &'r [u8], column: u16) -> Option<&'r [u8]> {
        let at = usize::from(column);
        if !self.is_newest(row) {
            return (!self.older_is_null(row, column)).then(|| self.older_raw(row, column));
        }
        let is_null = row.get(NULLS_AT + at / 8).is_none_or(|byte| byte >> (at % 8) & 1 != 0);
        (!is_null).then(|| self.newest_raw(row, column))
    }

    /// Appends a row. `values` gives each column's value, already converted to the column's type
    /// (`Int` or `UInt` for integers, the declared scale for decimals).
    ///
    /// # Errors
    /// [`ErrorCode::ValueOutOfRange`] for a value of the wrong kind or range, [`ErrorCode::RowTooBig`].
    pub fn encode(&self, values: &[Value<'_>], out: &mut Vec<u8>) -> Result<(), ErrorCode> {
        if values.len() != self.places.len() {
            return Err(ErrorCode::ValueOutOfRange);
        }
        let start = out.len();
        out.resize(start + self.min_bytes(), 0);
        out[start] = self.form;
        let mut variable = 0;
        for (i, (place, value)) in self.places.iter().zip(values).enumerate() {
            if value.is_null() {
                out[start + NULLS_AT + i / 8] |= 1 << (i % 8);
            }
            if place.width != 0 {
                if !value.is_null() {
                    let at = start + place.at as usize;
                    encode_fixed(place.ty, value, &mut out[at..at + usize::from(place.width)])?;
                }
            } else {
                match value {
                    Value::Bytes(bytes) => out.extend_from_slice(bytes),
                    Value::Null => {}
                    _ => return Err(ErrorCode::ValueOutOfRange),
                }
                self.set_end_offset(out, start, variable)?;
                variable += 1;
            }
        }
        Ok(())
    }

    fn set_end_offset(&self, out: &mut [u8], start: usize, variable: usize) -> Result<(), ErrorCode> {
        let end = out.len() - start - self.min_bytes();
        if out.len() - start > ROW_BYTES_MAX {
            return Err(ErrorCode::RowTooBig);
        }
        let at = start + self.head_bytes + 4 * variable;
        out[at..at + 4].copy_from_slice(&(end as u32).to_le_bytes());
        Ok(())
    }

    /// Appends a row of `target` layout made of `columns` of `row`; `target` must be [`RowLayout::project_layout`] of them.
    pub fn project(&self, row: &[u8], columns: &[u16], target: &RowLayout, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + target.min_bytes(), 0);
        out[start] = target.form;
        let mut variable = 0;
        for (i, (&column, place)) in columns.iter().zip(&target.places).enumerate() {
            let raw = self.raw(row, column);
            if self.is_null(row, column) {
                out[start + NULLS_AT + i / 8] |= 1 << (i % 8);
            }
            if place.width != 0 {
                let at = start + place.at as usize;
                if raw.len() == usize::from(place.width) {
                    out[at..at + raw.len()].copy_from_slice(raw);
                }
            } else {
                out.extend_from_slice(raw);
                let end = (out.len() - start - target.min_bytes()) as u32;
                let at = start + target.head_bytes + 4 * variable;
                out[at..at + 4].copy_from_slice(&end.to_le_bytes());
                variable += 1;
            }
        }
    }

    /// Appends a row of this layout made of all of `left` and `columns` of `right`, which are NULL where there is no row; the layout must be that of
    /// these columns one after the other.
    pub fn join(
        &self,
        (left, left_row): (&RowLayout, &[u8]),
        (right, right_row, columns): (&RowLayout, Option<&[u8]>, &[u16]),
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        let is_all = columns.len() == right.places.len() && columns.iter().zip(0..).all(|(column, at)| *column == at);
        if let Some(right_row) = right_row.filter(|_| is_all)
            && self.join_whole((left, left_row), (right, right_row), out).is_some()
        {
            return;
        }
        out.truncate(start);
        out.resize(start + self.min_bytes(), 0);
        out[start] = self.form;
        let mut variable = 0;
        for (i, place) in self.places.iter().enumerate() {
            let (is_null, raw) = match (i.checked_sub(left.places.len()), right_row) {
                (None, _) => (left.is_null(left_row, i as u16), left.raw(left_row, i as u16)),
                (Some(at), Some(row)) => {
                    let column = columns.get(at).copied().unwrap_or(u16::MAX);
                    (right.is_null(row, column), right.raw(row, column))
                }
                (Some(_), None) => (true, &[][..]),
            };
            if is_null {
                out[start + NULLS_AT + i / 8] |= 1 << (i % 8);
            }
            if place.width != 0 {
                let at = start + place.at as usize;
                if raw.len() == usize::from(place.width) {
                    out[at..at + raw.len()].copy_from_slice(raw);
                }
            } else {
                out.extend_from_slice(if is_null { &[] } else { raw });
                let end = (out.len() - start - self.min_bytes()) as u32;
                let at = start + self.head_bytes + 4 * variable;
                out[at..at + 4].copy_from_slice(&end.to_le_bytes());
                variable += 1;
            }
        }
    }

    /// As [`RowLayout::join`], of all columns of both rows: what these have of each kind is copied at once. `None`, with anything in `out`: a row is of an older form, or lies.
    #[inline]
    fn join_whole(
        &self,
        (left, left_row): (&RowLayout, &[u8]),
        (right, right_row): (&RowLayout, &[u8]),
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let start = out.len();
        let (count, nulls) = (left.places.len(), NULLS_AT + left.places.len().div_ceil(8));
        let right_nulls = NULLS_AT + right.places.len().div_ceil(8);
        if !right.is_newest(right_row) || !(left.is_newest(left_row) || count == 0) {
            return None;
        }
        if count == 0 {
            out.extend_from_slice(right_row);
            out[start] = self.form;
            return Some(());
        }
        out.reserve(left_row.len() + right_row.len());
        out.extend_from_slice(left_row.get(..nulls)?);
        out[start] = self.form;
        if !count.is_multiple_of(8) {
            *out.last_mut()? &= (1 << (count % 8)) - 1;
        }
        out.resize(start + NULLS_AT + self.places.len().div_ceil(8), 0);
        let null_bytes = right_row.get(NULLS_AT..right_nulls)?;
        if null_bytes.iter().any(|byte| *byte != 0) {
            for at in (0..right.places.len()).filter(|at| null_bytes[at / 8] >> (at % 8) & 1 != 0) {
                out[start + NULLS_AT + (count + at) / 8] |= 1 << ((count + at) % 8);
            }
        }
        out.extend_from_slice(left_row.get(nulls..left.head_bytes)?);
        out.extend_from_slice(right_row.get(right_nulls..right.head_bytes)?);
        let left_ends = left_row.get(left.head_bytes..left.base)?;
        let right_ends = right_row.get(right.head_bytes..right.base)?.as_chunks().0;
        let left_bytes = left_ends.last_chunk().map_or(0, |end| u32::from_le_bytes(*end));
        let right_bytes = right_ends.last().map_or(0, |end| u32::from_le_bytes(*end));
        out.extend_from_slice(left_ends);
        for end in right_ends {
            out.extend_from_slice(&u32::from_le_bytes(*end).checked_add(left_bytes)?.to_le_bytes());
        }
        out.extend_from_slice(left_row.get(left.base..)?.get(..left_bytes as usize)?);
        out.extend_from_slice(right_row.get(right.base..)?.get(..right_bytes as usize)?);
        Some(())
    }

    /// Layout of a row that holds only `columns`; `None` when one does not exist.
    pub fn project_layout(&self, columns: &[u16]) -> Option<RowLayout> {
        let types: Option<Vec<ColumnType>> = columns.iter().map(|&c| self.column_type(c)).collect();
        types.map(RowLayout::new)
    }

    /// Sets a column of a row of the newest form to these stored bytes, not NULL (update programs). `false`: there is no such column, it has another width, or the row lies.
    #[inline(always)]
    pub(crate) fn set(&self, row: &mut Vec<u8>, column: u16, raw: &[u8]) -> bool {
        let Some(place) = self.places.get(usize::from(column)) else { return false };
        let (from, bytes) = match place.width {
            0 => {
                let (ends, i) = (row.get(self.head_bytes..).unwrap_or_default().as_chunks().0, place.at as usize);
                let end = |i: usize| ends.get(i).map_or(0, |end| u32::from_le_bytes(*end) as usize);
                let start = if i == 0 { 0 } else { end(i - 1) };
                let Some(bytes) = end(i).checked_sub(start) else { return false };
                (self.base + start, bytes)
            }
            width if usize::from(width) == raw.len() => (place.at as usize, raw.len()),
            _ => return false,
        };
        let Some(old) = row.get_mut(from..).and_then(|rest| rest.get_mut(..bytes)) else { return false };
        if bytes == raw.len() {
            old.copy_from_slice(raw);
        } else {
            self.resize(row, place.at as usize, (from, from + bytes), raw.len());
            row[from..from + raw.len()].copy_from_slice(raw);
        }
        self.set_null(row, column, false);
        true
    }
    #[inline]
    pub(crate) fn set_null(&self, row: &mut [u8], column: u16, null: bool) {
        if let Some(byte) = row.get_mut(NULLS_AT + usize::from(column) / 8) {
            let bit = 1 << (column % 8);
            if null { *byte |= bit } else { *byte &= !bit }
        }
    }
    /// Gives a variable column, which is at `from..to`, another length, and moves what follows.
    #[cold]
    fn resize(&self, row: &mut Vec<u8>, variable: usize, (from, to): (usize, usize), bytes: usize) {
        let (length, moved_to) = (row.len(), from + bytes);
        row.resize(length.max(moved_to + length - to), 0);
        row.copy_within(to..length, moved_to);
        row.truncate(moved_to + length - to);
        for j in variable..self.variable_count {
            let moved = self.end_offset(row, j) + bytes - (to - from);
            let at = self.head_bytes + 4 * j;
            row[at..at + 4].copy_from_slice(&(moved as u32).to_le_bytes());
        }
    }
}

/// The number in so many bytes; those behind the eighth do not count.
#[inline]
pub fn int_le(raw: &[u8]) -> u64 {
    match *raw {
        [a, b, c, d] => u64::from(u32::from_le_bytes([a, b, c, d])),
        [a, b, c, d, e, f, g, h, ..] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        [a] => u64::from(a),
        [a, b] => u64::from(u16::from_le_bytes([a, b])),
        _ => raw.iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte)),
    }
}

/// The same in up to 16 bytes.
#[inline]
pub fn wide_int_le(raw: &[u8]) -> u128 {
    match raw.first_chunk::<16>() {
        Some(bytes) => u128::from_le_bytes(*bytes),
        None if raw.len() <= 8 => u128::from(int_le(raw)),
        None => raw.iter().rev().fold(0, |n, byte| n << 8 | u128::from(*byte)),
    }
}

/// Interprets the stored bytes of a column that is not NULL.
#[inline]
pub fn decode_value(ty: ColumnType, raw: &[u8]) -> Value<'_> {
    match ty {
        ColumnType::Label { .. } | ColumnType::Bit { .. } => Value::UInt(int_le(raw)),
        ColumnType::Int { bits, unsigned } => {
            let n = int_le(raw);
            if unsigned {
                Value::UInt(n)
            } else {
                let shift = 64 - u32::from(bits);
                Value::Int((n << shift) as i64 >> shift)
            }
        }
        ColumnType::Decimal { scale, .. } => Value::Decimal { unscaled: wide_int_le(raw) as i128, scale },
        ColumnType::Float => Value::Float(f32::from_bits(int_le(raw) as u32)),
        ColumnType::Double => Value::Double(f64::from_bits(int_le(raw))),
        ColumnType::Date => Value::Date(int_le(raw) as u32),
        ColumnType::DateTime { .. } => Value::DateTime(int_le(raw)),
        ColumnType::Timestamp { .. } => Value::Timestamp(int_le(raw) as i64),
        ColumnType::Time { .. } => Value::Time(int_le(raw) as i64),
        ColumnType::Year => Value::UInt(int_le(raw)),
        _ => Value::Bytes(raw),
    }
}

/// Whether `value` fits an integer column.
pub fn int_fits(bits: u8, unsigned: bool, value: i128) -> bool {
    let (low, high) =
        if unsigned { (0, (1i128 << bits) - 1) } else { (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1) };
    (low..=high).contains(&value)
}

/// Writes the stored form of a fixed-width value.
pub fn encode_fixed(ty: ColumnType, value: &Value<'_>, out: &mut [u8]) -> Result<(), ErrorCode> {
    let wrong = Err(ErrorCode::ValueOutOfRange);
    match (ty.stored(), value) {
        (ColumnType::Int { bits, unsigned }, Value::Int(_) | Value::UInt(_)) => {
            let wide = match value {
                Value::Int(n) => i128::from(*n),
                Value::UInt(n) => i128::from(*n),
                _ => return wrong,
            };
            if !int_fits(bits, unsigned, wide) {
                return wrong;
            }
            put(out, &(wide as u64).to_le_bytes())
        }
        (ColumnType::Year, Value::Int(n)) => put(out, &n.to_le_bytes()),
        (ColumnType::Year, Value::UInt(n)) => put(out, &n.to_le_bytes()),
        (ColumnType::Decimal { scale, .. }, Value::Decimal { unscaled, scale: given }) if *given == scale => {
            put(out, &unscaled.to_le_bytes())
        }
        (ColumnType::Float, Value::Float(x)) => put(out, &x.to_bits().to_le_bytes()),
        (ColumnType::Double, Value::Double(x)) => put(out, &x.to_bits().to_le_bytes()),
        (ColumnType::Date, Value::Date(d)) => put(out, &d.to_le_bytes()),
        (ColumnType::DateTime { .. }, Value::DateTime(d)) => put(out, &d.to_le_bytes()),
        (ColumnType::Timestamp { .. }, Value::Timestamp(t)) | (ColumnType::Time { .. }, Value::Time(t)) => {
            put(out, &t.to_le_bytes())
        }
        _ => wrong,
    }
}

fn put(out: &mut [u8], bytes: &[u8]) -> Result<(), ErrorCode> {
    let part = bytes.get(..out.len()).ok_or(ErrorCode::ValueOutOfRange)?;
    out.copy_from_slice(part);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collate::Collation;

    fn types() -> Vec<ColumnType> {
        vec![
            ColumnType::Int { bits: 32, unsigned: false },
            ColumnType::VarChar { length: 20, collation: Collation::default() },
            ColumnType::Int { bits: 24, unsigned: false },
            ColumnType::Decimal { precision: 10, scale: 2, unsigned: false },
            ColumnType::Blob { length: 100 },
            ColumnType::Double,
        ]
    }

    #[test]
    fn encode_decode_project() {
        let layout = RowLayout::new(types());
        let values = [
            Value::Int(-5),
            Value::Bytes(b"hello"),
            Value::Int(-8_388_608),
            Value::Decimal { unscaled: -12345, scale: 2 },
            Value::Null,
            Value::Double(1.5),
        ];
        let mut row = Vec::new();
        layout.encode(&values, &mut row).unwrap();
        layout.check(&row).unwrap();
        for (i, v) in values.iter().enumerate() {
            assert_eq!(layout.value(&row, i as u16), *v);
        }
        let columns = [4, 1, 0];
        let target = layout.project_layout(&columns).unwrap();
        let mut out = vec![9];
        layout.project(&row, &columns, &target, &mut out);
        target.check(&out[1..]).unwrap();
        assert_eq!(target.value(&out[1..], 0), Value::Null);
        assert_eq!(target.value(&out[1..], 1), Value::Bytes(b"hello"));
        assert_eq!(target.value(&out[1..], 2), Value::Int(-5));
    }

    /// Rows that are joined as wholes are what they would be column by column.
    #[test]
    fn whole_rows_are_joined_as_columns_are() {
        let values = [
            Value::Int(-5),
            Value::Bytes(b"hello"),
            Value::Int(7),
            Value::Decimal { unscaled: -12345, scale: 2 },
            Value::Bytes(b"xyz"),
            Value::Double(1.5),
        ];
        // Every column is NULL in some row; from none to two bytes of NULL bits on the left.
        for (times, null) in (0..3).flat_map(|times| (0..7).map(move |null| (times, null))) {
            let row_of = |layout: &RowLayout, shift: usize| {
                let count = layout.column_count();
                let value = |at: usize| if (at + shift) % 7 == null { Value::Null } else { values[at % values.len()] };
                let mut row = Vec::new();
                layout.encode(&(0..count).map(value).collect::<Vec<_>>(), &mut row).unwrap();
                row
            };
            let left_types: Vec<ColumnType> = std::iter::repeat_n(types(), times).flatten().collect();
            let (left, right) = (RowLayout::new(left_types.clone()), RowLayout::new(types()));
            let both = RowLayout::new(left_types.into_iter().chain(types()));
            let (left_row, right_row) = (row_of(&left, 0), row_of(&right, 3));
            let left_row = if times == 0 { Vec::new() } else { left_row };
            let mut joined = vec![9];
            both.join((&left, &left_row), (&right, Some(&right_row), &[0, 1, 2, 3, 4, 5]), &mut joined);
            both.check(&joined[1..]).unwrap();
            let at_left = left.column_count() as u16;
            for at in 0..both.column_count() as u16 {
                let expected = match at.checked_sub(at_left) {
                    None => left.value(&left_row, at),
                    Some(at) => right.value(&right_row, at),
                };
                assert_eq!(both.value(&joined[1..], at), expected, "column {at}");
            }
            let mut as_columns = vec![9];
            let target = right.project_layout(&[5, 4, 3, 2, 1, 0]).unwrap();
            let mut turned = Vec::new();
            right.project(&right_row, &[5, 4, 3, 2, 1, 0], &target, &mut turned);
            both.join((&left, &left_row), (&target, Some(&turned), &[5, 4, 3, 2, 1, 0]), &mut as_columns);
            assert_eq!(joined, as_columns);
        }
    }

    #[test]
    fn mutated_rows_are_refused_or_read_without_panic() {
        let layout = RowLayout::new(types());
        let mut row = Vec::new();
        let values =
            [Value::Int(1), Value::Bytes(b"abc"), Value::Int(2), Value::Null, Value::Bytes(b"xyz"), Value::Null];
        layout.encode(&values, &mut row).unwrap();
        for i in 0..row.len() {
            for bit in 0..8 {
                let mut bad = row.clone();
                bad[i] ^= 1 << bit;
                let _ = layout.check(&bad);
                for column in 0..7 {
                    let _ = layout.value(&bad, column);
                }
            }
            assert!(layout.check(&row[..i]).is_err());
        }
    }
}
