//! The catalogue of probes and fault points names what the sources use, no more and no less.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use apus_sim::probes::{DRAWN, FAULT_POINTS, PROBES};

/// Crates whose code runs in a product.
const PRODUCT: &[&str] = &["blocks", "client", "kernel", "mgmt", "runtime", "signal", "storage", "types"];

fn sources(directory: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a readable directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|e| e == "rs") {
            into.push(path);
        }
    }
}

/// The names that are given to `call` where it stands with a literal.
fn used(call: &str) -> BTreeSet<String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("crates/sim lies in crates");
    let mut files = Vec::new();
    PRODUCT.iter().for_each(|name| sources(&crates.join(name).join("src"), &mut files));
    let mut names = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("a source file");
        let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        let text = code.join("\n");
        let parts = text.split(call).skip(1).filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next());
        names.extend(parts.map(str::to_owned));
    }
    names
}

#[test]
fn every_probe_is_listed() {
    let listed: BTreeSet<String> = PROBES.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(used("ctx.probe("), listed, "crates/sim/src/probes.rs lists what the sources use (left)");
    assert!(PROBES.is_sorted(), "the list is sorted");
}

#[test]
fn every_fault_point_is_listed() {
    let listed: BTreeSet<String> = FAULT_POINTS.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(used("ctx.fault("), listed, "crates/sim/src/probes.rs lists what the sources use (left)");
    assert!(DRAWN.iter().all(|name| FAULT_POINTS.contains(name)));
}
