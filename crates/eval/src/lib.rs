//! What is computed of rows wherever they are: in data nodes beside the data, and in SQL nodes. No I/O, no errors that are worded, nothing that differs from one run to the next.
//!
//! - [`fixed`]: arithmetic with a fixed point as steps on a stack of 128-bit numbers ([`fixed::Program`]). What does not fit is said to be so; who asked knows what becomes of it.
//! - [`grouping`]: what a scan is to be put together to, as it travels: group keys, programs, aggregates.
//! - [`groups`]: groups under way, and the states of their aggregates as they travel back.
//!
//! All that travels begins with a version ([`grouping::VERSION`]) and is checked as a whole when it is read: limits on columns, steps, depth and bytes, every column of a type that its use has a meaning for. What was
//! read so is run without a check; nothing of it can make a data node fail.

pub mod fixed;
pub mod grouping;
pub mod groups;
