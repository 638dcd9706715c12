//! Options of a TAP port, and their checks.
//!
//! Invariant: [`Netns`] and [`Address`] hold only values that their text forms allow; [`Options::check`] checks the
//! rest before anything is made.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use packet::ether::MacAddr;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::OpenError;

/// Largest number of queues of an interface (the kernel's `MAX_TAP_QUEUES`).
const MAX_QUEUES: u16 = 256;
/// Smallest MTU of the kernel for Ethernet (`ETH_MIN_MTU`), and of IPv4 (RFC 791 §3.2).
const MIN_MTU: u32 = 68;
/// Largest MTU: with the Ethernet header it makes the longest packet of the fabric.
const MAX_MTU: u32 = fabric::rx::MAX_PACKET - 14;
/// Smallest MTU with IPv6 (RFC 8200 §5).
const MIN_MTU_IPV6: u32 = 1280;
/// Longest name of an interface, bytes (`IFNAMSIZ` less its terminating zero).
const MAX_NAME: usize = libc::IFNAMSIZ - 1;

/// Options of a TAP port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Options {
    /// Name of the interface; the port's name if not given. At most 15 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Queues in each direction, 1 to 256.
    pub queues: u16,
    /// Largest packet without its Ethernet header, 68 to 65521 bytes.
    pub mtu: u32,
    /// MAC address of the host's end; the kernel picks one at random if not given.
    #[serde(with = "mac_text", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub mac: Option<MacAddr>,
    /// Network namespace of the interface; the switch's own if not given. The namespace stays while the port is open,
    /// even if its last process ends.
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
}

impl Default for Options {
    fn default() -> Self {
        Self {
            interface: None,
            queues: 1,
            mtu: 1500,
            mac: None,
            netns: None,
            addresses: Vec::new(),
            offloads: true,
        }
    }
}

impl Options {
    /// Refuses values that no interface can have.
    pub fn check(&self) -> Result<(), OpenError> {
        if let Some(name) = &self.interface {
            check_name(name).map_err(|why| {
                OpenError(format!("interface `{name}` cannot be the name of a network interface: {why}"))
            })?;
        }
        if !(1..=MAX_QUEUES).contains(&self.queues) {
            return Err(OpenError(format!(
                "queues = {}: a TAP interface has 1 to {MAX_QUEUES} queues",
                self.queues
            )));
        }
        if !(MIN_MTU..=MAX_MTU).contains(&self.mtu) {
            return Err(OpenError(format!(
                "mtu = {}: the MTU of a TAP port is {MIN_MTU} to {MAX_MTU} bytes",
                self.mtu
            )));
        }
        if let Some(address) = self.addresses.iter().find(|a| a.ip.is_ipv6() && self.mtu < MIN_MTU_IPV6) {
            return Err(OpenError(format!(
                "address {address} with mtu = {}: IPv6 needs an MTU of {MIN_MTU_IPV6} or more",
                self.mtu
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

    /// Returns the interface's name for a port called `port`.
    pub(super) fn interface_name(&self, port: &str) -> Result<String, OpenError> {
        if let Some(name) = &self.interface {
            return Ok(name.clone());
        }
        check_name(port).map_err(|why| {
            OpenError(format!(
                "the port's name `{port}` cannot be the name of a network interface: {why}; set `interface`"
            ))
        })?;
        Ok(port.to_owned())
    }
}

/// Refuses names that the kernel refuses (`dev_valid_name`), and `%`, which it reads as a template.
fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err(format!("1 to {MAX_NAME} bytes are expected"));
    }
    if name.len() > MAX_NAME {
        return Err(format!("it is too long: {} bytes, the limit is {MAX_NAME}", name.len()));
    }
    if name == "." || name == ".." {
        return Err("it is the name of a directory".to_owned());
    }
    match name.chars().find(|c| matches!(c, '/' | ':' | '%') || c.is_whitespace() || c.is_control()) {
        Some(bad) => Err(format!("it must not contain {bad:?}")),
        None => Ok(()),
    }
}

/// A network namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Netns {
    /// A namespace made by `ip netns add`, by its name under /run/netns.
    Name(String),
    /// A namespace by the absolute path of its file.
    Path(PathBuf),
    /// The namespace of a process.
    Pid(u32),
}

impl Netns {
    /// Returns the path of its file.
    pub fn path(&self) -> PathBuf {
        match self {
            Netns::Name(name) => PathBuf::from("/run/netns").join(name),
            Netns::Path(path) => path.clone(),
            Netns::Pid(pid) => PathBuf::from(format!("/proc/{pid}/ns/net")),
        }
    }
}

impl FromStr for Netns {
    type Err = OpenError;

    fn from_str(text: &str) -> Result<Self, OpenError> {
        let refused = || {
            OpenError(format!(
                "`{text}` is not a network namespace: a name under /run/netns, an absolute path, or `pid:` with a \
                 process number is expected"
            ))
        };
        if let Some(pid) = text.strip_prefix("pid:") {
            return pid.parse().ok().filter(|pid| *pid > 0).map(Netns::Pid).ok_or_else(refused);
        }
        if text.contains('\0') {
            return Err(refused());
        }
        if text.starts_with('/') {
            return Ok(Netns::Path(PathBuf::from(text)));
        }
        if text.is_empty() || text == "." || text == ".." || text.contains('/') {
            return Err(refused());
        }
        Ok(Netns::Name(text.to_owned()))
    }
}

impl fmt::Display for Netns {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Netns::Name(name) => out.write_str(name),
            Netns::Path(path) => path.display().fmt(out),
            Netns::Pid(pid) => write!(out, "pid:{pid}"),
        }
    }
}

impl TryFrom<String> for Netns {
    type Error = OpenError;

    fn try_from(text: String) -> Result<Self, OpenError> {
        text.parse()
    }
}

impl From<Netns> for String {
    fn from(netns: Netns) -> Self {
        netns.to_string()
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
mod mac_text {
    use packet::ether::MacAddr;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(mac: &Option<MacAddr>, to: S) -> Result<S::Ok, S::Error> {
        match mac {
            Some(mac) => to.collect_str(mac),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<MacAddr>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| text.parse().map_err(de::Error::custom)).transpose()
    }
}
