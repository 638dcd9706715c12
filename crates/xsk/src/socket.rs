//! Opening a socket: packet memory, rings, binding to a queue of an interface.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::sockopt::{
    set_xdp_rx_ring_size, set_xdp_tx_ring_size, set_xdp_umem_completion_ring_size,
    set_xdp_umem_fill_ring_size, set_xdp_umem_reg, xdp_mmap_offsets, xdp_options, xdp_statistics,
};
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING,
    XDP_UMEM_PGOFF_FILL_RING, XdpOptionsFlags, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};

use crate::{Completion, Error, Fill, Memory, Rx, Tx};

/// Bytes that the kernel charges for a packet beside its frame, at most.
const OVERHEAD: u32 = 1024;

/// Options of a socket.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Index of the interface.
    pub interface: u32,
    /// Queue of the interface.
    pub queue: u32,
    /// Entries of each ring, a power of two. The packet memory has twice as many frames: the first half to receive,
    /// the second half to send.
    pub size: u32,
    /// Bytes of a frame: 2,048 or 4,096.
    pub frame: u32,
    /// Whether a packet may take several frames (Linux 6.6).
    pub spans_frames: bool,
    /// Whether the driver may use the packet memory without copying, where it can.
    pub zero_copy: bool,
    /// Whether the interface is polled by [`Socket::wake_receiver`] rather than by interrupts.
    pub busy_poll: bool,
}

/// Packets that one call of [`Socket::wake_receiver`] receives at most, with busy polling.
const BUDGET: libc::c_int = 64;

/// A socket. Dropping it ends reception; the frames are the kernel's until then.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    memory: Arc<Memory>,
    zero_copy: bool,
    spans_frames: bool,
}

/// The rings of a socket.
#[derive(Debug)]
pub struct Rings {
    /// Packets received.
    pub rx: Rx,
    /// Packets to send.
    pub tx: Tx,
    /// Frames to receive into; all frames of the first half are in it.
    pub fill: Fill,
    /// Frames whose packets were sent.
    pub completion: Completion,
}

/// The kernel's counters of a socket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets dropped for other reasons than full rings, such as a packet longer than a frame.
    pub dropped: u64,
    /// Packets dropped because the receive ring was full.
    pub ring_full: u64,
    /// Packets dropped because the fill ring was empty.
    pub no_frame: u64,
    /// Transmit descriptors that the kernel refused.
    pub invalid_tx: u64,
}

impl Socket {
    /// Opens a socket. The kernel gives it packets once it is in the map of the interface's
    /// [`Program`](crate::Program).
    pub fn open(config: &Config) -> Result<(Socket, Rings), Error> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = socket_with(AddressFamily::XDP, SocketType::RAW, flags, None)
            .map_err(Error::at("opening an AF_XDP socket"))?;
        let Config { size, frame, .. } = *config;
        // In copying mode each packet under way counts against this buffer; a full one would leave packets in the ring
        // with nobody to come back for them. Without the privilege, the usual size stays.
        let _ = rustix::net::sockopt::set_socket_send_buffer_size_force(
            &fd,
            (size * (frame + OVERHEAD)) as usize,
        );
        let memory = Arc::new(Memory::new(2 * size, frame)?);
        let region = XdpUmemReg {
            addr: memory.start().as_ptr().expose_provenance() as u64,
            len: memory.len(),
            chunk_size: frame,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        set_xdp_umem_reg(&fd, region).map_err(Error::at("registering packet memory"))?;
        let sizes = Error::at("setting the size of a ring");
        set_xdp_umem_fill_ring_size(&fd, size).map_err(&sizes)?;
        set_xdp_umem_completion_ring_size(&fd, size).map_err(&sizes)?;
        set_xdp_rx_ring_size(&fd, size).map_err(&sizes)?;
        set_xdp_tx_ring_size(&fd, size).map_err(&sizes)?;
        let at = xdp_mmap_offsets(&fd).map_err(Error::at("asking for the layout of the rings"))?;
        let rings = Rings {
            rx: Rx::map(fd.as_fd(), XDP_PGOFF_RX_RING, &at.rx, size)?,
            tx: Tx::map(fd.as_fd(), XDP_PGOFF_TX_RING, &at.tx, size)?,
            fill: Fill::map(fd.as_fd(), XDP_UMEM_PGOFF_FILL_RING, &at.fr, size)?,
            completion: Completion::map(fd.as_fd(), XDP_UMEM_PGOFF_COMPLETION_RING, &at.cr, size)?,
        };
        (0..size).for_each(|i| rings.fill.write(i, u64::from(i) * u64::from(frame)));
        rings.fill.publish(size);
        if config.busy_poll {
            prefer_busy_poll(fd.as_fd()).map_err(Error::at("asking for busy polling"))?;
        }
        let (zero_copy, spans_frames) = bind_best(fd.as_fd(), config)?;
        Ok((Socket { fd, memory, zero_copy, spans_frames }, rings))
    }

    /// Returns the packet memory.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Returns whether the driver uses the packet memory without copying.
    pub fn is_zero_copy(&self) -> bool {
        self.zero_copy
    }

    /// Returns whether a packet may take several frames.
    pub fn spans_frames(&self) -> bool {
        self.spans_frames
    }

    /// Makes the kernel send published packets, if it waits for that. Returns false if packets may be left: call again.
    pub fn wake(&self) -> Result<bool, Errno> {
        match send(&self.fd, &[], SendFlags::DONTWAIT) {
            Ok(_) => Ok(true),
            // The kernel sends a few packets at a time, and needs free completion entries and memory.
            Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Makes the driver take frames from the fill ring, if it waits for that, and with busy polling, receive packets.
    pub fn wake_receiver(&self) {
        let mut nothing = [0u8; 0];
        // The kernel has nothing to return; the call is the signal.
        let _ = recv(&self.fd, &mut nothing, RecvFlags::DONTWAIT);
    }

    /// Returns the kernel's counters.
    pub fn statistics(&self) -> Result<Statistics, Errno> {
        let found = xdp_statistics(&self.fd)?;
        Ok(Statistics {
            dropped: found.rx_dropped,
            ring_full: found.rx_ring_full.unwrap_or(0),
            no_frame: found.rx_fill_ring_empty_descs.unwrap_or(0),
            invalid_tx: found.tx_invalid_descs,
        })
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Leaves the interface's interrupts off while the socket is read often enough (Linux 5.11).
fn prefer_busy_poll(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    for (option, value) in
        [(libc::SO_PREFER_BUSY_POLL, 1), (libc::SO_BUSY_POLL, 20), (libc::SO_BUSY_POLL_BUDGET, BUDGET)]
    {
        let at = (&raw const value).cast();
        // SAFETY: reads an `int`.
        let set = unsafe {
            libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, option, at, size_of_val(&value) as u32)
        };
        if set < 0 {
            return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL));
        }
    }
    Ok(())
}

/// Binds to the queue with the best features that kernel and driver accept. Returns whether it copies nothing, and
/// whether packets may take several frames.
fn bind_best(fd: BorrowedFd<'_>, config: &Config) -> Result<(bool, bool), Error> {
    let mut refused = Errno::INVAL;
    for spans in [true, false] {
        if spans && !config.spans_frames {
            continue;
        }
        for zero_copy in [true, false] {
            if zero_copy && !config.zero_copy {
                continue;
            }
            let mut flags = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
            flags |= if zero_copy { SocketAddrXdpFlags::XDP_ZEROCOPY } else { SocketAddrXdpFlags::XDP_COPY };
            flags.set(SocketAddrXdpFlags::XDP_USE_SG, spans);
            match bind(fd, &SocketAddrXdp::new(flags, config.interface, config.queue)) {
                Ok(()) => {
                    let options = xdp_options(fd).unwrap_or(XdpOptionsFlags::empty());
                    return Ok((options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY), spans));
                }
                Err(errno @ (Errno::BUSY | Errno::NODEV | Errno::NETDOWN)) => {
                    return Err(Error { step: "binding the AF_XDP socket", errno });
                }
                Err(errno) => refused = errno,
            }
        }
    }
    Err(Error { step: "binding the AF_XDP socket", errno: refused })
}
