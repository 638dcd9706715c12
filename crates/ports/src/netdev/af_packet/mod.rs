//! The driver `af-packet`: packet sockets, one for each queue.
//!
//! Frames cross after a `virtio_net_hdr` (`PACKET_VNET_HDR`), so that 64 KiB segments and partial checksums pass uncut
//! in both directions. The kernel puts received frames of usual size into a ring; larger ones, and those to send, are a
//! system call a batch, in which the kernel copies them to or from the memory where the fabric has them.
//!
//! Invariants: no socket blocks; a socket sees one interface from its first packet on, and none that the host or the
//! switch sends through it. Everything that sockets changed at the interface (promiscuous mode, the fanout group) ends
//! with them.

mod backlog;
mod messages;
mod ring;
mod rooms;
mod rx;
mod socket;
mod stall;
mod tag;
mod tx;

use std::sync::Arc;

use fabric::{Caps, Egress, RxQueue};

use super::driver::{Opened, Statistics};
use super::links::{Interface, Namespace};
use crate::OpenError;
pub(super) use socket::promiscuous;
pub(super) use stall::Stall;
use stall::{Lookout, Progress};

/// Bytes of the `virtio_net_hdr` at a packet socket: without the number of buffers.
const LEGACY_HEADER: usize = 10;

/// Opens so many sockets at an interface, with rings unless one has stopped before.
pub(super) fn open(
    namespace: &Arc<Namespace>,
    interface: &Interface,
    queues: u16,
    stall: &Arc<Stall>,
) -> Result<Opened, OpenError> {
    let without = stall.without_rings();
    let (name, index) = (interface.name.clone(), interface.index);
    let sockets = namespace.run(move || socket::open(&name, index, queues, !without))?;
    let refused = sockets.iter().find_map(|(_, ring)| ring.as_ref().err().copied());
    let (mut rx, mut sockets_and_progress) = (Vec::new(), Vec::new());
    for (socket, ring) in sockets {
        let (socket, ring) = (Arc::new(socket), ring.ok().map(Arc::new));
        let progress = Progress::new(socket.clone(), ring.clone());
        let queue = rx::PacketRx::new(socket.clone(), ring, progress.clone()).map_err(|error| {
            OpenError(format!("interface `{}`: no memory for received packets: {error}", interface.name))
        })?;
        rx.push(Box::new(queue) as Box<dyn RxQueue>);
        sockets_and_progress.push((socket, progress));
    }
    let (sockets, progress): (Vec<_>, Vec<_>) = sockets_and_progress.into_iter().unzip();
    let lookout = Lookout::new(progress, stall.clone());
    let tx = sockets.into_iter().map(|socket| {
        // Without rings there is nothing to look for.
        let lookout = refused.is_none().then(|| lookout.clone());
        Arc::new(tx::PacketTx::new(socket, lookout)) as Arc<dyn Egress>
    });
    let tx = tx.collect();
    let driver = match refused {
        _ if without => "af-packet, without the receive ring, which stopped at a frame".into(),
        Some(error) => format!("af-packet, without a receive ring: {error}"),
        None => "af-packet".into(),
    };
    Ok(Opened {
        rx,
        tx,
        caps: Caps { csum: true, tso4: true, tso6: true, uso: socket::knows_udp_segments() },
        statistics: Box::new(Sockets(lookout)),
        xdp: None,
        driver,
        reason: String::new(),
    })
}

struct Sockets(Arc<Lookout>);

impl Statistics for Sockets {
    fn dropped(&self) -> u64 {
        self.0.take_dropped()
    }
}
