//! Sockets that keep the host from using reserved endpoints: bound, never listening, not shared (no `SO_REUSEADDR`, no
//! `SO_REUSEPORT`). The kernel refuses every other `bind` there, and does not choose these ports for connections.
//!
//! The kernel decides likewise whether the host uses an endpoint already: then the socket here cannot be bound. It does
//! not decide about the address: it binds sockets to broadcast addresses too, to any address with
//! `net.ipv4.ip_nonlocal_bind`, and nothing of a protocol that it lacks.
//!
//! Invariants: only an address of an interface is held; a thread that entered another network namespace ends there.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, ipproto, socket_with, sockopt};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::holder;
use super::request::{Endpoints, Protocol};

/// Reasons for not holding endpoints.
#[derive(Debug, thiserror::Error)]
pub(super) enum HoldError {
    #[error(
        "the host uses {} {address} port {port} already{}; stop that, or reserve another port",
        .protocol.name(), by(.holder)
    )]
    InUse { protocol: Protocol, address: IpAddr, port: u16, holder: Option<String> },
    #[error("the host has no address {0}; add it to the host's interface first")]
    NoAddress(IpAddr),
    #[error("{0} is the broadcast address of a network of the host")]
    Broadcast(IpAddr),
    #[error("ports below 1024 need CAP_NET_BIND_SERVICE, which the daemon lacks; see docs/three-tuple.md")]
    Privileged,
    #[error("no more files can be opened; release reservations, or raise `LimitNOFILE` of the daemon")]
    Files,
    #[error("network namespace {0}: {1}")]
    Namespace(PathBuf, Errno),
    #[error("cannot hold {0}: {1}")]
    Other(String, Errno),
}

fn by(holder: &Option<String>) -> String {
    match holder {
        Some(holder) => format!(": {holder}"),
        None => " (the process was not found; a closed connection may still be in TIME_WAIT)".into(),
    }
}

/// Binds a socket for each of the endpoints in the host's network namespace, by default the daemon's. Of a protocol
/// that the kernel does not have, nothing needs to be held: the result is empty.
pub(super) fn hold(netns: Option<&Path>, endpoints: &Endpoints) -> Result<Vec<OwnedFd>, HoldError> {
    let Some(netns) = netns else { return hold_here(endpoints) };
    let enter = || {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = rustix::fs::open(netns, flags, Mode::empty())?;
        move_into_link_name_space(std::os::fd::AsFd::as_fd(&file), Some(LinkNameSpaceType::Network))
    };
    let there = || {
        enter().map_err(|error| HoldError::Namespace(netns.into(), error))?;
        hold_here(endpoints)
    };
    let failed = || HoldError::Namespace(netns.into(), Errno::AGAIN);
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("mswitch-netns".into());
        let thread = thread.spawn_scoped(scope, there).map_err(|_| failed())?;
        thread.join().unwrap_or_else(|_| Err(failed()))
    })
}

fn hold_here(endpoints: &Endpoints) -> Result<Vec<OwnedFd>, HoldError> {
    check_address(endpoints)?;
    let mut held = Vec::new();
    for port in endpoints.ports.iter() {
        match hold_one(endpoints, port) {
            Ok(socket) => held.push(socket),
            Err(Errno::PROTONOSUPPORT | Errno::SOCKTNOSUPPORT) => return Ok(Vec::new()),
            Err(error) => return Err(explain(endpoints, port, error)),
        }
    }
    Ok(held)
}

/// Refuses what is not the address of an interface.
fn check_address(endpoints: &Endpoints) -> Result<(), HoldError> {
    let failed = |error| explain(endpoints, endpoints.ports.bounds().0, error);
    let address = endpoints.address;
    let is_there = match address {
        IpAddr::V6(v6) => has_v6(v6).map_err(failed)?,
        IpAddr::V4(v4) => {
            let probe = open(AddressFamily::INET, SocketType::DGRAM, ipproto::UDP).map_err(failed)?;
            // The kernel sends groups' packets from addresses of interfaces only.
            let is_there = sockopt::set_ip_multicast_if(&probe, &v4).is_ok();
            // Nor does a socket reach a broadcast address that has not asked for it.
            if !is_there && connect(&probe, &SocketAddr::new(address, 9)) == Err(Errno::ACCESS) {
                return Err(HoldError::Broadcast(address));
            }
            is_there
        }
    };
    if is_there { Ok(()) } else { Err(HoldError::NoAddress(address)) }
}

/// Looks for an address in the kernel's list, in which the first word of a line is the address in hexadecimal.
fn has_v6(address: Ipv6Addr) -> rustix::io::Result<bool> {
    let list = std::fs::read_to_string("/proc/thread-self/net/if_inet6");
    let list = list.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let word = format!("{:032x}", address.to_bits());
    Ok(list.lines().any(|line| line.split_ascii_whitespace().next() == Some(&word)))
}

fn open(
    family: AddressFamily,
    kind: SocketType,
    protocol: rustix::net::Protocol,
) -> rustix::io::Result<OwnedFd> {
    socket_with(family, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, Some(protocol))
}

fn hold_one(endpoints: &Endpoints, port: u16) -> rustix::io::Result<OwnedFd> {
    let (kind, protocol) = match endpoints.protocol {
        Protocol::Tcp => (SocketType::STREAM, ipproto::TCP),
        Protocol::Udp => (SocketType::DGRAM, ipproto::UDP),
        Protocol::Sctp => (SocketType::STREAM, ipproto::SCTP),
    };
    let family = if endpoints.address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = open(family, kind, protocol)?;
    // Nothing reads what the host's own processes may send here: the kernel keeps as little as it can.
    sockopt::set_socket_recv_buffer_size(&socket, 0)?;
    bind(&socket, &SocketAddr::new(endpoints.address, port))?;
    Ok(socket)
}

fn explain(endpoints: &Endpoints, port: u16, error: Errno) -> HoldError {
    let Endpoints { protocol, address, .. } = *endpoints;
    match error {
        Errno::ADDRINUSE => {
            HoldError::InUse { protocol, address, port, holder: holder::find(protocol, address, port) }
        }
        Errno::ADDRNOTAVAIL => HoldError::NoAddress(address),
        Errno::ACCESS => HoldError::Privileged,
        Errno::MFILE | Errno::NFILE => HoldError::Files,
        error => HoldError::Other(format!("{} {address} port {port}", protocol.name()), error),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    /// Endpoints at the loopback address, which requests cannot name.
    fn loopback(protocol: Protocol, port: u16) -> Endpoints {
        let ports = port.to_string().parse().unwrap();
        Endpoints { protocol, address: IpAddr::from([127, 0, 0, 1]), ports }
    }

    #[test]
    fn held_ports_are_refused_until_they_are_let_go() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let held = hold(None, &loopback(Protocol::Tcp, free)).unwrap();
        assert_eq!(held.len(), 1);
        for address in ["127.0.0.1", "0.0.0.0"] {
            // The listener of the standard library sets SO_REUSEADDR.
            let error = TcpListener::bind((address, free)).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
        }
        drop(held);
        TcpListener::bind(("127.0.0.1", free)).unwrap();
    }

    #[test]
    fn the_process_that_uses_a_port_is_named() {
        let other = UdpSocket::bind("0.0.0.0:0").unwrap();
        let port = other.local_addr().unwrap().port();
        let error = hold(None, &loopback(Protocol::Udp, port)).unwrap_err().to_string();
        let expected = format!("the host uses udp 127.0.0.1 port {port} already: ");
        assert!(
            error.starts_with(&expected) && error.contains(&format!("pid {}", std::process::id())),
            "{error}"
        );
    }

    #[test]
    fn foreign_addresses_and_namespaces_are_named() {
        let endpoints = Endpoints::parse("tcp", "192.0.2.77", "8080").unwrap();
        let error = hold(None, &endpoints).unwrap_err().to_string();
        assert_eq!(error, "the host has no address 192.0.2.77; add it to the host's interface first");
        let error =
            hold(Some(Path::new("/run/netns/none-of-this-name")), &endpoints).unwrap_err().to_string();
        assert!(error.starts_with("network namespace /run/netns/none-of-this-name: "), "{error}");
    }
}
