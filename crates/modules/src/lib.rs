//! Logics from outside the switch: WebAssembly modules, which are isolated, and native ones, which are trusted.
//!
//! Both speak one interface (`abi.rs`; for their authors: docs/modules.md and `sdk/`). A module is given whole
//! batches in a window of memory (`window.rs`) that it shares with its worker: the headers where the fabric keeps
//! them, a list of packets, and room for a list of outputs. Workers share tables (`table.rs`), which outlive a module
//! that is replaced.
//!
//! - `module.rs`: a module as a logic, common to both kinds; `instance.rs`: one worker's instance, and its
//!   failures;
//! - `call.rs`: a batch while a module has it; `held_packets.rs`: packets that it holds; `log.rs`: its lines in the
//!   daemon's log;
//! - `wasm.rs`, `native.rs`: how the code of either kind is loaded and called; `compiled.rs`: WebAssembly compiled,
//!   on disk too; `shared_object.rs`: files of native code;
//! - `p4_functions.rs`: native functions that P4 programs call;
//! - `watchdog.rs`: interrupts modules that run too long, restarts those that failed, and withdraws those that are
//!   stuck;
//! - `bounded.rs`: calls outside of workers, which must return in time; `crash.rs`: names a native module that
//!   crashes;
//! - `ports.rs`: the names of a bridge's ports;
//! - `description.rs`: a module's description.
//!
//! Invariants: nothing that a module leaves in the window is believed: each number is read once, after the module
//! returned, and checked by the fabric's own verbs. A WebAssembly module reaches its own memory, the window and its
//! tables, and runs for a bounded time; when it fails, its batch is dropped and counted and the instance is
//! restarted. A native module that breaks its promises breaks the switch.

// For fuzzing neither kind is compiled, and much is for them alone.
#![cfg_attr(not(any(feature = "wasm", feature = "native")), allow(dead_code))]

mod abi;
mod bounded;
mod call;
#[cfg(feature = "wasm")]
mod compiled;
#[cfg(feature = "native")]
mod crash;
mod description;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod held_packets;
mod instance;
mod log;
mod module;
#[cfg(feature = "native")]
mod native;
#[cfg(feature = "native")]
mod p4_functions;
mod ports;
#[cfg(feature = "native")]
mod shared_object;
mod table;
#[cfg(feature = "wasm")]
mod wasm;
mod watchdog;
mod window;

pub use bounded::{LateCall, late_calls};
use logic::Kind;
#[cfg(feature = "native")]
pub use p4_functions::P4Functions;
pub use watchdog::{on_fault, overran};

/// Returns the logic whose WebAssembly file a thread is compiling, or waiting for another thread to compile.
pub fn compiling(thread: std::thread::ThreadId) -> Option<String> {
    #[cfg(feature = "wasm")]
    let file = compiled::compiling(thread).map(|file| format!("{}:{}", WASM.prefix, file.display()));
    #[cfg(not(feature = "wasm"))]
    let file = Some(thread).and(None);
    file
}

/// `wasm:FILE`.
#[cfg(feature = "wasm")]
pub const WASM: Kind = Kind {
    prefix: "wasm",
    ending: Some(".wasm"),
    summary: "a WebAssembly module: sandboxed, in any language",
    describe: |file| module::describe(&wasm::WASM, file),
    build: |file, params| module::build(&wasm::WASM, file, params),
};

/// All kinds.
pub const KINDS: &[Kind] = &[
    #[cfg(feature = "wasm")]
    WASM,
    #[cfg(feature = "native")]
    NATIVE,
];

/// `native:FILE`.
#[cfg(feature = "native")]
pub const NATIVE: Kind = Kind {
    prefix: "native",
    ending: Some(".so"),
    summary: "a shared object with the interface of WebAssembly modules: faster, and trusted",
    describe: |file| module::describe(&native::NATIVE, file),
    build: |file, params| module::build(&native::NATIVE, file, params),
};
