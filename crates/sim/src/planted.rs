//! Tests of the tests: every planted bug ([`Bug`]) must be found by some seed that is good without it.
//!
//! What finds a bug must be a checker: of a history, of what must hold at rest, of progress, of who may stop. A broken assertion of a block
//! counts only where it is the bug's intended guard ([`guard`]), and a hunt goes on past all others.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use apus_types::planted::{Bug, arm};

use crate::{drill::Failure, settings::Settings, workload};

/// Columns of the table for what was found.
const FOUND_CHARS: usize = 100;
/// How a failure begins that is a broken assertion.
const ASSERTION: &str = "panic: ";

/// Part of the message of the assertion that is there to find this bug before any client can see it.
pub fn guard(bug: Bug) -> &'static [&'static str] {
    // What was complete has no late commits: no snapshot of it changes.
    const LATE_COMMIT: &str = "panic: commit in epoch";
    match bug {
        Bug::TakeOverCommits | Bug::DrainNotAwaited => &[LATE_COMMIT],
        // A row that should be gone lives in a place that its primary gives to another one.
        Bug::EmptiedNotLogged => &["is replaced by its primary and lives here"],
        // A copy has the place of its row at the primary.
        Bug::CopyChoosesSlot => &["is replaced by its primary and lives here"],
        // Whom a view has removed gives no rows any more: the places that they would take are given by the primary of that view.
        Bug::GateLeftOpen => &[LATE_COMMIT, "is replaced by its primary and lives here"],
        // The primary gives a slot to another row when its abort is done on the whole chain.
        Bug::AbortEndsAtPrimary => &["is replaced by its primary and is locked here"],
        Bug::TakeOverAborts => &["after its commit"],
        // Everybody has it before anybody is told so.
        Bug::AckAfterFirstChain | Bug::PrepareNotAwaited => &["before its commit"],
        Bug::LeaseWhileSuspended => &["a lease while the link to a member waits for a connection"],
        // Who turns a chain relies on TCs: nothing that a client could see comes before that.
        // No client can see it: who has two images of a disk can.
        Bug::KeyGoesOn => &["seals two blocks"],
        Bug::SwitchForgetsLocks | Bug::SwitchHoldsNobody => &["is turned while transaction"],
        _ => &[],
    }
}

/// Where to look, and how long.
#[derive(Clone, Debug)]
pub struct Hunt {
    pub bugs: Vec<Bug>,
    /// First seeds of disjoint ranges.
    pub from: Vec<u64>,
    /// Seeds of each range.
    pub seeds: u64,
    pub threads: usize,
    /// Count every broken assertion, not only guards.
    pub counts_assertions: bool,
}

/// What one range has to say of a bug.
#[derive(Clone, Debug, Default)]
pub struct Finding {
    /// Seeds until one failed as it should; `None`: none of them.
    pub seeds: Option<u64>,
    /// Workload and failure of that seed.
    pub by: String,
    /// Seeds before it that failed by an assertion that is not the bug's guard, and the last of these.
    pub assertions: u64,
    pub assertion: String,
}

/// All ranges of one bug, in their order.
#[derive(Clone, Debug)]
pub struct Row {
    pub bug: Bug,
    pub findings: Vec<Finding>,
}

impl Row {
    /// Median of the seeds needed; `None`: more than a range has.
    pub fn median(&self) -> Option<u64> {
        let mut all: Vec<u64> = self.findings.iter().map(|f| f.seeds.unwrap_or(u64::MAX)).collect();
        all.sort_unstable();
        all.get(all.len() / 2).copied().filter(|seeds| *seeds != u64::MAX)
    }
    /// A line of the table in docs/internals/simulation.md.
    fn line(&self) -> String {
        let number = |seeds: Option<u64>| seeds.map_or_else(|| "none".to_owned(), |n| n.to_string());
        let each: Vec<String> = self.findings.iter().map(|f| number(f.seeds)).collect();
        let assertions: u64 = self.findings.iter().map(|f| f.assertions).sum();
        let mut by = self.findings.iter().map(|f| f.by.clone()).find(|by| !by.is_empty()).unwrap_or_default();
        if let Some(finding) = self.findings.iter().find(|f| f.assertions > 0) {
            by.push_str(&format!(" (not counted: {assertions} times {})", finding.assertion));
        }
        format!("| {:?} | {} | {} | {by} |", self.bug, number(self.median()), each.join(", "))
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line())
    }
}

fn run(seed: u64, bug: Option<Bug>) -> Option<Failure> {
    arm(bug);
    let result = workload::run(&Settings::from_seed(seed));
    arm(None);
    result.err()
}

fn words(seed: u64, failure: &Failure) -> String {
    let line: String = failure.what.replace(['\n', '|'], " ").chars().take(FOUND_CHARS).collect();
    format!("{}: {line}", Settings::from_seed(seed).workload.name())
}

/// Runs the seeds of one range until one fails as it should.
fn look(bug: Bug, from: u64, seeds: u64, counts_assertions: bool) -> Finding {
    let mut finding = Finding::default();
    for seed in from..from + seeds {
        let Some(failure) = run(seed, Some(bug)) else { continue };
        let is_counted = counts_assertions
            || !failure.what.starts_with(ASSERTION)
            || guard(bug).iter().any(|text| failure.what.contains(text));
        if !is_counted {
            finding.assertions += 1;
            finding.assertion = words(seed, &failure);
        } else if run(seed, None).is_none() {
            finding.seeds = Some(seed - from + 1);
            finding.by = words(seed, &failure);
            return finding;
        }
    }
    finding
}

impl Hunt {
    /// Looks for all; `each` is told of every bug as soon as all ranges have been looked at.
    pub fn run(&self, each: impl Fn(&Row) + Sync) -> Vec<Row> {
        let jobs: Vec<(Bug, usize)> =
            self.bugs.iter().flat_map(|bug| (0..self.from.len()).map(|range| (*bug, range))).collect();
        let next = AtomicUsize::new(0);
        let rows: Mutex<BTreeMap<Bug, BTreeMap<usize, Finding>>> = Mutex::default();
        let work = || {
            while let Some((bug, range)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                let finding = look(*bug, self.from[*range], self.seeds, self.counts_assertions);
                let Ok(mut rows) = rows.lock() else { return };
                let found = rows.entry(*bug).or_default();
                found.insert(*range, finding);
                if found.len() == self.from.len() {
                    each(&Row { bug: *bug, findings: found.values().cloned().collect() });
                }
            }
        };
        std::thread::scope(|scope| (0..self.threads.max(1)).for_each(|_| _ = scope.spawn(work)));
        let rows = rows.into_inner().unwrap_or_default();
        rows.into_iter().map(|(bug, found)| Row { bug, findings: found.into_values().collect() }).collect()
    }
}
