//! Ordered scans over this instance's fragments, merged in index order; see `apus_signal::scan`.

use std::ops::Bound;

use apus_eval::fixed::Unfit;
use apus_kernel::Context;
use apus_signal::{
    DecodeError, Envelope, Kind,
    changed::{CHANGED, OPEN},
    codec::Put,
    epoch::Moment,
    held::HELD,
    scan::{AGGREGATES_MAX, Aggregate, AggregateFunction, ScanConf, ScanReq},
};
use apus_storage::{EntryKey, Fragment, LockMode, Locks, RowId, RowKey};
use apus_types::{Epoch, ErrorCode, PartitionId, RowLayout, Value, filter::Filter};

use super::{
    LocalDataManager,
    ahead::{AHEAD as AHEAD_MAX, fetch_entries},
    ends::is_short,
    trans::{NONE, Standing, Transactions},
};

/// Most index entries looked at for one answer, whether they gave a row or not: bounds the time one scan takes from others.
pub const EXAMINED_MAX: u32 = 8192;
/// What an entry may cost at worst: itself, its row and a version that are not in the cache, a row copied.
const ENTRY_NS_MAX: u64 = 2_000;
const _: () = assert!(is_short(EXAMINED_MAX as usize, ENTRY_NS_MAX));

/// What a scan sees: fragment, pending versions of one transaction, primary or backup rules.
struct Visibility<'a> {
    locks: &'a Locks,
    transactions: &'a Transactions,
    reader: u32,
    /// 0: the latest committed rows.
    snapshot: Epoch,
    with_pending: bool,
}

impl Visibility<'_> {
    fn image<'f>(&self, fragment: &'f Fragment, row: RowId) -> Option<&'f [u8]> {
        let own = self.reader != NONE
            && fragment.has_pending(row)
            && self.locks.held_mode(fragment.lock_word_of(row), self.reader) == Some(LockMode::Exclusive);
        match (own, self.snapshot) {
            (true, _) => fragment.newest(row),
            _ if self.with_pending => fragment.possible(row),
            (_, Epoch(0)) => fragment.committed(row, self.transactions),
            (_, snapshot) => fragment.committed_at(row, snapshot, self.transactions),
        }
    }
    /// With pending rows: what others have changed may be undone, so what was committed may stay as well.
    #[cold]
    fn other_image<'f>(&self, fragment: &'f Fragment, row: RowId) -> Option<&'f [u8]> {
        let is_of_others = self.with_pending
            && fragment.has_pending(row)
            && (self.reader == NONE
                || self.locks.held_mode(fragment.lock_word_of(row), self.reader) != Some(LockMode::Exclusive));
        if is_of_others { fragment.committed(row, self.transactions) } else { None }
    }
}

/// Running values of the aggregates of one scan.
struct Totals {
    aggregates: [Aggregate; AGGREGATES_MAX],
    count: usize,
    counts: [u64; AGGREGATES_MAX],
    values: [Option<i128>; AGGREGATES_MAX],
}

impl Totals {
    fn new(aggregates: impl Iterator<Item = Aggregate>) -> Totals {
        let none = Aggregate { function: AggregateFunction::CountRows, column: 0 };
        let mut totals = Totals {
            aggregates: [none; AGGREGATES_MAX],
            count: 0,
            counts: [0; AGGREGATES_MAX],
            values: [None; AGGREGATES_MAX],
        };
        for aggregate in aggregates.take(AGGREGATES_MAX) {
            totals.aggregates[totals.count] = aggregate;
            totals.count += 1;
        }
        totals
    }

    fn add(&mut self, layout: &RowLayout, row: &[u8]) -> Result<(), ErrorCode> {
        for i in 0..self.count {
            let Aggregate { function, column } = self.aggregates[i];
            match function {
                AggregateFunction::CountRows => {
                    self.counts[i] += 1;
                    continue;
                }
                AggregateFunction::EstimatedRows => return Err(ErrorCode::NotSupported), // beside others
                _ => {}
            }
            let value = layout.value(row, column);
            if value.is_null() {
                continue;
            }
            self.counts[i] += 1;
            if function == AggregateFunction::CountValues {
                continue;
            }
            let n = match value {
                Value::Int(n) => i128::from(n),
                Value::UInt(n) => i128::from(n),
                _ => return Err(ErrorCode::NotSupported),
            };
            let so_far = self.values[i];
            self.values[i] = Some(match (function, so_far) {
                (_, None) => n,
                (AggregateFunction::Sum, Some(sum)) => sum + n, // 2^64 rows of 64-bit values fit
                (AggregateFunction::Min, Some(least)) => least.min(n),
                (_, Some(most)) => most.max(n),
            });
        }
        Ok(())
    }

    /// Only what the fragments know by themselves is asked: nothing is looked at.
    fn are_known(&self) -> bool {
        let is_known = |a: &Aggregate| a.function == AggregateFunction::EstimatedRows;
        self.count > 0 && self.aggregates[..self.count].iter().all(is_known)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        for i in 0..self.count {
            out.put_u64(self.counts[i]);
            if !self.aggregates[i].function.is_count() {
                out.put_u8(u8::from(self.values[i].is_some()));
                out.put_bytes(&self.values[i].unwrap_or(0).to_le_bytes());
            }
        }
    }
}

/// Entries of a stream whose rows are fetched ahead: the order of an index is not the order in memory, and a row that is not in the cache takes longer than all that is done with it.
const AHEAD: usize = 8;
/// Of these so many at the beginning: a short range has few.
const FIRST: usize = 2;

type Entry<'f> = (EntryKey<'f>, RowId);

/// One fragment's stream: its next entry, if any is left.
pub(super) struct Stream<'f> {
    fragment: &'f Fragment,
    entries: apus_storage::FragmentScan<'f>,
    next: Option<Entry<'f>>,
    /// Those behind it, a ring: the first, and how many.
    soon: [Option<Entry<'f>>; AHEAD],
    first: usize,
    count: usize,
    is_over: bool,
    /// The key of the next entry, if there are other streams to compare it with.
    key: Option<RowKey<'f>>,
    primary: bool,
}

impl<'f> Stream<'f> {
    fn new(fragment: &'f Fragment, entries: apus_storage::FragmentScan<'f>, primary: bool) -> Stream<'f> {
        let soon = [None; AHEAD];
        Stream { fragment, entries, next: None, soon, first: 0, count: 0, is_over: false, key: None, primary }
    }

    /// Takes the first entries. What they name is fetched in steps, each of all streams, so that these wait together.
    fn enter(&mut self) {
        for place in &mut self.soon[..FIRST] {
            *place = self.entries.next();
            if let Some((_, row)) = place {
                self.fragment.prefetch_row(*row);
                self.count += 1;
            }
        }
        self.is_over = self.count < FIRST;
    }
    fn fetch_entered(&self) {
        self.soon[..FIRST].iter().flatten().for_each(|(_, row)| self.fragment.prefetch_image(*row));
    }

    #[inline]
    fn advance(&mut self, alone: bool) {
        // Two for each that is taken, so that a short range fetches little in vain.
        for _ in 0..2 {
            if self.count == AHEAD || self.is_over {
                break;
            }
            let entry = self.entries.next();
            self.is_over = entry.is_none();
            if let Some((_, row)) = entry {
                self.fragment.prefetch_image(row);
                self.soon[(self.first + self.count) % AHEAD] = entry;
                self.count += 1;
            }
        }
        self.next = self.soon[self.first].take();
        if self.next.is_some() {
            self.first = (self.first + 1) % AHEAD;
            self.count -= 1;
        }
        if !alone {
            self.key = self.next.map(|(entry, row)| self.fragment.entry_key_of(entry, row));
        }
    }
}

pub(super) struct Page {
    pub count: u32,
    pub more: bool,
    pub moment: Moment,
    pub examined: u32,
}

impl LocalDataManager {
    pub(super) fn on_scan_req(
        &mut self,
        envelope: &Envelope,
        body: &[u8],
        ctx: &mut Context<'_>,
    ) -> Result<(), DecodeError> {
        let (from, req) = (envelope.from, ScanReq::decode(body)?);
        self.counters.scans += 1;
        let mut rows = std::mem::take(&mut self.scratch.rows);
        let mut resume = std::mem::take(&mut self.scratch.key);
        rows.clear();
        resume.clear();
        let result = if self.is_ahead(&req, envelope.generation) {
            ctx.probe("ldm: scan refused by a view that is behind the client's");
            Err(ErrorCode::WrongView)
        } else {
            self.scan_page(&req, ctx.epoch(), &mut rows, &mut resume)
        };
        match &result {
            Ok(page) => {
                self.counters.scan_rows += u64::from(page.count);
                ctx.spend(page.examined as usize, ENTRY_NS_MAX);
                ctx.send(from, Kind::ScanConf, |out| {
                    ScanConf::encode(out, req.request, page.more, page.count, &resume, &rows);
                    if req.with_moment {
                        page.moment.encode(out);
                    }
                });
            }
            Err(code) => self.refuse_request(from, req.request, *code, ctx),
        }
        self.scratch.rows = rows;
        self.scratch.key = resume;
        if matches!(result, Err(ErrorCode::ProtocolViolation)) { Err(DecodeError) } else { Ok(()) }
    }

    /// Whoever asks has heard of a newer view. What it locked there keeps out only those who know that view, too: what is written here by
    /// earlier ones may still come ([`LocalDataManager::chain_valid`]), so a look for it would be too early.
    fn is_ahead(&self, req: &ScanReq<'_>, generation: u32) -> bool {
        (req.with_pending || !req.trans.is_none()) && u64::from(generation) > self.view.generation
    }

    fn scan_page(
        &mut self,
        req: &ScanReq<'_>,
        now: Epoch,
        rows: &mut Vec<u8>,
        resume: &mut Vec<u8>,
    ) -> Result<Page, ErrorCode> {
        if !self.is_up() {
            return Err(ErrorCode::NodeStarting);
        }
        let at_primary = !req.trans.is_none() || req.with_pending;
        if req.partitions().any(|p| !self.serves(p) || (at_primary && !self.is_primary(p))) {
            return Err(ErrorCode::WrongView);
        }
        if req.index == HELD {
            let (count, more, examined) = self.held_page(req, rows, resume)?;
            return Ok(Page { count, more, moment: Moment::NONE, examined });
        }
        match req.index {
            CHANGED => return self.changed_page(req, now, rows, resume),
            OPEN if at_primary => return self.open_page(req, rows),
            _ => {}
        }
        let reader = if req.trans.is_none() { NONE } else { self.transactions.find(req.trans).unwrap_or(NONE) };
        let table = self.tables.checked(req.table, req.schema_version)?;
        if req.snapshot.0 != 0 {
            self.epochs.check_read(req.snapshot, now, table.created)?;
        }
        let projection = table.projection(req.projection)?;
        let table = &*table;
        if req.with_pending && !req.filter.is_empty() {
            return Err(ErrorCode::NotSupported); // a row that may have two versions has no answer
        }
        if !req.grouping.is_empty() && (req.with_pending || req.aggregates().next().is_some()) {
            return Err(ErrorCode::NotSupported);
        }
        let has_groups = !req.grouping.is_empty();
        let (grouping, groups) = (&mut self.scratch.grouping, &mut self.scratch.groups);
        if has_groups {
            grouping.read(req.grouping, &table.schema)?;
            groups.clear();
        }
        let cost = if has_groups { grouping.cost() } else { 0 };
        let filter = Filter::decode(req.filter, &table.schema, std::mem::take(&mut self.scratch.ranges))?;
        let view = &self.view;
        let own_node = self.me.node;
        let is_primary = |p: PartitionId| view.chain(p).primary() == Some(own_node);
        let mut streams = empty_streams(std::mem::take(&mut self.scratch.streams));
        if let (Bound::Included(key) | Bound::Excluded(key), Some(_)) = (req.low, req.partitions().nth(1)) {
            let fragments = req.partitions().take(AHEAD_MAX).filter_map(|partition| table.fragment(partition));
            fetch_entries(req.index, fragments.map(|fragment| (fragment, key)));
        }
        for partition in req.partitions() {
            let fragment = table.fragment(partition).ok_or(ErrorCode::WrongView)?;
            let entries = fragment.scan(req.index, req.low, req.high, req.reverse).ok_or(ErrorCode::IndexNotFound)?;
            streams.push(Stream::new(fragment, entries, is_primary(partition)));
        }
        let alone = streams.len() == 1;
        streams.iter_mut().for_each(Stream::enter);
        streams.iter().for_each(Stream::fetch_entered);
        streams.iter_mut().for_each(|stream| stream.advance(alone));
        let visibility = Visibility {
            locks: &self.locks,
            transactions: &self.transactions,
            reader,
            snapshot: req.snapshot,
            with_pending: req.with_pending,
        };
        let mut totals = Totals::new(req.aggregates());
        let moment = match req.with_moment {
            true => self.epochs.moment(req.table, table.created, &self.transactions),
            false => Moment::NONE,
        };
        let mut page = Page { count: 0, more: false, moment, examined: 0 };
        let mut last = None;
        let (scratch, tested) = (&mut self.scratch.image, &mut self.scratch.tested);
        if totals.are_known() {
            totals.counts = [streams.iter().map(|s| s.fragment.row_count()).sum(); AGGREGATES_MAX];
            streams.clear();
        }
        while let Some(best) = first_stream(&streams, req.reverse) {
            let stream = &mut streams[best];
            let Some((entry, row)) = stream.next else { break };
            let is_full = match has_groups {
                true => groups.are_full() || groups.byte_len() >= req.bytes_max as usize,
                false => totals.count == 0 && (page.count >= req.rows_max || rows.len() >= req.bytes_max as usize),
            };
            if page.examined >= EXAMINED_MAX || is_full {
                page.more = true;
                break;
            }
            stream.advance(alone);
            page.examined += 1 + filter.cost();
            let fragment = stream.fragment;
            last = Some((fragment, entry, row));
            if req.snapshot.0 == 0 {
                let standing = fragment.writer(row).map_or(Standing::Open, |writer| self.transactions.standing(writer));
                let is_incomplete = fragment.incomplete(row) > 0 || standing == Standing::Decided;
                if standing == Standing::Between || (!stream.primary && is_incomplete) {
                    self.counters.sent_to_primary += 1;
                    return Err(ErrorCode::WrongView);
                }
            }
            let Some(mut image) = visibility.image(fragment, row) else { continue };
            if !fragment.entry_matches(req.index, row, image, entry, scratch) {
                let Some(other) = visibility.other_image(fragment, row) else { continue };
                if !fragment.entry_matches(req.index, row, other, entry, scratch) {
                    continue;
                }
                image = other;
            }
            let passes = filter.passes(&table.schema, image, tested);
            page.examined += filter.take_spent();
            if !passes {
                continue;
            }
            if totals.count > 0 {
                totals.add(table.schema.layout(), image)?;
                continue;
            }
            let layout = table.schema.layout();
            let write = |out: &mut Vec<u8>| match &projection {
                None => out.extend_from_slice(image),
                Some(p) => layout.project(image, &p.0, &p.1, out),
            };
            if has_groups {
                page.examined += cost;
                groups.add(grouping, layout, image, write).map_err(|Unfit| ErrorCode::ValueOutOfRange)?;
                continue;
            }
            let key = req.with_keys.then(|| fragment.entry_key_of(entry, row));
            ScanConf::push_row(rows, key.as_deref().unwrap_or_default(), write);
            page.count += 1;
        }
        if has_groups {
            page.count = groups.len() as u32;
            for number in 0..groups.len() {
                tested.clear();
                groups.push_states(grouping, number, tested);
                ScanConf::push_row(rows, tested, |out| out.extend_from_slice(groups.row(number)));
            }
        }
        if totals.count > 0 {
            ScanConf::push_row(rows, &[], |out| totals.encode(out));
            page.count = 1;
        }
        if let Some((fragment, entry, row)) = last.filter(|_| page.more) {
            resume.extend_from_slice(&fragment.entry_key_of(entry, row));
        }
        self.scratch.streams = empty_streams(streams);
        self.scratch.ranges = filter.into_memory();
        Ok(page)
    }
}

/// The memory of a list of streams for a list over other fragments: an emptied vector collected in place keeps its allocation.
fn empty_streams<'f>(mut streams: Vec<Stream<'_>>) -> Vec<Stream<'f>> {
    streams.clear();
    streams.into_iter().map_while(|_| None).collect()
}

/// The stream whose next entry comes first.
fn first_stream(streams: &[Stream<'_>], reverse: bool) -> Option<usize> {
    if let [stream] = streams {
        return stream.next.map(|_| 0);
    }
    let mut best: Option<(usize, &[u8])> = None;
    for (i, stream) in streams.iter().enumerate() {
        let Some(entry) = stream.key.as_deref() else { continue };
        let better = match best {
            None => true,
            Some((_, so_far)) => (entry < so_far) != reverse,
        };
        if better {
            best = Some((i, entry));
        }
    }
    best.map(|(i, _)| i)
}
