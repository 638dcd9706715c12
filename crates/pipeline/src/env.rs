//! What surrounds a program: ports, clock, random numbers, functions.

use std::fmt::Debug;

use crate::ir::{Constant, Extern, Program};

/// The environment of a program. The fabric's side implements it; tests fake it.
pub trait Env {
    /// Monotonic time, nanoseconds.
    fn now(&mut self) -> u64;

    /// 64 random bits.
    fn random(&mut self) -> u64;

    /// Whether a port can send: what selections and failover groups go by.
    fn is_live(&self, port: u32) -> bool;

    /// Ports of the bridge except `ingress`, and for floods except those excluded from flooding. Called when copies
    /// pass through a further stage.
    fn ports(&self, ingress: u32, flood: bool) -> Vec<u32>;

    /// State of a port's egress queue, for a packet of this class that is about to leave through it. Asked for each
    /// packet that enters a stage with its port known, whether the program looks at it or not.
    fn queue(&mut self, _port: u32, _class: u8) -> Queue {
        Queue::default()
    }

    /// Calls a function. `results` has a zero for each parameter that is a result, which the function may replace; the
    /// types stay. Returns false if there is no such function: the packet is dropped, counted with that reason.
    fn call(&mut self, _function: &Extern, _args: &[Constant], _results: &mut [Constant]) -> bool {
        false
    }
}

/// Functions that others provide for programs. Workers call them at the same time.
pub trait Functions: Debug + Send + Sync {
    /// Checks that the function exists with these types.
    ///
    /// # Errors
    /// What is there instead, for people.
    fn check(&self, function: &Extern) -> Result<(), String>;

    /// Calls a function, as [`Env::call`] does.
    fn call(&self, function: &Extern, args: &[Constant], results: &mut [Constant]) -> bool;
}

/// Checks that all functions exist that a program declares. `option` says how users provide some.
///
/// # Errors
/// The first that is missing, for people.
pub fn check_functions(
    program: &Program,
    functions: Option<&dyn Functions>,
    option: &str,
) -> Result<(), String> {
    program.externs.iter().try_for_each(|function| match functions {
        Some(functions) => functions.check(function),
        None => Err(format!(
            "the program calls `{function}`, which is no function of its architecture; {option} names the native \
             module that has it (docs/p4.md, \"Functions of your own\")"
        )),
    })
}

/// State of an egress queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Queue {
    /// Packets when the packet entered.
    pub enqueue_depth: u32,
    /// Packets when it left.
    pub dequeue_depth: u32,
    /// Time between, nanoseconds.
    pub delay: u64,
}
