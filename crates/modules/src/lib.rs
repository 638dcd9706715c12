//! Logics from outside the switch: WebAssembly modules, which can do nothing but decide, and native ones, which are trusted.
//!
//! Both speak one interface ([`abi`]; for their authors: docs/modules.md and `sdk/`). A module is given whole batches in a
//! [window] of memory that it shares with its worker: the headers where the fabric keeps them, a list of packets, and room
//! for a list of outputs. What workers share are [tables], which outlive a module that is replaced.
//!
//! - [`logic`](module): what the switch sees, the same for both kinds;
//! - [`wasm`], [`native`]: how the code of either kind is loaded and called;
//! - [`description`]: what a module says about itself.
//!
//! Invariants: nothing that a module leaves in the window is believed: each number is read once, after the module returned,
//! and checked by the fabric's own verbs. A WebAssembly module reaches its own memory, the window and its tables, and runs
//! for a bounded time; when it fails, its batch is dropped and counted and the instance is made anew. A native module
//! that breaks its promises breaks the switch.

mod abi;
mod cell;
mod description;
mod keeper;
mod module;
mod native;
mod table;
mod wasm;
mod window;

use logic::Kind;

/// `wasm:FILE`.
pub const WASM: Kind = Kind {
    prefix: "wasm",
    summary: "a WebAssembly module: sandboxed, in any language",
    describe: |file| module::describe(&wasm::WASM, file),
    build: |file, params| module::build(&wasm::WASM, file, params),
};

/// `native:FILE`.
pub const NATIVE: Kind = Kind {
    prefix: "native",
    summary: "a shared object with the interface of WebAssembly modules: faster, and trusted",
    describe: |file| module::describe(&native::NATIVE, file),
    build: |file, params| module::build(&native::NATIVE, file, params),
};
