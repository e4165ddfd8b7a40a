//! JSON Schema, draft 4, in the order in which MySQL's validator (RapidJSON) looks: a value's type and size, then what is in it, then `enum` and the combinations.

use std::fmt::Write;

use regex::Regex;

use super::{
    compare::{compare, number},
    value::{Json, Object},
};

/// Deepest nesting of schemas, which may refer to themselves.
const DEPTH_MAX: usize = 200;

/// The first requirement that a document does not meet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    pub keyword: &'static str,
    /// Places as URI fragments: `#/a/0`.
    pub schema: String,
    pub document: String,
}

/// Why there is no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// A reference to another document.
    Reference,
    Nesting,
}

type Checked = Result<Option<Failure>, Refused>;

/// What of a document a schema refuses first.
///
/// # Errors
/// The schema cannot be followed.
pub fn check(schema: &Object, document: &Json) -> Checked {
    refer(&Json::Object(schema.clone()))?;
    Schema { root: schema, at: "#".into(), depth: 0 }.check(schema, document, "#")
}

/// Refuses references to other documents, wherever they stand.
fn refer(schema: &Json) -> Result<(), Refused> {
    match schema {
        Json::Array(list) => list.iter().try_for_each(refer),
        Json::Object(members) => {
            if let Some(Json::String(target)) = members.get("$ref")
                && !target.starts_with('#')
            {
                return Err(Refused::Reference);
            }
            members.iter().try_for_each(|(_, member)| refer(member))
        }
        _ => Ok(()),
    }
}

/// A schema's place.
struct Schema<'s> {
    root: &'s Object,
    at: String,
    depth: usize,
}

impl<'s> Schema<'s> {
    fn below(&self, names: &[&str]) -> Schema<'s> {
        let mut at = self.at.clone();
        names.iter().for_each(|name| push_token(&mut at, name));
        Schema { root: self.root, at, depth: self.depth + 1 }
    }

    fn fails(&self, keyword: &'static str, document: &str) -> Checked {
        Ok(Some(Failure { keyword, schema: self.at.clone(), document: document.to_owned() }))
    }

    /// Of a schema within this one; what is no object asks for nothing.
    fn inner(&self, names: &[&str], schema: &Json, value: &Json, document: &str) -> Checked {
        match schema {
            Json::Object(schema) => self.below(names).check(schema, value, document),
            _ => Ok(None),
        }
    }

    fn check(&self, schema: &Object, value: &Json, document: &str) -> Checked {
        if self.depth > DEPTH_MAX {
            return Err(Refused::Nesting);
        }
        if let Some(Json::String(target)) = schema.get("$ref") {
            return match self.resolved(target) {
                Some(found) => {
                    let at = target.clone();
                    Schema { root: self.root, at, depth: self.depth + 1 }.check(found, value, document)
                }
                None => Ok(None),
            };
        }
        if schema.get("type").is_some_and(|ty| !has_type(ty, value)) {
            return self.fails("type", document);
        }
        let inside = match value {
            Json::String(text) => self.text(schema, text, document)?,
            Json::Array(list) => self.array(schema, list, document)?,
            Json::Object(members) => self.object(schema, members, document)?,
            value => self.number(schema, value, document)?,
        };
        match inside {
            None => self.combinations(schema, value, document),
            failure => Ok(failure),
        }
    }

    /// The schema at a place of the root.
    fn resolved(&self, target: &str) -> Option<&'s Object> {
        let mut found = self.root;
        for token in target.strip_prefix('#')?.split('/').skip(1) {
            match found.get(&token.replace("~1", "/").replace("~0", "~")) {
                Some(Json::Object(next)) => found = next,
                _ => return None,
            }
        }
        Some(found)
    }

    fn number(&self, schema: &Object, value: &Json, document: &str) -> Checked {
        let Some(n) = number(value) else { return Ok(None) };
        let is_set = |name| matches!(schema.get(name), Some(Json::Bool(true)));
        let bound = |name| schema.get(name).filter(|bound| number(bound).is_some()).map(|bound| compare(value, bound));
        if bound("minimum").is_some_and(|o| o.is_lt() || o.is_eq() && is_set("exclusiveMinimum")) {
            return self.fails("minimum", document);
        }
        if bound("maximum").is_some_and(|o| o.is_gt() || o.is_eq() && is_set("exclusiveMaximum")) {
            return self.fails("maximum", document);
        }
        if let Some(unit) = schema.get("multipleOf").and_then(number).map(|unit| unit.to_f64().abs()) {
            let quotient = n.to_f64().abs() / unit;
            let whole = (quotient + 0.5).floor();
            if unit > 0.0 && (whole - quotient).abs() > (quotient + whole) * f64::EPSILON {
                return self.fails("multipleOf", document);
            }
        }
        Ok(None)
    }

    fn text(&self, schema: &Object, text: &str, document: &str) -> Checked {
        let length = text.chars().count();
        if count(schema, "minLength").is_some_and(|least| length < least) {
            return self.fails("minLength", document);
        }
        if count(schema, "maxLength").is_some_and(|most| length > most) {
            return self.fails("maxLength", document);
        }
        match schema.get("pattern") {
            Some(Json::String(pattern)) if !matches(pattern, text).unwrap_or(true) => self.fails("pattern", document),
            _ => Ok(None),
        }
    }

    fn array(&self, schema: &Object, list: &[Json], document: &str) -> Checked {
        for (i, element) in list.iter().enumerate() {
            let number = i.to_string();
            let at = joined(document, &number);
            let found = match (schema.get("items"), schema.get("additionalItems")) {
                (Some(Json::Array(schemas)), additional) => match (schemas.get(i), additional) {
                    (Some(one), _) => self.inner(&["items", &number], one, element, &at)?,
                    (None, Some(Json::Bool(false))) => self.fails("additionalItems", &at)?,
                    (None, Some(one)) => self.inner(&["additionalItems"], one, element, &at)?,
                    (None, None) => None,
                },
                (Some(one), _) => self.inner(&["items"], one, element, &at)?,
                (None, _) => None,
            };
            if found.is_some() {
                return Ok(found);
            }
            if schema.get("uniqueItems") == Some(&Json::Bool(true))
                && list[..i].iter().any(|before| compare(before, element).is_eq())
            {
                return self.fails("uniqueItems", document);
            }
        }
        if count(schema, "minItems").is_some_and(|least| list.len() < least) {
            return self.fails("minItems", document);
        }
        if count(schema, "maxItems").is_some_and(|most| list.len() > most) {
            return self.fails("maxItems", document);
        }
        Ok(None)
    }

    fn object(&self, schema: &Object, members: &Object, document: &str) -> Checked {
        for (key, value) in members.iter() {
            let found = self.member(schema, key, value, &joined(document, key))?;
            if found.is_some() {
                return Ok(found);
            }
        }
        let is_missing = |name: &Json| matches!(name, Json::String(name) if members.get(name).is_none());
        if matches!(schema.get("required"), Some(Json::Array(names)) if names.iter().any(is_missing)) {
            return self.fails("required", document);
        }
        if count(schema, "minProperties").is_some_and(|least| members.len() < least) {
            return self.fails("minProperties", document);
        }
        if count(schema, "maxProperties").is_some_and(|most| members.len() > most) {
            return self.fails("maxProperties", document);
        }
        if let Some(Json::Object(dependencies)) = schema.get("dependencies") {
            for (_, dependency) in dependencies.iter().filter(|(key, _)| members.get(key).is_some()) {
                let is_met = match dependency {
                    Json::Array(names) => !names.iter().any(is_missing),
                    other => self.inner(&["dependencies"], other, &Json::Object(members.clone()), document)?.is_none(),
                };
                if !is_met {
                    return self.fails("dependencies", document);
                }
            }
        }
        Ok(None)
    }

    fn member(&self, schema: &Object, key: &str, value: &Json, document: &str) -> Checked {
        let mut is_known = false;
        if let Some(Json::Object(properties)) = schema.get("properties")
            && let Some(one) = properties.get(key)
        {
            is_known = true;
            let found = self.inner(&["properties", key], one, value, document)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        if let Some(Json::Object(patterns)) = schema.get("patternProperties") {
            for (pattern, one) in patterns.iter().filter(|(pattern, _)| matches(pattern, key) == Some(true)) {
                is_known = true;
                let found = self.inner(&["patternProperties", pattern], one, value, document)?;
                if found.is_some() {
                    return Ok(found);
                }
            }
        }
        match schema.get("additionalProperties") {
            Some(Json::Bool(false)) if !is_known => self.fails("additionalProperties", document),
            Some(one) if !is_known => self.inner(&["additionalProperties"], one, value, document),
            _ => Ok(None),
        }
    }

    fn combinations(&self, schema: &Object, value: &Json, document: &str) -> Checked {
        if matches!(schema.get("enum"), Some(Json::Array(list)) if !list.iter().any(|one| compare(one, value).is_eq()))
        {
            return self.fails("enum", document);
        }
        for keyword in ["allOf", "anyOf", "oneOf"] {
            let Some(Json::Array(list)) = schema.get(keyword) else { continue };
            let mut met = 0;
            for one in list {
                met += usize::from(self.inner(&[keyword], one, value, document)?.is_none());
            }
            let is_met = match keyword {
                "allOf" => met == list.len(),
                "anyOf" => met > 0 || list.is_empty(),
                _ => met == 1 || list.is_empty(),
            };
            if !is_met {
                return self.fails(keyword, document);
            }
        }
        match schema.get("not") {
            Some(one @ Json::Object(_)) if self.inner(&["not"], one, value, document)?.is_none() => {
                self.fails("not", document)
            }
            _ => Ok(None),
        }
    }
}

fn count(schema: &Object, name: &str) -> Option<usize> {
    match schema.get(name) {
        Some(Json::Int(n)) => usize::try_from(*n).ok(),
        _ => None,
    }
}

/// Whether a text has a pattern in it; `None`: the pattern is none.
fn matches(pattern: &str, text: &str) -> Option<bool> {
    Regex::new(pattern).ok().map(|pattern| pattern.is_match(text))
}

fn has_type(ty: &Json, value: &Json) -> bool {
    let is = |name: &str| match name {
        "null" => *value == Json::Null,
        "boolean" => matches!(value, Json::Bool(_)),
        "integer" => matches!(value, Json::Int(_) | Json::UInt(_)),
        "number" => number(value).is_some(),
        "string" => !value.is_container() && !matches!(value, Json::Null | Json::Bool(_)) && number(value).is_none(),
        "array" => matches!(value, Json::Array(_)),
        "object" => matches!(value, Json::Object(_)),
        _ => false,
    };
    match ty {
        Json::String(name) => is(name),
        Json::Array(names) => names.iter().any(|name| matches!(name, Json::String(name) if is(name))),
        _ => true,
    }
}

/// A place with one more step.
fn joined(at: &str, token: &str) -> String {
    let mut at = at.to_owned();
    push_token(&mut at, token);
    at
}

fn push_token(at: &mut String, token: &str) {
    at.push('/');
    for byte in token.bytes() {
        match byte {
            b'~' => at.push_str("~0"),
            b'/' => at.push_str("~1"),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => at.push(char::from(byte)),
            _ => _ = write!(at, "%{byte:02X}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::json::parse::parse;

    fn failure(schema: &str, document: &str) -> Option<(&'static str, String, String)> {
        let Ok(Json::Object(schema)) = parse(schema.as_bytes()) else { panic!("{schema}") };
        let failure = check(&schema, &parse(document.as_bytes()).unwrap()).unwrap();
        failure.map(|f| (f.keyword, f.schema, f.document))
    }

    #[test]
    fn the_first_failure_is_named() {
        let fails = |keyword, schema: &str, document: &str| Some((keyword, schema.to_owned(), document.to_owned()));
        let nested = r#"{"properties":{"a":{"properties":{"b c":{"type":"string"}}}}}"#;
        let at = fails("type", "#/properties/a/properties/b%20c", "#/a/b%20c");
        assert_eq!(failure(nested, r#"{"a":{"b c":1}}"#), at);
        assert_eq!(failure(r#"{"items":{"type":"number"}}"#, r#"[1,"a"]"#), fails("type", "#/items", "#/1"));
        assert_eq!(
            failure(r#"{"additionalProperties":false}"#, r#"{"b":1}"#),
            fails("additionalProperties", "#", "#/b")
        );
        assert_eq!(failure(r#"{"oneOf":[{"type":"number"},{"minimum":5}]}"#, "6"), fails("oneOf", "#", "#"));
        assert_eq!(failure(r#"{"multipleOf":0.1}"#, "0.3"), None);
    }

    #[test]
    fn references() {
        let schema = r##"{"properties":{"a":{"$ref":"#/definitions/x"}},"definitions":{"x":{"type":"string"}}}"##;
        assert!(failure(schema, r#"{"a":1}"#).is_some());
        assert!(failure(schema, r#"{"a":"b"}"#).is_none());
        let endless = parse(br##"{"$ref":"#"}"##).unwrap();
        let elsewhere = parse(br#"{"$ref":"http://x"}"#).unwrap();
        for (schema, want) in [(endless, Refused::Nesting), (elsewhere, Refused::Reference)] {
            let Json::Object(schema) = schema else { panic!() };
            assert_eq!(check(&schema, &Json::Null), Err(want));
        }
    }
}
