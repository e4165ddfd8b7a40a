//! How many of a column's rows satisfy a condition, by its histogram: exact where a value has a bucket of its own; within a bucket of several the rows are taken to be spread evenly.

use std::{cmp::Ordering, sync::Arc};

use apus_types::{
    ColumnType, RowLayout, Value,
    time::{unpack_date, unpack_datetime},
};

use super::{Histogram, Kept};
use crate::{
    expr::{
        CompareOp, Context, Env, Expr,
        assign::{
            self,
            index_key::{self, KeyValue},
        },
        func::Func,
    },
    value::{
        datum::Datum,
        decimal,
        json::{Json, compare},
        temporal,
        zone::Zone,
    },
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

    /// How far it is from another, up to a third one, of the way between these: 0 to 1. `step`: between neighbours.
    fn distance(&self, low: &Point, high: &Point, step: f64) -> (f64, f64) {
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
            _ => return (0.5, 0.5),
        };
        let way = high - low + step;
        if way <= 0.0 {
            return (0.5, 0.5);
        }
        (((at - low) / way).clamp(0.0, 1.0), ((high - at) / way).clamp(0.0, 1.0))
    }
}

/// Between neighbours of a column of whole numbers; others have none.
fn step(ty: ColumnType) -> f64 {
    let is_whole = matches!(ty.stored(), ColumnType::Int { .. } | ColumnType::Year | ColumnType::Date);
    f64::from(u8::from(is_whole))
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
            let civil = temporal::timestamp_to_civil(*micros, Zone::UTC);
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

/// What a constant is beside a column.
enum Beside {
    At(Point),
    /// Between two values of the column; the lower one.
    Behind(Point),
    BelowAll,
    AboveAll,
    Null,
}

fn beside(ty: ColumnType, constant: &Expr) -> Option<Beside> {
    let of = |value: &Datum<'_>| point(ty, &assign::stored(ty, value));
    let is_computed = |e: &Expr| matches!(e, Expr::Const(_) | Expr::Cast(..) | Expr::Negate(_) | Expr::Arith(..));
    let is_moved = |e: &Expr| matches!(e, Expr::Call(Func::DateAdd | Func::DateSub, ..));
    if constant.any(|e| !is_computed(e) && !is_moved(e)) {
        return None;
    }
    let value = match constant {
        Expr::Const(value) => value.clone(),
        computed => {
            let (layout, env) = (RowLayout::new([]), Env::new(String::new(), String::new(), 0, 0, Arc::default()));
            let (row, params, aggregates, given) = (&[][..], &[][..], &[][..], &[][..]);
            let cx = Context { layout: &layout, row, new_row: None, params, aggregates, given, env: &env };
            computed.eval(&cx).ok()?.into_owned()
        }
    };
    Some(match index_key::key_value(ty, value, Zone::UTC) {
        KeyValue::Exact(value) => Beside::At(of(&value)?),
        KeyValue::Above(value) => Beside::Behind(of(&value)?),
        KeyValue::Never => Beside::Null,
        KeyValue::BelowAll => Beside::BelowAll,
        KeyValue::AboveAll => Beside::AboveAll,
        KeyValue::Unusable => return None,
    })
}

/// Part of a table's rows that satisfy a condition on one column; `histogram`: that of a column, if there is one.
pub fn of_condition<'h>(e: &Expr, histogram: &impl Fn(u16) -> Option<&'h Kept>) -> Option<f64> {
    let column = |e: &Expr| match e {
        Expr::Column(c) => histogram(c.slot).map(|kept| (kept, c.ty)),
        _ => None,
    };
    match e {
        Expr::Not(e) => {
            let Expr::Compare(op, a, b, collation) = &**e else { return None };
            let other = Expr::Compare(op.negated(), a.clone(), b.clone(), *collation);
            of_condition(&other, histogram)
        }
        Expr::Compare(op, a, b, _) => {
            let ((kept, ty), op, constant) = match (column(a), column(b)) {
                (Some(found), None) => (found, *op, b),
                (None, Some(found)) => (found, op.flipped(), a),
                _ => return None,
            };
            Some(kept.compared(ty, op, &beside(ty, constant)?))
        }
        Expr::NullSafeEq(a, b, _) => {
            let ((kept, ty), constant) = match (column(a), column(b)) {
                (Some(found), None) => (found, b),
                (None, Some(found)) => (found, a),
                _ => return None,
            };
            match beside(ty, constant)? {
                Beside::Null => Some(kept.nulls()),
                value => Some(kept.compared(ty, CompareOp::Eq, &value)),
            }
        }
        Expr::IsNull { expr, negated } => {
            let (kept, _) = column(expr)?;
            Some(if *negated { 1.0 - kept.nulls() } else { kept.nulls() })
        }
        Expr::Between { expr, low, high, negated, .. } => {
            let (kept, ty) = column(expr)?;
            let below = kept.compared(ty, CompareOp::Lt, &beside(ty, low)?);
            let above = kept.compared(ty, CompareOp::Gt, &beside(ty, high)?);
            let outside = (below + above).min(1.0 - kept.nulls());
            Some(if *negated { outside } else { 1.0 - kept.nulls() - outside })
        }
        Expr::In { expr, list, negated, .. } => {
            let (kept, ty) = column(expr)?;
            let mut within = 0.0;
            for constant in list {
                within += kept.compared(ty, CompareOp::Eq, &beside(ty, constant)?);
            }
            let within = within.min(1.0 - kept.nulls());
            Some(if *negated { 1.0 - kept.nulls() - within } else { within })
        }
        _ => None,
    }
}

impl Kept {
    /// Part of all rows whose value is so beside a constant.
    fn compared(&self, ty: ColumnType, op: CompareOp, value: &Beside) -> f64 {
        let values = 1.0 - self.nulls();
        let (less, equal, greater) = match value {
            Beside::Null => return 0.0,
            Beside::BelowAll => (0.0, 0.0, values),
            Beside::AboveAll => (values, 0.0, 0.0),
            Beside::At(point) => (self.less(ty, point), self.equal(ty, point), self.greater(ty, point)),
            Beside::Behind(point) => {
                let greater = self.greater(ty, point);
                (values - greater, 0.0, greater)
            }
        };
        match op {
            CompareOp::Eq => equal,
            CompareOp::NotEq => values - equal,
            CompareOp::Lt => less,
            CompareOp::LtEq => values - greater,
            CompareOp::Gt => greater,
            CompareOp::GtEq => values - less,
        }
        .clamp(0.0, 1.0)
    }

    fn ends(&self, ty: ColumnType) -> &Ends {
        self.ends.get_or_init(|| {
            let of = |value: &Json| point_of(ty, value).unwrap_or(Point::Number(0.0));
            self.definition.histogram.buckets.iter().map(|b| (of(&b.low), of(&b.high))).collect()
        })
    }

    fn histogram(&self) -> &Histogram {
        &self.definition.histogram
    }

    fn nulls(&self) -> f64 {
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
    fn equal(&self, ty: ColumnType, value: &Point) -> f64 {
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
    fn less(&self, ty: ColumnType, value: &Point) -> f64 {
        let ends = self.ends(ty);
        let at = ends.partition_point(|(_, high)| high.cmp(value).is_lt());
        let Some((low, high)) = ends.get(at) else { return 1.0 - self.nulls() };
        let (rows, before) = self.rows_at(at);
        if low.cmp(value).is_lt() { before + rows * value.distance(low, high, step(ty)).0 } else { before }
    }

    /// Part of all rows that have a greater one.
    fn greater(&self, ty: ColumnType, value: &Point) -> f64 {
        let ends = self.ends(ty);
        let at = ends.partition_point(|(_, high)| high.cmp(value).is_le());
        let Some((low, high)) = ends.get(at) else { return 0.0 };
        let (rows, before) = self.rows_at(at);
        let behind = (1.0 - self.nulls() - before - rows).max(0.0);
        let within = if low.cmp(value).is_le() { value.distance(low, high, step(ty)).1 } else { 1.0 };
        behind + rows * within
    }
}

#[cfg(test)]
mod tests {
    use std::cell::OnceCell;

    use super::*;
    use crate::{catalog::histogram::*, expr::ColumnRef};

    const INT: ColumnType = ColumnType::Int { bits: 32, unsigned: false };

    /// The one of `tests/reference/cases/histograms.test`: 22 rows, one of them NULL.
    fn kept() -> Kept {
        let bucket = |(low, high, rows, distinct): (i64, i64, f64, u64)| Bucket {
            low: Json::Int(low),
            high: Json::Int(high),
            cumulative: rows / 22.0,
            distinct,
        };
        let buckets = [(1, 5, 5.0, 5), (6, 9, 9.0, 4), (10, 10, 16.0, 1), (20, 50, 20.0, 4), (60, 60, 21.0, 1)];
        let histogram = Histogram {
            is_singleton: false,
            buckets: buckets.into_iter().map(bucket).collect(),
            data_type: "int",
            collation: 8,
            nulls: 1.0 / 22.0,
            sampling_rate: 1.0,
            rows: 0,
            is_automatic: false,
            updated: 0,
            wanted: 5,
        };
        let definition = Definition { table: "t".to_owned(), column: "a".to_owned(), histogram };
        Kept { database: "d".to_owned(), definition, kept_as: String::new(), older: Vec::new(), ends: OnceCell::new() }
    }

    #[test]
    fn rows_of_conditions_are_those_that_the_reference_expects() {
        let kept = kept();
        let column = || Box::new(Expr::Column(ColumnRef { slot: 3, ty: INT }));
        let constant = |n: i64| Expr::Const(Datum::Int(n));
        let rows = |e: &Expr| {
            let found = of_condition(e, &|column| (column == 3).then_some(&kept));
            (found.unwrap() * 2200.0).round() / 100.0
        };
        let compared = |op, n| rows(&Expr::Compare(op, column(), Box::new(constant(n)), Default::default()));
        assert_eq!(compared(CompareOp::Eq, 10), 7.0);
        assert_eq!(compared(CompareOp::Eq, 3), 1.0);
        assert_eq!(compared(CompareOp::Eq, 55), 0.0);
        assert_eq!(compared(CompareOp::NotEq, 10), 14.0);
        assert_eq!(compared(CompareOp::Lt, 25), 16.65);
        assert_eq!(compared(CompareOp::LtEq, 25), 16.77);
        assert_eq!(compared(CompareOp::Gt, 25), 4.23);
        assert_eq!(compared(CompareOp::GtEq, 25), 4.35);
        assert_eq!(compared(CompareOp::Lt, i64::from(i32::MAX) + 1), 21.0);
        let between = |negated| {
            let (low, high) = (Box::new(constant(5)), Box::new(constant(25)));
            rows(&Expr::Between { expr: column(), low, high, negated, collation: Default::default() })
        };
        assert_eq!((between(false), between(true)), (12.77, 8.23));
        let within = |negated| {
            let list = vec![constant(1), constant(10), constant(99)];
            rows(&Expr::In { expr: column(), list, negated, collation: Default::default() })
        };
        assert_eq!((within(false), within(true)), (8.0, 13.0));
        assert_eq!(rows(&Expr::IsNull { expr: column(), negated: false }), 1.0);
        assert_eq!(rows(&Expr::IsNull { expr: column(), negated: true }), 21.0);
        let of_other = Expr::IsNull { expr: Box::new(Expr::Column(ColumnRef { slot: 4, ty: INT })), negated: true };
        assert_eq!(of_condition(&of_other, &|column| (column == 3).then_some(&kept)), None);
    }
}
