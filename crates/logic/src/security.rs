//! Port security: which stations may speak at a port, and under which addresses.
//!
//! Invariants: a packet that may not enter changes nothing that is known of any station; a station that is known at one
//! port is not taken away by another that is guarded, until it has aged there. A port that nobody guards pays nothing for
//! this, for the loop over its packets is compiled without.

use fabric::protection::Security;
use fabric::{Batch, DropReason, PortIndex, Text, Value, VersionId};
use packet::MacAddr;
use packet::ether;

use crate::fdb::{Admission, Fdb, Foresight, Key};
use crate::source_guard::{self, Verdict};

/// Most bytes of a packet that are looked at for addresses within.
const LOOK: usize = 512;

/// What is to be done with a packet after its source was heard.
pub(crate) enum Heard {
    /// Send it on.
    Enter,
    /// The same, but a station's port may have changed.
    Moved,
    /// Nothing: it was dropped and counted.
    Refused,
}

/// How the sources of a port's packets are learned.
pub(crate) trait Sources {
    /// Packet `v` came from station `src`, which has this key.
    fn heard(&mut self, fdb: &Fdb, batch: &mut Batch<'_>, v: VersionId, src: MacAddr, key: Key) -> Heard;

    /// Where the packet's destination is.
    #[inline(always)]
    fn lookup(&self, fdb: &Fdb, key: Key) -> Option<PortIndex> {
        fdb.lookup(key)
    }

    /// Says what was found or decided about a packet, if somebody asked.
    #[inline(always)]
    fn say(&self, _: &mut Batch<'_>, _: VersionId, _text: &'static str, _values: &[Value]) {}
}

/// A port that anybody may speak at.
pub(crate) struct Anybody {
    ingress: PortIndex,
    now: u32,
    /// A run of packets from one station is learned from once.
    last: Option<Key>,
}

impl Anybody {
    #[inline]
    pub(crate) fn of(batch: &Batch<'_>) -> Self {
        Self { ingress: batch.ingress(), now: batch.now(), last: None }
    }
}

impl Sources for Anybody {
    #[inline(always)]
    fn heard(&mut self, fdb: &Fdb, _: &mut Batch<'_>, _: VersionId, src: MacAddr, key: Key) -> Heard {
        if self.last != Some(key) && !src.is_multicast() {
            self.last = Some(key);
            if fdb.learn(key, self.ingress, self.now) {
                return Heard::Moved;
            }
        }
        Heard::Enter
    }
}

/// A port that not everybody may speak at.
pub(crate) struct Guarded<'a> {
    security: &'a Security,
    stations: bool,
    anybody: Anybody,
    /// The last station that was let in.
    last: Option<Key>,
}

impl<'a> Guarded<'a> {
    pub(crate) fn of(batch: &Batch<'_>, security: &'a Security) -> Self {
        Self { security, stations: security.guards_stations(), anybody: Anybody::of(batch), last: None }
    }
}

impl Sources for Guarded<'_> {
    fn heard(&mut self, fdb: &Fdb, batch: &mut Batch<'_>, v: VersionId, src: MacAddr, key: Key) -> Heard {
        if !admits(self.security, batch, v, src) {
            return Heard::Refused;
        }
        if !self.stations {
            return self.anybody.heard(fdb, batch, v, src, key);
        }
        if self.last == Some(key) {
            return Heard::Enter;
        }
        let most = self.security.max_stations.unwrap_or(u32::MAX);
        let Anybody { ingress, now, .. } = self.anybody;
        match fdb.learn_within(key, ingress, now, most, self.security.sticky) {
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

/// The sources of packets that somebody wants explained.
pub(crate) struct Explained<'a> {
    guarded: Option<Guarded<'a>>,
    anybody: Anybody,
    /// In a rehearsal: what would have become of the table.
    foreseen: Option<(Key, Foresight)>,
}

impl<'a> Explained<'a> {
    pub(crate) fn of(batch: &Batch<'a>) -> Self {
        let guarded = batch.security().map(|security| Guarded::of(batch, security));
        Self { guarded, anybody: Anybody::of(batch), foreseen: None }
    }

    /// What the table makes of the station; `None` if it is not asked.
    fn foresee(&self, fdb: &Fdb, src: MacAddr, key: Key) -> Option<Foresight> {
        let Anybody { ingress, now, .. } = self.anybody;
        match self.guarded.as_ref().filter(|guarded| guarded.stations) {
            Some(guarded) => {
                let most = guarded.security.max_stations.unwrap_or(u32::MAX);
                Some(fdb.foresee_within(key, ingress, now, most))
            }
            None => (!src.is_multicast()).then(|| fdb.foresee(key, ingress, now)),
        }
    }
}

impl Sources for Explained<'_> {
    fn heard(&mut self, fdb: &Fdb, batch: &mut Batch<'_>, v: VersionId, src: MacAddr, key: Key) -> Heard {
        if let Some(guarded) = &self.guarded
            && !admits(guarded.security, batch, v, src)
        {
            return Heard::Refused;
        }
        let foreseen = self.foresee(fdb, src, key);
        let most = self.guarded.as_ref().and_then(|guarded| guarded.security.max_stations);
        match (foreseen, most) {
            (Some(Foresight::NoRoom), Some(most)) if fdb.stations_at(batch.ingress()) >= most => {
                let values = [Value::Mac(src), Value::Port(batch.ingress()), Value::Number(most.into())];
                batch.remark(v, "its source, {}, is new, and {} has its `max-stations`, {}", &values);
            }
            _ => remark_station(batch, v, src, foreseen),
        }
        if !batch.is_rehearsal() {
            return match &mut self.guarded {
                Some(guarded) => guarded.heard(fdb, batch, v, src, key),
                None => self.anybody.heard(fdb, batch, v, src, key),
            };
        }
        self.foreseen = foreseen.map(|foreseen| (key, foreseen));
        let guards = self.guarded.as_ref().is_some_and(|guarded| guarded.stations);
        match foreseen {
            Some(Foresight::Surplus | Foresight::Elsewhere(_) | Foresight::NoRoom) if guards => {
                batch.discard(v, DropReason::StationLimit);
                Heard::Refused
            }
            _ => Heard::Enter,
        }
    }

    fn lookup(&self, fdb: &Fdb, key: Key) -> Option<PortIndex> {
        match self.foreseen {
            Some((own, Foresight::Moves(_) | Foresight::Learned(_))) if own == key => {
                Some(self.anybody.ingress)
            }
            Some((_, Foresight::Learned(Some(evicted)))) if evicted == key => None,
            _ => fdb.lookup(key),
        }
    }

    fn say(&self, batch: &mut Batch<'_>, v: VersionId, text: &'static str, values: &[Value]) {
        batch.remark(v, text, values);
    }
}

fn remark_station(batch: &mut Batch<'_>, v: VersionId, src: MacAddr, foreseen: Option<Foresight>) {
    let (mac, here) = (Value::Mac(src), Value::Port(batch.ingress()));
    match foreseen {
        None => batch.remark(v, "its source, {}, is a group address: nothing is learned", &[mac]),
        Some(Foresight::Known) => batch.remark(v, "its source, {}, is known at {}", &[mac, here]),
        Some(Foresight::Surplus) => {
            batch.remark(
                v,
                "its source, {}, exceeds the `max-stations` of {} and is forgotten",
                &[mac, here],
            );
        }
        Some(Foresight::Moves(from)) => {
            batch.remark(v, "its source, {}, has moved from {} to {}", &[mac, Value::Port(from), here]);
        }
        Some(Foresight::Stays(at)) => {
            batch.remark(v, "its source, {}, stays at {}, where it was put by hand", &[mac, Value::Port(at)]);
        }
        Some(Foresight::Elsewhere(at)) => {
            batch.remark(
                v,
                "its source, {}, is known at {} and may not move to {}",
                &[mac, Value::Port(at), here],
            );
        }
        Some(Foresight::Learned(None)) => {
            batch.remark(v, "its source, {}, is new, and learned at {}", &[mac, here]);
        }
        Some(Foresight::Learned(Some(other))) => {
            let values = [mac, here, Value::Mac(other.mac())];
            batch.remark(v, "its source, {}, is new, and learned at {}; {} makes room for it", &values);
        }
        Some(Foresight::NoRoom) => {
            batch.remark(v, "its source, {}, is new, and there is no room for it at {}", &[mac, here]);
        }
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

/// Whether a packet's source may speak, as far as that needs no table; if not, it is dropped and counted.
pub fn admits_packet(security: &Security, batch: &mut Batch<'_>, v: VersionId) -> bool {
    match ether::addresses(batch.header(v)) {
        Some((_, src)) => admits(security, batch, v, src),
        None => false,
    }
}

/// Whether a packet's source may speak, as far as that needs no table; if not, it is dropped and counted.
pub(crate) fn admits(security: &Security, batch: &mut Batch<'_>, v: VersionId, src: MacAddr) -> bool {
    // A group is no station (IEEE 802.3 §3.2.3): what claims to come from one could not be counted.
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
        batch.discard(v, DropReason::SourceGuard);
        return false;
    }
    true
}
