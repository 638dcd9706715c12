//! Support of the fuzz targets: decisions read from the fuzzer's bytes, and frames built from them.
//!
//! Inputs are read from the front, field by field, without lengths or separators, so that seeds can be written by hand
//! and a mutation in one place preserves the meaning of the following bytes. Behind the end, zeros follow.

mod bytes;
#[cfg(feature = "control")]
pub mod config_text;
pub mod flows;
pub mod frame;
pub mod memory;
pub mod memory_ring;
pub mod model;
pub mod rings;
pub mod virtqueue;

pub use bytes::Bytes;
