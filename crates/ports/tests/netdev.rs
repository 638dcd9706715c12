//! Netdev ports at veth pairs: options, the batches of the driver af-packet, payload that is gone. Each test makes its
//! network namespace, so all of them need root. `tests/tests/netdev.rs` has traffic and faults of the whole switch.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use clientmem::Region;
use fabric::switch::{BridgeId, PortRef};
use fabric::{
    Attachment, Batch, Caps, DropReason, Fault, PortSettings, RxBatch, RxQueue, Switch, SwitchLogic,
    SwitchOptions, Tools,
};
use packet::offload::Offload;
use ports::{Environment, Link, Port, netdev};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

const PATIENCE: Duration = Duration::from_secs(30);
/// Ethertype of the tests' frames (local experimental, IEEE 802).
const KIND: [u8; 2] = [0x88, 0xb5];

// ---- Options ---------------------------------------------------------------------------------------------

fn refusal(text: &str) -> String {
    match toml::from_str::<netdev::Options>(text) {
        Ok(options) => options.check().unwrap_err().to_string(),
        Err(error) => error.message().to_owned(),
    }
}

#[test]
fn options_have_defaults_and_survive_a_round_trip() {
    let none: netdev::Options = toml::from_str("").unwrap();
    assert_eq!(none, netdev::Options::default());
    assert_eq!((none.queues, none.driver), (1, netdev::Driver::Auto));
    let text = "interface = \"eth0\"\nnetns = \"blue\"\ndriver = \"af-packet\"\nqueues = 4\n";
    let all: netdev::Options = toml::from_str(text).unwrap();
    assert_eq!(all.check(), Ok(()));
    assert_eq!(toml::to_string(&all).unwrap(), text);
}

#[test]
fn bad_options_are_named_with_the_accepted_values() {
    for (text, message) in [
        ("queues = 0", "queues = 0: a netdev port has 1 to 256 queues"),
        ("queues = 257", "queues = 257: a netdev port has 1 to 256 queues"),
        (
            "interface = \"a/b\"",
            "interface `a/b` cannot be the name of a network interface: it must not contain '/'",
        ),
        ("driver = \"dpdk\"", "unknown variant `dpdk`, expected one of `auto`, `af-packet`, `af-xdp`"),
    ] {
        assert_eq!(refusal(text), message);
    }
}

// ---- Sending ---------------------------------------------------------------------------------------------

#[test]
fn a_list_is_sent_in_order_whatever_happens_to_one_of_its_frames() {
    let lab = Lab::new();
    let port = lab.open("va", 1);
    let file = rustix::fs::memfd_create("client", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, 4096).unwrap();
    let region = Arc::new(Region::map(file.as_fd(), 4096).unwrap());
    let client = lab.add_port("client");
    // The longest that the fabric lets pass, as if it had a tag, is too long for the kernel without one.
    let frames = vec![frame(1, 60), frame(2, 1514), frame(3, 1518), frame(4, 300), frame(5, 60)];
    rustix::fs::ftruncate(&file, 0).unwrap();
    let attachment = Attachment {
        rx: vec![Box::new(Sends::new(frames.clone(), Some((3, region.clone()))))],
        tx: Vec::new(),
        caps: Caps::default(),
        mtu: 1500,
        on_fault: Arc::new(|_| {}),
    };
    let socket = lab.socket("vb");
    lab.env.switch.attach(client, attachment).unwrap();
    for number in [1, 2, 4, 5] {
        let mut expected = frames[number - 1].clone();
        if number == 4 {
            // Its end is gone: zeros, as to any other port.
            expected.truncate(256);
            expected.resize(300, 0);
        }
        let got = receive(&socket);
        assert!(got == expected, "frame {number}: {} bytes, {:02x?}", got.len(), &got[..20]);
    }
    assert!(region.faulted());
    // Frames are counted once all of them have been sent.
    let counted = || lab.env.switch.counters(lab.port("va")).unwrap().tx.remove(0);
    let deadline = Instant::now() + PATIENCE;
    while counted().packets == 0 && Instant::now() < deadline {
        std::thread::yield_now();
    }
    let counted = counted();
    assert_eq!((counted.packets, counted.drops[DropReason::ExceedsMtu as usize]), (4, 1));
    assert_eq!(counted.bytes, 60 + 1514 + 300 + 60);
    port.close();
}

#[test]
fn long_lists_are_sent_whole() {
    let lab = Lab::new();
    let port = lab.open("va", 1);
    let frames: Vec<_> = (0..200).map(|n| frame(n, 60 + usize::from(n) * 7)).collect();
    let attachment = Attachment {
        rx: vec![Box::new(Sends::new(frames.clone(), None))],
        tx: Vec::new(),
        caps: Caps::default(),
        mtu: 1500,
        on_fault: Arc::new(|_| {}),
    };
    let socket = lab.socket("vb");
    lab.env.switch.attach(lab.add_port("client"), attachment).unwrap();
    for expected in frames {
        assert!(receive(&socket) == expected);
    }
    port.close();
    assert_eq!(port.status().link, Link::Down("the port is closed".into()));
    // Nothing remains: another port can have the interface.
    let again = lab.open("va", 4);
    assert_eq!(again.status().link, Link::Up);
}

// ---- Receiving -------------------------------------------------------------------------------------------

#[test]
fn frames_of_every_length_and_with_tags_arrive_whole() {
    for queues in [1, 3] {
        let lab = Lab::new();
        ip(&["-n", &lab.netns, "link", "set", "dev", "va", "mtu", "9000"]);
        let _left = lab.open("va", queues);
        let _right = lab.open("vc", 1);
        let (from, to) = (lab.socket("vb"), lab.socket("vd"));
        for len in (14..600).chain(2000..2120).chain([8999, 9014]) {
            send(&from, &frame(7, len));
            let got = receive(&to);
            // veth does not pad.
            assert!(got == frame(7, len), "{len} bytes, {queues} queues: {} bytes", got.len());
        }
        for len in [18, 60].into_iter().chain(2030..2045).chain([2100, 2108, 2109, 2112, 2113, 5000]) {
            let mut tagged = frame(9, len);
            tagged.splice(12..12, [0x81, 0, 0x20, 42]);
            send(&from, &tagged);
            assert!(receive(&to) == tagged, "{len} bytes and a tag, {queues} queues");
        }
    }
}

#[test]
fn frames_stay_in_order_whether_they_fit_in_the_ring_or_not() {
    let lab = Lab::new();
    ip(&["-n", &lab.netns, "link", "set", "dev", "va", "mtu", "9000"]);
    let (_left, _right) = (lab.open("va", 1), lab.open("vc", 1));
    let (from, to) = (lab.socket("vb"), lab.socket("vd"));
    // More than the ring has slots, in portions that fit in.
    for _ in 0..5 {
        let lens = [60, 5000, 1500, 60, 60, 9000, 9000, 2100].into_iter().cycle().take(400);
        let frames: Vec<_> = lens.zip(0..).map(|(len, n)| frame((n % 251) as u8, len)).collect();
        for frame in &frames {
            send(&from, frame);
        }
        for (n, frame) in frames.iter().enumerate() {
            assert!(receive(&to) == *frame, "frame {n}");
        }
    }
}

fn detail(status: &ports::Status, name: &str) -> String {
    status.details.iter().find(|(its, _)| its == name).unwrap().1.clone()
}

/// A frame that a packet socket cannot describe stops the kernel's ring for good.
#[test]
fn a_ring_that_has_stopped_is_done_without() {
    let lab = Lab::new();
    let tap = lab.tap("vt");
    let (port, _sends, _receives) = (lab.open("vt", 1), lab.open("va", 1), lab.open("vc", 1));
    let (from, to) = (lab.socket("vb"), lab.socket("vd"));
    let write = |header: [u8; 10], frame: &[u8]| {
        let bytes = [&header[..], frame].concat();
        assert_eq!(rustix::io::write(&tap, &bytes).unwrap(), bytes.len());
    };
    write([0; 10], &frame(1, 60));
    assert!(receive(&to) == frame(1, 60));
    let fragmented = || {
        let mut udp = frame(2, 34 + 2000);
        udp[12..14].copy_from_slice(&[8, 0]);
        udp[14..34].copy_from_slice(&[0x45, 0, 7, 228, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        udp
    };
    // VIRTIO_NET_HDR_GSO_UDP in fragments of 1,480 bytes, with a checksum to complete.
    let header = [1, 3, 42, 0, 200, 5, 34, 0, 6, 0];
    write(header, &fragmented());
    let start = Instant::now();
    let mut rounds = 0;
    loop {
        write([0; 10], &frame(3, 60));
        // Frames to the port have it look at its ring.
        send(&from, &frame(4, 60));
        rounds += 1;
        let first = receive(&to);
        if first == frame(3, 60) {
            break;
        }
        assert!(first == frame(4, 60) && start.elapsed() < PATIENCE, "{:?}", port.status());
    }
    if rounds == 1 {
        println!("the ring has not stopped: this kernel is mended");
        return;
    }
    // The frame may arrive before the port says that it has been opened again.
    let status = loop {
        let status = port.status();
        if detail(&status, "driver").starts_with("af-packet, without the receive ring, which stopped") {
            break status;
        }
        assert!(start.elapsed() < PATIENCE, "{status:?}");
        std::thread::yield_now();
    };
    assert_ne!(detail(&status, "kernel-drops"), "0");
    assert_eq!(status.link, Link::Up);
    // Now it is only that frame.
    write(header, &fragmented());
    write([0; 10], &frame(5, 60));
    while receive(&to) != frame(5, 60) {
        assert!(start.elapsed() < PATIENCE);
    }
    // Drops are counted after the batch.
    loop {
        let counted = lab.env.switch.counters(lab.port("vt")).unwrap();
        // A send may be told of it first.
        let both = counted.rx.iter().chain(&counted.tx);
        if both.map(|queue| queue.drops[DropReason::BadOffload as usize]).sum::<u64>() == 1 {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "{counted:?}");
        std::thread::yield_now();
    }
}

// ---- The lab ---------------------------------------------------------------------------------------------

/// A flooding bridge, and a namespace with the veth pairs `va` to `vb` and `vc` to `vd`.
struct Lab {
    env: Environment,
    bridge: BridgeId,
    netns: String,
    _runtime: tokio::runtime::Runtime,
}

struct Hub;

impl SwitchLogic for Hub {
    fn forward(&self, batch: &mut Batch<'_>) {
        for v in batch.packets() {
            batch.broadcast(v);
        }
    }
}

impl Lab {
    fn new() -> Lab {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let netns = format!("msw-nd-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        ip(&["netns", "add", &netns]);
        // Interfaces send nothing by themselves.
        let quiet = "net.ipv6.conf.default.disable_ipv6=1";
        ip(&["netns", "exec", &netns, "sysctl", "-q", "-w", quiet]);
        for (end, peer, mtu) in [("va", "vb", "1500"), ("vc", "vd", "9000")] {
            let add = ["-n", &netns, "link", "add", "name", end, "mtu", mtu, "type", "veth"];
            ip(&[&add[..], &["peer", "name", peer, "mtu", "9000"]].concat());
            for end in [end, peer] {
                ip(&["-n", &netns, "link", "set", "dev", end, "up"]);
            }
        }
        let switch = Arc::new(Switch::start(&SwitchOptions::default()).unwrap());
        let bridge = switch.add_bridge("br0", Arc::new(Hub)).unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let env = Environment::new(switch, runtime.handle().clone());
        Lab { env, bridge, netns, _runtime: runtime }
    }

    fn add_port(&self, name: &str) -> PortRef {
        self.env.switch.add_port(self.bridge, PortSettings::new(name)).unwrap()
    }

    fn port(&self, name: &str) -> PortRef {
        let ports = self.env.switch.ports(self.bridge).unwrap().into_iter();
        let mut ports = ports.map(|port| PortRef { bridge: self.bridge, port });
        ports.find(|at| self.env.switch.settings(*at).unwrap().name == name).unwrap()
    }

    fn open(&self, interface: &str, queues: u16) -> Box<dyn Port> {
        let netns = Some(self.netns.parse().unwrap());
        let options = netdev::Options { netns, queues, ..netdev::Options::default() };
        let known = self.env.switch.ports(self.bridge).unwrap();
        let mut known = known.into_iter().map(|port| PortRef { bridge: self.bridge, port });
        let at = known.find(|at| self.env.switch.settings(*at).unwrap().name == interface);
        let port = netdev::open(&options, at.unwrap_or_else(|| self.add_port(interface)), &self.env).unwrap();
        // The kernel reports a veth's carrier some time after its ends are up.
        let start = Instant::now();
        while port.status().link != Link::Up {
            assert!(start.elapsed() < PATIENCE, "{:?}", port.status());
            std::thread::yield_now();
        }
        port
    }

    /// Opens a packet socket at an interface.
    fn socket(&self, interface: &str) -> OwnedFd {
        self.inside(|| packet_socket(interface))
    }

    /// Makes a TAP interface, and returns its other end.
    fn tap(&self, name: &str) -> OwnedFd {
        let tap = self.inside(|| tap_device(name));
        ip(&["-n", &self.netns, "link", "set", "dev", name, "up"]);
        tap
    }

    /// Calls `work` in the namespace.
    fn inside<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        let file = std::fs::File::open(format!("/run/netns/{}", self.netns)).unwrap();
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
                work()
            });
            inside.join().unwrap()
        })
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.netns]).status();
    }
}

fn ip(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().unwrap();
    assert!(output.status.success(), "ip {}: {output:?}", arguments.join(" "));
}

fn frame(number: u8, len: usize) -> Vec<u8> {
    let mut frame = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1], &KIND].concat();
    frame.extend((14..len).map(|at| (at * 31) as u8 ^ number));
    frame
}

fn packet_socket(interface: &str) -> OwnedFd {
    let all = (libc::ETH_P_ALL as u16).to_be();
    // SAFETY: plain system calls; the descriptor is new, and all zeros are a `sockaddr_ll`.
    unsafe {
        let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
        assert!(fd >= 0);
        let socket = OwnedFd::from_raw_fd(fd);
        let name = std::ffi::CString::new(interface).unwrap();
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = all;
        address.sll_ifindex = libc::if_nametoindex(name.as_ptr()) as i32;
        let len = size_of_val(&address) as u32;
        assert_eq!(libc::bind(fd, (&raw const address).cast(), len), 0);
        let (one, len) = (1, size_of::<libc::c_int>() as u32);
        for option in [libc::PACKET_AUXDATA, 23] {
            assert_eq!(libc::setsockopt(fd, libc::SOL_PACKET, option, (&raw const one).cast(), len), 0);
        }
        let room: libc::c_int = 16 << 20;
        let at = (&raw const room).cast();
        assert_eq!(libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, at, len), 0);
        let wait = libc::timeval { tv_sec: PATIENCE.as_secs() as i64, tv_usec: 0 };
        let (at, len) = ((&raw const wait).cast(), size_of_val(&wait) as u32);
        assert_eq!(libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, at, len), 0);
        socket
    }
}

fn tap_device(name: &str) -> OwnedFd {
    let tap = std::fs::File::options().read(true).write(true).open("/dev/net/tun").unwrap();
    // SAFETY: an `ifreq` is bytes, integers and a pointer; all zeros are one, and TUNSETIFF reads and writes one.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as i16;
        assert_eq!(libc::ioctl(tap.as_raw_fd(), libc::TUNSETIFF, &raw mut request), 0);
    }
    tap.into()
}

fn send(socket: &OwnedFd, frame: &[u8]) {
    assert_eq!(rustix::io::write(socket, frame).unwrap(), frame.len());
}

/// Returns the next frame of the tests, with its tag.
fn receive(socket: &OwnedFd) -> Vec<u8> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        let (mut bytes, mut control) = (vec![0u8; 70_000], [0u64; 16]);
        let mut piece = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        // SAFETY: all zeros are a `msghdr`; everything that it names is local and outlives the call. The kernel fills
        // in a `tpacket_auxdata`.
        let (len, facts) = unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            (message.msg_iov, message.msg_iovlen) = (&raw mut piece, 1);
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = size_of_val(&control) as _;
            let len = libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0);
            assert!(len >= 0, "{}", std::io::Error::last_os_error());
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (len as usize, libc::CMSG_DATA(header).cast::<libc::tpacket_auxdata>().read_unaligned())
        };
        bytes.truncate(len);
        if facts.tp_status & libc::TP_STATUS_VLAN_VALID != 0 {
            let tag = [facts.tp_vlan_tpid.to_be_bytes(), facts.tp_vlan_tci.to_be_bytes()].concat();
            bytes.splice(12..12, tag);
        }
        if [12, 16].iter().any(|at| bytes.get(*at..*at + 2) == Some(&KIND)) {
            return bytes;
        }
    }
    panic!("no frame came");
}

/// A client that sends these frames in one batch. The end of one of them lies in a region.
struct Sends {
    frames: Vec<Vec<u8>>,
    gone: Option<(usize, Arc<Region>)>,
    sent: usize,
    signal: OwnedFd,
}

impl Sends {
    fn new(frames: Vec<Vec<u8>>, gone: Option<(usize, Arc<Region>)>) -> Sends {
        let signal = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        Sends { frames, gone, sent: 0, signal }
    }
}

impl RxQueue for Sends {
    fn receive(&mut self, batch: &mut RxBatch) -> Result<(), Fault> {
        while batch.has_room() && self.sent < self.frames.len() {
            let number = self.sent;
            let frame = &mut self.frames[number];
            let len = frame.len() as u32;
            let at = NonNull::from(frame.as_mut_slice()).cast();
            // SAFETY: frames and region stay with the queue. Reading the region may fail, which is the subject of the
            // test: the fabric reads the first 128 bytes only, the kernel the rest, and the region catches faults.
            unsafe {
                match &self.gone {
                    Some((gone, region)) if *gone == number => {
                        batch.add_segment(at, 256)?;
                        batch.add_segment(region.base(), len - 256)?;
                    }
                    _ => batch.add_segment(at, len)?,
                }
            }
            batch.end_packet(Offload::NONE);
            self.sent += 1;
        }
        Ok(())
    }

    fn complete(&mut self, _: &mut Tools) -> Result<(), Fault> {
        Ok(())
    }

    fn set_signalled(&mut self, _on: bool) {}

    fn signal(&self) -> BorrowedFd<'_> {
        self.signal.as_fd()
    }

    fn cheap_to_poll(&self) -> bool {
        true
    }
}
