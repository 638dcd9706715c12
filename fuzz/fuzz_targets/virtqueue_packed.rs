//! The device side of a packed virtqueue under a hostile driver; `support::virtqueue` defines the input.
//!
//! Invariants:
//! - No panic, and each chain ends.
//! - Each segment lies in one region, and a chain has at most the permitted number of segments.
//! - The device writes only its own area and the descriptors.
//! - Without hostile writes, chains are taken as offered and no protocol error occurs, also when the memory is
//!   remapped.
//! - A queue of any size, base and place is refused, or lies within the memory, aligned, and reports its position.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vhost_user::virtqueue::Format;

fuzz_target!(|data: &[u8]| support::virtqueue::run(Format::Packed, data));
