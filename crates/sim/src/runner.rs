//! Runs seeds for people: one to look at, or a range of them on all cores.
//!
//! A simulation is single threaded and depends on its seed only; threads take the next seed each. What fails is shrunk, written down
//! with the nodes' log and the dump of every worker, and can be repeated with the line that is printed.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    io::{IsTerminal, Write},
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use crate::{
    drill::{Failure, Report},
    probes::PROBES,
    promise,
    settings::Settings,
    shrink::shrink,
    totals::Totals,
    workload,
};

/// Failing seeds after which a range is given up.
const FAILURES_MAX: u64 = 10;

/// How seeds are run.
#[derive(Clone, Debug)]
pub struct Options {
    /// First seed of a range.
    pub from: u64,
    pub count: u64,
    /// Begin no further seed after this.
    pub limit: Option<Duration>,
    pub threads: usize,
    /// Run every seed twice and compare.
    pub twice: bool,
    /// Runs that may be spent on making a failing seed smaller.
    pub shrink_runs: usize,
    /// Where logs of failing seeds are written.
    pub directory: PathBuf,
    /// CPU time of this process so far.
    pub cpu_seconds: fn() -> f64,
}

thread_local! {
    /// Where the last panic of this thread came from.
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// From now on a panic is a result, not a message.
pub fn catch_panics() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(|l| format!(" at {}:{}", l.file(), l.line())).unwrap_or_default();
        PANIC.with_borrow_mut(|text| *text = place);
    }));
}

fn simulate(settings: &Settings) -> Result<Report, Failure> {
    workload::run(settings).map_err(|mut failure| {
        if failure.what.starts_with("panic: ") {
            failure.what.push_str(&PANIC.with_borrow(String::clone));
        }
        failure
    })
}

/// The line that repeats a run.
fn command(settings: &Settings) -> String {
    let drawn = Settings::from_seed(settings.seed);
    let mut line = format!("apus sim --seed {}", settings.seed);
    let set = settings.difference(&drawn);
    if !set.is_empty() {
        line.push_str(&format!(" --set '{set}'"));
    }
    if settings.schedule != drawn.schedule {
        line.push_str(&format!(" --faults '{}'", settings.schedule));
    }
    line
}

/// Runs one seed, with other values and faults than it drew where they are given; false: it failed.
///
/// # Errors
/// What was given is not understood, or a file cannot be written.
pub fn run_one(options: &Options, seed: u64, values: &str, faults: Option<&str>) -> Result<bool, String> {
    let mut settings = Settings::from_seed(seed);
    settings.set(values)?;
    if let Some(text) = faults {
        settings.schedule = text.parse()?;
    }
    print!("seed      {seed}\n{settings}");
    for round in &settings.schedule.0 {
        if let Some(reason) = promise::refusal(&settings, round) {
            println!("beware    `{round}` is not within the promise: {reason}");
        }
    }
    let began = Instant::now();
    let outcome = simulate(&settings);
    let seconds = began.elapsed().as_secs_f64();
    if options.twice && outcome.as_ref().ok() != simulate(&settings).ok().as_ref() {
        println!("FAILED    two runs of the same seed differ");
        return Ok(false);
    }
    match outcome {
        Ok(report) => {
            print_report(&report, seconds);
            Ok(true)
        }
        Err(failure) => {
            println!("FAILED    {}", failure.what);
            investigate(options, &settings, failure)?;
            Ok(false)
        }
    }
}

fn print_report(report: &Report, seconds: f64) {
    let list = |map: &BTreeMap<&str, u64>| map.iter().map(|(k, n)| format!("{k} {n}")).collect::<Vec<_>>().join(", ");
    println!(
        "time      {:.3} virtual seconds in {seconds:.2} s ({:.0} per second)",
        report.virtual_ms as f64 / 1000.0,
        report.virtual_ms as f64 / 1000.0 / seconds.max(1e-9),
    );
    println!("faults    {}", list(&report.faults));
    println!("commits   {} acknowledged, {} of unknown outcome", report.transfers, report.unresolved);
    println!("schema    {} changes acknowledged", report.schema_changes);
    println!("errors    {:?}", report.retries);
    println!("audits    {} passed", report.audits);
    println!("histories {} judged, {} undecided", report.histories, report.undecided.len());
    report.undecided.iter().for_each(|what| println!("undecided {what}"));
    println!("probes    {}", list(&report.probes));
    println!("hash: {:016x}", report.hash);
}

/// Makes the failing run smaller, writes it down and says how to repeat it.
fn investigate(options: &Options, settings: &Settings, failure: Failure) -> Result<(), String> {
    let (small, failure) = shrink(settings, failure, options.shrink_runs, |candidate| simulate(candidate).map(drop));
    let path = options.directory.join(format!("apus-sim-{}.txt", settings.seed));
    write_down(&path, &small, &failure).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    println!("shrunk to a run of {} virtual ms: {}", failure.virtual_ms, failure.what);
    print!("{small}");
    println!("log and dumps: {}", path.display());
    println!("repeat: {}", command(&small));
    println!("repeat the whole: {}", command(settings));
    Ok(())
}

fn write_down(path: &Path, settings: &Settings, failure: &Failure) -> std::io::Result<()> {
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    writeln!(file, "{}\n{}\n{settings}\n{}", command(settings), failure.what, failure.details)?;
    file.flush()
}

/// What threads share.
struct Range {
    next: AtomicU64,
    end: u64,
    deadline: Option<Instant>,
    enough: AtomicBool,
    totals: Mutex<Totals>,
    failures: Mutex<BTreeMap<u64, Failure>>,
}

/// Runs a range of seeds; false: some failed.
///
/// # Errors
/// A file cannot be written.
pub fn run_range(options: &Options) -> Result<bool, String> {
    let threads = options.threads.max(1);
    let range = Range {
        next: AtomicU64::new(options.from),
        end: options.from.saturating_add(options.count),
        deadline: options.limit.map(|limit| Instant::now() + limit),
        enough: AtomicBool::new(false),
        totals: Mutex::default(),
        failures: Mutex::default(),
    };
    println!("from      {}", options.from);
    let began = Instant::now();
    let cpu = (options.cpu_seconds)();
    std::thread::scope(|scope| {
        let (done, is_done) = mpsc::channel::<()>();
        for _ in 0..threads {
            let done = done.clone();
            let range = &range;
            scope.spawn(move || {
                work(options, range);
                drop(done);
            });
        }
        drop(done);
        show_progress(&range, began, &is_done);
    });
    let totals = range.totals.into_inner().map_err(|e| e.to_string())?;
    print!("{totals}");
    print_probes(&totals);
    let cpu = ((options.cpu_seconds)() - cpu).max(1e-9);
    println!(
        "speed     {:.1} faults and {:.0} simulated seconds per CPU second, {:.0} commits per fault, {:.1} seeds per second on \
         {threads} thread(s), {:.1} s in all",
        totals.fault_count() as f64 / cpu,
        totals.virtual_seconds() / cpu,
        totals.commits as f64 / totals.fault_count().max(1) as f64,
        totals.seeds as f64 / began.elapsed().as_secs_f64(),
        began.elapsed().as_secs_f64(),
    );
    let failures = range.failures.into_inner().map_err(|e| e.to_string())?;
    let Some((seed, failure)) = failures.into_iter().next() else { return Ok(true) };
    println!("FAILED    seed {seed}: {}", failure.what);
    investigate(options, &Settings::from_seed(seed), failure)?;
    Ok(false)
}

fn work(options: &Options, range: &Range) {
    loop {
        let late = range.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        if late || range.enough.load(Ordering::Relaxed) {
            return;
        }
        let seed = range.next.fetch_add(1, Ordering::Relaxed);
        if seed >= range.end {
            return;
        }
        let settings = Settings::from_seed(seed);
        let mut outcome = simulate(&settings);
        if options.twice
            && let Ok(first) = &outcome
            && simulate(&settings).ok().as_ref() != Some(first)
        {
            let what = "two runs of the same seed differ".to_owned();
            outcome = Err(Failure { what, details: String::new(), virtual_ms: first.virtual_ms });
        }
        if let Ok(mut totals) = range.totals.lock() {
            totals.add(&outcome);
            range.enough.fetch_or(totals.failed >= FAILURES_MAX, Ordering::Relaxed);
        }
        for what in outcome.iter().flat_map(|report| &report.undecided) {
            println!("seed {seed} undecided: {what}");
        }
        if let Err(failure) = outcome {
            println!(
                "seed {seed} failed: {}\n  apus sim --seed {seed}",
                failure.what.lines().next().unwrap_or_default()
            );
            if let Ok(mut failures) = range.failures.lock() {
                failures.insert(seed, failure);
            }
        }
    }
}

/// A line that is written over where somebody looks, one every half minute where a file grows; ends when all threads did.
fn show_progress(range: &Range, began: Instant, is_done: &mpsc::Receiver<()>) {
    let is_seen = std::io::stderr().is_terminal();
    let pause = Duration::from_millis(if is_seen { 500 } else { 30_000 });
    while is_done.recv_timeout(pause) == Err(mpsc::RecvTimeoutError::Timeout) {
        let Ok(totals) = range.totals.lock() else { return };
        let line = format!(
            "{:.0} s: {} seeds, {} failed, {} faults, {} commits",
            began.elapsed().as_secs_f64(),
            totals.seeds,
            totals.failed,
            totals.fault_count(),
            totals.commits
        );
        if is_seen {
            eprint!("\r{line}\x1b[K");
        } else {
            eprintln!("{line}");
        }
    }
    if is_seen {
        eprint!("\r\x1b[K");
    }
}

fn print_probes(totals: &Totals) {
    let list: Vec<String> = totals.probes.iter().map(|(name, n)| format!("{name} {n}")).collect();
    println!("probes    {}", list.join(", "));
    let missed: Vec<&str> = PROBES.iter().copied().filter(|name| !totals.probes.contains_key(name)).collect();
    println!("reached   {} of {} probes; never: {}", PROBES.len() - missed.len(), PROBES.len(), missed.join(", "));
}
