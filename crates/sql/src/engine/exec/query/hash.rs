//! All rows of a leaf in memory, found by the values that they are joined by; without such values all are candidates.

use std::rc::Rc;

use super::{
    derived,
    pipeline::{Consumer, Pipeline, context, is_virtual, passes},
};
use crate::engine::{
    cells, errors,
    exec::read::{self, Source},
    expr::{Context, Expr, fold},
    information_schema,
    keys::{StringSet, Strings},
    plan::query::{HashKey, JoinStep, Leaf},
    session::{Done, Scratch},
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

/// For each row of a batch the first row of its chain.
pub struct Probed(Vec<u32>);

impl Built {
    /// Reads the leaf.
    pub async fn of<C: Consumer>(pipeline: &Pipeline<'_, '_, C>, leaf: &JoinStep) -> Done<Built> {
        let run = pipeline.run;
        let (rows, is_shared) = match &leaf.leaf {
            Leaf::Table { .. } if is_virtual(leaf) => (Rc::new(of_virtual(pipeline, leaf).await?), false),
            Leaf::Table { .. } => (Rc::new(of_table(pipeline, leaf).await?), false),
            Leaf::Derived(derived) => {
                let empty = RowLayout::new([]);
                let cx = context(run, pipeline.given, &empty, &[]);
                (derived::rows(run, derived, &cx).await?, !derived.is_correlated)
            }
            Leaf::Nested(join) => {
                let mut inner =
                    Pipeline::new(run, join, pipeline.given, Gathered { rows: Strings::default(), most: run.left() });
                Box::pin(inner.start()).await?;
                (Rc::new(inner.into_consumer().rows), false)
            }
        };
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
        run.keep(built.bytes)?;
        Ok(built)
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
    pub fn probe<C: Consumer>(
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
        for row in batch.iter() {
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
        let mut at = self.0.get(row).copied().unwrap_or(NONE);
        while at != NONE {
            out.extend(built.rows.get(at as usize));
            at = built.next[at as usize];
        }
    }
}

/// Makes the key of a row; false where a part is NULL, which equals nothing.
fn push_key<'k>(
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
        cells::push_sort_key(out, key.kind, key.collation, &value, false);
    }
    Ok(true)
}

/// All rows of a table that satisfy its own conditions.
async fn of_table<C: Consumer>(pipeline: &Pipeline<'_, '_, C>, leaf: &JoinStep) -> Done<Strings> {
    let run = pipeline.run;
    let (Leaf::Table { table, columns }, Some(access)) = (&leaf.leaf, &leaf.scan) else {
        return Err(errors::internal("a leaf that is no table").into());
    };
    if run.tells {
        run.and_moment(None); // how it is read says of no moment
    }
    let mut s = Scratch::default();
    let mut rows = Strings::default();
    access.path.bind(&table.schema, &context(run, pipeline.given, &leaf.row, &[]), &mut s.bound)?;
    access.pushed.bind(&table.schema, &context(run, pipeline.given, &leaf.row, &[]), &mut s.bound)?;
    if s.bound.empty {
        return Ok(rows);
    }
    let filter = fold::for_rows(access.unanswered(&s.bound), usize::MAX, &context(run, pipeline.given, &leaf.row, &[]));
    let seen = run.seen(&table.schema);
    let columns = Some(columns.as_slice());
    let mut source = Source::open(run.cluster, &mut s, table, access, columns, seen, false, false, u64::MAX).await?;
    while source.next(&mut s).await? {
        run.env.may_go_on()?;
        for row in s.rows.iter().flatten() {
            if passes(filter.as_deref(), &context(run, pipeline.given, &leaf.row, row))? {
                rows.push(row);
            }
        }
        if rows.byte_len() > run.left() {
            return Err(errors::out_of_query_memory().into());
        }
    }
    Ok(rows)
}

async fn of_virtual<C: Consumer>(pipeline: &Pipeline<'_, '_, C>, leaf: &JoinStep) -> Done<Strings> {
    let run = pipeline.run;
    let Leaf::Table { table, columns } = &leaf.leaf else {
        return Err(errors::internal("a leaf that is no table").into());
    };
    let filter = leaf.scan.as_ref().and_then(|a| a.full.as_ref());
    let mut rows = Strings::default();
    let mut row = Vec::new();
    for values in information_schema::rows_of(run.cluster.engine, &table.schema, run.cluster.catalog, run.env).await? {
        row.clear();
        read::virtual_row(&table.schema, &values, Some(columns), &leaf.row, &mut row)?;
        if passes(filter, &context(run, pipeline.given, &leaf.row, &row))? {
            rows.push(&row);
        }
    }
    Ok(rows)
}

struct Gathered {
    rows: Strings,
    most: usize,
}

impl Consumer for Gathered {
    async fn take(&mut self, rows: &Strings) -> Done<bool> {
        rows.iter().for_each(|row| self.rows.push(row));
        if self.rows.byte_len() > self.most { Err(errors::out_of_query_memory().into()) } else { Ok(true) }
    }
}
