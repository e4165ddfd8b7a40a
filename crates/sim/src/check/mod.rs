//! Judges of histories: what clients did and saw, held against what the database promises.
//!
//! Nothing here runs a cluster, touches a file or knows the time: a judge is given a record and says what in it cannot be. So the same
//! judges serve the simulator's workloads and histories of real processes (`apus check-history`), and each is tested on records made by
//! hand, good and bad.
//!
//! | module | record | promise |
//! |---|---|---|
//! | [`register`] | reads, writes, compare-and-set of single values | linearizable per key |
//! | [`append`] | transactions that read and append to lists | an isolation level, with or without real time |
//! | [`set`] | inserts, deletes, reads of everything | what was acknowledged is there, what was refused is not |
//! | [`unique`] | a table read by its key and through its indexes | indexes and rows agree, no value twice |
//! | [`schema`] | the dictionaries of all nodes, and what those who changed them were told | one schema everywhere, with what was acknowledged |
//! | [`tokens`] | answers to commit tokens, and what was seen | answers never contradict each other or what was read |
//! | [`history`] | the form of transactions in files: Jepsen's, in [`edn`] | |

pub mod append;
pub mod edn;
pub mod history;
pub mod register;
pub mod schema;
pub mod set;
pub mod tokens;
pub mod unique;
