//! Log lines on their way to stderr: nobody who logs ever waits for who reads.
//!
//! stderr may be a pipe that nobody empties, and then a write to it blocks. Workers and other threads put their lines into a ring of
//! [`LINES_MAX`] lines; one thread of the process writes them. A line that finds the ring full is dropped and counted, and the writer says how
//! many were, once there is room again. A panic of the writer, or a stderr that is closed, costs the lines and nothing else.

use std::{
    collections::VecDeque,
    io::Write,
    sync::{Condvar, Mutex, OnceLock, PoisonError},
    thread,
    time::Duration,
};

use crate::shared::lock;

/// Lines that wait for the writer at most; one is a few hundred bytes.
const LINES_MAX: usize = 4096;
/// A longer line is cut.
const LINE_BYTES_MAX: usize = 4096;
/// The end of the process waits so long for the lines that are left.
const LAST_WORDS: Duration = Duration::from_millis(200);

#[derive(Default)]
struct Ring {
    lines: VecDeque<String>,
    dropped: u64,
    /// The writer has taken lines and not written them all yet.
    is_writing: bool,
}

/// A bounded queue of lines and the thread that writes them.
pub struct Log {
    ring: Mutex<Ring>,
    /// There is something to write, or all has been written.
    changed: Condvar,
}

impl Log {
    /// Starts the writer. `out` may block as long as it likes.
    fn start(mut out: impl Write + Send + 'static) -> &'static Log {
        let log: &'static Log = Box::leak(Box::new(Log { ring: Mutex::default(), changed: Condvar::new() }));
        // Without a thread lines are dropped once the ring is full.
        let _ = thread::Builder::new().name("log".to_owned()).spawn(move || log.write_all(&mut out));
        log
    }

    fn write_all(&self, out: &mut impl Write) {
        loop {
            let (lines, dropped) = self.next();
            let mut text = String::new();
            for line in lines {
                text.push_str(&line);
                text.push('\n');
            }
            if dropped > 0 {
                text.push_str(&format!("{dropped} log lines were dropped: stderr was not read\n"));
            }
            let _ = out.write_all(text.as_bytes());
            lock(&self.ring).is_writing = false;
            self.changed.notify_all();
        }
    }

    fn next(&self) -> (VecDeque<String>, u64) {
        let mut ring = lock(&self.ring);
        while ring.lines.is_empty() {
            ring = self.changed.wait(ring).unwrap_or_else(PoisonError::into_inner);
        }
        ring.is_writing = true;
        (std::mem::take(&mut ring.lines), std::mem::take(&mut ring.dropped))
    }

    /// Never waits for anything but the lock of the ring, which is held for moments.
    fn put(&self, mut line: String) {
        if line.len() > LINE_BYTES_MAX {
            let cut = (0..=LINE_BYTES_MAX).rev().find(|at| line.is_char_boundary(*at)).unwrap_or(0);
            line.truncate(cut);
            line.push_str(" ...");
        }
        let mut ring = lock(&self.ring);
        if ring.lines.len() < LINES_MAX {
            ring.lines.push_back(line);
        } else {
            ring.dropped += 1;
        }
        drop(ring);
        self.changed.notify_all();
    }

    /// Waits until all has been written, at most `patience`.
    fn flush(&self, patience: Duration) {
        let ring = lock(&self.ring);
        let busy = |ring: &mut Ring| !ring.lines.is_empty() || ring.is_writing;
        drop(self.changed.wait_timeout_while(ring, patience, busy));
    }
}

fn stderr() -> &'static Log {
    static LOG: OnceLock<&'static Log> = OnceLock::new();
    LOG.get_or_init(|| Log::start(std::io::stderr()))
}

/// A line for stderr; it never blocks.
pub fn line(text: String) {
    stderr().put(text);
}

/// The last words of a process, of any length.
pub fn whole(text: String) {
    let log = stderr();
    lock(&log.ring).lines.push_back(text);
    log.changed.notify_all();
}

/// Before the process ends: what was said is written if somebody reads it.
pub fn flush() {
    stderr().flush(LAST_WORDS);
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};

    use super::*;

    /// A pipe that nobody reads until it is told to.
    struct Stuffed {
        gate: mpsc::Receiver<()>,
        got: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Stuffed {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let _ = self.gate.recv();
            lock(&self.got).extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn nobody_waits_for_a_log_that_is_not_read() {
        let (open, gate) = mpsc::channel();
        let got = Arc::<Mutex<Vec<u8>>>::default();
        let log = Log::start(Stuffed { gate, got: Arc::clone(&got) });
        for i in 0..3 * LINES_MAX {
            log.put(format!("line {i}"));
        }
        log.put("x".repeat(2 * LINE_BYTES_MAX));
        log.flush(Duration::from_millis(1)); // gives up
        drop(open); // from here on the pipe is read
        log.flush(Duration::from_secs(20));
        log.put("room again".to_owned());
        log.flush(Duration::from_secs(20));
        let text = String::from_utf8(std::mem::take(&mut *lock(&got))).expect("text");
        let lines = text.lines().count();
        assert!(text.starts_with("line 0\n") && lines <= 2 * LINES_MAX + 4, "{lines} lines");
        assert!(
            text.contains("log lines were dropped: stderr was not read") && text.contains("room again"),
            "{lines} lines"
        );
    }
}
