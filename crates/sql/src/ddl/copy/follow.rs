//! A copy that follows its table, while others write it.
//!
//! 1. Rows are copied in the order of their keys, at a snapshot. After [`RENEWED`] rows a new snapshot takes its place: what has changed of the rows that the copy has is copied as in step 2, and the rows behind them are read at the new one. So no snapshot is held for long, however
//!    large the table is, and data nodes keep few versions.
//! 2. What has changed between that snapshot and a new one is told by the data nodes (`apus_signal::changed`): of each such row what it was and what it is. What it was goes out of the copy, then what it is comes into it. So the copy is what
//!    the table was at the new snapshot, and no row is in the way of another one that has its key since. That is repeated until little changes meanwhile.
//! 3. The table is closed for whoever has not begun to work with it ([`Stage::Closing`]). When no transaction has a row of it any more it is closed for all ([`Stage::Filling`]), and what has changed since the last snapshot is copied. If
//!    they do not end within a moment the table is opened again, so that nobody waits behind them for long, and the copy goes on to follow.
//!
//! Nothing is locked and nothing is held up but in step 3. Nothing is missed whoever writes: SQL nodes, cascades in data nodes, native clients. The copy is written by this statement alone, so a row that is to go out of it and is not there is a mistake of ours.
//!
//! A row of the copy is found by what its row was. So the primary key of the copy has to follow from the row, and nothing may be counted anew ([`can_follow`]). Data nodes keep versions for the snapshot: if they must give them up because
//! memory is short, rows are copied while nobody writes.

use std::{ops::Bound, pin::pin, time::Duration};

use apus_client::{ChangedRow, ExecOptions, OpBatch, Results, Rows, ScanRequest, Snapshot};
use apus_signal::tc::OpKind;
use apus_types::{ErrorClass, ErrorCode, TableSchema, key};
use tokio::time::Instant;

use super::{
    Failed, How, Remade,
    fence::{Pair, Sides},
    rows::{self, ATTEMPTS_MAX, Copying, LOCK_WAIT_MS, may_pass, one_new_row},
};
use crate::{
    catalog::copies::Stage,
    ddl::progress::{self, Progress},
    errors,
    exec::{Cluster, duplicate, new_row::Numbers},
    plan::Insert,
    session::{Session, buffers::Scratch, engine::SqlEngine, serializable_reads::Reads},
    spill::byte_strings::Strings,
    wire::SqlError,
};

/// Rows and bytes of one transaction.
const BATCH: usize = 256;
const BATCH_BYTES: usize = 1 << 20;
/// Rows that are read at one snapshot.
const RENEWED: u64 = 8_192;
/// So few rows have changed that the table may be closed.
const FEW: u64 = 500;
/// Rounds after which it is closed however many they are.
const ROUNDS_MAX: u32 = 20;
/// How long a table is closed for transactions to end, the first time; it becomes longer each time, up to the last.
const CLOSED: Duration = Duration::from_millis(30);
const CLOSED_MAX: Duration = Duration::from_millis(500);
/// Between two looks at whether they have ended.
const LOOK: Duration = Duration::from_millis(1);
/// How long it is open then, the first time; the same.
const OPEN: Duration = Duration::from_millis(50);
const OPEN_MAX: Duration = Duration::from_secs(1);

/// What is kept from one round to the next.
struct Following {
    scratch: Box<Scratch>,
    numbers: Numbers,
    hidden: Numbers,
    /// Rows of the copy.
    count: u64,
    /// That the copy is like.
    snapshot: Snapshot,
    /// The copy has the rows up to this key alone; `None`: all.
    reached: Option<Vec<u8>>,
}

/// How a round goes through its rows.
#[derive(Clone, Copy, PartialEq)]
enum Pass {
    /// What rows were goes.
    Old,
    /// What they are comes.
    New,
}

/// The copy's primary key says which row of the table it is, and no row gets a number.
pub fn can_follow(old: &TableSchema, remade: &Remade) -> bool {
    let from = |column: u16| remade.from.get(usize::from(column)).copied().flatten();
    let new = &remade.table;
    let is_taken_over = |&column: &u16| from(column).is_some() && new.columns[usize::from(column)].generated.is_none();
    let counts_as_before = |column: u16| from(column).is_some_and(|c| old.columns[usize::from(c)].auto_increment);
    let mut counted = (0..new.columns.len() as u16).filter(|&c| new.columns[usize::from(c)].auto_increment);
    new.primary_key.iter().all(is_taken_over) && counted.all(counts_as_before)
}

impl SqlEngine {
    /// Copies the rows while others write, and puts the copy into the place of the table. Returns how many there are.
    pub(super) async fn follow_and_swap(
        &self,
        session: &mut Session,
        pair: &mut Pair<'_>,
        how: &How<'_>,
    ) -> std::result::Result<u64, Failed> {
        let snapshot = self.client.snapshot().await.map_err(|e| Failed::of_client(&e))?;
        let numbers = Numbers::unforced(session);
        let scratch = session.take_scratch();
        let (hidden, reached) = (Numbers::hidden(), Some(Vec::new()));
        let mut state = Following { scratch, numbers, hidden, count: 0, snapshot, reached };
        let sides = self.look_at(pair).await?;
        pin!(self.copy_all(session, &sides, how, &mut state)).await?;
        pin!(self.catch_up(session, &sides, how, &mut state)).await?;
        let longest = Duration::from_secs(session.env.variables.definition_wait);
        let (started, mut closed, mut open) = (Instant::now(), CLOSED, OPEN);
        let sides = loop {
            if let Some(sides) = pin!(self.close(session, pair, closed)).await? {
                break sides;
            }
            if started.elapsed() > longest {
                return Err(errors::from_code(ErrorCode::LockTimeout, "").into());
            }
            let waits = "waiting for transactions that have rows of the table";
            session.info.activity.tells(progress::doing(pair.old, waits));
            tokio::time::sleep(open).await;
            (closed, open) = (CLOSED_MAX.min(closed * 2), OPEN_MAX.min(open * 2));
            let sides = self.look_at(pair).await?;
            pin!(self.catch_up(session, &sides, how, &mut state)).await?;
        };
        pin!(self.follow(session, &sides, how, &mut state)).await?;
        let reads = Reads::default();
        let cluster = self.cluster(&sides.catalog, &reads);
        let handed = self.take_over_counters(cluster, &how.copying(&sides), &state.numbers).await;
        handed.map_err(|e| Failed::of_client(&e))?;
        self.swap(pair).await?;
        Ok(state.count)
    }

    /// Closes the table for good, unless somebody goes on working with it for longer than `most`: then it is open again.
    async fn close(
        &self,
        session: &Session,
        pair: &mut Pair<'_>,
        most: Duration,
    ) -> std::result::Result<Option<Sides>, Failed> {
        let sides = self.mark(pair, Some(Stage::Closing)).await?;
        if self.is_left(session, &sides, most).await? {
            let sides = self.mark(pair, Some(Stage::Filling)).await?;
            // A branch that was prepared in between has its rows.
            if self.is_left(session, &sides, most).await? && !self.has_claims(pair.old.id).await? {
                return Ok(Some(sides));
            }
        }
        self.mark(pair, None).await?;
        Ok(None)
    }

    /// Until no transaction has rows of the table.
    async fn is_left(&self, session: &Session, sides: &Sides, most: Duration) -> std::result::Result<bool, Failed> {
        let started = Instant::now();
        loop {
            session.env.may_go_on()?;
            if !self.client.is_in_use(&sides.table.schema).await.map_err(|e| Failed::of_client(&e))? {
                return Ok(true);
            }
            if started.elapsed() > most {
                return Ok(false);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// All rows, each at some snapshot; the copy is like the last of them.
    async fn copy_all(
        &self,
        session: &mut Session,
        sides: &Sides,
        how: &How<'_>,
        state: &mut Following,
    ) -> std::result::Result<(), Failed> {
        let mut progress = self.progress(&sides.table.schema, "copying rows").await;
        while pin!(self.copy_some(session, sides, how, state, &mut progress)).await? {
            pin!(self.follow(session, sides, how, state)).await?;
        }
        state.reached = None;
        Ok(())
    }

    /// The next rows, at the present snapshot. Returns whether there may be more.
    async fn copy_some(
        &self,
        session: &mut Session,
        sides: &Sides,
        how: &How<'_>,
        state: &mut Following,
        progress: &mut Progress,
    ) -> std::result::Result<bool, Failed> {
        let copying = how.copying(sides);
        let (plan, reads) = (rows::plan(&copying)?, Reads::default());
        let cluster = self.cluster(&sides.catalog, &reads);
        let old = &sides.table.schema;
        let mut key = state.reached.take().unwrap_or_default();
        let low = if key.is_empty() { Bound::Unbounded } else { Bound::Excluded(&key[..]) };
        let (snapshot, ordered, limit) = (state.snapshot.epoch(), true, RENEWED);
        let request = ScanRequest { snapshot, ordered, limit, low, ..ScanRequest::all(old.id, old.version) };
        let (mut cursor, mut rows, mut read) = (self.client.scan(&request), Rows::new(), 0);
        state.scratch.images.clear();
        while cursor.next_batch(&mut rows).await.map_err(|e| Failed::of_client(&e))? {
            progress.advance(session, rows.len() as u64).await?;
            read += rows.len() as u64;
            for row in rows.iter().flatten() {
                if is_full(&state.scratch.images) {
                    self.put(session, &copying, &state.scratch.images, OpKind::Insert, false).await?;
                    state.scratch.images.clear();
                }
                state.count += 1;
                pin!(make(cluster, session, state, &plan, &copying, row)).await?;
            }
            if let Some(last) = rows.iter().flatten().last() {
                key_of(old, last, &mut key)?;
            }
        }
        // The last ones are on the disks, and so are all before them.
        self.put(session, &copying, &state.scratch.images, OpKind::Insert, how.on_disk).await?;
        state.reached = Some(key);
        Ok(read == RENEWED)
    }

    /// Until little changes while what has changed is copied.
    async fn catch_up(
        &self,
        session: &mut Session,
        sides: &Sides,
        how: &How<'_>,
        state: &mut Following,
    ) -> std::result::Result<(), Failed> {
        session.info.activity.tells(progress::doing(&sides.table.schema, "copying what has changed meanwhile"));
        for _ in 0..ROUNDS_MAX {
            if pin!(self.follow(session, sides, how, state)).await? <= FEW {
                break;
            }
        }
        Ok(())
    }

    /// Takes the copy to a snapshot of now. Returns how many rows have changed.
    async fn follow(
        &self,
        session: &mut Session,
        sides: &Sides,
        how: &How<'_>,
        state: &mut Following,
    ) -> std::result::Result<u64, Failed> {
        let copying = how.copying(sides);
        let next = self.client.snapshot().await.map_err(|e| Failed::of_client(&e))?;
        pin!(self.follow_pass(session, sides, &copying, state, &next, Pass::Old)).await?;
        let changed = pin!(self.follow_pass(session, sides, &copying, state, &next, Pass::New)).await?;
        state.snapshot = next;
        Ok(changed)
    }

    async fn follow_pass(
        &self,
        session: &mut Session,
        sides: &Sides,
        copying: &Copying<'_>,
        state: &mut Following,
        next: &Snapshot,
        pass: Pass,
    ) -> std::result::Result<u64, Failed> {
        let (plan, reads) = (rows::plan(copying)?, Reads::default());
        let cluster = self.cluster(&sides.catalog, &reads);
        let (since, until) = (state.snapshot.epoch(), next.epoch());
        let kind = if pass == Pass::Old { OpKind::Delete } else { OpKind::Insert };
        let mut cursor = self.client.changed_rows(&sides.table.schema, since, until);
        let (mut changed, mut rows, mut key) = (0, Rows::new(), Vec::new());
        state.scratch.images.clear();
        while cursor.next_batch(&mut rows).await.map_err(|e| Failed::of_client(&e))? {
            for row in rows.iter().flatten() {
                changed += 1;
                let row = ChangedRow::decode(row).map_err(|e| Failed::of_client(&e.into()))?;
                let Some(image) = (if pass == Pass::Old { row.old } else { row.new }) else { continue };
                if let Some(reached) = &state.reached {
                    key_of(&sides.table.schema, image, &mut key)?;
                    if key > *reached {
                        continue;
                    }
                }
                if is_full(&state.scratch.images) {
                    self.put(session, copying, &state.scratch.images, kind, copying.on_disk).await?;
                    state.scratch.images.clear();
                }
                match pass {
                    Pass::Old => {
                        // What it loses on its way was told when it came.
                        let told = (session.warnings.len(), session.unlisted_warnings);
                        pin!(make(cluster, session, state, &plan, copying, image)).await?;
                        session.warnings.truncate(told.0);
                        session.unlisted_warnings = told.1;
                        state.count -= 1;
                    }
                    Pass::New => {
                        state.count += 1;
                        pin!(make(cluster, session, state, &plan, copying, image)).await?;
                    }
                }
            }
        }
        self.put(session, copying, &state.scratch.images, kind, copying.on_disk).await?;
        Ok(changed)
    }

    /// Inserts these rows of the copy, or deletes them.
    async fn put(
        &self,
        session: &Session,
        copying: &Copying<'_>,
        images: &Strings,
        kind: OpKind,
        on_disk: bool,
    ) -> std::result::Result<(), Failed> {
        if images.is_empty() {
            return Ok(());
        }
        let new = &copying.new.schema;
        let (mut ops, mut results, mut key) = (OpBatch::new(), Results::new(), Vec::new());
        ops.hold_constraints();
        for image in images.iter() {
            key.clear();
            let row = if kind == OpKind::Delete { &[] } else { image };
            key::encode_from_row(new, &new.primary_key, image, &mut key)
                .and_then(|_| ops.push(new, kind, 0, &key, row))
                .map_err(|e| errors::from_code(e, &new.name))?;
        }
        let mut attempt = 0;
        loop {
            attempt += 1;
            session.env.may_go_on()?;
            let mut transaction = self.client.begin();
            transaction.wait_for_disk(on_disk);
            let options = ExecOptions::autocommit(LOCK_WAIT_MS);
            match transaction.execute(&ops, options, &mut results).await {
                Ok(()) => return Ok(()),
                Err(e) if e.code == ErrorCode::DuplicateKey => {
                    return Err(duplicate(&session.env, &copying.new, e.index, images.get(e.op as usize)).into());
                }
                Err(e) if may_pass(&e) && attempt < ATTEMPTS_MAX => {}
                // All is copied once more.
                Err(e) if e.class() == ErrorClass::UnknownOutcome => {
                    return Err(Failed { again: true, ..errors::from_client(&e).into() });
                }
                Err(e) => return Err(Failed::of_client(&e)),
            }
        }
    }
}

/// The encoded primary key of a row of the table.
fn key_of(table: &TableSchema, row: &[u8], out: &mut Vec<u8>) -> std::result::Result<(), SqlError> {
    out.clear();
    let encoded = table.layout().check(row).and_then(|()| key::encode_from_row(table, &table.primary_key, row, out));
    encoded.map(|_| ()).map_err(|e| errors::from_code(e, &table.name))
}

fn is_full(images: &Strings) -> bool {
    images.len() >= BATCH || images.byte_len() >= BATCH_BYTES
}

/// Appends the row of the copy to the images.
async fn make(
    cluster: Cluster<'_>,
    session: &mut Session,
    state: &mut Following,
    plan: &Insert,
    copying: &Copying<'_>,
    row: &[u8],
) -> std::result::Result<(), Failed> {
    let old = &copying.old.schema;
    old.layout().check(row).map_err(|e| errors::from_code(e, &old.name))?;
    let number = usize::try_from(state.count.max(1)).unwrap_or(usize::MAX);
    let counts = (&mut state.numbers, &mut state.hidden);
    let made = pin!(one_new_row(cluster, session, &mut state.scratch, plan, copying, row, (number, number), counts));
    made.await.map_err(|fail| Failed::of_row(fail, copying, number))
}
