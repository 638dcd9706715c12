//! Packets over a veth pair: one end is a packet socket, the other an AF_XDP socket.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use xsk::{Config, Descriptor, Error, Mode, Program, Rings, Socket};

const LIMIT: Duration = Duration::from_secs(10);
const SIZE: u32 = 64;

fn ip(line: &str) {
    let output = Command::new("ip").args(line.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {line}: {}", String::from_utf8_lossy(&output.stderr));
}

fn index(name: &str) -> u32 {
    rustix::net::netdevice::name_to_index(packet_socket(), name).unwrap()
}

fn packet_socket() -> OwnedFd {
    let all = Protocol::from_raw(std::num::NonZeroU32::new(u32::from(0x0003u16.to_be())).unwrap());
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, Some(all)).unwrap()
}

/// Runs a test in a network namespace of its own with the veth pair `ours` and `theirs`.
fn in_namespace(mtu: u32, test: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            // SAFETY: network namespaces are per thread; descriptors are unaffected.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.unwrap();
            ip("link add ours type veth peer name theirs");
            for end in ["ours", "theirs"] {
                ip(&format!("link set {end} mtu {mtu} up"));
            }
            test();
        });
        thread.join().unwrap();
    });
}

/// A packet socket on an interface.
struct Peer(OwnedFd);

impl Peer {
    fn on(name: &str) -> Peer {
        let socket = packet_socket();
        // SAFETY: an all-zero address is valid.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = 0x0003u16.to_be();
        address.sll_ifindex = index(name).cast_signed();
        // SAFETY: the address is valid for reads of its size.
        let bound = unsafe {
            libc::bind(
                socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        assert_eq!(bound, 0, "{}", std::io::Error::last_os_error());
        Peer(socket)
    }

    fn send(&self, frame: &[u8]) {
        assert_eq!(rustix::net::send(&self.0, frame, SendFlags::empty()).unwrap(), frame.len());
    }

    /// The next frame of this test.
    fn receive(&self) -> Vec<u8> {
        let start = Instant::now();
        let mut buffer = vec![0; 65536];
        loop {
            match rustix::net::recv(&self.0, &mut buffer[..], RecvFlags::empty()) {
                Ok((length, _)) if is_ours(&buffer[..length]) => return buffer[..length].to_vec(),
                Ok(_) => {}
                Err(Errno::AGAIN) if start.elapsed() < LIMIT => std::thread::yield_now(),
                Err(error) => panic!("no frame: {error}"),
            }
        }
    }
}

/// Whether a frame has the test's Ethernet type: the kernel sends frames of its own.
fn is_ours(frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&[0x88, 0xb5])
}

fn frame(number: u8, length: usize) -> Vec<u8> {
    let mut frame = vec![number; length];
    frame[..14].copy_from_slice(&[0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2, 0x88, 0xb5]);
    frame
}

/// An AF_XDP socket that copies packets out and in.
struct End {
    socket: Socket,
    rings: Rings,
    taken: u32,
    filled: u32,
    sent: u32,
}

impl End {
    fn open(name: &str, program: &Program, frame: u32) -> Result<End, Error> {
        let config = Config {
            interface: index(name),
            queue: 0,
            size: SIZE,
            frame,
            spans_frames: program.has_frags(),
            zero_copy: true,
            busy_poll: false,
        };
        let (socket, rings) = Socket::open(&config)?;
        program.enter(0, socket.as_fd())?;
        Ok(End { socket, rings, taken: 0, filled: SIZE, sent: 0 })
    }

    /// The next packet of this test, and its number of frames.
    fn receive(&mut self) -> (Vec<u8>, u32) {
        let start = Instant::now();
        let (mut packet, mut frames) = (Vec::new(), 0);
        loop {
            if self.rings.rx.end() == self.taken {
                assert!(start.elapsed() < LIMIT, "no packet; {:?}", self.socket.statistics());
                if self.rings.fill.needs_wakeup() {
                    self.socket.wake_receiver();
                }
                std::thread::yield_now();
                continue;
            }
            let piece = self.rings.rx.packet(self.taken);
            self.taken = self.taken.wrapping_add(1);
            let at = self.socket.memory().at(piece.offset, piece.length).expect("within a frame");
            // SAFETY: the frame belongs to this process until it is in the fill ring again.
            packet
                .extend_from_slice(unsafe { std::slice::from_raw_parts(at.as_ptr(), piece.length as usize) });
            frames += 1;
            self.rings.rx.consume(self.taken);
            self.rings.fill.write(self.filled, self.socket.memory().frame_of(piece.offset));
            self.filled = self.filled.wrapping_add(1);
            self.rings.fill.publish(self.filled);
            if piece.continued {
                continue;
            }
            if is_ours(&packet) {
                return (packet, frames);
            }
            packet.clear();
            frames = 0;
        }
    }

    /// Sends a packet that fits in a frame, and waits for its frame.
    fn send(&mut self, packet: &[u8]) {
        let memory = self.socket.memory().clone();
        let offset = u64::from(SIZE + self.sent % SIZE) * u64::from(memory.frame_size());
        let length = packet.len() as u32;
        let at = memory.at(offset, length).expect("fits in a frame");
        // SAFETY: the frame belongs to this process until it is in the transmit ring.
        unsafe { std::ptr::copy_nonoverlapping(packet.as_ptr(), at.as_ptr(), packet.len()) };
        self.rings.tx.write(self.sent, Descriptor { offset, length, continued: false });
        self.sent = self.sent.wrapping_add(1);
        self.rings.tx.publish(self.sent);
        let start = Instant::now();
        while self.rings.completion.end() != self.sent {
            assert!(start.elapsed() < LIMIT, "not sent; {:?}", self.socket.statistics());
            if self.rings.tx.needs_wakeup() {
                self.socket.wake().unwrap();
            }
        }
        assert_eq!(self.rings.completion.frame(self.sent.wrapping_sub(1)), offset);
        self.rings.completion.consume(self.sent);
    }
}

fn both_ways(mode: Mode) {
    in_namespace(1500, move || {
        let program = Program::attach(index("ours"), Some(mode)).unwrap();
        assert_eq!(program.mode(), mode);
        let (mut end, peer) = (End::open("ours", &program, 2048).unwrap(), Peer::on("theirs"));
        // More than the rings hold.
        for number in 0..3 * SIZE {
            let wanted = frame(number as u8, 60 + number as usize * 7);
            peer.send(&wanted);
            assert_eq!(end.receive(), (wanted.clone(), 1));
            end.send(&wanted);
            assert_eq!(peer.receive(), wanted);
        }
        assert_eq!(end.socket.statistics().unwrap(), xsk::socket::Statistics::default());
    });
}

#[test]
fn native_mode_passes_packets_both_ways() {
    both_ways(Mode::Native);
}

#[test]
fn generic_mode_passes_packets_both_ways() {
    both_ways(Mode::Generic);
}

#[test]
fn large_packets_take_several_frames() {
    in_namespace(9000, || {
        let program = Program::attach(index("ours"), None).unwrap();
        assert!(program.has_frags());
        let (mut end, peer) = (End::open("ours", &program, 4096).unwrap(), Peer::on("theirs"));
        assert!(end.socket.spans_frames());
        let wanted = frame(7, 9000);
        peer.send(&wanted);
        let (packet, frames) = end.receive();
        assert!(packet == wanted, "{} bytes", packet.len());
        assert!(frames > 1, "{frames}");
    });
}

#[test]
fn packets_reach_the_stack_without_a_socket_and_after_detaching() {
    in_namespace(1500, || {
        let (peer, stack) = (Peer::on("theirs"), Peer::on("ours"));
        let program = Program::attach(index("ours"), Some(Mode::Native)).unwrap();
        peer.send(&frame(1, 60));
        assert_eq!(stack.receive(), frame(1, 60));
        let mut end = End::open("ours", &program, 2048).unwrap();
        peer.send(&frame(2, 60));
        assert_eq!(end.receive().0, frame(2, 60));
        assert!(program.is_attached());
        drop((end, program));
        peer.send(&frame(3, 60));
        assert_eq!(stack.receive(), frame(3, 60), "frame 2 did not reach the stack");
    });
}

#[test]
fn an_interface_has_one_program() {
    in_namespace(1500, || {
        let first = Program::attach(index("ours"), None).unwrap();
        let error = Program::attach(index("ours"), None).unwrap_err();
        assert_eq!(error.errno, Errno::BUSY, "{error}");
        let id = first.id().unwrap();
        assert!(bpf::syscall::detach_xdp(id).unwrap());
        assert!(!first.is_attached());
        drop(first);
        assert!(!bpf::syscall::detach_xdp(id).unwrap());
        let first = Program::attach(index("ours"), None).unwrap();
        ip("link del ours");
        assert!(!first.is_attached());
    });
}
