//! Workers: the threads that switch, and the tasks that they run.
//!
//! - `run.rs`: a worker's thread: rounds of tasks, polling, watching and sleeping;
//! - `handle.rs`: the control plane's end of a worker;
//! - `tasks/`: what a worker runs: taking in, draining, injecting, alarms.

pub(crate) mod handle;
pub(crate) mod run;
pub(crate) mod tasks;

pub use run::Pace;
