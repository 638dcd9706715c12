//! Files of both formats: valid, cut short at every byte, and changed at random.

use super::*;

/// A frame to write, and its bytes.
type Written = (Frame, Vec<u8>);

fn frames() -> Vec<Written> {
    [60u32, 14, 1514, 0, 13, 65_535]
        .iter()
        .enumerate()
        .map(|(i, &len)| {
            let data: Vec<u8> = (0..len).map(|n| (n as usize * 7 + i) as u8).collect();
            let at = Some(1_700_000_000_123_456_000 + i as u64 * 1_000);
            (Frame { at, len, original: len + i as u32 }, data)
        })
        .collect()
}

fn u32_of(order: Order, number: u32) -> [u8; 4] {
    if order == Order::Little { number.to_le_bytes() } else { number.to_be_bytes() }
}

fn u16_of(order: Order, number: u16) -> [u8; 2] {
    if order == Order::Little { number.to_le_bytes() } else { number.to_be_bytes() }
}

fn classic(order: Order, nano: bool, link_type: u32, frames: &[Written]) -> Vec<u8> {
    let mut file = u32_of(order, if nano { 0xa1b2_3c4d } else { 0xa1b2_c3d4 }).to_vec();
    file.extend([u16_of(order, 2), u16_of(order, 4)].concat());
    file.extend([0, 0, 262_144, link_type].map(|n| u32_of(order, n)).concat());
    for (frame, data) in frames {
        let (at, unit) = (frame.at.unwrap(), if nano { 1 } else { 1000 });
        let fields =
            [(at / 1_000_000_000) as u32, (at % 1_000_000_000 / unit) as u32, frame.len, frame.original];
        file.extend(fields.map(|n| u32_of(order, n)).concat());
        file.extend(data);
    }
    file
}

/// Makes a block with its framing.
fn block(order: Order, kind: u32, body: &[u8]) -> Vec<u8> {
    let padded = body.len().next_multiple_of(4);
    let total = u32_of(order, padded as u32 + 12);
    let padding = vec![0; padded - body.len()];
    [&u32_of(order, kind), &total, body, &padding, &total].concat()
}

fn section(order: Order) -> Vec<u8> {
    let body = [&u32_of(order, 0x1a2b_3c4d)[..], &u16_of(order, 1), &[0, 0], &[0xff; 8]].concat();
    block(order, 0x0a0d_0d0a, &body)
}

fn interface(order: Order, link_type: u16, snaplen: u32, options: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut body = [&u16_of(order, link_type)[..], &[0, 0], &u32_of(order, snaplen)].concat();
    for (code, value) in options {
        body.extend([u16_of(order, *code), u16_of(order, value.len() as u16)].concat());
        body.extend(value);
        body.resize(body.len().next_multiple_of(4), 0);
    }
    block(order, 1, &body)
}

fn enhanced(order: Order, interface: u32, time: u64, frame: &Frame, data: &[u8]) -> Vec<u8> {
    let fields = [interface, (time >> 32) as u32, time as u32, frame.len, frame.original];
    let mut body = fields.map(|n| u32_of(order, n)).concat();
    body.extend(data);
    body.resize(body.len().next_multiple_of(4), 0);
    // A comment after the frame.
    body.extend([&u16_of(order, 1)[..], &u16_of(order, 3), b"abc\0", &[0; 4]].concat());
    block(order, 6, &body)
}

/// Makes two sections of different byte order with interfaces of different units each, and blocks without frames.
fn ng(frames: &[Written]) -> Vec<u8> {
    let mut file = Vec::new();
    for (order, half) in
        [(Order::Big, &frames[..frames.len() / 2]), (Order::Little, &frames[frames.len() / 2..])]
    {
        file.extend(section(order));
        file.extend(interface(order, 113, 0, &[]));
        file.extend(interface(order, 1, 0, &[(2, b"eth0".to_vec()), (0, Vec::new())]));
        file.extend(block(order, 0x8000_0001, &[9; 40]));
        let offset = if order == Order::Big { (-7i64).to_be_bytes() } else { (-7i64).to_le_bytes() };
        file.extend(interface(order, 1, 0, &[(9, vec![9]), (14, offset.to_vec())]));
        for (i, (frame, data)) in half.iter().enumerate() {
            let at = frame.at.unwrap();
            file.extend(match i % 2 {
                0 => enhanced(order, 1, at / 1000, frame, data),
                _ => enhanced(order, 2, at + 7_000_000_000, frame, data),
            });
        }
        file.extend(block(order, 5, &[0; 12]));
    }
    file
}

/// Reads all frames of a file, and the error at its end.
fn read(file: &[u8]) -> (Vec<Written>, Option<ReadError>) {
    let mut reader = match Reader::new(file) {
        Ok(reader) => reader,
        Err(broken) => return (Vec::new(), Some(broken)),
    };
    let (mut found, mut data) = (Vec::new(), Vec::new());
    loop {
        match reader.next(&mut data) {
            Ok(Some(frame)) => found.push((frame, data.clone())),
            Ok(None) => return (found, None),
            Err(broken) => return (found, Some(broken)),
        }
    }
}

fn all_forms(frames: &[Written]) -> Vec<Vec<u8>> {
    let orders = [Order::Little, Order::Big];
    let classics = orders.iter().flat_map(|order| [true, false].map(|nano| classic(*order, nano, 1, frames)));
    classics.chain([ng(frames)]).collect()
}

#[test]
fn both_formats_in_both_orders_and_all_units_hold_the_same_frames() {
    for file in all_forms(&frames()) {
        let (found, broken) = read(&file);
        assert_eq!(broken, None);
        assert!(found == frames(), "begins {:02x?}", &file[..4]);
    }
}

#[test]
fn a_file_cut_short_anywhere_ends_with_an_error_or_between_frames() {
    let some: Vec<_> = frames().into_iter().take(5).collect();
    for file in all_forms(&some) {
        let mut whole = 0;
        for len in 0..file.len() {
            let (found, broken) = read(&file[..len]);
            assert!(found == some[..found.len()], "cut at {len}");
            match broken {
                None => whole += 1,
                Some(broken) => {
                    let text = broken.to_string();
                    assert!(text.contains("the file ends in the middle of "), "{text}");
                    assert_eq!(broken.frame, found.len() as u64 + 1, "{text}");
                    assert!(broken.offset <= len as u64, "{text}");
                }
            }
        }
        // The file might end validly after each frame or block.
        assert!((5..=16).contains(&whole), "{whole}");
    }
}

#[test]
fn no_content_causes_a_panic() {
    let mut rng = fastrand::Rng::with_seed(7);
    let some: Vec<_> = frames().into_iter().take(5).collect();
    let files = all_forms(&some);
    let mut broken = 0;
    for _ in 0..20_000 {
        let mut file = files[rng.usize(..files.len())].clone();
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(..file.len());
            file[at] = [0, 0xff, rng.u8(..), file[at] ^ 1 << rng.u32(..8)][rng.usize(..4)];
        }
        broken += u32::from(read(&file).1.is_some());
    }
    assert!(broken > 1000, "{broken}");
}

#[test]
fn errors_name_their_place() {
    let some = &frames()[..2];
    let order = Order::Little;
    let ng_with = |rest: Vec<u8>| [section(order), interface(order, 1, 0, &[]), rest].concat();
    let (frame, data) = &some[0];
    let good = enhanced(order, 0, 0, frame, data);
    let mut long_in_front = good.clone();
    long_in_front[4] += 1;
    let mut other_behind = good.clone();
    *other_behind.last_mut().unwrap() = 1;
    let mut too_long = classic(order, true, 1, some);
    too_long[24 + 16 + 60 + 8..][..4].copy_from_slice(&u32_of(order, 262_145));
    let mut beyond_block = good.clone();
    beyond_block[20..24].copy_from_slice(&u32_of(order, 90));
    let mut version = classic(order, true, 1, some);
    version[4] = 3;
    let mut ng_version = ng_with(Vec::new());
    ng_version[12] = 2;
    let mut byte_order = ng_with(Vec::new());
    byte_order[8] = 7;
    let mut option = interface(order, 1, 0, &[(2, b"eth0".to_vec())]);
    option[18] = 99;
    for (file, expected) in [
        (Vec::new(), "frame 1, at byte 0 of the file: the file ends in the middle of the file's head"),
        (b"\x1f\x8b\x08\0".to_vec(), "the file is compressed; unpack it with `gunzip`"),
        (b"\x28\xb5\x2f\xfd".to_vec(), "the file is compressed; unpack it with `unzstd`"),
        (b"hello".to_vec(), "the file begins with 68 65 6c 6c, so it is neither pcap nor pcapng"),
        (version, "unsupported pcap version 3.4; expected 2.4"),
        (ng_version, "unsupported pcapng version 2.0; expected 1.0"),
        (byte_order, "a section's byte-order magic is 07 3c 2b 1a; expected"),
        (
            classic(order, true, 101, some),
            "the frame's link type is 101 (IP without link header); only Ethernet",
        ),
        (classic(order, true, 147, some), "the frame's link type is 147; only Ethernet (1) can be replayed"),
        (
            too_long,
            "frame 2, at byte 100 of the file: the frame's length is 262145 bytes, above the maximum of 262144",
        ),
        (
            ng_with(long_in_front),
            "frame 1, at byte 48 of the file: a block's length is 105 bytes; expected a multiple of 4, at least 12",
        ),
        (
            ng_with([good.clone(), other_behind].concat()),
            "frame 2, at byte 152 of the file: a block's length is 104 at its start and",
        ),
        (
            ng_with(beyond_block),
            "frame 1, at byte 48 of the file: a block's contents are longer than the block",
        ),
        (
            ng_with(enhanced(order, 1, 0, frame, data)),
            "the frame is of interface 1, but only 1 are described",
        ),
        (
            [section(order), interface(order, 113, 0, &[]), good.clone()].concat(),
            "frame 1, at byte 48 of the file: the frame's link type is 113 (Linux cooked capture); only Ethernet",
        ),
        ([section(order), option].concat(), "frame 1, at byte 28 of the file: a block's contents are longer"),
    ] {
        let broken = read(&file).1.unwrap_or_else(|| panic!("nothing is wrong; expected: {expected}"));
        assert!(broken.to_string().contains(expected), "{broken}\n{expected}");
    }
}

#[test]
fn obsolete_and_simple_packets_are_read() {
    let order = Order::Big;
    let data: Vec<u8> = (0..60).collect();
    let head = [&u16_of(order, 0)[..], &u16_of(order, 9)].concat();
    let fields = [0, 5_000_000, 60, 61].map(|n| u32_of(order, n)).concat();
    let obsolete = block(order, 2, &[&head[..], &fields, &data].concat());
    // The interface keeps 40 bytes of each frame.
    let simple = block(order, 3, &[&u32_of(order, 60)[..], &data[..40]].concat());
    let file = [section(order), interface(order, 1, 40, &[]), obsolete, simple].concat();
    let (found, broken) = read(&file);
    assert_eq!(broken, None);
    let expected = [
        (Frame { at: Some(5_000_000_000), len: 60, original: 61 }, data.clone()),
        (Frame { at: None, len: 40, original: 60 }, data[..40].to_vec()),
    ];
    assert!(found == expected, "{found:?}");
}

#[test]
fn times_of_any_unit_become_nanoseconds() {
    for (resolution, offset, time, expected) in [
        (6, None, 1_500_000u64, 1_500_000_000u64),
        (9, None, 17, 17),
        (0, None, 3, 3_000_000_000),
        (12, None, 5_999, 5),
        (0x80 | 10, None, 1536, 1_500_000_000),
        (0x80, None, 2, 2_000_000_000),
        (0xff, None, u64::MAX, 0),
        (0x7f, None, u64::MAX, 0),
        (0, None, u64::MAX, u64::MAX),
        (6, Some(2i64), 1, 2_000_001_000),
        (6, Some(-2), 1, 0),
        (6, Some(i64::MAX), u64::MAX, u64::MAX),
    ] {
        let mut options = vec![(9, vec![resolution])];
        options.extend(offset.map(|offset| (14, offset.to_le_bytes().to_vec())));
        let order = Order::Little;
        let (frame, data) = &frames()[0];
        let packet = enhanced(order, 0, time, frame, data);
        let (found, broken) = read(&[section(order), interface(order, 1, 0, &options), packet].concat());
        assert_eq!((found[0].0.at, broken), (Some(expected), None), "{resolution:#x} {offset:?} {time}");
    }
}

#[test]
fn frames_that_are_too_long_are_skipped() {
    let long = |len: u32| (Frame { at: Some(0), len, original: len }, vec![1; len as usize]);
    let written = [long(65_535), long(65_536), long(262_144), long(60)];
    for file in [classic(Order::Big, true, 1, &written), {
        let order = Order::Little;
        let packets = written.iter().map(|(frame, data)| enhanced(order, 0, 0, frame, data));
        [section(order), interface(order, 1, 0, &[])].into_iter().chain(packets).flatten().collect()
    }] {
        let (found, broken) = read(&file);
        assert_eq!(broken, None);
        let lengths: Vec<_> = found.iter().map(|(frame, data)| (frame.len, data.len())).collect();
        assert_eq!(lengths, [(65_535, 65_535), (65_536, 0), (262_144, 0), (60, 60)]);
    }
}
