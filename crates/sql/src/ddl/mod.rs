//! Statements that define: schemas, tables, indexes, constraints, views.

pub(crate) mod alter;
pub(crate) mod branches;
pub(crate) mod copy;
pub(crate) mod create_select;
pub(crate) mod create_view;
pub(crate) mod default_dates;
pub mod execute;
pub mod foreign_key;
pub mod histogram;
mod locked;
mod progress;
pub(crate) mod rules;
pub mod statement;
pub(crate) mod table_options;
mod temporary;
