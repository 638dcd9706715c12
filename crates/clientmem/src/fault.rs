//! The SIGBUS handler: raised when the file behind a mapping is gone, or has no page there yet.
//!
//! A page that is merely missing is allocated, up to the client's limit (`first_touch.rs`).
//!
//! The kernel raises SIGBUS in the thread that touches a page which the client has truncated away, or punched out while
//! no page is available. The handler puts private zeros in place of a small window around that page and returns; the
//! access is repeated and completes. The window's size bounds the cost of a fault, whatever the size of the mapping:
//! replacing mapped pages takes time for each of them, under the lock of the address space.
//!
//! Invariants:
//! - Between the signal and the return only atomics and system calls are used: no lock, no allocation, `errno`
//!   preserved.
//! - Only the address range of a registered mapping is ever replaced.
//! - A signal unrelated to any registered mapping goes where it would have gone without this crate.
//!
//! Several threads may fault in one window at once. Each replaces it: later ones replace zeros, and anything written
//! over them, by zeros, which is harmless as the mapping's content is already void. No thread waits for another, so a
//! thread that loses its CPU within the handler holds up no other.

use std::ffi::{c_int, c_void};
use std::sync::{Once, OnceLock};

use crate::first_touch::Allocated;
use crate::registry;

/// Size and alignment of the window that a fault replaces; a file with larger pages loses one page. A batch that meets
/// many holes costs little more than with single pages, and one that meets a truncated end takes few faults.
const WINDOW: usize = 64 << 10;

/// The action that was installed before ours.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

type Handler = extern "C" fn(c_int);
type InfoHandler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// Installs the SIGBUS handler that turns a vanished client file into zeros. Only the first call has an effect.
/// [`Region`](crate::Region) calls it itself.
///
/// Signals that concern no region are passed to the previously installed handler, so a program with its own handler
/// installs that first.
pub fn install_fault_handler() {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        // SAFETY: sigaction is plain data for which all zeros is a valid value (default action, no flags).
        let mut previous: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: a null new action only queries; `previous` is valid for writes.
        unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut previous) };
        // Set before the handler can run, which may be right after the next call.
        let _ = PREVIOUS.set(previous);

        let entry: InfoHandler = on_sigbus;
        // SAFETY: as above.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = entry as usize;
        // SA_ONSTACK: a thread of another crate may have a small stack, and then a signal stack. Not SA_NODEFER: the
        // handler touches no client memory, and a fault of its own must end the process rather than recurse.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        // SAFETY: `action` is complete and `on_sigbus` is async-signal-safe. SIGBUS is a valid signal, so the call
        // cannot fail.
        unsafe {
            libc::sigemptyset(&raw mut action.sa_mask);
            libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut());
        }
    });
}

/// The SIGBUS handler.
extern "C" fn on_sigbus(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid siginfo to a handler installed with SA_SIGINFO.
    let code = unsafe { (*info).si_code };
    // Only these two codes come with the address of an access of this thread: a missing page, and a page lost to a
    // memory error. A SIGBUS sent by kill() carries no address at all.
    if code == libc::BUS_ADRERR || code == libc::BUS_MCEERR_AR {
        // SAFETY: both codes fill si_addr.
        let address = unsafe { (*info).si_addr() } as usize;
        if let Some((slot, mapping)) = registry::find(address) {
            // SAFETY: errno is a thread-local that the interrupted code may be about to read, so it is restored.
            let errno = unsafe { *libc::__errno_location() };
            // A page lost to a memory error is not missing.
            let handled = code == libc::BUS_ADRERR && allocate(mapping, address) || {
                slot.set_faulted();
                replace(mapping, address)
            };
            // SAFETY: as above.
            unsafe { *libc::__errno_location() = errno };
            if handled {
                return;
            }
        }
    }
    chain(signal, code, info, context);
}

/// Allocates the page at `address` if it is missing and the budget allows.
fn allocate(mapping: registry::Mapping, address: usize) -> bool {
    // SAFETY: null, or the budget of the mapping's Region, which keeps it until after the mapping is unregistered. That
    // cannot be now, because the faulting thread uses the mapping.
    let Some(budget) = (unsafe { mapping.budget.as_ref() }) else { return false };
    let (page, size) = window(mapping, address, 1);
    budget.allocate(page, size) == Allocated::Yes
}

/// Puts zeros in place of `len` bytes at `start`, part of a mapping that its region still owns.
pub(crate) fn replace_with_zeros(start: usize, len: usize) {
    zero(start, len);
}

/// Puts zeros in place of the window around `address`, or of as much of the mapping as the kernel allows.
fn replace(mapping: registry::Mapping, address: usize) -> bool {
    let (start, len) = window(mapping, address, WINDOW);
    let (page, page_size) = window(mapping, address, 1);
    // A hole in a mapping splits it in two, and a process may have only so many mappings (`vm.max_map_count`):
    // replacing the whole mapping needs no additional one. Replacing at least a page works where memory is not
    // overcommitted.
    zero(start, len) || zero(mapping.start, mapping.len) || zero(page, page_size)
}

/// The aligned `size` bytes (a power of two), or the page of the file if that is larger, around `address`: start and
/// length of the part within the mapping.
fn window(mapping: registry::Mapping, address: usize, size: usize) -> (usize, usize) {
    let size = size.max(mapping.page_size);
    let aligned = address & !(size - 1);
    let start = aligned.max(mapping.start);
    let end = aligned.saturating_add(size).min(mapping.start + mapping.len);
    (start, end - start)
}

/// Maps private zeros over `len` bytes at `start`. Changes errno.
fn zero(start: usize, len: usize) -> bool {
    // SAFETY: [start, start + len) lies within a registered mapping: memory that its Region owns, that is only accessed
    // through raw pointers, and that cannot be unmapped now because its user is in this call. mmap is a bare system
    // call and safe in a signal handler.
    let mapped = unsafe {
        libc::mmap(
            start as *mut c_void,
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_FIXED | libc::MAP_ANONYMOUS | libc::MAP_PRIVATE | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    mapped != libc::MAP_FAILED
}

/// Passes the signal on as if this handler did not exist.
fn chain(signal: c_int, code: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let previous = PREVIOUS.get();
    let (action, flags) = previous.map_or((libc::SIG_DFL, 0), |p| (p.sa_sigaction, p.sa_flags));
    match action {
        // An ignored signal that a process sent is ignored. A fault cannot be: the access would repeat forever.
        libc::SIG_IGN if code <= 0 => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: plain data, all zeros is the default action; both calls are async-signal-safe. The signal is
            // blocked while its handler runs, so raise() takes effect on return.
            unsafe {
                let default: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, &raw const default, std::ptr::null_mut());
                libc::raise(signal);
            }
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
    use super::window;
    use crate::registry::Mapping;

    #[test]
    fn windows_are_aligned_and_within_their_mapping() {
        let start = (1 << 30) + 0x3000;
        let mapping = Mapping { start, len: 0x2_8000, page_size: 0x1000, budget: std::ptr::null() };
        assert_eq!(window(mapping, start, 0x1_0000), (start, 0xd000));
        assert_eq!(window(mapping, start + 0xd000, 0x1_0000), (start + 0xd000, 0x1_0000));
        assert_eq!(window(mapping, start + 0x2_7fff, 0x1_0000), (start + 0x1_d000, 0xb000));
        assert_eq!(window(mapping, start + 0x1fff, 1), (start + 0x1000, 0x1000));
        let huge = Mapping { start: 1 << 30, len: 4 << 20, page_size: 2 << 20, budget: std::ptr::null() };
        assert_eq!(window(huge, (1 << 30) + (3 << 20), 0x1_0000), ((1 << 30) + (2 << 20), 2 << 20));
    }
}
