//! Each class by hand with its legal neighbour; generated histories without and with damage; a million transactions.

use apus_kernel::Random;

use super::*;
use crate::check::history::{Event, EventKind, Mop};

const RC: Claim = Claim { level: Level::ReadCommitted, order: Order::None };
const SI: Claim = Claim { level: Level::Snapshot, order: Order::None };
const READS: Claim = Claim { level: Level::SnapshotReads, order: Order::None };
const STRICT_READS: Claim = Claim { level: Level::SnapshotReads, order: Order::RealTime };
const SERIALIZABLE: Claim = Claim { level: Level::Serializable, order: Order::None };
const STRICT: Claim = Claim { level: Level::Serializable, order: Order::RealTime };
const STRICT_RC: Claim = Claim { level: Level::ReadCommitted, order: Order::RealTime };
const SESSION: Claim = Claim { level: Level::Serializable, order: Order::Process };

/// `ax1` appends 1 to x, `rx12` reads x as [1 2], `rx-` as the empty list, `rx?` is not answered.
fn mops(text: &str) -> Vec<Mop> {
    let one = |word: &str| {
        let mut chars = word.chars();
        let (what, key) = (chars.next().unwrap_or_default(), chars.next().map_or(0, u64::from));
        let digits: Vec<u64> = chars.clone().filter_map(|c| c.to_digit(10).map(u64::from)).collect();
        match (what, chars.next()) {
            ('a', _) => Mop::Append { key, value: digits[0] },
            (_, Some('?')) => Mop::Read { key, list: None },
            _ => Mop::Read { key, list: Some(digits) },
        }
    };
    text.split_whitespace().map(one).collect()
}

fn unanswered(mops: &[Mop]) -> Vec<Mop> {
    let blank = |mop: &Mop| match mop {
        Mop::Read { key, .. } => Mop::Read { key: *key, list: None },
        append => append.clone(),
    };
    mops.iter().map(blank).collect()
}

/// Each transaction with its times and its end; processes are their numbers.
fn history(txns: &[(u64, u64, EventKind, &str)]) -> History {
    let mut events = Vec::new();
    for (process, (begin, end, kind, text)) in txns.iter().enumerate() {
        events.push((*begin, process as u64, EventKind::Invoke, unanswered(&mops(text))));
        events.push((*end, process as u64, *kind, mops(text)));
    }
    build(events)
}

fn build(mut events: Vec<(u64, u64, EventKind, Vec<Mop>)>) -> History {
    events.sort_by_key(|e| e.0);
    let mut history = History::new();
    for (index, (time, process, kind, mops)) in (0..).zip(events) {
        history.add(&Event { index, time, process, kind, mops }).expect("a history");
    }
    history
}

/// All at the same time, all acknowledged.
fn together(txns: &[&str]) -> History {
    let all: Vec<_> = txns.iter().enumerate().map(|(i, t)| (i as u64, 100 + i as u64, EventKind::Ok, *t)).collect();
    history(&all)
}

fn classes(history: &History, claim: Claim) -> Vec<Class> {
    history.check(claim).counts.into_keys().collect()
}

#[test]
fn a_good_history_is_good() {
    let good = together(&["ax1 ay1", "rx1 ax2", "ry1 rx12", "rx- ry-", "ay2 rx12", "ry12"]);
    let report = good.check(STRICT);
    assert!(report.is_good(), "{report}");
    assert_eq!((report.transactions, report.appends, report.reads), (6, 4, 7));
}

#[test]
fn lists_that_cannot_be() {
    assert_eq!(classes(&together(&["ax1", "rx12"]), RC), [Class::Garbage]);
    assert_eq!(classes(&together(&["ax1", "ax2", "rx121"]), RC)[0], Class::Duplicate);
    assert_eq!(classes(&together(&["ax1", "ax2", "rx12", "rx21"]), RC), [Class::IncompatibleOrder]);
    assert_eq!(classes(&together(&["ax1", "ax2", "rx12", "rx1", "rx-"]), RC), []);
}

#[test]
fn g0_is_a_cycle_of_writes() {
    assert_eq!(classes(&together(&["ax1 ay1", "ax2 ay2", "rx12 ry21"]), RC), [Class::G0]);
    assert_eq!(classes(&together(&["ax1 ay1", "ax2 ay2", "rx12 ry12"]), RC), []);
}

#[test]
fn g1a_is_a_read_of_what_was_rolled_back() {
    let read = |kind| history(&[(0, 9, kind, "ax1"), (1, 8, EventKind::Ok, "rx1")]);
    assert_eq!(classes(&read(EventKind::Fail), RC), [Class::G1a]);
    assert_eq!(classes(&read(EventKind::Info), STRICT), []);
    assert_eq!(classes(&history(&[(0, 9, EventKind::Fail, "ax1"), (1, 8, EventKind::Ok, "rx-")]), STRICT), []);
}

#[test]
fn g1b_is_a_read_of_a_half_done_transaction() {
    assert_eq!(classes(&together(&["ax1 ax2", "rx1"]), RC), [Class::G1b]);
    // With what follows it is a G1b still.
    assert!(classes(&together(&["ax1 ax2", "rx1", "rx12"]), RC).contains(&Class::G1b));
    assert_eq!(classes(&together(&["ax1 ax2", "rx12"]), RC), []);
    assert_eq!(classes(&together(&["ax1 rx1 ax2", "rx12"]), STRICT), []);
}

#[test]
fn g1c_is_a_cycle_of_writes_and_reads() {
    assert_eq!(classes(&together(&["ax1 ry1", "ay1 rx1"]), RC), [Class::G1c]);
    assert_eq!(classes(&together(&["ax1 ry1", "ay1 rx-"]), SERIALIZABLE), []);
}

#[test]
fn internal_reads_follow_a_transactions_own_doing() {
    assert_eq!(classes(&together(&["ax1 rx-"]), RC), [Class::Internal]);
    assert_eq!(classes(&together(&["ax1 rx1"]), STRICT), []);
    // Not repeatable: legal under READ COMMITTED only.
    let moved = together(&["rx- rx1", "ax1"]);
    assert_eq!(classes(&moved, RC), []);
    assert!(classes(&moved, SI).contains(&Class::Internal));
    let after_own = together(&["ax1 rx12", "ax2"]);
    assert_eq!(classes(&after_own, RC), [Class::G1c]);
    assert!(classes(&after_own, SI).contains(&Class::Internal));
}

#[test]
fn a_lost_update_is_forbidden_from_snapshot_on() {
    let lost = together(&["rx- ax1", "rx- ax2", "rx12"]);
    assert_eq!(classes(&lost, RC), []);
    assert_eq!(classes(&lost, SI), [Class::LostUpdate, Class::GSingle]);
    assert_eq!(classes(&together(&["rx- ax1", "rx1 ax2", "rx12"]), STRICT), []);
    // The append that nobody reads is lost too.
    assert!(classes(&together(&["rx- ax1", "rx- ax2", "rx1"]), SI).contains(&Class::GSingle));
}

#[test]
fn g_single_has_one_anti_dependency() {
    // Reads y before and x after the writer of both.
    let skewed = together(&["ax1 ay1", "ry- rx1", "ry1"]);
    assert_eq!(classes(&skewed, RC), []);
    assert_eq!(classes(&skewed, SI), [Class::GSingle]);
    assert_eq!(classes(&together(&["ax1 ay1", "ry1 rx1", "ry- rx-"]), SERIALIZABLE), []);
}

#[test]
fn g_nonadjacent_has_several_that_are_no_neighbours() {
    // T0 rw T1 wr T2 rw T3 wr T0
    let far = together(&["rx- rz1", "ax1", "rx1 ry-", "ay1 az1"]);
    let report = far.check(SI);
    assert_eq!(report.counts.into_keys().collect::<Vec<_>>(), [Class::GNonadjacent]);
    assert_eq!(classes(&far, RC), []);
}

#[test]
fn write_skew_is_g2_and_legal_under_snapshot() {
    let skew = together(&["rx- ay1", "ry- ax1", "rx1 ry1"]);
    assert_eq!(classes(&skew, SI), []);
    assert_eq!(classes(&skew, SERIALIZABLE), [Class::G2Item]);
    assert_eq!(classes(&together(&["rx- ay1", "ry1 ax1", "rx1 ry1"]), SERIALIZABLE), []);
}

#[test]
fn real_time_counts_only_where_it_is_claimed() {
    let stale = history(&[(0, 1, EventKind::Ok, "ax1"), (2, 3, EventKind::Ok, "rx-"), (4, 5, EventKind::Ok, "rx1")]);
    assert_eq!(classes(&stale, SERIALIZABLE), []);
    assert_eq!(classes(&stale, STRICT_RC), [Class::StaleRead]);
    let report = stale.check(STRICT);
    assert!(report.has(Class::StaleRead) && report.has(Class::GSingle), "{report}");
    let cycle = report.anomalies.iter().find(|a| a.class == Class::GSingle).expect("a cycle");
    assert_eq!((cycle.order, cycle.txns.as_slice()), (Order::RealTime, &[0, 1][..]));
    let overlap = history(&[(0, 3, EventKind::Ok, "ax1"), (2, 4, EventKind::Ok, "rx-"), (5, 6, EventKind::Ok, "rx1")]);
    assert_eq!(classes(&overlap, STRICT), []);
    // What nobody could tell has no end, so nothing comes after it.
    let unknown =
        history(&[(0, 1, EventKind::Info, "ax1"), (2, 3, EventKind::Ok, "rx-"), (4, 5, EventKind::Ok, "rx1")]);
    assert_eq!(classes(&unknown, STRICT), []);
    // A lost append: acknowledged, then never seen.
    let lost = history(&[(0, 1, EventKind::Ok, "ax1"), (2, 3, EventKind::Ok, "rx-")]);
    assert!(classes(&lost, STRICT_RC).contains(&Class::StaleRead));
}

#[test]
fn what_was_read_stays_read() {
    let back = |second_begins| {
        history(&[(0, 9, EventKind::Ok, "ax1"), (1, 3, EventKind::Ok, "rx1"), (second_begins, 6, EventKind::Ok, "rx-")])
    };
    assert_eq!(classes(&back(4), STRICT_RC), [Class::StaleRead]);
    assert!(classes(&back(4), STRICT).contains(&Class::G2Item) || classes(&back(4), STRICT).contains(&Class::GSingle));
    assert_eq!(classes(&back(2), STRICT), []);
    assert_eq!(classes(&back(4), SERIALIZABLE), []);
}

#[test]
fn snapshot_reads_are_of_one_moment_and_appends_of_a_later_one() {
    // Others may come between: a lost update, write skew.
    assert_eq!(classes(&together(&["rx- ax1", "rx- ax2", "rx12"]), READS), []);
    assert_eq!(classes(&together(&["rx- ay1", "ry- ax1", "rx1 ry1"]), STRICT_READS), []);
    // Part of a writer.
    assert_eq!(classes(&together(&["ax1 ay1", "ry- rx1", "ry1"]), READS), [Class::GSingle]);
    assert_eq!(classes(&together(&["ax1 ay1", "ry- rx1 az1", "ry1"]), READS), [Class::GSingle]);
    assert_eq!(classes(&together(&["ax1 ay1", "ry1 rx1", "ry- rx-"]), READS), []);
    // Two readers that disagree about who of two writers was first.
    let fork = together(&["ax1", "ay1", "rx1 ry-", "rx- ry1"]);
    assert_eq!(classes(&fork, READS), [Class::GNonadjacent]);
    // Appends come after reads: whoever sees T1 has what T1 saw.
    let behind = together(&["ax1", "rx1 ay1", "ry1 rx-"]);
    let report = behind.check(READS);
    assert_eq!(report.counts.keys().collect::<Vec<_>>(), [&Class::GSingle], "{report}");
    assert_eq!(report.anomalies[0].txns, [0, 1, 2]);
    assert!(report.to_string().contains("-then-> its own appends"), "{report}");
    assert_eq!(classes(&together(&["ax1 ry1", "ay1 rx1"]), READS), [Class::G1c]);
    assert_eq!(classes(&together(&["ax1 ay1", "ax2 ay2", "rx12 ry21"]), READS)[0], Class::G0);
}

#[test]
fn snapshot_reads_repeat_until_the_own_append() {
    assert_eq!(classes(&together(&["rx- rx1", "ax1"]), READS)[0], Class::Internal);
    // The append works on what is there now, and shows it.
    assert_eq!(classes(&together(&["rx- ax2 rx12", "ax1"]), READS), []);
    assert_eq!(classes(&together(&["rx- ax2 rx12 rx12", "ax1"]), STRICT_READS), []);
    assert_eq!(classes(&together(&["ax1", "ax2 rx12 ax3 rx123"]), READS), []);
    // Under its lock nobody else appends.
    assert!(classes(&together(&["ax1 rx12", "ax2"]), READS).contains(&Class::Internal));
    assert!(classes(&together(&["ax1 rx1 rx12", "ax2"]), READS).contains(&Class::Internal));
    assert!(classes(&together(&["ax1", "rx1 ax2 rx2"]), READS).contains(&Class::IncompatibleOrder));
    // To another list than its own append it reads the snapshot still.
    assert_eq!(classes(&together(&["ax1 ay1", "rx- ax2 rx12 ry-", "rx12 ry1"]), READS), []);
    assert_eq!(classes(&together(&["ax1 ay1", "rx- ax2 rx12 ry1", "rx12 ry1"]), READS), [Class::GSingle]);
}

#[test]
fn snapshot_reads_are_ordered_in_time_with_appends() {
    let ok = EventKind::Ok;
    // T0 ended before T1 began, and T2 sees T1 alone: appends have no order in time of their own, ...
    let mut all = vec![(1, 2, ok, "ax1"), (3, 4, ok, "ay1"), (0, 5, ok, "ry1 rx-")];
    assert_eq!(classes(&history(&all), STRICT_READS), []);
    assert!(classes(&history(&all), STRICT).contains(&Class::GSingle));
    // ... but reads between them give them one, ...
    all[1].3 = "rz- ay1";
    let found = history(&all).check(STRICT_READS);
    assert_eq!(
        found.anomalies.iter().map(|a| (a.class, a.order)).collect::<Vec<_>>(),
        [(Class::GSingle, Order::RealTime)]
    );
    // ... and nobody reads less than what had been acknowledged, or more than what had begun.
    all[1].3 = "ay1";
    all[2].0 = 3;
    assert!(classes(&history(&all), STRICT_READS).contains(&Class::StaleRead));
    let ahead = history(&[(0, 9, ok, "ax1"), (1, 2, ok, "rx-"), (3, 4, ok, "ay1"), (5, 6, ok, "rx1 ry-")]);
    assert!(classes(&ahead, STRICT_READS).contains(&Class::StaleRead));
}

#[test]
fn snapshot_reads_follow_their_process() {
    let of = |last: &str| {
        let mut events = Vec::new();
        for (n, (process, text)) in [(1, "ax1"), (1, "ay1"), (1, last), (2, "rx1 ry1")].iter().enumerate() {
            events.push((2 * n as u64, *process, EventKind::Invoke, unanswered(&mops(text))));
            events.push((2 * n as u64 + 1, *process, EventKind::Ok, mops(text)));
        }
        build(events).check(Claim { level: Level::SnapshotReads, order: Order::Process })
    };
    assert!(of("rx1 ry1").is_good());
    for bad in ["rx- ry1", "rx1 ry-"] {
        let report = of(bad);
        assert_eq!(
            report.anomalies.iter().map(|a| (a.class, a.order)).collect::<Vec<_>>(),
            [(Class::GSingle, Order::Process)]
        );
    }
}

#[test]
fn real_time_reaches_over_barriers() {
    // T0 before T1 before T2 in time; T2's append stands before T0's.
    let late = [(0, 1, EventKind::Ok, "ax1"), (2, 3, EventKind::Ok, "az1"), (4, 5, EventKind::Ok, "ax2")];
    let mut all = late.to_vec();
    all.push((6, 7, EventKind::Ok, "rx21 rz1"));
    let bad = history(&all);
    assert_eq!(classes(&bad, RC), []);
    assert_eq!(classes(&bad, STRICT_RC), [Class::G0]);
    let last = all.len() - 1;
    all[last].3 = "rx12 rz1";
    assert_eq!(classes(&history(&all), STRICT), []);
}

#[test]
fn a_process_keeps_its_own_order() {
    let of = |processes: [u64; 2]| {
        build(vec![
            (0, processes[0], EventKind::Invoke, mops("ax1")),
            (1, processes[0], EventKind::Ok, mops("ax1")),
            (2, processes[1], EventKind::Invoke, mops("rx?")),
            (3, processes[1], EventKind::Ok, mops("rx-")),
            (4, 7, EventKind::Invoke, mops("rx?")),
            (5, 7, EventKind::Ok, mops("rx1")),
        ])
    };
    let report = of([1, 1]).check(SESSION);
    assert_eq!(
        report.anomalies.iter().map(|a| (a.class, a.order)).collect::<Vec<_>>(),
        [(Class::GSingle, Order::Process)]
    );
    assert!(of([1, 2]).check(SESSION).is_good());
}

#[test]
fn a_cycle_is_explained() {
    let text = together(&["ax1 ay1", "ry- rx1", "ry1"]).check(SI).to_string();
    for part in [
        "G-single: a cycle of 2 transactions",
        "T0 (process 0, events 0..3, ok): append 120 1, append 121 1",
        "-wr-> T1, which read 1 in 120, appended by T0",
        "-rw-> T0, which appended 1 to 121 after what T1 had read",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

#[test]
fn no_history_is_refused() {
    let event = |process, kind, text| Event { index: 0, time: 0, process, kind, mops: mops(text) };
    let cases: [&[Event]; 5] = [
        &[event(1, EventKind::Ok, "ax1")],
        &[event(1, EventKind::Invoke, "ax1"), event(1, EventKind::Invoke, "ax2")],
        &[event(1, EventKind::Invoke, "ax1"), event(2, EventKind::Invoke, "ax1")],
        &[event(1, EventKind::Invoke, "ax1"), event(1, EventKind::Ok, "ax2")],
        &[event(1, EventKind::Invoke, "ax1"), event(1, EventKind::Ok, "ax1 rx1")],
    ];
    for case in cases {
        let mut history = History::new();
        assert!(case.iter().any(|e| history.add(e).is_err()), "{case:?}");
    }
}

#[test]
fn claims_have_names() {
    for name in Claim::NAMES {
        assert_eq!(Claim::parse(name).map(|claim| claim.to_string()).as_deref(), Some(*name));
    }
    assert_eq!(Claim::parse("strict-serializable"), Some(STRICT));
    assert_eq!(Claim::parse("serialisable"), None);
}

/// A serial database whose transactions happen at a moment between their begin and their end.
fn generated(seed: u64, count: u64, processes: u64, keys: u64) -> Vec<(u64, u64, EventKind, Vec<Mop>)> {
    let mut random = Random::new(seed);
    let mut lists: Vec<Vec<u64>> = vec![Vec::new(); keys as usize];
    let mut free_at = vec![0; processes as usize];
    let mut events = Vec::new();
    for n in 0..count {
        // Effects at 100 n; a transaction lasts up to the effects of several others.
        let at = 100 * (n + 1);
        let process = (0..processes).find(|p| free_at[*p as usize] < at);
        let Some(process) = process else { continue };
        let begin = free_at[process as usize] + 1 + random.below(at - free_at[process as usize]);
        let end = at + 1 + random.below(300);
        free_at[process as usize] = end;
        let mut ops: Vec<Mop> = Vec::new();
        let fate = random.below(20);
        for _ in 0..1 + random.below(4) {
            // Keys move on, so that lists stay short.
            let key = random.below(keys.min(20)) + n / 400 * 20;
            let key = key % keys;
            if random.one_in(2) {
                let value = events.len() as u64 * 8 + ops.len() as u64;
                ops.push(Mop::Append { key, value });
                if fate != 0 {
                    lists[key as usize].push(value);
                }
            } else if fate != 0 {
                ops.push(Mop::Read { key, list: Some(lists[key as usize].clone()) });
            }
        }
        let kind = if fate == 0 {
            EventKind::Fail
        } else if fate == 1 {
            EventKind::Info
        } else {
            EventKind::Ok
        };
        events.push((begin, process, EventKind::Invoke, unanswered(&ops)));
        events.push((end, process, kind, if kind == EventKind::Ok { ops } else { unanswered(&ops) }));
    }
    events
}

#[test]
fn what_a_serial_database_does_is_good() {
    for seed in 0..200 {
        let report = build(generated(seed, 300, 5, 20)).check(STRICT);
        assert!(report.is_good(), "seed {seed}: {report}");
        let report = build(generated(seed, 300, 5, 20)).check(STRICT_READS);
        assert!(report.is_good(), "seed {seed}: {report}");
        assert!(report.acknowledged > 100 && report.failed > 0 && report.unknown > 0);
    }
}

/// Takes the last element off some read that showed an append of an acknowledged transaction of somebody else: stale at best.
#[test]
fn damaged_histories_are_found_out() {
    let mut found = 0;
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let mut events = generated(seed, 300, 5, 20);
        let reads: Vec<(usize, usize)> = events
            .iter()
            .enumerate()
            .flat_map(|(e, event)| (0..event.3.len()).map(move |m| (e, m)))
            .filter(|(e, m)| {
                events[*e].2 == EventKind::Ok
                    && matches!(&events[*e].3[*m], Mop::Read { list: Some(l), .. } if l.len() > 2)
            })
            .collect();
        let (e, m) = reads[random.below(reads.len() as u64) as usize];
        if let Mop::Read { list: Some(list), .. } = &mut events[e].3[m] {
            match seed % 3 {
                0 => list.truncate(list.len() - 3),
                1 => list.swap(0, 1),
                _ => {
                    list.remove(0);
                }
            }
        }
        let history = build(events);
        let report = history.check(STRICT);
        assert!(seed % 3 == 0 || !history.check(STRICT_READS).is_good(), "seed {seed}: nor is it with snapshots");
        found += usize::from(!report.is_good());
        assert!(seed % 3 == 0 || !report.is_good(), "seed {seed}: a list in another order is never right");
    }
    assert!(found > 180, "{found} of 200");
}

#[test]
fn a_million_transactions_are_judged() {
    let events = generated(1, 1_000_000, 40, 50_000);
    let history = build(events);
    assert!(history.check(STRICT_READS).is_good());
    let good = history.check(STRICT);
    assert!(good.is_good(), "{good}");
    assert!(good.transactions > 900_000, "{good}");
}
