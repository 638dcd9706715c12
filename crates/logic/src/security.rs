//! Port security: the stations and addresses that a port may send from.
//!
//! Invariants: a refused packet changes nothing that is known of any station; a station known at one port does not move
//! to a port that restricts its stations until it has aged out. A port without security pays nothing for this: the loop
//! over its packets is compiled without it.

use fabric::protection::Security;
use fabric::{Batch, DropReason, PortIndex, Remark, Text, Value, VersionId};
use packet::MacAddr;
use packet::ether;

use crate::MacTable;
use crate::fdb::{Admission, Fdb, Fixed, Foresight, Key};
use crate::source_guard::{self, Verdict};

/// Bytes of a packet inspected for addresses within, at most.
const LOOK: usize = 512;

/// Outcome for a packet after its source was heard.
pub(crate) enum Heard {
    /// Send it on.
    Enter,
    /// Send it on; a station's port may have changed.
    Moved,
    /// Do nothing: it was dropped and counted.
    Refused,
}

/// Learns from the sources of a port's packets.
pub(crate) trait Sources {
    /// Learns that packet `v` came from station `src`, which has this key.
    fn heard(&mut self, fdb: &Fdb, batch: &mut Batch<'_>, v: VersionId, src: MacAddr, key: Key) -> Heard;

    /// Looks up the port of the packet's destination.
    #[inline(always)]
    fn lookup(&self, fdb: &Fdb, key: Key) -> Option<PortIndex> {
        fdb.lookup(key)
    }

    /// Explains where the station of this key, a packet's destination, is.
    #[inline(always)]
    fn say_known(&self, _: &Fdb, _: &mut Batch<'_>, _: VersionId, _: Key, _: PortIndex) {}

    /// Explains that the station of this key, a packet's destination, is unknown.
    #[inline(always)]
    fn say_unknown(&self, _: &Fdb, _: &mut Batch<'_>, _: VersionId, _: Key) {}

    /// Adds a remark about a packet to its trace, if one is being made.
    #[inline(always)]
    fn say(&self, _: &mut Batch<'_>, _: VersionId, _text: &'static str, _values: &[Value]) {}
}

/// Sources at a port without security.
pub(crate) struct Unrestricted {
    ingress: PortIndex,
    now: u32,
    /// Station of the last packet: a run of packets from one station is learned from once.
    last: Option<Key>,
}

impl Unrestricted {
    #[inline]
    pub(crate) fn of(batch: &Batch<'_>) -> Self {
        Self { ingress: batch.ingress(), now: batch.now(), last: None }
    }
}

impl Sources for Unrestricted {
    #[inline(always)]
    fn heard(&mut self, fdb: &Fdb, batch: &mut Batch<'_>, _: VersionId, src: MacAddr, key: Key) -> Heard {
        if self.last != Some(key) && !src.is_multicast() && !key.is_null() {
            self.last = Some(key);
            let claim = |key: Key| batch.claim(key.vid(), key.mac());
            if fdb.learn_unclaimed(key, self.ingress, self.now, claim) {
                return Heard::Moved;
            }
        }
        Heard::Enter
    }
}

/// Sources at a port with security.
pub(crate) struct Restricted<'a> {
    security: &'a Security,
    stations: bool,
    unrestricted: Unrestricted,
    /// The last station accepted.
    last: Option<Key>,
}

impl<'a> Restricted<'a> {
    pub(crate) fn of(batch: &Batch<'_>, security: &'a Security) -> Self {
        Self {
            security,
            stations: security.guards_stations(),
            unrestricted: Unrestricted::of(batch),
            last: None,
        }
    }
}

impl Sources for Restricted<'_> {
    fn heard(&mut self, fdb: &Fdb, batch: &mut Batch<'_>, v: VersionId, src: MacAddr, key: Key) -> Heard {
        if !admits(self.security, batch, v, src) {
            return Heard::Refused;
        }
        if !self.stations {
            return self.unrestricted.heard(fdb, batch, v, src, key);
        }
        if self.last == Some(key) {
            return Heard::Enter;
        }
        let most = self.security.max_stations.unwrap_or(u32::MAX);
        let Unrestricted { ingress, now, .. } = self.unrestricted;
        let claim = || batch.claim(key.vid(), src);
        match fdb.learn_claimed(key, ingress, now, most, self.security.sticky, claim) {
            Admission::Known => {
                self.last = Some(key);
                Heard::Enter
            }
            Admission::Learned => {
                self.last = Some(key);
                Heard::Moved
            }
            Admission::Refused => {
                batch.discard(v, DropReason::StationLimit);
                Heard::Refused
            }
        }
    }
}

/// Sources of packets that a trace explains.
pub(crate) struct Explained<'a> {
    restricted: Option<Restricted<'a>>,
    unrestricted: Unrestricted,
    /// In a rehearsal: the predicted effect on the table.
    foreseen: Option<(Key, Foresight)>,
}

impl<'a> Explained<'a> {
    pub(crate) fn of(batch: &Batch<'a>) -> Self {
        let restricted = batch.security().map(|security| Restricted::of(batch, security));
        Self { restricted, unrestricted: Unrestricted::of(batch), foreseen: None }
    }

    /// Predicts the effect of hearing a station; `None` if nothing is looked up.
    fn foresee(&self, fdb: &Fdb, batch: &Batch<'_>, src: MacAddr, key: Key) -> Option<Foresight> {
        let Unrestricted { ingress, now, .. } = self.unrestricted;
        let claim = batch.claim(key.vid(), src);
        match self.restricted.as_ref().filter(|restricted| restricted.stations) {
            Some(restricted) => {
                let most = restricted.security.max_stations.unwrap_or(u32::MAX);
                Some(fdb.foresee_within(key, ingress, now, most, claim))
            }
            None => src.is_station().then(|| fdb.foresee(key, ingress, now, claim)),
        }
    }
}

impl Sources for Explained<'_> {
    fn heard(&mut self, fdb: &Fdb, batch: &mut Batch<'_>, v: VersionId, src: MacAddr, key: Key) -> Heard {
        if let Some(restricted) = &self.restricted
            && !admits(restricted.security, batch, v, src)
        {
            return Heard::Refused;
        }
        let foreseen = self.foresee(fdb, batch, src, key);
        let most = self.restricted.as_ref().and_then(|restricted| restricted.security.max_stations);
        match (foreseen, most) {
            (Some(Foresight::NoRoom), Some(most)) if fdb.stations_at(batch.ingress()) >= most => {
                let values = [Value::Mac(src), Value::Port(batch.ingress()), Value::Number(most.into())];
                batch.remark(v, "its source, {}, is new, and {} has its `max-stations`, {}", &values);
            }
            _ => remark_station(batch, v, src, foreseen),
        }
        if !batch.is_rehearsal() {
            return match &mut self.restricted {
                Some(restricted) => restricted.heard(fdb, batch, v, src, key),
                None => self.unrestricted.heard(fdb, batch, v, src, key),
            };
        }
        self.foreseen = foreseen.map(|foreseen| (key, foreseen));
        let guards = self.restricted.as_ref().is_some_and(|restricted| restricted.stations);
        match foreseen {
            Some(Foresight::Surplus | Foresight::Elsewhere(..) | Foresight::NoRoom) if guards => {
                batch.discard(v, DropReason::StationLimit);
                Heard::Refused
            }
            _ => Heard::Enter,
        }
    }

    fn lookup(&self, fdb: &Fdb, key: Key) -> Option<PortIndex> {
        match self.foreseen {
            Some((own, Foresight::Moves(_) | Foresight::Learned(_))) if own == key => {
                Some(self.unrestricted.ingress)
            }
            Some((_, Foresight::Learned(Some(evicted)))) if evicted == key => None,
            _ => fdb.lookup(key),
        }
    }

    fn say_known(&self, fdb: &Fdb, batch: &mut Batch<'_>, v: VersionId, key: Key, port: PortIndex) {
        let text = match fdb.entry(key.vid(), key.mac()) {
            Some(entry) if entry.is_static => "its destination, {}, is a static entry at {}",
            Some(entry) if entry.is_sticky => "its destination, {}, is sticky at {}",
            _ => "its destination, {}, is at {}",
        };
        batch.remark(v, text, &[Value::Mac(key.mac()), Value::Port(port)]);
    }

    fn say_unknown(&self, fdb: &Fdb, batch: &mut Batch<'_>, v: VersionId, key: Key) {
        let (mac, here) = (Value::Mac(key.mac()), Value::Number(key.vid().into()));
        // A received packet is explained by a worker, which has no time for a lookup in each VLAN.
        let vlans = if batch.is_rehearsal() { 4095 } else { 0 };
        let elsewhere = (0..vlans).filter(|vid| *vid != key.vid()).find_map(|vid| {
            let port = self.lookup(fdb, Key::new(vid, key.mac()))?;
            Some((vid, Value::Port(port)))
        });
        match elsewhere {
            None => batch.remark(v, UNKNOWN, &[mac, here]),
            Some((0, port)) => {
                let text = "its destination, {}, is unknown in VLAN {}; it is at {} without a VLAN";
                batch.remark(v, text, &[mac, here, port]);
            }
            Some((vid, port)) if key.vid() == 0 => {
                let text = "its destination, {}, is unknown without a VLAN; it is at {} in VLAN {}";
                batch.remark(v, text, &[mac, port, Value::Number(vid.into())]);
            }
            Some((vid, port)) => {
                let text = "its destination, {}, is unknown in VLAN {}; it is at {} in VLAN {}";
                batch.remark(v, text, &[mac, here, port, Value::Number(vid.into())]);
            }
        }
    }

    fn say(&self, batch: &mut Batch<'_>, v: VersionId, text: &'static str, values: &[Value]) {
        batch.remark(v, text, values);
    }
}

fn remark_station(batch: &mut Batch<'_>, v: VersionId, src: MacAddr, foreseen: Option<Foresight>) {
    let (mac, here) = (Value::Mac(src), Value::Port(batch.ingress()));
    // A rehearsal changes nothing.
    let tense = |is: &'static str, would_be: &'static str| if batch.is_rehearsal() { would_be } else { is };
    match foreseen {
        None if src.is_multicast() => {
            batch.remark(v, "its source, {}, is a group address: nothing is learned", &[mac]);
        }
        None => batch.remark(v, "its source, {}, is no station's address: nothing is learned", &[mac]),
        Some(Foresight::Known) => batch.remark(v, "its source, {}, is known at {}", &[mac, here]),
        Some(Foresight::Surplus) => {
            let text = tense(
                "its source, {}, exceeds the `max-stations` of {} and is forgotten",
                "its source, {}, exceeds the `max-stations` of {} and would be forgotten",
            );
            batch.remark(v, text, &[mac, here]);
        }
        Some(Foresight::Moves(from)) => {
            let text =
                tense("its source, {}, has moved from {} to {}", "its source, {}, would move from {} to {}");
            batch.remark(v, text, &[mac, Value::Port(from), here]);
        }
        Some(Foresight::Stays(at, fixed) | Foresight::Elsewhere(at, Some(fixed))) => {
            let text = match fixed {
                Fixed::Static => "its source, {}, is a static entry at {} and may not move to {}",
                Fixed::Sticky => "its source, {}, is sticky at {} and may not move to {}",
                Fixed::Listed => "its source, {}, belongs to {}, which lists it in `stations`, not to {}",
            };
            batch.remark(v, text, &[mac, Value::Port(at), here]);
        }
        Some(Foresight::Elsewhere(at, None)) => {
            let text = "its source, {}, is at {} and may not move to {}, which restricts its stations";
            batch.remark(v, text, &[mac, Value::Port(at), here]);
        }
        Some(Foresight::Learned(None)) => {
            let text = tense(
                "its source, {}, is new, and learned at {}",
                "its source, {}, is new, and would be learned at {}",
            );
            batch.remark(v, text, &[mac, here]);
        }
        Some(Foresight::Learned(Some(other))) => {
            let text = tense(
                "its source, {}, is new, and learned at {}; {} makes room for it",
                "its source, {}, is new, and would be learned at {}; {} would make room for it",
            );
            batch.remark(v, text, &[mac, here, Value::Mac(other.mac())]);
        }
        Some(Foresight::NoRoom) => {
            batch.remark(v, "its source, {}, is new, but {} has no room for it", &[mac, here]);
        }
    }
}

const UNKNOWN: &str = "its destination, {}, is unknown";

/// Returns the station and the VLAN of a remark that says that a destination is unknown.
pub fn unknown_destination(remark: &Remark) -> Option<(MacAddr, u16)> {
    match remark.values {
        [Value::Mac(mac), Value::Number(vid), ..] if remark.text == UNKNOWN => {
            Some((mac, u16::try_from(vid).ok()?))
        }
        _ => None,
    }
}

/// Explains what source guard does not allow.
#[cold]
fn remark_source(security: &Security, batch: &mut Batch<'_>, v: VersionId, src: MacAddr) {
    if batch.is_explained() {
        let claim = Value::Text(Text::of(source_guard::claim(batch.header(v), &security.sources)));
        let text = "{} from {} is not among the `sources` of {}";
        batch.remark(v, text, &[claim, Value::Mac(src), Value::Port(batch.ingress())]);
    }
}

/// Returns whether a packet's source may send, as far as that needs no table; if not, the packet is dropped and
/// counted.
pub fn admits_packet(security: &Security, batch: &mut Batch<'_>, v: VersionId) -> bool {
    match ether::addresses(batch.header(v)) {
        Some((_, src)) => admits(security, batch, v, src),
        None => false,
    }
}

/// [`admits_packet`] for a source that is read already.
pub(crate) fn admits(security: &Security, batch: &mut Batch<'_>, v: VersionId, src: MacAddr) -> bool {
    // A group is not a station (IEEE 802.3 §3.2.3): a packet with a group as its source could not be counted for one.
    if security.guards_stations() && (src.is_multicast() || !security.names(src)) {
        let text = match src.is_multicast() {
            true => "its source, {}, is a group address, which {} takes from nobody",
            false => "its source, {}, is not among the `stations` of {}",
        };
        batch.remark(v, text, &[Value::Mac(src), Value::Port(batch.ingress())]);
        batch.discard(v, DropReason::StationLimit);
        return false;
    }
    if security.sources.is_empty() {
        return true;
    }
    let verdict = match source_guard::look(batch.header(v), &security.sources) {
        Verdict::TooShort => {
            batch.pull(v, LOOK);
            source_guard::look(batch.header(v), &security.sources)
        }
        verdict => verdict,
    };
    if verdict != Verdict::Allowed {
        remark_source(security, batch, v, src);
        batch.discard_source(v, |header| source_guard::claim(header, &security.sources).address());
        return false;
    }
    true
}
