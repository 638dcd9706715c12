//! What surrounds a program: ports, clock, random numbers, functions.

use pipeline::env::{Env, Functions};
use pipeline::ir::{Constant, Extern};

/// The environment of a batch. Queues of ports are not measured: their depths and delays are 0.
pub(crate) struct Surroundings<'a> {
    /// Nanoseconds on the monotonic clock.
    pub(crate) now: u64,
    /// State of the random numbers.
    pub(crate) random: &'a mut u64,
    /// Whether a port can send.
    pub(crate) is_live: &'a dyn Fn(u32) -> bool,
    /// Functions that the program declares.
    pub(crate) functions: Option<&'a dyn Functions>,
}

impl Env for Surroundings<'_> {
    fn now(&mut self) -> u64 {
        self.now
    }

    /// splitmix64: programs choose ways and sample by these numbers, which need not be secret.
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

    /// P4 programs do not flood: multicast groups name their ports.
    fn ports(&self, _ingress: u32, _flood: bool) -> Vec<u32> {
        vec![]
    }

    fn call(&mut self, function: &Extern, args: &[Constant], results: &mut [Constant]) -> bool {
        self.functions.is_some_and(|functions| functions.call(function, args, results))
    }
}
