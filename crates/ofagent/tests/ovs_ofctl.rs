//! The real `ovs-ofctl` (Debian package openvswitch-common) on the management and snoop sockets of an agent.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use ofswitch::Effect;
use openflow::PortNo;
use openflow::message::{Body, Role, RoleMessage};
use support::{Peer, World, set_port, unix};
use tokio::net::UnixListener;

/// IPv4 from 1.2.3.4 to 10.0.0.7.
const IPV4: &str = "02000000000902000000000a0800450000140000000040006cde010203040a000007";

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// `ovs-ofctl` in a directory where the bridge is `br0`.
fn command(directory: &Path, args: &[&str]) -> Command {
    let mut command = Command::new("ovs-ofctl");
    command.args(["-vOFF", "-t", "20"]).args(args);
    command.env("OVS_RUNDIR", directory).current_dir(directory).stdin(Stdio::null());
    command
}

/// Runs `ovs-ofctl`, away from the runtime's thread. Returns whether it succeeds, and all that it prints.
async fn run(directory: &Path, args: &[&str]) -> (bool, String) {
    let mut command = command(directory, args);
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap();
    let output = output.expect("ovs-ofctl is installed (openvswitch-common)");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

async fn ofctl(world: &World, args: &[&str]) -> String {
    let (done, text) = run(world.directory.path(), args).await;
    assert!(done, "{args:?}\n{text}");
    text
}

/// `ovs-ofctl` in the background, with its output in a file.
struct Background {
    child: Child,
    output: PathBuf,
}

impl Background {
    fn start(world: &World, args: &[&str]) -> Self {
        let output = world.path(&args.join(" "));
        let file = std::fs::File::create(&output).unwrap();
        let mut command = command(world.directory.path(), args);
        let child = command.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
        Background { child, output }
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.output).unwrap()
    }

    async fn says(&self, world: &World, wanted: &str) {
        world.until(wanted, |_| self.text().contains(wanted)).await;
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn flows_by_the_bridges_name() {
    let world = World::new(|_, _| ());
    for version in ["OpenFlow10", "OpenFlow13", "OpenFlow14", "OpenFlow15"] {
        ofctl(&world, &["-O", version, "add-flow", "br0", "priority=7,in_port=1,actions=output:2"]).await;
        let flows = ofctl(&world, &["-O", version, "--no-stats", "dump-flows", "br0"]).await;
        assert!(flows.contains("priority=7,in_port=1 actions=output:2"), "{flows}");
        ofctl(&world, &["-O", version, "del-flows", "br0"]).await;
        let (done, error) =
            run(world.directory.path(), &["-O", version, "add-flow", "br0", "actions=output:77777"]).await;
        assert!(!done, "{error}");
    }
    ofctl(&world, &["-O", "OpenFlow14", "--bundle", "replace-flows", "br0", "/dev/null"]).await;
    world.agent.shutdown().await;
    let (done, error) = run(world.directory.path(), &["dump-flows", "br0"]).await;
    assert!(!done && error.contains("br0 is not a bridge or a socket"), "{error}");
}

#[tokio::test]
async fn many_flows_are_added_and_listed() {
    let world = World::new(|_, _| ());
    let flows: String =
        (0..20_000u32).map(|n| format!("ip,nw_dst=10.0.{}.{},actions=output:2\n", n >> 8, n & 255)).collect();
    std::fs::write(world.path("flows"), flows).unwrap();
    ofctl(&world, &["add-flows", "br0", "flows"]).await;
    // A reply of many messages, several times what the socket holds.
    let listed = ofctl(&world, &["-O", "OpenFlow13", "--no-stats", "dump-flows", "br0"]).await;
    assert_eq!(listed.matches("actions=output:2").count(), 20_000);
    world.agent.shutdown().await;
}

#[tokio::test]
async fn monitor_gets_what_it_asks_for() {
    let world = World::new(|_, _| ());
    let flows = Background::start(&world, &["monitor", "br0", "watch:"]);
    let packets = Background::start(&world, &["-O", "OpenFlow13", "monitor", "br0", "65534"]);
    ofctl(&world, &["-O", "OpenFlow13", "add-flow", "br0", "ip,actions=controller"]).await;
    // The monitors' requests come first or later.
    flows.says(&world, "ip actions=CONTROLLER:65535").await;
    world
        .until("a packet seen", |world| {
            world.switch.with(|switch, now| switch.packet(PortNo(1), &unhex(IPV4), now));
            packets.text().contains("nw_src=1.2.3.4,nw_dst=10.0.0.7")
        })
        .await;
    set_port(&world.switch, 2, false);
    packets.says(&world, "OFPT_PORT_STATUS (OF1.3)").await;
    assert!(!flows.text().contains("PORT_STATUS"), "{}", flows.text());
    world.agent.shutdown().await;
}

#[tokio::test]
async fn packet_out_has_effects() {
    let world = World::new(|_, _| ());
    let packet = format!("in_port=1 packet={IPV4} actions=output:3");
    ofctl(&world, &["-O", "OpenFlow13", "packet-out", "br0", &packet]).await;
    let output = Effect::Output { port: PortNo(3), packet: unhex(IPV4), queue: 0 };
    world.until("sent", |world| *world.effects.lock().unwrap() == [output.clone()]).await;
    world.agent.shutdown().await;
}

#[tokio::test]
async fn snoop_shows_the_primary_controller() {
    let world = World::new(|settings, path| {
        settings.controllers = vec![unix(&path.join("c1")), unix(&path.join("c2"))];
    });
    // Without a controller there is nothing to observe.
    assert!(!run(world.directory.path(), &["snoop", "br0"]).await.0);
    let listeners = ["c1", "c2"].map(|name| UnixListener::bind(world.path(name)).unwrap());
    let mut other = Peer::greet(listeners[0].accept().await.unwrap().0).await;
    let mut primary = Peer::greet(listeners[1].accept().await.unwrap().0).await;
    other.barrier().await;
    let role = RoleMessage { role: Role::Primary, short_id: 0, generation_id: 1 };
    primary.ask(Body::RoleRequest(role)).await;
    let mut snoop = Background::start(&world, &["snoop", "br0"]);
    let mut xid = 0x1000;
    while !snoop.text().contains("OFPT_BARRIER_REPLY") {
        xid += 1;
        primary.send(xid, Body::BarrierRequest).await;
        assert_eq!(primary.read().await.unwrap().xid, xid);
    }
    other.send(0xaaaa, Body::BarrierRequest).await;
    assert_eq!(other.read().await.unwrap().xid, 0xaaaa);
    primary.send(0xbbbb, Body::FeaturesRequest).await;
    assert_eq!(primary.read().await.unwrap().xid, 0xbbbb);
    snoop.says(&world, "OFPT_FEATURES_REPLY (OF1.3) (xid=0xbbbb)").await;
    let text = snoop.text();
    assert!(text.contains("OFPT_FEATURES_REQUEST (OF1.3) (xid=0xbbbb)"), "{text}");
    assert!(!text.contains("xid=0xaaaa"), "{text}");
    // It ends with its controller.
    drop(primary);
    let ended = tokio::task::spawn_blocking(move || snoop.child.wait().unwrap());
    // Not killed by its own alarm.
    assert!(ended.await.unwrap().code().is_some());
    world.agent.shutdown().await;
}
