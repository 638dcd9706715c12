//! Virtual machines on vhost-user ports: Linux under QEMU, connected to another guest and to the host's stack.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::Read;
use std::net::TcpListener;
use std::time::Duration;

use e2e::{Daemon, Guest, GuestConfig, Netns, config, exclusive, long, output};

/// Time allowed for a guest; QEMU translates its instructions, which is slow on a busy machine.
const BOOT: Duration = Duration::from_secs(150);

/// A guest with the address 10.92.0.`number`.
fn guest(daemon: &Daemon, number: u8, device: &str, script: &str) -> Guest {
    let up = format!("ip addr add 10.92.0.{number}/24 dev eth0; ip link set eth0 up\n");
    let config = GuestConfig {
        socket: daemon.path(&format!("g{number}.sock")).into(),
        mac: format!("52:54:00:00:00:{number:02x}"),
        script: up + script,
        megabytes: if long() { 768 } else { 256 },
        device: device.into(),
        ..GuestConfig::default()
    };
    Guest::start(&config).unwrap()
}

/// Script that waits until `to` answers, then sends it a file and prints the file's hash.
fn send(to: &str, megabytes: u32) -> String {
    format!(
        "until ping -c 1 -W 1 {to} >/dev/null; do :; done\n\
         ping -c 3 -W 5 {to} >/dev/null && echo pinged\n\
         dd if=/dev/urandom of=/tmp/file bs=1M count={megabytes} 2>/dev/null\n\
         echo sent: $(md5sum </tmp/file)\n\
         nc {to} 5000 </tmp/file\n\
         sleep 1000"
    )
}

const RECEIVE: &str = "echo received: $(nc -l -p 5000 | md5sum)\nsleep 1000";

#[test]
fn guests_ping_and_copy_a_file() {
    let _machine = exclusive();
    let megabytes = if long() { 200 } else { 20 };
    let ports = config::vhost_user("g1", "") + &config::vhost_user("g2", "");
    let daemon = Daemon::start(&(config::bridge("br0", "learning") + &ports)).unwrap();
    let mut receiver = guest(&daemon, 2, ",packed=on", RECEIVE);
    let mut sender = guest(&daemon, 1, "", &send("10.92.0.2", megabytes));
    sender.wait_for("pinged", BOOT).unwrap();
    let sent = sender.wait_for("sent:", BOOT).unwrap();
    assert_eq!(receiver.wait_for("received:", BOOT).unwrap(), sent);
    let details = |port| daemon.port("br0", port).unwrap().json()["details"].to_string();
    assert!(details("g1").contains("mergeable") && details("g2").contains("packed"), "{}", details("g2"));
}

#[test]
fn a_guest_and_a_namespace_ping_and_copy_a_file() {
    let _machine = exclusive();
    let blue = Netns::new().unwrap();
    let ports =
        config::vhost_user("g1", "") + &config::tap("blue", "eth0", blue.name(), &["10.92.0.9/24"], "");
    let daemon = Daemon::start(&(config::bridge("br0", "learning") + &ports)).unwrap();
    let megabytes = if long() { 200 } else { 20 };
    let mut sender = guest(&daemon, 1, "", &send("10.92.0.9", megabytes));
    // The guest is still booting.
    let received = blue.enter(|| {
        let (mut stream, _) = TcpListener::bind("10.92.0.9:5000").unwrap().accept().unwrap();
        stream.set_read_timeout(Some(BOOT)).unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        received
    });
    let received = received.unwrap();
    assert_eq!(received.len(), megabytes as usize * 1024 * 1024);
    let file = daemon.path("received");
    std::fs::write(&file, received).unwrap();
    let sum = output("md5sum", &[&file]).unwrap();
    let sent = sender.wait_for("sent:", BOOT).unwrap();
    assert_eq!(sum.split(' ').next(), sent.split(' ').next());
    blue.run(&["ping", "-q", "-c", "20", "-i", "0.05", "-W", "5", "10.92.0.1"]).unwrap();
}
