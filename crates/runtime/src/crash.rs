//! Panics become crash reports, then the process is gone.
//!
//! The hook runs where the panic happened and keeps message and backtrace; the thread's own code, which holds the worker, catches the
//! unwinding, writes the report and aborts. A thread without a worker reports what the hook kept.

use std::{
    backtrace::Backtrace,
    cell::RefCell,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Once,
    thread,
};

use apus_kernel::{CrashCause, Worker};

use crate::{config::DataNodeConfig, executor::unix_micros, log, trail};

thread_local! {
    static LAST: RefCell<(String, String)> = const { RefCell::new((String::new(), String::new())) };
    static REPORTS: RefCell<bool> = const { RefCell::new(false) };
}
static HOOK: Once = Once::new();

/// Threads started by [`spawn`] and workers keep their panics for the report; all others panic as before.
pub fn install_hook() {
    HOOK.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !REPORTS.with(|r| *r.borrow()) {
                return previous(info);
            }
            let kept = (info.to_string(), Backtrace::force_capture().to_string());
            LAST.with(|last| {
                if let Ok(mut last) = last.try_borrow_mut() {
                    *last = kept;
                }
            });
        }));
    });
}

/// Runs a worker's thread; a panic in it ends the process.
pub fn guard_worker<T>(
    config: &DataNodeConfig,
    state: &mut T,
    run: impl FnOnce(&mut T),
    last_words: impl FnOnce(&mut T),
    worker: impl Fn(&T) -> &Worker,
) {
    REPORTS.with(|r| *r.borrow_mut() = true);
    if catch_unwind(AssertUnwindSafe(|| run(state))).is_err() {
        let _ = catch_unwind(AssertUnwindSafe(|| last_words(state)));
        die(config, |cause| {
            catch_unwind(AssertUnwindSafe(|| worker(state).crash_report(cause)))
                .unwrap_or_else(|_| format!("{cause:?}\n(the report itself failed)"))
        });
    }
}

/// Starts a thread without a worker; a panic in it ends the process just the same.
pub fn spawn(config: &DataNodeConfig, name: String, run: impl FnOnce() + Send + 'static) {
    let config = config.clone();
    let started = thread::Builder::new().name(name).spawn(move || {
        REPORTS.with(|r| *r.borrow_mut() = true);
        if catch_unwind(AssertUnwindSafe(run)).is_err() {
            die(&config, |c| {
                format!(
                    "Apus crash report\ntime: {}\nbuild: {}\nreason: {}\n{}\n",
                    c.time, c.build, c.reason, c.backtrace
                )
            });
        }
    });
    started.expect("the operating system gives no thread");
}

/// Ends a node of which a data worker is stuck; `reason` says which and for how long, `control` is the worker that found it.
pub fn end_for_stuck(
    config: &DataNodeConfig,
    stuck: u8,
    thread: Option<trail::Thread>,
    reason: &str,
    control: &Worker,
) -> ! {
    let told = thread.and_then(trail::ask).unwrap_or_else(|| "its thread did not answer in time".to_owned());
    LAST.with(|last| *last.borrow_mut() = (reason.to_owned(), String::new()));
    die(config, |cause| {
        let report = control.crash_report(cause);
        format!("{report}\n== worker {stuck}, which is stuck\n{told}\n")
    })
}

fn die(config: &DataNodeConfig, render: impl FnOnce(&CrashCause<'_>) -> String) -> ! {
    let (reason, backtrace) = LAST.with(RefCell::take);
    let micros = unix_micros();
    let time = format_utc(micros);
    let report = render(&CrashCause { reason: &reason, backtrace: &backtrace, build: &config.build, time: &time });
    let path = config.dir.join(format!("crash-{}-{}.txt", config.node, micros));
    let written = fs::create_dir_all(&config.dir).and_then(|()| fs::write(&path, &report));
    // stderr may be a pipe that nobody reads: the process ends all the same, and soon.
    log::line(format!("node {} crashed: {reason}", config.node));
    log::whole(backtrace);
    match written {
        Ok(()) => log::line(format!("crash report: {}", path.display())),
        Err(e) => log::whole(format!("no file for the crash report ({e}):\n{report}")),
    }
    log::flush();
    std::process::abort()
}

/// ISO 8601.
fn format_utc(micros: i64) -> String {
    let seconds = micros.div_euclid(1_000_000);
    let (year, month, day) = apus_types::time::civil_from_days(seconds.div_euclid(86_400));
    let of_day = seconds.rem_euclid(86_400);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:06}Z", micros.rem_euclid(1_000_000))
}
