//! Programs with registers and meters: what they change, a packet does not change twice. Runs as root.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bpf::Map;
use bpf::map::{Kind, Shape};
use bpf::syscall::test_run;
use pipeline::bits::Bits;
use pipeline::env::Env;
use pipeline::interp::{self, Limits, Received};
use pipeline::ir::{Constant, CounterId, MeterId, RegisterId};
use pipeline::state::{Rates, State};
use pipeline::{Checked, fuzzing::World, text};
use xdp::{Card, Mark, Setting, Verdict, lower, reference};

const COUNT: RegisterId = RegisterId(0);

/// A program that runs these statements, with a header `h`, registers `seen` and `other` and a counter, and sends packets
/// to port 5.
fn program(body: &str) -> Checked {
    let text = format!(
        "program p {{ header eth {{ dst: bit<48>; src: bit<48>; kind: bit<16>; }} instance h: eth;
         parser prs {{ state start {{ extract h; goto accept; }} }}
         register seen[4]: bit<32>; register other[4]: bit<8>; counter all[1]: both;
         digest d: (bit<48>, bit<16>); digest wide: ({}); reason r;
         var n: bit<32>; var m: bit<8>; var c: bit<2>; meter limit[1]: packets;
         block out {{ {body} send current port 16w5; }} stage s {{ parser prs; control out; }} }}",
        ["bit<64>"; 14].join(", ")
    );
    Checked::new(text::parse(&text).unwrap_or_else(|error| panic!("{error}"))).unwrap()
}

const ADD: &str = "read n = seen[2w1]; write seen[2w1] = (n + 32w1);";

fn refusals(program: &Checked) -> Vec<String> {
    lower(program, Setting::Live).map_or_else(
        |refusals| refusals.iter().map(|refusal| format!("refused: {refusal}")).collect(),
        |lowered| lowered.to_cpu().iter().map(ToString::to_string).collect(),
    )
}

/// A packet whose header has this type.
fn packet(kind: u8) -> [u8; 60] {
    let mut bytes = [3_u8; 60];
    (bytes[12], bytes[13]) = (0, kind);
    bytes
}

#[test]
fn packets_go_to_the_cpu_before_they_write_or_not_at_all() {
    let random = "if (h.kind == 16w9) { random m = 8w0 .. 8w3; }";
    assert_eq!(refusals(&program(ADD)), [""; 0]);
    assert_eq!(refusals(&program(&format!("{random} {ADD}"))), ["block out: random numbers"]);
    let late =
        ["refused: block out: register seen is changed, and behind, in block out, may come random numbers"];
    assert_eq!(refusals(&program(&format!("{ADD} {random}"))), late);
    // What is read only can be read again.
    assert_eq!(refusals(&program(&format!("read n = seen[2w1]; {random}"))), ["block out: random numbers"]);
    // Beside each other, and behind both.
    let beside = |behind: &str| format!("if (h.kind == 16w1) {{ {ADD} }} else {{ {random} }} {behind}");
    assert_eq!(refusals(&program(&beside(""))), ["block out: random numbers"]);
    assert_eq!(refusals(&program(&beside(random))), late);
    let switch = |one: &str, other: &str| {
        program(&format!(
            "switch h.kind {{ case 16w1 {{ {one} }} case 16w2 {{ {other} }} default {{ {other} }} }}"
        ))
    };
    assert_eq!(refusals(&switch(ADD, random)), ["block out: random numbers"]);
    assert_eq!(refusals(&switch(&(ADD.to_owned() + random), ADD)), late);
    // With a meter, only packets that are metered go to the CPU then.
    let meter = "if (h.kind == 16w1) { meter c = limit[1w0]; }";
    assert_eq!(refusals(&program(meter)), [""; 0]);
    assert_eq!(
        refusals(&program(&format!("{meter} {random}"))),
        ["block out: a meter", "block out: random numbers"]
    );
    assert_eq!(refusals(&program(&format!("{meter} {ADD}"))), [""; 0]);
    let late = ["refused: block out: register seen is changed, and behind, in block out, may come a meter"];
    assert_eq!(refusals(&program(&format!("{ADD} {meter}"))), late);
    // The lock of another section, and accesses beside one.
    let atomic = format!("atomic {{ {ADD} }}");
    assert_eq!(refusals(&program(&atomic)), [""; 0]);
    let late = [
        "refused: block out: register seen is changed, and behind, in block out, may come an atomic section",
    ];
    assert_eq!(refusals(&program(&format!("{atomic} {atomic}"))), late);
    assert_eq!(refusals(&program(&format!("{atomic} read n = seen[2w0];"))), late);
    assert_eq!(refusals(&program(&format!("{atomic} read m = other[2w0]; write other[2w0] = m;"))), [""; 0]);
    // Digests: one, of a few values.
    let digest = "digest d(h.src, h.kind);";
    assert_eq!(refusals(&program(&format!("{ADD} {digest}"))), [""; 0]);
    let late =
        "refused: block out: register seen is changed, and behind, in block out, may come a further digest";
    assert_eq!(refusals(&program(&format!("{ADD} {digest} {digest}"))), [late]);
    let wide = format!("if (h.kind == 16w9) {{ digest wide({}); }}", ["64w1"; 14].join(", "));
    assert_eq!(
        refusals(&program(&(wide + ADD))),
        ["block out: a digest whose values take more than 13 words of 64 bits"]
    );
    // Without registers, the CPU makes digests, as ever.
    assert_eq!(refusals(&program(&format!("if (h.kind == 16w9) {{ {digest} }}"))), ["block out: a digest"]);
}

#[test]
fn finished_packets_say_where_they_go() {
    let program = program(&format!(
        "{ADD} if (h.kind != 16w1) {{ digest d(h.src, h.kind); }} if (h.kind == 16w3) {{ drop r; }} h.dst = 48w7;"
    ));
    let state = State::new(program.clone());
    let mut card = Card::new(lower(&program, Setting::Test).unwrap(), &state).unwrap();
    for kind in [1, 2, 3] {
        let bytes = packet(kind);
        let found = card.run(0, &bytes).unwrap();
        let received = Received::whole(&bytes, 0);
        let outcome =
            interp::run(&state, &mut World { now: 0, seed: 1 }, &received, &Limits::default(), false);
        assert!(reference::is_right(&program, &outcome.effects, &received, &found), "{found:?} {outcome:?}");
        let told = found.finished.map(|finished| (finished.port, finished.digest(&program).unwrap().1));
        let values = vec![Constant::bit(48, 0x0303_0303_0303), Constant::bit(16, kind.into())];
        match kind {
            1 => assert_eq!(told, None),
            2 => assert_eq!(told, Some((Some(5), values))),
            _ => assert_eq!(told, Some((None, values))),
        }
    }
    assert_eq!(reference::counts(&card, &state, 4).unwrap(), None);
    let figures = card.figures().unwrap();
    assert_eq!((figures.packets, figures.sent, figures.finished, figures.to_cpu), (3, 1, 2, 0));

    // Where no interface is, a packet goes to the CPU finished, and behind its mark.
    let live = Card::new(lower(&program, Setting::Live).unwrap(), &state).unwrap();
    let none = Map::new(Shape::new(Kind::XskMap, "none", 4, 4, 1)).unwrap();
    let mark = Mark { interface: 0xfedc_ba98_7654_3210, program: 0x8000_0007 };
    let loaded = live.load(3, none.as_fd(), mark).unwrap();
    let ran = test_run(loaded.as_fd(), &packet(1), 1).unwrap();
    let (content, length) = xsk::note::split(mark.interface, &ran.packet).unwrap();
    let finished = xdp::Finished::of(content).unwrap();
    assert_eq!((finished.program, finished.port, finished.class, finished.queue), (7, Some(5), None, None));
    assert_eq!(finished.digest(&program), None);
    assert_eq!((&ran.packet[length..][..6], ran.packet.len()), (&[0, 0, 0, 0, 0, 7][..], 60 + length));
    // Nobody else gets it: 1 is XDP_DROP.
    assert_eq!(ran.result, 1);
}

#[test]
fn a_state_and_a_card_share_registers() {
    let program = program(&format!("count all[1w0]; atomic {{ {ADD} }}"));
    let state = State::new(program.clone());
    state.arrays().write(&state.arrays().lock(), COUNT, 1, &Bits::from_u64(32, 41));
    let mut card = Card::new(lower(&program, Setting::Test).unwrap(), &state).unwrap();
    card.share(&state).unwrap();
    let value = || state.arrays().read(&state.arrays().lock(), COUNT, 1).unwrap().low_u64();
    assert_eq!(card.run(0, &packet(1)).unwrap().verdict, Verdict::Sent(5));
    assert_eq!((value(), card.register(COUNT, 1).unwrap()), (42, 42));

    // While a worker is in its section, packets go to the CPU as they came, uncounted.
    let guard = state.arrays().lock();
    let found = card.run(0, &packet(1)).unwrap();
    assert_eq!((found.verdict, &found.packet[..]), (Verdict::Cpu, &packet(1)[..]));
    drop(guard);
    assert_eq!(value(), 42);
    assert_eq!(card.run(0, &packet(1)).unwrap().verdict, Verdict::Sent(5));
    assert_eq!((value(), card.counter(CounterId(0), 0).unwrap()), (43, (2, 120)));
    // The memory stays when the card is gone.
    drop(card);
    assert_eq!(value(), 43);
}

#[test]
fn atomic_sections_of_cards_and_workers_exclude_each_other() {
    const EACH: u32 = 20_000;
    let program = program(&format!("atomic {{ {ADD} }}"));
    let state = State::new(program.clone());
    let card = Card::new(lower(&program, Setting::Test).unwrap(), &state).unwrap();
    card.share(&state).unwrap();
    let sockets = Map::new(Shape::new(Kind::XskMap, "none", 4, 4, 1)).unwrap();
    let loaded = card.load(0, sockets.as_fd(), Mark::default()).unwrap();
    let over = AtomicBool::new(false);
    let by_worker = std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let (mut world, bytes, mut count) = (World { now: 0, seed: 1 }, packet(1), 0);
            while !over.load(Relaxed) || count < 1000 {
                interp::run(&state, &mut world, &Received::whole(&bytes, 0), &Limits::default(), false);
                count += 1;
            }
            count
        });
        let run = || test_run(loaded.as_fd(), &packet(1), EACH).unwrap();
        let cards = [scope.spawn(run), scope.spawn(run)];
        cards.into_iter().for_each(|card| drop(card.join().unwrap()));
        over.store(true, Relaxed);
        worker.join().unwrap()
    });
    let figures = card.figures().unwrap();
    assert_eq!(figures.packets, u64::from(2 * EACH));
    let value = state.arrays().read(&state.arrays().lock(), COUNT, 1).unwrap().low_u64();
    assert_eq!(value, figures.packets - figures.to_cpu + by_worker, "{figures:?}");
}

/// Rates of all orders of magnitude.
fn rates(random: &mut World) -> Option<Rates> {
    let mut number = || random.random() >> (random.random() % 64);
    let (rate, burst, other, peak_burst) = (number(), number(), number(), number());
    match number() % 5 {
        0 => None,
        1 | 2 => Some(Rates::Single { rate, burst, excess: other }),
        _ => Some(Rates::Two { rate, burst, peak_rate: other, peak_burst }),
    }
}

#[test]
fn meters_color_alike_in_xdp_and_in_workers() {
    // The port says the colour; the type of the header is the colour so far, and the meter.
    let text = "program p { header eth { dst: bit<48>; src: bit<48>; meter: bit<8>; color: bit<8>; } instance h: eth;
         parser prs { state start { extract h; goto accept; } }
         meter bytes[2]: bytes; meter packets[2]: packets; var c: bit<2>;
         block out {
             if (h.meter < 8w3) { meter c = bytes[h.meter] color h.color; }
             else { meter c = packets[(h.meter - 8w3)]; }
             send current port c;
         }
         stage s { parser prs; control out; } }";
    let program = Checked::new(text::parse(text).unwrap_or_else(|error| panic!("{error}"))).unwrap();
    // One state has meters of its own; the other one shares them with a card.
    let (own, shared) = (State::new(program.clone()), State::new(program.clone()));
    let mut card = Card::new(lower(&program, Setting::Test).unwrap(), &shared).unwrap();
    card.share(&shared).unwrap();
    let mut random = World { now: 1 << 40, seed: 7 };
    let mut seen = [0; 3];
    for round in 0..200 {
        for (meter, index) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let (meter, rates) = (MeterId(meter), rates(&mut random));
            for state in [&own, &shared] {
                state.arrays().configure_meter(meter, index, rates, random.now);
            }
            let found = shared.arrays().meter(meter, index).and_then(|meter| meter.rates());
            assert_eq!(found, rates);
        }
        for _ in 0..20 {
            random.now += random.random() >> (20 + random.random() % 44);
            // Sometimes a worker's clock is behind.
            let now = random.now - random.random() % 4;
            let mut bytes = vec![0; 14 + (random.random() % 1500) as usize];
            (bytes[12], bytes[13]) = ((random.random() % 6) as u8, (random.random() % 4) as u8);
            let received = Received { time: now, ..Received::whole(&bytes, 0) };
            let run = |state: &State| {
                interp::run(state, &mut World { now, seed: 1 }, &received, &Limits::default(), false).effects
            };
            let wanted = run(&own);
            if random.random().is_multiple_of(3) {
                assert_eq!(run(&shared), wanted, "round {round}");
                continue;
            }
            card.set_time(now).unwrap();
            let found = card.run(0, &bytes).unwrap();
            assert!(reference::is_right(&program, &wanted, &received, &found), "{found:?} {wanted:?}");
            if let Verdict::Sent(color) = found.verdict {
                seen[color as usize] += 1;
            }
        }
    }
    assert!(seen.iter().all(|count| *count > 100), "{seen:?}");

    // A worker that has the lock keeps packets from meters that have rates.
    shared.arrays().configure_meter(MeterId(0), 0, Some(Rates::Single { rate: 1, burst: 1, excess: 1 }), 0);
    shared.arrays().configure_meter(MeterId(0), 1, None, 0);
    let guard = shared.arrays().lock();
    let verdicts = [0, 1].map(|meter| {
        let mut bytes = [0; 60];
        bytes[12] = meter;
        card.run(0, &bytes).unwrap().verdict
    });
    assert_eq!(verdicts, [Verdict::Cpu, Verdict::Sent(0)]);
    drop(guard);
}
