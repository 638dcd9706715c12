//! The daemon's filter interpreter against libpcap's, on programs from libpcap's compiler and on others.

use libpcap::reference::Reference;
use packet::bpf::{Instruction, Program};
use proptest::prelude::*;

use super::*;

/// Common filters, and filters that make libpcap emit every kind of instruction.
const FILTERS: &[&str] = &[
    "arp",
    "ip",
    "ip6",
    "tcp",
    "udp",
    "icmp",
    "icmp6",
    "tcp port 80",
    "udp port 53",
    "port 80 or port 53",
    "src port 1024",
    "dst portrange 50-100",
    "host 10.0.0.1",
    "src host 10.0.0.2 and tcp",
    "net 10.0.0.0/30",
    "not net 10.0.0.0/8",
    "ip6 host fd00::1",
    "ip6 net fd00::/126 and udp",
    "ether host 02:00:00:00:00:01",
    "ether src 02:00:00:00:00:02 and not ip",
    "ether broadcast",
    "ether multicast",
    "ip multicast",
    "vlan",
    "vlan 7",
    "vlan 7 and tcp port 80",
    "vlan and vlan 8 and ip",
    "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
    "tcp[13] = 2 and ip[8] > 10",
    "ip[6:2] & 0x1fff != 0",
    "ip[0] & 0xf > 5",
    "icmp[icmptype] = icmp-echo",
    "greater 100",
    "less 64",
    "len > 70 and len - 14 < 200",
    "ether[12:2] = 0x0800 and ether[0] & 1 = 0",
    "ip proto 17 or ip6 proto 6",
    "ip6[6] = 17 and ip6[40:2] = 53",
    "(len * 3 + 1) / 2 & 7 = 1 or len ^ 60 = 2",
    "tcp[((tcp[12] & 0xf0) >> 2):4] = 0x47455420",
    "ip[2:2] << 2 > 400 and -1 != ip[1]",
    "ether[14:4] ^ 0x45000000 < 0x10000",
    "arp[6:2] = 1 and arp host 10.0.0.1",
    "ether proto 0x88cc or ip proto 6",
];

/// Compiles a filter for libpcap's interpreter and for ours.
fn both(filter: &str) -> (Reference, Program) {
    pair(&libpcap::compile(filter).unwrap_or_else(|error| panic!("{filter}: {error:?}")))
}

fn pair(code: &[Instruction]) -> (Reference, Program) {
    (Reference::new(code).unwrap(), Program::new(code).unwrap())
}

/// One of a few values, so that filters match some packets and miss others.
fn one_of(choices: &'static [u16]) -> BoxedStrategy<u16> {
    prop_oneof![4 => proptest::sample::select(choices), 1 => any::<u16>()].boxed()
}

fn mac() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => (1u8..4).prop_map(|last| vec![2, 0, 0, 0, 0, last]),
        1 => Just(vec![0xff; 6]),
        1 => Just(vec![1, 0, 0x5e, 0, 0, 1]),
    ]
}

fn tags() -> impl Strategy<Value = Vec<u8>> {
    let tag = (prop_oneof![Just(0x8100u16), Just(0x88a8), Just(0x9100)], one_of(&[7, 8, 0x2007]));
    let tag = tag.prop_map(|(tpid, tci)| [tpid.to_be_bytes(), tci.to_be_bytes()].concat()).boxed();
    prop_oneof![3 => Just(0usize..1), 1 => Just(1..3)]
        .prop_flat_map(move |count| proptest::collection::vec(tag.clone(), count))
        .prop_map(|tags| tags.concat())
}

fn transport() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let ports = (one_of(&[80, 53, 1024]), one_of(&[80, 53, 77]));
    let payload = proptest::collection::vec(any::<u8>(), 0..120);
    // A SYN alone is common enough to match its filter.
    let flags = prop_oneof![1 => Just(2u8), 3 => any::<u8>()];
    let tcp = (ports.clone(), any::<u32>(), 5u8..9, flags, payload.clone(), any::<bool>()).prop_map(
        |((from, to), sequence, words, flags, mut payload, get)| {
            let mut bytes = [from.to_be_bytes(), to.to_be_bytes()].concat();
            bytes.extend(sequence.to_be_bytes());
            bytes.extend([0, 0, 0, 0, words << 4, flags & 0x3f, 1, 0, 0, 0, 0, 0]);
            bytes.resize(usize::from(words) * 4, 1);
            if get {
                payload.splice(0..0, *b"GET ");
            }
            (6, [bytes, payload].concat())
        },
    );
    let udp = (ports, payload.clone()).prop_map(|((from, to), payload)| {
        let mut bytes = [from.to_be_bytes(), to.to_be_bytes()].concat();
        bytes.extend((8 + payload.len() as u16).to_be_bytes());
        (17, [bytes, vec![0, 0], payload].concat())
    });
    let icmp = (prop_oneof![Just(8u8), any::<u8>()], payload.clone(), any::<bool>())
        .prop_map(|(kind, payload, v6)| (if v6 { 58 } else { 1 }, [vec![kind, 0, 0, 0], payload].concat()));
    prop_oneof![3 => tcp, 3 => udp, 2 => icmp, 1 => (any::<u8>(), payload)]
}

fn ipv4() -> impl Strategy<Value = Vec<u8>> {
    let fragment = prop_oneof![4 => Just(0x4000u16), 1 => Just(0x2000), 1 => Just(0x2010), 1 => Just(5)];
    (5u8..8, fragment, 1u8..5, 1u8..5, any::<bool>(), transport()).prop_map(
        |(words, fragment, from, to, far, (protocol, payload))| {
            let header = usize::from(words) * 4;
            let mut bytes = vec![0x40 | words, 0];
            bytes.extend(((header + payload.len()) as u16).to_be_bytes());
            bytes.extend([0, 9]);
            bytes.extend(fragment.to_be_bytes());
            bytes.extend([64, protocol, 0, 0, 10, 0, 0, from, if far { 225 } else { 10 }, 0, 0, to]);
            bytes.resize(header, 1);
            [vec![8, 0], bytes, payload].concat()
        },
    )
}

fn ipv6() -> impl Strategy<Value = Vec<u8>> {
    (1u8..5, 1u8..5, any::<bool>(), transport()).prop_map(|(from, to, fragment, (protocol, payload))| {
        let payload =
            if fragment { [vec![protocol, 0, 0, 8, 0, 0, 0, 1], payload].concat() } else { payload };
        let next = if fragment { 44 } else { protocol };
        let mut bytes = vec![0x86, 0xdd, 0x60, 0, 0, 0];
        bytes.extend((payload.len() as u16).to_be_bytes());
        bytes.extend([next, 64]);
        for last in [from, to] {
            bytes.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
        }
        [bytes, payload].concat()
    })
}

fn arp() -> impl Strategy<Value = Vec<u8>> {
    (1u8..4, 1u8..4).prop_map(|(from, to)| {
        let mut bytes = vec![8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, from, 10, 0, 0, from];
        bytes.extend([0, 0, 0, 0, 0, 0, 10, 0, 0, to]);
        bytes
    })
}

/// An Ethernet frame, maybe tagged, with ARP, IP or random bytes; maybe truncated.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let noise = (any::<u16>(), proptest::collection::vec(any::<u8>(), 0..80))
        .prop_map(|(kind, rest)| [kind.to_be_bytes().to_vec(), rest].concat());
    let rest = prop_oneof![1 => arp(), 4 => ipv4(), 3 => ipv6(), 1 => noise];
    let cut = prop_oneof![3 => Just(usize::MAX), 1 => 14usize..90];
    (mac(), mac(), tags(), rest, cut).prop_map(|(to, from, tags, rest, cut)| {
        let mut frame = [to, from, tags, rest].concat();
        frame.truncate(cut);
        frame
    })
}

#[test]
fn the_daemon_keeps_what_libpcap_keeps() {
    let filters: Vec<_> = FILTERS.iter().map(|filter| (*filter, both(filter))).collect();
    let (kept, frames) = (std::cell::RefCell::new(vec![0u32; filters.len()]), std::cell::Cell::new(0));
    let config = ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let result = runner.run(&(frame(), 0usize..200), |(frame, at_hand)| {
        frames.set(frames.get() + 1);
        let len = frame.len() as u32;
        for (i, (filter, (theirs, ours))) in filters.iter().enumerate() {
            let expected = theirs.run(&frame, len) != 0;
            prop_assert_eq!(ours.keeps(&frame, len), Ok(expected), "{}", filter);
            // A verdict on the first bytes alone is the same.
            if let Ok(early) = ours.keeps(&frame[..at_hand.min(frame.len())], len) {
                prop_assert_eq!(early, expected, "{} with {} bytes", filter, at_hand);
            }
            kept.borrow_mut()[i] += u32::from(expected);
        }
        Ok(())
    });
    result.unwrap();
    // A filter that never or always matches tests nothing.
    for (filter, kept) in FILTERS.iter().zip(kept.into_inner()) {
        assert!(kept > 0 && kept < frames.get(), "`{filter}` kept {kept} of {}", frames.get());
    }
}

/// Valid instructions with plausible operands, and jumps of at most `left`.
fn plausible(left: u8) -> impl Strategy<Value = Instruction> {
    let codes = [
        0x00, 0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0x60, 0x80, 0x01, 0x61, 0x81, 0xb1, 0x02, 0x03, 0x04, 0x0c,
        0x14, 0x1c, 0x24, 0x2c, 0x34, 0x3c, 0x44, 0x4c, 0x54, 0x5c, 0x64, 0x6c, 0x74, 0x7c, 0x84, 0x94, 0x9c,
        0xa4, 0xac, 0x05, 0x15, 0x1d, 0x25, 0x2d, 0x35, 0x3d, 0x45, 0x4d, 0x06, 0x16, 0x07, 0x87,
    ];
    (proptest::sample::select(codes.to_vec()), 0..=left, 0..=left, 1u32..16).prop_map(
        move |(code, jt, jf, k)| {
            let k = if code == 0x05 { k.min(left.into()) } else { k };
            Instruction { code, jt, jf, k }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Programs that no compiler emits run as on libpcap's interpreter.
    #[test]
    fn other_code_gives_the_same_verdict(
        code in (1u8..30).prop_flat_map(|n| (0..n).rev().map(plausible).collect::<Vec<_>>()),
        bytes in proptest::collection::vec(any::<u8>(), 1..60),
        longer in 0u32..50,
    ) {
        // libpcap does not clear its scratch memory.
        let store = (0..16).map(|k| Instruction { code: 0x02, jt: 0, jf: 0, k });
        let end = Instruction { code: 0x16, jt: 0, jf: 0, k: 0 };
        let code: Vec<_> = store.chain(code).chain([end]).collect();
        let ((theirs, ours), len) = (pair(&code), bytes.len() as u32);
        prop_assert_eq!(ours.run(&bytes, len), Ok(theirs.run(&bytes, len)));
        if let Ok(verdict) = ours.run(&bytes, len + longer) {
            prop_assert_eq!(verdict, theirs.run(&bytes, len + longer));
        }
    }
}

#[test]
fn mistakes_are_reported_as_libpcap_words_them() {
    let error = compile("tcp prot 80").unwrap_err().to_string();
    assert!(error.contains("--filter `tcp prot 80`: ") && error.contains("syntax error"), "{error}");
    assert!(error.ends_with("`man 7 pcap-filter` describes the language"), "{error}");
    assert!(compile("a\0b").unwrap_err().to_string().contains("zero byte"));
    assert!(compile("ip broadcast").unwrap_err().to_string().contains("netmask not known"));
    assert!(!compile("").unwrap().is_empty(), "an empty filter keeps every packet");
}
