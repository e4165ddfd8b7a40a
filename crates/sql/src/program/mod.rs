//! What the dictionary keeps to be run: procedures, functions, triggers, events.

pub mod event;
pub(crate) mod function;
pub(crate) mod routine;
pub(crate) mod trigger;
