//! What all rows before a step name of its leaf: the rows of the leaf that have none of these values are not kept, and few of them are sent by data nodes, which are told the values of a column in a set ([`apus_types::filter::Set`]).

use apus_types::{ColumnType, RowLayout, filter::Set};

use super::{
    hash::{push_key, write_key},
    pipeline::{BATCH_ROWS, Consumer, Pipeline, context},
};
use crate::{
    errors,
    expr::{Context, Expr},
    plan::{
        pushed_condition::Pushed,
        query::{HashKey, JoinStep},
    },
    spill::byte_strings::{StringSet, Strings},
};

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
        let mut told = Told::of(leaf, rows.len());
        for (at, row) in rows.iter().enumerate() {
            if at % BATCH_ROWS == BATCH_ROWS - 1 {
                pipeline.run.breathe(BATCH_ROWS).await?;
            }
            let cx = context(pipeline.run, pipeline.given, before, row);
            if !push_key(&leaf.keys, |k| &k.outer, &cx, &mut key)? {
                continue;
            }
            named.keys.insert(&key);
            if let Some(told) = &mut told {
                told.add(&cx, &mut key);
            }
        }
        if let (Some(told), Some(scan)) = (told.filter(|told| told.set.leaves_out()), &leaf.scan) {
            named.pushed = Some(scan.pushed.and_set(told.column, told.set));
        }
        Ok(named)
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Those rows of the leaf that a row before names.
    pub fn of_rows<'r>(
        &self,
        leaf: &JoinStep,
        rows: impl Iterator<Item = (&'r [u8], Context<'r>)>,
    ) -> errors::Result<Vec<&'r [u8]>> {
        let (mut keyed, mut keys) = (Vec::new(), Strings::default());
        for (row, cx) in rows {
            match write_key(&leaf.keys, |k| &k.inner, &cx, keys.writer())? {
                true => {
                    keys.end();
                    keyed.push(row);
                }
                false => keys.abandon(),
            }
        }
        self.keys.look_ahead(&keys);
        let mut keys = keys.iter();
        keyed.retain(|_| keys.next().is_some_and(|key| self.keys.contains(key)));
        Ok(keyed)
    }
}

/// The values of one part of the key.
struct Told<'l> {
    part: &'l HashKey,
    /// Of the leaf's table.
    column: u16,
    ty: ColumnType,
    set: Set,
}

impl<'l> Told<'l> {
    fn of(leaf: &'l JoinStep, rows: usize) -> Option<Told<'l>> {
        let (part, column) = leaf.told()?;
        let Expr::Column(inner) = &part.inner else { return None };
        Some(Told { part, column, ty: inner.ty, set: Set::with_room(rows) })
    }

    fn add(&mut self, cx: &Context<'_>, key: &mut Vec<u8>) {
        if let Expr::Column(outer) = &self.part.outer {
            self.set.add(self.ty, &cx.layout.value(cx.row, outer.slot), key);
        }
    }
}
