//! `apus sim` without building the rest of the binary: `seed N [faults [values]]` (`-`: the faults that it drew) or `seed FROM COUNT`; one thread.

use std::{process::ExitCode, sync::LazyLock, time::Instant};

use apus_sim::runner::{Options, catch_panics, run_one, run_range};

/// CPU time of this process, as Linux tells it in hundredths of a second; where it does not, the wall clock (this has one thread).
fn cpu_seconds() -> f64 {
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    let ticks = || {
        let text = std::fs::read_to_string("/proc/self/stat").ok()?;
        let mut words = text.rsplit_once(')')?.1.split_whitespace().skip(11);
        Some(words.next()?.parse::<u64>().ok()? + words.next()?.parse::<u64>().ok()?)
    };
    ticks().map_or_else(|| BEGAN.elapsed().as_secs_f64(), |ticks| ticks as f64 / 100.0)
}

fn main() -> Result<ExitCode, String> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize| words.get(index).and_then(|word| word.parse::<u64>().ok());
    let from = number(0).ok_or("which seed?")?;
    let options = Options {
        from,
        count: number(1).unwrap_or(1),
        limit: None,
        threads: 1,
        twice: false,
        shrink_runs: 60,
        directory: std::env::temp_dir(),
        cpu_seconds,
    };
    catch_panics();
    let faults = words.get(1).map(String::as_str).filter(|text| *text != "-");
    let is_good = if number(1).is_some() {
        run_range(&options)?
    } else {
        run_one(&options, from, words.get(2).map_or("", String::as_str), faults)?
    };
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
