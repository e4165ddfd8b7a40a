//! Keeps strangers from filling the log: a few lines per period, then a count.

use std::time::{Duration, Instant};

/// Lines per [`PERIOD`].
const LINES_MAX: u32 = 10;
const PERIOD: Duration = Duration::from_secs(10);

/// Rations the lines about one subject.
#[derive(Default)]
pub struct Quiet {
    since: Option<Instant>,
    said: u32,
    more: u64,
}

impl Quiet {
    /// Whether this line may be written; otherwise it is counted.
    pub fn may_say(&mut self, now: Instant) -> bool {
        if self.more == 0 && self.since.is_none_or(|since| now.duration_since(since) >= PERIOD) {
            (self.since, self.said) = (Some(now), 0);
        }
        let may = self.said < LINES_MAX;
        if may {
            self.said += 1;
        } else {
            self.more += 1;
        }
        may
    }
    /// Lines were counted that nobody has been told of.
    pub fn has_more(&self) -> bool {
        self.more > 0
    }
    /// At the end of a period: tells how many lines were not written.
    pub fn flush(&mut self, now: Instant, tell: impl FnOnce(u64)) {
        if self.more > 0 && self.since.is_some_and(|since| now.duration_since(since) >= PERIOD) {
            tell(std::mem::take(&mut self.more));
            self.since = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_a_few_lines_and_a_count() {
        let (mut quiet, start) = (Quiet::default(), Instant::now());
        let said = (0..1000).filter(|_| quiet.may_say(start)).count();
        assert_eq!(said, 10);
        quiet.flush(start, |_| panic!("too early"));
        let later = start + PERIOD;
        assert!(!quiet.may_say(later), "those that were not told come first");
        let mut told = 0;
        quiet.flush(later, |more| told = more);
        assert_eq!((told, quiet.has_more()), (991, false));
        assert!(quiet.may_say(later));
    }
}
