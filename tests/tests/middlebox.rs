//! `middlebox` with real firewalls: three instances of nftables between a client and a server, each of which accepts
//! only conversations that it has seen from their first packet on.
//!
//! ```text
//!            +-- fw1 --+
//! client -- br-in -- fw2 -- br-out -- server
//!            +-- fw3 --+
//! ```
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use e2e::{Daemon, Netns, Running, binary, config, ping_all, unique, until};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

const LIMIT: Duration = Duration::from_secs(30);
/// A conversation without an answer for so long is broken.
const SILENCE: Duration = Duration::from_secs(4);
const PORT: u16 = 5001;
/// Addresses of the firewalls, the same for all: only the switch knows which of them gets a packet.
const GATES: [(&str, &str); 2] =
    [("10.79.1.1/24", "02:00:00:79:01:01"), ("10.79.2.1/24", "02:00:00:79:02:01")];
const ENDS: [(&str, &str); 2] =
    [("10.79.1.2/24", "02:00:00:79:01:02"), ("10.79.2.2/24", "02:00:00:79:02:02")];

const RULES: &str = "table inet t {
  counter dropped { }
  set seen { type inet_service; flags dynamic; size 65535; }
  chain forward {
    type filter hook forward priority 0; policy drop;
    ct state established accept
    ct state new tcp dport 5001 tcp flags & (fin|syn|rst|ack) == syn add @seen { tcp sport } accept
    counter name dropped drop
  }
}";

fn bare(address: &str) -> &str {
    address.split('/').next().unwrap()
}

/// Tells an interface's neighbour, since nobody can ask for it through several firewalls.
fn introduce(netns: &Netns, interface: &str, neighbour: (&str, &str)) {
    let neighbour = [bare(neighbour.0), "lladdr", neighbour.1, "dev", interface, "nud", "permanent"];
    netns.run(&[&["ip", "neigh", "replace"], &neighbour[..]].concat()).unwrap();
}

/// A firewall with a leg on each side.
struct Firewall {
    netns: Netns,
    legs: [String; 2],
}

impl Firewall {
    fn new() -> Self {
        let netns = Netns::new().unwrap();
        netns.run(&["sysctl", "-qw", "net.ipv4.ip_forward=1"]).unwrap();
        let rules = std::env::temp_dir().join(unique("nft"));
        std::fs::write(&rules, RULES).unwrap();
        netns.run(&["nft", "-f", rules.to_str().unwrap()]).unwrap();
        std::fs::remove_file(rules).unwrap();
        // A conversation that began elsewhere is none.
        netns.run(&["sysctl", "-qw", "net.netfilter.nf_conntrack_tcp_loose=0"]).unwrap();
        Self { netns, legs: [unique("t"), unique("t")] }
    }

    /// Tells its legs' neighbours, once the switch has made the legs.
    fn introduce(&self) {
        self.legs.iter().zip(ENDS).for_each(|(leg, end)| introduce(&self.netns, leg, end));
    }

    /// Returns the number of packets that belong to no conversation.
    fn dropped(&self) -> u64 {
        let text = self.netns.run(&["nft", "list", "counter", "inet", "t", "dropped"]).unwrap();
        let mut words = text.split_whitespace().skip_while(|word| *word != "packets").skip(1);
        words.next().unwrap().parse().unwrap()
    }

    /// Returns the conversations that have begun here.
    fn seen(&self) -> Conversations {
        let text = self.netns.run(&["nft", "list", "set", "inet", "t", "seen"]).unwrap();
        let elements = text.split_once("elements = {").map_or("", |(_, elements)| elements);
        let numbers = elements.split([',', '}']).map_while(|number| number.trim().parse().ok());
        numbers.collect()
    }
}

/// Conversations, by the client's port number.
type Conversations = BTreeSet<u16>;

/// Conversations, each of which sends a byte some time after the last one has returned.
struct Load {
    stop: AtomicBool,
    /// This time.
    pause: Duration,
    /// Bounds the handshakes at a time: more than the server's backlog would wait for retransmissions.
    handshakes: Semaphore,
    /// Bytes returned to each.
    answers: Mutex<BTreeMap<u16, u64>>,
}

impl Load {
    /// Prepares so many conversations, whose packets the queues on their way can hold.
    fn of(conversations: usize) -> Self {
        let pause = Duration::from_micros(50) * conversations as u32;
        let handshakes = Semaphore::new(256);
        Self { stop: AtomicBool::new(false), pause, handshakes, answers: Mutex::default() }
    }

    /// Opens so many conversations, waits until all have begun, and keeps them going on the calling runtime. Each ends
    /// when it is stopped, or as broken with its number.
    async fn add(self: &Arc<Self>, count: usize, running: &mut JoinSet<Option<u16>>) {
        let wanted = self.answers().len() + count;
        for _ in 0..count {
            let load = self.clone();
            running.spawn(async move {
                let socket = TcpSocket::new_v4().unwrap();
                let server = format!("{}:{PORT}", bare(ENDS[1].0)).parse().unwrap();
                let handshake = load.handshakes.acquire().await.unwrap();
                let mut stream = timeout(LIMIT, socket.connect(server)).await.unwrap().unwrap();
                drop(handshake);
                let own = stream.local_addr().unwrap().port();
                load.answers.lock().unwrap().insert(own, 0);
                while !load.stop.load(Relaxed) {
                    match timeout(SILENCE, echo(&mut stream)).await {
                        Ok(Ok(())) => *load.answers.lock().unwrap().get_mut(&own).unwrap() += 1,
                        _ => return Some(own),
                    }
                    tokio::time::sleep(load.pause).await;
                }
                None
            });
        }
        while self.answers().len() < wanted {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn answers(&self) -> BTreeMap<u16, u64> {
        self.answers.lock().unwrap().clone()
    }

    /// Waits until each conversation but these has got further answers.
    async fn progress(&self, but: &Conversations, when: &str) {
        let before = self.answers();
        let still = || -> Conversations {
            let now = self.answers();
            let stand = before.iter().filter(|(own, answers)| now.get(*own) == Some(*answers));
            stand.map(|(own, _)| *own).filter(|own| !but.contains(own)).collect()
        };
        let all = async {
            while !still().is_empty() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let is_moving = timeout(LIMIT, all).await.is_ok();
        assert!(
            is_moving,
            "{when}, {} conversations stand still, such as {:?}",
            still().len(),
            still().first()
        );
    }
}

async fn echo(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(b"x").await?;
    stream.read_exact(&mut [0]).await.map(drop)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Port names of the firewalls' legs on a side, with the list of their function.
fn functions(side: usize, numbers: &[usize]) -> Vec<String> {
    numbers.iter().map(|n| format!("fw{n}-{}={PORT}/tcp", ["in", "out"][side])).collect()
}

/// Three firewalls share conversations; one is lost, another one comes.
fn firewalls(conversations: usize) {
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).unwrap();
    let ends = [Netns::new().unwrap(), Netns::new().unwrap()];
    let mut walls: Vec<_> = (0..4).map(|_| Firewall::new()).collect();
    let interfaces = [unique("t"), unique("t")];
    let mut text = String::new();
    for (side, bridge) in ["br-in", "br-out"].into_iter().enumerate() {
        text += &config::bridge(bridge, "middlebox");
        let lists = functions(side, &[1, 2, 3]).join("\", ").replace('=', " = \"");
        text += &format!("params = {{ return = \"end{side}\", {lists}\" }}\n");
        let mac = |(_, mac): (&str, &str)| format!("mac = \"{mac}\"\n");
        let (end, of_end) = (format!("end{side}"), mac(ENDS[side]));
        text += &config::tap(&end, &interfaces[side], ends[side].name(), &[ENDS[side].0], &of_end);
        for (number, wall) in (1..=3).zip(&walls) {
            let port = format!("fw{number}-{}", ["in", "out"][side]);
            text +=
                &config::tap(&port, &wall.legs[side], wall.netns.name(), &[GATES[side].0], &mac(GATES[side]));
        }
    }
    let daemon = Daemon::start(&text).unwrap();
    for side in 0..2 {
        introduce(&ends[side], &interfaces[side], GATES[side]);
        ends[side].run(&["ip", "route", "add", "default", "via", bare(GATES[side].0)]).unwrap();
    }
    walls[..3].iter().for_each(Firewall::introduce);

    let _server = serve(&ends[1], PORT);
    ends[0].enter(|| runtime().block_on(drive(&daemon, &mut walls, conversations))).unwrap();
}

async fn drive(daemon: &Daemon, walls: &mut Vec<Firewall>, conversations: usize) {
    let (load, mut running) = (Arc::new(Load::of(conversations)), JoinSet::new());
    load.add(conversations, &mut running).await;
    load.progress(&BTreeSet::new(), "with three firewalls").await;
    let seen: Vec<_> = walls[..3].iter().map(Firewall::seen).collect();
    assert!(seen.iter().all(|seen| seen.len() > conversations / 5));
    assert_eq!(seen.iter().map(BTreeSet::len).sum::<usize>(), conversations, "each meets one firewall");
    let dropped: u64 = walls[..3].iter().map(Firewall::dropped).sum();
    assert_eq!(dropped, 0, "each firewall sees both directions of its conversations");

    // One firewall dies: its conversations break, and no other.
    let lost = seen[1].clone();
    drop(walls.remove(1));
    let mut broken = BTreeSet::new();
    while broken != lost {
        let ended =
            timeout(LIMIT, running.join_next()).await.expect("conversations of a dead firewall live on");
        let own = ended.unwrap().unwrap().expect("nothing was stopped");
        assert!(lost.contains(&own), "conversation {own} was not the dead firewall's");
        broken.insert(own);
    }
    load.progress(&broken, "with two firewalls").await;

    // Another one comes: nothing that works breaks, and it gets its share of what is new.
    for (side, bridge) in ["br-in", "br-out"].into_iter().enumerate() {
        let name = format!("fw4-{}", ["in", "out"][side]);
        let port =
            [&name, "--type", "tap", "--interface", &walls[2].legs[side], "--netns", walls[2].netns.name()];
        let (address, mac) = GATES[side];
        daemon
            .run(&[&["port", "add", bridge], &port[..], &["--addresses", address, "--mac", mac]].concat())
            .unwrap();
    }
    walls[2].introduce();
    for (side, bridge) in ["br-in", "br-out"].into_iter().enumerate() {
        let end = format!("return=end{side}");
        let lists = functions(side, &[1, 3, 4]);
        let params = std::iter::once(&end).chain(&lists).flat_map(|param| ["--param", param]);
        let set: Vec<_> = ["logic", "set", bridge, "middlebox"].into_iter().chain(params).collect();
        daemon.run(&set).unwrap();
    }
    load.progress(&broken, "with another firewall").await;
    load.add(conversations / 2, &mut running).await;
    load.progress(&broken, "with more conversations").await;
    let share = walls[2].seen().len();
    assert!(share > conversations / 10, "the new firewall got {share} of {}", conversations / 2);
    assert_eq!(walls[2].dropped(), 0, "the new firewall sees whole conversations only");

    load.stop.store(true, Relaxed);
    while let Some(ended) = running.join_next().await {
        assert_eq!(ended.unwrap(), None, "a conversation broke that was not the dead firewall's");
    }
    let shown = daemon.json(&["logic", "show", "br-in"]).unwrap();
    let value = |name: &str| {
        let counters = shown["counters"].as_array().unwrap();
        counters.iter().find(|counter| counter["name"] == name).unwrap()["value"].as_u64().unwrap()
    };
    assert!(value("matched") > 0 && value("returned") > 0);
    assert_eq!(value("without_instance"), 0);
}

#[test]
fn firewalls_see_whole_conversations_and_come_and_go() {
    let is_long = std::env::var_os("MSWITCH_LONG").is_some();
    firewalls(if is_long { 10_000 } else { 500 });
}

/// Starts the server of conversations, and waits until it listens.
fn serve(netns: &Netns, port: u16) -> Running {
    let program = binary("echo-server", "ECHO_SERVER").unwrap();
    let server = netns.start(&[program.to_str().unwrap(), &format!("0.0.0.0:{port}")]).unwrap();
    let is_ready = || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
    until("the server listens", LIMIT, || Ok(netns.enter(is_ready)?.then_some(()))).unwrap();
    server
}

/// The example: conversations with one address are shared by two servers, everything else goes by address.
#[test]
fn two_servers_share_an_address() {
    let [client, web1, web2] = std::array::from_fn(|_| Netns::new().unwrap());
    let mut text = include_str!("../../examples/middlebox/web.toml").to_owned();
    for (name, netns) in [("client", &client), ("web1", &web1), ("web2", &web2)] {
        let tap = format!("name = \"{name}\"\ntype = \"tap\"\n");
        assert!(text.contains(&tap), "the example has no TAP port {name}");
        text = text.replace(&tap, &format!("{tap}netns = \"{}\"\n", netns.name()));
    }
    let daemon = Daemon::start(&text).unwrap();
    let _servers = [&web1, &web2].map(|netns| serve(netns, 80));
    let converse = || {
        for _ in 0..40 {
            let mut stream = std::net::TcpStream::connect("10.9.0.80:80").unwrap();
            stream.set_read_timeout(Some(LIMIT)).unwrap();
            for _ in 0..10 {
                std::io::Write::write_all(&mut stream, b"x").unwrap();
                std::io::Read::read_exact(&mut stream, &mut [0]).unwrap();
            }
        }
    };
    client.enter(converse).unwrap();
    let shown = daemon.json(&["logic", "show", "br0"]).unwrap();
    let tables = shown["tables"].as_array().unwrap();
    let instances = tables.iter().find(|table| table["name"] == "stage1_instances").unwrap();
    for row in instances["rows"].as_array().unwrap() {
        assert!(row["cells"][2].as_str().unwrap().parse::<u64>().unwrap() > 5, "{instances}");
    }
    // A ping is for no function: one server answers it.
    ping_all(&client, "10.9.0.80", 3, "0.01").unwrap();
}

#[test]
fn the_way_of_a_packet_is_explained() {
    let netns = Netns::new().unwrap();
    let mut text = config::bridge("br0", "middlebox");
    text += "params = { dns = \"53\", web = \"80/tcp\", default = \"uplink\" }\n";
    for name in ["uplink", "web", "dns", "lan"] {
        text += &config::tap(name, &unique("t"), netns.name(), &[], "");
    }
    let daemon = Daemon::start(&text).unwrap();
    until("all ports are up", LIMIT, || {
        Ok(daemon.ports("br0")?.iter().all(|port| port.is_up()).then_some(()))
    })
    .unwrap();
    let packet = "in_port=lan,tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_src=1234,tp_dst=80";
    let web = daemon.run(&["trace", "br0", "--packet", packet]).unwrap();
    assert!(
        web.contains("the function for 80/tcp has one instance") && web.contains("it goes to web"),
        "{web}"
    );
}
