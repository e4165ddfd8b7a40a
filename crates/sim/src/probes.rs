//! The catalogue of probes and fault points of the product.
//!
//! A probe says that a rare condition was reached; `apus sim --seeds` reports those that no seed reached. A fault point is a place where
//! a block asks whether to misbehave; seeds arm those of [`DRAWN`]. A test compares both lists with the sources.

/// Every name given to `ctx.probe` in a crate of the product.
pub const PROBES: &[&str] = &[
    "blocks: signal of a later view set aside",
    "dict: a new president finishes a schema transaction",
    "dict: a new president undoes a schema transaction",
    "dih: snapshots are given up because memory is short",
    "ldm: backup refuses a row",
    "ldm: batch of a removed coordinator dropped",
    "ldm: batch refused for its view",
    "ldm: copy begins anew without a dead node",
    "ldm: copy ends with the recovering node",
    "ldm: copy of a partition refused",
    "ldm: copy waits for locked rows",
    "ldm: lock granted in vain",
    "ldm: lock wait timed out",
    "ldm: one-pass batch came again after its commit",
    "ldm: one-pass batch came again before its commit",
    "ldm: one-pass batch ends at its last replica",
    "ldm: one-pass batch goes on to the next node",
    "ldm: one-pass batch turns back at a new end of its chain",
    "ldm: orphan reported as committed",
    "ldm: prepare of a removed coordinator dropped",
    "ldm: recovering node cannot store a row",
    "ldm: refused one-pass batch came again",
    "ldm: wait cancelled after its grant",
    "ldm: wait of a dead coordinator's transaction dropped",
    "qmgr: a frozen node gives way",
    "qmgr: a lease ended by itself",
    "qmgr: a member is asked to give up its lease",
    "qmgr: a removed process asks to join",
    "qmgr: accusation set aside",
    "qmgr: frozen",
    "qmgr: hears too few to go on",
    "qmgr: other sides are asked to give way",
    "qmgr: take-over finds a newer committed view",
    "qmgr: take-over finds an accepted proposal",
    "qmgr: thawed",
    "qmgr: word of a removed node ignored",
    "tc: a replica does not remember so far back",
    "tc: abort sent again in a new view",
    "tc: client gives up a batch",
    "tc: client gone amid a transaction",
    "tc: client learns of its commit from another node",
    "tc: commit sent again in a new view",
    "tc: commit to a chain without living nodes",
    "tc: confirmation of an abort that was sent again",
    "tc: deadlock victim",
    "tc: one-pass batch becomes an ordinary one",
    "tc: one-pass batch refused by a backup",
    "tc: outcome asked too early",
    "tc: part of a batch sent again in another view",
    "tc: question for an outcome dropped by a new view",
    "tc: take-over aborts",
    "tc: take-over begins anew",
    "tc: take-over commits",
    "tc: take-over handed on after its commit",
    "tc: transaction doomed by a lost node",
];

/// Every name given to `ctx.fault`.
pub const FAULT_POINTS: &[&str] = &[
    "dict.drop_commit",
    "ldm.refuse_copy",
    "ldm.refuse_memory",
    "ldm.refuse_prepare",
    "ldm.stop_copy",
    "qmgr.drop_view_commit",
];

/// Fault points that seeds arm: each makes something rare likely, none breaks a promise. `ldm.stop_copy` ends a node that recovers.
pub const DRAWN: &[&str] = &[
    "dict.drop_commit",
    "ldm.refuse_copy",
    "ldm.refuse_memory",
    "ldm.refuse_prepare",
    "ldm.stop_copy",
    "qmgr.drop_view_commit",
];
