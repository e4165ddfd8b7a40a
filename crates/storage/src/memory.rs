//! The global memory manager: one budget for all threads of a data node, in 32 KiB pages, divided into regions (`docs/internals/memory.md`).
//!
//! A region may always use its reserved part. Beyond that it draws from the shared pool up to its maximum; the last 10 % of the pool
//! is for regions of high priority and the last 4 % for the highest. A refusal is a temporary error of the request that caused
//! it ([`apus_types::ErrorCode::OutOfMemory`]), never a crash. Data memory refuses normal inserts at 95 % of what it could get, of its
//! maximum as of the pool, so that updates, deletes and recovery still work.
//!
//! Pages go back to the pool as soon as they are empty. They are cut from blocks of 2 MiB, which stay for as long as the process does, and all managers of a process share
//! those that are free. Some are kept as they are for reuse; of the rest the memory goes back to the operating system, page by page as they are freed
//! ([`MemoryManager::releasing`]), so that nobody waits for much of it.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
};

/// Bytes of a page.
pub const PAGE_BYTES: usize = 32 << 10;
/// Free pages kept for reuse; the memory of more goes back to the operating system.
const KEEP_PAGES: usize = 256;
/// Pages of a block.
const BLOCK_PAGES: usize = 64;
/// Pages begin where pages of the operating system do.
const ALIGNMENT: usize = 4096;
/// Old versions are given up when data memory, or the pool, is filled beyond this share; inserts go on to [`INSERT_PERCENT`].
const SHORT_PERCENT: i64 = 85;

/// Normal inserts fill at most this share of data memory.
const INSERT_PERCENT: i64 = 95;

/// A page: to be given back to a [`MemoryManager`], and lost otherwise. What is in a new one is of no meaning.
pub type Page = &'static mut [u8; PAGE_BYTES];

/// Tells the operating system that the content of a page is not needed any more, which may be anything then.
pub type Release = fn(&mut [u8; PAGE_BYTES]);

/// The free pages of the process; asked only when a slab grows or shrinks, never per row.
static FREE: Mutex<FreePages> = Mutex::new(FreePages { kept: Vec::new(), released: Vec::new() });

fn free_pages() -> MutexGuard<'static, FreePages> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

struct FreePages {
    kept: Vec<Page>,
    /// Without memory.
    released: Vec<Page>,
}

impl FreePages {
    fn take(&mut self) -> Option<Page> {
        self.kept.pop().or_else(|| self.released.pop())
    }
    /// Takes a page out of a block that is made now; the memory comes with the first use.
    fn make(&mut self) -> Option<Page> {
        let block = vec![0; BLOCK_PAGES * PAGE_BYTES + ALIGNMENT].leak();
        let aligned = block.as_ptr().align_offset(ALIGNMENT);
        self.released.extend(block.get_mut(aligned..)?.as_chunks_mut().0);
        self.released.pop()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Region {
    Data = 0,
    Index = 1,
    Transaction = 2,
    JobBuffers = 3,
    SendBuffers = 4,
    /// What is to be written to disk: of the log and of checkpoints.
    Log = 5,
    Schema = 6,
    /// What is remembered of commits.
    Outcomes = 7,
}

pub const REGIONS: [Region; 8] = [
    Region::Data,
    Region::Index,
    Region::Transaction,
    Region::JobBuffers,
    Region::SendBuffers,
    Region::Log,
    Region::Schema,
    Region::Outcomes,
];

impl Region {
    pub fn name(self) -> &'static str {
        match self {
            Region::Data => "data",
            Region::Index => "index",
            Region::Transaction => "transaction",
            Region::JobBuffers => "job-buffers",
            Region::SendBuffers => "send-buffers",
            Region::Log => "log",
            Region::Schema => "schema",
            Region::Outcomes => "outcomes",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Priority {
    Normal,
    High,
    Highest,
}

/// Limits of a region in bytes.
#[derive(Clone, Copy, Debug)]
pub struct RegionLimits {
    pub reserved: u64,
    pub maximum: u64,
    pub priority: Priority,
}

/// Use of a region in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionUse {
    pub region: Region,
    pub used: u64,
    pub reserved: u64,
    pub maximum: u64,
    /// What it could get now; of data memory what inserts could.
    pub room: u64,
    /// How often it was refused memory.
    pub refused: u64,
}

#[derive(Debug)]
struct RegionState {
    limits: RegionLimits,
    used: AtomicI64,
    refused: AtomicU64,
}

#[derive(Debug)]
pub struct MemoryManager {
    regions: [RegionState; REGIONS.len()],
    /// Bytes of the shared pool, and how many of them are in use.
    pool: i64,
    pool_used: AtomicI64,
    release: Option<Release>,
}

impl MemoryManager {
    /// `total`: bytes for everything, shared out as [`MemoryManager::usual_limits`] says.
    pub fn new(total: u64) -> Arc<MemoryManager> {
        MemoryManager::with_limits(total, MemoryManager::usual_limits(total))
    }

    /// Data and indexes may fill most of the memory; a part is reserved for what must not fail. `docs/internals/memory.md` has the table.
    pub fn usual_limits(total: u64) -> [RegionLimits; REGIONS.len()] {
        let share = |percent: u64| total / 100 * percent;
        let limits =
            |reserved, maximum, priority| RegionLimits { reserved: share(reserved), maximum: share(maximum), priority };
        REGIONS.map(|region| match region {
            Region::Data => limits(0, 90, Priority::Normal),
            Region::Index => limits(0, 60, Priority::Normal),
            Region::Transaction => limits(2, 40, Priority::High),
            Region::JobBuffers => limits(2, 10, Priority::Highest),
            Region::SendBuffers => limits(2, 20, Priority::Highest),
            Region::Log => limits(2, 25, Priority::High),
            Region::Schema => limits(1, 10, Priority::High),
            Region::Outcomes => limits(1, 10, Priority::High),
        })
    }
    pub fn with_limits(total: u64, limits: [RegionLimits; REGIONS.len()]) -> Arc<MemoryManager> {
        MemoryManager::made(total, limits, None)
    }
    /// The same, where memory goes back to the operating system in this way.
    pub fn releasing(total: u64, limits: [RegionLimits; REGIONS.len()], release: Release) -> Arc<MemoryManager> {
        MemoryManager::made(total, limits, Some(release))
    }

    fn made(total: u64, limits: [RegionLimits; REGIONS.len()], release: Option<Release>) -> Arc<MemoryManager> {
        let reserved: u64 = limits.iter().map(|l| l.reserved).sum();
        assert!(reserved <= total, "reserved memory {reserved} is more than the total {total}");
        Arc::new(MemoryManager {
            regions: limits.map(|limits| RegionState { limits, used: AtomicI64::new(0), refused: AtomicU64::new(0) }),
            pool: (total - reserved) as i64,
            pool_used: AtomicI64::new(0),
            release,
        })
    }

    /// Takes `bytes` from a region's budget. `insert`: a normal insert, which data memory refuses at 95 % of its maximum and of its
    /// part of the pool.
    pub fn account(&self, region: Region, bytes: usize, insert: bool) -> bool {
        let state = &self.regions[region as usize];
        let bytes = bytes as i64;
        let before = state.used.fetch_add(bytes, Relaxed);
        let percent = if insert && region == Region::Data { INSERT_PERCENT } else { 100 };
        let ceiling = state.limits.maximum as i64 / 100 * percent;
        let from_pool = beyond(before + bytes, state) - beyond(before, state);
        if before + bytes > ceiling {
            self.take_back(state, bytes, from_pool);
            state.refused.fetch_add(1, Relaxed);
            return false;
        }
        if from_pool == 0 {
            return true;
        }
        let usable = self.usable(state, percent);
        if self.pool_used.fetch_add(from_pool, Relaxed) + from_pool > usable {
            self.pool_used.fetch_sub(from_pool, Relaxed);
            self.take_back(state, bytes, from_pool);
            state.refused.fetch_add(1, Relaxed);
            return false;
        }
        true
    }

    /// Up to where this region may fill the pool.
    fn usable(&self, state: &RegionState, percent: i64) -> i64 {
        match state.limits.priority {
            Priority::Normal => self.pool / 100 * 90 / 100 * percent,
            Priority::High => self.pool / 100 * 96,
            Priority::Highest => self.pool,
        }
    }
    /// Takes bytes beyond all limits: for what must not fail and was paid for by something else.
    pub fn account_anyway(&self, region: Region, bytes: usize) {
        let state = &self.regions[region as usize];
        let before = state.used.fetch_add(bytes as i64, Relaxed);
        self.pool_used.fetch_add(beyond(before + bytes as i64, state) - beyond(before, state), Relaxed);
    }

    /// Undoes a step up of `used` whose share of the pool was not charged. Another thread may have moved `used` meanwhile, so the
    /// step down can have another share than the step up; the difference goes to the pool, which keeps the sum of all steps exact.
    fn take_back(&self, state: &RegionState, bytes: i64, from_pool: i64) {
        let before = state.used.fetch_sub(bytes, Relaxed);
        let to_pool = beyond(before, state) - beyond(before - bytes, state);
        if from_pool != to_pool {
            self.pool_used.fetch_add(from_pool - to_pool, Relaxed);
        }
    }

    /// Gives bytes back that [`MemoryManager::account`] granted.
    pub fn unaccount(&self, region: Region, bytes: usize) {
        let state = &self.regions[region as usize];
        let before = state.used.fetch_sub(bytes as i64, Relaxed);
        assert!(before >= bytes as i64, "{region:?} gave back {bytes} bytes and had only {before}");
        let to_pool = beyond(before, state) - beyond(before - bytes as i64, state);
        self.pool_used.fetch_sub(to_pool, Relaxed);
    }

    /// Data memory is filled over [`SHORT_PERCENT`] of what it may take: time to give up what is kept only for readers of the past.
    pub fn is_short(&self) -> bool {
        let data = &self.regions[Region::Data as usize];
        let over = |used: &AtomicI64, most: i64| used.load(Relaxed) > most / 100 * SHORT_PERCENT;
        over(&data.used, data.limits.maximum as i64) || over(&self.pool_used, self.pool / 100 * 90)
    }

    pub fn alloc_page(&self, region: Region, insert: bool) -> Option<Page> {
        if !self.account(region, PAGE_BYTES, insert) {
            return None;
        }
        let mut free = free_pages();
        free.take().or_else(|| free.make())
    }

    pub fn free_page(&self, region: Region, page: Page) {
        self.unaccount(region, PAGE_BYTES);
        let mut free = free_pages();
        match self.release {
            Some(release) if free.kept.len() >= KEEP_PAGES => {
                drop(free);
                release(page);
                free_pages().released.push(page);
            }
            _ => free.kept.push(page),
        }
    }

    pub fn usage(&self) -> impl Iterator<Item = RegionUse> + '_ {
        REGIONS.into_iter().map(|region| {
            let state = &self.regions[region as usize];
            let percent = if region == Region::Data { INSERT_PERCENT } else { 100 };
            let used = state.used.load(Relaxed).max(0);
            let (reserved, maximum) = (state.limits.reserved as i64, state.limits.maximum as i64);
            let of_pool = (self.usable(state, percent) - self.pool_used.load(Relaxed)).max(0);
            let room = ((reserved - used).max(0) + of_pool).min(maximum / 100 * percent - used).max(0);
            RegionUse {
                region,
                used: used as u64,
                reserved: reserved as u64,
                maximum: maximum as u64,
                room: room as u64,
                refused: state.refused.load(Relaxed),
            }
        })
    }

    /// Bytes of the shared pool that are in use, and all of them.
    pub fn pool(&self) -> (u64, u64) {
        (self.pool_used.load(Relaxed).max(0) as u64, self.pool as u64)
    }
}

fn beyond(used: i64, state: &RegionState) -> i64 {
    (used - state.limits.reserved as i64).max(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_keeps_its_last_tenth_for_high_priority() {
        let memory = MemoryManager::new(100 * PAGE_BYTES as u64);
        let mut pages = Vec::new();
        while let Some(page) = memory.alloc_page(Region::Data, false) {
            pages.push(page);
        }
        assert_eq!(pages.len(), 80, "90 % of the 90 pages that are not reserved, rounded down");
        assert!(memory.alloc_page(Region::Transaction, false).is_some());
        assert!(memory.alloc_page(Region::JobBuffers, false).is_some());
        for page in pages.drain(..) {
            memory.free_page(Region::Data, page);
        }
        assert!(memory.alloc_page(Region::Index, false).is_some());
    }

    #[test]
    fn what_is_full_says_so() {
        let memory = MemoryManager::new(1000 * PAGE_BYTES as u64);
        let of = |region| memory.usage().find(|u| u.region == region).expect("each region is there");
        let room = of(Region::Data).room;
        assert!(memory.account(Region::Data, room as usize, true));
        assert_eq!((of(Region::Data).room, of(Region::Data).refused), (0, 0));
        assert!(!memory.account(Region::Data, 1, true));
        assert_eq!((of(Region::Data).refused, of(Region::Index).refused), (1, 0));
        // The log has what is reserved for it, and the pool's part that is for the more important.
        let log = of(Region::Log);
        assert!(log.room > log.reserved && memory.account(Region::Log, log.room as usize, false));
        assert_eq!(of(Region::Log).room, 0);
        memory.unaccount(Region::Data, room as usize);
        assert!(of(Region::Data).room > 0 && of(Region::Log).room > 0);
        let (used, pool) = memory.pool();
        assert_eq!((used, pool), (log.room - log.reserved, 900 * PAGE_BYTES as u64));
    }

    #[test]
    fn inserts_stop_before_updates() {
        let memory = MemoryManager::new(1000 * PAGE_BYTES as u64);
        let bytes = 860 * PAGE_BYTES;
        assert!(!memory.account(Region::Data, bytes, true));
    }

    #[test]
    fn inserts_leave_a_part_of_the_pool_to_deletes() {
        let memory = MemoryManager::new(1000 * PAGE_BYTES as u64);
        let mut pages = Vec::new();
        while let Some(page) = memory.alloc_page(Region::Data, true) {
            pages.push(page);
        }
        let left = std::iter::from_fn(|| memory.alloc_page(Region::Data, false)).count();
        assert!((40..50).contains(&left), "{left} of {} pages", pages.len() + left);
    }

    /// No two pages are the same memory, free ones are given out again, and what is released is told.
    #[test]
    fn pages_are_apart_and_come_again() {
        use std::sync::atomic::AtomicUsize;
        static RELEASED: AtomicUsize = AtomicUsize::new(0);
        let memory = MemoryManager::releasing(1 << 30, MemoryManager::usual_limits(1 << 30), |page| {
            assert!(page.as_ptr().align_offset(ALIGNMENT) == 0);
            page.fill(0);
            RELEASED.fetch_add(1, Relaxed);
        });
        for round in 0..3 {
            let mut pages: Vec<Page> =
                std::iter::from_fn(|| memory.alloc_page(Region::Data, true)).take(1000).collect();
            for (i, page) in pages.iter_mut().enumerate() {
                page.fill((i + round) as u8);
            }
            assert!(pages.iter().enumerate().all(|(i, page)| page.iter().all(|byte| *byte == (i + round) as u8)));
            pages.into_iter().for_each(|page| memory.free_page(Region::Data, page));
        }
        // Other tests take pages meanwhile.
        assert!(RELEASED.load(Relaxed) > 1000 && memory.usage().all(|region| region.used == 0));
    }
}
