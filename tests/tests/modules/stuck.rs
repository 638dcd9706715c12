//! Native modules that do not return or crash: messages for the operator, and unaffected traffic.

use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use e2e::frames::Sender;
use e2e::{Daemon, Running, config, modules, until};

const LIMIT: Duration = Duration::from_secs(20);

/// Packet that triggers the compiled fault.
fn trigger() -> Vec<u8> {
    let mut frame = [&[2, 0, 0, 0, 0, 0x99, 2, 0, 0, 0, 0, 1][..], &[0x88, 0xb5]].concat();
    frame.resize(60, 0);
    frame
}

fn harmless(number: u8) -> Vec<u8> {
    let mut frame = trigger();
    (frame[12], frame[13], frame[20]) = (8, 0, number);
    frame
}

fn broken(how: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let logic = modules::native("tests/modules/broken.c", folder.path(), &[&format!("-D{how}")]).unwrap();
    (folder, logic)
}

/// Modules of several bridges stay distinct, although their files are opened and closed in turn.
#[test]
fn modules_of_several_bridges_stay_distinct() {
    let folder = tempfile::tempdir().unwrap();
    let (route, learning) = ("examples/modules/route.c", "examples/modules/learning.c");
    let [route, learning] =
        [route, learning].map(|source| modules::native(source, folder.path(), &[]).unwrap());
    let params = "params = { routes = \"\" }\n";
    let bridges = config::bridge("a", &learning)
        + &config::bridge("b", &route)
        + params
        + &config::bridge("c", &learning);
    let daemon = Daemon::start(&bridges).unwrap();
    for (bridge, table) in [("a", "table fdb: 0"), ("b", "table routes4: 0"), ("c", "table fdb: 0")] {
        let shown = daemon.run(&["logic", "show", bridge]).unwrap();
        assert!(shown.contains(table), "{bridge}: {shown}");
        let (_, answer) = run_promptly(
            &daemon,
            &["logic", "call", bridge, if bridge == "b" { "find" } else { "forget" }, "x"],
        );
        let message = if bridge == "b" { "find takes an address" } else { "forget takes a MAC address" };
        assert!(answer.contains(message), "{bridge}: {answer}");
    }
}

/// Bridge `evil` with this logic and bridge `good` with a hub, each with two ports and clients, on one worker.
fn rig(logic: &str) -> (Daemon, Vec<Sender>) {
    let pair = |first: u32| {
        config::memif(&format!("p{first}"), first, "")
            + &config::memif(&format!("p{}", first + 1), first + 1, "")
    };
    let bridges = config::bridge("evil", logic) + &pair(0) + &config::bridge("good", "hub") + &pair(2);
    let daemon = Daemon::start(&bridges).unwrap();
    let senders = (0..4).map(|id| Sender::connect(&daemon, id).unwrap()).collect();
    for (bridge, id) in [("evil", 0), ("evil", 1), ("good", 2), ("good", 3)] {
        daemon.wait_up(bridge, &format!("p{id}")).unwrap();
    }
    (daemon, senders)
}

/// Asserts that bridge `good` forwards a packet.
fn assert_good_passes(senders: &mut [Sender], number: u8) {
    senders[2].send(&harmless(number)).unwrap();
    until("a packet of the other bridge", LIMIT, || {
        Ok(senders[3].received().contains(&harmless(number)).then_some(()))
    })
    .unwrap();
}

/// Runs a command that must answer promptly; returns its exit code and output.
fn run_promptly(daemon: &Daemon, arguments: &[&str]) -> (Option<i32>, String) {
    let start = Instant::now();
    let output = daemon.cli(arguments).unwrap();
    assert!(start.elapsed() < Duration::from_secs(15), "{arguments:?} took {:?}", start.elapsed());
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

/// Replaces each number of seconds.
fn timeless(text: &str) -> String {
    let mut words: Vec<_> = text.split(' ').map(str::to_owned).collect();
    for i in 1..words.len() {
        if words[i].starts_with('s') && words[i].trim_end_matches([';', ',', '\n']) == "s" {
            words[i - 1] = "N".into();
        }
    }
    words.join(" ")
}

#[test]
fn a_looping_module_is_shown_and_blocks_only_its_own_queue() {
    let (_folder, logic) = broken("SPIN");
    let (mut daemon, mut senders) = rig(&logic);
    let log = daemon.path("events");
    let mut events = daemon.command(&["events", "--json"]).unwrap();
    let _events =
        Running::start(events.stdout(std::fs::File::create(&log).unwrap()).stderr(Stdio::null())).unwrap();
    let mut mtu = 1500;
    until("the listener", LIMIT, || {
        mtu += 1;
        daemon.run(&["port", "set", "good", "p3", "--mtu", &mtu.to_string()])?;
        Ok((!std::fs::read_to_string(&log)?.is_empty()).then_some(()))
    })
    .unwrap();
    senders[0].post(&trigger()).unwrap();
    let sentence = format!(
        "{logic} of bridge evil has not returned on worker 0 for N s, so queue 0 of port p0 is not served; set another logic, then \
         restart the daemon to free the thread and the queue"
    );
    let shown = until("the module to be shown as stuck", LIMIT, || {
        let shown = run_promptly(&daemon, &["status"]).1;
        Ok(shown.contains("stuck").then_some(shown))
    })
    .unwrap();
    assert!(timeless(&shown).contains(&format!("  stuck  {sentence}\n")), "{shown}");
    let bridge = run_promptly(&daemon, &["bridge", "show", "evil"]).1;
    assert!(timeless(&bridge).contains(&format!("stuck     {sentence}\n")), "{bridge}");
    assert!(!run_promptly(&daemon, &["bridge", "show", "good"]).1.contains("stuck"));
    let worker = run_promptly(&daemon, &["worker", "show"]).1;
    assert!(timeless(&worker).contains(&format!("stuck: {sentence}\n")), "{worker}");
    until("the log and the event", LIMIT, || {
        let logged = timeless(&daemon.log())
            .contains(&format!("{sentence}; the bridge's packets are dropped as logic-fault"));
        let event_log = std::fs::read_to_string(&log)?;
        Ok((logged && event_log.contains("logic-stuck") && timeless(&event_log).contains(&sentence))
            .then_some(()))
    })
    .unwrap();
    // The worker's other queues are served. The module receives no more packets; they are counted as drops.
    assert_good_passes(&mut senders, 1);
    senders[1].send(&harmless(2)).unwrap();
    assert!(daemon.run(&["port", "stats", "evil", "p1"]).unwrap().contains("logic-fault"));
    // A trace would call the module and lose another thread.
    let (code, message) = run_promptly(&daemon, &["trace", "evil", "--packet", "in_port=p0,tcp"]);
    assert_eq!((code, timeless(&message)), (Some(1), format!("mswitch: cannot trace: {sentence}\n")));
    // Changes are accepted; limits are reported in a note.
    let (code, message) = run_promptly(&daemon, &["logic", "set", "evil", "hub"]);
    assert_eq!((code, timeless(&message)), (Some(0), format!("mswitch: note: {sentence}\n")));
    senders[1].send(&harmless(3)).unwrap();
    until("a packet of the bridge", LIMIT, || Ok(senders[0].received().contains(&harmless(3)).then_some(())))
        .unwrap();
    assert!(run_promptly(&daemon, &["status"]).1.contains("stuck"), "its thread is still busy");
    assert_eq!(run_promptly(&daemon, &["port", "del", "evil", "p0"]).0, Some(0));
    assert_good_passes(&mut senders, 4);
    let start = Instant::now();
    daemon.terminate().unwrap();
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
    // The port is deleted meanwhile.
    let at_the_end = format!(
        "{logic} of bridge evil has not returned on worker 0 for N s; set another logic, then restart the daemon to free the thread and \
         its work"
    );
    let log = timeless(&daemon.log());
    assert!(log.contains(&sentence) && log.contains(&at_the_end), "{log}");
}

/// A module that waits counts as stuck only until it returns.
#[test]
fn a_module_that_returns_late_serves_its_bridge_again() {
    let (_folder, logic) = broken("NAP");
    let (daemon, mut senders) = rig(&logic);
    let log = daemon.path("events");
    let mut events =
        daemon.command(&["events", "evil", "--kind", "logic-stuck", "--kind", "logic-resumed"]).unwrap();
    let _events =
        Running::start(events.stdout(std::fs::File::create(&log).unwrap()).stderr(Stdio::null())).unwrap();
    senders[0].post(&trigger()).unwrap();
    until("the module to be shown as stuck", LIMIT, || {
        Ok(daemon.run(&["status"])?.contains("  stuck  ").then_some(()))
    })
    .unwrap();
    assert_good_passes(&mut senders, 1);
    until("the module to return", LIMIT, || Ok((!daemon.run(&["status"])?.contains("stuck")).then_some(())))
        .unwrap();
    until("the event", LIMIT, || {
        let event_log = timeless(&std::fs::read_to_string(&log)?);
        Ok(event_log
            .contains(&format!("logic-resumed: {logic} of bridge evil has returned after N s"))
            .then_some(()))
    })
    .unwrap();
    assert!(daemon.log().contains("the module has returned"), "{}", daemon.log());
    for from in [0, 1] {
        senders[from].send(&harmless(5)).unwrap();
        let to = &mut senders[1 - from];
        until("a packet of the bridge", LIMIT, || Ok(to.received().contains(&harmless(5)).then_some(())))
            .unwrap();
    }
}

/// With several workers, the stuck one is named, and its queue cannot be moved.
#[test]
fn a_queue_in_a_stuck_batch_cannot_be_moved() {
    let (_folder, logic) = broken("SPIN");
    let ports: String = (0..2).map(|id| config::memif(&format!("p{id}"), id, "")).collect();
    let daemon = Daemon::start_with(&(config::bridge("evil", &logic) + &ports), "0,1").unwrap();
    let mut sender = Sender::connect(&daemon, 0).unwrap();
    daemon.wait_up("evil", "p0").unwrap();
    sender.post(&trigger()).unwrap();
    let stuck = until("the module to be shown as stuck", LIMIT, || {
        let status = daemon.json(&["status"])?;
        Ok(status["stuck"].get(0).cloned())
    })
    .unwrap();
    assert_eq!((&stuck["bridge"], &stuck["module"]), (&"evil".into(), &logic.as_str().into()), "{stuck}");
    let worker = stuck["worker"].as_u64().unwrap();
    let (code, message) =
        run_promptly(&daemon, &["worker", "pin", "evil", "p0", "0", &(1 - worker).to_string()]);
    let refusal = format!(
        "bridge \"evil\", port \"p0\": {logic} of bridge evil has not returned on worker {worker} for N s, so queue 0 of port \
         p0 is not served;"
    );
    assert_eq!((code, timeless(&message).contains(&refusal)), (Some(1), true), "{message}");
}

#[test]
fn a_loop_in_a_command_a_trace_or_the_start_blocks_no_other_command() {
    let (_folder, logic) = broken("SPIN");
    let (mut daemon, mut senders) = rig(&logic);
    let late = |function: &str| {
        format!(
            "`{function}` has not returned within 5 s; native code cannot be stopped, so it keeps a thread busy until the daemon is \
             restarted"
        )
    };
    assert_eq!(run_promptly(&daemon, &["logic", "call", "evil", "hello"]), (Some(0), "!\n".into()));
    let (code, message) = run_promptly(&daemon, &["logic", "call", "evil", "spin"]);
    assert_eq!(
        (code, message.contains(&format!("`spin`: {}", late("msw_command")))),
        (Some(1), true),
        "{message}"
    );
    let (code, message) = run_promptly(&daemon, &["logic", "call", "evil", "hello"]);
    let busy = "`hello`: command `spin` has been running for N s, and the module carries out one at a time; try again later, or set the \
                logic again";
    assert_eq!((code, timeless(&message).contains(busy)), (Some(1), true), "{message}");
    let packet: String = trigger().iter().map(|byte| format!("{byte:02x}")).collect();
    let (code, message) = run_promptly(&daemon, &["trace", "evil", "--port", "p0", "--packet", &packet]);
    assert_eq!(
        (code, message.contains("the module fails: `msw_forward` has not returned within 5 s")),
        (Some(0), true),
        "{message}"
    );
    // Both stay visible afterwards.
    let shown = |arguments: &[&str]| timeless(&run_promptly(&daemon, arguments).1);
    let traced = format!("has failed 2 times, most recently 0 s ago: a trace: {}", late("msw_forward"));
    for arguments in [&["status"][..], &["bridge", "show", "evil"]] {
        let said = shown(arguments);
        assert!(said.contains(&timeless(&format!("{logic} of bridge evil {traced}"))), "{said}");
    }
    let log = daemon.log();
    assert!(log.contains(&format!("command `spin`: {}", late("msw_command"))), "{log}");
    assert_good_passes(&mut senders, 1);
    let (_other, starting) = broken("SPIN_START");
    let (code, message) = run_promptly(&daemon, &["logic", "set", "good", &starting]);
    assert_eq!(
        (code, message.contains(&format!("{starting}: {}", late("msw_start")))),
        (Some(1), true),
        "{message}"
    );
    let logged = until("the start in the log", LIMIT, || {
        Ok(daemon.log().contains(&format!("the module failed: {}", late("msw_start"))).then_some(()))
    });
    logged.unwrap();
    let sentence = format!(
        "{starting} of bridge good has not returned from `msw_start` for N s; restart the daemon to free its thread\n"
    );
    let said = shown(&["status"]);
    assert!(said.contains(&format!("  stuck  {sentence}")), "{said}");
    let said = shown(&["bridge", "show", "good"]);
    assert!(said.contains(&format!("stuck     {sentence}")), "{said}");
    assert_good_passes(&mut senders, 2);
    // Setting the logic again provides a free instance for commands.
    assert_eq!(run_promptly(&daemon, &["logic", "set", "evil", &logic]).0, Some(0));
    assert_eq!(run_promptly(&daemon, &["logic", "call", "evil", "hello"]), (Some(0), "!\n".into()));
    // The number of abandoned threads is limited.
    let (code, message) = run_promptly(&daemon, &["logic", "call", "evil", "spin"]);
    assert_eq!(code, Some(1), "{message}");
    assert_eq!(run_promptly(&daemon, &["logic", "set", "evil", "hub"]).0, Some(0));
    let (code, message) = run_promptly(&daemon, &["logic", "set", "evil", &logic]);
    let full = "`msw_describe` is not called: 4 earlier calls of native modules have not returned; restart the daemon";
    assert_eq!((code, message.contains(full)), (Some(1), true), "{message}");
    let start = Instant::now();
    daemon.terminate().unwrap();
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
}

#[test]
fn a_late_restart_is_logged_once() {
    let (_folder, logic) = broken("SPIN_RESTART");
    let (daemon, mut senders) = rig(&logic);
    senders[0].post(&trigger()).unwrap();
    let late = "the module failed: `msw_start` has not returned within 5 s";
    until("the late start in the log", LIMIT, || Ok(daemon.log().contains(late).then_some(()))).unwrap();
    assert_eq!(daemon.log().matches(late).count(), 1, "{}", daemon.log());
}

#[test]
fn a_crashing_module_is_named_in_the_last_line() {
    for (how, signal, name, detail) in [
        ("NULL_POINTER", 11, "SIGSEGV", " at address 0x0"),
        ("HOST", 11, "SIGSEGV", " at address 0x8"),
        ("DEEP", 6, "SIGSEGV", " at address 0x"),
        ("ABORT", 6, "SIGABRT", " (abort, failed assertion or panic)"),
        ("DIVIDE", 8, "SIGFPE", " at address 0x"),
    ] {
        let (_folder, logic) = broken(how);
        let (mut daemon, mut senders) = rig(&logic);
        // WebAssembly's signal handlers are installed too.
        let wasm = modules::wasm("examples/modules/octet.c", daemon.folder(), &[]).unwrap();
        daemon.run(&["logic", "set", "good", &wasm]).unwrap();
        senders[0].post(&trigger()).unwrap();
        let status = daemon.wait().unwrap();
        let log = daemon.log();
        let line = format!("mswitch: module {logic} crashed in `msw_forward`: {name}{detail}");
        assert!(log.contains(&line), "{how}: {line}: {log}");
        assert!(
            log.contains("; native modules share the memory of mswitch, so the process ends\n"),
            "{how}: {log}"
        );
        assert_eq!(log.matches("crashed in").count(), 1, "{how}: {log}");
        assert_eq!(status.signal(), Some(signal), "{how}: {status}");
    }
}
