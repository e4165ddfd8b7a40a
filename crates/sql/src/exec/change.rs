//! UPDATE and DELETE.

use std::{pin::pin, rc::Rc};

use apus_signal::tc::{ALLOW_MISSING, OpKind, OpStatus};
use apus_types::{ErrorCode, TableSchema, Value, key, row::encode_fixed, update};

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
    plan::{Delete, Update, dml::Step, updatable_view::RowCheck},
    program::{function::unanswered, trigger::Event},
    session::{Done, Fail, Scratch, Session, rollback_to},
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

/// Appends the stored form of a value to `out`.
fn raw(ty: apus_types::ColumnType, value: Value<'_>, out: &mut Vec<u8>) -> Result<(), ErrorCode> {
    match (ty.fixed_bytes(), value) {
        (Some(width), value) => {
            let start = out.len();
            out.resize(start + width, 0);
            encode_fixed(ty, &value, &mut out[start..])
        }
        (None, Value::Bytes(bytes)) => {
            out.extend_from_slice(bytes);
            Ok(())
        }
        _ => Err(ErrorCode::ValueOutOfRange),
    }
}

/// One round trip, nothing locked before; `None` when the path could not be bound exactly.
async fn update_by_program(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    plan: &Update,
    steps: &[Step],
    params: &[Datum<'_>],
) -> Done<Option<Changed>> {
    let schema = &plan.table.schema;
    // What a column refuses is warned of by the path that looks at the row.
    let assign =
        Assign { row: 1, table: &schema.name, strict: true, zone: session.env.zone(), env: Some(&session.env) };
    s.program.clear();
    {
        let cx = context(session, schema, &[], params);
        plan.access.path.bind(schema, &cx, &mut s.bound)?;
        lock::refuse_fault(&session.env, session.env.variables.strict)?;
        if s.bound.fallback || !s.bound.exact {
            return Ok(None);
        }
        for step in steps {
            match step {
                Step::Set(column, e) => {
                    let c = &schema.columns[usize::from(*column)];
                    // A value that the column refuses is an error only if there is a row to change.
                    let Ok(value) = e.eval(&cx).and_then(|value| assign::assign(c, value, assign)) else {
                        return Ok(None);
                    };
                    if value.is_null() {
                        if !c.nullable {
                            return Ok(None);
                        }
                        update::push_set_null(&mut s.program, *column);
                        continue;
                    }
                    s.row.clear();
                    raw(c.ty, assign::stored(c.ty, &value), &mut s.row)?;
                    update::push_set(&mut s.program, *column, &s.row);
                }
                // A sum that the column refuses is warned of, too.
                Step::Add(..) if !session.env.variables.strict => return Ok(None),
                Step::Add(column, e, minus) => {
                    let delta = match e.eval(&cx)? {
                        Datum::Int(n) => {
                            if *minus {
                                n.checked_neg()
                            } else {
                                Some(n)
                            }
                        }
                        _ => None, // computed here, on the locked row
                    };
                    let Some(delta) = delta else { return Ok(None) };
                    update::push_add(&mut s.program, *column, delta);
                }
            }
        }
    }
    if session.env.has_notes() {
        return Ok(None); // an error, or a warning, only if there is a row to change
    }
    if s.bound.points.is_empty() {
        return Ok(Some(Changed { info: info(0, 0), ..Changed::default() }));
    }
    s.ops.clear();
    for point in s.bound.points.iter() {
        s.ops.push(schema, OpKind::Update, ALLOW_MISSING, point, &s.program)?;
    }
    let own = if session.own.has_rows() { locked_rows::update(session, s, schema) } else { Ok(None) };
    let sent = match own {
        Ok(Some((matched, changed))) => return Ok(Some(updated(session, matched, changed))),
        Ok(None) => pin!(run(cluster, session, s)).await,
        Err(code) => Err(code.into()),
    };
    if let Err(Fail::Client(e)) = &sent {
        if e.code == ErrorCode::DuplicateKey {
            return Err(duplicate(&plan.table, e.index, None).into());
        }
        if e.code == ErrorCode::ValueOutOfRange {
            let column =
                steps.iter().find_map(|step| if let Step::Add(c, ..) = step { Some(*c) } else { None }).unwrap_or(0);
            return Err(errors::out_of_range(&schema.columns[usize::from(column)].name, 1).into());
        }
    }
    sent?;
    session.remember(schema);
    if s.results.lost() {
        let affected = s.ops.len() as u64;
        return Ok(Some(Changed { affected, info: info(affected, affected), ..Changed::default() }));
    }
    let (mut matched, mut changed) = (0, 0);
    for (status, _) in s.results.iter() {
        matched += u64::from(matches!(status, OpStatus::Done | OpStatus::Unchanged));
        changed += u64::from(status == OpStatus::Done);
    }
    note_missing(cluster, s, schema);
    Ok(Some(updated(session, matched, changed)))
}

/// Keys of `s.bound` without a row, as `s.results` says.
fn note_missing(cluster: Cluster<'_>, s: &Scratch, schema: &TableSchema) {
    if cluster.reads.are_kept() {
        let all = s.bound.points.iter().zip(s.results.iter());
        all.filter(|(_, (status, _))| *status == OpStatus::NotFound)
            .for_each(|(key, _)| cluster.reads.missing(schema, key));
    }
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
            session.warn_error(&duplicate(table, e.index, Some(new)));
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
            Err(duplicate(table, e.index, s.images.get(e.op as usize)).into())
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
    Assign { row, table: &schema.name, strict: env.variables.strict, zone: env.zone(), env: Some(env) }
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

/// Deletes rows that others may refer to; how many.
async fn delete_referred(
    cluster: Cluster<'_>,
    session: &mut Session,
    plan: &Delete,
    rules: &Rules,
    rows: &[foreign_key::Row],
) -> Done<u64> {
    if !plan.ignore {
        return apply_all(cluster, session, &plan.table, rules, rows).await.map(|()| rows.len() as u64);
    }
    let mut affected = 0;
    for row in rows {
        match foreign_key::apply(cluster, session, &plan.table, rules, std::slice::from_ref(row)).await? {
            foreign_key::Outcome::Done => affected += 1,
            foreign_key::Outcome::Refused { error, .. } => session.warn_error(&error),
        }
    }
    Ok(affected)
}

pub async fn delete(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    plan: &Delete,
    params: &[Datum<'_>],
) -> Done<Changed> {
    session.env.changes_rows.set(true);
    let schema = &plan.table.schema;
    lock::refuse_unsafe(&session.env, &plan.access.path, plan.limit.as_ref())?;
    let strict = session.env.variables.strict && !plan.ignore;
    let rules = rules(session, cluster.catalog, schema).filter(|rules| !rules.children.is_empty());
    let is_triggered = plan.table.triggers().is_some_and(|triggers| triggers.has(Event::Delete));
    let by_key = rules.is_none()
        && !is_triggered
        && matches!(&plan.access.path, crate::plan::access::Path::Points { index: None, .. })
        && plan.access.rest.is_none()
        && plan.limit.is_none();
    if by_key {
        let cx = context(session, schema, &[], params);
        plan.access.path.bind(schema, &cx, &mut s.bound)?;
        lock::refuse_fault(&session.env, strict)?;
        if s.bound.exact && !s.bound.fallback {
            if s.bound.points.is_empty() {
                return Ok(Changed::default());
            }
            s.ops.clear();
            for point in s.bound.points.iter() {
                s.ops.push(schema, OpKind::Delete, ALLOW_MISSING, point, &[])?;
            }
            if let Some(affected) = locked_rows::delete(session, s, schema) {
                return Ok(Changed { affected, ..Changed::default() });
            }
            run(cluster, session, s).await?;
            session.remember(schema);
            note_missing(cluster, s, schema);
            let done = s.results.iter().filter(|(status, _)| *status == OpStatus::Done).count();
            let affected = if s.results.lost() { s.ops.len() } else { done } as u64;
            return Ok(Changed { affected, ..Changed::default() });
        }
    }
    let limit = lock::limit(session, schema.layout(), plan.limit.as_ref(), params)?;
    let Delete { table, access, order, in_order, reverse, .. } = plan;
    let wanted = Wanted { table, access, order, in_order: *in_order, reverse: *reverse, lock: None, params, strict };
    let mut hunt = Hunt::new(s, wanted, limit);
    if rules.as_ref().is_some_and(|rules| rules.is_cyclic) {
        hunt.one_by_one();
    }
    let mut affected = 0;
    loop {
        s.locked.clear();
        if !pin!(hunt.next(cluster, session, s)).await? {
            break;
        }
        s.ops.clear();
        if is_triggered {
            let locked = std::mem::take(&mut s.locked);
            let (rules, ignore) = (rules.as_deref(), plan.ignore);
            for i in 0..locked.len() {
                let writing = Writing { table, rules, check: None, params, ignore, lenient: !strict, number: i + 1 };
                let row = (locked.key(i), locked.payload(i));
                let is_gone = Box::pin(triggered::delete(cluster, session, s, &writing, row, None)).await?;
                affected += u64::from(is_gone);
            }
            s.locked = locked;
            continue;
        }
        if let Some(rules) = &rules {
            let gone = |i| foreign_key::Row::gone(s.locked.key(i), s.locked.payload(i));
            let rows: Vec<foreign_key::Row> = (0..s.locked.len()).map(gone).collect();
            affected += Box::pin(delete_referred(cluster, session, plan, rules, &rows)).await?;
            continue;
        }
        for i in 0..s.locked.len() {
            s.ops.push(schema, OpKind::Delete, 0, s.locked.key(i), &[])?;
        }
        affected += s.locked.len() as u64;
        let savepoint = next_savepoint(session);
        execute(cluster, session, &s.ops, &mut s.results, savepoint, false).await?;
    }
    session.remember(schema);
    Ok(Changed { affected, ..Changed::default() })
}
