//! The schema `sys`, as the catalog has it: the views of MySQL that tools read, as tables. Rows of some are made when they are read ([`crate::admin::sys`]); the others tell of what is not counted here, and have none.
//!
//! Views that would have rows in MySQL and have none here are not there. The functions and procedures of `sys` are not there either.

use std::rc::Rc;

use super::{Table, empty_tables};

pub const DATABASE: &str = "sys";

pub fn table(name: &str) -> Option<Rc<Table>> {
    let schema = empty_tables::of(DATABASE).get(name)?.clone();
    Some(Rc::new(Table::new(schema, Vec::new())))
}

pub fn names() -> impl Iterator<Item = &'static str> {
    empty_tables::of(DATABASE).keys().copied()
}
