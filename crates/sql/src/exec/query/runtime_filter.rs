//! What all rows before a step name of its leaf: the rows of the leaf that have none of these values are not kept, and where the values are few data nodes do not send them.

use apus_types::{ColumnType, RowLayout, filter};

use super::{
    hash::push_key,
    pipeline::{BATCH_ROWS, Consumer, Pipeline, context},
};
use crate::{
    errors,
    expr::{Context, Expr},
    plan::{
        pushed_condition::Pushed,
        query::{HashKey, JoinStep, Leaf},
    },
    spill::byte_strings::{StringSet, Strings},
    value::datum::Datum,
};

/// Values that data nodes are told; other conditions have room beside them.
const VALUES_MAX: usize = 960;

pub struct Named {
    keys: StringSet,
    /// The conditions of the leaf's scan, and the values of a column.
    pub pushed: Option<Pushed>,
}

impl Named {
    pub async fn of<C: Consumer>(
        pipeline: &Pipeline<'_, '_, C>,
        leaf: &JoinStep,
        before: &RowLayout,
        rows: &Strings,
    ) -> errors::Result<Named> {
        let mut named = Named { keys: StringSet::default(), pushed: None };
        let mut key = Vec::new();
        let mut told = Told::of(leaf);
        for (at, row) in rows.iter().enumerate() {
            if at % BATCH_ROWS == BATCH_ROWS - 1 {
                pipeline.run.breathe(BATCH_ROWS).await?;
            }
            let cx = context(pipeline.run, pipeline.given, before, row);
            if !push_key(&leaf.keys, |k| &k.outer, &cx, &mut key)? {
                continue;
            }
            named.keys.insert(&key);
            if let Some(some) = &mut told
                && !some.add(&cx, &mut key)?
            {
                told = None;
            }
        }
        if let (Some(told), Some(scan)) = (told, &leaf.scan) {
            named.pushed = Some(scan.pushed.and_values(told.column, told.values.iter()));
        }
        Ok(named)
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Whether a row before names this one of the leaf. `key`: room for what it is joined by.
    pub fn has(&self, leaf: &JoinStep, cx: &Context<'_>, key: &mut Vec<u8>) -> errors::Result<bool> {
        Ok(push_key(&leaf.keys, |k| &k.inner, cx, key)? && self.keys.contains(key))
    }
}

/// The different values of one part of the key.
struct Told<'l> {
    part: &'l HashKey,
    /// Of the leaf's table.
    column: u16,
    seen: StringSet,
    values: Vec<Datum<'static>>,
}

impl<'l> Told<'l> {
    /// The first part that is a column of whole numbers on both sides: for these, being equal is having the same key.
    fn of(leaf: &'l JoinStep) -> Option<Told<'l>> {
        let (Leaf::Table { columns, .. }, Some(scan)) = (&leaf.leaf, &leaf.scan) else { return None };
        let is_whole = |e: &Expr| matches!(e, Expr::Column(c) if matches!(c.ty, ColumnType::Int { .. }));
        let part = leaf.keys.iter().find(|key| is_whole(&key.inner) && is_whole(&key.outer))?;
        let Expr::Column(inner) = &part.inner else { return None };
        let column = *columns.get(usize::from(inner.slot))?;
        let has_room = scan.pushed.tests().len() < filter::TESTS_MAX;
        has_room.then(|| Told { part, column, seen: StringSet::default(), values: Vec::new() })
    }

    /// False: there are too many.
    fn add(&mut self, cx: &Context<'_>, key: &mut Vec<u8>) -> errors::Result<bool> {
        push_key(std::slice::from_ref(self.part), |k| &k.outer, cx, key)?;
        if self.seen.insert(key).1 {
            self.values.push(self.part.outer.eval(cx)?.into_owned());
        }
        Ok(self.values.len() <= VALUES_MAX)
    }
}
