use std::collections::BTreeSet;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use fabric::VlanMode;
use p4switch::Access;
use packet::ether::Vid;
use ports::Spec;

use super::*;

/// Returns the mistakes in `text`, one per line.
fn mistakes(text: &str, depth: Depth) -> Vec<String> {
    match parse(text, Path::new("f.toml"), depth) {
        Ok(config) => panic!("accepted as {config:?}"),
        Err(error) => error.to_string().lines().map(str::to_owned).collect(),
    }
}

/// Returns the only mistake in `text`.
fn mistake(text: &str) -> String {
    let mut all = mistakes(text, Depth::Text);
    assert_eq!(all.len(), 1, "{all:#?}");
    all.remove(0)
}

/// Returns the only mistake in a port with these lines after `name = "vm1"` (line 4).
fn port_mistake(lines: &str) -> String {
    mistake(&format!("[[bridge]]\nname = \"br0\"\n[[bridge.port]]\nname = \"vm1\"\n{lines}"))
}

const VM1: &str = "bridge \"br0\", port \"vm1\":";

#[test]
fn whole_configuration() {
    let text = r#"
        [daemon]
        workers = "0"
        poll = true
        socket = "/run/x.sock"

        [[bridge]]
        name = "br0"
        params = { ageing = 60 }

        [[bridge.port]]
        name = "vm1"
        type = "memif"
        path = "/tmp/vm1.sock"
        id = 3
        vlan = "access:10"

        [[bridge.port]]
        name = "host"
        type = "tap"
        mtu = 9000
        admin = "down"

        [[bridge]]
        name = "wire"
        logic = "static"
    "#;
    let config = parse(text, Path::new("f.toml"), Depth::Text).unwrap();
    assert_eq!(config.daemon.workers, [0]);
    assert!(config.daemon.poll);
    assert_eq!(config.daemon.socket(), Path::new("/run/x.sock"));
    let [br0, wire] = config.bridges.as_slice() else { panic!("{config:?}") };
    assert_eq!(br0.logic.name, "learning");
    assert_eq!(br0.logic.params, [("ageing".to_owned(), "60".to_owned())]);
    let [vm1, host] = br0.ports.as_slice() else { panic!("{br0:?}") };
    assert_eq!(Some(vm1.settings.vlan.clone()), Vid::new(10).map(VlanMode::Access));
    let Spec::Memif(memif) = &vm1.spec else { panic!("{vm1:?}") };
    assert_eq!((memif.id, memif.socket.clone()), (3, PathBuf::from("/tmp/vm1.sock")));
    let Spec::Tap(tap) = &host.spec else { panic!("{host:?}") };
    assert_eq!((tap.mtu, host.settings.mtu, host.settings.admin_up), (Some(9000), 9000, false));
    assert_eq!((wire.name.as_str(), wire.logic.name.as_str()), ("wire", "static"));
}

#[test]
fn stations() {
    let port = "[[bridge]]\nname = \"br0\"\n[[bridge.port]]\nname = \"vm1\"\ntype = \"tap\"\n";
    let station = |keys: &str| format!("{port}[[bridge.station]]\n{keys}");
    let good = station("mac = \"02:00:00:00:00:01\"\nvlan = 7\nport = \"vm1\"\n");
    let config = parse(&good, Path::new("f.toml"), Depth::Text).unwrap();
    let [found] = config.bridges[0].stations.as_slice() else { panic!("{config:?}") };
    assert_eq!(
        (found.mac.to_string().as_str(), found.vlan, found.port.as_str()),
        ("02:00:00:00:00:01", 7, "vm1")
    );

    let line = |keys: &str| mistake(&station(keys));
    let at = "f.toml:7:7: bridge \"br0\": ";
    assert!(line("mac = \"02\"\nport = \"vm1\"\n").starts_with(&format!("{at}`02` is not a MAC address")));
    let group = line("mac = \"01:00:00:00:00:01\"\nport = \"vm1\"\n");
    assert!(group.starts_with(&format!("{at}01:00:00:00:00:01 is a group address")), "{group}");
    let vlan = line("mac = \"02:00:00:00:00:01\"\nport = \"vm1\"\nvlan = 4095\n");
    assert!(vlan.contains("f.toml:9:8: bridge \"br0\": 4095 is not a VLAN id"), "{vlan}");
    let nowhere = line("mac = \"02:00:00:00:00:01\"\nport = \"vm2\"\n");
    assert!(nowhere.contains("8:8: bridge \"br0\": the bridge has no port `vm2`"), "{nowhere}");
    let twice = "mac = \"02:00:00:00:00:01\"\nport = \"vm1\"\n";
    let twice = line(&format!("{twice}[[bridge.station]]\n{twice}"));
    assert!(
        twice.contains("f.toml:9:") && twice.contains("duplicate station 02:00:00:00:00:01 in VLAN 0"),
        "{twice}"
    );
    assert!(line("port = \"vm1\"\n").contains("key `mac` is missing"));
}

#[test]
fn mirrors() {
    let port = "[[bridge]]\nname = \"br0\"\n[[bridge.port]]\nname = \"vm1\"\ntype = \"tap\"\n";
    let mirror = |keys: &str| format!("{port}[[bridge.mirror]]\n{keys}");
    let good = mirror("name = \"m\"\nto = \"vm1\"\ndirection = \"out\"\nvlan = 7\n");
    let config = parse(&good, Path::new("f.toml"), Depth::Text).unwrap();
    let [found] = config.bridges[0].mirrors.as_slice() else { panic!("{config:?}") };
    assert_eq!(
        (found.from.len(), found.what.received, found.vlan.map(|vlan| vlan.get())),
        (0, false, Some(7))
    );

    let line = |keys: &str| mistake(&mirror(keys));
    assert_eq!(
        line("to = \"vm1\"\n"),
        "f.toml:6:1: bridge \"br0\": key `name` is missing; expected the mirror's name"
    );
    assert!(
        line("name = \"m\"\n").contains("key `to` is missing; expected the port that receives the copies")
    );
    assert_eq!(
        line("name = \"m\"\nto = \"vm2\"\n"),
        "f.toml:8:6: bridge \"br0\": the bridge has no port `vm2`; expected `vm1`"
    );
    let ours = "name = \"m\"\nto = \"vm1\"\n";
    assert!(
        line(&format!("{ours}from = [\"vm1\"]\n"))
            .starts_with("f.toml:9:8: bridge \"br0\": `vm1` receives the copies")
    );
    assert!(
        line(&format!("{ours}from = \"vm1\"\n")).contains("`from` is a string; expected a list of ports")
    );
    assert!(
        line(&format!("{ours}direction = \"up\"\n"))
            .starts_with("f.toml:9:13: bridge \"br0\": `up` is not a direction")
    );
    assert!(
        line(&format!("{ours}vlan = 4095\n"))
            .starts_with("f.toml:9:8: bridge \"br0\": 4095 is not a VLAN id")
    );
    assert!(
        line(&format!("{ours}[[bridge.mirror]]\n{ours}"))
            .starts_with("f.toml:10:8: bridge \"br0\": the bridge already has a mirror `m`")
    );
    assert!(line("name = \"m m\"\nto = \"vm1\"\n").contains("`m m` is not a name"));
    let wrong = mirror("name = \"m\"\nfrom = [\"vm2\"]\nto = \"vm3\"\ndirection = \"inn\"\nvlan = 5000\n");
    let error = parse(&wrong, Path::new("f.toml"), Depth::Text).unwrap_err().to_string();
    let lines: Vec<_> = error.lines().collect();
    assert_eq!(
        lines,
        [
            "f.toml:8:8: bridge \"br0\": the bridge has no port `vm2`; expected `vm1`",
            "f.toml:9:6: bridge \"br0\": the bridge has no port `vm3`; expected `vm1`",
            "f.toml:10:13: bridge \"br0\": `inn` is not a direction; expected `in`, `out` or `both`",
            "f.toml:11:8: bridge \"br0\": 5000 is not a VLAN id; expected 1 to 4094, or no VLAN for untagged copies",
        ]
    );
}

#[test]
fn empty_file() {
    let config = parse("", Path::new("f.toml"), Depth::Text).unwrap();
    assert_eq!(config, Config::default());
    assert_eq!(config.daemon.socket(), Path::new("/run/mswitch/mswitch.sock"));
}

#[test]
fn syntax_errors_have_positions() {
    let found = mistake("[daemon]\npoll = \n");
    assert!(found.starts_with("f.toml:2:"), "{found}");
}

#[test]
fn common_mistakes_in_toml_are_answered_with_the_corrected_line() {
    for (line, expected) in [
        (
            "mode = 0660 # for the group",
            "8: `0660`: numbers in TOML cannot begin with 0; write an octal mode as text: `mode = \"0660\"`",
        ),
        ("mtu = 01500", "7: `01500`: numbers in TOML cannot begin with 0: write `mtu = 1500`"),
        ("vlan = access:10", "8: `access:10`: texts need quotes: write `vlan = \"access:10\"`"),
        ("type = tap", "8: `tap`: texts need quotes: write `type = \"tap\"`"),
        ("path = /tmp/a.sock", "8: `/tmp/a.sock`: texts need quotes: write `path = \"/tmp/a.sock\"`"),
        ("workers = 0,2-3", "12: `0,2-3`: texts need quotes: write `workers = \"0,2-3\"`"),
        (
            "mac = 02:00:00:00:00:01",
            "7: `02:00:00:00:00:01`: texts need quotes: write `mac = \"02:00:00:00:00:01\"`",
        ),
        ("sticky = True", "10: `True`: booleans in TOML are lower case: write `sticky = true`"),
        ("mtu = # later", "7: `mtu` has no value"),
        ("x = 1\nx = 2", "1: `x` is set twice; remove one of them"),
        ("params = { ageing = 60", "23: invalid TOML: unclosed inline table, expected `}`"),
    ] {
        let found = mistake(&format!("{line}\n"));
        let number = 1 + line.matches('\n').count();
        assert_eq!(found, format!("f.toml:{number}:{expected}"));
    }
}

#[test]
fn values_of_the_wrong_type_are_reported_once_with_the_corrected_line() {
    let port = |kind: &str, line: &str| {
        let path = if kind == "tap" { "" } else { "path = \"/tmp/a\"\n" };
        let found = port_mistake(&format!("{line}\ntype = \"{kind}\"\n{path}"));
        found.rsplit_once("vm1\": ").unwrap().1.to_owned()
    };
    for (kind, line, expected) in [
        ("tap", "mtu = \"1500\"", "`mtu` is a string; expected a whole number: write `mtu = 1500`"),
        ("tap", "mtu = 1.5", "`mtu` is a float; expected a whole number"),
        (
            "tap",
            "mtu = 70000",
            "invalid MTU 70000: expected 68 to 65521, or 0 for the maximum of the port type",
        ),
        (
            "tap",
            "vlan = 10",
            "`vlan` is an integer; expected a text such as `access:10`: write `vlan = \"access:10\"`",
        ),
        (
            "tap",
            "addresses = \"10.0.0.1/24\"",
            "`addresses` is a string; expected a list of texts: write `addresses = [\"10.0.0.1/24\"]`",
        ),
        (
            "tap",
            "offloads = \"off\"",
            "`offloads` is a string; expected `true` or `false`: write `offloads = false`",
        ),
        ("tap", "sticky = 1", "`sticky` is an integer; expected `true` or `false`: write `sticky = true`"),
        ("tap", "queues = 70000", "`queues`: `70000` is out of range; expected 0 to 65535"),
        (
            "memif",
            "mode = 660",
            "`mode` is an integer; expected an octal mode as text: write `mode = \"0660\"`",
        ),
        (
            "memif",
            "mode = 0o640",
            "`mode` is an integer; expected an octal mode as text: write `mode = \"0640\"`",
        ),
        ("memif", "mode = 9999", "`mode` is an integer; expected an octal mode as text"),
        ("memif", "secret = 12", "`secret` is an integer; expected a text: write `secret = \"12\"`"),
        ("memif", "id = [1]", "`id` is an array; expected a whole number"),
        ("memif", "role = true", "`role` is a boolean; expected a text"),
    ] {
        assert_eq!(port(kind, line), expected);
    }
    let daemon = |line: &str| mistake(&format!("[daemon]\n{line}\n"));
    assert_eq!(
        daemon("mode = 0o660"),
        "f.toml:2:8: `mode` is an integer; expected an octal mode as text: write `mode = \"0660\"`"
    );
    assert_eq!(
        daemon("poll = \"yes\""),
        "f.toml:2:8: `poll` is a string; expected `true` or `false`: write `poll = true`"
    );
    assert_eq!(
        daemon("workers = 2"),
        "f.toml:2:11: `workers` is an integer; expected a CPU list such as `0,2-3`: write `workers = \"2\"`"
    );
    assert_eq!(
        mistake("[sflow]\ncollectors = \"192.0.2.9\"\n"),
        "f.toml:2:14: `collectors` is a string; expected a list of addresses such as [\"192.0.2.9\", \
         \"[2001:db8::9]:6343\"]: write `collectors = [\"192.0.2.9\"]`"
    );
}

#[test]
fn a_former_name_is_noted_once() {
    let port = |name: &str, key: &str| {
        format!("[[bridge.port]]\nname = \"{name}\"\ntype = \"memif\"\n{key} = \"/tmp/{name}.sock\"\n")
    };
    let notes = |text: &str| {
        let text = format!("[[bridge]]\nname = \"b\"\n{text}");
        parse_for(&text, Path::new("f.toml"), Depth::Text, None).unwrap().note_lines(Path::new("f.toml"))
    };
    assert_eq!(notes(&port("p", "path")), [""; 0]);
    let note = "f.toml:6:1: bridge \"b\", port \"p\": `socket` is now called `path`; rename it";
    assert_eq!(notes(&port("p", "socket")), [note]);
    let three = ["p", "q", "r"].map(|name| port(name, "socket")).concat();
    assert_eq!(notes(&three), [format!("{note} (and in 2 more places)")]);
    // A mistake in its value is reported at its place.
    assert_eq!(
        port_mistake("type = \"memif\"\nsocket = \"/no/dir/a\"\n"),
        format!(
            "f.toml:6:10: {VM1} path: /no/dir is not a directory; create it first, or choose another path"
        )
    );
    assert_eq!(
        port_mistake("type = \"memif\"\nsocket = \"/tmp/a\"\npath = \"/tmp/b\"\n"),
        format!("f.toml:6:10: {VM1} `path` is set twice, once by its former name; remove one of them")
    );
}

#[test]
fn relative_paths_are_noted() {
    let text = "[[bridge]]\nname = \"b\"\nlogic = \"wasm:my.wasm\"\n[[bridge.port]]\nname = \"p\"\ntype = \"memif\"\n\
                path = \"p.sock\"\n[[bridge.port]]\nname = \"q\"\ntype = \"memif\"\npath = \"@q\"\n";
    let notes =
        parse_for(text, Path::new("f.toml"), Depth::Form, None).unwrap().note_lines(Path::new("f.toml"));
    assert_eq!(
        notes,
        [
            "f.toml:3:9: bridge \"b\": `logic`: `my.wasm` is relative to the daemon's working directory; write `wasm:` \
             and an absolute path",
            "f.toml:7:8: bridge \"b\", port \"p\": `path`: `p.sock` is relative to the daemon's working directory; write \
             an absolute path",
        ]
    );
}

#[test]
fn patch_ports_without_a_peer_are_noted() {
    let notes = |peer: &str, more: &str| {
        let text = format!(
            "[[bridge]]\nname = \"access\"\n[[bridge.port]]\nname = \"up\"\ntype = \"patch\"\npeer = \"{peer}\"\n\
             [[bridge]]\nname = \"core\"\n{more}"
        );
        parse_for(&text, Path::new("f.toml"), Depth::Text, None).unwrap().note_lines(Path::new("f.toml"))
    };
    let port = |keys: &str| format!("[[bridge.port]]\nname = \"down\"\n{keys}\n");
    let good = port("type = \"patch\"\npeer = \"access/up\"");
    assert_eq!(notes("core/down", &good), [""; 0]);
    let at = "f.toml:6:8: bridge \"access\", port \"up\": `peer`: ";
    assert_eq!(
        notes("cor/down", ""),
        [format!(
            "{at}this file has no bridge `cor`; did you mean `core`? (expected `access` or `core`). The port stays down \
             until cor/down is added"
        )]
    );
    assert_eq!(
        notes("core/down", ""),
        [format!(
            "{at}bridge `core` has no port `down`; the port stays down until there is one with `type = \"patch\"` and \
             `peer = \"access/up\"`"
        )]
    );
    assert_eq!(
        notes("core/down", &port("type = \"tap\"")),
        [format!("{at}core/down is a tap port; expected a patch port with `peer = \"access/up\"`")]
    );
    let other = notes("core/down", &port("type = \"patch\"\npeer = \"access/else\""));
    assert_eq!(
        other[0],
        format!(
            "{at}the peer of core/down is access/else; give core/down `peer = \"access/up\"`, or the port stays down"
        )
    );
    assert_eq!(
        port_mistake("type = \"patch\"\npeer = \"br0/vm1\"\n"),
        format!("f.toml:6:8: {VM1} `peer`: br0/vm1 is this port itself; specify the port at the other end")
    );
}

#[test]
fn the_form_does_not_depend_on_the_machine() {
    let text = "[daemon]\nworkers = \"0,9999\"\nowner = \"nobody-here\"\n[[bridge]]\nname = \"b\"\n\
                logic = \"wasm:/no/such/module\"\n[[bridge.port]]\nname = \"p\"\ntype = \"memif\"\n\
                path = \"/no/dir/a\"\n";
    parse(text, Path::new("f.toml"), Depth::Form).unwrap();
    assert_eq!(mistakes(text, Depth::Text).len(), 4);
}

#[test]
fn unknown_keys() {
    assert_eq!(
        mistake("[deamon]\n"),
        "f.toml:1:2: unknown key `deamon`; did you mean `daemon`? (expected `daemon`, `bridge` or `sflow`)"
    );
    assert_eq!(
        mistake("[daemon]\n  pol = true\n"),
        "f.toml:2:3: unknown key `pol`; did you mean `poll`? (expected `workers`, `poll`, `socket`, `owner`, `group`, `mode` or `metrics`)"
    );
    assert_eq!(
        mistake("[[bridge]]\nname = \"br0\"\nlogik = \"x\"\n"),
        "f.toml:3:1: bridge \"br0\": unknown key `logik`; did you mean `logic`? \
         (expected `name`, `logic`, `params`, `port`, `station`, `mirror`, `openflow` or `p4`)"
    );
    let found = port_mistake("type = \"memif\"\npath = \"/tmp/a\"\npfc = \"3\"\n");
    let expected = format!("f.toml:7:1: {VM1} `pfc`: ports have no priority flow control (IEEE 802.1Qbb): ");
    assert!(found.starts_with(&expected), "{found}");
    let found = port_mistake("type = \"memif\"\npath = \"/tmp/a\"\nrign-size = 8\n");
    assert!(
        found.starts_with(&format!("f.toml:7:1: {VM1} unknown key `rign-size`; did you mean `ring-size`?"))
    );
    assert!(found.contains("`name`, `type`, `admin`, `mtu`, `vlan`, `isolated`, `police`,"), "{found}");
    assert!(found.contains("`early-drop`, `openflow-port`, `p4-port`, `path`, `id`, `role`"), "{found}");
}

#[test]
fn wrong_types_of_values() {
    assert_eq!(
        mistake("[daemon]\npoll = 1\n"),
        "f.toml:2:8: `poll` is an integer; expected `true` or `false`: write `poll = true`"
    );
    assert_eq!(
        mistake("[bridge]\nname = \"br0\"\n"),
        "f.toml:1:1: `bridge` is a table; expected tables that begin with `[[bridge]]`"
    );
    assert_eq!(
        port_mistake("type = \"tap\"\nadmin = true\n"),
        format!("f.toml:6:9: {VM1} `admin` is a boolean; expected `up` or `down`")
    );
}

#[test]
fn names() {
    assert_eq!(
        mistake("[[bridge]]\nlogic = \"static\"\n"),
        "f.toml:1:1: key `name` is missing; expected the bridge's name"
    );
    assert_eq!(
        mistake("[[bridge]]\nname = \"br 0\"\n"),
        "f.toml:2:8: bridge \"br 0\": `br 0` is not a name; expected 1 to 64 letters, digits, dots, underscores and dashes"
    );
    assert_eq!(
        mistake("[[bridge]]\nname = \"b\"\n[[bridge]]\nname = \"b\"\n"),
        "f.toml:4:8: bridge \"b\": the file already has a bridge of this name in line 2; choose another name"
    );
    assert_eq!(
        port_mistake(
            "type = \"tap\"\n[[bridge.port]]\nname = \"vm1\"\ntype = \"tap\"\ninterface = \"other\"\n"
        ),
        format!(
            "f.toml:7:8: {VM1} the bridge already has a port of this name in line 4; choose another name"
        )
    );
}

#[test]
fn port_types() {
    assert_eq!(
        port_mistake(""),
        format!(
            "f.toml:3:1: {VM1} key `type` is missing; expected `memif`, `tap`, `netdev`, `pcap`, `vhost-user` or `patch`"
        )
    );
    assert_eq!(
        port_mistake("type = \"memfi\"\n"),
        format!(
            "f.toml:5:8: {VM1} unknown port type `memfi`; did you mean `memif`? (expected `memif`, `tap`, `netdev`, `pcap`, `vhost-user` or `patch`)"
        )
    );
}

#[test]
fn values_common_to_all_ports() {
    let port = |line: &str| port_mistake(&format!("type = \"tap\"\n{line}\n"));
    assert_eq!(
        port("admin = \"on\""),
        format!("f.toml:6:9: {VM1} `on` is not an admin state; expected `up` or `down`")
    );
    assert_eq!(
        port("vlan = \"access:5000\""),
        format!(
            "f.toml:6:8: {VM1} `5000` is not a VLAN id from 1 to 4094; \
             expected `transparent`, `access:10`, `trunk:10,20-29` or `trunk:all,native:1`"
        )
    );
    let found = port_mistake("type = \"memif\"\npath = \"/tmp/a\"\nmtu = 70000\n");
    assert!(found.starts_with(&format!("f.toml:7:7: {VM1} invalid MTU 70000: expected 68 to 65521")));
}

#[test]
fn protections_of_a_port() {
    let text = "[[bridge]]\nname = \"b\"\n[[bridge.port]]\nname = \"p\"\ntype = \"tap\"\nisolated = true\n\
                police = \"100Mbit burst 64KiB\"\nstorm-broadcast = \"1000pps\"\nstorm-unknown = \"off\"\n\
                max-stations = 2\nsticky = true\nstations = [\"52:54:00:00:00:02\", \"52:54:00:00:00:01\"]\n\
                sources = [\"10.0.0.5@52:54:00:00:00:01\", \"fe80::/64\"]\n";
    let config = parse(text, Path::new("f.toml"), Depth::Text).unwrap();
    let given = crate::protection::given(&config.bridges[0].ports[0].settings);
    let given: Vec<_> = given.iter().map(|(key, text)| (key.as_str(), text.as_str())).collect();
    assert_eq!(
        given,
        [
            ("isolated", "on"),
            ("max-stations", "2"),
            ("police", "100Mbit burst 64KiB"),
            ("sources", "10.0.0.5@52:54:00:00:00:01,fe80::/64"),
            ("stations", "52:54:00:00:00:01,52:54:00:00:00:02"),
            ("sticky", "on"),
            ("storm-broadcast", "1kpps"),
        ]
    );

    let port = |line: &str| port_mistake(&format!("type = \"tap\"\n{line}\n"));
    assert_eq!(
        port("isolated = 1.5"),
        format!("f.toml:6:12: {VM1} `isolated` is a float; expected `true` or `false`")
    );
    assert_eq!(
        port("sources = [7]"),
        format!(
            "f.toml:6:11: {VM1} `sources` is an array; expected a list of addresses such as \
             `[\"10.0.0.5\", \"fe80::/64@52:54:00:12:34:56\"]`, or `off`"
        )
    );
    let found = port("sticky = true");
    assert!(
        found.starts_with(&format!("f.toml:6:10: {VM1} `sticky`: without a limit, one client")),
        "{found}"
    );
    let found = port("max-stations = -1");
    assert!(
        found.starts_with(&format!("f.toml:6:16: {VM1} `max-stations`: `-1` is not a number")),
        "{found}"
    );
    let found = port("police = \"fast\"");
    assert!(
        found.starts_with(&format!("f.toml:6:10: {VM1} `police`: `fast` is not a rate; expected `off`, "))
    );
    let found = port("polise = \"1pps\"");
    assert!(
        found.starts_with(&format!("f.toml:6:1: {VM1} unknown key `polise`; did you mean `police`?")),
        "{found}"
    );
}

#[test]
fn values_of_the_port_type() {
    let starts = |lines: &str, expected: &str| {
        let found = port_mistake(lines);
        let expected = expected.replacen(' ', &format!(" {VM1} "), 1);
        assert!(found.starts_with(&expected), "{found}\n{expected}");
    };
    starts("type = \"memif\"\n", "f.toml:3:1: key `path` is missing");
    starts(
        "type = \"memif\"\npath = \"/tmp/a\"\nid = \"x\"\n",
        "f.toml:7:6: `id` is a string; expected a whole number",
    );
    starts(
        "type = \"memif\"\npath = \"/tmp/a\"\nrole = \"boss\"\n",
        "f.toml:7:8: `role`: `boss` is unknown; expected `server` or `client`",
    );
    starts(
        "type = \"memif\"\npath = \"/tmp/a\"\nmode = \"rw\"\n",
        "f.toml:7:8: mode: \"rw\" is not an octal mode",
    );
    starts(
        "type = \"memif\"\npath = \"/no/dir/a\"\n",
        "f.toml:6:8: path: /no/dir is not a directory; create it",
    );
    starts(
        "type = \"tap\"\nmac = \"xx\"\n",
        "f.toml:6:7: `mac`: `xx` is not a MAC address: expected six pairs",
    );
    starts("type = \"tap\"\naddresses = [\"10.0.0.1\"]\n", "f.toml:6:13: `addresses`: `10.0.0.1` is not an");
}

#[test]
fn resources_that_two_ports_cannot_share() {
    let memif = |name: &str, rest: &str| {
        format!("[[bridge.port]]\nname = \"{name}\"\ntype = \"memif\"\npath = \"/tmp/a.sock\"\n{rest}\n")
    };
    let text = format!("[[bridge]]\nname = \"br0\"\n{}{}", memif("a", "id = 1"), memif("b", "id = 1"));
    assert_eq!(
        mistake(&text),
        "f.toml:11:8: bridge \"br0\", port \"b\": the port in line 3 already has interface 1 of memif socket /tmp/a.sock; \
         two ports cannot share it"
    );
    let text = format!("[[bridge]]\nname = \"br0\"\n{}{}", memif("a", "id = 1"), memif("b", "id = 2"));
    parse(&text, Path::new("f.toml"), Depth::Text).unwrap();
    let found =
        port_mistake("type = \"tap\"\n[[bridge.port]]\nname = \"x\"\ntype = \"tap\"\ninterface = \"vm1\"\n");
    assert!(found.starts_with("f.toml:9:13: ") && found.contains("interface vm1 in the switch's"), "{found}");
}

#[test]
fn logics() {
    assert_eq!(
        mistake("[[bridge]]\nname = \"b\"\nlogic = \"lerning\"\n"),
        "f.toml:3:9: bridge \"b\": there is no logic `lerning`, did you mean `learning`? The logics are: learning, \
         static, hub, chain, middlebox, three-tuple, dummy, openflow, p4, pcap-filter, inspect, wasm:FILE, native:FILE"
    );
    let found = mistake("[[bridge]]\nname = \"b\"\nparams = { ageing = \"soon\" }\n");
    assert!(
        found.starts_with(
            "f.toml:3:21: bridge \"b\": parameter `ageing` of logic `learning` cannot be `soon`"
        )
    );
    let found = mistake("[[bridge]]\nname = \"b\"\nparams = { aging = 1 }\n");
    assert!(
        found.starts_with("f.toml:3:12: bridge \"b\": logic `learning` has no parameter `aging`"),
        "{found}"
    );
    let found = mistake("[[bridge]]\nname = \"b\"\nparams = { ageing = [1] }\n");
    assert!(
        found.starts_with("f.toml:3:21: bridge \"b\": parameter `ageing` is not a single value"),
        "{found}"
    );
    let chain = |params: &str| mistake(&format!("[[bridge]]\nname = \"b\"\nlogic = \"chain\"\n{params}"));
    for (params, expected) in [
        ("", "f.toml:3:9: bridge \"b\": logic `chain` has no stage 1;"),
        ("params = { 2 = \"hub\" }\n", "f.toml:4:10: bridge \"b\": logic `chain` has no stage 1;"),
        (
            "params = { 1 = \"hub\", 2 = \"learning aging=1\" }\n",
            "f.toml:4:27: bridge \"b\": stage 2: logic `learning` has no parameter `aging`",
        ),
        (
            "params = { 1 = \"chain 1=hub\" }\n",
            "f.toml:4:16: bridge \"b\": parameter `1` of logic `chain` cannot be `chain 1=hub`",
        ),
    ] {
        let found = chain(params);
        assert!(found.starts_with(expected), "{found}");
    }
}

const ROLES: &str = "[[bridge]]\nname = \"b\"\nlogic = \"p4\"\n\n[bridge.p4]\nonly-listed-roles = true\n";

#[test]
fn roles_of_p4() {
    let role = "\n[[bridge.p4.role]]\nname = \"cache\"\ndigests = [\"hit_t\"]\nmax-entries = 1000\npacket-in = true\n\
                packet-rate = 50\nread-only = true\ntables = [\"Ingress.cache\", \"current\"]\n";
    let text = format!("{ROLES}{role}\n[[bridge.p4.role]]\nname = \"other\"\n");
    let config = parse(&text, Path::new("f.toml"), Depth::Text).unwrap();
    let p4 = &config.bridges[0].p4;
    assert!(p4.only_listed_roles);
    let cache = &p4.roles["cache"];
    assert_eq!((cache.access.max_entries, cache.packets, cache.packet_rate), (Some(1000), true, Some(50)));
    assert_eq!(cache.access.objects.values().map(BTreeSet::len).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(p4.roles["other"].access, Access { role: "other".into(), ..Access::default() });
    assert_eq!(write::write(&config, write::Secrets::Written), text);
}

#[test]
fn mistakes_in_roles_of_p4() {
    let mistake = |role: &str| mistake(&format!("{ROLES}{role}"));
    for (role, expected) in [
        ("[[bridge.p4.role]]\n", "f.toml:7:1: bridge \"b\": key `name` is missing; expected the role's name"),
        (
            "role = [{ name = \"\" }]\n",
            "f.toml:7:18: bridge \"b\": `name`: the name has 0 bytes; expected 1 to 256",
        ),
        (
            "role = [{ name = \"a\" }, { name = \"a\" }]\n",
            "f.toml:7:34: bridge \"b\": `name`: there is another role `a`; give each role its own name",
        ),
        (
            "[[bridge.p4.role]]\nname = \"a\"\nmax-entries = -1\n",
            "f.toml:9:15: bridge \"b\": `max-entries`: -1 is out of range; expected 0 to 4294967295",
        ),
        (
            "[[bridge.p4.role]]\nname = \"a\"\ntables = [\"\"]\n",
            "f.toml:9:10: bridge \"b\": `tables`: a name is empty; expected the name or alias of an object in the P4Info",
        ),
        (
            "[[bridge.p4.role]]\nname = \"a\"\npacket-rate = 0\npacket-in = true\n",
            "f.toml:9:15: bridge \"b\": `packet-rate`: 0 is out of range; expected 1 to 4294967295",
        ),
    ] {
        assert_eq!(mistake(role), expected);
    }
    let found = mistake("[[bridge.p4.role]]\nname = \"a\"\ntable = [\"t\"]\n");
    assert!(found.contains("`table`") && found.contains("did you mean `tables`?"), "{found}");
}

#[test]
fn cpus() {
    let found = mistake("[daemon]\nworkers = \"0,9999\"\n");
    assert!(found.starts_with("f.toml:2:11: `workers`: CPU 9999 is not online; online CPUs: 0"), "{found}");
    let found = mistake("[daemon]\nworkers = \"zero\"\n");
    assert!(found.starts_with("f.toml:2:11: `workers`: `zero` is not a CPU list; expected"), "{found}");
}

#[test]
fn every_mistake_is_reported_in_the_order_of_the_file() {
    let text = "[daemon]\npoll = 1\nx = 2\n[[bridge]]\nname = \"b\"\nlogic = \"no\"\n[[bridge.port]]\nname = \"p\"\n\
                type = \"memif\"\npath = 5\nid = \"x\"\nvlan = \"y\"\n";
    let lines: Vec<String> = mistakes(text, Depth::Text)
        .iter()
        .map(|line| line.split(':').nth(1).unwrap_or_default().to_owned())
        .collect();
    assert_eq!(lines, ["2", "3", "6", "10", "11", "12"]);
}

#[test]
fn sockets_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let (live, file) = (dir.path().join("live.sock"), dir.path().join("file"));
    let _listener = UnixListener::bind(&live).unwrap();
    std::fs::write(&file, "").unwrap();
    let control = dir.path().join("control.sock");
    let text = format!(
        "[daemon]\nsocket = {control:?}\n[[bridge]]\nname = \"b\"\n\
         [[bridge.port]]\nname = \"p\"\ntype = \"memif\"\npath = {live:?}\n\
         [[bridge.port]]\nname = \"q\"\ntype = \"memif\"\npath = {file:?}\n"
    );
    parse(&text, Path::new("f.toml"), Depth::Text).unwrap();
    let found = mistakes(&text, Depth::Machine);
    assert_eq!(found.len(), 2, "{found:#?}");
    let expected = format!(
        "f.toml:8:8: bridge \"b\", port \"p\": path: {} is in use by process {} (",
        live.display(),
        std::process::id()
    );
    assert!(found[0].starts_with(&expected), "{found:#?}\n{expected}");
    assert!(
        found[1].contains("12:8: bridge \"b\", port \"q\": path: ") && found[1].contains("is not a socket")
    );

    // A socket in use by the daemon of the file is not a mistake.
    let _daemon = UnixListener::bind(&control).unwrap();
    assert_eq!(mistakes(&text, Depth::Machine).len(), 1);
}

#[test]
fn a_recording_has_one_port() {
    let port =
        |name: &str, keys: &str| format!("[[bridge.port]]\nname = \"{name}\"\ntype = \"pcap\"\n{keys}\n");
    let text = |first: &str, second: &str| {
        format!("[[bridge]]\nname = \"b\"\n{}{}", port("p", first), port("q", second))
    };
    let read = "read = \"/tmp/in\"";
    parse(&text(read, read), Path::new("f.toml"), Depth::Text).unwrap();
    let found = mistake(&text("write = \"/tmp/out\"", "write = \"/tmp/out\""));
    assert_eq!(
        found,
        "f.toml:10:9: bridge \"b\", port \"q\": the port in line 3 already has the recording /tmp/out; two ports cannot share it"
    );
    let found = mistake(&text(read, "write = \"/tmp/out\"\nsnaplen = 3"));
    assert_eq!(
        found,
        "f.toml:11:11: bridge \"b\", port \"q\": snaplen: 3 is out of range, must be 14 to 65535 bytes"
    );
    let found = mistake(&text(read, "read = \"/tmp/in\"\nspeed = \"fast\""));
    assert!(
        found.starts_with("f.toml:11:9: bridge \"b\", port \"q\": `speed`: `fast` is not a speed;"),
        "{found}"
    );
}

#[test]
fn missing_file() {
    let error = read_for(Path::new("/no/such/file.toml"), None).unwrap_err().to_string();
    assert_eq!(error, "/no/such/file.toml: cannot read the file: No such file or directory (os error 2)");
}

#[test]
fn unusable_control_socket() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let found = mistakes(&format!("[daemon]\nsocket = {file:?}\n"), Depth::Machine);
    assert!(
        found[0].starts_with("f.toml:2:10: `socket`: ") && found[0].contains("is not a socket"),
        "{found:?}"
    );
    let text = "[daemon]\nsocket = \"/no/dir/s\"\n";
    let found = mistakes(text, Depth::Machine);
    assert!(found[0].starts_with("f.toml:2:10: `socket`: the directory /no/dir does not exist"), "{found:?}");
    // A socket that the command line overrides is not checked.
    parse_for(text, Path::new("f.toml"), Depth::Machine, Some(&dir.path().join("s"))).unwrap();
}

#[test]
fn address_for_metrics() {
    let config = parse("[daemon]\nmetrics = \"9090\"\n", Path::new("f.toml"), Depth::Text).unwrap();
    assert_eq!(config.daemon.metrics.map(|address| address.to_string()).as_deref(), Some("127.0.0.1:9090"));
    assert_eq!(
        mistake("[daemon]\nmetrics = \":9090\"\n"),
        "f.toml:2:11: `metrics`: `:9090` is not an address for metrics; expected ADDRESS:PORT such as 127.0.0.1:9090 \
         or [::1]:9090, or a port alone for 127.0.0.1"
    );
    assert_eq!(
        mistake("[daemon]\nmetrics = 9090\n"),
        "f.toml:2:11: `metrics` is an integer; expected a text such as `127.0.0.1:9090` or `9090`: write \
         `metrics = \"9090\"`"
    );
}

#[test]
fn access_to_the_control_socket() {
    let text = "[daemon]\nowner = \"root\"\ngroup = \"0\"\nmode = \"0600\"\n";
    let config = parse(text, Path::new("f.toml"), Depth::Text).unwrap();
    assert_eq!(config.daemon.access(), ports::Access::read(Some("0"), Some("root"), Some("600")));
    assert_eq!(
        mistake("[daemon]\npoll = true\nmode = \"rw\"\n"),
        "f.toml:3:8: `[daemon]`: mode: \"rw\" is not an octal mode such as \"0660\""
    );
    assert_eq!(
        mistake("[daemon]\ngroup = \"nobody-here\"\n"),
        "f.toml:2:9: `[daemon]`: group: there is no group \"nobody-here\"; give a name or a number"
    );
}

#[test]
fn sflow() {
    let config = parse("[sflow]\ncollectors = [\"192.0.2.9\"]\n", Path::new("f.toml"), Depth::Text).unwrap();
    let sflow = config.sflow.unwrap();
    assert_eq!((sflow.sampling, sflow.polling, sflow.header, sflow.agent), (1000, 20, 128, None));
    let of = |lines: &str| mistake(&format!("[sflow]\ncollectors = [\"192.0.2.9\"]\n{lines}"));
    for (lines, expected) in [
        ("agent = \"eth0\"", "3:9: `agent`: `eth0` is not an agent address; expected the IP address"),
        ("agent = 1", "3:9: `agent` is an integer; expected an IP address or `auto`"),
        (
            "sampling = 0",
            "3:12: `sampling`: a sampling rate of 1 in 0 is out of range; expected 1 to 1000000000",
        ),
        (
            "polling = -1",
            "3:11: `polling`: a polling interval of -1 s is out of range; expected 1 to 86400, or 0",
        ),
        ("header = 513", "3:10: `header`: a header of 513 bytes is out of range; expected 14 to 512"),
        ("rate = 5", "3:1: unknown key `rate`; expected `collectors`, `agent`,"),
    ] {
        assert!(of(lines).contains(expected), "{lines}: {}", of(lines));
    }
    for (value, expected) in [
        ("[]", "2:14: `collectors`: sFlow needs a collector: name one with `collectors`"),
        (
            "\"192.0.2.9\"",
            "2:14: `collectors` is a string; expected a list of addresses such as [\"192.0.2.9\",",
        ),
        ("[\"192.0.2.9\", 7]", "2:28: `collectors` holds an integer; expected a list of addresses"),
        ("[\"a.example\"]", "2:15: `collectors`: `a.example` is not a collector; expected an IP address"),
        (
            "[\"192.0.2.9\", \"192.0.2.9:6343\"]",
            "2:14: `collectors`: collector 192.0.2.9:6343 is listed twice",
        ),
    ] {
        let found = mistake(&format!("[sflow]\ncollectors = {value}\n"));
        assert!(found.contains(expected), "{value}: {found}");
    }
    assert!(mistake("[sflow]\n").contains("1:1: key `collectors` is missing; expected a list of addresses"));
    assert!(
        mistake("sflow = 1\n").contains("`sflow` is an integer; expected a table that begins with `[sflow]`")
    );
    let several = mistakes("[sflow]\ncollectors = [\"x\"]\nheader = 1\n", Depth::Text);
    assert_eq!(several.len(), 2, "{several:#?}");
}

#[test]
fn a_port_with_a_mistake_is_still_a_port() {
    let text = "[[bridge]]\nname = \"br0\"\n[[bridge.port]]\nname = \"b\"\ntype = \"tap\"\nmtu = \"big\"\n\
                [[bridge.port]]\nname = \"c\"\ntype = \"tap\"\n[[bridge.mirror]]\nname = \"m\"\nfrom = [\"b\"]\nto = \"c\"\n\
                [[bridge.station]]\nmac = \"02:00:00:00:00:01\"\nport = \"b\"\n";
    let error = parse(text, Path::new("f"), Depth::Form).unwrap_err();
    assert_eq!(error.problems.len(), 1, "{error}");
    assert!(error.to_string().starts_with("f:6:"), "{error}");
}

#[test]
fn a_bridge_without_ports_has_nothing_to_suggest() {
    let text = "[[bridge]]\nname = \"br0\"\n[[bridge.station]]\nmac = \"02:00:00:00:00:01\"\nport = \"b\"\n\
                [[bridge.mirror]]\nname = \"m\"\nto = \"c\"\n";
    let error = parse(text, Path::new("f"), Depth::Form).unwrap_err().to_string();
    let lines: Vec<_> = error.lines().collect();
    assert_eq!(
        lines,
        [
            "f:5:8: bridge \"br0\": the bridge has no port `b`; add the port first",
            "f:8:6: bridge \"br0\": the bridge has no port `c`; add the port first",
        ]
    );
}

#[test]
fn a_line_that_is_not_toml_is_reported_once() {
    assert_eq!(
        mistake("[[bridge]]\nname = = \"br0\"\n"),
        "f.toml:2:8: `name` has two equals signs; write `name = \"br0\"`"
    );
}

#[test]
fn host_ports_are_checked_within_their_bridge() {
    let text = |host: &str, more: &str| {
        format!(
            "[[bridge]]\nname = \"br0\"\n[[bridge.port]]\nname = \"eth0\"\ntype = \"netdev\"\nhost = \"{host}\"\n\
             [[bridge.port]]\nname = \"host\"\ntype = \"tap\"\n{more}"
        )
    };
    let config = parse(&text("host", ""), Path::new("f.toml"), Depth::Text).unwrap();
    let Spec::Netdev(options) = &config.bridges[0].ports[0].spec else { panic!("{config:?}") };
    assert_eq!(options.host.as_deref(), Some("host"));
    let written = write::write(&config, write::Secrets::Written);
    assert!(written.contains("\nhost = \"host\"\n"), "{written}");
    let at = "f.toml:6:8: bridge \"br0\", port \"eth0\": host";
    assert_eq!(mistake(&text("hots", "")), format!("{at}: the bridge has no port `hots`; expected `host`"));
    assert_eq!(
        mistake(&text("", "")),
        format!("{at}: it is empty; expected the name of a TAP port of the bridge")
    );
    assert_eq!(
        mistake(&text("host", "netns = \"blue\"\n")),
        format!(
            "{at}: port `host` is in namespace `blue`, this port in the switch's namespace; give both ports the same \
             `netns`"
        )
    );
    // A host port with a mistake of its own is reported once.
    assert!(mistake(&text("host", "queues = 0\n")).contains("queues = 0"));
    let second = "[[bridge.port]]\nname = \"eth1\"\ntype = \"netdev\"\nhost = \"host\"\n";
    assert_eq!(
        mistake(&text("host", second)),
        "f.toml:13:8: bridge \"br0\", port \"eth1\": host: port `host` has the addresses of port `eth0`; name another \
         TAP port"
    );
}

#[test]
fn a_file_that_may_not_be_read_has_a_remedy_for_its_user() {
    let said = |user| permission_denied(Uid::from_raw(user));
    assert_eq!(
        said(997),
        "cannot read the file: permission denied for user 997; permit that user to read the file and to enter its \
         directories, or run mswitch as root"
    );
    assert_eq!(
        said(0),
        "cannot read the file: permission denied for user 0; its file system, a security module or the lack of \
         CAP_DAC_OVERRIDE restricts root"
    );
}
