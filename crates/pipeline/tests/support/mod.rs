//! A fake environment, and short ways to run packets.

use pipeline::Checked;
use pipeline::env::Env;
use pipeline::interp::{self, Effect, Exit, Limits, Outcome, Received};
use pipeline::ir::{Constant, Entry, Extern, TableId};
use pipeline::state::State;
use pipeline::text;

/// An environment of ports 1 to 4, of which all but port 99 are live, with a clock that stands still.
#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) now: u64,
    pub(crate) random: u64,
}

impl Env for World {
    fn now(&mut self) -> u64 {
        self.now
    }

    fn random(&mut self) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.random
    }

    fn is_live(&self, port: u32) -> bool {
        port != 99
    }

    fn ports(&self, ingress: u32, flood: bool) -> Vec<u32> {
        (1..=if flood { 3 } else { 4 }).filter(|port| *port != ingress).collect()
    }

    fn call(&mut self, function: &Extern, args: &[Constant], results: &mut [Constant]) -> bool {
        if function.name == "twice" {
            results[0].value = args[0].value.add(&args[0].value);
        }
        function.name == "twice"
    }
}

/// The state of a program given as text.
pub(crate) fn state(text: &str) -> State {
    let program = text::parse(text).unwrap_or_else(|error| panic!("{error}"));
    State::new(Checked::new(program).unwrap_or_else(|errors| panic!("{errors:#?}")))
}

/// An entry given as text.
#[allow(dead_code, reason = "not all tests have entries")]
pub(crate) fn entry(state: &State, table: u32, text: &str) -> Entry {
    let named = |name: &str| state.action_named(name);
    text::parse_entry(state.program(), TableId(table), text, &named).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn outcome(state: &State, bytes: &[u8], port: u32) -> Outcome {
    interp::run(state, &mut World::default(), &Received::whole(bytes, port), &Limits::default(), false)
}

/// The effects on a packet, as text.
pub(crate) fn run(state: &State, bytes: &[u8], port: u32) -> Vec<String> {
    outcome(state, bytes, port).effects.iter().map(|effect| effect.text(state)).collect()
}

/// The ports that a packet leaves to, and its bytes there. All effects must be outputs to ports.
#[allow(dead_code, reason = "not all tests look at bytes")]
pub(crate) fn outputs(state: &State, bytes: &[u8], port: u32) -> Vec<(u32, Vec<u8>)> {
    let received = Received::whole(bytes, port);
    let output = |effect: &Effect| match effect {
        Effect::Output { to: Exit::Port(port), packet, .. } => (*port, packet.bytes(&received)),
        other => panic!("{}", other.text(state)),
    };
    outcome(state, bytes, port).effects.iter().map(output).collect()
}
