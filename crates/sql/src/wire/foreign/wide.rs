//! MySQL's Unicode in two or four bytes: ucs2, utf16, utf16le and utf32. Half of a pair is no character.

/// How code points are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Units {
    /// Two bytes, the upper one first.
    Two,
    /// As many, or a pair of them.
    Pairs,
    /// With the lower byte first.
    SwappedPairs,
    Four,
}

impl Units {
    /// Bytes of the shortest character.
    pub fn least(self) -> usize {
        if self == Units::Four { 4 } else { 2 }
    }

    fn unit(self, bytes: &[u8]) -> Option<u16> {
        let two = [*bytes.first()?, *bytes.get(1)?];
        Some(if self == Units::SwappedPairs { u16::from_le_bytes(two) } else { u16::from_be_bytes(two) })
    }

    /// How many bytes a character has whose first are these.
    pub fn expects(self, bytes: &[u8]) -> usize {
        match self {
            Units::Pairs | Units::SwappedPairs if matches!(self.unit(bytes), Some(0xd800..0xdc00)) => 4,
            _ => self.least(),
        }
    }

    /// How many bytes the character has that begins here; 1 where they are none.
    pub fn length(self, bytes: &[u8]) -> usize {
        let long = self.expects(bytes);
        if bytes.get(..long).is_some_and(|one| self.read(one).is_some()) { long } else { 1 }
    }

    /// The character with these bytes.
    pub fn read(self, bytes: &[u8]) -> Option<char> {
        match (self, bytes) {
            (Units::Four, &[a, b, c, d]) => char::from_u32(u32::from_be_bytes([a, b, c, d])),
            (Units::Four, _) => None,
            (_, [_, _]) => char::from_u32(self.unit(bytes)?.into()),
            (Units::Pairs | Units::SwappedPairs, [_, _, _, _]) => {
                char::decode_utf16([self.unit(bytes)?, self.unit(&bytes[2..])?]).next()?.ok()
            }
            _ => None,
        }
    }

    /// Appends the bytes of a character, or of `?`.
    pub fn write(self, character: char, out: &mut Vec<u8>) {
        let mut units = [0; 2];
        match self {
            Units::Four => out.extend_from_slice(&u32::from(character).to_be_bytes()),
            Units::Two => {
                out.extend_from_slice(&u16::try_from(u32::from(character)).unwrap_or(b'?'.into()).to_be_bytes());
            }
            Units::Pairs => character.encode_utf16(&mut units).iter().for_each(|u| out.extend(u.to_be_bytes())),
            Units::SwappedPairs => character.encode_utf16(&mut units).iter().for_each(|u| out.extend(u.to_le_bytes())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for (units, bytes) in [
            (Units::Two, &[0, 0x61, 0x4e, 0x2d, 0, b'?'][..]),
            (Units::Pairs, &[0, 0x61, 0x4e, 0x2d, 0xd8, 0x3d, 0xde, 0]),
            (Units::SwappedPairs, &[0x61, 0, 0x2d, 0x4e, 0x3d, 0xd8, 0, 0xde]),
            (Units::Four, &[0, 0, 0, 0x61, 0, 0, 0x4e, 0x2d, 0, 1, 0xf6, 0]),
        ] {
            let mut written = Vec::new();
            "a\u{4e2d}\u{1f600}".chars().for_each(|c| units.write(c, &mut written));
            assert_eq!(written, bytes);
            let (mut at, mut text) = (0, String::new());
            while at < bytes.len() {
                let long = units.length(&bytes[at..]);
                text.extend(units.read(&bytes[at..at + long]));
                at += long;
            }
            assert_eq!(text, if units == Units::Two { "a\u{4e2d}?" } else { "a\u{4e2d}\u{1f600}" });
        }
    }

    #[test]
    fn half_a_pair_is_no_character() {
        assert_eq!(Units::Pairs.length(&[0xd8, 0x3d, 0, 0x61]), 1);
        assert_eq!(Units::Pairs.length(&[0xde, 0, 0, 0x61]), 1);
        assert_eq!(Units::Two.length(&[0xd8, 0x3d]), 1);
        assert_eq!(Units::Two.length(&[0]), 1);
        assert_eq!(Units::Four.length(&[0, 0x11, 0, 0]), 1);
    }
}
