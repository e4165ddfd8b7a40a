//! [`SqlEngine`]: what the statements of one worker thread have in common: the cluster's client, the catalog, plans, counters.
//!
//! Other rooms add what they do with it: each has its `impl SqlEngine`.

use std::convert::Infallible;
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
};
use tokio::sync::oneshot;

use apus_client::Client;

use super::{
    Session, account_store::AccountStore, peers::Peers, table_locks::TableLocks, temporary::OfThread as OfTemporary,
    user_lock::UserLocks,
};
use crate::{
    catalog::{Catalog, auto_increment::AutoIncrement},
    errors::{self, Result},
    monitor::{
        digests::OfThread,
        status::{Counter, Line, Status},
    },
    plan::cache::PlanCache,
    server::Accounts,
    variables::Globals,
    wire::SqlError,
};

/// Attempts of a statement that met a schema change or a failing node before anything of it was seen.
pub(crate) const ATTEMPTS_MAX: u32 = 10;

/// The engine of one worker thread.
pub struct SqlEngine {
    pub client: Client,
    pub(crate) catalog: RefCell<Rc<Catalog>>,
    pub(crate) plans: RefCell<PlanCache>,
    pub(crate) auto_increment: Arc<AutoIncrement>,
    pub(crate) globals: Arc<Globals>,
    /// What this thread counts of normal forms.
    pub(crate) digests: OfThread,
    /// `None`: nobody is refused anything.
    pub(crate) store: Option<Rc<AccountStore>>,
    /// Numbers the rights of sessions with roles.
    pub(crate) next_rights: Cell<u64>,
    pub(crate) user_locks: Arc<UserLocks>,
    pub(crate) table_locks: Arc<TableLocks>,
    pub(crate) temporary: Rc<OfTemporary>,
    /// What this thread counts for SHOW STATUS.
    counted: Arc<Line>,
    /// Its events run as long as this is there.
    pub(crate) events: RefCell<Option<Alive>>,
    /// Histograms are renewed as long as this is there.
    pub(crate) histograms: RefCell<Option<Alive>>,
    /// Tables that nobody makes any more are dropped as long as this is there.
    pub(crate) cleaner: RefCell<Option<Alive>>,
    /// Temporary tables that sessions have left are dropped as long as this is there.
    pub(crate) dropper: RefCell<Option<Alive>>,
    /// Other SQL nodes are answered as long as this is there.
    pub(crate) answering: RefCell<Option<Alive>>,
    /// When data nodes last said that they have no disks.
    pub(crate) found_diskless: Cell<Option<std::time::Instant>>,
}

impl SqlEngine {
    /// All but the client are shared by all threads of the SQL node.
    pub fn new(
        client: Client,
        auto_increment: Arc<AutoIncrement>,
        globals: Arc<Globals>,
        user_locks: Arc<UserLocks>,
        table_locks: Arc<TableLocks>,
    ) -> SqlEngine {
        let counted = globals.status.line();
        let digests = globals.digests.thread();
        SqlEngine {
            client,
            catalog: RefCell::new(Rc::new(Catalog::default())),
            plans: RefCell::new(PlanCache::default()),
            auto_increment,
            globals,
            digests,
            store: None,
            next_rights: Cell::new(0),
            user_locks,
            table_locks,
            temporary: Rc::default(),
            counted,
            events: RefCell::default(),
            histograms: RefCell::default(),
            cleaner: RefCell::default(),
            dropper: RefCell::default(),
            answering: RefCell::default(),
            found_diskless: Cell::new(None),
        }
    }

    /// Goes by the accounts of the cluster, and keeps the server's as they are there. Within a `LocalSet`.
    #[must_use]
    pub fn with_accounts(mut self, accounts: Accounts, peers: Arc<Peers>) -> SqlEngine {
        self.store = Some(AccountStore::start(self.client.clone(), accounts, self.globals.clone(), peers));
        self
    }

    /// The catalog of the newest version.
    pub(crate) async fn catalog(&self) -> Result<Rc<Catalog>> {
        let current = self.catalog.borrow().clone();
        if current.is_current(&self.client) && !current.copies.are_pending() {
            return Ok(current);
        }
        self.fetch_catalog().await
    }

    /// As above, whatever somebody has left in it.
    pub(crate) async fn catalog_as_it_is(&self) -> Result<Rc<Catalog>> {
        let current = self.catalog.borrow().clone();
        if current.is_current(&self.client) { Ok(current) } else { self.read_catalog().await }
    }

    /// Fetches the dictionary whatever is known of it, and ends what somebody has left in it.
    pub(crate) async fn fetch_catalog(&self) -> Result<Rc<Catalog>> {
        let catalog = self.read_catalog().await?;
        if catalog.copies.are_none() { Ok(catalog) } else { Box::pin(self.finish_copies(catalog)).await }
    }

    pub(crate) async fn read_catalog(&self) -> Result<Rc<Catalog>> {
        // No dictionary has this version, so the whole one is sent.
        let dictionary = self.client.dictionary(u64::MAX).await.map_err(|e| errors::from_client(&e))?;
        let Some(dictionary) = dictionary else { return Ok(self.catalog.borrow().clone()) };
        let catalog = Rc::new(Catalog::from_dictionary(&dictionary, &self.catalog.borrow())?);
        self.counted.add(Counter::Opened, catalog.opened);
        *self.catalog.borrow_mut() = catalog.clone();
        Ok(catalog)
    }

    /// A catalog that has this table or view, if there is one for the session.
    pub(crate) async fn catalog_with(&self, session: &Session, database: &str, name: &str) -> Result<Rc<Catalog>> {
        let catalog = self.catalog_of(session).await?;
        match catalog.columns_of(database, name) {
            Err(e) if self.has_news(&e).await => self.catalog_of(session).await,
            _ => Ok(catalog),
        }
    }

    /// Whether the dictionary is another one than a statement was refused by that names what is not there: another SQL node may have made it just now, and the news of it
    /// is under way.
    pub(crate) async fn has_news(&self, refused: &SqlError) -> bool {
        if !matches!(refused.errno, 1049 | 1146 | 1305 | 1356) {
            return false;
        }
        let known = self.catalog.borrow().version;
        match self.client.dictionary(known).await {
            Ok(Some(dictionary)) if dictionary.version > known => self.fetch_catalog().await.is_ok(),
            _ => false,
        }
    }

    pub(crate) fn count(&self, session: &mut Session, what: Counter) {
        session.counts[what as usize] += 1;
        self.counted.count(what);
    }

    pub(crate) fn count_by(&self, session: &mut Session, at: usize, times: u64) {
        session.counts[at] += times;
        self.counted.add_at(at, times);
    }

    pub(crate) fn status_of_node(&self) -> &Status {
        &self.globals.status
    }
}

/// Ends with the engine that holds it.
pub type Alive = oneshot::Sender<Infallible>;
