//! Flows, read from text.

use super::ParseError;
use super::parse_actions::parse_instructions;
use super::parse_fields::{MatchBuilder, number, port, small};
use crate::matching::Match;
use crate::message::{FlowMod, FlowModCommand, FlowModFlags, cookie_field};
use crate::version::{NO_BUFFER, PortNo, Version, group, table};

/// Splits at separators outside of parentheses and brackets.
pub(super) fn split<'a>(text: &'a str, separators: &'a [char]) -> impl Iterator<Item = &'a str> {
    let mut depth = 0i32;
    text.split(move |c: char| {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            _ => {}
        }
        depth == 0 && separators.contains(&c)
    })
    .map(str::trim)
    .filter(|part| !part.is_empty())
}

/// Reads a flow, as the argument of `ovs-ofctl add-flow` and the like.
///
/// Actions keep their spelling: `mod_nw_src` is the action of that name in version 1.3, too, where `ovs-ofctl` sends
/// `set_field`. Fields of tunnel metadata have the shortest length that holds their value.
///
/// # Errors
/// The text is not a flow, or the version lacks part of it.
pub fn parse_flow(text: &str, command: FlowModCommand, version: Version) -> Result<FlowMod, ParseError> {
    let deletes = matches!(command, FlowModCommand::Delete | FlowModCommand::DeleteStrict);
    let mut flow = FlowMod {
        command,
        table_id: if deletes && version > Version::V1_0 { table::ALL } else { 0 },
        priority: 0x8000,
        buffer_id: NO_BUFFER,
        out_port: PortNo::ANY,
        out_group: if version > Version::V1_0 { group::ANY } else { 0 },
        ..FlowMod::default()
    };
    let (rule, actions) = match text.find("actions=") {
        Some(at) => text.split_at(at),
        None => (text, ""),
    };
    let mut builder = MatchBuilder::new(version);
    let mut asked = None;
    for item in split(rule, &[',', ' ', '\t']) {
        let (name, value) = item.split_once('=').unwrap_or((item, ""));
        match name {
            "table" => flow.table_id = small(value)?,
            "priority" => flow.priority = small(value)?,
            "idle_timeout" => flow.idle_timeout = small(value)?,
            "hard_timeout" => flow.hard_timeout = small(value)?,
            "importance" => flow.importance = small(value)?,
            "out_port" => flow.out_port = port(value)?,
            "out_group" => flow.out_group = small(value)?,
            "cookie" => match value.split_once('/') {
                Some((cookie, "-1")) => asked = Some((small(cookie)?, u64::MAX)),
                Some((cookie, mask)) => asked = Some((small(cookie)?, small(mask)?)),
                None => flow.cookie = small(value)?,
            },
            "send_flow_rem" => flow.flags |= FlowModFlags::SEND_FLOW_REM,
            "check_overlap" => flow.flags |= FlowModFlags::CHECK_OVERLAP,
            "reset_counts" => flow.flags |= FlowModFlags::RESET_COUNTS,
            "no_packet_counts" => flow.flags |= FlowModFlags::NO_PKT_COUNTS,
            "no_byte_counts" => flow.flags |= FlowModFlags::NO_BYT_COUNTS,
            _ if value.is_empty() && builder.keyword(name) => {}
            // What ovs-ofctl prints and does not read.
            "duration" | "n_packets" | "n_bytes" | "idle_age" | "hard_age" => {}
            _ if value.is_empty() => return Err(ParseError::new("field or option", name)),
            _ => builder.field(name, value)?,
        }
    }
    let mut fields = builder.finish()?;
    if let Some((cookie, mask)) = asked {
        match version {
            Version::V1_0 => fields.push(cookie_field(cookie, mask)),
            _ => (flow.cookie, flow.cookie_mask) = (cookie, mask),
        }
    }
    flow.matching = Match::Fields(fields);
    match actions.strip_prefix("actions=") {
        Some(actions) => flow.instructions = parse_instructions(actions, version)?,
        None if deletes => {}
        None => return Err(ParseError::new("actions", "nothing")),
    }
    Ok(flow)
}

/// Bytes in hexadecimal, separated by dots.
pub(super) fn dotted(text: &str) -> Result<Vec<u8>, ParseError> {
    let bytes = text.split('.').filter(|part| !part.is_empty()).map(|part| u8::from_str_radix(part, 16));
    bytes.collect::<Result<_, _>>().map_err(|_| ParseError::new("hexadecimal bytes separated by dots", text))
}

/// A list of `name=value` and `name` within parentheses.
pub(super) fn arguments(text: &str) -> Vec<(&str, &str)> {
    split(text, &[',']).map(|item| item.split_once('=').unwrap_or((item, ""))).collect()
}

/// A number that must not exceed the type's range, or 0 for an absent one.
pub(super) fn number_or_zero<T: TryFrom<u128> + Default>(text: &str) -> Result<T, ParseError> {
    if text.is_empty() {
        return Ok(T::default());
    }
    T::try_from(number(text)?).map_err(|_| ParseError::new("number in its range", text))
}
