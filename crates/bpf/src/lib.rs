//! Programs for the kernel's BPF machine, without a compiler: an assembler, and bpf(2).
//!
//! - [`assembler`] writes instructions (RFC 9669), with labels and with places for maps that exist only when the program
//!   is loaded;
//! - [`map`] has the maps that a program shares with this process, and [`Words`] the memory of one;
//! - [`syscall`] loads programs, runs them on a packet and attaches them to interfaces.
//!
//! All that the kernel makes is a descriptor here, and vanishes with it: nothing remains after a crash.

pub mod assembler;
pub mod map;
pub mod syscall;
mod words;

pub use assembler::{Assembler, Instruction, Label, Reg};
pub use map::Map;
pub use words::Words;
