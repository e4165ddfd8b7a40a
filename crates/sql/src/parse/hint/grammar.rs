//! The text of `/*+ ... */`, by MySQL's grammar.
//!
//! A hint is a word and its arguments in parentheses; blanks, and nothing else, are between hints. `@name` names a query block where it stands behind `(` or directly
//! behind a table. The first thing that does not fit ends the reading: what stands before it counts, and the place is told.

use super::words::{self, Form, Kind};

/// A table in a hint, and the query block that it is of if one is named.
#[derive(Clone, PartialEq, Debug)]
pub struct Named {
    pub name: String,
    pub block: Option<String>,
}

/// What SET_VAR and MAX_EXECUTION_TIME give.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    Whole(u64),
    /// With a point, as it is written.
    Fraction(String),
    Text(String),
}

#[derive(Clone, PartialEq, Debug)]
pub struct Hint {
    /// In capitals.
    pub word: &'static str,
    pub kind: Kind,
    /// It is no NO_ form.
    pub on: bool,
    /// `(@name ...)`.
    pub block: Option<String>,
    pub tables: Vec<Named>,
    pub indexes: Vec<String>,
    pub strategies: Vec<&'static str>,
    /// Of QB_NAME, RESOURCE_GROUP and SET_VAR.
    pub name: String,
    pub value: Option<Value>,
}

/// Where reading ended, and how that is called.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Wrong {
    pub at: usize,
    pub what: &'static str,
}

const SYNTAX: &str = "Optimizer hint syntax error";
const TOO_LONG: &str = "Unsupported MAX_EXECUTION_TIME";
/// Longest time of MAX_EXECUTION_TIME.
const LONGEST_MS: u64 = u32::MAX as u64;

#[derive(Clone, PartialEq, Debug)]
enum Token {
    /// Not in quotes, so that it may be a word of a hint.
    Word(String),
    Quoted(String),
    Block(String),
    Number(u64),
    /// `1M`.
    Multiple(u64),
    Fraction(String),
    Text(String),
    Symbol(u8),
    Close,
    Bad,
}

struct Reader<'t> {
    bytes: &'t [u8],
    text: &'t str,
    ansi_quotes: bool,
    /// Behind the token.
    at: usize,
    /// Where it begins.
    start: usize,
    token: Token,
}

/// The hints of a text that begins behind `/*+`, and what is wrong with it.
pub fn hints(text: &str, ansi_quotes: bool) -> (Vec<Hint>, Option<Wrong>) {
    let mut reader = Reader { bytes: text.as_bytes(), text, ansi_quotes, at: 0, start: 0, token: Token::Symbol(0) };
    let mut list = Vec::new();
    reader.next();
    loop {
        if reader.token == Token::Close && !list.is_empty() {
            return (list, None);
        }
        match reader.hint() {
            Ok(hint) => list.push(hint),
            Err(wrong) => return (list, Some(wrong)),
        }
    }
}

fn is_name(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$') || b >= 0x80
}

impl Reader<'_> {
    fn byte(&self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or(0)
    }

    fn next(&mut self) {
        let blanks = self.bytes[self.at..].iter().take_while(|b| b.is_ascii_whitespace()).count();
        let is_block = match &self.token {
            Token::Symbol(b'(') => true,
            Token::Word(_) | Token::Quoted(_) => blanks == 0,
            _ => false,
        };
        self.start = self.at + blanks;
        self.at = self.start;
        self.token = match self.byte(self.at) {
            b'@' if is_block => self.block(),
            b'*' if self.byte(self.at + 1) == b'/' => Token::Close,
            b'0'..=b'9' => self.number(),
            b if is_name(b) => Token::Word(self.word()),
            quote @ (b'`' | b'"' | b'\'') => self.quoted(quote),
            b => {
                self.at += 1;
                Token::Symbol(b)
            }
        };
    }

    fn word(&mut self) -> String {
        let begin = self.at;
        while is_name(self.byte(self.at)) {
            self.at += 1;
        }
        self.text[begin..self.at].to_owned()
    }

    fn number(&mut self) -> Token {
        let begin = self.at;
        let digits = self.bytes[begin..].iter().take_while(|b| b.is_ascii_digit()).count();
        let end = begin + digits;
        let factor = match self.byte(end).to_ascii_lowercase() {
            b'k' => 1 << 10,
            b'm' => 1 << 20,
            b'g' => 1 << 30,
            _ => 1u64,
        };
        let value = self.text[begin..end].parse::<u64>().unwrap_or(u64::MAX);
        if self.byte(end) == b'.' && self.byte(end + 1).is_ascii_digit() {
            let fraction = self.bytes[end + 1..].iter().take_while(|b| b.is_ascii_digit()).count();
            self.at = end + 1 + fraction;
            return Token::Fraction(self.text[begin..self.at].to_owned());
        }
        if factor > 1 && !is_name(self.byte(end + 1)) {
            self.at = end + 1;
            return Token::Multiple(value.saturating_mul(factor));
        }
        if is_name(self.byte(end)) {
            return Token::Word(self.word());
        }
        self.at = end;
        Token::Number(value)
    }

    fn quoted(&mut self, quote: u8) -> Token {
        let mut at = self.at + 1;
        let mut bytes = Vec::new();
        loop {
            match self.byte(at) {
                0 if at >= self.bytes.len() => return Token::Bad,
                b if b == quote && self.byte(at + 1) == quote => at += 1,
                b if b == quote => break,
                _ => {}
            }
            bytes.push(self.byte(at));
            at += 1;
        }
        self.at = at + 1;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        match quote {
            _ if text.is_empty() => Token::Bad,
            b'`' => Token::Quoted(text),
            b'"' if self.ansi_quotes => Token::Quoted(text),
            _ => Token::Text(text),
        }
    }

    fn block(&mut self) -> Token {
        self.at += 1;
        self.start = self.at;
        match self.byte(self.at) {
            b if is_name(b) => Token::Block(self.word()),
            quote @ (b'`' | b'"') => match self.quoted(quote) {
                Token::Quoted(name) => Token::Block(name),
                _ => Token::Bad,
            },
            _ => Token::Bad,
        }
    }

    fn wrong<T>(&self) -> Result<T, Wrong> {
        Err(Wrong { at: self.start, what: SYNTAX })
    }

    fn symbol(&mut self, symbol: u8) -> Result<(), Wrong> {
        if self.token != Token::Symbol(symbol) {
            return self.wrong();
        }
        self.next();
        Ok(())
    }

    fn is(&self, symbol: u8) -> bool {
        self.token == Token::Symbol(symbol)
    }

    fn name(&mut self) -> Result<String, Wrong> {
        let (Token::Word(name) | Token::Quoted(name)) = &self.token else { return self.wrong() };
        let name = name.clone();
        self.next();
        Ok(name)
    }

    fn opt_block(&mut self) -> Option<String> {
        let Token::Block(name) = &self.token else { return None };
        let name = name.clone();
        self.next();
        Some(name)
    }

    fn hint(&mut self) -> Result<Hint, Wrong> {
        let Token::Word(word) = &self.token else { return self.wrong() };
        let Some((word, kind, on)) = words::find(word) else { return self.wrong() };
        self.next();
        self.symbol(b'(')?;
        let (tables, indexes, strategies) = Default::default();
        let mut hint =
            Hint { word, kind, on, block: None, tables, indexes, strategies, name: String::new(), value: None };
        match kind.form() {
            Form::Tables => {
                hint.block = self.opt_block();
                if !self.is(b')') {
                    let is_order = matches!(kind, Kind::JoinOrder | Kind::JoinPrefix | Kind::JoinSuffix);
                    hint.tables = self.tables(is_order || hint.block.is_none())?;
                }
            }
            Form::Indexes => {
                hint.block = self.opt_block();
                hint.tables = vec![self.table(hint.block.is_none())?];
                if !self.is(b')') {
                    hint.indexes = self.list(Self::name)?;
                }
            }
            Form::Block => hint.block = self.opt_block(),
            Form::Strategies => {
                hint.block = self.opt_block();
                if !self.is(b')') {
                    hint.strategies = self.list(|reader| reader.strategy(&words::SEMI_JOINS))?;
                }
            }
            Form::Strategy => {
                hint.block = self.opt_block();
                hint.strategies = vec![self.strategy(&words::SUBQUERIES)?];
            }
            Form::Number => hint.value = Some(self.milliseconds()?),
            Form::Name => hint.name = self.name()?,
            Form::Assignment => {
                hint.name = self.name()?;
                self.symbol(b'=')?;
                hint.value = Some(self.value()?);
            }
        }
        self.symbol(b')')?;
        Ok(hint)
    }

    fn list<T>(&mut self, one: impl Fn(&mut Self) -> Result<T, Wrong>) -> Result<Vec<T>, Wrong> {
        let mut list = vec![one(self)?];
        while self.is(b',') {
            self.next();
            list.push(one(self)?);
        }
        Ok(list)
    }

    fn tables(&mut self, with_blocks: bool) -> Result<Vec<Named>, Wrong> {
        self.list(|reader| reader.table(with_blocks))
    }

    fn table(&mut self, with_block: bool) -> Result<Named, Wrong> {
        let name = self.name()?;
        let block = if with_block { self.opt_block() } else { None };
        Ok(Named { name, block })
    }

    fn strategy(&mut self, known: &[&'static str]) -> Result<&'static str, Wrong> {
        let found = match &self.token {
            Token::Word(word) => known.iter().find(|k| k.eq_ignore_ascii_case(word)),
            _ => None,
        };
        let Some(found) = found else { return self.wrong() };
        self.next();
        Ok(found)
    }

    fn milliseconds(&mut self) -> Result<Value, Wrong> {
        let Token::Number(ms) = self.token else { return self.wrong() };
        self.next();
        if ms > LONGEST_MS {
            return Err(Wrong { at: self.start, what: TOO_LONG });
        }
        Ok(Value::Whole(ms))
    }

    fn value(&mut self) -> Result<Value, Wrong> {
        let value = match &self.token {
            Token::Number(n) | Token::Multiple(n) => Value::Whole(*n),
            Token::Fraction(text) => Value::Fraction(text.clone()),
            Token::Word(text) | Token::Quoted(text) | Token::Text(text) => Value::Text(text.clone()),
            _ => return self.wrong(),
        };
        self.next();
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_before_a_mistake_counts() {
        for (text, count, rest) in [
            (" NO_BNL(t1) join_order(@q a, `b c`) INDEX(t1@x k, `PRIMARY`) */ 1", 3, None),
            (" NO_BNL(t1), NO_BNL(t2) */", 1, Some(", NO_BNL(t2) */")),
            (" */ 1", 0, Some("*/ 1")),
            (" QB_NAME(a) FOO */", 1, Some("FOO */")),
            (" NO_BNL(t1 @ x) */", 0, Some("@ x) */")),
            (" NO_BNL(@ x t1) */", 0, Some(" x t1) */")),
            (" QB_NAME(@x) */", 0, Some("x) */")),
            (" QB_NAME(1) */", 0, Some("1) */")),
            (" QB_NAME(1a) QB_NAME(0x12) */", 2, None),
            (" SET_VAR(a=1M) SET_VAR(b = 'x') SET_VAR(c=ON) SET_VAR(d=1.5) */", 4, None),
            (" SET_VAR(a='') */", 0, Some("'') */")),
            (" MAX_EXECUTION_TIME(99999999999) */", 0, Some(") */")),
            (" MAX_EXECUTION_TIME(1K) */", 0, Some("1K) */")),
            (" INDEX(t1 kb */", 0, Some("*/")),
            (" SEMIJOIN(FIRSTMATCH, loosescan) NO_SEMIJOIN() SUBQUERY(@q INTOEXISTS) */", 3, None),
            (" NO_BNL(\"t1\") */", 0, Some("\"t1\") */")),
            (" NO_BNL('t1", 0, Some("'t1")),
            ("", 0, Some("")),
        ] {
            let (found, wrong) = hints(text, false);
            assert_eq!((found.len(), wrong.map(|w| &text[w.at..])), (count, rest), "{text}");
        }
        assert_eq!(hints(" NO_BNL(\"t1\") */", true).0[0].tables[0].name, "t1");
    }

    #[test]
    fn any_text_is_read() {
        let text = " INDEX(@`a``b` t@c k,k) SET_VAR(a='ä''') MAX_EXECUTION_TIME(5) \"x ` @ 1.2.3 9k9 */";
        let ends = text.char_indices().map(|(at, _)| at);
        for end in ends.clone() {
            for start in ends.clone().filter(|start| *start <= end) {
                let _ = hints(&text[start..end], end % 2 == 0);
            }
        }
    }
}
