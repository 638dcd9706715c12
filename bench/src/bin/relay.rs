//! The least that a switch on packet sockets does: a loop that moves frames between two interfaces, with a system call
//! per batch in each direction, without looking at them. `bench/interfaces.sh` compares switches with it.
//!
//! Usage: `relay INTERFACE INTERFACE`

use std::error::Error;
use std::ffi::{CString, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::ExitCode;

/// Frames of a batch.
const BATCH: usize = 64;
/// Bytes of a frame with its `virtio_net_hdr`, at most.
const ROOM: usize = 66 << 10;
/// Room in the sockets, bytes.
const RECEIVE_BUFFER: c_int = 16 << 20;
const SEND_BUFFER: c_int = 4 << 20;
/// `SOL_PACKET` option that libc does not name.
const PACKET_IGNORE_OUTGOING: c_int = 23;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("relay: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let [a, b] = names.as_slice() else { return Err("usage: relay INTERFACE INTERFACE".into()) };
    let sockets = [open(a)?, open(b)?];
    eprintln!("relaying between {a} and {b}");
    let mut memory = vec![0_u8; BATCH * ROOM];
    loop {
        let moved =
            relay(&sockets[0], &sockets[1], &mut memory)? + relay(&sockets[1], &sockets[0], &mut memory)?;
        if moved == 0 {
            wait(&sockets)?;
        }
    }
}

/// Opens a packet socket at an interface. Frames follow a `virtio_net_hdr`.
fn open(name: &str) -> io::Result<OwnedFd> {
    // SAFETY: a plain system call.
    let fd = check(unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the descriptor is new.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    for (level, option, value) in [
        (libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1),
        (libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1),
        (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RECEIVE_BUFFER),
        (libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, SEND_BUFFER),
    ] {
        let at = (&raw const value).cast::<c_void>();
        // SAFETY: reads an `int`.
        check(unsafe { libc::setsockopt(fd, level, option, at, size_of_val(&value) as u32) })?;
    }
    let name = CString::new(name)?;
    // SAFETY: an address is integers; all zeros is one. The name ends with a zero.
    let (mut address, index) =
        unsafe { (std::mem::zeroed::<libc::sockaddr_ll>(), libc::if_nametoindex(name.as_ptr())) };
    if index == 0 {
        return Err(io::Error::last_os_error());
    }
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as c_int;
    // SAFETY: reads an address of the given length.
    check(unsafe { libc::bind(fd, (&raw const address).cast(), size_of_val(&address) as u32) })?;
    Ok(socket)
}

/// Moves a batch of frames. Returns their number.
fn relay(from: &OwnedFd, to: &OwnedFd, memory: &mut [u8]) -> io::Result<usize> {
    let mut pieces: Vec<libc::iovec> = memory
        .chunks_exact_mut(ROOM)
        .map(|room| libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() })
        .collect();
    let mut messages: Vec<libc::mmsghdr> = pieces
        .iter_mut()
        .map(|piece| {
            // SAFETY: integers and pointers; all zeros is a value of each.
            let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
            (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (piece, 1);
            message
        })
        .collect();
    let (at, len, flags) = (messages.as_mut_ptr(), messages.len() as u32, libc::MSG_DONTWAIT as _);
    // SAFETY: the messages name rooms in `memory`, which nobody else uses.
    let received = unsafe { libc::recvmmsg(from.as_raw_fd(), at, len, flags, std::ptr::null_mut()) };
    let received = match check(received) {
        Ok(received) => received as usize,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
        Err(error) => return Err(error),
    };
    for (piece, message) in pieces.iter_mut().zip(&messages).take(received) {
        piece.iov_len = message.msg_len as usize;
    }
    let mut sent = 0;
    while sent < received {
        let left = &mut messages[sent..received];
        // SAFETY: as above.
        let done = unsafe { libc::sendmmsg(to.as_raw_fd(), left.as_mut_ptr(), left.len() as u32, flags) };
        // A frame that is refused is lost.
        sent += check(done).map_or(1, |done| done as usize);
    }
    Ok(received)
}

/// Waits until one of the sockets has frames.
fn wait(sockets: &[OwnedFd; 2]) -> io::Result<()> {
    let mut watched = sockets.each_ref().map(|socket| libc::pollfd {
        fd: socket.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    });
    // SAFETY: reads and writes the array.
    check(unsafe { libc::poll(watched.as_mut_ptr(), watched.len() as u64, -1) })?;
    Ok(())
}

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
