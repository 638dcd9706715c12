//! Metrics for Prometheus: all counters of the switch over HTTP, at `/metrics`, in the text format 0.0.4.
//!
//! Disabled unless an [`Address`] is set. A scrape reads counters that the workers write anyway: it takes no lock of a
//! worker and causes no extra work there. Time series are per bridge, port and worker, not per queue, so their number
//! is a small multiple of the number of ports; `mswitch port stats --queues` shows the queues.
//!
//! - `collect` defines the metrics and reads their values;
//! - `exposition` formats them;
//! - `endpoint` serves HTTP.

mod collect;
mod endpoint;
mod exposition;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

pub use endpoint::{Endpoint, EndpointError};

/// The address at which metrics are served: `127.0.0.1:9090`, `[::1]:9090`, or `9090` for that port of 127.0.0.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address(SocketAddr);

/// Reason for refusing a text as an [`Address`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not an address for metrics; expected ADDRESS:PORT such as 127.0.0.1:9090 or [::1]:9090, \
     or a port alone for 127.0.0.1"
)]
pub struct AddressError(String);

impl Address {
    /// Returns whether only this machine can reach it.
    pub fn is_loopback(self) -> bool {
        self.0.ip().is_loopback()
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        // Digits only: `parse` would accept `+1`.
        let port = text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten();
        let address = match port {
            Some(port) => Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)),
            None => text.parse().ok(),
        };
        address.map(Self).ok_or_else(|| AddressError(text.into()))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Option<String> {
        text.parse::<Address>().ok().map(|address| address.to_string())
    }

    #[test]
    fn a_port_alone_means_loopback() {
        assert_eq!(address("9090").as_deref(), Some("127.0.0.1:9090"));
        assert!("9090".parse::<Address>().is_ok_and(Address::is_loopback));
    }

    #[test]
    fn other_addresses_are_explicit() {
        for (text, loopback) in
            [("127.0.0.1:1", true), ("[::1]:1", true), ("0.0.0.0:1", false), ("[::]:1", false)]
        {
            assert_eq!(text.parse().map(Address::is_loopback), Ok(loopback), "{text}");
        }
        for bad in ["", ":9090", "*:9090", "127.0.0.1", "localhost:9090", "65536", "+1", "9090 "] {
            let error = bad.parse::<Address>().unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("`{bad}` is not an address for metrics; expected")),
                "{error}"
            );
        }
    }
}
