//! What others are told of a connection: a line of SHOW PROCESSLIST, and how far a definition is that it makes. SQL nodes send it to each other as it is.

use std::{fmt::Write as _, rc::Rc};

use super::{ConnectionEntry, limits};

/// One line, as MySQL has its columns.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Process {
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// As it is shown; who has not logged in has none.
    #[prost(string, tag = "2")]
    pub user: String,
    #[prost(bool, tag = "3")]
    pub is_known: bool,
    #[prost(string, tag = "4")]
    pub host: String,
    #[prost(string, optional, tag = "5")]
    pub database: Option<String>,
    #[prost(string, tag = "6")]
    pub command: String,
    /// Whole seconds, of the command that runs, or since the last one ended.
    #[prost(uint64, tag = "7")]
    pub time: u64,
    #[prost(string, tag = "8")]
    pub state: String,
    /// Up to [`limits::INFO_BYTES_MAX`].
    #[prost(string, optional, tag = "9")]
    pub info: Option<String>,
    #[prost(message, optional, tag = "10")]
    pub progress: Option<Progress>,
    /// What the client has said of itself, where it is wanted.
    #[prost(message, repeated, tag = "11")]
    pub attributes: Vec<ConnectAttribute>,
}

/// What a statement knows of all connections, by their ids.
#[derive(Clone, Debug)]
pub struct Processes {
    pub all: Rc<[Process]>,
    /// Attributes are told, too.
    pub has_attributes: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ConnectAttribute {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

/// What is kept of the attributes of a connection for others to see: those that have room in [`limits::SHOWN_ATTRS_BYTES_MAX`], and how many bytes have none.
pub(super) fn shown_attributes(all: &[(String, String)]) -> Vec<ConnectAttribute> {
    let length = |(name, value): &(String, String)| name.len() + value.len();
    let (mut room, mut lost, mut shown) = (limits::SHOWN_ATTRS_BYTES_MAX, 0, Vec::new());
    for pair in all {
        if lost > 0 || length(pair) > room {
            lost += length(pair);
            continue;
        }
        room -= length(pair);
        shown.push(ConnectAttribute { name: pair.0.clone(), value: pair.1.clone() });
    }
    if lost > 0 {
        shown.push(ConnectAttribute { name: "_truncated".to_owned(), value: lost.to_string() });
    }
    shown
}

impl Process {
    pub fn of(entry: ConnectionEntry) -> Process {
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
            is_known,
            host: entry.host,
            command: doing.command.to_owned(),
            time: doing.since.elapsed().as_secs(),
            state: state.to_owned(),
            info: doing.statement(),
            database: Some(doing.database).filter(|d| !d.is_empty()),
            progress: doing.progress,
            attributes: entry.attributes.to_vec(),
        }
    }

    /// The statement is told up to so many bytes.
    pub fn cut_info(&mut self, bytes: usize) {
        if let Some(info) = &mut self.info {
            info.truncate(info.floor_char_boundary(bytes.min(limits::INFO_BYTES_MAX)));
        }
    }
}

/// How far a definition is.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Progress {
    #[prost(string, tag = "1")]
    pub database: String,
    #[prost(string, tag = "2")]
    pub table: String,
    /// What goes on.
    #[prost(string, tag = "3")]
    pub phase: String,
    /// Where rows of a table are gone through.
    #[prost(message, optional, tag = "4")]
    pub rows: Option<RowsDone>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct RowsDone {
    #[prost(uint64, tag = "1")]
    pub done: u64,
    /// Of the table when it began, about; 0: nobody knows.
    #[prost(uint64, tag = "2")]
    pub total: u64,
    #[prost(double, tag = "3")]
    pub seconds: f64,
}

impl RowsDone {
    /// Rows each second; `None`: none is done.
    pub fn rate(&self) -> Option<f64> {
        (self.done > 0 && self.seconds > 0.0).then(|| self.done as f64 / self.seconds)
    }
    /// Rows in all, about; not less than are done.
    pub fn of_about(&self) -> Option<u64> {
        (self.total > 0).then(|| self.total.max(self.done))
    }
    pub fn seconds_left(&self) -> Option<f64> {
        self.rate().filter(|_| self.total > self.done).map(|rate| (self.total - self.done) as f64 / rate)
    }
}

impl Progress {
    /// As the column State has it.
    pub fn text(&self) -> String {
        let mut text = self.phase.clone();
        let Some(rows) = self.rows else { return text };
        let _ = write!(text, ": {} rows", rows.done);
        if let Some(total) = rows.of_about() {
            let _ = write!(text, " of about {total}");
        }
        if let Some(rate) = rows.rate() {
            let _ = write!(text, ", {rate:.0}/s");
        }
        if let Some(seconds) = rows.seconds_left() {
            let _ = write!(text, ", {seconds:.0} s left");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_told_as_far_as_it_is_known() {
        let told = |done, total, seconds| {
            let rows = Some(RowsDone { done, total, seconds });
            Progress { phase: "copying rows".into(), rows, ..Progress::default() }.text()
        };
        assert_eq!(told(0, 0, 0.0), "copying rows: 0 rows");
        assert_eq!(told(0, 10, 0.0), "copying rows: 0 rows of about 10");
        assert_eq!(told(50, 200, 2.0), "copying rows: 50 rows of about 200, 25/s, 6 s left");
        assert_eq!(told(50, 20, 2.0), "copying rows: 50 rows of about 50, 25/s");
        assert_eq!(Progress { phase: "waiting".into(), ..Progress::default() }.text(), "waiting");
    }

    #[test]
    fn attributes_are_kept_in_their_order_as_long_as_they_have_room() {
        let pair = |name: &str, length: usize| (name.to_owned(), "v".repeat(length));
        let shown =
            |pairs: &[_]| -> Vec<_> { shown_attributes(pairs).into_iter().map(|a| (a.name, a.value.len())).collect() };
        let most = limits::SHOWN_ATTRS_BYTES_MAX;
        assert_eq!(shown(&[pair("a", 3), pair("b", most - 5)]), [("a".into(), 3), ("b".into(), most - 5)]);
        let cut = shown_attributes(&[pair("a", 3), pair("b", most), pair("c", 1)]);
        assert_eq!((cut.len(), cut[1].name.as_str(), cut[1].value.as_str()), (2, "_truncated", "515"));
    }

    #[test]
    fn statements_are_cut_between_characters() {
        let mut process = Process { info: Some("aüb".into()), ..Process::default() };
        process.cut_info(2);
        assert_eq!(process.info.as_deref(), Some("a"));
    }
}
