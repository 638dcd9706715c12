//! The device's side of a packed virtqueue under a hostile driver; what an input means is told in `support::virtqueue`.
//!
//! Held invariant:
//! - No panic, and an end to every chain.
//! - Each segment lies in one region; a chain has at most as many as it may.
//! - The device writes its own area and the descriptors: nothing else.
//! - While nobody wrote over anything, what was offered is taken as it is, and no rule is broken, wherever the memory
//!   is mapped meanwhile.
//! - A queue of any size, base and place is refused, or lies within the memory, aligned, and says where it stands.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vhost_user::virtqueue::Format;

fuzz_target!(|data: &[u8]| support::virtqueue::run(Format::Packed, data));
