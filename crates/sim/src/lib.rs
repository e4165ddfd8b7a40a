//! The deterministic simulator: the workers of a whole cluster in one thread, under a virtual clock and a seed.
//!
//! Everything that happens is an event in one queue ordered by virtual time: bytes arriving over a link, bytes arriving from
//! another worker, a worker's deadline, a link that is made again, an actor's wake-up. Delays are drawn from the seed, so the
//! seed decides every interleaving, and the same seed gives the same run, which [`Cluster::hash`] proves: it covers every
//! signal that any worker executed. Links keep their order and lose nothing until they are cut.
//!
//! Tests drive a [`Cluster`]: they crash and restart nodes, cut links, arm fault points, and attach [`Actor`]s that speak the
//! client protocol over links of their own.

mod actor;
pub mod check;
mod clock;
mod cluster;
mod console;
pub mod disk;
pub mod drill;
mod events;
pub mod fault;
mod files;
mod native;
mod network;
#[cfg(feature = "planted-bugs")]
pub mod planted;
pub mod probes;
pub mod promise;
pub mod reshape;
mod resume;
pub mod runner;
pub mod settings;
pub mod shrink;
mod survey;
pub mod totals;
pub mod vaults;
pub mod workload;

pub use actor::{Actor, ActorId, ActorOutput, Welcome};
pub use cluster::{Cluster, SimConfig, address, parse_address};
pub use files::{Found, Kept};
pub use native::{Clock, NativeClient};
pub use network::Party;
