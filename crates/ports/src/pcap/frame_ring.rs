//! Ring of pages with frames, from the thread that reads a capture file to the worker that switches them.
//!
//! A few pages circulate: the reader fills a free one and puts it in the ring; the worker takes its frames in place and
//! gives the page back. So the worker makes two queue operations per page, not per packet, and copies nothing; a reader
//! without a free page waits, which is the only brake on a replay at full speed.
//!
//! Two doorbells: the reader rings the worker's after it puts a page in the ring; the worker rings the reader's when
//! enough pages are free.
//!
//! While the ring is halted the worker takes nothing, and [`FrameRing::halt`] returns once all frames taken before are
//! delivered: a replay that is halted and resumed loses no frame. It gives up on a worker that is stuck.

use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_queue::ArrayQueue;
use fabric::doorbell::{Bell, Doorbell, EventBell, ThreadBell};
use fabric::rx::MAX_PACKET;
use fabric::{Fault, RxBatch, RxQueue, Tools};
use packet::offload::Offload;

/// Pages in circulation.
const PAGES: usize = 8;
/// Bytes in a page: as many as a batch takes, and more than the longest frame.
const PAGE_BYTES: usize = 128 << 10;
/// Largest number of frames in a page.
const PAGE_FRAMES: usize = 2048;
/// Free pages for which a waiting reader is woken.
const ENOUGH: usize = PAGES / 2;
/// Interval of checks whether the worker has delivered the frames that it took.
const LOOK: Duration = Duration::from_micros(50);
/// Longest wait for that: a worker may be stuck in a receiver's memory.
const HALTING: Duration = Duration::from_millis(500);

/// Position of a frame in its page.
#[derive(Debug, Clone, Copy)]
struct Span {
    start: u32,
    len: u32,
}

/// Frames, one after the other.
#[derive(Debug)]
pub(super) struct Page {
    /// Always [`PAGE_BYTES`]; does not move while the page does.
    bytes: Vec<u8>,
    used: usize,
    frames: Vec<Span>,
}

impl Page {
    fn new() -> Self {
        Self { bytes: vec![0; PAGE_BYTES], used: 0, frames: Vec::with_capacity(PAGE_FRAMES) }
    }

    fn clear(&mut self) {
        self.used = 0;
        self.frames.clear();
    }

    /// Adds a frame, if it fits.
    pub(super) fn push(&mut self, frame: &[u8]) -> bool {
        let end = self.used + frame.len();
        let Some(room) = self.bytes.get_mut(self.used..end).filter(|_| self.frames.len() < PAGE_FRAMES)
        else {
            return false;
        };
        room.copy_from_slice(frame);
        // Both are below PAGE_BYTES.
        self.frames.push(Span { start: self.used as u32, len: frame.len() as u32 });
        self.used = end.next_multiple_of(64);
        true
    }

    /// Adds a frame that is longer than the fabric moves, without its bytes: it is only counted.
    pub(super) fn push_oversize(&mut self) -> bool {
        if self.frames.len() == PAGE_FRAMES {
            return false;
        }
        self.frames.push(Span { start: 0, len: MAX_PACKET + 1 });
        true
    }

    /// Returns the number of frames.
    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }

    /// Returns the bytes of a frame.
    fn frame(&self, at: usize) -> Option<&[u8]> {
        let span = self.frames.get(at)?;
        self.bytes.get(span.start as usize..)?.get(..span.len as usize)
    }
}

/// A page that the worker has begun.
#[derive(Debug)]
struct CurrentPage {
    page: Page,
    /// Its next frame.
    next: usize,
}

/// The ring. See the module's documentation.
pub(super) struct FrameRing {
    filled: ArrayQueue<Page>,
    free: ArrayQueue<Page>,
    /// Page that a worker had begun when its queue was detached.
    leftover: Mutex<Option<CurrentPage>>,
    /// Rung for the worker: frames are available.
    frames: Doorbell<EventBell>,
    /// Rung for the reader: pages are free.
    room: Doorbell<ThreadBell>,
    halted: AtomicBool,
    /// Whether the worker has frames that are not delivered yet.
    taking: AtomicBool,
    stopped: AtomicBool,
    /// Number of times that the ring was resumed.
    resumed: AtomicU64,
}

impl FrameRing {
    pub(super) fn new(halted: bool) -> std::io::Result<Self> {
        let free = ArrayQueue::new(PAGES);
        for _ in 0..PAGES {
            // There is room for all.
            let _ = free.push(Page::new());
        }
        Ok(Self {
            filled: ArrayQueue::new(PAGES),
            free,
            leftover: Mutex::default(),
            frames: Doorbell::new(EventBell::new()?),
            room: Doorbell::new(ThreadBell::new()),
            halted: AtomicBool::new(halted),
            taking: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            resumed: AtomicU64::new(0),
        })
    }

    // ---- The control side ------------------------------------------------------------------------------------

    /// Ends the reader, whatever it waits for.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.wake_reader();
    }

    /// Stops the flow of frames. Returns true once all frames taken before are delivered, false if that takes longer
    /// than [`HALTING`]: then they are delivered, or dropped, when the worker continues.
    pub(super) fn halt(&self) -> bool {
        self.halted.store(true, Ordering::SeqCst);
        let since = Instant::now();
        while self.taking.load(Ordering::SeqCst) {
            if since.elapsed() > HALTING {
                return false;
            }
            std::thread::sleep(LOOK);
        }
        true
    }

    /// Resumes the flow of frames.
    pub(super) fn resume(&self) {
        if self.halted.swap(false, Ordering::SeqCst) {
            self.resumed.fetch_add(1, Ordering::SeqCst);
            self.wake_reader();
            self.frames.ring();
        }
    }

    /// Returns whether the flow is stopped.
    pub(super) fn is_halted(&self) -> bool {
        self.halted.load(Ordering::SeqCst)
    }

    /// Wakes the reader, even if it waits for something other than free pages.
    fn wake_reader(&self) {
        self.room.ring();
        self.room.bell().wake();
    }

    // ---- The reader's side -----------------------------------------------------------------------------------

    /// Makes the calling thread the reader.
    pub(super) fn begin_reading(&self) {
        self.room.bell().belongs_here();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Returns the number of times that the ring was resumed.
    pub(super) fn resumed(&self) -> u64 {
        self.resumed.load(Ordering::SeqCst)
    }

    /// Returns an empty page as soon as one is free; `None` once the ring is stopped.
    pub(super) fn empty_page(&self) -> Option<Page> {
        self.room.wait_for(|| if self.is_stopped() { Some(None) } else { self.free.pop().map(Some) })
    }

    /// Puts a page in the ring.
    pub(super) fn put(&self, page: Page) {
        // The ring has room for all pages.
        let _ = self.filled.push(page);
        self.frames.ring();
    }

    /// Returns whether all pages in the ring have been delivered; the reader holds `held` pages.
    pub(super) fn is_delivered(&self, held: usize) -> bool {
        self.free.len() + held == PAGES
    }
}

/// The worker's end of the ring.
pub(super) struct FrameQueue {
    ring: std::sync::Arc<FrameRing>,
    begun: Option<CurrentPage>,
    /// Pages whose frames are all in the batch.
    spent: Vec<Page>,
}

impl FrameQueue {
    pub(super) fn new(ring: std::sync::Arc<FrameRing>) -> Self {
        let begun = ring.leftover.lock().unwrap_or_else(PoisonError::into_inner).take();
        Self { ring, begun, spent: Vec::with_capacity(PAGES) }
    }

    fn take(&mut self, batch: &mut RxBatch) -> Result<(), Fault> {
        while batch.has_room() {
            let Some(begun) = &mut self.begun else {
                let Some(page) = self.ring.filled.pop() else { return Ok(()) };
                self.begun = Some(CurrentPage { page, next: 0 });
                continue;
            };
            let Some(frame) = begun.page.frame(begun.next) else {
                self.spent.extend(self.begun.take().map(|begun| begun.page));
                continue;
            };
            begun.next += 1;
            let (at, len) = (NonNull::from(frame).cast::<u8>(), frame.len() as u32);
            // SAFETY: the bytes are the page's, which stays in `begun` or `spent` until `complete`, unchanged; they do
            // not move when the page does.
            unsafe { batch.add_segment(at, len)? };
            batch.end_packet(Offload::NONE);
        }
        Ok(())
    }

    fn give_back(&mut self) {
        if self.spent.is_empty() {
            return;
        }
        for mut page in self.spent.drain(..) {
            page.clear();
            // The ring has room for all pages.
            let _ = self.ring.free.push(page);
        }
        if self.ring.free.len() >= ENOUGH {
            self.ring.room.ring();
        }
    }
}

impl RxQueue for FrameQueue {
    fn receive(&mut self, batch: &mut RxBatch) -> Result<(), Fault> {
        // The halting thread sets the flag and then checks whether frames are being taken; here it is the other way
        // round.
        self.ring.taking.store(true, Ordering::SeqCst);
        if self.ring.halted.load(Ordering::SeqCst) {
            return Ok(());
        }
        self.take(batch)
    }

    fn complete(&mut self, _tools: &mut Tools) -> Result<(), Fault> {
        self.give_back();
        self.ring.taking.store(false, Ordering::Release);
        Ok(())
    }

    fn set_signalled(&mut self, on: bool) {
        // The worker checks the ring after this, so an earlier ring of the bell is not lost.
        let _ = if on { self.ring.frames.arm() } else { self.ring.frames.disarm() };
    }

    fn signal(&self) -> BorrowedFd<'_> {
        self.ring.frames.bell().as_fd()
    }

    fn cheap_to_poll(&self) -> bool {
        true
    }
}

impl Drop for FrameQueue {
    /// Leaves undelivered frames for the next queue.
    fn drop(&mut self) {
        self.give_back();
        *self.ring.leftover.lock().unwrap_or_else(PoisonError::into_inner) = self.begun.take();
        self.ring.taking.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fabric::rx::BatchLimits;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn batch() -> RxBatch {
        RxBatch::new(BatchLimits::default())
    }

    fn tools() -> Tools {
        Tools::new(fabric::notifier::Notifier::new().unwrap())
    }

    /// Takes one batch, and returns its number of frames.
    fn take(queue: &mut FrameQueue, batch: &mut RxBatch) -> usize {
        batch.clear();
        queue.receive(batch).unwrap();
        let taken = batch.len();
        queue.complete(&mut tools()).unwrap();
        taken
    }

    fn put(ring: &FrameRing, frames: usize) {
        let mut page = ring.empty_page().unwrap();
        for _ in 0..frames {
            assert!(page.push(&[1; 60]));
        }
        ring.put(page);
    }

    fn is_signalled(queue: &FrameQueue) -> bool {
        let signal = queue.signal();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(&signal, PollFlags::IN)], Some(&now)).unwrap() > 0;
        let _ = rustix::io::read(signal, &mut [0; 8]);
        ready
    }

    #[test]
    fn pages_circulate() {
        let ring = Arc::new(FrameRing::new(false).unwrap());
        let (mut queue, mut batch) = (FrameQueue::new(ring.clone()), batch());
        for _ in 0..10 * PAGES {
            put(&ring, 100);
            assert!(!ring.is_delivered(0));
            let taken = [(); 3].map(|()| take(&mut queue, &mut batch));
            assert_eq!(taken, [64, 36, 0]);
            assert!(ring.is_delivered(0));
        }
    }

    #[test]
    fn a_page_takes_frames_that_fit() {
        let mut page = Page::new();
        assert!(page.push(&[7; MAX_PACKET as usize]) && page.push(&[8; 65_472]));
        assert!(!page.push(&[9; 65]), "64 bytes are left");
        assert!(page.push(&[9; 64]) && !page.push(&[9; 1]));
        let frames = (0..3).map(|at| page.frame(at).map(|frame| (frame.len(), frame[0])));
        assert_eq!(frames.collect::<Vec<_>>(), [Some((65_535, 7)), Some((65_472, 8)), Some((64, 9))]);
        page.clear();
        let mut small = 0;
        while page.push(&[]) || page.push_oversize() {
            small += 1;
        }
        assert_eq!(small, PAGE_FRAMES);
    }

    #[test]
    fn frames_that_are_too_short_or_too_long_are_left_out() {
        let ring = Arc::new(FrameRing::new(false).unwrap());
        let (mut queue, mut batch) = (FrameQueue::new(ring.clone()), batch());
        let mut page = ring.empty_page().unwrap();
        assert!(page.push(&[1; 13]) && page.push_oversize() && page.push(&[2; 14]) && page.push(&[]));
        ring.put(page);
        assert_eq!(take(&mut queue, &mut batch), 1);
    }

    #[test]
    fn a_halted_ring_lets_nothing_through() {
        let ring = Arc::new(FrameRing::new(true).unwrap());
        let (mut queue, mut batch) = (FrameQueue::new(ring.clone()), batch());
        put(&ring, 3);
        assert_eq!(take(&mut queue, &mut batch), 0);
        queue.set_signalled(true);
        ring.resume();
        assert!(is_signalled(&queue));
        assert_eq!((take(&mut queue, &mut batch), ring.resumed()), (3, 1));
        // Halting returns only after the frames in flight are delivered.
        put(&ring, 3);
        batch.clear();
        queue.receive(&mut batch).unwrap();
        let halting = std::thread::spawn({
            let ring = ring.clone();
            move || ring.halt()
        });
        while !ring.is_halted() {
            std::thread::yield_now();
        }
        assert!(!halting.is_finished());
        queue.complete(&mut tools()).unwrap();
        assert!(halting.join().unwrap());
        // Halting does not wait for a worker that does not end its batch.
        ring.resume();
        queue.receive(&mut batch).unwrap();
        assert!(!ring.halt());
        queue.complete(&mut tools()).unwrap();
        assert!(ring.halt());
    }

    #[test]
    fn a_detached_queue_leaves_its_frames_to_the_next() {
        let ring = Arc::new(FrameRing::new(false).unwrap());
        let (mut first, mut batch) = (FrameQueue::new(ring.clone()), batch());
        put(&ring, 100);
        assert_eq!(take(&mut first, &mut batch), 64);
        drop(first);
        let mut second = FrameQueue::new(ring.clone());
        assert_eq!((take(&mut second, &mut batch), take(&mut second, &mut batch)), (36, 0));
        assert!(ring.is_delivered(0));
    }

    #[test]
    fn a_worker_is_signalled_only_on_request() {
        let ring = Arc::new(FrameRing::new(false).unwrap());
        let mut queue = FrameQueue::new(ring.clone());
        put(&ring, 1);
        assert!(!is_signalled(&queue));
        queue.set_signalled(true);
        put(&ring, 1);
        assert!(is_signalled(&queue));
        put(&ring, 1);
        assert!(!is_signalled(&queue), "the request was served");
        queue.set_signalled(true);
        put(&ring, 1);
        assert!(is_signalled(&queue));
        queue.set_signalled(false);
        put(&ring, 1);
        assert!(!is_signalled(&queue));
    }

    #[test]
    fn a_reader_waits_for_room_and_ends_when_stopped() {
        let ring = Arc::new(FrameRing::new(false).unwrap());
        let (mut queue, mut batch) = (FrameQueue::new(ring.clone()), batch());
        let reader = std::thread::spawn({
            let ring = ring.clone();
            move || {
                ring.begin_reading();
                let mut pages = 0;
                while let Some(mut page) = ring.empty_page() {
                    assert!(page.push(&[0; 60]));
                    ring.put(page);
                    pages += 1;
                }
                pages
            }
        });
        let mut taken = 0;
        while taken < 1000 {
            taken += take(&mut queue, &mut batch);
        }
        ring.stop();
        let put = reader.join().unwrap();
        assert!((taken..=taken + PAGES).contains(&put), "{put} put, {taken} taken");
    }
}
