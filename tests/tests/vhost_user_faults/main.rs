//! vhost-user front-ends that lie, break, vanish or flood. Each time two pairs of bystanders, one on memif and one on
//! vhost-user, keep sending to each other through the same worker and must lose nothing; the culprit's port alone goes
//! down and says why, or its packet is dropped and counted, and then a good front-end has the port.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod floods;
mod headers;
mod memory;
mod messages;
mod rig;
mod rings;
