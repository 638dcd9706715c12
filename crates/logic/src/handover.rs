//! Hand-over of state from one logic to the next: entries of fixed length, and the order of the steps.
//!
//! A bridge's logic is replaced while packets flow. The new one takes over the old one's state before its first batch,
//! so that no known station is flooded for again, and once more after the old one's last batch, for the changes in
//! between.

use fabric::PortIndex;
use packet::MacAddr;

use crate::{Key, Logic};

/// Entries of a table in a hand-over: keys and values of fixed lengths.
///
/// Logics with stations hand over `fdb`: the key is the station (6 bytes) and its VLAN (`u16`); the value is its port's
/// index (`u16`), flags (`u16`; 1: set by hand, 2: sticky), and the second of [`fabric::clock`] at which it was last
/// heard (`u32`). Logics that listen to IGMP and MLD hand over `groups`: the key is the group (6 bytes), VLAN and port
/// (`u16` each), the value the last second of the membership (`u32`). They also hand over `group-routers`: the key is
/// VLAN, IP version (4 or 6) and port (`u16` each), the value as for `groups`. Numbers are little-endian.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// Name of the table.
    pub name: String,
    /// Length of a key, bytes.
    pub key_len: u32,
    /// Length of a value, bytes.
    pub value_len: u32,
    /// Key and value of each entry, one after the other.
    pub entries: Vec<u8>,
}

impl State {
    /// Returns the entries of the state `name` among `states`, if its keys and values have these lengths.
    pub(crate) fn entries<const ENTRY: usize>(
        states: &[State],
        name: &str,
        key_len: u32,
    ) -> impl Iterator<Item = [u8; ENTRY]> {
        let value_len = (ENTRY as u32).saturating_sub(key_len);
        let found = states
            .iter()
            .find(|state| state.name == name && (state.key_len, state.value_len) == (key_len, value_len));
        let (entries, _) = found.map_or(&[][..], |state| &state.entries).as_chunks::<ENTRY>();
        entries.iter().copied()
    }

    /// Returns the mark in front of a stage's states.
    pub(crate) fn of_stage(number: usize, logic: &str) -> Self {
        let entries = format!("{number} {logic}").into_bytes();
        Self { name: STAGE_MARKER.into(), key_len: 0, value_len: entries.len() as u32, entries }
    }

    /// Returns the number and the logic of the stage whose mark this is.
    pub(crate) fn stage(&self) -> Option<(usize, &str)> {
        let text = std::str::from_utf8(&self.entries).ok().filter(|_| self.name == STAGE_MARKER)?;
        let (number, logic) = text.split_once(' ')?;
        Some((number.parse().ok()?, logic))
    }

    /// Returns the number of entries; marks of stages have none.
    fn count(&self) -> usize {
        match self.key_len {
            0 => 0,
            key_len => self.entries.len() / (key_len as usize).saturating_add(self.value_len as usize).max(1),
        }
    }

    /// Makes a state of entries, the first `key_len` bytes of each of which are the key.
    pub(crate) fn new<const ENTRY: usize>(
        name: &str,
        key_len: u32,
        entries: impl Iterator<Item = [u8; ENTRY]>,
    ) -> Self {
        let value_len = (ENTRY as u32).saturating_sub(key_len);
        Self { name: name.into(), key_len, value_len, entries: entries.flatten().collect() }
    }
}

/// Name of the state that marks the beginning of a stage's states.
const STAGE_MARKER: &str = "chain-stage";

/// Replaces `old` by `new`: `switch` makes the bridge use the new logic and returns after the old one's last batch.
/// Returns notes about tables that the new one cannot take over, and about a module's tables that are lost with the old
/// one.
pub fn replace<E>(
    old: &dyn Logic,
    new: &dyn Logic,
    switch: impl FnOnce() -> Result<(), E>,
) -> Result<Vec<String>, E> {
    new.take_over(&old.hand_over());
    switch()?;
    let last = old.hand_over();
    new.take_over(&last);
    let mut notes = new.not_taken_over(&last);
    notes.extend(new.left_behind(&of_modules(old.name(), last)));
    Ok(notes)
}

/// Keeps the states of modules and the marks of stages. Logics that ship with the switch learn their state again.
fn of_modules(old: &str, states: Vec<State>) -> Vec<State> {
    let mut is_module = old.contains(':');
    let of_module = |state: &State| {
        let stage = state.stage().map(|(_, logic)| logic.contains(':'));
        is_module = stage.unwrap_or(is_module);
        stage.is_some() || is_module
    };
    states.into_iter().filter(of_module).collect()
}

/// Returns a note about each table in `states` that has entries and that the new logic does not take over; `has_table`
/// tells by the table's name whether it does.
pub(crate) fn left_behind(states: &[State], has_table: impl Fn(&str) -> bool) -> Vec<String> {
    let mut stage = String::new();
    let note = |state: &State| {
        if let Some((number, _)) = state.stage() {
            stage = format!("former stage {number}: ");
        }
        let entries = state.count();
        (entries > 0 && !has_table(&state.name)).then(|| {
            let name = &state.name;
            let are_dropped = match entries {
                1 => format!("the entry of table `{name}` is dropped"),
                _ => format!("the {entries} entries of table `{name}` are dropped"),
            };
            format!("{stage}{are_dropped}: the new logic takes over no table of this name")
        })
    };
    states.iter().filter_map(note).collect()
}

/// Describes how the lengths of a table's keys and values, in bytes, differ from those of its predecessor.
pub fn layout_difference(now: (u32, u32), before: (u32, u32)) -> String {
    let parts = [("keys", now.0, before.0), ("values", now.1, before.1)];
    let differing = parts.iter().filter(|(_, now, before)| now != before);
    let differing: Vec<_> =
        differing.map(|(part, now, before)| format!("{part} are {now} bytes, were {before}")).collect();
    differing.join("; ")
}

/// A station in a hand-over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Station {
    /// Address and VLAN.
    pub key: Key,
    /// Its port.
    pub port: PortIndex,
    /// Whether it was set by hand.
    pub is_static: bool,
    /// Whether it was learned at a port whose stations are sticky.
    pub is_sticky: bool,
    /// The second of [`fabric::clock`] at which it was last heard.
    pub seen: u32,
}

/// Name of the state with stations.
pub(crate) const FDB: &str = "fdb";
const BY_HAND: u16 = 1;
const STICKY: u16 = 2;

impl Station {
    /// Writes stations as a state.
    pub fn hand_over(stations: impl IntoIterator<Item = Station>) -> State {
        State::new(FDB, 8, stations.into_iter().map(Station::write))
    }

    /// Reads the stations among `states`; entries that cannot be stations are left out.
    pub fn take_over(states: &[State]) -> impl Iterator<Item = Station> {
        State::entries(states, FDB, 8).filter_map(Station::read)
    }

    /// Returns a note about a table `table` of stations that starts empty although `states` have entries.
    pub(crate) fn not_taken_over(table: &str, states: &[State]) -> Option<String> {
        let own = (8, 8);
        let lengths = |state: &State| (state.key_len, state.value_len);
        let mut named = states.iter().filter(|state| state.name == FDB);
        let reason = match named.clone().next() {
            Some(old) if old.entries.is_empty() || named.any(|state| lengths(state) == own) => return None,
            Some(old) => {
                format!(
                    "the former table `{FDB}` has another layout: {}",
                    layout_difference(own, lengths(old))
                )
            }
            // States without a key mark the stages of a chain.
            None if states.iter().any(|state| state.key_len > 0 && !state.entries.is_empty()) => {
                format!("the former logic has no table `{FDB}` to take over")
            }
            None => return None,
        };
        Some(format!("table `{table}` starts empty: {reason}"))
    }

    fn write(self) -> [u8; 16] {
        let [m0, m1, m2, m3, m4, m5] = self.key.mac().0;
        let flags = if self.is_static { BY_HAND } else { 0 } | if self.is_sticky { STICKY } else { 0 };
        let ([v0, v1], [p0, p1]) = (self.key.vid().to_le_bytes(), self.port.0.to_le_bytes());
        let ([f0, f1], [s0, s1, s2, s3]) = (flags.to_le_bytes(), self.seen.to_le_bytes());
        [m0, m1, m2, m3, m4, m5, v0, v1, p0, p1, f0, f1, s0, s1, s2, s3]
    }

    fn read([m0, m1, m2, m3, m4, m5, v0, v1, p0, p1, f0, f1, s0, s1, s2, s3]: [u8; 16]) -> Option<Self> {
        let (mac, vid) = (MacAddr([m0, m1, m2, m3, m4, m5]), u16::from_le_bytes([v0, v1]));
        if mac.is_multicast() || vid > 4095 {
            return None;
        }
        let flags = u16::from_le_bytes([f0, f1]);
        Some(Self {
            key: Key::new(vid, mac),
            port: PortIndex(u16::from_le_bytes([p0, p1])),
            is_static: flags & BY_HAND != 0,
            is_sticky: flags & (BY_HAND | STICKY) == STICKY,
            seen: u32::from_le_bytes([s0, s1, s2, s3]),
        })
    }
}

/// A member of a group in a hand-over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) group: MacAddr,
    pub(crate) vid: u16,
    pub(crate) port: PortIndex,
    /// Last second of the membership.
    pub(crate) until: u32,
}

impl Member {
    pub(crate) fn hand_over(members: impl IntoIterator<Item = Member>) -> State {
        State::new("groups", 10, members.into_iter().map(Member::write))
    }

    pub(crate) fn take_over(states: &[State]) -> impl Iterator<Item = Member> {
        State::entries(states, "groups", 10).map(Member::read)
    }

    fn write(self) -> [u8; 14] {
        let [m0, m1, m2, m3, m4, m5] = self.group.0;
        let ([v0, v1], [p0, p1]) = (self.vid.to_le_bytes(), self.port.0.to_le_bytes());
        let [s0, s1, s2, s3] = self.until.to_le_bytes();
        [m0, m1, m2, m3, m4, m5, v0, v1, p0, p1, s0, s1, s2, s3]
    }

    fn read([m0, m1, m2, m3, m4, m5, v0, v1, p0, p1, s0, s1, s2, s3]: [u8; 14]) -> Self {
        Self {
            group: MacAddr([m0, m1, m2, m3, m4, m5]),
            vid: u16::from_le_bytes([v0, v1]),
            port: PortIndex(u16::from_le_bytes([p0, p1])),
            until: u32::from_le_bytes([s0, s1, s2, s3]),
        }
    }
}

/// The port of a router that sends queries, in a hand-over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Router {
    pub(crate) vid: u16,
    /// 4 or 6.
    pub(crate) version: u16,
    pub(crate) port: PortIndex,
    /// Last second for which the port counts.
    pub(crate) until: u32,
}

impl Router {
    pub(crate) fn hand_over(routers: impl IntoIterator<Item = Router>) -> State {
        State::new("group-routers", 6, routers.into_iter().map(Router::write))
    }

    pub(crate) fn take_over(states: &[State]) -> impl Iterator<Item = Router> {
        State::entries(states, "group-routers", 6).map(Router::read)
    }

    fn write(self) -> [u8; 10] {
        let ([v0, v1], [i0, i1]) = (self.vid.to_le_bytes(), self.version.to_le_bytes());
        let ([p0, p1], [s0, s1, s2, s3]) = (self.port.0.to_le_bytes(), self.until.to_le_bytes());
        [v0, v1, i0, i1, p0, p1, s0, s1, s2, s3]
    }

    fn read([v0, v1, i0, i1, p0, p1, s0, s1, s2, s3]: [u8; 10]) -> Self {
        Self {
            vid: u16::from_le_bytes([v0, v1]),
            version: u16::from_le_bytes([i0, i1]),
            port: PortIndex(u16::from_le_bytes([p0, p1])),
            until: u32::from_le_bytes([s0, s1, s2, s3]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn station(vid: u16, mac: [u8; 6]) -> Station {
        let key = Key::new(vid, MacAddr(mac));
        Station { key, port: PortIndex(0x102), is_static: false, is_sticky: true, seen: 0x0403_0201 }
    }

    /// Modules rely on this layout.
    #[test]
    fn the_layout_of_a_station() {
        let state = Station::hand_over([station(0xabc, [2, 3, 4, 5, 6, 7])]);
        assert_eq!((state.name.as_str(), state.key_len, state.value_len), ("fdb", 8, 8));
        assert_eq!(state.entries, [2, 3, 4, 5, 6, 7, 0xbc, 0xa, 2, 1, 2, 0, 1, 2, 3, 4]);
        assert_eq!(Station::take_over(&[state]).collect::<Vec<_>>(), [station(0xabc, [2, 3, 4, 5, 6, 7])]);
    }

    #[test]
    fn entries_that_are_no_stations_are_left_out() {
        let good = [2, 0, 0, 0, 0, 1, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0];
        let (mut group, mut vid) = (good, good);
        group[0] = 3;
        vid[7] = 0x10;
        let state = |key_len, value_len, entries: &[&[u8]]| State {
            name: "fdb".into(),
            key_len,
            value_len,
            entries: entries.concat(),
        };
        // An entry that is both static and sticky is static. An incomplete entry is left out.
        let found: Vec<_> = Station::take_over(&[state(8, 8, &[&group, &vid, &good, &good[..15]])]).collect();
        assert_eq!(found.len(), 1);
        assert!(found[0].is_static && !found[0].is_sticky);
        for (key_len, value_len) in [(8, 7), (7, 9), (16, 0), (0, 0), (u32::MAX, 8)] {
            assert_eq!(Station::take_over(&[state(key_len, value_len, &[&good])]).count(), 0);
        }
        assert_eq!(Station::take_over(&[State { name: "other".into(), ..state(8, 8, &[&good]) }]).count(), 0);
        assert_eq!(Station::take_over(&[]).count(), 0);
    }

    #[test]
    fn stations_that_cannot_be_taken_over_are_noted() {
        let state = |name: &str, key_len, value_len, entries: &[u8]| State {
            name: name.into(),
            key_len,
            value_len,
            entries: entries.into(),
        };
        let note = |states: &[State]| Station::not_taken_over("stations", states);
        let layout = "table `stations` starts empty: the former table `fdb` has another layout: ";
        assert_eq!(
            note(&[state("fdb", 8, 16, &[0; 24])]),
            Some(format!("{layout}values are 8 bytes, were 16"))
        );
        assert_eq!(
            note(&[state("fdb", 16, 4, &[0; 20])]),
            Some(format!("{layout}keys are 8 bytes, were 16; values are 8 bytes, were 4"))
        );
        assert_eq!(
            note(&[state("chain-stage", 0, 5, b"1 hub"), state("flows", 8, 8, &[0; 16])]),
            Some("table `stations` starts empty: the former logic has no table `fdb` to take over".into())
        );
        // Nothing is lost.
        assert_eq!(note(&[]), None);
        assert_eq!(note(&[state("fdb", 8, 16, &[])]), None);
        assert_eq!(note(&[state("chain-stage", 0, 5, b"1 hub"), state("flows", 8, 8, &[])]), None);
        assert_eq!(note(&[state("fdb", 8, 16, &[0; 24]), state("fdb", 8, 8, &[])]), None);
        assert_eq!(note(&[state("flows", 8, 8, &[0; 16]), state("fdb", 8, 8, &[0; 16])]), None);
    }

    #[test]
    fn entries_of_tables_that_vanish_are_noted() {
        let state = |name: &str, len: usize| State {
            name: name.into(),
            key_len: 8,
            value_len: 8,
            entries: vec![0; len * 16],
        };
        let of = |old: &str, states: Vec<State>| left_behind(&of_modules(old, states), |name| name == "kept");
        let states = vec![state("kept", 3), state("flows4", 2), state("one", 1), state("none", 0)];
        assert_eq!(
            of("wasm:/fw.wasm", states.clone()),
            [
                "the 2 entries of table `flows4` are dropped: the new logic takes over no table of this name",
                "the entry of table `one` is dropped: the new logic takes over no table of this name"
            ]
        );
        assert!(of("learning", states).is_empty(), "stations are learned again");
        let stages = vec![
            State::of_stage(1, "learning"),
            state("fdb", 5),
            State::of_stage(2, "wasm:/fw.wasm"),
            state("flows4", 2),
        ];
        assert_eq!(
            of("chain", stages),
            [
                "former stage 2: the 2 entries of table `flows4` are dropped: the new logic takes over no table of this name"
            ]
        );
    }

    #[test]
    fn groups_and_routers_come_back() {
        let group = MacAddr([1, 0, 0x5e, 1, 2, 3]);
        let member = Member { group, vid: 7, port: PortIndex(300), until: 70_000 };
        assert_eq!(Member::take_over(&[Member::hand_over([member])]).collect::<Vec<_>>(), [member]);
        let router = Router { vid: 7, version: 6, port: PortIndex(300), until: 70_000 };
        assert_eq!(Router::take_over(&[Router::hand_over([router])]).collect::<Vec<_>>(), [router]);
    }
}
