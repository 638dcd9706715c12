//! The SDK's C helpers, compared with the standard library, and the examples that use them.

use std::io::Write;
use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use e2e::frames::Sender;
use e2e::{Daemon, config, modules, until};

/// Answers of `tests/modules/sdk.c` to these lines.
fn answers(lines: &[String]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let program = modules::program("tests/modules/sdk.c", folder.path()).unwrap();
    let input = folder.path().join("input");
    std::fs::File::create(&input).unwrap().write_all((lines.join("\n") + "\n").as_bytes()).unwrap();
    let output = Command::new(program)
        .stdin(std::fs::File::open(&input).unwrap())
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", output.status);
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn addresses_are_parsed_and_printed_like_the_standard_library() {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut part = |first: bool| match rng.u8(0..8) {
        0 => ":".to_owned(),
        1 if !first => "::".into(),
        2 => format!("{}.{}.{}.{}", rng.u16(0..300), rng.u8(0..12), rng.u8(..), rng.u8(..)),
        3 => "0".into(),
        _ => format!("{}{:x}", if first { "" } else { ":" }, rng.u16(..)),
    };
    let mut texts: Vec<String> =
        (0..20_000).map(|i| (0..1 + i % 9).map(|at| part(at == 0)).collect()).collect();
    texts.extend((0..2_000).map(|i| format!("::{}", texts[i])).collect::<Vec<_>>());
    let lines: Vec<_> = texts.iter().map(|text| format!("prefix {text}")).collect();
    let mut valid = 0;
    for (text, answer) in texts.iter().zip(answers(&lines)) {
        let standard = text.parse::<IpAddr>().map_or("wrong".into(), |address| address.to_string());
        valid += u32::from(standard != "wrong");
        assert_eq!(answer, standard, "{text}");
    }
    assert!(valid > 500, "{valid}");
}

#[test]
fn numbers_prefixes_tables_and_checksums_are_correct() {
    let cases = [
        ("number 0x1F", "31"),
        ("number 18446744073709551615", "18446744073709551615"),
        ("number 18446744073709551616", "wrong"),
        ("number 12a", "wrong"),
        ("number ", "wrong"),
        ("mac 02-00-5e-AB-cd:0f", "02:00:5e:ab:cd:0f"),
        ("mac 02:00:5e:ab:cd:0", "wrong"),
        ("mac 02:00:5e:ab:cd 0f", "wrong"),
        ("prefix 10.1.2.3/8", "10.0.0.0/8"),
        ("prefix 2001:db8:ffff::/33", "2001:db8:8000::/33"),
        ("prefix 10.0.0.0/33", "wrong"),
        ("prefix 10.0.0.0/", "wrong"),
        ("prefix 10.0.0.0/0x8", "wrong"),
        ("prefix ::/129", "wrong"),
        ("has 10.0.0.0/9 0a7f0000", "1"),
        ("has 10.0.0.0/9 0a800000", "0"),
        ("checksum 45000073000000004011b861c0a80001c0a800c7", "16384"),
        ("checksum 45000073000040004011b861c0a80001c0a800c7", "0"),
        ("checksum 450000730000400040110000c0a80001c0a800c7", "47201"),
        ("headers 0200000000990200000000010806", "2054 0 0 0 0"),
        ("headers 0200000000990200000000010806aa", "2054 0 14 0 0"),
        ("headers 02000000009902000000000108", "0 0 0 0 0"),
        ("headers 0200000000990200000000018100", "0 0 0 0 0"),
        (
            "headers 0200000000990200000000018100000a08004500001c00000000401100000a0000010a0000020035003500080000",
            "2048 10 18 17 38",
        ),
        ("headers 02000000009902000000000188a800648100000786dd60", "34525 100 22 0 0"),
        (
            "headers 02000000009902000000000108004500002800000000400600000a0000010a0000020000000000000000000000000000000000000000",
            "2048 0 14 6 34",
        ),
        (
            "headers 02000000009902000000000108004500002800000000400600000a0000010a00000200000000000000000000000000000000000000",
            "2048 0 14 6 0",
        ),
        (
            "headers 02000000009902000000000108004500001b00000000401100000a0000010a0000020000000000000000",
            "2048 0 14 17 0",
        ),
        (
            "headers 02000000009902000000000108004500001c00002000401100000a0000010a0000020000000000000000",
            "2048 0 14 17 34",
        ),
        (
            "headers 02000000009902000000000108004500001c00000001401100000a0000010a0000020000000000000000",
            "2048 0 14 17 0",
        ),
        (
            "headers 02000000009902000000000108004400001c00000000401100000a0000010a0000020000000000000000",
            "2048 0 14 0 0",
        ),
        ("one 0200000000990200000000010800", "1 1 2 7 0 1 1"),
        ("failed", "failed without a reason"),
        // RFC 1624, section 4: the case that equation 2 gets wrong.
        ("l4 0,0,0xdd2f 5555,3285", "0"),
        ("l4 0,2,0xdd2f 5555,3285", "65535"),
        ("l4 0,2,0 5555,3285", "0"),
        ("l4 1,0,0x1234 5555,3285", "4660"),
        ("l4 1,1,0x0a01 0a000001,c0000207", "49671"),
        ("insert 0.0.0.0/0 1", "1"),
        ("insert 10.0.0.0/8 2", "2"),
        ("insert 10.1.0.0/16 3", "3"),
        ("insert 10.1.0.0/16 4", "3"),
        ("insert 10.1.2.3 5", "5"),
        ("insert 2001:db8::/32 6", "6"),
        ("insert 2001:db8::/65 7", "7"),
        ("insert 2001:db8::1 8", "8"),
        ("find 10.1.2.3", "5"),
        ("find 10.1.2.4", "3"),
        ("find 10.2.0.1", "2"),
        ("find 11.0.0.1", "1"),
        ("find 2001:db8::1", "8"),
        ("find 2001:db8::2", "7"),
        ("find 2001:db8:0:0:8000::", "6"),
        ("find 2002::", "none"),
        ("remove 10.1.0.0/16", "1"),
        ("remove 10.1.0.0/16", "0"),
        ("find 10.1.2.4", "2"),
    ];
    let lines: Vec<_> = cases.iter().map(|(line, _)| (*line).to_owned()).collect();
    for ((line, expected), answer) in cases.iter().zip(answers(&lines)) {
        assert_eq!(answer, *expected, "{line}");
    }
}

/// An IPv4 or IPv6 packet to this address, with a correct IPv4 header checksum.
fn packet(to: &str, ttl: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    match to.parse().unwrap() {
        IpAddr::V4(to) => {
            let mut header = [0x45, 0, 0, 20, 0, 0, 0, 0, ttl, 17, 0, 0, 192, 0, 2, 1, 0, 0, 0, 0];
            header[16..].copy_from_slice(&to.octets());
            let sum = packet::checksum::Sum::of(&header).finish();
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            frame.extend([8, 0]);
            frame.extend(header);
        }
        IpAddr::V6(to) => {
            let mut header = [0u8; 40];
            (header[0], header[6], header[7]) = (0x60, 59, ttl);
            header[24..].copy_from_slice(&to.octets());
            frame.extend([0x86, 0xdd]);
            frame.extend(header);
        }
    }
    frame.resize(64, 0);
    frame
}

#[test]
fn routes_follow_deleted_and_added_ports() {
    let folder = tempfile::tempdir().unwrap();
    let source = "examples/modules/route.c";
    let logics = [
        modules::wasm(source, folder.path(), &[]).unwrap(),
        modules::native(source, folder.path(), &[]).unwrap(),
        modules::wasm_from_rust("examples/modules/route.rs", folder.path()).unwrap(),
    ];
    for logic in logics {
        let routes = "routes = \"10.0.0.0/8=p1  10.1.0.0/16=p2 2001:db8::/32=p2\"";
        let bridge = config::bridge("br0", &logic) + &format!("params = {{ {routes} }}\n");
        let ports: String = (0..3).map(|id| config::memif(&format!("p{id}"), id, "")).collect();
        let daemon = Daemon::start(&(bridge + &ports)).unwrap();
        let mut senders: Vec<_> = (0..3).map(|id| Sender::connect(&daemon, id).unwrap()).collect();
        (0..3).for_each(|id| _ = daemon.wait_up("br0", &format!("p{id}")).unwrap());
        for (to, port) in [("10.2.0.1", 1), ("10.1.0.1", 2), ("2001:db8::5", 2)] {
            senders[0].send(&packet(to, 64)).unwrap();
            let routed =
                until("a routed packet", Duration::from_secs(20), || Ok(senders[port].received().pop()));
            assert_eq!(
                routed.unwrap(),
                packet(to, 63),
                "{logic}: {to}: TTL decremented and checksum correct"
            );
        }
        let find = |address: &str| {
            let output = daemon.cli(&["logic", "call", "br0", "find", address]).unwrap();
            String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
        };
        assert_eq!(find("10.1.2.3"), "10.1.2.3: port p2, index 2\n");
        assert!(find("11.0.0.1").contains("11.0.0.1: no route"), "{}", find("11.0.0.1"));
        assert!(find("10.0.0.0/8").contains("find takes an address"));
        // p1 gets another index when it is added again.
        daemon.run(&["port", "del", "br0", "p1"]).unwrap();
        assert_eq!(find("10.9.9.9"), "10.9.9.9: port p1, which the bridge does not have\n");
        let socket = format!("socket={}", daemon.path("memif"));
        for (name, id) in [("other", 8), ("p1", 1)] {
            daemon
                .run(&[
                    "port",
                    "add",
                    "br0",
                    name,
                    "--type",
                    "memif",
                    "--opt",
                    &socket,
                    "--opt",
                    &format!("id={id}"),
                ])
                .unwrap();
        }
        assert_eq!(find("10.9.9.9"), "10.9.9.9: port p1, index 3\n");
        senders[1] = Sender::connect(&daemon, 1).unwrap();
        daemon.wait_up("br0", "p1").unwrap();
        senders[0].send(&packet("10.2.0.2", 9)).unwrap();
        let routed = until("a routed packet", Duration::from_secs(20), || Ok(senders[1].received().pop()));
        assert_eq!(routed.unwrap(), packet("10.2.0.2", 8), "{logic}");
        senders[0].send(&packet("10.2.0.2", 1)).unwrap();
        let shown = daemon.run(&["logic", "show", "br0"]).unwrap();
        for part in ["expired", "table routes4: 2 of 512", "10.1.0.0", "LENGTH"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        // The table is rebuilt from the parameter, without the old routes.
        daemon.run(&["logic", "set", "br0", &logic, "--param", "routes=0.0.0.0/0=p2"]).unwrap();
        assert_eq!(find("10.2.0.2"), "10.2.0.2: port p2, index 2\n");
        let refused =
            daemon.cli(&["logic", "set", "br0", &logic, "--param", "routes=10.0.0.0/40=p2"]).unwrap();
        let error = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(error.contains("the module refuses to start: ") && error.contains("prefix"), "{error}");
    }
}

/// A frame with these bytes behind its addresses.
fn tagged(tags: &[u16], rest: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 0x99, 2, 0, 0, 0, 0, 1];
    frame.extend(tags.iter().flat_map(|word| word.to_be_bytes()));
    frame.extend(rest);
    frame.resize(frame.len().max(60), 0);
    frame
}

/// An IPv4 packet of this protocol and fragment offset, whose payload begins with two ports.
fn ipv4(protocol: u8, fragment: u16, ports: [u16; 2]) -> Vec<u8> {
    let [offset0, offset1] = fragment.to_be_bytes();
    let mut packet =
        vec![0x45, 0, 0, 40, 0, 0, offset0, offset1, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    packet.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
    packet.extend([0, 0, 0, 0, 0, 0, 0, 0, 0x50, 2, 0, 0, 0, 0, 0, 0]);
    packet
}

/// A UDP packet over IPv6 behind a destination option of this length.
fn ipv6(option: usize, port: u16) -> Vec<u8> {
    let len = (option + 8) as u16;
    let mut packet = vec![0x60, 0, 0, 0, (len >> 8) as u8, len as u8, 60, 64];
    packet.resize(40, 1);
    packet.extend([17, (option / 8 - 1) as u8]);
    packet.resize(40 + option, 0);
    packet.extend([0x30, 0x39, (port >> 8) as u8, port as u8, 0, 8, 0, 0]);
    packet
}

#[test]
fn a_filter_in_rust_finds_ports_behind_tags_and_extension_headers() {
    let folder = tempfile::tempdir().unwrap();
    let logic = modules::wasm_from_rust("examples/modules/filter.rs", folder.path()).unwrap();
    let bridge = config::bridge("br0", &logic) + "params = { ports = \"22,53\" }\n";
    let ports: String = (0..2).map(|id| config::memif(&format!("p{id}"), id, "")).collect();
    let daemon = Daemon::start(&(bridge + &ports)).unwrap();
    let mut senders: Vec<_> = (0..2).map(|id| Sender::connect(&daemon, id).unwrap()).collect();
    (0..2).for_each(|id| _ = daemon.wait_up("br0", &format!("p{id}")).unwrap());
    let passed = [
        tagged(&[0x0806], &[0; 28]),
        tagged(&[0x0800], &ipv4(6, 0, [40000, 22])),
        tagged(&[0x8100, 7, 0x0800], &ipv4(17, 0, [53, 40000])),
        tagged(&[0x88a8, 7, 0x8100, 8, 0x0800], &ipv4(6, 0, [40000, 22])),
        tagged(&[0x0800], &ipv4(6, 5, [40000, 80])),
        tagged(&[0x0800], &ipv4(1, 0, [8 << 8, 0])),
        tagged(&[0x86dd], &ipv6(8, 53)),
        // Its ports are behind the first 128 bytes.
        tagged(&[0x86dd], &ipv6(256, 53)),
    ];
    let dropped = [
        tagged(&[0x0800], &ipv4(6, 0, [40000, 80])),
        tagged(&[0x0800], &ipv4(6, 0x2000, [40000, 80])),
        tagged(&[0x8100, 7, 0x0800], &ipv4(17, 0, [40000, 80])),
        tagged(&[0x0800], &ipv4(47, 0, [22, 22])),
        tagged(&[0x0800], &ipv4(6, 0, [40000, 22])[..30]),
        tagged(&[0x86dd], &ipv6(256, 80)),
        tagged(&[0x88b5], &[0; 46]),
    ];
    for frame in dropped.iter().chain(&passed) {
        senders[0].send(frame).unwrap();
    }
    let mut received = Vec::new();
    until("the packets that pass", Duration::from_secs(20), || {
        received.extend(senders[1].received());
        Ok((received.len() >= passed.len()).then_some(()))
    })
    .unwrap_or_else(|error| panic!("{error}: {received:02x?}"));
    assert_eq!(received, passed);
    let shown = daemon.json(&["logic", "show", "br0"]).unwrap();
    assert_eq!(
        (&shown["counters"][0]["name"], &shown["counters"][0]["value"]),
        (&"refused".into(), &7.into())
    );
    let refused = daemon.cli(&["logic", "set", "br0", &logic, "--param", "ports=22,x"]).unwrap();
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        error.contains("the module refuses to start: expected port numbers such as 22,53,443"),
        "{error}"
    );
}
