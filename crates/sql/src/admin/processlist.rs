//! The connections of this SQL node: SHOW PROCESSLIST and information_schema.PROCESSLIST.
//!
//! Who has not the privilege PROCESS sees the connections of its own user name. Other SQL nodes' connections are not listed. Times are of the command that runs, or since
//! the last one ended; a statement is shown up to 4 KiB.

use crate::{
    accounts::Privileges,
    expr::Env,
    server::{ConnectionEntry, limits},
    value::datum::Datum,
};

/// Characters of a statement that SHOW PROCESSLIST shows without FULL.
const INFO_CHARS: usize = 100;
const _: () = assert!(limits::INFO_BYTES_MAX >= INFO_CHARS * 4);

/// One line, as MySQL has its columns.
pub(crate) struct Process {
    pub id: u32,
    pub user: String,
    pub host: String,
    pub database: Option<String>,
    pub command: &'static str,
    /// Whole seconds.
    pub time: u64,
    pub state: String,
    pub info: Option<String>,
}

impl Process {
    fn of(entry: ConnectionEntry) -> Process {
        let doing = entry.activity.look();
        let is_known = !entry.user.is_empty();
        let state = match () {
            () if !is_known => "Receiving from client",
            () if doing.is_asleep() => "",
            () if !doing.state.is_empty() => &doing.state,
            () => "executing",
        };
        Process {
            id: entry.id,
            user: if is_known { entry.user } else { "unauthenticated user".to_owned() },
            host: entry.host,
            command: doing.command,
            time: doing.since.elapsed().as_secs(),
            state: state.to_owned(),
            info: doing.statement(),
            database: Some(doing.database).filter(|d| !d.is_empty()),
        }
    }

    /// As SHOW PROCESSLIST has it.
    pub(crate) fn cells(self, full: bool) -> Vec<Option<String>> {
        let cut = |info: String| if full { info } else { info.chars().take(INFO_CHARS).collect() };
        vec![
            Some(self.id.to_string()),
            Some(self.user),
            Some(self.host),
            self.database,
            Some(self.command.to_owned()),
            Some(self.time.to_string()),
            Some(self.state),
            self.info.map(cut),
        ]
    }

    pub(crate) fn row(self) -> Vec<Datum<'static>> {
        let text = |s: String| Datum::text(s);
        vec![
            Datum::Int(i64::from(self.id)),
            text(self.user),
            text(self.host),
            self.database.map_or(Datum::Null, text),
            text(self.command.to_owned()),
            Datum::Int(i64::try_from(self.time).unwrap_or(i64::MAX)),
            text(self.state),
            self.info.map_or(Datum::Null, text),
        ]
    }
}

/// What the session may see, by id.
pub(crate) fn list(env: &Env) -> impl Iterator<Item = Process> {
    let sees_all = env.me.as_ref().is_none_or(|me| me.rights.global.contains(Privileges::PROCESS));
    let sees = move |entry: &ConnectionEntry| sees_all || entry.user == env.user;
    let all = env.connections.as_ref().map(|registry| registry.list()).unwrap_or_default();
    all.into_iter().filter(sees).map(Process::of)
}
