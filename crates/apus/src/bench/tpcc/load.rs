//! Fills the tables (clause 4.3.3): items once, then each warehouse by one of several connections.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use super::{
    random::last_name,
    schema::{CUSTOMERS, DATABASE, DISTRICTS, FIRST_NEW_ORDER, ITEMS, ROWS_AT_ONCE, TABLES},
};
use crate::bench::{
    mysql::{Connection, Failure},
    numbers::Random,
    progress::Progress,
    rows::Inserter,
    target::Server,
};

/// Connections that fill the tables.
const LOADERS_MAX: u64 = 4;
const DEADLINE: Duration = Duration::from_secs(300);
/// In round numbers.
const ROWS_OF_A_WAREHOUSE: u64 = 11 + ITEMS + DISTRICTS * (CUSTOMERS * 13 + 900);

/// Makes the database anew.
///
/// # Errors
/// The server is not there or refuses.
pub fn load(server: &Server, warehouses: u64, seed: u64) -> Result<(), String> {
    let mut connection = server.connect(0, None, DEADLINE).map_err(|e| e.to_string())?;
    for statement in [
        format!("DROP DATABASE IF EXISTS {DATABASE}"),
        format!("CREATE DATABASE {DATABASE}"),
        format!("USE {DATABASE}"),
    ] {
        connection.execute(&statement).map_err(|e| format!("{statement}: {e}"))?;
    }
    for statement in TABLES {
        connection.execute(statement).map_err(|e| format!("{statement}: {e}"))?;
    }
    let progress = Progress::new("rows loaded", ITEMS + warehouses * ROWS_OF_A_WAREHOUSE);
    items(&mut Inserter::new(&mut connection, &progress, "item", ROWS_AT_ONCE), seed)
        .map_err(|e| format!("item: {e}"))?;
    let next = AtomicU64::new(1);
    let (progress, next) = (&progress, &next);
    let one = |turn: u64| {
        let mut connection = server.connect(turn as usize, Some(DATABASE), DEADLINE).map_err(|e| e.to_string())?;
        loop {
            let warehouse = next.fetch_add(1, Ordering::Relaxed);
            if warehouse > warehouses {
                return Ok(());
            }
            let mut random = Random::new(seed ^ (warehouse << 32));
            fill(&mut connection, progress, warehouse, &mut random)
                .map_err(|e| format!("warehouse {warehouse}: {e}"))?;
        }
    };
    let done: Result<Vec<()>, String> = thread::scope(|scope| {
        let threads: Vec<_> = (0..warehouses.min(LOADERS_MAX)).map(|turn| scope.spawn(move || one(turn))).collect();
        threads.into_iter().map(|t| t.join().map_err(|_| "a loader panicked".to_owned())?).collect()
    });
    done?;
    progress.finish();
    Ok(())
}

fn items(out: &mut Inserter<'_>, seed: u64) -> Result<(), Failure> {
    let mut r = Random::new(seed);
    for id in 1..=ITEMS {
        let (image, name, price, data) = (r.between(1, 10_000), r.letters(14, 24), r.between(100, 10_000), r.data());
        out.row(format_args!("{id},{image},'{name}',{}.{:02},'{data}'", price / 100, price % 100))?;
    }
    out.flush()
}

/// Street, street, city, state, zip.
fn address(r: &mut Random) -> String {
    let (one, two, city) = (r.letters(10, 20), r.letters(10, 20), r.letters(10, 20));
    format!("'{one}','{two}','{city}','{}','{}'", r.letters(2, 2), r.zip())
}

fn fill(connection: &mut Connection, progress: &Progress, w: u64, r: &mut Random) -> Result<(), Failure> {
    let mut out = Inserter::new(connection, progress, "warehouse", 1);
    let (name, address_of_it, tax) = (r.letters(6, 10), address(r), r.below(2001));
    out.row(format_args!("{w},'{name}',{address_of_it},0.{tax:04},300000.00"))?;
    let mut out = Inserter::new(connection, progress, "stock", ROWS_AT_ONCE);
    for i in 1..=ITEMS {
        let quantity = r.between(10, 100);
        let districts: Vec<String> = (0..DISTRICTS).map(|_| format!("'{}'", r.letters(24, 24))).collect();
        out.row(format_args!("{i},{w},{quantity},{},0,0,0,'{}'", districts.join(","), r.data()))?;
    }
    out.flush()?;
    let mut out = Inserter::new(connection, progress, "district", ROWS_AT_ONCE);
    for d in 1..=DISTRICTS {
        let (name, address_of_it, tax) = (r.letters(6, 10), address(r), r.below(2001));
        out.row(format_args!("{d},{w},'{name}',{address_of_it},0.{tax:04},30000.00,{}", CUSTOMERS + 1))?;
    }
    out.flush()?;
    for d in 1..=DISTRICTS {
        customers(connection, progress, (w, d), r)?;
        orders(connection, progress, (w, d), r)?;
    }
    Ok(())
}

fn customers(
    connection: &mut Connection,
    progress: &Progress,
    (w, d): (u64, u64),
    r: &mut Random,
) -> Result<(), Failure> {
    let mut out = Inserter::new(connection, progress, "customer", ROWS_AT_ONCE);
    for c in 1..=CUSTOMERS {
        let last = if c <= 1000 { last_name(c - 1) } else { r.last_name_loaded() };
        let (first, address_of_it, phone) = (r.letters(8, 16), address(r), r.digits(16));
        let (credit, discount, data) = (if r.percent(10) { "BC" } else { "GC" }, r.below(5001), r.letters(300, 500));
        out.row(format_args!(
            "{c},{d},{w},'{first}','OE','{last}',{address_of_it},'{phone}',NOW(),'{credit}',50000.00,0.{discount:04},-10.00,10.00,1,0,'{data}'"
        ))?;
    }
    out.flush()?;
    let mut out = Inserter::new(connection, progress, "history", ROWS_AT_ONCE);
    for c in 1..=CUSTOMERS {
        out.row(format_args!("{c},{d},{w},{d},{w},NOW(),10.00,'{}'", r.letters(12, 24)))?;
    }
    out.flush()
}

fn orders(connection: &mut Connection, progress: &Progress, (w, d): (u64, u64), r: &mut Random) -> Result<(), Failure> {
    let customers = r.permutation(CUSTOMERS);
    let lines: Vec<u64> = customers.iter().map(|_| r.between(5, 15)).collect();
    let mut out = Inserter::new(connection, progress, "orders", ROWS_AT_ONCE);
    for ((o, c), count) in (1..).zip(customers).zip(&lines) {
        let carrier = if o < FIRST_NEW_ORDER { r.between(1, 10).to_string() } else { "NULL".to_owned() };
        out.row(format_args!("{o},{d},{w},{c},NOW(),{carrier},{count},1"))?;
    }
    out.flush()?;
    let mut out = Inserter::new(connection, progress, "new_order", ROWS_AT_ONCE);
    for o in FIRST_NEW_ORDER..=CUSTOMERS {
        out.row(format_args!("{o},{d},{w}"))?;
    }
    out.flush()?;
    let mut out = Inserter::new(connection, progress, "order_line", ROWS_AT_ONCE);
    for (o, count) in (1..).zip(lines) {
        for number in 1..=count {
            let (item, info, is_delivered) = (r.between(1, ITEMS), r.letters(24, 24), o < FIRST_NEW_ORDER);
            let (date, cents) = if is_delivered { ("NOW()", 0) } else { ("NULL", r.between(1, 999_999)) };
            let (whole, part) = (cents / 100, cents % 100);
            out.row(format_args!("{o},{d},{w},{number},{item},{w},{date},5,{whole}.{part:02},'{info}'"))?;
        }
    }
    out.flush()
}
