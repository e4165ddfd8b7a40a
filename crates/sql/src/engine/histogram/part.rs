//! How many of a column's rows satisfy a condition, by its histogram: exact where a value has a bucket of its own; within a bucket of several the rows are taken to be spread evenly.

use std::cmp::Ordering;

use apus_types::{
    ColumnType, Value,
    time::{unpack_date, unpack_datetime},
};

use super::{Histogram, Kept};
use crate::{
    engine::expr::{decimal, temporal},
    json::{Json, compare},
};

/// A value in a form that is compared fast: numbers and moments as numbers, texts by their collation's sort key.
#[derive(Clone, PartialEq, Debug)]
pub enum Point {
    Number(f64),
    Text(Vec<u8>),
}

/// Both ends of each bucket.
pub type Ends = Vec<(Point, Point)>;

impl Point {
    fn cmp(&self, other: &Point) -> Ordering {
        match (self, other) {
            (Point::Number(a), Point::Number(b)) => a.total_cmp(b),
            (Point::Text(a), Point::Text(b)) => a.cmp(b),
            (Point::Number(_), Point::Text(_)) => Ordering::Less,
            (Point::Text(_), Point::Number(_)) => Ordering::Greater,
        }
    }

    /// Where it lies between two others, 0 to 1.
    fn between(&self, low: &Point, high: &Point) -> f64 {
        let (at, low, high) = match (self, low, high) {
            (Point::Number(at), Point::Number(low), Point::Number(high)) => (*at, *low, *high),
            (Point::Text(at), Point::Text(low), Point::Text(high)) => {
                let same = low.iter().zip(high).take_while(|(a, b)| a == b).count();
                let number = |text: &[u8]| {
                    let mut bytes = [0; 8];
                    let rest = text.get(same..).unwrap_or(&[]);
                    bytes.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
                    u64::from_be_bytes(bytes) as f64
                };
                (number(at), number(low), number(high))
            }
            _ => return 0.5,
        };
        if high > low { ((at - low) / (high - low)).clamp(0.0, 1.0) } else { 0.5 }
    }
}

/// A value of a column, as it is stored or as what an index bound says; `None`: NULL, or it has no order.
pub fn point(ty: ColumnType, value: &Value<'_>) -> Option<Point> {
    let day = |civil: apus_types::time::Civil| temporal::day_number(&civil) as f64;
    Some(match value {
        Value::Int(n) => Point::Number(*n as f64),
        Value::UInt(n) => Point::Number(*n as f64),
        Value::Decimal { unscaled, scale } => Point::Number(decimal::to_f64(*unscaled, *scale)),
        Value::Float(x) => Point::Number(f64::from(*x)),
        Value::Double(x) => Point::Number(*x),
        Value::Date(packed) => {
            let (year, month, day_of_month) = unpack_date(*packed);
            Point::Number(day(apus_types::time::Civil { year, month, day: day_of_month, ..Default::default() }))
        }
        Value::DateTime(packed) => {
            let civil = unpack_datetime(*packed);
            Point::Number(day(civil) * 86_400e6 + temporal::time_of_day(&civil) as f64)
        }
        Value::Timestamp(micros) => {
            let civil = temporal::timestamp_to_civil(*micros, crate::engine::expr::zone::Zone::UTC);
            Point::Number(day(civil) * 86_400e6 + temporal::time_of_day(&civil) as f64)
        }
        Value::Time(micros) => Point::Number(*micros as f64),
        Value::Bytes(bytes) => {
            let mut key = Vec::new();
            match ty.collation() {
                Some(collation) => collation.sort_key(bytes, &mut |piece: &[u8]| key.extend_from_slice(piece)),
                None => key.extend_from_slice(bytes),
            }
            Point::Text(key)
        }
        _ => return None,
    })
}

/// A value of a document.
fn point_of(ty: ColumnType, value: &Json) -> Option<Point> {
    match value {
        Json::Opaque(_, bytes) => point(ty, &Value::Bytes(bytes)),
        Json::Date(packed) => point(ty, &Value::Date(*packed)),
        Json::DateTime(packed, _) => point(ty, &Value::DateTime(*packed)),
        Json::Time(micros) => Some(Point::Number(*micros as f64)),
        other => compare::number(other).map(|n| Point::Number(n.to_f64())),
    }
}

/// Which of two values of a document is greater, as values of a column.
pub fn order(ty: ColumnType, a: &Json, b: &Json) -> Ordering {
    match (compare::number(a), compare::number(b)) {
        (Some(a), Some(b)) => a.compare(b),
        _ => match (point_of(ty, a), point_of(ty, b)) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => Ordering::Equal,
        },
    }
}

impl Kept {
    fn ends(&self, ty: ColumnType) -> &Ends {
        self.ends.get_or_init(|| {
            let of = |value: &Json| point_of(ty, value).unwrap_or(Point::Number(0.0));
            self.definition.histogram.buckets.iter().map(|b| (of(&b.low), of(&b.high))).collect()
        })
    }

    fn histogram(&self) -> &Histogram {
        &self.definition.histogram
    }

    pub fn nulls(&self) -> f64 {
        self.histogram().nulls
    }

    /// Different values.
    pub fn distinct(&self) -> u64 {
        self.histogram().buckets.iter().map(|b| b.distinct).sum()
    }

    /// Part of all rows in a bucket, and in those before it.
    fn rows_at(&self, at: usize) -> (f64, f64) {
        let buckets = &self.histogram().buckets;
        let before = at.checked_sub(1).map_or(0.0, |last| buckets[last].cumulative);
        (buckets[at].cumulative - before, before)
    }

    /// Part of all rows that have this value.
    pub fn equal(&self, ty: ColumnType, value: &Point) -> f64 {
        let ends = self.ends(ty);
        let at = ends.partition_point(|(_, high)| high.cmp(value).is_lt());
        match ends.get(at) {
            Some((low, _)) if low.cmp(value).is_le() => {
                self.rows_at(at).0 / self.histogram().buckets[at].distinct.max(1) as f64
            }
            _ => 0.0,
        }
    }

    /// Part of all rows that have a smaller one.
    pub fn less(&self, ty: ColumnType, value: &Point) -> f64 {
        let ends = self.ends(ty);
        let at = ends.partition_point(|(_, high)| high.cmp(value).is_lt());
        let Some((low, high)) = ends.get(at) else { return 1.0 - self.nulls() };
        let (rows, before) = self.rows_at(at);
        if low.cmp(value).is_lt() { before + rows * value.between(low, high) } else { before }
    }

    /// Part of all rows that have a greater one.
    pub fn greater(&self, ty: ColumnType, value: &Point) -> f64 {
        let ends = self.ends(ty);
        let at = ends.partition_point(|(_, high)| high.cmp(value).is_le());
        let Some((low, high)) = ends.get(at) else { return 0.0 };
        let (rows, before) = self.rows_at(at);
        let behind = (1.0 - self.nulls() - before - rows).max(0.0);
        let within = if low.cmp(value).is_le() { 1.0 - value.between(low, high) } else { 1.0 };
        behind + rows * within
    }
}
