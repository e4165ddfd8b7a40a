//! Schema changes while everything else happens: the old schema or the new one on all nodes, indexes that have the rows, no lock left over.

use apus_sim::{drill::Failure, settings::Settings, totals::Totals, workload};

use crate::common;

/// Seeds of the default run; SIM_SEEDS asks for another number, SIM_FROM for another first one.
const SEEDS: u64 = 20;

fn forced(seed: u64, values: &str) -> Settings {
    let mut settings = Settings::from_seed(seed);
    settings.set("churn=1").expect("can be set");
    settings.set(values).expect("values in range");
    settings
}

/// Every workload, with churn in all seeds and not only in those that draw it.
#[test]
fn the_schema_is_whole_after_failures() {
    let from = common::number("SIM_FROM", 1);
    let (mut totals, mut failed) = (Totals::default(), Vec::new());
    for seed in from..from + common::number("SIM_SEEDS", SEEDS) {
        println!("seed {seed}"); // shown with a panic
        let outcome = workload::run(&forced(seed, ""));
        totals.add(&outcome);
        if let Err(Failure { what, .. }) = outcome {
            println!("seed {seed} failed: {what}\n  apus sim --seed {seed} --set churn=1");
            failed.push(seed);
        }
    }
    print!("{totals}");
    println!("probes    {:?}", totals.probes);
    assert!(failed.is_empty(), "seeds {failed:?}");
    assert!(totals.schema_changes > totals.seeds, "{} changes", totals.schema_changes);
}
