//! The driver `af-xdp`: AF_XDP sockets, one for each receive queue of the interface.
//!
//! The interface's XDP program redirects packets to the sockets, past the host's stack. Packet memory is the switch's
//! own: the driver or the kernel writes a packet there, and the switch copies it once, to its receiver.
//!
//! Invariants: the program and the sockets end with their descriptors, however the process ends; a frame is in one
//! place at a time: with the kernel, in the batch that is being switched, or free to be filled.

mod rx;
mod tx;

use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use fabric::{Caps, Egress, RxQueue};
use rustix::io::Errno;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use xsk::{Config, Mode, Program, Socket};

use super::driver::{Opened, Statistics};
use super::links::{Interface, Namespace};
use super::{af_packet, ethtool};
use crate::OpenError;
use tx::XdpTx;

/// Time until the kernel is asked again to send what it did not take.
const RESEND: Duration = Duration::from_millis(1);
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

/// Notes in front of packets of an interface ([`xsk::note`]).
#[derive(Debug)]
struct Notes {
    /// Not to be guessed by those who send packets.
    mark: u64,
    /// Whether programs may write any.
    are_expected: AtomicBool,
}

impl Notes {
    /// With a mark that depends on the interface and on the system's random numbers.
    fn new(interface: u32) -> Self {
        Self { mark: RandomState::new().hash_one(interface), are_expected: AtomicBool::new(false) }
    }
}

/// Opens a socket for each receive queue of an interface, in the best mode, or in `mode` only.
pub(super) fn open(
    namespace: &Arc<Namespace>,
    interface: &Interface,
    mode: Option<Mode>,
    busy_poll: bool,
    runtime: &Handle,
) -> Result<Opened, OpenError> {
    let (its_namespace, its_interface) = (namespace.clone(), interface.clone());
    let runtime = runtime.clone();
    namespace.run(move || open_here(&its_namespace, &its_interface, mode, busy_poll, &runtime))
}

/// Opens the sockets in the calling thread's namespace.
fn open_here(
    namespace: &Arc<Namespace>,
    interface: &Interface,
    mode: Option<Mode>,
    busy_poll: bool,
    runtime: &Handle,
) -> Result<Opened, OpenError> {
    let Interface { name, index, mtu, .. } = interface;
    let (index, mtu) = (*index, *mtu);
    let queues = ethtool::receive_queues(namespace.socket(), name);
    let refused = |error: xsk::Error| OpenError(format!("interface `{name}`: {error}"));
    let program = Program::attach(index, mode).map_err(|error| match error.errno {
        Errno::BUSY | Errno::EXIST => OpenError(format!(
            "interface `{name}` has an XDP program already; find its owner with `bpftool net`, and stop it, or use \
             `driver = \"af-packet\"`"
        )),
        _ => refused(error),
    })?;
    // Not before: a change of the setting, like the program, makes many cards lose their carrier.
    let tags = Tags::keep(namespace, name, index);
    let (mut rx, mut sockets, mut senders) = (Vec::new(), Vec::new(), Vec::new());
    let stuck = Arc::<Notify>::default();
    let notes = Arc::new(Notes::new(index));
    for queue in 0..queues {
        let config = Config {
            interface: index,
            queue,
            size: RING,
            frame: if mtu <= SMALL_MTU { SMALL_FRAME } else { LARGE_FRAME },
            spans_frames: mtu > SMALL_MTU && program.has_frags(),
            zero_copy: program.mode() == Mode::Native,
            busy_poll,
        };
        let (socket, rings) = Socket::open(&config).map_err(refused)?;
        if mtu > LARGE_MTU && !socket.spans_frames() {
            return Err(OpenError(format!(
                "interface `{name}` has an MTU of {mtu}, and its driver or the kernel gives AF_XDP sockets no packets \
                 over several frames; set an MTU of at most {LARGE_MTU}, or use `driver = \"af-packet\"`"
            )));
        }
        let socket = Arc::new(socket);
        let sender = Arc::new(XdpTx::new(socket.clone(), rings.tx, rings.completion, stuck.clone()));
        let (sender_of, notes_of) = (sender.clone(), notes.clone());
        let receiver = rx::XdpRx::new(socket.clone(), rings.rx, rings.fill, sender_of, notes_of, busy_poll);
        senders.push(sender);
        rx.push(Box::new(receiver) as Box<dyn RxQueue>);
        sockets.push(socket);
    }
    let promiscuous = af_packet::promiscuous(index).map_err(|error| {
        OpenError(format!("interface `{name}`: cannot make the interface promiscuous: {error}"))
    })?;
    // Packets come from now on.
    for (queue, socket) in (0..).zip(&sockets) {
        program.enter(queue, (**socket).as_fd()).map_err(refused)?;
    }
    let copies = if sockets.iter().all(|socket| socket.is_zero_copy()) { "zero-copy" } else { "copying" };
    let polling = if busy_poll { ", busy polling" } else { "" };
    let driver = format!("af-xdp, {}, {copies}{polling}", program.mode());
    let most = match sockets.first() {
        Some(socket) if socket.spans_frames() => u32::MAX,
        _ if mtu <= SMALL_MTU => SMALL_MTU,
        _ => LARGE_MTU,
    };
    let tx = senders.iter().map(|sender| sender.clone() as Arc<dyn Egress>).collect();
    let resender = Resender::start(senders, stuck, runtime);
    let program = Arc::new(program);
    let map = program
        .sockets()
        .try_clone_to_owned()
        .map_err(|error| OpenError(format!("interface `{name}`: {error}")))?;
    let (namespace, its) = (namespace.clone(), Arc::downgrade(&program));
    let xdp = Arc::new(Redirected { namespace, index, map, notes, program: its });
    let kept = Kept {
        _resender: resender,
        sockets,
        program,
        _promiscuous: promiscuous,
        _tags: tags,
        most,
        told: AtomicU64::new(0),
    };
    let (caps, statistics) = (Caps::default(), Box::new(kept));
    Ok(Opened { rx, tx, caps, statistics, driver, reason: String::new(), xdp: Some(xdp) })
}

/// The interface for those who have another program for it.
struct Redirected {
    namespace: Arc<Namespace>,
    index: u32,
    /// The map from queues to sockets.
    map: OwnedFd,
    notes: Arc<Notes>,
    /// Not kept: its link ends with the port, and another one would find the interface in use.
    program: Weak<Program>,
}

impl Redirected {
    fn with_program(&self, run: impl FnOnce(&Program) -> Result<(), xsk::Error>) -> Result<(), xsk::Error> {
        let gone = xsk::Error { step: "looking for the interface", errno: Errno::NODEV };
        self.program.upgrade().map_or(Err(gone), |program| run(&program))
    }
}

impl xsk::Interface for Redirected {
    fn sockets(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    fn replace(&self, program: BorrowedFd<'_>) -> Result<(), xsk::Error> {
        self.with_program(|own| own.replace(program))
    }

    fn restore(&self) -> Result<(), xsk::Error> {
        self.with_program(Program::restore)
    }

    fn expect_notes(&self) -> u64 {
        // Before the program is there, which is a system call away.
        self.notes.are_expected.store(true, Relaxed);
        self.notes.mark
    }

    fn connect(&self, interfaces: BorrowedFd<'_>, number: u32) -> Result<(), xsk::Error> {
        let refused = |errno| xsk::Error { step: "entering the interface in a BPF map", errno };
        // The kernel looks for the interface in the caller's namespace.
        let map = interfaces.try_clone_to_owned().map_err(|_| refused(Errno::MFILE))?;
        let index = self.index;
        let entered =
            self.namespace.run(move || Ok(bpf::syscall::enter_interface(map.as_fd(), number, index)));
        entered.unwrap_or(Err(Errno::NODEV)).map_err(refused)
    }
}

/// The program and the sockets, as long as the port is attached.
struct Kept {
    _resender: Resender,
    sockets: Vec<Arc<Socket>>,
    program: Arc<Program>,
    /// Ends promiscuous mode with its descriptor.
    _promiscuous: OwnedFd,
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

    fn lost(&self) -> Option<&'static str> {
        (!self.program.is_attached()).then_some("somebody has detached its XDP program")
    }

    fn fits(&self, mtu: u32) -> bool {
        mtu <= self.most
    }
}

/// Has the kernel send what it did not take at first, for lack of room in the interface's queue: nothing announces that
/// there is room again, and no worker may come by.
struct Resender {
    /// Emptied on drop: then nothing of the sockets is in use any more.
    senders: Arc<Mutex<Vec<Arc<XdpTx>>>>,
    task: AbortHandle,
}

impl Resender {
    fn start(senders: Vec<Arc<XdpTx>>, stuck: Arc<Notify>, runtime: &Handle) -> Self {
        let senders = Arc::new(Mutex::new(senders));
        let its = senders.clone();
        let send = move || lock(&its).iter().filter(|sender| sender.send_rest()).count() > 0;
        let task = runtime.spawn(resend(stuck, send)).abort_handle();
        Self { senders, task }
    }
}

impl Drop for Resender {
    fn drop(&mut self) {
        self.task.abort();
        lock(&self.senders).clear();
    }
}

fn lock(senders: &Mutex<Vec<Arc<XdpTx>>>) -> MutexGuard<'_, Vec<Arc<XdpTx>>> {
    senders.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls `send` after each notification, until it returns that nothing is left.
async fn resend(stuck: Arc<Notify>, mut send: impl FnMut() -> bool) {
    loop {
        stuck.notified().await;
        loop {
            tokio::time::sleep(RESEND).await;
            if !send() {
                break;
            }
        }
    }
}

/// Has the interface's driver leave VLAN tags in packets: AF_XDP has no place beside the packet. Undone on drop.
struct Tags {
    namespace: Arc<Namespace>,
    index: u32,
    changed: bool,
}

impl Tags {
    fn keep(namespace: &Arc<Namespace>, name: &str, index: u32) -> Self {
        let changed = ethtool::keep_vlan_tags(namespace.socket(), name, true);
        Self { namespace: namespace.clone(), index, changed }
    }
}

impl Drop for Tags {
    fn drop(&mut self) {
        // The interface may have another name now, or be gone.
        let socket = self.namespace.socket();
        if self.changed
            && let Ok(name) = rustix::net::netdevice::index_to_name(socket, self.index)
        {
            ethtool::keep_vlan_tags(socket, &name, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[test]
    fn what_is_left_is_sent_until_nothing_is() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (stuck, calls) = (Arc::<Notify>::default(), Arc::<AtomicU32>::default());
        let counted = calls.clone();
        // The kernel takes the rest at every fourth call.
        let send = move || !(counted.fetch_add(1, Relaxed) + 1).is_multiple_of(4);
        let task = runtime.spawn(resend(stuck.clone(), send));
        for round in 0..3 {
            stuck.notify_one();
            runtime.block_on(async {
                while calls.load(Relaxed) < 4 * (round + 1) {
                    tokio::task::yield_now().await;
                }
                tokio::time::sleep(3 * RESEND).await;
            });
            assert_eq!(calls.load(Relaxed), 4 * (round + 1), "called although nothing was left");
        }
        task.abort();
    }
}
