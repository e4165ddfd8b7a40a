//! Plans by the normal form of their statement.

use std::rc::Rc;

use apus_types::{collections::FixedMap, hash::hash_key};

use super::Plan;
use crate::{catalog::Catalog, variables::Planning};

/// Most plans kept per thread; at the limit all are dropped, which costs one planning each.
pub const PLANS_MAX: usize = 10_000;
/// A longer normal form is planned each time: it is a bulk load, not a statement that comes back.
pub const TEXT_BYTES_MAX: usize = 32 << 10;

/// What is known about a normal form.
#[derive(Clone)]
pub enum Cached {
    Plan(Rc<Plan>),
    /// Literals decide its shape: plan from the text.
    Structural,
}

struct Entry {
    text: Box<[u8]>,
    database: Option<String>,
    /// Of the catalog.
    state: (u64, u64),
    /// Of the statistics.
    generation: u64,
    planning: Planning,
    cached: Cached,
}

impl Entry {
    fn is_of(&self, catalog: &Catalog) -> bool {
        let Cached::Plan(plan) = &self.cached else { return self.state == catalog.state() };
        (self.state == catalog.state() || plan.is_of(catalog))
            && (self.generation == catalog.statistics.generation() || !plan.is_weighed())
    }
}

/// By which the plans of a normal form are found.
pub fn key_of(text: &[u8]) -> u64 {
    hash_key(text)
}

#[derive(Default)]
pub struct PlanCache {
    entries: FixedMap<u64, Entry>,
}

impl PlanCache {
    /// By a normal form and its [`key_of`]. A plan of an older dictionary stays while its tables are what they were.
    pub fn find(
        &mut self,
        (text, key): (&[u8], u64),
        database: Option<&str>,
        catalog: &Catalog,
        planning: Planning,
    ) -> Option<Cached> {
        let found = self.entries.get_mut(&key).filter(|e| {
            e.planning == planning && e.database.as_deref() == database && e.text.as_ref() == text && e.is_of(catalog)
        })?;
        found.state = catalog.state();
        Some(found.cached.clone())
    }

    pub fn put(&mut self, text: &[u8], database: Option<&str>, catalog: &Catalog, planning: Planning, cached: Cached) {
        if text.len() > TEXT_BYTES_MAX {
            return;
        }
        if self.entries.len() >= PLANS_MAX {
            self.entries.clear();
        }
        let (state, generation) = (catalog.state(), catalog.statistics.generation());
        let database = database.map(str::to_owned);
        let entry = Entry { text: text.into(), database, state, generation, planning, cached };
        self.entries.insert(hash_key(text), entry);
    }
}
