//! Deciding: a bridge's logic is called once a batch and names destinations.
//!
//! - `logic.rs`: the contract of a logic, [`SwitchLogic`](logic::SwitchLogic);
//! - `batch.rs`: the logic's view of a batch: its packets, and the methods that send them on;
//! - `chained.rs`: several logics in a row over one batch;
//! - `forward.rs`: the path of a batch through a bridge, with rate limits before the logic and delivery after it;
//! - `detour.rs`: the same through a bridge that is mirrored or observed;
//! - `pattern.rs`: comparison of many headers with one;
//! - `steps.rs`: the steps that both paths share.

pub mod batch;
pub(crate) mod chained;
pub(crate) mod detour;
pub(crate) mod forward;
pub mod logic;
pub(crate) mod pattern;
pub(crate) mod steps;
