//! Monitoring of links (operations, administration and maintenance): [`bfd`], Bidirectional Forwarding Detection, and
//! [`cfm`], the continuity check of Connectivity Fault Management. Both work as in Open vSwitch, whose configuration
//! and status they have.
//!
//! Sessions have neither sockets nor clocks: the caller passes each frame that was received, the time, and the port's
//! counter ([`Moment`]); it asks for the frame that is due, and for the time of the next call.
//!
//! Invariants:
//! - No frame makes a session panic, allocate without bound, or send more than its intervals allow and one answer to
//!   each poll.
//! - Times may be any; a clock that goes back delays, and breaks nothing.
#![forbid(unsafe_code)]

pub mod bfd;
pub mod cfm;

/// Milliseconds on the caller's clock.
pub type Millis = u64;

/// When something happens, and what the port has received until then.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moment {
    /// The time.
    pub now: Millis,
    /// Packets received by the port so far.
    pub received: u64,
}
