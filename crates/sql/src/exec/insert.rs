//! INSERT and REPLACE.

use std::{ops::Range, pin::pin, rc::Rc};

use apus_signal::tc::OpKind;
use apus_types::{ErrorCode, key};

use super::{
    Changed, Cluster, Info, change,
    conflict::{self, Outcome, TAKEN_ATTEMPTS_MAX, has_counter},
    duplicate, execute, foreign_key,
    new_row::{Given, Made, Numbers, triggered_row},
    next_savepoint, query, triggered,
};
use crate::{
    catalog::{Table, foreign_key::rules},
    errors,
    expr::without_row,
    plan::{
        Insert,
        dml::insert::{OnDuplicate, Source},
    },
    program::{
        function::calls::unanswered,
        trigger::{Event, fire::Rows},
    },
    session::{Done, Fail, Session, buffers::Scratch, rollback_to},
    spill::byte_strings,
    value::datum::Datum,
    wire::{SqlError, characters::kept},
};

/// Rows sent per batch.
pub const INSERT_BATCH: usize = 1000;
/// Memory of the rows of one INSERT, in bytes.
pub const INSERT_BYTES_MAX: usize = 256 << 20;

/// `repeat`: the plan's one row is made so often, each time with its share of the parameters.
pub async fn insert(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    plan: &Insert,
    params: &[Datum<'_>],
    repeat: usize,
) -> Done<Changed> {
    let done = pin!(inserted(cluster, session, s, plan, params, repeat)).await;
    s.warned.tell(session);
    done
}

async fn inserted(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    plan: &Insert,
    params: &[Datum<'_>],
    repeat: usize,
) -> Done<Changed> {
    let table = &plan.table;
    let collected;
    let count;
    match &plan.source {
        Source::Values(rows) => {
            collected = Vec::new();
            count = rows.len() * repeat;
        }
        Source::Select(select) => {
            session.env.changes_rows.set(true);
            let mut rows = Box::pin(query::collect(cluster, session, select, params)).await?;
            for row in rows.iter_mut().filter(|_| !plan.encoded.is_empty()) {
                session.env.breathe(1).await?;
                for &(at, charset) in &plan.encoded {
                    if let Datum::Text(text) = &row[at] {
                        row[at] = Datum::Bytes(kept(charset, text).into_owned().into());
                    }
                }
            }
            collected = rows;
            count = collected.len();
            let strict = session.env.variables.strict && plan.on_duplicate != OnDuplicate::Ignore;
            if let Some(fault) = session.env.fault_if(strict) {
                return Err(fault.into());
            }
        }
    }
    let mut making = Making { plan, params, repeat, count, collected: &collected, numbers: Numbers::new(session) };
    if !plan.names.functions.is_empty() {
        answer_first(session, &making)?;
    }
    let one_by_one = triggered::is_one_by_one(plan);
    let (mut outcome, mut records, mut next) = (Outcome::default(), 0, 0);
    loop {
        let end = if one_by_one { count.min(next + 1) } else { count };
        outcome.add(&pin!(rows(cluster, session, s, &mut making, next..end)).await?);
        records += s.images.len();
        next = end;
        if next >= count {
            break;
        }
        s.warned.tell(session);
    }
    let Outcome { affected, generated, updated, duplicates, refused } = outcome;
    let highest_explicit = making.numbers.explicit;
    session.remember(&table.schema);
    session.env.variables.forget_insert_id();
    if generated != 0 {
        session.env.last_insert_id.set(generated);
    }
    let info = if count > 1 || matches!(plan.source, Source::Select(_)) && !plan.of_values {
        Info::Inserted { records: records as u64 - refused, duplicates }
    } else {
        Info::None
    };
    let last_insert_id = match (generated, updated) {
        (0, 0) => highest_explicit.unwrap_or(0),
        (0, updated) => updated,
        (generated, _) => generated,
    };
    Ok(Changed { affected, last_insert_id, info })
}

/// Where the rows of a statement come from.
struct Making<'m> {
    plan: &'m Insert,
    params: &'m [Datum<'m>],
    repeat: usize,
    count: usize,
    collected: &'m [Vec<Datum<'static>>],
    numbers: Numbers,
}

impl<'m> Making<'m> {
    /// Of a row.
    fn params_of(&self, row: usize) -> &'m [Datum<'m>] {
        let per_row = self.params.len() / self.repeat.max(1);
        if self.repeat > 1 { &self.params[row * per_row..(row + 1) * per_row] } else { self.params }
    }
}

/// Makes and writes some of the rows.
async fn rows(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    making: &mut Making<'_>,
    rows: Range<usize>,
) -> Done<Outcome> {
    let (plan, table) = (making.plan, &making.plan.table);
    let before = session.savepoint;
    let calls = session.env.stored.borrow().mark();
    let mut attempt = 0;
    loop {
        attempt += 1;
        pin!(make_rows(cluster, session, s, making, rows.clone())).await?;
        let sent = match plan.on_duplicate {
            OnDuplicate::Refuse if refers(cluster, session, table) => {
                Box::pin(referring(cluster, session, s, table)).await?
            }
            OnDuplicate::Refuse => pin!(plain(cluster, session, s, table)).await?,
            _ => return pin!(conflict::insert_rows(cluster, session, s, plan, making.params)).await,
        };
        match sent {
            Sent::Done(outcome) => {
                if table.triggers().is_some_and(|triggers| triggers.has(Event::Insert)) {
                    Box::pin(fire_after(cluster, session, s, table)).await?;
                }
                return Ok(outcome);
            }
            Sent::Taken(_) if attempt < TAKEN_ATTEMPTS_MAX => {
                // What triggers have done for the rows goes with them.
                if session.transaction.is_some() && session.savepoint > before {
                    rollback_to(session, before + 1).await?;
                }
                if let Some(column) = table.schema.auto_increment_column() {
                    cluster.auto_increment.forget(&table.schema, column);
                }
                session.env.stored.borrow_mut().go_back(&calls);
                making.numbers.begin_again();
            }
            Sent::Taken(e) => return Err(e.into()),
        }
    }
}

/// Puts the rows of `s.images` into the table, as a part of a transaction that the caller ends. A generated value that is there already refuses them.
pub async fn store_made(cluster: Cluster<'_>, session: &mut Session, s: &mut Scratch, plan: &Insert) -> Done<Outcome> {
    let table = &plan.table;
    session.transaction.get_or_insert_with(|| cluster.client.begin());
    let sent = match refers(cluster, session, table) {
        true => Box::pin(referring(cluster, session, s, table)).await?,
        false => pin!(plain(cluster, session, s, table)).await?,
    };
    let outcome = match sent {
        Sent::Done(outcome) => outcome,
        Sent::Taken(e) => return Err(e.into()),
    };
    if table.triggers().is_some_and(|triggers| triggers.has(Event::Insert)) {
        Box::pin(fire_after(cluster, session, s, table)).await?;
    }
    Ok(outcome)
}

/// Rows that were written have their AFTER triggers.
async fn fire_after(cluster: Cluster<'_>, session: &mut Session, s: &mut Scratch, table: &Table) -> Done<()> {
    session.remember(&table.schema);
    let images = std::mem::take(&mut s.images);
    for image in images.iter() {
        let rows = Rows { old: None, new: Some(image) };
        cluster.engine.fire_after(session, table, Event::Insert, rows).await?;
    }
    s.images = images;
    Ok(())
}

/// Asks for the values of stored functions before anything is generated for their rows.
fn answer_first(session: &Session, making: &Making<'_>) -> Done<()> {
    if let Source::Values(list) = &making.plan.source {
        for i in 0..making.count {
            let cx = without_row(making.params_of(i), &session.env);
            list[i % list.len()].iter().flatten().for_each(|e| _ = e.eval(&cx));
        }
        session.env.forget_notes();
    }
    if session.env.is_wanting() {
        return Err(unanswered().into());
    }
    session.env.stored.borrow_mut().begin_run();
    Ok(())
}

/// Makes rows of the statement in `s.images`.
async fn make_rows(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    making: &mut Making<'_>,
    rows: Range<usize>,
) -> Done<()> {
    let (plan, table) = (making.plan, &making.plan.table);
    s.images.clear();
    s.refused.clear();
    byte_strings::trim(&mut s.generated);
    byte_strings::trim(&mut s.row_numbers);
    s.warned.clear();
    let (count, collected) = (making.count, making.collected);
    let mut hidden = Numbers::hidden();
    for i in rows {
        session.env.breathe(1).await?;
        let of_row = making.params_of(i);
        let numbers = &mut making.numbers;
        let given = |column: usize| -> Given<'_> {
            let Some(place) = plan.places[column] else { return Given::Default };
            match &plan.source {
                Source::Values(rows) => {
                    rows[i % rows.len()].get(place).and_then(Option::as_ref).map_or(Given::Default, Given::Expr)
                }
                Source::Select(_) => Given::Value(collected[i][place].borrowed()),
            }
        };
        let made =
            pin!(triggered_row(cluster, session, s, plan, of_row, given, (i + 1, count), (numbers, &mut hidden)))
                .await?;
        let Made::Row(generated) = made else { continue };
        s.refused.drain(..).for_each(|e| s.warned.push((i + 1, 0), e));
        if let Some(failed) = check_made(session, s, plan, of_row)? {
            if plan.on_duplicate != OnDuplicate::Ignore {
                return Err(failed.into());
            }
            session.env.take_notes().into_iter().for_each(|e| s.warned.push((i + 1, 0), e));
            s.warned.push((i + 1, 0), failed);
            s.images.pop();
            continue;
        }
        s.generated.push(generated);
        s.row_numbers.push(i + 1);
        if s.images.byte_len() > INSERT_BYTES_MAX {
            return Err(errors::too_many_locks().into());
        }
    }
    if let (Some(column), Some(value)) = (table.schema.auto_increment_column(), making.numbers.highest()) {
        let counters = cluster.catalog.counters()?;
        cluster.auto_increment.raise(cluster.client, counters, &table.schema, column, value).await?;
    }
    Ok(())
}

/// What is wrong with the row that was made last.
pub fn check_made(
    session: &Session,
    s: &Scratch,
    plan: &Insert,
    params: &[Datum<'_>],
) -> errors::Result<Option<SqlError>> {
    let last = s.images.len().checked_sub(1).and_then(|last| s.images.get(last));
    let strict = session.env.variables.strict && plan.on_duplicate != OnDuplicate::Ignore;
    change::refused_row(session, &plan.table, plan.check.as_ref(), last.unwrap_or(&[]), params, strict)
}

/// What became of an attempt.
enum Sent {
    Done(Outcome),
    /// A generated value is there already, put there explicitly through another SQL node.
    Taken(SqlError),
}

/// New rows of the table have to refer to something.
fn refers(cluster: Cluster<'_>, session: &Session, table: &Table) -> bool {
    let rules = rules(session, cluster.catalog, &table.schema);
    rules.is_some_and(|rules| !rules.parents.is_empty())
}

/// As [`plain`], of a table whose rows refer to others.
async fn referring(cluster: Cluster<'_>, session: &mut Session, s: &mut Scratch, table: &Rc<Table>) -> Done<Sent> {
    let schema = &table.schema;
    let Some(rules) = rules(session, cluster.catalog, schema) else {
        return Err(errors::internal("foreign keys vanished").into());
    };
    let before = session.savepoint;
    for first in (0..s.images.len()).step_by(INSERT_BATCH) {
        let images = (first..s.images.len().min(first + INSERT_BATCH)).filter_map(|i| s.images.get(i));
        let mut rows = Vec::new();
        for image in images {
            rows.push(foreign_key::Row::made(&foreign_key::primary_key(table, image)?, image));
        }
        let done = pin!(foreign_key::apply(cluster, session, table, &rules, &rows)).await?;
        let foreign_key::Outcome::Refused { row, error, taken } = done else { continue };
        let is_generated = s.generated.get(first + row).is_some_and(|n| *n != 0);
        if !is_generated || !taken.is_some_and(|index| has_counter(schema, index)) {
            return Err(error.into());
        }
        rollback_to(session, before + 1).await?;
        return Ok(Sent::Taken(error));
    }
    let generated = s.generated.iter().copied().find(|&n| n != 0).unwrap_or(0);
    Ok(Sent::Done(Outcome { affected: s.images.len() as u64, generated, ..Outcome::default() }))
}

/// All of `s.images` or none.
async fn plain(cluster: Cluster<'_>, session: &mut Session, s: &mut Scratch, table: &Table) -> Done<Sent> {
    let schema = &table.schema;
    let count = s.images.len();
    let own = !session.in_transaction()
        && session.transaction.is_none()
        && count <= INSERT_BATCH
        && table.triggers().is_none_or(|triggers| !triggers.has(Event::Insert));
    let savepoint = next_savepoint(session);
    for first in (0..count).step_by(INSERT_BATCH) {
        session.env.may_go_on()?;
        s.ops.clear();
        for i in first..count.min(first + INSERT_BATCH) {
            session.env.breathe(1).await?;
            let image = s.images.get(i).unwrap_or(&[]);
            s.key.clear();
            key::encode_from_row(schema, &schema.primary_key, image, &mut s.key)?;
            s.ops.push(schema, OpKind::Insert, 0, &s.key, image)?;
        }
        let sent = if own {
            pin!(change::run_alone(cluster, session, s)).await
        } else {
            pin!(execute(cluster, session, &s.ops, &mut s.results, savepoint, false)).await
        };
        match sent {
            Err(Fail::Client(e)) if e.code == ErrorCode::DuplicateKey => {
                let row = first + e.op as usize;
                let refused = duplicate(&session.env, table, e.index, s.images.get(row));
                let is_generated = s.generated.get(row).is_some_and(|n| *n != 0) && has_counter(schema, e.index);
                if !is_generated || !own && (e.aborted || session.transaction.is_none()) {
                    return Err(refused.into());
                }
                if !own {
                    rollback_to(session, savepoint).await?;
                }
                return Ok(Sent::Taken(refused));
            }
            other => other?,
        }
    }
    let generated = s.generated.iter().copied().find(|&n| n != 0).unwrap_or(0);
    Ok(Sent::Done(Outcome { affected: count as u64, generated, ..Outcome::default() }))
}
