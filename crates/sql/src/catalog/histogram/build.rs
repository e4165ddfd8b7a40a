//! A histogram of a column's values and their counts, by MySQL's rules: one value per bucket where there are enough buckets, otherwise buckets of as few rows as possible.
//!
//! Buckets are filled in the order of values: a value goes into the next one if this one has rows and would be larger than a bound with it. The least bound with which the buckets
//! are enough is looked for by halves, [`STEPS`] times at most.

use super::{Bucket, Histogram};
use crate::value::json::Json;

/// Halvings of the bound.
const STEPS: usize = 10;

/// The values in order, each with the number of its rows; `nulls`: rows without one. What `about` says of itself is kept.
pub fn histogram(values: Vec<(Json, u64)>, nulls: u64, about: Histogram) -> Histogram {
    let total = (values.iter().map(|(_, count)| count).sum::<u64>() + nulls) as f64;
    let is_singleton = values.len() as u64 <= about.wanted;
    let mut histogram = Histogram { is_singleton, buckets: Vec::new(), nulls: 0.0, ..about };
    if total == 0.0 {
        return histogram;
    }
    histogram.nulls = nulls as f64 / total;
    let most = if is_singleton { 0 } else { bound(&values, histogram.wanted) };
    let mut left = values.len() as u64;
    let (mut sum, mut rows) = (0, 0);
    for (value, count) in values {
        let empty = histogram.wanted - histogram.buckets.len() as u64;
        sum += count;
        // One bucket for each value where that is enough for the rest.
        match histogram.buckets.last_mut() {
            Some(last) if rows + count <= most && left > empty => {
                rows += count;
                (last.high, last.cumulative) = (value, sum as f64 / total);
                last.distinct += 1;
            }
            _ => {
                rows = count;
                let cumulative = sum as f64 / total;
                histogram.buckets.push(Bucket { low: value.clone(), high: value, cumulative, distinct: 1 });
            }
        }
        left -= 1;
    }
    histogram
}

/// Rows of a bucket of several values.
fn bound(values: &[(Json, u64)], buckets: u64) -> u64 {
    let total = values.iter().map(|(_, count)| count).sum::<u64>();
    if buckets == 1 {
        return total;
    }
    // Two buckets side by side have more rows than the bound, so this one is enough.
    let (mut low, mut high) = (0, 2 * total / (buckets - 1) + 1);
    for _ in 0..STEPS {
        if high <= low + 1 {
            break;
        }
        let middle = (low + high) / 2;
        if fits(values, middle, buckets) { high = middle } else { low = middle }
    }
    high
}

fn fits(values: &[(Json, u64)], bound: u64, buckets: u64) -> bool {
    let (mut used, mut rows) = (1, 0);
    for (_, count) in values {
        if rows > 0 && rows + count > bound {
            (used, rows) = (used + 1, 0);
        }
        rows += count;
    }
    used <= buckets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(counts: &[u64], nulls: u64, wanted: u64) -> Vec<(i64, i64, f64, u64)> {
        let about = Histogram {
            is_singleton: false,
            buckets: Vec::new(),
            data_type: "int",
            collation: 8,
            nulls: 0.0,
            sampling_rate: 1.0,
            rows: 0,
            is_automatic: false,
            updated: 0,
            wanted,
        };
        let values = counts.iter().enumerate().map(|(at, &count)| (Json::Int(at as i64), count)).collect();
        let found = histogram(values, nulls, about);
        let number = |json: &Json| if let Json::Int(n) = json { *n } else { -1 };
        found.buckets.iter().map(|b| (number(&b.low), number(&b.high), b.cumulative, b.distinct)).collect()
    }

    #[test]
    fn buckets_are_as_even_as_the_values_let_them_be() {
        assert_eq!(made(&[1, 3], 0, 2), [(0, 0, 0.25, 1), (1, 1, 1.0, 1)]);
        assert_eq!(made(&[1, 1, 1, 1, 3, 1], 0, 2), [(0, 3, 0.5, 4), (4, 5, 1.0, 2)]);
        assert_eq!(
            made(&[1, 1, 100, 1, 1], 4, 3).iter().map(|b| (b.0, b.1)).collect::<Vec<_>>(),
            [(0, 1), (2, 2), (3, 4)]
        );
        assert_eq!(made(&[2, 2], 0, 1), [(0, 1, 1.0, 2)]);
        assert!(made(&[], 3, 5).is_empty());
        assert!(made(&[], 0, 5).is_empty());
    }
}
