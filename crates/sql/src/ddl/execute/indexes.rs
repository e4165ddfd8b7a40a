//! Indexes that come and go: a unique one is filled before it counts.

use apus_client::{ExecOptions, OpBatch, Results, Rows, ScanRequest};
use apus_signal::{
    dict::{Change, IndexChange, TableName},
    tc::OpKind,
};
use apus_types::{ErrorCode, TableSchema, key};

use crate::{
    catalog::{
        full_text,
        key_parts::{self, IndexClause},
    },
    ddl::{alter::alter_clause::AlterClause, foreign_key, progress},
    errors::{self, Result},
    parse::token::Name,
    plan::rules::functional,
    session::{Session, engine::SqlEngine},
    wire::SqlError,
};

/// Rows of a unique index filled per transaction.
const FILL_BATCH: u32 = 256;

/// Attempts of one batch of filling that meets a lock or a failing node.
pub(super) const FILL_ATTEMPTS: u32 = 50;

impl SqlEngine {
    /// CREATE INDEX and DROP INDEX. `table`: as the statement names it.
    pub(in crate::ddl) async fn change_indexes(
        &self,
        session: &mut Session,
        name: TableName,
        table: Name,
        indexes: Vec<IndexClause>,
        drops: Vec<String>,
    ) -> Result<()> {
        let known = self.catalog().await?.table(&name.database, &name.table)?;
        let is_more = |name: &String| full_text::has(&known.schema, name) || functional::is_index(&known.schema, name);
        let comes = |index: &IndexClause| index.full_text || !index.expressions.is_empty();
        if indexes.iter().any(comes) || drops.iter().any(is_more) {
            let clause = AlterClause::of_indexes(table, indexes, drops);
            return self.alter_table(session, name, clause).await.map(|_| ());
        }
        for index in &drops {
            match self.drop_index(&name, index).await? {
                Some(ErrorCode::IndexNotFound) => {
                    let text = format!("Can't DROP '{index}'; check that column/key exists");
                    return Err(SqlError::new(1091, b"42000", text));
                }
                Some(code) => return Err(errors::from_code(code, index)),
                None => {}
            }
        }
        for index in &indexes {
            self.add_index(session, &name, index).await?;
        }
        Ok(())
    }

    pub(super) async fn drop_index(&self, name: &TableName, index: &str) -> Result<Option<ErrorCode>> {
        for _ in 0..FILL_ATTEMPTS {
            let catalog = self.fetch_catalog().await?;
            let table = catalog.table(&name.database, &name.table)?;
            let indexes = [index.to_owned()];
            let loss = foreign_key::Loss { indexes: &indexes, columns: &[], redefined: &[], keys: &[] };
            foreign_key::check_loss(&catalog, &table.schema, &loss)?;
            let change = IndexChange {
                table: Some(name.clone()),
                name: index.to_owned(),
                version: table.schema.version,
                ..IndexChange::default()
            };
            match self.change(Change::DropIndex(change)).await? {
                Some(ErrorCode::SchemaVersionChanged) => {}
                done => return Ok(done),
            }
        }
        Ok(Some(ErrorCode::SchemaVersionChanged))
    }

    pub(crate) async fn add_index(&self, session: &Session, name: &TableName, clause: &IndexClause) -> Result<()> {
        let mut change = self.new_index(name, clause).await?;
        let index = change.name.clone();
        session.info.activity.tells(progress::doing_at(&name.database, &name.table, "data nodes build the index"));
        let mut made = self.change(Change::CreateIndex(change.clone())).await?;
        for _ in 0..FILL_ATTEMPTS {
            if made != Some(ErrorCode::SchemaVersionChanged) {
                break;
            }
            change = self.new_index(name, clause).await?;
            made = self.change(Change::CreateIndex(change.clone())).await?;
        }
        if let Some(code) = made {
            return Err(errors::from_code(code, &index));
        }
        if !clause.unique {
            return Ok(());
        }
        for _ in 0..FILL_ATTEMPTS {
            change.lineage = match self.fill_unique(session, name, &index).await {
                Ok(lineage) => lineage,
                Err(e) => {
                    self.change(Change::DropIndex(change)).await?;
                    return Err(e);
                }
            };
            match self.change(Change::PublishIndex(change.clone())).await? {
                // The cluster has started from the disks since: rows may be others.
                Some(ErrorCode::SchemaVersionChanged) => {}
                Some(code) => return Err(errors::from_code(code, &index)),
                None => return Ok(()),
            }
        }
        self.change(Change::DropIndex(change)).await?;
        Err(errors::from_code(ErrorCode::SchemaVersionChanged, &index))
    }

    /// An index by the columns that the table has now.
    async fn new_index(&self, name: &TableName, clause: &IndexClause) -> Result<IndexChange> {
        let table = self.fetch_catalog().await?.table(&name.database, &name.table)?;
        let index = key_parts::index_name(&table.schema, clause)?;
        let mut columns = Vec::new();
        for column in &clause.columns {
            let no = table.schema.column_no(column).ok_or_else(|| errors::no_key_column(column))?;
            columns.push(no);
        }
        let prefixes = key_parts::prefixes(&table.schema, &columns, &clause.lengths, None)?;
        let columns = columns.into_iter().map(u32::from).collect();
        let form = u32::from(table.schema.form);
        let (table, unique, invisible) = (Some(name.clone()), clause.unique, clause.invisible);
        let descending = clause.descending.iter().map(|&at| at.into()).collect();
        let name = index;
        Ok(IndexChange {
            table,
            name,
            columns,
            prefixes,
            descending,
            unique,
            form,
            invisible,
            ..IndexChange::default()
        })
    }

    /// Enters the rows that were there before the index into its hidden table. Each is locked shared meanwhile, so that no change of
    /// it can slip between reading and entering; rows written since carry their own entries. The cluster's lineage when it began.
    async fn fill_unique(&self, session: &Session, name: &TableName, index: &str) -> Result<u64> {
        let catalog = self.fetch_catalog().await?;
        let table = catalog.table(&name.database, &name.table)?;
        let position = table.schema.indexes.iter().position(|i| i.name == index);
        let hidden = position.and_then(|p| table.hidden.get(p)).and_then(|h| h.as_ref());
        let (Some(position), Some(hidden)) = (position, hidden) else {
            return Err(errors::internal("unique index vanished"));
        };
        let schema = &table.schema;
        self.check_no_claims(schema.id).await?;
        let mut request = ScanRequest::all(schema.id, schema.version);
        request.columns = Some(&schema.primary_key);
        request.batch_rows = FILL_BATCH;
        // What was written before the definition and is not committed yet has no entry either.
        request.with_pending = true;
        let key_layout =
            schema.layout().project_layout(&schema.primary_key).ok_or_else(|| errors::internal("projection"))?;
        let mut cursor = self.client.scan(&request);
        let mut rows = Rows::new();
        let mut progress = self.progress(schema, "filling the index").await;
        while cursor.next_batch(&mut rows).await.map_err(|e| errors::from_client(&e))? {
            session.env.may_go_on()?;
            let mut keys = Vec::with_capacity(rows.len());
            for row in rows.iter().flatten() {
                let mut key = Vec::new();
                for (i, &column) in schema.primary_key.iter().enumerate() {
                    let ty = schema.columns[usize::from(column)].ty;
                    key::encode_part(ty, false, &key_layout.value(row, i as u16), &mut key)
                        .map_err(|e| errors::from_code(e, ""))?;
                }
                keys.push(key);
            }
            let mut attempt = 0;
            loop {
                attempt += 1;
                match self.fill_batch(&table, position, hidden, &keys).await {
                    Ok(()) => break,
                    Err(e)
                        if attempt < FILL_ATTEMPTS
                            && (e.retry_transaction()
                                || matches!(e.code, ErrorCode::Deadlock | ErrorCode::LockTimeout)) => {}
                    Err(e) if e.code == ErrorCode::DuplicateKey => {
                        return Err(errors::duplicate_key(&e.detail, &format!("{}.{index}", schema.name)));
                    }
                    Err(e) => return Err(errors::from_client(&e)),
                }
            }
            progress.advance(session, rows.len() as u64).await?;
        }
        Ok(catalog.lineage)
    }

    async fn fill_batch(
        &self,
        table: &crate::catalog::Table,
        position: usize,
        hidden: &TableSchema,
        keys: &[Vec<u8>],
    ) -> std::result::Result<(), apus_client::ClientError> {
        use apus_types::Value;
        let schema = &table.schema;
        let (mut ops, mut results) = (OpBatch::new(), Results::new());
        for key in keys {
            ops.push_read(schema, false, apus_signal::tc::ALLOW_MISSING, key, None)?;
        }
        let mut transaction = self.client.begin();
        transaction
            .execute(&ops, ExecOptions { commit: false, savepoint: 1, lock_wait_ms: 10_000 }, &mut results)
            .await?;
        ops.clear();
        let mut entries = Vec::new();
        for (primary, (status, row)) in keys.iter().zip(results.iter()) {
            if status != apus_signal::tc::OpStatus::Done {
                continue;
            }
            let mut entry = Vec::new();
            if key::encode_unique(schema, &schema.indexes[position], row, &mut entry)? {
                continue; // NULL is in no unique index
            }
            let mut image = Vec::new();
            let hash = key::distribution_hash(schema, primary);
            hidden.layout().encode(&[Value::Bytes(&entry), Value::UInt(hash), Value::Bytes(primary)], &mut image)?;
            ops.push(hidden, OpKind::Insert, apus_signal::tc::ALLOW_DUPLICATE, &entry, &image)?;
            let columns = &schema.indexes[position].columns;
            let shown: Vec<String> = columns
                .iter()
                .map(|&c| {
                    crate::expr::result_cells::display(&schema.columns[usize::from(c)], schema.layout().value(row, c))
                })
                .collect();
            entries.push((entry, primary.clone(), shown.join("-")));
        }
        if ops.is_empty() {
            transaction.rollback().await?;
            return Ok(());
        }
        transaction
            .execute(&ops, ExecOptions { commit: false, savepoint: 2, lock_wait_ms: 10_000 }, &mut results)
            .await?;
        // An entry that is there already was written with its row, if it names this row; otherwise two rows share the key.
        let taken: Vec<usize> = results
            .iter()
            .enumerate()
            .filter(|(_, (status, _))| *status == apus_signal::tc::OpStatus::Duplicate)
            .map(|(i, _)| i)
            .collect();
        if !taken.is_empty() {
            ops.clear();
            for &i in &taken {
                ops.push_read(hidden, false, apus_signal::tc::ALLOW_MISSING, &entries[i].0, None)?;
            }
            transaction
                .execute(&ops, ExecOptions { commit: false, savepoint: 3, lock_wait_ms: 10_000 }, &mut results)
                .await?;
            for (&i, (_, row)) in taken.iter().zip(results.iter()) {
                if hidden.layout().raw(row, apus_types::schema::HIDDEN_PK_COLUMN) != entries[i].1 {
                    let shown = entries[i].2.clone();
                    transaction.rollback().await?;
                    return Err(apus_client::ClientError::with_detail(ErrorCode::DuplicateKey, shown));
                }
            }
        }
        transaction.commit().await?;
        Ok(())
    }
}
