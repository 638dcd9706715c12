//! Reasons for which packets go to the CPU.

use std::fmt;

/// A construct that has no counterpart in XDP here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Part of the program: `table acl`, `state start`.
    pub part: String,
    /// The construct, for people: `a meter`.
    pub construct: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.part, self.construct)
    }
}
