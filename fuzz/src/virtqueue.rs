//! The device side of a virtqueue under a hostile driver; shared by the targets of both formats.
//!
//! The input is a list of events: the driver offers valid chains or writes arbitrary data (looping descriptors, tables,
//! jumping indices, requests for signals); the device takes chains, undoes that, gives chains back, publishes, and
//! continues with another mapping of the same memory.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::Bytes;
use vhost_user::driver::{Buffer, DriverConfig, DriverMemory, DriverQueue};
use vhost_user::virtqueue::{Addresses, Areas, Config, Features, Format, MAX_CHAIN};
use vhost_user::{Chain, GuestMemory, Virtqueue};

/// Guest address of the rings.
const RINGS: u64 = 0x1_0000;
/// Two adjacent regions for buffers and tables.
const BUFFERS: u64 = 0x10_0000;
const BUFFERS_SIZE: u64 = 0x1800;
const SEAM: u64 = BUFFERS + BUFFERS_SIZE;
const REGIONS: [(u64, u64); 3] = [(RINGS, 0x1000), (BUFFERS, BUFFERS_SIZE), (SEAM, BUFFERS_SIZE)];
/// Most operations in an input.
const MOST: usize = 200;

struct Memory {
    shared: Arc<DriverMemory>,
    /// Two tables of the same memory, mapped at different addresses.
    tables: [GuestMemory; 2],
}

thread_local! {
    /// Mapped once, zeroed for each input.
    static MEMORY: Memory = Memory::new();
}

impl Memory {
    fn new() -> Self {
        let shared = match DriverMemory::create("fuzz", &REGIONS) {
            Ok(shared) => Arc::new(shared),
            Err(error) => panic!("cannot create memory: {error}"),
        };
        let table = || match GuestMemory::from_regions(shared.specs().unwrap_or_default()) {
            Ok(guest) => guest,
            Err(error) => panic!("cannot create a memory table: {error}"),
        };
        let tables = [table(), table()];
        Self { shared, tables }
    }

    /// All bytes, region by region.
    fn bytes(&self) -> Vec<Vec<u8>> {
        let region = |&(start, size): &(u64, u64)| {
            let mut bytes = vec![0; size as usize];
            assert!(self.shared.read(start, &mut bytes));
            bytes
        };
        REGIONS.iter().map(region).collect()
    }
}

struct World<'m> {
    memory: &'m Memory,
    /// Index of the table in use.
    table: usize,
    config: DriverConfig,
    driver: DriverQueue,
    device: Virtqueue,
    correct: bool,
    /// While the driver is correct: id and segments of each offered chain; the last `staged` are not published yet.
    offered: VecDeque<(u16, Vec<(u64, u32)>)>,
    staged: usize,
    taken: VecDeque<(u16, u16)>,
    /// Expected content of the memory.
    expected: Vec<Vec<u8>>,
}

/// Runs the operations of an input.
pub fn run(format: Format, data: &[u8]) {
    let mut input = Bytes::new(data);
    MEMORY.with(|memory| {
        if let Some(mut world) = World::new(memory, format, &mut input) {
            world.run(&mut input);
        }
    });
}

impl<'m> World<'m> {
    fn new(memory: &'m Memory, format: Format, input: &mut Bytes<'_>) -> Option<Self> {
        let bits = input.u8();
        let features =
            Features { event_idx: bits & 2 != 0, indirect: bits & 4 != 0, in_order: bits & 8 != 0 };
        let size = u16::from(input.u8());
        let start = input.u16();
        let (size, base) = match format {
            Format::Split => (1 << (size % 8), start.into()),
            Format::Packed => {
                let size = size % 128 + 1;
                let position = (start & 0x8000) | ((start & 0x7fff) % size);
                (size, u32::from(position) * 0x1_0001)
            }
        };
        for (start, size) in REGIONS {
            memory.shared.write(start, &vec![0; size as usize]);
        }
        let config = DriverConfig { base, ..DriverConfig::at(RINGS, format, size, features) };
        let driver = DriverQueue::new(memory.shared.clone(), &config).ok()?;
        let addresses = DriverMemory::user_addresses(&config.addresses);
        let areas = Areas::locate(&memory.tables[0], format, size, &addresses).ok()?;
        if bits & 0x10 != 0 {
            anywhere(&memory.tables[0], format, features, input);
        }
        // SAFETY: located in the table, which lives as long as the thread.
        let device = unsafe { Virtqueue::new(&Config { format, size, areas, features, base }) }.ok()?;
        let expected = memory.bytes();
        let (offered, taken) = (VecDeque::new(), VecDeque::new());
        Some(Self {
            memory,
            table: 0,
            config,
            driver,
            device,
            correct: true,
            offered,
            staged: 0,
            taken,
            expected,
        })
    }

    fn run(&mut self, input: &mut Bytes<'_>) {
        let mut chain = Chain::new();
        for _ in 0..MOST {
            if input.is_empty() {
                break;
            }
            let choice = input.u8();
            match if choice < 240 { choice % 12 } else { choice } {
                0..=2 => self.offer(input),
                3 => self.scribble(input),
                4 => self.descriptor(input),
                5..=7 => {
                    self.take(&mut chain);
                }
                8 => {
                    if let Some((id, slots)) = self.taken.pop_front() {
                        self.device.give_back(id, slots, input.u16().into());
                    }
                }
                9 => {
                    self.device.publish();
                    self.device.wants_call();
                    while self.correct {
                        match self.driver.pop() {
                            Ok(Some(_)) => {}
                            Ok(None) => break,
                            Err(error) => panic!("the device broke the protocol: {error}"),
                        }
                    }
                }
                10 => self.device.set_kicks(input.flag()),
                240..=243 => self.jump(input),
                244..=246 => self.relocate(),
                247..=249 => {
                    let available = self.device.available();
                    assert!(available.is_ok() || !self.correct);
                    assert!(available.is_ok_and(|n| n <= self.config.size) || !self.correct);
                }
                250..=252 => self.link(input),
                _ => {
                    // A faulty caller: gives back chains that were never taken, or undoes too much.
                    self.correct = false;
                    if input.flag() {
                        self.device.untake(input.u16());
                    } else {
                        self.device.give_back(input.u16(), input.u16(), input.u32());
                    }
                }
            }
            self.check();
        }
        // Without further writes, the chains end.
        let more = (0..=2 * u32::from(self.config.size)).take_while(|_| self.take(&mut chain)).count();
        assert!(more <= 2 * usize::from(self.config.size), "endless chains");
        self.check();
    }

    /// Offers a chain as a correct driver would.
    fn offer(&mut self, input: &mut Bytes<'_>) {
        let shape = input.u8();
        let mut buffer = || Buffer {
            address: BUFFERS + u64::from(input.u16()) % (2 * BUFFERS_SIZE - 256),
            len: u32::from(input.u8()),
        };
        let readable: Vec<_> = (0..shape & 3).map(|_| buffer()).collect();
        let writable: Vec<_> = (0..shape >> 2 & 3).map(|_| buffer()).collect();
        let table = BUFFERS + u64::from(input.u16()) % (2 * BUFFERS_SIZE - 128);
        let table = (self.config.features.indirect && shape & 16 != 0).then_some(table);
        // The table may overwrite one that is still in use.
        self.correct &= table.is_none();
        if let Some(id) = self.driver.add(&readable, &writable, table) {
            self.offered.push_back((id, readable.iter().chain(&writable).flat_map(cut).collect()));
            self.staged += 1;
        }
        if shape & 32 != 0 {
            self.driver.publish();
            self.driver.wants_kick();
            self.staged = 0;
        }
        self.expected = self.memory.bytes();
    }

    /// Overwrites the index (split) or a descriptor's flags (packed).
    fn jump(&mut self, input: &mut Bytes<'_>) {
        let (slot, value) = (u16::from(input.u8()), input.u16());
        let at = match self.config.format {
            Format::Split => self.config.addresses.driver + 2,
            Format::Packed => {
                self.config.addresses.descriptors + u64::from(slot % self.config.size) * 16 + 14
            }
        };
        self.write(at, &value.to_le_bytes());
    }

    /// Writes a descriptor with a next link: loops and excessive chains.
    fn link(&mut self, input: &mut Bytes<'_>) {
        let (slot, next) = (u16::from(input.u8()) % self.config.size, u16::from(input.u8()));
        let at = self.config.addresses.descriptors + u64::from(slot) * 16;
        let flags: u16 = match self.config.format {
            Format::Split => 1,
            Format::Packed => {
                let lap = u16::from(input.u8());
                1 | (lap & 1) << 7 | (lap & 2) << 14
            }
        };
        let (third, fourth) = match self.config.format {
            Format::Split => (flags, next % (self.config.size + 1)),
            Format::Packed => (next, flags),
        };
        let address = BUFFERS + u64::from(slot) * 8;
        let rest = 8 | u64::from(third) << 32 | u64::from(fourth) << 48;
        self.write(at, &[address.to_le_bytes(), rest.to_le_bytes()].concat());
    }

    /// Continues with the same memory at another address, as after a new memory table.
    fn relocate(&mut self) {
        let other = 1 - self.table;
        let DriverConfig { format, size, addresses, .. } = self.config;
        let addresses = DriverMemory::user_addresses(&addresses);
        let table = &self.memory.tables[other];
        let Ok(areas) = Areas::locate(table, format, size, &addresses) else {
            panic!("the rings are not in the other table")
        };
        let before = self.device.base();
        // SAFETY: located in the table, which lives as long as the thread.
        let moved = unsafe { self.device.relocate(&areas) };
        assert!(moved.is_ok() && self.device.base() == before);
        self.table = other;
    }

    /// Writes arbitrary bytes to any place.
    fn scribble(&mut self, input: &mut Bytes<'_>) {
        let (region, at) = (input.u8(), u64::from(input.u16()));
        let (start, size) = REGIONS[usize::from(region) % 3];
        let bytes = input.array::<4>();
        self.write(start + at % (size - 4), &bytes[..1 + usize::from(region >> 6)]);
    }

    /// Writes a descriptor that may be valid.
    fn descriptor(&mut self, input: &mut Bytes<'_>) {
        let place = input.u8();
        let at = if place & 0x80 == 0 {
            self.config.addresses.descriptors + u64::from(u16::from(place) % self.config.size) * 16
        } else {
            BUFFERS + u64::from(place & 0x7f) * 16
        };
        let address = match input.u16() {
            0xffff => input.u64(),
            offset => BUFFERS + u64::from(offset) % (2 * BUFFERS_SIZE + 16),
        };
        let bytes =
            [&address.to_le_bytes()[..], &u32::from(input.u16()).to_le_bytes(), &input.array::<4>()].concat();
        self.write(at, &bytes);
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        self.correct = false;
        assert!(self.memory.shared.write(at, bytes));
        self.expected = self.memory.bytes();
    }

    /// Takes one chain and checks all of it; returns whether there was one.
    fn take(&mut self, chain: &mut Chain) -> bool {
        let visible = self.offered.len() - self.staged;
        let table = &self.memory.tables[self.table];
        match self.device.take(table, chain) {
            Ok(true) => {}
            Ok(false) => {
                assert!(!self.correct || visible == 0, "a published chain was not taken");
                return false;
            }
            Err(error) => {
                assert!(!self.correct, "a correct driver was refused: {error}");
                return false;
            }
        }
        let segments: Vec<_> = chain.readable().iter().chain(chain.writable()).collect();
        assert!(segments.len() <= MAX_CHAIN);
        let mut found = Vec::new();
        for segment in segments {
            let Some(address) = table.guest_address(segment.at) else {
                panic!("a segment outside the memory table")
            };
            assert_eq!(table.guest(address, segment.len.into()), Some(segment.at));
            found.push((address, segment.len));
        }
        if self.correct {
            assert_eq!(self.offered.pop_front(), Some((chain.id(), found)));
        }
        self.taken.push_back((chain.id(), chain.slots()));
        true
    }

    /// Asserts that memory that the device must not write is unchanged.
    fn check(&mut self) {
        let now = self.memory.bytes();
        let [descriptors, _, device] = Areas::lengths(self.config.format, self.config.size);
        let offset = |address: u64| (address - RINGS) as usize;
        let own = offset(self.config.addresses.device)..offset(self.config.addresses.device) + device;
        let both = 0..if self.config.format == Format::Packed { descriptors } else { 0 };
        let Some((rings, expected)) = now.first().zip(self.expected.first()) else { return };
        let mut from = both.end;
        for (until, next) in [(own.start, own.end), (rings.len(), rings.len())] {
            assert!(rings[from..until] == expected[from..until], "rings changed within {from}..{until}");
            from = next;
        }
        assert!(now[1..] == self.expected[1..], "buffers changed");
    }
}

/// A queue of any size, base and place: refused, or within the memory and at the given place.
fn anywhere(table: &GuestMemory, format: Format, features: Features, input: &mut Bytes<'_>) {
    let (size, base) = (input.u16(), input.u32());
    let mut place = || RINGS + u64::from(input.u16()) % 0x1010;
    let addresses = Addresses { descriptors: place(), driver: place(), device: place() };
    let Ok(areas) = Areas::locate(table, format, size, &DriverMemory::user_addresses(&addresses)) else {
        return;
    };
    let parts = [areas.descriptors, areas.driver, areas.device];
    let places = [addresses.descriptors, addresses.driver, addresses.device];
    for (i, part) in parts.into_iter().enumerate() {
        assert_eq!(table.guest_address(part), Some(places[i]));
        let len = Areas::lengths(format, size)[i] as u64;
        assert!(
            places[i].is_multiple_of(Areas::alignments(format)[i] as u64)
                && places[i] + len <= RINGS + 0x1000
        );
    }
    // SAFETY: located in the table, which lives as long as the thread.
    let Ok(queue) = (unsafe { Virtqueue::new(&Config { format, size, areas, features, base }) }) else {
        return;
    };
    let position = queue.base();
    assert!(format == Format::Packed || position == base);
    assert!(format == Format::Split || position & 0x7fff < size.into());
}

/// Expected segments of a buffer: none if it is empty, two if it spans two regions.
fn cut(buffer: &Buffer) -> Vec<(u64, u32)> {
    let first = SEAM.saturating_sub(buffer.address).min(buffer.len.into()) as u32;
    let pieces = [(buffer.address, first), (buffer.address + u64::from(first), buffer.len - first)];
    pieces.into_iter().filter(|&(_, len)| len > 0).collect()
}
