//! Workloads whose result can be checked, for whoever runs a cluster: `apus bench` on real processes, the simulator on virtual time.
//!
//! A workload is made of native client calls and of what its [`bank::World`] gives it: a clock to wait by, and somebody who is told what
//! happens. It touches no sockets, threads or clocks of its own, draws its random numbers from a seed, and ends with a pure function that
//! compares what the cluster holds with what it acknowledged. Limits: a batch has some hundred operations; memory grows with what was
//! acknowledged.

pub mod bank;
