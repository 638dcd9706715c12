//! The Ethernet header: addresses, types and VLAN tags (IEEE 802.3 clause 3, IEEE 802.1Q clause 9).
//!
//! Invariants: a [`Vid`] is always a VLAN that frames can belong to (1 to 4094); a [`VlanTag`] is the content of a
//! frame's tag, which includes the VLAN ids 0 (priority only) and 4095 (reserved).

use core::fmt;
use core::num::NonZeroU16;
use core::str::FromStr;

use crate::bytes::{be16, chunk};

/// Length of an untagged Ethernet header: two addresses and the type (IEEE 802.3 §3.2).
pub const HEADER_LEN: usize = 14;

/// Length of one VLAN tag, TPID and TCI (IEEE 802.1Q §9.3).
pub const VLAN_TAG_LEN: usize = 4;

/// Length of the two addresses that every frame starts with; a VLAN tag follows them.
pub(crate) const ADDRESSES_LEN: usize = 12;

/// A 48-bit MAC address in transmission order (IEEE 802.3 §3.2.3).
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// The address of all stations (IEEE 802.3 §3.2.3).
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// All zeros: never a station's address, commonly "none".
    pub const ZERO: Self = Self([0; 6]);

    /// Whether the individual/group bit is set (IEEE 802.3 §3.2.3); true for broadcast too.
    #[inline]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Whether it can be the address of a station: neither that of a group nor the null address.
    #[inline]
    pub const fn is_station(self) -> bool {
        !self.is_multicast() && self.to_u64() != 0
    }

    /// Whether this is the broadcast address (IEEE 802.3 §3.2.3).
    #[inline]
    pub const fn is_broadcast(self) -> bool {
        self.to_u64() == 0xffff_ffff_ffff
    }

    /// Returns the address as a number below 2^48, the first byte on the wire the most significant.
    #[inline]
    pub const fn to_u64(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }

    /// Returns the address of a number: the inverse of [`to_u64`](Self::to_u64). The upper 16 bits of `value` are
    /// ignored.
    #[inline]
    pub const fn from_u64(value: u64) -> Self {
        let [_, _, a, b, c, d, e, f] = value.to_be_bytes();
        Self([a, b, c, d, e, f])
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(out, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// Error for a text that is not a MAC address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a MAC address: expected six pairs of hexadecimal digits, such as 52:54:00:12:34:56")]
pub struct MacAddrError(String);

impl FromStr for MacAddr {
    type Err = MacAddrError;

    /// Parses six pairs of hexadecimal digits, separated by `:` or by `-` (the separator of IEEE 802 §8.1).
    fn from_str(text: &str) -> Result<Self, MacAddrError> {
        let separator = if text.contains('-') { '-' } else { ':' };
        let mut pairs = text.split(separator);
        let mut octets = [0; 6];
        for octet in &mut octets {
            // from_str_radix alone accepts "+5" as a pair.
            *octet = pairs
                .next()
                .filter(|pair| pair.len() == 2 && pair.bytes().all(|digit| digit.is_ascii_hexdigit()))
                .and_then(|pair| u8::from_str_radix(pair, 16).ok())
                .ok_or_else(|| MacAddrError(text.to_owned()))?;
        }
        if pairs.next().is_some() {
            return Err(MacAddrError(text.to_owned()));
        }
        Ok(Self(octets))
    }
}

/// Whether `dst` is one of 01-80-C2-00-00-00 to 0F, which a bridge must not forward (IEEE 802.1Q table 8-1).
#[inline]
pub const fn is_reserved_group(dst: MacAddr) -> bool {
    dst.to_u64() & !0xf == 0x0180_c200_0000
}

/// The type of the payload after the Ethernet header (IEEE 802.3 §3.2.6).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4 (RFC 894).
    pub const IPV4: Self = Self(0x0800);
    /// The Address Resolution Protocol (RFC 826).
    pub const ARP: Self = Self(0x0806);
    /// A customer VLAN tag (IEEE 802.1Q table 9-1).
    pub const VLAN: Self = Self(0x8100);
    /// IPv6 (RFC 2464 §3).
    pub const IPV6: Self = Self(0x86dd);
    /// A service VLAN tag, the outer one of two (IEEE 802.1Q table 9-1).
    pub const SERVICE_VLAN: Self = Self(0x88a8);
    /// The Link Layer Discovery Protocol (IEEE 802.1AB §7.4).
    pub const LLDP: Self = Self(0x88cc);
    /// The smallest type: a smaller value is the length of an LLC frame (IEEE 802.3 §3.2.6).
    pub const FIRST: Self = Self(0x0600);

    /// Whether this type announces a VLAN tag, [`VLAN`](Self::VLAN) or [`SERVICE_VLAN`](Self::SERVICE_VLAN).
    #[inline]
    pub const fn is_vlan(self) -> bool {
        self.0 == Self::VLAN.0 || self.0 == Self::SERVICE_VLAN.0
    }
}

impl fmt::Display for EtherType {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "0x{:04x}", self.0)
    }
}

impl fmt::Debug for EtherType {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// The id of a VLAN that frames can belong to, 1 to 4094 (IEEE 802.1Q table 9-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vid(NonZeroU16);

impl Vid {
    /// Returns the VLAN with that id, or `None` for 0 and ids above 4094.
    #[inline]
    pub const fn new(id: u16) -> Option<Self> {
        match NonZeroU16::new(id) {
            Some(id) if id.get() <= 4094 => Some(Self(id)),
            _ => None,
        }
    }

    /// The id as a number.
    #[inline]
    pub const fn get(self) -> u16 {
        self.0.get()
    }
}

impl fmt::Display for Vid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, out)
    }
}

/// Error for a text or number that is not a VLAN id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a VLAN id: expected a number from 1 to 4094")]
pub struct VidError(String);

impl FromStr for Vid {
    type Err = VidError;

    fn from_str(text: &str) -> Result<Self, VidError> {
        text.parse().ok().and_then(Self::new).ok_or_else(|| VidError(text.to_owned()))
    }
}

impl TryFrom<u16> for Vid {
    type Error = VidError;

    fn try_from(id: u16) -> Result<Self, VidError> {
        Self::new(id).ok_or_else(|| VidError(id.to_string()))
    }
}

/// The tag control information of a VLAN tag (IEEE 802.1Q §9.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VlanTag {
    /// Priority code point, 0 to 7.
    pub pcp: u8,
    /// Drop eligible indicator.
    pub dei: bool,
    /// VLAN id as carried: 0 in a priority tag, 4095 is reserved.
    pub vid: u16,
}

impl VlanTag {
    /// The tag of a VLAN, at the default priority.
    #[inline]
    pub const fn new(vid: Vid) -> Self {
        Self { pcp: 0, dei: false, vid: vid.get() }
    }

    /// Unpacks the 16 bits of the tag control information.
    #[inline]
    pub const fn from_tci(tci: u16) -> Self {
        Self { pcp: (tci >> 13) as u8, dei: tci & 0x1000 != 0, vid: tci & 0x0fff }
    }

    /// Packs the fields into 16 bits; excess bits of `pcp` and `vid` are dropped.
    #[inline]
    pub const fn to_tci(self) -> u16 {
        ((self.pcp as u16) << 13) | ((self.dei as u16) << 12) | (self.vid & 0x0fff)
    }

    /// Returns the VLAN that the tag names; `None` for 0 and 4095.
    #[inline]
    pub const fn vlan(self) -> Option<Vid> {
        Vid::new(self.vid)
    }
}

/// Returns the destination and source address of a frame; `None` if it ends within its Ethernet header.
#[inline]
pub fn addresses(frame: &[u8]) -> Option<(MacAddr, MacAddr)> {
    let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, ..] = *frame.first_chunk::<HEADER_LEN>()?;
    Some((MacAddr([d0, d1, d2, d3, d4, d5]), MacAddr([s0, s1, s2, s3, s4, s5])))
}

/// Returns the outermost tag of a frame if it is a customer VLAN tag, TPID 0x8100 (IEEE 802.1Q §9.5).
#[inline]
pub fn vlan_tag(frame: &[u8]) -> Option<VlanTag> {
    // The type after the tag is required too: a tag without one could not be popped.
    chunk::<{ VLAN_TAG_LEN + 2 }>(frame, ADDRESSES_LEN)?;
    if be16(frame, ADDRESSES_LEN)? != EtherType::VLAN.0 {
        return None;
    }
    be16(frame, HEADER_LEN).map(VlanTag::from_tci)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: [u8; 18] =
        [0x33, 0x33, 0, 0, 0, 1, 0x52, 0x54, 0, 0x12, 0x34, 0x56, 0x81, 0x00, 0xb0, 0x64, 0x08, 0x00];

    #[test]
    fn mac_text_round_trip() {
        let mac: MacAddr = "52:54:00:12:ab:EF".parse().unwrap();
        assert_eq!(mac, MacAddr([0x52, 0x54, 0, 0x12, 0xab, 0xef]));
        assert_eq!(mac.to_string(), "52:54:00:12:ab:ef");
        assert_eq!("52-54-00-12-ab-ef".parse(), Ok(mac));
        for bad in [
            "",
            "52:54:00:12:ab",
            "52:54:00:12:ab:ef:",
            "52:54:00:12:ab:+f",
            "52:54-00:12:ab:ef",
            "5:4:0:1:a:e",
        ] {
            let error = bad.parse::<MacAddr>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{bad}`")), "{error}");
        }
    }

    #[test]
    fn mac_numbers_and_bits() {
        let mac = MacAddr([1, 2, 3, 4, 5, 6]);
        assert_eq!(mac.to_u64(), 0x0102_0304_0506);
        assert_eq!(MacAddr::from_u64(0xffff_0102_0304_0506), mac);
        assert!(mac.is_multicast() && !mac.is_broadcast());
        assert!(MacAddr::BROADCAST.is_multicast() && MacAddr::BROADCAST.is_broadcast());
        assert!(!MacAddr([2, 0, 0, 0, 0, 1]).is_multicast());
        assert!(MacAddr([2, 0, 0, 0, 0, 1]).is_station() && !mac.is_station() && !MacAddr::ZERO.is_station());
    }

    #[test]
    fn reserved_groups_are_sixteen() {
        assert!(is_reserved_group(MacAddr([0x01, 0x80, 0xc2, 0, 0, 0x00])));
        assert!(is_reserved_group(MacAddr([0x01, 0x80, 0xc2, 0, 0, 0x0f])));
        assert!(!is_reserved_group(MacAddr([0x01, 0x80, 0xc2, 0, 0, 0x10])));
        assert!(!is_reserved_group(MacAddr([0x01, 0x80, 0xc2, 0, 1, 0x00])));
        assert!(!is_reserved_group(MacAddr([0x00, 0x80, 0xc2, 0, 0, 0x00])));
    }

    #[test]
    fn vids() {
        assert_eq!(Vid::new(0), None);
        assert_eq!(Vid::new(4095), None);
        assert_eq!("4094".parse::<Vid>().unwrap().get(), 4094);
        assert!("4095".parse::<Vid>().unwrap_err().to_string().contains("1 to 4094"));
        assert!("x".parse::<Vid>().is_err());
        assert!(Vid::try_from(0).is_err());
        assert_eq!(size_of::<Option<Vid>>(), 2);
    }

    #[test]
    fn tci_round_trip() {
        for tci in 0..=u16::MAX {
            assert_eq!(VlanTag::from_tci(tci).to_tci(), tci);
        }
        assert_eq!(VlanTag { pcp: 8, dei: false, vid: 0x1001 }.to_tci(), 1);
        assert_eq!(VlanTag::from_tci(0xb064), VlanTag { pcp: 5, dei: true, vid: 100 });
        assert_eq!(VlanTag::from_tci(0x0fff).vlan(), None);
    }

    #[test]
    fn fields_of_a_frame() {
        let (dst, src) = addresses(&FRAME).unwrap();
        assert_eq!(dst.to_string(), "33:33:00:00:00:01");
        assert_eq!(src.to_string(), "52:54:00:12:34:56");
        assert_eq!(vlan_tag(&FRAME), Some(VlanTag { pcp: 5, dei: true, vid: 100 }));
        assert_eq!(vlan_tag(&FRAME[..17]), None);
        assert_eq!(addresses(&FRAME[..13]), None);
        let mut untagged = FRAME;
        untagged[12] = 8;
        assert_eq!(vlan_tag(&untagged), None);
    }
}
