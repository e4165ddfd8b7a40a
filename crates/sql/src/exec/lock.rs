//! Rows that a statement locks: SELECT ... FOR UPDATE, and UPDATE and DELETE that cannot be done by key alone.
//!
//! A committed read finds candidates (primary keys, in the order asked), then they are locked in batches and the condition is
//! checked again on the locked row, which is the current one. With a LIMIT no more candidates are looked for and no more
//! rows locked than it needs: when candidates fell away in between, more are looked for.
//!
//! Limits: [`CANDIDATE_BYTES_MAX`] of candidates, [`LOCKED_BYTES_MAX`] of locked rows held at a time (error 1206).

use std::pin::pin;

use apus_signal::tc::{ALLOW_MISSING, NO_WAIT, OpStatus, SKIP_LOCKED};
use apus_types::{Epoch, RowLayout, key};

use super::{
    Cluster, execute, next_savepoint,
    read::{Seen, source::Source},
    reader,
    sink::{self, push_order_keys},
};
use crate::{
    catalog::Table,
    errors,
    expr::{Context, Env, Expr},
    plan::{
        access::{Access, Path},
        select::{Lock, OrderKey},
    },
    session::{Done, Session, buffers::Scratch},
    value::datum::Datum,
};

/// Rows of a batch that are remembered as the transaction's own.
pub const OWN_AT_ONCE: usize = 16;
/// Rows locked per batch.
const LOCK_BATCH: usize = 512;
/// Memory of the candidates (primary keys, with sort keys where rows are ordered) of one statement, in bytes.
pub const CANDIDATE_BYTES_MAX: usize = 256 << 20;
/// Memory of the locked rows that one statement holds at a time, in bytes.
pub const LOCKED_BYTES_MAX: usize = 256 << 20;
/// Candidates looked for at first when there is a LIMIT, and by how much more at each further attempt.
const CANDIDATES_LEAST: u64 = 16;
const CANDIDATES_GROWTH: u64 = 8;

/// What is to be locked.
#[derive(Clone, Copy)]
pub struct Wanted<'p> {
    pub table: &'p Table,
    pub access: &'p Access,
    pub order: &'p [OrderKey],
    /// The path delivers the order (backwards).
    pub in_order: bool,
    pub reverse: bool,
    /// How SELECT locks; `None`: exclusively, as changes do.
    pub lock: Option<Lock>,
    pub params: &'p [Datum<'p>],
    /// A change in strict mode: what a condition warns of refuses the statement.
    pub strict: bool,
}

/// The search for rows to lock, a batch at a time.
pub struct Hunt<'p> {
    wanted: Wanted<'p>,
    /// Rows still wanted.
    left: u64,
    limited: bool,
    /// Candidates looked for at most.
    most: u64,
    /// The last search ended at `most`.
    cut: bool,
    searched: bool,
    at: usize,
    /// Rows locked at a time.
    batch: usize,
}

impl<'p> Hunt<'p> {
    /// `limit` rows at most.
    pub fn new(s: &mut Scratch, wanted: Wanted<'p>, limit: Option<u64>) -> Hunt<'p> {
        s.done.clear();
        s.candidates.clear();
        s.locked.clear();
        let left = limit.unwrap_or(u64::MAX);
        let most = limit.map_or(u64::MAX, |n| n.max(CANDIDATES_LEAST));
        Hunt { wanted, left, limited: limit.is_some(), most, cut: false, searched: false, at: 0, batch: LOCK_BATCH }
    }

    /// What is done with one row may change the next: they come by primary key, if no order is asked for.
    pub fn one_by_one(&mut self) {
        self.batch = 1;
    }

    /// Locks some rows and appends them (by primary key) to `s.locked`; false when there are no more.
    ///
    /// # Errors
    /// Refusals of locks; error 1206 over the memory limits.
    pub async fn next(&mut self, cluster: Cluster<'_>, session: &mut Session, s: &mut Scratch) -> Done<bool> {
        let before = s.locked.len();
        while self.left > 0 && s.locked.len() == before {
            session.env.may_go_on()?;
            if self.at >= s.candidates.len() {
                if self.searched && !self.cut {
                    return Ok(false);
                }
                if self.searched {
                    self.most = self.most.saturating_mul(CANDIDATES_GROWTH);
                }
                self.searched = true;
                self.at = 0;
                self.cut = pin!(candidates(cluster, session, s, self.wanted, self.most)).await?;
                if self.batch == 1 && self.wanted.order.is_empty() {
                    s.candidates.sort_by_payload();
                }
                if s.candidates.is_empty() {
                    return Ok(false);
                }
            }
            let count = (s.candidates.len() - self.at).min(self.batch);
            let count = usize::try_from(self.left).map_or(count, |left| count.min(left));
            pin!(self.lock(cluster, session, s, count)).await?;
            self.at += count;
            self.left = self.left.saturating_sub((s.locked.len() - before) as u64);
        }
        Ok(s.locked.len() > before)
    }

    /// All rows that were wanted are locked.
    pub fn is_over(&self, s: &Scratch) -> bool {
        self.left == 0 || self.searched && !self.cut && self.at >= s.candidates.len()
    }

    /// Locks the next `count` candidates. Those that the transaction has locked before are known.
    async fn lock(&self, cluster: Cluster<'_>, session: &mut Session, s: &mut Scratch, count: usize) -> Done<()> {
        let Wanted { table, access, lock, params, strict, .. } = self.wanted;
        let schema = &table.schema;
        let numbers = self.at..self.at + count;
        let filter = access.full.as_ref();
        let is_own = |i| session.own.find(schema, s.candidates.payload(i)).is_some();
        if count <= OWN_AT_ONCE && session.own.has_rows() && numbers.clone().all(is_own) {
            for i in numbers {
                let key = s.candidates.payload(i);
                let Some(row) = session.own.find(schema, key) else { continue };
                if passes(filter, schema.layout(), row, params, &session.env, strict)? {
                    s.locked.push_plain(key, row);
                    if self.limited {
                        s.done.insert(key);
                    }
                }
            }
            return Ok(());
        }
        let exclusive = lock.is_none_or(|l| l.exclusive);
        let wait = match lock {
            Some(Lock { no_wait: true, .. }) => NO_WAIT,
            Some(Lock { skip_locked: true, .. }) => SKIP_LOCKED,
            _ => 0,
        };
        s.ops.clear();
        for i in numbers {
            s.ops.push_read(schema, exclusive, ALLOW_MISSING | wait, s.candidates.payload(i), None)?;
        }
        let savepoint = next_savepoint(session);
        pin!(execute(cluster, session, &s.ops, &mut s.results, savepoint, false)).await?;
        let layout = schema.layout();
        for (i, (status, row)) in s.results.iter().enumerate() {
            let key = s.candidates.payload(self.at + i);
            if status == OpStatus::NotFound {
                cluster.reads.missing(schema, key);
            }
            if status != OpStatus::Done {
                continue;
            }
            layout.check(row)?;
            if exclusive && count <= OWN_AT_ONCE {
                session.own.hold(schema, key, row);
            }
            if passes(filter, layout, row, params, &session.env, strict)? {
                s.locked.push_plain(key, row);
                if self.limited {
                    s.done.insert(key);
                }
            }
        }
        if s.locked.byte_len() + s.done.byte_len() > LOCKED_BYTES_MAX {
            return Err(errors::too_many_locks().into());
        }
        Ok(())
    }
}

fn passes(
    filter: Option<&Expr>,
    layout: &RowLayout,
    row: &[u8],
    params: &[Datum<'_>],
    env: &Env,
    strict: bool,
) -> errors::Result<bool> {
    let Some(filter) = filter else { return Ok(true) };
    let found = filter.passes(&Context { layout, row, new_row: None, params, aggregates: &[], given: &[], env })?;
    refuse_fault(env, strict)?;
    Ok(found)
}

/// With sql_safe_updates a change needs a LIMIT or a condition on a key.
pub fn refuse_unsafe(env: &Env, path: &Path, limit: Option<&Expr>) -> errors::Result<()> {
    let whole = matches!(path, Path::Range { equal, low: None, high: None, .. } if equal.is_empty());
    if env.variables.safe_updates && limit.is_none() && whole { Err(errors::safe_update()) } else { Ok(()) }
}

/// What an expression of a change has warned of is an error in strict mode.
pub fn refuse_fault(env: &Env, strict: bool) -> errors::Result<()> {
    match env.fault_if(strict) {
        Some(fault) => Err(fault),
        None => Ok(()),
    }
}

/// Fills `s.candidates` with the primary keys of rows that satisfy the condition at the moment, in the order asked and without
/// those in `s.done`; true when it stopped at `most`.
async fn candidates(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    wanted: Wanted<'_>,
    most: u64,
) -> Done<bool> {
    let Wanted { table, access, order, params, strict, .. } = wanted;
    let schema = &table.schema;
    let layout = schema.layout();
    let env = &session.env;
    let sorted = !order.is_empty() && !wanted.in_order;
    s.candidates.clear();
    let empty = Context { layout, row: &[], new_row: None, params, aggregates: &[], given: &[], env };
    access.path.bind(table, &empty, &mut s.bound)?;
    access.pushed.bind(schema, &empty, &mut s.bound)?;
    refuse_fault(env, strict)?;
    if s.bound.empty {
        return Ok(false);
    }
    let no_key = |_: &mut Vec<u8>| Ok::<(), crate::wire::SqlError>(());
    if matches!(access.path, Path::Points { index: None, .. }) && !s.bound.fallback && !sorted {
        let (points, done) = (&s.bound.points, &s.done);
        for point in points.iter().filter(|point| !done.contains(point)) {
            s.candidates.push(no_key, point)?;
        }
        return Ok(false);
    }
    // Locks are taken of what is there now; what a SERIALIZABLE transaction looks for is of its snapshot.
    let snapshot = match session.reads.are_kept() && !table.is_temporary() {
        true => session.reading_at(cluster.client).await?,
        false => Epoch(0),
    };
    let trans = reader(session, schema).await?;
    let env = &session.env;
    let seen = Seen { trans, snapshot, one_moment: false };
    let ordered = wanted.in_order && !order.is_empty();
    let limit = if access.full.is_none() && !sorted { most.saturating_add(s.done.len() as u64) } else { u64::MAX };
    let mut source = pin!(Source::open(cluster, s, table, access, None, seen, ordered, wanted.reverse, limit)).await?;
    let mut primary = std::mem::take(&mut s.key);
    loop {
        if !pin!(source.next(cluster, s, table, None)).await? {
            let is_found = !s.candidates.is_empty() || !s.done.is_empty();
            if is_found || !source.make_sure(cluster, s, table, access, None, seen).await? {
                break;
            }
            continue;
        }
        env.may_go_on()?;
        for row in s.rows.iter().flatten() {
            match passes(access.full.as_ref(), layout, row, params, env, strict) {
                Ok(true) => {}
                Ok(false) => continue,
                // Perhaps those before it are all that is wanted.
                Err(_) if most != u64::MAX && !sorted && !s.candidates.is_empty() => {
                    s.key = primary;
                    return Ok(true);
                }
                Err(e) => return Err(e.into()),
            }
            primary.clear();
            key::encode_from_row(schema, &schema.primary_key, row, &mut primary)?;
            if s.done.contains(&primary) {
                continue;
            }
            if sorted {
                let cx = Context { layout, row, new_row: None, params, aggregates: &[], given: &[], env };
                s.candidates.push(|out| push_order_keys(order, &cx, out), &primary)?;
            } else {
                s.candidates.push(no_key, &primary)?;
                if s.candidates.len() as u64 >= most {
                    s.key = primary;
                    return Ok(true);
                }
            }
        }
        if s.candidates.byte_len() > CANDIDATE_BYTES_MAX {
            return Err(errors::too_many_locks().into());
        }
    }
    s.key = primary;
    if sorted {
        s.candidates.sort();
    }
    Ok(false)
}

/// Locks one row exclusively and returns it.
pub async fn lock_row(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    table: &Table,
    key: &[u8],
) -> Done<Option<Vec<u8>>> {
    s.ops.clear();
    s.ops.push_read(&table.schema, true, ALLOW_MISSING, key, None)?;
    let savepoint = next_savepoint(session);
    execute(cluster, session, &s.ops, &mut s.results, savepoint, false).await?;
    if s.results.status(0) != Some(OpStatus::Done) {
        return Ok(None);
    }
    let row = s.results.row(0).unwrap_or(&[]);
    table.schema.layout().check(row)?;
    Ok(Some(row.to_vec()))
}

/// Value of LIMIT.
pub fn limit(
    session: &Session,
    layout: &RowLayout,
    e: Option<&Expr>,
    params: &[Datum<'_>],
) -> errors::Result<Option<u64>> {
    sink::count(e, &Context { layout, row: &[], new_row: None, params, aggregates: &[], given: &[], env: &session.env })
}
