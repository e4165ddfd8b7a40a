//! Whether a document has another in it, and where texts are.

use super::{
    compare::compare,
    path::{Leg, Path, push_member},
    value::Json,
};

fn same(a: &Json, b: &Json) -> bool {
    compare(a, b).is_eq()
}

/// JSON_CONTAINS: all members of an object, each element of an array somewhere in an array.
pub fn contains(document: &Json, candidate: &Json) -> bool {
    match (document, candidate) {
        (Json::Object(a), Json::Object(b)) => {
            b.iter().all(|(key, wanted)| a.get(key).is_some_and(|found| contains(found, wanted)))
        }
        (Json::Array(list), Json::Array(wanted)) => wanted.iter().all(|wanted| has(list, wanted)),
        (Json::Array(list), wanted) => has(list, wanted),
        (Json::Object(_), _) | (_, Json::Object(_) | Json::Array(_)) => false,
        (a, b) => same(a, b),
    }
}

fn has(list: &[Json], wanted: &Json) -> bool {
    list.iter().any(|element| match (element, wanted) {
        (Json::Array(_), _) | (Json::Object(_), Json::Object(_)) => contains(element, wanted),
        _ => same(element, wanted),
    })
}

/// JSON_OVERLAPS: a member or an element in common, or equal.
pub fn overlaps(a: &Json, b: &Json) -> bool {
    match (a, b) {
        (Json::Object(x), Json::Object(y)) => x.iter().any(|(key, v)| y.get(key).is_some_and(|w| same(v, w))),
        (Json::Array(x), Json::Array(y)) => x.iter().any(|v| y.iter().any(|w| same(v, w))),
        (Json::Array(list), one) | (one, Json::Array(list)) => list.iter().any(|v| same(v, one)),
        (a, b) => same(a, b),
    }
}

/// MEMBER OF: an element, or what is no array itself.
pub fn is_member(value: &Json, of: &Json) -> bool {
    match of {
        Json::Array(list) => list.iter().any(|v| same(v, value)),
        other => same(other, value),
    }
}

/// Where in a document strings are that pass a test, below each of some paths, at most `most`: each as a path, once.
pub fn strings(document: &Json, paths: &[Path], most: usize, test: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for path in paths {
        let mut below = Vec::new();
        locate(document, &path.legs, "$".into(), &mut below);
        for (at, value) in below {
            below_all(value, at, &mut |at, text| {
                if found.len() < most && test(text) && !found.contains(&at) {
                    found.push(at);
                }
            });
        }
    }
    found
}

/// What legs lead to, with the way there.
fn locate<'j>(value: &'j Json, legs: &[Leg], at: String, found: &mut Vec<(String, &'j Json)>) {
    let Some((leg, rest)) = legs.split_first() else { return found.push((at, value)) };
    match (leg, value) {
        (Leg::Ellipsis, _) => {
            locate(value, rest, at.clone(), found);
            each_part(value, &at, &mut |at, part| locate(part, legs, at, found));
        }
        (Leg::Member(name), Json::Object(members)) => {
            if let Some(member) = members.get(name) {
                let mut at = at;
                push_member(&mut at, name);
                locate(member, rest, at, found);
            }
        }
        (Leg::AnyMember, Json::Object(_)) | (Leg::AnyCell, Json::Array(_)) => {
            each_part(value, &at, &mut |at, part| locate(part, rest, at, found));
        }
        (Leg::Cell(_) | Leg::Range(..), value) => {
            let one = Path { legs: vec![leg.clone()] };
            let parts = one.find(value);
            match value {
                Json::Array(list) => {
                    for (i, element) in list.iter().enumerate() {
                        if parts.iter().any(|part| std::ptr::eq(*part, element)) {
                            locate(element, rest, format!("{at}[{i}]"), found);
                        }
                    }
                }
                // Itself.
                _ if !parts.is_empty() => locate(value, rest, at, found),
                _ => {}
            }
        }
        _ => {}
    }
}

fn each_part<'j>(value: &'j Json, at: &str, visit: &mut dyn FnMut(String, &'j Json)) {
    match value {
        Json::Array(list) => list.iter().enumerate().for_each(|(i, part)| visit(format!("{at}[{i}]"), part)),
        Json::Object(members) => members.iter().for_each(|(key, part)| {
            let mut at = at.to_owned();
            push_member(&mut at, key);
            visit(at, part);
        }),
        _ => {}
    }
}

fn below_all(value: &Json, at: String, visit: &mut dyn FnMut(String, &str)) {
    match value {
        Json::String(text) => visit(at, text),
        other => each_part(other, &at, &mut |at, part| below_all(part, at, visit)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::json::parse::parse;

    fn json(text: &str) -> Json {
        parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn what_is_contained() {
        for (document, candidate, want) in [
            ("[1,2,[3]]", "3", true),
            ("[1,2,[3]]", "[[3]]", true),
            ("[1]", "[[1]]", false),
            ("[[1,2]]", "[1]", true),
            ("1", "[1]", false),
            (r#"{"a":[1,2]}"#, r#"{"a":1}"#, true),
            (r#"{"a":1}"#, r#"{"a":1,"b":2}"#, false),
            (r#"[{"a":1,"b":2}]"#, r#"{"a":1}"#, true),
        ] {
            assert_eq!(contains(&json(document), &json(candidate)), want, "{document} {candidate}");
        }
        assert!(overlaps(&json("[1,2]"), &json("2.0")));
        assert!(!overlaps(&json("{}"), &json("{}")));
        assert!(is_member(&json("[1]"), &json("[[1],2]")));
    }

    #[test]
    fn strings_are_found_once() {
        let document = json(r#"{"a b": "x", "c": {"d": ["x", "y"]}}"#);
        let all = |paths: &[&str], most| {
            let paths: Vec<Path> = paths.iter().map(|p| Path::parse(p).unwrap()).collect();
            strings(&document, &paths, most, |text| text == "x")
        };
        assert_eq!(all(&["$"], 9), ["$.c.d[0]", "$.\"a b\""]);
        assert_eq!(all(&["$.c", "$.*", "$**.d"], 9), ["$.c.d[0]", "$.\"a b\""]);
        assert_eq!(all(&["$"], 1), ["$.c.d[0]"]);
        assert_eq!(all(&["$.c.d[last]"], 9), Vec::<String>::new());
    }
}
