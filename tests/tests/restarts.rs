//! Rebooting guests, and clients whose switch restarts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use bench::port::{Device, PortSpec};
use e2e::impact::Bystanders;
use e2e::{Daemon, Guest, GuestConfig, Netns, config, exclusive, long, until};
use rustix::process::Signal;

/// Time allowed for a guest; QEMU translates its instructions, which is slow on a busy machine.
const BOOT: Duration = Duration::from_secs(150);

/// Time from a new daemon's readiness to the first answer. QEMU reconnects once a second, and the host repeats its ARP
/// request once a second; on a busy machine each may be delayed by some seconds.
fn resume() -> Duration {
    Duration::from_secs(if long() { 2 } else { 30 })
}

/// Prints `booted`, and reboots on request on port 7000.
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

/// Waits at most `limit` until 10.92.0.`number` answers a ping; returns the time it took.
fn wait_for_answer(from: &Netns, number: u8, limit: Duration) -> Duration {
    let (to, start) = (format!("10.92.0.{number}"), Instant::now());
    until(&format!("{to} to answer"), limit, || {
        Ok(from.run(&["ping", "-q", "-c", "1", "-W", "0.1", &to]).ok().map(drop))
    })
    .unwrap();
    start.elapsed()
}

#[test]
fn a_rebooted_guest_answers_again() {
    let _machine = exclusive();
    let blue = Netns::new().unwrap();
    let tap = config::tap("blue", "eth0", blue.name(), &["10.92.0.9/24"], "");
    let ports = config::vhost_user("g1", "") + &tap;
    let daemon = Daemon::start(&(config::bridge("br0", "learning") + &ports)).unwrap();
    let mut guest = guest(&daemon, 1, GuestConfig::default());
    guest.wait_for("booted", BOOT).unwrap();
    wait_for_answer(&blue, 1, BOOT);
    until("the guest to reboot", BOOT, || {
        // Refused until the guest listens.
        let sent = blue.enter(|| TcpStream::connect("10.92.0.1:7000")?.write_all(b"reboot\n"));
        Ok(sent?.ok())
    })
    .unwrap();
    until("the guest to boot again", BOOT, || {
        Ok((guest.console().matches("booted").count() == 2).then_some(()))
    })
    .unwrap();
    wait_for_answer(&blue, 1, BOOT);
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
    wait_for_answer(&blue, 1, BOOT);
    let regions = || {
        let port = daemon.port("br0", "g1").unwrap();
        let details = port.json()["details"].as_array().cloned().unwrap_or_default();
        let found = details.iter().find(|detail| detail["name"] == "memory-regions");
        found.and_then(|found| found["value"].as_str()?.parse::<u32>().ok()).expect("memory regions")
    };
    let before = regions();
    let pings = blue.start(&["ping", "-q", "-i", "0.01", "-c", "300", "10.92.0.1"]).unwrap();
    guest.plug_memory(128).unwrap();
    until("the switch to map the memory", BOOT, || Ok((regions() == before + 1).then_some(()))).unwrap();
    // Fails if an answer is missing.
    println!("{}", pings.output().unwrap());
    wait_for_answer(&blue, 1, resume());
}

#[test]
fn guests_continue_after_a_restart_of_the_switch() {
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
    // A port that listens, one that connects, and packed rings, whose position is lost with the switch. The guests boot
    // side by side.
    let guests = [(1, GuestConfig::default()), (2, listens), (3, packed)];
    let guests = guests.map(|(number, more)| (number, guest(&daemon, number, more)));
    let _guests = guests.map(|(number, mut guest)| {
        guest.wait_for("booted", BOOT).unwrap();
        wait_for_answer(&blue, number, BOOT);
        guest
    });
    for killed in [true, false, true] {
        // The rings are no longer at their start.
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
                    wait_for_answer(blue, number, resume().saturating_sub(ready.elapsed()));
                    println!("guest {number}, killed: {killed}, answers after {:?}", ready.elapsed());
                });
            }
        });
    }
}

/// Number of the worker's thread.
fn worker_thread(daemon: &Daemon) -> libc::pid_t {
    let tasks = fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap().map(|task| task.unwrap());
    let name = |task: &fs::DirEntry| fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    let worker = tasks.into_iter().find(|task| name(task).trim_end() == "mswitch-w0").expect("a worker");
    worker.file_name().to_str().unwrap().parse().unwrap()
}

/// A worker's panic ends the daemon by SIGABRT on the worker's thread (`panics` of the crate `fabric`). The service
/// manager restarts it, and clients reconnect.
#[test]
fn a_worker_that_aborts_leads_to_a_restarted_daemon() {
    let _machine = exclusive();
    let unit = fs::read_to_string("../packaging/mswitch.service").unwrap();
    // The manager restarts a service that a signal ended, every time, a second later: what this test does.
    for line in ["Restart=on-failure", "RestartSec=1", "StartLimitIntervalSec=0"] {
        assert!(unit.lines().any(|it| it == line), "no {line} in:\n{unit}");
    }
    let ports = config::memif("left", 0, "") + &config::memif("right", 1, "");
    let guests = config::vhost_user("vleft", "") + &config::vhost_user("vright", "");
    let mut daemon = Daemon::start(&(config::bridge("br0", "learning") + &ports + &guests)).unwrap();
    let front_end = |port: &str| {
        let device = Device { mergeable: true, ..Device::default() };
        PortSpec::vhost_user(&daemon.path(&format!("{port}.sock")), device)
    };
    let pairs = [
        Bystanders::start("memif", daemon.memif("memif", 0), daemon.memif("memif", 1)).unwrap(),
        Bystanders::start("vhost-user", front_end("vleft"), front_end("vright")).unwrap(),
    ];
    for _ in 0..3 {
        pairs.iter().for_each(|pair| pair.exchange(100).unwrap());
        pairs.iter().for_each(Bystanders::daemon_restarts);
        let (process, thread) = (libc::pid_t::try_from(daemon.pid()).unwrap(), worker_thread(&daemon));
        // SAFETY: the call passes numbers only.
        assert_eq!(unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGABRT) }, 0);
        assert_eq!(daemon.wait().unwrap().signal(), Some(Signal::ABORT.as_raw()));
        daemon.restart().unwrap();
        pairs.iter().for_each(|pair| pair.recover().unwrap());
    }
    for pair in pairs {
        pair.exchange(100).unwrap();
        pair.finish().unwrap();
    }
}
