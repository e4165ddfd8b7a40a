//! Temporary tables that nobody has are kept for a while, emptied: applications make the same ones again and again, and a change of the dictionary goes to all nodes and every SQL thread reads it.
//!
//! A spare table is given to a session that asks for the same definition, whatever it calls it. A snapshot that is older than the emptying would show the rows from before, so a session that reads at one is given
//! none. Limits: [`SPARE_MAX`], [`SPARE_FOR`], [`ROWS_MAX`].

use std::{
    rc::Rc,
    time::{Duration, Instant},
};

use apus_client::{OpBatch, Results, Rows, ScanRequest};
use apus_signal::{
    schema::TableMessage,
    tc::{ALLOW_MISSING, OpKind},
};
use apus_types::{TableSchema, key};

use super::{Left, OfThread, Owner};
use crate::{
    catalog::{Table, statistics},
    errors::{self, Result},
    session::{Session, engine::SqlEngine, system_rows::ROW_WAIT_MS},
};

/// Spare tables of a thread.
const SPARE_MAX: usize = 32;
/// One that nobody has asked for so long is dropped.
pub(super) const SPARE_FOR: Duration = Duration::from_secs(20);
/// A table with more rows is dropped rather than emptied.
const ROWS_MAX: u64 = 1000;
/// Rows that one transaction deletes.
const BATCH: u32 = 250;

/// An empty table that is nobody's.
pub(super) struct Spare {
    shape: Rc<TableMessage>,
    table: Rc<Table>,
    owner: Rc<Owner>,
    since: Instant,
}

impl From<Spare> for Left {
    fn from(spare: Spare) -> Left {
        Left {
            kept_as: spare.table.kept_as.as_deref().map(str::to_owned),
            table: Some(spare.table),
            owner: spare.owner,
        }
    }
}

/// What two tables have in common that can stand for each other.
pub(crate) fn shape(table: &TableSchema) -> Rc<TableMessage> {
    let message = TableMessage { database: String::new(), name: String::new(), ..TableMessage::from(table) };
    Rc::new(message)
}

impl OfThread {
    /// Spare tables that are not wanted any more.
    pub(super) fn old_spare(&self) -> Option<Left> {
        let mut spare = self.spare.borrow_mut();
        let is_old = spare.front()?.since.elapsed() >= SPARE_FOR || spare.len() > SPARE_MAX;
        if is_old { spare.pop_front().map(Left::from) } else { None }
    }
}

impl SqlEngine {
    /// A spare table of this definition, for the session.
    pub(crate) fn take_spare(
        &self,
        session: &mut Session,
        shape: &TableMessage,
        database: &str,
        name: &str,
    ) -> Option<Rc<Table>> {
        if session.snapshot.is_some() {
            return None;
        }
        let own = session.temporary.owner.as_ref().map(|owner| owner.id);
        let mut all = self.temporary.spare.borrow_mut();
        let fits = |spare: &Spare| *spare.shape == *shape && own.is_none_or(|own| own == spare.owner.id);
        let at = all.iter().position(|spare| fits(spare) && spare.owner.lock.is_held())?;
        let spare = all.remove(at)?;
        session.temporary.owner.get_or_insert(spare.owner);
        let schema = &spare.table.schema;
        Some(match schema.database == database && schema.name == name {
            // Plans that were made for it are good.
            true => spare.table,
            false => Rc::new(spare.table.called(database, name)),
        })
    }

    /// Empties a table that was left, and keeps it; `false`: it is to be dropped.
    pub(super) async fn keep_spare(&self, left: &Left) -> bool {
        let Some(table) = &left.table else { return false };
        let Some(shape) = self.temporary.shapes.borrow().get(&table.schema.id).cloned() else { return false };
        if !left.owner.lock.is_held() || !self.empty(table).await.unwrap_or(false) {
            return false;
        }
        self.forget_table(table.schema.id);
        let (table, owner, since) = (table.clone(), left.owner.clone(), Instant::now());
        self.temporary.shapes.borrow_mut().insert(table.schema.id, shape.clone());
        self.temporary.spare.borrow_mut().push_back(Spare { shape, table, owner, since });
        true
    }

    /// Deletes all rows; `false`: they are too many.
    async fn empty(&self, table: &Table) -> Result<bool> {
        let schema = &table.schema;
        let failed = |e| errors::from_client(&e);
        if statistics::rows_of(&self.client, table).await.map_err(failed)? > ROWS_MAX {
            return Ok(false);
        }
        let mut request = ScanRequest::all(schema.id, schema.version);
        request.columns = Some(&schema.primary_key);
        request.batch_rows = BATCH;
        let layout = schema.layout().project_layout(&schema.primary_key);
        let layout = layout.ok_or_else(|| errors::internal("a primary key without a layout"))?;
        let (mut cursor, mut rows) = (self.client.scan(&request), Rows::new());
        let (mut ops, mut results) = (OpBatch::new(), Results::new());
        ops.hold_constraints();
        while cursor.next_batch(&mut rows).await.map_err(failed)? {
            ops.clear();
            for row in rows.iter().flatten() {
                let mut encoded = Vec::new();
                for (i, &column) in schema.primary_key.iter().enumerate() {
                    let ty = schema.columns[usize::from(column)].ty;
                    key::encode_part(ty, false, &layout.value(row, i as u16), &mut encoded)
                        .map_err(|e| errors::from_code(e, ""))?;
                }
                ops.push(schema, OpKind::Delete, ALLOW_MISSING, &encoded, &[]).map_err(|e| errors::from_code(e, ""))?;
            }
            if !ops.is_empty() {
                self.client.run_autocommit(&ops, ROW_WAIT_MS, &mut results).await.map_err(failed)?;
            }
        }
        Ok(true)
    }
}
