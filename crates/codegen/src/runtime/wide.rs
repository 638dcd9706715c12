//! Functions of code that only compute: arithmetic above 64 bits, copies.
//!
//! SAFETY of all: code passes addresses of its stack slots, which have as many words as the width says, or of ranges of
//! the frame and the window that it has checked.

use pipeline::bits::Bits;

/// A value of a width, from its limbs.
///
/// # Safety
/// `at` has the limbs of the width.
pub(super) unsafe fn bits(at: *const u64, width: u64) -> Bits {
    let width = width as u16;
    // SAFETY: the caller's promise.
    let limbs = unsafe { std::slice::from_raw_parts(at, width.div_ceil(64).into()) };
    Bits::from_limbs(width, limbs)
}

/// Stores limbs.
///
/// # Safety
/// `at` has room for the value's limbs.
pub(super) unsafe fn put(at: *mut u64, value: &Bits) {
    // SAFETY: the caller's promise; the value's limbs are on the heap or the Rust stack, apart from `at`.
    unsafe { std::ptr::copy_nonoverlapping(value.limbs().as_ptr(), at, value.limbs().len()) }
}

macro_rules! binary {
    ($($name:ident: $op:expr;)*) => {$(
        pub(crate) unsafe extern "C" fn $name(result: *mut u64, a: *const u64, b: *const u64, width: u64) -> u64 {
            let op: fn(&Bits, &Bits) -> Bits = $op;
            // SAFETY: see above.
            unsafe { put(result, &op(&bits(a, width), &bits(b, width))) };
            0
        }
    )*};
}

binary! {
    mul: Bits::mul;
    div: |a, b| a.div_rem(b).0;
    rem: |a, b| a.div_rem(b).1;
}

macro_rules! shifts {
    ($($name:ident: $op:expr;)*) => {$(
        pub(crate) unsafe extern "C" fn $name(result: *mut u64, a: *const u64, by: u64, width: u64) -> u64 {
            let op: fn(&Bits, u64) -> Bits = $op;
            // SAFETY: see above.
            unsafe { put(result, &op(&bits(a, width), by)) };
            0
        }
    )*};
}

shifts! {
    shl: Bits::shl;
    shr: Bits::shr;
    sar: Bits::sar;
}

pub(crate) unsafe extern "C" fn copy(to: *mut u8, from: *const u8, len: u64) -> u64 {
    // SAFETY: see above; the ranges may overlap.
    unsafe { std::ptr::copy(from, to, len as usize) };
    0
}

pub(crate) unsafe extern "C" fn clear(at: *mut u8, len: u64) -> u64 {
    // SAFETY: see above.
    unsafe { at.write_bytes(0, len as usize) };
    0
}

/// Moves the elements of a stack, blobs of `stride` bytes from `first` on, and its next element.
pub(crate) unsafe extern "C" fn shift_stack(
    first: *mut u8,
    next: *mut u64,
    stride: u64,
    size: u64,
    n: u64,
    up: u64,
) -> u64 {
    let by = (n.min(size) * stride) as usize;
    let all = (size * stride) as usize;
    // SAFETY: the stack's blobs are `all` bytes from `first` on, `next` is a word apart from them; `by` is at most `all`.
    let (elements, next) = unsafe { (std::slice::from_raw_parts_mut(first, all), &mut *next) };
    if up != 0 {
        elements.copy_within(..all - by, by);
        elements[..by].fill(0);
        *next = next.saturating_add(n).min(size);
    } else {
        elements.copy_within(by.., 0);
        elements[all - by..].fill(0);
        *next = next.saturating_sub(n);
    }
    0
}

/// Takes a header apart whose variable field does not begin at a byte: `front` bits, `bits` variable ones, the rest of
/// the `fixed` ones.
pub(crate) unsafe extern "C" fn extract_varbit(
    source: *const u8,
    fields: *mut u8,
    variable: *mut u8,
    front: u64,
    fixed: u64,
    bits: u64,
) -> u64 {
    let (front, fixed, bits) = (front as usize, fixed as usize, bits as usize);
    // SAFETY: code has checked that the window has `fixed + bits` bits from `source` on.
    let source = unsafe { std::slice::from_raw_parts(source, (fixed + bits).div_ceil(8)) };
    let mut list = super::list::List::default();
    list.push_bits(source, 0, front);
    list.push_bits(source, front + bits, fixed - front);
    let mut own = super::list::List::default();
    own.push_bits(source, front, bits);
    // SAFETY: the blob has room for the fixed fields and for the largest variable one, which code has compared `bits`
    // with.
    unsafe {
        std::ptr::copy_nonoverlapping(list.bytes().as_ptr(), fields, list.bytes().len());
        std::ptr::copy_nonoverlapping(own.bytes().as_ptr(), variable, own.bytes().len());
    }
    0
}

/// RFC 1624, equation 3: HC' = ~(~HC + ~m + m'), of the checksums of the old and the new data.
pub(crate) extern "C" fn update_checksum(checksum: u64, old: u64, new: u64) -> u64 {
    let total = u32::from(!(checksum as u16)) + u32::from(old as u16) + u32::from(!(new as u16));
    let folded = (total & 0xffff) + (total >> 16);
    u64::from(!(((folded & 0xffff) + (folded >> 16)) as u16))
}
