//! Logics from outside the switch: WebAssembly modules, which can do nothing but decide, and native ones, which are trusted.
//!
//! Both speak one interface (`abi.rs`; for their authors: docs/modules.md and `sdk/`). A module is given whole batches in a window
//! of memory (`window.rs`) that it shares with its worker: the headers where the fabric keeps them, a list of packets, and room
//! for a list of outputs. What workers share are tables (`table.rs`), which outlive a module that is replaced.
//!
//! - `module.rs`: what the switch sees, the same for both kinds; `cell.rs`: one worker's instance, and its failures;
//! - `call.rs`: a batch while a module has it; `kept.rs`: packets that it keeps; `words.rs`: what it has to say in the log;
//! - `wasm.rs`, `native.rs`: how the code of either kind is loaded and called; `compiled.rs`: WebAssembly compiled, on disk too;
//! - `keeper.rs`: who stops and restarts it;
//! - `description.rs`: what a module says about itself.
//!
//! Invariants: nothing that a module leaves in the window is believed: each number is read once, after the module returned,
//! and checked by the fabric's own verbs. A WebAssembly module reaches its own memory, the window and its tables, and runs
//! for a bounded time; when it fails, its batch is dropped and counted and the instance is made anew. A native module
//! that breaks its promises breaks the switch.

// For fuzzing neither kind is compiled, and much is for them alone.
#![cfg_attr(not(any(feature = "wasm", feature = "native")), allow(dead_code))]

mod abi;
mod call;
mod cell;
#[cfg(feature = "wasm")]
mod compiled;
mod description;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod keeper;
mod kept;
mod module;
#[cfg(feature = "native")]
mod native;
mod table;
#[cfg(feature = "wasm")]
mod wasm;
mod window;
mod words;

use logic::Kind;

/// `wasm:FILE`.
#[cfg(feature = "wasm")]
pub const WASM: Kind = Kind {
    prefix: "wasm",
    ending: ".wasm",
    summary: "a WebAssembly module: sandboxed, in any language",
    describe: |file| module::describe(&wasm::WASM, file),
    build: |file, params| module::build(&wasm::WASM, file, params),
};

/// Every kind there is.
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
    ending: ".so",
    summary: "a shared object with the interface of WebAssembly modules: faster, and trusted",
    describe: |file| module::describe(&native::NATIVE, file),
    build: |file, params| module::build(&native::NATIVE, file, params),
};
