//! Commit tokens: the answers that anybody got about a transaction agree for ever, and agree with what was read. A transaction said to be
//! committed shows in every later read, one said to be rolled back in none, before or after.

use std::collections::BTreeMap;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Said {
    Committed,
    RolledBack,
}

/// What is known of one transaction.
#[derive(Clone, Default, Debug)]
struct Known {
    /// The first answer and its time.
    said: Option<(Said, u64)>,
    /// Begin and end of reads that showed it, and that did not.
    shown: Vec<(u64, u64)>,
    missing: Vec<(u64, u64)>,
}

/// Answers and sights, by transaction.
#[derive(Clone, Default, Debug)]
pub struct Tokens {
    known: BTreeMap<u64, Known>,
    contradiction: Option<String>,
}

impl Tokens {
    /// Somebody was told so at this time: by an acknowledgement, a refusal that ends the transaction, or the answer to a token.
    pub fn said(&mut self, transaction: u64, said: Said, at: u64) {
        match &mut self.known.entry(transaction).or_default().said {
            Some((before, since)) if *before != said => {
                let what =
                    format!("transaction {transaction} was said to be {before:?} at {since} and {said:?} at {at}");
                self.contradiction.get_or_insert(what);
            }
            Some((_, since)) => *since = (*since).min(at),
            none => *none = Some((said, at)),
        }
    }
    /// A read of what only this transaction could have written.
    pub fn seen(&mut self, transaction: u64, there: bool, begin: u64, end: u64) {
        let known = self.known.entry(transaction).or_default();
        if there { &mut known.shown } else { &mut known.missing }.push((begin, end));
    }

    /// # Errors
    /// The first contradiction.
    pub fn check(&self) -> Result<(), String> {
        if let Some(what) = &self.contradiction {
            return Err(what.clone());
        }
        for (transaction, known) in &self.known {
            match known.said {
                Some((Said::RolledBack, at)) if !known.shown.is_empty() => {
                    let (begin, _) = known.shown[0];
                    return Err(format!(
                        "transaction {transaction}, said to be rolled back at {at}, was read at {begin}"
                    ));
                }
                Some((Said::Committed, at)) => {
                    if let Some((begin, _)) = known.missing.iter().find(|(begin, _)| *begin > at) {
                        return Err(format!(
                            "transaction {transaction}, said to be committed at {at}, was not there for a read at {begin}"
                        ));
                    }
                }
                _ => {}
            }
            let first = known.shown.iter().map(|(_, end)| *end).min().unwrap_or(u64::MAX);
            if let Some((begin, _)) = known.missing.iter().find(|(begin, _)| *begin > first) {
                return Err(format!("transaction {transaction} was read before {first} and was gone at {begin}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good(record: impl FnOnce(&mut Tokens)) -> bool {
        let mut tokens = Tokens::default();
        record(&mut tokens);
        tokens.check().is_ok()
    }

    #[test]
    fn answers_agree_with_each_other() {
        assert!(good(|t| {
            t.said(1, Said::Committed, 5);
            t.said(1, Said::Committed, 9);
            t.said(2, Said::RolledBack, 9);
        }));
        assert!(!good(|t| {
            t.said(1, Said::Committed, 5);
            t.said(1, Said::RolledBack, 9);
        }));
        assert!(!good(|t| {
            t.said(1, Said::RolledBack, 5);
            t.said(1, Said::Committed, 9);
        }));
    }

    #[test]
    fn rolled_back_is_never_read() {
        assert!(good(|t| {
            t.said(1, Said::RolledBack, 5);
            t.seen(1, false, 6, 7);
        }));
        assert!(!good(|t| {
            t.said(1, Said::RolledBack, 5);
            t.seen(1, true, 6, 7);
        }));
        assert!(!good(|t| {
            t.seen(1, true, 2, 3);
            t.said(1, Said::RolledBack, 5);
        }));
    }

    #[test]
    fn committed_is_read_ever_after() {
        assert!(good(|t| {
            t.seen(1, false, 4, 6);
            t.said(1, Said::Committed, 5);
            t.seen(1, true, 6, 7);
        }));
        assert!(!good(|t| {
            t.said(1, Said::Committed, 5);
            t.seen(1, false, 6, 7);
        }));
        // Nobody was told, but somebody saw it.
        assert!(good(|t| {
            t.seen(1, false, 1, 2);
            t.seen(1, true, 2, 3);
        }));
        assert!(!good(|t| {
            t.seen(1, true, 2, 3);
            t.seen(1, false, 4, 5);
        }));
    }
}
