//! sFlow of single bridges, from the table `sFlow`.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use e2e::open_vswitch::{Host, LIMIT};
use e2e::{Netns, ping_all, until};

/// The bytes of a guest's MAC address.
fn mac(guest: &Netns) -> Vec<u8> {
    let text = guest.run(&["cat", "/sys/class/net/eth0/address"]).unwrap();
    text.trim().split(':').map(|digits| u8::from_str_radix(digits, 16).unwrap()).collect()
}

fn contains(datagram: &[u8], bytes: &[u8]) -> bool {
    datagram.windows(bytes.len()).any(|window| window == bytes)
}

#[test]
fn a_bridge_exports_its_own_packets() {
    let host = Host::new();
    let (a, _b) = (host.guest("va", "10.80.0.1/24"), host.guest("vb", "10.80.0.2/24"));
    let (c, _d) = (host.guest("vc", "10.81.0.1/24"), host.guest("vd", "10.81.0.2/24"));
    let _daemon = host.start();
    for (bridge, ports) in [("br0", ["va", "vb"]), ("br1", ["vc", "vd"])] {
        host.vsctl(&[
            "add-br", bridge, "--", "add-port", bridge, ports[0], "--", "add-port", bridge, ports[1],
        ]);
    }
    let collector = host.netns.enter(|| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).unwrap();
    collector.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let target = format!("targets=\"127.0.0.1:{}\"", collector.local_addr().unwrap().port());
    let receive = || {
        let mut buffer = [0; 2048];
        collector.recv(&mut buffer).ok().map(|length| buffer[..length].to_vec())
    };

    // An interface stands for its address; every packet is a sample.
    let create = ["--", "--id=@s", "create", "sflow", "agent=lo", &target, "sampling=1", "polling=1"];
    host.vsctl(&[&create[1..], &["--", "set", "bridge", "br0", "sflow=@s"]].concat());
    let (own, other) = (mac(&a), mac(&c));
    let first = until("a sample of the bridge's packets", LIMIT, || {
        ping_all(&a, "10.80.0.2", 1, "0.1").unwrap();
        ping_all(&c, "10.81.0.2", 1, "0.1").unwrap();
        let datagrams = std::iter::from_fn(receive).collect::<Vec<_>>();
        assert!(!datagrams.iter().any(|datagram| contains(datagram, &other)), "a sample of the other bridge");
        Ok(datagrams.into_iter().find(|datagram| contains(datagram, &own)))
    })
    .unwrap();
    // Version 5, an IPv4 agent, its address; a sub-agent other than the whole switch.
    assert_eq!(first[..12], [0, 0, 0, 5, 0, 0, 0, 1, 127, 0, 0, 1]);
    assert_ne!(first[12..16], [0; 4]);

    // A setting that has no effect is named, and the export ends.
    host.vsctl(&["set", "sflow", ".", "agent=nowhere0"]);
    let log = host.log();
    assert!(
        log.contains("bridge br0: sFlow: agent `nowhere0` is neither an IP address nor an interface"),
        "{log}"
    );
    while receive().is_some() {}
    ping_all(&a, "10.80.0.2", 3, "0.1").unwrap();
    assert_eq!(receive(), None, "samples after the end");
}
