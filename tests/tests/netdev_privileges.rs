//! Netdev ports of daemons that lack a capability, locked memory or nftables: the port says so and recovers when the
//! cause goes, and two clients of the same bridge lose nothing meanwhile.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bench::port::PortSpec;
use bench::session::{Options, Session};
use e2e::{Netns, Service, config, output, until};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(30);

/// Locked memory in bytes: enough for one queue.
const ENOUGH: &str = "8388608";

/// Gives the machine the interface `card`, one end of a veth pair.
fn plug(machine: &Netns) {
    machine.run(&["ip", "link", "add", "name", "card", "type", "veth", "peer", "name", "peer"]).unwrap();
    for end in ["card", "peer"] {
        machine.run(&["ip", "link", "set", "dev", end, "up"]).unwrap();
    }
}

/// Starts a daemon in the namespace of the machine: the port `card` has its interface, and `c` and `d` are bystanders.
fn start(
    machine: &Netns,
    driver: &str,
    capabilities: &[&str],
    prepare: impl FnOnce(&mut Command),
) -> Service {
    let config = config::bridge("br0", "learning")
        + &config::memif("c", 0, "")
        + &config::memif("d", 1, "")
        + &config::port("card", "netdev", &format!("driver = \"{driver}\""));
    // Whoever starts the test may have another limit.
    let mut command = machine.command(&["prlimit", &format!("--memlock={ENOUGH}:{ENOUGH}"), "setpriv"]);
    prepare(&mut command);
    let capabilities: Vec<_> = capabilities.iter().map(ToString::to_string).collect();
    let mut service = Service::start_by(command, &config, &capabilities).unwrap();
    service.wait_ready().unwrap();
    service
}

/// A port as `port list` shows it.
fn port(service: &Service, name: &str) -> Value {
    let all = service.json(&["port", "list", "br0"]).unwrap();
    all["ports"].as_array().unwrap().iter().find(|port| port["name"] == name).unwrap().clone()
}

fn wait_down(service: &Service, reason: &str) {
    let mut last = Value::Null;
    until("the port to be refused", LIMIT, || {
        last = port(service, "card");
        Ok((last["link"] != "up" && last["reason"] == reason).then_some(()))
    })
    .unwrap_or_else(|error| panic!("{error}; last seen: {last}"));
}

fn wait_up(service: &Service) {
    until("the port to come up", LIMIT, || Ok((port(service, "card")["link"] == "up").then_some(())))
        .unwrap();
}

/// Calls `fault` while the bystanders send to each other; asserts that everything arrives.
fn with_bystanders(service: &Service, fault: impl FnOnce()) {
    /// Ends the bystanders also if the fault panics.
    struct Over<'a>(&'a AtomicBool);

    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    let over = AtomicBool::new(false);
    let socket = service.folder().join("memif").display().to_string();
    let mut options = Options::new(vec![PortSpec::new(&socket, 0), PortSpec::new(&socket, 1)]);
    options.duration = 2 * LIMIT;
    std::thread::scope(|scope| {
        let bystanders = scope.spawn(|| Session::connect(options).unwrap().run(&over).unwrap());
        let ending = Over(&over);
        let sent = || {
            let packets = port(service, "c")["totals"]["rx"]["packets"].clone();
            packets.as_u64().or_else(|| packets.as_str()?.parse().ok()).unwrap()
        };
        let more = || {
            let before = sent();
            until("packets of a bystander", LIMIT, || Ok((sent() > before + 100).then_some(()))).unwrap();
        };
        more();
        fault();
        more();
        drop(ending);
        let report = bystanders.join().unwrap();
        assert!(report.ok && report.received() > 0, "{report}");
    });
}

/// Asserts that the port is refused for this reason when its interface appears, and that a daemon without the fault has
/// it.
fn refused(driver: &str, capabilities: &[&str], prepare: impl FnOnce(&mut Command), reason: &str) {
    let machine = Netns::new().unwrap();
    let mut service = start(&machine, driver, capabilities, prepare);
    with_bystanders(&service, || {
        plug(&machine);
        wait_down(&service, reason);
    });
    assert!(service.terminate().unwrap().success(), "{}", service.log());
    // With the last one, its memory does not count for the user.
    let all = ["CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_BPF", "CAP_IPC_LOCK"];
    wait_up(&start(&machine, driver, &all, |_| {}));
}

#[test]
fn without_cap_net_admin() {
    let reason = "interface `card`: attaching an interface needs CAP_NET_ADMIN";
    refused("auto", &["CAP_NET_RAW", "CAP_BPF"], |_| {}, reason);
}

#[test]
fn without_cap_net_raw() {
    let reason = "interface `card`: opening a packet socket needs CAP_NET_RAW";
    refused("auto", &["CAP_NET_ADMIN", "CAP_BPF"], |_| {}, reason);
}

#[test]
fn without_cap_bpf() {
    let reason = "interface `card`: making a BPF map: Operation not permitted (os error 1); CAP_NET_ADMIN, CAP_NET_RAW \
                  and CAP_BPF are needed";
    refused("af-xdp", &["CAP_NET_ADMIN", "CAP_NET_RAW"], |_| {}, reason);
}

#[test]
fn without_nftables() {
    let reason = "interface `card`: its packets cannot be kept from the host's own stack: Protocol not supported (os \
                  error 93); Linux 5.12 or later with nf_tables and CONFIG_NF_TABLES_NETDEV is needed";
    refused("auto", &["CAP_NET_ADMIN", "CAP_NET_RAW"], forbid_netfilter, reason);
}

/// Has a program see a kernel without netfilter's netlink sockets.
fn forbid_netfilter(command: &mut Command) {
    // SAFETY: between fork and exec, the closure only makes a system call.
    unsafe { command.pre_exec(install_filter) };
}

/// Refuses `socket(AF_NETLINK, ..., NETLINK_NETFILTER)` as a kernel without it does, for this process and its children.
fn install_filter() -> std::io::Result<()> {
    use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter};
    /// Offsets in `struct seccomp_data`: the call's number, its first and its third argument.
    const NUMBER: u32 = 0;
    const FAMILY: u32 = 16;
    const PROTOCOL: u32 = 32;
    let statement = |code: u32, k: u32| sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let load = |offset: u32| statement(BPF_LD | BPF_W | BPF_ABS, offset);
    let unless = |k: u32, jf: u8| sock_filter { jf, ..statement(BPF_JMP | BPF_JEQ | BPF_K, k) };
    let mut program = [
        load(NUMBER),
        unless(libc::SYS_socket as u32, 5),
        load(FAMILY),
        unless(libc::AF_NETLINK as u32, 3),
        load(PROTOCOL),
        unless(libc::NETLINK_NETFILTER as u32, 1),
        statement(BPF_RET | BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPROTONOSUPPORT as u32),
        statement(BPF_RET | BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the kernel reads the program, whose instructions outlive the call.
    let set =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, std::ptr::from_ref(&program)) };
    if set == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Packet memory is locked, and more than the limit.
#[test]
fn too_little_locked_memory() {
    let machine = Netns::new().unwrap();
    let service = start(&machine, "af-xdp", &["CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_BPF"], |_| {});
    let limit = |bytes: &str| {
        // A user may change limits of its own processes.
        let (user, process) = (Service::USER.to_string(), service.pid().to_string());
        let limit = format!("--memlock={bytes}:{ENOUGH}");
        let command = ["prlimit", "--pid", &process, &limit];
        output("setpriv", &[&["--reuid", &user, "--regid", &user, "--clear-groups"], &command[..]].concat())
            .unwrap();
    };
    plug(&machine);
    wait_up(&service);
    with_bystanders(&service, || {
        limit("65536");
        machine.run(&["ip", "link", "del", "dev", "card"]).unwrap();
        plug(&machine);
        wait_down(
            &service,
            "interface `card`: registering packet memory: No buffer space available (os error 105); raise \
             RLIMIT_MEMLOCK (`LimitMEMLOCK=` of a systemd unit), or grant CAP_IPC_LOCK",
        );
        limit(ENOUGH);
        wait_up(&service);
    });
}
