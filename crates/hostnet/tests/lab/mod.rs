//! Network namespaces with a host, its interface and a host port, and a process that plays the daemon.
//!
//! The host has `eth0` with a rich configuration, connected to `p0` in a second namespace, and `host0`, whose other
//! end `hostp` would be the switch's side.
#![allow(dead_code)]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hostnet::{Handover, guardian};
use serde_json::Value;

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A network namespace with a unique name, removed with its interfaces.
pub(crate) struct Netns(pub(crate) String);

impl Netns {
    pub(crate) fn new(role: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("msw-hn-{role}-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        assert!(Command::new("ip").args(["netns", "add", &name]).status().unwrap().success());
        let netns = Self(name);
        netns.sh("ip link set lo up");
        netns
    }

    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0, program]);
        command
    }

    fn run(&self, script: &str) -> Output {
        self.command("sh").args(["-e", "-c", script]).output().unwrap()
    }

    /// Runs a script that must succeed, and returns what it prints.
    pub(crate) fn sh(&self, script: &str) -> String {
        let output = self.run(script);
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn succeeds(&self, script: &str) -> bool {
        self.run(script).status.success()
    }

    pub(crate) fn json(&self, script: &str) -> Value {
        let text = self.sh(script);
        if text.trim().is_empty() { Value::Array(vec![]) } else { serde_json::from_str(&text).unwrap() }
    }

    /// Moves the calling thread into the namespace.
    pub(crate) fn enter(&self) {
        use std::os::fd::AsFd;
        let file = std::fs::File::open(format!("/run/netns/{}", self.0)).unwrap();
        let kind = Some(rustix::thread::LinkNameSpaceType::Network);
        rustix::thread::move_into_link_name_space(file.as_fd(), kind).unwrap();
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

/// Waits until a condition holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Interfaces, addresses and sysctls of every test.
const HOST: &str = "
    ip link add name eth0 address 02:00:00:00:00:01 mtu 1450 type veth peer name p0 netns $PEER
    ip link add name host0 address 02:00:00:00:00:99 type veth peer name hostp
    ip link add name eth1 type veth peer name eth1p
    ip link set hostp addrgenmode none
    for i in eth0 hostp host0 eth1 eth1p; do ip link set $i up; done
    ip addr add 10.0.0.1/24 brd + dev eth0
    ip addr add 2001:db8::1/64 dev eth0 nodad
    ip addr add fd00::1/64 dev eth0
    ip route add default via 10.0.0.254 dev eth0
    ip -6 route add default via 2001:db8::fe dev eth0
";

/// Addresses of all kinds.
const ADDRESSES: &str = "
    ip addr add 10.0.0.2/24 brd + dev eth0
    ip addr add 10.0.0.3/24 brd + dev eth0 label eth0:web
    ip addr add 10.0.0.4/25 dev eth0
    ip addr add 10.0.9.1/24 dev eth0 noprefixroute
    ip addr add 192.168.7.1 peer 192.168.7.2/32 dev eth0
    ip addr add 10.0.5.5/24 dev eth0 metric 77 valid_lft 3600 preferred_lft 1800
    ip addr add 2001:db8::2/64 dev eth0
    ip addr add 2001:db8:5::1/64 dev eth0 noprefixroute
    ip addr add fd01::1/64 dev eth0 valid_lft 3600 preferred_lft 1800
    ip addr add fd02::1/64 dev eth0 valid_lft 3600 preferred_lft 0
    ip addr add fd03::1 peer fd03::2/128 dev eth0
    ip addr add 10.200.0.1/24 dev host0
    ip addr add fd0d::1/64 dev host0
    ip addr add 10.1.0.1/24 dev eth1
    ip addr add fd0e::1/64 dev eth1 nodad
";

/// What else an interface can have.
const ROUTES: &str = "
    ip route add 10.40.0.0/16 via 10.0.0.253 src 10.0.0.2 proto dhcp metric 100
    ip route add 10.41.0.0/16 dev eth0 proto static scope link
    ip route add 10.42.0.0/16 via 10.41.0.1 mtu 1400 initcwnd 20 advmss 1300
    ip route add 10.50.0.0/16 via 10.0.0.253 table 100
    ip route add 10.51.0.0/16 dev eth0 scope link table 100 src 10.0.0.3
    ip route add default via 10.99.0.1 dev eth0 onlink table 2000
    ip route add 10.52.0.0/16 nexthop via 10.0.0.253 dev eth0 weight 3 nexthop via 10.1.0.2 dev eth1
    ip route add 10.60.0.0/16 dev eth0
    ip route append 10.60.0.0/16 dev eth1
    ip route add 10.61.0.0/16 dev eth1
    ip route append 10.61.0.0/16 dev eth0
    ip route add 10.62.0.0/16 via inet6 2001:db8::fe dev eth0
    ip route add 10.63.0.0/16 tos 0x10 via 10.0.0.253
    ip -6 route add default via fe80::1 dev eth0 proto ra metric 512 expires 1800 pref high
    ip -6 route add 2001:db8:40::/48 via 2001:db8::fe dev eth0 src 2001:db8::2 mtu 1400
    ip -6 route add 2001:db8:50::/48 via 2001:db8::fe dev eth0 table 100
    ip -6 route add 2001:db8:51::/48 dev eth0 metric 5
    ip -6 route add 2001:db8:52::/48 nexthop via 2001:db8::fe dev eth0 nexthop via fd0e::fe dev eth1
    ip -6 route add 2001:db8:60::/48 dev eth1 metric 5
    ip -6 route append 2001:db8:60::/48 dev eth0 metric 5
    ip neigh add 10.0.0.77 lladdr 02:00:00:00:00:77 dev eth0 nud permanent
    ip neigh add 10.0.0.78 lladdr 02:00:00:00:00:78 dev eth0 nud noarp
    ip neigh add proxy 10.0.0.88 dev eth0
    ip neigh add 2001:db8::77 lladdr 02:00:00:00:00:77 dev eth0 nud permanent router
    ip neigh add proxy 2001:db8::88 dev eth0
    ip route add 10.201.0.0/16 via 10.200.0.2
    ip rule add iif host0 to 10.200.0.0/24 lookup main pref 999
    ip rule add iif eth0 lookup 100 pref 1000
    ip rule add oif eth0 from 10.0.0.2 to 10.50.0.0/16 fwmark 7/0xff lookup 2000 pref 1001
    ip rule add not iif eth0 tos 0x10 lookup 2000 suppress_prefixlength 0 pref 1002
    ip rule add from 10.0.0.2 lookup 100 pref 1003
    ip rule add iif eth0 prohibit ipproto tcp dport 9999 pref 0
    ip -6 rule add iif eth0 lookup 100 pref 1000
    ip -6 rule add oif eth0 goto 32766 pref 1001
    echo 1 > /proc/sys/net/ipv4/conf/eth0/proxy_arp
    echo 1 > /proc/sys/net/ipv4/conf/eth0/rp_filter
    echo 2 > /proc/sys/net/ipv4/conf/eth0/arp_announce
    echo 0 > /proc/sys/net/ipv6/conf/eth0/accept_ra
    echo 1 > /proc/sys/net/ipv6/conf/eth0/proxy_ndp
";

/// Next hops with numbers, which not every kernel has.
const NEXTHOPS: &str = "
    ip nexthop add id 7 via 10.0.0.253 dev eth0
    ip nexthop add id 8 via 10.1.0.3 dev eth1
    ip nexthop add id 9 group 7/8,2
    ip route add 10.70.0.0/16 nhid 7
    ip route add 10.71.0.0/16 nhid 9
    ip route add 10.0.9.0/24 dev eth0
    ip nexthop add id 10 via 10.0.9.254 dev eth0
    ip route add 10.72.0.0/16 nhid 10
";

/// A host in one namespace and its neighbour in another.
pub(crate) struct Lab {
    pub(crate) host: Netns,
    pub(crate) peer: Netns,
    directory: tempfile::TempDir,
}

impl Lab {
    /// Returns a host with one address of each kind.
    pub(crate) fn plain() -> Self {
        let (host, peer) = (Netns::new("host"), Netns::new("peer"));
        host.sh(&format!("PEER={}\n{HOST}", peer.0));
        peer.sh("ip link set p0 address 02:00:00:00:00:fe mtu 1450 up
             ip addr add 10.0.0.254/24 dev p0
             ip addr add 2001:db8::fe/64 dev p0 nodad");
        let lab = Self { host, peer, directory: tempfile::tempdir().unwrap() };
        // The kernel gives an interface its link-local address some time after the link comes up.
        for interface in ["eth0", "host0", "eth1"] {
            let addresses = format!("ip -6 addr show dev {interface} scope link");
            until("link-local addresses are there", || !lab.host.sh(&addresses).is_empty());
        }
        lab.settle();
        lab
    }

    /// Returns a host with all that moves.
    pub(crate) fn rich() -> Self {
        let lab = Self::plain();
        lab.host.sh(ADDRESSES);
        lab.settle();
        lab.host.sh(ROUTES);
        if lab.host.succeeds("ip nexthop") {
            lab.host.sh(NEXTHOPS);
        }
        lab.settle();
        lab
    }

    /// Waits for the end of duplicate address detection.
    pub(crate) fn settle(&self) {
        for netns in [&self.host, &self.peer] {
            until("addresses are usable", || netns.sh("ip -6 addr show tentative").is_empty());
        }
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.directory.path().join("eth0.journal")
    }

    pub(crate) fn has_files(&self) -> bool {
        std::fs::read_dir(self.directory.path()).unwrap().next().is_some()
    }

    /// Starts a daemon that moves `eth0` to `host0`.
    pub(crate) fn daemon(&self) -> Daemon {
        Daemon::start(
            self.host.command(env!("CARGO_BIN_EXE_hostnet")),
            &["move", "eth0", "host0"],
            self.journal(),
        )
    }

    /// Starts it by a shell's command, which `$@` completes.
    pub(crate) fn daemon_by(&self, script: &str) -> Daemon {
        let mut command = self.host.command("sh");
        command.args(["-e", "-c", script, "sh", env!("CARGO_BIN_EXE_hostnet")]);
        Daemon::start(command, &["move", "eth0", "host0"], self.journal())
    }

    /// Starts it with this standard error.
    pub(crate) fn daemon_with(&self, errors: Stdio) -> Daemon {
        let command = self.host.command(env!("CARGO_BIN_EXE_hostnet"));
        Daemon::start_with(command, &["move", "eth0", "host0"], self.journal(), errors)
    }

    /// Moves `eth0` to `host0` in this process, on a thread in the host's namespace.
    pub(crate) fn handover(&self) -> Handover {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hostnet"));
        command.arg(guardian::ARGUMENT);
        Handover::begin("eth0", "host0", &self.journal(), command).unwrap().commit().unwrap()
    }

    /// Returns the directory of the journal.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn recover(&self) -> String {
        let output = self
            .host
            .command(env!("CARGO_BIN_EXE_hostnet"))
            .arg("recover")
            .arg(self.journal())
            .output()
            .unwrap();
        String::from_utf8(if output.status.success() { output.stdout } else { output.stderr })
            .unwrap()
            .trim()
            .to_owned()
    }

    /// Returns the whole configuration of the host, apart from what time changes.
    pub(crate) fn dump(&self) -> Vec<(String, Value)> {
        let mut dump = Vec::new();
        for command in [
            "ip -j -d addr",
            "ip -j -d -4 route show table all",
            "ip -j -d -6 route show table all",
            "ip -j rule",
            "ip -j -6 rule",
            "ip -j neigh show nud permanent",
            "ip -j neigh show proxy",
            "ip -j -6 neigh show nud permanent",
            "ip -j nexthop || true",
        ] {
            let mut value = self.host.json(command);
            if command.contains("-6 route") || command.contains("neigh") {
                // Listed in the order of a hash or tree.
                let list = value.as_array_mut().unwrap();
                list.sort_by_key(ToString::to_string);
            }
            if command.contains("neigh") {
                value
                    .as_array_mut()
                    .unwrap()
                    .retain(|entry| entry["dev"] == "eth0" || entry["dev"] == "host0");
            }
            without_time(&mut value);
            dump.push((command.to_owned(), value));
        }
        for interface in ["eth0", "host0"] {
            let files =
                format!("/proc/sys/net/ipv4/conf/{interface}/* /proc/sys/net/ipv6/conf/{interface}/*");
            let text = self.host.sh(&format!("grep -s . {files} || true"));
            dump.push((interface.to_owned(), Value::from(text.lines().collect::<Vec<_>>())));
        }
        dump
    }
}

impl Lab {
    /// Returns the configuration of `eth0` alone, for tests in which `host0` goes away.
    pub(crate) fn host_dump(&self) -> Vec<(String, Value)> {
        let mut dump = self.dump();
        dump.retain(|(command, _)| command != "host0");
        for (_, value) in &mut dump {
            let list = value.as_array_mut().unwrap();
            list.retain(|entry| {
                let text = entry.to_string();
                !["host0", "hostp", "10.200.0", "10.201.0", "fd0d::"].iter().any(|own| text.contains(own))
            });
        }
        dump
    }
}

impl Lab {
    /// Makes a TAP interface that lives as long as the returned file.
    pub(crate) fn tap(&self, name: &str) -> std::fs::File {
        use std::os::fd::AsRawFd;
        std::thread::scope(|scope| {
            let make = || {
                self.host.enter();
                let file = std::fs::File::options().read(true).write(true).open("/dev/net/tun").unwrap();
                // A name, then flags: IFF_TAP | IFF_NO_PI.
                let mut request = [0_u8; 40];
                request[..name.len()].copy_from_slice(name.as_bytes());
                request[16..18].copy_from_slice(&0x1002_u16.to_ne_bytes());
                let request = request.as_mut_ptr();
                // SAFETY: the kernel reads and writes a `struct ifreq`, which has 40 bytes.
                let made = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, request) };
                assert_eq!(made, 0);
                file
            };
            scope.spawn(make).join().unwrap()
        })
    }
}

/// Returns whether a process has ended.
pub(crate) fn is_gone(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"));
    stat.is_err() || stat.is_ok_and(|stat| stat.contains(") Z "))
}

/// Replaces lifetimes and counters, after checking that lifetimes are near what was set.
fn without_time(value: &mut Value) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(without_time),
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                match name.as_str() {
                    "valid_life_time" | "preferred_life_time" | "expires" => {
                        let seconds = value.as_u64().unwrap();
                        let set = [0, 1800, 3600, u64::from(u32::MAX)];
                        let near = set.iter().find(|set| (seconds..seconds + 60).contains(*set));
                        *value = (*near.unwrap_or_else(|| panic!("{name} is {seconds}"))).into();
                    }
                    "used" | "cache" | "metrics_cache" => *value = Value::Null,
                    _ => without_time(value),
                }
            }
        }
        _ => {}
    }
}

/// Fails with the first differences of two dumps.
pub(crate) fn assert_same(before: &[(String, Value)], after: &[(String, Value)]) {
    for ((command, before), (_, after)) in before.iter().zip(after) {
        let lines = |value: &Value| {
            let list = value.as_array().unwrap();
            list.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let (before, after) = (lines(before), lines(after));
        let lost: Vec<_> = before.iter().filter(|line| !after.contains(line)).collect();
        let new: Vec<_> = after.iter().filter(|line| !before.contains(line)).collect();
        assert!(lost.is_empty() && new.is_empty(), "{command}\nlost: {lost:#?}\nnew: {new:#?}");
        assert_eq!(before, after, "{command}: the order differs");
    }
}

/// A process that holds a handover, as the daemon does.
pub(crate) struct Daemon {
    pub(crate) child: Child,
    words: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    pub(crate) guardian: u32,
}

impl Daemon {
    pub(crate) fn start(command: Command, args: &[&str], journal: PathBuf) -> Self {
        Self::start_with(command, args, journal, Stdio::piped())
    }

    fn start_with(mut command: Command, args: &[&str], journal: PathBuf, errors: Stdio) -> Self {
        let command = command.args(args).arg(journal);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors).spawn().unwrap();
        let words = child.stdin.take();
        let mut answers = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        let guardian =
            line.trim().strip_prefix("guardian ").and_then(|number| number.parse().ok()).unwrap_or_default();
        Self { child, words, answers, guardian }
    }

    /// Says a word and returns what the daemon prints; an empty list if it has failed.
    pub(crate) fn say(&mut self, word: &str) -> Vec<String> {
        writeln!(self.words.as_mut().unwrap(), "{word}").unwrap();
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if self.answers.read_line(&mut line).unwrap() == 0 {
                return Vec::new();
            }
            lines.push(line.trim().to_owned());
            if line.starts_with("done ") {
                return lines;
            }
        }
    }

    /// Waits for the end of the process and returns its errors.
    pub(crate) fn errors(mut self) -> String {
        drop(self.words.take());
        let output = self.child.wait_with_output().unwrap();
        String::from_utf8(output.stderr).unwrap().trim().to_owned()
    }

    /// Returns the process number: `ip netns exec` becomes the program.
    pub(crate) fn inner(&self) -> u32 {
        self.child.id()
    }

    /// Kills the process as the kernel does when memory runs out.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    pub(crate) fn kill_guardian(&self) {
        kill(self.guardian);
    }
}

pub(crate) fn kill(process: u32) {
    let process = rustix::process::Pid::from_raw(process.try_into().unwrap()).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
}
