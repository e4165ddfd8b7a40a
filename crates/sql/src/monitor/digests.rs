//! Counters of statements by their normal form: PERFORMANCE_SCHEMA.events_statements_summary_by_digest.
//!
//! Each SQL thread counts for itself, with plain loads and stores of its own counters, as [`super::status`] does; whoever reads the table adds up what threads know of one database and
//! normal form. A thread keeps so many of them as `performance_schema_digests_size` says; those beyond are counted together in a row without a name. 0 keeps none, and nothing is
//! counted then. Texts are cut ([`TEXT_BYTES_MAX`]), so a thread holds 3 MiB at most of what is set at first.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use apus_types::{collections::FixedMap, hash::hash_key};
use sha2::{Digest as _, Sha256};

use super::{access, digest_text};
use crate::value::{
    datum::{Datum, Row},
    zone::clock,
};

/// Normal forms that a thread keeps, unless it is told otherwise.
pub const SIZE_DEFAULT: usize = 1000;
/// Most of them that it may be told.
pub const SIZE_MAX: usize = 10_000;
/// Longest text and sample, in bytes.
pub const TEXT_BYTES_MAX: usize = 1024;
/// Times are told apart by the power of two of their microseconds.
const BUCKETS: usize = 32;

/// Counters, in this order.
const COUNT: usize = 0;
const MICROS: usize = 1;
const LEAST: usize = 2;
const MOST: usize = 3;
const ERRORS: usize = 4;
const WARNINGS: usize = 5;
const AFFECTED: usize = 6;
const SENT: usize = 7;
const EXAMINED: usize = 8;
const FIRST_SEEN: usize = 9;
const LAST_SEEN: usize = 10;
/// Of each trait of a plan one.
const TRAITS: usize = 11;
const COUNTERS: usize = TRAITS + 8;

/// What one thread has counted of a normal form.
#[derive(Debug)]
pub struct Counted {
    /// Empty: none. Both are empty where all that had no place are counted.
    database: String,
    text: String,
    sample: String,
    numbers: [AtomicU64; COUNTERS],
    buckets: [AtomicU32; BUCKETS],
}

impl Counted {
    fn new(database: &str, text: String, sample: String) -> Counted {
        let numbers = std::array::from_fn(|at| AtomicU64::new(if at == LEAST { u64::MAX } else { 0 }));
        Counted { database: database.to_owned(), text, sample, numbers, buckets: Default::default() }
    }

    fn add(&self, at: usize, n: u64) {
        let cell = &self.numbers[at];
        cell.store(cell.load(Relaxed).wrapping_add(n), Relaxed);
    }

    fn count(&self, did: &Did) {
        self.add(COUNT, 1);
        self.add(MICROS, did.micros);
        if did.micros < self.numbers[LEAST].load(Relaxed) {
            self.numbers[LEAST].store(did.micros, Relaxed);
        }
        if did.micros > self.numbers[MOST].load(Relaxed) {
            self.numbers[MOST].store(did.micros, Relaxed);
        }
        self.add(SENT, did.sent);
        self.add(EXAMINED, did.examined);
        self.add(AFFECTED, did.affected);
        let bucket = &self.buckets[(u64::BITS - did.micros.leading_zeros()).min(BUCKETS as u32 - 1) as usize];
        bucket.store(bucket.load(Relaxed).wrapping_add(1), Relaxed);
        if did.traits != 0 || did.warnings != 0 || did.is_failed || self.numbers[COUNT].load(Relaxed) % SEEN_EVERY == 1
        {
            self.count_rare(did);
        }
    }

    #[cold]
    fn count_rare(&self, did: &Did) {
        self.add(ERRORS, u64::from(did.is_failed));
        self.add(WARNINGS, did.warnings);
        (0..8).filter(|bit| did.traits >> bit & 1 == 1).for_each(|bit| self.add(TRAITS + bit, 1));
        let now = clock().cast_unsigned();
        if self.numbers[FIRST_SEEN].load(Relaxed) == 0 {
            self.numbers[FIRST_SEEN].store(now, Relaxed);
        }
        self.numbers[LAST_SEEN].store(now, Relaxed);
    }
}

/// The clock is looked at with every so many statements of a normal form, and with the first.
const SEEN_EVERY: u64 = 16;

type Line = Arc<Mutex<Vec<Arc<Counted>>>>;

/// Of a SQL node.
#[derive(Debug)]
pub struct Digests {
    lines: Mutex<Vec<Line>>,
    size: AtomicUsize,
    /// How often all were forgotten.
    generation: AtomicU32,
}

impl Default for Digests {
    fn default() -> Digests {
        Digests { lines: Mutex::default(), size: AtomicUsize::new(SIZE_DEFAULT), generation: AtomicU32::new(0) }
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Digests {
    pub fn set_size(&self, size: usize) {
        self.size.store(size.min(SIZE_MAX), Relaxed);
    }

    /// For a SQL thread.
    pub fn thread(self: &Arc<Self>) -> OfThread {
        let line = Line::default();
        lock(&self.lines).push(line.clone());
        OfThread { shared: self.clone(), line, known: RefCell::default() }
    }

    /// All begin anew, threads with the next statement that they count.
    pub fn forget(&self) {
        self.generation.fetch_add(1, Relaxed);
        lock(&self.lines).iter().for_each(|line| lock(line).clear());
    }

    /// The rows of the table.
    pub fn rows(&self) -> Vec<Row> {
        let mut all: BTreeMap<(String, String), Sum> = BTreeMap::new();
        for line in lock(&self.lines).iter() {
            for counted in lock(line).iter().filter(|c| c.numbers[COUNT].load(Relaxed) > 0) {
                all.entry((counted.database.clone(), counted.text.clone())).or_default().take(counted);
            }
        }
        all.into_iter().map(|((database, text), sum)| sum.row(&database, &text)).collect()
    }
}

/// One thread's.
pub struct OfThread {
    shared: Arc<Digests>,
    line: Line,
    known: RefCell<Known>,
}

/// Where a thread counts a normal form, until all are forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    generation: u32,
    at: u32,
}

#[derive(Default)]
struct Known {
    generation: u32,
    places: FixedMap<u64, u32>,
    list: Vec<Arc<Counted>>,
}

impl OfThread {
    /// The place of a normal form in a database.
    pub fn find(&self, database: Option<&str>, (normal, form): (&[u8], u64), sql: &[u8]) -> Option<Place> {
        if self.shared.size.load(Relaxed) == 0 {
            return None;
        }
        let database = database.unwrap_or_default();
        let key = form ^ database.len() as u64;
        let known = self.known.borrow();
        if let Some(place) = known.places.get(&key).filter(|place| known.list[**place as usize].database == database) {
            let generation = known.generation;
            if self.is_current(generation) {
                return Some(Place { generation, at: *place });
            }
        }
        drop(known);
        Some(self.find_other((key, form), database, normal, sql))
    }

    fn is_current(&self, generation: u32) -> bool {
        self.shared.generation.load(Relaxed) == generation
    }

    /// Whether a place is still that of the normal form that it was given for.
    pub fn is_of_now(&self, place: Place) -> bool {
        self.is_current(place.generation)
    }

    /// A normal form that is new, or known in another database with a name as long.
    #[cold]
    fn find_other(&self, (key, form): (u64, u64), database: &str, normal: &[u8], sql: &[u8]) -> Place {
        let generation = self.shared.generation.load(Relaxed);
        if self.known.borrow().generation != generation {
            *self.known.borrow_mut() = Known { generation, ..Known::default() };
        }
        let known = self.known.borrow();
        let key = if known.places.contains_key(&key) { form ^ hash_key(database.as_bytes()) } else { key };
        let place = known.places.get(&key).copied();
        drop(known);
        Place { generation, at: place.unwrap_or_else(|| self.begin(key, database, normal, sql)) }
    }

    fn begin(&self, key: u64, database: &str, normal: &[u8], sql: &[u8]) -> u32 {
        let size = self.shared.size.load(Relaxed);
        let mut known = self.known.borrow_mut();
        if known.list.is_empty() {
            // All that have no place.
            let rest = Arc::new(Counted::new("", String::new(), String::new()));
            lock(&self.line).push(rest.clone());
            known.list.push(rest);
        }
        if known.list.len() > size {
            return 0;
        }
        let text =
            digest_text::of(&String::from_utf8_lossy(normal.get(..digest_text::NORMAL_BYTES_MAX).unwrap_or(normal)));
        let sql = if digest_text::is_secret(sql) { b"" } else { sql.get(..TEXT_BYTES_MAX).unwrap_or(sql) };
        let sample = String::from_utf8_lossy(sql).into_owned();
        let counted = Arc::new(Counted::new(database, digest_text::cut(text, TEXT_BYTES_MAX), sample));
        lock(&self.line).push(counted.clone());
        known.list.push(counted);
        let place = known.list.len() as u32 - 1;
        known.places.insert(key, place);
        place
    }

    pub fn add(&self, place: Place, did: &Did) {
        let known = self.known.borrow();
        if known.generation == place.generation
            && let Some(counted) = known.list.get(place.at as usize)
        {
            counted.count(did);
        }
    }
}

/// What several threads know of one normal form.
struct Sum {
    numbers: [u64; COUNTERS],
    buckets: [u64; BUCKETS],
    sample: String,
}

impl Default for Sum {
    fn default() -> Sum {
        let numbers = std::array::from_fn(|at| if matches!(at, LEAST | FIRST_SEEN) { u64::MAX } else { 0 });
        Sum { numbers, buckets: [0; BUCKETS], sample: String::new() }
    }
}

/// Picoseconds, in which the table has its times.
const PICOS: u64 = 1_000_000;

impl Sum {
    fn take(&mut self, counted: &Counted) {
        for (at, (sum, n)) in self.numbers.iter_mut().zip(&counted.numbers).enumerate() {
            let n = n.load(Relaxed);
            *sum = match at {
                LEAST | FIRST_SEEN => n.min(*sum),
                MOST | LAST_SEEN => n.max(*sum),
                _ => sum.wrapping_add(n),
            };
        }
        self.buckets.iter_mut().zip(&counted.buckets).for_each(|(sum, n)| *sum += u64::from(n.load(Relaxed)));
        if self.sample.is_empty() {
            self.sample.clone_from(&counted.sample);
        }
    }

    /// The time that so many of a thousand statements did not take longer than: the end of a bucket.
    fn quantile(&self, thousandths: u64) -> u64 {
        let all: u64 = self.buckets.iter().sum();
        let mut so_far = 0;
        let found = self.buckets.iter().position(|n| {
            so_far += n;
            so_far * 1000 >= all * thousandths
        });
        (1u64 << found.unwrap_or(0)).min(self.numbers[MOST].max(1)).saturating_mul(PICOS)
    }

    fn row(&self, database: &str, text: &str) -> Row {
        let of = |at: usize| self.numbers[at];
        let number = |n: u64| Datum::UInt(n);
        let picos = |micros: u64| Datum::UInt(micros.saturating_mul(PICOS));
        let named = |text: &str| if text.is_empty() { Datum::Null } else { Datum::text(text.to_owned()) };
        let digest: String = Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
        let kind = |bit: u8| number(of(TRAITS + bit.trailing_zeros() as usize));
        let moment = |at: usize| Datum::Int(of(at).cast_signed());
        let (zero, average) = (number(0), of(MICROS) / of(COUNT).max(1));
        vec![
            named(database),
            if text.is_empty() { Datum::Null } else { Datum::text(digest) },
            named(text),
            number(of(COUNT)),
            picos(of(MICROS)),
            picos(of(LEAST)),
            picos(average),
            picos(of(MOST)),
            zero.clone(),
            number(of(ERRORS)),
            number(of(WARNINGS)),
            number(of(AFFECTED)),
            number(of(SENT)),
            number(of(EXAMINED)),
            zero.clone(),
            kind(access::TEMPORARY),
            kind(access::FULL_JOIN),
            zero.clone(),
            kind(access::RANGE),
            zero.clone(),
            kind(access::SCAN),
            zero.clone(),
            kind(access::SORT_RANGE),
            zero.clone(),
            kind(access::SORT_SCAN),
            kind(access::NO_INDEX),
            zero.clone(),
            zero.clone(),
            zero.clone(),
            zero.clone(),
            zero,
            moment(FIRST_SEEN),
            moment(LAST_SEEN),
            number(self.quantile(950)),
            number(self.quantile(990)),
            number(self.quantile(999)),
            named(&self.sample),
            moment(LAST_SEEN),
            picos(average),
        ]
    }
}

/// What a statement has done, as far as it is counted by its normal form.
#[derive(Clone, Copy, Default, Debug)]
pub struct Did {
    pub micros: u64,
    pub affected: u64,
    pub sent: u64,
    pub examined: u64,
    pub warnings: u64,
    pub is_failed: bool,
    /// How its plan reads: see [`super::access`].
    pub traits: u8,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_added_up_and_bounded() {
        let shared = Arc::new(Digests::default());
        let (one, other) = (shared.thread(), shared.thread());
        let did = |micros| Did { micros, sent: 2, examined: 5, ..Did::default() };
        for (thread, micros) in [(&one, 100), (&one, 300), (&other, 50)] {
            let place =
                thread.find(Some("d"), (b"SELECT a FROM t WHERE id=?1", 7), b"SELECT a FROM t WHERE id=7").unwrap();
            thread.add(place, &did(micros));
        }
        let rows = shared.rows();
        assert_eq!(rows.len(), 1);
        let of = |at: usize| rows[0][at].as_string();
        assert_eq!([of(0), of(2)], ["d", "SELECT `a` FROM `t` WHERE `id` = ?"]);
        assert_eq!([3, 4, 5, 7, 12, 13].map(of), ["3", "450000000", "50000000", "300000000", "6", "15"]);
        assert_eq!((of(33), of(36)), ("300000000".to_owned(), "SELECT a FROM t WHERE id=7".to_owned()));
        let same = one.find(Some("e"), (b"SELECT a FROM t WHERE id=?1", 7), b"").unwrap();
        assert_eq!((same.at, one.find(Some("e"), (b"", 7), b"")), (2, Some(same)), "another database");
        shared.set_size(4);
        for n in 0..9 {
            let normal = format!("SELECT {n} FROM t");
            one.add(one.find(None, (normal.as_bytes(), 100 + n), b"").unwrap(), &did(1));
        }
        let rows = shared.rows();
        assert_eq!((rows.len(), rows[0][1].is_null(), rows[0][3].as_string()), (3, true, "7".to_owned()));
        shared.set_size(0);
        assert_eq!(one.find(None, (b"SELECT 1", 5), b""), None);
        shared.forget();
        assert!(shared.rows().is_empty());
        shared.set_size(5);
        one.add(same, &did(1));
        assert!(shared.rows().is_empty() && !one.is_of_now(same));
        one.add(one.find(None, (b"SELECT 2", 5), b"").unwrap(), &did(1));
        assert_eq!(shared.rows().len(), 1);
    }
}
