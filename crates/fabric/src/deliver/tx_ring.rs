//! Delivery into a ring in client memory, common to all ring ports: reserve, copy, publish, notify.
//!
//! The ring is used through a private view: descriptors that the receiver posted are read once, checked, and kept as
//! [`Buffer`]s, so that reserving only moves a cursor. A slot belongs to the worker that reserved it until that
//! worker's run is complete; while there is no run, a few short packets are copied under the ring's lock instead. The
//! specifics of a kind of ring are in its [`RingBacking`]: an entry may be a chain of buffers, each packet may have a
//! prefix, and a packet may be bound to one entry. Rings without these features pay nothing for them.

use std::os::fd::RawFd;
use std::ptr::NonNull;

use crate::copy;
use crate::counters::{DropReason, Drops, QueueCounters};
use crate::cpu::{Level, each_level};
use crate::deliver::egress::Egress;
use crate::deliver::reservation::{Reservation, Ticket};
use crate::deliver::tools::Tools;
use crate::fault::Fault;
use crate::lists::output::{Output, OutputList};
use crate::rx::{HEADER_COPY, RxBatch};
use crate::sync::{AtomicBool, AtomicU32, Ordering, SpinLock, UnsafeCell};

/// A checked buffer of the receiver: `capacity` writable bytes.
#[derive(Debug, Clone, Copy)]
pub struct Buffer {
    /// First byte.
    pub at: NonNull<u8>,
    /// Bytes.
    pub capacity: u32,
}

/// The specifics of a kind of ring. Sequence numbers are modulo 2^32; a ring of 2^k entries uses the low bits.
///
/// Additional state is of two kinds, both kept by [`TxRing`]: `Own` belongs to the ring and is passed to the methods
/// that run under the ring's lock; an `Entry` belongs to the thread that works on that entry.
///
/// # Safety
/// A [`Buffer`] that [`RingBacking::buffer`] returns is writable for its whole capacity until the backing is dropped (a
/// fault that the process catches counts as writable), and overlaps no memory that Rust code refers to.
pub unsafe trait RingBacking: Send + Sync {
    /// State of the ring that one thread at a time may use.
    type Own: Send;

    /// State of an entry beside its first buffer, from when it is read until it is handed over.
    type Entry: Default + Send;

    /// Bytes in front of each packet, at most 16: metadata in memory (virtio-net has 12).
    const PREFIX: usize = 0;

    /// Whether an entry may have more than one buffer ([`RingBacking::next_buffer`]).
    const CHAINED: bool = false;

    /// Whether entries are handed over one by one ([`RingBacking::hand_over`]) before [`RingBacking::publish`].
    const ONE_BY_ONE: bool = false;

    /// Whether [`RingBacking::notify`] has anything to do: the receiver may ask for signals.
    const SIGNALS: bool = true;

    /// Whether entries are read into a private view. A ring in the switch's own memory needs none: its
    /// [`RingBacking::own_buffer`] is asked each time, and `Entry` has no bytes.
    const VIEWED: bool = true;

    /// Reason for dropping packets without room.
    const FULL: DropReason = DropReason::RingFull;

    /// Entries in the ring, a power of two.
    fn size(&self) -> u32;

    /// The end of the entries that the receiver has posted, given that everything before `published` was handed over.
    /// Reads the shared index once and checks it against the ring's size.
    fn posted(&self, own: &mut Self::Own, published: u32) -> Result<u32, Fault>;

    /// The buffer posted as entry `seq`: reads the descriptor once and checks it.
    fn buffer(&self, own: &mut Self::Own, seq: u32, entry: &mut Self::Entry) -> Result<Buffer, Fault>;

    /// The buffer of entry `seq` of a ring that is not [viewed](RingBacking::VIEWED), all of which are equal in capacity.
    fn own_buffer(&self, _seq: u32) -> Buffer {
        Buffer { at: NonNull::dangling(), capacity: 0 }
    }

    /// Prefetches what [`RingBacking::buffer`] and [`RingBacking::fill`] use of entry `seq`, which will be read next.
    fn prefetch(&self, _seq: u32) {}

    /// Announces that this many entries are reserved and will be published soon. The receiver was the last to touch the
    /// cache lines written on publishing; a prefetch now brings them here in time.
    fn expect_publish(&self, _own: &mut Self::Own, _entries: u32) {}

    /// Buffer `i` of an entry, from 1 on; `None` behind the last. [`RingBacking::buffer`] has read their descriptors
    /// with the first one's.
    fn next_buffer(&self, _entry: &Self::Entry, _i: usize) -> Option<Buffer> {
        None
    }

    /// Capacity of all buffers of an entry whose first buffer is `first`.
    fn capacity(&self, _entry: &Self::Entry, first: &Buffer) -> u32 {
        first.capacity
    }

    /// Whether a packet may continue in the next entry.
    fn spans_entries(&self) -> bool {
        true
    }

    /// Writes the [`RingBacking::PREFIX`] bytes in front of a packet that takes so many entries.
    fn prefix(&self, _output: &Output<'_>, _entries: u16, _to: &mut [u8]) {}

    /// Records the metadata of a packet that begins in entry `seq`, for rings that keep it beside the packet.
    fn describe(&self, _seq: u32, _output: &Output<'_>) {}

    /// Records that entry `seq` holds `len` bytes of a packet, which continues in the next entry if `more`.
    fn fill(&self, seq: u32, entry: &mut Self::Entry, len: u32, more: bool);

    /// Records that entry `seq` holds a packet of `len` bytes: [`RingBacking::describe`] and [`RingBacking::fill`].
    #[inline(always)]
    fn fill_packet(&self, seq: u32, entry: &mut Self::Entry, len: u32, output: &Output<'_>) {
        self.describe(seq, output);
        self.fill(seq, entry, len, false);
    }

    /// Hands over the next entry, whose first buffer is `first`; it is filled and will be published.
    fn hand_over(&self, _own: &mut Self::Own, _first: &Buffer, _entry: &mut Self::Entry) {}

    /// Publishes all entries before `seq`; stores made by `fill` are visible first.
    fn publish(&self, own: &mut Self::Own, seq: u32);

    /// Returns how many entries before `published` the receiver has not taken yet, as far as the ring shows it. By
    /// default those that it has not posted again: for receivers that keep all entries posted.
    fn waiting(&self, own: &mut Self::Own, published: u32) -> Result<u32, Fault> {
        let posted = self.posted(own, published)?.wrapping_sub(published);
        Ok(self.size().saturating_sub(posted))
    }

    /// Ends handing over: entries that were read and not handed over count as never read.
    fn close(&self, _own: &mut Self::Own) {}

    /// The descriptor to signal, if the receiver asked for notification. Called after [`RingBacking::publish`]; if it
    /// returns `None`, once more after a full fence. Not called without [`RingBacking::SIGNALS`].
    fn notify(&self) -> Option<RawFd>;

    /// Whether the memory behind the ring is gone.
    fn faulted(&self) -> bool;
}

/// See [`RingBacking::PREFIX`].
const MAX_PREFIX: usize = 16;
/// Forms of packets that [`TxRing::fill`] copies: all bytes are in the header; some are behind it; or there is no header
/// ([`RxBatch::unloaded`](crate::rx::RxBatch)), and the packet lies in one piece.
const HEADER: u8 = 0;
const WITH_PAYLOAD: u8 = 1;
const UNLOADED: u8 = 2;

/// Entries brought into the view at once for packets that take several.
const LOOK_AHEAD: u32 = 8;

// In this order, a delivery of one worker alone uses the first cache line.
#[repr(C)]
struct State<O> {
    dead: bool,
    /// End of the private view: entries before it are in `view`.
    viewed: u32,
    /// End of the entries that the receiver had posted at the last check.
    posted: u32,
    /// Lower bound of the capacities of unreserved entries in the view.
    min_capacity: u32,
    reservation: Reservation,
    /// Why `dead`, if it is for a fault of the ring.
    fault: Option<Fault>,
    own: O,
}

/// The ring's own fault, in [`State::fault`]. It fits a register: a result that is passed through memory would be read
/// in other pieces than it was written, and wait there until every store before it has reached the cache.
#[derive(Debug, Clone, Copy)]
struct Broken;

impl<O> State<O> {
    /// Ends deliveries.
    #[cold]
    fn end(&mut self, fault: Fault) -> Broken {
        self.dead = true;
        self.fault = Some(fault);
        Broken
    }
}

/// An entry in the private view.
struct Slot<E> {
    first: Buffer,
    entry: E,
}

/// Places of entries in the private view. They hold while the caller has an unfinished run, or has the lock and leaves
/// `front` as it is.
struct View<'a, E> {
    slots: &'a [UnsafeCell<Slot<E>>],
    front: u32,
    mask: u32,
}

impl<E> View<'_, E> {
    /// Entry `seq`, for reading and writing; only of rings that have a view.
    ///
    /// The caller has reserved the entry and not completed it; or it holds the lock, and the entry is not reserved or
    /// its run is complete. While that holds, no other thread accesses the entry: see `Sync`.
    #[inline(always)]
    fn slot(&self, seq: u32) -> *mut Slot<E> {
        let position = seq.wrapping_sub(self.front) & self.mask;
        // `mask` is `slots.len() - 1`. The model checker takes the whole access to be here.
        self.slots[position as usize].with_mut(|slot| slot)
    }
}

/// A transmit queue over a ring. See the module.
// In this order, a delivery begins with two neighbouring cache lines.
#[repr(C, align(128))]
pub struct TxRing<B: RingBacking> {
    view: Box<[UnsafeCell<Slot<B::Entry>>]>,
    mask: u32,
    /// The entry that is kept first in the view. It changes under `state`'s lock, while the view has no entry and no run
    /// is unfinished.
    front: AtomicU32,
    level: Level,
    /// Set while no thread may wait for the lock: see [`Egress::quarantine`].
    quarantined: AtomicBool,
    state: SpinLock<State<B::Own>>,
    backing: B,
}

// SAFETY: a view entry is accessed under `state`'s lock, while it is not reserved or its run is complete, or else by
// the worker that reserved it; the two ranges have different places because `posted` bounds `viewed` by
// `published + size`, and places count from one `front` until all runs are complete. Buffers are plain addresses of
// memory that the backing keeps.
unsafe impl<B: RingBacking> Sync for TxRing<B> {}
// SAFETY: as above; nothing is tied to a thread.
unsafe impl<B: RingBacking> Send for TxRing<B> {}

impl<B: RingBacking> TxRing<B> {
    /// Creates a queue that starts at entry `start`.
    pub fn new(backing: B, own: B::Own, start: u32) -> Self {
        const { assert!(B::PREFIX <= MAX_PREFIX) };
        const { assert!(B::VIEWED || size_of::<B::Entry>() == 0 && !B::CHAINED && !B::ONE_BY_ONE) };
        let size = backing.size();
        let viewed = if B::VIEWED { size } else { 0 };
        let none = Buffer { at: NonNull::dangling(), capacity: 0 };
        Self {
            state: SpinLock::new(State {
                dead: false,
                viewed: start,
                posted: start,
                min_capacity: u32::MAX,
                reservation: Reservation::new(start),
                fault: None,
                own,
            }),
            view: (0..viewed)
                .map(|_| UnsafeCell::new(Slot { first: none, entry: B::Entry::default() }))
                .collect(),
            mask: size - 1,
            front: AtomicU32::new(start),
            level: Level::detected(),
            quarantined: AtomicBool::new(false),
            backing,
        }
    }

    /// The kind of ring.
    pub(crate) fn backing(&self) -> &B {
        &self.backing
    }

    /// The private view as it is now.
    #[inline(always)]
    fn view(&self) -> View<'_, B::Entry> {
        View { slots: &self.view, front: self.front.load(Ordering::Relaxed), mask: self.mask }
    }

    /// The first buffer of entry `seq`, which the caller reserved, and the entry's state beside it.
    #[inline(always)]
    fn buffer_and_entry(&self, view: &View<'_, B::Entry>, seq: u32) -> (Buffer, *mut B::Entry) {
        if !B::VIEWED {
            // The state has no bytes.
            return (self.backing.own_buffer(seq), NonNull::dangling().as_ptr());
        }
        let slot = view.slot(seq);
        // SAFETY: the caller reserved the entry.
        unsafe { ((*slot).first, &raw mut (*slot).entry) }
    }

    /// Brings up to `want` more entries into the view. Returns whether there were any.
    #[inline]
    fn extend_view(&self, state: &mut State<B::Own>, want: u32) -> Result<bool, Broken> {
        if state.viewed == state.posted {
            let published = state.reservation.published();
            let posted = self.backing.posted(&mut state.own, published).map_err(|fault| state.end(fault))?;
            // A receiver that takes back posted entries would move `viewed` past the ring's end below.
            let (size, seen) = (self.mask.wrapping_add(1), state.viewed.wrapping_sub(published));
            if posted.wrapping_sub(state.viewed) > size.saturating_sub(seen) {
                return Err(state.end(Fault::RingIndex { published: posted.wrapping_sub(published), size }));
            }
            state.posted = posted;
        }
        let n = state.posted.wrapping_sub(state.viewed).min(want);
        if !B::VIEWED {
            state.min_capacity = self.backing.own_buffer(state.viewed).capacity;
            state.viewed = state.viewed.wrapping_add(n);
            return Ok(n > 0);
        }
        if state.viewed == state.reservation.next_free() {
            state.min_capacity = u32::MAX;
            // The view is used from its beginning: those lines are in the caches.
            if n > 0 && state.reservation.is_idle() {
                self.front.store(state.viewed, Ordering::Relaxed);
            }
        }
        let view = self.view();
        let (mut viewed, mut min_capacity) = (state.viewed, state.min_capacity);
        let mut read = Ok(());
        for _ in 0..n {
            // SAFETY: under the lock, and the entry is not reserved.
            let slot = unsafe { &mut *view.slot(viewed) };
            slot.first = match self.backing.buffer(&mut state.own, viewed, &mut slot.entry) {
                Ok(buffer) => buffer,
                Err(fault) => {
                    read = Err(state.end(fault));
                    break;
                }
            };
            copy::prefetch_write(slot.first.at.as_ptr());
            if B::PREFIX > 0 {
                // The prefix often ends a cache line.
                copy::prefetch_write(slot.first.at.as_ptr().wrapping_add(B::PREFIX));
            }
            min_capacity = min_capacity.min(self.room(slot));
            viewed = viewed.wrapping_add(1);
        }
        (state.viewed, state.min_capacity) = (viewed, min_capacity);
        read?;
        // The entries after these are next, perhaps after so many other destinations that they have left the caches.
        self.backing.prefetch(viewed);
        Ok(n > 0)
    }

    each_level! {
        /// Copies the packets of a list into the entries from `seq` on, all reserved by the caller; returns their
        /// bytes.
        fn fill_list [fill_list_v3, fill_list_v4](self: &Self, list: &OutputList<'_>, seq: u32) -> u64
            = fill_all at self.level;
    }

    /// [`TxRing::fill_list`] of short packets that are [unloaded](OutputList::is_unloaded): apart from the usual loop,
    /// which it would slow down.
    #[inline(never)]
    fn fill_unloaded(&self, list: &OutputList<'_>, seq: u32) -> u64 {
        self.fill_where_they_lie(list, seq)
    }

    each_level! {
        fn fill_where_they_lie [fill_where_they_lie_v3, fill_where_they_lie_v4](self: &Self, list: &OutputList<'_>, seq: u32) -> u64
            = fill_each_unloaded at self.level;
    }

    #[inline(always)]
    fn fill_each_unloaded(&self, list: &OutputList<'_>, mut seq: u32) -> u64 {
        let (view, mut bytes) = (self.view(), 0);
        for output in list.iter() {
            bytes += u64::from(output.len());
            seq = self.fill::<UNLOADED>(&view, seq, &output);
        }
        bytes
    }

    #[inline(always)]
    fn fill_all(&self, list: &OutputList<'_>, mut seq: u32) -> u64 {
        let (view, mut bytes) = (self.view(), 0);
        if list.longest() <= HEADER_COPY as u32 {
            if list.is_unloaded() {
                return self.fill_unloaded(list, seq);
            }
            // All their bytes are already private.
            for output in list.iter() {
                debug_assert_eq!(output.payload_len(), 0);
                bytes += u64::from(output.len());
                seq = self.fill::<HEADER>(&view, seq, &output);
            }
            return bytes;
        }
        let mut outputs = list.iter();
        let mut next = outputs.next();
        while let Some(output) = next {
            copy::count_delivered(u64::from(output.payload_len()));
            next = outputs.next();
            if let Some(next) = &next
                && next.payload_len() > 0
            {
                self.fetch(&view, seq.wrapping_add(1), next);
            }
            bytes += u64::from(output.len());
            seq = self.fill::<WITH_PAYLOAD>(&view, seq, &output);
        }
        bytes
    }

    /// Copies one packet of a form into the entries from `seq` on, all reserved by the caller; returns the entry after its
    /// last.
    #[inline(always)]
    fn fill<const FORM: u8>(&self, view: &View<'_, B::Entry>, seq: u32, output: &Output<'_>) -> u32 {
        let header = if FORM == UNLOADED { output.in_one_piece() } else { output.header() };
        let len = if FORM == WITH_PAYLOAD { output.len() } else { header.len() as u32 } + B::PREFIX as u32;
        let (first, entry) = self.buffer_and_entry(view, seq);
        if len > first.capacity {
            return self.fill_pieces(seq, output.batch(), output.version());
        }
        let mut prefix = [0; MAX_PREFIX];
        if B::PREFIX > 0 {
            self.backing.prefix(output, 1, &mut prefix[..B::PREFIX]);
        }
        let start = first.at.as_ptr();
        // SAFETY: the buffer was checked and holds `len` bytes.
        unsafe {
            if B::PREFIX > 0 {
                copy::short(prefix.as_ptr(), start, B::PREFIX);
            }
            copy::bytes(header.cast(), start.add(B::PREFIX), header.len());
            if FORM == WITH_PAYLOAD && output.payload_len() > 0 {
                let mut to = start.add(B::PREFIX + header.len());
                output.for_each_payload(|from, n| {
                    copy::payload(from, to, n);
                    to = to.add(n);
                });
            }
        }
        // SAFETY: the caller reserved the entry.
        self.backing.fill_packet(seq, unsafe { &mut *entry }, len, output);
        seq.wrapping_add(1)
    }

    /// Prefetches the memory that a packet will soon be copied from, and that of entry `seq`, which the caller reserved
    /// and which is most likely the target. Both are in the caches of their last users, far from here.
    #[inline(always)]
    fn fetch(&self, view: &View<'_, B::Entry>, seq: u32, output: &Output<'_>) {
        output.for_each_payload(copy::fetch_to_read);
        let (to, _) = self.buffer_and_entry(view, seq);
        copy::fetch_to_write(to.at.as_ptr(), output.len().min(to.capacity) as usize);
    }

    /// As [`TxRing::fill`], for a packet that takes several buffers: a version of a batch, since a reference to an output
    /// would have the usual loop keep each of its outputs in memory.
    #[cold]
    fn fill_pieces(&self, mut seq: u32, batch: &RxBatch, v: u16) -> u32 {
        let output = &Output::new(batch, v);
        self.backing.describe(seq, output);
        let len = output.len() + B::PREFIX as u32;
        let mut prefix = [0; MAX_PREFIX];
        if B::PREFIX > 0 {
            self.backing.prefix(output, self.entries(seq, len), &mut prefix[..B::PREFIX]);
        }
        // `used` bytes of `buffer` are filled; it is buffer `nth` of its entry, with `before` bytes in front of it
        // there.
        let (mut buffer, mut used, mut nth, mut before, mut left) = (self.first(seq), 0u32, 0, 0u32, len);
        let mut put = |mut from: *const u8, mut n: usize, is_payload: bool| {
            while n > 0 {
                if used == buffer.capacity {
                    before += used;
                    used = 0;
                    nth += 1;
                    // SAFETY: the caller reserved the entries of this packet.
                    let entry = unsafe { &mut *self.buffer_and_entry(&self.view(), seq).1 };
                    let next = if B::CHAINED { self.backing.next_buffer(entry, nth) } else { None };
                    if next.is_none() {
                        self.backing.fill(seq, entry, before, true);
                    }
                    buffer = next.unwrap_or_else(|| {
                        seq = seq.wrapping_add(1);
                        (nth, before) = (0, 0);
                        self.first(seq)
                    });
                    continue;
                }
                let now = n.min((buffer.capacity - used) as usize);
                // SAFETY: the entries of this packet are reserved by us and hold its length in all; `now` bytes fit
                // behind `used`.
                unsafe {
                    let to = buffer.at.as_ptr().add(used as usize);
                    if is_payload {
                        copy::payload(from, to, now)
                    } else {
                        copy::bytes(from, to, now)
                    }
                    from = from.add(now);
                }
                used += now as u32;
                n -= now;
                left -= now as u32;
            }
        };
        put(prefix.as_ptr(), B::PREFIX, false);
        put(output.header().as_ptr(), output.header().len(), false);
        output.for_each_payload(|from, n| put(from, n, true));
        debug_assert_eq!(left, 0);
        // SAFETY: as above.
        self.backing.fill(
            seq,
            unsafe { &mut *self.buffer_and_entry(&self.view(), seq).1 },
            before + used,
            false,
        );
        seq.wrapping_add(1)
    }

    /// Number of entries from `seq` on, all reserved by the caller, that hold `len` bytes.
    fn entries(&self, mut seq: u32, len: u32) -> u16 {
        let (mut room, mut count) = (0u32, 0u16);
        while room < len {
            room = room.saturating_add(self.capacity(seq));
            seq = seq.wrapping_add(1);
            count = count.saturating_add(1);
        }
        count
    }

    /// The first buffer of entry `seq`, which the caller reserved.
    #[inline(always)]
    fn first(&self, seq: u32) -> Buffer {
        self.buffer_and_entry(&self.view(), seq).0
    }

    /// Capacity of entry `seq`; the caller has reserved it, or holds the lock and the entry is not reserved.
    #[inline(always)]
    fn capacity(&self, seq: u32) -> u32 {
        if !B::VIEWED {
            return self.first(seq).capacity;
        }
        // SAFETY: by the caller's guarantee.
        self.room(unsafe { &*self.view().slot(seq) })
    }

    #[inline(always)]
    fn room(&self, slot: &Slot<B::Entry>) -> u32 {
        if B::CHAINED { self.backing.capacity(&slot.entry, &slot.first) } else { slot.first.capacity }
    }

    /// Reserves an entry for each packet of a list, as far as there are entries, if no packet is longer than the
    /// smallest entry. `None`: entries and packets must be matched one by one.
    #[inline(always)]
    fn reserve_uniform(
        &self,
        state: &mut State<B::Own>,
        list: &OutputList<'_>,
    ) -> Result<Option<u32>, Broken> {
        let (start, wanted) = (state.reservation.next_free(), list.len() as u32);
        loop {
            let free = state.viewed.wrapping_sub(start);
            if free >= wanted || !self.extend_view(state, wanted - free)? {
                let fits = list.longest() + B::PREFIX as u32 <= state.min_capacity;
                return Ok(fits.then_some(start.wrapping_add(free.min(wanted))));
            }
        }
    }

    /// Reserves entries packet by packet; refuses and counts packets that do not fit. Returns the end of the entries, and
    /// the number of refused packets. Counts none if the ring is broken.
    #[cold]
    fn reserve_each(
        &self,
        state: &mut State<B::Own>,
        list: &mut OutputList<'_>,
        counters: &QueueCounters,
    ) -> Result<(u32, u32), Broken> {
        let spans = self.backing.spans_entries();
        let mut drops = Drops::default();
        let (mut end, mut reserved) = (state.reservation.next_free(), Ok(()));
        list.retain(|output| {
            let (len, mut room, first) = (output.len() + B::PREFIX as u32, 0u32, end);
            let mut refuse = |reason, back: &mut u32| {
                *back = first;
                drops.add(reason, 1);
                Err(reason)
            };
            while room < len {
                if end == state.viewed {
                    match self.extend_view(state, LOOK_AHEAD) {
                        Ok(true) => {}
                        Ok(false) => return refuse(B::FULL, &mut end),
                        Err(broken) => {
                            reserved = Err(broken);
                            return refuse(DropReason::PortDown, &mut end);
                        }
                    }
                }
                room = room.saturating_add(self.capacity(end));
                if room < len && !spans {
                    return refuse(DropReason::ExceedsMtu, &mut end);
                }
                end = end.wrapping_add(1);
            }
            Ok(())
        });
        reserved?;
        let refused = drops.total();
        counters.add_drops(&mut drops);
        Ok((end, refused))
    }

    /// Reserves entries for outputs from the front of a list, as far as there are entries, if that is for `least` outputs
    /// or more. Refuses none, but for one at the front that fits no entry.
    #[inline]
    fn reserve_front(
        &self,
        state: &mut State<B::Own>,
        list: &OutputList<'_>,
        least: u32,
    ) -> Result<Front, Broken> {
        if state.dead {
            return Ok(Front::Dead);
        }
        let start = state.reservation.next_free();
        let (end, taken) = match self.reserve_uniform(state, list)? {
            Some(end) => (end, end.wrapping_sub(start)),
            None => match self.match_front(state, list)? {
                (_, 0, true) if least == 0 => return Ok(Front::TooLong),
                (end, taken, _) => (end, taken),
            },
        };
        if taken < least.max(1) {
            return Ok(Front::Nothing);
        }
        let Some(ticket) = state.reservation.reserve_to(end) else { return Ok(Front::Nothing) };
        self.backing.expect_publish(&mut state.own, end.wrapping_sub(start));
        Ok(Front::Reserved(start, taken, ticket))
    }

    /// Matches outputs and entries one by one, until one does not fit: returns the end of the entries, the number of
    /// outputs, and whether the next output would fit no entry.
    #[cold]
    fn match_front(
        &self,
        state: &mut State<B::Own>,
        list: &OutputList<'_>,
    ) -> Result<(u32, u32, bool), Broken> {
        let spans = self.backing.spans_entries();
        let (mut end, mut taken) = (state.reservation.next_free(), 0);
        for output in list.iter() {
            let (len, mut room, first) = (output.len() + B::PREFIX as u32, 0u32, end);
            while room < len {
                if end == state.viewed && !self.extend_view(state, LOOK_AHEAD)? {
                    return Ok((first, taken, false));
                }
                room = room.saturating_add(self.capacity(end));
                if room < len && !spans {
                    return Ok((first, taken, true));
                }
                end = end.wrapping_add(1);
            }
            taken += 1;
        }
        Ok((end, taken, false))
    }

    /// Publishes all entries before `end`, which are filled.
    #[inline(always)]
    fn publish(&self, state: &mut State<B::Own>, mut from: u32, end: u32) {
        while B::ONE_BY_ONE && from != end {
            let own = &mut state.own;
            // SAFETY: under the lock, and the entry's run is complete.
            let slot = unsafe { &mut *self.view().slot(from) };
            self.backing.hand_over(own, &slot.first, &mut slot.entry);
            from = from.wrapping_add(1);
        }
        self.backing.publish(&mut state.own, end);
    }
}

/// A delivery while the packets are copied without the lock, and what is left of it afterwards.
enum Progress {
    /// The run is reserved.
    Reserved(Reserved),
    /// Short packets: all are copied and published already.
    Done(Completed),
}

/// A run that is to be filled.
struct Reserved {
    /// Its first entry.
    start: u32,
    /// Packets that it will hold.
    delivered: u32,
    /// Packets at the end of the list for which there is no room.
    missed: u32,
    ticket: Ticket,
}

/// [`Progress`] of a delivery from the front of a list.
enum Front {
    /// The run is reserved: its first entry, its packets, its ticket.
    Reserved(u32, u32, Ticket),
    /// There is no room, or not enough.
    Nothing,
    /// The first output fits no entry.
    TooLong,
    /// The ring takes nothing any more.
    Dead,
}

/// A completed run.
struct Completed {
    /// The receiver's index moved.
    published: bool,
    /// Whether the ring is in order.
    sound: Result<(), Broken>,
}

/// Most packets of a list that are copied under the lock, while no other worker fills the ring. So few take no longer than
/// to give up the lock and take it again, and a batch for many destinations has such lists.
const FEW: u32 = 4;

impl<B: RingBacking> TxRing<B> {
    /// The fault that has ended deliveries.
    #[cold]
    fn fault(&self) -> Fault {
        // Memory that was taken away reads as zeros, which looks like any other fault.
        if self.backing.faulted() {
            return Fault::Memory;
        }
        self.state.with_unless(&self.quarantined, |state| state.fault).flatten().unwrap_or(Fault::Stalled)
    }

    /// Reserves entries for a list. `Ok(None)`: the ring takes nothing.
    #[inline(always)]
    fn reserve(
        &self,
        state: &mut State<B::Own>,
        list: &mut OutputList<'_>,
        counters: &QueueCounters,
    ) -> Result<Option<Progress>, Broken> {
        if state.dead {
            return Ok(None);
        }
        let (start, wanted) = (state.reservation.next_free(), list.len() as u32);
        let (end, delivered, missed) = match self.reserve_uniform(state, list)? {
            Some(end) => (end, end.wrapping_sub(start), wanted - end.wrapping_sub(start)),
            // Nothing is counted of a list that cannot be reserved.
            None if state.reservation.is_full() => return Ok(None),
            None => {
                let (end, refused) = self.reserve_each(state, list, counters)?;
                (end, wanted - refused, 0)
            }
        };
        if wanted <= FEW && missed == 0 && list.longest() <= HEADER_COPY as u32 && state.reservation.pass(end)
        {
            let bytes = self.fill_all(list, start);
            let end = (end != start).then_some(end);
            return Ok(Some(Progress::Done(self.conclude(
                state,
                (start, end),
                wanted,
                counters,
                delivered,
                bytes,
            ))));
        }
        let Some(ticket) = state.reservation.reserve_to(end) else { return Ok(None) };
        self.backing.expect_publish(&mut state.own, end.wrapping_sub(start));
        Ok(Some(Progress::Reserved(Reserved { start, delivered, missed, ticket })))
    }

    /// Publishes completed runs, in order, after this one is filled; counts its packets.
    #[inline(always)]
    fn complete(
        &self,
        state: &mut State<B::Own>,
        ticket: Ticket,
        wanted: u32,
        counters: &QueueCounters,
        delivered: u32,
        bytes: u64,
    ) -> Completed {
        let before = state.reservation.published();
        let end = state.reservation.complete(ticket);
        self.conclude(state, (before, end), wanted, counters, delivered, bytes)
    }

    /// Publishes the entries from `before` on, up to `end` if there are any, and counts a run's packets.
    #[inline(always)]
    fn conclude(
        &self,
        state: &mut State<B::Own>,
        (before, end): (u32, Option<u32>),
        wanted: u32,
        counters: &QueueCounters,
        delivered: u32,
        bytes: u64,
    ) -> Completed {
        let end = end.filter(|_| !state.dead);
        if let Some(end) = end {
            self.publish(state, before, end);
        }
        if delivered > 0 {
            counters.add_batch_alone(delivered.into(), bytes);
        }
        // The next list is most likely as long: its buffers are prefetched while other work is done. Another worker's
        // cache would have to fetch them from this one's.
        let is_used_up = state.viewed == state.reservation.next_free();
        let early = match is_used_up && !state.dead && state.reservation.is_alone() {
            true => self.extend_view(state, wanted),
            false => Ok(false),
        };
        Completed { published: end.is_some(), sound: early.map(|_| ()) }
    }
}

impl<B: RingBacking> TxRing<B> {
    /// Has the receiver of a completed run signalled, and reports a fault of the ring.
    #[inline(always)]
    fn announce(&self, completed: Completed, tools: &mut Tools) -> Result<(), Fault> {
        if B::SIGNALS && completed.published {
            // A receiver that sleeps already is collected now, whatever holds this thread up later in the batch. Whether
            // one is just falling asleep shows behind a fence.
            match self.backing.notify() {
                Some(fd) => tools.notifier.add(fd),
                None => tools.published = true,
            }
        }
        if self.backing.faulted() {
            let _ = self.state.with_unless(&self.quarantined, |state| state.dead = true);
            return Err(Fault::Memory);
        }
        completed.sound.map_err(|Broken| self.fault())
    }
}

impl<B: RingBacking> Egress for TxRing<B> {
    #[inline]
    fn deliver(
        &self,
        list: &mut OutputList<'_>,
        counters: &QueueCounters,
        tools: &mut Tools,
    ) -> Result<(), Fault> {
        let wanted = list.len() as u32;
        tools.smallest_ring = tools.smallest_ring.min(self.mask.saturating_add(1));
        let progress = self.state.with_unless(&self.quarantined, |state| self.reserve(state, list, counters));
        let completed = match progress.unwrap_or(Ok(None)) {
            Ok(Some(Progress::Done(completed))) => completed,
            Ok(Some(Progress::Reserved(Reserved { start, delivered, missed, ticket }))) => {
                if missed > 0 {
                    list.truncate(delivered, B::FULL);
                    counters.add_dropped(B::FULL, missed);
                }
                // Copy, without the lock.
                let bytes = self.fill_list(list, start);
                let completed = self.state.with_unless(&self.quarantined, |state| {
                    self.complete(state, ticket, wanted, counters, delivered, bytes)
                });
                match completed {
                    Some(completed) => completed,
                    // The holder of the lock is stuck: the packets are never published, nor any after them.
                    None => return Err(Fault::Stalled),
                }
            }
            refused => {
                list.refuse_rest(DropReason::PortDown);
                counters.add_dropped(DropReason::PortDown, wanted);
                return refused.map_or_else(|Broken| Err(self.fault()), |_| Ok(()));
            }
        };
        self.announce(completed, tools)
    }

    fn deliver_front(
        &self,
        list: &mut OutputList<'_>,
        least: u32,
        counters: &QueueCounters,
        tools: &mut Tools,
    ) -> Result<u32, Fault> {
        tools.smallest_ring = tools.smallest_ring.min(self.mask.saturating_add(1));
        let progress =
            self.state.with_unless(&self.quarantined, |state| self.reserve_front(state, list, least));
        let (start, taken, ticket) = match progress {
            Some(Ok(Front::Reserved(start, taken, ticket))) => (start, taken, ticket),
            Some(Ok(Front::Nothing)) => return Ok(0),
            Some(Ok(Front::TooLong)) => {
                list.truncate(0, DropReason::ExceedsMtu);
                counters.add_drop(DropReason::ExceedsMtu);
                return Ok(1);
            }
            Some(Err(Broken)) => return Err(self.fault()),
            Some(Ok(Front::Dead)) | None => {
                counters.add_dropped(DropReason::PortDown, list.len() as u32);
                list.refuse_rest(DropReason::PortDown);
                return Ok(list.len() as u32);
            }
        };
        let wanted = list.len() as u32;
        if taken < wanted {
            list.truncate(taken, B::FULL);
        }
        let bytes = self.fill_list(list, start);
        let completed = self.state.with_unless(&self.quarantined, |state| {
            self.complete(state, ticket, wanted, counters, taken, bytes)
        });
        // The holder of the lock is stuck: the packets are never published, nor any after them.
        let Some(completed) = completed else { return Err(Fault::Stalled) };
        self.announce(completed, tools).map(|()| taken)
    }

    #[inline]
    fn notify(&self, tools: &mut Tools) {
        if let Some(fd) = self.backing.notify() {
            tools.notifier.add(fd);
        }
    }

    fn depth(&self, _counters: &QueueCounters) -> u32 {
        let depth = self.state.with_unless(&self.quarantined, |state| {
            if state.dead {
                return 0;
            }
            let published = state.reservation.published();
            // Entries that other workers fill will be published in a moment.
            let filling = state.reservation.next_free().wrapping_sub(published);
            // A fault is met again by the next delivery.
            let waiting = self.backing.waiting(&mut state.own, published).unwrap_or(0);
            waiting.saturating_add(filling).min(self.backing.size())
        });
        depth.unwrap_or(0)
    }

    fn close(&self) {
        // Skipped if the holder of the lock is stuck in this very client's memory.
        let _ = self.state.with_unless(&self.quarantined, |state| {
            state.dead = true;
            self.backing.close(&mut state.own);
        });
    }

    fn quarantine(&self, on: bool) {
        self.quarantined.store(on, Ordering::Relaxed);
    }
}
