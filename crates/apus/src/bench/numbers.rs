//! Random numbers from a seed, latencies, and numbers as people read them.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Longest latency told apart; longer ones count as this.
const LATENCY_MAX_NS: u64 = 120_000_000_000;

/// A sequence of numbers from a seed (splitmix64): the same run asks for the same keys.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }
    #[inline]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// A number less than `bound`; 0 for bound 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// Latencies in nanoseconds, to three significant digits. Recording does not allocate.
pub struct Latencies(Histogram<u64>);

impl Latencies {
    pub fn new() -> Latencies {
        Latencies(Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).expect("constant bounds are valid"))
    }
    #[inline]
    pub fn record(&mut self, latency: Duration) {
        self.0.saturating_record(nanoseconds(latency));
    }
    pub fn merge(&mut self, other: &Latencies) {
        self.0.add(&other.0).expect("equal bounds");
    }
    /// The latency that this part of the requests did not exceed, in milliseconds.
    pub fn at_ms(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1e6
    }
    /// Half, 99 %, 99.9 % and all requests were answered within these times.
    pub fn summary(&self) -> String {
        let at = |q| micros(self.0.value_at_quantile(q));
        format!("p50 {} p99 {} p99.9 {} max {} us", at(0.5), at(0.99), at(0.999), micros(self.0.max()))
    }
}

fn micros(ns: u64) -> String {
    if ns < 100_000 { format!("{}.{}", ns / 1000, ns % 1000 / 100) } else { (ns / 1000).to_string() }
}

pub fn nanoseconds(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

/// So many per second; 0 for no time.
pub fn per_second(count: u64, time: Duration) -> u64 {
    u64::try_from(u128::from(count) * 1_000_000_000 / time.as_nanos().max(1)).unwrap_or(u64::MAX)
}

/// `1234567` as `1,234,567`.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_random_ones_stay_below() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(per_second(500, Duration::from_millis(250)), 2000);
        let mut random = Random::new(7);
        assert!((0..1000).all(|_| random.below(10) < 10));
        assert_eq!(random.below(0), 0);
        let (mut a, mut b) = (Random::new(1), Random::new(1));
        assert_eq!([a.next(), a.next()], [b.next(), b.next()]);
    }

    #[test]
    fn latencies_merge() {
        let (mut a, mut b) = (Latencies::new(), Latencies::new());
        a.record(Duration::from_micros(10));
        b.record(Duration::from_secs(1_000_000));
        a.merge(&b);
        assert!(a.summary().starts_with("p50 10.0 "), "{}", a.summary());
    }
}
