//! A bridge as workers see it: an immutable picture, replaced as a whole.
//!
//! - `picture.rs`: the picture: ports, queues, logic;
//! - `port.rs`: a port: index, settings, VLANs, the offloads that its client takes;
//! - `cell.rs`: where workers find the current picture;
//! - `quiescence.rs`: reclamation: when a replaced picture may be dropped.

pub(crate) mod cell;
pub mod picture;
pub mod port;
pub mod quiescence;

pub use picture::BridgeState;
