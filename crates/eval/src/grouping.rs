//! What a scan is to be put together to, as the SQL node says it and a data node reads it.
//!
//! Rows whose *key columns* are stored alike, byte for byte, are one group. Groups are *partial*: one page of one stream has them, and who asked puts together what is equal by collation, by number, or by coming from
//! another page. So no comparison of MySQL's is needed here, and none can be wrong. A group is answered with its first row, as far as the scan's projection goes, and the state of each *slot*.
//!
//! ```text
//! version u8 | keys u8, each: column u16
//!            | programs u8, each: steps u8, each: 1 column u16, 2 constant i128, 3 add or 4 subtract (digits u8, digits u8), 5 multiply
//!            | slots u8, each: 1 rows, 2 values of a column u16, 3 sum, 4 least or 5 greatest of program u8
//! ```
//!
//! Without keys all rows are one group; without slots groups are rows without those that are alike: DISTINCT.

use apus_types::{
    ErrorCode,
    schema::{ColumnType, TableSchema},
};

use crate::fixed::{self, Program, Step, depth_behind};

/// Of this form.
pub const VERSION: u8 = 1;
pub const KEYS_MAX: usize = 32;
pub const PROGRAMS_MAX: usize = 32;
pub const SLOTS_MAX: usize = 32;
/// Of all programs together.
pub const STEPS_MAX: usize = 256;
pub const GROUPING_BYTES_MAX: usize = 8 << 10;
/// Longest texts (in characters) and binary strings (in bytes), as declared, that rows are grouped by: longer ones cost more than a slice has.
pub const LENGTH_MAX: u16 = 255;

/// How many steps take the time that a row may cost that is looked at.
const STEPS_PER_ROW: u32 = 32;
/// A key column of fixed width costs as much as so many steps; one of another kind as much as a row.
const KEY_STEPS: u32 = 4;

const COLUMN: u8 = 1;
const CONSTANT: u8 = 2;
const ADD: u8 = 3;
const SUBTRACT: u8 = 4;
const MULTIPLY: u8 = 5;

const ROWS: u8 = 1;
const VALUES: u8 = 2;
const SUM: u8 = 3;
const LEAST: u8 = 4;
const GREATEST: u8 = 5;

/// What is kept of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slot {
    /// How many rows it has.
    Rows,
    /// How many values of a column that are not NULL.
    Values(u16),
    /// Of the values of a program, by number.
    Sum(u8),
    Least(u8),
    Greatest(u8),
}

impl Slot {
    /// Whether a count is all there is of it.
    pub fn is_count(self) -> bool {
        matches!(self, Slot::Rows | Slot::Values(_))
    }
}

/// Whether rows may be grouped by a column of such a type.
pub fn is_key(ty: ColumnType) -> bool {
    match ty {
        ColumnType::Char { length, .. }
        | ColumnType::VarChar { length, .. }
        | ColumnType::Binary { length }
        | ColumnType::VarBinary { length } => length <= LENGTH_MAX,
        other => other.fixed_bytes().is_some(),
    }
}

/// Appends a grouping; what is over a limit is refused where it is read.
pub fn encode(keys: &[u16], programs: &[Program], slots: &[Slot], out: &mut Vec<u8>) {
    out.extend([VERSION, keys.len() as u8]);
    keys.iter().for_each(|column| out.extend(column.to_le_bytes()));
    out.push(programs.len() as u8);
    for program in programs {
        out.push(program.steps().len() as u8);
        program.steps().iter().for_each(|step| encode_step(*step, out));
    }
    out.push(slots.len() as u8);
    for slot in slots {
        match *slot {
            Slot::Rows => out.push(ROWS),
            Slot::Values(column) => {
                out.push(VALUES);
                out.extend(column.to_le_bytes());
            }
            Slot::Sum(program) => out.extend([SUM, program]),
            Slot::Least(program) => out.extend([LEAST, program]),
            Slot::Greatest(program) => out.extend([GREATEST, program]),
        }
    }
}

/// The key columns of a grouping that [`encode`] has made.
pub fn key_columns(bytes: &[u8]) -> impl Iterator<Item = u16> + '_ {
    let count = bytes.get(1).map_or(0, |count| usize::from(*count));
    let columns = bytes.get(2..).unwrap_or(&[]).as_chunks().0;
    columns.iter().take(count).map(|column| u16::from_le_bytes(*column))
}

fn encode_step(step: Step, out: &mut Vec<u8>) {
    match step {
        Step::Column(column) => {
            out.push(COLUMN);
            out.extend(column.to_le_bytes());
        }
        Step::Constant(n) => {
            out.push(CONSTANT);
            out.extend(n.to_le_bytes());
        }
        Step::Add(x, y) => out.extend([ADD, x, y]),
        Step::Subtract(x, y) => out.extend([SUBTRACT, x, y]),
        Step::Multiply => out.push(MULTIPLY),
    }
}

/// A grouping that was read and checked; it keeps its memory from one to the next.
#[derive(Debug, Default)]
pub struct Grouping {
    pub(crate) keys: Vec<u16>,
    /// Columns that programs name, each once; steps name them by their place here.
    pub(crate) loads: Vec<u16>,
    steps: Vec<Step>,
    /// Where each program ends.
    ends: Vec<u16>,
    pub(crate) slots: Vec<Slot>,
    cost: u32,
}

impl Grouping {
    /// Reads a grouping that came from outside, of rows of `schema`.
    ///
    /// # Errors
    /// [`ErrorCode::ProtocolViolation`] for what is no grouping of such rows, or over a limit; [`ErrorCode::NotSupported`] for one of another version.
    pub fn read(&mut self, bytes: &[u8], schema: &TableSchema) -> Result<(), ErrorCode> {
        self.keys.clear();
        self.loads.clear();
        self.steps.clear();
        self.ends.clear();
        self.slots.clear();
        self.cost = 0;
        let mut rest = Bytes(bytes);
        if bytes.len() > GROUPING_BYTES_MAX {
            return Err(ErrorCode::ProtocolViolation);
        }
        if rest.u8()? != VERSION {
            return Err(ErrorCode::NotSupported);
        }
        let ty = |column: u16| schema.columns.get(usize::from(column)).map(|c| c.ty);
        let mut long_keys = 0;
        for _ in 0..rest.count(KEYS_MAX)? {
            let column = rest.u16()?;
            let ty = ty(column).filter(|ty| is_key(*ty)).ok_or(ErrorCode::ProtocolViolation)?;
            long_keys += u32::from(ty.fixed_bytes().is_none());
            self.keys.push(column);
        }
        for _ in 0..rest.count(PROGRAMS_MAX)? {
            let mut depth = 0;
            for _ in 0..rest.count(fixed::STEPS_MAX)? {
                let step = self.step(&mut rest, ty)?;
                depth = depth_behind(depth, step).ok_or(ErrorCode::ProtocolViolation)?;
                self.steps.push(step);
            }
            if depth != 1 || self.steps.len() > STEPS_MAX {
                return Err(ErrorCode::ProtocolViolation);
            }
            self.ends.push(self.steps.len() as u16);
        }
        for _ in 0..rest.count(SLOTS_MAX)? {
            let slot = match rest.u8()? {
                ROWS => Slot::Rows,
                VALUES => Slot::Values(rest.u16().and_then(|c| ty(c).map(|_| c).ok_or(ErrorCode::ProtocolViolation))?),
                SUM => Slot::Sum(self.program_no(&mut rest)?),
                LEAST => Slot::Least(self.program_no(&mut rest)?),
                GREATEST => Slot::Greatest(self.program_no(&mut rest)?),
                _ => return Err(ErrorCode::ProtocolViolation),
            };
            self.slots.push(slot);
        }
        if !rest.0.is_empty() {
            return Err(ErrorCode::ProtocolViolation);
        }
        let short = self.keys.len() as u32 - long_keys;
        let steps = short * KEY_STEPS + (self.steps.len() + self.loads.len() + self.slots.len()) as u32;
        self.cost = long_keys + steps.div_ceil(STEPS_PER_ROW);
        Ok(())
    }

    fn step(&mut self, rest: &mut Bytes<'_>, ty: impl Fn(u16) -> Option<ColumnType>) -> Result<Step, ErrorCode> {
        Ok(match rest.u8()? {
            COLUMN => {
                let column = rest.u16()?;
                ty(column).filter(|ty| fixed::is_number(*ty)).ok_or(ErrorCode::ProtocolViolation)?;
                let known = self.loads.iter().position(|c| *c == column);
                Step::Column(known.unwrap_or_else(|| {
                    self.loads.push(column);
                    self.loads.len() - 1
                }) as u16)
            }
            CONSTANT => Step::Constant(rest.i128()?),
            ADD => Step::Add(rest.u8()?, rest.u8()?),
            SUBTRACT => Step::Subtract(rest.u8()?, rest.u8()?),
            MULTIPLY => Step::Multiply,
            _ => return Err(ErrorCode::ProtocolViolation),
        })
    }

    fn program_no(&self, rest: &mut Bytes<'_>) -> Result<u8, ErrorCode> {
        let no = rest.u8()?;
        if usize::from(no) < self.ends.len() { Ok(no) } else { Err(ErrorCode::ProtocolViolation) }
    }

    pub(crate) fn programs(&self) -> impl Iterator<Item = &[Step]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.steps[usize::from(start)..usize::from(*end)])
    }

    /// Of how many rows looked at it takes the time to put one to its group, at most.
    pub fn cost(&self) -> u32 {
        self.cost
    }
}

/// What is left of a grouping.
struct Bytes<'g>(&'g [u8]);

impl Bytes<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], ErrorCode> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(ErrorCode::ProtocolViolation)?;
        self.0 = rest;
        Ok(*taken)
    }
    fn u8(&mut self) -> Result<u8, ErrorCode> {
        Ok(self.array::<1>()?[0])
    }
    fn u16(&mut self) -> Result<u16, ErrorCode> {
        Ok(u16::from_le_bytes(self.array()?))
    }
    fn i128(&mut self) -> Result<i128, ErrorCode> {
        Ok(i128::from_le_bytes(self.array()?))
    }
    fn count(&mut self, most: usize) -> Result<usize, ErrorCode> {
        let count = usize::from(self.u8()?);
        if count > most { Err(ErrorCode::ProtocolViolation) } else { Ok(count) }
    }
}
