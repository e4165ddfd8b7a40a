//! Whole runs: a cluster, clients with a purpose, faults, and a check of what must hold at the end. The seed decides everything.

pub mod bank;
mod teller;

use crate::{
    drill::{Failure, Report},
    settings::Settings,
};

/// What the clients of a run do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Bank,
}

impl Kind {
    pub const ALL: &[Kind] = &[Kind::Bank];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Bank => "bank",
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
    }
}
