//! Definitions of tables in which prepared branches have claims: they wait, as for a metadata lock.
//!
//! A change of a definition waits before it begins ([`SqlEngine::wait_for_branches`]), and where it goes through the rows it looks again when it is announced ([`SqlEngine::check_no_claims`]); the look also finds claims that
//! are not committed. XA PREPARE, when its claims are there and not committed, reads the dictionary and gives up if a table is another than it was, or is being changed ([`is_as_before`]). So of a change that goes
//! through rows, and a branch that is prepared meanwhile, one sees the other.

use std::{rc::Rc, time::Duration};

use apus_client::BranchTables;
use apus_types::{
    ErrorCode, IndexState, TableId,
    claims::{BRANCHES, CLAIMS, branches_definition, claims_definition},
};

use crate::{
    catalog::{Catalog, SYSTEM_DATABASE, Table},
    errors::{self, Result},
    session::{Session, engine::SqlEngine},
};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// The table is what it was, and nothing goes through its rows.
pub(crate) fn is_as_before(before: &Catalog, now: &Catalog, id: TableId) -> bool {
    let find = |catalog: &Catalog| catalog.tables().find(|table| table.schema.id == id).cloned();
    match (find(before), find(now)) {
        (Some(was), Some(is)) => {
            was.schema.version == is.schema.version
                && !now.copies.closes(id)
                && is.schema.indexes.iter().all(|index| index.state == IndexState::Ready)
        }
        // One of the cluster's own, or dropped.
        (before, now) => before.is_none() == now.is_none(),
    }
}

/// The tables of branches, if they were made.
pub(crate) fn branch_tables(catalog: &Catalog) -> Option<BranchTables> {
    let find = |name| Some(Rc::new(catalog.find(SYSTEM_DATABASE, name)?.schema.clone()));
    Some(BranchTables { branches: find(BRANCHES)?, claims: find(CLAIMS)? })
}

impl SqlEngine {
    /// The same; made when they are first needed.
    pub(crate) async fn branch_tables(&self) -> Result<BranchTables> {
        self.system_tables(branch_tables, [claims_definition(), branches_definition()]).await
    }

    /// Whether a branch has claims in the table, or is just being prepared with some.
    pub(crate) async fn has_claims(&self, table: TableId) -> Result<bool> {
        let Some(branches) = branch_tables(&*self.catalog().await?) else { return Ok(false) };
        self.client.is_claimed(table, &branches).await.map_err(|e| errors::from_client(&e))
    }

    /// Until no branch has claims in these tables.
    ///
    /// # Errors
    /// 1205 after `lock_wait_timeout`; KILL.
    pub(crate) async fn wait_for_branches(&self, session: &Session, tables: &[Rc<Table>]) -> Result<()> {
        let started = tokio::time::Instant::now();
        let longest = Duration::from_secs(session.env.variables.definition_wait);
        for table in tables {
            while self.has_claims(table.schema.id).await? {
                session.env.may_go_on()?;
                if started.elapsed() > longest {
                    return Err(errors::from_code(ErrorCode::LockTimeout, ""));
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
        Ok(())
    }

    /// For a change that is announced and goes through the rows next.
    ///
    /// # Errors
    /// 1205: a branch was prepared just before the announcement.
    pub(crate) async fn check_no_claims(&self, table: TableId) -> Result<()> {
        match self.has_claims(table).await? {
            true => Err(errors::from_code(ErrorCode::LockTimeout, "")),
            false => Ok(()),
        }
    }
}
