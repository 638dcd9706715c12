//! Replacement of logics under load.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bench::pace::Rate;
use bench::session::{Options, Session};
use e2e::frames::Sender;
use e2e::{Daemon, config, exclusive, long, modules, until};

/// Waits until the logic has switched packets and asserts that it learned no station: a logic inherits its
/// predecessor's stations.
fn assert_stations_inherited(daemon: &Daemon) {
    let switched = || daemon.port("br0", "b").unwrap().delivered();
    let before = switched();
    until("packets", std::time::Duration::from_secs(10), || Ok((switched() > before + 1000).then_some(())))
        .unwrap();
    let shown = daemon.json(&["logic", "show", "br0"]).unwrap();
    let counters = shown["counters"].as_array().unwrap();
    if let Some(learned) = counters.iter().find(|counter| counter["name"] == "learned") {
        assert_eq!(learned["value"], 0, "stations learned again: {shown}");
    }
    if shown["name"] == "learning" {
        let stations = daemon.json(&["fdb", "show", "br0"]).unwrap();
        assert!(stations["entries"].as_array().unwrap().len() >= 2, "{stations}");
    }
}

/// Cycles through learning as a native module, as WebAssembly and built in, beside a verifying client at half the
/// capacity in both directions: no packet is lost, duplicated or reordered.
#[test]
fn replacing_a_logic_keeps_packets_and_stations() {
    let _machine = exclusive();
    let folder = tempfile::tempdir().unwrap();
    let source = "examples/modules/learning.c";
    let logics = [
        modules::native(source, folder.path(), &[]).unwrap(),
        modules::wasm(source, folder.path(), &[]).unwrap(),
        "learning".to_owned(),
    ];
    let ports = config::memif("a", 0, "") + &config::memif("b", 1, "");
    let daemon = Daemon::start(&(config::bridge("br0", "learning") + &ports)).unwrap();
    let mut options = Options::new(vec![daemon.memif("memif", 0), daemon.memif("memif", 1)]);
    options.flows = 16;
    options.rate = Rate::Half;
    options.cpu = Some(1);
    let replacements = if long() { 100 } else { 20 };
    for replaced in [true, false] {
        // A run with replacements ends after the last one.
        let time = std::time::Duration::from_millis(200) * replacements;
        options.duration = if replaced { std::time::Duration::from_secs(3600) } else { time };
        let (options, start, stop) = (options.clone(), Instant::now(), AtomicBool::new(false));
        let report = std::thread::scope(|scope| {
            let client = scope.spawn(|| Session::connect(options).unwrap().run(&stop).unwrap());
            for number in 0..if replaced { replacements as usize } else { 0 } {
                daemon.wait_up("br0", "b").unwrap();
                daemon.run(&["logic", "set", "br0", &logics[number % 3]]).unwrap();
                assert_stations_inherited(&daemon);
                assert!(!client.is_finished(), "the traffic ended early");
                // The replacements are spread over the length of the run without them.
                let next = time.mul_f64((number + 1) as f64 / f64::from(replacements));
                std::thread::sleep(next.saturating_sub(start.elapsed()));
            }
            if replaced {
                stop.store(true, Ordering::SeqCst);
            }
            client.join().unwrap()
        });
        daemon.wait_down("br0", "a", "").unwrap();
        daemon.wait_down("br0", "b", "").unwrap();
        let stats = daemon.run(&["port", "stats", "br0"]).unwrap();
        assert!(report.ok, "replaced: {replaced}: {report}\n{stats}");
        println!("replaced: {replaced}: {report}");
    }
}

/// A restarted daemon reuses the module that its predecessor compiled.
#[test]
fn compiled_modules_are_reused_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let logic = modules::wasm("examples/modules/octet.c", folder.path(), &[]).unwrap();
    let mut daemon = Daemon::start(&config::bridge("br0", &logic)).unwrap();
    let file = |daemon: &Daemon| {
        let entry = std::fs::read_dir(daemon.path("cache")).unwrap().next().unwrap().unwrap();
        (entry.path(), entry.metadata().unwrap().modified().unwrap())
    };
    let (compiled, then) = file(&daemon);
    daemon.terminate().unwrap();
    daemon.restart().unwrap();
    let (again, now) = file(&daemon);
    // Use updates the file's modification time.
    assert!(again == compiled && now > then);
    assert_eq!(daemon.json(&["logic", "show", "br0"]).unwrap()["name"], logic);
}

/// A module inherits a table of the same name and form, also across stages of chains.
#[test]
fn tables_are_inherited_across_modules_and_stages() {
    let folder = tempfile::tempdir().unwrap();
    let source = "examples/modules/learning.c";
    let native = modules::native(source, folder.path(), &[]).unwrap();
    let wasm = modules::wasm(source, folder.path(), &[]).unwrap();
    let octet = modules::wasm("examples/modules/octet.c", folder.path(), &[]).unwrap();
    let bridge = config::bridge("br0", "chain") + &format!("params = {{ 1 = {native:?} }}\n");
    let daemon = Daemon::start(&(bridge + &config::memif("a", 0, ""))).unwrap();
    let mut sender = Sender::connect(&daemon, 0).unwrap();
    daemon.wait_up("br0", "a").unwrap();
    let mut frame = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1, 8, 0];
    frame.resize(60, 0);
    sender.send(&frame).unwrap();
    let inherited = |command: &[&str], table: &str| {
        daemon.run(&[&["logic", "set", "br0"], command].concat()).unwrap();
        let shown = daemon.run(&["logic", "show", "br0", "--table", table]).unwrap();
        assert!(shown.contains("02:00:00:00:00:01"), "{command:?}: {shown}");
    };
    let [one_native, one_wasm, one_octet] = [&native, &wasm, &octet].map(|logic| format!("1={logic}"));
    let two_wasm = format!("2={wasm}");
    // Another module in the stage, another stage number, no chain, and a chain again.
    inherited(&["chain", "--param", &one_wasm], "stage1_fdb");
    inherited(&["chain", "--param", &one_octet, "--param", &two_wasm], "stage2_fdb");
    inherited(&[&native], "fdb");
    inherited(&["chain", "--param", &one_native, "--param", "2=hub"], "stage1_fdb");
    inherited(&["learning"], "stations");
}
