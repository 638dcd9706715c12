//! The keys of the configuration file, and the reference generated from them.
//!
//! The keys of a port type come from the schema of its option struct. All other keys are listed here, and the parser
//! ([`crate::file`]) takes their names from these lists. So docs/configuration.md is complete: a test compares it with
//! [`reference()`].

use std::fmt::Write;

use ports::Spec;
use schemars::Schema;
use serde_json::Value;

/// A key that is not specific to a port type.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// The values that it takes.
    pub value: &'static str,
    /// Its default; empty if the key is required.
    pub default: &'static str,
    /// Its meaning.
    pub help: &'static str,
}

const fn key(name: &'static str, value: &'static str, default: &'static str, help: &'static str) -> Key {
    Key { name, value, default, help }
}

/// `[daemon]`.
pub const DAEMON: &[Key] = &[
    key(
        "workers",
        "CPU list, `0,2-3`",
        "one worker, not pinned",
        "CPUs with a worker each; `0-1x4` runs four on each of two. A list given by `mswitch daemon --workers` takes precedence.",
    ),
    key(
        "poll",
        "boolean",
        "`false`",
        "Workers never sleep: lowest latency, at the cost of the whole time of their CPUs.",
    ),
    key(
        "socket",
        "path",
        "`/run/mswitch/mswitch.sock`",
        "The control socket; `--socket` of `mswitch daemon` takes precedence, and `MSWITCH_SOCKET` in its environment counts without either.",
    ),
    key("owner", "user, by name or number", "not set", "User that owns the control socket."),
    key("group", "group, by name or number", "not set", "Group of the control socket."),
    key("mode", "octal mode, `\"0660\"`", "`\"0660\"`", "Access mode of the control socket."),
    key(
        "metrics",
        "`ADDRESS:PORT`, or a port of 127.0.0.1",
        "not served",
        "Address at which metrics are served to Prometheus, over HTTP at `/metrics`.",
    ),
];

/// `[sflow]`.
pub const SFLOW: &[Key] = &[
    key(
        "collectors",
        "list of `ADDRESS` or `ADDRESS:PORT`, `[ADDRESS]:PORT` for IPv6",
        "",
        "Receivers of sFlow datagrams; the default port is 6343.",
    ),
    key(
        "agent",
        "IP address, `auto`",
        "`auto`",
        "IP address that identifies this switch to collectors; `auto`: the source address of the datagrams.",
    ),
    key(
        "sampling",
        "1 to 1000000000",
        "`1000`",
        "Sampling rate: one packet in this many is sampled, at random.",
    ),
    key("polling", "0 to 86400", "`20`", "Seconds between counter samples; 0: none."),
    key("header", "14 to 512", "`128`", "Maximum number of bytes of a packet in its sample."),
];

/// `[[bridge]]`.
pub const BRIDGE: &[Key] = &[
    key("name", "1 to 64 letters, digits, `.`, `_`, `-`", "", "The bridge's name."),
    key(
        "logic",
        "a logic's name",
        "`learning`",
        "Logic that decides where packets go; `mswitch logic list` lists the available ones.",
    ),
    key("params", "table of single values", "none", "The logic's parameters, such as `{ ageing = 60 }`."),
    key("port", "tables `[[bridge.port]]`", "none", "Its ports."),
    key("station", "tables `[[bridge.station]]`", "none", "Static entries of its MAC table."),
    key("mirror", "tables `[[bridge.mirror]]`", "none", "Its mirrors: copies of the traffic of its ports."),
    key(
        "openflow",
        "table `[bridge.openflow]`",
        "defaults",
        "Its OpenFlow connections, for logic `openflow`.",
    ),
    key("p4", "table `[bridge.p4]`", "defaults", "Its P4Runtime server, for logic `p4`."),
];

/// `[bridge.p4]`.
pub const P4: &[Key] = &[
    key(
        "listen",
        "list of `unix:PATH`, `tcp:ADDRESS:PORT`",
        "`unix:` and `BRIDGE.p4rt` beside the control socket",
        "Addresses where the bridge accepts P4Runtime clients; sockets have the owner, group and mode of the control socket.",
    ),
    key(
        "device-id",
        "1 to 4294967295",
        "`1`",
        "Device id in P4Runtime; clients that use 0 reach the bridge, too.",
    ),
    key(
        "private-key",
        "path",
        "not set",
        "The server's private key in PEM; with it and `certificate`, `tcp:` addresses speak TLS.",
    ),
    key(
        "certificate",
        "path",
        "not set",
        "The server's certificate in PEM, with intermediate ones if there are some.",
    ),
    key(
        "ca-cert",
        "path",
        "not set",
        "Certificates in PEM of the authorities that vouch for clients; if not set, clients need none.",
    ),
    key("role", "tables `[[bridge.p4.role]]`", "none", "Roles with limits; others have full access."),
    key(
        "only-listed-roles",
        "boolean",
        "`false`",
        "Clients may claim only roles of `role`: neither others nor the default role.",
    ),
];

/// `[[bridge.p4.role]]`.
pub const P4_ROLE: &[Key] = &[
    key(
        "name",
        "1 to 256 bytes",
        "",
        "The role's name, by which clients claim it. It may write what the lists below name, receives their digests and idle timeouts, and may not set the program.",
    ),
    key(
        "tables",
        "list of names or aliases of the P4Info",
        "none",
        "Tables whose entries, defaults and direct counters and meters it may write.",
    ),
    key(
        "action-profiles",
        "list of names or aliases",
        "none",
        "Action profiles whose members and groups it may write.",
    ),
    key("counters", "list of names or aliases", "none", "Counters that it may write."),
    key("meters", "list of names or aliases", "none", "Meters that it may write."),
    key("registers", "list of names or aliases", "none", "Registers that it may write."),
    key("value-sets", "list of names or aliases", "none", "Value sets of parsers that it may write."),
    key(
        "digests",
        "list of names or aliases",
        "none",
        "Digests that it may configure, and that it receives.",
    ),
    key(
        "max-entries",
        "0 to 4294967295",
        "unlimited",
        "Most entries, members and groups in its tables and action profiles together, whoever wrote them; it may insert no more.",
    ),
    key("read-only", "boolean", "`false`", "It may write nothing."),
    key("packet-in", "boolean", "`false`", "It receives packets of the program, and may send some."),
    key(
        "packet-rate",
        "1 to 4294967295",
        "unlimited",
        "Most packets a second that it receives; others are dropped, and counted as `controllers_missed`.",
    ),
];

/// `[bridge.openflow]`.
pub const OPENFLOW: &[Key] = &[
    key(
        "controllers",
        "list of `tcp:HOST[:PORT]`, `ssl:HOST[:PORT]`, `unix:PATH`, `ptcp:[PORT][:HOST]`, `pssl:[PORT][:HOST]`, `punix:PATH`",
        "none",
        "Controllers that the bridge connects to, and addresses where it accepts controllers; the default port is 6653.",
    ),
    key(
        "fail-mode",
        "`standalone`, `secure`",
        "`standalone`",
        "Without a controller for three probe intervals, the bridge forwards like `learning` (`standalone`), or keeps to its flows (`secure`).",
    ),
    key("versions", "list of `1.0` to `1.5`", "all", "Versions of OpenFlow that the bridge speaks."),
    key(
        "datapath-id",
        "16 hexadecimal digits",
        "derived from the machine and the bridge's name",
        "Number that identifies the bridge to controllers.",
    ),
    key(
        "management",
        "path, `off`",
        "`BRIDGE.mgmt` beside the control socket",
        "Socket for `ovs-ofctl` and `mswitch openflow`; it has the owner, group and mode of the control socket.",
    ),
    key(
        "snoop",
        "path, `off`",
        "`BRIDGE.snoop` beside the control socket",
        "Socket that copies the messages of a controller to `ovs-ofctl snoop`.",
    ),
    key(
        "probe",
        "0 to 3600",
        "`5`",
        "Seconds of silence after which a controller is asked for an echo; after as many more it is disconnected. 0: never.",
    ),
    key("max-backoff", "1 to 3600", "`8`", "Longest delay in seconds before a controller is called again."),
    key("private-key", "path", "not set", "The bridge's private key in PEM, for `ssl:` and `pssl:`."),
    key(
        "certificate",
        "path",
        "not set",
        "The bridge's certificate in PEM, with intermediate ones if there are some.",
    ),
    key(
        "ca-cert",
        "path",
        "not set",
        "Certificates in PEM of the authorities that vouch for controllers; host names are not compared.",
    ),
    key(
        "max-flows",
        "1 to 2000000",
        "`2000000`",
        "Largest number of flows; more are refused with `OFPFMFC_TABLE_FULL`.",
    ),
    key(
        "keep-flows",
        "boolean",
        "`false`",
        "Flows, groups and meters are saved and outlive the daemon (docs/openflow.md).",
    ),
    key(
        "tables",
        "table of names by number, such as `{ 0 = \"classify\", 10 = \"acl\" }`",
        "none",
        "Names of flow tables, which `ovs-ofctl --names` and `mswitch openflow` show and accept.",
    ),
];

/// `[[bridge.port]]`, without the type's own.
pub const PORT: &[Key] = &[
    key("name", "1 to 64 letters, digits, `.`, `_`, `-`", "", "The port's name, unique in its bridge."),
    key("type", "a port type", "", "The type. Its own keys are listed below."),
    key("admin", "`up`, `down`", "`up`", "Administrative state; `down` drops all traffic."),
    key(
        "mtu",
        "68 to 65521, or 0",
        "`0`",
        "Largest packet to the client in bytes, without Ethernet header; 0: the maximum of the type.",
    ),
    key(
        "vlan",
        "`transparent`, `access:10`, `trunk:10,20-29`, `trunk:0,10`, `trunk:all,native:1`, \
         `trunk:all,native-tagged:1`, `tunnel:10`",
        "`transparent`",
        "Its VLAN membership (IEEE 802.1Q); 0 in a trunk stands for frames of no VLAN.",
    ),
    key(
        "isolated",
        "boolean",
        "`false`",
        "Isolated ports exchange no packets with each other (docs/protection.md).",
    ),
    key(
        "police",
        "`100Mbit burst 64KiB`, `1000pps`, `off`",
        "`off`",
        "Rate limit for packets from its client.",
    ),
    key("storm-broadcast", "a rate as for `police`", "`off`", "Rate limit for broadcasts from its client."),
    key("storm-multicast", "a rate as for `police`", "`off`", "Rate limit for multicasts from its client."),
    key(
        "storm-unknown",
        "a rate as for `police`",
        "`off`",
        "Rate limit for packets from its client to unknown stations.",
    ),
    key("max-stations", "1 to 8192, `off`", "`off`", "Maximum number of stations behind it."),
    key("stations", "list of MAC addresses", "any", "Allowed source MAC addresses."),
    key("sticky", "boolean", "`false`", "Stations learned at the port neither age nor move."),
    key(
        "sources",
        "list of addresses, `10.0.0.5`, `fe80::/64@52:54:00:12:34:56`",
        "any",
        "Allowed source IP addresses, also in ARP and neighbour discovery.",
    ),
    key(
        "trust",
        "`pcp`, `dscp`, `dscp-pcp`, `off`",
        "`off`",
        "Headers that give packets from its client their class (docs/quality-of-service.md).",
    ),
    key("class", "0 to 7", "`0`", "Class of packets from its client that no header classifies."),
    key(
        "pcp-classes",
        "a class for each priority code point",
        "`1,0,2,3,4,5,6,7`",
        "Classes of VLAN tags' priorities, with `trust`.",
    ),
    key(
        "dscp-classes",
        "`46:7,8-15:0`",
        "by class selector",
        "Classes of IP packets' code points, with `trust`; others stay as they are.",
    ),
    key(
        "queueing",
        "`strict`, `drr`, a weight or `strict` for each class, `off`",
        "`off`",
        "Packets to its client wait in eight classes, in this order.",
    ),
    key("shape", "`100Mbit burst 64KiB`, `off`", "`off`", "Rate of packets to its client; they wait."),
    key(
        "class-max",
        "`0:50Mbit,5-7:1Gbit`, `off`",
        "`off`",
        "Rates that classes to its client do not exceed.",
    ),
    key(
        "class-min",
        "`6:10Mbit,7:1Mbit`, `off`",
        "`off`",
        "Parts of `shape` that classes to its client have first.",
    ),
    key(
        "queue-buffers",
        "16 to 65536",
        "`512`",
        "Room of each class, in buffers of 2 KiB; a packet takes as many as it needs.",
    ),
    key(
        "early-drop",
        "`100..300 10%`, `100..300 10% ecn`, by class `0:50..150 20%`, `off`",
        "`off`",
        "Early detection of congestion: waiting packets, and the probability of a drop or mark (RED, ECN).",
    ),
    key("openflow-port", "1 to 65279", "the lowest free one", "Its number in OpenFlow."),
    key(
        "p4-port",
        "0 to 65535",
        "the lowest free one from 1",
        "Its number in P4 programs; v1model has room for 0 to 510.",
    ),
];

/// `[[bridge.station]]`.
pub const STATION: &[Key] = &[
    key("mac", "MAC address", "", "The station's address. The entry neither ages nor moves."),
    key("port", "a port's name", "", "The port behind which it is."),
    key("vlan", "0 to 4094", "`0`", "Its VLAN; 0: none."),
];

/// `[[bridge.mirror]]`.
pub const MIRROR: &[Key] = &[
    key("name", "1 to 64 letters, digits, `.`, `_`, `-`", "", "The mirror's name, unique in its bridge."),
    key("from", "list of ports", "all but `to`", "The ports whose packets are copied."),
    key(
        "direction",
        "`both`, `in`, `out`",
        "`both`",
        "Copied packets: received by the ports (`in`), sent by them (`out`), or both.",
    ),
    key(
        "to",
        "a port's name",
        "",
        "The port that receives the copies. Without `vlan`, it carries no other traffic.",
    ),
    key("vlan", "1 to 4094", "no tag", "The VLAN tag of the copies (RSPAN)."),
];

/// Returns the names of keys.
pub fn names(keys: &[Key]) -> Vec<&'static str> {
    keys.iter().map(|key| key.name).collect()
}

/// Returns the reference of all keys in Markdown.
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
        ("[bridge.openflow]", OPENFLOW),
        ("[bridge.p4]", P4),
        ("[[bridge.p4.role]]", P4_ROLE),
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

/// Appends a row for each property of an option struct.
fn options(text: &mut String, schema: &Schema) {
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        // Keys of all ports are listed once.
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

/// Returns the values of a property, in words.
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

    /// `make docs` updates the file.
    #[test]
    fn docs_configuration_md_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
        let found = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(found, reference(), "docs/configuration.md is out of date; run `make docs`");
    }

    #[test]
    fn reference_has_every_key_of_every_type() {
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
