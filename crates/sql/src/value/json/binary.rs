//! The form that columns keep. It is on disk, so that it never changes: what is new gets another version, which is the first byte.
//!
//! A value is a tag and what follows it; numbers are little-endian.
//!
//! | tag | | follows |
//! |---|---|---|
//! | 0, 1, 2 | null, false, true | |
//! | 3, 4, 5 | integer, integer without sign, double | 8 bytes |
//! | 6 | decimal | scale (1 byte), unscaled value (16) |
//! | 7 | string | length (4), UTF-8 |
//! | 8 | array | number of elements (4), where each begins (4 each), elements |
//! | 9 | object | number of members (4), where each begins (4 each), members in order: name as length (4) and UTF-8, value |
//! | 10 | date | packed (4) |
//! | 11, 14 | DATETIME, TIMESTAMP | packed (8) |
//! | 12 | time | microseconds (8) |
//! | 13 | bytes | SQL type (1), length (4), bytes |
//!
//! Places are counted from the container's tag, so that a member is found in a search by halves and no value needs to know where it stands.

use super::value::{DEPTH_MAX, Json, Object};

const VERSION: u8 = 1;

/// The stored form of a value.
pub fn encode(value: &Json) -> Vec<u8> {
    let mut out = vec![VERSION];
    push(&mut out, value);
    out
}

fn push(out: &mut Vec<u8>, value: &Json) {
    let mut tagged = |tag: u8, bytes: &[u8]| {
        out.push(tag);
        out.extend_from_slice(bytes);
    };
    match value {
        Json::Null => tagged(0, &[]),
        Json::Bool(b) => tagged(1 + u8::from(*b), &[]),
        Json::Int(n) => tagged(3, &n.to_le_bytes()),
        Json::UInt(n) => tagged(4, &n.to_le_bytes()),
        Json::Double(x) => tagged(5, &x.to_le_bytes()),
        Json::Decimal { unscaled, scale } => {
            tagged(6, &[*scale]);
            out.extend_from_slice(&unscaled.to_le_bytes());
        }
        Json::String(text) => {
            out.push(7);
            push_bytes(out, text.as_bytes());
        }
        Json::Array(list) => push_container(out, 8, list.iter(), push),
        Json::Object(members) => {
            push_container(out, 9, members.iter(), |out, (key, member): (&str, &Json)| {
                push_bytes(out, key.as_bytes());
                push(out, member);
            });
        }
        Json::Date(d) => tagged(10, &d.to_le_bytes()),
        Json::DateTime(d, is_timestamp) => tagged(if *is_timestamp { 14 } else { 11 }, &d.to_le_bytes()),
        Json::Time(t) => tagged(12, &t.to_le_bytes()),
        Json::Opaque(ty, bytes) => {
            tagged(13, &[*ty]);
            push_bytes(out, bytes);
        }
    }
}

fn push_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    // No value is as long as that: rows and packets end far below.
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn push_container<T>(
    out: &mut Vec<u8>,
    tag: u8,
    parts: impl Iterator<Item = T> + Clone,
    mut push: impl FnMut(&mut Vec<u8>, T),
) {
    let (start, count) = (out.len(), parts.clone().count());
    out.push(tag);
    out.extend_from_slice(&(count as u32).to_le_bytes());
    let places = out.len();
    out.resize(places + 4 * count, 0);
    for (i, part) in parts.enumerate() {
        let place = (out.len() - start) as u32;
        out[places + 4 * i..places + 4 * i + 4].copy_from_slice(&place.to_le_bytes());
        push(out, part);
    }
}

/// The value that was encoded; `None` of bytes that are none.
pub fn decode(bytes: &[u8]) -> Option<Json> {
    Stored::of(bytes)?.value()
}

/// A value in its stored form, or a part of one.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'b> {
    /// From the tag on; what follows the value is behind it.
    bytes: &'b [u8],
}

impl<'b> Stored<'b> {
    pub fn of(bytes: &'b [u8]) -> Option<Stored<'b>> {
        match bytes.split_first()? {
            (&VERSION, bytes) if !bytes.is_empty() => Some(Stored { bytes }),
            _ => None,
        }
    }
    /// This part as a stored value of its own.
    pub fn to_bytes(self) -> Vec<u8> {
        [&[VERSION], self.bytes].concat()
    }
    pub fn value(self) -> Option<Json> {
        self.read(DEPTH_MAX + 1)
    }
    fn fixed<const N: usize>(self, at: usize) -> Option<[u8; N]> {
        self.bytes.get(at..at + N)?.try_into().ok()
    }
    fn u32(self, at: usize) -> Option<usize> {
        self.fixed(at).map(|b| u32::from_le_bytes(b) as usize)
    }
    /// Bytes with their length before them.
    fn counted(self, at: usize) -> Option<&'b [u8]> {
        let length = self.u32(at)?;
        self.bytes.get(at + 4..at.checked_add(4)?.checked_add(length)?)
    }
    /// Elements or members of a container with this tag.
    fn count(self, tag: u8) -> Option<usize> {
        if *self.bytes.first()? == tag { self.u32(1).filter(|n| n * 4 <= self.bytes.len()) } else { None }
    }
    /// The part with this number of `count`: up to where the next begins, so that no byte belongs to two.
    fn part(self, i: usize, count: usize) -> Option<Stored<'b>> {
        let end = if i + 1 < count { self.u32(5 + 4 * (i + 1))? } else { self.bytes.len() };
        let place = self.u32(5 + 4 * i).filter(|place| *place >= 5 + 4 * count)?;
        self.bytes.get(place..end).map(|bytes| Stored { bytes })
    }
    fn member(self, i: usize, count: usize) -> Option<(&'b [u8], Stored<'b>)> {
        let part = self.part(i, count)?;
        let key = part.counted(0)?;
        Some((key, Stored { bytes: part.bytes.get(4 + key.len()..)? }))
    }
    /// The element of an array with this number.
    pub fn element(self, i: usize) -> Option<Stored<'b>> {
        let count = self.elements()?;
        if i < count { self.part(i, count) } else { None }
    }
    /// How many elements an array has; `None` of what is none.
    pub fn elements(self) -> Option<usize> {
        self.count(8)
    }
    /// The member of an object with this name.
    pub fn named(self, name: &str) -> Option<Stored<'b>> {
        let count = self.count(9)?;
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = (low + high) / 2;
            let (key, value) = self.member(middle, count)?;
            match key.len().cmp(&name.len()).then_with(|| key.cmp(name.as_bytes())) {
                std::cmp::Ordering::Equal => return Some(value),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }

    fn read(self, depth: usize) -> Option<Json> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
        let below = depth.checked_sub(1)?;
        Some(match *self.bytes.first()? {
            0 => Json::Null,
            1 => Json::Bool(false),
            2 => Json::Bool(true),
            3 => Json::Int(i64::from_le_bytes(self.fixed(1)?)),
            4 => Json::UInt(u64::from_le_bytes(self.fixed(1)?)),
            5 => Json::Double(f64::from_le_bytes(self.fixed(1)?)),
            6 => Json::Decimal { scale: *self.bytes.get(1)?, unscaled: i128::from_le_bytes(self.fixed(2)?) },
            7 => Json::String(text(self.counted(1)?)?),
            8 => {
                let count = self.count(8)?;
                Json::Array((0..count).map(|i| self.part(i, count)?.read(below)).collect::<Option<_>>()?)
            }
            9 => {
                let count = self.count(9)?;
                let member = |i| {
                    let (key, value) = self.member(i, count)?;
                    Some((text(key)?, value.read(below)?))
                };
                Json::Object(Object::from_ordered((0..count).map(member).collect::<Option<_>>()?)?)
            }
            10 => Json::Date(u32::from_le_bytes(self.fixed(1)?)),
            tag @ (11 | 14) => Json::DateTime(u64::from_le_bytes(self.fixed(1)?), tag == 14),
            12 => Json::Time(i64::from_le_bytes(self.fixed(1)?)),
            13 => Json::Opaque(*self.bytes.get(1)?, self.counted(2)?.to_vec()),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::json::{parse::parse, print};

    /// A drawn document.
    fn draw(state: &mut u64, depth: usize) -> Json {
        let mut next = |n: u64| {
            *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (*state >> 33) % n
        };
        let count = next(4);
        match next(if depth == 0 { 11 } else { 15 }) {
            0 => Json::Null,
            1 => Json::Bool(next(2) == 1),
            2 => Json::Int(next(u64::MAX >> 33) as i64 - 1000),
            3 => Json::UInt(u64::MAX - next(9)),
            4 => Json::Double(next(1 << 30) as f64 / 7.0 * if next(2) == 0 { 1e40 } else { -1e-30 }),
            5 => Json::Decimal { unscaled: i128::from(next(1 << 30)) - 1000, scale: next(9) as u8 },
            6 => Json::Date(next(1 << 20) as u32),
            7 => Json::DateTime(next(1 << 30) << 20, next(2) == 1),
            8 => Json::Time(next(1 << 30) as i64),
            9 => Json::Opaque(15, vec![next(256) as u8; next(9) as usize]),
            10 => Json::text(["", "a", "é\n\"", "longer than a few bytes \u{1}"][next(4) as usize]),
            11 | 12 => Json::Array((0..count).map(|_| draw(state, depth - 1)).collect()),
            _ => {
                let keys = ["", "a", "b", "ab", "é", "key"];
                let first = next(3) as usize;
                let member = |key: &&str| ((*key).to_owned(), draw(state, depth - 1));
                Json::Object(Object::from_members(keys[first..first + count as usize].iter().map(member).collect()))
            }
        }
    }

    fn text(value: &Json) -> Vec<u8> {
        let mut out = Vec::new();
        print::push(&mut out, value);
        out
    }

    #[test]
    fn drawn_documents_come_back() {
        for seed in 0..2000 {
            let value = draw(&mut { seed }, 4);
            let bytes = encode(&value);
            assert_eq!(decode(&bytes), Some(value.clone()), "seed {seed}");
            let printed = text(&value);
            let parsed = parse(&printed).unwrap();
            assert_eq!(text(&parse(&text(&parsed)).unwrap()), text(&parsed), "seed {seed}");
            if let Json::Object(members) = &value {
                for (key, member) in members.iter() {
                    let found = Stored::of(&bytes).and_then(|s| s.named(key)).and_then(Stored::value);
                    assert_eq!(found.as_ref(), Some(member), "seed {seed}");
                }
                assert!(Stored::of(&bytes).unwrap().named("not there").is_none());
            }
        }
    }

    #[test]
    fn bytes_that_are_none_are_refused() {
        let whole = encode(&parse(br#"{"a":[1,"x",{"b":2.5}],"c":null}"#).unwrap());
        for end in 0..whole.len() {
            assert_eq!(decode(&whole[..end]), None, "the first {end} bytes");
        }
        for at in 0..whole.len() {
            for byte in [0, 1, 7, 8, 9, 0xff] {
                let mut broken = whole.clone();
                broken[at] = byte;
                let _ = decode(&broken);
            }
        }
        assert_eq!(decode(&[2, 0]), None, "another version");
    }

    /// The form is on disk.
    #[test]
    fn the_form_stays() {
        let bytes = encode(&parse(br#"{"b":[true],"a":-1}"#).unwrap());
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, "0109020000000d0000001b000000010000006103ffffffffffffffff010000006208010000000900000002");
    }
}
