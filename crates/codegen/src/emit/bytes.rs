//! Bits of big-endian bytes: fields in headers, lookahead in packets.

use cranelift_codegen::ir::{InstBuilder, Value, types};

use super::{BYTES, Emit, limbs_of};

/// Bytes behind the ones wanted that an access may touch as well.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Beyond {
    /// At least 8 further bytes exist: headers.
    Readable,
    /// None: packets.
    Forbidden,
}

impl Emit<'_, '_> {
    /// Reads `width` bits at a constant bit offset, the first bit being the most significant of the byte at `base`.
    pub(super) fn read_bits(&mut self, base: Value, at: u32, width: u16, beyond: Beyond) -> Vec<Value> {
        let end = at + u32::from(width);
        let mut limbs = Vec::new();
        for i in 0..limbs_of(width) {
            let high = end - 64 * i as u32;
            let low = at.max(high.saturating_sub(64));
            limbs.push(self.read_word(base, low, high - low, beyond));
        }
        limbs
    }

    /// Reads up to 64 bits.
    fn read_word(&mut self, base: Value, at: u32, n: u32, beyond: Beyond) -> Value {
        let (byte, skip) = ((at / 8) as i32, at % 8);
        let bytes = (skip + n).div_ceil(8);
        if skip == 0 && matches!(n, 8 | 16 | 32 | 64) {
            return self.read_bytes(base, byte, bytes);
        }
        let whole = if beyond == Beyond::Readable || bytes == 8 {
            self.read_bytes(base, byte, 8)
        } else {
            // The bytes one by one, and the rest zero.
            let mut whole = self.zero();
            let mut done = 0;
            for piece in [8, 4, 2, 1] {
                if bytes.min(8) - done >= piece {
                    let part = self.read_bytes(base, byte + done as i32, piece);
                    let part = self.shl(part, 64 - 8 * (done + piece));
                    whole = self.b.ins().bor(whole, part);
                    done += piece;
                }
            }
            whole
        };
        let mut value = self.shl(whole, skip);
        if skip + n > 64 {
            let last = self.read_bytes(base, byte + 8, 1);
            let last = self.shr(last, 8 - skip);
            value = self.b.ins().bor(value, last);
        }
        self.shr(value, 64 - n)
    }

    /// Reads 1, 2, 4 or 8 bytes.
    fn read_bytes(&mut self, base: Value, at: i32, n: u32) -> Value {
        let ty = match n {
            1 => return self.b.ins().uload8(types::I64, BYTES, base, at),
            2 => types::I16,
            4 => types::I32,
            _ => types::I64,
        };
        let value = self.b.ins().load(ty, BYTES, base, at);
        let value = self.b.ins().bswap(value);
        if ty == types::I64 { value } else { self.b.ins().uextend(types::I64, value) }
    }

    fn write_bytes(&mut self, value: Value, base: Value, at: i32, n: u32) {
        let ty = match n {
            1 => {
                self.b.ins().istore8(BYTES, value, base, at);
                return;
            }
            2 => types::I16,
            4 => types::I32,
            _ => types::I64,
        };
        let value = if ty == types::I64 { value } else { self.b.ins().ireduce(ty, value) };
        let value = self.b.ins().bswap(value);
        self.b.ins().store(BYTES, value, base, at);
    }

    /// Writes `width` bits at a constant bit offset of a header.
    pub(super) fn write_bits(&mut self, limbs: &[Value], base: Value, at: u32, width: u16) {
        let end = at + u32::from(width);
        for (i, limb) in limbs.iter().enumerate() {
            let high = end - 64 * i as u32;
            let low = at.max(high.saturating_sub(64));
            self.write_word(*limb, base, low, high - low);
        }
    }

    fn write_word(&mut self, value: Value, base: Value, at: u32, n: u32) {
        let (byte, skip) = ((at / 8) as i32, at % 8);
        if skip == 0 && matches!(n, 8 | 16 | 32 | 64) {
            return self.write_bytes(value, base, byte, n / 8);
        }
        if skip == 0 && n.is_multiple_of(16) {
            // 48 bits: as 32 and 16.
            let high = self.shr(value, 16);
            self.write_bytes(high, base, byte, n / 8 - 2);
            return self.write_bytes(value, base, byte + n as i32 / 8 - 2, 2);
        }
        let ones = if n == 64 { u64::MAX } else { (1 << n) - 1 };
        let old = self.read_bytes(base, byte, 8);
        let (mask, moved) = if skip + n <= 64 {
            let up = 64 - skip - n;
            (ones << up, self.shl(value, up))
        } else {
            let down = skip + n - 64;
            // The last bits go to a ninth byte.
            let last = self.read_bytes(base, byte + 8, 1);
            let kept = self.and_const(last, 0xff >> down);
            let low = self.shl(value, 8 - down);
            let new = self.b.ins().bor(kept, low);
            self.write_bytes(new, base, byte + 8, 1);
            (ones >> down, self.shr(value, down))
        };
        let kept = self.and_const(old, !mask);
        let new = self.b.ins().bor(kept, moved);
        self.write_bytes(new, base, byte, 8);
    }

    /// Copies a constant number of bytes, and touches no others.
    pub(super) fn copy_bytes(&mut self, to: Value, to_at: i32, from: Value, from_at: i32, n: usize) {
        const INLINE: usize = 128;
        if n > INLINE {
            let (to, from) = (self.add_const(to, to_at.into()), self.add_const(from, from_at.into()));
            let n = self.int(n as u64);
            self.call(crate::runtime::calls::copy as *const (), &[to, from, n]);
            return;
        }
        let mut piece = 8usize;
        while piece > n.max(1) {
            piece /= 2;
        }
        let ty = match piece {
            8 => types::I64,
            4 => types::I32,
            2 => types::I16,
            _ => types::I8,
        };
        // The last piece overlaps the one before, unless the pieces fit.
        let mut done = 0;
        while done < n {
            let at = done.min(n - piece) as i32;
            let value = self.b.ins().load(ty, BYTES, from, from_at + at);
            self.b.ins().store(BYTES, value, to, to_at + at);
            done += piece;
        }
    }
}
