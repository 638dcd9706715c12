//! Parsers: states, transitions, `select`, value sets.

use super::{accepted, refused, warned};
use crate::hir::{Keyset, Target, Transition};

const TYPES: &str =
    "header H { bit<8> a; bit<16> b; } header V { varbit<8> v; } struct S { H h; V v; H[3] s; } ";

fn parser(states: &str) -> String {
    format!("{TYPES} parser p(packet_in b, out S s) {{ {states} }}")
}

#[test]
fn states_are_declared_in_any_order() {
    let program = accepted(&parser("state start { transition next; } state next { transition accept; }"));
    assert!(matches!(program.parsers[0].states[0].next, Transition::To(Target::State(1))));
    refused(
        &parser("state start {\ntransition nxt; } state next { transition accept; }"),
        &[(2, "state `nxt` is not declared (did you mean `next`?)")],
    );
    refused(&parser("state other { transition accept; }"), &[(1, "parser `p` has no state `start`")]);
    refused(
        &parser("state start { transition accept; }\nstate accept { }"),
        &[(2, "state `accept` is built in")],
    );
    refused(
        &parser("state start { transition accept; }\nstate start { transition reject; }"),
        &[(2, "`start` is declared twice")],
    );
    refused(
        &parser("state start { transition start; }"),
        &[(1, "parser `p` never reaches `accept` or `reject`")],
    );
}

#[test]
fn a_state_without_a_transition_fails() {
    warned(
        &parser("state start {\n} state next { transition accept; }"),
        &[(1, "state `start` has no transition")],
    );
}

#[test]
fn select_has_a_keyset_for_each_value() {
    let program = accepted(&parser(
        "state start { b.extract(s.h); transition select(s.h.a, s.h.b) { (1, _): accept; (2 .. 5, 6 &&& 7): \
         start; default: reject; } }",
    ));
    let Transition::Select { cases, .. } = &program.parsers[0].states[0].next else { panic!() };
    assert!(matches!(cases[1].0[0], Keyset::Range(..)) && matches!(cases[1].0[1], Keyset::Mask(..)));
    refused(
        &parser("state start { transition select(s.h.a, s.h.b) {\n(1, 2, 3): accept; _: reject; } }"),
        &[(2, "3 keysets for 2 values")],
    );
    refused(
        &parser("state start { transition select(s.h.a, s.h.b) {\n1: accept; _: reject; } }"),
        &[(2, "1 keyset for 2 values")],
    );
    refused(
        &parser("state start { transition select(s.h.a) {\n16w1: accept; _: reject; } }"),
        &[(2, "found a value of type `bit<16>`, expected `bit<8>`")],
    );
    refused(
        &parser("state start { transition select(s.h.a) {\ntrue &&& 1: accept; _: reject; } }"),
        &[(2, "found a value of type `bool`")],
    );
    refused(
        &parser("state start { transition select(s.h) {\n_: accept; } }"),
        &[(1, "`select` on a value of type `H`")],
    );
}

#[test]
fn lists_in_select_are_taken_apart() {
    let program = accepted(&parser(
        "state start { transition select(s.h.a, { s.h.a, s.h.b }) { (1, { 2, 3 }): accept; (1, default): reject; } }",
    ));
    let Transition::Select { on, cases, .. } = &program.parsers[0].states[0].next else { panic!() };
    assert_eq!((on.len(), cases[0].0.len(), cases[1].0.len()), (3, 3, 3));
}

#[test]
fn value_sets() {
    accepted(&parser(
        "value_set<bit<8>>(4) v; state start { transition select(s.h.a) { v: accept; _: reject; } }",
    ));
    accepted(&parser(
        "value_set<tuple<bit<8>, bit<16>>>(4) v; state start { transition select(s.h.a, s.h.b) { v: accept; \
         _: reject; } }",
    ));
    refused(
        &parser(
            "value_set<bit<16>>(4) v; state start { transition select(s.h.a) {\nv: accept; _: reject; } }",
        ),
        &[(2, "the value set has elements of type `bit<16>`")],
    );
}

#[test]
fn next_and_last_are_for_parsers() {
    accepted(&parser(
        "state start { b.extract(s.s.next); transition select(s.s.last.a) { 1: start; _: accept; } }",
    ));
    refused(
        "header H {} control c(inout H[2] s, packet_in b) { apply {\nb.extract(s.next); } }",
        &[(2, "`next` can only be used in parsers")],
    );
}

#[test]
fn extract_takes_headers() {
    accepted(&parser("state start { b.extract(s.h); b.extract(s.v, 8); transition accept; }"));
    refused(
        &parser("state start {\nb.extract(s); transition accept; }"),
        &[(2, "`extract` needs a header, found `S`")],
    );
    refused(
        &parser("state start {\nb.extract(s.v); transition accept; }"),
        &[(2, "`extract` needs its size as a second argument")],
    );
    refused(
        &parser("state start {\nb.extract(s.h, 8); transition accept; }"),
        &[(2, "`H` has no varbit field")],
    );
    refused(
        "header H { varbit<8> x;\nvarbit<8> y; } parser p(packet_in b, out H h) { state start { b.extract(h, \
         8); transition accept; } }",
        &[(2, "a second varbit field in header `H`")],
    );
}

#[test]
fn lookahead_takes_types_of_fixed_size() {
    accepted(&parser(
        "state start { bit<8> x = b.lookahead<bit<8>>(); H h = b.lookahead<H>(); transition accept; }",
    ));
    refused(
        &parser("state start { V v =\nb.lookahead<V>(); transition accept; }"),
        &[(2, "`lookahead` needs a type of fixed size, found `V`")],
    );
}

#[test]
fn parsers_apply_parsers() {
    accepted(&format!(
        "{TYPES} parser q(packet_in b, out H h) {{ state start {{ b.extract(h); transition accept; }} }} \
         parser p(packet_in b, out S s) {{ q() inner; state start {{ inner.apply(b, s.h); q.apply(b, s.h); \
          transition accept; }} }}"
    ));
    refused(
        "control c() { apply {} } parser p() {\nc() inner; state start { transition accept; } }",
        &[(2, "a control cannot be an object of a parser")],
    );
}
