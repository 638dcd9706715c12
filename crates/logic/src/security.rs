//! Port security: which stations may speak at a port, and under which addresses.
//!
//! Invariants: a packet that may not enter changes nothing that is known of any station; a station that is known at one
//! port is not taken away by another that is guarded, until it has aged there. A port that nobody guards pays nothing for
//! this, for the loop over its packets is compiled without.

use fabric::protection::Security;
use fabric::{Batch, DropReason, PortIndex, VersionId};
use packet::MacAddr;

use crate::fdb::{Admission, Fdb, Key};
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

/// Whether a packet's source may speak, as far as that needs no table; if not, it is dropped and counted.
pub(crate) fn admits(security: &Security, batch: &mut Batch<'_>, v: VersionId, src: MacAddr) -> bool {
    // A group is no station (IEEE 802.3 §3.2.3): what claims to come from one could not be counted.
    if security.guards_stations() && (src.is_multicast() || !security.names(src)) {
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
        batch.discard(v, DropReason::SourceGuard);
        return false;
    }
    true
}
