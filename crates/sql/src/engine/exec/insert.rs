//! INSERT and REPLACE.

use std::{pin::pin, sync::OnceLock};

use apus_client::ReadBatch;
use apus_signal::tc::{ALLOW_DUPLICATE, ALLOW_MISSING, OpKind, OpStatus};
use apus_types::{ColumnType, Epoch, ErrorCode, RowLayout, TableSchema, Value, key, schema};

use super::{Changed, Cluster, Info, change, duplicate, execute, lock, next_savepoint, query, reader, rollback_to};
use crate::engine::{
    auto_increment::{Refusal, Step},
    catalog::Table,
    convert::{self, Assign},
    errors,
    expr::{Context, Datum, Expr, recycle},
    keys::{self, Strings},
    labels,
    plan::{
        Insert,
        dml::{OnDuplicate, Source},
    },
    session::{Done, Fail, Scratch, Session},
};
use crate::wire::SqlError;

/// Rows sent per batch.
const INSERT_BATCH: usize = 1000;
/// Attempts of a statement whose generated values were taken explicitly through another SQL node.
const TAKEN_ATTEMPTS_MAX: u32 = 4;
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
            collected = query::collect(cluster, session, select, params).await?;
            count = collected.len();
            let strict = session.env.variables.strict && plan.on_duplicate != OnDuplicate::Ignore;
            if let Some(fault) = session.env.fault_if(strict) {
                return Err(fault.into());
            }
        }
    }
    let mut attempt = 0;
    let (Outcome { affected, generated, updated, duplicates }, highest_explicit) = loop {
        attempt += 1;
        let highest_explicit = pin!(make_rows(cluster, session, s, plan, params, repeat, (count, &collected))).await?;
        let sent = match plan.on_duplicate {
            OnDuplicate::Refuse => pin!(plain(cluster, session, s, table)).await?,
            _ => Sent::Done(row_by_row(cluster, session, s, plan, params).await?),
        };
        match sent {
            Sent::Done(outcome) => break (outcome, highest_explicit),
            Sent::Taken(_) if attempt < TAKEN_ATTEMPTS_MAX => {
                if let Some(column) = table.schema.auto_increment_column() {
                    cluster.auto_increment.forget(&table.schema, column);
                }
            }
            Sent::Taken(e) => return Err(e.into()),
        }
    };
    session.remember(&table.schema);
    session.env.variables.forget_insert_id();
    if generated != 0 {
        session.env.last_insert_id.set(generated);
    }
    let info = if count > 1 || matches!(plan.source, Source::Select(_)) {
        let records = if plan.check.is_some() { s.images.len() } else { count };
        Info::Inserted { records: records as u64, duplicates }
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

/// Makes the rows of the statement in `s.images`; returns the highest explicit value of AUTO_INCREMENT.
async fn make_rows(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    plan: &Insert,
    params: &[Datum<'_>],
    repeat: usize,
    (count, collected): (usize, &[Vec<Datum<'static>>]),
) -> Done<Option<u64>> {
    let table = &plan.table;
    s.images.clear();
    s.refused.clear();
    keys::trim(&mut s.generated);
    let mut numbers = Numbers::new(session);
    let mut hidden = Numbers::hidden();
    let per_row = params.len() / repeat.max(1);
    for i in 0..count {
        let of_row = if repeat > 1 { &params[i * per_row..(i + 1) * per_row] } else { params };
        let given = |place: usize| -> Given<'_> {
            match &plan.source {
                Source::Values(rows) => {
                    rows[i % rows.len()].get(place).and_then(Option::as_ref).map_or(Given::Default, Given::Expr)
                }
                Source::Select(_) => Given::Value(collected[i][place].borrowed()),
            }
        };
        let generated =
            pin!(one_row(cluster, session, s, plan, of_row, given, (i + 1, count), (&mut numbers, &mut hidden)))
                .await?;
        for e in s.refused.drain(..) {
            session.warn_error(&e);
        }
        if let Some(failed) = check_made(session, s, plan, of_row)? {
            if plan.on_duplicate != OnDuplicate::Ignore {
                return Err(failed.into());
            }
            session.warn_error(&failed);
            s.images.pop();
            continue;
        }
        s.generated.push(generated);
        if s.images.byte_len() > INSERT_BYTES_MAX {
            return Err(errors::too_many_locks().into());
        }
    }
    if let (Some(column), Some(value)) = (table.schema.auto_increment_column(), numbers.highest()) {
        let counters = cluster.catalog.counters()?;
        cluster.auto_increment.raise(cluster.client, counters, &table.schema, column, value).await?;
    }
    Ok(numbers.explicit)
}

/// What is wrong with the row that was made last.
fn check_made(session: &Session, s: &Scratch, plan: &Insert, params: &[Datum<'_>]) -> errors::Result<Option<SqlError>> {
    let last = s.images.len().checked_sub(1).and_then(|last| s.images.get(last));
    change::check_row(session, &plan.table.schema, plan.check.as_ref(), last.unwrap_or(&[]), params)
}

/// What became of an attempt.
enum Sent {
    Done(Outcome),
    /// A generated value is there already, put there explicitly through another SQL node.
    Taken(SqlError),
}

/// The values of AUTO_INCREMENT of one statement.
struct Numbers {
    /// Reserved for this statement: the next one and how many.
    next: u64,
    left: u64,
    step: Step,
    /// The variable insert_id, until it is used.
    forced: Option<u64>,
    /// The highest explicit value so far, and the highest that insert_id gave.
    explicit: Option<u64>,
    given: Option<u64>,
}

impl Numbers {
    fn new(session: &Session) -> Numbers {
        let variables = &session.env.variables;
        let forced = Some(variables.insert_id).filter(|n| *n != 0);
        Numbers { next: 0, left: 0, step: variables.auto_increment, forced, explicit: None, given: None }
    }
    /// Of the primary key of a table without one.
    fn hidden() -> Numbers {
        Numbers { next: 0, left: 0, step: Step { increment: 1, offset: 1 }, forced: None, explicit: None, given: None }
    }
    /// The counter must be above it.
    fn highest(&self) -> Option<u64> {
        self.explicit.max(self.given)
    }

    /// A value for the next row; `rows` are left, each of which may want one.
    async fn generate(&mut self, cluster: Cluster<'_>, schema: &TableSchema, column: u16, rows: u64) -> Done<u64> {
        let counters = cluster.catalog.counters()?;
        if let Some(first) = self.forced.take() {
            (self.next, self.left) = (first, rows);
            self.given = first.checked_add(self.step.increment.saturating_mul(rows - 1));
        }
        if self.explicit.is_some_and(|explicit| explicit >= self.next) {
            self.left = 0; // what is generated behind an explicit value must lie above it
        }
        if self.left == 0 {
            if let Some(highest) = self.highest() {
                cluster.auto_increment.raise(cluster.client, counters, schema, column, highest).await?;
            }
            let taken = cluster.auto_increment.take(cluster.client, counters, schema, column, rows, self.step).await;
            self.next = taken.map_err(|refusal| match refusal {
                Refusal::Client(e) => Fail::Client(e),
                Refusal::Exhausted => errors::no_auto_increment().into(),
            })?;
            self.left = rows;
        }
        let value = self.next;
        self.next = value.saturating_add(self.step.increment);
        self.left -= 1;
        Ok(value)
    }
}

/// What became of the rows.
#[derive(Default)]
struct Outcome {
    affected: u64,
    /// The first generated value of AUTO_INCREMENT that was inserted, or 0.
    generated: u64,
    /// The value in the row that ON DUPLICATE KEY UPDATE changed last, or 0.
    updated: u64,
    /// Rows that were in the way: left as they were by IGNORE, replaced, changed.
    duplicates: u64,
}

enum Given<'a> {
    Default,
    Expr(&'a Expr),
    Value(Datum<'a>),
}

/// Makes one row, number `row` of `count`, and appends it to `s.images`; returns its value of AUTO_INCREMENT if that was generated,
/// else 0.
#[allow(clippy::too_many_arguments)]
async fn one_row<'a>(
    cluster: Cluster<'_>,
    session: &'a Session,
    s: &mut Scratch,
    plan: &'a Insert,
    params: &'a [Datum<'a>],
    given: impl Fn(usize) -> Given<'a>,
    (row, count): (usize, usize),
    (numbers, hidden): (&mut Numbers, &mut Numbers),
) -> Done<u64> {
    let schema = &plan.table.schema;
    let assign = Assign {
        row,
        table: &schema.name,
        strict: session.env.variables.strict,
        zone: session.env.zone(),
        env: Some(&session.env),
    };
    let cx = Context {
        layout: no_layout(),
        row: &[],
        new_row: None,
        params,
        aggregates: &[],
        given: &[],
        env: &session.env,
    };
    let mut generated = 0;
    let left = (count - row + 1) as u64;
    let lenient = !assign.strict || plan.on_duplicate == OnDuplicate::Ignore;
    let mut values: Vec<Datum<'_>> = recycle(std::mem::take(&mut s.cells));
    for (i, c) in schema.columns.iter().enumerate() {
        let source = plan.places[i].map_or(Given::Default, &given);
        let from_default = matches!(source, Given::Default);
        let value = match source {
            Given::Default if c.auto_increment => Datum::Null,
            Given::Default => match plan.defaults.get(i) {
                Some(Ok(e)) => change::truncate_now(e.eval(&cx)?, c.ty),
                Some(Err(e)) if !lenient => return Err(e.clone().into()),
                Some(Err(e)) => {
                    s.refused.push(e.clone());
                    convert::implicit_default(c.ty)
                }
                None => convert::implicit_default(c.ty),
            },
            Given::Expr(e) => {
                let value = e.eval(&cx)?;
                if !lenient && let Some(fault) = session.env.fault() {
                    return Err(fault.into());
                }
                value
            }
            Given::Value(d) => d,
        };
        // What strict mode would refuse is stored as well as it can be, with a warning.
        let value = if lenient {
            match convert::assign(c, value.clone(), Assign { strict: true, ..assign }) {
                Ok(value) => value,
                Err(e) => {
                    s.refused.extend(convert::warning_of(e, c, &value, assign));
                    convert::assign_leniently(c, value, assign)?
                }
            }
        } else {
            convert::assign(c, value, assign)?
        };
        if c.auto_increment {
            let wanted = match &value {
                Datum::Null => true,
                Datum::Int(0) | Datum::UInt(0) => from_default || !session.env.variables.no_auto_value_on_zero,
                _ => false,
            };
            if wanted {
                let of_column = if c.name.starts_with('#') { &mut *hidden } else { &mut *numbers };
                // As InnoDB: at the end of the type it is tried to insert the greatest value.
                let n = of_column.generate(cluster, schema, i as u16, left).await?.min(greatest(c.ty));
                if !c.name.starts_with('#') {
                    generated = n;
                }
                values.push(convert::assign(c, Datum::UInt(n), assign)?);
                continue;
            }
            let explicit = value.number().and_then(|n| u64::try_from(n.to_i128()).ok());
            numbers.explicit = numbers.explicit.max(explicit);
        }
        if value.is_null() && !c.nullable {
            let e = errors::null_not_allowed(&c.name);
            let many = matches!(&plan.source, Source::Values(_)) && count > 1;
            if plan.on_duplicate != OnDuplicate::Ignore && (assign.strict || !many) {
                return Err(e.into());
            }
            s.refused.push(e);
            values.push(match labels::in_place_of_null(c.ty) {
                Some(value) => value,
                None => convert::assign(c, convert::implicit_default(c.ty), assign)?,
            });
            continue;
        }
        values.push(value);
    }
    encode_row(schema, &values, &mut s.images)?;
    s.cells = recycle(values);
    Ok(generated)
}

/// The greatest value that a column of integers holds.
fn greatest(ty: ColumnType) -> u64 {
    match ty {
        ColumnType::Int { bits, unsigned } => u64::MAX >> (64 - u32::from(bits) + u32::from(!unsigned)),
        _ => u64::MAX,
    }
}

/// Columns whose values are gathered without an allocation.
const COLUMNS_IN_PLACE: usize = 32;

/// Appends the stored form of a row of values.
fn encode_row(schema: &TableSchema, values: &[Datum<'_>], out: &mut Strings) -> Result<(), ErrorCode> {
    let mut in_place = [Value::Null; COLUMNS_IN_PLACE];
    let mut many = Vec::new();
    let stored = match in_place.get_mut(..values.len()) {
        Some(place) => place,
        None => {
            many.resize(values.len(), Value::Null);
            many.as_mut_slice()
        }
    };
    for ((place, value), c) in stored.iter_mut().zip(values).zip(&schema.columns) {
        *place = convert::stored(c.ty, value);
    }
    match schema.layout().encode(stored, out.writer()) {
        Ok(()) => out.end(),
        Err(e) => {
            out.abandon();
            return Err(e);
        }
    }
    Ok(())
}

/// The layout of no columns.
fn no_layout() -> &'static RowLayout {
    static EMPTY: OnceLock<RowLayout> = OnceLock::new();
    EMPTY.get_or_init(|| RowLayout::new([]))
}

/// All of `s.images` or none.
async fn plain(cluster: Cluster<'_>, session: &mut Session, s: &mut Scratch, table: &Table) -> Done<Sent> {
    let schema = &table.schema;
    let count = s.images.len();
    let own = !session.in_transaction() && session.transaction.is_none() && count <= INSERT_BATCH;
    let savepoint = next_savepoint(session);
    for first in (0..count).step_by(INSERT_BATCH) {
        session.env.may_go_on()?;
        s.ops.clear();
        for i in first..count.min(first + INSERT_BATCH) {
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
                let refused = duplicate(table, e.index, s.images.get(row));
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

/// Whether the AUTO_INCREMENT column is part of an index.
fn has_counter(schema: &TableSchema, index: u16) -> bool {
    let columns = schema.index_columns(apus_types::IndexNo(index)).unwrap_or(&[]);
    schema.auto_increment_column().is_some_and(|c| columns.contains(&c))
}

/// IGNORE, REPLACE and ON DUPLICATE KEY UPDATE: each row finds out what is in its way.
async fn row_by_row(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    plan: &Insert,
    params: &[Datum<'_>],
) -> Done<Outcome> {
    let images = std::mem::take(&mut s.images);
    let table = &plan.table;
    let schema = &table.schema;
    let mut outcome = Outcome::default();
    session.transaction.get_or_insert_with(|| cluster.client.begin());
    for (i, image) in images.iter().enumerate() {
        let mut renumbered;
        let mut image = image;
        let mut attempt = 0;
        loop {
            attempt += 1;
            session.env.may_go_on()?;
            s.key.clear();
            key::encode_from_row(schema, &schema.primary_key, image, &mut s.key)?;
            s.ops.clear();
            s.ops.push(schema, OpKind::Insert, ALLOW_DUPLICATE, &s.key, image)?;
            let savepoint = next_savepoint(session);
            let conflict = match execute(cluster, session, &s.ops, &mut s.results, savepoint, false).await {
                Ok(()) if s.results.status(0) == Some(OpStatus::Duplicate) => 0,
                Ok(()) => {
                    outcome.affected += 1;
                    if outcome.generated == 0 {
                        outcome.generated = s.generated[i];
                    }
                    break;
                }
                Err(Fail::Client(e)) if e.code == ErrorCode::DuplicateKey && session.transaction.is_some() => e.index,
                Err(e) => return Err(e),
            };
            session.remember(schema);
            if s.generated[i] != 0 && attempt < TAKEN_ATTEMPTS_MAX && has_counter(schema, conflict) {
                renumbered = renumber(cluster, session, s, table, image, i).await?;
                image = &renumbered;
                continue;
            }
            if plan.on_duplicate == OnDuplicate::Ignore {
                let e = duplicate(table, conflict, Some(image));
                session.warn_error(&e);
                outcome.duplicates += 1;
                break;
            }
            let Some(key) = conflicting_key(cluster, session, s, table, conflict, image).await? else { continue };
            let Some(old) = lock::lock_row(cluster, session, s, table, &key).await? else { continue };
            s.ops.clear();
            if change::check_row(session, schema, plan.within.as_ref(), &old, params)?.is_some() {
                return Err(errors::replaces_outside().into());
            }
            if plan.on_duplicate == OnDuplicate::Replace && schema.layout().is_same(&old, image) {
                outcome.affected += 1;
                break;
            }
            if plan.on_duplicate == OnDuplicate::Replace {
                s.ops.push(schema, OpKind::Delete, ALLOW_MISSING, &key, &[])?;
                let savepoint = next_savepoint(session);
                execute(cluster, session, &s.ops, &mut s.results, savepoint, false).await?;
                outcome.affected += 1;
                outcome.duplicates += 1;
                continue;
            }
            let rows = (&old[..], Some(image));
            let new = change::updated_row(session, schema, rows, &plan.assignments, params, (i + 1, None))?;
            match new {
                None => outcome.affected += u64::from(session.found_rows),
                Some(new) => {
                    if let Some(failed) = change::check_row(session, schema, plan.check.as_ref(), &new, params)? {
                        return Err(failed.into());
                    }
                    change::push_change(s, schema, &key, &old, &new)?;
                    let savepoint = next_savepoint(session);
                    match execute(cluster, session, &s.ops, &mut s.results, savepoint, false).await {
                        Err(Fail::Client(e)) if e.code == ErrorCode::DuplicateKey => {
                            return Err(duplicate(table, e.index, Some(&new)).into());
                        }
                        other => other?,
                    }
                    outcome.affected += 2;
                    outcome.duplicates += 1;
                    outcome.updated =
                        schema.auto_increment_column().map_or(0, |c| match schema.layout().value(&new, c) {
                            Value::UInt(n) => n,
                            Value::Int(n) => u64::try_from(n).unwrap_or(0),
                            _ => 0,
                        });
                }
            }
            break;
        }
    }
    s.images = images;
    Ok(outcome)
}

/// Row `i` with another generated value, above all explicit ones.
async fn renumber(
    cluster: Cluster<'_>,
    session: &Session,
    s: &mut Scratch,
    table: &Table,
    image: &[u8],
    i: usize,
) -> Done<Vec<u8>> {
    let schema = &table.schema;
    let column = schema.auto_increment_column().ok_or_else(|| errors::internal("no AUTO_INCREMENT column"))?;
    cluster.auto_increment.forget(schema, column);
    let mut numbers = Numbers { forced: None, ..Numbers::new(session) };
    let c = &schema.columns[usize::from(column)];
    let n = numbers.generate(cluster, schema, column, 1).await?.min(greatest(c.ty));
    s.generated[i] = n;
    let assign =
        Assign { row: i + 1, table: &schema.name, strict: true, zone: session.env.zone(), env: Some(&session.env) };
    Ok(change::replace(schema, image, column, &convert::assign(c, Datum::UInt(n), assign)?)?)
}

/// Primary key of the row that has the same key in an index.
async fn conflicting_key(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    table: &Table,
    index: u16,
    image: &[u8],
) -> Done<Option<Vec<u8>>> {
    let schema = &table.schema;
    if index == 0 {
        return Ok(Some(s.key.clone()));
    }
    let position = schema.indexes.iter().position(|i| i.no.0 == index);
    let hidden = position.and_then(|p| table.hidden.get(p)).and_then(|h| h.as_ref());
    let (Some(position), Some(hidden)) = (position, hidden) else {
        return Err(errors::internal("unknown unique index").into());
    };
    let mut key = Vec::new();
    key::encode_from_row(schema, &schema.indexes[position].columns, image, &mut key)?;
    s.keys.clear();
    s.keys.push(hidden, &key)?;
    let trans = reader(session, schema).await?;
    let (table, schema_version) = (hidden.id, hidden.version);
    let request = ReadBatch { trans, snapshot: Epoch(0), table, schema_version, columns: None, keys: &s.keys };
    cluster.client.read(&request, &mut s.rows).await?;
    Ok(s.rows.row(0).map(|row| hidden.layout().raw(row, schema::HIDDEN_PK_COLUMN).to_vec()))
}
