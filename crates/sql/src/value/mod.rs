//! What a value of SQL is: numbers, texts, moments, documents of JSON; how it is shown, and how one kind becomes another.

pub mod bits;
pub mod datum;
pub mod decimal;
pub mod enum_set;
pub(crate) mod float_digits;
pub mod json;
pub mod locale;
pub mod number_format;
pub mod temporal;
pub mod zone;
