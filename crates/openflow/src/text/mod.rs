//! The text form that `ovs-ofctl` prints: matches, actions and flows, for people and for tests.
//!
//! [`parse_flow`], [`parse_group`], [`parse_meter`] and [`parse_instructions`] read what the others print, and
//! `ovs-ofctl`'s arguments; [`parse_packet_out`] reads a packet to send.
//!
//! [`match_text`] and [`actions_text`] write what `ovs-ofctl` writes for the same bytes; [`flow_mod_text`] is a line of
//! `ovs-ofctl snoop`, [`flow_entry_text`] one of `dump-flows`, [`message_text`] any message. [`replace_tables`] writes
//! tables by name, and back.

mod actions;
mod fields;
mod flows;
mod groups;
mod messages;
mod meters;
mod packets;
mod parse;
mod parse_actions;
mod parse_fields;
mod tables;

pub use actions::{actions_text, instructions_text};
pub use fields::match_text;
pub use flows::{flow_entry_text, flow_mod_text};
pub use groups::{group_stats_text, group_text, parse_group};
pub use messages::{message_text, versions_text};
pub use meters::{meter_stats_text, meter_text, parse_meter};
pub use packets::parse_packet_out;
pub use parse::parse_flow;
pub use parse_actions::{parse_actions, parse_instructions};
pub use tables::{is_table_name, replace_tables};

/// A text that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected {expected}, found `{found}`")]
pub struct ParseError {
    /// What should stand there.
    pub expected: &'static str,
    /// What stands there.
    pub found: String,
}

impl ParseError {
    pub(crate) fn new(expected: &'static str, found: &str) -> Self {
        ParseError { expected, found: found.to_owned() }
    }
}

/// A time, with milliseconds where they are exact.
fn duration_text(seconds: u32, nanoseconds: u32) -> String {
    match nanoseconds {
        0 => format!("{seconds}s"),
        _ if nanoseconds.is_multiple_of(1_000_000) => format!("{seconds}.{:03}s", nanoseconds / 1_000_000),
        _ => format!("{seconds}.{nanoseconds:09}s"),
    }
}

/// A number in hexadecimal, where zero has no prefix (the form of C's `%#x`).
pub(crate) fn hex(number: u128) -> String {
    if number == 0 { "0".to_owned() } else { format!("{number:#x}") }
}

/// Bytes in hexadecimal, separated by dots.
pub(crate) fn dotted(bytes: &[u8]) -> String {
    let parts: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    parts.join(".")
}
