//! Rows of tables with triggers: each is written by itself, between its BEFORE and its AFTER triggers.

use apus_signal::tc::{ALLOW_MISSING, OpKind};

use super::{
    Cluster,
    change::{Storing, change_or_warn, push_change, refused_row, send_changes},
    execute, foreign_key, next_savepoint, rules,
};
use crate::{
    catalog::{Table, foreign_key::Rules},
    errors,
    expr::assign::{self, Assign},
    plan::{Insert, dml::insert::OnDuplicate, updatable_view::RowCheck},
    program::trigger::{
        Event,
        fire::{Fired, Rows},
    },
    session::{Done, Session, buffers::Scratch},
    value::{datum::Datum, enum_set},
};
use std::rc::Rc;

/// Whether the rows of an INSERT are made and written one after the other.
pub fn is_one_by_one(plan: &Insert) -> bool {
    let Some(triggers) = plan.table.triggers() else { return false };
    match plan.on_duplicate {
        OnDuplicate::Refuse => triggers.has(Event::Insert) && !triggers.is_alone(Event::Insert),
        OnDuplicate::Ignore => triggers.has(Event::Insert),
        OnDuplicate::Replace => triggers.has(Event::Insert) || triggers.has(Event::Delete),
        OnDuplicate::Update => triggers.has(Event::Insert) || triggers.has(Event::Update),
    }
}

/// How a row that changes is written.
pub struct Writing<'w> {
    pub table: &'w Rc<Table>,
    pub rules: Option<&'w Rules>,
    pub check: Option<&'w RowCheck>,
    pub params: &'w [Datum<'w>],
    /// A refusal is a warning.
    pub ignore: bool,
    /// What strict mode refuses is stored as well as it can be.
    pub lenient: bool,
    /// Of the row, from 1, for messages.
    pub number: usize,
}

/// Changes a row; whether it has changed.
pub async fn update(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    writing: &Writing<'_>,
    (key, old): (&[u8], &[u8]),
    new: &[u8],
) -> Done<bool> {
    let table = writing.table;
    if session.env.is_wanting() {
        return Ok(false); // nothing is done in this run of the statement
    }
    let rows = Rows { old: Some(old), new: Some(new) };
    let fired = cluster.engine.fire_before(session, table, Event::Update, rows).await?;
    let Some(fired) = fired else { return Err(errors::internal("no new row").into()) };
    let new = settled(session, writing, fired)?;
    let strict = !writing.lenient;
    if let Some(failed) = refused_row(session, table, writing.check, &new, writing.params, strict)? {
        if !writing.ignore {
            return Err(failed.into());
        }
        session.env.take_notes().iter().for_each(|e| session.warn_error(e));
        session.warn_error(&failed);
        return Ok(false);
    }
    let is_other = !table.schema.layout().is_same(old, &new);
    if is_other && !write_change(cluster, session, s, writing, (key, old), &new).await? {
        return Ok(false);
    }
    session.remember(&table.schema);
    let rows = Rows { old: Some(old), new: Some(&new) };
    cluster.engine.fire_after(session, table, Event::Update, rows).await?;
    Ok(is_other)
}

async fn write_change(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    writing: &Writing<'_>,
    (key, old): (&[u8], &[u8]),
    new: &[u8],
) -> Done<bool> {
    let table = writing.table;
    if let Some(rules) = writing.rules {
        let row = foreign_key::Row::changed(key, old, new);
        return Box::pin(follow(cluster, session, writing, rules, row)).await;
    }
    if writing.ignore {
        return change_or_warn(cluster, session, s, table, key, old, new).await;
    }
    s.ops.clear();
    s.images.clear();
    push_change(s, &table.schema, key, old, new)?;
    while s.images.len() < s.ops.len() {
        s.images.push(new);
    }
    send_changes(cluster, session, s, table).await?;
    Ok(true)
}

/// One change with what follows from it by foreign keys; whether these let it happen.
async fn follow(
    cluster: Cluster<'_>,
    session: &mut Session,
    writing: &Writing<'_>,
    rules: &Rules,
    row: foreign_key::Row,
) -> Done<bool> {
    match foreign_key::apply(cluster, session, writing.table, rules, &[row]).await? {
        foreign_key::Outcome::Done => Ok(true),
        foreign_key::Outcome::Refused { error, .. } if writing.ignore => {
            session.warn_error(&error);
            Ok(false)
        }
        foreign_key::Outcome::Refused { error, .. } => Err(error.into()),
    }
}

/// Deletes a row; whether it is gone.
pub async fn delete(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    writing: &Writing<'_>,
    (key, old): (&[u8], &[u8]),
    by: Option<&[u8]>,
) -> Done<bool> {
    let table = writing.table;
    if session.env.is_wanting() {
        return Ok(false);
    }
    let rows = Rows { old: Some(old), new: None };
    cluster.engine.fire_before(session, table, Event::Delete, rows).await?;
    if let Some(rules) = writing.rules {
        let row = foreign_key::Row { by: by.map(<[u8]>::to_vec), ..foreign_key::Row::gone(key, old) };
        if !Box::pin(follow(cluster, session, writing, rules, row)).await? {
            return Ok(false);
        }
    } else {
        s.ops.clear();
        s.ops.push(&table.schema, OpKind::Delete, ALLOW_MISSING, key, &[])?;
        let savepoint = next_savepoint(session);
        execute(cluster, session, &s.ops, &mut s.results, savepoint, false).await?;
    }
    session.remember(&table.schema);
    cluster.engine.fire_after(session, table, Event::Delete, rows).await?;
    Ok(true)
}

/// The row that BEFORE UPDATE left, with what is missing.
fn settled(session: &mut Session, writing: &Writing<'_>, fired: Fired) -> Done<Vec<u8>> {
    let schema = &writing.table.schema;
    let Fired { mut row, touched } = fired;
    let mut refused = Vec::new();
    for (column, c) in (0u16..).zip(&schema.columns) {
        if c.nullable || c.generated.is_some() || !schema.layout().is_null(&row, column) {
            continue;
        }
        let e = errors::null_not_allowed(&c.name);
        if touched.contains(&column) && !writing.ignore || !writing.lenient {
            return Err(e.into());
        }
        refused.push(e);
        let env = &session.env;
        let assign = Assign::of(env, &schema.name, writing.number, false);
        let value = match enum_set::in_place_of_null(c.ty) {
            Some(value) => value,
            None => assign::assign_leniently(c, assign::implicit_default(c.ty), assign)?,
        };
        row = assign::replace(schema, &row, column, &value)?;
    }
    let lenient = writing.lenient;
    let storing =
        Storing { row: writing.number, lenient, takes_null: lenient, keeps_null: false, refused: &mut refused };
    let row = rules::recompute(session, writing.table, row, storing)?;
    refused.iter().for_each(|e| session.warn_error(e));
    Ok(row)
}
