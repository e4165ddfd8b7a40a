//! What Apus has none of, to tools and dumps that ask for it: events, plugins, a binary log, replicas.
//!
//! SHOW answers with MySQL's headings and no row. DROP ... IF EXISTS finds nothing, as dumps and migrations want that begin with it; without IF
//! EXISTS, and for SHOW CREATE, the error is that of a name that is unknown. What would make or change such a thing is refused.

use super::{
    dispatch::SqlEngine,
    errors::{self, Result},
    session::Session,
    show_filter::Filter,
    show_heading::{self, Told},
    token::Tokens,
};
use crate::{server::Output, wire::ColumnDef};

/// Headings are told by name, with the type where it is not VARCHAR.
pub type Headings = &'static [(&'static str, Told)];

pub const ROUTINES: Headings = &[
    ("Db", Told::Text),
    ("Name", Told::Text),
    ("Type", Told::Enum),
    ("Language", Told::Text),
    ("Definer", Told::Text),
    ("Modified", Told::Timestamp),
    ("Created", Told::Timestamp),
    ("Security_type", Told::Enum),
    ("Comment", Told::LongText),
    ("character_set_client", Told::Text),
    ("collation_connection", Told::Text),
    ("Database Collation", Told::Text),
];

const EVENTS: Headings = &[
    ("Db", Told::Text),
    ("Name", Told::Text),
    ("Definer", Told::Text),
    ("Time zone", Told::Text),
    ("Type", Told::Text),
    ("Execute at", Told::DateTime),
    ("Interval value", Told::Text),
    ("Interval field", Told::Enum),
    ("Starts", Told::DateTime),
    ("Ends", Told::DateTime),
    ("Status", Told::Text),
    ("Originator", Told::UInt),
    ("character_set_client", Told::Text),
    ("collation_connection", Told::Text),
    ("Database Collation", Told::Text),
];

pub const TRIGGERS: Headings = &[
    ("Trigger", Told::Text),
    ("Event", Told::Enum),
    ("Table", Told::Text),
    ("Statement", Told::LongText),
    ("Timing", Told::Enum),
    ("Created", Told::Hundredths),
    ("sql_mode", Told::Set),
    ("Definer", Told::Text),
    ("character_set_client", Told::Text),
    ("collation_connection", Told::Text),
    ("Database Collation", Told::Text),
];

const PLUGINS: Headings = &[
    ("Name", Told::Text),
    ("Status", Told::Text),
    ("Type", Told::Text),
    ("Library", Told::Text),
    ("License", Told::Text),
];

const BINARY_LOG: Headings = &[
    ("File", Told::Text),
    ("Position", Told::BigUInt),
    ("Binlog_Do_DB", Told::Text),
    ("Binlog_Ignore_DB", Told::Text),
    ("Executed_Gtid_Set", Told::Text),
];

const BINARY_LOG_EVENTS: Headings = &[
    ("Log_name", Told::Text),
    ("Pos", Told::BigUInt),
    ("Event_type", Told::Text),
    ("Server_id", Told::UInt),
    ("End_log_pos", Told::BigUInt),
    ("Info", Told::Text),
];

const REPLICAS: Headings = &[
    ("Server_Id", Told::UInt),
    ("Host", Told::Text),
    ("Port", Told::UInt),
    ("Source_Id", Told::UInt),
    ("Replica_UUID", Told::Text),
];

/// As much of MySQL's sixty as says whether a replica runs, and how far behind it is.
const REPLICA: Headings = &[
    ("Replica_IO_State", Told::Text),
    ("Source_Host", Told::Text),
    ("Source_User", Told::Text),
    ("Source_Port", Told::UInt),
    ("Source_Log_File", Told::Text),
    ("Read_Source_Log_Pos", Told::BigUInt),
    ("Replica_IO_Running", Told::Text),
    ("Replica_SQL_Running", Told::Text),
    ("Last_Errno", Told::UInt),
    ("Last_Error", Told::Text),
    ("Exec_Source_Log_Pos", Told::BigUInt),
    ("Seconds_Behind_Source", Told::BigUInt),
    ("Source_Server_Id", Told::UInt),
    ("Executed_Gtid_Set", Told::Text),
    ("Channel_Name", Told::Text),
];

/// Statements that begin with these words are refused: what they are about.
const REFUSED: &[(&[&str], &str)] = &[
    (&["alter", "event"], "events"),
    (&["cache", "index"], "key caches"),
    (&["checksum"], "CHECKSUM TABLE"),
    (&["handler"], "HANDLER"),
    (&["help"], "HELP; the statements are listed in docs/sql.md"),
    (&["import"], "IMPORT TABLE"),
    (&["install"], "plugins"),
    (&["purge"], "PURGE BINARY LOGS; there is no binary log"),
    (&["reset"], "RESET"),
    (&["uninstall"], "plugins"),
    (&["xa"], "XA transactions"),
];

impl SqlEngine {
    /// A form of SHOW, behind that word; `false`: of something that there may be.
    pub(super) async fn show_absent(
        &self,
        session: &mut Session,
        t: &mut Tokens,
        out: &mut Output<'_>,
    ) -> Result<bool> {
        let next = t.second_word("status");
        let headings = if t.word("events") {
            let named = t.word("from") || t.word("in");
            let database = if named { Some(t.identifier()?) } else { session.env.database.clone() };
            database.ok_or_else(errors::no_database)?;
            EVENTS
        } else if next && (t.word("replica") || t.word("slave")) {
            t.skip();
            if t.word("for") {
                t.expect("channel")?;
                t.string()?;
            }
            t.end()?;
            REPLICA
        } else if t.word("replicas") {
            t.end()?;
            REPLICAS
        } else if t.peek_word("binary") && t.second_word("logs") {
            return Err(errors::no_binary_log());
        } else if t.word("master") || t.word("binary") {
            t.word("log");
            t.expect("status")?;
            t.end()?;
            BINARY_LOG
        } else if t.word("binlog") {
            t.expect("events")?;
            if t.word("in") {
                t.string()?;
            }
            if t.word("from") {
                t.number()?;
            }
            if t.word("limit") {
                t.number()?;
                if t.symbol(',') {
                    t.number()?;
                }
            }
            t.end()?;
            BINARY_LOG_EVENTS
        } else if t.word("plugins") {
            t.end()?;
            PLUGINS
        } else {
            return Ok(false);
        };
        let names: Vec<&str> = headings.iter().map(|(name, _)| *name).collect();
        Filter::parse(t)?.apply(&names, &mut Vec::new())?;
        let defs: Vec<ColumnDef> = headings.iter().map(|(name, told)| show_heading::def_of(*told, name)).collect();
        out.begin_rows(&defs);
        (session.env.row_count, session.env.found_rows) = (-1, 0);
        out.end_rows(session.warning_count(), session.status());
        Ok(true)
    }
}

/// SHOW CREATE, behind these words.
///
/// # Errors
/// Always, where it is of an event: there is none of that name.
pub fn show_create(session: &Session, t: &mut Tokens) -> Result<()> {
    if !t.word("event") {
        return Ok(());
    }
    let (_, name) = named(session, t)?;
    t.end()?;
    Err(errors::unknown_event(&name))
}

/// A statement that makes, drops, calls or asks for what there is none of; `false`: it is none of those.
pub fn execute(session: &mut Session, t: &mut Tokens) -> Result<bool> {
    let is = |words: &[&str]| match words {
        [first] => t.peek_word(first),
        [first, second] => t.peek_word(first) && t.second_word(second),
        _ => false,
    };
    if let Some((_, what)) = REFUSED.iter().find(|(words, _)| is(words)) {
        return Err(errors::not_supported(what));
    }
    let start = t.position();
    if !t.word("drop") || !t.word("event") {
        t.rewind(start);
        return Ok(false);
    }
    let if_exists = t.word("if");
    if if_exists {
        t.expect("exists")?;
    }
    let (_, name) = named(session, t)?;
    t.end()?;
    if !if_exists {
        return Err(errors::unknown_event(&name));
    }
    let note = errors::unknown_routine("Event", &name);
    session.warn("Note", note.errno, note.message);
    Ok(true)
}

fn named(session: &Session, t: &mut Tokens) -> Result<(String, String)> {
    let (database, name) = t.name()?;
    Ok((database.or_else(|| session.env.database.clone()).ok_or_else(errors::no_database)?, name))
}
