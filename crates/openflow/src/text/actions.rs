//! Actions and instructions as text.

use super::fields::{masked, notation};
use super::{dotted, hex};
use crate::action::{
    Action, Bundle, Controller2, ControllerProperty, CtFlags, Encap, HashFields, Learn, LearnDestination,
    LearnFlags, LearnSource, LearnSpec, Multipath, Nat, NatFlags, Observation, SampleDirection, Track, Zone,
};
use crate::instruction::{Instruction, Instructions};
use crate::oxm::{Oxm, OxmHeader, Subfield};
use crate::version::{PortNo, Version};

/// A list of actions, separated by commas; `drop` if there is none.
pub fn actions_text(actions: &[Action], version: Version) -> String {
    if actions.is_empty() { "drop".to_owned() } else { list(actions, version) }
}

/// A flow's instructions, separated by commas; `drop` if there is none.
pub fn instructions_text(instructions: &Instructions, version: Version) -> String {
    let mut parts: Vec<(u8, String)> = instructions.0.iter().map(|one| instruction(one, version)).collect();
    // As they are executed, whatever their order on the wire.
    parts.sort_by_key(|(order, _)| *order);
    let parts: Vec<String> =
        parts.into_iter().map(|(_, text)| text).filter(|text| !text.is_empty()).collect();
    if parts.is_empty() { "drop".to_owned() } else { parts.join(",") }
}

/// An instruction, and when it is executed.
fn instruction(instruction: &Instruction, version: Version) -> (u8, String) {
    match instruction {
        Instruction::Meter(meter) => (0, format!("meter:{meter}")),
        Instruction::ApplyActions(actions) => (1, list(actions, version)),
        Instruction::ClearActions => (2, "clear_actions".to_owned()),
        Instruction::WriteActions(actions) => {
            (3, format!("write_actions({})", actions_text(actions, version)))
        }
        Instruction::WriteMetadata { value, mask } => (4, write_metadata(*value, *mask)),
        Instruction::GotoTable(table) => (6, format!("goto_table:{table}")),
        Instruction::StatTrigger(_) => (5, "stat_trigger".to_owned()),
        Instruction::Unknown(kind, _) => (7, format!("instruction({kind})")),
    }
}

fn list(actions: &[Action], version: Version) -> String {
    let parts: Vec<String> = actions.iter().map(|one| action(one, version)).collect();
    parts.join(",")
}

fn write_metadata(value: u64, mask: u64) -> String {
    match mask {
        u64::MAX => format!("write_metadata:{}", hex(value.into())),
        _ => format!("write_metadata:{}/{}", hex(value.into()), hex(mask.into())),
    }
}

fn output(port: PortNo, max_len: u16) -> String {
    match port {
        PortNo::CONTROLLER => format!("CONTROLLER:{max_len}"),
        port if port < PortNo::MAX => format!("output:{port}"),
        port => port.to_string(),
    }
}

fn action(action: &Action, version: Version) -> String {
    let old = version == Version::V1_0;
    match action {
        Action::Output(one) => output(one.port, one.max_len),
        Action::OutputTrunc(one) => format!("output(port={},max_len={})", one.port, one.max_len),
        Action::OutputReg(one) => format!("output:{}", part(&one.source)),
        Action::OutputReg2(one) => format!("output:{}", part(&one.source)),
        Action::Enqueue(one) => format!("enqueue:{}:{}", one.port, one.queue),
        Action::Group(group) => format!("group:{group}"),
        Action::Meter(meter) => format!("meter:{meter}"),
        Action::SetQueue(queue) => format!("set_queue:{queue}"),
        Action::PopQueue => "pop_queue".to_owned(),
        Action::SetVlanVid(vid) => format!("{}_vlan_vid:{vid}", if old { "mod" } else { "set" }),
        Action::SetVlanPcp(pcp) => format!("{}_vlan_pcp:{pcp}", if old { "mod" } else { "set" }),
        Action::PopVlan => if old { "strip_vlan" } else { "pop_vlan" }.to_owned(),
        Action::PushVlan(eth_type) => format!("push_vlan:0x{eth_type:04x}"),
        Action::SetDlSrc(address) => format!("mod_dl_src:{}", address.0),
        Action::SetDlDst(address) => format!("mod_dl_dst:{}", address.0),
        Action::SetNwSrc(address) => format!("mod_nw_src:{}", std::net::Ipv4Addr::from(*address)),
        Action::SetNwDst(address) => format!("mod_nw_dst:{}", std::net::Ipv4Addr::from(*address)),
        Action::SetNwTos(tos) => format!("mod_nw_tos:{tos}"),
        Action::SetNwEcn(ecn) => format!("mod_nw_ecn:{ecn}"),
        Action::SetNwTtl(ttl) => format!("mod_nw_ttl:{ttl}"),
        Action::DecNwTtl => "dec_ttl".to_owned(),
        Action::DecTtlIds(ids) => {
            let ids: Vec<String> = ids.0.iter().map(u16::to_string).collect();
            format!("dec_ttl({})", ids.join(","))
        }
        Action::SetTpSrc(port) => format!("mod_tp_src:{port}"),
        Action::SetTpDst(port) => format!("mod_tp_dst:{port}"),
        Action::CopyTtlOut => "copy_ttl_out".to_owned(),
        Action::CopyTtlIn => "copy_ttl_in".to_owned(),
        Action::SetMplsLabel(label) => format!("set_mpls_label({label})"),
        Action::SetMplsTc(tc) => format!("set_mpls_tc({tc})"),
        Action::SetMplsTtl(ttl) => format!("set_mpls_ttl({ttl})"),
        Action::DecMplsTtl => "dec_mpls_ttl".to_owned(),
        Action::PushMpls(eth_type) => format!("push_mpls:0x{eth_type:04x}"),
        Action::PopMpls(eth_type) => format!("pop_mpls:0x{eth_type:04x}"),
        Action::PushPbb(eth_type) => format!("push_pbb:0x{eth_type:04x}"),
        Action::PopPbb => "pop_pbb".to_owned(),
        Action::SetField(set) => set_field(&set.0),
        Action::RegLoad2(set) => set_field(&set.0),
        Action::RegLoad(load) => format!("load:{}->{}", hex(load.value.into()), part(&load.destination)),
        Action::RegMove(copy) => format!("move:{}->{}", part(&copy.source), part(&copy.destination)),
        Action::CopyField(copy) => format!("move:{}->{}", part(&copy.source), part(&copy.destination)),
        Action::Resubmit(port) => format!("resubmit:{}", port.0),
        Action::ResubmitTable(one) => resubmit(one.in_port, one.table, false),
        Action::ResubmitTableCt(one) => resubmit(one.in_port, one.table, true),
        Action::SetTunnel(id) => format!("set_tunnel:{}", hex((*id).into())),
        Action::SetTunnel64(id) => format!("set_tunnel64:{}", hex((*id).into())),
        Action::Note(note) => format!("note:{}", dotted(&note.0)),
        Action::Multipath(one) => multipath(one),
        Action::Bundle(one) => format!("bundle({})", bundle(one, None)),
        Action::BundleLoad(one) => format!("bundle_load({})", bundle(&one.bundle, Some(&one.destination))),
        Action::Learn(one) => learn(one, 0, None),
        Action::Learn2(one) => {
            let writes = one.learn.flags.contains(LearnFlags::WRITE_RESULT);
            learn(&one.learn, one.limit, writes.then_some(&one.result))
        }
        Action::Exit => "exit".to_owned(),
        Action::FinTimeout(one) => {
            let mut parts = Vec::new();
            if one.idle != 0 {
                parts.push(format!("idle_timeout={}", one.idle));
            }
            if one.hard != 0 {
                parts.push(format!("hard_timeout={}", one.hard));
            }
            format!("fin_timeout({})", parts.join(","))
        }
        Action::Controller(one) => controller(one.max_len, one.controller_id, one.reason, &[]),
        Action::Controller2(one) => controller2(one),
        Action::WriteMetadata(one) => write_metadata(one.value, one.mask),
        Action::StackPush(stack) => format!("push:{}", part(&stack.0)),
        Action::StackPop(stack) => format!("pop:{}", part(&stack.0)),
        Action::Sample(_) | Action::Sample2(_) | Action::Sample3(_) | Action::Sample4(_) => sample(action),
        Action::Conjunction(one) => {
            format!("conjunction({},{}/{})", one.id, u16::from(one.clause) + 1, one.clauses)
        }
        Action::Track(track) => ct(track, version),
        Action::Nat(one) => nat(one),
        Action::Clone(nest) => format!("clone({})", actions_text(&nest.0, version)),
        Action::CtClear => "ct_clear".to_owned(),
        Action::Encap(one) => encap(one),
        Action::Decap(packet) if packet.0 == 0xfffe => "decap()".to_owned(),
        Action::Decap(packet) => {
            format!("decap(packet_type(ns={},type={:#x}))", packet.0 >> 16, packet.0 & 0xffff)
        }
        Action::DecNshTtl => "dec_nsh_ttl".to_owned(),
        Action::CheckPacketLarger(one) => {
            format!("check_pkt_larger({})->{}", one.limit, part_with_bits(&one.destination))
        }
        Action::DeleteField(field) => format!("delete_field:{}", field_name(&field.0)),
        Action::DebugSlow => "debug_slow".to_owned(),
        Action::DebugRecirc => "debug_recirc".to_owned(),
        Action::Unknown(kind, body) => format!("action({kind},{})", dotted(body)),
    }
}

fn encap(one: &Encap) -> String {
    const NSH_CLASS: u16 = 4;
    const MD_TYPE: u8 = 1;
    let properties: Vec<String> = one
        .properties
        .iter()
        .map(|property| match (property.class, property.kind, property.body.as_slice()) {
            (NSH_CLASS, MD_TYPE, [md_type, ..]) => format!("md_type={md_type}"),
            (class, kind, body) => format!("property({class},{kind},{})", dotted(body)),
        })
        .collect();
    let header = packet_type(one.packet_type);
    match properties.as_slice() {
        [] => format!("encap({header})"),
        properties => format!("encap({header}({}))", properties.join(",")),
    }
}

fn packet_type(packet: u32) -> String {
    match packet {
        0 => "ethernet".to_owned(),
        0x0001_894f => "nsh".to_owned(),
        0x0001_8847 => "mpls".to_owned(),
        0x0001_8848 => "mpls_mc".to_owned(),
        _ => format!("{packet:#x}"),
    }
}

fn resubmit(port: PortNo, table: u8, tracked: bool) -> String {
    if table == 0xff && !tracked {
        return format!("resubmit:{port}");
    }
    let port = if port == PortNo::IN_PORT { String::new() } else { port.to_string() };
    let table = if table == 0xff { String::new() } else { table.to_string() };
    format!("resubmit({port},{table}{})", if tracked { ",ct" } else { "" })
}

/// The name of a field in its oldest class, as parts of fields have it.
fn class_name(header: &OxmHeader) -> String {
    match header.field() {
        Some(field) => {
            let oldest = field.numbers.iter().find(|number| number.id.experimenter == 0);
            oldest.or(field.numbers.first()).map_or(field.name, |number| number.name).to_owned()
        }
        None => format!("{}:{}:{}", header.id.class, header.id.experimenter, header.id.field),
    }
}

fn field_name(header: &OxmHeader) -> String {
    header.field().map_or_else(|| class_name(header), |field| field.name.to_owned())
}

/// Part of a field: empty brackets stand for all of it.
fn part(part: &Subfield) -> String {
    match part.header.field() {
        Some(field) if part.offset == 0 && part.bits == field.bits => {
            format!("{}[]", class_name(&part.header))
        }
        _ => part_with_bits(part),
    }
}

fn part_with_bits(part: &Subfield) -> String {
    let name = class_name(&part.header);
    match part.bits {
        1 => format!("{name}[{}]", part.offset),
        bits => format!("{name}[{}..{}]", part.offset, u32::from(part.offset) + u32::from(bits) - 1),
    }
}

fn set_field(oxm: &Oxm) -> String {
    match oxm.field() {
        Some(field) => {
            let value = notation(field, oxm.value_number());
            let write = |mask| {
                if oxm.mask.is_some() && value.contains(['.', ':']) {
                    notation(field, mask)
                } else {
                    hex(mask)
                }
            };
            format!("set_field:{}->{}", masked(&value, oxm, write), field.name)
        }
        None => format!("set_field:{}->{}", hex(oxm.value_number()), class_name(&oxm.header())),
    }
}

fn hash_fields(fields: HashFields) -> &'static str {
    match fields {
        HashFields::EthSrc => "eth_src",
        HashFields::SymmetricL4 => "symmetric_l4",
        HashFields::SymmetricL3L4 => "symmetric_l3l4",
        HashFields::SymmetricL3L4Udp => "symmetric_l3l4+udp",
        HashFields::NwSrc => "nw_src",
        HashFields::NwDst => "nw_dst",
        HashFields::SymmetricL3 => "symmetric_l3",
    }
}

fn multipath(one: &Multipath) -> String {
    let algorithm = match one.algorithm {
        0 => "modulo_n",
        1 => "hash_threshold",
        2 => "hrw",
        3 => "iter_hash",
        _ => "<unknown>",
    };
    format!(
        "multipath({},{},{algorithm},{},{},{})",
        hash_fields(one.fields),
        one.basis,
        u32::from(one.max_link) + 1,
        one.argument,
        part(&one.destination),
    )
}

fn bundle(one: &Bundle, destination: Option<&Subfield>) -> String {
    let algorithm = match one.algorithm {
        0 => "active_backup",
        1 => "hrw",
        _ => "<unknown>",
    };
    let members: Vec<String> = one.members.iter().map(PortNo::to_string).collect();
    let destination = destination.map_or_else(String::new, |destination| format!("{},", part(destination)));
    format!(
        "{},{},{algorithm},ofport,{destination}members:{}",
        hash_fields(one.fields),
        one.basis,
        members.join(",")
    )
}

/// The reasons of packet-in.
pub(super) const REASONS: [&str; 6] =
    ["no_match", "action", "invalid_ttl", "action_set", "group", "packet_out"];

fn controller(max_len: u16, id: u16, reason: u8, more: &[String]) -> String {
    const ACTION: u8 = 1;
    if reason == ACTION && id == 0 && more.is_empty() {
        return format!("CONTROLLER:{max_len}");
    }
    let mut parts = Vec::new();
    if reason != ACTION {
        let name =
            REASONS.get(usize::from(reason)).map_or_else(|| reason.to_string(), |name| (*name).to_owned());
        parts.push(format!("reason={name}"));
    }
    if max_len != u16::MAX {
        parts.push(format!("max_len={max_len}"));
    }
    if id != 0 {
        parts.push(format!("id={id}"));
    }
    parts.extend_from_slice(more);
    format!("controller({})", parts.join(","))
}

fn controller2(one: &Controller2) -> String {
    let (mut max_len, mut id, mut reason, mut more) = (u16::MAX, 0, 1, Vec::new());
    for property in &one.0 {
        match property {
            ControllerProperty::MaxLen(len) => max_len = len.value,
            ControllerProperty::ControllerId(number) => id = number.value,
            ControllerProperty::Reason(number) => reason = *number,
            ControllerProperty::UserData(data) => more.push(format!("userdata={}", dotted(&data.0))),
            ControllerProperty::Pause(_) => more.push("pause".to_owned()),
            ControllerProperty::MeterId(meter) => more.push(format!("meter_id={meter}")),
            ControllerProperty::Other(other) => more.push(format!("property({})", other.kind)),
        }
    }
    controller(max_len, id, reason, &more)
}

fn learn(one: &Learn, limit: u32, result: Option<&Subfield>) -> String {
    let mut parts = vec![format!("table={}", one.table)];
    let numbers = [
        ("idle_timeout", one.idle_timeout),
        ("hard_timeout", one.hard_timeout),
        ("fin_idle_timeout", one.fin_idle_timeout),
        ("fin_hard_timeout", one.fin_hard_timeout),
    ];
    parts.extend(
        numbers.iter().filter(|(_, value)| *value != 0).map(|(name, value)| format!("{name}={value}")),
    );
    if one.priority != 0x8000 {
        parts.push(format!("priority={}", one.priority));
    }
    let flags =
        [(LearnFlags::SEND_FLOW_REM, "send_flow_rem"), (LearnFlags::DELETE_LEARNED, "delete_learned")];
    parts.extend(
        flags.iter().filter(|(flag, _)| one.flags.contains(*flag)).map(|(_, name)| (*name).to_owned()),
    );
    if one.cookie != 0 {
        parts.push(format!("cookie={:#x}", one.cookie));
    }
    if limit != 0 {
        parts.push(format!("limit={limit}"));
    }
    if let Some(result) = result {
        parts.push(format!("result_dst={}", part_with_bits(result)));
    }
    parts.extend(one.specs.iter().map(learn_spec));
    format!("learn({})", parts.join(","))
}

fn learn_spec(spec: &LearnSpec) -> String {
    let whole = |header: &OxmHeader, offset| Subfield { header: *header, offset, bits: spec.bits };
    let source = match &spec.source {
        LearnSource::Field(header, offset) => Ok(whole(header, *offset)),
        LearnSource::Immediate(value) => {
            Err(value.iter().fold(0u128, |number, byte| number << 8 | u128::from(*byte)))
        }
    };
    match (&spec.destination, source) {
        (LearnDestination::Match(header, offset), Ok(source)) => {
            let destination = whole(header, *offset);
            match source == destination {
                true => part(&destination),
                false => format!("{}={}", part(&destination), part(&source)),
            }
        }
        (LearnDestination::Match(header, offset), Err(value)) => match header.field() {
            Some(field) if *offset == 0 && field.bits == spec.bits => {
                format!("{}={}", field.name, notation(field, value))
            }
            _ => format!("{}={value:#x}", part(&whole(header, *offset))),
        },
        (LearnDestination::Load(header, offset), Ok(source)) => {
            format!("load:{}->{}", part(&source), part(&whole(header, *offset)))
        }
        (LearnDestination::Load(header, offset), Err(value)) => {
            format!("load:{value:#x}->{}", part(&whole(header, *offset)))
        }
        (LearnDestination::Output, Ok(source)) => format!("output:{}", part(&source)),
        (LearnDestination::Output, Err(value)) => format!("output:{value:#x}"),
    }
}

fn sample(action: &Action) -> String {
    let none = PortNo::ANY;
    let id = |number| Observation::Id(number);
    let (probability, collectors, domain, point, port, direction) = match action {
        Action::Sample(s) => {
            (s.probability, s.collectors, id(s.domain), id(s.point), none, SampleDirection::Default)
        }
        Action::Sample2(s) => {
            let one = &s.sample;
            (one.probability, one.collectors, id(one.domain), id(one.point), s.port, SampleDirection::Default)
        }
        Action::Sample3(s) => {
            let one = &s.sample;
            (one.probability, one.collectors, id(one.domain), id(one.point), s.port, s.direction)
        }
        Action::Sample4(s) => (s.probability, s.collectors, s.domain, s.point, s.port, s.direction),
        _ => return String::new(),
    };
    let observation = |one: &Observation| match one {
        Observation::Id(id) => id.to_string(),
        Observation::Field(field) => part(field),
    };
    let mut text = format!(
        "sample(probability={probability},collector_set_id={collectors},obs_domain_id={},obs_point_id={}",
        observation(&domain),
        observation(&point),
    );
    if port != none {
        text.push_str(&format!(",sampling_port={port}"));
    }
    text.push_str(match direction {
        SampleDirection::Default => ")",
        SampleDirection::Ingress => ",ingress)",
        SampleDirection::Egress => ",egress)",
    });
    text
}

fn ct(track: &Track, version: Version) -> String {
    let mut parts = Vec::new();
    if track.flags.contains(CtFlags::COMMIT) {
        parts.push("commit".to_owned());
    }
    if track.flags.contains(CtFlags::FORCE) {
        parts.push("force".to_owned());
    }
    if track.recirculate != 0xff {
        parts.push(format!("table={}", track.recirculate));
    }
    match &track.zone {
        Zone::Field(zone) => parts.push(format!("zone={}", part(zone))),
        Zone::Id(0) => {}
        Zone::Id(zone) => parts.push(format!("zone={zone}")),
    }
    let rest = match track.actions.as_slice() {
        [Action::Nat(first), rest @ ..] => {
            parts.push(nat(first));
            rest
        }
        all => all,
    };
    if !rest.is_empty() {
        parts.push(format!("exec({})", list(rest, version)));
    }
    match track.helper {
        0 => {}
        21 => parts.push("alg=ftp".to_owned()),
        69 => parts.push("alg=tftp".to_owned()),
        port => parts.push(format!("alg={port}")),
    }
    format!("ct({})", parts.join(","))
}

fn nat(one: &Nat) -> String {
    let direction = if one.flags.contains(NatFlags::SRC) {
        "src"
    } else if one.flags.contains(NatFlags::DST) {
        "dst"
    } else {
        return "nat".to_owned();
    };
    let range = &one.range;
    let ports = range.port_min.map(|min| match range.port_max.filter(|max| *max != min) {
        Some(max) => format!(":{min}-{max}"),
        None => format!(":{min}"),
    });
    let addresses = match (range.ipv4_min, range.ipv6_min) {
        (Some(min), _) => Some(match range.ipv4_max.filter(|max| *max != min) {
            Some(max) => format!("{min}-{max}"),
            None => min.to_string(),
        }),
        // Colons within addresses are told from the port's by brackets.
        (_, Some(min)) => {
            let bracket = |address: std::net::Ipv6Addr| match ports {
                Some(_) => format!("[{address}]"),
                None => address.to_string(),
            };
            Some(match range.ipv6_max.filter(|max| *max != min) {
                Some(max) => format!("{}-{}", bracket(min), bracket(max)),
                None => bracket(min),
            })
        }
        _ => None,
    };
    let mut parts = vec![match addresses {
        Some(addresses) => format!("{direction}={addresses}{}", ports.unwrap_or_default()),
        None => direction.to_owned(),
    }];
    let flags = [
        (NatFlags::PERSISTENT, "persistent"),
        (NatFlags::PROTO_HASH, "hash"),
        (NatFlags::PROTO_RANDOM, "random"),
    ];
    parts.extend(
        flags.iter().filter(|(flag, _)| one.flags.contains(*flag)).map(|(_, name)| (*name).to_owned()),
    );
    format!("nat({})", parts.join(","))
}
