//! A rate-limiting module in front of `learning` in a chain: a flood ping loses exactly the echoes that the limiter
//! drops.

use e2e::{Daemon, Netns, config, modules};

/// Sends a flood of pings and returns the number without an answer.
fn flood(netns: &Netns) -> u64 {
    let count = 2_000;
    let text = netns.command(&["ping", "-q", "-f", "-c", "2000", "-W", "5", "10.94.0.2"]).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("2000 packets transmitted"), "{text}");
    let answers = text.split(" transmitted, ").nth(1).and_then(|rest| rest.split(' ').next());
    count - answers.and_then(|answers| answers.parse::<u64>().ok()).unwrap()
}

fn counters(daemon: &Daemon) -> (u64, u64) {
    let shown = daemon.json(&["logic", "show", "br0"]).unwrap();
    let of = |name: &str| {
        let counters = shown["counters"].as_array().unwrap();
        let found = counters.iter().find(|counter| counter["name"] == name);
        found.unwrap_or_else(|| panic!("no counter {name}: {shown}"))["value"].as_u64().unwrap()
    };
    (of("stage1_passed"), of("stage1_refused"))
}

#[test]
fn a_flood_ping_loses_only_what_the_limiter_drops() {
    let folder = tempfile::tempdir().unwrap();
    let source = "tests/modules/limiter.c";
    let kinds = [
        modules::wasm(source, folder.path(), &[]).unwrap(),
        modules::native(source, folder.path(), &[]).unwrap(),
    ];
    let netns: [Netns; 2] = std::array::from_fn(|_| Netns::new().unwrap());
    let port = |(name, address): (&str, &str), netns: &Netns| {
        // Without IPv6, no neighbour discovery disturbs the counters.
        netns.run(&["sysctl", "-q", "-w", "net.ipv6.conf.default.disable_ipv6=1"]).unwrap();
        config::tap(name, "eth0", netns.name(), &[address], "")
    };
    let ports = port(("a", "10.94.0.1/24"), &netns[0]) + &port(("b", "10.94.0.2/24"), &netns[1]);
    let daemon = Daemon::start(&(config::bridge("br0", "hub") + &ports)).unwrap();
    let dropped = || {
        let of = |name: &str| daemon.port("br0", name).unwrap().json()["totals"].clone();
        let (a, b) = (of("a"), of("b"));
        let by_logic = |port: &serde_json::Value| port["rx"]["drops"]["logic"].as_u64().unwrap_or(0);
        let all = |port: &serde_json::Value| {
            port["rx"]["dropped"].as_u64().unwrap() + port["tx"]["dropped"].as_u64().unwrap()
        };
        (by_logic(&a) + by_logic(&b), all(&a) + all(&b))
    };
    for kind in &kinds {
        for (rate, is_limited) in [(1_000_000, false), (1_000, true)] {
            let first = format!("1={kind} rate={rate} burst=100");
            let chain = ["logic", "set", "br0", "chain", "--param", &first, "--param", "2=learning"];
            daemon.run(&chain).unwrap();
            let (before, (_, refused_before)) = (dropped(), counters(&daemon));
            let lost = flood(&netns[0]);
            let (after, (passed, refused)) = (dropped(), counters(&daemon));
            let refused = refused - refused_before;
            assert_eq!(lost, refused, "{kind}, {rate} packets a second: {before:?}, then {after:?}");
            assert_eq!((after.0 - before.0, after.1 - before.1), (lost, lost), "{kind}");
            assert_eq!(lost > 0, is_limited, "{kind}: {lost} of 2,000 at {rate} packets a second");
            assert!(passed > 0, "{kind}");
        }
    }
}
