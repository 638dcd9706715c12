//! The device's side of a virtqueue, split and packed, under a hostile driver.
//!
//! The input is a list of what happens: the driver offers chains as an honest one would, or writes anything anywhere in
//! the memory (descriptors, tables, indices, requests for signals); the device takes, undoes, gives back, publishes.
//!
//! Held invariant:
//! - No panic, and an end to every chain.
//! - Each segment lies in one region; a chain has at most as many as it may.
//! - The device writes its own area, and in a packed virtqueue the descriptors: nothing else.
//! - While nobody wrote over anything, what was offered is taken as it is, and no rule is broken.
#![no_main]

use std::collections::VecDeque;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use support::Bytes;
use vhost_user::driver::{Buffer, DriverConfig, DriverMemory, DriverQueue};
use vhost_user::virtqueue::{Areas, Config, Features, Format, MAX_CHAIN};
use vhost_user::{Chain, GuestMemory, Virtqueue};

/// Where the rings are.
const RINGS: u64 = 0x1_0000;
/// Two regions that touch, for buffers and tables.
const BUFFERS: u64 = 0x10_0000;
const BUFFERS_SIZE: u64 = 0x1800;
const SEAM: u64 = BUFFERS + BUFFERS_SIZE;
const REGIONS: [(u64, u64); 3] = [(RINGS, 0x1000), (BUFFERS, BUFFERS_SIZE), (SEAM, BUFFERS_SIZE)];
/// Most operations of an input.
const MOST: usize = 200;

struct Memory {
    shared: Arc<DriverMemory>,
    guest: GuestMemory,
}

thread_local! {
    /// Mapped once, wiped for every input.
    static MEMORY: Memory = Memory::new();
}

impl Memory {
    fn new() -> Self {
        let shared = match DriverMemory::create("fuzz", &REGIONS) {
            Ok(shared) => Arc::new(shared),
            Err(error) => panic!("no memory: {error}"),
        };
        let guest = match GuestMemory::from_regions(shared.specs().unwrap_or_default()) {
            Ok(guest) => guest,
            Err(error) => panic!("no table: {error}"),
        };
        Self { shared, guest }
    }

    /// All bytes, region after region.
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
    config: DriverConfig,
    driver: DriverQueue,
    device: Virtqueue,
    honest: bool,
    /// While honest: id and segments of what was offered, the last `staged` of which the device cannot see yet.
    offered: VecDeque<(u16, Vec<(u64, u32)>)>,
    staged: usize,
    taken: VecDeque<(u16, u16)>,
    /// What the memory should hold.
    expected: Vec<Vec<u8>>,
}

fuzz_target!(|data: &[u8]| {
    let mut input = Bytes::new(data);
    MEMORY.with(|memory| {
        if let Some(mut world) = World::new(memory, &mut input) {
            world.run(&mut input);
        }
    });
});

impl<'m> World<'m> {
    fn new(memory: &'m Memory, input: &mut Bytes<'_>) -> Option<Self> {
        let bits = input.u8();
        let features =
            Features { event_idx: bits & 2 != 0, indirect: bits & 4 != 0, in_order: bits & 8 != 0 };
        let size = u16::from(input.u8());
        let start = input.u16();
        let (format, size, base) = if bits & 1 == 0 {
            (Format::Split, 1 << (size % 8), start.into())
        } else {
            let size = size % 128 + 1;
            let position = (start & 0x8000) | (start & 0x7fff) % size;
            (Format::Packed, size, u32::from(position) * 0x1_0001)
        };
        for (start, size) in REGIONS {
            memory.shared.write(start, &vec![0; size as usize]);
        }
        let config = DriverConfig { base, ..DriverConfig::at(RINGS, format, size, features) };
        let driver = DriverQueue::new(memory.shared.clone(), &config).ok()?;
        let addresses = DriverMemory::user_addresses(&config.addresses);
        let areas = Areas::locate(&memory.guest, format, size, &addresses).ok()?;
        // SAFETY: located in the table, which lives as long as the thread.
        let device = unsafe { Virtqueue::new(&Config { format, size, areas, features, base }) }.ok()?;
        let expected = memory.bytes();
        let (offered, taken) = (VecDeque::new(), VecDeque::new());
        Some(Self { memory, config, driver, device, honest: true, offered, staged: 0, taken, expected })
    }

    fn run(&mut self, input: &mut Bytes<'_>) {
        let mut chain = Chain::new();
        for _ in 0..MOST {
            if input.is_empty() {
                break;
            }
            match input.below(12) {
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
                    while self.honest {
                        match self.driver.pop() {
                            Ok(Some(_)) => {}
                            Ok(None) => break,
                            Err(error) => panic!("an honest device: {error}"),
                        }
                    }
                }
                10 => self.device.set_kicks(input.flag()),
                _ => {
                    // What was never taken, and undoing: a caller that errs.
                    self.honest = false;
                    if input.flag() {
                        self.device.untake(input.u16());
                    } else {
                        self.device.give_back(input.u16(), input.u16(), input.u32());
                    }
                }
            }
            self.check();
        }
        // With nobody writing any more, it comes to an end.
        let more = (0..=2 * u32::from(self.config.size)).take_while(|_| self.take(&mut chain)).count();
        assert!(more <= 2 * usize::from(self.config.size), "chains without end");
        self.check();
    }

    /// Offers a chain as an honest driver would.
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
        // A table may lie over one that is still needed.
        self.honest &= table.is_none();
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

    /// Writes anything anywhere.
    fn scribble(&mut self, input: &mut Bytes<'_>) {
        let (region, at) = (input.u8(), u64::from(input.u16()));
        let (start, size) = REGIONS[usize::from(region) % 3];
        let bytes = input.array::<4>();
        self.write(start + at % (size - 4), &bytes[..1 + usize::from(region >> 6)]);
    }

    /// Writes a descriptor that may make sense.
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
        self.honest = false;
        assert!(self.memory.shared.write(at, bytes));
        self.expected = self.memory.bytes();
    }

    /// Takes one chain and looks at all of it; whether there was one.
    fn take(&mut self, chain: &mut Chain) -> bool {
        let visible = self.offered.len() - self.staged;
        match self.device.take(&self.memory.guest, chain) {
            Ok(true) => {}
            Ok(false) => {
                assert!(!self.honest || visible == 0, "a chain was not seen");
                return false;
            }
            Err(error) => {
                assert!(!self.honest, "an honest driver: {error}");
                return false;
            }
        }
        let segments: Vec<_> = chain.readable().iter().chain(chain.writable()).collect();
        assert!(segments.len() <= MAX_CHAIN);
        let mut found = Vec::new();
        for segment in segments {
            let Some(address) = self.memory.guest.guest_address(segment.at) else { panic!("outside") };
            assert_eq!(self.memory.guest.guest(address, segment.len.into()), Some(segment.at));
            found.push((address, segment.len));
        }
        if self.honest {
            assert_eq!(self.offered.pop_front(), Some((chain.id(), found)));
        }
        self.taken.push_back((chain.id(), chain.slots()));
        true
    }

    /// What the device must not write is as it was.
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

/// What becomes of a buffer: without bytes nothing, across two regions two pieces.
fn cut(buffer: &Buffer) -> Vec<(u64, u32)> {
    let first = SEAM.saturating_sub(buffer.address).min(buffer.len.into()) as u32;
    let pieces = [(buffer.address, first), (buffer.address + u64::from(first), buffer.len - first)];
    pieces.into_iter().filter(|&(_, len)| len > 0).collect()
}
