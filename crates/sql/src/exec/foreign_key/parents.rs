//! The rows that new or changed rows refer to: they are locked shared until the transaction ends.
//!
//! By primary key that is one request for all keys of a batch. By another unique key the primary key is read from the index first; the row that is then locked must have
//! the key, so what was read may be old. Where it has not, or nothing was read, the entry of the index itself is locked: whoever is just making, moving or removing
//! it is waited for.

use std::{pin::pin, rc::Rc};

use apus_client::{OpBatch, ReadBatch, Results, Rows};
use apus_signal::tc::{ALLOW_MISSING, OpStatus};
use apus_types::{Epoch, ErrorCode, TableSchema, key, schema::HIDDEN_PK_COLUMN};

use super::Row;
use crate::{
    catalog::foreign_key::{Parent, ParentKey, Reference, Rules},
    errors,
    exec::{Cluster, execute, next_savepoint, reader},
    session::{Done, Session},
    spill::byte_strings::StringSet,
};

/// Attempts of a key whose row moves meanwhile.
const ATTEMPTS_MAX: usize = 8;

/// The keys that the rows of a batch need in one table.
struct Wanted<'r> {
    reference: &'r Rc<Reference>,
    parent: &'r Parent,
    keys: StringSet,
    /// Of each row that needs one: its number, and the key's.
    of: Vec<(usize, usize)>,
    /// By number of the key.
    found: Vec<bool>,
}

/// Appends the key that a row has in the columns, as the parent's unique key orders it; false: NULL is in it.
pub(super) fn encode(
    from: (&TableSchema, &[u16]),
    to: (&TableSchema, &[u16]),
    row: &[u8],
    out: &mut Vec<u8>,
) -> Result<bool, ErrorCode> {
    for (&have, &want) in from.1.iter().zip(to.1) {
        let value = from.0.layout().value(row, have);
        if value.is_null() {
            return Ok(false);
        }
        let column = to.0.columns.get(usize::from(want)).ok_or(ErrorCode::InvalidSchema)?;
        key::encode_part(column.ty, column.nullable, &value, out)?;
    }
    Ok(true)
}

/// The first row that refers to nothing, by a key other than the one by which it was changed.
pub async fn missing(
    cluster: Cluster<'_>,
    session: &mut Session,
    rules: &Rules,
    rows: &[Row],
    by: Option<&Reference>,
) -> Done<Option<(usize, Rc<Reference>)>> {
    let mut first: Option<(usize, usize)> = None;
    let mut wanted = Vec::new();
    for (rank, reference) in rules.parents.iter().enumerate() {
        if by.is_some_and(|by| by.key.name == reference.key.name) {
            continue;
        }
        match &reference.parent {
            Some(parent) => wanted.push((rank, want(reference, parent, rows)?)),
            None => {
                let lost = rows.iter().position(|row| is_new(reference, row) && refers(reference, row));
                first = lost.map(|row| (row, rank)).into_iter().chain(first).min();
            }
        }
    }
    wanted.retain(|(_, wanted)| !wanted.keys.is_empty());
    if !wanted.is_empty() {
        pin!(lock(cluster, session, &mut wanted)).await?;
    }
    for (rank, wanted) in &wanted {
        let lost = wanted.of.iter().find(|(_, key)| !wanted.found[*key]).map(|(row, _)| (*row, *rank));
        first = lost.into_iter().chain(first).min();
    }
    Ok(first.map(|(row, rank)| (row, rules.parents[rank].clone())))
}

/// The row has come to refer to what it refers to.
fn is_new(reference: &Reference, row: &Row) -> bool {
    let layout = reference.child.schema.layout();
    match (&row.old, &row.new) {
        (_, None) => false,
        (None, _) => true,
        (Some(old), Some(new)) => !key::same_columns(layout, &reference.key.columns, old, new),
    }
}

fn refers(reference: &Reference, row: &Row) -> bool {
    let layout = reference.child.schema.layout();
    row.new.as_ref().is_some_and(|new| !reference.key.columns.iter().any(|&c| layout.is_null(new, c)))
}

fn want<'r>(reference: &'r Rc<Reference>, parent: &'r Parent, rows: &[Row]) -> Result<Wanted<'r>, ErrorCode> {
    let (child, to) = (&reference.child.schema, (&parent.table.schema, parent.columns.as_slice()));
    let mut wanted = Wanted { reference, parent, keys: StringSet::default(), of: Vec::new(), found: Vec::new() };
    // Keys of rows that come before in the same batch, where the table refers to itself.
    let (mut made, mut key) = (StringSet::default(), Vec::new());
    for (at, row) in rows.iter().enumerate() {
        let Some(new) = &row.new else { continue };
        if reference.is_of_itself() && row.old.is_none() {
            key.clear();
            if encode(to, to, new, &mut key)? {
                made.insert(&key);
            }
        }
        key.clear();
        if !is_new(reference, row) || !encode((child, &reference.key.columns), to, new, &mut key)? {
            continue;
        }
        if !made.contains(&key) {
            let (number, _) = wanted.keys.insert(&key);
            wanted.of.push((at, number));
        }
    }
    wanted.found.resize(wanted.keys.len(), false);
    Ok(wanted)
}

/// Locks what is wanted and there.
async fn lock(cluster: Cluster<'_>, session: &mut Session, wanted: &mut [(usize, Wanted<'_>)]) -> Done<()> {
    let (mut ops, mut results) = (OpBatch::new(), Results::new());
    // Of each operation: whose key it is, and which.
    let mut of = Vec::new();
    for (at, (_, wanted)) in wanted.iter().enumerate() {
        let schema = &wanted.parent.table.schema;
        let primary: Vec<Option<Vec<u8>>> = match wanted.parent.by {
            ParentKey::Primary => (0..wanted.keys.len()).map(|n| wanted.keys.get(n).map(<[u8]>::to_vec)).collect(),
            ParentKey::Unique(position) => pin!(entries(cluster, session, wanted, position)).await?,
        };
        for (number, primary) in primary.iter().enumerate() {
            if let Some(primary) = primary {
                ops.push_read(schema, false, ALLOW_MISSING, primary, None)?;
                of.push((at, number));
            }
        }
    }
    let savepoint = next_savepoint(session);
    pin!(execute(cluster, session, &ops, &mut results, savepoint, false)).await?;
    for (&(at, number), (status, row)) in of.iter().zip(results.iter()) {
        if status == OpStatus::Done {
            wanted[at].1.found[number] = has_key(&wanted[at].1, number, row)?;
        }
    }
    for (_, wanted) in wanted {
        let ParentKey::Unique(position) = wanted.parent.by else { continue };
        for number in 0..wanted.found.len() {
            if !wanted.found[number] {
                let is_there = pin!(insist(cluster, session, wanted, position, number)).await?;
                wanted.found[number] = is_there;
            }
        }
    }
    Ok(())
}

/// Whether a row that is referred to has the key.
fn has_key(wanted: &Wanted<'_>, number: usize, row: &[u8]) -> Result<bool, ErrorCode> {
    let (schema, mut key) = (&wanted.parent.table.schema, Vec::new());
    schema.layout().check(row)?;
    let columns = (schema, wanted.parent.columns.as_slice());
    Ok(encode(columns, columns, row, &mut key)? && wanted.keys.get(number) == Some(&key))
}

fn hidden<'w>(wanted: &'w Wanted<'_>, position: usize) -> Done<&'w Rc<TableSchema>> {
    let hidden = wanted.parent.table.hidden.get(position).and_then(Option::as_ref);
    hidden.ok_or_else(|| errors::internal("a unique index without its table").into())
}

/// The primary keys of the rows with these keys, as far as the index says at once.
async fn entries(
    cluster: Cluster<'_>,
    session: &mut Session,
    wanted: &Wanted<'_>,
    position: usize,
) -> Done<Vec<Option<Vec<u8>>>> {
    let hidden = hidden(wanted, position)?;
    let (mut keys, mut rows) = (apus_client::KeyList::new(), Rows::new());
    for number in 0..wanted.keys.len() {
        keys.push(hidden, wanted.keys.get(number).unwrap_or(&[]))?;
    }
    let trans = reader(session, &wanted.parent.table.schema).await?;
    let (table, schema_version) = (hidden.id, hidden.version);
    let request = ReadBatch { trans, snapshot: Epoch(0), table, schema_version, columns: None, keys: &keys };
    cluster.client.read(&request, &mut rows).await?;
    Ok(rows.iter().map(|row| row.map(|row| hidden.layout().raw(row, HIDDEN_PK_COLUMN).to_vec())).collect())
}

/// As the index says when nobody is about to change it.
async fn insist(
    cluster: Cluster<'_>,
    session: &mut Session,
    wanted: &Wanted<'_>,
    position: usize,
    number: usize,
) -> Done<bool> {
    let hidden = hidden(wanted, position)?;
    let key = wanted.keys.get(number).unwrap_or(&[]);
    let (mut ops, mut results) = (OpBatch::new(), Results::new());
    for _ in 0..ATTEMPTS_MAX {
        ops.clear();
        ops.push_read(hidden, false, ALLOW_MISSING, key, None)?;
        let savepoint = next_savepoint(session);
        pin!(execute(cluster, session, &ops, &mut results, savepoint, false)).await?;
        if results.status(0) != Some(OpStatus::Done) {
            return Ok(false);
        }
        let primary = hidden.layout().raw(results.row(0).unwrap_or(&[]), HIDDEN_PK_COLUMN).to_vec();
        ops.clear();
        ops.push_read(&wanted.parent.table.schema, false, ALLOW_MISSING, &primary, None)?;
        let savepoint = next_savepoint(session);
        pin!(execute(cluster, session, &ops, &mut results, savepoint, false)).await?;
        if results.status(0) == Some(OpStatus::Done) && has_key(wanted, number, results.row(0).unwrap_or(&[]))? {
            return Ok(true);
        }
    }
    let name = &wanted.reference.key.name;
    Err(errors::internal(&format!("the row of an entry that is locked has another key ({name})")).into())
}
