//! Random edits through the file, the API and the command line lead to the configuration that they describe, from any
//! previous state, while a pair of ports outside all edits loses nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use bench::pace::Rate;
use bench::session::{Background, Options};
use control::client::{Client, connect};
use control::proto;
use e2e::{Daemon, Netns, config, exclusive, long, output, unique, until};
use fastrand::Rng;
use serde_json::Value;
use tokio::runtime::Runtime;

const LIMIT: Duration = Duration::from_secs(30);
const BRIDGES: [&str; 3] = ["x0", "x1", "x2"];
const PORTS: [&str; 4] = ["p0", "p1", "p2", "p3"];
const VLANS: [&str; 4] = ["transparent", "access:7", "trunk:7,9-12", "trunk:all,native:7"];
const MIRRORS: [&str; 2] = ["m0", "m1"];
/// Target port of mirrors.
const WATCHER: &str = "p3";
const STATIONS: [&str; 3] = ["02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:00:03"];

/// Type of a port.
#[derive(Debug, Clone, PartialEq)]
enum Kind {
    Memif,
    /// A TAP in the namespace that exists from the start.
    Tap,
    /// A TAP in the namespace that is created only at the end of a sequence.
    Later,
}

#[derive(Debug, Clone, PartialEq)]
struct Port {
    kind: Kind,
    up: bool,
    mtu: u32,
    vlan: &'static str,
}

#[derive(Debug, Clone, PartialEq)]
struct Bridge {
    logic: &'static str,
    ageing: Option<u32>,
    ports: BTreeMap<&'static str, Port>,
    /// Ports of static stations by VLAN and address.
    stations: BTreeMap<(u16, &'static str), &'static str>,
    /// Source port of each mirror, whose target is `WATCHER`, with tagged copies.
    mirrors: BTreeMap<&'static str, &'static str>,
}

impl Bridge {
    /// Removes the dependents of a port.
    fn remove_dependents(&mut self, port: &str) {
        self.stations.retain(|_, at| *at != port);
        self.mirrors.retain(|_, from| *from != port && port != WATCHER);
    }
}

/// The desired configuration.
type Model = BTreeMap<&'static str, Bridge>;

/// A change.
#[derive(Debug, Clone)]
enum Edit {
    AddBridge(&'static str),
    DelBridge(&'static str),
    Logic(&'static str, &'static str, Option<u32>),
    AddPort(&'static str, &'static str, Port),
    SetPort(&'static str, &'static str, bool, u32, &'static str),
    DelPort(&'static str, &'static str),
    AddStation(&'static str, (u16, &'static str), &'static str),
    AddMirror(&'static str, &'static str, &'static str),
    DelMirror(&'static str, &'static str),
    DelStation(&'static str, (u16, &'static str)),
}

/// Interface through which a change is requested.
#[derive(Debug, Clone, Copy)]
enum Way {
    CommandLine,
    Api,
    Apply,
    Hangup,
}

fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.usize(..from.len())]
}

fn random_port(rng: &mut Rng, later: bool) -> Port {
    let kind = match rng.u32(0..if later { 4 } else { 3 }) {
        0 | 1 => Kind::Memif,
        2 => Kind::Tap,
        _ => Kind::Later,
    };
    Port { kind, up: rng.u32(0..4) > 0, mtu: pick(rng, &[0, 1280, 1500, 9000]), vlan: pick(rng, &VLANS) }
}

/// Makes a random change that the model allows. Stations are added only to logics with a MAC table.
fn random_edit(rng: &mut Rng, model: &mut Model, later: bool) -> Option<Edit> {
    let bridge = pick(rng, &BRIDGES);
    let Some(existing) = model.get_mut(bridge) else {
        let (ports, stations, mirrors) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        model.insert(bridge, Bridge { logic: "learning", ageing: None, ports, stations, mirrors });
        return Some(Edit::AddBridge(bridge));
    };
    let port = pick(rng, &PORTS);
    let station = (pick(rng, &[0, 7]), pick(rng, &STATIONS));
    let mirror = pick(rng, &MIRRORS);
    match rng.u32(0..14) {
        0 => {
            model.remove(bridge);
            Some(Edit::DelBridge(bridge))
        }
        1 => {
            existing.logic = pick(rng, &["learning", "static"]);
            existing.ageing = (existing.logic == "learning" && rng.bool()).then(|| rng.u32(1..1000));
            Some(Edit::Logic(bridge, existing.logic, existing.ageing))
        }
        2 | 3 if existing.ports.contains_key(port) => {
            existing.ports.remove(port);
            existing.remove_dependents(port);
            Some(Edit::DelPort(bridge, port))
        }
        4 | 5 if existing.logic == "learning" && existing.ports.contains_key(port) => {
            existing.stations.insert(station, port);
            Some(Edit::AddStation(bridge, station, port))
        }
        6 if existing.logic == "learning" && existing.stations.contains_key(&station) => {
            existing.stations.remove(&station);
            Some(Edit::DelStation(bridge, station))
        }
        7 if existing.mirrors.contains_key(mirror) => {
            existing.mirrors.remove(mirror);
            Some(Edit::DelMirror(bridge, mirror))
        }
        7 | 8
            if port != WATCHER
                && existing.ports.contains_key(port)
                && existing.ports.contains_key(WATCHER) =>
        {
            if existing.mirrors.contains_key(mirror) {
                return None;
            }
            existing.mirrors.insert(mirror, port);
            Some(Edit::AddMirror(bridge, mirror, port))
        }
        2..=8 => None,
        _ => match existing.ports.get_mut(port) {
            Some(existing_port) => {
                let new = random_port(rng, false);
                (existing_port.up, existing_port.mtu, existing_port.vlan) = (new.up, new.mtu, new.vlan);
                Some(Edit::SetPort(bridge, port, new.up, new.mtu, new.vlan))
            }
            None => {
                let new = random_port(rng, later);
                existing.ports.insert(port, new.clone());
                Some(Edit::AddPort(bridge, port, new))
            }
        },
    }
}

/// The daemon under test and the interfaces to it.
struct Rig {
    daemon: Daemon,
    netns: Netns,
    /// Name of a namespace that is created later.
    later: String,
    runtime: Runtime,
    client: Client,
    /// Part of the interface names that is unique to this rig.
    tag: String,
}

impl Rig {
    fn new() -> Rig {
        let kept =
            config::bridge("keep", "learning") + &config::memif("a", 0, "") + &config::memif("b", 1, "");
        let daemon = Daemon::start(&kept).unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let client = runtime.block_on(connect(Path::new(&daemon.path("ctl")))).unwrap();
        let (netns, later, tag) = (Netns::new().unwrap(), unique("la"), unique("i"));
        Rig { daemon, netns, later, runtime, client, tag }
    }

    fn interface(&self, bridge: &str, port: &str) -> String {
        format!("{}{bridge}{port}", self.tag)
    }

    /// Type-specific options of a port.
    fn options(&self, bridge: &str, name: &str, port: &Port) -> Vec<(&'static str, String)> {
        let netns = match port.kind {
            Kind::Memif => {
                let id = 10 * BRIDGES.iter().position(|other| *other == bridge).unwrap()
                    + PORTS.iter().position(|other| *other == name).unwrap();
                return vec![("path", self.daemon.path("more")), ("id", id.to_string())];
            }
            Kind::Tap => self.netns.name().to_owned(),
            Kind::Later => self.later.clone(),
        };
        vec![("interface", self.interface(bridge, name)), ("netns", netns)]
    }

    /// The whole configuration as TOML.
    fn toml(&self, model: &Model) -> String {
        let mut text = config::bridge("keep", "learning")
            + &config::memif("a", 0, "").replace("{dir}", &self.daemon.folder().display().to_string())
            + &config::memif("b", 1, "").replace("{dir}", &self.daemon.folder().display().to_string());
        for (name, bridge) in model {
            text += &config::bridge(name, bridge.logic);
            if let Some(ageing) = bridge.ageing {
                text += &format!("params = {{ ageing = {ageing} }}\n");
            }
            for (port, it) in &bridge.ports {
                let options = self.options(name, port, it);
                let mut keys: String = options
                    .iter()
                    .map(|(key, value)| {
                        if *key == "id" {
                            format!("{key} = {value}\n")
                        } else {
                            format!("{key} = {value:?}\n")
                        }
                    })
                    .collect();
                keys += &format!("admin = {:?}\nvlan = {:?}\n", admin(it.up), it.vlan);
                if it.mtu > 0 {
                    keys += &format!("mtu = {}\n", it.mtu);
                }
                text += &config::port(port, kind(it), &keys);
            }
            for (name, from) in &bridge.mirrors {
                text += &format!(
                    "[[bridge.mirror]]\nname = {name:?}\nfrom = [{from:?}]\nto = {WATCHER:?}\nvlan = 99\n"
                );
            }
            for ((vlan, mac), port) in &bridge.stations {
                text += &format!("[[bridge.station]]\nmac = {mac:?}\nvlan = {vlan}\nport = {port:?}\n");
            }
        }
        text
    }

    fn write(&self, model: &Model) -> String {
        let path = self.daemon.path("config.toml");
        std::fs::write(&path, self.toml(model)).unwrap();
        path
    }

    /// Makes a change. `after` is the model that includes it.
    fn make(&mut self, edit: &Edit, way: Way, after: &Model) {
        match way {
            Way::CommandLine => self.make_by_command_line(edit),
            Way::Api => self.make_by_api(edit),
            Way::Apply => {
                let path = self.write(after);
                let applied = self.daemon.cli(&["config", "apply", &path]).unwrap();
                // Errors about the missing namespace are expected; others are not.
                let errors = String::from_utf8_lossy(&applied.stderr).into_owned();
                let expected = |line: &str| line.starts_with("mswitch: note: ") || line.contains(&self.later);
                assert!(applied.status.success() || errors.lines().all(expected), "{errors}");
            }
            Way::Hangup => {
                let path = self.write(after);
                output("kill", &["-HUP", &self.daemon.pid().to_string()]).unwrap();
                until("the file to be applied", LIMIT, || {
                    Ok(self.daemon.differences(Some(&path))?.is_empty().then_some(()))
                })
                .unwrap();
            }
        }
    }

    fn make_by_command_line(&self, edit: &Edit) {
        let words: Vec<String> = match edit {
            Edit::AddBridge(name) => ["bridge", "add", name].map(String::from).into(),
            Edit::DelBridge(name) => ["bridge", "del", name].map(String::from).into(),
            Edit::Logic(bridge, logic, ageing) => {
                let mut words: Vec<String> = ["logic", "set", bridge, logic].map(String::from).into();
                words.extend(ageing.iter().map(|ageing| format!("--param=ageing={ageing}")));
                words
            }
            Edit::AddPort(bridge, name, port) => {
                let mut words: Vec<String> = [
                    "port",
                    "add",
                    bridge,
                    name,
                    "--type",
                    kind(port),
                    "--admin",
                    admin(port.up),
                    "--vlan",
                    port.vlan,
                ]
                .map(String::from)
                .into();
                let options = self.options(bridge, name, port).into_iter();
                words.extend(options.map(|(key, value)| format!("--opt={key}={value}")));
                words.push(format!("--mtu={}", port.mtu));
                words
            }
            Edit::SetPort(bridge, name, up, mtu, vlan) => [
                "port",
                "set",
                bridge,
                name,
                "--admin",
                admin(*up),
                "--mtu",
                &mtu.to_string(),
                "--vlan",
                vlan,
            ]
            .map(String::from)
            .into(),
            Edit::DelPort(bridge, name) => ["port", "del", bridge, name].map(String::from).into(),
            Edit::AddStation(bridge, (vlan, mac), port) => {
                ["fdb", "add", bridge, mac, "--port", port, "--vlan", &vlan.to_string()]
                    .map(String::from)
                    .into()
            }
            Edit::AddMirror(bridge, name, from) => {
                ["mirror", "add", bridge, name, "--from", from, "--to", WATCHER, "--vlan", "99"]
                    .map(String::from)
                    .into()
            }
            Edit::DelMirror(bridge, name) => ["mirror", "del", bridge, name].map(String::from).into(),
            Edit::DelStation(bridge, (vlan, mac)) => {
                ["fdb", "del", bridge, mac, "--vlan", &vlan.to_string()].map(String::from).into()
            }
        };
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.daemon.run(&words).unwrap();
    }

    fn make_by_api(&mut self, edit: &Edit) {
        let options = match edit {
            Edit::AddPort(bridge, name, port) => self.options(bridge, name, port),
            _ => Vec::new(),
        };
        let options = options.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let client = &mut self.client;
        let reply = self.runtime.block_on(async {
            match edit.clone() {
                Edit::AddBridge(name) => {
                    client
                        .add_bridge(proto::AddBridgeRequest { name: name.into(), ..Default::default() })
                        .await
                }
                Edit::DelBridge(name) => {
                    client.delete_bridge(proto::DeleteBridgeRequest { name: name.into() }).await
                }
                Edit::Logic(bridge, logic, ageing) => {
                    let params = ageing.map(|ageing| ("ageing".to_owned(), ageing.to_string()));
                    let params = params.into_iter().collect();
                    client
                        .set_logic(proto::SetLogicRequest {
                            bridge: bridge.into(),
                            logic: logic.into(),
                            params,
                        })
                        .await
                        .map(|reply| reply.map(|_| proto::Done::default()))
                }
                Edit::AddPort(bridge, name, port) => {
                    let request = proto::AddPortRequest {
                        bridge: bridge.into(),
                        name: name.into(),
                        r#type: kind(&port).into(),
                        options,
                        admin: admin(port.up).into(),
                        mtu: Some(port.mtu),
                        vlan: port.vlan.into(),
                        ..Default::default()
                    };
                    client.add_port(request).await
                }
                Edit::SetPort(bridge, name, up, mtu, vlan) => {
                    let request = proto::SetPortRequest {
                        bridge: bridge.into(),
                        name: name.into(),
                        admin: Some(admin(up).into()),
                        mtu: Some(mtu),
                        vlan: Some(vlan.into()),
                        ..Default::default()
                    };
                    client.set_port(request).await
                }
                Edit::DelPort(bridge, name) => {
                    client
                        .delete_port(proto::DeletePortRequest { bridge: bridge.into(), name: name.into() })
                        .await
                }
                Edit::AddStation(bridge, (vlan, mac), port) => {
                    let request = proto::AddFdbEntryRequest {
                        bridge: bridge.into(),
                        mac: mac.into(),
                        vlan: Some(vlan.into()),
                        port: port.into(),
                    };
                    client.add_fdb_entry(request).await
                }
                Edit::AddMirror(bridge, name, from) => {
                    let mirror = proto::Mirror {
                        bridge: bridge.into(),
                        name: name.into(),
                        from: vec![from.into()],
                        to: WATCHER.into(),
                        vlan: 99,
                        ..Default::default()
                    };
                    client.add_mirror(proto::AddMirrorRequest { mirror: Some(mirror) }).await
                }
                Edit::DelMirror(bridge, name) => {
                    let request = proto::DeleteMirrorRequest { bridge: bridge.into(), name: name.into() };
                    client.delete_mirror(request).await
                }
                Edit::DelStation(bridge, (vlan, mac)) => {
                    let request = proto::DeleteFdbEntryRequest {
                        bridge: bridge.into(),
                        mac: mac.into(),
                        vlan: Some(vlan.into()),
                        port: String::new(),
                    };
                    client.delete_fdb_entry(request).await
                }
            }
        });
        reply.unwrap_or_else(|status| panic!("{edit:?}: {status}"));
    }

    /// Compares the running configuration with the model.
    fn check(&self, model: &Model) {
        let ports = self.daemon.json(&["port", "list"]).unwrap();
        let ports: BTreeMap<(String, String), Value> = ports["ports"]
            .as_array()
            .unwrap()
            .iter()
            .map(|port| ((text(&port["bridge"]), text(&port["name"])), port.clone()))
            .filter(|((bridge, _), _)| bridge != "keep")
            .collect();
        let wanted = model
            .iter()
            .flat_map(|(bridge, it)| it.ports.iter().map(move |(port, it)| ((*bridge, *port), it)));
        let mut count = 0;
        for ((bridge, name), port) in wanted {
            count += 1;
            let runs = ports.get(&(bridge.to_owned(), name.to_owned()));
            let runs = runs.unwrap_or_else(|| panic!("port {name} of {bridge} does not run"));
            assert_eq!(runs["type"], kind(port), "{runs}");
            assert_eq!(runs["admin"], admin(port.up), "{runs}");
            assert_eq!(runs["mtu"], port.mtu, "{runs}");
            assert_eq!(runs["vlan"], port.vlan, "{runs}");
            for (key, value) in self.options(bridge, name, port) {
                assert_eq!(runs["options"][key], value, "{runs}");
            }
            if port.kind == Kind::Tap {
                assert_eq!(runs["link"], if port.up { "up" } else { "down" }, "{runs}");
                let path = format!("/sys/class/net/{}/mtu", self.interface(bridge, name));
                let mtu = self.netns.run(&["cat", &path]).unwrap();
                assert_eq!(mtu.trim(), if port.mtu == 0 { "1500".into() } else { port.mtu.to_string() });
            }
        }
        assert_eq!(count, ports.len(), "{ports:?}");

        let bridges = self.daemon.json(&["bridge", "list"]).unwrap();
        let bridges: Vec<_> =
            bridges["bridges"].as_array().unwrap().iter().filter(|bridge| bridge["name"] != "keep").collect();
        assert_eq!(
            bridges.iter().map(|bridge| text(&bridge["name"])).collect::<Vec<_>>(),
            model.keys().copied().collect::<Vec<_>>()
        );
        for (runs, (name, wanted)) in bridges.iter().zip(model) {
            let mirrors = self.daemon.json(&["mirror", "list", name]).unwrap();
            let found: Vec<_> = mirrors["mirrors"]
                .as_array()
                .unwrap()
                .iter()
                .map(|mirror| (text(&mirror["name"]), text(&mirror["from"][0])))
                .collect();
            let expected: Vec<_> = wanted
                .mirrors
                .iter()
                .map(|(mirror, from)| ((*mirror).to_owned(), (*from).to_owned()))
                .collect();
            assert_eq!(found, expected, "bridge {name}");
            assert_eq!(runs["logic"]["name"], wanted.logic, "{runs}");
            if wanted.logic == "learning" {
                let ageing = wanted.ageing.unwrap_or(300).to_string();
                assert_eq!(runs["logic"]["params"]["ageing"], ageing, "{runs}");
                let entries = self.daemon.json(&["fdb", "show", name]).unwrap();
                let entries =
                    entries["entries"].as_array().unwrap().iter().filter(|entry| entry["static"] == true);
                let found: BTreeMap<(u64, String), String> = entries
                    .map(|entry| {
                        ((entry["vlan"].as_u64().unwrap(), text(&entry["mac"])), text(&entry["port"]))
                    })
                    .collect();
                let stations = wanted.stations.iter();
                let stations: BTreeMap<(u64, String), String> = stations
                    .map(|((vlan, mac), port)| ((u64::from(*vlan), (*mac).to_owned()), (*port).to_owned()))
                    .collect();
                assert_eq!(found, stations, "bridge {name}");
            }
        }
        let path = self.write(model);
        assert_eq!(self.daemon.run(&["config", "diff", &path]).unwrap(), "no differences\n");
    }

    /// Ports with a missing namespace report it, and recover when the namespace is created.
    fn create_missing_namespace(&mut self, model: &mut Model) {
        let waiting: Vec<(&str, &str, bool)> = model
            .iter()
            .flat_map(|(bridge, it)| it.ports.iter().map(move |(port, it)| (*bridge, *port, it)))
            .filter(|(_, _, it)| it.kind == Kind::Later)
            .map(|(bridge, port, it)| (bridge, port, it.up))
            .collect();
        if waiting.is_empty() {
            return;
        }
        for (bridge, port, up) in &waiting {
            let reason = self.daemon.port(bridge, port).unwrap().reason().to_owned();
            assert!(!up || reason.contains(&self.later), "{bridge} {port}: {reason}");
        }
        output("ip", &["netns", "add", &self.later]).unwrap();
        for (bridge, port, up) in waiting {
            until(&format!("port {port} of {bridge} to recover"), LIMIT, || {
                let found = self.daemon.port(bridge, port)?;
                let recovered = !found.reason().contains(&self.later) && found.is_up() == up;
                let existing =
                    output("ip", &["-n", &self.later, "link", "show", &self.interface(bridge, port)]);
                Ok((recovered && existing.is_ok()).then_some(()))
            })
            .unwrap();
            self.make_by_api(&Edit::DelPort(bridge, port));
            let bridge = model.get_mut(bridge).unwrap();
            bridge.ports.remove(port);
            bridge.remove_dependents(port);
        }
        output("ip", &["netns", "del", &self.later]).unwrap();
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn admin(up: bool) -> &'static str {
    if up { "up" } else { "down" }
}

fn kind(port: &Port) -> &'static str {
    if port.kind == Kind::Memif { "memif" } else { "tap" }
}

#[test]
fn random_edits_converge_without_disturbing_others() {
    let _machine = exclusive();
    let mut rig = Rig::new();
    let mut options = Options::new(vec![rig.daemon.memif("memif", 0), rig.daemon.memif("memif", 1)]);
    options.rate = Rate::Pps(5000.0);
    options.duration = Duration::from_secs(3600);
    let traffic = Background::start(options).unwrap();
    let mut model = Model::new();
    for sequence in 0..if long() { 200 } else { 20 } {
        let mut rng = Rng::with_seed(sequence);
        for _ in 0..8 {
            let way = pick(&mut rng, &[Way::CommandLine, Way::Api, Way::Apply, Way::Hangup]);
            let by_file = matches!(way, Way::Apply | Way::Hangup);
            let Some(edit) = random_edit(&mut rng, &mut model, by_file) else { continue };
            rig.make(&edit, way, &model);
        }
        let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| rig.check(&model)));
        assert!(seen.is_ok(), "sequence {sequence} does not converge: {}", rig.toml(&model));
        rig.create_missing_namespace(&mut model);
        assert!(traffic.is_running(), "the bystanders have ended in sequence {sequence}");
    }
    let report = traffic.stop().unwrap();
    assert!(report.ok && report.received() > 1000, "{report}");
}
