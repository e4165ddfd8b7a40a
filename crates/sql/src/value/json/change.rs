//! Documents with parts put in, replaced, taken out or merged. The paths in here are not wild.

use super::{
    path::{Leg, Path, step_mut},
    value::{Json, Object},
};

/// What a value that is put at a path may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Put {
    /// Replace what is there, and be new.
    Set,
    Insert,
    Replace,
}

/// Puts a value at a path, as far as there is something to hold it.
pub fn put(document: &mut Json, path: &Path, value: Json, how: Put) {
    let (may_replace, may_insert) = (how != Put::Insert, how != Put::Replace);
    let Some((last, before)) = path.legs.split_last() else {
        if may_replace {
            *document = value;
        }
        return;
    };
    let Some(parent) = before.iter().try_fold(document, step_mut) else { return };
    match (last, parent) {
        (Leg::Member(name), Json::Object(members)) => {
            let is_there = members.get(name).is_some();
            if is_there && may_replace || !is_there && may_insert {
                members.insert(name.clone(), value);
            }
        }
        (Leg::Cell(index), Json::Array(list)) => match index.place(list.len()) {
            Some(at) if may_replace => list[at] = value,
            None if may_insert => {
                let at = if index.from_end { 0 } else { list.len() };
                list.insert(at, value);
            }
            _ => {}
        },
        // What is no array is one of one element.
        (Leg::Cell(index), parent) => match index.place(1) {
            Some(_) if may_replace => *parent = value,
            None if may_insert => {
                let only = std::mem::replace(parent, Json::Null);
                *parent = Json::Array(if index.from_end { vec![value, only] } else { vec![only, value] });
            }
            _ => {}
        },
        _ => {}
    }
}

/// Takes out what is at a path, which is not the root.
pub fn remove(document: &mut Json, path: &Path) {
    let mut legs = &path.legs[..];
    while let Some((last, before)) = legs.split_last() {
        let Some(parent) = before.iter().try_fold(&mut *document, step_mut) else { return };
        match (last, parent) {
            (Leg::Member(name), Json::Object(members)) => {
                members.remove(name);
                return;
            }
            (Leg::Cell(index), Json::Array(list)) => {
                if let Some(at) = index.place(list.len()) {
                    list.remove(at);
                }
                return;
            }
            // The element of what is no array is that itself.
            (Leg::Cell(index), _) if index.place(1).is_some() => legs = before,
            _ => return,
        }
    }
}

/// Puts a value behind the elements at a path; what is no array becomes one.
pub fn append(document: &mut Json, path: &Path, value: Json) {
    match path.find_mut(document) {
        Some(Json::Array(list)) => list.push(value),
        Some(other) => {
            let only = std::mem::replace(other, Json::Null);
            *other = Json::Array(vec![only, value]);
        }
        None => {}
    }
}

/// Puts a value before the element at a path; `false`: the path is not one of an element.
pub fn insert_before(document: &mut Json, path: &Path, value: Json) -> bool {
    let Some((Leg::Cell(index), before)) = path.legs.split_last() else { return false };
    if let Some(Json::Array(list)) = before.iter().try_fold(document, step_mut) {
        let behind = if index.from_end { 0 } else { list.len() };
        list.insert(index.place(list.len()).unwrap_or(behind), value);
    }
    true
}

/// Both: members and elements side by side, values under one name in an array.
pub fn merge(a: Json, b: Json) -> Json {
    match (a, b) {
        (Json::Object(mut a), Json::Object(b)) => {
            for (key, value) in b.into_members() {
                let value = match a.remove(&key) {
                    Some(before) => merge(before, value),
                    None => value,
                };
                a.insert(key, value);
            }
            Json::Object(a)
        }
        (a, b) => {
            let mut list = a.into_elements();
            list.extend(b.into_elements());
            Json::Array(list)
        }
    }
}

/// `a` changed as `b` says: RFC 7396.
pub fn patch(a: Json, b: Json) -> Json {
    let Json::Object(changes) = b else { return b };
    let mut members = match a {
        Json::Object(members) => members,
        _ => Object::new(),
    };
    for (key, change) in changes.into_members() {
        let before = members.remove(&key);
        if change != Json::Null {
            members.insert(key, patch(before.unwrap_or(Json::Null), change));
        }
    }
    Json::Object(members)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::json::{parse::parse, print};

    fn json(text: &str) -> Json {
        parse(text.as_bytes()).unwrap()
    }
    fn text(value: &Json) -> String {
        let mut out = Vec::new();
        print::push(&mut out, value);
        String::from_utf8(out).unwrap()
    }
    fn changed(document: &str, path: &str, change: impl FnOnce(&mut Json, &Path)) -> String {
        let mut document = json(document);
        change(&mut document, &Path::parse(path).unwrap());
        text(&document)
    }

    #[test]
    fn values_are_put() {
        for (document, path, set, insert, replace) in [
            (r#"{"a": 1}"#, "$.a", r#"{"a": 9}"#, r#"{"a": 1}"#, r#"{"a": 9}"#),
            (r#"{"a": 1}"#, "$.b", r#"{"a": 1, "b": 9}"#, r#"{"a": 1, "b": 9}"#, r#"{"a": 1}"#),
            (r#"{"a": 1}"#, "$.b.c", r#"{"a": 1}"#, r#"{"a": 1}"#, r#"{"a": 1}"#),
            ("[1, 2]", "$[5]", "[1, 2, 9]", "[1, 2, 9]", "[1, 2]"),
            ("[1, 2]", "$[last-2]", "[9, 1, 2]", "[9, 1, 2]", "[1, 2]"),
            ("1", "$[1]", "[1, 9]", "[1, 9]", "1"),
            ("1", "$[last-1]", "[9, 1]", "[9, 1]", "1"),
            ("1", "$[0]", "9", "1", "9"),
            ("1", "$", "9", "1", "9"),
        ] {
            for (how, want) in [(Put::Set, set), (Put::Insert, insert), (Put::Replace, replace)] {
                let found = changed(document, path, |d, p| put(d, p, Json::Int(9), how));
                assert_eq!(found, want, "{document} {path} {how:?}");
            }
        }
    }

    #[test]
    fn values_are_taken_out_and_put_between() {
        assert_eq!(changed(r#"{"a": 1}"#, "$.a[0]", remove), "{}");
        assert_eq!(changed("[[1]]", "$[0][0]", remove), "[[]]");
        assert_eq!(changed("1", "$[0]", remove), "1");
        assert_eq!(changed("[1, 2]", "$[last]", remove), "[1]");
        let nine = Json::Int(9);
        assert_eq!(changed(r#"{"a": 1}"#, "$.a", |d, p| append(d, p, nine.clone())), r#"{"a": [1, 9]}"#);
        assert_eq!(changed("[1, 2]", "$[last]", |d, p| assert!(insert_before(d, p, nine.clone()))), "[1, 9, 2]");
        assert_eq!(changed("[1]", "$.a", |d, p| assert!(!insert_before(d, p, nine.clone()))), "[1]");
    }

    #[test]
    fn documents_are_merged() {
        let both = |a: &str, b: &str| (text(&merge(json(a), json(b))), text(&patch(json(a), json(b))));
        assert_eq!(both(r#"{"a": 1}"#, r#"{"a": null}"#), (r#"{"a": [1, null]}"#.into(), "{}".into()));
        assert_eq!(both("[1]", r#"{"a": {"b": null}}"#), (r#"[1, {"a": {"b": null}}]"#.into(), r#"{"a": {}}"#.into()));
        let nested = both(r#"{"a": {"x": 1}}"#, r#"{"a": {"x": 2, "y": 3}}"#);
        assert_eq!(nested, (r#"{"a": {"x": [1, 2], "y": 3}}"#.into(), r#"{"a": {"x": 2, "y": 3}}"#.into()));
    }
}
