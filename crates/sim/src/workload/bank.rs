//! The bank: transfers between accounts while nodes crash, are cut off and come back.
//!
//! What must hold whenever tellers pause and the cluster is whole: the sum of all balances, each balance as the records say, a record
//! for exactly what was acknowledged (and perhaps for what nobody could tell), and every client reads the same.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use apus_client::Client;
use apus_workload::bank::{self, Holdings};

use super::{
    branches::Desk,
    teller::{self, BALANCE, Floor},
    watcher,
};
use crate::{
    Clock, NativeClient,
    drill::{Judgement, Workload},
};

pub use crate::{
    drill::{Failure, Report},
    settings::Settings,
};

/// Runs the bank with the settings.
///
/// # Errors
/// What does not hold; a panic of a block is that, too.
pub fn run(settings: &Settings) -> Result<Report, Failure> {
    super::start(settings, Bank::new(settings))
}

struct Bank {
    floor: Rc<Floor>,
    tellers_per_client: u64,
    clients: BTreeSet<u64>,
}

impl Bank {
    fn new(settings: &Settings) -> Bank {
        let floor = Floor {
            terms: bank::Terms { seed: settings.seed, accounts: settings.accounts, balance: BALANCE },
            pause_max_ns: settings.pause_max_ns,
            class: settings.table_class(),
            desk: Rc::new(Desk::new(settings.branches)),
            ..Floor::default()
        };
        Bank { floor: Rc::new(floor), tellers_per_client: settings.tellers_per_client, clients: BTreeSet::new() }
    }
    fn tellers(&self, client: u64) -> std::ops::Range<u64> {
        client * self.tellers_per_client..(client + 1) * self.tellers_per_client
    }

    fn compare(&self, found: &Holdings) -> Result<(), String> {
        let (acknowledged, unresolved) = (self.floor.acknowledged.borrow(), self.floor.unresolved.borrow());
        let findings = bank::audit(&self.floor.terms, &acknowledged, &unresolved, found);
        if findings.is_good() { Ok(()) } else { Err(findings.to_string()) }
    }

    fn check_latest(&self, ids: &[u64]) -> Result<(), String> {
        let found: BTreeSet<u64> = ids.iter().copied().collect();
        let expected: BTreeSet<u64> = self.floor.latest.borrow().values().copied().collect();
        // A transfer of unknown outcome may have left its row and that of its predecessor.
        let is_good =
            if self.floor.unresolved.borrow().is_empty() { found == expected } else { found.is_superset(&expected) };
        if is_good && found.len() == ids.len() { Ok(()) } else { Err(format!("latest {found:?}, not {expected:?}")) }
    }
}

impl Workload for Bank {
    fn equip(&mut self, number: u64, client: &Client, clock: &Clock, actor: &mut NativeClient) {
        if number == 0 {
            let (client, floor) = (client.clone(), self.floor.clone());
            actor.spawn(async move {
                match teller::open(&client, &floor.terms, floor.class).await {
                    Ok(tables) => {
                        let changed = [&tables.accounts, &tables.transfers].into_iter().chain(&tables.latest);
                        match floor.desk.open(&client, changed).await {
                            Ok(()) => *floor.tables.borrow_mut() = Some(tables),
                            Err(error) => floor.violation(format!("there are no tables of branches: {error}")),
                        }
                    }
                    Err(error) => floor.violation(format!("the accounts cannot be opened: {error}")),
                }
            });
        }
        for teller in self.tellers(number) {
            self.floor.working.borrow_mut().insert(teller);
            actor.spawn(teller::work(self.floor.clone(), client.clone(), clock.clone(), teller));
        }
        actor.spawn(watcher::watch(self.floor.clone(), client.clone(), clock.clone(), number));
        actor.spawn(teller::audit(self.floor.clone(), client.clone(), clock.clone(), number));
        if self.floor.desk.is_open {
            let floor = self.floor.clone();
            let violation = move |text| floor.violation(text);
            actor.spawn(self.floor.desk.clone().tidy(client.clone(), clock.clone(), violation));
        }
        self.clients.insert(number);
    }
    fn lost(&mut self, number: u64) {
        self.clients.remove(&number);
        for teller in self.tellers(number) {
            self.floor.working.borrow_mut().remove(&teller);
            self.floor.doing.borrow_mut().remove(&teller);
            self.floor.desk.lost(teller);
            // Nobody knows what became of what it was about.
            if let Some(id) = self.floor.begun.borrow_mut().remove(&teller) {
                self.floor.unresolved.borrow_mut().push(id);
                self.floor.latest.borrow_mut().remove(&teller);
            }
        }
    }
    fn is_open(&self) -> bool {
        self.floor.tables.borrow().is_some()
    }
    fn progress(&self, number: u64) -> u64 {
        let done = self.floor.done.borrow();
        self.tellers(number).filter_map(|teller| done.get(&teller)).sum()
    }
    fn shut(&mut self, shut: bool) {
        self.floor.shut.set(shut);
    }
    fn at_rest(&self) -> Result<(), String> {
        if !self.floor.working.borrow().is_empty() {
            return Err(format!("{:?}", self.floor.doing.borrow()));
        }
        if self.floor.desk.is_empty() { Ok(()) } else { Err(self.floor.desk.describe()) }
    }
    fn read(&mut self) {
        self.floor.audits.set(self.floor.audits.get() + 1);
    }
    fn is_read(&self) -> bool {
        let findings = self.floor.findings.borrow();
        self.clients
            .iter()
            .all(|number| findings.get(number).is_some_and(|(round, _)| *round == self.floor.audits.get()))
    }
    fn judge(&self) -> Result<Judgement, String> {
        let findings = self.floor.findings.borrow();
        for (_, found) in self.clients.iter().filter_map(|number| findings.get(number)) {
            let found = found.as_ref().map_err(|e| format!("cannot read: {e}"))?;
            self.compare(found)?;
            self.check_latest(&found.latest)?;
        }
        Ok(Judgement::Good)
    }
    fn violation(&self) -> Option<String> {
        self.floor.violations.borrow().first().cloned()
    }
    fn snapshots(&self) -> u64 {
        self.floor.snapshots.get()
    }
    fn figures(&self) -> (u64, u64, BTreeMap<u16, u64>) {
        let counts = (self.floor.acknowledged.borrow().len(), self.floor.unresolved.borrow().len());
        (counts.0 as u64, counts.1 as u64, self.floor.retries.borrow().clone())
    }
}
