//! Rows by the entries of a multi-valued index: all other parts of its keys up to the array have one value, and conditions say elements of the array.
//!
//! The condition is asked of each row that is found, so a path may find too many: of all elements that a document must have, it goes by the first.

use apus_types::key;

use super::{
    POINTS_MAX,
    binding::{BoundPath, give_up},
    choice::{Candidates, OnColumn},
};
use crate::{
    catalog::Table,
    errors::{self, Result},
    expr::{
        Context, Expr,
        assign::{
            self,
            index_key::{self, KeyValue},
        },
        json::{array, of_datum},
    },
    plan::rules::lists::{self, ListKeys, Sought, push_part},
};

/// What leads to the entries of an index.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Place of the index in the schema's list.
    pub index: usize,
    /// Of the parts before the array, and of those behind it that have one value.
    pub before: Vec<Expr>,
    pub behind: Vec<Expr>,
    pub sought: Vec<Sought>,
}

impl Listed {
    pub fn exprs(&self) -> impl Iterator<Item = &Expr> {
        self.before.iter().chain(self.sought.iter().map(Sought::expr)).chain(&self.behind)
    }
    /// Parts of the key that it goes by.
    pub fn parts(&self) -> usize {
        self.before.len() + 1 + self.behind.len()
    }
    /// One key, if the whole key is said.
    pub fn is_one(&self) -> bool {
        matches!(self.sought.as_slice(), [Sought::Member(_)])
    }
}

/// How the lists of the multi-valued indexes are made that plans may go by, with the places of the indexes.
pub(super) fn lists<'t>(candidates: &Candidates<'t>) -> Vec<(usize, &'t ListKeys)> {
    let table: &'t Table = candidates.table;
    let made = |column: u16| table.rules().ok().flatten()?.lists().find(|keys| keys.column == column);
    let indexes = table.indexes_in_use().filter(|(_, i)| candidates.allows(i.no));
    indexes.filter_map(|(at, i)| Some((at, made(i.list_column()?)?))).collect()
}

/// The path by an index whose array has a condition, the one with the most parts, and all indexes that have one.
pub(super) fn choose(
    table: &Table,
    lists: &[(usize, &ListKeys)],
    conjuncts: &[Expr],
    found: &[OnColumn],
) -> (Option<Listed>, Vec<usize>) {
    let mut possible = Vec::new();
    let mut best: Option<Listed> = None;
    for &(index, keys) in lists {
        let Some(sought) = conjuncts.iter().find_map(|e| lists::sought(keys, e)) else { continue };
        let definition = &table.schema.indexes[index];
        let at = definition.list.map_or(0, usize::from);
        let one = |c: &u16| match &found[usize::from(*c)].equal {
            Some((list, _)) if list.len() == 1 && !list[0].any(is_of_row) => Some(list[0].clone()),
            _ => None,
        };
        let Some(before) = definition.columns[..at].iter().map(one).collect::<Option<Vec<_>>>() else { continue };
        let behind = definition.columns[at + 1..].iter().map_while(one).collect();
        possible.push(index);
        let listed = Listed { index, before, behind, sought };
        if best.as_ref().is_none_or(|best| listed.parts() > best.parts()) {
            best = Some(listed);
        }
    }
    (best, possible)
}

fn is_of_row(e: &Expr) -> bool {
    matches!(e, Expr::Outer(_) | Expr::Given(..))
}

/// Evaluates what is looked for, and encodes the keys of the entries.
pub(super) fn bind(table: &Table, listed: &Listed, cx: &Context<'_>, out: &mut BoundPath) -> Result<()> {
    out.exact = false;
    let index = &table.schema.indexes[listed.index];
    let keys = index.list_column().and_then(|c| table.rules().ok().flatten()?.computed(c)?.list.as_ref());
    let keys = keys.ok_or_else(|| errors::internal("a multi-valued index without its array"))?;
    let mut prefix = Vec::new();
    let mut suffix = Vec::new();
    let at = listed.before.len();
    for (exprs, first, out_key) in [(&listed.before, 0, &mut prefix), (&listed.behind, at + 1, &mut suffix)] {
        for (place, e) in (first..).zip(exprs) {
            let column = index.columns[place];
            let ty = table.schema.columns[usize::from(column)].ty;
            match index_key::key_value(ty, e.eval(cx)?, cx.env.zone()) {
                KeyValue::Exact(value) => {
                    push_part(&table.schema, column, index.prefix(place), assign::stored(ty, &value), out_key)?;
                }
                KeyValue::Unusable => return give_up(out),
                _ => {
                    out.empty = true;
                    return Ok(());
                }
            }
        }
    }
    let Some(elements) = elements(keys, &listed.sought, cx)? else { return give_up(out) };
    if elements.len() > POINTS_MAX {
        return give_up(out);
    }
    for element in elements {
        let low = [prefix.as_slice(), &element, &suffix].concat();
        let mut high = low.clone();
        let has_high = key::successor_of_prefix(&mut high);
        out.ranges.push((Some(low), has_high.then_some(high)));
    }
    out.ranges.sort_unstable();
    out.ranges.dedup();
    out.empty = out.ranges.is_empty();
    Ok(())
}

/// The parts of keys that what is looked for says; `None`: not all of it is in the index.
fn elements(keys: &ListKeys, sought: &[Sought], cx: &Context<'_>) -> Result<Option<Vec<Vec<u8>>>> {
    let mut found = Vec::new();
    for one in sought {
        let value = one.expr().eval(cx)?;
        if value.is_null() {
            continue;
        }
        let read = match one {
            Sought::Member(_) => array::element(keys.ty, &of_datum(&value)).map(|(value, cut)| (vec![value], cut)),
            Sought::Any(_) | Sought::All(_) => match array::document(&value) {
                Ok(document) => array::elements(keys.ty, &document),
                Err(_) => return Ok(None),
            },
        };
        let Ok((values, false)) = read else { return Ok(None) };
        let most = match one {
            Sought::All(_) if values.is_empty() => return Ok(None),
            Sought::All(_) => 1,
            _ => usize::MAX,
        };
        for value in values.iter().take(most) {
            let mut key = Vec::new();
            array::push_key(keys.ty, value, &mut key)?;
            found.push(key);
        }
    }
    Ok(Some(found))
}
