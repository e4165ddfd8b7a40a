//! `apus status`: what the management nodes know of the cluster; the first that answers is believed. And what SQL nodes tell of themselves.

mod memory;
mod sql;

use std::{
    fmt::Write as _,
    io::{Read, Write},
    net::{TcpStream, ToSocketAddrs},
    process::ExitCode,
    time::Duration,
};

use apus_auth::{Connector, Progress};
use apus_signal::{
    BlockId, BlockRef, Envelope, Kind,
    envelope::{ENVELOPE_BYTES, decode_frame, frame_length},
    hello::{HELLO_BYTES_MAX, Hello},
    mgmt::{MgmtReq, NodeSummary, StartProgress, StatusConf},
    speeds::Speeds,
    tc::RequestRef,
    view::NodeState,
};
use apus_types::{Epoch, NodeId};
use prost::Message;
use serde_json::json;

use crate::discover::Access;

#[derive(clap::Args)]
pub struct StatusArgs {
    #[command(flatten)]
    cluster: crate::discover::ClusterArgs,
    /// One JSON document instead of a table
    #[arg(long)]
    json: bool,
    /// The memory of the data nodes instead: what each region uses, what is reserved for it, its maximum, what it could get now, how
    /// often it was refused memory since the node started, and which regions are full
    #[arg(long)]
    memory: bool,
}

const TIMEOUT: Duration = Duration::from_secs(3);

pub fn run(args: &StatusArgs) -> Result<ExitCode, String> {
    let access = args.cluster.find()?;
    let status = ask(&access)?;
    match (args.memory, args.json) {
        (true, true) => println!("{:#}", memory::to_json(&status)),
        (true, false) => print!("{}", memory::to_table(&status)),
        (false, is_json) => {
            let heard = sql::ask(&status, &access);
            if is_json {
                let mut all = to_json(&status);
                (all["sql"], all["definitions"]) = sql::to_json(&heard);
                println!("{all:#}");
            } else {
                print!("{}{}", to_table(&status), sql::to_table(&heard));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Asks one management node after the other.
///
/// # Errors
/// None of them answers.
pub fn ask(access: &Access) -> Result<StatusConf, String> {
    let mut errors = Vec::new();
    for address in crate::discover::each(&access.mgmt) {
        match ask_one(&address, access) {
            Ok(status) => return Ok(status),
            Err(error) => errors.push(error),
        }
    }
    Err(if errors.is_empty() { "no management node is named".to_owned() } else { errors.join("\n") })
}

/// Proves to be a client, or an operator; the other side's hello, proven too.
fn greet(stream: &mut TcpStream, access: &Access) -> Result<Hello, String> {
    let hello = Hello { role: access.role as i32, name: crate::build_id(), ..Hello::default() };
    let mut nonce = [0; apus_auth::NONCE_BYTES];
    getrandom::fill(&mut nonce).map_err(|e| format!("no random numbers from the operating system: {e}"))?;
    let (mut connector, out) = Connector::new(hello, &access.secret, nonce);
    stream.write_all(&out).map_err(|e| e.to_string())?;
    let mut buffer = [0u8; ENVELOPE_BYTES + HELLO_BYTES_MAX];
    loop {
        let missing = connector.missing().min(buffer.len());
        let got = stream.read(&mut buffer[..missing]).map_err(|e| e.to_string())?;
        if got == 0 {
            return Err("it closed the connection during the hello".to_owned());
        }
        match connector.take(&buffer[..got]).map_err(|e| e.to_string())? {
            Progress::More => {}
            Progress::Send(out) => stream.write_all(&out).map_err(|e| e.to_string())?,
            Progress::Done(hello) => return Ok(hello),
        }
    }
}

/// Asks a management node.
///
/// # Errors
/// It does not answer, or not in our protocol.
pub fn ask_one(address: &str, access: &Access) -> Result<StatusConf, String> {
    let request = MgmtReq { request: 1 }.encode_to_vec();
    let body = converse(address, access, Kind::StatusReq, &request, Kind::StatusConf)?;
    StatusConf::decode(body.as_slice()).map_err(|e| format!("management node {address}: {e}"))
}

/// Sends a management node one request and returns the body of the answer of the kind that is awaited.
///
/// # Errors
/// It refuses, does not answer, or not in our protocol.
pub fn converse(address: &str, access: &Access, ask: Kind, request: &[u8], awaited: Kind) -> Result<Vec<u8>, String> {
    let failed = |e: &dyn std::fmt::Display| format!("management node {address}: {e}");
    let target = address.to_socket_addrs().map_err(|e| failed(&e))?.next().ok_or_else(|| failed(&"no such host"))?;
    let mut stream = TcpStream::connect_timeout(&target, TIMEOUT).map_err(|e| {
        format!(
            "management node {address}: {e}; start it again (`apus dev restart mgmt-1`) or name another one by --mgmt"
        )
    })?;
    stream.set_read_timeout(Some(TIMEOUT)).map_err(|e| failed(&e))?;
    let mut node = NodeId(NodeId::MGMT_BASE);
    let hello = greet(&mut stream, access).map_err(|e| failed(&e))?;
    if let Ok(id) = u16::try_from(hello.node) {
        node = NodeId(id);
    }
    let (mut out, mut buffer) = (Vec::new(), Vec::new());
    frame(ask, BlockRef::new(node, BlockId::Mgmt, 0), request, &mut out);
    stream.write_all(&out).map_err(|e| failed(&e))?;
    loop {
        let (envelope, body) = read_frame(&mut stream, &mut buffer).map_err(|e| failed(&e))?;
        match envelope.kind {
            kind if kind == awaited => return Ok(body),
            Kind::RequestRef => {
                let code = RequestRef::decode(&body).map_err(|e| failed(&e))?.code;
                return Err(failed(&code));
            }
            _ => {}
        }
    }
}

fn frame(kind: Kind, to: BlockRef, body: &[u8], out: &mut Vec<u8>) {
    let from = BlockRef::new(NodeId(NodeId::CLIENT_BASE), BlockId::Client, 0);
    Envelope { kind, to, from, epoch: Epoch(0), trace: 0, generation: 0 }
        .encode(out, |out| out.extend_from_slice(body));
}

/// Takes the next whole frame from the stream; `buffer` holds what was read beyond it.
fn read_frame(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Result<(Envelope, Vec<u8>), String> {
    loop {
        if let Some(length) = frame_length(buffer).map_err(|e| e.to_string())?
            && buffer.len() >= length
        {
            let rest = buffer.split_off(length);
            let whole = std::mem::replace(buffer, rest);
            let (envelope, body) = decode_frame(&whole).map_err(|e| e.to_string())?;
            return Ok((envelope, body.to_vec()));
        }
        let mut chunk = [0u8; 16 << 10];
        match stream.read(&mut chunk).map_err(|e| e.to_string())? {
            0 => return Err("the connection was closed".to_owned()),
            n => buffer.extend_from_slice(&chunk[..n]),
        }
    }
}

/// Name of a node's state.
pub fn state_name(node: &NodeSummary) -> &'static str {
    match NodeState::try_from(node.state as i32) {
        Ok(NodeState::Up | NodeState::Recovering) if node.lost => "lost",
        Ok(NodeState::Up | NodeState::Recovering) if !node.frozen.is_empty() => "frozen",
        Ok(NodeState::Up) => "up",
        Ok(NodeState::Recovering) => "recovering",
        _ => "down",
    }
}

fn node_id(id: u32) -> NodeId {
    NodeId(u16::try_from(id).unwrap_or(0))
}

/// Number of a management or SQL node, as in `apus mgmt --node` and `apus sql --node`; 0 for none.
fn number(id: u32) -> u16 {
    match node_id(id) {
        node if node.is_mgmt() => node.0 - NodeId::MGMT_BASE,
        node if node.is_sql_arbitrator() => node.0 - NodeId::ARBITRATOR_BASE,
        _ => 0,
    }
}

/// What an arbitrator is besides; empty: it is none.
fn role(id: u32) -> &'static str {
    match node_id(id) {
        node if node.is_mgmt() => "management",
        node if node.is_sql_arbitrator() => "sql",
        _ => "",
    }
}

fn arbitration(status: &StatusConf) -> String {
    let (number_of, sqls) = (number(status.arbitrator), &status.sql_arbitrators);
    let who = match role(status.arbitrator) {
        "management" => format!("management node {number_of} arbitrates"),
        "sql" => format!("SQL node {number_of} arbitrates"),
        _ => "nobody arbitrates: exactly half of the data nodes would freeze".to_owned(),
    };
    let others: Vec<_> = sqls.iter().filter(|id| **id != status.arbitrator).map(|id| number(*id).to_string()).collect();
    let stand_by = format!(", SQL node {} would stand in", others.join(", "));
    if others.is_empty() { who } else { who + &stand_by }
}

/// Of a node that starts: its phase, rows that it has by now, and how fast and for how long this phase goes on.
fn start_to_json(start: &StartProgress) -> serde_json::Value {
    json!({
        "phase": start.phase().name(),
        "percent": start.percent,
        "rows": start.rows,
        "rows_per_second": start.rows_per_second,
        "remaining_ms": (start.remaining_ms > 0).then_some(start.remaining_ms),
        "elapsed_ms": start.elapsed_ms,
    })
}

fn to_json(status: &StatusConf) -> serde_json::Value {
    let nodes: Vec<_> = status
        .nodes
        .iter()
        .map(|n| {
            json!({
                "id": n.id,
                "group": n.group,
                "role": "data",
                "state": state_name(n),
                "president": n.president,
                "primaries": n.primaries,
                "backups": n.backups,
                "address": n.address,
                "uptime_ms": n.uptime_ms,
                "stuck": n.stuck,
                "slow": n.slow,
                "progress": n.progress,
                "start": n.start.as_ref().map(start_to_json),
                "encrypts": n.encrypts,
                "frozen": n.frozen,
            })
        })
        .collect();
    let speeds = status.checkpoint_speeds.unwrap_or_default();
    let mut all = json!({
        "cluster": format!("{:016x}", status.cluster),
        "generation": status.generation,
        "partitions": status.partitions,
        "silence_ms": status.silence_ms,
        "eject_slow_ms": status.eject_slow_ms,
        "durable": status.durable,
        "gcp_interval": status.gcp_interval_ms,
        "durability": crate::cluster::CLASSES.get(status.durability as usize),
        "replicas": status.replicas,
        "mgmt": number(status.mgmt),
        "arbitrator": number(status.arbitrator),
        "arbitrator_role": role(status.arbitrator),
        "sql_arbitrators": status.sql_arbitrators.iter().map(|id| number(*id)).collect::<Vec<_>>(),
        "mgmt_uptime_ms": status.mgmt_uptime_ms,
        "nodes": nodes,
    });
    for (name, value) in Speeds::NAMES.into_iter().zip(speeds.values()) {
        all[name] = value.into();
    }
    all
}

fn to_table(status: &StatusConf) -> String {
    let mut out = format!(
        "cluster {:016x}: {} replicas, {} partitions, view {}\n\n{:>4} {:>5}  {:<10} {:>9} {:>7}  {:>9}  {}\n",
        status.cluster,
        status.replicas,
        status.partitions,
        status.generation,
        "node",
        "group",
        "state",
        "primaries",
        "backups",
        "uptime",
        "address"
    );
    for n in &status.nodes {
        let president = if n.president { "  president" } else { "" };
        let encrypts = if n.encrypts { "  encrypts" } else { "" };
        let _ = writeln!(
            out,
            "{:>4} {:>5}  {:<10} {:>9} {:>7}  {:>7} s  {}{president}{encrypts}",
            n.id,
            n.group,
            state_name(n),
            n.primaries,
            n.backups,
            n.uptime_ms / 1000,
            n.address
        );
        if !n.stuck.is_empty() {
            let _ = writeln!(out, "{:>12} stuck: {}", "", n.stuck);
        }
        if !n.slow.is_empty() {
            let _ = writeln!(out, "{:>12} slow: {}", "", n.slow);
        }
        if !n.progress.is_empty() {
            let _ = writeln!(out, "{:>12} {}", "", n.progress);
        }
    }
    let _ = match status.durable {
        true if status.durability == 1 => {
            writeln!(out, "\ndata is on disk; a commit is acknowledged when it is there (durability=disk)")
        }
        true => writeln!(
            out,
            "\ndata is on disk, up to {} ms after a commit is acknowledged (durability=replicated)",
            status.gcp_interval_ms
        ),
        false => writeln!(out, "\ndata is in memory only"),
    };
    for n in status.nodes.iter().filter(|n| state_name(n) == "frozen") {
        let _ = writeln!(out, "\nnode {} is frozen: {}", n.id, n.frozen);
    }
    let _ = writeln!(out, "\nmanagement node {} answers; {}", number(status.mgmt), arbitration(status));
    out
}
