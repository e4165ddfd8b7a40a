//! The rows of a table into its copy, while nobody writes; and how a row of the copy is made.
//!
//! All primary keys are named first, also those of rows that transactions have not committed yet; nobody adds one any more (`fence`). Then the rows are locked exclusively, some hundred at a time in the order of their
//! keys. A lock waits for whoever wrote the row before, or holds on to it because rows of other tables refer to it; what is read under it is how the row stays. It is made anew as INSERT makes rows, and written to the copy in the
//! transaction of the locks. At the end one of them is written once more, and that waits for the disks, and so for all before it.

use std::{pin::pin, rc::Rc};

use apus_client::{ClientError, ExecOptions, OpBatch, Results, Rows, ScanRequest};
use apus_signal::tc::{ALLOW_MISSING, OpKind, OpStatus};
use apus_types::{ColumnType, ErrorCode, TableSchema, Value, key};

use super::{Failed, Remade};
use crate::{
    catalog::{Catalog, Table},
    ddl::alter,
    errors,
    exec::{
        Cluster, duplicate, insert,
        new_row::{Given, Numbers, one_row},
    },
    plan::{
        Insert,
        dml::insert::{OnDuplicate, Source, is_of_bytes},
        rules,
    },
    session::{Fail, Session, buffers::Scratch, engine::SqlEngine, serializable_reads::Reads},
    spill::byte_strings::Strings,
    value::{datum::Datum, zone::Zone},
    wire::{SqlError, characters::kept},
};

/// Rows copied in one transaction.
const BATCH: usize = 256;
/// Memory of the keys of all rows, in bytes.
pub const KEYS_BYTES_MAX: usize = 256 << 20;
/// Attempts of a batch that meets a lock or a failing node.
pub(super) const ATTEMPTS_MAX: u32 = 5;
pub(super) const LOCK_WAIT_MS: u32 = 10_000;

/// A copy under way.
pub struct Copying<'c> {
    pub old: &'c Table,
    /// The copy, under the name that errors have.
    pub new: Rc<Table>,
    pub remade: &'c Remade,
    /// Commits can wait for disks.
    pub on_disk: bool,
    /// NULL where it may not be is told as MySQL tells it of a copy.
    pub names_row: bool,
}

/// What becomes of one batch.
enum Batch {
    Copied(usize),
    Again(ClientError),
}

impl SqlEngine {
    /// How many rows there are. What is to be warned of is warned.
    pub(super) async fn copy_rows(
        &self,
        session: &mut Session,
        catalog: &Catalog,
        copying: &Copying<'_>,
    ) -> std::result::Result<u64, Failed> {
        let keys = self.all_keys(session, &copying.old.schema).await?;
        let reads = Reads::default();
        let cluster = self.cluster(catalog, &reads);
        let plan = plan(copying)?;
        let mut s = session.take_scratch();
        let (mut numbers, mut hidden) = (Numbers::unforced(session), Numbers::hidden());
        let (mut copied, mut at) = (0, 0);
        let mut progress = self.progress(&copying.old.schema, "copying rows, nobody writes").await;
        while at < keys.len() {
            let end = keys.len().min(at + BATCH);
            let mut attempt = 0;
            copied += loop {
                attempt += 1;
                session.env.may_go_on()?;
                let place = (at..end, copied, keys.len());
                let counts = (&mut numbers, &mut hidden);
                let done =
                    pin!(self.copy_batch(cluster, session, &mut s, &plan, copying, &keys, place, counts)).await?;
                match done {
                    Batch::Copied(count) => break count,
                    Batch::Again(e) if attempt == ATTEMPTS_MAX => return Err(Failed::of_client(&e)),
                    Batch::Again(_) => {}
                }
            };
            progress.advance(session, (end - at) as u64).await?;
            at = end;
        }
        if copying.on_disk && !s.images.is_empty() {
            self.reach_disks(&copying.new.schema, &s).await.map_err(|e| Failed::of_client(&e))?;
        }
        self.take_over_counters(cluster, copying, &numbers).await.map_err(|e| Failed::of_client(&e))?;
        Ok(copied as u64)
    }

    /// The keys of all rows that there are or may be, in their order.
    async fn all_keys(&self, session: &Session, schema: &TableSchema) -> std::result::Result<Strings, Failed> {
        let mut request = ScanRequest::all(schema.id, schema.version);
        request.columns = Some(&schema.primary_key);
        request.with_pending = true;
        let layout = schema.layout().project_layout(&schema.primary_key);
        let layout = layout.ok_or_else(|| errors::internal("projection"))?;
        let (mut cursor, mut rows, mut keys) = (self.client.scan(&request), Rows::new(), Strings::default());
        let mut key = Vec::new();
        while cursor.next_batch(&mut rows).await.map_err(|e| Failed::of_client(&e))? {
            session.env.may_go_on()?;
            for row in rows.iter().flatten() {
                key.clear();
                for (i, &column) in schema.primary_key.iter().enumerate() {
                    let ty = schema.columns[usize::from(column)].ty;
                    key::encode_part(ty, false, &layout.value(row, i as u16), &mut key)
                        .map_err(|e| errors::from_code(e, &schema.name))?;
                }
                keys.push(&key);
            }
            if keys.byte_len() > KEYS_BYTES_MAX {
                return Err(errors::too_many_locks().into());
            }
        }
        keys.sort_and_dedup();
        Ok(keys)
    }

    #[allow(clippy::too_many_arguments)]
    async fn copy_batch(
        &self,
        cluster: Cluster<'_>,
        session: &mut Session,
        s: &mut Scratch,
        plan: &Insert,
        copying: &Copying<'_>,
        keys: &Strings,
        (range, before, count): (std::ops::Range<usize>, usize, usize),
        (numbers, hidden): (&mut Numbers, &mut Numbers),
    ) -> std::result::Result<Batch, Failed> {
        let (old, new) = (&copying.old.schema, &copying.new.schema);
        let (mut reads, mut results) = (OpBatch::new(), Results::new());
        for key in range.filter_map(|at| keys.get(at)) {
            reads.push_read(old, true, ALLOW_MISSING, key, None).map_err(|e| errors::from_code(e, &old.name))?;
        }
        let mut transaction = self.client.begin();
        let options = |savepoint| ExecOptions { commit: false, savepoint, lock_wait_ms: LOCK_WAIT_MS };
        match transaction.execute(&reads, options(1), &mut results).await {
            Ok(()) => {}
            Err(e) if may_pass(&e) => return Ok(Batch::Again(e)),
            Err(e) => return Err(Failed::of_client(&e)),
        }
        if results.iter().all(|(status, _)| status != OpStatus::Done) {
            return Ok(Batch::Copied(0)); // the last image stays
        }
        s.images.clear();
        let found = results.iter().filter(|(status, _)| *status == OpStatus::Done);
        for (i, (_, row)) in found.enumerate() {
            old.layout().check(row).map_err(|e| errors::from_code(e, &old.name))?;
            let place = (before + i + 1, count.max(before + i + 1));
            let made = pin!(one_new_row(cluster, session, s, plan, copying, row, place, (numbers, hidden))).await;
            made.map_err(|fail| Failed::of_row(fail, copying, before + i + 1))?;
        }
        let mut writes = OpBatch::new();
        writes.hold_constraints();
        for image in s.images.iter() {
            s.key.clear();
            let encoded = key::encode_from_row(new, &new.primary_key, image, &mut s.key);
            encoded
                .and_then(|_| writes.push(new, OpKind::Insert, 0, &s.key, image))
                .map_err(|e| errors::from_code(e, &new.name))?;
        }
        match transaction.execute(&writes, options(2), &mut results).await {
            Ok(()) => {}
            Err(e) if e.code == ErrorCode::DuplicateKey => {
                return Err(duplicate(&session.env, &copying.new, e.index, s.images.get(e.op as usize)).into());
            }
            Err(e) if may_pass(&e) => return Ok(Batch::Again(e)),
            Err(e) => return Err(Failed::of_client(&e)),
        }
        // Whether a commit that failed has been done is not asked: all is copied once more.
        transaction.commit().await.map_err(|e| Failed { again: true, ..errors::from_client(&e).into() })?;
        Ok(Batch::Copied(s.images.len()))
    }

    /// What was copied is on the disks: the last row is written once more.
    async fn reach_disks(&self, new: &TableSchema, s: &Scratch) -> std::result::Result<(), ClientError> {
        let (mut write, mut key) = (OpBatch::new(), Vec::new());
        let last = s.images.iter().last().unwrap_or(&[]);
        key::encode_from_row(new, &new.primary_key, last, &mut key)?;
        write.hold_constraints();
        write.push(new, OpKind::Write, 0, &key, last)?;
        let mut transaction = self.client.begin();
        transaction.wait_for_disk(true);
        let options = ExecOptions { commit: false, savepoint: 1, lock_wait_ms: LOCK_WAIT_MS };
        transaction.execute(&write, options, &mut Results::new()).await?;
        transaction.commit().await.map(|_| ())
    }

    /// No value that the table has given is given once more.
    pub(super) async fn take_over_counters(
        &self,
        cluster: Cluster<'_>,
        copying: &Copying<'_>,
        numbers: &Numbers,
    ) -> std::result::Result<(), ClientError> {
        let (old, new) = (&copying.old.schema, &copying.new.schema);
        let counters = cluster.catalog.counters().map_err(|_| ClientError::from(ErrorCode::Internal))?;
        for (no, column) in (0..).zip(&new.columns).filter(|(_, column)| column.auto_increment) {
            let from = copying.remade.from[usize::from(no)].filter(|&c| old.columns[usize::from(c)].auto_increment);
            let highest = numbers.highest().filter(|_| !column.name.starts_with('#'));
            match (from, highest) {
                (Some(from), _) => {
                    self.auto_increment.hand_on(&self.client, counters, (old, from), (new, no), highest).await?;
                }
                (None, Some(highest)) => {
                    self.auto_increment.raise(&self.client, counters, new, no, highest).await?;
                }
                (None, None) => {}
            }
        }
        Ok(())
    }
}

/// The transaction is given up, and what it did may go the next time.
pub(super) fn may_pass(e: &ClientError) -> bool {
    e.retry_transaction() || matches!(e.code, ErrorCode::Deadlock | ErrorCode::LockTimeout)
}

/// The insertion that a row of the copy is.
pub(super) fn plan(copying: &Copying<'_>) -> errors::Result<Insert> {
    let table = copying.new.clone();
    let columns = 0..table.schema.columns.len() as u16;
    Ok(Insert {
        of_values: false,
        places: columns.clone().map(|_| None).collect(),
        defaults: columns.map(|c| of_new_column(&table, c)).collect(),
        names: Default::default(),
        source: Source::Values(Vec::new()),
        encoded: Vec::new(),
        on_duplicate: OnDuplicate::Refuse,
        assignments: Vec::new(),
        check: None,
        within: None,
        table,
    })
}

/// What rows that are there get in a column that comes: its default, or what the type begins with.
fn of_new_column(table: &Table, column: u16) -> errors::Result<crate::expr::Expr> {
    match rules::initial(table, column) {
        Err(e) if e.errno == 1364 => {
            let ty = table.schema.columns[usize::from(column)].ty;
            Ok(crate::expr::Expr::Const(crate::expr::assign::implicit_default(ty)))
        }
        other => other,
    }
}

/// Makes the row anew and appends it to `s.images`.
#[allow(clippy::too_many_arguments)]
pub(super) async fn one_new_row(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    plan: &Insert,
    copying: &Copying<'_>,
    row: &[u8],
    place: (usize, usize),
    counts: (&mut Numbers, &mut Numbers),
) -> crate::session::Done<()> {
    let (old, new) = (&copying.old.schema, &copying.new.schema);
    let zone = session.env.zone();
    let given = |at: usize| -> Given<'_> {
        let (column, Some(from)) = (&new.columns[at], copying.remade.from[at]) else { return Given::Default };
        if column.generated.is_some() {
            return Given::Default;
        }
        let (before, value) = (&old.columns[usize::from(from)], old.layout().value(row, from));
        let charset = before.ty.collation().map(|c| c.charset()).filter(|_| is_of_bytes(column.ty));
        let is_same = !alter::columns::changes_storage(before, column);
        match value {
            Value::Timestamp(t) if is_same => Given::Made(Datum::Int(t)),
            value if is_same => Given::Made(Datum::of_column(before.ty, value, zone)),
            value => Given::Value(match Datum::of_column(before.ty, value, zone) {
                Datum::Text(text) => match charset {
                    Some(charset) => Datum::Bytes(kept(charset, &text).into_owned().into()),
                    None => Datum::Text(text),
                },
                value => value,
            }),
        }
    };
    pin!(one_row(cluster, session, s, plan, &[], given, place, counts)).await?;
    let lost: Vec<SqlError> = (0..new.columns.len()).filter_map(|at| lost(copying, at, row, zone, place.0)).collect();
    lost.into_iter().for_each(|note| session.warn("Note", note.errno, note.message));
    for refused in std::mem::take(&mut s.refused) {
        session.warn_error(&told(refused, copying, place.0));
    }
    for note in session.env.take_notes() {
        session.warn_error(&told(note, copying, place.0));
    }
    match insert::check_made(session, s, plan, &[])? {
        Some(violated) => Err(violated.into()),
        None => Ok(()),
    }
}

/// What a value loses on its way that nobody refuses: digits behind the point, the time of a day.
fn lost(copying: &Copying<'_>, at: usize, row: &[u8], zone: Zone, number: usize) -> Option<SqlError> {
    use ColumnType as T;
    let (column, from) = (&copying.new.schema.columns[at], copying.remade.from[at]?);
    let before = &copying.old.schema.columns[usize::from(from)];
    let is_moment = matches!(before.ty, T::DateTime { .. } | T::Timestamp { .. } | T::VarChar { .. } | T::Char { .. });
    if !is_moment && !matches!(before.ty, T::Decimal { .. }) || column.generated.is_some() {
        return None;
    }
    let value = Datum::of_column(before.ty, copying.old.schema.layout().value(row, from), zone);
    match (value, column.ty) {
        (Datum::Decimal { unscaled, scale }, T::Decimal { scale: now, .. }) if now < scale => {
            let cut = 10i128.checked_pow(u32::from(scale - now))?;
            (unscaled % cut != 0).then(|| errors::truncated(&column.name, number))
        }
        (value @ (Datum::DateTime(..) | Datum::Text(_)), T::Date) => {
            let text = value.as_string();
            let has_time = text.get(11..).is_some_and(|time| time.bytes().any(|b| b.is_ascii_digit() && b != b'0'));
            has_time.then(|| errors::incorrect_value("date", &text, &column.name, number))
        }
        _ => None,
    }
}

/// What INSERT says of NULL, and of a text that is too long for another column of texts, as ALTER TABLE says it.
fn told(e: SqlError, copying: &Copying<'_>, row: usize) -> SqlError {
    let column = |c: &&apus_types::Column| e.message.contains(&format!("'{}'", c.name));
    let named = copying.new.schema.columns.iter().zip(&copying.remade.from).find(|(c, _)| column(c));
    let Some((column, from)) = named else { return e };
    let before = from.map(|from| copying.old.schema.columns[usize::from(from)].ty);
    let is_text = |ty: ColumnType| matches!(ty, ColumnType::Char { .. } | ColumnType::VarChar { .. });
    let is_cut = e.errno == 1406 && before.is_some_and(is_text) && is_text(column.ty);
    if e.errno == 1048 || is_cut { errors::truncated(&column.name, row) } else { e }
}

impl Failed {
    pub fn of_client(e: &ClientError) -> Failed {
        let is_passing = may_pass(e) && e.code != ErrorCode::LockTimeout || e.code == ErrorCode::SchemaVersionChanged;
        let cannot_follow = e.code == ErrorCode::SnapshotTooOld;
        let again = is_passing || cannot_follow || e.code == ErrorCode::TableNotFound;
        Failed { error: errors::from_client(e), again, cannot_follow }
    }
    pub(super) fn of_row(fail: Fail, copying: &Copying<'_>, row: usize) -> Failed {
        match fail {
            Fail::Client(e) => Failed::of_client(&e),
            Fail::Sql(e) if e.errno == 1048 && !copying.names_row => {
                SqlError::new(1138, b"22004", "Invalid use of NULL value").into()
            }
            Fail::Sql(e) => told(e, copying, row).into(),
        }
    }
}
