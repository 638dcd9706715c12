//! Packets as bytes: wire formats, and the offloaded work still pending on a packet.
//!
//! | module         | idea                                                                          |
//! |----------------|-------------------------------------------------------------------------------|
//! | [`bpf`]        | packet filters: checking and running them                                     |
//! | [`ether`]      | MAC addresses, EtherTypes, VLAN tags (IEEE 802.3, 802.1Q)                     |
//! | [`headers`]    | start of each layer (RFC 791, RFC 8200)                                       |
//! | [`edit`]       | pushing, popping and rewriting a VLAN tag in place                            |
//! | [`dscp`]       | code points of IP packets (RFC 2474)                                          |
//! | [`ecn`]        | explicit congestion notification in IP packets (RFC 3168)                     |
//! | [`conversation`] | ports of TCP and UDP, and a hash that is equal for both directions           |
//! | [`flow`]       | a hash that is equal for all packets of a flow                                |
//! | [`checksum`]   | the Internet checksum, computed piecewise (RFC 1071)                          |
//! | [`offload`]    | work pending before a packet is valid on a wire, and its validation           |
//! | [`virtio_net`] | the same as a virtio-net header (virtio 1.2 §5.1.6)                           |
//! | [`segment`]    | doing that work in software: segmentation and checksum completion             |
//! | [`unannounced`] | finding checksums that a sender left without saying so                       |
//!
//! Invariants of the whole crate:
//! - Every function accepts bytes and metadata that an attacker chose. None panics, none reads outside its slice, and
//!   every loop is bounded by a constant or by the slice.
//! - Nothing allocates except the errors of the text parsers.
//! - A frame starts at its destination address, without preamble or frame check sequence.
#![forbid(unsafe_code)]

pub mod bpf;
mod bytes;
pub mod checksum;
pub mod conversation;
pub mod dscp;
pub mod ecn;
pub mod edit;
pub mod ether;
pub mod flow;
mod gso;
pub mod headers;
pub mod offload;
pub mod segment;
mod traffic_class;
pub mod unannounced;
pub mod virtio_net;

pub use checksum::Sum;
pub use conversation::Conversation;
pub use ether::{EtherType, MacAddr, Vid, VlanTag};
pub use headers::{IpVersion, Layers};
pub use offload::{Gso, Offload, OffloadError};
pub use segment::{Plan, SegmentError};
