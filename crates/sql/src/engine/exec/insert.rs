//! INSERT and REPLACE.

use std::sync::OnceLock;

use apus_client::ReadBatch;
use apus_signal::tc::{ALLOW_DUPLICATE, ALLOW_MISSING, OpKind, OpStatus};
use apus_types::{Epoch, ErrorCode, RowLayout, TableSchema, Value, key, schema};

use super::{Changed, Cluster, Info, change, duplicate, execute, lock, next_savepoint, read, reader};
use crate::engine::{
    catalog::Table,
    convert::{self, Assign},
    errors,
    expr::{Context, Datum, Expr, recycle},
    keys::{self, Strings},
    plan::{
        Insert,
        dml::{OnDuplicate, Source},
    },
    session::{Done, Fail, Scratch, Session},
};

/// Rows sent per batch.
const INSERT_BATCH: usize = 1000;
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
            collected = read::collect(cluster, session, s, select, params).await?;
            count = collected.len();
            let strict = session.env.variables.strict && plan.on_duplicate != OnDuplicate::Ignore;
            if let Some(fault) = session.env.fault().filter(|_| strict) {
                return Err(fault.into());
            }
        }
    }
    s.images.clear();
    s.refused.clear();
    keys::trim(&mut s.generated);
    let mut highest_explicit = None;
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
        let row = one_row(cluster, session, s, plan, of_row, given, (i + 1, count), highest_explicit).await?;
        for e in s.refused.drain(..) {
            session.warn_error(&e);
        }
        s.generated.push(row.generated);
        highest_explicit = highest_explicit.max(row.explicit);
        if s.images.byte_len() > INSERT_BYTES_MAX {
            return Err(errors::too_many_locks().into());
        }
    }
    if let (Some(column), Some(value), Some(counters)) =
        (table.schema.auto_increment_column(), highest_explicit, cluster.counters)
    {
        cluster.auto_increment.raise(cluster.client, counters, &table.schema, column, value).await?;
    }
    let Outcome { affected, generated, updated } = match plan.on_duplicate {
        OnDuplicate::Refuse => plain(cluster, session, s, table).await?,
        _ => row_by_row(cluster, session, s, plan, params).await?,
    };
    session.remember(&table.schema);
    if generated != 0 {
        session.env.last_insert_id.set(generated);
    }
    let info = if count > 1 {
        Info::Inserted { records: count as u64, duplicates: affected.abs_diff(count as u64) }
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

/// What became of the rows.
#[derive(Default)]
struct Outcome {
    affected: u64,
    /// The first generated value of AUTO_INCREMENT that was inserted, or 0.
    generated: u64,
    /// The value in the row that ON DUPLICATE KEY UPDATE changed last, or 0.
    updated: u64,
}

enum Given<'a> {
    Default,
    Expr(&'a Expr),
    Value(Datum<'a>),
}

struct NewRow {
    /// Value of AUTO_INCREMENT, if it was generated; else 0.
    generated: u64,
    explicit: Option<u64>,
}

/// Makes one row, number `row` of `count`, and appends it to `s.images`.
#[allow(clippy::too_many_arguments)]
async fn one_row<'a>(
    cluster: Cluster<'_>,
    session: &'a Session,
    s: &mut Scratch,
    plan: &'a Insert,
    params: &'a [Datum<'a>],
    given: impl Fn(usize) -> Given<'a>,
    (row, count): (usize, usize),
    highest_explicit: Option<u64>,
) -> Done<NewRow> {
    let schema = &plan.table.schema;
    let assign = Assign { row, strict: session.env.variables.strict, zone: session.env.zone() };
    let cx = Context { layout: no_layout(), row: &[], new_row: None, params, aggregates: &[], env: &session.env };
    let (mut generated, mut explicit) = (0, None);
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
                    s.refused.push(convert::warning_of(e, c, assign.row));
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
                let counters = cluster.counters.ok_or_else(|| errors::internal("no counters of AUTO_INCREMENT"))?;
                if let Some(value) = highest_explicit {
                    // Of an earlier row: what is generated now must lie above.
                    cluster.auto_increment.raise(cluster.client, counters, schema, i as u16, value).await?;
                }
                let n = cluster.auto_increment.next(cluster.client, counters, schema, i as u16, left).await?;
                if !c.name.starts_with('#') {
                    generated = n;
                }
                values.push(convert::assign(c, Datum::UInt(n), assign)?);
                continue;
            }
            explicit = value.number().and_then(|n| u64::try_from(n.to_i128()).ok());
        }
        if value.is_null() && !c.nullable {
            let e = errors::null_not_allowed(&c.name);
            let many = matches!(&plan.source, Source::Values(_)) && count > 1;
            if plan.on_duplicate != OnDuplicate::Ignore && (assign.strict || !many) {
                return Err(e.into());
            }
            s.refused.push(e);
            values.push(convert::assign(c, convert::implicit_default(c.ty), assign)?);
            continue;
        }
        values.push(value);
    }
    encode_row(schema, &values, &mut s.images)?;
    s.cells = recycle(values);
    Ok(NewRow { generated, explicit })
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
async fn plain(cluster: Cluster<'_>, session: &mut Session, s: &mut Scratch, table: &Table) -> Done<Outcome> {
    let schema = &table.schema;
    let count = s.images.len();
    let own = !session.in_transaction() && session.transaction.is_none() && count <= INSERT_BATCH;
    let savepoint = next_savepoint(session);
    for first in (0..count).step_by(INSERT_BATCH) {
        s.ops.clear();
        for i in first..count.min(first + INSERT_BATCH) {
            let image = s.images.get(i).unwrap_or(&[]);
            s.key.clear();
            key::encode_from_row(schema, &schema.primary_key, image, &mut s.key)?;
            s.ops.push(schema, OpKind::Insert, 0, &s.key, image)?;
        }
        let sent = if own {
            let wait = session.env.variables.lock_wait_ms;
            cluster.client.run_autocommit(&s.ops, wait, &mut s.results).await.map(|_| ()).map_err(Fail::Client)
        } else {
            execute(cluster, session, &s.ops, &mut s.results, savepoint, false).await
        };
        match sent {
            Err(Fail::Client(e)) if e.code == ErrorCode::DuplicateKey => {
                return Err(duplicate(table, e.index, s.images.get(first + e.op as usize)).into());
            }
            other => other?,
        }
    }
    let generated = s.generated.iter().copied().find(|&n| n != 0).unwrap_or(0);
    Ok(Outcome { affected: count as u64, generated, updated: 0 })
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
        loop {
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
            if plan.on_duplicate == OnDuplicate::Ignore {
                let e = duplicate(table, conflict, Some(image));
                session.warn_error(&e);
                break;
            }
            let Some(key) = conflicting_key(cluster, session, s, table, conflict, image).await? else { continue };
            let Some(old) = lock::lock_row(cluster, session, s, table, &key).await? else { continue };
            s.ops.clear();
            if plan.on_duplicate == OnDuplicate::Replace {
                s.ops.push(schema, OpKind::Delete, ALLOW_MISSING, &key, &[])?;
                let savepoint = next_savepoint(session);
                execute(cluster, session, &s.ops, &mut s.results, savepoint, false).await?;
                outcome.affected += 1;
                continue;
            }
            let rows = (&old[..], Some(image));
            let new = change::updated_row(session, schema, rows, &plan.assignments, params, (i + 1, None))?;
            match new {
                None => outcome.affected += u64::from(session.found_rows),
                Some(new) => {
                    change::push_change(s, schema, &key, &old, &new)?;
                    let savepoint = next_savepoint(session);
                    match execute(cluster, session, &s.ops, &mut s.results, savepoint, false).await {
                        Err(Fail::Client(e)) if e.code == ErrorCode::DuplicateKey => {
                            return Err(duplicate(table, e.index, Some(&new)).into());
                        }
                        other => other?,
                    }
                    outcome.affected += 2;
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

/// Primary key of the row that has the same key in an index.
async fn conflicting_key(
    cluster: Cluster<'_>,
    session: &Session,
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
    let trans = reader(session, schema);
    let (table, schema_version) = (hidden.id, hidden.version);
    let request = ReadBatch { trans, snapshot: Epoch(0), table, schema_version, columns: None, keys: &s.keys };
    cluster.client.read(&request, &mut s.rows).await?;
    Ok(s.rows.row(0).map(|row| hidden.layout().raw(row, schema::HIDDEN_PK_COLUMN).to_vec()))
}
