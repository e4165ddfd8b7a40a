//! Changes of rows that the transaction has locked: computed here, they wait (see [`crate::session::locked_rows`]).

use apus_types::{ErrorCode, TableSchema, update};

use super::{lock::OWN_AT_ONCE, next_savepoint};
use crate::{
    session::{Session, buffers::Scratch},
    spill::byte_strings::Pairs,
};

/// UPDATE (`s.ops`) by program (`s.program`) of rows by key (`s.bound`): how many there are and how many change; `None` where not all are known, or
/// the change may not wait.
///
/// # Errors
/// As the data nodes would refuse it; nothing is changed then.
pub fn update(session: &mut Session, s: &mut Scratch, schema: &TableSchema) -> Result<Option<(u64, u64)>, ErrorCode> {
    let count = s.bound.points.len();
    if count > OWN_AT_ONCE {
        return Ok(None);
    }
    s.images.clear();
    let mut changed = 0;
    for key in s.bound.points.iter() {
        let Some(old) = session.own.find(schema, key) else { return Ok(None) };
        changed += u64::from(update::apply(schema, old, &s.program, &mut s.row)?);
        if !session.own.may_wait(schema, old, Some(&s.row)) {
            return Ok(None);
        }
        s.images.push(&s.row);
    }
    if changed > 0 {
        let savepoint = next_savepoint(session);
        session.own.wait(savepoint, schema, &s.ops);
    }
    for (key, new) in s.bound.points.iter().zip(s.images.iter()) {
        session.own.hold(schema, key, new);
    }
    session.remember_write(schema.id);
    Ok(Some((count as u64, changed)))
}

/// The changes in `s.ops` of these rows of `locked` to those in `s.images`, which may wait.
pub fn change(session: &mut Session, s: &Scratch, schema: &TableSchema, locked: &Pairs, rows: &[usize]) {
    if !rows.is_empty() {
        let savepoint = next_savepoint(session);
        session.own.wait(savepoint, schema, &s.ops);
    }
    for (&row, new) in rows.iter().zip(s.images.iter()) {
        session.own.hold(schema, locked.key(row), new);
    }
    session.remember_write(schema.id);
}

/// DELETE (`s.ops`) of rows by key (`s.bound`): how many there are; `None` where not all are known, or it may not wait.
pub fn delete(session: &mut Session, s: &Scratch, schema: &TableSchema) -> Option<u64> {
    let points = &s.bound.points;
    let may_wait = |key| session.own.find(schema, key).is_some_and(|old| session.own.may_wait(schema, old, None));
    if points.len() > OWN_AT_ONCE || !session.own.has_rows() || !points.iter().all(may_wait) {
        return None;
    }
    let savepoint = next_savepoint(session);
    session.own.wait(savepoint, schema, &s.ops);
    points.iter().for_each(|key| session.own.forget(schema, key));
    session.remember_write(schema.id);
    Some(points.len() as u64)
}
