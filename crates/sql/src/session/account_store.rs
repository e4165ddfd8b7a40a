//! The table of accounts, `apus.accounts`: read into the server's [`Accounts`] when it has another version, and changed.
//!
//! A row per account, and one that counts the changes. Every change locks that one, so that changes come one after the other. Once in [`LOOK_EVERY`] it is read; a statement that needs a
//! privilege, and a login, look first where nobody has for [`server::FRESH`](crate::server::Accounts::is_fresh). Who has changed accounts is answered after [`SETTLED`]: by then no SQL node acts by
//! what was before. `docs/decisions/0026-accounts.md` has the argument.
//!
//! The table is made by the first change; before it every SQL node has the accounts that it was given, and looks in the dictionary whether there is a table now. No statement can name the table.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::{Rc, Weak},
    sync::Arc,
    time::{Duration, Instant},
};

use apus_client::{
    Client, ClientError, ExecOptions, KeyList, OpBatch, ReadBatch, Results, Rows, ScanRequest, Transaction,
};
use apus_signal::{
    dict::Change,
    schema::TableMessage,
    tc::{ALLOW_MISSING, OpKind, OpStatus},
};
use apus_types::{Column, ColumnType, ErrorCode, TableSchema, Value, key};
use prost::Message as _;

use super::{
    peers::{Asked, Peers, question},
    read_locks::{self, ReadLock},
};
use crate::{
    accounts::{
        ACCOUNT_BYTES_MAX, ACCOUNTS_MAX, Account, AccountName,
        kept::{self, TABLE},
    },
    catalog::SYSTEM_DATABASE,
    errors::{self, Result},
    server::Accounts,
    variables::{
        Globals,
        persisted::{self, Values},
    },
    wire::SqlError,
};

/// How often a SQL node looks for changes of accounts.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How long after its commit a change is answered: longer than [`crate::server::Accounts::is_fresh`] lets anybody go without looking.
pub const SETTLED: Duration = Duration::from_millis(500);
/// Attempts of a change that another one or a failing node gets in the way of.
pub(super) const ATTEMPTS_MAX: u32 = 20;
pub(super) const LOCK_WAIT_MS: u32 = 10_000;
/// The key of the row that counts changes; no account's key is without a zero byte.
const VERSION: &[u8] = b"version";
/// The key of the row with what SET PERSIST has kept.
const PERSISTED: &[u8] = b"persisted";
/// The key of the row in which SQL nodes ask each other.
pub(super) const ASKED: &[u8] = b"asked";

/// The accounts by their names.
pub type Book = BTreeMap<AccountName, Account>;

/// One thread's access to the table.
pub struct AccountStore {
    client: Client,
    pub accounts: Accounts,
    table: RefCell<Option<Rc<TableSchema>>>,
    /// Of the dictionary in which it was not there.
    seen: Cell<u64>,
    /// One looks at a time, for all who wait.
    turn: tokio::sync::Mutex<()>,
    failed: RefCell<Option<(Instant, SqlError)>>,
    globals: Arc<Globals>,
    pub peers: Arc<Peers>,
}

fn definition() -> TableSchema {
    let column = |name: &str, ty| Column { nullable: false, ..Column::new(name, ty) };
    let columns = vec![
        column("name", ColumnType::VarBinary { length: 2048 }),
        column("body", ColumnType::Blob { length: (1 << 24) - 1 }),
    ];
    TableSchema::new(SYSTEM_DATABASE, TABLE, columns, vec![0])
}

pub(super) fn key_of(table: &TableSchema, name: &[u8]) -> std::result::Result<Vec<u8>, ClientError> {
    let mut encoded = Vec::with_capacity(name.len() + 8);
    key::encode_part(table.columns[0].ty, false, &Value::Bytes(name), &mut encoded)?;
    Ok(encoded)
}

/// What the row that counts changes says: how many of accounts there were, and how many of read locks, and the locks that there are.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Counted {
    version: u64,
    of_locks: u64,
    locks: Vec<u8>,
}

impl Counted {
    /// The number of accounts alone, as long as there was no read lock.
    fn read(body: &[u8]) -> Counted {
        let mut parts = body.splitn(3, |b| *b == 0);
        let mut number = || parts.next().and_then(|text| std::str::from_utf8(text).ok()?.parse().ok()).unwrap_or(0);
        let (version, of_locks) = (number(), number());
        Counted { version, of_locks, locks: parts.next().unwrap_or(&[]).to_vec() }
    }
    fn written(&self) -> Vec<u8> {
        let mut body = self.version.to_string().into_bytes();
        if self.of_locks > 0 {
            body.extend_from_slice(format!("\0{}\0", self.of_locks).as_bytes());
            body.extend_from_slice(&self.locks);
        }
        body
    }
}

pub(super) fn cell<'r>(table: &'r TableSchema, row: &'r [u8], column: u16) -> &'r [u8] {
    match table.layout().value(row, column) {
        Value::Bytes(bytes) => bytes,
        _ => &[],
    }
}

impl AccountStore {
    /// Looks from now on, as long as the value lives. Within a `LocalSet`.
    pub fn start(client: Client, accounts: Accounts, globals: Arc<Globals>, peers: Arc<Peers>) -> Rc<AccountStore> {
        let store = Rc::new(AccountStore {
            client,
            accounts,
            table: RefCell::default(),
            seen: Cell::new(u64::MAX),
            turn: tokio::sync::Mutex::new(()),
            failed: RefCell::default(),
            globals,
            peers,
        });
        tokio::task::spawn_local(keep_looking(Rc::downgrade(&store)));
        store
    }

    /// Sees to it that the accounts are fresh.
    ///
    /// # Errors
    /// The cluster does not answer.
    pub async fn look(&self) -> Result<()> {
        let asked = Instant::now();
        let _turn = self.turn.lock().await;
        if self.accounts.is_fresh() {
            return Ok(());
        }
        if let Some((_, e)) = self.failed.borrow().as_ref().filter(|(at, _)| *at >= asked) {
            return Err(e.clone());
        }
        self.look_now().await
    }

    /// With the turn.
    async fn look_now(&self) -> Result<()> {
        let begin = Instant::now();
        match self.read_changes().await {
            Ok(()) => {
                self.accounts.note_checked(begin);
                Ok(())
            }
            Err(e) => {
                let e = errors::from_client(&e);
                *self.failed.borrow_mut() = Some((Instant::now(), e.clone()));
                Err(e)
            }
        }
    }

    async fn read_changes(&self) -> std::result::Result<(), ClientError> {
        let Some(table) = self.found().await? else {
            self.globals.take_persisted(&[]);
            return Ok(());
        };
        let counted = match self.counted(&table).await {
            // Made anew: the cluster began from nothing.
            Err(e) if matches!(e.code, ErrorCode::TableNotFound | ErrorCode::SchemaVersionChanged) => {
                *self.table.borrow_mut() = None;
                self.seen.set(u64::MAX);
                return Err(e);
            }
            counted => counted?,
        };
        self.accounts.note_read_locks(counted.of_locks, &counted.locks);
        if counted.version != self.accounts.current().version {
            let (version, book) = self.load(&table).await?;
            self.accounts.install(version, book.into_values().collect());
        }
        Ok(())
    }

    /// The table, if it was made.
    async fn found(&self) -> std::result::Result<Option<Rc<TableSchema>>, ClientError> {
        if let Some(table) = self.table.borrow().clone() {
            return Ok(Some(table));
        }
        let Some(dictionary) = self.client.dictionary(self.seen.get()).await? else { return Ok(None) };
        let message = message_in(&dictionary.tables);
        let table = message.map(TableSchema::try_from).transpose();
        let table = table.map_err(|_| ErrorCode::InvalidSchema)?.map(Rc::new);
        let columns = definition().columns;
        let is_ours = |t: &Rc<TableSchema>| {
            let types = t.columns.iter().map(|c| c.ty);
            t.engine.is_empty() && types.eq(columns.iter().map(|c| c.ty))
        };
        if !table.iter().all(is_ours) {
            return Err(ClientError::with_detail(ErrorCode::InvalidSchema, "apus.accounts is another table"));
        }
        self.table.borrow_mut().clone_from(&table);
        self.seen.set(dictionary.version);
        Ok(table)
    }

    async fn made(&self) -> Result<Rc<TableSchema>> {
        let failed = |e: ClientError| errors::from_client(&e);
        for _ in 0..ATTEMPTS_MAX {
            if let Some(table) = self.found().await.map_err(failed)? {
                return Ok(table);
            }
            match self.client.schema_change(Change::CreateTable(TableMessage::from(&definition()))).await {
                Ok(_) => {}
                Err(e) if e.code == ErrorCode::TableExists => {}
                Err(e) => return Err(failed(e)),
            }
        }
        Err(errors::internal("the table of accounts was made and is not there"))
    }

    async fn counted(&self, table: &TableSchema) -> std::result::Result<Counted, ClientError> {
        let mut keys = KeyList::new();
        keys.push(table, &key_of(table, VERSION)?)?;
        keys.push(table, &key_of(table, PERSISTED)?)?;
        keys.push(table, &key_of(table, ASKED)?)?;
        let mut rows = Rows::new();
        self.client.read(&ReadBatch::newest(table, &keys), &mut rows).await?;
        self.globals.take_persisted(rows.row(1).map_or(&[], |row| cell(table, row, 1)));
        self.peers.note_asked(rows.row(2).map_or(&[], |row| cell(table, row, 1)));
        Ok(rows.row(0).map_or_else(Counted::default, |row| Counted::read(cell(table, row, 1))))
    }

    /// All accounts as of one moment, and which version that is.
    async fn load(&self, table: &TableSchema) -> std::result::Result<(u64, Book), ClientError> {
        let mut request = ScanRequest::all(table.id, table.version);
        request.one_moment = true;
        let mut rows = Rows::new();
        self.client.scan_all(&request, &mut rows).await?;
        let (mut version, mut book) = (0, Book::new());
        for row in rows.iter().flatten() {
            let (key, body) = (cell(table, row, 0), cell(table, row, 1));
            if key == VERSION {
                version = Counted::read(body).version;
            } else if let Some(name) = kept::name_of(key) {
                book.insert(name.clone(), kept::decode(name, body));
            }
        }
        Ok((version, book))
    }

    /// Changes accounts, and waits until every SQL node acts by what they are now. `change` may be called several times.
    ///
    /// # Errors
    /// What `change` refuses, the limits, the cluster.
    pub async fn change<T>(&self, mut change: impl FnMut(&mut Book) -> Result<T>) -> Result<T> {
        let table = self.made().await?;
        let mut attempt = 0;
        let value = loop {
            attempt += 1;
            match self.try_change(&table, &mut change).await {
                Ok(done) => break done?,
                Err(e) if attempt < ATTEMPTS_MAX && is_to_try_again(&e) => {}
                Err(e) => return Err(errors::from_client(&e)),
            }
        };
        tokio::time::sleep(SETTLED).await;
        Ok(value)
    }

    /// Changes the read locks of the cluster. `change` may be called several times. Other SQL nodes go by them after [`SETTLED`].
    ///
    /// # Errors
    /// What `change` refuses, the cluster.
    pub async fn change_read_locks(&self, mut change: impl FnMut(&mut Vec<ReadLock>) -> Result<()>) -> Result<()> {
        let table = self.made().await?;
        let mut attempt = 0;
        loop {
            attempt += 1;
            match self.try_change_read_locks(&table, &mut change).await {
                Ok(done) => return done,
                Err(e) if attempt < ATTEMPTS_MAX && is_to_try_again(&e) => {}
                Err(e) => return Err(errors::from_client(&e)),
            }
        }
    }

    async fn try_change_read_locks(
        &self,
        table: &TableSchema,
        change: &mut impl FnMut(&mut Vec<ReadLock>) -> Result<()>,
    ) -> std::result::Result<Result<()>, ClientError> {
        let (mut ops, mut results) = (OpBatch::new(), Results::new());
        let (mut transaction, counted, is_there) = self.lock_counted(table, &mut ops, &mut results).await?;
        let before = read_locks::read(&counted.locks);
        let mut locks = before.clone();
        if let Err(e) = change(&mut locks) {
            let _ = transaction.rollback().await;
            return Ok(Err(e));
        }
        if locks == before {
            self.accounts.set_read_locks(counted.of_locks, &counted.locks);
            let _ = transaction.rollback().await;
            return Ok(Ok(()));
        }
        let counted = Counted { of_locks: counted.of_locks + 1, locks: read_locks::written(&locks), ..counted };
        ops.clear();
        let kind = if is_there { OpKind::Write } else { OpKind::Insert };
        push(&mut ops, table, kind, VERSION, &counted.written())?;
        let options = ExecOptions { commit: true, savepoint: 2, lock_wait_ms: LOCK_WAIT_MS };
        transaction.execute(&ops, options, &mut results).await?;
        self.accounts.set_read_locks(counted.of_locks, &counted.locks);
        Ok(Ok(()))
    }

    /// Changes what SET PERSIST has kept. `change` may be called several times.
    ///
    /// # Errors
    /// What `change` refuses, the cluster.
    pub async fn change_persisted(&self, mut change: impl FnMut(&mut Values) -> Result<()>) -> Result<()> {
        let table = self.made().await?;
        let mut attempt = 0;
        loop {
            attempt += 1;
            match self.try_change_persisted(&table, &mut change).await {
                Ok(done) => return done,
                Err(e) if attempt < ATTEMPTS_MAX && is_to_try_again(&e) => {}
                Err(e) => return Err(errors::from_client(&e)),
            }
        }
    }

    async fn try_change_persisted(
        &self,
        table: &TableSchema,
        change: &mut impl FnMut(&mut Values) -> Result<()>,
    ) -> std::result::Result<Result<()>, ClientError> {
        let (mut ops, mut results) = (OpBatch::new(), Results::new());
        let mut transaction = self.client.begin();
        ops.push_read(table, true, ALLOW_MISSING, &key_of(table, PERSISTED)?, None)?;
        let options = ExecOptions { commit: false, savepoint: 1, lock_wait_ms: LOCK_WAIT_MS };
        transaction.execute(&ops, options, &mut results).await?;
        let is_there = results.status(0) == Some(OpStatus::Done);
        let row = results.row(0).filter(|_| is_there);
        let mut values = row.map_or_else(Values::new, |row| persisted::read(cell(table, row, 1)));
        if let Err(e) = change(&mut values) {
            let _ = transaction.rollback().await;
            return Ok(Err(e));
        }
        let kept = persisted::written(&values);
        ops.clear();
        push(&mut ops, table, if is_there { OpKind::Write } else { OpKind::Insert }, PERSISTED, &kept)?;
        let options = ExecOptions { commit: true, savepoint: 2, lock_wait_ms: LOCK_WAIT_MS };
        transaction.execute(&ops, options, &mut results).await?;
        self.globals.take_persisted(&kept);
        Ok(Ok(()))
    }

    /// Changes what is asked of all SQL nodes; what it is then. `change` may be called several times. Others hear of it within [`LOOK_EVERY`].
    ///
    /// # Errors
    /// The cluster.
    pub async fn ask(&self, change: impl FnMut(&mut Asked)) -> Result<Asked> {
        let asked = question::change(&self.client, &*self.made().await?, change).await?;
        self.peers.note_asked(&asked.encode_to_vec());
        Ok(asked)
    }

    /// A transaction that has locked the row that counts changes; it is rolled back when it is dropped. What the row says, and whether it is there.
    async fn lock_counted(
        &self,
        table: &TableSchema,
        ops: &mut OpBatch,
        results: &mut Results,
    ) -> std::result::Result<(Transaction, Counted, bool), ClientError> {
        let mut transaction = self.client.begin();
        ops.push_read(table, true, ALLOW_MISSING, &key_of(table, VERSION)?, None)?;
        let options = ExecOptions { commit: false, savepoint: 1, lock_wait_ms: LOCK_WAIT_MS };
        transaction.execute(ops, options, results).await?;
        let is_there = results.status(0) == Some(OpStatus::Done);
        let row = results.row(0).filter(|_| is_there);
        let counted = row.map_or_else(Counted::default, |row| Counted::read(cell(table, row, 1)));
        Ok((transaction, counted, is_there))
    }

    async fn try_change<T>(
        &self,
        table: &TableSchema,
        change: &mut impl FnMut(&mut Book) -> Result<T>,
    ) -> std::result::Result<Result<T>, ClientError> {
        let (mut ops, mut results) = (OpBatch::new(), Results::new());
        let (mut transaction, counted, is_there) = self.lock_counted(table, &mut ops, &mut results).await?;
        let (version, before) = self.load(table).await?;
        if version != counted.version {
            return Err(ErrorCode::WrongView.into()); // to be tried again
        }
        let mut book = self.accounts.with_given(before.clone());
        let whole = book.clone();
        let value = match change(&mut book).and_then(|value| check_limits(&book).map(|()| value)) {
            Ok(value) => value,
            Err(e) => {
                let _ = transaction.rollback().await;
                return Ok(Err(e));
            }
        };
        ops.clear();
        for (name, account) in book.iter().filter(|(name, account)| whole.get(name) != Some(account)) {
            let kind = if before.contains_key(name) { OpKind::Write } else { OpKind::Insert };
            push(&mut ops, table, kind, &kept::key(name), &kept::encode(account))?;
        }
        for name in before.keys().filter(|name| !book.contains_key(*name)) {
            ops.push(table, OpKind::Delete, 0, &key_of(table, &kept::key(name))?, &[])?;
        }
        let kind = if is_there { OpKind::Write } else { OpKind::Insert };
        push(&mut ops, table, kind, VERSION, &Counted { version: version + 1, ..counted }.written())?;
        let options = ExecOptions { commit: true, savepoint: 2, lock_wait_ms: LOCK_WAIT_MS };
        transaction.execute(&ops, options, &mut results).await?;
        let rows =
            book.into_iter().filter(|(name, account)| before.contains_key(name) || whole.get(name) != Some(account));
        self.accounts.install(version + 1, rows.map(|(_, account)| account).collect());
        Ok(Ok(value))
    }
}

fn message_in(tables: &[TableMessage]) -> Option<&TableMessage> {
    tables.iter().find(|table| table.database == SYSTEM_DATABASE && table.name == TABLE)
}

/// The table, as a dictionary has it.
pub fn found_in(tables: &[TableMessage]) -> Option<TableSchema> {
    message_in(tables).and_then(|message| TableSchema::try_from(message).ok())
}

pub(super) fn is_to_try_again(e: &ClientError) -> bool {
    let is_met = matches!(e.code, ErrorCode::DuplicateKey | ErrorCode::Deadlock);
    !e.code.waits_for_operator() && (e.retry_transaction() || is_met)
}

pub(super) fn push(
    ops: &mut OpBatch,
    table: &TableSchema,
    kind: OpKind,
    name: &[u8],
    body: &[u8],
) -> std::result::Result<(), ClientError> {
    let mut row = Vec::new();
    table.layout().encode(&[Value::Bytes(name), Value::Bytes(body)], &mut row)?;
    ops.push(table, kind, 0, &key_of(table, name)?, &row)?;
    Ok(())
}

fn check_limits(book: &Book) -> Result<()> {
    if book.len() > ACCOUNTS_MAX {
        return Err(errors::not_supported(&format!("more than {ACCOUNTS_MAX} accounts")));
    }
    if let Some((name, _)) = book.iter().find(|(_, account)| kept::encode(account).len() > ACCOUNT_BYTES_MAX) {
        let what = format!(
            "more about {}: its grants, attributes and passwords take more than {ACCOUNT_BYTES_MAX} bytes",
            name.quoted()
        );
        return Err(errors::not_supported(&what));
    }
    Ok(())
}

async fn keep_looking(store: Weak<AccountStore>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(store) = store.upgrade() else { return };
        // Threads of a node take turns, as it happens; what fails is tried again by whoever needs it.
        if store.accounts.age() >= LOOK_EVERY / 2
            && let Ok(_turn) = store.turn.try_lock()
        {
            let _ = store.look_now().await;
        }
    }
}
