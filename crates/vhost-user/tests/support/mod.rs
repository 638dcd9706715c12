//! A driver and a device on the same virtqueue.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test uses part of it")]

use std::sync::Arc;

use vhost_user::driver::{DriverConfig, DriverMemory, DriverQueue};
use vhost_user::virtqueue::{Areas, Config, Features, Format};
use vhost_user::{GuestMemory, Segment, Virtqueue};

/// Guest address of the rings, in a separate region.
pub const RINGS: u64 = 0x10_0000;
/// Guest address of two adjacent regions for buffers.
pub const BUFFERS: u64 = 0x4000_0000;
pub const SEAM: u64 = BUFFERS + BUFFERS_SIZE;
pub const BUFFERS_SIZE: u64 = 1 << 16;
/// A region for indirect tables.
pub const TABLES: u64 = 0x8000_0000;
pub const TABLES_SIZE: u64 = 1 << 20;

pub struct Pair {
    pub shared: Arc<DriverMemory>,
    pub memory: GuestMemory,
    pub driver: DriverQueue,
    pub device: Virtqueue,
}

pub fn pair(format: Format, size: u16, features: Features) -> Pair {
    pair_at(format, size, features, DriverConfig::start(format))
}

pub fn pair_at(format: Format, size: u16, features: Features, base: u32) -> Pair {
    let rings = DriverConfig::bytes(format, size);
    let regions = [(RINGS, rings), (BUFFERS, BUFFERS_SIZE), (SEAM, BUFFERS_SIZE), (TABLES, TABLES_SIZE)];
    let shared = Arc::new(DriverMemory::create("test", &regions).unwrap());
    let memory = GuestMemory::from_regions(shared.specs().unwrap()).unwrap();
    let config = DriverConfig { base, ..DriverConfig::at(RINGS, format, size, features) };
    let driver = DriverQueue::new(shared.clone(), &config).unwrap();
    let device = device(&memory, &config, base);
    Pair { shared, memory, driver, device }
}

pub fn areas(memory: &GuestMemory, config: &DriverConfig) -> Areas {
    let addresses = DriverMemory::user_addresses(&config.addresses);
    Areas::locate(memory, config.format, config.size, &addresses).unwrap()
}

pub fn device(memory: &GuestMemory, config: &DriverConfig, base: u32) -> Virtqueue {
    let areas = areas(memory, config);
    let config = Config { format: config.format, size: config.size, areas, features: config.features, base };
    // SAFETY: the areas come from `locate`; every test keeps the memory until the queue is gone.
    unsafe { Virtqueue::new(&config) }.unwrap()
}

/// Encodes a descriptor; third and fourth field depend on the format.
pub fn descriptor(address: u64, len: u32, third: u16, fourth: u16) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&address.to_le_bytes());
    bytes[8..12].copy_from_slice(&len.to_le_bytes());
    bytes[12..14].copy_from_slice(&third.to_le_bytes());
    bytes[14..].copy_from_slice(&fourth.to_le_bytes());
    bytes
}

impl Pair {
    /// Overwrites a descriptor of the ring.
    pub fn put(&self, slot: u16, bytes: [u8; 16]) {
        let table = self.driver.config().addresses.descriptors;
        assert!(self.shared.write(table + u64::from(slot) * 16, &bytes));
    }

    /// Makes chains available in a split ring by hand: writes the heads from entry 0 on, and the index.
    pub fn offer(&self, heads: &[u16], index: u16) {
        let ring = self.driver.config().addresses.driver;
        for (i, head) in heads.iter().enumerate() {
            assert!(self.shared.write(ring + 4 + 2 * i as u64, &head.to_le_bytes()));
        }
        assert!(self.shared.write(ring + 2, &index.to_le_bytes()));
    }

    /// Returns a segment by guest address, after checking that it lies in the memory.
    pub fn guest(&self, segment: &Segment) -> (u64, u32) {
        let address = self.memory.guest_address(segment.at).expect("segment lies in guest memory");
        assert_eq!(self.memory.guest(address, segment.len.into()), Some(segment.at));
        (address, segment.len)
    }
}
