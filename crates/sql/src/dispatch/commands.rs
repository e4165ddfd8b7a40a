//! What a connection asks of the engine, command by command ([`Engine`]): a session begins and ends, a statement is prepared and executed, a database is chosen.
//!
//! Texts of statements go on to [`crate::dispatch`].

use apus_types::collate::{Charset, Collation};
use std::{pin::pin, rc::Rc, sync::Arc, time::Duration};

use crate::{
    accounts::{Account, identity::Identity},
    errors::{self, Result},
    expr::{env::Env, result_cells},
    monitor::status::ALL,
    server::{ConnectionInfo, Engine, Output, PreparedInfo, Registry},
    session::{
        Session,
        engine::SqlEngine,
        locked_rows::OwnRows,
        parameters::{attribute_text, param_of},
        table_locks::Uses,
        temporary::TemporaryTables,
        user_lock::Held,
    },
    value::datum::recycle,
    variables::Variables,
    wire::{
        ColumnDef, ParamValue, SqlError, capability, characters,
        compressed::{Algorithms, Compression},
        params::Attribute,
        result::ResultWriter,
    },
};

impl Engine for SqlEngine {
    type Session = Session;

    async fn started(self: &Rc<Self>, connections: &Arc<Registry>, worker: usize) {
        *self.answering.borrow_mut() = self.join_peers(connections, worker).await;
        *self.dropper.borrow_mut() = Some(self.drop_left_tables());
        if worker == 0 {
            *self.events.borrow_mut() = Some(self.schedule_events(connections, worker));
            *self.histograms.borrow_mut() = Some(self.keep_histograms(connections, worker));
            *self.cleaner.borrow_mut() = Some(self.look_for_abandoned(connections));
        }
    }

    async fn ending(&self, worker: usize) {
        self.answering.take();
        if worker == 0 {
            self.leave_peers().await;
        }
    }

    async fn open(&self, info: ConnectionInfo) -> Result<Session> {
        let mut seed = [0u8; 8];
        getrandom::fill(&mut seed).map_err(|_| errors::internal("no entropy"))?;
        let mut env =
            Env::new(info.user.clone(), info.host.clone(), info.id, u64::from_le_bytes(seed), info.interrupt.clone());
        let is_interactive = info.capabilities & capability::INTERACTIVE != 0;
        env.variables = Variables::new(self.globals.clone(), is_interactive);
        env.variables.greet(info.charset);
        env.connections = Some(info.registry.clone());
        let session = Session {
            env,
            transaction: None,
            explicit: false,
            read_only: None,
            locked: None,
            uses: Uses::default(),
            isolation: None,
            next_isolation: None,
            next_read_only: None,
            snapshot: None,
            reads: Rc::default(),
            tables_known: None,
            wrote: Vec::new(),
            worked: Vec::new(),
            digest: None,
            form: 0,
            is_failed: false,
            traits: 0,
            hinted: None,
            own: OwnRows::default(),
            savepoint: 0,
            named: Vec::new(),
            warnings: Vec::new(),
            unlisted_warnings: 0,
            has_own_warnings: false,
            has_hinted: false,
            prepared: Default::default(),
            named_statements: Default::default(),
            next_statement: 1,
            multi_statements: info.capabilities & capability::MULTI_STATEMENTS != 0,
            found_rows: info.capabilities & capability::FOUND_ROWS != 0,
            watch: None,
            info: info.clone(),
            compression: Compression::None,
            changes: Default::default(),
            scratch: None,
            counts: [0; ALL],
            held: Held::default(),
            temporary: TemporaryTables::new(self.temporary.clone()),
            read_locks: Vec::new(),
            branch: None,
            calls: Vec::new(),
            within: 0,
            in_use: Vec::new(),
            in_change: Vec::new(),
            calls_own: false,
            calls_from: None,
            is_own_transaction: false,
            lost_within: None,
            given_out: None,
            signalled: None,
            collected: Vec::new(),
        };
        Ok(session)
    }

    async fn open_as(&self, mut info: ConnectionInfo, account: Arc<Account>, is_sure: bool) -> Result<Session> {
        let database = info.database.take().filter(|d| !d.is_empty());
        let mut session = self.open(info).await?;
        if let Some(store) = &self.store {
            // What is older than the directory is looked up again before it counts.
            session.env.me = Some(Identity::new(account.clone(), store.accounts.current(), 0, is_sure));
        }
        let watch = self.watch(&session, &account)?;
        if let Some(database) = database {
            self.init_db(&mut session, &database).await?;
        }
        session.watch = watch;
        Ok(session)
    }

    async fn check_accounts(&self) -> bool {
        match &self.store {
            Some(store) => store.accounts.is_fresh() || store.look().await.is_ok(),
            None => true,
        }
    }

    fn compression(&self) -> Algorithms {
        self.globals.compression()
    }

    fn set_compression(&self, session: &mut Session, how: Compression) {
        session.compression = how;
    }

    async fn kill(&self, session: &mut Session, id: u32) -> Result<()> {
        self.identity(session).await?;
        self.kill_connection(session, id, false).await
    }

    async fn query(&self, session: &mut Session, sql: &[u8], out: &mut Output<'_>) -> Result<()> {
        pin!(self.query_text(session, sql, out)).await
    }

    fn charsets(&self, session: &Session) -> (Charset, Charset) {
        session.env.variables.charsets()
    }

    async fn prepare(&self, session: &mut Session, sql: &[u8]) -> Result<PreparedInfo> {
        let sql = characters::read_statement(session.env.variables.charsets().0, session.env.variables.quoting(), sql)?;
        self.prepare_text(session, &sql).await
    }

    async fn execute(
        &self,
        session: &mut Session,
        id: u32,
        params: &[ParamValue<'_>],
        out: &mut Output<'_>,
    ) -> Result<()> {
        self.begin_statement(session)?;
        if session.watch.is_some() {
            self.admit(session, self.prepared_text(session, id))?;
        }
        let start = out.mark();
        let mut s = session.take_scratch();
        let mut values = recycle(std::mem::take(&mut s.values));
        let (client, _) = session.env.variables.charsets();
        for param in params {
            values.push(param_of(param, client)?);
        }
        let is_hinted = session.has_hinted && self.begin_prepared_hints(session, id);
        let result = loop {
            let done = pin!(self.execute_prepared(session, &mut s, id, &values, out)).await;
            match self.is_to_run_again(session, &done, start, out).await {
                Ok(true) => {}
                Ok(false) => break done,
                Err(e) => break Err(e),
            }
        };
        s.values = recycle(values);
        session.scratch = Some(s);
        let result = self.end_statement(session, result, start, out).await;
        if is_hinted {
            self.end_hints(session);
        }
        result
    }

    fn database<'a>(&self, session: &'a Session) -> Option<&'a str> {
        session.env.database.as_deref()
    }

    fn prepared_text<'a>(&self, session: &'a Session, id: u32) -> &'a [u8] {
        session.prepared.get(&id).map_or(b"", |prepared| &prepared.sql)
    }

    fn close_statement(&self, session: &mut Session, id: u32) {
        session.prepared.remove(&id);
    }

    async fn init_db(&self, session: &mut Session, database: &str) -> Result<()> {
        session.check_sandbox()?;
        self.find_database(session, database).await?;
        session.env.database = Some(database.to_owned());
        let collation = self.catalog().await?.databases.get(database).copied();
        session.env.variables.set_database(Some(collation.unwrap_or(Collation::Utf8mb3GeneralCi)));
        session.note_schema();
        Ok(())
    }

    async fn field_list(&self, session: &mut Session, table: &str, wildcard: &str) -> Result<Vec<ColumnDef>> {
        session.check_sandbox()?;
        let database = session.env.database.clone().ok_or_else(errors::no_database)?;
        self.require_sight(session, (&database, table), "SELECT").await?;
        let table = self.catalog_of(session).await?.columns_of(&database, table)?;
        let matches = |name: &str| {
            wildcard.is_empty()
                || apus_types::collate::like(
                    name.as_bytes(),
                    wildcard.as_bytes(),
                    Some(b'\\'),
                    Some(Collation::Utf8mb3GeneralCi),
                )
        };
        let columns = table.listed_columns().map(|c| result_cells::column_def(&table.schema, c));
        Ok(columns.filter(|d| matches(&d.name)).collect())
    }

    async fn reset_connection(&self, session: &mut Session) -> Result<()> {
        session.branch = None;
        self.end_transaction(session, false).await?;
        Box::pin(self.end_table_locks(session)).await;
        if !session.held.is_empty() {
            Box::pin(self.end_read_locks(session, |_| true)).await?;
            Box::pin(self.release_all_locks(session)).await?;
        }
        let is_interactive = session.info.capabilities & capability::INTERACTIVE != 0;
        session.temporary.end();
        session.env.variables = Variables::new(self.globals.clone(), is_interactive);
        if let Some(database) = &session.env.database {
            let collation = self.catalog().await?.databases.get(database).copied();
            session.env.variables.set_database(Some(collation.unwrap_or(Collation::Utf8mb3GeneralCi)));
        }
        session.forget_next();
        session.multi_statements = session.info.capabilities & capability::MULTI_STATEMENTS != 0;
        session.env.attributes.clear();
        session.changes = Default::default();
        session.env.me.iter_mut().for_each(Identity::forget_roles);
        session.env.user_variables.clear();
        session.env.last_insert_id.set(0);
        session.prepared.clear();
        session.named_statements.clear();
        session.clear_warnings();
        Ok(())
    }

    async fn ping(&self, _session: &mut Session) -> Result<()> {
        Ok(())
    }

    fn wait_timeout(&self, session: &Session) -> Option<Duration> {
        session.env.variables.wait_timeout
    }

    fn set_attributes(&self, session: &mut Session, attributes: &[Attribute<'_>]) {
        let (client, _) = session.env.variables.charsets();
        session.env.attributes.clear();
        session.env.attributes.extend(attributes.iter().map(|attribute| {
            let name = String::from_utf8_lossy(attribute.name).to_ascii_lowercase();
            (name, attribute_text(&attribute.value, client))
        }));
    }

    fn note_failure(&self, session: &mut Session, error: &SqlError) {
        session.is_failed = true;
        session.note_failure(error);
    }

    fn tell_changes(&self, session: &mut Session, out: &mut ResultWriter<'_>) {
        session.tell_changes(out);
    }

    fn set_multi_statements(&self, session: &mut Session, on: bool) {
        session.multi_statements = on;
    }

    fn note_time(&self, session: &mut Session, took: Duration) {
        self.end_command(session, took);
    }

    fn statistics(&self, session: &Session) -> String {
        self.globals.status.line_of(session.info.registry.len(), self.catalog.borrow().tables().count())
    }

    fn status(&self, session: &Session) -> u16 {
        session.status()
    }

    async fn close(&self, mut session: Session) {
        session.branch = None;
        let _ = self.end_transaction(&mut session, false).await;
    }
}
