//! Frames of link protocols (BFD, CFM, LACP, ..) that the control plane takes from a port ahead of the tables.
//!
//! The control plane names the frames of each port ([`Selector`]) and gets them on the logic's thread; no flow, mirror
//! of `NORMAL` or station table sees them. A bridge without such a port pays one load per batch.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use fabric::{Batch, PortIndex, Rest, VersionId};
use ofagent::SharedSwitch;
use packet::headers::{IpVersion, Layers, protocol};
use packet::{MacAddr, ether};

use crate::plane::{NORMAL, Plane};
use crate::ports::PortMap;
use crate::tree::Gate;
use crate::upcalls::Purpose;

/// Selects frames of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// Frames to a group address with an Ethernet type, behind up to two VLAN tags.
    Ethernet {
        /// Destination address.
        destination: MacAddr,
        /// Type behind the tags.
        ethertype: u16,
    },
    /// UDP over IPv4, behind up to two VLAN tags; no later fragments.
    Udp {
        /// Destination port.
        port: u16,
        /// Ethernet destination; `None`: any.
        destination: Option<MacAddr>,
        /// IPv4 destination; `None`: any.
        address: Option<Ipv4Addr>,
    },
}

impl Selector {
    /// Returns whether the frame that begins with `front` is selected.
    pub fn selects(&self, front: &[u8]) -> bool {
        let Some((dst, _)) = ether::addresses(front) else { return false };
        match self {
            Self::Ethernet { destination, ethertype } => {
                dst == *destination && type_of(front) == Some(*ethertype)
            }
            Self::Udp { port, destination, address } => {
                destination.is_none_or(|wanted| wanted == dst) && is_udp(front, *port, *address)
            }
        }
    }
}

fn be16(front: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*front.get(at)?, *front.get(at + 1)?]))
}

/// The Ethernet type behind up to two tags.
fn type_of(front: &[u8]) -> Option<u16> {
    let mut at = ether::HEADER_LEN - 2;
    for _ in 0..2 {
        match be16(front, at)? {
            0x8100 | 0x88a8 => at += ether::VLAN_TAG_LEN,
            other => return Some(other),
        }
    }
    be16(front, at)
}

fn is_udp(front: &[u8], port: u16, address: Option<Ipv4Addr>) -> bool {
    let layers = Layers::parse(front);
    let (Some(l3), Some(l4)) = (layers.l3, layers.l4) else { return false };
    layers.ip == Some(IpVersion::V4)
        && layers.protocol == Some(protocol::UDP)
        && be16(front, usize::from(l4) + 2) == Some(port)
        && address.is_none_or(|address| {
            let at = usize::from(l3) + 16;
            front.get(at..at + 4) == Some(&address.octets())
        })
}

/// Receives the frames: the port, and the whole frame. Called on the logic's thread, without locks.
pub(crate) type Sink = Box<dyn Fn(PortIndex, &[u8]) + Send + Sync>;

/// What is selected of a port.
pub(crate) type Selected = Arc<[Selector]>;

impl Plane {
    /// Hands selected frames of a batch to the control plane, and decides for the others.
    #[cold]
    pub(crate) fn forward_others(&self, batch: &mut Batch<'_>, switch: &SharedSwitch) {
        let mut rest = Rest::default();
        let gate = self.intercept(batch);
        if let Some(mut others) = batch.rest(&mut rest) {
            match gate {
                Gate::Learning => self.learn(&mut others, switch),
                Gate::Open | Gate::Closed => self.decide(&mut others, switch),
            }
        }
        batch.end_of_stages(rest);
    }

    /// Whether some port has selected frames or a place in a spanning tree, and this batch is not what a controller
    /// sends to `NORMAL`.
    #[inline]
    pub(crate) fn intercepts(&self, batch: &Batch<'_>) -> bool {
        self.intercepts.load(Relaxed) && batch.injection_mark() != NORMAL
    }

    /// Hands selected frames and BPDUs of a batch to the logic's thread; they are decided then, and so are all of a
    /// port that the spanning tree blocks. Returns what is to be done with others.
    pub(crate) fn intercept(&self, batch: &mut Batch<'_>) -> Gate {
        let ports = self.ports.load();
        self.take_selected(&ports, batch);
        self.pass_gate(&ports, batch)
    }

    fn take_selected(&self, ports: &PortMap, batch: &mut Batch<'_>) {
        let Some(local) = self.locals.get(batch.worker()) else { return };
        let ingress = batch.ingress();
        let Some(selected) = ports.selected(ingress) else { return };
        let Some(mut executor) = self.executor_of_link(local, ports, ingress) else { return };
        let is_selected = |batch: &Batch<'_>, v: VersionId| {
            let front = batch.header(v);
            selected.iter().any(|selector| selector.selects(front))
        };
        for v in batch.packets() {
            if is_selected(batch, v) {
                executor.upcall(batch, v, None, &[], || Purpose::Intercepted(ingress));
            }
        }
        if executor.has_upcalls {
            self.bell.ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: MacAddr = MacAddr([1, 0x23, 0x20, 0, 0, 0x30]);

    fn frame(dst: MacAddr, tags: &[u16], ethertype: u16, rest: &[u8]) -> Vec<u8> {
        let mut frame = dst.0.to_vec();
        frame.extend([2, 0, 0, 0, 0, 1]);
        for tpid in tags {
            frame.extend(tpid.to_be_bytes());
            frame.extend([0, 7]);
        }
        frame.extend(ethertype.to_be_bytes());
        frame.extend(rest);
        frame
    }

    fn udp(port: u16, fragment: u16) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 28, 0, 0];
        packet.extend(fragment.to_be_bytes());
        packet.extend([255, 17, 0, 0, 169, 254, 1, 1, 169, 254, 1, 0]);
        packet.extend([0xc0, 0]);
        packet.extend(port.to_be_bytes());
        packet.extend([0, 8, 0, 0]);
        packet
    }

    #[test]
    fn ethernet_selectors_look_behind_two_tags() {
        let selector = Selector::Ethernet { destination: GROUP, ethertype: 0x8902 };
        for tags in [&[][..], &[0x8100], &[0x88a8, 0x8100]] {
            assert!(selector.selects(&frame(GROUP, tags, 0x8902, &[])), "{tags:x?}");
            assert!(!selector.selects(&frame(GROUP, tags, 0x8903, &[])), "{tags:x?}");
        }
        assert!(!selector.selects(&frame(GROUP, &[0x8100; 3], 0x8902, &[])));
        assert!(!selector.selects(&frame(MacAddr([1; 6]), &[], 0x8902, &[])));
        let whole = frame(GROUP, &[0x8100], 0x8902, &[]);
        assert!((0..whole.len()).all(|end| !selector.selects(&whole[..end])));
    }

    #[test]
    fn udp_selectors_compare_what_they_name() {
        let any = Selector::Udp { port: 3784, destination: None, address: None };
        let mac = Selector::Udp { port: 3784, destination: Some(GROUP), address: None };
        let at = |last: u8| Selector::Udp {
            port: 3784,
            destination: None,
            address: Some(Ipv4Addr::new(169, 254, 1, last)),
        };
        let other = MacAddr([2; 6]);
        let bfd = frame(other, &[0x8100], 0x0800, &udp(3784, 0));
        assert!(any.selects(&bfd) && at(0).selects(&bfd));
        assert!(!mac.selects(&bfd) && !at(1).selects(&bfd));
        assert!(mac.selects(&frame(GROUP, &[], 0x0800, &udp(3784, 0x2000))), "a first fragment");
        assert!(!any.selects(&frame(other, &[], 0x0800, &udp(3784, 0x2001))), "a later fragment");
        assert!(!any.selects(&frame(other, &[], 0x0800, &udp(3785, 0))));
        assert!(!any.selects(&frame(other, &[], 0x86dd, &udp(3784, 0))));
        assert!((0..bfd.len() - 4).all(|end| !any.selects(&bfd[..end])));
    }
}
