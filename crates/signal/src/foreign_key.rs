//! Wire form of [`apus_types::foreign_key`], within a table's definition and in changes of it.
//!
//! The mark [`Held`] of a table stands in the same list as its foreign keys, as an entry without columns.

use apus_types::foreign_key::{Action, ForeignKey, Held, Match};
use prost::Message;

use crate::{codec::DecodeError, dict::TableName};

#[derive(Clone, PartialEq, Message)]
pub struct ForeignKeyMessage {
    #[prost(string, tag = "1")]
    pub name: String,
    /// None: the entry is the table's mark.
    #[prost(uint32, repeated, tag = "2")]
    pub columns: Vec<u32>,
    #[prost(string, tag = "3")]
    pub parent_database: String,
    #[prost(string, tag = "4")]
    pub parent_table: String,
    #[prost(string, repeated, tag = "5")]
    pub parent_columns: Vec<String>,
    /// See [`Action`].
    #[prost(uint32, tag = "6")]
    pub on_delete: u32,
    #[prost(uint32, tag = "7")]
    pub on_update: u32,
    /// See [`Match`].
    #[prost(uint32, tag = "8")]
    pub matching: u32,
    #[prost(uint64, tag = "9")]
    pub created: u64,
    #[prost(bool, tag = "10")]
    pub unchecked: bool,
    /// Of the mark.
    #[prost(bool, tag = "11")]
    pub is_referenced: bool,
    #[prost(uint32, tag = "12")]
    pub since: u32,
    /// Of a key that is to be made: the table of that name that its maker has seen, 0 where there was none; refused with `SchemaVersionChanged` if it is another one.
    #[prost(uint32, tag = "13")]
    pub parent_id: u32,
    #[prost(uint32, tag = "14")]
    pub parent_version: u32,
}

/// Foreign keys of a table come and go.
#[derive(Clone, PartialEq, Message)]
pub struct ForeignKeysChange {
    #[prost(message, optional, tag = "1")]
    pub table: Option<TableName>,
    /// The table has this id and version; any other is refused with `SchemaVersionChanged`.
    #[prost(uint32, tag = "2")]
    pub id: u32,
    #[prost(uint32, tag = "3")]
    pub version: u32,
    /// Dropped first.
    #[prost(string, repeated, tag = "4")]
    pub drop: Vec<String>,
    #[prost(message, repeated, tag = "5")]
    pub add: Vec<ForeignKeyMessage>,
}

impl From<&ForeignKey> for ForeignKeyMessage {
    fn from(key: &ForeignKey) -> ForeignKeyMessage {
        ForeignKeyMessage {
            name: key.name.clone(),
            columns: key.columns.iter().map(|&c| u32::from(c)).collect(),
            parent_database: key.parent_database.clone(),
            parent_table: key.parent_table.clone(),
            parent_columns: key.parent_columns.clone(),
            on_delete: key.on_delete as u32,
            on_update: key.on_update as u32,
            matching: key.matching as u32,
            created: key.created,
            unchecked: key.unchecked,
            ..ForeignKeyMessage::default()
        }
    }
}

impl TryFrom<&ForeignKeyMessage> for ForeignKey {
    type Error = DecodeError;
    fn try_from(m: &ForeignKeyMessage) -> Result<ForeignKey, DecodeError> {
        let action = |n: u32| Action::ALL.get(n as usize).copied().ok_or(DecodeError);
        let columns = m.columns.iter().map(|&c| u16::try_from(c).map_err(|_| DecodeError));
        Ok(ForeignKey {
            name: m.name.clone(),
            columns: columns.collect::<Result<_, _>>()?,
            parent_database: m.parent_database.clone(),
            parent_table: m.parent_table.clone(),
            parent_columns: m.parent_columns.clone(),
            on_delete: action(m.on_delete)?,
            on_update: action(m.on_update)?,
            matching: Match::ALL.get(m.matching as usize).copied().ok_or(DecodeError)?,
            created: m.created,
            unchecked: m.unchecked,
        })
    }
}

/// The list of a table's definition.
pub(crate) fn to_wire(keys: &[ForeignKey], held: Held) -> Vec<ForeignKeyMessage> {
    let mark = ForeignKeyMessage { is_referenced: held.is_referenced, since: held.since, ..Default::default() };
    let mark = (held != Held::default()).then_some(mark);
    keys.iter().map(ForeignKeyMessage::from).chain(mark).collect()
}

pub(crate) fn from_wire(list: &[ForeignKeyMessage]) -> Result<(Vec<ForeignKey>, Held), DecodeError> {
    let (mut keys, mut held) = (Vec::new(), Held::default());
    for message in list {
        match message.columns.is_empty() {
            true => held = Held { is_referenced: message.is_referenced, since: message.since },
            false => keys.push(ForeignKey::try_from(message)?),
        }
    }
    Ok((keys, held))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_the_mark_share_a_list() {
        let key = ForeignKey {
            name: "k".into(),
            columns: vec![1, 0],
            parent_database: "d".into(),
            parent_table: "p".into(),
            parent_columns: vec!["a".into(), "b".into()],
            on_delete: Action::SetNull,
            on_update: Action::Cascade,
            matching: Match::Full,
            created: 7,
            unchecked: true,
        };
        let held = Held { is_referenced: true, since: 9 };
        let wire = to_wire(std::slice::from_ref(&key), held);
        assert_eq!(from_wire(&wire), Ok((vec![key], held)));
        assert!(to_wire(&[], Held::default()).is_empty(), "a table without constraints looks as ever");
        let unknown = ForeignKeyMessage { on_delete: 9, ..wire[0].clone() };
        assert!(from_wire(&[unknown]).is_err());
    }
}
