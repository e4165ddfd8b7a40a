//! All rows of a leaf in memory, found by the values that they are joined by; without such values all are candidates. Where there is no room for them they are in files ([`super::partitioned_join`]).

use std::rc::Rc;

use super::{
    Run, derived,
    gather::{Gather, Side},
    partitioned_join::Spilled,
    pipeline::{Consumer, Pipeline, context, is_virtual, passes},
    runtime_filter::Named,
};
use crate::{
    admin::information_schema,
    errors,
    exec::read::{self, source::Source},
    expr::{Context, Env, Expr, fold, result_cells},
    plan::query::{HashKey, JoinStep, Leaf},
    session::{Done, buffers::Scratch},
    spill::{
        Kept, Reader,
        byte_strings::{StringSet, Strings},
    },
};
use apus_types::RowLayout;

/// Rows between two looks at whether others of the thread wait.
const ROWS_IN_A_ROW: usize = 1024;
/// No key.
const NONE: u32 = u32::MAX;

/// The rows of a leaf.
pub struct Built {
    rows: Rc<Strings>,
    keys: StringSet,
    by_key: ByKey,
    /// Rows that satisfy the leaf's own condition.
    some: Option<Vec<u32>>,
    bytes: usize,
    has_keys: bool,
}

/// Rows, those of a key beside each other, the last one first.
#[derive(Default)]
struct ByKey {
    /// By number of a key: where its rows begin; one more than there are keys.
    starts: Vec<u32>,
    rows: Vec<u32>,
}

impl ByKey {
    /// Of the number of each row's key, [`NONE`] where it has none.
    fn new(numbers: &[u32], keys: usize) -> ByKey {
        let mut starts = vec![0; keys + 1];
        numbers.iter().filter(|number| **number != NONE).for_each(|number| starts[*number as usize] += 1);
        let mut end = 0;
        for start in &mut starts {
            end += *start;
            *start = end;
        }
        let mut rows = vec![0; end as usize];
        for (row, number) in numbers.iter().enumerate().filter(|(_, number)| **number != NONE) {
            let start = &mut starts[*number as usize];
            *start -= 1;
            rows[*start as usize] = row as u32;
        }
        ByKey { starts, rows }
    }
    fn rows(&self, number: u32) -> &[u32] {
        let at = number as usize;
        match (self.starts.get(at), self.starts.get(at + 1)) {
            (Some(start), Some(end)) if number != NONE => &self.rows[*start as usize..*end as usize],
            _ => &[],
        }
    }
    fn byte_len(&self) -> usize {
        size_of::<u32>() * (self.starts.len() + self.rows.len())
    }
}

/// Where the rows of a leaf are.
pub enum Leafed {
    Memory(Built),
    /// And how many there are.
    Spilled(Spilled, u64),
}

impl Leafed {
    async fn spilled(side: Side, env: &Env) -> Done<Leafed> {
        match Spilled::of(side, env).await? {
            Some((spilled, count)) => Ok(Leafed::Spilled(spilled, count)),
            None => Err(errors::internal("rows in memory and in files").into()),
        }
    }
}

/// For each row of a batch the number of its key.
pub struct Probed(Vec<u32>);

impl Built {
    /// Reads the leaf: into memory, or into files. `named`: of a table only the rows that others name.
    pub async fn of<C: Consumer>(
        pipeline: &Pipeline<'_, '_, C>,
        leaf: &JoinStep,
        named: Option<&Named>,
    ) -> Done<Leafed> {
        let (run, env) = (pipeline.run, pipeline.run.env);
        let (side, is_shared) = match &leaf.leaf {
            Leaf::Table { .. } if is_virtual(leaf) => (Side::Memory(Rc::new(of_virtual(pipeline, leaf).await?)), false),
            Leaf::Table { .. } => (of_table(pipeline, leaf, named).await?, false),
            Leaf::Derived(derived) => {
                let empty = RowLayout::new([]);
                let cx = context(run, pipeline.given, &empty, &[]);
                let side = match derived::rows(run, derived, &cx).await? {
                    Kept::Memory(rows) => Side::Memory(rows),
                    rows => of_file(pipeline, leaf, rows).await?,
                };
                (side, !derived.is_correlated)
            }
            Leaf::Nested(join) => {
                let gather = Gather::new(run, pipeline.given, leaf);
                let mut inner = Pipeline::new(run, join, pipeline.given, gather);
                Box::pin(inner.start()).await?;
                (inner.into_consumer().end().await?, false)
            }
        };
        let rows = match side {
            Side::Memory(rows) => rows,
            side => return Leafed::spilled(side, env).await,
        };
        let built = Built::of_rows(pipeline, leaf, rows, is_shared).await?;
        if built.bytes <= run.left() || !env.spill_space().is_open() {
            run.keep(built.bytes)?;
            return Ok(Leafed::Memory(built));
        }
        let rows = built.rows.clone();
        drop(built);
        let mut gather = Gather::new(run, pipeline.given, leaf);
        gather.spill().await?;
        gather.put_all(rows.iter()).await?;
        Leafed::spilled(gather.end().await?, env).await
    }

    async fn of_rows<C: Consumer>(
        pipeline: &Pipeline<'_, '_, C>,
        leaf: &JoinStep,
        rows: Rc<Strings>,
        is_shared: bool,
    ) -> Done<Built> {
        let run = pipeline.run;
        let mut built = Built {
            keys: StringSet::default(),
            by_key: ByKey::default(),
            some: None,
            bytes: if is_shared { 0 } else { rows.byte_len() },
            has_keys: !leaf.keys.is_empty(),
            rows,
        };
        let own = match (&leaf.leaf, &leaf.scan) {
            (Leaf::Table { .. }, _) => None, // applied while it was read
            _ => leaf.own.as_ref(),
        };
        let cx = |row| context(run, pipeline.given, &leaf.row, row);
        let mut numbers = vec![NONE; if built.has_keys { built.rows.len() } else { 0 }];
        let mut some = Vec::new();
        let (mut keyed, mut waiting) = (Vec::new(), Strings::default());
        let rows = built.rows.clone();
        for (at, row) in rows.iter().enumerate() {
            if at % ROWS_IN_A_ROW == ROWS_IN_A_ROW - 1 {
                built.number(&mut keyed, &mut waiting, &mut numbers);
                run.breathe(ROWS_IN_A_ROW).await?;
            }
            if own.is_some() && !passes(own, &cx(row))? {
                continue;
            }
            if own.is_some() {
                some.push(at as u32);
            }
            if !built.has_keys {
                continue;
            }
            match write_key(&leaf.keys, |k| &k.inner, &cx(row), waiting.writer())? {
                true => {
                    waiting.end();
                    keyed.push(at);
                }
                false => waiting.abandon(),
            }
        }
        built.number(&mut keyed, &mut waiting, &mut numbers);
        built.some = own.is_some().then_some(some);
        built.by_key = ByKey::new(&numbers, built.keys.len());
        built.bytes += built.keys.byte_len() + built.by_key.byte_len();
        Ok(built)
    }

    /// Gives these rows, whose keys wait, the numbers of their keys.
    fn number(&mut self, rows: &mut Vec<usize>, keys: &mut Strings, numbers: &mut [u32]) {
        self.keys.look_ahead(keys);
        for (row, key) in rows.drain(..).zip(keys.iter()) {
            numbers[row] = self.keys.insert(key).0 as u32;
        }
        keys.clear();
    }

    /// As many rows of a stream as this memory holds, one at least, and whether there are more.
    pub async fn of_stream(run: &Run<'_>, rows: &mut Reader, bytes_max: usize) -> Done<(Built, bool)> {
        let (mut keys, mut all, mut numbers) = (StringSet::default(), Strings::default(), Vec::new());
        let mut has_more = false;
        while rows.advance(run.env).await? {
            let listed = size_of::<u32>() * (numbers.len() + keys.len());
            if !all.is_empty() && keys.byte_len() + all.byte_len() + listed > bytes_max {
                rows.step_back();
                has_more = true;
                break;
            }
            run.env.breathe(1).await?;
            numbers.push(keys.insert(rows.key()).0 as u32);
            all.push(rows.payload());
        }
        let by_key = ByKey::new(&numbers, keys.len());
        let built = Built { rows: Rc::new(all), keys, by_key, some: None, bytes: 0, has_keys: true };
        Ok((built, has_more))
    }

    /// Candidates for a row with this key.
    pub fn of_key<'b>(&'b self, key: &[u8], out: &mut Vec<&'b [u8]>) {
        self.of_number(self.keys.number(key).map_or(NONE, |number| number as u32), out);
    }

    fn of_number<'b>(&'b self, number: u32, out: &mut Vec<&'b [u8]>) {
        out.extend(self.by_key.rows(number).iter().filter_map(|row| self.rows.get(*row as usize)));
    }

    /// Rows that satisfy the leaf's own condition.
    pub fn len(&self) -> usize {
        self.some.as_ref().map_or(self.rows.len(), Vec::len)
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Looks the rows of a batch up.
    pub async fn probe<C: Consumer>(
        &self,
        pipeline: &Pipeline<'_, '_, C>,
        leaf: &JoinStep,
        before: &RowLayout,
        batch: &Strings,
    ) -> errors::Result<Probed> {
        let mut numbers = Vec::new();
        if !self.has_keys {
            return Ok(Probed(numbers));
        }
        let mut keys = Strings::default();
        for (at, row) in batch.iter().enumerate() {
            if at % ROWS_IN_A_ROW == ROWS_IN_A_ROW - 1 {
                pipeline.run.breathe(ROWS_IN_A_ROW).await?;
            }
            let cx = context(pipeline.run, pipeline.given, before, row);
            let has_key = write_key(&leaf.keys, |k| &k.outer, &cx, keys.writer())?;
            keys.end();
            numbers.push(if has_key { 0 } else { NONE });
        }
        self.keys.look_ahead(&keys);
        for (number, key) in numbers.iter_mut().zip(keys.iter()).filter(|(number, _)| **number != NONE) {
            *number = self.keys.number(key).map_or(NONE, |number| number as u32);
        }
        Ok(Probed(numbers))
    }
}

impl Probed {
    /// Candidates for a row of the batch.
    pub fn of_row<'b>(&self, built: &'b Built, row: usize, out: &mut Vec<&'b [u8]>) {
        if !built.has_keys {
            match &built.some {
                Some(some) => out.extend(some.iter().filter_map(|&at| built.rows.get(at as usize))),
                None => out.extend(built.rows.iter()),
            }
            return;
        }
        built.of_number(self.0.get(row).copied().unwrap_or(NONE), out);
    }
}

/// Makes the key of a row; false where a part is NULL, which equals nothing.
pub fn push_key<'k>(
    keys: &'k [HashKey],
    side: impl Fn(&'k HashKey) -> &'k Expr,
    cx: &Context<'_>,
    out: &mut Vec<u8>,
) -> errors::Result<bool> {
    out.clear();
    write_key(keys, side, cx, out)
}

/// As [`push_key`], behind what is in `out`.
pub fn write_key<'k>(
    keys: &'k [HashKey],
    side: impl Fn(&'k HashKey) -> &'k Expr,
    cx: &Context<'_>,
    out: &mut Vec<u8>,
) -> errors::Result<bool> {
    for key in keys {
        let e: &'k Expr = side(key);
        let value = e.eval(cx)?;
        if value.is_null() {
            return Ok(false);
        }
        result_cells::push_sort_key(out, key.kind, key.collation, &value, false);
    }
    Ok(true)
}

/// All rows of a table that satisfy its own conditions.
async fn of_table<C: Consumer>(pipeline: &Pipeline<'_, '_, C>, leaf: &JoinStep, named: Option<&Named>) -> Done<Side> {
    let run = pipeline.run;
    let (Leaf::Table { table, columns }, Some(access)) = (&leaf.leaf, &leaf.scan) else {
        return Err(errors::internal("a leaf that is no table").into());
    };
    if run.tells {
        run.and_moment(None); // how it is read says of no moment
    }
    let mut s = Scratch::default();
    let mut rows = Gather::new(run, pipeline.given, leaf);
    access.path.bind(table, &context(run, pipeline.given, &leaf.row, &[]), &mut s.bound)?;
    let pushed = named.and_then(|named| named.pushed.as_ref()).unwrap_or(&access.pushed);
    pushed.bind(&table.schema, &context(run, pipeline.given, &leaf.row, &[]), &mut s.bound)?;
    if s.bound.empty || named.is_some_and(Named::is_empty) {
        return Ok(rows.end().await?);
    }
    let filter = fold::for_rows(access.unanswered(&s.bound), usize::MAX, &context(run, pipeline.given, &leaf.row, &[]));
    let seen = run.seen(&table.schema);
    let columns = Some(columns.as_slice());
    let mut source = Source::open(run.cluster, &mut s, table, access, columns, seen, false, false, u64::MAX).await?;
    while source.next(run.cluster, &mut s, table, columns).await? {
        run.env.may_go_on()?;
        let all = s.rows.iter().flatten();
        let of_row = |row| context(run, pipeline.given, &leaf.row, row);
        let mut push = |row| match passes(filter.as_deref(), &of_row(row))? {
            true => rows.push(row),
            false => Ok(()),
        };
        match named {
            Some(named) => {
                let some = named.of_rows(leaf, all.map(|row| (row, of_row(row))))?;
                some.into_iter().try_for_each(&mut push)?;
            }
            None => all.into_iter().try_for_each(push)?,
        }
        rows.settle().await?;
    }
    Ok(rows.end().await?)
}

/// Rows that are in a file already.
async fn of_file<C: Consumer>(pipeline: &Pipeline<'_, '_, C>, leaf: &JoinStep, rows: Kept) -> Done<Side> {
    let mut gather = Gather::new(pipeline.run, pipeline.given, leaf);
    gather.spill().await?;
    let mut reader = rows.reader();
    while reader.advance(pipeline.run.env).await? {
        gather.push(reader.row())?;
        gather.settle().await?;
    }
    Ok(gather.end().await?)
}

async fn of_virtual<C: Consumer>(pipeline: &Pipeline<'_, '_, C>, leaf: &JoinStep) -> Done<Strings> {
    let run = pipeline.run;
    let Leaf::Table { table, columns } = &leaf.leaf else {
        return Err(errors::internal("a leaf that is no table").into());
    };
    let filter = leaf.scan.as_ref().and_then(|a| a.full.as_ref());
    let mut rows = Strings::default();
    let mut row = Vec::new();
    for values in
        information_schema::rows_of(run.cluster.engine, &table.schema, Some(columns), run.cluster.catalog, run.env)
            .await?
    {
        row.clear();
        read::virtual_row(&table.schema, &values, Some(columns), &leaf.row, &mut row)?;
        if passes(filter, &context(run, pipeline.given, &leaf.row, &row))? {
            rows.push(&row);
        }
    }
    Ok(rows)
}
