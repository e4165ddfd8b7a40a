//! What Apus has none of, to tools and dumps that ask for it: plugins, a binary log, replicas.
//!
//! SHOW answers with MySQL's headings and no row. What would make or change such a thing is refused.

use super::show::{
    filter::Filter,
    heading::{self, Headings, Told},
};
use crate::{
    errors::{self, Result},
    parse::token::Tokens,
    server::Output,
    session::{Session, engine::SqlEngine},
};

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
    (&["cache", "index"], "key caches"),
    (&["checksum"], "CHECKSUM TABLE"),
    (&["handler"], "HANDLER"),
    (&["help"], "HELP; the statements are listed in docs/sql.md"),
    (&["import"], "IMPORT TABLE"),
    (&["install"], "plugins"),
    (&["purge"], "PURGE BINARY LOGS; there is no binary log"),
    (&["reset"], "RESET"),
    (&["uninstall"], "plugins"),
];

impl SqlEngine {
    /// A form of SHOW, behind that word; `false`: of something that there may be.
    pub(crate) async fn show_absent(
        &self,
        session: &mut Session,
        t: &mut Tokens,
        out: &mut Output<'_>,
    ) -> Result<bool> {
        let next = t.second_word("status");
        let headings = if next && (t.word("replica") || t.word("slave")) {
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
        heading::answer(session, out, headings, Vec::new(), &Filter::parse(t)?)?;
        Ok(true)
    }
}

/// A statement that makes, changes or asks for what there is none of is refused.
///
/// # Errors
/// 1235.
pub fn refuse(t: &Tokens) -> Result<()> {
    let is = |words: &[&str]| match words {
        [first] => t.peek_word(first),
        [first, second] => t.peek_word(first) && t.second_word(second),
        _ => false,
    };
    match REFUSED.iter().find(|(words, _)| is(words)) {
        Some((_, what)) => Err(errors::not_supported(what)),
        None => Ok(()),
    }
}
