//! A document as a tree.

use std::cmp::Ordering;

/// Deepest nesting of a document.
pub const DEPTH_MAX: usize = 100;

/// One value.
#[derive(Clone, PartialEq, Debug)]
pub enum Json {
    Null,
    Bool(bool),
    Int(i64),
    /// Above `i64::MAX`, or what came from a number without sign.
    UInt(u64),
    Decimal {
        unscaled: i128,
        scale: u8,
    },
    Double(f64),
    String(String),
    Array(Vec<Json>),
    Object(Object),
    /// See [`apus_types::time::pack_date`].
    Date(u32),
    /// See [`apus_types::time::pack_datetime`]; the flag: it was a TIMESTAMP.
    DateTime(u64, bool),
    /// Microseconds.
    Time(i64),
    /// Bytes, and the number of the SQL type that they had (15 VARBINARY, 252 BLOB, 254 BINARY).
    Opaque(u8, Vec<u8>),
}

/// Members in MySQL's order: shorter names first, then by bytes.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Object(Vec<(String, Json)>);

fn key_order(a: &str, b: &str) -> Ordering {
    a.len().cmp(&b.len()).then_with(|| a.as_bytes().cmp(b.as_bytes()))
}

impl Object {
    pub fn new() -> Object {
        Object::default()
    }
    /// From members in order, as a stored form has them; `None` if they are not.
    pub fn from_ordered(members: Vec<(String, Json)>) -> Option<Object> {
        let ordered = members.windows(2).all(|pair| key_order(&pair[0].0, &pair[1].0).is_lt());
        ordered.then_some(Object(members))
    }
    /// From members in any order; of several with one name the last counts.
    pub fn from_members(members: Vec<(String, Json)>) -> Object {
        let mut members = members;
        members.sort_by(|a, b| key_order(&a.0, &b.0));
        let mut kept: Vec<(String, Json)> = Vec::with_capacity(members.len());
        for (key, value) in members {
            match kept.last_mut() {
                Some(last) if last.0 == key => last.1 = value,
                _ => kept.push((key, value)),
            }
        }
        Object(kept)
    }
    fn place(&self, key: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(k, _)| key_order(k, key))
    }
    pub fn get(&self, key: &str) -> Option<&Json> {
        self.place(key).ok().map(|i| &self.0[i].1)
    }
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Json> {
        self.place(key).ok().map(|i| &mut self.0[i].1)
    }
    /// Puts a member in, in place of one with this name.
    pub fn insert(&mut self, key: String, value: Json) {
        match self.place(&key) {
            Ok(i) => self.0[i].1 = value,
            Err(i) => self.0.insert(i, (key, value)),
        }
    }
    pub fn remove(&mut self, key: &str) -> Option<Json> {
        self.place(key).ok().map(|i| self.0.remove(i).1)
    }
    pub fn len(&self) -> usize {
        self.0.len()
    }
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Json)> + Clone {
        self.0.iter().map(|(k, v)| (k.as_str(), v))
    }
    pub fn into_members(self) -> Vec<(String, Json)> {
        self.0
    }
}

impl Json {
    pub fn text(s: impl Into<String>) -> Json {
        Json::String(s.into())
    }
    /// As JSON_TYPE() calls it.
    pub fn type_name(&self) -> &'static str {
        match self {
            Json::Null => "NULL",
            Json::Bool(_) => "BOOLEAN",
            Json::Int(_) => "INTEGER",
            Json::UInt(_) => "UNSIGNED INTEGER",
            Json::Decimal { .. } => "DECIMAL",
            Json::Double(_) => "DOUBLE",
            Json::String(_) => "STRING",
            Json::Array(_) => "ARRAY",
            Json::Object(_) => "OBJECT",
            Json::Date(_) => "DATE",
            Json::DateTime(_, false) => "DATETIME",
            Json::DateTime(_, true) => "TIMESTAMP",
            Json::Time(_) => "TIME",
            Json::Opaque(15 | 249..=254, _) => "BLOB",
            Json::Opaque(16, _) => "BIT",
            Json::Opaque(..) => "OPAQUE",
        }
    }
    pub fn is_container(&self) -> bool {
        matches!(self, Json::Array(_) | Json::Object(_))
    }
    /// Elements or members; 1 of everything else.
    pub fn length(&self) -> usize {
        match self {
            Json::Array(list) => list.len(),
            Json::Object(members) => members.len(),
            _ => 1,
        }
    }
    /// Levels: 1 of a scalar or something empty.
    pub fn depth(&self) -> usize {
        let below = match self {
            Json::Array(list) => list.iter().map(Json::depth).max(),
            Json::Object(members) => members.iter().map(|(_, v)| v.depth()).max(),
            _ => None,
        };
        1 + below.unwrap_or(0)
    }
    /// The elements; of what is no array the one it would hold.
    pub fn into_elements(self) -> Vec<Json> {
        match self {
            Json::Array(list) => list,
            other => vec![other],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_in_order_and_the_last_counts() {
        let members = vec![("bb".into(), Json::Int(1)), ("b".into(), Json::Int(2)), ("a".into(), Json::Int(3))];
        let mut object = Object::from_members([members, vec![("b".into(), Json::Int(4))]].concat());
        let keys = |o: &Object| o.iter().map(|(k, _)| k.to_owned()).collect::<Vec<_>>();
        assert_eq!(keys(&object), ["a", "b", "bb"]);
        assert_eq!(object.get("b"), Some(&Json::Int(4)));
        object.insert("aa".into(), Json::Null);
        assert_eq!(keys(&object), ["a", "b", "aa", "bb"]);
        assert_eq!(object.remove("b"), Some(Json::Int(4)));
        assert_eq!(object.get("b"), None);
        assert!(Object::from_ordered(vec![("b".into(), Json::Null), ("a".into(), Json::Null)]).is_none());
    }

    #[test]
    fn lengths_and_depths() {
        let inner = Json::Array(vec![Json::Int(1), Json::Array(vec![])]);
        assert_eq!((inner.length(), inner.depth()), (2, 2));
        let object = Json::Object(Object::from_members(vec![("a".into(), inner)]));
        assert_eq!((object.length(), object.depth()), (1, 3));
        assert_eq!((Json::Null.length(), Json::Null.depth()), (1, 1));
    }
}
