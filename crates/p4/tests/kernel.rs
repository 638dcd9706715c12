//! Programs in the kernel do what they do in the interpreter: for the cases in `tests/cases` and those of the examples,
//! followed by random packets. Runs as root.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};

use mswitch_p4::compile;
use mswitch_p4::preprocess::Options;
use mswitch_p4::stf::Case;
use mswitch_p4::stf::kernel::{Comparison, Unfit, compare};

fn cases(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
    let mut cases: Vec<_> = entries.filter(|path| path.extension().is_some_and(|e| e == "stf")).collect();
    cases.sort();
    cases
}

fn compared(file: &Path) -> Result<Comparison, Unfit> {
    let mut front = compile::file(&file.with_extension("p4"), &Options::default()).unwrap();
    let case = Case::parse(&fs::read_to_string(file).unwrap()).unwrap();
    compare(&front.lower().unwrap(), &case, 1, 100)
}

#[test]
fn cards_do_what_programs_mean() {
    let (mut whole, mut partly, mut not) = (Vec::new(), Vec::new(), Vec::new());
    for file in cases("tests/cases").into_iter().chain(cases("../../examples/p4")) {
        let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
        match compared(&file) {
            Ok(comparison) => {
                assert_eq!(comparison.difference, None, "{name}");
                let list = match (comparison.to_cpu.is_empty(), comparison.handed_over) {
                    (true, handed_over) => {
                        assert_eq!(handed_over, 0, "{name}");
                        &mut whole
                    }
                    (false, handed_over) if handed_over < comparison.packets => &mut partly,
                    (false, _) => &mut not,
                };
                list.push(name);
            }
            Err(Unfit::Refused(refusals)) => {
                assert!(!refusals.is_empty(), "{name}");
                not.push(name);
            }
            Err(Unfit::Kernel(reason)) => panic!("{name}: {reason}"),
        }
    }
    let expected = [
        "actions",
        "controls",
        "errors",
        "loops",
        "stacks",
        "tables",
        "types",
        "unions",
        "acl",
        "calculator",
        "firewall",
        "heavy_hitters",
        "router",
        "telemetry",
    ];
    assert_eq!(whole, expected);
    let expected = [
        "arithmetic",
        "checksum",
        "deprecated",
        "parser",
        "profile",
        "psa_paths",
        "replication",
        "rounds",
        "services",
        "state",
        "ecmp",
    ];
    assert_eq!(partly, expected);
    assert_eq!(not, ["psa_services", "varbit", "l2"]);
}

#[test]
fn parts_have_places_in_the_source() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/p4/ecmp.p4");
    let mut front = compile::file(&file, &Options::default()).unwrap();
    let lowered = front.lower().unwrap();
    let (places, source) = (front.places(&lowered), fs::read_to_string(&file).unwrap());
    let check = |kind: &str, part: &str, name: &str| {
        let place = places.of(part).unwrap_or_else(|| panic!("no place of {part}"));
        let (file, line) = place.split_once(':').unwrap();
        // Others are those of core.p4.
        if file == "ecmp.p4" {
            let line = source.lines().nth(line.parse::<usize>().unwrap() - 1).unwrap();
            let own = format!("{kind} {}", name.rsplit('.').next().unwrap());
            // A parser's first state may be one of its own.
            assert!(line.contains(&own) || name == "begin" && line.contains("parser "), "{part}: {line}");
        }
    };
    lowered.tables.iter().for_each(|it| check("table", &format!("table {}", it.name), &it.name));
    lowered.actions.iter().for_each(|it| check("action", &format!("action {}", it.name), &it.name));
    for parser in &lowered.parsers {
        for state in parser.states.iter().filter(|state| !["accept", "reject"].contains(&&*state.name)) {
            check("state", &format!("parser {}, state {}", parser.name, state.name), &state.name);
        }
    }
    assert!(places.before("table Route.routes: a selector").starts_with("ecmp.p4:"));
    assert_eq!(places.before("the program: 70 maps"), "the program: 70 maps");
}

#[test]
fn what_cannot_be_taken_back_is_named_with_its_place() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/p4/heavy_hitters.p4");
    let text = fs::read_to_string(file).unwrap();
    let (from, to) =
        ("bit<32> count = count0", "std.mcast_grp = 1; clone(CloneType.I2E, 1); bit<32> count = count0");
    let mut front = compile::text("hitters.p4", &text.replace(from, to), &Options::default());
    let lowered = front.lower().unwrap();
    let refusals = xdp::lower(&lowered, xdp::Setting::Live).unwrap_err();
    let places = front.places(&lowered);
    let named: Vec<_> = refusals.iter().map(|refusal| places.before(&refusal.to_string())).collect();
    let (place, what) = named.last().unwrap().split_once(": ").unwrap();
    assert!(place.starts_with("hitters.p4:"), "{place}");
    assert_eq!(
        what,
        "action Count.limit: register Count.row0 is changed, and behind, in block traffic manager, may come copies of a \
         packet: multicast or clones"
    );
}

#[test]
fn constructs_without_a_counterpart_are_named() {
    let named = |name: &str| {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/p4").join(name);
        match compared(&file) {
            Ok(comparison) => comparison.to_cpu,
            Err(Unfit::Refused(refusals)) => refusals,
            Err(Unfit::Kernel(reason)) => panic!("{reason}"),
        }
    };
    let text = |name| named(name).iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(text("ecmp.stf"), ["table Route.routes: a selector"]);
    assert_eq!(text("heavy_hitters.stf"), [""; 0]);
    assert_eq!(text("../cache-agent/cache.stf"), ["table Cache.rules: the mark @cpu"]);
}
