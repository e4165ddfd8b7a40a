//! What others say of members that we hear ourselves.
//!
//! Two members that lose only the link between them suspect each other; if all were believed, everybody would end up with nobody. A
//! word against a member that we do not hear is believed at once. Against one that we hear it is set aside, looked at again at every
//! tick and whenever we lose somebody ourselves, and believed when none of these holds any more:
//!
//! - it is younger than [`GRACE_NS`], or one of the others held so short a time ago: what makes a member worth less may be over in a moment, and members do not see it at the same
//!   time (simulator seed 1000498). And who is on its way out sees its links closed one by one and suspects those who closed them; what
//!   the others say of it arrives meanwhile;
//! - a suspect has a better [`Standing`] than the reporter: a word is a link that is lost, for both its ends (unless it repeats
//!   another's, which says nothing of a link), as is one that waits for a connection while both live, and of two that cannot both stay the one stays that keeps more of the cluster: the largest set, with it, of members that all see each other. Of equals the one stays that
//!   keeps more where those links count for lost, too, on which an end has not heard the other for half the limit of silence: who is not
//!   heard for a moment is hardly ever gone (simulator seed 174004669). Of equals in that as well the one that joined earlier stays. Where the suspect is really dead, our own link or its silence says so in a moment;
//! - it is in doubt who stays: both keep as much of the cluster, and the one that joined earlier has an end that has not been heard for half the limit. Members learn at different
//!   times of what is over in a moment, and would believe different words (simulator seed 207000285). Within a limit of silence that end is heard again or lost; for longer
//!   nobody waits for it;
//! - another member acts for this side, or would act without the suspect: it decides, and what it proposes says so (simulator seed 1000257: one of several believed another word than
//!   the rest, and was lost, too). One with whom the cluster would be worth less than with us does not count: what it proposes we do not believe;
//! - the rest could not go on without the suspect, whom we do not hear either, and could without the reporter. Where members have lost each other of
//!   whom none can be spared, waiting is in vain: the word is believed, so that all freeze, and meet again (simulator seed 175001065).
//!
//! Who hears nobody suspects no one; it waits (`quorum`). NDB looks for the largest set of nodes that all see each other for the same
//! end (its partial connectivity check).

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use apus_kernel::Context;
use apus_signal::{
    DecodeError, Envelope, Kind,
    qmgr::{FailRep, Incarnation, PresTakeOverReq, ViewPrep, decode},
    view::{NodeState, View, ViewNode},
};
use apus_types::NodeId;

use super::{MS, Membership, Phase, heartbeat::Apart, survival};

/// A word against a member that we hear is older than this when it is believed, and nothing has been better than it for so long.
const GRACE_NS: u64 = 30 * MS;
/// So many sets of members are looked at for one [`Standing`]; a cluster in two parts needs two per member.
const SETS_MAX: usize = 128;

/// Reporter, kind, and whom a single word is about.
type Key = (NodeId, u16, u32);

/// What a word says, and when it was heard first.
pub(super) struct Word {
    first_heard: u64,
    /// A suspect had a better standing than the reporter, or it was in doubt who has; 0: never.
    last_outdone: u64,
    /// Since then it has been in doubt.
    doubted_since: Option<u64>,
    failed: Vec<Incarnation>,
    /// The reporter has lost its link.
    seen: bool,
}

/// The last word of each kind from each member: one entry per member and kind, and for `FailRep` per suspect.
#[derive(Default)]
pub(super) struct Suspicions {
    set_aside: BTreeMap<Key, (Envelope, Vec<u8>)>,
    /// Believed or not; forgotten with each view.
    pub(super) words: BTreeMap<Key, Word>,
}

impl Suspicions {
    /// For dumps: who said what of whom, and what waits.
    pub fn summary(&self) -> String {
        let mut out = String::new();
        for ((reporter, kind, about), word) in &self.words {
            let failed: Vec<u32> = word.failed.iter().map(|f| f.node).collect();
            let waits = if self.set_aside.contains_key(&(*reporter, *kind, *about)) { " (waits)" } else { "" };
            let _ = write!(out, "{reporter}: {failed:?}{waits} ");
        }
        out
    }
}

/// What the cluster could be: whether a set of members could go on (0: not, 1: if the arbitrator lets it, 2: by itself), and how many they are.
type Worth = (u8, usize);

/// The best that the cluster could be with a member, by the links that are lost or wait for a connection, by those too on which an end does not hear the other, and the
/// seniority of the member. Whoever is not heard for a moment may be heard again.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Standing {
    lost: Worth,
    unheard: Worth,
    seniority: Reverse<u64>,
}

impl Standing {
    /// Only whom somebody does not hear for the moment tells which is the better one.
    fn is_in_doubt_against(&self, other: &Self) -> bool {
        self.lost == other.lost && self.cmp(other) != self.seniority.cmp(&other.seniority)
    }
}

fn names(failed: &[Incarnation], node: &ViewNode) -> bool {
    failed.iter().any(|f| f.node == node.id && f.incarnation == node.incarnation)
}

/// The worth of the best set within `set` in which nobody has lost another. Either the one that has lost most of the others goes, or they go.
/// After so many sets as `left` allows only the former is tried.
fn best_seen<W: Ord>(
    mut set: BTreeSet<NodeId>,
    lost: &BTreeSet<(NodeId, NodeId)>,
    worth: &impl Fn(&BTreeSet<NodeId>) -> W,
    left: &mut usize,
) -> W {
    let has_lost = |a: &NodeId| set.iter().filter(|b| lost.contains(&(*a, **b))).count();
    let worst = set.iter().map(|n| (has_lost(n), *n)).max().filter(|(count, _)| *count > 0);
    let Some((_, worst)) = worst else { return worth(&set) };
    *left = left.saturating_sub(1);
    let with_it: BTreeSet<NodeId> = set.iter().copied().filter(|n| !lost.contains(&(worst, *n))).collect();
    set.remove(&worst);
    let without = best_seen(set, lost, worth, left);
    if *left == 0 { without } else { without.max(best_seen(with_it, lost, worth, left)) }
}

impl Membership {
    /// Living members among these that we do not hold for failed and hear.
    fn heard_among<'a>(&'a self, failed: &'a [Incarnation], now: u64) -> impl Iterator<Item = &'a ViewNode> {
        let living = self.view.iter().flat_map(|v| v.living());
        living.filter(move |n| {
            names(failed, n)
                && !self.failed.contains(&n.node())
                && self.is_linked(n.node())
                && self.heartbeats.is_heard(n.node(), now, self.longest_silence())
        })
    }

    /// The rest could not go on without those, whom we do not all hold for failed ourselves.
    fn is_hopeless(&self, failed: &[Incarnation]) -> bool {
        let Some(view) = &self.view else { return false };
        if !view.living().any(|n| names(failed, n) && !self.failed.contains(&n.node())) {
            return false;
        }
        let rest = view.living().filter(|n| !names(failed, n)).map(|n| n.node()).collect();
        matches!(survival::verdict(view, &rest), survival::Verdict::Lose(_))
    }

    /// This node or another is frozen: no removal is coming that would settle who has lost whom.
    fn is_stuck(&self) -> bool {
        self.freeze.is_frozen() || self.heartbeats.is_any_frozen()
    }

    /// Pairs of living members of which one has said that its link to the other is lost. Once anybody is frozen, those count, too, that hold another for
    /// failed because somebody else does: they have closed their links, and no view will mend that (simulator seed 195001002).
    fn lost_pairs(&self, view: &View) -> BTreeSet<(NodeId, NodeId)> {
        let (mut lost, is_stuck) = (BTreeSet::new(), self.is_stuck());
        for ((reporter, ..), word) in self.suspicions.words.iter().filter(|(_, word)| word.seen || is_stuck) {
            let named = view.living().filter(|n| names(&word.failed, n));
            lost.extend(named.flat_map(|n| [(*reporter, n.node()), (n.node(), *reporter)]));
        }
        lost
    }

    /// Of the best set of members that all see each other, without those that we hold for failed; `with`: a member that is in it.
    fn best_worth(&self, view: &View, with: Option<NodeId>, lost: &BTreeSet<(NodeId, NodeId)>) -> Worth {
        let sees = |n: &NodeId| with.is_none_or(|member| !lost.contains(&(member, *n)));
        let rest = view.living().map(ViewNode::node).filter(|n| !self.failed.contains(n) && sees(n)).collect();
        let worth = |set: &BTreeSet<NodeId>| {
            let chance = match survival::verdict(view, set) {
                survival::Verdict::Lose(_) => 0,
                survival::Verdict::Ask => 1,
                survival::Verdict::Win => 2,
            };
            (chance, set.len())
        };
        best_seen(rest, lost, &worth, &mut { SETS_MAX })
    }

    fn standing(&self, view: &View, member: &ViewNode, now: u64) -> Standing {
        let apart = |how| self.heartbeats.apart(view, self.me, how, now, self.longest_silence());
        let mut pairs = self.lost_pairs(view);
        pairs.extend(apart(Apart::Unlinked));
        let lost = self.best_worth(view, Some(member.node()), &pairs);
        pairs.extend(apart(Apart::Unheard));
        let unheard = self.best_worth(view, Some(member.node()), &pairs);
        Standing { lost, unheard, seniority: Reverse(member.join_order) }
    }

    /// This node acts, or would act if these were gone, and with them the seniors with whom the cluster would be worth less: they have lost too many to
    /// decide anything (`tests_links`). Whom all others believe is theirs to say: they look at the same words at other times, and whoever has believed one
    /// has closed a link.
    fn decides(&self, view: &View, failed: &[Incarnation], now: u64) -> bool {
        let Some(own) = view.node(self.me).filter(|own| own.state() == NodeState::Up && !names(failed, own)) else {
            return false;
        };
        let mut pairs = self.lost_pairs(view);
        pairs.extend(self.heartbeats.apart(view, self.me, Apart::Unlinked, now, self.longest_silence()));
        let worth = |n: &ViewNode| self.best_worth(view, Some(n.node()), &pairs);
        let seniors = view.nodes.iter().filter(|n| n.state() == NodeState::Up && n.join_order < own.join_order);
        let mut stay = seniors.filter(|n| !self.failed.contains(&n.node()) && !names(failed, n));
        stay.all(|n| worth(n) < worth(own))
    }

    /// Whoever is believed, nobody can go on: members have lost each other of whom none can be spared. All sides are to freeze and meet again. Once
    /// anybody is frozen, connections that are lost are not waited for.
    fn is_vain(&self, view: &View, now: u64) -> bool {
        let mut lost = self.lost_pairs(view);
        if self.is_stuck() {
            lost.extend(self.heartbeats.apart(view, self.me, Apart::Unlinked, now, self.longest_silence()));
        }
        self.best_worth(view, None, &lost).0 == 0
    }

    /// One of the suspects has a better standing than the reporter; it is in doubt whether one has.
    fn weigh(&self, view: &View, reporter: &ViewNode, suspects: &[&ViewNode], now: u64) -> (bool, bool) {
        let standing = self.standing(view, reporter, now);
        let suspects: Vec<Standing> = suspects.iter().map(|suspect| self.standing(view, suspect, now)).collect();
        let in_doubt = suspects.iter().any(|suspect| suspect.is_in_doubt_against(&standing));
        (suspects.iter().any(|suspect| *suspect > standing), in_doubt)
    }

    /// Sets aside what is not to be believed yet.
    pub(super) fn set_aside(
        &mut self,
        envelope: &Envelope,
        body: &[u8],
        ctx: &mut Context<'_>,
    ) -> Result<bool, DecodeError> {
        let (failed, about, seen): (Vec<Incarnation>, u32, bool) = match envelope.kind {
            Kind::FailRep => {
                let FailRep { failed, hearsay, .. } = decode(body)?;
                (failed.into_iter().collect(), failed.map_or(0, |f| f.node), !hearsay)
            }
            Kind::ViewPrepReq => (decode::<ViewPrep>(body)?.failed, 0, false),
            Kind::PresTakeOverReq => (decode::<PresTakeOverReq>(body)?.failed, 0, false),
            _ => return Ok(false),
        };
        let (now, from) = (ctx.now(), envelope.from.node);
        let Some(view) = self.view.as_ref().filter(|_| self.phase == Phase::Member) else { return Ok(false) };
        let Some(reporter) = view.node(from) else { return Ok(false) };
        let key = (from, envelope.kind as u16, about);
        let known =
            self.suspicions.words.get(&key).map(|word| (word.first_heard, word.last_outdone, word.doubted_since));
        let (first_heard, last_outdone, doubted_since) = known.unwrap_or((now, 0, None));
        let word = Word { first_heard, last_outdone, doubted_since, failed: failed.clone(), seen };
        self.suspicions.words.insert(key, word);
        let heard: Vec<&ViewNode> = self.heard_among(&failed, now).collect();
        let is_young = !heard.is_empty() && now.saturating_sub(first_heard.max(last_outdone)) < GRACE_NS;
        let (is_outdone, in_doubt) = self.weigh(view, reporter, &heard, now);
        let doubted_since = in_doubt.then(|| doubted_since.unwrap_or(now));
        let limits = heard.iter().map(|n| self.heartbeats.limit_of(n.node(), self.longest_silence()));
        let doubt_ends = doubted_since.zip(limits.max()).map_or(0, |(since, limit)| since + limit);
        let is_outdone = is_outdone || now < doubt_ends;
        let own_name = [Incarnation { node: reporter.id, incarnation: reporter.incarnation }];
        let is_vain = self.is_vain(view, now);
        let has_hope = self.is_hopeless(&failed) && !self.is_hopeless(&own_name) && !is_vain;
        let is_for_others =
            envelope.kind == Kind::FailRep && !heard.is_empty() && !is_vain && !self.decides(view, &failed, now);
        let waits = is_young || is_outdone || has_hope || is_for_others;
        if let Some(word) = self.suspicions.words.get_mut(&key) {
            word.doubted_since = doubted_since;
            word.last_outdone = if is_outdone { now } else { last_outdone };
        }
        if waits {
            ctx.probe("qmgr: suspicion set aside");
            self.suspicions.set_aside.insert(key, (*envelope, body.to_vec()));
        }
        Ok(waits)
    }

    /// The words of seniors first: they may settle what juniors said.
    pub(super) fn review_suspicions(&mut self, ctx: &mut Context<'_>) -> Result<(), DecodeError> {
        let mut all: Vec<(Envelope, Vec<u8>)> = std::mem::take(&mut self.suspicions.set_aside).into_values().collect();
        let order = |node: NodeId| self.view.as_ref().and_then(|v| v.node(node)).map_or(u64::MAX, |n| n.join_order);
        all.sort_by_key(|(envelope, _)| order(envelope.from.node));
        for (envelope, body) in all {
            self.take(&envelope, &body, ctx)?;
        }
        Ok(())
    }
}
