//! The real `ovs-ofctl` (Debian package openvswitch-common) against the example, in every version.
//!
//! The tests need `ovs-ofctl` and the example, which `cargo test` builds; they fail without them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

struct Served {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    directory: PathBuf,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

static NUMBER: AtomicU32 = AtomicU32::new(0);

impl Served {
    fn start() -> Self {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("ofswitch-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        // Beside the tests' own directory.
        let test = std::env::current_exe().unwrap();
        let example = test.parent().unwrap().parent().unwrap().join("examples/serve");
        let mut child = Command::new(&example)
            .args([directory.join("s").to_str().unwrap(), "4"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", example.display()));
        let input = child.stdin.take().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(output.next().unwrap().unwrap(), "ready");
        Served { child, input, output, directory }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("ovs-ofctl");
        let socket = format!("unix:{}", self.directory.join("s").display());
        command.args(["-vOFF", "-t", "20"]);
        command.args(args.iter().map(|arg| if *arg == "BR" { socket.clone() } else { (*arg).to_owned() }));
        command.env("OVS_RUNDIR", &self.directory).current_dir(&self.directory).stdin(Stdio::null());
        command
    }

    /// Runs `ovs-ofctl`; `BR` stands for the switch. Returns what it prints, without what differs from run to run.
    fn ofctl(&self, args: &[&str]) -> String {
        let output = self.command(args).output().expect("ovs-ofctl is installed (openvswitch-common)");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{args:?}\n{text}\n{error}");
        plain(&text)
    }

    /// Runs `ovs-ofctl`, which fails; returns what it says.
    fn refused(&self, args: &[&str]) -> String {
        let output = self.command(args).output().unwrap();
        assert!(!output.status.success(), "{args:?} succeeded");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Flows as `ovs-ofctl` prints them, sorted.
    fn flows(&self, version: &str) -> Vec<String> {
        let args: &[&str] =
            if version.is_empty() { &["dump-flows", "BR"] } else { &["-O", version, "dump-flows", "BR"] };
        let text = self.ofctl(&[args, &["--no-stats"]].concat());
        let mut flows: Vec<String> =
            text.lines().filter(|line| line.starts_with(' ')).map(|line| line.trim().to_owned()).collect();
        flows.sort();
        flows
    }

    fn file(&self, name: &str, content: &str) {
        std::fs::write(self.directory.join(name), content).unwrap();
    }

    /// A packet arrives; returns what the switch says of it.
    fn packet(&mut self, port: u32, hex: &str) -> Vec<String> {
        writeln!(self.input, "{port} {hex}").unwrap();
        self.until_done()
    }

    fn until_done(&mut self) -> Vec<String> {
        let lines = (&mut self.output).map(|line| line.unwrap());
        lines.take_while(|line| line != "done").collect()
    }
}

/// A text without transaction ids, durations and ages.
fn plain(text: &str) -> String {
    let without = |line: &str| -> String {
        let mut line = line.to_owned();
        for (start, end) in [
            (" (xid=", ")"),
            ("duration=", ","),
            ("duration:", " "),
            ("idle_age=", ","),
            (" cookie=0x0,", ""),
        ] {
            while let Some(at) = line.find(start) {
                let rest = &line[at + start.len()..];
                let len = rest.find(end).map_or(rest.len(), |len| len + end.len());
                line.replace_range(at..at + start.len() + len, "");
            }
        }
        line
    };
    text.lines().map(|line| without(line) + "\n").collect()
}

const VERSIONS: [&str; 6] =
    ["OpenFlow10", "OpenFlow11", "OpenFlow12", "OpenFlow13", "OpenFlow14", "OpenFlow15"];
/// IPv4 from 1.2.3.4 to 10.0.0.7.
const IPV4: &str = "02000000000902000000000a0800450000140000000040006cde0102030 40a000007";

fn ipv4() -> String {
    IPV4.replace(' ', "")
}

#[test]
fn flows_are_the_same_in_every_version() {
    let served = Served::start();
    for version in VERSIONS {
        served.ofctl(&["-O", version, "del-flows", "BR"]);
        served.ofctl(&["-O", version, "add-flow", "BR", "priority=7,in_port=1,actions=output:2"]);
        served.ofctl(&[
            "-O",
            version,
            "add-flow",
            "BR",
            "tcp,nw_dst=10.0.0.0/24,tp_dst=80,dl_vlan=5,actions=drop",
        ]);
        let wanted = [
            "priority=7,in_port=1 actions=output:2",
            "tcp,dl_vlan=5,nw_dst=10.0.0.0/24,tp_dst=80 actions=drop",
        ];
        for reader in VERSIONS {
            // As in Open vSwitch, additions in version 1.0 have a flag that later versions show.
            let flows = served.flows(reader).into_iter().map(|flow| flow.replace("reset_counts ", ""));
            assert_eq!(flows.collect::<Vec<_>>(), wanted, "added by {version}, read by {reader}");
        }
        assert_eq!(served.flows(""), wanted);
        served.ofctl(&["-O", version, "--strict", "del-flows", "BR", "priority=6,in_port=1"]);
        assert_eq!(served.flows(version).len(), 2);
        served.ofctl(&["-O", version, "--strict", "del-flows", "BR", "priority=7,in_port=1"]);
        assert_eq!(served.flows(version), wanted[1..]);
        served.ofctl(&["-O", version, "mod-flows", "BR", "tcp,actions=output:3"]);
        assert_eq!(served.flows(version), ["tcp,dl_vlan=5,nw_dst=10.0.0.0/24,tp_dst=80 actions=output:3"]);
    }
}

#[test]
fn packets_follow_flows_and_are_counted() {
    let mut served = Served::start();
    served.ofctl(&[
        "add-flow",
        "BR",
        "in_port=1,ip,nw_dst=10.0.0.0/24,actions=mod_nw_src:9.9.9.9,dec_ttl,output:2",
    ]);
    let out = served.packet(1, &ipv4());
    // The checksum is right: the sum of all words is all ones.
    let [line] = out.as_slice() else { panic!("{out:?}") };
    let hex = line.strip_prefix("output 2 queue 0 ").unwrap();
    assert!(hex.contains("3f00") && hex.ends_with("090909090a000007"), "{hex}");
    let header: Vec<u32> =
        (28..hex.len()).step_by(4).map(|at| u32::from_str_radix(&hex[at..at + 4], 16).unwrap()).collect();
    let sum: u32 = header.iter().sum();
    assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
    assert_eq!(served.packet(2, &ipv4()), ["drop: no flow matches"]);
    assert!(served.ofctl(&["dump-flows", "BR"]).contains("n_packets=1, n_bytes=34"));
    assert!(served.ofctl(&["dump-aggregate", "BR"]).contains("packet_count=1 byte_count=34 flow_count=1"));
    let ports = served.ofctl(&["-O", "OpenFlow13", "dump-ports", "BR", "1"]);
    assert!(ports.contains("rx pkts=1, bytes=34"), "{ports}");
    let tables = served.ofctl(&["-O", "OpenFlow13", "dump-tables", "BR"]);
    assert!(tables.contains("active=1, lookup=2, matched=1"), "{tables}");
}

#[test]
fn groups_of_all_versions() {
    let mut served = Served::start();
    served.ofctl(&[
        "-O",
        "OpenFlow13",
        "add-group",
        "BR",
        "group_id=1,type=all,bucket=output:2,bucket=set_field:00:00:00:00:00:09->eth_dst,output:3",
    ]);
    served.ofctl(&["-O", "OpenFlow13", "add-flow", "BR", "in_port=1,actions=group:1"]);
    let out = served.packet(1, &ipv4());
    assert_eq!(out.len(), 2);
    assert!(
        out[0].starts_with("output 2 queue 0 020000000009")
            && out[1].starts_with("output 3 queue 0 000000000009")
    );
    let stats = served.ofctl(&["-O", "OpenFlow13", "dump-group-stats", "BR"]);
    assert!(stats.contains("ref_count=1,packet_count=1,byte_count=34,bucket0:packet_count=1"), "{stats}");
    served.ofctl(&["-O", "OpenFlow15", "add-group", "BR", "group_id=2,type=select,selection_method=hash,fields(ip_src),bucket=bucket_id:1,weight:2,output:2,bucket=bucket_id:2,output:3"]);
    served.ofctl(&[
        "-O",
        "OpenFlow15",
        "insert-buckets",
        "BR",
        "group_id=2,command_bucket_id=last,bucket=bucket_id:7,output:4",
    ]);
    served.ofctl(&["-O", "OpenFlow15", "remove-buckets", "BR", "group_id=2,command_bucket_id=1"]);
    let groups = served.ofctl(&["-O", "OpenFlow15", "dump-groups", "BR", "2"]);
    assert!(groups.contains("group_id=2,type=select,selection_method=hash,fields=ip_src,bucket=bucket_id:2,actions=output:3,bucket=bucket_id:7,actions=output:4"), "{groups}");
    let error = served.refused(&["-O", "OpenFlow13", "add-group", "BR", "group_id=1,type=all"]);
    assert!(error.contains("OFPGMFC_GROUP_EXISTS"), "{error}");
    let error =
        served.refused(&["-O", "OpenFlow13", "mod-group", "BR", "group_id=1,type=indirect,bucket=group:1"]);
    assert!(error.contains("OFPGMFC_LOOP"), "{error}");
    let error = served.refused(&["-O", "OpenFlow13", "add-flow", "BR", "actions=group:9"]);
    assert!(error.contains("OFPBAC_BAD_OUT_GROUP"), "{error}");
    // The flow goes with its group.
    served.ofctl(&["-O", "OpenFlow13", "del-groups", "BR", "group_id=1"]);
    assert_eq!(served.flows("OpenFlow13"), [] as [&str; 0]);
    assert!(served.ofctl(&["-O", "OpenFlow13", "dump-group-features", "BR"]).contains("Types:  0xf"));
}

#[test]
fn meters() {
    let mut served = Served::start();
    served.ofctl(&[
        "-O",
        "OpenFlow13",
        "add-meter",
        "BR",
        "meter=3,pktps,burst,stats,band=type=drop,rate=1,burst_size=2",
    ]);
    served.ofctl(&["-O", "OpenFlow13", "add-flow", "BR", "in_port=1,actions=meter:3,output:2"]);
    let passed = (0..4).filter(|_| served.packet(1, &ipv4())[0].starts_with("output 2")).count();
    assert_eq!(passed, 2);
    let stats = served.ofctl(&["-O", "OpenFlow13", "meter-stats", "BR"]);
    assert!(
        stats.contains("flow_count:1 packet_in_count:4 byte_in_count:136")
            && stats.contains("packet_count:2"),
        "{stats}"
    );
    let meters = served.ofctl(&["-O", "OpenFlow13", "dump-meters", "BR"]);
    assert!(
        meters.contains("meter=3 pktps burst stats bands=")
            && meters.contains("type=drop rate=1 burst_size=2"),
        "{meters}"
    );
    assert_eq!(served.flows("OpenFlow15"), ["in_port=1 actions=meter:3,output:2"]);
    let error =
        served.refused(&["-O", "OpenFlow13", "mod-meter", "BR", "meter=4,pktps,band=type=drop,rate=1"]);
    assert!(error.contains("OFPMMFC_UNKNOWN_METER"), "{error}");
    served.ofctl(&["-O", "OpenFlow13", "del-meters", "BR"]);
    assert_eq!(served.flows("OpenFlow13"), [] as [&str; 0]);
}

#[test]
fn replacing_comparing_and_bundles() {
    let served = Served::start();
    served.file("flows", "in_port=3,actions=output:1\ntable=2,tcp,tp_dst=80,actions=drop\nip,nw_src=1.0.0.0/8,actions=move:NXM_OF_IP_SRC[]->NXM_NX_REG0[],resubmit(,2)\n");
    served.ofctl(&["add-flow", "BR", "in_port=1,actions=output:2"]);
    // Version 1.0 dumps no tables but the first.
    served.ofctl(&["-O", "OpenFlow13", "replace-flows", "BR", "flows"]);
    assert_eq!(served.ofctl(&["-O", "OpenFlow13", "diff-flows", "BR", "flows"]), "");
    let flows = served.flows("");
    assert_eq!(flows.len(), 3);
    served.file("other", "in_port=4,actions=output:1\n");
    served.ofctl(&["-O", "OpenFlow14", "--bundle", "replace-flows", "BR", "other"]);
    assert_eq!(served.flows("OpenFlow14"), ["in_port=4 actions=output:1"]);
    // The second message is refused, so the first one has no effect.
    served.file("bad", "in_port=1,actions=output:2\nactions=group:7\n");
    for version in ["OpenFlow13", "OpenFlow14", "OpenFlow15"] {
        let error = served.refused(&["-O", version, "--bundle", "add-flows", "BR", "bad"]);
        assert!(error.contains("OFPBAC_BAD_OUT_GROUP"), "{error}");
        assert_eq!(served.flows(version), ["in_port=4 actions=output:1"]);
    }
    let error = served.refused(&["-O", "OpenFlow14", "add-flow", "BR", "check_overlap,actions=drop"]);
    assert!(error.contains("OFPFMFC_OVERLAP"), "{error}");
}

#[test]
fn tables_and_ports() {
    let served = Served::start();
    served.ofctl(&["-O", "OpenFlow14", "mod-table", "BR", "0", "evict"]);
    let desc = served.ofctl(&["-O", "OpenFlow14", "dump-table-desc", "BR"]);
    assert!(desc.contains("eviction=on"), "{desc}");
    let features = served.ofctl(&["-O", "OpenFlow13", "dump-table-features", "BR"]);
    assert!(features.contains("table 0:") && features.contains("eth_type"), "{features}");
    for version in VERSIONS {
        let show = served.ofctl(&["-O", version, "show", "BR"]);
        assert!(show.contains("1(p1): addr:02:00:00:00:00:01"), "{show}");
        assert!(served.ofctl(&["-O", version, "dump-desc", "BR"]).contains("Manufacturer: mswitch"));
        assert!(served.ofctl(&["-O", version, "dump-ports", "BR"]).contains("4 ports"));
        served.ofctl(&["-O", version, "mod-port", "BR", "p1", "no-forward"]);
        assert!(served.ofctl(&["-O", version, "show", "BR"]).contains("NO_FWD"));
        served.ofctl(&["-O", version, "mod-port", "BR", "p1", "forward"]);
        assert!(!served.ofctl(&["-O", version, "show", "BR"]).contains("NO_FWD"));
        served.ofctl(&["-O", version, "probe", "BR"]);
        assert!(served.ofctl(&["-O", version, "queue-stats", "BR"]).contains("0 queues"));
    }
    served.ofctl(&["set-frags", "BR", "drop"]);
    assert!(served.ofctl(&["get-frags", "BR"]).contains("drop"));
}

#[test]
fn packet_out() {
    let mut served = Served::start();
    served.ofctl(&[
        "-O",
        "OpenFlow13",
        "packet-out",
        "BR",
        &format!("in_port=1 packet={} actions=output:2,in_port", ipv4()),
    ]);
    assert_eq!(
        served.packet(9, "00"),
        [
            format!("output 2 queue 0 {}", ipv4()),
            format!("output 1 queue 0 {}", ipv4()),
            "drop: no such port".to_owned(),
        ]
    );
    served.ofctl(&["packet-out", "BR", "2", "mod_vlan_vid:5,normal", &ipv4()]);
    let tagged = ipv4();
    let tagged = format!("{}81000005{}", &tagged[..24], &tagged[24..]);
    assert_eq!(served.packet(9, "00")[0], format!("normal from 2 {tagged}"));
    served.ofctl(&["add-flow", "BR", "actions=output:4"]);
    served.ofctl(&[
        "-O",
        "OpenFlow15",
        "packet-out",
        "BR",
        &format!("in_port=1 packet={} actions=table", ipv4()),
    ]);
    assert_eq!(served.packet(9, "00")[0], format!("output 4 queue 0 {}", ipv4()));
}

/// Waits until a file has a text.
fn wait_for(path: &std::path::Path, wanted: &str) -> String {
    let end = Instant::now() + Duration::from_secs(15);
    loop {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        if text.contains(wanted) || Instant::now() > end {
            assert!(text.contains(wanted), "no `{wanted}` in:\n{text}");
            return text;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn monitor() {
    for (args, wanted) in [
        (&["-O", "OpenFlow13", "monitor", "BR", "65534", "-P", "standard"][..], "OFPT_PACKET_IN (OF1.3)"),
        (&["monitor", "BR", "65534", "-P", "nxt_packet_in"][..], "NXT_PACKET_IN (xid=0x0):"),
        (
            &["-O", "OpenFlow13", "monitor", "BR", "65534", "-P", "nxt_packet_in2"][..],
            "NXT_PACKET_IN2 (OF1.3)",
        ),
        (&["monitor", "BR", "65534", "-P", "openflow10"][..], "OFPT_PACKET_IN (xid=0x0):"),
    ] {
        let mut served = Served::start();
        let path = served.directory.join("out");
        let out = std::fs::File::create(&path).unwrap();
        let mut command = served.command(args);
        let mut monitor = command.stdout(out.try_clone().unwrap()).stderr(out).spawn().unwrap();
        served.ofctl(&["add-flow", "BR", "cookie=0x7,ip,send_flow_rem,actions=controller"]);
        // The monitor's own requests come first or later: packets go on until it has seen one.
        let end = Instant::now() + Duration::from_secs(15);
        while !std::fs::read_to_string(&path).unwrap().contains(wanted) && Instant::now() < end {
            served.packet(1, &ipv4());
            std::thread::sleep(Duration::from_millis(20));
        }
        let text = wait_for(&path, wanted);
        assert!(text.contains("in_port=1") && text.contains("nw_src=1.2.3.4,nw_dst=10.0.0.7"), "{text}");
        assert!(text.contains("total_len=34"), "{text}");
        served.ofctl(&["del-flows", "BR"]);
        wait_for(&path, "reason=delete");
        served.ofctl(&["mod-port", "BR", "p2", "down"]);
        wait_for(&path, "PORT_STATUS");
        monitor.kill().unwrap();
        monitor.wait().unwrap();
    }
}

#[test]
fn flow_monitor() {
    for version in ["OpenFlow10", "OpenFlow13", "OpenFlow14"] {
        let served = Served::start();
        served.ofctl(&["add-flow", "BR", "in_port=1,actions=output:2"]);
        let path = served.directory.join("out");
        let out = std::fs::File::create(&path).unwrap();
        let mut command = served.command(&["-O", version, "monitor", "BR", "watch:"]);
        let mut monitor = command.stdout(out.try_clone().unwrap()).stderr(out).spawn().unwrap();
        wait_for(&path, "in_port=1 actions=output:2");
        served.ofctl(&["add-flow", "BR", "in_port=2,actions=output:3"]);
        wait_for(&path, "event=ADDED table=0 cookie=0 in_port=2 actions=output:3");
        served.ofctl(&["mod-flows", "BR", "in_port=2,actions=output:4"]);
        wait_for(&path, "event=MODIFIED table=0 cookie=0 in_port=2 actions=output:4");
        served.ofctl(&["del-flows", "BR", "in_port=2"]);
        wait_for(&path, "event=DELETED reason=delete table=0 cookie=0 in_port=2 actions=output:4");
        monitor.kill().unwrap();
        monitor.wait().unwrap();
    }
}
