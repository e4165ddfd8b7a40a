//! The name of a branch: `gtrid [, bqual [, formatID]]`, as it is written and as it is kept.

use super::token::{Token, Tokens};
use crate::errors::Result;

/// Bytes of each of the two identifiers, as in MySQL.
pub const IDENTIFIER_MAX: usize = 64;
const FORMAT_DEFAULT: u64 = 1;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Xid {
    pub format: u64,
    /// Of the global transaction.
    pub gtrid: Vec<u8>,
    /// The branch qualifier.
    pub bqual: Vec<u8>,
}

impl Xid {
    /// # Errors
    /// 1064.
    pub fn parse(t: &mut Tokens) -> Result<Xid> {
        let gtrid = identifier(t)?;
        let (mut bqual, mut format) = (Vec::new(), FORMAT_DEFAULT);
        if t.symbol(',') {
            bqual = identifier(t)?;
            if t.symbol(',') {
                format = number(t)?;
            }
        }
        Ok(Xid { format, gtrid, bqual })
    }

    /// As it is kept in `apus.branches`: format, length of gtrid, both identifiers.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = self.format.to_be_bytes().to_vec();
        out.push(self.gtrid.len() as u8);
        out.extend_from_slice(&self.gtrid);
        out.extend_from_slice(&self.bqual);
        out
    }

    /// `None`: it is the name of something else.
    pub fn decode(bytes: &[u8]) -> Option<Xid> {
        let (format, rest) = bytes.split_first_chunk::<8>()?;
        let (length, rest) = rest.split_first()?;
        let (gtrid, bqual) = rest.split_at_checked(usize::from(*length))?;
        Some(Xid { format: u64::from_be_bytes(*format), gtrid: gtrid.to_vec(), bqual: bqual.to_vec() })
    }

    /// As XA RECOVER shows it, or as CONVERT XID has it.
    pub fn shown(&self, converted: bool) -> Vec<u8> {
        let bytes = [self.gtrid.as_slice(), &self.bqual].concat();
        if !converted {
            return bytes;
        }
        let digits: String = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
        format!("0x{digits}").into_bytes()
    }
}

/// A text, `X'6a'`, `0x6a`, `B'1101010'` or `0b1101010`.
fn identifier(t: &mut Tokens) -> Result<Vec<u8>> {
    let wrong = t.error();
    let bytes = match t.peek() {
        Some(Token::Text(text)) => Some(text.clone().into_bytes()),
        Some(Token::Word(word)) => {
            let word = word.to_ascii_lowercase();
            match (word.as_str(), t.ahead(1)) {
                ("x" | "b", Some(Token::Text(digits))) => {
                    let digits = digits.clone();
                    t.skip();
                    if word == "x" { hex(&digits).filter(|_| digits.len().is_multiple_of(2)) } else { bits(&digits) }
                }
                _ => word.strip_prefix("0x").and_then(hex).or_else(|| word.strip_prefix("0b").and_then(bits)),
            }
        }
        _ => None,
    };
    let bytes = bytes.filter(|bytes| bytes.len() <= IDENTIFIER_MAX).ok_or(wrong)?;
    t.skip();
    Ok(bytes)
}

/// A digit stands alone at the beginning where their number is odd.
fn hex(digits: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = digits.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect::<Option<_>>()?;
    let (first, rest) = digits.split_at(digits.len() % 2);
    Some(first.iter().copied().chain(rest.chunks_exact(2).map(|two| two[0] << 4 | two[1])).collect())
}

fn bits(digits: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = digits.chars().map(|c| c.to_digit(2).map(|d| d as u8)).collect::<Option<_>>()?;
    let byte = |bits: &[u8]| bits.iter().fold(0, |byte, bit| byte << 1 | bit);
    let (first, rest) = digits.split_at(digits.len() % 8);
    let first = (!first.is_empty()).then(|| byte(first));
    Some(first.into_iter().chain(rest.chunks_exact(8).map(byte)).collect())
}

fn number(t: &mut Tokens) -> Result<u64> {
    let wrong = t.error();
    let number = match t.peek() {
        // Of 1.5 and 1e3 as far as the first digits go.
        Some(Token::Number(digits)) => digits.split(['.', 'e', 'E']).next().and_then(|digits| digits.parse().ok()),
        Some(Token::Word(word)) => {
            let digits = word.to_ascii_lowercase().strip_prefix("0x").map(str::to_owned);
            digits.and_then(|digits| u64::from_str_radix(&digits, 16).ok())
        }
        _ => None,
    };
    t.skip();
    number.ok_or(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<Xid> {
        let mut t = Tokens::new(text);
        Xid::parse(&mut t).ok().filter(|_| t.at_end())
    }
    fn xid(format: u64, gtrid: &[u8], bqual: &[u8]) -> Option<Xid> {
        Some(Xid { format, gtrid: gtrid.to_vec(), bqual: bqual.to_vec() })
    }

    #[test]
    fn forms() {
        assert_eq!(parsed("'a'"), xid(1, b"a", b""));
        assert_eq!(parsed("'a','b',7"), xid(7, b"a", b"b"));
        assert_eq!(parsed("X'6162', 0x63, 0x10"), xid(16, b"ab", b"c"));
        assert_eq!(parsed("'a','b',1.5"), xid(1, b"a", b"b"));
        assert_eq!(parsed("0xabc"), xid(1, &[0x0a, 0xbc], b""));
        assert_eq!(parsed("b'101', 0b111111111"), xid(1, &[5], &[1, 0xff]));
        assert_eq!(parsed("''"), xid(1, b"", b""));
        for wrong in ["", "a", "7", "'a','b','c'", "x'6'", "x'6g'", "'a',", "'a','b',-1"] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
        assert!(parsed(&format!("'{}'", "a".repeat(64))).is_some());
        assert!(parsed(&format!("'{}'", "a".repeat(65))).is_none());
    }

    #[test]
    fn kept_and_shown() {
        let xid = Xid { format: u64::MAX, gtrid: vec![0, 255], bqual: b"b".to_vec() };
        assert_eq!(Xid::decode(&xid.encode()), Some(xid.clone()));
        assert_eq!(xid.shown(true), b"0x00FF62");
        assert_eq!(xid.shown(false), [0, 255, b'b']);
        assert_eq!(Xid::decode(b"short"), None);
        let longest = Xid { format: 0, gtrid: vec![1; 64], bqual: vec![2; 64] };
        assert!(longest.encode().len() <= apus_types::claims::NAME_BYTES_MAX);
    }
}
