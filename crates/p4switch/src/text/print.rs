//! From entities to text.
#![allow(deprecated)] // Older controllers write `controller_metadata`, `watch` and `egress_port`.

use std::fmt::Write;

use p4runtime_proto::v1::{
    Action, ActionProfileAction, CounterData, Entity, FieldMatch, Index, MeterConfig, P4Data, Replica,
    TableEntry, action_profile_action, action_profile_group, entity::Entity as Kind,
    field_match::FieldMatchType, p4_data::Data, packet_replication_engine_entry::Type as Replicated,
    replica::PortKind, table_action,
};
use pipeline::bits::Bits;

use super::names::short;
use super::{KINDS, OPTIONS, number};
use crate::schema::{self, Field, Schema, Table};
use crate::{Program, bytestring};

/// Writes an entity.
pub fn print(program: &Program, entity: &Entity) -> String {
    let schema = program.schema();
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = match &entity.entity {
        None => Ok(()),
        Some(Kind::TableEntry(entry)) => table_entry(&mut text, schema, entry),
        Some(Kind::DirectCounterEntry(direct)) => {
            let entry = direct.table_entry.clone().unwrap_or_default();
            table_entry(&mut text, schema, &TableEntry { counter_data: direct.data, ..entry })
        }
        Some(Kind::DirectMeterEntry(direct)) => {
            let entry = direct.table_entry.clone().unwrap_or_default();
            table_entry(&mut text, schema, &TableEntry { meter_config: direct.config, ..entry })
        }
        Some(kind) => other(&mut text, schema, kind),
    };
    text
}

type Written = std::fmt::Result;

fn table_entry(text: &mut String, schema: &Schema, entry: &TableEntry) -> Written {
    let Some(table) = schema.tables.get(&entry.table_id) else {
        return write!(text, "# unknown table {}", entry.table_id);
    };
    let names = schema.tables.values().map(|table| table.name.as_str());
    text.push_str(&short(&table.name, names, KINDS));
    if entry.is_default_action {
        text.push_str(" default");
    }
    let names = table.fields.iter().map(|field| field.name.as_str());
    for condition in &entry.r#match {
        let Some((_, field)) = schema::field(&table.fields, condition.field_id, 0) else { continue };
        write!(text, " {}=", short(&field.name, names.clone(), OPTIONS))?;
        value(text, field, condition)?;
    }
    if entry.priority != 0 {
        write!(text, " prio={}", entry.priority)?;
    }
    if entry.idle_timeout_ns != 0 {
        write!(text, " idle={}", number::print_time(entry.idle_timeout_ns))?;
    }
    if entry.controller_metadata != 0 {
        write!(text, " cookie={:#x}", entry.controller_metadata)?;
    }
    if !entry.metadata.is_empty() {
        write!(text, " metadata={}", hex(&entry.metadata))?;
    }
    counts(text, entry.counter_data.as_ref())?;
    rates(text, entry.meter_config.as_ref())?;
    if let Some(action) = entry.action.as_ref().and_then(|action| action.r#type.as_ref()) {
        text.push_str(" => ");
        result(text, table, action)?;
    }
    if entry.is_const {
        text.push_str(" # constant");
    }
    if let Some(hit) = &entry.time_since_last_hit {
        write!(text, " # hit {} ago", number::print_time(hit.elapsed_ns))?;
    }
    Ok(())
}

fn value(text: &mut String, field: &Field, condition: &FieldMatch) -> Written {
    let print = |bytes: &[u8]| number::print(bytes, field.width, &field.name);
    match &condition.field_match_type {
        Some(FieldMatchType::Exact(exact)) => text.write_str(&print(&exact.value)),
        Some(FieldMatchType::Optional(optional)) => text.write_str(&print(&optional.value)),
        Some(FieldMatchType::Lpm(lpm)) => write!(text, "{}/{}", print(&lpm.value), lpm.prefix_len),
        Some(FieldMatchType::Ternary(ternary)) => {
            let is_whole = Bits::from_bytes(field.width, &ternary.mask) == Bits::ones(field.width);
            match is_whole {
                true => text.write_str(&print(&ternary.value)),
                false => write!(text, "{}&&&{}", print(&ternary.value), print(&ternary.mask)),
            }
        }
        Some(FieldMatchType::Range(range)) => write!(text, "{}..{}", print(&range.low), print(&range.high)),
        Some(FieldMatchType::Other(_)) | None => text.write_str("*"),
    }
}

fn result(text: &mut String, table: &Table, action: &table_action::Type) -> Written {
    match action {
        table_action::Type::Action(action) => call(text, &table.actions, action),
        table_action::Type::ActionProfileMemberId(id) => write!(text, "member {id}"),
        table_action::Type::ActionProfileGroupId(id) => write!(text, "group {id}"),
        table_action::Type::ActionProfileActionSet(set) => {
            for (i, one) in set.action_profile_actions.iter().enumerate() {
                text.push_str(if i == 0 { "" } else { " | " });
                alternative(text, &table.actions, one)?;
            }
            Ok(())
        }
    }
}

fn alternative(text: &mut String, known: &[schema::Action], one: &ActionProfileAction) -> Written {
    call(text, known, &one.action.clone().unwrap_or_default())?;
    write!(text, " weight={}", one.weight)?;
    match &one.watch_kind {
        None => Ok(()),
        Some(action_profile_action::WatchKind::Watch(port)) => write!(text, " watch={port}"),
        Some(action_profile_action::WatchKind::WatchPort(port)) => {
            write!(text, " watch={}", port_number(port))
        }
    }
}

fn call(text: &mut String, known: &[schema::Action], action: &Action) -> Written {
    let Some(schema) = known.iter().find(|known| known.id == action.action_id) else {
        return write!(text, "?{}()", action.action_id);
    };
    text.push_str(&short(
        &schema.name,
        known.iter().map(|action| action.name.as_str()),
        &["member", "group"],
    ));
    text.push('(');
    for (i, given) in action.params.iter().enumerate() {
        text.push_str(if i == 0 { "" } else { ", " });
        let Some(param) = schema.params.iter().find(|param| param.id == given.param_id) else { continue };
        let names = schema.params.iter().map(|param| param.name.as_str());
        let value = match param.ty {
            pipeline::ir::Type::Int(_) => bytestring::signed(&given.value, param.width).map(|v| v.to_bytes()),
            _ => Ok(given.value.clone()),
        };
        let value = number::print(&value.unwrap_or_default(), param.width, &param.name);
        write!(text, "{}={value}", short(&param.name, names, &[]))?;
    }
    text.push(')');
    Ok(())
}

fn counts(text: &mut String, data: Option<&CounterData>) -> Written {
    match data {
        Some(data) => write!(text, " packets={} bytes={}", data.packet_count, data.byte_count),
        None => Ok(()),
    }
}

fn rates(text: &mut String, config: Option<&MeterConfig>) -> Written {
    let Some(config) = config else { return Ok(()) };
    let MeterConfig { cir, cburst, pir, pburst, eburst } = config;
    write!(text, " cir={cir} cburst={cburst} pir={pir} pburst={pburst}")?;
    match eburst {
        0 => Ok(()),
        _ => write!(text, " eburst={eburst}"),
    }
}

fn other(text: &mut String, schema: &Schema, kind: &Kind) -> Written {
    match kind {
        Kind::CounterEntry(entry) => {
            let names = schema.counters.values().map(|counter| counter.name.as_str());
            let name = schema.counters.get(&entry.counter_id).map_or("?", |counter| &counter.name);
            write!(text, "counter {}{}", short(name, names, &[]), index(entry.index.as_ref()))?;
            counts(text, entry.data.as_ref())
        }
        Kind::MeterEntry(entry) => {
            let names = schema.meters.values().map(|meter| meter.name.as_str());
            let name = schema.meters.get(&entry.meter_id).map_or("?", |meter| &meter.name);
            write!(text, "meter {}{}", short(name, names, &[]), index(entry.index.as_ref()))?;
            rates(text, entry.config.as_ref())
        }
        Kind::RegisterEntry(entry) => {
            let names = schema.registers.values().map(|register| register.name.as_str());
            let Some(register) = schema.registers.get(&entry.register_id) else { return Ok(()) };
            let name = short(&register.name, names, &[]);
            write!(text, "register {name}{}", index(entry.index.as_ref()))?;
            match &entry.data {
                Some(data) => write!(text, " value={}", data_text(data, register)),
                None => Ok(()),
            }
        }
        Kind::PacketReplicationEngineEntry(entry) => match &entry.r#type {
            Some(Replicated::MulticastGroupEntry(group)) => {
                write!(text, "multicast {} ports={}", group.multicast_group_id, ports(&group.replicas))?;
                match group.metadata.is_empty() {
                    true => Ok(()),
                    false => write!(text, " metadata={}", hex(&group.metadata)),
                }
            }
            Some(Replicated::CloneSessionEntry(session)) => {
                write!(text, "clone {} ports={}", session.session_id, ports(&session.replicas))?;
                if session.class_of_service != 0 {
                    write!(text, " class={}", session.class_of_service)?;
                }
                match session.packet_length_bytes {
                    0 => Ok(()),
                    length => write!(text, " length={length}"),
                }
            }
            None => Ok(()),
        },
        Kind::ActionProfileMember(member) => {
            let Some(profile) = schema.profiles.get(&member.action_profile_id) else { return Ok(()) };
            let names = schema.profiles.values().map(|profile| profile.name.as_str());
            write!(text, "member {} {}", short(&profile.name, names, &[]), member.member_id)?;
            match &member.action {
                Some(action) => {
                    text.push_str(" => ");
                    call(text, &profile.actions, action)
                }
                None => Ok(()),
            }
        }
        Kind::ActionProfileGroup(group) => {
            let Some(profile) = schema.profiles.get(&group.action_profile_id) else { return Ok(()) };
            let names = schema.profiles.values().map(|profile| profile.name.as_str());
            write!(text, "group {} {} members=", short(&profile.name, names, &[]), group.group_id)?;
            let member =
                |member: &action_profile_group::Member| format!("{}*{}", member.member_id, member.weight);
            text.push_str(&group.members.iter().map(member).collect::<Vec<_>>().join(","));
            match group.max_size {
                0 => Ok(()),
                size => write!(text, " max_size={size}"),
            }
        }
        Kind::DigestEntry(entry) => {
            let name = schema.digests.get(&entry.digest_id).map_or("?", |digest| &digest.name);
            write!(text, "digest {name}")?;
            match &entry.config {
                Some(config) => write!(
                    text,
                    " timeout={} list={} ack={}",
                    number::print_time(config.max_timeout_ns),
                    config.max_list_size,
                    number::print_time(config.ack_timeout_ns)
                ),
                None => Ok(()),
            }
        }
        Kind::ValueSetEntry(entry) => {
            let Some(set) = schema.value_sets.get(&entry.value_set_id) else { return Ok(()) };
            write!(text, "value_set {}", set.name)?;
            for member in &entry.members {
                text.push_str(" (");
                for (i, condition) in member.r#match.iter().enumerate() {
                    text.push_str(if i == 0 { "" } else { ", " });
                    if let Some((_, field)) = schema::field(&set.fields, condition.field_id, i) {
                        value(text, field, condition)?;
                    }
                }
                text.push(')');
            }
            Ok(())
        }
        Kind::TableEntry(_)
        | Kind::DirectCounterEntry(_)
        | Kind::DirectMeterEntry(_)
        | Kind::ExternEntry(_) => Ok(()),
    }
}

fn index(index: Option<&Index>) -> String {
    index.map_or_else(String::new, |index| format!("[{}]", index.index))
}

fn ports(replicas: &[Replica]) -> String {
    let one = |replica: &Replica| {
        let port = match &replica.port_kind {
            Some(PortKind::Port(port)) => port_number(port),
            Some(PortKind::EgressPort(port)) => *port,
            None => 0,
        };
        match replica.instance {
            0 => port.to_string(),
            instance => format!("{port}/{instance}"),
        }
    };
    replicas.iter().map(one).collect::<Vec<_>>().join(",")
}

fn port_number(bytes: &[u8]) -> u32 {
    bytestring::small(bytes).unwrap_or(u32::MAX)
}

fn data_text(data: &P4Data, register: &schema::Register) -> String {
    match &data.data {
        Some(Data::Bitstring(bytes)) if register.shape == crate::data::Shape::Signed => {
            let value = bytestring::signed(bytes, register.ty.width()).map(|value| value.to_bytes());
            number::print(&value.unwrap_or_default(), register.ty.width(), &register.name)
        }
        Some(Data::Bitstring(bytes) | Data::EnumValue(bytes)) => {
            number::print(bytes, register.ty.width(), &register.name)
        }
        Some(Data::Bool(value)) => value.to_string(),
        Some(Data::Enum(name) | Data::Error(name)) => name.clone(),
        _ => "?".to_owned(),
    }
}

fn hex(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("0x{digits}")
}
