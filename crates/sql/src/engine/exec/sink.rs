//! Where the rows of a SELECT go: straight out, through a sort, into groups, past duplicates, cut by LIMIT.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    engine::{
        cells,
        errors::{self, Result},
        expr::{
            ArithOp, Context, Datum, Env, Expr,
            build::{Aggregate, AggregateKind},
            eval,
        },
        plan::{
            Select,
            select::{Group, OrderKey},
        },
    },
    server::Output,
};

/// Memory that one statement may use to sort, group and remove duplicates, in bytes.
const SORT_BYTES_MAX: usize = 256 << 20;
/// Longest GROUP_CONCAT, in bytes.
const GROUP_CONCAT_MAX: usize = 1 << 20;

enum Held {
    Row(Vec<u8>),
    Values(Vec<Datum<'static>>),
}

#[derive(Default)]
struct Accumulator {
    count: u64,
    sum: Option<Datum<'static>>,
    best: Option<Datum<'static>>,
    text: Vec<u8>,
    seen: BTreeSet<Vec<u8>>,
}

struct GroupState {
    first: Vec<u8>,
    accumulators: Vec<Accumulator>,
}

pub struct Sink<'p> {
    plan: &'p Select,
    params: &'p [Datum<'p>],
    env: &'p Env,
    skip: u64,
    left: u64,
    held: Vec<(Vec<u8>, Held)>,
    groups: BTreeMap<Vec<u8>, GroupState>,
    seen: BTreeSet<Vec<u8>>,
    bytes: usize,
    pub sent: u64,
}

impl<'p> Sink<'p> {
    pub fn new(plan: &'p Select, params: &'p [Datum<'p>], env: &'p Env) -> Result<Sink<'p>> {
        let mut sink = Sink {
            plan,
            params,
            env,
            skip: 0,
            left: u64::MAX,
            held: Vec::new(),
            groups: BTreeMap::new(),
            seen: BTreeSet::new(),
            bytes: 0,
            sent: 0,
        };
        sink.left = count(plan.limit.as_ref(), &sink.context(&[]))?.unwrap_or(u64::MAX);
        sink.skip = count(plan.offset.as_ref(), &sink.context(&[]))?.unwrap_or(0);
        Ok(sink)
    }

    pub fn context<'c>(&'c self, row: &'c [u8]) -> Context<'c> {
        Context { layout: &self.plan.layout, row, new_row: None, params: self.params, aggregates: &[], env: self.env }
    }

    /// Rows worth asking for: nothing behind the LIMIT when rows are not held back.
    pub fn wanted(&self) -> u64 {
        if self.plan.group.is_some() || !self.plan.in_order || self.plan.distinct {
            return if self.left == 0 { 0 } else { u64::MAX };
        }
        self.left.saturating_add(self.skip)
    }

    fn charge(&mut self, bytes: usize) -> Result<()> {
        self.bytes += bytes + 64;
        if self.bytes > SORT_BYTES_MAX { Err(errors::out_of_sort_memory()) } else { Ok(()) }
    }

    /// Takes a row that passed the condition; false when no more are needed.
    pub fn row(&mut self, row: &[u8], out: &mut Output<'_>) -> Result<bool> {
        let plan = self.plan;
        if let Some(group) = &plan.group {
            self.accumulate(group, row)?;
            return Ok(true);
        }
        let cx =
            Context { layout: &plan.layout, row, new_row: None, params: self.params, aggregates: &[], env: self.env };
        if plan.distinct && self.is_duplicate(&cx)? {
            return Ok(true);
        }
        if !plan.in_order {
            let key = sort_key(&plan.order, &cx)?;
            self.charge(key.len() + row.len())?;
            self.held.push((key, Held::Row(row.to_vec())));
            return Ok(true);
        }
        self.emit(&cx, out)
    }

    fn is_duplicate(&mut self, cx: &Context<'_>) -> Result<bool> {
        let mut key = Vec::new();
        for output in &self.plan.outputs {
            let collation = crate::engine::expr::build::collation_of(&output.expr).unwrap_or_default();
            cells::push_sort_key(&mut key, output.kind, collation, &output.expr.eval(cx)?, false);
        }
        self.charge(key.len())?;
        Ok(!self.seen.insert(key))
    }

    fn emit(&mut self, cx: &Context<'_>, out: &mut Output<'_>) -> Result<bool> {
        if self.left == 0 {
            return Ok(false);
        }
        if self.skip > 0 {
            self.skip -= 1;
            return Ok(true);
        }
        out.row_start();
        for output in &self.plan.outputs {
            match &output.expr {
                Expr::Column(c) => cells::write_value(out, c.ty, cx.layout.value(cx.row, c.slot), cx.env.zone()),
                e => cells::write_datum(out, output.kind, &e.eval(cx)?),
            }
        }
        out.row_end();
        self.sent += 1;
        self.left -= 1;
        Ok(self.left > 0)
    }

    fn emit_values(&mut self, values: &[Datum<'_>], out: &mut Output<'_>) -> bool {
        if self.left == 0 {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return true;
        }
        out.row_start();
        for (output, value) in self.plan.outputs.iter().zip(values) {
            cells::write_datum(out, output.kind, value);
        }
        out.row_end();
        self.sent += 1;
        self.left -= 1;
        self.left > 0
    }

    fn accumulate(&mut self, group: &Group, row: &[u8]) -> Result<()> {
        let plan = self.plan;
        let cx =
            Context { layout: &plan.layout, row, new_row: None, params: self.params, aggregates: &[], env: self.env };
        let key = sort_key(&group.keys, &cx)?;
        if !self.groups.contains_key(&key) {
            self.charge(key.len() + row.len() + 128 * group.aggregates.len())?;
            let accumulators = group.aggregates.iter().map(|_| Accumulator::default()).collect();
            self.groups.insert(key.clone(), GroupState { first: row.to_vec(), accumulators });
        }
        let Some(state) = self.groups.get_mut(&key) else { return Ok(()) };
        for (aggregate, accumulator) in group.aggregates.iter().zip(&mut state.accumulators) {
            self.bytes += accumulator.add(aggregate, &cx)?;
        }
        if self.bytes > SORT_BYTES_MAX { Err(errors::out_of_sort_memory()) } else { Ok(()) }
    }

    /// Takes aggregates that were computed beside the data: one group.
    pub fn aggregated(&mut self, values: Vec<Datum<'static>>, out: &mut Output<'_>) -> Result<()> {
        let plan = self.plan;
        let Some(group) = &plan.group else { return Ok(()) };
        self.finish_group(group, &[], &values, out)?;
        self.flush_held(out)
    }

    fn finish_group(
        &mut self,
        group: &Group,
        first: &[u8],
        aggregates: &[Datum<'_>],
        out: &mut Output<'_>,
    ) -> Result<bool> {
        let plan = self.plan;
        let cx =
            Context { layout: &plan.layout, row: first, new_row: None, params: self.params, aggregates, env: self.env };
        if let Some(having) = &group.having
            && !having.passes(&cx)?
        {
            return Ok(true);
        }
        if plan.distinct && self.is_duplicate(&cx)? {
            return Ok(true);
        }
        let values = plan.outputs.iter().map(|o| Ok(o.expr.eval(&cx)?.into_owned())).collect::<Result<Vec<_>>>()?;
        if plan.in_order {
            return Ok(self.emit_values(&values, out));
        }
        let key = sort_key(&plan.order, &cx)?;
        self.charge(key.len() + 64 * values.len())?;
        self.held.push((key, Held::Values(values)));
        Ok(true)
    }

    /// All rows were taken.
    pub fn finish(&mut self, out: &mut Output<'_>) -> Result<()> {
        let plan = self.plan;
        if let Some(group) = &plan.group {
            let mut groups = std::mem::take(&mut self.groups);
            if groups.is_empty() && group.keys.is_empty() {
                let accumulators = group.aggregates.iter().map(|_| Accumulator::default()).collect();
                groups.insert(Vec::new(), GroupState { first: Vec::new(), accumulators });
            }
            for state in groups.into_values() {
                let pairs = group.aggregates.iter().zip(state.accumulators);
                let values = pairs.map(|(a, accumulator)| accumulator.value(a)).collect::<Result<Vec<_>>>()?;
                if !self.finish_group(group, &state.first, &values, out)? {
                    break;
                }
            }
        }
        self.flush_held(out)
    }

    fn flush_held(&mut self, out: &mut Output<'_>) -> Result<()> {
        let mut held = std::mem::take(&mut self.held);
        held.sort_by(|a, b| a.0.cmp(&b.0));
        let plan = self.plan;
        for (_, entry) in &held {
            let more = match entry {
                Held::Row(row) => {
                    let cx = Context {
                        layout: &plan.layout,
                        row,
                        new_row: None,
                        params: self.params,
                        aggregates: &[],
                        env: self.env,
                    };
                    self.emit(&cx, out)?
                }
                Held::Values(values) => self.emit_values(values, out),
            };
            if !more {
                break;
            }
        }
        Ok(())
    }
}

pub fn sort_key(order: &[OrderKey], cx: &Context<'_>) -> Result<Vec<u8>> {
    let mut key = Vec::new();
    for k in order {
        cells::push_sort_key(&mut key, k.kind, k.collation, &k.expr.eval(cx)?, k.descending);
    }
    Ok(key)
}

/// Value of a LIMIT or OFFSET.
pub fn count(e: Option<&Expr>, cx: &Context<'_>) -> Result<Option<u64>> {
    let Some(e) = e else { return Ok(None) };
    let value = e.eval(cx)?;
    let n = value.number().map(|n| n.to_i128()).and_then(|n| u64::try_from(n).ok());
    n.map(Some).ok_or_else(|| errors::wrong_arguments("LIMIT"))
}

impl Accumulator {
    /// Returns the memory it took.
    fn add(&mut self, a: &Aggregate, cx: &Context<'_>) -> Result<usize> {
        let Some(argument) = &a.argument else {
            self.count += 1;
            return Ok(0);
        };
        let value = argument.eval(cx)?;
        if value.is_null() {
            return Ok(0);
        }
        let mut memory = 0;
        if a.distinct {
            let mut key = Vec::new();
            let kind = crate::engine::expr::Kind::of_datum(&value);
            cells::push_sort_key(&mut key, kind, a.collation, &value, false);
            memory = key.len() + 64;
            if !self.seen.insert(key) {
                return Ok(0);
            }
        }
        match a.function {
            AggregateKind::Count | AggregateKind::CountRows => {}
            AggregateKind::Sum | AggregateKind::Avg => {
                let number = match value.number() {
                    Some(n) => match n.to_decimal() {
                        Some((unscaled, scale)) => Datum::Decimal { unscaled, scale },
                        None => n.datum(),
                    },
                    None => Datum::Null,
                };
                self.sum = Some(match &self.sum {
                    Some(sum) => eval::arith(ArithOp::Add, sum, &number)?,
                    None => number,
                });
            }
            AggregateKind::Min | AggregateKind::Max => {
                let order = self.best.as_ref().and_then(|best| value.compare(best, a.collation));
                let better = match order {
                    None => true,
                    Some(o) => {
                        if a.function == AggregateKind::Min {
                            o.is_lt()
                        } else {
                            o.is_gt()
                        }
                    }
                };
                if better {
                    self.best = Some(value.into_owned());
                }
            }
            AggregateKind::GroupConcat => {
                if self.text.len() < GROUP_CONCAT_MAX {
                    let before = self.text.len();
                    if self.count > 0 {
                        self.text.extend_from_slice(&a.separator);
                    }
                    value.push_text(&mut self.text);
                    memory += self.text.len() - before;
                }
            }
        }
        self.count += 1;
        Ok(memory)
    }

    fn value(self, a: &Aggregate) -> Result<Datum<'static>> {
        Ok(match a.function {
            AggregateKind::Count | AggregateKind::CountRows => Datum::Int(self.count as i64),
            AggregateKind::Sum => self.sum.unwrap_or(Datum::Null),
            AggregateKind::Avg => match self.sum {
                Some(sum) => eval::arith(ArithOp::Div, &sum, &Datum::Int(self.count as i64))?,
                None => Datum::Null,
            },
            AggregateKind::Min | AggregateKind::Max => self.best.unwrap_or(Datum::Null),
            AggregateKind::GroupConcat if self.count > 0 => Datum::Text(self.text.into()),
            AggregateKind::GroupConcat => Datum::Null,
        })
    }
}
