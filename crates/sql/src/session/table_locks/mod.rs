//! LOCK TABLES: a session keeps all others of the cluster from writing tables, or from reading them as well.
//!
//! Sessions of one SQL node find out from each other what they use and lock ([`here`]). What the sessions of a SQL node keep from all others is one entry in the list of read locks ([`super::read_locks`]), which
//! costs half a second to become known. So it names whole databases: their tables can be locked and unlocked here, one after the other as a dump does it, and nobody has to hear of it.
//! A session of another SQL node that waits for such a database says so in the entry. The SQL node answers within a fifth of a second: the entry names the tables then that are locked, and for a minute
//! every lock is written, and waited for. Without a lock for ten seconds the entry ends.
//!
//! The entry lives as long as the lease of its SQL node ([`super::user_lock`]). A session whose SQL node could not keep it finds that out at its next statement, and ends.
//!
//! A transaction of another SQL node that has written a table is not waited for: it is rolled back at its next statement or COMMIT that finds the lock (1213), or runs again if it was a statement alone. `docs/decisions/0050-lock-tables.md`.

mod here;

use std::{
    rc::{Rc, Weak},
    sync::Arc,
    time::{Duration, Instant},
};

use apus_types::ErrorCode;

use super::{
    Session,
    account_store::{AccountStore, SETTLED},
    engine::SqlEngine,
    read_locks::{Kept, LOCKS_MAX, OfNode, ReadLock, TABLES_MAX, read},
    user_lock::{self, OwnLock},
};
use crate::{
    catalog::{Table, grant_tables, information_schema::is_virtual},
    errors::{self, Result},
    plan::{Plan, needs::Reference},
    wire::SqlError,
};
pub use here::{LockedTable, TableLocks, Uses};

/// Between two looks at what is used here; who waits is told before.
const PAUSE: Duration = Duration::from_millis(100);
/// Between two looks at whether the entry can be less.
const TEND_EVERY: Duration = Duration::from_millis(100);

/// A table or view of LOCK TABLES.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Locked {
    pub database: String,
    pub name: String,
    /// How statements have to call it.
    pub alias: String,
    pub writes: bool,
    pub is_view: bool,
}

/// What LOCK TABLES has given a session.
#[derive(Default, Debug)]
pub struct LockTables {
    /// What it has named.
    pub named: Vec<Locked>,
    /// All tables, also those that views, triggers and foreign keys use.
    pub tables: Vec<LockedTable>,
}

impl LockTables {
    /// # Errors
    /// 1100, 1099: a statement uses what is not locked, or changes what is locked to be read.
    pub fn check(&self, plan: &Plan) -> Result<()> {
        let locks_rows = plan.reading().and_then(|select| select.lock.as_ref()).is_some_and(|lock| lock.exclusive);
        let mut used = vec![false; self.named.len()];
        for reference in &plan.names().references {
            if is_free(plan, reference) {
                continue;
            }
            let writes = self.find(reference, &mut used).ok_or_else(|| errors::not_locked(&reference.alias))?;
            if !writes && (reference.writes || locks_rows) {
                return Err(errors::locked_to_read(&reference.alias));
            }
        }
        // What stands beneath views.
        for table in plan.written().filter(|table| !table.is_temporary()) {
            let schema = &table.schema;
            let is_it = |l: &&LockedTable| l.database == schema.database && l.name == schema.name;
            let mut locked = self.tables.iter().filter(is_it).peekable();
            if locked.peek().is_some() && !locked.any(|l| l.writes) {
                return Err(errors::locked_to_read(&schema.name));
            }
        }
        Ok(())
    }

    /// Whether what a statement names is locked to be written; `None`: it is not locked. Each lock is for one place of a statement.
    fn find(&self, reference: &Reference, used: &mut [bool]) -> Option<bool> {
        let is_same = |database: &str, name: &str| database == reference.database && name == reference.table;
        let is_it =
            |l: &Locked| is_same(&l.database, &l.name) && (l.is_view || l.alias.eq_ignore_ascii_case(&reference.alias));
        let fits = |at: &usize| is_it(&self.named[*at]) && (self.named[*at].is_view || !used[*at]);
        if let Some(at) = (0..self.named.len()).find(fits) {
            used[at] = true;
            return Some(self.named[at].writes || self.named[at].is_view);
        }
        // What is locked with another one is called by its own name.
        let is_implied = !self.named.iter().any(|l| is_same(&l.database, &l.name))
            && reference.alias.eq_ignore_ascii_case(&reference.table);
        self.tables.iter().find(|l| is_implied && is_same(&l.database, &l.name)).map(|l| l.writes)
    }

    /// # Errors
    /// 1100, 1099: a definition of a table that is not locked to be written.
    pub fn check_definition(&self, database: &str, name: &str) -> Result<()> {
        let is_it = |l: &&Locked| l.database == database && l.name == name;
        let locked: Vec<&Locked> = self.named.iter().filter(is_it).collect();
        match locked.iter().any(|l| l.writes) {
            true => Ok(()),
            false if locked.is_empty() => Err(errors::not_locked(name)),
            false => Err(errors::locked_to_read(name)),
        }
    }

    /// A table has another name now, or none. An alias stays that it was given.
    pub fn rename(&mut self, from: &(String, String), to: Option<&(String, String)>) {
        let Some((database, name)) = to else {
            self.named.retain(|l| (&l.database, &l.name) != (&from.0, &from.1));
            return self.tables.retain(|l| (&l.database, &l.name) != (&from.0, &from.1));
        };
        for l in self.named.iter_mut().filter(|l| (&l.database, &l.name) == (&from.0, &from.1)) {
            if l.alias.eq_ignore_ascii_case(&l.name) {
                l.alias.clone_from(name);
            }
            (l.database, l.name) = (database.clone(), name.clone());
        }
        for l in self.tables.iter_mut().filter(|l| (&l.database, &l.name) == (&from.0, &from.1)) {
            (l.database, l.name) = (database.clone(), name.clone());
        }
    }

    /// Whether these tables are locked to be written.
    pub fn may_write(&self, names: &[(String, String)]) -> bool {
        names
            .iter()
            .all(|(database, name)| self.tables.iter().any(|l| l.writes && l.database == *database && l.name == *name))
    }

    /// # Errors
    /// 1100: something that a plan uses is not locked.
    fn check_all(&self, plan: &Plan) -> Result<()> {
        let is_locked = |table: &Table| {
            let schema = &table.schema;
            is_virtual(schema)
                || table.is_temporary()
                || self.tables.iter().any(|l| l.database == schema.database && l.name == schema.name)
        };
        match plan.tables().find(|table| !is_locked(table)) {
            Some(table) => Err(errors::not_locked(&table.schema.name)),
            None => Ok(()),
        }
    }
}

/// What is used without a lock: temporary tables, and tables whose rows are made when they are read. The grant tables are none of these, as in MySQL.
fn is_free(plan: &Plan, reference: &Reference) -> bool {
    let is_it = |t: &&Rc<Table>| t.schema.database == reference.database && t.schema.name == reference.table;
    reference.database != grant_tables::DATABASE
        && plan.tables().find(is_it).is_some_and(|t| t.is_temporary() || is_virtual(&t.schema))
}

impl Session {
    /// # Errors
    /// 1192: LOCK TABLES has locked some.
    pub(crate) fn check_no_locked_tables(&self) -> Result<()> {
        if self.locked.is_some() { Err(errors::locked_tables()) } else { Ok(()) }
    }
    /// A statement has ended, or what was run for one; not a part of one.
    pub fn end_use(&mut self) {
        if self.within == 0 {
            self.uses.end_statement(self.in_transaction());
        }
    }
}

impl SqlEngine {
    /// A statement is about to be run: others see what it uses, and it waits for what is locked.
    ///
    /// # Errors
    /// As [`LockTables::check`] and [`wait_to_use`](Self::wait_to_use).
    #[inline]
    pub(crate) async fn begin_use(&self, session: &mut Session, plan: &Plan) -> Result<()> {
        if plan.tables().next().is_none() {
            return Ok(());
        }
        let read = plan.tables().map(|table| (&**table, false));
        session.uses.begin(&self.table_locks, read.chain(plan.written().map(|table| (&**table, true))));
        if session.locked.is_none() && !self.table_locks.is_any() && !self.may_be_read_locked() {
            return Ok(());
        }
        Box::pin(self.look_for_locks(session, plan)).await
    }

    #[cold]
    async fn look_for_locks(&self, session: &mut Session, plan: &Plan) -> Result<()> {
        if let Some(locked) = &session.locked {
            if session.within == 0 {
                locked.check(plan)?;
            }
            // What triggers use is locked with their tables.
            locked.check_all(plan)?;
            return self.check_table_locks(session);
        }
        self.wait_to_use(session, plan).await
    }

    /// Whether a session that has locked tables may believe in it.
    ///
    /// # Errors
    /// The lease of the SQL node is over; the connection ends.
    pub(crate) fn check_table_locks(&self, session: &mut Session) -> Result<()> {
        let number = session.uses.number(&self.table_locks);
        if self.store.is_none() || self.table_locks.is_settled(number, &self.user_locks) {
            return Ok(());
        }
        session.info.registry.kill(session.info.id);
        let text = "Connection was killed: it had locked tables (LOCK TABLES), and this SQL node could not reach the cluster to keep them";
        Err(SqlError::new(1927, b"70100", text))
    }

    /// Waits until no lock of another session of this SQL node is in the way.
    ///
    /// # Errors
    /// 1205: as long as `lock_wait_timeout` says. KILL.
    pub(crate) async fn wait_for_tables_here(
        &self,
        session: &mut Session,
        is_in_the_way: &impl Fn(&Kept) -> bool,
        started: Instant,
    ) -> Result<()> {
        // Who keeps others from writing by now waits for none that waits for that.
        let has_begun = session.within > 0 || !session.read_locks.is_empty() || session.uses.has_begun();
        let number = session.uses.number(&self.table_locks);
        let is_kept = || self.table_locks.kept_from(number, has_begun).iter().any(is_in_the_way);
        while is_kept() {
            if !has_begun {
                session.uses.hide();
            }
            loop {
                // Behind hiding, which is a change, too.
                let changed = self.table_locks.changed();
                if !is_kept() {
                    break;
                }
                session.env.may_go_on()?;
                if started.elapsed() > Duration::from_secs(session.env.variables.definition_wait) {
                    return Err(errors::from_code(ErrorCode::LockTimeout, ""));
                }
                let _ = tokio::time::timeout(PAUSE, user_lock::first(changed, session.env.stopped())).await;
            }
            if !has_begun {
                session.uses.show();
            }
        }
        Ok(())
    }

    /// Before a session waits for what another SQL node keeps: that one hears that it is wanted. A transaction that has written what is locked by now ends.
    ///
    /// # Errors
    /// 1213; the cluster does not answer.
    pub(crate) async fn give_way(&self, session: &mut Session, name: &str, node: &OfNode) -> Result<()> {
        let Some(store) = &self.store else { return Ok(()) };
        if !node.databases.is_empty() {
            if node.is_wanted {
                return Ok(());
            }
            let mark = |locks: &mut Vec<ReadLock>| {
                for lock in locks.iter_mut().filter(|lock| lock.name == name) {
                    if let Kept::Node(node) = &mut lock.kept {
                        node.is_wanted = !node.databases.is_empty();
                    }
                }
                Ok(())
            };
            return store.change_read_locks(mark).await;
        }
        if session.wrote.is_empty() {
            return Ok(());
        }
        let wrote = self.catalog().await?.names_of(&session.wrote);
        if wrote.iter().any(|(database, table)| node.has(database, table, false)) {
            if let Some(mut transaction) = session.transaction.take() {
                let _ = transaction.rollback().await;
            }
            session.forget_transaction();
            return Err(errors::from_code(ErrorCode::Deadlock, ""));
        }
        Ok(())
    }

    /// Locks tables for a session that has none.
    ///
    /// # Errors
    /// 1205: as long as `lock_wait_timeout` says. 1223: the session has a conflicting read lock. 1235: too many. The cluster does not answer.
    pub(crate) async fn take_table_locks(&self, session: &mut Session, tables: &[LockedTable]) -> Result<()> {
        let number = session.uses.number(&self.table_locks);
        self.table_locks.want(number, tables.to_vec());
        let taken = self.wait_for_grant(session, number, tables).await;
        if taken.is_err() {
            self.end_table_lock(number).await;
        }
        taken
    }

    async fn wait_for_grant(&self, session: &mut Session, number: u64, tables: &[LockedTable]) -> Result<()> {
        let longest = Duration::from_secs(session.env.variables.definition_wait);
        let started = Instant::now();
        loop {
            let changed = self.table_locks.changed();
            if !self.table_locks.try_grant(number) {
                session.env.may_go_on()?;
                if started.elapsed() > longest {
                    return Err(errors::from_code(ErrorCode::LockTimeout, ""));
                }
                let left = longest.saturating_sub(started.elapsed()).min(PAUSE);
                let _ = tokio::time::timeout(left, user_lock::first(changed, session.env.stopped())).await;
                continue;
            }
            let is_kept = |kept: &Kept| is_against(kept, tables);
            if !self.is_kept_elsewhere(session, is_kept) && self.settle(session, number, tables).await? {
                self.table_locks.believe(number);
                return Ok(());
            }
            self.table_locks.take_back(number);
            self.wait_elsewhere(session, &is_kept, started).await?;
        }
    }

    /// Whether what is known of other SQL nodes, and of FLUSH TABLES WITH READ LOCK, is in the way.
    fn is_kept_elsewhere(&self, session: &Session, is_in_the_way: impl Fn(&Kept) -> bool) -> bool {
        let Some(store) = &self.store else { return false };
        if !store.accounts.is_fresh() {
            return true;
        }
        let of_node = self.table_locks.entry_name();
        let is_own = |lock: &ReadLock| {
            of_node.as_ref() == Some(&lock.name) || session.read_locks.iter().any(|own| own.name == lock.name)
        };
        let locks = if store.accounts.has_read_locks() { read(&store.accounts.read_locks()) } else { Vec::new() };
        locks.iter().any(|lock| is_in_the_way(&lock.kept) && !is_own(lock))
    }

    /// Sees to it that all SQL nodes go by a lock that is granted here. False: another one has a lock that is in the way.
    async fn settle(&self, session: &Session, number: u64, tables: &[LockedTable]) -> Result<bool> {
        let locks = &self.table_locks;
        let Some(store) = &self.store else { return Ok(true) };
        if locks.is_settled(number, &self.user_locks) {
            return Ok(true);
        }
        let mut turn = locks.turn.lock().await;
        if locks.is_settled(number, &self.user_locks) {
            return Ok(true);
        }
        if !turn.own.as_ref().is_some_and(OwnLock::is_held) {
            let mut own = OwnLock::new(self.user_locks.clone(), user_lock::own_name()?);
            if !own.try_take(self, &session.info.registry).await? {
                return Err(errors::internal("a lock of this SQL node's own that is taken"));
            }
            locks.begin_entry(own.name().to_owned(), own.lease().unwrap_or(0));
            turn.own = Some(own);
        }
        let name = turn.own.as_ref().map_or("", OwnLock::name).to_owned();
        let mut entry = locks.entry_with(number, true);
        let mut is_free = true;
        let change = |list: &mut Vec<ReadLock>| {
            let others = || list.iter().filter(|lock| lock.name != name);
            is_free = !others().any(|lock| is_against(&lock.kept, tables));
            if !is_free {
                return Ok(());
            }
            let is_shared = |d: &String| others().any(|l| matches!(&l.kept, Kept::Node(_)) && l.kept.has_database(d));
            if entry.databases.iter().any(is_shared) {
                entry = locks.entry_with(number, false);
            }
            if entry.tables.len() + entry.databases.len() > TABLES_MAX || others().count() >= LOCKS_MAX {
                return Err(errors::not_supported(&format!(
                    "more than {TABLES_MAX} locked tables of a SQL node, or {LOCKS_MAX} sessions and SQL nodes with read locks, at a time"
                )));
            }
            let before = list.iter().position(|lock| lock.name == name).map(|at| list.remove(at));
            entry.is_wanted = matches!(before, Some(ReadLock { kept: Kept::Node(node), .. }) if node.is_wanted);
            list.push(ReadLock { name: name.clone(), kept: Kept::Node(entry.clone()) });
            Ok(())
        };
        locks.note_too_much();
        store.change_read_locks(change).await?;
        if !is_free {
            return Ok(false);
        }
        if !std::mem::replace(&mut turn.is_tended, true) {
            tokio::task::spawn_local(tend(Rc::downgrade(store), locks.clone()));
        }
        tokio::time::sleep(SETTLED).await;
        // What data nodes were committing is done by then.
        self.client.snapshot().await.map_err(|e| errors::from_client(&e))?;
        locks.settle(entry);
        Ok(true)
    }

    /// UNLOCK TABLES, and whatever does the same.
    pub(crate) async fn end_table_locks(&self, session: &mut Session) {
        if session.locked.take().is_some() {
            let number = session.uses.number(&self.table_locks);
            self.end_table_lock(number).await;
        }
    }

    /// Where the entry cannot be written now, its keeper does it later.
    async fn end_table_lock(&self, number: u64) {
        if self.table_locks.release(number)
            && let Some(store) = &self.store
            && let Ok(mut turn) = self.table_locks.turn.try_lock()
        {
            lessen(store, &self.table_locks, &mut turn).await;
        }
    }
}

/// Whether what is kept excludes a lock of these tables.
fn is_against(kept: &Kept, tables: &[LockedTable]) -> bool {
    match kept {
        Kept::Everything => tables.iter().any(|t| t.writes),
        Kept::Node(node) => tables.iter().any(|t| node.has(&t.database, &t.name, !t.writes)),
        Kept::Definitions => false,
    }
}

/// Writes what the entry of this SQL node has to say, where that is less than it says. Whether there is none any more.
async fn lessen(store: &AccountStore, locks: &TableLocks, turn: &mut here::Turn) -> bool {
    let Some(name) = turn.own.as_ref().map(|own| own.name().to_owned()) else { return true };
    let known = if store.accounts.has_read_locks() { read(&store.accounts.read_locks()) } else { Vec::new() };
    let is_own_wanted = |l: &ReadLock| l.name == name && matches!(&l.kept, Kept::Node(node) if node.is_wanted);
    let Some(less) = locks.lessen(known.iter().any(is_own_wanted)) else { return false };
    let change = |list: &mut Vec<ReadLock>| {
        let at = list.iter().position(|lock| lock.name == name);
        match (at, &less) {
            // Another SQL node has found this one dead.
            (None, _) => {}
            (Some(at), None) => _ = list.remove(at),
            (Some(at), Some(entry)) => list[at].kept = Kept::Node(entry.clone()),
        }
        Ok(())
    };
    if store.change_read_locks(change).await.is_err() {
        locks.note_too_much();
        return false;
    }
    if less.is_none() {
        locks.end_entry();
        turn.own = None;
    }
    less.is_none()
}

/// Sees to the entry of this SQL node as long as there is one.
async fn tend(store: Weak<AccountStore>, locks: Arc<TableLocks>) {
    loop {
        let _ = tokio::time::timeout(TEND_EVERY, locks.tend.notified()).await;
        let Some(store) = store.upgrade() else { return };
        let mut turn = locks.turn.lock().await;
        if lessen(&store, &locks, &mut turn).await {
            turn.is_tended = false;
            return;
        }
    }
}
