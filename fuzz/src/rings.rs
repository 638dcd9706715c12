//! A transmit ring whose client interferes while the switch uses it, and a check of the switch's accesses.
//!
//! [`Meddled`] stands between [`fabric::TxRing`] and the real memif ring. Each call from one to the other is a moment
//! at which the fuzzer may write to the ring or another worker may deliver. A single thread can simulate two to this
//! extent, and unlike two threads it is reproducible.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::RawFd;

use fabric::{Buffer, Fault, RingBacking};

/// Moment of an interference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Before reading the index that the client owns.
    Posted,
    /// Before reading a descriptor.
    Buffer,
    /// After filling a buffer, by a worker that holds no lock.
    Filled,
    /// The same by a worker that holds the ring's lock.
    FilledUnderLock,
    /// Before moving the index that the switch owns.
    Publish,
}

/// An interference.
pub type Meddle = Box<dyn FnOnce(Moment)>;

thread_local! {
    /// Scheduled interferences in order, each with the number of moments to wait.
    static SCRIPT: RefCell<VecDeque<(u8, Meddle)>> = const { RefCell::new(VecDeque::new()) };
}

/// Schedules an interference `after` more moments, counted from the previous one in the script.
pub fn schedule(after: u8, meddle: Meddle) {
    SCRIPT.with_borrow_mut(|script| script.push_back((after, meddle)));
}

/// Discards the remaining interferences.
pub fn forget() {
    // Dropped outside of the borrow.
    let _ = SCRIPT.take();
}

/// Runs the interference that is due at this moment.
fn pass(moment: Moment) {
    let due = SCRIPT.with_borrow_mut(|script| match script.front_mut() {
        Some((0, _)) => script.pop_front(),
        Some((left, _)) => {
            *left -= 1;
            None
        }
        None => None,
    });
    if let Some((_, meddle)) = due {
        meddle(moment);
    }
}

/// Observed state of a ring's entries.
struct Seen {
    /// End of the published entries.
    published: u32,
    /// End of the posted entries at the last call.
    posted: u32,
    /// End of the reserved entries, as far as it shows.
    reserved: u32,
    /// By entry modulo size: the entry's number, its buffer, and whether it was filled.
    entries: Vec<Option<(u32, Buffer, bool)>>,
}

/// Callback with a range that the switch may now write: an address and a number of bytes.
pub type Allow = Box<dyn Fn(*const u8, usize)>;

/// A ring wrapper that checks all calls. See the module.
pub struct Meddled<B> {
    inner: B,
    allow: Allow,
    seen: RefCell<Seen>,
}

// SAFETY: a target runs on one thread.
unsafe impl<B> Send for Meddled<B> {}
// SAFETY: as above.
unsafe impl<B> Sync for Meddled<B> {}

impl<B: RingBacking> Meddled<B> {
    /// Wraps `inner`, which starts at entry `start`.
    pub fn new(inner: B, start: u32, allow: Allow) -> Self {
        let entries = vec![None; inner.size() as usize];
        Self {
            inner,
            allow,
            seen: RefCell::new(Seen { published: start, posted: start, reserved: start, entries }),
        }
    }

    fn slot(&self, seq: u32) -> usize {
        (seq & (self.inner.size() - 1)) as usize
    }
}

// SAFETY: buffers come from the wrapped backing, which makes the same promise.
unsafe impl<B: RingBacking> RingBacking for Meddled<B> {
    type Own = B::Own;
    type Entry = B::Entry;

    fn size(&self) -> u32 {
        self.inner.size()
    }

    fn posted(&self, own: &mut B::Own, published: u32) -> Result<u32, Fault> {
        pass(Moment::Posted);
        assert_eq!(published, self.seen.borrow().published, "asked about entries that were not published");
        let posted = self.inner.posted(own, published)?;
        assert!(posted.wrapping_sub(published) <= self.size(), "more posted than the ring holds");
        self.seen.borrow_mut().posted = posted;
        Ok(posted)
    }

    fn buffer(&self, own: &mut B::Own, seq: u32, entry: &mut B::Entry) -> Result<Buffer, Fault> {
        pass(Moment::Buffer);
        let slot = self.slot(seq);
        {
            let seen = self.seen.borrow();
            let (posted, published) = (seen.posted, seen.published);
            assert!(
                seq.wrapping_sub(published) < posted.wrapping_sub(published),
                "entry {seq} is not among those posted: {published} to {posted}"
            );
            if let Some((other, _, false)) = seen.entries[slot] {
                panic!("entry {seq} is read before entry {other} in the same slot was filled");
            }
        }
        let buffer = self.inner.buffer(own, seq, entry)?;
        assert!(buffer.capacity > 0, "a buffer without capacity");
        self.seen.borrow_mut().entries[slot] = Some((seq, buffer, false));
        Ok(buffer)
    }

    fn expect_publish(&self, own: &mut B::Own, entries: u32) {
        {
            let mut seen = self.seen.borrow_mut();
            seen.reserved = seen.reserved.wrapping_add(entries);
        }
        self.inner.expect_publish(own, entries);
    }

    fn fill(&self, seq: u32, entry: &mut B::Entry, len: u32, more: bool) {
        let moment = {
            let mut seen = self.seen.borrow_mut();
            let slot = self.slot(seq);
            match &mut seen.entries[slot] {
                Some((found, buffer, filled)) if *found == seq && !*filled => {
                    assert!(len <= buffer.capacity, "{len} bytes in a buffer of {}", buffer.capacity);
                    assert!(!more || len == buffer.capacity, "a packet continues before its buffer is full");
                    (self.allow)(buffer.at.as_ptr(), len as usize);
                    *filled = true;
                }
                other => panic!("entry {seq} is filled, but its slot holds {other:?}"),
            }
            // Entries that are filled without the lock were announced when they were reserved.
            if seq == seen.reserved {
                seen.reserved = seq.wrapping_add(1);
                Moment::FilledUnderLock
            } else {
                Moment::Filled
            }
        };
        self.inner.fill(seq, entry, len, more);
        pass(moment);
    }

    fn publish(&self, own: &mut B::Own, seq: u32) {
        pass(Moment::Publish);
        {
            let mut seen = self.seen.borrow_mut();
            assert!(seq.wrapping_sub(seen.published) <= self.size(), "more published than the ring holds");
            while seen.published != seq {
                let slot = self.slot(seen.published);
                match seen.entries[slot] {
                    Some((found, _, true)) if found == seen.published => {}
                    other => panic!("entry {} is published, but is {other:?}", seen.published),
                }
                seen.published = seen.published.wrapping_add(1);
            }
        }
        self.inner.publish(own, seq);
    }

    fn notify(&self) -> Option<RawFd> {
        self.inner.notify()
    }

    fn faulted(&self) -> bool {
        self.inner.faulted()
    }
}
