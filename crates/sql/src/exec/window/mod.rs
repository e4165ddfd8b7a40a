//! Values of window functions for the rows of a block, which are all held: in memory, or in a file ([`spilled`]).
//!
//! For each window the rows are sorted by its partition and order; then each partition is gone through, a function at a time. An aggregate takes only the rows by which a
//! frame grows; rows that leave are taken out of sums and counts of exact numbers, other aggregates begin anew.

mod long_partition;
pub mod spilled;

use std::ops::Range;

use super::{aggregate::Accumulator, sink::push_sort_keys};
use crate::{
    errors::{self, Result},
    expr::{Context, Expr, result_cells},
    plan::{
        bind::{Aggregate, AggregateKind},
        window::{Bound, Call, Frame, Function, Window, Windows},
    },
    spill::byte_strings::{Pairs, Strings},
    value::datum::Datum,
    wire::SqlError,
};

/// A row of a block, or a group with its first row.
#[derive(Default)]
pub struct Row {
    pub row: Vec<u8>,
    /// Values of aggregates, then of window functions.
    pub values: Vec<Datum<'static>>,
}

/// What all rows are evaluated with.
#[derive(Clone, Copy)]
pub struct Stage<'s> {
    /// Without a row.
    pub cx: Context<'s>,
    /// Values of a row before those of window functions.
    pub before: usize,
}

/// Fills in the values of window functions. Returns the order in which the last sort left the rows, and the memory that the values take.
pub async fn fill(stage: &Stage<'_>, windows: &Windows, rows: &mut [Row]) -> Result<(Vec<u32>, usize)> {
    let mut bytes = 0;
    let mut sorted = Sorted::default();
    for (number, window) in windows.list.iter().enumerate() {
        sorted = sorted.by(stage, window, rows).await?;
        bytes += values_of(stage, windows, number, &sorted, rows).await?;
    }
    let order = (0..rows.len()).map(|position| sorted.row(position) as u32).collect();
    Ok((order, bytes))
}

/// Fills in the values of the functions of one window; the memory that they take.
async fn values_of(
    stage: &Stage<'_>,
    windows: &Windows,
    number: usize,
    sorted: &Sorted,
    rows: &mut [Row],
) -> Result<usize> {
    let mut bytes = 0;
    let window = &windows.list[number];
    for (at, call) in windows.calls.iter().enumerate().filter(|(_, call)| call.window == number) {
        let mut start = 0;
        while start < rows.len() {
            let part = Part::new(stage, window, sorted, rows, start)?;
            let mut values = Vec::with_capacity(part.len());
            part.values(call, &mut values).await?;
            let places: Vec<usize> = (start..part.end).map(|position| sorted.row(position)).collect();
            start = part.end;
            for (row, value) in places.into_iter().zip(values) {
                bytes += value.heap_bytes();
                if let Some(place) = rows[row].values.get_mut(stage.before + at) {
                    *place = value;
                }
            }
        }
    }
    Ok(bytes)
}

/// Rows in the order of a window: keys of partition and order; the number of a row, and how long the partition's key is.
#[derive(Default)]
struct Sorted {
    pairs: Pairs,
    /// With a frame that is bounded by values: those of the ORDER BY expression, in order.
    range: Strings,
}

impl Sorted {
    async fn by(self, stage: &Stage<'_>, window: &Window, rows: &[Row]) -> Result<Sorted> {
        // What is equal stays in the order of the window before.
        let is_first = self.pairs.is_empty();
        let before: Vec<usize> = (0..rows.len()).map(|at| if is_first { at } else { self.row(at) }).collect();
        let Sorted { mut pairs, mut range } = self;
        pairs.clear();
        range.clear();
        let mut key = Vec::new();
        for number in before {
            stage.cx.env.breathe(1).await?;
            let cx = of_row(stage, &rows[number]);
            key.clear();
            push_sort_keys(&window.partition, &cx, &mut key)?;
            let length = key.len() as u32;
            push_sort_keys(&window.order, &cx, &mut key)?;
            let mut payload = [0; 8];
            payload[..4].copy_from_slice(&(number as u32).to_le_bytes());
            payload[4..].copy_from_slice(&length.to_le_bytes());
            pairs.push_plain(&key, &payload);
        }
        pairs.sort_in_turns(stage.cx.env).await?;
        let mut sorted = Sorted { pairs, range };
        if let (Some(kind), Some(key)) = (window.value_kind(), window.order.first()) {
            for position in 0..rows.len() {
                stage.cx.env.breathe(1).await?;
                let value = key.expr.eval(&of_row(stage, &rows[sorted.row(position)]))?;
                result_cells::push_sort_key(sorted.range.writer(), kind, key.collation, &value, key.descending);
                sorted.range.end();
            }
        }
        Ok(sorted)
    }
    fn word(&self, position: usize, at: usize) -> usize {
        let bytes = self.pairs.payload(position).get(at..at + 4).and_then(<[u8]>::first_chunk::<4>);
        bytes.map_or(0, |b| u32::from_le_bytes(*b) as usize)
    }
    fn row(&self, position: usize) -> usize {
        self.word(position, 0)
    }
    fn partition(&self, position: usize) -> &[u8] {
        self.pairs.key(position).get(..self.word(position, 4)).unwrap_or(&[])
    }
}

fn of_row<'c>(stage: &'c Stage<'_>, row: &'c Row) -> Context<'c> {
    Context { row: &row.row, aggregates: &row.values, ..stage.cx }
}

/// One partition.
struct Part<'p> {
    stage: &'p Stage<'p>,
    window: &'p Window,
    sorted: &'p Sorted,
    rows: &'p [Row],
    start: usize,
    end: usize,
    /// Where the rows that are equal in order begin, for each; and the end.
    peers: Vec<usize>,
}

impl<'p> Part<'p> {
    fn new(
        stage: &'p Stage<'_>,
        window: &'p Window,
        sorted: &'p Sorted,
        rows: &'p [Row],
        start: usize,
    ) -> Result<Part<'p>> {
        let own = sorted.partition(start);
        let mut end = start + 1;
        let mut peers = vec![start];
        while end < rows.len() && sorted.partition(end) == own {
            if sorted.pairs.key(end) != sorted.pairs.key(end - 1) {
                peers.push(end);
            }
            end += 1;
        }
        peers.push(end);
        Ok(Part { stage, window, sorted, rows, start, end, peers })
    }
    fn len(&self) -> usize {
        self.end - self.start
    }
    fn cx(&self, position: usize) -> Context<'_> {
        of_row(self.stage, &self.rows[self.sorted.row(position)])
    }
    fn shown(&self, call: &Call, position: usize) -> Result<Datum<'static>> {
        match &call.argument {
            Some(e) => Ok(e.eval(&self.cx(position))?.into_owned()),
            None => Ok(Datum::Null),
        }
    }
    /// The rows equal to one in order, and how many such groups there are before them.
    fn peers(&self, position: usize) -> (Range<usize>, usize) {
        let at = self.peers.partition_point(|&first| first <= position).saturating_sub(1);
        (self.peers[at]..self.peers[at + 1], at)
    }

    /// The values of a call for all rows, in order.
    async fn values(&self, call: &Call, out: &mut Vec<Datum<'static>>) -> Result<()> {
        match &call.function {
            Function::Aggregate(aggregate) => return self.aggregates(aggregate, out).await,
            Function::Ntile(count) => return self.tiles(count, out),
            _ => {}
        }
        for position in self.start..self.end {
            out.push(self.value(call, position)?);
            self.stage.cx.env.breathe(1).await?;
        }
        Ok(())
    }

    fn value(&self, call: &Call, position: usize) -> Result<Datum<'static>> {
        let before = |position| (position - self.start) as u64;
        match &call.function {
            Function::RowNumber => Ok(Datum::UInt(before(position) + 1)),
            Function::Rank => Ok(Datum::UInt(before(self.peers(position).0.start) + 1)),
            Function::DenseRank => Ok(Datum::UInt(self.peers(position).1 as u64 + 1)),
            Function::PercentRank => {
                let others = self.len() - 1;
                let rank = before(self.peers(position).0.start) as f64;
                Ok(Datum::Double(if others == 0 { 0.0 } else { rank / others as f64 }))
            }
            Function::CumeDist => Ok(Datum::Double(before(self.peers(position).0.end) as f64 / self.len() as f64)),
            Function::Shifted { back, by, otherwise } => {
                let by =
                    by.as_ref().map_or(Ok(1), |by| whole(by, &self.stage.cx, 0, if *back { "lag" } else { "lead" }))?;
                let other = if *back {
                    position.checked_sub(by).filter(|p| *p >= self.start)
                } else {
                    position.checked_add(by).filter(|p| *p < self.end)
                };
                match (other, otherwise) {
                    (Some(other), _) => self.shown(call, other),
                    (None, Some(e)) => Ok(e.eval(&self.cx(position))?.into_owned()),
                    (None, None) => Ok(Datum::Null),
                }
            }
            Function::First => self.of_frame(call, position, |frame| Some(frame.start)),
            Function::Last => self.of_frame(call, position, |frame| frame.end.checked_sub(1)),
            Function::Nth(at) => {
                let at = whole(at, &self.stage.cx, 1, "nth_value")? - 1;
                self.of_frame(call, position, |frame| frame.start.checked_add(at))
            }
            Function::Ntile(_) | Function::Aggregate(_) => Err(errors::internal("a window function of a whole")),
        }
    }

    fn of_frame(
        &self,
        call: &Call,
        position: usize,
        pick: impl Fn(&Range<usize>) -> Option<usize>,
    ) -> Result<Datum<'static>> {
        let frame = self.frame(position)?;
        match pick(&frame).filter(|p| frame.contains(p)) {
            Some(picked) => self.shown(call, picked),
            None => Ok(Datum::Null),
        }
    }

    fn tiles(&self, count: &Expr, out: &mut Vec<Datum<'static>>) -> Result<()> {
        let count = whole(count, &self.stage.cx, 1, "ntile")?;
        out.extend((0..self.len()).map(|at| Datum::UInt(tile(at, self.len(), count))));
        Ok(())
    }

    async fn aggregates(&self, aggregate: &Aggregate, out: &mut Vec<Datum<'static>>) -> Result<()> {
        let mut so_far = Accumulator::default();
        let mut taken = self.start..self.start;
        for position in self.start..self.end {
            let frame = self.frame(position)?;
            if frame == taken && position > self.start {
                out.push(out.last().map_or(Datum::Null, Datum::clone));
                continue;
            }
            let goes_on = frame.start >= taken.start && frame.start <= taken.end && frame.end >= taken.end;
            let can_leave = frame.start == taken.start || is_reversible(aggregate);
            if !goes_on || !can_leave {
                so_far = Accumulator::default();
                taken = frame.start..frame.start;
            }
            for gone in taken.start..frame.start {
                so_far.remove(aggregate, &self.cx(gone))?;
                self.stage.cx.env.breathe(1).await?;
            }
            for new in taken.end.max(frame.start)..frame.end {
                so_far.add(aggregate, &self.cx(new))?;
                self.stage.cx.env.breathe(1).await?;
            }
            taken = frame;
            out.push(so_far.clone().value(aggregate, self.stage.cx.env)?.declared());
        }
        Ok(())
    }

    /// The frame of a row; an empty one begins where it ends.
    fn frame(&self, position: usize) -> Result<Range<usize>> {
        let Some(Frame { is_rows, start, end }) = &self.window.frame else {
            let end = if self.window.order.is_empty() { self.end } else { self.peers(position).0.end };
            return Ok(self.start..end);
        };
        let first = match start {
            Bound::Partition => self.start,
            Bound::CurrentRow if *is_rows => position,
            Bound::CurrentRow => self.peers(position).0.start,
            Bound::Rows { count, preceding: true } => position.saturating_sub(self.count(count)?).max(self.start),
            Bound::Rows { count, .. } => position.saturating_add(self.count(count)?).min(self.end),
            bound => self.by_value(bound, position, true)?,
        };
        let last = match end {
            Bound::Partition => self.end,
            Bound::CurrentRow if *is_rows => position + 1,
            Bound::CurrentRow => self.peers(position).0.end,
            Bound::Rows { count, preceding: true } => (position + 1).saturating_sub(self.count(count)?).max(self.start),
            Bound::Rows { count, .. } => (position + 1).saturating_add(self.count(count)?).min(self.end),
            bound => self.by_value(bound, position, false)?,
        };
        Ok(first..last.max(first))
    }

    fn count(&self, count: &Expr) -> Result<usize> {
        match count.eval(&self.stage.cx)? {
            Datum::Int(n) if n >= 0 => Ok(usize::try_from(n).unwrap_or(usize::MAX)),
            Datum::UInt(n) => Ok(usize::try_from(n).unwrap_or(usize::MAX)),
            _ => Err(self.wrong_bound()),
        }
    }
    fn wrong_bound(&self) -> SqlError {
        let words = "frame start or end is negative, NULL or of non-integral type";
        SqlError::new(3586, b"HY000", format!("Window '{}': {words}", self.window.name))
    }

    /// Where the rows begin, or end, that a value bounds. The frame of a NULL are the NULLs.
    fn by_value(&self, bound: &Bound, position: usize, is_start: bool) -> Result<usize> {
        let (Bound::Value { value, distance, preceding }, Some(key), Some(kind)) =
            (bound, self.window.order.first(), self.window.value_kind())
        else {
            return Err(errors::internal("a frame without an order"));
        };
        let cx = self.cx(position);
        let distance = distance.eval(&cx)?;
        if distance.is_null() || distance.number().is_none_or(|n| n.to_f64() < 0.0) {
            return Err(self.wrong_bound());
        }
        if key.expr.eval(&cx)?.is_null() {
            let nulls = self.peers(position).0;
            return Ok(if is_start { nulls.start } else { nulls.end });
        }
        let target = value.eval(&cx)?;
        if target.is_null() {
            // Beyond all moments.
            return Ok(if *preceding { self.start } else { self.end });
        }
        let mut wanted = Vec::new();
        result_cells::push_sort_key(&mut wanted, kind, key.collation, &target, key.descending);
        let is_before = |at: usize| {
            let own = self.sorted.range.get(at).unwrap_or(&[]);
            if is_start { own < wanted.as_slice() } else { own <= wanted.as_slice() }
        };
        let (mut low, mut high) = (self.start, self.end);
        while low < high {
            let middle = low + (high - low) / 2;
            if is_before(middle) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }
}

/// In which of so many tiles a row is, of so many rows.
fn tile(at: usize, rows: usize, count: usize) -> u64 {
    let (size, larger) = (rows / count, rows % count);
    let in_larger = larger * (size + 1);
    let tile = if at < in_larger { at / (size + 1) } else { larger + (at - in_larger) / size.max(1) };
    tile as u64 + 1
}

fn whole(e: &Expr, cx: &Context<'_>, least: usize, function: &str) -> Result<usize> {
    let value = match e.eval(cx)? {
        Datum::Int(n) => usize::try_from(n).ok(),
        Datum::UInt(n) => usize::try_from(n).ok(),
        _ => None,
    };
    value.filter(|n| *n >= least).ok_or_else(|| errors::wrong_arguments(function))
}

/// Whether what was added can be taken out again, and leaves no trace.
fn is_reversible(a: &Aggregate) -> bool {
    use crate::expr::Kind;
    match a.function {
        AggregateKind::Count | AggregateKind::CountRows => true,
        AggregateKind::Sum | AggregateKind::Avg => matches!(a.kind, Kind::Decimal(_)),
        _ => false,
    }
}
