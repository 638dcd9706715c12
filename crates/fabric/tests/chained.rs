//! Transmit rings whose entries are chains of buffers, whose packets have a prefix or may not continue in the next
//! entry: for any shape of the ring, each packet arrives whole, behind its prefix, and nothing else is written.
#![cfg(test)]
#![cfg(not(loom))]

mod support;

use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use fabric::{Buffer, DropReason, Egress, Fault, Output, RingBacking, TxRing};
use proptest::prelude::*;
use support::feed::{Feed, Sent};
use support::rig::{self, Hub};
use support::{frame, wait_until};

const SIZE: u32 = 64;
const PREFIX: usize = 12;
const POISON: u8 = 0xEE;

/// The receiver's memory: entries of buffers.
struct Chains {
    /// Address and length of each buffer of each entry.
    entries: Vec<Vec<(usize, usize)>>,
    memory: Mutex<Vec<u8>>,
    spans: bool,
    published: AtomicU32,
    filled: Mutex<Vec<(u32, u32, bool)>>,
}

impl Chains {
    fn new(shape: &[Vec<usize>], spans: bool) -> Arc<Self> {
        let total: usize = shape.iter().flatten().map(|len| len + 8).sum();
        let mut memory = vec![POISON; total];
        let (base, mut at) = (memory.as_mut_ptr() as usize, 0);
        let entries = (0..SIZE as usize).map(|i| {
            let buffers = shape[i].iter().map(|len| {
                at += len + 8;
                (base + at - len - 8, *len)
            });
            buffers.collect()
        });
        let entries = entries.collect();
        let (published, filled) = Default::default();
        Arc::new(Self { entries, memory: Mutex::new(memory), spans, published, filled })
    }

    fn capacity(&self, i: usize) -> usize {
        self.entries[i].iter().map(|(_, len)| len).sum()
    }

    /// The bytes of an entry, with its buffers joined.
    fn bytes(&self, i: usize) -> Vec<u8> {
        let memory = self.memory.lock().unwrap();
        let base = memory.as_ptr() as usize;
        self.entries[i].iter().flat_map(|(at, len)| memory[at - base..at - base + len].to_vec()).collect()
    }

    /// Whether bytes outside the buffers were written.
    fn is_clean(&self) -> bool {
        let memory = self.memory.lock().unwrap();
        let base = memory.as_ptr() as usize;
        self.entries
            .iter()
            .flatten()
            .all(|(at, len)| memory[at - base + len..][..8].iter().all(|b| *b == POISON))
    }
}

struct Backing(Arc<Chains>);

// SAFETY: buffers lie in a vector that the backing keeps and that is read only when the switch is done.
unsafe impl RingBacking for Backing {
    /// The next entry to be handed over.
    type Own = u32;
    /// Its number.
    type Entry = u32;

    const PREFIX: usize = PREFIX;
    const CHAINED: bool = true;
    const ONE_BY_ONE: bool = true;

    fn size(&self) -> u32 {
        SIZE
    }

    fn posted(&self, _: &mut u32, _: u32) -> Result<u32, Fault> {
        Ok(SIZE)
    }

    fn buffer(&self, _: &mut u32, seq: u32, entry: &mut u32) -> Result<Buffer, Fault> {
        *entry = seq;
        Ok(self.next_buffer(entry, 0).unwrap())
    }

    fn next_buffer(&self, entry: &u32, i: usize) -> Option<Buffer> {
        let (at, len) = *self.0.entries[*entry as usize].get(i)?;
        Some(Buffer { at: NonNull::new(at as *mut u8).unwrap(), capacity: len as u32 })
    }

    fn capacity(&self, entry: &u32, _: &Buffer) -> u32 {
        self.0.capacity(*entry as usize) as u32
    }

    fn spans_entries(&self) -> bool {
        self.0.spans
    }

    fn prefix(&self, output: &Output<'_>, entries: u16, to: &mut [u8]) {
        assert_eq!(to.len(), PREFIX);
        to.fill(0xAA);
        to[..2].copy_from_slice(&entries.to_le_bytes());
        to[2..6].copy_from_slice(&output.len().to_le_bytes());
    }

    fn fill(&self, seq: u32, entry: &mut u32, len: u32, more: bool) {
        assert_eq!(*entry, seq);
        self.0.filled.lock().unwrap().push((seq, len, more));
    }

    fn hand_over(&self, handed: &mut u32, first: &Buffer, entry: &mut u32) {
        assert_eq!((*entry, first.at), (*handed, self.next_buffer(entry, 0).unwrap().at));
        *handed += 1;
    }

    fn publish(&self, handed: &mut u32, seq: u32) {
        assert_eq!(*handed, seq, "each entry is handed over before all are published");
        self.0.published.store(seq, Ordering::Release);
    }

    fn notify(&self) -> Option<RawFd> {
        None
    }

    fn faulted(&self) -> bool {
        false
    }
}

/// Reads packets as the receiver does; each states the number of entries that it takes.
fn read(chains: &Chains) -> Vec<(u16, Vec<u8>)> {
    let (mut packets, mut packet, mut count) = (Vec::new(), Vec::new(), 0);
    for (i, (seq, len, more)) in chains.filled.lock().unwrap().iter().enumerate() {
        assert_eq!(*seq as usize, i, "entries are filled in order");
        let bytes = chains.bytes(i);
        assert!(
            *len as usize <= bytes.len() && (!more || *len as usize == bytes.len()),
            "an entry that continues is full"
        );
        assert!(
            bytes[*len as usize..].iter().all(|b| *b == POISON),
            "entry {i}: more was written than reported"
        );
        packet.extend_from_slice(&bytes[..*len as usize]);
        count += 1;
        if !more {
            let (prefix, whole) = packet.split_at(PREFIX);
            assert_eq!(u16::from_le_bytes([prefix[0], prefix[1]]), count);
            assert_eq!(prefix[2..6], (whole.len() as u32).to_le_bytes());
            packets.push((count, whole.to_vec()));
            packet.clear();
            count = 0;
        }
    }
    assert!(packet.is_empty());
    packets
}

fn shape() -> impl Strategy<Value = Vec<Vec<usize>>> {
    let one = prop_oneof![
        3 => prop::collection::vec(1usize..300, 1..6),
        2 => (200usize..3000).prop_map(|len| vec![len]),
        // The metadata in a buffer of its own, as old drivers place it.
        2 => (100usize..2000).prop_map(|len| vec![PREFIX, len]),
    ];
    prop::collection::vec(one, SIZE as usize)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn packets_arrive_whole_in_rings_of_any_shape(
        shape in shape(),
        spans: bool,
        lens in prop::collection::vec(14usize..2500, 1..40),
        cuts in prop::collection::vec(any::<usize>(), 0..4),
    ) {
        let chains = Chains::new(&shape, spans);
        let switch = rig::switch(1);
        let bridge = switch.add_bridge("b", Arc::new(Hub)).unwrap();
        let feed = Feed::new();
        rig::plug(&switch, bridge, "from", vec![feed.queue()], vec![]);
        let ring: Arc<dyn Egress> = Arc::new(TxRing::new(Backing(chains.clone()), 0, 0));
        let (to, _faults) = rig::plug(&switch, bridge, "to", vec![], vec![ring]);
        let packets: Vec<_> = (0..).zip(&lens).map(|(id, len)| frame(id, *len)).collect();
        feed.send(packets.iter().map(|packet| Sent::cut(packet, &cuts)));
        wait_until("all packets were switched", || feed.returned() == packets.len() as u64);

        let (mut next, mut expected, mut full, mut long) = (0, Vec::new(), 0, 0);
        for packet in &packets {
            let (mut end, mut room) = (next, 0);
            while room < packet.len() + PREFIX && end < SIZE as usize && (spans || end == next) {
                room += chains.capacity(end);
                end += 1;
            }
            if room >= packet.len() + PREFIX {
                expected.push(((end - next) as u16, packet.clone()));
                next = end;
            } else if next == SIZE as usize || spans {
                full += 1;
            } else {
                long += 1;
            }
        }
        prop_assert_eq!(read(&chains), expected);
        prop_assert!(chains.is_clean());
        prop_assert_eq!(chains.published.load(Ordering::Acquire) as usize, next);
        prop_assert_eq!(rig::drops(&switch, to, DropReason::RingFull), full);
        prop_assert_eq!(rig::drops(&switch, to, DropReason::ExceedsMtu), long);
    }
}
