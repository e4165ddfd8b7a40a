//! The SQL nodes of a cluster for each other: the connections of all of them in one list, and KILL of any.
//!
//! SQL nodes have no links with each other; what they tell each other are rows, as with accounts, locks and copies. Each has a row with its number ([`rows`]), which stands in the ids of its connections. What is asked of all
//! stands in one row beside the accounts ([`super::account_store`]), which every SQL node reads five times a second anyhow: so nobody pays for this as long as nobody asks.
//!
//! Who wants the list raises the number in that row. Each SQL node that finds another number than it has answered writes its connections and the number into its rows, once for all who have asked by then. Who has asked looks
//! until all have answered, for [`ANSWER_MAX`] at most; he names those that have not. Who wants a connection to be ended writes that into the same row; its SQL node does it, and writes what has become of it.
//!
//! A SQL node that leaves takes its row out. One that has not answered a question for [`DEAD`] is dead: who has asked takes its row out, if it is still as it was. If it was stopped and goes on, it finds the question,
//! and no row: it writes it again, under another number if somebody has its own by then, and ends the connections with ids of that one. Numbers are given round in a circle, so that this takes some hundred starts of SQL nodes.
//! After its start a SQL node asks once, so that rows of the dead do not pile up.
//!
//! Where others cannot be asked, the list has the connections of one's own SQL node, and says so. Limits: [`limits::SERVERS_MAX`] SQL nodes, [`message::ANSWER_BYTES_MAX`] of a list, [`message::KILLS_MAX`].

mod ask;
mod message;
pub(super) mod question;
mod rows;

use std::{
    collections::BTreeMap,
    convert::Infallible,
    rc::{Rc, Weak},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use prost::Message as _;
use tokio::sync::{
    Notify,
    oneshot::{self, error::TryRecvError},
};

use self::{
    message::{KILLS_MAX, Outcomes},
    rows::{NAME_BYTES_MAX, Written},
};
use super::{
    engine::{Alive, SqlEngine},
    user_lock,
};
use crate::{
    errors::{self, Result},
    server::{Process, Registry, limits},
};
pub use ask::{Heard, hear_all};
pub use message::{Answer, Asked, Kill, Outcome};
pub use rows::{Node, Tables};

/// Longest that answers are waited for.
pub const ANSWER_MAX: Duration = Duration::from_secs(1);
/// A SQL node that has not answered for so long is dead.
pub const DEAD: Duration = Duration::from_secs(10);
/// What was told of connections is taken back so long after.
const KEPT: Duration = Duration::from_secs(10);
/// Between two attempts where the cluster does not answer.
const RETRY: Duration = Duration::from_millis(500);
/// Between two looks at what another thread does.
const PAUSE: Duration = Duration::from_millis(50);
/// Longest that a SQL node waits for its number before it serves connections without one.
const REGISTER_MAX: Duration = Duration::from_secs(3);
/// Longest that a SQL node that ends waits for its row to go.
const LEAVE_MAX: Duration = Duration::from_millis(500);

/// What a SQL node knows of the others, and they of it; shared by its threads.
#[derive(Default)]
pub struct Peers {
    state: Mutex<State>,
    changed: Notify,
    /// One thread at a time has the node registered.
    registers: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    registry: Option<Arc<Registry>>,
    /// As its row has it; `None`: it has none.
    me: Option<Node>,
    /// What is asked, as it was read.
    read: Vec<u8>,
    asked: Asked,
    /// A thread answers.
    is_busy: bool,
    /// What has become of kills, by their numbers, and when they were asked for last: none is done twice.
    killed: BTreeMap<u64, (Outcome, Instant)>,
    /// When connections were told of that the row still has.
    told: Option<Instant>,
    /// SQL nodes that have not answered, by number and owner, and when they are dead if they still have not.
    silent: BTreeMap<(u32, u64), (Node, Instant)>,
}

/// What is to be written.
struct Duty {
    node: Node,
    answer: Option<Answer>,
    is_list: bool,
}

impl Peers {
    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The number of this SQL node; 0: none.
    pub fn number(&self) -> u32 {
        self.with(|state| state.me.as_ref().map_or(0, |me| me.number))
    }

    /// What the row says in which others ask.
    pub fn note_asked(&self, row: &[u8]) {
        let is_new = self.with(|state| {
            let is_new = state.read != row;
            if is_new {
                row.clone_into(&mut state.read);
                // Of a later build: what can be understood of it is nothing.
                state.asked = Asked::decode(row).unwrap_or_default();
            }
            is_new
        });
        if is_new {
            self.changed.notify_waiters();
        }
    }

    fn duty(&self) -> Option<Duty> {
        self.with(|state| {
            let (me, registry) = (state.me.as_ref()?, state.registry.clone()?);
            if state.is_busy {
                return None;
            }
            let (now, mut outcomes) = (Instant::now(), Outcomes::default());
            let is_mine = |kill: &&Kill| kill.id / limits::IDS_PER_SERVER == me.number;
            for kill in state.asked.kills.iter().filter(is_mine).take(KILLS_MAX) {
                let done = state.killed.entry(kill.number).or_insert_with(|| (carry_out(&registry, kill), now));
                done.1 = now;
                outcomes.add(kill.number, done.0);
            }
            state.killed.retain(|_, (_, asked)| now.duration_since(*asked) < KEPT);
            let is_untold = outcomes.numbers.iter().any(|number| me.outcomes.find(*number).is_none());
            let is_list = state.asked.lists != me.answered;
            let is_over = state.told.is_some_and(|told| told.elapsed() >= KEPT);
            if !is_list && !is_over && !is_untold {
                return None;
            }
            state.is_busy = true;
            let answered = state.asked.lists;
            let node = Node { answered, outcomes, ..me.clone() };
            let list = || {
                let mut processes: Vec<_> = registry.list().into_iter().map(Process::of).collect();
                if !state.asked.wants_attributes(me.answered) {
                    processes.iter_mut().for_each(|process| process.attributes.clear());
                }
                Answer::fitting(processes)
            };
            let answer = if is_list { Some(list()) } else { is_over.then(Answer::default) };
            Some(Duty { node, answer, is_list })
        })
    }

    /// What has become of a duty; `node`: as whom it was done.
    fn done(&self, duty: &Duty, node: Option<Node>) {
        let is_done = self.with(|state| {
            state.is_busy = false;
            if node.is_some() && duty.answer.is_some() {
                state.told = duty.is_list.then(Instant::now);
            }
            let is_done = node.is_some();
            state.me = node.or_else(|| state.me.take());
            is_done
        });
        if is_done {
            // There may be more by now.
            self.changed.notify_waiters();
        }
    }

    /// These have not answered: the first thread looks at them again.
    fn note_silent(&self, nodes: &[Node]) {
        let dead = Instant::now() + DEAD;
        self.with(|state| {
            for node in nodes {
                state.silent.entry((node.number, node.owner)).or_insert_with(|| (node.clone(), dead));
            }
        });
        if !nodes.is_empty() {
            self.changed.notify_waiters();
        }
    }

    /// As they were when they did not answer.
    fn dead(&self) -> Vec<Node> {
        let is_due = |(_, at): &(Node, Instant)| *at <= Instant::now();
        self.with(|state| state.silent.extract_if(.., |_, silent| is_due(silent)).map(|(_, (node, _))| node).collect())
    }

    /// How long nothing is to be done if nothing is asked.
    fn rest(&self, is_first: bool) -> Duration {
        self.with(|state| {
            let forgets = state.told.map(|told| told + KEPT);
            let buries = state.silent.values().map(|(_, at)| *at).filter(|_| is_first);
            let next = forgets.into_iter().chain(buries).min();
            next.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()).max(PAUSE))
        })
    }

    /// The node has another number.
    fn is_now(&self, node: Node) {
        self.with(|state| {
            let Some(registry) = &state.registry else { return };
            registry.set_number(node.number);
            let before = state.me.replace(node.clone()).map_or(node.number, |before| before.number);
            if before != node.number {
                let first = before * limits::IDS_PER_SERVER;
                registry.kill_within(first..=first + (limits::IDS_PER_SERVER - 1));
            }
        });
    }
}

/// Ends a connection of this SQL node, or its statement.
pub fn carry_out(registry: &Registry, kill: &Kill) -> Outcome {
    match registry.user_of(kill.id) {
        None => return Outcome::Unknown,
        Some(user) if user != kill.user && !kill.any => return Outcome::NotOwner,
        Some(_) => {}
    }
    let is_there = if kill.query { registry.kill_query(kill.id) } else { registry.kill(kill.id) };
    if is_there { Outcome::Done } else { Outcome::Unknown }
}

/// As others are told of it.
fn name_of(registry: &Registry) -> String {
    let Some(address) = registry.address() else { return String::new() };
    let host = if address.ip().is_unspecified() {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        host.trim().to_owned()
    } else {
        address.ip().to_string()
    };
    let mut name = format!("{host}:{}", address.port());
    name.truncate(name.floor_char_boundary(NAME_BYTES_MAX));
    name
}

impl SqlEngine {
    /// Takes part from now on, until the value that is returned is dropped. The first thread of a SQL node has it registered before. Within a `LocalSet`.
    pub(crate) async fn join_peers(self: &Rc<Self>, registry: &Arc<Registry>, worker: usize) -> Option<Alive> {
        let peers = self.store.as_ref()?.peers.clone();
        let is_first = worker == 0;
        if is_first {
            peers.with(|state| state.registry = Some(registry.clone()));
            let registered = tokio::time::timeout(REGISTER_MAX, self.register(&peers)).await;
            if !matches!(registered, Ok(Ok(()))) {
                let why = registered
                    .map_or("no answer".to_owned(), |done| done.map_or_else(|e| e.message, |()| String::new()));
                eprintln!(
                    "apus sql: other SQL nodes do not see the connections of this one for now, since it could not be registered: {why}"
                );
            }
        }
        let (alive, ended) = oneshot::channel();
        tokio::task::spawn_local(keep_answering(Rc::downgrade(self), peers.clone(), is_first, ended));
        if is_first {
            let engine = self.clone();
            // Beside that: who is asked by others meanwhile answers.
            tokio::task::spawn_local(async move { peers.note_silent(&engine.hear_others(false).await.silent) });
        }
        Some(alive)
    }

    /// The SQL node ends.
    pub(crate) async fn leave_peers(&self) {
        let Some(store) = &self.store else { return };
        let Some(me) = store.peers.with(|state| state.me.take()) else { return };
        let leaves = async {
            let tables = self.peer_tables().await?;
            tables.remove(&self.client, &me).await.map_err(|e| errors::from_client(&e))
        };
        // Otherwise others find that it is dead.
        let _ = tokio::time::timeout(LEAVE_MAX, leaves).await;
    }

    /// The tables, made when they are first needed.
    async fn peer_tables(&self) -> Result<Tables> {
        let find = |catalog: &crate::catalog::Catalog| {
            Tables::of(|database, name| catalog.find(database, name).map(|table| table.schema.clone()))
        };
        self.system_tables(find, Tables::definitions()).await
    }

    /// Takes a number for this SQL node, if it has none.
    async fn register(&self, peers: &Peers) -> Result<()> {
        let _turn = peers.registers.lock().await;
        match peers.with(|state| state.me.is_none()) {
            true => self.register_anew(peers).await,
            false => Ok(()),
        }
    }

    /// Takes another number for this SQL node.
    async fn register_anew(&self, peers: &Peers) -> Result<()> {
        let (Some(store), Some(registry)) = (&self.store, peers.with(|state| state.registry.clone())) else {
            return Ok(());
        };
        let tables = self.peer_tables().await?;
        let owner = by_chance()?;
        for _ in 0..limits::SERVERS_MAX {
            let asked = store.ask(|asked| asked.last_number = asked.last_number % limits::SERVERS_MAX + 1).await?;
            let outcomes = Default::default();
            let (number, answered, name) = (asked.last_number, asked.lists, name_of(&registry));
            let node = Node { number, owner, answered, name, outcomes };
            if tables.register(&self.client, &node).await.map_err(|e| errors::from_client(&e))? {
                peers.is_now(node);
                return Ok(());
            }
        }
        Err(errors::not_supported(&format!("more than {} SQL nodes", limits::SERVERS_MAX)))
    }

    /// Answers what is asked. False: it has failed.
    async fn answer_peers(&self, peers: &Peers) -> bool {
        let Some(duty) = peers.duty() else { return true };
        let done = self.tell_peers(peers, &duty).await;
        let is_done = done.is_ok();
        peers.done(&duty, done.ok());
        is_done
    }

    async fn tell_peers(&self, peers: &Peers, duty: &Duty) -> Result<Node> {
        let (failed, tables) = (|e| errors::from_client(&e), self.peer_tables().await?);
        let mut node = duty.node.clone();
        loop {
            let is_lost = match tables.tell(&self.client, &node, duty.answer.as_ref()).await.map_err(failed)? {
                Written::Yes => return Ok(node),
                Written::Gone => !tables.register(&self.client, &node).await.map_err(failed)?,
                Written::Other => true,
            };
            if is_lost {
                self.register_anew(peers).await?;
                let Some(me) = peers.with(|state| state.me.clone()) else { return Err(errors::internal("no number")) };
                node = Node { number: me.number, owner: me.owner, ..node };
            }
        }
    }

    /// Takes the rows of SQL nodes out that have been silent for long. What fails is done by who asks next.
    async fn remove_dead(&self, peers: &Peers) {
        for node in peers.dead() {
            if let Ok(tables) = self.peer_tables().await {
                let _ = tables.remove(&self.client, &node).await;
            }
        }
    }
}

fn by_chance() -> Result<u64> {
    let mut random = [0u8; 8];
    getrandom::fill(&mut random).map_err(|_| errors::internal("no entropy"))?;
    Ok(u64::from_le_bytes(random))
}

async fn keep_answering(
    engine: Weak<SqlEngine>,
    peers: Arc<Peers>,
    is_first: bool,
    mut ended: oneshot::Receiver<Infallible>,
) {
    while matches!(ended.try_recv(), Err(TryRecvError::Empty)) {
        // Before it is looked what there is: nothing that comes later is missed.
        let changed = peers.changed.notified();
        let mut is_done = true;
        {
            let Some(engine) = engine.upgrade() else { return };
            if is_first && peers.number() == 0 {
                is_done = engine.register(&peers).await.is_ok();
            }
            if is_first {
                engine.remove_dead(&peers).await;
            }
            is_done &= engine.answer_peers(&peers).await;
        }
        let rest = if is_done { peers.rest(is_first) } else { RETRY };
        let end = async { _ = (&mut ended).await };
        let _ = tokio::time::timeout(rest, user_lock::first(changed, end)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registered(number: u32) -> (Peers, Arc<Registry>) {
        let (peers, registry) = (Peers::default(), Arc::new(Registry::new(1, 10, 10)));
        peers.with(|state| state.registry = Some(registry.clone()));
        peers.is_now(node(number, 1));
        (peers, registry)
    }
    fn node(number: u32, owner: u64) -> Node {
        Node { number, owner, answered: 0, name: String::new(), outcomes: Default::default() }
    }
    fn asks(peers: &Peers, asked: &Asked) {
        peers.note_asked(&asked.encode_to_vec());
    }

    #[test]
    fn a_question_is_answered_once_for_all_who_have_asked() {
        let (peers, registry) = registered(2);
        assert!(peers.duty().is_none(), "nobody has asked");
        let slot = registry.admit("localhost".into()).unwrap();
        registry.set_user(slot.id, "anna", &[("program_name".into(), "x".into())]);
        let mut asked = Asked::default();
        asked.ask(false);
        asked.ask(false);
        asks(&peers, &asked);
        let duty = peers.duty().expect("a duty");
        assert!(peers.duty().is_none(), "another thread is at it");
        let told = duty.answer.as_ref().unwrap();
        assert_eq!((duty.node.answered, told.processes[0].id, told.processes[0].attributes.len()), (2, slot.id, 0));
        peers.done(&duty, None);
        let again = peers.duty().expect("what has failed is done again");
        peers.done(&again, Some(again.node.clone()));
        assert!(peers.duty().is_none());
        asked.ask(true);
        asks(&peers, &asked);
        let duty = peers.duty().unwrap();
        assert_eq!(duty.answer.as_ref().unwrap().processes[0].attributes[0].value, "x");
        peers.done(&duty, Some(duty.node.clone()));
        asks(&peers, &Asked { lists: 1, ..Asked::default() });
        assert!(peers.duty().is_some(), "a cluster that was started from its disks may count from before");
    }

    #[test]
    fn what_was_told_is_taken_back() {
        let (peers, _) = registered(1);
        asks(&peers, &Asked { lists: 1, ..Asked::default() });
        let duty = peers.duty().unwrap();
        peers.done(&duty, Some(duty.node.clone()));
        peers.with(|state| state.told = Instant::now().checked_sub(KEPT));
        let duty = peers.duty().expect("it is time");
        assert!(duty.answer.as_ref().unwrap().processes.is_empty() && duty.node.answered == 1);
        peers.done(&duty, Some(duty.node.clone()));
        assert!(peers.duty().is_none() && peers.rest(true) == Duration::MAX);
    }

    #[test]
    fn connections_are_ended_once_by_whom_it_is_due() {
        let (peers, registry) = registered(3);
        let slot = registry.admit("localhost".into()).unwrap();
        registry.set_user(slot.id, "anna", &[]);
        let kill = |number, id, user: &str, any| Kill { number, id, query: true, user: user.into(), any };
        let there = slot.id + 1;
        let kills = vec![
            kill(1, slot.id, "bob", false),
            kill(2, there, "bob", true),
            kill(3, slot.id, "bob", true),
            kill(4, slot.id, "anna", false),
            kill(5, 7, "anna", true),
        ];
        asks(&peers, &Asked { kills: kills.clone(), ..Asked::default() });
        let duty = peers.duty().expect("a duty");
        let outcomes: Vec<_> = (1..=5).map(|number| duty.node.outcomes.find(number)).collect();
        let (done, unknown, refused) = (Some(Outcome::Done), Some(Outcome::Unknown), Some(Outcome::NotOwner));
        assert_eq!(outcomes, [refused, unknown, done, done, None], "the last one is another SQL node's");
        assert!(slot.interrupt.is_asked() && duty.answer.is_none());
        peers.done(&duty, Some(duty.node.clone()));
        slot.interrupt.reset();
        asks(&peers, &Asked { kills, lists: 1, ..Asked::default() });
        assert!(peers.duty().is_some_and(|duty| duty.is_list) && !slot.interrupt.is_asked(), "not a second time");
    }

    #[test]
    fn another_number_ends_the_connections_of_the_old_one() {
        let (peers, registry) = registered(3);
        let slot = registry.admit("localhost".into()).unwrap();
        peers.is_now(node(3, 1));
        assert!(!slot.interrupt.is_ending(), "its own again");
        peers.is_now(node(4, 1));
        assert!(slot.interrupt.is_ending());
        assert_eq!(registry.admit("localhost".into()).unwrap().id / limits::IDS_PER_SERVER, 4);
    }

    #[test]
    fn who_is_silent_is_dead_after_a_while() {
        let (peers, _) = registered(1);
        peers.note_silent(&[node(2, 7)]);
        assert!(peers.dead().is_empty() && peers.rest(true) <= DEAD && peers.rest(false) == Duration::MAX);
        peers.with(|state| state.silent.values_mut().for_each(|(_, at)| *at = Instant::now()));
        peers.note_silent(&[Node { answered: 9, ..node(2, 7) }]);
        assert_eq!(peers.dead(), [node(2, 7)], "as it was when it was silent first");
        assert!(peers.dead().is_empty());
    }
}
