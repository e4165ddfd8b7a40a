//! Optimizer hints as they are written; what they do to plans is in [`crate::plan::hint`].

pub mod grammar;
pub(crate) mod place;
pub(crate) mod words;
