//! Cache prefetch hints.

/// Asks for the cache line of `at` ahead of its use.
#[inline(always)]
pub fn prefetch<T>(at: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch neither faults nor changes memory; the address is that of a live reference.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(
            core::ptr::from_ref(at).cast(),
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
