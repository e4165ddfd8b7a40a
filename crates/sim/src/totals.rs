//! What many runs add up to.

use std::{collections::BTreeMap, fmt};

use crate::drill::{Failure, Report};

const YEAR_MS: f64 = 365.25 * 24.0 * 3600.0 * 1000.0;

#[derive(Clone, Debug, Default)]
pub struct Totals {
    pub seeds: u64,
    pub failed: u64,
    pub virtual_ms: u64,
    pub commits: u64,
    pub unresolved: u64,
    pub schema_changes: u64,
    pub audits: u64,
    pub histories: u64,
    pub undecided: u64,
    pub ruined: u64,
    /// Of all event hashes: equal for two builds that ran the same seeds in whatever order.
    pub hash_sum: u64,
    pub faults: BTreeMap<&'static str, u64>,
    pub probes: BTreeMap<&'static str, u64>,
}

impl Totals {
    pub fn add(&mut self, outcome: &Result<Report, Failure>) {
        self.seeds += 1;
        match outcome {
            Ok(report) => {
                self.virtual_ms += report.virtual_ms;
                self.commits += report.transfers as u64;
                self.unresolved += report.unresolved as u64;
                self.schema_changes += report.schema_changes;
                self.audits += report.audits;
                self.histories += report.histories;
                self.hash_sum = self.hash_sum.wrapping_add(report.hash);
                self.ruined += report.ruined;
                self.undecided += report.undecided.len() as u64;
                report.faults.iter().for_each(|(kind, n)| *self.faults.entry(kind).or_insert(0) += n);
                report.probes.iter().for_each(|(name, n)| *self.probes.entry(name).or_insert(0) += n);
            }
            Err(failure) => {
                self.failed += 1;
                self.virtual_ms += failure.virtual_ms;
            }
        }
    }
    pub fn virtual_seconds(&self) -> f64 {
        self.virtual_ms as f64 / 1000.0
    }
    pub fn cluster_years(&self) -> f64 {
        self.virtual_ms as f64 / YEAR_MS
    }
    pub fn fault_count(&self) -> u64 {
        self.faults.values().sum()
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seeds     {} run, {} failed", self.seeds, self.failed)?;
        writeln!(
            f,
            "time      {:.0} virtual seconds, {:.6} cluster-years",
            self.virtual_seconds(),
            self.cluster_years()
        )?;
        let kinds: Vec<String> = self.faults.iter().map(|(kind, n)| format!("{kind} {n}")).collect();
        writeln!(f, "faults    {}: {}", self.fault_count(), kinds.join(", "))?;
        writeln!(f, "commits   {} acknowledged, {} of unknown outcome", self.commits, self.unresolved)?;
        writeln!(f, "schema    {} changes acknowledged", self.schema_changes)?;
        writeln!(f, "audits    {} passed", self.audits)?;
        writeln!(f, "histories {} judged, {} undecided", self.histories, self.undecided)?;
        writeln!(f, "ruined    {} clusters did not come back, as nobody promises", self.ruined)?;
        writeln!(f, "hashes    {:016x} is their sum", self.hash_sum)
    }
}
