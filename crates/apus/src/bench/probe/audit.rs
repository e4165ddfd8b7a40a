//! The audit: is what the cluster holds what it said?
//!
//! Every replica is read by the native client, past the SQL nodes, once with each data node preferred. An acknowledged write
//! must be there, all of it; one that was refused must not be, none of it; one of which nobody knows may be there or not, but
//! not half.

use std::collections::BTreeSet;

use apus_client::{Client, Rows, ScanRequest};
use apus_types::{TableSchema, Value};
use serde_json::{Value as Json, json};

use super::{
    record::{Fate, Record},
    stream::Load,
};
use crate::discover::Access;

/// Ids of writes named per list.
const NAMED_MAX: usize = 5;

/// What an audit found; slots are numbers of writes.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Findings {
    pub acknowledged: u64,
    pub unknown_found: u64,
    pub unknown_absent: u64,
    /// Acknowledged, and not there.
    pub lost: BTreeSet<u64>,
    /// Refused, and there.
    pub risen: BTreeSet<u64>,
    /// Half of a transaction.
    pub half: BTreeSet<u64>,
    /// Rows that nobody wrote, or twice.
    pub foreign: BTreeSet<u64>,
}

impl Findings {
    pub fn is_good(&self) -> bool {
        [&self.lost, &self.risen, &self.half, &self.foreign].iter().all(|list| list.is_empty())
    }
    /// Keeps the worse of two audits of the same writes.
    pub fn merge(&mut self, other: Findings) {
        self.acknowledged = other.acknowledged;
        self.unknown_found = self.unknown_found.max(other.unknown_found);
        self.unknown_absent = self.unknown_absent.max(other.unknown_absent);
        self.lost.extend(other.lost);
        self.risen.extend(other.risen);
        self.half.extend(other.half);
        self.foreign.extend(other.foreign);
    }
    pub fn to_json(&self, nodes: usize) -> Json {
        let named = |list: &BTreeSet<u64>| json!({ "count": list.len(), "first": list.iter().take(NAMED_MAX).collect::<Vec<_>>() });
        json!({
            "acknowledged": self.acknowledged,
            "lost": named(&self.lost),
            "risen": named(&self.risen),
            "half": named(&self.half),
            "foreign": named(&self.foreign),
            "unknown_found": self.unknown_found,
            "unknown_absent": self.unknown_absent,
            "nodes_read": nodes,
            "good": self.is_good(),
        })
    }
}

/// Holds the rows found, by id, against the records. `ids_of` tells which rows a write has.
pub fn audit(records: &[Record], ids_of: impl Fn(u64) -> Vec<u64>, found: &[u64]) -> Findings {
    let mut found = found.to_vec();
    found.sort_unstable();
    let mut findings = Findings::default();
    for pair in found.windows(2).filter(|pair| pair[0] == pair[1]) {
        findings.foreign.insert(pair[0]);
    }
    found.dedup();
    let mut explained = 0;
    for record in records {
        let ids = ids_of(record.slot);
        let there = ids.iter().filter(|id| found.binary_search(id).is_ok()).count();
        explained += there;
        let whole = there == ids.len();
        match record.fate {
            Fate::Acknowledged => findings.acknowledged += 1,
            Fate::Unknown(_) if whole => findings.unknown_found += 1,
            Fate::Unknown(_) if there == 0 => findings.unknown_absent += 1,
            Fate::Unknown(_) | Fate::Failed(_) => {}
        }
        let list = match record.fate {
            Fate::Acknowledged if !whole => &mut findings.lost,
            Fate::Failed(_) if there > 0 => &mut findings.risen,
            Fate::Unknown(_) if there > 0 && !whole => &mut findings.half,
            _ => continue,
        };
        list.insert(record.slot);
    }
    if explained < found.len() {
        let mut known: Vec<u64> = records.iter().flat_map(|r| ids_of(r.slot)).collect();
        known.sort_unstable();
        findings.foreign.extend(found.iter().filter(|id| known.binary_search(id).is_err()));
    }
    findings
}

/// Ids of all rows of the probe's table.
///
/// # Errors
/// A read fails, or a row is not one of ours.
pub async fn read_ids(client: &Client, table: &TableSchema) -> Result<Vec<u64>, String> {
    let mut cursor = client.scan(&ScanRequest::all(table.id, table.version));
    let (mut rows, mut ids) = (Rows::new(), Vec::new());
    while cursor.next_batch(&mut rows).await.map_err(|e| format!("cannot read {}: {e}", table.name))? {
        for row in rows.iter().flatten() {
            table.layout().check(row).map_err(|e| format!("a row of {} is not valid: {e}", table.name))?;
            match table.layout().value(row, 0) {
                Value::UInt(id) => ids.push(id),
                _ => return Err(format!("a row of {} has no id", table.name)),
            }
        }
    }
    Ok(ids)
}

/// Reads through every data node in turn and audits each time.
///
/// # Errors
/// The cluster does not serve.
pub fn audit_all(load: &Load, mgmt: &Access, table: &TableSchema) -> Result<(Findings, usize), String> {
    let records = load.records().clone();
    let nodes = crate::status::ask(mgmt)?.nodes.len().max(1);
    let mut findings = Findings::default();
    for preferred in 0..nodes as u64 {
        let found = crate::bench::cluster::on_this_thread(async {
            read_ids(&crate::bench::cluster::connect(mgmt, preferred).await?, table).await
        })??;
        findings.merge(audit(&records, |slot| load.plan(slot).ids, &found));
    }
    Ok((findings, nodes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(slot: u64, fate: Fate) -> Record {
        Record { slot, groups: (0, None), explicit: false, due_ns: 0, sent_ns: 0, last_sent_ns: 0, done_ns: 0, fate }
    }
    /// Odd writes have two rows.
    fn ids(slot: u64) -> Vec<u64> {
        if slot % 2 == 1 { vec![slot * 10, slot * 10 + 1] } else { vec![slot * 10] }
    }

    #[test]
    fn everything_said_and_nothing_else_is_good() {
        let records = [
            record(1, Fate::Acknowledged),
            record(2, Fate::Failed(1297)),
            record(3, Fate::Unknown(2013)),
            record(4, Fate::Unknown(2013)),
            record(6, Fate::Acknowledged),
        ];
        let found = audit(&records, ids, &[60, 11, 10, 30, 31]);
        assert!(found.is_good(), "{found:?}");
        assert_eq!((found.acknowledged, found.unknown_found, found.unknown_absent), (2, 1, 1));
    }

    #[test]
    fn every_lie_is_found() {
        let records = [
            record(1, Fate::Acknowledged),
            record(2, Fate::Acknowledged),
            record(3, Fate::Unknown(1180)),
            record(4, Fate::Failed(1213)),
            record(5, Fate::Failed(1213)),
            record(6, Fate::Acknowledged),
        ];
        let found = audit(&records, ids, &[10, 31, 40, 51, 60, 60, 99]);
        assert!(!found.is_good());
        let list = |set: &BTreeSet<u64>| set.iter().copied().collect::<Vec<_>>();
        assert_eq!(list(&found.lost), [1, 2]); // half of 1, all of 2
        assert_eq!(list(&found.half), [3]);
        assert_eq!(list(&found.risen), [4, 5]);
        assert_eq!(list(&found.foreign), [60, 99]); // twice, and nobody's
        let mut merged = Findings::default();
        merged.merge(found);
        assert_eq!(merged.to_json(4)["lost"]["count"], 2);
    }
}
