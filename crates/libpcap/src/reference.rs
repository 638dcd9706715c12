//! libpcap's interpreter, the reference in comparisons.

use std::ffi::c_uint;

use packet::bpf::{Instruction, Program};

use crate::RawInstruction;

#[link(name = "pcap")]
unsafe extern "C" {
    fn bpf_filter(code: *const RawInstruction, packet: *const u8, len: c_uint, captured: c_uint) -> c_uint;
}

/// Code that was checked, for libpcap's interpreter.
#[derive(Debug, Clone)]
pub struct Reference(Box<[RawInstruction]>);

impl Reference {
    /// Checks the code; `None` if [`Program::new`] refuses it.
    pub fn new(code: &[Instruction]) -> Option<Self> {
        Program::new(code).ok()?;
        let raw = |i: &Instruction| RawInstruction { code: i.code, jt: i.jt, jf: i.jf, k: i.k };
        Some(Self(code.iter().map(raw).collect()))
    }

    /// Returns libpcap's verdict on a packet of `len` bytes, of which `bytes` are at hand. Scratch memory that the code
    /// reads before writing it is undefined.
    #[inline]
    pub fn run(&self, bytes: &[u8], len: u32) -> u32 {
        let captured = c_uint::try_from(bytes.len()).unwrap_or(c_uint::MAX);
        // SAFETY: the code was checked: it ends, and its jumps and scratch words are in bounds. Loads are checked
        // against the number of bytes that is passed.
        unsafe { bpf_filter(self.0.as_ptr(), bytes.as_ptr(), len, captured) }
    }
}
