//! vhost-user ports with DPDK's virtio-user devices: circulating packets, pings, dying front-ends and a dying switch.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Instant;

use e2e::{Daemon, Memory, Netns, Testpmd, config, exclusive, seconds, until};

/// A virtio-user device at the socket of a port.
fn device(daemon: &Daemon, number: u32, port: &str, more: &str) -> String {
    let socket = daemon.path(&format!("{port}.sock"));
    format!("net_virtio_user{number},path={socket},mac=02:00:00:00:00:0{number},queue_size=1024,{more}")
}

fn forwarded(daemon: &Daemon, port: &str) -> u64 {
    daemon.port("br0", port).unwrap().received()
}

/// Circulates packets between two devices of one testpmd and expects no loss.
fn circulate(a: &str, b: &str, arguments: &[&str]) {
    let ports = config::vhost_user("a", "") + &config::vhost_user("b", "");
    let daemon = Daemon::start(&(config::bridge("br0", "static") + &ports)).unwrap();
    let devices = [device(&daemon, 0, "a", a), device(&daemon, 1, "b", b)];
    let mut testpmd = Testpmd::start(Memory::Common, &devices, arguments).unwrap();
    for port in ["a", "b"] {
        daemon.wait_up("br0", port).unwrap();
    }
    testpmd.command("start tx_first 2").unwrap();
    let (start, enough) = (Instant::now(), seconds(0, 60));
    until("packets to circulate", seconds(60, 120), || {
        let round = forwarded(&daemon, "a") > 20_000 && forwarded(&daemon, "b") > 20_000;
        Ok((round && start.elapsed() >= enough).then_some(()))
    })
    .unwrap();
    testpmd.command("stop\nquit").unwrap();
    testpmd.wait_for("Bye").unwrap();
    let counts = |port: &str| {
        let port = daemon.port("br0", port).unwrap();
        assert_eq!(port.dropped(), 0, "{:?}", port.json());
        (port.received(), port.delivered())
    };
    let ((from_a, to_a), (from_b, to_b)) = (counts("a"), counts("b"));
    assert_eq!((from_a, from_b), (to_b, to_a));
}

/// Split rings at one end and packed rings at the other, with mergeable buffers at either end in turn.
fn all_ring_kinds(queues: u16) {
    let _machine = exclusive();
    let number = queues.to_string();
    // All rings together hold more buffers than testpmd's default.
    let arguments = ["--rxq", &number, "--txq", &number, "--total-num-mbufs=16384"];
    for (split, packed) in [(0, 1), (1, 0)] {
        let kind =
            |packed: u8, mergeable: u8| format!("queues={queues},packed_vq={packed},mrg_rxbuf={mergeable}");
        circulate(&kind(0, split), &kind(1, packed), &arguments);
    }
}

#[test]
fn packets_circulate_between_split_and_packed_rings() {
    all_ring_kinds(1);
}

#[test]
fn packets_circulate_between_four_queue_pairs() {
    all_ring_kinds(4);
}

#[test]
fn ping_works_again_after_restarts_of_device_and_switch() {
    let _machine = exclusive();
    let blue = Netns::new().unwrap();
    let keys = "path = \"{dir}/guest.sock\"\nrole = \"client\"";
    let tap = config::tap("blue", "eth0", blue.name(), &["10.91.0.1/24"], "");
    for server in [true, false] {
        let guest =
            if server { config::vhost_user("guest", "") } else { config::port("guest", "vhost-user", keys) };
        let mut daemon = Daemon::start(&(config::bridge("br0", "learning") + &tap + &guest)).unwrap();
        let role = if server { "queues=1" } else { "queues=1,server=1" };
        let start = |daemon: &Daemon| {
            let devices = [device(daemon, 0, "guest", role)];
            let mut testpmd = Testpmd::start(Memory::Common, &devices, &["--forward-mode=icmpecho"]).unwrap();
            testpmd.command("start").unwrap();
            testpmd
        };
        let ping = |daemon: &Daemon| {
            daemon.wait_up("br0", "guest").unwrap();
            blue.run(&["ping", "-q", "-i", "0.02", "-W", "5", "-c", "20", "10.91.0.2"]).unwrap();
        };
        let mut testpmd = start(&daemon);
        ping(&daemon);
        testpmd.kill().unwrap();
        daemon.wait_down("br0", "guest", "").unwrap();
        if !server {
            // The file of the dead listener would block the next one.
            std::fs::remove_file(daemon.path("guest.sock")).unwrap();
        }
        let testpmd = start(&daemon);
        ping(&daemon);
        if !server {
            // virtio-user reconnects only as a server.
            daemon.kill().unwrap();
            daemon.restart().unwrap();
            ping(&daemon);
        }
        drop(testpmd);
    }
}
