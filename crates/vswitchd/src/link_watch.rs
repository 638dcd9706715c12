//! Changes of the host's interfaces, as a signal: an interface appeared, went, or changed its state (rtnetlink(7)).

use std::io;

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Group of notifications about interfaces (`RTMGRP_LINK`).
const LINKS: u32 = 1;

/// A socket with the kernel's notifications about interfaces of this network namespace.
pub(crate) struct LinkWatch(AsyncFd<OwnedFd>);

impl LinkWatch {
    /// Starts to listen. Needs a runtime's context.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Protocol 0 is NETLINK_ROUTE.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, LINKS))?;
        // SAFETY: an `OwnedFd` is open until it is dropped, by the `AsyncFd` that owns it, and always the same descriptor.
        let socket = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE)? };
        Ok(Self(socket))
    }

    /// Waits for a change. May be dropped before it is ready: nothing is lost.
    pub(crate) async fn changed(&self) -> io::Result<()> {
        loop {
            let mut ready = self.0.readable().await?;
            if ready.try_io(|socket| drain(socket.get_ref())).is_ok() {
                return Ok(());
            }
        }
    }
}

/// Takes all notifications: what they say is read elsewhere.
fn drain(socket: &OwnedFd) -> io::Result<()> {
    let mut buffer = [0; 8192];
    let mut any = false;
    loop {
        match recv(socket, &mut buffer[..], RecvFlags::empty()) {
            // Some were lost, which is a change all the same.
            Ok(_) | Err(Errno::NOBUFS) => any = true,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if any => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}
