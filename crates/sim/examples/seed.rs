//! `apus sim` without building the rest of the binary: `seed N [faults [values]]` (`-`: the faults that it drew) or `seed FROM COUNT`; one thread.

use std::{process::ExitCode, sync::LazyLock, time::Instant};

use apus_sim::runner::{Options, catch_panics, run_one, run_range};

/// Wall clock in the place of CPU time: this has one thread.
static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

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
        cpu_seconds: || BEGAN.elapsed().as_secs_f64(),
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
