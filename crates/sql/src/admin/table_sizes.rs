//! How large tables are, as information_schema.TABLES and SHOW TABLE STATUS tell it.
//!
//! Rows are what the data nodes count, some of which may not be committed. Lengths are those of one copy, by the first [`SAMPLE`] rows along the primary key: an estimate, as InnoDB's are. All tables are asked side by
//! side, [`AT_ONCE`] at a time, whenever somebody wants to know; nothing is kept. What cannot be had, since the cluster does not answer or the table has gone, is not told (NULL).

use std::collections::BTreeMap;

use apus_client::{ClientError, Rows, ScanRequest};
use apus_signal::scan::{Aggregate, AggregateFunction};
use apus_types::{TableId, key};

use crate::{
    catalog::{Catalog, Table},
    exec::read::join_all,
    session::engine::SqlEngine,
};

const SAMPLE: u32 = 32;
const AT_ONCE: usize = 16;
/// What an entry of an ordered index takes beside its key (decision 0043).
const ENTRY_BYTES: f64 = 16.0;

/// Of one table.
#[derive(Clone, Copy, Default, Debug)]
pub struct Size {
    pub rows: u64,
    /// Of a row, in bytes.
    pub average: u64,
    pub data: u64,
    /// Of all indexes but the primary key's, in bytes.
    pub indexes: u64,
    /// The next value of its AUTO_INCREMENT column, where it has given one.
    pub next: Option<u64>,
}

pub type Sizes = BTreeMap<TableId, Size>;

impl SqlEngine {
    /// The sizes of these tables; none of those that cannot be had.
    pub(crate) async fn sizes_of<'t>(&self, catalog: &Catalog, tables: impl Iterator<Item = &'t Table>) -> Sizes {
        let tables: Vec<&Table> = tables.collect();
        let mut sizes = Sizes::new();
        for some in tables.chunks(AT_ONCE) {
            let asked = some.iter().map(|table| Box::pin(self.size_of(catalog, table))).collect();
            let answers = join_all(asked).await.into_iter().zip(some);
            sizes.extend(answers.filter_map(|(size, table)| Some((table.schema.id, size.ok()?))));
        }
        sizes
    }

    async fn size_of(&self, catalog: &Catalog, table: &Table) -> Result<Size, ClientError> {
        let schema = &table.schema;
        let request = ScanRequest::all(schema.id, schema.version);
        let mut counts = Vec::new();
        let count = [Aggregate { function: AggregateFunction::EstimatedRows, column: 0 }];
        self.client.aggregate(&request, &count, &mut counts).await?;
        let rows = counts.first().map_or(0, |c| c.count);
        let mut size = Size { rows, ..Size::default() };
        if rows > 0 {
            let (row, entries) = self.lengths(table, &request).await?;
            let of_all = |bytes: f64| (bytes * rows as f64) as u64;
            (size.average, size.data, size.indexes) = (row as u64, of_all(row), of_all(entries));
        }
        let counts = |c: &u16| schema.columns[usize::from(*c)].auto_increment;
        if let (Some(column), Ok(counters)) = (table.visible_columns().find(counts), catalog.counters()) {
            let next = self.auto_increment.shown(&self.client, counters, schema, column).await?;
            size.next = Some(next).filter(|next| *next > 1);
        }
        Ok(size)
    }

    /// Bytes of an average row, and of its entries in the secondary indexes.
    async fn lengths(&self, table: &Table, request: &ScanRequest<'_>) -> Result<(f64, f64), ClientError> {
        let schema = &table.schema;
        let first = ScanRequest { ordered: true, limit: u64::from(SAMPLE), batch_rows: SAMPLE, ..*request };
        let indexes: Vec<&[u16]> = table.ready_indexes().map(|(_, index)| &index.columns[..]).collect();
        let (mut seen, mut data, mut keys, mut key) = (0u64, 0usize, 0usize, Vec::new());
        let (mut cursor, mut batch) = (self.client.scan(&first), Rows::new());
        while cursor.next_batch(&mut batch).await? {
            for row in batch.iter().flatten() {
                (seen, data) = (seen + 1, data + row.len());
                for columns in &indexes {
                    key.clear();
                    key::encode_from_row(schema, columns, row, &mut key)?;
                    keys += key.len();
                }
            }
        }
        let average = |bytes: usize| bytes as f64 / seen.max(1) as f64;
        Ok((average(data), average(keys) + ENTRY_BYTES * indexes.len() as f64))
    }
}
