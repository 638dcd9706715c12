//! The driver `af-packet`: packet sockets, one for each queue.
//!
//! Frames cross after a `virtio_net_hdr` (`PACKET_VNET_HDR`), so that 64 KiB segments and partial checksums pass uncut
//! in both directions. A batch of frames is one system call, and the kernel copies it to or from the memory where the
//! fabric has it.
//!
//! Invariants: no socket blocks; a socket sees one interface from its first packet on, and none that the host or the
//! switch sends through it. Everything that sockets changed at the interface (promiscuous mode, the fanout group) ends
//! with them.

mod rx;
mod socket;
mod tx;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use fabric::{Caps, Egress, RxQueue};

use super::driver::{Opened, Statistics};
use super::links::{Interface, Namespace};
use crate::OpenError;

/// Bytes of the `virtio_net_hdr` at a packet socket: without the number of buffers.
const LEGACY_HEADER: usize = 10;

/// Opens so many sockets at an interface.
pub(super) fn open(
    namespace: &Arc<Namespace>,
    interface: &Interface,
    queues: u16,
) -> Result<Opened, OpenError> {
    let (name, index) = (interface.name.clone(), interface.index);
    let sockets = namespace.run(move || socket::open(&name, index, queues))?;
    let sockets: Vec<Arc<OwnedFd>> = sockets.into_iter().map(Arc::new).collect();
    Ok(Opened {
        rx: sockets
            .iter()
            .map(|socket| Box::new(rx::PacketRx::new(socket.clone())) as Box<dyn RxQueue>)
            .collect(),
        tx: sockets.iter().map(|socket| Arc::new(tx::PacketTx(socket.clone())) as Arc<dyn Egress>).collect(),
        caps: Caps { csum: true, tso4: true, tso6: true, uso: socket::knows_udp_segments() },
        statistics: Box::new(Sockets(sockets)),
        driver: "af-packet".into(),
        reason: String::new(),
    })
}

struct Sockets(Vec<Arc<OwnedFd>>);

impl Statistics for Sockets {
    fn dropped(&self) -> u64 {
        self.0.iter().map(|socket| socket::take_dropped(socket)).sum()
    }
}
