//! The house rules that no compiler checks: which crate may name which, what the core depends on, where `unsafe` may stand,
//! and how long a file may be. DESIGN section 3 and ARCHITECTURE.md say why.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Each crate with the crates it may depend on: everything below it on its ladder, nothing else.
const LADDER: &[(&str, &[&str])] = &[
    ("apus-types", &[]),
    ("apus-eval", &["apus-types"]),
    ("apus-signal", &["apus-types"]),
    ("apus-kernel", &["apus-signal", "apus-types"]),
    ("apus-storage", &["apus-types"]),
    ("apus-redo", &["apus-signal", "apus-types"]),
    ("apus-vault", &["apus-redo", "apus-signal", "apus-types"]),
    ("apus-blocks", &["apus-eval", "apus-kernel", "apus-redo", "apus-storage", "apus-signal", "apus-types"]),
    ("apus-mgmt", &["apus-kernel", "apus-signal", "apus-types"]),
    ("apus-auth", &["apus-signal", "apus-types"]),
    (
        "apus-runtime",
        &[
            "apus-auth",
            "apus-blocks",
            "apus-mgmt",
            "apus-kernel",
            "apus-redo",
            "apus-storage",
            "apus-signal",
            "apus-types",
        ],
    ),
    ("apus-client", &["apus-auth", "apus-signal", "apus-types"]),
    ("apus-sql", &["apus-client", "apus-eval", "apus-vault", "apus-redo", "apus-signal", "apus-types"]),
    ("apus-workload", &["apus-client", "apus-kernel", "apus-signal", "apus-types"]),
    (
        "apus-sim",
        &[
            "apus-blocks",
            "apus-mgmt",
            "apus-workload",
            "apus-client",
            "apus-kernel",
            "apus-redo",
            "apus-storage",
            "apus-signal",
            "apus-types",
            "apus-vault",
        ],
    ),
    ("apus-chaos-disk", &[]),
    ("apus-chaos", &[]), // test tools beside the ladder: nobody stands on them
    (
        "apus",
        &[
            "apus-auth",
            "apus-blocks",
            "apus-client",
            "apus-kernel",
            "apus-mgmt",
            "apus-redo",
            "apus-runtime",
            "apus-signal",
            "apus-sim",
            "apus-sql",
            "apus-storage",
            "apus-types",
            "apus-vault",
            "apus-workload",
        ],
    ),
];

/// What may be used in the core by others, and what for. A new line here is a decision for a review.
const CORE_THIRD_PARTY: &[(&str, &[&str])] = &[
    ("apus-types", &["rapidhash"]), // the placement hash
    ("apus-eval", &[]),
    ("apus-signal", &["prost"]), // control signals that survive mixed versions
    ("apus-kernel", &[]),
    ("apus-redo", &["xxhash-rust"]), // checksums of blocks on disk
    ("apus-storage", &[]),
    ("apus-blocks", &["prost"]), // encodes and measures control signals
    ("apus-mgmt", &["prost"]),   // likewise
];

/// Never in the core's tree, however indirectly: event loops, TLS, the query engine, clocks and entropy.
const CORE_NEVER: &[&str] = &[
    "tokio",
    "mio",
    "socket2",
    "rustix",
    "libc",
    "rustls",
    "openssl",
    "ring",
    "aws-lc-rs",
    "datafusion",
    "arrow",
    "getrandom",
    "rand",
    "chrono",
    "time",
    "parking_lot",
    "crossbeam-channel",
    "rayon",
];

const LINES_MAX: usize = 1000;
const UNSAFE_ALLOWED: &[&str] = &["storage", "runtime"];

struct Crate {
    directory: PathBuf,
    /// Names in `[dependencies]` and `[build-dependencies]`, also of single targets.
    normal: Vec<String>,
    /// Names in `[dev-dependencies]`.
    dev: Vec<String>,
    /// Third-party names in `[dependencies]` without a comment above them.
    unexplained: Vec<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/apus lies two below the root").to_owned()
}

/// Reads the parts of a manifest that matter here; our manifests write one dependency per line.
fn read_crate(directory: PathBuf) -> (String, Crate) {
    let text = fs::read_to_string(directory.join("Cargo.toml")).expect("a crate has a manifest");
    let mut found = Crate { directory, normal: Vec::new(), dev: Vec::new(), unexplained: Vec::new() };
    let (mut name, mut section, mut explained) = (String::new(), String::new(), false);
    for line in text.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_end_matches(']').to_owned();
        } else if line.starts_with('#') {
            explained = true;
            continue;
        } else if let Some((key, value)) = line.split_once('=') {
            let key = key.trim().split('.').next().unwrap_or_default().to_owned();
            if section == "package" && key == "name" {
                name = value.trim().trim_matches('"').to_owned();
            } else if section.ends_with("dev-dependencies") {
                found.dev.push(key);
            } else if section.ends_with("dependencies") {
                if !key.starts_with("apus-") && !explained {
                    found.unexplained.push(key.clone());
                }
                found.normal.push(key);
            }
        }
        explained = false;
    }
    (name, found)
}

fn crates() -> BTreeMap<String, Crate> {
    let entries = fs::read_dir(root().join("crates")).expect("the crates directory");
    entries.map(|e| e.expect("an entry").path()).filter(|p| p.is_dir()).map(read_crate).collect()
}

fn is_core(name: &str) -> bool {
    CORE_THIRD_PARTY.iter().any(|(core, _)| *core == name)
}

/// Package name -> names it depends on, from Cargo.lock: every target, every enabled feature.
fn lock_graph() -> BTreeMap<String, BTreeSet<String>> {
    let text = fs::read_to_string(root().join("Cargo.lock")).expect("Cargo.lock is committed");
    let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in text.split("[[package]]").skip(1) {
        let name = package.split("name = \"").nth(1).and_then(|s| s.split('"').next()).expect("a package has a name");
        let list = package.split("dependencies = [").nth(1).and_then(|s| s.split(']').next()).unwrap_or_default();
        let names = list.split('"').skip(1).step_by(2).filter_map(|s| s.split(' ').next()).map(str::to_owned);
        graph.entry(name.to_owned()).or_default().extend(names);
    }
    graph
}

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

#[test]
fn arrows_point_down_the_ladder_only() {
    let crates = crates();
    assert_eq!(crates.len(), LADDER.len(), "a crate came or went: decide its place in LADDER and in ARCHITECTURE.md");
    for (name, allowed) in LADDER {
        let found = crates.get(*name).unwrap_or_else(|| panic!("{name} is missing"));
        for dependency in found.normal.iter().filter(|d| d.starts_with("apus-")) {
            assert!(allowed.contains(&dependency.as_str()), "{name} must not depend on {dependency}");
        }
    }
}

#[test]
fn the_core_depends_on_almost_nothing() {
    let (crates, lock) = (crates(), lock_graph());
    for (name, allowed) in CORE_THIRD_PARTY {
        let found = &crates[*name];
        let third_party = || found.normal.iter().filter(|d| !d.starts_with("apus-"));
        for dependency in third_party() {
            assert!(allowed.contains(&dependency.as_str()), "{name} must not depend on {dependency}");
        }
        let (mut tree, mut open) = (BTreeSet::new(), third_party().cloned().collect::<Vec<_>>());
        while let Some(next) = open.pop() {
            open.extend(lock.get(&next).into_iter().flatten().filter(|d| !tree.contains(*d)).cloned());
            tree.insert(next);
        }
        for never in CORE_NEVER {
            assert!(!tree.contains(*never), "{never} came into the tree of {name}");
        }
        for dependency in &found.dev {
            let ours = dependency.starts_with("apus-");
            assert!(!ours || is_core(dependency), "{name} must not depend on {dependency}, not even for its tests");
            assert!(!CORE_NEVER.contains(&dependency.as_str()), "{name} must not test with {dependency}");
        }
    }
}

#[test]
fn every_third_party_dependency_says_why() {
    for (name, found) in crates() {
        assert!(found.unexplained.is_empty(), "{name}: no comment above {:?}", found.unexplained);
    }
}

#[test]
fn core_crates_have_the_core_lints() {
    let wanted = fs::read_to_string(root().join("clippy-core.toml")).expect("clippy-core.toml");
    for (name, found) in crates() {
        let own = fs::read_to_string(found.directory.join("clippy.toml")).ok();
        assert_eq!(own.is_some_and(|text| text == wanted), is_core(&name), "clippy.toml of {name}");
        let manifest = fs::read_to_string(found.directory.join("Cargo.toml")).expect("a manifest");
        assert!(manifest.contains("[lints]\nworkspace = true"), "{name} does not take the workspace's lints");
    }
}

#[test]
fn unsafe_stands_in_storage_and_runtime_only() {
    for found in crates().values() {
        let crate_directory = found.directory.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        let mut files = Vec::new();
        sources(&found.directory, &mut files);
        for file in files.iter().filter(|_| !UNSAFE_ALLOWED.contains(&crate_directory)) {
            let text = fs::read_to_string(file).expect("a source file");
            // Spelled in two halves, or this file would find itself.
            let excepted = ["allow", "expect"].iter().any(|word| text.contains(&format!("{word}(unsafe{}", "_code")));
            assert!(!excepted, "{} makes an exception for unsafe code", file.display());
        }
    }
}

#[test]
fn files_read_in_a_sitting_and_say_what_they_are() {
    for found in crates().values() {
        let mut files = Vec::new();
        sources(&found.directory, &mut files);
        for file in files {
            let text = fs::read_to_string(&file).expect("a source file");
            let lines = text.lines().count();
            assert!(lines <= LINES_MAX, "{} has {lines} lines: look for the second noun", file.display());
            assert!(text.starts_with("//! "), "{} does not begin by saying what it is", file.display());
        }
    }
}
