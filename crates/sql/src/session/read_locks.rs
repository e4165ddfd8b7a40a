//! FLUSH TABLES WITH READ LOCK and LOCK INSTANCE FOR BACKUP: a session keeps all SQL nodes of the cluster from writing, or from defining. LOCK TABLES ([`super::table_locks`]) stands in the same list.
//!
//! A read lock is known to SQL nodes in the way accounts are: it stands in the row that counts the versions of accounts ([`super::account_store`]), which every SQL node reads five times a second, and
//! by which it goes for 400 ms at most. So a session that has a lock is answered half a second after its lock was written: by then no SQL node begins a statement that writes, or a COMMIT,
//! without knowing of it. Those that begin later wait.
//!
//! That its session lives is what a user lock of a name of its own says ([`super::user_lock`]). It is given back with the session, or ends with the lease of its SQL node. Who waits tries to
//! take that user lock; who gets it takes the read lock out of the list. So the list may have locks of sessions that are gone, until somebody would have to wait for one.
//!
//! A transaction that has written when the lock is taken waits at its COMMIT, as in MySQL. What was on its way to the data nodes when the lock was taken has half a second to get there; then a snapshot is taken, which waits for
//! what data nodes are committing. `docs/decisions/0048-read-locks.md`.

use std::{
    rc::Rc,
    time::{Duration, Instant},
};

use apus_types::ErrorCode;

use super::{
    Session,
    engine::SqlEngine,
    user_lock::{self, OwnLock},
};
use crate::{
    catalog::Table,
    errors::{self, Result},
    plan::Plan,
    wire::SqlError,
};

/// Between two looks at whether who has a lock still lives.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(100);
/// Locks at a time, of the whole cluster.
pub const LOCKS_MAX: usize = 64;
/// Tables that a SQL node lists.
pub const TABLES_MAX: usize = 4096;

/// What a lock keeps others from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kept {
    /// Writing rows and defining.
    Everything,
    /// Tables that sessions of a SQL node have locked, or may.
    Node(OfNode),
    /// Defining.
    Definitions,
}

impl Kept {
    /// Nobody else may change the table.
    pub fn has_table(&self, database: &str, table: &str) -> bool {
        match self {
            Kept::Everything => true,
            Kept::Node(node) => node.has(database, table, false),
            Kept::Definitions => false,
        }
    }
    /// Nobody else may read it.
    pub fn has_hidden(&self, database: &str, table: &str) -> bool {
        matches!(self, Kept::Node(node) if node.has(database, table, true))
    }
    pub fn has_database(&self, database: &str) -> bool {
        match self {
            Kept::Everything | Kept::Definitions => true,
            Kept::Node(node) => {
                node.databases.iter().any(|d| d == database) || node.tables.iter().any(|(d, ..)| d == database)
            }
        }
    }
}

/// What the sessions of one SQL node keep from those of others.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct OfNode {
    /// All of it, for sessions of the node lock its tables one after the other, and tell nobody.
    pub databases: Vec<String>,
    /// Others wait for one of these databases: the node lists tables instead, as soon as it has heard of it.
    pub is_wanted: bool,
    /// Database, name, and whether others may not read them either.
    pub tables: Vec<(String, String, bool)>,
}

impl OfNode {
    pub fn is_empty(&self) -> bool {
        self.databases.is_empty() && self.tables.is_empty()
    }
    pub fn has(&self, database: &str, table: &str, is_hidden: bool) -> bool {
        self.databases.iter().any(|d| d == database)
            || self.tables.iter().any(|(d, t, hidden)| d == database && t == table && (*hidden || !is_hidden))
    }
    pub fn add(&mut self, database: &str, table: &str, is_hidden: bool) {
        match self.tables.iter_mut().find(|(d, t, _)| d == database && t == table) {
            Some((_, _, hidden)) => *hidden |= is_hidden,
            None => self.tables.push((database.to_owned(), table.to_owned(), is_hidden)),
        }
    }
    /// As fields: a database alone has no name of a table, and before other names stands whether they may be read.
    fn fields(&self) -> Vec<(&str, String)> {
        let databases = self.databases.iter().map(|d| (d.as_str(), String::new()));
        let table = |(_, t, hidden): &(String, String, bool)| format!("{}{t}", if *hidden { HIDDEN } else { SHOWN });
        databases.chain(self.tables.iter().map(|listed| (listed.0.as_str(), table(listed)))).collect()
    }
    fn of_fields(is_wanted: bool, fields: Vec<(String, String)>) -> OfNode {
        let mut node = OfNode { is_wanted, ..OfNode::default() };
        for (database, table) in fields {
            match table.chars().next() {
                None => node.databases.push(database),
                Some(mark) => node.add(&database, &table[mark.len_utf8()..], mark != SHOWN),
            }
        }
        node
    }
}

const HIDDEN: char = 'w';
const SHOWN: char = 'r';

/// A read lock of some session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadLock {
    /// Of the user lock that lives as long as the session.
    pub name: String,
    pub kept: Kept,
}

/// The locks of the cluster, as they are written: fields that end with a zero byte, which no name has. Of each lock its name, what it keeps, and how many tables follow.
pub fn written(locks: &[ReadLock]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut push = |field: &str| {
        out.extend_from_slice(field.as_bytes());
        out.push(0);
    };
    for lock in locks {
        push(&lock.name);
        let (kind, tables) = match &lock.kept {
            Kept::Everything => ("everything", Vec::new()),
            Kept::Node(node) => (if node.is_wanted { "wanted" } else { "node" }, node.fields()),
            Kept::Definitions => ("definitions", Vec::new()),
        };
        push(kind);
        push(&tables.len().to_string());
        for (database, table) in tables {
            push(database);
            push(&table);
        }
    }
    out
}

/// What [`written`] has written. A lock of a kind that is not known keeps from everything.
pub fn read(bytes: &[u8]) -> Vec<ReadLock> {
    let mut fields = bytes.split(|b| *b == 0).map(|field| String::from_utf8_lossy(field).into_owned());
    let mut locks = Vec::new();
    while let (Some(name), Some(kind)) = (fields.next().filter(|name| !name.is_empty()), fields.next()) {
        let count = fields.next().and_then(|count| count.parse().ok()).unwrap_or(0);
        let tables = (0..count).map_while(|_| Some((fields.next()?, fields.next()?))).take(TABLES_MAX).collect();
        let kept = match kind.as_str() {
            "node" | "wanted" => Kept::Node(OfNode::of_fields(kind == "wanted", tables)),
            "definitions" => Kept::Definitions,
            _ => Kept::Everything,
        };
        locks.push(ReadLock { name, kept });
    }
    locks
}

impl SqlEngine {
    /// Takes a lock for a session, and waits until all SQL nodes go by it.
    ///
    /// # Errors
    /// 1235: there are too many. The cluster does not answer.
    pub(crate) async fn take_read_lock(&self, session: &mut Session, kept: Kept) -> Result<()> {
        let Some(store) = &self.store else { return Err(errors::not_supported("read locks without accounts")) };
        let name = user_lock::own_name()?;
        if !self.get_lock(session, &name, 0).await? {
            return Err(errors::internal("a read lock that is taken"));
        }
        let lock = ReadLock { name, kept };
        session.read_locks.push(lock.clone());
        let taken = store.change_read_locks(|locks| {
            if locks.len() >= LOCKS_MAX {
                return Err(errors::not_supported(&format!("more than {LOCKS_MAX} read locks at a time")));
            }
            if !locks.contains(&lock) {
                locks.push(lock.clone());
            }
            Ok(())
        });
        if let Err(e) = taken.await {
            self.end_read_locks(session, |own| own.name == lock.name).await?;
            return Err(e);
        }
        let settled = async {
            tokio::time::sleep(super::account_store::SETTLED).await;
            if lock.kept == Kept::Everything {
                // Nobody gets such a lock any more.
                let may_write = |kept: &Kept| match kept {
                    Kept::Node(node) => !node.databases.is_empty() || node.tables.iter().any(|(.., hidden)| *hidden),
                    _ => false,
                };
                self.wait_for_read_locks(session, may_write).await?;
            }
            // What data nodes were committing is done by then.
            self.client.snapshot().await.map(|_| ()).map_err(|e| errors::from_client(&e))
        };
        match settled.await {
            Err(e) => {
                self.end_read_locks(session, |own| own.name == lock.name).await?;
                Err(e)
            }
            done => done,
        }
    }

    /// Gives locks of a session back.
    ///
    /// # Errors
    /// The cluster does not answer. The lock ends all the same, as that of a session that is gone.
    pub(crate) async fn end_read_locks(
        &self,
        session: &mut Session,
        is_meant: impl Fn(&ReadLock) -> bool,
    ) -> Result<()> {
        let (ended, left) = std::mem::take(&mut session.read_locks).into_iter().partition(|lock| is_meant(lock));
        session.read_locks = left;
        let ended: Vec<ReadLock> = ended;
        for lock in ended {
            let removed = self.forget_read_lock(&lock.name).await;
            self.release_lock(session, &lock.name).await?;
            removed?;
        }
        Ok(())
    }

    async fn forget_read_lock(&self, name: &str) -> Result<()> {
        let Some(store) = &self.store else { return Ok(()) };
        store
            .change_read_locks(|locks| {
                locks.retain(|lock| lock.name != name);
                Ok(())
            })
            .await
    }

    /// Whether there may be locks. What is known may be so old that a COMMIT has to look first.
    #[inline]
    pub(crate) fn may_be_read_locked(&self) -> bool {
        self.store.as_ref().is_some_and(|store| store.accounts.has_read_locks() || !store.accounts.is_fresh())
    }

    /// Waits until no lock is in the way.
    ///
    /// # Errors
    /// 1223: one of the session's own is. 1205: as long as `lock_wait_timeout` says. 1213: another SQL node has locked what the open transaction has written. The cluster does not answer.
    pub(crate) async fn wait_for_read_locks(
        &self,
        session: &mut Session,
        is_in_the_way: impl Fn(&Kept) -> bool,
    ) -> Result<()> {
        if session.read_locks.iter().any(|lock| lock.kept == Kept::Everything && is_in_the_way(&lock.kept)) {
            return Err(errors::conflicting_read_lock());
        }
        let started = Instant::now();
        loop {
            self.wait_for_tables_here(session, &is_in_the_way, started).await?;
            if !self.wait_elsewhere(session, &is_in_the_way, started).await? {
                return Ok(());
            }
        }
    }

    /// As above, of locks that stand in the list. Whether there was one.
    pub(crate) async fn wait_elsewhere(
        &self,
        session: &mut Session,
        is_in_the_way: &impl Fn(&Kept) -> bool,
        started: Instant,
    ) -> Result<bool> {
        let (mut pause, mut waited): (_, Option<OwnLock>) = (PAUSE_MIN, None);
        let mut has_waited = false;
        loop {
            let Some(store) = &self.store else { return Ok(false) };
            if !store.accounts.is_fresh() {
                store.look().await?;
            }
            let locks = if store.accounts.has_read_locks() { read(&store.accounts.read_locks()) } else { Vec::new() };
            let of_node = if locks.is_empty() { None } else { self.table_locks.entry_name() };
            let is_own = |lock: &ReadLock| {
                of_node.as_ref() == Some(&lock.name) || session.read_locks.iter().any(|own| own.name == lock.name)
            };
            let Some(lock) = locks.into_iter().find(|lock| is_in_the_way(&lock.kept) && !is_own(lock)) else {
                return Ok(has_waited);
            };
            has_waited = true;
            session.env.may_go_on()?;
            if started.elapsed() > Duration::from_secs(session.env.variables.definition_wait) {
                return Err(errors::from_code(ErrorCode::LockTimeout, ""));
            }
            if let Kept::Node(node) = &lock.kept {
                self.give_way(session, &lock.name, node).await?;
            }
            let before = waited.take().filter(|held| held.name() == lock.name);
            let mut held = before.unwrap_or_else(|| OwnLock::new(self.user_locks.clone(), lock.name.clone()));
            if held.try_take(self, &session.info.registry).await? {
                // Its session, or its SQL node, is gone.
                self.forget_read_lock(&lock.name).await?;
                held.give_back(self).await?;
                continue;
            }
            waited = Some(held);
            let _ = tokio::time::timeout(pause, session.env.stopped()).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Before a statement with tables.
    ///
    /// # Errors
    /// As [`wait_for_read_locks`](Self::wait_for_read_locks).
    #[cold]
    pub(crate) async fn wait_to_use(&self, session: &mut Session, plan: &Plan) -> Result<()> {
        let is_locking = plan.reading().and_then(|select| select.lock.as_ref()).is_some_and(|lock| lock.exclusive);
        let is_kept = |kept: &Kept| {
            let is_shared = |table: &&Rc<Table>| !table.is_temporary();
            let written = plan.written().chain(plan.tables().filter(|_| is_locking)).filter(is_shared);
            written.map(|table| &table.schema).any(|t| kept.has_table(&t.database, &t.name))
                || plan.tables().filter(is_shared).any(|t| kept.has_hidden(&t.schema.database, &t.schema.name))
        };
        match self.wait_for_read_locks(session, is_kept).await {
            // What became of an open transaction is for its statement to say; COMMIT looks again.
            Err(e) if session.has_begun() && !is_of_locks(&e) => Ok(()),
            waited => waited,
        }
    }

    /// Before a definition.
    ///
    /// # Errors
    /// As [`wait_for_read_locks`](Self::wait_for_read_locks).
    pub(crate) async fn wait_to_define(&self, session: &mut Session) -> Result<()> {
        self.wait_for_read_locks(session, |kept| !matches!(kept, Kept::Node(_))).await
    }

    /// Before a definition that belongs to a table.
    ///
    /// # Errors
    /// As [`wait_for_read_locks`](Self::wait_for_read_locks). 1100, 1099: the session has locked others, or this one to be read.
    pub(crate) async fn wait_to_define_on(&self, session: &mut Session, database: &str, table: &str) -> Result<()> {
        match &session.locked {
            Some(locked) => {
                locked.check_definition(database, table)?;
                self.wait_to_define(session).await
            }
            None => {
                let is_kept = |kept: &Kept| !matches!(kept, Kept::Node(_)) || kept.has_table(database, table);
                self.wait_for_read_locks(session, is_kept).await
            }
        }
    }

    /// Before what a transaction has written is committed.
    ///
    /// # Errors
    /// As [`wait_for_read_locks`](Self::wait_for_read_locks). If the cluster does not answer the transaction is rolled back: 1213.
    #[cold]
    pub(crate) async fn wait_to_commit(&self, session: &mut Session) -> Result<()> {
        let waited = match self.catalog().await {
            Ok(catalog) => {
                let tables = catalog.names_of(&session.wrote);
                if session.locked.as_ref().is_some_and(|locked| locked.may_write(&tables)) {
                    // Whoever wants to keep others from writing waits for UNLOCK TABLES.
                    return self.check_table_locks(session);
                }
                self.wait_for_read_locks(session, |kept| tables.iter().any(|(d, t)| kept.has_table(d, t))).await
            }
            Err(e) => Err(e),
        };
        match waited {
            Err(e) if !is_of_locks(&e) => {
                if let Some(mut transaction) = session.transaction.take() {
                    let _ = transaction.rollback().await;
                }
                session.forget_transaction();
                Err(errors::from_code(
                    ErrorCode::Deadlock,
                    &format!("rolled back, for nobody could tell whether a read lock is held: {}", e.message),
                ))
            }
            waited => waited,
        }
    }
}

/// A lock is in the way, or the statement was told to end; anything else is the cluster's.
fn is_of_locks(error: &SqlError) -> bool {
    matches!(error.errno, 1205 | 1213 | 1223 | 1317 | 3024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_read_as_they_were_written() {
        let table = |d: &str, t: &str, hidden| (d.to_owned(), t.to_owned(), hidden);
        let lock = |name: &str, kept| ReadLock { name: name.into(), kept };
        let locks = [
            lock("a", Kept::Everything),
            lock(
                "b",
                Kept::Node(OfNode {
                    tables: vec![table("shop", "o\tx\n", true), table("", "t", false)],
                    ..OfNode::default()
                }),
            ),
            lock("c", Kept::Definitions),
            lock("d", Kept::Node(OfNode { databases: vec!["all".into()], is_wanted: true, ..OfNode::default() })),
            lock("e", Kept::Node(OfNode::default())),
        ];
        assert_eq!(read(&written(&locks)), locks);
        assert_eq!(read(b""), []);
        assert_eq!(read(b"e\0of a later build\x000\0"), [lock("e", Kept::Everything)]);
        assert!(locks[1].kept.has_table("", "t") && !locks[1].kept.has_table("shop", "t"));
        assert!(!locks[1].kept.has_hidden("", "t") && locks[1].kept.has_hidden("shop", "o\tx\n"));
        assert!(locks[3].kept.has_hidden("all", "t") && locks[3].kept.has_database("all"));
        assert!(!locks[2].kept.has_table("shop", "t") && locks[2].kept.has_database("shop"));
    }

    #[test]
    fn any_bytes_are_read() {
        for bytes in [&b"\0\0\0"[..], b"a\0node\x0099999999\0x", b"\xff\0\xfe", b"a\0node", b"a\0node\x001\0d\0\xc3\0"]
        {
            let _ = read(bytes);
        }
    }
}
