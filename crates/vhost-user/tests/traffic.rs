//! Driver and device on the same virtqueue, compared with a model whose counters never wrap.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::collections::VecDeque;

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use support::{BUFFERS, BUFFERS_SIZE, Pair, SEAM, TABLES, TABLES_SIZE, pair_at};
use vhost_user::driver::{Buffer, Used};
use vhost_user::virtqueue::{Features, Format};
use vhost_user::{Chain, GuestMemory, Segment};

/// Size of each table's slot; not a multiple of 8, so that every second table is misaligned.
const TABLE_STRIDE: u64 = 20 * 16 + 4;

#[derive(Debug, Clone)]
enum Step {
    Add {
        readable: Vec<(u64, u32)>,
        writable: Vec<(u64, u32)>,
        indirect: bool,
    },
    Offer,
    Take {
        most: usize,
    },
    Untake,
    GiveBack {
        picks: Vec<(usize, u32)>,
    },
    Publish,
    Pop {
        most: usize,
    },
    Kicks(bool),
    Calls(bool),
    /// The memory is mapped at another address.
    Move,
}

fn buffer() -> impl Strategy<Value = (u64, u32)> {
    let address = prop_oneof![4 => 0..2 * BUFFERS_SIZE - 3000, 1 => BUFFERS_SIZE - 3000..BUFFERS_SIZE];
    let len = prop_oneof![1 => Just(0u32), 9 => 1u32..3000];
    (address.prop_map(|offset| BUFFERS + offset), len)
}

fn step() -> impl Strategy<Value = Step> {
    let buffers = || prop_oneof![4 => prop::collection::vec(buffer(), 0..3), 1 => prop::collection::vec(buffer(), 0..10)];
    prop_oneof![
        8 => (buffers(), buffers(), any::<bool>())
            .prop_map(|(readable, writable, indirect)| Step::Add { readable, writable, indirect }),
        4 => Just(Step::Offer),
        4 => (0usize..20).prop_map(|most| Step::Take { most }),
        1 => Just(Step::Untake),
        4 => prop::collection::vec((any::<usize>(), prop_oneof![Just(0u32), 1u32..9000]), 0..20)
            .prop_map(|picks| Step::GiveBack { picks }),
        4 => Just(Step::Publish),
        4 => (0usize..20).prop_map(|most| Step::Pop { most }),
        1 => any::<bool>().prop_map(Step::Kicks),
        1 => any::<bool>().prop_map(Step::Calls),
        1 => Just(Step::Move),
    ]
}

#[derive(Debug, Clone, PartialEq)]
struct Offered {
    id: u16,
    slots: u16,
    readable: Vec<(u64, u32)>,
    writable: Vec<(u64, u32)>,
}

/// One direction of signals: the progress of one side, and the entry at which the other wants a signal.
#[derive(Debug)]
struct Signals {
    moved: u64,
    asked: u64,
    event: Option<u64>,
    /// Number of steps after which a position in the ring repeats.
    period: u64,
    event_idx: bool,
}

impl Signals {
    /// Expects, as the specification says, a signal if the entry was passed. Without event index: if one was requested.
    fn expected(&mut self) -> bool {
        let asked = std::mem::replace(&mut self.asked, self.moved);
        match self.event {
            _ if asked == self.moved => false,
            None => false,
            Some(_) if !self.event_idx => true,
            Some(event) => (asked..self.moved).any(|entry| (entry % self.period) == event % self.period),
        }
    }
}

/// The actions of both sides, in counts of entries (split) or slots (packed).
struct Model {
    pair: Pair,
    format: Format,
    features: Features,
    tables: u64,
    staged: VecDeque<Offered>,
    offered: VecDeque<Offered>,
    /// Each chain with the count consumed up to and including it.
    taken: VecDeque<(u64, Offered)>,
    given_back: VecDeque<(Used, u16)>,
    published: VecDeque<(Used, u16)>,
    consumed: u64,
    popped: u64,
    kicks: Signals,
    calls: Signals,
    first_call: bool,
}

impl Model {
    fn new(format: Format, size: u16, features: Features, start: u16) -> Model {
        let base = match format {
            Format::Split => start.into(),
            Format::Packed => {
                let position = (start % size) | (start & 0x8000);
                u32::from(position) << 16 | u32::from(position)
            }
        };
        let mut pair = pair_at(format, size, features, base);
        pair.device.set_kicks(true);
        pair.driver.set_calls(true);
        let period = if format == Format::Split { 1 << 16 } else { 2 * u64::from(size) };
        let signals =
            || Signals { moved: 0, asked: 0, event: Some(0), period, event_idx: features.event_idx };
        Model {
            pair,
            format,
            features,
            tables: 0,
            staged: VecDeque::new(),
            offered: VecDeque::new(),
            taken: VecDeque::new(),
            given_back: VecDeque::new(),
            published: VecDeque::new(),
            consumed: 0,
            popped: 0,
            kicks: signals(),
            calls: signals(),
            first_call: features.event_idx,
        }
    }

    fn count(&self, slots: u16) -> u64 {
        if self.format == Format::Split { 1 } else { slots.into() }
    }

    fn step(&mut self, step: &Step) -> TestCaseResult {
        match step {
            Step::Add { readable, writable, indirect } => self.add(readable, writable, *indirect),
            Step::Offer => {
                self.pair.driver.publish();
                let count: u64 = self.staged.iter().map(|chain| self.count(chain.slots)).sum();
                self.offered.append(&mut self.staged);
                self.kicks.moved += count;
                prop_assert_eq!(self.pair.driver.wants_kick(), self.kicks.expected());
            }
            Step::Take { most } => {
                let available = self.pair.device.available().unwrap();
                match self.format {
                    Format::Split => prop_assert_eq!(usize::from(available), self.offered.len()),
                    Format::Packed => prop_assert_eq!(available == 0, self.offered.is_empty()),
                }
                for _ in 0..*most {
                    if !self.take()? {
                        break;
                    }
                }
            }
            Step::Untake => {
                // Only the last chain taken, if it is not given back.
                if let Some((_, chain)) = self.taken.pop_back_if(|(place, _)| *place == self.consumed) {
                    self.pair.device.untake(chain.slots);
                    self.consumed -= self.count(chain.slots);
                    self.offered.push_front(chain);
                }
            }
            Step::GiveBack { picks } => {
                for &(pick, len) in picks {
                    let index = if self.features.in_order { 0 } else { pick % self.taken.len().max(1) };
                    let Some((_, Offered { id, slots, .. })) = self.taken.remove(index) else { break };
                    self.pair.device.give_back(id, slots, len);
                    self.given_back.push_back((Used { id, len }, slots));
                }
            }
            Step::Publish => self.publish()?,
            Step::Move => {
                let memory = GuestMemory::from_regions(self.pair.shared.specs().unwrap()).unwrap();
                let areas = support::areas(&memory, self.pair.driver.config());
                // SAFETY: the areas lie in the memory, which stays mapped until the queue is dropped.
                unsafe { self.pair.device.relocate(&areas) }.unwrap();
                self.pair.memory = memory;
            }
            Step::Pop { most } => {
                for _ in 0..*most {
                    let expected = self.published.pop_front();
                    prop_assert_eq!(self.pair.driver.pop().unwrap(), expected.map(|(used, _)| used));
                    let Some((_, slots)) = expected else { break };
                    self.popped += self.count(slots);
                }
            }
            Step::Kicks(on) => {
                self.pair.device.set_kicks(*on);
                self.kicks.event = on.then_some(self.consumed);
            }
            Step::Calls(on) => {
                if self.features.in_order {
                    // With chains reported together, the driver is further in the ring than its caller may be.
                    self.step(&Step::Pop { most: usize::MAX })?;
                }
                self.pair.driver.set_calls(*on);
                self.calls.event = on.then_some(self.popped);
            }
        }
        Ok(())
    }

    fn add(&mut self, readable: &[(u64, u32)], writable: &[(u64, u32)], indirect: bool) {
        let buffers = |list: &[(u64, u32)]| {
            list.iter().map(|&(address, len)| Buffer { address, len }).collect::<Vec<_>>()
        };
        let table = (indirect && self.features.indirect).then(|| {
            self.tables += 1;
            TABLES + self.tables % (TABLES_SIZE / TABLE_STRIDE) * TABLE_STRIDE
        });
        if let Some(id) = self.pair.driver.add(&buffers(readable), &buffers(writable), table) {
            let direct = (readable.len() + writable.len()) as u16;
            let slots = if self.format == Format::Split || table.is_some() { 1 } else { direct };
            let (readable, writable) = (cut(readable), cut(writable));
            self.staged.push_back(Offered { id, slots, readable, writable });
        }
    }

    fn take(&mut self) -> Result<bool, TestCaseError> {
        let mut chain = Chain::new();
        let taken = self.pair.device.take(&self.pair.memory, &mut chain).unwrap();
        let expected = self.offered.pop_front();
        prop_assert_eq!(taken, expected.is_some());
        let Some(expected) = expected else { return Ok(false) };
        let guest = |segments: &[Segment]| segments.iter().map(|s| self.pair.guest(s)).collect::<Vec<_>>();
        let found = Offered {
            id: chain.id(),
            slots: chain.slots(),
            readable: guest(chain.readable()),
            writable: guest(chain.writable()),
        };
        prop_assert_eq!(&found, &expected);
        let sum = |list: &[(u64, u32)]| list.iter().map(|(_, len)| len).sum::<u32>();
        prop_assert_eq!(chain.readable_bytes(), sum(&found.readable));
        prop_assert_eq!(chain.writable_bytes(), sum(&found.writable));
        self.consumed += self.count(found.slots);
        self.taken.push_back((self.consumed, found));
        Ok(true)
    }

    fn publish(&mut self) -> TestCaseResult {
        let published = self.pair.device.publish();
        prop_assert_eq!(published.is_empty(), self.given_back.is_empty());
        let bytes: usize = self.pair.device.written(published).iter().map(|(_, len)| len).sum();
        let count: u64 = self.given_back.iter().map(|(_, slots)| self.count(*slots)).sum();
        match self.format {
            Format::Split if count == 0 => prop_assert_eq!(bytes, 0),
            Format::Split => prop_assert_eq!(bytes as u64, 8 * count + 2),
            Format::Packed => prop_assert_eq!(bytes as u64, 16 * count),
        }
        self.published.append(&mut self.given_back);
        self.calls.moved += count;
        let mut expected = self.calls.expected();
        if count > 0 && self.first_call {
            // The first call does not rely on earlier requests for signals.
            self.first_call = false;
            expected |= self.format == Format::Split || self.calls.event.is_some();
        }
        prop_assert_eq!(self.pair.device.wants_call(), expected);
        Ok(())
    }

    /// Completes everything and starts a second device at the end of the first.
    fn finish(&mut self) -> TestCaseResult {
        for step in [Step::Offer, Step::Take { most: usize::MAX }] {
            self.step(&step)?;
        }
        for (_, Offered { id, slots, .. }) in std::mem::take(&mut self.taken) {
            self.pair.device.give_back(id, slots, 1);
            self.given_back.push_back((Used { id, len: 1 }, slots));
        }
        self.step(&Step::Publish)?;
        self.step(&Step::Pop { most: usize::MAX })?;
        prop_assert_eq!(self.pair.driver.free(), self.pair.driver.config().size);
        let base = self.pair.device.base();
        self.pair.device = support::device(&self.pair.memory, self.pair.driver.config(), base);
        prop_assert_eq!(self.pair.device.base(), base);
        self.first_call = self.features.event_idx;
        self.pair.device.set_kicks(true);
        self.kicks.event = Some(self.consumed);
        Ok(())
    }
}

/// Returns the segments of buffers: none for an empty buffer, two for one across two regions.
fn cut(buffers: &[(u64, u32)]) -> Vec<(u64, u32)> {
    let pieces = buffers.iter().flat_map(|&(address, len)| {
        let first = (SEAM.saturating_sub(address)).min(len.into()) as u32;
        [(address, first), (address + u64::from(first), len - first)]
    });
    pieces.filter(|&(_, len)| len > 0).collect()
}

fn features() -> impl Strategy<Value = Features> {
    any::<(bool, bool, bool)>().prop_map(|(event_idx, indirect, in_order)| Features {
        event_idx,
        indirect,
        in_order,
    })
}

fn queue() -> impl Strategy<Value = (Format, u16)> {
    prop_oneof![
        prop::sample::select(vec![1, 2, 4, 8, 32, 256]).prop_map(|size| (Format::Split, size)),
        prop::sample::select(vec![1, 2, 3, 5, 8, 31, 100, 256]).prop_map(|size| (Format::Packed, size)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    /// The device takes the driver's chains unchanged and in order; the driver receives all used chains; signals go to
    /// the side that requested them; and positions may wrap at any moment.
    #[test]
    fn driver_and_device_agree(
        (format, size) in queue(),
        features in features(),
        start in prop_oneof![Just(0u16), any::<u16>(), 65500u16..],
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let mut model = Model::new(format, size, features, start);
        for half in steps.chunks(steps.len().div_ceil(2)) {
            for step in half {
                model.step(step)?;
            }
            model.finish()?;
        }
    }
}

/// Goes many times round rings of all sizes up to the largest: ids, lengths and addresses still match.
#[test]
fn many_laps_of_all_sizes() {
    let sizes = [(Format::Split, 2), (Format::Split, 1024), (Format::Split, 32768)];
    for (format, size) in sizes.into_iter().chain([1, 2, 3, 1000, 32768].map(|size| (Format::Packed, size))) {
        for in_order in [false, true] {
            let features = Features { event_idx: true, indirect: false, in_order };
            let mut model = Model::new(format, size, features, 0);
            // Enough for the 16 bits of split indices, and for two laps of the largest ring.
            let target = u64::from(size) * 2 + (1 << 17);
            let mut round = 0u32;
            while model.calls.moved < target {
                round += 1;
                let batch = (round % 97 + 1).max(u32::from(size) / 3);
                for i in 0..batch {
                    let address = BUFFERS + u64::from(i % 1000) * 7;
                    let shape = [(address, 60 + i % 100), (address + 3000, 1)];
                    let count = if size > 1 && (round + i).is_multiple_of(3) { 2 } else { 1 };
                    model.add(&shape[..count], &[], false);
                }
                let len = if round.is_multiple_of(2) { 0 } else { round };
                let picks = vec![(0, len); batch as usize];
                let steps = [
                    Step::Offer,
                    Step::Take { most: usize::MAX },
                    Step::GiveBack { picks },
                    Step::Publish,
                    Step::Pop { most: usize::MAX },
                    Step::Calls(!round.is_multiple_of(5)),
                    Step::Kicks(!round.is_multiple_of(7)),
                ];
                for step in steps {
                    model.step(&step).unwrap();
                }
            }
        }
    }
}
