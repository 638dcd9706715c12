//! Lists: the outputs that a logic names, one list for each destination queue.
//!
//! - `output.rs`: an output, a destination's list of them, and the runs that lists consist of;
//! - `scratchpad.rs`: a worker's lists, one for each destination queue;
//! - `emit.rs`: puts a version on the list of a port, or refuses it;
//! - `offloads.rs`: outputs with offload metadata: passed on whole, or segmented and summed for a destination that
//!   needs it.

pub(crate) mod emit;
pub(crate) mod offloads;
pub mod output;
pub mod scratchpad;
