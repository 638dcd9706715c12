//! The fuzzer's bytes as a source of decisions.

/// The fuzzer's bytes, consumed from the front. At the end, zeros follow.
pub struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    /// Starts with a whole input.
    pub fn new(data: &'a [u8]) -> Self {
        Self(data)
    }

    /// Whether the input is exhausted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the next byte.
    pub fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.array())
    }

    /// Returns the next two bytes.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// Returns the next four bytes.
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    /// Returns the next eight bytes.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// Returns a number below `n`, from one byte.
    pub fn below(&mut self, n: usize) -> usize {
        usize::from(self.u8()) % n.max(1)
    }

    /// Returns one bit, from one byte.
    pub fn flag(&mut self) -> bool {
        self.u8() & 1 == 1
    }

    /// Returns the next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let given = self.slice(N);
        out[..given.len()].copy_from_slice(given);
        out
    }

    /// Returns the next `n` bytes, or fewer at the end.
    pub fn slice(&mut self, n: usize) -> &'a [u8] {
        let (front, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        front
    }

    /// Returns all remaining bytes.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}
