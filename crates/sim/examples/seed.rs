//! Runs the bank workload: `seed N` prints how one seed goes, `seed FROM COUNT` how many of them fail.

use std::panic::{AssertUnwindSafe, catch_unwind};

use apus_sim::workload::bank::{Report, Settings, run};

fn one(seed: u64) -> Result<Report, (String, String)> {
    let settings = Settings::from_seed(seed);
    match catch_unwind(AssertUnwindSafe(|| run(&settings))) {
        Ok(Ok(report)) => Ok(report),
        Ok(Err(failure)) => Err((failure.what, failure.details)),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
            Err((format!("panic: {}", text.unwrap_or_default()), String::new()))
        }
    }
}

fn main() {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let (from, count) = (numbers.first().copied().unwrap_or(1), numbers.get(1).copied());
    let mut failed = 0;
    for seed in from..from + count.unwrap_or(1) {
        match one(seed) {
            Ok(report) if count.is_none() => println!("{:?}\n{report:?}", Settings::from_seed(seed)),
            Ok(_) => {}
            Err((what, details)) => {
                failed += 1;
                println!("seed {seed}: {what}");
                if count.is_none() {
                    println!("{:?}\n{details}", Settings::from_seed(seed));
                }
            }
        }
    }
    if let Some(count) = count {
        println!("{failed} of {count} seeds from {from} failed");
    }
}
