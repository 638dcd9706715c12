//! Packets through a bridge with the logic: verdicts however streams are cut, hostile senders, fragments, hand-over.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use fabric::fuzzing::{Bridge, Port, Steps};
use fabric::rx::BatchLimits;
use fabric::worker::Threads;
use fabric::{
    Caps, Egress, Fault, OutputList, PortIndex, PortSettings, QueueCounters, RxBatch, RxQueue, SwitchLogic,
    Tools,
};
use inspect::Inspect;
use logic::Logic;
use packet::Offload;
use proptest::collection::vec;
use proptest::prelude::*;
use regex::bytes::Regex;

/// A byte of a client's memory, which changes when a packet is about to be delivered.
type Memory = Arc<Vec<AtomicU8>>;

#[derive(Default)]
struct Shared {
    given: Vec<(usize, Vec<u8>)>,
    memory: Memory,
}

struct Take(usize, Arc<Mutex<Shared>>);

impl Egress for Take {
    fn deliver(&self, list: &mut OutputList<'_>, _: &QueueCounters, _: &mut Tools) -> Result<(), Fault> {
        let mut shared = self.1.lock().unwrap();
        shared.memory.iter().for_each(|byte| byte.store(0xee, Relaxed));
        list.for_each(|output| {
            let mut bytes = output.header().to_vec();
            // SAFETY: the fabric's promise: each piece is readable.
            output.for_each_payload(|at, len| bytes.extend(unsafe { std::slice::from_raw_parts(at, len) }));
            shared.given.push((self.0, bytes));
        });
        Ok(())
    }
}

/// A client that sends one frame from its memory.
struct Client(Memory);

impl RxQueue for Client {
    fn receive(&mut self, batch: &mut RxBatch) -> Result<(), Fault> {
        let at = NonNull::from(&self.0[..]).cast();
        // SAFETY: the memory outlives the batch's use of it.
        unsafe { batch.add_segment(at, self.0.len() as u32)? };
        batch.end_packet(Offload::NONE);
        Ok(())
    }

    fn complete(&mut self, _: &mut Tools) -> Result<(), Fault> {
        Ok(())
    }

    fn set_signalled(&mut self, _: bool) {}

    fn signal(&self) -> BorrowedFd<'_> {
        unreachable!("tests do not sleep")
    }

    fn cheap_to_poll(&self) -> bool {
        true
    }
}

/// A bridge with ports `p0` to `p2`; packets without a verdict go to `p1`.
struct Rig {
    logic: Arc<Inspect>,
    bridge: Bridge,
    steps: Steps,
    shared: Arc<Mutex<Shared>>,
}

impl Rig {
    fn new(rules: &[&str], more: &[(&str, &str)]) -> Self {
        let rules = (1..).zip(rules).map(|(number, rule)| (format!("{number}"), (*rule).to_owned()));
        let more = more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let given: Vec<_> = rules.chain([("default".into(), "p1".into())]).chain(more).collect();
        let logic = Arc::new(Inspect::new(&given).unwrap_or_else(|error| panic!("{error}")));
        logic.prepare(Threads::of(1)).unwrap();
        let shared = Arc::<Mutex<Shared>>::default();
        let port = |number: usize| Port {
            up: true,
            settings: PortSettings::new(format!("p{number}")),
            tx: vec![Arc::new(Take(number, shared.clone())) as Arc<dyn Egress>],
            caps: Caps::default(),
            max_frame: 65_535,
        };
        let bridge = Bridge::new(logic.clone(), (0..3).map(port).collect());
        let steps = Steps::new(BatchLimits { packets: 8, bytes: 128 << 10 }).unwrap();
        Self { logic, bridge, steps, shared }
    }

    /// Sends a frame; returns the port that it goes to.
    fn send(&mut self, frame: &[u8]) -> Option<usize> {
        let memory: Memory = Arc::new(frame.iter().map(|byte| AtomicU8::new(*byte)).collect());
        self.shared.lock().unwrap().memory = memory.clone();
        self.steps.receive(&mut Client(memory)).unwrap();
        self.steps.load();
        self.steps.forward(&self.bridge, PortIndex(0));
        let given = std::mem::take(&mut self.shared.lock().unwrap().given);
        let [(port, bytes)] = &given[..] else { return None };
        // What was scanned is delivered, though its sender has changed it meanwhile.
        assert_eq!(bytes, frame);
        Some(*port)
    }

    fn counter(&self, name: &str) -> u64 {
        self.logic.counters().into_iter().find(|counter| counter.name == name).unwrap().value
    }

    fn rules(&self) -> Vec<[String; 2]> {
        let rows = self.logic.tables().remove(0).rows;
        rows.into_iter().map(|row| [row[1].clone(), row[2].clone()]).collect()
    }
}

fn ip4(ends: (u8, u8), protocol: u8, fragmentation: u16, l4: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, ends.1, 2, 0, 0, 0, 0, ends.0, 8, 0, 0x45, 0];
    frame.extend((20 + l4.len() as u16).to_be_bytes());
    frame.extend([0, 7]);
    frame.extend(fragmentation.to_be_bytes());
    frame.extend([64, protocol, 0, 0, 10, 0, 0, ends.0, 10, 0, 0, ends.1]);
    frame.extend(l4);
    frame
}

const SYN: u8 = 2;
const ACK: u8 = 16;

/// A segment of the client's at port 40,000, or the server's at port 80.
fn tcp(from_client: bool, seq: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let (ends, ports) = if from_client { ((1, 2), [40_000u16, 80]) } else { ((2, 1), [80, 40_000]) };
    let mut l4 = ports.map(u16::to_be_bytes).concat();
    l4.extend(seq.to_be_bytes());
    l4.extend([0, 0, 0, 0, 0x50, flags, 1, 0, 0, 0, 0, 0]);
    ip4(ends, 6, 0x4000, &[&l4, payload].concat())
}

fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let mut l4 = [40_000, port, 8 + payload.len() as u16, 0].map(u16::to_be_bytes).concat();
    l4.extend(payload);
    ip4((1, 2), 17, 0, &l4)
}

const RULES: [&str; 5] = [
    "tcp /evil/ -> drop",
    "/a.b/ -> port p2",
    "udp /e/ -> drop",
    "tcp port 80-81 /^ev+a/ -> drop",
    "tcp port 81 /il/ -> drop",
];

/// The first match that decides about the client's stream: the bytes up to its end, and where its packets go.
fn expected(stream: &[u8], has_begin: bool) -> Option<(usize, Option<usize>)> {
    let patterns = [("evil", None), ("a.b", Some(2)), (if has_begin { "^ev+a" } else { "[^\\s\\S]" }, None)];
    let patterns = patterns.map(|(text, port)| (Regex::new(&format!("(?-u)(?:{text})\\z")).unwrap(), port));
    (1..=stream.len()).find_map(|end| {
        let found = patterns.iter().find(|(pattern, _)| pattern.is_match(&stream[..end]))?;
        Some((end, found.1))
    })
}

fn streams() -> impl Strategy<Value = Vec<u8>> {
    vec(prop::sample::select(b"evila\nb".to_vec()), 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    /// Any cut, with retransmissions and overlaps, gives the verdict of the whole.
    #[test]
    fn cuts_and_retransmissions_change_no_verdict(
        stream in streams(), first in any::<u32>(), has_begin in any::<bool>(), drops in any::<bool>(),
        cuts in vec((0usize..12, 1usize..16), 0..40),
    ) {
        let mut rig = Rig::new(&RULES, &[("gaps", if drops { "drop" } else { "pass" })]);
        if has_begin {
            prop_assert_eq!(rig.send(&tcp(true, first.wrapping_sub(1), SYN, b"")), Some(1));
        }
        let expected = expected(&stream, has_begin);
        let mut next = 0;
        for (back, len) in cuts.into_iter().chain([(0, stream.len())]) {
            let start = next - back.min(next);
            let end = (start + len).min(stream.len());
            next = next.max(end);
            let to = rig.send(&tcp(true, first.wrapping_add(start as u32), ACK, &stream[start..end]));
            let decided = expected.filter(|(end, _)| *end <= next);
            prop_assert_eq!(to, decided.map_or(Some(1), |(_, to)| to), "{}..{}", start, end);
            // The other direction has the same verdict, and a stream of its own.
            let to = rig.send(&tcp(false, 5, ACK, b"ev"));
            prop_assert_eq!(to, decided.map_or(Some(1), |(_, to)| to));
        }
    }

    /// With `gaps=drop`, a sender that repeats what was dropped cannot hide a match by any order.
    #[test]
    fn no_order_hides_a_match(
        stream in streams(), first in any::<u32>(), order in vec((any::<u16>(), 1usize..9), 80),
    ) {
        let mut rig = Rig::new(&RULES, &[("gaps", "drop")]);
        prop_assert_eq!(rig.send(&tcp(true, first.wrapping_sub(1), SYN, b"")), Some(1));
        let (mut at, mut segments) = (0, Vec::new());
        for (rank, len) in &order {
            let end = (at + len).min(stream.len());
            if at < end {
                segments.push((*rank, at..end));
            }
            at = end;
        }
        segments.sort_by_key(|(rank, _)| *rank);
        let expected = expected(&stream, true);
        let mut passed = 0;
        for _ in 0..=segments.len() {
            for (_, range) in &segments {
                let sent = tcp(true, first.wrapping_add(range.start as u32), ACK, &stream[range.clone()]);
                if rig.send(&sent) == Some(1) {
                    prop_assert!(range.start <= passed, "out of order");
                    passed = passed.max(range.end);
                }
            }
        }
        match expected {
            None => prop_assert_eq!(passed, stream.len()),
            Some((end, to)) => {
                prop_assert!(passed < end);
                prop_assert_eq!(rig.send(&tcp(false, 5, ACK, b"")), to);
            }
        }
    }

    /// Reordered segments are each scanned, and in-order ones behind a hole go on.
    #[test]
    fn holes_end_no_stream(before in 0usize..40, hole in 1usize..2000) {
        let mut rig = Rig::new(&RULES, &[]);
        let at = |offset: usize| 9_000u32.wrapping_add(offset as u32);
        prop_assert_eq!(rig.send(&tcp(true, at(0), ACK, &vec![b'.'; before])), Some(1));
        prop_assert_eq!(rig.send(&tcp(true, at(before + hole), ACK, b"..ev")), Some(1));
        let behind = before + hole + 4;
        // The hole is filled, in two steps; then the match ends behind it.
        prop_assert_eq!(rig.send(&tcp(true, at(before), ACK, &vec![b'.'; hole])), Some(1));
        prop_assert_eq!(rig.send(&tcp(true, at(behind), ACK, b"il")), None);
    }

    /// Damaged headers never panic, and a pattern in one piece is found wherever the payload is.
    #[test]
    fn hostile_headers_do_no_harm(
        changes in vec((0usize..60, any::<u8>()), 0..5), cut in 14usize..90, kind in 0..4,
    ) {
        let mut rig = Rig::new(&RULES, &[]);
        let mut frame = match kind {
            0 => tcp(true, 7, ACK, b"....evil...."),
            1 => udp(53, b"....evil...."),
            2 => ip4((1, 2), 6, 0x2001, b"....evil...."),
            _ => [&[2u8; 12][..], &[0x88, 0xb6], &tcp(true, 7, ACK, b"evil")].concat(),
        };
        for (at, value) in changes {
            if let Some(byte) = frame.get_mut(at) {
                *byte = value;
            }
        }
        frame.truncate(cut.max(14));
        rig.send(&frame);
    }
}

#[test]
fn long_packets_are_scanned_whole_and_delivered_as_scanned() {
    let mut rig = Rig::new(&RULES, &[]);
    let mut payload = vec![b'.'; 1400];
    assert_eq!(rig.send(&tcp(true, 100, ACK, &payload)), Some(1));
    payload[1396..].copy_from_slice(b"..ev");
    assert_eq!(rig.send(&tcp(true, 1500, ACK, &payload)), Some(1));
    payload[..4].copy_from_slice(b"il..");
    assert_eq!(rig.send(&tcp(true, 2900, ACK, &payload)), None);
    // The end of the private header, 128 bytes, is no end.
    for front in 60..90 {
        let mut rig = Rig::new(&RULES, &[]);
        let payload = [&vec![b'.'; front][..], b"evil", &[b'.'; 500]].concat();
        assert_eq!(rig.send(&tcp(true, 100, ACK, &payload)), None, "{front}");
    }
    assert_eq!(rig.counter("scanned_bytes"), 4200);
}

#[test]
fn datagrams_are_alone_and_ports_matter() {
    let mut rig = Rig::new(&["udp port 53 /^ab/ -> drop", "udp port 54 /ab/i -> port p2"], &[]);
    assert_eq!(rig.send(&udp(53, b"a")), Some(1));
    assert_eq!(rig.send(&udp(53, b"b")), Some(1));
    assert_eq!(rig.send(&udp(53, b"xab")), Some(1));
    assert_eq!(rig.send(&udp(54, b"xAB")), Some(2));
    assert_eq!(rig.send(&udp(54, b"x")), Some(2), "all of the flow");
    assert_eq!(rig.send(&udp(55, b"ab")), Some(1));
    assert_eq!(rig.send(&tcp(true, 1, ACK, b"ab")), Some(1));
    assert_eq!(rig.counter("uninspected"), 2);
    assert_eq!(rig.send(&udp(53, b"ab")), None);
    assert_eq!(rig.send(&udp(53, b"")), None);
    assert_eq!(rig.rules(), [["1", "1"], ["1", "1"]]);
}

#[test]
fn counting_goes_on() {
    let mut rig = Rig::new(&["/aa/ -> count", "/b/ -> drop"], &[]);
    assert_eq!(rig.send(&tcp(true, 1, ACK, b"aaa")), Some(1));
    assert_eq!(rig.send(&tcp(true, 1, ACK, b"aaa")), Some(1), "a retransmission");
    assert_eq!(rig.send(&tcp(false, 1, ACK, b"aa")), Some(1));
    assert_eq!(rig.send(&udp(1, b"aa")), Some(1));
    assert_eq!(rig.send(&tcp(true, 4, ACK, b"ab")), None);
    assert_eq!(rig.rules(), [["5", "2"], ["1", "1"]]);
    assert_eq!(rig.counter("retransmitted"), 1);
}

#[test]
fn other_bytes_under_old_numbers_are_scanned() {
    let mut rig = Rig::new(&RULES, &[]);
    assert_eq!(rig.send(&tcp(true, 1, ACK, b"........")), Some(1));
    assert_eq!(rig.send(&tcp(true, 1, ACK, b"..evil..")), None);
}

#[test]
fn later_fragments_share_a_verdict() {
    let mut rig = Rig::new(&["udp port 53 /evil/ -> drop", "udp /worse/ -> drop"], &[]);
    let head = |port: u16| [40_000, port, 99, 0].map(u16::to_be_bytes).concat();
    assert_eq!(rig.send(&ip4((1, 2), 17, 3, b"before the first")), Some(1));
    assert_eq!(rig.send(&ip4((1, 2), 17, 0x2000, &[&head(53)[..], b"evil"].concat())), None);
    assert_eq!(rig.send(&ip4((1, 2), 17, 3, b"behind")), None);
    assert_eq!(rig.send(&ip4((1, 3), 17, 3, b"evil, but of no port")), Some(1));
    assert_eq!(rig.send(&ip4((1, 3), 17, 3, b"worse")), None);
    assert_eq!(rig.send(&ip4((1, 3), 17, 3, b"behind")), None);
    assert_eq!(rig.send(&udp(53, b"of the flow")), None);
    assert_eq!(rig.counter("fragments"), 6);
}

#[test]
fn carriers_are_looked_into() {
    let mut rig = Rig::new(&RULES, &[]);
    let carrier = |seq, payload: &[u8]| [&[2; 12][..], &[0x88, 0xb6], &tcp(true, seq, ACK, payload)].concat();
    assert_eq!(rig.send(&carrier(1, b"ev")), Some(1));
    assert_eq!(rig.send(&carrier(3, b"il")), None);
}

#[test]
fn verdicts_pass_to_the_same_rules_only() {
    let mut rig = Rig::new(&RULES, &[]);
    assert_eq!(rig.send(&tcp(true, 1, ACK, b"evil")), None);
    let states = rig.logic.hand_over();
    let mut same = Rig::new(&RULES, &[("flows", "100")]);
    same.logic.take_over(&states);
    same.logic.take_over(&states);
    assert_eq!(same.send(&tcp(false, 1, ACK, b".")), None);
    let row = same.logic.tables().remove(1).rows.remove(0);
    assert_eq!(row[..6], ["0", "tcp", "10.0.0.1:40000", "10.0.0.2:80", "1", "drop"]);
    let mut other = Rig::new(&RULES[..4], &[]);
    other.logic.take_over(&states);
    assert_eq!(other.send(&tcp(false, 1, ACK, b".")), Some(1));
}

#[test]
fn a_full_table_evicts_and_counts() {
    let mut rig = Rig::new(&["/evil/ -> drop"], &[("flows", "8")]);
    for host in 1..=20 {
        let mut frame = tcp(true, 1, ACK, b".");
        frame[29] = host;
        assert_eq!(rig.send(&frame), Some(1));
    }
    assert_eq!(rig.counter("evicted"), 12);
    assert_eq!(rig.logic.table_sizes()[1].entries, 8);
}

#[test]
fn traces_explain_and_change_nothing() {
    let mut rig = Rig::new(&["tcp /evil/ -> drop", "/aa/ -> count"], &[]);
    let traced = |rig: &Rig, frame: &[u8]| {
        let traced = rig.bridge.trace(PortIndex(0), frame, Offload::NONE).unwrap();
        let said = traced.remarks.iter().map(|remark| remark.sentence(|port| format!("p{}", port.0)));
        // The fabric's own remark about the drop follows.
        said.filter(|said| !said.starts_with("dropped")).collect::<Vec<_>>()
    };
    assert_eq!(
        traced(&rig, &tcp(true, 1, ACK, b"an evil")),
        ["7 bytes are scanned", "rule 1, `tcp /evil/`, matches up to byte 7 of the payload: drop"]
    );
    assert_eq!(rig.send(&tcp(true, 1, ACK, b"aaev")), Some(1));
    assert_eq!(
        traced(&rig, &tcp(true, 5, ACK, b"il")),
        [
            "2 bytes are scanned where the stream was",
            "rule 1, `tcp /evil/`, matches up to byte 2 of the payload: drop"
        ]
    );
    let said = traced(&rig, &udp(1, b"aa"));
    assert!(
        said[1].contains("counts it") && said[2] == "no rule decides" && said[3].contains("p1"),
        "{said:?}"
    );
    assert_eq!(rig.rules(), [["0", "0"], ["1", "1"]]);
    assert_eq!(rig.send(&tcp(true, 5, ACK, b"il")), None);
    assert_eq!(
        traced(&rig, &tcp(false, 5, ACK, b"")),
        ["rule 1, `tcp /evil/`, has matched earlier in this flow: drop"]
    );
}

fn refused(given: &[(&str, &str)]) -> String {
    let given: Vec<_> = given.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    Inspect::new(&given).err().map_or_else(|| panic!("{given:?} was accepted"), |error| error.to_string())
}

#[test]
fn mistakes_name_the_rule_and_the_place() {
    let said = refused(&[("1", "/a/ -> drop"), ("2", "tcp /a(b/ -> drop")]);
    assert_eq!(said, "parameter `2` of logic `inspect`: unclosed group\n  tcp /a(b/ -> drop\n        ^");
    let said = refused(&[("1", "tcp /(?s)x.{20}y/ -> drop"), ("memory", "1")]);
    assert!(said.contains("parameter `1`") && said.contains("MiB") && said.ends_with("\n       ^"), "{said}");
    assert!(said.contains("raise `memory`"), "{said}");
    assert!(refused(&[("2", "/a/ -> drop")]).contains("the rule is missing"));
    assert!(refused(&[("x", "/a/ -> drop")]).contains("numbered from 1 to 128"));
    assert!(refused(&[("flows", "7")]).contains("from 8 to 1048576"));
    assert!(refused(&[("gaps", "hold")]).contains("`pass` or `drop`"));
}

#[test]
fn no_rule_leaves_all_packets() {
    let mut rig = Rig::new(&[], &[]);
    assert_eq!(rig.send(&tcp(true, 1, ACK, b"evil")), Some(1));
    assert_eq!(rig.counter("uninspected"), 1);
}

#[test]
fn files_add_rules() {
    let path = std::env::temp_dir().join(format!("mswitch-inspect-{}", std::process::id()));
    let file = path.to_str().unwrap();
    let lines: String = (0..3000).map(|number| format!("tcp /word{number}x/ -> drop\n")).collect();
    std::fs::write(&path, format!("# words\n\n{lines}")).unwrap();
    let mut rig = Rig::new(&["/aa/ -> count"], &[("file", file)]);
    assert_eq!(rig.send(&tcp(true, 1, ACK, b"word29")), Some(1));
    assert!(!rig.logic.is_outdated());
    assert_eq!(rig.send(&tcp(true, 7, ACK, b"99x")), None);
    assert_eq!(rig.logic.tables()[1].rows[0][4], "line 3002");
    std::fs::write(&path, "tcp /a/ -> drop\nudp /b/ -> dorp\n").unwrap();
    assert!(rig.logic.is_outdated());
    let said = refused(&[("file", file)]);
    assert!(said.contains(&format!("{file}:2: `dorp` is no action")), "{said}");
    std::fs::write(&path, b"ok\xff\n").unwrap();
    assert!(refused(&[("file", file)]).contains("line 1 is no UTF-8"));
    std::fs::remove_file(&path).unwrap();
    assert!(refused(&[("file", file)]).contains("No such file"));
    assert!(refused(&[("file", "/dev/zero")]).contains("no regular file"));
}
