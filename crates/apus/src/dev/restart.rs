//! `apus dev restart`: one step of a rolling restart.
//!
//! It returns when the new process is a full member again, so that the next node may be restarted at once without a row being lost. It
//! waits as long as the process lives: a copy of all rows takes as long as it takes, and a frozen cluster lets nobody join. For a SQL node it
//! waits until that greets a client.

use std::{
    io::Read,
    net::TcpStream,
    time::{Duration, Instant},
};

use apus_signal::{mgmt::NodeSummary, view::NodeState};
use serde_json::Value;

use crate::{discover, status};

/// The management nodes are asked this often.
const ASK: Duration = Duration::from_millis(50);
/// A SQL node that has taken a connection greets within this, or is asked again.
const GREETING: Duration = Duration::from_secs(1);
/// A word on stdout this often.
const REPORT: Duration = Duration::from_secs(5);

pub fn run(id: &str, wait: bool) -> Result<(), String> {
    let began = Instant::now();
    let pid = discover::restart_node(id)?;
    println!("node {id} started again, process {pid}");
    match (id.parse(), id.strip_prefix("sql-")) {
        _ if !wait => Ok(()),
        (Ok(node), _) => wait_full(node, pid, began),
        (_, Some(_)) => wait_greeting(id, pid, began),
        _ => Ok(()),
    }
}

fn wait_greeting(id: &str, pid: i32, began: Instant) -> Result<(), String> {
    let dev = discover::find_dev()?;
    let is_it = |node: &&Value| node["pid"].as_i64() == Some(pid.into());
    let port =
        dev.state["sql"].as_array().and_then(|all| all.iter().find(is_it)).and_then(|node| node["port"].as_u64());
    let port = port.and_then(|port| u16::try_from(port).ok()).ok_or("`apus dev` does not say where it listens")?;
    // The server speaks first.
    let greets = |mut stream: TcpStream| {
        stream.set_read_timeout(Some(GREETING)).is_ok() && stream.read(&mut [0]).is_ok_and(|read| read > 0)
    };
    while !TcpStream::connect(("127.0.0.1", port)).is_ok_and(greets) {
        if !discover::is_alive(pid) {
            let log = dev.dir.join(format!("{id}.log"));
            return Err(format!("SQL node {id}, process {pid}, ended before it answered; its log: {}", log.display()));
        }
        std::thread::sleep(ASK); // polls its port
    }
    println!("{id} answers at port {port}, {:.1} s", began.elapsed().as_secs_f64());
    Ok(())
}

fn wait_full(node: u32, pid: i32, began: Instant) -> Result<(), String> {
    let access = discover::ClusterArgs::default().find()?;
    let mut report = Instant::now() + REPORT;
    loop {
        let status = status::ask(&access);
        let ours = status.as_ref().ok().and_then(|s| s.nodes.iter().find(|n| n.id == node));
        // A process that is older than this command is the one before; one that was never heard may be long dead.
        let is_new =
            |n: &NodeSummary| n.silent_ms != u64::MAX && u128::from(n.uptime_ms) <= began.elapsed().as_millis();
        if ours.is_some_and(|n| n.state == NodeState::Up as u32 && is_new(n)) {
            println!("data node {node} holds all its rows, {:.1} s", began.elapsed().as_secs_f64());
            return Ok(());
        }
        if !discover::is_alive(pid) {
            return Err(format!("data node {node}, process {pid}, ended before it held all its rows"));
        }
        if Instant::now() > report {
            report += REPORT;
            match (&status, ours) {
                (Err(e), _) => println!("no management node answers: {e}"),
                (_, Some(n)) if !n.frozen.is_empty() => println!("data node {node} is frozen: {}", n.frozen),
                _ => println!("data node {node} does not hold all its rows yet"),
            }
        }
        std::thread::sleep(ASK); // polls the management nodes
    }
}
