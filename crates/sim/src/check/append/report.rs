//! What was found, for people.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::{
    Class, History, OPEN, Op, Order, Status,
    graph::{Edge, RW, THEN, UNSEEN, WR, WW},
};

/// Anomalies of one class that are shown; more are counted.
const SHOWN_MAX: usize = 5;
/// Elements of a list that are shown.
const LIST_MAX: usize = 12;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Anomaly {
    pub class: Class,
    /// The order that it needs.
    pub order: Order,
    /// The transactions, by the number of their begin.
    pub txns: Vec<u32>,
    pub text: String,
}

/// The judgement of a history.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    pub transactions: usize,
    pub acknowledged: usize,
    pub failed: usize,
    pub unknown: usize,
    pub keys: usize,
    pub appends: usize,
    pub reads: usize,
    /// Up to [`SHOWN_MAX`] of each class.
    pub anomalies: Vec<Anomaly>,
    /// All that were found.
    pub counts: BTreeMap<Class, u64>,
    seen: BTreeSet<(Class, Vec<u32>)>,
}

impl Report {
    pub(super) fn new(history: &History) -> Report {
        let with = |status| history.txns.iter().filter(|t| t.status == status).count();
        let is_append = |op: &&Op| matches!(op, Op::Append { .. });
        let appends = history.ops.iter().filter(is_append).count();
        Report {
            transactions: history.txns.len(),
            acknowledged: with(Status::Ok),
            failed: with(Status::Fail),
            unknown: with(Status::Unknown),
            keys: history.keys.len(),
            appends,
            reads: history.ops.len() - appends,
            ..Report::default()
        }
    }
    pub fn is_good(&self) -> bool {
        self.counts.values().all(|count| *count == 0)
    }
    /// Whether anything of this class was found.
    pub fn has(&self, class: Class) -> bool {
        self.counts.get(&class).is_some_and(|count| *count > 0)
    }

    /// The classes found, each with how often.
    pub fn summary(&self) -> String {
        let counts: Vec<String> = self.counts.iter().map(|(class, count)| format!("{class} {count}")).collect();
        if counts.is_empty() { "no anomalies".to_owned() } else { counts.join(", ") }
    }

    pub(super) fn count_more(&mut self, class: Class, count: u64) {
        if count > 0 {
            *self.counts.entry(class).or_default() += count;
        }
    }
    pub(super) fn add(&mut self, history: &History, class: Class, order: Order, txns: &[u32], what: &str) {
        let Some(shown) = self.admit(class, txns) else { return };
        if shown {
            let mut text = format!("{what}\n");
            for txn in txns {
                text.push_str(&format!("  {}\n", describe(history, *txn)));
            }
            self.anomalies.push(Anomaly { class, order, txns: txns.to_vec(), text });
        }
    }
    pub(super) fn add_cycle(&mut self, history: &History, class: Class, order: Order, steps: &[(u32, Edge)]) {
        // Both halves of a transaction are the transaction.
        let mut txns: Vec<u32> = steps.iter().map(|(txn, _)| *txn).collect();
        txns.dedup();
        let Some(shown) = self.admit(class, &txns) else { return };
        if shown {
            let mut text = format!("a cycle of {} transactions\n", txns.len());
            let mut before = None;
            for (txn, edge) in steps {
                if before.replace(*txn) != Some(*txn) {
                    text.push_str(&format!("  {}\n", describe(history, *txn)));
                }
                text.push_str(&format!("    {}\n", reason(history, *txn, edge)));
            }
            self.anomalies.push(Anomaly { class, order, txns, text });
        }
    }
    /// `None`: known already. Otherwise whether it should be shown.
    fn admit(&mut self, class: Class, txns: &[u32]) -> Option<bool> {
        let count = self.counts.get(&class).copied().unwrap_or(0);
        let mut sorted = txns.to_vec();
        sorted.sort_unstable();
        if count <= SHOWN_MAX as u64 && !txns.is_empty() && !self.seen.insert((class, sorted)) {
            return None;
        }
        self.count_more(class, 1);
        Some(count < SHOWN_MAX as u64)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} transactions ({} acknowledged, {} failed, {} unknown), {} keys, {} appends, {} reads",
            self.transactions, self.acknowledged, self.failed, self.unknown, self.keys, self.appends, self.reads
        )?;
        for anomaly in &self.anomalies {
            let order = match anomaly.order {
                Order::None => "",
                Order::Process => "-process",
                Order::RealTime => "-realtime",
            };
            write!(f, "{}{order}: {}", anomaly.class, anomaly.text)?;
        }
        writeln!(f, "{}", self.summary())
    }
}

/// A list, or its part that ends at `upto`.
pub(super) fn list(all: &[u64], upto: usize) -> String {
    let upto = upto.min(all.len());
    let from = upto.saturating_sub(LIST_MAX);
    let shown: Vec<String> = all[from..upto].iter().map(u64::to_string).collect();
    let (before, after) = (if from > 0 { "… " } else { "" }, if upto < all.len() { " …" } else { "" });
    format!("[{before}{}{after}]", shown.join(" "))
}

fn describe(history: &History, txn: u32) -> String {
    let t = &history.txns[txn as usize];
    let end = if t.end == OPEN { "?".to_owned() } else { t.end.to_string() };
    let status = match t.status {
        Status::Ok => "ok",
        Status::Fail => "fail",
        Status::Unknown => "unknown",
    };
    let ops: Vec<String> = history
        .ops_of(txn)
        .iter()
        .map(|op| match *op {
            Op::Append { key, value } => format!("append {} {value}", history.keys[key as usize].name),
            Op::Read { key, length } => {
                let k = &history.keys[key as usize];
                let read = &k.longest[..length as usize];
                format!("r {} {}", k.name, list(read, read.len()))
            }
            Op::Unusable { key } => format!("r {} ?", history.keys[key as usize].name),
        })
        .collect();
    format!("T{txn} (process {}, events {}..{end}, {status}): {}", t.process, t.begin, ops.join(", "))
}

fn reason(history: &History, from: u32, edge: &Edge) -> String {
    let to = edge.to;
    let key = history.keys.get(edge.key as usize);
    let name = key.map_or(0, |k| k.name);
    let value = match key.and_then(|k| k.longest.get(edge.at as usize)) {
        Some(value) => value.to_string(),
        None if edge.at == UNSEEN => "something that nobody read".to_owned(),
        None => "?".to_owned(),
    };
    match edge.kind {
        WW => format!("-ww-> T{to}, which appended {value} to {name} after what T{from} had appended"),
        WR => format!("-wr-> T{to}, which read {value} in {name}, appended by T{from}"),
        RW => format!("-rw-> T{to}, which appended {value} to {name} after what T{from} had read"),
        THEN => "-then-> its own appends, which come after its reads".to_owned(),
        _ => format!("-order-> T{to}, which began after T{from} had ended"),
    }
}
