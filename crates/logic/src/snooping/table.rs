//! Members of groups and ports of routers: an immutable map, replaced as a whole.
//!
//! Workers read the current map without a lock, and put the reports that they hear into a bounded queue. A thread of
//! the table applies the queue to a copy of the map and publishes that: at once after a quiet time, else [`PAUSE`]
//! after the last update. However many reports clients send, each costs a worker one place in the queue, and all
//! together cost that thread one copy of a small map per pause. A report that finds the queue or the map full stops the
//! pruning until it would have expired: a client that fills them costs the bridge its savings, never a packet.
//!
//! Invariants: no entry counts after its last second; a port is in a list once; workers never free a map, since the
//! writer keeps those that a worker may be reading.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use crossbeam_queue::ArrayQueue;
use fabric::PortIndex;
use fabric::vital::Vital;
use packet::{IpVersion, MacAddr};

use crate::Key;

/// Largest number of groups.
const GROUPS: usize = 1024;
/// Largest number of members of a group; with more, nothing is pruned.
const MEMBERS: usize = 64;
/// Largest number of router ports, counted by VLAN and IP version.
const ROUTERS: usize = 64;
/// Reports that can wait to be applied.
const QUEUE: usize = 4096;
/// Shortest time between two maps.
const PAUSE: Duration = Duration::from_millis(10);

/// Destination ports of a packet, each once.
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

/// A port, and the last second for which it counts.
#[derive(Debug, Clone, Copy)]
struct Entry {
    port: PortIndex,
    until: u32,
    /// The group that a member reported last; groups share MAC addresses.
    address: Option<IpAddr>,
}

/// A member: VLAN, group, port, last second, and the group's address if that is known.
pub(super) type Listed = (u16, MacAddr, PortIndex, u32, Option<IpAddr>);

/// Groups and routers at one time. See the module's documentation.
#[derive(Debug, Clone, Default)]
pub(super) struct Map {
    groups: HashMap<Key, Arc<Vec<Entry>>>,
    routers: Vec<(u16, IpVersion, Entry)>,
}

impl Map {
    /// Adds the members of a group to `ports`. Returns whether the group has any.
    pub(super) fn members(&self, vid: u16, group: MacAddr, now: u32, ports: &mut Ports) -> bool {
        let Some(members) = self.groups.get(&Key::new(vid, group)) else { return false };
        let mut any = false;
        for member in members.iter().filter(|member| member.until >= now) {
            ports.add(member.port);
            any = true;
        }
        any
    }

    /// Adds the ports of a VLAN's queriers to `ports`. Returns whether it has any.
    pub(super) fn queriers(&self, vid: u16, version: IpVersion, now: u32, ports: &mut Ports) -> bool {
        let mut any = false;
        for (_, _, router) in self.routers.iter().filter(|(v, ip, _)| (*v, *ip) == (vid, version)) {
            if router.until >= now {
                ports.add(router.port);
                any = true;
            }
        }
        any
    }

    /// Applies a report. Returns whether there was room for it.
    fn apply(&mut self, report: Report) -> bool {
        match report {
            Report::Join { vid, group, address, port, until } => {
                self.join(Key::new(vid, group), port, until, address)
            }
            Report::Leave { vid, group, port, until } => {
                if let Some(members) = self.groups.get_mut(&Key::new(vid, group)) {
                    let own = Arc::make_mut(members).iter_mut().filter(|member| member.port == port);
                    own.for_each(|member| member.until = member.until.min(until));
                }
                true
            }
            Report::Query { vid, version, port, until } => self.query(vid, version, port, until),
        }
    }

    fn join(&mut self, key: Key, port: PortIndex, until: u32, address: Option<IpAddr>) -> bool {
        let room = self.groups.len() < GROUPS;
        let members = match self.groups.get_mut(&key) {
            Some(members) => Arc::make_mut(members),
            None if room => Arc::make_mut(self.groups.entry(key).or_default()),
            None => return false,
        };
        let room = members.len() < MEMBERS;
        match members.iter_mut().find(|member| member.port == port) {
            Some(member) => {
                member.until = member.until.max(until);
                member.address = address.or(member.address);
            }
            None if room => members.push(Entry { port, until, address }),
            None => return false,
        }
        true
    }

    fn query(&mut self, vid: u16, version: IpVersion, port: PortIndex, until: u32) -> bool {
        let is_own = |(v, ip, entry): &(u16, IpVersion, Entry)| (*v, *ip, entry.port) == (vid, version, port);
        let room = self.routers.len() < ROUTERS;
        match self.routers.iter_mut().find(|router| is_own(router)) {
            Some((_, _, router)) => router.until = router.until.max(until),
            None if room => self.routers.push((vid, version, Entry { port, until, address: None })),
            None => return false,
        }
        true
    }

    /// Removes the entries that `keep` rejects, and groups without members.
    fn retain(&mut self, keep: impl Fn(&Entry) -> bool) {
        self.routers.retain(|(_, _, router)| keep(router));
        self.groups.retain(|_, members| {
            // Unchanged groups remain shared with the previous map.
            if !members.iter().all(&keep) {
                Arc::make_mut(members).retain(&keep);
            }
            !members.is_empty()
        });
    }

    fn has_expired(&self, now: u32) -> bool {
        let mut members = self.groups.values().flat_map(|members| members.iter());
        members.any(|member| member.until < now)
            || self.routers.iter().any(|(_, _, router)| router.until < now)
    }

    /// Lists members.
    pub(super) fn list(&self, now: u32) -> Vec<Listed> {
        let members =
            self.groups.iter().flat_map(|(key, members)| members.iter().map(move |member| (key, member)));
        let counting = members.filter(|(_, member)| member.until >= now);
        counting
            .map(|(key, member)| (key.vid(), key.mac(), member.port, member.until, member.address))
            .collect()
    }

    /// Lists ports of routers: VLAN, IP version, port, last second.
    pub(super) fn list_routers(&self, now: u32) -> Vec<(u16, IpVersion, PortIndex, u32)> {
        let counting = self.routers.iter().filter(|(_, _, router)| router.until >= now);
        counting.map(|(vid, version, router)| (*vid, *version, router.port, router.until)).collect()
    }
}

/// Report from a packet about groups; `until` is the last second for which it counts.
#[derive(Debug, Clone, Copy)]
pub(super) enum Report {
    /// A member was heard.
    Join { vid: u16, group: MacAddr, address: Option<IpAddr>, port: PortIndex, until: u32 },
    /// A member left: nothing goes to the port after `until`, unless the member, or another behind the port, is heard
    /// again.
    Leave { vid: u16, group: MacAddr, port: PortIndex, until: u32 },
    /// A router sent a query.
    Query { vid: u16, version: IpVersion, port: PortIndex, until: u32 },
}

impl Report {
    fn until(self) -> u32 {
        match self {
            Self::Join { until, .. } | Self::Leave { until, .. } | Self::Query { until, .. } => until,
        }
    }
}

/// State that workers, the table's thread and the control plane share.
#[derive(Debug)]
struct Shared {
    map: ArcSwap<Map>,
    reports: ArrayQueue<Report>,
    /// Whether reports wait that the thread has not begun to apply.
    pending: AtomicBool,
    /// Second until which nothing is pruned, because a report was not stored.
    full_until: AtomicU32,
    /// Earlier maps that a worker may be reading. The writer of a new map holds the lock.
    retired: Mutex<Vec<Arc<Map>>>,
    stopped: AtomicBool,
}

impl Shared {
    fn overflow(&self, until: u32) {
        self.full_until.fetch_max(until, Relaxed);
    }

    fn writer(&self) -> MutexGuard<'_, Vec<Arc<Map>>> {
        self.retired.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes a map with the waiting reports and a `change`, without expired entries.
    fn update(&self, now: u32, change: impl FnOnce(&mut Map)) {
        let mut retired = self.writer();
        let mut map = Map::clone(&self.map.load());
        map.retain(|entry| entry.until >= now);
        // At most one queue's worth: a flood does not delay the publication.
        for report in (0..QUEUE).map_while(|_| self.reports.pop()) {
            if !map.apply(report) {
                self.overflow(report.until());
            }
        }
        change(&mut map);
        retired.push(self.map.swap(Arc::new(map)));
        // A worker that reads a retired map holds a count; no worker begins to read one.
        retired.retain(|map| Arc::strong_count(map) > 1);
    }

    /// Main loop of the thread.
    fn run(&self) {
        while !self.stopped.load(SeqCst) {
            if self.pending.swap(false, SeqCst) {
                self.update(fabric::clock::seconds(), |_| ());
                std::thread::sleep(PAUSE);
            } else {
                std::thread::park();
            }
        }
    }
}

/// Table of groups. See the module's documentation.
#[derive(Debug)]
pub(super) struct Table {
    shared: Arc<Shared>,
    thread: OnceLock<Thread>,
}

impl Drop for Table {
    fn drop(&mut self) {
        self.shared.stopped.store(true, SeqCst);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

impl Table {
    pub(super) fn new() -> Self {
        let shared = Shared {
            map: ArcSwap::default(),
            reports: ArrayQueue::new(QUEUE),
            pending: AtomicBool::new(false),
            full_until: AtomicU32::new(0),
            retired: Mutex::default(),
            stopped: AtomicBool::new(false),
        };
        Self { shared: Arc::new(shared), thread: OnceLock::new() }
    }

    /// Starts the thread that applies reports, unless it runs already.
    pub(super) fn start(&self) -> std::io::Result<()> {
        if self.thread.get().is_none() {
            let shared = self.shared.clone();
            let handle = std::thread::Builder::new().name("snooping".into()).spawn(move || {
                let vital = Vital::new(
                    "the thread of multicast groups",
                    "stations would wait for groups that they join",
                );
                let _guard = vital.guard();
                shared.run();
            })?;
            // Of two threads started at once, the second is never woken and does nothing.
            let _ = self.thread.set(handle.thread().clone());
        }
        Ok(())
    }

    /// Returns the current map.
    pub(super) fn load(&self) -> Guard<Arc<Map>> {
        self.shared.map.load()
    }

    /// Stops the pruning until `until`, because a report was not stored or not read.
    pub(super) fn overflow(&self, until: u32) {
        self.shared.overflow(until);
    }

    /// Returns whether pruning is stopped.
    pub(super) fn is_full(&self, now: u32) -> bool {
        self.shared.full_until.load(Relaxed) > now
    }

    /// Queues a report for the thread, and wakes it for the first one that it has not taken yet.
    pub(super) fn report(&self, report: Report) {
        // A leave report that is lost sends packets to a port too many for a while.
        if let Err(Report::Join { until, .. } | Report::Query { until, .. }) =
            self.shared.reports.push(report)
        {
            self.overflow(until);
        }
        if !self.shared.pending.swap(true, SeqCst)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// Applies the waiting reports, and returns the resulting map.
    pub(super) fn settled(&self, now: u32) -> Guard<Arc<Map>> {
        match self.shared.reports.is_empty() {
            // The thread that took the last of them holds the lock until they are published.
            true => drop(self.shared.writer()),
            false => self.shared.update(now, |_| ()),
        }
        self.load()
    }

    /// Adds the entries of another table that still count.
    pub(super) fn adopt(&self, reports: impl Iterator<Item = Report>, now: u32) {
        self.shared.update(now, |map| {
            for report in reports.filter(|report| report.until() >= now) {
                if !map.apply(report) {
                    self.overflow(report.until());
                }
            }
        });
    }

    /// Forgets a port that was removed.
    pub(super) fn forget(&self, port: PortIndex, now: u32) {
        self.shared.update(now, |map| map.retain(|entry| entry.port != port));
    }

    /// Forgets everything.
    pub(super) fn clear(&self, now: u32) {
        self.shared.update(now, |map| map.retain(|_| false));
    }

    /// Removes expired entries, if any.
    pub(super) fn sweep(&self, now: u32) {
        if self.load().has_expired(now) {
            self.shared.update(now, |_| ());
        }
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

    fn join(vid: u16, n: u32, port: u16, until: u32) -> Report {
        Report::Join { vid, group: group(n), address: None, port: PortIndex(port), until }
    }

    fn query(vid: u16, version: IpVersion, port: u16, until: u32) -> Report {
        Report::Query { vid, version, port: PortIndex(port), until }
    }

    fn members(table: &Table, vid: u16, n: u32, now: u32) -> Vec<u16> {
        let mut ports = Ports::new();
        let any = table.settled(now).members(vid, group(n), now, &mut ports);
        let mut found: Vec<_> = ports.as_slice().iter().map(|port| port.0).collect();
        assert_eq!(any, !found.is_empty());
        found.sort_unstable();
        found
    }

    #[test]
    fn a_full_table_stops_the_pruning_for_a_while() {
        let table = Table::new();
        (0..64).for_each(|port| table.report(join(1, 1, port, 100)));
        assert_eq!((members(&table, 1, 1, 10).len(), table.is_full(10)), (64, false));
        // A port that is a member already needs no room.
        table.report(join(1, 1, 63, 101));
        table.report(join(1, 1, 64, 100));
        assert_eq!(
            (members(&table, 1, 1, 10).len(), table.is_full(99), table.is_full(100)),
            (64, true, false)
        );
        // Expired entries make room.
        table.report(join(1, 1, 64, 200));
        assert_eq!(members(&table, 1, 1, 101), [63, 64]);

        let table = Table::new();
        (0..1025).for_each(|n| table.report(join(1, n, 1, 100)));
        assert_eq!(table.settled(10).list(10).len(), GROUPS);
        assert!(table.is_full(10));
        table.sweep(101);
        assert!(table.load().groups.is_empty());

        let table = Table::new();
        (0..64).for_each(|port| table.report(query(1, IpVersion::V4, port, 100)));
        assert_eq!((table.settled(10).list_routers(10).len(), table.is_full(10)), (64, false));
        table.report(query(1, IpVersion::V4, 64, 100));
        assert_eq!((table.settled(10).list_routers(10).len(), table.is_full(10)), (64, true));
    }

    #[test]
    fn reports_that_find_the_queue_full_stop_the_pruning() {
        let leave = Report::Leave { vid: 1, group: group(1), port: PortIndex(1), until: 100 };
        let table = Table::new();
        (0..QUEUE).for_each(|_| table.report(leave));
        table.report(leave);
        assert!(!table.is_full(10), "a lost leave report delays the leave only");
        table.report(join(1, 1, 1, 100));
        assert!(table.is_full(99) && !table.is_full(100));
        assert!(members(&table, 1, 1, 10).is_empty());
        table.report(join(1, 1, 1, 100));
        assert_eq!(members(&table, 1, 1, 10), [1]);
    }

    #[test]
    fn routers_belong_to_a_vlan_and_a_version() {
        let table = Table::new();
        table.report(query(1, IpVersion::V4, 7, 100));
        table.report(query(2, IpVersion::V6, 4095, 100));
        let ports = |vid, version, now| {
            let mut ports = Ports::new();
            let any = table.settled(now).queriers(vid, version, now, &mut ports);
            assert_eq!(any, !ports.as_slice().is_empty());
            ports.as_slice().to_vec()
        };
        assert_eq!(ports(1, IpVersion::V4, 100), [PortIndex(7)]);
        assert_eq!(ports(1, IpVersion::V6, 100), []);
        assert_eq!(ports(2, IpVersion::V6, 100), [PortIndex(4095)]);
        assert_eq!(ports(1, IpVersion::V4, 101), []);
        table.forget(PortIndex(4095), 10);
        assert_eq!(table.load().list_routers(10), [(1, IpVersion::V4, PortIndex(7), 100)]);
    }

    /// Waits for an effect of the table's thread.
    fn wait_for(what: &str, condition: impl Fn() -> bool) {
        let start = std::time::Instant::now();
        while !condition() {
            assert!(start.elapsed() < Duration::from_secs(30), "timed out waiting for {what}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn its_thread_applies_what_workers_report_and_ends_with_it() {
        let far = fabric::clock::seconds() + 1000;
        let table = Table::new();
        table.start().unwrap();
        table.start().unwrap();
        std::thread::scope(|scope| {
            for port in 0..3 {
                let table = &table;
                scope.spawn(move || {
                    for n in 0..100 {
                        table.report(join(1, n, port, far));
                        // Maps change under their readers, and each is complete.
                        let map = table.load();
                        assert!(
                            map.list(far).iter().all(|(vid, _, port, ..)| (*vid, port.0 < 3) == (1, true))
                        );
                    }
                });
            }
        });
        wait_for("the reports to be applied", || table.load().list(far).len() == 300);
        assert!(!table.is_full(0));
        // Another burst, after the thread has gone to sleep or while it pauses.
        table.report(join(2, 1, 1, far));
        wait_for("one more report to be applied", || table.load().list(far).len() == 301);
        let shared = Arc::downgrade(&table.shared);
        drop(table);
        wait_for("the thread to end", || shared.strong_count() == 0);
    }

    #[test]
    fn a_map_that_is_read_outlives_its_successor_and_is_freed_by_a_writer() {
        let table = Table::new();
        table.report(join(1, 1, 1, 100));
        let read = table.settled(10);
        table.report(join(1, 2, 1, 100));
        assert_eq!((table.settled(10).list(10).len(), read.list(10).len()), (2, 1));
        let old = Arc::downgrade(&read);
        drop(read);
        assert!(old.upgrade().is_some(), "freed by a reader");
        table.forget(PortIndex(9), 10);
        assert!(old.upgrade().is_none());
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
                        table.report(join(v, g, p, now + 50));
                        model.insert((v, g, p), now + 50);
                    }
                    Op::Leave(v, g, p) => {
                        table.report(Report::Leave { vid: v, group: group(g), port: PortIndex(p), until: now + 3 });
                        model.entry((v, g, p)).and_modify(|until| *until = (*until).min(now + 3));
                    }
                    Op::Forget(p) => {
                        table.forget(PortIndex(p), now);
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
                prop_assert_eq!(table.settled(now).list(now).len(), model.len());
            }
            prop_assert!(!table.is_full(now));
        }
    }
}
