//! Payload in its sender's memory, for ports that leave the copy to the kernel.

/// The smallest page that a Linux system has.
const PAGE: usize = 4096;

/// Reads a byte of each page of a piece. A system call that met memory which is gone (a truncated file) or not there
/// yet (an untouched page of the file) returned `EFAULT`; a read meets SIGBUS, with the same consequence for the sender
/// as a copy, and the system call can be repeated.
///
/// # Safety
/// The piece lies in memory that its port keeps mapped, and whose faults it catches.
#[cold]
pub(crate) unsafe fn touch(at: *const u8, len: usize) {
    let last = at.addr() + len.saturating_sub(1);
    let mut next = at;
    while len > 0 && next.addr() <= last {
        // SAFETY: the byte lies within the piece; the rest is the caller's promise.
        let _ = unsafe { next.read_volatile() };
        next = next.wrapping_add(PAGE - next.addr() % PAGE);
    }
}
