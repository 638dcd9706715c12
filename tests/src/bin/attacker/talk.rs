//! Requests without end: rings that start again and again, and messages that nobody reads the answers of.

use std::os::fd::AsFd;

use e2e::{Error, Peer, Result, memfd};
use memif::Secret;
use memif::message::{Init, MODE_ETHERNET, Message, VERSION};
use rustix::net::{SendFlags, send};
use vhost_user::frontend::Connection;
use vhost_user::message::Request;

use crate::kept::reconnect;
use crate::plug::{NEEDED, Plug};
use crate::scene::{BAD, Kind, Scene};

/// What a client asks for over and over while packets pass.
#[derive(Clone, Copy)]
pub(crate) enum Change {
    /// A ring stops and goes on.
    Restart,
    /// A ring is turned off and on.
    Toggle,
    /// A migration begins and ends.
    Log,
    /// The memory is announced again.
    Memory,
}

/// Asks for a change of its rings over and over. A memif client has one way to change anything: to come again.
pub(crate) fn changing(scene: &Scene, change: Change) -> Result<()> {
    if scene.kind == Kind::Memif {
        return reconnect(scene);
    }
    const LOG: u64 = 1 << 20;
    let log = memfd(LOG)?;
    scene.feed()?;
    loop {
        let mut plug = scene.plug(NEEDED, false)?;
        while !plug.is_over() {
            scene.deed(|| {
                for _ in 0..50 {
                    plug.serve()?;
                    let Plug::VhostUser(front) = &mut plug else { return Ok(()) };
                    let changed = (0..2).try_for_each(|ring| match change {
                        Change::Restart => front.restart(ring),
                        Change::Toggle => front.toggle(ring),
                        Change::Log => front.log(log.as_fd(), LOG),
                        Change::Memory => front.announce(),
                    });
                    // The port was lost: the next client.
                    if changed.is_err() {
                        break;
                    }
                }
                Ok(())
            })?;
        }
    }
}

/// How a connection is flooded.
#[derive(Clone, Copy)]
pub(crate) enum Flood {
    /// Requests whose answers are not read.
    Unread,
    /// Requests byte by byte.
    Bytes,
    /// Headers that promise more than comes.
    Promises,
    /// Noise.
    Noise,
}

/// Floods one connection after another until each is closed or takes no more.
pub(crate) fn flooding(scene: &Scene, flood: Flood) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(1);
    let mut open = Vec::new();
    loop {
        scene.deed(|| {
            // Those before stay open, full as they are.
            if open.len() > 20 {
                open.clear();
            }
            for _ in 0..50 {
                let connection = match scene.kind {
                    Kind::Memif => {
                        Peer::silent(&scene.path("memif")).map(|peer| peer.socket().try_clone_to_owned())
                    }
                    Kind::VhostUser => Connection::dial(scene.path("bad.sock").as_ref())
                        .map_err(Error::from)
                        .map(|connection| connection.socket().try_clone_to_owned()),
                };
                // More have come than the switch has taken.
                let Ok(Ok(connection)) = connection else { break };
                let request = match scene.kind {
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
