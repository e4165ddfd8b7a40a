//! A partition of a window that memory has no room for.
//!
//! Its rows go to a file, in order, and are counted; then they are read again, those that are equal in order together. So the functions can be told that look no further ahead than to
//! their equals, or at all rows alike: numbers and ranks, aggregates as far as the current row and of the whole partition, FIRST_VALUE of those, LAG. Others look anywhere, and have to have their partition in memory.

use std::{collections::VecDeque, rc::Rc};

use super::{
    Row, Stage, of_row,
    spilled::{push_to, row_of},
    whole,
};
use crate::{
    errors::{self, Result},
    exec::{aggregate::Accumulator, sink::push_sort_keys},
    expr::Expr,
    plan::{
        bind::Aggregate,
        window::{Bound, Call, Function, Window, Windows},
    },
    spill::{File, Reader, Writer, values},
    value::datum::Datum,
};

/// Most rows that LAG looks back, whose values are in memory.
const ROWS_BACK_MAX: usize = 10_000;

/// Rows of a partition that are being gathered.
pub struct Long<'l> {
    stage: &'l Stage<'l>,
    window: &'l Window,
    /// Where their values stand, and what they know so far.
    calls: Vec<(usize, &'l Call, Told<'l>)>,
    file: File,
    rows: Writer,
    count: usize,
    bytes_max: usize,
}

/// How a call is told.
enum Told<'l> {
    RowNumber,
    Rank,
    DenseRank,
    PercentRank,
    CumeDist,
    /// So many tiles.
    Tile(usize),
    /// As far as the current row, or with its equals.
    SoFar {
        aggregate: &'l Aggregate,
        with_equals: bool,
        all: Accumulator,
    },
    OfAll {
        aggregate: &'l Aggregate,
        all: Accumulator,
    },
    First(Option<Datum<'static>>),
    Before {
        by: usize,
        otherwise: Option<&'l Expr>,
        last: VecDeque<Datum<'static>>,
    },
}

/// How far a frame goes that begins with the partition.
#[derive(PartialEq, Eq)]
enum Reach {
    Row,
    Equals,
    All,
}

fn reach(window: &Window) -> Option<Reach> {
    let behind = if window.order.is_empty() { Reach::All } else { Reach::Equals };
    match &window.frame {
        None => Some(behind),
        Some(frame) => match (&frame.start, &frame.end) {
            (Bound::Partition, Bound::Partition) => Some(Reach::All),
            (Bound::Partition, Bound::CurrentRow) if frame.is_rows => Some(Reach::Row),
            (Bound::Partition, Bound::CurrentRow) => Some(behind),
            _ => None,
        },
    }
}

fn told<'l>(stage: &Stage<'_>, window: &Window, call: &'l Call) -> Result<Option<Told<'l>>> {
    Ok(Some(match (&call.function, reach(window)) {
        (Function::RowNumber, _) => Told::RowNumber,
        (Function::Rank, _) => Told::Rank,
        (Function::DenseRank, _) => Told::DenseRank,
        (Function::PercentRank, _) => Told::PercentRank,
        (Function::CumeDist, _) => Told::CumeDist,
        (Function::Ntile(count), _) => Told::Tile(whole(count, &stage.cx, 1, "ntile")?),
        (Function::First, Some(_)) => Told::First(None),
        (Function::Shifted { back: true, by, otherwise }, _) => {
            let by = by.as_ref().map_or(Ok(1), |by| whole(by, &stage.cx, 0, "lag"))?;
            if by > ROWS_BACK_MAX {
                return Ok(None);
            }
            Told::Before { by, otherwise: otherwise.as_ref(), last: VecDeque::new() }
        }
        (Function::Aggregate(aggregate), Some(Reach::All)) => Told::OfAll { aggregate, all: Accumulator::default() },
        (Function::Aggregate(aggregate), Some(reach)) => {
            Told::SoFar { aggregate, with_equals: reach == Reach::Equals, all: Accumulator::default() }
        }
        _ => return Ok(None),
    }))
}

impl<'l> Long<'l> {
    /// # Errors
    /// 3170 where a function has to have its partition in memory.
    pub async fn new(stage: &'l Stage<'l>, windows: &'l Windows, number: usize, bytes_max: usize) -> Result<Long<'l>> {
        let window = &windows.list[number];
        let mut calls = Vec::new();
        for (at, call) in windows.calls.iter().enumerate().filter(|(_, call)| call.window == number) {
            match told(stage, window, call)? {
                Some(told) => calls.push((stage.before + at, call, told)),
                None => return Err(errors::out_of_memory_for("a partition of a window", bytes_max)),
            }
        }
        let file = File::create(stage.cx.env).await?;
        Ok(Long { stage, window, calls, file, rows: Writer::default(), count: 0, bytes_max })
    }

    /// The next row of the partition.
    pub async fn push(&mut self, row: &Row) -> Result<()> {
        let cx = of_row(self.stage, row);
        let (mut key, mut group) = (Vec::new(), Vec::new());
        push_sort_keys(&self.window.order, &cx, &mut key)?;
        for (_, _, told) in &mut self.calls {
            if let Told::OfAll { aggregate, all } = told {
                all.add(aggregate, &cx)?;
            }
        }
        values::push_group(&row.row, &row.values, &mut group);
        self.rows.push(&key, &group);
        self.count += 1;
        if self.rows.is_full() {
            self.rows.flush(&self.file, self.stage.cx.env).await?;
        }
        Ok(())
    }

    /// All rows have come: they go on with their values.
    pub async fn give(self, file: &File, out: &mut Writer) -> Result<()> {
        let Long { stage, window, mut calls, file: own, rows, count, bytes_max } = self;
        let env = stage.cx.env;
        let mut reader = Reader::new(Rc::new(rows.end(&own, env).await?));
        let (mut equals, mut bytes, mut key) = (Vec::new(), 0, Vec::new());
        let mut place = Place { start: 0, groups: 0, count, is_ordered: !window.order.is_empty() };
        loop {
            let has_more = reader.advance(env).await?;
            env.breathe(1).await?;
            // Without an order all are equal, and none waits for the others.
            if !equals.is_empty() && (!has_more || !place.is_ordered || reader.key() != key) {
                place.fill(stage, &mut calls, &mut equals)?;
                for row in equals.drain(..) {
                    push_to(out, &row.row, &row.values);
                    if out.is_full() {
                        out.flush(file, env).await?;
                    }
                }
                bytes = 0;
            }
            if !has_more {
                return Ok(());
            }
            key.clear();
            key.extend_from_slice(reader.key());
            let row = row_of(reader.payload())?;
            bytes += row.byte_len();
            if bytes > bytes_max {
                return Err(errors::out_of_memory_for("rows of a window that are equal in order", bytes_max));
            }
            equals.push(row);
        }
    }
}

/// Where in the partition rows stand that are equal in order.
struct Place {
    start: usize,
    /// Groups of equals before.
    groups: usize,
    /// Rows of the partition.
    count: usize,
    is_ordered: bool,
}

impl Place {
    fn fill(&mut self, stage: &Stage<'_>, calls: &mut [(usize, &Call, Told<'_>)], equals: &mut [Row]) -> Result<()> {
        for (at, call, told) in calls {
            if let Told::SoFar { aggregate, with_equals: true, all } = told {
                equals.iter().try_for_each(|row| all.add(aggregate, &of_row(stage, row)).map(|_| ()))?;
            }
            for i in 0..equals.len() {
                let value = self.value(stage, call, told, equals, i)?;
                if let Some(place) = equals[i].values.get_mut(*at) {
                    *place = value;
                }
            }
        }
        self.start += equals.len();
        self.groups += 1;
        Ok(())
    }

    fn value(
        &self,
        stage: &Stage<'_>,
        call: &Call,
        told: &mut Told<'_>,
        equals: &[Row],
        i: usize,
    ) -> Result<Datum<'static>> {
        let env = stage.cx.env;
        let cx = of_row(stage, &equals[i]);
        let shown = || -> Result<Datum<'static>> {
            call.argument.as_ref().map_or(Ok(Datum::Null), |e| Ok(e.eval(&cx)?.into_owned()))
        };
        let (first, behind) = if self.is_ordered { (self.start, self.start + equals.len()) } else { (0, self.count) };
        Ok(match told {
            Told::RowNumber => Datum::UInt((self.start + i) as u64 + 1),
            Told::Rank => Datum::UInt(first as u64 + 1),
            Told::DenseRank => Datum::UInt(if self.is_ordered { self.groups as u64 + 1 } else { 1 }),
            Told::PercentRank => {
                let others = self.count - 1;
                Datum::Double(if others == 0 { 0.0 } else { first as f64 / others as f64 })
            }
            Told::CumeDist => Datum::Double(behind as f64 / self.count as f64),
            Told::Tile(tiles) => Datum::UInt(super::tile(self.start + i, self.count, *tiles)),
            Told::SoFar { aggregate, with_equals, all } => {
                if !*with_equals {
                    all.add(aggregate, &cx)?;
                }
                all.clone().value(aggregate, env)?.declared()
            }
            Told::OfAll { aggregate, all } => all.clone().value(aggregate, env)?.declared(),
            Told::First(first) => match first {
                Some(first) => first.clone(),
                None => first.insert(shown()?).clone(),
            },
            Told::Before { by, otherwise, last } => {
                last.push_back(shown()?);
                match (last.len() > *by, otherwise) {
                    (true, _) => last.pop_front().unwrap_or(Datum::Null),
                    (false, Some(otherwise)) => otherwise.eval(&cx)?.into_owned(),
                    (false, None) => Datum::Null,
                }
            }
        })
    }
}
