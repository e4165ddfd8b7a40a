//! What a data node keeps in its file: the view that it executes, and what it promised and accepted of the next one.
//!
//! The agreement on views is Paxos, and a member is one of its acceptors. Its state dies with the process, and then the others cannot know
//! whether it had a part in a view without them. So it writes the state down before it tells anybody of it: `ViewPrepConf` and
//! `PresTakeOverConf` wait for the file. The write is not synced. What the system has taken outlives the process; a machine that starts anew
//! may have lost it, or have an older state in its place. So the file names the *boot* of its machine, and after another boot it proves
//! nothing. The next process of the node reads it and speaks for the dead one (`testify`).
//!
//! **Synced before told** is, where nodes have disks, what a later start from them has to know of ([`Membership::sync`]): what a frozen member, or one that
//! speaks for the dead, accepts, and a view that promotes a node. Whoever is promoted may go on without all those that were full before, and nobody else would
//! know of it. Where a disk takes nothing for [`PATIENCE_NS`] a member goes on without.
//!
//! A committed view is written without being waited for: who reads an accepted view cannot tell whether it was committed, and takes it for
//! committed. Who committed it first has accepted it.
//!
//! **The view of a founding** is in no file before it is committed, for the starting nodes of a cluster that was not founded are to try again.
//! So a member that has founded one serves nobody, and reports to nobody that it is a member, before its file says so: a cluster
//! that has acknowledged anything is remembered by its nodes, and never founded a second time.
//!
//! **A disk that takes nothing.** If the file cannot be written, it is removed, for an old one would be a lie; then it proves nothing,
//! and the node goes on. If that fails too, or takes long, the node can agree to no view. After [`PATIENCE_NS`] it ends, if the others can go on
//! without it, before they need it for one; otherwise it tries again. Half of that before it says so in its heartbeats, as a node with a stuck
//! worker does: of two nodes with one broken disk one stays.
//!
//! Limits: one file, one answer per node that waits for it.

use std::collections::BTreeMap;

use apus_kernel::{Context, jam};
use apus_signal::{
    BlockRef, Kind,
    file::{FileDone, seal, unseal},
    gcp::Keep,
    restart::Promotion,
    view::{NodeState, View},
};
use apus_types::NodeId;
use prost::Message;

use super::{MS, Membership, Phase, RETRY_NS, accepted, freeze::full};

/// The file's name.
pub const FILE: &str = "view";
/// The same, as it was synced last: a file that is replaced without a sync may be lost with what it had before.
pub const SYNCED_FILE: &str = "view-synced";
/// Numbers of writes of it.
const SYNCED_TOKEN: u64 = 1 << 63;
const MAGIC: [u8; 8] = *b"APUSVIW1";
/// A node whose disk takes nothing ends after this.
const PATIENCE_NS: u64 = 2_000 * MS;

/// What the file says: the state of one process as an acceptor.
#[derive(Clone, PartialEq, Message)]
pub struct Acceptor {
    #[prost(uint32, tag = "1")]
    pub node: u32,
    /// Of the process.
    #[prost(fixed64, tag = "2")]
    pub incarnation: u64,
    /// Of its machine, see [`Kept::boot`].
    #[prost(string, tag = "3")]
    pub boot: String,
    #[prost(message, optional, tag = "4")]
    pub committed: Option<View>,
    /// Highest ballot promised for the generation after it.
    #[prost(uint64, tag = "5")]
    pub promised: u64,
    /// Accepted for that generation, with its ballot.
    #[prost(message, optional, tag = "6")]
    pub prepared: Option<View>,
    #[prost(uint64, tag = "7")]
    pub prepared_ballot: u64,
    /// Of this process, in the view that is committed or before.
    #[prost(message, optional, tag = "8")]
    pub promotion: Option<Promotion>,
    /// The first view of those that outlived all others: what is on this disk gives way to it (`outlive`).
    #[prost(message, optional, tag = "9")]
    pub gives_way: Option<View>,
}

/// What a process is told at its start of what its node keeps.
#[derive(Clone, PartialEq, Debug)]
pub struct Kept {
    /// Names the time since the machine was started.
    pub boot: String,
    /// What was found.
    pub found: Option<Acceptor>,
    /// Something was found that is not as it was written.
    pub is_damaged: bool,
    /// So is the synced one.
    pub is_synced_damaged: bool,
    /// The newest committed view that either file has, and what it says of its process.
    pub newest: Option<View>,
    pub promotion: Option<Promotion>,
    /// Later ones that they know to have been accepted.
    pub accepted: Vec<View>,
}

impl Kept {
    /// Reads the files, if there are any; `synced`: the content of [`SYNCED_FILE`].
    ///
    /// # Errors
    /// For people: it is another node's.
    pub fn read(content: Option<&[u8]>, synced: Option<&[u8]>, node: NodeId, boot: String) -> Result<Kept, String> {
        let has_synced = synced.is_some();
        let synced = synced.map(|content| Self::read_one(content, node)).transpose()?.flatten();
        let is_synced_damaged = has_synced && synced.is_none();
        let found = content.map(|content| Self::read_one(content, node)).transpose()?.flatten();
        let both = || [&found, &synced].into_iter().flatten();
        let newest = both().max_by_key(|a| a.committed.as_ref().map(View::point)).cloned();
        let (newest, promotion) = newest.map_or((None, None), |a| (a.committed, a.promotion));
        let is_later = |view: &&View| Some(view.point()) > newest.as_ref().map(View::point);
        let mut accepted: Vec<View> =
            both().flat_map(|a| [&a.prepared, &a.gives_way]).flatten().filter(is_later).cloned().collect();
        accepted.dedup();
        let is_damaged = content.is_some() && found.is_none();
        Ok(Kept { boot, is_damaged, is_synced_damaged, found, newest, promotion, accepted })
    }
    /// Names of the files that are not as they were written.
    pub fn damaged(&self) -> impl Iterator<Item = &'static str> {
        [(self.is_damaged, FILE), (self.is_synced_damaged, SYNCED_FILE)]
            .into_iter()
            .filter(|(is, _)| *is)
            .map(|(_, file)| file)
    }
    /// `None`: it is damaged.
    fn read_one(content: &[u8], node: NodeId) -> Result<Option<Acceptor>, String> {
        let sound = |a: &Acceptor| [&a.committed, &a.prepared, &a.gives_way].into_iter().flatten().all(View::check);
        let found = unseal(MAGIC, content).ok().and_then(|body| Acceptor::decode(body).ok()).filter(sound);
        if let Some(other) = found.as_ref().map(|a| a.node).filter(|n| *n != u32::from(node.0)) {
            return Err(format!(
                "the file `{FILE}` in the data directory is of data node {other}, not {node}: name the right one"
            ));
        }
        Ok(found)
    }
}

#[derive(Default)]
pub(super) struct Keeper {
    /// The founding that the file knows of, whatever its boot; 0: none.
    pub(super) founded: u64,
    /// Of this machine; `None`: nothing is kept.
    boot: Option<String>,
    /// How this process became a full member, if it was filled.
    promotion: Option<Promotion>,
    /// The process before this one, as long as we speak for it.
    pub(super) before: Option<Acceptor>,
    /// Was given to be written last, and the number of that.
    given: Vec<u8>,
    token: u64,
    /// Newest number of which the file is as it should be.
    written: u64,
    /// Since when it is not.
    behind_since: Option<u64>,
    /// The write that says that the cluster is founded, while the file does not.
    founding: Option<u64>,
    /// It could neither be written nor removed.
    failed: bool,
    last_try: u64,
    /// Answers that wait for the file.
    held: BTreeMap<NodeId, (u64, Kind, Vec<u8>)>,
    /// The synced file is being written.
    sync: Option<Sync>,
    /// It was asked for meanwhile, in another state, by DIH perhaps.
    next_sync: Option<Asker>,
    /// How often it was begun, and how often that came to an end, be it in vain.
    syncs: u64,
    synced: u64,
    /// The disk takes it for long, and is not waited for.
    is_overdue: bool,
    /// Answers that wait for it, with the number of its write.
    held_for_sync: BTreeMap<NodeId, (u64, Kind, Vec<u8>)>,
}

/// Whom DIH's question is answered to.
type Asker = Option<(BlockRef, Keep)>;

/// A write of the synced file.
struct Sync {
    asker: Asker,
    /// Of the state that is written ([`Keeper::token`]).
    state: u64,
    since: u64,
}

impl Keeper {
    pub(super) fn new(kept: Option<&Kept>) -> Keeper {
        let Some(kept) = kept else { return Keeper::default() };
        let before = kept.found.clone().filter(|a| a.boot == kept.boot && a.committed.is_some());
        let given = before.as_ref().map_or_else(Vec::new, |a| seal(MAGIC, &a.encode_to_vec()));
        let founded = kept.found.as_ref().and_then(|a| a.committed.as_ref()).map_or(0, |view| view.lineage);
        Keeper { founded, boot: Some(kept.boot.clone()), before, given, ..Keeper::default() }
    }
    pub(super) fn has_written(&self, token: u64) -> bool {
        token <= self.written
    }
    /// This write of the synced file is over, or takes so long that it is not waited for.
    pub(super) fn has_synced(&self, number: u64) -> bool {
        number <= self.synced || self.is_overdue || (self.sync.is_none() && self.next_sync.is_none())
    }
    /// No file says yet that the cluster is founded.
    pub(super) fn founds(&self) -> bool {
        self.founding.is_some()
    }
    /// For long, so that others go on rather without this node.
    pub(super) fn is_behind(&self, now: u64) -> bool {
        self.behind_since.is_some_and(|since| now.saturating_sub(since) > PATIENCE_NS / 2)
    }
    pub(super) fn summary(&self) -> String {
        let speaks_for = self.before.as_ref().map_or(0, |b| b.incarnation);
        format!("{} of {} written, {} wait, speaks for {speaks_for:x}", self.written, self.token, self.held.len())
    }
    fn put(&mut self, content: Vec<u8>, ctx: &mut Context<'_>) {
        self.token += 1;
        self.behind_since.get_or_insert(ctx.now());
        self.given.clone_from(&content);
        ctx.write_file(FILE, content, false, self.token);
    }
}

impl Membership {
    /// Has the file say what we are, if it does not. What is told of that to others waits for this number ([`Keeper::has_written`]).
    pub(super) fn keep(&mut self, ctx: &mut Context<'_>) -> u64 {
        let Some(boot) = &self.keeper.boot else { return 0 };
        let (accepted, promised) = (self.prepared.as_ref().map_or(0, |p| p.0), self.promised);
        assert!(accepted <= promised, "ballot {accepted:x} is accepted and {promised:x} promised");
        let own = || Acceptor {
            node: self.me.0.into(),
            incarnation: self.incarnation,
            boot: boot.clone(),
            committed: self.view.clone(),
            promised: self.promised,
            prepared: self.prepared.as_ref().map(|p| p.1.clone()),
            prepared_ballot: self.prepared.as_ref().map_or(0, |p| p.0),
            promotion: self.keeper.promotion.clone(),
            gives_way: None,
        };
        let Some(acceptor) = self.view.is_some().then(own).or_else(|| self.keeper.before.clone()) else { return 0 };
        let content = seal(MAGIC, &acceptor.encode_to_vec());
        if content != self.keeper.given {
            self.keeper.put(content, ctx);
        }
        self.keeper.token
    }

    /// The view `view` comes after `before`: whether it is the one that makes this node a full member.
    pub(super) fn note_promotion(&mut self, before: Option<&View>, view: &View) {
        let is_full = |v: &View| v.node(self.me).is_some_and(|n| n.state() == NodeState::Up);
        if !is_full(view) {
            self.keeper.promotion = None;
        } else if before.is_some_and(|b| !is_full(b)) {
            let beside = full(view).map(|n| n.id).filter(|id| *id != u32::from(self.me.0)).collect();
            self.keeper.promotion = Some(Promotion { lineage: view.lineage, incarnation: self.incarnation, beside });
        }
    }

    /// The first view of this process; where no file knows of a founding, it may be the founding.
    pub(super) fn keep_first(&mut self, ctx: &mut Context<'_>) {
        let token = self.keep(ctx);
        let is_known = self.keeper.founded != 0 || self.keeper.has_written(token);
        self.keeper.founding = (!is_known).then_some(token);
    }

    /// Tells what rests on our state as an acceptor, as soon as that is in the file.
    pub(super) fn tell_when_kept<M: Message>(&mut self, to: NodeId, kind: Kind, message: &M, ctx: &mut Context<'_>) {
        let token = self.keep(ctx);
        if self.keeper.has_written(token) {
            self.send(ctx, to, kind, message);
        } else {
            self.keeper.held.insert(to, (token, kind, message.encode_to_vec()));
        }
    }

    /// As above, as soon as it is in the synced file; if that cannot be written, nothing is told.
    pub(super) fn tell_when_synced<M: Message>(&mut self, to: NodeId, kind: Kind, message: &M, ctx: &mut Context<'_>) {
        if let Some(number) = self.sync(None, ctx) {
            self.keeper.held_for_sync.insert(to, (number, kind, message.encode_to_vec()));
        }
    }

    /// Has the synced file say what was just accepted, where a later start from this disk has to know it: the number of the write; 0: it need not.
    pub(super) fn sync_accepted(&mut self, ctx: &mut Context<'_>) -> u64 {
        let (Some(base), Some((_, next))) = (&self.view, &self.prepared) else { return 0 };
        let must_be_known = self.restart.has_disk && (self.freeze.is_frozen() || accepted::promotes(base, next));
        if must_be_known { self.sync(None, ctx).unwrap_or(0) } else { 0 }
    }

    /// This node's disk gives way to those that go on in `view` (`outlive`).
    pub(super) fn keep_giving_way(&mut self, view: View) {
        let Some(boot) = self.keeper.boot.clone() else { return };
        let of_nobody = || Acceptor {
            node: self.me.0.into(),
            boot,
            committed: self.restart.view.clone(),
            prepared: self.restart.accepted.first().cloned(),
            promotion: self.restart.promotion.clone(),
            ..Acceptor::default()
        };
        self.keeper.before.get_or_insert_with(of_nobody).gives_way = Some(view);
    }

    /// Before a global checkpoint counts in a view, that view is in a synced file: a mark in a log that names it is worth nothing without.
    pub(super) fn on_keep_req(&mut self, from: BlockRef, keep: Keep, ctx: &mut Context<'_>) {
        self.sync(Some((from, keep)), ctx);
    }

    /// Has the synced file say what we are: the number of the write that does. `None`: there is no file, or it could not be written.
    fn sync(&mut self, asker: Asker, ctx: &mut Context<'_>) -> Option<u64> {
        self.keep(ctx);
        let content = self.keeper.given.clone();
        if self.keeper.boot.is_none() || content.is_empty() {
            jam!(ctx);
            return None;
        }
        let state = self.keeper.token;
        match &mut self.keeper.sync {
            Some(sync) if sync.state == state => {
                sync.asker = asker.or(sync.asker.take()); // asked again
                return Some(self.keeper.syncs);
            }
            Some(_) => {
                ctx.probe("qmgr: a view is to be synced while another one is written");
                let asker = asker.or(self.keeper.next_sync.take().flatten());
                self.keeper.next_sync = Some(asker);
                return Some(self.keeper.syncs + 1);
            }
            None => {}
        }
        self.keeper.syncs += 1;
        ctx.write_file(SYNCED_FILE, content, true, SYNCED_TOKEN | self.keeper.syncs);
        self.keeper.sync = Some(Sync { asker, state, since: ctx.now() });
        Some(self.keeper.syncs)
    }

    /// The synced file is written, or cannot be.
    fn on_synced(&mut self, token: u64, is_written: bool, ctx: &mut Context<'_>) {
        let (number, newest) = (token & !SYNCED_TOKEN, self.keeper.syncs);
        let Some(Sync { asker, .. }) = self.keeper.sync.take_if(|_| number == newest) else { return };
        if let Some((asker, keep)) = asker.filter(|_| is_written) {
            ctx.send(asker, Kind::KeepConf, |b| keep.encode(b));
        }
        (self.keeper.synced, self.keeper.is_overdue) = (number, false);
        self.keeper.held_for_sync.retain(|to, (waits_for, kind, body)| {
            if *waits_for <= number && is_written {
                ctx.send(Self::qmgr_of(*to), *kind, |b| b.extend_from_slice(body));
            }
            *waits_for > number
        });
        if let Some(asker) = self.keeper.next_sync.take() {
            self.sync(asker, ctx);
        }
        self.pass_gates(ctx);
    }

    pub(super) fn on_kept(&mut self, done: &FileDone, ctx: &mut Context<'_>) {
        if self.disks.has_probed(done.token, ctx.now()) {
            return;
        }
        if done.token & SYNCED_TOKEN != 0 {
            return self.on_synced(done.token, true, ctx);
        }
        let keeper = &mut self.keeper;
        keeper.written = keeper.written.max(done.token);
        if keeper.written == keeper.token {
            (keeper.behind_since, keeper.failed) = (None, false);
        }
        let written = keeper.written;
        let mut ready = Vec::new();
        keeper.held.retain(|to, (token, kind, body)| {
            let waits = *token > written;
            if !waits {
                ready.push((*to, *kind, std::mem::take(body)));
            }
            waits
        });
        for (to, kind, body) in ready {
            ctx.send(Self::qmgr_of(to), kind, |b| b.extend_from_slice(&body));
        }
        self.pass_gates(ctx);
        if self.keeper.founding.take_if(|token| *token <= written).is_some() {
            self.renew_lease(ctx);
            self.register(ctx);
        }
    }

    pub(super) fn on_not_kept(&mut self, done: &FileDone, ctx: &mut Context<'_>) {
        if self.disks.has_probed(done.token, ctx.now()) {
            return;
        }
        ctx.probe("qmgr: the view cannot be written");
        if done.token & SYNCED_TOKEN != 0 {
            return self.on_synced(done.token, false, ctx);
        }
        if done.token != self.keeper.token {
            return; // a later one is under way
        }
        if self.keeper.given.is_empty() {
            jam!(ctx);
            self.keeper.failed = true;
            self.keeper.last_try = ctx.now();
        } else {
            ctx.log(format_args!(
                "{}; without that file the next process of this node cannot speak for this one",
                done.reason
            ));
            self.keeper.put(Vec::new(), ctx);
        }
    }

    pub(super) fn tick_keeper(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.now();
        if self.keeper.sync.as_ref().is_some_and(|sync| now.saturating_sub(sync.since) > PATIENCE_NS) {
            self.keeper.is_overdue = true;
            self.pass_gates(ctx);
        }
        let Some(since) = self.keeper.behind_since else { return };
        if self.keeper.failed && now.saturating_sub(self.keeper.last_try) >= RETRY_NS {
            self.keeper.failed = false;
            self.keep(ctx);
        }
        let is_long = now.saturating_sub(since) > PATIENCE_NS;
        if is_long && self.phase == Phase::Member && self.spared_by_others(now).is_ok() {
            self.phase = Phase::Stopped;
            self.renew_lease(ctx);
            ctx.stop_node("the disk does not take this node's view, and the others go on without it");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_is_of_this_node_and_this_boot_or_proves_nothing() {
        let view = View { generation: 3, instances: 1, ..View::default() };
        let acceptor =
            Acceptor { node: 2, incarnation: 7, boot: "a".to_owned(), committed: Some(view), ..Acceptor::default() };
        let content = seal(MAGIC, &acceptor.encode_to_vec());
        let read = |boot: &str| Kept::read(Some(&content), None, NodeId(2), boot.to_owned()).expect("its own");
        assert_eq!(Keeper::new(Some(&read("a"))).before.map(|b| b.incarnation), Some(7));
        assert!(Keeper::new(Some(&read("b"))).before.is_none() && read("b").found.is_some());
        for length in 0..content.len() {
            let cut =
                Kept::read(Some(&content[..length]), None, NodeId(2), "a".to_owned()).expect("whose, nobody knows");
            assert!(cut.is_damaged && cut.found.is_none(), "{length}");
        }
        let other = Kept::read(Some(&content), None, NodeId(1), "a".to_owned()).unwrap_err();
        assert!(other.contains("data node 2"), "{other}");
        assert!(!Kept::read(None, None, NodeId(2), "a".to_owned()).expect("a new directory").is_damaged);
    }
}
