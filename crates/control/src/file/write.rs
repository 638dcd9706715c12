//! Formats configurations as TOML, without defaults.
//!
//! Invariant: a formatted configuration, including secrets, parses back as the same configuration.

use toml::{Table, Value};

use super::edit::from_scratch;
use crate::cpulist;
use crate::direction;
use crate::model::{
    BridgeConfig, Config, DEFAULT_LOGIC, DaemonConfig, PortConfig, StationConfig, format_admin,
};
use crate::openflow::settings::{OpenFlowConfig, SocketPlace, TLS_KEYS, fail_mode_name, version_name};
use crate::p4::settings::{P4Config, ROLE_LISTS, TLS_KEYS as P4_TLS_KEYS};
use crate::sflow::{SflowConfig, settings};
use crate::{options, protection};
use fabric::{Mirror, VlanMode};
use p4runtime::LimitedRole;

/// Whether a text contains secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secrets {
    /// Secrets are written.
    Written,
    /// A placeholder replaces each secret.
    Hidden,
}

/// Formats a configuration as TOML.
pub fn write(config: &Config, secrets: Secrets) -> String {
    from_scratch(&tree(config, secrets))
}

/// A table of a configuration: its keys, its tables and its lists of tables.
#[derive(Debug, Default)]
pub(super) struct Node {
    /// The identity of the table in its list.
    pub(super) id: String,
    /// The keys and their values; the values of `params` and `tables` are tables.
    pub(super) keys: Table,
    /// Tables such as `[daemon]`; `None` if they are empty.
    pub(super) tables: Vec<(&'static str, Option<Node>)>,
    /// Lists of tables such as `[[bridge]]`.
    pub(super) lists: Vec<(&'static str, Vec<Node>)>,
}

impl Node {
    fn leaf(id: impl Into<String>, keys: Table) -> Self {
        Self { id: id.into(), keys, ..Self::default() }
    }
}

/// Converts a whole configuration.
pub(super) fn tree(config: &Config, secrets: Secrets) -> Node {
    let daemon = Some(daemon(&config.daemon)).filter(|keys| !keys.is_empty());
    let sflow = config.sflow.as_ref().map(sflow);
    let table = |keys: Option<Table>| keys.map(|keys| Node::leaf("", keys));
    let bridges = config.bridges.iter().map(|config| bridge(config, secrets)).collect();
    Node {
        tables: vec![("daemon", table(daemon)), ("sflow", table(sflow))],
        lists: vec![("bridge", bridges)],
        ..Node::default()
    }
}

/// `[daemon]`.
pub(crate) fn daemon(config: &DaemonConfig) -> Table {
    let mut table = Table::new();
    if !config.workers.is_empty() {
        table.insert("workers".into(), cpulist::format(&config.workers).into());
    }
    if config.poll {
        table.insert("poll".into(), true.into());
    }
    if let Some(socket) = &config.socket {
        table.insert("socket".into(), socket.display().to_string().into());
    }
    for (key, value) in [("owner", &config.owner), ("group", &config.group), ("mode", &config.mode)] {
        if let Some(value) = value {
            table.insert(key.into(), value.clone().into());
        }
    }
    if let Some(address) = config.metrics {
        table.insert("metrics".into(), address.to_string().into());
    }
    table
}

/// `[sflow]`.
pub(crate) fn sflow(config: &SflowConfig) -> Table {
    let collectors: Vec<Value> = config.collectors.iter().map(|c| c.to_string().into()).collect();
    let mut table = Table::from_iter([("collectors".to_owned(), Value::Array(collectors))]);
    if let Some(agent) = config.agent {
        table.insert("agent".into(), agent.to_string().into());
    }
    for (key, value, default) in [
        ("sampling", config.sampling, settings::DEFAULT_SAMPLING),
        ("polling", config.polling, settings::DEFAULT_POLLING),
        ("header", config.header, settings::DEFAULT_HEADER),
    ] {
        if value != default {
            table.insert(key.into(), i64::from(value).into());
        }
    }
    table
}

/// `[[bridge]]` without its lists and tables.
pub(crate) fn bridge_alone(config: &BridgeConfig) -> Table {
    let mut table = Table::from_iter([("name".to_owned(), Value::from(config.name.clone()))]);
    if config.logic.name != DEFAULT_LOGIC {
        table.insert("logic".into(), config.logic.name.clone().into());
    }
    let params = config.logic.params.iter().map(|(key, value)| (key.clone(), Value::from(value.clone())));
    let params: Table = params.collect();
    if !params.is_empty() {
        table.insert("params".into(), Value::Table(params));
    }
    table
}

/// `[bridge.openflow]`; empty for the defaults.
pub(crate) fn openflow(config: &OpenFlowConfig) -> Table {
    let default = OpenFlowConfig::default();
    let list = |texts: Vec<String>| Value::Array(texts.into_iter().map(Value::from).collect());
    let mut table = Table::new();
    if config.controllers != default.controllers {
        let controllers = config.controllers.iter().map(ToString::to_string).collect();
        table.insert("controllers".into(), list(controllers));
    }
    if config.versions != default.versions {
        table.insert("versions".into(), list(config.versions.iter().copied().map(version_name).collect()));
    }
    if config.fail_mode != default.fail_mode {
        table.insert("fail-mode".into(), fail_mode_name(config.fail_mode).into());
    }
    if let Some(id) = config.datapath_id {
        table.insert("datapath-id".into(), id.to_string().into());
    }
    for (key, place) in [("management", &config.management), ("snoop", &config.snoop)] {
        match place {
            SocketPlace::Beside => {}
            SocketPlace::Off => drop(table.insert(key.into(), "off".into())),
            SocketPlace::At(path) => drop(table.insert(key.into(), path.display().to_string().into())),
        }
    }
    for (key, file) in TLS_KEYS.iter().zip(&config.tls) {
        if let Some(file) = file {
            table.insert((*key).into(), file.display().to_string().into());
        }
    }
    for (key, value, default) in [
        ("probe", config.probe, default.probe),
        ("max-backoff", config.max_backoff, default.max_backoff),
        ("max-flows", config.max_flows, default.max_flows),
    ] {
        if value != default {
            table.insert(key.into(), i64::from(value).into());
        }
    }
    if config.keep_flows {
        table.insert("keep-flows".into(), true.into());
    }
    if !config.tables.is_empty() {
        let names = config.tables.iter().map(|(number, name)| (number.to_string(), name.clone().into()));
        table.insert("tables".into(), Value::Table(names.collect()));
    }
    table
}

fn bridge(config: &BridgeConfig, secrets: Secrets) -> Node {
    let ports = config.ports.iter().map(|p| Node::leaf(&p.settings.name, port(p, secrets)));
    let stations = config.stations.iter().map(|s| Node::leaf(format!("{} {}", s.vlan, s.mac), station(s)));
    let mirrors = config.mirrors.iter().map(|m| Node::leaf(&m.name, mirror(m)));
    let lists =
        vec![("port", ports.collect()), ("station", stations.collect()), ("mirror", mirrors.collect())];
    let openflow = Some(openflow(&config.openflow)).filter(|keys| !keys.is_empty());
    let openflow = openflow.map(|keys| Node::leaf("", keys));
    let roles: Vec<_> = config.p4.roles.values().map(|r| Node::leaf(&r.access.role, p4_role(r))).collect();
    let p4 = Node { keys: p4(&config.p4), lists: vec![("role", roles)], ..Node::default() };
    let p4 = Some(p4).filter(|p4| !p4.keys.is_empty() || !config.p4.roles.is_empty());
    let tables = vec![("openflow", openflow), ("p4", p4)];
    Node { id: config.name.clone(), keys: bridge_alone(config), tables, lists }
}

/// `[bridge.p4]` without its roles; empty for the defaults.
pub(crate) fn p4(config: &P4Config) -> Table {
    let default = P4Config::default();
    let mut table = Table::new();
    if let Some(listen) = &config.listen {
        let listen = listen.iter().map(|listen| Value::from(listen.to_string())).collect();
        table.insert("listen".into(), Value::Array(listen));
    }
    if config.device_id != default.device_id {
        table.insert("device-id".into(), i64::from(config.device_id).into());
    }
    for (key, file) in P4_TLS_KEYS.iter().zip(&config.tls) {
        if let Some(file) = file {
            table.insert((*key).into(), file.display().to_string().into());
        }
    }
    if config.only_listed_roles {
        table.insert("only-listed-roles".into(), true.into());
    }
    table
}

/// `[[bridge.p4.role]]`.
pub(crate) fn p4_role(role: &LimitedRole) -> Table {
    let mut table = Table::from_iter([("name".to_owned(), Value::from(role.access.role.clone()))]);
    for (key, kind) in ROLE_LISTS {
        if let Some(names) = role.access.objects.get(&kind) {
            let names = names.iter().cloned().map(Value::from).collect();
            table.insert(key.into(), Value::Array(names));
        }
    }
    if let Some(most) = role.access.max_entries {
        table.insert("max-entries".into(), i64::try_from(most).unwrap_or(i64::MAX).into());
    }
    if let Some(rate) = role.packet_rate {
        table.insert("packet-rate".into(), i64::from(rate).into());
    }
    for (key, is_on) in [("read-only", role.access.read_only), ("packet-in", role.packets)] {
        if is_on {
            table.insert(key.into(), true.into());
        }
    }
    table
}

/// `[[bridge.port]]`.
pub(crate) fn port(config: &PortConfig, secrets: Secrets) -> Table {
    let settings = &config.settings;
    let mut table = Table::from_iter([
        ("name".to_owned(), Value::from(settings.name.clone())),
        ("type".to_owned(), Value::from(config.spec.type_name())),
    ]);
    let defaults = options::defaults(&config.spec);
    let own = options::to_toml(&config.spec);
    table.extend(own.into_iter().filter(|(key, value)| defaults.get(key) != Some(value)));
    if secrets == Secrets::Hidden
        && let Some(secret) = table.get_mut("secret")
    {
        *secret = options::HIDDEN.into();
    }
    if !settings.admin_up {
        table.insert("admin".into(), format_admin(false).into());
    }
    if settings.mtu > 0 {
        table.insert("mtu".into(), i64::from(settings.mtu).into());
    }
    if settings.vlan != VlanMode::Transparent {
        table.insert("vlan".into(), settings.vlan.to_string().into());
    }
    table.extend(protection::to_toml(settings));
    if let Some(number) = config.openflow_port {
        table.insert("openflow-port".into(), i64::from(number).into());
    }
    if let Some(number) = config.p4_port {
        table.insert("p4-port".into(), i64::from(number).into());
    }
    table
}

/// `[[bridge.station]]`.
pub(crate) fn station(config: &StationConfig) -> Table {
    let mut table = Table::from_iter([
        ("mac".to_owned(), Value::from(config.mac.to_string())),
        ("port".to_owned(), Value::from(config.port.clone())),
    ]);
    if config.vlan > 0 {
        table.insert("vlan".into(), i64::from(config.vlan).into());
    }
    table
}

/// `[[bridge.mirror]]`.
pub(crate) fn mirror(config: &Mirror) -> Table {
    let mut table = Table::from_iter([
        ("name".to_owned(), Value::from(config.name.clone())),
        ("to".to_owned(), Value::from(config.to.clone())),
    ]);
    if !config.from.is_empty() {
        table.insert("from".into(), config.from.clone().into());
    }
    let direction = direction::format(config.what);
    if direction != "both" {
        table.insert("direction".into(), direction.into());
    }
    if let Some(vlan) = config.vlan {
        table.insert("vlan".into(), i64::from(vlan.get()).into());
    }
    table
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::file::{Depth, parse};

    const WHOLE: &str = r#"
        [daemon]
        workers = "0"
        poll = true
        socket = "/run/x.sock"
        mode = "0600"
        metrics = "9090"

        [sflow]
        collectors = ["192.0.2.9", "[2001:db8::9]:99"]
        agent = "10.0.0.1"
        sampling = 400
        polling = 0
        header = 64

        [[bridge]]
        name = "br0"
        params = { ageing = 60 }

        [[bridge.port]]
        name = "vm1"
        type = "memif"
        path = "/tmp/write.sock"
        id = 3
        secret = "hush"
        vlan = "trunk:10,20-29,native:20"
        isolated = true
        police = "100Mbit burst 64KiB"
        max-stations = 2
        sticky = true
        sources = ["10.0.0.5", "fe80::/64@52:54:00:12:34:56"]

        [[bridge.port]]
        name = "host"
        type = "tap"
        mtu = 9000
        admin = "down"
        addresses = ["10.0.0.1/24", "fd00::1/64"]

        [[bridge.station]]
        mac = "02:00:00:00:00:01"
        vlan = 20
        port = "vm1"

        [[bridge.mirror]]
        name = "all"
        to = "host"

        [[bridge.mirror]]
        name = "m1"
        from = ["vm1"]
        direction = "in"
        to = "host"
        vlan = 99

        [[bridge]]
        name = "wire"
        logic = "static"
        params = { a = "b" }

        [[bridge]]
        name = "flows"
        logic = "openflow"

        [bridge.openflow]
        controllers = ["tcp:[::1]:6653", "punix:/run/c.sock"]
        versions = ["1.0", "1.3"]
        fail-mode = "secure"
        datapath-id = "00000242ac110002"
        management = "off"
        snoop = "/run/flows.snoop"
        private-key = "/etc/key.pem"
        certificate = "/etc/cert.pem"
        ca-cert = "/etc/ca.pem"
        probe = 0
        max-backoff = 3
        max-flows = 1000
        keep-flows = true
        tables = { 0 = "classify", 10 = "acl" }

        [[bridge.port]]
        name = "x"
        type = "tap"
        openflow-port = 7
    "#;

    fn read(text: &str) -> Config {
        parse(text, Path::new("f.toml"), Depth::Text).unwrap()
    }

    #[test]
    fn formatted_configurations_parse_back() {
        let config = read(WHOLE);
        let text = write(&config, Secrets::Written);
        assert!(text.starts_with("[daemon]\n") && !text.contains("\n\n\n"), "{text}");
        assert!(text.contains("\n[[bridge.port]]\nname = \"vm1\"\ntype = \"memif\"\n"), "{text}");
        assert!(text.contains("logic = \"openflow\"\n\n[bridge.openflow]\nca-cert = "), "{text}");
        assert_eq!(read(&text), config, "{text}");
        assert_eq!(write(&read(&text), Secrets::Written), text, "formatting is stable");
        assert_eq!(write(&Config::default(), Secrets::Written), "");
    }

    #[test]
    fn protections_have_the_types_of_the_reference() {
        let text = write(&read(WHOLE), Secrets::Written);
        for line in [
            "isolated = true\n",
            "max-stations = 2\n",
            "police = \"100Mbit burst 64KiB\"\n",
            "sources = [\"10.0.0.5\", \"fe80::/64@52:54:00:12:34:56\"]\n",
            "sticky = true\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }

    #[test]
    fn defaults_are_left_out() {
        let text = write(&read(WHOLE), Secrets::Written);
        for key in ["ring-size", "buffer-size", "queues", "offloads", "role"] {
            assert!(!text.contains(key), "{key}: {text}");
        }
    }

    #[test]
    fn secrets_can_be_hidden() {
        let text = write(&read(WHOLE), Secrets::Hidden);
        assert!(!text.contains("hush") && text.contains("secret = \"(set)\""), "{text}");
    }
}
