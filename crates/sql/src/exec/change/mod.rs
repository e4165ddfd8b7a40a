//! UPDATE and DELETE.

mod by_program;
pub mod deletion;

use std::{pin::pin, rc::Rc};

use apus_signal::tc::OpKind;
use apus_types::{ErrorCode, TableSchema, key, update};

use self::by_program::update_by_program;
use super::{
    Changed, Cluster, Info, duplicate, execute, foreign_key,
    lock::{self, Hunt, OWN_AT_ONCE, Wanted},
    locked_rows, next_savepoint, rules,
    triggered::{self, Writing},
};
use crate::{
    catalog::{
        Table,
        foreign_key::{Rules, rules},
    },
    errors,
    expr::{
        Context, Expr,
        assign::{self, Assign, replace},
        eval,
    },
    plan::{Update, updatable_view::RowCheck},
    program::{function::calls::unanswered, trigger::Event},
    session::{Done, Fail, Session, buffers::Scratch, rollback_to},
    value::{datum::Datum, enum_set},
    wire::SqlError,
};

pub async fn update(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    plan: &Update,
    params: &[Datum<'_>],
) -> Done<Changed> {
    session.env.changes_rows.set(true);
    lock::refuse_unsafe(&session.env, &plan.access.path, plan.limit.as_ref())?;
    let rules = concerning(cluster, session, plan);
    let is_triggered = plan.table.triggers().is_some_and(|triggers| triggers.has(Event::Update));
    if let Some(steps) = &plan.program
        && !plan.ignore
        && rules.is_none()
        && !is_triggered
        && let Some(changed) = pin!(update_by_program(cluster, session, s, plan, steps, params)).await?
    {
        return Ok(changed);
    }
    session.env.forget_notes();
    pin!(update_locked(cluster, session, s, plan, params, rules)).await
}

/// What the statement has to hold rows to.
fn concerning(cluster: Cluster<'_>, session: &Session, plan: &Update) -> Option<Rc<Rules>> {
    let schema = &plan.table.schema;
    let timed = |c: &u16| schema.columns[usize::from(*c)].on_update_now;
    let columns = || plan.assignments.iter().map(|(c, _)| *c).chain((0..schema.columns.len() as u16).filter(timed));
    rules(session, cluster.catalog, schema).filter(|rules| rules.concerns(columns()))
}

fn context<'c>(session: &'c Session, schema: &'c TableSchema, row: &'c [u8], params: &'c [Datum<'c>]) -> Context<'c> {
    Context { layout: schema.layout(), row, new_row: None, params, aggregates: &[], given: &[], env: &session.env }
}

fn updated(session: &Session, matched: u64, changed: u64) -> Changed {
    let affected = if session.found_rows { matched } else { changed };
    Changed { affected, info: info(matched, changed), ..Changed::default() }
}

fn info(matched: u64, changed: u64) -> Info {
    Info::Updated { matched, changed }
}

/// Sends `s.ops`: in the session's transaction, or as one of its own.
pub async fn run(cluster: Cluster<'_>, session: &mut Session, s: &mut Scratch) -> Done<()> {
    if session.in_transaction() || session.transaction.is_some() {
        let savepoint = next_savepoint(session);
        return pin!(execute(cluster, session, &s.ops, &mut s.results, savepoint, false)).await;
    }
    pin!(run_alone(cluster, session, s)).await
}

/// As a transaction of its own; a wait for a lock ends when the statement is to stop.
pub async fn run_alone(cluster: Cluster<'_>, session: &Session, s: &mut Scratch) -> Done<()> {
    if session.env.is_wanting() {
        return Err(unanswered().into());
    }
    let (wait, on_disk) = (session.env.variables.lock_wait_ms, session.env.variables.on_disk);
    match cluster.client.run_autocommit_until(&s.ops, wait, on_disk, &mut s.results, session.env.stopped()).await {
        Ok(_) => Ok(()),
        Err(e) if e.code == ErrorCode::TransactionAborted && session.env.may_go_on().is_err() => {
            Err(session.env.why_stopped().into())
        }
        Err(e) => Err(Fail::Client(e)),
    }
}

async fn update_locked(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    plan: &Update,
    params: &[Datum<'_>],
    rules: Option<Rc<Rules>>,
) -> Done<Changed> {
    let schema = &plan.table.schema;
    let limit = lock::limit(session, schema.layout(), plan.limit.as_ref(), params)?;
    let Update { table, access, order, in_order, reverse, .. } = plan;
    let strict = session.env.variables.strict && !plan.ignore;
    let wanted = Wanted { table, access, order, in_order: *in_order, reverse: *reverse, lock: None, params, strict };
    let mut hunt = Hunt::new(s, wanted, limit);
    if rules.as_ref().is_some_and(|rules| rules.is_cyclic) {
        hunt.one_by_one();
    }
    let (mut matched, mut changed) = (0, 0);
    let (mut refused, mut changing) = (Vec::new(), Vec::new());
    let is_triggered = table.triggers().is_some_and(|triggers| triggers.has(Event::Update));
    loop {
        s.locked.clear();
        if !pin!(hunt.next(cluster, session, s)).await? {
            break;
        }
        s.ops.clear();
        s.images.clear();
        let locked = std::mem::take(&mut s.locked);
        let mut rows = Vec::new();
        let mut may_wait =
            !plan.ignore && !is_triggered && rules.is_none() && locked.len() <= OWN_AT_ONCE && hunt.is_over(s);
        changing.clear();
        for i in 0..locked.len() {
            matched += 1;
            let old = locked.payload(i);
            let row_number = usize::try_from(matched).unwrap_or(usize::MAX);
            let (lenient, refused) = (!strict, &mut refused);
            let storing = Storing { row: row_number, lenient, takes_null: lenient, keeps_null: is_triggered, refused };
            let new = updated_row(session, table, (old, None), &plan.assignments, params, storing)?;
            refused.drain(..).for_each(|e| session.warn_error(&e));
            if is_triggered {
                let (rules, check) = (rules.as_deref(), plan.check.as_ref());
                let writing = Writing { table, rules, check, params, ignore: plan.ignore, lenient, number: row_number };
                let (row, new) = ((locked.key(i), old), new.as_deref().unwrap_or(old));
                changed += u64::from(Box::pin(triggered::update(cluster, session, s, &writing, row, new)).await?);
                s.ops.clear();
                continue;
            }
            let Some(new) = new else { continue };
            if let Some(failed) = refused_row(session, table, plan.check.as_ref(), &new, params, strict)? {
                if !plan.ignore {
                    return Err(failed.into());
                }
                session.env.take_notes().iter().for_each(|e| session.warn_error(e));
                session.warn_error(&failed);
                continue;
            }
            if let Some(rules) = &rules {
                let row = foreign_key::Row::changed(locked.key(i), old, &new);
                if plan.ignore {
                    let done = Box::pin(foreign_key::apply(cluster, session, table, rules, &[row])).await?;
                    match done {
                        foreign_key::Outcome::Done => changed += 1,
                        foreign_key::Outcome::Refused { error, .. } => session.warn_error(&error),
                    }
                } else {
                    changed += 1;
                    rows.push(row);
                }
                continue;
            }
            if plan.ignore {
                changed += u64::from(change_or_warn(cluster, session, s, table, locked.key(i), old, &new).await?);
                continue;
            }
            changed += 1;
            changing.push(i);
            may_wait &= key::same_columns(schema.layout(), &schema.primary_key, old, &new)
                && session.own.may_wait(schema, old, Some(&new));
            push_change(s, schema, locked.key(i), old, &new)?;
            while s.images.len() < s.ops.len() {
                s.images.push(&new); // two operations when the primary key changes
            }
        }
        s.locked = locked;
        if may_wait {
            locked_rows::change(session, s, schema, &s.locked, &changing);
            return Ok(updated(session, matched, changed));
        }
        if let Some(rules) = rules.as_deref().filter(|_| !rows.is_empty()) {
            Box::pin(apply_all(cluster, session, table, rules, &rows)).await?;
        }
        send_changes(cluster, session, s, table).await?;
    }
    session.remember(schema);
    Ok(updated(session, matched, changed))
}

/// Changes rows that foreign keys have a say in; the first refusal is the statement's.
pub async fn apply_all(
    cluster: Cluster<'_>,
    session: &mut Session,
    table: &Rc<crate::catalog::Table>,
    rules: &Rules,
    rows: &[foreign_key::Row],
) -> Done<()> {
    match foreign_key::apply(cluster, session, table, rules, rows).await? {
        foreign_key::Outcome::Done => Ok(()),
        foreign_key::Outcome::Refused { error, .. } => Err(error.into()),
    }
}

/// UPDATE IGNORE of one row: a duplicate leaves it alone, with a warning. Returns whether it was changed.
pub async fn change_or_warn(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    table: &Table,
    key: &[u8],
    old: &[u8],
    new: &[u8],
) -> Done<bool> {
    s.ops.clear();
    push_change(s, &table.schema, key, old, new)?;
    let savepoint = next_savepoint(session);
    let sent = execute(cluster, session, &s.ops, &mut s.results, savepoint, false).await;
    s.ops.clear();
    match sent {
        Err(Fail::Client(e)) if e.code == ErrorCode::DuplicateKey && session.transaction.is_some() => {
            rollback_to(session, savepoint).await?;
            session.warn_error(&duplicate(&session.env, table, e.index, Some(new)));
            Ok(false)
        }
        other => other.map(|()| true),
    }
}

/// Sends `s.ops`; `s.images` has the new row of each.
pub async fn send_changes(cluster: Cluster<'_>, session: &mut Session, s: &mut Scratch, table: &Table) -> Done<()> {
    if s.ops.is_empty() {
        return Ok(());
    }
    let savepoint = next_savepoint(session);
    match execute(cluster, session, &s.ops, &mut s.results, savepoint, false).await {
        Err(Fail::Client(e)) if e.code == ErrorCode::DuplicateKey => {
            Err(duplicate(&session.env, table, e.index, s.images.get(e.op as usize)).into())
        }
        other => other,
    }
}

/// Adds the operations that turn `old` into `new`: an update, or delete and insert when the primary key changes.
pub fn push_change(s: &mut Scratch, schema: &TableSchema, key: &[u8], old: &[u8], new: &[u8]) -> Result<(), ErrorCode> {
    if key::same_columns(schema.layout(), &schema.primary_key, old, new) {
        s.program.clear();
        for column in 0..schema.columns.len() as u16 {
            if key::same_columns(schema.layout(), &[column], old, new) || schema.primary_key.contains(&column) {
                continue;
            }
            if schema.layout().is_null(new, column) {
                update::push_set_null(&mut s.program, column);
            } else {
                update::push_set(&mut s.program, column, schema.layout().raw(new, column));
            }
        }
        return s.ops.push(schema, OpKind::Update, 0, key, &s.program);
    }
    s.key.clear();
    key::encode_from_row(schema, &schema.primary_key, new, &mut s.key)?;
    if s.key == key {
        // The same key in other letters: the row is replaced under it.
        return s.ops.push(schema, OpKind::Write, 0, key, new);
    }
    s.ops.push(schema, OpKind::Delete, 0, key, &[])?;
    s.ops.push(schema, OpKind::Insert, 0, &s.key, new)
}

/// What is wrong with a row that goes through a view.
pub fn check_row(
    session: &Session,
    schema: &TableSchema,
    check: Option<&RowCheck>,
    row: &[u8],
    params: &[Datum<'_>],
) -> errors::Result<Option<SqlError>> {
    let Some(check) = check else { return Ok(None) };
    let cx = context(session, schema, row, params);
    let holds = eval::truth(&cx, &check.condition.eval(&cx)?) == Some(true);
    Ok((!holds).then(|| errors::check_failed(&check.database, &check.view)))
}

/// What is wrong with a row that is written: for the view that it goes through, or for a constraint of its table.
pub fn refused_row(
    session: &Session,
    table: &Table,
    check: Option<&RowCheck>,
    row: &[u8],
    params: &[Datum<'_>],
    strict: bool,
) -> errors::Result<Option<SqlError>> {
    match check_row(session, &table.schema, check, row, params)? {
        Some(failed) => Ok(Some(failed)),
        None => rules::violated(session, table, row, strict),
    }
}

/// How values are stored that a column refuses.
pub struct Storing<'r> {
    /// Of the row, from 1, for messages.
    pub row: usize,
    /// As well as they can be.
    pub lenient: bool,
    /// A column that is NOT NULL takes its implicit default in place of NULL.
    pub takes_null: bool,
    /// NULL stays where it may not be: BEFORE triggers have their say first.
    pub keeps_null: bool,
    /// What is to be warned of.
    pub refused: &'r mut Vec<SqlError>,
}

/// The row `old` after the assignments, `new_row` being what `VALUES(column)` means; `None` when it stays as it is. Where there
/// is a place for what strict mode refuses, values are stored as well as they can be.
pub fn updated_row(
    session: &Session,
    table: &Table,
    (old, new_row): (&[u8], Option<&[u8]>),
    assignments: &[(u16, Expr)],
    params: &[Datum<'_>],
    mut storing: Storing<'_>,
) -> Done<Option<Vec<u8>>> {
    let schema = &table.schema;
    let mut current = old.to_vec();
    for (column, e) in assignments {
        current = with_column(session, schema, &current, (*column, e), new_row, params, &mut storing)?;
    }
    if schema.layout().is_same(&current, old) {
        return Ok(None);
    }
    for (i, c) in schema.columns.iter().enumerate() {
        let column = i as u16;
        if c.on_update_now && !assignments.iter().any(|(a, _)| *a == column) {
            let now = Datum::DateTime(apus_types::time::pack_datetime(session.env.zone().civil(session.env.now())), 6);
            let truncated = truncate_now(now, c.ty);
            let value = assign::assign(c, truncated, assigning(session, schema, storing.row))?;
            current = replace(schema, &current, column, &value)?;
        }
    }
    rules::recompute(session, table, current, storing).map(Some)
}

fn assigning<'a>(session: &'a Session, schema: &'a TableSchema, row: usize) -> Assign<'a> {
    let env = &session.env;
    Assign::of(env, &schema.name, row, env.variables.strict)
}

/// The row with the value of an expression over it in a column.
pub fn with_column(
    session: &Session,
    schema: &TableSchema,
    current: &[u8],
    (column, e): (u16, &Expr),
    new_row: Option<&[u8]>,
    params: &[Datum<'_>],
    storing: &mut Storing<'_>,
) -> Done<Vec<u8>> {
    // What a column has already is asked nothing, though `sql_mode` would refuse it now.
    if matches!(e, Expr::Column(own) if own.slot == column) {
        return Ok(current.to_vec());
    }
    let (c, assign) = (&schema.columns[usize::from(column)], assigning(session, schema, storing.row));
    let mut cx = context(session, schema, current, params);
    cx.new_row = new_row.map(|row| (schema.layout(), row));
    let value = e.eval(&cx)?;
    if !storing.lenient
        && let Some(fault) = session.env.fault()
    {
        return Err(fault.into());
    }
    let value = match storing.lenient {
        false => assign::assign(c, value, assign)?,
        true => assign::assign_or_warn(c, value, assign, storing.refused)?,
    };
    let value = match value.is_null() && !c.nullable {
        false => value,
        true if storing.keeps_null => value,
        true if !storing.takes_null => return Err(errors::null_not_allowed(&c.name).into()),
        true => {
            storing.refused.push(errors::null_not_allowed(&c.name));
            match enum_set::in_place_of_null(c.ty) {
                Some(value) => value,
                None => assign::assign_leniently(c, assign::implicit_default(c.ty), assign)?,
            }
        }
    };
    Ok(replace(schema, current, column, &value)?)
}

/// The current time cut (not rounded) to a column's digits.
pub fn truncate_now<'a>(now: Datum<'a>, ty: apus_types::ColumnType) -> Datum<'a> {
    let decimals = crate::value::datum::decimals_of(ty).min(6);
    match now {
        Datum::DateTime(packed, _) => {
            let mut c = apus_types::time::unpack_datetime(packed);
            let unit = 10u32.pow(u32::from(6 - decimals));
            c.micros -= c.micros % unit;
            Datum::DateTime(apus_types::time::pack_datetime(c), decimals)
        }
        other => other,
    }
}
