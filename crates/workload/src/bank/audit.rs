//! The audit: does what the cluster holds follow from what it acknowledged?
//!
//! A pure function of both. A transfer that was acknowledged must have its record; one whose outcome nobody could tell may have it; nothing
//! else may be there. Balances must be exactly what the records found make of the initial balances: so a transfer that was
//! executed half, twice, or without its record is seen.

use std::{collections::BTreeMap, fmt};

use super::{Holdings, Terms};

/// Most ids named in a report.
const NAMED_MAX: usize = 5;

/// What an audit found.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Findings {
    /// Acknowledged, but there is no record.
    pub missing: Vec<u64>,
    /// There is a record of what was never acknowledged (reported as rolled back, or never sent).
    pub unexpected: Vec<u64>,
    /// More than one record.
    pub doubled: Vec<u64>,
    /// The record says something else than what was sent.
    pub altered: Vec<u64>,
    /// Accounts that are missing, there twice, foreign, or whose balance does not follow from the records.
    pub accounts: Vec<u64>,
    /// Sum of all balances, less what it must be.
    pub surplus: i128,
}

impl Findings {
    pub fn is_good(&self) -> bool {
        *self == Findings::default()
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} missing, ", self.missing.len())?;
        match self.surplus {
            0 => f.write_str("sum exact")?,
            n => write!(f, "SUM WRONG BY {n}")?,
        }
        let lists = [
            ("missing transfers", &self.missing),
            ("unexpected transfers", &self.unexpected),
            ("doubled transfers", &self.doubled),
            ("altered transfers", &self.altered),
            ("wrong accounts", &self.accounts),
        ];
        for (name, ids) in lists.into_iter().filter(|(_, ids)| !ids.is_empty()) {
            write!(f, "; {} {name}:", ids.len())?;
            for id in ids.iter().take(NAMED_MAX) {
                write!(f, " {id}")?;
            }
            if ids.len() > NAMED_MAX {
                f.write_str(" ...")?;
            }
        }
        Ok(())
    }
}

/// Compares what the cluster holds with what it said. `acknowledged` and `unresolved` are ids of transfers in any order.
pub fn audit(terms: &Terms, acknowledged: &[u64], unresolved: &[u64], holdings: &Holdings) -> Findings {
    let mut findings = Findings::default();
    let (acknowledged, unresolved) = (sorted(acknowledged), sorted(unresolved));
    let mut records = holdings.records.clone();
    records.sort_unstable_by_key(|r| r.id);

    let has = |ids: &[u64], id| ids.binary_search(&id).is_ok();
    findings.missing.extend(acknowledged.iter().filter(|&&id| records.binary_search_by_key(&id, |r| r.id).is_err()));
    for same in records.chunk_by(|a, b| a.id == b.id) {
        let id = same[0].id;
        if same.len() > 1 {
            findings.doubled.push(id);
        }
        if !has(&acknowledged, id) && !has(&unresolved, id) {
            findings.unexpected.push(id);
        }
        if same.iter().any(|r| *r != terms.transfer(id)) {
            findings.altered.push(id);
        }
    }

    let mut expected: BTreeMap<u64, i128> = (0..terms.accounts).map(|a| (a, i128::from(terms.balance))).collect();
    for r in &records {
        for (account, delta) in [(r.source, -i128::from(r.amount)), (r.target, i128::from(r.amount))] {
            if let Some(balance) = expected.get_mut(&account) {
                *balance += delta;
            }
        }
    }
    for &(account, balance) in &holdings.balances {
        if expected.remove(&account) != Some(i128::from(balance)) {
            findings.accounts.push(account);
        }
    }
    findings.accounts.extend(expected.into_keys());
    let sum: i128 = holdings.balances.iter().map(|&(_, b)| i128::from(b)).sum();
    findings.surplus = sum - i128::from(terms.balance) * i128::from(terms.accounts);
    findings
}

fn sorted(ids: &[u64]) -> Vec<u64> {
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms = Terms { seed: 1, accounts: 10, balance: 1000 };

    /// What a cluster holds that executed exactly `ids`.
    fn executed(ids: &[u64]) -> Holdings {
        let mut all = Holdings { balances: (0..10).map(|a| (a, 1000)).collect(), ..Holdings::default() };
        for &id in ids {
            let t = TERMS.transfer(id);
            all.records.push(t);
            apply(&mut all, id);
        }
        all
    }
    fn apply(all: &mut Holdings, id: u64) {
        let t = TERMS.transfer(id);
        all.balances[t.source as usize].1 -= t.amount;
        all.balances[t.target as usize].1 += t.amount;
    }

    #[test]
    fn what_was_acknowledged_and_nothing_else_is_right() {
        let mut all = executed(&[7, 3, 9, 12]);
        all.balances.reverse();
        assert!(audit(&TERMS, &[3, 7, 9, 12], &[], &all).is_good());
        // An unresolved transfer may be there or not.
        assert!(audit(&TERMS, &[3, 7, 9], &[12], &all).is_good());
        assert!(audit(&TERMS, &[3, 7, 9, 12], &[40], &all).is_good());
        assert!(audit(&TERMS, &[], &[], &executed(&[])).is_good());
    }

    #[test]
    fn a_lost_transfer_is_found() {
        let found = audit(&TERMS, &[1, 2, 3], &[], &executed(&[1, 3]));
        assert_eq!(found.missing, [2]);
        assert!(!found.is_good());
        assert!(found.to_string().starts_with("1 missing, sum exact"), "{found}");
    }

    #[test]
    fn a_lost_record_or_a_lost_effect_is_found() {
        let mut all = executed(&[1, 2, 3]);
        all.records.retain(|r| r.id != 2);
        let found = audit(&TERMS, &[1, 2, 3], &[], &all);
        assert_eq!(found.missing, [2]);
        assert_eq!(found.accounts.len(), 2);

        let mut all = executed(&[1, 2]);
        all.records.push(TERMS.transfer(3)); // a record without effect
        let found = audit(&TERMS, &[1, 2, 3], &[], &all);
        assert_eq!((found.missing.len(), found.accounts.len(), found.surplus), (0, 2, 0));
        assert!(!found.is_good());
    }

    #[test]
    fn a_transfer_executed_twice_is_found() {
        let mut all = executed(&[1, 2]);
        apply(&mut all, 2);
        let found = audit(&TERMS, &[1, 2], &[], &all);
        assert_eq!((found.accounts.len(), found.surplus), (2, 0));
        assert!(!found.is_good());

        let found = audit(&TERMS, &[1, 2], &[], &executed(&[1, 2, 2]));
        assert_eq!(found.doubled, [2]);
        assert!(!found.is_good());
    }

    #[test]
    fn half_a_transfer_is_found() {
        let mut all = executed(&[1]);
        all.balances[TERMS.transfer(1).target as usize].1 -= TERMS.transfer(1).amount;
        let found = audit(&TERMS, &[1], &[], &all);
        assert_eq!((found.accounts.len(), found.surplus), (1, -i128::from(TERMS.transfer(1).amount)));
        assert!(found.to_string().contains("SUM WRONG BY -"), "{found}");
    }

    #[test]
    fn a_transfer_reported_as_rolled_back_must_not_be_there() {
        let found = audit(&TERMS, &[1], &[], &executed(&[1, 5]));
        assert_eq!(found.unexpected, [5]);
        assert!(!found.is_good());
    }

    #[test]
    fn altered_records_and_strange_accounts_are_found() {
        let mut all = executed(&[1]);
        all.records[0].amount += 1;
        assert_eq!(audit(&TERMS, &[1], &[], &all).altered, [1]);

        let mut all = executed(&[]);
        all.balances.remove(4);
        assert_eq!(audit(&TERMS, &[], &[], &all).accounts, [4]);
        let mut all = executed(&[]);
        all.balances.truncate(8);
        assert_eq!(audit(&TERMS, &[], &[], &all).accounts, [8, 9]);
        let mut all = executed(&[]);
        all.balances.push((3, 1000));
        assert_eq!(audit(&TERMS, &[], &[], &all).accounts, [3]);
        all.balances.pop();
        all.balances.push((u64::MAX, 0));
        assert_eq!(audit(&TERMS, &[], &[], &all).accounts, [u64::MAX]);
    }
}
