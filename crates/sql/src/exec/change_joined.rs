//! Rows that a query of several tables locks: UPDATE and DELETE of joins and with subqueries, SELECT ... FOR UPDATE of joins.
//!
//! The query is run at a snapshot and says keys. Those are locked, and the query is run again, at a later snapshot: what it says now of locked rows stays so. When it names no
//! row that is not locked yet, its rows are the statement's; they are changed as they were locked. A row that is named several times is changed once, by the
//! first of them. Rows that are only read are locked shared above READ COMMITTED.
//!
//! Limits: [`LOCKED_BYTES_MAX`] of locked rows (error 1206), [`ROUNDS_MAX`] runs.

use std::rc::Rc;

use apus_client::Snapshot;
use apus_signal::tc::{ALLOW_MISSING, NO_WAIT, OpKind, OpStatus};
use apus_types::Epoch;

use super::{
    Changed, Cluster, Info,
    change::{Storing, apply_all, push_change, refused_row, send_changes, updated_row},
    execute, foreign_key,
    lock::{LOCKED_BYTES_MAX, lock_row},
    next_savepoint, query, target,
    triggered::{self, Writing},
};
use crate::{
    catalog::{
        Table,
        foreign_key::{Rules, rules},
    },
    errors,
    expr::{
        Expr,
        assign::index_key::{self, KeyValue},
    },
    plan::{
        Select, access,
        change::{Fate, Locked, Target},
    },
    program::trigger::Event,
    session::{Done, Session, buffers::Scratch},
    spill::byte_strings::{StringSet, Strings},
    value::{datum::Datum, zone::Zone},
    variables::isolation::Isolation,
};

/// Runs of the query until it names locked rows only; others change what it finds faster than it locks.
const ROUNDS_MAX: u32 = 50;
/// Rows locked or changed per batch.
const BATCH: usize = 512;

/// Rows of one target that are locked.
#[derive(Default)]
struct Held {
    keys: StringSet,
    /// By number of the key; empty: there is no such row any more.
    rows: Strings,
    /// Whether a row of the result has been taken for it.
    is_used: Vec<bool>,
}

type Rows = Vec<Vec<Datum<'static>>>;

/// A snapshot's epoch, and what holds it, if that is not the transaction.
type Seen = (Epoch, Option<Rc<Snapshot>>);

/// Locks the rows of a query; its rows, and the snapshot that they are of.
async fn lock(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    plan: &Locked,
    params: &[Datum<'_>],
    held: &mut [Held],
) -> Done<(Rows, Seen)> {
    let shares = session.isolation.unwrap_or_default() >= Isolation::RepeatableRead;
    for _ in 0..ROUNDS_MAX {
        session.env.may_go_on()?;
        session.env.forget_notes();
        let (epoch, held_snapshot) = match session.reads.are_kept() {
            true => (session.reading_at(cluster.client).await?, None),
            false => {
                let snapshot = cluster.client.shared_snapshot().await?;
                (snapshot.epoch(), Some(snapshot))
            }
        };
        let rows = query::collect_at(cluster, session, &plan.query, params, epoch).await?;
        let mut is_new = false;
        for (target, held) in plan.targets.iter().zip(held.iter_mut()) {
            let is_change = !matches!(target.fate, Fate::Stays);
            if !is_change && !target.exclusive && plan.is_change() && !shares {
                continue;
            }
            let before = held.keys.len();
            for row in &rows {
                session.env.breathe(1).await?;
                name(target, row, session.env.zone(), held)?;
            }
            is_new |= held.keys.len() > before;
            lock_new(cluster, session, s, target, plan.no_wait, held).await?;
        }
        if !is_new {
            return Ok((rows, (epoch, held_snapshot)));
        }
    }
    Err(apus_client::ClientError::from(apus_types::ErrorCode::LockTimeout).into())
}

/// The number of the row's key, which is new where it was not named before; none where an outer join has no row.
fn name(target: &Target, row: &[Datum<'_>], zone: Zone, held: &mut Held) -> errors::Result<Option<usize>> {
    let schema = &target.table.schema;
    let values = row.get(target.key..target.key + schema.primary_key.len()).unwrap_or(&[]);
    if values.iter().any(Datum::is_null) {
        return Ok(None);
    }
    let (number, _) = held.keys.insert_with(|key| {
        for (&column, value) in schema.primary_key.iter().zip(values) {
            let ty = schema.columns[usize::from(column)].ty;
            match index_key::key_value(ty, value.borrowed(), zone) {
                KeyValue::Exact(value) => access::binding::encode(schema, column, &value, key)?,
                _ => return Err(errors::internal("a key that is none")),
            }
        }
        Ok(())
    })?;
    Ok(Some(number))
}

/// Locks what is named and not locked yet.
async fn lock_new(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    target: &Target,
    no_wait: bool,
    held: &mut Held,
) -> Done<()> {
    let schema = &target.table.schema;
    let flags = ALLOW_MISSING | if no_wait { NO_WAIT } else { 0 };
    while held.rows.len() < held.keys.len() {
        session.env.may_go_on()?;
        let from = held.rows.len();
        let to = held.keys.len().min(from + BATCH);
        s.ops.clear();
        for key in (from..to).filter_map(|n| held.keys.get(n)) {
            s.ops.push_read(schema, target.exclusive, flags, key, None)?;
        }
        let savepoint = next_savepoint(session);
        execute(cluster, session, &s.ops, &mut s.results, savepoint, false).await?;
        for (status, row) in s.results.iter() {
            if status == OpStatus::Done {
                schema.layout().check(row)?;
                held.rows.push(row);
            } else {
                held.rows.push(&[]);
            }
        }
        held.is_used.resize(held.rows.len(), false);
        if held.rows.len() < to || held.rows.byte_len() + held.keys.byte_len() > LOCKED_BYTES_MAX {
            return Err(errors::too_many_locks().into());
        }
    }
    Ok(())
}

/// The row as it is by now.
async fn row_now(cluster: Cluster<'_>, session: &mut Session, table: &Table, key: &[u8]) -> Done<Option<Vec<u8>>> {
    lock_row(cluster, session, &mut Scratch::default(), table, key).await
}

/// The targets in the order in which they are changed: rows that refer to others go before these.
fn in_order(cluster: Cluster<'_>, session: &Session, plan: &Locked) -> Vec<usize> {
    let mut order: Vec<usize> = (0..plan.targets.len()).collect();
    if plan.is_update || plan.targets.len() < 2 {
        return order;
    }
    let refers = |a: usize, b: usize| {
        let (a, b) = (&plan.targets[a].table.schema, &plan.targets[b].table.schema);
        let rules = rules(session, cluster.catalog, b);
        rules.is_some_and(|rules| rules.children.iter().any(|r| r.child.schema.id == a.id))
    };
    for _ in 0..order.len() {
        for at in 1..order.len() {
            if refers(order[at], order[at - 1]) && !refers(order[at - 1], order[at]) {
                order.swap(at - 1, at);
            }
        }
    }
    order
}

/// What the changes of a target have to hold rows to.
fn concerning(cluster: Cluster<'_>, session: &Session, target: &Target) -> Option<Rc<Rules>> {
    let schema = &target.table.schema;
    let rules = rules(session, cluster.catalog, schema)?;
    let timed = |c: &u16| schema.columns[usize::from(*c)].on_update_now;
    let is_concerned = match &target.fate {
        Fate::Stays => false,
        Fate::Goes => !rules.children.is_empty(),
        Fate::Changes(list) => {
            rules.concerns(list.iter().map(|(c, _)| *c).chain((0..schema.columns.len() as u16).filter(timed)))
        }
    };
    is_concerned.then_some(rules)
}

/// UPDATE or DELETE.
pub async fn change(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    plan: &Locked,
    params: &[Datum<'_>],
) -> Done<Changed> {
    session.env.changes_rows.set(true);
    let by_key = plan.query.join.as_ref().is_some_and(|join| join.is_by_key);
    if session.env.variables.safe_updates && !by_key && plan.query.limit.is_none() {
        return Err(errors::safe_update().into());
    }
    let mut held: Vec<Held> = plan.targets.iter().map(|_| Held::default()).collect();
    let (rows, _) = lock(cluster, session, s, plan, params, &mut held).await?;
    let strict = session.env.variables.strict;
    if let Some(fault) = session.env.fault_if(strict) {
        return Err(fault.into());
    }
    let (mut matched, mut changed, mut refused) = (0u64, 0u64, Vec::new());
    let changes = plan.targets.iter().filter(|t| !matches!(t.fate, Fate::Stays)).count();
    for at in in_order(cluster, session, plan) {
        let (target, held) = (&plan.targets[at], &mut held[at]);
        if matches!(target.fate, Fate::Stays) {
            continue;
        }
        let schema = &target.table.schema;
        let rules = concerning(cluster, session, target);
        let event = if plan.is_update { Event::Update } else { Event::Delete };
        let is_triggered = target.table.triggers().is_some_and(|triggers| triggers.has(event));
        let may_be_other = changes > 1 && schema.is_constrained() || rules.as_ref().is_some_and(|r| r.is_cyclic);
        let most = if rules.as_ref().is_some_and(|rules| rules.is_cyclic) { 1 } else { BATCH };
        let mut held_to = Vec::new();
        s.ops.clear();
        s.images.clear();
        for row in &rows {
            session.env.breathe(1).await?;
            let Some(number) = name(target, row, session.env.zone(), held)? else { continue };
            let old = held.rows.get(number).filter(|old| !old.is_empty());
            let (Some(old), Some(key), false) = (old, held.keys.get(number), held.is_used[number]) else { continue };
            held.is_used[number] = true;
            // What was done with rows before it may have changed it.
            let now = match may_be_other {
                true => Box::pin(row_now(cluster, session, &target.table, key)).await?,
                false => None,
            };
            if may_be_other && now.is_none() {
                continue;
            }
            let old = now.as_deref().unwrap_or(old);
            matched += 1;
            let number = usize::try_from(matched).unwrap_or(usize::MAX);
            let (lenient, check) = (!strict, target.check.as_ref());
            let writing = || Writing {
                table: &target.table,
                rules: rules.as_deref(),
                check,
                params,
                ignore: false,
                lenient,
                number,
            };
            match &target.fate {
                Fate::Stays => {}
                Fate::Goes if is_triggered => {
                    let row = (key, old);
                    let is_gone = Box::pin(triggered::delete(cluster, session, s, &writing(), row, None)).await?;
                    changed += u64::from(is_gone);
                    s.ops.clear();
                }
                Fate::Goes if rules.is_some() => {
                    held_to.push(foreign_key::Row::gone(key, old));
                    changed += 1;
                }
                Fate::Goes => {
                    s.ops.push(schema, OpKind::Delete, 0, key, &[])?;
                    changed += 1;
                }
                Fate::Changes(list) => {
                    let value = |at: usize| Expr::Const(row.get(at).cloned().unwrap_or(Datum::Null));
                    let assignments: Vec<(u16, Expr)> = list.iter().map(|(c, at)| (*c, value(*at))).collect();
                    let (takes_null, keeps_null, refused) = (lenient, is_triggered, &mut refused);
                    let storing = Storing { row: number, lenient, takes_null, keeps_null, refused };
                    let new = updated_row(session, &target.table, (old, None), &assignments, &[], storing)?;
                    refused.drain(..).for_each(|e| session.warn_error(&e));
                    if is_triggered {
                        let (row, new) = ((key, old), new.as_deref().unwrap_or(old));
                        let done = Box::pin(triggered::update(cluster, session, s, &writing(), row, new)).await?;
                        changed += u64::from(done);
                        s.ops.clear();
                        s.images.clear();
                        continue;
                    }
                    let Some(new) = new else { continue };
                    if let Some(failed) = refused_row(session, &target.table, check, &new, params, strict)? {
                        return Err(failed.into());
                    }
                    changed += 1;
                    if rules.is_some() {
                        held_to.push(foreign_key::Row::changed(key, old, &new));
                        s.ops.clear();
                    } else {
                        push_change(s, schema, key, old, &new)?;
                    }
                    while s.images.len() < s.ops.len() {
                        s.images.push(&new);
                    }
                }
            }
            if let Some(rules) = rules.as_deref().filter(|_| held_to.len() >= most) {
                Box::pin(apply_all(cluster, session, &target.table, rules, &held_to)).await?;
                held_to.clear();
            }
            if rules.is_none() && s.ops.len() >= BATCH {
                send_changes(cluster, session, s, &target.table).await?;
                s.ops.clear();
                s.images.clear();
            }
        }
        match rules.as_deref() {
            Some(rules) if held_to.is_empty() => _ = rules,
            Some(rules) => Box::pin(apply_all(cluster, session, &target.table, rules, &held_to)).await?,
            None => send_changes(cluster, session, s, &target.table).await?,
        }
        session.remember(schema);
    }
    if !plan.is_update {
        return Ok(Changed { affected: changed, ..Changed::default() });
    }
    let affected = if session.found_rows { matched } else { changed };
    Ok(Changed { affected, info: Info::Updated { matched, changed }, ..Changed::default() })
}

/// SELECT ... FOR UPDATE or FOR SHARE of several tables: locks what its join finds, then reads it as it was found last.
pub async fn select<T: target::Target>(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    plan: &Select,
    locked: &Locked,
    params: &[Datum<'_>],
    out: &mut T,
) -> Done<u64> {
    let mut held: Vec<Held> = locked.targets.iter().map(|_| Held::default()).collect();
    let (_, (epoch, _snapshot)) = lock(cluster, session, s, locked, params, &mut held).await?;
    session.env.forget_notes();
    let run = query::of_session(cluster, session, params, epoch);
    query::into(&run, plan, Default::default(), out).await
}

impl Locked {
    fn is_change(&self) -> bool {
        self.targets.iter().any(|t| !matches!(t.fate, Fate::Stays))
    }
}
