//! Actions and instructions, read from text.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::ParseError;
use super::actions::REASONS;
use super::parse::{arguments, dotted, number_or_zero, split};
use super::parse_fields::{number, oxm, port, small, value};
use crate::action::{
    Action, Bundle, BundleLoad, CheckPacketLarger, Conjunction, Controller, Controller2, ControllerProperty,
    CtFlags, DecTtlIds, Decap, DeleteField, Encap, EncapProperty, Enqueue, EtherAddress, FinTimeout,
    HashFields, Learn, Learn2, LearnDestination, LearnFlags, LearnSource, LearnSpec, Multipath, Nat,
    NatFlags, Nest, Note, Output, OutputReg, OutputTrunc, RegLoad, RegLoad2, RegMove, Resubmit,
    ResubmitTable, Sample, Sample2, Sample3, SampleDirection, SetField, Stack, Track, WriteMetadata, Zone,
};
use crate::field::{Field, FieldId};
use crate::instruction::{Instruction, Instructions};
use crate::oxm::{Oxm, OxmHeader, Subfield};
use crate::property::{Bytes, Padded16, Present};
use crate::version::{Mac, PortNo, Version};
use crate::wire::MAX_DEPTH;

type Parsed<T> = Result<T, ParseError>;

/// Reads a flow's actions and instructions, separated by commas; `drop` stands for none.
///
/// # Errors
/// The text is not a list of actions, or the version lacks one of them.
pub fn parse_instructions(text: &str, version: Version) -> Result<Instructions, ParseError> {
    if nesting(text) > MAX_DEPTH {
        return Err(ParseError::new("list of actions that nests less", text.get(..64).unwrap_or_default()));
    }
    let mut apply = Vec::new();
    let mut others = Vec::new();
    for item in split(text, &[',']) {
        let (name, argument) = name_and_argument(item);
        let modern = version > Version::V1_0;
        match name {
            "drop" if argument.is_empty() => {}
            "goto_table" if modern => others.push(Instruction::GotoTable(small(argument)?)),
            "clear_actions" if modern => others.push(Instruction::ClearActions),
            "apply_actions" if modern => apply.extend(list(argument, version)?),
            "write_actions" if modern => others.push(Instruction::WriteActions(list(argument, version)?)),
            "meter" if modern && version < Version::V1_5 => {
                others.insert(0, Instruction::Meter(small(argument)?))
            }
            "write_metadata" if modern => {
                let (value, mask) = metadata(argument)?;
                others.push(Instruction::WriteMetadata { value, mask });
            }
            _ => apply.push(action(item, version)?),
        }
    }
    let mut instructions = Instructions::apply(apply);
    instructions.0.extend(others);
    // A meter goes before the actions, as Open vSwitch sends it.
    instructions.0.sort_by_key(|instruction| !matches!(instruction, Instruction::Meter(_)));
    Ok(instructions)
}

/// The deepest nesting of parentheses.
fn nesting(text: &str) -> u32 {
    let (mut depth, mut deepest) = (0u32, 0);
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// Reads a list of actions, as the argument of `ovs-ofctl packet-out`.
///
/// # Errors
/// The text is not a list of actions, or the version lacks one of them.
pub fn parse_actions(text: &str, version: Version) -> Result<Vec<Action>, ParseError> {
    match nesting(text) > MAX_DEPTH {
        true => Err(ParseError::new("list of actions that nests less", text.get(..64).unwrap_or_default())),
        false => list(text, version),
    }
}

/// A list of actions.
fn list(text: &str, version: Version) -> Parsed<Vec<Action>> {
    split(text, &[',']).filter(|item| *item != "drop").map(|item| action(item, version)).collect()
}

/// An action's name and its argument, behind a colon or within parentheses.
fn name_and_argument(item: &str) -> (&str, &str) {
    match item.find([':', '(']) {
        None => (item, ""),
        Some(at) => {
            let (name, rest) = item.split_at(at);
            let inner = rest.get(1..).unwrap_or_default();
            match rest.starts_with('(') {
                true => (name, inner.strip_suffix(')').unwrap_or(inner)),
                false => (name, inner),
            }
        }
    }
}

fn metadata(text: &str) -> Parsed<(u64, u64)> {
    match text.split_once('/') {
        Some((value, mask)) => Ok((small(value)?, small(mask)?)),
        None => Ok((small(text)?, u64::MAX)),
    }
}

/// The field with a name of a class, such as `NXM_NX_REG0`, or of its own.
fn field(name: &str) -> Parsed<&'static Field> {
    Field::with_any_name(name).ok_or_else(|| ParseError::new("field", name))
}

/// The header of a field in its oldest class that fits into 32 bits, as Open vSwitch sends it in parts of fields.
fn header(field: &Field) -> OxmHeader {
    let oldest = field.numbers.iter().find(|number| number.id.experimenter == 0).or(field.numbers.first());
    let id = oldest.map(|number| number.id).unwrap_or_default();
    OxmHeader { id, masked: false, length: field.bytes as u8 }
}

/// Part of a field: `NAME[]`, `NAME[3]` or `NAME[0..15]`.
fn part(text: &str) -> Parsed<Subfield> {
    let wrong = || ParseError::new("part of a field", text);
    let (name, range) = text.split_once('[').ok_or_else(wrong)?;
    let range = range.strip_suffix(']').ok_or_else(wrong)?;
    let field = field(name)?;
    let (offset, bits) = match range.split_once("..") {
        _ if range.is_empty() => (0, field.bits),
        None => (small(range)?, 1),
        Some((first, last)) => {
            let (first, last): (u16, u16) = (small(first)?, small(last)?);
            (first, last.checked_sub(first).and_then(|bits| bits.checked_add(1)).ok_or_else(wrong)?)
        }
    };
    Ok(Subfield { header: header(field), offset, bits })
}

fn set_field(text: &str, version: Version) -> Parsed<Oxm> {
    let wrong = || ParseError::new("value->field", text);
    let (value_text, name) = text.rsplit_once("->").ok_or_else(wrong)?;
    let field = field(name)?;
    let (number, mask) = value(field, value_text)?;
    // Setting a VLAN's id sets the bit that says that there is one.
    let (number, mask) = if field.id == FieldId::VlanVid && !value_text.contains('/') {
        (number | 0x1000, 0x1fff)
    } else {
        (number, mask)
    };
    let mut tlv = oxm(field.id, version, number, mask);
    if field.id == FieldId::VlanVid && mask == 0x1fff {
        tlv.mask = None;
    }
    Ok(tlv)
}

fn output(text: &str) -> Parsed<Action> {
    if text.contains('[') {
        return Ok(Action::OutputReg(OutputReg { source: part(text)?, max_len: u16::MAX }));
    }
    if text.contains('=') {
        let (mut to, mut max_len) = (PortNo::ANY, 0);
        for (name, value) in arguments(text) {
            match name {
                "port" => to = port(value)?,
                "max_len" => max_len = small(value)?,
                _ => return Err(ParseError::new("port or max_len", name)),
            }
        }
        return Ok(Action::OutputTrunc(OutputTrunc { port: to, max_len }));
    }
    to_port(text)
}

fn to_port(text: &str) -> Parsed<Action> {
    let port = port(text)?;
    let max_len = if port == PortNo::CONTROLLER { u16::MAX } else { 0 };
    Ok(Action::Output(Output { port, max_len }))
}

fn action(item: &str, version: Version) -> Parsed<Action> {
    let (name, argument) = name_and_argument(item);
    let mac = |text| -> Parsed<EtherAddress> {
        let (address, _) = value(FieldId::EthSrc.field(), text)?;
        let [.., a, b, c, d, e, f] = address.to_be_bytes();
        Ok(EtherAddress(Mac([a, b, c, d, e, f])))
    };
    let ipv4 = |text| value(FieldId::IpSrc.field(), text).map(|(address, _)| address as u32);
    let parsed = match name {
        "output" => output(argument)?,
        "enqueue" => {
            let (to, queue) =
                argument.split_once(':').ok_or_else(|| ParseError::new("port:queue", argument))?;
            Action::Enqueue(Enqueue { port: port(to)?, queue: small(queue)? })
        }
        "group" => Action::Group(small(argument)?),
        "meter" => Action::Meter(small(argument)?),
        "set_queue" => Action::SetQueue(small(argument)?),
        "pop_queue" => Action::PopQueue,
        "mod_vlan_vid" | "set_vlan_vid" => Action::SetVlanVid(small(argument)?),
        "mod_vlan_pcp" | "set_vlan_pcp" => Action::SetVlanPcp(small(argument)?),
        "strip_vlan" | "pop_vlan" => Action::PopVlan,
        "push_vlan" => Action::PushVlan(small(argument)?),
        "mod_dl_src" => Action::SetDlSrc(mac(argument)?),
        "mod_dl_dst" => Action::SetDlDst(mac(argument)?),
        "mod_nw_src" => Action::SetNwSrc(ipv4(argument)?),
        "mod_nw_dst" => Action::SetNwDst(ipv4(argument)?),
        "mod_nw_tos" => Action::SetNwTos(small(argument)?),
        "mod_nw_ecn" => Action::SetNwEcn(small(argument)?),
        "mod_nw_ttl" => Action::SetNwTtl(small(argument)?),
        "dec_ttl" if argument.is_empty() => Action::DecNwTtl,
        "dec_ttl" => Action::DecTtlIds(DecTtlIds(split(argument, &[',']).map(small).collect::<Parsed<_>>()?)),
        "mod_tp_src" => Action::SetTpSrc(small(argument)?),
        "mod_tp_dst" => Action::SetTpDst(small(argument)?),
        "copy_ttl_out" => Action::CopyTtlOut,
        "copy_ttl_in" => Action::CopyTtlIn,
        "set_mpls_label" => Action::SetMplsLabel(small(argument)?),
        "set_mpls_tc" => Action::SetMplsTc(small(argument)?),
        "set_mpls_ttl" => Action::SetMplsTtl(small(argument)?),
        "dec_mpls_ttl" => Action::DecMplsTtl,
        "push_mpls" => Action::PushMpls(small(argument)?),
        "pop_mpls" => Action::PopMpls(small(argument)?),
        "push_pbb" => Action::PushPbb(small(argument)?),
        "pop_pbb" => Action::PopPbb,
        "set_field" => match set_field(argument, version)? {
            // The standard's action has no mask before version 1.5, and does not exist before 1.2.
            oxm if version < Version::V1_2 || version < Version::V1_5 && oxm.mask.is_some() => {
                Action::RegLoad2(RegLoad2(oxm))
            }
            oxm => Action::SetField(SetField(oxm)),
        },
        "load" => {
            let (value, to) = arrow(argument)?;
            Action::RegLoad(RegLoad { destination: part(to)?, value: small(value)? })
        }
        "move" => {
            let (from, to) = arrow(argument)?;
            let (source, destination) = (part(from)?, part(to)?);
            match version {
                Version::V1_5 => Action::CopyField(crate::action::CopyField { source, destination }),
                _ => Action::RegMove(RegMove { source, destination }),
            }
        }
        "resubmit" => resubmit(item, argument)?,
        "set_tunnel" => Action::SetTunnel(small(argument)?),
        "set_tunnel64" => Action::SetTunnel64(small(argument)?),
        "note" => {
            let mut note = dotted(argument)?;
            note.resize((note.len() + 10).next_multiple_of(8) - 10, 0);
            Action::Note(Note(note))
        }
        "multipath" => multipath(argument)?,
        "bundle" => Action::Bundle(bundle(argument)?.0),
        "bundle_load" => {
            let (bundle, destination) = bundle(argument)?;
            let destination = part(destination)?;
            Action::BundleLoad(BundleLoad { bundle, destination })
        }
        "learn" => learn(argument)?,
        "exit" => Action::Exit,
        "fin_timeout" => {
            let mut timeouts = FinTimeout::default();
            for (name, value) in arguments(argument) {
                match name {
                    "idle_timeout" => timeouts.idle = small(value)?,
                    "hard_timeout" => timeouts.hard = small(value)?,
                    _ => return Err(ParseError::new("timeout", name)),
                }
            }
            Action::FinTimeout(timeouts)
        }
        "CONTROLLER" | "controller" => controller(argument)?,
        "write_metadata" => {
            let (value, mask) = metadata(argument)?;
            Action::WriteMetadata(WriteMetadata { value, mask })
        }
        "push" => Action::StackPush(Stack(part(argument)?)),
        "pop" => Action::StackPop(Stack(part(argument)?)),
        "sample" => sample(argument)?,
        "conjunction" => conjunction(argument)?,
        "ct" => ct(argument, version)?,
        "nat" => Action::Nat(nat(argument)?),
        "clone" => Action::Clone(Nest(list(argument, version)?)),
        "ct_clear" => Action::CtClear,
        "encap" => encap(argument)?,
        "decap" if argument.is_empty() => Action::Decap(Decap(0xfffe)),
        "dec_nsh_ttl" => Action::DecNshTtl,
        "check_pkt_larger" => {
            let wrong = || ParseError::new("check_pkt_larger(length)->bit", item);
            let (limit, to) = argument.split_once(")->").ok_or_else(wrong)?;
            Action::CheckPacketLarger(CheckPacketLarger { limit: small(limit)?, destination: part(to)? })
        }
        "delete_field" => Action::DeleteField(DeleteField(header(field(argument)?))),
        _ if argument.is_empty() => to_port(name).map_err(|_| ParseError::new("action", item))?,
        _ => return Err(ParseError::new("action", item)),
    };
    match parsed.exists_in(version) {
        true => Ok(parsed),
        false => Err(ParseError::new("action of this version", item)),
    }
}

fn arrow(text: &str) -> Parsed<(&str, &str)> {
    text.rsplit_once("->").ok_or_else(|| ParseError::new("source->destination", text))
}

fn resubmit(item: &str, text: &str) -> Parsed<Action> {
    if item.starts_with("resubmit:") {
        return Ok(Action::Resubmit(Resubmit(port(text)?)));
    }
    let mut words = text.split(',');
    let (to, table, ct) = (words.next().unwrap_or_default(), words.next().unwrap_or_default(), words.next());
    let in_port = if to.is_empty() { PortNo::IN_PORT } else { port(to)? };
    let table = if table.is_empty() { 0xff } else { small(table)? };
    let one = ResubmitTable { in_port, table };
    match ct {
        Some("ct") => Ok(Action::ResubmitTableCt(one)),
        None => Ok(Action::ResubmitTable(one)),
        Some(other) => Err(ParseError::new("ct", other)),
    }
}

fn hash_fields(text: &str) -> Parsed<HashFields> {
    let all = [
        ("eth_src", HashFields::EthSrc),
        ("symmetric_l4", HashFields::SymmetricL4),
        ("symmetric_l3l4", HashFields::SymmetricL3L4),
        ("symmetric_l3l4+udp", HashFields::SymmetricL3L4Udp),
        ("nw_src", HashFields::NwSrc),
        ("nw_dst", HashFields::NwDst),
        ("symmetric_l3", HashFields::SymmetricL3),
    ];
    let found = all.iter().find(|(name, _)| *name == text);
    found.map(|(_, fields)| *fields).ok_or_else(|| ParseError::new("set of fields", text))
}

/// The number of a name in a list.
fn position(names: &[&str], text: &str) -> Parsed<u16> {
    let found = names.iter().position(|name| *name == text);
    found.map(|at| at as u16).ok_or_else(|| ParseError::new("algorithm", text))
}

fn multipath(text: &str) -> Parsed<Action> {
    let words: Vec<&str> = split(text, &[',']).collect();
    let [fields, basis, algorithm, links, argument, destination] = words.as_slice() else {
        return Err(ParseError::new("multipath(fields,basis,algorithm,links,argument,destination)", text));
    };
    let links: u16 = small(links)?;
    Ok(Action::Multipath(Multipath {
        fields: hash_fields(fields)?,
        basis: small(basis)?,
        algorithm: position(&["modulo_n", "hash_threshold", "hrw", "iter_hash"], algorithm)?,
        max_link: links.checked_sub(1).ok_or_else(|| ParseError::new("number of links", text))?,
        argument: small(argument)?,
        destination: part(destination)?,
    }))
}

/// A bundle, and the text of where `bundle_load` stores the port.
fn bundle(text: &str) -> Parsed<(Bundle, &str)> {
    let wrong = || ParseError::new("bundle(fields,basis,algorithm,ofport,members:…)", text);
    let (head, members) = text.split_once("members:").ok_or_else(wrong)?;
    let words: Vec<&str> = split(head, &[',']).collect();
    let [fields, basis, algorithm, _, destination @ ..] = words.as_slice() else { return Err(wrong()) };
    let bundle = Bundle {
        fields: hash_fields(fields)?,
        basis: small(basis)?,
        algorithm: position(&["active_backup", "hrw"], algorithm)?,
        members: split(members, &[',']).map(port).collect::<Parsed<_>>()?,
    };
    Ok((bundle, destination.first().copied().unwrap_or_default()))
}

fn controller(text: &str) -> Parsed<Action> {
    const ACTION: u8 = 1;
    if text.is_empty() || text.chars().all(|c| c.is_ascii_digit()) {
        let max_len = if text.is_empty() { u16::MAX } else { small(text)? };
        return Ok(Action::Output(Output { port: PortNo::CONTROLLER, max_len }));
    }
    let mut plain = Controller { max_len: u16::MAX, controller_id: 0, reason: ACTION };
    let mut more = Vec::new();
    for (name, value) in arguments(text) {
        match name {
            "max_len" => plain.max_len = small(value)?,
            "id" => plain.controller_id = small(value)?,
            "reason" => match REASONS.iter().position(|reason| *reason == value) {
                Some(reason) => plain.reason = reason as u8,
                None => plain.reason = small(value)?,
            },
            "userdata" => more.push(ControllerProperty::UserData(Bytes(dotted(value)?))),
            "pause" => more.push(ControllerProperty::Pause(Present)),
            "meter_id" => more.push(ControllerProperty::MeterId(small(value)?)),
            _ => return Err(ParseError::new("option of controller", name)),
        }
    }
    if more.is_empty() {
        return Ok(Action::Controller(plain));
    }
    let mut properties = Vec::new();
    if plain.max_len != u16::MAX {
        properties.push(ControllerProperty::MaxLen(Padded16::new(plain.max_len)));
    }
    if plain.controller_id != 0 {
        properties.push(ControllerProperty::ControllerId(Padded16::new(plain.controller_id)));
    }
    if plain.reason != ACTION {
        properties.push(ControllerProperty::Reason(plain.reason));
    }
    properties.append(&mut more);
    Ok(Action::Controller2(Controller2(properties)))
}

fn learn(text: &str) -> Parsed<Action> {
    let mut learn = Learn { priority: 0x8000, table: 1, ..Learn::default() };
    let (mut limit, mut result) = (0, None);
    for item in split(text, &[',']) {
        let (name, value) = item.split_once('=').unwrap_or((item, ""));
        match name {
            "table" => learn.table = small(value)?,
            "priority" => learn.priority = small(value)?,
            "idle_timeout" => learn.idle_timeout = small(value)?,
            "hard_timeout" => learn.hard_timeout = small(value)?,
            "fin_idle_timeout" => learn.fin_idle_timeout = small(value)?,
            "fin_hard_timeout" => learn.fin_hard_timeout = small(value)?,
            "cookie" => learn.cookie = small(value)?,
            "send_flow_rem" => learn.flags |= LearnFlags::SEND_FLOW_REM,
            "delete_learned" => learn.flags |= LearnFlags::DELETE_LEARNED,
            "limit" => limit = small(value)?,
            "result_dst" => {
                learn.flags |= LearnFlags::WRITE_RESULT;
                result = Some(part(value)?);
            }
            _ => learn.specs.push(learn_spec(item)?),
        }
    }
    match result {
        None if limit == 0 => Ok(Action::Learn(learn)),
        result => Ok(Action::Learn2(Learn2 { learn, limit, result: result.unwrap_or_default() })),
    }
}

/// A value as the low bits of 16-bit words.
fn immediate(number: u128, bits: u16) -> LearnSource {
    let len = usize::from(bits).div_ceil(16) * 2;
    let bytes = number.to_be_bytes();
    let mut value = vec![0; len.saturating_sub(bytes.len())];
    value.extend_from_slice(bytes.get(bytes.len().saturating_sub(len)..).unwrap_or_default());
    LearnSource::Immediate(value)
}

fn learn_spec(item: &str) -> Parsed<LearnSpec> {
    let from = |source: Subfield| LearnSource::Field(source.header, source.offset);
    if let Some(text) = item.strip_prefix("output:") {
        let source = part(text)?;
        return Ok(LearnSpec {
            bits: source.bits,
            source: from(source),
            destination: LearnDestination::Output,
        });
    }
    if let Some(text) = item.strip_prefix("load:") {
        let (source, to) = arrow(text)?;
        let to = part(to)?;
        let source =
            if source.contains('[') { from(part(source)?) } else { immediate(number(source)?, to.bits) };
        return Ok(LearnSpec {
            bits: to.bits,
            source,
            destination: LearnDestination::Load(to.header, to.offset),
        });
    }
    let (to, source) = match item.split_once('=') {
        None => {
            let both = part(item)?;
            let destination = LearnDestination::Match(both.header, both.offset);
            return Ok(LearnSpec { bits: both.bits, source: from(both), destination });
        }
        Some(sides) => sides,
    };
    let (to, source) = if to.contains('[') {
        let to = part(to)?;
        let source =
            if source.contains('[') { from(part(source)?) } else { immediate(number(source)?, to.bits) };
        (to, source)
    } else {
        let field = field(to)?;
        let (number, _) = value(field, source)?;
        (Subfield { header: header(field), offset: 0, bits: field.bits }, immediate(number, field.bits))
    };
    Ok(LearnSpec { bits: to.bits, source, destination: LearnDestination::Match(to.header, to.offset) })
}

fn sample(text: &str) -> Parsed<Action> {
    let mut sample = Sample::default();
    let (mut to, mut direction) = (None, SampleDirection::Default);
    for (name, value) in arguments(text) {
        match name {
            "probability" => sample.probability = small(value)?,
            "collector_set_id" => sample.collectors = small(value)?,
            "obs_domain_id" => sample.domain = small(value)?,
            "obs_point_id" => sample.point = small(value)?,
            "sampling_port" => to = Some(port(value)?),
            "ingress" => direction = SampleDirection::Ingress,
            "egress" => direction = SampleDirection::Egress,
            _ => return Err(ParseError::new("option of sample", name)),
        }
    }
    Ok(match (to, direction) {
        (None, SampleDirection::Default) => Action::Sample(sample),
        (Some(port), SampleDirection::Default) => Action::Sample2(Sample2 { sample, port }),
        (port, direction) => {
            Action::Sample3(Sample3 { sample, port: port.unwrap_or(PortNo::ANY), direction })
        }
    })
}

fn conjunction(text: &str) -> Parsed<Action> {
    let wrong = || ParseError::new("conjunction(id,clause/clauses)", text);
    let (id, clause) = text.split_once(',').ok_or_else(wrong)?;
    let (clause, clauses) = clause.trim().split_once('/').ok_or_else(wrong)?;
    let clause: u8 = small(clause)?;
    Ok(Action::Conjunction(Conjunction {
        id: small(id)?,
        clause: clause.checked_sub(1).ok_or_else(wrong)?,
        clauses: small(clauses)?,
    }))
}

fn ct(text: &str, version: Version) -> Parsed<Action> {
    let mut track = Track::default();
    for item in split(text, &[',']) {
        let (name, value) = item.split_once('=').unwrap_or((item, ""));
        match name {
            "commit" => track.flags |= CtFlags::COMMIT,
            "force" => track.flags |= CtFlags::FORCE,
            "table" => track.recirculate = small(value)?,
            "zone" if value.contains('[') => track.zone = Zone::Field(part(value)?),
            "zone" => track.zone = Zone::Id(small(value)?),
            "alg" => {
                track.helper = match value {
                    "ftp" => 21,
                    "tftp" => 69,
                    _ => small(value)?,
                }
            }
            "nat" => track.actions.insert(0, Action::Nat(Nat::default())),
            _ if item.starts_with("nat(") => {
                track.actions.insert(0, Action::Nat(nat(name_and_argument(item).1)?))
            }
            _ if item.starts_with("exec(") => track.actions.extend(list(name_and_argument(item).1, version)?),
            _ => return Err(ParseError::new("option of ct", item)),
        }
    }
    Ok(Action::Track(track))
}

fn nat(text: &str) -> Parsed<Nat> {
    let mut nat = Nat::default();
    for (name, value) in arguments(text) {
        match name {
            "src" => nat.flags |= NatFlags::SRC,
            "dst" => nat.flags |= NatFlags::DST,
            "persistent" => nat.flags |= NatFlags::PERSISTENT,
            "hash" => nat.flags |= NatFlags::PROTO_HASH,
            "random" => nat.flags |= NatFlags::PROTO_RANDOM,
            _ => return Err(ParseError::new("option of nat", name)),
        }
        if !value.is_empty() {
            nat_range(&mut nat, value)?;
        }
    }
    Ok(nat)
}

/// Addresses, and ports behind them: `a-b:1-2`, with brackets around IPv6 addresses if there are ports.
fn nat_range(nat: &mut Nat, text: &str) -> Parsed<()> {
    let wrong = || ParseError::new("range of addresses", text);
    let ipv6 = text.matches(':').count() > 1;
    let (addresses, ports) = match (ipv6, text.rfind("]:")) {
        (true, Some(at)) => (text.get(..=at).unwrap_or_default(), text.get(at + 2..)),
        (true, None) => (text, None),
        (false, _) => {
            text.split_once(':').map_or((text, None), |(addresses, ports)| (addresses, Some(ports)))
        }
    };
    let (first, last) =
        addresses.split_once('-').map_or((addresses, None), |(first, last)| (first, Some(last)));
    if ipv6 {
        let one = |text: &str| text.trim_matches(['[', ']']).parse::<Ipv6Addr>().map_err(|_| wrong());
        nat.range.ipv6_min = Some(one(first)?);
        nat.range.ipv6_max = last.map(one).transpose()?;
    } else {
        let one = |text: &str| text.parse::<Ipv4Addr>().map_err(|_| wrong());
        nat.range.ipv4_min = Some(one(first)?);
        nat.range.ipv4_max = last.map(one).transpose()?;
    }
    if let Some(ports) = ports {
        let (first, last) = ports.split_once('-').map_or((ports, ""), |sides| sides);
        nat.range.port_min = Some(small(first)?);
        nat.range.port_max = Some(number_or_zero(last)?).filter(|last| *last != 0);
    }
    Ok(())
}

fn encap(text: &str) -> Parsed<Action> {
    let (header, properties) = name_and_argument(text);
    let packet_type = match header {
        "ethernet" => 0,
        "nsh" => 0x0001_894f,
        "mpls" => 0x0001_8847,
        "mpls_mc" => 0x0001_8848,
        _ => return Err(ParseError::new("header", header)),
    };
    let mut encap = Encap { packet_type, ..Encap::default() };
    for (name, value) in arguments(properties) {
        match name {
            "md_type" => {
                encap.properties.push(EncapProperty { class: 4, kind: 1, body: vec![small(value)?] })
            }
            _ => return Err(ParseError::new("property of a header", name)),
        }
    }
    Ok(Action::Encap(encap))
}
