//! The vhost-user control channel: bytes, messages and descriptors of a hostile front-end.
//!
//! An input is either a byte stream in pieces with descriptors, or a list of requests, raw or built from the fields of
//! a valid start, with descriptors of any kind. Between requests the front-end overwrites and truncates its memory, and
//! the runner of the rings takes chains and gives them back.
//!
//! Invariants:
//! - No panic and no leaked descriptor; requests survive encoding, and answers can be parsed.
//! - Rings start only while none runs, with valid sizes, addresses within the memory, eventfds, and offered features
//!   only.
//! - The running rings are exactly the started ones if one is enabled, with the announced memory regions and features.
//! - A ring whose position was reported does not run. After a refusal and after the session, no ring runs.
#![no_main]

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use clientmem::is_eventfd;
use libfuzzer_sys::fuzz_target;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fs::{MemfdFlags, Mode, OFlags, ftruncate, memfd_create, open};
use rustix::io::pwrite;
use support::Bytes;
use vhost_user::Chain;
use vhost_user::features::device;
use vhost_user::message::{
    Answer, HEADER_LEN, Header, MAX_PAYLOAD, MAX_REGIONS, Region, Request, RingAddresses, RingDescriptor,
    RingNumber,
};
use vhost_user::session::{Device, Limits, Refusal, Rings, Running, Session};
use vhost_user::socket::{ReceiveError, Received, Receiver, send};

/// Size of the memory file, which every region may map.
const FILE: u64 = 64 << 10;
/// User address of guest address 0.
const USER: u64 = 0x7000_0000_0000;
/// Largest permitted region.
const HUGE: u64 = 1 << 40;
/// Most operations in an input.
const MOST: usize = 96;

/// Descriptors to send, created once.
struct Files {
    memory: OwnedFd,
    /// A file of a terabyte, truncated for each input to free touched pages.
    huge: OwnedFd,
    event: OwnedFd,
    others: Vec<OwnedFd>,
}

thread_local! {
    static FILES: Files = match files() {
        Ok(files) => files,
        Err(error) => panic!("cannot create descriptors: {error}"),
    };
}

fn memory(size: u64) -> rustix::io::Result<OwnedFd> {
    let file = memfd_create("memory", MemfdFlags::CLOEXEC)?;
    ftruncate(&file, size)?;
    Ok(file)
}

fn files() -> rustix::io::Result<Files> {
    let (memory_file, huge) = (memory(FILE)?, memory(HUGE)?);
    let (reader, writer) = rustix::pipe::pipe()?;
    let open = |path: &str, flags| open(path, flags | OFlags::CLOEXEC, Mode::empty());
    let proc = format!("/proc/self/fd/{}", memory_file.as_raw_fd());
    let others = vec![
        eventfd(5, EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE)?,
        memory(4097)?,
        memory(0)?,
        huge.try_clone().map_err(|_| rustix::io::Errno::MFILE)?,
        open(&proc, OFlags::RDONLY)?,
        open(&proc, OFlags::PATH)?,
        reader,
        writer,
        open("/dev/zero", OFlags::RDWR)?,
        open("/proc/self/exe", OFlags::RDONLY)?,
        open("/", OFlags::DIRECTORY | OFlags::RDONLY)?,
        epoll::create(epoll::CreateFlags::CLOEXEC)?,
    ];
    let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    Ok(Files { memory: memory_file, huge, event, others })
}

fuzz_target!(|data: &[u8]| {
    let mut from = Bytes::new(data);
    if from.flag() { World::new(&mut from).run(&mut from) } else { stream(&mut from) }
});

/// Decodes a request and checks its round trip.
fn through_the_wire(received: &Received) -> Option<Request> {
    let request = Request::decode(&received.header, &received.payload).ok()?;
    let (fewest, most) = request.descriptors();
    assert!(fewest <= most && most <= MAX_REGIONS.max(1));
    assert!(!request.name().to_string().is_empty());
    for need_reply in [false, true] {
        let bytes = request.encode(need_reply);
        let again = parse(&bytes, Vec::new());
        assert_eq!((again.header.code, again.header.need_reply), (request.code(), need_reply));
        assert_eq!(Request::decode(&again.header, &again.payload).as_ref(), Ok(&request));
    }
    Some(request)
}

/// Parses the bytes of an encoded message.
fn parse(bytes: &[u8], descriptors: Vec<OwnedFd>) -> Received {
    let Some((header, payload)) = bytes.split_first_chunk::<HEADER_LEN>() else { panic!("no header") };
    let Ok(header) = Header::decode(header) else { panic!("{bytes:?} is not a message") };
    assert_eq!(header.size as usize, payload.len());
    let descriptors = descriptors.into_iter().map(Into::into).collect();
    Received { header, payload: payload.to_vec(), descriptors }
}

/// Arbitrary bytes in pieces, some with descriptors.
fn stream(from: &mut Bytes<'_>) {
    let Ok((theirs, ours)) = UnixStream::pair() else { panic!("cannot create sockets") };
    assert!(ours.set_nonblocking(true).is_ok() && theirs.set_nonblocking(true).is_ok());
    let mut receiver = Receiver::default();
    let mut theirs = Some(theirs);
    for _ in 0..MOST {
        let size = usize::from(from.u8());
        let bytes = from.slice(1 + size % 64);
        let count = if size < 192 { 0 } else { size % 12 };
        match &theirs {
            Some(socket) if !bytes.is_empty() => FILES.with(|files| {
                // More descriptors than a message may carry are sent in two pieces.
                let fds = vec![files.event.as_fd(); count.min(8)];
                let _ = send(socket.as_fd(), bytes, &fds);
                if count > 8 {
                    let _ = send(socket.as_fd(), &[0], &vec![files.event.as_fd(); count - 8]);
                }
            }),
            _ => theirs = None,
        }
        loop {
            match receiver.receive(ours.as_fd()) {
                Ok(Some(received)) => {
                    assert!(!receiver.is_within_message());
                    assert!(received.payload.len() <= MAX_PAYLOAD && received.descriptors.len() <= 8);
                    assert_eq!(received.payload.len(), received.header.size as usize);
                    through_the_wire(&received);
                    if let Ok(answer) = Answer::decode(&received.header, &received.payload) {
                        let again = parse(&answer.encode(received.header.code), Vec::new());
                        assert_eq!(Answer::decode(&again.header, &again.payload), Ok(answer));
                    }
                }
                Ok(None) => {
                    assert!(theirs.is_none() && !receiver.is_within_message());
                    return;
                }
                Err(error) if error.would_block() => break,
                Err(error) => {
                    assert!(theirs.is_none() || !matches!(error, ReceiveError::Cut | ReceiveError::Io(_)));
                    assert!(!error.to_string().is_empty());
                    return;
                }
            }
        }
    }
}

/// Accepted state of a ring.
#[derive(Default)]
struct RingState {
    started: bool,
    enabled: bool,
}

/// Runs the rings and checks the session's guarantees.
struct Runner {
    limits: Limits,
    running: BTreeMap<usize, Running>,
    features: u64,
    regions: usize,
    chain: Box<Chain>,
}

impl Rings for Runner {
    fn start(&mut self, device: Device) -> Result<(), String> {
        assert!(self.running.is_empty(), "started twice");
        assert_eq!(device.features & !(device::OFFERED | device::PROTOCOL_FEATURES), 0);
        assert!((1..=self.limits.regions).contains(&device.regions));
        assert!(device.rings.iter().any(|ring| ring.enabled));
        assert!(device.mtu.is_none_or(|mtu| mtu >= 68));
        (self.features, self.regions) = (device.features, device.regions);
        for ring in device.rings {
            assert!(ring.ring < 2 * usize::from(self.limits.queue_pairs));
            assert!((1..=32768).contains(&ring.size));
            let packed = device.features & device::RING_PACKED != 0;
            assert!(packed || ring.size.is_power_of_two());
            assert!(ring.ring % 2 == 0 || ring.kick.is_some(), "a transmit ring without a kick");
            for fd in [&ring.kick, &ring.call].into_iter().flatten() {
                assert!(is_eventfd(fd.as_fd()));
            }
            assert!(self.running.insert(ring.ring, ring).is_none(), "a duplicate ring");
        }
        Ok(())
    }

    fn stop(&mut self) -> Vec<(usize, u32)> {
        assert!(!self.running.is_empty(), "stopped twice");
        std::mem::take(&mut self.running).into_iter().map(|(at, ring)| (at, ring.queue.base())).collect()
    }

    fn set_call(&mut self, ring: usize, call: Option<Arc<OwnedFd>>) {
        assert!(!self.running.is_empty() && ring < 2 * usize::from(self.limits.queue_pairs));
        if let Some(running) = self.running.get_mut(&ring) {
            running.call = call;
        }
    }
}

impl Runner {
    /// Takes some chains of each ring, accesses their memory, and gives them back.
    fn work(&mut self, which: u8) {
        for (at, ring) in &mut self.running {
            if which >> (at % 8) & 1 == 0 {
                continue;
            }
            for _ in 0..4 {
                match ring.queue.take(&mut self.chain) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => {
                        assert!(!error.to_string().is_empty());
                        break;
                    }
                }
                for segment in self.chain.readable().iter().chain(self.chain.writable()) {
                    assert!(segment.len > 0);
                    let (first, last) = (segment.at, segment.len as usize - 1);
                    // SAFETY: the segment is mapped as long as the queue exists; faults are caught.
                    unsafe { (first.as_ptr().read_volatile(), first.add(last).as_ptr().read_volatile()) };
                }
                for segment in self.chain.writable() {
                    // SAFETY: as above.
                    unsafe { segment.at.as_ptr().write_volatile(0x5a) };
                }
                let (id, slots) = (self.chain.id(), self.chain.slots());
                ring.queue.give_back(id, slots, self.chain.writable_bytes());
            }
            ring.queue.publish();
            ring.queue.wants_call();
            ring.queue.set_kicks(at % 3 == 0);
            let _ = ring.queue.faulted();
        }
    }
}

struct World {
    session: Session,
    offered: u64,
    runner: Runner,
    rings: Vec<RingState>,
    /// Guest addresses of the present regions.
    regions: BTreeSet<u64>,
    features: Option<u64>,
    /// A file of this input that may be truncated.
    fresh: Option<OwnedFd>,
}

impl World {
    fn new(from: &mut Bytes<'_>) -> World {
        let [kind, pairs, regions] = from.array();
        let limits = Limits {
            queue_pairs: u16::from(pairs % 3) + 1,
            regions: usize::from(regions % 9) + 1,
            memory: if regions & 0x80 == 0 { 1 << 41 } else { 3 * FILE },
        };
        // All features, or some of them at random.
        let offered = if kind & 2 == 0 { u64::MAX } else { device::OFFERED & !u64::from(from.u32()) };
        FILES.with(|files| {
            assert_eq!(pwrite(&files.memory, &[0; FILE as usize], 0), Ok(FILE as usize));
            assert!(ftruncate(&files.huge, 0).and_then(|()| ftruncate(&files.huge, HUGE)).is_ok());
        });
        let running = BTreeMap::new();
        let runner = Runner { limits, running, features: 0, regions: 0, chain: Box::default() };
        let mut world = World {
            session: Session::new(limits, offered),
            offered: offered & device::OFFERED | device::PROTOCOL_FEATURES,
            runner,
            rings: (0..2 * limits.queue_pairs).map(|_| RingState::default()).collect(),
            regions: BTreeSet::new(),
            features: None,
            fresh: None,
        };
        if kind & 1 != 0 {
            // The input may choose packed rings.
            let features =
                world.offered & (device::VERSION_1 | device::RING_PACKED | device::PROTOCOL_FEATURES);
            world.send(Request::SetFeatures(features).encode(false), Vec::new());
        }
        world
    }

    fn run(&mut self, from: &mut Bytes<'_>) {
        for _ in 0..MOST {
            if from.is_empty() {
                break;
            }
            let alive = match from.below(24) {
                20 => {
                    self.runner.work(from.u8());
                    true
                }
                21 | 22 => {
                    self.scribble(from);
                    true
                }
                23 => {
                    if let Some(file) = &self.fresh {
                        let _ = ftruncate(file, u64::from(from.u16()));
                    }
                    true
                }
                choice => {
                    let (bytes, count) = self.request(choice, from);
                    let fds = descriptors(count, from, &mut self.fresh);
                    self.send(bytes, fds)
                }
            };
            if !alive {
                return;
            }
        }
        self.session.close(&mut self.runner);
        assert!(self.runner.running.is_empty(), "still running after the end");
    }

    /// Builds a request and returns the kind of its descriptors.
    fn request(&mut self, choice: usize, from: &mut Bytes<'_>) -> (Vec<u8>, Kind) {
        let number = |from: &mut Bytes<'_>| {
            let ring = from.u8();
            RingNumber { ring: u32::from(ring % 7), number: u32::from(from.u8()) }
        };
        let request = match choice {
            0 => {
                // Anything with a code that may be known.
                let [code, flags, size] = from.array();
                let payload = from.slice(usize::from(size) % (MAX_PAYLOAD + 1));
                let word = |n: u32| n.to_ne_bytes();
                let head = [
                    word(u32::from(code % 48)),
                    word(1 | u32::from(flags & 0x0c)),
                    word(payload.len() as u32),
                ];
                let kind = if flags & 0x40 == 0 { Kind::None } else { Kind::Event };
                return ([&head.concat()[..], payload].concat(), kind);
            }
            1 => [
                Request::GetFeatures,
                Request::GetProtocolFeatures,
                Request::GetQueueNum,
                Request::GetMaxMemSlots,
            ][from.below(4)]
            .clone(),
            2 => {
                let without = u64::from(from.u8());
                let base =
                    device::VERSION_1 | device::PROTOCOL_FEATURES | device::INDIRECT_DESC | device::EVENT_IDX;
                Request::SetFeatures(match without {
                    0..=99 => base & self.offered,
                    100..=199 => (base | device::RING_PACKED) & self.offered,
                    200..=229 => device::VERSION_1 & self.offered,
                    _ => from.u64(),
                })
            }
            3 => Request::SetProtocolFeatures(u64::from(from.u32())),
            4 => {
                let count = 1 + from.below(MAX_REGIONS);
                Request::SetMemTable((0..count).map(|i| region(i, from)).collect())
            }
            5 => {
                let at = from.below(9);
                Request::AddMemReg(region(at, from))
            }
            6 => {
                let at = from.below(9);
                Request::RemMemReg(Region { guest: (at as u64) << 20, ..region(at, from) })
            }
            7 => Request::GetVringBase(number(from)),
            8 => {
                let RingNumber { ring, number } = number(from);
                let number = if number < 200 { 1 << (number % 10) } else { number * 200 };
                Request::SetVringNum(RingNumber { ring, number: number + u32::from(from.u8() & 1) })
            }
            9 => {
                let [ring, at, other] = from.array();
                let place = USER + u64::from(ring % 7) * 0x2000 + u64::from(other);
                let base = if at < 240 { place } else { from.u64() };
                Request::SetVringAddr(RingAddresses {
                    ring: u32::from(ring % 7),
                    flags: u32::from(at & 1),
                    descriptors: base,
                    used: base.wrapping_add(0x1000),
                    available: base.wrapping_add(0x800),
                    log: 0,
                })
            }
            10 => {
                let [ring, low, high, other] = from.array();
                let number = u32::from_le_bytes([low, high & 0x80, low & other, other & 0x80]);
                Request::SetVringBase(RingNumber { ring: u32::from(ring % 7), number })
            }
            11..=13 => {
                let [ring, absent] = from.array();
                let at = RingDescriptor { ring: ring % 7, present: absent < 250 };
                match choice {
                    11 => Request::SetVringKick(at),
                    12 => Request::SetVringCall(at),
                    _ => Request::SetVringErr(at),
                }
            }
            14 => Request::SetVringEnable(number(from)),
            15 => Request::NetSetMtu(u64::from(from.u16())),
            16 => Request::SendRarp(from.array()),
            17 => Request::SetStatus(u64::from(from.u8())),
            18 => Request::GetStatus,
            _ => Request::SetOwner,
        };
        let kind = match request {
            Request::SetMemTable(ref regions) => Kind::Memory(regions.len()),
            Request::AddMemReg(_) => Kind::Memory(1),
            _ if request.descriptors().0 > 0 => Kind::Event,
            _ => Kind::None,
        };
        (request.encode(from.flag()), kind)
    }

    /// Passes a message to the session and compares the running rings with the accepted state. Returns false at the end
    /// of the session.
    fn send(&mut self, bytes: Vec<u8>, descriptors: Vec<OwnedFd>) -> bool {
        let received = parse(&bytes, descriptors);
        let Received { header, .. } = received;
        let request = through_the_wire(&received);
        match self.session.handle(received, &mut self.runner) {
            Ok(answer) => {
                let Some(request) = request else { panic!("accepted an invalid request: {bytes:?}") };
                self.answered(&request, &header, answer);
                self.accepted(&request);
                true
            }
            Err(refusal) => {
                assert!(request.is_some() || matches!(refusal, Refusal::Message(_)));
                let text = refusal.to_string();
                assert!(!text.is_empty() && !text.chars().any(char::is_control));
                self.session.close(&mut self.runner);
                assert!(self.runner.running.is_empty(), "still running after a refusal");
                false
            }
        }
    }

    fn answered(&self, request: &Request, header: &Header, answer: Option<Vec<u8>>) {
        let Some(answer) = answer else {
            return assert!(
                !header.need_reply || !self.session.answers_all(),
                "{request:?} was not answered"
            );
        };
        let answer = parse(&answer, Vec::new());
        assert!(answer.header.is_reply && answer.header.code == request.code());
        match (request, Answer::decode(&answer.header, &answer.payload)) {
            (Request::GetVringBase(asked), Ok(Answer::Ring(told))) => assert_eq!(asked.ring, told.ring),
            (Request::GetFeatures, Ok(Answer::Number(features))) => assert_eq!(features, self.offered),
            (_, Ok(Answer::Number(_))) => {}
            other => panic!("{other:?}"),
        }
    }

    fn accepted(&mut self, request: &Request) {
        match request {
            Request::SetFeatures(features) => self.features = Some(*features),
            Request::SetMemTable(regions) => {
                self.regions = regions.iter().map(|region| region.guest).collect()
            }
            Request::AddMemReg(region) => assert!(self.regions.insert(region.guest)),
            Request::RemMemReg(region) => assert!(self.regions.remove(&region.guest)),
            Request::SetVringKick(at) => self.rings[usize::from(at.ring)].started = true,
            Request::GetVringBase(at) => self.rings[at.ring as usize].started = false,
            Request::SetVringEnable(at) => self.rings[at.ring as usize].enabled = at.number == 1,
            _ => {}
        }
        assert_eq!(self.session.features(), self.features);
        assert!(self.regions.len() <= self.runner.limits.regions);
        let always = self.features.is_some_and(|features| features & device::PROTOCOL_FEATURES == 0);
        let started = |state: &&RingState| state.started;
        let runs = self.rings.iter().filter(started).any(|state| state.enabled || always);
        if !self.runner.running.is_empty()
            || matches!(request, Request::SetVringEnable(_) | Request::SetVringKick(_))
        {
            let running: Vec<_> =
                self.runner.running.values().map(|ring| (ring.ring, ring.enabled)).collect();
            let state = self.rings.iter().enumerate().filter(|(_, state)| state.started && runs);
            let state: Vec<_> = state.map(|(at, state)| (at, state.enabled || always)).collect();
            assert_eq!(running, state, "after {request:?}");
        }
        if !self.runner.running.is_empty() {
            assert_eq!(
                (Some(self.runner.features), self.runner.regions),
                (self.features, self.regions.len())
            );
        }
    }

    /// Overwrites the memory as drivers would.
    fn scribble(&mut self, from: &mut Bytes<'_>) {
        let [ring, part, at] = from.array();
        let places = [0, 0x800, 0x1000];
        let at = u64::from(ring % 8) * 0x2000 + places[usize::from(part % 3)] + u64::from(at) * 2;
        let len = if part & 0x80 == 0 { 2 } else { 16 };
        let bytes = from.slice(len);
        FILES.with(|files| {
            let fd = match &self.fresh {
                Some(file) if part & 0x40 != 0 => file.as_fd(),
                _ => files.memory.as_fd(),
            };
            let _ = write_at(fd, bytes, at.min(FILE - 16));
        });
    }
}

fn write_at(fd: BorrowedFd<'_>, bytes: &[u8], at: u64) -> rustix::io::Result<usize> {
    pwrite(fd, bytes, at)
}

/// A region, mostly at a place of its own.
fn region(at: usize, from: &mut Bytes<'_>) -> Region {
    let [size, odd] = from.array();
    let start = (at as u64) << 20;
    Region {
        guest: if odd < 250 { start } else { from.u64() },
        size: match size {
            0..=199 => FILE,
            200..=249 => u64::from(size) * 300,
            _ => from.u64() >> (size % 64),
        },
        user: if odd == 249 { from.u64() } else { USER + start },
        offset: match odd {
            0..=229 => 0,
            230..=248 => u64::from(odd) * 17,
            _ => from.u64(),
        },
    }
}

/// Kind of descriptors that a request expects.
#[derive(Clone, Copy)]
enum Kind {
    None,
    Memory(usize),
    Event,
}

/// Returns the descriptors that a request expects, unless the input chooses others or another number.
fn descriptors(kind: Kind, from: &mut Bytes<'_>, fresh: &mut Option<OwnedFd>) -> Vec<OwnedFd> {
    let choice = from.u8();
    let count = match kind {
        Kind::None => 0,
        Kind::Memory(count) => count,
        Kind::Event => 1,
    };
    let count = if choice < 245 { count } else { usize::from(from.u8() % 9) };
    FILES.with(|files| {
        let one = |i: usize| {
            let odd = (210..245).contains(&choice) && i == 0;
            let file = match kind {
                _ if odd => files.others[usize::from(choice) % files.others.len()].try_clone(),
                Kind::Memory(_) if choice >= 150 => match fresh {
                    Some(file) => file.try_clone(),
                    None => {
                        *fresh = memory(FILE).ok();
                        match fresh {
                            Some(file) => file.try_clone(),
                            None => files.memory.try_clone(),
                        }
                    }
                },
                Kind::Memory(_) => files.memory.try_clone(),
                _ => files.event.try_clone(),
            };
            match file {
                Ok(file) => file,
                Err(error) => panic!("cannot duplicate a descriptor: {error}"),
            }
        };
        (0..count).map(one).collect()
    })
}
