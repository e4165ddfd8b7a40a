//! FOREIGN KEY and REFERENCES as they are written, and the indexes that they make.
//!
//! A key needs an index that begins with its columns. Where the statement makes none, one is made in the place of the key ([`indexes`]): it has the name of the constraint, the
//! name that stands behind FOREIGN KEY, or one as other indexes without a name. Of two keys that need the same columns only the later makes one.

use apus_types::foreign_key::{Action, Match};

use crate::{
    catalog::key_parts::{self, IndexClause},
    errors::{self, Result},
    parse::token::{Name, Tokens},
};

#[derive(Clone, Debug, PartialEq)]
pub struct Clause {
    pub name: Option<String>,
    index: Option<String>,
    pub columns: Vec<String>,
    pub parent: Name,
    /// None, of a column: those of the primary key.
    pub parent_columns: Vec<String>,
    pub on_delete: Action,
    pub on_update: Action,
    pub matching: Match,
    /// How many indexes of the statement stand before it.
    at: usize,
    is_of_column: bool,
}

impl Clause {
    /// Behind FOREIGN, whose constraint is named so; `at` indexes stand before it.
    pub fn of_table(t: &mut Tokens, name: Option<String>, at: usize) -> Result<Clause> {
        t.expect("key")?;
        let index = if t.peek_symbol('(') { None } else { Some(t.identifier()?) };
        let columns = t.identifiers()?;
        t.expect("references")?;
        Clause::references(t, name, index, columns, at)
    }

    /// Behind REFERENCES of a column.
    pub fn of_column(t: &mut Tokens, column: &str, at: usize) -> Result<Clause> {
        let clause = Clause::references(t, None, None, vec![column.to_owned()], at)?;
        Ok(Clause { is_of_column: true, ..clause })
    }

    fn references(
        t: &mut Tokens,
        name: Option<String>,
        index: Option<String>,
        columns: Vec<String>,
        at: usize,
    ) -> Result<Clause> {
        let parent = t.name()?;
        let parent_columns = if t.peek_symbol('(') { t.identifiers()? } else { Vec::new() };
        let matching = match t.word("match") {
            false => Match::None,
            true if t.word("full") => Match::Full,
            true if t.word("partial") => Match::Partial,
            true => t.expect("simple").map(|()| Match::Simple)?,
        };
        let (mut on_delete, mut on_update) = (None, None);
        while t.peek_word("on") {
            let on = if t.second_word("delete") { &mut on_delete } else { &mut on_update };
            if on.is_some() {
                break;
            }
            t.expect("on")?;
            if !t.word("delete") {
                t.expect("update")?;
            }
            *on = Some(action(t)?);
        }
        let (on_delete, on_update) = (on_delete.unwrap_or_default(), on_update.unwrap_or_default());
        Ok(Clause {
            name,
            index,
            columns,
            parent,
            parent_columns,
            on_delete,
            on_update,
            matching,
            at,
            is_of_column: false,
        })
    }

    /// # Errors
    /// 1060, 1239: the columns do not go together.
    pub fn check(&self) -> Result<()> {
        for (at, column) in self.columns.iter().enumerate() {
            if self.columns[..at].iter().any(|other| other.eq_ignore_ascii_case(column)) {
                return Err(errors::duplicate_column(column));
            }
        }
        let is_primary = self.is_of_column && self.parent_columns.is_empty();
        if is_primary || self.parent_columns.len() == self.columns.len() {
            return Ok(());
        }
        Err(errors::wrong_foreign_key(self.name.as_deref()))
    }
}

fn action(t: &mut Tokens) -> Result<Action> {
    if t.word("restrict") {
        return Ok(Action::Restrict);
    }
    if t.word("cascade") {
        return Ok(Action::Cascade);
    }
    if t.word("no") {
        return t.expect("action").map(|()| Action::NoAction);
    }
    t.expect("set")?;
    if t.word("null") {
        return Ok(Action::SetNull);
    }
    t.expect("default").map(|()| Action::SetDefault)
}

/// The tables that the keys of a table refer to.
pub fn parents(table: &Name, keys: &[Clause]) -> Vec<Name> {
    let full = |key: &Clause| (key.parent.0.clone().or_else(|| table.0.clone()), key.parent.1.clone());
    keys.iter().map(full).collect()
}

/// The columns begin with these.
fn begins(columns: &[String], with: &[String]) -> bool {
    columns.len() >= with.len() && columns.iter().zip(with).all(|(a, b)| a.eq_ignore_ascii_case(b))
}

/// The indexes of a statement with those that its keys need. `known`: columns of the primary key and of indexes that are there.
pub fn indexes(indexes: Vec<IndexClause>, keys: &[Clause], known: &[Vec<String>]) -> Vec<IndexClause> {
    let whole = || indexes.iter().filter(|i| !i.full_text && !key_parts::are_cut(&i.lengths)).map(|i| &i.columns);
    let is_needed = |at: usize, key: &Clause| {
        let is_there = known.iter().chain(whole()).any(|i| begins(i, &key.columns));
        let longer = |other: &Clause| begins(&other.columns, &key.columns) && other.columns.len() > key.columns.len();
        let later = keys[at + 1..].iter().any(|other| begins(&other.columns, &key.columns));
        !is_there && !later && !keys[..at].iter().any(longer)
    };
    let made = |key: &Clause| {
        let name = key.name.clone().or_else(|| key.index.clone());
        (key.at, IndexClause { name, columns: key.columns.clone(), ..IndexClause::default() })
    };
    let mut made: Vec<(usize, IndexClause)> =
        keys.iter().enumerate().filter(|(at, key)| is_needed(*at, key)).map(|(_, key)| made(key)).collect();
    let count = indexes.len();
    let mut all = Vec::with_capacity(count + made.len());
    for (at, index) in indexes.into_iter().enumerate() {
        let before = made.iter().take_while(|(place, _)| *place <= at).count();
        all.extend(made.drain(..before).map(|(_, index)| index));
        all.push(index);
    }
    all.extend(made.into_iter().map(|(_, index)| index));
    all
}
