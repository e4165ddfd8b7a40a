//! A bounds-checked reader over one packet's payload. Every read either succeeds or is refused.

use super::error::DecodeError;

/// What is left of a payload.
#[derive(Debug, Clone, Copy)]
pub struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub fn new(payload: &'a [u8]) -> Cursor<'a> {
        Cursor { rest: payload }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// All that is left.
    pub fn rest(self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(DecodeError::new("too short"))?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(DecodeError::new("too short"))?;
        self.rest = rest;
        Ok(*taken)
    }

    #[inline]
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(self.array::<1>()?[0])
    }

    #[inline]
    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    #[inline]
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    #[inline]
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A length-encoded integer; the NULL and ERR markers are refused.
    pub fn lenenc(&mut self) -> Result<u64, DecodeError> {
        match self.u8()? {
            v @ 0..=250 => Ok(u64::from(v)),
            0xfc => Ok(u64::from(self.u16()?)),
            0xfd => {
                let [a, b, c] = self.array()?;
                Ok(u64::from(u32::from_le_bytes([a, b, c, 0])))
            }
            0xfe => self.u64(),
            0xfb | 0xff => Err(DecodeError::new("length-encoded integer")),
        }
    }

    /// A length-encoded string.
    pub fn lenenc_bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = usize::try_from(self.lenenc()?).map_err(|_| DecodeError::new("length of a string"))?;
        self.bytes(length)
    }

    /// A string up to a zero byte, which is consumed.
    pub fn until_zero(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = self.rest.iter().position(|&b| b == 0).ok_or(DecodeError::new("unterminated string"))?;
        let taken = self.bytes(length)?;
        self.bytes(1)?;
        Ok(taken)
    }

    /// A string up to a zero byte or the end, as some old clients leave the last zero out.
    pub fn until_zero_or_end(&mut self) -> &'a [u8] {
        self.until_zero().unwrap_or_else(|_| std::mem::take(&mut self.rest))
    }
}
