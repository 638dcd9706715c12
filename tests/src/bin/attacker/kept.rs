//! Memory and descriptors that the switch could keep when a client has gone.

use std::time::Duration;

use bench::port::Rings;
use e2e::{Error, Peer, Result, until};
use memif::Secret;
use memif::message::{AddRegion, Init, MODE_ETHERNET, Message, VERSION};
use vhost_user::features::{device, protocol};
use vhost_user::frontend::{Connection, DeviceConfig, NetDevice};
use vhost_user::message::{Region, Request};

use crate::plug::NEEDED;
use crate::scene::{BAD, Kind, Scene};

/// Queue pairs, as many as a port takes.
const QUEUES: u16 = 16;
const LIMIT: Duration = Duration::from_secs(20);

/// The largest rings, as many as possible, full of the longest chains, which the partner fills.
pub(crate) fn rings(scene: &Scene) -> Result<()> {
    scene.feed()?;
    let mut packet = Vec::new();
    loop {
        match scene.kind {
            Kind::Memif => {
                let rings = Rings { queues: QUEUES, log2_size: 14, buffer_size: 64 };
                let spec = bench::port::PortSpec::new(&scene.path("memif"), BAD);
                let mut client =
                    until("the port to be free", LIMIT, || Ok(bench::port::connect(&spec, rings).ok()))?;
                scene.deed(|| {
                    for _ in 0..1_000 {
                        for queue in 0..QUEUES.into() {
                            while client.pop(queue, &mut packet) {}
                            client.refill(queue);
                        }
                    }
                    Ok(())
                })?;
            }
            Kind::VhostUser => {
                let config = DeviceConfig {
                    features: device::VERSION_1 | device::PROTOCOL_FEATURES | device::MQ,
                    pairs: QUEUES,
                    size: 1 << 15,
                    send_buffers: 1,
                    receive_buffers: 8_000,
                    receive_buffer: 256,
                    pieces: 4,
                };
                // The double has rings of a common size.
                let config = if scene.calm {
                    DeviceConfig { size: 256, receive_buffers: 64, ..config }
                } else {
                    config
                };
                let socket = scene.path("bad.sock");
                let mut device = until("the port to be free", LIMIT, || {
                    let connection = Connection::dial(socket.as_ref()).ok();
                    Ok(connection.and_then(|connection| NetDevice::start(connection, config).ok()))
                })?;
                scene.deed(|| {
                    for _ in 0..100 {
                        for pair in 0..QUEUES.into() {
                            while device.receive(pair).map_err(|e| Error(e.to_string()))?.is_some() {}
                        }
                    }
                    Ok(())
                })?;
            }
        }
    }
}

/// Connects and goes, over and over.
pub(crate) fn reconnect(scene: &Scene) -> Result<()> {
    scene.feed()?;
    loop {
        let rounds = if scene.calm { 1 } else { 20 };
        for _ in 0..rounds {
            drop(scene.plug(NEEDED, false)?);
        }
        scene.deed(|| Ok(()))?;
    }
}

/// Announces as much memory as the switch takes, in as many pieces, and goes.
pub(crate) fn regions(scene: &Scene) -> Result<()> {
    loop {
        scene.deed(|| {
            let file = scene.file(1 << 40, false)?;
            match scene.kind {
                Kind::Memif => {
                    let Ok(peer) = Peer::connect(&scene.path("memif")) else { return Ok(()) };
                    let (version, mode, secret) = (VERSION, MODE_ETHERNET, Secret::default());
                    let init = Init { version, id: BAD, mode, secret, name: "hostile".to_string() };
                    let mut said = peer.ask(&Message::Init(init), None);
                    for index in 0..u16::MAX {
                        let region = Message::AddRegion(AddRegion { index, size: 1 << 40 });
                        said = said.and_then(|()| peer.ask(&region, Some(std::os::fd::AsFd::as_fd(&file))));
                        if said.is_err() {
                            break;
                        }
                    }
                }
                Kind::VhostUser => {
                    let Ok(mut connection) = Connection::dial(scene.path("bad.sock").as_ref()) else {
                        return Ok(());
                    };
                    let features = protocol::REPLY_ACK | protocol::CONFIGURE_MEM_SLOTS;
                    if connection.tell(&Request::SetProtocolFeatures(features), &[]).is_err() {
                        return Ok(());
                    }
                    for index in 0..1_000 {
                        let (guest, size) = (index << 40, 1 << 40);
                        let region = Region { guest, size, user: guest, offset: 0 };
                        let said = connection.ask(
                            &Request::AddMemReg(region),
                            &[std::os::fd::AsFd::as_fd(&file)],
                            true,
                        );
                        if said.is_err() {
                            break;
                        }
                    }
                }
            }
            Ok(())
        })?;
    }
}

/// Many connections that say nothing, or half of something.
pub(crate) fn silent(scene: &Scene) -> Result<()> {
    let mut connections = Vec::new();
    loop {
        scene.deed(|| {
            connections.clear();
            for number in 0..500 {
                match scene.kind {
                    Kind::Memif => {
                        let peer = Peer::silent(&scene.path("memif"));
                        connections.extend(peer.ok().map(Silent::Memif));
                    }
                    Kind::VhostUser => {
                        let connection = Connection::dial(scene.path("bad.sock").as_ref());
                        connections.extend(
                            connection.ok().map(|connection| Silent::VhostUser(Box::new(connection))),
                        );
                    }
                }
                if number % 2 == 0
                    && let Some(last) = connections.last()
                {
                    // It may be turned away already.
                    let _ = e2e::send_bytes(last.socket(), &[1, 0, 0], &[]);
                }
            }
            Ok(())
        })?;
    }
}

enum Silent {
    Memif(Peer),
    VhostUser(Box<Connection>),
}

impl Silent {
    fn socket(&self) -> std::os::fd::BorrowedFd<'_> {
        match self {
            Silent::Memif(peer) => peer.socket(),
            Silent::VhostUser(connection) => connection.socket(),
        }
    }
}
