//! DPDK's memif driver as client and as server, and its virtio-user driver as front-end; each reflected packet is
//! verified.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::atomic::AtomicBool;

use bench::pace::Rate;
use bench::port::Rings;
use bench::session::{Options, Session, Traffic};
use e2e::{Daemon, HugePages, Memory, Testpmd, config, exclusive, seconds};

const TESTPMD: &str = "02:00:00:00:77:01";

/// Sends packets to testpmd on port `dpdk`, which swaps their addresses and returns them.
fn reflect(daemon: &Daemon, testpmd: &mut Testpmd, rings: Rings) {
    testpmd.command("start").unwrap();
    daemon.wait_up("br0", "dpdk").unwrap();
    let mut options = Options::new(vec![daemon.memif("memif", 0)]);
    options.traffic = Traffic::Reflected(TESTPMD.parse().unwrap());
    options.rings = rings;
    // testpmd's MTU is 1500.
    options.sizes = "60-1514".parse().unwrap();
    options.segments = "1-4".parse().unwrap();
    options.flows = 8;
    options.rate = Rate::Pps(20_000.0);
    options.duration = seconds(2, 30);
    options.least = 5001;
    let report = Session::connect(options).unwrap().run(&AtomicBool::new(false)).unwrap();
    if !report.ok {
        testpmd.command("show port stats all\nshow fwd stats all\nquit").unwrap();
        testpmd.wait_for("Bye").unwrap();
        panic!(
            "{report}\n{}\n{}",
            daemon.run(&["port", "stats", "--queues"]).unwrap(),
            testpmd.output().unwrap()
        );
    }
    assert!(report.received() > 5000, "{report}");
    // The packets really went through testpmd.
    let dpdk = daemon.port("br0", "dpdk").unwrap();
    assert!(dpdk.received() >= report.received() && dpdk.delivered() >= report.sent(), "{:?}", dpdk.json());
}

fn daemon(dpdk: &str) -> Daemon {
    Daemon::start(&(config::bridge("br0", "learning") + &config::memif("check", 0, "") + dpdk)).unwrap()
}

fn client(daemon: &Daemon, more: &str) -> String {
    format!(
        "net_memif0,role=client,socket={},socket-abstract=no,id=1,mac={TESTPMD}{more}",
        daemon.path("memif")
    )
}

#[test]
fn testpmd_reflects_packets_as_client() {
    let _machine = exclusive();
    let daemon = daemon(&config::memif("dpdk", 1, ""));
    let device = client(&daemon, "");
    let mut testpmd = Testpmd::start(Memory::Common, &[device], &["--forward-mode=macswap"]).unwrap();
    reflect(&daemon, &mut testpmd, Rings::default());
}

#[test]
fn testpmd_reflects_packets_as_client_with_queues_and_a_secret() {
    let _machine = exclusive();
    let daemon = daemon(&config::memif("dpdk", 1, "secret = \"hush\""));
    let device = client(&daemon, ",secret=hush,rsize=8");
    let arguments = ["--forward-mode=macswap", "--rxq=2", "--txq=2"];
    let mut testpmd = Testpmd::start(Memory::Common, &[device], &arguments).unwrap();
    // Rings of testpmd's size, so that the packets in flight fit.
    reflect(&daemon, &mut testpmd, Rings { queues: 2, log2_size: 8, ..Rings::default() });
}

#[test]
fn testpmd_reflects_packets_as_zero_copy_client() {
    let _machine = exclusive();
    let _pages = HugePages::reserve(64).unwrap();
    let daemon = daemon(&config::memif("dpdk", 1, ""));
    let device = client(&daemon, ",zero-copy=yes");
    let mut testpmd = Testpmd::start(Memory::Huge, &[device], &["--forward-mode=macswap"]).unwrap();
    reflect(&daemon, &mut testpmd, Rings::default());
}

#[test]
fn testpmd_reflects_packets_as_server() {
    let _machine = exclusive();
    let keys = "path = \"{dir}/theirs\"\nid = 5\nrole = \"client\"\nqueues = 1";
    let daemon = daemon(&config::port("dpdk", "memif", keys));
    let down = daemon.port("br0", "dpdk").unwrap();
    assert!(!down.is_up() && !down.reason().is_empty(), "{:?}", down.json());
    let device = format!(
        "net_memif0,role=server,socket={},socket-abstract=no,id=5,mac={TESTPMD}",
        daemon.path("theirs")
    );
    let start = || {
        Testpmd::start(Memory::Common, std::slice::from_ref(&device), &["--forward-mode=macswap"]).unwrap()
    };
    let mut testpmd = start();
    reflect(&daemon, &mut testpmd, Rings::default());
    // The switch reconnects to a restarted server.
    drop(testpmd);
    daemon.wait_down("br0", "dpdk", "").unwrap();
    reflect(&daemon, &mut start(), Rings::default());
}

/// Reflects packets through a virtio-user device with these arguments.
fn reflect_virtio_user(device: &str, arguments: &[&str]) {
    let daemon = daemon(&config::vhost_user("dpdk", ""));
    let device = format!("net_virtio_user0,path={},mac={TESTPMD},{device}", daemon.path("dpdk.sock"));
    // By default, testpmd fills half of a ring with buffers, fewer than the packets in flight.
    let arguments = [&["--forward-mode=macswap", "--rxd=1024", "--txd=1024"], arguments].concat();
    let mut testpmd = Testpmd::start(Memory::Common, &[device], &arguments).unwrap();
    reflect(&daemon, &mut testpmd, Rings::default());
}

#[test]
fn virtio_user_reflects_packets_with_split_rings() {
    let _machine = exclusive();
    reflect_virtio_user("queues=1,queue_size=1024,packed_vq=0,mrg_rxbuf=1", &[]);
}

#[test]
fn virtio_user_reflects_packets_with_packed_rings() {
    let _machine = exclusive();
    reflect_virtio_user("queues=1,queue_size=1024,packed_vq=1,mrg_rxbuf=0", &[]);
}

#[test]
fn virtio_user_reflects_packets_with_two_queue_pairs() {
    let _machine = exclusive();
    reflect_virtio_user("queues=2,queue_size=1024,packed_vq=1,mrg_rxbuf=1", &["--rxq=2", "--txq=2"]);
}
