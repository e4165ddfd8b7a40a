//! Whole runs: a cluster, clients with a purpose, faults, and a check of what must hold at the end. The seed decides everything.

pub mod bank;
mod teller;
