//! `learning`: a transparent learning bridge with VLANs (IEEE 802.1Q §8.6 to §8.8, formerly IEEE 802.1D §7).
//!
//! A frame's source is learned at the port it came from; a frame to a learned station goes to that station's port,
//! all others go to every member of the VLAN. VLANs learn independently of each other.
//!
//! Invariant: what is remembered from one packet of a batch to the next agrees with the table, except for what
//! other workers changed meanwhile.

use std::sync::Arc;

use fabric::{Batch, DropReason, PortIndex, SwitchLogic};
use packet::MacAddr;
use packet::ether;

use crate::fdb::{Fdb, Key, MAX_STATIONS};
use crate::vlan::Vlans;
use crate::{Logic, LogicError, LogicInfo, ParamInfo, params};

pub(crate) const INFO: LogicInfo = LogicInfo {
    name: "learning",
    summary: "a learning bridge with VLANs: stations are found where they were last heard",
    params: &[
        ParamInfo {
            name: "ageing",
            help: "seconds after which a silent station is forgotten (up to 1000000; 0: never)",
            default: "300",
        },
        ParamInfo {
            name: "max-stations",
            help: "stations remembered at once (up to 1048576); beyond it a new one replaces an old one",
            default: "8192",
        },
    ],
    build: |params| Ok(Arc::new(Learning::new(params)?)),
};

/// The logic `learning`. See the module's documentation.
pub struct Learning {
    fdb: Fdb,
    ageing: u32,
}

impl Learning {
    /// Parameters: `ageing` in seconds (IEEE 802.1Q table 8-6: 300 by default, at most 1,000,000) and `max-stations`.
    pub fn new(given: &[(String, String)]) -> Result<Self, LogicError> {
        params::known(&INFO, given)?;
        let ageing = params::number(&INFO, given, "ageing", 300, 0..=1_000_000)?;
        let stations = params::number(&INFO, given, "max-stations", 8192, 1..=MAX_STATIONS)?;
        Ok(Self { fdb: Fdb::new(stations), ageing })
    }
}

impl SwitchLogic for Learning {
    fn forward(&self, batch: &mut Batch<'_>) {
        let (ingress, now, vlans) = (batch.ingress(), batch.now(), Vlans::of(batch));
        // A run of packets of one flow is looked up once.
        let mut source: Option<Key> = None;
        let mut destination: Option<(Key, Option<PortIndex>)> = None;
        for v in batch.packets() {
            let Some((dst, src)) = ether::addresses(batch.header(v)) else { continue };
            let Some(frame) = vlans.enter(batch, v) else { continue };

            let key = Key::new(frame.vid, src);
            if source != Some(key) && !src.is_multicast() {
                source = Some(key);
                if self.fdb.learn(key, ingress, now) {
                    destination = None;
                }
            }

            if dst.is_multicast() {
                flood_group(batch, v, dst, &frame);
                continue;
            }
            let key = Key::new(frame.vid, dst);
            let port = match destination {
                Some((last, port)) if last == key => port,
                _ => self.fdb.lookup(key),
            };
            destination = Some((key, port));
            match port {
                Some(port) => frame.send(batch, port),
                None => frame.flood(batch),
            }
        }
    }

    fn port_removed(&self, port: PortIndex) {
        self.fdb.flush(Some(port), false);
    }
}

/// Group addresses go to all members, those of the bridges' own protocols nowhere (IEEE 802.1Q §8.6.3, table 8-1).
fn flood_group(batch: &mut Batch<'_>, v: fabric::VersionId, dst: MacAddr, frame: &crate::vlan::Frame) {
    if ether::is_reserved_group(dst) {
        batch.discard(v, DropReason::ReservedGroup);
    } else {
        frame.flood(batch);
    }
}

impl Logic for Learning {
    fn name(&self) -> &'static str {
        INFO.name
    }

    fn params(&self) -> Vec<(String, String)> {
        vec![
            ("ageing".into(), self.ageing.to_string()),
            ("max-stations".into(), self.fdb.capacity().to_string()),
        ]
    }

    fn fdb(&self) -> Option<&Fdb> {
        Some(&self.fdb)
    }

    fn tick(&self, now_seconds: u32) {
        if self.ageing > 0 {
            self.fdb.expire(now_seconds, self.ageing);
        }
    }
}
