//! What became of each write, and what a window of them amounts to.
//!
//! Latencies count from the moment a write was *due*, not from when a connection was free to send it: a stall delays the writes
//! behind it, and hiding that (coordinated omission) would hide the stall. A *gap* is the time between two consecutive
//! acknowledgements of writes to one node group, whoever made them and through whichever SQL node; the worst of all groups is
//! the gap of the window.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::views::Removal;

/// Upper ends of the histogram's bins in milliseconds; the last bin is open.
const BINS_MS: [u64; 10] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Acknowledged,
    /// Refused with this number, or never sent: nothing of it may be there.
    Failed(u16),
    /// Nobody said what became of it.
    Unknown(u16),
}

/// One write, or one explicit transaction of two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// Number of the write since the probe began.
    pub slot: u64,
    /// Node group, and a second one of an explicit transaction over both.
    pub groups: (u32, Option<u32>),
    /// Whether it was an explicit transaction.
    pub explicit: bool,
    pub due_ns: u64,
    /// First and last statement; the same but in explicit transactions.
    pub sent_ns: u64,
    pub last_sent_ns: u64,
    pub done_ns: u64,
    pub fate: Fate,
}

impl Record {
    fn touches(&self, group: u32) -> bool {
        self.groups.0 == group || self.groups.1 == Some(group)
    }
    fn latency_ns(&self) -> u64 {
        self.done_ns.saturating_sub(self.due_ns)
    }
}

/// A stretch of time and the fault in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Window {
    pub name: String,
    pub begin_ns: u64,
    pub end_ns: u64,
    pub fault_ns: Option<u64>,
}

pub fn ms(ns: u64) -> f64 {
    (ns / 1000) as f64 / 1000.0
}

/// The value below which so many thousandths of a sorted list lie.
fn quantile(sorted: &[u64], thousandths: usize) -> u64 {
    let rank = (sorted.len() * thousandths).div_ceil(1000).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0)
}

fn summary(values: &mut [u64]) -> Value {
    values.sort_unstable();
    json!({
        "count": values.len(),
        "p50": ms(quantile(values, 500)),
        "p99": ms(quantile(values, 990)),
        "p999": ms(quantile(values, 999)),
        "max": ms(values.last().copied().unwrap_or(0)),
    })
}

fn histogram(values: &[u64]) -> Value {
    let mut bins = serde_json::Map::new();
    let mut below = 0;
    for bin in BINS_MS {
        let up_to = values.iter().filter(|&&v| v <= bin * 1_000_000).count();
        bins.insert(format!("<={bin}"), json!(up_to - below));
        below = up_to;
    }
    bins.insert(format!(">{}", BINS_MS[BINS_MS.len() - 1]), json!(values.len() - below));
    Value::Object(bins)
}

/// Times between consecutive acknowledgements in one group; the window's two ends count as acknowledgements.
fn gaps(records: &[Record], window: &Window, group: u32) -> Vec<u64> {
    let done = |r: &&Record| r.fate == Fate::Acknowledged && r.touches(group);
    let mut times: Vec<u64> = records.iter().filter(done).map(|r| r.done_ns).collect();
    times.retain(|t| (window.begin_ns..window.end_ns).contains(t));
    times.push(window.end_ns);
    times.sort_unstable();
    let mut last = window.begin_ns;
    times.into_iter().map(|t| t - std::mem::replace(&mut last, t)).collect()
}

/// What clients saw in a window, as JSON. `records` and `removals` may be of before and after it.
pub fn report(records: &[Record], removals: &[Removal], window: &Window, groups: u32) -> Value {
    let removals: Vec<&Removal> =
        removals.iter().filter(|r| (window.begin_ns..window.end_ns).contains(&r.at_ns)).collect();
    let since = window.fault_ns.unwrap_or(window.begin_ns);
    let inside = |r: &&Record| r.due_ns >= window.begin_ns && r.due_ns < window.end_ns;
    let (mut latencies, mut errors, mut unknown) = (Vec::new(), BTreeMap::<(u16, bool), u64>::new(), 0);
    let (mut writes, mut explicit) = (0, 0);
    for r in records.iter().filter(inside) {
        writes += 1;
        match r.fate {
            // Explicit transactions last as long as their client thinks.
            Fate::Acknowledged if r.explicit => explicit += 1,
            Fate::Acknowledged => latencies.push(r.latency_ns()),
            Fate::Failed(code) => *errors.entry((code, r.explicit)).or_default() += 1,
            Fate::Unknown(code) => {
                *errors.entry((code, r.explicit)).or_default() += 1;
                unknown += 1;
            }
        }
    }
    let mut worst = 0;
    let per_group: Vec<Value> = (0..groups)
        .map(|group| {
            let mut all = gaps(records, window, group);
            let bins = histogram(&all);
            worst = worst.max(all.iter().copied().max().unwrap_or(0));
            json!({ "group": group, "gap_ms": summary(&mut all), "histogram_ms": bins })
        })
        .collect();
    let errors: Vec<Value> = errors
        .into_iter()
        .map(|((code, explicit), count)| json!({ "code": code, "explicit": explicit, "count": count }))
        .collect();
    json!({
        "window": window.name,
        "seconds": ms(window.end_ns - window.begin_ns) / 1000.0,
        "writes": writes,
        "acknowledged": latencies.len() as u64 + explicit,
        "gap_ms": ms(worst),
        "groups": per_group,
        "latency_ms": summary(&mut latencies),
        "errors": errors,
        "unknown": unknown,
        "removals": removals.iter().map(|r| r.to_json(since)).collect::<Vec<_>>(),
        "in_flight": in_flight(records, &removals, window),
    })
}

/// Writes and explicit transactions that were under way when the fault struck: how long it took to know their fate, from the fault
/// or from the statement that told it, whichever came later. And the same from the last removal after the fault, if that was still later:
/// of one that went silent, outcomes can be told only when the cluster goes on without it.
fn in_flight(records: &[Record], removals: &[&Removal], window: &Window) -> Value {
    let Some(fault) = window.fault_ns else { return Value::Null };
    let struck = |r: &&Record| r.sent_ns <= fault && r.done_ns > fault;
    let known_after = |event: u64| -> Vec<f64> {
        let known = |r: &Record| r.done_ns.saturating_sub(r.last_sent_ns.max(event));
        let mut times: Vec<u64> = records.iter().filter(struck).map(known).collect();
        times.sort_unstable();
        times.into_iter().map(ms).collect()
    };
    let removal = removals.iter().map(|r| r.at_ns).filter(|at| *at >= fault).max().unwrap_or(fault);
    let list = known_after(fault);
    json!({ "count": list.len(), "known_after_ms": list, "known_after_removal_ms": known_after(removal) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn record(due: u64, done: u64, group: u32, fate: Fate) -> Record {
        Record {
            slot: due,
            groups: (group, None),
            explicit: false,
            due_ns: due * MS,
            sent_ns: due * MS,
            last_sent_ns: due * MS,
            done_ns: done * MS,
            fate,
        }
    }
    fn window(end: u64, fault: Option<u64>) -> Window {
        Window { name: "w".to_owned(), begin_ns: 0, end_ns: end * MS, fault_ns: fault.map(|f| f * MS) }
    }

    #[test]
    fn the_gap_of_the_worst_group_counts() {
        let ok = Fate::Acknowledged;
        // Group 1 answers all the time and group 0 does not between 10 and 60, except with an error.
        let mut all: Vec<Record> = (0..100).map(|t| record(t, t + 1, 1, ok)).collect();
        all.extend([record(9, 10, 0, ok), record(20, 30, 0, Fate::Failed(1297)), record(50, 60, 0, ok)]);
        all.push(record(97, 98, 0, ok));
        let found = report(&all, &[], &window(100, Some(20)), 2);
        assert_eq!(found["gap_ms"], 50.0);
        assert_eq!(found["groups"][1]["gap_ms"]["max"], 1.0);
        assert_eq!(found["groups"][0]["histogram_ms"]["<=50"], 2); // 10 to 60, 60 to 98
        assert_eq!(found["errors"][0], json!({ "code": 1297, "explicit": false, "count": 1 }));
        assert_eq!(found["acknowledged"], 103);
        assert_eq!(found["in_flight"]["known_after_ms"], json!([1.0, 10.0]));
    }

    #[test]
    fn silence_at_either_end_is_a_gap() {
        let all = [record(40, 41, 0, Fate::Acknowledged)];
        assert_eq!(report(&all, &[], &window(100, None), 1)["gap_ms"], 59.0);
        assert_eq!(report(&all, &[], &window(50, None), 1)["gap_ms"], 41.0);
        assert_eq!(report(&[], &[], &window(7, None), 1)["gap_ms"], 7.0);
    }

    #[test]
    fn outcomes_count_from_the_removal_too() {
        let removal = |at: u64, node| Removal { at_ns: at * MS, nodes: vec![node] };
        let all = [
            record(15, 30, 0, Fate::Acknowledged), // known before anybody was removed
            record(15, 84, 0, Fate::Failed(1213)),
            Record { last_sent_ns: 85 * MS, ..record(15, 86, 0, Fate::Failed(1213)) },
            record(21, 90, 0, Fate::Acknowledged), // sent after the fault
        ];
        let removals = [removal(5, 1), removal(70, 2), removal(80, 3), removal(120, 4)];
        let found = report(&all, &removals, &window(100, Some(20)), 1);
        assert_eq!(found["in_flight"]["known_after_ms"], json!([1.0, 10.0, 64.0]));
        assert_eq!(found["in_flight"]["known_after_removal_ms"], json!([0.0, 1.0, 4.0]));
        let nodes: Vec<_> = found["removals"].as_array().unwrap().iter().map(|r| r["nodes"][0].as_u64()).collect();
        assert_eq!(nodes, [Some(1), Some(2), Some(3)]);
        assert_eq!(found["removals"][2]["after_ms"], 60.0);
        // Nobody removed: from the fault.
        let found = report(&all, &removals[..1], &window(100, Some(20)), 1);
        assert_eq!(found["in_flight"]["known_after_removal_ms"], json!([1.0, 10.0, 64.0]));
    }

    #[test]
    fn latency_counts_from_when_the_write_was_due() {
        let mut late = record(10, 90, 0, Fate::Acknowledged);
        late.sent_ns = 89 * MS;
        let unknown = record(20, 95, 0, Fate::Unknown(2013));
        let found = report(&[late, unknown], &[], &window(100, None), 1);
        assert_eq!(found["latency_ms"]["max"], 80.0);
        assert_eq!((found["unknown"].as_u64(), found["writes"].as_u64()), (Some(1), Some(2)));
    }

    #[test]
    fn quantiles_are_values_that_occurred() {
        let all: Vec<u64> = (1..=200).collect();
        assert_eq!([quantile(&all, 500), quantile(&all, 990), quantile(&all, 1000)], [100, 198, 200]);
        assert_eq!(quantile(&[], 500), 0);
    }
}
