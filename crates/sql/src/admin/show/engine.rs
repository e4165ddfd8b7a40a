//! SHOW ENGINE. Tools ask InnoDB for its inner state as a text for people; what is told here is where Apus tells of its own.

use super::{Rows, SqlEngine, table};
use crate::{
    accounts::Privileges,
    errors::{self, Result},
    parse::token::Tokens,
    server::Output,
    session::Session,
};

const STATE: &str = "Apus keeps rows in the memory of its data nodes, and there is no InnoDB.\n\
     State of the nodes, and what they wait for: apus status\n\
     Memory by region: apus status --memory\n\
     Statements: performance_schema.events_statements_summary_by_digest, SHOW GLOBAL STATUS, the slow query log\n";

impl SqlEngine {
    /// Behind the word ENGINE.
    ///
    /// # Errors
    /// 1227 without the privilege PROCESS, 1286 for an engine that is not there.
    pub(super) async fn show_engine(&self, session: &mut Session, t: &mut Tokens, out: &mut Output<'_>) -> Result<()> {
        let engine = t.identifier()?;
        let is_state = t.word("status");
        if !is_state && !t.word("mutex") {
            t.expect("logs")?;
        }
        t.end()?;
        self.require(session, Privileges::PROCESS, "PROCESS").await?;
        if !["innodb", "all", "performance_schema"].contains(&engine.to_ascii_lowercase().as_str()) {
            return Err(errors::unknown_engine(&engine));
        }
        let is_told = is_state && !engine.eq_ignore_ascii_case("performance_schema");
        let rows: Rows =
            is_told.then(|| ["InnoDB", "", STATE].map(|cell| Some(cell.to_owned())).to_vec()).into_iter().collect();
        table(session, out, &["Type", "Name", "Status"], &rows);
        Ok(())
    }
}
