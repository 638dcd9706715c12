//! Mirrors of the database: ovs-tcpdump, and directions, VLANs and the output port of a mirror.

use std::fs::File;
use std::process::Stdio;

use e2e::open_vswitch::{Host, LIMIT};
use e2e::{Netns, Running, ping_all, until};

/// A host whose bridge br0 has guests a and b, and a guest c.
fn three() -> (Host, Netns, Netns, Netns, Running) {
    let host = Host::new();
    let guest = |name, number| host.guest(name, &format!("10.80.0.{number}/24"));
    let (a, b, c) = (guest("va", 1), guest("vb", 2), guest("vc", 3));
    let daemon = host.start();
    host.vsctl(&["add-br", "br0"]);
    for name in ["va", "vb", "vc"] {
        host.vsctl(&["add-port", "br0", name]);
    }
    (host, a, b, c, daemon)
}

#[test]
fn ovs_tcpdump_shows_the_packets_of_a_port() {
    let (host, a, _b, _c, _daemon) = three();
    let database = format!("unix:{}", host.path("db.sock").display());
    let errors = File::create(host.path("tcpdump.log")).unwrap();
    let mut command = host.command("ovs-tcpdump");
    command.args(["--db-sock", &database, "-i", "va", "-n", "-c", "3", "icmp"]);
    let mut tcpdump = Running::start(command.stdout(Stdio::piped()).stderr(errors)).unwrap();
    until("ovs-tcpdump to end", LIMIT, || {
        a.run(&["ping", "-n", "-c", "1", "-W", "1", "10.80.0.2"])?;
        tcpdump.ended()
    })
    .unwrap_or_else(|error| panic!("{error}: {}", host.log()));
    let seen = tcpdump.output().unwrap();
    assert!(seen.contains("ICMP echo request") && seen.contains("ICMP echo reply"), "{seen}");
    // It leaves nothing behind.
    assert_eq!(host.vsctl(&["list", "mirror"]), "");
    assert!(!host.vsctl(&["list-ports", "br0"]).contains("miva"));
}

/// Starts tcpdump in a namespace and waits until it captures.
fn capture(host: &Host, netns: &Netns, packets: &str, filter: &str) -> Running {
    let log = host.path("capture.log");
    let errors = File::create(&log).unwrap();
    let mut command = netns.command(&["tcpdump", "-l", "-n", "-i", "eth0", "-c", packets, filter]);
    let running = Running::start(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors)).unwrap();
    until("tcpdump to capture", LIMIT, || {
        Ok(std::fs::read_to_string(&log)?.contains("listening on").then_some(()))
    })
    .unwrap();
    running
}

#[test]
fn a_mirror_copies_one_direction_and_its_output_port_nothing_else() {
    let (host, a, _b, c, _daemon) = three();
    ping_all(&c, "10.80.0.2", 1, "0.1").unwrap();
    let mirror = ["--", "--id=@m", "create", "mirror", "name=m", "select_src_port=@a", "output_port=@c"];
    let ports = ["--", "--id=@a", "get", "port", "va", "--", "--id=@c", "get", "port", "vc"];
    host.vsctl(&[&ports[1..], &mirror[..], &["--", "set", "bridge", "br0", "mirrors=@m"]].concat());
    let listed = host.mswitch(&["mirror", "list", "br0"]).1;
    assert!(listed.contains("va (in)"), "{listed}");
    let captured = capture(&host, &c, "3", "icmp");
    ping_all(&a, "10.80.0.2", 3, "0.05").unwrap();
    let captured = captured.output().unwrap();
    assert_eq!(captured.matches("10.80.0.1 > 10.80.0.2: ICMP echo request").count(), 3, "{captured}");
    c.run(&["ping", "-n", "-c", "1", "-W", "1", "10.80.0.2"]).unwrap_err();
    until("counters of the mirror", LIMIT, || {
        let packets = host.get("Mirror", "m", "statistics:tx_packets");
        Ok(packets.parse::<u64>().ok().filter(|packets| *packets >= 3))
    })
    .unwrap();

    // A VLAN that va is not in.
    host.vsctl(&["set", "mirror", "m", "select_all=true", "select_vlan=7"]);
    let captured = capture(&host, &c, "1", "icmp");
    ping_all(&a, "10.80.0.2", 3, "0.05").unwrap();
    host.vsctl(&["set", "port", "va", "tag=7", "--", "set", "port", "vb", "tag=7"]);
    ping_all(&a, "10.80.0.2", 1, "0.05").unwrap();
    let captured = captured.output().unwrap();
    assert!(captured.contains("echo request"), "{captured}");

    // Into a VLAN: vc is a port like others again, and gets copies with its tag.
    host.vsctl(&["clear", "port", "va", "tag", "--", "clear", "port", "vb", "tag"]);
    host.vsctl(&["clear", "mirror", "m", "output_port", "--", "clear", "mirror", "m", "select_vlan"]);
    host.vsctl(&["set", "mirror", "m", "output_vlan=9", "snaplen=60"]);
    let captured = capture(&host, &c, "1", "vlan 9 and icmp");
    ping_all(&a, "10.80.0.2", 1, "0.05").unwrap();
    let captured = captured.output().unwrap();
    assert!(captured.contains("echo request"), "{captured}");
    ping_all(&c, "10.80.0.2", 1, "0.1").unwrap();
    host.vsctl(&["clear", "bridge", "br0", "mirrors"]);
}
