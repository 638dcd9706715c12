//! Observing: captures, mirrors and traces. They do not affect switching.
//!
//! - `observer.rs`: the contract of an observer, and the packets that it is shown;
//! - `interest.rs`: the packets of a port that an observer or a mirror asks for;
//! - `observers.rs`: the observers in the state of a bridge;
//! - `notes.rs`: a worker's notes on its current batch, for observers and traces;
//! - `explain.rs`: remarks of a logic: why a packet goes where it goes;
//! - `mirror.rs`: copies of the traffic of some ports, sent to another;
//! - `trace.rs`: follows a packet up to its delivery, without sending it.

pub mod explain;
pub(crate) mod interest;
pub mod mirror;
pub(crate) mod notes;
pub mod observer;
pub(crate) mod observers;
pub mod trace;

pub use observer::{Interest, Observer, Sighting, Sightings, Way};
