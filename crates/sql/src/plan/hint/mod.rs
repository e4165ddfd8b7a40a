//! Optimizer hints, `/*+ ... */` behind SELECT, INSERT, REPLACE, UPDATE and DELETE, and USE / FORCE / IGNORE INDEX.
//!
//! The scanner ([`crate::parse::digest`]) leaves hints in the normal form of a statement, so that statements with other hints have other plans, and says whether there are any: nobody else
//! looks for them. Before the parser they are cut out ([`crate::parse::hint::place`]), each with the number of the query block that it stands in; [`crate::parse::hint::grammar`] reads them by MySQL's grammar, and [`blocks`] keeps them by block and
//! table, with what is to be warned of. While blocks are bound, the planner asks here what their hints say ([`Hints`]). Which index may be used for what is a [`Uses`], in which order
//! tables may be joined a [`JoinRules`]; both stand beside the tables in FROM.
//!
//! What a plan's hints have to tell is part of it ([`Told`]) and told whenever it is run. Syntax errors are told from the statement's own text, and SET_VAR has its values from before
//! the statement is planned until it has ended ([`SqlEngine::begin_hints`]).

mod blocks;
mod set_var;
mod uses;

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};

use sqlparser::tokenizer::Location;

use self::blocks::Blocks;
use crate::{
    catalog::Table,
    parse::hint::{
        grammar::{self, Hint},
        place,
        words::Kind,
    },
    plan,
    session::{Session, engine::SqlEngine},
    variables::Variables,
    wire::SqlError,
};
pub use uses::{JoinRules, Uses};

/// What is told of a statement's hints.
#[derive(Clone, Default, Debug)]
pub struct Told {
    /// Of hints one too many, unknown blocks and variables.
    pub first: Vec<SqlError>,
    /// Of tables and indexes that a block does not have.
    pub tables: Vec<SqlError>,
    /// Of tables in hints about the order of joins.
    pub orders: Vec<SqlError>,
    /// Of MAX_EXECUTION_TIME.
    pub longest_ms: Option<u64>,
}

/// The hints of a statement that is planned.
#[derive(Debug)]
pub struct Hints {
    blocks: RefCell<Blocks>,
    numbers: BTreeMap<Location, usize>,
    /// The block that is bound; 0: none with a number.
    current: Cell<usize>,
    /// The table that an INSERT writes, which is of block 1.
    target: RefCell<Option<Rc<Table>>>,
}

impl Hints {
    /// The text without its hints, if it has any.
    pub fn of(text: &str, ansi_quotes: bool) -> Option<(String, Hints)> {
        if !text.contains(place::BEGIN) {
            return None;
        }
        let (plain, placed) = place::cut(text);
        let is_made = place::is_block(&plain);
        let numbers: BTreeMap<Location, usize> = place::located(&plan::syntax::prepared(&plain)).into_iter().collect();
        let count = numbers.values().copied().max().unwrap_or(1);
        let blocks = RefCell::new(Blocks::new(&placed, ansi_quotes, !is_made, count));
        Some((plain, Hints { blocks, numbers, current: Cell::new(usize::from(is_made)), target: RefCell::default() }))
    }

    /// The SELECT that stands there is bound; gives what was before.
    pub fn enter(&self, at: Location) -> usize {
        self.current.replace(self.numbers.get(&at).copied().unwrap_or(0))
    }
    pub fn leave(&self, before: usize) {
        self.current.set(before);
    }
    pub fn begin_check(&self) -> usize {
        self.blocks.borrow().begin_check()
    }
    /// These are all tables of the block that is bound.
    pub fn check(&self, names: &[(&str, Option<&Rc<Table>>)], at: usize) {
        let target = self.target.borrow();
        let target = target.as_ref().filter(|_| self.current.get() == 1);
        let target = target.map(|table| (table.schema.name.as_str(), Some(table)));
        let names: Vec<_> = names.iter().copied().chain(target).collect();
        self.blocks.borrow_mut().check(self.current.get(), &names, at);
    }
    /// An INSERT writes this table.
    pub fn writes(&self, table: &Rc<Table>, has_select: bool) {
        *self.target.borrow_mut() = Some(table.clone());
        if !has_select {
            self.check(&[], self.begin_check());
        }
    }
    pub fn told(&self) -> Told {
        self.blocks.borrow_mut().told()
    }
    /// The block that is bound is to stay a subquery.
    pub fn stays_subquery(&self) -> bool {
        self.blocks.borrow().get(self.current.get()).is_some_and(|b| b.stays_subquery())
    }
    /// The SELECT that stands there has hints.
    pub fn has_any(&self, at: Location) -> bool {
        self.numbers.get(&at).is_some_and(|number| self.blocks.borrow().get(*number).is_some())
    }
    /// A view or derived table of this name in the block that is bound is not to become part of it.
    pub fn keeps_table(&self, shown: &str) -> bool {
        let blocks = self.blocks.borrow();
        let Some(block) = blocks.get(self.current.get()) else { return false };
        let of_table = block.table(shown).and_then(|t| t.switch(Kind::Merge));
        of_table.or(block.switch(Kind::Merge)) == Some(false)
    }
    /// In which order the tables of the block that is bound are joined.
    pub fn join_rules(&self) -> Option<Rc<JoinRules>> {
        JoinRules::of(self.blocks.borrow().get(self.current.get())?)
    }
    /// What is said of a table of the block that is bound, over what its indexes are to be used for by `known`.
    pub fn uses(&self, table: Option<&Table>, shown: &str, known: Uses) -> Uses {
        match self.blocks.borrow().get(self.current.get()) {
            Some(block) => known.hinted(block, table, shown),
            None => known,
        }
    }
}

/// Of a statement with hints that is run.
#[derive(Debug)]
pub struct Hinted {
    /// What is wrong in the text of its hints, and with the values of SET_VAR.
    syntax: Vec<SqlError>,
    values: Vec<SqlError>,
    /// The variables as they were.
    before: Option<Box<Variables>>,
    gives_insert_id: bool,
    /// Of a prepared statement nothing is told again but values.
    is_told: bool,
}

/// Longest part of a statement that a syntax error shows, in characters.
const NEAR_CHARS_MAX: usize = 80;

impl SqlEngine {
    /// Reads the hints that stand in a statement at these places; until [`SqlEngine::end_hints`] the session has the variables that they say.
    #[cold]
    pub(crate) fn begin_hints(&self, session: &mut Session, sql: &[u8], places: &[usize], is_told: bool) {
        let ansi_quotes = session.env.variables.syntax.ansi_quotes;
        let mut syntax = Vec::new();
        let mut set: Vec<Hint> = Vec::new();
        for &at in places {
            let text = String::from_utf8_lossy(sql.get(at + place::BEGIN.len()..).unwrap_or_default());
            let (hints, wrong) = grammar::hints(&text, ansi_quotes);
            set.extend(hints.into_iter().filter(|hint| hint.kind == Kind::SetVar));
            if let Some(wrong) = wrong.filter(|_| is_told) {
                let lines = |bytes: &[u8]| bytes.iter().filter(|b| **b == b'\n').count();
                let line = 1 + lines(sql.get(..at).unwrap_or_default()) + lines(&text.as_bytes()[..wrong.at]);
                let near: String = text[wrong.at..].chars().take(NEAR_CHARS_MAX).collect();
                let text = format!("{} near '{near}' at line {line}", wrong.what);
                syntax.push(SqlError::new(1064, b"42000", text));
            }
        }
        let gives_insert_id = set.iter().any(|hint| hint.name.eq_ignore_ascii_case("insert_id"));
        let before = (!set.is_empty()).then(|| Box::new(session.env.variables.clone()));
        let values = set_var::apply(&set, &mut session.env.variables);
        session.hinted = Some(Box::new(Hinted { syntax, values, before, gives_insert_id, is_told }));
    }

    /// The same of a prepared statement, whose mistakes were told when it was prepared; whether it has hints.
    #[cold]
    pub(crate) fn begin_prepared_hints(&self, session: &mut Session, id: u32) -> bool {
        let Some(prepared) = session.prepared.get(&id).filter(|p| !p.hints.is_empty()) else { return false };
        let (sql, places) = (prepared.sql.clone(), prepared.hints.clone());
        self.begin_hints(session, &sql, &places, false);
        true
    }

    /// The statement has ended.
    #[cold]
    pub(crate) fn end_hints(&self, session: &mut Session) {
        let Some(hinted) = session.hinted.take() else { return };
        let Some(before) = hinted.before else { return };
        let is_used = !hinted.gives_insert_id && session.env.variables.insert_id == 0;
        session.env.variables = *before;
        if is_used {
            session.env.variables.forget_insert_id();
        }
    }
}

impl Session {
    /// Warns of what is wrong with a statement's hints, and says how long it may take by them. `told`: of its plan.
    #[cold]
    pub(crate) fn tell_hints(&mut self, told: &Told) -> Option<u64> {
        let (syntax, values) = match &mut self.hinted {
            Some(hinted) => (std::mem::take(&mut hinted.syntax), std::mem::take(&mut hinted.values)),
            None => Default::default(),
        };
        let is_told = self.hinted.as_ref().is_none_or(|hinted| hinted.is_told);
        let [first, tables, orders] =
            [&told.first, &told.tables, &told.orders].map(|list| list.iter().filter(|_| is_told));
        // SET_VAR may say how many warnings there are, from its own on.
        let kept = self.hinted.as_ref().and_then(|hinted| hinted.before.as_ref()).map(|before| before.max_error_count);
        let set = self.env.variables.max_error_count;
        self.env.variables.max_error_count = kept.unwrap_or(set);
        syntax.iter().chain(first).for_each(|e| self.warn_error(e));
        self.env.variables.max_error_count = set;
        values.iter().chain(tables).chain(orders).for_each(|e| self.warn_error(e));
        told.longest_ms
    }
}
