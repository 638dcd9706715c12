//! Many connected, idle clients.

use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::port::{Client, Error, PortSpec, Rings, check_connected, connect};

/// Descriptors per client with a queue each way: socket, region, two eventfds.
const DESCRIPTORS_EACH: u64 = 4;

/// Connected clients.
#[derive(Debug)]
pub struct Idle {
    clients: Vec<(PortSpec, Box<dyn Client>)>,
}

impl Idle {
    /// Connects `count` clients to interfaces `first.id`, `first.id + 1`, ... of one socket. They ask for interrupts,
    /// like sleeping clients.
    pub fn connect(first: &PortSpec, count: u32, rings: Rings) -> Result<Idle, Error> {
        allow_descriptors(u64::from(count) * (DESCRIPTORS_EACH + 2 * u64::from(rings.queues)) + 256)?;
        let mut clients = Vec::new();
        for number in 0..count {
            let spec = PortSpec { id: first.id + number, ..first.clone() };
            let mut client = connect(&spec, rings)?;
            (0..client.queues().1).for_each(|queue| client.set_interrupts(queue, true));
            clients.push((spec, client));
        }
        Ok(Idle { clients })
    }

    /// Fails if one of them was disconnected.
    pub fn check(&mut self) -> Result<(), Error> {
        self.clients.iter_mut().try_for_each(|(spec, client)| check_connected(&mut **client, spec))
    }

    /// Holds the connections for this duration.
    pub fn hold(&mut self, duration: Duration) -> Result<(), Error> {
        std::thread::sleep(duration);
        self.check()
    }
}

/// Raises this process's limit of open files to at least `count`.
pub fn allow_descriptors(count: u64) -> Result<(), Error> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= count) {
        return Ok(());
    }
    let maximum = limit.maximum.map(|maximum| maximum.max(count));
    setrlimit(Resource::Nofile, Rlimit { current: Some(count), maximum })
        .map_err(|e| Error::System { operation: "cannot raise the limit of open files", source: e.into() })
}
