//! Waking: notifying a peer that may be asleep that there is work.
//!
//! - `doorbell.rs`: the kinds of doorbells, and those within the process;
//! - `notifier.rs`: doorbells collected during a batch and rung after it; clients' eventfds without ever blocking;
//! - `muted.rs`: clients whose signal is withheld because it holds a thread up;
//! - `mailbox.rs`: messages of the control plane to a worker, with a doorbell.

pub mod doorbell;
pub(crate) mod mailbox;
pub(crate) mod muted;
pub mod notifier;
