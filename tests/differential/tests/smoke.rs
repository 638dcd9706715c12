//! A few table sets in the interpreter and in generated code, without Open vSwitch.
#![allow(clippy::unwrap_used, clippy::panic)]

use differential::case::Case;
use differential::compare::judge;
use differential::ours::Ours;
use differential::subject::Subject;

#[test]
fn code_does_what_the_interpreter_does() {
    let mut subjects: Vec<Box<dyn Subject>> = vec![
        Box::new(Ours::interpreted().unwrap()),
        Box::new(Ours::compiled(false).unwrap()),
        Box::new(Ours::compiled(true).unwrap()),
    ];
    let mut seen = 0;
    for seed in 1..30 {
        let verdict = judge(&Case::new(seed, 20), &mut subjects).unwrap();
        if let Some((number, difference)) = verdict.unexplained.first() {
            panic!("seed {seed}: {}: {difference}", subjects[*number].name());
        }
        seen += verdict.seen;
    }
    assert!(seen > 100, "{seen} packets had results");
}

#[test]
fn most_tables_have_specialised_code() {
    let mut ours = Ours::compiled(true).unwrap();
    let special = (1..30).filter(|seed| {
        ours.run(&Case::new(*seed, 1)).unwrap();
        ours.is_specialised()
    });
    let special = special.count();
    assert!(special > 10, "{special} of 29");
}

#[test]
fn cases_are_valid_and_have_every_kind_of_action() {
    let mut texts = String::new();
    for seed in 1..400 {
        let case = Case::new(seed, 1);
        assert!(case.is_valid(), "{case:#?}");
        texts.extend(case.texts().map(|text| format!("{text}\n")));
    }
    for word in [
        "output:",
        "IN_PORT",
        "ALL",
        "FLOOD",
        "CONTROLLER",
        "controller(",
        "group:",
        "set_field:",
        "load:",
        "move:",
        "push:",
        "pop:",
        "push_vlan",
        "pop_vlan",
        "push_mpls",
        "pop_mpls",
        "dec_ttl",
        "dec_mpls_ttl",
        "resubmit(",
        "clone(",
        "learn(",
        "conjunction(",
        "exit",
        "note:",
        "write_actions(",
        "clear_actions",
        "write_metadata:",
        "goto_table:",
        "type=all",
        "type=select",
        "type=indirect",
        "type=ff",
        "check_pkt_larger(",
    ] {
        assert!(texts.contains(word), "{word}");
    }
}
