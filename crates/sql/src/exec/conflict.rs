//! New rows beside those that are there: INSERT IGNORE, REPLACE, ON DUPLICATE KEY UPDATE, LOAD DATA.
//!
//! Rows are sent in batches. No two rows of a batch have the same primary or unique key, so whatever is in the way of one was there before, and the rows of a batch
//! may be stored in any order. A row whose primary key is taken is reported by its status; a unique key that is taken refuses the whole batch, of which nothing
//! stays. Such a row goes by itself ([`alone`]), finds out what is in its way, and the rest goes on in smaller batches, which grow again.
//! ON DUPLICATE KEY UPDATE sends each row by itself.

use std::{ops::Range, pin::pin, rc::Rc};

use apus_client::ReadBatch;
use apus_signal::tc::{ALLOW_DUPLICATE, ALLOW_MISSING, OpKind, OpStatus};
use apus_types::{Epoch, ErrorCode, TableSchema, Value, key, list::KeyList, schema};

use super::{
    Cluster,
    change::{self, Storing},
    duplicate, execute, foreign_key, insert,
    insert_batch::gather,
    lock,
    new_row::{Numbers, greatest},
    next_savepoint, reader,
    triggered::{self, Writing},
};
use crate::{
    catalog::{
        Table,
        foreign_key::{Rules, rules},
    },
    errors,
    expr::assign::{self, Assign},
    plan::{Insert, dml::insert::OnDuplicate},
    program::trigger::{Event, fire::Rows},
    session::{Done, Fail, Session, buffers::Scratch},
    spill::byte_strings::Strings,
    value::datum::Datum,
    wire::SqlError,
};

/// Attempts of a row whose generated value was taken explicitly through another SQL node.
pub const TAKEN_ATTEMPTS_MAX: u32 = 4;

/// What became of the rows.
#[derive(Default)]
pub struct Outcome {
    pub affected: u64,
    /// The first generated value of AUTO_INCREMENT that was inserted, or 0.
    pub generated: u64,
    /// The value in the row that ON DUPLICATE KEY UPDATE changed last, or 0.
    pub updated: u64,
    /// Rows that were in the way: left as they were by IGNORE, replaced, changed.
    pub duplicates: u64,
    /// Rows that refer to nothing, left out by IGNORE.
    pub refused: u64,
}

/// What is in the way of a row, as far as that is known: the number of an index.
type Known = Option<u16>;

/// Puts the rows of `s.images` into the table.
pub async fn insert_rows(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    plan: &Insert,
    params: &[Datum<'_>],
) -> Done<Outcome> {
    let images = std::mem::take(&mut s.images);
    let done = pin!(all_rows(cluster, session, s, plan, params, &images)).await;
    s.images = images;
    done
}

async fn all_rows(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    plan: &Insert,
    params: &[Datum<'_>],
    images: &Strings,
) -> Done<Outcome> {
    let mut outcome = Outcome::default();
    let rules = rules(session, cluster.catalog, &plan.table.schema);
    let rules = rules.as_deref();
    session.transaction.get_or_insert_with(|| cluster.client.begin());
    s.warned.begin_phase();
    let is_single = plan.on_duplicate == OnDuplicate::Update
        || rules.is_some_and(|rules| rules.is_cyclic)
        || triggered::is_one_by_one(plan);
    let most = if is_single { 1 } else { insert::INSERT_BATCH };
    let (mut next, mut rows) = (0, most);
    // The row that refused a batch.
    let mut refused: Option<usize> = None;
    while next < images.len() {
        session.env.may_go_on()?;
        if rows == 1 || refused == Some(next) {
            refused = refused.filter(|row| *row != next);
            alone(cluster, session, s, plan, params, images, next, None, &mut outcome, rules).await?;
            (next, rows) = (next + 1, (rows * 2).min(most));
            continue;
        }
        let before = refused.unwrap_or(images.len());
        let batch = next..gather(s, &plan.table, images, next..before.min(next + rows))?;
        let lost = match rules {
            Some(rules) => Box::pin(refers_to_nothing(cluster, session, rules, &plan.table, images, &batch)).await?,
            None => None,
        };
        let sent = match lost {
            Some((row, _)) => Some(row),
            None => pin!(send(cluster, session, s, &plan.table, images, batch.clone())).await?,
        };
        match sent {
            None => {
                settle(cluster, session, s, plan, params, images, batch.clone(), &mut outcome, rules).await?;
                (next, rows) = (batch.end, (rows * 2).min(most));
            }
            Some(row) => {
                refused = Some(row.clamp(batch.start, batch.end - 1));
                rows = (rows / 2).max(1);
            }
        }
    }
    Ok(outcome)
}

/// Sends the batch in `s.ops`; the row that a unique key refused.
async fn send(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    table: &Table,
    images: &Strings,
    batch: Range<usize>,
) -> Done<Option<usize>> {
    debug_assert!(batch.end <= images.len());
    let savepoint = next_savepoint(session);
    let sent = pin!(execute(cluster, session, &s.ops, &mut s.results, savepoint, false)).await;
    session.remember(&table.schema);
    match sent {
        Ok(()) => Ok(None),
        Err(Fail::Client(e)) if e.code == ErrorCode::DuplicateKey && session.transaction.is_some() => {
            Ok(Some(batch.start + e.op as usize))
        }
        Err(e) => Err(e),
    }
}

/// Counts the rows of a batch that was sent, and sees to those whose primary key was taken.
#[allow(clippy::too_many_arguments)]
async fn settle(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    plan: &Insert,
    params: &[Datum<'_>],
    images: &Strings,
    batch: Range<usize>,
    outcome: &mut Outcome,
    rules: Option<&Rules>,
) -> Done<()> {
    let mut taken = Vec::new();
    for (at, i) in batch.enumerate() {
        match s.results.status(at) {
            Some(OpStatus::Duplicate) => taken.push(i),
            _ => outcome.count(s.generated[i]),
        }
    }
    for i in taken {
        alone(cluster, session, s, plan, params, images, i, Some(0), outcome, rules).await?;
    }
    Ok(())
}

impl Outcome {
    pub fn add(&mut self, other: &Outcome) {
        self.affected += other.affected;
        if self.generated == 0 {
            self.generated = other.generated;
        }
        if other.updated != 0 {
            self.updated = other.updated;
        }
        self.duplicates += other.duplicates;
        self.refused += other.refused;
    }
    /// A row was inserted.
    fn count(&mut self, generated: u64) {
        self.affected += 1;
        if self.generated == 0 {
            self.generated = generated;
        }
    }
}

/// Row `i`, which finds out what is in its way.
#[allow(clippy::too_many_arguments)]
async fn alone(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    plan: &Insert,
    params: &[Datum<'_>],
    images: &Strings,
    i: usize,
    mut known: Known,
    outcome: &mut Outcome,
    rules: Option<&Rules>,
) -> Done<()> {
    let table = &plan.table;
    let schema = &table.schema;
    if let Some(rules) = rules
        && known.is_none()
        && let Some((_, error)) =
            Box::pin(refers_to_nothing(cluster, session, rules, table, images, &(i..i + 1))).await?
    {
        if plan.on_duplicate != OnDuplicate::Ignore {
            return Err(error.into());
        }
        s.warned.push((s.row_numbers[i], 2), error);
        outcome.refused += 1;
        return Ok(());
    }
    let mut renumbered;
    let mut image = images.get(i).unwrap_or(&[]);
    let mut attempt = 0;
    loop {
        attempt += 1;
        session.env.may_go_on()?;
        s.key.clear();
        key::encode_from_row(schema, &schema.primary_key, image, &mut s.key)?;
        let found = match known.take() {
            Some(index) => Some(index),
            None => pin!(try_row(cluster, session, s, schema, image)).await?,
        };
        session.remember(schema);
        let Some(conflict) = found else {
            outcome.count(s.generated[i]);
            let rows = Rows { old: None, new: Some(image) };
            return cluster.engine.fire_after(session, table, Event::Insert, rows).await;
        };
        if s.generated[i] != 0 && attempt < TAKEN_ATTEMPTS_MAX && has_counter(schema, conflict) {
            renumbered = renumber(cluster, session, s, table, image, i).await?;
            image = &renumbered;
            continue;
        }
        if plan.on_duplicate == OnDuplicate::Ignore {
            let e = duplicate(&session.env, table, conflict, Some(image));
            s.warned.push((s.row_numbers[i], 2), e);
            outcome.duplicates += 1;
            return Ok(());
        }
        let Some(key) = conflicting_key(cluster, session, s, table, conflict, image).await? else { continue };
        let Some(old) = lock::lock_row(cluster, session, s, table, &key).await? else { continue };
        s.ops.clear();
        if change::check_row(session, schema, plan.within.as_ref(), &old, params)?.is_some() {
            return Err(errors::replaces_outside().into());
        }
        let has = |event| table.triggers().is_some_and(|triggers| triggers.has(event));
        let writing = Writing {
            table,
            rules,
            check: plan.check.as_ref(),
            params,
            ignore: false,
            lenient: !session.env.variables.strict,
            number: s.row_numbers[i],
        };
        if plan.on_duplicate == OnDuplicate::Replace && has(Event::Delete) {
            Box::pin(triggered::delete(cluster, session, s, &writing, (&key, &old), Some(image))).await?;
            outcome.affected += 1;
            outcome.duplicates += 1;
            continue;
        }
        let is_referred = rules.is_some_and(|rules| !rules.children.is_empty());
        if plan.on_duplicate == OnDuplicate::Replace && !is_referred && schema.layout().is_same(&old, image) {
            outcome.affected += 1;
            return Ok(());
        }
        if let (OnDuplicate::Replace, Some(rules), true) = (plan.on_duplicate, rules, is_referred) {
            let row = foreign_key::Row { by: Some(image.to_vec()), ..foreign_key::Row::gone(&key, &old) };
            Box::pin(change_one(cluster, session, table, rules, row)).await?;
            outcome.affected += 1;
            outcome.duplicates += 1;
            continue;
        }
        if plan.on_duplicate == OnDuplicate::Replace {
            s.ops.push(schema, OpKind::Delete, ALLOW_MISSING, &key, &[])?;
            let savepoint = next_savepoint(session);
            execute(cluster, session, &s.ops, &mut s.results, savepoint, false).await?;
            outcome.affected += 1;
            outcome.duplicates += 1;
            continue;
        }
        match Box::pin(update_found(cluster, session, s, plan, &writing, (&key, &old), image)).await? {
            None => outcome.affected += u64::from(session.found_rows),
            Some(new) => {
                outcome.affected += 2;
                outcome.duplicates += 1;
                let counts = |c: &u16| !schema.columns[usize::from(*c)].name.starts_with('#');
                outcome.updated =
                    schema.auto_increment_column().filter(counts).map_or(0, |c| match schema.layout().value(&new, c) {
                        Value::UInt(n) => n,
                        Value::Int(n) => u64::try_from(n).unwrap_or(0),
                        _ => 0,
                    });
            }
        }
        return Ok(());
    }
}

/// ON DUPLICATE KEY UPDATE of the row that is in the way of `image`; what it is now, if that is another.
async fn update_found(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    plan: &Insert,
    writing: &Writing<'_>,
    (key, old): (&[u8], &[u8]),
    image: &[u8],
) -> Done<Option<Vec<u8>>> {
    let (table, params, row) = (writing.table, writing.params, writing.number);
    let is_triggered = table.triggers().is_some_and(|triggers| triggers.has(Event::Update));
    let mut refused = Vec::new();
    // NULL is refused whatever the mode.
    let (lenient, keeps_null, refused_here) = (writing.lenient, is_triggered, &mut refused);
    let storing = Storing { row, lenient, takes_null: false, keeps_null, refused: refused_here };
    let new = change::updated_row(session, table, (old, Some(image)), &plan.assignments, params, storing)?;
    refused.into_iter().for_each(|e| s.warned.push((row, 2), e));
    if is_triggered {
        let new = new.as_deref().unwrap_or(old);
        let is_other = triggered::update(cluster, session, s, writing, (key, old), new).await?;
        return Ok(is_other.then(|| new.to_vec()));
    }
    let Some(new) = new else { return Ok(None) };
    if let Some(failed) = change::refused_row(session, table, writing.check, &new, params, !lenient)? {
        return Err(failed.into());
    }
    if let Some(rules) = writing.rules {
        change_one(cluster, session, table, rules, foreign_key::Row::changed(key, old, &new)).await?;
        return Ok(Some(new));
    }
    change::push_change(s, &table.schema, key, old, &new)?;
    let savepoint = next_savepoint(session);
    match execute(cluster, session, &s.ops, &mut s.results, savepoint, false).await {
        Err(Fail::Client(e)) if e.code == ErrorCode::DuplicateKey => {
            Err(duplicate(&session.env, table, e.index, Some(&new)).into())
        }
        other => other.map(|()| Some(new)),
    }
}

/// The first of these rows that refers to nothing.
async fn refers_to_nothing(
    cluster: Cluster<'_>,
    session: &mut Session,
    rules: &Rules,
    table: &Table,
    images: &Strings,
    batch: &Range<usize>,
) -> Done<Option<(usize, SqlError)>> {
    if rules.parents.is_empty() {
        return Ok(None);
    }
    let mut rows = Vec::with_capacity(batch.len());
    for image in batch.clone().filter_map(|i| images.get(i)) {
        rows.push(foreign_key::Row::made(&foreign_key::primary_key(table, image)?, image));
    }
    let found = foreign_key::parents::missing(cluster, session, rules, &rows, None).await?;
    Ok(found.map(|(at, reference)| (batch.start + at, errors::no_parent_row(&reference.text()))))
}

/// One change with what follows from it.
async fn change_one(
    cluster: Cluster<'_>,
    session: &mut Session,
    table: &Rc<Table>,
    rules: &Rules,
    row: foreign_key::Row,
) -> Done<()> {
    match foreign_key::apply(cluster, session, table, rules, &[row]).await? {
        foreign_key::Outcome::Done => Ok(()),
        foreign_key::Outcome::Refused { error, .. } => Err(error.into()),
    }
}

/// Inserts one row, whose key is in `s.key`, or says which index has its key already.
async fn try_row(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    schema: &TableSchema,
    image: &[u8],
) -> Done<Known> {
    s.ops.clear();
    s.ops.push(schema, OpKind::Insert, ALLOW_DUPLICATE, &s.key, image)?;
    let savepoint = next_savepoint(session);
    match execute(cluster, session, &s.ops, &mut s.results, savepoint, false).await {
        Ok(()) if s.results.status(0) == Some(OpStatus::Duplicate) => Ok(Some(0)),
        Ok(()) => Ok(None),
        Err(Fail::Client(e)) if e.code == ErrorCode::DuplicateKey && session.transaction.is_some() => Ok(Some(e.index)),
        Err(e) => Err(e),
    }
}

/// Whether the AUTO_INCREMENT column is part of an index.
pub fn has_counter(schema: &TableSchema, index: u16) -> bool {
    let columns = schema.index_columns(apus_types::IndexNo(index)).unwrap_or(&[]);
    schema.auto_increment_column().is_some_and(|c| columns.contains(&c))
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
    let mut numbers = Numbers::unforced(session);
    let c = &schema.columns[usize::from(column)];
    let n = numbers.generate(cluster, schema, column, 1).await?.min(greatest(c.ty));
    s.generated[i] = n;
    let assign = Assign::of(&session.env, &schema.name, i + 1, true);
    Ok(assign::replace(schema, image, column, &assign::assign(c, Datum::UInt(n), assign)?)?)
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
    s.keys.clear();
    let definition = &schema.indexes[position];
    if let Some(column) = definition.list_column() {
        for key in KeyList::read(schema.layout().raw(image, column), s.key.len())?.keys() {
            s.keys.push(hidden, key)?;
        }
    } else {
        let mut key = Vec::new();
        key::encode_unique(schema, definition, image, &mut key)?;
        s.keys.push(hidden, &key)?;
    }
    let trans = reader(session, schema).await?;
    let (table, schema_version) = (hidden.id, hidden.version);
    let request = ReadBatch { trans, snapshot: Epoch(0), table, schema_version, columns: None, keys: &s.keys };
    cluster.client.read(&request, &mut s.rows).await?;
    Ok(s.rows.iter().flatten().next().map(|row| hidden.layout().raw(row, schema::HIDDEN_PK_COLUMN).to_vec()))
}
