//! `$.a[0]**.b`: what it means, and what of a document it leads to.
//!
//! An index leg takes a value that is no array for an array of that one value, as MySQL does. `**` may lead to a value in several ways: it is found once.

use super::{binary::Stored, parse, value::Json};

/// One step.
#[derive(Clone, PartialEq, Debug)]
pub enum Leg {
    Member(String),
    /// `.*`
    AnyMember,
    Cell(Index),
    /// `[*]`
    AnyCell,
    /// `[m to n]`, both included.
    Range(Index, Index),
    /// `**`: the value and all below it.
    Ellipsis,
}

/// A place in an array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Index {
    pub at: u32,
    /// `[last - at]`
    pub from_end: bool,
}

impl Index {
    /// The place in an array of so many elements, which may be outside of it: before it (-1) or behind.
    fn within(self, length: usize) -> i64 {
        let at = i64::from(self.at);
        if self.from_end { (length as i64 - 1 - at).max(-1) } else { at }
    }
    /// The place, if the array has it.
    pub fn place(self, length: usize) -> Option<usize> {
        usize::try_from(self.within(length)).ok().filter(|at| *at < length)
    }
}

/// A path, from the document's root.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Path {
    pub legs: Vec<Leg>,
}

impl Path {
    /// Reads a path.
    ///
    /// # Errors
    /// The byte up to which it was one.
    pub fn parse(text: &str) -> Result<Path, usize> {
        let mut reader = Reader { text: text.as_bytes(), at: 0 };
        reader.path().ok_or(reader.at)
    }

    /// Whether it may lead to several values.
    pub fn is_wild(&self) -> bool {
        self.legs.iter().any(|leg| !matches!(leg, Leg::Member(_) | Leg::Cell(_)))
    }

    /// What it leads to, in the order of the document.
    pub fn find<'j>(&self, document: &'j Json) -> Vec<&'j Json> {
        let mut found = vec![document];
        for leg in &self.legs {
            let mut next = Vec::new();
            for value in found {
                step(leg, value, &mut next);
            }
            if *leg != Leg::Ellipsis && self.legs.contains(&Leg::Ellipsis) {
                let mut seen = Vec::new();
                next.retain(|value| {
                    let address = std::ptr::from_ref(*value);
                    let is_new = !seen.contains(&address);
                    seen.push(address);
                    is_new
                });
            }
            found = next;
        }
        found
    }

    /// The one value that a path which is not wild leads to.
    pub fn find_mut<'j>(&self, document: &'j mut Json) -> Option<&'j mut Json> {
        self.legs.iter().try_fold(document, step_mut)
    }

    /// The one value that a path which is not wild leads to in a stored document.
    pub fn find_stored<'b>(&self, document: Stored<'b>) -> Option<Stored<'b>> {
        self.legs.iter().try_fold(document, |value, leg| match leg {
            Leg::Member(name) => value.named(name),
            Leg::Cell(index) => match value.elements() {
                Some(length) => value.element(index.place(length)?),
                None => index.place(1).map(|_| value),
            },
            _ => None,
        })
    }
}

fn step<'j>(leg: &Leg, value: &'j Json, found: &mut Vec<&'j Json>) {
    match (leg, value) {
        (Leg::Member(name), Json::Object(members)) => found.extend(members.get(name)),
        (Leg::AnyMember, Json::Object(members)) => found.extend(members.iter().map(|(_, v)| v)),
        (Leg::Cell(index), Json::Array(list)) => found.extend(index.place(list.len()).map(|at| &list[at])),
        (Leg::AnyCell, Json::Array(list)) => found.extend(list),
        (Leg::Range(from, to), Json::Array(list)) => {
            let first = from.within(list.len()).max(0);
            let behind = (to.within(list.len()) + 1).min(list.len() as i64);
            if first < behind {
                found.extend(&list[first as usize..behind as usize]);
            }
        }
        (Leg::Cell(index), other) => found.extend(index.place(1).map(|_| other)),
        (Leg::Range(from, to), other) if from.within(1) <= 0 && to.within(1) >= 0 => found.push(other),
        (Leg::Ellipsis, value) => {
            found.push(value);
            match value {
                Json::Array(list) => list.iter().for_each(|v| step(leg, v, found)),
                Json::Object(members) => members.iter().for_each(|(_, v)| step(leg, v, found)),
                _ => {}
            }
        }
        _ => {}
    }
}

/// The value behind one leg that is not wild.
pub fn step_mut<'j>(value: &'j mut Json, leg: &Leg) -> Option<&'j mut Json> {
    match (leg, value) {
        (Leg::Member(name), Json::Object(members)) => members.get_mut(name),
        (Leg::Cell(index), Json::Array(list)) => {
            let at = index.place(list.len())?;
            list.get_mut(at)
        }
        (Leg::Cell(index), other) => index.place(1).map(|_| other),
        _ => None,
    }
}

/// Appends a path to a value as JSON_SEARCH() shows it.
pub fn push_member(out: &mut String, name: &str) {
    out.push('.');
    if is_identifier(name) {
        out.push_str(name);
    } else {
        let mut quoted = Vec::new();
        super::print::push_quoted(&mut quoted, name);
        out.push_str(&String::from_utf8_lossy(&quoted));
    }
}

/// Whether a name needs no quotes in a path: an identifier of ECMAScript.
fn is_identifier(name: &str) -> bool {
    let mut chars = name.chars();
    let first = |c: char| c.is_alphabetic() || matches!(c, '$' | '_');
    let later = |c: char| first(c) || c.is_numeric() || matches!(c, '\u{200c}' | '\u{200d}');
    chars.next().is_some_and(first) && chars.all(later)
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

/// Where reading ends without a result, the place is the error's.
struct Reader<'t> {
    text: &'t [u8],
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }
    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }
    fn skip_space(&mut self) {
        while self.peek().is_some_and(is_space) {
            self.at += 1;
        }
    }

    fn path(&mut self) -> Option<Path> {
        self.skip_space();
        if self.next()? != b'$' {
            return None;
        }
        let mut legs = Vec::new();
        self.skip_space();
        while let Some(byte) = self.peek() {
            legs.push(match byte {
                b'[' => self.cell()?,
                b'.' => self.member()?,
                b'*' => self.ellipsis()?,
                _ => return None,
            });
            self.skip_space();
        }
        if legs.last() == Some(&Leg::Ellipsis) { None } else { Some(Path { legs }) }
    }

    fn ellipsis(&mut self) -> Option<Leg> {
        self.at += 1;
        if self.peek()? != b'*' {
            return None;
        }
        self.at += 1;
        // `***` would be hard to read.
        if self.peek()? == b'*' { None } else { Some(Leg::Ellipsis) }
    }

    fn cell(&mut self) -> Option<Leg> {
        self.at += 1;
        self.skip_space();
        let leg = if self.peek()? == b'*' {
            self.at += 1;
            Leg::AnyCell
        } else {
            let from = self.index()?;
            let before = self.at;
            self.skip_space();
            let rest = &self.text[self.at..];
            let is_range = self.at > before && rest.starts_with(b"to") && rest.get(2).copied().is_some_and(is_space);
            if is_range {
                self.at += 3;
                self.skip_space();
                let to = self.index()?;
                // One that no array could have anything in.
                let backwards = if from.from_end { from.at < to.at } else { from.at > to.at };
                if from.from_end == to.from_end && backwards {
                    return None;
                }
                Leg::Range(from, to)
            } else {
                Leg::Cell(from)
            }
        };
        self.skip_space();
        if self.next()? == b']' { Some(leg) } else { None }
    }

    fn index(&mut self) -> Option<Index> {
        let mut from_end = false;
        if self.text[self.at..].starts_with(b"last") {
            self.at += 4;
            from_end = true;
            self.skip_space();
            if self.peek() != Some(b'-') {
                return Some(Index { at: 0, from_end });
            }
            self.at += 1;
            self.skip_space();
        }
        let digits = self.text[self.at..].iter().take_while(|b| b.is_ascii_digit()).count();
        let at = std::str::from_utf8(&self.text[self.at..self.at + digits]).ok()?.parse().ok()?;
        self.at += digits;
        Some(Index { at, from_end })
    }

    fn member(&mut self) -> Option<Leg> {
        self.at += 1;
        self.skip_space();
        let first = self.peek()?;
        if first == b'*' {
            self.at += 1;
            return Some(Leg::AnyMember);
        }
        let start = self.at;
        if first != b'"' {
            while self.peek().is_some_and(|b| !is_space(b) && !matches!(b, b'.' | b'[' | b'*')) {
                self.at += 1;
            }
            let quoted = [b"\"", &self.text[start..self.at], b"\""].concat();
            return match parse::parse(&quoted) {
                Ok(Json::String(name)) if is_identifier(&name) => Some(Leg::Member(name)),
                _ => None,
            };
        }
        self.at += 1;
        loop {
            match self.next() {
                Some(b'"') | None => break,
                Some(b'\\') => self.at = (self.at + 1).min(self.text.len()),
                Some(_) => {}
            }
        }
        match parse::parse(&self.text[start..self.at]) {
            Ok(Json::String(name)) => Some(Leg::Member(name)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::json::{binary, print};

    fn found(document: &str, path: &str) -> String {
        let document = parse::parse(document.as_bytes()).unwrap();
        let found = Path::parse(path).unwrap().find(&document).into_iter().cloned().collect();
        let mut out = Vec::new();
        print::push(&mut out, &Json::Array(found));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn errors_are_where_the_reference_sees_them() {
        let errors = [
            ("", 0),
            ("a", 1),
            ("$.", 2),
            ("$[", 2),
            ("$[a]", 2),
            ("$[1", 3),
            ("$[-1]", 2),
            ("$[2 to 1]", 8),
            ("$**", 3),
            ("$***", 3),
            ("$.1a", 4),
            ("$.\"a", 4),
            ("$a", 1),
            ("$.a.", 4),
            ("$[99999999999]", 2),
            ("$[last+1]", 7),
            ("$[lasto]", 7),
            ("$[0to1]", 4),
            ("$[0 to1]", 5),
            ("$.é.a.", 7),
            ("$.**", 4),
        ];
        for (path, at) in errors {
            assert_eq!(Path::parse(path), Err(at), "{path}");
        }
    }

    #[test]
    fn legs_lead_to_values() {
        let document = r#"{"a": [1, 2, {"b": 3}], "b": {"b": 4}, "c d": 5}"#;
        for (path, want) in [
            ("$.a[0]", "[1]"),
            ("$.a[last].b", "[3]"),
            ("$.a[last - 1]", "[2]"),
            ("$.a[3]", "[]"),
            ("$.a[last-3]", "[]"),
            ("$.a[0 to 1]", "[1, 2]"),
            ("$.a[1 to last]", r#"[2, {"b": 3}]"#),
            ("$**.b", r#"[{"b": 4}, 3, 4]"#),
            ("$.*[0]", r#"[1, {"b": 4}, 5]"#),
            (r#"$."c d"[0][last][0 to 3]"#, "[5]"),
            (r#"$."c d"[1]"#, "[]"),
            ("$**[0]", r#"[{"a": [1, 2, {"b": 3}], "b": {"b": 4}, "c d": 5}, 1, 2, {"b": 3}, 3, {"b": 4}, 4, 5]"#),
        ] {
            assert_eq!(found(document, path), want, "{path}");
        }
    }

    #[test]
    fn a_stored_document_is_searched_as_a_tree_is() {
        let document = parse::parse(br#"{"a": [1, 2, {"b": 3}], "b": {"b": 4}, "cd": 5}"#).unwrap();
        let bytes = binary::encode(&document);
        for path in ["$", "$.a", "$.a[2].b", "$.a[last]", "$.a[3]", "$.b.b", "$.cd[0]", "$.cd[1]", "$.x", "$.a.b"] {
            let path = Path::parse(path).unwrap();
            let in_tree = path.find(&document).first().map(|v| (*v).clone());
            let stored = path.find_stored(Stored::of(&bytes).unwrap()).map(|s| s.value().unwrap());
            assert_eq!(stored, in_tree, "{path:?}");
            assert_eq!(path.find_mut(&mut document.clone()).cloned(), in_tree, "{path:?}");
        }
    }
}
