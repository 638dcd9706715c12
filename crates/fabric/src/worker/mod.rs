//! Workers: the threads that switch, and the tasks that they run.
//!
//! - `run.rs`: a worker's thread: rounds of tasks, polling, watching and sleeping;
//! - `duty.rs`: what it owns, which another thread can go on with;
//! - `watchdog.rs`: notices that a client holds a worker up, and has another thread stand in;
//! - `overrun.rs`: batches that a logic does not finish in time;
//! - `probe.rs`, `janitor.rs`: its helpers, who find out whose memory it is, and who do what it must not wait for;
//! - `desk.rs`, `post.rs`, `site.rs`: where a thread leaves its duty meanwhile, and what the watchdog sees of it;
//! - `crew.rs`, `start.rs`: starting all of these threads;
//! - `handle.rs`: the control plane's end of a worker;
//! - `tasks/`: what a worker runs: taking in, draining, injecting, alarms.

pub(crate) mod crew;
pub(crate) mod desk;
pub(crate) mod duty;
pub(crate) mod handle;
pub(crate) mod janitor;
pub(crate) mod overrun;
pub(crate) mod post;
pub(crate) mod probe;
pub(crate) mod run;
pub(crate) mod site;
pub(crate) mod start;
pub(crate) mod tasks;
pub(crate) mod watchdog;

pub use overrun::{Overrun, OverrunListener};
pub use run::Pace;
