//! The example `cache-agent`: a flow's first packets pass the worker, and its next ones stay in the kernel.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use e2e::{Daemon, Netns, Running, binary, cards, config, ping_all, until};
use p4runtime_proto::v1::p4_runtime_client::P4RuntimeClient;
use p4runtime_proto::v1::stream_message_request::Update as Request;
use p4runtime_proto::v1::stream_message_response::Update as Response;
use p4runtime_proto::v1::{
    Entity, MasterArbitrationUpdate, ReadRequest, Role, StreamMessageRequest, TableEntry, Uint128, Update,
    WriteRequest, entity, update,
};
use tokio_stream::StreamExt;
use tonic::transport::Endpoint;

const LIMIT: Duration = Duration::from_secs(20);
const PORTS: [&str; 2] = ["v1", "v2"];

/// Hosts 10.79.3.1 and 10.79.3.2 behind veth interfaces, ports 1 and 2 of a bridge with the example's program.
struct Rig {
    // Dropped in this order: the daemon, then namespaces.
    daemon: Daemon,
    hosts: [Netns; 2],
    _machine: Netns,
}

/// An agent with its log.
struct Agent {
    process: Running,
    log: PathBuf,
}

fn program() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/cache-agent/cache.p4").canonicalize().unwrap()
}

impl Rig {
    /// `limits`: further keys of the agent's role.
    fn start(limits: &str) -> Rig {
        let machine = Netns::new().unwrap();
        let hosts: [Netns; 2] = std::array::from_fn(|_| Netns::new().unwrap());
        let mut text = config::bridge("br0", &format!("p4:{}", program().display()));
        text += "params = { xdp = \"on\" }\n[[bridge.p4.role]]\nname = \"cache\"\ntables = [\"cache\"]\n";
        text += &format!("digests = [\"decision_t\"]\n{limits}\n");
        for (number, (end, host)) in (1..).zip(PORTS.iter().zip(&hosts)) {
            cards::connect(&machine, end, host, &format!("10.79.3.{number}")).unwrap();
            text += &cards::port(&machine, end, number);
        }
        let daemon = Daemon::start(&text).unwrap();
        let rig = Rig { daemon, hosts, _machine: machine };
        for port in PORTS {
            rig.daemon.wait_up("br0", port).unwrap();
        }
        for (from, to) in [(1, 2), (2, 1)] {
            rig.run(&["p4", "add", "br0", &format!("others port={from} => to(port={to})")]);
            rig.run(&["p4", "add", "br0", &format!("{} => forward(port={to})", rule(from))]);
        }
        cards::until_runs(&rig.daemon, "br0", "1, 2").unwrap();
        rig
    }

    fn run(&self, words: &[&str]) -> String {
        self.daemon.run(words).unwrap()
    }

    fn figure(&self, name: &str) -> Option<String> {
        cards::figure(&self.daemon, "br0", name).unwrap()
    }

    fn count(&self, name: &str) -> u64 {
        self.figure(name).unwrap().parse().unwrap()
    }

    /// Packets that workers have taken in.
    fn taken(&self) -> [u64; 2] {
        PORTS.map(|port| cards::taken(&self.daemon, "br0", port).unwrap())
    }

    /// The flows in the cache, as lines.
    fn cached(&self) -> Vec<String> {
        let shown = self.run(&["p4", "tables", "br0", "cache"]);
        shown.lines().filter(|line| line.contains("=> cached(")).map(str::to_owned).collect()
    }

    /// Waits until so many flows with this text are in the cache.
    fn until_cached(&self, count: usize, text: &str) {
        until(&format!("{count} flows with {text:?} in the cache"), LIMIT, || {
            let lines = self.cached();
            Ok((lines.iter().filter(|line| line.contains(text)).count() == count).then_some(()))
        })
        .unwrap();
    }

    fn ping(&self, count: u32) {
        ping_all(&self.hosts[0], "10.79.3.2", count, "0.01").unwrap();
    }

    fn socket(&self) -> String {
        self.daemon.path("br0.p4rt")
    }

    /// An agent that is not ready yet. Its log is in the daemon's folder.
    fn start_agent(&self, name: &str, more: &[&str]) -> Agent {
        let log = PathBuf::from(self.daemon.path(name));
        let file = File::create(&log).unwrap();
        let mut command = Command::new(agent_binary());
        command.args(["--socket", &self.socket()]).args(more).stdin(Stdio::null());
        command.stdout(file.try_clone().unwrap()).stderr(file);
        Agent { process: Running::start(&mut command).unwrap(), log }
    }

    fn agent(&self, name: &str, more: &[&str]) -> Agent {
        let agent = self.start_agent(name, more);
        agent.until("ready: ");
        agent
    }
}

impl Agent {
    fn text(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    fn until(&self, text: &str) {
        until(&format!("{text:?} in the agent's log"), LIMIT, || {
            Ok(self.text().contains(text).then_some(()))
        })
        .unwrap_or_else(|error| panic!("{error}: {}", self.text()));
    }

    /// Waits until it fails, and returns its log.
    fn failure(mut self) -> String {
        assert!(!self.process.wait(LIMIT).unwrap().success());
        self.text()
    }
}

fn agent_binary() -> PathBuf {
    binary("mswitch-cache-agent", "MSWITCH_CACHE_AGENT_BIN").unwrap()
}

/// The rule for packets of a host.
fn rule(host: u32) -> String {
    format!("rules src=10.79.3.{host}&&&255.255.255.255 prio=10")
}

#[test]
fn decided_flows_stay_in_the_kernel() {
    let rig = Rig::start("");
    let mut agent = rig.agent("agent.log", &[]);
    assert!(agent.text().contains("flows 0/1000, generation 1"), "{}", agent.text());
    rig.ping(1);
    assert!(rig.taken().iter().all(|packets| *packets > 0), "the first packets pass the worker");
    rig.until_cached(2, "generation=0x1");

    let (taken, sent) = (rig.taken(), rig.count("sent to other interfaces"));
    rig.ping(200);
    assert_eq!(rig.taken(), taken, "{:#?}", rig.cached());
    assert!(rig.count("sent to other interfaces") >= sent + 400);
    // Hits in the kernel are read like others.
    let flow = "src=10.79.3.1 dst=10.79.3.2 protocol=1 sport=0 dport=0 packets=";
    let cached = rig.cached();
    let line = cached.iter().find(|line| line.contains(flow)).unwrap_or_else(|| panic!("{cached:#?}"));
    let digits = line.split_once("packets=").unwrap().1.split(' ').next().unwrap();
    assert!(digits.parse::<u64>().unwrap() >= 200, "{line}");
    assert!(line.contains("=> cached(port=2, generation=0x1)"), "{line}");
    agent.until("flows 2/1000, generation 1, hits ");

    // Without the agent, what is cached stays in the kernel, and the worker does the rest.
    agent.process.kill().unwrap();
    rig.ping(50);
    assert_eq!(rig.taken(), taken);
    let udp = "for port in 7001 7002 7003; do echo >/dev/udp/10.79.3.2/$port; done";
    rig.hosts[0].run(&["bash", "-c", udp]).unwrap();
    until("packets at the worker", LIMIT, || Ok((rig.taken()[0] >= taken[0] + 3).then_some(()))).unwrap();
    assert_eq!(rig.cached().len(), 2);

    // Another one goes on with what is there, and ends when it is told to.
    let mut agent = rig.agent("again.log", &[]);
    assert!(agent.text().contains("ready: role \"cache\", flows 2/1000"), "{}", agent.text());
    assert!(agent.process.terminate().unwrap().success());
    assert!(agent.text().ends_with("ends: flows 2/1000 stay in the cache\n"), "{}", agent.text());
}

#[test]
fn changed_rules_hold_from_the_next_packet_on() {
    let rig = Rig::start("");
    let _agent = rig.agent("agent.log", &[]);
    rig.ping(1);
    rig.until_cached(2, "generation=0x1");
    rig.ping(20);

    rig.run(&["p4", "mod", "br0", &format!("{} => deny()", rule(1))]);
    rig.run(&["p4", "mod", "br0", "current default => set_generation(number=2)"]);
    let denied = |count| {
        let ping = ["ping", "-c", count, "-i", "0.01", "-W", "1", "10.79.3.2"];
        let text = rig.hosts[0].run(&ping).unwrap_err().to_string();
        assert!(text.contains("100% packet loss"), "{text}");
    };
    denied("5");
    // That, too, is a decision for the kernel; those of the old generation go.
    rig.until_cached(1, "cached(port=511, generation=0x2)");
    rig.until_cached(0, "generation=0x1");
    let (taken, dropped) = (rig.taken(), rig.count("dropped"));
    denied("20");
    assert_eq!(rig.taken(), taken);
    assert!(rig.count("dropped") >= dropped + 20);

    rig.run(&["p4", "mod", "br0", &format!("{} => forward(port=2)", rule(1))]);
    rig.run(&["p4", "mod", "br0", "current default => set_generation(number=3)"]);
    rig.ping(5);
    rig.until_cached(2, "generation=0x3");
}

/// Sends a packet of its own flow to each of these ports, several times.
fn many_flows(rig: &Rig, ports: &str) {
    let send = format!("for port in {{{ports}}}; do echo >/dev/udp/10.79.3.2/$port; done 2>/dev/null");
    rig.hosts[0].run(&["bash", "-c", &format!("{send}; {send}; true")]).unwrap();
}

#[test]
fn the_cache_stays_bounded() {
    let rig = Rig::start("max-entries = 40");
    let mut agent = rig.agent("agent.log", &["--entries", "8"]);
    until("evictions", LIMIT, || {
        many_flows(&rig, "7000..7099");
        assert!(rig.cached().len() <= 8, "{:#?}", rig.cached());
        let evicts = |line: &str| line.contains(", evicted ") && !line.contains(", evicted 0");
        Ok(agent.text().lines().any(evicts).then_some(()))
    })
    .unwrap();
    assert!(rig.cached().len() <= 8);
    // Flows that are used stay.
    rig.ping(3);
    rig.until_cached(2, "protocol=1 ");
    assert!(agent.process.terminate().unwrap().success());

    // The switch's own limit holds whatever the agent wants; it learns of it and goes on.
    let agent = rig.agent("greedy.log", &[]);
    many_flows(&rig, "8000..8199");
    agent.until("the limit of the role is reached: the cache keeps 40 flows from now on");
    assert!(agent.text().contains("has 40 entries of 40 that it may have"), "{}", agent.text());
    many_flows(&rig, "9000..9009");
    rig.until_cached(40, "");
}

#[test]
fn the_agent_says_what_is_wrong() {
    let rig = Rig::start("");
    let output = Command::new(agent_binary()).args(["--socket", "/no/socket"]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    let cannot = "mswitch-cache-agent: cannot connect to /no/socket: No such file or directory";
    assert!(!output.status.success() && text.starts_with(cannot), "{text}");

    let agent = rig.agent("agent.log", &[]);
    let text = rig.start_agent("second.log", &[]).failure();
    assert!(text.contains("another controller has role \"cache\" with election id 1; stop it, or"), "{text}");

    // A role that the file does not name has no limits.
    let text = rig.agent("other.log", &["--role", "unlisted"]).text();
    assert!(text.contains("ready: role \"unlisted\""), "{text}");

    rig.run(&["bridge", "del", "br0"]);
    agent.until("the connection to the switch has ended: ");
}

/// Writes an entry of the table `rules` as the role of the agent; returns the refusal.
async fn write_rule(socket: String) -> tonic::Status {
    let endpoint = Endpoint::from_shared(format!("unix://{socket}")).unwrap();
    let mut client = P4RuntimeClient::new(endpoint.connect().await.unwrap());
    let election_id = Some(Uint128 { high: 0, low: 9 });
    let role = Some(Role { name: "cache".into(), ..Role::default() });
    let claim = MasterArbitrationUpdate { device_id: 1, role, election_id, status: None };
    let claim = StreamMessageRequest { update: Some(Request::Arbitration(claim)) };
    let requests = tokio_stream::once(claim).chain(tokio_stream::pending());
    let mut answers = client.stream_channel(requests).await.unwrap().into_inner();
    let answer = answers.message().await.unwrap().unwrap().update;
    assert!(
        matches!(&answer, Some(Response::Arbitration(answer)) if answer.status.as_ref().unwrap().code == 0)
    );

    // What is there may be read.
    let rules = TableEntry::default();
    let entities = vec![Entity { entity: Some(entity::Entity::TableEntry(rules)) }];
    let request = ReadRequest { device_id: 1, entities, ..ReadRequest::default() };
    let mut parts = client.read(request).await.unwrap().into_inner();
    let mut entities = Vec::new();
    while let Some(part) = parts.message().await.unwrap() {
        entities.extend(part.entities);
    }
    let has_priority = |entity: &&Entity| matches!(&entity.entity, Some(entity::Entity::TableEntry(entry)) if entry.priority > 0);
    let rule = entities.iter().find(has_priority).unwrap().clone();
    let updates = vec![Update { r#type: update::Type::Delete.into(), entity: Some(rule) }];
    let request =
        WriteRequest { device_id: 1, role: "cache".into(), election_id, updates, ..WriteRequest::default() };
    client.write(request).await.unwrap_err()
}

#[test]
fn the_agent_cannot_write_rules() {
    let rig = Rig::start("");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let status = runtime.block_on(write_rule(rig.socket()));
    let expected = "role \"cache\" may not write table Cache.rules (it has tables: cache)";
    assert!(status.message().ends_with(expected), "{status:?}");
    let rules = rig.run(&["p4", "tables", "br0", "rules"]);
    assert_eq!(rules.lines().filter(|line| line.contains("prio=10")).count(), 2, "{rules}");
}
