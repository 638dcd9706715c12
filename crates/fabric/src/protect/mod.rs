//! Protection: what a port may be limited to, and the limits that the fabric itself enforces.
//!
//! - `protection.rs`: the settings: rates, storm control, who may speak;
//! - `policing.rs`: rates and storm control, before the logic sees a batch;
//! - `bucket.rs`: the token buckets behind them;
//! - `violations.rs`: packets that port security dropped, for events.

pub mod bucket;
pub(crate) mod policing;
pub mod protection;
pub(crate) mod violations;
