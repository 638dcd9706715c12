//! The driver `af-xdp`: AF_XDP sockets, one for each receive queue of the interface.
//!
//! The interface's XDP program redirects packets to the sockets, past the host's stack. Packet memory is the switch's
//! own: the driver or the kernel writes a packet there, and the switch copies it once, to its receiver.
//!
//! Invariants: the program and the sockets end with their descriptors, however the process ends; a frame is in one
//! place at a time: with the kernel, in the batch that is being switched, or free to be filled.

mod rx;
mod tx;

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use fabric::{Caps, Egress, RxQueue};
use rustix::io::Errno;
use xsk::{Config, Mode, Program, Socket};

use super::driver::{Opened, Statistics};
use super::ethtool;
use super::links::{Interface, Namespace};
use crate::OpenError;

/// Entries of a ring: at 20 Mpps, 50 µs.
const RING: u32 = 1024;
/// Bytes of a frame, for usual packets and for larger ones.
const SMALL_FRAME: u32 = 2048;
const LARGE_FRAME: u32 = 4096;
/// Bytes of a frame beside the payload: the kernel's headroom, and an Ethernet header with two tags.
const OVERHEAD: u32 = 256 + 22;
/// Largest MTU of packets that fit in a small frame, and in a large one.
const SMALL_MTU: u32 = SMALL_FRAME - OVERHEAD;
const LARGE_MTU: u32 = LARGE_FRAME - OVERHEAD;

/// Opens a socket for each receive queue of an interface, in the best mode, or in `mode` only.
pub(super) fn open(
    namespace: &Arc<Namespace>,
    interface: &Interface,
    mode: Option<Mode>,
) -> Result<Opened, OpenError> {
    let (name, index, mtu) = (interface.name.clone(), interface.index, interface.mtu);
    let queues = ethtool::receive_queues(namespace.socket(), &name);
    let tags = Tags::keep(namespace, &name);
    namespace.run(move || open_here(&name, index, mtu, queues, mode, tags))
}

/// Opens the sockets in the calling thread's namespace.
fn open_here(
    name: &str,
    index: u32,
    mtu: u32,
    queues: u32,
    mode: Option<Mode>,
    tags: Tags,
) -> Result<Opened, OpenError> {
    let refused = |error: xsk::Error| OpenError(format!("interface `{name}`: {error}"));
    let program = Program::attach(index, mode).map_err(|error| match error.errno {
        Errno::BUSY | Errno::EXIST => OpenError(format!(
            "interface `{name}` has an XDP program already; find its owner with `bpftool net`, and stop it, or use \
             `driver = \"af-packet\"`"
        )),
        _ => refused(error),
    })?;
    let (mut rx, mut tx, mut sockets) = (Vec::new(), Vec::new(), Vec::new());
    for queue in 0..queues {
        let config = Config {
            interface: index,
            queue,
            size: RING,
            frame: if mtu <= SMALL_MTU { SMALL_FRAME } else { LARGE_FRAME },
            spans_frames: mtu > SMALL_MTU && program.has_frags(),
            zero_copy: program.mode() == Mode::Native,
        };
        let (socket, rings) = Socket::open(&config).map_err(refused)?;
        if mtu > LARGE_MTU && !socket.spans_frames() {
            return Err(OpenError(format!(
                "interface `{name}` has an MTU of {mtu}, and its driver or the kernel gives AF_XDP sockets no packets \
                 over several frames; set an MTU of at most {LARGE_MTU}, or use `driver = \"af-packet\"`"
            )));
        }
        let socket = Arc::new(socket);
        let sender = Arc::new(tx::XdpTx::new(socket.clone(), rings.tx, rings.completion));
        let receiver = rx::XdpRx::new(socket.clone(), rings.rx, rings.fill, sender.clone());
        tx.push(sender as Arc<dyn Egress>);
        rx.push(Box::new(receiver) as Box<dyn RxQueue>);
        sockets.push(socket);
    }
    // Packets come from now on.
    for (queue, socket) in (0..).zip(&sockets) {
        program.enter(queue, (**socket).as_fd()).map_err(refused)?;
    }
    let copies = if sockets.iter().all(|socket| socket.is_zero_copy()) { "zero-copy" } else { "copying" };
    let driver = format!("af-xdp, {}, {copies}", program.mode());
    let most = match sockets.first() {
        Some(socket) if socket.spans_frames() => u32::MAX,
        _ if mtu <= SMALL_MTU => SMALL_MTU,
        _ => LARGE_MTU,
    };
    let kept = Kept { sockets, _program: program, _tags: tags, most, told: AtomicU64::new(0) };
    Ok(Opened { rx, tx, caps: Caps::default(), statistics: Box::new(kept), driver, reason: String::new() })
}

/// The program and the sockets, as long as the port is attached.
struct Kept {
    sockets: Vec<Arc<Socket>>,
    _program: Program,
    _tags: Tags,
    /// Largest MTU.
    most: u32,
    /// Drops reported so far.
    told: AtomicU64,
}

impl Statistics for Kept {
    fn dropped(&self) -> u64 {
        let found = self.sockets.iter().filter_map(|socket| socket.statistics().ok());
        let sum: u64 = found.map(|it| it.dropped + it.ring_full + it.no_frame).sum();
        sum.saturating_sub(self.told.swap(sum, Relaxed))
    }

    fn fits(&self, mtu: u32) -> bool {
        mtu <= self.most
    }
}

/// Has the interface's driver leave VLAN tags in packets: AF_XDP has no place beside the packet. Undone on drop.
struct Tags {
    namespace: Arc<Namespace>,
    name: String,
    changed: bool,
}

impl Tags {
    fn keep(namespace: &Arc<Namespace>, name: &str) -> Self {
        let changed = ethtool::keep_vlan_tags(namespace.socket(), name, true);
        Self { namespace: namespace.clone(), name: name.to_owned(), changed }
    }
}

impl Drop for Tags {
    fn drop(&mut self) {
        if self.changed {
            ethtool::keep_vlan_tags(self.namespace.socket(), &self.name, false);
        }
    }
}
