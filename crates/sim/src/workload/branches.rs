//! Transactions that are prepared before they are committed (`apus_client`'s module `branch`), for workloads that judge what became of transactions.
//!
//! The desk is the coordinator of a distributed transaction: it remembers which branches are about, and for each whether it was decided to commit it, which is after its preparation was acknowledged. From then on it has to
//! be committed, whatever dies: a branch that is gone before anybody has ended it is a violation. Branches whose owners died are ended by others, as it was decided; those of which nothing was decided are rolled back.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};

use apus_client::{BranchEnd, BranchTables, Client, ClientError, Outcome, Transaction};
use apus_kernel::Random;
use apus_signal::{dict::Change, schema::TableMessage};
use apus_types::{
    ErrorClass, ErrorCode, TableId, TableSchema,
    claims::{branches_definition, claims_definition},
};

use crate::Clock;

const MS: u64 = 1_000_000;
const LOCK_WAIT_MS: u32 = 2_000;
/// Longest time between preparation and decision.
const PAUSE_NS: u64 = 20 * MS;
/// One branch in so many is rolled back.
const ROLLED_BACK_ONE_IN: u64 = 8;
/// How often somebody looks for branches that nobody minds.
const TIDY_NS: u64 = 25 * MS;

#[derive(Clone, Copy)]
struct Entry {
    owner: u64,
    commit: bool,
}

/// What all who prepare share.
#[derive(Default)]
pub(super) struct Desk {
    /// Transactions are prepared.
    pub is_open: bool,
    tables: RefCell<Option<BranchTables>>,
    schemas: RefCell<Vec<Rc<TableSchema>>>,
    about: RefCell<BTreeMap<u64, Entry>>,
    next: Cell<u64>,
}

impl Desk {
    pub fn new(is_open: bool) -> Desk {
        Desk { is_open, ..Desk::default() }
    }

    /// Makes the tables of branches. `tables`: those that transactions change.
    ///
    /// # Errors
    /// The cluster refuses.
    pub async fn open<'t>(
        &self,
        client: &Client,
        tables: impl IntoIterator<Item = &'t TableSchema>,
    ) -> Result<(), ClientError> {
        if !self.is_open {
            return Ok(());
        }
        for definition in [claims_definition(), branches_definition()] {
            client.schema_change(Change::CreateTable(TableMessage::from(&definition))).await?;
        }
        let dictionary = client.dictionary(0).await?.unwrap_or_default();
        let find = |wanted: TableSchema| {
            let found = dictionary.tables.iter().find(|t| t.database == wanted.database && t.name == wanted.name);
            let found = found.ok_or_else(|| ClientError::with_detail(ErrorCode::TableNotFound, wanted.name.clone()))?;
            Ok::<_, ClientError>(Rc::new(TableSchema::try_from(found)?))
        };
        let (branches, claims) = (find(branches_definition())?, find(claims_definition())?);
        self.schemas.borrow_mut().extend(tables.into_iter().map(|table| Rc::new(table.clone())));
        *self.tables.borrow_mut() = Some(BranchTables { branches, claims });
        Ok(())
    }

    /// Nobody is about to end any branch.
    pub fn is_empty(&self) -> bool {
        self.about.borrow().is_empty()
    }
    pub fn describe(&self) -> String {
        format!("branches of {:?}", self.about.borrow().iter().map(|(id, e)| (id, e.owner)).collect::<Vec<_>>())
    }
    /// Its branches are for others to end.
    pub fn lost(&self, owner: u64) {
        self.about.borrow_mut().values_mut().filter(|e| e.owner == owner).for_each(|e| e.owner = u64::MAX);
    }

    fn schema_of(&self, id: TableId) -> Option<Rc<TableSchema>> {
        self.schemas.borrow().iter().find(|table| table.id == id).cloned()
    }

    /// Prepares the transaction, decides, and ends the branch.
    ///
    /// # Errors
    /// It is rolled back. `violation` is told what should not be.
    pub async fn see_through(
        &self,
        (client, clock): (&Client, &Clock),
        random: &mut Random,
        transaction: &mut Transaction,
        savepoint: u32,
        owner: u64,
        violation: impl Fn(String),
    ) -> Result<(), ClientError> {
        let Some(tables) = self.tables.borrow().clone() else { return Err(ErrorCode::TransactionAborted.into()) };
        let id = self.next.replace(self.next.get() + 1);
        self.about.borrow_mut().insert(id, Entry { owner, commit: false });
        let prepared = transaction.prepare(&name(id), random.next_u64(), savepoint, &tables, async |_| Ok(())).await;
        let is_prepared = match &prepared {
            Ok(()) => true,
            Err(e) if e.class() == ErrorClass::UnknownOutcome => match transaction.token() {
                Some(token) => matches!(client.outcome(&token).await, Ok(Outcome::Committed)),
                None => false,
            },
            Err(_) => false,
        };
        let commit = is_prepared && !random.one_in(ROLLED_BACK_ONE_IN);
        if is_prepared && random.one_in(2) {
            clock.sleep(random.below(PAUSE_NS)).await;
        }
        if let Some(entry) = self.about.borrow_mut().get_mut(&id) {
            entry.commit = commit;
        }
        let may_be_gone = !is_prepared;
        match prepared {
            // Refused: there is nothing to end.
            Err(e) if e.class() != ErrorClass::UnknownOutcome => {
                self.about.borrow_mut().remove(&id);
                return Err(e);
            }
            _ => self.end(client, clock, id, commit, may_be_gone, &tables, &violation).await,
        }
        if commit { Ok(()) } else { Err(ErrorCode::TransactionAborted.into()) }
    }

    /// Ends a branch, however long it takes.
    #[allow(clippy::too_many_arguments)]
    async fn end(
        &self,
        client: &Client,
        clock: &Clock,
        id: u64,
        commit: bool,
        mut may_be_gone: bool,
        tables: &BranchTables,
        violation: &impl Fn(String),
    ) {
        let end = if commit { BranchEnd::Commit } else { BranchEnd::Rollback };
        loop {
            match client.end_branch(&name(id), end, tables, |table| self.schema_of(table), LOCK_WAIT_MS).await {
                Ok(was_there) => {
                    if !was_there && !may_be_gone {
                        violation(format!("branch {id} was prepared, and is gone before anybody has ended it"));
                    }
                    break;
                }
                Err(e) if e.class() == ErrorClass::UnknownOutcome => may_be_gone = true,
                Err(e)
                    if matches!(
                        e.class(),
                        ErrorClass::Temporary | ErrorClass::Conflict | ErrorClass::Timeout | ErrorClass::NoSpace
                    ) => {}
                Err(e) => violation(format!("branch {id} cannot be ended: {e}")),
            }
            clock.sleep(MS).await;
        }
        self.about.borrow_mut().remove(&id);
    }

    /// Ends what nobody minds any more. Never ends; it is dropped with its client.
    pub async fn tidy(self: Rc<Self>, client: Client, clock: Clock, violation: impl Fn(String)) {
        loop {
            clock.sleep(TIDY_NS).await;
            let Some(tables) = self.tables.borrow().clone() else { continue };
            let mut left: Vec<u64> = {
                let about = self.about.borrow();
                about.iter().filter(|(_, e)| e.owner == u64::MAX).map(|(id, _)| *id).collect()
            };
            // One that was prepared after all, when its owner had been told otherwise or was gone.
            let found = client.branches(&tables).await.unwrap_or_default();
            let found = found.iter().filter_map(|name| Some(u64::from_be_bytes(name.as_slice().try_into().ok()?)));
            left.extend(found.filter(|id| !self.about.borrow().contains_key(id)));
            for id in left {
                let commit = self.about.borrow().get(&id).is_some_and(|entry| entry.commit);
                self.end(&client, &clock, id, commit, true, &tables, &violation).await;
            }
        }
    }
}

fn name(id: u64) -> [u8; 8] {
    id.to_be_bytes()
}
