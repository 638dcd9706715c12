//! Programs and maps in the kernel. Runs as root.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;

use bpf::assembler::{Alu, Cond, Size};
use bpf::map::{Kind, Shape};
use bpf::syscall::{load_verified, test_run};
use bpf::{Assembler, Map, Reg};
use rustix::io::Errno;

const PASS: u64 = 2;
const MAP_LOOKUP: i32 = 1;

fn shape(kind: Kind, key: u32, value: u32, entries: u32) -> Shape {
    Shape::new(kind, "a map's long name, cut", key, value, entries)
}

/// A program that adds the packet's length to a word of a map for each CPU, and writes 0xabcd to the packet's front.
fn counting() -> bpf::assembler::Program {
    let mut asm = Assembler::default();
    let (out, short) = (asm.label(), asm.label());
    asm.mov(Reg(6), Reg(1));
    asm.store_imm(Size::W, Reg(10), -4, 0);
    asm.map(Reg(1), 0);
    asm.mov(Reg(2), Reg(10));
    asm.alu_imm(Alu::Add, Reg(2), -4);
    asm.call(MAP_LOOKUP);
    asm.jump_if_imm(Cond::Eq, Reg(0), 0, out);
    asm.load(Size::W, Reg(1), Reg(6), 0);
    asm.load(Size::W, Reg(2), Reg(6), 4);
    asm.mov(Reg(3), Reg(1));
    asm.alu_imm(Alu::Add, Reg(3), 2);
    asm.jump_if(Cond::Gt, Reg(3), Reg(2), short);
    asm.set(Reg(4), 0xabcd);
    asm.to_big_endian(Reg(4), 2);
    asm.store(Size::H, Reg(1), 0, Reg(4));
    asm.bind(short);
    asm.alu(Alu::Sub, Reg(2), Reg(1));
    asm.load(Size::D, Reg(1), Reg(0), 0);
    asm.alu(Alu::Add, Reg(1), Reg(2));
    asm.store(Size::D, Reg(0), 0, Reg(1));
    asm.bind(out);
    asm.set(Reg(0), PASS);
    asm.exit();
    asm.finish().unwrap()
}

#[test]
fn programs_run_and_count() {
    let map = Map::new(shape(Kind::PerCpuArray, 4, 8, 1)).unwrap();
    let program = load_verified(&counting().with(&[map.raw()], &[]), "counting", false).unwrap();
    for _ in 0..3 {
        let ran = test_run(program.as_fd(), &[7; 60], 1).unwrap();
        assert_eq!(
            (u64::from(ran.result), ran.packet.len(), &ran.packet[..3]),
            (PASS, 60, &[0xab, 0xcd, 7][..])
        );
    }
    let each = map.get_each(&[0; 4]).unwrap();
    let sum: u64 = each.iter().map(|value| u64::from_ne_bytes(value[..].try_into().unwrap())).sum();
    assert_eq!(sum, 180);
    // The kernel takes nothing shorter than an Ethernet header.
    assert_eq!(test_run(program.as_fd(), &[7; 13], 1), Err(Errno::INVAL));
}

#[test]
fn programs_and_this_process_share_words() {
    let map = Map::new(Shape { is_shared: true, ..shape(Kind::Array, 4, 8, 1) }).unwrap();
    let words = map.words().unwrap();
    // Replaces 5 by 6, then exchanges 7 for what is there, and returns that.
    let mut asm = Assembler::default();
    asm.map_value(Reg(2), 0);
    asm.set(Reg(0), 5);
    asm.set(Reg(3), 6);
    asm.compare_exchange(Reg(2), 0, Reg(3));
    asm.set(Reg(1), 7);
    asm.exchange(Reg(2), 0, Reg(1));
    asm.mov(Reg(0), Reg(1));
    asm.exit();
    let program = asm.finish().unwrap();
    let program = load_verified(&program.with(&[map.raw()], &[]), "shared", false).unwrap();
    for (before, replaced) in [(5, 6), (4, 4)] {
        words[0].store(before, Relaxed);
        let ran = test_run(program.as_fd(), &[0; 60], 1).unwrap();
        assert_eq!((ran.result, words[0].load(Relaxed)), (replaced, 7));
    }
    // They are there without the map's descriptors.
    drop((map, program));
    assert_eq!((words.len(), words[0].load(Relaxed)), (1, 7));
    assert_eq!(Map::new(shape(Kind::Array, 4, 8, 1)).unwrap().words().unwrap_err(), Errno::INVAL);
}

#[test]
fn a_refused_program_says_why() {
    let mut asm = Assembler::default();
    asm.part("a result that was never set");
    asm.exit();
    let program = asm.finish().unwrap();
    let refused = load_verified(&program.with(&[], &[]), "refused", false).unwrap_err();
    assert!(refused.log.contains("R0 !read_ok"), "{refused:?}");
    // A map that is not there.
    let refused = load_verified(&counting().with(&[], &[]), "no map", false).unwrap_err();
    assert_eq!(refused.errno, Errno::INVAL);
    assert!(refused.log.contains("not pointing to valid bpf_map"), "{refused:?}");
}

#[test]
fn maps_hold_values_and_refuse_others() {
    let map = Map::new(shape(Kind::Hash, 4, 8, 2)).unwrap();
    let (one, two) = ([1, 0, 0, 0], [2, 0, 0, 0]);
    map.update(&one, &[1; 8]).unwrap();
    map.update(&one, &[2; 8]).unwrap();
    assert_eq!(map.get(&one).unwrap(), [2; 8]);
    assert_eq!(map.get(&two), Err(Errno::NOENT));
    map.update(&two, &[3; 8]).unwrap();
    assert_eq!(map.update(&[3, 0, 0, 0], &[0; 8]), Err(Errno::TOOBIG));
    assert_eq!((map.remove(&two), map.remove(&two)), (Ok(true), Ok(false)));
    assert_eq!(map.update(&[1], &[0; 8]), Err(Errno::INVAL));
    assert_eq!(map.update(&one, &[0; 7]), Err(Errno::INVAL));
    assert_eq!((map.get(&[1]), map.remove(&[1])), (Err(Errno::INVAL), Err(Errno::INVAL)));

    // More values than are read at once.
    let all = Map::new(shape(Kind::PerCpuArray, 4, 16, 20_000)).unwrap();
    for index in [0_u32, 1, 9_999, 19_999] {
        all.update_each(&index.to_ne_bytes(), &[index as u8; 16]).unwrap();
    }
    let mut seen = Vec::new();
    let mut next = 0;
    all.for_each(|index, value| {
        assert_eq!(index, next);
        next += 1;
        if value.iter().any(|byte| *byte != 0) {
            seen.push((index, value[0], value.len()));
        }
    })
    .unwrap();
    let bytes = all.get(&[0; 4]).unwrap().len();
    assert_eq!((next, seen), (20_000, vec![(1, 1, bytes), (9_999, 15, bytes), (19_999, 31, bytes)]));

    let trie = Map::new(shape(Kind::LpmTrie, 8, 4, 4)).unwrap();
    let key = |bits: u32, address: [u8; 4]| [bits.to_ne_bytes(), address].concat();
    trie.update(&key(8, [10, 0, 0, 0]), &[8; 4]).unwrap();
    trie.update(&key(16, [10, 1, 0, 0]), &[16; 4]).unwrap();
    assert_eq!(trie.get(&key(32, [10, 1, 2, 3])).unwrap(), [16; 4]);
    assert_eq!(trie.get(&key(32, [10, 2, 2, 3])).unwrap(), [8; 4]);
    assert_eq!(trie.get(&key(32, [11, 2, 2, 3])), Err(Errno::NOENT));
}
