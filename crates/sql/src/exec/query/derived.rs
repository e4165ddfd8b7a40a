//! Rows of derived tables (LATERAL ones for the rows before them), set operations and recursions, kept in memory or, where memory has no room for them, in files.

use std::rc::Rc;

use apus_types::{RowLayout, TableSchema};

use super::{
    Boxed, Run, block, json_table,
    pipeline::{Consumer, Pipeline, context},
    subquery::push_inputs,
};
use crate::{
    errors,
    exec::{
        read::{RANGES_AT_ONCE, join_all},
        target,
    },
    expr::{ColumnRef, Context, Expr, Kind, result_cells},
    plan::query::{Body, Derived, SetOperation},
    session::Done,
    spill::{
        Gathered, Kept, Later, Sorter,
        byte_strings::{StringSet, Strings},
    },
};

/// The rows of a derived table for a block whose values are in `cx`.
pub async fn rows(run: &Run<'_>, derived: &Derived, cx: &Context<'_>) -> Done<Kept> {
    if let Body::LastRows = derived.body {
        let table = Rc::as_ptr(&derived.table) as usize;
        let found = run.last_rows.borrow().iter().rev().find(|(t, _)| *t == table).map(|(_, rows)| rows.clone());
        return found.ok_or_else(|| errors::internal("a recursion that is not under way").into());
    }
    let plan = std::ptr::from_ref(derived) as usize;
    if let Some(known) = run.derived.borrow().get(&plan) {
        return Ok(known.clone());
    }
    let rows = of_body(run, &derived.body, (&derived.table, derived.is_lateral), cx).await?;
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
    answers: Vec<Kept>,
    pub bytes: usize,
}

impl ForRows {
    pub fn of_row<'f>(&'f self, row: usize, out: &mut Vec<&'f [u8]>) {
        let answer = self.numbers.get(row).and_then(|&number| self.answers.get(number));
        if let Some(Kept::Memory(rows)) = answer {
            out.extend(rows.iter());
        }
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

/// `in_memory`: the rows are looked at in any order.
fn of_body<'f>(
    run: &'f Run<'_>,
    body: &'f Body,
    (table, in_memory): (&'f Rc<crate::catalog::Table>, bool),
    cx: &'f Context<'_>,
) -> Boxed<'f, Kept> {
    Box::pin(async move {
        let schema = &table.schema;
        match body {
            Body::Select(select) => {
                let types: Vec<_> = schema.columns.iter().map(|c| c.ty).collect();
                let file = Some(run.env).filter(|env| !in_memory && env.spill_space().is_open());
                let bytes_max = if file.is_some() { run.left() } else { run.room() };
                let rows = Gathered::default();
                let mut kept = target::Kept { types: &types, layout: schema.layout(), rows, bytes_max, file };
                block(run, select, Some(cx), &mut kept, u64::MAX).await?;
                Ok(kept.rows.end(run.env).await?)
            }
            Body::Set { operation, all, left, right } => {
                let left = of_body(run, left, (table, in_memory), cx).await?;
                let bytes = left.byte_len();
                run.keep(bytes)?;
                let right = of_body(run, right, (table, in_memory), cx).await;
                run.release(bytes);
                let rows = combined(run, schema, (*operation, *all), left, &right?, cx).await?;
                Ok(if in_memory { rows.into_memory(run.env).await? } else { rows })
            }
            Body::Recursive { first, step, all } => {
                let rows = recursive(run, (first, step, *all), (table, in_memory), cx).await?;
                Ok(if in_memory { rows.into_memory(run.env).await? } else { rows })
            }
            Body::JsonTable { document, level } => {
                let mut kept = json_table::Documents::new(table, level, run.room());
                block(run, document, Some(cx), &mut kept, u64::MAX).await?;
                Ok(Kept::Memory(Rc::new(kept.into_rows())))
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
        result_cells::push_sort_key(key, Kind::of(c.ty), collation, &column.eval(&cx)?, false);
    }
    Ok(())
}

/// Rows of both sides, as the operation says. Of rows that compare equal the first one stays.
async fn combined(
    run: &Run<'_>,
    schema: &TableSchema,
    (operation, all): (SetOperation, bool),
    left: Kept,
    right: &Kept,
    cx: &Context<'_>,
) -> Done<Kept> {
    let can_spill = run.env.spill_space().is_open();
    if operation == SetOperation::Union && all {
        let mut out = Gathered::from_kept(left, run.env).await?;
        let bytes_max = if can_spill { run.left() } else { usize::MAX };
        out.add_all(right, bytes_max, run.env).await?;
        run.has_room_for(out.rows.byte_len())?;
        return Ok(out.end(run.env).await?);
    }
    if operation == SetOperation::Union {
        return union(run, schema, &left, right, cx).await;
    }
    match (&left, right) {
        (Kept::Memory(left), Kept::Memory(right)) if !can_spill || left.byte_len() + right.byte_len() <= run.left() => {
            Ok(Kept::Memory(Rc::new(of_both(schema, (operation, all), left, right, cx)?)))
        }
        _ => by_sorting(run, schema, (operation, all), &left, right, cx).await,
    }
}

/// Each row once.
async fn union(run: &Run<'_>, schema: &TableSchema, left: &Kept, right: &Kept, cx: &Context<'_>) -> Done<Kept> {
    let env = run.env;
    let mut seen = StringSet::default();
    let mut out = Gathered::default();
    let mut later: Option<Later> = None;
    let mut key = Vec::new();
    for side in [left, right] {
        let mut rows = side.reader();
        while rows.advance(env).await? {
            let row = rows.row();
            if let Some(later) = &mut later {
                key.clear();
                push_whole(schema, row, cx, &mut key)?;
                if !seen.contains(&key) {
                    later.push(&key, row);
                    later.settle(env).await?;
                }
                continue;
            }
            if seen.insert_with(|key| push_whole(schema, row, cx, key))?.1 {
                out.rows.push(row);
            }
            if seen.byte_len() + out.rows.byte_len() > run.left() {
                if !env.spill_space().is_open() {
                    run.has_room_for(seen.byte_len() + out.rows.byte_len())?;
                    continue;
                }
                later = Some(Later::new(run.share()));
                out.settle(0, env).await?;
            }
        }
    }
    if let Some(later) = later {
        drop(seen);
        let mut rows = later.firsts(env).await?;
        while rows.advance(env).await? {
            out.rows.push(rows.payload());
            out.settle(0, env).await?;
        }
    }
    Ok(out.end(env).await?)
}

/// How many rows of the right side equal the rows of the left side that come now, of one value.
#[derive(Clone, Copy, Default)]
struct Balance(u64);

impl Balance {
    /// Whether the next row of the left side stays.
    fn takes(&mut self, (operation, all): (SetOperation, bool)) -> bool {
        let keeps = operation == SetOperation::Intersect;
        let has = self.0 > 0;
        if all {
            self.0 = self.0.saturating_sub(1);
        } else {
            // Each row once: what was decided for the first holds for none of the others.
            self.0 = u64::from(!keeps);
        }
        has == keeps
    }
}

/// INTERSECT and EXCEPT.
fn of_both(
    schema: &TableSchema,
    operation: (SetOperation, bool),
    left: &Strings,
    right: &Strings,
    cx: &Context<'_>,
) -> Done<Strings> {
    let (mut seen, mut out) = (StringSet::default(), Strings::default());
    let number = |seen: &mut StringSet, row: &[u8]| seen.insert_with(|key| push_whole(schema, row, cx, key));
    let mut balances: Vec<Balance> = Vec::new();
    for row in right.iter() {
        let (at, is_new) = number(&mut seen, row)?;
        if is_new {
            balances.push(Balance::default());
        }
        balances[at].0 += 1;
    }
    for row in left.iter() {
        let (at, is_new) = number(&mut seen, row)?;
        if is_new {
            balances.push(Balance::default());
        }
        if balances[at].takes(operation) {
            out.push(row);
        }
    }
    Ok(out)
}

/// INTERSECT and EXCEPT of more than fits: rows of one value come together, those of the right side first; what stays is sorted again by when it came.
async fn by_sorting(
    run: &Run<'_>,
    schema: &TableSchema,
    operation: (SetOperation, bool),
    left: &Kept,
    right: &Kept,
    cx: &Context<'_>,
) -> Done<Kept> {
    let env = run.env;
    let (mut all, mut stay) = (Sorter::new(run.share()), Sorter::new(run.share()));
    let (mut key, mut number) = (Vec::new(), 0u64);
    for (side, is_left) in [(right, false), (left, true)] {
        let mut rows = side.reader();
        while rows.advance(env).await? {
            key.clear();
            push_whole(schema, rows.row(), cx, &mut key)?;
            number += 1;
            match is_left {
                true => all.push_parts(&key, &[&number.to_be_bytes(), rows.row()]),
                false => all.push(&key, &[]),
            }
            all.settle(env).await?;
        }
    }
    let mut all = all.merge(env).await?;
    let (mut last, mut balance) = (Vec::new(), Balance::default());
    while all.advance(env).await? {
        if all.key() != last {
            last.clear();
            last.extend_from_slice(all.key());
            balance = Balance::default();
        }
        match all.payload().split_first_chunk::<8>() {
            None => balance.0 += 1,
            Some((number, row)) => {
                if balance.takes(operation) {
                    stay.push(number, row);
                    stay.settle(env).await?;
                }
            }
        }
    }
    let mut stay = stay.merge(env).await?;
    let mut out = Gathered::default();
    while stay.advance(env).await? {
        out.rows.push(stay.payload());
        out.settle(run.left(), env).await?;
    }
    Ok(out.end(env).await?)
}

/// What a recursion has made so far.
struct Recursion {
    /// Of UNION DISTINCT: rows that there were.
    seen: Option<StringSet>,
    out: Gathered,
    /// New ones of the last round.
    last: Gathered,
}

impl Recursion {
    async fn take(&mut self, run: &Run<'_>, schema: &TableSchema, rows: &Kept, cx: &Context<'_>) -> Done<()> {
        let env = run.env;
        let bytes_max = if env.spill_space().is_open() { run.left() } else { usize::MAX };
        let mut rows = rows.reader();
        while rows.advance(env).await? {
            let is_new = match &mut self.seen {
                Some(seen) => seen.insert_with(|key| push_whole(schema, rows.row(), cx, key))?.1,
                None => true,
            };
            if is_new {
                self.out.rows.push(rows.row());
                self.last.rows.push(rows.row());
                self.out.settle(bytes_max, env).await?;
                self.last.settle(bytes_max, env).await?;
            }
        }
        let seen = self.seen.as_ref().map_or(0, StringSet::byte_len);
        Ok(run.has_room_for(self.out.rows.byte_len() + self.last.rows.byte_len() + seen)?)
    }
}

/// Rows of the first part, then what the other makes of the last ones, until there are no new ones.
async fn recursive(
    run: &Run<'_>,
    (first, step, all): (&Body, &Body, bool),
    (table, in_memory): (&Rc<crate::catalog::Table>, bool),
    cx: &Context<'_>,
) -> Done<Kept> {
    let id = Rc::as_ptr(table) as usize;
    let most = run.env.variables.cte_max_recursion_depth;
    let seen = (!all).then(StringSet::default);
    let mut made = Recursion { seen, out: Gathered::default(), last: Gathered::default() };
    made.take(run, &table.schema, &of_body(run, first, (table, in_memory), cx).await?, cx).await?;
    let mut depth = 0;
    loop {
        let last = std::mem::take(&mut made.last).end(run.env).await?;
        if last.is_empty() {
            return Ok(made.out.end(run.env).await?);
        }
        depth += 1;
        if depth > most {
            return Err(errors::recursion_too_deep(depth).into());
        }
        run.env.may_go_on()?;
        run.last_rows.borrow_mut().push((id, last));
        let rows = of_body(run, step, (table, in_memory), cx).await;
        run.last_rows.borrow_mut().pop();
        made.take(run, &table.schema, &rows?, cx).await?;
    }
}
