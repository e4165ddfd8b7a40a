//! Events: statements that the cluster runs at their time.
//!
//! An event is a table of the dictionary without rows, as a procedure is ([decision 0037]): its engine is [`ENGINE`], its comment is the definition ([`Definition`]), it goes with its database. It is
//! called `#event#N#name` there. Each change makes N + 1 and drops N; of those with one [`Definition::number`] the highest counts, also when it has another name or is in another database, so
//! that every change is one change of the dictionary.
//!
//! [`schedule`] says when an event runs, [`scheduler`] runs it. One SQL node has the lease to do so, and each run is claimed by a committed row first ([`runs`]), so no run is begun twice whatever
//! becomes of the lease. A run is a session of the definer that calls a procedure without parameters.
//!
//! | limit | value | |
//! |---|---:|---|
//! | text of an event | 256 KiB | 1235 |
//! | events under way on a SQL node | 64 | others wait |
//!
//! [decision 0037]: ../../../../../docs/decisions/0037-events.md

pub mod clause;
pub mod define;
pub mod failures;
pub mod runs;
pub mod schedule;
pub mod scheduler;

use std::{collections::BTreeMap, rc::Rc};

use apus_types::TableSchema;

use self::schedule::{Schedule, Unit};
use super::routine::{self, Routine, kept_name};
use crate::{
    catalog::{
        kept_table,
        view::{escaped, unescaped},
    },
    errors::{self, Result},
    value::zone::Zone,
};

/// Engine of a table that is an event. No CREATE TABLE may name it.
pub const ENGINE: &str = "#event";

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Status {
    #[default]
    Enabled,
    Disabled,
    /// DISABLE ON REPLICA.
    DisabledOnReplica,
}

impl Status {
    const ALL: [Status; 3] = [Status::Enabled, Status::Disabled, Status::DisabledOnReplica];
    /// As INFORMATION_SCHEMA and SHOW tell it.
    pub fn name(self) -> &'static str {
        match self {
            Status::Enabled => "ENABLED",
            Status::Disabled => "DISABLED",
            Status::DisabledOnReplica => "REPLICA_SIDE_DISABLED",
        }
    }
}

/// What CREATE EVENT and ALTER EVENT have said.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Definition {
    /// Of the event as long as it lives, whatever it is called.
    pub number: u64,
    pub name: String,
    /// Its user and host.
    pub definer: (String, String),
    pub schedule: Schedule,
    /// Of the session that made the schedule, as its variable said.
    pub zone: String,
    pub status: Status,
    /// ON COMPLETION PRESERVE.
    pub is_kept: bool,
    pub comment: String,
    pub sql_mode: String,
    pub charset: String,
    pub collation: String,
    /// Of its database when it was made: that of its variables.
    pub database_collation: String,
    /// Microseconds since 1970.
    pub created: i64,
    pub modified: i64,
    /// From when its runs count: when its schedule or its status was last set, by the SQL node's clock.
    pub since: i64,
    pub body: String,
}

/// Lines of a definition in front of its body.
const FIELDS: usize = 17;
const FORM: &str = "apus event 1";

impl Definition {
    pub fn encode(&self) -> String {
        let schedule = match self.schedule {
            Schedule::At(at) => format!("at {at}"),
            Schedule::Every { unit, count, .. } => format!("every {count} {}", unit.name),
        };
        let (starts, ends) = match self.schedule {
            Schedule::Every { starts, ends, .. } => (starts.to_string(), ends.map(|ends| ends.to_string())),
            Schedule::At(_) => (String::new(), None),
        };
        let fields: [String; FIELDS] = [
            FORM.to_owned(),
            self.number.to_string(),
            escaped(&self.name),
            escaped(&self.definer.0),
            escaped(&self.definer.1),
            schedule,
            starts,
            ends.unwrap_or_default(),
            escaped(&self.zone),
            self.status.name().to_owned(),
            if self.is_kept { "preserve" } else { "drop" }.to_owned(),
            escaped(&self.comment),
            escaped(&self.sql_mode),
            escaped(&self.charset),
            escaped(&self.collation),
            escaped(&self.database_collation),
            format!("{} {} {}", self.created, self.modified, self.since),
        ];
        format!("{}\n{}", fields.join("\n"), self.body)
    }

    pub fn decode(text: &str) -> Option<Definition> {
        let parts: Vec<&str> = text.splitn(FIELDS + 1, '\n').collect();
        let [
            FORM,
            number,
            name,
            user,
            host,
            schedule,
            starts,
            ends,
            zone,
            status,
            completion,
            comment,
            sql_mode,
            charset,
            collation,
            of_database,
            times,
            body,
        ] = parts[..]
        else {
            return None;
        };
        let schedule = match *schedule.split(' ').collect::<Vec<_>>() {
            ["at", at] => Schedule::At(at.parse().ok()?),
            ["every", count, unit] => {
                let ends = if ends.is_empty() { None } else { Some(ends.parse().ok()?) };
                Schedule::Every {
                    unit: Unit::named(unit)?,
                    count: count.parse().ok()?,
                    starts: starts.parse().ok()?,
                    ends,
                }
            }
            _ => return None,
        };
        let [created, modified, since] = *times.split(' ').collect::<Vec<_>>() else { return None };
        Some(Definition {
            number: number.parse().ok()?,
            name: unescaped(name),
            definer: (unescaped(user), unescaped(host)),
            schedule,
            zone: unescaped(zone),
            status: Status::ALL.into_iter().find(|known| known.name() == status)?,
            is_kept: completion == "preserve",
            comment: unescaped(comment),
            sql_mode: unescaped(sql_mode),
            charset: unescaped(charset),
            collation: unescaped(collation),
            database_collation: unescaped(of_database),
            created: created.parse().ok()?,
            modified: modified.parse().ok()?,
            since: since.parse().ok()?,
            body: body.to_owned(),
        })
    }

    pub fn zone(&self) -> Zone {
        Zone::parse(&self.zone).unwrap_or(Zone::UTC)
    }

    /// The procedure that a run calls.
    fn routine(&self, database: &str) -> Rc<Routine> {
        let definition = routine::Definition {
            name: self.name.clone(),
            definer: self.definer.clone(),
            sql_mode: self.sql_mode.clone(),
            charset: self.charset.clone(),
            collation: self.collation.clone(),
            database_collation: self.database_collation.clone(),
            body: self.body.clone(),
            ..routine::Definition::default()
        };
        Routine::of_no_dictionary(database, definition)
    }
}

#[derive(PartialEq, Debug)]
pub struct Event {
    pub database: String,
    pub definition: Definition,
    /// Its name in the dictionary.
    kept_as: String,
    /// Database and name of definitions before, which a SQL node that died has left; they would count again if they outlived this one.
    older: Vec<(String, String)>,
}

impl Event {
    /// `database.name`.
    pub fn full_name(&self) -> String {
        format!("{}.{}", self.database, self.definition.name)
    }
}

fn table(database: &str, kept_as: &str, definition: &Definition) -> TableSchema {
    kept_table(database, kept_as, ENGINE, definition.encode())
}

pub fn is_event(schema: &TableSchema) -> bool {
    schema.engine == ENGINE
}

/// How it is called in the dictionary.
fn kept_as(name: &str, change: u64) -> String {
    format!("#event#{change}#{}", kept_name(name))
}

/// Which of an event's definitions it is.
fn change_of(kept_as: &str) -> Option<u64> {
    kept_as.strip_prefix("#event#")?.split_once('#')?.0.parse().ok()
}

/// Database and lower case name.
pub type Key = (String, String);
pub type Events = BTreeMap<Key, Rc<Event>>;

pub fn key(database: &str, name: &str) -> Key {
    (database.to_owned(), name.to_lowercase())
}

/// The events of a dictionary. Those that are as they were in `before` are the same.
///
/// # Errors
/// A definition does not decode.
pub fn events(tables: Vec<TableSchema>, before: &Events) -> Result<Events> {
    let mut all: BTreeMap<u64, BTreeMap<u64, Event>> = BTreeMap::new();
    for schema in tables {
        let Some(change) = change_of(&schema.name) else { continue };
        let definition = Definition::decode(&schema.comment)
            .ok_or_else(|| errors::internal("the definition of an event does not decode"))?;
        let number = definition.number;
        let event = Event { database: schema.database, definition, kept_as: schema.name, older: Vec::new() };
        all.entry(number).or_default().insert(change, event);
    }
    let mut events = Events::new();
    for mut definitions in all.into_values() {
        let Some((_, mut event)) = definitions.pop_last() else { continue };
        event.older = definitions.into_values().map(|old| (old.database, old.kept_as)).collect();
        let key = key(&event.database, &event.definition.name);
        let same = before.get(&key).filter(|known| ***known == event).cloned();
        events.insert(key, same.unwrap_or_else(|| Rc::new(event)));
    }
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition() -> Definition {
        Definition {
            number: 7,
            name: "E\\\n".to_owned(),
            definer: ("a".to_owned(), "%".to_owned()),
            zone: "Europe/Berlin".to_owned(),
            comment: "two\nlines".to_owned(),
            created: 5,
            body: "BEGIN\n SET @b = 1;\nEND".to_owned(),
            ..Definition::default()
        }
    }

    #[test]
    fn definitions_come_back() {
        let once = definition();
        assert_eq!(Definition::decode(&once.encode()), Some(once.clone()));
        for ends in [None, Some(9)] {
            let unit = Unit::named("day_hour").unwrap();
            let schedule = Schedule::Every { unit, count: 25, starts: 3, ends };
            let (status, is_kept) = (Status::DisabledOnReplica, true);
            let again = Definition { schedule, status, is_kept, ..once.clone() };
            assert_eq!(Definition::decode(&again.encode()), Some(again));
        }
        assert_eq!(Definition::decode("a comment"), None);
    }

    #[test]
    fn of_one_event_the_last_change_counts_wherever_it_is() {
        let old = definition();
        let new = Definition { name: "renamed".to_owned(), ..old.clone() };
        let other = Definition { number: 8, name: "other".to_owned(), ..old.clone() };
        let tables = vec![
            table("d", &kept_as("e", 9), &old),
            table("d2", &kept_as("renamed", 10), &new),
            table("d", &kept_as("other", 0), &other),
        ];
        let found = events(tables.clone(), &Events::new()).unwrap();
        assert_eq!(found.keys().cloned().collect::<Vec<_>>(), [key("d", "other"), key("d2", "Renamed")]);
        assert_eq!(found[&key("d2", "renamed")].older, [("d".to_owned(), kept_as("e", 9))]);
        let again = events(tables, &found).unwrap();
        assert!(found.values().zip(again.values()).all(|(a, b)| Rc::ptr_eq(a, b)));
    }
}
