//! FLUSH TABLES WITH READ LOCK, FLUSH TABLES ... WITH READ LOCK and LOCK INSTANCE FOR BACKUP: a session keeps all SQL nodes of the cluster from writing, or from defining.
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

use std::time::{Duration, Instant};

use apus_types::ErrorCode;

use super::{
    Session,
    engine::SqlEngine,
    user_lock::{self, OwnLock},
};
use crate::{
    errors::{self, Result},
    plan::Plan,
    wire::SqlError,
};

/// Between two looks at whether who has a lock still lives.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(100);
/// Locks at a time, of the whole cluster.
pub const LOCKS_MAX: usize = 64;
/// Tables of one lock.
const TABLES_MAX: usize = 4096;

/// A table by its database and its name.
pub type TableName = (String, String);

/// What a lock keeps others from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kept {
    /// Writing rows and defining.
    Everything,
    /// The same with these tables.
    Tables(Vec<TableName>),
    /// Defining.
    Definitions,
}

impl Kept {
    pub fn has_table(&self, database: &str, table: &str) -> bool {
        match self {
            Kept::Everything => true,
            Kept::Tables(list) => list.iter().any(|(d, t)| d == database && t == table),
            Kept::Definitions => false,
        }
    }
    pub fn has_database(&self, database: &str) -> bool {
        match self {
            Kept::Everything | Kept::Definitions => true,
            Kept::Tables(list) => list.iter().any(|(d, _)| d == database),
        }
    }
}

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
            Kept::Everything => ("everything", &[][..]),
            Kept::Tables(tables) => ("tables", tables.as_slice()),
            Kept::Definitions => ("definitions", &[][..]),
        };
        push(kind);
        push(&tables.len().to_string());
        for (database, table) in tables {
            push(database);
            push(table);
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
            "tables" => Kept::Tables(tables),
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
        if matches!(&kept, Kept::Tables(tables) if tables.len() > TABLES_MAX) {
            return Err(errors::not_supported(&format!("a read lock of more than {TABLES_MAX} tables")));
        }
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
        tokio::time::sleep(super::account_store::SETTLED).await;
        // What data nodes were committing is done by then.
        self.client.snapshot().await.map_err(|e| errors::from_client(&e))?;
        Ok(())
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
    /// 1223: one of the session's own is. 1205: as long as `lock_wait_timeout` says. The cluster does not answer.
    pub(crate) async fn wait_for_read_locks(
        &self,
        session: &mut Session,
        is_in_the_way: impl Fn(&Kept) -> bool,
    ) -> Result<()> {
        if session.read_locks.iter().any(|lock| lock.kept == Kept::Everything && is_in_the_way(&lock.kept)) {
            return Err(errors::conflicting_read_lock());
        }
        let Some(store) = &self.store else { return Ok(()) };
        let started = Instant::now();
        let (mut pause, mut waited): (_, Option<OwnLock>) = (PAUSE_MIN, None);
        loop {
            if !store.accounts.is_fresh() {
                store.look().await?;
            }
            let locks = if store.accounts.has_read_locks() { read(&store.accounts.read_locks()) } else { Vec::new() };
            let is_own = |lock: &ReadLock| session.read_locks.iter().any(|own| own.name == lock.name);
            let Some(lock) = locks.into_iter().find(|lock| is_in_the_way(&lock.kept) && !is_own(lock)) else {
                return Ok(());
            };
            session.env.may_go_on()?;
            if started.elapsed() > Duration::from_secs(session.env.variables.definition_wait) {
                return Err(errors::from_code(ErrorCode::LockTimeout, ""));
            }
            let before = waited.take().filter(|held| held.name() == lock.name);
            let mut held = before.unwrap_or_else(|| OwnLock::new(self.user_locks.clone(), lock.name.clone()));
            if held.try_take(self, &session.info.registry).await? {
                // Its session is gone.
                self.forget_read_lock(&lock.name).await?;
                held.give_back(self).await?;
                continue;
            }
            waited = Some(held);
            let _ = tokio::time::timeout(pause, session.env.stopped()).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Before a statement that changes rows, or locks them to change them.
    ///
    /// # Errors
    /// As [`wait_for_read_locks`](Self::wait_for_read_locks).
    #[cold]
    pub(crate) async fn wait_to_write(&self, session: &mut Session, plan: &Plan) -> Result<()> {
        let is_locking = plan.reading().and_then(|select| select.lock.as_ref()).is_some_and(|lock| lock.exclusive);
        let schemas = || plan.written().chain(plan.tables().filter(|_| is_locking)).map(|table| &table.schema);
        let waited = self.wait_for_read_locks(session, |kept| schemas().any(|t| kept.has_table(&t.database, &t.name)));
        match waited.await {
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
        self.wait_for_read_locks(session, |kept| !matches!(kept, Kept::Tables(_))).await
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
    matches!(error.errno, 1205 | 1223 | 1317 | 3024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_read_as_they_were_written() {
        let table = |d: &str, t: &str| (d.to_owned(), t.to_owned());
        let lock = |name: &str, kept| ReadLock { name: name.into(), kept };
        let locks = [
            lock("a", Kept::Everything),
            lock("b", Kept::Tables(vec![table("shop", "o\tx\n"), table("", "t")])),
            lock("c", Kept::Definitions),
            lock("d", Kept::Tables(Vec::new())),
        ];
        assert_eq!(read(&written(&locks)), locks);
        assert_eq!(read(b""), []);
        assert_eq!(read(b"e\0of a later build\x000\0"), [lock("e", Kept::Everything)]);
        assert!(locks[1].kept.has_table("", "t") && !locks[1].kept.has_table("shop", "t"));
        assert!(!locks[2].kept.has_table("shop", "t") && locks[2].kept.has_database("shop"));
    }

    #[test]
    fn any_bytes_are_read() {
        for bytes in [&b"\0\0\0"[..], b"a\0tables\x0099999999\0x", b"\xff\0\xfe", b"a\0tables"] {
            let _ = read(bytes);
        }
    }
}
