//! XA statements, as they are written.

use super::{token::Tokens, xid::Xid};
use crate::errors::Result;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Clause {
    /// `Some(true)`: JOIN; `Some(false)`: RESUME.
    Start(Xid, Option<bool>),
    /// With SUSPEND.
    End(Xid, bool),
    Prepare(Xid),
    /// With ONE PHASE.
    Commit(Xid, bool),
    Rollback(Xid),
    /// With CONVERT XID.
    Recover(bool),
}

impl Clause {
    /// Behind XA.
    ///
    /// # Errors
    /// 1064.
    pub fn parse(t: &mut Tokens) -> Result<Clause> {
        let clause = if t.word("start") || t.word("begin") {
            let xid = Xid::parse(t)?;
            let joins = t.word("join");
            Clause::Start(xid, if joins { Some(true) } else { t.word("resume").then_some(false) })
        } else if t.word("end") {
            let xid = Xid::parse(t)?;
            let suspends = t.word("suspend");
            if suspends && t.word("for") {
                t.expect("migrate")?;
            }
            Clause::End(xid, suspends)
        } else if t.word("prepare") {
            Clause::Prepare(Xid::parse(t)?)
        } else if t.word("commit") {
            let xid = Xid::parse(t)?;
            let is_one = t.word("one");
            if is_one {
                t.expect("phase")?;
            }
            Clause::Commit(xid, is_one)
        } else if t.word("rollback") {
            Clause::Rollback(Xid::parse(t)?)
        } else if t.word("recover") {
            let converts = t.word("convert");
            if converts {
                t.expect("xid")?;
            }
            Clause::Recover(converts)
        } else {
            return Err(t.error());
        };
        t.end()?;
        Ok(clause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        let xid = || Xid { format: 1, gtrid: b"a".to_vec(), bqual: Vec::new() };
        let parsed = |text: &str| Clause::parse(&mut Tokens::new(text)).ok();
        assert_eq!(parsed("BEGIN 'a' JOIN"), Some(Clause::Start(xid(), Some(true))));
        assert_eq!(parsed("start 'a'"), Some(Clause::Start(xid(), None)));
        assert_eq!(parsed("end 'a' suspend for migrate"), Some(Clause::End(xid(), true)));
        assert_eq!(parsed("commit 'a' one phase"), Some(Clause::Commit(xid(), true)));
        assert_eq!(parsed("recover convert xid"), Some(Clause::Recover(true)));
        for wrong in ["", "commit", "commit 'a' one", "prepare 'a' one phase", "recover 'a'", "start 'a' suspend"] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }
}
