//! How far a node is that starts: what its LDMs say of themselves ([`Progress`], twice a second), together, for `apus status`.
//!
//! A start has phases, of which a node that has nothing on its disk has the last one only, and a start of the whole cluster all but that one. Rate and
//! remaining time are those of a phase: what one takes says nothing of the next. The node is as far as the instance that is furthest behind.

use std::collections::BTreeMap;

use apus_signal::{
    mgmt::StartProgress,
    restart::{Progress, StartPhase},
    view::NodeState,
};
use apus_types::NodeId;

use super::Membership;

const MS: u64 = 1_000_000;

/// Of each LDM: what it said last, and what of its present phase came first, and when.
#[derive(Default)]
pub(super) struct Starting(BTreeMap<u32, (Progress, Progress, u64)>);

/// What an instance has, whatever brought it.
fn rows(p: &Progress) -> u64 {
    p.loaded + p.replayed + p.fetched + p.unchanged
}

impl Starting {
    fn note(&mut self, progress: Progress, now: u64) {
        let entry = self.0.entry(progress.instance).or_insert((progress, progress, now));
        if entry.0.phase != progress.phase {
            (entry.1, entry.2) = (progress, now);
        }
        entry.0 = progress;
    }

    fn sum(&self, field: fn(&Progress) -> u64) -> u64 {
        self.0.values().map(|(last, ..)| field(last)).sum()
    }

    /// `None`: nobody has said anything.
    fn figures(&self, now: u64, elapsed_ms: u64) -> Option<StartProgress> {
        let phase = self.0.values().map(|(last, ..)| last.phase()).min()?;
        let in_phase = || self.0.values().filter(|(last, ..)| last.phase() == phase);
        let (done, of) = in_phase().fold((0, 0), |(done, of), (last, ..)| (done + last.done, of + last.of));
        let per_second = |(last, first, since): &(Progress, Progress, u64)| {
            (rows(last) - rows(first)) * 1000 / (now.saturating_sub(*since) / MS).max(1)
        };
        let remaining = |(last, first, since): &(Progress, Progress, u64)| {
            let (more, passed) = (last.done.saturating_sub(first.done), now.saturating_sub(*since) / MS);
            let left = u128::from(last.of.saturating_sub(last.done));
            (more > 0).then(|| (left * u128::from(passed) / u128::from(more)) as u64)
        };
        Some(StartProgress {
            phase: phase as i32,
            rows: self.sum(rows),
            rows_per_second: in_phase().map(per_second).sum(),
            percent: (done * 100 / of.max(1)).min(100) as u32,
            remaining_ms: in_phase().filter_map(remaining).max().unwrap_or(0),
            elapsed_ms,
        })
    }
}

impl Membership {
    pub(super) fn on_progress(&mut self, progress: Progress, now: u64) {
        self.restart.starting.note(progress, now);
    }

    /// How far this node is; `None`: it is a full member, or nothing is known.
    pub(super) fn start_progress(&self, now: u64) -> Option<StartProgress> {
        let is_full = self.view.as_ref().is_some_and(|view| view.state(self.me) == NodeState::Up);
        let elapsed_ms = now.saturating_sub(self.started_at.unwrap_or(now)) / MS;
        self.restart.starting.figures(now, elapsed_ms).filter(|_| !is_full)
    }

    /// For people: whom the cluster began or went on without, as long as they are not full members again.
    fn did_without(&self) -> &str {
        let Some((nodes, text)) = &self.restart.did_without else { return "" };
        let is_away = |n: &NodeId| self.view.as_ref().is_some_and(|view| view.state(*n) != NodeState::Up);
        if nodes.iter().any(is_away) { text } else { "" }
    }

    /// The same as the figures, for people; empty: there is nothing to be said.
    pub(super) fn progress(&self, now: u64) -> String {
        if !self.waits_for().is_empty() {
            return self.waits_for().to_owned();
        }
        let Some(start) = self.start_progress(now) else { return self.did_without().to_owned() };
        let sum = |field: fn(&Progress) -> u64| self.restart.starting.sum(field);
        let own = format!("{} rows from checkpoints, {} changes from its log", sum(|p| p.loaded), sum(|p| p.replayed));
        let (fetched, unchanged, gone) = (sum(|p| p.fetched), sum(|p| p.unchanged), sum(|p| p.gone));
        let what = match start.phase() {
            StartPhase::Rows => {
                format!(
                    "is being filled: {fetched} rows fetched, {unchanged} unchanged, {gone} gone; had put back {own}"
                )
            }
            StartPhase::Indexes => format!("makes the indexes of what was on its disk: {own}"),
            _ => format!("puts back what is on its disk: {own}"),
        };
        let left = match start.remaining_ms {
            0 => String::new(),
            ms => format!(", about {} s more", ms.div_ceil(1000)),
        };
        let (phase, elapsed) = (start.phase().name(), start.elapsed_ms / 1000);
        let (percent, rate) = (start.percent, start.rows_per_second);
        format!("{what}; {phase} {percent} %, {rate} rows/s{left}; {elapsed} s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn said(instance: u32, phase: StartPhase, (done, of): (u64, u64), loaded: u64) -> Progress {
        Progress { instance, phase: phase as i32, done, of, loaded, ..Progress::default() }
    }

    #[test]
    fn a_node_is_as_far_as_its_last_instance() {
        let mut starting = Starting::default();
        assert_eq!(starting.figures(S, 1000), None);
        starting.note(said(0, StartPhase::Checkpoints, (0, 1000), 0), 10 * S);
        starting.note(said(1, StartPhase::Checkpoints, (0, 1000), 0), 10 * S);
        let figures = starting.figures(10 * S, 1000).expect("known");
        assert_eq!((figures.percent, figures.rows_per_second, figures.remaining_ms), (0, 0, 0), "nothing is known yet");
        starting.note(said(0, StartPhase::Checkpoints, (500, 1000), 5_000), 15 * S);
        starting.note(said(1, StartPhase::Checkpoints, (250, 1000), 2_500), 15 * S);
        let figures = starting.figures(15 * S, 6000).expect("known");
        assert_eq!(figures.phase(), StartPhase::Checkpoints);
        assert_eq!((figures.rows, figures.rows_per_second), (7_500, 1_500));
        assert_eq!((figures.percent, figures.remaining_ms, figures.elapsed_ms), (37, 15_000, 6000));
        // Another phase is measured by itself.
        starting.note(said(0, StartPhase::Log, (0, 100), 10_000), 20 * S);
        let figures = starting.figures(20 * S, 11_000).expect("known");
        assert_eq!((figures.phase(), figures.percent), (StartPhase::Checkpoints, 25));
        starting.note(said(1, StartPhase::Log, (0, 100), 10_000), 22 * S);
        starting.note(said(1, StartPhase::Log, (50, 100), 10_100), 24 * S);
        let figures = starting.figures(24 * S, 15_000).expect("known");
        assert_eq!((figures.phase(), figures.percent, figures.rows_per_second), (StartPhase::Log, 25, 50));
        assert_eq!((figures.rows, figures.remaining_ms), (20_100, 2_000));
    }
}
