//! The transactions of ovs-cni, which talks to the database itself and never bumps `next_cfg`: a container's port is
//! inserted, its link is awaited, a mirror takes it as a source, and all is removed.

use e2e::open_vswitch::Host;
use e2e::ping_all;

/// Runs operations in one transaction of the database.
fn transact(host: &Host, operations: &str) -> String {
    let database = format!("unix:{}", host.path("db.sock").display());
    let transaction = format!("[\"Open_vSwitch\",{operations}]");
    let (code, output, error) = host.tool("ovsdb-client", &["-t", "20", "transact", &database, &transaction]);
    assert_eq!((code, error.as_str()), (Some(0), ""));
    assert!(!output.contains("error"), "{output}");
    output
}

/// The operations that add an interface, a port with columns, and the port to the bridge.
fn add(name: &str, port_columns: &str) -> String {
    let owner = r#"["map",[["owner","ovs-cni.network.kubevirt.io"]]]"#;
    format!(
        r#"{{"op":"insert","table":"Interface","uuid-name":"i","row":{{"name":"{name}"}}}},
        {{"op":"insert","table":"Port","uuid-name":"p","row":{{"name":"{name}",{port_columns}
          "interfaces":["set",[["named-uuid","i"]]],"external_ids":{owner}}}}},
        {{"op":"mutate","table":"Bridge","where":[["name","==","br0"]],
          "mutations":[["ports","insert",["set",[["named-uuid","p"]]]]]}}"#
    )
}

#[test]
fn a_container_is_attached_mirrored_and_removed() {
    let host = Host::new();
    let _daemon = host.start();
    host.vsctl(&["add-br", "br0"]);
    let (a, b) = (host.guest("va", "10.80.0.1/24"), host.guest("vb", "10.80.0.2/24"));
    let sink = host.guest("vc", "10.80.0.3/24");
    for (name, columns) in [("va", r#""tag":5,"vlan_mode":"access","#), ("vb", r#""tag":5,"#), ("vc", "")] {
        transact(&host, &add(name, columns));
        host.until_is(name, "link_state", "up");
        assert_eq!(host.get("Interface", name, "error"), "[]");
    }
    ping_all(&a, "10.80.0.2", 3, "0.1").unwrap();

    let port = |name| host.get("Port", name, "_uuid");
    let mirror = format!(
        r#"{{"op":"insert","table":"Mirror","uuid-name":"m","row":{{"name":"m",
          "select_src_port":["uuid","{va}"],"select_dst_port":["uuid","{va}"],"output_port":["uuid","{vc}"]}}}},
        {{"op":"mutate","table":"Bridge","where":[["name","==","br0"]],
          "mutations":[["mirrors","insert",["set",[["named-uuid","m"]]]]]}}"#,
        va = port("va"),
        vc = port("vc"),
    );
    transact(&host, &mirror);
    e2e::until("copies of pings", e2e::open_vswitch::LIMIT, || {
        a.run(&["ping", "-n", "-c", "1", "-W", "1", "10.80.0.2"])?;
        let counter = sink.run(&["cat", "/sys/class/net/eth0/statistics/rx_packets"])?;
        // Floods reach the sink without a mirror, too.
        let copied = host.get("Mirror", "m", "statistics:tx_packets");
        let enough = |text: &str| text.trim().parse::<u64>().unwrap_or_default() >= 8;
        Ok((enough(&counter) && enough(&copied)).then_some(()))
    })
    .unwrap();

    // A port that is removed takes its place in the mirror with it.
    let remove = format!(
        r#"{{"op":"mutate","table":"Bridge","where":[["name","==","br0"]],
          "mutations":[["ports","delete",["set",[["uuid","{}"]]]]]}}"#,
        port("va"),
    );
    transact(&host, &remove);
    e2e::until("the port to be gone", e2e::open_vswitch::LIMIT, || {
        Ok(a.run(&["ping", "-n", "-c", "1", "-W", "1", "10.80.0.2"]).is_err().then_some(()))
    })
    .unwrap();
    assert_eq!(host.vsctl(&["list-ports", "br0"]), "vb\nvc\n");
    drop(b);
}
