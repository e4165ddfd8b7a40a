//! What a connection is doing, for others to look at: SHOW PROCESSLIST and information_schema.PROCESSLIST.
//!
//! The connection's thread writes it when a command begins and when it waits for the next one. The lock is the connection's own: nobody else takes it but who lists
//! the processes, for as long as a copy of [`limits::INFO_BYTES_MAX`] takes.

use apus_types::collate::Charset;
use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::{Progress, limits};
use crate::wire::{capability, characters, command::Command, params::split_attributes};

/// The statement is kept up to [`limits::INFO_BYTES_MAX`].
#[derive(Debug, Clone)]
pub struct Doing {
    /// As MySQL calls it.
    pub command: &'static str,
    pub since: Instant,
    /// Empty: none is chosen.
    pub database: String,
    /// What it says of itself while it goes on; mostly empty.
    pub state: String,
    /// Of a definition.
    pub progress: Option<Progress>,
    statement: Vec<u8>,
}

impl Doing {
    pub fn is_asleep(&self) -> bool {
        self.command == SLEEP
    }
    /// `None`: the command has no statement.
    pub fn statement(&self) -> Option<String> {
        // A character that is cut is no character.
        let whole = self.statement.utf8_chunks().next().map_or("", |chunk| chunk.valid());
        let is_cut = self.statement.len() == limits::INFO_BYTES_MAX;
        match self.statement.is_empty() || self.is_asleep() {
            true => None,
            false if is_cut => Some(whole.to_owned()),
            false => Some(String::from_utf8_lossy(&self.statement).into_owned()),
        }
    }
}

const SLEEP: &str = "Sleep";

/// What a statement has done.
#[derive(Clone, Copy, Default, Debug)]
pub struct Figures {
    pub affected: u64,
    pub sent: u64,
    pub examined: u64,
    pub warnings: u64,
    pub is_failed: bool,
    /// How its plan read.
    pub traits: u8,
}

/// A statement that has ended, one of the last of its connection.
#[derive(Clone, Debug)]
pub struct Past {
    /// Which of the connection's it was.
    pub number: u64,
    pub began: Instant,
    pub took: Duration,
    pub database: String,
    /// Up to [`limits::PAST_BYTES_MAX`].
    pub statement: Vec<u8>,
    pub figures: Figures,
}

#[derive(Debug)]
pub struct Activity(Mutex<Doing>, Mutex<Pasts>);

/// The last statements, the newest last.
#[derive(Default, Debug)]
struct Pasts {
    ended: u64,
    list: VecDeque<Past>,
}

impl Default for Activity {
    /// The client has connected and not logged in yet.
    fn default() -> Activity {
        let doing = Doing {
            command: "Connect",
            since: Instant::now(),
            database: String::new(),
            state: String::new(),
            progress: None,
            statement: Vec::new(),
        };
        Activity(Mutex::new(doing), Mutex::default())
    }
}

impl Activity {
    fn lock(&self) -> MutexGuard<'_, Doing> {
        // Whatever is written of it is whole enough to be looked at.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A command begins, whose texts are in the character set `client`; `prepared`: the text of the statement that it executes.
    pub(super) fn begins(&self, command: &Command<'_>, prepared: &[u8], (capabilities, client): (u32, Charset)) {
        let (name, mut statement) = named(command, prepared);
        if let Command::Query(body) = command
            && capabilities & capability::QUERY_ATTRIBUTES != 0
        {
            statement = split_attributes(body, &mut Vec::new()).unwrap_or_default();
        }
        let cut = |text: &[u8]| text.len().min(limits::INFO_BYTES_MAX);
        statement = &statement[..cut(statement)];
        let text = match command {
            Command::Execute { .. } => statement.into(),
            _ => characters::read_lossy(client, statement),
        };
        let mut doing = self.lock();
        (doing.command, doing.since) = (name, Instant::now());
        doing.state.clear();
        doing.progress = None;
        doing.statement.clear();
        doing.statement.extend_from_slice(&text[..cut(&text)]);
    }

    /// What the server runs by itself for a user, in this database.
    pub(crate) fn runs(&self, database: &str, statement: &str) {
        let mut doing = self.lock();
        (doing.command, doing.since) = ("Connect", Instant::now());
        doing.database = database.to_owned();
        doing.statement = statement.as_bytes()[..statement.len().min(limits::INFO_BYTES_MAX)].to_vec();
    }

    /// The connection waits for a command, in this database. How long the last one took, if it was a statement.
    pub(super) fn rests(&self, database: Option<&str>) -> Option<Duration> {
        let (database, now) = (database.unwrap_or_default(), Instant::now());
        let mut doing = self.lock();
        let took = matches!(doing.command, "Query" | "Execute").then(|| now.duration_since(doing.since));
        (doing.command, doing.since) = (SLEEP, now);
        doing.state.clear();
        doing.progress = None;
        if doing.database != database {
            doing.database.clear();
            doing.database.push_str(database);
        }
        took
    }

    /// The statement that was last run has ended, in this database.
    pub fn ended(&self, database: Option<&str>, took: Duration, figures: Figures) {
        let mut pasts = self.pasts();
        pasts.ended += 1;
        let oldest = if pasts.list.len() < limits::PASTS_MAX { None } else { pasts.list.pop_front() };
        let (mut text, mut of) = oldest.map_or_else(Default::default, |past| (past.statement, past.database));
        text.clear();
        of.clear();
        of.push_str(database.unwrap_or_default());
        let began = {
            let doing = self.lock();
            text.extend_from_slice(&doing.statement[..doing.statement.len().min(limits::PAST_BYTES_MAX)]);
            if doing.is_asleep() { doing.since.checked_sub(took).unwrap_or(doing.since) } else { doing.since }
        };
        let number = pasts.ended;
        pasts.list.push_back(Past { number, began, took, database: of, statement: text, figures });
    }

    fn pasts(&self) -> MutexGuard<'_, Pasts> {
        self.1.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last statements, the oldest first.
    pub fn past(&self) -> Vec<Past> {
        self.pasts().list.iter().cloned().collect()
    }

    /// How far the command is, which is a definition.
    pub fn tells(&self, progress: Progress) {
        let mut doing = self.lock();
        doing.state = progress.text();
        doing.progress = Some(progress);
    }

    /// The statement that was last run.
    pub fn last_statement(&self) -> String {
        String::from_utf8_lossy(&self.lock().statement).into_owned()
    }

    pub fn look(&self) -> Doing {
        self.lock().clone()
    }
}

fn named<'a>(command: &Command<'a>, prepared: &'a [u8]) -> (&'static str, &'a [u8]) {
    match command {
        Command::Query(sql) => ("Query", sql),
        Command::Execute { .. } => ("Execute", prepared),
        Command::Prepare(sql) => ("Prepare", sql),
        Command::InitDb(database) => ("Init DB", database),
        Command::FieldList { table, .. } => ("Field List", table),
        Command::Quit => ("Quit", b""),
        Command::Statistics => ("Statistics", b""),
        Command::ProcessKill(_) => ("Kill", b""),
        Command::Ping => ("Ping", b""),
        Command::ChangeUser(_) => ("Change user", b""),
        Command::SendLongData { .. } => ("Long Data", b""),
        Command::CloseStatement(_) => ("Close stmt", b""),
        Command::ResetStatement(_) => ("Reset stmt", b""),
        Command::Fetch { .. } => ("Fetch", b""),
        Command::SetOption(_) => ("Set option", b""),
        Command::ResetConnection => ("Reset Connection", b""),
        Command::Unknown(_) => ("Error", b""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_statement_is_cut_between_characters() {
        let activity = Activity::default();
        assert_eq!((activity.look().command, activity.look().statement()), ("Connect", None));
        let text = format!("x{}", "ü".repeat(limits::INFO_BYTES_MAX));
        activity.begins(&Command::Query(text.as_bytes()), b"", (0, Charset::Utf8mb4));
        let seen = activity.look().statement().expect("a statement");
        assert_eq!(seen.len(), limits::INFO_BYTES_MAX - 1);
        assert!(text.starts_with(&seen));
        activity.rests(Some("shop"));
        let doing = activity.look();
        assert!(doing.is_asleep() && doing.database == "shop" && doing.statement().is_none());
    }
}
