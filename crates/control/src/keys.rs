//! The keys of the configuration file, and the reference that is made of them.
//!
//! What a port type reads comes from its option struct, by schema; the keys that all bridges and ports have are listed
//! here, where the reader ([`crate::file`]) takes their names from. So docs/configuration.md cannot miss one: a test
//! compares it with [`reference()`].

use std::fmt::Write;

use ports::Spec;
use schemars::Schema;
use serde_json::Value;

/// A key that is not a port type's own.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// Which values it takes.
    pub value: &'static str,
    /// What holds when it is not there; empty when it must be.
    pub default: &'static str,
    /// What it means.
    pub help: &'static str,
}

const fn key(name: &'static str, value: &'static str, default: &'static str, help: &'static str) -> Key {
    Key { name, value, default, help }
}

/// `[daemon]`.
pub const DAEMON: &[Key] = &[
    key("workers", "CPU list, `0,2-3`", "one worker, not pinned", "A worker on each of these CPUs."),
    key(
        "poll",
        "boolean",
        "`false`",
        "Workers never sleep: the lowest latency, for all of their CPUs' time.",
    ),
    key("socket", "path", "`/run/mswitch/mswitch.sock`", "The control socket."),
    key("owner", "user, by name or number", "not set", "User that owns the control socket."),
    key("group", "group, by name or number", "not set", "Group of the control socket."),
    key("mode", "octal mode, `\"0660\"`", "`\"0660\"`", "Access mode of the control socket."),
    key(
        "metrics",
        "`ADDRESS:PORT`, or a port of 127.0.0.1",
        "not served",
        "Where metrics are served to Prometheus, over HTTP at `/metrics`.",
    ),
];

/// `[sflow]`.
pub const SFLOW: &[Key] = &[
    key(
        "collectors",
        "list of `ADDRESS` or `ADDRESS:PORT`, `[ADDRESS]:PORT` for IPv6",
        "",
        "Who is sent sFlow datagrams; the port is 6343 unless it is named.",
    ),
    key(
        "agent",
        "IP address, `auto`",
        "`auto`",
        "What collectors know this switch by; `auto`: the address that datagrams go out from.",
    ),
    key("sampling", "1 to 1000000000", "`1000`", "One packet in so many is sampled, at random."),
    key("polling", "0 to 86400", "`20`", "Seconds between samples of ports' counters; 0: none are sent."),
    key("header", "14 to 512", "`128`", "Bytes of a packet that its sample holds, at most."),
];

/// `[[bridge]]`.
pub const BRIDGE: &[Key] = &[
    key("name", "1 to 64 letters, digits, `.`, `_`, `-`", "", "The bridge's name."),
    key(
        "logic",
        "a logic's name",
        "`learning`",
        "What decides where packets go; `mswitch logic list` shows which there are.",
    ),
    key("params", "table of single values", "none", "The logic's parameters, such as `{ ageing = 60 }`."),
    key("port", "tables `[[bridge.port]]`", "none", "Its ports."),
    key("station", "tables `[[bridge.station]]`", "none", "Static entries of its MAC table."),
    key("mirror", "tables `[[bridge.mirror]]`", "none", "Copies of what passes at its ports."),
];

/// `[[bridge.port]]`, without the type's own.
pub const PORT: &[Key] = &[
    key("name", "1 to 64 letters, digits, `.`, `_`, `-`", "", "The port's name, unique in its bridge."),
    key("type", "a port type", "", "What plugs in. The type's own keys stand beside these."),
    key("admin", "`up`, `down`", "`up`", "Whether traffic may pass at all."),
    key(
        "mtu",
        "68 to 65521, or 0",
        "`0`",
        "Largest packet towards the client in bytes, without Ethernet header; 0: what the type allows.",
    ),
    key(
        "vlan",
        "`transparent`, `access:10`, `trunk:10,20-29`, `trunk:all,native:1`",
        "`transparent`",
        "The VLANs that it is a member of (IEEE 802.1Q).",
    ),
    key(
        "isolated",
        "boolean",
        "`false`",
        "Its packets never go to another isolated port (docs/protection.md).",
    ),
    key(
        "police",
        "`100Mbit burst 64KiB`, `1000pps`, `off`",
        "`off`",
        "The rate that packets from it are held to.",
    ),
    key("storm-broadcast", "a rate as for `police`", "`off`", "The same for its broadcasts."),
    key("storm-multicast", "a rate as for `police`", "`off`", "The same for its multicasts."),
    key(
        "storm-unknown",
        "a rate as for `police`",
        "`off`",
        "The same for packets to stations that are not known.",
    ),
    key("max-stations", "1 to 8192, `off`", "`off`", "Stations that may be behind it at once."),
    key("stations", "list of MAC addresses", "any", "The only stations that may speak there."),
    key("sticky", "boolean", "`false`", "Stations learned there neither age nor move."),
    key(
        "sources",
        "list of addresses, `10.0.0.5`, `fe80::/64@52:54:00:12:34:56`",
        "any",
        "The only addresses that packets from it may come from, in ARP and neighbour discovery too.",
    ),
];

/// `[[bridge.station]]`.
pub const STATION: &[Key] = &[
    key("mac", "MAC address", "", "The station's address; it neither ages nor moves."),
    key("port", "a port's name", "", "The port that it is behind."),
    key("vlan", "0 to 4094", "`0`", "Its VLAN; 0: none."),
];

/// `[[bridge.mirror]]`.
pub const MIRROR: &[Key] = &[
    key("name", "1 to 64 letters, digits, `.`, `_`, `-`", "", "The mirror's name, unique in its bridge."),
    key("from", "list of ports", "all but `to`", "The ports whose packets are copied."),
    key("direction", "`both`, `in`, `out`", "`both`", "Those that come in at them, that go out, or both."),
    key("to", "a port's name", "", "The port that gets the copies, and nothing else unless they are tagged."),
    key("vlan", "1 to 4094", "no tag", "The VLAN tag that copies get (RSPAN)."),
];

/// The names of some keys.
pub fn names(keys: &[Key]) -> Vec<&'static str> {
    keys.iter().map(|key| key.name).collect()
}

/// The reference of every key, in Markdown.
pub fn reference() -> String {
    let mut text = String::from(
        "# Configuration reference\n\n\
         Output of `mswitch config reference`. `mswitch config check FILE` prints every mistake in a file, with line and\n\
         column, or else the number of bridges and ports; it needs no daemon. Keys without a default are required. Flags of\n\
         the command line are named after the keys: `mtu = 1500` is `--mtu 1500`.\n",
    );
    for (header, keys) in [
        ("[daemon]", DAEMON),
        ("[sflow]", SFLOW),
        ("[[bridge]]", BRIDGE),
        ("[[bridge.port]]", PORT),
        ("[[bridge.station]]", STATION),
        ("[[bridge.mirror]]", MIRROR),
    ] {
        begin(&mut text, &format!("`{header}`"));
        for key in keys {
            row(&mut text, key.name, key.value, key.default, key.help);
        }
    }
    for name in Spec::TYPES {
        begin(&mut text, &format!("`[[bridge.port]]` with `type = \"{name}\"`"));
        if let Some(schema) = Spec::schema(name) {
            options(&mut text, &schema);
        }
    }
    text
}

fn begin(text: &mut String, title: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "\n## {title}\n\n| key | value | default | meaning |\n| --- | --- | --- | --- |");
}

fn row(text: &mut String, name: &str, value: &str, default: &str, help: &str) {
    let _ = writeln!(text, "| `{name}` | {value} | {default} | {} |", help.replace('\n', " "));
}

/// The properties of an option struct.
fn options(text: &mut String, schema: &Schema) {
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        // What all ports have is told with them.
        if PORT.iter().any(|key| key.name == name) {
            continue;
        }
        let required = schema.get("required").and_then(Value::as_array);
        let required = required.is_some_and(|names| names.iter().any(|other| other == name));
        let default = match property.get("default") {
            _ if required => String::new(),
            None | Some(Value::Null) => "not set".into(),
            Some(Value::Array(items)) if items.is_empty() => "none".into(),
            Some(value) => format!("`{}`", value.to_string().trim_matches('"')),
        };
        let help = property.get("description").and_then(Value::as_str).unwrap_or_default();
        row(text, name, &kind(schema, property), &default, help);
    }
}

/// The values of a property, in words.
fn kind(schema: &Schema, property: &Value) -> String {
    if let Some(name) = property.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next())
    {
        let definition = schema.get("$defs").and_then(|defs| defs.get(name));
        return definition.map(|definition| kind(schema, definition)).unwrap_or_default();
    }
    if let Some(variants) = property.get("oneOf").and_then(Value::as_array) {
        let names = variants.iter().filter_map(|variant| variant.get("const").and_then(Value::as_str));
        return names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    }
    let kind = match property.get("type") {
        Some(Value::Array(several)) => several.iter().find(|kind| *kind != "null").and_then(Value::as_str),
        Some(one) => one.as_str(),
        None => None,
    };
    match kind {
        Some("integer") => "number".into(),
        Some("string") => "text".into(),
        Some("array") => "list of texts".into(),
        other => other.unwrap_or_default().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `make docs` brings the file up to date.
    #[test]
    fn the_reference_in_the_docs_is_this_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
        let there = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(there, reference(), "docs/configuration.md is out of date; `make docs` makes it anew");
    }

    #[test]
    fn every_key_of_every_type_is_there() {
        let text = reference();
        for name in Spec::TYPES {
            for key in crate::options::known(name).unwrap() {
                assert!(text.contains(&format!("| `{key}` |")), "{key} of {name}: {text}");
            }
        }
        assert!(text.contains("| `role` | `server`, `client` | `server` |"), "{text}");
        assert!(text.contains("| `path` | text |  | Path of the memif socket;"), "{text}");
        assert!(text.contains("| `offloads` | boolean | `true` |"), "{text}");
    }
}
