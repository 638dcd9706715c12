//! Messages as text, for logs: the kind in Open vSwitch's words, version and id, then the content.

use super::{
    flow_entry_text, flow_mod_text, group_stats_text, group_text, hex, match_text, meter_stats_text,
    meter_text,
};
use crate::error::{ErrorCode, ErrorMessage};
use crate::message::{
    Body, BundleControlKind, BundleFlags, Form, Header, Hello, Message, Versions, cookie_of, is_cookie,
};
use crate::multipart::{FlowStatsRequest, Kind, Reply, Request};
use crate::version::{PortNo, Version, table};

/// A complete message, as `ovs-ofctl` and the log of Open vSwitch's daemon write it. Messages that have no text form
/// are their kind, version and id.
pub fn message_text(bytes: &[u8]) -> String {
    let Some(header) = Header::peek(bytes) else { return format!("{} bytes are no message", bytes.len()) };
    if header.kind == 0 {
        // Hellos may be of versions that are not known.
        return match Hello::decode_any(bytes) {
            Ok((_, hello)) => {
                let versions = versions_text(hello.versions(header.version));
                format!("OFPT_HELLO{}:\n version bitmap: {versions}", tail(&header))
            }
            Err(error) => format!("OFPT_HELLO{}: {}", tail(&header), error.code),
        };
    }
    match Message::decode(bytes) {
        Ok(message) => {
            let text = content(&message).unwrap_or_else(|code| format!(" {code}"));
            format!("{}{}:{text}", name(&message), tail(&header))
        }
        Err(error) => format!("type {}{}: {}", header.kind, tail(&header), error.code),
    }
}

/// Versions by their numbers.
pub fn versions_text(versions: Versions) -> String {
    let numbers = (0..32).filter(|number| versions.0 >> number & 1 == 1);
    numbers.map(|number| format!("0x{number:02x}")).collect::<Vec<_>>().join(", ")
}

/// Version and id of a message.
fn tail(header: &Header) -> String {
    let version = match Version::from_number(header.version) {
        Some(Version::V1_0) => String::new(),
        Some(version) => format!(" (OF1.{})", version as u8),
        None => format!(" (OF 0x{:02x})", header.version),
    };
    format!("{version} (xid={:#x})", header.xid)
}

/// A message's kind.
fn name(message: &Message) -> String {
    let (list, direction) = match &message.body {
        Body::MultipartRequest(request) => (request.content.kind(), "request"),
        Body::MultipartReply(reply) => (reply.content.kind(), "reply"),
        body => {
            let prefix = match message.form {
                Form::Standard => "OFPT",
                Form::Nicira => "NXT",
                Form::Onf => "ONFT",
            };
            return format!("{prefix}_{}", kind(body));
        }
    };
    let prefix = match message.form {
        Form::Standard => "OFPST",
        Form::Nicira => "NXST",
        Form::Onf => "ONFST",
    };
    format!("{prefix}_{} {direction}", list.map_or("EXPERIMENTER", list_kind))
}

fn kind(body: &Body) -> &'static str {
    match body {
        Body::Hello(_) => "HELLO",
        Body::Error(_) => "ERROR",
        Body::EchoRequest(_) => "ECHO_REQUEST",
        Body::EchoReply(_) => "ECHO_REPLY",
        Body::FeaturesRequest => "FEATURES_REQUEST",
        Body::FeaturesReply(_) => "FEATURES_REPLY",
        Body::GetConfigRequest => "GET_CONFIG_REQUEST",
        Body::GetConfigReply(_) => "GET_CONFIG_REPLY",
        Body::SetConfig(_) => "SET_CONFIG",
        Body::PacketIn(_) => "PACKET_IN",
        Body::PacketIn2(_) => "PACKET_IN2",
        Body::FlowRemoved(_) => "FLOW_REMOVED",
        Body::PortStatus(_) => "PORT_STATUS",
        Body::PacketOut(_) => "PACKET_OUT",
        Body::FlowMod(_) => "FLOW_MOD",
        Body::GroupMod(_) => "GROUP_MOD",
        Body::PortMod(_) => "PORT_MOD",
        Body::TableMod(_) => "TABLE_MOD",
        Body::MultipartRequest(_) | Body::MultipartReply(_) => "STATS",
        Body::BarrierRequest => "BARRIER_REQUEST",
        Body::BarrierReply => "BARRIER_REPLY",
        Body::QueueGetConfigRequest(_) => "QUEUE_GET_CONFIG_REQUEST",
        Body::QueueGetConfigReply(_) => "QUEUE_GET_CONFIG_REPLY",
        Body::RoleRequest(_) => "ROLE_REQUEST",
        Body::RoleReply(_) => "ROLE_REPLY",
        Body::GetAsyncRequest => "GET_ASYNC_REQUEST",
        Body::GetAsyncReply(_) | Body::GetAsyncReply2(_) => "GET_ASYNC_REPLY",
        Body::SetAsync(_) => "SET_ASYNC",
        Body::SetAsync2(_) => "SET_ASYNC_CONFIG2",
        Body::MeterMod(_) => "METER_MOD",
        Body::RoleStatus(_) => "ROLE_STATUS",
        Body::TableStatus(_) => "TABLE_STATUS",
        Body::RequestForward(_) => "REQUESTFORWARD",
        Body::BundleControl(_) => "BUNDLE_CONTROL",
        Body::BundleAdd(_) => "BUNDLE_ADD_MESSAGE",
        Body::SetFlowFormat(_) => "SET_FLOW_FORMAT",
        Body::FlowModTableId(_) => "FLOW_MOD_TABLE_ID",
        Body::SetPacketInFormat(_) => "SET_PACKET_IN_FORMAT",
        Body::FlowAge => "FLOW_AGE",
        Body::SetControllerId(_) => "SET_CONTROLLER_ID",
        Body::FlowMonitorCancel(_) => "FLOW_MONITOR_CANCEL",
        Body::FlowMonitorPaused => "FLOW_MONITOR_PAUSED",
        Body::FlowMonitorResumed => "FLOW_MONITOR_RESUMED",
        Body::TlvTableMod(_) => "TLV_TABLE_MOD",
        Body::TlvTableRequest => "TLV_TABLE_REQUEST",
        Body::TlvTableReply(_) => "TLV_TABLE_REPLY",
        Body::Resume(_) => "RESUME",
        Body::CtFlushZone(_) => "CT_FLUSH_ZONE",
        Body::CtFlush(_) => "CT_FLUSH",
        Body::Experimenter(..) => "EXPERIMENTER",
    }
}

fn list_kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Desc => "DESC",
        Kind::Flow => "FLOW",
        Kind::Aggregate => "AGGREGATE",
        Kind::Table => "TABLE",
        Kind::PortStats => "PORT",
        Kind::Queue => "QUEUE",
        Kind::Group => "GROUP",
        Kind::GroupDesc => "GROUP_DESC",
        Kind::GroupFeatures => "GROUP_FEATURES",
        Kind::Meter => "METER",
        Kind::MeterConfig => "METER_CONFIG",
        Kind::MeterFeatures => "METER_FEATURES",
        Kind::TableFeatures => "TABLE_FEATURES",
        Kind::PortDesc => "PORT_DESC",
        Kind::TableDesc => "TABLE_DESC",
        Kind::QueueDesc => "QUEUE_DESC",
        Kind::FlowMonitor => "FLOW_MONITOR",
        Kind::FlowStats => "FLOW_STATS",
        Kind::IpfixBridge => "IPFIX_BRIDGE",
        Kind::IpfixFlow => "IPFIX_FLOW",
    }
}

/// The content behind the kind, version and id.
fn content(message: &Message) -> Result<String, ErrorCode> {
    let version = message.version;
    Ok(match &message.body {
        Body::Error(error) => error_text(error, version),
        Body::EchoRequest(data) | Body::EchoReply(data) => format!(" {} bytes of payload", data.len()),
        Body::FlowMod(flow) => format!(" {}", flow_mod_text(flow, version)?),
        Body::SetFlowFormat(format) => match format {
            0 => " format=openflow10".into(),
            2 => " format=nxm".into(),
            other => format!(" format={other}"),
        },
        Body::SetControllerId(id) => format!(" id={}", id.0),
        Body::BundleControl(control) => {
            let kind = match control.kind {
                BundleControlKind::OpenRequest => "OPEN_REQUEST",
                BundleControlKind::OpenReply => "OPEN_REPLY",
                BundleControlKind::CloseRequest => "CLOSE_REQUEST",
                BundleControlKind::CloseReply => "CLOSE_REPLY",
                BundleControlKind::CommitRequest => "COMMIT_REQUEST",
                BundleControlKind::CommitReply => "COMMIT_REPLY",
                BundleControlKind::DiscardRequest => "DISCARD_REQUEST",
                BundleControlKind::DiscardReply => "DISCARD_REPLY",
            };
            let bundle = hex(control.bundle.into());
            format!("\n bundle_id={bundle} type={kind} flags={}", bundle_flags(control.flags))
        }
        Body::BundleAdd(add) => {
            let bundle = hex(add.bundle.into());
            let inner = inner_text(&add.message);
            format!("\n bundle_id={bundle} flags={}\n{inner}", bundle_flags(add.flags))
        }
        Body::RequestForward(forward) => format!(" {}", inner_text(&forward.0)),
        Body::MultipartRequest(request) => match &request.content {
            Request::Flow(flows) | Request::Aggregate(flows) | Request::FlowStats(flows) => selected(flows)?,
            _ => String::new(),
        },
        Body::MultipartReply(reply) => list_text(&reply.content, version)?,
        _ => String::new(),
    })
}

/// A message within another. Bundles hold no bundles, so this goes no deeper.
fn inner_text(bytes: &[u8]) -> String {
    let is_nested = |message: &Message| matches!(message.body, Body::BundleAdd(_) | Body::RequestForward(_));
    match Message::decode(bytes) {
        Ok(message) if is_nested(&message) => name(&message),
        _ => message_text(bytes),
    }
}

fn bundle_flags(flags: BundleFlags) -> String {
    let known =
        [(BundleFlags::ATOMIC, "atomic"), (BundleFlags::ORDERED, "ordered"), (BundleFlags::TIME, "time")];
    let names = known.into_iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, name)| name.to_owned());
    let rest = (flags - BundleFlags::all()).bits();
    let names: Vec<_> = names.chain((rest != 0).then(|| format!("{rest:#x}"))).collect();
    if names.is_empty() { "0".into() } else { names.join(" ") }
}

fn error_text(error: &ErrorMessage, version: Version) -> String {
    let what = match error.code(version) {
        Some(code) => code.name().to_owned(),
        None => format!(
            "vendor {:#x} type {} code {}",
            error.numbers.vendor, error.numbers.kind, error.numbers.code
        ),
    };
    match error.code(version) {
        Some(ErrorCode::HfcIncompatible | ErrorCode::HfcEperm) => {
            format!(" {what}\n{}", String::from_utf8_lossy(&error.data).escape_debug())
        }
        // What the request was is in the log already, or at its sender.
        _ => format!(" {what}"),
    }
}

/// Which flows a request is about.
fn selected(request: &FlowStatsRequest) -> Result<String, ErrorCode> {
    let mut fields = request.matching.to_fields()?;
    let (cookie, mask) = cookie_of(&fields).unwrap_or((request.cookie, request.cookie_mask));
    fields.retain(|oxm| !is_cookie(oxm));
    let mut text = String::new();
    if request.table_id != table::ALL {
        text += &format!(" table={}", request.table_id);
    }
    if request.out_port != PortNo::ANY {
        text += &format!(" out_port={}", request.out_port);
    }
    if mask != 0 {
        text += &format!(" cookie={cookie:#x}/{mask:#x}");
    }
    Ok(format!("{text} {}", match_text(&fields)))
}

fn list_text(reply: &Reply, version: Version) -> Result<String, ErrorCode> {
    let lines: Vec<String> = match reply {
        Reply::Flow(flows) => {
            let lines =
                flows.iter().map(|flow| flow_entry_text(flow, version).map(|text| format!(" {text}")));
            lines.collect::<Result<_, _>>()?
        }
        Reply::GroupDesc(groups) => {
            groups.iter().map(|group| format!(" {}", group_text(group, version))).collect()
        }
        Reply::Group(groups) => groups.iter().map(|group| format!(" {}", group_stats_text(group))).collect(),
        Reply::MeterConfig(meters) => meters.iter().map(meter_text).collect(),
        Reply::Meter(meters) => meters.iter().map(meter_stats_text).collect(),
        _ => Vec::new(),
    };
    Ok(lines.iter().map(|line| format!("\n{line}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{BundleAdd, BundleControl, FlowModCommand};
    use crate::text::parse_flow;

    fn text(version: Version, body: Body) -> String {
        message_text(&Message::new(version, 7, body).into_bytes().unwrap())
    }

    #[test]
    fn messages_print_as_open_vswitch_prints_them() {
        let hello = Body::Hello(Hello::new(Versions::from_iter([Version::V1_0, Version::V1_3])));
        assert_eq!(text(Version::V1_3, hello), "OFPT_HELLO (OF1.3) (xid=0x7):\n version bitmap: 0x01, 0x04");
        assert_eq!(
            message_text(&[2, 0, 0, 8, 0, 0, 0, 9]),
            "OFPT_HELLO (OF1.1) (xid=0x9):\n version bitmap: 0x01, 0x02"
        );
        assert_eq!(text(Version::V1_0, Body::BarrierRequest), "OFPT_BARRIER_REQUEST (xid=0x7):");
        assert_eq!(text(Version::V1_0, Body::SetFlowFormat(2)), "NXT_SET_FLOW_FORMAT (xid=0x7): format=nxm");
        let flow =
            |version| Box::new(parse_flow("in_port=2,actions=1", FlowModCommand::Add, version).unwrap());
        let control = BundleControl { kind: BundleControlKind::CommitReply, ..BundleControl::default() };
        assert_eq!(
            text(Version::V1_3, Body::BundleControl(control)),
            "ONFT_BUNDLE_CONTROL (OF1.3) (xid=0x7):\n bundle_id=0 type=COMMIT_REPLY flags=0"
        );
        let message = Message::new(Version::V1_4, 8, Body::FlowMod(flow(Version::V1_4))).encode().unwrap();
        let flags = BundleFlags::ATOMIC | BundleFlags::ORDERED;
        let add = |message| Body::BundleAdd(BundleAdd { bundle: 0x11, flags, message, trailing: vec![] });
        assert_eq!(
            text(Version::V1_4, add(message)),
            "OFPT_BUNDLE_ADD_MESSAGE (OF1.4) (xid=0x7):\n bundle_id=0x11 flags=atomic ordered\n\
             OFPT_FLOW_MOD (OF1.4) (xid=0x8): ADD in_port=2 actions=output:1"
        );
        let inner = Message::new(Version::V1_4, 8, add(vec![5, 0, 0, 8, 0, 0, 0, 0])).encode().unwrap();
        assert!(text(Version::V1_4, add(inner)).ends_with("\nOFPT_BUNDLE_ADD_MESSAGE"), "no deeper");
    }

    #[test]
    fn what_is_no_message_is_told_as_such() {
        assert_eq!(message_text(&[4, 0]), "2 bytes are no message");
        assert_eq!(message_text(&[4, 99, 0, 8, 0, 0, 0, 1]), "type 99 (OF1.3) (xid=0x1): OFPBRC_BAD_TYPE");
        assert_eq!(
            message_text(&[9, 99, 0, 8, 0, 0, 0, 1]),
            "type 99 (OF 0x09) (xid=0x1): OFPBRC_BAD_VERSION"
        );
    }
}
