//! The crash report: everything that is needed to understand a failed invariant without the process.

use std::fmt::Write;

use crate::Worker;

/// Why a report is written.
#[derive(Clone, Debug, Default)]
pub struct CrashCause<'a> {
    /// Panic message or reason of the stop, with its place in the code.
    pub reason: &'a str,
    pub backtrace: &'a str,
    /// Version and build id.
    pub build: &'a str,
    /// Wall clock, formatted by the executor.
    pub time: &'a str,
}

impl Worker {
    /// Renders the report. Jams and signals are listed oldest first: the end is where it happened.
    pub fn crash_report(&self, cause: &CrashCause<'_>) -> String {
        let mut out = String::with_capacity(1 << 20);
        let config = self.core.config;
        let _ = writeln!(out, "Apus crash report\ntime: {}\nbuild: {}", cause.time, cause.build);
        let _ = writeln!(out, "node {} worker {} of {}", config.node, config.worker, config.instances);
        let _ =
            writeln!(out, "incarnation {:x}, epoch {}, now {} ns", config.incarnation, self.core.epoch, self.core.now);
        let _ = writeln!(out, "reason: {}\n\n== backtrace\n{}", cause.reason, cause.backtrace);
        out.push_str("\n== counters\n");
        self.write_counters(&mut out);
        self.write_trail(&mut out);
        out.push_str("\n== blocks\n");
        self.dump(&mut out);
        out
    }

    /// The last code points and signals, oldest first. Reads nothing but two rings of plain values, so that the worker's thread can write it
    /// in the middle of anything.
    pub fn write_trail(&self, out: &mut String) {
        out.push_str("\n== jams, oldest first\n");
        self.write_jams(out);
        out.push_str("\n== signals, oldest first: ns kind from -> to, epoch, trace, body bytes: fields (of a body that was cut: those that are left, or bytes)\n");
        for s in self.core.signals.iter() {
            let e = &s.envelope;
            let (at, bytes) = (s.at_ns, s.body_bytes);
            let _ = write!(out, "{at} {:?} {:?} -> {:?} {} {:x} {bytes}:", e.kind, e.from, e.to, e.epoch, e.trace);
            if s.body().len() < bytes as usize {
                out.push_str(" (cut)");
            }
            match apus_signal::describe(e.kind, s.body()) {
                Some(fields) => {
                    let _ = write!(out, " {fields}");
                }
                None => s.body().iter().for_each(|byte| {
                    let _ = write!(out, "{byte:02x}");
                }),
            }
            out.push('\n');
        }
    }

    pub(crate) fn write_counters(&self, out: &mut String) {
        for (name, value) in self.core.counters.each() {
            let _ = writeln!(out, "{name} {value}");
        }
        for (name, value) in self.core.faults.probes() {
            let _ = writeln!(out, "probe {name}: {value}");
        }
        let (timers, unsent) = (self.core.timers.count(), self.core.links.unsent_total());
        let _ = writeln!(out, "timers {timers}, job bytes {}, unsent bytes {unsent}", self.job_bytes());
    }

    fn write_jams(&self, out: &mut String) {
        let mut last = ("", 0);
        for point in self.core.jam.iter() {
            if point.file != last.0 {
                let _ = write!(out, "\n{}:", point.file);
            }
            let _ = write!(out, " {}", point.line);
            last = (point.file, point.line);
        }
        out.push('\n');
    }
}
