//! A set of numbers: members insert some, delete some of their own, take some back, and read all there are in the midst of it. What was
//! acknowledged must be there and what was refused must not ([`crate::check::set`]). Everybody asks with the commit tokens of everybody's
//! transactions what became of them, and the answers must agree with each other and with what is read ([`crate::check::tokens`]).

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use apus_client::{Client, ClientError, CommitToken, ExecOptions, OpBatch, Outcome, Results, ScanRequest};
use apus_signal::tc::OpKind;
use apus_types::{ErrorCode, TableSchema, Value};

use super::crew::{Fate, Hall, LOCK_WAIT_MS, Member, Play, column, encode_key, number, number_type, scan, table};
use crate::{
    check::{
        set::{Fate as SetFate, SetHistory},
        tokens::{Said, Tokens},
    },
    drill::Judgement,
};

/// Tokens kept to be asked about.
const TOKENS_MAX: usize = 32;

/// What a member is about.
struct Open {
    begin: u64,
    numbers: Vec<u64>,
    inserts: bool,
}

pub(super) struct Numbers {
    hall: Rc<Hall>,
    history: RefCell<SetHistory>,
    tokens: RefCell<Tokens>,
    /// Transactions to be asked about, by their first number.
    asked: RefCell<Vec<(u64, CommitToken)>>,
    /// First numbers of transactions whose numbers stay.
    tracked: RefCell<BTreeSet<u64>>,
    /// What a member is inserting or deleting, and since when.
    open: RefCell<BTreeMap<u64, Open>>,
    /// Numbers that a member may delete.
    own: RefCell<BTreeMap<u64, Vec<u64>>>,
    next: Cell<u64>,
}

impl Numbers {
    pub fn new(hall: Rc<Hall>) -> Numbers {
        Numbers {
            hall,
            history: RefCell::default(),
            tokens: RefCell::default(),
            asked: RefCell::default(),
            tracked: RefCell::default(),
            open: RefCell::default(),
            own: RefCell::default(),
            next: Cell::new(0),
        }
    }

    fn settle(&self, member: u64, fate: SetFate) {
        let Some(Open { begin, numbers, inserts }) = self.open.borrow_mut().remove(&member) else { return };
        let mut history = self.history.borrow_mut();
        for number in numbers {
            if inserts {
                history.inserted(number, begin, fate);
            } else {
                history.deleted(number, begin, fate);
            }
        }
    }

    /// Inserts or deletes in one batch with the commit, or with one of its own, or takes it back.
    async fn change(&self, member: &mut Member, numbers: Vec<u64>, inserts: bool, tracked: bool) -> bool {
        let tables = member.tables();
        let (mut ops, mut key, mut row) = (OpBatch::new(), Vec::new(), Vec::new());
        for id in &numbers {
            encode_key(*id, &mut key);
            row.clear();
            let (encoded, kind) = match inserts {
                true => (tables[0].layout().encode(&[Value::UInt(*id)], &mut row), OpKind::Insert),
                false => (Ok(()), OpKind::Delete),
            };
            if let Err(code) = encoded.and_then(|()| ops.push(&tables[0], kind, 0, &key, &row)) {
                self.hall.violation(format!("{id} cannot be written: {code}"));
            }
        }
        let first = numbers.first().copied().unwrap_or(0);
        if tracked {
            self.tracked.borrow_mut().insert(first);
        }
        self.open
            .borrow_mut()
            .insert(member.number, Open { begin: self.hall.moment(), numbers: numbers.clone(), inserts });
        member.doing(format!("{} {numbers:?}", if inserts { "inserts" } else { "deletes" }));
        let (at_once, back) = (member.random.one_in(2), member.random.one_in(6));
        let mut transaction = member.client.begin();
        let options = ExecOptions { commit: at_once && !back, ..ExecOptions::autocommit(LOCK_WAIT_MS) };
        let mut result = transaction.execute(&ops, options, &mut Results::new()).await;
        if result.is_ok() && !options.commit && !back {
            result = transaction.commit().await.map(|_| ());
        }
        let token = transaction.token();
        let fate = match result {
            Ok(()) if back => {
                let _ = transaction.rollback().await;
                Fate::RolledBack
            }
            Ok(()) => Fate::Committed,
            Err(error) => {
                let _ = transaction.rollback().await;
                if matches!(error.code, ErrorCode::DuplicateKey | ErrorCode::RowNotFound) {
                    self.hall.violation(format!("{numbers:?} cannot be changed by the only one who does: {error}"));
                }
                member.fate(&error, token).await
            }
        };
        let now = self.hall.moment();
        if let (Some(token), true) = (token, tracked) {
            let mut asked = self.asked.borrow_mut();
            if asked.len() >= TOKENS_MAX {
                asked.remove(0);
            }
            asked.push((first, token));
        }
        let mut tokens = self.tokens.borrow_mut();
        match fate {
            Fate::Committed if tracked => tokens.said(first, Said::Committed, now),
            Fate::RolledBack if tracked => tokens.said(first, Said::RolledBack, now),
            _ => {}
        }
        drop(tokens);
        self.settle(
            member.number,
            match fate {
                Fate::Committed => SetFate::Done(now),
                Fate::RolledBack => SetFate::Refused,
                Fate::Unknown => SetFate::Unknown,
            },
        );
        if fate == Fate::Committed && inserts && !tracked {
            self.own.borrow_mut().entry(member.number).or_default().extend(numbers);
        }
        fate == Fate::Committed
    }

    async fn ask(&self, member: &Member, choice: u64) -> bool {
        let question = {
            let asked = self.asked.borrow();
            (!asked.is_empty()).then(|| asked[choice as usize % asked.len()])
        };
        let Some((first, token)) = question else { return false };
        member.doing(format!("asks what became of {first}"));
        let said = match member.client.outcome(&token).await {
            Ok(Outcome::Committed) => Said::Committed,
            Ok(Outcome::Aborted) => Said::RolledBack,
            Ok(Outcome::Forgotten | Outcome::Open) | Err(_) => return false,
        };
        let now = self.hall.moment();
        self.tokens.borrow_mut().said(first, said, now);
        true
    }

    async fn read_all(&self, client: &Client, table: &TableSchema) -> Result<(), ClientError> {
        let begin = self.hall.moment();
        let request = ScanRequest::all(table.id, table.version);
        let found = scan(client, table, &request, |row| number(table, row, 0).unwrap_or(u64::MAX)).await?;
        let end = self.hall.moment();
        let there: BTreeSet<u64> = found.iter().copied().collect();
        let mut tokens = self.tokens.borrow_mut();
        for first in self.tracked.borrow().iter() {
            tokens.seen(*first, there.contains(first), begin, end);
        }
        self.history.borrow_mut().read(begin, end, found);
        Ok(())
    }
}

impl Play for Numbers {
    fn tables(&self) -> Vec<TableSchema> {
        vec![table("numbers", vec![column("id", number_type(), false)])]
    }
    async fn fill(&self, _client: &Client, _tables: &[TableSchema]) -> Result<(), ClientError> {
        Ok(())
    }

    async fn turn(&self, member: &mut Member) -> bool {
        match member.random.below(16) {
            0 => {
                let tables = member.tables();
                member.doing("reads all".to_owned());
                match self.read_all(&member.client, &tables[0]).await {
                    Ok(()) => true,
                    Err(error) => {
                        member.fate(&error, None).await;
                        false
                    }
                }
            }
            1..=3 => {
                let choice = member.random.next_u64();
                self.ask(member, choice).await
            }
            4..=6 => {
                let numbers = self.own.borrow_mut().remove(&member.number).unwrap_or_default();
                if numbers.is_empty() { false } else { self.change(member, numbers, false, false).await }
            }
            choice => {
                let count = [1, 1, 2, 3][member.random.below(4) as usize];
                let first = self.next.get();
                self.next.set(first + count);
                self.change(member, (first..first + count).collect(), true, choice % 2 == 0).await
            }
        }
    }

    async fn read(&self, reader: &Member) -> Result<(), ClientError> {
        let tables = reader.tables();
        self.read_all(&reader.client, &tables[0]).await
    }

    fn died(&self, member: u64) {
        self.settle(member, SetFate::Unknown);
    }

    fn judge(&self) -> Result<Judgement, String> {
        self.history.borrow().check()?;
        self.tokens.borrow().check()?;
        Ok(Judgement::Good)
    }
}
