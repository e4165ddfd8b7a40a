//! JSON values as MySQL has them: more than what JSON text can say.
//!
//! - [`value`]: a document as a tree. Numbers are integers with or without sign, decimals or doubles; dates, times and bytes are values of their own.
//! - [`parse`]: from text, with the errors and positions that MySQL reports. [`print`]: to text.
//! - [`binary`]: the form that columns keep; the first byte is its version ([decision 0023](../../../../../docs/decisions/0023-json.md)).
//! - [`path`]: `$.a[0]**.b`, and what of a document it leads to. [`compare`]: which of two values is greater.
//! - [`change`]: documents with parts put in, replaced, taken out or merged. [`search`]: what a document contains. [`schema`]: whether it is as a schema says.
//!
//! Nothing in here knows SQL's expressions; `expr::json` brings the functions.

pub mod binary;
pub mod change;
pub mod compare;
pub mod parse;
pub mod path;
pub mod print;
pub mod schema;
pub mod search;
pub mod value;

pub use value::{Json, Object};
