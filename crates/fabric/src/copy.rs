//! Copying: short copies for headers, the one copy of a payload, and its count in test builds.
//!
//! Source and destination are client memory or private memory. They overlap if a packet goes back to the client that
//! sent it, into a buffer that overlaps it. Client memory can change while it is read; the addresses were checked to be
//! within the client's own region, the bytes are never interpreted here, and a change harms only the client that made
//! it.

#[cfg(feature = "count-copies")]
mod count {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    pub(super) static COPIED: AtomicU64 = AtomicU64::new(0);
    pub(super) static DELIVERED: AtomicU64 = AtomicU64::new(0);

    /// Payload bytes copied and payload bytes delivered to ring ports by this process so far.
    pub fn copied() -> (u64, u64) {
        (COPIED.load(Relaxed), DELIVERED.load(Relaxed))
    }
}
#[cfg(feature = "count-copies")]
pub use count::copied;

/// Counts payload bytes handed to a ring port (test builds only).
#[inline(always)]
pub(crate) fn count_delivered(_bytes: u64) {
    #[cfg(feature = "count-copies")]
    count::DELIVERED.fetch_add(_bytes, std::sync::atomic::Ordering::Relaxed);
}

/// Copies `n` bytes of payload.
///
/// # Safety
/// `src` is readable and `dst` writable for `n` bytes (faults on client memory are caught). If they overlap, the result
/// is unspecified, but no other byte is touched.
#[inline(always)]
pub(crate) unsafe fn payload(src: *const u8, dst: *mut u8, n: usize) {
    #[cfg(feature = "count-copies")]
    count::COPIED.fetch_add(n as u64, std::sync::atomic::Ordering::Relaxed);
    // SAFETY: the contract of `bytes` is this function's.
    unsafe { bytes(src, dst, n) }
}

/// Copies `n` bytes; optimized for the lengths of headers and small packets.
///
/// Up to 128 bytes, it makes two overlapping moves of a power of two and never touches a byte outside `n`: a rounded-up
/// copy would leak bytes of one client to another.
///
/// # Safety
/// As [`payload`].
#[inline(always)]
pub(crate) unsafe fn bytes(src: *const u8, dst: *mut u8, n: usize) {
    #[inline(always)]
    unsafe fn ends<T: Copy>(src: *const u8, dst: *mut u8, n: usize) {
        // SAFETY: T has at most n bytes, so the first and the last of them are within the caller's n; all of its bit
        // patterns are valid.
        unsafe {
            let at_end = n - size_of::<T>();
            let first = src.cast::<T>().read_unaligned();
            let last = src.add(at_end).cast::<T>().read_unaligned();
            dst.cast::<T>().write_unaligned(first);
            dst.add(at_end).cast::<T>().write_unaligned(last);
        }
    }
    // SAFETY: each arm moves no more than n bytes at either end, or exactly n.
    unsafe {
        match n {
            64 => dst.cast::<Bytes64>().write_unaligned(src.cast::<Bytes64>().read_unaligned()),
            65..=128 => ends::<Bytes64>(src, dst, n),
            32..=63 => ends::<Bytes32>(src, dst, n),
            16..=31 => ends::<Bytes16>(src, dst, n),
            8..=15 => ends::<u64>(src, dst, n),
            4..=7 => ends::<u32>(src, dst, n),
            0..=3 => {
                for i in 0..n {
                    dst.add(i).write(src.add(i).read());
                }
            }
            // As fast as the non-overlapping variant: in libc they are the same.
            _ => core::ptr::copy(src, dst, n),
        }
    }
}

/// So many bytes as values that the compiler keeps in registers; it would keep arrays of bytes in memory.
#[cfg(target_arch = "x86_64")]
mod registers {
    pub(super) use core::arch::x86_64::{__m128i as Bytes16, __m256i as Bytes32, __m512i as Bytes64};
}
#[cfg(not(target_arch = "x86_64"))]
mod registers {
    pub(super) type Bytes16 = u128;
    pub(super) type Bytes32 = [u128; 2];
    pub(super) type Bytes64 = [u128; 4];
}
use registers::{Bytes16, Bytes32, Bytes64};

/// Copies a few bytes that were written a moment ago, word by word. The moves do not overlap: a load that spans two
/// stores waits until both have left the store buffer.
///
/// # Safety
/// As [`payload`], for `n` bytes.
#[inline(always)]
pub(crate) unsafe fn short(src: *const u8, dst: *mut u8, n: usize) {
    let mut at = 0;
    // SAFETY: each move ends at `n` at most.
    unsafe {
        while n - at >= 8 {
            dst.add(at).cast::<u64>().write_unaligned(src.add(at).cast::<u64>().read_unaligned());
            at += 8;
        }
        if n - at >= 4 {
            dst.add(at).cast::<u32>().write_unaligned(src.add(at).cast::<u32>().read_unaligned());
            at += 4;
        }
        while at < n {
            dst.add(at).write(src.add(at).read());
            at += 1;
        }
    }
}

/// Prefetches a line that will be read soon.
#[inline(always)]
pub fn prefetch_read(_at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint; it does not fault whatever the address.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(_at.cast());
    }
}

/// Prefetches a line of a payload that will be read once and soon, without evicting lines that are used again.
#[inline(always)]
fn prefetch_passing(_at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as above.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_NTA }>(_at.cast());
    }
}

/// Prefetches a line that will be written soon, in exclusive state.
#[inline(always)]
pub fn prefetch_write(_at: *const u8) {
    // `_mm_prefetch` with a write hint becomes `prefetcht0` unless the program is compiled for a CPU with `prefetchw`;
    // CPUs without it treat the instruction as a `nop` (Intel SDM, volume 2, PREFETCHW).
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint; it does not fault whatever the address.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) _at, options(nostack, preserves_flags, readonly));
    }
}

/// Bytes of a cache line.
const LINE: usize = 64;
/// Bytes of a packet to prefetch; beyond them, the hardware prefetcher takes over.
const FETCHED: usize = 2048;

/// Prefetches all lines of a payload that will be copied soon.
#[inline(always)]
pub(crate) fn fetch_to_read(from: *const u8, n: usize) {
    for offset in (0..n.min(FETCHED)).step_by(LINE) {
        prefetch_passing(from.wrapping_add(offset));
    }
}

/// Prefetches all lines of a buffer that will be written soon.
#[inline(always)]
pub(crate) fn fetch_to_write(to: *const u8, n: usize) {
    for offset in (0..n.min(FETCHED)).step_by(LINE) {
        prefetch_write(to.wrapping_add(offset));
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_short_length_copies_exactly() {
        let src: Vec<u8> = (0..=255).cycle().take(600).collect();
        for n in 0..=512 {
            let mut dst = vec![0xAA; 600];
            // SAFETY: both vectors are longer than n and distinct.
            unsafe { super::bytes(src.as_ptr().add(3), dst.as_mut_ptr().add(5), n) };
            assert_eq!(dst[5..5 + n], src[3..3 + n], "length {n}");
            assert!(dst[..5].iter().chain(&dst[5 + n..]).all(|b| *b == 0xAA), "length {n} wrote outside");
        }
    }

    #[test]
    fn every_prefix_copies_exactly() {
        let src: Vec<u8> = (1..=64).collect();
        for n in 0..=32 {
            let mut dst = [0xAA; 64];
            // SAFETY: both are longer than n and distinct.
            unsafe { super::short(src.as_ptr().add(1), dst.as_mut_ptr().add(3), n) };
            assert_eq!(dst[3..3 + n], src[1..1 + n], "length {n}");
            assert!(dst[..3].iter().chain(&dst[3 + n..]).all(|b| *b == 0xAA), "length {n} wrote outside");
        }
    }

    #[test]
    fn overlapping_buffers_do_no_harm() {
        // Found by fuzzing: a packet sent back into a buffer that overlaps it.
        for n in [3, 7, 20, 64, 100, 129, 500] {
            let mut memory = vec![0xAA; 600];
            let at = memory.as_mut_ptr();
            // SAFETY: both ranges are within the vector.
            unsafe { super::bytes(at.add(10), at.add(11), n) };
            assert!(memory[..11].iter().chain(&memory[11 + n..]).all(|b| *b == 0xAA), "length {n}");
        }
    }
}
