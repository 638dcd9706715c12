//! Features that `tests/modules/features.c` uses: timers, generated packets, retained packets, port sets, explanations,
//! the log.

use std::time::Duration;

use e2e::frames::Sender;
use e2e::{Daemon, config, modules, until};

const LIMIT: Duration = Duration::from_secs(20);

/// Compiles features.c to WebAssembly and to a shared object.
fn kinds() -> [String; 2] {
    let folder = Box::leak(Box::new(tempfile::tempdir().unwrap()));
    let source = "tests/modules/features.c";
    [modules::wasm(source, folder.path(), &[]).unwrap(), modules::native(source, folder.path(), &[]).unwrap()]
}

/// Three ports with clients on a bridge with this logic.
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

/// Packet of a beat.
fn beat(len: usize) -> Vec<u8> {
    let mut beat = [&[0xff; 6], &[2, 0, 0, 0, 0, 0xbe, 0x88, 0xb6][..]].concat();
    beat.extend((beat.len()..len).map(|i| i as u8));
    beat
}

/// Waits until the client receives a packet for which `is` is true.
fn arrives(sender: &mut Sender, packet: &str, is: impl Fn(&[u8]) -> bool) {
    until(packet, LIMIT, || Ok(sender.received().iter().any(|packet| is(packet)).then_some(()))).unwrap();
}

fn counter(daemon: &Daemon, name: &str) -> u64 {
    let shown = daemon.json(&["logic", "show", "br0"]).unwrap();
    let counters = shown["counters"].as_array().unwrap();
    counters.iter().find(|counter| counter["name"] == name).unwrap()["value"].as_u64().unwrap()
}

#[test]
fn a_timer_sends_generated_packets() {
    for logic in kinds() {
        for len in [60, 1400] {
            let (daemon, mut senders) = rig(&logic, &format!("size = \"{len}\""), "");
            for sender in &mut senders {
                arrives(sender, "a beat", |packet| packet == beat(len));
            }
            // About fifty a second for each of two workers, however idle they are; fewer on a loaded machine.
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
fn generated_packets_have_the_chosen_vlan() {
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
        assert_eq!(counter(&daemon, "undelivered"), 0, "a flood counts no missing destinations");
        assert_eq!(senders[2].received(), Vec::<Vec<u8>>::new());
    }
}

#[test]
fn retained_packets_are_sent_later_unchanged() {
    for logic in kinds() {
        let (daemon, mut senders) = rig(&logic, "beat = \"300ms\"", "");
        for len in [60, 1200, 9000] {
            daemon.run(&["port", "set", "br0", "p0", "--mtu", "0"]).unwrap();
            let sent = frame(1, 0x88b5, len);
            senders[0].send(&sent).unwrap();
            // Also to its ingress port: a released packet is like a new one.
            for sender in &mut senders {
                arrives(sender, "the retained packet", |packet| packet == sent);
            }
        }
        assert_eq!((counter(&daemon, "retained"), counter(&daemon, "full")), (3, 0));
        // There is room for four packets.
        for i in 0..200 {
            senders[0].send(&frame(i, 0x88b5, 60)).unwrap();
        }
        assert_eq!(counter(&daemon, "retained") + counter(&daemon, "full"), 203);
        assert!(counter(&daemon, "full") > 0);
        assert_eq!(daemon.port("br0", "p0").unwrap().dropped(), counter(&daemon, "full"));
    }
}

/// Every other beat leaves no room for a retained packet, which is then sent at the next beat. A machine that is slow
/// at the moment may interrupt a beat: the module's next instance knows nothing of the packet, which is sent again.
#[test]
fn a_retained_packet_without_room_stays_retained() {
    for logic in kinds() {
        let (daemon, mut senders) = rig(&logic, "burst = \"300\"", "");
        // Failures and new instances: what is sent between the two is lost as well.
        let changes = || daemon.log().matches("the module").count();
        for i in 0..8 {
            let sent = frame(i, 0x88b5, 100);
            let mut sent_after = None;
            until("the retained packet", LIMIT, || {
                if senders[1].received().contains(&sent) {
                    return Ok(Some(()));
                }
                let changes = changes();
                if sent_after.replace(changes) != Some(changes) {
                    senders[0].send(&sent)?;
                }
                Ok(None)
            })
            .unwrap();
        }
    }
}

#[test]
fn a_port_set_receives_its_packets() {
    for logic in kinds() {
        // Ports 0 and 2, but never the ingress port.
        let (daemon, mut senders) = rig(&logic, "ports = \"5\", beat = \"1h\"", "");
        for (from, to) in [(0, [0, 0, 1]), (1, [1, 0, 1]), (2, [1, 0, 0])] {
            let sent = frame(from as u8, 0x0800, 60);
            senders[from].send(&sent).unwrap();
            let received: Vec<_> = senders
                .iter_mut()
                .map(|sender| sender.received().iter().filter(|packet| **packet == sent).count())
                .collect();
            assert_eq!(received, to, "from {from}");
        }
        daemon.run(&["port", "set", "br0", "p2", "--vlan", "access:7"]).unwrap();
        daemon.run(&["port", "set", "br0", "p1", "--vlan", "access:8"]).unwrap();
        senders[1].send(&frame(1, 0x0800, 60)).unwrap();
        assert!(senders[2].received().is_empty());
    }
}

#[test]
fn a_trace_explains_without_changing_state() {
    for logic in kinds() {
        let (daemon, mut senders) = rig(&logic, "ports = \"4\", beat = \"1h\"", "");
        let bytes: String = frame(7, 0x0800, 60).iter().map(|byte| format!("{byte:02x}")).collect();
        let trace = || daemon.run(&["trace", "br0", "--port", "p0", "--packet", &bytes]).unwrap();
        let explanation = trace();
        for part in ["station 02:00:00:00:00:07", "0 earlier packets", "p2"] {
            assert!(explanation.contains(part), "{part}: {explanation}");
        }
        assert_eq!(trace(), explanation, "a trace must not change the module's state");
        let rows =
            || daemon.json(&["logic", "show", "br0"]).unwrap()["tables"][0]["rows"].as_array().unwrap().len();
        assert_eq!(rows(), 0);
        senders[0].send(&frame(7, 0x0800, 60)).unwrap();
        assert_eq!(rows(), 1);
        assert!(trace().contains("1 earlier packets"), "the trace must use the learned state: {}", trace());
        // A trace retains no packet.
        let retained: String = frame(7, 0x88b5, 60).iter().map(|byte| format!("{byte:02x}")).collect();
        daemon.run(&["trace", "br0", "--port", "p0", "--packet", &retained]).unwrap();
        assert_eq!(counter(&daemon, "retained"), 0);
    }
}

#[test]
fn a_module_explains_its_refusal_to_start() {
    for logic in kinds() {
        let (daemon, _senders) = rig("hub", "", "");
        let output = daemon.cli(&["logic", "set", "br0", &logic, "--param", "ports=13"]).unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains("the module refuses to start: a beat of 13 bytes is too short"), "{error}");
    }
}

/// Modules as stages of a chain, one with a longer timer interval than the other.
#[test]
fn timers_and_forwarding_work_in_a_chain() {
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
    // One beat at the start, the next one in an hour.
    let workers = daemon.workers().unwrap() as u64;
    assert!(counter("stage1_beats") <= workers, "{}", shown());
    // The first stage sends to no port, so the second one decides.
    let sent = frame(3, 0x0800, 200);
    senders[0].send(&sent).unwrap();
    arrives(&mut senders[2], "a packet of the second stage", |packet| packet == sent);
}
