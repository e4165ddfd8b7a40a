//! The process that was started after a member's crash speaks for it, from what the dead one kept (`keep`).
//!
//! A frozen node waits for the members that are missing. One that crashed never comes back as the process that the view names. Its node's next
//! process knows what it promised and accepted, says so in its `JoinReq`, and is asked as a frozen member of another side would be
//! (`freeze`): it tells what was accepted, promises the ballot, and accepts a view without the dead one. All of that is done *as the dead
//! acceptor*, and is in the file before it is told, so that the process after this one knows it too. It ends when this process
//! is itself a member, for then a view without the dead one is committed.
//!
//! **Why that is safe** ([decision 0009](../../../../docs/decisions/0009-what-a-data-node-keeps.md)). An acceptor that stops and goes on
//! with its state is a slow acceptor. It has told nobody anything that is not in the file. It is dead for certain when the next process speaks:
//! that one has taken the data directory. So it reads for no client and holds no lease.
//!
//! One thing is not in the file for certain: that a view was committed. So an accepted view that is told of by the dead has to be
//! finished, also where all full members take part, and where it is without those that ask, these stay frozen: it may have been
//! executed by the dead process alone, and what that one did then is lost. That is for an operator.

use apus_kernel::{Context, jam};
use apus_signal::{
    DecodeError, Kind,
    qmgr::{JoinReq, PresTakeOverConf, ViewCommit, ViewPrep, ViewPrepAnswer, checked_view},
    view::{NodeState, View},
};
use apus_types::NodeId;

use super::{Membership, Phase, keep::Acceptor};

impl Membership {
    /// Of the process before us that is spoken for; 0: none.
    pub(super) fn speaks_for(&self) -> u64 {
        self.keeper.before.as_ref().map_or(0, |before| before.incarnation)
    }

    /// From a node whose member we hold for failed.
    pub(super) fn on_join_of_lost(&mut self, from: NodeId, req: &JoinReq, ctx: &mut Context<'_>) {
        let is_peer = self.links.get(from).is_some_and(|l| l.incarnation == req.incarnation);
        let member = self.view.as_ref().and_then(|v| v.node(from)).map_or(0, |n| n.incarnation);
        if is_peer && member != 0 && member == req.speaks_for && self.freeze.is_frozen() {
            self.freeze.note_witness(from, req.incarnation, ctx.now());
        }
        if is_peer {
            self.note_on_disk(from, req, ctx);
        }
        self.refuse_successor(from, ctx);
    }

    /// Asked by a member of `base` what the dead process accepted, and for its promise.
    pub(super) fn on_reunion_req_before(&mut self, from: NodeId, ballot: u64, base: View, ctx: &mut Context<'_>) {
        if let Some(before) = self.promise_before(from, ballot, &base, ctx) {
            ctx.probe("qmgr: a process speaks for the one before it");
            let conf = PresTakeOverConf {
                ballot,
                committed: Some(base),
                prepared: before.prepared.clone(),
                prepared_ballot: before.prepared_ballot,
                ..PresTakeOverConf::default()
            };
            self.tell_when_kept(from, Kind::PresTakeOverConf, &conf, ctx);
        }
    }

    /// Asked to accept a view without the dead process.
    pub(super) fn on_give_way_req_before(
        &mut self,
        from: NodeId,
        req: ViewPrep,
        ctx: &mut Context<'_>,
    ) -> Result<(), DecodeError> {
        let next = checked_view(req.view)?.ok_or(DecodeError)?;
        let base = checked_view(req.base)?.ok_or(DecodeError)?;
        let generation = base.generation;
        if next.lineage != base.lineage {
            self.on_rest_goes_on(from, req.ballot, &base, next, ctx);
            return Ok(());
        }
        if next.generation != generation + 1 {
            return Err(DecodeError);
        }
        if let Some(before) = self.promise_before(from, req.ballot, &base, ctx) {
            (before.prepared, before.prepared_ballot) = (Some(next), req.ballot);
            let answer = ViewPrepAnswer { ballot: req.ballot, generation, ..ViewPrepAnswer::default() };
            // After another loss of power nobody would speak for it, and the disk may be started from.
            match self.restart.has_disk {
                true => self.tell_when_synced(from, Kind::ViewPrepConf, &answer, ctx),
                false => self.tell_when_kept(from, Kind::ViewPrepConf, &answer, ctx),
            }
        }
        Ok(())
    }

    /// The dead acceptor, which has promised the ballot. `None`: it cannot, and whoever asks has been told why if that matters.
    fn promise_before(
        &mut self,
        from: NodeId,
        ballot: u64,
        base: &View,
        ctx: &mut Context<'_>,
    ) -> Option<&mut Acceptor> {
        let asker = self.links.incarnation(from);
        let is_full = |node: NodeId, incarnation: u64| {
            base.node(node).is_some_and(|n| n.incarnation == incarnation && n.state() == NodeState::Up)
        };
        let before = self.keeper.before.as_ref().filter(|_| self.phase == Phase::Starting)?;
        let known = before.committed.as_ref()?;
        let is_same = (known.cluster, known.lineage) == (base.cluster, base.lineage);
        let is_bound = before.prepared.as_ref().is_some_and(|view| view.lineage != known.lineage);
        if !is_same || is_bound || !is_full(from, asker) || !is_full(self.me, before.incarnation) {
            jam!(ctx);
            return None;
        }
        if known.generation > base.generation {
            self.tell_newer(from, asker, ballot, &known.clone(), ctx);
            return None;
        }
        let promised = if known.generation == base.generation { before.promised } else { 0 };
        if ballot < promised {
            let answer = ViewPrepAnswer { ballot, generation: base.generation, promised, ..ViewPrepAnswer::default() };
            self.send(ctx, from, Kind::ViewPrepRef, &answer);
            return None;
        }
        let before = self.keeper.before.as_mut()?;
        if before.committed.as_ref().is_some_and(|known| known.generation < base.generation) {
            // Whoever is a member of it knows that it was committed; the dead process had no part in its successor.
            (before.committed, before.prepared, before.prepared_ballot) = (Some(base.clone()), None, 0);
        }
        before.promised = ballot;
        Some(before)
    }

    /// The dead process executed a later view than the one that `from` has.
    fn tell_newer(&self, from: NodeId, asker: u64, ballot: u64, newer: &View, ctx: &mut Context<'_>) {
        let is_in_it = newer.node(from).is_some_and(|n| n.incarnation == asker && n.state() != NodeState::Down);
        let committed = Some(newer.clone());
        if is_in_it {
            self.send(ctx, from, Kind::ViewCommitOrd, &ViewCommit { view: committed });
        } else {
            let conf = PresTakeOverConf { ballot, committed, ..PresTakeOverConf::default() };
            self.send(ctx, from, Kind::PresTakeOverConf, &conf);
        }
    }
}
