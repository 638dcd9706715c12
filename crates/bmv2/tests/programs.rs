//! Own programs, as source text and as p4c writes them for BMv2: both do what the same cases say, in the interpreter
//! and as machine code.
#![allow(clippy::unwrap_used, clippy::panic, reason = "clippy exempts test functions, but not their helpers")]

use std::fs;
use std::path::Path;

use p4::compile;
use p4::info::P4Info;
use p4::preprocess;
use p4::stf::{self, Case, Options};
use pipeline::Checked;
use pipeline::ir::MatchKind;

const PROGRAMS: [(&str, &str); 3] = [
    ("calculator", "../../examples/p4/calculator"),
    ("router", "../../examples/p4/router"),
    ("services", "tests/programs/services"),
];

fn read(path: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The program of a source, with its P4Info.
fn compiled(source: &str) -> (Checked, P4Info) {
    let text = String::from_utf8(read(&format!("{source}.p4"))).unwrap();
    let mut front = compile::text("program.p4", &text, &preprocess::Options::default());
    let program = front.lower().unwrap();
    let info = p4::info::of(front.program.as_ref().unwrap(), &front.sources, &mut front.diagnostics);
    (program, info)
}

fn imported(name: &str, info: Option<&P4Info>) -> Checked {
    bmv2::lower(&read(&format!("tests/programs/{name}.json")), info)
        .unwrap_or_else(|refusal| panic!("{refusal}"))
}

fn failures(program: &Checked, source: &str) -> String {
    let case = Case::parse(&String::from_utf8(read(&format!("{source}.stf"))).unwrap()).unwrap();
    stf::run(program, &case, &Options { trace: true, ..Options::default() }).text(source)
}

#[test]
fn both_pass_the_same_cases() {
    for (name, source) in PROGRAMS {
        let (program, info) = compiled(source);
        assert_eq!(failures(&program, source), "", "{name}");
        assert_eq!(failures(&imported(name, Some(&info)), source), "", "{name}");
    }
}

#[test]
fn names_sizes_and_keys_are_those_of_the_source() {
    for (name, source) in PROGRAMS {
        let (program, info) = compiled(source);
        let import = imported(name, Some(&info));
        assert_eq!(program.tables.len(), import.tables.len(), "{name}: calls of actions are no tables");
        for a in &program.tables {
            let b = import.tables.iter().find(|b| a.name == b.name).unwrap();
            let keys = |table: &pipeline::ir::Table| {
                table.keys.iter().map(|key| (key.name.clone(), key.kind)).collect::<Vec<_>>()
            };
            assert_eq!((&a.name, a.size, keys(a)), (&b.name, b.size, keys(b)));
            assert_eq!((a.const_default, a.const_entries), (b.const_default, b.const_entries), "{}", a.name);
            let priorities = |table: &pipeline::ir::Table| {
                table.entries.iter().map(|entry| entry.priority).collect::<Vec<_>>()
            };
            assert_eq!(priorities(a), priorities(b));
        }
        assert_eq!(program.counters, import.counters);
        assert_eq!(program.registers, import.registers);
        assert_eq!(program.digests, import.digests);
        assert_eq!(program.value_sets, import.value_sets);
    }
}

#[test]
fn without_a_p4info_the_document_alone_is_enough_to_run() {
    // Only optional keys are ternary then, and counters count bytes, too.
    let program = imported("services", None);
    let ports = program.tables.iter().find(|table| table.name == "In.ports").unwrap();
    assert_eq!(ports.keys[1].kind, MatchKind::Ternary);
    for (name, source) in &PROGRAMS[..2] {
        assert_eq!(failures(&imported(name, None), source), "", "{name}");
    }
}

#[test]
fn graphs_without_structure_run_too() {
    let (_, info) = compiled(PROGRAMS[2].1);
    let mut document: serde_json::Value =
        serde_json::from_slice(&read("tests/programs/services.json")).unwrap();
    let nodes = imported("services", Some(&info)).blocks.len();
    // Two conditions lead to one call, and a third way goes past it.
    document["pipelines"][1]["conditionals"][1]["true_next"] = "tbl_services162".into();
    let program = bmv2::lower(document.to_string().as_bytes(), Some(&info)).unwrap();
    assert_eq!(program.blocks.len(), nodes + 6, "each node of the graph is a block");
    let case = Case::parse(
        "mc_mgrp_create 3
         mc_node_create 11 5
         mc_node_associate 3 0
         add services 1 op.code:0x07 meta.rounds:0 copies(id:3)
         packet 0 020000000001 020000000002 9000 07 55 0000
         expect 5 020000000001 020000000002 9000 07 00 0000 $
         no_packet",
    );
    assert_eq!(stf::run(&program, &case.unwrap(), &Options::default()).text("case"), "");
}
