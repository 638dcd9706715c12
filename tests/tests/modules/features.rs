//! What `tests/modules/features.c` uses: time, packets of a module's own, packets that it keeps, sets of ports, explanations, the log.

use std::time::Duration;

use e2e::frames::Sender;
use e2e::{Daemon, config, modules, until};

const LIMIT: Duration = Duration::from_secs(20);

/// The features as WebAssembly and as a shared object.
fn kinds() -> [String; 2] {
    let folder = Box::leak(Box::new(tempfile::tempdir().unwrap()));
    let source = "tests/modules/features.c";
    [modules::wasm(source, folder.path(), &[]).unwrap(), modules::native(source, folder.path(), &[]).unwrap()]
}

/// Three ports with clients, on a bridge with this logic.
fn rig(logic: &str, params: &str, keys: &str) -> (Daemon, Vec<Sender>) {
    let ports: String = (0..3).map(|id| config::memif(&format!("p{id}"), id, keys)).collect();
    let bridge = config::bridge("br0", logic) + &format!("params = {{ {params} }}\n");
    let daemon = Daemon::start(&(bridge + &ports)).unwrap();
    let senders = (0..3).map(|id| Sender::connect(&daemon, id).unwrap()).collect();
    (0..3).for_each(|id| _ = daemon.wait_up("br0", &format!("p{id}")).unwrap());
    (daemon, senders)
}

fn frame(from: u8, ether_type: u16, len: usize) -> Vec<u8> {
    let mut frame = [&[2, 0, 0, 0, 0, 0x99, 2, 0, 0, 0, 0, from], &ether_type.to_be_bytes()[..]].concat();
    frame.extend((frame.len()..len).map(|i| i as u8));
    frame
}

/// What a beat looks like.
fn beat(len: usize) -> Vec<u8> {
    let mut beat = [&[0xff; 6], &[2, 0, 0, 0, 0, 0xbe, 0x88, 0xb6][..]].concat();
    beat.extend((beat.len()..len).map(|i| i as u8));
    beat
}

/// Waits until the client was sent something of which `is` is true.
fn arrives(sender: &mut Sender, what: &str, is: impl Fn(&[u8]) -> bool) {
    until(what, LIMIT, || Ok(sender.received().iter().any(|packet| is(packet)).then_some(()))).unwrap();
}

fn counter(daemon: &Daemon, name: &str) -> u64 {
    let shown = daemon.json(&["logic", "show", "br0"]).unwrap();
    let counters = shown["counters"].as_array().unwrap();
    counters.iter().find(|counter| counter["name"] == name).unwrap()["value"].as_u64().unwrap()
}

#[test]
fn packets_of_its_own_come_as_time_passes() {
    for logic in kinds() {
        for len in [60, 1400] {
            let (daemon, mut senders) = rig(&logic, &format!("size = \"{len}\""), "");
            for sender in &mut senders {
                arrives(sender, "a beat", |packet| packet == beat(len));
            }
            // Some fifty in a second for each of two workers, however idle they are; a loaded machine has fewer.
            let (start, before) = (std::time::Instant::now(), counter(&daemon, "beats"));
            until("twenty beats", LIMIT, || Ok((counter(&daemon, "beats") >= before + 20).then_some(())))
                .unwrap();
            let (beats, workers) = (counter(&daemon, "beats") - before, daemon.workers().unwrap() as f64);
            let most = start.elapsed().as_secs_f64() / 0.02 * workers + workers;
            assert!((beats as f64) <= most, "{beats} of {most}");
            assert!(daemon.log().contains("ready"), "{}", daemon.log());
        }
    }
}

#[test]
fn packets_of_its_own_have_the_vlan_that_it_says() {
    for logic in kinds() {
        let (daemon, mut senders) = rig(&logic, "vlan = \"10\"", "vlan = \"access:10\"");
        daemon.run(&["port", "set", "br0", "p1", "--vlan", "trunk:1-20"]).unwrap();
        daemon.run(&["port", "set", "br0", "p2", "--vlan", "access:11"]).unwrap();
        arrives(&mut senders[0], "a beat without a tag", |packet| packet == beat(60));
        arrives(&mut senders[1], "a beat with a tag", |packet| {
            packet[12..18] == [0x81, 0, 0, 10, 0x88, 0xb6]
        });
        senders[2].received();
        arrives(&mut senders[0], "another one", |packet| packet == beat(60));
        assert_eq!(counter(&daemon, "undelivered"), 0, "a flood has as many destinations as it has");
        assert_eq!(senders[2].received(), Vec::<Vec<u8>>::new());
    }
}

#[test]
fn what_it_keeps_goes_on_later_whole() {
    for logic in kinds() {
        let (daemon, mut senders) = rig(&logic, "beat = \"300ms\"", "");
        for len in [60, 1200, 9000] {
            daemon.run(&["port", "set", "br0", "p0", "--mtu", "0"]).unwrap();
            let sent = frame(1, 0x88b5, len);
            senders[0].send(&sent).unwrap();
            // Also back to where it came from: it is a packet like others by then.
            for sender in &mut senders {
                arrives(sender, "what was kept", |packet| packet == sent);
            }
        }
        assert_eq!((counter(&daemon, "kept"), counter(&daemon, "full")), (3, 0));
        // Four fit.
        for i in 0..200 {
            senders[0].send(&frame(i, 0x88b5, 60)).unwrap();
        }
        assert_eq!(counter(&daemon, "kept") + counter(&daemon, "full"), 203);
        assert!(counter(&daemon, "full") > 0);
        assert_eq!(daemon.port("br0", "p0").unwrap().dropped(), counter(&daemon, "full"));
    }
}

/// Every other time there is no room for what is kept: it goes on the next time.
#[test]
fn what_finds_no_room_stays_kept() {
    for logic in kinds() {
        let (_daemon, mut senders) = rig(&logic, "burst = \"300\"", "");
        for i in 0..8 {
            let sent = frame(i, 0x88b5, 100);
            senders[0].send(&sent).unwrap();
            arrives(&mut senders[1], "what was kept", |packet| packet == sent);
        }
    }
}

#[test]
fn sets_of_ports_get_what_is_for_them() {
    for logic in kinds() {
        // Ports 0 and 2; never the one that it came from.
        let (daemon, mut senders) = rig(&logic, "ports = \"5\", beat = \"1h\"", "");
        for (from, to) in [(0, [0, 0, 1]), (1, [1, 0, 1]), (2, [1, 0, 0])] {
            let sent = frame(from as u8, 0x0800, 60);
            senders[from].send(&sent).unwrap();
            let got: Vec<_> = senders
                .iter_mut()
                .map(|s| s.received().iter().filter(|packet| **packet == sent).count())
                .collect();
            assert_eq!(got, to, "from {from}");
        }
        daemon.run(&["port", "set", "br0", "p2", "--vlan", "access:7"]).unwrap();
        daemon.run(&["port", "set", "br0", "p1", "--vlan", "access:8"]).unwrap();
        senders[1].send(&frame(1, 0x0800, 60)).unwrap();
        assert!(senders[2].received().is_empty());
    }
}

#[test]
fn a_trace_says_what_it_would_do_and_why_and_changes_nothing() {
    for logic in kinds() {
        let (daemon, mut senders) = rig(&logic, "ports = \"4\", beat = \"1h\"", "");
        let bytes: String = frame(7, 0x0800, 60).iter().map(|byte| format!("{byte:02x}")).collect();
        let trace = || daemon.run(&["trace", "br0", "--port", "p0", "--packet", &bytes]).unwrap();
        let said = trace();
        for part in ["02:00:00:00:00:07 sent so often before", "0 times", "p2"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert_eq!(trace(), said, "nothing is remembered of a trace");
        let rows =
            || daemon.json(&["logic", "show", "br0"]).unwrap()["tables"][0]["rows"].as_array().unwrap().len();
        assert_eq!(rows(), 0);
        senders[0].send(&frame(7, 0x0800, 60)).unwrap();
        assert_eq!(rows(), 1);
        assert!(trace().contains("1 times"), "what was learned counts: {}", trace());
        // What is kept goes nowhere in a trace.
        let kept: String = frame(7, 0x88b5, 60).iter().map(|byte| format!("{byte:02x}")).collect();
        daemon.run(&["trace", "br0", "--port", "p0", "--packet", &kept]).unwrap();
        assert_eq!(counter(&daemon, "kept"), 0);
    }
}

#[test]
fn a_module_says_why_it_does_not_start() {
    for logic in kinds() {
        let (daemon, _senders) = rig("hub", "", "");
        let output = daemon.cli(&["logic", "set", "br0", &logic, "--param", "ports=13"]).unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains("the module refuses to start: a beat of 13 bytes is too short"), "{error}");
    }
}

/// Modules as stages, one of which wakes more often than the other.
#[test]
fn stages_of_a_chain_wake_and_forward() {
    let [wasm, native] = kinds();
    let (slow, fast) = (format!("{native} beat=1h size=70"), format!("{wasm} beat=10ms size=80 ports=7"));
    let (daemon, mut senders) = rig("chain", &format!("1 = \"{slow}\", 2 = \"{fast}\""), "");
    let shown = || daemon.json(&["logic", "show", "br0"]).unwrap();
    let counter = |name: &str| {
        let shown = shown();
        let counters = shown["counters"].as_array().unwrap().clone();
        counters.iter().find(|counter| counter["name"] == name).unwrap()["value"].as_u64().unwrap()
    };
    arrives(&mut senders[1], "a beat of the second stage", |packet| packet == beat(80));
    until("beats", LIMIT, || Ok((counter("stage2_beats") >= 10).then_some(()))).unwrap();
    // At once, and then not for an hour.
    let workers = daemon.workers().unwrap() as u64;
    assert!(counter("stage1_beats") <= workers, "{}", shown());
    // The first stage sends to no port, so the second one decides.
    let sent = frame(3, 0x0800, 200);
    senders[0].send(&sent).unwrap();
    arrives(&mut senders[2], "what the second stage sends", |packet| packet == sent);
}
