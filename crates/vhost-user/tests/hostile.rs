//! A driver that overwrites the shared memory at any moment: the device's results stay in bounds, and it terminates.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use support::{BUFFERS, Pair, RINGS, SEAM, TABLES, descriptor, pair_at};
use vhost_user::driver::DriverConfig;
use vhost_user::virtqueue::{Features, Format, MAX_CHAIN};
use vhost_user::{Chain, Virtqueue};

/// A write over the shared memory.
#[derive(Debug, Clone)]
enum Scribble {
    /// A descriptor of the ring or of a table.
    Descriptor { table: bool, slot: u16, bytes: [u8; 16] },
    /// The first bytes of the driver area: flags and index, or a packed ring's event suppression.
    Driver { low: u16, high: u16 },
    /// An available entry, or the field after the last.
    Entry { slot: u16, head: u16 },
    /// Any byte of the rings.
    Byte { at: u64, value: u8 },
}

#[derive(Debug, Clone)]
enum Step {
    Scribble(Scribble),
    Available,
    Take,
    Untake,
    GiveBack { id: u16, slots: u16, len: u32 },
    Publish,
    Kicks(bool),
}

/// Descriptors that mostly pass several checks before they are refused.
fn bytes(format: Format) -> impl Strategy<Value = [u8; 16]> {
    let address = prop_oneof![
        6 => (0u64..0x1_8000).prop_map(|offset| BUFFERS + offset),
        3 => (0u64..64).prop_map(|offset| TABLES + 8 * offset),
        1 => (0u64..64).prop_map(|offset| SEAM - offset),
        1 => any::<u64>(),
    ];
    let len = prop_oneof![4 => 0u32..2000, 3 => (1u32..70).prop_map(|n| 16 * n), 1 => any::<u32>()];
    let low_flags =
        prop_oneof![3 => Just(0u16), 3 => Just(1), 1 => Just(2), 1 => Just(3), 2 => Just(4), 1 => 0u16..8];
    let lap = prop_oneof![4 => Just(0x80u16), 2 => Just(0x8000), 1 => any::<u16>()];
    let other = prop_oneof![5 => 0u16..16, 1 => any::<u16>()];
    (address, len, low_flags, lap, other).prop_map(move |(address, len, flags, lap, other)| match format {
        Format::Split => descriptor(address, len, flags, other),
        Format::Packed => descriptor(address, len, other, flags | lap),
    })
}

fn scribble(format: Format) -> impl Strategy<Value = Scribble> {
    prop_oneof![
        6 => (any::<bool>(), 0u16..70, bytes(format))
            .prop_map(|(table, slot, bytes)| Scribble::Descriptor { table, slot, bytes }),
        2 => (any::<u16>(), prop_oneof![0u16..20, any::<u16>()])
            .prop_map(|(low, high)| Scribble::Driver { low, high }),
        1 => (any::<u16>(), prop_oneof![5 => 0u16..16, 1 => any::<u16>()])
            .prop_map(|(slot, head)| Scribble::Entry { slot, head }),
        1 => (any::<u64>(), any::<u8>()).prop_map(|(at, value)| Scribble::Byte { at, value }),
    ]
}

fn step(format: Format) -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => scribble(format).prop_map(Step::Scribble),
        1 => Just(Step::Available),
        4 => Just(Step::Take),
        1 => Just(Step::Untake),
        // Includes chains that were never taken: even a faulty port must not write outside the memory.
        2 => (any::<u16>(), prop_oneof![0u16..4, any::<u16>()], any::<u32>())
            .prop_map(|(id, slots, len)| Step::GiveBack { id, slots, len }),
        1 => Just(Step::Publish),
        1 => any::<bool>().prop_map(Step::Kicks),
    ]
}

fn apply(pair: &Pair, scribble: &Scribble) {
    let DriverConfig { format, size, addresses, .. } = *pair.driver.config();
    match *scribble {
        Scribble::Descriptor { table: true, slot, bytes } => {
            assert!(pair.shared.write(TABLES + u64::from(slot) * 16, &bytes));
        }
        Scribble::Descriptor { table: false, slot, bytes } => pair.put(slot % size, bytes),
        Scribble::Driver { low, high } => {
            let bytes = u32::from(low) | u32::from(high) << 16;
            assert!(pair.shared.write(addresses.driver, &bytes.to_le_bytes()));
        }
        Scribble::Entry { slot, head } if format == Format::Split => {
            let at = addresses.driver + 4 + 2 * u64::from(slot % (size + 1));
            assert!(pair.shared.write(at, &head.to_le_bytes()));
        }
        Scribble::Entry { .. } => {}
        Scribble::Byte { at, value } => {
            assert!(pair.shared.write(RINGS + at % DriverConfig::bytes(format, size), &[value]));
        }
    }
}

/// Takes one chain and checks all of it. Returns the slots, if there was one.
fn take(pair: &mut Pair, chain: &mut Chain) -> Result<Option<u16>, TestCaseError> {
    let Ok(taken) = pair.device.take(&pair.memory, chain) else { return Ok(None) };
    if !taken {
        return Ok(None);
    }
    prop_assert!(chain.readable().len() + chain.writable().len() <= MAX_CHAIN);
    for (segments, bytes) in
        [(chain.readable(), chain.readable_bytes()), (chain.writable(), chain.writable_bytes())]
    {
        // `guest` asserts that each segment lies within one region.
        let sum: u64 = segments.iter().map(|segment| u64::from(pair.guest(segment).1)).sum();
        prop_assert_eq!(sum, u64::from(bytes));
        prop_assert!(segments.iter().all(|segment| segment.len > 0));
    }
    let size = pair.driver.config().size;
    prop_assert!((1..=size).contains(&chain.slots()));
    Ok(Some(chain.slots()))
}

fn written_within(pair: &Pair, device: &Virtqueue, size: u16, format: Format) -> TestCaseResult {
    let (at, len) = device.device_area();
    let address = pair.memory.guest_address(at).unwrap();
    prop_assert_eq!(address, pair.driver.config().addresses.device);
    prop_assert_eq!(len, vhost_user::virtqueue::Areas::lengths(format, size)[2]);
    Ok(())
}

fn formats() -> impl Strategy<Value = Format> {
    prop::sample::select(vec![Format::Split, Format::Packed])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn all_access_stays_in_bounds(
        (format, steps) in formats().prop_flat_map(|f| (Just(f), prop::collection::vec(step(f), 1..120))),
        log2 in 0u32..5,
        features in any::<(bool, bool, bool)>(),
        start in any::<u16>(),
    ) {
        let size = 1u16 << log2;
        let features = Features { event_idx: features.0, indirect: features.1, in_order: features.2 };
        let base = match format {
            Format::Split => start.into(),
            Format::Packed => u32::from((start & 0x8000) | (start % size)) * 0x1_0001,
        };
        let mut pair = pair_at(format, size, features, base);
        let mut chain = Chain::new();
        let mut last = 0;
        for step in &steps {
            match *step {
                Step::Scribble(ref scribble) => apply(&pair, scribble),
                Step::Available => {
                    if let Ok(count) = pair.device.available() {
                        prop_assert!(count <= size);
                    }
                }
                Step::Take => last = take(&mut pair, &mut chain)?.unwrap_or(last),
                Step::Untake => pair.device.untake(last),
                Step::GiveBack { id, slots, len } => pair.device.give_back(id, slots, len),
                Step::Publish => {
                    let published = pair.device.publish();
                    for (at, len) in pair.device.written(published) {
                        if len > 0 {
                            let address = pair.memory.guest_address(at).unwrap();
                            prop_assert!(address >= RINGS);
                            prop_assert!(address + len as u64 <= RINGS + DriverConfig::bytes(format, size));
                        }
                    }
                    pair.device.wants_call();
                }
                Step::Kicks(on) => pair.device.set_kicks(on),
            }
            // Even after errors, the device's base is a position in the ring.
            if format == Format::Packed {
                prop_assert!((pair.device.base() as u16 & 0x7fff) < size);
            }
        }
        written_within(&pair, &pair.device, size, format)?;
        // Once writes stop, the device finishes within a lap or two.
        let more = (0..3 * u32::from(size)).map(|_| take(&mut pair, &mut chain)).take_while(|taken| !matches!(taken, Ok(None)));
        prop_assert!(more.count() <= 2 * usize::from(size));
    }

    /// The driver's side trusts the device no more than the device trusts the driver.
    #[test]
    fn a_hostile_device_is_noticed(
        format in formats(),
        in_order in any::<bool>(),
        scribbles in prop::collection::vec((any::<u64>(), any::<u8>()), 0..40),
    ) {
        let features = Features { event_idx: true, indirect: true, in_order };
        let mut pair = support::pair(format, 8, features);
        let buffer = vhost_user::driver::Buffer { address: BUFFERS, len: 10 };
        let bytes = DriverConfig::bytes(format, 8);
        let mut outstanding = 0;
        for (at, value) in scribbles {
            if pair.driver.add(&[buffer], &[], None).is_some() {
                outstanding += 1;
            }
            pair.driver.publish();
            pair.driver.wants_kick();
            assert!(pair.shared.write(RINGS + at % bytes, &[value]));
            while let Ok(Some(used)) = pair.driver.pop() {
                prop_assert!(used.id < 8 && outstanding > 0);
                outstanding -= 1;
            }
            pair.driver.set_calls(value & 1 != 0);
        }
        prop_assert!(pair.driver.free() <= 8);
    }
}
