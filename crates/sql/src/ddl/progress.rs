//! How far a definition is that goes through the rows of a table: what SHOW PROCESSLIST tells of it in its column State and `apus status` of all SQL nodes, and how fast it may go (`apus_alter_rate`, rows per second; 0: as fast as it can).

use std::time::Duration;

use apus_client::{Aggregate, AggregateFunction, ScanRequest};
use apus_types::TableSchema;
use tokio::time::Instant;

use crate::{
    errors::Result,
    server::{Progress as Told, RowsDone},
    session::{Session, engine::SqlEngine},
};

/// Between two texts.
const TOLD: Duration = Duration::from_millis(200);
/// Between two looks at whether a statement that goes slowly may go on.
const LOOK: Duration = Duration::from_millis(50);

/// Rows that are gone through.
pub struct Progress {
    told_of: Told,
    rows: RowsDone,
    begun: Instant,
    told: Option<Instant>,
}

/// A definition of this table does something that is not counted by rows.
pub fn doing(table: &TableSchema, phase: &str) -> Told {
    doing_at(&table.database, &table.name, phase)
}

/// As [`doing`].
pub fn doing_at(database: &str, table: &str, phase: &str) -> Told {
    Told { database: database.to_owned(), table: table.to_owned(), phase: phase.to_owned(), rows: None }
}

impl SqlEngine {
    /// The rows of a table are gone through from now on.
    pub(crate) async fn progress(&self, table: &TableSchema, phase: &'static str) -> Progress {
        let count = [Aggregate { function: AggregateFunction::EstimatedRows, column: 0 }];
        let mut counts = Vec::new();
        // Where nobody can tell it is not told.
        let _ = self.client.aggregate(&ScanRequest::all(table.id, table.version), &count, &mut counts).await;
        let total = counts.first().map_or(0, |count| count.count);
        let rows = RowsDone { total, ..RowsDone::default() };
        Progress { told_of: doing(table, phase), rows, begun: Instant::now(), told: None }
    }
}

impl Progress {
    /// So many rows more are done.
    ///
    /// # Errors
    /// KILL.
    pub async fn advance(&mut self, session: &Session, rows: u64) -> Result<()> {
        self.rows.done += rows;
        if self.told.is_none_or(|told| told.elapsed() >= TOLD) {
            self.told = Some(Instant::now());
            self.rows.seconds = self.begun.elapsed().as_secs_f64();
            session.info.activity.tells(Told { rows: Some(self.rows), ..self.told_of.clone() });
        }
        let rate = session.env.variables.alter_rate;
        if rate == 0 {
            return Ok(());
        }
        let due = Duration::from_secs_f64(self.rows.done as f64 / rate as f64);
        while let Some(left) = due.checked_sub(self.begun.elapsed()).filter(|left| !left.is_zero()) {
            session.env.may_go_on()?;
            tokio::time::sleep(left.min(LOOK)).await;
        }
        Ok(())
    }
}
