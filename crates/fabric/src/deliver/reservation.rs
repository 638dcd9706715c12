//! Reserve, copy, publish in order (mSwitch 3.3, destination port parallelism).
//!
//! Several workers fill one ring at once. Each reserves a run of slots under the ring's short lock, copies without it,
//! and reports under the lock again. Runs finish in any order; the receiver's index moves only over finished runs with
//! no unfinished run before them, so the receiver never sees a slot that is still being filled. This is the
//! bookkeeping, without lock or memory; [`crate::TxRing`] has both.
//!
//! Invariant: `published <= end of the oldest unfinished run <= reserved`, all modulo 2^32.

/// Most runs that can be unfinished at once: one per worker and ring.
pub const MAX_IN_FLIGHT: usize = 64;

/// Reservations without another unfinished run after which a worker counts as alone.
const ALONE: u32 = 16;

/// A reserved run that is being filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a run that is never completed stops the ring"]
pub struct Ticket(u32);

#[derive(Debug, Clone, Copy, Default)]
struct Run {
    end: u32,
    done: bool,
}

/// Bookkeeping of one ring. See the module.
#[derive(Debug)]
#[repr(C)]
pub struct Reservation {
    reserved: u32,
    published: u32,
    oldest: u32,
    next: u32,
    /// Reservations since one that met an unfinished run.
    alone: u32,
    runs: [Run; MAX_IN_FLIGHT],
}

impl Reservation {
    /// Nothing reserved; the next slot is `start`.
    pub fn new(start: u32) -> Self {
        Self {
            reserved: start,
            published: start,
            oldest: 0,
            next: 0,
            alone: ALONE,
            runs: [Run::default(); MAX_IN_FLIGHT],
        }
    }

    /// The first unreserved slot.
    #[inline]
    pub fn next_free(&self) -> u32 {
        self.reserved
    }

    /// The first unpublished slot.
    #[inline]
    pub fn published(&self) -> u32 {
        self.published
    }

    /// Reserves all slots up to `end`. `None` when too many runs are unfinished.
    #[inline]
    pub fn reserve_to(&mut self, end: u32) -> Option<Ticket> {
        if self.is_full() {
            return None;
        }
        if self.is_idle() {
            // One worker alone uses one run, and so one cache line.
            (self.oldest, self.next) = (0, 0);
            self.alone = self.alone.saturating_add(1);
        } else {
            self.alone = 0;
        }
        let ticket = Ticket(self.next);
        self.runs[ticket.0 as usize % MAX_IN_FLIGHT] = Run { end, done: false };
        self.next = self.next.wrapping_add(1);
        self.reserved = end;
        Some(ticket)
    }

    /// Reserves all slots up to `end` and marks them as filled, for a worker that fills them without letting others reserve
    /// meanwhile. Does nothing and returns false while a run is unfinished.
    #[inline]
    pub fn pass(&mut self, end: u32) -> bool {
        let is_idle = self.is_idle();
        if is_idle {
            self.alone = self.alone.saturating_add(1);
            (self.reserved, self.published) = (end, end);
        }
        is_idle
    }

    /// Whether too many runs are unfinished for one more.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.next.wrapping_sub(self.oldest) as usize >= MAX_IN_FLIGHT
    }

    /// Whether no run is unfinished.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.next == self.oldest
    }

    /// Whether one worker at a time has reserved of late: the next run is most likely the same one's.
    #[inline]
    pub fn is_alone(&self) -> bool {
        self.alone >= ALONE
    }

    /// Marks a run as filled. Returns the new end of the publishable slots, if it moved.
    #[inline]
    pub fn complete(&mut self, ticket: Ticket) -> Option<u32> {
        self.runs[ticket.0 as usize % MAX_IN_FLIGHT].done = true;
        let before = self.published;
        while self.oldest != self.next {
            let run = self.runs[self.oldest as usize % MAX_IN_FLIGHT];
            if !run.done {
                break;
            }
            self.published = run.end;
            self.oldest = self.oldest.wrapping_add(1);
        }
        (self.published != before).then_some(self.published)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn out_of_order_completion_publishes_in_order() {
        let mut r = Reservation::new(u32::MAX - 1);
        let a = r.reserve_to(1).unwrap();
        let b = r.reserve_to(5).unwrap();
        let c = r.reserve_to(6).unwrap();
        assert_eq!(r.complete(b), None);
        assert_eq!(r.complete(a), Some(5));
        assert_eq!(r.complete(c), Some(6));
    }

    #[test]
    fn a_worker_is_alone_again_some_runs_after_it_met_another() {
        let mut r = Reservation::new(0);
        let run = |r: &mut Reservation, end| {
            let ticket = r.reserve_to(end).unwrap();
            let _ = r.complete(ticket);
        };
        run(&mut r, 1);
        assert!(r.is_alone());
        let (a, b) = (r.reserve_to(2).unwrap(), r.reserve_to(3).unwrap());
        assert!(!r.is_alone());
        let _ = (r.complete(a), r.complete(b));
        (1..ALONE).for_each(|i| run(&mut r, 3 + i));
        assert!(!r.is_alone());
        run(&mut r, 3 + ALONE);
        assert!(r.is_alone());
    }

    #[test]
    fn slots_filled_at_once_wait_for_no_run_and_pass_none() {
        let mut r = Reservation::new(u32::MAX);
        assert!(r.pass(2));
        assert_eq!((r.published(), r.next_free()), (2, 2));
        let a = r.reserve_to(5).unwrap();
        assert!(!r.pass(6), "a run is unfinished");
        assert_eq!((r.published(), r.next_free()), (2, 5));
        assert_eq!(r.complete(a), Some(5));
        assert!(r.pass(6));
        assert_eq!((r.published(), r.next_free()), (6, 6));
    }

    proptest! {
        /// In any order of completion, the published end never passes an unfinished run.
        #[test]
        fn never_passes_an_unfinished_run(lens in prop::collection::vec(1u32..9, 1..40), order in any::<u64>()) {
            let mut r = Reservation::new(0);
            let mut end = 0;
            let mut open = Vec::new();
            for len in &lens {
                end += len;
                open.push((end - len, r.reserve_to(end).unwrap()));
            }
            let mut random = order;
            while !open.is_empty() {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let (_, ticket) = open.remove((random >> 33) as usize % open.len());
                let _ = r.complete(ticket);
                let bound = open.iter().map(|(start, _)| *start).min().unwrap_or(end);
                prop_assert_eq!(r.published(), bound);
            }
        }
    }
}
