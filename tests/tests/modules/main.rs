//! Logics from outside, compiled by the tests: forwarding, replacement and faults.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod answers;
mod examples;
mod faults;
mod features;
mod limiter;
mod replaced;
mod sdk;
mod stuck;
