//! sqlx and Diesel against Apus, each with its own migrations: `rust-client sqlx|diesel PORT DATABASE STEP`. Ends with 101 and says why where an answer is not what it must be.

mod by_diesel;
mod by_sqlx;

use std::{
    io::BufRead,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// Becomes true when a line comes in.
fn stop() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let seen = stop.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().lock().read_line(&mut String::new());
        seen.store(true, Ordering::Relaxed);
    });
    println!("writes");
    stop
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [way, port, database, step] = &arguments[..] else { panic!("sqlx|diesel PORT DATABASE STEP") };
    let address = format!("mysql://root@127.0.0.1:{port}/{database}");
    match way.as_str() {
        "sqlx" => by_sqlx::run(&address, step),
        "diesel" => by_diesel::run(&address, step),
        _ => panic!("no way to go by {way}"),
    }
}
