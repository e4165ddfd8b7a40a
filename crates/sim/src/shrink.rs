//! Makes a failing run smaller, so that a person can read it.
//!
//! Whatever can be left out is left out, one thing at a time, as long as what is left still fails, with whatever failure: rounds, faults,
//! clients, workers, the moods of the network; then times are made shorter and rounder. Each trial is a whole run, and since the run
//! as a whole depends on everything, a smaller one may well pass where the big one failed: then the part stays. What was within the promise
//! ([`crate::promise`]) stays within it: a failure beyond it would be another one.

use crate::{
    drill::Failure,
    fault::{Fault, Schedule, Span, Then},
    promise,
    settings::Settings,
};

const MS: u64 = 1_000_000;

/// The smallest settings found that fail, and how; after at most `runs` trials.
pub fn shrink(
    settings: &Settings,
    failure: Failure,
    runs: usize,
    mut run: impl FnMut(&Settings) -> Result<(), Failure>,
) -> (Settings, Failure) {
    let mut best = (settings.clone(), failure);
    let was_promised = is_promised(settings);
    let stays = |next: &Settings| !was_promised || is_promised(next);
    let mut left = runs;
    loop {
        let mut is_better = false;
        let mut tried = 0;
        // The list is made anew after each success: what came before in it has failed to help.
        while let Some(candidate) = candidates(&best.0).into_iter().filter(&stays).nth(tried) {
            if left == 0 {
                return best;
            }
            left -= 1;
            match run(&candidate) {
                Ok(()) => tried += 1,
                Err(failure) => {
                    best = (candidate, failure);
                    is_better = true;
                }
            }
        }
        if !is_better {
            return best;
        }
    }
}

fn is_promised(settings: &Settings) -> bool {
    settings.schedule.0.iter().all(|round| promise::refusal(settings, round).is_none())
}

/// Settings that are one step simpler, the biggest steps first.
fn candidates(settings: &Settings) -> Vec<Settings> {
    let mut all = Vec::new();
    let rounds = &settings.schedule.0;
    let with = |schedule: Schedule| Settings { schedule, ..settings.clone() };
    if rounds.len() > 2 {
        all.extend(rounds.iter().map(|round| with(Schedule(vec![round.clone()]))));
    }
    for index in (0..rounds.len()).rev() {
        let mut schedule = settings.schedule.clone();
        schedule.0.remove(index);
        all.push(with(schedule));
    }
    for (index, round) in rounds.iter().enumerate() {
        for fault in (0..round.faults.len()).rev() {
            let mut schedule = settings.schedule.clone();
            schedule.0[index].faults.remove(fault);
            all.push(with(schedule));
        }
    }
    for text in [
        "churn=0",
        "clients=1",
        "tellers=1",
        "workers=1",
        "spikes=0",
        "rate=0",
        "link=300us",
        "ring=20us",
        "fixed=1",
        "offset=0ms",
        "drift=0",
        "born=0",
        "cost=0",
        "change=0",
    ] {
        let mut simpler = settings.clone();
        if simpler.set(text).is_ok() && simpler != *settings {
            all.push(simpler);
        }
    }
    for (index, round) in rounds.iter().enumerate() {
        if round.then != Then::Heal {
            let mut schedule = settings.schedule.clone();
            schedule.0[index].then = Then::Heal;
            all.push(with(schedule));
        }
        for (number, (_, fault)) in round.faults.iter().enumerate() {
            if let Some(simpler) = shorter(fault) {
                let mut schedule = settings.schedule.clone();
                schedule.0[index].faults[number].1 = simpler;
                all.push(with(schedule));
            }
        }
    }
    all
}

/// The same for a round number of milliseconds, at most half as long.
fn shorter(fault: &Fault) -> Option<Fault> {
    let mut shorter = fault.clone();
    let (Span::Lasts(time) | Span::Repeats { period: time, .. }) = shorter.span() else { return None };
    *time = (*time / 2).next_multiple_of(MS);
    (shorter != *fault).then_some(shorter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_matter_goes() {
        let mut settings = Settings::from_seed(3);
        let text =
            "5ms crash n1 3ms, 9ms pause n2 70001us, 90ms core / 5ms reset n1 n2, 6ms client 0, 9ms heal / 4ms heal";
        settings.schedule = text.parse().expect("a schedule");
        settings.set("clients=3 workers=2 spikes=9").expect("in range");
        // Fails whenever node 2 is paused for 10 ms or more and there are two workers.
        let run = |s: &Settings| {
            let pause = |f: &Fault| matches!(f, Fault::Pause { lasts, .. } if *lasts >= 10 * MS);
            let is_bad = s.workers > 1 && s.schedule.0.iter().flat_map(|r| &r.faults).any(|(_, f)| pause(f));
            let failure = Failure { what: "bad".to_owned(), details: String::new(), virtual_ms: 1 };
            if is_bad { Err(failure) } else { Ok(()) }
        };
        let first = run(&settings).expect_err("fails as it is");
        let (small, failure) = shrink(&settings, first.clone(), 1000, run);
        assert_eq!(failure.what, "bad");
        assert_eq!((small.clients, small.workers, small.link_spike_ns.0), (1, 2, 0));
        assert_eq!(small.schedule.to_string(), "9ms pause n2 18ms, 90ms heal");
        // No trial, no change.
        assert_eq!(shrink(&settings, first, 0, run).0, settings);
    }
}
