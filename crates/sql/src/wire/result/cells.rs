//! Cells of a row, in both protocols: as texts and in binary.

use super::{
    Cell, ResultWriter,
    column::{ColumnType, DECIMALS_NOT_FIXED, is_datetime, is_text},
};
use crate::wire::{
    characters, fill,
    number::{format_u64, push_f32, push_f64, push_f64_fixed, push_four, push_fraction, push_two, push_u64},
    packet::push_lenenc_bytes,
};

/// Cells. Each call is the next column of the open row.
impl ResultWriter<'_> {
    /// SQL NULL.
    #[inline]
    pub fn null(&mut self) {
        let index = self.state.next;
        self.next_cell();
        if self.state.binary {
            let bit = index + 2;
            let at = self.state.cells_at + bit / 8;
            self.out.payload()[at] |= 1 << (bit % 8);
        } else {
            self.out.payload().push(0xfb);
        }
    }

    /// A signed integer; in a binary row it takes the declared width of its column, which it must fit.
    #[inline]
    pub fn int(&mut self, v: i64) {
        let cell = self.next_cell();
        if self.state.binary {
            self.binary_int(cell, v, v.unsigned_abs(), v < 0);
        } else {
            self.text_int(v.unsigned_abs(), v < 0);
        }
    }

    /// An unsigned integer; as [`int`](Self::int).
    #[inline]
    pub fn uint(&mut self, v: u64) {
        let cell = self.next_cell();
        if self.state.binary {
            self.binary_int(cell, v as i64, v, false);
        } else {
            self.text_int(v, false);
        }
    }

    /// A FLOAT.
    pub fn float(&mut self, v: f32) {
        let cell = self.next_cell();
        let fixed = !matches!(cell.decimals, 0 | DECIMALS_NOT_FIXED..);
        match (self.state.binary, cell.column_type) {
            (true, ColumnType::Float) => self.out.payload().extend_from_slice(&v.to_le_bytes()),
            (true, ColumnType::Double) => self.out.payload().extend_from_slice(&f64::from(v).to_le_bytes()),
            _ if fixed => self.short_text(|out| push_f64_fixed(out, f64::from(v), cell.decimals)),
            _ => self.short_text(|out| push_f32(out, v)),
        }
    }

    /// A DOUBLE.
    pub fn double(&mut self, v: f64) {
        let cell = self.next_cell();
        let fixed = !matches!(cell.decimals, 0 | DECIMALS_NOT_FIXED..);
        match (self.state.binary, cell.column_type) {
            (true, ColumnType::Double) => self.out.payload().extend_from_slice(&v.to_le_bytes()),
            (true, ColumnType::Float) => self.out.payload().extend_from_slice(&(v as f32).to_le_bytes()),
            _ if fixed => self.short_text(|out| push_f64_fixed(out, v, cell.decimals)),
            (false, ColumnType::Float) => self.short_text(|out| push_f32(out, v as f32)),
            _ => self.short_text(|out| push_f64(out, v)),
        }
    }

    /// A string, a byte string, JSON text, or a decimal as text.
    #[inline]
    pub fn bytes(&mut self, v: &[u8]) {
        let cell = self.next_cell();
        assert!(!self.state.binary || is_text(cell.column_type), "bytes for a {:?} column", cell.column_type);
        match cell.is_rewritten {
            false => push_lenenc_bytes(self.out.payload(), v),
            true if cell.fill > 0 => fill::push(self.out.payload(), v, cell.fill),
            true => push_lenenc_bytes(self.out.payload(), &characters::write(self.state.results, v)),
        }
    }

    /// A date; all zero is MySQL's zero date.
    pub fn date(&mut self, year: u16, month: u8, day: u8) {
        let cell = self.next_cell();
        if self.state.binary && !is_text(cell.column_type) {
            assert!(is_datetime(cell.column_type), "a date for a {:?} column", cell.column_type);
            let [y0, y1] = year.to_le_bytes();
            self.out.payload().extend_from_slice(&[4, y0, y1, month, day]);
        } else {
            self.short_text(|out| push_date(out, year, month, day));
        }
    }

    /// A date with time of day; `decimals` (0 to 6) digits of the microseconds are printed in a text row.
    pub fn datetime(&mut self, year: u16, month: u8, day: u8, h: u8, mi: u8, s: u8, micros: u32, decimals: u8) {
        let cell = self.next_cell();
        if self.state.binary && !is_text(cell.column_type) {
            assert!(is_datetime(cell.column_type), "a datetime for a {:?} column", cell.column_type);
            let [y0, y1] = year.to_le_bytes();
            let out = self.out.payload();
            let fields = [11, y0, y1, month, day, h, mi, s];
            out.extend_from_slice(&fields);
            if micros > 0 {
                out.extend_from_slice(&micros.to_le_bytes());
            } else {
                let at = out.len() - fields.len();
                out[at] = 7;
            }
        } else {
            self.short_text(|out| {
                push_date(out, year, month, day);
                out.push(b' ');
                push_two(out, h);
                push_clock(out, mi, s, micros, decimals);
            });
        }
    }

    /// A time of day or a duration of up to 838 hours.
    pub fn time(&mut self, negative: bool, hours: u32, minutes: u8, seconds: u8, micros: u32, decimals: u8) {
        let cell = self.next_cell();
        if self.state.binary && !is_text(cell.column_type) {
            assert_eq!(cell.column_type, ColumnType::Time, "a time for a column of another type");
            let out = self.out.payload();
            if hours == 0 && minutes == 0 && seconds == 0 && micros == 0 {
                return out.push(0);
            }
            out.push(if micros > 0 { 12 } else { 8 });
            out.push(u8::from(negative));
            out.extend_from_slice(&(hours / 24).to_le_bytes());
            out.extend_from_slice(&[(hours % 24) as u8, minutes, seconds]);
            if micros > 0 {
                out.extend_from_slice(&micros.to_le_bytes());
            }
        } else {
            self.short_text(|out| {
                if negative {
                    out.push(b'-');
                }
                if hours < 100 {
                    push_two(out, hours as u8);
                } else {
                    push_u64(out, u64::from(hours));
                }
                push_clock(out, minutes, seconds, micros, decimals);
            });
        }
    }

    /// Text shorter than 251 bytes, of a length not known beforehand: the length byte is patched in.
    fn short_text(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let out = self.out.payload();
        let at = out.len();
        out.push(0);
        write(out);
        let length = out.len() - at - 1;
        if length < 251 {
            out[at] = length as u8;
        } else {
            // Only a DOUBLE(M, D) of enormous magnitude gets here.
            let text = out.split_off(at + 1);
            out.truncate(at);
            push_lenenc_bytes(out, &text);
        }
    }

    #[inline]
    fn text_int(&mut self, magnitude: u64, negative: bool) {
        let mut digits = [0u8; 20];
        let start = format_u64(&mut digits, magnitude);
        let digits = digits.get(start..).unwrap_or_default();
        let out = self.out.payload();
        out.push(digits.len() as u8 + u8::from(negative));
        if negative {
            out.push(b'-');
        }
        out.extend_from_slice(digits);
    }

    #[inline]
    fn binary_int(&mut self, cell: Cell, v: i64, magnitude: u64, negative: bool) {
        use ColumnType::*;
        let width = match cell.column_type {
            Long | Int24 => 4,
            LongLong => 8,
            Tiny => 1,
            Short | Year => 2,
            Double => return self.out.payload().extend_from_slice(&(v as f64).to_le_bytes()),
            Float => return self.out.payload().extend_from_slice(&(v as f32).to_le_bytes()),
            other => {
                assert!(is_text(other), "an integer for a {other:?} column");
                return self.text_int(magnitude, negative);
            }
        };
        // Negative values need the sign bit too; unsigned ones may use all bits.
        let limit = if width == 8 { u64::MAX } else { (1 << (8 * width)) - 1 };
        assert!(magnitude <= if negative { limit / 2 + 1 } else { limit }, "{v} for a {:?} column", cell.column_type);
        self.out.payload().extend_from_slice(&v.to_le_bytes()[..width]);
    }
}

fn push_date(out: &mut Vec<u8>, year: u16, month: u8, day: u8) {
    push_four(out, year);
    out.push(b'-');
    push_two(out, month);
    out.push(b'-');
    push_two(out, day);
}

fn push_clock(out: &mut Vec<u8>, minutes: u8, seconds: u8, micros: u32, decimals: u8) {
    out.push(b':');
    push_two(out, minutes);
    out.push(b':');
    push_two(out, seconds);
    push_fraction(out, micros, decimals);
}
