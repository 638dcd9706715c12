//! Waking: telling another side, which may sleep, of work.
//!
//! - `doorbell.rs`: the kinds of doorbells, and those within the process;
//! - `notifier.rs`: doorbells that a batch collects, rung together after it; clients' eventfds without ever blocking;
//! - `mailbox.rs`: messages of the control plane to a worker, with a doorbell.

pub mod doorbell;
pub(crate) mod hush;
pub(crate) mod mailbox;
pub mod notifier;
