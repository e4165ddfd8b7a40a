//! A progress bar on standard error: in place on a terminal, a line at each quarter elsewhere.

use std::{
    io::{IsTerminal, Write},
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

use super::numbers::{grouped, per_second};

const WIDTH: u64 = 30;

pub struct Progress {
    what: &'static str,
    total: u64,
    done: AtomicU64,
    begin: Instant,
}

impl Progress {
    pub fn new(what: &'static str, total: u64) -> Progress {
        Progress { what, total: total.max(1), done: AtomicU64::new(0), begin: Instant::now() }
    }

    /// So many more are done.
    pub fn add(&self, count: u64) {
        let before = self.done.fetch_add(count, Ordering::Relaxed);
        let after = before + count;
        let (steps, is_terminal) = if std::io::stderr().is_terminal() { (200, true) } else { (4, false) };
        let step = |done: u64| done.min(self.total) * steps / self.total;
        if step(before) != step(after) {
            self.show(after, is_terminal);
        }
    }

    fn show(&self, done: u64, is_terminal: bool) {
        let filled = (done.min(self.total) * WIDTH / self.total) as usize;
        let bar = format!("{}{}", "#".repeat(filled), ".".repeat(WIDTH as usize - filled));
        let speed = grouped(per_second(done, self.begin.elapsed()));
        let text = format!("{} [{bar}] {} of about {}, {speed}/s", self.what, grouped(done), grouped(self.total));
        let (begin, end) = if is_terminal { ("\r", " ") } else { ("", "\n") };
        // Nobody reads it: no reason to stop.
        let _ = write!(std::io::stderr().lock(), "{begin}{text}{end}");
    }

    pub fn finish(&self) {
        let done = self.done.load(Ordering::Relaxed);
        let ends = if std::io::stderr().is_terminal() { "\r" } else { "" };
        eprintln!(
            "{ends}{}: {} in {:.1} s{}",
            self.what,
            grouped(done),
            self.begin.elapsed().as_secs_f64(),
            " ".repeat(50)
        );
    }
}
