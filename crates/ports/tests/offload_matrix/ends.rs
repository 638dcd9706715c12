//! The ends of the matrix: senders and receivers, each with the offloads that it negotiated.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::time::{Duration, Instant};

use memif::client::{Client, ClientConfig};
use ports::Port;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use vhost_user::features::device;
use vhost_user::frontend::NetDevice;

use crate::shape::{DESTINATION, Job, Kind, Metadata, Packet, Shape};

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// Length of the header in front of frames at a packet socket.
const SOCKET_HEADER: usize = 10;

/// Work that an end leaves to the switch, or accepts from it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Offloads {
    pub(crate) checksum: bool,
    pub(crate) tcp4: bool,
    pub(crate) tcp6: bool,
    pub(crate) udp: bool,
    pub(crate) ecn: bool,
}

impl Offloads {
    pub(crate) const ALL: Offloads =
        Offloads { checksum: true, tcp4: true, tcp6: true, udp: true, ecn: true };

    /// Returns the offloads of a driver that may leave work to the switch.
    pub(crate) fn of_sender(features: u64) -> Offloads {
        let has = |bit| features & bit != 0;
        Offloads {
            checksum: has(device::CSUM),
            tcp4: has(device::HOST_TSO4),
            tcp6: has(device::HOST_TSO6),
            udp: has(device::HOST_USO),
            ecn: has(device::HOST_ECN),
        }
    }

    /// Returns the offloads of a driver that the switch may leave work to. Without checksums there are no others
    /// (virtio 1.2 §5.1.3.1), and the switch knows large UDP packets of both families or of none.
    pub(crate) fn of_receiver(features: u64) -> Offloads {
        let has = |bit| features & bit == bit;
        if !has(device::GUEST_CSUM) {
            return Offloads::default();
        }
        Offloads {
            checksum: true,
            tcp4: has(device::GUEST_TSO4),
            tcp6: has(device::GUEST_TSO6),
            udp: has(device::GUEST_USO4 | device::GUEST_USO6),
            ecn: has(device::GUEST_ECN),
        }
    }

    fn cuts(&self, kind: Kind) -> bool {
        match kind {
            Kind::Tcp4 => self.tcp4,
            Kind::Tcp6 => self.tcp6,
            Kind::Udp4 | Kind::Udp6 => self.udp,
        }
    }

    /// Returns whether a packet of this shape may cross unchanged.
    pub(crate) fn take(&self, shape: &Shape) -> bool {
        match shape.job {
            Job::None => true,
            Job::Checksum => self.checksum,
            Job::Short | Job::Cut => self.checksum && self.cuts(shape.kind),
            Job::CutEcn => self.checksum && self.cuts(shape.kind) && self.ecn,
        }
    }

    /// Returns whether a packet of this shape arrives uncut.
    pub(crate) fn uncut(&self, shape: &Shape) -> bool {
        self.checksum && self.cuts(shape.kind)
    }
}

/// A client's side of a port.
pub(crate) enum Plug {
    VhostUser(Box<NetDevice>),
    Memif(Box<Client>),
    Kernel(PacketSocket),
}

pub(crate) struct End {
    pub(crate) name: String,
    pub(crate) client: Plug,
    pub(crate) offloads: Offloads,
    pub(crate) port: Box<dyn Port>,
}

impl End {
    pub(crate) fn send(&mut self, packet: &Packet) {
        let header = packet.metadata.encode();
        match &mut self.client {
            Plug::VhostUser(device) => {
                let mut head = [0; 12];
                head[..10].copy_from_slice(&header);
                assert!(device.send(0, &head, &packet.bytes).unwrap());
            }
            Plug::Memif(client) => {
                assert_eq!(packet.metadata, Metadata::default(), "memif has no metadata");
                assert!(client.tx[0].push(&[&packet.bytes]));
                client.tx[0].flush();
            }
            Plug::Kernel(socket) => socket.send(&header, &packet.bytes).unwrap(),
        }
    }

    /// Returns the next test packet; `None` if none comes in time.
    pub(crate) fn receive(&mut self) -> Option<Packet> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            match self.try_receive() {
                Some(packet) if packet.bytes.starts_with(&DESTINATION) => return Some(packet),
                Some(_) => {}
                None => std::thread::yield_now(),
            }
        }
        None
    }

    /// Returns a packet that has arrived, if any.
    pub(crate) fn try_receive(&mut self) -> Option<Packet> {
        match &mut self.client {
            Plug::VhostUser(device) => {
                let (header, bytes) = device.receive(0).unwrap()?;
                Some(Packet { metadata: Metadata::decode(&header), bytes })
            }
            Plug::Memif(client) => {
                let mut bytes = Vec::new();
                let came = client.rx[0].pop(&mut bytes);
                client.rx[0].refill();
                came.then_some(Packet { metadata: Metadata::default(), bytes })
            }
            Plug::Kernel(socket) => socket.receive().unwrap(),
        }
    }

    /// Returns whether the length of headers in the metadata means anything: packet sockets report the kernel's own
    /// layout.
    pub(crate) fn tells_header_len(&self) -> bool {
        matches!(self.client, Plug::VhostUser(_))
    }
}

pub(crate) fn memif_client(config: &ClientConfig) -> Plug {
    Plug::Memif(Box::new(Client::connect(config).unwrap()))
}

/// A packet socket at the kernel's end of a TAP interface or a veth pair: frames after a header with their offload
/// metadata.
pub(crate) struct PacketSocket(OwnedFd);

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

impl PacketSocket {
    /// Opens a socket at an interface of a namespace.
    pub(crate) fn open(netns: &Netns, interface: &str) -> PacketSocket {
        let file = std::fs::File::open(format!("/run/netns/{}", netns.0)).unwrap();
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                move_into_link_name_space(std::os::fd::AsFd::as_fd(&file), Some(LinkNameSpaceType::Network))
                    .unwrap();
                PacketSocket::open_here(interface).unwrap()
            });
            inside.join().unwrap()
        })
    }

    fn open_here(interface: &str) -> io::Result<PacketSocket> {
        let all = (libc::ETH_P_ALL as u16).to_be();
        // SAFETY: a plain system call.
        let fd = check(unsafe {
            libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0)
        })?;
        // SAFETY: the descriptor is new and has no other owner.
        let socket = PacketSocket(unsafe { OwnedFd::from_raw_fd(fd) });
        socket.set(libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
        socket.set(libc::SOL_PACKET, libc::PACKET_AUXDATA, 1)?;
        socket.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 16 << 20)?;
        let name = std::ffi::CString::new(interface)?;
        // SAFETY: reads a string that ends in zero; all zeros are a `sockaddr_ll`.
        let (index, mut address) =
            unsafe { (libc::if_nametoindex(name.as_ptr()), std::mem::zeroed::<libc::sockaddr_ll>()) };
        assert_ne!(index, 0, "no interface {interface}");
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = all;
        address.sll_ifindex = index as i32;
        // SAFETY: reads a `sockaddr_ll`.
        check(unsafe { libc::bind(fd, (&raw const address).cast(), size_of_val(&address) as u32) })?;
        Ok(socket)
    }

    fn set(&self, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
        // SAFETY: these options read an `int`.
        check(unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                level,
                option,
                (&raw const value).cast(),
                size_of_val(&value) as u32,
            )
        })?;
        Ok(())
    }

    fn send(&self, header: &[u8; SOCKET_HEADER], frame: &[u8]) -> io::Result<()> {
        let sent = rustix::io::writev(&self.0, &[io::IoSlice::new(header), io::IoSlice::new(frame)])?;
        assert_eq!(sent, header.len() + frame.len());
        Ok(())
    }

    /// Returns the next frame from the switch. The kernel reports a tag apart from the frame; it is put back.
    fn receive(&self) -> io::Result<Option<Packet>> {
        loop {
            let mut bytes = vec![0u8; 65_600];
            let mut control = [0u64; 16];
            let mut piece = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
            // SAFETY: all zeros are a `sockaddr_ll` and a `msghdr`.
            let (mut from, mut message) =
                unsafe { (std::mem::zeroed::<libc::sockaddr_ll>(), std::mem::zeroed::<libc::msghdr>()) };
            message.msg_name = (&raw mut from).cast();
            message.msg_namelen = size_of_val(&from) as u32;
            message.msg_iov = &raw mut piece;
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = size_of_val(&control);
            // SAFETY: everything that `message` names is local and outlives the call.
            let len = unsafe { libc::recvmsg(self.0.as_raw_fd(), &raw mut message, 0) };
            if len < 0 {
                let error = io::Error::last_os_error();
                return if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) };
            }
            if from.sll_pkttype == libc::PACKET_OUTGOING {
                continue;
            }
            bytes.truncate(len as usize);
            let mut metadata = Metadata::decode(&bytes);
            let mut bytes = bytes.split_off(SOCKET_HEADER);
            // SAFETY: the kernel has filled the control messages in, and `message` says how many bytes.
            let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
            assert!(!header.is_null(), "no auxiliary data");
            // SAFETY: PACKET_AUXDATA is the only option enabled; its data is a `tpacket_auxdata`.
            let facts = unsafe { libc::CMSG_DATA(header).cast::<libc::tpacket_auxdata>().read_unaligned() };
            if facts.tp_status & libc::TP_STATUS_VLAN_VALID != 0 {
                let tag = [facts.tp_vlan_tpid.to_be_bytes(), facts.tp_vlan_tci.to_be_bytes()].concat();
                bytes.splice(12..12, tag);
                metadata.csum_start += if metadata.csum_start > 0 { 4 } else { 0 };
            }
            return Ok(Some(Packet { metadata, bytes }));
        }
    }
}

/// A network namespace without IPv6, whose interfaces thus send nothing by themselves. Removed with the value.
pub(crate) struct Netns(pub(crate) String);

impl Netns {
    pub(crate) fn new() -> Netns {
        let netns = Netns(format!("msw-matrix-{}", std::process::id()));
        run(&["netns", "add", &netns.0]);
        let quiet = "net.ipv6.conf.default.disable_ipv6=1";
        run(&["netns", "exec", &netns.0, "sysctl", "-q", "-w", quiet]);
        netns
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

pub(crate) fn run(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().unwrap();
    assert!(output.status.success(), "ip {}: {output:?}", arguments.join(" "));
}
