//! Groups as text, and read from text.

use super::actions::actions_text;
use super::fields::ones;
use super::parse::split;
use super::parse_actions::parse_actions;
use super::parse_fields::{oxm, port, small, value};
use super::{ParseError, duration_text};
use crate::field::Field;
use crate::message::{
    Bucket, BucketProperty, GroupDesc, GroupKind, GroupMod, GroupModCommand, SelectionMethod, bucket,
};
use crate::multipart::GroupStats;
use crate::oxm::Oxm;
use crate::property::Padded16;
use crate::version::{PortNo, Version, group};
use crate::wire::Text;

/// Kinds of groups and their names.
const KINDS: [(GroupKind, &str); 4] = [
    (GroupKind::All, "all"),
    (GroupKind::Select, "select"),
    (GroupKind::Indirect, "indirect"),
    (GroupKind::FastFailover, "ff"),
];

/// Ids that stand for buckets, and their names.
const BUCKETS: [(u32, &str); 3] = [(bucket::FIRST, "first"), (bucket::LAST, "last"), (bucket::ALL, "all")];

/// A group, as `ovs-ofctl dump-groups` writes it.
pub fn group_text(group: &GroupDesc, version: Version) -> String {
    let kind = KINDS.iter().find(|(kind, _)| *kind == group.kind).map_or("unknown", |(_, name)| name);
    let mut parts = vec![format!("group_id={}", group.group), format!("type={kind}")];
    let method = group.properties.iter().find_map(SelectionMethod::from_property);
    if let Some(Ok(method)) = method {
        parts.extend(method_text(&method));
    }
    parts.extend(group.buckets.iter().map(|one| bucket_text(one, group.kind, version)));
    parts.join(",")
}

fn method_text(method: &SelectionMethod) -> Vec<String> {
    let mut parts = vec![format!("selection_method={}", String::from_utf8_lossy(&method.method.0))];
    if method.parameter != 0 {
        parts.push(format!("selection_method_param={}", method.parameter));
    }
    let fields: Vec<String> = method.fields.iter().filter_map(hashed_text).collect();
    match fields.as_slice() {
        [] => {}
        [one] => parts.push(format!("fields={one}")),
        several => parts.push(format!("fields({})", several.join(","))),
    }
    parts
}

/// A field that is hashed: its name, and the bits that matter if not all do.
fn hashed_text(field: &Oxm) -> Option<String> {
    let known = field.field()?;
    let bits = field.value.iter().fold(0u128, |number, byte| number << 8 | u128::from(*byte));
    if bits == ones(known.bits.into()) {
        return Some(known.name.to_owned());
    }
    Some(format!("{}={:#x}", known.name, bits))
}

fn bucket_text(one: &Bucket, kind: GroupKind, version: Version) -> String {
    let mut text = "bucket=".to_owned();
    if version >= Version::V1_5 {
        let name = BUCKETS.iter().find(|(id, _)| *id == one.id).map(|(_, name)| (*name).to_owned());
        text.push_str(&format!("bucket_id:{},", name.unwrap_or_else(|| one.id.to_string())));
    }
    let usual = u16::from(kind == GroupKind::Select);
    if let Some(weight) = one.weight().filter(|weight| *weight != usual) {
        text.push_str(&format!("weight:{weight},"));
    }
    if one.watch_port() != PortNo::ANY {
        text.push_str(&format!("watch_port:{},", one.watch_port()));
    }
    if one.watch_group() != group::ANY {
        text.push_str(&format!("watch_group:{},", one.watch_group()));
    }
    text + "actions=" + &actions_text(&one.actions, version)
}

/// A group's statistics, as `ovs-ofctl dump-group-stats` writes them.
pub fn group_stats_text(stats: &GroupStats) -> String {
    let mut text = format!("group_id={},", stats.group);
    if stats.duration_sec != u32::MAX {
        text.push_str(&format!("duration={},", duration_text(stats.duration_sec, stats.duration_nsec)));
    }
    let (packets, bytes) = (stats.total.packets, stats.total.bytes);
    text.push_str(&format!("ref_count={},packet_count={packets},byte_count={bytes}", stats.references));
    for (at, bucket) in stats.buckets.iter().enumerate() {
        let (packets, bytes) = (bucket.packets, bucket.bytes);
        text.push_str(&format!(",bucket{at}:packet_count={packets},byte_count={bytes}"));
    }
    text
}

/// Reads a change of a group, as the argument of `ovs-ofctl add-group` and the like.
///
/// # Errors
/// The text is not a group, or the version lacks part of it.
pub fn parse_group(text: &str, command: GroupModCommand, version: Version) -> Result<GroupMod, ParseError> {
    let removes = matches!(command, GroupModCommand::Delete | GroupModCommand::RemoveBucket);
    let mut parsed = GroupMod {
        command,
        group: group::ALL,
        command_bucket: match command {
            GroupModCommand::InsertBucket => bucket::LAST,
            _ => bucket::ALL,
        },
        ..GroupMod::default()
    };
    let (mut has_id, mut has_kind) = (false, false);
    let mut method: Option<SelectionMethod> = None;
    let mut buckets: Vec<Vec<&str>> = Vec::new();
    for item in split(text, &[',', ' ', '\t', '\n']) {
        if let Some(first) = item.strip_prefix("bucket=").or_else(|| item.strip_prefix("buckets=")) {
            buckets.push(vec![first]);
            continue;
        }
        if let Some(bucket) = buckets.last_mut() {
            bucket.push(item);
            continue;
        }
        let (name, argument) = key_and_value(item);
        match name {
            "group_id" if argument == "all" => has_id = true,
            "group_id" => (parsed.group, has_id) = (small(argument)?, true),
            "type" => {
                let kind = KINDS
                    .iter()
                    .find(|(_, name)| *name == argument || (*name == "ff" && argument == "fast_failover"));
                let wrong = || ParseError::new("`all`, `select`, `indirect` or `ff`", argument);
                (parsed.kind, has_kind) = (kind.ok_or_else(wrong)?.0, true);
            }
            "command_bucket_id" => parsed.command_bucket = bucket_id(argument)?,
            "selection_method" => method.get_or_insert_default().method = Text(argument.as_bytes().to_vec()),
            "selection_method_param" => method.get_or_insert_default().parameter = small(argument)?,
            "fields" => {
                let fields = split(argument, &[',', ' ']).map(hashed).collect::<Result<Vec<_>, _>>()?;
                method.get_or_insert_default().fields.extend(fields);
            }
            _ => return Err(ParseError::new("key of a group", name)),
        }
    }
    if !has_id && command != GroupModCommand::Delete {
        return Err(ParseError::new("group_id", text));
    }
    if !has_kind && !removes && command != GroupModCommand::InsertBucket {
        return Err(ParseError::new("type", text));
    }
    for (number, items) in buckets.into_iter().enumerate() {
        parsed.buckets.push(parse_bucket(&items, number, parsed.kind, version)?);
    }
    if let Some(method) = method {
        if version < Version::V1_5 {
            return Err(ParseError::new("OpenFlow 1.5 for a selection method", text));
        }
        parsed.properties.push(method.to_property());
    }
    Ok(parsed)
}

/// A key and its value, behind `=` or `:` or within parentheses.
fn key_and_value(item: &str) -> (&str, &str) {
    let Some(at) = item.find(['=', ':', '(']) else { return (item, "") };
    let (name, rest) = item.split_at(at);
    let inner = rest.get(1..).unwrap_or_default();
    let value = if rest.starts_with('(') { inner.strip_suffix(')').unwrap_or(inner) } else { inner };
    (name, value)
}

fn bucket_id(text: &str) -> Result<u32, ParseError> {
    match BUCKETS.iter().find(|(_, name)| *name == text) {
        Some((id, _)) => Ok(*id),
        None => small(text),
    }
}

fn parse_bucket(
    items: &[&str],
    number: usize,
    kind: GroupKind,
    version: Version,
) -> Result<Bucket, ParseError> {
    let mut id = u32::try_from(number).unwrap_or(bucket::MAX);
    let mut weight = (kind == GroupKind::Select).then_some(1);
    let mut properties = Vec::new();
    let mut actions = Vec::new();
    for item in items.iter().filter(|item| !item.is_empty()) {
        let (name, argument) = key_and_value(item);
        match name {
            "bucket_id" => id = bucket_id(argument)?,
            "weight" => weight = Some(small(argument)?),
            "watch_port" => properties.push(BucketProperty::WatchPort(port(argument)?)),
            "watch_group" => properties.push(BucketProperty::WatchGroup(small(argument)?)),
            "actions" | "action" if item.get(name.len()..).is_some_and(|rest| rest.starts_with('=')) => {
                actions.push(argument);
            }
            _ => actions.push(*item),
        }
    }
    if let Some(weight) = weight {
        properties.insert(0, BucketProperty::Weight(Padded16::new(weight)));
    }
    Ok(Bucket { id, actions: parse_actions(&actions.join(","), version)?, properties })
}

/// A field that is hashed: `NAME`, or `NAME=BITS`.
fn hashed(text: &str) -> Result<Oxm, ParseError> {
    let (name, bits) = text.split_once('=').unwrap_or((text, ""));
    let field = Field::with_name(name).ok_or_else(|| ParseError::new("field", name))?;
    let all = ones(field.bits.into());
    let bits = if bits.is_empty() { all } else { value(field, bits)?.0 };
    let mut hashed = oxm(field.id, Version::V1_5, bits, all);
    hashed.mask = None;
    Ok(hashed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(change: &GroupMod) -> GroupDesc {
        let GroupMod { kind, group, buckets, properties, .. } = change.clone();
        GroupDesc { kind, group, buckets, properties }
    }

    #[test]
    fn groups_read_and_print_alike() {
        for text in [
            "group_id=1,type=all,bucket=bucket_id:0,actions=output:1,bucket=bucket_id:1,actions=output:2",
            "group_id=2,type=select,bucket=bucket_id:0,weight:5,actions=output:1,bucket=bucket_id:9,actions=drop",
            "group_id=3,type=indirect,bucket=bucket_id:0,actions=set_field:0x1->reg0,output:2",
            "group_id=4,type=ff,bucket=bucket_id:0,watch_port:1,actions=output:1,bucket=bucket_id:1,watch_group:2,actions=output:2",
            "group_id=5,type=select,selection_method=hash,fields=ip_src,bucket=bucket_id:0,actions=output:1",
            "group_id=6,type=select,selection_method=hash,selection_method_param=7,fields(ip_src,ip_dst),bucket=bucket_id:0,actions=output:1",
            "group_id=7,type=select,selection_method=dp_hash,bucket=bucket_id:0,actions=output:1",
            "group_id=8,type=all",
        ] {
            let change = parse_group(text, GroupModCommand::Add, Version::V1_5).unwrap();
            assert_eq!(group_text(&described(&change), Version::V1_5), text);
        }
        let short = "group_id=1 type=select bucket=output:1,weight=3 bucket=actions=output:2,output:3";
        let change = parse_group(short, GroupModCommand::Add, Version::V1_3).unwrap();
        assert_eq!(
            group_text(&described(&change), Version::V1_3),
            "group_id=1,type=select,bucket=weight:3,actions=output:1,bucket=actions=output:2,output:3"
        );
    }

    #[test]
    fn errors_name_the_wrong_part() {
        for (text, expected) in [
            ("type=all", "expected group_id, found `type=all`"),
            ("group_id=1", "expected type, found `group_id=1`"),
            ("group_id=1,type=any", "expected `all`, `select`, `indirect` or `ff`, found `any`"),
            ("group_id=x,type=all", "expected number, found `x`"),
            ("group_id=1,type=all,color=red", "expected key of a group, found `color`"),
            ("group_id=1,type=all,bucket=fly", "expected action, found `fly`"),
            ("group_id=1,type=select,selection_method=hash,bucket=output:1", "expected OpenFlow 1.5"),
        ] {
            let error = parse_group(text, GroupModCommand::Add, Version::V1_4).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
        let all = parse_group("", GroupModCommand::Delete, Version::V1_3).unwrap();
        assert_eq!(all.group, group::ALL);
    }
}
