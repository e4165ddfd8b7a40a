//! Temporary tables: whose they are, and how they end.
//!
//! Their rows are in the data nodes, so that they are read, changed, indexed and undone as all rows are; they are on no disk. In the dictionary each is a table of a name that nobody can say
//! ([`crate::catalog::temporary`]). The session knows which of them it calls what ([`TemporaryTables`]), and sees the catalog with these in front. `docs/decisions/0052-temporary-tables.md`.
//!
//! A table that a session has no name for any more, because it was dropped or the session is over, waits in a queue of its thread until a task empties it for another session ([`spare`]) or drops it in the dictionary ([`SqlEngine::drop_left_tables`]). One that was
//! dropped in a transaction, which may have rows in it, waits for the end of that first. So neither the end of a connection nor DROP waits for a change of the dictionary.
//!
//! The owner of the tables is the thread, for as long as it holds a user lock that its tables' names say ([`Owner`]). When a SQL node dies, its lease ends, and others drop the tables whose lock can be had
//! ([`crate::ddl::copy`]). A SQL node that could not keep its lease must take its tables for gone: it ends the sessions that have some, rather than let their names mean permanent tables.
//!
//! Limits: [`OF_SESSION_MAX`], [`OF_CLUSTER_MAX`], [`LEFT_MAX`].

pub(crate) mod spare;

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    convert::Infallible,
    rc::{Rc, Weak},
    sync::Arc,
    time::Duration,
};

use apus_signal::{
    dict::{Change, TableName},
    schema::TableMessage,
};
use apus_types::{ErrorCode, TableId};
use tokio::sync::{
    Mutex, Notify,
    oneshot::{self, error::TryRecvError},
};

use self::spare::Spare;
use super::{
    Session,
    engine::{Alive, SqlEngine},
    user_lock::{self, OwnLock},
};
use crate::{
    catalog::{
        Catalog, Table,
        temporary::{self, Named, kept_name},
    },
    errors::{self, Result},
    parse::token::Name,
    server::Registry,
    wire::SqlError,
};

/// Temporary tables of one session.
pub const OF_SESSION_MAX: usize = 1000;
/// Temporary tables of all sessions of all SQL nodes: the dictionary has room for other tables, too.
pub const OF_CLUSTER_MAX: usize = 8000;
/// Tables of a thread that wait to be dropped; who makes another one waits, too.
pub const LEFT_MAX: usize = 64;

/// Between two attempts to drop a table.
const RETRY: Duration = Duration::from_millis(500);
/// Between two looks at how many wait.
const PAUSE: Duration = Duration::from_millis(50);

/// The lock that says that a thread lives; given back when its last table is gone.
pub struct Owner {
    pub id: u64,
    lock: OwnLock,
}

/// The lock of an owner.
pub(crate) fn lock_of(engine: &SqlEngine, owner: u64) -> OwnLock {
    OwnLock::new(engine.user_locks.clone(), user_lock::name_of(&format!("temporary tables of {owner:016x}")))
}

/// A table that is to be dropped.
struct Left {
    /// In the dictionary.
    kept_as: Option<String>,
    /// `None`: it may not be there.
    table: Option<Rc<Table>>,
    /// Lives as long as its tables.
    owner: Rc<Owner>,
}

/// What the temporary tables of all sessions of a thread have in common.
#[derive(Default)]
pub struct OfThread {
    owner: RefCell<Weak<Owner>>,
    /// One owner begins at a time.
    begins: Mutex<()>,
    /// The last number of a table, and of a set of tables.
    last: Cell<u64>,
    left: RefCell<VecDeque<Left>>,
    is_left: Notify,
    is_dropped: Notify,
    /// The oldest first.
    spare: RefCell<VecDeque<Spare>>,
    /// Of the tables that have not been altered.
    shapes: RefCell<BTreeMap<TableId, Rc<TableMessage>>>,
}

impl OfThread {
    fn next(&self) -> u64 {
        self.last.set(self.last.get() + 1);
        self.last.get()
    }
}

/// The temporary tables of a session.
pub struct TemporaryTables {
    named: Rc<Named>,
    /// Of this set of tables.
    number: u64,
    /// Of all of them; kept until the session ends.
    owner: Option<Rc<Owner>>,
    thread: Rc<OfThread>,
    /// The newest catalog, and how the session sees it.
    seen: RefCell<Option<(Rc<Catalog>, Rc<Catalog>)>>,
    /// Dropped in the open transaction.
    leaving: Vec<Left>,
    /// The open transaction has made some, dropped some.
    pub made: bool,
    pub dropped: bool,
}

impl TemporaryTables {
    pub fn new(thread: Rc<OfThread>) -> TemporaryTables {
        TemporaryTables {
            named: Rc::default(),
            number: 0,
            owner: None,
            thread,
            seen: RefCell::default(),
            leaving: Vec::new(),
            made: false,
            dropped: false,
        }
    }
    pub fn is_empty(&self) -> bool {
        self.named.is_empty()
    }
    pub fn find(&self, database: &str, name: &str) -> Option<&Rc<Table>> {
        // The key is a pair of owned strings.
        if self.is_empty() { None } else { self.named.get(&(database.to_owned(), name.to_owned())) }
    }

    /// By a name of a statement.
    pub fn find_named(&self, current: Option<&str>, (database, name): &Name) -> Option<&Rc<Table>> {
        self.find(database.as_deref().or(current)?, name)
    }
    /// One of them, also one that was dropped in the open transaction.
    pub fn has(&self, id: TableId) -> bool {
        self.named.values().any(|table| table.schema.id == id)
            || self.leaving.iter().filter_map(|left| left.table.as_ref()).any(|table| table.schema.id == id)
    }

    /// What the session sees of a catalog.
    pub fn over(&self, all: Rc<Catalog>) -> Rc<Catalog> {
        if self.is_empty() {
            return all;
        }
        let mut seen = self.seen.borrow_mut();
        match &*seen {
            Some((of, own)) if Rc::ptr_eq(of, &all) => own.clone(),
            _ => {
                let own = Rc::new(Catalog::with_own(&all, self.named.clone(), self.number));
                *seen = Some((all, own.clone()));
                own
            }
        }
    }

    fn change(&mut self) -> &mut Named {
        self.number = self.thread.next();
        self.seen.take();
        Rc::make_mut(&mut self.named)
    }

    /// The session has this table from now on, or knows it as it is now.
    pub fn put(&mut self, table: Rc<Table>) {
        let key = (table.schema.database.clone(), table.schema.name.clone());
        self.change().insert(key, table);
    }

    /// It has another name.
    pub fn rename(&mut self, from: &(String, String), (database, name): (&str, &str)) {
        let Some(table) = self.change().remove(from) else { return };
        self.put(Rc::new(table.called(database, name)));
    }

    /// The session has it no longer. `waits`: until the open transaction has ended.
    pub fn remove(&mut self, key: &(String, String), waits: bool) {
        let Some(table) = self.change().remove(key) else { return };
        let left = self.left(table);
        self.leaving.extend(left);
        if !waits {
            self.leave();
        }
    }

    /// A table of this name is nobody's, if it was made at all.
    pub fn leave_alone(&mut self, kept_as: String) {
        let owner = self.owner.clone();
        self.leaving.extend(owner.map(|owner| Left { kept_as: Some(kept_as), table: None, owner }));
        self.leave();
    }

    fn left(&self, table: Rc<Table>) -> Option<Left> {
        let (kept_as, owner) = (table.kept_as.as_deref().map(str::to_owned), self.owner.clone()?);
        Some(Left { kept_as, table: Some(table), owner })
    }

    /// What was dropped waits for nothing any more.
    fn leave(&mut self) {
        if !self.leaving.is_empty() {
            self.thread.left.borrow_mut().extend(self.leaving.drain(..));
            self.thread.is_left.notify_one();
        }
    }

    /// What ROLLBACK leaves as it is.
    pub fn stays(&self) -> impl Iterator<Item = SqlError> + use<> {
        let (made, dropped) = (self.made.then(errors::made_stay), self.dropped.then(errors::dropped_stay_so));
        made.into_iter().chain(dropped)
    }

    /// The transaction of the session has ended.
    pub fn end_transaction(&mut self) {
        (self.made, self.dropped) = (false, false);
        self.leave();
    }

    /// A statement begins. What was dropped by a part of the one before waits for no transaction.
    pub fn begin_statement(&mut self, in_transaction: bool) {
        if !in_transaction {
            self.leave();
        }
    }

    /// All are dropped.
    pub fn end(&mut self) {
        let all: Vec<Left> = self.named.values().filter_map(|table| self.left(table.clone())).collect();
        self.leaving.extend(all);
        self.change().clear();
        self.end_transaction();
    }
}

impl Drop for TemporaryTables {
    fn drop(&mut self) {
        self.end();
    }
}

impl SqlEngine {
    /// The catalog of the newest version, as the session sees it.
    pub(crate) async fn catalog_of(&self, session: &Session) -> Result<Rc<Catalog>> {
        Ok(session.temporary.over(self.catalog().await?))
    }

    /// The same, fetched whatever is known of it.
    pub(crate) async fn fetch_catalog_of(&self, session: &Session) -> Result<Rc<Catalog>> {
        Ok(session.temporary.over(self.fetch_catalog().await?))
    }

    /// A statement begins: whether a session that has temporary tables may believe in them.
    ///
    /// # Errors
    /// The lease of the SQL node is over; the connection ends.
    pub(crate) fn check_temporary_tables(&self, session: &mut Session) -> Result<()> {
        if session.temporary.owner.is_none() {
            return Ok(());
        }
        let in_transaction = session.in_transaction();
        session.temporary.begin_statement(in_transaction);
        let Some(owner) = session.temporary.owner.as_ref().filter(|_| !session.temporary.is_empty()) else {
            return Ok(());
        };
        if owner.lock.is_held() {
            return Ok(());
        }
        session.info.registry.kill(session.info.id);
        let text = "Connection was killed: it had temporary tables, and this SQL node could not reach the cluster to keep them";
        Err(SqlError::new(1927, b"70100", text))
    }

    /// Whether these are tables of this thread.
    pub(crate) fn is_temporary_owner(&self, owner: u64) -> bool {
        self.temporary.owner.borrow().upgrade().is_some_and(|own| own.id == owner && own.lock.is_held())
    }

    /// A name in the dictionary for another table of the session.
    ///
    /// # Errors
    /// There are too many; the cluster does not answer.
    pub(crate) async fn new_temporary_name(&self, session: &mut Session) -> Result<String> {
        let of_cluster = self.catalog().await?.temporary().len();
        if session.temporary.named.len() >= OF_SESSION_MAX || of_cluster >= OF_CLUSTER_MAX {
            let text = format!(
                "Too many temporary tables: a connection may have {OF_SESSION_MAX}, all connections together {OF_CLUSTER_MAX} (there are {of_cluster}); drop some of them first"
            );
            return Err(SqlError::new(errors::from_code(ErrorCode::TooManyTables, "").errno, b"HY000", text));
        }
        while self.temporary.left.borrow().len() >= LEFT_MAX {
            session.env.may_go_on()?;
            let _ = tokio::time::timeout(PAUSE, self.temporary.is_dropped.notified()).await;
        }
        // One that was lost has no tables any more.
        if session.temporary.owner.as_ref().is_none_or(|owner| !owner.lock.is_held()) {
            session.temporary.owner = Some(self.temporary_owner(&session.info.registry).await?);
        }
        let owner = session.temporary.owner.as_ref().map_or(0, |owner| owner.id);
        Ok(kept_name(owner, self.temporary.next()))
    }

    async fn temporary_owner(&self, connections: &Arc<Registry>) -> Result<Rc<Owner>> {
        let known = || self.temporary.owner.borrow().upgrade().filter(|owner| owner.lock.is_held());
        if let Some(owner) = known() {
            return Ok(owner);
        }
        let _turn = self.temporary.begins.lock().await;
        if let Some(owner) = known() {
            return Ok(owner);
        }
        let mut random = [0u8; 8];
        getrandom::fill(&mut random).map_err(|_| errors::internal("no entropy"))?;
        let id = u64::from_le_bytes(random);
        let mut lock = lock_of(self, id);
        if !lock.try_take(self, connections).await? {
            return Err(errors::internal("the lock of temporary tables is another's"));
        }
        let owner = Rc::new(Owner { id, lock });
        *self.temporary.owner.borrow_mut() = Rc::downgrade(&owner);
        Ok(owner)
    }

    /// Drops what sessions have left from now on, until the value that is returned is dropped. Within a `LocalSet`.
    pub(crate) fn drop_left_tables(self: &Rc<Self>) -> Alive {
        let (alive, ended) = oneshot::channel();
        tokio::task::spawn_local(keep_dropping(Rc::downgrade(self), self.temporary.clone(), ended));
        alive
    }

    /// A new table may stand for others of its shape when its session has left it.
    pub(crate) fn remember_shape(&self, id: TableId, shape: Rc<TableMessage>) {
        self.temporary.shapes.borrow_mut().insert(id, shape);
    }

    /// It is altered.
    pub(crate) fn forget_shape(&self, id: TableId) {
        self.temporary.shapes.borrow_mut().remove(&id);
    }

    /// What is known of a table goes with it.
    pub(crate) fn forget_table(&self, id: TableId) {
        self.forget_shape(id);
        self.auto_increment.end(id);
        self.catalog.borrow().statistics.forget(id);
    }
}

async fn keep_dropping(engine: Weak<SqlEngine>, thread: Rc<OfThread>, mut ended: oneshot::Receiver<Infallible>) {
    loop {
        let left = thread.left.borrow_mut().pop_front();
        let (left, is_spare) = match left.map_or_else(|| (thread.old_spare(), true), |left| (Some(left), false)) {
            (Some(left), is_spare) => (left, is_spare),
            (None, _) => {
                let is_over = async { _ = (&mut ended).await };
                let more = user_lock::first(thread.is_left.notified(), is_over);
                let _ = tokio::time::timeout(spare::SPARE_FOR / 4, more).await;
                if ended.try_recv() == Err(TryRecvError::Closed) {
                    return;
                }
                continue;
            }
        };
        let Some(engine) = engine.upgrade() else { return };
        if !is_spare && engine.keep_spare(&left).await {
            thread.is_dropped.notify_waiters();
            continue;
        }
        let table = left.kept_as.clone().unwrap_or_default();
        let name = TableName { database: temporary::DATABASE.to_owned(), table, version: 0 };
        match engine.client.schema_change(Change::DropTable(name)).await {
            Err(e) if e.code != ErrorCode::TableNotFound => {
                thread.left.borrow_mut().push_front(left);
                drop(engine);
                if tokio::time::timeout(RETRY, &mut ended).await.is_ok() {
                    return;
                }
            }
            _ => {
                left.table.iter().for_each(|table| engine.forget_table(table.schema.id));
                thread.is_dropped.notify_waiters();
            }
        }
    }
}
