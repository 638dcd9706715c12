//! A server with a fake device, and gRPC clients.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod calls;
mod connections;
mod fake;
mod roles;
mod streams;
mod tls;
mod world;
