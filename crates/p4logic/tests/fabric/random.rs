//! Random and hostile packets: what comes out is what the interpreter makes of each.

use pipeline::env::Env;
use pipeline::interp::{self, Effect, Exit, Limits, Received};
use pipeline::state::State;

use p4switch::Program;

use crate::frames::{op, plain, udp};
use crate::rig::{By, L3, OPS, PORTS, Rig};

/// Packets of each program.
const PACKETS: usize = 3000;

struct World;

impl Env for World {
    fn now(&mut self) -> u64 {
        0
    }

    fn random(&mut self) -> u64 {
        0
    }

    fn is_live(&self, _: u32) -> bool {
        true
    }

    fn ports(&self, _: u32, _: bool) -> Vec<u32> {
        vec![]
    }
}

/// A generator of numbers below a bound.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    /// A packet that a program knows, with a few other bytes, and cut or lengthened.
    fn packet(&mut self) -> Vec<u8> {
        let mut packet = match self.below(4) {
            0 => plain(self.below(256) as u8, 0),
            1 => udp(
                [10, self.below(11) as u8, 0, self.below(256) as u8],
                self.below(4) as u8,
                self.below(200),
            ),
            // The controller, and a shared register, have no place in a comparison.
            _ => op([0, 1, 2, 6, 7, 9, 10, 11, 12][self.below(9)], self.below(7) as u8, 0),
        };
        for _ in 0..self.below(3) {
            let at = self.below(packet.len());
            packet[at] = self.below(256) as u8;
        }
        if self.below(4) == 0 {
            packet.resize(14 + self.below(700), self.below(256) as u8);
        }
        if packet[12..14] == [0x88, 0xb5] && matches!(packet.get(14), Some(3 | 4 | 5 | 8)) {
            packet[14] = 0;
        }
        packet
    }
}

/// What each port should get of a packet.
fn expected(state: &State, port: u32, packet: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let received = Received::whole(packet, port);
    let outcome = interp::run(state, &mut World, &received, &Limits::default(), false);
    let output = |effect: &Effect| match effect {
        Effect::Output { to: Exit::Port(to), packet, .. } => Some((*to, packet.bytes(&received))),
        _ => None,
    };
    // Runts and unknown ports are dropped.
    let goes = |(to, bytes): &(u32, Vec<u8>)| (1..=PORTS as u32).contains(to) && bytes.len() >= 14;
    outcome.effects.iter().filter_map(output).filter(goes).collect()
}

#[test]
fn ports_get_what_the_interpreter_says() {
    for (seed, text) in [(1, L3), (2, OPS)] {
        let program = Program::text("p.p4", text, &p4::preprocess::Options::default()).unwrap();
        let state = State::new(program.checked.clone());
        for by in [By::Code, By::Itself] {
            let rig = Rig::new(by, text);
            let mut numbers = Numbers(seed);
            for round in 0..PACKETS / 50 {
                let from = 1 + round % PORTS;
                let packets: Vec<_> = (0..50).map(|_| numbers.packet()).collect();
                let mut wanted = vec![Vec::new(); PORTS];
                for (to, bytes) in packets.iter().flat_map(|packet| expected(&state, from as u32, packet)) {
                    wanted[to as usize - 1].push(bytes);
                }
                let got = rig.run(from, packets.clone());
                assert_eq!(got, wanted, "{by:?}, round {round} of {packets:02x?}");
            }
        }
    }
}
