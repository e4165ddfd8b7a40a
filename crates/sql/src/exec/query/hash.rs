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
/// End of a chain.
const NONE: u32 = u32::MAX;

/// The rows of a leaf.
pub struct Built {
    rows: Rc<Strings>,
    /// Only these rows, where the leaf has a condition of its own; otherwise all.
    keys: StringSet,
    /// By number of a key: its first row; by row: the next one of the same key.
    heads: Vec<u32>,
    next: Vec<u32>,
    /// Rows that satisfy the leaf's own condition.
    some: Option<Vec<u32>>,
    bytes: usize,
    has_keys: bool,
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

/// For each row of a batch the first row of its chain.
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
            heads: Vec::new(),
            next: Vec::new(),
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
        if built.has_keys {
            built.next = vec![NONE; built.rows.len()];
        }
        let mut some = Vec::new();
        let mut key = Vec::new();
        let rows = built.rows.clone();
        for (at, row) in rows.iter().enumerate() {
            if at % ROWS_IN_A_ROW == ROWS_IN_A_ROW - 1 {
                run.breathe(ROWS_IN_A_ROW).await?;
            }
            if own.is_some() && !passes(own, &cx(row))? {
                continue;
            }
            some.push(at as u32);
            if built.has_keys && push_key(&leaf.keys, |k| &k.inner, &cx(row), &mut key)? {
                built.chain(at, &key);
            }
        }
        built.some = own.is_some().then_some(some);
        built.bytes += built.keys.byte_len() + 4 * (built.heads.len() + built.next.len());
        Ok(built)
    }

    /// As many rows of a stream as this memory holds, one at least, and whether there are more.
    pub async fn of_stream(run: &Run<'_>, rows: &mut Reader, bytes_max: usize) -> Done<(Built, bool)> {
        let (mut keys, mut all, mut heads, mut next) =
            (StringSet::default(), Strings::default(), Vec::new(), Vec::new());
        let mut has_more = false;
        while rows.advance(run.env).await? {
            if !all.is_empty() && keys.byte_len() + all.byte_len() + 4 * (heads.len() + next.len()) > bytes_max {
                rows.step_back();
                has_more = true;
                break;
            }
            run.env.breathe(1).await?;
            let (number, is_new) = keys.insert(rows.key());
            if is_new {
                heads.push(NONE);
            }
            next.push(std::mem::replace(&mut heads[number], all.len() as u32));
            all.push(rows.payload());
        }
        let built = Built { rows: Rc::new(all), keys, heads, next, some: None, bytes: 0, has_keys: true };
        Ok((built, has_more))
    }

    /// Candidates for a row with this key.
    pub fn of_key<'b>(&'b self, key: &[u8], out: &mut Vec<&'b [u8]>) {
        self.chain_of(self.keys.number(key).map_or(NONE, |number| self.heads[number]), out);
    }

    fn chain_of<'b>(&'b self, mut at: u32, out: &mut Vec<&'b [u8]>) {
        while at != NONE {
            out.extend(self.rows.get(at as usize));
            at = self.next[at as usize];
        }
    }

    /// Rows that satisfy the leaf's own condition.
    pub fn len(&self) -> usize {
        self.some.as_ref().map_or(self.rows.len(), Vec::len)
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn chain(&mut self, row: usize, key: &[u8]) {
        let (number, is_new) = self.keys.insert(key);
        if is_new {
            self.heads.push(NONE);
        }
        self.next[row] = std::mem::replace(&mut self.heads[number], row as u32);
    }

    /// Looks the rows of a batch up.
    pub async fn probe<C: Consumer>(
        &self,
        pipeline: &Pipeline<'_, '_, C>,
        leaf: &JoinStep,
        before: &RowLayout,
        batch: &Strings,
    ) -> errors::Result<Probed> {
        let mut heads = Vec::new();
        if !self.has_keys {
            return Ok(Probed(heads));
        }
        let mut key = Vec::new();
        for (at, row) in batch.iter().enumerate() {
            if at % ROWS_IN_A_ROW == ROWS_IN_A_ROW - 1 {
                pipeline.run.breathe(ROWS_IN_A_ROW).await?;
            }
            let cx = context(pipeline.run, pipeline.given, before, row);
            let found = push_key(&leaf.keys, |k| &k.outer, &cx, &mut key)?.then(|| self.keys.number(&key)).flatten();
            heads.push(found.map_or(NONE, |number| self.heads[number]));
        }
        Ok(Probed(heads))
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
        built.chain_of(self.0.get(row).copied().unwrap_or(NONE), out);
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
    let mut key = Vec::new();
    let filter = fold::for_rows(access.unanswered(&s.bound), usize::MAX, &context(run, pipeline.given, &leaf.row, &[]));
    let seen = run.seen(&table.schema);
    let columns = Some(columns.as_slice());
    let mut source = Source::open(run.cluster, &mut s, table, access, columns, seen, false, false, u64::MAX).await?;
    while source.next(run.cluster, &mut s, table, columns).await? {
        run.env.may_go_on()?;
        for row in s.rows.iter().flatten() {
            let cx = context(run, pipeline.given, &leaf.row, row);
            if let Some(named) = named
                && !named.has(leaf, &cx, &mut key)?
            {
                continue;
            }
            if passes(filter.as_deref(), &cx)? {
                rows.push(row)?;
            }
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
