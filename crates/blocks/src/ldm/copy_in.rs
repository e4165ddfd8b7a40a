//! Node recovery at the node that is being filled: it stores the rows that its primaries copy, and gives up what they do not have any more.
//!
//! **With rows of its own** it has put back from its disk what was committed up to an epoch, [`LocalDataManager::base`]. Rows above come as copies, or down the chain. Of the rows that
//! it has, a copy names those that have not changed, and their sum has to be the same here; what it does not name has been deleted since. A row of the base also gives way when
//! a later row of its slot or its key comes first. What goes is written to the log as empty, or the next restart would bring it back: in an epoch above the base, so that a node that
//! dies amid this begins again where it began.
//!
//! **If the sums differ** what was put back is not what the cluster had, whatever the reason. The node says so, notes in its control file that its log is of
//! no use, and starts anew, empty.
//!
//! **Slices.** Of the rows that a message does not name as many go at a time as a slice has (`ends`). Each node confirms when all have gone. A row that comes meanwhile has
//! a later epoch than the base, and stays.

use apus_kernel::Context;
use apus_redo::Entry;
use apus_signal::{
    BlockRef, DecodeError, Kind,
    copy::{CopiedRow, CopyRowsConf, CopyRowsOrd, Walked},
    restart::StartPhase,
    view::NodeState,
};
use apus_storage::RowId;
use apus_types::{
    Epoch, ErrorCode, PartitionId,
    planted::{Bug, planted},
};

use super::{
    LocalDataManager,
    copy_out::LOOK_NS_MAX,
    ends::{ROW_NS_MAX, RowEnds},
    redo::Redo,
    tables::Table,
};

/// Of the reason for which such a node ends: never seen where everybody keeps to the protocol.
pub const DIFFERS: &str = "differ from what their primary has";

impl LocalDataManager {
    pub(super) fn on_copy_rows_ord(
        &mut self,
        from: BlockRef,
        order: &CopyRowsOrd<'_>,
        body: &[u8],
        ctx: &mut Context<'_>,
    ) -> Result<(), DecodeError> {
        if self.redo.as_ref().is_some_and(Redo::is_disowned) {
            return Ok(()); // this process ends as soon as its disk says so
        }
        let is_recovering = self.view.state(self.me.node) == NodeState::Recovering;
        let mut rest = None;
        if is_recovering {
            if from != self.me {
                self.note_walked(order);
            }
            match self.fit_walked(order, from == self.me, ctx) {
                Ok(left) => rest = left,
                Err(why) => {
                    ctx.probe("ldm: what a node has put back is not what its primary has");
                    if let Some(redo) = &mut self.redo {
                        redo.disown(why, ctx);
                    }
                    return Ok(());
                }
            }
            for row in order.rows() {
                let row = row?;
                ctx.spend(1, ROW_NS_MAX);
                let is_full = ctx.fault("ldm.stop_copy");
                let stored = if is_full { Err(ErrorCode::OutOfMemory) } else { self.store_copied(order, &row, ctx) };
                if let Err(code) = stored {
                    ctx.probe("ldm: recovering node cannot store a row");
                    ctx.stop_node(&format!("node recovery of partition {} failed: {code}", order.partition));
                    return Ok(());
                }
            }
            self.log_emptied(ctx);
        }
        let is_logged = is_recovering && self.tables.get(order.table).is_none_or(Table::is_logged);
        if let Some(redo) = self.redo.as_mut().filter(|_| is_logged && !planted(Bug::CopyNotLogged)) {
            let CopyRowsOrd { partition, table, count, rows, .. } = *order;
            if count > 0 {
                redo.append(&Entry::Copied { partition, table, count, rows });
            }
        }
        if let Some(next) = self.next_in(order.chain).filter(|_| from != self.me) {
            ctx.send(self.peer(next), Kind::CopyRowsOrd, |out| out.extend_from_slice(body));
        }
        if let Some(rest) = rest {
            self.go_on_giving_up(order, rest, ctx);
            return Ok(());
        }
        let conf = CopyRowsConf { generation: order.generation, partition: order.partition };
        match &mut self.redo {
            Some(redo) => redo.confirm_copied(order.source, conf, ctx),
            None => ctx.send(order.source, Kind::CopyRowsConf, |out| conf.encode(out)),
        }
        Ok(())
    }

    /// How far this instance is: of the partitions of which nothing has come the others are taken as a measure.
    fn note_walked(&mut self, order: &CopyRowsOrd<'_>) {
        let walked = self.walked.entry(order.partition).or_default();
        walked.1 = order.slots;
        walked.0 = (walked.0 + u64::from(order.walked.to.saturating_sub(order.walked.from))).min(order.slots);
        let known = self.walked.len() as u64;
        let partitions = (0..self.view.partition_count()).map(PartitionId);
        let own = partitions.filter(|p| self.view.instance(*p) == self.me.instance);
        let all = own.filter(|p| self.view.chain(*p).contains(self.me.node)).count() as u64;
        let (done, of) = self.walked.values().fold((0, 0), |(done, of), (d, o)| (done + d, of + o));
        self.progress.phase = StartPhase::Rows as i32;
        (self.progress.done, self.progress.of) = (done, of * all.max(known) / known.max(1));
    }

    /// Compares the rows that the primary says are unchanged, and gives up those of the base that it has not any more. `Some`: from that slot on more of them
    /// may be left. All are compared as the message comes, for later they may have been changed down the chain; `is_rest`: they have been.
    ///
    /// # Errors
    /// They are not the same.
    fn fit_walked(
        &mut self,
        order: &CopyRowsOrd<'_>,
        is_rest: bool,
        ctx: &mut Context<'_>,
    ) -> Result<Option<u32>, String> {
        let (walked, at) = (order.walked, (order.table, order.partition));
        let Some(base) = self.base.filter(|_| walked.to > walked.from) else { return Ok(None) };
        if self.tables.get(at.0).is_none() {
            return Ok(None); // dropped here first
        }
        let (mut sum, mut given_up, mut looked, mut stop_at, mut rest) = (0, 0, 0, u32::MAX, None);
        let named_to = walked.from + 8 * walked.unchanged.len() as u32;
        let mut left = walked.left().peekable();
        let mut copied = order.rows().flatten().map(|row| row.row).peekable();
        if let Some(fragment) = self.tables.fragment_mut(at.0, at.1) {
            let mut next = fragment.next_row(RowId(walked.from));
            while let Some(row) = next.filter(|row| row.0 < walked.to) {
                if row.0 >= stop_at {
                    rest = Some(stop_at);
                    if is_rest || row.0 >= named_to {
                        break;
                    }
                }
                next = fragment.next_row(RowId(row.0 + 1));
                while left.next_if(|slot| *slot < row.0).is_some() {}
                while copied.next_if(|slot| *slot < row.0).is_some() {}
                looked += 1;
                let epoch = fragment.last_change(row, &self.transactions);
                if walked.is_unchanged(row.0) {
                    if let Some(image) = fragment.committed(row, &self.transactions).filter(|_| !is_rest) {
                        sum = Walked::add(sum, fragment.hash_of(row, image), epoch);
                        self.progress.unchanged += 1;
                    }
                } else if rest.is_none()
                    && left.peek() != Some(&row.0)
                    && copied.peek() != Some(&row.0)
                    && epoch <= base
                {
                    let (locks, transactions, epochs) = (&mut self.locks, &self.transactions, &mut self.epochs);
                    let mut ends = RowEnds { locks, transactions, epochs, granted: &mut self.granted };
                    if !ends.give_up(fragment, (at.0, at.1, row), ctx) {
                        continue;
                    }
                    given_up += 1;
                    self.progress.gone += 1;
                    self.emptied.push((at.0, at.1, row));
                    if given_up == self.slices.rows as usize {
                        stop_at = walked.from + ((row.0 - walked.from) / 8 + 1) * 8; // where a byte of bits begins
                    }
                }
            }
        }
        if given_up > 0 {
            ctx.probe("ldm: rows that were deleted meanwhile go");
        }
        ctx.spend(given_up, ROW_NS_MAX);
        ctx.spend(looked, LOOK_NS_MAX);
        if is_rest || sum == walked.sum {
            return Ok(rest);
        }
        let ((table, partition), from) = (at, walked.from);
        Err(format!("rows of table {table} in partition {partition} from {from} on, put back from disk, {DIFFERS}"))
    }

    /// The same for the rest of the slots, after whatever else is waiting.
    fn go_on_giving_up(&mut self, order: &CopyRowsOrd<'_>, from: u32, ctx: &mut Context<'_>) {
        ctx.probe("ldm: rows that were deleted meanwhile go in slices");
        let walked = order.walked;
        assert!(walked.from < from && from < walked.to, "a slice of {}..{} ends at {from}", walked.from, walked.to);
        assert!((from - walked.from).is_multiple_of(8), "{from} is amid a byte of bits from {} on", walked.from);
        let unchanged = walked.unchanged.get((from - walked.from) as usize / 8..).unwrap_or_default();
        let mut slots: Vec<u32> = walked.left().chain(order.rows().flatten().map(|row| row.row)).collect();
        slots.sort_unstable();
        let left: Vec<u8> = slots.iter().filter(|slot| **slot >= from).flat_map(|slot| slot.to_le_bytes()).collect();
        let walked = Walked { from, unchanged, left: &left, ..walked };
        let order = CopyRowsOrd { walked, count: 0, rows: &[], ..*order };
        ctx.send(self.me, Kind::CopyRowsOrd, |out| order.encode(out));
    }

    /// Rows of the base have gone: the log has to know.
    pub(super) fn log_emptied(&mut self, ctx: &mut Context<'_>) {
        let (Some(redo), Some(base)) = (&mut self.redo, self.base) else { return };
        let epoch = ctx.epoch().max(Epoch(base.0 + 1));
        for (table, partition, row) in self.emptied.drain(..) {
            let mut rows = std::mem::take(&mut self.scratch.image);
            rows.clear();
            CopiedRow::empty(row.0, epoch).encode(&mut rows);
            if !planted(Bug::EmptiedNotLogged) {
                redo.append(&Entry::Copied { partition, table, count: 1, rows: &rows });
            }
            self.scratch.image = rows;
        }
    }

    fn store_copied(
        &mut self,
        order: &CopyRowsOrd<'_>,
        copied: &CopiedRow<'_>,
        ctx: &mut Context<'_>,
    ) -> Result<(), ErrorCode> {
        let memory = self.memory.clone();
        let Some(table) = self.tables.get_mut(order.table) else { return Ok(()) }; // dropped meanwhile
        let fragment = match table.fragment(order.partition) {
            Some(_) => table.fragment_mut(order.partition).ok_or(ErrorCode::Internal)?,
            None => table.make_fragment(order.partition, &memory, self.secret)?,
        };
        let mut row = RowId(copied.row);
        if copied.is_empty() {
            let is_base = self
                .base
                .is_some_and(|base| fragment.is_used(row) && fragment.last_change(row, &self.transactions) <= base);
            let (transactions, granted) = (&self.transactions, &mut self.granted);
            let mut ends = RowEnds { locks: &mut self.locks, transactions, epochs: &mut self.epochs, granted };
            if is_base && ends.give_up(fragment, (order.table, order.partition, row), ctx) {
                self.emptied.push((order.table, order.partition, row));
            }
            return Ok(());
        }
        fragment.schema().layout().check(copied.image)?;
        let hash = self.secret.of(copied.key);
        if planted(Bug::CopyChoosesSlot) {
            row = fragment.find(copied.key, hash).map_or_else(|| fragment.insert_slot(copied.key, hash), Ok)?;
        } else if !fragment.holds(row, copied.key) {
            let (transactions, granted) = (&self.transactions, &mut self.granted);
            let mut ends = RowEnds { locks: &mut self.locks, transactions, epochs: &mut self.epochs, granted };
            let given_up = self.base.is_some().then_some(&mut self.emptied);
            ends.insert_at(fragment, (order.table, order.partition, row), (copied.key, hash), given_up, ctx)?;
        }
        if fragment.has_pending(row) && !planted(Bug::CopyOverwritesNewer) {
            return Ok(()); // a later change is on its way down the same chain and carries the whole row
        }
        fragment.push_pending(row, Some(copied.image), 0)?;
        fragment.commit(row, copied.epoch, copied.epoch);
        self.progress.fetched += 1;
        Ok(())
    }
}
