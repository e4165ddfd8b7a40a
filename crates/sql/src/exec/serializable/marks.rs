//! Marks of tables: rows without content, one for each table, for their locks alone. They are made when they are first needed, and stay.

use std::rc::Rc;

use apus_client::{OpBatch, Results};
use apus_signal::tc::{ALLOW_MISSING, OpKind, OpStatus};
use apus_types::{Column, ColumnType, ErrorCode, TableId, TableSchema, Value, schema::Durability};

use crate::{
    catalog::{Catalog, SYSTEM_DATABASE, Table},
    exec::{Cluster, execute, next_savepoint},
    session::{
        Done, Session,
        system_rows::{ROW_WAIT_MS, encoded_key},
    },
};

const NAME: &str = "serializable_marks";

/// The table; its rows end with the data nodes, as their locks do.
pub struct Marks(Rc<Table>);

impl Marks {
    pub fn of(catalog: &Catalog) -> Option<Marks> {
        catalog.find(SYSTEM_DATABASE, NAME).map(Marks)
    }

    pub fn definition() -> TableSchema {
        let ty = ColumnType::Int { bits: 32, unsigned: true };
        let mut schema = TableSchema::new(
            SYSTEM_DATABASE,
            NAME,
            vec![Column { nullable: false, ..Column::new("table_id", ty) }],
            vec![0],
        );
        schema.durability = Durability::None;
        schema
    }

    /// Locks the mark of a table in the session's transaction.
    pub async fn take(&self, cluster: Cluster<'_>, session: &mut Session, table: TableId, exclusive: bool) -> Done<()> {
        let schema = &self.0.schema;
        let key = encoded_key(schema, &Value::UInt(table.0.into()))?;
        let (mut ops, mut results) = (OpBatch::new(), Results::new());
        ops.push_read(schema, exclusive, ALLOW_MISSING, &key, None)?;
        loop {
            let savepoint = next_savepoint(session);
            execute(cluster, session, &ops, &mut results, savepoint, false).await?;
            if results.status(0) == Some(OpStatus::Done) {
                return Ok(());
            }
            self.make(cluster, table, &key).await?;
        }
    }

    async fn make(&self, cluster: Cluster<'_>, table: TableId, key: &[u8]) -> Done<()> {
        let schema = &self.0.schema;
        let (mut ops, mut row) = (OpBatch::new(), Vec::new());
        schema.layout().encode(&[Value::UInt(table.0.into())], &mut row)?;
        ops.push(schema, OpKind::Insert, 0, key, &row)?;
        match cluster.client.run_autocommit(&ops, ROW_WAIT_MS, &mut Results::new()).await {
            Err(e) if e.code == ErrorCode::DuplicateKey => Ok(()),
            other => Ok(other.map(|_| ())?),
        }
    }
}
