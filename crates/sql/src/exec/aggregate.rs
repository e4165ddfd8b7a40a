//! Aggregates under way: one accumulator per group and aggregate.

use std::borrow::Cow;

use super::sink::push_order_keys;
use crate::{
    errors::{self, Result},
    expr::{ArithOp, Context, Env, Expr, Kind, eval::arithmetic, json, result_cells},
    full_text::{Search, query::Mode},
    plan::bind::{Aggregate, AggregateKind},
    spill::byte_strings::{Pairs, StringSet},
    value::{
        datum::{Datum, Number},
        decimal,
        json::{Json, Object},
    },
};

/// There may be one for each of very many groups, so what few aggregates need is kept aside.
#[derive(Clone, Default)]
pub struct Accumulator {
    count: u64,
    /// The sum so far, or the least or greatest value.
    value: Option<Datum<'static>>,
    rest: Option<Box<Rest>>,
}

#[derive(Clone, Default)]
struct Rest {
    /// Mean, and sum of the squared distances from it.
    moments: (f64, f64),
    bits: Option<u64>,
    text: Vec<u8>,
    /// Elements, or members with their names.
    parts: Vec<(String, Json)>,
    /// GROUP_CONCAT left something out.
    cut: bool,
    /// Texts by their sort keys, for GROUP_CONCAT with an order.
    ordered: Pairs,
    seen: StringSet,
    search: Option<Box<Search>>,
}

impl Accumulator {
    /// Takes a row; returns the memory it took.
    pub fn add(&mut self, a: &Aggregate, cx: &Context<'_>) -> Result<usize> {
        let Some(argument) = &a.argument else {
            self.count += 1;
            return Ok(0);
        };
        if let AggregateKind::Search(mode) = a.function {
            return self.search(a, mode, argument, cx);
        }
        self.add_value(a, &argument.eval(cx)?, cx)
    }

    /// As [`Accumulator::add`], where the value of the argument is known.
    pub fn add_value(&mut self, a: &Aggregate, value: &Datum<'_>, cx: &Context<'_>) -> Result<usize> {
        if value.is_null() {
            return Ok(0);
        }
        let mut memory = 0;
        if a.distinct {
            let rest = rest_of(&mut self.rest, &mut memory);
            let before = rest.seen.byte_len();
            let (_, new) = rest.seen.insert_with(|key| {
                push_distinct_key(key, a, value);
                Ok::<(), crate::wire::SqlError>(())
            })?;
            memory += rest.seen.byte_len().saturating_sub(before);
            if !new {
                return Ok(memory);
            }
        }
        Ok(memory + self.add_new(a, value, cx)?)
    }

    /// Whether there was such a value, by its key; of an aggregate of distinct ones.
    pub fn has_seen(&self, key: &[u8]) -> bool {
        self.rest.as_ref().is_some_and(|rest| rest.seen.contains(key))
    }

    /// As [`Accumulator::add_value`] of a value that is not NULL, and new where only distinct ones count.
    pub fn add_new(&mut self, a: &Aggregate, value: &Datum<'_>, cx: &Context<'_>) -> Result<usize> {
        let mut memory = 0;
        self.count += 1;
        match a.function {
            AggregateKind::Count | AggregateKind::CountRows => {}
            AggregateKind::Sum | AggregateKind::Avg => match &mut self.value {
                Some(Datum::Decimal { unscaled: sum, scale }) if let Some(added) = plain_sum(*sum, *scale, value) => {
                    *sum = added;
                }
                Some(sum) => *sum = arithmetic::arith(ArithOp::Add, sum, &addend(value))?,
                None => self.value = Some(addend(value)),
            },
            AggregateKind::Min | AggregateKind::Max => {
                let order = self.value.as_ref().and_then(|best| value.compare(best, a.collation));
                let lower = a.function == AggregateKind::Min;
                if order.is_none_or(|o| if lower { o.is_lt() } else { o.is_gt() }) {
                    self.value = Some(value.clone().into_owned());
                }
            }
            _ => {
                let rest = rest_of(&mut self.rest, &mut memory);
                memory += rest.add(a, value, self.count, cx)?;
            }
        }
        Ok(memory)
    }

    /// Takes what was computed of `count` values, NULLs left out: their sum, or the least or greatest of them.
    pub fn add_partial(
        &mut self,
        a: &Aggregate,
        count: u64,
        value: Option<Datum<'static>>,
        cx: &Context<'_>,
    ) -> Result<usize> {
        let Some(value) = value else {
            self.count = self.count.saturating_add(count);
            return Ok(0);
        };
        let memory = self.add_new(a, &value, cx)?;
        self.count = self.count.saturating_add(count - 1);
        Ok(memory)
    }

    /// Takes a row out again, of a count or of a sum of exact numbers.
    pub fn remove(&mut self, a: &Aggregate, cx: &Context<'_>) -> Result<()> {
        let Some(argument) = &a.argument else {
            self.count -= 1;
            return Ok(());
        };
        let value = argument.eval(cx)?;
        if value.is_null() {
            return Ok(());
        }
        self.count -= 1;
        self.value = match &self.value {
            Some(sum) if self.count > 0 => Some(arithmetic::arith(ArithOp::Sub, sum, &addend(&value))?),
            _ => None,
        };
        Ok(())
    }

    /// One more row of a full-text search.
    fn search(&mut self, a: &Aggregate, mode: Mode, argument: &Expr, cx: &Context<'_>) -> Result<usize> {
        let parts = argument.children();
        let [query, key, columns @ ..] = parts.as_slice() else { return Err(errors::internal("a search of nothing")) };
        let rest = self.rest.get_or_insert_default();
        if rest.search.is_none() {
            let query = query.eval(cx)?;
            let text = if query.is_null() { Cow::default() } else { query.as_text() };
            rest.search = Some(Box::new(Search::new(&String::from_utf8_lossy(&text), mode, a.collation)?));
        }
        let values = columns.iter().map(|column| column.eval(cx)).collect::<Result<Vec<_>>>()?;
        let texts: Vec<_> = values.iter().map(|value| (!value.is_null()).then(|| value.as_text())).collect();
        let key = key.eval(cx)?;
        Ok(rest.search.as_mut().map_or(0, |search| search.add(&key.as_text(), &texts)))
    }

    pub fn value(self, a: &Aggregate, env: &Env) -> Result<Datum<'static>> {
        let mut rest = self.rest.map_or_else(Rest::default, |rest| *rest);
        let (_, squares) = rest.moments;
        let variance = |sample: bool| match self.count.checked_sub(u64::from(sample)) {
            None | Some(0) => None,
            Some(n) => Some(squares / n as f64),
        };
        Ok(match a.function {
            AggregateKind::Count | AggregateKind::CountRows => Datum::Int(self.count as i64),
            AggregateKind::Sum => self.value.unwrap_or(Datum::Null),
            AggregateKind::Avg => match self.value {
                Some(sum) => average(sum, self.count, a)?,
                None => Datum::Null,
            },
            AggregateKind::Min | AggregateKind::Max => self.value.unwrap_or(Datum::Null),
            AggregateKind::Variance { sample } => variance(sample).map_or(Datum::Null, Datum::Double),
            AggregateKind::Deviation { sample } => variance(sample).map_or(Datum::Null, |v| Datum::Double(v.sqrt())),
            AggregateKind::BitAnd | AggregateKind::BitOr | AggregateKind::BitXor => {
                Datum::UInt(rest.bits.unwrap_or(no_bits(a.function)))
            }
            AggregateKind::Search(_) => {
                rest.search.map_or(Datum::Null, |search| Datum::Bytes(Cow::Owned(search.finish())))
            }
            AggregateKind::JsonArray | AggregateKind::JsonObject if self.count == 0 => Datum::Null,
            AggregateKind::JsonArray => {
                json::made(&Json::Array(rest.parts.into_iter().map(|(_, element)| element).collect()))?
            }
            AggregateKind::JsonObject => json::made(&Json::Object(Object::from_members(rest.parts)))?,
            AggregateKind::GroupConcat if self.count > 0 => {
                let mut ordered = std::mem::take(&mut rest.ordered);
                ordered.sort();
                for i in 0..ordered.len() {
                    rest.append(a, ordered.payload(i), i == 0, env);
                }
                if rest.cut {
                    env.note(errors::cut_by_group_concat(self.count));
                }
                Datum::Text(rest.text.into())
            }
            AggregateKind::GroupConcat => Datum::Null,
        })
    }
}

impl Rest {
    /// One more value, the `count`th.
    fn add(&mut self, a: &Aggregate, value: &Datum<'_>, count: u64, cx: &Context<'_>) -> Result<usize> {
        let mut memory = 0;
        match a.function {
            AggregateKind::Variance { .. } | AggregateKind::Deviation { .. } => {
                let (mean, squares) = self.moments;
                let x = value.number().map_or(0.0, Number::to_f64);
                let next = mean + (x - mean) / count as f64;
                self.moments = (next, squares + (x - mean) * (x - next));
            }
            AggregateKind::BitAnd | AggregateKind::BitOr | AggregateKind::BitXor => {
                let bits = value.number().map_or(0, arithmetic::to_bits);
                let so_far = self.bits.unwrap_or(no_bits(a.function));
                self.bits = Some(match a.function {
                    AggregateKind::BitAnd => so_far & bits,
                    AggregateKind::BitOr => so_far | bits,
                    _ => so_far ^ bits,
                });
            }
            AggregateKind::JsonArray | AggregateKind::JsonObject => {
                memory += size_of::<(String, Json)>() + value.heap_bytes();
                match json::of_datum(value) {
                    Json::Object(member) => self.parts.extend(member.into_members()),
                    other => self.parts.extend(other.into_elements().into_iter().map(|e| (String::new(), e))),
                }
            }
            AggregateKind::GroupConcat if !a.order.is_empty() => {
                let before = self.ordered.byte_len();
                self.ordered.push(|key| push_order_keys(&a.order, cx, key), &value.as_text())?;
                memory += self.ordered.byte_len() - before;
            }
            AggregateKind::GroupConcat => {
                let before = self.text.len();
                self.append(a, &value.as_text(), count == 1, cx.env);
                memory += self.text.len() - before;
            }
            // Those that need no more than a count and a value, and a search.
            _ => {}
        }
        Ok(memory)
    }

    /// One more text of GROUP_CONCAT, as far as there is room.
    fn append(&mut self, a: &Aggregate, text: &[u8], first: bool, env: &Env) {
        if self.cut {
            return;
        }
        if !first {
            self.text.extend_from_slice(&a.separator);
        }
        self.text.extend_from_slice(text);
        let most = env.variables.group_concat_max_len;
        if self.text.len() > most {
            // Not inside of a character.
            let keep = (0..=most).rev().find(|&at| self.text[at] & 0xc0 != 0x80).unwrap_or(0);
            self.text.truncate(keep);
            self.cut = true;
        }
    }
}

fn rest_of<'r>(rest: &'r mut Option<Box<Rest>>, memory: &mut usize) -> &'r mut Rest {
    if rest.is_none() {
        *memory += size_of::<Rest>();
    }
    rest.get_or_insert_default()
}

/// The sum with one more value of as many digits behind the point, where it fits.
#[inline]
fn plain_sum(sum: i128, scale: u8, value: &Datum<'_>) -> Option<i128> {
    match value {
        Datum::Decimal { unscaled, scale: of_value } if *of_value == scale => sum.checked_add(*unscaled),
        Datum::Int(n) if scale == 0 => sum.checked_add(i128::from(*n)),
        _ => None,
    }
}

/// Whether the values of an aggregate, of which this is one, may come in any order.
pub fn is_order_free(a: &Aggregate, value: &Datum<'_>) -> bool {
    match a.function {
        AggregateKind::Count | AggregateKind::CountRows | AggregateKind::Min | AggregateKind::Max => true,
        AggregateKind::Sum | AggregateKind::Avg => {
            matches!(value, Datum::Int(_) | Datum::UInt(_) | Datum::Decimal { .. })
        }
        _ => false,
    }
}

/// The mean of values of a decimal type, cut behind whole words of nine digits and told with the digits of its type, as in MySQL: it divides a sum of distinct values as
/// one that fills its words.
/// The key by which values are told apart where only distinct ones count: exact numbers without zeros at their ends, and how many digits are left behind the point.
pub fn push_distinct_key(out: &mut Vec<u8>, a: &Aggregate, value: &Datum<'_>) {
    let number;
    let value = match a.function {
        AggregateKind::Sum | AggregateKind::Avg if value.is_text() => {
            number = Datum::Double(value.number().map_or(0.0, |n| n.to_f64()));
            &number
        }
        _ => value,
    };
    let exact = match value {
        Datum::Decimal { .. } | Datum::Fine { .. } => value.number().and_then(Number::to_decimal),
        _ => None,
    };
    let Some((mut unscaled, mut scale)) = exact else {
        result_cells::push_sort_key(out, Kind::of_datum(value), a.collation, value, false);
        return out.push(0);
    };
    while scale > 0 && unscaled % 10 == 0 {
        (unscaled, scale) = (unscaled / 10, scale - 1);
    }
    result_cells::push_sort_key(out, Kind::Decimal(scale), a.collation, &Datum::Decimal { unscaled, scale }, false);
    out.push(scale);
}

fn average(sum: Datum<'static>, count: u64, a: &Aggregate) -> Result<Datum<'static>> {
    const WORD: u8 = decimal::WORD_DIGITS;
    let by_type = |shown: u8| {
        let (unscaled, scale) = sum.number()?.to_decimal()?;
        let digits = shown.saturating_sub(decimal::DIVISION_DIGITS);
        let filled = if a.distinct { digits.next_multiple_of(WORD) } else { digits };
        let kept = (filled + decimal::DIVISION_DIGITS).next_multiple_of(WORD);
        let (quotient, _) = decimal::divide((unscaled, scale), (i128::from(count), 0), kept)?;
        Some(Datum::decimal(quotient, kept, shown))
    };
    let mean = match a.kind {
        Kind::Decimal(shown) => by_type(shown),
        _ => None,
    };
    match mean {
        Some(mean) => Ok(mean),
        None => arithmetic::arith(ArithOp::Div, &sum, &Datum::Int(count as i64)),
    }
}

/// What a sum adds of a value. A sum of doubles begins at 0, so it is never -0.
fn addend(value: &Datum<'_>) -> Datum<'static> {
    if let Datum::Decimal { unscaled, scale } = value {
        return Datum::Decimal { unscaled: *unscaled, scale: *scale };
    }
    match value.number().map(|n| (n, n.to_decimal())) {
        Some((Number::Double(x), None)) => Datum::Double(x + 0.0),
        Some((_, Some((unscaled, scale)))) => Datum::decimal(unscaled, scale, value.shown_scale().min(scale)),
        Some((n, None)) => n.datum(),
        None => Datum::Null,
    }
}

/// What a bit aggregate is of no values.
fn no_bits(function: AggregateKind) -> u64 {
    if function == AggregateKind::BitAnd { u64::MAX } else { 0 }
}
