//! Filters in tcpdump's language, compiled by libpcap.
//!
//! libpcap's compiler defines the language. Only this module calls libpcap, through five functions of its C interface
//! (pcap(3PCAP)).

use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::ptr::NonNull;

use control::proto::FilterInstruction;

/// Ethernet (`DLT_EN10MB`).
const ETHERNET: c_int = 1;
/// Longest packet that a filter accepts; no packet is as long.
const SNAPLEN: c_int = 262_144;
/// Unknown netmask (`PCAP_NETMASK_UNKNOWN`).
const NO_NETMASK: u32 = u32::MAX;

/// The reason why an expression does not compile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FilterError {
    expression: String,
    reason: String,
}

impl std::fmt::Display for FilterError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { expression, reason } = self;
        write!(out, "--filter `{expression}`: {reason}; `man 7 pcap-filter` describes the language")
    }
}

/// `pcap_t`.
#[repr(C)]
struct Pcap {
    _opaque: [u8; 0],
}

/// `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Instruction {
    code: u16,
    jt: u8,
    jf: u8,
    k: u32,
}

/// `struct bpf_program`.
#[repr(C)]
struct Code {
    len: c_uint,
    instructions: *mut Instruction,
}

#[link(name = "pcap")]
unsafe extern "C" {
    fn pcap_open_dead(linktype: c_int, snaplen: c_int) -> *mut Pcap;
    fn pcap_compile(
        pcap: *mut Pcap,
        code: *mut Code,
        expression: *const c_char,
        optimize: c_int,
        netmask: u32,
    ) -> c_int;
    fn pcap_geterr(pcap: *mut Pcap) -> *const c_char;
    fn pcap_freecode(code: *mut Code);
    fn pcap_close(pcap: *mut Pcap);
    /// libpcap's interpreter.
    #[cfg(test)]
    fn bpf_filter(code: *const Instruction, packet: *const u8, len: c_uint, captured: c_uint) -> c_uint;
}

/// A libpcap handle for compiling only.
struct Compiler(NonNull<Pcap>);

impl Drop for Compiler {
    fn drop(&mut self) {
        // SAFETY: the handle came from `pcap_open_dead` and is closed once.
        unsafe { pcap_close(self.0.as_ptr()) }
    }
}

/// Compiles an expression for Ethernet frames.
pub(super) fn compile(expression: &str) -> Result<Vec<FilterInstruction>, FilterError> {
    let instruction =
        |i: &Instruction| FilterInstruction { code: i.code.into(), jt: i.jt.into(), jf: i.jf.into(), k: i.k };
    Ok(code_of(expression)?.iter().map(instruction).collect())
}

fn code_of(expression: &str) -> Result<Vec<Instruction>, FilterError> {
    let error = |reason: &str| FilterError { expression: expression.into(), reason: reason.into() };
    let text = CString::new(expression).map_err(|_| error("it contains a zero byte"))?;
    // SAFETY: the call has no preconditions; it returns null when memory is short.
    let handle = unsafe { pcap_open_dead(ETHERNET, SNAPLEN) };
    let compiler = Compiler(NonNull::new(handle).ok_or_else(|| error("libpcap is out of memory"))?);
    let mut code = Code { len: 0, instructions: std::ptr::null_mut() };
    // SAFETY: the handle is open, `code` may be written, `text` ends in a zero byte and is only read.
    let result = unsafe { pcap_compile(compiler.0.as_ptr(), &raw mut code, text.as_ptr(), 1, NO_NETMASK) };
    if result != 0 {
        // SAFETY: the handle is open; its message is a string that lives until the next call with it.
        let message = unsafe { CStr::from_ptr(pcap_geterr(compiler.0.as_ptr())) };
        return Err(error(&message.to_string_lossy()));
    }
    let copy = match code.len {
        0 => Vec::new(),
        // SAFETY: the compiler succeeded: `instructions` points to `len` instructions until `pcap_freecode`.
        len => unsafe { std::slice::from_raw_parts(code.instructions, len as usize) }.to_vec(),
    };
    // SAFETY: `pcap_compile` filled `code`, and no reference to it is left.
    unsafe { pcap_freecode(&raw mut code) };
    Ok(copy)
}

#[cfg(test)]
mod tests;
