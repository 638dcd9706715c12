//! MAC tables of bridges.

use e2e::open_vswitch::{Host, LIMIT};
use e2e::{ping_all, until};

fn show(host: &Host, bridge: &str) -> String {
    host.appctl(&["fdb/show", bridge]).1
}

#[test]
fn stations_are_added_by_hand_and_limited() {
    let host = Host::new();
    let (a, _b) = (host.guest("va", "10.80.0.1/24"), host.guest("vb", "10.80.0.2/24"));
    let _daemon = host.start();
    host.vsctl(&["add-br", "br0", "--", "add-port", "br0", "va", "--", "add-port", "br0", "vb"]);
    ping_all(&a, "10.80.0.2", 1, "0.1").unwrap();
    let add = |port| host.appctl(&["fdb/add", "br0", port, "0", "02:00:00:00:00:01"]);
    assert_eq!(add("va"), (Some(0), String::new(), String::new()));
    assert_eq!(add("va").1, "");
    assert!(
        show(&host, "br0").contains("    1     0  02:00:00:00:00:01  static\n"),
        "{}",
        show(&host, "br0")
    );
    assert_eq!(add("vb").1, "Overriding already existing static entry on 1\n");
    assert_eq!(host.appctl(&["fdb/flush", "br0"]).1, "table successfully flushed\n");
    let statistics = || host.appctl(&["fdb/stats-show", "br0"]).1;
    assert!(statistics().contains("  Current static MAC entries in the table : 1\n"), "{}", statistics());
    // The guests' kernels send of their own accord, so a station may have been learned again.
    let shown = show(&host, "br0");
    assert!(shown.contains("    2     0  02:00:00:00:00:01  static\n"), "{shown}");
    let delete = || host.appctl(&["fdb/del", "br0", "0", "02:00:00:00:00:01"]);
    assert_eq!(delete().0, Some(0));
    assert!(delete().2.contains("could not find static mac entry"));
    assert!(add("vx").2.contains("br0 has no port vx"));
    let learned = host.appctl(&["coverage/read-counter", "mac_learning_learned"]).1;
    assert!(learned.trim().parse::<u64>().unwrap() >= 2, "{learned}");
    assert!(host.appctl(&["coverage/read-counter", "frobs"]).2.contains("No such counter"));

    let until_most = |most: &str| {
        until(&format!("{most} stations at most"), LIMIT, || {
            Ok(statistics().contains(&format!("/{most}\n")).then_some(()))
        })
        .unwrap();
    };
    for (size, most) in [("10", "10"), ("12000", "12000"), ("100000", "16384")] {
        host.vsctl(&["set", "bridge", "br0", &format!("other_config:mac-table-size={size}")]);
        until_most(most);
    }
    assert!(host.log().contains("has room for 16384 stations"));
    host.vsctl(&["remove", "bridge", "br0", "other_config", "mac-table-size"]);
    until_most("8192");
    host.vsctl(&["add-br", "br1", "--", "set", "bridge", "br1", "other_config:mac-table-size=100000"]);
    assert!(host.appctl(&["fdb/stats-show", "br1"]).1.contains("/100000\n"));
}

#[test]
fn other_bridges_forget_the_stations_of_a_removed_port() {
    let host = Host::new();
    let (a, _b) = (host.guest("va", "10.80.0.1/24"), host.guest("vb", "10.80.0.2/24"));
    let _daemon = host.start();
    host.vsctl(&["add-br", "br0", "--", "add-br", "br1"]);
    host.vsctl(&["add-port", "br0", "va", "--", "add-port", "br1", "vb"]);
    for (bridge, port, peer) in [("br0", "p0", "p1"), ("br1", "p1", "p0")] {
        let peer = format!("options:peer={peer}");
        host.vsctl(&["add-port", bridge, port, "--", "set", "interface", port, "type=patch", &peer]);
    }
    ping_all(&a, "10.80.0.2", 1, "0.1").unwrap();
    let mac = a.run(&["cat", "/sys/class/net/eth0/address"]).unwrap();
    assert!(show(&host, "br1").contains(mac.trim()));
    host.vsctl(&["del-port", "va"]);
    assert!(!show(&host, "br1").contains(mac.trim()), "{}", show(&host, "br1"));
}
