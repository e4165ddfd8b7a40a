//! Whole runs: a cluster, clients with a purpose, faults, and a check of what must hold at the end. The seed decides everything.

mod acked_set;
mod append;
pub mod bank;
mod branches;
mod changer;
mod churn;
mod crew;
mod ledger;
mod register;
mod teller;
mod unique;
mod watcher;

use self::{churn::Churned, crew::Crew};
use crate::{
    drill::{self, Failure, Report, Workload},
    settings::Settings,
};

/// What the clients of a run do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Transfers between accounts; [`bank`].
    Bank,
    /// Transactions over lists, for READ COMMITTED and strict serializability.
    Append,
    /// Single rows, for linearizability.
    Register,
    /// A unique and an ordered index, and statements that are undone.
    Unique,
    /// Inserts and deletes with reads between them, and commit tokens.
    Set,
}

impl Kind {
    pub const ALL: &[Kind] = &[Kind::Bank, Kind::Append, Kind::Register, Kind::Unique, Kind::Set];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Bank => "bank",
            Kind::Append => "append",
            Kind::Register => "register",
            Kind::Unique => "unique",
            Kind::Set => "set",
        }
    }
    pub fn from_name(name: &str) -> Option<Kind> {
        Kind::ALL.iter().copied().find(|kind| kind.name() == name)
    }
    /// Neighbouring seeds take turns.
    pub fn from_seed(seed: u64) -> Kind {
        Kind::ALL[(seed % Kind::ALL.len() as u64) as usize]
    }
}

/// Runs the workload that the settings name.
///
/// # Errors
/// What does not hold; a panic of a block is that, too.
pub fn run(settings: &Settings) -> Result<Report, Failure> {
    match settings.workload {
        Kind::Bank => bank::run(settings),
        Kind::Append => start(settings, Crew::new(settings, append::Lists::new)),
        Kind::Register => start(settings, Crew::new(settings, |hall| register::Registers::new(hall, settings.durable))),
        Kind::Unique => start(settings, Crew::new(settings, unique::Items::new)),
        Kind::Set => start(settings, Crew::new(settings, acked_set::Numbers::new)),
    }
}

/// Runs a workload, with changes of the schema beside it if the settings say so.
fn start<W: Workload>(settings: &Settings, workload: W) -> Result<Report, Failure> {
    if settings.churn { drill::run(settings, Churned::new(settings, workload)) } else { drill::run(settings, workload) }
}
