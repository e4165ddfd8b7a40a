//! The front end: sockets, connections, authentication, command dispatch. What a statement means is the engine's.
//!
//! Thread per core: each of N worker threads runs its own current-thread runtime with its own [`Engine`]; a connection
//! is accepted once, handed to the worker with the fewest connections, and lives there until it ends. Nothing of a
//! connection ever changes thread, so neither the engine nor its sessions need locks.
//!
//! Per connection there is one input buffer, one output buffer and one session. Commands that arrived together are
//! executed together and answered with one write. Long results are written out while they are produced
//! ([`Output::flush_if_full`]).
//!
//! What dies with whom: a panic in one command ends its connection only (the session is dropped, not closed: it must
//! roll back in `Drop` what it cannot leave open). A worker's end drops its connections. Limits stand in [`limits`].

mod accounts;
mod activity;
mod certificate;
mod compression;
mod connection;
mod cursors;
mod duplex;
pub mod limits;
mod listener;
mod login;
mod metered;
mod output;
mod process;
mod registry;
mod rsa;
mod statements;
mod tls;
mod usage;

pub use accounts::Accounts;
pub use activity::{Activity, Doing, Figures, Past};
pub use certificate::Certificate;
pub use listener::{Server, ServerConfig};
pub use metered::Traffic;
pub use output::{Collected, Mark, Output};
pub use process::{ConnectAttribute, Process, Processes, Progress, RowsDone};
pub(crate) use registry::Slot;
pub use registry::{ConnectionEntry, Interrupt, Registry};
pub use tls::{Tls, TlsSession};
pub use usage::{Usage, Usages};

pub use crate::wire::compressed::{Algorithms, Compression};
pub use crate::wire::params::Attribute;
pub use crate::wire::{ColumnDef, ColumnType, ParamValue, ResultWriter, SqlError, capability, status};

use apus_types::collate::Charset;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::accounts::Account;

/// What the engine learns about a connection when it opens a session, after authentication.
#[derive(Debug, Clone)]
pub struct ConnectionInfo {
    /// `CONNECTION_ID()`.
    pub id: u32,
    pub user: String,
    /// The peer's address without port; `localhost` for loopback.
    pub host: String,
    /// The database asked for in the handshake.
    pub database: Option<String>,
    /// Collation id of the connection's character set, as the client named it.
    pub charset: u16,
    /// Capabilities both sides have; see [`capability`]. `FOUND_ROWS` changes the affected count of UPDATE,
    /// `MULTI_STATEMENTS` allows several statements in one query.
    pub capabilities: u32,
    /// Connection attributes (`program_name`, ...), bounded by [`limits::CONNECT_ATTRS_BYTES_MAX`].
    pub attributes: Vec<(String, String)>,
    /// All connections of this server, for SHOW PROCESSLIST and KILL.
    pub registry: Arc<Registry>,
    /// Set by KILL; the engine looks at it while it executes.
    pub interrupt: Arc<Interrupt>,
    /// What others see of what the connection does.
    pub activity: Arc<Activity>,
    /// `None`: the connection is not encrypted.
    pub tls: Option<TlsSession>,
}

/// The answer to a PREPARE.
#[derive(Debug, Clone)]
pub struct PreparedInfo {
    /// The engine's name for the statement, unique within the session.
    pub id: u32,
    /// One definition per `?`; at most 65,535.
    pub params: Vec<ColumnDef>,
    /// Result columns as far as they are known; empty for statements without rows.
    pub columns: Vec<ColumnDef>,
    pub warnings: u16,
}

/// The boundary between the protocol and what statements mean. One value per worker thread.
///
/// `query` and `execute` write every result including the final OK or end of rows to `out`; an `Err` is written as the
/// last packet of the answer by the caller. A session is used by one command at a time.
#[allow(async_fn_in_trait)] // Futures stay on their thread: no Send bound is wanted.
pub trait Engine: 'static {
    type Session: 'static;

    /// The worker thread of this number is ready. What the engine runs by itself has a place among the server's connections, and ends with the engine. Within a `LocalSet`.
    async fn started(self: &Rc<Self>, _connections: &Arc<Registry>, _worker: usize) {}

    /// The server stops.
    async fn ending(&self, _worker: usize) {}

    /// Opens a session. An unknown database is an error (1049), which ends the connection.
    async fn open(&self, info: ConnectionInfo) -> Result<Self::Session, SqlError>;

    /// As [`Engine::open`], by an account. `is_sure`: [`Engine::check_accounts`] said so before the account was looked up.
    async fn open_as(
        &self,
        info: ConnectionInfo,
        _account: Arc<Account>,
        _is_sure: bool,
    ) -> Result<Self::Session, SqlError> {
        self.open(info).await
    }

    /// Sees to it that the server's accounts are those of now; false: who logs in now must be looked up once more before he may do anything.
    async fn check_accounts(&self) -> bool {
        true
    }

    /// How clients may have their packets compressed.
    fn compression(&self) -> Algorithms {
        Algorithms::default()
    }

    /// How the packets of this session's connection are compressed.
    fn set_compression(&self, _session: &mut Self::Session, _how: Compression) {}

    /// COM_PROCESS_KILL: ends another connection.
    ///
    /// # Errors
    /// 1094: there is none of this id. 1095: the session may not.
    async fn kill(&self, session: &mut Self::Session, id: u32) -> Result<(), SqlError>;

    /// Runs the statement or statements of a COM_QUERY. Several are allowed only while multi-statements are on.
    async fn query(&self, session: &mut Self::Session, sql: &[u8], out: &mut Output<'_>) -> Result<(), SqlError>;

    async fn prepare(&self, session: &mut Self::Session, sql: &[u8]) -> Result<PreparedInfo, SqlError>;

    /// Runs a prepared statement; `params` has one value per `?`.
    async fn execute(
        &self,
        session: &mut Self::Session,
        id: u32,
        params: &[ParamValue<'_>],
        out: &mut Output<'_>,
    ) -> Result<(), SqlError>;

    /// Forgets a prepared statement.
    fn close_statement(&self, session: &mut Self::Session, id: u32);

    /// Changes the current database.
    async fn init_db(&self, session: &mut Self::Session, database: &str) -> Result<(), SqlError>;

    /// In which the session's client speaks, and in which it is told results.
    fn charsets(&self, _session: &Self::Session) -> (Charset, Charset) {
        (Charset::Utf8mb4, Charset::Utf8mb4)
    }

    /// Attributes of the command that comes next; none: those of the last one are over.
    fn set_attributes(&self, _session: &mut Self::Session, _attributes: &[Attribute<'_>]) {}

    /// A command of the session ended with this error, which the client is told next.
    fn note_failure(&self, _session: &mut Self::Session, _error: &SqlError) {}

    /// A statement of the session took so long, its answer sent.
    fn note_time(&self, _session: &mut Self::Session, _took: Duration) {}

    /// Hands what has changed in the session to the next OK.
    fn tell_changes(&self, _session: &mut Self::Session, _out: &mut ResultWriter<'_>) {}

    /// Columns of `table` in the current database whose names match `wildcard` (SQL LIKE pattern; empty for all).
    async fn field_list(
        &self,
        session: &mut Self::Session,
        table: &str,
        wildcard: &str,
    ) -> Result<Vec<ColumnDef>, SqlError>;

    /// Back to the state after `open`: roll back, forget variables and prepared statements, keep the database.
    async fn reset_connection(&self, session: &mut Self::Session) -> Result<(), SqlError>;

    /// COM_PING: an error says that the server cannot serve, for example because no data node is reachable.
    async fn ping(&self, session: &mut Self::Session) -> Result<(), SqlError>;

    /// The current database.
    fn database<'a>(&self, _session: &'a Self::Session) -> Option<&'a str> {
        None
    }

    /// The text of a prepared statement; empty: there is none of this id.
    fn prepared_text<'a>(&self, _session: &'a Self::Session, _id: u32) -> &'a [u8] {
        b""
    }

    /// An idle connection of this session ends after this; `None`: after what the server is set to.
    fn wait_timeout(&self, _session: &Self::Session) -> Option<Duration> {
        None
    }

    /// COM_SET_OPTION: whether one query may hold several statements.
    fn set_multi_statements(&self, session: &mut Self::Session, on: bool);

    /// Text of COM_STATISTICS.
    fn statistics(&self, session: &Self::Session) -> String;

    /// Status flags for the next OK: autocommit, in transaction, ...; see [`status`].
    fn status(&self, session: &Self::Session) -> u16;

    /// The connection ended: roll back open work.
    async fn close(&self, session: Self::Session);
}
