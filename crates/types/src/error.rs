//! The error catalogue: one number per thing that someone can act on.
//!
//! A refusal (`*Ref`) carries an [`ErrorCode`]; the SQL node maps each one to a MySQL error number and SQLSTATE by an
//! exhaustive match. Numbers are append-only; a retired one is never given out again.

/// What a caller may do about an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorClass {
    /// Try again, perhaps elsewhere: nothing was done.
    Temporary,
    /// Another transaction or a failure was in the way, and nothing was done: run the transaction again, unless the message says otherwise.
    Conflict,
    Timeout,
    /// Memory, a queue or a pool is full.
    NoSpace,
    /// The schema changed or lacks the object.
    Schema,
    /// The request itself is wrong.
    User,
    /// The outcome is not known yet: ask with the commit token, never retry blindly.
    UnknownOutcome,
    /// A bug of ours.
    Internal,
}

macro_rules! errors {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $class:ident, $message:literal;)*) => {
        /// See the module documentation.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
        #[repr(u16)]
        pub enum ErrorCode { $($(#[$doc])* $name = $number,)* }

        impl ErrorCode {
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$name),*];
            pub fn class(self) -> ErrorClass {
                match self { $(ErrorCode::$name => ErrorClass::$class,)* }
            }
            /// What happened and what to do, one line.
            pub fn message(self) -> &'static str {
                match self { $(ErrorCode::$name => $message,)* }
            }
            /// `None` for a number this release does not know.
            pub fn from_u16(number: u16) -> Option<ErrorCode> {
                match number { $($number => Some(ErrorCode::$name),)* _ => None }
            }
        }
    };
}

errors! {
    /// Primary or unique key exists; the refusal names the index.
    DuplicateKey = 101, User, "a row with this key exists already";
    RowNotFound = 102, User, "no row with this key";
    /// Insert into a NOT NULL column without value, or NULL given.
    NullNotAllowed = 103, User, "a column that must not be NULL was given NULL";
    ValueOutOfRange = 104, User, "the value does not fit the column";
    RowTooBig = 105, User, "the row is larger than the limit of 4 MiB";
    KeyTooLong = 106, User, "the encoded key is longer than the limit of 8192 bytes";

    LockTimeout = 201, Timeout, "the wait for a row lock took longer than lock_wait_timeout; run the transaction again";
    Deadlock = 202, Conflict, "the transaction waited in a circle with others and was chosen to give way; run it again";
    /// NOWAIT was asked and the row is locked.
    LockNotAvailable = 203, Conflict, "the row is locked by another transaction";
    /// A node failed and took the transaction's locks or operations with it.
    NodeFailed = 204, Conflict, "a data node failed and the transaction was rolled back; run it again";
    TransactionAborted = 205, Conflict, "the transaction was rolled back; run it again";
    TransactionNotFound = 206, Conflict, "the coordinator does not know this transaction; it was rolled back";
    TransactionTimeout = 207, Timeout, "the transaction took too long and was rolled back";
    /// It was given up for its age or because memory was short, its node failed, or the table is younger than it.
    SnapshotTooOld = 208, Conflict, "the snapshot that the transaction reads at is not kept any more; run it again";

    /// Perhaps it did not end them, and they were lost at that time by chance: it is up to a person to try again.
    StatementEndsNodes = 209, Conflict, "two data nodes were lost while they executed this statement; it is not tried on another one, see their crash reports";

    /// An id names one transaction, at one coordinator.
    TransactionIdUsed = 210, User, "another transaction of this client has this id; a new transaction needs a new one";

    /// The receiver is not (or not yet) primary, or the view of the sender is old: refresh the map and try again.
    WrongView = 301, Temporary, "the partition map changed; fetch it and try again";
    NodeStarting = 302, Temporary, "the node is not yet a full member; try another";
    Overload = 303, Temporary, "a queue of the data node is full; try again in a moment";
    LinkLost = 304, Temporary, "the connection to a data node was lost";
    NoNodeAvailable = 305, Temporary, "no live data node can serve this; check `apus status`";
    SchemaBusy = 306, Temporary, "another schema change is running; try again";
    /// The node became a full member after the snapshot was taken; another replica may have it.
    SnapshotElsewhere = 307, Temporary, "this replica does not hold the snapshot; ask another one";

    /// Clients still need more outcomes than an LDM instance may remember.
    OutcomesFull = 308, Temporary, "the node remembers as many outcomes of commits as it may; try again in some seconds";

    /// What it was asked before it froze may still be executed; what this answers was not looked at.
    Frozen = 309, Temporary, "the data node may not go on without nodes that it lost, and waits for them (see `apus status`); try again";

    /// Nothing becomes durable: a member has no `--data-dir`, or no round of epochs has ended yet.
    NoDisk = 310, Temporary, "durability `disk` is asked for, and not every data node writes to a disk; start all of them with --data-dir, or ask for `replicated`";
    /// The log's buffers are full: the disk takes less than is written.
    LogFull = 311, Temporary, "a data node's disk does not keep up with the writes; try again in a moment";
    /// The log cannot be written.
    DiskFailed = 312, Temporary, "a data node cannot write to its disk, so nothing is changed until it can; see `apus status` and the node's log";

    OutOfMemory = 401, NoSpace, "the memory region for this is full (`apus status --memory` tells which); delete rows, commit more often, or start the data nodes with more --memory";
    TooManyTransactions = 402, NoSpace, "too many open transactions on this coordinator";
    TransactionTooLarge = 403, NoSpace, "the transaction takes more memory than a data node gives to one; commit more often, or raise `apus data --transaction-memory`";
    TooManySnapshots = 405, NoSpace, "too many snapshots are open on this node; end transactions";
    /// A list, key or row in the request is over a written limit.
    RequestTooLarge = 404, User, "the request is larger than its limit";

    TableNotFound = 501, Schema, "the table does not exist";
    TableExists = 502, Schema, "the table exists already";
    SchemaVersionChanged = 503, Schema, "the table was changed meanwhile; fetch its schema and try again";
    IndexNotFound = 504, Schema, "the index does not exist";
    IndexExists = 505, Schema, "an index of this name exists already";
    DatabaseNotFound = 506, Schema, "the database does not exist";
    DatabaseExists = 507, Schema, "the database exists already";
    DatabaseNotEmpty = 508, Schema, "the database is not empty";
    InvalidSchema = 509, User, "the table definition is not valid";
    TooManyTables = 510, NoSpace, "the limit of tables is reached";

    OutcomeUnknown = 601, UnknownOutcome, "the outcome of the commit is not known yet; ask with the commit token";
    /// The token is older than what the cluster remembers.
    OutcomeForgotten = 602, UnknownOutcome, "the outcome of this commit is too old to be remembered";

    /// Bytes that do not follow the protocol; the link is closed.
    ProtocolViolation = 701, User, "the message does not follow the Apus protocol";
    ProtocolVersion = 702, User, "the protocol version is not supported";
    NotSupported = 703, User, "not supported";
    WrongCluster = 704, User, "the peer belongs to another cluster";
    Fenced = 705, User, "this node was removed from the cluster; it must restart to join again";
    NotProven = 706, User, "the secret of this cluster was not proven; give both sides the same secret file";
    /// A client's secret in a node's place.
    RoleNotProven = 707, User, "the secret does not prove this role; nodes and operators need the node secret";
    /// Of an operator's request.
    NotFrozen = 710, User, "the data node is not frozen: there is nothing to resume";
    SideChanged = 711, User, "the frozen side is not any more what it was when it was looked at; look again (`apus status`)";
    NoFullCopy = 712, User, "the frozen side holds no full copy of a node group";
    /// Constraints are held by SQL nodes.
    ConstraintsNotHeld = 713, User, "the table has foreign keys, other constraints or generated columns, or is referred to, which this client does not hold; write its rows through a SQL node";
    Internal = 900, Internal, "internal error; see the node's log";
}

impl ErrorCode {
    /// The same request may succeed if sent again, with nothing done so far.
    pub fn is_temporary(self) -> bool {
        self.class() == ErrorClass::Temporary
    }
    /// Temporary, and perhaps so until an operator acts: nobody waits long for that.
    pub fn waits_for_operator(self) -> bool {
        matches!(self, ErrorCode::Frozen | ErrorCode::NoDisk | ErrorCode::LogFull | ErrorCode::DiskFailed)
    }
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "APUS-{}: {}", *self as u16, self.message())
    }
}
impl std::error::Error for ErrorCode {}

#[cfg(test)]
mod tests {
    use super::ErrorCode;

    #[test]
    fn numbers_round_trip() {
        for &code in ErrorCode::ALL {
            assert_eq!(ErrorCode::from_u16(code as u16), Some(code));
            assert!(!code.message().is_empty());
        }
        assert_eq!(ErrorCode::from_u16(0), None);
    }
}
