//! `apus status --memory`: what the regions of each data node's memory use. `docs/internals/memory.md` says what is in which.

use std::fmt::Write;

use apus_signal::mgmt::{MemoryUse, NodeSummary, RegionUse, StatusConf};
use serde_json::json;

fn known(status: &StatusConf) -> impl Iterator<Item = (&NodeSummary, &MemoryUse)> {
    status.nodes.iter().filter_map(|node| Some((node, node.memory.as_ref()?)))
}

pub fn to_json(status: &StatusConf) -> serde_json::Value {
    let region = |r: &RegionUse| {
        json!({
            "name": r.name,
            "used": r.used,
            "reserved": r.reserved,
            "maximum": r.maximum,
            "room": r.room,
            "refused": r.refused,
            "full": r.full,
        })
    };
    let node = |(node, memory): (&NodeSummary, &MemoryUse)| {
        json!({
            "id": node.id,
            "state": super::state_name(node),
            "pool": memory.pool,
            "pool_used": memory.pool_used,
            "regions": memory.regions.iter().map(region).collect::<Vec<_>>(),
        })
    };
    json!({ "nodes": known(status).map(node).collect::<Vec<_>>() })
}

fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

pub fn to_table(status: &StatusConf) -> String {
    let mut out = format!(
        "{:>4}  {:<13} {:>9} {:>9} {:>9} {:>9} {:>8}   (MiB)\n",
        "node", "region", "used", "reserved", "maximum", "room", "refused"
    );
    for (node, memory) in known(status) {
        for r in &memory.regions {
            let full = if r.full { "  full" } else { "" };
            let (used, reserved, maximum, room) = (mib(r.used), mib(r.reserved), mib(r.maximum), mib(r.room));
            let _ = writeln!(
                out,
                "{:>4}  {:<13} {used:>9} {reserved:>9} {maximum:>9} {room:>9} {:>8}{full}",
                node.id, r.name, r.refused
            );
        }
        let (used, pool) = (mib(memory.pool_used), mib(memory.pool));
        let _ = writeln!(out, "{:>4}  {:<13} {used:>9} {:>9} {pool:>9}", node.id, "shared pool", "");
    }
    let unknown = status.nodes.iter().filter(|node| node.memory.is_none());
    for node in unknown {
        let _ = writeln!(out, "{:>4}  has not told anything: it is {}", node.id, super::state_name(node));
    }
    out
}
