//! A transmit ring whose client interferes while the switch uses it, and a check of what the switch does with it.
//!
//! [`Meddled`] stands between [`fabric::TxRing`] and the real memif ring. Each call of the one to the other is a moment
//! at which the fuzzer may write to the ring, and at which another worker may deliver: that is how far a single thread
//! can show what two would do, and unlike two threads it does the same again when the input is replayed.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::RawFd;

use fabric::{Buffer, Fault, RingBacking};

/// When something happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The index that the client owns is about to be read.
    Posted,
    /// A descriptor is about to be read.
    Buffer,
    /// A buffer has been filled, by a worker that holds no lock.
    Filled,
    /// The index that the switch owns is about to be moved.
    Publish,
}

/// What happens at a moment.
pub type Meddle = Box<dyn FnOnce(Moment)>;

thread_local! {
    /// What is to happen, in order: after so many more moments, this.
    static SCRIPT: RefCell<VecDeque<(u8, Meddle)>> = const { RefCell::new(VecDeque::new()) };
}

/// Has something happen after `after` more moments, counted from the one before it in the script.
pub fn schedule(after: u8, what: Meddle) {
    SCRIPT.with_borrow_mut(|script| script.push_back((after, what)));
}

/// Forgets what has not happened.
pub fn forget() {
    // Dropped outside of the borrow.
    let _ = SCRIPT.take();
}

/// A moment passes.
fn pass(moment: Moment) {
    let due = SCRIPT.with_borrow_mut(|script| match script.front_mut() {
        Some((0, _)) => script.pop_front(),
        Some((left, _)) => {
            *left -= 1;
            None
        }
        None => None,
    });
    if let Some((_, what)) = due {
        what(moment);
    }
}

/// What has been seen of a ring's entries.
struct Seen {
    /// Everything before was handed over.
    published: u32,
    /// The end of what the client had posted when last asked.
    posted: u32,
    /// By entry modulo size: the buffer and its number, and whether it was filled.
    entries: Vec<Option<(u32, Buffer, bool)>>,
}

/// Told of what the switch may now write: an address and a number of bytes.
pub type Allow = Box<dyn Fn(*const u8, usize)>;

/// A ring in between. See the module.
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
    /// Watches over `inner`, which starts at entry `start`.
    pub fn new(inner: B, start: u32, allow: Allow) -> Self {
        let entries = vec![None; inner.size() as usize];
        Self { inner, allow, seen: RefCell::new(Seen { published: start, posted: start, entries }) }
    }

    fn slot(&self, seq: u32) -> usize {
        (seq & (self.inner.size() - 1)) as usize
    }
}

// SAFETY: buffers are those of the backing within, which is unsafe to implement for the same reason.
unsafe impl<B: RingBacking> RingBacking for Meddled<B> {
    type Own = B::Own;
    type Entry = B::Entry;

    fn size(&self) -> u32 {
        self.inner.size()
    }

    fn posted(&self, own: &mut B::Own, published: u32) -> Result<u32, Fault> {
        pass(Moment::Posted);
        assert_eq!(published, self.seen.borrow().published, "asked about entries that were not handed over");
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
                panic!("entry {seq} is read while {other} in the same place has not been filled");
            }
        }
        let buffer = self.inner.buffer(own, seq, entry)?;
        assert!(buffer.capacity > 0, "a buffer for nothing");
        self.seen.borrow_mut().entries[slot] = Some((seq, buffer, false));
        Ok(buffer)
    }

    fn fill(&self, seq: u32, entry: &mut B::Entry, len: u32, more: bool) {
        {
            let mut seen = self.seen.borrow_mut();
            let slot = self.slot(seq);
            match &mut seen.entries[slot] {
                Some((found, buffer, filled)) if *found == seq && !*filled => {
                    assert!(len <= buffer.capacity, "{len} bytes in a buffer of {}", buffer.capacity);
                    assert!(!more || len == buffer.capacity, "a packet goes on before its buffer is full");
                    (self.allow)(buffer.at.as_ptr(), len as usize);
                    *filled = true;
                }
                other => panic!("entry {seq} is filled, but in its place is {other:?}"),
            }
        }
        self.inner.fill(seq, entry, len, more);
        pass(Moment::Filled);
    }

    fn publish(&self, own: &mut B::Own, seq: u32) {
        pass(Moment::Publish);
        {
            let mut seen = self.seen.borrow_mut();
            assert!(seq.wrapping_sub(seen.published) <= self.size(), "more handed over than the ring holds");
            while seen.published != seq {
                let slot = self.slot(seen.published);
                match seen.entries[slot] {
                    Some((found, _, true)) if found == seen.published => {}
                    other => panic!("entry {} is handed over, but is {other:?}", seen.published),
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
