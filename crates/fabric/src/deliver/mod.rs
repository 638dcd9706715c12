//! Delivering: each destination with a list takes it once a batch. No delivery waits.
//!
//! - `egress.rs`: the contract of a destination, [`Egress`](egress::Egress);
//! - `client.rs`: who is attached to a port, and answers for a worker's waiting;
//! - `tools.rs`: what a worker lends to a delivery;
//! - `tx_ring.rs`: destinations that are rings: reserve, copy, publish, notify;
//! - `reservation.rs`: its bookkeeping: runs of slots that several workers fill at once and publish in order;
//! - `queueing.rs`: queues of the switch's own in front of a destination, which a worker's drain empties;
//! - `crossing.rs`: destinations that are ports of another bridge, entered at once;
//! - `levels.rs`: the batches of those other bridges, below the one that a worker took from a queue.

pub(crate) mod client;
pub mod crossing;
pub mod egress;
pub(crate) mod levels;
pub(crate) mod queueing;
pub mod reservation;
pub mod tools;
pub mod tx_ring;
