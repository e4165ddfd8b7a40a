//! Makes histograms anew that say AUTO UPDATE, when many rows of their tables have come or gone.
//!
//! Each SQL node has a keeper, on its first thread. While no histogram is automatic it asks nobody anything. Otherwise it wants the lease, a user lock that no GET_LOCK can name: who has it asks
//! the data nodes once in [`LOOK`] how many rows the tables have, and counts the values of those that have a tenth more or less than the histogram was made of. Rows that are changed and stay as many are not noticed.

use std::{
    convert::Infallible,
    rc::{Rc, Weak},
    sync::Arc,
    time::Duration,
};

use tokio::sync::oneshot;

use crate::{
    catalog::{Catalog, Table, histogram, statistics},
    errors::{self, Result},
    server::{Collected, ConnectionInfo, Engine, Registry},
    session::{
        engine::{Alive, SqlEngine},
        user_lock::OwnLock,
    },
    wire::SqlError,
};

/// Longer than a name that GET_LOCK takes.
const LEASE: &str = "the lease of the SQL node that renews the histograms of the cluster, which no client can name";
/// Between two counts.
const LOOK: Duration = Duration::from_secs(10);
/// What SHOW PROCESSLIST says.
const USER: &str = "histograms";
const DOES: &str = "ANALYZE TABLE ... UPDATE HISTOGRAM ... AUTO UPDATE";
/// So many rows more or less are few.
const FEW: u64 = 16;
/// utf8mb4_0900_ai_ci.
const CHARSET: u16 = 255;

/// Whether a table that had `before` rows is another one by now.
fn is_old(before: u64, now: u64) -> bool {
    before.abs_diff(now) > FEW.max(before / 10)
}

impl SqlEngine {
    /// Keeps histograms new, until the value that is returned is dropped. Within a `LocalSet`.
    pub(crate) fn keep_histograms(self: &Rc<Self>, connections: &Arc<Registry>, worker: usize) -> Alive {
        let (alive, ended) = oneshot::channel();
        let lease = OwnLock::new(self.user_locks.clone(), LEASE);
        tokio::task::spawn_local(keep(Rc::downgrade(self), lease, connections.clone(), worker, ended));
        alive
    }

    async fn renew_old_ones(&self, lease: &mut OwnLock, connections: &Arc<Registry>, worker: usize) -> Result<()> {
        let catalog = self.catalog_as_it_is().await?;
        let tables = automatic(&catalog);
        if tables.is_empty() {
            return lease.give_back(self).await;
        }
        if !lease.is_held() && !lease.try_take(self, connections).await? {
            return Ok(());
        }
        for (table, before) in tables {
            let now = statistics::rows_of(&self.client, &table).await.map_err(|e| errors::from_client(&e))?;
            if is_old(before, now) {
                self.renew(&table, connections, worker).await?;
            }
        }
        Ok(())
    }

    async fn renew(&self, table: &Table, connections: &Arc<Registry>, worker: usize) -> Result<()> {
        let slot = connections.admit_own(worker, USER, "localhost").ok_or_else(SqlError::too_many_connections)?;
        slot.activity.runs(&table.schema.database, DOES);
        let info = ConnectionInfo {
            id: slot.id,
            user: USER.to_owned(),
            host: "localhost".to_owned(),
            database: None,
            charset: CHARSET,
            capabilities: 0,
            attributes: Vec::new(),
            registry: connections.clone(),
            activity: slot.activity.clone(),
            interrupt: slot.interrupt.clone(),
            tls: None,
        };
        let mut session = self.open(info).await?;
        let mut unseen = Collected::new(false);
        let done = Box::pin(self.renew_histograms(&mut session, table, &mut unseen.output())).await;
        self.close(session).await;
        done
    }
}

/// Tables with automatic histograms, and how many rows the oldest count of each has seen.
fn automatic(catalog: &Catalog) -> Vec<(Rc<Table>, u64)> {
    let of = |table: &Rc<Table>| {
        let own = histogram::of_table(&catalog.histograms, &table.schema).map(|kept| &kept.definition.histogram);
        let rows = own.filter(|histogram| histogram.is_automatic).map(|histogram| histogram.rows).min()?;
        Some((table.clone(), rows))
    };
    if catalog.histograms.is_empty() { Vec::new() } else { catalog.tables().filter_map(of).collect() }
}

async fn keep(
    engine: Weak<SqlEngine>,
    mut lease: OwnLock,
    connections: Arc<Registry>,
    worker: usize,
    mut ended: oneshot::Receiver<Infallible>,
) {
    loop {
        if tokio::time::timeout(LOOK, &mut ended).await.is_ok() {
            return;
        }
        let Some(engine) = engine.upgrade() else { return };
        // What cannot be done now is tried again.
        let _ = engine.renew_old_ones(&mut lease, &connections, worker).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_of_the_rows_is_many() {
        assert!(!is_old(1000, 1000) && !is_old(1000, 1100) && !is_old(1000, 900));
        assert!(is_old(1000, 1101) && is_old(1000, 899));
        assert!(!is_old(0, 16) && is_old(0, 17));
    }
}
