//! The memory that a module and its worker share: typed access to it, at offsets that the switch alone decides on.
//!
//! Invariants: a [`Window`] is [`Layout::len`] bytes at an address that is a multiple of 64; everything in it is
//! plain numbers, so any bytes that a module writes are a value. The switch keeps the state that it relies on
//! elsewhere.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use fabric::PortIndex;
use fabric::arena::{ARENA_LEN, SLOT_LEN};

use crate::abi::{self, BatchHead, Output, Packet, Value};

/// Slots for headers that lie elsewhere, as of a batch that passes through the same logic again.
pub(crate) const SPARE: usize = 320;

/// Layout of a window: offsets in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    pub(crate) packets: usize,
    pub(crate) outputs: usize,
    pub(crate) sets: usize,
    pub(crate) counters: usize,
    pub(crate) values: usize,
    pub(crate) value_text: usize,
    pub(crate) text: usize,
    pub(crate) answer: usize,
    pub(crate) state: usize,
    pub(crate) state_len: usize,
    pub(crate) slots: usize,
    pub(crate) spare: usize,
    pub(crate) len: usize,
}

impl Layout {
    /// The layout for a module with `state_len` bytes of state per worker.
    pub(crate) fn new(state_len: usize) -> Self {
        let mut end = 0;
        let mut take = |len: usize| {
            let at = end;
            end = (at + len).next_multiple_of(64);
            at
        };
        take(size_of::<BatchHead>());
        let packets = take(abi::MAX_VERSIONS * size_of::<Packet>());
        let outputs = take(abi::MAX_OUTPUTS * size_of::<Output>());
        let sets = take(abi::MAX_SETS * abi::SET_LEN);
        let counters = take(abi::MAX_COUNTERS * 8);
        let values = take(abi::MAX_PARAMS * size_of::<Value>());
        let value_text = take(abi::VALUE_TEXT_LEN);
        let [text, answer] = [(); 2].map(|()| take(abi::TEXT_LEN));
        let state = take(state_len);
        let (slots, spare) = (take(ARENA_LEN), take(SPARE * SLOT_LEN));
        let len = end;
        Self {
            packets,
            outputs,
            sets,
            counters,
            values,
            value_text,
            text,
            answer,
            state,
            state_len,
            slots,
            spare,
            len,
        }
    }
}

/// Writes a number with a comma before each group of three digits.
fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let comma = |(i, digit): (usize, char)| {
        let is_group = i > 0 && (digits.len() - i).is_multiple_of(3);
        is_group.then_some(',').into_iter().chain([digit])
    };
    digits.chars().enumerate().flat_map(comma).collect()
}

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    at: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it is an address; who may use it is said where it is made.
unsafe impl Send for Window {}
// SAFETY: as above; what several threads use at once are the counters and values, by atomics.
unsafe impl Sync for Window {}

impl Window {
    /// The window at `at`.
    ///
    /// # Safety `at` is a multiple of 64; [`Layout::len`] bytes there are initialised and stay readable and writable
    /// for as long as the window is used, by its worker and, while that calls it, by the module; but for counters and
    /// values, by nobody else.
    pub(crate) unsafe fn new(at: NonNull<u8>, layout: Layout) -> Self {
        Self { at, layout }
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    #[inline(always)]
    fn place<T>(&self, offset: usize) -> *mut T {
        debug_assert!(offset + size_of::<T>() <= self.layout.len && offset.is_multiple_of(align_of::<T>()));
        self.at.as_ptr().wrapping_add(offset).cast()
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.at
    }

    /// Writes the batch's head.
    #[inline]
    pub(crate) fn set_head(&self, head: &BatchHead) {
        // SAFETY: inside of the window, and this thread is the one that may use it.
        unsafe { self.place::<BatchHead>(0).write(*head) }
    }

    /// Packet `i` of the list; beyond its end, nothing.
    #[inline(always)]
    pub(crate) fn packet(&self, i: usize) -> Packet {
        if i >= abi::MAX_VERSIONS {
            return Packet::default();
        }
        // SAFETY: `i` is below the length of the list, which lies inside.
        unsafe { self.place::<Packet>(self.layout.packets + i * size_of::<Packet>()).read() }
    }

    #[inline(always)]
    pub(crate) fn set_packet(&self, i: usize, packet: Packet) {
        if i < abi::MAX_VERSIONS {
            // SAFETY: as in `packet`.
            unsafe { self.place::<Packet>(self.layout.packets + i * size_of::<Packet>()).write(packet) }
        }
    }

    /// Output `i` of the list; beyond its end, nothing.
    #[inline(always)]
    pub(crate) fn output(&self, i: usize) -> Output {
        if i >= abi::MAX_OUTPUTS {
            return Output { verb: u16::MAX, ..Output::default() };
        }
        // SAFETY: `i` is below the length of the list, which lies inside.
        unsafe { self.place::<Output>(self.layout.outputs + i * size_of::<Output>()).read() }
    }

    /// Replaces the list by the ports of set `number`; a set that does not exist is empty.
    pub(crate) fn read_set(&self, number: u16, ports: &mut Vec<PortIndex>) {
        ports.clear();
        if usize::from(number) >= abi::MAX_SETS {
            return;
        }
        let at = self.layout.sets + usize::from(number) * abi::SET_LEN;
        for (first, word) in (0u16..).step_by(64).zip(0..abi::SET_LEN / 8) {
            // SAFETY: the word lies in the set, which lies inside, and this thread is the one that may use the
            // window.
            let mut bits = unsafe { self.place::<u64>(at + word * 8).read() };
            while bits != 0 {
                ports.push(PortIndex(first + bits.trailing_zeros() as u16));
                bits &= bits - 1;
            }
        }
    }

    /// A command's answer, or the reason for not starting, of this length. A text that does not fit in its room is cut,
    /// and a line at its end says so.
    pub(crate) fn answer(&self, len: usize) -> String {
        // SAFETY: inside of the window, and this thread is the one that may use it.
        let at = unsafe { (*self.place::<BatchHead>(0)).answer_at } as usize;
        let at = if at == self.layout.answer { at } else { self.layout.text };
        let mut answer = vec![0; len.min(abi::TEXT_LEN)];
        self.read(at, &mut answer);
        if len > answer.len() {
            let mut valid = String::from_utf8_lossy(&answer);
            // The last letter may have been cut.
            if let Some(whole) =
                answer.utf8_chunks().next().filter(|chunk| answer.len() - chunk.valid().len() < 4)
            {
                valid = whole.valid().into();
            }
            return format!("{valid}\n… cut at {} of {} bytes", thousands(answer.len()), thousands(len));
        }
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// How many versions the module is told of.
    pub(crate) fn set_versions(&self, versions: u32) {
        // SAFETY: inside of the window, and this thread is the one that may use it.
        unsafe { (*self.place::<BatchHead>(0)).versions = versions }
    }

    fn number(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: inside of the window, aligned; others use it by atomics, and the module's own code as the machine
        // does.
        unsafe { AtomicU64::from_ptr(self.place(offset)) }
    }

    /// Counter `i`.
    pub(crate) fn counter(&self, i: usize) -> u64 {
        if i >= abi::MAX_COUNTERS {
            return 0;
        }
        self.number(self.layout.counters + i * 8).load(Ordering::Relaxed)
    }

    /// Gives parameter `i` a number.
    pub(crate) fn set_value_number(&self, i: usize, number: u64) {
        if i < abi::MAX_PARAMS {
            self.number(self.layout.values + i * size_of::<Value>()).store(number, Ordering::Relaxed);
        }
    }

    /// Gives parameter `i` a number and a text. Before the module runs.
    pub(crate) fn set_value(&self, i: usize, value: Value) {
        if i < abi::MAX_PARAMS {
            // SAFETY: inside of the window, and nobody else uses it yet.
            unsafe { self.place::<Value>(self.layout.values + i * size_of::<Value>()).write(value) }
        }
    }

    /// Copies bytes from an offset on; bytes beyond the window are omitted.
    pub(crate) fn read(&self, offset: usize, out: &mut [u8]) {
        let len = out.len().min(self.layout.len.saturating_sub(offset));
        if len == 0 {
            return;
        }
        // SAFETY: `len` bytes from `offset` lie inside, and this thread is the one that may use the window.
        unsafe { std::ptr::copy_nonoverlapping(self.place::<u8>(offset), out.as_mut_ptr(), len) }
    }

    /// Writes bytes at an offset; bytes beyond the window are omitted.
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        let len = bytes.len().min(self.layout.len.saturating_sub(offset));
        if len == 0 {
            return;
        }
        // SAFETY: as in `read`.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.place::<u8>(offset), len) }
    }

    /// Address of the slots.
    pub(crate) fn slots(&self) -> NonNull<u8> {
        NonNull::new(self.place(self.layout.slots)).unwrap_or(self.at)
    }
}
