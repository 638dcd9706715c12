//! Lists: the outputs that a logic names, one list for each destination queue.
//!
//! - `output.rs`: an output, a destination's list of them, and the runs that lists are made of;
//! - `scratchpad.rs`: a worker's lists, one for each destination queue;
//! - `emit.rs`: a version goes on the list of a port, or is refused there;
//! - `offloads.rs`: outputs with work left on them: passed on whole, or cut and summed for a destination that needs it.

pub(crate) mod emit;
pub(crate) mod offloads;
pub mod output;
pub mod scratchpad;
