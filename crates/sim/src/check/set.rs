//! A set: elements are inserted and deleted once each, and everything is read now and then. What was acknowledged is there in every read that
//! began later, what was refused is in none, what nobody could tell may be there or not, but not come and go.
//!
//! A read of everything takes its time and its rows may be of different moments within it: an element must be in it only if it was there
//! from the read's begin to its end, and must not be only if it was absent all the time.

use std::collections::{BTreeMap, BTreeSet};

/// When something was asked for, and what came of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Acknowledged at this time.
    Done(u64),
    Refused,
    Unknown,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Change {
    begin: u64,
    fate: Fate,
}

/// What was read, and when.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Reading {
    begin: u64,
    end: u64,
    found: Vec<u64>,
}

/// The record of one set.
#[derive(Clone, Default, Debug)]
pub struct SetHistory {
    inserts: BTreeMap<u64, Vec<Change>>,
    deletes: BTreeMap<u64, Vec<Change>>,
    readings: Vec<Reading>,
}

impl SetHistory {
    pub fn inserted(&mut self, element: u64, begin: u64, fate: Fate) {
        self.inserts.entry(element).or_default().push(Change { begin, fate });
    }
    pub fn deleted(&mut self, element: u64, begin: u64, fate: Fate) {
        self.deletes.entry(element).or_default().push(Change { begin, fate });
    }
    pub fn read(&mut self, begin: u64, end: u64, found: Vec<u64>) {
        self.readings.push(Reading { begin, end, found });
    }
    /// Elements whose insertion was acknowledged.
    pub fn acknowledged(&self) -> usize {
        self.inserts.values().filter(|all| all.iter().any(|c| matches!(c.fate, Fate::Done(_)))).count()
    }

    /// # Errors
    /// What cannot be.
    pub fn check(&self) -> Result<(), String> {
        let mut readings: Vec<&Reading> = self.readings.iter().collect();
        readings.sort_by_key(|r| (r.begin, r.end));
        // Elements that some read showed, with the earliest end of such a read.
        let mut shown: BTreeMap<u64, u64> = BTreeMap::new();
        for reading in &readings {
            let found: BTreeSet<u64> = reading.found.iter().copied().collect();
            if found.len() != reading.found.len() {
                let mut sorted = reading.found.clone();
                sorted.sort_unstable();
                let twice = sorted.windows(2).find(|w| w[0] == w[1]).map(|w| w[0]);
                return Err(format!("duplicate: element {twice:?} stands twice in the read at {}", reading.begin));
            }
            for element in &found {
                self.may_be_there(*element, reading)?;
                let first = shown.entry(*element).or_insert(reading.end);
                *first = (*first).min(reading.end);
            }
        }
        for reading in readings {
            let found: BTreeSet<u64> = reading.found.iter().copied().collect();
            for element in self.inserts.keys().filter(|e| !found.contains(e)) {
                self.may_be_absent(*element, reading, shown.get(element).copied())?;
            }
        }
        Ok(())
    }

    fn may_be_there(&self, element: u64, reading: &Reading) -> Result<(), String> {
        let inserts = self.inserts.get(&element).map_or(&[][..], Vec::as_slice);
        if !inserts.iter().any(|c| c.fate != Fate::Refused && c.begin <= reading.end) {
            let what = if inserts.is_empty() { "never inserted" } else { "refused or inserted later" };
            return Err(format!("phantom: element {element} in the read at {} was {what}", reading.begin));
        }
        let deletes = self.deletes.get(&element).map_or(&[][..], Vec::as_slice);
        if let Some(gone) = deletes.iter().find(|c| matches!(c.fate, Fate::Done(at) if at < reading.begin)) {
            return Err(format!(
                "stale: element {element} in the read at {} had been deleted since {}",
                reading.begin, gone.begin
            ));
        }
        Ok(())
    }

    fn may_be_absent(&self, element: u64, reading: &Reading, shown: Option<u64>) -> Result<(), String> {
        let deletes = self.deletes.get(&element).map_or(&[][..], Vec::as_slice);
        if deletes.iter().any(|c| c.fate != Fate::Refused && c.begin <= reading.end) {
            return Ok(());
        }
        let inserts = self.inserts.get(&element).map_or(&[][..], Vec::as_slice);
        let done = inserts.iter().filter_map(|c| if let Fate::Done(at) = c.fate { Some(at) } else { None }).min();
        match (done, shown) {
            (Some(at), _) if at < reading.begin => {
                Err(format!("lost: element {element}, acknowledged at {at}, is not in the read at {}", reading.begin))
            }
            (_, Some(end)) if end < reading.begin => Err(format!(
                "flickering: element {element}, read before {end}, is not in the read at {}",
                reading.begin
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(record: impl FnOnce(&mut SetHistory)) -> String {
        let mut set = SetHistory::default();
        record(&mut set);
        set.check().err().and_then(|e| e.split(':').next().map(str::to_owned)).unwrap_or_default()
    }

    #[test]
    fn acknowledged_is_there_from_then_on() {
        assert_eq!(
            verdict(|s| {
                s.inserted(7, 1, Fate::Done(2));
                s.read(3, 4, vec![7]);
            }),
            ""
        );
        assert_eq!(
            verdict(|s| {
                s.inserted(7, 1, Fate::Done(2));
                s.read(3, 4, vec![]);
            }),
            "lost"
        );
        assert_eq!(
            verdict(|s| {
                s.inserted(7, 1, Fate::Done(5));
                s.read(3, 4, vec![]);
            }),
            ""
        );
        assert_eq!(
            verdict(|s| {
                s.inserted(7, 1, Fate::Done(5));
                s.read(3, 4, vec![7]);
            }),
            ""
        );
    }

    #[test]
    fn refused_is_never_there() {
        assert_eq!(
            verdict(|s| {
                s.inserted(7, 1, Fate::Refused);
                s.read(3, 4, vec![7]);
            }),
            "phantom"
        );
        assert_eq!(
            verdict(|s| {
                s.inserted(7, 1, Fate::Refused);
                s.read(3, 4, vec![]);
            }),
            ""
        );
        assert_eq!(verdict(|s| s.read(3, 4, vec![7])), "phantom");
        assert_eq!(
            verdict(|s| {
                s.inserted(7, 5, Fate::Done(6));
                s.read(3, 4, vec![7]);
            }),
            "phantom"
        );
        // Asked for again after the refusal.
        assert_eq!(
            verdict(|s| {
                s.inserted(7, 1, Fate::Refused);
                s.inserted(7, 2, Fate::Done(3));
                s.read(4, 5, vec![7]);
            }),
            ""
        );
    }

    #[test]
    fn what_nobody_can_tell_does_not_come_and_go() {
        let unknown = |reads: &[bool]| {
            verdict(|s| {
                s.inserted(7, 1, Fate::Unknown);
                for (i, there) in (0..).zip(reads) {
                    s.read(10 * i + 3, 10 * i + 4, if *there { vec![7] } else { Vec::new() });
                }
            })
        };
        assert_eq!(unknown(&[false, true, true]), "");
        assert_eq!(unknown(&[false, false]), "");
        assert_eq!(unknown(&[true, false]), "flickering");
    }

    #[test]
    fn deleted_is_gone_from_then_on() {
        let deleted = |fate, found: &[u64]| {
            verdict(|s| {
                s.inserted(7, 1, Fate::Done(2));
                s.deleted(7, 3, fate);
                s.read(6, 7, found.to_vec());
            })
        };
        assert_eq!(deleted(Fate::Done(5), &[]), "");
        assert_eq!(deleted(Fate::Done(5), &[7]), "stale");
        assert_eq!(deleted(Fate::Done(8), &[7]), "");
        assert_eq!(deleted(Fate::Unknown, &[7]), "");
        assert_eq!(deleted(Fate::Unknown, &[]), "");
        assert_eq!(deleted(Fate::Refused, &[]), "lost");
        assert_eq!(deleted(Fate::Refused, &[7]), "");
    }

    #[test]
    fn nothing_is_there_twice() {
        assert_eq!(
            verdict(|s| {
                s.inserted(7, 1, Fate::Done(2));
                s.read(3, 4, vec![7, 7]);
            }),
            "duplicate"
        );
    }
}
