//! Packets as bytes: what the switch knows about wire formats and about the work that is left to do on a packet.
//!
//! | module         | idea                                                                          |
//! |----------------|-------------------------------------------------------------------------------|
//! | [`bpf`]        | packet filters: checked and run                                               |
//! | [`ether`]      | MAC addresses, EtherTypes, VLAN tags (IEEE 802.3, 802.1Q)                     |
//! | [`headers`]    | where each layer starts (RFC 791, RFC 8200)                                   |
//! | [`edit`]       | pushing, popping and rewriting a VLAN tag in place                            |
//! | [`flow`]       | one number for all packets of a flow                                          |
//! | [`checksum`]   | the Internet checksum, piecewise (RFC 1071)                                   |
//! | [`offload`]    | what remains to be done before a packet is valid on a wire, and is it true    |
//! | [`virtio_net`] | the same as a virtio-net header (virtio 1.2 §5.1.6)                           |
//! | [`segment`]    | doing it in software: segmentation and checksum completion                    |
//!
//! Invariants of the whole crate:
//! - Every function may be given bytes and metadata that an attacker chose. None panics, none reads outside of the
//!   slice that it was given, every loop is bounded by a constant or by the slice.
//! - Nothing here allocates, except the errors of the text parsers.
//! - A frame starts at its destination address: no preamble, no frame check sequence.
#![forbid(unsafe_code)]

pub mod bpf;
mod bytes;
pub mod checksum;
pub mod edit;
pub mod ether;
pub mod flow;
mod gso;
pub mod headers;
pub mod offload;
pub mod segment;
pub mod virtio_net;

pub use checksum::Sum;
pub use ether::{EtherType, MacAddr, Vid, VlanTag};
pub use headers::{IpVersion, Layers};
pub use offload::{Gso, Offload, OffloadError};
pub use segment::{Plan, SegmentError};
