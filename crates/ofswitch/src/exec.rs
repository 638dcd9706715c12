//! Running the program on a packet: the one place that knows how.
//!
//! The reference interpreter does it. Generated code of a [`crate::Follower`] runs the same program, with the same
//! limits and surroundings.

use pipeline::env::Env;
use pipeline::interp::{self, Limits, Outcome, Received};
use pipeline::ir::{Constant, Extern};
use pipeline::state::State;

/// Bit of a packet's flags: first fragments have ports that flows match.
pub(crate) const MATCH_FRAGMENTS: u16 = 32;
/// Bit of a packet's flags: fragments are dropped.
pub(crate) const DROP_FRAGMENTS: u16 = 33;

/// Effects of one packet at most, in the program and again at ports, where one output to all of them is many.
pub(crate) const EFFECTS: usize = 4096;

/// Bounds of what one packet may cause. Resubmissions have limits of their own ([`crate::Failure`]), which these steps
/// suffice for.
pub const LIMITS: Limits = Limits {
    steps: 150_000,
    depth: 256,
    parser_states: 64,
    window: 512,
    headers: 576,
    passes: 1,
    rounds: 0,
    effects: EFFECTS,
};

/// A packet to run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packet<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) port: u32,
    /// Number of an injected action list in the low 32 bits, and the bits above.
    pub(crate) flags: u64,
    /// Nanoseconds.
    pub(crate) now: u64,
}

impl<'a> Packet<'a> {
    /// The packet as the program receives it.
    pub(crate) fn received(&self) -> Received<'a> {
        Received { flags: self.flags, time: self.now, ..Received::whole(self.bytes, self.port) }
    }
}

/// The environment of the program: clock, random numbers, ports.
pub struct Surroundings<'a> {
    /// Nanoseconds, on the clock of [`crate::Switch::tick`].
    pub now: u64,
    /// State of the random numbers.
    pub random: &'a mut u64,
    /// Whether a port can send.
    pub is_live: &'a dyn Fn(u32) -> bool,
}

impl Env for Surroundings<'_> {
    fn now(&mut self) -> u64 {
        self.now
    }

    /// splitmix64: sampling needs even numbers, not secret ones.
    fn random(&mut self) -> u64 {
        *self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn is_live(&self, port: u32) -> bool {
        (self.is_live)(port)
    }

    /// The program sends no copies through further stages, which alone ask for ports.
    fn ports(&self, _ingress: u32, _flood: bool) -> Vec<u32> {
        vec![]
    }

    fn call(&mut self, _function: &Extern, args: &[Constant], results: &mut [Constant]) -> bool {
        // The program's only function.
        let port = args.first().and_then(|port| u32::try_from(port.value.saturating_u64()).ok());
        let live = port.is_some_and(|port| (self.is_live)(port));
        results.iter_mut().for_each(|result| *result = Constant::bool(live));
        true
    }
}

/// Runs the program of `state` on a packet.
pub(crate) fn run(state: &State, surroundings: &mut Surroundings<'_>, packet: &Packet<'_>) -> Outcome {
    interp::run(state, surroundings, &packet.received(), &LIMITS, false)
}
