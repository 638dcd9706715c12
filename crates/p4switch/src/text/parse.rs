//! From text to entities.
#![allow(deprecated)] // `controller_metadata` is the cookie that people set.

use p4runtime_proto::v1::{
    Action, ActionProfileAction, ActionProfileActionSet, ActionProfileMember, CloneSessionEntry, CounterData,
    CounterEntry, Entity, FieldMatch, Index, MeterConfig, MeterEntry, MulticastGroupEntry,
    PacketReplicationEngineEntry, RegisterEntry, Replica, TableAction, TableEntry, action,
    action_profile_action::WatchKind, entity::Entity as Kind, field_match, field_match::FieldMatchType,
    packet_replication_engine_entry::Type as Replicated, replica::PortKind, table_action,
};
use pipeline::bits::Bits;
use pipeline::ir::MatchKind;

use super::names::find;
use super::words::{split_once, unquoted, words};
use super::{KINDS, OPTIONS, number};
use crate::schema::{self, Field, Schema, Table};
use crate::{Program, bytestring};

/// Reads an entity. What is not given is left out, so that the text of a key alone names an entry to delete or read.
///
/// # Errors
/// What is wrong, and what was expected.
pub fn parse(program: &Program, text: &str) -> Result<Entity, String> {
    let schema = program.schema();
    let words = words(text)?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let entity = match &words[..] {
        [] => return Err("nothing is given (expected TABLE KEY=VALUE … => ACTION(…))".to_owned()),
        [kind, rest @ ..] if KINDS.contains(kind) => other(schema, kind, rest)?,
        [name, rest @ ..] => {
            let tables = schema.table_order.iter().filter_map(|id| schema.tables.get(id));
            let table = find("table", unquoted(name), tables.map(|table| (table.name.as_str(), table)))?;
            Kind::TableEntry(
                entry(schema, table, rest).map_err(|error| format!("table {}: {error}", table.name))?,
            )
        }
    };
    Ok(Entity { entity: Some(entity) })
}

fn entry(schema: &Schema, table: &Table, words: &[&str]) -> Result<TableEntry, String> {
    let mut entry = TableEntry { table_id: table.id, ..TableEntry::default() };
    let arrow = words.iter().position(|word| *word == "=>");
    let (keys, result) = words.split_at(arrow.unwrap_or(words.len()));
    for word in keys {
        if *word == "default" {
            entry.is_default_action = true;
            continue;
        }
        let (name, value) = split_once(word, '=')
            .ok_or_else(|| format!("`{word}` is no KEY=VALUE (before the action comes `=>`)"))?;
        if OPTIONS.contains(&name) {
            option(&mut entry, name, value)?;
            continue;
        }
        let fields = table.fields.iter().map(|field| (field.name.as_str(), field));
        let field = find("key", unquoted(name), fields)?;
        let condition = condition(field, value).map_err(|error| format!("key {}: {error}", field.name))?;
        if let Some(is) = condition {
            entry.r#match.push(FieldMatch { field_id: field.id, field_match_type: Some(is) });
        }
    }
    entry.action = match result {
        [] => None,
        [_, result @ ..] => {
            Some(TableAction { r#type: Some(table_result(schema, table, entry.is_default_action, result)?) })
        }
    };
    Ok(entry)
}

fn option(entry: &mut TableEntry, name: &str, value: &str) -> Result<(), String> {
    let number = || value.parse::<i64>().map_err(|_| format!("{name}: `{value}` is no number"));
    match name {
        "prio" => {
            entry.priority = value.parse().map_err(|_| format!("prio: `{value}` is no number of 31 bits"))?;
        }
        "idle" => entry.idle_timeout_ns = number::parse_time(value)?,
        "cookie" => entry.controller_metadata = number::parse(value, 64)?.low_u64(),
        "metadata" => entry.metadata = hex(value)?,
        "packets" => entry.counter_data.get_or_insert_default().packet_count = number()?,
        "bytes" => entry.counter_data.get_or_insert_default().byte_count = number()?,
        _ => rate(entry.meter_config.get_or_insert_default(), name, number()?),
    }
    Ok(())
}

fn rate(config: &mut MeterConfig, name: &str, value: i64) {
    match name {
        "cir" => config.cir = value,
        "cburst" => config.cburst = value,
        "pir" => config.pir = value,
        "pburst" => config.pburst = value,
        _ => config.eburst = value,
    }
}

fn hex(text: &str) -> Result<Vec<u8>, String> {
    let wrong = || format!("`{text}` is no string of bytes (expected such as 0x00ff)");
    let digits = text.strip_prefix("0x").filter(|digits| digits.len() % 2 == 0).ok_or_else(wrong)?;
    let digits: Vec<u8> =
        digits.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect::<Option<_>>().ok_or_else(wrong)?;
    Ok(digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect())
}

/// A condition; `*` is none.
fn condition(field: &Field, text: &str) -> Result<Option<FieldMatchType>, String> {
    let bits = |text: &str| number::parse(text, field.width);
    let bytes = |value: &Bits| bytestring::of(value);
    if text == "*" {
        return match field.kind {
            MatchKind::Exact => Err("it is matched exactly, and needs a value".to_owned()),
            _ => Ok(None),
        };
    }
    let prefix = |text: &str| -> Result<Option<(Bits, i32)>, String> {
        let Some((value, length)) = text.rsplit_once('/') else { return Ok(None) };
        let length: u16 = length.parse().ok().filter(|length| *length <= field.width).ok_or_else(|| {
            format!("`/{length}` is no length of a prefix (expected /0 to /{})", field.width)
        })?;
        Ok(Some((bits(value)?, length.into())))
    };
    let mask_of = |length: i32| {
        let zeros = u64::from(field.width) - u64::try_from(length).unwrap_or(0);
        Bits::ones(field.width).shl(zeros)
    };
    Ok(Some(match field.kind {
        MatchKind::Exact => FieldMatchType::Exact(field_match::Exact { value: bytes(&bits(text)?) }),
        MatchKind::Optional => FieldMatchType::Optional(field_match::Optional { value: bytes(&bits(text)?) }),
        MatchKind::Lpm => {
            let (value, prefix_len) = match prefix(text)? {
                Some(prefix) => prefix,
                None => (bits(text)?, field.width.into()),
            };
            if prefix_len == 0 {
                return Ok(None);
            }
            FieldMatchType::Lpm(field_match::Lpm {
                value: bytes(&value.and(&mask_of(prefix_len))),
                prefix_len,
            })
        }
        MatchKind::Ternary => {
            let (value, mask) = match (text.split_once("&&&"), prefix(text)?) {
                (Some((value, mask)), _) => (bits(value)?, bits(mask)?),
                (None, Some((value, length))) => (value, mask_of(length)),
                (None, None) => (bits(text)?, Bits::ones(field.width)),
            };
            if mask.is_zero() {
                return Ok(None);
            }
            FieldMatchType::Ternary(field_match::Ternary {
                value: bytes(&value.and(&mask)),
                mask: bytes(&mask),
            })
        }
        MatchKind::Range => {
            let (low, high) = text.split_once("..").unwrap_or((text, text));
            let (low, high) = (bits(low)?, bits(high)?);
            if low.is_zero() && high == Bits::ones(field.width) {
                return Ok(None);
            }
            FieldMatchType::Range(field_match::Range { low: bytes(&low), high: bytes(&high) })
        }
    }))
}

fn table_result(
    schema: &Schema,
    table: &Table,
    is_default: bool,
    words: &[&str],
) -> Result<table_action::Type, String> {
    let id = |text: &str| text.parse().map_err(|_| format!("`{text}` is no number of a member or group"));
    match words {
        [] => Err("the action behind `=>` is missing".to_owned()),
        ["member", text] => Ok(table_action::Type::ActionProfileMemberId(id(text)?)),
        ["group", text] => Ok(table_action::Type::ActionProfileGroupId(id(text)?)),
        [one]
            if is_default
                || table
                    .profile
                    .and_then(|id| schema.profiles.get(&id))
                    .is_none_or(|profile| !profile.selector) =>
        {
            Ok(table_action::Type::Action(call(&table.actions, one)?))
        }
        words => {
            let alternatives = words.split(|word| *word == "|");
            let actions = alternatives.map(|words| alternative(table, words)).collect::<Result<_, _>>()?;
            let set = ActionProfileActionSet { action_profile_actions: actions, ..Default::default() };
            Ok(table_action::Type::ActionProfileActionSet(set))
        }
    }
}

/// One of the actions of a set.
fn alternative(table: &Table, words: &[&str]) -> Result<ActionProfileAction, String> {
    let [text, options @ ..] = words else { return Err("an action is missing beside `|`".to_owned()) };
    let mut one =
        ActionProfileAction { action: Some(call(&table.actions, text)?), weight: 1, watch_kind: None };
    for option in options {
        match option.split_once('=') {
            Some(("weight", weight)) => {
                one.weight = weight.parse().map_err(|_| format!("`{weight}` is no weight"))?;
            }
            Some(("watch", port)) => {
                let port = bytestring::of(&number::parse(port, 32)?);
                one.watch_kind = Some(WatchKind::WatchPort(port));
            }
            _ => {
                return Err(format!(
                    "`{option}` is neither weight=N nor watch=PORT (between actions is `|`)"
                ));
            }
        }
    }
    Ok(one)
}

/// An action with arguments, by name or in order.
fn call(known: &[schema::Action], text: &str) -> Result<Action, String> {
    let (name, args) = match text.split_once('(') {
        Some((name, args)) => {
            (name, args.strip_suffix(')').ok_or_else(|| format!("`{text}` does not end in `)`"))?)
        }
        None => (text, ""),
    };
    let action = find("action", unquoted(name), known.iter().map(|action| (action.name.as_str(), action)))?;
    let in_action = |error: String| format!("action {}: {error}", action.name);
    let mut params: Vec<Option<action::Param>> = vec![None; action.params.len()];
    for (at, arg) in args.split(',').map(str::trim).filter(|arg| !arg.is_empty()).enumerate() {
        let (at, value) = match split_once(arg, '=') {
            Some((name, value)) => {
                let names = action.params.iter().enumerate().map(|(at, param)| (param.name.as_str(), at));
                (find("parameter", unquoted(name), names).map_err(in_action)?, value)
            }
            None => (at, arg),
        };
        let (Some(param), Some(place)) = (action.params.get(at), params.get_mut(at)) else {
            return Err(in_action(format!("it has {} parameters, found more", action.params.len())));
        };
        let value = number::parse(value, param.width)
            .map_err(|error| in_action(format!("parameter {}: {error}", param.name)))?;
        let value = match param.ty {
            pipeline::ir::Type::Int(_) => bytestring::of_signed(&value),
            _ => bytestring::of(&value),
        };
        if place.replace(action::Param { param_id: param.id, value }).is_some() {
            return Err(in_action(format!("parameter {} is given twice", param.name)));
        }
    }
    let missing = action.params.iter().zip(&params).find(|(_, given)| given.is_none());
    if let Some((param, _)) = missing {
        return Err(in_action(format!("parameter {} is missing ({} bits)", param.name, param.width)));
    }
    Ok(Action { action_id: action.id, params: params.into_iter().flatten().collect() })
}

/// Entities that are no entries of tables.
fn other(schema: &Schema, kind: &str, words: &[&str]) -> Result<Kind, String> {
    let [name, rest @ ..] = words else { return Err(format!("{kind}: a name or number is missing")) };
    let options =
        || rest.iter().map(|word| word.split_once('=').ok_or_else(|| format!("`{word}` is no NAME=VALUE")));
    let unknown = |name: &str| Err(format!("{kind}: unknown option {name}"));
    let number = |value: &str| value.parse::<i64>().map_err(|_| format!("`{value}` is no number"));
    match kind {
        "counter" => {
            let (name, index) = cell(name)?;
            let names = schema.counters.iter().map(|(id, counter)| (counter.name.as_str(), *id));
            let mut data = None;
            for option in options() {
                let (name, value) = option?;
                let data: &mut CounterData = data.get_or_insert_default();
                match name {
                    "packets" => data.packet_count = number(value)?,
                    "bytes" => data.byte_count = number(value)?,
                    _ => return unknown(name),
                }
            }
            Ok(Kind::CounterEntry(CounterEntry { counter_id: find(kind, name, names)?, index, data }))
        }
        "meter" => {
            let (name, index) = cell(name)?;
            let names = schema.meters.iter().map(|(id, meter)| (meter.name.as_str(), *id));
            let mut config = None;
            for option in options() {
                let (name, value) = option?;
                if !["cir", "cburst", "pir", "pburst", "eburst"].contains(&name) {
                    return unknown(name);
                }
                rate(config.get_or_insert_default(), name, number(value)?);
            }
            let meter_id = find(kind, name, names)?;
            Ok(Kind::MeterEntry(MeterEntry { meter_id, index, config, counter_data: None }))
        }
        "register" => {
            let (name, index) = cell(name)?;
            let names =
                schema.registers.iter().map(|(id, register)| (register.name.as_str(), (*id, register)));
            let (register_id, register) = find(kind, name, names)?;
            let mut data = None;
            for option in options() {
                match option? {
                    ("value", value) => {
                        data = Some(register.shape.write(&number::parse(value, register.ty.width())?));
                    }
                    (name, _) => return unknown(name),
                }
            }
            Ok(Kind::RegisterEntry(RegisterEntry { register_id, index, data }))
        }
        "multicast" | "clone" => replication(kind, name, &options().collect::<Result<Vec<_>, _>>()?),
        "member" => {
            let names = schema.profiles.values().map(|profile| (profile.name.as_str(), profile));
            let profile = find("action profile", unquoted(name), names)?;
            let [id, rest @ ..] = rest else { return Err("the member's number is missing".to_owned()) };
            let member_id = id.parse().map_err(|_| format!("`{id}` is no number of a member"))?;
            let action = match rest {
                [] => None,
                ["=>", text] => Some(call(&profile.actions, text)?),
                _ => return Err("expected => ACTION(…)".to_owned()),
            };
            Ok(Kind::ActionProfileMember(ActionProfileMember {
                action_profile_id: profile.id,
                member_id,
                action,
            }))
        }
        _ => Err(format!("{kind}s cannot be given as text")),
    }
}

/// A cell of an array: `NAME[INDEX]`, or `NAME` for all.
fn cell(text: &str) -> Result<(&str, Option<Index>), String> {
    let Some((name, index)) = text.strip_suffix(']').and_then(|text| text.rsplit_once('[')) else {
        return Ok((unquoted(text), None));
    };
    let index = index.parse().map_err(|_| format!("`{index}` is no index"))?;
    Ok((unquoted(name), Some(Index { index })))
}

fn replication(kind: &str, id: &str, options: &[(&str, &str)]) -> Result<Kind, String> {
    let id: u32 = id.parse().map_err(|_| format!("`{id}` is no number"))?;
    let mut session = CloneSessionEntry { session_id: id, ..Default::default() };
    let mut metadata = Vec::new();
    for (name, value) in options {
        let wrong = || format!("{kind}: `{value}` is no {name}");
        match *name {
            "ports" => {
                let ports = value.split(',').filter(|port| !port.is_empty()).map(replica);
                session.replicas = ports.collect::<Result<_, _>>()?;
            }
            "metadata" if kind == "multicast" => metadata = hex(value)?,
            "class" if kind == "clone" => session.class_of_service = value.parse().map_err(|_| wrong())?,
            "length" if kind == "clone" => {
                session.packet_length_bytes = value.parse().map_err(|_| wrong())?
            }
            _ => return Err(format!("{kind}: unknown option {name}")),
        }
    }
    let entry = match kind {
        "clone" => Replicated::CloneSessionEntry(session),
        _ => Replicated::MulticastGroupEntry(MulticastGroupEntry {
            multicast_group_id: id,
            replicas: session.replicas,
            metadata,
        }),
    };
    Ok(Kind::PacketReplicationEngineEntry(PacketReplicationEngineEntry { r#type: Some(entry) }))
}

/// A copy: `PORT` or `PORT/INSTANCE`.
fn replica(text: &str) -> Result<Replica, String> {
    let (port, instance) = text.split_once('/').unwrap_or((text, "0"));
    let instance = instance.parse().map_err(|_| format!("`{instance}` is no instance"))?;
    let port = bytestring::of(&number::parse(port, 32)?);
    Ok(Replica { port_kind: Some(PortKind::Port(port)), instance, backup_replicas: vec![] })
}
