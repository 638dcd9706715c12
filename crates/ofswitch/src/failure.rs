//! Failures: a packet whose actions exceed a limit leaves nowhere, not even through the outputs before.
//!
//! What the packet taught flows and what was sent to controllers stays, as in Open vSwitch.

use std::fmt;

use pipeline::interp::Dropped;

use crate::program::{Layout, STACK};

/// Lookups of resubmissions within each other at most, those to later tables not counted.
pub(crate) const MAX_DEPTH: u8 = 64;
/// Resubmissions of a packet at most.
pub(crate) const MAX_RESUBMITS: u16 = 4096;

/// A limit that a packet's actions exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// Resubmissions within each other.
    Recursion,
    /// All resubmissions.
    Resubmits,
    /// Values on the stack.
    Stack,
    /// Steps, outputs or bytes of headers.
    Work,
}

impl Failure {
    /// The failure that a drop is, if it is one.
    pub fn of(dropped: Dropped) -> Option<Self> {
        let reasons = &Layout::get().reasons;
        match dropped {
            Dropped::Reason(id) if id == reasons.recursion => Some(Failure::Recursion),
            Dropped::Reason(id) if id == reasons.resubmits => Some(Failure::Resubmits),
            Dropped::Reason(id) if id == reasons.stack => Some(Failure::Stack),
            Dropped::Limit(_) => Some(Failure::Work),
            Dropped::Reason(_) | Dropped::NoDestination | Dropped::NoExtern(_) => None,
        }
    }

    /// The limit in words.
    pub fn limit(self) -> String {
        match self {
            Failure::Recursion => format!("over max translation depth {MAX_DEPTH}"),
            Failure::Resubmits => format!("over {MAX_RESUBMITS} resubmit actions"),
            Failure::Stack => format!("over {STACK} values on the stack"),
            Failure::Work => "too many steps, outputs or headers".to_owned(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Failure::Recursion => "Recursion too deep",
            Failure::Resubmits => "Too many resubmits",
            Failure::Stack => "Stack too deep",
            Failure::Work => "Too much work",
        })
    }
}
