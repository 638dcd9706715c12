//! Protection that an access switch provides. In each test an attacker on a real interface or memif port is held to its
//! limits, and a pair of bystanders on the same bridge and worker loses nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use bench::pace::{Pacer, Rate};
use bench::session::{Background, Options};
use e2e::{Daemon, Netns, config, exclusive, one_of, ping_all, seconds, unique, until};

/// Packet rate of each bystander.
const BYSTANDER_PPS: f64 = 2000.0;
const LIMIT: Duration = Duration::from_secs(20);

/// A namespace on a TAP port: port `n` of the bridge, with the addresses 10.77.0.n and fd77::n.
struct Station {
    netns: Netns,
    interface: String,
    port: String,
    address: String,
}

/// A bridge with namespaces on it, and bystanders.
struct Rig {
    // Dropped in this order: interfaces, then namespaces.
    bystanders: Background,
    daemon: Daemon,
    stations: Vec<Station>,
}

impl Rig {
    /// Ports p1, p2 and so on, one for each entry of `protections`, which has further keys of the port.
    fn start(logic: &str, protections: &[&str]) -> Rig {
        Rig::start_with(logic, "", protections)
    }

    /// Like [`start`](Rig::start), with further keys of the bridge.
    fn start_with(logic: &str, more: &str, protections: &[&str]) -> Rig {
        let mut ports = config::memif("left", 0, "") + &config::memif("right", 1, "");
        let mut stations = Vec::new();
        for (i, more) in (1..).zip(protections) {
            let station = Station {
                netns: Netns::new().unwrap(),
                interface: unique("t"),
                port: format!("p{i}"),
                address: format!("10.77.0.{i}"),
            };
            let addresses = [&*format!("{}/24", station.address), &*format!("fd77::{i}/64")];
            ports += &config::tap(&station.port, &station.interface, station.netns.name(), &addresses, more);
            stations.push(station);
        }
        let daemon = Daemon::start(&(config::bridge("br0", logic) + more + "\n" + &ports)).unwrap();
        let mut options = Options::new(vec![daemon.memif("memif", 0), daemon.memif("memif", 1)]);
        options.rate = Rate::Pps(BYSTANDER_PPS);
        options.duration = Duration::from_secs(3600);
        let bystanders = Background::start(options).unwrap();
        Rig { bystanders, daemon, stations }
    }

    /// Packets of station `i` dropped for this reason.
    fn drops(&self, i: usize, reason: &str) -> u64 {
        let port = self.daemon.port("br0", &self.stations[i].port).unwrap();
        port.json()["totals"]["rx"]["drops"][reason].as_u64().unwrap_or(0)
    }

    fn set(&self, i: usize, flags: &[&str]) {
        let port = &self.stations[i].port;
        self.daemon.run(&[&["port", "set", "br0", port], flags].concat()).unwrap();
    }

    /// Asserts that the bystanders have lost nothing.
    fn finish(self) {
        let report = self.bystanders.stop().unwrap();
        assert!(report.ok && report.received() > 1000, "{report}");
    }
}

impl Station {
    fn can_ping(&self, to: &Station) -> bool {
        let ping = ["ping", "-q", "-i", "0.05", "-W", "1", "-c", "5", &to.address];
        let text = self.netns.command(&ping).output().unwrap();
        let text = String::from_utf8_lossy(&text.stdout).into_owned();
        match text.split(" packets transmitted, ").nth(1).and_then(|rest| rest.split(' ').next()) {
            Some("5") => true,
            Some("0") => false,
            // All or nothing: a partly effective protection fails the test. But the last answer may only have been
            // late.
            _ => {
                ping_all(&self.netns, &to.address, 5, "0.05").unwrap();
                true
            }
        }
    }

    /// Frames received by its interface.
    fn received(&self) -> u64 {
        self.counter("rx_packets")
    }

    fn received_bytes(&self) -> u64 {
        self.counter("rx_bytes")
    }

    fn counter(&self, name: &str) -> u64 {
        let file = format!("/sys/class/net/{}/statistics/{name}", self.interface);
        self.netns.run(&["cat", &file]).unwrap().trim().parse().unwrap()
    }

    /// Waits until a counter stops rising, apart from occasional packets, and returns it.
    fn wait_settled(&self, count: impl Fn() -> u64) -> u64 {
        let mut before = count();
        until("the counter to settle", LIMIT, || {
            std::thread::sleep(Duration::from_millis(50));
            let last = std::mem::replace(&mut before, count());
            Ok((last == before).then_some(last))
        })
        .unwrap()
    }

    /// Sends datagrams at a rate, in bursts that the interface has room for, and waits until all arrive at `to`.
    fn pass_all(&self, to: &Station, address: &str, len: usize, pps: f64) {
        for _ in 0..4 {
            let before = to.received();
            let (sent, _) = self.blast(address, len, pps, Duration::from_secs_f64(400.0 / pps));
            assert!(sent > 0);
            until("all datagrams to arrive", LIMIT, || Ok((to.received() >= before + sent).then_some(())))
                .unwrap();
        }
    }

    /// Sends datagrams of `len` bytes to an address at a rate; returns their number and the time it took.
    fn blast(&self, to: &str, len: usize, pps: f64, time: Duration) -> (u64, Duration) {
        let from = format!("{}:0", self.address);
        self.netns
            .enter(|| {
                let socket = UdpSocket::bind(&from).unwrap();
                socket.set_broadcast(true).unwrap();
                let (start, mut pacer, mut sent) = (Instant::now(), Pacer::new(Some(pps)), 0);
                while start.elapsed() < time {
                    // A delay on a busy machine is not made up for: the interface's queue would drop the burst.
                    for _ in 0..pacer.due(Instant::now(), 64) {
                        pacer.sent(1);
                        sent += u64::from(socket.send_to(&vec![7; len], to).is_ok());
                    }
                    std::thread::sleep(pacer.wait());
                }
                (sent, start.elapsed())
            })
            .unwrap()
    }
}

#[test]
fn isolated_ports_reach_only_non_isolated_ports() {
    let rig = Rig::start("learning", &["isolated = true", "isolated = true", ""]);
    let [a, b, router] = &rig.stations[..] else { panic!() };
    assert!(a.can_ping(router) && b.can_ping(router) && router.can_ping(a));
    assert!(!a.can_ping(b));
    // Nor with a unicast frame to a known station, without ARP.
    let mac = b.netns.run(&["cat", &format!("/sys/class/net/{}/address", b.interface)]).unwrap();
    a.netns.run(&["ip", "neigh", "replace", &b.address, "lladdr", mac.trim(), "dev", &a.interface]).unwrap();
    assert!(!a.can_ping(b));
    assert!(rig.drops(0, "isolated") >= 5);

    let show = rig.daemon.run(&["port", "show", "br0", "p1"]).unwrap();
    assert!(show.contains("isolated") && show.contains("on"), "{show}");
    rig.set(0, &["--isolated", "off"]);
    assert!(a.can_ping(b));
    rig.set(0, &["--isolated", "on"]);
    assert!(!a.can_ping(b) && a.can_ping(router));
    assert_eq!(rig.daemon.port("br0", "p1").unwrap().json()["protection"]["isolated"], "on");
    rig.finish();
}

#[test]
fn a_policed_port_is_held_to_its_rate() {
    let _machine = exclusive();
    let rig = Rig::start("learning", &["police = \"10Mbit burst 64KiB\"", ""]);
    let [a, b] = &rig.stations[..] else { panic!() };
    assert!(a.can_ping(b));
    let time = seconds(2, 10);
    let sink = b.netns.enter(|| UdpSocket::bind("10.77.0.2:9000").unwrap()).unwrap();
    one_of(5, || {
        let before = b.received_bytes();
        // About 100 Mbit/s.
        let (sent, took) = a.blast("10.77.0.2:9000", 1200, 10_000.0, time);
        let received = b.wait_settled(|| b.received_bytes()) - before;
        let offered = sent as f64 * 1242.0;
        let rate = 10e6 / 8.0 * took.as_secs_f64();
        // A few more packets, such as neighbour discovery.
        assert!(
            received as f64 <= 1.05 * rate + 65536.0 + 2000.0,
            "{received} bytes received, {rate} allowed"
        );
        match offered > 3.0 * rate && received as f64 >= 0.8 * rate {
            true => Ok(()),
            false => Err(format!("{received} bytes received, {rate} allowed, {offered} offered")),
        }
    })
    .unwrap();
    assert!(rig.drops(0, "policed") > 0);
    drop(sink);

    // Removing the limit takes effect at once.
    rig.set(0, &["--police", "off"]);
    let before = rig.drops(0, "policed");
    a.pass_all(b, "10.77.0.2:9000", 1200, 2000.0);
    assert_eq!(rig.drops(0, "policed"), before);
    rig.finish();
}

/// A TCP sender that loses a whole window pauses for 200 ms, so the default burst must last longer.
#[test]
fn tcp_gets_its_policed_rate_with_the_default_burst() {
    let _machine = exclusive();
    let rig = Rig::start("learning", &["police = \"50Mbit\"", ""]);
    let [a, b] = &rig.stations[..] else { panic!() };
    assert!(a.can_ping(b));
    let time = seconds(6, 20);
    one_of(5, || {
        let listener = b.netns.enter(|| TcpListener::bind("10.77.0.2:9000").unwrap()).unwrap();
        let mut sender = a.netns.enter(|| TcpStream::connect("10.77.0.2:9000").unwrap()).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        // The warm-up covers the burst and the first losses.
        let (start, warm_up) = (Instant::now(), Duration::from_secs(2));
        let received =
            std::thread::scope(move |scope| {
                scope.spawn(move || {
                    while start.elapsed() < warm_up + time && sender.write_all(&[0; 65536]).is_ok() {}
                });
                let (mut buffer, mut received) = (vec![0; 65536], 0);
                loop {
                    let len = receiver.read(&mut buffer).unwrap();
                    let at = start.elapsed();
                    if len == 0 || at >= warm_up + time {
                        return received;
                    }
                    received += if at >= warm_up { len } else { 0 };
                }
            });
        let rate = 50e6 / 8.0 * time.as_secs_f64();
        // Some bytes received in the window were admitted before it.
        assert!(received as f64 <= 1.3 * rate, "{received} bytes received, {rate} allowed");
        match received as f64 >= 0.8 * rate {
            true => Ok(()),
            false => Err(format!("{received} bytes received, {rate} allowed")),
        }
    })
    .unwrap();
    assert!(rig.drops(0, "policed") > 0);
    rig.finish();
}

#[test]
fn storm_limits_spare_known_unicast() {
    let _machine = exclusive();
    let storms = "storm-broadcast = \"200pps burst 50\"\nstorm-multicast = \"100pps burst 50\"\n\
                  storm-unknown = \"150pps burst 50\"";
    let rig = Rig::start("learning", &[storms, ""]);
    let [a, b] = &rig.stations[..] else { panic!() };
    assert!(a.can_ping(b));
    a.netns.run(&["ip", "route", "add", "224.0.0.0/4", "dev", &a.interface]).unwrap();
    let unknown = ["ip", "neigh", "add", "10.77.0.99", "lladdr", "02:00:00:00:00:99", "dev", &a.interface];
    a.netns.run(&unknown).unwrap();
    for (to, pps) in [("10.77.0.255:7000", 200.0), ("239.1.2.3:7000", 100.0), ("10.77.0.99:7000", 150.0)] {
        one_of(5, || {
            let (dropped, before) = (rig.drops(0, "storm-control"), b.received());
            let (sent, took) = a.blast(to, 100, 5000.0, seconds(2, 10));
            let received = (b.wait_settled(|| b.received()) - before) as f64;
            let rate = pps * took.as_secs_f64();
            // A few more packets, such as neighbour discovery.
            assert!(received <= 1.1 * rate + 50.0 + 20.0, "{to}: {received} of {rate}");
            let limited = rig.drops(0, "storm-control") > dropped + sent / 2;
            match sent as f64 > 5.0 * rate && received >= 0.8 * rate && limited {
                true => Ok(()),
                false => Err(format!("{to}: {received} packets received, {rate} allowed, {sent} offered")),
            }
        })
        .unwrap();
        // Unicast to the learned station passes beside the storm at any rate.
        a.pass_all(b, "10.77.0.2:7000", 100, 3000.0);
    }
    rig.finish();
}

/// MAC address of a station's interface.
fn mac_of(station: &Station) -> String {
    let file = format!("/sys/class/net/{}/address", station.interface);
    station.netns.run(&["cat", &file]).unwrap().trim().to_string()
}

/// Sets the MAC address of a station's interface; its stack loses its neighbour entries.
fn set_mac(station: &Station, mac: &str) {
    station.netns.run(&["ip", "link", "set", &station.interface, "address", mac]).unwrap();
}

#[test]
fn a_port_limited_to_one_station_refuses_the_second() {
    let rig = Rig::start("learning", &["max-stations = 1\nsticky = true", "", ""]);
    let [a, b, c] = &rig.stations[..] else { panic!() };
    assert!(a.can_ping(b) && b.can_ping(c));
    let (own, victim) = (mac_of(a), mac_of(c));
    let kind = |mac: &str| {
        let table = rig.daemon.json(&["fdb", "show", "br0"]).unwrap();
        let entry = table["entries"].as_array().unwrap().iter().find(|entry| entry["mac"] == mac).cloned();
        entry.map(|entry| (entry["port"].as_str().unwrap().to_string(), entry["sticky"] == true))
    };
    assert_eq!(kind(&own), Some(("p1".to_string(), true)));

    // With an unknown address and with another port's: both are blocked, and the victim keeps its port.
    set_mac(a, "02:00:00:00:66:66");
    assert!(!a.can_ping(b));
    set_mac(a, &victim);
    assert!(!a.can_ping(b));
    assert_eq!(kind(&victim), Some(("p3".to_string(), false)));
    assert_eq!(kind("02:00:00:00:66:66"), None);
    assert!(b.can_ping(c));
    assert!(rig.drops(0, "station-limit") >= 4);
    // A flush removes sticky stations of its own port only.
    rig.daemon.run(&["fdb", "flush", "br0", "--port", "p2"]).unwrap();
    set_mac(a, &own);
    assert!(a.can_ping(b));
    set_mac(a, "02:00:00:00:66:66");
    assert!(!a.can_ping(b));
    rig.daemon.run(&["fdb", "flush", "br0", "--port", "p1"]).unwrap();
    assert!(a.can_ping(b));
    assert!(rig.daemon.run(&["fdb", "show", "br0"]).unwrap().contains("sticky"));

    // Only the named stations, from the next packet on.
    rig.set(0, &["--sticky", "off", "--max-stations", "off", "--stations", &own]);
    assert!(!a.can_ping(b));
    set_mac(a, &own);
    assert!(a.can_ping(b));
    rig.finish();
}

#[test]
fn a_guarded_port_sends_from_its_own_addresses_only() {
    let rig = Rig::start("learning", &["", "", ""]);
    let [a, b, c] = &rig.stations[..] else { panic!() };
    let sources = format!("10.77.0.1@{0},fd77::1@{0},fe80::/64@{0}", mac_of(a));
    rig.set(0, &["--sources", &sources]);
    assert!(a.can_ping(b) && b.can_ping(a));
    let ping6 = |from: &Station, to: &str| {
        let ping = ["ping", "-q", "-i", "0.05", "-W", "1", "-c", "5", to];
        from.netns.command(&ping).output().unwrap().status.success()
    };
    // Duplicate address detection takes some time.
    until("IPv6 to work", LIMIT, || Ok(ping6(b, "fd77::1").then_some(()))).unwrap();

    // It takes the addresses of c while c is there; b continues to talk to c.
    assert!(b.can_ping(c));
    let before = rig.drops(0, "source-guard");
    for address in ["10.77.0.3/24", "fd77::3/64"] {
        a.netns.run(&["ip", "addr", "add", address, "dev", &a.interface, "nodad"]).unwrap();
    }
    for address in ["10.77.0.3", "fd77::3"] {
        // The spoofer has a neighbour entry, so it sends no ARP.
        let spoof = ["ping", "-q", "-i", "0.05", "-W", "1", "-c", "5", "-I", address];
        let to = if address.contains(':') { "fd77::2" } else { "10.77.0.2" };
        let output = a.netns.command(&[&spoof[..], &[to]].concat()).output().unwrap();
        assert!(!output.status.success(), "{address}: {}", String::from_utf8_lossy(&output.stdout));
    }
    assert!(rig.drops(0, "source-guard") >= before + 2);
    // b resolves c again; the spoofed answer of a is dropped.
    b.netns.run(&["ip", "neigh", "flush", "dev", &b.interface]).unwrap();
    assert!(b.can_ping(c) && ping6(b, "fd77::3"));
    let neighbours = b.netns.run(&["ip", "neigh"]).unwrap();
    for line in neighbours.lines().filter(|line| line.contains("10.77.0.3 ") || line.contains("fd77::3 ")) {
        assert!(line.contains(&mac_of(c)), "{neighbours}");
    }
    // Without the guard the spoofing works, so the guard stops it.
    let dropped = rig.drops(0, "source-guard");
    rig.set(0, &["--sources", "off"]);
    assert!(a.can_ping(b));
    assert_eq!(rig.drops(0, "source-guard"), dropped);
    rig.finish();
}

/// Sends one general query of IGMPv3 and one of MLDv2, as a router does, the latter from the interface's link-local
/// address.
fn send_queries(router: &Station) {
    use rustix::net::{AddressFamily, Protocol, SocketType, ipproto, sendto, socket, sockopt};
    let protocol = |protocol: Protocol| Some(protocol);
    let link_local = until("a link-local address", LIMIT, || {
        let text = router.netns.run(&[
            "ip",
            "-6",
            "-o",
            "addr",
            "show",
            "dev",
            &router.interface,
            "scope",
            "link",
        ])?;
        Ok((text.contains("fe80::") && !text.contains("tentative")).then_some(()))
    });
    link_local.unwrap();
    let index: u32 = {
        let file = format!("/sys/class/net/{}/ifindex", router.interface);
        router.netns.run(&["cat", &file]).unwrap().trim().parse().unwrap()
    };
    let from: std::net::Ipv4Addr = router.address.parse().unwrap();
    router
        .netns
        .enter(|| {
            let v4 = socket(AddressFamily::INET, SocketType::RAW, protocol(ipproto::IGMP)).unwrap();
            sockopt::set_ip_multicast_if(&v4, &from).unwrap();
            let mut query = [0x11, 10, 0, 0, 0, 0, 0, 0, 2, 4, 0, 0];
            let sum = packet::checksum::Sum::of(&query).finish();
            query[2..4].copy_from_slice(&sum.to_be_bytes());
            let all: std::net::SocketAddrV4 = "224.0.0.1:0".parse().unwrap();
            sendto(&v4, &query, rustix::net::SendFlags::empty(), &all).unwrap();

            let v6 = socket(AddressFamily::INET6, SocketType::RAW, protocol(ipproto::ICMPV6)).unwrap();
            sockopt::set_ipv6_multicast_hops(&v6, 1).unwrap();
            let mut query = [0; 28];
            (query[0], query[5], query[24], query[25]) = (130, 100, 2, 4);
            // The kernel computes the ICMPv6 checksum.
            let all = std::net::SocketAddrV6::new("ff02::1".parse().unwrap(), 0, 0, index);
            sendto(&v6, &query, rustix::net::SendFlags::empty(), &all).unwrap();
        })
        .unwrap();
}

#[test]
fn multicast_reaches_members_and_routers_only() {
    let rig = Rig::start_with("learning", "params = { snooping = \"on\" }", &["", "", "", ""]);
    let [sender, member, router, other] = &rig.stations[..] else { panic!() };
    let groups = || rig.daemon.json(&["bridge", "groups", "br0"]).unwrap()["entries"].clone();
    let entry = |mac: &str, port: &str| {
        groups()
            .as_array()
            .unwrap()
            .iter()
            .find(|entry| entry["mac"] == mac && entry["port"] == port)
            .cloned()
    };
    let wait_listed = |mac: &str, port: &str, present: bool| {
        until(&format!("{mac} at {port}: {present}"), LIMIT, || {
            Ok((entry(mac, port).is_some() == present).then_some(()))
        })
        .unwrap();
    };
    send_queries(router);
    wait_listed("", "p3", true);
    until("routers of IPv4 and of IPv6", LIMIT, || {
        Ok((groups().as_array().unwrap().iter().filter(|e| e["mac"] == "").count() == 2).then_some(()))
    })
    .unwrap();

    let index: u32 = {
        let file = format!("/sys/class/net/{}/ifindex", member.interface);
        member.netns.run(&["cat", &file]).unwrap().trim().parse().unwrap()
    };
    let sockets = member
        .netns
        .enter(|| {
            let v4 = UdpSocket::bind("0.0.0.0:7001").unwrap();
            v4.join_multicast_v4(&"239.1.2.3".parse().unwrap(), &"10.77.0.2".parse().unwrap()).unwrap();
            let v6 = UdpSocket::bind("[::]:7002").unwrap();
            v6.join_multicast_v6(&"ff15::1234:5678".parse().unwrap(), index).unwrap();
            [v4, v6]
        })
        .unwrap();
    for socket in &sockets {
        socket.set_read_timeout(Some(LIMIT)).unwrap();
    }
    wait_listed("01:00:5e:01:02:03", "p2", true);
    wait_listed("33:33:12:34:56:78", "p2", true);

    let index: u32 = {
        let file = format!("/sys/class/net/{}/ifindex", sender.interface);
        sender.netns.run(&["cat", &file]).unwrap().trim().parse().unwrap()
    };
    let send = |count: u64| {
        sender
            .netns
            .enter(|| {
                let v6 = UdpSocket::bind("[fd77::1]:0").unwrap();
                let to = std::net::SocketAddrV6::new("ff15::1234:5678".parse().unwrap(), 7002, 0, index);
                for _ in 0..count {
                    v6.send_to(&[6; 100], to).unwrap();
                }
            })
            .unwrap();
        sender.netns.run(&["ip", "route", "replace", "224.0.0.0/4", "dev", &sender.interface]).unwrap();
        sender.blast("239.1.2.3:7001", 100, 1000.0, Duration::from_millis(count)).0
    };
    // As many as a socket's buffer holds. The member and the router receive all; the other interface receives almost
    // nothing besides neighbour discovery.
    until("duplicate address detection", LIMIT, || Ok(sender.can_ping(member).then_some(()))).unwrap();
    let (before, before_router) = (other.received(), router.received());
    let sent = send(100);
    let mut buffer = [0; 200];
    for (socket, count) in sockets.iter().zip([sent, 100]) {
        for _ in 0..count {
            socket.recv(&mut buffer).unwrap();
        }
    }
    until("the router to receive the datagrams", LIMIT, || {
        Ok((router.received() >= before_router + sent + 100).then_some(()))
    })
    .unwrap();
    let strays = other.received() - before;
    assert!(strays < 20, "{strays} of {}", sent + 100);

    // Both leave: the member receives nothing more, and the groups are gone.
    drop(sockets);
    wait_listed("01:00:5e:01:02:03", "p2", false);
    wait_listed("33:33:12:34:56:78", "p2", false);
    rig.daemon.run(&["bridge", "groups", "br0"]).unwrap();
    rig.daemon
        .run(&[
            "logic",
            "set",
            "br0",
            "learning",
            "--param",
            "snooping=on",
            "--param",
            "unregistered=routers",
        ])
        .unwrap();
    send_queries(router);
    wait_listed("", "p3", true);
    let (before, before_router) = (member.received(), router.received());
    let sent = send(100);
    until("the router to receive the datagrams", LIMIT, || {
        Ok((router.received() >= before_router + sent + 100).then_some(()))
    })
    .unwrap();
    let strays = member.received() - before;
    assert!(strays < 20, "{strays} of {}", sent + 100);
    rig.finish();
}
