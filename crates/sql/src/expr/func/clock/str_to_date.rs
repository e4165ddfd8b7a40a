//! STR_TO_DATE: a moment read by a format.

use apus_types::time::{Civil, civil_from_days, days_from_civil, pack_date, pack_datetime};

use crate::{
    expr::{Expr, Kind},
    value::{
        datum::Datum,
        locale,
        temporal::{self, Dates},
    },
};

/// What STR_TO_DATE yields, from its format.
pub fn parsed_kind(format: Option<&Expr>) -> Kind {
    let Some(Expr::Const(format)) = format else { return Kind::DateTime(6) };
    let format = format.as_text();
    let codes: Vec<u8> = format.windows(2).filter(|w| w[0] == b'%').map(|w| w[1]).collect();
    let fraction = if codes.contains(&b'f') { 6 } else { 0 };
    let clock = codes.iter().any(|c| b"HhIiklprSsTf".contains(c));
    let day = codes.iter().any(|c| b"MbDdejmcYyUuVvXxWaw".contains(c));
    match (day, clock) {
        (false, true) => Kind::Time(fraction),
        (_, true) => Kind::DateTime(fraction),
        _ => Kind::Date,
    }
}

/// What STR_TO_DATE has read.
#[derive(Default)]
pub(super) struct Parsed {
    pub(super) civil: Civil,
    afternoon: Option<bool>,
    half_day: bool,
    day_of_year: Option<i64>,
    /// Monday is 1, Sunday 7.
    weekday: Option<i64>,
    week: Option<(i64, bool, bool)>,
    week_year: Option<(i64, bool)>,
}

impl Parsed {
    pub(super) fn datum(&self, kind: Kind) -> Datum<'static> {
        let c = self.civil;
        match kind {
            Kind::Time(n) => Datum::Time(temporal::time_of_day(&c), n),
            Kind::Date => Datum::Date(pack_date(c.year, c.month, c.day)),
            Kind::DateTime(n) => Datum::DateTime(pack_datetime(c), n),
            _ => Datum::Null,
        }
    }

    /// The month has this day.
    pub(super) fn is_of_month(&self) -> bool {
        let Civil { year, month, day, .. } = self.civil;
        month == 0 || day <= temporal::days_in_month(year, month)
    }

    /// Completes the date from the fields that stand for it.
    fn complete(mut self, day_given: bool, dates: Dates) -> Option<Parsed> {
        if self.half_day {
            if !(1..=12).contains(&self.civil.hour) {
                return None;
            }
            self.civil.hour = self.civil.hour % 12 + if self.afternoon == Some(true) { 12 } else { 0 };
        } else if self.afternoon.is_some() {
            return None;
        }
        let mut day = self.day_of_year.map(|n| days_from_civil(i64::from(self.civil.year), 1, 1) + n - 1);
        if let (Some((week, sunday_first, strict)), Some(weekday)) = (self.week, self.weekday) {
            let year = match (strict, self.week_year) {
                (true, Some((year, same))) if same == sunday_first => year,
                (false, None) => i64::from(self.civil.year),
                _ => return None,
            };
            let january_first = days_from_civil(year, 1, 1);
            let starts_on = (january_first + if sunday_first { 4 } else { 3 }).rem_euclid(7);
            let (least, in_week) = if sunday_first { (0, weekday % 7) } else { (3, weekday - 1) };
            let first_week = january_first + if starts_on <= least { 0 } else { 7 } - starts_on;
            day = Some(first_week + (week - 1) * 7 + in_week);
        }
        if let Some(day) = day {
            let (year, month, day) = civil_from_days(day);
            self.civil.year = u16::try_from(year).ok().filter(|y| *y <= 9999)?;
            (self.civil.month, self.civil.day) = (month as u8, day as u8);
        } else if day_given && !dates.partial && temporal::is_partial(&self.civil) {
            return None;
        }
        let c = &self.civil;
        (c.month <= 12 && c.day <= 31 && c.hour < 24 && c.minute < 60 && c.second < 60).then_some(self)
    }
}

/// Takes up to `most` digits.
pub(super) fn number(text: &mut &[u8], most: usize) -> Option<i64> {
    let digits = text.iter().take(most).take_while(|b| b.is_ascii_digit()).count();
    let (number, rest) = text.split_at(digits);
    *text = rest;
    (digits > 0).then(|| number.iter().fold(0, |n, b| n * 10 + i64::from(b - b'0')))
}

/// Takes the name from a list that the text begins with (or its first three letters); its place.
pub(super) fn name(text: &mut &[u8], names: &[&str], short: bool) -> Option<i64> {
    for (i, name) in names.iter().enumerate() {
        let name = if short { &name[..3] } else { name };
        if text.get(..name.len()).is_some_and(|t| t.eq_ignore_ascii_case(name.as_bytes())) {
            *text = &text[name.len()..];
            return Some(i as i64);
        }
    }
    None
}

pub(super) fn parse(text: &[u8], format: &[u8], dates: Dates) -> Option<Parsed> {
    let mut p = Parsed::default();
    let mut rest = text;
    let mut day_given = false;
    fields(&mut p, &mut rest, format, &mut day_given)?;
    p.complete(day_given, dates)
}

fn fields(p: &mut Parsed, rest: &mut &[u8], format: &[u8], day_given: &mut bool) -> Option<()> {
    let mut at = 0;
    while let Some(&b) = format.get(at) {
        at += 1;
        if b != b'%' || at == format.len() {
            if b.is_ascii_whitespace() {
                *rest = rest.trim_ascii_start();
            } else if rest.first() == Some(&b) {
                *rest = &rest[1..];
            } else {
                return None;
            }
            continue;
        }
        let code = format[at];
        at += 1;
        *rest = rest.trim_ascii_start();
        *day_given |= b"YymcMbdeD".contains(&code);
        field(p, rest, code, day_given)?;
    }
    Some(())
}

pub(super) fn field(p: &mut Parsed, rest: &mut &[u8], code: u8, day_given: &mut bool) -> Option<()> {
    let c = &mut p.civil;
    match code {
        b'Y' | b'y' => {
            let digits = rest.iter().take(if code == b'Y' { 4 } else { 2 }).take_while(|b| b.is_ascii_digit()).count();
            let year = number(rest, digits.max(1))?;
            c.year = (year
                + if digits > 2 {
                    0
                } else if year < 70 {
                    2000
                } else {
                    1900
                }) as u16;
        }
        b'm' | b'c' => c.month = u8::try_from(number(rest, 2)?).ok()?,
        b'M' | b'b' => c.month = name(rest, &locale::english().months, code == b'b')? as u8 + 1,
        b'd' | b'e' => c.day = u8::try_from(number(rest, 2)?).ok()?,
        b'D' => {
            c.day = u8::try_from(number(rest, 2)?).ok()?;
            *rest = rest.get(2..).unwrap_or(&[]);
        }
        b'H' | b'k' => c.hour = u8::try_from(number(rest, 2)?).ok()?,
        b'h' | b'I' | b'l' => {
            c.hour = u8::try_from(number(rest, 2)?).ok()?;
            p.half_day = true;
        }
        b'i' => c.minute = u8::try_from(number(rest, 2)?).ok()?,
        b's' | b'S' => c.second = u8::try_from(number(rest, 2)?).ok()?,
        b'f' => {
            let before = rest.len();
            let n = number(rest, 6)?;
            c.micros = (n * 10i64.pow(6 - (before - rest.len()) as u32)) as u32;
        }
        b'p' => p.afternoon = Some(name(rest, &["AM", "PM"], false)? == 1),
        b'W' | b'a' => p.weekday = Some(name(rest, &locale::english().days, code == b'a')? + 1),
        b'w' => {
            let n = number(rest, 1).filter(|n| *n < 7)?;
            p.weekday = Some(if n == 0 { 7 } else { n });
        }
        b'j' => p.day_of_year = Some(number(rest, 3).filter(|n| (1..=366).contains(n))?),
        b'U' | b'u' | b'V' | b'v' => {
            let week = number(rest, 2).filter(|n| *n <= 53)?;
            let strict = matches!(code, b'V' | b'v');
            if strict && week == 0 {
                return None;
            }
            p.week = Some((week, matches!(code, b'U' | b'V'), strict));
        }
        b'X' | b'x' => p.week_year = Some((number(rest, 4)?, code == b'X')),
        b'T' => fields(p, rest, b"%H:%i:%S", day_given)?,
        b'r' => fields(p, rest, b"%I:%i:%S %p", day_given)?,
        b'.' => *rest = &rest[rest.iter().take_while(|b| b.is_ascii_punctuation()).count()..],
        b'@' => *rest = &rest[rest.iter().take_while(|b| b.is_ascii_alphabetic()).count()..],
        b'#' => *rest = &rest[rest.iter().take_while(|b| b.is_ascii_digit()).count()..],
        other if rest.first() == Some(&other) => *rest = &rest[1..],
        _ => return None,
    }
    Some(())
}
