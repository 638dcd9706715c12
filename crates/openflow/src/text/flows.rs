//! Flows as text.

use super::{duration_text, instructions_text, match_text};
use crate::message::{FlowMod, FlowModCommand, FlowModFlags, cookie_of, is_cookie};
use crate::multipart::FlowEntry;
use crate::oxm::Oxm;
use crate::version::{NO_BUFFER, PortNo, Version, table};

/// The priority that is not written.
const DEFAULT_PRIORITY: u16 = 0x8000;

/// Priority and match, separated by a comma.
fn rule(priority: u16, fields: &[Oxm]) -> String {
    let text = match_text(fields);
    match (priority, text.as_str()) {
        (DEFAULT_PRIORITY, _) => text,
        (_, "") => format!("priority={priority}"),
        _ => format!("priority={priority},{text}"),
    }
}

/// The options' names.
fn flag_names(flags: FlowModFlags) -> Vec<&'static str> {
    let names = [
        (FlowModFlags::SEND_FLOW_REM, "send_flow_rem"),
        (FlowModFlags::CHECK_OVERLAP, "check_overlap"),
        (FlowModFlags::RESET_COUNTS, "reset_counts"),
        (FlowModFlags::NO_PKT_COUNTS, "no_packet_counts"),
        (FlowModFlags::NO_BYT_COUNTS, "no_byte_counts"),
    ];
    names.iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, name)| *name).collect()
}

/// A change of flows, as `ovs-ofctl snoop` writes it behind the message's type.
///
/// # Errors
/// The match is a fixed one with values outside of their ranges.
pub fn flow_mod_text(flow: &FlowMod, version: Version) -> Result<String, crate::error::ErrorCode> {
    let mut fields = flow.matching.to_fields()?;
    let cookie = cookie_of(&fields);
    fields.retain(|oxm| !is_cookie(oxm));
    let mut words = vec![
        match flow.command {
            FlowModCommand::Add => "ADD",
            FlowModCommand::Modify => "MOD",
            FlowModCommand::ModifyStrict => "MOD_STRICT",
            FlowModCommand::Delete => "DEL",
            FlowModCommand::DeleteStrict => "DEL_STRICT",
        }
        .to_owned(),
    ];
    if flow.table_id != 0 {
        words.push(format!("table:{}", flow.table_id));
    }
    words.push(rule(flow.priority, &fields));
    let (asked, mask) = cookie.unwrap_or((flow.cookie, flow.cookie_mask));
    if mask != 0 {
        words.push(format!("cookie:{asked:#x}/{mask:#x}"));
    } else if flow.cookie != 0 && flow.cookie != u64::MAX {
        words.push(format!("cookie:{:#x}", flow.cookie));
    }
    if flow.idle_timeout != 0 {
        words.push(format!("idle:{}", flow.idle_timeout));
    }
    if flow.hard_timeout != 0 {
        words.push(format!("hard:{}", flow.hard_timeout));
    }
    if flow.importance != 0 {
        words.push(format!("importance:{}", flow.importance));
    }
    if flow.buffer_id != NO_BUFFER {
        words.push(format!("buf:{:#x}", flow.buffer_id));
    }
    if !matches!(flow.out_port, PortNo::ANY | PortNo(0)) {
        words.push(format!("out_port:{}", flow.out_port));
    }
    words.extend(flag_names(flow.flags).into_iter().map(str::to_owned));
    words.push(format!("actions={}", instructions_text(&flow.instructions, version)));
    words.retain(|word| !word.is_empty());
    Ok(words.join(" "))
}

/// A flow, as `ovs-ofctl dump-flows` writes it.
///
/// # Errors
/// The match is a fixed one with values outside of their ranges.
pub fn flow_entry_text(flow: &FlowEntry, version: Version) -> Result<String, crate::error::ErrorCode> {
    let mut parts = vec![format!("cookie={:#x}", flow.cookie)];
    let (seconds, nanoseconds) = flow.stats.duration().unwrap_or_default();
    parts.push(format!("duration={}", duration_text(seconds, nanoseconds)));
    if flow.table_id != table::ALL {
        parts.push(format!("table={}", flow.table_id));
    }
    parts.push(format!("n_packets={}", flow.stats.packets().unwrap_or_default()));
    parts.push(format!("n_bytes={}", flow.stats.bytes().unwrap_or_default()));
    if flow.idle_timeout != 0 {
        parts.push(format!("idle_timeout={}", flow.idle_timeout));
    }
    if flow.hard_timeout != 0 {
        parts.push(format!("hard_timeout={}", flow.hard_timeout));
    }
    let mut text = parts.join(", ") + ", ";
    parts.clear();
    // Options have no commas behind them.
    for name in flag_names(flow.flags) {
        text.push_str(name);
        text.push(' ');
    }
    if flow.importance != 0 {
        parts.push(format!("importance={}", flow.importance));
    }
    let idle = flow.idle_age.checked_sub(1).map(u32::from);
    if let Some(age) = idle.or(flow.stats.idle_time().map(|(seconds, _)| seconds)) {
        parts.push(format!("idle_age={age}"));
    }
    if let Some(age) = flow.hard_age.checked_sub(1).filter(|age| u32::from(*age) != seconds) {
        parts.push(format!("hard_age={age}"));
    }
    for part in parts {
        text.push_str(&part);
        text.push_str(", ");
    }
    let rule = rule(flow.priority, &flow.matching.to_fields()?);
    if !rule.is_empty() {
        text.push_str(&rule);
        text.push(' ');
    }
    text.push_str("actions=");
    text.push_str(&instructions_text(&flow.instructions, version));
    Ok(text)
}
