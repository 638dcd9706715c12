//! Packet sockets: opening them at an interface, their options and counters.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::ring::Ring;
use crate::OpenError;

/// `SOL_PACKET` options that libc does not name.
const PACKET_COPY_THRESH: c_int = 7;
const PACKET_IGNORE_OUTGOING: c_int = 23;
/// Room for received packets outside the ring, bytes of kernel memory: 240 of 64 KiB; without a ring, 7,000 small ones.
const RECEIVE_BUFFER: usize = 16 << 20;
/// Room for packets being sent: those that wait in the interface's queue count.
const SEND_BUFFER: usize = 4 << 20;

/// A socket, and its ring or the reason why it has none.
pub(super) type WithRing = (OwnedFd, Result<Ring, Errno>);

/// Opens so many sockets at the interface with this index of the calling thread's namespace, with rings if `rings`.
/// Several share its packets by flow.
pub(super) fn open(name: &str, index: u32, queues: u16, rings: bool) -> Result<Vec<WithRing>, OpenError> {
    let mut sockets: Vec<WithRing> = Vec::new();
    let mut group = None;
    for queue in 0..queues {
        let refused = |what: &str, error: Errno| match error {
            Errno::PERM | Errno::ACCESS => {
                OpenError(format!("interface `{name}`: opening a packet socket needs CAP_NET_RAW"))
            }
            Errno::NODEV | Errno::NXIO => {
                OpenError(format!("interface `{name}` vanished while it was attached"))
            }
            error => OpenError(format!("interface `{name}`: cannot {what} (queue {queue}): {error}")),
        };
        // Without a protocol it receives nothing before it is bound to its interface.
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)
            .map_err(|error| refused("open a packet socket", error))?;
        set_up(&socket).map_err(|error| refused("set up a packet socket", error))?;
        let ring = if rings { Ring::new(&socket) } else { Err(Errno::NOTSUP) };
        bind(&socket, index).map_err(|error| refused("bind a packet socket", error))?;
        if queue == 0 {
            be_promiscuous(&socket, index)
                .map_err(|error| refused("make the interface promiscuous", error))?;
        }
        if queues > 1 {
            group =
                Some(join(&socket, group).map_err(|error| refused("share its packets among queues", error))?);
        }
        sockets.push((socket, ring));
    }
    Ok(sockets)
}

fn set_up(socket: &OwnedFd) -> Result<(), Errno> {
    set(socket, libc::PACKET_VNET_HDR, &1_i32)?;
    set(socket, libc::PACKET_AUXDATA, &1_i32)?;
    set(socket, PACKET_IGNORE_OUTGOING, &1_i32)?;
    // The limits of the system (net.core.rmem_max, wmem_max) hold only without CAP_NET_ADMIN.
    sockopt::set_socket_recv_buffer_size_force(socket, RECEIVE_BUFFER)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(socket, RECEIVE_BUFFER))?;
    set_send_buffer(socket)
}

/// Gives the socket a receive ring of `slots` slots. Frames that do not fit in a slot are queued in whole.
pub(super) fn set_ring(
    socket: &OwnedFd,
    block: usize,
    blocks: usize,
    slot: usize,
    slots: usize,
) -> Result<(), Errno> {
    set(socket, libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V2 as c_int))?;
    set(socket, PACKET_COPY_THRESH, &1_i32)?;
    let request = libc::tpacket_req {
        tp_block_size: block as u32,
        tp_block_nr: blocks as u32,
        tp_frame_size: slot as u32,
        tp_frame_nr: slots as u32,
    };
    set(socket, libc::PACKET_RX_RING, &request)
}

/// Takes the ring, which must not be mapped, from the socket.
pub(super) fn remove_ring(socket: &OwnedFd) -> Result<(), Errno> {
    let none = libc::tpacket_req { tp_block_size: 0, tp_block_nr: 0, tp_frame_size: 0, tp_frame_nr: 0 };
    set(socket, libc::PACKET_RX_RING, &none)
}

fn set_send_buffer(socket: &OwnedFd) -> Result<(), Errno> {
    let size = SEND_BUFFER as c_int;
    set_at(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &size)
        .or_else(|_| sockopt::set_socket_send_buffer_size(socket, SEND_BUFFER))
}

fn bind(socket: &OwnedFd, index: u32) -> Result<(), Errno> {
    // SAFETY: a `sockaddr_ll` is integers; all zeros is one.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as c_int;
    // SAFETY: reads a `sockaddr_ll` of the given length.
    check(unsafe {
        libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as libc::socklen_t)
    })
}

/// Opens a socket that receives nothing, but makes the interface receive frames for other stations while it is open.
pub(in crate::netdev) fn promiscuous(index: u32) -> Result<OwnedFd, Errno> {
    let socket =
        rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    be_promiscuous(&socket, index)?;
    Ok(socket)
}

/// Receives frames for other stations too, while the socket is open.
fn be_promiscuous(socket: &OwnedFd, index: u32) -> Result<(), Errno> {
    let membership = libc::packet_mreq {
        mr_ifindex: index as c_int,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set(socket, libc::PACKET_ADD_MEMBERSHIP, &membership)
}

/// Adds a socket to a fanout group, or to a new one. Returns the group's number, which no other process uses in this
/// namespace.
fn join(socket: &OwnedFd, group: Option<u16>) -> Result<u16, Errno> {
    let flags = match group {
        None => libc::PACKET_FANOUT_FLAG_UNIQUEID,
        Some(_) => 0,
    };
    let kind = libc::PACKET_FANOUT_HASH | flags;
    let argument = u32::from(group.unwrap_or_default()) | kind << 16;
    set(socket, libc::PACKET_FANOUT, &argument)?;
    match group {
        Some(group) => Ok(group),
        None => Ok(get::<u32>(socket, libc::PACKET_FANOUT, 0)? as u16),
    }
}

/// Returns packets that the kernel dropped since the last call because the socket had no room.
pub(super) fn take_dropped(socket: &OwnedFd) -> u64 {
    let none = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    get(socket, libc::PACKET_STATISTICS, none).map_or(0, |counted| counted.tp_drops.into())
}

/// Returns the kernel memory of packets that were sent through the socket and wait: in the queue of the interface, in its
/// driver, or at the other end of a pair.
pub(super) fn unsent(socket: &OwnedFd) -> u32 {
    let mut bytes: c_int = 0;
    // SAFETY: `SIOCOUTQ` writes an integer, for packet sockets bytes of memory.
    let told = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ as _, &raw mut bytes) };
    check(told).map_or(0, |()| u32::try_from(bytes).unwrap_or(0))
}

/// Returns whether the kernel takes large UDP packets from packet sockets (`VIRTIO_NET_HDR_GSO_UDP_L4`, Linux 6.2).
pub(super) fn knows_udp_segments() -> bool {
    let system = rustix::system::uname();
    let release = system.release().to_string_lossy();
    let mut numbers = release.split(['.', '-', '+']).map_while(|number| number.parse::<u32>().ok());
    (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default()) >= (6, 2)
}

fn set<T: Copy>(socket: &OwnedFd, option: c_int, value: &T) -> Result<(), Errno> {
    set_at(socket, libc::SOL_PACKET, option, value)
}

fn set_at<T: Copy>(socket: &OwnedFd, level: c_int, option: c_int, value: &T) -> Result<(), Errno> {
    let (at, len) = ((value as *const T).cast::<c_void>(), size_of::<T>() as libc::socklen_t);
    // SAFETY: reads `len` bytes of `value`.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, at, len) })
}

/// Reads an option of plain integers.
fn get<T: Copy>(socket: &OwnedFd, option: c_int, mut value: T) -> Result<T, Errno> {
    let mut len = size_of::<T>() as libc::socklen_t;
    let at = (&raw mut value).cast::<c_void>();
    // SAFETY: writes at most `len` bytes, all of `value`, whose types here have no invalid values.
    check(unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_PACKET, option, at, &raw mut len) })?;
    Ok(value)
}

fn check(result: c_int) -> Result<(), Errno> {
    if result < 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL));
    }
    Ok(())
}
