use std::collections::BTreeMap;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::*;
use crate::message::{Answer, Header, RingAddresses};

const MEMORY: u64 = 1 << 20;
const USER: u64 = 0x7000_0000_0000;
const FEATURES: u64 = device::VERSION_1 | device::PROTOCOL_FEATURES;

/// A component that runs nothing and records the session's calls.
#[derive(Default)]
struct RecordingRings {
    running: BTreeMap<usize, Running>,
    features: u64,
    mtu: Option<u16>,
    announced: Vec<[u8; 6]>,
    starts: usize,
    logs: bool,
    calls: Vec<(usize, bool)>,
}

impl Rings for RecordingRings {
    fn start(&mut self, device: Device) -> Result<(), String> {
        assert!(self.running.is_empty(), "started twice");
        self.running = device.rings.into_iter().map(|ring| (ring.ring, ring)).collect();
        (self.features, self.mtu) = (device.features, device.mtu);
        self.announced.extend(device.announce);
        self.starts += 1;
        self.logs = device.log.is_some();
        Ok(())
    }

    fn stop(&mut self) -> Vec<(usize, u32)> {
        // Reports each ring as advanced by 100 plus its index.
        std::mem::take(&mut self.running).into_keys().map(|ring| (ring, 100 + ring as u32)).collect()
    }

    fn set_call(&mut self, ring: usize, call: Option<Arc<OwnedFd>>) {
        self.calls.push((ring, call.is_some()));
    }
}

struct Rig {
    session: Session,
    recorded: RecordingRings,
}

fn memory_file() -> OwnedFd {
    let fd = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&fd, MEMORY).unwrap();
    fd
}

fn signal() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

fn region() -> Region {
    Region { guest: 0, size: MEMORY, user: USER, offset: 0 }
}

fn kick(ring: u8) -> Request {
    Request::SetVringKick(RingDescriptor { ring, present: true })
}

fn log(size: u64) -> Request {
    Request::SetLogBase(LogArea { size, offset: 0 })
}

fn number(ring: u32, number: u32) -> RingNumber {
    RingNumber { ring, number }
}

fn addresses(ring: u32) -> RingAddresses {
    let at = USER + u64::from(ring) * 0x10000;
    RingAddresses { ring, flags: 0, descriptors: at, used: at + 0x2000, available: at + 0x1000, log: 0 }
}

impl Rig {
    fn new() -> Rig {
        let limits = Limits { queue_pairs: 2, ..Limits::default() };
        Rig { session: Session::new(limits, u64::MAX), recorded: RecordingRings::default() }
    }

    /// Sends a request as a front-end does, with or without its flag for answers.
    fn ask(
        &mut self,
        request: &Request,
        descriptors: Vec<OwnedFd>,
        need_reply: bool,
    ) -> Result<Option<Answer>, Refusal> {
        let bytes = request.encode(need_reply);
        let (header, payload) = bytes.split_first_chunk().unwrap();
        let header = Header::decode(header).unwrap();
        let descriptors = descriptors.into_iter().map(ClientFd::from).collect();
        let received = Received { header, payload: payload.to_vec(), descriptors };
        let answer = self.session.handle(received, &mut self.recorded)?;
        Ok(answer.map(|bytes| {
            let (header, payload) = bytes.split_first_chunk().unwrap();
            let answered = Header::decode(header).unwrap();
            assert_eq!(answered.code, request.code());
            Answer::decode(&answered, payload).unwrap()
        }))
    }

    fn tell(&mut self, request: Request, descriptors: Vec<OwnedFd>) {
        assert_eq!(self.ask(&request, descriptors, false).unwrap(), None, "{request:?}");
    }

    fn refused(&mut self, request: Request, descriptors: Vec<OwnedFd>) -> String {
        self.ask(&request, descriptors, false).unwrap_err().to_string()
    }

    fn with_memory(features: u64) -> Rig {
        let mut rig = Rig::new();
        rig.tell(Request::SetOwner, vec![]);
        rig.tell(Request::SetFeatures(features), vec![]);
        rig.tell(Request::SetMemTable(vec![region()]), vec![memory_file()]);
        rig
    }

    fn start(&mut self, ring: u32) {
        self.tell(Request::SetVringNum(number(ring, 256)), vec![]);
        self.tell(Request::SetVringBase(number(ring, 0)), vec![]);
        self.tell(Request::SetVringAddr(addresses(ring)), vec![]);
        self.tell(kick(ring as u8), vec![signal()]);
    }

    fn running(&self) -> Vec<(usize, bool)> {
        self.recorded.running.values().map(|ring| (ring.ring, ring.enabled)).collect()
    }
}

#[test]
fn rings_run_once_started_and_one_is_enabled() {
    let mut rig = Rig::with_memory(FEATURES);
    rig.start(0);
    rig.start(1);
    assert_eq!(rig.running(), [], "no ring is enabled");
    rig.tell(Request::SetVringEnable(number(1, 1)), vec![]);
    assert_eq!(rig.running(), [(0, false), (1, true)]);
    rig.tell(Request::SetVringEnable(number(0, 1)), vec![]);
    rig.tell(Request::SetVringEnable(number(0, 1)), vec![]);
    assert_eq!(rig.running(), [(0, true), (1, true)]);
    assert_eq!(rig.recorded.starts, 2, "a request without change stops no ring");
    rig.session.close(&mut rig.recorded);
    assert_eq!(rig.running(), []);
}

#[test]
fn without_protocol_features_rings_start_enabled() {
    let mut rig = Rig::with_memory(device::VERSION_1);
    rig.start(1);
    assert_eq!(rig.running(), [(1, true)]);
}

#[test]
fn a_ring_is_stopped_before_its_position_is_reported_and_resumes_there() {
    let mut rig = Rig::with_memory(FEATURES);
    for ring in [0, 1] {
        rig.start(ring);
        rig.tell(Request::SetVringEnable(number(ring, 1)), vec![]);
    }
    let answer = rig.ask(&Request::GetVringBase(number(1, 0)), vec![], false).unwrap();
    assert_eq!(answer, Some(Answer::Ring(number(1, 101))));
    assert_eq!(rig.running(), [(0, true)], "the other keeps running");
    let again = rig.ask(&Request::GetVringBase(number(1, 0)), vec![], true).unwrap();
    assert_eq!(again, Some(Answer::Ring(number(1, 101))));
    rig.tell(kick(1), vec![signal()]);
    assert_eq!(rig.running(), [(0, true), (1, true)]);
}

#[test]
fn packed_rings_start_with_both_wrap_counters_set() {
    let mut rig = Rig::with_memory(FEATURES | device::RING_PACKED);
    let answer = rig.ask(&Request::GetVringBase(number(1, 0)), vec![], false).unwrap();
    assert_eq!(answer, Some(Answer::Ring(number(1, 0x8000_8000))));
}

#[test]
fn parameters_change_only_while_no_ring_runs() {
    let mut rig = Rig::with_memory(FEATURES);
    rig.start(1);
    rig.tell(Request::SetVringEnable(number(1, 1)), vec![]);
    rig.tell(Request::SetMemTable(vec![region()]), vec![memory_file()]);
    rig.tell(Request::NetSetMtu(9000), vec![]);
    assert_eq!(rig.recorded.mtu, Some(9000));
    rig.tell(Request::SendRarp([2, 0, 0, 0, 0, 1]), vec![]);
    rig.tell(Request::SetVringEnable(number(0, 1)), vec![]);
    assert_eq!(rig.recorded.announced, [[2, 0, 0, 0, 0, 1]], "announced once");
    assert_eq!(rig.recorded.starts, 5);
    rig.tell(Request::SetVringCall(RingDescriptor { ring: 1, present: true }), vec![signal()]);
    rig.tell(Request::SetVringCall(RingDescriptor { ring: 1, present: false }), vec![]);
    assert_eq!(rig.recorded.calls, [(1, true), (1, false)]);
    assert_eq!(rig.recorded.starts, 5, "a new descriptor to signal stops no ring");
    // The same features, and logging in a ring with unchanged addresses, do not count as changes.
    rig.tell(Request::SetFeatures(FEATURES), vec![]);
    rig.tell(Request::SetVringAddr(RingAddresses { flags: 1, ..addresses(1) }), vec![]);

    let other = rig.refused(Request::SetFeatures(FEATURES | device::MRG_RXBUF), vec![]);
    assert_eq!(other, "SET_FEATURES with different features while rings are started");
    let moved = RingAddresses { used: USER, ..addresses(1) };
    assert_eq!(
        rig.refused(Request::SetVringAddr(moved), vec![]),
        "SET_VRING_ADDR of ring 1 while it is started"
    );
    let base = rig.refused(Request::SetVringBase(number(1, 0)), vec![]);
    assert_eq!(base, "SET_VRING_BASE of ring 1 while it is started");
}

#[test]
fn regions_come_and_go() {
    let mut rig = Rig::with_memory(FEATURES);
    rig.start(1);
    rig.tell(Request::SetVringEnable(number(1, 1)), vec![]);
    let more = Region { guest: 1 << 32, user: USER + (1 << 32), ..region() };
    rig.tell(Request::AddMemReg(more), vec![memory_file()]);
    let overlapping = rig.refused(Request::AddMemReg(more), vec![memory_file()]);
    assert!(overlapping.contains("overlap in their guest addresses"), "{overlapping}");
    rig.tell(Request::RemMemReg(more), vec![]);
    assert!(rig.refused(Request::RemMemReg(more), vec![]).starts_with("no memory region has guest address"));
    // Some front-ends send a descriptor with it.
    let gone = rig.refused(Request::RemMemReg(region()), vec![memory_file()]);
    assert!(gone.starts_with("ring 1: the ring's descriptor area of 4096 bytes at user address"), "{gone}");
}

#[test]
fn questions_are_answered() {
    let mut rig = Rig::new();
    let mut number_of = |request: Request| match rig.ask(&request, vec![], false).unwrap() {
        Some(Answer::Number(number)) => number,
        other => panic!("{request:?}: {other:?}"),
    };
    assert_eq!(number_of(Request::GetFeatures), device::OFFERED);
    assert_eq!(number_of(Request::GetProtocolFeatures), protocol::OFFERED);
    assert_eq!(number_of(Request::GetQueueNum), 2);
    assert_eq!(number_of(Request::GetMaxMemSlots), 64);
    rig.tell(Request::SetStatus(15), vec![]);
    assert_eq!(rig.ask(&Request::GetStatus, vec![], false).unwrap(), Some(Answer::Number(15)));
}

#[test]
fn answers_to_all_requests_only_when_negotiated() {
    let mut rig = Rig::new();
    assert_eq!(rig.ask(&Request::SetOwner, vec![], true).unwrap(), None);
    rig.tell(Request::NetSetMtu(1), vec![]);
    rig.tell(Request::SetProtocolFeatures(protocol::REPLY_ACK | protocol::NET_MTU), vec![]);
    assert_eq!(rig.ask(&Request::SetOwner, vec![], true).unwrap(), Some(Answer::Number(0)));
    assert_eq!(rig.ask(&Request::SetOwner, vec![], false).unwrap(), None);
    assert_eq!(rig.ask(&Request::NetSetMtu(1500), vec![], true).unwrap(), Some(Answer::Number(0)));
    assert_eq!(rig.ask(&Request::NetSetMtu(1), vec![], true).unwrap(), Some(Answer::Number(1)));
}

#[test]
fn a_ring_is_not_started_before_it_is_complete() {
    let started = |requests: &[Request]| {
        let mut rig = Rig::new();
        for request in requests {
            let files = request.descriptors().0;
            rig.tell(request.clone(), (0..files).map(|_| memory_file()).collect());
        }
        rig.refused(kick(1), vec![signal()])
    };
    let features = Request::SetFeatures(FEATURES);
    let table = Request::SetMemTable(vec![region()]);
    let size = Request::SetVringNum(number(1, 256));
    assert_eq!(started(&[]), "SET_VRING_KICK of ring 1 before SET_FEATURES");
    assert_eq!(started(std::slice::from_ref(&features)), "SET_VRING_KICK of ring 1 before the memory table");
    let both = [features, table];
    assert_eq!(started(&both), "SET_VRING_KICK of ring 1 before SET_VRING_NUM");
    assert_eq!(started(&[&both[..], &[size]].concat()), "SET_VRING_KICK of ring 1 before SET_VRING_ADDR");
}

#[test]
fn invalid_values() {
    let mut rig = Rig::with_memory(FEATURES);
    let mut refused = |request: Request, descriptors: Vec<OwnedFd>| rig.refused(request, descriptors);
    let not_there = "ring 4 does not exist: the device has 4 rings, two for each queue pair";
    assert_eq!(refused(Request::SetVringNum(number(4, 256)), vec![]), not_there);
    assert_eq!(refused(kick(4), vec![signal()]), not_there);
    assert_eq!(refused(Request::GetVringBase(number(u32::MAX, 0)), vec![]).len(), not_there.len() + 9);
    assert_eq!(
        refused(Request::SetVringNum(number(0, 0)), vec![]),
        "ring 0 of 0 entries, expected 1 to 32768"
    );
    assert_eq!(
        refused(Request::SetVringNum(number(0, 65536)), vec![]),
        "ring 0 of 65536 entries, expected 1 to 32768"
    );
    assert_eq!(
        refused(Request::SetVringEnable(number(0, 2)), vec![]),
        "SET_VRING_ENABLE of ring 0 with 2, expected 0 or 1"
    );
    assert_eq!(
        refused(Request::SetFeatures(1 << 25 | 1 << 63), vec![]),
        "SET_FEATURES with bits that were not offered: 25, 63"
    );
    assert_eq!(
        refused(Request::SetProtocolFeatures(1 << 5), vec![]),
        "SET_PROTOCOL_FEATURES with bits that were not offered: 5"
    );
    assert_eq!(
        refused(log(MEMORY), vec![memory_file()]),
        "SET_LOG_BASE without negotiated protocol feature 1 (LOG_SHMFD)"
    );
}

#[test]
fn wrong_descriptors() {
    let mut rig = Rig::with_memory(FEATURES);
    let mut refused = |request: Request, descriptors: Vec<OwnedFd>| rig.refused(request, descriptors);
    assert_eq!(refused(Request::SetOwner, vec![signal()]), "SET_OWNER with 1 file descriptor, expected 0");
    assert_eq!(refused(kick(1), vec![]), "SET_VRING_KICK with 0 file descriptors, expected 1");
    let absent = Request::SetVringCall(RingDescriptor { ring: 1, present: false });
    assert_eq!(refused(absent, vec![signal()]), "SET_VRING_CALL with 1 file descriptor, expected 0");
    assert_eq!(
        refused(Request::SetMemTable(vec![region(); 2]), vec![memory_file()]),
        "SET_MEM_TABLE with 1 file descriptor, expected 2"
    );
    assert_eq!(
        refused(kick(1), vec![memory_file()]),
        "SET_VRING_KICK of ring 1 with a file descriptor that is not an eventfd"
    );
    let polled = Request::SetVringKick(RingDescriptor { ring: 1, present: false });
    assert!(refused(polled, vec![]).starts_with("SET_VRING_KICK of ring 1 without an eventfd"));
    let not_memory = refused(Request::SetMemTable(vec![region()]), vec![signal()]);
    assert!(not_memory.starts_with("memory region at guest address 0x0: memory file is "), "{not_memory}");
}

#[test]
fn no_more_memory_than_allowed() {
    let limits = Limits { queue_pairs: 1, regions: 1, memory: MEMORY };
    let mut rig = Rig { session: Session::new(limits, u64::MAX), recorded: RecordingRings::default() };
    let two = Request::SetMemTable(vec![region(); 2]);
    assert_eq!(
        rig.refused(two, vec![memory_file(), memory_file()]),
        "more memory regions than the limit of 1"
    );
    let large = Request::SetMemTable(vec![Region { size: MEMORY + 1, ..region() }]);
    assert_eq!(rig.refused(large, vec![memory_file()]), "more than 1048576 bytes of memory");
}

#[test]
fn a_split_ring_resumes_at_its_used_index() {
    let mut rig = Rig::with_memory(FEATURES);
    let file = memory_file();
    // The used index of ring 1, two bytes after the start of its used ring.
    rustix::io::pwrite(&file, &300u16.to_ne_bytes(), 0x12002).unwrap();
    rig.tell(Request::SetMemTable(vec![region()]), vec![file]);
    rig.start(1);
    rig.tell(Request::SetVringEnable(number(1, 1)), vec![]);
    assert_eq!(rig.recorded.running[&1].queue.base(), 300, "despite the claimed 0");
    // Our own record takes precedence over any claim.
    rig.tell(Request::SetVringEnable(number(0, 1)), vec![]);
    assert_eq!(rig.recorded.running[&1].queue.base(), 101);
}

/// Makes a rig whose ring 1 runs, with all that a log needs.
fn migrating() -> Rig {
    let mut rig = Rig::with_memory(FEATURES);
    rig.tell(Request::SetProtocolFeatures(protocol::LOG_SHMFD), vec![]);
    rig.start(1);
    rig.tell(Request::SetVringEnable(number(1, 1)), vec![]);
    rig
}

/// Makes a request that logs writes to ring 1.
fn logged(at: u64) -> Request {
    Request::SetVringAddr(RingAddresses { flags: 1, log: at, ..addresses(1) })
}

#[test]
fn a_log_is_added_and_removed_while_rings_run() {
    let mut rig = migrating();
    assert_eq!(rig.ask(&log(32), vec![memory_file()], false).unwrap(), Some(Answer::Number(0)));
    assert_eq!((rig.recorded.starts, rig.recorded.logs), (1, false), "logging is still off");
    rig.tell(Request::SetFeatures(FEATURES | device::LOG_ALL), vec![]);
    assert_eq!((rig.recorded.starts, rig.recorded.logs), (2, true));
    rig.tell(logged(0x12000), vec![]);
    rig.tell(logged(0x12000), vec![]);
    assert_eq!(rig.recorded.starts, 3, "a request without change stops no ring");
    // A new log, as when memory is plugged in.
    assert_eq!(rig.ask(&log(64), vec![memory_file()], true).unwrap(), Some(Answer::Number(0)));
    rig.tell(Request::SetLogFd, vec![signal()]);
    assert_eq!((rig.recorded.starts, rig.recorded.logs), (4, true));
    rig.tell(Request::SetFeatures(FEATURES), vec![]);
    assert_eq!((rig.recorded.starts, rig.recorded.logs), (5, false));
    assert_eq!(rig.recorded.running[&1].queue.base(), 101, "it resumed at its position");
    let other = Request::SetFeatures(FEATURES | device::LOG_ALL | device::MRG_RXBUF);
    assert_eq!(rig.refused(other, vec![]), "SET_FEATURES with different features while rings are started");
}

#[test]
fn a_log_may_come_after_the_features() {
    let mut rig = migrating();
    rig.tell(Request::SetFeatures(FEATURES | device::LOG_ALL), vec![]);
    assert!(!rig.recorded.logs);
    assert_eq!(rig.ask(&log(32), vec![memory_file()], false).unwrap(), Some(Answer::Number(0)));
    assert!(rig.recorded.logs);
}

#[test]
fn invalid_logs() {
    let mut rig = migrating();
    rig.tell(Request::SetFeatures(FEATURES | device::LOG_ALL), vec![]);
    assert_eq!(rig.refused(log(32), vec![]), "SET_LOG_BASE with 0 file descriptors, expected 1");
    let lie = rig.refused(log(MEMORY + 1), vec![memory_file()]);
    assert_eq!(lie, "dirty log: region size 1048577 is larger than its file of 1048576 bytes");
    // The memory has 256 pages.
    assert_eq!(
        rig.refused(log(31), vec![memory_file()]),
        "dirty log of 31 bytes covers guest addresses below 0xf8000, but memory extends to 0x100000"
    );

    let mut rig = migrating();
    rig.ask(&log(32), vec![memory_file()], false).unwrap();
    rig.tell(Request::SetFeatures(FEATURES | device::LOG_ALL), vec![]);
    assert_eq!(
        rig.refused(logged(0xff_fff0), vec![]),
        "log address 0xfffff0 of ring 1 is beyond the end of the dirty log at 0x100000"
    );
}

#[test]
fn a_packed_ring_of_a_dead_back_end_resumes_at_its_descriptors_position() {
    let features = FEATURES | device::RING_PACKED | device::INDIRECT_DESC;
    for (agreed, base) in [(features, 0x002c_002c), (features & !device::INDIRECT_DESC, 0x8000_8000)] {
        let mut rig = Rig::with_memory(agreed);
        let file = memory_file();
        for slot in 0..256u64 {
            // The second lap has reached slot 44: below it both flags are clear (used in this lap); from it on only the
            // used flag is set (available in this lap).
            let flags: u16 = if slot < 44 { 0 } else { 1 << 15 };
            rustix::io::pwrite(&file, &flags.to_ne_bytes(), 0x10000 + slot * 16 + 14).unwrap();
        }
        rig.tell(Request::SetMemTable(vec![region()]), vec![file]);
        rig.tell(Request::SetVringNum(number(1, 256)), vec![]);
        rig.tell(Request::SetVringBase(number(1, 0x8000_8000)), vec![]);
        rig.tell(Request::SetVringAddr(addresses(1)), vec![]);
        rig.tell(kick(1), vec![signal()]);
        rig.tell(Request::SetVringEnable(number(1, 1)), vec![]);
        assert_eq!(rig.recorded.running[&1].queue.base(), base);
    }
}
