//! Faulty modules: the fault is reported, and other bridges' packets are unaffected.

use std::process::Stdio;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bench::pace::Rate;
use bench::session::{Options, Session};
use e2e::frames::Sender;
use e2e::{Daemon, Running, config, exclusive, modules, seconds, until};

const LIMIT: Duration = Duration::from_secs(20);

/// Faults of `tests/modules/hostile.c` and a part of their messages.
const FAULTS: [(&str, &str); 10] = [
    ("TRAP", "wasm trap: wasm `unreachable` instruction executed, in `lookup`, called by `msw_forward`"),
    // Before LOOP, whose call has to be interrupted.
    ("RESTART", "`msw_start`: it ran for too long"),
    ("LOOP", "too long"),
    ("LEAK", "unreachable"),
    ("PACKET", "there is no packet 60000, the batch has "),
    ("VERB", "output 0: unknown verb 99, expected 0 to 6"),
    ("SETS", "more than 131072 deliveries"),
    ("OUTPUTS", "1000000 outputs, more than 4096"),
    ("BOUNDS", "out of bounds"),
    ("HEADER", "packet 0: its header moved by -4096 bytes, allowed -64 to +"),
];

fn faults(daemon: &Daemon) -> (u64, String) {
    let shown = daemon.json(&["logic", "show", "evil"]).unwrap();
    let counters = shown["counters"].as_array().unwrap();
    let counter = counters.iter().find(|counter| counter["name"] == "faults").unwrap();
    (counter["value"].as_u64().unwrap(), counter["summary"].as_str().unwrap().to_owned())
}

fn options(daemon: &Daemon, first: u32, rate: Rate) -> Options {
    let mut options = Options::new(vec![daemon.memif("memif", first), daemon.memif("memif", first + 1)]);
    options.duration = seconds(1, 5);
    options.rate = rate;
    options
}

/// Runs a pair of bystanders on another bridge, in parallel with traffic through the module.
fn run_beside_bystanders(daemon: &Daemon) {
    std::thread::scope(|scope| {
        let evil = scope.spawn(|| {
            let mut options = options(daemon, 2, Rate::Pps(5000.0));
            options.allow_loss = true;
            options.announce = false;
            Session::connect(options).unwrap().run(&AtomicBool::new(false)).unwrap()
        });
        let report =
            Session::connect(options(daemon, 0, Rate::Pps(100_000.0))).unwrap().run(&AtomicBool::new(false));
        let report = report.unwrap();
        assert!(report.ok, "bystander: {report}");
        evil.join().unwrap();
    });
    // The next clients connect immediately.
    for (bridge, port) in [("br0", "p0"), ("br0", "p1"), ("evil", "p2"), ("evil", "p3")] {
        daemon.wait_down(bridge, port, "").unwrap();
    }
}

fn daemon() -> Daemon {
    let pair = |first: u32| {
        config::memif(&format!("p{first}"), first, "")
            + &config::memif(&format!("p{}", first + 1), first + 1, "")
    };
    Daemon::start(
        &(config::bridge("br0", "learning") + &pair(0) + &config::bridge("evil", "static") + &pair(2)),
    )
    .unwrap()
}

#[test]
fn a_faulty_module_affects_only_its_own_bridge() {
    let _machine = exclusive();
    let (folder, daemon) = (tempfile::tempdir().unwrap(), daemon());
    for (fault, expected) in FAULTS {
        let logic =
            modules::wasm("tests/modules/hostile.c", folder.path(), &[&format!("-D{fault}")]).unwrap();
        daemon.run(&["logic", "set", "evil", &logic]).unwrap();
        run_beside_bystanders(&daemon);
        let (count, help) = faults(&daemon);
        assert!(count > 0 && help.contains(expected), "{fault}: {count} faults, {help}");
        let dropped = daemon.run(&["port", "stats", "evil"]).unwrap();
        assert!(dropped.contains("logic-fault"), "{fault}: {dropped}");
    }
    // An unknown port costs only the packet: the port may have existed a moment ago.
    let logic = modules::wasm("tests/modules/hostile.c", folder.path(), &["-DPORT"]).unwrap();
    daemon.run(&["logic", "set", "evil", &logic]).unwrap();
    run_beside_bystanders(&daemon);
    assert_eq!(faults(&daemon).0, 0);
    let dropped = daemon.run(&["port", "stats", "evil"]).unwrap();
    assert!(dropped.contains("no-port"), "{dropped}");
    // The bridge works again as soon as its logic does.
    daemon.run(&["logic", "set", "evil", "static"]).unwrap();
    let report = Session::connect(options(&daemon, 2, Rate::Pps(5000.0)))
        .unwrap()
        .run(&AtomicBool::new(false))
        .unwrap();
    assert!(report.ok, "{report}");
}

/// Replaces the number of faults and the number of seconds since the last one.
fn countless(text: &str) -> String {
    let words: Vec<_> =
        text.split(' ').map(|word| if word.parse::<u64>().is_ok() { "N" } else { word }).collect();
    words.join(" ")
}

/// Faults appear in `status`, in `bridge show` and as events: the first one at once, later ones at most once a second
/// with their sum.
#[test]
fn faults_are_shown_and_reported_with_their_number_and_reason() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(&(config::bridge("evil", "hub") + &config::memif("p0", 0, ""))).unwrap();
    let mut sender = Sender::connect(&daemon, 0).unwrap();
    daemon.wait_up("evil", "p0").unwrap();
    let log = daemon.path("events");
    let mut events = daemon.command(&["events", "--json"]).unwrap();
    let _events =
        Running::start(events.stdout(std::fs::File::create(&log).unwrap()).stderr(Stdio::null())).unwrap();
    let mut mtu = 1500;
    until("the listener", LIMIT, || {
        mtu += 1;
        daemon.run(&["port", "set", "evil", "p0", "--mtu", &mtu.to_string()])?;
        Ok((!std::fs::read_to_string(&log)?.is_empty()).then_some(()))
    })
    .unwrap();
    let mut frame = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1, 8, 0];
    frame.resize(60, 0);
    for (fault, reason) in [
        ("TRAP", "wasm trap: wasm `unreachable` instruction executed, in `lookup`, called by `msw_forward`"),
        ("HEADER", "packet 0: its header moved by -4096 bytes, allowed -64 to +46"),
        ("RESTART", "`msw_start`: it ran for too long and was stopped"),
    ] {
        let logic =
            modules::wasm("tests/modules/hostile.c", folder.path(), &[&format!("-D{fault}")]).unwrap();
        daemon.run(&["logic", "set", "evil", "chain", "--param", "1=hub"]).unwrap();
        daemon.run(&["logic", "set", "evil", &logic]).unwrap();
        let status = daemon.run(&["status"]).unwrap();
        assert!(!status.contains("faults"), "a new logic has none: {status}");
        let before = std::fs::read_to_string(&log).unwrap().len();
        let sentence = format!("{logic} of bridge evil has failed N times, most recently N s ago: {reason}");
        until("the faults in the status", LIMIT, || {
            sender.send(&frame)?;
            let status = countless(&daemon.run(&["status"])?);
            Ok(status.contains(&format!("\n  faults {sentence}")).then_some(()))
        })
        .unwrap_or_else(|error| panic!("{error}: {}: {}", sentence, daemon.run(&["status"]).unwrap()));
        let shown = countless(&daemon.run(&["bridge", "show", "evil"]).unwrap());
        assert!(shown.contains(&format!("\nfaults    {sentence}")), "{shown}");
        let faults = &daemon.json(&["status"]).unwrap()["module_faults"][0];
        assert_eq!(
            (&faults["bridge"], &faults["module"]),
            (&"evil".into(), &logic.as_str().into()),
            "{faults}"
        );
        assert!(faults["count"].as_u64().unwrap() > 1, "{faults}");
        let events = until("two events", LIMIT, || {
            sender.send(&frame)?;
            let log = std::fs::read_to_string(&log)?;
            let lines = log.get(before..).unwrap_or_default().lines();
            let events: Vec<serde_json::Value> =
                lines.filter_map(|line| serde_json::from_str(line).ok()).collect();
            let faults: Vec<_> = events.into_iter().filter(|event| event["kind"] == "logic-fault").collect();
            Ok((faults.len() >= 2).then_some(faults))
        })
        .unwrap();
        let counts: Vec<_> = events.iter().map(|event| event["faults"].as_u64().unwrap()).collect();
        assert!(counts.is_sorted_by(|a, b| a < b), "{counts:?}");
        assert_eq!(events[0]["bridge"], "evil");
        let last = events.last().unwrap()["reason"].as_str().unwrap();
        assert!(last.starts_with(&format!("{logic}: {reason}")), "{last}");
    }
}

#[test]
fn invalid_modules_are_refused_with_the_reason() {
    let (folder, daemon) = (tempfile::tempdir().unwrap(), daemon());
    let path = |name: &str| folder.path().join(name).display().to_string();
    let hostile =
        |fault: &str| modules::wasm("tests/modules/hostile.c", folder.path(), &[&format!("-D{fault}")]);
    let good = modules::wasm("examples/modules/octet.c", folder.path(), &[]).unwrap();
    let bytes = std::fs::read(good.trim_start_matches("wasm:")).unwrap();
    std::fs::write(path("cut.wasm"), &bytes[..bytes.len() / 2]).unwrap();
    std::fs::write(path("text.wasm"), "not a module").unwrap();
    std::fs::write(path("text.so"), "not a module").unwrap();
    let refused = |logic: &str, params: &[&str], expected: &str| {
        let mut command = vec!["logic", "set", "evil", logic];
        params.iter().for_each(|param| command.extend(["--param", param]));
        let output = daemon.cli(&command).unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{logic}: {error}");
        assert!(error.contains(expected), "{logic}: {error}");
        assert_eq!(daemon.json(&["logic", "show", "evil"]).unwrap()["name"], "static");
    };
    for kind in ["wasm", "native"] {
        let message = format!("logic `{kind}:` names no file: give one, as {kind}:FILE");
        refused(&format!("{kind}:"), &[], &message);
    }
    let old = modules::native("tests/modules/hostile.c", folder.path(), &["-DOLD"]).unwrap();
    refused(
        &old,
        &[],
        "built for version 0 of the interface; this switch supports version 1: rebuild it with this switch's SDK",
    );
    refused(&format!("wasm:{}", path("none.wasm")), &[], "No such file");
    refused(&format!("wasm:{}", path("text.wasm")), &[], "not a WebAssembly module");
    refused(&format!("wasm:{}", path("cut.wasm")), &[], "not a valid WebAssembly module");
    refused(&format!("native:{}", path("text.so")), &[], "not a shared object");
    refused(&format!("native:{}", path("none.so")), &[], "No such file");
    // Opening a FIFO without a writer would block.
    assert!(std::process::Command::new("mkfifo").arg(path("fifo")).status().unwrap().success());
    refused(&format!("wasm:{}", path("fifo")), &[], "not a regular file");
    for (fault, expected) in [
        ("OLD", "built for version 0 of the interface; this switch supports version 1"),
        ("REFUSES", "returned 7"),
        ("SLOW_START", "too long"),
        ("NO_JSON", "invalid description: "),
        ("EMPTY", "the description is empty"),
        ("NO_COMMAND", "no exported function `msw_command`, which its commands need"),
        ("NO_TIMER", "no exported function `msw_timer`, which its timer needs"),
        ("BIG_TABLE", "expected 1 to 1048576"),
        ("IMPORTS", "unknown import"),
        ("ENDLESS", "does not end"),
    ] {
        refused(&hostile(fault).unwrap(), &[], expected);
    }
    let greedy =
        modules::wasm("examples/modules/octet.c", folder.path(), &["-Wl,--initial-memory=134217728"])
            .unwrap();
    refused(&greedy, &[], "memory");
    let learning = modules::wasm("examples/modules/learning.c", folder.path(), &[]).unwrap();
    refused(&learning, &["ageing=soon"], "`soon`");
    refused(&learning, &["aging=1"], "did you mean `ageing`");
}

/// If a bridge's module refuses to start, each answer about the bridge contains the reason.
#[test]
fn a_bridge_that_does_not_run_as_configured_is_shown_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let logic = modules::wasm("tests/modules/features.c", folder.path(), &[]).unwrap();
    let reason = "a beat of 13 bytes is too short";
    let refusing = config::bridge("br0", &logic) + "params = { ports = \"13\" }\n";
    let daemon = Daemon::start(&refusing).unwrap();
    let refused = |arguments: &[&str]| {
        let output = daemon.cli(arguments).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let status = daemon.run(&["status"]).unwrap();
    assert!(status.contains("  failed bridge \"br0\": ") && status.contains(reason), "{status}");
    for arguments in [&["bridge", "show", "br0"][..], &["port", "list", "br0"], &["logic", "show", "br0"]] {
        let message = refused(arguments);
        let expected = "bridge \"br0\" is configured, but could not be created: ";
        assert!(message.contains(expected) && message.contains(reason), "{message}");
    }
    let file = daemon.path("wanted.toml");
    std::fs::write(&file, &refusing).unwrap();
    let output = daemon.cli(&["config", "diff", &file]).unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{message}");
    assert!(
        message.contains("bridge \"br0\" does not run as configured: ") && message.contains(reason),
        "{message}"
    );

    // Setting another logic creates the bridge. Applying the file to the running bridge fails and keeps its logic.
    daemon.run(&["logic", "set", "br0", "hub"]).unwrap();
    assert!(!daemon.run(&["status"]).unwrap().contains("failed"));
    let output = daemon.cli(&["config", "apply", &file]).unwrap();
    assert_eq!(output.status.code(), Some(1));
    let shown = daemon.run(&["bridge", "show", "br0"]).unwrap();
    assert!(shown.contains("failed    bridge \"br0\": ") && shown.contains(reason), "{shown}");
    assert!(daemon.run(&["status"]).unwrap().contains(reason));
    daemon.run(&["bridge", "del", "br0"]).unwrap();
    assert!(!daemon.run(&["status"]).unwrap().contains("failed"));
}

#[test]
fn a_panic_in_rust_is_shown_with_its_text_and_place() {
    let folder = tempfile::tempdir().unwrap();
    let logic = modules::wasm_from_rust("tests/modules/panics.rs", folder.path()).unwrap();
    let daemon = Daemon::start(&(config::bridge("br0", &logic) + &config::memif("p0", 0, ""))).unwrap();
    let _sender = Sender::connect(&daemon, 0).unwrap();
    daemon.wait_up("br0", "p0").unwrap();
    let refused = |arguments: &[&str]| {
        let output = daemon.cli(arguments).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let bounds =
        |index: u32| format!("panic: index out of bounds: the len is 3 but the index is {index}, at ");
    let place = "tests/modules/panics.rs:9:5, in `panics::look_up`, called by `";
    let said = refused(&["logic", "call", "br0", "find", "0123456789"]);
    assert!(said.contains(&bounds(10)) && said.contains(place), "{said}");
    assert!(!said.contains("core::") && !said.contains("mswitch_module::"), "{said}");
    let packet = "02000000009902000000000108004500".to_owned() + &"00".repeat(44);
    let said = daemon.run(&["trace", "br0", "--port", "p0", "--packet", &packet]).unwrap();
    assert!(said.contains(&format!("the module fails: {}", bounds(10))), "{said}");
    let said = refused(&["logic", "set", "br0", &logic, "--param", "early=on"]);
    let start = "panic: table 3, the description has 0, at ";
    assert!(said.contains(start) && said.contains("tests/modules/panics.rs:19:15, in "), "{said}");
    for shown in [["logic", "show", "br0"], ["bridge", "show", "br0"]] {
        let said = daemon.run(&shown).unwrap();
        assert!(said.contains(&bounds(10)), "{said}");
    }
    assert!(daemon.run(&["status"]).unwrap().contains(&bounds(10)));
}
