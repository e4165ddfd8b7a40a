//! `apus cluster stop`: the orderly end of all data nodes.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::ExitCode,
    time::{Duration, Instant},
};

use apus_signal::{
    Kind,
    mgmt::{NodeSummary, StatusConf},
    operator::ClusterStop,
    qmgr::Incarnation,
};
use prost::Message;

use crate::{discover::Access, status};

#[derive(clap::Args)]
pub struct StopArgs {
    /// The phrase that would be asked for where data is in memory only: "lose all rows"
    #[arg(long, value_name = "PHRASE")]
    confirm: Option<String>,
}

const PHRASE: &str = "lose all rows";
/// Those that were told have ended within this time.
const PATIENCE: Duration = Duration::from_secs(20);

/// The processes that are linked to a management node.
fn linked(answers: &[(String, StatusConf)]) -> BTreeMap<u32, u64> {
    let nodes = answers.iter().flat_map(|(_, status)| &status.nodes);
    nodes.filter(|n| n.incarnation != 0).map(|n| (n.id, n.incarnation)).collect()
}

pub fn run(access: &Access, args: &StopArgs) -> Result<ExitCode, String> {
    let answers = super::ask_all(access)?;
    let named = linked(&answers);
    if named.is_empty() {
        return Err("no data node is linked to a management node: there is nothing to end".to_owned());
    }
    println!("This ends, in cluster {:016x}:", answers[0].1.cluster);
    for (node, incarnation) in &named {
        println!("  data node {node}, incarnation {incarnation:x}");
    }
    let is_unreached = |n: &&NodeSummary| n.member != 0 && named.get(&n.id) != Some(&n.member);
    let unreached: BTreeSet<u32> =
        answers.iter().flat_map(|(_, s)| s.nodes.iter().filter(is_unreached)).map(|n| n.id).collect();
    if !unreached.is_empty() {
        println!(
            "Not {}, a member that no management node is linked to: its process has to be ended by itself.",
            super::list(unreached)
        );
    }
    match answers.iter().any(|(_, status)| status.durable) {
        true => println!("All data is made durable first: started again, the data nodes go on with it."),
        false => {
            println!("Data is in memory only: every row is lost.");
            super::confirm(args.confirm.as_deref(), PHRASE)?;
        }
    }
    end(access, &answers, named)
}

/// Ends the processes, and waits for that.
fn end(access: &Access, answers: &[(String, StatusConf)], named: BTreeMap<u32, u64>) -> Result<ExitCode, String> {
    let processes: Vec<Incarnation> =
        named.iter().map(|(&node, &incarnation)| Incarnation { node, incarnation }).collect();
    let order =
        ClusterStop { request: 1, cluster: answers[0].1.cluster, processes, ..ClusterStop::default() }.encode_to_vec();
    let (mut told, mut given_up, mut durable, mut errors) = (BTreeSet::new(), false, false, Vec::new());
    for (address, _) in answers {
        let answer = status::converse(address, access, Kind::ClusterStopReq, &order, Kind::ClusterStopConf);
        match answer.and_then(|body| ClusterStop::decode(body.as_slice()).map_err(|e| e.to_string())) {
            Ok(conf) => {
                given_up |= conf.given_up;
                durable |= conf.durable;
                told.extend(conf.processes.into_iter().map(|p| (p.node, p.incarnation)));
            }
            Err(error) => errors.push(error),
        }
    }
    if told.is_empty() {
        return Err(if errors.is_empty() { "no data node was told to end".to_owned() } else { errors.join("\n") });
    }
    await_end(access, &told)?;
    println!("{} ended", super::list(told.iter().map(|(node, _)| *node)));
    match given_up {
        _ if durable => println!("The data is on the disks of these nodes."),
        true => println!("Started again, the data nodes found the cluster anew, empty."),
        false => println!(
            "Not all members were told. Where nodes remember the cluster, `apus mgmt --found-again` founds it anew."
        ),
    }
    Ok(ExitCode::SUCCESS)
}

fn await_end(access: &Access, told: &BTreeSet<(u32, u64)>) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let there = linked(&super::ask_all(access)?);
        let left: Vec<u32> = told.iter().filter(|(n, i)| there.get(n) == Some(i)).map(|(n, _)| *n).collect();
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("{} has not ended within {} s; see its log", super::list(left), PATIENCE.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(50)); // asks again until the deadline above
    }
}

/// `apus dev --dir` ends: whatever was acknowledged is on disk before its data nodes end.
///
/// # Errors
/// No management node answers, or data nodes go on.
pub fn end_durably(access: &Access) -> Result<(), String> {
    let answers = super::ask_all(access)?;
    let named = linked(&answers);
    end(access, &answers, named).map(|_| ())
}
