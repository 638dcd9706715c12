//! Line cards around a fabric do what the program does that they were split from: for the cases in `tests/cases` and
//! those of the examples, followed by random packets, over 2 to 5 cards.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use mswitch_p4::compile::{self, Front};
use mswitch_p4::diagnostic::render;
use mswitch_p4::preprocess::Options;
use mswitch_p4::split::{BadLayout, Layout, Split, split};
use mswitch_p4::stf::cards::{Comparison, compare, compare_with};
use mswitch_p4::stf::{Case, Command};

const LINK: u32 = 500;

fn cases(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
    let mut cases: Vec<_> = entries.filter(|path| path.extension().is_some_and(|e| e == "stf")).collect();
    cases.sort();
    cases
}

fn program(file: &Path) -> Front {
    compile::file(file, &Options::default()).unwrap()
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/p4").join(name)
}

fn case(file: &Path) -> Case {
    Case::parse(&fs::read_to_string(file).unwrap()).unwrap()
}

/// The ports that a case names, and some more, dealt to so many cards.
fn dealt(case: &Case, cards: usize) -> Layout {
    let named = case.steps.iter().filter_map(|step| match &step.command {
        Command::Packet(port, _) | Command::Expect(port, _) => Some(*port),
        _ => None,
    });
    let ports: BTreeSet<u32> = named.chain(0..8).filter(|port| *port < LINK).collect();
    let mut layout = Layout { cards: vec![Vec::new(); cards], link: LINK };
    ports.into_iter().enumerate().for_each(|(at, port)| layout.cards[at % cards].push(port));
    layout
}

#[test]
fn cards_do_what_the_program_does() {
    let (mut runs, mut sum, mut refused) = (0, Comparison::default(), BTreeSet::new());
    for file in ["tests/cases", "../../examples/p4"].into_iter().flat_map(cases) {
        for cards in 2..=5 {
            let (mut front, case) = (program(&file.with_extension("p4")), case(&file));
            let layout = dealt(&case, cards);
            match compare(&mut front, &layout, &case, (40, cards as u64)) {
                Ok(comparison) => {
                    let difference = comparison.difference;
                    assert_eq!(difference, None, "{}, {cards} cards", file.display());
                    runs += 1;
                    sum.packets += comparison.packets;
                    sum.carried += comparison.carried;
                }
                Err(text) => _ = refused.insert((file.file_stem().unwrap().to_owned(), text)),
            }
        }
    }
    assert!(runs >= 96 && sum.packets > 4000 && sum.carried > 3000, "{runs} runs, {sum:?}");
    let refused: Vec<_> = refused.iter().map(|(file, text)| format!("{}: {text}", file.display())).collect();
    assert_eq!(refused.len(), 3, "{refused:#?}");
    assert!(refused[..2].iter().all(|text| text.contains("a program for `PSA_Switch` cannot be split")));
    assert!(
        refused[2].starts_with("services: error: a program with `truncate` cannot be split"),
        "{refused:#?}"
    );
}

/// Splits an example over three cards.
fn thirds(name: &str) -> (Front, Split, Layout) {
    let front = program(&example(name));
    let layout = Layout { cards: vec![vec![1, 2], vec![3], vec![4]], link: LINK };
    let split = split(&front, &layout).unwrap();
    (front, split, layout)
}

#[test]
fn a_wrong_card_is_noticed() {
    let (mut front, good, layout) = thirds("l2.p4");
    let case = case(&example("l2.stf"));
    assert_eq!(compare_with(&mut front, &good, &layout, &case, (20, 1)).unwrap().difference, None);
    let broken = |from: &str, to: &str| {
        let cards: Vec<String> = good.cards.iter().map(|text| text.replace(from, to)).collect();
        assert_ne!(cards, good.cards, "{from}");
        let split = Split { cards, ..good.clone() };
        let mut front = program(&example("l2.p4"));
        compare_with(&mut front, &split, &layout, &case, (20, 1)).unwrap().difference
    };
    let arrivals = broken("linecard_leave(9w3)", "linecard_leave(9w4)");
    assert!(arrivals.is_some_and(|text| text.contains("packets to port 3")));
    let egress = broken("linecard_local.apply();", "hdr.carrier.setInvalid();");
    assert!(egress.is_some_and(|text| text.contains("the cards send none")));
}

#[test]
fn classes_hold_at_ports_of_other_cards() {
    let layout = Layout { cards: vec![vec![1, 2], vec![3], vec![4]], link: LINK };
    for (name, from, class) in [
        ("l2", "std.egress_spec = port;", "hdr.ethernet.src[2:0] + 1"),
        ("heavy_hitters", "std.egress_spec = port;", "hdr.ethernet.dst[2:0] + 2"),
    ] {
        let text = fs::read_to_string(example(&format!("{name}.p4"))).unwrap();
        let chosen = text.replace(from, &format!("{from} std.priority = {class};"));
        assert_ne!(chosen, text);
        let front = || compile::text("classes.p4", &chosen, &Options::default());
        let case = case(&example(&format!("{name}.stf")));
        let good = split(&front(), &layout).unwrap();
        let compared = |split: &Split| {
            let compared = compare_with(&mut front(), split, &layout, &case, (60, 1)).unwrap();
            (compared.carried, compared.difference)
        };
        let (carried, difference) = compared(&good);
        assert!(carried > 0 && difference.is_none(), "{name}: {difference:?}");
        let forget = |text: &String| text.replace("std.priority = (bit<3>) (hdr.carrier.source >> 12);", "");
        let broken = Split { cards: good.cards.iter().map(forget).collect(), ..good.clone() };
        assert_ne!(broken.cards, good.cards);
        assert!(compared(&broken).1.is_some_and(|text| text.contains("in class")), "{name}");
    }
    // Other programs' carriers have none.
    let (_, without, _) = thirds("router.p4");
    assert!(without.cards.iter().all(|text| !text.contains("std.priority")));
}

#[test]
fn shared_state_goes_to_the_cpu_and_is_named() {
    let (front, split, _) = thirds("heavy_hitters.p4");
    let places: Vec<_> = split.reasons.iter().map(|reason| reason.state.as_str()).collect();
    assert!(!places.is_empty() && places.iter().all(|what| what.starts_with("register `")), "{places:?}");
    assert!(split.reasons.iter().all(|reason| front.sources.text(reason.span).contains("register<")));
    assert!(split.cpu.is_some_and(|text| text.contains("register<")));
    assert!(split.cards.iter().all(|text| !text.contains("register<")));
    // One card shares with none.
    let layout = Layout { cards: vec![vec![1, 2, 3, 4]], link: LINK };
    let alone = mswitch_p4::split::split(&front, &layout).unwrap();
    assert!(alone.cpu.is_none() && alone.reasons.is_empty());
    assert!(alone.cards[0].contains("register<"));
    let (_, without_state, _) = thirds("router.p4");
    assert!(without_state.cpu.is_none());
}

#[test]
fn controllers_find_the_same_names() {
    let (front, split, _) = thirds("router.p4");
    let names = |front: &Front| {
        let info = front.info.as_ref().unwrap();
        let tables = info.tables.iter().filter_map(|table| table.preamble.as_ref());
        let known = tables.filter(|preamble| !preamble.name.contains("linecard_"));
        known.map(|preamble| (preamble.id, preamble.name.clone())).collect::<Vec<_>>()
    };
    let card = compile::text("card.p4", &split.cards[0], &Options::default());
    assert_eq!(names(&card), names(&front));
    assert!(!names(&front).is_empty());
}

#[test]
fn what_cannot_be_split_is_refused_at_its_place() {
    let layout = Layout { cards: vec![vec![1], vec![2]], link: LINK };
    let router = fs::read_to_string(example("router.p4")).unwrap();
    let refusal = |text: &str| {
        let front = compile::text("router.p4", text, &Options::default());
        assert_eq!(front.diagnostics.errors(), 0, "{}", render(&front.sources, &front.diagnostics, false));
        render(&front.sources, &split(&front, &layout).unwrap_err(), false)
    };
    let text = refusal(&router.replace("next_hops", "linecard_next_hops"));
    assert!(text.contains("`linecard_next_hops` is a name of split programs"), "{text}");
    let text = refusal(&router.replace("meta.next_hop = next_hop;", "std.egress_port = 3;"));
    assert!(text.contains("a program that sets `egress_port` cannot be split"), "{text}");
    let text = refusal(&router.replace("header vlan_t", "@controller_header(\"packet_in\")\nheader vlan_t"));
    assert!(text.contains("a program with headers for controllers cannot be split"), "{text}");
}

#[test]
fn layouts_are_checked() {
    let check = |cards: &[&[u32]], link| {
        Layout { cards: cards.iter().map(|ports| ports.to_vec()).collect(), link }.check()
    };
    assert_eq!(check(&[&[1, 2], &[3]], 500), Ok(()));
    assert_eq!(check(&[], 500), Err(BadLayout::Empty));
    assert_eq!(check(&[&[1], &[]], 500), Err(BadLayout::Empty));
    assert_eq!(check(&[&[1], &[2, 1]], 500), Err(BadLayout::Twice(1)));
    assert_eq!(check(&[&[1], &[511]], 500), Err(BadLayout::Number(511)));
    assert_eq!(check(&[&[1], &[2]], 600), Err(BadLayout::Number(600)));
    assert_eq!(check(&[&[1], &[510]], 500), Err(BadLayout::Number(510)));
    assert_eq!(check(&[&[1], &[2]], 0), Err(BadLayout::Number(0)));
    assert_eq!(check(&[&[1], &[2]], 2), Err(BadLayout::Link(2)));
    assert_eq!(BadLayout::Twice(7).to_string(), "port 7 is there twice; a port belongs to one card");
}
