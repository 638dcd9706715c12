//! A bridge as workers see it: an immutable state, replaced as a whole.
//!
//! - `state.rs`: the state: ports, queues, logic;
//! - `port.rs`: a port: index, settings, VLANs, the offloads that its client takes;
//! - `published.rs`: the pointer to the current state;
//! - `quiescence.rs`: reclamation: when a replaced state may be dropped.

pub mod port;
pub(crate) mod published;
pub mod quiescence;
pub mod state;

pub use state::BridgeState;
