//! The writers: who writes what when.
//!
//! Write number *n* is due at a fixed time, *n* periods after the start. Numbers are dealt in turn to *streams*, one for each SQL node
//! and node group; a stream has many connections, each of which takes the stream's next number, waits until that write is due,
//! makes it, and notes what became of it. A connection that waits for an answer holds up nobody: the next number is taken by the next
//! connection. Only when all of them wait do writes go out late, and then their lateness counts.
//!
//! A connection that breaks is replaced at once: by one to the same SQL node, or to the next in the list if that does not answer, as
//! drivers with a list of hosts do. Statements are never sent twice.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use apus_signal::view::View;
use apus_types::{ColumnType, PartitionId, Value, hash::hash_key, key};

use super::{
    TABLE,
    record::{Fate, Record},
    views::Removals,
};
use crate::bench::{
    cluster::DATABASE,
    mysql::{Account, CANNOT_CONNECT, Connection, Failure},
};

/// Rows of write n have ids from n times this; the first that lies in the wanted group is taken.
pub const IDS_PER_SLOT: u64 = 64;
/// MySQL's number for a commit whose outcome the cluster could not tell.
const OUTCOME_UNKNOWN: u16 = 1180;
/// Pause after no SQL node took a connection, so that a dead cluster is not flooded.
const RECONNECT_PAUSE: Duration = Duration::from_millis(1);

/// Nanoseconds of the machine's monotonic clock, the same for all processes.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// Which node group holds an id.
pub struct Placement {
    /// Partitions never leave their group, so any view will do.
    pub view: View,
    /// Group number, from 0, by partition.
    pub group_of_partition: Vec<u32>,
    pub groups: u32,
}

impl Placement {
    /// The placement under `view`, or the reason why it cannot be told.
    pub fn new(view: &View) -> Result<Placement, String> {
        let mut numbers: Vec<u32> = view.nodes.iter().map(|n| n.group).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let mut group_of_partition = Vec::new();
        for partition in 0..view.partition_count() {
            let primary = view.chain(PartitionId(partition)).primary();
            let node = view.nodes.iter().find(|n| Some(n.node()) == primary);
            let group = node.and_then(|n| numbers.iter().position(|&g| g == n.group));
            let group = group.ok_or_else(|| format!("partition {partition} has no primary"))?;
            group_of_partition.push(group as u32);
        }
        let groups = numbers.len() as u32;
        if groups == 0 || group_of_partition.is_empty() {
            return Err("the cluster has no partitions".to_owned());
        }
        Ok(Placement { view: view.clone(), group_of_partition, groups })
    }

    fn group_of(&self, id: u64) -> u32 {
        let mut encoded = Vec::new();
        let id_type = ColumnType::Int { bits: 64, unsigned: true };
        key::encode_part(id_type, false, &Value::UInt(id), &mut encoded).expect("every number fits its column");
        let partition = self.view.partition_of(hash_key(&encoded));
        self.group_of_partition.get(usize::from(partition.0)).copied().unwrap_or(0)
    }
    /// The ids of a write's rows: in `group`, and for an explicit transaction also in the group after it.
    pub fn ids(&self, slot: u64, group: u32, explicit: bool) -> Vec<u64> {
        let mut candidates = slot * IDS_PER_SLOT..(slot + 1) * IDS_PER_SLOT;
        let mut wanted = vec![group];
        wanted.extend(explicit.then_some((group + 1) % self.groups));
        wanted.iter().filter_map(|&g| candidates.find(|&id| self.group_of(id) == g)).collect()
    }
}

/// What the writers share.
pub struct Load {
    pub sql: Vec<SocketAddr>,
    /// Of root; empty for none.
    pub password: String,
    pub placement: Placement,
    pub start_ns: u64,
    pub period_ns: u64,
    /// Every so many writes of a stream one is an explicit transaction; 0 for none.
    pub explicit_every: u64,
    /// Pause between the two statements of an explicit transaction.
    pub think: Duration,
    pub deadline: Duration,
    /// Next turn of each stream.
    pub turns: Vec<AtomicU64>,
    pub stop: AtomicBool,
    /// Raised to call connections back to their own SQL nodes.
    pub home_calls: AtomicU64,
    pub records: Mutex<Vec<Record>>,
    pub removals: Removals,
}

/// What a write consists of.
pub struct Plan {
    pub slot: u64,
    pub group: u32,
    pub explicit: bool,
    pub ids: Vec<u64>,
}

impl Load {
    pub fn streams(&self) -> u64 {
        self.sql.len() as u64 * u64::from(self.placement.groups)
    }
    /// What write `slot` is; follows from the number alone, so that the audit knows it too.
    pub fn plan(&self, slot: u64) -> Plan {
        let (stream, turn) = (slot % self.streams(), slot / self.streams());
        let group = (stream % u64::from(self.placement.groups)) as u32;
        let explicit = self.explicit_every > 0 && turn % self.explicit_every == self.explicit_every - 1;
        Plan { slot, group, explicit, ids: self.placement.ids(slot, group, explicit) }
    }
    pub fn due_ns(&self, slot: u64) -> u64 {
        self.start_ns + slot * self.period_ns
    }
    pub fn records(&self) -> std::sync::MutexGuard<'_, Vec<Record>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection of a stream.
struct Writer {
    load: Arc<Load>,
    home: usize,
    at: usize,
    home_calls: u64,
    connection: Option<Connection>,
}

/// Makes writes of one stream until told to stop.
pub fn run(load: &Arc<Load>, stream: usize) {
    let home = stream / load.placement.groups as usize;
    let mut writer = Writer { load: load.clone(), home, at: home, home_calls: 0, connection: None };
    writer.connect();
    loop {
        let turn = load.turns[stream].fetch_add(1, Ordering::Relaxed);
        let slot = turn * load.streams() + stream as u64;
        let due_ns = load.due_ns(slot);
        loop {
            if load.stop.load(Ordering::Relaxed) {
                return;
            }
            match due_ns.saturating_sub(now_ns()) {
                0 => break,
                wait => thread::sleep(Duration::from_nanos(wait.min(200_000_000))),
            }
        }
        let plan = load.plan(slot);
        let Made { sent_ns, last_sent_ns, fate } = writer.write(&plan);
        let second = plan.explicit.then_some((plan.group + 1) % load.placement.groups);
        let record = Record {
            slot,
            groups: (plan.group, second),
            explicit: plan.explicit,
            due_ns,
            sent_ns,
            last_sent_ns,
            done_ns: now_ns(),
            fate,
        };
        load.records().push(record);
        if writer.connection.is_none() {
            writer.connect();
        }
    }
}

impl Writer {
    /// Connects to the SQL node at hand, or else to the next that answers.
    fn connect(&mut self) {
        let nodes = self.load.sql.len();
        let account = Account { user: "root", password: &self.load.password };
        for step in 0..nodes {
            let at = (self.at + step) % nodes;
            if let Ok(connection) = Connection::open(self.load.sql[at], account, self.load.deadline) {
                (self.at, self.connection) = (at, Some(connection));
                return;
            }
        }
        thread::sleep(RECONNECT_PAUSE);
    }

    fn go_home_if_called(&mut self) {
        let calls = self.load.home_calls.load(Ordering::Relaxed);
        if std::mem::replace(&mut self.home_calls, calls) != calls && self.at != self.home {
            (self.at, self.connection) = (self.home, None);
        }
    }

    fn write(&mut self, plan: &Plan) -> Made {
        self.go_home_if_called();
        if self.connection.as_ref().is_some_and(Connection::is_stale) {
            self.connection = None;
        }
        if self.connection.is_none() {
            self.connect();
        }
        let sent_ns = now_ns();
        let Some(connection) = &mut self.connection else {
            return Made { sent_ns, last_sent_ns: sent_ns, fate: Fate::Failed(CANNOT_CONNECT) };
        };
        let mut last_sent_ns = sent_ns;
        let done = if plan.explicit {
            explicit(connection, plan, self.load.think, &mut last_sent_ns)
        } else {
            autocommit(connection, plan)
        };
        let fate = match done {
            Ok(()) => Fate::Acknowledged,
            Err((failure, may_be_done)) => {
                if matches!(failure, Failure::Lost(_)) {
                    self.connection = None;
                }
                if may_be_done { Fate::Unknown(failure.errno()) } else { Fate::Failed(failure.errno()) }
            }
        };
        Made { sent_ns, last_sent_ns, fate }
    }
}

/// How a write went.
struct Made {
    sent_ns: u64,
    last_sent_ns: u64,
    fate: Fate,
}

fn insert(id: u64, slot: u64) -> String {
    format!("INSERT INTO {DATABASE}.{TABLE} (id, slot) VALUES ({id}, {slot})")
}

/// The failure of a commit, and whether it may have been done nevertheless.
fn of_commit(failure: Failure) -> (Failure, bool) {
    let may_be_done = matches!(failure, Failure::Lost(_)) || failure.errno() == OUTCOME_UNKNOWN;
    (failure, may_be_done)
}

fn autocommit(connection: &mut Connection, plan: &Plan) -> Result<(), (Failure, bool)> {
    plan.ids.iter().try_for_each(|&id| connection.execute(&insert(id, plan.slot)).map(drop).map_err(of_commit))
}

/// Notes in `last_sent_ns` when the statement was sent whose answer decided.
fn explicit(
    connection: &mut Connection,
    plan: &Plan,
    think: Duration,
    last_sent_ns: &mut u64,
) -> Result<(), (Failure, bool)> {
    let mut say = |connection: &mut Connection, statement: &str| {
        *last_sent_ns = now_ns();
        connection.execute(statement).map(drop)
    };
    let mut body = say(connection, "BEGIN");
    for (number, &id) in plan.ids.iter().enumerate() {
        if number > 0 && body.is_ok() {
            thread::sleep(think); // the client thinks
        }
        body = body.and_then(|()| say(connection, &insert(id, plan.slot)));
    }
    match body {
        Ok(()) => say(connection, "COMMIT").map_err(of_commit),
        Err(failure) => {
            if matches!(failure, Failure::Refused { .. }) {
                // A connection that cannot even roll back is closed, which rolls back too.
                connection.execute("ROLLBACK").map_err(|lost| (lost, false))?;
            }
            Err((failure, false))
        }
    }
}

#[cfg(test)]
mod tests {
    use apus_signal::view::ViewNode;
    use apus_types::{Chain, NodeId};

    use super::*;

    fn load(groups: u32) -> Load {
        let nodes: Vec<ViewNode> =
            (0..groups).map(|g| ViewNode { id: g + 1, group: g * 7, ..ViewNode::default() }).collect();
        let chains = (0..12).map(|p| Chain::new(&[NodeId((p % groups + 1) as u16)]).0).collect();
        let placement = Placement::new(&View { nodes, chains, ..View::default() }).unwrap();
        Load {
            password: String::new(),
            sql: vec![SocketAddr::from(([127, 0, 0, 1], 1)), SocketAddr::from(([127, 0, 0, 1], 2))],
            placement,
            start_ns: 1000,
            period_ns: 10,
            explicit_every: 4,
            think: Duration::ZERO,
            deadline: Duration::from_secs(1),
            turns: Vec::new(),
            stop: AtomicBool::new(false),
            home_calls: AtomicU64::new(0),
            records: Mutex::default(),
            removals: Removals::default(),
        }
    }

    #[test]
    fn writes_lie_in_their_groups_and_never_share_a_row() {
        for groups in 1..=3 {
            let load = load(groups);
            let mut seen = std::collections::BTreeSet::new();
            for slot in 0..3000 {
                let plan = load.plan(slot);
                assert_eq!(plan.ids.len(), if plan.explicit { 2 } else { 1 }, "slot {slot} of {groups} groups");
                assert_eq!(load.placement.group_of(plan.ids[0]), plan.group);
                assert!(plan.ids.iter().all(|id| id / IDS_PER_SLOT == slot && seen.insert(*id)));
                if let Some(&second) = plan.ids.get(1) {
                    assert_eq!(load.placement.group_of(second), (plan.group + 1) % groups);
                }
            }
            assert_eq!(load.due_ns(7), 1070);
        }
    }

    #[test]
    fn streams_cover_every_sql_node_and_group_and_some_writes_are_transactions() {
        let load = load(2);
        assert_eq!(load.streams(), 4);
        let groups: Vec<u32> = (0..4).map(|slot| load.plan(slot).group).collect();
        assert_eq!(groups, [0, 1, 0, 1]);
        let explicit = (0..64).filter(|&slot| load.plan(slot).explicit).count();
        assert_eq!(explicit, 16);
    }
}
