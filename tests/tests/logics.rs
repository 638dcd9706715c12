//! Logics from the user's side: replacement under traffic, inspection, commands and configuration files.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::time::Duration;

use e2e::{Daemon, Netns, config, ping_all, unique, until};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(20);
/// A non-existent station on port `c`.
const PRINTER: &str = "52:54:00:00:00:77";

/// Guests `a`, `b` and `c` of one bridge, each in a namespace of its own.
struct Rig {
    // Dropped in this order: the daemon, then its namespaces.
    daemon: Daemon,
    guests: [Netns; 3],
}

fn rig(more: &str) -> Rig {
    let guests: [Netns; 3] = std::array::from_fn(|_| Netns::new().unwrap());
    let mut text = config::bridge("br0", "learning") + more;
    for ((guest, name), address) in guests.iter().zip(["a", "b", "c"]).zip(1..) {
        text += &config::tap(name, &unique("t"), guest.name(), &[&format!("10.78.0.{address}/24")], "");
    }
    let daemon = Daemon::start(&text).unwrap();
    Rig { daemon, guests }
}

impl Rig {
    /// VLAN, address and port of each entry of the MAC table.
    fn stations(&self) -> BTreeSet<(u64, String, String)> {
        let fdb = self.daemon.json(&["fdb", "show", "br0"]).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let entries = fdb["entries"].as_array().unwrap().iter();
        entries
            .map(|entry| (entry["vlan"].as_u64().unwrap(), text(&entry["mac"]), text(&entry["port"])))
            .collect()
    }

    /// Lets each guest send, so that the switch learns it.
    fn meet(&self) {
        for guest in &self.guests {
            for address in ["10.78.0.1", "10.78.0.2", "10.78.0.3"] {
                guest.run(&["ping", "-c", "1", "-W", "5", address]).unwrap();
            }
        }
    }

    /// Exit code and message of a refused command.
    fn refused(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = self.daemon.cli(arguments).unwrap();
        assert!(output.stdout.is_empty(), "{arguments:?}");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

#[test]
fn replacing_the_logic_does_not_disturb_guests() {
    let rig = rig("");
    rig.meet();
    rig.daemon.run(&["fdb", "add", "br0", PRINTER, "--port", "c"]).unwrap();
    let before = rig.stations();
    let ports: BTreeSet<_> = before.iter().map(|(_, _, port)| port.as_str()).collect();
    assert_eq!(ports, BTreeSet::from(["a", "b", "c"]));

    let pings = std::thread::scope(|scope| {
        let ping = scope.spawn(|| ping_all(&rig.guests[0], "10.78.0.2", 200, "0.01").unwrap());
        for i in 0..30 {
            let (ageing, stations) = (format!("ageing={}", 300 + i), format!("max-stations={}", 1000 + i));
            rig.daemon
                .run(&["logic", "set", "br0", "learning", "--param", &ageing, "--param", &stations])
                .unwrap();
        }
        ping.join().unwrap()
    });
    assert!(!pings.contains("DUP!"), "{pings}");
    let after = rig.stations();
    assert!(after.is_superset(&before), "{before:?} became {after:?}");
    let shown = rig.daemon.json(&["logic", "show", "br0"]).unwrap();
    assert_eq!(
        shown["params"],
        json!({"ageing": "329", "max-stations": "1029", "port-share": "75", "snooping": "off"})
    );
    // The stations were handed over, not learned again.
    assert_eq!(shown["counters"][0], json!({"name": "learned", "summary": "stations learned", "value": 0}));
}

#[test]
fn static_stations_survive_changes_of_the_logic() {
    let station = format!("[[bridge.station]]\nmac = \"{PRINTER}\"\nport = \"c\"\nvlan = 7\n\n");
    let rig = rig(&station);
    let printers = || -> Vec<_> {
        let all = rig.stations().into_iter();
        all.filter(|(_, mac, _)| mac == PRINTER).map(|(vlan, _, port)| (vlan, port)).collect()
    };
    let set = |logic: &str| rig.daemon.run(&["logic", "set", "br0", logic]).unwrap();
    let wanted = vec![(7, "c".to_owned())];
    assert_eq!(printers(), wanted);
    set("static");
    set("hub");
    let (code, message) = rig.refused(&["fdb", "show", "br0"]);
    assert_eq!(code, Some(1));
    assert!(
        message.contains("`hub`, has no MAC table; `mswitch logic set br0 learning` sets one that has"),
        "{message}"
    );
    set("learning");
    assert_eq!(printers(), wanted);
    // A file that changes the logic and moves the station at once.
    let moved = rig.daemon.run(&["config", "show"]).unwrap();
    let moved = moved
        .replace("port = \"c\"", "port = \"b\"")
        .replace("name = \"br0\"", "name = \"br0\"\nparams = { ageing = 60 }");
    let file = rig.daemon.path("moved.toml");
    std::fs::write(&file, moved).unwrap();
    rig.daemon.run(&["config", "apply", &file]).unwrap();
    assert_eq!(printers(), [(7, "b".to_owned())]);
    // A logic too small for the stations is refused, and the old one stays.
    rig.daemon.run(&["fdb", "add", "br0", PRINTER, "--port", "c"]).unwrap();
    rig.meet();
    let before = rig.stations();
    let small = ["logic", "set", "br0", "learning", "--param", "max-stations=1"];
    let (code, message) = rig.refused(&small);
    assert_eq!(code, Some(1));
    assert!(
        message.contains("static station 52:54:00:00:00:77: the table is full")
            && message.contains("raise `max-stations`"),
        "{message}"
    );
    assert_eq!(printers(), [(0, "c".to_owned()), (7, "b".to_owned())]);
    assert!(rig.stations().is_superset(&before), "the old logic has lost stations");
    assert_eq!(rig.daemon.json(&["logic", "show", "br0"]).unwrap()["params"]["ageing"], "60");
}

#[test]
fn a_logic_shows_its_counters_and_tables() {
    let rig = rig("params = { snooping = true }\n\n");
    rig.meet();
    for n in 0..20 {
        let mac = format!("52:54:00:00:01:{n:02x}");
        rig.daemon.run(&["fdb", "add", "br0", &mac, "--port", "c", "--vlan", "9"]).unwrap();
    }
    let shown = until("the guests to be counted", LIMIT, || {
        let shown = rig.daemon.json(&["logic", "show", "br0"])?;
        Ok((shown["counters"][0]["value"].as_u64() >= Some(3)).then_some(shown))
    })
    .unwrap();
    assert_eq!((&shown["name"], &shown["params"]["unregistered"]), (&json!("learning"), &json!("flood")));
    let tables = shown["tables"].as_array().unwrap();
    let names: Vec<_> = tables.iter().map(|table| &table["name"]).collect();
    assert_eq!(names, ["stations", "groups"]);
    let (stations, rows) = (&tables[0], tables[0]["rows"].as_array().unwrap());
    assert_eq!(stations["columns"], json!(["vlan", "mac", "port", "age", "kind"]));
    assert_eq!((&stations["entries"], &stations["capacity"]), (&json!(rows.len()), &json!(8192)));
    assert!(rows.contains(&json!({"cells": ["9", "52:54:00:00:01:13", "c", "", "static"]})), "{rows:?}");
    assert!(rows.len() >= 23, "JSON has all rows");

    // The text shows the first ten rows and the command for the others.
    let text = rig.daemon.run(&["logic", "show", "br0"]).unwrap();
    assert!(
        text.contains("and ") && text.contains(" more: `mswitch logic show br0 --table stations`"),
        "{text}"
    );
    assert!(!text.contains("52:54:00:00:01:13"), "{text}");
    let text = rig.daemon.run(&["logic", "show", "br0", "--table", "stations"]).unwrap();
    assert!(
        text.contains("52:54:00:00:01:13") && !text.contains("groups") && !text.contains("more:"),
        "{text}"
    );
    let (code, message) = rig.refused(&["logic", "show", "br0", "--table", "flows"]);
    assert_eq!(code, Some(1));
    assert!(
        message.contains("`learning`, has no table `flows`; its tables are stations, groups"),
        "{message}"
    );
}

#[test]
fn invalid_logic_commands_are_refused_without_effect() {
    let rig = rig("");
    let before = rig.daemon.json(&["logic", "show", "br0"]).unwrap()["params"].clone();
    for (arguments, code, expected) in [
        (&["logic", "call", "br0", "flush", "a"][..], 1, "logic `learning` has no commands"),
        (&["logic", "call", "br1", "flush"], 1, "there is no bridge \"br1\""),
        (&["logic", "call", "br0"], 2, "<COMMAND>"),
        (&["logic", "show", "br1"], 1, "there is no bridge \"br1\""),
        (
            &["logic", "set", "br0", "learning", "--param", "ageing=soon"],
            1,
            "cannot be `soon`: a whole number of seconds from 0 to 1000000 is expected",
        ),
        (
            &["logic", "set", "br0", "learning", "--param", "snooping=maybe"],
            1,
            "parameter `snooping` of logic `learning` cannot be `maybe`: `on` or `off` is expected",
        ),
        (
            &["logic", "set", "br0", "learning", "--param", "unregistered=here"],
            1,
            "cannot be `here`: `flood` or `routers` is expected",
        ),
        (
            &["logic", "set", "br0", "learning", "--param", "aging=1"],
            1,
            "logic `learning` has no parameter `aging`, did you mean `ageing`?",
        ),
        (&["logic", "set", "br0", "learning", "--param", "ageing"], 2, "KEY=VALUE"),
        (&["logic", "set", "br0", "lerning"], 1, "there is no logic `lerning`, did you mean `learning`?"),
        (&["logic", "list", "lerning"], 1, "there is no logic `lerning`, did you mean `learning`?"),
    ] {
        let (found, message) = rig.refused(arguments);
        assert_eq!(found, Some(code), "{arguments:?}: {message}");
        assert!(message.contains(expected), "{arguments:?}: {message}");
    }
    assert_eq!(rig.daemon.json(&["logic", "show", "br0"]).unwrap()["params"], before);
}

#[test]
fn parameters_are_listed_with_their_values() {
    let rig = rig("");
    let all = rig.daemon.json(&["logic", "list"]).unwrap();
    let one = rig.daemon.json(&["logic", "list", "learning"]).unwrap();
    assert_eq!(one["logics"][0], all["logics"][0]);
    assert_eq!(one["logics"].as_array().unwrap().len(), 1);
    let params = one["logics"][0]["params"].as_array().unwrap();
    let param = |name: &str| params.iter().find(|param| param["name"] == name).unwrap();
    let ageing = param("ageing");
    assert_eq!((&ageing["type"], &ageing["default"]), (&json!("number"), &json!("300")));
    assert_eq!(
        (&ageing["min"], &ageing["max"], &ageing["unit"]),
        (&json!(0), &json!(1_000_000), &json!("seconds"))
    );
    assert_eq!(param("unregistered")["choices"], json!(["flood", "routers"]));
    let static_logic =
        all["logics"].as_array().unwrap().iter().find(|logic| logic["name"] == "static").unwrap();
    assert_eq!(
        (&static_logic["params"][0]["any_name"], &static_logic["params"][0]["type"]),
        (&json!(true), &json!("port"))
    );
    let text = rig.daemon.run(&["logic", "list", "learning"]).unwrap();
    assert!(text.contains("a whole number of seconds from 0 to 1000000 (default: 300)"), "{text}");
}

#[test]
fn logic_parameters_are_restored_from_files() {
    let mut rig = rig("params = { ageing = 60, snooping = true }\n\n");
    let params = |rig: &Rig| rig.daemon.json(&["logic", "show", "br0"]).unwrap()["params"].clone();
    let from_file = params(&rig);
    assert_eq!((&from_file["ageing"], &from_file["snooping"]), (&json!("60"), &json!("on")));
    let set =
        ["logic", "set", "br0", "learning", "--param", "unregistered=routers", "--param", "snooping=on"];
    rig.daemon.run(&set).unwrap();
    let wanted = params(&rig);
    let diff = rig.daemon.differences(None).unwrap();
    assert!(diff.contains("unregistered"), "{diff}");
    // Save the running configuration to the daemon's file.
    let file = rig.daemon.path("config.toml");
    rig.daemon.run(&["config", "save", &file]).unwrap();
    assert!(rig.daemon.terminate().unwrap().success());
    rig.daemon.restart().unwrap();
    assert_eq!(params(&rig), wanted);
    assert_eq!(wanted["ageing"], "300");
    // A file with an error changes nothing, and the error names the place.
    let wrong = rig.daemon.path("wrong.toml");
    let text = std::fs::read_to_string(&file).unwrap().replace("\"routers\"", "\"everywhere\"");
    std::fs::write(&wrong, text).unwrap();
    let (code, message) = rig.refused(&["config", "apply", &wrong]);
    assert_eq!(code, Some(1));
    assert!(message.contains("`everywhere`: `flood` or `routers` is expected"), "{message}");
    assert_eq!(params(&rig), wanted);
}
