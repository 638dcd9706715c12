//! The TAP device: its queues, and queries through them.
//!
//! Invariants: frames in every queue follow a little-endian `virtio_net_hdr` of 12 bytes, and no queue ever blocks. An
//! interface that is made here lives exactly as long as one of its file descriptors is open, unless
//! [`Device::set_persistent`] was called: however the process ends, nothing remains. One that was made by others has
//! its former framing again after [`Device::release`].

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use fabric::Caps;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::holder::{self, Holder};
use crate::OpenError;

const TUN: &str = "/dev/net/tun";
/// Name of the program of switches: what they hold is theirs.
const SWITCH: &str = "mswitch";

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

/// A TAP interface and its queues.
pub(super) struct Device {
    /// One file for each queue, for both directions.
    pub(super) queues: Vec<Arc<OwnedFd>>,
    /// Offloads in both directions. Those of writes to the device depend on the kernel's version alone, and exactly the
    /// versions that cut UDP for the switch also offer to leave it to the switch.
    pub(super) caps: Caps,
    /// The interface has several queues, or room for them.
    pub(super) multi_queue: bool,
    /// A socket in the interface's namespace, for queries from any other.
    socket: OwnedFd,
    /// Framing that others left behind; `None` if the interface was made here.
    before: Option<Framing>,
}

/// Form of the header in front of frames. The kernel keeps it from one process that holds the interface to the next.
#[derive(Debug, Clone, Copy)]
struct Framing {
    header_len: c_int,
    little_endian: c_int,
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

/// Reasons for not opening the queues of an interface.
pub(super) enum Unattached {
    /// A process holds them, or an interface of that name exists.
    Held,
    /// The kernel refuses.
    Refused(OpenError),
}

impl From<OpenError> for Unattached {
    fn from(error: OpenError) -> Self {
        Self::Refused(error)
    }
}

impl Device {
    /// Makes interface `name` with this many queues, in the calling thread's network namespace.
    pub(super) fn create(name: &str, queues: u16, offloads: bool) -> Result<Self, OpenError> {
        // Otherwise the kernel would return an existing persistent interface of that name.
        let mut device =
            Self::open(name, queues, queues > 1, libc::IFF_TUN_EXCL).map_err(|error| match error {
                Unattached::Held => in_use(name, holder::of(name)),
                Unattached::Refused(error) => error,
            })?;
        device.set_up(name, offloads)?;
        Ok(device)
    }

    /// Opens this many queues of an existing TAP interface, and leaves its framing and offloads as they are.
    pub(super) fn attach(name: &str, queues: u16, multi_queue: bool) -> Result<Self, Unattached> {
        Self::open(name, queues, multi_queue, 0)
    }

    fn open(name: &str, queues: u16, multi_queue: bool, exclusive: c_int) -> Result<Self, Unattached> {
        let socket =
            rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
                .map_err(|error| OpenError(format!("interface `{name}`: cannot open a socket: {error}")))?;
        let mut device =
            Self { queues: Vec::new(), caps: Caps::default(), multi_queue, socket, before: None };
        for queue in 0..queues {
            let mut flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
            if multi_queue {
                flags |= libc::IFF_MULTI_QUEUE;
            }
            if queue == 0 {
                flags |= exclusive;
            }
            device.queues.push(Arc::new(open_queue(name, queue, flags, exclusive != 0)?));
        }
        if let Some(first) = device.queues.first().filter(|_| exclusive == 0) {
            device.before = Some(framing(first).map_err(|error| settings_refused(name, error))?);
        }
        Ok(device)
    }

    /// Sets framing and offloads. No other process may hold a queue: both apply to the whole interface.
    pub(super) fn set_up(&mut self, name: &str, offloads: bool) -> Result<(), OpenError> {
        if let Some(first) = self.queues.first() {
            self.caps = set_up(first, offloads).map_err(|error| settings_refused(name, error))?;
        }
        Ok(())
    }

    /// Lets the interface outlive its queues, or ends that.
    pub(super) fn set_persistent(&self, on: bool) -> Result<(), Errno> {
        let Some(queue) = self.queues.first() else { return Ok(()) };
        // SAFETY: TUNSETPERSIST takes a number in place of the pointer and accesses no memory.
        unsafe { ioctl(queue.as_fd(), libc::TUNSETPERSIST, usize::from(on) as *mut c_void) }
    }

    /// Closes the queues. An interface that remains has the framing again that others left behind, and no offloads.
    pub(super) fn release(self) {
        if let (Some(before), Some(queue)) = (self.before, self.queues.first()) {
            // Best effort: the interface may have been deleted.
            let _ = set_framing(queue, before);
            let _ = set_offloads(queue, 0);
        }
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

fn settings_refused(name: &str, error: Errno) -> OpenError {
    OpenError(format!("interface `{name}`: TAP settings refused: {error}"))
}

/// Opens a queue, for which the interface is made or taken.
fn open_queue(name: &str, queue: u16, flags: c_int, making: bool) -> Result<OwnedFd, Unattached> {
    let fd = rustix::fs::open(TUN, OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty()).map_err(
        |error| match error {
            Errno::NOENT | Errno::NODEV | Errno::NXIO => OpenError(format!(
                "interface `{name}`: {TUN} does not exist; load the driver with `modprobe tun` on the host, and if the \
                 switch runs in a container, give the container this device"
            )),
            error => OpenError(format!("interface `{name}`: cannot open {TUN}: {error}")),
        },
    )?;
    let mut request = request(name);
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes an `ifreq`.
    let opened = unsafe { ioctl(fd.as_fd(), libc::TUNSETIFF, &raw mut request) };
    let (verb, participle) = if making { ("create", "making") } else { ("open", "opening") };
    let why = match opened {
        Ok(()) => return Ok(fd),
        Err(Errno::BUSY | Errno::EXIST) => return Err(Unattached::Held),
        Err(Errno::PERM | Errno::ACCESS) => format!("{participle} a TAP interface needs CAP_NET_ADMIN"),
        Err(error) if queue > 0 => format!("cannot {verb} queue {queue}: {error}"),
        Err(error) => format!("the kernel refused to {verb} it: {error}"),
    };
    Err(OpenError(format!("interface `{name}`: {why}")).into())
}

/// Returns the process that holds the queues of TAP interface `name`, and the name of its program, unless it is a
/// switch.
pub(super) fn other_holder(name: &str) -> Result<(u32, String), OpenError> {
    match holder::of(name) {
        Some(Holder::Process(pid, command)) if command != SWITCH => Ok((pid, command)),
        holder => Err(in_use(name, holder)),
    }
}

/// Explains that others hold the queues of TAP interface `name`.
fn in_use(name: &str, holder: Option<Holder>) -> OpenError {
    OpenError(match holder {
        Some(Holder::Us) => format!(
            "interface `{name}` exists already: another port of this switch has it; remove that port, or choose \
             another name"
        ),
        Some(Holder::Process(pid, command)) => format!(
            "interface `{name}` exists already, held by process {pid} ({command}); to connect that process to the \
             bridge, attach the interface with `--type netdev`; to take its place, stop it with `kill {pid}`; or \
             choose another name"
        ),
        None => format!(
            "interface `{name}` exists already, held by a process that is hidden from the switch; to connect that \
             process to the bridge, attach the interface with `--type netdev`; or choose another name"
        ),
    })
}

/// Reads the framing.
fn framing(queue: &OwnedFd) -> Result<Framing, Errno> {
    let mut framing = Framing { header_len: 0, little_endian: 0 };
    // SAFETY: TUNGETVNETHDRSZ writes an `int`.
    unsafe { ioctl(queue.as_fd(), libc::TUNGETVNETHDRSZ, &raw mut framing.header_len) }?;
    // SAFETY: TUNGETVNETLE writes an `int`.
    unsafe { ioctl(queue.as_fd(), libc::TUNGETVNETLE, &raw mut framing.little_endian) }?;
    Ok(framing)
}

fn set_framing(queue: &OwnedFd, mut framing: Framing) -> Result<(), Errno> {
    // SAFETY: TUNSETVNETHDRSZ reads an `int`.
    unsafe { ioctl(queue.as_fd(), libc::TUNSETVNETHDRSZ, &raw mut framing.header_len) }?;
    // SAFETY: TUNSETVNETLE reads an `int`.
    unsafe { ioctl(queue.as_fd(), libc::TUNSETVNETLE, &raw mut framing.little_endian) }
}

fn set_offloads(queue: &OwnedFd, flags: c_uint) -> Result<(), Errno> {
    // SAFETY: TUNSETOFFLOAD takes a number in place of the pointer and accesses no memory.
    unsafe { ioctl(queue.as_fd(), libc::TUNSETOFFLOAD, flags as usize as *mut c_void) }
}

/// Sets the header in front of frames and the offloads; both apply to the whole interface, whatever the queue.
fn set_up(queue: &OwnedFd, offloads: bool) -> Result<Caps, Errno> {
    set_framing(queue, Framing { header_len: packet::virtio_net::HEADER_LEN as c_int, little_endian: 1 })?;
    let mut refused = Errno::INVAL;
    for (flags, caps) in OFFLOADS.iter().filter(|(flags, _)| offloads || *flags == 0) {
        match set_offloads(queue, *flags) {
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
