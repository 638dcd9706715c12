//! Options of a TAP port, and their checks.
//!
//! Invariant: an [`Address`] holds only values that its text form allows; [`Options::check`] checks the rest before
//! anything is made.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use packet::ether::MacAddr;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::netns::Netns;
use crate::{OpenError, interface_name};

/// Largest number of queues of an interface (the kernel's `MAX_TAP_QUEUES`).
const MAX_QUEUES: u16 = 256;
/// Smallest MTU of the kernel for Ethernet (`ETH_MIN_MTU`), and of IPv4 (RFC 791 §3.2).
const MIN_MTU: u32 = 68;
/// Largest MTU: with the Ethernet header it makes the longest packet of the fabric.
const MAX_MTU: u32 = fabric::rx::MAX_PACKET - 14;
/// MTU of an interface that the switch makes, unless another one is given.
pub(super) const DEFAULT_MTU: u32 = 1500;
/// Smallest MTU with IPv6 (RFC 8200 §5).
const MIN_MTU_IPV6: u32 = 1280;

/// Options of a TAP port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Options {
    /// Name of the interface; the port's name if not given. At most 15 bytes. The switch makes the interface unless one
    /// of this name exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Queues in each direction, 1 to 256.
    pub queues: u16,
    /// Largest packet without its Ethernet header, 68 to 65521 bytes; 1500 if not given, or what an existing interface
    /// has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// MAC address of the host's end; the kernel picks one at random if not given.
    #[serde(with = "mac_text", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub mac: Option<MacAddr>,
    /// Network namespace of the interface; the switch's own if not given. If the namespace is deleted, or the process
    /// of `pid:N` ends, the port is down until a namespace of that name exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub netns: Option<Netns>,
    /// Addresses of the host's end, such as `10.0.0.1/24`. IPv6 addresses are usable at once, without duplicate address
    /// detection.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub addresses: Vec<Address>,
    /// Whether packets may cross with partial checksums or uncut segments. Without, host and switch complete and cut
    /// each packet.
    pub offloads: bool,
    /// Whether the interface outlives the daemon, with its addresses and routes, for the next start to take it again.
    /// `port del` removes it, unless others made it.
    pub persist: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            interface: None,
            queues: 1,
            mtu: None,
            mac: None,
            netns: None,
            addresses: Vec::new(),
            offloads: true,
            persist: false,
        }
    }
}

impl Options {
    /// Refuses values that no interface can have.
    pub fn check(&self) -> Result<(), OpenError> {
        interface_name::check(self.interface.as_deref())?;
        if !(1..=MAX_QUEUES).contains(&self.queues) {
            return Err(OpenError(format!(
                "queues = {}: a TAP interface has 1 to {MAX_QUEUES} queues",
                self.queues
            )));
        }
        let mtu = self.mtu.unwrap_or(DEFAULT_MTU);
        if !(MIN_MTU..=MAX_MTU).contains(&mtu) {
            return Err(OpenError(format!(
                "mtu = {mtu}: the MTU of a TAP port is {MIN_MTU} to {MAX_MTU} bytes"
            )));
        }
        if let Some(address) = self.addresses.iter().find(|a| a.ip.is_ipv6() && mtu < MIN_MTU_IPV6) {
            return Err(OpenError(format!(
                "address {address} with mtu = {mtu}: IPv6 needs an MTU of {MIN_MTU_IPV6} or more"
            )));
        }
        if let Some(mac) = self.mac.filter(|mac| mac.is_multicast() || *mac == MacAddr::ZERO) {
            return Err(OpenError(format!(
                "mac = {mac} cannot be an interface's address: one that is not zero and not multicast (an even \
                 first byte) is expected, such as 52:54:00:12:34:56"
            )));
        }
        Ok(())
    }

    /// Returns whether a port with the options `next` can go on with a persistent interface of a port with these,
    /// provided that it bears the name wanted and has the queues. A withdrawn MAC address has no value to return to.
    pub(super) fn can_become(&self, next: &Options) -> bool {
        next.persist && next.netns == self.netns && (next.mac.is_some() || self.mac.is_none())
    }

    /// Returns the interface's name for a port called `port`.
    pub(super) fn interface_name(&self, port: &str) -> Result<String, OpenError> {
        interface_name::of_port(self.interface.as_deref(), port)
    }
}

/// An address of an interface, with the length of its network prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Address {
    ip: IpAddr,
    prefix: u8,
}

impl Address {
    /// Returns the address.
    pub fn ip(&self) -> IpAddr {
        self.ip
    }

    /// Returns the length of its network prefix, bits.
    pub fn prefix(&self) -> u8 {
        self.prefix
    }
}

impl FromStr for Address {
    type Err = OpenError;

    fn from_str(text: &str) -> Result<Self, OpenError> {
        let refused = |why: &str| {
            OpenError(format!(
                "`{text}` is not an interface's address: {why}; expected an address such as 10.0.0.1/24 or fd00::1/64"
            ))
        };
        let (ip, prefix) = text.split_once('/').ok_or_else(|| refused("the prefix length is missing"))?;
        let ip: IpAddr = ip.parse().map_err(|_| refused("the part before the `/` is no IP address"))?;
        let (bits, version) = if ip.is_ipv4() { (32, "IPv4") } else { (128, "IPv6") };
        let prefix = prefix
            .parse()
            .ok()
            .filter(|prefix| *prefix <= bits)
            .ok_or_else(|| refused(&format!("the prefix length of {version} is 0 to {bits}")))?;
        if ip.is_multicast() || ip.is_unspecified() {
            return Err(refused("no interface can have that address"));
        }
        Ok(Self { ip, prefix })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.ip, self.prefix)
    }
}

impl TryFrom<String> for Address {
    type Error = OpenError;

    fn try_from(text: String) -> Result<Self, OpenError> {
        text.parse()
    }
}

impl From<Address> for String {
    fn from(address: Address) -> Self {
        address.to_string()
    }
}

/// A MAC address as text.
pub(crate) mod mac_text {
    use packet::ether::MacAddr;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(crate) fn serialize<S: Serializer>(mac: &Option<MacAddr>, to: S) -> Result<S::Ok, S::Error> {
        match mac {
            Some(mac) => to.collect_str(mac),
            None => to.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<MacAddr>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| text.parse().map_err(de::Error::custom)).transpose()
    }
}
