//! Outputs, each a packet in one header version for one destination, and the lists that destinations receive.
//!
//! A list is a chain of *runs*: outputs of consecutive versions. A batch whose packets all go to one port, and a batch
//! that is flooded, is one run per port, so the cost of a list follows its irregularities.
//!
//! Invariants: a `RunPool` has three runs for every output that a batch may have, enough to refuse each of them
//! individually ([`OutputList::retain`] splits a run into three at most); a run may be empty.

use packet::offload::Offload;

use crate::counters::DropReason;
use crate::rx::record::{Record, state};
use crate::rx::{RxBatch, VERSIONS};

/// Most outputs of one batch: every packet of a batch of 256, four times the usual one, flooded to 1,024 ports.
pub(crate) const OUTPUTS: usize = 256 << 10;

/// End of a list.
pub(crate) const NIL: u32 = u32::MAX;

/// Outputs of versions `first..first + count`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    pub(crate) next: u32,
    pub(crate) first: u16,
    pub(crate) count: u16,
    /// Why the destination refused them, if it did.
    refused: Option<DropReason>,
}

impl Run {
    /// One past its last version.
    #[inline(always)]
    pub(crate) fn end(&self) -> u32 {
        u32::from(self.first) + u32::from(self.count)
    }

    /// Why the destination refused them, if it did.
    pub(crate) fn refusal(&self) -> Option<DropReason> {
        self.refused
    }
}

/// The runs of a batch's lists. See the module.
pub(crate) struct RunPool {
    // Never longer than its initial capacity, so nothing is allocated later.
    runs: Vec<Run>,
}

impl RunPool {
    /// Creates a pool for so many outputs.
    pub(crate) fn new(outputs: usize) -> Self {
        // The system supplies its pages as lists grow.
        Self { runs: Vec::with_capacity(3 * outputs) }
    }

    /// Creates a pool for all outputs of a batch.
    pub(crate) fn of_batch() -> Self {
        Self::new(OUTPUTS + VERSIONS)
    }

    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.runs.clear();
    }

    #[inline(always)]
    pub(crate) fn get(&self, at: u32) -> Option<&Run> {
        self.runs.get(at as usize)
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self, at: u32) -> Option<&mut Run> {
        self.runs.get_mut(at as usize)
    }

    /// Adds a run of one version.
    #[inline]
    pub(crate) fn add(&mut self, version: u16, next: u32) -> Option<u32> {
        self.put(Run { next, first: version, count: 1, refused: None })
    }

    /// Adds a run of `count` versions, which ends its list.
    #[inline]
    pub(crate) fn add_last(&mut self, first: u16, count: u16) -> Option<u32> {
        self.put(Run { next: NIL, first, count, refused: None })
    }

    fn put(&mut self, run: Run) -> Option<u32> {
        let at = self.runs.len();
        if at == self.runs.capacity() {
            return None;
        }
        self.runs.push(run);
        Some(at as u32)
    }

    /// Gives each output of the list that starts at `head` a run of its own; sets `tail` to the last one. Only for a
    /// list without refusals.
    pub(crate) fn split(&mut self, head: u32, tail: &mut u32) {
        let mut at = head;
        while let Some(run) = self.get(at) {
            *tail = at;
            at = if run.count > 1 { self.cut(at, 1) } else { run.next };
        }
    }

    /// Refuses the first `n` outputs of run `at`, which was not refused, and returns the run of the others.
    fn refuse_front(&mut self, at: u32, n: u16, reason: DropReason) -> u32 {
        let Some(run) = self.get(at).copied() else { return NIL };
        let n = n.min(run.count);
        let rest = Run { first: run.first + n, count: run.count - n, ..run };
        // There is room: see the module.
        let rest = self.put(rest).unwrap_or(NIL);
        debug_assert_ne!(rest, NIL);
        if let Some(run) = self.get_mut(at) {
            (run.count, run.next, run.refused) = (n, rest, Some(reason));
        }
        rest
    }

    /// Cuts run `at` after its first `n` outputs, and returns the run of the others.
    fn cut(&mut self, at: u32, n: u16) -> u32 {
        let Some(run) = self.get(at).copied() else { return NIL };
        let n = n.min(run.count);
        let rest = self.put(Run { first: run.first + n, count: run.count - n, ..run }).unwrap_or(NIL);
        debug_assert_ne!(rest, NIL);
        if let Some(run) = self.get_mut(at) {
            (run.count, run.next) = (n, rest);
        }
        rest
    }
}

/// One packet in one header version, as a destination sees it.
#[derive(Clone, Copy)]
pub struct Output<'a> {
    // Bytes are looked up on demand: reserving needs lengths only.
    batch: &'a RxBatch,
    record: &'a Record,
    v: u16,
}

impl<'a> Output<'a> {
    #[inline(always)]
    pub(crate) fn new(batch: &'a RxBatch, v: u16) -> Self {
        Output { batch, record: &batch.records[usize::from(v)], v }
    }

    /// Its batch.
    #[inline(always)]
    pub(crate) fn batch(&self) -> &'a RxBatch {
        self.batch
    }

    /// Number of its version in the batch.
    #[inline(always)]
    pub(crate) fn version(&self) -> u16 {
        self.v
    }

    /// Total length, bytes.
    #[inline(always)]
    pub fn len(&self) -> u32 {
        self.record.len()
    }

    /// Never true: every packet has a header.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Offload metadata of the packet.
    #[inline(always)]
    pub fn offload(&self) -> Offload {
        self.batch.offload(usize::from(self.v))
    }

    /// Whether its metadata is [`Offload::NONE`]: no work left to do, no checksums verified.
    #[inline(always)]
    pub fn is_plain(&self) -> bool {
        !self.record.has(state::OFFLOAD | state::VERIFIED)
    }

    /// Traffic class of the packet; 0 unless a logic set it ([`crate::Batch::set_class`]).
    #[inline(always)]
    pub fn class(&self) -> u16 {
        self.record.class
    }

    /// Private header bytes. None of packets that have waited in the switch's own memory: all of theirs are payload.
    #[inline(always)]
    pub fn header(&self) -> &'a [u8] {
        self.batch.header_of(usize::from(self.v), self.record)
    }

    /// All bytes of a packet of an [unloaded](RxBatch::leave_unloaded) batch, where they lie.
    #[inline(always)]
    pub(crate) fn in_one_piece(&self) -> *const [u8] {
        std::ptr::slice_from_raw_parts(self.record.at, self.record.to as usize)
    }

    /// Bytes still in the memory where the packet came.
    #[inline(always)]
    pub fn payload_len(&self) -> u32 {
        self.record.payload_len()
    }

    /// Calls `f` with each stretch of payload in order. The memory is the sender's and may change.
    #[inline(always)]
    pub fn for_each_payload(&self, f: impl FnMut(*const u8, usize)) {
        self.batch.source(self.record).for_each(self.record.from, self.record.to, f);
    }
}

/// The outputs for one destination, in order.
pub struct OutputList<'a> {
    batch: &'a RxBatch,
    runs: &'a mut RunPool,
    head: u32,
    count: u32,
}

impl<'a> OutputList<'a> {
    /// The list that starts at run `head`.
    pub(crate) fn new(batch: &'a RxBatch, runs: &'a mut RunPool, head: u32) -> Self {
        let count = outputs(runs, head);
        Self::counted(batch, runs, head, count)
    }

    /// The list that starts at run `head` and has `count` outputs.
    pub(crate) fn counted(batch: &'a RxBatch, runs: &'a mut RunPool, head: u32, count: u32) -> Self {
        debug_assert_eq!(count, outputs(runs, head));
        Self { batch, runs, head, count }
    }

    /// A list of the first `packets` packets of a batch.
    pub(crate) fn of_all(batch: &'a RxBatch, runs: &'a mut RunPool, packets: usize) -> Self {
        runs.clear();
        let count = packets as u16;
        let head = runs.add_last(0, count).unwrap_or(NIL);
        Self { batch, runs, head, count: count.into() }
    }

    /// Outputs in the list, without those that a limit of the port refused before it was delivered.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// The batch that the outputs belong to.
    pub(crate) fn batch(&self) -> &'a RxBatch {
        self.batch
    }

    /// Whether the list is empty; the fabric never delivers an empty one.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The arena that holds its packets' headers, if there is one.
    pub(crate) fn arena(&self) -> Option<crate::rx::arena::Arena> {
        self.batch.slots.lent()
    }

    /// Whether its packets have no private headers: see [`RxBatch::leave_unloaded`].
    #[inline(always)]
    pub(crate) fn is_unloaded(&self) -> bool {
        self.batch.unloaded
    }

    /// Upper bound of the lengths of its outputs, bytes.
    #[inline(always)]
    pub(crate) fn longest(&self) -> u32 {
        self.batch.longest
    }

    /// The class and the bytes of its outputs, none of which is refused; `None` if they are of several classes.
    #[inline]
    pub(crate) fn sum_of_one_class(&self) -> Option<(u16, u64)> {
        let mut run = self.runs.get(self.head)?;
        let class = self.batch.records.get(usize::from(run.first))?.class;
        let mut bytes = 0;
        loop {
            let records = self.batch.records.get(usize::from(run.first)..run.end() as usize)?;
            if self.batch.classes != 0 && records.iter().any(|record| record.class != class) {
                return None;
            }
            // By four: the loop itself would be half of the work.
            let (by_four, rest) = records.as_chunks::<4>();
            bytes += by_four.iter().flatten().chain(rest).map(|record| u64::from(record.len())).sum::<u64>();
            match self.runs.get(run.next) {
                Some(next) => run = next,
                None => return Some((class, bytes)),
            }
        }
    }

    /// Calls `f` with each output not yet refused; outputs that `f` refuses are not shown again.
    pub fn retain(&mut self, mut f: impl FnMut(&Output<'_>) -> Result<(), DropReason>) {
        let mut at = self.head;
        while let Some(run) = self.runs.get(at) {
            let (next, first, mut left) = (run.next, run.first, run.count);
            if run.refused.is_none() {
                // `at` is the run that holds the `kept` outputs and, after them, those not yet visited.
                let (mut v, mut kept) = (first, 0);
                while left > 0 {
                    match f(&Output::new(self.batch, v)) {
                        Ok(()) => kept += 1,
                        Err(reason) => {
                            if kept > 0 {
                                at = self.runs.cut(at, kept);
                                kept = 0;
                            }
                            at = self.runs.refuse_front(at, 1, reason);
                        }
                    }
                    (v, left) = (v.wrapping_add(1), left - 1);
                }
            }
            at = next;
        }
    }

    /// [`OutputList::retain`] in front of a destination, which need not know of what is refused here; returns how many
    /// outputs are.
    pub(crate) fn hold(&mut self, reason: DropReason, mut passes: impl FnMut(&Output<'_>) -> bool) -> u32 {
        let mut held = 0;
        self.retain(|output| {
            if passes(output) {
                return Ok(());
            }
            held += 1;
            Err(reason)
        });
        self.count = self.count.saturating_sub(held);
        held
    }

    /// Refuses all outputs not yet refused but the first `n`.
    #[cold]
    pub(crate) fn truncate(&mut self, n: u32, reason: DropReason) {
        let (mut at, mut left) = (self.head, n);
        while let Some(run) = self.runs.get(at).copied() {
            if run.refused.is_some() {
                at = run.next;
                continue;
            }
            let keep = left.min(run.count.into());
            if keep < u32::from(run.count) {
                if keep > 0 {
                    at = self.runs.cut(at, keep as u16);
                }
                self.runs.refuse_front(at, run.count - keep as u16, reason);
            }
            left -= keep;
            at = run.next;
        }
    }

    /// Refuses all outputs not yet refused.
    #[cold]
    pub fn refuse_rest(&mut self, reason: DropReason) {
        self.retain(|_| Err(reason));
    }

    /// Calls `f` with each output that was not refused.
    #[inline(always)]
    pub fn for_each(&self, mut f: impl FnMut(&Output<'_>)) {
        for output in self.iter() {
            f(&output);
        }
    }

    /// The outputs that were not refused.
    #[inline(always)]
    pub(crate) fn iter(&self) -> Outputs<'_> {
        Outputs { batch: self.batch, runs: self.runs, at: self.head, v: 0, end: 0 }
    }
}

/// Number of outputs of the list that starts at run `head`.
fn outputs(runs: &RunPool, head: u32) -> u32 {
    let each = std::iter::successors(runs.get(head), |run| runs.get(run.next));
    each.map(|run| u32::from(run.count)).sum()
}

/// For each output of the list that starts at run `head`, in order, whether it was refused.
pub(crate) fn verdicts(runs: &RunPool, head: u32) -> impl Iterator<Item = Option<DropReason>> {
    let of = |at| runs.get(at);
    let each = std::iter::successors(of(head), move |run| of(run.next));
    each.flat_map(|run| std::iter::repeat_n(run.refused, run.count.into()))
}

/// Iterator over the outputs of a list that were not refused, in order. Loops compiled for several instruction sets
/// (`cpu.rs`) use its `next`, since a closure would stay a function of its own there.
#[derive(Clone)]
pub(crate) struct Outputs<'a> {
    batch: &'a RxBatch,
    runs: &'a RunPool,
    /// The next run.
    at: u32,
    /// Remaining versions of the current run.
    v: u32,
    end: u32,
}

impl<'a> Iterator for Outputs<'a> {
    type Item = Output<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<Output<'a>> {
        while self.v == self.end {
            let run = self.runs.get(self.at)?;
            self.at = run.next;
            if run.refused.is_none() {
                (self.v, self.end) = (run.first.into(), run.end());
            }
        }
        let v = self.v;
        self.v += 1;
        Some(Output::new(self.batch, v as u16))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rx::BatchLimits;

    fn list_of(runs: &mut RunPool, of: &[(u16, u16)]) -> u32 {
        let mut head = NIL;
        for (first, count) in of.iter().rev() {
            head = runs.put(Run { next: head, first: *first, count: *count, refused: None }).unwrap();
        }
        head
    }

    fn shown(list: &OutputList<'_>) -> Vec<u16> {
        let seen: Vec<u16> = list.iter().map(|output| output.v).collect();
        let mut again = Vec::new();
        list.for_each(|output| again.push(output.v));
        assert_eq!(seen, again);
        seen
    }

    #[test]
    fn a_pool_uses_no_memory_that_no_list_needs() {
        use std::io::{Read, Seek, SeekFrom};
        // Longer than a huge page on either side of the middle.
        let pool = RunPool::new(OUTPUTS);
        let middle = pool.runs.as_ptr().wrapping_add(pool.runs.capacity() / 2).addr();
        let mut pages = std::fs::File::open("/proc/self/pagemap").unwrap();
        let mut entry = [0; 8];
        pages.seek(SeekFrom::Start((middle / rustix::param::page_size() * 8) as u64)).unwrap();
        pages.read_exact(&mut entry).unwrap();
        // Bit 63: the page is present (Linux, admin-guide/mm/pagemap).
        assert_eq!(u64::from_ne_bytes(entry) >> 63, 0);
    }

    #[test]
    fn refusals_leave_the_others_in_order() {
        let batch = RxBatch::new(BatchLimits::default());
        let mut state = 5u32;
        let mut random = |n: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) % n
        };
        for _ in 0..300 {
            let shape: Vec<(u16, u16)> =
                (0..1 + random(4)).map(|_| (random(200) as u16, random(9) as u16)).collect();
            let mut expected: Vec<u16> = shape.iter().flat_map(|(first, n)| *first..first + n).collect();
            let mut runs = RunPool::new(64);
            let head = list_of(&mut runs, &shape);
            let mut list = OutputList::new(&batch, &mut runs, head);
            assert_eq!(list.len(), expected.len());
            let cut = random(expected.len() as u32 + 2);
            if random(2) == 0 {
                list.truncate(cut, DropReason::RingFull);
                expected.truncate(cut as usize);
            }
            assert_eq!(shown(&list), expected);
            for _ in 0..2 {
                let refused: Vec<bool> = expected.iter().map(|_| random(3) == 0).collect();
                let mut i = 0;
                list.retain(|_| {
                    i += 1;
                    if refused[i - 1] { Err(DropReason::RingFull) } else { Ok(()) }
                });
                assert_eq!(i, expected.len());
                let mut kept = refused.iter().map(|refused| !refused);
                expected.retain(|_| kept.next().unwrap());
                assert_eq!(shown(&list), expected);
            }
            list.refuse_rest(DropReason::PortDown);
            assert_eq!(shown(&list), []);
            let (mut at, mut all) = (head, 0);
            while let Some(run) = runs.get(at) {
                assert!(run.count == 0 || run.refusal().is_some());
                (at, all) = (run.next, all + usize::from(run.count));
            }
            assert_eq!(all, shape.iter().map(|(_, n)| usize::from(*n)).sum::<usize>());
        }
    }
}
