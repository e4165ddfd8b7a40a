//! Branches of distributed transactions (XA): an open transaction is *prepared*, that is, made into rows that outlive it, and ended later by anybody.
//!
//! What the rows are says `apus_types::claims`, who minds them `apus_blocks::ldm::claims`, why it is so `docs/decisions/0045-xa.md`. Each step is an ordinary transaction:
//!
//! - *Prepare* ([`Transaction::prepare`]): the data nodes list what the transaction holds, its changes are undone (its locks stay), and the same transaction inserts a claim for each row, the branch's row, and
//!   commits. So a branch is there with all its claims, or nothing of it is.
//! - *End* ([`Client::end_branch`]): one transaction locks the branch's row, deletes its claims, makes the changes that they name and deletes the row. Who comes second finds no row.
//!
//! Both wait for the disks where all data nodes have some: the caller's coordinator acts by what it is told, in other databases too.
//!
//! Limits: [`BRANCH_BYTES_MAX`], [`CLAIMS_MAX`].

use std::{collections::BTreeSet, ops::Bound, rc::Rc};

use apus_signal::{
    held::{HELD, HeldRow},
    tc::{ALLOW_MISSING, OpKind, OpStatus},
};
use apus_types::{
    ErrorClass, ErrorCode, TableId, TableSchema, Value,
    claims::{BY_BRANCH, BranchRow, Claim, ClaimKind, HASH_COLUMN, KIND_COLUMN, MORE, PIECE_BYTES, above},
};

use crate::{Client, ClientError, ExecOptions, OpBatch, Results, Rows, ScanRequest, Transaction, retry::Retry};

/// Bytes of keys and rows that one branch may hold: whoever prepares it has them in memory.
pub const BRANCH_BYTES_MAX: usize = 256 << 20;
/// Claims of one branch.
pub const CLAIMS_MAX: usize = 16 << 20;
/// What a held row costs beside its bytes.
const ROW_COST: usize = 64;
/// Operations of one batch.
const BATCH_OPS: usize = 1000;
/// Bytes of one batch, about.
const BATCH_BYTES: usize = 2 << 20;

/// The two tables of branches.
#[derive(Clone, Debug)]
pub struct BranchTables {
    pub branches: Rc<TableSchema>,
    pub claims: Rc<TableSchema>,
}

/// What a transaction holds, in one buffer.
#[derive(Default)]
struct Held {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// Rows that give up an entry of a unique index to another: table and primary key.
    givers: BTreeSet<(TableId, Vec<u8>)>,
}

impl Held {
    fn rows(&self) -> impl Iterator<Item = Result<HeldRow<'_>, ClientError>> {
        (0..self.ends.len()).map(|i| {
            let start = if i == 0 { 0 } else { self.ends[i - 1] };
            Ok(HeldRow::decode(&self.bytes[start..self.ends[i]])?)
        })
    }
    fn push(&mut self, row: &[u8]) -> Result<(), ClientError> {
        let held = HeldRow::decode(row)?;
        if !held.giver.is_empty() {
            self.givers.insert((held.base, held.giver.to_vec()));
        }
        self.bytes.extend_from_slice(row);
        self.ends.push(self.bytes.len());
        let is_large = self.bytes.len() + self.ends.len() * ROW_COST > BRANCH_BYTES_MAX || self.ends.len() > CLAIMS_MAX;
        if is_large { Err(ErrorCode::TransactionTooLarge.into()) } else { Ok(()) }
    }
    fn kind_of(&self, row: &HeldRow<'_>) -> ClaimKind {
        match row {
            HeldRow { exclusive: false, .. } => ClaimKind::Shared,
            // The entries of unique indexes follow their rows.
            HeldRow { written: false, .. } => ClaimKind::Exclusive,
            _ if row.base != TableId(0) => ClaimKind::Exclusive,
            HeldRow { image: [], .. } => ClaimKind::Delete,
            _ if self.givers.contains(&(row.table, row.key.to_vec())) => ClaimKind::Move,
            _ => ClaimKind::Write,
        }
    }
}

impl Transaction {
    /// Makes the open transaction a prepared branch of this name and (random) number. `savepoint` is higher than any number that it has used. The caller has sent all its changes.
    /// `is_still_so` is asked when the claims are there and nobody sees them yet, with the tables in which the branch has claims: if it says no, nothing is prepared.
    ///
    /// # Errors
    /// `DuplicateKey`: there is a branch of this name. In any case the transaction is over and rolled back, except where the class of the error is unknown outcome.
    pub async fn prepare(
        &mut self,
        name: &[u8],
        number: u64,
        savepoint: u32,
        tables: &BranchTables,
        is_still_so: impl AsyncFnOnce(&BTreeSet<TableId>) -> Result<(), ClientError>,
    ) -> Result<(), ClientError> {
        let done = self.try_prepare(name, number, savepoint, tables, is_still_so).await;
        if done.is_err() && !self.is_over() {
            self.rollback().await?;
        }
        done
    }

    async fn try_prepare(
        &mut self,
        name: &[u8],
        number: u64,
        savepoint: u32,
        tables: &BranchTables,
        is_still_so: impl AsyncFnOnce(&BTreeSet<TableId>) -> Result<(), ClientError>,
    ) -> Result<(), ClientError> {
        let held = if self.is_started() { self.held(tables).await? } else { Held::default() };
        if self.is_started() && self.has_writes() {
            self.rollback_to(1).await?;
        }
        self.wait_where_saved();
        let (mut ops, mut results) = (OpBatch::new(), Results::new());
        let options = ExecOptions { savepoint, ..ExecOptions::default() };
        let (mut count, mut touched) = (0u32, BTreeSet::new());
        for row in held.rows() {
            let row = row?;
            touched.insert(if row.base == TableId(0) { row.table } else { row.base });
            push_claims(&mut ops, &tables.claims, &row, held.kind_of(&row), number, &mut count)?;
            if ops.len() >= BATCH_OPS || ops.byte_len() >= BATCH_BYTES {
                self.execute(&ops, options, &mut results).await?;
                ops.clear();
            }
        }
        let (mut key, mut row) = (Vec::new(), Vec::new());
        BranchRow::encode_key(&tables.branches, name, &mut key)?;
        BranchRow { name, branch: number, claims: count.into() }.encode_row(&tables.branches, &mut row)?;
        ops.push(&tables.branches, OpKind::Insert, 0, &key, &row)?;
        self.execute(&ops, options, &mut results).await?;
        is_still_so(&touched).await?;
        self.commit().await.map(|_| ())
    }

    /// The rows that it has locked, as their primaries list them.
    async fn held(&self, tables: &BranchTables) -> Result<Held, ClientError> {
        let request = ScanRequest {
            trans: self.id(),
            index: HELD,
            batch_rows: 4096,
            ..ScanRequest::all(tables.claims.id, tables.claims.version)
        };
        let mut cursor = self.client().scan(&request);
        let (mut held, mut batch) = (Held::default(), Rows::new());
        while cursor.next_batch(&mut batch).await? {
            for row in batch.iter().flatten() {
                held.push(row)?;
            }
        }
        Ok(held)
    }
}

/// The claims for one row: several, if its image is long.
fn push_claims(
    ops: &mut OpBatch,
    schema: &TableSchema,
    row: &HeldRow<'_>,
    kind: ClaimKind,
    branch: u64,
    count: &mut u32,
) -> Result<(), ErrorCode> {
    let mut rest = row.image;
    loop {
        let (image, behind) = rest.split_at(rest.len().min(PIECE_BYTES));
        let (table, more) = (row.table, !behind.is_empty());
        let claim = Claim { table, branch, number: *count, hash: row.hash, kind, more, key: row.key, image };
        let (mut key, mut value) = (Vec::new(), Vec::new());
        claim.encode_key(&mut key);
        claim.encode_row(schema, &mut value)?;
        ops.push_hashed(schema, row.hash, OpKind::Insert, 0, &key, &value)?;
        *count += 1;
        if !more {
            return Ok(());
        }
        rest = behind;
    }
}

/// How a branch ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BranchEnd {
    Commit,
    Rollback,
}

/// One attempt to end a branch.
struct Ending<'a> {
    client: &'a Client,
    tables: &'a BranchTables,
    transaction: Transaction,
    ops: OpBatch,
    results: Results,
    options: ExecOptions,
    branch: u64,
}

impl Client {
    /// Ends the prepared branch of this name. `schema_of` finds the tables that there are; what a branch has changed of others is gone with them.
    /// `false`: there is none, or no more.
    ///
    /// # Errors
    /// The cluster's. With class unknown outcome it may have been ended; otherwise it is as it was.
    pub async fn end_branch(
        &self,
        name: &[u8],
        end: BranchEnd,
        tables: &BranchTables,
        schema_of: impl Fn(TableId) -> Option<Rc<TableSchema>>,
        lock_wait_ms: u32,
    ) -> Result<bool, ClientError> {
        let mut retry = Retry::for_reads(self);
        loop {
            let mut transaction = self.begin();
            transaction.wait_where_saved();
            let options = ExecOptions { commit: false, savepoint: 1, lock_wait_ms };
            let (ops, results) = (OpBatch::new(), Results::new());
            let mut ending = Ending { client: self, tables, transaction, ops, results, options, branch: 0 };
            let error = match ending.run(name, end, &schema_of).await {
                // Prepared by somebody whose commit is not everywhere yet.
                Ok(None) => ClientError::with_detail(ErrorCode::Overload, "the branch is just being prepared"),
                Ok(Some(was_there)) => return Ok(was_there),
                Err(error) => error,
            };
            drop(ending); // rolls back what may be left of it
            if error.class() == ErrorClass::UnknownOutcome
                || !(error.retry_transaction() || error.code.is_temporary())
                || error.code.waits_for_operator()
                || retry.is_over()
            {
                return Err(error);
            }
            retry.pause().await?;
        }
    }

    /// Whether any prepared branch, or one that is just being prepared, claims rows of this table.
    ///
    /// # Errors
    /// As [`Client::scan`].
    pub async fn is_claimed(&self, table: TableId, tables: &BranchTables) -> Result<bool, ClientError> {
        let prefix = table.0.to_be_bytes();
        let above = above(prefix);
        let request = ScanRequest {
            low: Bound::Included(&prefix),
            high: above.as_ref().map_or(Bound::Unbounded, |above| Bound::Excluded(above)),
            with_pending: true,
            columns: Some(&[0]),
            limit: 1,
            ..ScanRequest::all(tables.claims.id, tables.claims.version)
        };
        let mut rows = Rows::new();
        self.scan(&request).next_batch(&mut rows).await
    }

    /// The names of all prepared branches.
    ///
    /// # Errors
    /// As [`Client::scan`].
    pub async fn branches(&self, tables: &BranchTables) -> Result<Vec<Vec<u8>>, ClientError> {
        let schema = &tables.branches;
        let request = ScanRequest { one_moment: true, ordered: true, ..ScanRequest::all(schema.id, schema.version) };
        let mut rows = Rows::new();
        self.scan_all(&request, &mut rows).await?;
        Ok(rows.iter().flatten().map(|row| BranchRow::decode(schema, row).name.to_vec()).collect())
    }

    /// Whether a branch of this name is prepared.
    ///
    /// # Errors
    /// As [`Client::read`].
    pub async fn has_branch(&self, name: &[u8], tables: &BranchTables) -> Result<bool, ClientError> {
        let (mut keys, mut key, mut rows) = (crate::KeyList::new(), Vec::new(), Rows::new());
        BranchRow::encode_key(&tables.branches, name, &mut key)?;
        keys.push(&tables.branches, &key)?;
        self.read(&crate::ReadBatch::newest(&tables.branches, &keys), &mut rows).await?;
        Ok(rows.row(0).is_some())
    }
}

impl Ending<'_> {
    /// `None`: not all claims of the branch are there yet.
    async fn run(
        &mut self,
        name: &[u8],
        end: BranchEnd,
        schema_of: &impl Fn(TableId) -> Option<Rc<TableSchema>>,
    ) -> Result<Option<bool>, ClientError> {
        self.ops.hold_constraints();
        let mut key = Vec::new();
        BranchRow::encode_key(&self.tables.branches, name, &mut key)?;
        self.ops.push_read(&self.tables.branches, true, ALLOW_MISSING, &key, None)?;
        self.send().await?;
        let found = self.results.row(0).filter(|_| self.results.status(0) == Some(OpStatus::Done));
        let Some(claims) = found.map(|row| {
            let row = BranchRow::decode(&self.tables.branches, row);
            self.branch = row.branch;
            row.claims
        }) else {
            return Ok(Some(false));
        };
        let (count, deletes, writes) = self.delete_claims().await?;
        if count != claims {
            return Ok(None);
        }
        if end == BranchEnd::Commit {
            // What takes a unique key from another row finds that one gone.
            for is_delete in [true, false].into_iter().filter(|is_delete| if *is_delete { deletes } else { writes }) {
                self.change(schema_of, is_delete).await?;
            }
        }
        self.ops.push(&self.tables.branches, OpKind::Delete, 0, &key, &[])?;
        self.send().await?;
        self.transaction.commit().await?;
        Ok(Some(true))
    }

    async fn send(&mut self) -> Result<(), ClientError> {
        let done = self.transaction.execute(&self.ops, self.options, &mut self.results).await;
        self.ops.clear();
        done
    }
    async fn send_if_full(&mut self) -> Result<(), ClientError> {
        let is_full = self.ops.len() >= BATCH_OPS || self.ops.byte_len() >= BATCH_BYTES;
        if is_full { self.send().await } else { Ok(()) }
    }

    /// A scan of the claims of the branch, as they are committed: what this transaction does with them is not seen.
    fn claims<'s>(
        &'s self,
        (prefix, above): (&'s [u8; 8], &'s Option<[u8; 8]>),
        columns: Option<&'s [u16]>,
    ) -> ScanRequest<'s> {
        let schema = &self.tables.claims;
        ScanRequest {
            index: BY_BRANCH,
            ordered: true,
            with_keys: columns.is_some(),
            low: Bound::Included(prefix),
            high: above.as_ref().map_or(Bound::Unbounded, |above| Bound::Excluded(above)),
            columns,
            ..ScanRequest::all(schema.id, schema.version)
        }
    }

    /// Deletes all claims of the branch. Returns how many there were, and whether rows are to be deleted, and to be written.
    async fn delete_claims(&mut self) -> Result<(u64, bool, bool), ClientError> {
        let (schema, prefix) = (self.tables.claims.clone(), self.branch.to_be_bytes());
        let columns = [HASH_COLUMN, KIND_COLUMN];
        let layout = schema.layout().project_layout(&columns).ok_or(ErrorCode::InvalidSchema)?;
        let mut cursor = self.client.scan(&self.claims((&prefix, &above(prefix)), Some(&columns)));
        let (mut rows, mut count, mut deletes, mut writes) = (Rows::new(), 0, false, false);
        while cursor.next_batch(&mut rows).await? {
            for i in 0..rows.len() {
                let (Value::UInt(hash), Value::UInt(kind)) = (
                    layout.value(rows.row(i).unwrap_or_default(), 0),
                    layout.value(rows.row(i).unwrap_or_default(), 1),
                ) else {
                    return Err(ErrorCode::InvalidSchema.into());
                };
                let is = |wanted: ClaimKind| kind as u8 & !MORE == wanted as u8;
                deletes |= is(ClaimKind::Delete) || is(ClaimKind::Move);
                writes |= is(ClaimKind::Write) || is(ClaimKind::Move);
                // Behind the number of the branch, the entry has the claim's own key.
                let key = rows.key(i).get(prefix.len()..).ok_or(ErrorCode::InvalidSchema)?;
                self.ops.push_hashed(&schema, hash, OpKind::Delete, 0, key, &[])?;
                self.send_if_full().await?;
                count += 1;
            }
        }
        self.send().await?;
        Ok((count, deletes, writes))
    }

    /// Deletes the rows that are to go, or to move; or writes all others.
    async fn change(
        &mut self,
        schema_of: &impl Fn(TableId) -> Option<Rc<TableSchema>>,
        is_delete: bool,
    ) -> Result<(), ClientError> {
        let (schema, prefix) = (self.tables.claims.clone(), self.branch.to_be_bytes());
        let mut cursor = self.client.scan(&self.claims((&prefix, &above(prefix)), None));
        let (mut rows, mut image) = (Rows::new(), Vec::new());
        while cursor.next_batch(&mut rows).await? {
            for row in rows.iter().flatten() {
                let claim = Claim::decode(&schema, row)?;
                image.extend_from_slice(claim.image);
                if claim.more {
                    continue;
                }
                let image = std::mem::take(&mut image);
                let (kind, value): (_, &[u8]) = match (claim.kind, is_delete) {
                    (ClaimKind::Delete | ClaimKind::Move, true) => (OpKind::Delete, &[]),
                    (ClaimKind::Write | ClaimKind::Move, false) => (OpKind::Write, &image),
                    _ => continue,
                };
                let Some(table) = schema_of(claim.table) else { continue };
                self.ops.push_hashed(&table, claim.hash, kind, ALLOW_MISSING, claim.key, value)?;
                self.send_if_full().await?;
            }
        }
        self.send().await
    }
}
