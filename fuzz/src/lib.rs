//! What the targets share: reading decisions off the fuzzer's bytes, and frames built from them.
//!
//! Inputs are read from the front, field by field, without lengths or separators, so that a seed can be written by
//! hand and a mutation in one place leaves what follows in its meaning. Where the bytes end, zeros follow.

mod bytes;
#[cfg(feature = "control")]
pub mod config_text;
pub mod frame;
pub mod memory;
pub mod memory_ring;
pub mod model;
pub mod rings;
pub mod virtqueue;

pub use bytes::Bytes;
