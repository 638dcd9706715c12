//! Identifiers of bridges (IEEE 802.1D-2004 §9.2.5) and of their ports (§9.2.7).

use packet::MacAddr;

/// Bits of an identifier that are the bridge's address.
const ADDRESS: u64 = (1 << 48) - 1;
/// Bits of an identifier that are the port's number.
const NUMBER: u16 = 0x0fff;

/// Identifier of a bridge: its priority, then its address. The lowest identifier is the best.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BridgeId(pub u64);

impl BridgeId {
    /// Makes an identifier.
    pub fn new(priority: u16, address: MacAddr) -> Self {
        let [a, b, c, d, e, f] = address.0;
        Self(u64::from(priority) << 48 | u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
    }

    /// The priority.
    pub fn priority(self) -> u16 {
        (self.0 >> 48) as u16
    }

    /// The bridge's address.
    pub fn address(self) -> MacAddr {
        let [_, _, address @ ..] = self.0.to_be_bytes();
        MacAddr(address)
    }

    /// Returns the identifier as `8000.aa55aa550000`.
    pub fn dotted(self) -> String {
        format!("{:04x}.{:012x}", self.priority(), self.0 & ADDRESS)
    }

    /// Returns the identifier as `8.000.aa55aa550000`: priority, extension and address (§9.2.5).
    pub fn dotted_with_extension(self) -> String {
        let priority = self.priority();
        format!("{:x}.{:03x}.{:012x}", priority >> 12, priority & NUMBER, self.0 & ADDRESS)
    }
}

impl std::fmt::Debug for BridgeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.dotted())
    }
}

/// Identifier of a port: its priority, then its number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PortId(pub u16);

impl PortId {
    /// Makes an identifier.
    pub fn new(priority: u8, number: u8) -> Self {
        Self(u16::from_be_bytes([priority, number]))
    }

    /// The number of the port (RSTP: 12 bits).
    pub fn number(self) -> u16 {
        self.0 & NUMBER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_ordered_by_priority_first() {
        let id = |priority, last| BridgeId::new(priority, MacAddr([0xaa, 0x55, 0xaa, 0x55, 0, last]));
        assert!(id(0x7000, 9) < id(0x8000, 1) && id(0x8000, 1) < id(0x8000, 2));
        assert_eq!(id(0x8001, 7).dotted(), "8001.aa55aa550007");
        assert_eq!(id(0x8001, 7).dotted_with_extension(), "8.001.aa55aa550007");
        assert_eq!((id(0x8001, 7).priority(), id(3, 7).address().0[5]), (0x8001, 7));
        assert_eq!((PortId::new(128, 3), PortId::new(128, 3).number()), (PortId(0x8003), 3));
    }
}
