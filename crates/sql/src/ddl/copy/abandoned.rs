//! Tables whose makers have died: copies, and what CREATE TABLE ... SELECT had begun to fill. Nobody sees them, and they take memory. Each SQL node looks for them.

use std::{convert::Infallible, rc::Rc, rc::Weak, time::Duration};

use tokio::sync::oneshot;

use crate::{
    errors::Result,
    session::engine::{Alive, SqlEngine},
};

/// Between two looks.
const LOOK: Duration = Duration::from_secs(2);

impl SqlEngine {
    /// Looks from now on, until the value that is returned is dropped. Within a `LocalSet`.
    pub(crate) fn look_for_abandoned(self: &Rc<Self>) -> Alive {
        let (alive, ended) = oneshot::channel();
        tokio::task::spawn_local(keep_looking(Rc::downgrade(self), ended));
        alive
    }

    async fn drop_all_abandoned(&self) -> Result<()> {
        let catalog = self.catalog_as_it_is().await?;
        if catalog.copies.hidden().next().is_none() && catalog.unfinished().next().is_none() {
            return Ok(());
        }
        self.drop_abandoned(&catalog, catalog.counters()?).await
    }
}

async fn keep_looking(engine: Weak<SqlEngine>, mut ended: oneshot::Receiver<Infallible>) {
    while tokio::time::timeout(LOOK, &mut ended).await.is_err() {
        let Some(engine) = engine.upgrade() else { return };
        // What cannot be done now is done at the next look.
        let _ = engine.drop_all_abandoned().await;
    }
}
