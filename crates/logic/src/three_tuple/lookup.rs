//! Reserved endpoints as the data plane sees them: for each protocol and address one table of 65,536 ports.
//!
//! A packet costs a search among the reserved addresses, which are few, and one load; nothing is hashed, so no sender
//! can aim at collisions.
//!
//! Invariants: a lookup takes no lock and allocates nothing; the set of addresses of a [`Lookup`] never changes, the
//! ports of an address change one by one.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

use fabric::PortIndex;

/// One more than the largest port.
const PORTS: usize = 1 << 16;

/// A protocol's number with a local address; IPv4 addresses as mapped ones (RFC 4291 §2.5.5.2).
pub(super) type SpaceKey = (u128, u8);

/// Returns an address as a number, IPv4 mapped into IPv6.
pub(super) fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// The ports of one protocol at one address: the bridge's port that reserved each.
pub(super) struct Space {
    owners: Box<[AtomicU16]>,
}

impl Space {
    pub(super) fn new() -> Self {
        Self { owners: (0..PORTS).map(|_| AtomicU16::new(PortIndex::NONE.0)).collect() }
    }

    /// Sets the owner of ports; [`PortIndex::NONE`] frees them.
    pub(super) fn set(&self, ports: impl Iterator<Item = u16>, owner: PortIndex) {
        for port in ports {
            if let Some(place) = self.owners.get(usize::from(port)) {
                place.store(owner.0, Relaxed);
            }
        }
    }

    #[inline]
    fn owner(&self, port: u16) -> PortIndex {
        self.owners.get(usize::from(port)).map_or(PortIndex::NONE, |owner| PortIndex(owner.load(Relaxed)))
    }
}

/// All reserved endpoints of a bridge.
#[derive(Default)]
pub(super) struct Lookup {
    /// Sorted by key.
    spaces: Box<[(SpaceKey, Arc<Space>)]>,
    /// Addresses at which each port has a reservation; sorted, each once.
    holders: Box<[(u128, PortIndex)]>,
    /// Ports with a reservation; sorted, each once.
    stacks: Box<[PortIndex]>,
}

impl Lookup {
    /// Makes the view of these spaces, sorted by key, and of the addresses where ports have reservations.
    pub(super) fn new(
        spaces: impl Iterator<Item = (SpaceKey, Arc<Space>)>,
        holders: impl Iterator<Item = (u128, PortIndex)>,
    ) -> Self {
        let mut holders: Vec<_> = holders.collect();
        holders.sort_unstable();
        holders.dedup();
        let mut stacks: Vec<_> = holders.iter().map(|(_, port)| *port).collect();
        stacks.sort_unstable();
        stacks.dedup();
        Self { spaces: spaces.collect(), holders: holders.into(), stacks: stacks.into() }
    }

    /// Returns the port that reserved this endpoint; [`PortIndex::NONE`] if none has.
    #[inline]
    pub(super) fn owner(&self, address: u128, protocol: u8, port: u16) -> PortIndex {
        match self.spaces.binary_search_by_key(&(address, protocol), |(key, _)| *key) {
            Ok(at) => self.spaces.get(at).map_or(PortIndex::NONE, |(_, space)| space.owner(port)),
            Err(_) => PortIndex::NONE,
        }
    }

    /// Returns whether a port has a reservation at an address.
    pub(super) fn holds(&self, address: u128, port: PortIndex) -> bool {
        self.holders.binary_search(&(address, port)).is_ok()
    }

    /// Returns whether any port has a reservation at an address.
    pub(super) fn is_reserved(&self, address: u128) -> bool {
        let at = self.holders.partition_point(|(held, _)| *held < address);
        self.holders.get(at).is_some_and(|(held, _)| *held == address)
    }

    /// Returns the ports with a reservation.
    pub(super) fn stacks(&self) -> &[PortIndex] {
        &self.stacks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_found_by_all_three() {
        let address = |text: &str| number(text.parse().unwrap());
        let (one, two) = (address("192.0.2.1"), address("2001:db8::1"));
        let (tcp, udp) = (Arc::new(Space::new()), Arc::new(Space::new()));
        tcp.set(80..=90, PortIndex(3));
        udp.set(65_535..=65_535, PortIndex(4));
        tcp.set(85..=85, PortIndex::NONE);
        let lookup = Lookup::new(
            [((one, 6), tcp), ((two, 17), udp)].into_iter(),
            [(two, PortIndex(4)), (one, PortIndex(3)), (one, PortIndex(3))].into_iter(),
        );
        for (address, protocol, port, owner) in [
            (one, 6, 80, PortIndex(3)),
            (one, 6, 85, PortIndex::NONE),
            (one, 6, 91, PortIndex::NONE),
            (one, 17, 80, PortIndex::NONE),
            (two, 6, 80, PortIndex::NONE),
            (two, 17, 65_535, PortIndex(4)),
        ] {
            assert_eq!(lookup.owner(address, protocol, port), owner, "{address:x} {protocol} {port}");
        }
        assert_eq!(lookup.stacks(), [PortIndex(3), PortIndex(4)]);
        assert!(lookup.holds(one, PortIndex(3)) && !lookup.holds(one, PortIndex(4)));
        assert!(lookup.is_reserved(two) && !lookup.is_reserved(two + 1) && !lookup.is_reserved(0));
    }
}
