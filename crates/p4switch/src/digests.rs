//! Digests on their way to controllers: gathered in lists, and each value sent once until it is acknowledged.
//!
//! Bounds: a kind of digest holds at most [`MOST_WAITING`] values that wait to be sent, further ones are lost; and it
//! remembers at most [`MOST_SENT`] values that were sent, the oldest are forgotten and may be sent again.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

use p4runtime_proto::v1::digest_entry::Config;
use pipeline::ir::Constant;

/// Most values that wait to be sent.
const MOST_WAITING: usize = 1 << 14;
/// Most values that were sent and are remembered.
const MOST_SENT: usize = 1 << 16;
/// Most values of a list.
const LONGEST_LIST: usize = 1 << 10;

type Values = Arc<[Constant]>;

/// The digests of a switch, by the ids of their kinds.
#[derive(Debug, Default)]
pub(crate) struct Digests {
    kinds: BTreeMap<u32, Kind>,
    last_list: u64,
}

/// A list to be sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct List {
    pub(crate) digest: u32,
    pub(crate) list: u64,
    pub(crate) values: Vec<Values>,
}

#[derive(Debug)]
struct Kind {
    config: Config,
    /// Values of the next list.
    next: Vec<Values>,
    /// Time of the first of them.
    since: u64,
    /// Lists that are full.
    full: VecDeque<Vec<Values>>,
    /// Values that wait, or were sent and are not acknowledged.
    known: HashSet<Values>,
    /// Lists that were sent and are not acknowledged, with their times.
    sent: BTreeMap<u64, (u64, Vec<Values>)>,
    /// Values in them.
    sent_values: usize,
}

impl Digests {
    /// Follows which kinds are sent, and how.
    pub(crate) fn configure<'c>(&mut self, enabled: impl Iterator<Item = (&'c u32, &'c Config)>) {
        let mut before = std::mem::take(&mut self.kinds);
        for (id, config) in enabled {
            let kind = match before.remove(id) {
                Some(kind) => Kind { config: *config, ..kind },
                None => Kind::new(*config),
            };
            self.kinds.insert(*id, kind);
        }
    }

    /// Takes a value.
    pub(crate) fn add(&mut self, digest: u32, values: &[Constant], now: u64) {
        if let Some(kind) = self.kinds.get_mut(&digest) {
            kind.expire(now);
            kind.add(values, now);
        }
    }

    /// Lists that are due at a time, and the time at which the next one will be.
    pub(crate) fn due(&mut self, now: u64) -> (Vec<List>, Option<u64>) {
        let mut lists = Vec::new();
        let mut next: Option<u64> = None;
        for (digest, kind) in &mut self.kinds {
            kind.expire(now);
            if !kind.next.is_empty() && kind.due() <= now {
                kind.close();
            }
            while let Some(values) = kind.full.pop_front() {
                self.last_list += 1;
                kind.remember(self.last_list, &values, now);
                lists.push(List { digest: *digest, list: self.last_list, values });
            }
            if !kind.next.is_empty() {
                next = Some(next.map_or(kind.due(), |next| next.min(kind.due())));
            }
        }
        (lists, next)
    }

    /// A list was received. One that is not known any more is none of our business.
    pub(crate) fn acknowledge(&mut self, digest: u32, list: u64) {
        if let Some(kind) = self.kinds.get_mut(&digest) {
            kind.forget(list);
        }
    }
}

impl Kind {
    fn new(config: Config) -> Self {
        Self {
            config,
            next: Vec::new(),
            since: 0,
            full: VecDeque::new(),
            known: HashSet::new(),
            sent: BTreeMap::new(),
            sent_values: 0,
        }
    }

    fn add(&mut self, values: &[Constant], now: u64) {
        let waiting = self.next.len() + self.full.iter().map(Vec::len).sum::<usize>();
        if waiting >= MOST_WAITING || self.known.contains(values) {
            return;
        }
        let values: Values = values.into();
        if self.next.is_empty() {
            self.since = now;
        }
        self.known.insert(values.clone());
        self.next.push(values);
        let most = match usize::try_from(self.config.max_list_size) {
            Ok(most) if most > 0 => most.min(LONGEST_LIST),
            _ => LONGEST_LIST,
        };
        if self.next.len() >= most || self.config.max_timeout_ns == 0 {
            self.close();
        }
    }

    /// Time at which the next list is sent though it is not full.
    fn due(&self) -> u64 {
        self.since.saturating_add(nanoseconds(self.config.max_timeout_ns))
    }

    fn close(&mut self) {
        self.full.push_back(std::mem::take(&mut self.next));
    }

    /// Remembers what was sent, so that it is not sent again.
    fn remember(&mut self, list: u64, values: &[Values], now: u64) {
        self.sent_values += values.len();
        self.sent.insert(list, (now, values.to_vec()));
        let oldest = |kind: &Self| kind.sent.keys().next().copied();
        while self.sent_values > MOST_SENT
            && let Some(list) = oldest(self)
        {
            self.forget(list);
        }
        self.expire(now);
    }

    /// Forgets lists that were not acknowledged in time.
    fn expire(&mut self, now: u64) {
        let timeout = nanoseconds(self.config.ack_timeout_ns);
        while let Some((list, (at, _))) = self.sent.first_key_value() {
            if at.saturating_add(timeout) > now {
                return;
            }
            let list = *list;
            self.forget(list);
        }
    }

    fn forget(&mut self, list: u64) {
        if let Some((_, values)) = self.sent.remove(&list) {
            self.sent_values -= values.len();
            for value in values {
                self.known.remove(&value);
            }
        }
    }
}

fn nanoseconds(given: i64) -> u64 {
    u64::try_from(given).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digests(max_timeout_ns: i64, max_list_size: i32, ack_timeout_ns: i64) -> Digests {
        let mut digests = Digests::default();
        digests.configure([(&7, &Config { max_timeout_ns, max_list_size, ack_timeout_ns })].into_iter());
        digests
    }

    fn value(number: u64) -> Vec<Constant> {
        vec![Constant::bit(48, number)]
    }

    fn numbers(lists: &[List]) -> Vec<Vec<u64>> {
        let one = |list: &List| list.values.iter().map(|values| values[0].value.low_u64()).collect();
        lists.iter().map(one).collect()
    }

    #[test]
    fn lists_are_sent_when_full_or_late() {
        let mut digests = digests(100, 2, 0);
        digests.add(7, &value(1), 10);
        digests.add(8, &value(9), 10);
        assert_eq!(digests.due(10), (vec![], Some(110)));
        digests.add(7, &value(1), 11);
        digests.add(7, &value(2), 20);
        digests.add(7, &value(3), 30);
        let (lists, next) = digests.due(30);
        assert_eq!((numbers(&lists), next), (vec![vec![1, 2]], Some(130)));
        let (lists, next) = digests.due(130);
        assert_eq!((numbers(&lists), next, lists[0].list), (vec![vec![3]], None, 2));
    }

    #[test]
    fn values_are_sent_once_until_acknowledged_or_late() {
        let mut digests = digests(0, 0, 1000);
        let sent = |digests: &mut Digests, number, now| {
            digests.add(7, &value(number), now);
            let lists = digests.due(now).0;
            (numbers(&lists).len(), lists.first().map_or(0, |list| list.list))
        };
        assert_eq!(sent(&mut digests, 1, 10), (1, 1));
        assert_eq!(sent(&mut digests, 1, 20), (0, 0));
        assert_eq!(sent(&mut digests, 2, 20), (1, 2));
        digests.acknowledge(7, 1);
        digests.acknowledge(7, 99);
        assert_eq!(sent(&mut digests, 1, 30), (1, 3));
        assert_eq!(sent(&mut digests, 2, 1019), (0, 0));
        assert_eq!(sent(&mut digests, 2, 1020), (1, 4));
    }

    #[test]
    fn memory_is_bounded() {
        let mut digests = digests(1_000_000, 0, 1_000_000);
        for round in 0..8 {
            for number in 0..2 * MOST_WAITING as u64 {
                digests.add(7, &value(round * 1_000_000 + number), round);
            }
            let sent: usize = digests.due(round + 1_000_000).0.iter().map(|list| list.values.len()).sum();
            assert_eq!(sent, MOST_WAITING);
        }
        let kind = &digests.kinds[&7];
        assert!(kind.known.len() <= MOST_SENT && kind.sent_values <= MOST_SENT);
    }

    #[test]
    fn disabled_kinds_are_forgotten() {
        let mut digests = digests(100, 2, 0);
        digests.add(7, &value(1), 0);
        digests.configure(std::iter::empty());
        assert_eq!(digests.due(1000), (vec![], None));
    }
}
