//! `apus cluster resume`: an operator makes a frozen side go on, or has a cluster start without disks that are lost.

use std::{
    collections::BTreeMap,
    process::ExitCode,
    time::{Duration, Instant, SystemTime},
};

use apus_signal::{
    Kind,
    mgmt::{NodeSummary, StatusConf},
    operator::{FrozenSide, Resume, ResumeAnswer},
    qmgr::Incarnation,
};
use apus_types::ErrorCode;
use prost::Message;

use super::list;
use crate::{discover::Access, status};

#[derive(clap::Args)]
pub struct ResumeArgs {
    /// Without it nothing is done: a frozen side goes on by itself as soon as that is safe
    #[arg(long)]
    force: bool,
    /// A data node of the side that is meant, where several are frozen apart from each other
    #[arg(long, value_name = "ID")]
    node: Option<u32>,
    /// The phrase that would be asked for: "abandon data node 1", with the nodes that the side lacks
    #[arg(long, value_name = "PHRASE")]
    confirm: Option<String>,
}

/// The side serves within this time: promises to those that it abandons have to run out first.
const PATIENCE: Duration = Duration::from_secs(20);

/// A frozen side, the process that leads it, and the management node that it is linked to.
#[derive(Clone, PartialEq, Debug)]
struct Found {
    side: FrozenSide,
    leader: Incarnation,
    cluster: u64,
    address: String,
    /// Of the newest view that the management node has heard of.
    known: u64,
}

/// As their leaders tell of them.
fn sides(answers: &[(String, StatusConf)]) -> BTreeMap<u32, Found> {
    let mut found = BTreeMap::new();
    for (address, status) in answers {
        let is_leader = |n: &&NodeSummary| n.incarnation != 0 && n.side.as_ref().is_some_and(|s| s.leader == n.id);
        for node in status.nodes.iter().filter(is_leader) {
            let leader = Incarnation { node: node.id, incarnation: node.incarnation };
            let side = node.side.clone().unwrap_or_default();
            found.insert(
                node.id,
                Found { side, leader, cluster: status.cluster, address: address.clone(), known: status.generation },
            );
        }
    }
    found
}

fn choose(found: BTreeMap<u32, Found>, node: Option<u32>) -> Result<Found, String> {
    let sides: Vec<String> = found.values().map(|f| list(f.side.members.iter().copied())).collect();
    let mut wanted: Vec<Found> =
        found.into_values().filter(|f| node.is_none_or(|n| f.side.members.contains(&n))).collect();
    match (wanted.pop(), wanted.is_empty(), node) {
        (Some(one), true, _) => Ok(one),
        (None, _, Some(node)) if !sides.is_empty() => Err(format!(
            "APUS-{}: data node {node} is not frozen; frozen: {}",
            ErrorCode::NotFrozen as u16,
            sides.join("; ")
        )),
        (None, ..) => {
            Err(format!("APUS-{}: no data node is frozen: there is nothing to resume", ErrorCode::NotFrozen as u16))
        }
        (Some(_), false, _) => Err(format!(
            "several sides are frozen: {}; name a node of the one that is to go on: --node ID",
            sides.join("; ")
        )),
    }
}

fn phrase(side: &FrozenSide) -> String {
    format!("abandon {}", list(side.abandons.iter().map(|a| a.node)))
}

fn warn(found: &Found) {
    let side = &found.side;
    let (members, others) = (list(side.members.iter().copied()), list(side.abandons.iter().map(|a| a.node)));
    println!(
        "In cluster {:016x}, {members} would go on from view {}, without {others}:",
        found.cluster, side.generation
    );
    println!(
        "  - Lost is whatever was acknowledged since that view by {others}, if a part of the cluster went on there."
    );
    if found.known > side.generation {
        println!("    So it did: the management node has heard of view {}.", found.known);
    }
    for process in &side.abandons {
        println!("    data node {}, incarnation {:x}", process.node, process.incarnation);
    }
    println!("  - If one of them still runs and serves clients, end it first: until it hears of this, both serve.");
    println!("  - Whatever they hold is given up. They join again empty, and copy the rows of {members}.");
}

pub fn run(access: &Access, args: &ResumeArgs) -> Result<ExitCode, String> {
    if !args.force {
        return Err("a frozen side goes on by itself as soon as that is safe, see `apus status`; with --force an operator abandons \
                    what the nodes that it waits for may hold"
            .to_owned());
    }
    let found = choose(sides(&super::ask_all(access)?), args.node)?;
    let side = &found.side;
    if !side.lacks_groups.is_empty() {
        let groups: Vec<String> = side.lacks_groups.iter().map(u32::to_string).collect();
        let code = ErrorCode::NoFullCopy;
        return Err(format!("APUS-{}: {} (group {})", code as u16, code.message(), groups.join(", ")));
    }
    warn(&found);
    super::confirm(args.confirm.as_deref(), &phrase(side))?;
    let micros = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_err(|e| e.to_string())?.as_micros();
    let order = Resume {
        request: 1,
        cluster: found.cluster,
        leader: Some(found.leader),
        lineage: side.lineage,
        generation: side.generation,
        abandons: side.abandons.clone(),
        new_lineage: micros as u64,
    };
    let body = status::converse(&found.address, access, Kind::ResumeReq, &order.encode_to_vec(), Kind::ResumeConf)?;
    let answer = ResumeAnswer::decode(body.as_slice()).map_err(|e| e.to_string())?;
    if answer.error != 0 {
        let text = u16::try_from(answer.error).ok().and_then(ErrorCode::from_u16).map_or("", ErrorCode::message);
        return Err(format!("APUS-{}: {text} ({})", answer.error, answer.reason));
    }
    let generation = await_view(access, side)?;
    println!("{} went on, from view {generation}", list(side.members.iter().copied()));
    Ok(ExitCode::SUCCESS)
}

/// The generation of the first view that is newer.
fn await_view(access: &Access, side: &FrozenSide) -> Result<u64, String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let newest = super::ask_all(access)?.into_iter().map(|(_, status)| status.generation).max().unwrap_or(0);
        if newest > side.generation + u64::from(u16::MAX) {
            return Ok(newest);
        }
        if Instant::now() > deadline {
            let leader = side.leader;
            return Err(format!(
                "the view without them has not come within {} s: see `apus status` and the log of data node {leader}",
                PATIENCE.as_secs()
            ));
        }
        std::thread::sleep(Duration::from_millis(50)); // asks again until the deadline above
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(leader: u32, members: &[u32], abandons: &[u32]) -> (u32, Found) {
        let name = |n: &u32| Incarnation { node: *n, incarnation: 5 };
        let abandons = abandons.iter().map(name).collect();
        let side = FrozenSide { leader, members: members.to_vec(), abandons, ..FrozenSide::default() };
        (leader, Found { side, leader: name(&leader), cluster: 1, address: String::new(), known: 0 })
    }

    #[test]
    fn the_side_is_named_where_there_are_two() {
        let one = BTreeMap::from([found(1, &[1, 3], &[2, 4])]);
        let two = BTreeMap::from([found(1, &[1, 3], &[2, 4]), found(2, &[2, 4], &[1, 3])]);
        assert_eq!(choose(one.clone(), None).map(|f| phrase(&f.side)), Ok("abandon data nodes 2 4".to_owned()));
        assert_eq!(choose(two.clone(), Some(4)).map(|f| f.side.leader), Ok(2));
        assert!(choose(two, None).is_err_and(|e| e.contains("--node")));
        assert!(choose(one, Some(2)).is_err_and(|e| e.contains("APUS-710")));
        assert!(choose(BTreeMap::new(), None).is_err_and(|e| e.contains("APUS-710")));
    }
}
