//! A new view: chains shrink or grow, dead coordinators' transactions are handed to their takers, one-pass batches whose
//! successor died go on from here.

use apus_kernel::{Context, jam};
use apus_signal::{
    BlockId, BlockRef, DecodeError, Kind,
    ldm::{LdmPrepareReq, ONE_PASS, PreparedRow},
    qmgr::encode,
    switchover::{Switch, SwitchAnswer},
    takeover::{TakeOverEndRep, TakeOverTransRep},
    view::{NodeState, View},
};
use apus_types::{Chain, NodeId, PartitionId, TransId, collections::IdHasher, hash::SecretHash};

use super::{LocalDataManager, outcome::Outcomes, trans::NONE};

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
    pub(super) fn on_view_ord(&mut self, body: &[u8], ctx: &mut Context<'_>) -> Result<(), DecodeError> {
        let view = View::from_bytes(body)?;
        jam!(ctx);
        if view.generation <= self.view.generation {
            return Ok(());
        }
        let old = std::mem::replace(&mut self.view, view);
        if old.generation == 0 {
            self.outcomes = Outcomes::new(ctx.random());
            self.transactions.seed(ctx.random());
            assert!(
                self.tables.iter().all(|t| t.fragments().next().is_none()),
                "rows are placed before the seed is drawn"
            );
            self.secret = SecretHash::new(ctx.random());
        }
        // Those that an operator abandoned may have committed what nobody here knows of.
        let is_resumed = old.generation > 0 && old.lineage != self.view.lineage;
        if (old.generation == 0 && self.view.generation > 1) || is_resumed {
            self.outcomes.joined(ctx.now());
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
        if old.state(self.me.node) != NodeState::Up && self.is_up() {
            self.epochs.begin(ctx.epoch());
        }
        self.has_left = false;
        self.check_turned(&old);
        self.lose_slices();
        self.fit_fragments();
        self.fit_copy_jobs(&gone, &old, ctx);
        if !gone.is_empty() || settles {
            self.drop_orphan_waits(ctx);
            self.advance_one_pass(ctx);
        }
        // In every view, because some other node may see this one and not the one in which somebody left.
        self.report_orphans(ctx);
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
    fn fit_fragments(&mut self) {
        let (view, me, memory) = (&self.view, self.me, &self.memory);
        let mine = |p: PartitionId| view.instance(p) == me.instance && view.chain(p).contains(me.node);
        for table in self.tables.iter_mut() {
            table.retain_fragments(mine);
            for p in (0..view.partition_count()).map(PartitionId).filter(|&p| mine(p)) {
                if table.make_fragment(p, memory).is_err() {
                    break; // made again, or refused, with the first row
                }
            }
        }
    }

    fn is_orphan(&self, at: u32) -> bool {
        let trans = self.transactions.get(at);
        !self.coordinator_valid(trans.tc, trans.generation)
    }

    fn drop_orphan_waits(&mut self, ctx: &mut Context<'_>) {
        let waits = self.transactions.iter().filter(|(at, t)| !t.waits.is_empty() && self.is_orphan(*at));
        for slot in waits.flat_map(|(_, t)| t.waits.clone()).collect::<Vec<u32>>() {
            ctx.probe("ldm: wait of a dead coordinator's transaction dropped");
            self.cancel_wait(slot, None, ctx);
        }
    }

    /// A one-pass batch waits for its commit to come back from a node that is gone now: send it to the next living one, or, as the
    /// last living replica, commit it. Orphans are left to the take-over.
    fn advance_one_pass(&mut self, ctx: &mut Context<'_>) {
        let stuck: Vec<(u32, Chain)> = self
            .transactions
            .iter()
            .filter(|&(at, _)| !self.is_orphan(at))
            .flat_map(|(at, t)| t.parts.iter().filter(|p| p.one_pass && !p.committed).map(move |p| (at, p.chain)))
            .filter(|&(_, chain)| self.successor_died(chain))
            .collect();
        for (at, chain) in stuck {
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
                    let Some(epoch) = self.transactions.part_mut(at, chain).map(|p| p.epoch) else { continue };
                    self.commit_part(at, chain, epoch, ctx);
                    if let Some(previous) = self.previous_in(chain) {
                        let end = self.end_signal(id, chain, tc, epoch);
                        ctx.send(self.peer(previous), Kind::LdmCommitOrd, |out| end.encode(out));
                    }
                }
            }
        }
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
                key: fragment.key(entry.row),
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

    /// Tells the takers what this instance holds of transactions whose coordinator is gone.
    fn report_orphans(&mut self, ctx: &mut Context<'_>) {
        let generation = self.view.generation;
        for (at, trans) in self.transactions.iter() {
            if !self.is_orphan(at) {
                continue;
            }
            let Some(taker) = taker(&self.view, trans.id) else { continue };
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
        }
        for node in living_in_order(&self.view) {
            for instance in 0..self.view.instances as u8 {
                let tc = BlockRef::new(node, BlockId::Tc, instance);
                ctx.send(tc, Kind::TakeOverEndRep, |out| TakeOverEndRep { generation }.encode(out));
            }
        }
    }
}
