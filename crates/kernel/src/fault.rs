//! Fault points and probes.
//!
//! A fault point is a place where a block asks `ctx.fault("tc.drop_commit")` whether to misbehave. Outside simulation and tests no
//! fault is armed and the question costs one branch. A probe says that a rare condition was reached; tests assert that their
//! seeds reach the conditions they are about.

use std::collections::BTreeMap;

use crate::random::Random;

/// When an armed fault point answers yes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultRule {
    /// This many passes answer no first.
    pub skip: u64,
    /// Then at most this many answer yes.
    pub times: u64,
    /// Each with a chance of one in this (1: always).
    pub one_in: u64,
}

impl FaultRule {
    /// The next pass, once.
    pub const ONCE: FaultRule = FaultRule { skip: 0, times: 1, one_in: 1 };
}

#[derive(Default)]
pub(crate) struct Faults {
    armed: Option<BTreeMap<String, FaultRule>>,
    probes: BTreeMap<&'static str, u64>,
}

impl Faults {
    pub fn arm(&mut self, name: &str, rule: FaultRule) {
        self.armed.get_or_insert_default().insert(name.to_owned(), rule);
    }
    pub fn disarm_all(&mut self) {
        self.armed = None;
    }
    /// The rule has answered yes as often as it does.
    pub fn is_spent(&self, name: &str) -> bool {
        self.armed.as_ref().and_then(|armed| armed.get(name)).is_some_and(|rule| rule.times == 0)
    }
    #[inline]
    pub fn fires(&mut self, name: &'static str, random: &mut Random) -> bool {
        match &mut self.armed {
            None => false,
            Some(armed) => armed.get_mut(name).is_some_and(|rule| {
                if rule.skip > 0 {
                    rule.skip -= 1;
                    return false;
                }
                let fires = rule.times > 0 && random.one_in(rule.one_in);
                rule.times -= u64::from(fires);
                fires
            }),
        }
    }
    pub fn probe(&mut self, name: &'static str) {
        *self.probes.entry(name).or_insert(0) += 1;
    }
    pub fn probes(&self) -> &BTreeMap<&'static str, u64> {
        &self.probes
    }
}
