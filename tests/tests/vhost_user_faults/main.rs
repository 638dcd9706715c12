//! vhost-user front-ends that send invalid data, break, vanish or flood. In each test two pairs of bystanders, on memif
//! and on vhost-user, send through the same worker and must lose nothing; only the attacker's port goes down, with a
//! reason, or its packet is dropped and counted, and a correct front-end can use the port afterwards.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod floods;
mod headers;
mod memory;
mod messages;
mod rig;
mod rings;
