//! Answers of commands, tables that cannot be taken over, and other messages for the authors of modules.

use e2e::frames::Sender;
use e2e::{Daemon, config, modules, until};

const SOURCE: &str = "tests/modules/answers.c";

fn bridge(logic: &str) -> Daemon {
    Daemon::start(&(config::bridge("br0", logic) + "params = { port = \"p0\" }\n")).unwrap()
}

/// A command's exit code, standard output and standard error.
fn outcome(daemon: &Daemon, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = daemon.cli(arguments).unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn call(daemon: &Daemon, words: &[&str]) -> (Option<i32>, String, String) {
    outcome(daemon, &[&["logic", "call", "br0"], words].concat())
}

#[test]
fn a_failed_command_always_has_a_reason_and_may_quote_its_arguments() {
    let folder = tempfile::tempdir().unwrap();
    for logic in [
        modules::wasm(SOURCE, folder.path(), &[]).unwrap(),
        modules::native(SOURCE, folder.path(), &[]).unwrap(),
    ] {
        let daemon = bridge(&logic);
        let refused = |words: &[&str], said: &str| {
            let (code, out, error) = call(&daemon, words);
            assert_eq!((code, out.as_str()), (Some(1), ""), "{logic}: {error}");
            assert!(error.contains(said), "{logic}: {error}");
        };
        refused(&["silent"], "`silent`: gave no reason");
        let word = "a-word-that-is-longer-than-the-text-before-it";
        refused(&["echo", word], &format!("`echo`: not a port: {word}"));
        // Too long an answer is cut, and the next command is carried out at once.
        let cut = "x".repeat(65_536) + "\n… cut at 65,536 of 100,000 bytes";
        assert_eq!(call(&daemon, &["long"]), (Some(0), format!("{cut}\n"), String::new()));
        assert_eq!(daemon.json(&["logic", "call", "br0", "long"]).unwrap()["message"], *cut);
        assert_eq!(call(&daemon, &["old", "x12"]), (Some(0), "!12\n".into(), String::new()));
        let shown = daemon.json(&["logic", "show", "br0"]).unwrap();
        let faults = shown["counters"].as_array().unwrap().iter().find(|c| c["name"] == "faults").unwrap();
        assert_eq!(faults["value"], 0, "{shown}");
    }
}

#[test]
fn a_command_that_traps_is_named_as_such_with_its_bridge() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = bridge(&modules::wasm(SOURCE, folder.path(), &[]).unwrap());
    let (code, _, error) = call(&daemon, &["trap"]);
    assert!(
        code == Some(1) && error.contains("unreachable") && !error.contains("without a batch"),
        "{error}"
    );
    let line = until("the line in the log", std::time::Duration::from_secs(10), || {
        let log = daemon.log();
        Ok(log.lines().find(|line| line.contains("the module failed")).map(str::to_owned))
    });
    let line = line.unwrap();
    assert!(line.contains("br0") && line.contains("worker=command"), "{line}");
    let again = until("the command again", std::time::Duration::from_secs(10), || {
        let (code, _, error) = call(&daemon, &["old", "x"]);
        let waits = error.contains("an earlier command failed") && error.contains("unreachable");
        assert!(code == Some(0) || waits, "{error}");
        Ok((code == Some(0)).then_some(()))
    });
    again.unwrap();
}

#[test]
fn the_capacity_shown_is_what_the_table_holds() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = bridge(&modules::native(SOURCE, folder.path(), &[]).unwrap());
    assert_eq!(call(&daemon, &["fill"]), (Some(0), "32\n".into(), String::new()));
    let shown = daemon.run(&["logic", "show", "br0"]).unwrap();
    assert!(shown.contains("table connections: 32 of 32\n"), "{shown}");
}

#[test]
fn a_table_with_another_layout_starts_empty_and_a_note_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let wide = tempfile::tempdir().unwrap();
    let narrow = modules::native(SOURCE, folder.path(), &[]).unwrap();
    let wide = modules::native(SOURCE, wide.path(), &["-DWIDE"]).unwrap();
    let daemon = bridge(&narrow);
    let set = |logic: &str| outcome(&daemon, &["logic", "set", "br0", logic, "--param", "port=p0"]).2;
    let note = "table `connections` starts empty: values are 16 bytes, were 8";
    assert!(!set(&wide).contains("starts empty"), "an empty table loses nothing");
    assert!(!set(&narrow).contains("starts empty"));
    daemon.run(&["logic", "call", "br0", "fill"]).unwrap();
    let said = set(&wide);
    assert!(said.contains(&format!("mswitch: note: {note}\n")), "{said}");
    assert!(daemon.log().contains(note), "{}", daemon.log());
    assert!(!set(&wide).contains("starts empty"), "it is said once");
    // The same in a stage of a chain.
    let stage = |logic: &str| {
        outcome(&daemon, &["logic", "set", "br0", "chain", "--param", &format!("1={logic} port=p0")]).2
    };
    stage(&narrow);
    daemon.run(&["logic", "call", "br0", "1", "fill"]).unwrap();
    let said = stage(&wide);
    assert!(said.contains(&format!("note: stage 1: {note}\n")), "{said}");
    let (code, _, error) = call(&daemon, &["1"]);
    assert!(
        code == Some(1) && error.contains("the command is missing after stage 1; its commands are: silent, "),
        "{error}"
    );
}

#[test]
fn a_table_that_the_new_logic_lacks_is_noted() {
    let [old, new] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let old = modules::native(SOURCE, old.path(), &["-DTABLE=flows4"]).unwrap();
    let new = modules::native(SOURCE, new.path(), &["-DTABLE=conns4"]).unwrap();
    let daemon = bridge(&old);
    let dropped =
        "the 32 entries of table `flows4` are dropped: the new logic takes over no table of this name";
    daemon.run(&["logic", "call", "br0", "fill"]).unwrap();
    let said = outcome(&daemon, &["logic", "set", "br0", &new, "--param", "port=p0"]).2;
    assert!(said.contains(&format!("mswitch: note: {dropped}\n")), "{said}");
    assert!(daemon.log().contains(dropped), "{}", daemon.log());
    let stage = |logic: &str| {
        outcome(&daemon, &["logic", "set", "br0", "chain", "--param", &format!("1={logic} port=p0")]).2
    };
    stage(&old);
    daemon.run(&["logic", "call", "br0", "1", "fill"]).unwrap();
    let said = stage(&new);
    assert!(said.contains(&format!("note: former stage 1: {dropped}\n")), "{said}");
    // A table of the same name that takes over nothing.
    let apart = tempfile::tempdir().unwrap();
    let apart = modules::native(SOURCE, apart.path(), &["-DTABLE=flows4", "-DAPART"]).unwrap();
    stage(&old);
    daemon.run(&["logic", "call", "br0", "1", "fill"]).unwrap();
    let said = stage(&apart);
    assert!(said.contains(&format!("note: former stage 1: {dropped}\n")), "{said}");
}

/// `learning` takes over a module's table `fdb`; if it cannot, the answer says why.
#[test]
fn learning_notes_stations_that_it_cannot_take_over() {
    let folder = tempfile::tempdir().unwrap();
    let narrow = modules::native(SOURCE, folder.path(), &[]).unwrap();
    let daemon = bridge(&narrow);
    let set = |words: &[&str]| outcome(&daemon, &[&["logic", "set", "br0"], words].concat()).2;
    let (port, fill) = ("port=p0", ["logic", "call", "br0", "fill"]);
    assert_eq!(set(&["learning"]), "", "an empty table loses nothing");
    set(&[&narrow, "--param", port]);
    daemon.run(&fill).unwrap();
    let note = "table `stations` starts empty: the former logic has no table `fdb` to take over";
    let dropped =
        "the 32 entries of table `connections` are dropped: the new logic takes over no table of this name";
    assert_eq!(set(&["learning"]), format!("mswitch: note: {note}\nmswitch: note: {dropped}\n"));
    assert!(daemon.log().contains(note), "{}", daemon.log());
    assert_eq!(set(&["learning", "--param", "ageing=60"]), "", "it is said once");
    for (flags, note) in
        [(&["-DTABLE=fdb", "-DWIDE"][..], Some("values are 8 bytes, were 16")), (&["-DTABLE=fdb"], None)]
    {
        let folder = tempfile::tempdir().unwrap();
        let logic = modules::native(SOURCE, folder.path(), flags).unwrap();
        set(&[&logic, "--param", port]);
        daemon.run(&fill).unwrap();
        let layout =
            "mswitch: note: table `stations` starts empty: the former table `fdb` has another layout: ";
        let expected = note.map_or_else(String::new, |note| format!("{layout}{note}\n"));
        assert_eq!(set(&["learning"]), expected, "{flags:?}");
    }
}

#[test]
fn an_undefined_symbol_is_named_without_the_path_of_a_copy() {
    let folder = tempfile::tempdir().unwrap();
    let logic = modules::native(SOURCE, folder.path(), &["-DUNDEFINED"]).unwrap();
    let daemon = Daemon::start(&config::bridge("br0", "hub")).unwrap();
    let (code, _, error) = outcome(&daemon, &["logic", "set", "br0", &logic, "--param", "port=p0"]);
    assert_eq!(code, Some(1));
    assert!(
        error.contains(&format!("{logic}: cannot load it: undefined symbol: no_such_function")),
        "{error}"
    );
}

#[test]
fn a_required_parameter_is_listed_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let logic = modules::native(SOURCE, folder.path(), &[]).unwrap();
    let daemon = Daemon::start(&config::bridge("br0", "hub")).unwrap();
    let listed = daemon.run(&["logic", "list", &logic]).unwrap();
    assert!(listed.contains("        the name of a port, required\n"), "{listed}");
}

#[test]
fn counters_and_tables_are_listed_with_their_types_and_sizes() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(&config::bridge("br0", "hub")).unwrap();
    let answers = modules::native(SOURCE, folder.path(), &[]).unwrap();
    let listed = daemon.run(&["logic", "list", &answers]).unwrap();
    let table = "    table connections: at least 8 entries\n        key of 8 bytes: number (u64)\n        value of 8 bytes: \
                 packets (u64)\n";
    assert!(listed.contains(table), "{listed}");
    let learning = modules::wasm("examples/modules/learning.c", folder.path(), &[]).unwrap();
    let listed = daemon.run(&["logic", "list", &learning]).unwrap();
    for part in [
        "    counter moved: stations that moved to another port\n",
        ", removed after `ageing`\n        key of 8 bytes: station (mac), vlan (u16)\n        value of 8 bytes: port (port), flags (u16), \
         heard (seconds)\n",
    ] {
        assert!(listed.contains(part), "{part}: {listed}");
    }
    let logic = &daemon.json(&["logic", "list", &learning]).unwrap()["logics"][0];
    let table = &logic["tables"][0];
    assert_eq!((&table["name"], &table["key_bytes"]), (&"fdb".into(), &8.into()), "{table}");
    assert_eq!(table["value"][2], serde_json::json!({"name": "heard", "type": "seconds"}), "{table}");
    assert_eq!((&table["expires"], &table["hand_over"]), (&"ageing".into(), &true.into()), "{table}");
    assert_eq!(logic["counters"][1]["name"], "moved", "{logic}");
}

#[test]
fn a_trace_shows_the_whole_message_of_a_fault() {
    let folder = tempfile::tempdir().unwrap();
    let logic = modules::wasm("tests/modules/hostile.c", folder.path(), &["-DTRAP"]).unwrap();
    let daemon = Daemon::start(&(config::bridge("br0", &logic) + &config::memif("p0", 0, ""))).unwrap();
    let _sender = Sender::connect(&daemon, 0).unwrap();
    daemon.wait_up("br0", "p0").unwrap();
    let packet = "02000000009902000000000108004500".to_owned() + &"00".repeat(44);
    let said = daemon.run(&["trace", "br0", "--port", "p0", "--packet", &packet]).unwrap();
    let message = "the module fails: wasm trap: wasm `unreachable` instruction executed, in `lookup`, called by `msw_forward`";
    assert!(said.contains(message), "{said}");
}
