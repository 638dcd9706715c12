//! Descriptors that block in close: TCP sockets that linger with unread data.

use std::io::{ErrorKind, IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use clientmem::MOST_DESCRIPTORS;
use e2e::{Error, Peer, Result, send_bytes};
use memif::Secret;
use memif::message::{AddRegion, Init, MODE_ETHERNET, Message, VERSION};
use rustix::net::sockopt::{set_socket_linger, set_socket_recv_buffer_size, set_socket_send_buffer_size};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use vhost_user::frontend::Connection;
use vhost_user::message::{Request, RingDescriptor};

use crate::setup::{BAD, Kind, Setup};

/// Unread peers kept open; the oldest are closed first.
const KEPT: usize = 2_000;
const SMALL: usize = 4096;

/// Ways of passing the descriptors to the switch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passed {
    /// With a request that expects one descriptor.
    Alone,
    /// As many as a message can carry.
    Many,
    /// Queued in a socket that is passed.
    Nested,
    /// With a request that is not received before the connection ends.
    Unread,
}

/// Passes lingering descriptors on one connection after another.
pub(crate) fn pass_lingering(setup: &Setup, how: Passed) -> Result<()> {
    let mut unread = Vec::new();
    loop {
        setup.round(|| {
            for _ in 0..10 {
                // An earlier connection may hold the port, or the switch be busy; continue with the next.
                let _ = pass(setup, how, &mut unread);
            }
            if unread.len() > KEPT {
                unread.drain(..unread.len() - KEPT);
            }
            Ok(())
        })?;
    }
}

/// Creates a socket whose last close waits until its peer has read everything. The peer is kept and never reads.
fn linger(unread: &mut Vec<TcpStream>) -> Result<TcpStream> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    set_socket_recv_buffer_size(&listener, SMALL).map_err(Error::while_doing("a small buffer"))?;
    let mut socket = TcpStream::connect(listener.local_addr()?)?;
    set_socket_send_buffer_size(&socket, SMALL).map_err(Error::while_doing("a small buffer"))?;
    unread.push(listener.accept()?.0);
    socket.set_nonblocking(true)?;
    loop {
        match socket.write(&[0; 1 << 14]) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error.into()),
        }
    }
    set_socket_linger(&socket, Some(Duration::from_secs(3600))).map_err(Error::while_doing("linger"))?;
    Ok(socket)
}

fn pass(setup: &Setup, how: Passed, unread: &mut Vec<TcpStream>) -> Result<()> {
    let descriptors = match how {
        Passed::Many => (0..MOST_DESCRIPTORS).map(|_| linger(unread)).collect::<Result<Vec<_>>>()?,
        _ => vec![linger(unread)?],
    };
    let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
    // A descriptor queued in a socket is closed together with it.
    let (nest, other) = UnixStream::pair()?;
    if how == Passed::Nested {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&borrowed));
        sendmsg(&other, &[IoSlice::new(b"x")], &mut control, SendFlags::empty())
            .map_err(Error::while_doing("cannot send"))?;
    }
    let nested = [nest.as_fd()];
    let passed = if how == Passed::Nested { &nested[..] } else { &borrowed };
    match setup.kind {
        Kind::VhostUser => {
            let mut connection = Connection::dial(setup.path("bad.sock").as_ref())?;
            let kick = Request::SetVringKick(RingDescriptor { ring: 0, present: true });
            send_bytes(connection.socket(), &kick.encode(false), passed)?;
            drop((descriptors, nest, other));
            if how != Passed::Unread {
                connection.wait_closed().map_err(|error| Error(error.to_string()))?;
            }
        }
        Kind::Memif => {
            let peer = Peer::connect(&setup.path("memif"))?;
            let (version, mode, secret) = (VERSION, MODE_ETHERNET, Secret::default());
            let init = Init { version, id: BAD, mode, secret, name: "hostile".to_string() };
            peer.ask(&Message::Init(init), None)?;
            let region = Message::AddRegion(AddRegion { index: 0, size: 1 << 20 });
            send_bytes(peer.socket(), &region.encode(), passed)?;
            drop((descriptors, nest, other));
            if how != Passed::Unread {
                peer.refusal()?;
            }
        }
    }
    Ok(())
}
