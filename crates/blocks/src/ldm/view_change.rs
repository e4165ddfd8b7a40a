//! A new view: chains shrink or grow, dead coordinators' transactions are handed to their takers, one-pass batches whose
//! successor died go on from here.
//!
//! **Slices.** As in TC (`tc::take_over`), one transaction after the other is looked at, some in each round of the worker; the end is reported
//! behind the last of them. A wait of a dead coordinator's transaction that is granted before its turn is given up then. A view that
//! comes meanwhile begins anew.

use apus_kernel::{Context, jam};
use apus_signal::{
    BlockId, BlockRef, DecodeError, Kind,
    ldm::{LdmPrepareReq, ONE_PASS, PreparedRow},
    qmgr::encode,
    switchover::{Switch, SwitchAnswer},
    takeover::{TakeOverEndRep, TakeOverTransRep},
    view::{NodeState, View},
};
use apus_types::{
    Chain, NodeId, PartitionId, TransId,
    collections::IdHasher,
    hash::SecretHash,
    limits::{BATCH_OPS_MAX, PARTITIONS_MAX},
};

use super::{
    LocalDataManager, SLICE_ROWS, WAITING_MAX,
    ends::is_short,
    outcome::Outcomes,
    trans::{NONE, Part},
};

/// The body of the `LdmContinueOrd` that asks for the next slice.
pub(super) const CONTINUE_VIEW: u8 = 3;
/// Records looked at in a slice for which nothing is to be done.
const LOOKED_MAX: u32 = 16 << 10;
/// A step is a report, or a row of a batch that is sent again; what it may cost at worst.
const STEP_NS_MAX: u64 = 8_000;
const LOOK_NS_MAX: u64 = 200;
/// Steps that a wait counts for: it may have to be found in a queue of all others.
const WAIT_STEPS: usize = 3;
const _: () = assert!(WAITING_MAX as u64 <= WAIT_STEPS as u64 * STEP_NS_MAX);
// A slice ends with the transaction that exceeds it.
const _: () = assert!(is_short(SLICE_ROWS as usize + PARTITIONS_MAX as usize + BATCH_OPS_MAX, STEP_NS_MAX));
const _: () = assert!(is_short(LOOKED_MAX as usize, LOOK_NS_MAX));

/// What is left to be done for the present view.
#[derive(Debug)]
pub(super) struct Succession {
    /// Records that were there when it came and have not been looked at.
    places: std::ops::Range<u32>,
    /// Somebody has left, or all that was open is settled.
    lost: bool,
}

/// The coordinator that takes over `trans` in `view`: all nodes compute the same one.
pub fn taker(view: &View, trans: TransId) -> Option<BlockRef> {
    use std::hash::Hasher;
    let mut hasher = IdHasher::default();
    hasher.write_u64(trans.client);
    hasher.write_u64(trans.seq);
    let living = view.living().count();
    let choice = (hasher.finish() >> 16) as usize % (living * view.instances.max(1) as usize).max(1);
    let node = living_in_order(view).nth(choice % living.max(1))?;
    Some(BlockRef::new(node, BlockId::Tc, (choice / living.max(1)) as u8))
}

/// Living nodes by id, whatever the order in the message.
pub fn living_in_order(view: &View) -> impl Iterator<Item = NodeId> {
    (1..=NodeId::DATA_MAX).map(NodeId).filter(|&n| view.is_alive(n))
}

/// Nodes that were members in `old` and are not, or not in the same incarnation, in `new`.
pub fn departed(old: &View, new: &View) -> impl Iterator<Item = NodeId> {
    old.living().filter_map(move |was| {
        let same =
            new.node(was.node()).is_some_and(|n| n.state() != NodeState::Down && n.incarnation == was.incarnation);
        (!same).then_some(was.node())
    })
}

impl LocalDataManager {
    /// Before there is a row or a transaction: draws what clients may not know.
    pub(super) fn seed_rows(&mut self, ctx: &mut Context<'_>) {
        if std::mem::replace(&mut self.is_seeded, true) {
            return;
        }
        self.outcomes = Outcomes::new(ctx.random());
        self.transactions.seed(ctx.random());
        assert!(self.tables.iter().all(|t| t.fragments().next().is_none()), "rows are placed before the seed is drawn");
        self.secret = SecretHash::new(ctx.random());
    }

    pub(super) fn on_view_ord(&mut self, body: &[u8], ctx: &mut Context<'_>) -> Result<(), DecodeError> {
        let view = View::from_bytes(body)?;
        jam!(ctx);
        if view.generation <= self.view.generation {
            return Ok(());
        }
        let old = std::mem::replace(&mut self.view, view);
        if old.generation == 0 {
            self.seed_rows(ctx);
            let view = self.view.clone();
            self.open_redo(&view, ctx);
            self.filled_since = ctx.now();
        }
        // Those that an operator abandoned may have committed what nobody here knows of.
        let is_resumed = old.generation > 0 && old.lineage != self.view.lineage;
        if (old.generation == 0 && self.view.generation > 1) || is_resumed {
            self.forget_outcomes(ctx);
        }
        for p in (0..self.view.partition_count()).map(PartitionId) {
            let dead = self.view.chain(p).nodes().find(|&n| !self.view.is_alive(n));
            assert!(dead.is_none(), "view {} has {dead:?} in the chain of partition {p}", self.view.generation);
        }
        let gone: Vec<NodeId> = departed(&old, &self.view).collect();
        for node in &gone {
            self.left_at[usize::from(node.0)] = self.view.generation;
        }
        let settles = self.view.settles_after(&old);
        if settles {
            ctx.probe("ldm: what all coordinators had open is taken over");
            self.left_at.fill(self.view.settles);
        }
        if settles || !gone.is_empty() {
            self.lost_at = self.view.generation;
        }
        let latest = self.left_at.iter().max().copied().unwrap_or(0);
        assert!(latest <= self.lost_at, "somebody left in view {latest}, and the last loss is of {}", self.lost_at);
        if old.state(self.me.node) != NodeState::Up && self.is_up() {
            self.epochs.begin(ctx.epoch());
            self.base = None;
            if old.generation > 0 {
                self.log_filled(ctx);
            }
        }
        self.has_left = false;
        self.check_turned(&old);
        self.lose_slices();
        self.fit_fragments(ctx);
        self.fit_copy_jobs(&gone, &old, ctx);
        // In every view, because some other node may see this one and not the one in which somebody left.
        let lost = !gone.is_empty() || settles || self.succession.as_ref().is_some_and(|s| s.lost);
        self.succession = Some(Succession { places: 0..self.transactions.places(), lost });
        self.continue_succession(ctx);
        std::mem::take(&mut self.deferred).replay(self, ctx);
        Ok(())
    }

    /// Before a switchover: can this node serve what it is to be primary of? A read at a snapshot within a transaction goes to primaries
    /// only, so nobody may hold a snapshot that is older than what this node has.
    pub(super) fn on_switch_req(&mut self, from: BlockRef, req: &Switch, ctx: &mut Context<'_>) {
        if req.generation != self.view.generation {
            return;
        }
        let is_new = |(p, chain): (PartitionId, &u32)| {
            self.view.instance(p) == self.me.instance
                && Chain(*chain).primary() == Some(self.me.node)
                && !self.is_primary(p)
        };
        let gains = (0..self.view.partition_count()).map(PartitionId).zip(&req.chains).any(is_new);
        let leaver = NodeId(req.leaver as u16);
        let stays = req.leaver != 0
            && leaver != self.me.node
            && self.view.chains.iter().any(|c| Chain(*c).contains(leaver) && Chain(*c).contains(self.me.node));
        let (kind, reason) = if stays && self.outcomes.is_young(ctx.now()) {
            (Kind::SwitchRef, "this node has joined lately, and could not tell what became of a statement".to_owned())
        } else if gains && !self.epochs.shows_all() {
            ctx.probe("ldm: switchover refused for an old snapshot");
            (Kind::SwitchRef, "a snapshot is held that is older than this node's recovery".to_owned())
        } else {
            (Kind::SwitchConf, String::new())
        };
        let answer = SwitchAnswer { generation: req.generation, number: req.number, reason };
        ctx.send(from, kind, |b| encode(&answer, b));
    }

    /// Rule 7: TCs have seen to it that nothing is open on a chain that the same nodes form in another order.
    fn check_turned(&self, old: &View) {
        let turned = |p: PartitionId| {
            let (before, now) = (old.chain(p).retain(|n| self.view.is_alive(n)), self.view.chain(p));
            let is_same = !before.is_empty() && before.nodes().eq(now.nodes().take(before.len()));
            (!is_same && before.nodes().all(|n| now.contains(n)) && self.view.instance(p) == self.me.instance)
                .then_some(before)
        };
        for chain in (0..old.partition_count()).map(PartitionId).filter_map(turned) {
            let shares = |other: Chain| chain.nodes().any(|n| other.contains(n));
            for (_, trans) in self.transactions.iter() {
                let open = trans.parts.iter().find(|p| !p.committed && !p.aborted && shares(p.chain));
                assert!(open.is_none(), "chain {chain:?} is turned while transaction {} has {open:?}", trans.id);
            }
        }
    }

    /// Makes the fragments that the chains now give to this node, and gives up others.
    fn fit_fragments(&mut self, ctx: &mut Context<'_>) {
        let (view, me, memory) = (&self.view, self.me, &self.memory);
        let mine = |p: PartitionId| view.instance(p) == me.instance && view.chain(p).contains(me.node);
        for table in self.tables.iter_mut() {
            let before = self.given_up.len();
            self.given_up.extend(table.take_fragments(mine));
            if let Some(redo) = self.redo.as_mut().filter(|_| self.given_up.len() > before) {
                redo.fragment_gone(ctx);
            }
            for p in (0..view.partition_count()).map(PartitionId).filter(|&p| mine(p)) {
                if table.make_fragment(p, memory, self.secret).is_err() {
                    break; // made again, or refused, with the first row
                }
            }
        }
        if !self.given_up.is_empty() {
            self.continue_soon(ctx);
        }
    }

    pub(super) fn on_continue_view(&mut self, ctx: &mut Context<'_>) {
        self.succeeding = false;
        self.continue_succession(ctx);
    }

    /// The next slice.
    fn continue_succession(&mut self, ctx: &mut Context<'_>) {
        let Some(mut rest) = self.succession.take() else { return };
        let most = self.slices.rows as usize;
        let mut steps = 0;
        let lost = rest.lost;
        for at in rest.places.by_ref().take(LOOKED_MAX as usize) {
            steps += self.succeed(at, lost, ctx);
            if steps >= most {
                break;
            }
        }
        ctx.spend(steps, STEP_NS_MAX);
        if rest.places.start >= rest.places.end {
            return self.report_end(ctx);
        }
        self.succession = Some(rest);
        if !std::mem::replace(&mut self.succeeding, true) {
            ctx.probe("ldm: a view goes on in the next slice");
            ctx.send_delayed(self.slices.pause_ns, Kind::LdmContinueOrd, |out| out.push(CONTINUE_VIEW));
        }
    }

    /// What the view means for one transaction. Returns what it took.
    fn succeed(&mut self, at: u32, lost: bool, ctx: &mut Context<'_>) -> usize {
        if !self.transactions.is_used(at) {
            return 0;
        }
        if !self.is_orphan(at) {
            return if lost { self.advance_one_pass(at, ctx) } else { 0 };
        }
        let waits = self.transactions.get(at).waits.clone();
        for &slot in &waits {
            ctx.probe("ldm: wait of a dead coordinator's transaction dropped");
            self.cancel_wait(slot, None, ctx);
        }
        let left = &self.transactions.get(at).waits;
        assert!(left.is_empty(), "an orphan waits after its waits were ended: {left:?}");
        self.report_orphan(at, ctx) + waits.len() * WAIT_STEPS
    }

    pub(super) fn is_orphan(&self, at: u32) -> bool {
        let trans = self.transactions.get(at);
        !self.coordinator_valid(trans.tc, trans.generation)
    }

    /// A coordinator that is a member has this transaction, and it is not this one: what this one names is not here.
    pub(super) fn is_of_another(&self, at: u32, tc: BlockRef) -> bool {
        self.transactions.get(at).tc != tc && !self.is_orphan(at)
    }

    /// A one-pass batch waits for its commit to come back from a node that is gone now: send it to the next living one, or, as the
    /// last living replica, commit it. Orphans are left to the take-over.
    fn advance_one_pass(&mut self, at: u32, ctx: &mut Context<'_>) -> usize {
        let is_stuck = |p: &&Part| p.one_pass && !p.committed && self.successor_died(p.chain);
        let Some(part) = self.transactions.get(at).parts.iter().find(is_stuck) else { return 0 };
        let (chain, steps) = (part.chain, 1 + part.rows as usize);
        match self.next_in(chain) {
            Some(next) => {
                ctx.probe("ldm: one-pass batch goes on to the next node");
                self.resend_one_pass(at, chain, next, ctx);
            }
            None if chain.primary() == Some(self.me.node) => {
                ctx.probe("ldm: one-pass batch ends at its last replica");
                self.finish_one_pass(at, chain, ctx);
            }
            None => {
                ctx.probe("ldm: one-pass batch turns back at a new end of its chain");
                let trans = self.transactions.get(at);
                let (id, tc) = (trans.id, trans.tc);
                let Some(epoch) = self.transactions.part_mut(at, chain).map(|p| p.epoch) else { return 0 };
                self.commit_part(at, chain, epoch, ctx);
                if let Some(previous) = self.previous_in(chain) {
                    let end = self.end_signal(id, chain, tc, epoch);
                    ctx.send(self.peer(previous), Kind::LdmCommitOrd, |out| end.encode(out));
                }
            }
        }
        steps
    }

    /// Whether the node right after this one in the chain is not a member any more.
    fn successor_died(&self, chain: Chain) -> bool {
        let own = chain.position(self.me.node);
        own.and_then(|p| chain.node(p + 1)).is_some_and(|n| !self.view.is_alive(n))
    }

    fn resend_one_pass(&mut self, at: u32, chain: Chain, next: NodeId, ctx: &mut Context<'_>) {
        let mut rows = std::mem::take(&mut self.scratch.rows);
        rows.clear();
        let mut count = 0;
        let head = self.transactions.get(at).part(chain).map_or(NONE, |part| part.head);
        for entry in self.transactions.entries_from(head).filter(|entry| entry.write) {
            let Some(table) = self.tables.get(entry.table) else { continue };
            let Some(fragment) = table.fragment(entry.partition) else { continue };
            let row = PreparedRow {
                partition: entry.partition,
                table: entry.table,
                schema_version: table.schema.version,
                row: entry.row.0,
                key: &fragment.key(entry.row),
                image: fragment.newest(entry.row),
            };
            row.encode(&mut rows);
            count += 1;
        }
        let trans = self.transactions.get(at);
        let (id, tc) = (trans.id, trans.tc);
        if let Some(part) = self.transactions.part_mut(at, chain) {
            let req = LdmPrepareReq {
                generation: self.view.generation,
                trans: id,
                batch: part.batch,
                tc,
                chain,
                flags: ONE_PASS,
                savepoint: 0,
                epoch: part.epoch,
                count,
                rows: &rows,
            };
            ctx.send(self.peer(next), Kind::LdmPrepareReq, |out| req.encode(out));
        }
        self.scratch.rows = rows;
    }

    /// Tells the taker what this instance holds of a transaction whose coordinator is gone.
    fn report_orphan(&mut self, at: u32, ctx: &mut Context<'_>) -> usize {
        let generation = self.view.generation;
        let trans = self.transactions.get(at);
        let Some(taker) = taker(&self.view, trans.id) else { return 0 };
        for part in &trans.parts {
            if part.committed {
                ctx.probe("ldm: orphan reported as committed");
            }
            let rep = TakeOverTransRep {
                generation,
                trans: trans.id,
                chain: part.chain,
                instance: self.me.instance,
                committed: part.committed,
                epoch: part.epoch,
            };
            ctx.send(taker, Kind::TakeOverTransRep, |out| rep.encode(out));
        }
        trans.parts.len()
    }

    /// Nothing more is reported in this view.
    fn report_end(&self, ctx: &mut Context<'_>) {
        if ctx.fault("ldm.lose_end") {
            return;
        }
        let end = TakeOverEndRep { generation: self.view.generation };
        for node in living_in_order(&self.view) {
            for instance in 0..self.view.instances as u8 {
                ctx.send(BlockRef::new(node, BlockId::Tc, instance), Kind::TakeOverEndRep, |out| end.encode(out));
            }
        }
    }
}
