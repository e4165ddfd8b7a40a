//! Tables whose makers have died: copies, what CREATE TABLE ... SELECT had begun to fill, and temporary tables. Nobody sees them, and they take memory. Each SQL node looks for them.
//!
//! Copies and tables that are being filled are told by a row lock. Temporary tables live longer than a data node that coordinates such a lock, so they are told by the lease of their owner
//! ([`crate::session::temporary::Owner`]): whoever gets its lock drops its tables.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    rc::{Rc, Weak},
    sync::Arc,
    time::Duration,
};

use apus_signal::dict::{Change, TableName};
use tokio::sync::oneshot;

use crate::{
    catalog::{Catalog, temporary},
    errors::Result,
    server::Registry,
    session::{
        engine::{Alive, SqlEngine},
        temporary::lock_of,
        user_lock::OwnLock,
    },
};

/// Between two looks.
const LOOK: Duration = Duration::from_secs(2);

impl SqlEngine {
    /// Looks from now on, until the value that is returned is dropped. Within a `LocalSet`.
    pub(crate) fn look_for_abandoned(self: &Rc<Self>, connections: &Arc<Registry>) -> Alive {
        let (alive, ended) = oneshot::channel();
        tokio::task::spawn_local(keep_looking(Rc::downgrade(self), connections.clone(), ended));
        alive
    }

    async fn drop_all_abandoned(&self, owners: &mut Owners, connections: &Arc<Registry>) -> Result<()> {
        let catalog = self.catalog_as_it_is().await?;
        self.drop_temporary_of_dead(&catalog, owners, connections).await?;
        if catalog.copies.hidden().next().is_none() && catalog.unfinished().next().is_none() {
            return Ok(());
        }
        self.drop_abandoned(&catalog, catalog.counters()?).await
    }
}

/// Owners of temporary tables, each with a lock that could be had if it were dead.
type Owners = BTreeMap<u64, OwnLock>;

impl SqlEngine {
    async fn drop_temporary_of_dead(
        &self,
        catalog: &Catalog,
        owners: &mut Owners,
        connections: &Arc<Registry>,
    ) -> Result<()> {
        let named: BTreeSet<u64> = catalog.temporary().keys().filter_map(|name| temporary::owner(name)).collect();
        owners.retain(|owner, _| named.contains(owner));
        for owner in named.into_iter().filter(|owner| !self.is_temporary_owner(*owner)) {
            let lock = owners.entry(owner).or_insert_with(|| lock_of(self, owner));
            if !lock.try_take(self, connections).await? {
                continue;
            }
            let is_its = |name: &&String| temporary::owner(name) == Some(owner);
            for name in catalog.temporary().keys().filter(is_its) {
                let name = TableName { database: temporary::DATABASE.to_owned(), table: name.clone(), version: 0 };
                // Somebody else may have dropped it by now.
                self.change(Change::DropTable(name)).await?;
            }
            lock.give_back(self).await?;
        }
        Ok(())
    }
}

async fn keep_looking(engine: Weak<SqlEngine>, connections: Arc<Registry>, mut ended: oneshot::Receiver<Infallible>) {
    let mut owners = Owners::new();
    while tokio::time::timeout(LOOK, &mut ended).await.is_err() {
        let Some(engine) = engine.upgrade() else { return };
        // What cannot be done now is done at the next look.
        let _ = engine.drop_all_abandoned(&mut owners, &connections).await;
    }
}
