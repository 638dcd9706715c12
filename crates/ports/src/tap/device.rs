//! The TAP device: its queues, and queries through them.
//!
//! Invariants: frames in every queue follow a little-endian `virtio_net_hdr` of 12 bytes, and no queue ever blocks. The
//! interface lives exactly as long as one of its file descriptors is open: however the process ends, nothing remains.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use fabric::Caps;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::holder;
use crate::OpenError;

const TUN: &str = "/dev/net/tun";

/// Offloads that the host may leave to the switch, from most to least; kernels before 6.2 have no USO.
const OFFLOADS: [(c_uint, Caps); 4] = [
    (
        CSUM | TSO | libc::TUN_F_USO4 | libc::TUN_F_USO6,
        Caps { csum: true, tso4: true, tso6: true, uso: true },
    ),
    (CSUM | TSO, Caps { csum: true, tso4: true, tso6: true, uso: false }),
    (CSUM, Caps { csum: true, tso4: false, tso6: false, uso: false }),
    (0, Caps { csum: false, tso4: false, tso6: false, uso: false }),
];
const CSUM: c_uint = libc::TUN_F_CSUM;
const TSO: c_uint = libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;

/// An existing interface and its queues.
pub(super) struct Device {
    /// One file for each queue, for both directions.
    pub(super) queues: Vec<Arc<OwnedFd>>,
    /// Offloads in both directions. Those of writes to the device depend on the kernel's version alone, and exactly the
    /// versions that cut UDP for the switch also offer to leave it to the switch.
    pub(super) caps: Caps,
    /// A socket in the interface's namespace, for queries from any other.
    socket: OwnedFd,
}

/// State of an interface.
pub(super) enum State {
    /// It exists and is up; its present name.
    Up(String),
    /// It exists and is administratively down; its present name.
    AdminDown(String),
    /// It no longer exists.
    Gone,
}

impl Device {
    /// Makes interface `name` with this many queues, in the calling thread's network namespace.
    pub(super) fn create(name: &str, queues: u16, offloads: bool) -> Result<Self, OpenError> {
        let socket =
            rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
                .map_err(|error| OpenError(format!("interface `{name}`: cannot open a socket: {error}")))?;
        let mut device = Self { queues: Vec::new(), caps: Caps::default(), socket };
        for queue in 0..queues {
            device.queues.push(Arc::new(open_queue(name, queue, queues)?));
        }
        if let Some(first) = device.queues.first() {
            device.caps = set_up(first, offloads)
                .map_err(|error| OpenError(format!("interface `{name}`: TAP settings refused: {error}")))?;
        }
        Ok(device)
    }

    /// Returns its index in its namespace.
    pub(super) fn index(&self, name: &str) -> Result<u32, OpenError> {
        rustix::net::netdevice::name_to_index(&self.socket, name)
            .map_err(|error| OpenError(format!("interface `{name}` vanished while it was made: {error}")))
    }

    /// Returns its state. It may have been renamed, or moved to a namespace that this process cannot look into; then
    /// its administrative state is unknown.
    pub(super) fn state(&self) -> State {
        let Some(queue) = self.queues.first() else { return State::Gone };
        let mut request = request("");
        // SAFETY: TUNGETIFF writes an `ifreq`.
        if unsafe { ioctl(queue.as_fd(), libc::TUNGETIFF, &raw mut request) }.is_err() {
            return State::Gone;
        }
        let name = name_of(&request);
        // SAFETY: SIOCGIFFLAGS reads and writes an `ifreq`.
        let asked = unsafe { ioctl(self.socket.as_fd(), libc::SIOCGIFFLAGS, &raw mut request) };
        // SAFETY: the union is plain integers; SIOCGIFFLAGS has set this one.
        let flags = c_int::from(unsafe { request.ifr_ifru.ifru_flags });
        if asked.is_ok() && flags & libc::IFF_UP == 0 { State::AdminDown(name) } else { State::Up(name) }
    }
}

fn open_queue(name: &str, queue: u16, queues: u16) -> Result<OwnedFd, OpenError> {
    let fd = rustix::fs::open(TUN, OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty()).map_err(
        |error| match error {
            Errno::NOENT | Errno::NODEV | Errno::NXIO => OpenError(format!(
                "interface `{name}`: {TUN} does not exist; load the driver with `modprobe tun` on the host, and if the \
                 switch runs in a container, give the container this device"
            )),
            error => OpenError(format!("interface `{name}`: cannot open {TUN}: {error}")),
        },
    )?;
    let mut flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    if queues > 1 {
        flags |= libc::IFF_MULTI_QUEUE;
    }
    if queue == 0 {
        // Otherwise the kernel would return an existing persistent interface of that name.
        flags |= libc::IFF_TUN_EXCL;
    }
    let mut request = request(name);
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes an `ifreq`.
    unsafe { ioctl(fd.as_fd(), libc::TUNSETIFF, &raw mut request) }.map_err(|error| match error {
        Errno::BUSY | Errno::EXIST => OpenError(match holder::of(name) {
            Some(holder) => {
                format!("interface `{name}` exists already, held by {holder}; choose another name")
            }
            None => format!("interface `{name}` exists already; choose another name"),
        }),
        Errno::PERM | Errno::ACCESS => {
            OpenError(format!("interface `{name}`: making a TAP interface needs CAP_NET_ADMIN"))
        }
        error if queue > 0 => OpenError(format!("interface `{name}`: cannot make queue {queue}: {error}")),
        error => OpenError(format!("interface `{name}`: the kernel refused to create it: {error}")),
    })?;
    Ok(fd)
}

/// Sets the header in front of frames and the offloads; both apply to the whole interface, whatever the queue.
fn set_up(queue: &OwnedFd, offloads: bool) -> Result<Caps, Errno> {
    let mut header_len = packet::virtio_net::HEADER_LEN as c_int;
    // SAFETY: TUNSETVNETHDRSZ reads an `int`.
    unsafe { ioctl(queue.as_fd(), libc::TUNSETVNETHDRSZ, &raw mut header_len) }?;
    let mut little_endian: c_int = 1;
    // SAFETY: TUNSETVNETLE reads an `int`.
    unsafe { ioctl(queue.as_fd(), libc::TUNSETVNETLE, &raw mut little_endian) }?;
    let mut refused = Errno::INVAL;
    for (flags, caps) in OFFLOADS.iter().filter(|(flags, _)| offloads || *flags == 0) {
        // SAFETY: TUNSETOFFLOAD takes a number in place of the pointer and accesses no memory.
        match unsafe { ioctl(queue.as_fd(), libc::TUNSETOFFLOAD, *flags as usize as *mut c_void) } {
            Ok(()) => return Ok(*caps),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

/// Makes a request about interface `name`, or with an empty name about the queue's own.
fn request(name: &str) -> libc::ifreq {
    // SAFETY: an `ifreq` is bytes, integers and a pointer; all zeroes is one.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The longest name is followed by a zero byte.
    for (to, from) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

fn name_of(request: &libc::ifreq) -> String {
    let bytes = request.ifr_name.map(|c| c as u8);
    CStr::from_bytes_until_nul(&bytes).map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// # Safety
/// `argument` is what `operation` takes, and is valid for what it does.
unsafe fn ioctl<T>(fd: BorrowedFd<'_>, operation: libc::Ioctl, argument: *mut T) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    if unsafe { libc::ioctl(fd.as_raw_fd(), operation, argument) } < 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    Ok(())
}
