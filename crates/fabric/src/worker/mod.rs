//! Workers: the threads that switch packets, and the tasks that they run.
//!
//! - `run.rs`: the thread: rounds of tasks; polling, watching, sleeping;
//! - `state.rs`: the worker's state, which another thread can take over;
//! - `moderation.rs`: rests between rounds under a light but steady load; `patience.rs`: polling through the pauses of a
//!   dense one;
//! - `watchdog.rs`: detects a worker that a client holds up and lets a stand-in take over; `aside.rs`: its CPUs;
//! - `overrun.rs`: batches that a logic does not finish in time;
//! - `probe.rs`, `janitor.rs`: helpers of the watchdog: identify the client; run jobs that may block;
//! - `handoff.rs`, `thread_info.rs`, `activity.rs`: the slot for the state meanwhile; what the watchdog sees of a
//!   thread;
//! - `thread_group.rs`, `start.rs`: start these threads; `per_thread.rs`: their numbers, and data of each;
//! - `handle.rs`, `request.rs`: the control plane's handle of a worker; requests for tasks;
//! - `tasks/`: the tasks: take in, drain, inject, alarm.

pub(crate) mod activity;
mod aside;
pub(crate) mod handle;
pub(crate) mod handoff;
pub(crate) mod janitor;
pub(crate) mod moderation;
pub(crate) mod overrun;
pub(crate) mod patience;
pub(crate) mod per_thread;
pub(crate) mod probe;
pub(crate) mod request;
pub(crate) mod run;
pub(crate) mod start;
pub(crate) mod state;
pub(crate) mod tasks;
pub(crate) mod thread_group;
pub(crate) mod thread_info;
pub(crate) mod watchdog;

pub use overrun::{Overrun, OverrunListener};
pub use per_thread::{MAX_THREADS, MAX_WORKERS, PerThread, Threads};
pub use run::Pace;
