//! Groups under way, of one page of a scan, and how their states travel.
//!
//! There are as many groups as an answer has rows at most ([`GROUPS_MAX`]). Where there are more, keys that a stranger chose to collide among them, the page ends ([`Groups::are_full`]) and its groups are sent: they are partial
//! anyway. Memory is kept from one page to the next, as far as one of usual size needs it.
//!
//! ```text
//! state of a slot: count varint | where it is no count and the count is not 0: bytes u8, a signed number of so many bytes, little-endian
//! ```

use apus_types::{RowLayout, hash::hash_key, row::wide_int_le};

use crate::{
    fixed::{self, Unfit},
    grouping::{Grouping, Slot},
};

/// Most groups of a page.
pub const GROUPS_MAX: usize = 4096;
/// Of the table, twice the groups; a power of two.
const PLACES: usize = 2 * GROUPS_MAX;
/// A key that is looked for at so many places ends the page.
const LOOKS_MAX: usize = 64;
/// Memory that a list keeps from one page to the next.
const KEPT_BYTES_MAX: usize = 256 << 10;

/// What a slot has of its rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct State {
    pub count: u64,
    /// 0 where there is none.
    pub value: i128,
}

#[derive(Clone, Copy, Debug)]
struct Group {
    hash: u64,
    /// Its key, if it is short.
    short: Option<u128>,
    /// Where its key and its row end.
    key_end: u32,
    row_end: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Groups {
    /// Number + 1 of a group; empty until there is a second one.
    places: Vec<u32>,
    groups: Vec<Group>,
    keys: Vec<u8>,
    rows: Vec<u8>,
    states: Vec<State>,
    /// The group of the row before.
    last: usize,
    is_crowded: bool,
    /// Of the row under way: its key, where that is not short, the columns that programs name, and their values.
    key: Vec<u8>,
    loaded: Vec<Option<i128>>,
    values: Vec<Option<i128>>,
}

impl Groups {
    pub fn clear(&mut self) {
        self.places.clear();
        self.groups.clear();
        for list in [&mut self.keys, &mut self.rows, &mut self.key] {
            if list.capacity() > KEPT_BYTES_MAX {
                *list = Vec::new();
            }
            list.clear();
        }
        self.states.clear();
        (self.last, self.is_crowded) = (0, false);
    }
    pub fn len(&self) -> usize {
        self.groups.len()
    }
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }
    /// No more rows are to be added.
    pub fn are_full(&self) -> bool {
        self.groups.len() >= GROUPS_MAX || self.is_crowded
    }
    /// What the answer takes, about.
    pub fn byte_len(&self) -> usize {
        self.rows.len() + self.states.len() * size_of::<State>()
    }

    /// Puts a row to its group. `write_row` appends what is sent of a group's first one.
    ///
    /// # Errors
    /// [`Unfit`]; the groups are of no use then.
    #[inline]
    pub fn add(
        &mut self,
        grouping: &Grouping,
        layout: &RowLayout,
        row: &[u8],
        write_row: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), Unfit> {
        let number = self.number(grouping, layout, row, write_row);
        let slots = grouping.slots.len();
        let Groups { states, loaded, values, .. } = self;
        let states = &mut states[number * slots..(number + 1) * slots];
        loaded.clear();
        for column in &grouping.loads {
            loaded.push(fixed::number(layout.value(row, *column))?);
        }
        values.clear();
        for steps in grouping.programs() {
            values.push(fixed::run(steps, |at| Ok(loaded[usize::from(at)]))?);
        }
        for (state, slot) in states.iter_mut().zip(&grouping.slots) {
            match *slot {
                Slot::Rows => state.count += 1,
                Slot::Values(column) => state.count += u64::from(!layout.is_null(row, column)),
                Slot::Sum(program) => {
                    let Some(value) = values[usize::from(program)] else { continue };
                    state.value = state.value.checked_add(value).ok_or(Unfit)?;
                    state.count += 1;
                }
                Slot::Least(program) => state.keep(values[usize::from(program)], i128::min),
                Slot::Greatest(program) => state.keep(values[usize::from(program)], i128::max),
            }
        }
        Ok(())
    }

    #[inline]
    fn number(
        &mut self,
        grouping: &Grouping,
        layout: &RowLayout,
        row: &[u8],
        write_row: impl FnOnce(&mut Vec<u8>),
    ) -> usize {
        if grouping.keys.is_empty() {
            if self.groups.is_empty() {
                self.begin(None, 0, grouping.slots.len(), write_row);
            }
            return 0;
        }
        let short = short_key(&grouping.keys, layout, row);
        self.key.clear();
        if short.is_none() {
            push_key(&grouping.keys, layout, row, &mut self.key);
        }
        if self.last < self.groups.len() && self.has_key(self.last, short) {
            return self.last;
        }
        let hash = short.map_or_else(|| hash_key(&self.key), |key| hash_key(&key.to_le_bytes()));
        let mut place = hash as usize % PLACES;
        self.last = if self.places.is_empty() {
            self.places.resize(PLACES, 0);
            self.places[place] = 1;
            self.begin(short, hash, grouping.slots.len(), write_row)
        } else {
            let mut looks = 0;
            loop {
                match self.places[place].checked_sub(1) {
                    Some(known) if self.is_group(known as usize, short, hash) => break known as usize,
                    Some(_) => {
                        place = (place + 1) % PLACES;
                        looks += 1;
                    }
                    None => {
                        self.is_crowded |= looks > LOOKS_MAX;
                        self.places[place] = self.groups.len() as u32 + 1;
                        break self.begin(short, hash, grouping.slots.len(), write_row);
                    }
                }
            }
        };
        self.last
    }

    fn begin(&mut self, short: Option<u128>, hash: u64, slots: usize, write_row: impl FnOnce(&mut Vec<u8>)) -> usize {
        self.keys.extend_from_slice(&self.key);
        write_row(&mut self.rows);
        self.groups.push(Group { hash, short, key_end: self.keys.len() as u32, row_end: self.rows.len() as u32 });
        self.states.resize(self.groups.len() * slots, State::default());
        self.groups.len() - 1
    }

    #[inline]
    fn is_group(&self, number: usize, short: Option<u128>, hash: u64) -> bool {
        self.groups[number].hash == hash && self.has_key(number, short)
    }

    #[inline]
    fn has_key(&self, number: usize, short: Option<u128>) -> bool {
        self.groups[number].short == short && (short.is_some() || self.key_of(number) == self.key)
    }

    #[inline]
    fn key_of(&self, number: usize) -> &[u8] {
        let start = number.checked_sub(1).map_or(0, |before| self.groups[before].key_end);
        &self.keys[start as usize..self.groups[number].key_end as usize]
    }

    /// The first row of a group.
    pub fn row(&self, number: usize) -> &[u8] {
        let start = number.checked_sub(1).map_or(0, |before| self.groups[before].row_end);
        &self.rows[start as usize..self.groups[number].row_end as usize]
    }

    /// Appends the states of a group, as they travel.
    pub fn push_states(&self, grouping: &Grouping, number: usize, out: &mut Vec<u8>) {
        let slots = &grouping.slots;
        for (state, slot) in self.states[number * slots.len()..].iter().zip(slots) {
            state.push(*slot, out);
        }
    }
}

/// What [`push_key`] says, in 16 bytes; `None` where it takes more.
fn short_key(columns: &[u16], layout: &RowLayout, row: &[u8]) -> Option<u128> {
    let (mut key, mut bits) = (0, 0);
    let mut push = |number: u128, bytes: usize| {
        let end = bits + 8 * bytes;
        if bytes > 0 && end <= 128 {
            key |= number << bits;
            bits = end;
        }
        (end <= 128).then_some(())
    };
    for &column in columns {
        let Some(raw) = layout.present(row, column) else {
            push(0, 1)?;
            continue;
        };
        let length = if layout.fixed_place(column).is_none() { raw.len() } else { 0 };
        if raw.len() > 16 {
            return None;
        }
        push(1 + length as u128, 1)?;
        push(wide_int_le(raw), raw.len())?;
    }
    Some(key)
}

/// Columns as they are stored: what is alike here is equal, whatever the type.
fn push_key(columns: &[u16], layout: &RowLayout, row: &[u8], out: &mut Vec<u8>) {
    for &column in columns {
        let Some(raw) = layout.present(row, column) else {
            out.push(0);
            continue;
        };
        out.push(1);
        if layout.fixed_place(column).is_none() {
            out.extend_from_slice(&(raw.len() as u32).to_le_bytes());
        }
        out.extend_from_slice(raw);
    }
}

impl State {
    #[inline]
    fn keep(&mut self, value: Option<i128>, better: fn(i128, i128) -> i128) {
        let Some(value) = value else { return };
        self.value = if self.count == 0 { value } else { better(self.value, value) };
        self.count += 1;
    }

    fn push(&self, slot: Slot, out: &mut Vec<u8>) {
        let mut count = self.count;
        while count > 0x7f {
            out.push(count as u8 | 0x80);
            count >>= 7;
        }
        out.push(count as u8);
        if slot.is_count() || self.count == 0 {
            return;
        }
        let bytes = self.value.to_le_bytes();
        let sign_bits = if self.value < 0 { self.value.leading_ones() } else { self.value.leading_zeros() };
        let length = (128 - sign_bits as usize) / 8 + 1;
        out.push(length as u8);
        out.extend_from_slice(&bytes[..length]);
    }

    /// Takes the state of a slot from the front of what came; `None` where it is none.
    pub fn take(slot: Slot, rest: &mut &[u8]) -> Option<State> {
        let mut count = 0u64;
        for shift in (0..64).step_by(7) {
            let (byte, behind) = rest.split_first()?;
            *rest = behind;
            count |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return State { count, value: 0 }.take_value(slot, rest);
            }
        }
        None
    }

    fn take_value(self, slot: Slot, rest: &mut &[u8]) -> Option<State> {
        if slot.is_count() || self.count == 0 {
            return Some(self);
        }
        let (length, behind) = rest.split_first()?;
        let (bytes, behind) = behind.split_at_checked(usize::from(*length))?;
        *rest = behind;
        let sign = *bytes.last().filter(|_| bytes.len() <= 16)? as i8 >> 7;
        let mut whole = [sign as u8; 16];
        whole[..bytes.len()].copy_from_slice(bytes);
        Some(State { value: i128::from_le_bytes(whole), ..self })
    }
}

#[cfg(test)]
mod tests;
