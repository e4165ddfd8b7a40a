//! Statements in a foreign character set, read as MySQL's lexer reads them.
//!
//! A backslash or a quote that is the second byte of a character is none. What a literal says are bytes first: escapes are resolved in them, byte by byte, as in
//! MySQL, and then they are a text, which is written down anew. Behind the name of a character set (`_binary'...'`), and where they are no text, they stay bytes, and
//! the literal becomes a hexadecimal one. Comments may hold anything.

use apus_types::collate::Charset;

use super::Foreign;
use crate::wire::characters;

/// What `sql_mode` says of quotes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Quoting {
    /// Double quotes are those of names.
    pub of_names: bool,
    /// A backslash in a text is itself.
    pub no_backslash: bool,
}

/// A statement on its way to UTF-8.
pub struct Reader<'s> {
    charset: Foreign,
    quoting: Quoting,
    said: &'s [u8],
    /// So much of it is read.
    at: usize,
    text: Vec<u8>,
}

impl<'s> Reader<'s> {
    pub fn new(charset: Foreign, quoting: Quoting, said: &'s [u8]) -> Reader<'s> {
        Reader { charset, quoting, said, at: 0, text: Vec::with_capacity(said.len() * 3 / 2) }
    }

    /// All of it.
    ///
    /// # Errors
    /// Where bytes begin that are no character.
    pub fn text(mut self) -> Result<Vec<u8>, usize> {
        self.read(usize::MAX)?;
        Ok(self.text)
    }

    /// How many bytes were said for so many of the text, which end between two words.
    pub fn said_for(mut self, text: usize) -> usize {
        match self.read(text) {
            Ok(()) => self.at,
            Err(at) => at,
        }
    }

    fn read(&mut self, end: usize) -> Result<(), usize> {
        while self.text.len() < end {
            let rest = &self.said[self.at..];
            match *rest {
                [] => break,
                [b'#', ..] => self.comment(b"\n"),
                [b'-', b'-'] => self.comment(b"\n"),
                [b'-', b'-', b, ..] if b <= b' ' => self.comment(b"\n"),
                [b'/', b'*', b, ..] if b != b'!' => self.comment(b"*/"),
                [b'\'', ..] => self.literal(b'\''),
                [b'"', ..] if !self.quoting.of_names => self.literal(b'"'),
                [quote @ (b'"' | b'`'), ..] => {
                    self.character()?;
                    while self.at < self.said.len() && self.said[self.at] != quote {
                        self.character()?;
                    }
                    if self.at < self.said.len() {
                        self.character()?;
                    }
                }
                _ => self.character()?,
            }
        }
        Ok(())
    }

    fn character(&mut self) -> Result<(), usize> {
        let (character, long) = self.charset.first(&self.said[self.at..]);
        let character = character.ok_or(self.at)?;
        self.text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        self.at += long;
        Ok(())
    }

    fn comment(&mut self, end: &[u8]) {
        let rest = &self.said[self.at..];
        let long = rest.windows(end.len()).skip(2).position(|w| w == end).map_or(rest.len(), |at| at + 2 + end.len());
        self.text.extend_from_slice(self.charset.read_lossy(&rest[..long]).as_bytes());
        self.at += long;
    }

    fn literal(&mut self, quote: u8) {
        let (bytes, long) = self.content(quote);
        let written = &self.said[self.at..self.at + long];
        if written.is_ascii() {
            self.text.extend_from_slice(written);
            self.at += long;
            return;
        }
        match self.charset.read(&bytes) {
            Ok(text) if !self.is_introduced() => {
                self.text.push(quote);
                for byte in text.into_bytes() {
                    if byte == quote || byte == b'\\' && !self.quoting.no_backslash {
                        self.text.push(byte);
                    }
                    self.text.push(byte);
                }
                self.text.push(quote);
            }
            _ => {
                self.text.extend_from_slice(b" x'");
                for byte in bytes {
                    let digit = |n: u8| b"0123456789ABCDEF"[usize::from(n)];
                    self.text.extend_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
                }
                self.text.push(b'\'');
            }
        }
        self.at += long;
    }

    /// The bytes that the literal says which begins here, and how many it has itself. Without its second quote it has none.
    fn content(&self, quote: u8) -> (Vec<u8>, usize) {
        let (rest, mut bytes, mut at) = (&self.said[self.at..], Vec::new(), 1);
        while let Some(&byte) = rest.get(at) {
            let long = self.charset.length(&rest[at..]);
            match (byte, rest.get(at + 1)) {
                _ if long > 1 => {}
                (b'\\', Some(&next)) if !self.quoting.no_backslash => {
                    if let b'%' | b'_' = next {
                        bytes.push(byte);
                    }
                    bytes.push(characters::unescape(next));
                    at += 2;
                    continue;
                }
                (byte, Some(next)) if byte == quote && *next == quote => at += 1,
                (byte, _) if byte == quote => return (bytes, at + 1),
                _ => {}
            }
            bytes.extend_from_slice(&rest[at..at + long]);
            at += long;
        }
        (Vec::new(), 1)
    }

    /// The name of a character set is the last word before.
    fn is_introduced(&self) -> bool {
        let before = self.text.trim_ascii_end();
        let is_of_word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | 0x80..);
        let word = &before[before.len() - before.iter().rev().take_while(|byte| is_of_word(byte)).count()..];
        let name = word.strip_prefix(b"_").and_then(|name| std::str::from_utf8(name).ok());
        name.is_some_and(|name| Charset::from_name(name).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(charset: &str, said: &[u8]) -> Result<String, usize> {
        let reader = Reader::new(Charset::from_name(charset).and_then(Foreign::of).unwrap(), Quoting::default(), said);
        reader.text().map(|text| String::from_utf8(text).unwrap())
    }

    #[test]
    fn a_second_byte_is_no_backslash_and_no_quote() {
        assert_eq!(read("gbk", b"SELECT '\xd5\x5c', `\xd5\x60`").unwrap(), "SELECT '\u{8aa0}', `\u{8aa4}`");
        assert_eq!(read("sjis", b"SELECT '\x95\x5c'' \x95\x5c\\''").unwrap(), "SELECT '\u{8868}'' \u{8868}'''");
        assert_eq!(read("big5", b"'\xb3\x5c\\n\xa5\x5c'").unwrap(), "'\u{8a31}\n\u{529f}'");
        assert_eq!(read("sjis", b"'\x81\x5f%'").unwrap(), r"'\\%'");
        assert_eq!(read("gbk", b"'\xd6\xd0\\%'").unwrap(), r"'中\\%'");
        assert_eq!(read("gbk", b"'\\\xd6\xd0'").unwrap(), "'中'");
        assert_eq!(read("cp1251", b"'\xe6\\'\"', \"\xe6\\\"'\"").unwrap(), "'ж''\"', \"ж\"\"'\"");
    }

    #[test]
    fn bytes_stay_bytes() {
        assert_eq!(read("gbk", b"_binary'\xff\\0\xd6\x5c'").unwrap(), "_binary x'FF00D65C'");
        assert_eq!(read("gbk", b"_GBK \"\xd6\xd0\"\"\", _binary'a\\0'").unwrap(), "_GBK  x'D6D022', _binary'a\\0'");
        assert_eq!(read("gbk", b"x _none '\xd6\xd0'").unwrap(), "x _none '中'");
        assert_eq!(read("gbk", b"SELECT '\xff'").unwrap(), "SELECT  x'FF'");
        assert_eq!(read("gbk", b"SELECT `\xff`").unwrap_err(), 8);
        assert_eq!(read("gbk", b"SELECT '\xff").unwrap_err(), 8);
    }

    #[test]
    fn comments_hold_anything() {
        assert_eq!(
            read("gbk", b"-- don't \xff\nSELECT '\xd6\xd0' # it's\n").unwrap(),
            "-- don't ?\nSELECT '中' # it's\n"
        );
        assert_eq!(
            read("gbk", b"/*' \xff*/1/*!40000 '\xd6\xd0'*/--'\xd6\xd0'").unwrap(),
            "/*' ?*/1/*!40000 '中'*/--'中'"
        );
    }

    #[test]
    fn what_was_said_for_a_text() {
        let said = b"SET @a = '\xd6\xd0'; SELECT 1";
        let text = read("gbk", said).unwrap();
        let end = text.find(" SELECT").unwrap();
        let reader = Reader::new(Foreign::of(Charset::Gbk).unwrap(), Quoting::default(), said);
        assert_eq!(&said[reader.said_for(end)..], b" SELECT 1");
    }
}
