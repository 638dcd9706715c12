//! Controls and actions.

use super::{accepted, refused};
use crate::hir::{Callee, ExprKind, StmtKind};

#[test]
fn controls_apply_controls() {
    let program = accepted(
        "control inner(inout bit<8> x)(bit<8> n) { apply { x = x + n; } } control plain(inout bit<8> x) { \
         apply { x = 1; } } \
         control outer(inout bit<8> x) { inner(5) i; apply { i.apply(x); plain.apply(x); plain.apply(x); } }",
    );
    let outer = program.controls.last().expect("a control");
    // Each call by a type's name has an object of its own.
    assert_eq!(outer.instances.len(), 3);
    let StmtKind::Call(call) = &outer.body[1].kind else { panic!() };
    assert!(matches!(&call.callee, Callee::Apply(e) if matches!(e.kind, ExprKind::Instance(_))));
    refused(
        "control i(inout bit<8> x) { apply {} } control o(in bit<8> x) { apply {\ni.apply(x); } }",
        &[(2, "parameter `x` of `i` writes to this: it is an `in` parameter")],
    );
    refused(
        "control i()(bit<8> n) { apply {} } control o() { apply {\ni.apply(); } }",
        &[(2, "no argument for parameter `n` of `i`")],
    );
    refused(
        "control i() { apply {} } control o() { i() x; action a() {\nx.apply(); } apply {} }",
        &[(2, "a control cannot be applied in an action")],
    );
}

#[test]
fn directions_of_action_parameters_come_first() {
    accepted("action a(inout bit<8> x, bit<8> y) { x = y; }");
    refused(
        "action a(bit<8> x,\nin bit<8> y) {}",
        &[(2, "parameter `y` with a direction follows one without")],
    );
    refused("action a(\nint x) {}", &[(2, "parameter `x` of an action cannot have the type `int`")]);
    refused(
        "extern E { E(); } action a(\nE e) {}",
        &[(2, "parameter `e` of an action cannot be an extern object")],
    );
}

#[test]
fn parameters_have_types_that_fit_their_direction() {
    accepted("control c(packet_out p, in bit<8> x, out bit<8> y) { apply { y = x; } }");
    refused(
        "control c(inout\npacket_out p) { apply {} }",
        &[(1, "parameter `p` of type `packet_out` cannot have a direction")],
    );
    refused(
        "extern void f(\nin string s);",
        &[(2, "parameter `s` of type `string` cannot have a direction")],
    );
    refused(
        "control P(); control c(\nP p) { apply {} }",
        &[(2, "parameter `p` cannot be a parser or control")],
    );
}

#[test]
fn controls_with_a_body_have_no_type_parameters() {
    refused("control c<T>(in T t) { apply {} }", &[(1, "a control with a body cannot have type parameters")]);
}

#[test]
fn names_for_the_control_plane_differ() {
    accepted("control c() { @name(\"x\") action a() {} @name(\"x\") table t { actions = { a; } } apply {} }");
    refused(
        "control c() { @name(\"x\") action a() {}\n@name(\"x\") action b() {} table t { actions = { a; b; } } \
         apply {} }",
        &[(2, "the control plane sees the name `c.x` twice")],
    );
}

#[test]
fn annotations_are_kept() {
    let program = accepted("@name(\"a\" ++ \"b\") @other[1 + 1, \"x\"] action a() {}");
    let a = program.actions.last().expect("an action");
    assert_eq!(format!("{:?}", a.annotations[0].body), "Tokens([\"\\\"ab\\\"\"])");
    assert!(format!("{:?}", a.annotations[1].body).contains("String(\"x\")"));
    refused("@name(4)\naction a() {}", &[(1, "`@name` has no string")]);
    refused("@x[1]\n@x[2] action a() {}", &[(2, "annotation `@x` is there twice")]);
    refused(
        "struct S {}\n@x[{1, 2}] action a() {}",
        &[(2, "a structured annotation has a value of another kind")],
    );
}
