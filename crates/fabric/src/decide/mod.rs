//! Deciding: a bridge's logic is called once a batch and names destinations.
//!
//! - `logic.rs`: the contract of a logic, [`SwitchLogic`](logic::SwitchLogic);
//! - `batch.rs`: what a logic sees and says: a batch's packets, and the verbs to send them on;
//! - `chained.rs`: several logics in a row over one batch;
//! - `forward.rs`: the way of a batch through a bridge, with rates before the logic and delivery behind it;
//! - `detour.rs`: the same through a bridge that is mirrored or observed;
//! - `steps.rs`: the steps that both ways share.

pub mod batch;
pub(crate) mod chained;
pub(crate) mod detour;
pub(crate) mod forward;
pub mod logic;
pub(crate) mod steps;
