//! Crashes of native modules: a signal handler names the module on standard error before the process ends.
//!
//! A native module shares the daemon's memory, so a crash cannot be contained, only attributed.
//!
//! Invariants:
//! - the handler uses thread-local memory, its stack and system calls only;
//! - a signal always goes on to the action that was installed before: `clientmem` and wasmtime
//!   have handlers of their own for faults that they repair, which occur outside of native modules or while a [host
//!   function](paused) runs.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::null;
use std::sync::atomic::{Ordering::SeqCst, compiler_fence};
use std::sync::{Once, OnceLock};

/// Signals that end the process, and their names.
const SIGNALS: [(c_int, &str); 5] = [
    (libc::SIGSEGV, "SIGSEGV"),
    (libc::SIGBUS, "SIGBUS"),
    (libc::SIGILL, "SIGILL"),
    (libc::SIGFPE, "SIGFPE"),
    (libc::SIGABRT, "SIGABRT"),
];

/// The actions that were installed before, in the order of [`SIGNALS`].
static PREVIOUS: [OnceLock<libc::sigaction>; SIGNALS.len()] = [const { OnceLock::new() }; SIGNALS.len()];

type Handler = extern "C" fn(c_int);
type InfoHandler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// A call of a module's function.
struct Call<'a> {
    module: &'a str,
    function: &'static str,
}

thread_local! {
    /// The call that the thread is in.
    static CURRENT: Cell<*const Call<'static>> = const { Cell::new(null()) };
}

/// Does `work`, which calls a function of a module.
#[inline]
pub(crate) fn calling<T>(module: &str, function: &'static str, work: impl FnOnce() -> T) -> T {
    let call = Call { module, function };
    let before = CURRENT.replace((&raw const call).cast());
    compiler_fence(SeqCst);
    let done = work();
    compiler_fence(SeqCst);
    CURRENT.set(before);
    done
}

/// Does `work` of the switch that a module has called for. Its faults are not the module's.
#[inline]
pub(crate) fn paused<T>(work: impl FnOnce() -> T) -> T {
    let before = CURRENT.replace(null());
    compiler_fence(SeqCst);
    let done = work();
    compiler_fence(SeqCst);
    CURRENT.set(before);
    done
}

/// Installs the handler. May be called any number of times; the first call counts.
pub(crate) fn install() {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        for ((signal, _), previous) in SIGNALS.iter().zip(&PREVIOUS) {
            // SAFETY: sigaction is plain data for which all zeros is a valid value (default action, no flags).
            let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
            // SAFETY: a null new action only queries; `before` is valid for writes.
            unsafe { libc::sigaction(*signal, null(), &raw mut before) };
            // Known before the handler can run, which may be right after the next call.
            let _ = previous.set(before);
            let entry: InfoHandler = on_signal;
            // SAFETY: as above.
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            action.sa_sigaction = entry as usize;
            // On the thread's signal stack, because a stack that overflowed has no room.
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
            // SAFETY: `action` is complete and `on_signal` is async-signal-safe. The signals are valid, so the calls
            // cannot fail.
            unsafe {
                libc::sigemptyset(&raw mut action.sa_mask);
                libc::sigaction(*signal, &raw const action, std::ptr::null_mut());
            }
        }
    });
}

extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid siginfo to a handler installed with SA_SIGINFO.
    let code = unsafe { (*info).si_code };
    // Of the thread's own making: a fault, or abort(). Another process's kill() says nothing of the module.
    let own = code > 0 || (signal == libc::SIGABRT && code == libc::SI_TKILL);
    if own {
        // The previous action may abort, which must not report the module twice.
        let call = CURRENT.replace(null());
        // SAFETY: `calling` sets it to a call on this thread's stack, and clears it before that goes.
        if let Some(call) = unsafe { call.as_ref() } {
            // SAFETY: faults fill si_addr; for the other signal the value is not used.
            let address = unsafe { (*info).si_addr() } as usize;
            report(call, signal, (signal != libc::SIGABRT).then_some(address));
            // The signal stack may have no room for another handler when the previous action aborts.
            reset(libc::SIGABRT);
        }
    }
    chain(signal, code, info, context);
}

/// Writes a line to standard error, in one piece.
fn report(call: &Call<'_>, signal: c_int, address: Option<usize>) {
    let name = SIGNALS.iter().find(|(number, _)| *number == signal).map_or("a signal", |(_, name)| name);
    let mut line = Line { bytes: [0; 1024], len: 0 };
    for part in ["mswitch: module ", call.module, " crashed in `", call.function, "`: ", name] {
        line.add(part.as_bytes());
    }
    match address {
        Some(address) => {
            line.add(b" at address 0x");
            line.add_hex(address);
        }
        None => line.add(b" (abort, failed assertion or panic)"),
    }
    line.add(b"; native modules share the memory of mswitch, so the process ends\n");
    let bytes = line.bytes.get(..line.len).unwrap_or_default();
    // SAFETY: a bare system call with a buffer that is valid for reads. A line that cannot be written is lost.
    unsafe { libc::write(2, bytes.as_ptr().cast(), bytes.len()) };
}

/// A line of limited length, truncated if necessary.
struct Line {
    bytes: [u8; 1024],
    len: usize,
}

impl Line {
    fn add(&mut self, text: &[u8]) {
        for (to, from) in self.bytes.iter_mut().skip(self.len).zip(text) {
            *to = *from;
            self.len += 1;
        }
    }

    fn add_hex(&mut self, number: usize) {
        let digits = (usize::BITS - number.leading_zeros()).div_ceil(4).max(1);
        for digit in (0..digits).rev() {
            let digit = (number >> (4 * digit)) as u8 & 15;
            self.add(&[if digit < 10 { b'0' + digit } else { b'a' + digit - 10 }]);
        }
    }
}

/// Restores the default action.
fn reset(signal: c_int) {
    // SAFETY: plain data, all zeros is the default action; sigaction is async-signal-safe.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, &raw const default, std::ptr::null_mut());
    }
}

/// Passes the signal to the previous action.
fn chain(signal: c_int, code: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let place = SIGNALS.iter().position(|(number, _)| *number == signal);
    let previous = place.and_then(|place| PREVIOUS.get(place)?.get());
    let (action, flags) = previous.map_or((libc::SIG_DFL, 0), |p| (p.sa_sigaction, p.sa_flags));
    match action {
        // An ignored signal from another process is ignored. A fault cannot be: the access would repeat for ever.
        libc::SIG_IGN if code <= 0 => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            reset(signal);
            // SAFETY: async-signal-safe. The signal is blocked while its handler runs, so this takes effect on
            // return.
            unsafe { libc::raise(signal) };
        }
        handler if flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: the kernel accepted this address as a handler with three arguments (SA_SIGINFO is set).
            let handler: InfoHandler = unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: the kernel accepted this address as a handler with one argument (SA_SIGINFO is not set).
            let handler: Handler = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_numbers_and_an_end() {
        let mut line = Line { bytes: [0; 1024], len: 0 };
        for number in [0, 9, 0xabc, 0x10, usize::MAX] {
            line.add_hex(number);
            line.add(b" ");
        }
        assert_eq!(&line.bytes[..line.len], b"0 9 abc 10 ffffffffffffffff ");
        line.add(&[b'x'; 2000]);
        assert_eq!((line.len, line.bytes[1023]), (1024, b'x'));
    }

    #[test]
    fn calls_nest_and_host_functions_are_not_the_modules() {
        let current = || {
            // SAFETY: set by `calling` below, on this thread.
            unsafe { CURRENT.get().as_ref() }.map(|call| (call.module.to_owned(), call.function))
        };
        calling("a", "msw_forward", || {
            assert_eq!(current(), Some(("a".into(), "msw_forward")));
            paused(|| {
                assert_eq!(current(), None);
                calling("b", "msw_start", || assert_eq!(current(), Some(("b".into(), "msw_start"))));
                assert_eq!(current(), None);
            });
            assert_eq!(current(), Some(("a".into(), "msw_forward")));
        });
        assert_eq!(current(), None);
    }
}
