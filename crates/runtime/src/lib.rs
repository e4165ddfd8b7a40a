//! The real world around the kernel's workers: threads, sockets, time, signals of the operating system, crash reports.
//!
//! A [`Node`] is one process's share of a cluster: a listening socket, one thread per [`apus_kernel::Worker`], and the links between
//! them and other processes.
//!
//! **Workers.** A data node has its data workers and a *control worker*, which runs membership alone, so that no statement delays a
//! heartbeat. A management node has one worker.
//!
//! **Links.** Between two data nodes there is one TCP link per worker index, dialled by the node with the higher id; data nodes dial
//! management nodes from the control worker; clients dial everybody and are dealt out to the data workers in turn. Every link begins with
//! a hello in which both sides prove who they are (crate `apus-auth`). The listening thread hears it, under limits of time, size and
//! number, before a worker ever sees the socket. Whoever fails is closed, counted, and named in the log, up to a rate.
//!
//! **A worker's round**: wait (not at all while there is work), read each ready socket once and execute its signals from the
//! receive buffer, take what other workers sent, run the job buffer, settle, then pass on what was produced: one swap of
//! buffers per other worker and one write per link, however many signals there are. A worker never blocks on anything but its
//! epoll.
//!
//! **Back-pressure.** A client that does not read its answers is not read from; a member that does not read is cut off after
//! [`apus_kernel::limits::MEMBER_UNSENT_MAX`] bytes and handled as failed.
//!
//! **Death.** A panic in any thread writes a crash report to the node's directory and to stderr and aborts the process: peers see
//! closed connections at once. A data worker that makes no rounds for 5 s in which the process ran ends the node with its own trail in the
//! report, if the others can go on without it (`trail`, and module `stuck` of QMGR). SIGTERM and SIGINT, and a block's `stop_node`, end it in order.

mod config;
mod conns;
mod crash;
mod dial;
mod disk;
mod disk_ring;
mod executor;
mod files;
mod listener;
mod log;
mod node;
mod pages;
mod poll;
mod quiet;
mod shared;
mod trail;

pub use config::{ArbitratorConfig, DataNodeConfig, MgmtConfig};
pub use disk::{Disk, Job as DiskJob};
pub use disk_ring::DiskRing;
pub use files::{DataDir, boot_id};
pub use log::{flush as flush_log, line as log_line};
pub use node::{Bound, EXIT_STOPPED, Node, Renewed, Stop, run_data_node, run_mgmt};
pub use pages::release_memory;
