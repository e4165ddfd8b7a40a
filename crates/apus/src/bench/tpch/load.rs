//! Fills the tables with the rows of the `tpchgen` crate, in multi-row INSERTs over several connections.

use std::{
    fmt::Display,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator, PartSuppGenerator,
    RegionGenerator, SupplierGenerator,
};

use super::schema::{DATABASE, TABLES};
use crate::bench::{
    mysql::{Connection, Failure},
    progress::Progress,
    rows::Inserter,
    target::Server,
};

const DEADLINE: Duration = Duration::from_secs(300);
const ROWS_AT_ONCE: usize = 500;
/// Parts of a table that connections take one after the other.
const PARTS: i32 = 16;
/// Of scale 1, in round numbers.
const ROWS: f64 = 8_661_000.0;

/// Makes the database anew.
///
/// # Errors
/// The server is not there or refuses.
pub fn load(server: &Server, scale: f64, connections: usize) -> Result<(), String> {
    let mut connection = server.connect(0, None, DEADLINE).map_err(|e| e.to_string())?;
    let create = format!("CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin");
    for statement in [format!("DROP DATABASE IF EXISTS {DATABASE}"), create, format!("USE {DATABASE}")] {
        connection.execute(&statement).map_err(|e| format!("{statement}: {e}"))?;
    }
    let mut jobs = Vec::new();
    for (table, columns) in TABLES {
        connection
            .execute(&format!("CREATE TABLE {table} ({columns})"))
            .map_err(|e| format!("CREATE TABLE {table}: {e}"))?;
        let parts = if matches!(table, "region" | "nation") { 1 } else { PARTS };
        jobs.extend((1..=parts).map(|part| (table, part, parts)));
    }
    jobs.reverse(); // the largest tables first
    let progress = Progress::new("rows loaded", (scale * ROWS) as u64);
    let next = AtomicUsize::new(0);
    let (progress, next, jobs) = (&progress, &next, &jobs);
    let one = |turn: usize| {
        let mut connection = server.connect(turn, Some(DATABASE), DEADLINE).map_err(|e| e.to_string())?;
        while let Some(&(table, part, parts)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            fill(&mut connection, progress, table, (scale, part, parts)).map_err(|e| format!("{table}: {e}"))?;
        }
        Ok(())
    };
    let done: Result<Vec<()>, String> = thread::scope(|scope| {
        let threads: Vec<_> = (0..connections).map(|turn| scope.spawn(move || one(turn))).collect();
        threads.into_iter().map(|t| t.join().map_err(|_| "a loader panicked".to_owned())?).collect()
    });
    done?;
    progress.finish();
    Ok(())
}

fn fill(
    connection: &mut Connection,
    progress: &Progress,
    table: &'static str,
    (scale, part, parts): (f64, i32, i32),
) -> Result<(), Failure> {
    let out = Inserter::new(connection, progress, table, ROWS_AT_ONCE);
    match table {
        "region" => insert(out, RegionGenerator::new(scale, part, parts).iter()),
        "nation" => insert(out, NationGenerator::new(scale, part, parts).iter()),
        "supplier" => insert(out, SupplierGenerator::new(scale, part, parts).iter()),
        "part" => insert(out, PartGenerator::new(scale, part, parts).iter()),
        "partsupp" => insert(out, PartSuppGenerator::new(scale, part, parts).iter()),
        "customer" => insert(out, CustomerGenerator::new(scale, part, parts).iter()),
        "orders" => insert(out, OrderGenerator::new(scale, part, parts).iter()),
        _ => insert(out, LineItemGenerator::new(scale, part, parts).iter()),
    }
}

/// The rows come as lines of fields that end in `|`; none holds a quote or a backslash.
fn insert(mut out: Inserter<'_>, rows: impl Iterator<Item = impl Display>) -> Result<(), Failure> {
    let mut line = String::new();
    for row in rows {
        use std::fmt::Write;
        line.clear();
        let _ = write!(line, "{row}"); // a String takes everything
        let fields = line.trim_end_matches('|').replace('|', "','");
        out.row(format_args!("'{fields}'"))?;
    }
    out.flush()
}
