//! Compiled lists: packets in, verdicts out.

use std::marker::PhantomData;
use std::mem::MaybeUninit;

use exec_memory::Executable;
use packet::bpf::Program;

/// A packet for a list of filters.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Packet<'a> {
    start: *const u8,
    header_len: u32,
    len: u32,
    header: PhantomData<&'a [u8]>,
}

/// Offsets of the fields, for generated code.
pub(crate) mod offset {
    use super::Packet;

    pub(crate) const START: i32 = std::mem::offset_of!(Packet<'_>, start) as i32;
    pub(crate) const HEADER_LEN: i32 = std::mem::offset_of!(Packet<'_>, header_len) as i32;
    pub(crate) const LEN: i32 = std::mem::offset_of!(Packet<'_>, len) as i32;
    pub(crate) const NEXT: i64 = size_of::<Packet<'_>>() as i64;
}

impl<'a> Packet<'a> {
    /// A packet that is `len` bytes long and starts with `header`.
    #[inline]
    pub const fn new(header: &'a [u8], len: u32) -> Self {
        // Longer headers do not occur; their rest would count as missing.
        let header_len = if header.len() < u32::MAX as usize { header.len() as u32 } else { u32::MAX };
        Self { start: header.as_ptr(), header_len, len, header: PhantomData }
    }
}

/// Packets of a call: as many as a mask has bits.
const CHUNK: usize = 64;

/// Result of a list for a packet that some filter keeps, or may keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The first filter that keeps the packet, and its result: the number of bytes to keep.
    Match(usize, u32),
    /// All filters before this one reject the packet, which reads bytes behind the header that are part of the packet.
    NeedsMore(usize),
}

impl Verdict {
    /// The number of the filter.
    pub fn number(self) -> usize {
        match self {
            Self::Match(number, _) | Self::NeedsMore(number) => number,
        }
    }
}

/// A verdict as generated code writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Word(u64);

impl Word {
    const MORE_BIT: u64 = 1 << 63;

    /// The filter that keeps the packet, without its result, which is the lower half.
    pub(crate) fn matched(index: u32) -> u64 {
        u64::from(index) << 32
    }

    /// The filter that needs more bytes.
    pub(crate) fn needs_more(index: u32) -> u64 {
        Self::MORE_BIT | Self::matched(index)
    }

    #[inline]
    fn verdict(self) -> Verdict {
        let index = ((self.0 & !Self::MORE_BIT) >> 32) as usize;
        match self.0 & Self::MORE_BIT {
            0 => Verdict::Match(index, self.0 as u32),
            _ => Verdict::NeedsMore(index),
        }
    }
}

/// The type of a generated function: first packet, end of the packets, first of as many words, number of the program
/// to begin with; there are 1 to 64 packets. Returns a mask of those with a verdict: the last packet is the highest
/// bit. The words of the others may be anything, also not written.
type Function =
    unsafe extern "C" fn(*const Packet<'_>, *const Packet<'_>, *mut MaybeUninit<Word>, u64) -> u64;

/// A compiled list of filters.
#[derive(Debug)]
pub struct Code {
    memory: Executable,
    /// Bytes of machine code.
    len: usize,
    /// Programs with which a packet may begin, in ascending order.
    entries: Vec<u32>,
}

impl Code {
    /// Takes the code of one function, and its entries.
    pub(crate) fn new(code: &[u8], entries: Vec<u32>) -> std::io::Result<Self> {
        Ok(Self { memory: Executable::new(code)?, len: code.len(), entries })
    }

    /// Bytes of machine code.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no code; never.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Runs the list over packets, and calls `then` with number and verdict of those that some filter keeps or may
    /// keep, in order.
    #[inline]
    pub fn run<'a>(
        &self,
        packets: impl IntoIterator<Item = Packet<'a>>,
        mut then: impl FnMut(usize, Verdict),
    ) {
        let mut records = [const { MaybeUninit::uninit() }; CHUNK];
        let mut words = [const { MaybeUninit::uninit() }; CHUNK];
        let mut packets = packets.into_iter();
        let mut before = 0;
        loop {
            let mut count = 0;
            for (record, packet) in records.iter_mut().zip(&mut packets) {
                record.write(packet);
                count += 1;
            }
            if count == 0 {
                return;
            }
            // SAFETY: the first `count` records have just been written, and there are as many words.
            let mut mask = unsafe { self.call(&records, count, &mut words, 0) };
            while mask != 0 {
                let number = mask.trailing_zeros() as usize;
                mask &= mask - 1;
                if let Some(word) = words.get(number) {
                    // SAFETY: the function has written the words of the packets in the mask.
                    then(before + number, unsafe { word.assume_init() }.verdict());
                }
            }
            if count < CHUNK {
                return;
            }
            before += CHUNK;
        }
    }

    /// Runs the list over a packet, from program `from` on: 0, or one of the list's entries. Returns `None` if no
    /// filter keeps the packet, or `from` is no entry.
    pub fn run_one(&self, packet: Packet<'_>, from: usize) -> Option<Verdict> {
        // With a single entry, the code does not look at `from`.
        if !self.entries.iter().any(|entry| *entry as usize == from) {
            return None;
        }
        let records = [MaybeUninit::new(packet)];
        let mut words = [MaybeUninit::uninit()];
        // SAFETY: the record is written, and there is one word.
        let mask = unsafe { self.call(&records, 1, &mut words, from) };
        let [word] = words;
        // SAFETY: the function has written the words of the packets in the mask.
        (mask != 0).then(|| unsafe { word.assume_init() }.verdict())
    }

    /// Calls the function. Returns a mask of the packets with a verdict, from the lowest bit on.
    ///
    /// # Safety
    /// `count` is from 1 to [`CHUNK`], the first `count` records are written, and there are as many words.
    #[inline]
    unsafe fn call(
        &self,
        records: &[MaybeUninit<Packet<'_>>],
        count: usize,
        words: &mut [MaybeUninit<Word>],
        from: usize,
    ) -> u64 {
        let address = self.memory.at(0);
        // SAFETY: `compile` emitted a function with this signature at the start of the code, in memory that is
        // executable as long as `self` lives.
        let function = unsafe { std::mem::transmute::<*const u8, Function>(address) };
        let first: *const Packet<'_> = records.as_ptr().cast();
        // SAFETY: the range is one of written packets, of which there is at least one, and each has a word. The
        // function reads these packets and, of each, bytes of its header, which its lifetime keeps borrowed; it writes
        // these words and nothing else (see `emit`).
        let mask = unsafe { function(first, first.wrapping_add(count), words.as_mut_ptr(), from as u64) };
        mask >> (CHUNK - count)
    }
}

/// Runs a list of filters over one packet without compiling them: the reference for [`Code`]. Of `programs`, those from
/// number `from` on. Returns `None` if no filter keeps the packet.
pub fn interpret(programs: &[Program], from: usize, header: &[u8], len: u32) -> Option<Verdict> {
    for (index, program) in programs.iter().enumerate().skip(from) {
        match program.run(header, len) {
            Ok(0) => {}
            Ok(result) => return Some(Verdict::Match(index, result)),
            Err(packet::bpf::NeedsMore) => return Some(Verdict::NeedsMore(index)),
        }
    }
    None
}
