//! Observing: captures, mirrors and traces. They change nothing of what is switched.
//!
//! - `observer.rs`: the contract of an observer, and the packets that it is shown;
//! - `interest.rs`: the packets of a port that an observer or a mirror asks for;
//! - `observers.rs`: the observers in a picture of a bridge;
//! - `notes.rs`: a worker's notes on its current batch, for observers and traces;
//! - `explain.rs`: remarks of a logic: why a packet goes where it goes;
//! - `mirror.rs`: copies of what passes at some ports, sent to another;
//! - `trace.rs`: a packet followed up to its delivery, and never sent.

pub mod explain;
pub(crate) mod interest;
pub mod mirror;
pub(crate) mod notes;
pub mod observer;
pub(crate) mod observers;
pub mod trace;

pub use observer::{Interest, Observer, Sighting, Sightings, Way};
