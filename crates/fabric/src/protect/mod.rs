//! Protection: the limits that a port may have, and those that the fabric itself enforces.
//!
//! - `protection.rs`: the settings: rates, storm control, security;
//! - `policing.rs`: rate limits and storm control, before the logic sees a batch;
//! - `egress_policing.rs`: limits of what leaves, by queue, in front of a port's transmit queues;
//! - `marking.rs`: code points that queues give to packets;
//! - `bucket.rs`: the token buckets behind them;
//! - `violations.rs`: packets that port security dropped, for events.

pub mod bucket;
pub(crate) mod egress_policing;
pub(crate) mod marking;
pub(crate) mod policing;
pub mod protection;
pub(crate) mod violations;
