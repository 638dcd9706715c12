//! Ports as the fabric knows them: place in the bridge, capabilities, VLANs.

use std::fmt;
use std::sync::Arc;

use packet::ether::{Vid, VlanTag};

use crate::protect::protection::{Classification, EgressLimits, Limit, Security, Storm};

/// A port's index in its bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortIndex(pub u16);

impl PortIndex {
    /// No port: the source of packets that a logic originates in [`crate::SwitchLogic::wake`].
    pub const NONE: PortIndex = PortIndex(u16::MAX);
}

/// Most ports of a bridge.
pub const MAX_PORTS: usize = 4096;

/// Offloads that a destination takes as they are; the fabric does the rest in software.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Caps {
    /// Partial checksums (virtio `NEEDS_CSUM`).
    pub csum: bool,
    /// TCP over IPv4 segments larger than the MTU.
    pub tso4: bool,
    /// TCP over IPv6 segments larger than the MTU.
    pub tso6: bool,
    /// UDP segments larger than the MTU.
    pub uso: bool,
}

/// The VLANs of a port (IEEE 802.1Q).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum VlanMode {
    /// Frames pass as they are, tagged or not; untagged ones belong to no VLAN (VID 0 in the FDB).
    #[default]
    Transparent,
    /// Untagged member of one VLAN; tagged frames are refused.
    Access(Vid),
    /// Tagged member of `allowed`; untagged frames belong to `native` or, without one, are refused.
    Trunk {
        /// VLAN of untagged frames, sent untagged.
        native: Option<Vid>,
        /// VLANs carried, native included. With 0 in it and no native VLAN, frames of no VLAN are carried, too.
        allowed: VidSet,
    },
    /// A trunk whose native VLAN is sent tagged, as all others.
    NativeTagged {
        /// VLAN of untagged frames.
        native: Vid,
        /// VLANs carried, native included.
        allowed: VidSet,
    },
    /// Untagged member of one VLAN, to which all frames belong: a customer's tags are payload (a tunnel through the
    /// VLAN). Where the frames leave tagged, the VLAN's tag is in front of the customer's; both are of TPID 0x8100.
    Tunnel(Vid),
}

/// Form in which a frame of a VLAN leaves a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VlanEgress {
    /// The port is not a member.
    Refused,
    /// Without a tag.
    Untagged,
    /// With a tag.
    Tagged,
}

impl VlanMode {
    /// The VLAN of an incoming frame with this outer tag, or `None` if the frame is not admitted. VID 0 means no VLAN
    /// (a priority tag counts as untagged, IEEE 802.1Q 6.9).
    #[inline]
    pub fn ingress(&self, tag: Option<VlanTag>) -> Option<u16> {
        let vid = tag.map_or(0, |t| t.vid);
        match self {
            VlanMode::Transparent => Some(vid),
            VlanMode::Access(access) => (vid == 0).then_some(access.get()),
            VlanMode::Trunk { native, allowed } => match vid {
                0 => native.map(Vid::get).or_else(|| allowed.contains(0).then_some(0)),
                _ => allowed.contains(vid).then_some(vid),
            },
            VlanMode::NativeTagged { native, .. } if vid == 0 => Some(native.get()),
            VlanMode::NativeTagged { allowed, .. } => allowed.contains(vid).then_some(vid),
            VlanMode::Tunnel(tunnel) => Some(tunnel.get()),
        }
    }

    /// Form in which a frame of VLAN `vid` (0: none) leaves.
    #[inline]
    pub fn egress(&self, vid: u16) -> VlanEgress {
        match self {
            VlanMode::Transparent if vid == 0 => VlanEgress::Untagged,
            VlanMode::Transparent => VlanEgress::Tagged,
            VlanMode::Access(own) | VlanMode::Tunnel(own) if own.get() == vid => VlanEgress::Untagged,
            VlanMode::Access(_) | VlanMode::Tunnel(_) => VlanEgress::Refused,
            VlanMode::NativeTagged { allowed, .. } if allowed.contains(vid) => VlanEgress::Tagged,
            VlanMode::NativeTagged { .. } => VlanEgress::Refused,
            VlanMode::Trunk { native: Some(native), .. } if native.get() == vid => VlanEgress::Untagged,
            VlanMode::Trunk { native: None, allowed } if vid == 0 && allowed.contains(0) => {
                VlanEgress::Untagged
            }
            VlanMode::Trunk { .. } if vid == 0 => VlanEgress::Refused,
            VlanMode::Trunk { allowed, .. } if allowed.contains(vid) => VlanEgress::Tagged,
            VlanMode::Trunk { .. } => VlanEgress::Refused,
        }
    }
}

impl fmt::Display for VlanMode {
    /// `transparent`, `access:10`, `trunk:10,20-29`, `trunk:all,native:1`, `trunk:all,native-tagged:1` or `tunnel:10`, as
    /// in configuration files.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VlanMode::Transparent => f.write_str("transparent"),
            VlanMode::Access(vid) => write!(f, "access:{}", vid.get()),
            VlanMode::Tunnel(vid) => write!(f, "tunnel:{}", vid.get()),
            VlanMode::NativeTagged { native, allowed } => {
                write!(f, "trunk:{allowed},native-tagged:{}", native.get())
            }
            VlanMode::Trunk { native, allowed } => {
                write!(f, "trunk:{allowed}")?;
                match native {
                    Some(native) if allowed.iter().next().is_none() => write!(f, "native:{}", native.get()),
                    Some(native) => write!(f, ",native:{}", native.get()),
                    None => Ok(()),
                }
            }
        }
    }
}

/// A set of VLAN identifiers.
#[derive(Clone, PartialEq, Eq)]
pub struct VidSet(Box<[u64; 64]>);

impl VidSet {
    /// No VLAN.
    pub fn empty() -> Self {
        Self(Box::new([0; 64]))
    }

    /// Every VLAN, 1 to 4094.
    pub fn all() -> Self {
        let mut set = Self::empty();
        for vid in 1..=4094 {
            set.insert(vid);
        }
        set
    }

    /// Adds a VLAN; VIDs above 4095 are ignored.
    pub fn insert(&mut self, vid: u16) {
        if let Some(word) = self.0.get_mut(usize::from(vid / 64)) {
            *word |= 1 << (vid % 64);
        }
    }

    /// Removes a VLAN.
    pub fn remove(&mut self, vid: u16) {
        if let Some(word) = self.0.get_mut(usize::from(vid / 64)) {
            *word &= !(1 << (vid % 64));
        }
    }

    /// Whether `vid` is in the set.
    #[inline]
    pub fn contains(&self, vid: u16) -> bool {
        self.0.get(usize::from(vid / 64)).is_some_and(|word| word >> (vid % 64) & 1 == 1)
    }

    /// The VLANs in the set, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        (0..4096).filter(|vid| self.contains(*vid))
    }
}

impl fmt::Debug for VidSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl fmt::Display for VidSet {
    /// `all`, or VLANs and ranges of them: `10,20-29`; 0 for frames of no VLAN comes first, on its own.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        if self.contains(0) {
            f.write_str("0")?;
            separator = ",";
        }
        if (1..=4094).all(|vid| self.contains(vid)) {
            return write!(f, "{separator}all");
        }
        let mut vids = self.iter().filter(|vid| *vid > 0).peekable();
        while let Some(first) = vids.next() {
            let mut last = first;
            while let Some(next) = vids.next_if_eq(&(last + 1)) {
                last = next;
            }
            match last == first {
                true => write!(f, "{separator}{first}")?,
                false => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

/// Settings of a port that persist from client to client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortSettings {
    /// Unique in the bridge.
    pub name: String,
    /// Whether traffic may pass at all.
    pub admin_up: bool,
    /// VLAN membership.
    pub vlan: VlanMode,
    /// Largest packet towards the client, bytes without link header; 0: the port type's own limit.
    pub mtu: u32,
    /// Packets from here never go to another isolated port.
    pub isolated: bool,
    /// Rate limit of packets from here.
    pub police: Option<Limit>,
    /// Rate limits of packets from here that go to many ports.
    pub storm: Storm,
    /// Classes of packets from here; `None`: all are in class 0 unless the logic chooses another one.
    pub classification: Option<Arc<Classification>>,
    /// Limits of packets to here.
    pub egress: Option<Arc<EgressLimits>>,
    /// Stations admitted here; for logics that learn stations.
    pub security: Security,
}

impl PortSettings {
    /// Settings of a port that is up, transparent to VLANs and limited only by the type's own MTU.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            admin_up: true,
            vlan: VlanMode::default(),
            mtu: 0,
            isolated: false,
            police: None,
            storm: Storm::default(),
            classification: None,
            egress: None,
            security: Security::default(),
        }
    }
}
