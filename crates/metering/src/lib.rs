//! The metering process of a switch (RFC 7011, section 2): workers count packets into flows, or sample them, and threads
//! of the control plane read the results.
//!
//! - [`Meter`] is an observer that counts the packets of a bridge, or of `sample` actions, into flows: a [`FlowKey`]
//!   read from the packet, and [`Counts`];
//! - [`Draw`] chooses the packets to sample;
//! - [`DoubleBuffer`] is how a worker hands pages to a reader for which it never waits.
//!
//! Invariant: nothing here allocates, locks or makes a system call per packet; a worker's page is taken by one
//! `try_lock` per batch, which the reader never delays.

mod counts;
mod double_buffer;
mod key;
mod meter;
mod page;
mod sampling;

pub use counts::Counts;
pub use double_buffer::DoubleBuffer;
pub use key::{ANYWHERE, Detail, Facts, FlowKey, NOWHERE, SEVERAL, Way};
pub use meter::{Meter, Missed, Scope};
pub use page::Entry;
pub use sampling::Draw;
