//! Who asks the other SQL nodes: for their connections, or to end one.

use std::{future::Future, time::Duration};

use apus_client::Client;
use tokio::time::{Instant, timeout_at};

use super::{
    super::{Session, account_store, engine::SqlEngine},
    ANSWER_MAX, Kill, Outcome, by_chance, carry_out,
    message::{Answer, KILLS_MAX},
    question,
    rows::{Node, Tables},
};
use crate::{
    accounts::Privileges,
    errors::{self, Result},
    expr::Env,
    server::{Process, Processes, limits},
    wire::SqlError,
};

/// Between two looks whether there is an answer.
const PAUSE: Duration = Duration::from_millis(4);
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// What SQL nodes have answered.
#[derive(Default)]
pub struct Heard {
    pub answers: Vec<(Node, Answer)>,
    pub silent: Vec<Node>,
    /// Why nobody could be asked.
    pub failed: Option<SqlError>,
}

impl Heard {
    /// What is to be said of what is missing.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        let silent = |node: &Node| {
            let seconds = ANSWER_MAX.as_secs();
            format!(
                "SQL node {} ({}) has not answered within {seconds} s: its connections are not shown",
                node.number, node.name
            )
        };
        let cut = |(node, answer): &(Node, Answer)| {
            let (name, count) = (&node.name, answer.left_out);
            (count > 0)
                .then(|| format!("SQL node {} ({name}) has {count} connections more than are shown", node.number))
        };
        let failed = |e: &SqlError| format!("Other SQL nodes could not be asked for their connections: {}", e.message);
        let silent = self.silent.iter().map(silent);
        silent.chain(self.answers.iter().filter_map(cut)).chain(self.failed.as_ref().map(failed))
    }
}

/// Asks all SQL nodes but `own` for their connections. `asking` raises the number of the question; it is not called where there are no others.
async fn hear(client: &Client, tables: &Tables, own: u32, asking: impl Future<Output = Result<u64>>) -> Heard {
    let deadline = Instant::now() + ANSWER_MAX;
    let mut heard = Heard::default();
    let begins = async {
        let mut nodes = tables.nodes(client).await.map_err(|e| errors::from_client(&e))?;
        // Rows end with the data nodes: who finds that his own is gone has all SQL nodes write theirs again.
        let is_lost = own > 0 && !nodes.iter().any(|node| node.number == own);
        nodes.retain(|node| node.number != own);
        let number = if nodes.is_empty() && !is_lost { 0 } else { asking.await? };
        Ok((nodes, number))
    };
    let (mut nodes, number) = match in_time(deadline, begins).await {
        Ok(begun) => begun,
        Err(e) => return Heard { failed: Some(e), ..heard },
    };
    let mut pause = PAUSE;
    while nodes.iter().any(|node| node.answered < number) && Instant::now() < deadline {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
        if let Ok(now) = in_time(deadline, others(client, tables, own)).await {
            // Who comes meanwhile has nothing to tell; who leaves neither.
            let was_there = |node: &Node| nodes.iter().any(|before| is_same(before, node));
            nodes = now.into_iter().filter(was_there).collect();
        }
    }
    let (answered, silent): (Vec<_>, _) = nodes.into_iter().partition(|node| node.answered >= number);
    heard.silent = silent;
    let told = async {
        let answers = tables.answers(client, &answered.iter().collect::<Vec<_>>()).await;
        answers.map_err(|e| errors::from_client(&e))
    };
    match in_time(Instant::now() + ANSWER_MAX, told).await {
        Ok(answers) => heard.answers = answered.into_iter().zip(answers).collect(),
        Err(e) => heard.failed = Some(e),
    }
    heard
}

/// As [`hear`], by any client of the cluster.
pub async fn hear_all(client: &Client) -> Heard {
    let finds = async {
        let dictionary = client.dictionary(u64::MAX).await.map_err(|e| errors::from_client(&e))?;
        let messages = dictionary.map(|dictionary| dictionary.tables).unwrap_or_default();
        Ok(account_store::found_in(&messages).zip(Tables::of_messages(&messages)))
    };
    match in_time(Instant::now() + ANSWER_MAX, finds).await {
        // No SQL node has ever been registered.
        Ok(None) => Heard::default(),
        Ok(Some((accounts, tables))) => {
            let asking = async { Ok(question::change(client, &accounts, |asked| asked.ask(false)).await?.lists) };
            hear(client, &tables, 0, asking).await
        }
        Err(e) => Heard { failed: Some(e), ..Heard::default() },
    }
}

fn is_same(node: &Node, other: &Node) -> bool {
    (node.number, node.owner) == (other.number, other.owner)
}

async fn others(client: &Client, tables: &Tables, own: u32) -> Result<Vec<Node>> {
    let mut nodes = tables.nodes(client).await.map_err(|e| errors::from_client(&e))?;
    nodes.retain(|node| node.number != own);
    Ok(nodes)
}

async fn in_time<T>(deadline: Instant, what: impl Future<Output = Result<T>>) -> Result<T> {
    let late =
        |_| SqlError::new(1105, b"HY000", format!("no answer of the data nodes within {} s", ANSWER_MAX.as_secs()));
    timeout_at(deadline, what).await.map_err(late).flatten()
}

impl SqlEngine {
    /// Asks the other SQL nodes for their connections.
    pub(crate) async fn hear_others(&self, with_attributes: bool) -> Heard {
        let Some(store) = &self.store else { return Heard::default() };
        let tables = match in_time(Instant::now() + ANSWER_MAX, self.peer_tables()).await {
            Ok(tables) => tables,
            Err(e) => return Heard { failed: Some(e), ..Heard::default() },
        };
        let asking = async { Ok(store.ask(|asked| asked.ask(with_attributes)).await?.lists) };
        hear(&self.client, &tables, store.peers.number(), asking).await
    }

    /// Has the statement under way know the connections of all SQL nodes, if it does not yet.
    pub(crate) async fn see_processes(&self, env: &Env, with_attributes: bool) {
        if env.processes.borrow().as_ref().is_some_and(|known| known.has_attributes || !with_attributes) {
            return;
        }
        let heard = self.hear_others(with_attributes).await;
        if let Some(store) = &self.store {
            store.peers.note_silent(&heard.silent);
        }
        for text in heard.warnings() {
            env.note_once(SqlError::new(1105, b"HY000", text));
        }
        let own = env.connections.iter().flat_map(|registry| registry.list()).map(Process::of);
        let others = heard.answers.into_iter().flat_map(|(_, answer)| answer.processes);
        let mut all: Vec<Process> = own.chain(others).collect();
        all.sort_by_key(|process| process.id);
        *env.processes.borrow_mut() = Some(Processes { all: all.into(), has_attributes: with_attributes });
    }

    /// KILL of any connection of the cluster.
    ///
    /// # Errors
    /// 1094: there is none of this id. 1095: the session may not. 1105: its SQL node does not answer.
    pub(crate) async fn kill_connection(&self, session: &Session, id: u32, query: bool) -> Result<()> {
        let may_any = |rights: Privileges| rights.intersects(Privileges::SUPER.union(Privileges::CONNECTION_ADMIN));
        let any = session.env.me.as_ref().is_none_or(|me| may_any(me.rights.global));
        let kill = Kill { number: by_chance()?, id, query, user: session.env.user.clone(), any };
        let mut outcome = carry_out(&session.info.registry, &kill);
        if outcome == Outcome::Unknown {
            outcome = self.kill_elsewhere(kill).await?;
        }
        match outcome {
            Outcome::Done => Ok(()),
            Outcome::Unknown => Err(errors::unknown_thread(id)),
            Outcome::NotOwner => Err(errors::not_owner_of_thread(id)),
        }
    }

    async fn kill_elsewhere(&self, kill: Kill) -> Result<Outcome> {
        let number = kill.id / limits::IDS_PER_SERVER;
        let Some(store) = self.store.as_ref().filter(|store| number > 0 && number != store.peers.number()) else {
            return Ok(Outcome::Unknown);
        };
        let deadline = Instant::now() + ANSWER_MAX;
        let tables = in_time(deadline, self.peer_tables()).await?;
        let look = || async { tables.node(&self.client, number).await.map_err(|e| errors::from_client(&e)) };
        let Some(node) = in_time(deadline, look()).await? else { return Ok(Outcome::Unknown) };
        let asking = store.ask(|asked| {
            if !asked.kills.contains(&kill) {
                let surplus = (asked.kills.len() + 1).saturating_sub(KILLS_MAX);
                asked.kills.drain(..surplus);
                asked.kills.push(kill.clone());
            }
        });
        in_time(deadline, asking).await?;
        let mut pause = PAUSE;
        let outcome = loop {
            let Ok(now) = in_time(deadline, look()).await else { break None };
            let Some(now) = now.filter(|now| is_same(now, &node)) else { break Some(Outcome::Unknown) };
            if let Some(outcome) = now.outcomes.find(kill.number) {
                break Some(outcome);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        };
        // Nobody is to end it later.
        let forgets = store.ask(|asked| asked.kills.retain(|other| other.number != kill.number));
        let _ = in_time(Instant::now() + ANSWER_MAX, forgets).await;
        outcome.ok_or_else(|| {
            let (name, seconds) = (&node.name, ANSWER_MAX.as_secs());
            let text = format!("SQL node {number} ({name}) has not answered within {seconds} s: it is not known whether connection {} was ended", kill.id);
            SqlError::new(1105, b"HY000", text)
        })
    }
}
