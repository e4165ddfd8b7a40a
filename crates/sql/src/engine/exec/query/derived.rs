//! Rows of derived tables (LATERAL ones for the rows before them), set operations and recursions, kept in memory.

use std::rc::Rc;

use apus_types::{RowLayout, TableSchema};

use super::{
    Boxed, Run, block, json_table,
    pipeline::{Consumer, Pipeline, context},
    subquery::push_inputs,
};
use crate::engine::{
    cells, errors,
    exec::{
        read::{RANGES_AT_ONCE, join_all},
        target::Kept,
    },
    expr::{ColumnRef, Context, Expr, Kind},
    keys::{StringSet, Strings},
    plan::query::{Body, Derived, SetOperation},
    session::Done,
};

/// The rows of a derived table for a block whose values are in `cx`.
pub async fn rows(run: &Run<'_>, derived: &Derived, cx: &Context<'_>) -> Done<Rc<Strings>> {
    if let Body::LastRows = derived.body {
        let table = Rc::as_ptr(&derived.table) as usize;
        let found = run.last_rows.borrow().iter().rev().find(|(t, _)| *t == table).map(|(_, rows)| rows.clone());
        return found.ok_or_else(|| errors::internal("a recursion that is not under way").into());
    }
    let plan = std::ptr::from_ref(derived) as usize;
    if let Some(known) = run.derived.borrow().get(&plan) {
        return Ok(known.clone());
    }
    let rows = Rc::new(of_body(run, &derived.body, &derived.table, cx).await?);
    if !derived.is_correlated {
        run.keep(rows.byte_len())?;
        run.derived.borrow_mut().insert(plan, rows.clone());
    }
    Ok(rows)
}

/// Rows of a LATERAL table for each row of a batch.
pub struct ForRows {
    /// By row of the batch: which of the answers.
    numbers: Vec<usize>,
    answers: Vec<Rc<Strings>>,
    pub bytes: usize,
}

impl ForRows {
    pub fn of_row<'f>(&'f self, row: usize, out: &mut Vec<&'f [u8]>) {
        let answer = self.numbers.get(row).and_then(|&number| self.answers.get(number));
        out.extend(answer.iter().flat_map(|rows| rows.iter()));
    }
}

/// Makes a LATERAL table for a batch: once for each distinct set of values that it takes.
pub async fn for_rows<C: Consumer>(
    pipeline: &Pipeline<'_, '_, C>,
    derived: &Derived,
    before: &RowLayout,
    batch: &Strings,
) -> Done<ForRows> {
    let run = pipeline.run;
    let given = |row| context(run, pipeline.given, before, row);
    let inputs = derived.inputs();
    let mut keys = StringSet::default();
    let mut found = ForRows { numbers: Vec::with_capacity(batch.len()), answers: Vec::new(), bytes: 0 };
    let mut new: Vec<&[u8]> = Vec::new();
    for row in batch.iter() {
        let (number, is_new) = keys.insert_with(|key| push_inputs(inputs.iter().copied(), &given(row), key))?;
        found.numbers.push(number);
        if is_new {
            new.push(row);
        }
    }
    for some in new.chunks(RANGES_AT_ONCE) {
        run.env.may_go_on()?;
        let asked = some.iter().map(|row| Box::pin(async move { rows(run, derived, &given(row)).await }));
        for answer in join_all(asked.collect()).await {
            let answer = answer?;
            found.bytes += answer.byte_len();
            run.keep(answer.byte_len())?;
            found.answers.push(answer);
        }
    }
    Ok(found)
}

fn of_body<'f>(
    run: &'f Run<'_>,
    body: &'f Body,
    table: &'f Rc<crate::engine::catalog::Table>,
    cx: &'f Context<'_>,
) -> Boxed<'f, Strings> {
    Box::pin(async move {
        let schema = &table.schema;
        match body {
            Body::Select(select) => {
                let types: Vec<_> = schema.columns.iter().map(|c| c.ty).collect();
                let rows = Strings::default();
                let mut kept = Kept { types: &types, layout: schema.layout(), rows, bytes_max: run.left() };
                block(run, select, Some(cx), &mut kept, u64::MAX).await?;
                Ok(kept.rows)
            }
            Body::Set { operation, all, left, right } => {
                let left = of_body(run, left, table, cx).await?;
                run.keep(left.byte_len())?;
                let right = of_body(run, right, table, cx).await;
                run.release(left.byte_len());
                combined(run, schema, (*operation, *all), left, &right?, cx)
            }
            Body::Recursive { first, step, all } => recursive(run, (first, step, *all), table, cx).await,
            Body::JsonTable { document, level } => {
                let mut kept = json_table::Documents::new(table, level, run.left());
                block(run, document, Some(cx), &mut kept, u64::MAX).await?;
                Ok(kept.into_rows())
            }
            Body::LastRows => Err(errors::internal("a recursion by itself").into()),
        }
    })
}

fn push_whole(schema: &TableSchema, row: &[u8], cx: &Context<'_>, key: &mut Vec<u8>) -> errors::Result<()> {
    let cx = Context { layout: schema.layout(), row, ..*cx };
    for (slot, c) in schema.columns.iter().enumerate() {
        let column = Expr::Column(ColumnRef { slot: slot as u16, ty: c.ty });
        let collation = c.ty.collation().unwrap_or_default();
        cells::push_sort_key(key, Kind::of(c.ty), collation, &column.eval(&cx)?, false);
    }
    Ok(())
}

/// Rows of both sides, as the operation says. Of rows that compare equal the first one stays.
fn combined(
    run: &Run<'_>,
    schema: &TableSchema,
    (operation, all): (SetOperation, bool),
    left: Strings,
    right: &Strings,
    cx: &Context<'_>,
) -> Done<Strings> {
    let mut out = Strings::default();
    if operation == SetOperation::Union && all {
        out = left;
        right.iter().for_each(|row| out.push(row));
        return Ok(out);
    }
    let mut seen = StringSet::default();
    let number = |seen: &mut StringSet, row: &[u8]| seen.insert_with(|key| push_whole(schema, row, cx, key));
    if operation == SetOperation::Union {
        for row in left.iter().chain(right.iter()) {
            if number(&mut seen, row)?.1 {
                out.push(row);
            }
            if seen.byte_len() + out.byte_len() > run.left() {
                return Err(errors::out_of_query_memory().into());
            }
        }
        return Ok(out);
    }
    // How many of each the right side has.
    let mut counts: Vec<u64> = Vec::new();
    for row in right.iter() {
        match number(&mut seen, row)? {
            (_, true) => counts.push(1),
            (at, false) => counts[at] += 1,
        }
    }
    let keeps = operation == SetOperation::Intersect;
    for row in left.iter() {
        let (at, is_new) = number(&mut seen, row)?;
        if is_new {
            counts.push(0);
        }
        let has = counts[at] > 0;
        if all {
            counts[at] = counts[at].saturating_sub(1);
        } else {
            // Each row once: what was decided for the first holds for none of the others.
            counts[at] = if keeps { 0 } else { 1 };
        }
        if has == keeps {
            out.push(row);
        }
    }
    Ok(out)
}

/// Rows of the first part, then what the other makes of the last ones, until there are no new ones.
async fn recursive(
    run: &Run<'_>,
    (first, step, all): (&Body, &Body, bool),
    table: &Rc<crate::engine::catalog::Table>,
    cx: &Context<'_>,
) -> Done<Strings> {
    let id = Rc::as_ptr(table) as usize;
    let most = run.env.variables.cte_max_recursion_depth;
    let mut seen = StringSet::default();
    let mut out = Strings::default();
    let mut last = Strings::default();
    let mut take = |rows: &Strings, out: &mut Strings, last: &mut Strings| -> Done<()> {
        for row in rows.iter() {
            if all || seen.insert_with(|key| push_whole(&table.schema, row, cx, key))?.1 {
                out.push(row);
                last.push(row);
            }
        }
        if out.byte_len() + last.byte_len() + seen.byte_len() > run.left() {
            return Err(errors::out_of_query_memory().into());
        }
        Ok(())
    };
    take(&of_body(run, first, table, cx).await?, &mut out, &mut last)?;
    let mut depth = 0;
    while !last.is_empty() {
        depth += 1;
        if depth > most {
            return Err(errors::recursion_too_deep(depth).into());
        }
        run.env.may_go_on()?;
        run.last_rows.borrow_mut().push((id, Rc::new(std::mem::take(&mut last))));
        let made = of_body(run, step, table, cx).await;
        run.last_rows.borrow_mut().pop();
        take(&made?, &mut out, &mut last)?;
    }
    Ok(out)
}
