//! INSERT and REPLACE.

use apus_client::ReadBatch;
use apus_signal::tc::{ALLOW_DUPLICATE, ALLOW_MISSING, OpKind, OpStatus};
use apus_types::{ErrorCode, RowLayout, Value, key, schema};

use super::{Changed, Cluster, change, duplicate, execute, next_savepoint, read, reader};
use crate::engine::{
    catalog::Table,
    convert::{self, Assign},
    errors,
    expr::{Context, Datum, Expr},
    plan::{
        Insert,
        dml::{OnDuplicate, Source, default_expr},
    },
    session::{Done, Fail, Scratch, Session},
};

/// Rows sent per batch.
const INSERT_BATCH: usize = 1000;

pub async fn insert(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    plan: &Insert,
    params: &[Datum<'_>],
) -> Done<Changed> {
    let table = &plan.table;
    let collected;
    let count;
    match &plan.source {
        Source::Values(rows) => {
            collected = Vec::new();
            count = rows.len();
        }
        Source::Select(select) => {
            collected = read::collect(cluster, session, s, select, params).await?;
            count = collected.len();
        }
    }
    let defaults = Defaults::new(table, plan)?;
    let mut images = Vec::with_capacity(count);
    let mut first_generated = 0;
    let mut highest_explicit = None;
    for i in 0..count {
        let given = |place: usize| -> Given<'_> {
            match &plan.source {
                Source::Values(rows) => rows[i].get(place).and_then(Option::as_ref).map_or(Given::Default, Given::Expr),
                Source::Select(_) => Given::Value(collected[i][place].borrowed()),
            }
        };
        let row = one_row(cluster, session, plan, &defaults, params, given, i + 1, (count - i) as u64).await?;
        if first_generated == 0 {
            first_generated = row.generated;
        }
        highest_explicit = highest_explicit.max(row.explicit);
        images.push(row.image);
    }
    if let (Some(column), Some(value), Some(counters)) =
        (table.schema.auto_increment_column(), highest_explicit, cluster.counters)
    {
        cluster.auto_increment.raise(cluster.client, counters, &table.schema, column, value).await?;
    }
    let affected = match plan.on_duplicate {
        OnDuplicate::Refuse => plain(cluster, session, s, table, &images).await?,
        _ => row_by_row(cluster, session, s, plan, &images, params).await?,
    };
    session.remember(&table.schema);
    if first_generated != 0 {
        session.env.last_insert_id.set(first_generated);
    }
    let info = if count > 1 {
        let duplicates = (count as u64).saturating_sub(affected);
        format!("Records: {count}  Duplicates: {duplicates}  Warnings: {}", session.warnings.len())
    } else {
        String::new()
    };
    let last_insert_id = if first_generated != 0 { first_generated } else { highest_explicit.unwrap_or(0) };
    Ok(Changed { affected, last_insert_id, info })
}

enum Given<'a> {
    Default,
    Expr(&'a Expr),
    Value(Datum<'a>),
}

/// Defaults as expressions, looked up once per statement.
struct Defaults(Vec<errors::Result<Expr>>);

impl Defaults {
    fn new(table: &Table, plan: &Insert) -> errors::Result<Defaults> {
        // With every column named and no DEFAULT among the values, none is needed.
        let named = plan.places.iter().all(Option::is_some);
        let plain = matches!(&plan.source, Source::Values(rows) if rows.iter().all(|r| !r.is_empty() && r.iter().all(Option::is_some)));
        if named && plain {
            return Ok(Defaults(Vec::new()));
        }
        Ok(Defaults(table.schema.columns.iter().map(default_expr).collect()))
    }
}

struct NewRow {
    image: Vec<u8>,
    /// Value of AUTO_INCREMENT, if it was generated; else 0.
    generated: u64,
    explicit: Option<u64>,
}

async fn one_row<'a>(
    cluster: Cluster<'_>,
    session: &'a Session,
    plan: &'a Insert,
    defaults: &'a Defaults,
    params: &'a [Datum<'a>],
    given: impl Fn(usize) -> Given<'a>,
    row: usize,
    left: u64,
) -> Done<NewRow> {
    let schema = &plan.table.schema;
    let assign = Assign { row, strict: session.env.variables.strict, zone: session.env.zone() };
    let empty = RowLayout::new([]);
    let cx = Context { layout: &empty, row: &[], new_row: None, params, aggregates: &[], env: &session.env };
    let (mut generated, mut explicit) = (0, None);
    let mut values: Vec<Datum<'_>> = Vec::with_capacity(schema.columns.len());
    for (i, c) in schema.columns.iter().enumerate() {
        let source = plan.places[i].map_or(Given::Default, &given);
        let from_default = matches!(source, Given::Default);
        let value = match source {
            Given::Default if c.auto_increment => Datum::Null,
            Given::Default => match defaults.0.get(i) {
                Some(Ok(e)) => change::truncate_now(e.eval(&cx)?.into_owned(), c.ty),
                Some(Err(e)) if session.env.variables.strict => return Err(e.clone().into()),
                _ => implicit_default(c.ty),
            },
            // An owned copy only where the text was computed.
            Given::Expr(e) => match e.eval(&cx)? {
                d @ (Datum::Text(_) | Datum::Bytes(_)) => d.into_owned(),
                d => d.into_owned(),
            },
            Given::Value(d) => d.into_owned(),
        };
        let value = convert::assign(c, value, assign)?;
        if c.auto_increment {
            let wanted = match &value {
                Datum::Null => true,
                Datum::Int(0) | Datum::UInt(0) => from_default || !session.env.variables.no_auto_value_on_zero,
                _ => false,
            };
            if wanted {
                let counters = cluster.counters.ok_or_else(|| errors::internal("no counters of AUTO_INCREMENT"))?;
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
            return Err(errors::null_not_allowed(&c.name).into());
        }
        values.push(value);
    }
    let stored: Vec<Value<'_>> = values.iter().zip(&schema.columns).map(|(v, c)| convert::stored(c.ty, v)).collect();
    let mut image = Vec::with_capacity(schema.layout().min_bytes() + 64);
    schema.layout().encode(&stored, &mut image)?;
    Ok(NewRow { image, generated, explicit })
}

/// What a NOT NULL column gets without strict mode.
fn implicit_default(ty: apus_types::ColumnType) -> Datum<'static> {
    use apus_types::ColumnType as T;
    match ty {
        T::Date => Datum::Date(0),
        T::DateTime { .. } | T::Timestamp { .. } => Datum::DateTime(0, 0),
        T::Time { .. } => Datum::Time(0, 0),
        _ if ty.fixed_bytes().is_none() => Datum::text(""),
        _ => Datum::Int(0),
    }
}

/// All rows or none.
async fn plain(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    table: &Table,
    images: &[Vec<u8>],
) -> Done<u64> {
    let schema = &table.schema;
    let own = !session.in_transaction() && session.transaction.is_none() && images.len() <= INSERT_BATCH;
    let savepoint = next_savepoint(session);
    for chunk in images.chunks(INSERT_BATCH) {
        s.ops.clear();
        for image in chunk {
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
                return Err(duplicate(table, e.index, chunk.get(e.op as usize).map(Vec::as_slice)).into());
            }
            other => other?,
        }
    }
    Ok(images.len() as u64)
}

/// IGNORE, REPLACE and ON DUPLICATE KEY UPDATE: each row finds out what is in its way.
async fn row_by_row(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    plan: &Insert,
    images: &[Vec<u8>],
    params: &[Datum<'_>],
) -> Done<u64> {
    let table = &plan.table;
    let schema = &table.schema;
    let mut affected = 0;
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
                    affected += 1;
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
            let locked = read::lock_rows(cluster, session, s, table, std::slice::from_ref(&key), None).await?;
            let Some((key, old)) = locked.into_iter().next() else { continue };
            s.ops.clear();
            if plan.on_duplicate == OnDuplicate::Replace {
                s.ops.push(schema, OpKind::Delete, ALLOW_MISSING, &key, &[])?;
                let savepoint = next_savepoint(session);
                execute(cluster, session, &s.ops, &mut s.results, savepoint, false).await?;
                affected += 1;
                continue;
            }
            let new = change::updated_row(session, schema, &old, Some(image), &plan.assignments, params, i + 1)?;
            match new {
                None => affected += u64::from(session.found_rows),
                Some(new) => {
                    change::push_change(s, schema, &key, &old, &new)?;
                    let savepoint = next_savepoint(session);
                    match execute(cluster, session, &s.ops, &mut s.results, savepoint, false).await {
                        Err(Fail::Client(e)) if e.code == ErrorCode::DuplicateKey => {
                            return Err(duplicate(table, e.index, Some(&new)).into());
                        }
                        other => other?,
                    }
                    affected += 2;
                }
            }
            break;
        }
    }
    Ok(affected)
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
    let request = ReadBatch { trans, table: hidden.id, schema_version: hidden.version, columns: None, keys: &s.keys };
    cluster.client.read(&request, &mut s.rows).await?;
    Ok(s.rows.row(0).map(|row| hidden.layout().raw(row, schema::HIDDEN_PK_COLUMN).to_vec()))
}
