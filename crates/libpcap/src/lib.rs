//! Expressions in tcpdump's language, compiled by libpcap.
//!
//! libpcap's compiler defines the language. Only this crate calls libpcap, through five functions of its C interface
//! (pcap(3PCAP)). Compiling takes memory and time that grow faster than the square of an expression's length, for the
//! worst ones with its cube: `port 10 or 11 or …` of 1,000 bytes takes 0.8 s, a similar one 60 MB; with 4,000 bytes they
//! take a minute, and 700 MB. So callers bound the length. Names of hosts are resolved meanwhile, which may take as long
//! as the resolver likes.

use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::ptr::NonNull;

use packet::bpf::Instruction;

mod place;
#[cfg(feature = "reference")]
pub mod reference;

/// Ethernet (`DLT_EN10MB`).
const ETHERNET: c_int = 1;
/// Longest packet that a filter accepts; no packet is as long.
const SNAPLEN: c_int = 262_144;
/// Unknown netmask (`PCAP_NETMASK_UNKNOWN`).
const NO_NETMASK: u32 = u32::MAX;

/// The reason why an expression does not compile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileError {
    /// libpcap's message.
    pub reason: String,
    /// The byte of the expression at which libpcap gives up, where it has one; the expression's length means its end.
    pub at: Option<usize>,
}

/// `pcap_t`.
#[repr(C)]
struct Pcap {
    _opaque: [u8; 0],
}

/// `struct bpf_insn`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct RawInstruction {
    code: u16,
    jt: u8,
    jf: u8,
    k: u32,
}

/// `struct bpf_program`.
#[repr(C)]
struct Code {
    len: c_uint,
    instructions: *mut RawInstruction,
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
}

/// A libpcap handle for compiling only.
struct Compiler(NonNull<Pcap>);

impl Drop for Compiler {
    fn drop(&mut self) {
        // SAFETY: the handle came from `pcap_open_dead` and is closed once.
        unsafe { pcap_close(self.0.as_ptr()) }
    }
}

/// Compiles an expression for Ethernet frames. The code is not checked; an empty expression keeps every packet.
///
/// # Errors
/// libpcap's reason, and its place.
pub fn compile(expression: &str) -> Result<Vec<Instruction>, CompileError> {
    code_of(expression, true).map_err(|reason| {
        let at = place::of(expression);
        CompileError { reason, at }
    })
}

/// Compiles, and optimizes if told to.
fn code_of(expression: &str, optimize: bool) -> Result<Vec<Instruction>, String> {
    let text = CString::new(expression).map_err(|_| "it contains a zero byte")?;
    // SAFETY: the call has no preconditions; it returns null when memory is short.
    let handle = unsafe { pcap_open_dead(ETHERNET, SNAPLEN) };
    let compiler = Compiler(NonNull::new(handle).ok_or("libpcap is out of memory")?);
    let mut code = Code { len: 0, instructions: std::ptr::null_mut() };
    // SAFETY: the handle is open, `code` may be written, `text` ends in a zero byte and is only read.
    let result = unsafe {
        pcap_compile(compiler.0.as_ptr(), &raw mut code, text.as_ptr(), optimize.into(), NO_NETMASK)
    };
    if result != 0 {
        // SAFETY: the handle is open; its message is a string that lives until the next call with it.
        let message = unsafe { CStr::from_ptr(pcap_geterr(compiler.0.as_ptr())) };
        return Err(message.to_string_lossy().into_owned());
    }
    let instructions = match code.len {
        0 => &[],
        // SAFETY: the compiler succeeded: `instructions` points to `len` instructions until `pcap_freecode`.
        len => unsafe { std::slice::from_raw_parts(code.instructions, len as usize) },
    };
    let ours = |i: &RawInstruction| Instruction { code: i.code, jt: i.jt, jf: i.jf, k: i.k };
    let copy = instructions.iter().map(ours).collect();
    // SAFETY: `pcap_compile` filled `code`, and no reference to it is left.
    unsafe { pcap_freecode(&raw mut code) };
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_worded_by_libpcap_and_point_at_the_word() {
        for (expression, reason, at) in [
            ("tcp prot 80", "syntax error", Some(4)),
            ("tcp port 80 and", "syntax error", Some(15)),
            ("tcp port 80 udp", "syntax error", Some(12)),
            ("tcp and (udp or )", "syntax error", Some(16)),
            ("tcp port 80 or host 10.0.0.300", "10.0.0.300", Some(20)),
            ("tcp port 80 or port 99999", "99999 > 65535", Some(20)),
            ("tcp[0:3] = 1", "data size must be", Some(7)),
            ("arp port 5 or tcp", "illegal qualifier", Some(9)),
            ("ip broadcast", "netmask not known", Some(3)),
            ("1 = 2", "rejects all packets", None),
            ("a\0b", "zero byte", None),
        ] {
            let error = compile(expression).unwrap_err();
            assert!(error.reason.contains(reason), "{expression}: {}", error.reason);
            assert_eq!(error.at, at, "{expression}: {}", error.reason);
        }
        assert!(!compile("").unwrap().is_empty(), "an empty filter keeps every packet");
    }
}
