//! The flows of an export, and when they end.
//!
//! A flow ends when its packets have stopped for a while, when it has lasted long, when TCP closes it, when the cache
//! is full (the oldest one), or with the export. Each end is one record.

use std::collections::{BTreeMap, HashMap};

use metering::{Counts, Entry, FlowKey};

const SECOND: u64 = 1_000_000_000;
/// Time without packets after which a flow ends, nanoseconds.
const IDLE: u64 = 15 * SECOND;
/// The same, after TCP has closed the connection: its last packets still belong to the flow.
const IDLE_CLOSED: u64 = SECOND;
/// TCP's flags FIN and RST (RFC 9293, section 3.1).
const CLOSES: u8 = 0x01 | 0x04;

/// Why a flow ended; the numbers are IPFIX's (RFC 5102, section 5.11.3, flowEndReason).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// No packet came for a while.
    Idle = 1,
    /// It lasts on, and is reported now and then.
    Active = 2,
    /// TCP closed it.
    Closed = 3,
    /// The export ended.
    Forced = 4,
    /// The cache was full.
    LackOfResources = 5,
}

/// Limits of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    /// Time after which a flow is reported although it lasts on, nanoseconds; `None`: never.
    pub(super) active: Option<u64>,
    /// Flows at most.
    pub(super) flows: usize,
}

impl Limits {
    /// Whether packets are added up at all.
    pub(super) fn caches(self) -> bool {
        self.active != Some(0) && self.flows > 0
    }
}

/// See the module.
pub(super) struct Cache {
    limits: Limits,
    numbers: HashMap<FlowKey, u64>,
    /// By number, which is the order in which they began.
    flows: BTreeMap<u64, Entry>,
    next: u64,
    /// Flows that began.
    begun: u64,
    /// Flows that ended because the cache was full.
    evicted: u64,
}

impl Cache {
    pub(super) fn new(limits: Limits) -> Self {
        let (numbers, flows) = Default::default();
        Self { limits, numbers, flows, next: 0, begun: 0, evicted: 0 }
    }

    /// Sets new limits; they hold from the next call on.
    pub(super) fn set(&mut self, limits: Limits) {
        self.limits = limits;
    }

    pub(super) fn len(&self) -> usize {
        self.flows.len()
    }

    /// Number of flows that have begun.
    pub(super) fn begun(&self) -> u64 {
        self.begun
    }

    /// Number of flows that ended because the cache was full.
    pub(super) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Adds packets of a flow; `end` takes flows that end by it.
    pub(super) fn add(&mut self, key: &FlowKey, counts: &Counts, mut end: impl FnMut(&Entry, End)) {
        if !self.limits.caches() {
            self.begun += 1;
            let reason = if self.limits.active == Some(0) { End::Active } else { End::LackOfResources };
            return end(&Entry { key: *key, counts: *counts }, reason);
        }
        if let Some(flow) = self.numbers.get(key).and_then(|number| self.flows.get_mut(number)) {
            return flow.counts.add(counts);
        }
        while self.flows.len() >= self.limits.flows
            && let Some((_, oldest)) = self.flows.pop_first()
        {
            self.numbers.remove(&oldest.key);
            self.evicted += 1;
            end(&oldest, End::LackOfResources);
        }
        self.begun += 1;
        self.numbers.insert(*key, self.next);
        self.flows.insert(self.next, Entry { key: *key, counts: *counts });
        self.next += 1;
    }

    /// Ends the flows whose time has come at `now`, nanoseconds since 1970.
    pub(super) fn expire(&mut self, now: u64, mut end: impl FnMut(&Entry, End)) {
        let limits = self.limits;
        let numbers = &mut self.numbers;
        self.flows.retain(|_, flow| {
            let Some(reason) = ended(&flow.counts, limits, now) else { return true };
            numbers.remove(&flow.key);
            end(flow, reason);
            false
        });
    }

    /// Ends all flows.
    pub(super) fn end(&mut self, mut end: impl FnMut(&Entry, End)) {
        self.numbers.clear();
        std::mem::take(&mut self.flows).values().for_each(|flow| end(flow, End::Forced));
    }
}

/// Returns why a flow has ended, if it has.
fn ended(counts: &Counts, limits: Limits, now: u64) -> Option<End> {
    let silent = now.saturating_sub(counts.last);
    let closed = counts.tcp_flags & CLOSES != 0;
    if closed && silent >= IDLE_CLOSED {
        return Some(End::Closed);
    }
    if silent >= IDLE {
        return Some(End::Idle);
    }
    let lasted = now.saturating_sub(counts.first);
    limits.active.filter(|active| lasted >= *active).map(|_| End::Active)
}

#[cfg(test)]
mod tests {
    use metering::{Detail, Facts};

    use super::super::frames::{frame, ipv4};
    use super::*;

    fn key(port: u16) -> FlowKey {
        let mut tcp = port.to_be_bytes().to_vec();
        tcp.resize(20, 0);
        let bytes = frame(0x0800, &ipv4(6, &tcp));
        Facts::read(&bytes, bytes.len() as u32, Detail::Ipv4).unwrap().key
    }

    fn at(second: u64, tcp_flags: u8) -> Counts {
        Counts::of_packet(second * SECOND, 60, 40, tcp_flags, false)
    }

    /// Ends of flows: the port, packets and reason.
    #[derive(Default)]
    struct Ends(Vec<(u16, u64, End)>);

    impl Ends {
        fn note(&mut self) -> impl FnMut(&Entry, End) {
            |flow, reason| self.0.push((flow.key.ports[0], flow.counts.packets, reason))
        }

        fn take(&mut self) -> Vec<(u16, u64, End)> {
            std::mem::take(&mut self.0)
        }
    }

    #[test]
    fn flows_end_by_silence_by_age_and_by_tcp() {
        let mut cache = Cache::new(Limits { active: Some(60 * SECOND), flows: 100 });
        let mut ends = Ends::default();
        for (port, second, flags) in
            [(1, 0, 0x10), (2, 0, 0x10), (3, 0, 0x11), (4, 0, 0x04), (1, 14, 0), (3, 1, 0x10)]
        {
            cache.add(&key(port), &at(second, flags), ends.note());
        }
        assert_eq!((cache.len(), cache.begun()), (4, 4));
        cache.expire(SECOND, ends.note());
        assert_eq!(ends.take(), [(4, 1, End::Closed)]);
        cache.expire(2 * SECOND, ends.note());
        assert_eq!(ends.take(), [(3, 2, End::Closed)]);
        cache.expire(15 * SECOND, ends.note());
        assert_eq!(ends.take(), [(2, 1, End::Idle)]);
        for second in (20..=60).step_by(10) {
            cache.add(&key(1), &at(second, 0), ends.note());
        }
        cache.expire(59 * SECOND, ends.note());
        assert_eq!(ends.take(), []);
        cache.expire(60 * SECOND, ends.note());
        assert_eq!(ends.take(), [(1, 7, End::Active)]);
        // A flow that lasts on begins anew.
        cache.add(&key(1), &at(61, 0), ends.note());
        assert_eq!((cache.len(), cache.begun()), (1, 5));
        cache.end(ends.note());
        assert_eq!(ends.take(), [(1, 1, End::Forced)]);
        assert_eq!(cache.len(), 0);
    }

    #[test]
    fn without_an_active_timeout_a_flow_lasts() {
        let mut cache = Cache::new(Limits { active: None, flows: 100 });
        let mut ends = Ends::default();
        cache.add(&key(1), &at(0, 0), ends.note());
        cache.add(&key(1), &at(1_000_000, 0), ends.note());
        cache.expire(1_000_001 * SECOND, ends.note());
        assert_eq!(ends.take(), []);
    }

    #[test]
    fn a_full_cache_ends_the_oldest_flow() {
        let mut cache = Cache::new(Limits { active: Some(SECOND), flows: 2 });
        let mut ends = Ends::default();
        for port in 1..=4 {
            cache.add(&key(port), &at(0, 0), ends.note());
        }
        assert_eq!(ends.take(), [(1, 1, End::LackOfResources), (2, 1, End::LackOfResources)]);
        assert_eq!((cache.len(), cache.evicted()), (2, 2));
        cache.set(Limits { active: Some(SECOND), flows: 1 });
        cache.add(&key(5), &at(0, 0), ends.note());
        assert_eq!(ends.take().len(), 2, "a smaller cache");
        assert_eq!(cache.len(), 1);
    }

    #[test]
    fn without_a_cache_each_packet_is_a_flow() {
        for (limits, reason) in [
            (Limits { active: Some(0), flows: 5 }, End::Active),
            (Limits { active: Some(SECOND), flows: 0 }, End::LackOfResources),
        ] {
            let mut cache = Cache::new(limits);
            let mut ends = Ends::default();
            cache.add(&key(1), &at(0, 0), ends.note());
            cache.add(&key(1), &at(0, 0), ends.note());
            assert_eq!(ends.take(), [(1, 1, reason), (1, 1, reason)]);
            assert_eq!((cache.len(), cache.begun(), cache.evicted()), (0, 2, 0));
        }
    }
}
