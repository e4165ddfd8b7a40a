//! Limits of the front end, each with its reason.

use std::time::Duration;

use crate::wire::constants::MAX_ALLOWED_PACKET_DEFAULT;

/// Connections per server unless configured otherwise; one more is refused with error 1040.
pub const CONNECTIONS_MAX_DEFAULT: usize = 10_000;
/// A client that has not authenticated by then is dropped: strangers hold no slots.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// A login waits this part of the time that it has for the newest accounts; then those that are known count, and are looked up again before the first statement.
pub const ACCOUNTS_SHARE: u32 = 5;
/// And this part for its database; then it is told that no data node answers.
pub const OPEN_SHARE: u32 = 2;
/// Connections at once that have not logged in; for one more the oldest of them is ended, so that a stranger who opens thousands of
/// connections keeps nobody out, and enough for all users of a server that come back at once.
pub const STRANGERS_MAX_DEFAULT: usize = 4096;
/// MySQL's default `wait_timeout`: an idle connection ends after eight hours.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(8 * 3600);
/// A client that does not take its answers for this long is dropped (MySQL's `net_write_timeout`).
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// A client that was asked for a file and sends nothing of it for this long is dropped (MySQL's `net_read_timeout`).
pub const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest packet before authentication: user, database, plugin and attributes fit easily.
pub const HANDSHAKE_PACKET_MAX: usize = 128 << 10;
/// Prepared statements of one connection; one more is refused with error 1461.
pub const STATEMENTS_MAX: usize = 16_382;
/// Parameters of one statement, and columns of one result in an answer to PREPARE: the count has 16 bits.
pub const PARAMS_MAX: usize = 65_535;
/// Bytes a connection may have sent ahead with SEND_LONG_DATA before EXECUTE.
pub const LONG_DATA_BYTES_MAX: usize = MAX_ALLOWED_PACKET_DEFAULT;
/// Bytes of rows that one open cursor holds: as much as a statement may keep between its steps.
pub const CURSOR_BYTES_MAX: usize = 256 << 20;
/// Bytes of rows that all open cursors of a server hold.
pub const CURSORS_BYTES_MAX: usize = 1 << 30;
/// Bytes of connection attributes that are kept; more are ignored, as MySQL does.
pub const CONNECT_ATTRS_BYTES_MAX: usize = 64 << 10;
/// Bytes of the running statement that SHOW FULL PROCESSLIST shows; each connection keeps room for them.
pub const INFO_BYTES_MAX: usize = 4096;
/// Bytes of connection attributes that others see in performance_schema, as MySQL keeps them by default (`performance_schema_session_connect_attrs_size`).
pub const SHOWN_ATTRS_BYTES_MAX: usize = 512;
/// Ids of connections that a server has; behind them come those of the next. Decimal, so that one can see in an id whose it is.
pub const IDS_PER_SERVER: u32 = 10_000_000;
/// Servers of a cluster that have ids of their own, numbered from 1: the protocol has 32 bits for an id.
pub const SERVERS_MAX: u32 = u32::MAX / IDS_PER_SERVER - 1;
/// Statements of a connection that events_statements_history shows, and bytes of each.
pub const PASTS_MAX: usize = 10;
pub const PAST_BYTES_MAX: usize = 1024;
/// Output that triggers a flush in the middle of a result, and between pipelined commands: many rows per system call,
/// yet small enough to be still in the processor's cache when the kernel copies it.
pub const OUTPUT_FLUSH_BYTES: usize = 256 << 10;
/// Stack of a thread that serves connections: syntax trees are walked by recursion, as deep as `parse::nesting` lets them be.
pub const STACK_BYTES: usize = 16 << 20;
/// Threads of each thread that serves connections that wait for a disk in its place (`spill`), or for a name server; they end when nothing was to be done for ten seconds.
pub const BLOCKING_THREADS_MAX: usize = 4;
/// Pending connections of the listening socket.
pub const LISTEN_BACKLOG: i32 = 1024;
/// Accepted sockets waiting for a worker to take them.
pub const HANDOVER_MAX: usize = 1024;
