//! Differences between two configurations, by object and key.
//!
//! Values are compared in the form of the file, so a default counts as not set. Secrets are never part of a difference.

use std::collections::BTreeMap;
use std::fmt;

use packet::ether::MacAddr;
use toml::{Table, Value};

use crate::file::Secrets;
use crate::file::write;
use crate::model::{Config, DEFAULT_LOGIC};
use crate::{keys, options};

/// An object of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Object {
    /// The daemon's own settings, except its workers.
    Daemon,
    /// The workers.
    Workers,
    /// sFlow export.
    Sflow,
    /// A bridge, by name.
    Bridge(String),
    /// A port.
    Port {
        /// The bridge.
        bridge: String,
        /// The port.
        port: String,
    },
    /// A static station of a bridge.
    Station {
        /// The bridge.
        bridge: String,
        /// Its VLAN; 0 for none.
        vlan: u16,
        /// Its address.
        mac: MacAddr,
    },
    /// A mirror of a bridge.
    Mirror {
        /// The bridge.
        bridge: String,
        /// The mirror's name.
        name: String,
    },
}

impl Object {
    /// Returns the name of its bridge; for a bridge, its own name.
    pub fn bridge(&self) -> Option<&str> {
        match self {
            Object::Daemon | Object::Workers | Object::Sflow => None,
            Object::Bridge(bridge)
            | Object::Port { bridge, .. }
            | Object::Station { bridge, .. }
            | Object::Mirror { bridge, .. } => Some(bridge),
        }
    }
}

impl fmt::Display for Object {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Object::Daemon => out.write_str("daemon"),
            Object::Workers => out.write_str("workers"),
            Object::Sflow => out.write_str("sflow"),
            Object::Bridge(bridge) => write!(out, "bridge \"{bridge}\""),
            Object::Port { bridge, port } => write!(out, "bridge \"{bridge}\", port \"{port}\""),
            Object::Mirror { bridge, name } => write!(out, "bridge \"{bridge}\", mirror \"{name}\""),
            Object::Station { bridge, vlan: 0, mac } => write!(out, "bridge \"{bridge}\", station {mac}"),
            Object::Station { bridge, vlan, mac } => {
                write!(out, "bridge \"{bridge}\", station {mac}, VLAN {vlan}")
            }
        }
    }
}

/// The kind of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only the second configuration has it.
    Added,
    /// Only the first configuration has it.
    Removed,
    /// Both have it, with different values.
    Changed,
}

impl Kind {
    /// Returns its name in replies.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Added => "added",
            Kind::Removed => "removed",
            Kind::Changed => "changed",
        }
    }
}

/// A key whose value differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyChange {
    /// The key.
    pub key: String,
    /// Its value in the first configuration; empty if it is not set there.
    pub from: String,
    /// Its value in the second configuration; empty if it is not set there.
    pub to: String,
    /// The value in effect where a changed object does not set it, if it is known.
    pub default: Option<String>,
}

/// An object that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The object.
    pub object: Object,
    /// The kind of the difference.
    pub kind: Kind,
    /// The keys that differ; for an added or removed object, all keys that are set.
    pub keys: Vec<KeyChange>,
}

impl fmt::Display for Difference {
    /// For example `bridge "br0", port "vm1" changed: mtu: not set -> 9000, vlan: access:7 -> access:8`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.object, self.kind.name())?;
        if self.keys.is_empty() { Ok(()) } else { write!(out, ": {}", self.values()) }
    }
}

impl Difference {
    /// Formats the keys with their values, such as `mtu: not set -> 9000, vlan: access:7 -> access:8`.
    pub fn values(&self) -> impl fmt::Display {
        let value = |KeyChange { key, from, to, default }: &KeyChange| {
            let default = default.as_deref();
            let (from, to) = (Shown(from, default), Shown(to, default));
            match self.kind {
                Kind::Added => format!("{key}: {to}"),
                Kind::Removed => format!("{key}: {from}"),
                Kind::Changed => format!("{key}: {from} -> {to}"),
            }
        };
        self.keys.iter().map(value).collect::<Vec<_>>().join(", ")
    }
}

/// Formats a value for the log, quoted and escaped if it would be ambiguous otherwise, or its default.
struct Shown<'a>(&'a str, Option<&'a str>);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            "" => match self.1 {
                Some(default) => write!(out, "{default} (default)"),
                None => out.write_str("not set"),
            },
            text if text.contains(|c: char| c.is_control() || c.is_whitespace() || c == '"') => {
                write!(out, "{text:?}")
            }
            text => out.write_str(text),
        }
    }
}

type Keys = BTreeMap<String, String>;

/// Returns the changes that turn the first configuration into the second.
pub fn between(from: &Config, to: &Config) -> Vec<Difference> {
    let (old, new) = (objects(from, to), objects(to, from));
    let mut found = Vec::new();
    for (object, (keys, secret)) in &new {
        let difference = |kind, keys| Difference { object: object.clone(), kind, keys };
        match old.get(object) {
            None => found.push(difference(Kind::Added, changes(&Keys::new(), keys))),
            Some((before, secret_before)) => {
                let mut keys = changes(before, keys);
                if secret != secret_before && !keys.iter().any(|change| change.key == "secret") {
                    let (from, to) = ("(set)".into(), "(changed)".into());
                    keys.push(KeyChange { key: "secret".into(), from, to, default: None });
                }
                for change in keys.iter_mut().filter(|change| change.from.is_empty() || change.to.is_empty())
                {
                    change.default = default_of(object, to, &change.key);
                }
                // A bridge always has a logic; the file need not name the default.
                for change in
                    keys.iter_mut().filter(|it| it.key == "logic" && matches!(object, Object::Bridge(_)))
                {
                    change.default = None;
                    let values = [&mut change.from, &mut change.to].into_iter();
                    values.filter(|value| value.is_empty()).for_each(|value| *value = DEFAULT_LOGIC.into());
                }
                if !keys.is_empty() {
                    found.push(difference(Kind::Changed, keys));
                }
            }
        }
    }
    for (object, (keys, _)) in old.iter().filter(|(object, _)| !new.contains_key(object)) {
        let keys = changes(keys, &Keys::new());
        found.push(Difference { object: object.clone(), kind: Kind::Removed, keys });
    }
    found.sort_by(|a, b| a.object.cmp(&b.object));
    found
}

/// Returns the default of an object's key, if it has one that is a value.
fn default_of(object: &Object, config: &Config, key: &str) -> Option<String> {
    let (key, table) = match (key.split_once('.'), object) {
        (Some(("openflow", key)), Object::Bridge(_)) => (key, Some(keys::OPENFLOW)),
        (Some(("p4", key)), Object::Bridge(_)) => (key, Some(keys::P4)),
        _ => (key, None),
    };
    let of_object = match object {
        Object::Daemon | Object::Workers => keys::DAEMON,
        Object::Sflow => keys::SFLOW,
        Object::Bridge(_) => keys::BRIDGE,
        Object::Port { bridge, port } => {
            let spec = &config.bridge(bridge)?.port(port)?.spec;
            if let Some(value) = options::defaults(spec).get(key) {
                return Some(options::value_to_text(value));
            }
            keys::PORT
        }
        Object::Station { .. } => keys::STATION,
        Object::Mirror { .. } => keys::MIRROR,
    };
    let table = table.unwrap_or(of_object);
    let default = table.iter().find(|known| known.name == key)?.default;
    let value = default.strip_prefix('`')?.strip_suffix('`')?.trim_matches('"');
    // An MTU of 0 stands for the maximum of the port's type.
    (key != "mtu").then(|| value.to_owned())
}

fn changes(from: &Keys, to: &Keys) -> Vec<KeyChange> {
    let value = |keys: &Keys, key: &str| keys.get(key).cloned().unwrap_or_default();
    let mut names: Vec<&String> = from.keys().chain(to.keys()).collect();
    names.sort();
    names.dedup();
    names
        .into_iter()
        .filter(|key| from.get(*key) != to.get(*key))
        .map(|key| KeyChange { key: key.clone(), from: value(from, key), to: value(to, key), default: None })
        .collect()
}

/// Returns the objects with their keys and their secrets. Ports that are equal in `other` are left out, so that an edit
/// of a switch with thousands of ports formats few of them.
fn objects(config: &Config, other: &Config) -> BTreeMap<Object, (Keys, Option<String>)> {
    let mut daemon = write::daemon(&config.daemon);
    let workers = daemon.remove("workers").map(|cpus| ("workers".to_owned(), cpus));
    let workers = Table::from_iter(workers);
    let mut found =
        BTreeMap::from([(Object::Daemon, (texts(daemon), None)), (Object::Workers, (texts(workers), None))]);
    if let Some(sflow) = &config.sflow {
        found.insert(Object::Sflow, (texts(write::sflow(sflow)), None));
    }
    for bridge in &config.bridges {
        let name = &bridge.name;
        let mut alone = write::bridge_alone(bridge);
        alone.insert("openflow".into(), Value::Table(write::openflow(&bridge.openflow)));
        let mut p4 = write::p4(&bridge.p4);
        let roles =
            bridge.p4.roles.iter().map(|(name, role)| (name.clone(), Value::Table(write::p4_role(role))));
        p4.insert("role".into(), Value::Table(roles.collect()));
        alone.insert("p4".into(), Value::Table(p4));
        found.insert(Object::Bridge(name.clone()), (texts(alone), None));
        let others = other.bridge(name).map(|other| other.ports.as_slice()).unwrap_or_default();
        // Comparing the port at the same index first is fast: ports rarely change their order.
        let is_equal = |(i, port)| others.get(i) == Some(port) || others.contains(port);
        for (_, port) in bridge.ports.iter().enumerate().filter(|entry| !is_equal(*entry)) {
            let object = Object::Port { bridge: name.clone(), port: port.settings.name.clone() };
            found.insert(object, (texts(write::port(port, Secrets::Hidden)), options::secret(&port.spec)));
        }
        for station in &bridge.stations {
            let object = Object::Station { bridge: name.clone(), vlan: station.vlan, mac: station.mac };
            found.insert(object, (texts(write::station(station)), None));
        }
        for mirror in &bridge.mirrors {
            let object = Object::Mirror { bridge: name.clone(), name: mirror.name.clone() };
            found.insert(object, (texts(write::mirror(mirror)), None));
        }
    }
    found
}

/// Returns the keys of an object with their values as text.
fn texts(table: Table) -> Keys {
    let mut keys = Keys::new();
    for (key, value) in table {
        match value {
            Value::Table(inner) => {
                keys.extend(texts(inner).into_iter().map(|(name, text)| (format!("{key}.{name}"), text)));
            }
            value => {
                keys.insert(key, options::value_to_text(&value));
            }
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::file::{Depth, parse};

    fn config(text: &str) -> Config {
        parse(text, Path::new("f.toml"), Depth::Text).unwrap()
    }

    const BASE: &str = "[[bridge]]\nname = \"br0\"\n[[bridge.port]]\nname = \"a\"\ntype = \"memif\"\n\
                        path = \"/tmp/a.sock\"\n";

    #[test]
    fn equal_configurations_have_no_differences() {
        assert_eq!(between(&config(BASE), &config(BASE)), []);
    }

    #[test]
    fn objects_are_added_changed_and_removed() {
        let to = config(&format!(
            "{BASE}mtu = 9000\nsecret = \"x\"\n[[bridge]]\nname = \"br1\"\nlogic = \"static\"\n"
        ));
        let found = between(&config(BASE), &to);
        let [added, changed] = found.as_slice() else { panic!("{found:#?}") };
        assert_eq!((added.object.to_string().as_str(), added.kind), ("bridge \"br1\"", Kind::Added));
        assert_eq!(changed.object.to_string(), "bridge \"br0\", port \"a\"");
        let keys: Vec<_> =
            changed.keys.iter().map(|k| (k.key.as_str(), k.from.as_str(), k.to.as_str())).collect();
        assert_eq!(keys, [("mtu", "", "9000"), ("secret", "", "(set)")]);
        let back = between(&to, &config(BASE));
        assert_eq!(back[0].kind, Kind::Removed);
    }

    #[test]
    fn differences_format_as_one_line() {
        let to = config(&format!("{BASE}mtu = 9000\nvlan = \"access:7\"\n"));
        let line = |from: &Config, to: &Config| between(from, to).first().map(ToString::to_string).unwrap();
        assert_eq!(
            line(&config(BASE), &to),
            "bridge \"br0\", port \"a\" changed: mtu: not set -> 9000, vlan: transparent (default) -> access:7"
        );
        let mut bare = config(BASE);
        bare.bridges[0].ports.clear();
        assert_eq!(
            line(&bare, &config(BASE)),
            "bridge \"br0\", port \"a\" added: name: a, path: /tmp/a.sock, type: memif"
        );
        assert!(line(&config(BASE), &bare).starts_with("bridge \"br0\", port \"a\" removed: name: a, "));
        let chain = config(&BASE.replace("br0\"\n", "br0\"\nlogic = \"hub\"\n"));
        assert_eq!(line(&chain, &config(BASE)), "bridge \"br0\" changed: logic: hub -> learning");
        assert_eq!(line(&config(BASE), &chain), "bridge \"br0\" changed: logic: learning -> hub");
        assert_eq!(Shown("a\nb", None).to_string(), "\"a\\nb\"");
    }

    #[test]
    fn the_order_of_ports_does_not_matter() {
        let more = "[[bridge.port]]\nname = \"b\"\ntype = \"memif\"\nsocket = \"/tmp/b.sock\"\n";
        let from = config(&format!("{BASE}{more}"));
        let mut to = from.clone();
        to.bridges[0].ports.reverse();
        assert_eq!(between(&from, &to), []);
        to.bridges[0].ports[0].settings.mtu = 9000;
        assert_eq!(between(&from, &to).len(), 1);
    }

    #[test]
    fn a_changed_secret_is_reported_without_its_value() {
        let with = |secret: &str| config(&format!("{BASE}secret = \"{secret}\"\n"));
        let found = between(&with("first"), &with("second"));
        let [changed] = found.as_slice() else { panic!("{found:#?}") };
        assert_eq!(changed.keys.len(), 1);
        assert!(!format!("{found:?}").contains("first") && !format!("{found:?}").contains("second"));
    }

    #[test]
    fn sflow_differences() {
        let with = |more: &str| config(&format!("{BASE}[sflow]\ncollectors = [\"192.0.2.9\"]\n{more}"));
        let (off, on, other) = (config(BASE), with(""), with("sampling = 10\n"));
        let [added] = between(&off, &on).try_into().unwrap();
        assert_eq!((added.object.to_string().as_str(), added.kind), ("sflow", Kind::Added));
        assert_eq!(added.keys.len(), 1, "defaults are left out");
        let [changed] = between(&on, &other).try_into().unwrap();
        let keys: Vec<_> =
            changed.keys.iter().map(|k| (k.key.as_str(), k.from.as_str(), k.to.as_str())).collect();
        assert_eq!((changed.kind, keys), (Kind::Changed, vec![("sampling", "", "10")]));
        let [removed] = between(&other, &off).try_into().unwrap();
        assert_eq!((removed.object, removed.kind), (Object::Sflow, Kind::Removed));
    }
}
