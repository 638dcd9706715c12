//! Writes the hand-made seeds to `seeds/TARGET/`: inputs with high coverage by construction.
//!
//! Run `cargo run --example seeds` in this folder. The bytes follow the grammars of the targets: a change of a target's
//! grammar requires a change here. The minimised corpus of `cargo fuzz cmin` is in the same folders, named by hash.

use std::io;
use std::path::Path;

fn main() -> io::Result<()> {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
    for (target, name, bytes) in packet()
        .into_iter()
        .chain(forward())
        .chain(lists())
        .chain(learning())
        .chain(inspect())
        .chain(memif_control())
        .chain(memif_rings())
        .chain(virtqueue())
        .chain(vhost_user_messages())
        .chain(offload_headers())
        .chain(config())
        .chain(capture_file())
        .chain(lacp())
        .chain(oam())
        .chain(spanning_tree())
        .chain(reservation_requests())
    {
        let folder = seeds.join(target);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(name), bytes)?;
    }
    Ok(())
}

/// A bond by flow whose members hear a partner that agrees; then one of them hears another.
fn lacp() -> Vec<Seed> {
    let head = [0b0001_0011, 2, 1, 0, 2, 0, 3, 0];
    let link = |member: u8| [100, 0, member, 3, 1, member];
    let heard = |member: u8, system: u8| {
        let (actor, partner) = ([0, system, 1, 7, member, 0x3f], [0, 1, 0, 7, member, 0x3f]);
        [&[100, 0, member, 1][..], &actor, &partner].concat()
    };
    let events = [
        head.to_vec(),
        [link(0), link(1)].concat(),
        [heard(0, 2), heard(1, 2), heard(0, 2), heard(1, 3), heard(0, 2)].concat(),
    ];
    vec![("lacp", "partners", events.concat())]
}

/// Two systems that only let time pass.
fn oam() -> Vec<Seed> {
    vec![("oam", "time_passes", [0, 4, 0, 0, 7].repeat(60))]
}

/// A bridge of each protocol in turn between links that come up, and a minute.
fn spanning_tree() -> Vec<Seed> {
    let up = [[0, 0, 0, 2, 0, 0, 1], [0, 0, 1, 2, 1, 0, 1]].concat();
    let pass = [208, 7, 0, 7].repeat(40);
    let seed = |protocols: u8| [&[protocols][..], &up, &pass].concat();
    vec![
        ("spanning_tree", "stp", seed(0)),
        ("spanning_tree", "rstp", seed(3)),
        ("spanning_tree", "both", seed(1)),
    ]
}

/// A session with each request, and mistakes in each word.
fn reservation_requests() -> Vec<Seed> {
    let right = "mac\nreserve s1 tcp 192.0.2.1 80\nrelease s1 udp 2001:db8::1 8000-8999\n";
    let wrong =
        "reserve s1 icmp 192.0.2.1 80\nreserve s1 sctp ::ffff:127.0.0.1 80\nreserve s1 tcp fe80::1 9-8\n";
    let session = |piece: u8, text: &str| [&[piece], text.as_bytes()].concat();
    vec![
        ("reservation_requests", "right", session(255, right)),
        ("reservation_requests", "wrong", session(7, wrong)),
        ("reservation_requests", "long", session(99, &"x".repeat(300))),
    ]
}

/// Both formats with two frames each, one of them in both byte orders.
fn capture_file() -> Vec<Seed> {
    let words = |numbers: &[u32]| numbers.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>();
    let head = [0xa1b2_3c4d, 4 << 16 | 2, 0, 0, 65_535, 1];
    let frame = [1_700_000_000, 7, 16, 60, 1, 2, 3, 4];
    let classic = words(&[&head[..], &frame, &frame].concat());
    let section = [0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28];
    // Nanoseconds, and a time offset.
    let interface = [1, 44, 1, 0, 1 << 16 | 9, 9, 8 << 16 | 14, 5, 0, 0, 44];
    let enhanced = [6, 48, 0, 1, 2, 16, 60, 1, 2, 3, 4, 48];
    let simple = [3, 32, 16, 1, 2, 3, 4, 32];
    let ng = words(&[&section[..], &interface, &enhanced, &simple].concat());
    let version = 2 << 16 | 4;
    let head = [head[0], version, 0, 0, head[4], head[5]];
    let big = [&head[..], &frame, &frame].concat().into_iter().flat_map(u32::to_be_bytes).collect();
    vec![
        ("capture_file", "pcap", classic),
        ("capture_file", "pcap-big-endian", big),
        ("capture_file", "pcapng", [&ng[..], &ng].concat()),
    ]
}

type Seed = (&'static str, &'static str, Vec<u8>);

/// A frame in the grammar of `support::frame::read`: TCP or UDP to be segmented.
fn frame(shape: u8, tags: u8, gso_size: u16, payload: u16) -> Vec<u8> {
    let mut out = vec![2, shape, 0, 3, 0x99];
    out.extend([0xff, 0xff, 0xff, 0xf0, 0xff, 0xfe]);
    out.extend(gso_size.to_le_bytes());
    out.extend(payload.to_le_bytes());
    out.extend([1, 2, tags, 5]);
    out.push(0);
    out
}

const V6: u8 = 1;
const TCP: u8 = 2;
const CUT: u8 = 4;

fn shapes() -> [(&'static str, Vec<u8>); 6] {
    [
        ("tcp4", frame(TCP | CUT, 0, 1448, 3500)),
        ("tcp6-tagged", frame(TCP | CUT | V6, 1, 1428, 3500)),
        ("udp4-two-tags", frame(CUT, 2 | 0x10, 1000, 3900)),
        ("udp6", frame(CUT | V6, 0, 512, 3000)),
        ("tcp4-checksum-only", frame(TCP, 0, 0, 333)),
        ("largest", frame(TCP | CUT, 0, 1448, 65_450)),
    ]
}

fn packet() -> Vec<Seed> {
    let prefix = [192, 0, 5, 0, 1, 1, 66, 0, 0xa8, 5, 34, 0, 16, 0, 1, 0];
    shapes().into_iter().map(|(name, frame)| ("packet", name, [&prefix[..], &frame].concat())).collect()
}

fn forward() -> Vec<Seed> {
    // Three ports: one with all capabilities, one without any, and an access port of VLAN 5.
    let ports = [0x7f, 0, 0, 0x70, 0, 0, 0x71, 1 | 5 << 2, 50];
    let bridge = |logic: u8| [&[logic, 1, 64, 0xff, 0xff][..], &ports].concat();
    let mut all = Vec::new();
    for (name, frame) in shapes() {
        let batch = [&[0, 1][..], &frame, &frame].concat();
        let answer = [&[1, 0][..], &[1, 2, 1, 0, 0, 8, 0, 60, 0]].concat();
        all.push(("forward", name, [&bridge(2)[..], &batch, &answer, &batch].concat()));
    }
    all.push(("forward", "static", [&bridge(0)[..], &[0, 0], &frame(TCP | CUT, 0, 1448, 4000)].concat()));
    all
}

/// A bridge of four ports: two functions, one of them without offloads, a ring, and a queue of the switch.
fn lists() -> Vec<Seed> {
    let function = |shape: u8, refuses: [u8; 4]| [&[shape, 0, 0, 0, 0][..], &refuses].concat();
    let ring = |shape: u8, sizes: u8| vec![shape, 0, 6, 4, 0, sizes, 0, sizes, 5];
    let queue = vec![0x0f, 0, 3, 6, 0, 2, 0, 0, 0];
    let bridge =
        [&[2, 64][..], &function(0, [5, 9, 0, 0]), &function(15, [2, 0, 0, 0]), &ring(0, 0), &queue].concat();
    // Packets and their repetitions, the operations on them, and the number that leaves the queue.
    let batch = |at: u8, packets: &[(u8, u8, Vec<u8>)], operations: &[[u8; 4]], leave: u8| {
        let taken = packets.iter().flat_map(|(way, times, frame)| [&[*way, *times][..], frame].concat());
        let operations = [operations.concat(), vec![0; operations.len() * 4 % 2]].concat();
        let counts = [at, packets.len() as u8, 40].into_iter();
        counts
            .chain(taken)
            .chain([(operations.len() / 2) as u8])
            .chain(operations)
            .chain([leave])
            .collect::<Vec<_>>()
    };
    let plain = |len: u16| [&[1, 2, 1, 0, 0, 8, 0][..], &len.to_le_bytes()].concat();
    let tagged = vec![1, 2, 3, 1, 5, 8, 0, 60, 0];
    const STAGE: [u8; 4] = [0x7f, 0, 0, 0];
    let (send, range, all, flood, tag) = (0, 3, 6, 7, 13);
    let mixed = [
        (0, 4, plain(46)),
        (6, 2, plain(300)),
        (0, 4, plain(1500)),
        (1, 1, frame(TCP | CUT, 0, 1448, 3500)),
        (0, 2, tagged),
    ];
    let runs = [
        [range, 0, 1, 5],
        [range, 5, 1, 3],
        [flood, 8, 0, 0],
        [send, 9, 1, 0],
        [tag, 9, 5, 0],
        [send, 0x8f, 1, 0],
        [range, 10, 2, 9],
        [10, 12, 0, 0],
        [range, 10, 3, 9],
        [15, 18, 0, 0],
        [all, 0, 2, 0],
        [flood, 16, 0, 0],
    ];
    let stages = [
        [range, 4, 1, 3],
        STAGE,
        [flood, 0, 0, 0],
        [send, 9, 1, 0],
        STAGE,
        [all, 0, 1, 0],
        STAGE,
        STAGE,
        [send, 3, 1, 0],
    ];
    // One longer than the maximum with its tag; one segmented when its slot is full, including tags in front.
    let long = [(1, 0, frame(TCP | CUT, 0, 1448, 65_466))];
    let encapsulated = [vec![[tag, 0, 5, 0]; 2], vec![[16, 0, 200, 0], [send, 0, 0, 0]]].concat();
    let scripts = [
        ("runs", batch(1, &mixed, &runs, 3)),
        ("stages", batch(0, &mixed, &stages, 0)),
        ("longer-than-a-packet", batch(0, &long, &[[tag, 0, 5, 0], [send, 0, 3, 0]], 0)),
        (
            "header-as-long-as-its-slot",
            batch(1, &[(1, 0, frame(TCP | CUT, 0, 1448, 3500))], &encapsulated, 0),
        ),
        ("originated", [&[0, 0xf0, 9][..], &[6, 20, 0, 9, 9, 1, 2, 3, 4, 5, 6, 7, 8], &[0]].concat()),
    ];
    scripts
        .into_iter()
        .map(|(name, batch)| ("lists", name, [&bridge[..], &batch, &batch, &batch].concat()))
        .collect()
}

/// Four ports of each kind. Stations send, move within a batch, and are destinations of runs, with tags and too short
/// for one.
fn learning() -> Vec<Seed> {
    let bridge = |shapes: u8, held: u8| vec![2, shapes, held];
    // Destination and source, tag, length, repetitions.
    let [hello, answer, moved] = [[0x1f, 0, 6, 0], [0x21, 0, 6, 3], [0x12, 0, 6, 3]];
    let batch = |at: u8, runs: &[[u8; 4]]| [&[at, runs.len() as u8][..], &runs.concat()].concat();
    let talk = [
        batch(0, &[hello]),
        batch(1, &[answer, answer, moved, answer]),
        batch(2, &[moved, answer, [0x2f, 0, 6, 1], moved]),
    ];
    let tags = [0x04, 0x44, 0x0c, 0x3c, 2, 3].map(|tag| [0x21, tag, 4, 2]);
    let short = [0, 1, 2, 3, 4, 5].map(|len| [0x21, 4, len, 1]);
    let groups = [0x1d, 0x1f, 0x1c, 0xf1, 0xc1].map(|stations| [stations, 0, 7, 1]);
    let back = batch(1, &[[0x12, 0, 6, 0], [0x12, 4, 6, 0], [0x12, 0x44, 6, 0]]);
    vec![
        ("learning", "stations-move", [bridge(0, 0), talk.concat()].concat()),
        ("learning", "some-are-held", [bridge(0b01_00_00_00, 0x24), talk.concat()].concat()),
        ("learning", "tags", [bridge(0, 0), back.clone(), batch(0, &tags), batch(2, &tags)].concat()),
        (
            "learning",
            "too-short-for-a-tag",
            [bridge(0, 0), back, batch(0, &short), batch(2, &short)].concat(),
        ),
        ("learning", "groups", [bridge(0b11_10_00_00, 0), batch(0, &groups), batch(3, &groups)].concat()),
    ]
}

/// Packets: kind, shape, sequence number, damage, length, letters.
fn inspect() -> Vec<Seed> {
    let evil = [0, 1, 2, 3];
    let packet = |head: [u8; 4], letters: &[u8]| [&[0][..], &head, &[letters.len() as u8], letters].concat();
    let segment = |shape: u8, seq: u8, letters: &[u8]| packet([0, shape, seq, 0], letters);
    let streams = [
        packet([2 << 3, 0x1c, 0, 0], &[]),
        segment(0x1c, 1, &evil[..2]),
        segment(0x1c, 4, &[4, 4]),
        segment(0x1c, 1, &evil[..3]),
        segment(0x1c, 4, &evil[3..]),
        segment(0x1d, 9, &[4]),
    ];
    let shapes: Vec<_> = (0..32).map(|shape| segment(shape << 2, 1, &evil)).collect();
    let fragments = [6, 7, 7].map(|kind| packet([kind, 0x1c, 1, 0], &evil));
    let damaged: Vec<_> =
        (0..8).map(|kind| [packet([kind, 4, 1, 0xe1], &evil), vec![kind * 5, 9, 50]].concat()).collect();
    vec![
        ("inspect", "a-split-pattern", [&[0, 1][..], &streams.concat()].concat()),
        ("inspect", "gaps-are-dropped", [&[1, 1][..], &streams.concat()].concat()),
        ("inspect", "tags-carriers-lengths", [&[0, 0][..], &shapes.concat()].concat()),
        ("inspect", "fragments", [&[0, 0][..], &fragments.concat()].concat()),
        ("inspect", "damaged", [&[0, 0][..], &damaged.concat()].concat()),
    ]
}

fn memif_control() -> Vec<Seed> {
    // Each message: kind, variant, its fields; then the descriptor and whether to truncate.
    let init = [5, 0, 0, 0];
    let secret = [5, 1, 0, 0];
    let region = [6, 3, 0, 0];
    let s2m = [9, 0, 4, 0, 0, 0, 0];
    let m2s = [9, 1, 4, 0, 8, 0, 0];
    let connect = [14, 0, b'e', b't', b'h', b'0', 0, 0, 0, 0];
    let session = |parts: &[&[u8]]| [&[1, 0x7e, 4][..], &parts.concat()].concat();
    let server = [("ack", 0x1f_u8), ("many", 0x3f)];
    let mut all = vec![
        ("memif_control", "correct", session(&[&init, &region, &s2m, &m2s, &connect])),
        ("memif_control", "secret-two-regions", session(&[&secret, &region, &region, &m2s, &connect])),
        ("memif_control", "no-rings", session(&[&init, &region, &connect])),
        (
            "memif_control",
            "truncated",
            session(&[&init, &[6, 3, 170, 0], &[9, 0, 4, 0, 0, 0, 0xa5, 0, 0], &connect]),
        ),
    ];
    for (name, acks) in server {
        let hello = [4, 4, 0, 3, 3, 14];
        let fields = [0, 0, 0, 0, 0, 2, 0, 2, 0, 10, 0, 8, 0, 0, 0];
        let out = [&fields[..], &hello, &vec![4; usize::from(acks % 12)], &[1, b'v', b'm']].concat();
        all.push(("memif_control", name, out));
    }
    all
}

fn memif_rings() -> Vec<Seed> {
    let b = |op: u8| op | 0x80;
    let bounds = [0, 64, 0xff, 0xff];
    let server = |log2: u8, start: u16| [&[0, log2 - 1, 0][..], &start.to_le_bytes()].concat();
    let client = |log2: u8| vec![1, log2 - 1, 60, 0, 0];
    let push = |op: u8, length: u16| [&[op, 0, 7, 0][..], &length.to_le_bytes()].concat();
    let chain = |op: u8| [&[op, 2][..], &[0, 0, 100, 0], &[50, 0, 44, 1], &[9, 1, 90, 0]].concat();
    let give = |op: u8, n: u8| vec![op, n, 200];
    let traffic = [
        give(3, 32),
        give(b(3), 32),
        push(0, 60),
        push(0, 1500),
        chain(0),
        push(b(0), 64),
        vec![5, b(5)],
        give(3, 32),
        give(b(3), 32),
        chain(b(0)),
        vec![9, 1, 60, 0, 200, 1],
        vec![5, b(5), 12, 1, 5],
        give(3, 32),
        give(b(3), 32),
    ]
    .concat();
    let world = |a: &[u8], c: &[u8], ops: &[u8]| [&bounds, a, c, ops].concat();
    // B posts four buffers and withdraws two while they are in use (`after` counts the moments).
    let backwards =
        [give(b(3), 4), (0..6).flat_map(|_| push(0, 60)).collect(), vec![b(10), 5, 1, 0x41, 0xfe], vec![5]]
            .concat();
    // Other workers deliver during a delivery.
    let nested = [
        give(b(3), 32),
        chain(0),
        chain(0),
        vec![b(10), 0, 0, 3, 60, 0, 61, 0, 62, 0, 63, 0, 5],
        give(b(3), 9),
    ]
    .concat();
    let edits = [&[7, 64, 0xff, 0xff][..], &server(5, 0), &server(5, 0), &traffic].concat();
    vec![
        ("memif_rings", "server-server", world(&server(5, 0), &server(5, 0), &traffic)),
        ("memif_rings", "client-server", world(&client(5), &server(5, 0), &traffic)),
        ("memif_rings", "client-client", world(&client(4), &client(6), &traffic)),
        ("memif_rings", "wrap", world(&server(3, 0xfffc), &server(2, 0xfffe), &traffic)),
        ("memif_rings", "edits", edits),
        ("memif_rings", "head-goes-back", world(&server(5, 0), &server(3, 0), &backwards)),
        ("memif_rings", "two-workers", world(&server(5, 0), &server(5, 0), &nested)),
    ]
}

fn virtqueue() -> Vec<Seed> {
    let offer = |readable: u8, writable: u8, table: bool, last: bool| {
        let shape = readable | writable << 2 | u8::from(table) << 4 | u8::from(last) << 5;
        let buffers = (0..readable + writable).flat_map(|i| [i, 0x17, 200]);
        [0, shape].into_iter().chain(buffers).chain([0, 0x2a]).collect::<Vec<_>>()
    };
    let round = |table: bool| {
        let done = [[5, 5, 5, 8, 100, 0, 8, 0, 0], [8, 0, 0, 9, 10, 1, 10, 0, 5]].concat();
        [offer(2, 0, table, false), offer(1, 2, table, true), offer(0, 3, table, true), done].concat()
    };
    let queue = |bits: u8, size: u8, start: u16, table: bool| {
        [&[bits, size][..], &start.to_le_bytes(), &round(table).repeat(6)].concat()
    };
    vec![
        ("virtqueue_split", "correct", queue(0, 3, 0xfffc, false)),
        ("virtqueue_split", "tables", queue(2 | 4, 4, 0, true)),
        ("virtqueue_split", "loop", [&[0, 2, 0, 0][..], &[250, 0, 1, 250, 1, 0, 240, 0, 1, 0, 5]].concat()),
        ("virtqueue_split", "jump", [&[0, 2, 0, 0][..], &[240, 0, 0x88, 0x88, 5, 247]].concat()),
        ("virtqueue_split", "anywhere", vec![0x10, 3, 0, 0, 8, 0, 9, 0, 0, 0, 0, 1, 0, 2, 4, 3, 0, 0]),
        ("virtqueue_packed", "correct", queue(1 | 2, 10, 0x8000, false)),
        ("virtqueue_packed", "tables-in-order", queue(1 | 2 | 4 | 8, 6, 3, true)),
        ("virtqueue_packed", "loop", [&[1, 1, 0, 0x80][..], &[250, 0, 1, 1, 250, 1, 0, 1, 5]].concat()),
        ("virtqueue_packed", "anywhere", vec![0x11, 3, 0, 0, 8, 0, 9, 0x80, 9, 0x80, 0, 1, 0, 2, 4, 3, 0, 0]),
    ]
}

/// Messages in the grammar of the target: kind, fields, then the descriptors.
fn vhost_user_messages() -> Vec<Seed> {
    let features = [2, 0];
    let table = [4, 2, 0, 0, 0, 0];
    let ring = |ring: u8| {
        [[8, ring, 5, 0].as_slice(), &[9, ring, 0], &[10, ring, 0, 0, 0], &[11, ring, 0, 0]].concat()
    };
    let call = |ring: u8| vec![12, ring, 0, 0];
    let enable = |ring: u8| vec![14, ring, 1];
    let run = [20, 0xff];
    let start = |packed: u8| {
        let rings = [ring(0), ring(1), call(0), call(1), enable(0), enable(1)].concat();
        [&[1, packed, 1, 3][..], &features, &table, &rings, &run].concat()
    };
    let change =
        [&[15, 1, 0][..], &[5, 3, 0, 0, 0], &[6, 3], &[16, 5, 0], &[17, 1], &run, &[14, 0, 0]].concat();
    let stream = [&[0, 40][..], &[1, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0], &[2, 0, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0]];
    vec![
        ("vhost_user_messages", "split", [start(0), change.clone()].concat()),
        ("vhost_user_messages", "packed", [start(1), change].concat()),
        ("vhost_user_messages", "stream", [stream.concat(), vec![7; 8]].concat()),
    ]
}

/// The frame's own header unchanged, then frames for three kinds of receivers.
fn offload_headers() -> Vec<Seed> {
    let mut all = Vec::new();
    for (name, frame) in shapes() {
        for (kind, receiver) in [("plain", [0, 0]), ("all", [15, 0]), ("sums", [1, 47])] {
            let name: &'static str = Box::leak(format!("{name}-{kind}").into_boxed_str());
            all.push(("offload_headers", name, [&receiver[..], &frame, &[0]].concat()));
        }
    }
    // Segments without bytes, offsets behind the packet, an unknown type.
    let invalid = [("size-zero", [6, 0xa8, 7, 5]), ("beyond", [8, 0xff, 9, 0xff]), ("type", [1, 2, 1, 0])];
    for (name, [at, with, at2, with2]) in invalid {
        let edits = [2, at, with, at2, with2];
        all.push(("offload_headers", name, [&[0, 0][..], &frame(TCP | CUT, 0, 1448, 3500), &edits].concat()));
    }
    all
}

fn config() -> Vec<Seed> {
    let text = |text: &str| [b"\0", text.as_bytes()].concat();
    vec![
        ("config", "example", text(EXAMPLE)),
        ("config", "mistakes", text(MISTAKES)),
        ("config", "broken", text("[[bridge]\nname = \"br0\n= 5\n")),
        ("config", "pieces", vec![1, 0, 2, 5, 7, 9, 16, 17, 19, 4, 28, 16, 18, 20, 40]),
        ("config", "vlan", b"\0trunk:10,20-29,native:1".to_vec()),
        ("config", "cpus", b"\x000-65535".to_vec()),
    ]
}

const EXAMPLE: &str = r#"[daemon]
workers = "0"
poll = false
socket = "/tmp/mswitch.sock"

[[bridge]]
name = "br0"
logic = "learning"
params = { ageing = 60 }

[[bridge.port]]
name = "vm1"
type = "memif"
socket = "/tmp/memif.sock"
id = 1
secret = "hush"
mtu = 9000
vlan = "trunk:10,20-29,native:1"

[[bridge.port]]
name = "host"
type = "tap"
admin = "down"
mtu = 1500
mac = "02:00:00:00:00:01"
addresses = ["10.0.0.1/24"]
vlan = "access:10"
"#;

const MISTAKES: &str = r#"[daemon]
worker = "0"
[[bridge]]
name = "br 0"
logic = "lerning"
[[bridge.port]]
name = "ä"
type = "memfi"
[[bridge.port]]
name = "p"
type = "memif"
socket = "/no/such/dir/a.sock"
id = "seven"
mtu = 3
vlan = "access:5000"
"#;
