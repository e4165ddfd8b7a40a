//! Subqueries: run once for each distinct set of values that they take from the block around, whose answers are remembered.

use std::rc::Rc;

use apus_types::{ColumnType, RowLayout};

use super::{
    Run, block,
    pipeline::{Consumer, Pipeline, context, passes},
};
use crate::{
    errors,
    exec::{
        read::{RANGES_AT_ONCE, join_all},
        target::{Kept, Target, fitted},
    },
    expr::{ColumnRef, Context, Expr, assign, eval::comparison, result_cells},
    plan::{
        query::{Asked, Member, Step, Subquery},
        select::Output,
    },
    session::Done,
    spill::{
        Gathered,
        byte_strings::{StringSet, Strings},
    },
    value::datum::Datum,
};

/// What a subquery said.
#[derive(Clone)]
pub enum Answer {
    Value(Datum<'static>),
    /// Rows that something is looked for among.
    Rows(Rc<Members>),
}

/// Answers by what was given.
#[derive(Default)]
pub struct Memo {
    keys: StringSet,
    answers: Vec<Answer>,
    bytes: usize,
}

/// The rows of a subquery behind IN, ANY or ALL.
pub struct Members {
    layout: RowLayout,
    types: Vec<ColumnType>,
    rows: Strings,
    /// Rows without NULL, by their values; where all columns have a form to be looked up by.
    keys: Option<StringSet>,
    /// Numbers of rows that have a NULL.
    partial: Vec<usize>,
}

impl Memo {
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The batch with one more column: what the subquery says for each row. Rows that the step's condition refuses are left out.
    pub async fn column<C: Consumer>(
        &mut self,
        pipeline: &Pipeline<'_, '_, C>,
        subquery: &Subquery,
        step: &Step,
        before: &RowLayout,
        batch: &Strings,
    ) -> Done<Strings> {
        let run = pipeline.run;
        let given = |row| context(run, pipeline.given, before, row);
        let mut numbers = Vec::with_capacity(batch.len());
        let mut new: Vec<&[u8]> = Vec::new();
        for row in batch.iter() {
            let (number, is_new) =
                self.keys.insert_with(|key| push_inputs(outer_values(subquery), &given(row), key))?;
            numbers.push(number);
            if is_new {
                new.push(row);
            }
        }
        let before_bytes = self.bytes;
        for some in new.chunks(RANGES_AT_ONCE) {
            run.env.may_go_on()?;
            let asked = some.iter().map(|row| Box::pin(async move { answer(run, subquery, &given(row)).await }));
            for answer in join_all(asked.collect()).await {
                let answer = answer?;
                self.bytes += answer.bytes();
                self.answers.push(answer);
            }
        }
        run.keep(self.bytes - before_bytes)?;
        let kept = RowLayout::new([subquery.ty]);
        let (mut out, mut cell) = (Strings::default(), Vec::new());
        for (row, number) in batch.iter().zip(numbers) {
            let cx = given(row);
            let value = match self.answers.get(number) {
                Some(Answer::Value(value)) => value.borrowed(),
                Some(Answer::Rows(rows)) => rows.ask(&subquery.asked, &cx)?,
                None => return Err(errors::internal("a subquery without an answer").into()),
            };
            let value = fitted(subquery.ty, value);
            cell.clear();
            kept.encode(&[assign::stored(subquery.ty, &value)], &mut cell)?;
            step.layout.join((before, row), (&kept, Some(&cell), &[0]), out.writer());
            out.end();
            let joined = out.get(out.len() - 1).unwrap_or(&[]);
            if !passes(step.filter.as_ref(), &context(run, pipeline.given, &step.layout, joined))? {
                out.pop();
            }
        }
        Ok(out)
    }
}

/// The value of a subquery that depends on no row.
pub async fn value(run: &Run<'_>, subquery: &Subquery, cx: &Context<'_>) -> Done<Datum<'static>> {
    match answer(run, subquery, cx).await? {
        Answer::Value(value) => Ok(value),
        Answer::Rows(rows) => Ok(rows.ask(&subquery.asked, cx)?.into_owned()),
    }
}

fn outer_values(subquery: &Subquery) -> impl Iterator<Item = &Expr> {
    subquery.query.given.iter().filter_map(|g| g.outer())
}

/// Makes a key of what a block is given: the same for the same values only.
pub fn push_inputs<'e>(
    inputs: impl Iterator<Item = &'e Expr>,
    cx: &Context<'_>,
    key: &mut Vec<u8>,
) -> errors::Result<()> {
    for e in inputs {
        let value = e.eval(cx)?;
        let text = value.as_text();
        key.push(u8::from(value.is_null()));
        key.extend_from_slice(&(text.len() as u64).to_le_bytes());
        key.extend_from_slice(&text);
    }
    Ok(())
}

async fn answer(run: &Run<'_>, subquery: &Subquery, cx: &Context<'_>) -> Done<Answer> {
    let query = &subquery.query;
    match &subquery.asked {
        Asked::Exists => {
            let mut any = Any(false);
            Box::pin(block(run, query, Some(cx), &mut any, 1)).await?;
            Ok(Answer::Value(Datum::from_bool(any.0)))
        }
        Asked::Found => {
            let mut one = One(Datum::Null);
            Box::pin(block(run, query, Some(cx), &mut one, 1)).await?;
            Ok(Answer::Value(one.0))
        }
        Asked::Value => {
            let (types, layout) = ([subquery.ty], RowLayout::new([subquery.ty]));
            let mut kept =
                Kept { types: &types, layout: &layout, rows: Gathered::default(), bytes_max: run.room(), file: None };
            Box::pin(block(run, query, Some(cx), &mut kept, 2)).await?;
            if kept.rows.rows.len() > 1 {
                return Err(errors::subquery_rows().into());
            }
            Ok(Answer::Value(match kept.rows.rows.get(0) {
                None => Datum::Null,
                Some(row) => {
                    let cx = Context { layout: &layout, row, ..*cx };
                    Expr::Column(ColumnRef { slot: 0, ty: subquery.ty }).eval(&cx)?.into_owned()
                }
            }))
        }
        Asked::In(_) | Asked::Quantified { .. } => {
            let types: Vec<ColumnType> =
                query.outputs.iter().map(|o| crate::plan::derived::type_of_output(o, &[])).collect();
            let layout = RowLayout::new(types.iter().copied());
            let mut kept =
                Kept { types: &types, layout: &layout, rows: Gathered::default(), bytes_max: run.room(), file: None };
            Box::pin(block(run, query, Some(cx), &mut kept, u64::MAX)).await?;
            let rows = kept.rows.rows;
            let members = match &subquery.asked {
                Asked::In(members) => members.as_slice(),
                _ => &[],
            };
            Ok(Answer::Rows(Rc::new(Members::new(types, layout, rows, members, cx)?)))
        }
    }
}

impl Answer {
    fn bytes(&self) -> usize {
        match self {
            Answer::Value(value) => size_of::<Answer>() + value.heap_bytes(),
            Answer::Rows(rows) => rows.rows.byte_len() + rows.keys.as_ref().map_or(0, StringSet::byte_len),
        }
    }
}

impl Members {
    fn new(
        types: Vec<ColumnType>,
        layout: RowLayout,
        rows: Strings,
        members: &[Member],
        cx: &Context<'_>,
    ) -> errors::Result<Members> {
        let can_look_up = !members.is_empty() && members.iter().all(|m| m.kind.is_some());
        let mut all = Members { layout, types, rows, keys: can_look_up.then(StringSet::default), partial: Vec::new() };
        for at in 0..all.rows.len() {
            let values = all.row(at, cx)?;
            if values.iter().any(Datum::is_null) {
                all.partial.push(at);
            } else if all.keys.is_some() {
                let mut key = Vec::new();
                push_members(members, &values, &mut key);
                all.keys.as_mut().map(|keys| keys.insert(&key));
            }
        }
        Ok(all)
    }

    fn row(&self, at: usize, cx: &Context<'_>) -> errors::Result<Vec<Datum<'static>>> {
        let cx = Context { layout: &self.layout, row: self.rows.get(at).unwrap_or(&[]), ..*cx };
        let column = |(slot, &ty): (usize, &ColumnType)| {
            Ok(Expr::Column(ColumnRef { slot: slot as u16, ty }).eval(&cx)?.into_owned())
        };
        self.types.iter().enumerate().map(column).collect()
    }

    /// The answer for a row of the block around.
    fn ask(&self, asked: &Asked, cx: &Context<'_>) -> errors::Result<Datum<'static>> {
        let truth = |t: Option<bool>| t.map_or(Datum::Null, Datum::from_bool);
        match asked {
            Asked::In(members) => Ok(truth(self.contains(members, cx)?)),
            Asked::Quantified { left, op, all, collation } => {
                let left = left.eval(cx)?;
                let mut unknown = false;
                for at in 0..self.rows.len() {
                    let row = self.row(at, cx)?;
                    match row.first().and_then(|right| comparison::compare(cx, &left, right, *collation)) {
                        Some(o) if op.holds(o) != *all => return Ok(Datum::from_bool(!*all)),
                        Some(_) => {}
                        None => unknown = true,
                    }
                }
                Ok(truth((!unknown).then_some(*all)))
            }
            Asked::Value | Asked::Exists | Asked::Found => Err(errors::internal("a value among rows")),
        }
    }

    fn contains(&self, members: &[Member], cx: &Context<'_>) -> errors::Result<Option<bool>> {
        let left = members.iter().map(|m| m.left.eval(cx)).collect::<errors::Result<Vec<_>>>()?;
        let has_null = left.iter().any(Datum::is_null);
        let mut numbers: Box<dyn Iterator<Item = usize>> = Box::new(0..self.rows.len());
        if let (Some(keys), false) = (&self.keys, has_null) {
            let mut key = Vec::new();
            push_members(members, &left, &mut key);
            if keys.contains(&key) {
                return Ok(Some(true));
            }
            numbers = Box::new(self.partial.iter().copied());
        }
        let mut unknown = false;
        for at in numbers {
            let row = self.row(at, cx)?;
            let mut result = Some(true);
            for ((a, b), m) in left.iter().zip(&row).zip(members) {
                match comparison::compare(cx, a, b, m.collation) {
                    Some(o) if o.is_ne() => {
                        result = Some(false);
                        break;
                    }
                    Some(_) => {}
                    None => result = None,
                }
            }
            match result {
                Some(true) => return Ok(Some(true)),
                Some(false) => {}
                None => unknown = true,
            }
        }
        Ok((!unknown).then_some(false))
    }
}

fn push_members(members: &[Member], values: &[Datum<'_>], key: &mut Vec<u8>) {
    for (m, value) in members.iter().zip(values) {
        if let Some(kind) = m.kind {
            result_cells::push_sort_key(key, kind, m.collation, value, false);
        }
    }
}

/// Whether there are rows.
struct Any(bool);

impl Target for Any {
    fn row_of(&mut self, _: &[Output], _: &Context<'_>) -> errors::Result<()> {
        self.0 = true;
        Ok(())
    }
    fn row_of_values(&mut self, _: &[Output], _: &[Datum<'_>]) -> errors::Result<()> {
        self.0 = true;
        Ok(())
    }
    async fn flush_if_full(&mut self) -> errors::Result<()> {
        Ok(())
    }
}

/// The one value of an aggregate.
struct One(Datum<'static>);

impl Target for One {
    fn row_of(&mut self, outputs: &[Output], cx: &Context<'_>) -> errors::Result<()> {
        self.0 = outputs.first().map_or(Ok(Datum::Null), |output| output.expr.eval(cx))?.into_owned();
        Ok(())
    }
    fn row_of_values(&mut self, _: &[Output], values: &[Datum<'_>]) -> errors::Result<()> {
        self.0 = values.first().map_or(Datum::Null, |value| value.clone().into_owned());
        Ok(())
    }
    async fn flush_if_full(&mut self) -> errors::Result<()> {
        Ok(())
    }
}
