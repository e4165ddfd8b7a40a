//! How far a definition is that goes through the rows of a table: what SHOW PROCESSLIST tells of it in its column State, and how fast it may go (`apus_alter_rate`, rows per second; 0: as fast as it can).

use std::{fmt::Write as _, time::Duration};

use apus_client::{Aggregate, AggregateFunction, ScanRequest};
use apus_types::TableSchema;
use tokio::time::Instant;

use crate::{
    errors::Result,
    session::{Session, engine::SqlEngine},
};

/// Between two texts.
const TOLD: Duration = Duration::from_millis(200);
/// Between two looks at whether a statement that goes slowly may go on.
const LOOK: Duration = Duration::from_millis(50);

/// Rows that are gone through.
pub struct Progress {
    what: &'static str,
    /// Of the table when it began, about.
    total: u64,
    done: u64,
    begun: Instant,
    told: Option<Instant>,
}

impl SqlEngine {
    /// The rows of a table are gone through from now on.
    pub(crate) async fn progress(&self, table: &TableSchema, what: &'static str) -> Progress {
        let count = [Aggregate { function: AggregateFunction::EstimatedRows, column: 0 }];
        let mut counts = Vec::new();
        // Where nobody can tell it is not told.
        let _ = self.client.aggregate(&ScanRequest::all(table.id, table.version), &count, &mut counts).await;
        let total = counts.first().map_or(0, |count| count.count);
        Progress { what, total, done: 0, begun: Instant::now(), told: None }
    }
}

impl Progress {
    /// So many rows more are done.
    ///
    /// # Errors
    /// KILL.
    pub async fn advance(&mut self, session: &Session, rows: u64) -> Result<()> {
        self.done += rows;
        if self.told.is_none_or(|told| told.elapsed() >= TOLD) {
            self.told = Some(Instant::now());
            session.info.activity.tells(self.text());
        }
        let rate = session.env.variables.alter_rate;
        if rate == 0 {
            return Ok(());
        }
        let due = Duration::from_secs_f64(self.done as f64 / rate as f64);
        while let Some(left) = due.checked_sub(self.begun.elapsed()).filter(|left| !left.is_zero()) {
            session.env.may_go_on()?;
            tokio::time::sleep(left.min(LOOK)).await;
        }
        Ok(())
    }

    fn text(&self) -> String {
        let Progress { what, total, done, .. } = *self;
        let mut text = format!("{what}: {done} rows");
        let seconds = self.begun.elapsed().as_secs_f64();
        if total > 0 {
            let _ = write!(text, " of about {}", total.max(done));
        }
        if done > 0 && seconds > 0.0 {
            let rate = done as f64 / seconds;
            let _ = write!(text, ", {rate:.0}/s");
            if total > done {
                let _ = write!(text, ", {:.0} s left", (total - done) as f64 / rate);
            }
        }
        text
    }
}
