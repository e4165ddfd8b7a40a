//! Full-text search: what MATCH (...) AGAINST (...) finds among the rows of a table, and how well each fits.
//!
//! The reference is InnoDB's. A search is a pure function of the texts of all rows: [`Search::add`] takes them one after the other, [`Search::finish`] gives a rank to
//! each row that is found. `docs/internals/full-text.md` says how statements run it.

pub mod query;
mod search;
#[cfg(test)]
mod tests;
pub mod words;

pub use search::{Search, rank_of};
