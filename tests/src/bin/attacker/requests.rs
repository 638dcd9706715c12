//! Endless requests: rings that restart over and over, and messages whose answers are not read.

use std::os::fd::AsFd;

use e2e::{Error, Peer, Result, memfd};
use memif::Secret;
use memif::message::{Init, MODE_ETHERNET, Message, VERSION};
use rustix::net::{SendFlags, send};
use vhost_user::frontend::Connection;
use vhost_user::message::Request;

use crate::client::{Client, NEEDED};
use crate::leaks::reconnect;
use crate::setup::{BAD, Kind, Setup};

/// Change that a client requests over and over while packets pass.
#[derive(Clone, Copy)]
pub(crate) enum Change {
    /// Stop and restart a ring.
    Restart,
    /// Disable and enable a ring.
    Toggle,
    /// Start and end dirty logging, as a migration does.
    Log,
    /// Announce the same memory again.
    Memory,
}

/// Changes the rings over and over. A memif client can only reconnect to change anything.
pub(crate) fn change_repeatedly(setup: &Setup, change: Change) -> Result<()> {
    if setup.kind == Kind::Memif {
        return reconnect(setup);
    }
    const LOG: u64 = 1 << 20;
    let log = memfd(LOG)?;
    setup.feed()?;
    loop {
        let mut client = setup.connect(NEEDED, false)?;
        while !client.is_over() {
            setup.round(|| {
                for _ in 0..50 {
                    client.serve()?;
                    let Client::VhostUser(front) = &mut client else { return Ok(()) };
                    let changed = (0..2).try_for_each(|ring| match change {
                        Change::Restart => front.restart(ring),
                        Change::Toggle => front.toggle(ring),
                        Change::Log => front.log(log.as_fd(), LOG),
                        Change::Memory => front.announce(),
                    });
                    // The port was lost; continue with the next client.
                    if changed.is_err() {
                        break;
                    }
                }
                Ok(())
            })?;
        }
    }
}

/// Content of a flood.
#[derive(Clone, Copy)]
pub(crate) enum Flood {
    /// Requests whose answers are not read.
    Unread,
    /// Single bytes of requests.
    Bytes,
    /// Headers that announce more bytes than follow.
    Promises,
    /// Random bytes.
    Noise,
}

/// Floods one connection after another until each is closed or full.
pub(crate) fn flood(setup: &Setup, flood: Flood) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(1);
    let mut open = Vec::new();
    loop {
        setup.round(|| {
            // Earlier connections stay open with full buffers.
            if open.len() > 20 {
                open.clear();
            }
            for _ in 0..50 {
                let connection = match setup.kind {
                    Kind::Memif => {
                        Peer::silent(&setup.path("memif")).map(|peer| peer.socket().try_clone_to_owned())
                    }
                    Kind::VhostUser => Connection::dial(setup.path("bad.sock").as_ref())
                        .map_err(Error::from)
                        .map(|connection| connection.socket().try_clone_to_owned()),
                };
                // The switch has not yet accepted all earlier connections.
                let Ok(Ok(connection)) = connection else { break };
                let request = match setup.kind {
                    Kind::Memif => {
                        let (version, mode, secret) = (VERSION, MODE_ETHERNET, Secret::default());
                        let init = Init { version, id: BAD, mode, secret, name: "hostile".to_string() };
                        Message::Init(init).encode().to_vec()
                    }
                    Kind::VhostUser => Request::GetFeatures.encode(false),
                };
                for _ in 0..2_000 {
                    let bytes = match flood {
                        Flood::Unread => request.clone(),
                        Flood::Bytes => request.iter().take(1).copied().collect(),
                        Flood::Promises => {
                            let mut header = request.clone();
                            if let Some(length) = header.get_mut(8..12) {
                                length.copy_from_slice(&4096u32.to_le_bytes());
                            }
                            header
                        }
                        Flood::Noise => (0..random.usize(1..300)).map(|_| random.u8(..)).collect(),
                    };
                    if send(&connection, &bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).is_err() {
                        break;
                    }
                }
                open.push(connection);
            }
            Ok(())
        })?;
    }
}
