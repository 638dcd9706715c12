//! The XDP program: redirects each packet to the socket of the queue that it arrived at; packets of queues without a
//! socket go to the host's stack.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use bpf::{Instruction, syscall};
use rustix::io::Errno;

use crate::Error;

/// Largest number of queues.
pub const MOST_QUEUES: u32 = 1024;

const FLAG_GENERIC: u32 = 1 << 1;
const FLAG_NATIVE: u32 = 1 << 2;

/// The place where the program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// In the driver, before the kernel allocates anything for a packet.
    Native,
    /// Behind the driver, on the kernel's own packets: any interface, slower.
    Generic,
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Mode::Native => "native",
            Mode::Generic => "generic",
        })
    }
}

/// The program on an interface; detached on drop, or when the process ends.
#[derive(Debug)]
pub struct Program {
    map: OwnedFd,
    /// The one that redirects all packets.
    own: OwnedFd,
    link: OwnedFd,
    mode: Mode,
    frags: bool,
}

/// The program. Register 1 holds the context (`struct xdp_md`) at first.
fn instructions(map: BorrowedFd<'_>) -> [Instruction; 6] {
    /// Offset of `rx_queue_index` in the context.
    const QUEUE: i16 = 16;
    const REDIRECT_MAP: i32 = 51;
    const XDP_PASS: i32 = 2;
    let instruction = |code, destination: u8, source: u8, offset, immediate| Instruction {
        code,
        registers: source << 4 | destination,
        offset,
        immediate,
    };
    [
        // r2 = queue of the packet
        instruction(0x61, 2, 1, QUEUE, 0),
        // r1 = map, in two instructions
        instruction(0x18, 1, 1, 0, map.as_raw_fd()),
        instruction(0, 0, 0, 0, 0),
        // r3 = the result for queues without a socket
        instruction(0xb7, 3, 0, 0, XDP_PASS),
        instruction(0x85, 0, 0, 0, REDIRECT_MAP),
        instruction(0x95, 0, 0, 0, 0),
    ]
}

impl Program {
    /// Loads the program and attaches it to the interface with this index, in native mode if the driver supports it,
    /// else in generic mode; `only` restricts the choice. Fails with [`Errno::BUSY`] if another program is attached.
    pub fn attach(interface: u32, only: Option<Mode>) -> Result<Program, Error> {
        let map = syscall::socket_map(MOST_QUEUES).map_err(Error::at("making a BPF map"))?;
        let instructions = instructions(map.as_fd());
        let load = |frags| syscall::load_xdp(&instructions, frags);
        let modes = match only {
            Some(mode) => vec![mode],
            None => vec![Mode::Native, Mode::Generic],
        };
        let mut refused = Error { step: "attaching the XDP program", errno: Errno::INVAL };
        for mode in modes {
            let flag = if mode == Mode::Native { FLAG_NATIVE } else { FLAG_GENERIC };
            // Without fragments, drivers refuse interfaces with a large MTU; with them, some refuse the program.
            for frags in [true, false] {
                let program = match load(frags) {
                    Ok(program) => program,
                    Err(_) if frags => continue,
                    Err(errno) => return Err(Error { step: "loading the XDP program", errno }),
                };
                match syscall::link_xdp(program.as_fd(), interface, flag) {
                    Ok(link) => return Ok(Program { map, own: program, link, mode, frags }),
                    Err(errno @ (Errno::BUSY | Errno::EXIST | Errno::NODEV | Errno::PERM)) => {
                        return Err(Error { errno, ..refused });
                    }
                    Err(errno) => refused.errno = errno,
                }
            }
        }
        Err(refused)
    }

    /// Redirects packets of a queue to a socket.
    pub fn enter(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), Error> {
        syscall::enter(self.map.as_fd(), queue, socket)
            .map_err(Error::at("entering the socket in the BPF map"))
    }

    /// Lets packets of a queue pass to the host's stack again.
    pub fn remove(&self, queue: u32) -> Result<(), Error> {
        syscall::remove(self.map.as_fd(), queue).map_err(Error::at("removing the socket from the BPF map"))
    }

    /// The map from queues to sockets, for another program.
    pub fn sockets(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    /// Runs another program in this one's place: each packet meets one of both.
    pub fn replace(&self, program: BorrowedFd<'_>) -> Result<(), Error> {
        syscall::update_link(self.link.as_fd(), program).map_err(Error::at("replacing the XDP program"))
    }

    /// Runs this program again.
    pub fn restore(&self) -> Result<(), Error> {
        self.replace(self.own.as_fd())
    }

    /// Returns the program's id, as `ip link show` and `bpftool` print it.
    pub fn id(&self) -> Result<u32, Error> {
        syscall::linked_program(self.link.as_fd()).map_err(Error::at("asking for the XDP program's id"))
    }

    /// Returns whether the program is still attached: an interface that vanishes, and an administrator, detach it.
    pub fn is_attached(&self) -> bool {
        syscall::linked_interface(self.link.as_fd()).is_ok_and(|interface| interface != 0)
    }

    /// Returns the place where it runs.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns whether it accepts packets in several frames.
    pub fn has_frags(&self) -> bool {
        self.frags
    }
}
