//! What has changed between two snapshots, and whether transactions are at work in a table; see `apus_signal::changed`.
//!
//! While a snapshot is held, a row that has changed since has the version that it shows still below its newer ones, and one that was deleted has its slot. So the rows of a fragment are walked in the order of their slots, and of each
//! the versions at both snapshots are compared by their epochs. Pages in which nothing was committed since the older one are passed over: a page knows the epoch of its newest stamped version. Of a commit that is decided
//! and not stamped yet no page knows; while there is one that has changed the table, every page is looked at.

use apus_signal::{
    changed::{ChangedPlace, ChangedRow},
    epoch::Moment,
    scan::{ScanConf, ScanReq},
};
use apus_storage::{Fragment, RowId};
use apus_types::{
    Epoch, ErrorCode, PartitionId,
    planted::{Bug, planted},
};

use super::{
    LocalDataManager,
    scan::{EXAMINED_MAX, Page},
    snapshot::changes_of,
};

impl LocalDataManager {
    pub(super) fn changed_page(
        &mut self,
        req: &ScanReq<'_>,
        now: Epoch,
        rows: &mut Vec<u8>,
        resume: &mut Vec<u8>,
    ) -> Result<Page, ErrorCode> {
        let table = self.tables.checked(req.table, req.schema_version)?;
        let mut place = match req.low {
            std::ops::Bound::Included(place) | std::ops::Bound::Excluded(place) => ChangedPlace::decode(place),
            std::ops::Bound::Unbounded => return Err(ErrorCode::ProtocolViolation),
        }
        .map_err(|_| ErrorCode::ProtocolViolation)?;
        let (since, until) = (place.since, req.snapshot);
        if since == Epoch(0) || since > until {
            return Err(ErrorCode::ProtocolViolation);
        }
        for snapshot in [since, until] {
            self.epochs.check_read(snapshot, now, table.created)?;
        }
        let passes_over = !self.transactions.has_unstamped(changes_of(req.table));
        let mut page = Page { count: 0, more: false, moment: Moment::NONE, examined: 0 };
        while let Some(partition) = req.partitions().filter(|p| *p >= place.partition).min() {
            if partition > place.partition {
                (place.partition, place.row) = (partition, 0);
            }
            let fragment = table.fragment(partition).ok_or(ErrorCode::WrongView)?;
            while let Some(row) = next(fragment, RowId(place.row), since, passes_over) {
                place.row = row.0;
                if page.examined >= EXAMINED_MAX || page.count >= req.rows_max || rows.len() >= req.bytes_max as usize {
                    place.encode(resume);
                    page.more = true;
                    return Ok(page);
                }
                page.examined += 1;
                let changed = fragment.changed_between(row, since, until, &self.transactions);
                if let Some((old, new)) = changed.filter(|(_, new)| new.is_some() || !planted(Bug::DeletedNotListed)) {
                    ScanConf::push_row(rows, &[], |out| ChangedRow { old, new }.encode(out));
                    page.count += 1;
                }
                place.row += 1;
            }
            (place.partition, place.row) = (PartitionId(partition.0 + 1), 0);
        }
        Ok(page)
    }

    /// One empty row if a transaction has, or may have, a row of the table at this primary.
    pub(super) fn open_page(&mut self, req: &ScanReq<'_>, rows: &mut Vec<u8>) -> Result<Page, ErrorCode> {
        self.tables.checked(req.table, req.schema_version)?;
        let mut examined = 0;
        let is_open = self.transactions.iter().any(|(_, trans)| {
            examined += 1;
            trans.parts.iter().flat_map(|part| self.transactions.entries_from(part.head)).any(|entry| {
                examined += 1;
                // Of a transaction that is that large it may be.
                examined >= EXAMINED_MAX
                    || entry.table == req.table && req.partitions().any(|partition| partition == entry.partition)
            })
        });
        if is_open {
            ScanConf::push_row(rows, &[], |_| {});
        }
        Ok(Page { count: u32::from(is_open), more: false, moment: Moment::NONE, examined })
    }
}

/// The next row that may have changed.
fn next(fragment: &Fragment, from: RowId, since: Epoch, passes_over: bool) -> Option<RowId> {
    if passes_over { fragment.next_changed(from, since) } else { fragment.next_row(from) }
}
