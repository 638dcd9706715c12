//! The flows of one worker since they were last collected: a table of fixed size.
//!
//! Flows are in the order in which they came; an index finds the one of a key in at most [`PROBES`] steps, whatever
//! packets a sender makes up. A flow that the index has no place for gets an entry for each of its packets, which are
//! added up when they are collected. When the page is full, packets of new flows are not accounted, and are counted.
//!
//! Invariant: nothing here allocates once a page exists.

use crate::counts::Counts;
use crate::key::FlowKey;

/// Flows of a page.
pub(crate) const ENTRIES: usize = 8192;
/// Places of the index: a power of two, and less than half of them are taken.
const PLACES: usize = 2 * ENTRIES;
/// Steps of a search at most.
const PROBES: usize = 8;

/// A flow and what was counted of it.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// What its packets have in common.
    pub key: FlowKey,
    /// What was counted of them.
    pub counts: Counts,
}

/// See the module.
pub(crate) struct Page {
    entries: Vec<Entry>,
    /// Number of an entry plus 1; 0: a free place.
    index: Box<[u16]>,
    /// Keeps senders from choosing keys that get in each other's way.
    secret: u64,
}

impl Page {
    pub(crate) fn new() -> Self {
        // The kernel makes zeroed memory on first use.
        let index = vec![0; PLACES].into();
        Self { entries: Vec::with_capacity(ENTRIES), index, secret: fastrand::u64(..) }
    }

    /// Counts a packet; with `merges`, together with others of the same key. False if the page is full.
    #[inline]
    pub(crate) fn count(&mut self, key: &FlowKey, counts: &Counts, merges: bool) -> bool {
        let mut free = None;
        if merges {
            let start = hash(key, self.secret) as usize % PLACES;
            for step in 0..PROBES {
                let place = (start + step) % PLACES;
                match self.index.get(place) {
                    Some(0) => {
                        free = Some(place);
                        break;
                    }
                    Some(number) => {
                        if let Some(entry) = self.entries.get_mut(usize::from(*number) - 1)
                            && entry.key == *key
                        {
                            entry.counts.add(counts);
                            return true;
                        }
                    }
                    None => break,
                }
            }
        }
        if self.entries.len() >= ENTRIES {
            return false;
        }
        self.entries.push(Entry { key: *key, counts: *counts });
        if let Some(place) = free.and_then(|place| self.index.get_mut(place)) {
            *place = self.entries.len() as u16;
        }
        true
    }

    /// The flows.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Forgets all flows.
    pub(crate) fn clear(&mut self) {
        if !self.entries.is_empty() {
            self.entries.clear();
            self.index.fill(0);
        }
    }
}

/// Folds the words by multiplication, as the wyhash family does.
#[inline]
fn hash(key: &FlowKey, secret: u64) -> u64 {
    // Digits of pi.
    const FACTOR: u64 = 0x243f_6a88_85a3_08d3;
    let fold = |hash: u64, word: u64| {
        let product = u128::from(hash ^ word) * u128::from(FACTOR);
        product as u64 ^ (product >> 64) as u64
    };
    let [a, b, c, d, e, f, g, h, i] = key.words();
    let pairs = [(a, b), (c, d), (e, f), (g, h)];
    let hash = pairs.iter().fold(secret, |hash, (one, two)| fold(hash, one ^ two.rotate_left(32)));
    fold(hash, i)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::tests::{frame, ipv4};
    use crate::key::{Detail, Facts};

    fn key(port: u16) -> FlowKey {
        let mut udp = port.to_be_bytes().to_vec();
        udp.resize(8, 0);
        let bytes = frame(&[], 0x0800, &ipv4(17, &udp));
        Facts::read(&bytes, bytes.len() as u32, Detail::Ipv4).unwrap().key
    }

    fn one(octets: u32) -> Counts {
        Counts::of_packet(7, octets + 14, octets, 0, false)
    }

    #[test]
    fn packets_of_a_flow_are_added_up() {
        let mut page = Page::new();
        for round in 1..=3 {
            for port in 0..5000 {
                assert!(page.count(&key(port), &one(round), true));
            }
        }
        // A few flows may find no place in the index.
        assert!((5000..5100).contains(&page.entries().len()), "{}", page.entries().len());
        let sum = page.entries().iter().map(|entry| (entry.counts.packets, entry.counts.octets));
        assert_eq!(sum.fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1)), (15_000, 30_000));
        page.clear();
        assert!(page.entries().is_empty());
        assert!(page.count(&key(1), &one(1), true) && page.entries().len() == 1);
    }

    #[test]
    fn a_full_page_still_counts_packets_of_its_flows() {
        let mut page = Page::new();
        let mut port = 0;
        while page.count(&key(port), &one(1), true) {
            port += 1;
        }
        assert_eq!(page.entries().len(), ENTRIES);
        assert!(page.count(&key(0), &one(1), true));
        assert!(!page.count(&key(0), &one(1), false), "a record of its own has no place");
    }

    #[test]
    fn packets_that_are_not_merged_have_entries_of_their_own() {
        let mut page = Page::new();
        assert!((0..3).all(|_| page.count(&key(1), &one(1), false)));
        assert_eq!(page.entries().len(), 3);
    }

    #[test]
    fn equal_hashes_do_not_make_searches_long() {
        let mut page = Page::new();
        // All keys at one place of the index.
        page.index.fill(1);
        assert!(page.count(&key(1), &one(1), true));
        assert!(page.count(&key(2), &one(1), true));
        assert_eq!(page.entries().len(), 2);
    }
}
