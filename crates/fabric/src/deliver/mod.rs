//! Delivery: each destination with a list takes it once a batch. Delivery never waits.
//!
//! - `egress.rs`: the contract of a destination, [`Egress`](egress::Egress);
//! - `client.rs`: the client attached to a port, accountable when a worker has to wait;
//! - `tools.rs`: what a worker lends to a delivery;
//! - `tx_ring.rs`: destinations that are rings: reserve, copy, publish, notify;
//! - `reservation.rs`: its bookkeeping: runs of slots that several workers fill at once and publish in order;
//! - `crossing.rs`: destinations that are ports of another bridge, entered at once;
//! - `levels.rs`: the batches of those other bridges, nested below the batch that a worker took from a queue.

pub(crate) mod client;
pub mod crossing;
pub mod egress;
pub(crate) mod levels;
pub mod reservation;
pub mod tools;
pub mod tx_ring;
