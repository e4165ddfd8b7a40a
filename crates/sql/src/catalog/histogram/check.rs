//! Histograms from documents: those that the dictionary keeps, and those of `USING DATA`, which may say anything.

use std::cmp::Ordering;

use apus_types::{Column, ColumnType, collate::Collation};

use super::{BUCKETS_MAX, Bucket, Histogram, ROWS, described, selectivity};
use crate::{
    expr::{
        assign::{Assign, assign},
        func::encode,
    },
    value::{
        datum::Datum,
        decimal,
        json::{Json, Object},
        temporal,
        zone::Zone,
    },
};

type Checked<T> = Result<T, String>;

const TYPES: [&str; 9] = ["int", "uint", "double", "decimal", "string", "date", "time", "datetime", "enum"];

/// Of the dictionary. What a document of another version says is not believed.
pub fn kept(document: &Json) -> Option<Histogram> {
    let Json::Object(members) = document else { return None };
    let Some(Json::String(data_type)) = members.get("data-type") else { return None };
    let data_type = TYPES.into_iter().chain(["set"]).find(|known| known == data_type)?;
    let rows = members.get(ROWS).and_then(whole).and_then(|rows| u64::try_from(rows).ok()).unwrap_or(0);
    read(members, data_type, &|value, _| Ok(value.clone())).ok().map(|histogram| Histogram { rows, ..histogram })
}

/// What a statement says of a column. The error is MySQL's text.
pub fn given(document: &Json, column: &Column) -> Checked<Histogram> {
    let Json::Object(members) = document else { return Err("JSON data is not an object".to_owned()) };
    text(members, "histogram-type")?;
    let data_type = text(members, "data-type")?;
    let Some((own, _)) = described(column.ty).filter(|(own, _)| *own == data_type) else {
        return Err(format!("Histogram data type does not match column data type at {}.", quoted("data-type")));
    };
    let histogram = read(members, own, &|value, place| value_of(value, column, place))?;
    let order = |a: &Json, b: &Json| selectivity::order(column.ty, a, b);
    for (at, bucket) in histogram.buckets.iter().enumerate() {
        if !histogram.is_singleton && order(&bucket.low, &bucket.high) == Ordering::Greater {
            let place = format!("'$.buckets[{at}][0]'");
            return Err(format!(
                "The lower inclusive value of bucket at {place} must be less than or equal to upper inclusive value."
            ));
        }
        let Some(last) = at.checked_sub(1).map(|at| &histogram.buckets[at]) else { continue };
        if order(&last.high, &bucket.low) != Ordering::Less {
            let place = format!("'$.buckets[{at}][0]'");
            return Err(match histogram.is_singleton {
                true => format!("The value at {place} must be greater than that of previous bucket."),
                false => format!(
                    "The lower inclusive value of bucket at {place} must be greater than the upper inclusive value of previous bucket."
                ),
            });
        }
        if bucket.cumulative <= last.cumulative {
            let number = if histogram.is_singleton { 1 } else { 2 };
            return Err(format!(
                "The cumulative frequency of bucket at '$.buckets[{at}][{number}]' must be greater than that of previous bucket."
            ));
        }
    }
    if let Some(last) = histogram.buckets.last()
        && (last.cumulative + histogram.nulls - 1.0).abs() > 1e-6
    {
        let text = "The sum of the null values fraction and the cumulative frequency of the last bucket should be 1.'";
        return Err(text.to_owned());
    }
    Ok(histogram)
}

/// `value`: makes one of a column of what stands at a place.
fn read(members: &Object, data_type: &'static str, value: &dyn Fn(&Json, &str) -> Checked<Json>) -> Checked<Histogram> {
    let is_singleton = match text(members, "histogram-type")? {
        "singleton" => true,
        "equi-height" => false,
        _ => return Err(format!("Unsupported histogram type at {}.", quoted("histogram-type"))),
    };
    let Json::Double(sampling_rate) = *member(members, "sampling-rate")? else {
        return Err(wrong_type(&quoted("sampling-rate")));
    };
    if !(0.0..=1.0).contains(&sampling_rate) {
        return Err(format!(
            "The sampling rate must be greater than or equal to 0 and less than or equal to 1 at {}.",
            quoted("sampling-rate")
        ));
    }
    let wanted = whole(member(members, "number-of-buckets-specified")?)
        .ok_or_else(|| wrong_type(&quoted("number-of-buckets-specified")))?;
    let wanted = u64::try_from(wanted).ok().filter(|n| (1..=BUCKETS_MAX).contains(n)).ok_or_else(|| {
        format!(
            "The value of attribute number-of-buckets-specified must be an integer in the range from 1 to 1024 at {}.",
            quoted("number-of-buckets-specified")
        )
    })?;
    let Json::Bool(is_automatic) = *member(members, "auto-update")? else {
        return Err(wrong_type(&quoted("auto-update")));
    };
    let Json::Double(nulls) = *member(members, "null-values")? else {
        return Err(wrong_type(&quoted("null-values")));
    };
    check_frequency(nulls, &quoted("null-values"))?;
    let Json::Array(list) = member(members, "buckets")? else { return Err(wrong_type("'$.buckets'")) };
    let collation = whole(member(members, "collation-id")?).ok_or_else(|| wrong_type(&quoted("collation-id")))?;
    let collation = u16::try_from(collation).ok().filter(|&id| is_collation(id));
    let collation = collation.ok_or_else(|| format!("The charset ID does not exist at {}.", quoted("collation-id")))?;
    if list.len() as u64 > wanted {
        let text = "The number of real buckets must be less than or equal to the number specified by attribute number-of-buckets-specified.";
        return Err(text.to_owned());
    }
    let one = |(at, b): (usize, &Json)| bucket(b, at, is_singleton, value);
    let buckets = list.iter().enumerate().map(one).collect::<Checked<Vec<_>>>()?;
    let updated = if let Some(Json::DateTime(at, _)) = members.get("last-updated") { *at } else { 0 };
    Ok(Histogram {
        is_singleton,
        buckets,
        data_type,
        collation,
        nulls,
        sampling_rate,
        is_automatic,
        updated,
        wanted,
        rows: 0,
    })
}

fn bucket(
    bucket: &Json,
    at: usize,
    is_singleton: bool,
    value: &dyn Fn(&Json, &str) -> Checked<Json>,
) -> Checked<Bucket> {
    let Json::Array(list) = bucket else { return Err(wrong_type(&format!("'$.buckets[{at}]'"))) };
    let place = |number: usize| format!("'$.buckets[{at}][{number}]'");
    let frequency = |number: usize| match list[number] {
        Json::Double(part) => check_frequency(part, &place(number)).map(|()| part),
        _ => Err(wrong_type(&place(number))),
    };
    match (is_singleton, list.len()) {
        (true, 2) => {
            let cumulative = frequency(1)?;
            let low = value(&list[0], &place(0))?;
            Ok(Bucket { high: low.clone(), low, cumulative, distinct: 1 })
        }
        (false, 4) => {
            let cumulative = frequency(2)?;
            let distinct = whole(&list[3]).ok_or_else(|| wrong_type(&place(3)))?;
            let distinct = u64::try_from(distinct)
                .ok()
                .filter(|n| *n > 0)
                .ok_or_else(|| format!("The number of distinct values must be a positive integer at {}.", place(3)))?;
            let (low, high) = (value(&list[0], &place(0))?, value(&list[1], &place(1))?);
            Ok(Bucket { low, high, cumulative, distinct })
        }
        (true, _) => Err(format!("Two elements required for bucket at '$.buckets[{at}]'.")),
        (false, _) => Err(format!("Four elements required for bucket at '$.buckets[{at}]'.")),
    }
}

/// A value of a column by what a document has in its place.
fn value_of(value: &Json, column: &Column, place: &str) -> Checked<Json> {
    let wrong = || Err(wrong_type(place));
    let no_value = || format!("Value format error at {place}.");
    let out_of_range = || format!("Out of range value for column at {place}.");
    match column.ty {
        ColumnType::Double | ColumnType::Float => match value {
            Json::Double(_) => Ok(value.clone()),
            _ => wrong(),
        },
        ColumnType::Decimal { .. } => {
            let datum = match *value {
                Json::Double(x) => Datum::Double(x),
                Json::Int(n) => Datum::Int(n),
                Json::UInt(n) => Datum::UInt(n),
                _ => return wrong(),
            };
            let exact = match datum {
                Datum::Double(x) => decimal::parse_exact(&x.to_string()),
                ref other => other.number().and_then(|n| n.to_decimal()),
            };
            assigned(column, datum).ok_or_else(out_of_range)?;
            let (unscaled, scale) = exact.ok_or_else(out_of_range)?;
            Ok(Json::Decimal { unscaled, scale })
        }
        ColumnType::Date | ColumnType::Time { .. } | ColumnType::DateTime { .. } | ColumnType::Timestamp { .. } => {
            let Json::String(text) = value else { return wrong() };
            let text = text.as_bytes();
            match column.ty {
                ColumnType::Time { .. } => temporal::parse_time(text, Zone::UTC).map(Json::Time),
                ty => temporal::parse_datetime(text, Zone::UTC).map(|civil| match ty {
                    ColumnType::Date => Json::Date(apus_types::time::pack_date(civil.year, civil.month, civil.day)),
                    _ => Json::DateTime(apus_types::time::pack_datetime(civil), false),
                }),
            }
            .ok_or_else(no_value)
        }
        ColumnType::Int { .. } | ColumnType::Year | ColumnType::Bit { .. } | ColumnType::Label { .. } => {
            let Some(number) = whole(value) else { return wrong() };
            let fits = match column.ty {
                ColumnType::Label { is_set: false, labels, .. } => (0..=labels.0.0.len() as i128).contains(&number),
                ColumnType::Label { labels, .. } => (0..1i128 << labels.0.0.len()).contains(&number),
                ColumnType::Bit { length } => (0..1i128 << length).contains(&number),
                _ => {
                    let datum = i64::try_from(number).map_or(Datum::UInt(number as u64), Datum::Int);
                    assigned(column, datum).is_some()
                }
            };
            if fits { Ok(value.clone()) } else { Err(out_of_range()) }
        }
        _ => {
            let Json::String(text) = value else { return wrong() };
            let encoded = text.strip_prefix("base64:type254:").ok_or_else(no_value)?;
            let bytes = encode::from_base64(encoded.as_bytes()).ok_or_else(no_value)?;
            Ok(Json::Opaque(254, bytes))
        }
    }
}

fn assigned(column: &Column, value: Datum<'static>) -> Option<Datum<'static>> {
    let how = Assign { row: 1, table: "", strict: true, zone: Zone::UTC, env: None, warns: false };
    assign(column, value, how).ok()
}

fn member<'m>(members: &'m Object, name: &str) -> Checked<&'m Json> {
    members.get(name).ok_or_else(|| format!("Missing attribute at {}.", quoted(name)))
}

fn text<'m>(members: &'m Object, name: &str) -> Checked<&'m str> {
    match member(members, name)? {
        Json::String(text) => Ok(text),
        _ => Err(wrong_type(&quoted(name))),
    }
}

fn whole(value: &Json) -> Option<i128> {
    match *value {
        Json::Int(n) => Some(i128::from(n)),
        Json::UInt(n) => Some(i128::from(n)),
        _ => None,
    }
}

fn check_frequency(part: f64, place: &str) -> Checked<()> {
    match (0.0..=1.0).contains(&part) {
        true => Ok(()),
        false => {
            Err(format!("The frequency must be greater than or equal to 0 and less than or equal to 1 at {place}."))
        }
    }
}

/// The place of a member; a name with a hyphen stands in quotes.
fn quoted(name: &str) -> String {
    if name.contains('-') { format!("'$.\"{name}\"'") } else { format!("'$.{name}'") }
}

fn wrong_type(place: &str) -> String {
    format!("Wrong attribute type at {place}.")
}

/// Also MySQL's `latin1_swedish_ci`, `latin1_german2_ci` and others, whose numbers its documents may have.
fn is_collation(id: u16) -> bool {
    /// Numbers of MySQL's collations: those below 248, and of utf8mb4 with version 9.0.0 of Unicode.
    const KNOWN: [std::ops::RangeInclusive<u16>; 3] = [1..=99, 101..=247, 255..=323];
    Collation::from_id(id).is_some() || KNOWN.iter().any(|range| range.contains(&id))
}
