//! Logics from outside, compiled from C by the tests: they forward, they are replaced, and they fail.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod answers;
mod examples;
mod faults;
mod features;
mod limiter;
mod replaced;
mod sdk;
mod stuck;
