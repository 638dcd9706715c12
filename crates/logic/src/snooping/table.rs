//! Who is in which group, and where routers ask: two tables that workers share without a lock.
//!
//! A group is found in a bucket of eight; its members are words of port and last second. Words change by
//! compare-exchange only; groups come and go one at a time, and nobody waits for that: who is held up goes on as if there
//! were no room. Who finds no room says that the table was too small, and until that is forgotten nothing is
//! pruned: a table that a client fills costs the bridge its savings, never a packet.
//!
//! Invariants: nothing counts after its last second; a port is in a group's list once, except for the moment in which
//! two workers put it there at once (places are taken from the front, so the second one finds the first one's).

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use fabric::PortIndex;
use packet::{IpVersion, MacAddr};

/// Groups remembered at once, in buckets of [`WAYS`].
const GROUPS: usize = 1024;
const WAYS: usize = 8;
/// Members of a group; one with more is everybody's.
const MEMBERS: usize = 64;
/// Ports that routers are behind, counted by VLAN and IP version.
const ROUTERS: usize = 64;

/// Looks at whether somebody else is done: some microseconds.
const PATIENCE: u32 = 1000;

const USED: u64 = 1 << 63;

/// An odd number without a pattern: 2^64 divided by the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Ports that a packet is to go to, each once.
#[derive(Debug)]
pub(super) struct Ports {
    list: [PortIndex; MEMBERS + ROUTERS],
    len: usize,
}

impl Ports {
    pub(super) fn new() -> Self {
        Self { list: [PortIndex(0); MEMBERS + ROUTERS], len: 0 }
    }

    fn add(&mut self, port: PortIndex) {
        let (taken, free) = self.list.split_at_mut(self.len);
        if let Some(place) = free.first_mut().filter(|_| !taken.contains(&port)) {
            *place = port;
            self.len += 1;
        }
    }

    pub(super) fn retain(&mut self, keep: impl Fn(PortIndex) -> bool) {
        let all = std::mem::replace(self, Self::new());
        all.as_slice().iter().filter(|port| keep(**port)).for_each(|port| self.add(*port));
    }

    pub(super) fn as_slice(&self) -> &[PortIndex] {
        self.list.get(..self.len).unwrap_or_default()
    }
}

/// A word of a list: who, and the last second of that.
fn word(who: u64, until: u32) -> u64 {
    USED | who << 32 | u64::from(until)
}

fn who(word: u64) -> u64 {
    (word & !USED) >> 32
}

fn until(word: u64) -> u32 {
    word as u32
}

fn counts(word: u64, now: u32) -> bool {
    word & USED != 0 && until(word) >= now
}

/// Puts `who` into a list, or moves its last second by `when`. False when there is no room.
fn note(list: &[AtomicU64], who_: u64, now: u32, when: impl Fn(Option<u32>) -> Option<u32>) -> bool {
    // What gets between is another worker that changes this very list: hardly ever twice.
    for _ in 0..16 {
        let there = list.iter().map(|slot| (slot, slot.load(SeqCst)));
        let own = there.clone().find(|(_, word)| *word & USED != 0 && who(*word) == who_);
        let free = || there.clone().find(|(_, word)| !counts(*word, now));
        let Some((slot, old)) = own.or_else(free) else { return false };
        let known = own.is_some_and(|(_, word)| counts(word, now)).then(|| until(old));
        let Some(until) = when(known) else { return true };
        if slot.compare_exchange(old, word(who_, until), SeqCst, Relaxed).is_ok() {
            return true;
        }
    }
    false
}

#[derive(Debug)]
struct Group {
    key: AtomicU64,
    members: [AtomicU64; MEMBERS],
}

/// What is known of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// Its members were added.
    Members,
    /// Nobody is in it.
    Nobody,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Table {
    groups: Box<[Group]>,
    routers: [AtomicU64; ROUTERS],
    /// Odd, and secret, so that clients cannot aim at a bucket.
    factor: u64,
    /// Until when nothing is pruned, because something did not fit.
    full_until: AtomicU32,
    /// Somebody inserts or removes groups: some dozen instructions, for a group that is new.
    changing: AtomicBool,
}

fn key_of(vid: u16, group: MacAddr) -> u64 {
    USED | u64::from(vid) << 48 | group.to_u64()
}

fn router(vid: u16, version: IpVersion, port: PortIndex) -> u64 {
    u64::from(version == IpVersion::V6) << 24 | u64::from(vid) << 12 | u64::from(port.0)
}

impl Table {
    pub(super) fn new() -> Self {
        let group = || Group { key: AtomicU64::new(0), members: [const { AtomicU64::new(0) }; MEMBERS] };
        Self {
            groups: (0..GROUPS).map(|_| group()).collect(),
            routers: [const { AtomicU64::new(0) }; ROUTERS],
            factor: RandomState::new().build_hasher().finish() | 1,
            full_until: AtomicU32::new(0),
            changing: AtomicBool::new(false),
        }
    }

    fn bucket(&self, key: u64) -> &[Group] {
        // A product alone would leave the VLAN, in the uppermost bits, without a say, and neighbouring groups together.
        let mut mixed = key.wrapping_mul(SPREAD);
        mixed ^= mixed >> 32;
        mixed = mixed.wrapping_mul(self.factor);
        mixed ^= mixed >> 29;
        mixed = mixed.wrapping_mul(SPREAD);
        let at = (mixed >> 32) as usize % (GROUPS / WAYS) * WAYS;
        self.groups.get(at..at + WAYS).unwrap_or_default()
    }

    fn find(&self, key: u64) -> Option<&Group> {
        self.bucket(key).iter().find(|group| group.key.load(SeqCst) == key)
    }

    /// Something did not fit.
    pub(super) fn overflow(&self, until: u32) {
        self.full_until.fetch_max(until, Relaxed);
    }

    /// Whether something did not fit.
    pub(super) fn is_full(&self, now: u32) -> bool {
        self.full_until.load(Relaxed) > now
    }

    /// A member was heard.
    pub(super) fn join(&self, vid: u16, group: MacAddr, port: PortIndex, now: u32, until: u32) {
        self.note_member(vid, group, port, now, until, |_| Some(until));
    }

    /// Another table had a member until then.
    pub(super) fn adopt(&self, vid: u16, group: MacAddr, port: PortIndex, now: u32, until: u32) {
        if until >= now {
            self.note_member(vid, group, port, now, until, |known| known.max(Some(until)));
        }
    }

    /// Another table had a router until then.
    pub(super) fn adopt_router(&self, vid: u16, version: IpVersion, port: PortIndex, now: u32, until: u32) {
        let later = |known: Option<u32>| known.max(Some(until));
        if until >= now && !note(&self.routers, router(vid, version, port), now, later) {
            self.overflow(until);
        }
    }

    fn note_member(
        &self,
        vid: u16,
        group: MacAddr,
        port: PortIndex,
        now: u32,
        until: u32,
        when: impl Fn(Option<u32>) -> Option<u32>,
    ) {
        let key = key_of(vid, group);
        for _ in 0..4 {
            let Some(there) = self.find(key).or_else(|| self.insert(key)) else { break };
            if !note(&there.members, port.0.into(), now, &when) {
                break;
            }
            // It may have been swept away meanwhile, and the place be another group's.
            if there.key.load(SeqCst) == key {
                return;
            }
        }
        self.overflow(until);
    }

    /// Whether there is room for a member.
    pub(super) fn fits(&self, vid: u16, group: MacAddr, port: PortIndex, now: u32) -> bool {
        let key = key_of(vid, group);
        let is_own = |word: u64| word & USED != 0 && who(word) == u64::from(port.0);
        match self.find(key) {
            Some(there) => there.members.iter().any(|slot| {
                let word = slot.load(Relaxed);
                is_own(word) || !counts(word, now)
            }),
            None => self.bucket(key).iter().any(|group| group.key.load(Relaxed) == 0),
        }
    }

    /// The group's place; a free one of its bucket becomes that. `None` if there is no room, or if another worker that
    /// does the same holds it up: whoever asks goes on without.
    fn insert(&self, key: u64) -> Option<&Group> {
        self.alone(|| {
            // Another worker may have been here first.
            if let Some(there) = self.find(key) {
                return Some(there);
            }
            let free = self.bucket(key).iter().find(|group| group.key.load(SeqCst) == 0)?;
            free.members.iter().for_each(|slot| slot.store(0, SeqCst));
            free.key.store(key, SeqCst);
            Some(free)
        })?
    }

    /// Calls `f` while nobody else inserts or removes groups; gives up where that does not come soon.
    fn alone<T>(&self, f: impl FnOnce() -> T) -> Option<T> {
        for _ in 0..PATIENCE {
            if self.changing.compare_exchange_weak(false, true, Acquire, Relaxed).is_ok() {
                let result = f();
                self.changing.store(false, Release);
                return Some(result);
            }
            std::hint::spin_loop();
        }
        None
    }

    /// A member has left: unless it, or another behind the port, is heard again, nothing goes there after `until`.
    pub(super) fn leave(&self, vid: u16, group: MacAddr, port: PortIndex, now: u32, until: u32) {
        if let Some(there) = self.find(key_of(vid, group)) {
            note(&there.members, port.0.into(), now, |known| {
                known.filter(|known| *known > until).map(|_| until)
            });
        }
    }

    /// Adds the members of a group.
    pub(super) fn members(&self, vid: u16, group: MacAddr, now: u32, ports: &mut Ports) -> Known {
        let Some(there) = self.find(key_of(vid, group)) else { return Known::Nobody };
        let mut known = Known::Nobody;
        for word in there.members.iter().map(|slot| slot.load(Relaxed)).filter(|word| counts(*word, now)) {
            ports.add(PortIndex(who(word) as u16));
            known = Known::Members;
        }
        known
    }

    /// A router asked.
    pub(super) fn query(&self, vid: u16, version: IpVersion, port: PortIndex, now: u32, until: u32) {
        if !note(&self.routers, router(vid, version, port), now, |_| Some(until)) {
            self.overflow(until);
        }
    }

    /// Adds the ports at which routers ask in a VLAN; false if there are none.
    pub(super) fn queriers(&self, vid: u16, version: IpVersion, now: u32, ports: &mut Ports) -> bool {
        let network = router(vid, version, PortIndex(0));
        for word in self.routers.iter().map(|slot| slot.load(Relaxed)) {
            if counts(word, now) && who(word) & !0xfff == network {
                ports.add(PortIndex((who(word) & 0xfff) as u16));
            }
        }
        ports.len > 0
    }

    /// A port is gone.
    pub(super) fn forget(&self, port: PortIndex) {
        let lists = self.groups.iter().map(|group| &group.members[..]).chain([&self.routers[..]]);
        for slot in lists.flatten() {
            let word = slot.load(SeqCst);
            if word & USED != 0 && who(word) & 0xfff == u64::from(port.0) {
                // Who changed it meanwhile is a worker, and none meets the port any more.
                let _ = slot.compare_exchange(word, 0, SeqCst, Relaxed);
            }
        }
    }

    /// Makes room of groups that nobody is in. What is held up waits for the next time.
    pub(super) fn sweep(&self, now: u32) {
        for group in &self.groups {
            let empty = || !group.members.iter().any(|slot| counts(slot.load(SeqCst), now));
            if group.key.load(SeqCst) != 0 && empty() {
                // A member that comes just now finds that the key has gone, and joins again.
                self.alone(|| {
                    if empty() {
                        group.key.store(0, SeqCst);
                    }
                });
            }
        }
    }

    /// Members: VLAN, group, port, last second.
    pub(super) fn list(&self, now: u32) -> Vec<(u16, MacAddr, PortIndex, u32)> {
        let mut found = Vec::new();
        for group in &self.groups {
            let key = group.key.load(SeqCst) & !USED;
            for word in group.members.iter().map(|slot| slot.load(SeqCst)).filter(|word| counts(*word, now)) {
                found.push((
                    (key >> 48) as u16,
                    MacAddr::from_u64(key),
                    PortIndex(who(word) as u16),
                    until(word),
                ));
            }
        }
        found
    }

    /// Ports of routers: VLAN, IP version, port, last second.
    pub(super) fn list_routers(&self, now: u32) -> Vec<(u16, IpVersion, PortIndex, u32)> {
        let words = self.routers.iter().map(|slot| slot.load(SeqCst)).filter(|word| counts(*word, now));
        words
            .map(|word| {
                let who = who(word);
                let version = if who >> 24 & 1 == 1 { IpVersion::V6 } else { IpVersion::V4 };
                ((who >> 12 & 0xfff) as u16, version, PortIndex((who & 0xfff) as u16), until(word))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn group(n: u32) -> MacAddr {
        MacAddr::from_u64(0x0100_5e00_0100 + u64::from(n))
    }

    fn members(table: &Table, vid: u16, n: u32, now: u32) -> Vec<u16> {
        let mut ports = Ports::new();
        table.members(vid, group(n), now, &mut ports);
        let mut found: Vec<_> = ports.as_slice().iter().map(|port| port.0).collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn neighbouring_groups_and_vlans_spread() {
        for _ in 0..50 {
            let table = Table::new();
            (0..20).for_each(|n| table.join(1, group(n), PortIndex(1), 10, 100));
            (0..20).for_each(|vid| table.join(vid, group(100), PortIndex(1), 10, 100));
            assert!(!table.is_full(10));
            assert_eq!(table.list(10).len(), 40);
        }
    }

    #[test]
    fn what_does_not_fit_stops_the_pruning_for_a_while() {
        let table = Table::new();
        (0..64).for_each(|port| table.join(1, group(1), PortIndex(port), 10, 100));
        assert!(!table.is_full(10));
        let fits = |port, now| table.fits(1, group(1), PortIndex(port), now);
        assert!(fits(63, 10) && !fits(64, 10) && fits(64, 101));
        table.join(1, group(1), PortIndex(64), 10, 100);
        assert!(table.is_full(99) && !table.is_full(100));

        let table = Table::new();
        (0..10_000).for_each(|n| table.join(1, group(n), PortIndex(1), 10, 100));
        assert!(table.is_full(10));
        // All that was taken in is there, and room comes back.
        let held = (0..10_000).filter(|n| !members(&table, 1, *n, 10).is_empty()).count();
        assert!(held > 900 && held <= GROUPS, "{held}");
        table.sweep(101);
        assert!(table.groups.iter().all(|group| group.key.load(SeqCst) == 0));

        let table = Table::new();
        (0..65).for_each(|port| table.query(1, IpVersion::V4, PortIndex(port), 10, 100));
        assert!(table.is_full(10));
    }

    #[test]
    fn routers_belong_to_a_vlan_and_a_version() {
        let table = Table::new();
        table.query(1, IpVersion::V4, PortIndex(7), 10, 100);
        table.query(2, IpVersion::V6, PortIndex(4095), 10, 100);
        let ports = |vid, version, now| {
            let mut ports = Ports::new();
            let any = table.queriers(vid, version, now, &mut ports);
            assert_eq!(any, !ports.as_slice().is_empty());
            ports.as_slice().to_vec()
        };
        assert_eq!(ports(1, IpVersion::V4, 100), [PortIndex(7)]);
        assert_eq!(ports(1, IpVersion::V6, 100), []);
        assert_eq!(ports(2, IpVersion::V6, 100), [PortIndex(4095)]);
        assert_eq!(ports(1, IpVersion::V4, 101), []);
        table.forget(PortIndex(4095));
        assert_eq!(table.list_routers(10), [(1, IpVersion::V4, PortIndex(7), 100)]);
    }

    #[test]
    fn workers_that_hear_the_same_group_at_once_agree() {
        for round in 0..50 {
            let table = Table::new();
            std::thread::scope(|scope| {
                for port in 0..3 {
                    let table = &table;
                    scope.spawn(move || {
                        (0..100).for_each(|n| table.join(round, group(n), PortIndex(port), 10, 100));
                    });
                }
            });
            // On a busy machine one may have been held up, and said so.
            if table.is_full(10) {
                continue;
            }
            for n in 0..100 {
                assert_eq!(members(&table, round, n, 10), [0, 1, 2]);
            }
            assert_eq!(table.list(10).len(), 300);
        }
    }

    #[derive(Debug, Clone)]
    enum Op {
        Join(u16, u32, u16),
        Leave(u16, u32, u16),
        Forget(u16),
        Sweep,
        Wait(u32),
    }

    fn op() -> impl Strategy<Value = Op> {
        let member = (0u16..3, 0u32..6, 0u16..5);
        prop_oneof![
            8 => member.clone().prop_map(|(v, g, p)| Op::Join(v, g, p)),
            4 => member.prop_map(|(v, g, p)| Op::Leave(v, g, p)),
            1 => (0u16..5).prop_map(Op::Forget),
            2 => Just(Op::Sweep),
            4 => (1u32..30).prop_map(Op::Wait),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn agrees_with_a_map(ops in prop::collection::vec(op(), 1..200)) {
            let (table, mut model, mut now) = (Table::new(), BTreeMap::new(), 1000);
            for op in ops {
                match op {
                    Op::Join(v, g, p) => {
                        table.join(v, group(g), PortIndex(p), now, now + 50);
                        model.insert((v, g, p), now + 50);
                    }
                    Op::Leave(v, g, p) => {
                        table.leave(v, group(g), PortIndex(p), now, now + 3);
                        model.entry((v, g, p)).and_modify(|until| *until = (*until).min(now + 3));
                    }
                    Op::Forget(p) => {
                        table.forget(PortIndex(p));
                        model.retain(|(_, _, port), _| *port != p);
                    }
                    Op::Sweep => table.sweep(now),
                    Op::Wait(seconds) => now += seconds,
                }
                model.retain(|_, until| *until >= now);
                for v in 0..3 {
                    for g in 0..6 {
                        let expected: Vec<_> = model.range((v, g, 0)..=(v, g, 9)).map(|((_, _, p), _)| *p).collect();
                        prop_assert_eq!(members(&table, v, g, now), expected);
                    }
                }
                prop_assert_eq!(table.list(now).len(), model.len());
            }
            prop_assert!(!table.is_full(now));
        }
    }
}
