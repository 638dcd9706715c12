//! Mirrors between real interfaces: the target sees the mirrored traffic, plain or tagged, and other traffic is
//! unaffected.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use bench::pace::Rate;
use bench::session::{Background, Options};
use e2e::{Daemon, Netns, config, output, unique, until};

const LIMIT: Duration = Duration::from_secs(20);

/// Two communicating namespaces, a watching one, and a pair of bystanders.
struct Rig {
    bystanders: Background,
    daemon: Daemon,
    a: Netns,
    watcher: Netns,
    interface: String,
    _b: Netns,
}

impl Rig {
    fn start(more: &str) -> Rig {
        let [a, b, watcher] = [0; 3].map(|_| Netns::new().unwrap());
        let interface = unique("t");
        let ports = config::tap("a", &unique("t"), a.name(), &["10.82.0.1/24"], "")
            + &config::tap("b", &unique("t"), b.name(), &["10.82.0.2/24"], "")
            + &config::tap("watcher", &interface, watcher.name(), &["10.82.0.9/24"], "")
            + &config::memif("left", 0, "")
            + &config::memif("right", 1, "");
        let daemon = Daemon::start(&(config::bridge("br0", "learning") + &ports + more)).unwrap();
        let mut options = Options::new(vec![daemon.memif("memif", 0), daemon.memif("memif", 1)]);
        options.rate = Rate::Pps(2000.0);
        options.duration = Duration::from_secs(3600);
        let bystanders = Background::start(options).unwrap();
        Rig { bystanders, daemon, a, watcher, interface, _b: b }
    }

    fn ping(&self, count: u32) -> bool {
        let count = count.to_string();
        let ping = ["ping", "-q", "-i", "0.02", "-W", "5", "-c", &count, "10.82.0.2"];
        self.a.command(&ping).output().unwrap().status.success()
    }

    /// Repeats `act` until the filter has matched `packets` packets at the watcher, and returns their fields from
    /// tshark.
    fn watch(&self, filter: &str, packets: u32, fields: &[&str], mut act: impl FnMut()) -> Vec<String> {
        let file = self.daemon.path("watched.pcapng");
        let count = packets.to_string();
        let dump = ["tshark", "-q", "-n", "-i", &self.interface, "-f", filter, "-c", &count, "-w", &file];
        let mut dump = self.watcher.start(&dump).unwrap();
        let status = until("the watcher to capture the packets", LIMIT, || {
            act();
            dump.ended()
        });
        assert!(status.unwrap().success());
        let mut arguments = vec!["-n", "-r", &file, "-T", "fields"];
        fields.iter().for_each(|field| arguments.extend(["-e", field]));
        output("tshark", &arguments).unwrap().lines().map(str::to_owned).collect()
    }

    fn finish(self) {
        // A connection starts with at most 200 announcements; verified packets follow.
        let sent = |port| self.daemon.port("br0", port).unwrap().received();
        until("packets of the bystanders", LIMIT, || Ok((sent("left") + sent("right") > 300).then_some(())))
            .unwrap();
        let report = self.bystanders.stop().unwrap();
        assert!(report.ok && report.received() > 50, "{report}");
    }
}

#[test]
fn a_mirror_copies_both_directions() {
    let rig = Rig::start("");
    rig.daemon.run(&["mirror", "add", "br0", "m1", "--from", "a", "--to", "watcher"]).unwrap();
    // One ping at a time: the next request follows the last answer.
    let seen = rig.watch("icmp", 12, &["ip.src", "ip.dst", "icmp.type"], || assert!(rig.ping(1)));
    // Request and answer in turn, each once, although both pass port a.
    let request = "10.82.0.1\t10.82.0.2\t8".to_owned();
    let answer = "10.82.0.2\t10.82.0.1\t0".to_owned();
    let first = usize::from(seen[0] == answer);
    for pair in seen[first..].chunks_exact(2) {
        assert_eq!(pair, [request.clone(), answer.clone()], "{seen:#?}");
    }
    // The target port is reserved for the mirror, so the watcher reaches no other port.
    let ping = ["ping", "-q", "-W", "1", "-c", "2", "-i", "0.1", "10.82.0.1"];
    assert!(!rig.watcher.command(&ping).output().unwrap().status.success());
    let list = rig.daemon.json(&["mirror", "list", "br0"]).unwrap();
    let mirror = &list["mirrors"][0];
    assert_eq!(
        (&mirror["name"], &mirror["direction"], &mirror["to"]),
        (&"m1".into(), &"both".into(), &"watcher".into())
    );
    assert!(mirror["packets"].as_u64().unwrap() >= 12, "{list}");
    let text = rig.daemon.run(&["mirror", "list"]).unwrap();
    assert!(text.starts_with("BRIDGE  MIRROR  FROM  DIRECTION  TO       VLAN"), "{text}");

    rig.daemon.run(&["mirror", "del", "br0", "m1"]).unwrap();
    assert_eq!(rig.daemon.run(&["mirror", "list"]).unwrap(), "no mirrors\n");
    until("the watcher to be reachable again", LIMIT, || {
        Ok(rig.watcher.command(&ping).output()?.status.success().then_some(()))
    })
    .unwrap();
    rig.finish();
}

#[test]
fn tagged_copies_share_a_trunk() {
    let rig = Rig::start(
        "[[bridge.mirror]]\nname = \"far\"\nfrom = [\"a\"]\ndirection = \"in\"\nto = \"watcher\"\nvlan = 999\n",
    );
    let fields = ["vlan.id", "ip.src", "icmp.type"];
    let seen = rig.watch("vlan 999 and icmp", 5, &fields, || assert!(rig.ping(5)));
    assert!(
        seen.iter().all(|line| line == "999\t10.82.0.1\t8"),
        "packets other than those from a: {seen:#?}"
    );
    // Other traffic of the target continues.
    let ping = ["ping", "-q", "-W", "5", "-c", "2", "-i", "0.1", "10.82.0.1"];
    rig.watcher.run(&ping).unwrap();
    let saved = rig.daemon.run(&["config", "show"]).unwrap();
    assert!(saved.contains("[[bridge.mirror]]") && saved.contains("vlan = 999"), "{saved}");
    rig.daemon.run(&["port", "del", "br0", "a"]).unwrap();
    assert_eq!(
        rig.daemon.run(&["mirror", "list"]).unwrap(),
        "no mirrors\n",
        "a mirror without sources must be removed"
    );
    rig.finish();
}

#[test]
fn invalid_mirrors_are_refused() {
    let rig = Rig::start("");
    rig.daemon.run(&["mirror", "add", "br0", "m1", "--to", "watcher"]).unwrap();
    let refusal = |arguments: &[&str]| {
        let output = rig.daemon.cli(&[&["mirror"], arguments].concat()).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let message = refusal(&["add", "br0", "m2", "--from", "ab", "--to", "watcher"]);
    assert!(message.contains("bridge \"br0\": the bridge has no port `ab`"), "{message}");
    let message = refusal(&["add", "br0", "m2", "--from", "a", "--from", "b", "--to", "b"]);
    assert!(message.contains("`b` receives the copies, so its own packets cannot be copied"), "{message}");
    let message = refusal(&["add", "br0", "m1", "--to", "a"]);
    assert!(message.contains("already has a mirror `m1`"), "{message}");
    let message = refusal(&["add", "br9", "m1", "--to", "a"]);
    assert!(message.contains("there is no bridge \"br9\""), "{message}");
    let message = refusal(&["del", "br0", "m3"]);
    assert!(message.contains("has no mirror `m3`") && message.contains("`m1`"), "{message}");
    assert_eq!(rig.daemon.json(&["mirror", "list"]).unwrap()["mirrors"].as_array().unwrap().len(), 1);
    rig.finish();
}

#[test]
fn a_port_that_a_mirror_takes_says_so() {
    let [a, b] = [0; 2].map(|_| Netns::new().unwrap());
    let ports = config::tap("a", &unique("t"), a.name(), &["10.82.0.1/24"], "")
        + &config::tap("b", &unique("t"), b.name(), &["10.82.0.2/24"], "")
        + &config::memif("new", 0, "");
    let daemon = Daemon::start(&(config::bridge("br0", "learning") + &ports)).unwrap();
    a.run(&["ping", "-q", "-W", "5", "-c", "1", "10.82.0.2"]).unwrap();
    let notes = |arguments: &[&str]| {
        let output = daemon.cli(&[&["mirror", "add", "br0"], arguments].concat()).unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(notes(&["unused", "--from", "a", "--to", "new"]), "");
    assert_eq!(notes(&["tagged", "--from", "a", "--to", "b", "--vlan", "99"]), "");
    assert_eq!(
        notes(&["m7", "--from", "a", "--to", "b"]),
        "mswitch: note: port b now receives only the mirror's copies; its own traffic is dropped (`mirror-port`)\n"
    );
    let list = daemon.run(&["port", "list", "br0"]).unwrap();
    let line = list.lines().find(|line| line.starts_with("br0     b ")).unwrap();
    assert!(line.ends_with("  mirror target of m7"), "{list}");
    let show = daemon.run(&["port", "show", "br0", "b"]).unwrap();
    assert!(
        show.contains("  target of m7: only its copies are sent, received packets are dropped\n"),
        "{show}"
    );
    assert_eq!(daemon.port("br0", "b").unwrap().json()["mirror"], "m7");
    let trace = daemon.run(&["trace", "br0", "--packet", "in_port=a,arp"]).unwrap();
    assert!(trace.contains("no other port can take it; b belongs to the mirror m7\n"), "{trace}");
}
