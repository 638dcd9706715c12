//! `middlebox`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use fabric::{DropReason, VlanMode};
use logic::{Logic, replace};
use packet::Offload;

use crate::frames::plain;
use crate::rig::{Client, Rig, make};

/// A packet of conversation `n`, from its client or back.
fn packet(protocol: u8, n: u16, server_port: u16, back: bool) -> Vec<u8> {
    let (client, server) = ([10, 0, (n >> 8) as u8, n as u8], [192, 0, 2, 1]);
    let (source, destination) = if back { (server, client) } else { (client, server) };
    let ports = if back { [server_port, 5000] } else { [5000, server_port] };
    let mut frame = [[2; 12].as_slice(), &[8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, protocol, 0, 0]].concat();
    frame.extend([source, destination].concat());
    frame.extend(ports.map(u16::to_be_bytes).concat());
    frame.extend([0; 22]);
    frame
}

fn web(n: u16) -> Vec<u8> {
    packet(6, n, 80, false)
}

/// Returns the client at which each conversation's packets arrive, and checks that each has one.
fn whereabouts(clients: &[&Client]) -> BTreeMap<u16, usize> {
    let mut found = BTreeMap::new();
    for (place, client) in clients.iter().enumerate() {
        for frame in client.take() {
            let back = u16::from_be_bytes([frame[34], frame[35]]) != 5000;
            let n = if back { [frame[32], frame[33]] } else { [frame[28], frame[29]] };
            assert_eq!(*found.entry(u16::from_be_bytes(n)).or_insert(place), place);
        }
    }
    found
}

const THREE: &[(&str, &str)] = &[("p1", "80/tcp"), ("p2", "80/tcp"), ("p3", "80/tcp"), ("default", "p4")];

#[test]
fn packets_go_by_port_number() {
    let rig =
        Rig::new(1, make("middlebox", &[("p1", "80/tcp"), ("p2", "53,dst:123/udp"), ("default", "p3")]));
    let [uplink, web, dns, rest] = rig.plain_ports();
    let arp = plain(1, 2, 0);
    let (http, dns_query, ntp) =
        (packet(6, 1, 80, true), packet(17, 1, 53, false), packet(17, 1, 123, false));
    let (other, ntp_answer) = (packet(17, 1, 80, false), packet(17, 1, 123, true));
    let all = [&http, &dns_query, &arp, &ntp, &other, &ntp_answer].map(Clone::clone);
    uplink.send_and_settle(all);
    assert_eq!((web.take(), dns.take()), (vec![http.clone()], vec![dns_query, ntp]));
    assert_eq!(rest.take(), [arp.clone(), other, ntp_answer]);
    // Nothing that a function sends meets a function again, and `default` is the way back if no other is given.
    web.send_and_settle(vec![http.clone()]);
    assert_eq!(rest.take(), std::slice::from_ref(&http));
    rest.send_and_settle([http.clone(), arp]);
    assert_eq!(web.take(), [http]);
    assert_eq!(rig.drops(&rest, DropReason::NoDestination), 1);
    assert_eq!([uplink.take(), dns.take()].concat(), Vec::<Vec<u8>>::new());
}

/// Neighbouring packets are decided together if they are of one conversation: batches give what each packet by itself
/// gives, whichever field tells it from the one before.
#[test]
fn neighbours_are_decided_as_each_by_itself() {
    let start = || {
        let logic =
            make("middlebox", &[("p1", "80/tcp"), ("p2", "53"), ("p3", "src:5001/tcp"), ("default", "p4")]);
        (Rig::new(1, logic.clone()), logic)
    };
    let ((together, one), (apart, other)) = (start(), start());
    let (together, apart) = (together.plain_ports::<5>(), apart.plain_ports::<5>());
    let mut state = 1u32;
    let mut random = |n: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) % n
    };
    // EtherType, header length, total length, fragmentation, protocol, addresses, ports.
    let places = [12, 14, 17, 20, 21, 23, 28, 32, 35, 37];
    for _ in 0..200 {
        let mut frame =
            packet(if random(2) == 0 { 6 } else { 17 }, 1, [80, 53, 7][random(3) as usize], false);
        let batch: Vec<_> = (0..40)
            .map(|_| {
                if random(3) == 0 {
                    frame[places[random(10) as usize]] =
                        [8, 0x45, 80, 0, 0x40, 23, 6, 17, 53][random(9) as usize];
                }
                if random(4) == 0 {
                    frame = packet(6, random(2) as u16, 80, false);
                }
                frame.clone()
            })
            .collect();
        batch.iter().for_each(|frame| apart[0].send_and_settle([frame.clone()]));
        together[0].send_and_settle(batch);
        for (place, (together, apart)) in together.iter().zip(&apart).enumerate() {
            assert_eq!(together.take(), apart.take(), "p{place}");
        }
    }
    let counts = |logic: &Arc<dyn Logic>| logic.counters().into_iter().map(|it| it.value).collect::<Vec<_>>();
    assert_eq!(counts(&one), counts(&other));
    assert!(counts(&one)[..2].iter().all(|packets| *packets > 1000), "{:?}", counts(&one));
}

#[test]
fn the_way_back_is_a_port_of_its_own() {
    let logic = make("middlebox", &[("p1", "80"), ("default", "p2"), ("return", "p0")]);
    let rig = Rig::new(1, logic.clone());
    let [lan, firewall, bypass] = rig.plain_ports();
    firewall.send_and_settle([web(1), plain(1, 2, 0)]);
    bypass.send_and_settle([plain(1, 2, 1), web(2)]);
    lan.send_and_settle([plain(2, 1, 2), web(3)]);
    assert_eq!(lan.take(), [web(1), plain(1, 2, 0), plain(1, 2, 1)]);
    assert_eq!((firewall.take(), bypass.take()), (vec![web(2), web(3)], vec![plain(2, 1, 2)]));
    let counters: Vec<_> = logic.counters().into_iter().map(|counter| counter.value).collect();
    assert_eq!(counters, [2, 2, 2, 0]);
}

#[test]
fn both_directions_meet_the_same_instance() {
    let rig = Rig::new(2, make("middlebox", THREE));
    let [uplink, one, two, three, default] = rig.plain_ports();
    for n in 0..3000 {
        uplink.send([web(n)]);
        default.send([packet(6, n, 80, true)]);
        if n % 100 == 99 {
            uplink.settle();
            default.settle();
        }
    }
    let found = whereabouts(&[&one, &two, &three]);
    assert_eq!(found.len(), 3000);
    let shares = found.values().fold([0; 3], |mut shares, place| {
        shares[*place] += 1;
        shares
    });
    assert!(shares.iter().all(|share| (900..1100).contains(share)), "{shares:?}");
}

/// Lets time pass for a bridge's conversations: hands them over with an earlier time of their last packets.
fn pass(rig: &Rig, logic: &mut Arc<dyn Logic>, seconds: u32) {
    let mut states = logic.hand_over();
    for entry in states[0].entries.chunks_mut(8) {
        let heard = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
        entry[4..].copy_from_slice(&(heard - seconds).to_le_bytes());
    }
    let new = logic::build(logic.name(), &logic.params(), &[]).unwrap();
    new.take_over(&states);
    rig.switch.set_logic(rig.bridge, new.clone()).unwrap();
    *logic = new;
}

#[test]
fn a_lost_instance_loses_only_its_own_and_a_new_one_gets_only_new_ones() {
    let mut logic = make("middlebox", &[THREE, &[("p5", "80/tcp"), ("idle", "20s")]].concat());
    let rig = Rig::new(1, logic.clone());
    let [uplink, one, two, three, _default] = rig.plain_ports();
    uplink.send_and_settle((0..1000).map(web));
    let before = whereabouts(&[&one, &two, &three]);

    pass(&rig, &mut logic, 5);
    rig.switch.remove_port(two.at).unwrap();
    uplink.send_and_settle((0..1000).map(web));
    let after = whereabouts(&[&one, &two, &three]);
    assert_eq!(after.len(), 1000);
    for (n, place) in &before {
        assert_eq!(after[n] == *place, *place != 1, "conversation {n}");
    }

    // It comes back, and another comes: conversations stay, new ones reach both.
    let two = rig.port("p2", VlanMode::Transparent);
    let four = rig.port("p5", VlanMode::Transparent);
    pass(&rig, &mut logic, 10);
    uplink.send_and_settle((0..2000).map(web));
    let mut grown = whereabouts(&[&one, &two, &three, &four]);
    let new = grown.split_off(&1000);
    assert_eq!(grown, after);
    // Some new ones share the bucket of an old one.
    for place in [1, 3] {
        assert!(new.values().filter(|there| **there == place).count() > 150, "{place}");
    }

    // After a silence all may move.
    pass(&rig, &mut logic, 20);
    uplink.send_and_settle((0..1000).map(web));
    let moved = whereabouts(&[&one, &two, &three, &four]);
    assert!(moved.values().filter(|place| **place == 3).count() > 150);
}

#[test]
fn a_conversation_that_comes_from_an_instance_returns_to_it() {
    let rig = Rig::new(1, make("middlebox", THREE));
    let [uplink, one, two, three, _default] = rig.plain_ports();
    two.send_and_settle((0..500).map(web));
    uplink.send_and_settle((0..500).map(|n| packet(6, n, 80, true)));
    // Fewer than ten of 500 share one of 65,536 buckets, and then belong to the same instance anyway.
    assert_eq!(whereabouts(&[&one, &two, &three]), (0..500).map(|n| (n, 1)).collect());
}

#[test]
fn without_an_instance_packets_are_dropped_or_go_around() {
    let logic = make("middlebox", &[("p7", "80"), ("default", "p1")]);
    let rig = Rig::new(1, logic.clone());
    let [uplink, default] = rig.plain_ports();
    uplink.send_and_settle([web(1)]);
    assert_eq!(rig.drops(&uplink, DropReason::Logic), 1);
    assert_eq!(logic.counters()[3].value, 1);
    let around = make("middlebox", &[("p7", "80"), ("default", "p1"), ("without-instance", "default")]);
    replace(&*logic, &*around, || rig.switch.set_logic(rig.bridge, around.clone())).unwrap();
    uplink.send_and_settle([web(2)]);
    assert_eq!(default.take(), [web(2)]);
}

#[test]
fn replacements_lose_no_packet_and_keep_conversations() {
    let mut logic = make("middlebox", THREE);
    let rig = Rig::new(2, logic.clone());
    let [uplink, one, two, three, _default] = rig.plain_ports();
    uplink.send_and_settle((0..400).map(web));
    let before = whereabouts(&[&one, &two, &three]);
    let stop = AtomicBool::new(false);
    let rounds = std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let mut rounds = 0;
            while rounds == 0 || !stop.load(Relaxed) {
                uplink.send_and_settle((0..400).map(web));
                assert_eq!(whereabouts(&[&one, &two, &three]), before);
                rounds += 1;
            }
            rounds
        });
        for i in 0..50 {
            // One instance more, which is down, and another list: conversations stay.
            let list = if i % 2 == 0 { "80/tcp,443/tcp" } else { "80/tcp" };
            let all = ["p1", "p2", "p3", "p9"].map(|port| (port, list));
            let new: Arc<dyn Logic> = make("middlebox", &all[..if i % 3 == 0 { 4 } else { 3 }]);
            replace(&*logic, &*new, || rig.switch.set_logic(rig.bridge, new.clone())).unwrap();
            logic = new;
        }
        stop.store(true, Relaxed);
        sender.join().unwrap()
    });
    assert!(rounds > 0);
    assert_eq!(DropReason::ALL.iter().map(|reason| rig.drops(&uplink, *reason)).sum::<u64>(), 0);
}

#[test]
fn a_second_instance_leaves_the_conversations_of_the_only_one() {
    let mut logic = make("middlebox", &[("p1", "80/tcp"), ("p3", "443/tcp"), ("idle", "20s")]);
    let rig = Rig::new(1, logic.clone());
    let [uplink, one, two, _three] = rig.plain_ports();
    uplink.send_and_settle((0..500).map(web));
    assert_eq!(whereabouts(&[&one]).len(), 500);
    let both = [("p1", "80/tcp"), ("p2", "80/tcp"), ("p3", "443/tcp"), ("idle", "20s")];
    let new = make("middlebox", &both);
    replace(&*logic, &*new, || rig.switch.set_logic(rig.bridge, new.clone())).unwrap();
    logic = new;
    uplink.send_and_settle((0..500).map(web));
    assert_eq!(whereabouts(&[&one, &two]), (0..500).map(|n| (n, 0)).collect());
    // Once they are silent, they are shared.
    pass(&rig, &mut logic, 20);
    uplink.send_and_settle((0..500).map(web));
    let shares = whereabouts(&[&one, &two]);
    assert!((150..350).contains(&shares.values().filter(|place| **place == 1).count()));
}

#[test]
fn an_unmatched_packet_goes_to_the_next_stage() {
    let rig = Rig::new(1, make("chain", &[("1", "middlebox p1=80/tcp"), ("2", "hub")]));
    let [uplink, function, other] = rig.plain_ports();
    uplink.send_and_settle([web(1), plain(1, 2, 0), web(2)]);
    assert_eq!((function.take(), other.take()), (vec![web(1), plain(1, 2, 0), web(2)], vec![plain(1, 2, 0)]));
    function.send_and_settle([web(3)]);
    assert_eq!((uplink.take(), other.take()), (vec![web(3)], vec![web(3)]));
}

#[test]
fn a_trace_explains_and_changes_nothing() {
    let logic = make("middlebox", THREE);
    let rig = Rig::new(1, logic.clone());
    let [uplink, one, _two, _three, _default] = rig.plain_ports();
    let trace = |client: &Client, packet: &[u8]| -> Vec<String> {
        let traced = rig.switch.trace(client.at, packet, Offload::NONE).unwrap();
        traced.remarks.iter().map(|remark| remark.sentence(|port| format!("p{}", port.0))).collect()
    };
    assert_eq!(
        trace(&uplink, &plain(1, 2, 0)),
        ["it is neither TCP nor UDP, or too short for port numbers", "it goes to p4"]
    );
    assert_eq!(trace(&uplink, &packet(17, 1, 80, false))[0], "no function asks for port 5000 or 80");
    let matched = trace(&uplink, &web(1));
    let bucket = "the function for 80/tcp has 3 instances; the conversation is in bucket ";
    assert!(matched[0].starts_with(bucket), "{matched:?}");
    assert_eq!(
        trace(&one, &web(1)),
        ["p1 runs a function, whose packets go to no function", "it goes to p4"]
    );
    assert!(logic.hand_over()[0].entries.is_empty());
    let instances = &logic.tables()[0];
    assert_eq!(instances.rows[0], ["p1", "80/tcp", "0"]);
}

#[test]
fn wrong_parameters_are_refused() {
    let refused = |params: &[(&str, &str)]| {
        let given: Vec<_> = params.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        match logic::build("middlebox", &given, &[]) {
            Ok(_) => panic!("{params:?} was accepted"),
            Err(error) => error.to_string(),
        }
    };
    assert_eq!(
        refused(&[("fw1", "http")]),
        "parameter `fw1` of logic `middlebox` cannot be `http`: a list of port numbers and ranges such as \
         `80/tcp,8000-8099/tcp,53,dst:123/udp`, or `fragments`, is expected"
    );
    assert_eq!(
        refused(&[("fw1", "80/tcp"), ("ids", "1-1000")]),
        "parameter `ids` of logic `middlebox` cannot be `1-1000`: a list equal to that of `fw1`, which has some of \
         `1-1000`, or one without them, is expected"
    );
    assert!(
        refused(&[("fw1", "80"), ("default", "fw1")]).contains("a port without functions (`fw1` has 80)")
    );
    assert!(refused(&[("idle", "0s")]).contains("a time from 1s to 24h"));
}
