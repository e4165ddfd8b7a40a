//! Changes of rows that foreign keys have a say in.
//!
//! All runs in the statement's transaction, by row locks: a row that refers holds the row that it refers to shared until the transaction ends ([`parents`]); a row that
//! goes, or gets another key, is held exclusively *before* it is looked for who refers to it ([`children`]). So whoever refers was there before, or waits. The looks
//! are at what is newest, with what others have written and not committed; what they find is locked before it counts.
//!
//! [`apply`] does a batch of changes of one table: what they refer to, who forbids them, the changes themselves, then what follows from them, level by
//! level, each in batches, so that a cascade of any size takes the memory of a batch per level. A batch that is refused is undone and done row by row, so that the
//! error is that of the first row, as in MySQL, where each row is checked by itself. Where rows of one statement may concern each other, callers send one at a time.
//!
//! Limits: [`DEPTH_MAX`] levels (error 3008).

pub mod children;
pub mod parents;

use std::{pin::pin, rc::Rc};

use apus_client::Rows;
use apus_signal::tc::OpKind;
use apus_types::{ErrorCode, RowLayout, TableId, TableSchema, key};

use super::{Cluster, change, duplicate, execute, next_savepoint};
use crate::{
    catalog::{
        Table,
        foreign_key::{Reference, Rules},
    },
    errors,
    session::{Done, Fail, Session, buffers::Scratch, rollback_to},
    wire::SqlError,
};

/// Levels of a cascade below the statement's rows.
pub const DEPTH_MAX: usize = 14;
/// Rows of a batch.
pub const BATCH: usize = 512;

/// A row that comes, changes or goes.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// Its primary key, before the change.
    pub key: Vec<u8>,
    /// What it was; it is locked exclusively.
    pub old: Option<Vec<u8>>,
    pub new: Option<Vec<u8>>,
    /// It goes to make place for this one (REPLACE).
    pub by: Option<Vec<u8>>,
}

impl Row {
    pub fn gone(key: &[u8], old: &[u8]) -> Row {
        Row { key: key.to_vec(), old: Some(old.to_vec()), ..Row::default() }
    }
    pub fn made(key: &[u8], new: &[u8]) -> Row {
        Row { key: key.to_vec(), new: Some(new.to_vec()), ..Row::default() }
    }
    pub fn changed(key: &[u8], old: &[u8], new: &[u8]) -> Row {
        Row { key: key.to_vec(), old: Some(old.to_vec()), new: Some(new.to_vec()), by: None }
    }
}

/// What became of a batch.
pub enum Outcome {
    Done,
    /// Nothing of it was done, because this row of it was refused.
    Refused {
        row: usize,
        error: SqlError,
        /// Of the index in which its key is taken.
        taken: Option<u16>,
    },
}

/// Where in a cascade a batch is done.
pub(crate) struct Level<'l> {
    depth: usize,
    /// By what it follows from the level above.
    by: Option<&'l Reference>,
    /// The tables above, and this one.
    path: &'l [TableId],
}

/// Why a batch is not done.
struct Refusal {
    row: usize,
    fail: Fail,
    taken: Option<u16>,
    /// Of the batch whose rows are refused for others.
    depth: Option<usize>,
}

impl From<Fail> for Refusal {
    fn from(fail: Fail) -> Refusal {
        Refusal { row: 0, fail, taken: None, depth: None }
    }
}
impl From<ErrorCode> for Refusal {
    fn from(code: ErrorCode) -> Refusal {
        Fail::from(code).into()
    }
}

/// Changes rows of a table, with all that follows.
///
/// # Errors
/// Whatever ends the statement but the refusal of a row.
pub async fn apply(
    cluster: Cluster<'_>,
    session: &mut Session,
    table: &Rc<Table>,
    rules: &Rules,
    rows: &[Row],
) -> Done<Outcome> {
    session.transaction.get_or_insert_with(|| cluster.client.begin());
    let path = [table.schema.id];
    let level = || Level { depth: 0, by: None, path: &path };
    let before = session.savepoint;
    let done = pin!(batch(cluster, session, table, Some(rules), rows, level())).await;
    let refusal = match done {
        Ok(()) => return Ok(Outcome::Done),
        Err(refusal) => refusal,
    };
    let error = refused(cluster, session, table, rows, before, refusal).await?;
    if rows.len() == 1 {
        return Ok(error);
    }
    for (at, row) in rows.iter().enumerate() {
        let done = pin!(batch(cluster, session, table, Some(rules), std::slice::from_ref(row), level())).await;
        if let Err(refusal) = done {
            let refusal = Refusal { row: at, ..refusal };
            return refused(cluster, session, table, rows, before, refusal).await;
        }
    }
    Ok(Outcome::Done)
}

/// Undoes what was done since `before`; the refusal of a row as the statement sees it.
async fn refused(
    _cluster: Cluster<'_>,
    session: &mut Session,
    table: &Table,
    rows: &[Row],
    before: u32,
    refusal: Refusal,
) -> Done<Outcome> {
    let Refusal { row, fail, taken, .. } = refusal;
    let error = match fail {
        Fail::Client(e) if e.code == ErrorCode::DuplicateKey && !e.aborted => {
            let new = rows.get(row).and_then(|row| row.new.as_deref());
            duplicate(&session.env, table, taken.unwrap_or(e.index), new)
        }
        Fail::Sql(e) if e.errno == 1451 || e.errno == 1452 => e,
        other => return Err(other),
    };
    if session.transaction.as_ref().is_none_or(|t| t.is_over()) {
        return Err(error.into());
    }
    if session.savepoint > before {
        rollback_to(session, before + 1).await?;
    }
    Ok(Outcome::Refused { row, error, taken })
}

/// One batch of one level.
async fn batch(
    cluster: Cluster<'_>,
    session: &mut Session,
    table: &Rc<Table>,
    rules: Option<&Rules>,
    rows: &[Row],
    level: Level<'_>,
) -> Result<(), Refusal> {
    session.env.may_go_on().map_err(Fail::from)?;
    if let Some(rules) = rules {
        let found = pin!(parents::missing(cluster, session, rules, rows, level.by)).await?;
        if let Some((row, reference)) = found {
            let fail = errors::no_parent_row(&reference.text()).into();
            return Err(Refusal { row, fail, taken: None, depth: None });
        }
    }
    // Of rows that go, those behind one that takes rows along are looked for when these are gone.
    let all = rules.map_or(&[][..], |rules| &rules.children);
    let refuses = |r: &Rc<Reference>| children::refuses(r, rows, &level);
    let is_change = rows.iter().any(|row| row.new.is_some());
    // Of rows that a cascade takes along all are: a row that refers to itself is in nobody's way then.
    let is_before = |r: &&Rc<Reference>| is_change || level.depth == 0 && refuses(r);
    let first = all.iter().take_while(is_before).count();
    for reference in all[..first].iter().filter(|r| refuses(r)) {
        pin!(children::refuse(cluster, session, reference, rows, level.depth)).await?;
    }
    pin!(send(cluster, session, table, rows, &level)).await?;
    session.remember(&table.schema);
    let later = all.iter().enumerate().filter(|(at, r)| *at >= first || !refuses(r));
    for (_, reference) in later {
        Box::pin(children::follow(cluster, session, reference, rows, &level)).await?;
    }
    Ok(())
}

/// The changes themselves.
async fn send(
    cluster: Cluster<'_>,
    session: &mut Session,
    table: &Rc<Table>,
    rows: &[Row],
    level: &Level<'_>,
) -> Result<(), Refusal> {
    let schema = &table.schema;
    let mut s = Box::<Scratch>::default();
    s.ops.hold_constraints();
    // The row that each operation is for.
    let mut of = Vec::with_capacity(rows.len());
    for (at, row) in rows.iter().enumerate() {
        match (&row.old, &row.new) {
            (None, Some(new)) => s.ops.push(schema, OpKind::Insert, 0, &row.key, new)?,
            (Some(old), Some(new)) => change::push_change(&mut s, schema, &row.key, old, new)?,
            (_, None) => s.ops.push(schema, OpKind::Delete, apus_signal::tc::ALLOW_MISSING, &row.key, &[])?,
        }
        of.resize(s.ops.len(), at);
    }
    if s.ops.is_empty() {
        return Ok(());
    }
    let savepoint = next_savepoint(session);
    let sent = pin!(execute(cluster, session, &s.ops, &mut s.results, savepoint, false)).await;
    let Err(fail) = sent else { return Ok(()) };
    let Fail::Client(e) = &fail else { return Err(fail.into()) };
    if e.code != ErrorCode::DuplicateKey {
        return Err(fail.into());
    }
    let row = of.get(e.op as usize).copied().unwrap_or(0);
    let taken = Some(e.index);
    match level.by {
        None => Err(Refusal { row, fail, taken, depth: None }),
        Some(reference) => {
            let new = rows.get(row).and_then(|row| row.new.as_deref()).unwrap_or(&[]);
            let index = table.key_name(e.index);
            let index = index.rsplit('.').next().unwrap_or("");
            let error = errors::duplicate_by_cascade(reference, &shown_key(reference, new), index);
            Err(Refusal { row, fail: error.into(), taken: None, depth: None })
        }
    }
}

/// The values of a key that a row has come to refer to.
fn shown_key(reference: &Reference, row: &[u8]) -> String {
    let schema = &reference.child.schema;
    let value =
        |&c: &u16| crate::expr::result_cells::display(&schema.columns[usize::from(c)], schema.layout().value(row, c));
    let values: Vec<String> = reference.key.columns.iter().map(value).collect();
    values.join("-")
}

/// The primary keys of rows that have nothing else, in this layout.
///
/// # Errors
/// One of them is none.
pub fn primary_keys(schema: &TableSchema, layout: &RowLayout, rows: &Rows) -> Result<Vec<Vec<u8>>, ErrorCode> {
    let one = |row: &[u8]| {
        let mut out = Vec::new();
        for (place, &column) in (0u16..).zip(&schema.primary_key) {
            let ty = schema.columns[usize::from(column)].ty;
            key::encode_part(ty, false, &layout.value(row, place), &mut out)?;
        }
        Ok(out)
    };
    rows.iter().flatten().map(one).collect()
}

/// The primary key of a row.
pub fn primary_key(table: &Table, row: &[u8]) -> Result<Vec<u8>, ErrorCode> {
    let mut out = Vec::new();
    key::encode_from_row(&table.schema, &table.schema.primary_key, row, &mut out)?;
    Ok(out)
}
