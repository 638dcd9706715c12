//! A codec for OpenFlow 1.0 to 1.5 with the extensions of Nicira (Open vSwitch) and ONF.
//!
//! A [`Message`] has one model of each concept for all versions: a flow-mod is a [`FlowMod`](message::FlowMod) whether
//! it came as `OFPT_FLOW_MOD` of version 1.0 or 1.3 or as `NXT_FLOW_MOD`. What versions lay out differently, the codec
//! knows; what a version lacks, its documentation says.
//!
//! ```
//! use openflow::action::{Action, Output};
//! use openflow::field::FieldId;
//! use openflow::instruction::Instructions;
//! use openflow::matching::Match;
//! use openflow::message::{Body, FlowMod};
//! use openflow::oxm::Oxm;
//! use openflow::{Message, PortNo, Version};
//!
//! // table=3,priority=100,ip actions=output:7
//! let version = Version::V1_3;
//! let flow = FlowMod {
//!     table_id: 3,
//!     priority: 100,
//!     matching: Match::Fields(vec![Oxm::number(FieldId::EthType, version, 0x0800)]),
//!     instructions: Instructions::apply(vec![Action::Output(Output { port: PortNo(7), max_len: 0 })]),
//!     ..FlowMod::default()
//! };
//! let message = Message::new(version, 1, Body::FlowMod(Box::new(flow)));
//! let bytes = message.encode()?;
//! assert_eq!(Message::decode(&bytes)?, message);
//! assert_eq!(message.check(), Ok(()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A switch that cannot decode a request, or whose [`Message::check`] refuses it, replies with an error that repeats the
//! offending bytes:
//!
//! ```
//! use openflow::error::reply;
//! use openflow::{Message, Version};
//!
//! let request = [4, 14, 0, 12, 0, 0, 0, 9, 0, 0, 0, 0]; // a flow-mod that ends too early
//! let error = Message::decode(&request).unwrap_err();
//! assert_eq!(error.code.name(), "OFPBRC_BAD_LEN");
//! let answer = reply(error.code, &request, Version::V1_3).encode()?;
//! assert_eq!(answer[12..], request);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Invariants
//! - Decoding never panics, and its memory is proportional to the message.
//! - A decoded message encodes to the bytes that it came from if these are canonical: padding is zero, reserved bits are
//!   clear, text ends at its first NUL. Other messages encode to the canonical form of the same content.
//! - Unknown match fields, actions, instructions, properties, meter bands and experimenter messages are kept.
//!
//! # Rooms
//! - [`message`], [`multipart`]: the messages.
//! - [`matching`], [`oxm`], [`field`]: matches, their fields on the wire, and the table of fields.
//! - [`action`], [`instruction`], [`stats`], [`property`]: what messages are made of.
//! - [`error`]: error codes with their numbers in each version.
//! - [`text`]: matches, actions and flows as `ovs-ofctl` prints them.
//! - [`version`]: versions, port numbers, reserved ids.

pub mod action;
pub mod error;
pub mod field;
pub mod instruction;
pub mod matching;
pub mod message;
pub mod multipart;
pub mod oxm;
pub mod property;
pub mod stats;
pub mod text;
pub mod version;
mod wire;

pub use message::Message;
pub use version::{Mac, PortNo, Version};
pub use wire::{MAX_DEPTH, Octets, Text};
