//! Guests that reboot, and guests whose switch is started again under them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use e2e::{Daemon, Guest, GuestConfig, Netns, config, exclusive, long, until};

/// Guests are slow where the machine is busy: they are translated, instruction by instruction.
const BOOT: Duration = Duration::from_secs(150);

/// From a new daemon's readiness to the first answer. QEMU tries to connect once a second, and the host asks for addresses once a
/// second: where neither runs in time, because the machine does other things, it is some seconds more.
fn resume() -> Duration {
    Duration::from_secs(if long() { 2 } else { 30 })
}

/// Prints that it is up, and reboots when it is told to on port 7000.
const SCRIPT: &str = "echo booted\nuntil nc -l -p 7000 </dev/null | grep -q reboot; do :; done\nreboot -f";

/// A guest with the address 10.92.0.`number`.
fn guest(daemon: &Daemon, number: u8, more: GuestConfig) -> Guest {
    let up = format!("ip addr add 10.92.0.{number}/24 dev eth0; ip link set eth0 up\n");
    let config = GuestConfig {
        socket: daemon.path(&format!("g{number}.sock")).into(),
        mac: format!("52:54:00:00:00:{number:02x}"),
        script: up + SCRIPT,
        megabytes: 256,
        reboots: true,
        ..more
    };
    Guest::start(&config).unwrap()
}

/// Waits until 10.92.0.`number` answers a ping, for `limit` at most; returns after how long it did.
fn answers(from: &Netns, number: u8, limit: Duration) -> Duration {
    let (to, start) = (format!("10.92.0.{number}"), Instant::now());
    until(&format!("{to} to answer"), limit, || {
        Ok(from.run(&["ping", "-q", "-c", "1", "-W", "0.1", &to]).ok().map(drop))
    })
    .unwrap();
    start.elapsed()
}

#[test]
fn a_guest_reboots_and_comes_back() {
    let _machine = exclusive();
    let blue = Netns::new().unwrap();
    let tap = config::tap("blue", "eth0", blue.name(), &["10.92.0.9/24"], "");
    let ports = config::vhost_user("g1", "") + &tap;
    let daemon = Daemon::start(&(config::bridge("br0", "learning") + &ports)).unwrap();
    let mut guest = guest(&daemon, 1, GuestConfig::default());
    guest.wait_for("booted", BOOT).unwrap();
    answers(&blue, 1, BOOT);
    until("the guest to reboot", BOOT, || {
        // Refused until it listens.
        let told = blue.enter(|| TcpStream::connect("10.92.0.1:7000")?.write_all(b"reboot\n"));
        Ok(told?.ok())
    })
    .unwrap();
    until("the guest to boot again", BOOT, || {
        Ok((guest.console().matches("booted").count() == 2).then_some(()))
    })
    .unwrap();
    answers(&blue, 1, BOOT);
    assert!(daemon.port("br0", "g1").unwrap().is_up());
}

#[test]
fn memory_is_plugged_in_under_traffic() {
    let _machine = exclusive();
    let blue = Netns::new().unwrap();
    let tap = config::tap("blue", "eth0", blue.name(), &["10.92.0.9/24"], "");
    let ports = config::vhost_user("g1", "") + &tap;
    let daemon = Daemon::start(&(config::bridge("br0", "learning") + &ports)).unwrap();
    let mut guest = guest(&daemon, 1, GuestConfig { more_megabytes: 128, ..GuestConfig::default() });
    guest.wait_for("booted", BOOT).unwrap();
    answers(&blue, 1, BOOT);
    let regions = || {
        let port = daemon.port("br0", "g1").unwrap();
        let details = port.json()["details"].as_array().cloned().unwrap_or_default();
        let found = details.iter().find(|detail| detail["name"] == "memory-regions");
        found.and_then(|found| found["value"].as_str()?.parse::<u32>().ok()).expect("memory regions")
    };
    let before = regions();
    let pings = blue.start(&["ping", "-q", "-i", "0.01", "-c", "300", "10.92.0.1"]).unwrap();
    guest.plug_memory(128).unwrap();
    until("the switch to have the memory", BOOT, || Ok((regions() == before + 1).then_some(()))).unwrap();
    // Fails where no answer comes.
    println!("{}", pings.output().unwrap());
    answers(&blue, 1, resume());
}

#[test]
fn guests_go_on_when_the_switch_is_started_again() {
    let _machine = exclusive();
    let blue = Netns::new().unwrap();
    let keys = "path = \"{dir}/g2.sock\"\nrole = \"client\"";
    let ports = config::vhost_user("g1", "")
        + &config::port("g2", "vhost-user", keys)
        + &config::vhost_user("g3", "")
        + &config::tap("blue", "eth0", blue.name(), &["10.92.0.9/24"], "");
    let mut daemon = Daemon::start(&(config::bridge("br0", "learning") + &ports)).unwrap();
    let listens = GuestConfig { listens: true, ..GuestConfig::default() };
    let packed = GuestConfig { device: ",packed=on".into(), ..GuestConfig::default() };
    // A port that listens, one that connects, and packed rings, whose position nobody knows when the switch is gone.
    // They boot side by side.
    let guests = [(1, GuestConfig::default()), (2, listens), (3, packed)];
    let guests = guests.map(|(number, more)| (number, guest(&daemon, number, more)));
    let _guests = guests.map(|(number, mut guest)| {
        guest.wait_for("booted", BOOT).unwrap();
        answers(&blue, number, BOOT);
        guest
    });
    for killed in [true, false, true] {
        // Not from the start of a ring.
        for to in ["10.92.0.1", "10.92.0.2", "10.92.0.3"] {
            blue.run(&["ping", "-q", "-i", "0.005", "-c", "300", "-W", "5", to]).unwrap();
        }
        if killed {
            daemon.kill().unwrap();
        } else {
            daemon.terminate().unwrap();
        }
        daemon.restart().unwrap();
        let ready = Instant::now();
        std::thread::scope(|scope| {
            for number in 1..=3 {
                let (blue, ready) = (&blue, ready);
                scope.spawn(move || {
                    answers(blue, number, resume().saturating_sub(ready.elapsed()));
                    println!("guest {number}, killed {killed}: answers after {:?}", ready.elapsed());
                });
            }
        });
    }
}
