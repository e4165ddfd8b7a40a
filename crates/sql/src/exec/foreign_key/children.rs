//! The rows that refer to rows which go or get another key: they are in the way, or go along, or change.
//!
//! They are looked for by the front of an index, with what others have written and not committed: who refers has held the row that is changed now until he committed,
//! but may not have committed everywhere yet. What is found is locked, some hundred at a time, and counts if it still refers. The first page of up
//! to [`LOOKS_AT_ONCE`] keys is asked for together; the rest of a key follows page by page, so that no more is held than a page of each level.

use std::{ops::Bound, pin::pin, rc::Rc};

use apus_client::{ClientError, OpBatch, Results, Rows, ScanCursor, ScanRequest};
use apus_signal::tc::{ALLOW_MISSING, OpStatus};
use apus_types::{ColumnType, ErrorCode, IndexNo, RowLayout, TableId, Value, foreign_key::Action, key};

use super::{BATCH, DEPTH_MAX, Level, Refusal, Row, batch, parents::encode, primary_keys};
use crate::{
    catalog::foreign_key::{Parent, Reference, Rules},
    errors,
    exec::{Cluster, execute, next_savepoint, read::join_all, reader, rules},
    session::{Done, Fail, Session, rollback_to},
};

/// Keys whose first page is asked for together.
const LOOKS_AT_ONCE: usize = 32;
/// Rows of a page where one is enough.
const PAGE_TO_REFUSE: u32 = 16;

/// What becomes of rows that refer, by what becomes of those that they refer to. All of a batch go, or all change.
fn action(reference: &Reference, rows: &[Row]) -> Option<Action> {
    let row = rows.first().filter(|row| row.old.is_some())?;
    Some(if row.new.is_some() { reference.key.on_update } else { reference.key.on_delete })
}

/// Rows that refer are in the way. So are those of a table that the cascade has changed before, where keys change.
pub(super) fn refuses(reference: &Reference, rows: &[Row], level: &Level<'_>) -> bool {
    let changes = rows.first().is_some_and(|row| row.new.is_some());
    action(reference, rows)
        .is_some_and(|action| action.refuses() || changes && level.path.contains(&reference.child.schema.id))
}

/// A row of the batch whose key nobody may refer to any more.
struct Lost<'r> {
    at: usize,
    row: &'r Row,
    /// The key as the index of the table that refers orders it.
    prefix: Vec<u8>,
}

fn lost<'r>(reference: &Reference, parent: &Parent, rows: &'r [Row]) -> Result<Vec<Lost<'r>>, ErrorCode> {
    let (from, to) = (&parent.table.schema, &reference.child.schema);
    let mut list = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        let Some(old) = &row.old else { continue };
        let next = row.new.as_ref().or(row.by.as_ref());
        let stays = next.is_some_and(|next| key::same_columns(from.layout(), &parent.columns, old, next));
        let mut prefix = Vec::new();
        if !stays && encode((from, &parent.columns), (to, &reference.key.columns), old, &mut prefix)? {
            list.push(Lost { at, row, prefix });
        }
    }
    Ok(list)
}

/// The keys of rows that may refer to one row.
struct Look {
    cursor: ScanCursor,
    page: Rows,
    more: bool,
}

async fn first_pages(
    cluster: Cluster<'_>,
    session: &mut Session,
    reference: &Reference,
    lost: &[Lost<'_>],
    page: u32,
) -> Done<Vec<Look>> {
    let schema = &reference.child.schema;
    let trans = reader(session, schema).await?;
    let asked = lost.iter().map(|lost| {
        let mut above = lost.prefix.clone();
        let has_end = key::successor_of_prefix(&mut above) && reference.index.is_some();
        let low = if reference.index.is_some() { Bound::Included(lost.prefix.as_slice()) } else { Bound::Unbounded };
        let request = ScanRequest {
            trans,
            index: reference.index.unwrap_or(IndexNo(0)),
            with_pending: true,
            low,
            high: if has_end { Bound::Excluded(above.as_slice()) } else { Bound::Unbounded },
            columns: Some(&schema.primary_key),
            batch_rows: page,
            ..ScanRequest::all(schema.id, schema.version)
        };
        let mut cursor = cluster.client.scan(&request);
        Box::pin(async move {
            let mut page = Rows::new();
            let more = cursor.next_batch(&mut page).await?;
            Ok::<_, ClientError>(Look { cursor, page, more })
        })
    });
    let mut looks = Vec::new();
    for look in join_all(asked.collect()).await {
        looks.push(look?);
    }
    Ok(looks)
}

/// Locks a page of rows; those that refer to the row, by their keys.
async fn locked(
    cluster: Cluster<'_>,
    session: &mut Session,
    reference: &Reference,
    (page, layout): (&Rows, &RowLayout),
    (lost, exclusive): (&Lost<'_>, bool),
) -> Done<Vec<(Vec<u8>, Vec<u8>)>> {
    let schema = &reference.child.schema;
    let (mut ops, mut results) = (OpBatch::new(), Results::new());
    let keys = primary_keys(schema, layout, page)?;
    for primary in &keys {
        ops.push_read(schema, exclusive, ALLOW_MISSING, primary, None)?;
    }
    let savepoint = next_savepoint(session);
    pin!(execute(cluster, session, &ops, &mut results, savepoint, false)).await?;
    let (mut found, mut prefix) = (Vec::new(), Vec::new());
    let columns = (schema, reference.key.columns.as_slice());
    for (primary, (status, row)) in keys.into_iter().zip(results.iter()) {
        if status != OpStatus::Done {
            continue;
        }
        schema.layout().check(row)?;
        prefix.clear();
        if encode(columns, columns, row, &mut prefix)? && prefix == lost.prefix {
            found.push((primary, row.to_vec()));
        }
    }
    Ok(found)
}

fn in_the_way(reference: &Reference, row: usize, depth: usize) -> Refusal {
    Refusal { row, fail: errors::row_is_referenced(&reference.text()).into(), taken: None, depth: Some(depth) }
}

/// # Errors
/// 1451: somebody refers to a row of the batch.
pub(super) async fn refuse(
    cluster: Cluster<'_>,
    session: &mut Session,
    reference: &Reference,
    rows: &[Row],
    depth: usize,
) -> Result<(), Refusal> {
    let Some(parent) = &reference.parent else { return Ok(()) };
    let layout = key_layout(reference)?;
    for some in lost(reference, parent, rows)?.chunks(LOOKS_AT_ONCE) {
        let looks = pin!(first_pages(cluster, session, reference, some, PAGE_TO_REFUSE)).await?;
        for (lost, mut look) in some.iter().zip(looks) {
            while look.more {
                let found = pin!(locked(cluster, session, reference, (&look.page, &layout), (lost, false))).await?;
                if !found.is_empty() {
                    return Err(in_the_way(reference, lost.at, depth));
                }
                look.more = look.cursor.next_batch(&mut look.page).await.map_err(Fail::from)?;
            }
        }
    }
    Ok(())
}

fn key_layout(reference: &Reference) -> Done<RowLayout> {
    let schema = &reference.child.schema;
    let layout = schema.layout().project_layout(&schema.primary_key);
    layout.ok_or_else(|| errors::internal("projection of a primary key").into())
}

/// What follows for those who refer to rows of the batch, which is done.
pub(super) async fn follow(
    cluster: Cluster<'_>,
    session: &mut Session,
    reference: &Rc<Reference>,
    rows: &[Row],
    level: &Level<'_>,
) -> Result<(), Refusal> {
    let (Some(parent), Some(action)) = (&reference.parent, action(reference, rows)) else { return Ok(()) };
    if refuses(reference, rows, level) {
        return refuse(cluster, session, reference, rows, level.depth).await;
    }
    let layout = key_layout(reference)?;
    let rules = cluster.catalog.rules(reference.child.schema.id);
    let path: Vec<TableId> = level.path.iter().copied().chain([reference.child.schema.id]).collect();
    let step = Step { reference, parent, action, rules, path: &path, depth: level.depth };
    for some in lost(reference, parent, rows)?.chunks(LOOKS_AT_ONCE) {
        let looks = pin!(first_pages(cluster, session, reference, some, BATCH as u32)).await?;
        for (lost, mut look) in some.iter().zip(looks) {
            while look.more {
                let found = pin!(locked(cluster, session, reference, (&look.page, &layout), (lost, true))).await?;
                if !found.is_empty() {
                    Box::pin(step.page(cluster, session, lost, found)).await?;
                }
                look.more = look.cursor.next_batch(&mut look.page).await.map_err(Fail::from)?;
            }
        }
    }
    Ok(())
}

/// From one level of a cascade to the next, by one key.
struct Step<'s> {
    reference: &'s Reference,
    parent: &'s Parent,
    action: Action,
    /// Of the table that refers.
    rules: Option<Rc<Rules>>,
    path: &'s [TableId],
    depth: usize,
}

impl Step<'_> {
    fn below(&self) -> Level<'_> {
        Level { depth: self.depth + 1, by: Some(self.reference), path: self.path }
    }

    /// Rows that refer to each other, and forbid that one goes before the other.
    fn is_in_its_own_way(&self) -> bool {
        let refuses = |r: &Rc<Reference>| r.is_of_itself() && r.key.on_delete.refuses();
        self.action == Action::Cascade && self.rules.iter().flat_map(|rules| &rules.children).any(refuses)
    }

    /// What becomes of a page of rows.
    async fn page(
        &self,
        cluster: Cluster<'_>,
        session: &mut Session,
        lost: &Lost<'_>,
        mut found: Vec<(Vec<u8>, Vec<u8>)>,
    ) -> Result<(), Refusal> {
        if self.depth >= DEPTH_MAX {
            return Err(Fail::from(errors::cascade_too_deep(DEPTH_MAX + 1)).into());
        }
        found.sort_unstable();
        if self.is_in_its_own_way() {
            let keys = found.into_iter().map(|(key, _)| key).collect();
            return self.one_by_one(cluster, session, lost, keys).await;
        }
        let mut changes = Vec::with_capacity(found.len());
        for (key, old) in found {
            changes.push(self.consequence(session, lost, key, old)?);
        }
        let (before, table) = (session.savepoint, &self.reference.child);
        let done = Box::pin(batch(cluster, session, table, self.rules.as_deref(), &changes, self.below())).await;
        match done {
            // One of the rows may be in the way of another, and gone when it is that one's turn.
            Err(refusal) if refusal.depth == Some(self.depth + 1) && changes.len() > 1 => {
                rollback_to(session, before + 1).await.map_err(Fail::from)?;
                let keys = changes.into_iter().map(|change| change.key).collect();
                self.one_by_one(cluster, session, lost, keys).await
            }
            done => done,
        }
    }

    async fn one_by_one(
        &self,
        cluster: Cluster<'_>,
        session: &mut Session,
        lost: &Lost<'_>,
        keys: Vec<Vec<u8>>,
    ) -> Result<(), Refusal> {
        for key in keys {
            let Some(now) = pin!(still(cluster, session, self.reference, lost, &key)).await? else { continue };
            let change = [self.consequence(session, lost, key, now)?];
            let table = &self.reference.child;
            Box::pin(batch(cluster, session, table, self.rules.as_deref(), &change, self.below())).await?;
        }
        Ok(())
    }

    /// What becomes of a row that refers.
    ///
    /// # Errors
    /// 1451: it cannot; 3819: a constraint of its table is against it.
    fn consequence(&self, session: &Session, lost: &Lost<'_>, key: Vec<u8>, old: Vec<u8>) -> Result<Row, Refusal> {
        let schema = &self.reference.child.schema;
        let next = match (self.action, &lost.row.new) {
            (Action::Cascade, None) => return Ok(Row { key, old: Some(old), ..Row::default() }),
            (Action::Cascade, Some(new)) => Some(new),
            _ => None,
        };
        let columns = 0..schema.columns.len() as u16;
        let mut values: Vec<Value<'_>> = columns.map(|c| schema.layout().value(&old, c)).collect();
        for (&column, &from) in self.reference.key.columns.iter().zip(&self.parent.columns) {
            let value = next.map_or(Value::Null, |next| self.parent.table.schema.layout().value(next, from));
            let definition = &schema.columns[usize::from(column)];
            if value.is_null() && !definition.nullable || !fits(definition.ty, &value) {
                return Err(in_the_way(self.reference, lost.at, self.depth));
            }
            values[usize::from(column)] = value;
        }
        let mut new = Vec::with_capacity(old.len() + 16);
        schema.layout().encode(&values, &mut new)?;
        let new = rules::followed(session, &self.reference.child, new)?;
        Ok(Row { key, old: Some(old), new: Some(new), by: None })
    }
}

/// The row as it is by now, if it still refers.
async fn still(
    cluster: Cluster<'_>,
    session: &mut Session,
    reference: &Reference,
    lost: &Lost<'_>,
    key: &[u8],
) -> Result<Option<Vec<u8>>, Refusal> {
    let schema = &reference.child.schema;
    let (mut ops, mut results, mut prefix) = (OpBatch::new(), Results::new(), Vec::new());
    ops.push_read(schema, true, ALLOW_MISSING, key, None)?;
    let savepoint = next_savepoint(session);
    pin!(execute(cluster, session, &ops, &mut results, savepoint, false)).await?;
    let columns = (schema, reference.key.columns.as_slice());
    let now = results.row(0).filter(|_| results.status(0) == Some(OpStatus::Done)).unwrap_or(&[]);
    let is_there = !now.is_empty() && encode(columns, columns, now, &mut prefix)? && prefix == lost.prefix;
    Ok(is_there.then(|| now.to_vec()))
}

/// The column is long enough.
fn fits(ty: ColumnType, value: &Value<'_>) -> bool {
    let Value::Bytes(bytes) = value else { return true };
    match ty {
        ColumnType::Char { length, .. } | ColumnType::VarChar { length, .. } => {
            String::from_utf8_lossy(bytes).chars().count() <= usize::from(length)
        }
        ColumnType::Binary { length } | ColumnType::VarBinary { length } => bytes.len() <= usize::from(length),
        _ => true,
    }
}
