//! Memory and descriptors that the switch could fail to release after a client has gone.

use std::time::Duration;

use bench::port::Rings;
use e2e::{Error, Peer, Result, until};
use memif::Secret;
use memif::message::{AddRegion, Init, MODE_ETHERNET, Message, VERSION};
use vhost_user::features::{device, protocol};
use vhost_user::frontend::{Connection, DeviceConfig, NetDevice};
use vhost_user::message::{Region, Request};

use crate::client::NEEDED;
use crate::setup::{BAD, Kind, Setup};

/// Queue pairs: as many as a port accepts.
const QUEUES: u16 = 16;
const LIMIT: Duration = Duration::from_secs(20);

/// The most and largest rings, full of the longest chains, which the partner fills.
pub(crate) fn rings(setup: &Setup) -> Result<()> {
    setup.feed()?;
    let mut packet = Vec::new();
    loop {
        match setup.kind {
            Kind::Memif => {
                let rings = Rings { queues: QUEUES, log2_size: 14, buffer_size: 64 };
                let spec = bench::port::PortSpec::new(&setup.path("memif"), BAD);
                let mut client =
                    until("the port to be free", LIMIT, || Ok(bench::port::connect(&spec, rings).ok()))?;
                setup.round(|| {
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
                // The baseline has rings of a common size.
                let config = if setup.baseline {
                    DeviceConfig { size: 256, receive_buffers: 64, ..config }
                } else {
                    config
                };
                let socket = setup.path("bad.sock");
                let mut device = until("the port to be free", LIMIT, || {
                    let connection = Connection::dial(socket.as_ref()).ok();
                    Ok(connection.and_then(|connection| NetDevice::start(connection, config).ok()))
                })?;
                setup.round(|| {
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

/// Connects and disconnects over and over.
pub(crate) fn reconnect(setup: &Setup) -> Result<()> {
    setup.feed()?;
    loop {
        let rounds = if setup.baseline { 1 } else { 20 };
        for _ in 0..rounds {
            drop(setup.connect(NEEDED, false)?);
        }
        setup.round(|| Ok(()))?;
    }
}

/// Announces as much memory as the switch accepts, in as many regions, and disconnects.
pub(crate) fn regions(setup: &Setup) -> Result<()> {
    loop {
        setup.round(|| {
            let file = setup.file(1 << 40, false)?;
            match setup.kind {
                Kind::Memif => {
                    let Ok(peer) = Peer::connect(&setup.path("memif")) else { return Ok(()) };
                    let (version, mode, secret) = (VERSION, MODE_ETHERNET, Secret::default());
                    let init = Init { version, id: BAD, mode, secret, name: "hostile".to_string() };
                    let mut answer = peer.ask(&Message::Init(init), None);
                    for index in 0..u16::MAX {
                        let region = Message::AddRegion(AddRegion { index, size: 1 << 40 });
                        answer =
                            answer.and_then(|()| peer.ask(&region, Some(std::os::fd::AsFd::as_fd(&file))));
                        if answer.is_err() {
                            break;
                        }
                    }
                }
                Kind::VhostUser => {
                    let Ok(mut connection) = Connection::dial(setup.path("bad.sock").as_ref()) else {
                        return Ok(());
                    };
                    let features = protocol::REPLY_ACK | protocol::CONFIGURE_MEM_SLOTS;
                    if connection.tell(&Request::SetProtocolFeatures(features), &[]).is_err() {
                        return Ok(());
                    }
                    for index in 0..1_000 {
                        let (guest, size) = (index << 40, 1 << 40);
                        let region = Region { guest, size, user: guest, offset: 0 };
                        let answer = connection.ask(
                            &Request::AddMemReg(region),
                            &[std::os::fd::AsFd::as_fd(&file)],
                            true,
                        );
                        if answer.is_err() {
                            break;
                        }
                    }
                }
            }
            Ok(())
        })?;
    }
}

/// Many connections that send nothing, or half a message.
pub(crate) fn silent(setup: &Setup) -> Result<()> {
    let mut connections = Vec::new();
    loop {
        setup.round(|| {
            connections.clear();
            for number in 0..500 {
                match setup.kind {
                    Kind::Memif => {
                        let peer = Peer::silent(&setup.path("memif"));
                        connections.extend(peer.ok().map(Silent::Memif));
                    }
                    Kind::VhostUser => {
                        let connection = Connection::dial(setup.path("bad.sock").as_ref());
                        connections.extend(
                            connection.ok().map(|connection| Silent::VhostUser(Box::new(connection))),
                        );
                    }
                }
                if number % 2 == 0
                    && let Some(last) = connections.last()
                {
                    // The switch may have closed the connection already.
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
