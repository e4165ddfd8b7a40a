//! What has changed in a table between two snapshots, and whether transactions are at work in it: `apus_signal::changed`.

use std::ops::Bound;

use apus_signal::changed::{CHANGED, ChangedPlace, OPEN};
use apus_types::{Epoch, PartitionId, TableSchema};

use crate::{Client, ClientError, Rows, ScanCursor, ScanRequest};

impl Client {
    /// The rows of a table that show another version at `until` than at `since`, each a [`apus_signal::changed::ChangedRow`], in no order. The caller holds snapshots of both epochs.
    pub fn changed_rows(&self, table: &TableSchema, since: Epoch, until: Epoch) -> ScanCursor {
        let mut place = Vec::new();
        ChangedPlace { since, partition: PartitionId(0), row: 0 }.encode(&mut place);
        let low = Bound::Included(&place[..]);
        self.scan(&ScanRequest { snapshot: until, index: CHANGED, low, ..ScanRequest::all(table.id, table.version) })
    }

    /// Whether transactions have, or may have, locked or changed rows of the table. Where nobody may begin to by this version of it, `false` stays right.
    ///
    /// # Errors
    /// As [`ScanCursor::next_batch`].
    pub async fn is_in_use(&self, table: &TableSchema) -> Result<bool, ClientError> {
        let request = ScanRequest { index: OPEN, with_pending: true, ..ScanRequest::all(table.id, table.version) };
        self.scan(&request).next_batch(&mut Rows::new()).await
    }
}
