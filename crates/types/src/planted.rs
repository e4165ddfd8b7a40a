//! Bugs planted on purpose, to test the tests: each is a plausible mistake in the protocol, and the simulator must find it.
//!
//! Without the feature `planted-bugs` the question [`planted`] is the constant `false`, as the compiler checks below, so no other build
//! contains them. With it one bug at a time is armed for a thread. This crate holds the list because it is below all that ask.

/// A mistake, named for what it does. `apus_sim::planted` arms each in turn.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Bug {
    /// A locking read for update takes no lock.
    ExclusiveReadUnlocked,
    /// A locking read for sharing takes no lock.
    SharedReadUnlocked,
    /// Locks of rows that were only read are given back when their batch is answered.
    LocksEndWithBatch,
    /// Nobody waits for what a prepared branch claims.
    ClaimIgnored,
    /// A backup undoes one row of a transaction instead of committing it.
    BackupDropsCommit,
    /// Deletes are not sent to backups.
    BackupMissesDeletes,
    /// The primary sends changes to the last replica of a chain, past those in the middle.
    MiddleReplicaSkipped,
    /// Take-over commits what nobody has committed.
    TakeOverCommits,
    /// Take-over rolls back what a replica has committed.
    TakeOverAborts,
    /// A primary accepts operations that were sent by an old map.
    StaleMapAccepted,
    /// Signals of removed nodes and of what they coordinated are let in.
    GateLeftOpen,
    /// Committed reads see what is not committed.
    PendingRead,
    /// A backup answers reads of rows that not every replica has committed.
    IncompleteRead,
    /// The entry of a unique index stays when its row goes.
    UniqueEntryStays,
    /// An entry of a unique index replaces that of another row.
    UniqueNotEnforced,
    /// An update of an indexed column does not reach the ordered index.
    OrderedIndexStale,
    /// Rows that are locked while their table is copied are left out.
    CopyMissesLocked,
    /// A copied row replaces what came for it by the chain meanwhile.
    CopyOverwritesNewer,
    /// The undoing of a statement forgets one row.
    SavepointForgetsRow,
    /// An autocommit batch is answered before its backups have it.
    AckBeforeBackup,
    /// A commit is answered when the first of its chains has it.
    AckAfterFirstChain,
    /// A commit does not wait until everything is prepared.
    PrepareNotAwaited,
    /// An abort does not reach the backups.
    AbortEndsAtPrimary,
    /// A question for an outcome is answered with "committed" for what was rolled back.
    OutcomeLies,
    /// Either half of a cluster goes on without asking the arbitrator.
    ArbitrationIgnored,
    /// A batch under way is sent again in a new view, and executed again.
    ExecutedTwice,
    /// A new president does not finish a schema change that some members have committed.
    SchemaLeftHalf,
    /// A schema change begins while a node that joins has a copy of the dictionary.
    SchemaLockIgnored,
    /// An ordered index of a table with rows begins empty.
    OrderedIndexUnfilled,
    /// A question for an outcome leaves nothing behind: the batch is executed after its client was told that nothing of it was done.
    TombstoneIgnored,
    /// What a question leaves behind goes before the client's older links are closed.
    TombstoneTooShort,
    /// A node answers for a transaction whose living coordinator it has not asked.
    OutcomeAskedElsewhere,
    /// A switchover does not wait for transactions that have only read rows with locks.
    SwitchForgetsLocks,
    /// A switchover lets new transactions in while it waits for the old ones.
    SwitchHoldsNobody,
    /// Readers do not see what a transaction has changed before its rows are stamped.
    DecidedNotRead,
    /// Transactions whose end takes several slices are forgotten half way in a new view.
    SlicesLostInView,
    /// The arbitrator does not remember whom it told that they must not go on.
    ArbitratorForgets,
    /// A half asks whichever arbitrator it reaches, not the one that its view names.
    AnyArbitratorAsked,
    /// A side with a member of each group goes on, however few they are.
    MinorityGoesOn,
    /// A recovering node becomes a full member before its partitions are filled.
    RecoveredTooEarly,
    /// A node is let in without a copy of the president's dictionary.
    JoinWithoutDictionary,
    /// A view is committed before its members have confirmed it.
    ViewNotAwaited,
    /// An epoch is complete when the first member has drained it.
    DrainNotAwaited,
    /// A read at a snapshot shows the latest committed row.
    SnapshotShowsLatest,
    /// A client takes the answer of a node that its view does not have.
    AnswerOfRemoved,
    /// A link that goes on does not send again what was lost with its connection.
    LinkSkipsLost,
    /// A link that goes on sends again what the other end has executed.
    LinkRepeats,
    /// A node serves its clients while it waits for a connection to a member.
    LeaseWhileSuspended,
    /// A copied row takes a slot that its replica chooses.
    CopyChoosesSlot,
    /// A snapshot is handed out, and read at, though versions are not kept for it.
    SnapshotWithoutVersions,
    /// An answer does not say that what it shows has just been committed.
    MomentMissesCommits,
    /// A commit of class `disk` is answered before it is on any disk.
    AckBeforeSync,
    /// An epoch counts as restorable when one member has it on its disk.
    SavedByOneNode,
    /// A system restart goes to the newest epoch that one node has saved.
    EpochOfOneNode,
    /// A log is not synced before its mark counts.
    MarkNotSynced,
    /// What a restart gave up is read again by the next one.
    VoidReadAgain,
    /// When the number of workers changes, what the logs of all workers but the first say is left out.
    OldLogUnread,
    /// When the number of workers changes, the old logs go before the new ones count.
    OldLogsGoEarly,
    /// Reading a log stops at its newest mark's place instead of its end.
    ReplayStopsEarly,
    /// Aborts are not written to the log.
    AbortNotLogged,
    /// Rows that came as copies are not written to the log.
    CopyNotLogged,
    /// The log is cut where a checkpoint's walk began, whatever was open then.
    WrongTailCut,
    /// A checkpoint counts before what is in it is restorable.
    CheckpointTooEarly,
    /// A checkpoint is listed before its file is synced.
    ControlBeforeSync,
    /// Of a page that a newer checkpoint has the rows of older ones are taken, too.
    PageHeaderIgnored,
    /// A node that comes back with rows from its disk keeps those that were deleted meanwhile.
    DeletedRowStays,
    /// ... gives them up and does not tell its log.
    EmptiedNotLogged,
    /// A node that comes back puts back all that is in its log, whether the cluster has it or not.
    OwnSuffixKept,
    /// A node that comes back is sent what has changed since it came, and not since it died.
    ChangesMissed,
    /// The end of a transaction stamps all its rows in one go.
    SliceWithoutEnd,
    /// A column that was added with a default is NULL in rows that were there before.
    AddedColumnIsNull,
    /// Operations by the definition before a change of columns are still taken, though columns have other numbers.
    OldColumnsTaken,
    /// A node that joins is not told what became of transactions, and thinks that it was.
    OutcomesNotCopied,
    /// A process goes on in an encrypted log with the keys of the one before it.
    KeyGoesOn,
    /// Of what has changed between two snapshots the rows that are gone are left out.
    DeletedNotListed,
    /// A start from the disks does without full members that are missing, whether the arbitrator has fenced them or not.
    FenceOfAnybody,
    /// A frozen side goes on as if all that it does not hear were dead.
    SilentHeldForDead,
}

impl Bug {
    pub const ALL: &[Bug] = &[
        Bug::ExclusiveReadUnlocked,
        Bug::SharedReadUnlocked,
        Bug::LocksEndWithBatch,
        Bug::ClaimIgnored,
        Bug::BackupDropsCommit,
        Bug::BackupMissesDeletes,
        Bug::MiddleReplicaSkipped,
        Bug::TakeOverCommits,
        Bug::TakeOverAborts,
        Bug::StaleMapAccepted,
        Bug::GateLeftOpen,
        Bug::PendingRead,
        Bug::IncompleteRead,
        Bug::UniqueEntryStays,
        Bug::UniqueNotEnforced,
        Bug::OrderedIndexStale,
        Bug::CopyMissesLocked,
        Bug::CopyOverwritesNewer,
        Bug::SavepointForgetsRow,
        Bug::AckBeforeBackup,
        Bug::AckAfterFirstChain,
        Bug::PrepareNotAwaited,
        Bug::AbortEndsAtPrimary,
        Bug::OutcomeLies,
        Bug::ArbitrationIgnored,
        Bug::ExecutedTwice,
        Bug::SchemaLeftHalf,
        Bug::SchemaLockIgnored,
        Bug::OrderedIndexUnfilled,
        Bug::TombstoneIgnored,
        Bug::TombstoneTooShort,
        Bug::OutcomeAskedElsewhere,
        Bug::SwitchForgetsLocks,
        Bug::SwitchHoldsNobody,
        Bug::DecidedNotRead,
        Bug::SlicesLostInView,
        Bug::ArbitratorForgets,
        Bug::AnyArbitratorAsked,
        Bug::MinorityGoesOn,
        Bug::RecoveredTooEarly,
        Bug::JoinWithoutDictionary,
        Bug::ViewNotAwaited,
        Bug::DrainNotAwaited,
        Bug::SnapshotShowsLatest,
        Bug::AnswerOfRemoved,
        Bug::LinkSkipsLost,
        Bug::LinkRepeats,
        Bug::LeaseWhileSuspended,
        Bug::CopyChoosesSlot,
        Bug::SnapshotWithoutVersions,
        Bug::MomentMissesCommits,
        Bug::AckBeforeSync,
        Bug::SavedByOneNode,
        Bug::EpochOfOneNode,
        Bug::MarkNotSynced,
        Bug::VoidReadAgain,
        Bug::OldLogUnread,
        Bug::OldLogsGoEarly,
        Bug::ReplayStopsEarly,
        Bug::AbortNotLogged,
        Bug::CopyNotLogged,
        Bug::WrongTailCut,
        Bug::CheckpointTooEarly,
        Bug::ControlBeforeSync,
        Bug::PageHeaderIgnored,
        Bug::DeletedRowStays,
        Bug::EmptiedNotLogged,
        Bug::OwnSuffixKept,
        Bug::ChangesMissed,
        Bug::SliceWithoutEnd,
        Bug::AddedColumnIsNull,
        Bug::OldColumnsTaken,
        Bug::OutcomesNotCopied,
        Bug::KeyGoesOn,
        Bug::DeletedNotListed,
        Bug::FenceOfAnybody,
        Bug::SilentHeldForDead,
    ];
}

#[cfg(feature = "planted-bugs")]
mod armed {
    use std::cell::Cell;

    use super::Bug;

    thread_local! {
        static ARMED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Arms a bug in this thread, or none: a simulated cluster has one thread.
    pub fn arm(bug: Option<Bug>) {
        ARMED.set(bug);
    }
    /// Whether to make this mistake.
    #[inline]
    pub fn planted(bug: Bug) -> bool {
        ARMED.get() == Some(bug)
    }
}

#[cfg(feature = "planted-bugs")]
pub use armed::{arm, planted};

/// Whether to make this mistake: never.
#[cfg(not(feature = "planted-bugs"))]
#[inline(always)]
pub const fn planted(bug: Bug) -> bool {
    let _ = bug;
    false
}

// Known to the compiler, so nothing behind the question is in the binary.
#[cfg(not(feature = "planted-bugs"))]
const _: () = {
    let mut i = 0;
    while i < Bug::ALL.len() {
        assert!(!planted(Bug::ALL[i]));
        i += 1;
    }
};
